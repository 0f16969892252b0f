r"""Dual and penalty perturbation with exact steps: noise in the objective, and its privacy cost.

Zhang and Zhu (2017) put noise into the multipliers of an exact step, Zhang, Khalili and Liu (2018)
into its penalty, which grows. Both are objective perturbation: agent i sends the minimizer of

.. math:: f_i(x) - (\lambda_i + \xi)' x + \tfrac{D_k}{2} \|x - v_i\|^2

with :math:`v_i` the midpoint of its own last point and its neighbors' mean. This is a comparator,
kept apart from the methods of the package, because its guarantee rests on the form of the loss.

**Cost of a step.** Assume that every record adds :math:`\phi(l z'x) / b` to the objective with
:math:`\|z\| \le 1`, :math:`|\phi'| \le 1` and :math:`0 \le \phi'' \le c`, that the rest of the
objective, with its D term, is public and has a curvature of at least m, that there are no
constraints, and that one record is replaced. Then

* the gradient moves by g(x), :math:`\|g\| \le \Delta = 2 / b`, in the span of the two records'
  features;
* the map from :math:`\xi` to x is one to one and smooth. So x has the density of
  :math:`\xi` times the determinant of the Hessian. Without the record the Hessian is some
  :math:`A \succeq m`, so that determinants differ by a factor of at most
  :math:`1 + \kappa`, :math:`\kappa = c / (b m)`, either way;
* as a function of :math:`\xi`, g has a Lipschitz constant of at most :math:`\kappa`.

With noise of density proportional to :math:`e^{-\|\xi\| / s}`, as in Zhang and Zhu, a step is
:math:`(\Delta / s + \log(1 + \kappa), 0)`-differentially private (Chaudhuri, Monteleoni and
Sarwate, 2011). With Gaussian noise of standard deviation :math:`\sigma` the loss is

.. math:: \log(1 + \kappa) + (2 \xi' g + \|g\|^2) / (2 \sigma^2), \qquad
    \xi' g \le \xi' g_0 + \kappa \|P \xi\|^2,

with P the projection onto the span of the two features and :math:`g_0` the g of the noise without
:math:`P \xi`, which does not depend on :math:`P \xi`. The moments of the right side are known: the
Renyi divergence of order :math:`\alpha = 1 + \theta`, :math:`q = \theta \kappa < 1/2`, is at most

.. math:: \log(1 + \kappa) + \frac{\Delta^2}{2 \sigma^2} + \frac1\theta \Bigl(
    \frac{\theta^2 \Delta^2}{2 \sigma^2 (1 - 2 q)} - \log(1 - 2 q) \Bigr).

**Steps that end early.** Newton's steps stop at a gradient of norm :math:`\tau` at most, and so
within :math:`\tau / m` of the minimizer. Noise on the result hides twice that distance (approximate
minima perturbation, Iyengar et al., 2019); its loss is one hundredth of the objective noise's. One
gap remains: noise is drawn as floats here, where the package rounds to grids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
from dp_accounting.rdp import compute_epsilon
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

import dpcvx as dp

from ..labeled import Records
from .errors import CensusError
from .methods import DELTA, ZETA
from .printed import Around

Floats = NDArray[np.float64]
Noise = Literal["Gaussian", "Zhang and Zhu"]

# phi'' of the logistic loss, and the curvature of its regularizer.
BEND, REGULARISER = 0.25, 1.0
# Newton's steps stop at gradients of this norm, tau.
_STOP = 1e-9
# Privacy loss of the noise on the result, over the loss of the noise in the objective.
_SHARE = 0.01
# Orders of Renyi divergences.
_ORDERS = [1 + 0.05 * 1.1**k for k in range(80)]
# Points per epsilon of a step, in the discretized distribution of privacy losses.
_GRID = 1000
# Bounds of the search for the scale of the noise, over Delta.
_LEAST, _MOST = 1e-2, 1e4


@dataclass(frozen=True)
class Exact:
    """The parameters of exact steps and of their noise.

    Attributes
    ----------
    each : int
        Number of records per agent, b.
    D : float
        D of the first round, the smallest.
    growth : float
        Factor of D from round to round.
    noise : {"Gaussian", "Zhang and Zhu"}
        Density of the noise in the objective: Gaussian, or proportional to
        ``exp(-norm / scale)``.
    scale : float
        Scale of this noise in every round: the standard deviation of an entry, or s. 0: no noise.
    """

    each: int
    D: float
    growth: float = 1.0
    noise: Noise = "Gaussian"
    scale: float = 0.0

    def __post_init__(self) -> None:
        if not self.growth >= 1:
            raise CensusError(
                f"growth={self.growth!r} lets D fall, and all rounds are charged the constant of "
                "the first. Write a number of at least 1."
            )

    @property
    def change(self) -> float:
        """The l2 sensitivity of the gradient, Delta."""
        return 2 / self.each

    @property
    def stiffness(self) -> float:
        """The least curvature m of the public part of the objective, in the first round."""
        return REGULARISER + self.D

    @property
    def bend(self) -> float:
        """The constant kappa of the first round; it falls as D grows."""
        return BEND / (self.each * self.stiffness)

    def norm(self, size: int) -> float:
        """Return the root mean square of the norm of noise with `size` entries."""
        if self.noise == "Gaussian":
            return self.scale * math.sqrt(size)
        return self.scale * math.sqrt(size * (size + 1))

    @property
    def output_scale(self) -> float:
        """Return the scale of the noise on a step's result; its kind is `noise` too."""
        ratio = _SHARE if self.noise == "Zhang and Zhu" else math.sqrt(_SHARE)
        return 2 * _STOP / self.stiffness / self.change * self.scale / ratio

    def pure(self) -> float:
        """Epsilon of a step at delta 0, noise on the result included; infinite if Gaussian."""
        if self.noise == "Gaussian" or self.scale == 0:
            return math.inf
        return (1 + _SHARE) * self.change / self.scale + math.log1p(self.bend)

    def renyi(self, order: float) -> float:
        """Bound the Renyi divergence of a step with Gaussian noise, noise on the result included.

        Parameters
        ----------
        order : float
            Order of the divergence, above 1.

        Returns
        -------
        float
            The bound; infinite if the order is too large for it.
        """
        theta, ratio = order - 1, (self.change / self.scale) ** 2 / 2
        q = theta * self.bend
        if 2 * q >= 1:
            return math.inf
        moment = theta * ratio / (1 - 2 * q) - math.log1p(-2 * q) / theta
        return math.log1p(self.bend) + ratio + moment + _SHARE * order * ratio

    def epsilon(self, rounds: int) -> float:
        """Return every agent's worst-case total epsilon at `DELTA`.

        Parameters
        ----------
        rounds : int
            Number of rounds; each is charged like the first.
        """
        if self.scale == 0:
            return math.inf
        if self.noise == "Gaussian":
            known = {order: rounds * self.renyi(order) for order in _ORDERS}
            known = {order: total for order, total in known.items() if math.isfinite(total)}
            return float(compute_epsilon(list(known), list(known.values()), DELTA)[0])
        # Losses, plus or minus epsilon, are rounded up to the grid of this width. The margin keeps
        # rounding errors from moving epsilon one point further.
        width = self.pure() / _GRID * (1 + 1e-9)
        step = DifferentialPrivacyParameters(self.pure(), 0.0)
        total = from_privacy_parameters(step, width).self_compose(rounds)
        return min(rounds * self.pure(), float(total.get_epsilon_for_delta(DELTA)))


def calibrated(own: Exact, epsilon: float, rounds: int) -> Exact:
    """Return `own` with the scale of noise for a total of (epsilon, `DELTA`).

    Parameters
    ----------
    own : Exact
        The steps; their scale is not used.
    epsilon : float
        Total epsilon.
    rounds : int
        Number of rounds.

    Raises
    ------
    CensusError
        If no noise is enough: the loss log(1 + kappa) of the determinants does not depend on it.
    """

    def at(log: float) -> Exact:
        return Exact(own.each, own.D, own.growth, own.noise, math.exp(log) * own.change)

    low, high = math.log(_LEAST), math.log(_MOST)
    if at(high).epsilon(rounds) > epsilon:
        raise CensusError(
            f"No noise in the objective makes {rounds} rounds ({epsilon:g}, {DELTA:g})-private, "
            "because the effect of one record on the curvature alone costs more. Use fewer "
            "rounds, more records or a larger D."
        )
    found = brentq(lambda log: at(log).epsilon(rounds) - epsilon, low, high, rtol=1e-6)
    # Slightly more noise than the root, so that the total is not exceeded.
    return at(float(found) + 1e-4)


def run(
    own: Exact, parts: tuple[Records, ...], network: dp.networks.Network, rounds: int, seed: int
) -> Floats:
    """Return all agents' points after every round, from a start at 0: shape (rounds + 1, N, d).

    Parameters
    ----------
    own : Exact
        The steps and their noise.
    parts : tuple of Records
        Records of the agents, b each, with rows of norm 1 at most.
    network : dp.networks.Network
        Network of the agents.
    rounds, seed : int
        Number of rounds, and seed of the noise.

    Raises
    ------
    CensusError
        If a part has another number of records than `own.each`.
    """
    if any(part.count != own.each for part in parts):
        raise CensusError(
            f"Every agent needs {own.each} records: the noise is calibrated for this number."
        )
    return np.array(list(_points(own, parts, network, rounds, seed)))


def _points(
    own: Exact, parts: tuple[Records, ...], network: dp.networks.Network, rounds: int, seed: int
) -> Iterator[Floats]:
    rng, around = np.random.default_rng(seed), Around.of(network)
    Z = np.array([part.signed for part in parts])
    X = lam = np.zeros((len(parts), Z.shape[2]))
    yield X
    for k in range(rounds):
        D = own.D * own.growth**k
        v = around.mixed(np.full(X.shape, 0.5), X)
        pull = D * v + lam + _drawn(own.noise, own.scale, X.shape, rng)
        exact = _minimizers(Z, REGULARISER + D, pull, X)
        X = exact + _drawn(own.noise, own.output_scale, X.shape, rng)
        lam = lam - ZETA * around.laplacian @ X
        yield X


def _drawn(noise: Noise, scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Draw noise for every agent, shape (N, d)."""
    values = rng.normal(size=shape)
    if noise == "Gaussian":
        return scale * values
    # A uniform direction, and the norm of exp(-norm / scale) in d dimensions.
    norms = rng.gamma(shape[1], scale, size=(shape[0], 1))
    return norms * values / np.linalg.norm(values, axis=1, keepdims=True)


def _minimizers(Z: Floats, curvature: float, pull: Floats, start: Floats) -> Floats:
    """Minimize ``mean of log(1 + exp(-Z x)) + curvature/2 ||x||^2 - pull' x`` for N agents."""
    X, each = start, Z.shape[1]
    eye = curvature * np.eye(Z.shape[2])
    # The curvature is nearly the quadratic term's, so that a few Newton steps are enough.
    for _ in range(100):
        p = expit(-np.einsum("ijk,ik->ij", Z, X))
        gradient = curvature * X - pull - np.einsum("ij,ijk->ik", p, Z) / each
        if np.linalg.norm(gradient, axis=1).max() <= _STOP:
            return X
        H = eye + np.einsum("ij,ijk,ijl->ikl", p * (1 - p) / each, Z, Z)
        X = X - np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
    raise CensusError("Newton's method did not reach the accuracy that its noise covers.")
