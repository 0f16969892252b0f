r"""Bounds of linear functions with interval coefficients over a box and one linear constraint.

For :math:`l \le x \le u`, :math:`b_0 \le a'x \le b_1` and coefficients :math:`c \in [c_0, c_1]`,
every number :math:`\lambda` gives a lower bound:

.. math:: c'x = \lambda \, a'x + (c - \lambda a)'x \ge \min(\lambda b_0, \lambda b_1)
    + \sum_j \min_{c_j, x_j} (c_j - \lambda a_j) x_j .

For fixed c, the largest of these bounds over all :math:`\lambda` is the minimum (duality of linear
programs). It is attained at a :math:`\lambda` with :math:`c_j = \lambda a_j` for some j. A few such
:math:`\lambda` are tried. On the probability simplex, :math:`\lambda = \min_j c_{0,j}` gives the
minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Number of multipliers lambda that are tried.
_TRIED = 16
# Bound of the rounding error of a sum, relative to the sum of its terms' magnitudes.
_ROUNDING = 1e-9
# Bound of the rounding error of a product, relative to the product.
_LAST_DIGIT = 2.0**-51
# Number of coefficients in one vectorized step, and in all; with more in all, bounds are infinite.
_BLOCK, MOST = 1 << 20, 5 * 10**7


@dataclass(frozen=True, eq=False)
class LinearBound:
    """Bounds of a linear function of some components of x.

    Attributes
    ----------
    columns : ndarray of int, shape (k,)
        Components of x in the function.
    slope : ndarray, shape (k,)
        Coefficients of these components; none is 0.
    lower, upper : float
        Bounds of the function; may be infinite.
    """

    columns: Index
    slope: Array
    lower: float
    upper: float

    @staticmethod
    def around(
        columns: Index, slope: Array, lower: float, upper: float, tolerance: float
    ) -> LinearBound:
        """Return a bound that is widened by a tolerance.

        Parameters
        ----------
        columns, slope, lower, upper
            Attributes of the bound before widening.
        tolerance : float
            Widening relative to the largest of the finite bounds and coefficients.
        """
        ends = [abs(end) for end in (lower, upper) if math.isfinite(end)]
        wider = tolerance * max([*ends, float(np.abs(slope).max())])
        return LinearBound(columns, slope, lower - wider, upper + wider)

    def among(self, columns: Index) -> LinearBound:
        """Return the bound of a part of x as a bound of the whole x.

        Parameters
        ----------
        columns : ndarray of int
            Positions in x of the part's components.
        """
        return replace(self, columns=columns[self.columns])

    def containing(self, points: Array) -> NDArray[np.bool_]:
        """Return whether each point, a row of `points`, satisfies the bounds."""
        values = points[:, self.columns] @ self.slope
        return (self.lower <= values) & (values <= self.upper)

    def least(self, low: Array, high: Array, lower: Array, upper: Array) -> Array:
        """Return a lower bound of ``c'x`` for each row c of interval coefficients.

        Parameters
        ----------
        low, high : ndarray, shape (m, n)
            Ends of the coefficients' intervals.
        lower, upper : ndarray, shape (n,)
            Bounds of x, in addition to this one.
        """
        rest = np.setdiff1d(np.arange(lower.size), self.columns)
        beside = _least(low[:, rest], high[:, rest], lower[rest], upper[rest])
        low, high = low[:, self.columns], high[:, self.columns]
        lower, upper = lower[self.columns], upper[self.columns]
        ratios = np.sort(np.concatenate([low / self.slope, high / self.slope], axis=1), axis=1)
        tried = np.unique(np.linspace(0, ratios.shape[1] - 1, _TRIED).round().astype(int))
        best = np.full(low.shape[0], -np.inf)
        rounds = np.abs(self.slope) != 1
        size = np.maximum(np.abs(lower), np.abs(upper))
        for k in tried.tolist():
            times = ratios[:, k]
            with np.errstate(invalid="ignore"):
                ends = _finite(np.stack([times * self.lower, times * self.upper]), times)
                moved = times[:, np.newaxis] * self.slope
                value = ends.min(axis=0) + _least(low - moved, high - moved, lower, upper)
                lost = _ROUNDING * np.abs(ends).min(axis=0)
                # Products with coefficients of 1 are exact; others have a rounding error.
                lost += (_LAST_DIGIT * np.abs(moved[:, rounds]) * size[rounds]).sum(axis=1)
                best = np.fmax(best, value - lost)
        return beside + best


def bounds_of_products(
    sums: Sequence[LinearBound], low: Array, high: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Return lower and upper bounds of ``c'x`` for each row c of interval coefficients.

    Parameters
    ----------
    sums : sequence of LinearBound
        Bounds of linear functions of x; each is combined with the box, but not with the others.
    low, high : ndarray, shape (m, n)
        Ends of the coefficients' intervals.
    lower, upper : ndarray, shape (n,)
        Box of x.
    """
    m, n = low.shape
    least, most = np.full(m, -np.inf), np.full(m, np.inf)
    rows = max(1, _BLOCK // max(1, n))
    for first in range(0, m if m * n <= MOST else 0, rows):
        some = slice(first, first + rows)
        a, b = low[some], high[some]
        below, above = _least(a, b, lower, upper), _least(-b, -a, lower, upper)
        for row in sums:
            below = np.fmax(below, row.least(a, b, lower, upper))
            above = np.fmax(above, row.least(-b, -a, lower, upper))
        least[some], most[some] = below, -above
    return np.where(np.isnan(least), -np.inf, least), np.where(np.isnan(most), np.inf, most)


def _least(low: Array, high: Array, lower: Array, upper: Array) -> Array:
    """Bound each row's ``c'x`` from below, for c in [low, high] and x in [lower, upper]."""
    with np.errstate(invalid="ignore"):
        corners = [_finite(c * x, c) for c in (low, high) for x in (lower, upper)]
        least = np.minimum.reduce(corners)
        total, size = least.sum(axis=1), np.abs(least).sum(axis=1)
        mixed = (least < 0).any(axis=1) & (least > 0).any(axis=1)
        return np.where(mixed, total - _ROUNDING * size, total)


def _finite(products: Array, factor: Array) -> Array:
    """Return products, with 0 for a factor of 0: infinite bounds stand for finite numbers."""
    return np.where(factor == 0, 0.0, products)
