"""Balanced, connected partition of a graph with few edges between the parts.

The algorithm is combinatorial, so all machines compute the same result.
"""

from __future__ import annotations

import heapq
from collections import Counter

import networkx as nx
import numpy as np
from numpy.typing import NDArray

# Additional cut edges that a move towards balance may cost, per (size difference) / (mean size).
_BALANCE = 4.0
_STARTS = 8


def partition(nodes: int, edges: list[tuple[int, int]], parts: int) -> NDArray[np.int64]:
    """Divide the nodes 0, 1, ... of a graph.

    Parts grow from distant seeds. Then border nodes move between parts while a move lowers the
    number of cut edges plus a penalty on unequal sizes and keeps parts connected. The best result
    of several initial seeds is returned.

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
    """Return nodes that are far apart in hops; nodes of other components are infinitely far."""
    seeds = [first]
    nearest = np.full(len(near), np.inf)
    while True:
        _approach(near, nearest, seeds[-1])
        if len(seeds) == count:
            return seeds
        seeds.append(int(np.argmax(nearest)))


def _approach(near: list[list[int]], nearest: NDArray[np.float64], seed: int) -> None:
    """Update, in place, the hops to the nearest seed for a new seed; seeds themselves have -1.

    The search stops at nodes that are nearer to another seed, since nodes behind them are too.
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
    """Grow parts from seeds, and return the part of every node.

    In each step, the smallest part that can grow takes a free node, one with most neighbors in it.
    """
    part = [-1] * len(near)
    sizes = [0] * len(seeds)
    inside: list[Counter[int]] = [Counter() for _ in seeds]
    # Outdated entries, whose node is taken or whose count has grown, are skipped when popped.
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
        else:  # the part can never grow again
            heapq.heappop(smallest)
    for component in sorted(nx.connected_components(graph), key=lambda c: (-len(c), min(c))):
        if part[min(component)] < 0:
            to = min(range(len(seeds)), key=lambda at: (sizes[at], at))
            sizes[to] += len(component)
            for node in component:
                part[node] = to
    return part


def _improve(near: list[list[int]], part: list[int]) -> list[int]:
    """Make the best single move until none lowers the score, and return the part of every node."""
    moves = _Moves(near, part)
    while (best := moves.best()) is not None:
        moves.make(*best)
    return moves.part


class _Moves:
    """Priority queue of moves of border nodes to parts of their neighbors.

    A move changes the score by its change of the cut plus a penalty that depends only on the two
    parts. So moves between two given parts keep their order, and after a move, only nearby nodes
    and pairs with one of its two parts have to be updated.
    """

    def __init__(self, near: list[list[int]], part: list[int]) -> None:
        self.part = part.copy()
        self._near = near
        self._size = [count for _, count in sorted(Counter(part).items())]
        self._weight = 2 * _BALANCE * len(self._size) / len(near)
        # For every node, the change of the cut by target part. For every two parts, a queue of
        # these changes and nodes; outdated entries are skipped when popped.
        self._cut: list[dict[int, int]] = [{} for _ in near]
        self._queue: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._partners: list[set[int]] = [set() for _ in self._size]
        # Queue of offered moves: change of the score, node, target part, and source part.
        self._first: list[tuple[float, int, int, int]] = []
        # For every part, whether nodes hold it together, and the rejected moves of those that do.
        self._fixed: list[dict[int, bool]] = [{} for _ in self._size]
        self._parked: list[list[tuple[int, int, int]]] = [[] for _ in self._size]
        for node in range(len(near)):
            self._renew(node)
        for source, to in self._queue:
            self._offer(source, to)

    def best(self) -> tuple[int, int] | None:
        """Return node and target part of the best move that keeps parts connected; None without."""
        while self._first:
            move = heapq.heappop(self._first)
            change, node, to, source = move
            cut = self._cut[node].get(to)
            # If the penalty of the move has changed, the move was offered again.
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
        """Recompute a node's moves, and return the pairs of parts that they are between."""
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
        """Offer the best move between two parts, if it lowers the score, in the common queue."""
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
    """Return whether removing a node disconnects its part.

    The searches from all of its neighbors alternate, so the time depends on the smallest piece.
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
