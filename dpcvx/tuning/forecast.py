"""Predicted accuracy of a plan, from runs on copies of public proxy data, scored as in searches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import DpcvxError
from ..model.declaration import matching
from ..model.prior import Expectation
from ..model.private import Private, seal_all
from ..model.sealed import Sealed, stand_in
from ..plan.terms import Terms
from ..run.data import DataSource
from .copies import COUNT, Copies, Copy, Crossing, crossing, values_kept
from .search import Timed, gap_on
from .settings import OutOfTime, quantile

# First noise seed of forecasts, which no search uses.
_SEED = 2_000_000
# Least number of variables and data entries that are compiled and solved per processor second.
_PER_SECOND = 5000
_FOR_RELEASED = (
    "Not simulated: constraints with private data hold for released data, and what it costs to "
    "break them for the true data is not in the objective."
)
_UNRANKED = "Errors at which the ranking changes: not simulated; call plan.forecast(time_limit=60)."
# Least number of runs for quartiles; slow plans have exactly this number.
_FEWEST = 6
_QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Forecast:
    """Predicted accuracy of a plan's solutions, from runs on copies of public proxy data.

    Attributes
    ----------
    gaps : tuple of float
        Gap of each run: the objective minus the optimum, on a copy of the proxy data, in units of
        the objective; infinite if a run finds no solution. Empty if nothing was simulated.
    shares : tuple of float
        Gaps divided by the initial suboptimality on the run's copy.
    start : float
        Median gap of the initial point; infinite if it violates a private constraint.
    proxy : float
        Median gap of the optimum for the proxy data; infinite if that violates a private
        constraint.
    error : str
        Text on the assumed error of the proxy data.
    crossing : Crossing or None
        Factor on that error at which the plan and the optimum for the proxy data are equally good;
        None if that was not simulated.
    remarks : str
        Facts known without a simulation: the noise relative to the data, and warnings.
    unsimulated : str
        Sentence on simulations that the time limit excluded; "" if there are none.
    """

    gaps: tuple[float, ...] = ()
    shares: tuple[float, ...] = field(default=(), repr=False)
    start: float = math.nan
    proxy: float = math.nan
    error: str = ""
    crossing: Crossing | None = None
    remarks: str = field(default="", repr=False)
    unsimulated: str = field(default="", repr=False)

    @property
    def gap(self) -> float:
        """Median gap (suboptimality) of the runs; nan if nothing was simulated."""
        return quantile(self.gaps, 0.5) if self.gaps else math.nan

    @property
    def quartiles(self) -> tuple[float, float]:
        """Lower and upper quartile of the gap; nan if nothing was simulated."""
        low, _, high = _quartiles(self.gaps)
        return low, high

    @property
    def share(self) -> float:
        """Median share of the initial suboptimality that remains; nan if unknown."""
        return quantile(self.shares, 0.5) if self.shares else math.nan

    @property
    def prefers_proxy(self) -> bool:
        """Return whether the optimum for the proxy data is predicted to be better than the plan."""
        return bool(self.gaps) and self.proxy < self.gap

    def __str__(self) -> str:
        sentences = [*self._simulated(), *filter(None, [self.unsimulated])]
        if not sentences or not self.remarks:
            return " ".join(sentences) or self.remarks
        return " ".join([*sentences, f"{self.remarks[0].upper()}{self.remarks[1:]}."])

    def _simulated(self) -> Iterator[str]:
        if not self.gaps:
            return
        low, gap, high = _quartiles(self.gaps)
        if self.prefers_proxy:
            yield (
                "The optimum for the public proxy data is predicted to be better than this plan: "
                f"its gap is {self.proxy:.3g}, that of the plan {_figure(gap)}."
            )
        if not gap < self.start and not self.prefers_proxy:
            yield "The initial point is predicted to be no worse than this plan."
        if math.isinf(gap):
            lost = sum(math.isinf(value) for value in self.gaps)
            yield f"No solution was found in {lost} of {len(self.gaps)} runs (on the proxy data)."
        elif self.shares:
            less, share, more = _quartiles(self.shares)
            yield (
                f"{_about(share)} of the initial suboptimality remains (predicted on the "
                f"public proxy data; half of the runs: {_percent(less)} to {_percent(more)})."
            )
        start = (
            "breaks a private constraint, or has no finite objective"
            if math.isinf(self.start)
            else f"has {self.start:.3g}"
        )
        proxy = "as well" if math.isinf(self.proxy) else f"has {self.proxy:.3g}"
        yield (
            f"Gap {_figure(gap)} ({_figure(low)} to {_figure(high)}); the initial point {start}, "
            f"the optimum for the proxy {proxy}."
        )
        when = "" if self.crossing is None else f"; {self.crossing}"
        yield f"Assumed error of the proxy: {self.error}{when}."


def _quartiles(values: tuple[float, ...]) -> tuple[float, float, float]:
    if not values:
        return math.nan, math.nan, math.nan
    low, middle, high = (quantile(values, q) for q in _QUARTILES)
    return low, middle, high


def _figure(value: float) -> str:
    """Return a gap with three digits; negative rounding errors become 0."""
    return f"{max(value, 0.0):.3g}"


def _about(share: float) -> str:
    text = _percent(share)
    return text.capitalize() if text.startswith("less") else f"About {text}"


def _percent(share: float) -> str:
    percent = 100 * max(share, 0.0)
    if percent < 0.01:
        return "less than 0.01 %"
    return f"{percent:.2g} %" if percent < 99.5 else f"{percent:.0f} %"


def not_simulated(remarks: str) -> Forecast:
    """Return the forecast of a plan whose runs could not be simulated in time."""
    return Forecast(
        remarks=remarks, unsimulated="Not simulated; call plan.forecast(time_limit=60)."
    )


def forecast(
    plan: Terms,
    seconds: float,
    proxy: Mapping[Private | str, DataSource] | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Forecast:
    """Return the forecast of a plan's accuracy; see `Plan.forecast`. No private data are read.

    Parameters
    ----------
    plan : Terms
    seconds : float
        Time limit in processor seconds.
    proxy : mapping, optional
        Public values of private objects that declare no ``proxy=``.
    clock : callable
        Clock that returns processor seconds, so that a busy machine does not change forecasts.
    """
    given = dict(matching(plan.problem, seal_all(proxy, "proxy"), "proxy"))
    values = _proxies(plan, given)
    if not plan.noisy or values is None or not _solvable(plan):
        return Forecast(remarks=plan.remarks)
    if plan.program.model is not None and plan.program.model.limited:
        return Forecast(remarks=plan.remarks, unsimulated=_FOR_RELEASED)
    size = sum(a.program.n + a.program.form.data_size for a in plan.agents)
    if size > _PER_SECOND * seconds:
        return not_simulated(plan.warnings)
    with values_kept(plan.problem):
        try:
            return _forecast(plan, values, clock, clock() + seconds)
        except (DpcvxError, OutOfTime):
            return not_simulated(plan.warnings)


def _forecast(
    plan: Terms,
    values: Mapping[Private | str, Sealed],
    clock: Callable[[], float],
    until: float,
) -> Forecast:
    expected = {agent.name: agent.expected for agent in plan.agents}
    rules = plan.algorithm.requirements.rules
    copies = Copies(plan.problem, values, "plan.forecast", expected=expected, rules=rules)
    began = clock()
    last = until + (until - began)  # the fewest runs for quartiles may take twice the time

    def gap_of(copy: Copy, k: int, end: float = until) -> float:
        if clock() > end:
            raise OutOfTime
        return gap_on(plan, copy, _SEED + k, Timed(end, clock))

    gaps: list[float] = []
    while len(gaps) < COUNT and (len(gaps) < _FEWEST or clock() < until):
        k = len(gaps)
        gaps.append(gap_of(copies(k), k, last))
        if began + (clock() - began) * _FEWEST / (k + 1) > last:
            raise OutOfTime  # far too slow to end in time
    starts = [copies(k).start for k in range(len(gaps))]
    shares = tuple(
        gap / start for gap, start in zip(gaps, starts, strict=True) if 0 < start < math.inf
    )
    crossing_ = None
    forecast_ = Forecast(
        tuple(gaps),
        shares if len(shares) == len(gaps) else (),
        copies.start,
        copies.guess,
        copies.error,
        None,
        plan.warnings,
    )
    with suppress(OutOfTime):
        crossing_ = crossing(copies, gap_of, gaps)
    missing = _UNRANKED if crossing_ is None else ""
    return replace(forecast_, crossing=crossing_, unsimulated=missing)


def _proxies(plan: Terms, given: Mapping[Private, Sealed]) -> dict[Private | str, Sealed] | None:
    """Return proxy data, or else prior means, of all private objects; None if incomplete."""
    by_object: dict[Private | str, Sealed] = {}
    for terms, agent in zip(plan.agents, plan.problem.agents, strict=True):
        specs = agent.specs(terms.name)
        for k, private in enumerate(agent.private):
            prior: Expectation | None = terms.expected[k] if k < len(terms.expected) else None
            value: Any = given.get(private, private.proxy)
            if value is None and prior is not None:
                value = specs[private].shaped(prior.mean)
            if value is None:
                return None
            by_object[private] = stand_in(value, specs[private])
    return by_object


def _solvable(plan: Terms) -> bool:
    """Return whether the optimum for proxy data can be computed."""
    model = plan.program.model  # cvxpy solves a model as written
    return model is not None or all(agent.is_dcp() for agent in plan.problem.agents)
