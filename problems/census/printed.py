r"""The curves of Figures 2, B and C: noise of rate 1.02^k, whatever its total epsilon.

Methods run on plain arrays. In round k = 1, 2, ..., every method adds Laplace noise of rate
:math:`\beta_k = 1.02^k` to its new points, which has the scale :math:`1 / \beta_k` in every entry:

====================  ==============================================================================
Algorithm 1           (6), D = 10 and zeta = 0.5, :math:`\Gamma / D` uniform on (0, 1)
Fixed weights         Algorithm 1 with :math:`\Gamma = D / 2`, as earlier methods are run
Growing penalties     Zhang, Khalili and Liu: :math:`\Gamma_i = 0.5 \cdot 1.02^k |N_i|` and
                      :math:`\rho_i = 0.5 \cdot 1.02^k`, so that every agent has a
                      :math:`D_i = 1.02^k |N_i|` of its own
Algorithm 2*          (28), :math:`\eta_k = 0.93^k`
Huang et al.          fixed averages with all neighbors, :math:`\eta_k = 0.9^k`
====================  ==============================================================================

Algorithm 1 lets every agent choose a constant D_i and keep it secret. The experiment sets all of
them to 10; `secret` draws them. :math:`|N_i| \rho_i = D_i - \Gamma_i` as before, so that D_i
decides on the agent's step size alone.

By the paper, a round costs an epsilon of :math:`d \alpha \beta_k B`, with the step size
:math:`\alpha` and B = 1/b. In truth, replacing a record moves the gradient by up to
:math:`2 \sqrt d / b` in l1, so that a round costs up to :math:`2 \sqrt d \alpha \beta_k / b`.

The paper's figures also show privacy losses: the worst case by the paper, and the loss that a run's
own outputs realized, (10) of `ex_post` with B = 1/b. This is `Trace.realized`, no guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..papers import entry
from .ex_post import observed
from .measures import Measures
from .methods import HUANG_RATIO, RANGE_RATIO, RATE, ZETA, D
from .study import gradients

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Setting:
    """Records of the agents, and their network.

    Attributes
    ----------
    measures : Measures
        The agents' records, with their optimum.
    network : dp.networks.Network
        Network of the agents.
    """

    measures: Measures
    network: dp.networks.Network


@dataclass(frozen=True, eq=False)
class Around:
    """A network as full matrices, shape (N, N), and numbers of neighbors, shape (N,)."""

    laplacian: Floats
    weights: Floats
    degrees: Floats

    @classmethod
    def of(cls, network: dp.networks.Network) -> Around:
        """Build the matrices of a network."""
        return cls(network.laplacian, network.weights, np.array(network.degrees, dtype=float))

    def mixed(self, own: Floats, X: Floats) -> Floats:
        """Average agents' points X: weight `own` on an agent's own, the rest on neighbors' mean."""
        degrees = self.degrees[:, None]
        return own * X + (1 - own) * (degrees * X - self.laplacian @ X) / degrees


@dataclass(frozen=True)
class Curve:
    """A curve of a figure: one method with its step sizes and weights.

    Attributes
    ----------
    name : str
        Name of the curve in the legend.
    step : callable
        Function of the round and the agents' numbers of neighbors that returns the agents' step
        sizes, shape (N,).
    advance : callable
        Function of the network, the points (N, d) and a generator that returns the averages that
        agents step from, shape (N, d).
    multipliers : bool
        Whether the method has multipliers.
    interval : callable, optional
        Function of the network and the points that returns the least and the largest value of
        `advance`, each of shape (N, d). Without it weights are fixed.
    """

    name: str
    step: Callable[[int, Floats], Floats]
    advance: Callable[[Around, Floats, np.random.Generator], Floats]
    multipliers: bool = False
    interval: Callable[[Around, Floats], tuple[Floats, Floats]] | None = None


def _random(around: Around, X: Floats, rng: np.random.Generator) -> Floats:
    return around.mixed(rng.uniform(size=X.shape), X)


def _fixed(around: Around, X: Floats, rng: np.random.Generator) -> Floats:
    return around.mixed(np.full(X.shape, 0.5), X)


def _between(around: Around, X: Floats) -> tuple[Floats, Floats]:
    mean = around.mixed(np.zeros_like(X), X)
    return np.minimum(X, mean), np.maximum(X, mean)


def _ends(around: Around, X: Floats) -> tuple[Floats, Floats]:
    near = around.laplacian != 0
    low = np.array([X[row].min(axis=0) for row in near])
    high = np.array([X[row].max(axis=0) for row in near])
    return low, high


def _range(around: Around, X: Floats, rng: np.random.Generator) -> Floats:
    low, high = _ends(around, X)
    return low + rng.uniform(size=X.shape) * (high - low)


def _average(around: Around, X: Floats, rng: np.random.Generator) -> Floats:
    return around.weights @ X


ALGORITHM_1 = Curve("Algorithm 1", lambda k, n: np.full(n.size, 1 / D), _random, True, _between)
CURVES = {
    "Figures 2 and B": (
        ALGORITHM_1,
        Curve("Fixed weights", lambda k, n: np.full(n.size, 1 / D), _fixed, True),
        Curve("Growing penalties", lambda k, n: 1 / (RATE**k * n), _fixed, True),
    ),
    "Figure C": (
        ALGORITHM_1,
        Curve("Algorithm 2*", lambda k, n: np.full(n.size, RANGE_RATIO**k), _range, interval=_ends),
        Curve("Huang et al.", lambda k, n: np.full(n.size, HUANG_RATIO**k), _average),
    ),
}


def secret(agents: int, seed: int) -> Curve:
    """Return Algorithm 1 with a constant D_i of each agent's own, drawn uniformly.

    Parameters
    ----------
    agents : int
        Number of agents, N.
    seed : int
        Seed of the constants.
    """
    ends = entry("xiao_ye_devadas", "secret_constant_of_runs")
    constants = np.random.default_rng([seed, 2]).uniform(
        ends.number("least"), ends.number("most"), agents
    )
    return replace(ALGORITHM_1, name="Algorithm 1, secret D_i", step=lambda k, n: 1 / constants)


@dataclass(frozen=True, eq=False)
class Trace:
    """One run of a curve. Not private.

    Attributes
    ----------
    points : ndarray, shape (K + 1, N, d)
        Initial point of every agent, then the points that it sent.
    distance : ndarray, shape (K + 1, N)
        ``|x_i - x*| / d``.
    claims : ndarray, shape (K,)
        Privacy loss of the rounds so far by the paper, for the agent with the longest steps.
    realized_losses : ndarray, shape (K,)
        Mean over agents of the loss of the outputs so far, by (10) with the paper's B. It depends
        on outputs and data: no guarantee. With fixed weights it is `claims`.
    spent : float
        True total epsilon of all rounds at delta 0.
    """

    points: Floats
    distance: Floats
    claims: Floats
    realized_losses: Floats
    spent: float

    @property
    def claimed(self) -> float:
        """The privacy loss of all rounds that the paper claims."""
        return float(self.claims[-1])

    @property
    def realized(self) -> float:
        """The ex-post privacy loss of all outputs of this run; no guarantee."""
        return float(self.realized_losses[-1])


def run(
    setting: Setting, curve: Curve, rounds: int, seed: int, noise: float = 1.0, apart: float = 0.0
) -> Trace:
    """Run a curve with the printed noise.

    Parameters
    ----------
    setting : Setting
        Records and network.
    curve : Curve
        The method.
    rounds : int
        Number of rounds, K.
    seed : int
        Seed of weights and noise.
    noise : float
        Factor of the printed noise.
    apart : float
        Scale of the Laplace variables that agents begin at; they begin at 0 by default. The paper
        leaves its initial points open. If all begin at one point, the first interval has length 0.
    """
    rng = np.random.default_rng(seed)
    parts, around = setting.measures.shares.parts, Around.of(setting.network)
    size, b = setting.measures.best.size, parts[0].count
    X = lam = np.zeros((len(parts), size))
    if apart:
        X = apart * np.random.default_rng([seed, 1]).laplace(size=X.shape)
    path, sizes, realized = [X], [], []
    for k in range(1, rounds + 1):
        alpha = curve.step(k, around.degrees)
        beta = RATE**k
        before, step = X, alpha[:, None] * (gradients(parts, X) - lam)
        drawn = curve.advance(around, X, rng)
        X = drawn - step + noise * rng.laplace(scale=1 / beta, size=X.shape)
        if curve.interval is not None:
            low, high = curve.interval(around, before)
            losses = observed(
                X - (low - step), omega=high - low, beta=beta, shift=alpha[:, None] / b
            )
            realized.append(losses.total().loss / len(parts))
        if curve.multipliers:
            lam = lam - ZETA * around.laplacian @ X
        path.append(X)
        sizes.append(alpha.max() * beta)
    claims = size * np.cumsum(sizes) / b
    return Trace(
        np.array(path),
        setting.measures.distance(np.array(path)),
        claims=claims,
        realized_losses=claims if curve.interval is None else np.cumsum(realized),
        spent=2 * math.sqrt(size) * float(np.sum(sizes)) / b,
    )
