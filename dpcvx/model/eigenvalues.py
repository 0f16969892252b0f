"""Eigenvalues of sparse symmetric matrices, block by block, and what rounding does to them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cholesky_banded
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from .matrices import Array, Matrix, csr

# Covers the rounding of largest eigenvalues and norms, wherever a proof rests on them.
SLACK = 1 + 1e-10
# Up to this order eigenvalues are computed densely.
_DENSE_ORDER = 1500
# Multiplications up to which a product of a large sparse matrix with itself is formed.
_PRODUCTS = 2e6
# Rows of a matrix that are looked at together.
_ROWS = 1 << 15
# Multiplications up to which a large matrix is factored in a band.
_FACTOR = 2e8
# Entries of blocks of one size whose eigenvalues are computed together.
_BATCH = 2_000_000


def round_down(lowest: float, highest: float) -> float:
    """What rounding, relative to the highest eigenvalue, cannot have made of a lower lowest one."""
    return min(lowest / SLACK, lowest - 1e-13 * highest)


def spectral_norm(H: sp.csr_array) -> float:
    """The largest absolute eigenvalue; of large blocks an upper bound."""
    return float(np.abs(eigenvalues(H, gershgorin)).max(initial=0.0))


def stretch(F: Matrix, work: float = _PRODUCTS) -> float:
    """Bound of the spectral norm of a matrix, attained for all but large ones.

    Of these, F'F is not formed: its norm is at most the largest row sum of |F|'|F|, which two
    products with vectors give.

    Parameters
    ----------
    F : matrix
    work : float
        Multiplications that forming F'F may take where it has many columns.
    """
    if not is_wide(F, work):
        return math.sqrt(spectral_norm(sp.csr_array(F.T @ F)))
    rows = csr(F)
    sums, counts = np.zeros(F.shape[1]), np.zeros(F.shape[1])
    for first in range(0, F.shape[0], _ROWS):  # what is in between stays in the cache
        ends = rows.indptr[first : first + _ROWS + 1]
        values, columns = (v[ends[0] : ends[-1]] for v in (rows.data, rows.indices))
        shape = (ends.size - 1, F.shape[1])
        size = sp.csr_array((np.abs(values), columns, ends - ends[0]), shape=shape)
        sums += size.T @ (size @ np.ones(F.shape[1]))
        counts += np.bincount(columns, minlength=F.shape[1])
    # Sums of numbers of one sign are off by no more than this.
    rounding = 2.0**-52 * float(np.diff(rows.indptr).max() + counts.max(initial=0.0))
    return math.sqrt(float(sums.max()) * (SLACK + rounding))


def is_wide(F: Matrix, work: float = _PRODUCTS) -> bool:
    """Whether F'F is not to be formed: of many columns, in more multiplications than `work`."""
    if F.shape[1] <= _DENSE_ORDER:
        return False
    return float((np.diff(csr(F).indptr).astype(float) ** 2).sum()) > work


def eigenvalues(H: sp.csr_array, large: Callable[[sp.csr_array], Array]) -> Array:
    """Eigenvalues of a symmetric matrix, block by block; of large blocks what `large` gives."""
    _, label = connected_components(H, directed=False)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    found = [H.diagonal()[sizes[label] == 1]]
    ordered = sp.coo_array(sp.csr_array(H[order][:, order]))
    row, column = ordered.coords
    starts = np.cumsum(sizes) - sizes
    block = label[order][row]
    for size in np.unique(sizes[sizes > 1]):
        alike = np.flatnonzero(sizes == size)
        dense = size <= _DENSE_ORDER
        parts = math.ceil(alike.size * int(size) ** 2 / _BATCH) if dense else alike.size
        for some in np.array_split(alike, min(parts, alike.size)):
            entries = np.flatnonzero(np.isin(block, some))
            own, first = block[entries], starts[block[entries]]
            place = np.searchsorted(some, own), row[entries] - first, column[entries] - first
            values = ordered.data[entries]
            if dense:
                stack = np.zeros((some.size, size, size))
                np.add.at(stack, place, values)
                found.append(np.linalg.eigvalsh(stack).ravel())
            else:
                part = sp.csr_array((values, place[1:]), shape=(size, size))
                found.append(large(part))
    return np.concatenate(found)


def dense(H: sp.csr_array) -> Array:
    """All eigenvalues, at the cost of a full matrix."""
    return np.asarray(np.linalg.eigvalsh(H.toarray()), dtype=np.float64)


def lowest(H: sp.csr_array) -> Array:
    """A lower bound of the smallest eigenvalue; tight where the matrix can be factored in a band.

    Cholesky factors of ``H - s I`` prove that no eigenvalue is below s. Lanczos iterations would
    give a number above the smallest one, and may need minutes where that is nearly 0.
    """
    order = reverse_cuthill_mckee(H, symmetric_mode=True)
    banded = sp.coo_array(H[order][:, order])
    row, column = banded.coords
    width, proved = int(np.abs(row - column).max()), least_by_rows(H).min(keepdims=True)
    largest, smallest = np.abs(banded.data).max(), H.diagonal().min()
    rounding = 4.0 * 2.0**-52 * (width + 2) * float(largest)
    low, high = max(2 * rounding, 1e-13 * float(largest)), float(smallest)
    if H.shape[0] * width**2 > _FACTOR or high <= low:
        return proved
    below = row >= column
    band = np.zeros((width + 1, H.shape[0]))
    np.add.at(band, ((row - column)[below], column[below]), banded.data[below])

    def proves(s: float) -> bool:
        shifted = band.copy()
        shifted[0] -= s
        try:
            cholesky_banded(shifted, overwrite_ab=True, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return False
        return True

    if not proves(low):
        return proved
    while high > 1.001 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if proves(middle) else (low, middle)
    return np.maximum(proved, low - rounding)


def least_by_rows(H: sp.csr_array) -> Array:
    """The diagonal of a matrix below H: what is positive semidefinite is the difference."""
    diagonal = H.diagonal()
    return diagonal + np.abs(diagonal) - np.abs(H).sum(axis=1)


def gershgorin(H: sp.csr_array) -> Array:
    """An upper bound of the norm at any size."""
    return np.abs(H).sum(axis=1).max(keepdims=True)


def both_ends(H: sp.csr_array) -> Array:
    """Numbers between which all eigenvalues lie."""
    largest = gershgorin(H)
    return np.concatenate([-largest, largest])
