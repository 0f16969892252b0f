"""What a run returns: released values and what follows from them, nothing computed on raw data."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, overload

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from . import display
from .algorithms.base import Residuals
from .arguments import show
from .conic import Outcome
from .errors import ModelError
from .guarantee import Guarantee
from .guard import frameless
from .ledger import Ledger
from .oracle import Release
from .program import Program

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


class Status(enum.Enum):
    """How a run ended; the value is the message."""

    COMPLETED = "all planned rounds were run"
    CONVERGED = "stopped: the released residuals fell below the tolerance"
    BUDGET = "stopped: the ledger's budget covers no further round"
    STALLED = "a local solve of the last round failed: its agent's values are of an earlier round"
    DIVERGED = (
        "no solution: values became infinite or undefined, or grew out of all proportion. Take "
        "shorter steps (a smaller step, eta or alpha; a larger D), and check that the problem has "
        "a solution: that no objective falls without end and that the agents' sets meet"
    )


@dataclass(frozen=True, eq=False)
class Transcript:
    """All releases of a run, from which `Plan.replay` recomputes it.

    Attributes
    ----------
    fingerprint : str
        Of the plan.
    rounds : int
        Rounds that were run.
    releases : tuple of Release
    status : Status
    guarantee : Guarantee
    ledger : Ledger
        As the run left it.
    """

    fingerprint: str
    rounds: int
    releases: tuple[Release, ...] = field(repr=False)
    status: Status
    guarantee: Guarantee = field(repr=False)
    ledger: Ledger = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"<Transcript: {len(self.releases)} releases in {self.rounds} rounds, "
            f"{self.status.name.lower()}>"
        )


# Rounds that a history keeps unless every round is asked for.
_KEPT = 128


@dataclass(frozen=True)
class Round:
    """What is known of a round after it.

    Attributes
    ----------
    t : int
        From 1.
    residuals : Residuals
        Of released values.
    inaccurate : int
        Agents whose last local solve of the round reached reduced accuracy only. In a history,
        these and failures include those of rounds left out just before.
    failed : int
        Agents whose last local solve of the round failed, so that they kept the previous point.
    """

    t: int
    residuals: Residuals
    inaccurate: int
    failed: int

    def after(self, earlier: Round) -> Round:
        """The same, with what went wrong in an earlier round that is left out."""
        return replace(
            self,
            inaccurate=self.inaccurate + earlier.inaccurate,
            failed=self.failed + earlier.failed,
        )


class History(Sequence[Round]):
    """Residuals of released values, and failed local solves, round by round.

    Memory does not grow with the rounds: of a long run, an even selection and the last round are
    kept. ``plan.run(iterates=True)`` keeps every round.

    Parameters
    ----------
    limit : int or None
        Rounds to keep at most; None for all.
    """

    def __init__(self, limit: int | None = _KEPT) -> None:
        self._limit = limit
        self._stride = 1
        self._kept: list[Round] = []

    def append(self, residuals: Residuals, outcomes: Sequence[Outcome]) -> Round:
        """Add a round."""
        answered = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)
        new = Round(
            t=self._kept[-1].t + 1 if self._kept else 1,
            residuals=residuals,
            inaccurate=sum(o in answered[1:] for o in outcomes),
            failed=sum(o not in answered for o in outcomes),
        )
        kept = self._thinned([*self._kept[-1:], new])
        self._kept[-1:] = kept
        if self._limit is not None and len(self._kept) > self._limit:
            self._stride *= 2
            self._kept = self._thinned(self._kept)
        return new

    def _thinned(self, rounds: Sequence[Round]) -> list[Round]:
        """Every so many rounds, and the last one."""
        kept: list[Round] = []
        pending: Round | None = None
        for each in rounds:
            merged = each if pending is None else each.after(pending)
            if (each.t - 1) % self._stride == 0 or each is rounds[-1]:
                kept.append(merged)
                pending = None
            else:
                pending = merged
        return kept

    @property
    def rounds(self) -> list[int]:
        """The rounds that the other lists are about."""
        return [r.t for r in self._kept]

    @property
    def primal(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.primal for r in self._kept]

    @property
    def dual(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.dual for r in self._kept]

    @property
    def mismatch(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.mismatch for r in self._kept]

    @property
    def rho(self) -> list[float]:
        """See `Residuals`."""
        return [r.residuals.rho for r in self._kept]

    @property
    def inaccurate(self) -> int:
        """Local solves that ended a round of the run with reduced accuracy only."""
        return sum(r.inaccurate for r in self._kept)

    @property
    def failed(self) -> int:
        """Local solves that ended a round of the run without an answer."""
        return sum(r.failed for r in self._kept)

    def __repr__(self) -> str:
        if not self._kept:
            return "<History: empty>"
        last = self._kept[-1]
        residuals = f"primal {last.residuals.primal:.3g}, dual {last.residuals.dual:.3g}"
        return f"<History: {len(self)} of {last.t} rounds kept; at the end {residuals}>"

    @overload
    def __getitem__(self, index: int) -> Round: ...

    @overload
    def __getitem__(self, index: slice) -> list[Round]: ...

    def __getitem__(self, index: int | slice) -> Round | list[Round]:
        return self._kept[index]

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(frozen=True, eq=False)
class Solution:
    """The agents' vectors, as arrays of the cvxpy variables' shapes.

    Attributes
    ----------
    program : Program
    vectors : tuple of ndarray
        One per agent.
    start : mapping
        Whole variables (by cvxpy id) at the public start, for entries that nobody holds.
    """

    program: Program = field(repr=False)
    vectors: tuple[Array, ...] = field(repr=False)
    start: Mapping[int, Array] = field(repr=False)

    def __repr__(self) -> str:
        entries = sum(x.size for x in self.vectors)
        return f"<Solution: {len(self.vectors)} agents, {entries} entries>"

    @frameless
    def of(self, agent: str, variable: cp.Variable) -> Array:
        """One agent's copy of a variable.

        Raises
        ------
        ModelError
            If there is no such agent or it does not hold the variable.
        """
        if not isinstance(variable, cp.Variable) or not isinstance(agent, str):
            raise ModelError(
                f"solution.of({show(agent)}, {show(variable)}) takes the name of an agent and one "
                "of its cvxpy variables."
            )
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            if local.name == agent and any(
                piece.variable == variable.id for piece in local.layout.pieces
            ):
                piece = local.layout[variable.id]
                flat = np.ravel(self.start[variable.id], order="F").copy()
                flat[piece.entries] = x[piece.offset : piece.stop]
                return flat.reshape(piece.shape, order="F")
        names = ", ".join(local.name for local in self.program.agents)
        raise ModelError(
            f"No agent {show(agent)} holds a variable '{variable.name()}'; the agents are {names}."
        )

    @frameless
    def __getitem__(self, variable: cp.Variable) -> Array:
        """The mean over the agents that hold each entry."""
        if not isinstance(variable, cp.Variable):
            raise ModelError(
                f"solution[{show(variable)}] is no value: write solution[x] with a cvxpy variable."
            )
        held = (p.variable for local in self.program.agents for p in local.layout.pieces)
        if variable.id not in held:
            raise ModelError(f"No agent holds a variable '{variable.name()}'.")
        return self._mean(variable.id)

    def _mean(self, variable: int) -> Array:
        """The mean over the agents that hold each entry of a variable, by its cvxpy id."""
        start = np.asarray(self.start[variable])
        total, count = np.zeros(start.size), np.zeros(start.size)
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            for piece in local.layout.pieces:
                if piece.variable == variable:
                    total[piece.entries] += x[piece.offset : piece.stop]
                    count[piece.entries] += 1
        flat = np.ravel(start, order="F").copy()
        flat[count > 0] = total[count > 0] / count[count > 0]
        return flat.reshape(start.shape, order="F")

    @property
    def finite(self) -> bool:
        """Whether all values are numbers, and what they amount to together."""
        return all(np.isfinite(x).all() for x in self.vectors) and math.isfinite(self.mismatch)

    @property
    def coupling_residual(self) -> float:
        """Largest violation of a ``coupling=`` equality; 0 without such equalities."""
        coupling = self.program.coupling
        if coupling is None:
            return 0.0
        values = [np.ravel(self._mean(variable), order="F") for variable in coupling.starts]
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverged
            gap = coupling.matrix @ np.concatenate(values) - coupling.right
        return float(np.abs(gap).max(initial=0.0))

    @property
    def mismatch(self) -> float:
        """How far agents are from agreeing: the larger one of two violations.

        The largest deviation of a shared component from its mean over the holders, and
        `coupling_residual`.
        """
        program = self.program
        mean = np.zeros(program.size)
        with np.errstate(invalid="ignore", over="ignore"):  # of a run that diverged
            for local, x in zip(program.agents, self.vectors, strict=True):
                mean[local.slots] += x[local.shared] / program.holders[local.slots]
            gaps = [
                np.abs(x[local.shared] - mean[local.slots]).max(initial=0.0)
                for local, x in zip(program.agents, self.vectors, strict=True)
            ]
        # numpy's maximum: that of Python may pass over nan.
        return float(np.max([*gaps, self.coupling_residual]))


@dataclass(frozen=True, eq=False)
class Iterate:
    """The iterates after one round.

    Attributes
    ----------
    average, last : Solution
    """

    average: Solution
    last: Solution


@dataclass(frozen=True, eq=False)
class Result:
    """Outcome of a run.

    Attributes
    ----------
    status : Status
    rounds : int
        Rounds that were run.
    seconds : float or None
        None for plans with noise: how long private computations take may tell of the data.
    guarantee : Guarantee
        The planned one, which holds however early the run stopped. Where outputs chose the moment,
        the ledger's smaller figure is no guarantee and may not be quoted in its place.
    ledger : Ledger
        What was spent, release by release.
    history : History
    average, last : Solution
        Averaged and last iterates.
    reported : {"average", "last"}
        Which of the two `solution` is.
    violation : dict
        Per agent, the largest component by which its last iterate leaves its own set.
    transcript : Transcript or None
        Only if the run was recorded.
    iterates : tuple of Iterate
        One per round, if the run was asked to keep them. Functions of released values.
    notes : tuple of str
        How the run continued its ledger, where it did.
    """

    status: Status
    rounds: int
    seconds: float | None
    guarantee: Guarantee
    ledger: Ledger
    history: History = field(repr=False)
    average: Solution = field(repr=False)
    last: Solution = field(repr=False)
    reported: str
    violation: Mapping[str, float]
    transcript: Transcript | None = field(repr=False)
    iterates: tuple[Iterate, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

    @property
    def solution(self) -> Solution:
        """The reported iterates; ``variable.value`` was set from them."""
        return self.average if self.reported == "average" else self.last

    @property
    def max_violation(self) -> float:
        """Largest violation over the agents' last iterates; nan if one is unknown."""
        return float(np.max(list(self.violation.values())))

    @property
    def consensus_residual(self) -> float:
        """How far agents are from agreeing in the reported solution; see `Solution.mismatch`."""
        return self.solution.mismatch

    @property
    def coupling_residual(self) -> float:
        """Largest violation of a ``coupling=`` equality by the reported solution."""
        return self.solution.coupling_residual

    def plot(self) -> Figure:
        """Residuals against rounds; shows released values only.

        Raises
        ------
        ModelError
            If only the last iterate may be seen.
        """
        from .plot import convergence

        if not len(self.history):
            raise ModelError(
                "There is nothing to plot: of this run only the last iterate may be seen, and its "
                "history is empty. Plan with observer='everyone' to see residuals."
            )
        return convergence(self)

    def __str__(self) -> str:
        return display.summary(self)

    def __repr__(self) -> str:
        ended = f"{self.status.name.lower()} after {self.rounds} rounds"
        return f"<Result: {ended}, mismatch {self.consensus_residual:.3g}; {self.guarantee!r}>"


def assign(solution: Solution | None, variables: Sequence[cp.Variable]) -> None:
    """Set ``variable.value`` of the problem's variables; None, as in cvxpy, without a solution."""
    for variable in variables:
        # save_value stores without the attribute checks, which rounding can fail.
        variable.save_value(None if solution is None else solution[variable])
