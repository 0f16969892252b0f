"""Violations of cones by slack vectors, and projections of slack vectors onto cones."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import Cones

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

    Terms of a row that are small in sum count as 1. `sizes` holds the absolute values of A.
    """
    if s.shape != b.shape:
        return math.inf
    terms = np.maximum(sizes @ np.abs(y) + np.abs(b), 1.0)
    return float(np.max(np.abs(b - A @ y - s) / terms, initial=0.0))
