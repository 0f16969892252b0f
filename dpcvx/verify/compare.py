"""Which mechanism for this model and budget? Tried on public stand-in data, before any are read."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import cvxpy as cp
import numpy as np
from rich.progress import track

from .._arguments import FLAG, check_argument, count, integer, optional
from .._card import card
from .._words import number, plural
from ..algorithms.admm import ADMM
from ..algorithms.base import Algorithm
from ..algorithms.linearized_admm import LinearizedADMM
from ..errors import DpcvxError, ModelError
from ..model.declaration import Declaration
from ..model.private import Private, Sealed
from ..plan.banner import WIDTH
from ..plan.terms import Terms
from ..privacy.accounting import check_delta, check_epsilon
from ..run.data import stand_ins
from ..run.live import run_plan
from ..run.report import screen, wanted
from ..run.result import Status
from . import not_private

P = TypeVar("P", bound=Terms)


@dataclass(frozen=True)
class Candidate(Generic[P]):
    """A way to spend a budget.

    Attributes
    ----------
    name : str
    plan : Plan or None
        None if the model does not allow it.
    gap : float
        Median over the runs of the true objective minus the optimum, on the stand-in data;
        infinite for runs that diverge.
    quartiles : tuple of float
        25 and 75 % of the same.
    mismatch : float
        Median of the largest deviation of a shared component.
    violation : float
        Largest violation of an agent's own set.
    reason : str
        Why the model does not allow it, and what would.
    """

    name: str
    plan: P | None = field(repr=False)
    gap: float = math.nan
    quartiles: tuple[float, float] = (math.nan, math.nan)
    mismatch: float = math.nan
    violation: float = math.nan
    reason: str = ""


@dataclass(frozen=True)
class Comparison(Generic[P]):
    """Candidates in order of their gap on stand-in data; the choice stays with the user.

    Attributes
    ----------
    candidates : tuple of Candidate
        Those that the model does not allow come last.
    optimum : float
        Of the stand-in problem.
    epsilon, delta : float
        Total budget of each.
    runs : int
    """

    candidates: tuple[Candidate[P], ...]
    optimum: float
    epsilon: float
    delta: float
    runs: int

    @property
    def recommended(self) -> Candidate[P]:
        """The smallest median gap among those whose agents keep their sets and agree.

        Agents that do not agree can be far below the common optimum.

        Raises
        ------
        ModelError
            If no candidate ends with finite values.
        """
        found = self._recommended
        if found is None:
            raise ModelError(
                "No mechanism can be recommended: each of them is refused for this model, or half "
                "of its runs diverged. print(comparison) shows which; try another penalty=, more "
                "epsilon, or bounds on the variables."
            )
        return found

    @property
    def _recommended(self) -> Candidate[P] | None:
        slack = 1e-3 * (1.0 + abs(self.optimum))
        tried = [c for c in self.candidates if c.plan is not None and math.isfinite(c.gap)]
        usable = [c for c in tried if c.violation < 1e-4 and c.gap > -slack]
        return next(iter(usable or sorted(tried, key=lambda c: abs(c.gap))), None)

    def __repr__(self) -> str:
        best = self._recommended
        budget = f"({number(self.epsilon)}, {number(self.delta)})"
        tried = f"{plural(len(self.candidates), 'candidate')} at {budget}"
        found = "none" if best is None else f"{best.name}, median gap {number(best.gap)}"
        return f"<Comparison: {tried}; recommended: {found}>"

    def _repr_html_(self) -> str:
        return card(self)

    def __str__(self) -> str:
        best = self._recommended
        width = max(len(c.name) for c in self.candidates)
        runs = f"the median over {self.runs} runs" if self.runs > 1 else "one run"
        head = (
            f"Every mechanism spends ({number(self.epsilon)}, {number(self.delta)}) in total. Gap: "
            f"objective minus the optimum {number(self.optimum)}, {runs}, on stand-in data; no "
            "private data were read. Mismatch: how far agents are from agreeing. Violation: of an "
            "agent's own constraints."
        )
        lines = [
            textwrap.fill(head, WIDTH),
            f"  {'':<{width}} {'gap':>8} {'25 %':>8} {'75 %':>8} {'mismatch':>8} {'violation':>9}",
        ]
        refused: dict[str, list[str]] = {}
        for c in self.candidates:
            if c.plan is None:
                refused.setdefault(c.reason, []).append(c.name)
                continue
            lines.append(
                f"{'*' if c is best else ' '} {c.name:<{width}} {c.gap:>8.3g} "
                f"{c.quartiles[0]:>8.3g} {c.quartiles[1]:>8.3g} {c.mismatch:>8.1e} "
                f"{c.violation:>9.1e}"
            )
        if best is not None:
            lines.append(f"* recommended: plan = comparison.recommended.plan ({best.name})")
        for reason, names in refused.items():
            text = f"not applicable: {'; '.join(names)}. {reason}"
            lines.append(textwrap.fill(text, WIDTH, subsequent_indent="  "))
        return "\n".join(lines)


def compare(
    problem: Declaration,
    planned: Callable[..., P],
    *,
    epsilon: float,
    delta: float,
    proxy: Mapping[Private | str, Sealed],
    rounds: int,
    penalty: float,
    runs: int,
    seed: int,
    verbose: bool | None,
) -> Comparison[P]:
    """See `Problem.compare`; `planned` makes its plans."""
    check_argument("", "runs", runs, count())
    check_argument("", "rounds", rounds, count())
    check_argument("", "seed", seed, integer(0))
    check_argument("", "verbose", verbose, optional(FLAG))
    check_epsilon(epsilon)
    check_delta(delta)
    proxy = stand_ins(problem, proxy, "problem.compare")
    before = [(variable, variable.value) for variable in problem.variables()]
    shown = wanted(verbose)
    try:
        central = not_private.central(problem, proxy)
        if not central.is_dcp():
            raise ModelError(
                "A comparison needs the optimum on the stand-in data, and cvxpy does not find that "
                "all objectives are convex there (the DCP rules). Write objectives that follow "
                "them, or try single plans on the stand-in data: plan.run(data=proxy)."
            )
        central.solve(solver=cp.CLARABEL)
        if central.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise ModelError(
                f"On the stand-in data the problem is {central.status}, so there is no gap to "
                "compare. Check the constraints of the agents together, or bound the variables."
            )
        optimum = float(np.asarray(central.value))
        trial = _Trial(problem, planned, epsilon, delta, rounds, proxy, optimum, runs, seed)
        progress = track(options(penalty), "comparing", console=screen(shown), disable=not shown)
        found = [trial(option) for option in progress]
    finally:
        for variable, value in before:
            variable.save_value(value)
    order = sorted(found, key=lambda c: (c.plan is None, 0.0 if c.plan is None else c.gap))
    return Comparison(tuple(order), optimum, epsilon, delta, runs)


@dataclass(frozen=True)
class Option:
    """A way to spend a budget; it is judged by the iterate that its algorithm reports."""

    name: str
    algorithm: Algorithm[Any, Any]
    mechanism: str = "gaussian"
    release: Literal["each step", "once"] = "each step"


def options(penalty: float) -> list[Option]:
    """The mechanisms that are compared."""
    linearized, exact = LinearizedADMM(penalty=penalty), ADMM(penalty=penalty)
    average = LinearizedADMM(penalty=penalty, output="average")
    last = LinearizedADMM(penalty=penalty, output="last")
    output = LinearizedADMM(penalty=penalty, perturb="output", output="average")
    projected = LinearizedADMM(penalty=penalty, perturb="projected output", output="average")
    return [
        Option("noisy gradients, last iterate", last),
        Option("noisy gradients, average", average),
        Option("Laplace noise, last iterate", last, "laplace"),
        Option("Laplace noise, average", average, "laplace"),
        Option("noisy output, average", output),
        Option("projected noisy output, average", projected),
        Option("noisy exact steps, average", exact),
        Option("release once, exact steps", exact, release="once"),
        Option("release once, gradient steps", linearized, release="once"),
    ]


@dataclass(frozen=True, eq=False)
class _Trial(Generic[P]):
    problem: Declaration
    planned: Callable[..., P]
    epsilon: float
    delta: float
    rounds: int
    proxy: Mapping[Private | str, Sealed]
    optimum: float
    runs: int
    seed: int

    def __call__(self, option: Option) -> Candidate[P]:
        try:
            plan = self.planned(
                option.algorithm,
                mechanism=option.mechanism,
                rounds=self.rounds,
                epsilon=self.epsilon,
                delta=self.delta,
                release=option.release,
            )
        except DpcvxError as refusal:
            return Candidate(option.name, None, reason=str(refusal))
        gaps, mismatches, violations = [], [], []
        for run in range(self.runs):
            result = run_plan(
                plan,
                data=self.proxy,
                seed=self.seed + run,
                tolerance=None,
                record=False,
                iterates=False,
                ledger=None,
                executor=None,
                verbose=False,
            )
            if result.status is Status.DIVERGED:
                gaps.append(math.inf)
            else:
                value = not_private.objective(self.problem, result.solution, self.proxy)
                gaps.append(value - self.optimum)
            mismatches.append(result.consensus_residual)
            violations.append(result.max_violation)
        with np.errstate(invalid="ignore"):  # between infinite gaps
            found = np.quantile(gaps, (0.25, 0.5, 0.75))
        low, middle, high = (float(q) for q in np.where(np.isnan(found), math.inf, found))
        mismatch = float(np.median(mismatches))
        violation = float(np.max(violations))  # nan if one is unknown
        return Candidate(option.name, plan, middle, (low, high), mismatch, violation)
