r"""Projections onto sets whose cones have orthogonal rows, such as semidefinite matrices.

.. math:: \Pi(v) = x_0 + R (v - x_0) + G (\Pi_K(s) - d), \qquad s = d + G'(v - x_0)

where the slack of a point x that keeps the equalities is ``d + G'(x - x0)``, G has orthonormal
columns, and R projects onto what moves in the equalities and leaves slacks as they are. With equal
weights this is the projection in their norm; unequal ones bend cones, and the set is another
solver's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from .active_set import LARGEST
from .cones import ConeProjection, largest
from .substitution import substituted

Array = NDArray[np.float64]

# What is left of 1 and 0 in products of rows that are taken for orthonormal.
_ROUNDING = 1e-13
# Relative to squares of slacks: what the last digits of eigenvectors leave of their products.
_LAST_DIGITS = 1e-15


class Nearest(NamedTuple):
    """A projection.

    Attributes
    ----------
    x : ndarray, shape (n,)
    gap : float
        Bound of how far the objective, ``1/2 sum_i D_i (x_i - v_i)^2``, is above the least one.
    """

    x: Array
    gap: float


class Orthogonal:
    """The projection in the norm of equal weights; see the module.

    Parameters
    ----------
    cones : Cones
    x0, d : ndarray
        Of shapes (n,) and (rows of cones,).
    G : csr_array, shape (n, rows of cones)
    R : csr_array, shape (n, n)
    """

    def __init__(self, cones: Cones, x0: Array, d: Array, G: sp.csr_array, R: sp.csr_array) -> None:
        self._x0, self._d, self._G, self._R = x0, d, G, R
        self._turned = sp.csr_array(G.T)
        self._onto = ConeProjection(cones)

    def __call__(self, D: Array, v: Array) -> Nearest | None:
        """Project v, shape (n,); None for weights that differ, and numbers that overflow.

        The answer depends on the arguments alone.
        """
        weight = float(D[0])
        away = v - self._x0
        if not (weight > 0 and (D == weight).all() and largest(np.abs(away)) <= LARGEST):
            return None
        slack = self._d + self._turned @ away
        kept = self._onto(slack)
        x = self._x0 + self._R @ away + self._G @ (kept - self._d)
        # No point of the set has an objective that is lower by more than this product.
        gap = abs(float(kept @ (kept - slack))) + _LAST_DIGITS * float(slack @ slack)
        return Nearest(x, weight * gap) if math.isfinite(gap) else None


def orthogonal(data: ConeData) -> Orthogonal | None:
    """The closed form of a set with semidefinite cones; None if it has other cones or has none.

    None too where rows are not orthogonal: entries of matrices stand in other constraints.

    Parameters
    ----------
    data : ConeData
        Its objective is ignored.
    """
    cones = data.cones
    if not cones.psd or cones.nonneg or cones.soc or cones.exp or cones.power or cones.power_nd:
        return None
    found = substituted(replace(data, n=data.A.shape[1]))
    if found is None:
        return None
    x0, Z, C = found.x0[: data.n], found.Z[: data.n], found.C
    # Z'Z is diagonal where every component of x is one of u, or none.
    if not C.shape[0] or int(np.diff(Z.indptr).max(initial=0)) > 1:
        return None
    squares = np.bincount(Z.indices, Z.data**2, Z.shape[1])
    if not (squares > 0).all():
        return None
    inverse = sp.dia_array((1.0 / squares[None], [0]), shape=(squares.size, squares.size))
    G = sp.csr_array(-Z @ inverse @ C.T)
    products = sp.csr_array(G.T @ G)
    unit = float(products.diagonal().mean())
    apart = products / unit - sp.eye_array(C.shape[0], format="csr")
    if largest(np.abs(apart.data)) > _ROUNDING:
        return None
    G = G / math.sqrt(unit)
    R = sp.csr_array(Z @ inverse @ Z.T - G @ G.T)
    R.data[np.abs(R.data) <= _ROUNDING] = 0.0
    R.eliminate_zeros()
    return Orthogonal(cones, x0, found.d / math.sqrt(unit), G, R)
