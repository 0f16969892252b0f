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
    for value in (result.solution, pickle.loads(pickle.dumps(result)).solution):
        for variable in (s, "s"):
            with pytest.raises(dp.ModelError, match=r"Variable 's' follows .*\('shop'\)\['s'\]"):
                value[variable]
        with pytest.raises(dp.ModelError, match="No agent holds a variable 't'"):
            value["t"]
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


def test_the_refusal_of_a_defining_equality_names_the_argument_that_it_needs():
    """Other equalities are refused with and without it, and it is not named."""
    _, balance = stocks(nonneg=True)
    budget = {key: PLAN[key] for key in ("epsilon", "delta")}
    with pytest.raises(dp.PrivacyError, match=r"1 variable \(s\)\. .* violation_probability=0\.01"):
        dp.Problem([agent(balance)]).plan(**budget)
    with pytest.raises(dp.PrivacyError, match="Write the variable that it defines") as error:
        dp.Problem([agent([*balance, cp.sum(u) == cp.sum(d)])]).plan(**budget)
    assert "violation_probability" not in str(error.value)


def test_infinite_bounds_are_none():
    _, balance = stocks(bounds=[np.array([0, 0, -np.inf, 0, 0]), np.full(5, np.inf)])
    twin, _ = with_defined(dp.Problem([agent(balance)]))
    assert [c.size for c in twin.agents[0].constraints[2:]] == [4]


def only(objective, constraints):
    """A problem of one agent that owns the data."""
    return dp.Problem([dp.Agent(objective, constraints, name="shop")])


def epigraphs():
    """Models in which a variable only bounds a function of the private data."""
    A = np.random.default_rng(0).normal(size=(4, 4))
    shed, over = (cp.Variable(4, nonneg=True, name=name) for name in ("shed", "over"))
    t, top, low = cp.Variable(name="t"), cp.Variable(name="top"), cp.Variable(name="low")
    sold, less = cp.Variable(4, nonneg=True, name="sold"), cp.Variable(4, nonpos=True, name="less")
    want = dp.Private(DEMAND, name="d", adjacency=dp.Within(0.05), nonneg=True)
    pay, size = cp.sum(u), cp.sum_squares(u)
    yield "shed", cp.Minimize(pay + 3 * cp.sum(shed)), [u + shed >= d, u <= 2]
    yield "square", cp.Minimize(pay + cp.sum_squares(shed)), [d - 2 * u <= 2 * shed, u <= 2]
    yield "norm", cp.Minimize(t + size), [cp.norm(A @ u - d) <= t, u <= 2]
    yield "two sides", cp.Minimize(t + size), [d - u <= t, u - d <= t, t >= cp.max(u) / 2]
    yield "entries", cp.Minimize(pay + 3 * cp.sum(shed)), [shed[k] >= d[k] - u[k] for k in range(4)]
    yield "public, too", cp.Minimize(pay + 3 * cp.sum(shed)), [shed >= d - u, shed >= 1 - u / 3]
    yield "below", cp.Maximize(low - size), [low <= d @ u - cp.sum(u**2)]
    yield "sold", cp.Maximize(3 * cp.sum(sold) - pay), [sold <= want, sold <= u, u <= 5]
    yield "less", cp.Maximize(3 * cp.sum(less) - pay), [less <= u - d, u <= 5]
    yield "two", cp.Minimize(t + top + size), [u - d <= t, cp.sum(u) <= top, cp.abs(d) - u <= top]
    s = cp.Variable(4, name="s")
    spill = [u + shed - over == d, u <= 3]
    yield "pair", cp.Minimize(pay + 3 * cp.sum(shed) + cp.sum_squares(over)), spill
    backlog = [shed[0] - over[0] == 1 + u[0] - d[0]]
    backlog += [shed[k] - over[k] == shed[k - 1] - over[k - 1] + u[k] - d[k] for k in range(1, 4)]
    yield "backlog", cp.Minimize(pay + cp.sum(shed) + 5 * cp.sum(over)), backlog
    state = [s[0] == 1 + u[0] - d[0], s[1:] == s[:-1] + u[1:] - d[1:], shed >= s, over >= -s]
    yield "states", cp.Minimize(pay + cp.sum(shed) + 5 * cp.sum(over)), state
    chain = [over >= u - d, top >= cp.sum(over), u >= 1]
    yield "chain", cp.Minimize(top + cp.sum_squares(u - 3)), chain


@pytest.mark.parametrize(("name", "objective", "constraints"), list(epigraphs()))
def test_a_variable_that_bounds_a_function_of_data_is_that_function(name, objective, constraints):
    """For random data: equal optima, and the expressions satisfy the user's constraints."""
    problem = only(objective, constraints)
    twin, gone = with_defined(problem, bounds=True)
    assert gone and not twin.agents[0].limits
    (private,) = problem.agents[0].private
    for seed in range(4):
        values = {private: np.random.default_rng(seed).uniform(0, 4, 4)}
        first = dp.not_private.joint_problem(problem, values)
        second = dp.not_private.joint_problem(twin, values)
        best = first.solve(solver=cp.CLARABEL)
        assert second.solve(solver=cp.CLARABEL) == pytest.approx(best, rel=1e-5, abs=1e-5)
        constants = {id(private): cp.Constant(values[private])}
        for variable, expression in twin.agents[0].defined:
            variable.save_value(expression.tree_copy(constants).value)
        assert max(np.max(c.violation()) for c in first.constraints) <= 1e-6


def test_a_variable_that_is_more_than_a_bound_stays():
    t, shed = cp.Variable(name="t"), cp.Variable(4, nonneg=True, name="shed")
    cost = cp.sum(u) + 3 * cp.sum(shed)

    def gone(objective, constraints, *others):
        problem = dp.Problem([dp.Agent(objective, [*constraints, u <= 9], name="shop"), *others])
        return with_defined(problem, bounds=True)[1]

    row = shed >= d - u
    assert gone(cp.Minimize(cost), [row]) == ("shed",)
    assert gone(cp.Minimize(cost - 4 * cp.sum(shed)), [row]) == ()  # more of it is cheaper
    assert gone(cp.Minimize(cp.sum(u) + cp.sum_squares(t - 1)), [t >= d - u]) == ()  # neither
    assert gone(cp.Minimize(cost), [row, shed <= 5]) == ()  # a bound on the other side
    assert gone(cp.Minimize(cost), [row, cp.sum(shed) == 5]) == ()
    assert gone(cp.Minimize(cost), [cp.multiply(d, shed) >= 1 - u]) == ()  # private factors
    assert gone(cp.Minimize(cost), [shed[:2] >= d[:2] - u[:2]]) == ()  # not all entries
    assert gone(cp.Minimize(cost), [shed + shed[::-1] >= d - u]) == ()
    other = dp.Agent(cp.Minimize(cp.sum_squares(shed)), name="other")
    assert gone(cp.Minimize(cost), [row], other) == ()
    capped = cp.Variable(4, bounds=[0, 5], name="capped")
    assert gone(cp.Minimize(cp.sum(u) + 3 * cp.sum(capped)), [capped >= d - u]) == ()
    whole = cp.Variable(4, integer=True, name="whole")
    assert gone(cp.Minimize(cp.sum(u) + 3 * cp.sum(whole)), [whole >= d - u]) == ()
    spill = cp.Variable(4, nonneg=True, name="spill")
    pair = shed - spill == d - u
    both = cost + cp.sum(spill)
    assert set(gone(cp.Minimize(both), [pair])) == {"shed", "spill"}
    assert gone(cp.Minimize(both), [pair, shed + spill <= 9]) in [("shed",), ("spill",)]
    assert gone(cp.Minimize(both - 2 * cp.sum(spill)), [pair]) in [("shed",), ("spill",)]
    later = dp.Agent(cp.Minimize(cost), [row, u <= 9], name="shop", recourse=[shed <= 5])
    assert with_defined(dp.Problem([later]), bounds=True)[1] == ()


def test_a_plan_needs_no_margin_for_what_the_decision_pays():
    """`shed` is what the true data leave open; its owner reads it from the recourse."""
    shed = cp.Variable(4, nonneg=True, name="shed")
    shared = cp.Variable(4, nonneg=True, name="power")
    need = dp.Agent(cp.Minimize(9 * cp.sum(shed)), [shared + shed >= d], name="need")
    maker = dp.Agent(cp.Minimize(cp.sum_squares(shared)), name="maker")
    problem = dp.Problem([need, maker])
    plan = problem.plan(epsilon=1.0, delta=1e-6)
    assert "1 variable (shed) follows from the decision" in str(plan).replace(
        "\n             ", " "
    )
    result = plan.run(seed=0)
    with pytest.raises(
        dp.ModelError, match=r"Variable 'shed' follows .*result\.recourse\('need'\)"
    ):
        result[shed]
    mine = result.recourse("need")
    assert mine[shed] == pytest.approx(np.maximum(DEMAND - result[shared], 0), abs=1e-6)
    assert dp.not_private.violation(problem, result.solution) == 0
    paid = np.sum(result[shared] ** 2) + 9 * mine[shed].sum()
    assert dp.not_private.objective(problem, result.solution) == pytest.approx(paid, rel=1e-5)


def test_a_hard_constraint_beside_a_soft_one_still_needs_its_promise():
    shed = cp.Variable(4, nonneg=True, name="shed")
    soft = only(cp.Minimize(cp.sum(u) + 3 * cp.sum(shed)), [u + shed >= d, cp.sum(u) <= cp.sum(d)])
    with pytest.raises(dp.PrivacyError, match="Constraint 0 of agent 'shop' contains private data"):
        soft.plan(epsilon=1.0, delta=1e-6)
    assert soft.plan(**PLAN).program.kept
