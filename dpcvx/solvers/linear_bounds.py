r"""Bounds of linear functions over a box and one linear constraint, for intervals of coefficients.

For :math:`l \le x \le u`, :math:`b_0 \le a'x \le b_1` and coefficients :math:`c \in [c_0, c_1]`,
every number :math:`\lambda` gives a lower bound:

.. math:: c'x = \lambda \, a'x + (c - \lambda a)'x \ge \min(\lambda b_0, \lambda b_1)
    + \sum_j \min_{c_j, x_j} (c_j - \lambda a_j) x_j .

The largest of these over all :math:`\lambda` is the minimum for fixed c (duality of linear
programs). It lies at a :math:`\lambda` with :math:`c_j = \lambda a_j` for some j. A few of these
are tried. On the probability simplex, :math:`\lambda = \min_j c_{0,j}` gives the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# So many multipliers are tried, of those at which a component has no coefficient left.
_TRIED = 16
# Rounding of a sum, relative to the magnitudes of its terms: more than floating point leaves.
_ROUNDING = 1e-9
# Of a product, relative to it.
_LAST_DIGIT = 2.0**-51
# So many coefficients are looked at together; with more in all, nothing is narrowed.
_BLOCK, MOST = 1 << 20, 5 * 10**7


@dataclass(frozen=True, eq=False)
class LinearBound:
    """Bounds of a linear function of some components of x.

    Attributes
    ----------
    columns : ndarray of int, shape (k,)
        Components of x.
    slope : ndarray, shape (k,)
        Their coefficients; none is 0.
    lower, upper : float
    """

    columns: Index
    slope: Array
    lower: float
    upper: float

    @staticmethod
    def around(
        columns: Index, slope: Array, lower: float, upper: float, tolerance: float
    ) -> LinearBound:
        """Return bounds that are wider by a tolerance, relative to the numbers in them.

        Parameters
        ----------
        columns, slope, lower, upper
            Attributes of the bound.
        tolerance : float
        """
        ends = [abs(end) for end in (lower, upper) if math.isfinite(end)]
        wider = tolerance * max([*ends, float(np.abs(slope).max())])
        return LinearBound(columns, slope, lower - wider, upper + wider)

    def among(self, columns: Index) -> LinearBound:
        """Return the bounds with components of a part of x as components of x.

        Parameters
        ----------
        columns : ndarray of int
            Positions in x of the components of the part.
        """
        return replace(self, columns=columns[self.columns])

    def containing(self, points: Array) -> NDArray[np.bool_]:
        """Return whether each point, a row, satisfies them."""
        values = points[:, self.columns] @ self.slope
        return (self.lower <= values) & (values <= self.upper)

    def least(self, low: Array, high: Array, lower: Array, upper: Array) -> Array:
        """Return lower bounds of ``c'x`` for rows c of coefficients in intervals.

        Parameters
        ----------
        low, high : ndarray, shape (m, n)
            Ends of the coefficients.
        lower, upper : ndarray, shape (n,)
            Bounds of x.
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
                # Products with 1 are exact. Others move a coefficient in its last digit.
                lost += (_LAST_DIGIT * np.abs(moved[:, rounds]) * size[rounds]).sum(axis=1)
                best = np.fmax(best, value - lost)
        return beside + best


def bounds_of_products(
    sums: Sequence[LinearBound], low: Array, high: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Return bounds of ``c'x`` for rows c of coefficients in intervals, over a box and more.

    Parameters
    ----------
    sums : sequence of LinearBound
        Bounds of linear functions of x, each combined with the box alone.
    low, high : ndarray, shape (m, n)
        Ends of the coefficients.
    lower, upper : ndarray, shape (n,)
        Bounds of x.
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
    """Return the sums of the least products of coefficients and components."""
    with np.errstate(invalid="ignore"):
        corners = [_finite(c * x, c) for c in (low, high) for x in (lower, upper)]
        least = np.minimum.reduce(corners)
        total, size = least.sum(axis=1), np.abs(least).sum(axis=1)
        mixed = (least < 0).any(axis=1) & (least > 0).any(axis=1)
        return np.where(mixed, total - _ROUNDING * size, total)


def _finite(products: Array, factor: Array) -> Array:
    """Return products with finite numbers of unknown size: those with 0 are 0."""
    return np.where(factor == 0, 0.0, products)
