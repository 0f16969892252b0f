"""Figures of a run: convergence, and the network with what does not balance."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import eigsh

import dpcvx as dp
from problems import pictures
from problems.power_flow.report import Outcome
from problems.power_flow.study import PowerFlow

Floats = NDArray[np.float64]

_NETWORK = (8, 7)  # inches
_EXACT_LAYOUT = 400


def write_figures(
    study: PowerFlow, result: dp.Result, outcome: Outcome, folder: Path
) -> list[Path]:
    """Write all figures of a run as PNG files; that of convergence if there was more than a round.

    Parameters
    ----------
    study : PowerFlow
    result : dp.Result
    outcome : Outcome
        Not private; figures that show it say so.
    folder : Path
        Created if missing.

    Returns
    -------
    list of Path
    """
    figures = {"network.png": network(study, outcome), "imbalance.png": zone_bars(outcome)}
    if result.rounds > 1:
        figures["convergence.png"] = result.plot()
    return pictures.write(figures, folder)


def network(study: PowerFlow, outcome: Outcome) -> Figure:
    """Buses coloured by zone, sized by imbalance; tie lines drawn heavily."""
    case, zones = study.case, study.zones
    graph = nx.Graph()
    graph.add_nodes_from(range(case.bus.id.size))
    graph.add_edges_from(zip(case.pairs.first.tolist(), case.pairs.second.tolist(), strict=True))
    place = _layout(graph)
    ties = {
        frozenset((int(case.branch.from_bus[k]), int(case.branch.to_bus[k]))) for k in zones.ties
    }
    inside = [edge for edge in graph.edges if frozenset(edge) not in ties]
    between = [edge for edge in graph.edges if frozenset(edge) in ties]
    size = np.array([np.hypot(*outcome.imbalance[int(bus)]) for bus in case.bus.id])
    palette = colormaps["Set2"].colors  # pyright: ignore[reportAttributeAccessIssue]

    figure = Figure(figsize=_NETWORK, layout="constrained")
    axes = figure.subplots()
    nx.draw_networkx_edges(graph, place, edgelist=inside, ax=axes, edge_color="0.65")
    nx.draw_networkx_edges(graph, place, edgelist=between, ax=axes, edge_color="crimson", width=2.5)
    largest = max(float(size.max()), 1e-12)
    crowded = case.bus.id.size > 50
    base, growth = (30, 300) if crowded else (220, 900)
    for zone, buses in enumerate(zones.buses):
        nx.draw_networkx_nodes(
            graph,
            place,
            nodelist=buses.tolist(),
            node_color=[palette[zone % len(palette)]],
            node_size=[float(base + growth * size[b] / largest) for b in buses],
            edgecolors="0.3",
            linewidths=0.6,
            ax=axes,
            label=f"zone {zones.names[zone]}",
        )
    font = 5 if crowded else 9
    labels = _fitting(place, [str(int(bus)) for bus in case.bus.id], size, font)
    nx.draw_networkx_labels(graph, place, labels, font_size=font, ax=axes)
    axes.plot([], [], color="crimson", linewidth=2.5, label="tie line")
    axes.set_title(
        f"{case.name}: imbalance up to {largest:.3g} MVA (area of the bus)\n"
        "computed from the true loads: not private"
    )
    # One size of marker in the legend, whatever the imbalance of a zone's first bus.
    for handle in axes.legend(loc="best", frameon=False).legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([80])  # pyright: ignore[reportAttributeAccessIssue]
    axes.axis("off")
    return figure


def _layout(graph: nx.Graph) -> dict[int, Floats]:
    """Positions whose distances follow the hops; for large networks by classical scaling."""
    count = len(graph)
    if count <= _EXACT_LAYOUT:
        return nx.kamada_kawai_layout(graph)
    adjacency = nx.to_scipy_sparse_array(graph, nodelist=range(count))
    hops = shortest_path(adjacency, unweighted=True)
    hops[np.isinf(hops)] = np.max(hops, where=np.isfinite(hops), initial=0.0) + 2
    squared = hops**2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean()
    sizes, axes = eigsh(-centred / 2, k=2, which="LA", v0=np.ones(count) + np.arange(count))
    return dict(enumerate(axes * np.sqrt(np.maximum(sizes, 0.0))))


def _fitting(
    place: dict[int, Floats], texts: list[str], weight: Floats, font: float
) -> dict[int, str]:
    """Labels that do not cover each other; where they would, the one of largest weight stays."""
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


def zone_bars(outcome: Outcome) -> Figure:
    """Absolute imbalance per zone in MW and MVAr."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    at = np.arange(len(outcome.zones))
    axes.bar(at - 0.2, [z.active for z in outcome.zones], 0.4, label="active, MW")
    axes.bar(at + 0.2, [z.reactive for z in outcome.zones], 0.4, label="reactive, MVAr")
    axes.set_xticks(at, [z.name for z in outcome.zones])
    axes.set(ylabel="sum of absolute imbalance", title="computed from the true loads: not private")
    axes.legend(frameon=False)
    axes.grid(axis="y", alpha=0.3)
    return figure
