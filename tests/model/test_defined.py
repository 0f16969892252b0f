"""Variables that private equalities define: which ones, and the same model with expressions."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.defined import with_defined

DEMAND = np.array([2.0, 3.0, 1.0, 2.5])
B = np.array([[2.0, -1, -1, 0], [-1, 2, 0, -1], [-1, 0, 2, -1], [0, -1, -1, 2]])
u = cp.Variable(4, name="u", nonneg=True)
d = dp.Private(DEMAND, name="d", adjacency=dp.Within(0.05))
PLAN = {"epsilon": 1.0, "delta": 1e-6, "violation_probability": 0.1}


def agent(constraints, cost=None):
    return dp.Agent(cp.Minimize(cp.sum(u) if cost is None else cost), constraints, name="shop")


def names(constraints, *others):
    return with_defined(dp.Problem([agent([*constraints, u <= 9]), *others]))[1]


def stocks(**kinds):
    s = cp.Variable(5, name="s", **kinds)
    return s, [s[0] == 4, s[1:] == s[:-1] + u - d]


def test_the_plan_with_a_stock_is_that_with_running_sums():
    s, balance = stocks(bounds=[0, np.inf])
    defined = dp.Problem([agent(balance, cp.sum(u) + cp.sum_squares(s))]).plan(**PLAN)
    sums = 4 + cp.cumsum(u - d)
    cost = cp.sum(u) + cp.sum_squares(sums) + 16
    written = dp.Problem([agent([sums >= 0], cost)]).plan(**PLAN)
    margins = [p.program.kept[0].margins for p in (defined, written)]
    assert margins[0] == pytest.approx(margins[1])


def test_owners_compute_defined_variables_and_nobody_else_sees_them():
    s, balance = stocks(nonneg=True)
    shop = agent(balance)
    problem = dp.Problem([shop])
    plan = pickle.loads(pickle.dumps(problem.plan(**PLAN)))
    assert "1 variable (s) follows from the decision" in str(plan).replace("\n             ", " ")
    result = problem.plan(**PLAN).run(seed=1)
    with pytest.raises(dp.ModelError, match=r"Variable 's' follows .*result\.recourse\('shop'\)"):
        result[s]
    mine = result.recourse(shop)
    expected = 4 + np.cumsum(np.concatenate([[0], mine[u] - DEMAND]))
    assert mine[s] == pytest.approx(expected, abs=1e-6) and "  s  " in str(mine)
    assert dp.not_private.violation(problem, result.solution) == 0
    assert dp.not_private.objective(problem, result.solution) == pytest.approx(result[u].sum())


def test_variables_are_found_whatever_the_equalities_look_like():
    p, theta = cp.Variable(4, name="p", bounds=[0, 9]), cp.Variable(4, name="theta")
    assert names([p == B @ theta + d, theta[0] == 0]) == ("p",)
    assert names([u - d == B @ theta + p]) == ("p",)
    total = cp.Variable(name="total")
    assert names([total - cp.sum(cp.multiply(d, u)) == 0]) == ("total",)
    _, balance = stocks()
    assert names([*balance, total == cp.sum(d)]) == ("s", "total")


def test_other_variables_stay_and_their_equalities_are_refused():
    p, q = cp.Variable(4, name="p"), cp.Variable(4, name="q", integer=True)
    shared = dp.Agent(cp.Minimize(cp.sum_squares(p)), name="other")
    assert names([p == d], shared) == ()
    assert names([q == d]) == ()
    assert names([cp.multiply(d, p) == 1]) == ()  # p depends on data that may be zero
    assert names([cp.sum(p) == cp.sum(d)]) == ()  # too few equalities
    assert names([p == d, p <= 3]) == ()  # nothing is left to decide
    whole = cp.Variable((2, 2), name="W", PSD=True)
    assert names([cp.vec(whole, order="F") == d]) == ()
    with pytest.raises(dp.PrivacyError, match="is an equality with private 'd'"):
        dp.Problem([agent([cp.sum(u) == cp.sum(d)])]).plan(**PLAN)


def test_infinite_bounds_are_none():
    _, balance = stocks(bounds=[np.array([0, 0, -np.inf, 0, 0]), np.full(5, np.inf)])
    twin, _ = with_defined(dp.Problem([agent(balance)]))
    assert [c.size for c in twin.agents[0].constraints[2:]] == [4]
