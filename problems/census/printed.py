r"""Figures 2, B and C as the paper has them: noise of rate 1.02^k, whatever that costs in total.

In plain arrays. Of round k = 1, 2, ..., every method adds to its new points Laplace noise of rate
:math:`\beta_k = 1.02^k`, which is of scale :math:`1 / \beta_k` in every entry:

====================  ==============================================================================
Algorithm 1           (6), D = 10 and zeta = 0.5, :math:`\Gamma / D` uniform on (0, 1)
Fixed weights         the same with :math:`\Gamma = D / 2`, as earlier methods are run
Growing penalties     Zhang, Khalili and Liu: :math:`\Gamma_i = 0.5 \cdot 1.02^k |N_i|` and
                      :math:`\rho_i = 0.5 \cdot 1.02^k`, so that every agent has a
                      :math:`D_i = 1.02^k |N_i|` of its own
Algorithm 2*          (28), :math:`\eta_k = 0.93^k`
Huang et al.          fixed averages with all neighbours, :math:`\eta_k = 0.9^k`
====================  ==============================================================================

What a round costs is :math:`d \alpha \beta_k B` in the paper, with its step size
:math:`\alpha` and B = 1/b. Replacing a record moves the gradient by :math:`2 \sqrt d / b` in l1,
so that a round costs at most :math:`2 \sqrt d \alpha \beta_k / b`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .measures import Measures
from .methods import RATE, ZETA, D
from .study import gradients

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Setting:
    """Whose records, over which network.

    Attributes
    ----------
    measures : Measures
    network : dp.networks.Network
    """

    measures: Measures
    network: dp.networks.Network

    @property
    def adjacency(self) -> Floats:
        """Ones between neighbours, shape (N, N)."""
        return np.diag(self.network.degrees) - self.network.laplacian


@dataclass(frozen=True)
class Curve:
    """A line of a figure.

    Attributes
    ----------
    name : str
    step : callable
        Of a round, and the agents' numbers of neighbours: their step sizes, shape (N,).
    advance : callable
        Of a setting, a round, the points (N, d), the multipliers (N, d) and a generator: where the
        next points are without gradients and noise, and the multipliers' weight in them.
    multipliers : bool
        Whether there are any.
    """

    name: str
    step: Callable[[int, Floats], Floats]
    advance: Callable[[Setting, int, Floats, np.random.Generator], Floats]
    multipliers: bool = False


def _mixed(own: Floats, setting: Setting, X: Floats) -> Floats:
    """Points of their own with weights `own`, the rest of the weight on the neighbours' mean."""
    degrees = np.array(setting.network.degrees)[:, None]
    return own * X + (1 - own) * (setting.adjacency @ X) / degrees


def _random(setting: Setting, k: int, X: Floats, rng: np.random.Generator) -> Floats:
    return _mixed(rng.uniform(size=X.shape), setting, X)


def _fixed(setting: Setting, k: int, X: Floats, rng: np.random.Generator) -> Floats:
    return _mixed(np.full(X.shape, 0.5), setting, X)


def _range(setting: Setting, k: int, X: Floats, rng: np.random.Generator) -> Floats:
    near = setting.adjacency + np.eye(len(X)) > 0
    low = np.array([X[row].min(axis=0) for row in near])
    high = np.array([X[row].max(axis=0) for row in near])
    return low + rng.uniform(size=X.shape) * (high - low)


def _average(setting: Setting, k: int, X: Floats, rng: np.random.Generator) -> Floats:
    return setting.network.weights @ X


ALGORITHM_1 = Curve("Algorithm 1", lambda k, n: np.full(n.size, 1 / D), _random, True)
CURVES = {
    "Figures 2 and B": (
        ALGORITHM_1,
        Curve("Fixed weights", lambda k, n: np.full(n.size, 1 / D), _fixed, True),
        Curve("Growing penalties", lambda k, n: 1 / (RATE**k * n), _fixed, True),
    ),
    "Figure C": (
        ALGORITHM_1,
        Curve("Algorithm 2*", lambda k, n: np.full(n.size, 0.93**k), _range),
        Curve("Huang et al.", lambda k, n: np.full(n.size, 0.9**k), _average),
    ),
}


@dataclass(frozen=True, eq=False)
class Trace:
    """A curve, run. Not private.

    Attributes
    ----------
    distance : ndarray, shape (K + 1, N)
        ``|x_i - x*| / d``.
    claimed, spent : float
        The total of all rounds as printed, and as it is, at delta 0.
    """

    distance: Floats
    claimed: float
    spent: float


def run(setting: Setting, curve: Curve, rounds: int, seed: int, noise: float = 1.0) -> Trace:
    """Run a curve as printed.

    Parameters
    ----------
    setting : Setting
    curve : Curve
    rounds : int
        K.
    seed : int
        Of weights and noise.
    noise : float
        Times the noise as printed.
    """
    rng = np.random.default_rng(seed)
    parts, network = setting.measures.shares.parts, setting.network
    degrees = np.array(network.degrees, dtype=float)
    size, b = setting.measures.best.size, parts[0].count
    X = lam = np.zeros((len(parts), size))
    path, sizes = [X], []
    for k in range(1, rounds + 1):
        alpha = curve.step(k, degrees)
        beta = RATE**k
        X = (
            curve.advance(setting, k, X, rng)
            - alpha[:, None] * (gradients(parts, X) - lam)
            + noise * rng.laplace(scale=1 / beta, size=X.shape)
        )
        if curve.multipliers:
            lam = lam - ZETA * network.laplacian @ X
        path.append(X)
        sizes.append(alpha.max() * beta)
    total = float(np.sum(sizes))
    return Trace(
        setting.measures.distance(np.array(path)),
        claimed=size * total / b,
        spent=2 * math.sqrt(size) * total / b,
    )
