"""Mixing weights for averages over neighbors, from a rule or a user's matrix; their eigenvalues.

Eigenvalues of Laplacians and mixing matrices are computed densely for up to a few hundred agents.
For more agents, Lanczos' method on sparse matrices computes only the one or two that are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from .._arguments import show
from ..errors import ModelError

Array = NDArray[np.float64]

WEIGHTS = ("metropolis", "max degree", "lazy metropolis", "laplacian")
# Largest rounding error that a user's mixing matrix may have.
_SLACK = 1e-10
# Largest number of items that a message lists.
NAMES = 8


def ruled_weights(rule: str, neighbors: Around) -> tuple[Array, ...]:
    """Return each agent's weights: for its neighbors, in order, and last for itself.

    Parameters
    ----------
    rule : {"metropolis", "max degree", "lazy metropolis", "laplacian"}
    neighbors : tuple of tuple of int

    Raises
    ------
    ModelError
        If no rule has this name.
    """
    degrees = [len(around) for around in neighbors]
    if rule == "max degree":
        largest = max(degrees)
        return _balanced(neighbors, lambda i, j: 1 / (1 + largest))
    if rule == "laplacian":
        step = best_step(neighbors)
        return _balanced(neighbors, lambda i, j: step)
    if rule in ("metropolis", "lazy metropolis"):
        rows = _balanced(neighbors, lambda i, j: 1 / (1 + max(degrees[i], degrees[j])))
        return rows if rule == "metropolis" else tuple(_lazy(row) for row in rows)
    raise ModelError(
        f"There are no weights called {show(rule)}: write one of {quoted(WEIGHTS)}, or pass a "
        "symmetric matrix with rows that sum to one."
    )


def _balanced(neighbors: Around, weight: Callable[[int, int], float]) -> tuple[Array, ...]:
    """Return each agent's weights: for its neighbors, and last for itself; they sum to one.

    Sums are rounded once, so that they do not depend on the order of the agents.
    """
    shares = ([weight(i, j) for j in around] for i, around in enumerate(neighbors))
    return tuple(np.array([*row, 1 - math.fsum(row)]) for row in shares)


def _lazy(row: Array) -> Array:
    """Return lazy weights: half of each weight, plus 1/2 for the agent itself."""
    half = row / 2
    half[-1] = (1 + row[-1]) / 2
    return half


def given_weights(weights: object, neighbors: Around, names: tuple[str, ...]) -> Array:
    """Return a user's mixing matrix, checked and made exactly symmetric.

    Parameters
    ----------
    weights : array_like, shape (N, N)
    neighbors : tuple of tuple of int
    names : tuple of str
        Names of the agents, for messages.

    Raises
    ------
    ModelError
        If the matrix is not symmetric, has weights between agents that are no neighbors, has rows
        that do not sum to one, or does not lead to agreement.
    """
    n = len(names)
    try:
        matrix = np.array(weights, dtype=np.float64)
    except Exception:  # whatever a foreign object raises
        raise ModelError(
            f"weights must be one of {quoted(WEIGHTS)} or a matrix of numbers, not a "
            f"{type(weights).__name__}."
        ) from None
    if matrix.shape != (n, n) or not np.isfinite(matrix).all():
        raise ModelError(
            f"weights= must be one of {quoted(WEIGHTS)}, or a matrix of {n} by {n} with finite "
            f"entries, rows in the order of `agents`; it has shape {matrix.shape}."
        )

    def pair(where: Array) -> str:
        i, j = np.unravel_index(int(np.argmax(where)), where.shape)
        return f"'{names[i]}' and '{names[j]}'"

    skew = np.abs(matrix - matrix.T)
    if skew.max() > _SLACK:
        raise ModelError(
            f"The mixing matrix is not symmetric: the weights between {pair(skew)} differ by "
            f"{skew.max():.3g}. The average over the agents would drift; use (W + W.T) / 2 if its "
            "rows still sum to one."
        )
    off = np.abs(matrix)
    np.fill_diagonal(off, 0.0)
    for i, around in enumerate(neighbors):
        off[i, list(around)] = 0.0
    if off.max() > 0:
        raise ModelError(
            f"The mixing matrix has a weight between {pair(off)}, who are not neighbors: they "
            "cannot exchange values. Set it to zero, or add the edge to the graph."
        )
    sums = np.array([math.fsum(row) for row in matrix])
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SLACK:
        raise ModelError(
            f"The row of agent '{names[worst]}' in the mixing matrix sums to "
            f"{sums[worst]:.12g}, not to 1: averaging would move agents that already agree. Put "
            "one minus the sum of the other entries on the diagonal."
        )
    _check_spectrum(matrix)
    return (matrix + matrix.T) / 2


def _check_spectrum(matrix: Array) -> None:
    """Refuse a mixing matrix if repeated averaging does not lead to agreement, or diverges."""
    values = np.linalg.eigvalsh(matrix)
    if np.sum(np.abs(values - 1) <= _SLACK) > 1:
        raise ModelError(
            "The mixing matrix has 1 as a multiple eigenvalue. Give every edge a positive weight. "
            "Otherwise agents could converge to different values."
        )
    if np.abs(values).max() > 1 + _SLACK:
        raise ModelError(
            f"The mixing matrix has eigenvalues from {values[0]:.6g} to {values[-1]:.6g}; beyond "
            "-1 and 1 repeated averaging diverges. Make the weights of edges smaller, for example "
            "(I + W) / 2."
        )


def quoted(items: Sequence[object]) -> str:
    """Return the first items of a list as text for a message, with strings in quotes."""
    shown = ", ".join(f"'{x}'" if isinstance(x, str) else repr(x) for x in items[:NAMES])
    return shown + (f" and {len(items) - NAMES} more" if len(items) > NAMES else "")


# Positions of the neighbors of each agent.
Around = tuple[tuple[int, ...], ...]

# With more than _DENSE agents, eigenvalues are computed from sparse matrices, if at most one entry
# in _SPARSE is not zero.
_DENSE = 500
_SPARSE = 10
# Relative error of eigenvalues of sparse matrices, and number of restarts of Lanczos' method. If
# these are too few, the network is similar to a chain or a lattice, so its inverse is cheap.
_TOLERANCE = 1e-11
_RESTARTS = 40
# Number of digits of weights that are computed from them: the last digits are not reproducible.
_DIGITS = 9
# Ten times the largest rounding error that a user's mixing matrix may have.
_ROOM = 1e-9


def matrix_on(neighbors: Around, rows: Sequence[Array]) -> sp.csr_array:
    """Return the sparse matrix with these entries, shape (N, N).

    Parameters
    ----------
    neighbors : tuple of tuple of int
    rows : sequence of ndarray
        Entries for each agent's neighbors, in their order, and last the diagonal entry.
    """
    columns = np.concatenate([[*around, i] for i, around in enumerate(neighbors)])
    ends = np.cumsum([0, *(len(row) for row in rows)])
    n = len(neighbors)
    return sp.csr_array((np.concatenate(rows), columns, ends), shape=(n, n))


def laplacian(neighbors: Around) -> sp.csr_array:
    """Return the network's Laplacian: degrees on the diagonal minus the adjacency matrix."""
    return matrix_on(neighbors, [np.array([-1.0] * len(a) + [len(a)]) for a in neighbors])


def laplacian_norm(neighbors: Around) -> float:
    """Return the Laplacian's largest eigenvalue or an upper bound; see `Network.laplacian_norm`."""
    if not _large(neighbors):
        return float(np.linalg.eigvalsh(laplacian(neighbors).toarray())[-1])
    return _bound_of_laplacian(neighbors)


def lowest_eigenvalue(neighbors: Around, rows: Sequence[Array]) -> float:
    """Return the least eigenvalue of a mixing matrix.

    Parameters
    ----------
    neighbors, rows
        Arguments of `matrix_on`.
    """
    W = matrix_on(neighbors, rows)
    return _lowest(W) if _large(neighbors) else float(np.linalg.eigvalsh(W.toarray())[0])


def second_eigenvalue(neighbors: Around, rows: Sequence[Array]) -> float:
    """Return the second largest modulus of an eigenvalue of a mixing matrix.

    Parameters
    ----------
    neighbors, rows
        Arguments of `matrix_on`.
    """
    W, n = matrix_on(neighbors, rows), len(neighbors)
    if not _large(neighbors):
        # The eigenvalue 1, whose eigenvector is the vector of ones, is removed first.
        return float(np.abs(np.linalg.eigvalsh(W.toarray() - np.full((n, n), 1 / n))).max())
    high = float(_ends(W, "LA", 2, 1 + _room(n)).min())  # the largest is 1, of the vector of ones
    return high if high >= -_floor(W) else max(abs(high), abs(_lowest(W)))


def best_step(neighbors: Around) -> float:
    """Return the number a that minimizes the second eigenvalue modulus of ``I - a L``."""
    L = laplacian(neighbors)
    if not _large(neighbors):
        values = np.linalg.eigvalsh(L.toarray())
        return 2 / float(values[-1] + values[1])
    # The smaller of the two is 0, the eigenvalue of the vector of ones.
    least = float(_ends(L, "SA", 2, -_room(len(neighbors))).max())
    beyond = _bound_of_laplacian(neighbors) * (1 + 1e-6)
    largest = float(_ends(L, "LA", 1, beyond)[0])
    return float(f"{2 / (least + largest):.{_DIGITS}g}")


def _large(neighbors: Around) -> bool:
    """Return whether to compute eigenvalues from sparse matrices: many agents, few edges."""
    n = len(neighbors)
    return n > _DENSE and _SPARSE * sum(map(len, neighbors)) <= n * n


def _bound_of_laplacian(neighbors: Around) -> float:
    """Return an upper bound of the Laplacian's eigenvalues; see `Network.laplacian_norm`."""
    degrees = [len(around) for around in neighbors]
    sums = (len(a) + math.fsum(degrees[j] for j in a) / len(a) for a in neighbors)
    return float(min(len(neighbors), max(sums)))


def _room(n: int) -> float:
    """Return a shift for inverse iteration, below a Laplacian's least positive eigenvalue."""
    return max(1 / n**2, _ROOM)


def _lowest(W: sp.csr_array) -> float:
    return float(_ends(W, "SA", 1, _floor(W) - _room(W.shape[0]))[0])


def _floor(W: sp.csr_array) -> float:
    """Return a lower bound on the eigenvalues of a mixing matrix W, by Gershgorin's theorem."""
    diagonal = W.diagonal()
    return float((diagonal - (abs(W).sum(axis=1) - abs(diagonal))).min())


def _ends(A: sp.csr_array, which: Literal["LA", "SA"], count: int, beyond: float) -> Array:
    """Return the `count` largest ("LA") or smallest ("SA") eigenvalues of a symmetric matrix.

    Lanczos' method finds them quickly if they are well separated. Otherwise it is applied to the
    inverse of ``A - beyond I``, whose eigenvalues are better separated. All eigenvalues of A lie on
    one side of the number `beyond`.
    """
    start = np.sin(1.0 + np.arange(A.shape[0]))  # fixed, so that equal networks get equal results

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
