"""Figures 1 to 3 as the paper has them: noise of scales u r^k, whatever that costs in total.

In plain arrays, iteration (20) and (21), measured at the agents' own points x^k as in the paper:
these stay with their agents, and uncover their last gradients where they do not. M = 5.03 is the
constant of the records that are drawn, as in the paper; for all records of that length it is six
times as large, so that the epsilons here, which take it for a bound, are too small.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .experiment import ALPHA, BETA, HETEROGENEITY, RHO, Curve, Size, Trace
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
