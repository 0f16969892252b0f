"""The normal form: structure, hand-written gradients, binding of private data."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

import dpcvx as dp
from dpcvx.model.atoms.pairs import MATMUL
from dpcvx.model.atoms.reductions import QUAD_OVER_LIN
from tests import spies
from tests.forms import assign, difference_quotients, form_of

RNG = np.random.default_rng(11)
M, N, K = 7, 4, 3
A = RNG.normal(size=(M, N))
b = RNG.normal(size=M)
x = cp.Variable(N, name="x")
W = cp.Variable((N, K), name="W")
LABELS = np.sign(b)
CLASSES = np.eye(K)[RNG.integers(K, size=M)]
P = A.T @ A
WITHIN = dp.Within(1.0)
RECOGNISABLE = [31415.92653, 27182.81828, 16180.33989, 14142.13562]


def least_squares(v):
    return 2 * A.T @ (A @ v - b)


def logistic_regression(v):
    return -A.T @ (LABELS * expit(-LABELS * (A @ v))) / M + 0.2 * v


def multiclass(v):
    scores = A @ v.reshape(N, K, order="F")
    return np.ravel(A.T @ (softmax(scores, axis=1) - CLASSES), order="F")


def quadratic(v):
    return (P + P.T) @ (v - 1)


def robust(v):
    return A.T @ (2 * np.clip(A @ v - b, -0.5, 0.5))


HAND_WRITTEN = {
    "least squares": (cp.sum_squares(A @ x - b), least_squares),
    "logistic regression": (
        cp.sum(cp.logistic(-cp.multiply(LABELS, A @ x))) / M + 0.1 * cp.sum_squares(x),
        logistic_regression,
    ),
    "multiclass": (
        cp.sum(cp.log_sum_exp(A @ W, axis=1)) - cp.sum(cp.multiply(CLASSES, A @ W)),
        multiclass,
    ),
    "quad_form": (cp.quad_form(x - 1, P), quadratic),
    "huber": (cp.sum(cp.huber(A @ x - b, 0.5)), robust),
}


@pytest.mark.parametrize("case", HAND_WRITTEN)
@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1.0, 1e3]))
def test_gradient_is_the_hand_written_one(case, seed, scale):
    f, gradient = HAND_WRITTEN[case]
    layout, form = form_of(f)
    point = scale * np.random.default_rng(seed).normal(size=layout.size)
    found, expected = form.at_zero().gradient(point), gradient(point)
    assert np.linalg.norm(found - expected) <= 1e-11 * (1 + scale) * 100


def labeled(data):
    """Objectives in which `data`, private or constant, appears in many places."""
    d, D = data
    X = W[:, :2]
    return {
        "offset": cp.sum_squares(A @ x - d),
        "linear": d[:N] @ x,
        "nonlinear": cp.sum(cp.logistic(cp.multiply(d[:N], x))),
        "matrix": cp.sum_squares(D @ x - 1),
        "trace": cp.trace(D[:2, :] @ X) + cp.sum(cp.huber(D.T @ cp.Constant(np.ones(3)) - x)),
        "quadratic": cp.quad_form(x - d[:N], P),
        "alone": cp.sum_squares(d) + cp.norm1(D) + cp.sum(x),
        "both": cp.sum(cp.multiply(D, cp.exp(x[:3, None] @ d[None, :N] / 9))),
        "ratio": cp.sum(x / (3 + cp.square(d[:N]))),
        "softmax": cp.log_sum_exp(D @ x),
    }


PRIVATE = labeled(
    (
        dp.Private(shape=M, adjacency=WITHIN, name="d"),
        dp.Private(shape=(3, N), adjacency=WITHIN, name="D"),
    )
)


@pytest.mark.parametrize("case", PRIVATE)
def test_bound_data_act_like_constants(case):
    f = PRIVATE[case]
    values = {"d": RNG.normal(size=M), "D": RNG.normal(size=(3, N))}
    public = labeled((cp.Constant(values["d"]), cp.Constant(values["D"])))[case]
    layout, form = form_of(f)
    assert form_of(public)[0].labels() == layout.labels()
    bound = form.bind([np.ravel(values[s.name], order="F") for s in form.private])
    point = RNG.normal(size=layout.size)
    assign(public, layout, point)
    assert bound.value(point) == pytest.approx(float(public.value), rel=1e-12)
    constant = form_of(public)[1].at_zero()
    assert bound.gradient(point) == pytest.approx(constant.gradient(point), rel=1e-12, abs=1e-12)
    expected = difference_quotients(bound.value, point)
    assert bound.gradient(point) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_binding_leaves_the_form_alone():
    form = form_of(PRIVATE["offset"])[1]
    first, second = (form.bind([np.ones(M)]).value(np.zeros(N)) for _ in range(2))
    assert first == second == form.bind([np.ones(M)]).value(np.zeros(N)) == pytest.approx(M)


def test_at_zero_inserts_zeros():
    f = PRIVATE["offset"]
    bound = form_of(f)[1].at_zero()
    point = RNG.normal(size=N)
    assert bound.value(point) == pytest.approx(np.sum((A @ point) ** 2))


@pytest.mark.parametrize(
    ("signs", "of", "entry"),
    [
        ({}, 1.0, 1.0),
        ({}, -1.0, -1.0),
        ({"nonneg": True}, -1.0, 1.0),
        ({"nonpos": True}, 1.0, -1.0),
    ],
    ids=["up", "down", "declared up", "declared down"],
)
def test_at_labels_fills_their_bounds_and_leaves_features_out(signs, of, entry):
    X = dp.Private(shape=(6, N), name="X", adjacency=dp.Rows(3.0))
    y = dp.Private(shape=6, name="y", adjacency=dp.Rows(2.0), **signs)
    bound = form_of(cp.sum(cp.huber(X @ x - y)))[1].at_labels(of)
    assert bound.value(np.ones(N)) == pytest.approx(6 * (2 * 2.0 - 1))  # huber(+-2), M = 1
    z = cp.Variable(name="z")
    bound = form_of(cp.sum(cp.multiply(y, z * np.ones(6))))[1].at_labels(of)
    assert bound.gradient(np.zeros(1)) == pytest.approx([6 * 2.0 * entry])


def test_at_labels_knows_nothing_of_other_data():
    assert form_of(PRIVATE["offset"])[1].at_labels(1.0) is None


def test_public_parameters_enter_with_their_value():
    price = cp.Parameter(N, value=np.arange(4.0))
    bound = form_of(price @ x)[1].at_zero()
    assert bound.gradient(np.zeros(N)).tolist() == [0, 1, 2, 3]


def test_public_parameter_without_value_is_named():
    price = cp.Parameter(name="price")
    with pytest.raises(dp.ModelError, match=r"'north'.*price.*price\.value = "):
        form_of(price * cp.sum(x))


def test_partially_held_variables_get_gradients_for_their_entries():
    y = cp.Variable(6)
    layout, form = form_of(cp.sum_squares(y[[1, 4]] - np.array([1.0, 2.0])))
    assert layout.size == form.n == 2
    assert form.at_zero().gradient(np.array([3.0, 3.0])).tolist() == [4, 2]


def products():
    big, square = RNG.normal(size=(6, N)), RNG.normal(size=(K, K))
    d = dp.Private(shape=(N, K), adjacency=WITHIN, name="d")
    return {
        "left": cp.sum_squares(big @ W),
        "right": cp.sum_squares(W @ square - 1),
        "both": cp.sum(cp.logistic(big @ W @ square)),
        "nested": cp.sum(cp.exp((big @ (W + x[:, None] @ np.ones((1, K)))) / 4)),
        "shared": cp.sum(big @ W) + cp.sum_squares(W),
        "with data": cp.sum_squares(big @ (W - d)),
        "sparse pattern": cp.sum(cp.square(np.triu(square) @ W.T)),
    }


@pytest.mark.parametrize("case", products())
def test_structured_products_equal_collapsed_ones(case, monkeypatch):
    f = products()[case]
    layout, collapsed = form_of(f)
    spies.change(monkeypatch, "largest Kronecker product", 0)
    _, structured = form_of(f)
    assert MATMUL not in {a.rule for a in collapsed.atoms}
    assert MATMUL in {a.rule for a in structured.atoms}
    point = RNG.normal(size=layout.size)
    data = [RNG.normal(size=s.size) for s in collapsed.private]
    one, other = collapsed.bind(data), structured.bind(data)
    assert one.value(point) == pytest.approx(other.value(point), rel=1e-12)
    assert one.gradient(point) == pytest.approx(other.gradient(point), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("side", ["left", "right"])
def test_large_dense_products_stay_structured(side):
    C = RNG.normal(size=(130, 130))
    X = cp.Variable((130, 4))
    f = cp.sum_squares(C @ X) if side == "left" else cp.sum_squares(X.T @ C)
    _, form = form_of(f)
    assert MATMUL in {a.rule for a in form.atoms}
    point = RNG.normal(size=520)
    V = point.reshape(130, 4, order="F")
    G = C.T @ C if side == "left" else C @ C.T
    assert form.at_zero().gradient(point) == pytest.approx(np.ravel(2 * G @ V, order="F"))


def test_affine_objective_has_no_atoms():
    _, form = form_of(cp.sum(A @ x) + 2)
    assert form.atoms == () and form.root.affine and not form.root.constant
    assert form.at_zero().gradient(np.zeros(N)) == pytest.approx(A.sum(axis=0))


def test_an_expression_used_twice_is_one_atom():
    e = cp.exp(x)
    _, form = form_of(cp.sum(cp.square(e)) + cp.sum(e))
    assert [a.rule.name for a in form.atoms].count("exp") == 1
    point = RNG.normal(size=N)
    expected = 2 * np.exp(2 * point) + np.exp(point)
    assert form.at_zero().gradient(point) == pytest.approx(expected)


def test_a_gradient_takes_values_that_others_are_made_of_and_no_others(monkeypatch):
    x, d = cp.Variable(3), dp.Private(np.ones((4, 3)), adjacency=dp.Rows(2.0))
    inner = cp.logistic(d @ x)
    _, form = form_of(cp.sum(cp.square(inner)) + cp.sum(cp.exp(x)) + cp.log_sum_exp(x))
    read = {form.atoms[j].rule.name for j in form.read}
    assert read == {"matmul", "logistic", "log_sum_exp"}  # not the square and the exponential
    _, squares = form_of(cp.sum_squares(d @ x) + cp.quad_over_lin(x, 1 + cp.sum(cp.exp(x))))
    named = [squares.atoms[j] for j in squares.read if squares.atoms[j].rule is QUAD_OVER_LIN]
    assert [atom.args[1].constant for atom in named] == [False]
    bound = form.bind([np.linspace(-1, 1, 12)])
    whole = bound.gradient(np.array([0.3, -1.0, 2.0]))
    monkeypatch.setattr(type(form), "read", property(lambda form: range(len(form.atoms))))
    again = form.bind([np.linspace(-1, 1, 12)]).gradient(np.array([0.3, -1.0, 2.0]))
    assert np.array_equal(whole, again) and np.isfinite(whole).all()


def test_reach_sees_through_nested_atoms():
    d = dp.Private(shape=N, adjacency=WITHIN, name="d")
    e = dp.Private(shape=N, adjacency=WITHIN, name="e")
    f = cp.square(cp.sum(cp.exp(d)) + cp.norm(x)) + cp.sum(cp.exp(e)) + cp.norm1(x)
    _, form = form_of(f)
    names = [s.name for s in form.private]
    reaches = {a.rule.name: form.reach(a) for a in form.atoms}
    assert reaches["power"] == (True, frozenset([names.index("d")]))
    assert reaches["norm1"] == (True, frozenset())
    exps = [form.reach(a) for a in form.atoms if a.rule.name == "exp"]
    assert {(on_x, *(names[k] for k in on_d)) for on_x, on_d in exps} == {
        (False, "d"),
        (False, "e"),
    }


def test_gradient_leaves_its_point_and_data_alone():
    _, form = form_of(PRIVATE["offset"])
    data, point = np.ones(M), np.ones(N)
    bound = form.bind([data])
    bound.gradient(point)
    assert (data == 1).all() and (point == 1).all()
    data[:] = 5.0
    assert bound.value(np.zeros(N)) == pytest.approx(M)


@pytest.mark.parametrize("case", PRIVATE)
def test_normal_form_pickles(case):
    form = form_of(PRIVATE[case])[1]
    copy = pickle.loads(pickle.dumps(form))
    data = [RNG.normal(size=s.size) for s in form.private]
    point = RNG.normal(size=form.n)
    assert copy.private == form.private
    assert np.array_equal(copy.bind(data).gradient(point), form.bind(data).gradient(point))


def test_rules_keep_their_identity_when_pickled():
    form = form_of(PRIVATE["offset"])[1]
    copy = pickle.loads(pickle.dumps(form))
    assert all(a.rule is b.rule for a, b in zip(form.atoms, copy.atoms, strict=True))


def test_evaluator_neither_pickles_nor_prints():
    _, form = form_of(PRIVATE["linear"])
    bound = form.bind([np.array([*RECOGNISABLE, *RECOGNISABLE[:3]])])
    for held in (bound, bound._root, bound._order, bound._steps[0]):
        with pytest.raises(TypeError, match="private data"):
            pickle.dumps(held)
    shown = repr(bound) + str(bound) + f"{bound}"
    assert shown == 3 * "Evaluator(n=4)"
