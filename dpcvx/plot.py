"""Figures of a run, from released values only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from .convergence import ConvergenceBound
    from .result import Result

# Characters of a title's line.
_WIDTH = 80


def convergence(result: Result) -> Figure:
    """Primal and dual residual against the round, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    t = result.history.rounds
    axes.plot(t, result.history.primal, label=r"primal  $\|w - z\|$")
    axes.plot(t, result.history.dual, label=r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$")
    if np.nanmax([*result.history.primal, *result.history.dual], initial=0.0) > 0:
        axes.set_yscale("log")
    axes.set(xlabel="round", ylabel="residual of released values")
    axes.set_title("\n".join(textwrap.wrap(result.guarantee.headline, _WIDTH)), fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return figure


def envelope(bound: ConvergenceBound, measured: Mapping[int, NDArray[np.float64]]) -> Figure:
    """A convergence bound, and measured gaps: mean, and quartiles over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.loglog(bound.rounds, bound.values, color="C3", label=f"bound ({bound.equation})")
    if measured:
        T = sorted(measured)
        low, high = (np.array([np.quantile(measured[t], q) for t in T]) for q in (0.25, 0.75))
        axes.loglog(T, [np.mean(measured[t]) for t in T], "o-", ms=4, label="measured, mean")
        axes.fill_between(T, low, high, alpha=0.25, label="quartiles over seeds")
        axes.set_title("measured gaps are computed on the data: not private")
    axes.set(xlabel="rounds", ylabel="gap of the averaged iterate")
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return figure
