"""Figures of a run, from released values only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from .._figure import TWO_COLUMNS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .history import History
    from .solution import Solution

# Characters of a title's line.
_WIDTH = 80
# Variables up to which each has a name in a figure.
_NAMED = 8


@styled
def convergence(history: History, title: str) -> Figure:
    """How far agents disagree, and how far values move, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TWO_COLUMNS, 3.2))
    axes = figure.subplots()
    moves = r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$"
    if not any(history.penalty):
        moves = r"movement  $\|x - x_{\mathrm{prev}}\|$"
    lines = ((history.primal, r"primal  $\|w - z\|$"), (history.dual, moves))
    shown = [line for line in lines if np.nanmax(line[0], initial=0.0) > 0]
    for values, label in shown or lines:  # agents that hear of one point never disagree
        axes.plot(history.rounds, values, label=label)
    if shown:
        axes.set_yscale("log")
    axes.set(xlabel="round", ylabel="residual of released values")
    axes.set_title(_wrapped(title))
    axes.legend()
    return figure


@styled
def returned(solution: Solution, title: str) -> Figure:
    """What a run of one round returned, variable by variable: it has no path to follow."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(TWO_COLUMNS, 3.2))
    axes = figure.subplots()
    first, found = 1, solution.means
    for name, value in found:
        flat = np.ravel(value, order="F")
        axes.plot(np.arange(first, first + flat.size), flat, marker="o", ms=3, label=name)
        first += flat.size
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="entry, variable by variable", ylabel="value returned")
    axes.set_title(_wrapped(title))
    if len(found) <= _NAMED:
        axes.legend()
    return figure


def _wrapped(title: str) -> str:
    return "\n".join(textwrap.wrap(title, _WIDTH))
