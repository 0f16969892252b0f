"""What a run returns: released values and what follows from them, nothing computed on raw data."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..plan.banner import LISTED, row
from ..plan.guarantee import Guarantee
from ..privacy.ledger import Ledger
from .history import History
from .oracle import Release
from .plot import convergence
from .solution import Iterate, Solution

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
        if not len(self.history):
            raise ModelError(
                "There is nothing to plot: of this run only the last iterate may be seen, and its "
                "history is empty. Plan with observer='everyone' to see residuals."
            )
        return convergence(self.history, self.guarantee.headline)

    def __str__(self) -> str:
        return "\n".join(
            [
                *outcome_rows(self),
                *(row("note", note) for note in self.notes),
                "guarantee:",
                textwrap.indent(str(self.guarantee), "  "),
                *spent_rows(self),
            ]
        )

    def __repr__(self) -> str:
        ended = f"{self.status.name.lower()} after {self.rounds} rounds"
        return f"<Result: {ended}, mismatch {self.consensus_residual:.3g}; {self.guarantee!r}>"


def outcome_rows(result: Result) -> list[str]:
    """How the run ended, and how far its values are from agreeing and from the agents' sets."""
    failed, inaccurate = result.history.failed, result.history.inaccurate
    took = "" if result.seconds is None else f", {result.seconds:.2f} s"
    lines = [
        row(
            "status",
            f"{result.status.name.lower()}: {result.status.value} ({result.rounds} rounds{took})",
        ),
        row("reported", f"the {result.reported} iterate"),
        *_agreement_rows(result),
        row(
            "feasibility",
            f"largest violation of an agent's own set {result.max_violation:.3e} (last iterate)",
        ),
    ]
    if failed or inaccurate:
        lines.append(
            row(
                "solver",
                f"{inaccurate} local solve(s) of reduced accuracy, {failed} that failed and kept "
                "the previous point",
            )
        )
    return lines


def _agreement_rows(result: Result) -> list[str]:
    """How far agents agree, in what ties them."""
    program = result.solution.program
    if program.coupling is not None:
        return [row("coupling", f"largest violation of an equality {result.coupling_residual:.3e}")]
    residual = f"largest deviation of a shared component {result.consensus_residual:.3e}"
    return [row("consensus", residual)]


def spent_rows(result: Result) -> list[str]:
    """What every agent spent."""
    if result.guarantee.kind == "none":
        return []
    lines = str(result.ledger).splitlines()
    if len(lines) > LISTED:
        # The agent that spent most stands for the rest.
        most = result.ledger.spent()
        rest = f"... and {len(lines) - LISTED} more agents, none above epsilon {most:.6g}"
        lines = [*lines[:LISTED], rest]
    return ["spent:", textwrap.indent("\n".join(lines), "  ")]
