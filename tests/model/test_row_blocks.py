"""Gradients of many records in blocks of rows: the same numbers, less memory, one order."""

import functools
import pickle
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.atoms.entrywise import HUBER, LOGISTIC
from dpcvx.model.atoms.pairs import MATMUL
from dpcvx.model.normal_form import Beside, Clip
from dpcvx.model.row_blocks import bound_objective
from tests.forms import form_of

# Just enough records to be read in nine blocks, the last one of 8,960 rows.
M, N, K = 140_032, 30, 2
SIDES = np.where(np.arange(M) % 3, 1.0, -1.0)
TABLE = np.stack([SIDES, np.arange(M) % 5 / 5], axis=1)
w, b, W = cp.Variable(N, name="w"), cp.Variable(name="b"), cp.Variable((N, K), name="W")


def parts():
    adjacency = dp.Rows(1.0, records="person")
    X = dp.Private(shape=(M, N), adjacency=adjacency, name="X")
    y = dp.Private(shape=(M,), adjacency=adjacency, name="y")
    return X, y, dp.Private(shape=(M, K), adjacency=adjacency, name="Y")


def sum_of_logs(u):
    return cp.sum(cp.log_sum_exp(u, axis=1))


BY_ROW = {
    "logistic": lambda X, y, Y: cp.sum(cp.logistic(-(X @ w))) / M,
    "squares, ridge": lambda X, y, Y: cp.sum_squares(X @ w - y) + 3 * cp.sum_squares(w) - w[0],
    "public labels, intercept": lambda X, y, Y: cp.sum(cp.logistic(cp.multiply(SIDES, X @ w + b))),
    "private labels": lambda X, y, Y: cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b))) + cp.norm1(w),
    "weights, offsets": lambda X, y, Y: TABLE[:, 1] @ cp.huber(X @ w - y - SIDES, 0.5),
    "classes": lambda X, y, Y: sum_of_logs(X @ W) - cp.sum(cp.multiply(Y + TABLE, X @ W)),
    "several": lambda X, y, Y: cp.sum_squares(X @ w - y) + cp.sum(cp.exp(Y @ w[:2])) + cp.square(b),
    "public features beside": lambda X, y, Y: cp.norm1(X @ w - TABLE @ W[0] - y),
    "curved variables": lambda X, y, Y: cp.sum(cp.square(X @ cp.square(w))) + cp.sum(cp.square(w)),
    "norms": lambda X, y, Y: cp.sum(cp.norm(X @ W - Y, 2, axis=1)),
    "columns": lambda X, y, Y: cp.sum(cp.abs(cp.sum(X @ W, axis=1) - y)),
}


def entries(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).ravel(order="F")


@functools.cache
def records():
    found = entries((M, N), 0)
    return found / np.linalg.norm(found.reshape((M, N), order="F"), axis=1).max()


def data_of(form, seed=1):
    return [records() if s.shape == (M, N) else entries(s.size, seed) for s in form.private]


@functools.cache
def both(case):
    """The objective in blocks, as a whole, and the length of x."""
    _, form = form_of(BY_ROW[case](*parts()))
    data = data_of(form)
    return bound_objective(form, data, (), limited=True), form.bind(data, limited=True), form.n


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11 * np.abs(other).max())


def peak_of(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", BY_ROW)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([0.0, 0.1, 3.0]))
def test_blocks_add_up_to_the_whole(case, seed, size):
    blocks, whole, n = both(case)
    x = size * np.random.default_rng(seed).normal(size=n)
    close(blocks.gradient(x), whole.gradient(x))


@pytest.mark.parametrize("case", BY_ROW)
def test_a_block_is_all_that_is_worked_on_at_once(case):
    blocks, whole, n = both(case)
    x = np.full(n, 0.1)
    assert peak_of(lambda: blocks.gradient(x)) < peak_of(lambda: whole.gradient(x)) / 4


def test_gradients_have_the_same_bits_in_any_order():
    blocks, _, n = both("private labels")
    _, form = form_of(BY_ROW["private labels"](*parts()))
    again = bound_objective(form, data_of(form), (), limited=True)
    one, other = np.full(n, 0.1), np.linspace(-1, 1, n)
    first = blocks.gradient(one), blocks.gradient(other)
    assert np.array_equal(again.gradient(other), first[1])
    assert np.array_equal(again.gradient(one), first[0])
    assert np.array_equal(blocks.gradient(one), first[0])


# Loss, and the rule of the atom that takes what stands beside the product.
CLIPPED = {
    "product": (lambda X, y: cp.sum(cp.logistic(-(X @ w))) + cp.sum_squares(w), None),
    "columns": (lambda X, y: sum_of_logs(X @ W) - cp.sum(cp.multiply(TABLE, X @ W)), None),
    "public labels": (lambda X, y: cp.sum(cp.logistic(cp.multiply(SIDES, X @ w + b))), LOGISTIC),
    "labels beside": (lambda X, y: cp.sum(cp.huber(X @ w + b - y, 0.5)), HUBER),
}


@pytest.mark.parametrize("case", CLIPPED)
def test_clips_hold_record_by_record(case):
    cost, rule = CLIPPED[case]
    _, form = form_of(cost(*parts()[:2]))
    place = {atom.rule: j for j, atom in enumerate(form.atoms)}
    beside = None
    if rule is not None:
        size = np.linspace(0.5, 2.0, M)
        beside = Beside((place[rule], 0), np.ones(M), size, apart=True)
    clips = [Clip(place[MATMUL], False, 0.1, 1.0, 0.0, beside)]
    data, x = data_of(form), np.random.default_rng(2).normal(size=form.n)
    whole = form.bind(data, clips, limited=True).gradient(x)
    blocks = bound_objective(form, data, clips, limited=True)
    close(blocks.gradient(x), whole)
    assert np.abs(whole - form.bind(data, limited=True).gradient(x)).max() > 100
    assert peak_of(lambda: blocks.gradient(x)) < 4e6


def test_what_one_record_overflows_stays_with_it():
    _, form = form_of(cp.sum_squares(parts()[0] @ w))
    long = data_of(form)[0].reshape((M, N), order="F").copy(order="F")
    long[[5, M - 7], :2] = [1e300, -1e300]
    data = [np.ravel(long, order="F")]
    x = np.linspace(1e9, 2e9, N)
    found = bound_objective(form, data, (), limited=True).gradient(x)
    close(found, form.bind(data, limited=True).gradient(x))
    assert np.isfinite(found).all()
    # Infinite or undefined, as a kernel of BLAS has it: a square tells both, a Huber loss one.
    assert not np.isfinite(bound_objective(form, data, (), limited=False).gradient(x)).any()


def test_values_and_data_as_constants_are_those_of_the_whole():
    blocks, whole, n = both("squares, ridge")
    x = np.full(n, 0.1)
    assert blocks.value(x) == whole.value(x)
    close(blocks.inserted().bind([]).gradient(x), blocks.gradient(x))


def test_blocks_neither_pickle_nor_print():
    blocks, _, n = both("logistic")
    assert repr(blocks) == str(blocks) == f"Evaluator(n={n})"
    _, steps = blocks._order.blocks[0]
    for held in (blocks, blocks._order, steps[0], steps[0].arguments[0]):
        with pytest.raises(TypeError, match="private data"):
            pickle.dumps(held)


def wide(X, y, Y):
    few = dp.Private(shape=(M * N // 600, 600), adjacency=dp.Rows(1.0), name="wide")
    return cp.sum(cp.logistic(few @ cp.Variable(600)))


AS_A_WHOLE = {
    "few": lambda X, y, Y: cp.sum(cp.logistic(X[:100] @ w)),
    "no matrix": lambda X, y, Y: cp.sum(cp.huber(y - b)),
    "rows of many columns": wide,
    "neighbors": lambda X, y, Y: cp.sum_squares(cp.diff(X @ w)),
    "sum inside": lambda X, y, Y: cp.square(cp.sum_squares(X @ w - y)),
    "norm of all": lambda X, y, Y: cp.norm(X @ w - y),
    "a slack per record": lambda X, y, Y: cp.sum_squares(X @ w - cp.Variable(M)),
}


@pytest.mark.parametrize("case", AS_A_WHOLE)
def test_all_others_are_read_as_a_whole(case):
    _, form = form_of(AS_A_WHOLE[case](*parts()))
    data = data_of(form)
    whole, found = form.bind(data), bound_objective(form, data, (), limited=False)
    assert not found._order.blocks
    x = np.full(form.n, 0.01)
    assert np.array_equal(found.gradient(x), whole.gradient(x))


def test_sparse_records_are_read_as_a_whole():
    _, form = form_of(BY_ROW["logistic"](*parts()))
    data = [sp.random_array((M, N), density=0.01, format="csr", random_state=0)]
    x, whole = np.full(form.n, 0.1), form.bind(data)
    assert np.array_equal(
        bound_objective(form, data, (), limited=False).gradient(x), whole.gradient(x)
    )
