r"""Figures 1 to 3 as the paper has them: noise of scales u r^k, whatever that costs in total.

In plain arrays, iteration (20) and (21), measured at the agents' own points x^k as in the paper:
these stay with their agents, and uncover their last gradients where they do not. M = 5.03 is the
constant of the records that are drawn, as in the paper; for all records of that length it is six
times as large, so that the epsilons here, which take it for a bound, are too small.

Figure 3 compares with PPDC, at the same scales. Its noise is in what leaves and not in the agents'
points: what agents hear follows x + w, and a change of the data moves their points apart by
:math:`D_{k+1} \le (1 + \eta M) D_k + \eta \delta`, so that its total is

.. math::
    \epsilon = \frac{\sqrt d \, \delta}{M u} \sum_{k=1}^{K} r^{-k} \bigl((1 + \eta M)^k - 1\bigr).

Where the noise stays in the point, as in `dpcvx.PrimalDual`, the next step begins at what has left,
and a round costs :math:`\sqrt d \, \eta \delta / (u r^k)`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from .experiment import ALPHA, BETA, HETEROGENEITY, RHO, Curve, Size, Trace
from .methods import GAMMA, OMEGA
from .networks import geometric_network
from .records import SMOOTHNESS, made_shares
from .study import classification
from .tuning import Arrays

Floats = NDArray[np.float64]


@lru_cache(maxsize=4)
def drawn(size: Size, seed: int) -> Arrays:
    """Records with M as their own constant, over the network of `experiment.setting`."""
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


def epsilons(arrays: Arrays, curve: Curve) -> tuple[float, float]:
    """Totals of all rounds, with M as the paper has it: as printed, and corrected.

    Parameters
    ----------
    arrays : Arrays
    curve : Curve
    """
    return curve.epsilons(arrays.study, SMOOTHNESS)


def points(arrays: Arrays, curve: Curve, seed: int) -> Floats:
    """x^0 to x^(K + 1) of all agents, shape (K + 2, N, d).

    Parameters
    ----------
    arrays : Arrays
    curve : Curve
    seed : int
        Of the noise.
    """
    rng = np.random.default_rng(seed)
    L = arrays.P
    G = ALPHA * np.eye(len(L)) - BETA * L
    x = q = np.zeros(arrays.signed.shape[::2])
    path = [x]
    for k in range(curve.rounds):
        scale = 0.0 if curve.silent else curve.scale * curve.decay**k
        w, e = scale * rng.laplace(size=(2, *x.shape))
        around = RHO * L @ (x + w)
        x = x + w - G @ (arrays.gradients(x) + q + around) + BETA * L @ e  # (20)
        q = q + around  # (21)
        path.append(x)
    return np.array(path)


def run(curve: Curve, size: Size, seed: int) -> Trace:
    """Run a curve as printed.

    Parameters
    ----------
    curve : Curve
    size : Size
    seed : int
        Of records and noise.

    Returns
    -------
    Trace
        With the corrected total.
    """
    arrays = drawn(size, seed)
    path = points(arrays, curve, seed)
    return Trace(epsilons(arrays, curve)[1], 0.0, np.array([arrays.gap(X) for X in path]))


def primal_dual(curve: Curve, size: Size, seed: int, *, kept: bool) -> Trace:
    """Run PPDC at the scales of a curve, with the paper's products of steps and weights.

    Parameters
    ----------
    curve : Curve
    size : Size
    seed : int
        Of records and noise.
    kept : bool
        Whether noise stays in the agents' points, as in `dpcvx.PrimalDual`; in PPDC it does not.

    Returns
    -------
    Trace
        Gaps at the agents' own points, without noise that does not stay.
    """
    arrays, rng = drawn(size, seed), np.random.default_rng(seed)
    x = v = np.zeros(arrays.signed.shape[::2])
    gaps = [arrays.gap(x)]
    for k in range(curve.rounds):
        scale = 0.0 if curve.silent else curve.scale * curve.decay**k
        w = scale * rng.laplace(size=x.shape)
        apart = arrays.P @ (x if kept else x + w)
        x = x - ALPHA * arrays.gradients(x) - GAMMA * apart - OMEGA * v + (w if kept else 0.0)
        v = v + OMEGA * apart
        gaps.append(arrays.gap(x))
    return Trace(_primal_dual_total(arrays, curve, kept), 0.0, np.array(gaps))


def _primal_dual_total(arrays: Arrays, curve: Curve, kept: bool) -> float:
    if curve.silent:
        return math.inf
    k = np.arange(curve.rounds)
    one = math.log(math.sqrt(arrays.signed.shape[2]) * arrays.study.sensitivity / curve.scale)
    if kept:
        losses = one + math.log(ALPHA) - k * math.log(curve.decay)
    else:  # the first points are public
        k = k[1:]
        growth = k * math.log1p(ALPHA * SMOOTHNESS)
        losses = one - math.log(SMOOTHNESS) + growth + np.log(-np.expm1(-growth))
        losses = losses - k * math.log(curve.decay)
    return math.exp(logsumexp(losses))
