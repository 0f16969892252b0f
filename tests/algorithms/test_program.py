"""What a problem is compiled to: constraints that have no projection are refused."""

import cvxpy as cp
import pytest

import dpcvx as dp


def test_a_constraint_that_is_not_convex_is_named_by_its_agent_and_its_place():
    x = cp.Variable(2, name="x")
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x)), [x[0] <= 1, *more], name=name)
        for name, more in (("a", []), ("b", [cp.norm(x) >= 1]))
    ]
    match = "Constraint 1 of agent 'b' does not follow.*convex <= concave"
    with pytest.raises(dp.ModelError, match=match):
        dp.Problem(agents).plan(dp.ADMM(), mechanism=None, rounds=1)
