r"""Figures 5 and 6 of Ryu and Kim, after their text and their code, whatever the total epsilon.

This runs, on plain arrays, Algorithm 1 with (10), or with the paper's baseline (12), step sizes
:math:`1 / \sqrt t` and 1/n, schedule (73), a box, and in every local update Gaussian noise of
variance :math:`2 \ln(1.25 / \bar\delta) (\bar\Delta / \bar\epsilon)^2`, where

* ObjG, whose noise is in the gradient, takes (31) for :math:`\bar\Delta`, measured on the agent's
  own records at its point, as the authors' code does for FEMNIST. The text takes the maximum over
  all data sets, and the code a bound for MNIST;
* OutG, whose noise is on the result, takes :math:`2 \bar\Delta / (\rho_t + 1 / \eta_t)`. Its step
  size is 1/n by the code, and ObjG's step size by the text ("OutG, text").

docs/papers/ryu_kim.md cites the code and says of every setting where it comes from.

A maximum over the records present is no sensitivity and depends on the data itself, so no curve
here has a guarantee. Totals are what all T E updates would cost if it were a sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

import dpcvx as dp
from dpcvx.privacy.accounting import Composition, classical_gaussian_multiplier, ryu_kim_claim

from .dataset import Dataset, Records
from .experiment import DELTA
from .metrics import Metrics

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Noise = Literal["ObjG", "OutG", "OutG, text"]

# Records whose scores are computed at a time, so that memory is read once for both products, and
# rows of one product: OpenBLAS multiplies so small matrices without copies, in half the time.
_BLOCK, _ROWS = 500, 100


@dataclass(frozen=True)
class Curve:
    """A curve of a figure: one method with its budget.

    Attributes
    ----------
    noise : {"ObjG", "OutG", "OutG, text"}
        Noise in the gradient, or on the result after the authors' code or after the text.
    epsilon : float or None
        Budget per local update, at `DELTA`; None for no noise.
    updates : int
        Number of local updates per round, E.
    """

    noise: Noise
    epsilon: float | None
    updates: int

    @property
    def multiplier(self) -> float:
        """The standard deviation of the noise over the sensitivity."""
        return 0.0 if self.epsilon is None else classical_gaussian_multiplier(self.epsilon, DELTA)

    def totals(self, rounds: int) -> tuple[float, float]:
        """Return the total epsilons at `DELTA` by Theorem 4.9 and by exact composition.

        Both take the measured maxima for sensitivities, which they are not.
        """
        if self.epsilon is None:
            return math.inf, math.inf
        steps = rounds * self.updates
        composed = Composition().with_gaussian(self.multiplier, steps).price(DELTA).epsilon
        return ryu_kim_claim(steps, self.epsilon, DELTA), composed

    def __str__(self) -> str:
        noise = "no noise" if self.epsilon is None else f"{self.epsilon:g} per update"
        return f"{self.noise}, E = {self.updates}, {noise}"


@dataclass(frozen=True, eq=False)
class Setting:
    """Records with their division among agents, and the parameters of all curves.

    Attributes
    ----------
    dataset : Dataset
        All records.
    parts : tuple of ndarray of int
        Indices of every agent's training records.
    box : float
        Bound u of the absolute value of W's entries.
    penalty : dp.penalties.Growing
        Schedule of the penalty rho.
    seed : int
        Seed of the noise.
    """

    dataset: Dataset
    parts: tuple[Ints, ...]
    box: float
    penalty: dp.penalties.Growing
    seed: int = 0

    @property
    def total(self) -> int:
        """The number of all agents' records, I."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, eq=False)
class State:
    """The state of a run between two rounds, all that the next round needs.

    Attributes
    ----------
    t : int
        Number of rounds that are over.
    last, sent, multipliers : ndarray, shape (P, features, classes)
        Last local points, points that agents sent, and the multipliers.
    magnitude : float
        Noise magnitude of the last round, (32).
    """

    t: int
    last: Floats
    sent: Floats
    multipliers: Floats
    magnitude: float = 0.0


def start(setting: Setting) -> State:
    """Return the state before round 1, all zeros."""
    zero = np.zeros((len(setting.parts), setting.dataset.features, setting.dataset.classes))
    return State(0, zero, zero, zero)


def penalty(setting: Setting, curve: Curve, t: int) -> float:
    """Return rho of a round; a curve without noise takes the rho of the largest budget, 1."""
    rule = setting.penalty.resolved(1.0 if curve.epsilon is None else curve.epsilon)
    return rule.next(t, None, math.nan, math.nan)


def advanced(setting: Setting, agents: tuple[Share, ...], curve: Curve, state: State) -> State:
    """Run a round. Noise depends on the seed and the round only, so that runs can be resumed.

    Parameters
    ----------
    setting : Setting
        Records and parameters.
    agents : tuple of Share
        Records of each agent, `shares` of the setting.
    curve : Curve
        The method.
    state : State
        State before the round.
    """
    t = state.t + 1
    rng = np.random.default_rng([setting.seed, t])
    rho, n = penalty(setting, curve, t), state.last[0].size
    near = float(n) if curve.noise == "OutG" else math.sqrt(t)
    w = np.mean(state.sent - state.multipliers / rho, axis=0)
    last, sent = np.empty_like(state.last), np.empty_like(state.last)
    magnitude = 0.0
    for p, own in enumerate(agents):
        x, total = state.last[p], np.zeros_like(w)
        for _ in range(curve.updates):
            gradient, change = measured(own, x, setting.total)
            noise = curve.multiplier * change * rng.normal(size=x.shape)
            if curve.noise == "ObjG":
                gradient = gradient + noise
            x = (near * x + rho * w + state.multipliers[p] - gradient) / (near + rho)
            x = np.clip(x, -setting.box, setting.box)
            if curve.noise != "ObjG":
                noise = noise * 2 / (near + rho)
                x = x + noise
            total += x
            magnitude += float(np.abs(noise).mean())
        last[p], sent[p] = x, total / curve.updates
    return State(t, last, sent, state.multipliers + rho * (w - sent), magnitude)


@dataclass(frozen=True, eq=False)
class Share:
    """The records of an agent.

    Attributes
    ----------
    records : Records
        The clipped records.
    squares : ndarray, shape (records,)
        Squared norms of the features.
    """

    records: Records
    squares: Floats


def shares(setting: Setting) -> tuple[Share, ...]:
    """Return the agents' records, clipped to the data set's bound."""
    train = setting.dataset.train
    each = [setting.dataset.clipped(train.take(part)) for part in setting.parts]
    return tuple(Share(part, np.einsum("ij,ij->i", part.features, part.features)) for part in each)


def measured(share: Share, W: Floats, total: int) -> tuple[Floats, float]:
    """Return the gradient of (30), and the maximum of (31) over the records. Not private.

    Parameters
    ----------
    share : Share
        Records of the agent.
    W : ndarray, shape (features, classes)
        Point of the gradient.
    total : int
        Number of all agents' records, I.
    """
    gradient, largest, records = np.zeros_like(W), 0.0, share.records
    scores = np.empty((_BLOCK, W.shape[1]))
    for first in range(0, records.count, _BLOCK):
        X = records.features[first : first + _BLOCK]
        labels = records.labels[first : first + _BLOCK]
        rows = [slice(k, k + _ROWS) for k in range(0, labels.size, _ROWS)]
        for some in rows:
            np.matmul(X[some], W, out=scores[: labels.size][some])
        apart = softmax(scores[: labels.size], axis=1)
        apart[np.arange(labels.size), labels] -= 1
        for some in rows:
            gradient += X[some].T @ apart[some]
        squares = share.squares[first : first + _BLOCK] * np.einsum("ij,ij->i", apart, apart)
        largest = max(largest, float(squares.max()))
    return gradient / total, math.sqrt(largest) / (total + 1)


@dataclass(frozen=True, eq=False)
class Trace:
    """The measurements of a curve's run so far. Not private.

    Attributes
    ----------
    rounds : ndarray of int
        Rounds with measurements.
    magnitude, cost, error : ndarray
        Noise magnitude (32) in `rounds`, and cost and test error of the mean of the sent points.
    """

    rounds: Ints
    magnitude: Floats
    cost: Floats
    error: Floats

    @classmethod
    def of(cls, rows: Floats) -> Trace:
        """Return a trace from rows of round, magnitude, cost and error."""
        return cls(rows[:, 0].astype(np.int64), *rows[:, 1:].T)


def scored(metrics: Metrics, state: State) -> Floats:
    """Return a row for `Trace.of`: the measurements of a state."""
    W = state.sent.mean(axis=0)
    return np.array([state.t, state.magnitude, metrics.cost(W), metrics.error(W)])


def run(setting: Setting, curve: Curve, rounds: int, begun: State | None = None) -> Iterator[State]:
    """Yield the state after every round that is missing, up to round `rounds`.

    Parameters
    ----------
    setting : Setting
        Records and parameters.
    curve : Curve
        The method.
    rounds : int
        Number of rounds, T.
    begun : State, optional
        State to resume from; the start if omitted.
    """
    agents, state = shares(setting), begun or start(setting)
    while state.t < rounds:
        state = advanced(setting, agents, curve, state)
        yield state
