"""Gradient tracking with secret points and directions; the primal-dual method beside it."""

import networkx as nx
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.network import network, random_network
from tests.algorithms.test_decentralized_admm import linear
from tests.algorithms.test_on_networks import noiseless, points, study

GRAPHS = {
    "ring": nx.cycle_graph(6),
    "star": nx.star_graph(5),
    "random": random_network(list("abcdef"), 8, seed=1).graph(),
    "complete": nx.complete_graph(6),
}
graphs = pytest.mark.parametrize("graph", GRAPHS)
LAPLACE = dp.Laplace(multiplier=3.0, decay=0.95)


def gradients(given, X):
    return np.array([given.gradient(i, x) for i, x in enumerate(X)])


def weights_of(graph):
    return network(graph, list("abcdef")).weights


# -- the iterations --------------------------------------------------------------------------------


@graphs
def test_tracking_is_what_the_module_says(graph):
    given, W = study(6), weights_of(GRAPHS[graph])
    plan = noiseless(given, dp.GradientTracking(GRAPHS[graph], 0.15), 12)
    X = np.zeros((6, 3))
    S = gradients(given, X)
    for found in points(plan.run(iterates=True)):
        assert found == pytest.approx(X, abs=1e-12)
        after = W @ X - 0.15 * S
        S = W @ S + gradients(given, after) - gradients(given, X)
        X = after


@graphs
def test_the_primal_dual_method_is_what_the_module_says(graph):
    given, P = study(6), np.eye(6) - weights_of(GRAPHS[graph])
    plan = noiseless(given, dp.PrimalDual(GRAPHS[graph], 0.1, 4.0, 2.0), 12)
    X, V = np.zeros((6, 3)), np.zeros((6, 3))
    for found in points(plan.run(iterates=True)):
        X, V = X - 0.1 * (gradients(given, X) + 4.0 * P @ X + 2.0 * V), V + 0.1 * 2.0 * P @ X
        assert found == pytest.approx(X, abs=1e-12)


@graphs
@pytest.mark.parametrize(
    ("method", "rounds"),
    [
        (lambda g: dp.GradientTracking(g, 0.15), 500),
        (lambda g: dp.PrimalDual(g, 0.3, 2.0, 2.0), 250),
    ],
    ids=["tracking", "primal-dual"],
)
def test_both_converge_linearly_to_the_optimum(graph, method, rounds):
    given = study(6)
    plan = noiseless(given, method(GRAPHS[graph]), rounds)
    errors = np.abs(points(plan.run(iterates=True)) - given.optimum).max(axis=(1, 2))
    assert linear(errors, 1e-9)


# -- what leaves, and its charge -------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_noise_follows_what_one_change_does_to_points_and_directions(ratio):
    given, alpha = study(6), 0.15
    plan = given.problem.plan(
        dp.GradientTracking("ring", alpha, ratio), mechanism=LAPLACE, rounds=5
    )
    found = plan.run(seed=0).ledger["a"].entries
    # One entry of b moves by 0.1. What it does to gradients cancels in their differences.
    A = given.A[0]
    x, s, expected = np.zeros((3, 4)), 0.1 * A.T, []
    for t in range(1, 6):
        m = 3.0 * 0.95 ** (t - 1)
        if t > 1:
            old, x = x, -alpha * s
            s = A.T @ A @ (x - old)
            expected.append((t, 1, m * ratio / alpha, np.abs(x).sum(axis=0).max()))
        expected.append((t, 2, m, np.abs(s).sum(axis=0).max()))
    assert [(e.round, e.step) for e in found] == [(t, k) for t, k, _, _ in expected]
    assert [e.multiplier for e in found] == pytest.approx([m for *_, m, _ in expected], rel=1e-12)
    assert [e.sensitivity for e in found] == pytest.approx([r for *_, r in expected], rel=1e-3)


@pytest.mark.parametrize("method", [dp.GradientTracking("ring"), dp.PrimalDual("ring")], ids=str)
def test_replay_and_neighbours(method):
    plan = study(6).problem.plan(method, mechanism=LAPLACE, rounds=5)
    result = plan.run(seed=1, record=True)
    again = plan.replay(result.transcript)
    for a, b in zip(result.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(a, b)
    found = dp.check(plan)
    assert found.passed and min(agent.ratio for agent in found.agents) > 0.3
    assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon, rel=1e-9)


@pytest.mark.parametrize("method", [dp.GradientTracking, dp.PrimalDual])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, "fast"])
def test_parameters_are_checked(method, value):
    name = "alpha" if method is dp.GradientTracking else "eta"
    with pytest.raises(dp.ModelError, match=rf"dp\.{method.__name__}\({name}=.*positive finite"):
        method(**{name: value})
