"""Bounds of one change: against all corners of what may change, and of many rows at once."""

import itertools
import math
import sys

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.spec import PrivateSpec
from dpcvx.sensitivity import norms
from tests import spies


def jacobian(kind, rng):
    """A matrix whose entries cannot be permuted, nor change their signs, without being noticed."""
    J = rng.normal(size=(3, 4)) * [[1.0, 3.0, 0.2, 2.0]]
    if kind == "signs that can be aligned":
        J = np.abs(J) * np.outer([1, -1, 1], [1, 1, -1, -1])
    elif kind == "wide blocks":
        J = np.block([[J, np.zeros((3, 3))], [np.zeros((4, 4)), 2 * J.T]])
    elif kind == "with zeros":
        J[[0, 1, 2, 2], [1, 1, 0, 2]] = 0.0
    return J


KINDS = ("signs that cannot be aligned", "signs that can be aligned", "wide blocks", "with zeros")


def largest(J, norm, p):
    """The largest ``||J delta||_p`` over the unit ball of a norm, by all of its corners."""
    if norm in ("entry", 1):
        return max(np.linalg.norm(column, p) for column in J.T)
    if (norm, p) == (2, 2):
        return math.sqrt(np.linalg.eigvalsh(J.T @ J)[-1])
    over, norm_of = (J.T, 2) if norm == 2 else (J, p)
    corners = itertools.product((-1.0, 1.0), repeat=over.shape[1])
    return max(np.linalg.norm(over @ corner, norm_of) for corner in corners)


@pytest.mark.parametrize("unit", [1e-170, 1.0, 1e170])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("norm", ["entry", 1, 2, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_of_a_ball_is_attained_at_one_of_its_corners(kind, norm, p, unit):
    J = jacobian(kind, np.random.default_rng(3))
    for form in (sp.csr_array, sp.csc_array):
        bound = norms.ball_norm(form(unit * J), norm, p)
        assert bound.tight
        assert bound.value == pytest.approx(unit * largest(J, norm, p), rel=1e-12)


@pytest.mark.parametrize(("norm", "p"), [(2, 1), (np.inf, 2), (np.inf, 1)])
def test_too_many_signs_are_bounded_from_above_and_not_called_tight(norm, p, monkeypatch):
    spies.change(monkeypatch, "signs that are enumerated", 2)
    below_sums = below_spectra = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        J = rng.normal(size=(4, 5)) + (2 * (seed % 2)) * np.outer(rng.normal(size=4), np.ones(5))
        bound, exact = norms.ball_norm(sp.csr_array(J), norm, p), largest(J, norm, p)
        over = J.T if norm == 2 else J
        sums = np.abs(over).sum() if p == 1 and norm != 2 else norm_of_sums(over)
        width = J.size if norm == np.inf and p == 1 else over.shape[1]
        spectrum = math.sqrt(width) * np.linalg.norm(J, 2)
        assert bound.value >= exact * (1 - 1e-12)
        assert not bound.tight or bound.value == pytest.approx(exact, rel=1e-12)
        assert bound.value == pytest.approx(min(sums, spectrum), rel=1e-12)
        below_sums, below_spectra = (
            below_sums + (spectrum < sums),
            below_spectra + (sums < spectrum),
        )
    assert below_sums and below_spectra  # either bound is the better one somewhere


def norm_of_sums(J):
    return float(np.linalg.norm(np.abs(J).sum(axis=1)))


def test_a_derivative_that_is_not_finite_bounds_nothing():
    with pytest.raises(dp.PrivacyError, match="not finite"):
        norms.ball_norm(sp.csr_array([[np.inf, 1.0]]), 2, 2)
    assert norms.ball_norm(sp.csr_array((2, 2)), 2, 2) == norms.Bound(0.0, True)


def corners_of_rows(spec):
    """Corners of what one row may be, and zeros."""
    width, entries = spec.shape[1], {None: (-1.0, 0.0, 1.0), "nonneg": (0.0, 1.0)}
    corners = itertools.product(entries.get(spec.sign, (-1.0, 0.0)), repeat=width)
    most = 1 if spec.adjacency.norm == 1 else width
    return [spec.adjacency.max_norm * np.array(c) for c in corners if np.count_nonzero(c) <= most]


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("norm", [1, np.inf])
@pytest.mark.parametrize(
    ("change", "sign"),
    [
        ("replace_one", None),
        ("replace_one", "nonneg"),
        ("replace_one", "nonpos"),
        ("add_or_remove_one", None),
    ],
)
def test_a_row_moves_as_much_as_two_of_its_corners_are_apart(change, sign, norm, p):
    spec = PrivateSpec("X", (4, 3), dp.Rows(0.7, norm=norm, relation=change), sign)
    J = np.random.default_rng(5).normal(size=(2, 12)) + 0.2
    bounds, corners = norms.row_norms(sp.csr_array(J), spec, p), corners_of_rows(spec)
    others = corners if change == "replace_one" else [np.zeros(3)]
    apart = [row - other for row in corners for other in others]
    for row, bound in enumerate(bounds):
        exact = max(np.linalg.norm(J[:, row::4] @ difference, p) for difference in apart)
        assert bound == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_squares_of_rows_of_one_sign_stay_inside_floating_point(unit, p):
    spec = PrivateSpec("X", (1, 2), dp.Rows(0.7, norm=1), "nonneg")
    J = sp.csr_array(np.array([[3.0 * unit, 1e-200]]))
    assert norms.row_norms(J, spec, p) == pytest.approx([2.1 * unit])
    alone = PrivateSpec("y", (2,), dp.Rows(0.7), "nonneg")
    J = sp.csr_array(unit * np.array([[3.0, 0.0], [4.0, 0.0]]))
    expected = [0.7 * unit * (7.0 if p == 1 else 5.0), 0.0]
    assert norms.row_norms(J, alone, p) == pytest.approx(expected, rel=1e-12, abs=0)


def test_as_many_rows_meet_in_a_component_as_move_it():
    """An entry that is stored and zero moves nothing; a row that moves it twice counts once."""
    one, two = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 0.0], [0.0] * 3])
    stored = sp.csr_array(([0.0, 1.0, 1.0], ([0, 0, 1], [0, 1, 2])), (2, 3))
    assert norms.meeting([sp.csr_array(one)], 3) == 2
    assert norms.meeting([sp.csr_array(one), sp.csc_array(two)], 3) == 3
    assert norms.meeting([stored], 3) == 1
    # Two parts in one matrix: columns 0 and 3 are of one row.
    assert norms.meeting([sp.csr_array(np.hstack([one, two]))], 3) == 3
    assert norms.meeting([sp.csr_array((2, 3))], 3) == 0


def test_a_person_moves_as_much_as_the_largest_of_her_records_together():
    three = dp.Rows(1.0, max_rows_per_person=3)
    changes = np.array([2.0, 1.0, 4.0, 3.0, 0.5])
    assert norms.of_person(changes, three, 5) == 9.0
    # One bound of all records counts for each of hers.
    assert norms.of_person(np.array([4.0]), three, 5) == 12.0
    assert norms.of_person(changes, dp.Rows(1.0, max_rows_per_person=1), 5) == 4.0
    assert norms.of_person(changes, dp.Rows(1.0, max_rows_per_person="all"), 5) == 10.5
    assert norms.of_person(changes, three, 5, meet=1) == pytest.approx(math.sqrt(29.0))
    assert norms.of_person(np.array([1.0, math.nan]), three, 2) == math.inf


@pytest.mark.parametrize("sign", [None, "nonneg"])
def test_rows_in_l2_move_by_the_diagonal_of_a_square_if_their_sign_is_known(sign):
    spec = PrivateSpec("X", (2, 2), dp.Rows(0.5), sign)
    J = np.random.default_rng(6).normal(size=(3, 4))
    factor = 0.5 * (math.sqrt(2) if sign else 2)
    expected = [factor * np.linalg.norm(J[:, row::2], 2) for row in range(2)]
    np.testing.assert_allclose(norms.row_norms(sp.csr_array(J), spec, 2), expected, rtol=1e-12)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("sign", [None, "nonneg"])
def test_rows_of_one_number_move_by_their_bound_once_if_its_sign_is_known(sign, p):
    J = np.random.default_rng(7).normal(size=(3, 4))
    spec = PrivateSpec("x", (4,), dp.Rows(0.5), sign)
    expected = (0.5 if sign else 1.0) * np.linalg.norm(J, p, axis=0)
    for form in (sp.csr_array, sp.csc_array):
        np.testing.assert_allclose(norms.row_norms(form(J), spec, p), expected, rtol=1e-12)


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 4),
    st.sampled_from([1, 2, np.inf]),
    st.sampled_from(["replace_one", "add_or_remove_one"]),
    st.sampled_from([None, "nonneg", "nonpos"]),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-170, 1.0, 1e170]),
)
def test_many_rows_are_bounded_as_one_by_one(seed, width, norm, change, sign, p, unit):
    rng, count, height = np.random.default_rng(seed), 5, 3
    spec = PrivateSpec("X", (count, width), dp.Rows(0.7, norm=norm, relation=change), sign)
    dense = np.zeros((height * width, width * count))
    for j in range(width):  # the numbers of one column of the data move entries of their own
        place = np.ix_(range(height * j, height * (j + 1)), range(count * j, count * (j + 1)))
        dense[place] = rng.normal(size=(height, count)) * rng.integers(0, 2, (height, count))
    J = sp.csr_array(unit * dense[rng.permutation(height * width)])
    with pytest.MonkeyPatch.context() as patch:
        alone = norms.row_norms(J, spec, p)
        spies.change(patch, "rows from which on norms are taken together", 1)
        spies.change(patch, "norm of one row", None)
        np.testing.assert_allclose(norms.row_norms(J, spec, p), alone, rtol=1e-9)


def test_rows_whose_numbers_meet_are_bounded_one_by_one(monkeypatch):
    spec = PrivateSpec("X", (2, 2), dp.Rows(1.0), None)
    J = sp.csr_array(np.array([[1.0, 2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    alone = norms.row_norms(J, spec, 2)
    spies.change(monkeypatch, "rows from which on norms are taken together", 1)
    np.testing.assert_array_equal(norms.row_norms(J, spec, 2), alone)
    np.testing.assert_allclose(alone, 2 * np.array([np.sqrt(2), 2.0]))


def calls_of_planning(count, clip):
    W = cp.Variable((3, 2), name="W")
    labels = np.stack([np.arange(count) % 2, np.sin(np.arange(count))], axis=1)
    X = dp.Private(shape=(count, 3), name="X", adjacency=dp.Rows(1.0))
    scores = X @ W
    cost = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(labels, scores))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(W) <= 5], clip_norm=clip)])
    called = 0

    def count_calls(frame, event, argument):
        nonlocal called
        called += event == "call"

    sys.setprofile(count_calls)
    try:
        plan = problem.plan(dp.FederatedGradient(0.1), rounds=2, epsilon=1.0, delta=1e-6)
    finally:
        sys.setprofile(None)
    assert plan.agents[0].sensitivity.l2 < np.inf
    return called


@pytest.mark.parametrize("clip", [None, 0.1])
def test_planning_many_records_beside_public_labels_takes_no_loop(clip):
    """Rows were added to one matrix, and bounded, one after the other: minutes at 140,000."""
    calls_of_planning(300, clip)  # what is computed once in a process is computed
    assert calls_of_planning(12_000, clip) < 1.5 * calls_of_planning(3000, clip)
