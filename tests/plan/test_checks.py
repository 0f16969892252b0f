"""Refusals of a plan name a way out, and the way out works."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import power_line


def user(name, cost, variable):
    d = dp.Private(np.ones(2), name=f"data of {name}", adjacency=dp.Within(0.1))
    return dp.Agent(cp.Minimize(cost(variable - d)), name=name)


def balance():
    """Agents with variables of their own."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = [user("a", cp.sum_squares, x), user("b", cp.sum_squares, y)]
    return dp.Problem(agents, coupling=[x + y == 1])


def two_blocks():
    """Users of one variable, and one agent without private data."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = [user(name, cp.sum_squares, x) for name in "ab"]
    return dp.Problem([*agents, dp.Agent(cp.Minimize(cp.norm1(y)), name="g")], coupling=[x == y])


def neither():
    """Users of one variable without an agent that has none."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = [user(name, cp.sum_squares, x) for name in "ab"]
    return dp.Problem([*agents, user("c", cp.sum_squares, y)], coupling=[x == y])


BUDGET = {"rounds": 2, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("problem", "method"), [(balance, dp.ResourceADMM), (two_blocks, dp.GradientADMM)]
)
def test_a_coupling_is_sent_to_the_method_that_takes_it(problem, method):
    with pytest.raises(dp.ModelError, match=rf"LinearizedADMM.*: .*dp\.{method.__name__}\(\)"):
        problem().plan(dp.LinearizedADMM(), **BUDGET)
    assert problem().plan(method(), **BUDGET).guarantee.kind == "worst-case"


def test_a_coupling_that_no_method_takes_is_sent_to_variables_of_each_agents_own():
    with pytest.raises(dp.ModelError, match=r"dp\.ResourceADMM\(\) after giving each agent"):
        neither().plan(dp.LinearizedADMM(), **BUDGET)
    for method in (dp.ResourceADMM(), dp.GradientADMM()):
        with pytest.raises(dp.ModelError):
            neither().plan(method, **BUDGET)


def test_an_agent_of_a_plan_is_found_by_its_name():
    plan = power_line().problem.plan(**BUDGET)
    assert plan.agent("end1") is plan.agents[1] and plan.agents[1].name == "end1"
    for wrong in ("nobody", 1):
        with pytest.raises(dp.ModelError, match=r"no agent of the plan.*'end0', 'end1'"):
            plan.agent(wrong)


def test_a_class_in_place_of_an_object_is_refused_in_words():
    model = power_line().problem
    with pytest.raises(dp.ModelError, match=r"OneShot is a class\. Call it: OneShot\(\)"):
        model.plan(dp.OneShot, epsilon=1.0, delta=1e-6)
