"""Many runs at once in numpy: noisy steps on losses of records, without privacy.

As `dp.LinearizedADMM`, `dp.FederatedAveraging` and `dp.FederatedGradient` do them, with noise of
floating-point numbers. Settings are searched here, since a run of the package takes a hundred times
as long; what is found is judged by runs of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Loss:
    """Of a record with features a and label b, at the score ``s = a'x``.

    Attributes
    ----------
    value, slope : callable
        Of arrays of scores and labels.
    """

    value: Callable[[Floats, Floats], Floats]
    slope: Callable[[Floats, Floats], Floats]


LOGISTIC = Loss(lambda s, b: np.logaddexp(0, -b * s), lambda s, b: -b * expit(-b * s))
HINGE = Loss(lambda s, b: np.maximum(0, 1 - b * s), lambda s, b: -b * (b * s < 1))
SQUARE = Loss(lambda s, b: (s - b) ** 2, lambda s, b: 2 * (s - b))
ABSOLUTE = Loss(lambda s, b: np.abs(s - b), lambda s, b: np.sign(s - b))


def _nothing(x: Floats) -> Floats:
    return np.zeros_like(x)


@dataclass(frozen=True, eq=False)
class Records:
    """What agents minimize together, as arrays.

    Attributes
    ----------
    loss : Loss
        Divided by the number of an agent's records.
    parts : tuple of (features, labels)
        One per agent; shapes (m, n) and (m,).
    value, slope : callable
        Of every agent's public part, entry by entry at points ``X[..., :]``.
    box : tuple of float
        Bounds of every entry.
    terms : int
        Into how many losses with features of their own one record enters.
    """

    loss: Loss
    parts: tuple[tuple[Floats, Floats], ...]
    value: Callable[[Floats], Floats] = _nothing
    slope: Callable[[Floats], Floats] = _nothing
    box: tuple[float, float] = (-np.inf, np.inf)
    terms: int = 1

    @property
    def size(self) -> int:
        """n."""
        return self.parts[0][0].shape[1]

    def objective(self, X: Floats) -> Floats:
        """The sum of all agents' at points ``X[k]``."""
        total = len(self.parts) * self.value(X).sum(axis=-1)
        for A, b in self.parts:
            total = total + self.loss.value(X @ A.T, b).sum(axis=-1) * self.terms / len(b)
        return total

    def gradient(self, agent: int, X: Floats, clip: float) -> Floats:
        """One agent's at points ``X[k]``, every record's contribution scaled down to `clip`."""
        A, b = self.parts[agent]
        c = self.loss.slope(X @ A.T, b) * self.terms / len(b)
        if np.isfinite(clip):
            lengths = np.abs(c) * np.linalg.norm(A, axis=1)
            c = c * np.minimum(1, clip / np.maximum(lengths, 1e-300))
        return c @ A + self.slope(X)

    def projected(self, X: Floats) -> Floats:
        """Onto the box."""
        return np.clip(X, *self.box)


@dataclass(frozen=True, eq=False)
class Batch:
    """Settings of as many runs, and the noise of all.

    Attributes
    ----------
    method : {"linearized", "mean", "summed"}
    rounds : int
    steps, penalties : ndarray, shape (K, 1)
    scale : float
        Of the noise in every entry, at its largest.
    laplace : bool
    clip : float
        Infinite for none.
    ladder : tuple of (radii, parts)
        What of that scale is needed at points that are no farther from 0; empty for all of it.
    falling : bool
        Whether steps are over the root of the round.
    """

    method: str
    rounds: int
    steps: Floats
    penalties: Floats
    scale: float
    laplace: bool
    clip: float
    ladder: tuple[Floats, Floats] | tuple[()] = ()
    falling: bool = False

    @property
    def weights(self) -> Floats:
        """Of the rounds in the weighted average: the mean number of the rounds of their eighth."""
        numbers = np.arange(1, self.rounds + 1)
        parts = np.split(numbers, [self.rounds * k // 8 for k in range(1, 8)])
        return np.concatenate([np.full(part.size, part.mean()) for part in parts if part.size])

    def needed(self, X: Floats) -> Floats:
        """The scale at points ``X[k]``, shape (K, 1)."""
        if not self.ladder:
            return np.full((len(X), 1), self.scale)
        radii, parts = self.ladder
        with np.errstate(invalid="ignore"):
            found = np.searchsorted(radii, np.linalg.norm(X, axis=1))
        return self.scale * np.append(parts, 1.0)[found][:, None]

    def times(self, count: int) -> Batch:
        """Every setting so many times, one after the other."""
        return replace(
            self,
            steps=np.repeat(self.steps, count, axis=0),
            penalties=np.repeat(self.penalties, count, axis=0),
        )


def simulate(records: Records, batch: Batch, seed: int) -> dict[str, Floats]:
    """Mean of the agents' points, by reported iterate, from a start at 0: shape (K, n)."""
    rng = np.random.default_rng(seed)
    draw = rng.laplace if batch.laplace else rng.normal
    first, rho = batch.steps, batch.penalties
    shape = (first.size, records.size)
    agents = range(len(records.parts))

    def noisy(agent: int, X: Floats) -> Floats:
        return records.gradient(agent, X, batch.clip) + batch.needed(X) * draw(size=shape)

    points = [np.zeros(shape) for _ in agents]
    lams = [np.zeros(shape) for _ in agents]
    mean, total, late, rising = (np.zeros(shape) for _ in range(4))
    half, weights = batch.rounds // 2, batch.weights
    with np.errstate(over="ignore", invalid="ignore"):  # of runs that diverge
        for t in range(batch.rounds):
            eta = first / np.sqrt(t + 1) if batch.falling else first
            if batch.method == "summed":
                points = [records.projected(mean - eta * sum(noisy(k, mean) for k in agents))]
            elif batch.method == "mean":
                points = [records.projected(mean - eta * noisy(k, mean)) for k in agents]
            else:
                w = np.mean([x - lam / rho for x, lam in zip(points, lams, strict=True)], axis=0)
                for k in agents:
                    pull = points[k] / eta + rho * w + lams[k] - noisy(k, points[k])
                    points[k] = records.projected(pull / (1 / eta + rho))
                    lams[k] = lams[k] + rho * (w - points[k])
            mean = np.mean(points, axis=0)
            total += mean
            late += mean if t >= half else 0.0
            rising += weights[t] * mean
    return {
        "average": total / batch.rounds,
        "last": mean,
        "tail": late / (batch.rounds - half),
        "weighted": rising / weights.sum(),
    }
