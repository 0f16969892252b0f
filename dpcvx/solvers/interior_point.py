"""Clarabel, an interior point: what it is told, and the cones in its words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import clarabel
import numpy as np
import scipy.sparse as sp

from ..model.canonical import ConeData, Cones

# The solver's default, 1e-8, stalls at a gap of 1e-7 on some power-flow steps.
_REGULARIZATION = 1e-10
# Its default accuracy of certificates that no point keeps the constraints.
LIKELY = 1e-8
# Feasibility that programs with semidefinite cones are asked for: a hundredth of what is required.
# At points on the edge of such a cone residuals do not fall below it, and Clarabel goes on until
# its scaling is no number any more, at which it panics, with a text that no setting withholds.
_SEMIDEFINITE = 1e-10


def interior_point(
    P: sp.csc_array,
    data: ConeData,
    tolerance: float,
    equilibrate: bool = True,
    certain: float = LIKELY,
    refined: bool = True,
) -> Any:
    """A solver of ``minimize 1/2 y'P y`` over the constraints of `data`, open to updates.

    Parameters
    ----------
    P : csc_array, shape (N, N)
        Upper triangle.
    data : ConeData
        Its objective is ignored.
    tolerance : float
        Of gaps, and of feasibility where no cone is semidefinite.
    equilibrate : bool
        Whether it scales the program first.
    certain : float
        Of certificates that no point keeps the constraints.
    refined : bool
        Whether every solve of a linear system is refined.
    """
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.presolve_enable = False  # both block updates of the data
    settings.chordal_decomposition_enable = False
    settings.tol_gap_abs = settings.tol_gap_rel = tolerance
    settings.tol_feas = max(tolerance, _SEMIDEFINITE) if data.cones.psd else tolerance
    settings.tol_infeas_abs = settings.tol_infeas_rel = certain
    settings.equilibrate_enable = equilibrate
    settings.iterative_refinement_enable = refined
    settings.static_regularization_constant = _REGULARIZATION
    cones = cones_of(data.cones)
    zero = np.zeros(data.A.shape[1])
    return clarabel.DefaultSolver(P, zero, data.A, data.b, cones, settings)


def cones_of(cones: Cones) -> list[Any]:
    """The cones as Clarabel names them."""
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
    """The same but for rounding, with a sum of 1 as exact as Clarabel asserts."""
    largest = max(range(len(given)), key=given.__getitem__)
    others = math.fsum(a for k, a in enumerate(given) if k != largest)
    return [1.0 - others if k == largest else float(a) for k, a in enumerate(given)]
