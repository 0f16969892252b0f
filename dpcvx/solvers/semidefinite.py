r"""Exact local steps on equalities and one semidefinite cone, by Newton's method on the dual.

Equalities are substituted first. If the curvature is then a multiple w of the metric of the cone's
slacks s, a step minimizes :math:`\tfrac w2 |s - t|^2` over the s in the cone with :math:`E s = e`,
where E has orthonormal rows. The dual is convex and has one multiplier per row of E:

.. math:: \min_y \tfrac12 |\Pi_K(t + E'y)|^2 - e'y, \qquad s = \Pi_K(t + E'y)

Its gradient ``E s - e`` is strongly semismooth, so Newton's method with a line search needs few
eigendecompositions (Qi and Sun, 2006). An interior-point solver handles other curvatures. It also
handles sets without interior points, since their multipliers are unbounded.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as sla
from numpy.typing import NDArray

from ..model.canonical import ConeData
from .cones import Triangle, largest, triangles
from .libraries import LARGEST
from .splitting import Nearest
from .substitution import Substituted, substituted

Array = NDArray[np.float64]

# Limits of the method: number of entries of all rows as dense matrices, and number of rows of the
# cone.
_MOST, _ROWS = 2_000_000, 4_000
_STEPS, _HALVINGS = 30, 30
# Largest deviation of a curvature from a multiple of the cone's metric, relative to the multiple.
_APART = 1e-12
# Accuracy of an answer. Residual of the rows: relative to the largest entry below 1, absolute up to
# 1000, and relative to a thousandth of larger entries. Then the bound of the gap.
_MET, _GAP = 1e-11, 1e-12
_LAST_DIGITS = 1e-15
# Share of the predicted decrease that a step must achieve.
_DECREASE = 1e-4


class SemidefiniteStep:
    """Function of D and c: ``argmin 1/2 x'(P + diag D) x + (q + c)'x`` over the set in `data`.

    The answer depends on the arguments alone. Products are kept for the last D.

    Parameters
    ----------
    data : ConeData
        P, q and the set.
    reduced : Substituted
        All columns as affine functions of the free columns u, and the slack ``s = d - C u``.
    triangle : Triangle
        Rows of the cone.
    E : csr_array, shape (k, rows of the cone)
        Orthonormal basis, as rows, of the vectors orthogonal to the range of C.
    """

    def __init__(
        self, data: ConeData, reduced: Substituted, triangle: Triangle, E: sp.csr_array
    ) -> None:
        self._data, self._reduced, self._triangle, self._E = data, reduced, triangle, E
        self._turned = sp.csr_array(E.T)
        self._e = np.asarray(E @ reduced.d)
        self._squares = sp.csc_array(reduced.C.T @ reduced.C)
        self._factor = sla.splu(self._squares)
        self._stacked = _stacked(E, triangle)
        self._weights, self._weight = b"", 0.0
        self._linear = np.zeros(0)

    def __call__(self, D: Array, c: Array) -> Nearest | None:
        """Return the minimizer and a bound of its gap; None if none is certified.

        Parameters
        ----------
        D, c : ndarray, shape (n,)
            Diagonal added to P, and linear term added to q.
        """
        if D.tobytes() != self._weights:
            self._weights, (self._weight, self._linear) = D.tobytes(), self._weighed(D)
        weight, n, reduced = self._weight, self._data.n, self._reduced
        slope = self._linear + reduced.Z[:n].T @ c
        if not (weight > 0 and largest(np.abs(slope)) <= LARGEST * min(1.0, weight)):
            return None
        # Several t give this linear term; choose the one with t - d in the range of C.
        t = reduced.d + reduced.C @ self._factor.solve(slope / weight)
        s = self._projected(t)
        if s is None:
            return None
        slack, gap = s
        u = self._factor.solve(reduced.C.T @ (reduced.d - slack))
        x = reduced.x0[:n] + reduced.Z[:n] @ u
        return Nearest(x, weight * gap) if math.isfinite(gap) else None

    def _weighed(self, D: Array) -> tuple[float, Array]:
        """Return the curvature for D as a multiple of the cone's metric, and the linear term in u.

        The multiple is 0 if the curvature is no multiple of the metric.
        """
        data, (x0, Z, *_) = self._data, self._reduced
        curved = data.P + sp.diags_array(np.append(D, np.zeros(data.P.shape[0] - D.size)))
        M, metric = sp.csc_array(Z.T @ (curved @ Z)), self._squares
        scale = float(metric.multiply(metric).sum())
        weight = float(M.multiply(metric).sum()) / scale
        apart = M - weight * metric
        if not largest(np.abs(apart.data)) <= _APART * weight * largest(np.abs(metric.data)):
            weight = 0.0
        return weight, np.asarray(Z.T @ (curved @ x0 + data.q))

    def _projected(self, t: Array) -> tuple[Array, float] | None:
        """Return the slack in the cone nearest to t with ``E s = e``, and a bound of its gap."""
        triangle, turned = self._triangle, self._turned
        y = np.zeros(self._e.size)
        point = self._point(t, y)
        for _ in range(_STEPS):
            s, values, vectors, left, theta = point
            size = largest(np.abs(s))
            missed = float(np.linalg.norm(left))
            if missed <= _MET * max(min(1.0, size), size / 1000):
                # This satisfies the rows, and violates the cone by at most their former residual.
                inside = s - turned @ left
                price = triangle.entries((vectors * np.maximum(-values, 0.0)) @ vectors.T)
                moved = float((inside - t) @ (inside - t))
                gap = abs(float(price @ inside)) + _LAST_DIGITS * float(price @ price)
                if gap <= _GAP * (min(1.0, size * size) + moved):
                    return inside, gap
            J = self._slope(values, vectors)
            J.flat[:: y.size + 1] += min(1e-3, missed / (1.0 + size)) * 1e-3 + _LAST_DIGITS
            step = la.solve(J, -left, assume_a="pos")
            fall = float(left @ step)
            for halved in range(_HALVINGS):
                trial = self._point(t, y + 0.5**halved * step)
                lower = trial[-1] <= theta + _DECREASE * 0.5**halved * fall
                # Near the end, differences of dual values are rounding errors.
                if lower or float(np.linalg.norm(trial[3])) <= 0.5 * missed:
                    break
            else:
                return None
            y, point = y + 0.5**halved * step, trial
        return None

    def _point(self, t: Array, y: Array) -> tuple[Array, Array, Array, Array, float]:
        """Return, for multipliers y, slack, eigenvalues, eigenvectors, residual and dual value.

        Eigenvalues and eigenvectors are of the matrix before its projection onto the cone.
        """
        triangle = self._triangle
        values, vectors = np.linalg.eigh(triangle.matrix(t + self._turned @ y))
        above = np.maximum(values, 0.0)
        s = triangle.entries((vectors * above) @ vectors.T)
        return s, values, vectors, self._E @ s - self._e, float(above @ above / 2 - self._e @ y)

    def _slope(self, values: Array, vectors: Array) -> Array:
        """Return a generalized derivative of ``E s`` with respect to the multipliers."""
        above = np.maximum(values, 0.0)
        sums = np.abs(values)[:, None] + np.abs(values)
        with np.errstate(invalid="ignore"):
            share = (above[:, None] + above) / sums
        share[sums == 0] = 1.0
        order, k = values.size, self._e.size
        half = (self._stacked @ vectors).reshape(k, order, order)
        turned = (half.transpose(0, 2, 1).reshape(k * order, order) @ vectors).reshape(k, -1)
        return (turned * share.ravel()) @ turned.T


def _stacked(E: sp.csr_array, triangle: Triangle) -> sp.csr_array:
    """Return the symmetric matrices of all rows of E, stacked vertically."""
    entries, n = sp.coo_array(E), triangle.order
    i, j = triangle.i[entries.col], triangle.j[entries.col]
    values = entries.data * triangle.scale[entries.col]
    apart = i != j
    rows = np.concatenate([entries.row * n + i, (entries.row * n + j)[apart]])
    columns = np.concatenate([j, i[apart]])
    data = np.concatenate([values, values[apart]])
    return sp.csr_array((data, (rows, columns)), shape=(E.shape[0] * n, n))


def semidefinite_step(data: ConeData) -> SemidefiniteStep | None:
    """Return the step of a program with equalities and one semidefinite cone; None for others.

    Parameters
    ----------
    data : ConeData
        Program.
    """
    cones = data.cones
    others = cones.nonneg or cones.soc or cones.exp or cones.power or cones.power_nd
    if len(cones.psd) != 1 or others or data.A.shape[0] - cones.zero > _ROWS:
        return None
    if not all(np.isfinite(part).all() for part in (data.A.data, data.P.data, data.b, data.q)):
        return None
    reduced = substituted(replace(data, n=data.A.shape[1]))
    if reduced is None or not reduced.C.nnz:
        return None
    C = reduced.C
    order = cones.psd[0]
    moved = np.diff(C.indptr) > 0
    spare = C.shape[0] - C.shape[1]
    if spare < 0 or spare * order * order > _MOST:
        return None
    alone = np.flatnonzero(~moved)
    rows = sp.csr_array(
        (np.ones(alone.size), (np.arange(alone.size), alone)), shape=(alone.size, C.shape[0])
    )
    if spare > alone.size:
        used = np.flatnonzero(moved)
        across = la.qr(C[used].toarray())[0][:, C.shape[1] :].T
        more = np.zeros((across.shape[0], C.shape[0]))
        more[:, used] = across
        rows = sp.csr_array(sp.vstack([rows, sp.csr_array(more)]))
    return SemidefiniteStep(data, reduced, triangles(cones.psd, 0)[0], rows)
