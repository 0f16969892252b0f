"""Copies of public proxy data with the error that is assumed of them, and what is scored on them.

The private data are not the proxy. Plans, the initial point and the optimum for the proxy are
scored on the same copies, with the same judge, by forecasts and by searches: these cannot
contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from .._words import together
from ..algorithms.written_model import Rules
from ..errors import ModelError
from ..model.adjacency import Rows
from ..model.declaration import Declaration
from ..model.matrices import as_array
from ..model.prior import Expectations
from ..model.private import Private
from ..model.sealed import Sealed, stand_in
from ..model.spec import PrivateSpec
from ..privacy.randomness import Randomness, source_for, uniform
from ..run.solution import Solution
from .judge import Judge

Array = NDArray[np.float64]

# Of an entry of the proxy, where no standard deviation is given.
ERROR = 0.2
# Fewer records are not drawn again: their entries differ as those of other data.
_RECORDS = 10
# Copies that differ; runs beyond take them again, with other noise.
COUNT = 12
# A copy without an optimum is drawn again so often.
_TRIES = 5
# Multiples of the error at which a ranking is looked at, up or down, and on so many copies each.
_MULTIPLES = (2.0, 4.0, 8.0)
_LOOKED_AT = 4
# Of the seeds of copies; no noise has it.
_STREAM = 7


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy of the proxy data, and how settings are judged on it."""

    proxy: Mapping[Private | str, Sealed] = field(repr=False)  # values for every private object
    judge: Judge = field(repr=False)
    start: float  # gap of the initial point; infinite if it breaks a constraint with private data
    guess: float  # gap of the optimum for the proxy data; likewise

    def gap(self, solution: Solution, paid: float = 0.0) -> float:
        """Return the gap of a solution to the optimum, with the price of its constraint slack.

        If the optimum is unknown, the gap is to the initial point.
        """
        return self.judge(solution) + paid - self.judge.base


class Copies:
    """Copies of the proxy data of a problem, made when they are asked for.

    Overwrites ``variable.value``; see `values_kept`.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values for every private object.
    verb : str
        Method that needs them, for messages.
    recourse : bool
        See `Judge`.
    expected : mapping
        Prior standard deviations, by agent: they are the error of the proxy.
    rules : {"dcp", "dgp", "dqcp"}
        That the problem follows.

    Attributes
    ----------
    judge : Judge
        Judge on the proxy itself.

    Raises
    ------
    ModelError
        If the problem for the proxy data has no solution.
    """

    def __init__(
        self,
        problem: Declaration,
        proxy: Mapping[Private | str, Sealed],
        verb: str,
        recourse: bool = False,
        expected: Expectations | None = None,
        rules: Rules = "dcp",
    ) -> None:
        self.judge = Judge(problem, proxy, verb, recourse, rules=rules)
        self._problem, self._proxy = problem, proxy
        self._given = (verb, recourse)
        self._rules: Rules = rules
        self._expected = expected or {}
        self._made: dict[tuple[int, float], Copy] = {}

    def __call__(self, k: int, times: float = 1.0) -> Copy:
        """Return copy k, with so many times the assumed error, the same in every call."""
        key = (k % COUNT, times)
        if key not in self._made:
            self._made[key] = self._copy(*key)
        return self._made[key]

    @property
    def start(self) -> float:
        """Median gap of the initial point on the copies that were asked for."""
        return median(copy.start for copy in self._scored)

    @property
    def guess(self) -> float:
        """Median gap of the optimum for the proxy data on the same copies."""
        return median(copy.guess for copy in self._scored)

    @property
    def _scored(self) -> list[Copy]:
        return [c for (_, times), c in self._made.items() if times == 1] or [self(0)]

    def reference(self, values: list[float]) -> float:
        """Return the reference of gaps: zero, or the lowest gap if the optimum is unknown."""
        return 0.0 if self.judge.optimum is not None else min([*values, self.start, self.guess])

    @property
    def error(self) -> str:
        """The assumed error of the proxy, as text."""
        kinds: dict[str, None] = {}
        for name, agent in self._problem.named.items():
            expected = self._expected.get(name, ())
            for k, (private, spec) in enumerate(agent.specs(name).items()):
                if private not in self._proxy:
                    continue
                prior = expected[k] if k < len(expected) else None
                if _resampled(spec):
                    kinds["records drawn again with replacement"] = None
                elif prior is not None and prior.spread is not None:
                    kinds["the prior's standard deviation"] = None
                else:
                    kinds[f"{ERROR:.0%} of each entry".replace("%", " %")] = None
        return together(list(kinds))

    def _copy(self, k: int, times: float) -> Copy:
        for attempt in range(_TRIES):
            proxy = dict(self._drawn(k, attempt, times))
            try:
                given = self._given
                judge = Judge(self._problem, proxy, *given, other=self.judge, rules=self._rules)
            except ModelError:
                continue
            return self._scored_copy(proxy, judge)
        return self._scored_copy(dict(self._proxy), self.judge)

    def _scored_copy(self, proxy: Mapping[Private | str, Sealed], judge: Judge) -> Copy:
        guess, best = math.inf, self.judge.best
        if best is not None and (self._given[1] or not judge.breaks(best, {})):
            guess = judge.value(best) - judge.base
        return Copy(proxy, judge, judge.start - judge.base, guess)

    def _drawn(self, k: int, attempt: int, times: float) -> Iterator[tuple[Private | str, Sealed]]:
        """Return the values of a copy, from the same draws for all multiples of the error."""
        for index, (name, agent) in enumerate(self._problem.named.items()):
            expected = self._expected.get(name, ())
            source = source_for(_STREAM, (index, k, attempt))
            for position, (private, spec) in enumerate(agent.specs(name).items()):
                if private not in self._proxy:
                    continue
                value = self._proxy[private]()
                if _resampled(spec):
                    # Parts of one record are drawn together.
                    rows = _rows(spec.shape[0], times, source.at(0, 1))
                    yield private, stand_in(_taken(value, rows), spec)
                    continue
                prior = expected[position] if position < len(expected) else None
                spread = None if prior is None else prior.spread
                values = spec.kept(as_array(value))
                drawn = _jittered(spec, values, spread, times, source.at(1 + position, 1))
                yield private, stand_in(drawn, spec)


def _resampled(spec: PrivateSpec) -> bool:
    return isinstance(spec.adjacency, Rows) and spec.shape[0] >= _RECORDS


def _rows(count: int, times: float, stream: Randomness) -> NDArray[np.intp]:
    """Return a copy's records, drawn with replacement, from fewer records for a larger error."""
    order, position, chance = uniform(3 * count, stream).reshape(3, count)
    pool = np.argsort(order)[: max(1, round(count / max(1.0, times) ** 2))]
    rows = pool[np.minimum((position * pool.size).astype(np.intp), pool.size - 1)]
    return np.where(chance < times**2, rows, np.arange(count))


def _taken(value: Any, rows: NDArray[np.intp]) -> Any:
    return sp.csr_array(value)[rows] if sp.issparse(value) else np.asarray(value)[rows]


def _jittered(
    spec: PrivateSpec, values: Array, spread: Array | None, times: float, stream: Randomness
) -> Array:
    """Return the entries with independent normal errors, brought to what was declared of them."""
    if spread is None:
        spread = ERROR * np.abs(values)
        if not spread.any():  # zeros have the unit of one change
            kind = spec.adjacency
            unit = kind.max_norm if isinstance(kind, Rows) else kind.radius
            spread = np.full(values.size, unit)
    normal = ndtri(uniform(values.size, stream) + 2.0**-54)
    drawn = spec.shaped(spec.admissible(values + times * spread * normal))
    if not isinstance(spec.adjacency, Rows):
        return drawn
    rows = drawn.reshape((drawn.shape[0], -1))
    lengths = np.linalg.norm(rows, float(spec.adjacency.norm), axis=1)
    shorter = np.minimum(
        1.0, spec.adjacency.max_norm / np.maximum(lengths, spec.adjacency.max_norm)
    )
    return (rows * (shorter * (1 - 1e-12))[:, None]).reshape(drawn.shape)


@dataclass(frozen=True)
class Crossing:
    """Multiple of the assumed error where a plan and the optimum for the proxy are equally good.

    Attributes
    ----------
    times : float or None
        None if they do not, within an eighth to eight times the error.
    better : {"plan", "proxy"}
        Winner with the lower gap at the assumed error.
    """

    times: float | None
    better: str

    def __str__(self) -> str:
        end = _MULTIPLES[-1]
        if self.better == "plan":
            if self.times is None:
                return f"the plan remains better even at 1/{end:g} of this error"
            return f"the optimum for the proxy is better below {self.times:.2g} times this error"
        if self.times is None:
            return f"the optimum for the proxy remains better even at {end:g} times this error"
        return f"the plan is better above {self.times:.2g} times this error"


def crossing(
    copies: Copies, gap_of: Callable[[Copy, int], float], gaps: Sequence[float]
) -> Crossing:
    """Return the crossing of a plan and the optimum for the proxy, from a few copies each.

    Parameters
    ----------
    copies : Copies
    gap_of : callable
        Function from a copy and its number to the gap of a run of the plan.
    gaps : sequence of float
        Gaps of runs of the plan at the assumed error, run k on copy k.
    """
    better = "proxy" if copies.guess < median(gaps) else "plan"
    guesses = [copies(k).guess for k in range(_LOOKED_AT)]
    before, apart = 1.0, _apart(median(gaps[:_LOOKED_AT]), median(guesses))
    for multiple in _MULTIPLES:
        times = multiple if better == "proxy" else 1 / multiple
        looked = [copies(k, times) for k in range(_LOOKED_AT)]
        plan = median(gap_of(copy, k) for k, copy in enumerate(looked))
        proxy = median(copy.guess for copy in looked)
        if (proxy < plan) != (better == "proxy"):
            now = _apart(plan, proxy)
            share = apart / (apart - now) if math.isfinite(apart - now) and apart != now else 0.5
            return Crossing(before * (times / before) ** min(max(share, 0.0), 1.0), better)
        before, apart = times, _apart(plan, proxy)
    return Crossing(None, better)


def _apart(first: float, second: float) -> float:
    """Return the logarithm of a ratio of gaps; some may be zero or infinite."""
    if not (0 < first < math.inf and 0 < second < math.inf):
        return math.inf if first > second else -math.inf
    return math.log(first / second)
