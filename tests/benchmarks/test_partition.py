"""How long it takes to divide a network of thousands of buses."""

import time

import networkx as nx
import pytest

from problems.power_flow.partition import partition


@pytest.mark.timed
def test_three_thousand_nodes_take_seconds():
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(50, 60))
    started = time.perf_counter()
    partition(len(graph), list(graph.edges), 3)
    assert time.perf_counter() - started < 20  # 2 s on an idle machine
