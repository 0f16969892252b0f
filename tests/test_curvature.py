"""Smoothness, strong convexity and the Hessian of the quadratic part."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx import curvature as module
from dpcvx import normal_form
from dpcvx.curvature import hessian, smoothness, strong_convexity
from tests.forms import difference_quotients, form_of

RNG = np.random.default_rng(5)
N = 4
A = RNG.normal(size=(6, N))
P = A.T @ A
SKEW = P - 3 * np.eye(N)
WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0])
x, X = cp.Variable(N), cp.Variable((3, 2))
B = RNG.normal(size=(5, 3))
WITHIN = dp.Within(1.0)
d = dp.Private(shape=N, adjacency=WITHIN, name="d")
D = dp.Private(shape=(5, 2), adjacency=WITHIN, name="D")

QUADRATIC = {
    "least squares": cp.sum_squares(A @ x - 1),
    "with data": cp.sum_squares(x - d) + d @ x,
    "quad_form": cp.quad_form(x, P) + 7,
    "indefinite": cp.quad_form(x - d, SKEW),
    "weighted squares": cp.sum(cp.multiply(WEIGHTS, cp.square(x - 1))),
    "sum": 2 * cp.sum_squares(A @ x) - cp.sum_squares(x) / 3,
    "over a number": cp.quad_over_lin(A @ x, 4.0),
    "matrix": cp.sum_squares(B @ X - D),
    "columns": np.array([2.0, -1.0]) @ cp.sum_squares(B @ X, axis=0),
    "product": cp.sum(cp.multiply(x, A[0] * x[0] + 2 * x)),
    "product of vectors": x @ (SKEW @ x - d),
    "product of matrices": cp.sum(cp.multiply(B[:2, :2], X.T @ X)),
    "linear": A[0] @ x,
    "variance": cp.var(x),
}
SMOOTH = {
    "logistic": cp.sum(cp.logistic(A @ x - 1)),
    "huber": cp.sum(cp.huber(A @ x, 0.5)),
    "log_sum_exp": cp.log_sum_exp(A @ x),
    "log_sum_exp of rows": WEIGHTS[:3] @ cp.log_sum_exp(3 * X, axis=1),
    "with data": cp.sum(cp.logistic(x - d)) + cp.sum_squares(x - d),
    "negative weights": WEIGHTS @ cp.logistic(x) - cp.sum_squares(x),
    "ridge": cp.sum(cp.logistic(cp.multiply(WEIGHTS, x))) / 4 + 0.05 * cp.sum_squares(x),
}
UNKNOWN = {
    "norm1": cp.norm1(x),
    "norm2": cp.norm(x),
    "max": cp.max(x) + cp.sum_squares(x),
    "exp": cp.sum(cp.exp(x)),
    "fourth power": cp.sum(cp.power(x, 4)),
    "data times square": cp.sum(cp.multiply(d, cp.square(x))),
    "data matrix": cp.sum_squares(D.T @ cp.Constant(np.ones((5, 1))) @ x[None, :]),
    "logistic of data times x": cp.sum(cp.logistic(cp.multiply(d, x))),
    "huber of square": cp.sum(cp.huber(cp.square(x))),
    "square of square": cp.square(cp.sum_squares(x)),
    "ratio": cp.quad_over_lin(x, 1 + cp.exp(x[0])),
}


def random_data(form, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=s.size) * 10 for s in form.private]


@pytest.mark.parametrize("case", QUADRATIC)
def test_hessian_is_the_derivative_of_the_gradient(case):
    form = form_of(QUADRATIC[case])[1]
    H, rest = hessian(form)
    bound = form.bind(random_data(form))
    expected = difference_quotients(bound.gradient, RNG.normal(size=form.n), h=1.0)
    assert rest == []
    assert H.toarray() == pytest.approx(expected, abs=1e-9)
    assert H.toarray() == pytest.approx(H.toarray().T, abs=1e-12)


@pytest.mark.parametrize("case", QUADRATIC)
def test_constants_of_quadratics_are_exact(case):
    form = form_of(QUADRATIC[case])[1]
    H = difference_quotients(form.at_zero().gradient, np.zeros(form.n), h=1.0)
    values = np.linalg.eigvalsh((H + H.T) / 2)
    assert smoothness(form) == pytest.approx(np.abs(values).max(), abs=1e-9)
    assert strong_convexity(form) == pytest.approx(max(values[0], 0.0), abs=1e-9)


@pytest.mark.parametrize("case", SMOOTH)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([1e-3, 0.3, 2.0, 50.0]),
    gap=st.sampled_from([1e-3, 0.3, 10.0]),
)
def test_gradients_move_at_most_by_the_smoothness(case, seed, spread, gap):
    form = form_of(SMOOTH[case])[1]
    L = smoothness(form)
    bound = form.bind(random_data(form, seed))
    rng = np.random.default_rng(seed)
    here = spread * rng.normal(size=form.n)
    step = gap * rng.normal(size=form.n)
    moved = np.linalg.norm(bound.gradient(here + step) - bound.gradient(here))
    assert moved <= L * np.linalg.norm(step) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(
    ("f", "curvature"),
    [
        (cp.sum(cp.logistic(x)), 0.25),
        (cp.sum(cp.huber(x)), 2.0),
        (cp.log_sum_exp(cp.hstack([x[0], -x[0]])), 1.0),
        (3 * cp.sum(cp.logistic(2 * x)) + cp.sum_squares(x), 5.0),
    ],
    ids=["logistic", "huber", "log_sum_exp", "sum"],
)
def test_smoothness_is_attained_at_zero(f, curvature):
    form = form_of(f)[1]
    second = difference_quotients(form.at_zero().gradient, np.zeros(form.n))
    assert smoothness(form) == pytest.approx(curvature)
    assert np.abs(np.linalg.eigvalsh(second)).max() == pytest.approx(curvature, rel=1e-6)


@pytest.mark.parametrize("case", UNKNOWN)
def test_smoothness_is_unknown_where_no_constant_holds(case):
    form = form_of(UNKNOWN[case])[1]
    assert smoothness(form) is None
    assert hessian(form)[1] != []


def test_terms_of_data_alone_bend_nothing():
    form = form_of(cp.sum(cp.exp(d)) + cp.norm1(D) + cp.sum_squares(x))[1]
    assert smoothness(form) == pytest.approx(2.0)
    assert hessian(form)[1] == []


def test_strong_convexity_counts_the_quadratic_part():
    form = form_of(cp.sum(cp.logistic(x)) + 0.5 * cp.sum_squares(x) + cp.sum_squares(x[0]))[1]
    assert strong_convexity(form) == pytest.approx(1.0)
    assert strong_convexity(form_of(cp.sum(cp.logistic(x)))[1]) == 0.0


def test_strong_convexity_of_a_singular_matrix_is_zero():
    assert strong_convexity(form_of(cp.sum_squares(A[:3] @ x))[1]) == 0.0


def test_strong_convexity_is_a_modulus():
    form = form_of(cp.sum_squares(A @ x) + cp.norm1(x))[1]
    modulus = strong_convexity(form)
    bound = form.at_zero()
    assert modulus > 0
    for _ in range(20):
        a, b = RNG.normal(size=(2, N))
        rise = (bound.gradient(a) - bound.gradient(b)) @ (a - b)
        assert rise >= modulus * np.sum((a - b) ** 2) - 1e-9


@pytest.mark.parametrize("limit", [0, 50_000])
def test_structured_products_have_the_same_curvature(limit, monkeypatch):
    monkeypatch.setattr(normal_form, "_KRON_LIMIT", limit)
    form = form_of(cp.sum_squares(B @ X - D) + cp.sum_squares(X @ B.T[:2]))[1]
    plain = np.kron(np.eye(2), 2 * B.T @ B) + np.kron(2 * B.T[:2] @ B.T[:2].T, np.eye(3))
    assert hessian(form)[0].toarray() == pytest.approx(plain, abs=1e-9)
    assert smoothness(form) == pytest.approx(np.linalg.eigvalsh(plain)[-1])


def test_large_models_get_an_upper_bound(monkeypatch):
    monkeypatch.setattr(module, "_DENSE_ORDER", 20)
    n = 200
    y = cp.Variable(n)
    chain = sp.diags_array([np.ones(n), -np.ones(n - 1)], offsets=[0, 1]).tocsr()
    form = form_of(cp.sum_squares(chain @ y) + cp.sum_squares(y))[1]
    assert 2 + 2 * 4 * 0.99 <= smoothness(form) <= 2 + 2 * 4.0 + 1e-9
    assert strong_convexity(form) == pytest.approx(2.0, abs=1e-3)
