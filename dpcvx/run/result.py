"""What a run returns: released values and what follows from them, nothing computed on raw data."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._card import card
from .._words import number, plural
from ..errors import ModelError
from ..plan.banner import LISTED, row
from ..plan.guarantee import Guarantee
from ..privacy.ledger import Ledger
from .gate import Release
from .history import History
from .plot import convergence
from .solution import Iterate, Solution

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


class Status(enum.Enum):
    """How a run ended; the value says it in words."""

    COMPLETED = "completed: every planned round was run"
    CONVERGED = "converged: the released residuals fell below the tolerance"
    BUDGET = "stopped early by the ledger's budget"
    STALLED = (
        "stalled: a local solve failed in the last round, so its agent's values are of an earlier "
        "round"
    )
    DIVERGED = (
        "diverged: values became infinite or undefined, or grew out of all proportion, so there is "
        "no solution. Take shorter steps (a smaller step=), and check "
        "that the problem has a solution: that no objective falls without end, and that the "
        "agents' sets meet"
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
            f"<Transcript: {plural(len(self.releases), 'release')} in "
            f"{plural(self.rounds, 'round')}, "
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
                row("guarantee", f"{self.guarantee.headline}{_more(self.guarantee)}"),
                *spent_rows(self),
            ]
        )

    def __repr__(self) -> str:
        ended = f"{self.status.name.lower()} after {plural(self.rounds, 'round')}"
        return (
            f"<Result: {ended}, mismatch {self.consensus_residual:.3g}; {self.guarantee.headline}>"
        )

    def _repr_html_(self) -> str:
        return card(self)


def _more(guarantee: Guarantee) -> str:
    """Where the rest of the guarantee stands; its headline has all reservations."""
    if guarantee.kind == "none":
        return ""
    return " (in full: result.guarantee)"


def outcome_rows(result: Result) -> list[str]:
    """How the run ended, and how far its values are from agreeing and from the agents' sets."""
    failed, inaccurate = result.history.failed, result.history.inaccurate
    took = "" if result.seconds is None else f", {result.seconds:.2f} s"
    ended = f"{result.status.value} ({plural(result.rounds, 'round')}{took})"
    lines = [row("status", ended)]
    if result.status is Status.DIVERGED:
        lines.append(row("reported", "nothing; every variable's value is None"))
    else:
        which = "average of the iterates" if result.reported == "average" else "last iterate"
        lines += [row("reported", f"the {which}"), *_agreement_rows(result), _feasibility(result)]
    if failed or inaccurate:
        lines.append(
            row(
                "solver",
                f"{plural(inaccurate, 'local solve')} reached reduced accuracy only; {failed} "
                "failed, and the agent kept its previous point",
            )
        )
    return lines


def _agreement_rows(result: Result) -> list[str]:
    """How far agents agree, in what ties them."""
    program = result.solution.program
    if program.coupling is not None:
        residual = f"largest violation of an equality {result.coupling_residual:.3e}"
        return [row("coupling", residual)]
    if program.size == 0:
        return []
    residual = (
        f"the agents' copies differ from their mean by at most {result.consensus_residual:.3e}"
    )
    return [row("consensus", residual)]


def _feasibility(result: Result) -> str:
    violation = result.max_violation
    text = f"the last iterate violates an agent's own constraints by at most {violation:.3e}"
    if violation == 0:
        text = "the last iterate satisfies every agent's own constraints"
    elif math.isnan(violation):
        text = "how far the last iterate violates an agent's own constraints is not known"
    return row("feasibility", text)


def spent_rows(result: Result) -> list[str]:
    """What every agent spent."""
    accounts = result.ledger.values()
    if any(entry.mechanism == "none" for account in accounts for entry in account.entries[:1]):
        left = "holds releases without noise: no later run that is given it has a guarantee"
        return [row("ledger", left)]
    if result.guarantee.kind == "none":
        return []
    lines = str(result.ledger).splitlines()
    if len(lines) > LISTED:
        # The agent that spent most stands for the rest.
        most = number(result.ledger.spent())
        lines[LISTED:] = [f"... and {len(lines) - LISTED} more lines, none above epsilon {most}"]
    if result.status is Status.CONVERGED:
        # Outputs chose the moment: a smaller figure is no guarantee.
        lines.append("the guarantee stays that of all planned rounds: values chose when to stop")
    return [row("ledger" if k == 0 else "", line) for k, line in enumerate(lines)]
