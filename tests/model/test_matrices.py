"""Matrices do not change under the feet of those who share their arrays."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.model import matrices
from dpcvx.model.matrices import (
    diagonal,
    exact_sums,
    product,
    scaled_columns,
    scaled_rows,
    weighted_rows,
    without_zeros,
)
from dpcvx.model.normal_form import Combination, digest_of


def arrays(M):
    return M.data, M.indices, M.indptr


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix, np.asarray])
def test_zeros_are_removed_from_a_copy(kind):
    dense = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    M = kind(dense)
    if sp.issparse(M):
        M.data[0] = 0.0
        dense = M.toarray()
        before = [part.copy() for part in arrays(M)]
    found = without_zeros(M)
    np.testing.assert_array_equal(found.toarray(), dense)
    assert found.nnz == np.count_nonzero(dense)
    if sp.issparse(M):
        assert all(np.array_equal(*pair) for pair in zip(arrays(M), before, strict=True))
        assert not any(np.shares_memory(a, b) for a in arrays(M) for b in arrays(found))


@pytest.mark.parametrize("density", [0.01, 0.5])
def test_products_of_large_full_matrices_are_those_of_sparse_ones(density):
    A, B = (
        sp.random_array((300, 300), density=density, random_state=k, format="csr") for k in (1, 2)
    )
    found = product(A, B.T)
    np.testing.assert_allclose(found.toarray(), (A @ B.T).toarray(), rtol=1e-13, atol=1e-13)
    assert found.format == "csr"


def test_large_full_matrices_are_multiplied_as_arrays(monkeypatch):
    full = sp.csr_array(np.ones((300, 300)))

    def refused(*_):
        raise AssertionError

    monkeypatch.setattr(sp.csr_array, "__matmul__", refused)
    assert (product(full, full).toarray() == 300).all()


def test_a_digest_leaves_repeated_entries_alone():
    index = np.array([1, 0, 1, 1], np.int32), np.array([0, 2, 4], np.int32)
    M = sp.csr_array((np.array([1.0, 2.0, 3.0, 4.0]), *index), shape=(2, 2))
    before = M.copy()
    same = sp.csr_array(M.toarray())
    assert digest_of(Combination((2,), M, (), np.zeros(2))) == digest_of(
        Combination((2,), same, (), np.zeros(2))
    )
    # Sorting may move entries within a row; their number and the values they stand for stay.
    assert M.nnz == before.nnz == M.data.size
    np.testing.assert_array_equal(M.toarray(), before.toarray())


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(1, 9),
    st.sampled_from([(0.1,), (-2.5, 0.3), (0.0, 1.0, 1e200)]),
)
def test_rows_are_scaled_as_by_a_number_for_every_entry(filled, block, numbers):
    ends = np.concatenate([[0], np.cumsum(filled)])
    values = np.sin(1.0 + np.arange(ends[-1]))
    M = sp.csr_array((values, np.zeros(ends[-1], np.int32), ends), shape=(len(filled), 1))
    weights = np.resize(numbers, len(filled))
    expected = values * np.repeat(weights, filled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "BLOCK", block)
        assert scaled_rows(M, weights).tobytes() == expected.tobytes()


@pytest.mark.parametrize("numbers", [(0.1,), (0.1, 0.2)])
def test_scaled_rows_take_no_memory_but_their_own(numbers):
    count, filled = 200_000, 8
    ends = np.arange(0, count * filled + 1, filled)
    M = sp.csr_array(
        (np.ones(count * filled), np.zeros(count * filled, np.int32), ends), (count, 1)
    )
    weights = np.resize(numbers, count)
    tracemalloc.start()
    found = scaled_rows(M, weights)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * found.nbytes


large = st.floats(-1e200, 1e200).filter(lambda x: x == 0 or abs(x) > 1e-100)


@given(st.lists(st.tuples(large, st.floats(-1e9, 1e9).map(lambda w: round(w, 3))), max_size=6))
def test_sums_have_twice_the_digits_of_a_float_even_if_large_entries_cancel(pairs):
    x, weights = (
        np.array(column, dtype=float) for column in ([p[0] for p in pairs], [p[1] for p in pairs])
    )
    x, weights = np.append(x, [*-x, 0.1]), np.append(weights, [*weights, 3.0])
    M = sp.csr_array(np.vstack([weights, np.eye(x.size)[0]]))
    exact = sum((Fraction(w) * Fraction(v) for w, v in zip(weights, x, strict=True)), Fraction())
    sums, errors = exact_sums(M, x, 1e-9)
    assert abs(Fraction(sums[0]) + Fraction(errors[0]) - exact) <= 1e-9
    assert abs(errors[0]) <= np.spacing(abs(sums[0])) / 2
    assert sums[1] == x[0]
    assert errors[1] == 0


def test_sums_of_ordinary_entries_are_not_computed_twice_and_overflow_stays():
    M, x = sp.csr_array(np.ones((1, 3))), np.array([0.1, 0.2, 0.3])
    assert exact_sums(M, x, 1e-9) == (M @ x, 0)
    assert exact_sums(M, np.array([1e16, 0.9, -1e16]), 1e-9)[0] == 0.9
    assert exact_sums(M, np.array([1e16, 0.9, 0.0]), 1e-9) == (1e16, 0.9)
    assert exact_sums(M, np.array([1.7e308, 1.7e308, 0.0]), 1e-9) == (np.inf, 0)
    assert exact_sums(M, np.array([1e305, 1.0, -1e305]), 1e-9) == (0, 0)  # as it was


@pytest.mark.parametrize("seed", range(40))
def test_scaled_columns_have_the_bits_and_the_order_of_the_product(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, 2))
    M = sp.csr_array(rng.normal(size=shape) * (rng.random(shape) < rng.random()))
    weights = rng.normal(size=shape[1]) * (rng.random(shape[1]) < 0.9)
    product_, scaled = sp.csr_array(M @ sp.diags_array(weights)), scaled_columns(M, weights)
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(product_, name), getattr(scaled, name))


@pytest.mark.parametrize("seed", range(40))
def test_weighted_rows_have_the_bits_and_the_order_of_the_product(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 12, 2))
    M = sp.csr_array(rng.normal(size=shape) * (rng.random(shape) < rng.random()))
    weights = rng.normal(size=shape[0]) * (rng.random(shape[0]) < 0.9)
    product_, scaled = sp.csr_array(sp.diags_array(weights) @ M), weighted_rows(M, weights)
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(product_, name), getattr(scaled, name))


@pytest.mark.parametrize("values", [[2.0], [1.0, 0.0, -3.0], [0.0], []])
def test_a_diagonal_stores_what_scipy_stores(values):
    found, known = diagonal(np.array(values)), sp.csr_array(sp.diags_array(np.array(values)))
    assert found.shape == known.shape
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(found, name), getattr(known, name))
        assert getattr(found, name).dtype == getattr(known, name).dtype
