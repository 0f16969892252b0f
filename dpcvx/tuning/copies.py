"""Simulated copies of public proxy data to score plans on, and the judge that scores solutions.

The private data differ from the proxy data; a copy stands for the private data, with an assumed
error. Forecasts and searches score plans, the initial point and the optimum for the proxy data on
the same copies with the same judge, so that they cannot contradict each other. The judge values a
solution at one point for all agents within all their sets.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.error import SolverError
from numpy.typing import NDArray
from scipy.special import ndtri

from .._words import together
from ..algorithms.common_point import common_point
from ..algorithms.program import AsWritten, Program, compile_problem
from ..algorithms.written_model import Rules, follows, solve
from ..errors import ModelError, PrivacyError
from ..model.adjacency import Rows
from ..model.declaration import Declaration
from ..model.matrices import as_array, real_entries
from ..model.prior import Expectations
from ..model.private import Private
from ..model.sealed import Sealed, stand_in
from ..model.spec import PrivateSpec
from ..privacy.randomness import Randomness, source_for, uniform
from ..run.loop import whole_start
from ..run.recourse import decisions
from ..run.solution import Solution
from ..testing import not_private

# Gap, relative to the objective, up to which the initial point counts as optimal.
_NEGLIGIBLE = 1e-6


@contextmanager
def values_kept(problem: Declaration) -> Iterator[None]:
    """Context manager that restores the values of variables and dual variables at its end."""
    duals = [dual for constraint in problem.constraints for dual in constraint.dual_variables]
    before = [(leaf, leaf.value) for leaf in (*problem.variables(), *duals)]
    try:
        yield
    finally:
        for leaf, value in before:
            leaf.save_value(value)


class Judge:
    """Function of a solution that returns the sum of objectives on public proxy data.

    It evaluates the closest point where all agents agree and all public constraints hold: copies
    that disagree can have values below the optimum. It overwrites ``variable.value``; see
    `values_kept`.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values of every private object.
    verb : str
        Name of the calling method, for messages, such as ``problem.tune``.
    recourse : bool
        Whether solutions are evaluated after every agent's recourse; see ``result.recourse``.
    other : Judge, optional
        Judge of the problem on other data, whose compiled program is reused.
    rules : {"dcp", "dgp", "dqcp"}
        cvxpy's rules that the problem follows.

    Attributes
    ----------
    optimum : float or None
        Optimum for the proxy data; None if the problem does not follow the rules, so that the
        optimum is unknown.
    best : Solution or None
        Solution at the optimum; None if the optimum is unknown.
    program : Program
        Compiled problem.
    start : float
        Value of the public initial point; infinite if it violates a constraint with private data.

    Raises
    ------
    ModelError
        If the problem with the proxy data has no solution.
    """

    def __init__(
        self,
        problem: Declaration,
        proxy: Mapping[Private | str, Sealed],
        verb: str,
        recourse: bool = False,
        other: Judge | None = None,
        rules: Rules = "dcp",
    ) -> None:
        self._problem, self._proxy = problem, proxy
        self._rules: Rules = rules
        self._central = not_private.joint_problem(problem, proxy, recourse=recourse)
        self._variables = problem.variables()
        # Values have the sign of a minimized objective.
        self._sign = -1.0 if isinstance(self._central.objective, cp.Maximize) else 1.0
        self.optimum = self._solved(verb) if follows(self._central, rules) else None
        self.program = program = _compiled(problem, rules) if other is None else other.program
        self.best = None if self.optimum is None else self._held()
        self._own = not_private.own_programs(problem, program, proxy) if recourse else None
        starts = tuple(local.start for local in program.agents)
        start = Solution(program, starts, whole_start(problem))
        self._initial = _common(start) if other is None else other._initial
        feasible = recourse or not self.breaks(start, {})  # recourse satisfies all constraints
        self.start = self.value(self._initial) if feasible else math.inf

    def __call__(self, solution: Solution) -> float:
        """Return a solution's objective on the proxy data; infinite without a feasible point."""
        return self.value(_common(solution))

    def value(self, common: Solution | None) -> float:
        """Return the objective at a point where agents agree and public constraints hold."""
        if common is not None and self._own is not None:
            common = decisions(self._own, common)
        if common is None:
            return math.inf
        for variable in self._variables:
            variable.save_value(common[variable])
        with np.errstate(all="ignore"):
            value = self._sign * float(np.asarray(self._central.objective.value, dtype=float))
        return math.inf if math.isnan(value) else value

    def breaks(self, solution: Solution, missed: Mapping[str, np.ndarray]) -> bool:
        """Return whether a solution violates a private constraint on the proxy data.

        Slack that the slack penalty paid for is no violation.

        Parameters
        ----------
        solution : Solution
            Solution before recourse.
        missed : mapping
            Slack of each constraint with private data; see `Result.constraint_slack`.
        """
        common = _common(solution) if solution.program.kept else None
        if common is None:
            return False
        return not_private.breaks(self._problem, common, missed, self._proxy)

    @property
    def base(self) -> float:
        """Return the objective value that gaps on the proxy data are measured from.

        It is the optimum, or the value of the initial point if the optimum is unknown.
        """
        reference = self.start if self.optimum is None else self.optimum
        return reference if math.isfinite(reference) else 0.0

    def _held(self) -> Solution:
        """Return the current values of the problem's cvxpy variables as a solution."""
        values = {variable.id: variable.value for variable in self._variables}
        start = whole_start(self._problem)
        vectors = []
        for local in self.program.agents:
            x = local.start.copy()
            for piece in local.layout.pieces:
                held = values.get(piece.variable)
                if held is not None:  # None if the problem does not depend on the variable
                    flat = real_entries(held)
                    x[piece.offset : piece.stop] = flat[piece.entries]
            vectors.append(x)
        return Solution(self.program, tuple(vectors), start)

    def reference(self, values: Iterable[float]) -> float:
        """Return the optimum, or the lowest of these values if the optimum is unknown."""
        return min([self.start, *values]) if self.optimum is None else self.optimum

    @property
    def idle(self) -> bool:
        """Return whether the initial point is already optimal, so that plans cannot be compared."""
        if self.optimum is None or math.isinf(self.start):
            return False
        return self.start - self.optimum <= _NEGLIGIBLE * max(abs(self.start), abs(self.optimum))

    def _solved(self, verb: str) -> float:
        status = _solve(self._central, self._rules)
        limited = any(agent.limits or agent.recourse for agent in self._problem.agents)
        data = "on the proxy data" if limited else "whatever the data"
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return self._sign * float(np.asarray(self._central.value))
        if status in (cp.UNBOUNDED, cp.UNBOUNDED_INACCURATE):
            raise ModelError(
                f"On the proxy data the objectives are unbounded below, so {verb} cannot compute "
                "gaps to an optimum. Bound the variables, or check the signs of the objectives "
                "and of the proxy."
            )
        if status in (cp.INFEASIBLE, cp.INFEASIBLE_INACCURATE):
            raise ModelError(
                f"No point lies in the sets of all agents, so {verb} has nothing to compare: the "
                f"constraints contradict each other, {data}. Loosen one of them."
            )
        raise ModelError(
            f"The solver finds no optimum on the proxy data, so {verb} cannot compute gaps. Scale "
            "the problem so that its numbers are near 1."
        )


def _compiled(problem: Declaration, rules: Rules) -> Program:
    """Return the compiled problem, with private constraints kept apart if possible."""
    if rules != "dcp":
        return compile_problem(problem, as_written=AsWritten(False, None, rules))
    for as_written in (None, AsWritten(margins=True, penalty=None)):
        with suppress(ModelError, PrivacyError):
            return compile_problem(problem, as_written=as_written)
    return compile_problem(problem, as_written=AsWritten(margins=False, penalty=None))


def _common(solution: Solution) -> Solution | None:
    """Return the closest point where agents agree and public constraints hold; None if none."""
    if not solution.finite:
        return None
    point = common_point(solution.program, solution.vectors)
    return replace(solution, vectors=point.vectors) if point.found else None


def _solve(problem: cp.Problem, rules: Rules) -> str | None:
    """Solve a cvxpy problem, and return its status; None if the solver fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status tells inaccurate solutions
        try:
            finite = any(isinstance(c, cp.FiniteSet) for c in problem.constraints)
            solve(problem, rules, None if finite or problem.is_mixed_integer() else cp.CLARABEL)
        except SolverError:
            return None
    return problem.status


Array = NDArray[np.float64]

# Assumed relative standard deviation of an entry of the proxy data, without a prior.
ERROR = 0.2
# Least number of records for resampling; the entries of fewer records get independent errors.
_RECORDS = 10
# Number of different copies; further runs reuse them, with other noise.
COUNT = 12
# Number of draws of a copy, if drawn copies have no optimum.
_TRIES = 5
# Factors that multiply or divide the assumed error, to find where a ranking changes, and the number
# of copies for each.
_MULTIPLES = (2.0, 4.0, 8.0)
_LOOKED_AT = 4
# Random stream of the copies, which no noise uses.
_STREAM = 7


@dataclass(frozen=True, eq=False)
class Copy:
    """Simulated copy of the proxy data, with the judge and the gaps of baselines on it."""

    proxy: Mapping[Private | str, Sealed] = field(repr=False)  # values for every private object
    judge: Judge = field(repr=False)
    start: float  # gap of the initial point; infinite if it violates a private constraint
    guess: float  # gap of the optimum for the proxy data; infinite if that violates one

    def gap(self, solution: Solution, paid: float = 0.0) -> float:
        """Return the gap of a solution, including the penalty `paid` for its constraint slack.

        The gap is the objective minus the optimum on this copy, or minus the value of the initial
        point if the optimum is unknown.
        """
        return self.judge(solution) + paid - self.judge.base


class Copies:
    """Copies of a problem's proxy data, made at first use.

    They overwrite ``variable.value``; see `values_kept`.

    Parameters
    ----------
    problem : Declaration
    proxy : mapping
        Public values of every private object.
    verb : str
        Name of the calling method, for messages.
    recourse : bool
        Whether solutions are scored after recourse; see `Judge`.
    expected : mapping
        Priors by agent, whose standard deviations are the error of the proxy data.
    rules : {"dcp", "dgp", "dqcp"}
        cvxpy's rules that the problem follows.

    Attributes
    ----------
    judge : Judge
        Judge on the proxy data themselves.

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
        """Return copy k, with `times` the assumed error of the proxy data; always the same copy."""
        key = (k % COUNT, times)
        if key not in self._made:
            self._made[key] = self._copy(*key)
        return self._made[key]

    @property
    def start(self) -> float:
        """Median gap (suboptimality) of the initial point on the copies used so far."""
        return median(copy.start for copy in self._scored)

    @property
    def guess(self) -> float:
        """Median gap (suboptimality) of the proxy data's optimum on the copies used so far."""
        return median(copy.guess for copy in self._scored)

    @property
    def _scored(self) -> list[Copy]:
        return [c for (_, times), c in self._made.items() if times == 1] or [self(0)]

    def reference(self, values: list[float]) -> float:
        """Return the number to subtract from gaps: 0, or the lowest one if no optimum is known."""
        return 0.0 if self.judge.optimum is not None else min([*values, self.start, self.guess])

    @property
    def error(self) -> str:
        """Phrase on the assumed error of the proxy data, such as redrawn records."""
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
        """Yield the data of copy k; its draws do not depend on `times`, the error's factor."""
        for index, (name, agent) in enumerate(self._problem.named.items()):
            expected = self._expected.get(name, ())
            source = source_for(_STREAM, (index, k, attempt))
            for position, (private, spec) in enumerate(agent.specs(name).items()):
                if private not in self._proxy:
                    continue
                value = self._proxy[private]()
                if _resampled(spec):
                    # All private objects of one record are drawn together.
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
    """Return the positions of a copy's records, drawn with replacement.

    For a larger error, they are drawn from fewer records; for a smaller one, some stay in place.
    """
    order, position, chance = uniform(3 * count, stream).reshape(3, count)
    pool = np.argsort(order)[: max(1, round(count / max(1.0, times) ** 2))]
    rows = pool[np.minimum((position * pool.size).astype(np.intp), pool.size - 1)]
    return np.where(chance < times**2, rows, np.arange(count))


def _taken(value: Any, rows: NDArray[np.intp]) -> Any:
    return sp.csr_array(value)[rows] if sp.issparse(value) else np.asarray(value)[rows]


def _jittered(
    spec: PrivateSpec, values: Array, spread: Array | None, times: float, stream: Randomness
) -> Array:
    """Return a private object's entries plus normal errors, projected onto its declared bounds."""
    if spread is None:
        spread = ERROR * np.abs(values)
        if not spread.any():  # for zeros, the error is one change of the data
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
    """Factor on the assumed error that makes a plan and the optimum for the proxy equally good.

    Attributes
    ----------
    times : float or None
        The factor; None if there is none from 1/8 to 8.
    better : {"plan", "proxy"}
        Solution with the lower gap at the assumed error.
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
    """Return the factor on the assumed error that makes a plan and the proxy optimum tie.

    Parameters
    ----------
    copies : Copies
    gap_of : callable
        Function of a copy and its number that returns the gap of a run of the plan.
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
    """Return the logarithm of the ratio of two gaps, infinite if one is zero or infinite."""
    if not (0 < first < math.inf and 0 < second < math.inf):
        return math.inf if first > second else -math.inf
    return math.log(first / second)
