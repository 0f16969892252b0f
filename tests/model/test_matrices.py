"""Matrices do not change under the feet of those who share their arrays."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpcvx.model import matrices
from dpcvx.model.matrices import product, scaled_rows, without_zeros
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
