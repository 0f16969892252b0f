"""Gradient tracking, round by round against its equations; secret points and directions."""

import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.networks import (
    GRAPH,
    GRAPHS,
    MODELS,
    ROUNDS,
    followed,
    graphs,
    mixing,
    planned,
)
from tests.algorithms.networks import study as uneven
from tests.algorithms.test_decentralized_admm import linear
from tests.algorithms.test_on_networks import noiseless, points, study

LAPLACE = dp.Laplace(noise_multiplier=3.0, decay=0.95)


# -- the iterations --------------------------------------------------------------------------------


def by_hand(given, W, alpha, left):
    """The module's equations, of DiaDSP's form; x and s are secret, what left is not.

    ``x <- W x~ - alpha s``, ``s <- W s~ + grad f(x) - grad f(x_old)``, and s = grad f(x) at first.
    """
    x = given.start
    s = given.gradients(x)
    for t in range(1, ROUNDS + 1):
        heard = left(t, 1, x), left(t, 2, s)
        yield heard[0]
        old, x = x, W @ heard[0] - alpha * s
        s = W @ heard[1] + given.gradients(x) - given.gradients(old)


@pytest.mark.parametrize("model", [m for m in MODELS if m.startswith("open")])
@pytest.mark.parametrize("rule", ["metropolis", "lazy metropolis"])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_is_the_printed_iteration(noisy, rule, model):
    given, W = uneven(**MODELS[model]), mixing(rule)
    plan = planned(given, dp.GradientTracking(GRAPH, 0.15, ratio=0.5, weights=rule), noisy)
    followed(given, plan, lambda left: by_hand(given, W, 0.15, left))


@graphs
def test_it_converges_linearly_to_the_optimum(graph):
    given = study(6)
    plan = noiseless(given, dp.GradientTracking(GRAPHS[graph], 0.15), 500)
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


@pytest.mark.parametrize("name", ["step", "ratio", "smoothness"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, "fast"])
def test_parameters_are_checked(name, value):
    with pytest.raises(dp.ModelError, match=rf"dp\.GradientTracking\({name}=.*positive finite"):
        dp.GradientTracking(**{name: value})
