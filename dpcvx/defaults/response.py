r"""Response of the optimum to noise in the linear coefficient of an objective, from public facts.

Let f be the sum of all objectives, with second derivatives H at zero data. An added linear term
:math:`\langle \delta, z \rangle` moves the optimum by :math:`-H^{-1} \delta`, with a suboptimality
of :math:`\tfrac12 \delta' H^{-1} \delta` to second order. So the expected suboptimality due to
noise of covariance S in the linear coefficient is

.. math:: E = \tfrac12 \operatorname{tr}(W S), \qquad W = Z (Z' (H + C) Z)^{-1} Z'

where Z spans the directions that the equalities leave free. If the objective has no curvature, the
set limits the effect of noise. Along a component of width D, noise :math:`\delta_j` costs at most
:math:`|\delta_j| D`, and typically half of that. This is the effect of a curvature
:math:`C_{jj} = \sqrt{S_{jj}} / D`.

An active inequality with normal v and multiplier :math:`\lambda` has the force :math:`\lambda v`.
It acts as an equality, unless the noise exceeds the force. Let the force be r standard deviations
of the noise along v. In one dimension, the inequality lowers the expected cost
:math:`\tfrac12 v'Wv` by the factor :math:`2 \int_r^\infty (z^2 - r^2) \varphi(z) dz`. This assumes
that for :math:`r = 0` the inequality is active in half of all cases. So an inequality without force
has no effect, and one with a large force acts as an equality.

E has the unit of the objective and does not depend on the units of variables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Problems with more components are approximated component by component.
LARGEST = 600
# Eigenvalues up to this, relative to the diagonal, count as zero.
_FLAT = 1e-9
# Least share of its cost that noise keeps along an inequality: true data differ from the proxy
# data.
_LEFT = 0.01
# Largest r: normal densities vanish beyond it.
_FAR = 40.0


@dataclass(frozen=True, eq=False)
class Response:
    """Response of the joint problem to noise in one agent's linear coefficient.

    Attributes
    ----------
    hessian : csr_array, shape (N, N)
        Second derivatives H of the sum of all objectives at zero data.
    widths : ndarray, shape (N,)
        Width of the set along each component; infinite if unbounded.
    equalities : csr_array, shape (m, N)
        Rows of the equality constraints.
    place : ndarray of int, shape (n,)
        Positions of the agent's components among the N components.
    forces : csr_array, shape (k, N), or None
        Force of each inequality that is active at the optimum for public proxy data: its normal
        times its multiplier.
    """

    hessian: sp.csr_array
    widths: Array
    equalities: sp.csr_array
    place: Index
    forces: sp.csr_array | None = None

    @property
    def curvature(self) -> Array:
        """Second derivatives (diagonal of H) for the agent's components, shape (n,)."""
        return self.hessian.diagonal()[self.place]

    @property
    def bounded(self) -> bool:
        """Return whether the feasible set is bounded along each of the agent's components."""
        return bool(np.isfinite(self.widths[self.place]).all())

    @property
    def start(self) -> float:
        """Typical suboptimality of an arbitrary point of the set, over its bounded components."""
        bend = self.hessian.diagonal()
        bounded = (bend > 0) & np.isfinite(self.widths)
        # Two uniform points in an interval of width D have the mean squared distance D^2 / 6.
        return float(np.sum(bend[bounded] * self.widths[bounded] ** 2)) / 12

    @property
    def by_component(self) -> bool:
        """Return whether the response is approximated by component, without covariances."""
        return self.widths.size > LARGEST

    def gap(self, covariance: sp.csr_array) -> float:
        """Return the expected suboptimality E for noise in the agent's linear coefficient.

        Parameters
        ----------
        covariance : csr_array, shape (n, n)
            Covariance of the noise. Only its diagonal is used if `by_component`.

        Returns
        -------
        float
            Suboptimality in units of the objective. It is infinite if the noise acts along an
            unbounded direction without curvature.
        """
        if self.by_component:
            return self._by_component(covariance.diagonal())
        return _gap(*self._modes(covariance), covariance)

    def influence(self, covariance: sp.csr_array) -> Array | None:
        """Return W for the agent's components, shape (n, n), for noise of about this covariance.

        None if `by_component`. Unbounded directions without curvature have no influence in W; `gap`
        is infinite for noise along them.

        Parameters
        ----------
        covariance : csr_array, shape (n, n)
            Covariance of noise in the agent's linear coefficient.
        """
        return None if self.by_component else _influence(*self._modes(covariance))

    def both(self, covariance: sp.csr_array) -> tuple[float, Array | None]:
        """Return `gap` and `influence` for noise of a covariance, from one eigendecomposition."""
        if self.by_component:
            return self.gap(covariance), None
        modes = self._modes(covariance)
        return _gap(*modes, covariance), _influence(*modes)

    def _modes(self, covariance: sp.csr_array) -> tuple[Array, Array]:
        """Return directions that respond to noise, shape (n, k), and their curvatures, shape (k,).

        Parameters
        ----------
        covariance : csr_array, shape (n, n)
            Covariance of noise in the agent's linear coefficient.
        """
        spread = np.zeros(self.widths.size)
        spread[self.place] = covariance.diagonal()
        H = self.hessian.toarray()
        H.ravel()[:: spread.size + 1] += _limited(spread, self.widths)
        P, values = _modes(H, self.equalities.toarray(), self.widths > 0)
        if self.forces is not None:
            bent = values > _FLAT
            held, stiff = self._held(P[:, bent], values[bent], self.forces, covariance)
            P, values = np.hstack([P[:, ~bent], held]), np.append(values[~bent], stiff)
        return P[self.place], values

    def _held(
        self, P: Array, values: Array, forces: sp.csr_array, covariance: sp.csr_array
    ) -> tuple[Array, Array]:
        """Return the directions P and curvatures `values`, changed by active inequalities.

        Each inequality adds curvature along its normal, according to its force.
        """
        along = forces @ P
        # `give` is v'Wv for each force v, and `variances` the variance of the noise along v.
        give = np.sum(along * along / values, axis=1)
        along, give = along[give > 0], give[give > 0]
        moved = (along / values) @ P[self.place].T / give[:, None]
        variances = np.einsum("ij,ij->i", moved, moved @ covariance)
        more = (1 / _left(variances) - 1) / give
        stiff, turned = np.linalg.eigh(np.diag(values) + (along.T * more) @ along)
        return P @ turned, stiff

    def cost(self, slope: Array) -> float:
        """Return E for a fixed error in the agent's linear coefficient, taken as a draw of noise.

        Parameters
        ----------
        slope : ndarray, shape (n,)
            Error in the linear coefficient.
        """
        if self.by_component:  # avoid a full matrix
            return self._by_component(slope * slope)
        return self.gap(sp.csr_array(np.outer(slope, slope)))

    def _by_component(self, variances: Array) -> float:
        widths = self.widths[self.place]
        bend = self.hessian.diagonal()[self.place] + _limited(variances, widths)
        felt = (variances > 0) & (widths > 0)
        if (bend[felt] <= 0).any():
            return math.inf
        return float(np.sum(variances[felt] / bend[felt])) / 2


def _gap(P: Array, values: Array, covariance: sp.csr_array) -> float:
    """Return E for directions P with curvatures `values`; see `Response.gap`."""
    felt = np.einsum("ij,ij->j", P, covariance @ P)
    flat = values <= _FLAT
    if felt[flat].sum() > _FLAT * felt.sum():
        return math.inf
    return float(np.sum(felt[~flat] / values[~flat])) / 2


def _influence(P: Array, values: Array) -> Array:
    """Return W for directions P with curvatures `values`; see `Response.influence`."""
    P = P[:, values > _FLAT] / np.sqrt(values[values > _FLAT])
    return P @ P.T


def _limited(variances: Array, widths: Array) -> Array:
    """Return the diagonal of C, the curvature that stands for the widths of the feasible set."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((widths > 0) & (variances > 0), np.sqrt(variances) / widths, 0.0)


def _left(variances: Array) -> Array:
    """Return the factor on the cost of noise along active inequalities.

    `variances` are the variances of the noise in units of each force, so r is their root's inverse.
    """
    with np.errstate(divide="ignore"):
        r = np.minimum(1 / np.sqrt(np.maximum(variances, 0.0)), _FAR)
    part = 2 * ((1 - r * r) * norm.sf(r) + r * norm.pdf(r))
    return np.clip(part, _LEFT, 1.0)


def _modes(H: Array, A: Array, free: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return P, shape (N, k), and values with the response ``W = P diag(1 / values) P'``.

    H has the second derivatives, A the equality rows, and `free` marks components that may move.
    """
    H, A = H[np.ix_(free, free)], A[:, free]
    bend = H.diagonal()
    # Scale components so that the diagonal of H is 1, where it is positive.
    unit = 1 / np.sqrt(np.where(bend > 0, bend, 1.0))
    H, A = H * np.outer(unit, unit), A * unit
    lengths = np.linalg.norm(A, axis=1)
    A, Z = A[lengths > 0] / lengths[lengths > 0, None], np.eye(len(H))
    if A.shape[0]:
        Q, R, _ = la.qr(A.T, pivoting=True)
        Z = Q[:, int(np.sum(np.abs(np.diag(R)) > _FLAT)) :]
        H = Z.T @ H @ Z
    values, vectors = np.linalg.eigh(H) if H.size else (np.zeros(0), H)
    P = np.zeros((free.size, values.size))
    P[free] = unit[:, None] * (Z @ vectors)
    return P, values
