r"""Projections onto conic sets: by a fixed number of steps, or exactly for orthogonal rows.

Douglas-Rachford splitting approximates the projection of v, in the norm with weights D, onto
``{x: b - A (x, u) in K for some u}``. In coordinates :math:`\xi = D^{1/2} x`, with the slack
``s = b - A (x, u)``, one step from :math:`\sigma = (\xi, u, s)` is

.. math::
    y &= \Pi_V(\sigma), \qquad V = \{ s = b - A (x, u) \} \\
    w &= \operatorname{prox}_h(2 y - \sigma), \qquad
        h = \tfrac12 \|\xi - D^{1/2} v\|^2 + \iota_K(s) \\
    \sigma &\leftarrow \sigma + \alpha (w - y), \qquad 0 < \alpha < 2

from a public start. The result is the mean of :math:`w_\xi` over the last steps.

*Why it moves little with v.* Run it for v and v' with :math:`\delta = D^{1/2} (v - v')`, and write
:math:`\Delta` for differences. Resolvents are firmly nonexpansive, so that
:math:`\langle \Delta\sigma - \Delta y, \Delta y \rangle \ge 0` and
:math:`\langle 2 \Delta y - \Delta\sigma - \Delta w, \Delta w \rangle
\ge \langle \Delta w_\xi - \delta, \Delta w_\xi \rangle`. Their sum, put into the square of the
update, gives

.. math::
    \|\Delta\sigma^+\|^2 \le \|\Delta\sigma\|^2 - \alpha (2 - \alpha) \|\Delta w - \Delta y\|^2
        - \alpha \|\Delta w_\xi\|^2 + \alpha \|\delta\|^2.

Both runs have one initial point. So the sum of :math:`\|\Delta w_\xi\|^2` over the first K steps is
at most :math:`K \|\delta\|^2`, and the mean over the last K - B of them moves by at most
:math:`\sqrt{K / (K - B)} \|\delta\|` (Jensen). This holds for every v and every set, and however
far the steps are from the projection. :math:`\Delta\sigma` itself never exceeds
:math:`\sqrt{\alpha K} \|\delta\|`, which bounds the numbers that are rounded.

If the cones' rows are orthogonal, as for semidefinite matrices, the projection has a closed form:

.. math:: \Pi(v) = x_0 + R (v - x_0) + G (\Pi_K(s) - d), \qquad s = d + G'(v - x_0)

where a point x that satisfies the equalities has the slack ``d + G'(x - x0)``, and G has
orthonormal columns. R projects onto directions that change neither equalities nor slacks. This is
the projection for equal weights. For unequal weights it is not, and another solver projects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import package_fault
from ..model.canonical import ConeData, Cones
from .cones import ConeProjection, largest, substituted
from .libraries import LARGEST

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# K and B. Omitting the first B steps from the mean raises the sensitivity by 3 %.
_STEPS, _SKIPPED = 512, 32
# alpha, and the weight of slacks relative to variables. Chosen for accuracy on power networks, norm
# balls and semidefinite sets; the sensitivity does not depend on them.
_RELAXATION, _SLACKS = 1.8, 2.0
# Equalities with a smaller pivot, relative to the largest, are taken for dependent and dropped.
_DEPENDENT = 1e-9
# Bound of one step's rounding errors, relative to its largest number.
_ROUNDING = 2.0**-46
# Number of passes that equilibrate rows and columns.
_PASSES = 10
# Largest number of columns: the matrices are dense, and larger ones would fill gigabytes.
_LARGEST = 3000

# Lipschitz constant of answers as functions of v, in the D-norm. The margin covers the rounding of
# the matrices, about alpha K times 1e-13.
STRETCH = (1 + 1e-9) * math.sqrt(_STEPS / (_STEPS - _SKIPPED))


def obstacle(data: ConeData) -> str | None:
    """Return the reason as text why splitting cannot project onto a set; None if it can."""
    cones = data.cones
    if cones.exp:
        return "exponential cones (cp.exp, cp.log, cp.entr, cp.logistic and the like)"
    if cones.power or cones.power_nd:
        return "power cones (cp.PowCone3D, cp.PowConeND, and atoms with approx=False)"
    if data.A.shape[1] > _LARGEST:
        return f"more than {_LARGEST} variables that conic constraints tie together"
    return None


class Splitting:
    """Approximate projection onto the constraints of `data` by a fixed number of steps.

    Parameters
    ----------
    data : ConeData
        Constraints without exponential and power cones; the objective is ignored.
    """

    def __init__(self, data: ConeData) -> None:
        why = obstacle(data)
        if why is not None:
            raise package_fault(f"Steps of a bounded reach do not exist for {why}.")
        self._data = data
        self._onto = ConeProjection(data.cones)
        self._weights, self._kept = b"", None

    def __call__(self, v: Array, D: Array, anchor: Array) -> Array:
        """Return a point near the projection of v.

        Parameters
        ----------
        v : ndarray, shape (n,)
            Point to project; the only argument that may be private.
        D : ndarray, shape (n,)
            Positive weights.
        anchor : ndarray, shape (n,)
            Point of the set close to the solution; the steps start from it.
        """
        steps = self._steps(D)
        return steps.mean(v, self._start(steps, anchor)) / steps.root

    def rounding(self, D: Array, anchor: Array, reach: float) -> float:
        """Return a bound of the rounding error of an answer, in the norm with weights D.

        Parameters
        ----------
        D, anchor : ndarray, shape (n,)
            Arguments of the call.
        reach : float
            Bound of ``||v - anchor||_D``.
        """
        steps = self._steps(D)
        start = self._start(steps, anchor)
        # sigma stays within sqrt(alpha K) reach of the steps for v = anchor, and these stay as
        # close to their limit as their initial point is.
        size = 4 * float(np.linalg.norm(start)) + math.sqrt(_RELAXATION * _STEPS) * reach
        # Errors e of single steps add at most K e to the distance of sigma, in the sum above.
        return _ROUNDING * math.sqrt(_STEPS) * STRETCH * size

    def _start(self, steps: _Steps, anchor: Array) -> Array:
        """Return the public initial sigma: a fixed point for v = anchor, or steps towards one."""
        n, N = self._data.n, self._data.A.shape[1]
        p = np.zeros(N)
        p[:n] = steps.root * anchor
        sigma = np.concatenate([p, self._onto(steps.b - steps.G @ p)])
        return sigma if n == N else steps.end(anchor, sigma)

    def _steps(self, D: Array) -> _Steps:
        """Return the iteration for weights D; the last iteration is kept."""
        if self._kept is None or self._weights != D.tobytes():
            self._weights, self._kept = D.tobytes(), _steps(self._data, self._onto, D)
        return self._kept


@dataclass(frozen=True, eq=False)
class _Steps:
    """Splitting for one D: ``V = {(p, s): s = b - G p}``, with equalities of p in R and r."""

    root: Array  # shape (n,); square roots of the weights
    G: Array  # shape (m, N)
    b: Array  # shape (m,)
    R: Array  # shape (N, N)
    r: Array  # shape (N,); the projection onto V has ``p = R (p0 + G'(b - s0)) + r``
    onto: ConeProjection  # projection onto the cones of all rows except the equalities

    def mean(self, v: Array, sigma: Array) -> Array:
        """Return the mean of w over the last steps for v from sigma, in coordinates D^(1/2) x."""
        total = np.zeros(self.root.size)
        self._run(v, sigma, total)
        return total / (_STEPS - _SKIPPED)

    def end(self, v: Array, sigma: Array) -> Array:
        """Return sigma after all steps for v."""
        return self._run(v, sigma, np.zeros(self.root.size))

    def _run(self, v: Array, sigma: Array, total: Array) -> Array:
        n, N = self.root.size, self.r.size
        target = self.root * v
        for k in range(_STEPS):
            p = self.R @ (sigma[:N] + self.G.T @ (self.b - sigma[N:])) + self.r
            y = np.concatenate([p, self.b - self.G @ p])
            w = 2 * y - sigma
            w[:n] = (w[:n] + target) / 2
            w[N:] = self.onto(w[N:])
            sigma = sigma + _RELAXATION * (w - y)
            if k >= _SKIPPED:
                total += w[:n]
        return sigma


def _steps(data: ConeData, onto: ConeProjection, D: Array) -> _Steps:
    n, zero = data.n, data.cones.zero
    root = np.sqrt(D)
    A = data.A.toarray()
    A[:, :n] /= root
    rows = np.array([size for _, size in data.cones.blocks()], dtype=np.intp)
    starts = np.concatenate([[0], np.cumsum(rows[:-1])]).astype(np.intp)
    scale = np.ones(A.shape[0])
    # All rows of a cone get one factor, so it stays a cone; columns of u may get any factor.
    for _ in range(_PASSES):
        squares = np.add.reduceat((A**2).sum(axis=1), starts) / rows
        factor = np.repeat(_inverse_root(squares), rows)
        A *= factor[:, None]
        scale *= factor
        A[:, n:] *= _inverse_root((A[zero:, n:] ** 2).sum(axis=0))
    b = scale * data.b
    F, f = A[:zero], b[:zero]
    G, b = _SLACKS * A[zero:], _SLACKS * b[zero:]
    Z, r = _solutions(F, f)
    GZ = G @ Z
    R = Z @ la.inv(np.eye(Z.shape[1]) + GZ.T @ GZ) @ Z.T
    r = r - R @ (r + G.T @ (G @ r))
    return _Steps(root, G, b, R, r, onto)


def _solutions(F: Array, f: Array) -> tuple[Array, Array]:
    """Return an orthonormal basis of ``F p = 0``, and one solution of ``F p = f``.

    Dependent rows are dropped.
    """
    if not F.size:
        return np.eye(F.shape[1]), np.zeros(F.shape[1])
    Q, T, order = la.qr(F.T, pivoting=True)
    size = np.abs(np.diag(T))
    rank = int(np.count_nonzero(size > _DEPENDENT * size[0]))
    solution = la.solve_triangular(T[:rank, :rank], f[order[:rank]], trans="T")
    return Q[:, rank:], Q[:, :rank] @ solution


def _inverse_root(squares: Array) -> Array:
    """Return equilibration factors from squared norms; 1 for rows and columns of zeros."""
    return np.where(squares > 0, squares, 1.0) ** -0.25


# Largest deviation from 1 and 0 in the products of rows that are taken for orthonormal.
_ROUNDED_ROWS = 1e-13
# Rounding error of products of slacks, from eigenvectors, relative to the slacks' squares.
_LAST_DIGITS = 1e-15


class Nearest(NamedTuple):
    """Minimizer of a local step, with a certificate.

    Attributes
    ----------
    x : ndarray, shape (n,)
        Minimizer.
    gap : float
        Bound of the objective's excess over its minimum; a projection has the objective
        ``1/2 sum_i D_i (x_i - v_i)^2``.
    """

    x: Array
    gap: float


class Orthogonal:
    """Projection onto orthogonal cone rows by the module's formula, for equal weights.

    Parameters
    ----------
    cones : Cones
        Cones of the slacks.
    x0, d : ndarray
        Vectors in the formula, of shapes (n,) and (rows of cones,).
    G : csr_array, shape (n, rows of cones)
        Matrix with orthonormal columns.
    R : csr_array, shape (n, n)
        Projection onto directions that change neither equalities nor slacks.
    """

    def __init__(self, cones: Cones, x0: Array, d: Array, G: sp.csr_array, R: sp.csr_array) -> None:
        self._x0, self._d, self._G, self._R = x0, d, G, R
        self._turned = sp.csr_array(G.T)
        self._onto = ConeProjection(cones)

    def __call__(self, D: Array, v: Array) -> Nearest | None:
        """Project v, shape (n,); None for unequal weights, and for numbers that overflow.

        The answer depends on the arguments alone.
        """
        weight = float(D[0])
        away = v - self._x0
        if not (weight > 0 and (D == weight).all() and largest(np.abs(away)) <= LARGEST):
            return None
        slack = self._d + self._turned @ away
        inside = self._onto(slack)
        x = self._x0 + self._R @ away + self._G @ (inside - self._d)
        # The objective exceeds its minimum by at most this product.
        gap = abs(float(inside @ (inside - slack))) + _LAST_DIGITS * float(slack @ slack)
        return Nearest(x, weight * gap) if math.isfinite(gap) else None


def orthogonal(data: ConeData) -> Orthogonal | None:
    """Return the closed form for a set with semidefinite cones and equalities, if it has one.

    Return None for sets with other cones or without semidefinite ones. Return None too if rows are
    not orthogonal because entries of the matrices are in further constraints.

    Parameters
    ----------
    data : ConeData
        Set; its objective is ignored.
    """
    cones = data.cones
    if not cones.psd or cones.nonneg or cones.soc or cones.exp or cones.power or cones.power_nd:
        return None
    reduced = substituted(replace(data, n=data.A.shape[1]))
    if reduced is None:
        return None
    x0, Z, C = reduced.x0[: data.n], reduced.Z[: data.n], reduced.C
    # Z'Z is diagonal if every component of x depends on at most one component of u.
    if not C.shape[0] or int(np.diff(Z.indptr).max(initial=0)) > 1:
        return None
    squares = np.bincount(Z.indices, Z.data**2, Z.shape[1])
    if not (squares > 0).all():
        return None
    inverse = sp.dia_array((1.0 / squares[None], [0]), shape=(squares.size, squares.size))
    G = sp.csr_array(-Z @ inverse @ C.T)
    products = sp.csr_array(G.T @ G)
    unit = float(products.diagonal().mean())
    if not unit > 0:  # no slack depends on u
        return None
    apart = products / unit - sp.eye_array(C.shape[0], format="csr")
    if largest(np.abs(apart.data)) > _ROUNDED_ROWS:
        return None
    G = G / math.sqrt(unit)
    R = sp.csr_array(Z @ inverse @ Z.T - G @ G.T)
    R.data[np.abs(R.data) <= _ROUNDED_ROWS] = 0.0
    R.eliminate_zeros()
    return Orthogonal(cones, x0, reduced.d / math.sqrt(unit), G, R)
