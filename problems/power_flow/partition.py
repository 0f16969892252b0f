"""Balanced, connected partition of a graph with few edges between the parts.

Combinatorial throughout, so the result is the same on every machine.
"""

from __future__ import annotations

import heapq
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
    near = [sorted(graph[node]) for node in range(nodes)]
    starts = np.unique(np.linspace(0, nodes - 1, _STARTS).astype(int)) if parts > 1 else [0]
    grown = [_grow(graph, near, _seeds(graph, parts, int(at))) for at in starts]
    candidates = [_improve(near, part) for part in grown]
    return np.array(min(candidates, key=lambda part: _score(graph, part)), dtype=np.int64)


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


def _grow(graph: nx.Graph, near: list[list[int]], seeds: list[int]) -> list[int]:
    """Let the smallest part that can take its free node with the most neighbours inside it."""
    part = [-1] * len(near)
    sizes = [0] * len(seeds)
    inside: list[Counter[int]] = [Counter() for _ in seeds]
    # Entries whose node is taken or whose count has grown since are skipped when they come up.
    best: list[list[tuple[int, int]]] = [[] for _ in seeds]

    def take(node: int, to: int) -> None:
        part[node] = to
        sizes[to] += 1
        for other in near[node]:
            if part[other] < 0:
                inside[to][other] += 1
                heapq.heappush(best[to], (-inside[to][other], other))

    def free(to: int) -> bool:
        queue = best[to]
        while queue and (part[queue[0][1]] >= 0 or -queue[0][0] != inside[to][queue[0][1]]):
            heapq.heappop(queue)
        return bool(queue)

    for to, seed in enumerate(seeds):
        part[seed] = to
    for to, seed in enumerate(seeds):
        take(seed, to)
    while able := [to for to in range(len(seeds)) if free(to)]:
        to = min(able, key=lambda at: (sizes[at], at))
        take(best[to][0][1], to)
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        if part[min(component)] < 0:
            to = min(range(len(seeds)), key=lambda at: (sizes[at], at))
            sizes[to] += len(component)
            for node in component:
                part[node] = to
    return part


def _improve(near: list[list[int]], part: list[int]) -> list[int]:
    """Make the best single move until none lowers the score; the score decreases, so this ends."""
    part = part.copy()
    size = [count for _, count in sorted(Counter(part).items())]
    border = {node for node in range(len(near)) if any(part[n] != part[node] for n in near[node])}
    weight = 2 * _BALANCE * len(size) / len(near)
    fixed: dict[int, bool] = {}

    def is_fixed(node: int) -> bool:
        if node not in fixed:
            fixed[node] = _separates(near, part, node)
        return fixed[node]

    while True:
        moves = sorted(_moves(near, part, size, border, weight))
        move = next((move for move in moves if not is_fixed(move[1])), None)
        if move is None:
            return part
        _, node, to = move
        changed = (part[node], to)
        size[part[node]] -= 1
        size[to] += 1
        for other in [other for other in fixed if part[other] in changed]:
            del fixed[other]
        part[node] = to
        for other in (node, *near[node]):
            if any(part[n] != part[other] for n in near[other]):
                border.add(other)
            else:
                border.discard(other)


def _moves(
    near: list[list[int]], part: list[int], size: list[int], border: set[int], weight: float
) -> list[tuple[float, int, int]]:
    """Change of the score, node and new part of every move that lowers the score."""
    moves = []
    for node in border:
        parts = Counter(part[other] for other in near[node])
        source = part[node]
        for to, count in parts.items():
            if to != source and size[source] > 1:
                change = parts[source] - count + weight * (size[to] - size[source] + 1)
                if change < -1e-9:
                    moves.append((change, node, to))
    return moves


def _separates(near: list[list[int]], part: list[int], node: int) -> bool:
    """Whether the node's neighbours in its part lose their connection within it without the node.

    Searches from all neighbours in turn, so that it ends with the smallest piece.
    """
    home = part[node]
    frontiers = [[other] for other in near[node] if part[other] == home]
    label = {starts[0]: at for at, starts in enumerate(frontiers)}
    group = list(range(len(frontiers)))
    while len(set(group)) > 1:
        for at, frontier in enumerate(frontiers):
            reached = []
            for other in (far for one in frontier for far in near[one]):
                if other == node or part[other] != home:
                    continue
                if other not in label:
                    label[other] = at
                    reached.append(other)
                elif group[label[other]] != group[at]:
                    old, new = group[at], group[label[other]]
                    group = [new if one == old else one for one in group]
            frontiers[at] = reached
        growing = {group[at] for at, frontier in enumerate(frontiers) if frontier}
        if len(set(group)) > 1 and growing != set(group):
            return True
    return False


def _score(graph: nx.Graph, part: list[int]) -> float:
    sizes = np.bincount(part)
    cut = sum(part[a] != part[b] for a, b in graph.edges)
    return float(cut + _BALANCE * len(sizes) / len(graph) * np.sum(sizes**2))
