"""Private weights of public functions: their Jacobian at a point, and where it bounds nothing."""

import itertools
import math
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.sensitivity.derivation import derive
from dpcvx.sensitivity.private_weights import LARGEST
from dpcvx.solvers.projector import Extent
from tests.forms import assign, difference_quotients, form_of

A = np.array([[1.0, -2.0, 0.0, 0.5], [0.0, 3.0, 1.0, -1.0], [2.0, 0.0, -0.5, 1.0]])
B = np.array([[0.5, 1.0], [-1.0, 2.0], [0.0, -3.0]])
x = cp.Variable(4, name="x")
# The same expressions of private data and of numbers.
FORMS = {
    "multiply": lambda d: cp.sum(cp.multiply(d, cp.square(A @ x))),
    "product": lambda d: d @ cp.exp(x[1:] - x[:3]),
    "from the right": lambda d: cp.logistic(A @ x) @ (2 * d - 1),
    "affine": lambda d: cp.sum(cp.multiply(A.T @ d + 3, cp.huber(x))),
    "one number": lambda d: cp.multiply(cp.sum(d) - d[1], cp.log_sum_exp(x)),
    "matrix": lambda d: cp.trace(B.T @ cp.diag(d) @ cp.square(A @ cp.vstack([x, 1 - x]).T)),
    "nested": lambda d: d @ cp.square(1 + cp.square(A @ x)),
    "slices": lambda d: d[:2] @ cp.square(x[1:3]) - cp.multiply(d[2], cp.exp(x[0] - x[3])),
    "scaled and repeated": lambda d: 3 * (d @ cp.exp(A @ x)) - cp.exp(A @ x) @ d / 2,
    "not differentiable": lambda d: d @ cp.maximum(cp.abs(x[:3]), x[1:]),
    "next to others": lambda d: d @ cp.square(x[:3]) + cp.sum_squares(A @ x - d) + cp.norm1(x),
}
forms = pytest.mark.parametrize("name", FORMS)
numbers = st.floats(-2, 2).map(lambda v: round(v, 3))
points = st.lists(numbers, min_size=4, max_size=4).map(np.array)
data = st.lists(numbers, min_size=3, max_size=3).map(np.array)


def private(*shape, adjacency=None, name="d", **sign):
    return dp.Private(shape=shape, adjacency=adjacency or dp.Within(1.0), name=name, **sign)


def certificate(form):
    free = np.full(form.n, np.inf)
    return derive(form, "north", lambda: Extent(-free, free))


def certified(expression):
    form = form_of(expression)[1]
    return form, certificate(form)


@cache
def of(name, adjacency=None):
    """One of the forms, and its certificate."""
    return certified(FORMS[name](private(3, adjacency=adjacency)))


@cache
def with_numbers(name, unit=None):
    """The same expression with zeros or a unit vector for data, and how its variable is held."""
    expression = FORMS[name](np.zeros(3) if unit is None else np.eye(3)[unit])
    return expression, form_of(FORMS[name](private(3)))[0]


def slope(expression, layout, at):
    """The gradient in x, from cvxpy's values of the expression."""

    def value(v):
        assign(expression, layout, v)
        return expression.value

    return difference_quotients(value, at)


def kinked(at):
    size = np.abs(at)
    ties = np.abs(np.abs(at[:3]) - at[1:])
    return min(size.min(), np.abs(size - 1).min(), ties.min()) < 1e-3


@forms
@settings(max_examples=25)
@given(points)
def test_the_jacobian_is_the_change_of_cvxpys_slope_with_each_weight(name, at):
    if kinked(at):
        return
    (J,) = of(name)[1].jacobians_at(at)
    fixed = slope(*with_numbers(name), at)
    expected = np.stack([slope(*with_numbers(name, i), at) - fixed for i in range(3)], axis=1)
    size = 1 + np.abs(expected).max() + np.abs(fixed).max()
    assert J.shape == (4, 3)
    assert J.toarray() == pytest.approx(expected, rel=1e-6, abs=1e-6 * size)


@forms
@settings(max_examples=25)
@given(points, data, data)
def test_gradients_of_two_data_differ_by_the_jacobian_times_their_difference(name, at, one, two):
    form, sensitivity = of(name)
    (J,) = sensitivity.jacobians_at(at)
    gradients = [form.bind([d]).gradient(at) for d in (one, two)]
    moved, size = gradients[0] - gradients[1], max(np.abs(g).max() for g in gradients)
    assert moved == pytest.approx(J @ (one - two), rel=1e-9, abs=1e-12 * (1 + size))


@forms
def test_only_the_terms_that_weigh_have_a_jacobian_of_the_point(name):
    sensitivity = of(name)[1]
    assert sensitivity.weights is not None and sensitivity.weights.members == {0}
    assert sensitivity.weights.names[0] in ("cp.multiply", "@")
    constant = sensitivity.jacobians[0].nnz
    assert (constant > 0) == (name == "next to others")
    assert not sensitivity.constant and sensitivity.varies
    assert "private 'd' and variables meet in" in sensitivity.obstacle


def test_every_object_has_a_jacobian_of_its_own():
    d, e, f = private(4), private(3, name="e"), private(2, name="f")
    sensitivity = certified(d @ cp.exp(x) + e @ cp.square(x[:3]) + cp.sum_squares(x[2:] - f))[1]
    at = np.array([0.5, -1.0, 2.0, 0.0])
    names = [spec.name for spec in sensitivity.private]
    found = dict(zip(names, sensitivity.jacobians_at(at), strict=True))
    assert sensitivity.weights is not None and sensitivity.weights.members == {0, 1}
    assert found["d"].toarray() == pytest.approx(np.diag(np.exp(at)))
    assert found["e"].toarray() == pytest.approx(2 * np.eye(4, 3) * at[:, None])
    assert found["f"].toarray() == pytest.approx(-2 * np.eye(4)[:, 2:])


@pytest.mark.parametrize("name", ["multiply", "affine", "next to others"])
@pytest.mark.parametrize("norm", ["entry", 1, 2, math.inf], ids=str)
@settings(max_examples=10)
@given(points, data, data, st.sampled_from([1, 2]))
def test_no_neighbor_moves_the_gradient_further_than_the_bound(name, norm, at, one, change, p):
    form, sensitivity = of(name, dp.Within(0.5, norm))
    if norm == "entry":
        change = np.where(np.arange(3) == np.argmax(np.abs(change)), change, 0.0)
    size = np.linalg.norm(change, np.inf if norm == "entry" else norm)
    other = one + (0.5 * change / size if size > 0 else 0.0)
    moved = form.bind([one]).gradient(at) - form.bind([other]).gradient(at)
    assert np.linalg.norm(moved, p) <= sensitivity.bound(p, None, at).value + 1e-12


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(
    ("change", "sign", "reach"),
    [
        ("replace_one", {}, 2.0),
        ("replace_one", {"nonneg": True}, 1.0),
        ("add_or_remove_one", {}, 1.0),
        ("add_or_remove_one", {"nonpos": True}, 1.0),
    ],
)
def test_weights_that_are_records_have_the_reach_of_one_record(p, change, sign, reach):
    y = private(4, adjacency=dp.Rows(1.5, relation=change), name="y", **sign)
    sensitivity = certified(y @ cp.square(x))[1]
    at = np.array([0.1, -3.0, 2.0, 0.0])
    assert sensitivity.bound(p, None, at).value == pytest.approx(reach * 1.5 * 6.0)
    assert sensitivity.bound(p, np.array([1, 0.1, 1, 1]), at).value == pytest.approx(reach * 6.0)


@settings(max_examples=50)
@given(
    st.floats(0, 20).map(lambda v: 10.0 ** round(v, 1)),
    st.floats(0, 20).map(lambda v: 10.0 ** -round(v, 1)),
    st.floats(1, 2).map(lambda v: round(v, 3)),
)
def test_a_public_part_of_a_weight_of_any_size_does_not_change_the_jacobian(offset, unit, at):
    z = cp.Variable()
    sensitivity = certified(cp.multiply(offset + unit * private(), cp.square(z)))[1]
    assert sensitivity.bound(2, None, np.array([at])).value == pytest.approx(2 * unit * at)


# What is refused, or unbounded


def refusals():
    d, e = private(3), private(3, name="e")
    squares = cp.square(x[:3])
    return {
        "square of data": cp.square(d) @ squares,
        "product of data": cp.multiply(d, e) @ squares,
        "absolute data": cp.abs(d) @ squares,
        "weights of data as well": d @ cp.square(x[:3] - d),
        "weights of other data": e @ cp.square(x[:3] - d),
        "function of a sum": cp.square(d @ squares),
        "exponential of a sum": cp.exp(cp.sum(cp.multiply(d, squares))),
        "divisor": cp.sum(squares / d),
        "weights inside": cp.sum(cp.exp(cp.multiply(d, x[:3]))),
    }


@pytest.mark.parametrize("case", refusals())
def test_what_is_not_linear_in_the_weights_is_refused(case):
    with pytest.raises(dp.PrivacyError, match="No sensitivity can be derived for agent 'north'"):
        certified(refusals()[case])


def test_so_many_weights_are_tried_and_no_more():
    z = cp.Variable()
    weighed = certified(cp.multiply(cp.sum(private(LARGEST)), cp.square(z)))[1]
    assert weighed.bound(2, None, np.array([3.0])).value == pytest.approx(6.0)
    with pytest.raises(dp.PrivacyError, match=f"{LARGEST + 1} private weights.*dp.Asserted"):
        certified(cp.multiply(cp.sum(private(LARGEST + 1)), cp.square(z)))


def test_other_private_data_do_not_count_as_weights():
    other = private(2 * LARGEST, name="other")
    certified(private(4) @ cp.square(x) + cp.sum_squares(cp.sum(x) - other))


@forms
@pytest.mark.parametrize("p", [1, 2])
def test_over_a_whole_set_weights_have_no_bound(name, p):
    sensitivity = of(name)[1]
    assert sensitivity.bound(p).value == math.inf
    assert sensitivity.bound(p, None, np.full(4, 0.3)).value < math.inf


def priced():
    d = private(4, nonneg=True, name="price")
    cost = d @ cp.square(x) - cp.sum(x)
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="north")])


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_exact_steps_refuse_weights(release):
    with pytest.raises(dp.PrivacyError, match="(?s)'price'.*affine|affine.*'price'"):
        priced().plan(dp.ADMM(), epsilon=1.0, delta=1e-6, release=release)


@pytest.mark.parametrize("norm", ["entry", 1, 2, "inf"])
@pytest.mark.parametrize("kind", [dp.Gaussian(), dp.Laplace()], ids=["gaussian", "laplace"])
def test_weights_that_leave_once_are_charged_their_own_change(kind, norm):
    d = dp.Private(np.full(4, 2.0), nonneg=True, adjacency=dp.Within(0.1, norm), name="price")
    cost = d @ cp.square(x) - cp.sum(x)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name="north")])
    step = dp.LinearizedADMM(step=0.2)
    plan = problem.plan(step, mechanism=kind, rounds=100, epsilon=5.0, delta=1e-6, release="once")
    found = plan.run(seed=1, record=True, verbose=False)
    (released,) = found.transcript.releases
    left = plan.agent("north").publication.restore(released.value)[0]
    assert (left >= 0).all()
    # What follows is the optimum of what left: 2 d x = 1.
    clipped = np.minimum(1.0, 1 / np.maximum(2 * left, 1e-9))
    assert found.last[x] == pytest.approx(clipped, abs=1e-3)
    report = dp.check_sensitivity(plan)
    assert report.passed and 0.9 <= report.agents[0].ratio <= 1 + 1e-9


# Points at which a function has no finite slope, and points past them.
EDGES = {
    "entr": (lambda u: -cp.entr(u), 0.0),
    "entr, outside": (lambda u: -cp.entr(u), -1.0),
    "log": (lambda u: -cp.log(u), 0.0),
    "log1p": (lambda u: -cp.log1p(u), -1.0),
    "sqrt": (lambda u: -cp.sqrt(u), 0.0),
    "sqrt, outside": (lambda u: -cp.sqrt(u), -1.0),
    "inv_pos": (cp.inv_pos, 0.0),
    "exp": (cp.exp, 1e4),
    "square": (cp.square, 1e308),
    "exp of log": (lambda u: cp.exp(-cp.log(u)), 0.0),
}
WEIGHTS = {
    "plain": lambda d, u: d @ u,
    "affine": lambda d, u: cp.sum(cp.multiply(2 * d - 3, u)),
    "sums": lambda d, u: cp.sum(cp.multiply(cp.sum(d) - d, u)),
    "differences": lambda d, u: cp.sum(cp.multiply(d[0] - d, u)),
}
ADJACENCIES = [
    *(dp.Within(1.0, norm) for norm in ("entry", 1, 2, math.inf)),
    dp.Rows(1.0),
    dp.Rows(1.0, relation="add_or_remove_one"),
]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("way", WEIGHTS)
def test_where_a_function_has_no_finite_slope_its_weight_has_no_bound(edge, way):
    f, bad = EDGES[edge]
    inside, outside = np.full(4, 0.4), np.array([0.4, 0.4, bad, 0.4])
    d = private(4)
    # Finite parts next to it do not hide it, nor do scales.
    form = form_of(WEIGHTS[way](d, f(x)) + cp.sum_squares(x - d))[1]
    for adjacency in ADJACENCIES:
        sensitivity = certificate(replace(form, private=(private(4, adjacency=adjacency).spec,)))
        for p, scale in itertools.product((1, 2), (None, np.array([1.0, 2.0, 1e-200, 3.0]))):
            assert 0 < sensitivity.bound(p, scale, inside).value < math.inf
            assert sensitivity.bound(p, scale, outside).value == math.inf


ENTROPY = certified(-private(4) @ cp.entr(x))


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0.0, 0.1, 1.0, -0.1]), min_size=4, max_size=4), st.booleans())
def test_a_finite_bound_next_to_the_edge_covers_every_finite_change(at, two):
    form, sensitivity = ENTROPY
    at, p = np.array(at), 2 if two else 1
    bound = sensitivity.bound(p, None, at).value
    fixed = form.at_zero().gradient(at)
    with np.errstate(invalid="ignore"):
        moved = [form.bind([unit]).gradient(at) - fixed for unit in np.eye(4)]
    finite = [np.linalg.norm(m[np.isfinite(m)], p) for m in moved]
    assert bound >= max(finite)
    assert (bound == math.inf) == bool((at <= 0).any())
