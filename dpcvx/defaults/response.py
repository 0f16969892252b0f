r"""Response of an optimum to noise in the slope of an objective, from public facts.

Let f be the sum of all objectives, with second derivatives H at zero data. A linear term
:math:`\langle \delta, z \rangle` on top of it moves the optimum by :math:`-H^{-1} \delta` and costs
:math:`\tfrac12 \delta' H^{-1} \delta` to second order, so that noise of covariance S in the slope
is expected to cost

.. math:: E = \tfrac12 \operatorname{tr}(W S), \qquad W = Z (Z' (H + C) Z)^{-1} Z'

where Z spans the directions that the equalities leave free. If the objective is flat, the set
limits the effect of noise: along a component of width D, noise :math:`\delta_j` costs at most
:math:`|\delta_j| D`, and half of that as a rule, as if the objective had the curvature
:math:`C_{jj} = \sqrt{S_{jj}} / D`.

An inequality that presses on the optimum with the force :math:`\lambda v` holds against noise as an
equality does, until the noise takes all of the force. In one dimension the mean of what noise costs
falls from :math:`\tfrac12 v'Wv` by the factor :math:`2 \int_r^\infty (z^2 - r^2) \varphi(z) dz`
where the force is r standard deviations of what noise does to it, if data differ such that the
inequality binds in half of all cases where :math:`r = 0`. So an inequality without force counts as
none, and one of great force as an equality.

Nothing depends on units: those of the objective multiply E, and those of variables cancel.
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
# Problems with more components are looked at component by component.
LARGEST = 600
# Eigenvalues, relative to the diagonal, that count as zero.
_FLAT = 1e-9
# Inequalities leave noise at least this part of its cost: true data are not the proxy.
_LEFT = 0.01
# Forces of more standard deviations count alike: densities vanish there.
_FAR = 40.0


@dataclass(frozen=True, eq=False)
class Response:
    """The problem of all agents, as it gives way to noise from one of them.

    Attributes
    ----------
    hessian : csr_array, shape (N, N)
        H: second derivatives of all objectives at zero data, as far as they are constant.
    widths : ndarray, shape (N,)
        Widths of the set along each component; infinite if unbounded.
    equalities : csr_array, shape (m, N)
        Rows that are constant on the set.
    place : ndarray of int, shape (n,)
        Positions of the agent's components.
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
        """Second derivatives along each of the agent's components, shape (n,)."""
        return self.hessian.diagonal()[self.place]

    @property
    def bounded(self) -> bool:
        """Return whether the set has an end along each of the agent's components."""
        return bool(np.isfinite(self.widths[self.place]).all())

    @property
    def start(self) -> float:
        """Gap of a point that lies anywhere in the set, as far as the set has an end."""
        bend = self.hessian.diagonal()
        bounded = (bend > 0) & np.isfinite(self.widths)
        # Two points, each anywhere between bounds of distance D, are D^2 / 6 apart in mean square.
        return float(np.sum(bend[bounded] * self.widths[bounded] ** 2)) / 12

    @property
    def by_component(self) -> bool:
        """Return whether the problem is looked at component by component, without covariances."""
        return self.widths.size > LARGEST

    def gap(self, covariance: sp.csr_array) -> float:
        """Return E for noise in the agent's slope.

        Parameters
        ----------
        covariance : csr_array, shape (n, n)
            Its diagonal is enough if `by_component`.

        Returns
        -------
        float
            In units of the objective; infinite where the noise pulls along a direction without
            curvature and without end.
        """
        if self.by_component:
            return self._by_component(covariance.diagonal())
        P, values = self._modes(covariance)
        felt = np.einsum("ij,ij->j", P, covariance @ P)
        flat = values <= _FLAT
        if felt[flat].sum() > _FLAT * felt.sum():
            return math.inf
        return float(np.sum(felt[~flat] / values[~flat])) / 2

    def influence(self, covariance: sp.csr_array) -> Array | None:
        """Return W, of shape (n, n), of the agent's components, for about this covariance.

        None for problems that are looked at component by component. Directions without curvature
        and without end count as if they had no influence: `gap` tells that noise pulls along them.

        Parameters
        ----------
        covariance : csr_array, shape (n, n)
            Covariance in the agent's linear coefficient.
        """
        if self.by_component:
            return None
        P, values = self._modes(covariance)
        P = P[:, values > _FLAT] / np.sqrt(values[values > _FLAT])
        return P @ P.T

    def _modes(self, covariance: sp.csr_array) -> tuple[Array, Array]:
        """Return directions that respond to noise, as the agent's components, and curvatures.

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
        """Return the modes if inequalities hold against noise of this covariance."""
        along = forces @ P
        # What a unit of each force costs, and what noise does to it: its variance.
        give = np.sum(along * along / values, axis=1)
        along, give = along[give > 0], give[give > 0]
        moved = (along / values) @ P[self.place].T / give[:, None]
        variances = np.einsum("ij,ij->i", moved, moved @ covariance)
        more = (1 / _left(variances) - 1) / give
        stiff, turned = np.linalg.eigh(np.diag(values) + (along.T * more) @ along)
        return P @ turned, stiff

    def cost(self, slope: Array) -> float:
        """Return E for a known, ignored slope of the agent, taken as one draw of noise.

        Parameters
        ----------
        slope : ndarray, shape (n,)
        """
        if self.by_component:  # no full matrix
            return self._by_component(slope * slope)
        return self.gap(sp.csr_array(np.outer(slope, slope)))

    def _by_component(self, variances: Array) -> float:
        widths = self.widths[self.place]
        bend = self.hessian.diagonal()[self.place] + _limited(variances, widths)
        felt = (variances > 0) & (widths > 0)
        if (bend[felt] <= 0).any():
            return math.inf
        return float(np.sum(variances[felt] / bend[felt])) / 2


def _limited(variances: Array, widths: Array) -> Array:
    """Return the diagonal of C."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((widths > 0) & (variances > 0), np.sqrt(variances) / widths, 0.0)


def _left(variances: Array) -> Array:
    """Return the part of its cost that noise keeps along forces of 1, by what it does to these."""
    with np.errstate(divide="ignore"):
        r = np.minimum(1 / np.sqrt(np.maximum(variances, 0.0)), _FAR)
    part = 2 * ((1 - r * r) * norm.sf(r) + r * norm.pdf(r))
    return np.clip(part, _LEFT, 1.0)


def _modes(H: Array, A: Array, free: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Return P of shape (N, k) and values: ``W = P diag(1 / values) P'`` on free components."""
    H, A = H[np.ix_(free, free)], A[:, free]
    bend = H.diagonal()
    # Units in which the diagonal is one; where nothing bends, those of the equalities.
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
