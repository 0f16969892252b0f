"""Searches on public proxy data for settings, mechanisms, and a budget epsilon."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from scipy.stats import binomtest

from .._arguments import check_argument, count, listed, positive_finite, show
from .._figure import TWO_COLUMNS, axes_on, canvas, card, figure_of, styled
from .._words import number, plural, together
from ..algorithms.base import Algorithm
from ..errors import ModelError
from ..model.declaration import Declaration
from ..plan.banner import WIDTH
from ..plan.terms import Terms
from .copies import Crossing
from .ranking import (
    BREAKING,
    Candidate,
    Ranking,
    assumed_error,
    gap_text,
    ranked,
    searching,
    where,
)
from .settings import OutOfTime, Planner, PlanTrial, SearchRequest, Way, quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = TypeVar("P", bound=Terms)

# Share of the time for varying settings, before the best are compared: in `tune`, and in `compare`.
_SEARCH, _COMPARED = 0.6, 0.5
# Number of settings that `tune` compares, besides the default.
_FINALISTS = 3
# Number of runs of each compared setting.
_RUNS = 10
# Value of `lean`; see `ranked`. Choosing another plan that is only as good does no harm.
_LEAN = 0.25


@dataclass(frozen=True, repr=False)
class Comparison(Ranking[P]):
    """The best settings of every mechanism that the model allows; see `Ranking`."""

    @property
    def recommended(self) -> Candidate[P]:
        """Recommended candidate: the best one if its gap is clearly lower than the default's.

        Raises
        ------
        ModelError
            If its solutions are no better than the public initial point.
        """
        if not self.worthwhile:
            raise ModelError(
                f"No mechanism can be recommended. {self.verdict} print(comparison) shows all."
            )
        return self.chosen


def compare(
    problem: Declaration,
    planned: Planner[P],
    request: SearchRequest,
    ways: Sequence[Way],
    runs: int,
) -> Comparison[P]:
    """Return the best settings of each configuration; see `Problem.compare`.

    `planned` returns the plans.
    """
    check_argument("", "runs", runs, count())
    ranking = ranked(
        problem, planned, request, lambda search: search.best_of_each(ways, _COMPARED), runs
    )
    return Comparison(**vars(ranking))


@dataclass(frozen=True, repr=False)
class Tuned(Ranking[P]):
    """Result of a search on public proxy data; see `Ranking` for the attributes."""

    def plan(self) -> P:
        """Return the chosen plan with all its settings; the default plan if no other is better.

        If the settings contain ``clip_norm=``, the plan is for a copy of your problem,
        ``plan.problem``, whose agents clip the contributions of records. The copy has your
        variables and data.
        """
        return self.chosen.plan


def tune(
    problem: Declaration, planned: Planner[P], request: SearchRequest, ways: Sequence[Way]
) -> Tuned[P]:
    """Return the ranking of the best settings and the default; see `Problem.tune`.

    `planned` returns the plans.
    """
    ranking = ranked(
        problem,
        planned,
        request,
        lambda search: search.best_of(ways, _FINALISTS, _SEARCH),
        _RUNS,
        _LEAN,
    )
    return Tuned(**vars(ranking))


_QUARTILES = (0.25, 0.5, 0.75)
_BLUE = "#0072B2"  # the first color of the style


@dataclass(frozen=True, repr=False)
class Tradeoff:
    """Gaps on public proxy data against epsilon.

    Attributes
    ----------
    epsilons : tuple of float
        Total budgets, increasing.
    gaps : tuple of tuple of float
        Gaps of the runs at each budget: the objective of the returned, feasible solution minus the
        optimum, with penalties for constraint slack. Infinite if a run diverges or finds no
        solution.
    start : float
        Median gap of the public initial point, without any data. Infinite if it violates a
        constraint with private data.
    proxy : float
        Median gap of the optimum for the proxy data. Infinite if that violates a constraint with
        private data, or is not known.
    error : str
        Text on the assumed error by which copies differ from the proxy data.
    crossing : Crossing or None
        Factor on that error at which the plan of the largest budget and the optimum for the proxy
        have equal gaps; None if that was not simulated.
    noiseless : float
        Gap of the plan of the largest budget without noise; nan if unknown.
    optimum : float
        Optimum for the proxy data; for nonconvex objectives, the lowest value of all runs.
    delta : float
    recourse : bool
        Whether solutions are scored after recourse of every agent.
    method : str
        Name of the requested method; empty if plans chose their methods.
    violation : float or None
        Promised violation probability of constraints with private data; None without any.
    broken : tuple of int
        Number of runs at each budget that violate such a constraint for the proxy data, by more
        than the slack that a penalty permits.
    """

    epsilons: tuple[float, ...]
    gaps: tuple[tuple[float, ...], ...]
    start: float
    proxy: float
    error: str
    crossing: Crossing | None
    noiseless: float
    optimum: float
    delta: float
    recourse: bool = False
    method: str = ""
    violation: float | None = None
    broken: tuple[int, ...] = ()

    @styled
    def plot(self, ax: Axes | None = None) -> Figure:
        """Draw median and quartiles of the gaps against epsilon.

        Lines show the gap without any data, and the gap without noise. If constraints contain
        private data, a panel below shows the share of runs that violate one, with 95 % confidence
        intervals, and the promised bound.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on, without the share of runs; by default a new figure, which becomes
            pyplot's current one if your code has imported pyplot.

        Raises
        ------
        ModelError
            If no run ended in time, or `ax` is not an Axes of matplotlib.
        """
        rows = [
            (epsilon, *(quantile(gaps, q) for q in _QUARTILES))
            for epsilon, gaps in zip(self.epsilons, self.gaps, strict=True)
            if gaps
        ]
        rows = [row for row in rows if all(map(math.isfinite, row))]
        if not rows:
            raise ModelError(
                "There is nothing to plot: no run ended in time, or half of them diverged. Call "
                "problem.tradeoff with a larger time_limit=, or with larger epsilons."
            )
        epsilon, low, middle, high = zip(*rows, strict=True)
        if self.violation is None or ax is not None:
            axes = below = axes_on(ax, TWO_COLUMNS, 3.2)
        else:
            figure = canvas(TWO_COLUMNS, 4.4)
            axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
            self._draw_broken(below, self.violation)
        axes.fill_between(epsilon, low, high, alpha=0.25, linewidth=0, label="half of the runs")
        axes.plot(epsilon, middle, marker="o", label="median")
        if math.isfinite(self.start):
            axes.axhline(self.start, color="0.5", linestyle="--", label="no data at all")
        least = min(v for v in (*low, self.start) if v > 0) if max(low) > 0 else 1.0
        # Solutions that violate private constraints may have values below the optimum.
        above = self.violation is None or min(low) > 0
        floor = least / 10 if above else -math.inf
        if self.noiseless > floor:
            axes.axhline(self.noiseless, color="0.5", linestyle=":", label="no noise")
        elif math.isfinite(self.noiseless):
            label = f"no noise: {max(self.noiseless, 0.0):.1g}"  # rounding errors may be negative
            axes.axhline(floor, color="0.5", linestyle=":", label=label)
        axes.set_xscale("log")
        axes.set_yscale("log" if above else "linear")
        axes.set_ylabel("objective above the optimum")
        below.set_xlabel("epsilon, in total")
        axes.set_title(f"On public proxy data, delta = {number(self.delta)}")
        axes.legend()
        return figure_of(axes)

    def _draw_broken(self, axes: Axes, promised: float) -> None:
        """Draw the share of runs that violate a private constraint, with exact intervals."""
        counts = zip(self.epsilons, self.gaps, self.broken, strict=True)
        for epsilon, gaps, broken in counts:
            if gaps:
                low, high = binomtest(broken, len(gaps)).proportion_ci(0.95, method="exact")
                axes.plot([epsilon] * 2, [low, high], "-", color=_BLUE)
                axes.plot(epsilon, broken / len(gaps), marker="o", color=_BLUE)
        axes.axhline(promised, color="0.5", linestyle="--", label="promised at most")
        axes.set_ylabel("runs that break\na private constraint")
        axes.legend()

    def __str__(self) -> str:
        budgets = plural(len(self.epsilons), "budget")
        plans = f"{budgets} at delta {number(self.delta)}, {self.method or 'default plan'}"
        paragraphs = [f"dpcvx tradeoff: {plans}", *self._verdict()]
        head = (
            f"Gap: the objective on copies of the proxy data, {where(self.recourse)}, minus the "
            f"optimum (of the proxy: {gap_text(self.optimum)}); median and quartiles. No private "
            "data were read."
        )
        if self.violation is not None:
            promised = f"at most {number(self.violation)} of all" if self.violation else "none"
            head += f" Broken: runs that break a private constraint; promised: {promised}."
        title = f"{'epsilon':>24} {'gap':>8} {'25 %':>8} {'75 %':>8}"
        lines = [textwrap.fill(text, WIDTH) for text in (*paragraphs, head)]
        lines.append(title + (f"  {'broken':>12}" if self.broken else ""))
        for k, (epsilon, gaps) in enumerate(zip(self.epsilons, self.gaps, strict=True)):
            figures = "  no run ended in time"
            if gaps:
                low, middle, high = (quantile(gaps, q) for q in _QUARTILES)
                figures = " ".join(f"{gap_text(value):>8}" for value in (middle, low, high))
                if self.broken:
                    figures += f"  {f'{self.broken[k]} of {len(gaps)}':>12}"
            lines.append(f"{number(epsilon):>24} {figures}")
        lines += [f"{'no noise':>24} {gap_text(self.noiseless):>8}"]
        if math.isfinite(self.proxy):
            lines += [f"{'optimum for the proxy':>24} {self.proxy:>8.3g}"]
        start = f"{'no data at all':>24} {self.start:>8.3g}"
        lines += [start if math.isfinite(self.start) else f"No data at all: {BREAKING}"]
        return "\n".join(lines)

    def _verdict(self) -> list[str]:
        """Return sentences on budgets whose plan is better than baselines without privacy loss.

        The last sentence is on the assumed error of the proxy data.
        """
        free = min(self.proxy, self.start)
        medians = [quantile(gaps, 0.5) if gaps else math.nan for gaps in self.gaps]
        better = [e for e, gap in zip(self.epsilons, medians, strict=True) if gap < free]
        rival = "the optimum for the proxy" if self.proxy <= self.start else "the initial point"
        texts = []
        if better:
            budgets = together([number(epsilon) for epsilon in better])
            texts = [
                f"The plan is better than {rival}, which costs no privacy, at epsilon {budgets}."
            ]
        elif math.isfinite(free) and any(map(math.isfinite, medians)):
            texts = [f"No plan is better than {rival}, which costs no privacy."]
        budget = "" if self.crossing is None else f" (epsilon {number(self.epsilons[-1])})"
        (assumed,) = assumed_error(self.error, self.crossing)
        return [*texts, f"{assumed[:-1]}{budget}."]

    def __repr__(self) -> str:
        budgets = f"epsilon from {number(self.epsilons[0])} to {number(self.epsilons[-1])}"
        runs = plural(sum(map(len, self.gaps)), "run")
        return f"<Tradeoff: {budgets}, {runs}; no data at all: {self.start:.3g}>"

    def _repr_html_(self) -> str:
        rows = [
            (f"epsilon {number(epsilon)}", f"gap {quantile(gaps, 0.5):.3g}" if gaps else "no run")
            for epsilon, gaps in zip(self.epsilons, self.gaps, strict=True)
        ]
        return card(self, [*rows, ("no noise", f"gap {gap_text(self.noiseless)}")])


def tradeoff(
    problem: Declaration,
    planned: Planner[Terms],
    request: SearchRequest,
    epsilons: object,
    runs: int,
    algorithm: Algorithm[Any, Any] | None = None,
) -> Tradeoff:
    """Return gaps (suboptimality) against epsilon; see `Problem.tradeoff`.

    `planned` returns the plans.
    """
    check_argument("", "runs", runs, count())
    budgets, plans = _budgets(epsilons), request.plans
    assert plans.delta is not None
    with searching(problem, planned, request) as search:
        asked = [replace(plans, algorithm=algorithm, epsilon=epsilon) for epsilon in budgets]
        entries = [PlanTrial("default", planned(problem, request_, None)) for request_ in asked]
        noiseless = search.noiseless(entries[-1].plan)
        try:
            for made in range(1, runs + 1):
                for entry in entries:
                    search.run(entry, made, 1.0, fresh=True)
        except OutOfTime:
            pass
        copies, last = search.copies, entries[-1]
        crossing_ = search.crossing(last) if last.runs and search.convex else None
        lowest = copies.reference([v for entry in entries for v in entry.judged])
        start, guess = copies.start - lowest, copies.guess - lowest
    return Tradeoff(
        epsilons=tuple(budgets),
        gaps=tuple(tuple(v - lowest for v in entry.judged) for entry in entries),
        start=start,
        proxy=guess,
        error=copies.error,
        crossing=crossing_,
        noiseless=noiseless - lowest,
        optimum=copies.judge.base + lowest,
        delta=plans.delta,
        recourse=request.recourse,
        method="" if algorithm is None else str(entries[-1].plan.algorithm),
        violation=plans.violation_probability,
        broken=() if plans.violation_probability is None else tuple(sum(e.broken) for e in entries),
    )


def _budgets(epsilons: object) -> list[float]:
    given = listed(epsilons)
    if not given or not all(map(positive_finite, given)):
        raise ModelError(
            f"epsilons={show(epsilons)} must be a list of positive finite numbers, the total "
            "budgets to try. Write for example problem.tradeoff([0.1, 1, 10], delta=1e-6)."
        )
    return sorted({float(epsilon) for epsilon in given})
