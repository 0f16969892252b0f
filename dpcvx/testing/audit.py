r"""Empirical lower bounds of epsilon, from attacks that distinguish neighboring data sets.

A mechanism or a whole method is run many times on data and on neighboring data. Every run gets
scores. A threshold on a score is a test of the used data set, and its error rates bound epsilon
from below: :math:`P_{D'}(s > t) \le e^\epsilon P_D(s > t) + \delta`. For a correct implementation,
the bound stays below the epsilon in its ledger. With too little noise and enough runs, it does not.

Three scores are used. The likelihood ratio of all releases assumes independent noise as declared.
Two contrasts detect noise that is not independent: differences between rounds cancel noise that is
drawn once, and differences between agents cancel shared noise. If only the last iterate is
released, the score is its component along the direction of its change between the data sets.
With distributed noise, the attacker is a coalition: it knows its members' messages, and the sum of
all others' summands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._arguments import check_argument, count, integer, number, one_of, show
from .._words import at_least, at_most
from ..errors import DataError, ModelError, PrivacyError
from ..guard import discreet
from ..model.matrices import alike
from ..model.private import Private, seal_all
from ..plan.terms import Terms
from ..privacy.accounting import Composition, check_delta
from ..privacy.mechanism import Calibrated, Gaussian, Laplace, Mechanism, Staircase
from ..privacy.randomness import Source, source_for
from ..run.data import DataSource
from ..run.gate import read_for_gradients
from ..run.loop import drive_silently
from ..run.oracle import AgentOracle
from ..run.part import parts_of
from ..run.resume import begin, one_by_one
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .check import (
    Observed,
    ObservedGate,
    dealt_as_run,
    neighboring_sources,
    observed_gates,
    oracles_behind,
)
from .views import (
    ObserverView,
    epsilon_of_gaussian,
    length_ratio,
    log_ratio_of,
    lower_bounds,
)

_CONFIDENCE = number(lambda v: 0 < v < 1, "between 0 and 1, such as 0.95")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """Outcome of `audit`. Not private: it is computed from both neighboring data sets.

    Attributes
    ----------
    claimed : float
        Epsilon of the ledger at `delta`.
    lower : float
        Clopper-Pearson lower bound of epsilon at `delta`.
    lower_gaussian : float
        Lower bound of epsilon under the assumption that all releases together are one Gaussian
        mechanism; nan with other noise.
    delta : float
    confidence : float
        Probability that a lower bound holds, including the choice of `score`.
    runs : int
        Number of runs on each of the two data sets.
    score : str
        Test statistic that gives the largest lower bound.
    moved : bool
        Whether released values depend on which data set was used. If not, nothing was tested.
    """

    claimed: float
    lower: float
    lower_gaussian: float
    delta: float
    confidence: float
    runs: int
    score: str
    moved: bool = True

    @property
    def status(self) -> Literal["passed", "failed", "vacuous"]:
        """Verdict: failed if a lower bound exceeds the claim, vacuous if nothing was tested."""
        if max(self.lower, np.nan_to_num(self.lower_gaussian)) > self.claimed:
            return "failed"
        return "passed" if self.moved else "vacuous"

    @property
    def passed(self) -> bool:
        """Return whether neither lower bound exceeds the claim, and something was tested."""
        return self.status == "passed"

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        verdict = {
            "passed": "consistent with the ledger",
            "failed": "FAILED: above the ledger",
            "vacuous": "VACUOUS: no released value differs between the neighbors",
        }[self.status]
        gaussian = ""
        if not math.isnan(self.lower_gaussian):
            gaussian = f", {at_least(self.lower_gaussian)} (Gaussian trade-off)"
        return (
            f"dpcvx audit: {verdict}\n"
            "Not private: computed on both neighbors' data.\n"
            f"  ledger      epsilon {at_most(self.claimed)} at delta {at_most(self.delta)}\n"
            f"  attack      epsilon {at_least(self.lower)} at least (Clopper-Pearson){gaussian}\n"
            f"  best score  {self.score}\n"
            f"  runs        {self.runs} on each of two neighboring data sets, confidence "
            f"{self.confidence:g}"
        )


@discreet
def audit(
    target: Terms | Gaussian | Laplace | Staircase,
    neighbors: Mapping[Private | str, DataSource] | None = None,
    *,
    data: Mapping[Private | str, DataSource] | None = None,
    agent: str | None = None,
    runs: int = 500,
    delta: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Audit:
    """Bound epsilon from below by attacking a method or a mechanism. Not private.

    Parameters
    ----------
    target : Terms, Gaussian, Laplace or Staircase
        Plan, audited with all of its releases, or mechanism with a noise level. A mechanism is
        tested on two vectors whose distance is its sensitivity.
    neighbors, data : mapping, optional
        Neighbors and data, as in `check_sensitivity`.
    agent : str, optional
        Agent whose data change; the first agent with private data if omitted.
    runs : int
        Number of runs on each of the two data sets. One half chooses thresholds, and the other half
        tests them. 500 runs detect noise that is too small by half, 2000 by a third.
    delta : float, optional
        Delta at which epsilons are compared. If omitted, the plan's delta, or 1e-5 for a mechanism.
    confidence : float
        Probability that a bound holds.
    seed : int
        Seed of the noise.

    Raises
    ------
    ModelError, PrivacyError, DataError
        If an argument cannot be used.
    """
    check_argument("", "runs", runs, count(20))
    check_argument("", "seed", seed, integer(0))
    check_argument("", "confidence", confidence, _CONFIDENCE)
    if not isinstance(target, (Terms, Gaussian, Laplace, Staircase)):
        raise ModelError(
            f"dp.audit takes a plan or a mechanism, got {type(target).__name__}; write "
            "dp.audit(problem.plan(...)) or dp.audit(dp.Gaussian(noise_multiplier=2.0))."
        )
    if isinstance(target, Terms):
        if target.price is None:
            raise PrivacyError(
                "A plan without noise claims no epsilon. Plan with epsilon=. Otherwise there is "
                "nothing to audit."
            )
        delta = target.price.delta if delta is None else delta
        check_delta(delta)
        k = _target(target, agent)
        scores, claimed, moved = _plan_scores(target, neighbors, data, k, runs, delta, seed)
        if math.isinf(claimed):
            raise PrivacyError(
                f"The ledger states no finite epsilon at delta={delta:g}: the privacy loss of a "
                "random order of users, or of truncated noise, is known at the plan's delta "
                "only. Leave delta= out."
            )
        noise = target.agents[k].noise
        assert noise is not None  # private
        kind = noise.mechanism
    else:
        delta = 1e-5 if delta is None else delta
        check_delta(delta)
        scores, claimed = _mechanism_scores(target, runs, delta, seed)
        moved = True
        kind = target
    risk = (1 - confidence) / len(scores)
    bounds = {name: lower_bounds(*pair, delta, risk) for name, pair in scores.items()}
    best = max(bounds, key=lambda name: bounds[name][0])
    gaussian = max(mu for _, mu in bounds.values())
    return Audit(
        claimed=claimed,
        lower=bounds[best][0],
        lower_gaussian=epsilon_of_gaussian(gaussian, delta)
        if isinstance(kind, Gaussian)
        else math.nan,
        delta=delta,
        confidence=confidence,
        runs=runs,
        score=best,
        moved=moved,
    )


def _mechanism_scores(
    mechanism: Mechanism, runs: int, delta: float, seed: int
) -> tuple[dict[str, tuple[Array, Array]], float]:
    multiplier = mechanism.per_step()
    if multiplier is None:
        raise PrivacyError(
            "The mechanism has no noise level, so there is no noise to attack. Write for "
            "example dp.audit(dp.Gaussian(noise_multiplier=2.0)), or audit a plan."
        )
    calibrated = Calibrated(mechanism, multiplier)
    size = 8
    grid = calibrated.grid(1.0, size)
    far = np.zeros(size)
    far[0] = 1.0
    pair = np.zeros(size), far
    source, ratio = source_for(seed, (0,)), log_ratio_of(calibrated)
    scores = np.empty((2, runs))
    for world in (0, 1):
        for run in range(runs):
            out = calibrated.release(pair[world], grid, source.at(world, run))
            scores[world, run] = ratio(out, *pair, grid.scale)
    claimed = mechanism.compose(Composition(), multiplier, 1).price(delta).epsilon
    return {"likelihood ratio": (scores[0], scores[1])}, claimed


def _target(plan: Terms, agent: str | None) -> int:
    """Return the index of the agent to audit: the named one, or the first with private data."""
    names = [local.name for local in plan.program.agents if local.form.private]
    if agent is not None and not one_of(agent, *names):
        raise ModelError(
            f"agent={show(agent)} has no private data in this plan. Name one that has: "
            f"{', '.join(names)}."
        )
    chosen = names[0] if agent is None else agent
    return [local.name for local in plan.program.agents].index(chosen)


def _plan_scores(
    plan: Terms,
    neighbors: Mapping[Private | str, DataSource] | None,
    data: Mapping[Private | str, DataSource] | None,
    target: int,
    runs: int,
    delta: float,
    seed: int,
) -> tuple[dict[str, tuple[Array, Array]], float, bool]:
    chosen = plan.program.agents[target].name
    actual, other = neighboring_sources(plan, seal_all(neighbors, "neighbors"), seal_all(data))
    others = list(actual)
    others[target] = other[target]
    form = plan.program.agents[target].form
    first, second = (read_for_gradients(form, sources[target]) for sources in (actual, other))
    if all(map(alike, first, second)):
        raise DataError(
            f"The neighbor of agent '{chosen}' has the same data, so no attack can distinguish "
            "the two. Pass neighbors={...} with data that differ by one change."
        )
    if plan.hidden or plan.prepaid:
        scores, claimed = _last_scores(plan, actual, others, target, runs, delta, seed)
        # If nothing depends on the data, the direction is 0, and so are all scores.
        return scores, claimed, any(np.any(pair) for pair in scores.values())
    noise = plan.agents[target].noise
    assert noise is not None
    ratio = length_ratio if noise.linear and noise.norm == 2 else log_ratio_of(noise)
    table: dict[str, list[list[float]]] = {}
    dealt = dealt_as_run(plan)
    claimed, priced, moved = 0.0, None, False
    for world in (0, 1):
        real, unreal = (actual, others) if world == 0 else (others, actual)
        for run in range(runs):
            agents, blind = _attacked(plan, dealt, real, unreal, target, seed, (world, run))
            account = agents[target].account
            if priced is None or not priced.equals(account):  # most runs have equal charges
                claimed, priced = max(claimed, account.spent(delta).epsilon), account
            pair = (agents[target].seen, blind.seen)
            zero, other_world = pair if world == 0 else pair[::-1]
            moved |= any(
                np.any(a.inside != b.inside) for a, b in zip(zero, other_world, strict=True)
            )
            others_seen = [agent.seen for k, agent in enumerate(agents) if k != target]
            view = ObserverView(agents[target].seen, zero, other_world, others_seen)
            if noise.split is not None:
                view = view.of_coalition(noise.split.max_colluders)
            for name, value in view.scores(ratio).items():
                table.setdefault(name, [[], []])[world].append(value)
    return {name: (np.array(a), np.array(b)) for name, (a, b) in table.items()}, claimed, moved


def _attacked(
    plan: Terms,
    dealt: Sequence[Sequence[int]],
    real: Sequence[Sequence[Callable[[], object]]],
    unreal: Sequence[Sequence[Callable[[], object]]],
    target: int,
    seed: int,
    key: tuple[int, int],
) -> tuple[list[Observed], Observed]:
    """Return all agents' observed releases in a run, and the target agent's on other data."""

    def source(k: int) -> Source:
        return source_for(seed, (*key, k))

    gates = observed_gates(plan, dealt, plan.accounts(), source)
    oracles = oracles_behind(plan, gates, real)
    (batch,) = (i for i, agents in enumerate(dealt) if target in agents)
    other = [unreal[k] if k == target else data for k, data in enumerate(real)]
    (shadow,) = observed_gates(plan, [dealt[batch]], plan.accounts(), source, ())
    (twin,) = oracles_behind(plan, [shadow], other)
    oracles[batch] = functools.partial(_Twins, oracles[batch], twin, shadow)
    drive_silently(plan, dealt, oracles, plan.rounds)
    seen = [agent for gate in gates for agent in gate.observed()]
    return seen, shadow.observed()[dealt[batch].index(target)]


# Number of pairs of runs with equal noise that estimate the direction.
_PAIRS = 8


def _last_scores(
    plan: Terms,
    data: Sequence[Sequence[Callable[[], object]]],
    others: Sequence[Sequence[Callable[[], object]]],
    target: int,
    runs: int,
    delta: float,
    seed: int,
    leaked: Sequence[int] = (),
) -> tuple[dict[str, tuple[Array, Array]], float]:
    """Return an attack's scores from the last iterate, and from iterates of `leaked` rounds."""
    names = ["last iterate", *(f"iterate of round {t}" for t in leaked)]
    parts = parts_of(plan)
    # The accounts hold the charges that all runs have in common.
    accounts = [begun.account for begun in begin(parts, None, seeded=True).agents]
    claimed = accounts[target].spent(delta).epsilon

    def seen(
        sources: Sequence[Sequence[Callable[[], object]]], key: tuple[int, int]
    ) -> list[Array]:
        dealt = one_by_one(plan.agents)
        gates = observed_gates(plan, dealt, accounts, lambda k: source_for(seed, (*key, k)))
        oracles = oracles_behind(plan, gates, sources)
        result = drive_silently(plan, dealt, oracles, plan.rounds, seed, key)
        outside = {o.place[0]: o.outside for gate in gates for o in gate.observed()[0].seen}
        return [result.last.vectors[target], *(outside[t] for t in leaked)]

    moved = [np.zeros(plan.program.agents[target].n) for _ in names]
    for i in range(_PAIRS):
        pairs = zip(seen(data, (2, i)), seen(others, (2, i)), strict=True)
        moved = [m + b - a for m, (a, b) in zip(moved, pairs, strict=True)]
    table = {name: (np.empty(runs), np.empty(runs)) for name in names}
    for world, sources in enumerate((data, others)):
        for run in range(runs):
            for name, m, x in zip(names, moved, seen(sources, (world, run)), strict=True):
                table[name][world][run] = m @ x
    return table, claimed


class _Twins(AgentOracle):
    """Oracle on one data set that repeats every query on the other data set, for comparison."""

    def __init__(
        self,
        real: Callable[[], AgentOracle],
        other: Callable[[], AgentOracle],
        shadow: ObservedGate,
    ) -> None:
        self._real, self._other, self._shadow = real(), other(), shadow
        super().__init__(self._real.accounts, self._real.releases, self._real.count)

    def begin(self, t: int) -> None:
        self._real.begin(t)
        self._other.begin(t)

    def release(self, query: Query) -> Array:
        left = self._real.release(query)
        self._shadow.shown = left
        self._other.release(query)
        return left

    def store(self, name: str, combination: LinearCombination) -> None:
        self._other.store(name, combination)
        self._real.store(name, combination)

    def uniform(self, size: int) -> Array:
        return self._real.uniform(size)
