"""Small polyhedra: the dual active-set method of DAQP, which ends at an exact vertex or face."""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_int
from typing import Any, NamedTuple, TypeVar

import daqp
import numpy as np
from numpy.typing import NDArray

from ..model.canonical import ConeData
from ..model.matrices import without_zeros

Array = NDArray[np.float64]

_TOLERANCE = 1e-12
_OPTIMAL = 1
_EQUALITY = 5
_INFINITE = 1e30
# Larger numbers have squares that are none.
LARGEST = 1e100
T = TypeVar("T")


def attempt(ask: Callable[[], T]) -> T | None:
    """Return the answer of a solver; None if it raises, which is no reason to end a run.

    Panics of compiled code derive from BaseException. Interrupts and exhausted memory are raised
    again.
    """
    try:
        return ask()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException:
        return None


class SolverAnswer(NamedTuple):
    """Answer of a solver, with its distance from the conditions of optimality.

    Attributes
    ----------
    y : ndarray, shape (n,)
    value, gap, residual : float
        Objective; its distance from the dual one; largest violation of a constraint or of
        stationarity.
    status : object
        The solver's own word.
    """

    y: Array
    value: float
    gap: float
    residual: float
    status: Any


class ActiveSet:
    """``minimize 1/2 x'(P + diag(D)) x + (q + c)'x`` over a polyhedron, D > 0.

    Every call starts from nothing: answers depend on the arguments alone. Results that follow from
    the weights, such as the solver's factors, are stored for the last weights.

    Parameters
    ----------
    data : ConeData
        P, q and rows ``b - A x >= 0``, or ``= 0`` in the first ones; no auxiliary columns.
    """

    def __init__(self, data: ConeData) -> None:
        rows = without_zeros(data.A)
        m, n = rows.shape
        # Inequalities of one entry are bounds, which the solver has apart.
        alone = (np.diff(rows.indptr) == 1) & (np.arange(m) >= data.cones.zero)
        single, general = np.flatnonzero(alone), np.flatnonzero(~alone)
        slope, columns = rows.data[rows.indptr[single]], rows.indices[rows.indptr[single]]
        above, bounds = slope > 0, data.b[single] / slope
        self._upper = np.full(n + general.size, _INFINITE)
        self._lower = -self._upper
        np.minimum.at(self._upper, columns[above], bounds[above])
        np.maximum.at(self._lower, columns[~above], bounds[~above])
        self._upper[n:] = data.b[general]
        equal = slice(n, n + data.cones.zero)
        self._lower[equal] = self._upper[equal]
        self._sense = np.zeros(n + general.size, dtype=c_int)
        self._sense[equal] = _EQUALITY
        self._G = np.ascontiguousarray(rows[general].toarray())
        self._P, self._q = data.P.toarray(), data.q
        self._curved = bool(self._P.any())
        self._weights: _Weighted | None = None
        self._size = float(np.abs(np.concatenate([bounds, data.b[general]])).max(initial=0.0))

    def __call__(self, D: Array, c: Array) -> SolverAnswer | None:
        """Solve; None where the solver gives up, or not all weights are positive.

        Objective and gap are relative to the largest weight, the residual to the size of the
        numbers. The objective counts from where it is least without constraints (and without P
        off its diagonal), as for a projection.
        """
        weights = self._weights
        if weights is None or weights.key != D.tobytes():
            weights = self._weights = self._weighted(D)
        if weights is None:
            return None
        n, unit, G, largest = D.size, weights.unit, weights.G, weights.largest
        slopes = (self._q + c) * unit
        size = max(self._size, _largest(np.abs(slopes * unit))) or 1.0
        if not max(size, largest, _largest(np.abs(slopes))) <= LARGEST:
            return None
        solution = attempt(
            lambda: self._asked(weights, slopes, _TOLERANCE * size * math.sqrt(largest))
        )
        # In the scaled variables; x and the rows follow at the end.
        z, multiplier = (np.zeros(0), np.zeros(0)) if solution is None else solution
        usual = z.shape == (n,) and multiplier.shape == (n + G.shape[0],)
        if not usual or not math.isfinite(float(z.sum() + multiplier.sum())):
            self._weights = None  # what the solver keeps of such a solve is not known
            return None
        slack = np.concatenate([z, G @ z])
        above, below = weights.upper - slack, slack - weights.lower
        # Complementarity has no cancellation, which a difference of objectives would have; what is
        # left of stationarity counts by the least curvature, that of the weights.
        gap = abs(float(np.where(multiplier > 0, above, -below) @ multiplier))
        way = z + slopes
        left = weights.H @ z + slopes if self._curved else way  # H is the identity then
        left = left + multiplier[:n] + multiplier[n:] @ G
        square = float(left @ left)
        gap += square / (2 * weights.least)
        violation = -float(np.minimum.reduce(np.minimum(above, below) * weights.each))
        tall = max(float(slopes @ slopes), largest * self._size**2) or 1.0
        residual = max(violation / size, math.sqrt(square / tall))
        value = float(way @ way) / 2
        return SolverAnswer(unit * z, value / largest, gap / largest, residual, "active set")

    def _asked(
        self, weights: _Weighted, slopes: Array, tolerance: float
    ) -> tuple[Array, Array] | None:
        """Return the scaled minimizer and its multipliers."""
        model = weights.model
        model.settings = {"primal_tol": tolerance}
        # A solver that is told the kinds of its rows forgets which of them were active.
        model.update(f=slopes, sense=self._sense)
        z, _, flag, info = model.solve()
        if flag != _OPTIMAL:
            self._weights = None  # nor does it keep anything of a solve that ended early
            return None
        return z, info["lam"]

    def _weighted(self, D: Array) -> _Weighted | None:
        n = D.size
        if not (D > 0).all():
            return None
        H = self._P.copy()
        H.ravel()[:: n + 1] += D
        # A unit diagonal: the solver silently adds to an H whose entries differ a lot.
        unit = 1.0 / np.sqrt(H.ravel()[:: n + 1])
        H *= unit
        H *= unit[:, None]
        each = np.concatenate([unit, np.ones(self._upper.size - n)])
        G, upper, lower = self._G * unit, self._upper / each, self._lower / each
        model = daqp.Model()
        ready = attempt(lambda: model.setup(H, np.zeros(n), G, upper, lower, self._sense)[0])
        if ready is None or ready < 0:
            return None
        return _Weighted(
            key=D.tobytes(),
            model=model,
            H=H,
            unit=unit,
            each=each,
            G=G,
            upper=upper,
            lower=lower,
            largest=float(D.max()),
            least=float((D * unit * unit).min()),
        )


class _Weighted(NamedTuple):
    """The program in ``z = x / unit``, for weights D.

    Attributes
    ----------
    key : bytes
        The weights.
    model : daqp.Model
    each : ndarray
        Unit of every slack: of bounds that of the variable, of rows 1.
    largest, least : float
        Largest weight, and smallest one in the scaled variables: no curvature is below it.
    """

    key: bytes
    model: Any
    H: Array
    unit: Array
    each: Array
    G: Array
    upper: Array
    lower: Array
    largest: float
    least: float


def _largest(v: Array) -> float:
    """Return the largest component, at least 0, faster than `ndarray.max` on short arrays."""
    return float(np.maximum.reduce(v, initial=0.0))
