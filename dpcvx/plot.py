"""Figures of a run, from released values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Result


def convergence(result: Result) -> Figure:
    """Primal and dual residual against the round, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    t = np.arange(1, len(result.history) + 1)
    axes.semilogy(t, result.history.primal, label=r"primal  $\|w - z\|$")
    axes.semilogy(t, result.history.dual, label=r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$")
    axes.set(xlabel="round", ylabel="residual of released values", title=result.guarantee.headline)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return figure
