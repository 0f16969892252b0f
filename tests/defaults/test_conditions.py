"""What methods choose their numbers by."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.conditions import conditions
from tests.plan.test_request import BUDGETS, planned
from tests.plan.test_terms_groups import ROUNDS


def test_methods_are_told_rounds_noise_and_what_one_change_does():
    plan = planned({"north": "laplace", "south": "gaussian", "east": "gaussian"}, BUDGETS)
    found = conditions(plan.program, plan.agents, ROUNDS, noisy_steps=True)
    assert found.rounds == ROUNDS
    scales = [agent.scale for agent in plan.guarantee.agents]
    # Scales include the width of a grid; that of Laplace noise is no standard deviation.
    np.testing.assert_allclose(found.noise, np.array(scales) * [math.sqrt(2), 1, 1], rtol=1e-4)
    # Thirty changes of an entry, or of all entries together.
    for agent, slope in zip(plan.agents, found.slope, strict=True):
        (spec,) = agent.program.form.private
        entries = spec.size if spec.adjacency.norm in ("entry", "inf") else 1
        assert slope == pytest.approx(30 * math.sqrt(entries) * agent.sensitivity.l2)
    assert found.release_epsilon == min(agent.noise.release_epsilon for agent in plan.agents)


def test_steps_are_not_noisy_where_data_leave_once_or_without_noise():
    plan = planned(epsilon=BUDGETS)
    found = conditions(plan.program, plan.agents, ROUNDS, noisy_steps=False)
    assert found.noise == (0.0, 0.0, 0.0)
    assert found.release_epsilon == math.inf
    silent = planned(None, delta=None)
    assert conditions(silent.program, silent.agents, ROUNDS, noisy_steps=False).slope == (
        0.0,
        0.0,
        0.0,
    )


def fitted(loss, rounds):
    """The plan of a loss of records, with this number of noisy steps."""
    w, X = cp.Variable(3, name="w"), dp.Private(shape=(50, 3), name="X", adjacency=dp.Rows(2.0))
    agent = dp.Agent(cp.Minimize(loss(X @ w)), [cp.norm(w) <= 4], name="clinic")
    method = dp.FederatedGradient(1.0)
    return dp.Problem([agent]).plan(method, epsilon=1.0, delta=1e-6, rounds=rounds)


def test_a_single_release_has_the_noise_of_the_initial_point():
    """Derivatives of logistic losses go from 0 to 1, and are 1/2 at the initial point."""
    plan = fitted(lambda s: cp.sum(cp.logistic(s)), 1)
    (agent,) = plan.agents
    start, far = (
        conditions(plan.program, plan.agents, 1, noisy_steps=True, distance=100.0, releases=k)
        for k in (1, 2)
    )
    assert start.noise[0] ** 2 == pytest.approx(agent.noise.variance(2.0), rel=1e-4)
    assert far.noise[0] ** 2 == pytest.approx(agent.noise.variance(4.0), rel=1e-2)


def test_an_initial_point_with_no_gradient_has_the_noise_of_its_surroundings():
    plan = fitted(cp.sum_squares, 1)
    told = conditions(plan.program, plan.agents, 1, noisy_steps=True, distance=1.0, releases=1)
    (agent,) = plan.agents
    assert agent.sensitivity.within(2, 0.0) == 0.0
    assert told.noise[0] > 0
