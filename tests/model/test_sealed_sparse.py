"""Private data in sparse matrices: what is read, what is refused, and gradients as of arrays."""

import itertools
import math
import pickle
import warnings

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.matrices import BLOCK, sparse_row_norms
from dpcvx.model.normal_form import Clip, row_lengths
from dpcvx.model.private import source_of
from dpcvx.model.sealed import handed_over, unseal
from tests.forms import form_of

M, N, K = 9, 5, 3
WIDE = dp.Rows(10.0)
RNG = np.random.default_rng(5)
DENSE = RNG.normal(size=(M, N)) * (RNG.random((M, N)) < 0.4)
DENSE[2] = 0.0
FORMATS = [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix, sp.coo_matrix, sp.lil_array]
y = RNG.normal(size=M)
w, b, W = cp.Variable(N, name="w"), cp.Variable(name="b"), cp.Variable((N, K), name="W")


def declared(data=None, adjacency=WIDE, **kwargs):
    return dp.Private(data, adjacency=adjacency, name="X", **kwargs)


def stored(private, data=None):
    return unseal(source_of(private, data), private.spec)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_kept_as_rows(kind):
    found = stored(declared(kind(DENSE)))
    assert isinstance(found, sp.csr_array) and np.array_equal(found.toarray(), DENSE)
    handed = stored(declared(shape=(M, N)), kind(DENSE))
    assert np.array_equal(handed.toarray(), DENSE)
    fetched = stored(declared(lambda: kind(DENSE), shape=(M, N)))
    assert np.array_equal(fetched.toarray(), DENSE)


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.float32])
def test_numbers_of_every_kind_mean_what_their_arrays_mean(kind):
    entries = (np.array([1, 1, 100, 100, 0], kind), ([0, 0, 1, 1, 2], [1, 1, 0, 0, 2]))
    repeated = sp.coo_array(entries, shape=(3, 3))
    found = stored(declared(repeated, dp.Rows(1e3)))
    assert found.dtype == np.float64 and np.array_equal(found.toarray(), repeated.toarray())
    assert found.nnz == np.count_nonzero(found.toarray())
    rows = sp.csr_array((entries[0], [1, 1, 0, 0, 2], [0, 2, 4, 5]), shape=(3, 3))
    again = stored(declared(rows, dp.Rows(1e3)))
    assert np.array_equal(again.toarray(), found.toarray())
    assert rows.nnz == 5  # the user's own matrix stays what it is


def test_later_changes_of_the_matrix_do_not_reach_the_object():
    given = sp.csr_array(DENSE)
    private = declared(given)
    given.data[:] = 7.0
    assert np.array_equal(stored(private).toarray(), DENSE)
    with pytest.raises(ValueError, match="read-only"):
        stored(private).data[0] = 1.0


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("clip", [False, True])
def test_long_rows_are_clipped_or_refused_as_those_of_arrays(norm, clip):
    adjacency = dp.Rows(0.7, norm=norm, clip_rows=clip)
    if not clip:
        with pytest.raises(dp.DataError, match="exceeds the declared bound 0.7"):
            declared(sp.csr_array(DENSE), adjacency)
        return
    ours = stored(declared(sp.csr_array(DENSE), adjacency)).toarray()
    theirs = stored(declared(DENSE, adjacency)).reshape((M, N), order="F")
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)
    long = np.linalg.norm(DENSE, norm, axis=1) > 0.7
    assert 0 < long.sum() < M and np.array_equal(ours[~long], DENSE[~long])


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("entry", [1e-300, 1e300])
def test_rows_of_extreme_magnitude_have_norms(norm, entry):
    rows = sp.csr_array(np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, -1.0, 0.0]]) * entry)
    peak, norms = sparse_row_norms(rows, norm)
    assert peak * norms == pytest.approx([{1: 7, 2: 5}.get(norm, 4) * entry, 0.0, entry], rel=1e-12)


def test_norms_of_many_rows_are_those_of_each():
    counts = RNG.integers(0, 40, size=40_000)
    counts[[0, -1, 17]] = 0, 0, 2 * BLOCK
    ends = np.concatenate([[0], np.cumsum(counts)])
    assert ends[-1] > 3 * BLOCK
    rows = sp.csr_array((RNG.normal(size=ends[-1]), np.zeros(ends[-1], int), ends))
    own = [np.linalg.norm(rows.data[i:j]) for i, j in itertools.pairwise(ends)]
    np.testing.assert_allclose(row_lengths(rows), own, rtol=1e-12)


def entry(value):
    bad = DENSE.copy()
    bad[0, 0] = value
    return sp.csr_array(bad)


def outside(kind, place=10**6):
    """A matrix with an index beyond its shape."""
    bad = sp.coo_array(DENSE).asformat(kind)
    if kind == "coo":
        bad.col[0] = place
    elif kind == "lil":
        bad.rows[0][-1] = place
    else:
        bad.indices[0] = place
    return bad


WRONG = {
    "complex": (lambda: sp.csr_array(DENSE).astype(complex), {}, "are of type complex128"),
    "NaN": (lambda: entry(np.nan), {}, "NaN or infinite"),
    "infinite": (lambda: entry(-np.inf), {}, "NaN or infinite"),
    "overflowing": (
        lambda: sp.coo_array(([1e308, 1e308], ([0, 0], [0, 0])), shape=(M, N)),
        {},
        "NaN or infinite",
    ),
    "shape": (lambda: sp.csr_array(DENSE[:, 1:]), {}, r"have shape \(9, 4\)"),
    "sign": (lambda: sp.csr_array(DENSE), {"nonneg": True}, "contradict nonneg=True"),
    "one dimension": (lambda: sp.coo_array(DENSE[:, 0]), {"shape": M}, "of two dimensions"),
    **{
        f"index {place} in {kind}": (
            lambda kind=kind, place=place: outside(kind, place),
            {},
            "not an array of real numbers",
        )
        for kind in ("csr", "csc", "coo", "bsr", "lil")
        for place in (10**6, -1)
    },
    "symmetric": (
        lambda: sp.eye_array(4),
        {"shape": (4, 4), "adjacency": dp.Within(1.0), "symmetric": True},
        "a triangle is kept",
    ),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("way", ["declared", "handed"])
def test_wrong_matrices_are_refused(case, way):
    make, attributes, message = WRONG[case]
    attributes = {"shape": (M, N), **attributes}
    with pytest.raises(dp.DataError, match=message) as caught:
        if way == "declared":
            declared(make(), **attributes)
        else:
            stored(declared(**attributes), make())
    assert "'X'" in str(caught.value) and "stored" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_matrices_without_entries_are_nothing_to_protect(shape):
    with pytest.raises(dp.ModelError, match="nothing to protect"):
        declared(sp.csr_array(shape))


def test_the_pattern_shows_nowhere():
    few, many = (declared(sp.csr_array(part)) for part in (DENSE, DENSE + 1.0))
    assert repr(few) == repr(many) and few.spec == many.spec
    assert len(pickle.dumps(few)) == len(pickle.dumps(many))
    seals = [source_of(private) for private in (few, many)]
    assert {repr(seal) for seal in seals} == {"<sealed>"} and dir(seals[0]) == []
    with pytest.raises(TypeError, match="never copied or pickled"):
        pickle.dumps(seals[0])


def test_workers_of_the_same_owner_get_the_matrix():
    seal = source_of(declared(sp.csr_array(DENSE)))
    make, parts = handed_over(seal)
    twin = make(*pickle.loads(pickle.dumps(parts)))
    assert np.array_equal(unseal(twin, declared(shape=(M, N)).spec).toarray(), DENSE)


# Gradients

LOSSES = {
    "squares": lambda X: cp.sum_squares(X @ w + b - y) / M,
    "entries squared": lambda X: cp.sum(cp.square(X @ w - y)),
    "logistic": lambda X: cp.sum(cp.logistic(-cp.multiply(y, X @ w + b))) / M,
    "hinge": lambda X: cp.sum(cp.pos(1 - cp.multiply(y, X @ w))) + cp.sum_squares(w),
    "huber": lambda X: cp.sum(cp.huber(X @ w - y, 0.5)),
    "absolute": lambda X: cp.norm1(X @ w - y),
    "counts": lambda X: cp.sum(cp.exp(X @ w) - cp.multiply(y, X @ w)),
    "classes": lambda X: cp.sum(cp.log_sum_exp(X @ W, axis=1)) - cp.sum(X @ W[:, 0]),
    "variables on the left": lambda X: cp.sum(cp.logistic(y @ cp.diag(cp.multiply(y, X @ w)))),
    "weighted": lambda X: cp.sum(X @ cp.square(w)),
    "row variable": lambda X: cp.sum_squares(np.ones((1, M)) @ (X @ W)),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("limited", [False, True])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), density=st.floats(0, 1))
def test_gradients_are_those_of_arrays(loss, limited, seed, density):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(M, N)) * (rng.random((M, N)) < density)
    layout, form = form_of(LOSSES[loss](declared(shape=(M, N))))
    assert form.factors == {0}
    x = rng.normal(size=layout.size)
    own = form.bind([sp.csr_array(X)], limited=limited)
    arrays = form.bind([X.ravel(order="F")], limited=limited)
    np.testing.assert_allclose(own.gradient(x), arrays.gradient(x), rtol=1e-11, atol=1e-12)
    assert own.value(x) == pytest.approx(arrays.value(x), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("turned", [False, True])
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), bound=st.floats(1e-3, 10))
def test_clipped_contributions_are_those_of_arrays(turned, seed, bound):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(M, N)) * (rng.random((M, N)) < 0.5)
    private = declared(shape=(N, M) if turned else (M, N))
    _, form = form_of(cp.sum(cp.exp(w @ private if turned else private @ w)))
    clips = [Clip(0, turned, bound, 1.0, 0.0)]
    X, x = X.T if turned else X, rng.normal(size=N)
    found = form.bind([sp.csr_array(X)], clips).gradient(x)
    np.testing.assert_allclose(
        found, form.bind([X.ravel(order="F")], clips).gradient(x), rtol=1e-11
    )
    records = X.T if turned else X
    each = records * np.exp(records @ x)[:, None]
    long = np.linalg.norm(each, axis=1)
    by_hand = (each * np.minimum(1, bound / np.where(long > 0, long, 1))[:, None]).sum(axis=0)
    np.testing.assert_allclose(found, by_hand, rtol=1e-9, atol=1e-12)


MORE_THAN_PRODUCTS = {
    "turned": lambda X: cp.sum(cp.logistic(cp.reshape(X, (N, M), order="F").T @ w)),
    "columns": lambda X: cp.sum_squares(X[:, 1:] @ w[1:]),
    "beside": lambda X: cp.sum_squares(X @ w) + cp.sum(X) * w[0],
    "offset": lambda X: cp.sum_squares((X + 1) @ w),
    "sum": lambda X: cp.sum(X) + cp.sum(w),
    "scaled": lambda X: cp.sum_squares(cp.multiply(X, X.size * np.ones((M, N))) @ w),
}


@pytest.mark.parametrize("use", MORE_THAN_PRODUCTS)
def test_other_uses_take_arrays(use):
    _, form = form_of(MORE_THAN_PRODUCTS[use](declared(shape=(M, N))))
    assert form.factors == frozenset()


def test_computing_warns_of_nothing():
    _, form = form_of(LOSSES["counts"](declared(shape=(M, N))))
    objective = form.bind([sp.csr_array(1e200 * DENSE)], limited=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective.gradient(np.full(N, 1e200))


SAME = {
    "itself": lambda S: S,
    "another object": sp.csr_matrix,
    "transposed twice": lambda S: S.T.T,
    "its arrays": lambda S: sp.csr_array((S.data, S.indices, S.indptr), shape=S.shape),
    "its entries": lambda S: S.data,
}


@pytest.mark.parametrize("name", SAME)
def test_data_are_refused_as_their_own_stand_in_whatever_object_holds_them(name):
    S = sp.csr_array(DENSE)
    with pytest.raises(dp.PrivacyError, match="its own data as proxy="):
        declared(S, proxy=SAME[name](S))
    assert declared(S, proxy=S * 0.5).bound
