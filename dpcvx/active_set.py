"""Small polyhedra: the dual active-set method of DAQP, which ends at an exact vertex or face."""

from __future__ import annotations

from ctypes import c_int
from dataclasses import dataclass
from typing import Any

import daqp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TOLERANCE = 1e-12
_OPTIMAL = 1
_EQUALITY = 5
_INFINITE = 1e30


@dataclass(frozen=True, eq=False)
class Found:
    """What a solver returned, and how far it is from satisfying the conditions of optimality.

    Attributes
    ----------
    y : ndarray, shape (n,)
    value, gap, residual : float
        Objective; its distance from the dual one; largest violation of a constraint or of
        stationarity.
    status : str
        The solver's own word.
    """

    y: Array
    value: float
    gap: float
    residual: float
    status: str


class ActiveSet:
    """``minimize 1/2 y'Hy + q'y`` over ``b - A y >= 0`` (``= 0`` in the first rows), H > 0.

    Every call starts from nothing: answers depend on the arguments alone.

    Parameters
    ----------
    A : sparse array, shape (m, n)
    equalities : int
        Number of leading rows that hold with equality.
    """

    def __init__(self, A: sp.csc_array, equalities: int) -> None:
        rows = sp.csr_array(A)
        rows.eliminate_zeros()
        m, n = rows.shape
        # Inequalities of one entry are bounds, which the solver has apart.
        alone = (np.diff(rows.indptr) == 1) & (np.arange(m) >= equalities)
        single = np.flatnonzero(alone)
        slope, column = rows.data[rows.indptr[single]], rows.indices[rows.indptr[single]]
        up = slope > 0
        self._above = single[up], column[up], slope[up]
        self._below = single[~up], column[~up], slope[~up]
        self._general = np.flatnonzero(~alone)
        self._G = np.ascontiguousarray(rows[self._general].toarray())
        self._equal = slice(n, n + equalities)
        self._sense = np.zeros(n + self._general.size, dtype=c_int)
        self._sense[self._equal] = _EQUALITY

    def __call__(self, H: Array, q: Array, b: Array) -> Found | None:
        """Solve; None where the solver gives up."""
        n = q.size
        upper = np.full(self._sense.size, _INFINITE)
        lower = np.full(self._sense.size, -_INFINITE)
        rows, columns, slope = self._above
        np.minimum.at(upper, columns, b[rows] / slope)
        rows, columns, slope = self._below
        np.maximum.at(lower, columns, b[rows] / slope)
        upper[n:] = b[self._general]
        lower[self._equal] = upper[self._equal]
        # Handed over as copies: the solver works in the arrays it is given.
        found: Any = daqp.solve(
            H, q, self._G, upper.copy(), lower.copy(), self._sense.copy(), primal_tol=_TOLERANCE
        )
        y, _, flag, info = found
        if flag != _OPTIMAL:
            return None
        slack = np.concatenate([y, self._G @ y])
        above, below = upper - slack, slack - lower
        multiplier = info["lam"]
        slopes = H @ y + q
        stationary = slopes + multiplier[:n] + multiplier[n:] @ self._G
        gap = np.maximum(multiplier, 0.0) @ above - np.minimum(multiplier, 0.0) @ below
        violation = max(-float(above.min()), -float(below.min()), float(np.abs(stationary).max()))
        value = float(q @ y + slopes @ y) / 2
        return Found(y, value, abs(float(gap)), max(violation, 0.0), "active set")
