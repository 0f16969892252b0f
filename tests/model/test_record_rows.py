"""Objectives of some of the records: their numbers, their kinds, and what is not cut into rows."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.quadratic import terms
from dpcvx.model.record_rows import record_rows
from tests.forms import form_of

M, N, K = 8, 3, 2
w, b, W = cp.Variable(N, name="w"), cp.Variable(name="b"), cp.Variable((N, K), name="W")
SIDES = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0])
TABLE = np.tile([[1.0, 0.0], [0.0, 2.0]], (M // 2, 1))
PLACES = np.tile(np.eye(2), (M // 2, 1))


def parts(count=M):
    adjacency = dp.Rows(1.0, records="person")
    X = dp.Private(shape=(count, N), adjacency=adjacency, name="X")
    y = dp.Private(shape=(count,), adjacency=adjacency, name="y")
    return X, y, dp.Private(shape=(count, K), adjacency=adjacency, name="Y")


# Loss, and the first record of each kind.
CUT = {
    "squares": (lambda X, y, Y: cp.sum_squares(X @ w - y) / M, [0]),
    "public labels": (lambda X, y, Y: cp.sum(cp.logistic(cp.multiply(SIDES, X @ w + b))), [0, 1]),
    "public offsets": (lambda X, y, Y: cp.norm1(X @ w - y - SIDES), [0, 1]),
    "weights": (lambda X, y, Y: SIDES @ cp.square(X @ w), [0, 1]),
    "public features": (lambda X, y, Y: cp.sum(cp.huber(X @ w + PLACES @ W[0] - y)), [0, 1]),
    "classes": (
        lambda X, y, Y: (
            cp.sum(cp.log_sum_exp(X @ W, axis=1)) - cp.sum(cp.multiply(Y + TABLE, X @ W))
        ),
        [0, 1],
    ),
    "norms": (lambda X, y, Y: cp.sum(cp.norm(X @ W - Y, 2, axis=1)), [0]),
    "sides": (lambda X, y, Y: cp.sum(cp.pos(1 - cp.multiply(y, X @ w))) + cp.sum(X @ w) / 2, [0]),
    "columns": (lambda X, y, Y: cp.sum(cp.exp(X[:, 1:] @ w[1:])), [0]),
    "side by side": (lambda X, y, Y: cp.sum(cp.abs(cp.hstack([X, Y]) @ cp.hstack([w, W[0]]))), [0]),
    "curved variables": (lambda X, y, Y: cp.sum(X @ cp.square(w)), [0]),
}


def rows_of(case, count=M):
    _, form = form_of(CUT[case][0](*parts(count)))
    own = [term for term in terms(form) if form.reach(term.atom)[1]]
    return form, record_rows(form, own, count)


@pytest.mark.parametrize("case", CUT)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_gradients_are_sums_over_any_records(case, seed):
    rng = np.random.default_rng(seed)
    form, rows = rows_of(case)
    chosen = np.flatnonzero(rng.random(M) < 0.5)
    chosen = chosen if chosen.size else np.array([0])
    others = np.setdiff1d(np.arange(M), chosen)
    data = [rng.normal(size=spec.shape) for spec in form.private]
    x, total = rng.normal(size=form.n), np.zeros(form.n)
    for some in filter(len, (chosen, others)):
        part = rows.of(some)[0]
        assert [spec.shape for spec in part.private] == [d[some].shape for d in data]
        total += part.bind([np.ravel(d[some], order="F") for d in data]).gradient(x)
    whole = form.bind([np.ravel(d, order="F") for d in data]).gradient(x)
    np.testing.assert_allclose(total, whole, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("case", CUT)
def test_records_of_one_kind_meet_the_same_numbers(case):
    form, rows = rows_of(case)
    first, kind = rows.kinds()
    assert first.tolist() == CUT[case][1] and kind[first].tolist() == [*range(first.size)]
    rng = np.random.default_rng(1)
    row = [rng.normal(size=spec.shape[1:]) for spec in form.private]
    x = rng.normal(size=form.n)

    def alone(k):
        return rows.of(np.array([k]))[0].bind([np.ravel(r, order="F") for r in row]).gradient(x)

    for k in range(M):
        for other in np.flatnonzero(kind == kind[k]):
            assert np.array_equal(alone(k), alone(other))


def test_records_that_all_differ_have_no_kinds():
    several = np.arange(100.0)
    X, y, _ = parts(100)
    _, form = form_of(cp.sum_squares(X @ w - y - several))
    assert record_rows(form, terms(form), 100).kinds() is None
    _, form = form_of(cp.sum_squares(X @ w - y - several // 50))
    first, kind = record_rows(form, terms(form), 100).kinds()
    assert first.tolist() == [0, 50] and kind.tolist() == [0] * 50 + [1] * 50


S = cp.Variable(M, name="S")
WHOLE = {
    "neighbors": lambda X, y, Y: cp.sum_squares(cp.diff(X @ w)),
    "order": lambda X, y, Y: cp.sum_squares((X @ w)[::-1] - y),
    "records in columns": lambda X, y, Y: cp.sum(cp.logistic(w @ X.T)),
    "sum inside": lambda X, y, Y: cp.square(cp.sum_squares(X @ w - y)),
    "sum twice": lambda X, y, Y: cp.norm1(X @ w) + cp.square(cp.norm1(X @ w)),
    "largest of all": lambda X, y, Y: cp.max(X @ w),
    "norm of all": lambda X, y, Y: cp.norm(X @ w - y),
    "mixed rows": lambda X, y, Y: cp.sum(cp.exp(np.ones((M, M)) @ y + S)),
    "rows as variables": lambda X, y, Y: cp.sum((np.ones((M, M)) + 0) @ cp.square(X @ w)[:, None]),
    "record by itself": lambda X, y, Y: cp.logistic(X[0] @ w),
}


@pytest.mark.parametrize("case", WHOLE)
def test_what_reads_several_records_is_not_cut(case):
    _, form = form_of(WHOLE[case](*parts()))
    own = [term for term in terms(form) if form.reach(term.atom)[1]]
    found = record_rows(form, own, M)
    if case == "rows as variables":  # the weights of a sum: as many as records
        assert found is not None
        return
    assert found is None
