"""Networks: laws of the mixing matrices, what is refused, invariance, random networks."""

import itertools
import math
import tracemalloc

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from tests import spies
from tests.algorithms.networks import connected_graphs, names

rules = pytest.mark.parametrize("rule", dp.networks.WEIGHTS)


# Laws ---------------------------------------------------------------------------------------


@rules
@given(graph=connected_graphs())
def test_mixing_matrices_keep_their_laws(rule, graph):
    n = len(graph)
    net = dp.networks.build(graph, names(n), rule)
    W = net.weights
    assert np.array_equal(W, W.T)
    assert W.sum(axis=1) == pytest.approx(np.ones(n), abs=1e-14)
    assert W.sum(axis=0) == pytest.approx(np.ones(n), abs=1e-14)
    adjacent = nx.to_numpy_array(graph, nodelist=range(n)) > 0
    assert np.array_equal((W != 0) & ~np.eye(n, dtype=bool), adjacent)
    values = np.linalg.eigvalsh(W)
    assert values[-1] == pytest.approx(1) and values[-2] < 1 - 1e-6 and values[0] > -1 + 1e-6
    moduli = np.sort(np.abs(values))
    assert net.second_eigenvalue == pytest.approx(moduli[-2], abs=1e-12)
    assert net.spectral_gap == pytest.approx(1 - moduli[-2], abs=1e-12)
    if rule != "laplacian":
        assert (W >= 0).all() and (np.diag(W) > 0).all()
    if rule == "lazy metropolis":
        assert values[0] > 0
    assert not W.flags.writeable


@given(graph=connected_graphs(), data=st.data())
def test_the_best_constant_beats_other_constants(graph, data):
    n = len(graph)
    best = dp.networks.build(graph, names(n), "laplacian")
    other = data.draw(st.floats(0.01, 2)) * best.laplacian / n
    moduli = np.abs(np.linalg.eigvalsh(np.eye(n) - other - np.full((n, n), 1 / n)))
    assert best.second_eigenvalue <= moduli.max() + 1e-12
    assert (
        best.second_eigenvalue
        <= dp.networks.build(graph, names(n), "max degree").second_eigenvalue + 1e-9
    )


@rules
@given(graph=connected_graphs(), data=st.data())
def test_relabelling_permutes_and_nothing_else(rule, graph, data):
    n = len(graph)
    order = data.draw(st.permutations(range(n)))
    labels = names(n)
    named = nx.relabel_nodes(graph, dict(enumerate(labels)))
    here = dp.networks.build(named, labels, rule)
    there = dp.networks.build(named, [labels[i] for i in order], rule)
    permuted = here.weights[np.ix_(order, order)]
    if rule == "laplacian":  # eigenvalues are rounded differently
        assert there.weights == pytest.approx(permuted, abs=1e-13)
    else:
        assert np.array_equal(there.weights, permuted)
    assert there.second_eigenvalue == pytest.approx(here.second_eigenvalue, abs=1e-12)
    place = {i: k for k, i in enumerate(order)}
    for k, i in enumerate(order):
        assert there.neighbors[k] == tuple(sorted(place[j] for j in here.neighbors[i]))
    by_position = dp.networks.build(graph, labels, rule)
    assert np.array_equal(by_position.weights, here.weights)
    assert by_position.neighbors == here.neighbors
    # Nor does the order in which a graph was written down matter.
    shuffled = nx.Graph()
    shuffled.add_nodes_from(labels[i] for i in order)
    shuffled.add_edges_from(reversed([(v, u) for u, v in named.edges]))
    assert np.array_equal(dp.networks.build(shuffled, labels, rule).weights, here.weights)


# Known networks -----------------------------------------------------------------------------


def test_weights_of_a_path_by_hand():
    expected = {
        "metropolis": [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]],
        "max degree": [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]],
        "lazy metropolis": [[5 / 6, 1 / 6, 0], [1 / 6, 2 / 3, 1 / 6], [0, 1 / 6, 5 / 6]],
        "laplacian": [[1 / 2, 1 / 2, 0], [1 / 2, 0, 1 / 2], [0, 1 / 2, 1 / 2]],  # l = 3, 1
    }
    for rule, matrix in expected.items():
        assert dp.networks.build("path", names(3), rule).weights == pytest.approx(np.array(matrix))
    star = dp.networks.build("star", names(5)).weights
    assert star[0] == pytest.approx(np.full(5, 1 / 5))
    assert np.diag(star)[1:] == pytest.approx(np.full(4, 4 / 5))
    # Largest eigenvalues 5 and 1: the center's own weight is negative.
    assert dp.networks.build("star", names(5), "laplacian").weights[0, 0] == pytest.approx(
        1 - 4 / 3
    )


def test_shapes():
    counts = {"complete": 66, "ring": 12, "star": 11, "path": 11, "grid": 17}  # grid: 3 by 4
    assert set(counts) == set(dp.networks.SHAPES)
    for shape, count in counts.items():
        net = dp.networks.build(shape, names(12))
        assert len(net.edges) == count and sum(net.degrees) == 2 * count
        assert net.complete == (shape == "complete")
        assert nx.is_connected(net.graph()) and list(net.graph()) == names(12)
        assert np.array_equal(net.laplacian, nx.laplacian_matrix(net.graph()).toarray())
        assert str(net).startswith(f"12 agents, {count} edges, metropolis weights, spectral gap ")
        for n in (2, 3):
            assert nx.is_connected(dp.networks.build(shape, names(n)).graph())
    assert dp.networks.build("star", names(4)).degrees == (3, 1, 1, 1)
    assert dp.networks.build("ring", names(4)).neighbors == ((1, 3), (0, 2), (1, 3), (0, 2))


# Given matrices -----------------------------------------------------------------------------


def test_a_given_matrix_is_kept():
    matrix = np.array([[0.5, 0.5, 0.0], [0.5, 0.2, 0.3], [0.0, 0.3, 0.7]])
    net = dp.networks.build("path", names(3), matrix)
    assert np.array_equal(net.weights, matrix) and net.rule.startswith("given")
    matrix[0, 0] = 7
    assert net.weights[0, 0] == 0.5
    swap = dp.networks.build("path", names(2), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert swap.spectral_gap == pytest.approx(0)
    missing_edge = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])
    assert dp.networks.build("ring", names(3), missing_edge).weights[0, 2] == 0


@pytest.mark.parametrize(
    ("matrix", "match"),
    [
        (np.eye(2), "matrix of 3 by 3.*has shape \\(2, 2\\)"),
        (np.full((3, 3), np.nan), "finite entries"),
        ("best", "no weights called 'best'.*'metropolis'"),
        (object(), "not a object"),
        ([[0.5, 0.5, 0], [0.4, 0.3, 0.3], [0, 0.3, 0.7]], "not symmetric.*'agent 0' and 'agent 1'"),
        (
            [[0.5, 0.4, 0.1], [0.4, 0.3, 0.3], [0.1, 0.3, 0.6]],
            "'agent 0' and 'agent 2', who are no",
        ),
        ([[0.5, 0.5, 0], [0.5, 0.3, 0.3], [0, 0.3, 0.7]], "row of agent 'agent 1'.*sums to 1.1"),
        ([[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], "multiple eigenvalue"),
        (np.eye(3), "multiple eigenvalue"),
        ([[-1, 2, 0], [2, -2, 1], [0, 1, 0]], "averaging diverges"),
    ],
)
def test_given_matrices_are_checked(matrix, match):
    with pytest.raises(dp.ModelError, match=match):
        dp.networks.build("path", names(3), matrix)


# What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "match"),
    [
        (nx.DiGraph([(0, 1), (1, 2), (2, 3)]), "directed.*to_undirected"),
        (nx.MultiGraph([(0, 1), (0, 1), (1, 2), (2, 3)]), "multigraph"),
        (nx.Graph([(0, 1), (1, 2), (2, 3), (2, 2)]), "loops at 2"),
        (nx.Graph([(0, 1), (2, 3)]), "2 parts: 'agent 0', 'agent 1'; 'agent 2', 'agent 3'"),
        (nx.Graph([(0, 1), (1, 2), (2, 4)]), "none of the positions 0 to 3: 4"),
        (nx.Graph([(0, 1), (1, 2)]), "no nodes for agents 'agent 3'"),
        (nx.Graph([("agent 0", "x"), ("x", "agent 1")]), "none of the agents 'agent 0'.*: 'x'"),
        (nx.Graph([("agent 0", "agent 1")]), "no nodes for agents 'agent 2', 'agent 3'"),
        (nx.grid_2d_graph(2, 2), "convert_node_labels_to_integers"),
        ("torus", "no network called 'torus'.*'ring'"),
        (np.eye(4), "not a ndarray.*from_numpy_array"),
    ],
)
def test_graphs_are_checked(graph, match):
    with pytest.raises(dp.ModelError, match=match):
        dp.networks.build(graph, names(4))


def test_long_lists_are_cut():
    with pytest.raises(dp.ModelError, match="20 parts: .*; and 12 more"):
        dp.networks.build(nx.empty_graph(20), names(20))
    with pytest.raises(dp.ModelError, match="'agent 7' and 12 more"):
        dp.networks.build(nx.Graph([("x", "y")]), names(20))


@pytest.mark.parametrize(
    ("agents", "match"),
    [
        ("abc", "agents='abc'"),
        ([1, 2], "sequence of names"),
        (["a", "b", "a"], "same name: 'a'"),
        (["a"], "two agents or more and got 1"),
        ([], "got 0"),
    ],
)
def test_names_are_checked(agents, match):
    with pytest.raises(dp.ModelError, match=match):
        dp.networks.build("complete", agents)
    with pytest.raises(dp.ModelError, match=match):
        dp.networks.random(agents, 2, 0)


def test_a_prime_number_of_agents_fills_no_grid():
    with pytest.raises(dp.ModelError, match="7 agents cannot form a grid"):
        dp.networks.build("grid", names(7))


# Random networks ----------------------------------------------------------------------------


@given(n=st.integers(2, 12), seed=st.integers(0, 2**40), share=st.floats(0, 1))
def test_random_networks_are_connected_with_the_edges_asked_for(n, seed, share):
    edges = n - 1 + round(share * (n * (n - 1) // 2 - n + 1))
    net = dp.networks.random(names(n), edges, seed)
    assert len(net.edges) == edges and nx.is_connected(net.graph())
    again = dp.networks.random(names(n), edges, seed)
    assert again.neighbors == net.neighbors and np.array_equal(again.weights, net.weights)


def test_random_networks_do_not_change_between_versions():
    net = dp.networks.random(names(6), 8, seed=3)
    edges = ((0, 1), (0, 3), (0, 4), (0, 5), (1, 3), (1, 4), (2, 5), (4, 5))
    assert net.edges == edges
    assert dp.networks.random(names(6), 8, seed=4).edges != edges
    paper = dp.networks.random(names(100), 200, seed=0, weights="laplacian")
    assert len(paper.edges) == 200 and paper.rule == "laplacian"


def test_random_trees_are_uniform():
    # 16 trees on 4 nodes, 3200 seeds, 200 expected each: chi-square with 15 degrees of freedom
    # exceeds 52.2 with probability 5e-6. The seeds are fixed.
    counts = {}
    for seed in range(3200):
        edges = dp.networks.random(names(4), 3, seed).edges
        counts[edges] = counts.get(edges, 0) + 1
    assert len(counts) == 16
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 52.2


def test_further_edges_are_uniform():
    # Graphs of 4 agents and 4 edges: all 15 are connected, and drawn in proportion to their
    # spanning trees, which the matrix-tree theorem counts. With 3000 seeds, chi-square with 14
    # degrees of freedom exceeds 50.5 with probability 5e-6. The seeds are fixed.
    seen = {}
    for seed in range(3000):
        edges = dp.networks.random(names(4), 4, seed).edges
        seen[edges] = seen.get(edges, 0) + 1
    trees = {}
    for edges in itertools.combinations(itertools.combinations(range(4), 2), 4):
        graph = nx.Graph(edges)
        reduced = nx.laplacian_matrix(graph).toarray()[1:, 1:]
        if len(graph) == 4 and (number := round(np.linalg.det(reduced))) > 0:
            trees[edges] = number
    assert set(seen) == set(trees) and len(trees) == 15
    whole = sum(trees.values())
    expected = {edges: 3000 * number / whole for edges, number in trees.items()}
    assert sum((seen[e] - expected[e]) ** 2 / expected[e] for e in expected) < 50.5


@pytest.mark.parametrize(
    ("edges", "seed", "match"),
    [
        (3, 0, "edges=3.*from 4 \\(a tree\\) to 10"),
        (11, 0, "edges=11"),
        (4.5, 0, "edges=4.5"),
        (5, -1, "seed=-1"),
        (5, None, "seed=None"),
    ],
)
def test_random_networks_check_their_arguments(edges, seed, match):
    with pytest.raises(dp.ModelError, match=match):
        dp.networks.random(names(5), edges, seed)


# Large networks -----------------------------------------------------------------------------


def test_a_large_network_takes_no_memory_of_dense_matrices():
    """Neither itself, nor the sentence about it, nor what default steps ask of it."""
    n = 2000
    agents = names(n)
    tracemalloc.start()
    try:
        net = dp.networks.build("ring", agents)
        shown = str(net)
        assert net.laplacian_norm == 4.0
        assert net.lowest_eigenvalue == pytest.approx(-1 / 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.1 * n * n * 8
    gap = 2 / 3 * (1 - math.cos(2 * math.pi / n))
    assert shown == f"{n} agents, {n} edges, metropolis weights, spectral gap {gap:.3g}"


@rules
def test_a_plan_of_a_network_method_never_asks_for_dense_weights(rule, monkeypatch):
    monkeypatch.setattr(
        dp.networks.Network, "weights", property(lambda net: pytest.fail("dense weights"))
    )
    x = cp.Variable(name="x")
    agents = [
        dp.Agent(
            cp.Minimize(cp.square(x - dp.Private(1.0, adjacency=dp.Within(1.0), name=name))),
            [cp.abs(x) <= 2],
            name=name,
        )
        for name in "abcde"
    ]
    method = dp.DecentralizedGradient(graph=dp.networks.build("ring", list("abcde"), rule))
    plan = dp.Problem(agents).plan(method, rounds=2, epsilon=1.0, delta=1e-6)
    spies.change(monkeypatch, "nodes of a dense spectrum", 4)
    spies.change(monkeypatch, "nodes of a sparse spectrum", 1)
    assert "spectral gap" in str(plan)
    assert plan.run(seed=1, verbose=False).rounds == 2
