"""Interfaces to solvers in libraries: DAQP for small polyhedra, Clarabel, and SCS as the fallback.

DAQP's dual active-set method is exact on a vertex or face. Clarabel is an interior-point solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from ctypes import c_int
from typing import Any, NamedTuple, TypeVar

import clarabel
import daqp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from ..model.matrices import without_zeros
from .cones import unmet

Array = NDArray[np.float64]

_TOLERANCE = 1e-12
_OPTIMAL = 1
_EQUALITY = 5
_INFINITE = 1e30
# Squares of much larger numbers overflow.
LARGEST = 1e100
T = TypeVar("T")


def attempt(ask: Callable[[], T]) -> T | None:
    """Call a solver and return its answer; None if it raises, since other solvers may succeed.

    Panics of compiled code derive from BaseException, so these are caught. Interrupts and errors of
    exhausted memory are raised again.
    """
    try:
        return ask()
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException:
        return None


class SolverAnswer(NamedTuple):
    """Answer of a solver, with its errors in the conditions of optimality.

    Attributes
    ----------
    y : ndarray, shape (n,)
        Minimizer.
    value, gap, residual : float
        Primal objective; its distance from the dual objective; largest violation of a constraint
        or of stationarity.
    status : object
        Status in the solver's own terms.
    """

    y: Array
    value: float
    gap: float
    residual: float
    status: Any


class ActiveSet:
    """Solver of ``minimize 1/2 x'(P + diag(D)) x + (q + c)'x`` over a polyhedron, D > 0.

    No call starts from the active set of the last one, so answers depend on the arguments alone.
    Quantities that depend on D only, such as the solver's factors, are kept for the last D.

    Parameters
    ----------
    data : ConeData
        P, q and rows ``b - A x >= 0``, or ``= 0`` for the first ``cones.zero`` rows; no auxiliary
        columns.
    """

    def __init__(self, data: ConeData) -> None:
        rows = without_zeros(data.A)
        m, n = rows.shape
        # Inequalities with one entry are bounds, which the solver takes separately.
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
        """Solve the program; return None if the solver fails, or if not all weights D are positive.

        Objective and gap are divided by the largest weight, and the residual by the size of the
        data. The objective is the excess over its minimum without constraints (and without P off
        its diagonal), as for a projection.
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
            self._weights = None  # the solver's state after such a solve is unknown: rebuild it
            return None
        slack = np.concatenate([z, G @ z])
        above, below = weights.upper - slack, slack - weights.lower
        # The gap is computed from complementarity, without the cancellation that a difference of
        # objectives has. The residual of stationarity adds its square over twice the curvature,
        # which is at least the least weight.
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
        """Return DAQP's solution of the program and its multipliers; None if the solver fails.

        Both are in the scaled variables ``z = x / unit``.

        Parameters
        ----------
        weights : _Weighted
            Program in the scaled variables, without its linear term.
        slopes : ndarray, shape (n,)
            Linear term in the scaled variables.
        tolerance : float
            Largest violation of constraints in the scaled variables.
        """
        model = weights.model
        model.settings = {"primal_tol": tolerance}
        # An update with `sense` resets the solver's active set.
        model.update(f=slopes, sense=self._sense)
        z, _, flag, info = model.solve()
        if flag != _OPTIMAL:
            self._weights = None  # the solver's state after a failed solve is unknown: rebuild it
            return None
        return z, info["lam"]

    def _weighted(self, D: Array) -> _Weighted | None:
        n = D.size
        if not (D > 0).all():
            return None
        H = self._P.copy()
        H.ravel()[:: n + 1] += D
        # Scale to a unit diagonal: the solver silently regularizes an H with very unequal entries.
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
    """Quadratic program in the scaled variables ``z = x / unit``, for weights D.

    Attributes
    ----------
    key : bytes
        Bytes of the weights.
    model : daqp.Model
    each : ndarray
        Unit of each slack: the variable's unit for bounds, 1 for rows.
    largest, least : float
        Largest weight; smallest weight in the scaled variables, a lower bound of all curvatures.
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


Index = NDArray[np.intp]


# Static regularization of linear systems. With Clarabel's default, 1e-8, some power-flow steps
# stall at a gap of 1e-7. With the smaller one, steps on large sets may fail.
REGULARIZATION = 1e-10
LARGER_REGULARIZATION = 1e-8
# Clarabel's default tolerance of certificates of infeasibility.
LIKELY = 1e-8
# Tolerance of feasibility for semidefinite cones, a hundredth of the accuracy that answers require.
# Near the boundary of such a cone residuals do not fall below it. With a smaller tolerance,
# Clarabel continues until its scaling is nan and panics, with a text that no setting suppresses.
_SEMIDEFINITE = 1e-10


def interior_point(
    P: sp.csc_array,
    data: ConeData,
    tolerance: float,
    equilibrate: bool = True,
    certain: float = LIKELY,
    refined: bool = True,
    regularization: float = REGULARIZATION,
) -> Any:
    """Build Clarabel's solver of ``minimize 1/2 y'P y`` over constraints; its data can be updated.

    Parameters
    ----------
    P : csc_array, shape (N, N)
        Upper triangle of the quadratic term.
    data : ConeData
        Constraints; the objective in it is ignored.
    tolerance : float
        Tolerance of gaps, and of feasibility if no cone is semidefinite.
    equilibrate : bool
        Whether the solver equilibrates the program first.
    certain : float
        Tolerance of certificates that no point satisfies the constraints.
    refined : bool
        Whether iterative refinement follows every solve of a linear system.
    regularization : float
        Number added to the diagonal of linear systems.
    """
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False  # this and the next feature prevent updates of the data
    settings.chordal_decomposition_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = tolerance
    settings.tol_feas = max(tolerance, _SEMIDEFINITE) if data.cones.psd else tolerance
    settings.tol_infeas_abs = settings.tol_infeas_rel = certain
    settings.equilibrate_enable = equilibrate
    settings.iterative_refinement_enable = refined
    settings.static_regularization_constant = regularization
    cones = cones_of(data.cones)
    zero = np.zeros(data.A.shape[1])
    return clarabel.DefaultSolver(P, zero, data.A, data.b, cones, settings)


def cones_of(cones: Cones) -> list[Any]:
    """Return the cones as objects of Clarabel."""
    rows: list[Any] = []
    if cones.zero:
        rows.append(clarabel.ZeroConeT(cones.zero))
    if cones.nonneg:
        rows.append(clarabel.NonnegativeConeT(cones.nonneg))
    rows += [clarabel.SecondOrderConeT(n) for n in cones.soc]
    rows += [clarabel.PSDTriangleConeT(n) for n in cones.psd]
    rows += [clarabel.ExponentialConeT() for _ in range(cones.exp)]
    rows += [clarabel.PowerConeT(a) for a in cones.power]
    rows += [clarabel.GenPowerConeT(_exponents(a), 1) for a in cones.power_nd]
    return rows


def _exponents(given: Sequence[float]) -> list[float]:
    """Return a power cone's exponents, with a sum of 1 up to the rounding that Clarabel accepts."""
    largest = max(range(len(given)), key=given.__getitem__)
    others = math.fsum(a for k, a in enumerate(given) if k != largest)
    return [1.0 - others if k == largest else float(a) for k, a in enumerate(given)]


# Largest residual of the constraints in an answer of SCS, relative to the terms of each row.
_ACCURATE = 1e-6
# Largest order of a matrix that is tested for negative eigenvalues.
_LARGEST_BENT = 300


def first_order(P: sp.csc_array, q: Array, b: Array, data: ConeData) -> Array | None:
    """Return SCS's minimizer of ``1/2 y'P y + q'y`` over constraints with right side b.

    Return None if SCS fails or does not support a cone.
    """
    import scs

    cones = data.cones
    # SCS prints messages if its data are not finite or P is not semidefinite: do not call it then.
    if cones.power_nd or not (np.isfinite(q).all() and np.isfinite(b).all()) or _bent(P):
        return None
    order = _lower_triangles(cones)
    cone = {
        "z": cones.zero,
        "l": cones.nonneg,
        "q": list(cones.soc),
        "s": list(cones.psd),
        "ep": cones.exp,
        "p": list(cones.power),
    }
    problem = {"P": P, "A": sp.csc_matrix(data.A.tocsr()[order]), "b": b[order], "c": q}
    problem["P"] = sp.csc_matrix(P)
    options = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 50_000, "verbose": False}
    result = attempt(lambda: scs.SCS(problem, cone, **options).solve())
    if result is None or result["info"]["status"] != "solved":
        return None
    y = np.asarray(result["x"])
    if y.shape != q.shape or not np.isfinite(y).all():
        return None
    # SCS's tolerance is relative to the largest number of all rows, so each row is tested here.
    rows = data.A.tocsr()[order]
    left = unmet(rows, abs(rows), y, np.asarray(result["s"]), b[order])
    return y if left <= _ACCURATE else None


def _bent(upper: sp.csc_array) -> bool:
    """Return whether the matrix with this upper triangle has a negative eigenvalue."""
    if upper.shape[0] > _LARGEST_BENT:
        return False
    values = np.linalg.eigvalsh(upper.toarray(), UPLO="U")
    return bool(values[0] < -1e-9 * max(1.0, values[-1]))


def _lower_triangles(cones: Cones) -> Index:
    """Return the order of rows that turns upper triangles (by column) into lower triangles."""
    start = cones.zero + cones.nonneg + sum(cones.soc)
    order = [np.arange(start)]
    for n in cones.psd:
        j, i = np.tril_indices(n)  # upper triangle by column: (i, j) with i <= j, j outer
        position = np.zeros((n, n), dtype=int)
        position[i, j] = position[j, i] = start + np.arange(i.size)
        column, row = np.triu_indices(n)  # lower triangle by column: column outer, row >= column
        order.append(position[row, column])
        start += i.size
    rest = 3 * (cones.exp + len(cones.power))
    order.append(start + np.arange(rest))
    return np.concatenate(order)
