"""Eigenvalues of large networks: against closed forms, and where no iteration finds them."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence

import dpcvx as dp
from tests.algorithms.networks import names

GRID = nx.grid_2d_graph(30, 31)
LARGE = {
    # Eigenvalues of Laplacians in closed form.
    "ring": (nx.cycle_graph(901), 2 - 2 * np.cos(2 * np.pi * np.arange(901) / 901)),
    "path": (nx.path_graph(700), 2 - 2 * np.cos(np.pi * np.arange(700) / 700)),
    "star": (nx.star_graph(599), np.array([0.0, *[1.0] * 598, 600.0])),
    "grid": (
        nx.convert_node_labels_to_integers(GRID),
        np.add.outer(
            2 - 2 * np.cos(np.pi * np.arange(30) / 30), 2 - 2 * np.cos(np.pi * np.arange(31) / 31)
        ).ravel(),
    ),
    "expander": (nx.random_regular_graph(3, 602, seed=1), None),
}


@pytest.mark.parametrize("name", LARGE)
def test_eigenvalues_of_large_networks_are_those_of_their_matrices(name):
    graph, values = LARGE[name]
    n, degrees = len(graph), dict(graph.degree)
    if values is None:
        values = np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))
    values = np.sort(values)
    largest = max(degrees.values())
    flat = dp.networks.build(graph, names(n), "max degree")  # I - L / (1 + largest)
    of_weights = 1 - values / (1 + largest)
    assert flat.lowest_eigenvalue == pytest.approx(of_weights[-1], abs=1e-9)
    gap = 1 - max(of_weights[1], -of_weights[-1])
    assert flat.spectral_gap == pytest.approx(gap, rel=1e-6)
    assert values[-1] * (1 - 1e-12) <= flat.laplacian_norm < 2 * values[-1]
    best = dp.networks.build(graph, names(n), "laplacian")
    step = best.rows[0][0]
    assert step == pytest.approx(2 / (values[-1] + values[1]), rel=1e-8)
    left = np.abs(1 - step * values[1:]).max()
    assert best.spectral_gap == pytest.approx(1 - left, rel=1e-6)
    again = dp.networks.build(graph, names(n), "laplacian")
    assert all(np.array_equal(a, b) for a, b in zip(best.rows, again.rows, strict=True))


def test_large_networks_that_are_not_sparse_are_computed_densely(monkeypatch):
    monkeypatch.setattr("dpcvx.algorithms.mixing.eigsh", lambda *_, **__: pytest.fail("sparse"))
    net = dp.networks.build(nx.complete_graph(520), names(520), "laplacian")
    assert net.second_eigenvalue == pytest.approx(0, abs=1e-12)
    assert net.laplacian_norm == pytest.approx(520)


def test_eigenvalues_that_no_iteration_finds_are_computed_densely(monkeypatch):
    def tired(*_, **__):
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    graph, _ = LARGE["path"]
    sparse = dp.networks.build(graph, names(700), "laplacian")
    monkeypatch.setattr("dpcvx.algorithms.mixing.eigsh", tired)
    net = dp.networks.build(graph, names(700), "laplacian")
    assert net.second_eigenvalue == pytest.approx(sparse.second_eigenvalue, abs=1e-10)
    assert net.lowest_eigenvalue == pytest.approx(sparse.lowest_eigenvalue, abs=1e-9)
