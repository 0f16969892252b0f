"""Plans ranked by the gaps of their solutions on public proxy data, and the choice among them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from .._figure import card
from .._words import number, plural
from ..defaults.remarks import DOUBT
from ..errors import DpcvxError, ModelError
from ..guard import warn_caller
from ..model.declaration import Declaration
from ..model.matrices import as_array
from ..model.prior import expectations
from ..model.private import Private
from ..model.sealed import Sealed
from ..plan.banner import WIDTH
from ..plan.request import asked_of, by_name
from ..plan.terms import Terms
from ..privacy.mechanism import Laplace
from ..privacy.split_noise import coalition
from ..run.data import stand_ins
from ..run.report import share_line
from .copies import Copies, Crossing, values_kept
from .search import MORE_TIME, Search
from .settings import OutOfTime, Planner, PlanTrial, SearchRequest, level, quantile, surely_lower

P = TypeVar("P", bound=Terms)

# Share of the initial gap: if more remains without noise, the reason is too few steps, not noise.
_SLOW = 0.5
# Largest probability of calling a plan better than the default if both are equal.
_ERROR = 0.05
# Multiples of the number of runs after which plans are compared. After the first comparison, only
# the default and the best plan continue.
_LOOKS = (1, 2, 4)
# Fewer runs are not enough for a comparison.
_FEW = 3
# Share of the time for comparing plans; the rest is for runs without noise.
_END = 0.95
_IN_FULL = 8  # number of configurations that a table shows with their settings
_LABEL = 50
# Gaps nearer to zero are rounding errors of solvers.
_ROUNDING = 1e-8


def gap_text(value: float) -> str:
    """Return a gap or an optimum with three digits; rounding errors of solvers become 0."""
    return f"{0.0 if -_ROUNDING <= value < _ROUNDING else value:.3g}"


def _gap(value: float) -> str:
    """Return a gap padded to the width of a table column."""
    return f"{gap_text(value):>8}"


# Names of the returned iterates in tables.
_RETURNED = {
    "average": "average",
    "last": "last iterate",
    "tail": "suffix average",
    "weighted": "weighted average",
}


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """Plan with the gaps of its solutions on public proxy data.

    Attributes
    ----------
    name : str
    plan : Plan
    gaps : tuple of float
        Gap of each run: objective of the returned solution, moved into all sets, minus the
        optimum. The penalty for constraint slack counts. Infinite if a run diverges or finds no
        solution.
    broken : int
        Number of runs whose solution violates a private constraint for the proxy data, beyond the
        slack that the penalty pays for.
    """

    name: str
    plan: P = field(repr=False)
    gaps: tuple[float, ...]
    broken: int = 0

    @property
    def gap(self) -> float:
        """Median gap (suboptimality) of the runs; nan without runs."""
        return quantile(self.gaps, 0.5) if self.gaps else math.nan

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the gaps; nan without runs."""
        low, high = (quantile(self.gaps, q) if self.gaps else math.nan for q in (0.25, 0.75))
        return low, high

    @property
    def settings(self) -> str:
        """Line on the plan's method, noise, rounds and other settings."""
        plan, algorithm = self.plan, self.plan.algorithm
        noise = next((agent.noise for agent in plan.agents if agent.noise is not None), None)
        parts = [type(algorithm).__name__]
        if noise is not None:
            once = plan.published or plan.rounds == 1
            parts.append(f"{noise.mechanism} noise {'once' if once else 'in each step'}")
        parts.append(plural(plan.rounds, "round"))
        for name in ("step", "penalty"):
            value = level(getattr(algorithm, name, None))
            parts += [] if value is None else [f"{name} {value:.3g}"]
        if noise is not None and noise.split is not None:
            parts.append(f"split over agents against {coalition(noise.split.max_colluders)}")
        if noise is not None and noise.mechanism.decay < 1:
            parts.append(f"decay {noise.mechanism.decay:.3g}")
        clips = {agent.program.clip for agent in plan.agents if agent.program.clip is not None}
        parts += [f"clip {max(clips):.3g}"] if clips else []
        parts += [_RETURNED[plan.reported]] if plan.rounds > 1 else []
        return ", ".join(parts)

    @property
    def kept(self) -> str:
        """Phrase on the share of runs that violate private constraints, and its bound; or ""."""
        promised = self.plan.violation_probability
        if promised is None:
            return ""
        return (
            f"broke a private constraint in {self.broken} of {plural(len(self.gaps), 'run')}; "
            f"promised: {'never' if promised == 0 else f'at most {number(promised)} of all'}"
        )


@dataclass(frozen=True)
class Ranking(Generic[P]):
    """Plans with one total budget, in order of their gap (objective minus optimum) on proxy data.

    Attributes
    ----------
    candidates : tuple of Candidate
        Compared plans; "default" is the plan with dpcvx's own choices.
    chosen : Candidate
        Candidate with the lowest gap, if it is clearly lower than the default's, else the default.
        `tune` also takes one whose gap is probably lower.
    worthwhile : bool
        Whether three in four runs of the chosen plan are better than the public initial point.
    optimum : float
        Optimum for the proxy data; for nonconvex objectives, the lowest value of all runs.
    convex : bool
        Whether the optimum for the proxy data is known.
    start : float
        Median gap of the public initial point, which uses no data, on erroneous copies of the proxy
        data; infinite if it violates a constraint with private data.
    proxy : float
        Median gap of the optimum for the proxy data on these copies; infinite if this optimum
        violates a constraint with private data, or is unknown.
    error : str
        Text on the assumed error by which the copies differ from the proxy data.
    crossing : Crossing or None
        Factor on that error at which the chosen plan and the optimum for the proxy data have equal
        gaps; None if that was not simulated.
    noiseless : float
        Median gap of the chosen plan without noise; nan if unknown.
    epsilon : float or mapping of str to float
        Total budget of each plan, one for all agents or by the agent's name.
    delta : float
    refused : mapping of str to str
        Reasons for skipped configurations, by name.
    verdict : str
        Text on the reasons for the choice.
    recourse : bool
        Whether solutions are scored after recourse of every agent.
    """

    candidates: tuple[Candidate[P], ...]
    chosen: Candidate[P]
    worthwhile: bool
    optimum: float
    convex: bool
    start: float
    proxy: float
    error: str
    crossing: Crossing | None
    noiseless: float
    epsilon: float | Mapping[str, float]
    delta: float
    refused: Mapping[str, str] = field(repr=False)
    verdict: str
    recourse: bool = False

    def __str__(self) -> str:
        runs = max(len(c.gaps) for c in self.candidates)
        measure = "the optimum" if self.convex else "the lowest value found"
        suffix = ", each agent its own" if isinstance(self.epsilon, Mapping) else ""
        count = plural(len(self.candidates), "configuration")
        lines = [
            f"dpcvx {type(self).__name__.lower()}: {count} at {self._budget} in total{suffix}",
            self.verdict,
            *self._refusals(),
            f"Gap: the objective on copies of the proxy data, {where(self.recourse)}, "
            f"minus {measure} (of the proxy: {gap_text(self.optimum)}); median and quartiles of up "
            f"to {plural(runs, 'run')}. No private data were read.",
            f"  {'':{_LABEL}} {'gap':>8} {'25 %':>8} {'75 %':>8}",
        ]
        full = 0
        for gap, candidate in self._ranked():
            if not isinstance(candidate, Candidate):
                lines.append(f"  {candidate:{_LABEL}} {_gap(gap)}")
                continue
            first, *more = self._row(candidate)
            lines += [first, *more] if full < _IN_FULL or candidate is self.chosen else [first]
            full += 1
        if full > _IN_FULL:
            lines.append("  Settings of the others: candidate.settings, in .candidates")
        return "\n".join(
            textwrap.fill(line, WIDTH, subsequent_indent="    " if line[:1] == " " else "")
            if len(line) > WIDTH
            else line
            for line in lines
        )

    def _row(self, c: Candidate[P]) -> list[str]:
        mark = "*" if c is self.chosen and self.worthwhile else " "
        figures = " ".join(_gap(g) for g in (c.gap, *c.quartiles)) if c.gaps else f"{UNTRIED:>26}"
        notes = [f"    {c.kept}"] if c.kept else []
        return [f"{mark} {c.name:{_LABEL}} {figures}", f"    {c.settings}", *notes]

    def _ranked(self) -> list[tuple[float, Candidate[P] | str]]:
        """Return candidate plans, and baselines that need no plan, sorted by their gaps."""
        start = "initial point: no data at all" if math.isfinite(self.start) else BREAKING
        rows: list[tuple[float, Candidate[P] | str]] = [(self.start, start)]
        if not math.isnan(self.noiseless):  # nan if there was no time for these runs
            rows.append((self.noiseless, "no noise, same rounds"))
        if math.isfinite(self.proxy):
            rows.append((self.proxy, PROXY))
        scored = [(c.gap if c.gaps else math.inf, c) for c in self.candidates]
        return sorted([*scored, *rows], key=lambda row: row[0])

    @property
    def _budget(self) -> str:
        given = self.epsilon
        values = given.values() if isinstance(given, Mapping) else [given]
        ends = dict.fromkeys(number(value) for value in (min(values), max(values)))
        return f"({' to '.join(ends)}, {number(self.delta)})"

    def _refusals(self) -> list[str]:
        """Return a line on skipped configurations; none if nothing was skipped."""
        if not self.refused:
            return []
        late = sum(reason.endswith(MORE_TIME) for reason in self.refused.values())
        why = f" ({late} hit the time limit)" if late else ""
        count = plural(len(self.refused), "configuration")
        return [f"Skipped {count}{why}: print the mapping .refused for the reasons"]

    def __repr__(self) -> str:
        best = self.chosen
        words = f"{best.name}, median gap {best.gap:.3g}" if self.worthwhile else "none"
        tried = plural(len(self.candidates), "candidate")
        return f"<{type(self).__name__}: {tried} at {self._budget}; recommended: {words}>"

    def _repr_html_(self) -> str:
        rows = []
        for c in self.candidates:
            low, high = c.quartiles
            words = f"gap {c.gap:.3g}, half of the runs {low:.3g} to {high:.3g}"
            rows.append((c.name, words if c.gaps else UNTRIED))
        if not math.isnan(self.noiseless):
            rows.append(("no noise", f"gap {self.noiseless:.3g}"))
        rows.append(("verdict", self.verdict))
        return card(self, rows)


@contextmanager
def searching(
    problem: Declaration, planned: Planner[P], request: SearchRequest
) -> Iterator[Search[P]]:
    """Context manager that provides a search with a progress line, and restores variables' values.

    A warning says if the initial point is already optimal, so that all settings are equal.
    """
    proxy = stand_ins(problem, request.proxy, request.verb, recourse=request.recourse)
    _check_apart(problem, request, proxy)
    name = request.verb.removeprefix("problem.")
    with values_kept(problem), share_line(name, request.verbose) as tick:
        expected = expectations(problem, request.plans.prior)
        copies = Copies(problem, proxy, request.verb, request.recourse, expected)
        if copies.judge.idle:
            warn_caller(IDLE, UserWarning)
        yield Search(problem, planned, request, copies, tick=tick)


def _check_apart(
    problem: Declaration, request: SearchRequest, proxy: Mapping[Private | str, Sealed]
) -> None:
    """Refuse proxy data that equal the prior mean: the prior would seem to be exact."""
    expected = expectations(problem, request.plans.prior)
    for name, agent in problem.named.items():
        for private, expectation in zip(agent.private, expected.get(name, ()), strict=False):
            spec = agent.specs(name)[private]
            if expectation is not None and np.array_equal(
                spec.kept(as_array(proxy[private]())), expectation.mean
            ):
                raise ModelError(
                    f"The proxy for '{spec.name}' is exactly what prior= says, so "
                    f"{request.verb} would treat the forecast as exact. Pass values that differ "
                    "from it as the data may, such as those of another year, or "
                    f"{request.verb}(..., "
                    f"proxy={{'{spec.name}': mean + spread * rng.normal(size=mean.shape)}})."
                )


def ranked(
    problem: Declaration,
    planned: Planner[P],
    request: SearchRequest,
    select: Callable[[Search[P]], Sequence[PlanTrial[P]]],
    runs: int,
    lean: float = 0.0,
) -> Ranking[P]:
    """Return the ranking of a search: the best settings and the default, compared on new runs.

    Parameters
    ----------
    problem : Declaration
    planned : callable
        Function that returns a plan for a problem; see `Planner`.
    request : SearchRequest
    select : callable
        Function of a search that returns the settings to compare.
    runs : int
        Number of runs of each plan. The best plan and the default get up to four times as many,
        until one is clearly better.
    lean : float
        Largest probability with which runs of two equal plans may differ as much as those of the
        best plan and the default do. Up to it, the best plan is chosen even if it is not clearly
        better; 0 for never.
    """
    given, delta = request.plans.epsilon, request.plans.delta
    assert given is not None and delta is not None
    epsilon = by_name(problem, "epsilon", given)  # clipped copies of agents have equal names
    request = replace(request, plans=replace(request.plans, epsilon=epsilon))
    asked_of(problem, Laplace(), epsilon)  # raises here if the budget is invalid
    with searching(problem, planned, request) as search:
        default, refusal = None, ModelError("No setting fits this model.")
        try:
            default = search.default()
        except DpcvxError as error:
            refusal = error
            search.refused["default"] = str(error)
        entries = [] if default is None else [default]
        for entry in select(search):
            final = search.final(entry)
            fingerprints = {trial.plan.fingerprint for trial in entries}
            entries += [] if final is None or final.plan.fingerprint in fingerprints else [final]
        if not entries:
            raise refusal
        best, clear = _best(search, entries, default, runs, lean)
        noiseless = search.noiseless(best.plan) if best.runs else math.nan
        crossing_ = search.crossing(best) if best.runs and search.convex else None
        copies = search.copies
        values = {id(entry): entry.judged for entry in entries}
        lowest = copies.reference([v for of in values.values() for v in of])
        start, guess = copies.start - lowest, copies.guess - lowest
        judge, error = copies.judge, copies.error
    optimum = judge.base + lowest
    noiseless -= lowest
    made = {
        id(e): Candidate(e.name, e.plan, tuple(v - lowest for v in values[id(e)]), sum(e.broken))
        for e in entries
    }
    chosen = made[id(best)]
    worthwhile = bool(chosen.gaps) and chosen.quartiles[1] < start
    return Ranking(
        candidates=tuple(sorted(made.values(), key=lambda c: c.gap if c.gaps else math.inf)),
        chosen=chosen,
        worthwhile=worthwhile,
        optimum=optimum,
        convex=judge.optimum is not None,
        start=start,
        proxy=guess,
        error=error,
        crossing=crossing_,
        noiseless=noiseless,
        epsilon=epsilon,
        delta=delta,
        refused=search.refused,
        verdict=" ".join(
            [
                *_of_proxy(chosen, guess),
                *_verdict(
                    chosen, clear, default, worthwhile, start, noiseless, judge.idle, request
                ),
                *assumed_error(error, crossing_),
            ]
        ),
        recourse=request.recourse,
    )


# Name of the baseline that needs no plan, in tables.
PROXY = "optimum for the proxy data"
# Text in place of a candidate's gaps.
UNTRIED = "no run ended in time"
# Text for an initial point that is no baseline.
BREAKING = "initial point, which breaks a private constraint"


def where(recourse: bool) -> str:
    """Return a phrase for tables: whether solutions are scored before or after recourse."""
    point = "at one point for all agents that lies in all their sets"
    return f"{point}, after every agent's own decision (result.recourse)" if recourse else point


IDLE = (
    "The initial point is already the optimum for the proxy, so all settings would seem equally "
    "good. Choose a proxy whose optimum lies elsewhere, or another start=."
)


def _best(
    search: Search[P],
    entries: list[PlanTrial[P]],
    default: PlanTrial[P] | None,
    runs: int,
    lean: float,
) -> tuple[PlanTrial[P], bool]:
    """Return the trial of the plan to choose, and whether it is clearly better than the default.

    For `runs` and `lean` see `ranked`.
    """
    active, best = entries, entries[0]
    tests = len(_LOOKS) * max(1, len(entries) - 1)
    for count in (times * runs for times in _LOOKS):
        # The default and the first other plan run last, with most of the time.
        weights = [3, 3, *(1 for _ in active[2:])]
        for k in reversed(range(len(active))):
            share = weights[k] / sum(weights[: k + 1]) * (_END - search.passed)
            with suppress(OutOfTime):
                search.run(active[k], count, search.passed + share, fresh=True)
        best = min(active, key=lambda entry: (entry.runs < min(count, _FEW), entry.score))
        if default is None or best is default:
            return best, False
        if surely_lower(best.judged, default.judged, _ERROR / tests):
            return best, True
        if best.runs < count:
            break
        active = [default, best]
    # Both plans need all seeds: otherwise equal plans could look different.
    whole = default is None or min(best.runs, default.runs) >= runs
    if default is None or (whole and surely_lower(best.judged, default.judged, lean)):
        return best, False
    return default, False


def _of_proxy(chosen: Candidate[P], guess: float) -> list[str]:
    """Return a sentence if the optimum for the proxy data is better than every plan; else []."""
    if not chosen.gaps or not guess < chosen.gap:
        return []
    return [
        "The optimum for the public proxy data is predicted to be better than every plan: its gap "
        f"is {guess:.3g}, that of '{chosen.name}' {chosen.gap:.3g}."
    ]


def assumed_error(error: str, crossing: Crossing | None) -> list[str]:
    """Return a sentence on the proxy data's assumed error, and on the error where plans tie."""
    return [f"Assumed error of the proxy: {error}{'' if crossing is None else f'; {crossing}'}."]


def _verdict(
    chosen: Candidate[P],
    clear: bool,
    default: PlanTrial[P] | None,
    worthwhile: bool,
    start: float,
    noiseless: float,
    idle: bool,
    request: SearchRequest,
) -> list[str]:
    """Return sentences on the reasons for the choice of a plan."""
    longer = f"Pass more than time_limit={request.time_limit:g}."
    if not chosen.gaps:
        return [f"No run ended in time, so this is the default plan, untried. {longer}"]
    said = []
    if clear:
        said.append(f"{chosen.name} is better than the default by more than the noise of runs.")
    elif default is not None and chosen.name != default.name:
        said.append(
            f"{chosen.name} did better than the default, but so few runs may differ as much by "
            "chance."
        )
    elif default is not None and len(chosen.gaps) < _FEW:
        said.append("The default stays: too few runs ended to tell another plan from it.")
    elif default is not None:
        said.append("The default stays: nothing tried is better by more than the noise of runs.")
    if len(chosen.gaps) < 10:
        said.append(f"Only {plural(len(chosen.gaps), 'run')} ended in time. {longer}")
    if idle:
        said.append(IDLE)
    elif not worthwhile and math.isinf(start):
        said.append(
            "No plan is recommended: in a quarter of the runs or more, margins leave no decision. "
            "Pass slack_penalty=, a larger violation_probability= or a larger epsilon=."
        )
    elif not worthwhile and noiseless > _SLOW * start and DOUBT not in chosen.plan.beside:
        said.append(
            "No plan is recommended: even without noise, so many rounds hardly improve on the "
            "initial point. A larger epsilon does not help. Scale variables and columns by public "
            "numbers, so that all are of about the same size, or give more rounds=."
        )
    elif not worthwhile:
        said.append(
            "No plan is recommended: solutions are no better than the initial point, so at "
            "this budget they show nothing about the data. Raise epsilon=, or release less."
        )
    if any(agent.clip_norm is not None for agent in chosen.plan.problem.agents):
        said.append(
            "The plan clips what records contribute: its plan.problem has agents with clip_norm=."
        )
    return said
