r"""Exact local steps in two cases: sums of separable functions, and one semidefinite cone.

*Sums.* A quadratic plus a separable function with kinks and bounds, or a ball:

.. math:: \min_x \tfrac12 x' (G + \operatorname{diag} D) x + (q + c)' x + \sum_j h_j(x_j)

Squares of affine arguments, l1 norms, boxes and balls have this form. Each entry is at a kink, at a
bound, or free on one side of the kink. Given these states, the minimizer solves a linear system,
whose factor is reused while the states do not change (primal-dual active sets: Hintermueller, Ito
and Kunisch, 2002). For a ball, the multiplier solves one equation in the eigenvalues.

*Equalities and one semidefinite cone*, by Newton's method on the dual. Equalities are substituted
first. If the curvature is then a multiple w of the metric of the cone's slacks s, a step minimizes
:math:`\tfrac w2 |s - t|^2` over the s in the cone with :math:`E s = e`, where E has orthonormal
rows. The dual is convex and has one multiplier per row of E:

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
from scipy.linalg.lapack import dpotrf, dpotrs

from ..model.canonical import ConeData
from .blocks import separable
from .closed_forms import Separable
from .cones import Substituted, Triangle, largest, substituted, triangles
from .libraries import LARGEST
from .splitting import Nearest

Array = NDArray[np.float64]

# Largest number of columns for which dense matrices are faster than an interior point.
_MOST = 300
_STEPS = 60
# If the active sets cycle: number of attempts, gradient steps before each attempt, and active-set
# steps in it.
_ATTEMPTS, _GRADIENTS, _FEW = 12, 25, 4
# Tolerance of the optimality conditions, relative to the sum of their terms' magnitudes.
_EXACT = 1e-10
# Smallest accepted curvature relative to the largest: below it, a solution loses its digits.
_FLAT = 1e-9


class QuadraticSum:
    """Minimizer of a quadratic plus kinked terms, as a function of weights D and slopes c.

    The minimizer depends on the arguments alone. Factors are kept for the last D.

    Parameters
    ----------
    G : ndarray, shape (n, n)
        Positive semidefinite matrix of the quadratic.
    terms : Separable
        Linear term q and the functions h_j; its p is 0.
    """

    def __init__(self, G: Array, terms: Separable) -> None:
        self._G, self._terms = G, terms
        self._weights, self._H = b"", G
        self._free, self._factor = b"", np.zeros((0, 0))
        self._sizes = np.abs(G)
        self._bent = terms.high > terms.low
        self._axes: tuple[Array, Array] | None = None
        self._steepest: Array | None = None

    def __call__(self, D: Array, c: Array, start: Array) -> Array | None:
        """Return the minimizer, shape (n,); None if none is certified.

        Parameters
        ----------
        D, c : ndarray, shape (n,)
            Diagonal added to G, and linear term added to q.
        start : ndarray, shape (n,)
            Initial point of the search.
        """
        weights = D.tobytes()
        if weights != self._weights:
            self._H = self._G + np.diag(D)
            self._sizes = np.abs(self._H)
            self._weights, self._free = weights, b""
            self._axes = self._steepest = None
        linear = self._terms.q + c
        if not np.abs(linear).max() + np.abs(start).max() + self._sizes.max() <= LARGEST:
            return None
        return self._in_ball(linear) if self._terms.balls else self._by_sides(linear, start)

    def _by_sides(self, linear: Array, x: Array) -> Array | None:
        """Return the minimizer by active sets; if they cycle, take accelerated gradient steps."""
        steep = self._H.diagonal()
        if not (steep > 0).all():
            return None
        terms = self._terms
        x = np.minimum(np.maximum(x, terms.lower), terms.upper)
        end = self._active(linear, x, steep, _STEPS)
        if end is not None:
            return end
        if self._steepest is None:
            self._steepest = np.full(steep.size, float(np.linalg.eigvalsh(self._H)[-1]))
        largest, y, momentum = self._steepest, x, 1.0
        for _ in range(_ATTEMPTS):
            for _ in range(_GRADIENTS):
                step = self._sides(linear, y, largest)[2]
                if (y - step) @ (step - x) > 0:  # restart if the momentum points uphill
                    y, momentum = x, 1.0
                    step = self._sides(linear, y, largest)[2]
                following = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
                y, x = step + (momentum - 1) / following * (step - x), step
                momentum = following
            end = self._active(linear, x, largest, _FEW)
            if end is not None:
                return end
        return None

    def _sides(
        self, linear: Array, x: Array, steep: Array
    ) -> tuple[NDArray[np.bool_], Array, Array, Array]:
        """Return each entry's state after a proximal gradient step from x, of lengths 1 / steep.

        The results are: which entries are fixed at a kink or bound, slopes of h_j at free entries,
        the end of the step, and ``H x``.
        """
        terms, products = self._terms, self._H @ x
        away = x - (products + linear) / steep
        below, above = away - terms.low / steep, away - terms.high / steep
        left = below < terms.kink
        slope = np.where(left, terms.low, terms.high)
        still = self._bent & (below >= terms.kink) & (above <= terms.kink)
        end = np.where(still, terms.kink, np.where(left, below, above))
        fixed = still | (end <= terms.lower) | (end >= terms.upper)
        return fixed, slope, np.minimum(np.maximum(end, terms.lower), terms.upper), products

    def _active(self, linear: Array, x: Array, steep: Array, steps: int) -> Array | None:
        """Return the minimizer if entries' states repeat within `steps` steps from x, else None."""
        seen: set[bytes] = set()
        before = b""
        for _ in range(steps):
            fixed, slope, held, products = self._sides(linear, x, steep)
            state = fixed.tobytes() + slope[~fixed].tobytes() + held[fixed].tobytes()
            if state == before:
                left = np.where(fixed, 0.0, products + linear + slope)
                size = self._sizes @ np.abs(x) + np.abs(linear) + np.abs(slope)
                return x if (np.abs(left) <= _EXACT * size).all() else None
            if state in seen:
                return None
            seen.add(state)
            before = state
            free = np.flatnonzero(~fixed)
            x = np.where(fixed, held, 0.0)
            if not free.size:
                continue
            factor = self._of(free, fixed)
            if factor is None:
                return None
            right = -(linear + slope + self._H @ x)[free]
            x[free] = dpotrs(factor, right, lower=1)[0]
        return None

    def _of(self, free: NDArray[np.intp], fixed: NDArray[np.bool_]) -> Array | None:
        """Return the Cholesky factor of G + diag(D) on free columns; None if nearly singular."""
        key = fixed.tobytes()
        if key != self._free:
            L, failed = dpotrf(self._H[np.ix_(free, free)], lower=1)
            pivots = np.abs(L.diagonal())
            if failed or pivots.min() ** 2 <= _FLAT * pivots.max() ** 2:
                self._free = b""
                return None
            self._free, self._factor = key, L
        return self._factor

    def _in_ball(self, linear: Array) -> Array | None:
        """Return the minimizer ``-(H + tau a^2)^-1 linear`` in the ball, for its multiplier tau."""
        ball = self._terms.balls[0][1]
        if self._axes is None:
            self._axes = np.linalg.eigh(self._H)
        values, vectors = self._axes
        if not values[0] > _FLAT * values[-1]:
            return None
        turned, radius = vectors.T @ linear, ball.r / abs(float(ball.a[0]))
        y, tau = turned / values, 0.0
        if np.linalg.norm(y) > radius:
            for _ in range(_STEPS):  # Newton on 1/|y| - 1/r: monotone and quadratic
                size = float(np.linalg.norm(y))
                if radius == 0 or abs(size - radius) <= 1e-15 * radius:
                    break
                drop = float(np.sum(y * y / (values + tau))) / size
                following = tau + (size / radius - 1.0) * size / drop
                if following == tau or not math.isfinite(following):
                    break
                tau = following
                y = turned / (values + tau)
            y = y * min(1.0, radius / float(np.linalg.norm(y)))
        return -(vectors @ y)


def quadratic_sum(data: ConeData) -> QuadraticSum | None:
    """Return a cone program as a quadratic plus a separable function; None if it is no such sum.

    In the program, arguments of squares are auxiliary columns that equalities define.

    Parameters
    ----------
    data : ConeData
        Program.
    """
    n, N = data.n, data.A.shape[1]
    cones = data.cones
    if n > _MOST or cones.psd or cones.exp or cones.power or cones.power_nd:
        return None
    if not (data.P.nnz and np.isfinite(data.A.data).all() and np.isfinite(data.P.data).all()):
        return None
    if not (np.isfinite(data.b).all() and np.isfinite(data.q).all()):
        return None
    # Every equality must define an argument: an auxiliary column that is in no other row.
    rows = sp.csr_array(data.A)
    E, rest_rows = rows[: cones.zero], rows[cones.zero :]
    arguments = sp.csr_array(E[:, n:])
    if (np.diff(arguments.indptr) != 1).any() or not arguments.data.all():
        return None
    columns = arguments.indices + n
    count = np.bincount(rows.indices, minlength=N)
    if (count[columns] != 1).any():
        return None
    others = np.setdiff1d(np.arange(N), columns)
    P = sp.csc_array(data.P)
    diagonal = P.diagonal()[columns]
    if P[columns].nnz != np.count_nonzero(diagonal) or P[:, columns].nnz != P[columns].nnz:
        return None
    F, f = -E[:, :n].toarray() / arguments.data[:, None], data.b[: cones.zero] / arguments.data
    within = sp.csc_array(P[others][:, others])
    if within[n:].nnz or within[:, n:].nnz:  # auxiliary columns with curvature of their own
        return None
    own = within[:, :n][:n].toarray() + (F.T * diagonal) @ F
    q = data.q[others]
    q[:n] += F.T @ (diagonal * f + data.q[columns])
    p = others.size
    left = sp.csc_array(sp.csc_array(rest_rows)[:, others])
    flat = sp.csc_array((p, p))
    rest = ConeData(flat, q, left, data.b[cones.zero :], replace(cones, zero=0), n)
    terms = separable(rest)
    if terms is None or (terms.balls and not _one_ball(terms)):
        return None
    if not np.isfinite(own).all() or not (terms.lower <= terms.upper).all():
        return None
    # If a kink is at a bound or beyond it, only one of its sides is feasible.
    low = np.where(terms.kink <= terms.lower, terms.high, terms.low)
    high = np.where(terms.kink >= terms.upper, terms.low, terms.high)
    terms = replace(terms, low=low, high=high)
    return QuadraticSum((own + own.T) / 2, terms)


def _one_ball(terms: Separable) -> bool:
    """Return whether the function is only the constraint that all columns lie in one ball."""
    columns, ball = terms.balls[0]
    return (
        len(terms.balls) == 1
        and columns.size == terms.q.size
        and float(np.ptp(np.abs(ball.a))) == 0.0
        and not (terms.low.any() or terms.high.any())
    )


# Limits of the method: number of entries of all rows as dense matrices, and number of rows of the
# cone.
_MOST_ENTRIES, _ROWS = 2_000_000, 4_000
_NEWTON_STEPS, _HALVINGS = 30, 30
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
        for _ in range(_NEWTON_STEPS):
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
    if spare < 0 or spare * order * order > _MOST_ENTRIES:
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
