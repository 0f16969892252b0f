"""What a run returns: released values and what follows from them, nothing computed on raw data."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from . import display
from .algorithms.base import Residuals
from .conic import Outcome
from .errors import ModelError
from .guarantee import Guarantee
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


@dataclass
class History:
    """Per round: residuals of released values, and failed local solves.

    Attributes
    ----------
    primal, dual, mismatch, rho : list of float
        See `Residuals`.
    inaccurate : list of int
        Agents whose last local solve of the round reached reduced accuracy only.
    failed : list of int
        Agents whose last local solve of the round failed, so that they kept the previous point.
    """

    primal: list[float] = field(default_factory=list)
    dual: list[float] = field(default_factory=list)
    mismatch: list[float] = field(default_factory=list)
    rho: list[float] = field(default_factory=list)
    inaccurate: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def append(self, residuals: Residuals, outcomes: Sequence[Outcome]) -> None:
        """Add a round."""
        self.primal.append(residuals.primal)
        self.dual.append(residuals.dual)
        self.mismatch.append(residuals.mismatch)
        self.rho.append(residuals.rho)
        answered = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)
        self.inaccurate.append(sum(o in answered[1:] for o in outcomes))
        self.failed.append(sum(o not in answered for o in outcomes))

    def __len__(self) -> int:
        return len(self.primal)


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

    def of(self, agent: str, variable: cp.Variable) -> Array:
        """One agent's copy of a variable.

        Raises
        ------
        ModelError
            If there is no such agent or it does not hold the variable.
        """
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
            f"No agent '{agent}' holds a variable '{variable.name()}'; the agents are {names}."
        )

    def __getitem__(self, variable: cp.Variable) -> Array:
        """The mean over the agents that hold each entry."""
        total: Array | None = None
        count: Array | None = None
        for local, x in zip(self.program.agents, self.vectors, strict=True):
            for piece in local.layout.pieces:
                if piece.variable == variable.id:
                    total = np.zeros(piece.size) if total is None else total
                    count = np.zeros(piece.size) if count is None else count
                    total[piece.entries] += x[piece.offset : piece.stop]
                    count[piece.entries] += 1
        if total is None or count is None:
            raise ModelError(f"No agent holds a variable '{variable.name()}'.")
        flat = np.ravel(self.start[variable.id], order="F").copy()
        flat[count > 0] = total[count > 0] / count[count > 0]
        return flat.reshape(variable.shape, order="F")

    @property
    def mismatch(self) -> float:
        """Largest deviation of a shared component from its mean over the holders."""
        program = self.program
        mean = np.zeros(program.size)
        for local, x in zip(program.agents, self.vectors, strict=True):
            mean[local.slots] += x[local.shared] / program.holders[local.slots]
        gaps = [
            np.abs(x[local.shared] - mean[local.slots])
            for local, x in zip(program.agents, self.vectors, strict=True)
        ]
        return float(max((g.max(initial=0.0) for g in gaps), default=0.0))


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
    seconds : float
    guarantee : Guarantee
        The planned one; stopping early only spends less (see the ledger).
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
    seconds: float
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
        """Largest violation over the agents' last iterates."""
        return max(self.violation.values())

    @property
    def consensus_residual(self) -> float:
        """Largest deviation of a shared component from its mean, in the reported solution."""
        return self.solution.mismatch

    def plot(self) -> Figure:
        """Residuals against rounds; shows released values only."""
        from .plot import convergence

        return convergence(self)

    def __str__(self) -> str:
        return display.summary(self)


def assign(solution: Solution, variables: Sequence[cp.Variable]) -> None:
    """Set ``variable.value`` of the problem's variables."""
    for variable in variables:
        # save_value stores without the attribute checks, which rounding can fail.
        variable.save_value(solution[variable])
