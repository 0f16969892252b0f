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
    grown = [_grow(graph, near, _seeds(near, parts, int(at))) for at in starts]
    candidates = [_improve(near, part) for part in grown]
    return np.array(min(candidates, key=lambda part: _score(graph, part)), dtype=np.int64)


def _seeds(near: list[list[int]], count: int, first: int) -> list[int]:
    """Nodes far apart in hops; another component counts as infinitely far."""
    seeds = [first]
    nearest = np.full(len(near), np.inf)
    while True:
        _approach(near, nearest, seeds[-1])
        if len(seeds) == count:
            return seeds
        seeds.append(int(np.argmax(nearest)))


def _approach(near: list[list[int]], nearest: NDArray[np.float64], seed: int) -> None:
    """Lower the hops to the nearest seed by a new one; seeds themselves are at -1.

    Nodes behind a node that is nearer to another seed are nearer to it, too.
    """
    nearest[seed] = -1.0
    frontier, hops = [seed], 0.0
    while frontier:
        hops += 1.0
        reached = []
        for other in (far for node in frontier for far in near[node]):
            if nearest[other] > hops:
                nearest[other] = hops
                reached.append(other)
        frontier = reached


def _grow(graph: nx.Graph, near: list[list[int]], seeds: list[int]) -> list[int]:
    """Let the smallest part that can take its free node with the most neighbors inside it."""
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
    smallest = [(1, to) for to in range(len(seeds))]
    while smallest:
        to = smallest[0][1]
        if free(to):
            take(best[to][0][1], to)
            heapq.heapreplace(smallest, (sizes[to], to))
        else:  # and never again
            heapq.heappop(smallest)
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        if part[min(component)] < 0:
            to = min(range(len(seeds)), key=lambda at: (sizes[at], at))
            sizes[to] += len(component)
            for node in component:
                part[node] = to
    return part


def _improve(near: list[list[int]], part: list[int]) -> list[int]:
    """Make the best single move until none lowers the score; the score decreases, so this ends."""
    moves = _Moves(near, part)
    while (best := moves.best()) is not None:
        moves.make(*best)
    return moves.part


class _Moves:
    """Moves of border nodes to parts of their neighbors, the best one first.

    What a move changes of the score is its change of the cut, and a penalty that only depends on
    the two parts: moves between the same two parts stay in order, and a move made concerns nearby
    nodes and the parts around two of them.
    """

    def __init__(self, near: list[list[int]], part: list[int]) -> None:
        self.part = part.copy()
        self._near = near
        self._size = [count for _, count in sorted(Counter(part).items())]
        self._weight = 2 * _BALANCE * len(self._size) / len(near)
        # Of every node, the change of the cut by part; of two parts, these changes and nodes. What
        # has changed since is skipped when it comes up.
        self._cut: list[dict[int, int]] = [{} for _ in near]
        self._queue: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._partners: list[set[int]] = [set() for _ in self._size]
        # Change of the score, node, part, and the part it leaves.
        self._first: list[tuple[float, int, int, int]] = []
        # Of every part, nodes that hold it together, or do not, and moves of the former.
        self._fixed: list[dict[int, bool]] = [{} for _ in self._size]
        self._parked: list[list[tuple[int, int, int]]] = [[] for _ in self._size]
        for node in range(len(near)):
            self._renew(node)
        for source, to in self._queue:
            self._offer(source, to)

    def best(self) -> tuple[int, int] | None:
        """Node and new part of the move that lowers the score most without tearing a part."""
        while self._first:
            move = heapq.heappop(self._first)
            change, node, to, source = move
            cut = self._cut[node].get(to)
            # The penalty of the move may have changed too, and then it was offered again.
            if self.part[node] != source or cut is None or self._change(cut, source, to) != change:
                continue
            if not self._is_fixed(node):
                return node, to
            self._parked[source].append((cut, node, to))
            queue = self._queue[source, to]
            if queue and queue[0] == (cut, node):
                heapq.heappop(queue)
            self._offer(source, to)
        return None

    def make(self, node: int, to: int) -> None:
        """Move a node to a part."""
        source = self.part[node]
        self._size[source] -= 1
        self._size[to] += 1
        self.part[node] = to
        touched: set[tuple[int, int]] = set()
        for one in (source, to):
            self._fixed[one].clear()
            for cut, other, beyond in self._parked[one]:
                heapq.heappush(self._queue[one, beyond], (cut, other))
            self._parked[one] = []
            for other in self._partners[one]:
                touched |= {(one, other), (other, one)}
        for other in (node, *self._near[node]):
            touched |= self._renew(other)
        for pair in sorted(touched):
            self._offer(*pair)

    def _renew(self, node: int) -> set[tuple[int, int]]:
        """Find a node's moves again; the parts that these are between."""
        source = self.part[node]
        around = Counter(self.part[other] for other in self._near[node])
        cut = {to: around[source] - count for to, count in around.items() if to != source}
        self._cut[node] = cut
        for to, change in cut.items():
            heapq.heappush(self._queue.setdefault((source, to), []), (change, node))
            self._partners[source].add(to)
            self._partners[to].add(source)
        return {(source, to) for to in cut}

    def _offer(self, source: int, to: int) -> None:
        """Put the best move between two parts, if one lowers the score, in line with all others."""
        queue = self._queue.get((source, to), [])
        while queue and (
            self.part[queue[0][1]] != source or self._cut[queue[0][1]].get(to) != queue[0][0]
        ):
            heapq.heappop(queue)
        if queue and self._size[source] > 1:
            cut, node = queue[0]
            change = self._change(cut, source, to)
            if change < -1e-9:
                heapq.heappush(self._first, (change, node, to, source))

    def _change(self, cut: int, source: int, to: int) -> float:
        return cut + self._weight * (self._size[to] - self._size[source] + 1)

    def _is_fixed(self, node: int) -> bool:
        known = self._fixed[self.part[node]]
        if node not in known:
            known[node] = _separates(self._near, self.part, node)
        return known[node]


def _separates(near: list[list[int]], part: list[int], node: int) -> bool:
    """Return whether the node's neighbors in its part lose their connection without the node.

    Searches from all neighbors in turn, so that it ends with the smallest piece.
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
