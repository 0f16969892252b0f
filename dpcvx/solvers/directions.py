"""Directions in which constraints hold for ever: whether objectives have minimizers over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData
from .conic import ConicProgram

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def bounded_for_slopes(data: ConeData, curved: Index, generic: Array) -> bool:
    """Whether the program has a minimizer in x for every linear term of a linear space.

    It has if no direction y = (x, auxiliary) that keeps the constraints for ever and has no
    curvature changes any of these terms. A generic one and its negative are minimized over these
    directions, cut off at |x| <= 1: one of the two falls below 0 if there is such a direction.

    Parameters
    ----------
    data : ConeData
    curved : ndarray of int
        Components of x that get a positive diagonal on top of P.
    generic : ndarray, shape (n,)
        A generic element of the space.
    """
    n, N = data.n, data.A.shape[1]
    held = sp.csr_array((np.ones(curved.size), (np.arange(curved.size), curved)), (curved.size, N))
    program = ConicProgram(_directions(data, held))
    scale = float(np.max(np.abs(generic), initial=0.0)) or 1.0
    for c in (generic / scale, -generic / scale):
        answer = program.solve(np.zeros(n), c, np.zeros(n))
        if answer.x is None or c @ answer.x < -1e-6:
            return False
    return True


def falls_forever(data: ConeData, unmoved: sp.csr_array) -> bool:
    """Whether the objective has no lower bound, whatever is added to it along these rows.

    Parameters
    ----------
    data : ConeData
        Of constraints that admit a point.
    unmoved : csr_array, shape (k, n)
        A direction counts if it is orthogonal to all of them.
    """
    n, N = data.n, data.A.shape[1]
    largest = float(np.max(np.abs(data.q), initial=0.0))
    if largest == 0:
        return False
    rows = sp.csr_array(sp.hstack([unmoved, sp.csr_array((unmoved.shape[0], N - n))]))
    q = data.q / largest
    directions = replace(_directions(data, rows), q=q, n=N)
    answer = ConicProgram(directions).solve(np.zeros(N), np.zeros(N), np.zeros(N))
    return answer.x is not None and float(q @ answer.x) < -1e-6


def _directions(data: ConeData, held: sp.csr_array) -> ConeData:
    """Directions (x, auxiliary) without curvature that keep the constraints for ever.

    Cut off at |x| <= 1; `held`, of shape (k, N), are rows that are to stay 0.
    """
    n, N = data.n, data.A.shape[1]
    A, cones = sp.csr_array(data.A), data.cones
    unit = sp.eye_array(n, N, format="csr")
    first = cones.zero + cones.nonneg
    rows = [data.P.tocsr(), held, A[: cones.zero], A[cones.zero : first], unit, -unit, A[first:]]
    zero = N + held.shape[0] + cones.zero
    b = np.zeros(sum(block.shape[0] for block in rows))
    b[zero + cones.nonneg : zero + cones.nonneg + 2 * n] = 1.0
    return ConeData(
        P=sp.csc_array((N, N)),
        q=np.zeros(N),
        A=sp.csc_array(sp.vstack(rows)),
        b=b,
        cones=replace(cones, zero=zero, nonneg=cones.nonneg + 2 * n),
        n=n,
    )
