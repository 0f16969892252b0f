"""How long it takes to divide a network of thousands of buses."""

import time

import networkx as nx
import pytest

from problems.power_flow.partition import partition


@pytest.mark.timed
@pytest.mark.parametrize("parts", [3, 250])
def test_ten_thousand_nodes_take_seconds(parts):
    graph = nx.convert_node_labels_to_integers(nx.grid_2d_graph(100, 100))
    started = time.process_time()
    partition(len(graph), list(graph.edges), parts)
    assert time.process_time() - started < 20  # 2 s on an idle machine
