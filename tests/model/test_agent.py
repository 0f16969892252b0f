"""Agents: what is found in them, and what is refused with which words."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from tests.model.agents import SECRETS, agent, load, x, y


def test_an_agent_finds_its_variables_and_private_objects():
    d, e, price = load(), load("e", shape=3), cp.Parameter(2, name="price")
    a = dp.Agent(
        cp.Minimize(cp.sum_squares(x - d) + price @ x + cp.sum_squares(y[1:] - e[1:])), [x <= 1]
    )
    assert {p.id for p in a.private} == {d.id, e.id}
    assert [v.id for v in a.variables] == [x.id, y.id]
    assert a.layout.labels() == ["x[0]", "x[1]", "y[1]", "y[2]"]
    assert a.is_dcp()


def test_variables_of_constraints_count():
    a = dp.Agent(cp.Minimize(cp.sum(x)), [y[0] >= 0])
    assert [v.id for v in a.variables] == [x.id, y.id]


def test_a_maximized_objective_is_turned_round():
    a = dp.Agent(cp.Maximize(cp.sum(x)))
    x.value = np.array([1.0, 2.0])
    assert a.cost.value == -3.0
    assert agent("n", cp.sum(x)).cost.value == 3.0
    assert not dp.Agent(cp.Maximize(cp.sum_squares(x))).is_dcp()


def test_a_nested_list_of_constraints_gets_the_line_that_joins_lists():
    x = cp.Variable(name="x")
    with pytest.raises(dp.ModelError, match=r"is a list.*Write one list.*\[\*first, \*second\]"):
        dp.Agent(cp.Minimize(x), [[x >= 0], [x <= 1]], name="a")


def test_constraints_are_kept_in_order():
    rows = [x >= 0, x <= 1]
    assert agent("n", constraints=iter(rows)).constraints == tuple(rows)


def test_nonconvex_parts_are_allowed_and_told():
    bent = agent("north", cp.sum(cp.power(x, 2) / (1 + cp.power(x, 2))))
    bad_set = agent("south", constraints=[cp.norm(x) >= 1])
    assert not bent.is_dcp() and not bad_set.is_dcp()
    assert not dp.Problem([bent, agent("east")]).is_dcp()
    assert dp.Problem([agent("north"), agent("east")]).is_dcp()


@pytest.mark.parametrize("objective", [cp.sum_squares(x), None, 3.0, "min"], ids=str)
def test_objective_has_a_direction(objective):
    with pytest.raises(dp.ModelError, match=r"objective of agent 'north' is a .*cp\.Minimize"):
        dp.Agent(objective, name="north")


@pytest.mark.parametrize("wrong", [True, np.bool_(False), 3, x], ids=str)
def test_constraints_are_cvxpys(wrong):
    with pytest.raises(dp.ModelError, match=r"Constraint 1 of agent 'north' is a .*leave it out"):
        agent("north", constraints=[x >= 0, wrong])


def test_inequalities_may_hold_private_data():
    d, e = load(), dp.Private(np.ones(2), name="cap", adjacency=dp.Within(0.1))
    north = agent("north", cp.sum_squares(x - d), constraints=[x >= 0, x <= e + d])
    assert north.private == (d, e) and [k for k, _ in north.limits] == [1]
    assert north.public_constraints == [north.constraints[0]]


@pytest.mark.parametrize("given", [{}, {"violation_probability": 0.1}])
def test_equalities_with_private_data_are_refused_for_the_true_data(given):
    d = load()
    problem = dp.Problem([agent("north", constraints=[x >= 0, x == d])])
    with pytest.raises(dp.PrivacyError) as caught:
        problem.plan(epsilon=1.0, delta=1e-6, **given)
    text = str(caught.value)
    parts = ("Constraint 1", "'north'", "'load'", "reserve >= cp.sum(load)", "'released'")
    parts = (*parts, "p = B @ theta + load")
    for part in (*parts, "dp.Agent(..., recourse=[constraint])"):
        assert part in text


def test_constraints_with_private_data_hold_a_variable():
    with pytest.raises(dp.PrivacyError, match="no variable. Leave it out: no choice"):
        agent("north", constraints=[load() <= 3])


def test_public_parameters_may_bound_the_set():
    cap = cp.Parameter(2, name="cap")
    assert agent("north", constraints=[x <= cap]).private == ()


def test_an_agent_has_variables():
    with pytest.raises(dp.ModelError, match="Agent 'north' has no variables"):
        agent("north", cp.sum_squares(load()))


@pytest.mark.parametrize("method", [dp.OneShot(), dp.ADMM(), dp.OneShot(as_written=True)])
@pytest.mark.parametrize(
    ("attributes", "columns"),
    [({"diag": True}, [0, 1, 2]), ({"sparsity": [(0, 1, 2), (1, 2, 0)]}, [1, 2, 0])],
    ids=["diag", "sparsity"],
)
@pytest.mark.filterwarnings("error")
def test_entries_that_attributes_exclude_stay_zero(method, attributes, columns):
    Z = cp.Variable((3, 3), name="Z", **attributes)
    d = dp.Private(np.arange(1.0, 4), adjacency=dp.Within(1e-6), name="d")
    cost = cp.Minimize(cp.sum_squares(Z @ np.ones(3) - d))
    problem = dp.Problem([dp.Agent(cost, [cp.abs(Z) <= 9], name="a")])
    rounds = {} if method.fixed_rounds else {"rounds": 50}
    result = problem.solve(method, release="once", epsilon=1.0, delta=1e-6, seed=0, **rounds)
    best = np.zeros((3, 3))
    best[range(3), columns] = [1.0, 2.0, 3.0]
    assert result[Z] == pytest.approx(best, abs=1e-3)
    assert np.abs(result[Z][best == 0]).max() < 1e-9


def test_sparse_matrices_may_be_shared_and_meet_private_constraints():
    Z = cp.Variable((2, 2), name="Z", sparsity=[(0, 1), (1, 0)])
    d = dp.Private(np.ones(2), adjacency=dp.Within(1e-3), name="d")
    north = dp.Agent(cp.Minimize(cp.sum(Z)), [Z @ np.ones(2) >= d, Z <= 9], name="north")
    south = dp.Agent(cp.Minimize(cp.sum_squares(Z)), name="south")
    plan = dp.Problem([north, south]).plan(epsilon=1.0, delta=1e-6, violation_probability=0.01)
    value = plan.run(seed=0)[Z]
    assert (value.sum(axis=1) >= 1).all() and value.sum() < 2.1
    assert np.abs(np.diag(value)).max() < 1e-9


@pytest.mark.parametrize("kind", ["boolean", "integer"])
def test_local_steps_take_no_integers(kind):
    z = cp.Variable(2, name="z", bounds=None if kind == "boolean" else [0, 3], **{kind: True})
    problem = dp.Problem([agent("north", cp.sum_squares(z - load()))])
    with pytest.raises(dp.ModelError, match=r"'z' of agent 'north'.*dp\.OneShot\(\)"):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("attribute", ["nonneg", "nonpos", "PSD", "NSD", "symmetric"])
def test_attributes_that_fit_are_kept(attribute):
    Z = cp.Variable((2, 2), **{attribute: True})
    assert agent("north", cp.sum(Z)).layout.size == 4


def test_bounds_are_kept():
    z = cp.Variable(2, bounds=[0, 1])
    assert agent("north", cp.sum(z)).layout.size == 2


def test_bounds_of_variables_are_public():
    z = cp.Variable(2, bounds=[load(data=SECRETS), None])
    with pytest.raises(dp.PrivacyError, match="'load'"):
        agent("north", cp.sum_squares(z))


def test_public_bounds_of_variables_take_their_values():
    low = cp.Parameter(2, value=[1.0, 2.0])
    z = cp.Variable(2, bounds=[low, None])
    problem = dp.Problem([agent("north", cp.sum_squares(z))])
    problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=2).run(verbose=False)
    assert (z.value >= low.value - 1e-6).all()


# -- shapes that broadcast to all pairs ------------------------------------------------------------


def test_finite_sets_are_refused_by_name_in_recourse_and_by_steps():
    words = r"^Constraint 1 (in recourse= )?of agent 'north' is a cp\.FiniteSet.*not convex.*hull"
    limits, cost = [x >= 0, cp.FiniteSet(x, [0, 1, 2])], cp.Minimize(cp.sum_squares(x))
    with pytest.raises(dp.ModelError, match=words):
        dp.Agent(cost, recourse=limits, name="north")
    problem = dp.Problem([dp.Agent(cost, limits, name="north")])
    with pytest.raises(dp.ModelError, match=words):
        problem.plan(dp.LinearizedADMM(), mechanism=None)


def test_indicators_are_refused_with_what_to_write():
    cost = cp.Minimize(cp.sum_squares(x) + cp.transforms.indicator([x >= 1]))
    with pytest.raises(dp.ModelError, match=r"dp\.Agent\(objective, \[x >= 0\]\)"):
        dp.Agent(cost, name="north")


class Series:
    """As of pandas, whose tables take comparisons over."""

    __array_ufunc__ = None

    def __ge__(self, other):
        return self

    def to_numpy(self):
        return np.ones(2)


def test_tables_on_the_left_of_a_comparison_are_told_to_go_right():
    words = "Constraint 0 of agent 'north' is a Series, .*variable first, x <= series, or .*numpy"
    with pytest.raises(dp.ModelError, match=words):
        agent("north", constraints=[Series() >= x])
    assert agent("north", constraints=[Series().to_numpy() >= x]).constraints


N = 5
v, w = cp.Variable(N, name="v"), cp.Variable(2, name="w")
TABLE = np.full((N, 2), 0.1)
ROWS = dp.Rows(1.0, records="person")
X = dp.Private(TABLE, name="X", adjacency=ROWS)
labels = dp.Private(np.full((N, 1), 0.1), name="labels", adjacency=ROWS)
flow = dp.Private(np.full((N, 1), 0.5), name="flow", adjacency=dp.Within(0.1))
wide = dp.Private(np.full((1, N), 0.5), name="wide", adjacency=dp.Within(0.1))
flat = dp.Private(np.full(N, 0.5), name="flat", adjacency=dp.Within(0.1))
standing = cp.reshape(v, (N, 1), order="F")

PAIRS = {
    "squares": ("labels", cp.sum_squares(X @ w - labels)),
    "turned": ("labels", cp.sum_squares(labels - X @ w)),
    "product": ("labels", cp.sum(cp.logistic(-cp.multiply(labels, X @ w)))),
    "quotient": ("flow", cp.sum(flow / (1 + cp.square(v)))),
    "maximum": ("labels", cp.sum(cp.maximum(X @ w, labels, 0))),
    "huber": ("labels", cp.sum(cp.huber(X @ w - labels))),
    "relative entropy": ("flow", cp.sum(cp.kl_div(v, flow))),
    "public labels": ("X", cp.sum_squares(X @ w - TABLE[:, :1])),
    "public features": ("labels", cp.sum_squares(TABLE @ w - labels)),
    "inside": ("labels", cp.sum_squares(2 * (X @ w + 1 - labels) / 3)),
    "within": ("flow", cp.sum_squares(v - flow)),
    "two rows of a table": ("wide", cp.sum_squares(standing - wide)),
    "transposed": ("flow", cp.sum_squares(standing - flow.T)),
    "a new axis": ("flat", cp.sum_squares(v - flat[:, None])),
}
MEANT = {
    "flattened": cp.sum_squares(v - flow.flatten(order="F")),
    "a column": cp.sum_squares(v - flow[:, 0]),
    "labels, flattened": cp.sum_squares(X @ w - labels.flatten(order="F")),
    "columns": cp.sum_squares(standing - flow),
    "a line": cp.sum_squares(v - wide),
    "outer": cp.sum_squares(cp.outer(v, np.ones(N)) - wide),
    "outer, of a column": cp.sum_squares(cp.outer(flow[:, 0], np.ones(N)) - v),
    "as the error says": cp.sum_squares(cp.outer(flow.flatten(order="F"), np.ones(N)) - v),
    "outer product": cp.sum(cp.multiply(np.ones((N, N)), cp.outer(flat, v))),
    "written out": cp.sum_squares(flow @ np.ones((1, N)) - v),
    "beside a matrix": cp.sum_squares(np.eye(N) + v - flow),
    "a sparse column": cp.sum_squares(np.eye(N) + v + sp.csr_array(np.eye(N)[:, :1]) @ wide),
    "another length": cp.sum_squares(flow - w),
    "a scalar": cp.sum_squares(flow - v[0]),
}


@pytest.mark.parametrize("case", PAIRS)
def test_terms_that_broadcast_to_all_pairs_are_refused(case):
    name, cost = PAIRS[case]
    words = (
        rf"^Agent 'north' .*private '{name}'.*\(5, 5\)\. .*flatten\(order='F'\).*"
        r"cp\.outer\(a\.flatten\(order='F'\), np\.ones\(5\)\) in place of a column a\.$"
    )
    for objective in (cp.Minimize(cost), cp.Maximize(-cost)):
        with pytest.raises(dp.ModelError, match=words):
            dp.Agent(objective, name="north")


@pytest.mark.parametrize("where", ["constraints", "recourse"])
@pytest.mark.parametrize("constraint", [v >= flow, standing >= wide, cp.abs(v - flow) <= 1])
def test_constraints_that_broadcast_to_all_pairs_are_refused(where, constraint):
    with pytest.raises(dp.ModelError, match=r"^Agent 'north' .*\(5, 5\)\. Write (flow|wide)\."):
        dp.Agent(cp.Minimize(cp.sum(v)), **{where: [constraint]}, name="north")


@pytest.mark.parametrize("case", MEANT)
def test_terms_that_are_meant_to_pair_are_taken(case):
    assert dp.Agent(cp.Minimize(MEANT[case]), name="north").private


def test_public_terms_broadcast_as_in_cvxpy():
    assert agent("north", cp.sum_squares(v - np.ones((N, 1))) + cp.sum_squares(v - flat)).private


def test_what_a_refusal_says_to_write_has_the_right_optimum():
    for cost in (MEANT["flattened"], MEANT["a column"]):
        result = dp.Problem([dp.Agent(cp.Minimize(cost))]).solve(mechanism=None)
        assert result.solution["v"] == pytest.approx(np.full(N, 0.5), abs=1e-6)
