"""Neighbors that tests compare with: admissible, far, and the same ones every time."""

import itertools
import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from dpcvx.testing.worst_neighbor import worst_neighbor
from tests.forms import form_of

A = np.array([[1.0, -2.0, 0.5], [0.3, 1.0, -2.0], [1.0, -0.2, -1.0], [0.0, 0.7, 0.4]])
NORMS = ["entry", 1, 2, math.inf]
norms = pytest.mark.parametrize("norm", NORMS, ids=str)
changes = pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
lengths = pytest.mark.parametrize("p", [1, 2])
signs = pytest.mark.parametrize("sign", [None, "nonneg", "nonpos"])


def certified(expression, **limits):
    form = form_of(expression)[1]
    free = np.full(form.n, np.inf)
    return form, derive(form, "north", lambda: Extent(-free, free), **limits)


def private(*shape, adjacency, name="d", sign=None):
    attribute = {} if sign is None else {sign: True}
    return dp.Private(shape=shape, adjacency=adjacency, name=name, **attribute)


def signed(values, sign):
    return values if sign is None else np.abs(values) * (1 if sign == "nonneg" else -1)


def admissible(specs, data, other):
    """Whether two data fit their declarations and differ by one change."""
    moved = set()
    for spec, one, two in zip(specs, data, other, strict=True):
        spec.checked(spec.shaped(two))  # of the right sign, finite, rows not too long
        assert spec.adjacency.allows(spec.shaped(one), spec.shaped(two))
        if isinstance(spec.adjacency, dp.Rows):
            own = {i % spec.shape[0] for i in np.flatnonzero(one != two)}
            moved |= {(spec.adjacency.records, i) for i in own}
        elif (one != two).any():
            moved.add(spec.name)
    return len(moved) == 1


def gap(form, data, other, p, x=None):
    """How far the gradients of two data are apart, at one point or the worse of two."""
    points = [np.zeros(form.n), np.sin(1.0 + np.arange(form.n))] if x is None else [x]
    return max(
        np.linalg.norm(form.bind(data).gradient(x) - form.bind(other).gradient(x), p)
        for x in points
    )


def check_neighbor(form, sensitivity, data, p):
    before = [d.copy() for d in data]
    other = worst_neighbor(form, sensitivity, data, p)
    assert all(np.array_equal(a, b) for a, b in zip(before, data, strict=True))
    assert admissible(form.private, data, other)
    return other


# Changes within a radius


def linear(norm, sign=None, count=3):
    x, d = cp.Variable(4), private(count, adjacency=dp.Within(0.5, norm), sign=sign)
    return certified(cp.sum_squares(x - A[:, :count] @ d))


@norms
@lengths
@signs
@settings(max_examples=15)
@given(
    st.lists(st.floats(-3, 3).map(lambda v: round(v, 3)), min_size=3, max_size=3),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_a_neighbor_within_a_radius_is_admissible_and_another(norm, p, sign, values, size):
    form, sensitivity = LINEAR[norm, sign]
    data = [signed(size * np.array(values), sign)]
    check_neighbor(form, sensitivity, data, p)


LINEAR = {
    (norm, sign): linear(norm, sign)
    for norm, sign in itertools.product(NORMS, [None, "nonneg", "nonpos"])
}


@norms
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9, 1e12])
def test_rounding_of_large_data_leaves_a_neighbor_admissible(norm, size):
    form, sensitivity = LINEAR[norm, None]
    for seed in range(20):
        data = [size * np.random.default_rng(seed).uniform(1, 2, size=3)]
        check_neighbor(form, sensitivity, data, 2)


@norms
@lengths
def test_of_a_constant_jacobian_the_neighbor_attains_the_bound(norm, p):
    form, sensitivity = LINEAR[norm, None]
    data = [np.array([0.3, -1.0, 2.0])]
    found = gap(form, data, check_neighbor(form, sensitivity, data, p), p)
    bound = sensitivity.bound(p)
    assert bound.tight and found <= bound.value
    # Some are sign problems, and the bound is their enumeration: nearly is enough.
    least = 0.9 if (norm, p) in ((2, 1), (math.inf, 1), (math.inf, 2)) else 1 - 1e-8
    assert found >= least * bound.value


@pytest.mark.parametrize("norm", ["entry", 1], ids=str)
@lengths
@signs
def test_a_sign_does_not_keep_a_single_entry_from_its_bound(norm, p, sign):
    form, sensitivity = LINEAR[norm, sign]
    for values in ([0.0, 0.0, 0.0], [0.2, 0.3, 0.4], [4.0, 5.0, 6.0]):
        data = [signed(np.array(values), sign)]
        found = gap(form, data, check_neighbor(form, sensitivity, data, p), p)
        assert found == pytest.approx(sensitivity.bound(p).value, rel=1e-8)


@pytest.mark.parametrize("norm", [2, math.inf], ids=str)
@pytest.mark.parametrize("sign", ["nonneg", "nonpos"])
def test_where_no_direction_keeps_the_sign_a_check_still_finds_a_neighbor(norm, sign):
    x = cp.Variable(4)
    d = dp.Private(np.zeros(3), adjacency=dp.Within(0.5, norm), name="d", **{sign: True})
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - A @ d)))])
    plan = problem.plan(dp.LinearizedADMM(step=0.1), rounds=2, epsilon=1.0, delta=1e-6)
    found = dp.check_sensitivity(plan)
    assert found.passed and found.agents[0].ratio > 0.3


def test_the_object_that_matters_most_is_changed():
    x = cp.Variable(2)
    small, large = (private(2, adjacency=dp.Within(r), name=str(r)) for r in (0.1, 5.0))
    form, sensitivity = certified(cp.sum_squares(x - small) + cp.sum_squares(x - large))
    data = [np.zeros(2), np.zeros(2)]
    other = check_neighbor(form, sensitivity, data, 2)
    moved = {s.name: o.any() for s, o in zip(form.private, other, strict=True)}
    assert moved == {"0.1": False, "5.0": True}


# Private weights


@norms
@pytest.mark.parametrize("count", [3, 5])
def test_weights_of_functions_with_a_domain_have_neighbors(norm, count):
    # The points that are tried lie outside the domain for five components.
    x = cp.Variable(count)
    d = private(count, adjacency=dp.Within(0.1, norm), sign="nonneg")
    form, sensitivity = certified(-d @ cp.entr(x))
    check_neighbor(form, sensitivity, [np.ones(count)], 2)


@norms
@lengths
def test_of_private_weights_the_neighbor_attains_the_bound_at_its_point(norm, p):
    x, d = cp.Variable(3), private(3, adjacency=dp.Within(0.5, norm), sign="nonneg")
    form, sensitivity = certified(d @ cp.exp(x))
    data, at = [np.ones(3)], np.sin(1.0 + np.arange(3))
    found = gap(form, data, check_neighbor(form, sensitivity, data, p), p, at)
    assert found == pytest.approx(sensitivity.bound(p, None, at).value, rel=1e-8)


# Records


def records(change, norm=2, sign=None, labels=True):
    """A loss of records with two parts, or with one."""
    w, rows = cp.Variable(2), dp.Rows(1.0, norm, change, records="person")
    X = private(4, 2, adjacency=rows, name="X", sign=sign)
    y = private(4, adjacency=dp.Rows(2.0, norm, change, records="person"), name="y", sign=sign)
    scores = X @ w - y if labels else X @ w
    return certified(cp.sum(cp.logistic(scores)))


def drawn(form, seed, sign=None):
    rng = np.random.default_rng(seed)
    found = []
    for spec in form.private:
        rows = rng.normal(size=(spec.shape[0], spec.size // spec.shape[0]))
        size = np.linalg.norm(rows, spec.adjacency.norm, axis=1, keepdims=True)
        rows *= spec.adjacency.max_norm * rng.uniform(0.1, 1, size=size.shape) / size
        found.append(signed(rows, sign).ravel(order="F"))
    return found


@changes
@signs
@pytest.mark.parametrize("norm", [1, 2, math.inf], ids=str)
@lengths
def test_another_record_is_admissible(change, sign, norm, p):
    form, sensitivity = records(change, norm, sign)
    for seed in range(10):
        check_neighbor(form, sensitivity, drawn(form, seed, sign), p)


@changes
@signs
def test_the_first_record_may_be_absent(change, sign):
    form, sensitivity = records(change, sign=sign)
    data = drawn(form, 0, sign)
    for part, spec in zip(data, form.private, strict=True):
        part[0 :: spec.shape[0]] = 0.0
    check_neighbor(form, sensitivity, data, 2)


@pytest.mark.parametrize("sign", ["nonneg", "nonpos"])
def test_records_of_equal_entries_are_replaced_by_others(sign):
    form, sensitivity = records("replace_one", sign=sign, labels=False)
    check_neighbor(form, sensitivity, [signed(np.full(8, 0.5), sign)], 2)


@changes
@lengths
@pytest.mark.parametrize("norm", [1, 2, math.inf], ids=str)
def test_of_constant_terms_of_one_column_the_heaviest_record_attains_the_bound(change, p, norm):
    b, y = cp.Variable(2), private(4, adjacency=dp.Rows(1.5, norm, change))
    weights = np.array([[1.0, 0.0, 3.0, 2.0], [0.0, 1.0, 1.0, -3.5]])
    form, sensitivity = certified(cp.sum_squares(b - weights @ y))
    data = [np.array([1.5, -1.5, 1.5, -1.5])]
    found = gap(form, data, check_neighbor(form, sensitivity, data, p), p)
    assert found == pytest.approx(sensitivity.bound(p).value, rel=1e-8)


@changes
def test_a_record_of_full_length_moves_losses_far(change):
    form, sensitivity = records(change, labels=False)
    data = [np.array([[0.6, 0.8], [1, 0], [0, 1], [-1, 0.0]]).ravel(order="F")]
    other = check_neighbor(form, sensitivity, data, 2)
    # Half of the bound: a logistic loss has slope 1/2 at the origin.
    least = 0.45 if change == "replace_one" else 0.2
    assert least * sensitivity.bound(2).value < gap(form, data, other, 2)
    assert gap(form, data, other, 2) <= sensitivity.bound(2).value


# Bounds that were asserted: nothing tells where to look


TRUE = {"entry": 1.0, 1: 1.0, 2: 3.0, math.inf: 9.0}


@norms
def test_a_change_of_all_entries_exposes_an_assertion(norm):
    # The gradient of (x - sum d)^2 changes by 2 for one entry, by 6 in l2, by 18 in linf.
    x, d = cp.Variable(), private(9, adjacency=dp.Within(1.0, norm))
    form, sensitivity = certified(cp.square(x - cp.sum(d)), asserted=dp.Asserted(l2=0.1))
    data = [np.zeros(9)]
    found = gap(form, data, check_neighbor(form, sensitivity, data, 2), 2)
    assert found == pytest.approx(2 * TRUE[norm], rel=1e-6)


@norms
def test_changes_of_mixed_signs_expose_an_assertion(norm):
    x, d = cp.Variable(), private(9, adjacency=dp.Within(1.0, norm))
    alternating = np.array([1.0, -1, 1, -1, 1, -1, 1, -1, 1])
    form, sensitivity = certified(cp.square(x - alternating @ d), asserted=dp.Asserted(l2=0.1))
    data = [np.zeros(9)]
    found = gap(form, data, check_neighbor(form, sensitivity, data, 2), 2)
    assert found == pytest.approx(2 * TRUE[norm], rel=1e-6)


@norms
@lengths
def test_an_assertion_is_exposed_as_far_as_a_derivation_would_be(norm, p):
    x, d = cp.Variable(4), private(3, adjacency=dp.Within(0.5, norm))
    f = cp.sum_squares(x - A @ d)
    derived, data = certified(f)[1], [np.array([0.3, -1.0, 2.0])]
    form, sensitivity = certified(f, asserted=dp.Asserted(l2=0.1))
    found = gap(form, data, check_neighbor(form, sensitivity, data, p), p)
    assert 0.9 * derived.bound(p).value <= found <= derived.bound(p).value


@pytest.mark.parametrize("count", [40, 60, 200])
def test_the_one_entry_that_matters_is_found_wherever_it_is(count):
    x, d = cp.Variable(), private(count, adjacency=dp.Within(1.0))
    form, sensitivity = certified(cp.square(x - d[count - 2]), asserted=dp.Asserted(l2=0.1))
    data = [np.zeros(count)]
    other = check_neighbor(form, sensitivity, data, 2)
    assert gap(form, data, other, 2) == pytest.approx(2.0)


@pytest.mark.parametrize("sign", ["nonneg", "nonpos"])
def test_an_assertion_about_data_of_a_sign_has_an_admissible_neighbor(sign):
    x, d = cp.Variable(3), private(3, adjacency=dp.Within(0.5), sign=sign)
    form, sensitivity = certified(cp.norm1(x - d), asserted=dp.Asserted(l2=0.1))
    other = check_neighbor(form, sensitivity, [np.zeros(3)], 2)
    assert gap(form, [np.zeros(3)], other, 2) >= 1.0


# All of them


def cases():
    x, d = cp.Variable(3), private(3, adjacency=dp.Within(0.5, 2))
    return {
        "derived": LINEAR[2, None],
        "records": records("replace_one"),
        "weights": certified(d @ cp.exp(x)),
        "asserted": certified(cp.norm1(x - d), asserted=dp.Asserted(l2=0.1)),
    }


@pytest.mark.parametrize("case", cases())
@lengths
def test_the_same_data_have_the_same_neighbor_every_time(case, p):
    form, sensitivity = cases()[case]
    data = [np.linspace(0.1, 0.6, s.size) for s in form.private]
    found = [worst_neighbor(form, sensitivity, [d.copy() for d in data], p) for _ in range(3)]
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("sign", [None, "nonneg", "nonpos"])
def test_data_that_meet_no_variables_change_as_well(sign):
    x, d = cp.Variable(3), private(3, adjacency=dp.Within(0.5), sign=sign)
    form, sensitivity = certified(cp.sum_squares(x) + cp.sum_squares(d))
    data = [np.zeros(3)]
    (other,) = worst_neighbor(form, sensitivity, data, 2)
    assert np.count_nonzero(other) == 1 and np.abs(other).max() == 0.5


def test_a_record_with_a_part_of_zeros_is_removed_as_a_whole():
    """A label of 0 is no absent record: a neighbor has none of its parts, or all of them."""
    rows = dp.Rows(2.0, relation="add_or_remove_one", records="visit")
    w = cp.Variable(3, name="w")
    X, y = private(4, 3, adjacency=rows, name="X"), private(4, adjacency=rows, name="y")
    form, known = certified(cp.sum(cp.exp(X @ w) - cp.multiply(y, X @ w)), clip=1.0)
    data = [np.tile([1.0, 1.0, 1.0, 0.0], 3), np.array([0.0, 1.0, 0.0, 0.0])]
    other = worst_neighbor(form, known, data, 2)
    (row,) = {i % 4 for part, d in zip(other, data, strict=True) for i in np.flatnonzero(part != d)}
    assert row == 3 or all(not part[row::4].any() for part in other)
