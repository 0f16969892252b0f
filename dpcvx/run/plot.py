"""Figures of a run, from released values only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from .._figure import TWO_COLUMNS, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .history import History

# Characters of a title's line.
_WIDTH = 80


@styled
def convergence(history: History, title: str) -> Figure:
    """Primal and dual residual against the round, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(TWO_COLUMNS, 3.2))
    axes = figure.subplots()
    t = history.rounds
    # One round is a point, and has no round before it to move from.
    once = len(t) == 1
    axes.plot(t, history.primal, marker="o" if once else None, label=r"primal  $\|w - z\|$")
    if once:
        axes.set_xticks(t)
        axes.text(0.5, 0.5, "There was one round: no path to follow.", ha="center", color="0.4",
            transform=axes.transAxes)  # fmt: skip
    else:
        axes.plot(t, history.dual, label=r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$")
    if np.nanmax([*history.primal, *history.dual], initial=0.0) > 0:
        axes.set_yscale("log")
    axes.set(xlabel="round", ylabel="residual of released values")
    axes.set_title("\n".join(textwrap.wrap(title, _WIDTH)))
    axes.legend()
    return figure
