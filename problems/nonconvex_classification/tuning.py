r"""The search for parameters: every method in arrays, for all agents at once.

The search is the same for all methods and uses public inputs only: the model's sizes and bound, its
network, and synthetic records with seeds of their own. At every total epsilon it tries all choices
of a small grid and takes the one with the least gap, in the mean over the seeds.

Noise has the scales that plans give it: a vector's sensitivity times the noise multiplier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import dpcvx as dp

from ..labeled import Records
from .methods import GAMMA, OMEGA, Choice, Method
from .networks import matrix_of
from .study import Classification

Floats = NDArray[np.float64]
Noise = Callable[[int, float], Floats]

STEPS = (0.2, 0.1, 0.03, 0.01, 0.003)
ROUNDS = (3, 10, 30, 100)
DECAYS = (0.9, 0.97, 1.0)
REPORTS: tuple[Literal["last", "average"], ...] = ("last", "average")
# Seeds of the records that parameters are chosen with; studies count their seeds from 0.
SEEDS = (1001, 1002)
# Absolute value of an entry beyond which a run is given up as divergent.
_FAR = 1e6


@dataclass(frozen=True, eq=False)
class Arrays:
    """A problem with all agents' records and their network, as arrays.

    Attributes
    ----------
    study : Classification
        The problem.
    signed : ndarray, shape (N, m, d)
        Rows of features times labels.
    P : ndarray, shape (N, N)
        Matrix I - W of the network.
    """

    study: Classification
    signed: Floats
    P: Floats

    @classmethod
    def of(
        cls, study: Classification, parts: Sequence[Records], network: dp.networks.Network
    ) -> Arrays:
        """Stack the agents' records."""
        return cls(study, np.array([part.signed for part in parts]), matrix_of(network))

    def gradients(self, X: Floats) -> Floats:
        """Return the gradient of every f_i at row i of X, shape (N, d)."""
        odds = expit(-(self.signed @ X[:, :, None]))
        pull = (odds.transpose(0, 2, 1) @ self.signed)[:, 0] / odds.shape[1]
        return self.study.penalty.gradient(X) + self.study.ridge * X - pull

    def gap(self, X: Floats) -> float:
        """Return the gap (31) at the agents' points X, shape (N, d)."""
        total = self.gradients(X).sum(axis=0)
        return float(((X - X.mean(axis=0)) ** 2).sum() + total @ total / len(X))


def paths(
    arrays: Arrays, method: Method, choice: Choice, multiplier: float, seed: int
) -> Iterator[Floats]:
    """Yield all agents' reports of every round, shape (N, d), with the noise of a plan.

    Parameters
    ----------
    arrays : Arrays
        The problem with its records.
    method : Method
        The method.
    choice : Choice
        Its parameters.
    multiplier : float
        Noise of the first gradient over its sensitivity; 0 for none.
    seed : int
        Seed of the noise.
    """
    rng = np.random.default_rng(seed)
    shape = arrays.signed.shape[::2]

    def noise(t: int, reach: float) -> Floats:
        scale = multiplier * choice.decay**t * reach
        if scale == 0:
            return np.zeros(shape)
        if method.gaussian:
            return scale * rng.normal(size=shape)
        return np.sqrt(shape[1]) * scale * rng.laplace(size=shape)  # l1

    if method.rule == "dpp2":
        return _dpp2(arrays, choice, method.damping, noise)
    if method.rule == "tracking":
        return _tracking(arrays, choice, noise)
    return _walk(arrays, method, choice, noise)


def _dpp2(arrays: Arrays, choice: Choice, damping: float, noise: Noise) -> Iterator[Floats]:
    P, s, delta, M = arrays.P, choice.step, arrays.study.sensitivity, arrays.study.smoothness
    x = q = np.zeros(arrays.signed.shape[::2])
    reach = 0.0
    for t in range(choice.rounds):
        shown = x + noise(t, choice.ratio * reach / s)
        yield shown
        slope = arrays.gradients(x)
        Px = P @ shown
        q = q + Px / s
        pull = q + damping / s * Px
        z = slope + noise(t, delta + M * reach) + pull
        x = shown - s * (slope + pull) + s / 2 * P @ z
        reach = s * (delta + M * reach)


def _tracking(arrays: Arrays, choice: Choice, noise: Noise) -> Iterator[Floats]:
    W = np.eye(len(arrays.P)) - arrays.P
    s, delta, M = choice.step, arrays.study.sensitivity, arrays.study.smoothness
    x = np.zeros(arrays.signed.shape[::2])
    reach = 0.0
    slope = direction = arrays.gradients(x)
    far = delta
    for t in range(choice.rounds):
        shown = x + noise(t, choice.ratio * reach / s)
        yield shown
        heard = direction + noise(t, far)
        x, before, old = W @ shown - s * direction, slope, reach
        reach = s * far
        slope = arrays.gradients(x)
        direction = W @ heard + slope - before
        far = 2 * delta + M * (reach + old)


def _walk(arrays: Arrays, method: Method, choice: Choice, noise: Noise) -> Iterator[Floats]:
    """Yield the points of a method that releases them with noise and goes on from these values."""
    P, s = arrays.P, choice.step
    eta_gamma, eta_omega = 1.0, 0.0
    if method.rule == "primal-dual":
        eta_gamma, eta_omega = GAMMA, OMEGA
    x = v = np.zeros(arrays.signed.shape[::2])  # v is eta times omega times the sum of P x
    for t in range(choice.rounds):
        Px = P @ x
        step = s * arrays.gradients(x) + eta_gamma * Px + eta_omega * v
        x, v = x - step + noise(t, s * arrays.study.sensitivity), v + eta_omega * Px
        yield x


def choices(method: Method) -> list[Choice]:
    """Return the grid of parameters that are tried for a method."""
    return [
        Choice(step, rounds, decay, ratio)
        for step, rounds, decay in product(STEPS, ROUNDS, (1.0,) if method.gaussian else DECAYS)
        # Equal noise scales as in the paper, or an equal privacy loss of a round's two releases.
        for ratio in ((1.0, step) if method.double else (1.0,))
    ]


def tuned(method: Method, epsilon: float, problems: Sequence[Arrays]) -> tuple[Choice, float]:
    """Return the choice with the least mean gap at a total epsilon, and this gap.

    Parameters
    ----------
    method : Method
        The method.
    epsilon : float
        Total epsilon.
    problems : sequence of Arrays
        Problems with records that were drawn with `SEEDS`.
    """
    scored = []
    for choice in choices(method):
        multiplier = method.multiplier(choice, epsilon)
        both = np.zeros(2)
        with np.errstate(over="ignore", invalid="ignore"):  # some diverge
            for k, arrays in enumerate(problems):
                last = total = np.zeros(arrays.signed.shape[::2])
                for last in paths(arrays, method, choice, multiplier, k):
                    total = total + last
                    if not np.abs(last).max() < _FAR:
                        break
                both += [arrays.gap(last), arrays.gap(total / choice.rounds)]
        both = np.where(np.isfinite(both), both, np.inf) / len(problems)
        scored += [
            (float(gap), replace(choice, report=report))
            for gap, report in zip(both, REPORTS, strict=True)
        ]
    gap, choice = min(scored, key=lambda own: own[0])
    return choice, gap
