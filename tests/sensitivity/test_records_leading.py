"""Many records with public rows of their own: few cover all, and blocks bound as the whole."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.sensitivity import records
from dpcvx.sensitivity.derivation import derive
from dpcvx.solvers.projector import Extent
from tests import spies
from tests.forms import form_of

M, N = 24, 5
LOSSES = {
    "logistic": lambda s, y: cp.sum(cp.logistic(cp.multiply(-y, s))) / M,
    "huber": lambda s, y: cp.sum(cp.huber(s - y)),
    "hinge": lambda s, y: cp.sum(cp.pos(1 - cp.multiply(y, s))),
    "absolute": lambda s, y: 2 * cp.norm1(s - y),
    "exponential": lambda s, y: cp.sum(cp.exp(s - y)),
    "quartic": lambda s, y: cp.sum(cp.power(s - y, 4)),
    "cubic": lambda s, y: cp.sum(cp.power(cp.pos(s - y), 3)),
    "logarithm": lambda s, y: -cp.sum(cp.log(2 + 0.001 * s + y)),
}


def rows(rng):
    """Sparse rows of very different lengths, some empty, some alike, some of one entry or sign."""
    X = sp.random_array(
        (M, N), density=0.4, random_state=rng, data_sampler=rng.standard_normal, format="csr"
    )
    X = sp.csr_array(sp.diags_array(rng.choice([0.01, 1.0, 30.0], size=M)) @ X)
    X.data[: X.nnz // 3] = np.abs(X.data[: X.nnz // 3])
    return X


def contributions(loss, X, change="replace_one", sign=None):
    y = dp.Private(
        shape=(M,),
        name="y",
        adjacency=dp.Rows(1.0, relation=change),
        **({sign: True} if sign else {}),
    )
    _, form = form_of(LOSSES[loss](X @ cp.Variable(N, name="w"), y))
    free = np.full(N, np.inf)
    return derive(form, "a", lambda: Extent(-free, free)).records[0]


def extents(rng):
    width = rng.uniform(0, 2, size=N)
    yield Extent(np.full(N, -1.5), np.full(N, 1.5))
    yield Extent(-width, 2 * width)
    yield Extent(np.zeros(N), np.zeros(N))


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_largest_of_few_is_the_largest_of_all(loss, seed):
    rng = np.random.default_rng(seed)
    X, sign, p = rows(rng), rng.choice(["", "nonneg"]), int(rng.integers(1, 3))
    removed = bool(rng.integers(2))
    change = "add_or_remove_one" if removed else "replace_one"
    whole = contributions(loss, X, change, sign)
    with pytest.MonkeyPatch.context() as patch:
        spies.change(patch, "directions that are few", 2)
        spies.change(patch, "records that are many", 8)
        spies.change(patch, "records in a block", 12)
        few = contributions(loss, X, change, sign)
        assert few.lines is not None and len(few.blocks) == 2
        for extent in extents(rng):
            assert few.lines.leading(extent).size < M
            bounds = whole.bound(p, extent)
            np.testing.assert_allclose(few.bound(p, extent), bounds, rtol=1e-12)
            assert few.largest(p, extent) == pytest.approx(bounds.max(), rel=1e-12)
            absent = whole.bound(p, extent, absent=True).max()
            assert few.largest(p, extent, absent=True) == pytest.approx(absent, rel=1e-12)
            changes = whole.changed(p, extent, removed=removed)
            np.testing.assert_allclose(few.changed(p, extent, removed=removed), changes, rtol=1e-12)
            found = few.largest_change(p, extent, removed=removed)
            assert found == pytest.approx(changes.max(), rel=1e-12)


OTHERS = {
    "offsets": lambda X, w, y: cp.sum(cp.huber(X @ w - y + np.arange(M))),
    "weights": lambda X, w, y: np.arange(M) @ cp.logistic(cp.multiply(y, X @ w)),
    "two scores": lambda X, w, y: cp.sum(cp.maximum(cp.square(X @ w - y), cp.abs(X @ w))),
    "two matrices": lambda X, w, y: cp.sum(
        cp.logistic(cp.multiply(y, X @ w)) + cp.huber(X @ -w - y)
    ),
}


@pytest.mark.parametrize("model", OTHERS)
def test_records_that_differ_otherwise_are_all_bounded(model, monkeypatch):
    spies.change(monkeypatch, "records in a block", 8)
    X, w = rows(np.random.default_rng(0)), cp.Variable(N, name="w")
    y = dp.Private(shape=(M,), name="y", adjacency=dp.Rows(1.0))
    _, form = form_of(OTHERS[model](X, w, y))
    extent = Extent(np.full(N, -1.0), np.full(N, 1.0))
    task = derive(form, "a", lambda: extent).records[0]
    assert task.lines is None
    assert task.largest(2, extent) == task.bound(2, extent).max()


def test_a_record_whose_size_is_no_number_covers_none(monkeypatch):
    spies.change(monkeypatch, "directions that are few", 2)
    X, up = sp.csr_array(np.ones((M, N))), np.linspace(1.0, 2.0, M)
    down = up[::-1].copy()
    down[M // 2] = np.nan
    lines = records.Lines(X, (down, up), np.ones(M, dtype=np.int8))
    found = lines.leading(Extent(np.full(N, -1.0), np.full(N, 1.0)))
    assert {0, M // 2, M - 1} <= {*found} and np.array_equal(found, np.unique(found))
