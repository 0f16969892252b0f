"""Matrices that are arrays, sparse, or the identity, whichever is smallest; and eigenvalues.

Eigenvalues of sparse symmetric matrices, block by block, and what rounding does to them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cholesky_banded
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Private data, checked: their entries column by column, or a sparse matrix as it is.
Data = Array | sp.csr_array

# Number of entries processed at once, so that large data are not copied as a whole.
BLOCK = 1 << 18


@cache
def blas() -> ThreadpoolController:
    """Return the loaded BLAS libraries of numpy and scipy; finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@dataclass(frozen=True)
class Identity:
    """Identity matrix of a given size that stores no entries."""

    size: int

    __array_ufunc__ = None  # numpy leaves ``array @ identity`` to `__rmatmul__`

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the identity matrix."""
        return self.size, self.size

    @property
    def T(self) -> Identity:
        """Transposed matrix, which is the identity matrix itself."""
        return self

    def __matmul__(self, other: Any) -> Any:
        return other

    def __rmatmul__(self, other: Any) -> Any:
        return other


Matrix = Array | sp.csr_array | Identity
Sparse: TypeAlias = sp.csr_array | sp.csc_array


class Diagonal:
    """A diagonal matrix that multiplies vectors entry by entry.

    Parameters
    ----------
    values : ndarray, shape (n,)
    """

    __slots__ = ("values",)
    __array_ufunc__ = None

    def __init__(self, values: Array) -> None:
        self.values = values

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns of the diagonal matrix."""
        return self.values.size, self.values.size

    @property
    def T(self) -> Diagonal:
        """Transposed matrix, which is the diagonal matrix itself."""
        return self

    def __matmul__(self, other: Array) -> Array:
        return self.values * other


def quick(M: Matrix | Diagonal) -> Matrix | Diagonal:
    """Return a matrix in the form for many products with vectors.

    That form is `Diagonal` for a diagonal CSR matrix.
    """
    if isinstance(M, (np.ndarray, Identity, Diagonal)):
        return M
    if M.shape[0] != M.shape[1] or M.nnz != M.shape[0]:
        return M
    positions = np.arange(M.shape[0] + 1)
    if not (np.array_equal(M.indices, positions[:-1]) and np.array_equal(M.indptr, positions)):
        return M
    return Diagonal(folded(M.data))


def folded(v: Array) -> Array:
    """Return a vector; if all its numbers are equal, as a view that stores one number."""
    same = v.size > 1 and v[0] == v[-1] and bool((v == v[0]).all())
    return np.broadcast_to(v[0], v.shape) if same else v


# Matrices denser than this are stored as arrays.
_DENSE = 0.3
# Number of entries above which a sparse product of nearly full matrices takes seconds.
_LARGE = 1 << 16


def as_array(M: Any) -> Array:
    """Return a matrix or number as a dense array of floats, or of complex numbers."""
    if isinstance(M, Identity):
        return np.eye(M.size)
    if sp.issparse(M):
        return M.toarray()
    return np.asarray(M, dtype=complex if np.iscomplexobj(M) else float)


def real_entries(values: Any) -> Array:
    """Return an array's entries column by column; all real parts come before imaginary parts.

    Parameters
    ----------
    values : array_like or sparse matrix
    """
    array: Any = values.toarray() if sp.issparse(values) else np.asarray(values)
    if not np.iscomplexobj(array):
        return np.asarray(array, dtype=float).ravel(order="F")
    return np.concatenate([array.real.ravel(order="F"), array.imag.ravel(order="F")])


def from_real_entries(flat: Array, shape: tuple[int, ...], in_plane: bool) -> NDArray[Any]:
    """Return the array of a given shape from its flat real entries: the inverse of `real_entries`.

    Parameters
    ----------
    flat : ndarray
    shape : tuple of int
    in_plane : bool
        Whether the array is complex.
    """
    if not in_plane:
        return flat.reshape(shape, order="F")
    real, imag = np.split(flat, 2)
    return (real + 1j * imag).reshape(shape, order="F")


def compact(M: Any) -> Matrix:
    """Return a matrix as array or CSR, whichever multiplies faster; `Identity` stays as it is."""
    if isinstance(M, Identity):
        return M
    if not sp.issparse(M):
        return np.ascontiguousarray(M)
    entries = M.shape[0] * M.shape[1]
    return M.toarray() if entries and M.nnz > _DENSE * entries else sp.csr_array(M)


def csr(M: Any) -> sp.csr_array:
    """Return a matrix as CSR; a CSR matrix is returned itself."""
    if isinstance(M, sp.csr_array):
        return M
    return sp.csr_array(sp.eye_array(M.size) if isinstance(M, Identity) else M)


def without_zeros(M: Any) -> sp.csr_array:
    """Return a matrix as CSR without stored zeros or repeated entries, in new arrays.

    Entries are removed in place, and before scipy 1.16 ``maximum`` and ``minimum`` share index
    arrays with their argument: without the copy this would remove entries of other matrices.
    """
    copy = sp.csr_array(csr(M), copy=True)
    copy.sum_duplicates()
    copy.eliminate_zeros()
    return copy


def scaled_rows(M: sp.csr_array, weights: Array) -> Array:
    """Return the stored entries of ``diag(weights) @ M``, in the order of the entries of M.

    Parameters
    ----------
    M : csr_array
    weights : ndarray, shape (rows,)
    """
    same = folded(weights)
    if same.size and not any(same.strides):
        return M.data * same[0]
    # Weights repeated for all entries at once would be as large as the matrix.
    scaled, step = np.empty(M.nnz), max(1, BLOCK * M.shape[0] // max(M.nnz, 1))
    for first in range(0, M.shape[0], step):
        ends = M.indptr[first : first + step + 1]
        inside, factors = slice(ends[0], ends[-1]), weights[first : first + step]
        np.multiply(M.data[inside], np.repeat(factors, np.diff(ends)), out=scaled[inside])
    return scaled


def product(A: Matrix, B: Matrix) -> sp.csr_array:
    """Return ``A @ B``; large matrices that are nearly full are multiplied as arrays, for speed."""
    if min(math.prod(A.shape), math.prod(B.shape)) > _LARGE:
        A, B = compact(A), compact(B)
    return csr(A @ B)


def scaled_columns(M: sp.csr_array, weights: Array) -> sp.csr_array:
    """Return ``M @ diag(weights)``, with entries in the order of scipy's product.

    Sums over the entries are therefore bitwise equal to sums over scipy's product. For small
    matrices this function takes a fifth of the time.

    Parameters
    ----------
    M : csr_array, shape (m, n)
    weights : ndarray, shape (n,)
        Finite weights of the columns.
    """
    reverse = reversed_rows(M)[1]
    indices = M.indices[reverse]
    data = M.data[reverse] * weights[indices]
    if (data == 0).any():  # scipy's product stores no zeros
        return sp.csr_array(M @ sp.diags_array(weights))
    return sp.csr_array((data, indices, M.indptr), shape=M.shape)


def weighted_rows(M: sp.csr_array, weights: Array) -> sp.csr_array:
    """Return ``diag(weights) @ M``, with entries in the order of scipy's product.

    Parameters
    ----------
    M : csr_array, shape (m, n)
    weights : ndarray, shape (m,)
        Finite weights of the rows.
    """
    rows, reverse = reversed_rows(M)
    data = weights[rows] * M.data[reverse]
    if (data == 0).any():  # scipy's product stores no zeros
        return sp.csr_array(sp.diags_array(weights) @ M)
    return sp.csr_array((data, M.indices[reverse], M.indptr), shape=M.shape)


def reversed_rows(M: sp.csr_array) -> tuple[Index, Index]:
    """Return the row of each entry, and an order of entries that reverses each row.

    scipy's products reverse the rows in that order.
    """
    counts = np.diff(M.indptr)
    rows = np.repeat(np.arange(M.shape[0]), counts)
    return rows, np.repeat(M.indptr[:-1] + M.indptr[1:] - 1, counts) - np.arange(M.nnz)


def exact_sums(M: sp.csr_array, x: Array, error: float) -> tuple[Array, Array]:
    """Return ``M @ x``, each sum rounded once, and the rounding errors of the sums.

    Together, both numbers have twice the digits of a float. Sums whose errors cannot exceed `error`
    are computed as usual, and their errors are given as 0.

    Parameters
    ----------
    M : csr_array, shape (s, n)
    x : ndarray, shape (n,)
    error : float
        Largest rounding error of a sum that is accepted.

    Returns
    -------
    ndarray, shape (s,)
        Rounded sums.
    ndarray, shape (s,)
        Exact sums minus rounded sums; 0 also where numbers overflow.
    """
    # ``abs(M)`` would set the flag on M that its indices are sorted, which changes its pickle.
    magnitudes = sp.csr_array((np.abs(M.data), M.indices, M.indptr), shape=M.shape)
    sums, sizes, counts = M @ x, magnitudes @ np.abs(x), np.diff(M.indptr)
    errors = np.zeros(sums.size)
    coarse = (counts * np.finfo(float).eps * sizes > error) & np.isfinite(sizes)
    rows = np.flatnonzero(coarse)
    if rows.size:
        with np.errstate(all="ignore"):  # a warning would tell something about the values
            rounded, lost = _products(M.data, x[M.indices])
        for k in rows.tolist():
            row = slice(M.indptr[k], M.indptr[k + 1])
            parts = [*rounded[row].tolist(), *lost[row].tolist()]
            if all(map(math.isfinite, parts)):
                sums[k] = math.fsum(parts)
                errors[k] = math.fsum([*parts, -sums[k]])
    return sums, errors


def _products(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the entrywise products of a and b, rounded, and their rounding errors.

    See Dekker (1971).
    """
    product_, halves = a * b, []
    for factor in (a, b):
        high = factor * 134217729.0  # 2^27 + 1
        high = high - (high - factor)
        halves += [high, factor - high]
    a1, a2, b1, b2 = halves
    return product_, ((a1 * b1 - product_) + a1 * b2 + a2 * b1) + a2 * b2


def zeros(size: int) -> Array:
    """Return a read-only vector of zeros that takes no memory."""
    return np.broadcast_to(0.0, size)


def is_blank(M: Data) -> bool:
    """Return whether an array is a result of `zeros`, perhaps reshaped."""
    return isinstance(M, np.ndarray) and not any(M.strides) and M.size > 1 and M.flat[0] == 0


def alike(first: Data, second: Data) -> bool:
    """Return whether two values of one private object are equal, entry by entry.

    Parameters
    ----------
    first, second : ndarray or csr_array
        Values of one private object.
    """
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second)
    return not changed_rows(first, second).size


def changed_rows(first: Data, second: Data) -> NDArray[np.intp]:
    """Return the rows that differ between two matrices, at least one of them sparse.

    Parameters
    ----------
    first, second : ndarray or csr_array
        Values of one private object; arrays are flat, column-major.
    """
    rows = [
        sp.csr_array(d if sp.issparse(d) else d.reshape(e.shape, order="F"))
        for d, e in ((first, second), (second, first))
    ]
    return np.flatnonzero(np.diff(sp.csr_array(rows[0] != rows[1]).indptr))


def has_entries(h: Array) -> bool:
    """Return whether a vector has a nonzero entry."""
    return not is_blank(h) and bool(h.any())


def diagonal(values: Array, size: int | None = None) -> sp.csr_array:
    """Return the diagonal matrix with given values; a single value is repeated `size` times."""
    entries = np.broadcast_to(values, size or values.size)
    stored = np.flatnonzero(entries)
    starts = np.searchsorted(stored, np.arange(entries.size + 1)).astype(np.int32)
    shape = entries.size, entries.size
    return sp.csr_array((entries[stored], stored.astype(np.int32), starts), shape=shape)


def sparse_row_norms(M: sp.csr_array, order: float) -> tuple[Array, Array]:
    """Return the norm of each row as two factors whose product might overflow.

    Both factors are 0 for rows of zeros.

    Parameters
    ----------
    M : csr_array
        Matrix without repeated entries.
    order : {1, 2, inf}

    Returns
    -------
    peak : ndarray, shape (rows,)
        Largest magnitudes of the rows' entries.
    norms : ndarray, shape (rows,)
        Norms of the rows divided by their peaks.
    """
    peak, norms = np.zeros(M.shape[0]), np.zeros(M.shape[0])
    filled = np.flatnonzero(np.diff(M.indptr))
    starts = M.indptr[filled]
    cuts = np.searchsorted(starts, np.arange(0, M.nnz + BLOCK, BLOCK))
    for first, last in itertools.pairwise(cuts):
        if first == last:
            continue
        rows, begin = filled[first:last], starts[first]
        end = starts[last] if last < filled.size else M.nnz
        size, offsets = np.abs(M.data[begin:end]), starts[first:last] - begin
        peak[rows] = np.maximum.reduceat(size, offsets)
        top = np.where(peak[rows] > 0, peak[rows], 1.0)
        unit = size / np.repeat(top, np.diff(offsets, append=size.size))
        if order == math.inf:
            norms[rows] = np.maximum.reduceat(unit, offsets)
        else:
            norms[rows] = np.add.reduceat(unit**order, offsets) ** (1 / order)
    return peak, norms


# Factor that covers the rounding of largest eigenvalues and norms that a proof uses.
SLACK = 1 + 1e-10
# Up to this order eigenvalues are computed densely.
_DENSE_ORDER = 1500
# Largest number of multiplications for which F'F of a large sparse matrix F is formed.
_PRODUCTS = 2e6
# Number of rows of a matrix that are processed at once.
_ROWS = 1 << 15
# Largest number of multiplications for the band Cholesky factorization of a large matrix.
_FACTOR = 2e8
# Largest number of entries of equal-sized blocks whose eigenvalues are computed together.
_BATCH = 2_000_000


def round_down(lowest: float, highest: float) -> float:
    """Return a lower bound of the exact lowest eigenvalue, given rounded extreme eigenvalues.

    Rounding errors are relative to the highest eigenvalue.
    """
    return min(lowest / SLACK, lowest - 1e-13 * highest)


def spectral_norm(H: sp.csr_array) -> float:
    """Return the largest absolute eigenvalue of a symmetric matrix; for large blocks, a bound."""
    return float(np.abs(eigenvalues(H, gershgorin)).max(initial=0.0))


def stretch(F: Matrix, work: float = _PRODUCTS) -> float:
    """Return an upper bound of the spectral norm of a matrix, tight for all but large matrices.

    F'F is not formed for large ones: its norm is at most the largest row sum of |F|'|F|, which two
    products with vectors give.

    Parameters
    ----------
    F : matrix
    work : float
        Largest number of multiplications for forming F'F if F has many columns.
    """
    if not is_wide(F, work):
        return math.sqrt(spectral_norm(sp.csr_array(F.T @ F)))
    rows = csr(F)
    sums, counts = np.zeros(F.shape[1]), np.zeros(F.shape[1])
    for first in range(0, F.shape[0], _ROWS):  # intermediate arrays stay in the cache
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
    """Return whether F has many columns, and F'F takes more than `work` multiplications."""
    if F.shape[1] <= _DENSE_ORDER:
        return False
    return float((np.diff(csr(F).indptr).astype(float) ** 2).sum()) > work


def eigenvalues(H: sp.csr_array, large: Callable[[sp.csr_array], Array]) -> Array:
    """Return the eigenvalues of a symmetric matrix, computed by diagonal block.

    The function `large` returns bounds of the eigenvalues of blocks that are too large.
    """
    count, label = connected_components(H, directed=False)
    if count == 1 < label.size <= _DENSE_ORDER:
        return dense(H)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    values_of = [H.diagonal()[sizes[label] == 1]]
    ordered = sp.coo_array(sp.csr_array(H[order][:, order]))
    row, column = ordered.coords
    starts = np.cumsum(sizes) - sizes
    block = label[order][row]
    for size in np.unique(sizes[sizes > 1]):
        equal_sizes = np.flatnonzero(sizes == size)
        small = size <= _DENSE_ORDER
        parts = math.ceil(equal_sizes.size * int(size) ** 2 / _BATCH) if small else equal_sizes.size
        for some in np.array_split(equal_sizes, min(parts, equal_sizes.size)):
            entries = np.flatnonzero(np.isin(block, some))
            rows_of, first = block[entries], starts[block[entries]]
            index = np.searchsorted(some, rows_of), row[entries] - first, column[entries] - first
            values = ordered.data[entries]
            if small:
                stack = np.zeros((some.size, size, size))
                np.add.at(stack, index, values)
                values_of.append(np.linalg.eigvalsh(stack).ravel())
            else:
                part = sp.csr_array((values, index[1:]), shape=(size, size))
                values_of.append(large(part))
    return np.concatenate(values_of)


def dense(H: sp.csr_array) -> Array:
    """Return all eigenvalues of a sparse symmetric matrix, computed from a full matrix."""
    return np.asarray(np.linalg.eigvalsh(H.toarray()), dtype=np.float64)


def lowest(H: sp.csr_array) -> Array:
    """Return a lower bound of a symmetric matrix's smallest eigenvalue.

    The bound is tight if a band factorization of the matrix is possible.

    Cholesky factors of ``H - s I`` prove that no eigenvalue is below s. Lanczos iterations would
    give a number above the smallest eigenvalue, and may need minutes if that eigenvalue is nearly
    0.
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
    """Return the diagonal of a diagonal matrix D such that H - D is positive semidefinite."""
    diagonal = H.diagonal()
    return diagonal + np.abs(diagonal) - np.abs(H).sum(axis=1)


def gershgorin(H: sp.csr_array) -> Array:
    """Return an upper bound of a symmetric matrix's spectral norm: its largest absolute row sum."""
    return np.abs(H).sum(axis=1).max(keepdims=True)


def both_ends(H: sp.csr_array) -> Array:
    """Return a lower and an upper bound on all eigenvalues of a symmetric matrix."""
    largest = gershgorin(H)
    return np.concatenate([-largest, largest])
