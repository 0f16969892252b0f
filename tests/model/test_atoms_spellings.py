"""One function, many spellings: one normal form, the same values and the same bounds."""

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.atoms import spellings
from dpcvx.model.curvature import record_smoothness, smoothness
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import assign, difference_quotients, form_of

N, D, K = 6, 3, 2
w = cp.Variable(D, name="w")
W = cp.Variable((D, K), name="W")
v = cp.Variable(D + 1, name="v")
ROWS = {"adjacency": dp.Rows(1.0, records="person")}
X = dp.Private(shape=(N, D), name="X", **ROWS)
y = dp.Private(shape=N, name="y", **ROWS)
Y = dp.Private(shape=(N, K), name="Y", **ROWS)
r, margin = X @ w - y, cp.multiply(y, X @ w)
ONES = np.ones((N, 1))


def every(loss):
    """A sum of losses of one record after the other."""
    return sum(loss(i) for i in range(N))


SQUARES = {
    "sum_squares": cp.sum_squares(r),
    "sum of squares": cp.sum(cp.square(r)),
    "power": cp.sum(cp.power(r, 2)),
    "mean": N * cp.mean(r**2),
    "share": N * ((1 / N) * cp.sum_squares(r)),
    "norm": cp.norm(r) ** 2,
    "square of norm": cp.square(cp.norm(r)),
    "norm2": cp.norm2(r) ** 2,
    "pnorm": cp.power(cp.pnorm(r, 2), 2),
    "inner product": r @ r,
    "transposed": r.T @ r,
    "row and column": cp.sum(r[None, :] @ r[:, None]),
    "quadratic form": cp.quad_form(r, np.eye(N)),
    "sparse quadratic form": 0.5 * cp.quad_form(r, 2 * np.eye(N)),
    "product": cp.sum(cp.multiply(r, r)),
    "equal trees": (X @ w - y) @ (X @ w - y),
    "magnitudes": cp.sum(cp.abs(r) ** 2),
    "larger of both": cp.sum(cp.square(cp.maximum(r, -r))),
    "column": cp.sum_squares(r[:, None]),
    "Frobenius": cp.norm(cp.reshape(r, (2, 3), order="F"), "fro") ** 2,
    "quad_over_lin": 2 * cp.quad_over_lin(r, 2),
    "loop over residuals": every(lambda i: r[i] ** 2),
    "list": cp.sum([cp.square(r[i]) for i in range(N)]),
    "stacked": cp.sum(cp.hstack([cp.square(r[i]) for i in range(N)])),
    "loop over records": every(lambda i: (X[i] @ w - y[i]) ** 2),
    "loop from the left": every(lambda i: cp.square(w @ X[i] - y[i])),
    "loop of norms": every(lambda i: cp.norm(X[i : i + 1] @ w - y[i]) ** 2),
    "reversed loop": sum(cp.sum_squares(X[i] @ w - y[i]) for i in reversed(range(N))),
    "blocks": sum(cp.sum_squares(r[i : i + 2]) for i in range(0, N, 2)),
    "blocks of records": sum(cp.sum_squares(X[i : i + 2] @ w - y[i : i + 2]) for i in (0, 2, 4)),
    "rows": cp.sum_squares(cp.sum(cp.multiply(X, w[None, :]), axis=1) - y),
    "loop of sums": every(lambda i: (cp.sum(cp.multiply(X[i], w)) - y[i]) ** 2),
}
LOGISTIC = {
    "vectorized": cp.sum(cp.logistic(-margin)),
    "mean": N * cp.mean(cp.logistic(-margin)),
    "negative labels": cp.sum(cp.logistic(cp.multiply(-y, X @ w))),
    "loop": every(lambda i: cp.logistic(-margin[i])),
    "loop over records": every(lambda i: cp.logistic(-y[i] * (X[i] @ w))),
    "scaled records": every(lambda i: cp.logistic(-(y[i] * X[i]) @ w)),
    "scaled features": cp.sum(cp.logistic(-cp.multiply(y[:, None], X) @ w)),
    "diagonal": cp.sum(cp.logistic(-cp.diag(y) @ X @ w)),
    "diagonal of scores": cp.sum(cp.logistic(-cp.diag(y) @ (X @ w))),
    "vstack": every(lambda i: cp.log_sum_exp(cp.vstack([0, -margin[i]]))),
    "hstack": every(lambda i: cp.log_sum_exp(cp.hstack([-margin[i], 0]))),
    "columns": cp.sum(cp.log_sum_exp(cp.vstack([np.zeros(N), -margin]), axis=0)),
    "rows": cp.sum(cp.log_sum_exp(cp.hstack([0 * ONES, -margin[:, None]]), axis=1)),
}
HINGE = {
    "pos": cp.sum(cp.pos(1 - margin)),
    "maximum": cp.sum(cp.maximum(1 - margin, 0)),
    "mean": N * cp.mean(cp.pos(1 - margin)),
    "loop": every(lambda i: cp.pos(1 - y[i] * (X[i] @ w))),
    "stacked": every(lambda i: cp.max(cp.hstack([1 - margin[i], 0]))),
}
HUBER = {
    "vectorized": cp.sum(cp.huber(r, 0.5)),
    "mean": N * cp.mean(cp.huber(r, 0.5)),
    "loop": every(lambda i: cp.huber(X[i] @ w - y[i], 0.5)),
}
MAGNITUDES = {
    "norm1": cp.norm1(r),
    "norm": cp.norm(r, 1),
    "pnorm": cp.pnorm(r, 1),
    "abs": cp.sum(cp.abs(r)),
    "larger of both": cp.sum(cp.maximum(r, -r)),
    "loop": every(lambda i: cp.abs(X[i] @ w - y[i])),
    "loop of norms": every(lambda i: cp.norm(r[i : i + 1])),
}
CUBES = {
    "abs": cp.sum(cp.abs(r) ** 3),
    "norm": cp.norm(r, 3) ** 3,
    "loop": every(lambda i: cp.power(cp.abs(X[i] @ w - y[i]), 3)),
}
SOFTMAX = {
    "vectorized": cp.sum(cp.log_sum_exp(X @ W - Y, axis=1)),
    "loop": every(lambda i: cp.log_sum_exp(X[i] @ W - Y[i])),
    "from the left": every(lambda i: cp.log_sum_exp(W.T @ X[i] - Y[i])),
}
INTERCEPT = {
    "column": cp.sum(cp.logistic(cp.hstack([X, ONES]) @ v - y)),
    "beside": cp.sum(cp.logistic(X @ v[:D] + v[D] - y)),
    "loop": every(lambda i: cp.logistic(X[i] @ v[:D] + v[D] - y[i])),
    "loop of columns": every(lambda i: cp.logistic(cp.hstack([X[i], 1]) @ v - y[i])),
    "column in front": cp.sum(cp.logistic(cp.hstack([ONES, X]) @ v[[D, 0, 1, 2]] - y)),
}
COUNTS = {
    "multiplied": cp.sum(cp.exp(X @ w)) - cp.sum(cp.multiply(y, X @ w)),
    "inner product": cp.sum(cp.exp(X @ w)) - y @ (X @ w),
    "from the right": cp.sum(cp.exp(X @ w)) - (X @ w) @ y,
    "row and column": cp.sum(cp.exp(X @ w)) - cp.sum(y[None, :] @ (X @ w)[:, None]),
}
FAMILIES = {
    "squares": SQUARES, "logistic": LOGISTIC, "hinge": HINGE, "Huber": HUBER,
    "magnitudes": MAGNITUDES, "softmax": SOFTMAX, "cubes": CUBES, "counts": COUNTS,
}  # fmt: skip
# Of one normal form but for the order of its parts.
LOOSER = {
    "squares": {
        "other sign": cp.sum_squares(y - X @ w),
        "from the left": cp.sum_squares(w @ X.T - y),
        "stacked data": cp.sum_squares(cp.hstack([X, y[:, None]]) @ cp.hstack([w, -1])),
        "columns": cp.sum_squares(sum(X[:, k] * w[k] for k in range(D)) - y),
        "two blocks": cp.sum_squares(X[:, :2] @ w[:2] + X[:, 2:] @ w[2:] - y),
        "entries": every(lambda i: (sum(X[i, k] * w[k] for k in range(D)) - y[i]) ** 2),
        "both signs": -cp.sum(-cp.square(r)),
    },
    "logistic": {"other order": cp.sum(cp.logistic(-cp.multiply(X @ w, y)))},
    "hinge": {
        "neg": cp.sum(cp.neg(margin - 1)),
        "minimum": -cp.sum(cp.minimum(0, margin - 1)),
        "zero first": cp.sum(cp.maximum(0, 1 - margin)),
    },
    "intercept": INTERCEPT,
}
SAME = [(family, case) for family, cases in FAMILIES.items() for case in cases]
ALL = [*SAME, *((family, case) for family, cases in LOOSER.items() for case in cases)]


def spelled(family, case):
    return {**FAMILIES.get(family, {}), **LOOSER.get(family, {})}[case]


def first(family):
    return next(iter({**FAMILIES.get(family, {}), **LOOSER.get(family, {})}.values()))


def formed(expression):
    return form_of(spellings.plain(expression))


def numbers(form, made):
    """Data of the private objects of a form, by name, and a point."""
    drawn = np.random.default_rng(made)
    values = {"X": drawn.normal(size=(N, D)), "y": drawn.normal(size=N), "Y": drawn.random((N, K))}
    return values, [np.ravel(values[spec.name], order="F") for spec in form.private]


def unit_ball(n):
    return Extent(-np.ones(n), np.ones(n), ((np.arange(n), 1.0),))


@pytest.mark.parametrize(("family", "case"), SAME)
def test_a_spelling_has_the_normal_form_of_its_family(family, case):
    one, other = (formed(e)[1] for e in (first(family), spelled(family, case)))
    assert one.digest() == other.digest()


@pytest.mark.parametrize(("family", "case"), ALL)
def test_a_spelling_has_the_values_that_cvxpy_computes(family, case):
    expression = spelled(family, case)
    layout, form = formed(expression)
    for made in range(3):
        values, data = numbers(form, made)
        bound, x = form.bind(data), np.random.default_rng(made + 9).normal(size=form.n)
        constants = {id(p): cp.Constant(values[p.name()]) for p in expression.parameters()}
        inserted = expression.tree_copy(constants)
        assign(inserted, layout, x)
        assert bound.value(x) == pytest.approx(float(inserted.value), rel=1e-10)
        reference = formed(first(family))[1]
        slope = reference.bind(numbers(reference, made)[1]).gradient(x)
        np.testing.assert_allclose(bound.gradient(x), slope, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("family", "case"), ALL)
def test_a_spelling_has_the_bounds_of_its_family(family, case):
    found = []
    for expression in (first(family), spelled(family, case)):
        form = formed(expression)[1]
        known = derive(form, "north", lambda form=form: unit_ball(form.n))
        clipped = derive(form, "north", lambda form=form: unit_ball(form.n), clip=0.5)
        constants = [smoothness(form), record_smoothness(form)]
        near = known.near(2, np.full(form.n, 0.2))
        bounds = [known.bound(1).value, known.bound(2).value, near, clipped.bound(2).value]
        found.append([*bounds, *(np.inf if c is None else c for c in constants)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


S = dp.Private(shape=(D, D), name="S", **ROWS)
u = dp.Private(shape=D, name="u", **ROWS)
SQUARE_TABLES = {
    "rows": cp.multiply(u[:, None], S) @ w,
    "columns": cp.multiply(u[None, :], S) @ w,
    "columns that broadcast": cp.multiply(u, S) @ w,
    "several outputs": cp.multiply(u[:, None], S) @ W,
    "diagonal": cp.diag(u) @ S @ W,
    "diagonal behind": S @ cp.diag(u) @ w,
    "scaled by two": (2 * S) @ (w - 1) - S @ w / 4,
    "sum of columns": cp.sum(cp.multiply(S, w[:, None]), axis=0),
    "columns of others": S[:, 0] * w[1] + S[:, 1] * w[0],
    "public columns": cp.hstack([S[:, :1], np.eye(D)]) @ v,
    "shifted": (S - 1) @ w,
    "fixed rows": S @ cp.hstack([w[:2], 3]),
}


@pytest.mark.parametrize("case", SQUARE_TABLES)
def test_a_square_table_has_the_values_that_cvxpy_computes(case):
    expression = cp.sum(cp.logistic(SQUARE_TABLES[case]))
    layout, form = formed(expression)
    for made in range(2):
        drawn = np.random.default_rng(made)
        values = {"S": drawn.normal(size=(D, D)), "u": drawn.normal(size=D)}
        bound = form.bind([np.ravel(values[s.name], order="F") for s in form.private])
        x = drawn.normal(size=form.n)
        inserted = expression.tree_copy(
            {id(p): cp.Constant(values[p.name()]) for p in expression.parameters()}
        )
        assign(inserted, layout, x)
        assert bound.value(x) == pytest.approx(float(inserted.value), rel=1e-10)
        quotients = difference_quotients(bound.value, x)
        np.testing.assert_allclose(bound.gradient(x), quotients, rtol=1e-6, atol=1e-8)


REGULARIZERS = {
    "squares": [
        cp.sum_squares(w), cp.norm(w) ** 2, w @ w, w.T @ w, cp.quad_form(w, np.eye(D)),
        w.T @ np.eye(D) @ w, cp.sum(cp.multiply(w, w)), cp.norm(w, 2) ** 2,
    ],
    "magnitudes": [cp.norm1(w), cp.norm(w, 1), cp.sum(cp.abs(w)), cp.pnorm(w, 1)],
    "weighted": [cp.quad_form(w, np.diag([1.0, 2, 0])), np.array([1.0, 2, 0]) @ cp.square(w)],
}  # fmt: skip


@pytest.mark.parametrize("family", REGULARIZERS)
def test_regularizers_have_one_normal_form(family):
    assert len({formed(term)[1].digest() for term in REGULARIZERS[family]}) == 1


@pytest.mark.parametrize("case", ["inner product", "transposed", "equal trees", "product"])
def test_squares_that_cvxpy_does_not_take_for_convex_are(case):
    assert not SQUARES[case].is_dcp()
    agent = dp.Agent(cp.Minimize(SQUARES[case]))
    assert agent.is_dcp() and agent.objective.args[0] is SQUARES[case]
    assert not dp.Agent(cp.Maximize(SQUARES[case])).is_dcp()


def test_an_agent_that_is_copied_without_data_keeps_its_spelling():
    data = dp.Private(np.ones(D), adjacency=dp.Within(1.0), name="data")
    agent = dp.Agent(cp.Minimize((w - data) @ (w - data)))
    twin = dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6).problem.agents[0]
    assert (twin.is_dcp() and twin.cost.parameters() != [data]) or twin is agent


free = cp.Parameter(D, name="free")
DIFFERENT = {
    "another vector": r @ (X @ w - 2 * y),
    "another sign": r @ (y - X @ w),
    "another norm": cp.norm(r, 1) ** 2,
    "another power": cp.norm(r) ** 3,
    "a matrix that is not diagonal": cp.quad_form(w, np.eye(D) + 0.1),
    "an indefinite matrix": cp.quad_form(w, np.diag([1.0, -1, 1])),
    "a parameter that may be set later": (w - free) @ (w - free),
    "a denominator that moves": cp.quad_over_lin(w, v[0]),
    "several axes": cp.sum(cp.square(X @ W), axis=0)[0],
    "a part of the entries": cp.sum(cp.maximum(r, -2 * r)),
    "data alone": cp.norm(y) ** 2,
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_not_the_same_function_stays_as_it_is(case):
    assert spellings.plain(DIFFERENT[case]) is DIFFERENT[case]


UNLIKE = {
    "records twice": cp.sum_squares(X @ w) + cp.sum_squares(X[:2] @ w),
    "two sides": cp.sum(cp.pos(r)) + cp.sum(cp.pos(-r)),
    "two points": cp.sum(cp.logistic(X @ w)) + cp.sum(cp.logistic(X @ v[:D])),
    "two objects": cp.sum(cp.logistic(X @ w)) + cp.sum(cp.logistic(Y @ w[:K])),
    "public terms": cp.sum(cp.logistic(w)) + cp.sum(cp.logistic(v)),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_atoms_that_read_the_same_entries_are_not_stacked(case):
    outer = [a.rule.name for a in formed(UNLIKE[case])[1].atoms if a.rule.product is None]
    assert len(outer) == 2


def test_weights_that_differ_stay_with_their_records():
    form = formed(every(lambda i: (i + 1) * (X[i] @ w - y[i]) ** 2))[1]
    expected = formed(np.arange(1.0, N + 1) @ cp.square(r))[1]
    assert form.digest() == expected.digest()


@settings(max_examples=15, deadline=None)
@given(
    st.permutations(range(N)),
    st.sets(st.integers(1, N - 1), min_size=1),
    st.sampled_from([1.0, 0.5, 8.0]),
)
def test_records_in_any_blocks_and_any_order_have_one_form(order, cuts, scale):
    ends = [0, *sorted(cuts), N]
    blocks = [list(order[a:b]) for a, b in itertools.pairwise(ends)]
    loss = scale * sum(cp.sum(cp.logistic(X[rows] @ w - y[rows])) for rows in blocks)
    assert formed(loss)[1].digest() == formed(scale * cp.sum(cp.logistic(X @ w - y)))[1].digest()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_an_intercept_counts_as_a_column_of_ones(made):
    # The bound of [x, 1] (w, b) on the unit ball is sqrt(2), and is attained.
    drawn = np.random.default_rng(made)
    form = formed(cp.sum(cp.exp(X @ v[:D] + v[D])))[1]
    (task,) = derive(form, "north", lambda: unit_ball(form.n)).records
    bound = task.largest(2, unit_ball(form.n))
    assert bound == pytest.approx(np.exp(np.sqrt(2)) * np.sqrt(2))
    record, point = drawn.normal(size=D), drawn.normal(size=D + 1)
    row, point = np.append(record / np.linalg.norm(record), 1), point / np.linalg.norm(point)
    assert np.linalg.norm(np.exp(row @ point) * row) <= bound * (1 + 1e-9)
