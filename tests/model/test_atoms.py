"""Every atom with a rule: value, gradient, subgradients at kinks."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import dpcvx as dp
from dpcvx.model import atoms
from dpcvx.model.atoms import supported
from dpcvx.model.collapse import parts_of
from dpcvx.model.layout import layout_of
from tests.forms import assign, difference_quotients, form_of

N = 4
x, y = cp.Variable(N, name="x"), cp.Variable(N, name="y")
X, Y = cp.Variable((3, N), name="X"), cp.Variable((3, N), name="Y")
s, T = cp.Variable(name="s"), cp.Variable((2, 2, 3), name="T")
P = np.array([[2.0, 1, 0, 0], [1, 3, 0, 1], [0, 0, 1, 0], [0, 1, 0, 4]])
B = np.arange(12.0).reshape(3, 4) / 5 - 1
SKEW = np.array([[1.0, 2, 0, 0], [0, 3, 0, 0], [0, 4, 1, 0], [0, 0, 0, -1]])

ANYWHERE = {
    "square": cp.square(x),
    "square, matrix": cp.square(X),
    "square, 3-d": cp.square(T),
    "power 3": cp.power(x, 3),
    "power 4, scalar": cp.power(s, 4),
    "sum_squares": cp.sum_squares(B @ x - 1),
    "sum_squares, matrix": cp.sum_squares(X),
    "sum_squares, axis 0": cp.sum_squares(X, axis=0),
    "sum_squares, axis 1, keepdims": cp.sum_squares(X, axis=1, keepdims=True),
    "quad_form": cp.quad_form(x - 1, P),
    "quad_form, indefinite": cp.quad_form(x, P - 3 * np.eye(N)),
    "multiply": cp.multiply(x, y),
    "multiply, matrices": cp.multiply(X, Y),
    "multiply, scalar by vector": cp.multiply(s, x),
    "multiply, matrix by scalar": X * s,
    "multiply, row by matrix": cp.multiply(x, X),
    "@, vectors": x @ y,
    "@, matrix vector": X @ x,
    "@, vector matrix": x[:3] @ X,
    "@, matrices": X @ Y.T,
    "outer": cp.outer(x, y),
    "vdot": cp.vdot(X, Y),
    "x^2 / (1 + x^2)": cp.power(x, 2) / (1 + cp.power(x, 2)),
    "division, matrix by scalar": X / (1 + cp.square(s)),
    "division, scalar by vector": s / (2 + cp.square(x)),
    "logistic": cp.logistic(x),
    "logistic, far out": cp.logistic(300 * X),
    "huber": cp.huber(3 * x),
    "huber, M": cp.huber(X, 0.4),
    "log_sum_exp": cp.log_sum_exp(x),
    "log_sum_exp, matrix": cp.log_sum_exp(X),
    "log_sum_exp, axis 0": cp.log_sum_exp(X, axis=0),
    "log_sum_exp, axis 1": cp.log_sum_exp(X, axis=1),
    "log_sum_exp, axis 1, keepdims": cp.log_sum_exp(X, axis=1, keepdims=True),
    "log_sum_exp, keepdims": cp.log_sum_exp(X, keepdims=True),
    "log_sum_exp, two axes": cp.log_sum_exp(T, axis=(0, 2)),
    "log_sum_exp, far out": cp.log_sum_exp(900 * x),
    "exp": cp.exp(x),
    "xexp": cp.xexp(x),
    "tanh": cp.nlp.tanh(2 * X),
    "abs": cp.abs(x),
    "abs, matrix": cp.abs(X - 0.1),
    "pos": cp.pos(x),
    "neg": cp.neg(X),
    "max": cp.max(x),
    "max, matrix": cp.max(X),
    "max, axis 0": cp.max(X, axis=0),
    "max, axis 1, keepdims": cp.max(X, axis=1, keepdims=True),
    "max, keepdims": cp.max(X, keepdims=True),
    "min": cp.min(x),
    "min, axis 1": cp.min(X, axis=1),
    "min, axis 0, keepdims": cp.min(X, axis=0, keepdims=True),
    "maximum": cp.maximum(x, y),
    "maximum, scalar and constant": cp.maximum(s, x, 0.2),
    "maximum, matrices": cp.maximum(X, Y, -X),
    "minimum": cp.minimum(x, y, 0.5),
    "minimum, scalar": cp.minimum(s, X),
    "norm1": cp.norm1(x),
    "norm1, matrix": cp.norm1(X),
    "norm1, axis 0": cp.norm1(X, axis=0),
    "norm1, axis 1, keepdims": cp.norm1(X, axis=1, keepdims=True),
    "norm_inf": cp.norm_inf(x),
    "norm_inf, axis 0": cp.norm_inf(X, axis=0),
    "norm_inf, axis 1, keepdims": cp.norm_inf(X, axis=1, keepdims=True),
    "norm2": cp.norm(x),
    "norm2, axis 0": cp.norm(X, 2, axis=0),
    "norm2, axis 1, keepdims": cp.norm(X, 2, axis=1, keepdims=True),
    "norm, Frobenius": cp.norm(X, "fro"),
    "pnorm 3": cp.pnorm(x, 3),
    "pnorm 1.5, matrix": cp.pnorm(X, 1.5),
    "pnorm 3, exact": cp.pnorm(x, 3.3, approx=False),
    "mixed norm": cp.mixed_norm(X, 2, 1),
    "sum_largest": cp.sum_largest(x, 2),
    "sum_largest, matrix": cp.sum_largest(X, 5),
    "sum_smallest": cp.sum_smallest(x, 3),
    "tv": cp.tv(x),
    "std": cp.std(x),
    "ptp": cp.ptp(X),
    "composition": cp.exp(-cp.logistic(x @ P) / 3) + cp.square(s),
    "shared node": cp.square(cp.exp(x / 2)) + cp.multiply(cp.exp(x / 2), y),
    "log1p of square": cp.log1p(cp.square(X)),
    "log_normcdf": cp.log_normcdf(x),
}
POSITIVE = {
    "log": cp.log(x),
    "log1p": cp.log1p(X),
    "log_det of a diagonal": cp.sum(cp.log(x)) * 2,
    "entr": cp.entr(X),
    "sqrt": cp.sqrt(x),
    "power 1.5": cp.power(X, 1.5),
    "power 2.3, exact": cp.power(x, 2.3, approx=False),
    "inverse": cp.inv_pos(x),
    "pnorm 0.5": cp.pnorm(x, 0.5),
    "pnorm -1": cp.pnorm(x, -1),
    "division": x / y,
    "division, matrices": X / Y,
    "division, matrix by row": X / x,
    "division by scalar": X / s,
    "scalar divided": s / X,
    "quad_over_lin": cp.quad_over_lin(x, s),
    "quad_over_lin, axis 0": cp.quad_over_lin(X, s, axis=0),
    "quad_over_lin, axis 1, keepdims": cp.quad_over_lin(X, s, axis=1, keepdims=True),
    "kl_div": cp.kl_div(x, y),
    "kl_div, scalar": cp.kl_div(X, s),
    "rel_entr": cp.rel_entr(x, y),
    "rel_entr, scalar": cp.rel_entr(s, X),
    "loggamma": cp.loggamma(x + 1),
}
AFFINE = {
    "index": X[1, 2] + x[-1],
    "slice": X[1:, ::2],
    "list": x[[3, 0, 0]],
    "mask": X[B > 0],
    "3-d index": T[:, 1, 1:],
    "nested index": X[1:][0][2:],
    "reshape F": cp.reshape(X, (2, 6), order="F"),
    "reshape C": cp.reshape(X, (2, 6), order="C"),
    "vec": cp.vec(X, order="C"),
    "transpose": X.T,
    "transpose, 3-d": cp.transpose(T, (2, 0, 1)),
    "hstack": cp.hstack([x, s, y[:2], 3.0]),
    "hstack, matrices": cp.hstack([X, B, -Y]),
    "vstack": cp.vstack([x, 2 * y, B[0], s * np.ones(N)]),
    "concatenate": cp.concatenate([X, B, Y], axis=0),
    "concatenate, axis 1": cp.concatenate([X, Y[:, :1]], axis=1),
    "stack": cp.stack([x, y], axis=1),
    "bmat": cp.bmat([[X, Y], [B, np.ones((3, 4))]]),
    "kron": cp.kron(np.array([[1.0, 2], [0, -1]]), X),
    "kron, right": cp.kron(X, np.array([[1.0, 2]])),
    "convolve": cp.convolve(np.array([1.0, -2, 3]), x),
    "cumsum": cp.cumsum(x),
    "cumsum, axis 1": cp.cumsum(X, axis=1),
    "cumsum, 3-d": cp.cumsum(T, axis=1),
    "diff": cp.diff(x, k=2),
    "diff, axis 1": cp.diff(X, axis=1),
    "trace": cp.trace(X @ B.T),
    "diag of vector": cp.diag(x),
    "diag of vector, shifted": cp.diag(x, k=1),
    "diag of matrix": cp.diag(X @ B.T),
    "diag of matrix, shifted": cp.diag(X[:, :3], k=-1),
    "upper_tri": cp.vec(cp.upper_tri(X[:, :3]), order="F"),
    "vec_to_upper_tri": cp.vec_to_upper_tri(cp.hstack([x, y[:2]])),
    "sum": cp.sum(X),
    "sum, axis 0": cp.sum(X, axis=0),
    "sum, axis 1, keepdims": cp.sum(X, axis=1, keepdims=True),
    "sum, two axes": cp.sum(T, axis=(0, 2)),
    "mean": cp.mean(X),
    "mean, axis": cp.mean(X, axis=1),
    "variance": cp.var(x),
    "sums and differences": x - 2 * y + s - 1,
    "broadcast": cp.broadcast_to(x, (3, N)),
    "row plus matrix": X + x,
    "constant @ matrix": B.T @ X,
    "matrix @ constant": X @ B.T,
    "vector @ matrix": B[:, 0] @ X,
    "matrix @ vector": X @ B[0],
    "multiply by constant": cp.multiply(B, X),
    "multiply scalar by constant": cp.multiply(B, s),
    "multiply row by constant": cp.multiply(B, x),
    "divided by constant": X / (B + 3),
    "scalar times vector": s * B[1],
    "power 1": cp.power(x, 1),
    "power 0": cp.power(x, 0) + x,
    "partial trace": cp.partial_trace(cp.outer(x, B[0]), (2, 2), 0),
    "partial transpose": cp.partial_transpose(cp.outer(B[1], y), (2, 2), 1),
    "conj": cp.conj(x),
    "real": cp.real(X),
}
# Squared, so that a mistake in an affine map changes the gradient from point to point.
TABLE = {
    **{name: (e, False) for name, e in ANYWHERE.items()},
    **{name: (e, True) for name, e in POSITIVE.items()},
    **{f"affine: {name}": (cp.square(e) + 3 * e, False) for name, e in AFFINE.items()},
}


def weighted(expression):
    """Sum with different weights: entries that trade places are noticed."""
    weights = np.cos(np.arange(expression.size)).reshape(expression.shape, order="F") + 1.5
    return cp.sum(cp.multiply(weights, expression))


def draw(n, positive, seed=0):
    point = np.random.default_rng(seed).normal(size=n)
    return np.abs(point) + 0.3 if positive else point


@pytest.mark.parametrize("case", TABLE)
def test_value_is_cvxpys(case):
    expression, positive = TABLE[case]
    f = weighted(expression)
    layout, form = form_of(f)
    for seed in range(3):
        point = draw(layout.size, positive, seed)
        assign(f, layout, point)
        assert form.at_zero().value(point) == pytest.approx(float(f.value), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", TABLE)
def test_gradient_is_the_difference_quotient(case):
    expression, positive = TABLE[case]
    layout, form = form_of(weighted(expression))
    bound = form.at_zero()
    for seed in range(2):
        point = draw(layout.size, positive, seed)
        expected = difference_quotients(bound.value, point)
        assert bound.gradient(point) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_table_covers_every_rule():
    rules, classes = set(), set()
    for expression, _ in TABLE.values():
        rules |= {atom.rule.name for atom in form_of(weighted(expression))[1].atoms}
        nodes = [expression]
        for node in nodes:
            classes.add(type(node).__name__)
            nodes += node.args
    assert rules == set(atoms.RULES)
    assert {name for rule in atoms.RULES.values() for name in rule.classes} <= classes


CONVEX = {
    "abs": cp.sum(cp.abs(x)),
    "norm1": cp.norm1(x - y),
    "norm1, axis": cp.max(cp.norm1(X, axis=1)),
    "norm2": cp.norm(x),
    "norm2, axis": cp.sum(cp.norm(X, 2, axis=0)),
    "pnorm": cp.pnorm(x, 3),
    "norm_inf": cp.norm_inf(x),
    "norm_inf, axis": cp.sum(cp.norm_inf(X, axis=1)),
    "max": cp.max(x),
    "max, axis": cp.sum(cp.max(X, axis=0)),
    "maximum": cp.sum(cp.maximum(x, y, 0)),
    "maximum, scalar": cp.sum(cp.maximum(s, x)),
    "pos": cp.sum(cp.pos(x)),
    "minus min": -cp.min(x),
    "minus min, axis": -cp.sum(cp.min(X, axis=1, keepdims=True)),
    "minus minimum": -cp.sum(cp.minimum(x, y, 1)),
    "sum_largest": cp.sum_largest(x, 2),
    "sum_largest, matrix": cp.sum_largest(X, 5),
    "huber": cp.sum(cp.huber(x, 1)),
    "hinge": cp.sum(cp.pos(1 - B @ x)) + cp.sum_squares(x) / 2,
    "square of norm": cp.square(cp.norm(X, "fro")),
    "tv": cp.tv(x) + cp.sum_squares(x - y),
    "logistic": cp.sum(cp.logistic(P @ x)),
    "log_sum_exp": cp.sum(cp.log_sum_exp(X, axis=1)),
    "exp of max": cp.exp(cp.max(x) / 3),
    "power": cp.sum(cp.power(x, 4)),
    "quad_form": cp.quad_form(x, P),
    "quad_over_lin": cp.quad_over_lin(x, 2 + cp.exp(0)),
}
CORNERS = st.sampled_from([0.0, 0.0, 1.0, -1.0, 2.0, 0.5])


@pytest.mark.parametrize("case", CONVEX)
@settings(max_examples=40)
@given(data=st.data())
def test_gradients_of_convex_functions_support_them(case, data):
    f = CONVEX[case]
    assert f.is_convex()
    layout, form = form_of(f)
    bound = form.at_zero()
    points = st.lists(CORNERS, min_size=layout.size, max_size=layout.size).map(np.array)
    here, there = data.draw(points), data.draw(points)
    rise = bound.value(there) - bound.value(here)
    assert rise >= bound.gradient(here) @ (there - here) - 1e-9


KINKS = {
    "abs at 0": (cp.sum(cp.abs(x)), [0, 2, -3, 0], [0, 1, -1, 0]),
    "norm1 at 0": (cp.norm1(x), [0, 2, -3, 0], [0, 1, -1, 0]),
    "huber at 0 and at M": (cp.sum(cp.huber(x, 1)), [0, 1, -1, 5], [0, 2, -2, 2]),
    "norm2 at the origin": (cp.norm(x), [0, 0, 0, 0], [0, 0, 0, 0]),
    "pnorm at the origin": (cp.pnorm(x, 3), [0, 0, 0, 0], [0, 0, 0, 0]),
    "max, tied": (cp.max(x), [1, 2, 2, 2], [0, 1, 0, 0]),
    "min, tied": (cp.min(x), [5, 2, 5, 2], [0, 1, 0, 0]),
    "norm_inf, tied": (cp.norm_inf(x), [1, -2, 2, -2], [0, -1, 0, 0]),
    "norm_inf at the origin": (cp.norm_inf(x), [0, 0, 0, 0], [0, 0, 0, 0]),
    "pos at 0": (cp.sum(cp.pos(x)), [0, 1, -1, 0], [1, 1, 0, 1]),
    "neg at 0": (cp.sum(cp.neg(x)), [0, 1, -1, 0], [-1, 0, -1, -1]),
    "maximum, second first": (cp.sum(cp.maximum(0, x)), [0, 1, -1, 0], [0, 1, 0, 0]),
    "minimum, tied": (cp.sum(cp.minimum(x, 1)), [1, 0, 2, 1], [1, 1, 0, 1]),
    "sum_largest, tied": (cp.sum_largest(x, 2), [1, 2, 1, 1], [1, 1, 0, 0]),
    "max of a matrix: column-major": (
        cp.max(cp.reshape(x, (2, 2), order="F")),
        [0, 3, 3, 3],
        [0, 1, 0, 0],
    ),
    "max, axis": (
        cp.sum(cp.max(cp.reshape(x, (2, 2), order="F"), axis=1)),
        [3, 0, 3, 1],
        [1, 0, 0, 1],
    ),
    "sum_largest of a matrix": (
        cp.sum_largest(cp.reshape(x, (2, 2), order="F"), 2),
        [0, 3, 3, 3],
        [0, 1, 1, 0],
    ),
}


@pytest.mark.parametrize("case", KINKS)
def test_subgradient_at_a_kink_is_the_stated_one(case):
    f, point, expected = KINKS[case]
    bound = form_of(f)[1].at_zero()
    assert bound.gradient(np.array(point, dtype=float)).tolist() == expected


def test_tied_arguments_share_nothing():
    bound = form_of(cp.sum(cp.maximum(x, y)))[1].at_zero()
    assert bound.gradient(np.ones(8)).tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "atom"),
    {
        "geo_mean": lambda d: cp.geo_mean(x + d),
        "lambda_max": lambda d: cp.lambda_max(cp.diag(x + d)),
        "cummax": lambda d: cp.cummax(x - d),
        "sum_largest": lambda d: cp.sum_largest(X + d, 2, axis=1),
        "matrix_frac": lambda d: cp.matrix_frac(x - d, cp.Variable((x.size, x.size), PSD=True)),
        "prod": lambda d: cp.prod(x),
    }.items(),
)
def test_unsupported_atoms_are_named_with_their_agent(name, atom):
    d = dp.Private(shape=(), adjacency=dp.Within(1.0), name="load")
    f = cp.sum(atom(d))
    with pytest.raises(dp.ModelError) as caught:
        parts_of(f, layout_of([f]), f.parameters(), "harbour")
    text = str(caught.value)
    assert f"uses cp.{name} " in text and "'harbour'" in text and "Rewrite the term" in text
    assert ("private 'load'" in text) == (name != "prod") != ("not convex" in text)
    assert all(known in text for known in supported())


def test_supported_names_are_sorted_and_complete():
    *atoms, product, rest = supported()
    assert atoms == sorted(atoms) and (product, rest) == ("@", "every affine atom")
    assert {"logistic", "sum_squares", "pos"} <= set(atoms)


def test_fractional_sum_largest_is_cvxpys():
    f = cp.sum_largest(x, 2.5)
    layout, form = form_of(f)
    point = np.array([1.0, 2, 3, 4])
    assign(f, layout, point)
    assert form.at_zero().value(point) == pytest.approx(float(f.value))


def test_maximum_over_two_axes():
    bound = form_of(cp.sum(cp.max(T, axis=(0, 2))))[1].at_zero()
    assert bound.gradient(np.arange(12.0)).sum() == 2


@pytest.mark.parametrize("atom", [cp.maximum, cp.minimum, cp.kl_div, cp.rel_entr])
def test_rows_broadcast_against_matrices(atom):
    layout, form = form_of(cp.sum(atom(x, X)))
    bound, point = form.at_zero(), draw(layout.size, True)
    expected = difference_quotients(bound.value, point)
    assert bound.gradient(point) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda d: cp.sum(cp.convolve(d, x)),
        lambda d: cp.sum(cp.kron(cp.reshape(d, (2, 2), order="F"), X)),
        lambda d: cp.sum(cp.huber(x, d[0])),
        lambda d: cp.sum(cp.power(x, dp.Private(2.0, adjacency=dp.Within(1.0), nonneg=True))),
        lambda d: cp.sum(cp.huber(x, cp.Parameter(nonneg=True))),
    ],
    ids=["convolve", "kron", "huber M", "power p", "huber M without value"],
)
def test_places_that_take_no_data_raise_a_model_error(build):
    d = dp.Private(np.ones(4), adjacency=dp.Within(1.0), name="d", nonneg=True)
    f = build(d)
    with pytest.raises(dp.DpcvxError):
        form_of(f)


def test_the_refusal_of_a_private_exponent_does_not_propose_powers():
    d = dp.Private(2.0, adjacency=dp.Within(0.1), name="d", bounds=(1.5, 2.5))
    y = cp.Variable(3, nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.power(y, d))), [y <= 1], name="a")])
    with pytest.raises(
        dp.ModelError, match=r"private 'd' where cp\.power takes a constant"
    ) as error:
        problem.plan(epsilon=1.0, delta=1e-6)
    assert "Rewrite the term" not in str(error.value)


def test_slopes_of_logistic_losses_are_those_of_scipy_without_warnings():
    u = np.concatenate([np.linspace(-800, 800, 4001), [-np.inf, np.inf, np.nan]])
    slopes = atoms.entrywise.LOGISTIC.vjp([u], u, np.ones_like(u), (), 0)
    np.testing.assert_allclose(slopes, expit(u), rtol=4e-16, atol=1e-307)
