"""Plans ranked by their solutions' utility on public proxy data, and the choice among them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np

from .._card import card
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
from .copies import Copies, Crossing
from .judge import values_kept
from .search import MORE_TIME, Search
from .settings import OutOfTime, Planner, PlanTrial, SearchRequest, level, quantile, surely_lower

P = TypeVar("P", bound=Terms)

# Of the start's gap: what stays there without noise stays for want of steps, not for noise.
_SLOW = 0.5
# That a plan is called better than the default where both are alike has this probability at most.
_ERROR = 0.05
# It is asked after these multiples of the runs; after the first, the default and the best go on.
_LOOKS = (1, 2, 4)
# Runs that tell nothing.
_FEW = 3
# The rest of the time is for a run without noise.
_END = 0.95
_IN_FULL = 8  # configurations of a table that are shown with their settings
_LABEL = 50
# Gaps that are nearer to zero are solvers' rounding.
_ROUNDING = 1e-8


def gap_text(value: float) -> str:
    """Return a gap or an optimum in three digits; what a solver's rounding leaves is zero."""
    return f"{0.0 if -_ROUNDING <= value < _ROUNDING else value:.3g}"


def _gap(value: float) -> str:
    """Return a gap in a column of a table."""
    return f"{gap_text(value):>8}"


# What a plan returns.
_RETURNED = {
    "average": "average",
    "last": "last iterate",
    "tail": "suffix average",
    "weighted": "weighted average",
}


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """Plan with the utility of its solutions on public proxy data.

    Attributes
    ----------
    name : str
    plan : Plan
    gaps : tuple of float
        One per run: the objective at the point that the run gives to everybody, moved into all
        sets, minus the optimum; infinite where a run diverges or finds no decision. What a
        decision pays for what it misses counts.
    broken : int
        Runs in which the proxy breaks a constraint with private data, beyond what is paid for.
    """

    name: str
    plan: P = field(repr=False)
    gaps: tuple[float, ...]
    broken: int = 0

    @property
    def gap(self) -> float:
        """The median; nan without runs."""
        return quantile(self.gaps, 0.5) if self.gaps else math.nan

    @property
    def quartiles(self) -> tuple[float, float]:
        """25 and 75 % of the same."""
        low, high = (quantile(self.gaps, q) if self.gaps else math.nan for q in (0.25, 0.75))
        return low, high

    @property
    def settings(self) -> str:
        """The plan's numbers in words."""
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
        """Text on the rate of broken private constraints and its bound; empty without any."""
        promised = self.plan.violation_probability
        if promised is None:
            return ""
        return (
            f"broke a private constraint in {self.broken} of {plural(len(self.gaps), 'run')}; "
            f"promised: {'never' if promised == 0 else f'at most {number(promised)} of all'}"
        )


@dataclass(frozen=True)
class Ranking(Generic[P]):
    """Plans under one total budget, in order of their gap on public proxy data.

    Attributes
    ----------
    candidates : tuple of Candidate
        Candidates of the search; "default" names the plan's own choice.
    chosen : Candidate
        The lowest gap that is clearly lower than the default's, else the default; of `tune`, also
        one that is probably lower.
    worthwhile : bool
        Whether three in four of its runs end below the public start: else nothing is gained over
        doing nothing.
    optimum : float
        Optimum for the proxy data; for nonconvex objectives, the lowest value of all runs.
    convex : bool
        Whether they are.
    start : float
        Median gap of the public start on the copies: what doing nothing is worth; infinite if it
        breaks a constraint with private data.
    proxy : float
        Median gap of the optimum for the proxy data on the copies; infinite likewise, and where
        that optimum is not known.
    error : str
        The assumed error of the proxy, which copies have.
    crossing : Crossing or None
        Multiple of that error where the chosen plan and the optimum for the proxy have equal gaps;
        None if that was not simulated.
    noiseless : float
        Median gap of the chosen plan's rounds without noise; nan if not known.
    epsilon : float or mapping of str to float
        Total budget of each plan, for all agents alike or by agent.
    delta : float
    refused : mapping of str to str
        Omitted methods with reasons.
    verdict : str
        Why the choice is what it is.
    recourse : bool
        Whether answers are judged once every agent has decided for itself.
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
        """Return candidates and baselines without a plan, sorted by their gaps."""
        start = "initial point: no data at all" if math.isfinite(self.start) else BREAKING
        rows: list[tuple[float, Candidate[P] | str]] = [(self.start, start)]
        if not math.isnan(self.noiseless):  # else no time was left for that run
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
        """Return a line on skipped configurations."""
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
    """Provide a search with a line of progress; restore the values of variables at the end.

    Warn if the search cannot distinguish any settings.
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
    """Refuse proxy data that equal the prior mean: the prior would seem to be right."""
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
    """Search for settings, and compare the best of them with the default on runs of their own.

    Parameters
    ----------
    problem : Declaration
    planned : callable
        Makes a plan of a problem.
    request : SearchRequest
    select : callable
        Searches for the settings that are compared in the end.
    runs : int
        Number of runs of each. The best and the default get up to four times as many, until one is
        clearly better.
    lean : float
        The best is taken where it is not clearly better too, if runs of plans that are alike differ
        as much with this probability at most; 0 for never.
    """
    given, delta = request.plans.epsilon, request.plans.delta
    assert given is not None and delta is not None
    epsilon = by_name(problem, "epsilon", given)  # clipped agents have their budgets by name
    request = replace(request, plans=replace(request.plans, epsilon=epsilon))
    asked_of(problem, Laplace(), epsilon)  # refused before anything is tried, if it is
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


# Of the rival that needs no plan.
PROXY = "optimum for the proxy data"
# In place of a candidate's figures.
UNTRIED = "no run ended in time"
# A start that is no answer.
BREAKING = "initial point, which breaks a private constraint"


def where(recourse: bool) -> str:
    """Return a text on the point that solutions are judged at."""
    point = "at one point for all agents that lies in all their sets"
    return f"{point}, after every agent's own decision (result.recourse)" if recourse else point


IDLE = (
    "The initial point is the optimum for the proxy already, so no setting can be told from "
    "doing nothing. Choose a proxy whose optimum lies elsewhere, or another start=."
)


def _best(
    search: Search[P],
    entries: list[PlanTrial[P]],
    default: PlanTrial[P] | None,
    runs: int,
    lean: float,
) -> tuple[PlanTrial[P], bool]:
    """Return the plan to take, and whether it is clearly better than the default."""
    active, best = entries, entries[0]
    tests = len(_LOOKS) * max(1, len(entries) - 1)
    for count in (times * runs for times in _LOOKS):
        # The default and the first of the others come last, and have most of the time.
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
    # Fewer runs of one than of the other are of other seeds: alike plans would look different.
    whole = default is None or min(best.runs, default.runs) >= runs
    if default is None or (whole and surely_lower(best.judged, default.judged, lean)):
        return best, False
    return default, False


def _of_proxy(chosen: Candidate[P], guess: float) -> list[str]:
    """Return the verdict if the optimum for the proxy beats every plan; empty otherwise."""
    if not chosen.gaps or not guess < chosen.gap:
        return []
    return [
        "The optimum for the public proxy data is predicted to be better than every plan: its gap "
        f"is {guess:.3g}, that of '{chosen.name}' {chosen.gap:.3g}."
    ]


def assumed_error(error: str, crossing: Crossing | None) -> list[str]:
    """Return the error of the proxy, and where it would change the order."""
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
    """Return the reasons for the choice, in sentences."""
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
            "No plan is recommended: without noise, as many rounds hardly leave the initial point "
            "either. More epsilon does not help there. Scale variables and columns by public "
            "numbers, so that all are of about the same size, or give more rounds=."
        )
    elif not worthwhile:
        said.append(
            "No plan is recommended: answers are no better than the initial point, so at this "
            "budget they would say nothing about the data. Raise epsilon=, or ask less of the data."
        )
    if any(agent.clip_norm is not None for agent in chosen.plan.problem.agents):
        said.append(
            "The plan clips what records contribute: its plan.problem has agents with clip_norm=."
        )
    return said
