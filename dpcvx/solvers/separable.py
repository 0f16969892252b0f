"""Exact minimization of sums of functions of one variable each: l1, elastic net, box, quadratic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Separable:
    """``sum_j 1/2 p_j y_j^2 + q_j y_j + max(low_j u_j, high_j u_j)`` on a box, ``u = y - kink``.

    Attributes
    ----------
    p, q, low, high, kink : ndarray, shape (n,)
        ``low <= high``; both are 0 where there is no kink.
    lower, upper : ndarray, shape (n,)
    """

    p: Array
    q: Array
    low: Array
    high: Array
    kink: Array
    lower: Array
    upper: Array

    def minimize(self, curvature: Array, slope: Array) -> Array:
        """The minimizer with ``1/2 curvature_j y_j^2 + slope_j y_j`` added, p + curvature > 0.

        Left of the kink the derivative has its root at `before`, right of it at `after`, which is
        smaller: the minimizer is the kink where it lies between the two.
        """
        weight, linear = self.p + curvature, self.q + slope
        before, after = -(linear + self.low) / weight, -(linear + self.high) / weight
        free = np.minimum(np.maximum(self.kink, after), before)
        return np.minimum(np.maximum(free, self.lower), self.upper)

    @property
    def slope(self) -> float:
        """The l2 norm of the largest slopes that kinks have."""
        return float(np.linalg.norm(np.maximum(np.abs(self.low), np.abs(self.high))))


def separable(data: ConeData) -> Separable | None:
    """Read a cone program as a sum over single columns; None if it is no such sum.

    A column may have a quadratic term, bounds, and one auxiliary column above two affine functions
    of it: what ``cp.abs``, ``cp.norm1``, ``cp.pos`` and ``cp.sum_squares`` become.
    """
    n, A, b = data.n, sp.csr_array(data.A), data.b
    P = sp.coo_array(data.P)
    diagonal = P.row == P.col
    if not data.cones.polyhedral or data.cones.zero or (P.data[~diagonal] != 0).any():
        return None
    p = data.P.diagonal()
    if (p[n:] != 0).any():
        return None
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    pieces: dict[int, list[tuple[int, float, float]]] = {}
    for i in range(A.shape[0]):
        span = slice(A.indptr[i], A.indptr[i + 1])
        nonzero = A.data[span] != 0
        columns, values = A.indices[span][nonzero], A.data[span][nonzero]
        own, auxiliary = columns < n, columns >= n
        if own.sum() > 1 or auxiliary.sum() > 1 or not columns.size:
            return None
        if not auxiliary.any():
            j, root = int(columns[0]), b[i] / values[0]
            if values[0] > 0:
                upper[j] = min(upper[j], root)
            else:
                lower[j] = max(lower[j], root)
            continue
        t, weight = int(columns[auxiliary][0]), float(values[auxiliary][0])
        if weight >= 0:  # a bound from above on an auxiliary column
            return None
        j = int(columns[own][0]) if own.any() else -1
        slope = float(values[own][0]) / -weight if own.any() else 0.0
        pieces.setdefault(t, []).append((j, slope, b[i] / weight))
    low, high, kink = np.zeros(n), np.zeros(n), np.zeros(n)
    taken: set[int] = set()
    for t in range(n, A.shape[1]):
        found = sorted(pieces.get(t, []), key=lambda piece: piece[1])
        named = {j for j, _, _ in found if j >= 0}
        if len(found) != 2 or len(named) != 1 or taken & named or data.q[t] < 0:
            return None
        (_, first, at_first), (_, second, at_second) = found
        if first == second:
            return None
        j = named.pop()
        taken.add(j)
        low[j], high[j] = data.q[t] * first, data.q[t] * second
        kink[j] = (at_first - at_second) / (second - first)
    return Separable(p[:n], data.q[:n], low, high, kink, lower, upper)
