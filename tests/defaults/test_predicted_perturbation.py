"""When objective perturbation is the default, and with how much regularization."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.predicted import regularization
from tests.algorithms.test_objective_perturbation import clinic, records


def problem(count=1, rows=200, **settings):
    w = cp.Variable(3, name="w")
    return dp.Problem([clinic(records(rows, k), k, w, **settings) for k in range(count)])


def method(problem, **settings):
    return problem.plan(**{"epsilon": 1.0, "delta": 0} | settings).algorithm


def test_it_is_the_default_at_delta_0_alone():
    own = problem()
    assert isinstance(method(own), dp.ObjectivePerturbation)
    assert isinstance(method(own, mechanism="laplace"), dp.ObjectivePerturbation)
    assert not isinstance(method(own, delta=1e-6), dp.ObjectivePerturbation)
    for choice in (
        {"rounds": 3},
        {"mechanism": dp.Laplace()},
        {"scale": "declared"},
        {"algorithm": dp.FederatedGradient(), "mechanism": "laplace"},
    ):
        assert not isinstance(method(own, **choice), dp.ObjectivePerturbation)


def test_many_agents_take_steps():
    """The mean of many minimizers is far from the optimum: each has few records of its own."""
    assert isinstance(method(problem(4)), dp.ObjectivePerturbation)
    assert isinstance(method(problem(5)), dp.FederatedGradient)


def test_loud_linear_terms_give_way_to_steps():
    """At epsilon 1, 40 records ended twice as far from the optimum as noisy steps."""
    assert isinstance(method(problem(1, 40)), dp.FederatedGradient)
    assert isinstance(method(problem(1, 40), epsilon=3.0), dp.ObjectivePerturbation)
    assert isinstance(method(problem(1, 400), epsilon=0.3), dp.ObjectivePerturbation)


def test_kinks_take_steps():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.zeros((20, 2)), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum(cp.pos(1 - X @ w)) + cp.sum_squares(w)), name="a")
    assert isinstance(method(dp.Problem([agent])), dp.FederatedGradient)


@pytest.mark.parametrize("factor", [0.01, 1.0, 100.0])
def test_the_unit_of_the_objective_changes_nothing(factor):
    w = cp.Variable(3, name="w")
    base = clinic(records(200), 0, w)
    scaled = dp.Agent(cp.Minimize(factor * base.objective.args[0]), name="clinic 0")
    one, other = method(dp.Problem([base])), method(dp.Problem([scaled]))
    assert other.regularization == pytest.approx(factor * one.regularization, rel=0.02)


def test_less_budget_takes_more_regularization():
    weights = [
        method(problem(rows=2000), epsilon=e).regularization for e in (0.1, 0.3, 1.0, 3.0, 10.0)
    ]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] > 10 * weights[-1]


def test_the_weight_leaves_room_for_noise():
    plan = problem(rows=4000, weight=0.0).plan(epsilon=0.05, delta=0)
    assert plan.agents[0].noise.linear.scale < 100 / 0.05
    # Where no weight leaves room, the largest is proposed, and the plan says what is missing.
    assert regularization(plan.agents, 1e-9, 1.0) == 256.0
