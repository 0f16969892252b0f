"""Figures: runs at one total, kinds of noise, ex-post losses, and the paper's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from ..pictures import BLUE, GREEN, PINK, RED, SKY, TWO_COLUMNS, legend_below, styled, whole_rounds
from .amplifications import SHIFT, Surface
from .comparators import Row
from .experiment import Traces, spread
from .methods import DELTA, Budget
from .printed import Trace as Printed
from .rates import METHODS, Coupled, Medians

Floats = NDArray[np.float64]

_NOT_PRIVATE = "computed on the records in the open: not private"
_NO_GUARANTEE = "ex-post: depends on outputs and data, NO GUARANTEE"
# Styles by name, so that a method looks the same in all figures. Okabe and Ito's colors.
_STYLES = {
    "Algorithm 1": ("#0072B2", "-"),
    "Algorithm 1, fixed weights": ("#000000", ":"),
    "Algorithm 1, exact steps": ("#CC79A7", "-"),
    "Conventional ADMM (exact, fixed)": ("#56B4E9", "--"),
    "Dual perturbation (fixed weights)": ("#000000", ":"),
    "Penalty perturbation (growing D)": ("#D55E00", "-."),
    "Output perturbation (exact steps)": ("#009E73", "--"),
    "Algorithm 2": ("#D55E00", "-"),
    "Algorithm 2, fixed weights": ("#E69F00", "--"),
    "Algorithm 2*": ("#009E73", "-"),
    "Appendix J": ("#CC79A7", "-."),
    "Random coordinates": ("#0072B2", "--"),
    "Huang, Mitra and Vaidya": ("#000000", ":"),
    "Fixed weights": ("#000000", ":"),
    "Growing penalties": ("#D55E00", "-."),
    "Huang et al.": ("#E69F00", "--"),
}
# Color and marker of each kind of noise.
_KINDS = {"Laplace": ("#0072B2", "o"), "Gaussian": ("#D55E00", "s")}


@styled
def comparison(
    columns: Mapping[str, Sequence[Traces]], title: str, silent: Mapping[str, Traces] | None = None
) -> Figure:
    """Draw distance and objective gap against the round, with bands over runs.

    Parameters
    ----------
    columns : mapping of str to sequence of Traces
        Runs of all methods by the title of the column, a network and budget.
    title : str
        Title of the figure.
    silent : mapping of str to Traces, optional
        For each column, runs of one method without noise on the same network.
    """
    without = silent or {}
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.4 * len(columns)), 5.4))
    panels = figure.subplots(2, len(columns), sharey="row", sharex="col", squeeze=False)
    for axes, (name, found) in zip(panels.T, columns.items(), strict=True):
        for traces in found:
            _band(axes[0], traces.method.name, traces.distances)
            _band(axes[1], traces.method.name, traces.gaps)
        if name in without:
            own, count = without[name], found[0].gaps.shape[1]
            label = f"{own.method.name}, no noise"
            for panel, values in zip(axes, (own.distances, own.gaps), strict=True):
                mean = np.maximum(values.mean(axis=0)[:count], 1e-16)
                panel.plot(mean, ":", color="0.5", lw=1.2, label=label)
        axes[1].axhline(1, color="0.5", lw=0.8, ls="--")
        axes[1].annotate("no data: the public start", (1, 1), (-2, 2), ha="right", color="0.4",
            xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=7)  # fmt: skip
        total = found[0].guarantee
        axes[0].set_title(
            f"{name}\nevery curve: ({total.epsilon:.4g}, {total.delta:g})-DP in total"
        )
        axes[1].set_xlabel("round k")
        for each in axes:
            each.set_yscale("log")
            each.xaxis.get_major_locator().set_params(integer=True)
    rows = ("mean of |x_i - x*| / d", "gap at the agents' mean,\n1 at the public start")
    for row, label in zip(panels[:, 0], rows, strict=True):
        row.set_ylabel(label)
    legend_below(figure, [panels[0, 0]], 3)
    figure.suptitle(f"{title}\nbands: least to largest over the runs; {_NOT_PRIVATE}")
    return figure


@styled
def noises(
    kinds: Sequence[tuple[Budget, Sequence[Traces]]], title: str, silent: Traces | None = None
) -> Figure:
    """Draw every method's gap after the last round by the kind of noise, at one total.

    Parameters
    ----------
    kinds : sequence of (Budget, sequence of Traces)
        Runs of the same methods with each kind of noise, at the same total.
    title : str
        Title of the figure.
    silent : Traces, optional
        Runs of one method without noise on the same network, for as many rounds.
    """
    names = [traces.method.name for traces in kinds[0][1]]
    figure = Figure(figsize=(TWO_COLUMNS, 1.5 + 0.24 * len(names)))
    panels = figure.subplots(1, 2, sharey=True)
    width = 0.7 / len(kinds)
    for k, (budget, found) in enumerate(kinds):
        color, marker = _KINDS[budget.noise]
        at = np.arange(len(names)) + (k - (len(kinds) - 1) / 2) * width
        falls = budget.decay < 1
        label = budget.noise + (f", falling by {1 / budget.decay:g}" if falls else ", constant")
        last = np.array([traces.gaps[:, -1] for traces in found])
        whole = np.array([traces.averages for traces in found])
        for axes, values in zip(panels, (last, whole), strict=True):
            mean = values.mean(axis=1)
            ends = [mean - values.min(axis=1), values.max(axis=1) - mean]
            axes.errorbar(
                mean, at, xerr=ends, fmt=marker, color=color, label=label, ms=5, lw=1,
                mfc="white" if falls else color,
            )  # fmt: skip
    total = kinds[0][1][0].guarantee
    for axes, name in zip(panels, ("the last round", "the mean over all rounds"), strict=True):
        axes.axvline(1, color="0.5", lw=0.8, ls="--", label="no data: the public start")
        if silent is not None:
            values = silent.gaps[:, -1] if axes is panels[0] else silent.averages
            label = f"no noise: {silent.method.name}"
            axes.axvline(values.mean(), color="0.5", lw=0.8, ls=":", label=label)
        axes.set(xscale="log", xlabel="gap, 1 at the public start", title=f"at {name}")
        axes.grid(visible=False, axis="y")
        for line in np.arange(1, len(names)) - 0.5:
            axes.axhline(line, color="0.85", lw=0.6)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    legend_below(figure, [panels[0]], 3)
    figure.suptitle(
        f"{title}: every point ({total.epsilon:.4g}, {total.delta:g})-DP in total\n"
        f"lines: least to largest over the runs; gaps of the agents' mean, {_NOT_PRIVATE}"
    )
    return figure


@styled
def exposures(columns: Mapping[str, Sequence[Traces]], title: str) -> Figure:
    """Draw ex-post losses over alpha beta B by round: means over agents and coordinates.

    Parameters
    ----------
    columns : mapping of str to sequence of Traces
        Runs by the title of the column. Methods without random weights are left out.
    title : str
        Title of the figure.
    """
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.4 * len(columns)), 3.6))
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, (name, found) in zip(panels, columns.items(), strict=True):
        for traces in found:
            own = traces.exposures
            if own:
                label = traces.method.name
                color, _ = _STYLES[label]
                _band(axes, f"{label}, at the outputs", [e.observed for e in own], 1, label)
                mean, _, _ = spread([e.expected for e in own])
                axes.plot(
                    own[0].rounds, mean, "o", ms=4, mfc="none", color=color,
                    label=f"{label}, expected (gamma)",
                )  # fmt: skip
        axes.axhline(1, color="0.5", lw=0.8)
        axes.set(title=name, xlabel="round k", ylim=(0, 1.05))
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set_ylabel("loss over alpha beta B")
    legend_below(figure, [panels[0]], 3)
    figure.suptitle(f"Random weights lower a loss, and no guarantee\n{title}\n{_NO_GUARANTEE}")
    return figure


@styled
def printed_noise(panels: Mapping[str, Mapping[str, Sequence[Printed]]]) -> Figure:
    """Draw the accuracy panels of Figures 2, B and C: distances from the optimum, with epsilons.

    `problems.papers` draws them with their privacy panels.

    Parameters
    ----------
    panels : mapping of str to mapping of str to sequence of printed.Trace
        For each figure, runs by the name of the curve.
    """
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.9 * len(panels)), 3.4))
    for axes, (name, curves) in zip(
        figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels.items(), strict=True
    ):
        for label, runs in curves.items():
            values = [run.distance.mean(axis=1) for run in runs]
            _band(axes, f"{label}: epsilon {runs[0].spent:.2g} in total", values, style=label)
        start = float(next(iter(curves.values()))[0].distance[0].mean())
        axes.axhline(start, color="0.5", lw=0.8, ls="--", label="no data: the public start")
        axes.set(yscale="log", title=name, xlabel="round k")
        axes.legend(loc=(0.12, 0.07))
    figure.axes[0].set_ylabel("mean of |x_i - x*| / d")
    figure.suptitle(
        "Accuracy panels, noise of rate 1.02^k: curves fall as their noise does, and end farther\n"
        f"from the optimum than 0 is; {_NOT_PRIVATE}"
    )
    return figure


@styled
def surfaces(found: Surface) -> Figure:
    """Draw Figure 1: gamma, the claimed bound (11), and the points where (11) is below gamma."""
    figure = Figure(figsize=(TWO_COLUMNS, 3.1))
    panels = figure.subplots(1, 3, sharey=True)
    both = np.array([found.exact, found.claimed])
    levels = np.arange(np.floor(both.min() * 20), np.ceil(both.max() * 20) + 1) / 20
    drawn = None
    for axes, values, name in zip(
        panels, both, ("exact gamma", "what the paper's (11) claims"), strict=False
    ):
        drawn = axes.contourf(found.omega, found.beta, values, levels, cmap="viridis")
        axes.set_title(name)
    assert drawn is not None
    panels[1].contourf(
        found.omega, found.beta, found.short, [0.5, 1.5], colors="none", hatches=["//"]
    )
    mark = Patch(facecolor="none", edgecolor="k", hatch="//", label="claim smaller than gamma")
    figure.legend(handles=[mark], loc="outside lower center")
    figure.colorbar(drawn, ax=panels[:2], label="gamma", format="%.2f")
    apart = 1000 * (found.claimed - found.exact)
    reach = np.ceil(np.abs(apart).max())
    shown = panels[2].contourf(
        found.omega, found.beta, apart, np.linspace(-reach, reach, 25), cmap="RdBu"
    )
    panels[2].contour(found.omega, found.beta, apart, [0.0], colors="k", linewidths=1.2)
    panels[2].set_title("claim minus gamma (red: too small)")
    figure.colorbar(
        shown,
        ax=panels[2],
        label="difference, in thousandths",
        format="%.0f",
        ticks=np.arange(-reach, reach + 1),
    )
    for axes in panels:
        axes.set_xlabel("omega, length of the interval")
    panels[0].set_ylabel("beta, rate of the noise")
    figure.suptitle(
        f"Figure 1: (11) is no bound of the expected loss over alpha beta B, alpha B = {SHIFT:g}\n"
        f"{_NO_GUARANTEE}"
    )
    return figure


@styled
def noiseless(columns: Mapping[str, Sequence[Traces]], title: str) -> Figure:
    """Draw Figure D: distances without noise, for random weights beside fixed ones."""
    figure = Figure(figsize=(max(TWO_COLUMNS, 2.4 * len(columns)), 3.4))
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, (name, found) in zip(panels, columns.items(), strict=True):
        for traces in found:
            _band(axes, traces.method.name, traces.distances)
        axes.set(title=name, xlabel="round k", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set_ylabel("mean of |x_i - x*| / d")
    legend_below(figure, [panels[0]], 2)
    figure.suptitle(f"{title}\nno noise, no guarantee; {_NOT_PRIVATE}")
    return figure


@styled
def perturbations(rows: Sequence[Row], title: str) -> Figure:
    """Draw gaps against the round of exact steps beside first-order steps, at one total.

    Parameters
    ----------
    rows : sequence of Row
        Runs of each method.
    title : str
        Title of the figure.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 4.0))
    axes = figure.subplots()
    colors = {"Dual": BLUE, "Penalty": RED, "Output": GREEN, "DP-ADMM,": PINK}
    for row in rows:
        color = colors[row.name.split()[0]]
        line = ":" if "paper" in row.name else "--" if "first" in row.name else "-"
        mean, low, high = spread(row.gaps)
        axes.plot(mean, line, color=color, label=row.name)
        axes.fill_between(np.arange(mean.size), low, high, color=color, alpha=0.1, linewidth=0)
    axes.axhline(1, color="0.5", lw=0.8, ls="--", label="no data: the public start")
    axes.set(yscale="log", ylabel="gap at the agents' mean,\n1 at the public start")
    whole_rounds(axes)
    legend_below(figure, [axes], 2)
    most = max(row.epsilon for row in rows)
    figure.suptitle(
        f"Exact steps next to those of first order: {title}\n"
        f"every curve: ({most:.4g}, {DELTA:g})-DP in total; {_NOT_PRIVATE}"
    )
    return figure


@styled
def rates(coupled: Coupled, medians: Medians, runs: int = 20) -> Figure:
    """Draw convergence bounds beside runs: (42) and (47) without noise, Theorems 3.3, 3.4 with it.

    Parameters
    ----------
    coupled : Coupled
        Problem of (42), (47) and Theorem 3.3.
    medians : Medians
        Problem of Theorem 3.4.
    runs : int
        Number of runs with noise that are averaged.
    """
    figure = Figure(figsize=(TWO_COLUMNS, 3.2))
    left, middle, right = figure.subplots(1, 3)
    for (name, method), color in zip(METHODS.items(), ("#0072B2", "#D55E00"), strict=True):
        V = coupled.distances(method, 100)
        p = coupled.rate(method)
        left.semilogy(np.where(V > 1e-12 * V[0], V / V[0], np.nan), color=color, label=name)
        left.semilogy((1 + p) ** -np.arange(101.0), ":", color=color, label=f"p = {p:.2g}")
    left.set(title="(42), (47), no noise", xlabel="round", ylabel="squared distance, 1 at start")
    method, size = METHODS["linearized steps"], (2000, *coupled.t.shape)
    for scale, color in ((0.1, SKY), (1.0, RED)):
        drawn = [np.random.default_rng(k).laplace(scale=scale, size=size) for k in range(runs)]
        V = np.mean([coupled.distances(method, 2000, noise=own) for own in drawn], axis=0)
        expected = np.full(size[:2], 2 * size[2] * scale**2)
        bound = coupled.promised(method, expected)
        middle.semilogy(V / V[0], color=color, label=f"mean of {runs} runs, scale {scale:g}")
        middle.semilogy(bound / V[0], ":", color=color, label="proved")
    middle.set(title="Theorem 3.3, Laplace noise", xlabel="round")
    K = np.unique(np.geomspace(1, 2000, 40).astype(np.int64))
    gaps = np.mean([medians.run(2000, seed) for seed in range(runs)], axis=0)[K - 1]
    proved = np.mean([medians.bound(K, seed) for seed in range(runs)], axis=0)
    right.loglog(K, gaps, color="#0072B2", label=f"mean of {runs} runs")
    right.loglog(K, proved, ":", color="#0072B2", label="proved")
    right.set(title="Theorem 3.4, Algorithm 2", xlabel="round", ylabel="gap of the mean point")
    left.legend(fontsize=6, loc="lower left")
    middle.legend(fontsize=6, loc=(0.2, 0.4))
    right.legend(fontsize=6, loc=(0.35, 0.5))
    figure.suptitle("Corrected, the theorems hold, and promise far less than what happens")
    return figure


def _band(
    axes: Axes,
    label: str,
    values: Floats | Sequence[Floats],
    first: int = 0,
    style: str | None = None,
) -> None:
    # A gap may be 0 by rounding, which a logarithmic axis cannot show.
    mean, low, high = (np.maximum(v, 1e-16) for v in spread(values))
    color, line = _STYLES[style or label]
    at = first + np.arange(mean.size)
    axes.plot(at, mean, line, color=color, label=label)
    axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
