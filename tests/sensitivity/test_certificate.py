"""Certified sensitivities: never exceeded, attained where called exact, refused where unproved."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.plan.banner import argument, figures
from dpcvx.sensitivity.derivation import derive as derive_within
from dpcvx.sensitivity.norms import ball_norm
from dpcvx.solvers.projector import Extent
from tests.forms import form_of
from tests.instances import clinics

NORMS = ["entry", 1, 2, math.inf]


def derive(form, owner="north", **limits):
    """The certificate of an agent without constraints."""
    free = np.full(form.n, np.inf)
    return derive_within(form, owner, lambda: Extent(-free, free), **limits)


def matrix(rng, *shape):
    """Entries of both signs, some of them zero, but not all."""
    found = rng.normal(size=shape) * rng.integers(0, 4, size=shape)
    return found if found.any() else np.ones(shape)


def squares(rng, within):
    x = cp.Variable(3)
    return cp.sum_squares(matrix(rng, 5, 3) @ x - dp.Private(shape=5, adjacency=within, name="d"))


def quad_form(rng, within):
    x, C = cp.Variable(4), rng.normal(size=(4, 4))
    return cp.quad_form(x - dp.Private(shape=4, adjacency=within, name="d"), C.T @ C)


def linear(rng, within):
    x = cp.Variable(4)
    return dp.Private(shape=3, adjacency=within, name="d") @ (matrix(rng, 3, 4) @ x + 1)


def multiply(rng, within):
    x = cp.Variable(4)
    d = dp.Private(shape=4, adjacency=within, name="d")
    return cp.sum(cp.multiply(matrix(rng, 4), cp.multiply(d, x - 2))) + cp.norm1(x)


def trace(rng, within):
    X = cp.Variable((2, 3))
    D = dp.Private(shape=(2, 3), adjacency=within, name="D")
    return cp.trace(D.T @ X) - cp.trace(matrix(rng, 3, 2) @ D)


def matrices(rng, within):
    X = cp.Variable((2, 3))
    D = dp.Private(shape=(2, 3), adjacency=within, name="D")
    return cp.sum_squares(matrix(rng, 2, 2) @ X - D) + cp.sum(cp.exp(X / 1e4))


def weighted(rng, within):
    x = cp.Variable(4)
    d = dp.Private(shape=4, adjacency=within, name="d")
    return cp.sum(cp.multiply(rng.normal(size=4), cp.square(x - d))) + cp.sum_squares(d)


def mixed(rng, within):
    x = cp.Variable(4)
    d = dp.Private(shape=4, adjacency=within, name="d")
    return 3 * cp.sum_squares(matrix(rng, 6, 4) @ (x - 2 * d)) + cp.sum(cp.logistic(x))


def products(rng, within):
    x = cp.Variable(3)
    d = dp.Private(shape=3, adjacency=within, name="d")
    return (matrix(rng, 3, 3) @ (x - d)) @ (x + 2 * d) + cp.quad_over_lin(x - d[::-1], 4)


def scalar(rng, within):
    x = cp.Variable(4)
    d = dp.Private(shape=(), adjacency=within, name="d")
    return cp.sum(matrix(rng, 4) @ x) * d + cp.sum_squares(x - d)


def several(rng, within):
    x, y = cp.Variable(3), cp.Variable(2)
    d = dp.Private(shape=4, adjacency=within, name="d")
    e = dp.Private(shape=3, adjacency=dp.Within(2.5), name="e")
    r = dp.Private(shape=2, adjacency=dp.Within(0.3, 2), name="r")
    f = cp.sum_squares(matrix(rng, 4, 3) @ x - d) + e @ x
    return f + cp.sum_squares(y - r) + cp.sum(cp.multiply(r, y)) / 2


FAMILIES = [
    *[squares, quad_form, linear, multiply, trace, matrices],
    *[weighted, mixed, products, scalar, several],
]
families = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
norms = pytest.mark.parametrize("norm", NORMS, ids=str)


def certified(family, seed, norm, radius=1.0):
    form = form_of(family(np.random.default_rng(seed), dp.Within(radius, norm)))[1]
    return form, derive(form, "north")


def in_ball(rng, size, norm, kind):
    """A difference of norm at most one: on the boundary, at a corner, or inside."""
    if norm in ("entry", 1) and (norm == "entry" or kind == "corner"):
        delta = np.zeros(size)
        delta[rng.integers(size)] = rng.choice([-1.0, 1.0])
    elif norm == math.inf:
        delta = rng.choice([-1.0, 1.0], size=size) if kind == "corner" else rng.uniform(-1, 1, size)
    else:
        delta = rng.normal(size=size)
        delta /= np.linalg.norm(delta, norm)
    return delta * (rng.uniform() if kind == "inside" else 1.0)


def corners(J, norm, p):
    """Differences of norm one among which the largest ``||J delta||_p`` is found."""
    m, n = J.shape
    if norm in ("entry", 1):
        yield from np.eye(n)
    elif norm == math.inf:
        yield from (np.array(s) for s in itertools.product((1.0, -1.0), repeat=n))
    elif p == 2:
        yield np.linalg.svd(J)[2][0]
    else:
        for s in itertools.product((1.0, -1.0), repeat=m):
            direction = J.T @ np.array(s)
            length = np.linalg.norm(direction)
            yield direction / length if length else direction


def change(form, data, k, delta, x):
    """How the gradient moves with private parameter k, and how precisely that is computed."""
    other = [v + delta if j == k else v for j, v in enumerate(data)]
    here, there = form.bind(data).gradient(x), form.bind(other).gradient(x)
    parts = [here, there, form.at_zero().gradient(x), form.bind(data).gradient(0 * x)]
    return there - here, 1e-12 * sum(np.abs(g).sum() for g in parts)


def worst(form, norm_of, p, scale=1.0):
    """The largest change over adversarial pairs, from gradients alone."""
    origin = [np.zeros(s.size) for s in form.private]
    x = np.zeros(form.n)
    largest = 0.0
    for k, spec in enumerate(form.private):
        columns = [change(form, origin, k, unit, x)[0] for unit in np.eye(spec.size)]
        J = np.reshape(scale, (-1, 1)) * np.stack(columns, axis=1)
        radius = spec.adjacency.radius
        for delta in corners(J, norm_of(spec), p):
            moved, _ = change(form, origin, k, radius * delta, x)
            largest = max(largest, np.linalg.norm(scale * moved, p))
    return largest


@families
@settings(max_examples=40)
@given(
    norm=st.sampled_from(NORMS),
    p=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["corner", "boundary", "inside"]),
    size=st.sampled_from([0.0, 1.0, 1e6]),
    far=st.sampled_from([0.0, 1.0, 1e3]),
    radius=st.sampled_from([1e-3, 1.0, 40.0]),
)
def test_neighbors_never_exceed_the_bound(family, norm, p, seed, kind, size, far, radius):
    form, sensitivity = certified(family, seed, norm, radius)
    bound = sensitivity.bound(p).value
    rng = np.random.default_rng(seed)
    data = [size * rng.normal(size=s.size) for s in form.private]
    x = far * rng.normal(size=form.n)
    for k, spec in enumerate(form.private):
        delta = spec.adjacency.radius * in_ball(rng, spec.size, spec.adjacency.norm, kind)
        moved, rounding = change(form, data, k, delta, x)
        assert np.linalg.norm(moved, p) <= bound + rounding


@families
@norms
@pytest.mark.parametrize("p", [1, 2])
def test_adversarial_neighbors_attain_the_bound(family, norm, p):
    form, sensitivity = certified(family, 1, norm)
    bound = sensitivity.bound(p)
    attained = worst(form, lambda spec: spec.adjacency.norm, p)
    assert bound.tight
    assert 0.99 * bound.value <= attained <= bound.value * (1 + 1e-9)


@families
@norms
@pytest.mark.parametrize("p", [1, 2])
def test_weighted_bounds_are_attained_too(family, norm, p):
    form, sensitivity = certified(family, 2, norm)
    scale = np.random.default_rng(9).uniform(0.01, 5, size=form.n)
    bound = sensitivity.bound(p, scale)
    attained = worst(form, lambda spec: spec.adjacency.norm, p, scale)
    assert bound.tight
    assert 0.99 * bound.value <= attained <= bound.value * (1 + 1e-9)


@families
def test_properties_are_the_unweighted_bounds(family):
    form, sensitivity = certified(family, 3, "entry")
    assert (
        sensitivity.l1 == sensitivity.bound(1).value == sensitivity.bound(1, np.ones(form.n)).value
    )
    assert sensitivity.l2 == sensitivity.bound(2).value <= sensitivity.l1


@norms
def test_bounds_are_proportional_to_the_radius(norm):
    one, three = (certified(squares, 4, norm, r)[1] for r in (1.0, 3.0))
    assert three.l1 == pytest.approx(3 * one.l1)
    assert three.l2 == pytest.approx(3 * one.l2)


def test_bounds_of_least_squares_are_the_known_ones():
    A = np.array([[1.0, 2.0], [-3.0, 4.0], [0.0, 1.0]])
    x = cp.Variable(2)
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=3)))
    expected = {
        "entry": (14.0, 10.0),
        1: (14.0, 10.0),
        2: (2 * np.linalg.norm([1 - 2, -3 - 4, -1]), 2 * np.linalg.norm(A, 2)),
        math.inf: tuple(2 * np.linalg.norm(signs @ A, p, axis=1).max() for p in (1, 2)),
    }
    for norm, (l1, l2) in expected.items():
        d = dp.Private(shape=3, adjacency=dp.Within(1.0, norm), name="d")
        found = derive(form_of(cp.sum_squares(A @ x - d))[1], "north")
        assert (found.l1, found.l2) == pytest.approx((l1, l2), rel=1e-8)


small = st.integers(1, 4)


@given(m=small, n=small, seed=st.integers(0, 10**6), exponent=st.integers(-100, 100))
def test_ball_norm_is_the_brute_force_maximum(m, n, seed, exponent):
    J = np.random.default_rng(seed).integers(-2, 3, size=(m, n)) * 10.0**exponent
    for norm, p in itertools.product(NORMS, (1, 2)):
        found = ball_norm(sp.csr_array(J), norm, p)
        largest = max(np.linalg.norm(J @ delta, p) for delta in corners(J, norm, p))
        assert found.tight
        assert found.value == pytest.approx(largest, rel=1e-9)


@pytest.mark.parametrize(("norm", "p"), [(2, 1), (math.inf, 1), (math.inf, 2)])
def test_blocks_of_a_large_matrix_are_solved_one_by_one(norm, p):
    block = np.array([[1.0, 2.0], [3.0, -4.0]])
    J = np.kron(np.eye(40), block)
    each = max(np.linalg.norm(block @ delta, p) for delta in corners(block, norm, p))
    expected = 40 * each if (norm, p) == (math.inf, 1) else math.sqrt(40) * each
    found = ball_norm(sp.csr_array(J), norm, p)
    assert found.tight and found.value == pytest.approx(expected)


@pytest.mark.parametrize(("norm", "p"), [(2, 1), (math.inf, 1), (math.inf, 2)])
def test_signs_that_can_be_aligned_are_exact_at_any_size(norm, p):
    rng = np.random.default_rng(0)
    flips = rng.choice([-1.0, 1.0], size=(2, 30))
    J = flips[0][:, None] * rng.uniform(0.1, 1, size=(30, 30)) * flips[1]
    delta = flips[1] if norm == math.inf else J.T @ flips[0]
    delta = delta / np.linalg.norm(delta, norm)
    found = ball_norm(sp.csr_array(J), norm, p)
    assert found.tight
    assert found.value == pytest.approx(np.linalg.norm(J @ delta, p))


def climb(J, rng, p):
    """Local search on the signs of delta for the largest ``||J delta||_p``."""
    best = 0.0
    for _ in range(20):
        s = rng.choice([-1.0, 1.0], size=J.shape[1])
        value = np.linalg.norm(J @ s, p)
        improved = True
        while improved:
            improved = False
            for i in range(s.size):
                s[i] = -s[i]
                if (trial := np.linalg.norm(J @ s, p)) > value:
                    value, improved = trial, True
                else:
                    s[i] = -s[i]
        best = max(best, value)
    return best


@pytest.mark.parametrize(("norm", "p"), [(2, 1), (math.inf, 1), (math.inf, 2)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_inexact_bounds_hold_and_are_not_far_off(norm, p, seed):
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(18, 20))
    found = ball_norm(sp.csr_array(J), norm, p)
    # max over ||delta||_2 <= 1 of ||J delta||_1 is max over signs of ||J's||_2.
    attained = climb(J.T, rng, 2) if norm == 2 else climb(J, rng, p)
    assert not found.tight
    assert attained <= found.value <= math.sqrt(20) * attained


def test_inexact_bounds_are_called_so_in_a_model():
    rng = np.random.default_rng(1)
    x = cp.Variable(20)
    A = rng.normal(size=(20, 20))
    d = dp.Private(shape=20, adjacency=dp.Within(1.0, math.inf), name="d")
    e = dp.Private(shape=20, adjacency=dp.Within(1.0), name="e")
    sensitivity = derive(form_of(cp.sum_squares(A @ x - d) + e @ x)[1], "north")
    assert not sensitivity.bound(1).tight and not sensitivity.bound(2).tight
    assert figures(sensitivity).count("(upper bound)") == 2


def test_a_larger_exact_bound_hides_an_inexact_one():
    rng = np.random.default_rng(1)
    x = cp.Variable(20)
    d = dp.Private(shape=20, adjacency=dp.Within(1e-6, math.inf), name="d")
    e = dp.Private(shape=20, adjacency=dp.Within(10.0), name="e")
    f = cp.sum_squares(rng.normal(size=(20, 20)) @ x - d) + e @ x
    bound = derive(form_of(f)[1], "north").bound(2)
    assert bound.tight and bound.value == pytest.approx(10.0)


def d_of(*shape, **kwargs):
    return dp.Private(shape=shape, adjacency=dp.Within(1.0), name="meter", **kwargs)


x = cp.Variable(4)
MIXED = d_of(4)
REFUSED = {
    "logistic": cp.sum(cp.logistic(x - d_of(4))),
    "multiply": cp.sum(cp.multiply(MIXED, cp.square(x - MIXED))),
    "quad_over_lin": cp.sum_squares(d_of(3, 4) @ x),
    "norm1": cp.norm1(x - d_of(4)),
    "huber": cp.sum(cp.huber(x - d_of(4))),
    "max": cp.max(x + d_of(4)),
    "norm": cp.norm(x - d_of(4)),
    "log_sum_exp": cp.log_sum_exp(cp.multiply(d_of(4), x)),
    "division": cp.sum(x / (1 + d_of(4, nonneg=True))),
    "power": cp.square(cp.sum_squares(x - d_of(4))),
    "exp": cp.sum_squares(x - d_of(4)) + cp.exp(d_of(4) @ x),
}
WRITTEN = {"quad_over_lin": "cp.sum_squares", "division": "/", "power": "cp.square"}


@pytest.mark.parametrize("case", REFUSED)
def test_unproved_terms_are_refused_by_name(case):
    form = form_of(REFUSED[case])[1]
    with pytest.raises(dp.PrivacyError) as caught:
        derive(form, "harbour")
    text = str(caught.value)
    assert "'harbour'" in text and "'meter'" in text
    assert f"meet in {WRITTEN.get(case, f'cp.{case}')}, whose gradient" in text
    assert "clip_norm=" not in text  # of no use to data that are not records
    assert "sum_squares(A @ x - data)" in text


def test_data_as_a_denominator_of_squares_are_refused():
    form = form_of(cp.quad_over_lin(x, 1 + d_of()))[1]
    with pytest.raises(dp.PrivacyError, match="quad_over_lin"):
        derive(form, "north")


def test_refusals_name_the_objects_of_the_term_only():
    other = dp.Private(shape=4, adjacency=dp.Within(1.0), name="innocent")
    form = form_of(cp.sum_squares(x - other) + cp.norm1(x - d_of(4)))[1]
    with pytest.raises(dp.PrivacyError) as caught:
        derive(form, "north")
    assert "'meter'" in str(caught.value) and "innocent" not in str(caught.value)


@pytest.mark.parametrize(
    "f",
    [
        cp.norm1(x) + cp.sum(cp.exp(d_of(4))),
        cp.sum(cp.logistic(d_of(4))) + cp.sum_squares(x),
        cp.sum_squares(d_of(4)) + cp.sum(d_of(3)) + x[0],
        cp.sum(x) + cp.sum_squares(d_of(3, 4) @ np.ones(4)),
    ],
)
def test_data_and_variables_apart_have_no_sensitivity(f):
    sensitivity = derive(form_of(f)[1], "north")
    assert sensitivity.l1 == sensitivity.l2 == 0.0
    assert sensitivity.bound(1).tight
    assert sensitivity.terms == () and "does not depend on" in argument([sensitivity])
    assert sensitivity.independent == tuple(spec.name for spec in sensitivity.private)


def test_regularizers_add_nothing():
    d = d_of(4)
    plain, rich = (
        derive(form_of(cp.sum_squares(x - d) + rest)[1], "north")
        for rest in (0, 5 * cp.norm1(x) + cp.sum(cp.exp(x)) + cp.sum(cp.exp(d)) + 3 * cp.sum(d))
    )
    assert (rich.l1, rich.l2) == (plain.l1, plain.l2)
    assert rich.terms == plain.terms


d, people = d_of(4), dp.Private(shape=(5, 4), adjacency=dp.Rows(1.0), name="people")


@pytest.mark.parametrize(
    ("f", "atom"),
    [
        (cp.sum_squares(x - d) + 2 * d @ x, "cp.sum_squares, @,"),
        (cp.sum_squares(x) + 0 * cp.sum_squares(x - d), "cp.sum_squares,"),
        (cp.sum_squares(cp.hstack([x, d])), "cp.sum_squares,"),
        (0 * cp.sum(cp.logistic(people @ x)), "cp.logistic,"),
        (cp.sum_squares(x - d) + 0 * cp.sum(cp.logistic(people @ x)), "cp.logistic,"),
    ],
    ids=["cancels", "times zero", "side by side", "records", "one of two"],
)
def test_data_next_to_variables_that_seem_not_to_matter_are_refused(f, atom):
    with pytest.raises(dp.PrivacyError, match="derived sensitivity is 0") as caught:
        derive_within(form_of(f)[1], "north", unit_box)
    assert f"meet in {atom}" in str(caught.value)
    asserted = derive(form_of(f)[1], asserted=dp.Asserted(l2=1.0))
    assert asserted.independent == ()


def unit_box():
    return Extent(np.full(4, -1.0), np.full(4, 1.0))


def test_only_what_stands_apart_is_called_independent():
    c, e = (dp.Private(shape=4, adjacency=dp.Within(0.1), name=name) for name in "ce")
    f = cp.sum_squares(x - c) + cp.sum(cp.exp(e))
    sensitivity = derive(form_of(f)[1], "north")
    assert sensitivity.independent == ("e",) and sensitivity.l2 > 0
    assert "The gradient does not depend on 'e'" in argument([sensitivity])


def test_objective_without_private_data():
    sensitivity = derive(form_of(cp.norm1(x))[1], "north")
    assert sensitivity.l2 == 0.0 and sensitivity.private == ()


def derivation(sensitivity):
    return f"{argument([sensitivity])} {figures(sensitivity)}"


def test_derivation_names_terms_objects_and_figures():
    d = dp.Private(shape=3, adjacency=dp.Within(0.25), name="load")
    A = np.array([[3.0, 0, 0, 0], [0, 4, 3, 0], [0, 0, 0, 1]])
    text = derivation(derive(form_of(cp.sum_squares(A @ x - d))[1], "north"))
    for part in ("sum_squares", "'load'", "one entry changes by at most 0.25"):
        assert part in text
    assert "J is 4 x 3 with 4 non-zeros" in text
    assert "3.5 in l1" in text and "2.5 in l2" in text and "upper bound" not in text


@pytest.mark.parametrize(
    ("norm", "words"),
    [
        ("entry", "largest column norm"),
        (1, "largest column norm"),
        (2, "norm over the l2 ball"),
        (math.inf, "box of worst signs"),
    ],
    ids=str,
)
def test_derivation_says_how_the_figure_arises(norm, words):
    d = dp.Private(shape=4, adjacency=dp.Within(2.0, norm), name="load")
    text = derivation(derive(form_of(cp.sum_squares(x - d))[1], "north"))
    assert words in text and str(dp.Within(2.0, norm)) in text


def test_derivation_lists_every_private_object_and_kind_of_term():
    text = derivation(certified(several, 0, 2)[1])
    assert all(f"'{name}'" in text for name in "der")
    assert all(term in text for term in ("sum_squares", "@", "multiply"))


@pytest.mark.parametrize("p", [1, 2])
def test_coefficients_that_are_no_numbers_are_never_a_sensitivity_of_zero(p):
    hole = np.array([1.0, 1.0, np.nan, 1.0])
    f = cp.sum(cp.multiply(hole, cp.multiply(d_of(4), x)))
    try:
        bound = derive(form_of(f)[1], "north").bound(p).value
    except dp.DpcvxError:
        return
    assert bound > 0


def test_weights_that_are_no_numbers_are_never_a_sensitivity_of_zero():
    sensitivity = derive(form_of(cp.sum_squares(x - d_of(4)))[1], "north")
    try:
        bound = sensitivity.bound(2, np.array([1.0, 1.0, np.nan, 1.0])).value
    except dp.DpcvxError:
        return
    assert bound > 0


@pytest.mark.parametrize("norm", ["entry", 1, math.inf], ids=str)
def test_tiny_coefficients_are_never_a_sensitivity_of_zero(norm):
    d = dp.Private(shape=4, adjacency=dp.Within(1.0, norm), name="d")
    sensitivity = derive(form_of(1e-170 * cp.sum_squares(x - d))[1], "north")
    assert sensitivity.l2 >= 2e-170


def test_huge_coefficients_have_their_sensitivity():
    sensitivity = derive(form_of(1e170 * cp.sum_squares(x - d_of(4)))[1], "north")
    assert sensitivity.l2 == pytest.approx(2e170)


WEIGHED = {
    "squares": lambda d: cp.sum(cp.multiply(d, cp.square(x))),
    "product": lambda d: d @ cp.exp(x[:3] - x[1:]),
    "affine weights": lambda d: cp.sum(cp.multiply(2 * d - 1, cp.logistic(x))) + cp.norm1(x),
    "one number": lambda d: cp.multiply(cp.sum(d), cp.log_sum_exp(x)),
    "and squares": lambda d: cp.sum(cp.multiply(d, cp.huber(x))) + cp.sum_squares(x - d),
}


@pytest.mark.parametrize("case", WEIGHED)
@norms
@pytest.mark.parametrize("p", [1, 2])
def test_private_weights_have_a_bound_at_each_point_that_is_attained(case, norm, p):
    d = dp.Private(shape=3 if case == "product" else 4, adjacency=dp.Within(0.5, norm), name="d")
    form = form_of(WEIGHED[case](d))[1]
    sensitivity = derive(form)
    assert sensitivity.varies and sensitivity.bound(p).value == math.inf
    rng = np.random.default_rng(3)
    point, scale, data = rng.normal(size=4), rng.uniform(0.1, 3, size=4), [rng.normal(size=d.size)]
    columns = [change(form, data, 0, unit, point)[0] for unit in np.eye(d.size)]
    J = scale[:, None] * np.stack(columns, axis=1)
    moved = [change(form, data, 0, 0.5 * v, point)[0] for v in corners(J, norm, p)]
    attained = max(np.linalg.norm(scale * m, p) for m in moved)
    assert sensitivity.bound(p, scale, point).value == pytest.approx(attained, rel=1e-8)


def rows_of(*shape, bound=1.0, norm=2, change="replace_one", name="rows", **kwargs):
    adjacency = dp.Rows(bound, norm, change, records="meter")
    return dp.Private(shape=shape, adjacency=adjacency, name=name, **kwargs)


@norms
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
def test_one_row_of_constant_terms_moves_the_gradient_by_the_bound_and_no_further(norm, p, change):
    norm = 2 if norm == "entry" else norm
    X, A = cp.Variable((2, 3)), matrix(np.random.default_rng(5), 4, 2)
    form = form_of(cp.sum_squares(A @ X - rows_of(4, 3, bound=0.5, norm=norm, change=change)))[1]
    found = derive(form).bound(p)
    worst_row, origin = 0.0, np.zeros(12)
    for i in range(4):
        own = np.arange(i, 12, 4)
        units = np.zeros((3, 12))
        units[np.arange(3), own] = 1.0
        columns = [form.bind([u]).gradient(np.zeros(6)) for u in units]
        fixed = form.bind([origin]).gradient(np.zeros(6))
        J = np.stack(columns, axis=1) - fixed[:, None]
        worst_row = max([worst_row, *(np.linalg.norm(J @ v, p) for v in corners(J, norm, p))])
    times = 2 if change == "replace_one" else 1
    assert found.tight and found.value == pytest.approx(times * 0.5 * worst_row, rel=1e-8)


def test_parts_of_one_record_move_together():
    y, z = rows_of(4, name="y"), rows_of(4, bound=3.0, name="z")
    other = dp.Private(shape=4, adjacency=dp.Rows(2.0, records="line"), name="other")
    f = cp.sum_squares(x - y) + cp.sum(cp.multiply(z, x)) + cp.sum_squares(x - other)
    found = derive(form_of(f)[1]).bound(2)
    assert found.value == pytest.approx(2 * (2 * 1.0 + 3.0)) and not found.tight


def test_a_sign_keeps_a_row_from_its_opposite():
    found = derive(form_of(cp.sum_squares(x - rows_of(4, nonneg=True)))[1]).bound(2)
    assert found.value >= 2 * (1 - 1e-9)
    assert not found.tight or found.value == pytest.approx(2)


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize("factor", [1e-170, 1e170])
def test_coefficients_of_any_size_keep_the_sensitivity_of_rows(shape, factor):
    y = rows_of(*shape)
    residual = x - (y if len(shape) == 1 else y[:, 0])
    found = derive(form_of(factor * cp.sum_squares(residual))[1])
    assert (found.l1 / factor, found.l2 / factor) == pytest.approx((4, 4))


def test_weights_that_are_no_numbers_are_never_a_sensitivity_of_zero_for_rows():
    sensitivity = derive(form_of(cp.sum_squares(x - rows_of(4)))[1])
    try:
        bound = sensitivity.bound(2, np.array([1.0, 1.0, np.nan, 1.0])).value
    except dp.DpcvxError:
        return
    assert bound > 0


def records(label="record", **options):
    rows = np.array([[0.6, 0.8], [1.0, 0.0]])
    return dp.Private(rows, name="X", adjacency=dp.Rows(1.0, records=label, **options))


def test_parts_of_different_records_in_one_loss_are_named_as_such():
    w = cp.Variable(2, name="w")
    for adjacency in (dp.Rows(1.0, records="other"), dp.Within(1.0)):
        y = dp.Private(np.ones(2), name="y", adjacency=adjacency)
        agent = dp.Agent(cp.Minimize(cp.sum_squares(records() @ w - y)), [cp.abs(w) <= 1])
        with pytest.raises(dp.PrivacyError, match="same records= label"):
            dp.Problem([agent]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)


def test_a_clip_is_not_advised_where_it_is_given():
    w = cp.Variable(2, name="w")
    for clip in (None, 1.0):
        agent = dp.Agent(cp.Minimize(cp.norm(records() @ w - 1)), [cp.abs(w) <= 1], clip_norm=clip)
        with pytest.raises(dp.PrivacyError, match=r"cp\.sum_squares\(X @ w - y\)") as refused:
            dp.Problem([agent]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
        assert ("dp.Agent(..., clip_norm=1.0)" in str(refused.value)) == (clip is None)


def test_a_clip_and_an_asserted_bound_exclude_each_other():
    w = cp.Variable(2, name="w")
    loss = cp.Minimize(cp.sum(cp.logistic(records() @ w)))
    agent = dp.Agent(loss, clip_norm=1.0, sensitivity=dp.Asserted(l2=1.0))
    with pytest.raises(dp.PrivacyError, match="both clip_norm= and sensitivity="):
        dp.Problem([agent]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_in_l1_few_entries_of_a_records_gradient_count_as_few(count):
    """Random coordinates: noise covers the entries that move, not the dimension."""
    plan = clinics().problem.plan(
        dp.LinearizedADMM(penalty=1.0), mechanism=dp.Laplace(noise_multiplier=3.0), rounds=1
    )
    scale = np.zeros(3)
    scale[:count] = 1.0
    sensitivity = plan.agents[0].sensitivity
    few, l2 = (sensitivity.bound(p, scale).value for p in (1, 2))
    assert few <= np.sqrt(count) * l2 * (1 + 1e-8)
    assert few <= sensitivity.l1 * (1 + 1e-8)
    assert (count == 3) == (few > 0.99 * sensitivity.l1)


# -- rows of one sign ------------------------------------------------------------------------------


def signed_rows(norm, sign, width, seed, change="replace_one"):
    """A model that is linear in three rows of one sign, by products with random numbers."""
    rng = np.random.default_rng(seed)
    adjacency = dp.Rows(1.7, norm, change)
    D = dp.Private(shape=(3, width), adjacency=adjacency, name="D", **{sign: True})
    x, A = cp.Variable(3), rng.normal(size=(3 * width, 3)) * rng.integers(0, 4, (3 * width, 3))
    form = form_of(cp.vec(D, order="F") @ (A @ x) + cp.sum_squares(x))[1]
    return form, derive(form), A.T


def long(row, norm):
    """The row of norm one in the same direction; zeros stay."""
    size = np.linalg.norm(row, norm)
    return row / size if size else row


def pairs_of_rows(J, norm):
    """Pairs of nonnegative rows of norm one, among them the worst for J in most norms."""
    width = J.shape[1]
    directions = [*itertools.product((1.0, -1.0), repeat=width), *np.linalg.svd(J)[2]]
    directions += [J.T @ np.array(s) for s in itertools.product((1.0, -1.0), repeat=J.shape[0])]
    for direction in map(np.array, directions):
        yield long(direction.clip(0), norm), long((-direction).clip(0), norm)
    corners = [np.zeros(width), *np.eye(width)]
    yield from itertools.combinations(corners, 2)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize(("sign", "width"), [("nonneg", 1), ("nonneg", 4), ("nonpos", 3)])
def test_rows_of_one_sign_are_charged_what_they_can_do(norm, sign, width, p):
    """Gradients themselves, at pairs of admissible rows; short of the bound by sqrt(2) at most."""
    for seed in range(5):
        form, sensitivity, J = signed_rows(norm, sign, width, seed)
        bound, worst, x = sensitivity.bound(p).value, 0.0, np.ones(3)
        side = 1.7 if sign == "nonneg" else -1.7
        for i in range(3):
            for rows in pairs_of_rows(J[:, i::3], norm):
                data = np.zeros((2, 3, width))
                data[:, i] = side * np.array(rows)
                one, two = (form.bind([d.ravel(order="F")]).gradient(x) for d in data)
                worst = max(worst, float(np.linalg.norm(one - two, p)))
        assert worst <= bound
        assert worst >= (0.999 if norm != 2 or width == 1 else 0.707) * bound


@settings(max_examples=60)
@given(
    norm=st.sampled_from([1, 2, math.inf]),
    p=st.sampled_from([1, 2]),
    width=st.integers(1, 6),
    seed=st.integers(0, 10**6),
)
def test_no_two_rows_of_one_sign_are_farther_apart_than_their_bounds(norm, p, width, seed):
    form, sensitivity, _ = signed_rows(norm, "nonneg", width, seed)
    rng = np.random.default_rng(seed)
    data = 1.7 * rng.uniform(size=(3, width)) / width
    other = data.copy()
    for table in (data, other):
        row = rng.uniform(size=width) * rng.integers(0, 2, width)
        table[1] = 1.7 * long(row, norm) * rng.choice([1.0, 1.0, rng.uniform()])
    one, two = (form.bind([d.ravel(order="F")]).gradient(np.ones(3)) for d in (data, other))
    assert np.linalg.norm(one - two, p) <= sensitivity.bound(p).value + 1e-12
    reach = form.private[0].row_reach(p)
    assert np.linalg.norm(data[1] - other[1], p) <= reach * (1 + 1e-12)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_farthest_rows_of_one_sign_share_no_entry(norm, p, width):
    spec = signed_rows(norm, "nonpos", width, 0)[0].private[0]
    one, two = np.zeros((2, width))
    one[: width // 2], two[width // 2 :] = 1.0, 1.0
    choices = [(one, two), (np.eye(width)[0], np.eye(width)[-1])]
    if width == 1:
        choices = [(np.zeros(1), np.ones(1))]
    apart = max(np.linalg.norm(long(a, norm) - long(b, norm), p) for a, b in choices)
    assert spec.row_reach(p) == pytest.approx(1.7 * apart, rel=1e-12)


def test_added_rows_of_one_sign_and_replaced_ones_of_any_are_charged_as_before():
    for norm in (1, 2, math.inf):
        form = signed_rows(norm, "nonneg", 4, 0, "add_or_remove_one")[0]
        assert form.private[0].row_reach(2) == 1.7 * max(1.0, 4 ** (1 / 2 - 1 / norm))
    D = dp.Private(shape=(3, 4), adjacency=dp.Rows(1.0), name="D")
    assert D.spec.row_reach(2) == 2.0 and D.spec.row_reach(1) == 4.0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_rows_of_one_sign_stay_inside_floating_point(scale):
    D = dp.Private(shape=(2, 2), adjacency=dp.Rows(1.0, 1), name="D", nonneg=True)
    x = cp.Variable(2)
    found = derive(form_of(scale * cp.sum(cp.multiply(D, cp.vstack([x, x]))))[1])
    assert found.l2 == pytest.approx(math.sqrt(2) * scale, rel=1e-6)


def test_members_of_one_record_are_told_with_bounds_of_their_own():
    w = cp.Variable(2)
    X = dp.Private(shape=(5, 2), name="X", adjacency=dp.Rows(1.0))
    y = dp.Private(shape=5, name="y", adjacency=dp.Rows(3.0))
    z = dp.Private(shape=5, name="z", adjacency=dp.Rows(3.0))
    losses = cp.sum(cp.abs(X @ w - y)) + cp.sum(cp.logistic(X @ w - z))
    told = figures(derive(form_of(losses)[1]))
    assert f"'X', {dp.Rows(1.0)} and 'y' and 'z', {dp.Rows(3.0)}: 5 records" in told
