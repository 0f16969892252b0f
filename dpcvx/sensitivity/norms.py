"""Largest norm of ``J delta`` over changes delta of private data, for a Jacobian J."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import Sparse, without_zeros
from ..model.spec import PrivateSpec
from .intervals import row_sizes

Array = NDArray[np.float64]

# Sign patterns are enumerated up to this many free signs per connected block of the Jacobian.
_ENUMERATE = 14
# Number of rows from which rows with disjoint columns of J are bounded together.
_MANY = 256
# Largest number of columns for which the differences of all pairs are computed.
_CORNERS = 300


@dataclass(frozen=True)
class Bound:
    """An upper bound on the effect of one change of the private data."""

    value: float
    tight: bool  # whether some change attains it


def row_norms(J: Sparse, spec: PrivateSpec, p: int) -> Array:
    """Return, for each row of the data, the largest ``||J delta||_p`` over its changes delta."""
    assert isinstance(spec.adjacency, Rows)
    m = spec.shape[0]
    if len(spec.shape) == 1 or spec.shape[1] == 1:
        # A number of known sign cannot change by more than its bound.
        reach = spec.adjacency.max_norm if spec.half else spec.adjacency.radius
        if isinstance(J, sp.csc_array):
            return reach * row_sizes(sp.csr_array(J.T), p)
        peak = float(np.abs(J.data).max(initial=0.0)) or 1.0
        unit = sp.csr_array(J / peak)
        columns = np.asarray((abs(unit) if p == 1 else unit.power(2)).sum(axis=0)).ravel()
        return reach * peak * (columns if p == 1 else np.sqrt(columns))
    by_column = sp.csc_array(J)
    if m > _MANY and _apart(by_column, m):
        return _rows_apart(by_column, spec, p)
    out = np.zeros(m)
    for i in range(m):
        block = by_column[:, np.arange(i, spec.size, m)]
        if block.nnz:
            out[i] = _row_norm(sp.csr_array(block), spec, p)
    return out


def of_person(changes: Array, adjacency: Rows, rows: int, meet: int | None = None) -> float:
    r"""Return the sensitivity to one change of the data, given sensitivities to single records.

    One change may move all records of a person; see `Rows`.

    By the triangle inequality, a change of k records moves a vector by at most the sum of the k
    largest changes by single records. In l2, let at most c records move each component. Then
    :math:`\|\sum_i \delta_i\|^2 \le c \sum_i \|\delta_i\|^2`, component by component.

    Parameters
    ----------
    changes : ndarray, shape (rows,) or (1,)
        Bound of the change by each record, or the largest of all.
    adjacency : Rows
    rows : int
        Number of records.
    meet : int, optional
        The number c, for changes in l2; unknown if omitted.

    Returns
    -------
    float
        Infinite if one of the changes is NaN.
    """
    if np.isnan(changes).any():
        return math.inf
    most = adjacency.moved_rows(rows)
    if most == 1:
        return float(changes.max())
    largest = np.broadcast_to(changes, most) if changes.size == 1 else np.sort(changes)[-most:]
    with np.errstate(over="ignore"):
        total = float(largest.sum())
        peak = float(largest[-1])
        if meet is None or meet >= most or not 0 < peak < math.inf:
            return total
        return min(total, math.sqrt(meet) * peak * float(np.linalg.norm(largest / peak)))


def meeting(jacobians: Sequence[Sparse], rows: int) -> int:
    """Return the largest number of rows of the data that move one component of ``J d``.

    This is the number c of `of_person`.

    Parameters
    ----------
    jacobians : sequence of csr_array or csc_array
        Jacobians of all parts of these rows, with a column per entry of a part.
    rows : int
    """
    touched = sp.csr_array((jacobians[0].shape[0], rows), dtype=bool)
    for J in jacobians:
        entries = sp.coo_array(J)
        index = (entries.row, entries.col % rows)
        touched = touched + sp.csr_array((entries.data != 0, index), shape=touched.shape)
    return int(np.diff(touched.indptr).max(initial=0))


def _apart(J: sp.csc_array, m: int) -> bool:
    """Return whether different columns of data with m rows move disjoint components of ``J d``."""
    met = np.zeros(J.shape[0], dtype=bool)
    for first in range(0, J.shape[1], m):
        columns = J.indices[J.indptr[first] : J.indptr[first + m]]
        if met[columns].any():
            return False
        met[columns] = True
    return True


def _rows_apart(J: sp.csc_array, spec: PrivateSpec, p: int) -> Array:
    r"""Return the largest ``||J delta||_p`` over changes delta of each row of the data.

    The columns of J that belong to one row of the data must have no entries in common.

    :math:`\|J \delta\|_p` is then the lp norm of the numbers :math:`|\delta_j| \|J_j\|_p`.
    """
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    sizes = row_sizes(sp.csr_array(J.T), p).reshape((-1, spec.shape[0]))
    if spec.half and adjacency.norm == 1:  # see `_row_norm`
        return adjacency.max_norm * _joined(np.sort(sizes, axis=0)[-2:], p)
    if adjacency.norm == 1 or (adjacency.norm, p) == (2, 2):
        return _reach(spec) * sizes.max(axis=0)
    # Over the l2 ball the maximum follows from Cauchy-Schwarz.
    return _reach(spec) * _joined(sizes, p if adjacency.norm == math.inf else 2)


def _joined(sizes: Array, p: int) -> Array:
    """Return the lp norms of the columns of `sizes`, without overflow of squares."""
    peak = float(sizes.max(initial=0.0)) or 1.0
    return peak * np.linalg.norm(sizes / peak, p, axis=0)


def _row_norm(J: sp.csr_array, spec: PrivateSpec, p: int) -> float:
    r"""Return the largest ``||J (r' - r)||_p`` over two admissible rows r and r' of the data.

    For rows of one sign with bounded entries, entries differ by at most the bound. In l2,
    :math:`\|r' - r\|^2 \le \|r'\|^2 + \|r\|^2`, as the inner product is at least 0. In l1, the
    maximum is attained at corners of the set of rows: 0, or one entry at the bound.
    """
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    if spec.half and adjacency.norm == 1 and J.shape[1] <= _CORNERS:
        # Squares stay inside floating point if the largest entry is one.
        peak = float(np.abs(J.data).max())
        corners = np.vstack([np.zeros(J.shape[0]), J.T.toarray() / peak])
        apart = pdist(corners, ("cityblock", "euclidean")[p - 1])
        return adjacency.max_norm * peak * float(apart.max())
    return _reach(spec) * ball_norm(J, adjacency.norm, p).value


def _reach(spec: PrivateSpec) -> float:
    """Return the largest distance between two admissible rows, in the norm that bounds them."""
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    if spec.half and adjacency.norm != 1:
        return adjacency.max_norm * (1.0 if adjacency.norm == math.inf else math.sqrt(2))
    return adjacency.radius


def ball_norm(J: Sparse, norm: str | float, p: int) -> Bound:
    """Return the largest ``||J delta||_p`` over changes delta in the unit ball of `norm`.

    One entry and l1: the largest column norm (the ball's corners). l2 with p = 2: the largest
    singular value. The other combinations are sign problems, NP-hard in general: they are solved
    exactly where the signs of J can be aligned or a connected block of J has few signs, else
    bounded from above.
    """
    if isinstance(J, sp.csc_array) and J.nnz and norm in ("entry", 1):
        return Bound(float(row_sizes(sp.csr_array(J.T), p).max()), True)
    J = without_zeros(J)
    if J.nnz == 0:
        return Bound(0.0, True)
    # Squares stay inside floating point if the largest entry is one.
    peak = float(np.max(np.abs(J.data)))
    if not math.isfinite(peak):
        raise PrivacyError(
            "The derivative of a gradient with respect to private data is not finite, so it bounds "
            "nothing. Rescale the model's constants."
        )
    unit = _unit_ball_norm(sp.csr_array(J / peak), norm, p)
    return Bound(peak * unit.value, unit.tight)


def _unit_ball_norm(J: sp.csr_array, norm: str | float, p: int) -> Bound:
    if norm in ("entry", 1):
        powered = np.abs(J.data) if p == 1 else J.data**2
        largest = float(np.bincount(J.indices, powered).max())
        return Bound(largest if p == 1 else math.sqrt(largest), True)
    blocks = _blocks(J)
    if norm == 2 and p == 2:
        return Bound(max(float(np.linalg.norm(block, 2)) for block in blocks), True)
    if norm == 2:  # max over ||delta||_2 <= 1 of ||J delta||_1 = max over signs s of ||J's||_2
        bounds = [_inf_to_2(block.T) for block in blocks]
    elif p == 2:
        bounds = [_inf_to_2(block) for block in blocks]
    else:
        bounds = [_inf_to_1(block) for block in blocks]
    values = [f.value for f in bounds]
    total = math.fsum(values) if (norm, p) == (math.inf, 1) else math.hypot(*values)
    return Bound(total, all(f.tight for f in bounds))


def _blocks(J: sp.csr_array) -> list[Array]:
    """Return the dense blocks of the matrix J: connected components of its bipartite graph."""
    m, n = J.shape
    graph = sp.block_array([[sp.csr_array((m, m)), J], [J.T, sp.csr_array((n, n))]])
    _, label = connected_components(graph != 0, directed=False)
    blocks = []
    for c in np.unique(label):
        rows, columns = np.flatnonzero(label[:m] == c), np.flatnonzero(label[m:] == c)
        if rows.size and columns.size:
            blocks.append(J[rows][:, columns].toarray())
    return blocks


def _aligned(J: Array) -> bool:
    """Return whether signs of rows and columns can be flipped so that J becomes nonnegative."""
    rows = np.zeros(J.shape[0])
    columns = np.zeros(J.shape[1])
    rows[0] = 1.0
    queue: list[tuple[str, int]] = [("row", 0)]
    while queue:
        side, i = queue.pop()
        line, signs = (J[i], columns) if side == "row" else (J[:, i], rows)
        sign = rows[i] if side == "row" else columns[i]
        for j in np.flatnonzero(line):
            wanted = np.sign(line[j]) * sign
            if signs[j] == 0:
                signs[j] = wanted
                queue.append(("column" if side == "row" else "row", int(j)))
            elif signs[j] != wanted:
                return False
    return True


def _signs(count: int) -> Array:
    # The first sign is fixed: flipping all signs changes no norm.
    rest = np.array(list(itertools.product((1.0, -1.0), repeat=count - 1))).reshape(-1, count - 1)
    return np.hstack([np.ones((rest.shape[0], 1)), rest])


def _inf_to_2(J: Array) -> Bound:
    """Return the largest ``||J s||_2`` over vectors s with entries in [-1, 1]."""
    if _aligned(J):
        return Bound(float(np.linalg.norm(np.abs(J).sum(axis=1))), True)
    if J.shape[1] <= _ENUMERATE:
        return Bound(float(np.linalg.norm(_signs(J.shape[1]) @ J.T, axis=1).max()), True)
    spectral = math.sqrt(J.shape[1]) * float(np.linalg.norm(J, 2))
    return Bound(min(float(np.linalg.norm(np.abs(J).sum(axis=1))), spectral), False)


def _inf_to_1(J: Array) -> Bound:
    """Return the largest ``||J s||_1`` over vectors s with entries in [-1, 1]."""
    if _aligned(J):
        return Bound(float(np.abs(J).sum()), True)
    short = J if J.shape[1] <= J.shape[0] else J.T  # ||J s||_1 = max over t of t'J s
    if short.shape[1] <= _ENUMERATE:
        return Bound(float(np.abs(_signs(short.shape[1]) @ short.T).sum(axis=1).max()), True)
    spectral = math.sqrt(J.size) * float(np.linalg.norm(J, 2))
    return Bound(min(float(np.abs(J).sum()), spectral), False)
