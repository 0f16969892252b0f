"""Interfaces to Clarabel, an interior-point solver, and to SCS, the first-order fallback solver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from .active_set import attempt
from .cones import unmet

Array = NDArray[np.float64]
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
