"""The primal-dual method, round by round against its equations; its limit and its charge."""

import networkx as nx
import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.networks import GRAPH, MODELS, ROUNDS, followed, mixing, planned, study

ETA, GAMMA, OMEGA = 0.15, 1.4, 0.8


def by_hand(given, left):
    """The module's equations, of PPDC's form, with noise in the point itself.

    ``x <- x - eta (grad f(x) + gamma P x + omega v)``, ``v <- v + eta omega P x``: both with the x
    of the round before, and P = I - W on shared entries.
    """
    W, S = mixing(), given.shared
    x, v = given.start, given.start
    for t in range(1, ROUNDS + 1):
        Px = x - W @ x
        Px[:, : S.start] = 0.0
        step = x - ETA * (given.gradients(x) + GAMMA * Px + OMEGA * v)
        x, v = given.projected(left(t, 1, step)), v + ETA * OMEGA * Px
        yield x


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("private", [False, True])
def test_a_run_is_the_printed_iteration(private, model):
    given = study(**MODELS[model])
    plan = planned(given, dp.PrimalDual(GRAPH, ETA, GAMMA, OMEGA), private)
    followed(given, plan, lambda left: by_hand(given, left))


@pytest.mark.parametrize("graph", [GRAPH, nx.star_graph(3), nx.complete_graph(4)], ids=str)
def test_it_converges_linearly_to_the_optimum(graph):
    given = study(own=False)
    best = np.linalg.lstsq(np.vstack(given.A), np.concatenate(given.b))[0]
    plan = planned(given, dp.PrimalDual(graph, 0.3, 2.0, 2.0), False, rounds=400)
    path = [given.points(r.last) for r in plan.run(iterates=True).iterates]
    errors = [np.abs(path[t] - best).max() for t in (99, 199, 399)]
    # What 100 rounds gain, the next 100 gain again.
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 1e-9


def test_what_is_charged_is_the_step_size_times_what_a_gradient_moves():
    given = study(**MODELS["boxes"])
    plan = planned(given, dp.PrimalDual(GRAPH, ETA, GAMMA, OMEGA), True)
    for A, account in zip(given.A, plan.run(seed=1).ledger.values(), strict=True):
        change = ETA * 0.1 * np.abs(A).sum(axis=1).max()  # one entry of b moves by 0.1
        sensitivities = [entry.sensitivity for entry in account.entries]
        assert sensitivities == pytest.approx([change] * ROUNDS, rel=1e-4)
    found = dp.check_sensitivity(plan)
    assert found.passed and min(agent.ratio for agent in found.agents) > 0.99


@pytest.mark.parametrize("name", ["step", "penalty", "dual_step"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.inf, "fast"])
def test_parameters_are_checked(name, value):
    with pytest.raises(dp.ModelError, match=rf"dp\.PrimalDual\({name}=.*positive finite"):
        dp.PrimalDual(**{name: value})
