"""Second derivatives of single records, next to differences of gradients."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.record_rows import RecordCurvature
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests.forms import difference_quotients, form_of

M, N, K = 12, 3, 3
SIDES = np.where(np.arange(M) % 3, 1.0, -1.0)
CLASSES = np.eye(K)[np.arange(M) % K]
w, b, W = cp.Variable(N, name="w"), cp.Variable(name="b"), cp.Variable((N, K), name="W")

LOSSES = {
    "logistic": lambda X, y: cp.sum(cp.logistic(-cp.multiply(SIDES, X @ w))) / M,
    "intercept": lambda X, y: cp.sum(cp.logistic(-cp.multiply(SIDES, X @ w + b))),
    "squares": lambda X, y: cp.sum_squares(X @ w - y),
    "squared hinge": lambda X, y: cp.sum_squares(cp.pos(1 - cp.multiply(SIDES, X @ w))),
    "private labels": lambda X, y: cp.sum(cp.logistic(-cp.multiply(y, X @ w))),
    "counts": lambda X, y: cp.sum(cp.exp(X @ w) - cp.multiply(y, X @ w)),
    "classes": lambda X, y: (
        cp.sum(cp.log_sum_exp(X @ W, axis=1)) - cp.sum(cp.multiply(CLASSES, X @ W))
    ),
    "turned": lambda X, y: cp.sum(cp.log_sum_exp(W.T @ X.T, axis=0)),
    "sums of scores": lambda X, y: cp.sum(cp.exp(cp.sum(X @ W, axis=1))),
    "made of data": lambda X, y: cp.sum(cp.logistic(cp.abs(X) @ w - y)),
}


def bound(name):
    """Form, data, clip and evaluator of a loss."""
    adjacency = dp.Rows(3.0, records="person")
    X = dp.Private(shape=(M, N), adjacency=adjacency, name="X")
    y = dp.Private(shape=(M,), adjacency=adjacency, name="y")
    _, form = form_of(LOSSES[name](X, y))
    anywhere = Extent(-np.ones(form.n), np.ones(form.n))
    (clip,) = derive(form, "clinic", lambda: anywhere, clip=1.0).clips
    rng = np.random.default_rng(3)
    values = {"X": rng.normal(size=(M, N)).ravel(order="F"), "y": rng.normal(size=M)}
    data = [values[spec.name] for spec in form.private]
    return form, data, clip


@pytest.mark.parametrize("name", LOSSES)
def test_they_are_the_derivatives_of_gradients(name):
    form, data, clip = bound(name)
    x = 0.3 * np.random.default_rng(4).normal(size=form.n)
    H = difference_quotients(form.bind(data).gradient, x)
    trace, largest = RecordCurvature.at(form, data, clip, x).cut(1e9)
    assert trace == pytest.approx(np.trace(H), rel=1e-5)
    assert largest == pytest.approx(np.linalg.eigvalsh((H + H.T) / 2)[-1], rel=1e-5)


@pytest.mark.parametrize("name", ["logistic", "classes", "counts"])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), limit=st.floats(0.01, 3.0), removed=st.booleans())
def test_one_record_moves_both_by_the_limit_at_most(name, seed, limit, removed):
    form, data, clip = bound(name)
    rng, x = np.random.default_rng(seed), np.zeros(form.n)
    other = [part.copy() for part in data]
    row = rng.integers(M)
    for part in other:
        size = part.size // M
        part[row::M] = 0 if removed else rng.normal(size=size) * 10 ** rng.uniform(-1, 1)
    one, two = (RecordCurvature.at(form, d, clip, x).cut(limit) for d in (data, other))
    assert np.abs(np.subtract(one, two)).max() <= limit * (1 + 1e-9)


def test_records_are_counted_by_their_traces():
    form, data, clip = bound("squares")
    curved = RecordCurvature.at(form, data, clip, np.zeros(form.n))
    sizes = 2 * (data[0].reshape((M, N), order="F") ** 2).sum(axis=1)
    for limit in np.quantile(sizes, [0.1, 0.5, 0.9]):
        assert curved.exceeding(limit) == (sizes > limit).sum()
    assert curved.greatest == pytest.approx(sizes.max())


def test_what_overflows_counts_and_is_cut():
    form, data, clip = bound("counts")
    long = [part.copy() for part in data]
    long[0][[0, M, 2 * M]] = 1e200
    trace, largest = RecordCurvature.at(form, long, clip, np.ones(form.n)).cut(0.1)
    assert 0 <= largest <= trace <= 0.1 * M


def test_eigenvalues_too_large_for_numbers_are_of_one_record_alone():
    """Where the losses of all others count, as they do without it."""
    form, data, clip = bound("sums of scores")
    x, long = np.zeros(form.n), [part.copy() for part in data]
    long[0][[0, M, 2 * M]], x[::N] = [1.0, 0.0, 0.0], 708.9 / K
    for part in (data, long):
        part[0][1:M] = 0.0
    one, two = (RecordCurvature.at(form, d, clip, x).cut(1e-3) for d in (data, long))
    assert np.isfinite(two).all() and np.abs(np.subtract(one, two)).max() <= 1e-3 * (1 + 1e-9)


def test_curvatures_far_above_the_limit_are_cut_to_it():
    """Shares of less than 1e-308 have lost digits."""
    for size in np.geomspace(1e91, 1e92, 30):
        trace, largest = RecordCurvature(np.full((1, 1, 1), size)).cut(1e-140)
        assert (trace, largest) == pytest.approx((1e-140, 1e-140), rel=1e-12, abs=0)


def test_without_a_record_there_is_nothing():
    none = RecordCurvature.none(3)
    assert none.exceeding(0.0) == 0 and none.cut(1.0) == (0.0, 0.0) and none.greatest == 0.0
