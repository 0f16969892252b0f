"""Cones: violations by slacks, projections of slacks, and substitution of equalities."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from ..model.matrices import without_zeros

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class ConeTest:
    """Largest violation of cones by a slack vector; None for exponential and power cones.

    Attributes
    ----------
    factor : float
        Bound of a violation relative to the slack vector's largest absolute component; infinite for
        exponential and power cones.
    """

    def __init__(self, cones: Cones) -> None:
        self._simple = not (cones.exp or cones.power or cones.power_nd)
        widths = (1.0, *(1 + math.sqrt(n) for n in cones.soc), *(float(2 * n) for n in cones.psd))
        self.factor = max(widths) if self._simple else math.inf
        self._zero, self._first = cones.zero, cones.zero + cones.nonneg
        self._heads = np.cumsum([0, *cones.soc[:-1]]) if cones.soc else None
        self._last = self._first + sum(cones.soc)
        self._psd = triangles(cones.psd, self._last)

    def __call__(self, s: Array) -> float | None:
        """Return the largest violation of a cone by the slacks s; None if it is unknown."""
        if not self._simple:
            return None
        worst = largest(np.abs(s[: self._zero]))
        if self._first > self._zero:
            worst = max(worst, largest(-s[self._zero : self._first]))
        if self._heads is not None:
            rest = s[self._first : self._last]
            squares = rest * rest
            squares[self._heads] = 0.0
            tails = np.sqrt(np.add.reduceat(squares, self._heads))
            worst = max(worst, largest(tails - rest[self._heads]))
        for triangle in self._psd:
            worst = max(worst, -float(np.linalg.eigvalsh(triangle.matrix(s))[0]))
        return worst


class ConeProjection:
    """Euclidean projection of slacks onto their cones, for all rows except the equalities."""

    def __init__(self, cones: Cones) -> None:
        self._nonneg = cones.nonneg
        self._soc = np.array(cones.soc, dtype=np.intp)
        self._heads = np.concatenate([[0], np.cumsum(self._soc[:-1])]).astype(np.intp)
        self._last = cones.nonneg + int(self._soc.sum())
        self._psd = triangles(cones.psd, self._last)

    def __call__(self, s: Array) -> Array:
        """Return the projection of the slacks s onto the cones."""
        out = np.maximum(s, 0.0)  # right for inequalities; other rows are overwritten below
        if self._soc.size:
            out[self._nonneg : self._last] = self._second_order(s[self._nonneg : self._last])
        for triangle in self._psd:
            values, vectors = np.linalg.eigh(triangle.matrix(s))
            out[triangle.rows] = triangle.entries((vectors * np.maximum(values, 0.0)) @ vectors.T)
        return out

    def _second_order(self, s: Array) -> Array:
        heads = s[self._heads]
        squares = s * s
        squares[self._heads] = 0.0
        tails = np.sqrt(np.add.reduceat(squares, self._heads))
        size = np.clip((heads + tails) / 2, 0.0, tails)  # norms of the tails after projection
        shrink = np.divide(size, tails, out=np.zeros_like(tails), where=tails > 0)
        out = np.repeat(shrink, self._soc) * s
        out[self._heads] = np.maximum(heads, size)
        return out


class Triangle(NamedTuple):
    """Rows of a semidefinite cone: the upper triangle by column, times sqrt(2) off the diagonal."""

    rows: slice
    i: Index
    j: Index
    scale: Array
    order: int

    def matrix(self, s: Array) -> Array:
        """Return the symmetric matrix that this cone's rows of the slacks s stand for."""
        matrix = np.empty((self.order, self.order))
        matrix[self.i, self.j] = matrix[self.j, self.i] = self.scale * s[self.rows]
        return matrix

    def entries(self, matrix: Array) -> Array:
        """Return this cone's rows of the slacks for a symmetric matrix."""
        return matrix[self.i, self.j] / self.scale


def triangles(orders: tuple[int, ...], start: int) -> list[Triangle]:
    """Return semidefinite cones of given orders whose rows are consecutive from row `start`."""
    triangles: list[Triangle] = []
    for n in orders:
        j, i = np.tril_indices(n)
        scale = np.where(i == j, 1.0, math.sqrt(0.5))
        triangles.append(Triangle(slice(start, start + i.size), i, j, scale, n))
        start += i.size
    return triangles


def largest(v: Array) -> float:
    """Return the largest component, at least 0, faster than `ndarray.max` on short arrays."""
    return float(np.maximum.reduce(v, initial=0.0))


def unmet(A: sp.csc_array, sizes: sp.csr_array, y: Array, s: Array, b: Array) -> float:
    """Return the largest component of ``|b - A y - s|``, relative to the size of its row's terms.

    If the sum of a row's terms is below 1, it counts as 1. `sizes` holds the absolute values of A.
    """
    if s.shape != b.shape:
        return math.inf
    terms = np.maximum(sizes @ np.abs(y) + np.abs(b), 1.0)
    return float(np.max(np.abs(b - A @ y - s) / terms, initial=0.0))


# An equality may define a column if its coefficient is at least this, relative to the largest of
# the row; errors of other columns then grow by at most the inverse.
_PIVOT = 1e-3
# Equalities that share all their columns are reduced as a dense matrix of up to this many entries.
_FULL = 1_000_000
# Coefficients of reduced equalities below this, relative to the largest, are rounding errors.
_ROUNDING = 1e-11
# Largest residual of the equalities, relative to their terms, and largest entry of Z.
_KEPT = 1e-13
_GROWTH = 1e6
# Other rows whose coefficients all fall below this, relative to their terms, may be combinations of
# the equalities; down to `_KEPT`, rounding hides whether they are.
_HIDDEN = 1e-9


class Substituted(NamedTuple):
    """A set without its equalities: ``x = x0 + Z u``, and slacks ``s = d - C u`` of other rows."""

    x0: Array  # shape (n,)
    Z: sp.csr_array  # shape (n, p)
    free: Index  # shape (p,); components of x that equal the components of u
    C: sp.csr_array  # shape (m, p)
    d: Array  # shape (m,)


def substituted(data: ConeData) -> Substituted | None:
    """Substitute the equalities of a set without auxiliary columns.

    Return None if they contradict each other, or if rounding hides whether they do or whether other
    rows depend on u.
    """
    A, zero = sp.csr_array(data.A), data.cones.zero
    E, f = without_zeros(A[:zero]), data.b[:zero]
    x0, Z = np.zeros(data.n), sp.csr_array(sp.eye_array(data.n, format="csr"))
    names = np.arange(data.n)
    while E.shape[0]:
        rows, columns, pivots = _defined(E)
        if not rows.size:
            reduced = _reduced(E, f)
            if reduced is None:
                return None
            rows, columns, pivots, E, f = reduced
        # A defined column becomes an affine function of the others, which stay as they are.
        free = np.setdiff1d(np.arange(E.shape[1]), columns)
        step = sp.csc_array(E[rows] / pivots[:, None])[:, free]
        selection = sp.csr_array(
            (np.ones(free.size), (free, np.arange(free.size))), shape=(E.shape[1], free.size)
        )
        into = sp.csr_array((np.ones(rows.size), (columns, np.arange(rows.size))),
                            shape=(E.shape[1], rows.size))  # fmt: skip
        offset, turn = into @ (f[rows] / pivots), sp.csr_array(selection - into @ step)
        names = names[free]
        x0, Z = x0 + Z @ offset, sp.csr_array(Z @ turn)
        others = np.setdiff1d(np.arange(E.shape[0]), rows)
        f = f[others] - E[others] @ offset
        E = without_zeros(sp.csr_array(E[others] @ turn))
    if not _exact(A[:zero], data.b[:zero], x0, Z):
        return None
    rest = _others(A[zero:], data.b[zero:], x0, Z) if zero else (A[zero:], data.b[zero:])
    if rest is None:
        return None
    return Substituted(x0, without_zeros(Z), names, without_zeros(rest[0]), rest[1])


def _others(
    G: sp.csr_array, h: Array, x0: Array, Z: sp.csr_array
) -> tuple[sp.csr_array, Array] | None:
    """Return rows ``G x <= h`` as rows of u, or None if rounding hides whether some depend on u.

    A combination of the equalities is constant on the set. Its coefficients of u are rounding
    errors, and they would bind u if the row is tight. So they are replaced by 0.
    """
    C, d = sp.csr_array(G @ Z), h - G @ x0
    left, terms = _largest(C), _largest(abs(G) @ abs(Z))
    constant = left <= _KEPT * terms
    if (~constant & (left <= _HIDDEN * terms)).any():
        return None
    sizes = np.where(np.isfinite(h), np.abs(h), 0.0) + abs(G) @ np.abs(x0)
    d[constant & (np.abs(d) <= _KEPT * sizes)] = 0.0
    return sp.csr_array(sp.dia_array((~constant[None] * 1.0, [0]), shape=(h.size, h.size)) @ C), d


def _largest(M: sp.csr_array) -> Array:
    """Return the largest size of an entry in each row; 0 for an empty row."""
    entries, largest = sp.coo_array(M), np.zeros(M.shape[0])
    np.maximum.at(largest, entries.row, np.abs(entries.data))
    return largest


def _exact(E: sp.csr_array, f: Array, x0: Array, Z: sp.csr_array) -> bool:
    """Return whether every point ``x0 + Z u`` satisfies ``E x = f`` up to rounding."""
    left, sizes = abs(E @ Z), abs(E) @ abs(Z)
    ends = np.abs(E @ x0 - f), abs(E) @ np.abs(x0) + np.abs(f)
    largest = float(abs(Z).max()) if Z.nnz else 0.0
    accurate = not (left - _KEPT * sizes).max() > 0 if left.nnz else True
    return largest <= _GROWTH and accurate and bool((ends[0] <= _KEPT * ends[1]).all())


def _defined(E: sp.csr_array) -> tuple[Index, Index, Array]:
    """Return the rows that have a column of their own, one such column per row, and its entry."""
    entries, largest = sp.coo_array(E), _largest(E)
    alone = np.bincount(entries.col, minlength=E.shape[1])[entries.col] == 1
    alone &= np.abs(entries.data) >= _PIVOT * largest[entries.row]
    rows, first = np.unique(entries.row[alone], return_index=True)
    columns, pivots = entries.col[alone][first], entries.data[alone][first]
    return rows.astype(np.intp), columns.astype(np.intp), pivots


def _reduced(E: sp.csr_array, f: Array) -> tuple[Index, Index, Array, sp.csr_array, Array] | None:
    """Reduce equalities by elimination with the largest pivots: each gets a column of its own.

    Return the rows, these columns, their entries, and the reduced equalities; None on a
    contradiction or for too large a matrix.
    """
    if E.shape[0] * E.shape[1] > _FULL:
        return None
    M, right = E.toarray(), f.copy()
    # Rows are scaled to a largest entry of 1, so that pivots do not depend on a row's units.
    size = np.abs(M).max(axis=1, initial=0.0)
    size[size == 0] = 1.0
    M /= size[:, None]
    right /= size
    terms = np.abs(right)
    rows: list[int] = []
    columns: list[int] = []
    left = np.ones(M.shape[0], dtype=bool)
    while M.size and left.any():
        candidates = np.flatnonzero(left)
        flat = int(np.abs(M[candidates]).argmax())
        i, j = int(candidates[flat // M.shape[1]]), flat % M.shape[1]
        if abs(M[i, j]) <= _ROUNDING:
            break
        rows.append(i)
        columns.append(j)
        left[i] = False
        factors = M[:, j] / M[i, j]
        factors[i] = 0.0
        touched = np.flatnonzero(factors)
        M[touched] -= factors[touched, None] * M[i]
        M[touched, j] = 0.0
        right[touched] -= factors[touched] * right[i]
        terms[touched] += np.abs(factors[touched]) * terms[i]
    if (np.abs(right[left]) > _ROUNDING * np.maximum(terms[left], 1e-300)).any():
        return None
    rows_of = np.array(rows, dtype=np.intp)
    M[np.abs(M) <= 1e-3 * _ROUNDING] = 0.0
    order, column_of = np.arange(rows_of.size), np.array(columns, dtype=np.intp)
    return order, column_of, M[rows_of, column_of], sp.csr_array(M[rows_of]), right[rows_of]
