r"""Dual and penalty perturbation with exact steps: noise in what is minimized, and what it costs.

Zhang and Zhu (2017) put noise into the multipliers of an exact step, Zhang, Khalili and Liu (2018)
into its penalty, which grows. Both are objective perturbation: agent i sends the minimizer of

.. math:: f_i(x) - (\lambda_i + \xi)' x + \tfrac{D_k}{2} \|x - v_i\|^2

with :math:`v_i` half its own last point and half its neighbors' mean. This is a comparator, kept
apart from the methods of the package: its guarantee rests on the form of the loss.

**Cost of a step.** Assume that every record adds :math:`\phi(l z'x) / b` to the objective with
:math:`\|z\| \le 1`, :math:`|\phi'| \le 1` and :math:`0 \le \phi'' \le c`, that the rest of it is
public and has a curvature of at least m, D among it, that there are no constraints, and that one
record is replaced. Then

* the gradient moves by g(x), :math:`\|g\| \le \Delta = 2 / b`, in the span of two features;
* The map from :math:`\xi` to x is one to one and smooth. So x has the density of
  :math:`\xi` times the determinant of the Hessian. Taking the record out leaves A with
  :math:`A \succeq m`, so that determinants differ by at most
  :math:`1 + \kappa`, :math:`\kappa = c / (b m)`, either way;
* as a function of :math:`\xi`, g has a Lipschitz constant of at most :math:`\kappa`.

With a density proportional to :math:`e^{-\|\xi\| / s}`, Zhang and Zhu's, a step is
:math:`(\Delta / s + \log(1 + \kappa), 0)`-differentially private (Chaudhuri, Monteleoni and
Sarwate, 2011). With Gaussian noise of standard deviation :math:`\sigma` the loss is

.. math:: \log(1 + \kappa) + (2 \xi' g + \|g\|^2) / (2 \sigma^2), \qquad
    \xi' g \le \xi' g_0 + \kappa \|P \xi\|^2,

with P onto the two features and :math:`g_0` of the noise without :math:`P \xi`, which does not
depend on :math:`P \xi`. The moments of what is on the right are known: of order
:math:`\alpha = 1 + \theta` with :math:`q = \theta \kappa < 1/2`, the Renyi divergence is at most

.. math:: \log(1 + \kappa) + \frac{\Delta^2}{2 \sigma^2} + \frac1\theta \Bigl(
    \frac{\theta^2 \Delta^2}{2 \sigma^2 (1 - 2 q)} - \log(1 - 2 q) \Bigr).

**Steps that end early.** Newton's steps stop at a gradient of norm :math:`\tau` at most, and so
within :math:`\tau / m` of the minimizer. Noise on the result covers twice that (approximate minima
perturbation, Iyengar et al., 2019); it takes one hundredth of a step's budget, and is tiny. One gap
remains: noise is drawn as floats here, where the package rounds to grids.
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
# What the noise of the result may cost, over what that in the objective costs.
_SHARE = 0.01
# Of Renyi divergences.
_ORDERS = [1 + 0.05 * 1.1**k for k in range(80)]
# Points of the distribution of losses, for each step's epsilon.
_GRID = 1000
# Between what the scale of the noise, over Delta, is looked for.
_LEAST, _MOST = 1e-2, 1e4


@dataclass(frozen=True)
class Exact:
    """Minimized function of exact steps, and its noise.

    Attributes
    ----------
    each : int
        b: records of an agent.
    D : float
        D of the first round, the smallest.
    growth : float
        By which D grows from round to round.
    noise : {"Gaussian", "Zhang and Zhu"}
        Density of the noise in the objective: Gaussian, or proportional to
        ``exp(-norm / scale)``.
    scale : float
        Of it, in every round: the standard deviation of an entry, or s. 0 for no noise.
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
        """Delta, in l2."""
        return 2 / self.each

    @property
    def stiffness(self) -> float:
        """The curvature m."""
        return REGULARISER + self.D

    @property
    def bend(self) -> float:
        """The constant kappa, of the first round; it falls as D grows."""
        return BEND / (self.each * self.stiffness)

    def norm(self, size: int) -> float:
        """Root mean square of the norm of the noise in so many entries."""
        if self.noise == "Gaussian":
            return self.scale * math.sqrt(size)
        return self.scale * math.sqrt(size * (size + 1))

    @property
    def output_scale(self) -> float:
        """Return the scale of noise on a step's output, of the objective noise's kind."""
        ratio = _SHARE if self.noise == "Zhang and Zhu" else math.sqrt(_SHARE)
        return 2 * _STOP / self.stiffness / self.change * self.scale / ratio

    def pure(self) -> float:
        """Epsilon of a step at delta 0, result included; infinite with Gaussian noise."""
        if self.noise == "Gaussian" or self.scale == 0:
            return math.inf
        return (1 + _SHARE) * self.change / self.scale + math.log1p(self.bend)

    def renyi(self, order: float) -> float:
        """Renyi divergence of a step with Gaussian noise, result included.

        Parameters
        ----------
        order : float
            Above 1.

        Returns
        -------
        float
            Infinite where the order is too large for the bound.
        """
        theta, ratio = order - 1, (self.change / self.scale) ** 2 / 2
        q = theta * self.bend
        if 2 * q >= 1:
            return math.inf
        moment = theta * ratio / (1 - 2 * q) - math.log1p(-2 * q) / theta
        return math.log1p(self.bend) + ratio + moment + _SHARE * order * ratio

    def epsilon(self, rounds: int) -> float:
        """Total at `DELTA` of so many rounds for every agent, the worst case.

        Parameters
        ----------
        rounds : int
            All are charged as the first.
        """
        if self.scale == 0:
            return math.inf
        if self.noise == "Gaussian":
            known = {order: rounds * self.renyi(order) for order in _ORDERS}
            known = {order: total for order, total in known.items() if math.isfinite(total)}
            return float(compute_epsilon(list(known), list(known.values()), DELTA)[0])
        # Losses, plus or minus epsilon, are rounded up; a margin, so that it is always the second.
        width = self.pure() / _GRID * (1 + 1e-9)
        step = DifferentialPrivacyParameters(self.pure(), 0.0)
        total = from_privacy_parameters(step, width).self_compose(rounds)
        return min(rounds * self.pure(), float(total.get_epsilon_for_delta(DELTA)))


def calibrated(own: Exact, epsilon: float, rounds: int) -> Exact:
    """Return the steps with the noise for a total of (epsilon, `DELTA`).

    Parameters
    ----------
    own : Exact
        Its scale is not used.
    epsilon : float
    rounds : int

    Raises
    ------
    CensusError
        If no noise is enough: determinants cost what they cost.
    """

    def at(log: float) -> Exact:
        return Exact(own.each, own.D, own.growth, own.noise, math.exp(log) * own.change)

    low, high = math.log(_LEAST), math.log(_MOST)
    if at(high).epsilon(rounds) > epsilon:
        raise CensusError(
            f"No noise in the objective makes {rounds} rounds ({epsilon:g}, {DELTA:g})-private: "
            "what one record does to the curvature costs more. Ask for fewer rounds, more records "
            "or a larger D."
        )
    found = brentq(lambda log: at(log).epsilon(rounds) - epsilon, low, high, rtol=1e-6)
    # On the safe side of the root.
    return at(float(found) + 1e-4)


def run(
    own: Exact, parts: tuple[Records, ...], network: dp.networks.Network, rounds: int, seed: int
) -> Floats:
    """Return all agents' points after every round, from a start at 0: shape (rounds + 1, N, d).

    Parameters
    ----------
    own : Exact
    parts : tuple of Records
        Records of the agents, b each, with rows of norm 1 at most.
    network : dp.networks.Network
    rounds, seed : int

    Raises
    ------
    CensusError
        If the parts are not those that `own` is about.
    """
    if any(part.count != own.each for part in parts):
        raise CensusError(f"Every agent needs {own.each} records: the noise is made for so many.")
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
    """Noise for every agent, shape (N, d)."""
    values = rng.normal(size=shape)
    if noise == "Gaussian":
        return scale * values
    # A uniform direction, and the norm of exp(-norm / scale) in d dimensions.
    norms = rng.gamma(shape[1], scale, size=(shape[0], 1))
    return norms * values / np.linalg.norm(values, axis=1, keepdims=True)


def _minimizers(Z: Floats, curvature: float, pull: Floats, start: Floats) -> Floats:
    """Minimizers (N, d) of ``mean of log(1 + exp(-Z x)) + curvature/2 ||x||^2 - pull' x``."""
    X, each = start, Z.shape[1]
    eye = curvature * np.eye(Z.shape[2])
    # The curvature is nearly that of the square, so that a few of Newton's steps are enough.
    for _ in range(100):
        p = expit(-np.einsum("ijk,ik->ij", Z, X))
        gradient = curvature * X - pull - np.einsum("ij,ijk->ik", p, Z) / each
        if np.linalg.norm(gradient, axis=1).max() <= _STOP:
            return X
        H = eye + np.einsum("ij,ijk,ijl->ikl", p * (1 - p) / each, Z, Z)
        X = X - np.linalg.solve(H, gradient[:, :, None])[:, :, 0]
    raise CensusError("Newton's method did not reach the accuracy that its noise covers.")
