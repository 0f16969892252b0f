"""Partitions are complete, connected, balanced and reproducible."""

from collections import Counter

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from problems.power_flow.partition import _improve, _seeds, partition


@st.composite
def networks(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], int]:
    nodes = draw(st.integers(1, 20))
    tree = [(draw(st.integers(0, node - 1)), node) for node in range(1, nodes)]
    node = st.integers(0, nodes - 1)
    extra = draw(st.lists(st.tuples(node, node), max_size=10))
    edges = {(min(edge), max(edge)) for edge in [*tree, *extra] if edge[0] != edge[1]}
    return nodes, sorted(edges), draw(st.integers(1, nodes))


@settings(max_examples=60, deadline=None)
@given(networks())
def test_parts_are_connected_and_not_empty(network: tuple[int, list[tuple[int, int]], int]):
    nodes, edges, parts = network
    part = partition(nodes, edges, parts)
    assert sorted(set(part.tolist())) == list(range(parts))
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(nodes))
    for one in range(parts):
        assert nx.is_connected(graph.subgraph(np.flatnonzero(part == one).tolist()))
    np.testing.assert_array_equal(part, partition(nodes, edges[::-1], parts))


def test_two_cliques_are_cut_at_the_bridge():
    graph = nx.barbell_graph(6, 0)
    part = partition(12, list(graph.edges), 2)
    assert len(set(part[:6].tolist())) == 1
    assert len(set(part[6:].tolist())) == 1
    assert part[0] != part[6]


def test_a_path_is_cut_into_equal_parts():
    part = partition(30, [(k, k + 1) for k in range(29)], 3)
    assert sorted(np.bincount(part).tolist()) == [10, 10, 10]


def test_islands():
    edges = [(0, 1), (1, 2), (3, 4), (5, 6)]
    two, four = partition(7, edges, 2), partition(7, edges, 4)
    assert all(two[a] == two[b] for a, b in edges)
    assert sorted(np.bincount(two).tolist()) == [3, 4]
    assert sorted(np.bincount(four).tolist()) == [1, 2, 2, 2]


def test_a_grid_with_holes_is_divided_evenly():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(50, 60))
    graph.remove_edges_from([edge for edge in list(graph.edges)[::5] if sum(edge) % 3])
    graph = nx.convert_node_labels_to_integers(
        graph.subgraph(max(nx.connected_components(graph), key=len))
    )
    part = partition(len(graph), list(graph.edges), 3)
    assert np.bincount(part).max() < 1.5 * np.bincount(part).min()


def _best_moves(nodes, edges, part):
    """The same local search without any memory: all moves of all nodes, again and again."""
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(nodes))
    part = list(part)
    while True:
        sizes = np.bincount(part)
        moves = []
        for node in graph:
            counts = Counter(part[other] for other in graph[node])
            home = [other for other in graph if part[other] == part[node] and other != node]
            own = [other for other in graph[node] if part[other] == part[node]]
            pieces = nx.connected_components(graph.subgraph(home))
            whole = sum(any(other in piece for other in own) for piece in pieces) <= 1
            for to, count in counts.items():
                unequal = 2 * 4.0 * len(sizes) / nodes * (sizes[to] - sizes[part[node]] + 1)
                change = counts[part[node]] - count + unequal
                if to != part[node] and sizes[part[node]] > 1 and change < -1e-9 and whole:
                    moves.append((change, node, to))
        if not moves:
            return part
        _, node, to = min(moves)
        part[node] = to


@settings(max_examples=60, deadline=None)
@given(networks(), st.integers(0, 2**32 - 1))
def test_moves_are_the_best_of_all(network: tuple[int, list[tuple[int, int]], int], seed: int):
    nodes, edges, parts = network
    rng = np.random.default_rng(seed)
    # Every part has a node, whether or not it is connected.
    part = rng.permutation([*range(parts), *rng.integers(parts, size=nodes - parts)]).tolist()
    near = [sorted({a + b - node for a, b in edges if node in (a, b)}) for node in range(nodes)]
    assert _improve(near, part) == _best_moves(nodes, edges, part)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_seeds_are_far_apart(network: tuple[int, list[tuple[int, int]], int]):
    """Each next one is the first of those that are farthest from all before it."""
    nodes, edges, parts = network
    near = [sorted({a + b - node for a, b in edges if node in (a, b)}) for node in range(nodes)]
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(nodes))
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    seeds = _seeds(near, parts, 0)
    for k in range(1, parts):
        far = [min(hops[seed].get(node, np.inf) for seed in seeds[:k]) for node in range(nodes)]
        left = [-1.0 if node in seeds[:k] else far[node] for node in range(nodes)]
        assert seeds[k] == int(np.argmax(left))


def test_two_thousand_buses_are_divided_into_fifty_zones():
    graph = nx.random_geometric_graph(2000, 0.035, seed=1)
    graph.add_edges_from((k, k + 1) for k in range(1999))
    part = partition(2000, sorted(graph.edges), 50)
    sizes = np.bincount(part)
    assert sizes.size == 50 and sizes.max() <= 1.5 * sizes.min()
    for one in range(50):
        assert nx.is_connected(graph.subgraph(np.flatnonzero(part == one).tolist()))
