r"""Projections onto simple sets in closed form, and bounds of linear functions on such sets.

*Projections* in the norm with weights D: boxes, simplices, balls, affine sets. Also exact
minimization of separable functions, such as l1 norm or elastic net, on boxes and balls.

*Bounds* of linear functions with interval coefficients over a box and one linear constraint. For
:math:`l \le x \le u`, :math:`b_0 \le a'x \le b_1` and coefficients :math:`c \in [c_0, c_1]`, every
number :math:`\lambda` gives a lower bound:

.. math:: c'x = \lambda \, a'x + (c - \lambda a)'x \ge \min(\lambda b_0, \lambda b_1)
    + \sum_j \min_{c_j, x_j} (c_j - \lambda a_j) x_j .

For fixed c, the largest of these bounds over all :math:`\lambda` is the minimum (duality of linear
programs). It is attained at a :math:`\lambda` with :math:`c_j = \lambda a_j` for some j. A few such
:math:`\lambda` are tried. On the probability simplex, :math:`\lambda = \min_j c_{0,j}` gives the
minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Function of v and D, both of shape (n,), that returns the projection of v with weights D.
ClosedForm = Callable[[Array, Array], Array]

# Largest contradiction of two bounds, relative to their size, that is taken for rounding.
ROUNDING = 1e-9
# Rounding error of a difference of numbers of size one.
_LAST_DIGITS = 1e-15


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds of single components; infinite for a component without a bound."""

    lower: Array
    upper: Array

    def __call__(self, v: Array, D: Array) -> Array:
        """Clip v to the bounds, which is the projection for all weights D."""
        return np.minimum(np.maximum(v, self.lower), self.upper)  # `numpy.clip` is slower


@dataclass(frozen=True, eq=False)
class Simplex:
    """Set ``a'x = b`` or ``a'x <= b`` in a box; the probability simplex is a = 1, b = 1, x >= 0."""

    a: Array
    b: float
    lower: Array
    upper: Array
    equality: bool

    @property
    def reachable(self) -> bool:
        """Return whether the box holds a point that satisfies the linear constraint."""
        least = np.where(self.a > 0, self.a * self.lower, self.a * self.upper)
        most = np.where(self.a > 0, self.a * self.upper, self.a * self.lower)
        unit = float(np.abs(self.a).max())
        under, over = (
            slack_of_rounding(float(np.abs(ends).sum()) + abs(self.b), 1.0 + abs(self.b), unit)
            for ends in (least, most)
        )
        if least.sum() > self.b + under:
            return False
        return not self.equality or bool(self.b <= most.sum() + over)

    def bounds(self) -> tuple[Array, Array]:
        """Return each component's range on the simplex, given the other components' bounds."""
        least = np.where(self.a > 0, self.a * self.lower, self.a * self.upper)
        most = np.where(self.a > 0, self.a * self.upper, self.a * self.lower)
        lower, upper = self.lower.copy(), self.upper.copy()
        for j in range(self.a.size):
            ends = [(self.b - np.delete(least, j).sum()) / self.a[j], None]
            if self.equality:
                ends[1] = (self.b - np.delete(most, j).sum()) / self.a[j]
            above, below = ends if self.a[j] > 0 else ends[::-1]
            if above is not None and above == above:
                upper[j] = min(upper[j], above)
            if below is not None and below == below:
                lower[j] = max(lower[j], below)
        return lower, upper

    def __call__(self, v: Array, D: Array) -> Array:
        """Return the projection ``x(tau) = clip(v - tau a / D)``, at the root of ``a'x(tau) = b``.

        a'x(tau) decreases in tau, and is linear between its breakpoints, where a component reaches
        or leaves a bound. A rounding error in a component between its bounds changes the answer by
        at most this error. A rounding error in a'x from components at their bounds may do more:
        components with small coefficients would compensate for it. Such sums are computed exactly.
        """
        inside = np.minimum(np.maximum(v, self.lower), self.upper)
        if not self.equality and self._excess(inside) <= 0:
            return inside
        slope = self.a / D
        at_lower, other = (v - self.lower) / slope, (v - self.upper) / slope
        ends = np.concatenate([at_lower, other])
        first, last = np.minimum(at_lower, other), np.maximum(at_lower, other)  # free in between
        breaks = np.sort(ends[np.isfinite(ends)])

        def at(before: float, after: float, tau: float) -> Array:
            free = (first <= before) & (last >= after)
            early = (slope > 0) == (first >= after)
            bounds = np.where(early, self.upper, self.lower)
            x = np.where(free, v - tau * slope, bounds)
            return np.minimum(np.maximum(x, self.lower), self.upper)

        low, high = -1, breaks.size  # b lies between breakpoints low and high
        while high - low > 1:
            middle = (low + high) // 2
            if self._excess(at(*[float(breaks[middle])] * 3)) >= 0:
                low = middle
            else:
                high = middle
        left = float(breaks[low]) if low >= 0 else -math.inf
        right = float(breaks[high]) if high < breaks.size else math.inf
        free = (first <= left) & (last >= right)
        if not free.any():
            return at(left, left, left) if low >= 0 else at(right, right, right)
        origin = at(left, right, 0.0)
        origin[free] = v[free]
        tau = self._excess(origin, 0.1) / math.fsum((self.a * slope)[free].tolist())
        return at(left, right, min(max(tau, left), right))

    def _excess(self, x: Array, clear: float = 1e-9) -> float:
        """Return ``a'x - b``; exactly if it is below `clear` times its terms' total magnitude."""
        terms = self.a * x
        total = float(terms.sum()) - self.b
        if abs(total) > clear * (float(np.abs(terms).sum()) + abs(self.b)):
            return total
        rest = _lost(self.a, x)
        if not math.isfinite(total + float(rest.sum())):  # beyond 1e300
            return total
        return math.fsum([*terms.tolist(), *rest.tolist(), -self.b])


@dataclass(frozen=True, eq=False)
class Ball:
    """Set ``sum_i (a_i x_i + c_i)^2 <= r^2``: a ball if all a_i are equal, else an ellipsoid."""

    a: Array
    c: Array
    r: float

    def __call__(self, v: Array, D: Array) -> Array:
        """Return the projection: ``y_i = w_i u_i / (w_i + tau)``, tau at the root of ``||y|| = r``.

        Here ``y = a x + c``, ``u = a v + c`` and ``w = D / a^2``.
        """
        u = self.a * v + self.c
        if np.linalg.norm(u) <= self.r:
            return v.copy()
        if self.r == 0:
            return -self.c / self.a
        w = D / self.a**2
        tau, y = 0.0, u
        for _ in range(100):  # Newton on 1/||y|| - 1/r: monotone and quadratically convergent
            size = float(np.linalg.norm(y))
            if abs(size - self.r) <= 1e-15 * self.r:
                break
            drop = float(np.sum(y * y / (w + tau))) / size
            following = tau + (size / self.r - 1.0) * size / drop
            if following == tau:
                break
            tau = following
            y = w * u / (w + tau)
        y = y * min(1.0, self.r / float(np.linalg.norm(y)))
        return (y - self.c) / self.a


class Affine:
    """Set ``A x = b`` with independent rows.

    With ``(A D^(-1/2))' = Q R`` and coordinates y = D^(1/2) x, the projection replaces y's part in
    the range of Q by ``Q R'^-1 b``. The factors are kept for the last D; this changes no answer.
    """

    def __init__(self, A: Array, b: Array) -> None:
        self._A, self._b = A, b
        self._weights: Array | None = None
        self._factors: tuple[Array, Array] | None = None

    def __call__(self, v: Array, D: Array) -> Array:
        """Return the projection of v with weights D."""
        root = np.sqrt(D)
        if self._weights is None or not np.array_equal(self._weights, D):
            Q, R = la.qr((self._A / root).T, mode="economic")
            self._factors = Q, Q @ la.solve_triangular(R, self._b, trans="T")
            self._weights = D.copy()
        assert self._factors is not None
        Q, fixed = self._factors
        y = root * v
        return (y - Q @ (Q.T @ y) + fixed) / root


def slack_of_rounding(size: float, most: float, unit: float) -> float:
    """Return the largest contradiction between bounds that rounding explains.

    The tolerance is relative to the `size` of the bounds, since sets may have small units; a size
    above `most` counts as `most`. The rounding errors of terms that cancel are added, for terms of
    this size and of size `unit`: a bound of 0 may be the difference of two such numbers.
    """
    return ROUNDING * min(size, most) + _LAST_DIGITS * (size + unit)


def _lost(a: Array, x: Array) -> Array:
    """Return the rounding errors of the products ``a * x`` (Dekker, 1971)."""
    with np.errstate(over="ignore", invalid="ignore"):
        high_a, high_x = _upper_half(a), _upper_half(x)
        low_a, low_x = a - high_a, x - high_x
        missing = high_a * high_x - a * x + high_a * low_x + low_a * high_x
        return missing + low_a * low_x


def _upper_half(a: Array) -> Array:
    """Return every number rounded to its leading 26 bits."""
    c = 134217729.0 * a
    return c - (c - a)


@dataclass(frozen=True, eq=False)
class Separable:
    """Sum of convex functions of single columns, with one kink each, on a box.

    It is ``sum_j 1/2 p_j y_j^2 + q_j y_j + max(low_j u_j, high_j u_j)`` with ``u = y - kink``. Some
    columns may lie in balls around 0 instead, with kinks at 0.
    """

    p: Array  # shape (n,), as all arrays below
    q: Array
    low: Array  # at most `high`; both are 0 for a component without a kink
    high: Array
    kink: Array
    lower: Array
    upper: Array
    balls: tuple[tuple[Index, Ball], ...] = ()  # balls around 0, each with its columns

    def minimize(self, curvature: Array, slope: Array) -> Array:
        """Return the minimizer after adding ``1/2 curvature_j y_j^2 + slope_j y_j`` to the terms.

        It is unique for ``p + curvature > 0``. Left of the kink, the derivative has its root at
        `before`; right of the kink, at `after`, which is smaller. The minimizer is the kink if the
        kink lies between the two.

        With the multiplier tau of a ball in the coordinates ``a y``, the minimizer is the minimizer
        without the ball times ``weight / (weight + tau a^2)``: the latter's weighted projection.
        """
        weight, linear = self.p + curvature, self.q + slope
        before, after = -(linear + self.low) / weight, -(linear + self.high) / weight
        free = np.minimum(np.maximum(self.kink, after), before)
        y = np.minimum(np.maximum(free, self.lower), self.upper)
        for columns, ball in self.balls:
            for row in np.atleast_2d(y):
                row[columns] = ball(row[columns], weight[columns])
        return y

    @property
    def slope(self) -> float:
        """The l2 norm of the largest absolute slopes of the kinked terms, over components."""
        return float(np.linalg.norm(np.maximum(np.abs(self.low), np.abs(self.high))))


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
