r"""DPP2, PPDC and DiaDSP with noise of scales u r^k, as the paper's figures have it.

This runs iteration (20) and (21) on plain arrays and measures gaps at the agents' own points x^k as
in the paper. Agents keep these points: to publish them would uncover their last gradients. M = 5.03
is the smoothness constant of the records that are drawn, as in the paper; the constant for all
records of their length is six times as large, so that the epsilons here, which use 5.03, are too
small.

`problems.papers` has Figures 1 to 3 with the paper's settings. `FIGURE_3` has the settings of DPP2
in Figure 3; PPDC has eta = 0.01, gamma = 65 and omega = 5, DiaDSP a step of 0.01. The figure's
measure is the squared norm of the agents' mean gradient, `stationarity`.

PPDC's noise is in its messages and not in the agents' points: other agents receive x + w, and a
change of the data moves the points apart by :math:`D_{k+1} \le (1 + \eta M) D_k + \eta \delta`, so
that its total is

.. math::
    \epsilon = \frac{\sqrt d \, \delta}{M u} \sum_{k=1}^{K} r^{-k} \bigl((1 + \eta M)^k - 1\bigr).

If the noise stays in the point, as in `dpcvx.PrimalDual`, the next step begins at the released
point, and a round costs :math:`\sqrt d \, \eta \delta / (u r^k)`. The paper also names a scale
u_v = 1: here v follows from the released points, and has no message of its own.

DiaDSP releases points and directions, with noise of scales :math:`u_x r^k` and :math:`u_y r^k`. A
direction contains two gradients, so that the changes :math:`D_k` of points and :math:`F_k` of
directions obey, with :math:`D_0 = 0` and :math:`F_0 = \delta`,

.. math::
    D_{k+1} = \alpha F_k, \qquad F_{k+1} \le 2 \delta + M (D_{k+1} + D_k), \qquad
    \epsilon \le \sqrt d \sum_{k=0}^{K-1} r^{-k} \Bigl(\frac{D_k}{u_x} + \frac{F_k}{u_y}\Bigr).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..papers import entry
from .experiment import BETA, FIGURE_1, HETEROGENEITY, RHO, Curve, Scales, Size, Trace
from .methods import ETA, GAMMA, OMEGA
from .networks import geometric_network
from .records import SMOOTHNESS, made_shares
from .study import classification
from .tuning import Arrays

Floats = NDArray[np.float64]


@lru_cache(maxsize=4)
def drawn(size: Size, seed: int) -> Arrays:
    """Draw records whose own smoothness constant is M, over the network of `experiment.setting`."""
    shares = made_shares(
        size.agents,
        size.each,
        size.size,
        of="these data",
        common=0.0,
        heterogeneity=HETEROGENEITY,
        seed=seed,
    )
    study = classification(size.agents, size.each, size.size, bound=shares.bound)
    network = geometric_network(size.agents, size.radius, edges=size.edges)
    return Arrays.of(study, shares.parts, network)


def epsilons(arrays: Arrays, curve: Curve, scales: Scales = FIGURE_1) -> tuple[float, float]:
    """Return the total epsilons with the paper's M: by Theorem 3, and corrected.

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay, scale and number of rounds.
    scales : Scales
        Noise scales of Figure 1 or Figure 3.

    Returns
    -------
    tuple of float
        The two totals; infinite without noise.
    """
    return curve.epsilons(arrays.study, SMOOTHNESS, scales)


def points(arrays: Arrays, curve: Curve, seed: int, scales: Scales = FIGURE_1) -> Floats:
    """Run DPP2 and return x^0 to x^(K + 1) of all agents, shape (K + 2, N, d).

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay, scale and number of rounds.
    seed : int
        Seed of the noise.
    scales : Scales
        Noise scales of Figure 1 or Figure 3.
    """
    rng = np.random.default_rng(seed)
    L = arrays.P
    G = scales.alpha * np.eye(len(L)) - BETA * L
    x = q = np.zeros(arrays.signed.shape[::2])
    path = [x]
    for k in range(curve.rounds):
        scale = 0.0 if curve.silent else curve.scale * curve.decay**k
        w, e = scale * rng.laplace(size=(2, *x.shape))
        w, e = scales.u_w * w, scales.u_e * e
        around = RHO * L @ (x + w)
        x = x + w - G @ (arrays.gradients(x) + q + around) + BETA * L @ e  # (20)
        q = q + around  # (21)
        path.append(x)
    return np.array(path)


def run(curve: Curve, size: Size, seed: int) -> Trace:
    """Run DPP2 as printed and measure the gaps at the agents' own points.

    Parameters
    ----------
    curve : Curve
        Decay, scale and number of rounds.
    size : Size
        Size of the problem.
    seed : int
        Seed of records and noise.

    Returns
    -------
    Trace
        The gaps, with the corrected total epsilon.
    """
    arrays = drawn(size, seed)
    path = points(arrays, curve, seed)
    return Trace(epsilons(arrays, curve)[1], 0.0, np.array([arrays.gap(X) for X in path]))


def primal_dual(curve: Curve, size: Size, seed: int, *, kept: bool) -> Trace:
    """Run PPDC at the noise scales of a curve, with the paper's step and weights.

    Parameters
    ----------
    curve : Curve
        Decay, scale and number of rounds.
    size : Size
        Size of the problem.
    seed : int
        Seed of records and noise.
    kept : bool
        Whether noise stays in the agents' points, as in `dpcvx.PrimalDual`; in PPDC it does not.

    Returns
    -------
    Trace
        Gaps at the agents' own points, which have no noise unless `kept`.
    """
    arrays = drawn(size, seed)
    path = primal_dual_points(arrays, curve, seed, kept=kept)
    gaps = np.array([arrays.gap(X) for X in path])
    return Trace(primal_dual_total(arrays, curve, kept=kept), 0.0, gaps)


def primal_dual_points(arrays: Arrays, curve: Curve, seed: int, *, kept: bool) -> Floats:
    """Run PPDC and return x^0 to x^(K + 1) of all agents, shape (K + 2, N, d).

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay, scale and number of rounds.
    seed : int
        Seed of the noise.
    kept : bool
        Whether noise stays in the agents' points; see `primal_dual`.
    """
    rng = np.random.default_rng(seed)
    x = v = np.zeros(arrays.signed.shape[::2])
    path = [x]
    for k in range(curve.rounds):
        scale = 0.0 if curve.silent else curve.scale * curve.decay**k
        w = scale * rng.laplace(size=x.shape)
        apart = arrays.P @ (x if kept else x + w)
        x = x - ETA * arrays.gradients(x) - GAMMA * apart - OMEGA * v + (w if kept else 0.0)
        v = v + OMEGA * apart
        path.append(x)
    return np.array(path)


_TRACKING = entry("ou_wang_liu_lu", "figure_3_DiaDSP")


def tracking_points(arrays: Arrays, curve: Curve, seed: int) -> Floats:
    """Run DiaDSP and return x^0 to x^K of all agents, shape (K + 1, N, d).

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay and number of rounds, and a scale that multiplies the paper's u_x and u_y.
    seed : int
        Seed of the noise.
    """
    rng = np.random.default_rng(seed)
    alpha, u_x, u_y = (_TRACKING.number(symbol) for symbol in ("alpha", "u_x", "u_y"))
    W = np.eye(len(arrays.P)) - arrays.P
    x = np.zeros(arrays.signed.shape[::2])
    slope = direction = arrays.gradients(x)
    path = [x]
    for k in range(curve.rounds):
        scale = 0.0 if curve.silent else curve.scale * curve.decay**k
        on_points, on_directions = scale * rng.laplace(size=(2, *x.shape))
        released = direction + u_y * on_directions
        x, before = W @ (x + u_x * on_points) - alpha * direction, slope
        slope = arrays.gradients(x)
        direction = W @ released + slope - before
        path.append(x)
    return np.array(path)


def tracking_log_total(arrays: Arrays, curve: Curve) -> float:
    """Return the logarithm of an upper bound of DiaDSP's total epsilon, see the module.

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay, scale and number of rounds, with noise.
    """
    alpha, u_x, u_y = (_TRACKING.number(symbol) for symbol in ("alpha", "u_x", "u_y"))
    delta, M = arrays.study.sensitivity, SMOOTHNESS
    points, directions, losses = 0.0, delta, []
    for k in range(curve.rounds):
        losses.append(math.log(points / u_x + directions / u_y) - k * math.log(curve.decay))
        points, old = alpha * directions, points
        directions = 2 * delta + M * (points + old)
    one = math.log(math.sqrt(arrays.signed.shape[2]) / curve.scale)
    return float(one + logsumexp(losses))


def stationarity(arrays: Arrays, X: Floats) -> float:
    """Return Figure 3's measure: the squared norm of the mean of the agents' gradients.

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    X : ndarray, shape (N, d)
        Points of the agents.
    """
    return float((arrays.gradients(X).mean(axis=0) ** 2).sum())


def primal_dual_total(arrays: Arrays, curve: Curve, *, kept: bool) -> float:
    """Return the total epsilon of PPDC over a curve's rounds, see the module.

    It is infinite without noise, and if it overflows.

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    curve : Curve
        Decay, scale and number of rounds.
    kept : bool
        Whether noise stays in the agents' points; see `primal_dual`.
    """
    if curve.silent:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.exp(primal_dual_log_total(arrays, curve, kept=kept)))


def primal_dual_log_total(arrays: Arrays, curve: Curve, *, kept: bool) -> float:
    """Return the logarithm of `primal_dual_total`, for a curve with noise."""
    k = np.arange(curve.rounds)
    one = math.log(math.sqrt(arrays.signed.shape[2]) * arrays.study.sensitivity / curve.scale)
    if kept:
        losses = one + math.log(ETA) - k * math.log(curve.decay)
    else:  # the first points are public
        k = k[1:]
        growth = k * math.log1p(ETA * SMOOTHNESS)
        losses = one - math.log(SMOOTHNESS) + growth + np.log(-np.expm1(-growth))
        losses = losses - k * math.log(curve.decay)
    return float(logsumexp(losses))
