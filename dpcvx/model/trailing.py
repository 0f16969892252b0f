"""Arrays with any number of leading axes: layouts, and products with matrices.

The numbers of an objective are a flat array of shape (..., size), column by column. Leading axes
are agents or points. Numbers that do not depend on an agent have no leading axis, and are computed
once. Functions count axes from the end, so they work for any number of leading axes.

Every result is contiguous along its last axis, and a dense matrix multiplies vectors one by one.
So each agent's numbers are bitwise equal in a batch and in an evaluation of this agent alone.

Classes that hold private data stay in the process and within the trust boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import package_fault
from .matrices import Array, Data, Diagonal, Identity, Matrix, as_array


class BehindTheDoor:
    """Abstract base class of objects with private data, which cannot be pickled or copied."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds private data and is never pickled.")


class View:
    """View of flat column-major arrays as arrays of a given shape, without copies of entries.

    Parameters
    ----------
    shape : tuple of int
        Shape without leading axes.
    """

    __slots__ = ("_reversed", "shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self._reversed = shape, shape[::-1]

    def __call__(self, v: Array) -> Array:
        """Return the entries of v, column by column, as an array of shape (..., *shape)."""
        if v.ndim == 1:
            return v.reshape(self._reversed).T
        return _reversed(v.reshape(*v.shape[:-1], *self._reversed), len(self.shape))

    def flat(self, a: Array) -> Array:
        """Return the entries of an array of shape (..., *shape), column by column."""
        axes = len(self.shape)
        if a.ndim == axes:
            return a.T.reshape(-1)
        return _reversed(a, axes).reshape(*a.shape[: a.ndim - axes], -1)


def _reversed(a: Array, axes: int) -> Array:
    """Return the array with its last `axes` axes in reverse order."""
    if axes == 2:
        return a.swapaxes(-1, -2)
    lead = a.ndim - axes
    return a.transpose(*range(lead), *range(a.ndim - 1, lead - 1, -1))


def flat(v: Array) -> Array:
    """Return v itself: the layout for rules that take flat arrays."""
    return v


def times(M: Matrix | Diagonal | sp.csc_array, v: Array) -> Array:
    """Return ``M @ v`` for vectors along the last axis.

    Parameters
    ----------
    M : matrix of shape (m, n)
    v : ndarray, shape (..., n)

    Returns
    -------
    ndarray, shape (..., m)
    """
    if v.ndim == 1 or isinstance(M, Diagonal):
        return M @ v
    if isinstance(M, Identity):
        return v
    if isinstance(M, np.ndarray):
        # One product per vector: a product of matrices rounds otherwise.
        return (M @ v[..., None])[..., 0]
    rows = v.reshape(-1, v.shape[-1])
    return np.ascontiguousarray((M @ rows.T).T).reshape(*v.shape[:-1], M.shape[0])


def swapped(M: Any) -> Any:
    """Return the matrices in M transposed; a matrix takes the last two axes of M."""
    return M.T if M.ndim == 2 else M.swapaxes(-1, -2)


def product(left: Any, right: Any) -> Array:
    """Return ``left @ right`` for matrices along the last two axes, at most one of them sparse.

    Parameters
    ----------
    left : ndarray of shape (..., r, n), csr_array, or SparseMatrices
    right : ndarray of shape (..., n, c), csr_array, or SparseMatrices

    Returns
    -------
    ndarray, shape (..., r, c)
    """
    if sp.issparse(left) and right.ndim > 2:
        columns = np.moveaxis(right, -2, 0)
        flat = np.asarray(left @ columns.reshape(columns.shape[0], -1))
        shaped = flat.reshape(left.shape[0], *columns.shape[1:])
        return np.ascontiguousarray(np.moveaxis(shaped, 0, -2))
    if sp.issparse(right) and left.ndim > 2:
        return swapped(product(right.T, swapped(left)))
    return left @ right


def product_with_vectors(M: Any, v: Array) -> Array:
    """Return ``M @ v`` for matrices along the last two axes and vectors along the last axis.

    Parameters
    ----------
    M : ndarray of shape (..., m, n), csr_array, or SparseMatrices
    v : ndarray, shape (..., n)

    Returns
    -------
    ndarray, shape (..., m)
    """
    if v.ndim == 1 and M.ndim == 2:
        return M @ v
    return product(M, v[..., None])[..., 0]


def of_all(parts: Sequence[Data], shape: tuple[int, ...]) -> Array | SparseMatrices:
    """Join the data of all agents for one private parameter into one object.

    Parameters
    ----------
    parts : sequence of (ndarray or csr_array)
        Data of the agents, in their order.
    shape : tuple of int
        Shape of the parameter.

    Returns
    -------
    ndarray of shape (agents, size), or SparseMatrices if an agent's data are sparse
    """
    if any(map(sp.issparse, parts)):
        return SparseMatrices.of(parts, shape)
    return np.stack([as_array(part) for part in parts])


class SparseMatrices(BehindTheDoor):
    """Matrices of several agents, at least one of them sparse, multiplied in one call.

    The sparse matrices are blocks of one block diagonal matrix, so each product is bitwise equal to
    the product for this agent alone. The object holds private data, and neither prints nor pickles.

    Parameters
    ----------
    blocks : csr_array or csc_array
        Block diagonal matrix, with a block per agent with a sparse matrix.
    sparse : ndarray of bool, shape (agents,)
        Whether the matrix of each agent is sparse.
    dense : ndarray, shape (other agents, rows, columns)
        Matrices of all other agents, in their order.
    shape : tuple of int
        Rows and columns of a matrix.
    """

    __slots__ = ("_blocks", "_dense", "_shape", "_sparse")
    __array_ufunc__ = None  # numpy leaves ``array @ matrices`` to `__rmatmul__`
    ndim = 3

    def __init__(
        self, blocks: Any, sparse: NDArray[np.bool_], dense: Array, shape: tuple[int, int]
    ) -> None:
        self._blocks, self._sparse, self._dense, self._shape = blocks, sparse, dense, shape

    @classmethod
    def of(cls, parts: Sequence[Data], shape: tuple[int, ...]) -> SparseMatrices:
        """Return the matrices of several agents from each agent's data, at least one sparse."""
        rows, columns = shape
        sparse = np.array([sp.issparse(part) for part in parts])
        blocks = sp.block_diag([part for part in parts if sp.issparse(part)], format="csr")
        arrays = [part for part in parts if isinstance(part, np.ndarray)]
        flat_ones = np.reshape(arrays, (len(arrays), rows * columns))
        return cls(sp.csr_array(blocks), sparse, View((rows, columns))(flat_ones), (rows, columns))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of agents, of rows and of columns of a matrix."""
        return self._sparse.size, *self._shape

    def swapaxes(self, first: int, second: int) -> SparseMatrices:
        """Return the transposes of all agents' matrices: the last two axes change places."""
        if {first, second} != {-1, -2}:
            raise package_fault("Only the last two axes of sparse matrices change places.")
        dense = self._dense.swapaxes(-1, -2)
        rows, columns = self._shape
        return SparseMatrices(self._blocks.T, self._sparse, dense, (columns, rows))

    def rows_by(self, lengths: Any) -> Array:
        """Return one number per row of every matrix, shape (agents, rows).

        The function `lengths` computes the numbers of one matrix, such as `row_lengths`.
        """
        norms = np.empty(self.shape[:2])
        norms[self._sparse] = lengths(sp.csr_array(self._blocks)).reshape(-1, self._shape[0])
        norms[~self._sparse] = lengths(self._dense)
        return norms

    def __matmul__(self, other: Array) -> Array:
        columns = other.shape[-1]
        each = np.broadcast_to(other, (self._sparse.size, *other.shape[-2:]))
        if self._sparse.all():
            return self._of_blocks(each, columns)
        out = np.empty((self._sparse.size, self._shape[0], columns))
        out[self._sparse] = self._of_blocks(each[self._sparse], columns)
        out[~self._sparse] = self._dense @ each[~self._sparse]
        return out

    def _of_blocks(self, each: Array, columns: int) -> Array:
        products = np.asarray(self._blocks @ each.reshape(-1, columns))
        return products.reshape(len(each), self._shape[0], columns)

    def __rmatmul__(self, other: Array) -> Array:
        return (self.swapaxes(-1, -2) @ swapped(other)).swapaxes(-1, -2)

    def __repr__(self) -> str:
        return f"SparseMatrices(agents={self._sparse.size})"
