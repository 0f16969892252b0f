"""Balanced, connected partition of a graph with few edges between the parts.

Combinatorial throughout, so the result is the same on every machine.
"""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
from numpy.typing import NDArray

# Edges that one move towards balance may cost, in units of (size difference) / (mean size).
_BALANCE = 4.0
_STARTS = 8


def partition(nodes: int, edges: list[tuple[int, int]], parts: int) -> NDArray[np.int64]:
    """Divide the nodes 0, 1, ... of a graph.

    Parts grow from distant seeds, then border nodes move while that lowers the number of cut
    edges plus a penalty on unequal sizes and no part falls apart. The best of several starts is
    returned.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    edges : list of pairs of int
        Undirected edges, each once.
    parts : int
        Number of parts, between 1 and `nodes`.

    Returns
    -------
    ndarray of int, shape (nodes,)
        Part of every node. Parts are connected unless the graph has more components than parts;
        then components stay whole and share a part. No part is empty.
    """
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges)
    starts = np.unique(np.linspace(0, nodes - 1, _STARTS).astype(int)) if parts > 1 else [0]
    candidates = [_improve(graph, _grow(graph, _seeds(graph, parts, int(at)))) for at in starts]
    return min(candidates, key=lambda part: _score(graph, part))


def _seeds(graph: nx.Graph, count: int, first: int) -> list[int]:
    """Nodes far apart in hops; another component counts as infinitely far."""
    seeds = [first]
    nearest = _hops(graph, first)
    while len(seeds) < count:
        nearest[seeds] = -1.0
        seeds.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, _hops(graph, seeds[-1]))
    return seeds


def _hops(graph: nx.Graph, source: int) -> NDArray[np.float64]:
    hops = np.full(len(graph), np.inf)
    for node, count in nx.single_source_shortest_path_length(graph, source).items():
        hops[node] = count
    return hops


def _grow(graph: nx.Graph, seeds: list[int]) -> NDArray[np.int64]:
    """Let the smallest part that can take its free node with the most neighbours inside it."""
    part = np.full(len(graph), -1, dtype=np.int64)
    sizes = np.zeros(len(seeds), dtype=np.int64)
    inside: list[Counter[int]] = [Counter() for _ in seeds]

    def take(node: int, to: int) -> None:
        part[node] = to
        sizes[to] += 1
        for counter in inside:
            counter.pop(node, None)
        inside[to].update(near for near in graph[node] if part[near] < 0)

    for to, seed in enumerate(seeds):
        part[seed] = to
    for to, seed in enumerate(seeds):
        take(seed, to)
    while any(inside):
        to = min((at for at in range(len(seeds)) if inside[at]), key=lambda at: (sizes[at], at))
        take(min(inside[to], key=lambda node: (-inside[to][node], node)), to)
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        if part[min(component)] < 0:
            to = int(np.argmin(sizes))
            part[list(component)] = to
            sizes[to] += len(component)
    return part


def _improve(graph: nx.Graph, part: NDArray[np.int64]) -> NDArray[np.int64]:
    """Make the best single move until none lowers the score; the score decreases, so this ends."""
    part = part.copy()
    sizes = np.bincount(part)
    cut_nodes: dict[int, set[int]] = {}
    while True:
        for _, node, to in sorted(_moves(graph, part, sizes)):
            source = int(part[node])
            if source not in cut_nodes:
                own = graph.subgraph(np.flatnonzero(part == source).tolist())
                cut_nodes[source] = set(nx.articulation_points(own))
            if node not in cut_nodes[source]:
                part[node] = to
                sizes[source] -= 1
                sizes[to] += 1
                cut_nodes.pop(source)
                cut_nodes.pop(to, None)
                break
        else:
            return part


def _moves(
    graph: nx.Graph, part: NDArray[np.int64], sizes: NDArray[np.int64]
) -> list[tuple[float, int, int]]:
    """Change of the score, node and new part of every move that lowers the score."""
    moves = []
    of, size = part.tolist(), sizes.tolist()
    weight = 2 * _BALANCE * len(size) / len(graph)
    for node in graph:
        near = Counter(of[other] for other in graph[node])
        source = of[node]
        for to, count in near.items():
            if to != source and size[source] > 1:
                change = near[source] - count + weight * (size[to] - size[source] + 1)
                if change < -1e-9:
                    moves.append((change, node, to))
    return moves


def _score(graph: nx.Graph, part: NDArray[np.int64]) -> float:
    sizes = np.bincount(part)
    cut = sum(part[a] != part[b] for a, b in graph.edges)
    return float(cut + _BALANCE * len(sizes) / len(graph) * np.sum(sizes**2))
