"""Sparse public constants stay sparse, and bounds of large ones are found without their square."""

import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.collapse import parts_of
from dpcvx.model.curvature import smoothness
from dpcvx.model.layout import layout_of
from dpcvx.model.matrices import stretch
from tests.forms import form_of


def drawn(rows, columns, seed, density=0.2):
    return sp.random_array((rows, columns), density=density, random_state=seed, format="csr")


@pytest.mark.parametrize("kind", ["vector", "columns", "right", "transposed", "of data"])
def test_products_with_sparse_constants_are_those_with_arrays(kind):
    A = drawn(6, 4, 1)
    x, X = cp.Variable(4, name="x"), cp.Variable((4, 3), name="X")
    d = dp.Private(shape=4, name="d", adjacency=dp.Within(1.0))
    written = {
        "vector": lambda C: cp.sum(cp.logistic(C @ x)),
        "columns": lambda C: cp.sum(cp.logistic(C @ X)),
        "right": lambda C: cp.sum(cp.logistic(X.T @ C.T)),
        "transposed": lambda C: cp.sum(cp.logistic(C.T @ np.ones(6) + x)),
        "of data": lambda C: cp.sum_squares(C @ x - C @ d),
    }[kind]
    found, expected = (form_of(written(C))[1] for C in (A, A.toarray()))
    values = np.random.default_rng(2).normal(size=found.n)
    data = [np.arange(4.0)] if found.private else []
    one, other = (form.bind(data).gradient(values) for form in (found, expected))
    assert np.allclose(one, other, rtol=1e-12)
    assert smoothness(found) == pytest.approx(smoothness(expected), rel=1e-9)


def test_a_large_sparse_constant_takes_no_array_of_its_size():
    rows, columns = 20_000, 5_000
    A = drawn(rows, columns, 0, density=4e-4)
    x = cp.Variable(columns, name="x")
    objective = cp.sum(cp.logistic(A @ x))
    tracemalloc.start()
    form, _ = parts_of(objective, layout_of([objective]), (), "north")
    form.at_zero().gradient(np.ones(columns))
    assert smoothness(form) > 0
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rows * columns * 8 / 10


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_sparse_constants_that_nothing_follows_from_are_refused(bad):
    A = sp.csr_array(np.diag([1.0, bad, 2.0]))
    x = cp.Variable(3, name="x")
    with pytest.raises(dp.ModelError, match="constant"):
        dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.logistic(A @ x))))]).plan(
            dp.LinearizedADMM(), rounds=1, mechanism=None
        )


@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 2**31),
    st.sampled_from([1e-100, 1e-3, 1.0, 1e100]),
)
def test_bounds_without_the_square_hold(rows, columns, seed, scale):
    # Few columns are squared whatever the limit: a wide matrix of zeros is put beside these.
    A = scale * (drawn(rows, columns, seed, 0.5) - 0.5 * drawn(rows, columns, seed + 1, 0.5))
    wide = sp.csr_array(sp.hstack([A, sp.csr_array((rows, 1600))]))
    exact = np.linalg.norm(A.toarray(), 2)
    bound = stretch(wide, work=-1.0)
    assert exact * (1 - 1e-12) <= bound <= np.sqrt(rows * columns) * (exact + 1e-300)
    assert stretch(wide) == pytest.approx(exact, rel=1e-6, abs=1e-7 * scale)


def test_the_bound_is_attained_where_nothing_cancels():
    A = sp.csr_array(np.ones((3, 2000)))
    assert stretch(A, work=-1.0) == pytest.approx(np.sqrt(6000.0), rel=1e-9)


@pytest.mark.parametrize("written", ["-X @ w", "w @ -X.T", "-(X @ w)", "X @ -w"])
def test_signs_of_data_are_signs_of_their_products(written):
    X = dp.Private(shape=(5, 3), adjacency=dp.Rows(1.0), name="X")
    w = cp.Variable(3, name="w")
    scores = {"-X @ w": -X @ w, "w @ -X.T": w @ -X.T, "-(X @ w)": -(X @ w), "X @ -w": X @ -w}[
        written
    ]
    found = form_of(cp.sum(cp.logistic(scores)))[1]
    expected = form_of(cp.sum(cp.logistic(-(X @ w))))[1]
    held = [G for atom in found.atoms for u in atom.args for _, G in u.G]
    assert len(held) == 1 and not (sp.issparse(held[0]) and (held[0].data < 0).any())
    rng = np.random.default_rng(3)
    data, x = [rng.normal(size=15)], rng.normal(size=3)
    one, other = (form.bind(data).gradient(x) for form in (found, expected))
    np.testing.assert_allclose(one, other, rtol=1e-14)
    if written == "-X @ w":
        assert found.factors == {0}
