"""Figures of a run, from released values only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from .._figure import TWO_COLUMNS, axes_on, figure_of, label_of, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .history import History
    from .solution import Solution

# Characters of a title's line, on axes of so many inches.
_WIDTH, _WIDE = 80, 5.5
# Inches.
_HEIGHT = 3.2
# Variables up to which each has a name in a figure.
_NAMED = 8


@styled
def convergence(history: History, title: str, ax: Axes | None = None) -> Figure:
    """Draw how far agents disagree, and how far values move, on a logarithmic axis."""
    axes = axes_on(ax, TWO_COLUMNS, _HEIGHT)
    moves = r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$"
    if not any(history.penalty):
        moves = r"movement  $\|x - x_{\mathrm{prev}}\|$"
    lines = ((history.primal, r"primal  $\|w - z\|$"), (history.dual, moves))
    shown = [line for line in lines if np.nanmax(line[0], initial=0.0) > 0]
    for values, label in shown or lines:  # agents that hear of one point never disagree
        axes.plot(history.rounds, values, label=label)
    if shown:
        axes.set_yscale("log", nonpositive="mask")  # nothing moves while a scale is learned
    axes.set(xlabel="round", ylabel="residual of released values")
    axes.set_title(_wrapped(title, axes))
    axes.legend()
    return figure_of(axes)


@styled
def returned(solution: Solution, title: str, ax: Axes | None = None) -> Figure:
    """Draw what a run of one round returned, variable by variable: it has no path to follow."""
    from matplotlib.ticker import MaxNLocator

    axes = axes_on(ax, TWO_COLUMNS, _HEIGHT)
    first, found = 1, solution.means
    for name, value in found:
        flat = np.ravel(value, order="F")
        axes.plot(np.arange(first, first + flat.size), flat, marker="o", ms=3, label=label_of(name))
        first += flat.size
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="entry, variable by variable", ylabel="value returned")
    axes.set_title(_wrapped(title, axes))
    if len(found) <= _NAMED:
        axes.legend()
    return figure_of(axes)


def _wrapped(title: str, axes: Axes) -> str:
    inches = axes.get_window_extent().width / figure_of(axes).dpi
    return "\n".join(textwrap.wrap(title, max(20, round(_WIDTH * min(1.0, inches / _WIDE)))))
