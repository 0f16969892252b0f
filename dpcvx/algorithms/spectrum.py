"""Eigenvalues of Laplacians and mixing matrices on a graph of agents.

Of up to a few hundred agents they are computed densely; beyond, the one or two that are needed, by
shift and invert on sparse matrices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

Array = NDArray[np.float64]
# Positions of each agent's neighbors.
Around = tuple[tuple[int, ...], ...]

# Eigenvalues of more agents than these are computed from sparse matrices, if they are sparse: one
# entry in so many at most.
_DENSE = 500
_SPARSE = 10
# Relative error of the sparse ones, and the restarts that Lanczos' method has on the matrix itself.
# Where these are too few, the network is much like a chain or a lattice, and its inverse is cheap.
_TOLERANCE = 1e-11
_RESTARTS = 40
# Digits of the weights that rest on these: the last ones may differ from one time to the next.
_DIGITS = 9
# Ten times the rounding errors that a given mixing matrix may have.
_ROOM = 1e-9


def matrix_on(neighbors: Around, rows: Sequence[Array]) -> sp.csr_array:
    """The matrix with these entries for each agent's neighbors and for itself.

    Parameters
    ----------
    neighbors : tuple of tuple of int
    rows : sequence of ndarray
        For each agent the entries of its neighbors, in their order, and then its own.
    """
    columns = np.concatenate([[*around, i] for i, around in enumerate(neighbors)])
    ends = np.cumsum([0, *(len(row) for row in rows)])
    n = len(neighbors)
    return sp.csr_array((np.concatenate(rows), columns, ends), shape=(n, n))


def laplacian(neighbors: Around) -> sp.csr_array:
    """Degrees on the diagonal minus the adjacency matrix."""
    return matrix_on(neighbors, [np.array([-1.0] * len(a) + [len(a)]) for a in neighbors])


def laplacian_norm(neighbors: Around) -> float:
    """The largest eigenvalue of the Laplacian, or an upper bound; see `Network.laplacian_norm`."""
    if not _large(neighbors):
        return float(np.linalg.eigvalsh(laplacian(neighbors).toarray())[-1])
    return _bound_of_laplacian(neighbors)


def lowest_eigenvalue(neighbors: Around, rows: Sequence[Array]) -> float:
    """The least eigenvalue of a mixing matrix.

    Parameters
    ----------
    neighbors, rows
        As of `matrix_on`.
    """
    W = matrix_on(neighbors, rows)
    return _lowest(W) if _large(neighbors) else float(np.linalg.eigvalsh(W.toarray())[0])


def second_eigenvalue(neighbors: Around, rows: Sequence[Array]) -> float:
    """The second largest modulus of an eigenvalue of a mixing matrix.

    Parameters
    ----------
    neighbors, rows
        As of `matrix_on`.
    """
    W, n = matrix_on(neighbors, rows), len(neighbors)
    if not _large(neighbors):
        # The eigenvalue 1 of the vector of ones is taken out before moduli are compared.
        return float(np.abs(np.linalg.eigvalsh(W.toarray() - np.full((n, n), 1 / n))).max())
    high = float(_ends(W, "LA", 2, 1 + _room(n)).min())  # but for the 1 of the vector of ones
    return high if high >= -_floor(W) else max(abs(high), abs(_lowest(W)))


def best_step(neighbors: Around) -> float:
    """The a with which I - a L has the smallest second eigenvalue modulus."""
    L = laplacian(neighbors)
    if not _large(neighbors):
        values = np.linalg.eigvalsh(L.toarray())
        return 2 / float(values[-1] + values[1])
    # The other one of the two is the 0 of the vector of ones.
    least = float(_ends(L, "SA", 2, -_room(len(neighbors))).max())
    beyond = _bound_of_laplacian(neighbors) * (1 + 1e-6)
    largest = float(_ends(L, "LA", 1, beyond)[0])
    return float(f"{2 / (least + largest):.{_DIGITS}g}")


def _large(neighbors: Around) -> bool:
    """Whether eigenvalues are computed from sparse matrices."""
    n = len(neighbors)
    return n > _DENSE and _SPARSE * sum(map(len, neighbors)) <= n * n


def _bound_of_laplacian(neighbors: Around) -> float:
    """Not below the largest eigenvalue of the Laplacian; see `Network.laplacian_norm`."""
    degrees = [len(around) for around in neighbors]
    sums = (len(a) + math.fsum(degrees[j] for j in a) / len(a) for a in neighbors)
    return float(min(len(neighbors), max(sums)))


def _room(n: int) -> float:
    """How far shifts stay off the ends; a Laplacian's least positive eigenvalue is above it."""
    return max(1 / n**2, _ROOM)


def _lowest(W: sp.csr_array) -> float:
    return float(_ends(W, "SA", 1, _floor(W) - _room(W.shape[0]))[0])


def _floor(W: sp.csr_array) -> float:
    """A lower bound of the eigenvalues (Gershgorin)."""
    own = W.diagonal()
    return float((own - (abs(W).sum(axis=1) - abs(own))).min())


def _ends(A: sp.csr_array, which: Literal["LA", "SA"], count: int, beyond: float) -> Array:
    """The `count` highest or lowest eigenvalues of a symmetric matrix, all on one side of `beyond`.

    By Lanczos' method, which is quick where eigenvalues lie apart; else for the inverse of
    ``A - beyond I``, where they do.
    """
    start = np.sin(1.0 + np.arange(A.shape[0]))  # or a random one: equal networks would differ

    def found(matrix: sp.sparray, **how: Any) -> Array:
        values = eigsh(matrix, count, v0=start, tol=_TOLERANCE, return_eigenvectors=False, **how)
        return np.asarray(values, dtype=np.float64)

    try:
        return found(A, which=which, maxiter=_RESTARTS)
    except ArpackNoConvergence:
        pass
    try:
        return found(sp.csc_array(A), which="LM", sigma=beyond)
    except ArpackNoConvergence:
        values = np.asarray(np.linalg.eigvalsh(A.toarray()), dtype=np.float64)
        return values[:count] if which == "SA" else values[-count:]
