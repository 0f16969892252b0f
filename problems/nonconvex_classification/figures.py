"""Figures: gaps against rounds by decay and scale, gaps against epsilon, messages, damping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from problems.nonconvex_classification.experiment import Damping, Eavesdropping, Trace, spread
from problems.nonconvex_classification.methods import DELTA, Method

Floats = NDArray[np.float64]

_NOT_PRIVATE = "gaps are computed on the records in the open: not private"
# From here on nobody should call it protection.
NO_PROTECTION = 50.0
# Of gaps that are nothing but rounding errors.
_LEAST = 1e-16
# Okabe and Ito's colours: one per method, Gaussian noise with open marks and broken lines.
_STYLES = {
    "DPP2": ("#0072B2", "o-"),
    "DPP2, damped": ("#009E73", "s-"),
    "DiaDSP": ("#D55E00", "^-"),
    "PPDC": ("#CC79A7", "v-"),
    "Gradient descent": ("#000000", "D-"),
    "DPP2, Gaussian": ("#0072B2", "o--"),
    "DPP2, damped, Gaussian": ("#009E73", "s--"),
    "Gradient descent, Gaussian": ("#000000", "D--"),
}


def total(epsilon: float) -> str:
    """An epsilon with what it is worth."""
    if np.isinf(epsilon):
        return "no noise, no guarantee"
    few = f"epsilon = {epsilon:.3g}"
    return few if epsilon < NO_PROTECTION else f"{few}: no protection"


def rounds(curves: Mapping[str, Mapping[str, Trace]], title: str) -> Figure:
    """Figures 1 and 2: gap against the round, with the total epsilon of every curve.

    Parameters
    ----------
    curves : mapping of str to mapping of str to Trace
        By panel and curve.
    title : str
    """
    figure = Figure(figsize=(1.0 + 6.2 * len(curves), 6.2), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (name, traces) in zip(panels, curves.items(), strict=True):
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.92, len(traces)))
        for colour, (label, trace) in zip(colours, traces.items(), strict=True):
            axes.plot(
                np.maximum(trace.gap, _LEAST), color=colour, lw=1.3,
                label=f"{label} ({total(trace.epsilon)})",
            )  # fmt: skip
        axes.set(title=name, xlabel="round k", yscale="log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        # Below, where it hides nothing.
        axes.legend(
            fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.11), ncols=2
        )
    panels[0].set_ylabel("gap (31) of the points that leave")
    figure.suptitle(f"{title}\nepsilon: of the whole run; {_NOT_PRIVATE}", fontsize=11)
    return figure


def contests(
    found: Mapping[Method, Mapping[float, Sequence[Trace]]], start: float, title: str
) -> Figure:
    """Final gaps against the total epsilon, the same for all methods.

    Parameters
    ----------
    found : mapping of Method to mapping of float to sequence of Trace
        Runs by method and epsilon.
    start : float
        Mean gap at the public start.
    title : str
    """
    figure = Figure(figsize=(9.5, 6.5), layout="constrained")
    axes = figure.subplots()
    epsilons = sorted({epsilon for own in found.values() for epsilon in own})
    for k, (method, own) in enumerate(found.items()):
        colour, style = _STYLES[method.name]
        mean, low, high = np.array([spread(own[epsilon]) for epsilon in own]).T
        # Beside each other, so that bars do not hide bars.
        at = np.array(list(own)) * 1.06 ** (k - (len(found) - 1) / 2)
        axes.errorbar(
            at, mean, yerr=[mean - low, high - mean], fmt=style, color=colour, ms=5, lw=1.2,
            capsize=2, mfc="white" if method.gaussian else colour, label=method.name,
        )  # fmt: skip
    axes.axhline(start, color="0.5", lw=1)
    axes.annotate(
        "public start, where nothing is released", (1, start), (-4, 3), color="0.35", fontsize=8,
        xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
    )  # fmt: skip
    if epsilons[-1] >= NO_PROTECTION:
        axes.axvspan(NO_PROTECTION, 3 * epsilons[-1], color="0.93", zorder=0)
        axes.annotate(
            "no protection", (NO_PROTECTION, 1), (4, -12), xycoords=("data", "axes fraction"),
            textcoords="offset points", color="0.35", fontsize=9,
        )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlabel="total epsilon",
        ylabel="gap (31) of what agents report at the end",
        xlim=(epsilons[0] / 2, epsilons[-1] * 2),
    )  # fmt: skip
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle(
        f"{title}; bars: least to largest\nfilled: Laplace, (epsilon, 0)-DP; open: Gaussian, "
        f"(epsilon, {DELTA:g})-DP, which is weaker\n{_NOT_PRIVATE}",
        fontsize=11,
    )
    return figure


def messages(found: Eavesdropping, name: str) -> Figure:
    """What merging and noise hide, by round."""
    figure = Figure(figsize=(8.5, 5.0), layout="constrained")
    axes = figure.subplots()
    for values, label, style in (
        (found.merged, "what merging adds: y - (x + w)", "-"),
        (found.recovered, "what is left of it for who knows eta: nothing", "o"),
        (found.noise, "noise w, all that hides x", "--"),
        (found.length, "x", ":"),
    ):
        # In the first rounds all is public.
        least = _LEAST if style == "o" else np.nan
        axes.plot(np.where(values > _LEAST, values, least), style, label=label, ms=3, lw=1.5)
    axes.set(yscale="log", xlabel="round k", ylabel="root mean square", ylim=(_LEAST / 10, None))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.annotate(
        f"at {_LEAST:g}: {_LEAST:g} or less", (1, _LEAST), (-4, 4), ha="right", fontsize=8,
        color="0.35", xycoords=("axes fraction", "data"), textcoords="offset points",
    )  # fmt: skip
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.suptitle(f"The first tier hides nothing: {name}", fontsize=11)
    return figure


def damping(found: Damping) -> Figure:
    """A counterexample to Theorem 2, and its remedy."""
    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    axes: Axes = figure.subplots()
    for sigma, gaps in zip(found.dampings, found.gaps, strict=True):
        label = f"damping = {sigma:g}" if sigma > 0 else "as printed"
        axes.plot(np.maximum(gaps, _LEAST), label=label, lw=1.4)
    axes.set(yscale="log", xlabel="round k", ylabel="gap (31), no noise")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.suptitle(
        "Three quadratics with curvatures -1, -1 and 3, whose sum is strongly convex\n"
        "no noise, no guarantee",
        fontsize=11,
    )
    return figure
