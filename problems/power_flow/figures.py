"""Figures of a run: convergence, network and imbalance, flows, hours, imbalance per zone."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import networkx as nx
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import eigsh

import dpcvx as dp

from .. import pictures
from ..pictures import ONE_COLUMN, TWO_COLUMNS, styled
from .case import Case
from .relaxed import bus_angles
from .report import Outcome, objective_unit, thermal_loading
from .solution import State
from .study import PowerFlow
from .sweep import Cell

Floats = NDArray[np.float64]

_NETWORK = (TWO_COLUMNS, 5.6)  # inches
_TITLE = 36  # characters above a figure for one column
_EXACT_LAYOUT = 400
_CROWDED = 50
# Markers of zones, which differ in form too, so that they differ in grayscale.
_FORMS = "osDh8p"
# Area of a disc in square points per root of the load's share in percent. All figures use one
# scale, so that runs can be compared. The area follows the root, since shares differ by powers of
# ten.
_PER_ROOT = 260.0
_SHARES = (0.1, 1.0, 10.0)
_LEAST = 1e-16
# Smallest flow in per unit with a drawn direction, and largest loading in percent that counts as
# within the rating, because of the solver's accuracy.
_STILL, _FULL = 1e-4, 100.01
# Position on the color scale from which on letters are black.
_PALE = 0.6


def write_figures(
    study: PowerFlow,
    result: dp.Result,
    outcome: Outcome,
    folder: Path,
    *,
    states: Sequence[State] = (),
    totals: Mapping[str, Floats] | None = None,
    formats: Sequence[str] = ("png",),
    optimum: float | None = None,
    about: str = "",
) -> list[Path]:
    """Write all figures of a run; the figure of convergence only for more than one round.

    Parameters
    ----------
    study : PowerFlow
    result : dp.Result
        Result; with ``iterates=True``, the gap is drawn beside the residuals.
    outcome : Outcome
        Outcome for the true loads. It is not private, and figures that show it say so.
    folder : Path
        Folder of the files, created if missing.
    states : sequence of State
        Network state of every hour, for the figure of `flows`; without states it is not drawn.
    totals : mapping, optional
        Sums of every hour, see `schedule.hourly_totals`, for a figure of several hours.
    formats : sequence of {"png", "pdf", "svg"}
        File formats.
    optimum : float, optional
        Optimal value, in the unit of the objective.
    about : str
        Origin of the figures, for the metadata of the files.

    Returns
    -------
    list of Path
    """
    figures = {"network": network(study, outcome), "imbalance": zone_bars(study, outcome)}
    if states:
        figures["flows"] = flows(study, states)
    if totals is not None and study.hours > 1:
        figures["hours"] = hours(study, totals)
    if result.rounds > 1:
        figures["convergence"] = convergence(study, result, optimum)
    return pictures.write(figures, folder, formats, about)


@styled
def flows(study: PowerFlow, states: Sequence[State]) -> Figure:
    """Draw loading and direction of the flows on branches, and voltages of buses.

    The figure uses no loads, so it is post-processing of released values. For several hours it
    shows the hour with the largest loading.

    Parameters
    ----------
    study : PowerFlow
    states : sequence of State
        Network state of every hour.

    Returns
    -------
    Figure
        With ``model="dc"`` buses have the angles of their voltages.
    """
    case = study.case
    loadings = [thermal_loading(case, state) for state in states]
    peaks = [np.max(each, where=np.isfinite(each), initial=0.0) for each in loadings]
    hour = int(np.argmax(peaks))
    state, loading = states[hour], loadings[hour]
    place = _layout(_graph(case))
    points = np.array([place[at] for at in range(len(case.bus.id))])
    angles = study.setting.kind == "dc"
    values = bus_angles(case, state) if angles else np.sqrt(np.maximum(state.w, 0.0))
    crowded = case.bus.id.size > _CROWDED
    base, font = (95.0, 4.5) if crowded else (150.0, 7.0)

    figure = Figure(figsize=_NETWORK)
    axes = figure.subplots()
    share = np.where(np.isfinite(loading), loading, 0.0)
    start, end = points[case.branch.from_bus], points[case.branch.to_bus]
    width = np.clip(0.8 + share / 40, 0.8, 3.5)
    segments = list(np.stack((start, end), axis=1))
    # Pale colors need an edge on white paper.
    axes.add_collection(LineCollection(segments, colors="0.6", linewidths=width + 0.7, zorder=0.9))
    lines = LineCollection(
        segments, cmap="YlOrRd", norm=Normalize(0, 100), zorder=1,
        linewidths=width, array=share,
        linestyles=np.where(np.isfinite(loading), "solid", "dotted").tolist(),
    )  # fmt: skip
    axes.add_collection(lines)
    sense = np.where(state.pf >= state.pt, 1.0, -1.0)[:, None]
    middle, along = (start + end) / 2, sense * (end - start)
    moving = np.abs(state.pf - state.pt) > _STILL
    length = np.maximum(np.linalg.norm(along, axis=1), 1e-12)[:, None]
    axes.quiver(
        *middle[moving].T, *(along / length)[moving].T, angles="xy", pivot="mid", zorder=1.5,
        color="0.25", scale=90 if crowded else 60, width=0.003, headwidth=5, headlength=5,
        headaxislength=4.5,
    )  # fmt: skip
    spots = axes.scatter(
        *points.T, s=base, c=values, cmap="viridis", edgecolors="0.3", linewidths=0.6, zorder=2
    )
    texts = [str(int(bus)) for bus in case.bus.id]
    pale = np.asarray(spots.norm(values)) > _PALE
    for color, chosen in (("white", ~pale), ("black", pale)):
        labels = _fitting(place, texts, np.abs(values), font)
        shown = {at: text for at, text in labels.items() if chosen[at]}
        nx.draw_networkx_labels(
            _graph(case), place, shown, font_size=font, font_color=color, ax=axes
        )
    figure.colorbar(
        lines, ax=axes, label="loading of branches, % of the rating (dotted: no rating)", pad=0.01,
        shrink=0.9,
    )  # fmt: skip
    what = "angle of voltage, degrees" if angles else "voltage, p.u."
    figure.colorbar(spots, ax=axes, label=what, location="left", pad=0.01, shrink=0.9)
    when = f", hour {hour}" if len(states) > 1 else ""
    over = int(np.sum(share > _FULL))
    axes.set_title(
        f"{case.name}{when}: branches are loaded up to {peaks[hour]:.0f} %"
        + (f", {over} above their rating" if over else "")
        + "\narrows: direction of active power"
    )
    axes.axis("off")
    return figure


@styled
def hours(study: PowerFlow, totals: Mapping[str, Floats]) -> Figure:
    """Draw load, generation and storage of every hour, and in a second panel prices if any.

    The figure shows no true loads, so it is post-processing of released values.

    Parameters
    ----------
    study : PowerFlow
    totals : mapping
        Sums of every hour, see `schedule.hourly_totals`.

    Returns
    -------
    Figure
        The band of prices spans all buses; the line is their mean, weighted by loads.
    """
    priced = "price mean" in totals
    figure = Figure(figsize=(ONE_COLUMN, 3.9 if priced else 2.5))
    panels = figure.subplots(1 + priced, 1, sharex=True, squeeze=False)[:, 0]
    hours = np.arange(study.hours)
    axes = panels[0]
    moved = totals["storage"] + totals["flexible"]
    if study.setting.stores or study.setting.flexible:
        names = [
            name
            for name, places in (
                ("storage", study.setting.stores), ("flexible loads", study.setting.flexible),
            )
            if places
        ]  # fmt: skip
        axes.bar(hours, moved, color="0.75", label=" and ".join(names))
    axes.step(hours, totals["generation"], where="mid", ls="--", label="generation")
    axes.step(hours, totals["load"], where="mid", ls="-", label="served load")
    axes.set(ylabel="MW", title=study.case.name)
    axes.set_ylim(min(0.0, 1.1 * moved.min()), 1.35 * max(totals["load"].max(), 1e-9))
    axes.legend(loc="upper left", ncols=2)
    if priced:
        axes = panels[1]
        axes.fill_between(
            hours, totals["price low"], totals["price high"], step="mid", alpha=0.3, linewidth=0,
            label="all buses",
        )  # fmt: skip
        axes.step(hours, totals["price mean"], where="mid", label="mean")
        axes.set(ylabel="price, $/MWh")
        axes.legend()
    panels[-1].set_xlabel("hour")
    figure.align_ylabels(panels)
    return figure


@styled
def convergence(study: PowerFlow, result: dp.Result, optimum: float | None = None) -> Figure:
    """Draw residuals of released values, and in a second panel the gap of the true objective.

    Parameters
    ----------
    study : PowerFlow
    result : dp.Result
        Result of a run with ``iterates=True``; without iterates, the second panel is omitted.
    optimum : float, optional
        Optimal value; if omitted, the objective is drawn in place of the gap.

    Returns
    -------
    Figure
    """
    shown = bool(result.iterates)
    figure = Figure(figsize=(TWO_COLUMNS if shown else ONE_COLUMN, 2.7))
    panels = figure.subplots(1, 1 + shown, squeeze=False)[0]
    history = result.history
    t = history.rounds
    panels[0].plot(t, history.primal, label=r"primal  $\|w - z\|$")
    panels[0].plot(t, history.dual, label=r"dual  $\rho\,\|w - w_{\mathrm{prev}}\|$")
    panels[0].set(ylabel="residual of released values", title="from releases alone")
    if shown:
        _gaps(panels[1], study, result, optimum)
    for axes in panels:
        if any((np.asarray(line.get_ydata()) > 0).any() for line in axes.lines):
            axes.set_yscale("log")
        pictures.whole_rounds(axes)
        axes.legend()
    title = f"{study.case.name}: {result.guarantee.headline}"
    figure.suptitle("\n".join(textwrap.wrap(title, 100 if shown else 52)))
    return figure


def _gaps(axes: Axes, study: PowerFlow, result: dp.Result, optimum: float | None) -> None:
    unit, factor = objective_unit(study)
    best = 0.0 if optimum is None else optimum
    rounds = np.arange(1, len(result.iterates) + 1)
    for name, solutions in (
        ("last_iterate", [iterate.last for iterate in result.iterates]),
        ("average so far", [iterate.average for iterate in result.iterates]),
    ):
        values = [dp.not_private.objective(study.problem, point) / factor for point in solutions]
        # Zones that disagree can have an objective below the optimum: draw the absolute gap.
        gap = np.abs(np.array(values) - best)
        axes.plot(rounds, np.maximum(gap, _LEAST), label=name)
    what = "objective" if optimum is None else "gap to the relaxation's optimum"
    axes.set(ylabel=f"{what}, {unit}", title="computed from the true loads: not private")


@styled
def network(study: PowerFlow, outcome: Outcome) -> Figure:
    """Draw buses by zone, each with a disc that grows with its imbalance, and bold tie lines.

    Discs have the same scale in all figures: the legend shows which share of the network's load
    they stand for.

    Parameters
    ----------
    study : PowerFlow
    outcome : Outcome

    Returns
    -------
    Figure
    """
    case, zones = study.case, study.zones
    graph = _graph(case)
    place = _layout(graph)
    ties = {
        frozenset((int(case.branch.from_bus[k]), int(case.branch.to_bus[k]))) for k in zones.ties
    }
    inside = [edge for edge in graph.edges if frozenset(edge) not in ties]
    between = [edge for edge in graph.edges if frozenset(edge) in ties]
    size = np.array([np.hypot(*outcome.imbalance[int(bus)]) for bus in case.bus.id])
    share = 100 * size / outcome.load
    colors = rcParams["axes.prop_cycle"].by_key()["color"]
    crowded = case.bus.id.size > _CROWDED
    base, font = (46.0, 5.0) if crowded else (150.0, 7.0)

    figure = Figure(figsize=_NETWORK)
    axes = figure.subplots()
    nx.draw_networkx_edges(graph, place, edgelist=inside, ax=axes, edge_color="0.65")
    nx.draw_networkx_edges(graph, place, edgelist=between, ax=axes, edge_color="0.2", width=2.5)
    points = np.array([place[at] for at in range(len(graph))])
    axes.scatter(
        *points.T, s=_area(share, base), facecolors="0.8", edgecolors="0.4", linewidths=0.6,
        zorder=1.5,
    )  # fmt: skip
    for zone, buses in enumerate(zones.buses):
        axes.scatter(
            *points[buses].T, s=base, marker=_FORMS[zone % len(_FORMS)], facecolors="white",
            edgecolors=colors[zone % len(colors)], linewidths=0.9 if crowded else 1.6, zorder=2,
            label=f"zone {zones.names[zone]}",
        )  # fmt: skip
    labels = _fitting(place, [str(int(bus)) for bus in case.bus.id], size, font)
    nx.draw_networkx_labels(graph, place, labels, font_size=font, ax=axes)
    handles = [
        *axes.get_legend_handles_labels()[0],
        Line2D([], [], color="0.2", linewidth=2.5, label="tie line"),
    ]
    figure.legend(handles=handles, loc="outside right upper", labelspacing=1.2)
    scale = [
        Line2D(
            [], [], linestyle="", marker="o", markersize=float(np.sqrt(_area(part, base))),
            markerfacecolor="0.8", markeredgecolor="0.4", label=f"{part:g} %",
        )
        for part in _SHARES
    ]  # fmt: skip
    figure.legend(
        handles=scale, loc="outside right lower", title="imbalance, of\nthe whole load",
        labelspacing=3.4, handletextpad=1.8, borderpad=1.6,
    )  # fmt: skip
    worst = int(np.argmax(share))
    unit = "MVA" if study.model.quantities > 1 else "MW"
    axes.set_title(
        f"{case.name}: at most {share[worst]:.2g} % of the load is the imbalance at a bus "
        f"({size[worst]:.3g} {unit} at bus {int(case.bus.id[worst])})\n"
        f"computed from the true loads: not private; {outcome.short}"
    )
    axes.axis("off")
    return figure


def _graph(case: Case) -> nx.Graph:
    """Return the graph of bus positions, with an edge for each pair that a branch joins."""
    graph = nx.Graph()
    graph.add_nodes_from(range(case.bus.id.size))
    graph.add_edges_from(zip(case.pairs.first.tolist(), case.pairs.second.tolist(), strict=True))
    return graph


def _few(value: float) -> str:
    """Return a number as text with two significant digits, or rounded to an integer from 10 on."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _area(percent: Floats | float, base: float) -> Floats | float:
    """Return the area of a disc in square points, around a bus of area `base`."""
    return base + _PER_ROOT * np.sqrt(percent)


def _layout(graph: nx.Graph) -> dict[int, Floats]:
    """Return positions with distances that follow hops; classical scaling for large networks."""
    count = len(graph)
    if count <= _EXACT_LAYOUT:
        return nx.kamada_kawai_layout(graph)
    adjacency = nx.to_scipy_sparse_array(graph, nodelist=range(count))
    hops = shortest_path(adjacency, unweighted=True)
    hops[np.isinf(hops)] = np.max(hops, where=np.isfinite(hops), initial=0.0) + 2
    squared = hops**2
    centered = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    sizes, axes = eigsh(-centered / 2, k=2, which="LA", v0=np.ones(count) + np.arange(count))
    return dict(enumerate(axes * np.sqrt(np.maximum(sizes, 0.0))))


def _fitting(
    place: dict[int, Floats], texts: list[str], weight: Floats, font: float
) -> dict[int, str]:
    """Return labels that do not overlap; of overlapping labels, keep those of largest weight."""
    points = np.array([place[at] for at in range(len(texts))])
    span = np.maximum(np.ptp(points, axis=0), 1e-12)
    # Roughly the drawing area in typographic points.
    points = (points - points.min(axis=0)) / span * (65 * np.array(_NETWORK))
    half = np.array([[0.36 * font * len(text), 0.6 * font] for text in texts])
    kept: list[int] = []
    for at in np.argsort(-weight, kind="stable").tolist():
        apart = np.abs(points[kept] - points[at]) >= half[kept] + half[at]
        if apart.any(axis=1).all():
            kept.append(at)
    return {at: texts[at] for at in sorted(kept)}


@styled
def zone_bars(study: PowerFlow, outcome: Outcome) -> Figure:
    """Draw the absolute imbalance of each zone in % of the network's load, by kind of power."""
    figure = Figure(figsize=(ONE_COLUMN, 3.2))
    axes = figure.subplots()
    at = np.arange(len(outcome.zones))
    both = study.model.quantities > 1
    parts = [("active", "MW", [zone.active for zone in outcome.zones], "")]
    if both:
        parts.append(("reactive", "MVAr", [zone.reactive for zone in outcome.zones], "///"))
    for side, (name, unit, values, hatch) in enumerate(parts):
        bars = axes.bar(
            at + (0.4 * side - 0.2 if both else 0.0), 100 * np.array(values) / outcome.load, 0.4,
            hatch=hatch, edgecolor="white", label=f"{name}, {_few(sum(values))} {unit} in all",
        )  # fmt: skip
        axes.bar_label(bars, [_few(value) for value in values], fontsize=6, padding=1)
    axes.set_xticks(at, [zone.name for zone in outcome.zones])
    share = "% of the load, active and reactive" if both else "% of the load"
    axes.set(
        ylabel=f"sum of absolute imbalance,\n{share}",
        title=f"above bars: {' and '.join(unit for _, unit, *_ in parts)}\n"
        f"computed from the true loads: not private\n{textwrap.fill(outcome.short, _TITLE)}",
    )
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.12)
    # The legend is below the axes, since it would cover bars inside.
    figure.legend(loc="outside lower center")
    return figure


@styled
def sweep_figure(cells: Sequence[Cell]) -> Figure:
    """Draw gaps against the first numeric option: a panel per network, a line per other setting.

    Parameters
    ----------
    cells : sequence of Cell

    Returns
    -------
    Figure
    """
    names = [name for name, _ in cells[0].setting if name != "case"]
    across = next((name for name in names if all(map(_is_number, _values(cells, name)))), "case")
    panels: dict[str, list[Cell]] = {}
    for cell in cells:
        case = dict(cell.setting).get("case", "") if across != "case" else ""
        panels.setdefault(case, []).append(cell)
    figure = Figure(figsize=(TWO_COLUMNS if len(panels) > 1 else 5.0, 3.2))
    drawn = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (case, own) in zip(drawn, panels.items(), strict=True):
        _sweep_panel(axes, own, across)
        axes.set_title(f"case {case}" if case else "")
        axes.set_xlabel("total epsilon" if across == "epsilon" else across)
    drawn[0].set_ylabel(f"gap to the optimum of all data,\n{cells[0].unit}")
    handles = [
        *drawn[0].get_legend_handles_labels()[0],
        Line2D([], [], color="0.45", ls=":", lw=1, label="the same without noise"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.suptitle(
        f"median and quartiles over {len(cells[0].objectives)} seeds\n"
        "computed from the true loads: not private"
    )
    return figure


def _sweep_panel(axes: Axes, cells: Sequence[Cell], across: str) -> None:
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        rest = [
            f"{name} {value}"
            for name, value in cell.setting
            if name not in (across, "case") and len(_values(cells, name)) > 1
        ]
        lines.setdefault(", ".join(rest) or "private", []).append(cell)
    texts = list(_values(cells, across))
    numbers = all(map(_is_number, texts))
    # Gaps may be negative: serving released loads may cost less than serving the true ones.
    quartiles = [np.quantile(np.array(c.objectives) - c.optimum, (0.25, 0.5, 0.75)) for c in cells]
    below = np.min(quartiles) < -1e-6 * max(1.0, abs(cells[0].optimum))
    least = -np.inf if below else _LEAST
    for label, own in lines.items():
        at = [float(dict(c.setting)[across]) if numbers else texts.index(dict(c.setting)[across])
              for c in own]  # fmt: skip
        gaps = [np.array(cell.objectives) - cell.optimum for cell in own]
        low, middle, high = np.maximum(np.quantile(gaps, (0.25, 0.5, 0.75), axis=1), least)
        (line,) = axes.plot(at, middle, marker="o", label=label)
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    positive = [y for line in axes.lines for y in np.asarray(line.get_ydata()) if y > _LEAST]
    floor = -np.inf if below else min(positive, default=_LEAST) / 10
    start = cells[0].start - cells[0].optimum
    if np.isfinite(start):
        axes.axhline(start, color="0.45", ls="--", lw=1, label="no data")
    for line, own in zip(list(axes.lines), lines.values(), strict=False):
        silent = np.array([cell.noiseless - cell.optimum for cell in own])
        axes.plot(line.get_xdata(), np.maximum(silent, floor), ":", lw=1, color=line.get_color())
    axes.set_yscale("linear" if below else "log")
    if numbers:
        axes.set_xscale("log")
        axes.set_xticks([float(text) for text in texts], texts)
        axes.minorticks_off()
    else:
        axes.set_xticks(range(len(texts)), texts)


def _values(cells: Sequence[Cell], name: str) -> dict[str, None]:
    return dict.fromkeys(dict(cell.setting)[name] for cell in cells)


def _is_number(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
