"""Figures: gaps against rounds by decay and scale, gaps against epsilon, messages, damping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..pictures import ONE_COLUMN, TWO_COLUMNS, styled, whole_rounds
from .experiment import Damping, Eavesdropping, Trace, spread
from .methods import DELTA, Method

Floats = NDArray[np.float64]

_NOT_PRIVATE = "gaps are computed on the records in the open: not private"
# Least epsilon that figures mark as no protection.
NO_PROTECTION = 50.0
# Level of gaps and messages below which they are rounding errors.
_LEAST = 1e-16
# Okabe and Ito's colors: one per method, Gaussian noise with open marks and broken lines.
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
    """Return a total epsilon as text, marked if it is no protection."""
    if np.isinf(epsilon):
        return "no noise, no guarantee"
    few = f"epsilon = {epsilon:.3g}"
    return few if epsilon < NO_PROTECTION else f"{few}: no protection"


@styled
def rounds(curves: Mapping[str, Mapping[str, Trace]], title: str) -> Figure:
    """Draw gaps against the round with every curve's total epsilon, like Figures 1 and 2.

    Parameters
    ----------
    curves : mapping of str to mapping of str to Trace
        Runs by title of the panel and label of the curve.
    title : str
        Title of the figure.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 4.0))
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for axes, (name, traces) in zip(panels, curves.items(), strict=True):
        colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.8, len(traces)))
        for color, (label, trace) in zip(colors, traces.items(), strict=True):
            axes.plot(
                np.maximum(trace.gap, _LEAST), color=color, lw=1.3,
                label=f"{label} ({total(trace.epsilon)})",
            )  # fmt: skip
        axes.set(title=name, yscale="log")
        whole_rounds(axes)
        # Below the panel, where the legend hides no curve.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
    panels[0].set_ylabel("gap (31) of the agents' points")
    figure.suptitle(f"{title}\nepsilon: of the whole run; {_NOT_PRIVATE}")
    return figure


@styled
def decays(found: Mapping[str, Mapping[float, Trace]], rounds: int) -> Figure:
    """Draw the gap after K rounds against the decay r, and the total epsilon beside it.

    Figure 3 of the paper differs: it has other decays, another measure, and DiaDSP.

    Parameters
    ----------
    found : mapping of str to mapping of float to Trace
        Runs by method and decay.
    rounds : int
        Number of rounds, K.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 3.0))
    left, right = figure.subplots(1, 2)
    for (name, traces), style in zip(found.items(), ("o-", "s--", "^:"), strict=False):
        gaps = [max(float(trace.gap[rounds]), _LEAST) for trace in traces.values()]
        left.semilogy(list(traces), gaps, style, label=name, ms=4)
        noisy = {r: t.epsilon for r, t in traces.items() if np.isfinite(t.epsilon)}
        right.semilogy(list(noisy), list(noisy.values()), style, ms=4)
    start = next(iter(next(iter(found.values())).values())).gap[0]
    left.axhline(start, color="0.5", lw=1, ls="--")
    left.annotate("no data", (0, start), (4, 3), color="0.35", textcoords="offset points",
        xycoords=("axes fraction", "data"))  # fmt: skip
    left.set(xlabel="decay r, u = 1; 0: no noise", ylabel=f"gap (31) at k = {rounds}")
    right.axhline(NO_PROTECTION, color="0.5", lw=1, ls="--")
    right.annotate("no protection above", (0, NO_PROTECTION), (4, 3), color="0.35",
        textcoords="offset points", xycoords=("axes fraction", "data"))  # fmt: skip
    right.set(xlabel="decay r, u = 1", ylabel=f"total epsilon of {rounds + 1} rounds")
    figure.legend(loc="outside lower center", ncols=len(found))
    figure.suptitle(
        "DPP2 and PPDC at the decays of Figure 1: one decay is not one privacy, and none of these\n"
        f"protects; not Figure 3; {_NOT_PRIVATE}"
    )
    return figure


@styled
def contests(
    found: Mapping[Method, Mapping[float, Sequence[Trace]]],
    start: float,
    noiseless: float,
    title: str,
) -> Figure:
    """Draw final gaps against the total epsilon, equal for all methods.

    Parameters
    ----------
    found : mapping of Method to mapping of float to sequence of Trace
        Runs by method and epsilon.
    start : float
        Mean gap at the public start.
    noiseless : float
        Gap of DPP2 without noise.
    title : str
        Title of the figure.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 4.6))
    axes = figure.subplots()
    epsilons = sorted({epsilon for own in found.values() for epsilon in own})
    for k, (method, own) in enumerate(found.items()):
        color, style = _STYLES[method.name]
        mean, low, high = np.array([spread(own[epsilon]) for epsilon in own]).T
        # Methods are shifted, so that their error bars do not overlap.
        at = np.array(list(own)) * 1.06 ** (k - (len(found) - 1) / 2)
        axes.errorbar(
            at, mean, yerr=[mean - low, high - mean], fmt=style, color=color, ms=5, lw=1.2,
            capsize=2, mfc="white" if method.gaussian else color, label=method.name,
        )  # fmt: skip
    axes.axhline(start, color="0.5", lw=1, ls="--")
    axes.axhline(noiseless, color="0.5", lw=1, ls=":")
    axes.annotate(
        "no noise: DPP2, as many rounds", (0, noiseless), (4, 3),
        color="0.35", xycoords=("axes fraction", "data"), textcoords="offset points",
    )  # fmt: skip
    axes.annotate(
        "no data: the public start", (1, start), (-4, 3), color="0.35",
        xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
    )  # fmt: skip
    if epsilons[-1] >= NO_PROTECTION:
        axes.axvspan(NO_PROTECTION, 3 * epsilons[-1], color="0.93", zorder=0)
        axes.annotate(
            "no protection", (NO_PROTECTION, 0), (4, 5), xycoords=("data", "axes fraction"),
            textcoords="offset points", color="0.35",
        )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlabel="total epsilon",
        ylabel="gap (31) of what agents report at the end",
        xlim=(epsilons[0] / 2, epsilons[-1] * 2),
    )  # fmt: skip
    figure.legend(loc="outside lower center", ncols=4)
    figure.suptitle(
        f"{title}; bars: least to largest\nfilled: Laplace, (epsilon, 0)-DP; open: Gaussian, "
        f"(epsilon, {DELTA:g})-DP, which is weaker\n{_NOT_PRIVATE}"
    )
    return figure


@styled
def messages(found: Eavesdropping, name: str) -> Figure:
    """Draw by round how far merging and noise move messages from the points, and points' size."""
    figure = Figure(figsize=(TWO_COLUMNS, 3.2))
    axes = figure.subplots()
    for values, label, style in (
        (found.merged, "what merging adds: y - (x + w)", "-"),
        (found.noise, "noise w, all that hides x", "--"),
        (found.length, "x", ":"),
    ):
        # Values of first rounds may be 0, which a logarithmic axis cannot show.
        axes.plot(np.where(values > _LEAST, values, np.nan), style, label=label)
    left = max(float(found.recovered.max()), _LEAST)
    axes.set(yscale="log", ylabel="root mean square")
    whole_rounds(axes)
    figure.legend(loc="outside lower center", ncols=3)
    figure.suptitle(
        f"The first tier hides nothing from anyone who knows eta: {name}\n"
        f"at most {left:.0e} is left of what merging adds"
    )
    return figure


@styled
def damping(found: Damping) -> Figure:
    """Draw the gaps of a counterexample to Theorem 2, and its remedy by damping."""
    figure = Figure(figsize=(ONE_COLUMN, 2.8))
    axes: Axes = figure.subplots()
    for sigma, gaps in zip(found.dampings, found.gaps, strict=True):
        label = f"damping = {sigma:g}" if sigma > 0 else "as printed"
        axes.plot(np.maximum(gaps, _LEAST), label=label, lw=1.4)
    axes.set(yscale="log", ylabel="gap (31), no noise")
    whole_rounds(axes)
    axes.legend(frameon=False)
    figure.suptitle(
        "Damping lets DPP2 converge: curvatures -1,\n-1 and 3, a strongly convex sum; "
        "no noise, no guarantee"
    )
    return figure
