"""Smoothness, strong convexity and the Hessian of the quadratic part."""

import tracemalloc
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model import matrices
from dpcvx.model.curvature import convex, smoothness, strong_convexity
from dpcvx.model.matrices import round_down
from dpcvx.model.quadratic import curved, data_curvature, hessian, is_quadratic_given_data
from tests import spies
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
# Penalties that level off, or grow less than squares do. None follows cvxpy's rules.
PENALTIES = {
    "inverse": cp.sum(1 - cp.inv_pos(1 + 2.5 * cp.square(A @ x - 1))),
    "power": WEIGHTS @ cp.power(0.3 + cp.square(x) / 2, -3),
    "root": -cp.sum(cp.sqrt(1 + 3 * cp.square(x))),
    "length": cp.sqrt(2 + cp.sum_squares(A @ x + 1)),
    "logarithm": cp.sum(cp.log(2 + cp.multiply(np.abs(WEIGHTS), cp.square(x)))),
    "log1p": cp.sum(cp.log1p(4 * cp.square(x))),
    "exponential": -cp.sum(cp.exp(0.5 - 2 * cp.square(A @ x))),
    "several squares": cp.inv_pos(1 + cp.sum(cp.square(A @ x)) + cp.sum_squares(x - 1) / 2),
    "mixed squares": cp.sum(cp.inv_pos(1 + np.abs(B) @ cp.square(x[1:]))),
    "of both signs": np.array([1.0, -25]) @ cp.inv_pos(np.array([1.0, 5]) + cp.square(x[0])),
    "with data": cp.sum(cp.logistic(x - d)) - cp.sum(cp.inv_pos(1 + cp.square(x - d))),
    "with a square": cp.sum_squares(A @ x) - cp.sum(cp.inv_pos(1 + cp.square(x))),
    "smooth steps": WEIGHTS @ cp.nlp.tanh(A[:4] @ x - 1),
    "smooth steps of one sign": cp.sum(cp.nlp.tanh(2 * x)),
}
NOT_CONVEX = PENALTIES | {
    "negative square": cp.sum_squares(x) - 2 * cp.sum_squares(x[0]),
    "negative logistic": -cp.sum(cp.logistic(x)),
    "inside another": cp.sum(cp.logistic(cp.inv_pos(1 + cp.square(x)))),
    "quotient": cp.sum(cp.square(x) / (1 + cp.square(x))),
    "product": cp.sum(cp.multiply(cp.square(x), cp.inv_pos(1 + cp.square(x)))),
    "product of convex ones": cp.sum(cp.multiply(cp.logistic(x), cp.logistic(-x))),
}
CONVEX = {
    "logistic": cp.sum(cp.logistic(A @ x)) + cp.sum(cp.logistic(x - d)) + cp.norm1(x),
    "inverse of a variable": cp.sum(cp.inv_pos(x)),
    "minus a logarithm": cp.sum_squares(A @ x) - cp.sum(cp.log(1 + x)),
    "inverse of a concave square": cp.sum(cp.inv_pos(1 - cp.square(x))),
    "exponential of a square": cp.sum(cp.exp(cp.square(x))),
    "penalty of data": cp.sum(cp.inv_pos(1 + cp.square(d))) + cp.sum_squares(x),
    "records": cp.sum(cp.logistic(cp.multiply(d, x))),
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
    "inverse square": cp.sum(cp.inv_pos(cp.square(x))),
    "pole": cp.sum(cp.inv_pos(1 - cp.square(x))),
    "inverse of data and square": cp.sum(cp.inv_pos(1 + d + cp.square(x))),
    "inverse of x and square": cp.sum(cp.inv_pos(1 + x + cp.square(x))),
    "inverse of huber": cp.sum(cp.inv_pos(1 + cp.huber(x))),
    "exponential of square": cp.sum(cp.exp(cp.square(x))),
    "beyond floats": cp.sum(cp.exp(800 - cp.square(x))) + cp.inv_pos(1e-200 + cp.square(x[0])),
    "power above one": cp.sum(cp.power(1 + cp.square(x), 1.5)),
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


@pytest.mark.parametrize("case", SMOOTH | PENALTIES)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([1e-3, 0.3, 2.0, 50.0]),
    gap=st.sampled_from([1e-3, 0.3, 10.0]),
)
def test_gradients_move_at_most_by_the_smoothness(case, seed, spread, gap):
    form = form_of((SMOOTH | PENALTIES)[case])[1]
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


@given(
    kind=st.sampled_from(["power", "log", "log1p", "exp"]),
    p=st.floats(-6, 0.99),
    c=st.floats(0.05, 20),
    k=st.floats(0.05, 20),
    weight=st.sampled_from([-2.0, 1.0, 3.5]),
)
def test_the_curvature_of_a_penalty_is_largest_at_zero(kind, p, c, k, weight):
    """Second derivatives far and near are below the constant; at 0 it is attained to 1e-6."""
    y = cp.Variable()
    square = k * cp.square(y)
    if kind == "power":
        f, size = cp.power(c + square, p), c
    elif kind == "exp":
        f, size = cp.exp(c / 10 - square), 1.0
    else:
        f, size = (cp.log(c + square), c) if kind == "log" else (cp.log1p(square), 1.0)
    form = form_of(weight * f)[1]
    L, bound = smoothness(form), form.at_zero()
    unit = np.sqrt(size / k)
    h = 1e-5 * unit
    at = unit * np.concatenate([np.geomspace(1e-3, 1e3, 60), np.linspace(0.1, 5, 60)])
    second = [
        (bound.gradient(np.array([u + h])) - bound.gradient(np.array([u - h]))).item() / (2 * h)
        for u in [0.0, *at, *-at]
    ]
    assert max(np.abs(second)) <= L * (1 + 1e-6)
    assert abs(second[0]) == pytest.approx(L, rel=1e-6)


@pytest.mark.parametrize("case", NOT_CONVEX)
def test_smooth_functions_that_are_not_known_to_be_convex_are_no_convex_ones(case):
    assert not NOT_CONVEX[case].is_convex()
    assert not convex(form_of(NOT_CONVEX[case])[1])


@pytest.mark.parametrize("case", CONVEX)
def test_what_cvxpy_takes_for_convex_stays_so(case):
    assert CONVEX[case].is_convex()
    assert convex(form_of(CONVEX[case])[1])


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
    spies.change(monkeypatch, "largest Kronecker product", limit)
    form = form_of(cp.sum_squares(B @ X - D) + cp.sum_squares(X @ B.T[:2]))[1]
    plain = np.kron(np.eye(2), 2 * B.T @ B) + np.kron(2 * B.T[:2] @ B.T[:2].T, np.eye(3))
    assert hessian(form)[0].toarray() == pytest.approx(plain, abs=1e-9)
    assert smoothness(form) == pytest.approx(np.linalg.eigvalsh(plain)[-1])


def test_large_models_get_an_upper_bound(monkeypatch):
    spies.change(monkeypatch, "largest dense eigenvalue problem", 20)
    n = 200
    y = cp.Variable(n)
    chain = sp.diags_array([np.ones(n), -np.ones(n - 1)], offsets=[0, 1]).tocsr()
    form = form_of(cp.sum_squares(chain @ y) + cp.sum_squares(y))[1]
    assert 2 + 2 * 4 * 0.99 <= smoothness(form) <= 2 + 2 * 4.0 + 1e-9
    assert strong_convexity(form) == pytest.approx(2.0, abs=1e-3)


def test_constants_take_no_more_memory_than_the_data():
    side = 300
    x, data = cp.Variable(side), dp.Private(shape=(side, side), adjacency=dp.Rows(1.0))
    form = form_of(cp.sum_squares(data @ x))[1]
    tracemalloc.start()
    assert smoothness(form) == pytest.approx(2 * side)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 8 * side**2


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(0, 1000), st.sampled_from([3, 1500]))
def test_eigenvalues_block_by_block_are_those_of_the_matrix(n, seed, order):
    with pytest.MonkeyPatch.context() as patched:
        spies.change(patched, "eigenvalue problems at a time", 20)
        spies.change(patched, "largest dense eigenvalue problem", order)
        rng = np.random.default_rng(seed)
        M = sp.csr_array(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.05))
        H = sp.csr_array(M + M.T)
        found = matrices.eigenvalues(H, matrices.dense)
        assert np.sort(found) == pytest.approx(np.linalg.eigvalsh(H.toarray()), abs=1e-12)


def test_large_models_have_the_same_constants_again():
    n = 1600
    y = cp.Variable(n)
    chain = sp.diags_array([np.ones(n), -np.ones(n - 1)], offsets=[0, 1]).tocsr()
    form = form_of(cp.sum_squares(chain @ y) + cp.sum_squares(y))[1]
    assert strong_convexity(form) == strong_convexity(form)


@pytest.mark.parametrize("added", [0.0, 1e-6, 0.1])
def test_a_modulus_of_many_variables_is_proved_and_tight_in_a_band(added):
    n = 1600
    rng = np.random.default_rng(3)
    y = cp.Variable(n)
    chain = sp.diags_array([rng.normal(size=n - k) for k in range(3)], offsets=range(3)).tocsr()
    chain = sp.csr_array(chain[:, rng.permutation(n)])
    form = form_of(cp.sum_squares(chain @ y) + added * cp.sum_squares(y))[1]
    H = 2 * (chain.T @ chain + added * sp.eye_array(n)).toarray()
    values = np.linalg.eigvalsh(H)
    found = strong_convexity(form)
    assert found <= max(values[0], 0.0) + 1e-14 * values[-1]
    assert found >= 0.998 * values[0] if added else found >= 0


def test_a_modulus_is_known_where_nothing_can_be_factored():
    """Random rows: Lanczos iterations for their smallest eigenvalue, nearly 0, do not end."""
    n = 4000
    y = cp.Variable(n)
    A = sp.random_array((n, n), density=2e-3, random_state=0, format="csr")
    form = form_of(cp.sum_squares(A @ y) + 0.3 * cp.sum_squares(y[: n // 2]))[1]
    assert strong_convexity(form) == 0
    ridge = form_of(cp.sum_squares(A @ y) + 0.3 * cp.sum_squares(y) + y[:9] @ y[1:10])[1]
    assert strong_convexity(ridge) == 0 and not convex(form_of(y[:9] @ y[1:10])[1])
    ridge = form_of(cp.sum_squares(A @ y) + 0.3 * cp.sum_squares(y))[1]
    assert strong_convexity(ridge) == pytest.approx(0.6, rel=1e-12) and convex(ridge)


@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_rows_bound_eigenvalues_from_below(n, seed):
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(n, n)) * (rng.uniform(size=(n, n)) < 0.5)
    H = sp.csr_array(M + M.T + rng.uniform(0.1, 9) * np.eye(n))
    rest = H.toarray() - np.diag(matrices.least_by_rows(H))
    assert np.linalg.eigvalsh(rest)[0] >= -1e-12
    assert matrices.lowest(H)[0] <= np.linalg.eigvalsh(H.toarray())[0] + 1e-12


@pytest.mark.parametrize("least", [1e-10, 1e-7, 1e-3])
def test_a_modulus_is_not_rounded_up(least):
    """Of Hessians whose exact smallest eigenvalue is known."""
    for seed in range(50):
        a, b = np.random.default_rng(seed).normal(size=2)
        P = np.array([[a * a, a * b], [a * b, b * b]]) / (a * a + b * b)
        P = P + least * np.array([[b * b, -a * b], [-a * b, a * a]]) / (a * a + b * b)
        (p, q), (_, r) = [[Fraction(v) for v in row] for row in P]
        low, high = (float(v) for v in np.linalg.eigvalsh(P))
        bound = Fraction(round_down(low, high))
        # P - bound I is positive semidefinite, in exact numbers.
        assert p >= bound and (p - bound) * (r - bound) >= q * q


# Second derivatives that data add

LOADS = dp.Private(shape=5, adjacency=WITHIN, name="loads")
ROWS = dp.Private(shape=(5, N), adjacency=dp.Rows(1.0), name="rows")
WIDE = np.arange(20.0).reshape(5, 4) / 7
BENT = {
    "squares": cp.sum_squares(ROWS @ x - LOADS),
    "scaled and turned": 0.3 * cp.sum_squares(4 * LOADS - 2 * (ROWS @ (x - 1))),
    "beside public rows": cp.sum_squares((ROWS + WIDE) @ x - 1) + cp.quad_form(x, P),
    "one column at a time": cp.sum_squares(ROWS[:, :2] @ x[:2]) / 3 + cp.sum(cp.exp(x)),
    "of a product of variables": cp.sum(cp.square(ROWS @ (A.T @ A @ x) + 2)),
}


@pytest.mark.parametrize("cost", BENT)
def test_what_data_add_to_second_derivatives_is_what_gradients_show(cost):
    _, form = form_of(BENT[cost])
    rng = np.random.default_rng(4)
    bound = form.bind([rng.normal(size=spec.size) for spec in form.private])
    zero, at = form.at_zero(), rng.normal(size=form.n)
    shown = difference_quotients(lambda z: bound.gradient(z) - zero.gradient(z), at)
    found = data_curvature(form, bound).toarray()
    assert found == pytest.approx(shown, rel=1e-6, abs=1e-6)
    assert np.array_equal(found, found.T) and np.linalg.norm(found) > 0.1
    assert is_quadratic_given_data(form) and len(curved(form)) == 1


@pytest.mark.parametrize(
    ("cost", "bends", "quadratic"),
    [
        (cp.sum_squares(A[:5] @ x - LOADS) + LOADS[:4] @ x, False, True),
        (cp.sum_squares(x) + cp.sum(cp.logistic(x)), False, True),
        (cp.sum(cp.logistic(ROWS @ x)), True, False),
        (cp.norm1(ROWS @ x - LOADS), True, False),
        (cp.sum_squares(ROWS @ x) + cp.sum(cp.huber(ROWS @ x)), True, False),
    ],
    ids=["affine", "public", "logistic", "absolute", "one of two"],
)
def test_whether_data_enter_second_derivatives_and_how(cost, bends, quadratic):
    _, form = form_of(cost)
    assert bool(curved(form)) == bends
    assert is_quadratic_given_data(form) == quadratic
    if quadratic:
        bound = form.bind([np.ones(spec.size) for spec in form.private])
        assert data_curvature(form, bound).nnz == 0
