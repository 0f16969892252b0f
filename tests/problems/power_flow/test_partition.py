"""Partitions are complete, connected, balanced and reproducible."""

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from problems.power_flow.partition import partition


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
