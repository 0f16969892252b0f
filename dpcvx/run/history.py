"""Residuals of released values by round, and figures of a run from released values."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from .._figure import TWO_COLUMNS, axes_on, figure_of, label_of, styled
from .._words import plural
from ..algorithms.base import Residuals
from ..solvers.conic import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .solution import Solution

# Largest number of rounds in a history, unless every round is requested.
_KEPT = 128


@dataclass(frozen=True)
class Round:
    """Public facts about a round after its end.

    Attributes
    ----------
    t : int
        Round, from 1.
    residuals : Residuals
        Residuals of released values.
    inaccurate : int
        Number of agents whose last local solve of the round reached reduced accuracy only.
    failed : int
        Number of agents whose last local solve of the round failed; they kept the previous point.
    """

    t: int
    residuals: Residuals
    inaccurate: int
    failed: int


class History(Sequence[Round]):
    """Residuals of released values, and failed local solves, round by round.

    Memory does not grow with the rounds: a long run keeps every second round, every fourth, and so
    on, and the last one. ``plan.run(iterates=True)`` keeps every round.

    Parameters
    ----------
    limit : int or None
        Largest number of stored rounds; None for all.
    """

    def __init__(self, limit: int | None = _KEPT) -> None:
        self._limit = limit
        self._stride = 1
        self._kept: list[Round] = []
        self._inaccurate = self._failed = 0

    def append(self, residuals: Residuals, outcomes: Sequence[Outcome]) -> Round:
        """Add a round with its residuals, and return it.

        Parameters
        ----------
        residuals : Residuals
            Residuals of released values.
        outcomes : sequence of Outcome
            Outcome of each agent's last local solve of the round.

        Returns
        -------
        Round
        """
        answered = (Outcome.SOLVED, Outcome.INACCURATE, Outcome.FALLBACK)
        new = Round(
            t=self._kept[-1].t + 1 if self._kept else 1,
            residuals=residuals,
            inaccurate=sum(o in answered[1:] for o in outcomes),
            failed=sum(o not in answered for o in outcomes),
        )
        self._inaccurate += new.inaccurate
        self._failed += new.failed
        # The last round is always stored, until the next one is appended.
        self._kept[-1:] = [*filter(self._stays, self._kept[-1:]), new]
        if self._limit is not None and len(self._kept) > self._limit:
            self._stride *= 2
            self._kept = [*filter(self._stays, self._kept[:-1]), new]
        return new

    def _stays(self, round: Round) -> bool:
        return (round.t - 1) % self._stride == 0

    @property
    def rounds(self) -> list[int]:
        """Numbers of the stored rounds; residuals and penalties have one entry per stored round."""
        return [r.t for r in self._kept]

    @property
    def primal(self) -> list[float]:
        """Primal residual ``||w - z||`` after each stored round; see `Residuals`."""
        return [r.residuals.primal for r in self._kept]

    @property
    def dual(self) -> list[float]:
        """Dual residual ``penalty ||w - w_previous||`` after each stored round; nan in round 1."""
        return [r.residuals.dual for r in self._kept]

    @property
    def mismatch(self) -> list[float]:
        """Largest entry of ``|w - z|`` after each stored round."""
        return [r.residuals.mismatch for r in self._kept]

    @property
    def penalty(self) -> list[float]:
        """Penalty in each stored round; 0 in methods without a penalty."""
        return [r.residuals.penalty for r in self._kept]

    @property
    def inaccurate(self) -> int:
        """Number of local solves, over all rounds, that reached reduced accuracy only."""
        return self._inaccurate

    @property
    def failed(self) -> int:
        """Number of local solves, over all rounds, that failed."""
        return self._failed

    def __repr__(self) -> str:
        if not self._kept:
            return "<History: empty>"
        last = self._kept[-1]
        residuals = f"primal {last.residuals.primal:.3g}, dual {last.residuals.dual:.3g}"
        return f"<History: {len(self)} of {plural(last.t, 'round')} kept; at the end {residuals}>"

    @overload
    def __getitem__(self, index: int) -> Round: ...

    @overload
    def __getitem__(self, index: slice) -> list[Round]: ...

    def __getitem__(self, index: int | slice) -> Round | list[Round]:
        return self._kept[index]

    def __len__(self) -> int:
        return len(self._kept)


# Largest length of a title line in characters, and the width in inches for which it holds.
_WIDTH, _WIDE = 80, 5.5
# Height of a figure in inches.
_HEIGHT = 3.2
# Largest number of variables that a figure's legend names.
_NAMED = 8


@styled
def convergence(history: History, title: str, ax: Axes | None = None) -> Figure:
    """Draw consensus residual and movement of released values by round, on a logarithmic axis."""
    axes = axes_on(ax, TWO_COLUMNS, _HEIGHT)
    moves = r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$"
    if not any(history.penalty):
        moves = r"movement  $\|x - x_{\mathrm{prev}}\|$"
    lines = ((history.primal, r"primal  $\|w - z\|$"), (history.dual, moves))
    shown = [line for line in lines if np.nanmax(line[0], initial=0.0) > 0]
    for values, label in shown or lines:  # agents that receive one common point always agree
        axes.plot(history.rounds, values, label=label)
    if shown:
        axes.set_yscale("log", nonpositive="mask")  # no movement while a scale is learned
    axes.set(xlabel="round", ylabel="residual of released values")
    axes.set_title(_wrapped(title, axes))
    axes.legend()
    return figure_of(axes)


@styled
def returned(solution: Solution, title: str, ax: Axes | None = None) -> Figure:
    """Draw the returned values of a run of one round, entry by entry."""
    from matplotlib.ticker import MaxNLocator

    axes = axes_on(ax, TWO_COLUMNS, _HEIGHT)
    first, means = 1, solution.means
    for name, value in means:
        flat = np.ravel(value, order="F")
        axes.plot(np.arange(first, first + flat.size), flat, marker="o", ms=3, label=label_of(name))
        first += flat.size
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="entry, variable by variable", ylabel="value returned")
    axes.set_title(_wrapped(title, axes))
    if len(means) <= _NAMED:
        axes.legend()
    return figure_of(axes)


def _wrapped(title: str, axes: Axes) -> str:
    inches = axes.get_window_extent().width / figure_of(axes).dpi
    return "\n".join(textwrap.wrap(title, max(20, round(_WIDTH * min(1.0, inches / _WIDE)))))
