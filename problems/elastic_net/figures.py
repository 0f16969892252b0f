"""Figures: the paper's Figure 1, epsilons, and Theorem 9.1. Gaps in them are not private."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..pictures import BLUE, GREEN, ORANGE, PINK, RED, SKY, TWO_COLUMNS, styled
from .privacy import Growth, Positions
from .simulation import Gaps
from .utility import Utility

Floats = NDArray[np.float64]

# Smallest epsilon on an axis.
_LEAST = 1e-3
_NOT_PRIVATE = "computed on the users' data in the open: not private"


@styled
def convergence(pairs: Mapping[str, Gaps], noises: Mapping[str, Gaps], title: str) -> Figure:
    """Draw Figure 1: mean gaps against the iteration, with the middle 80 % of repetitions.

    Parameters
    ----------
    pairs : mapping of label to Gaps
        Gaps in panel (a), by pair of mu and beta.
    noises : mapping of label to Gaps
        Gaps in panel (b), by noise level.
    title : str
    """
    figure = Figure(figsize=(TWO_COLUMNS, 3.9))
    left, right = figure.subplots(1, 2)
    for axes, found in ((left, pairs), (right, noises)):
        for (color, line), (label, gaps) in zip(_looks(len(found)), found.items(), strict=True):
            _band(axes, np.arange(len(gaps.at_x)), gaps.at_x, color, label, line)
        axes.set(xlabel="iteration t", yscale="log")
        _legend_below(axes, 1 if axes is left else 2)
    left.set(title="(a) pairs of mu and beta", xlim=(0, min(40, left.get_xlim()[1])))
    left.set_ylabel("f(x_t) + g(x_t) - optimum")
    right.set(title="(b) noise")
    figure.suptitle(f"{title}\n{_NOT_PRIVATE}")
    return figure


@styled
def privacy(positions: Positions, growth: Growth, title: str) -> Figure:
    """Draw epsilon by position of the user, and against the number of iterations."""
    figure = Figure(figsize=(TWO_COLUMNS, 4.6))
    left, right = figure.subplots(1, 2, sharey=True)
    at = positions.positions + 1
    left.axhline(positions.visible, color="k", label="every iterate visible")
    left.plot(at, positions.last_only, color=BLUE, label="last iterate only")
    left.plot(at, positions.certified, color=SKY, label="last iterate only, with a certificate")
    left.plot(at, positions.printed, "--", color=BLUE, lw=1, label="the same by Corollary 6.2")
    for value, name, style, color in (
        (positions.permuted, "random permutation", "-.", GREEN),
        (positions.stopped, "random stopping", ":", ORANGE),
        (positions.sampled, "sampling with replacement", "--", PINK),
    ):
        if value < np.inf:
            left.axhline(value, ls=style, color=color, label=f"{name}, last iterate only")
    left.plot(at, positions.claimed, ":", color=RED, lw=1.2, label="Corollary 7.3: does not apply")
    left.set(xlabel="position of the user", title=f"one pass over {at.max()} users")
    left.set_ylabel("epsilon at delta = 1e-6")
    right.plot(growth.iterations, growth.visible, color="k", label="every iterate visible")
    for color, (k, values) in zip((BLUE, SKY, "0.5"), growth.last_only.items(), strict=False):
        # Before their turn users lose nothing.
        label = f"user {k + 1}, last iterate only"
        right.plot(
            growth.iterations, np.where(values > 0, values, np.nan), color=color, label=label
        )
    label = "random permutation, last iterate only"
    right.plot(growth.iterations, growth.permuted, "-.", color=GREEN, label=label)
    right.set(xlabel="iterations", title="against the number of iterations")
    top = 3 * max(positions.visible, float(growth.visible.max()))
    # With a certificate, epsilon is 0 far from the end, which a logarithmic axis does not show.
    least = max(_LEAST, float(positions.certified.min()) / 3)
    left.set(yscale="log", ylim=(least, top))
    for axes in (left, right):
        _legend_below(axes, 1)
    figure.suptitle(
        f"Early users gain from later noise, random orders gain little: {title}\n"
        "last iterate only: of an observer who learns no other, "
        "as plans with observer='last_iterate' guarantee"
    )
    return figure


@styled
def bound(found: Mapping[str, Utility], title: str) -> Figure:
    """Draw Theorem 9.1's bound and the measured quantity that it bounds."""
    figure = Figure(figsize=(TWO_COLUMNS, 3.0))
    axes = figure.subplots()
    for (color, _), (label, each) in zip(_looks(len(found)), found.items(), strict=True):
        T = np.array(each.iterations)
        axes.plot(T, each.bound, "--", color=color, label=f"bound, {label}")
        _band(axes, T, each.measured, color, f"measured, {label}", "-")
    axes.set(xscale="log", yscale="log", xlabel="iterations T, eta = 1/sqrt(T)")
    axes.set_ylabel("left side of (26)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    axes.set_title(f"{title}\n{_NOT_PRIVATE}")
    return figure


def _legend_below(axes: Axes, columns: int) -> None:
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=columns)


def _band(
    axes: Axes, at: NDArray[np.int64], values: Floats, color: str, label: str, line: str
) -> None:
    axes.plot(at, values.mean(axis=1), ls=line, color=color, label=label)
    if values.shape[1] > 1:
        low, high = np.quantile(values, (0.1, 0.9), axis=1)
        axes.fill_between(at, low, high, color=color, alpha=0.18, linewidth=0)


def _looks(count: int) -> list[tuple[str, str]]:
    """Return colors and line styles of the current style, one pair for each curve."""
    return [
        (each["color"], each["linestyle"]) for each in islice(rcParams["axes.prop_cycle"](), count)
    ]
