"""An attacker's view of a run, and lower bounds of epsilon from the error rates of its tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..privacy.accounting import Composition
from ..privacy.mechanism import Calibrated, Staircase
from .check import Observation

Array = NDArray[np.float64]
Ratio = Callable[[Array, Array, Array, float], float]


@dataclass(frozen=True, eq=False)
class ObserverView:
    """An attacker's view of a run, with the exact values on both of two data sets.

    Attributes
    ----------
    seen : sequence of Observation
        Releases of the attacked agent.
    zero, one : sequence of Observation
        These releases with the exact values on the first and on the second data set.
    rest : sequence of sequence of Observation
        Releases of each other agent.
    """

    seen: Sequence[Observation]
    zero: Sequence[Observation]
    one: Sequence[Observation]
    rest: Sequence[Sequence[Observation]]

    def of_coalition(self, colluders: int) -> ObserverView:
        """Return a coalition's view: of honest agents' releases, it sees only the sums.

        The last `colluders` of the other agents are members of the coalition.
        """
        honest = self.rest[: len(self.rest) - colluders]
        terms_by_release = [[terms[i] for terms in honest] for i in range(len(self.seen))]
        seen, zero, other = (
            [_summed(value, terms) for value, terms in zip(values, terms_by_release, strict=True)]
            for values in (self.seen, self.zero, self.one)
        )
        return ObserverView(seen, zero, other, self.rest[len(honest) :])

    def scores(self, ratio: Ratio) -> dict[str, float]:
        """Return the run's scores, by name; high scores indicate the second data set.

        Parameters
        ----------
        ratio : callable
            Function that returns the log-likelihood ratio of one release; see `log_ratio_of`.
        """
        noisy = [
            (o.outside, a.inside, b.inside, o.grid.scale)
            for o, a, b in zip(self.seen, self.zero, self.one, strict=True)
            if o.grid is not None
        ]
        if not noisy:
            return {"likelihood ratio": 0.0}
        scores = {"likelihood ratio": math.fsum(ratio(*values) for values in noisy)}
        errors = [(out - a) / s for out, a, _, s in noisy]
        moves = [(b - a) / s for _, a, b, s in noisy]
        if len(noisy) > 1 and len({e.size for e in errors}) == 1:
            E, M = np.array(errors), np.array(moves)
            apart = (E - E.mean(axis=0)) * (M - M.mean(axis=0))
            scores["contrast of rounds"] = float(np.sum(apart))
        for index, others in enumerate(self.rest):
            theirs = [(o.outside - o.inside) / o.grid.scale for o in others if o.grid is not None]
            if [e.size for e in theirs] == [e.size for e in errors]:
                pairs = zip(errors, theirs, moves, strict=True)
                scores[f"contrast with agent {index}"] = math.fsum(
                    float((e - f) @ m) for e, f, m in pairs
                )
        return scores


def laplace_ratio(out: Array, a: Array, b: Array, scale: float) -> float:
    """Return the log-likelihood ratio of exact value b against a, with Laplace noise.

    Parameters
    ----------
    out : ndarray
        Released value.
    a, b : ndarray
        Exact values on the first and on the second data set.
    scale : float
        Scale of the noise.
    """
    return float(np.sum(np.abs(out - a) - np.abs(out - b)) / scale)


def normal_ratio(out: Array, a: Array, b: Array, scale: float) -> float:
    """Return the log-likelihood ratio of b against a with normal noise; see `laplace_ratio`."""
    return float(np.sum((out - (a + b) / 2) * (b - a)) / scale**2)


def length_ratio(out: Array, a: Array, b: Array, scale: float) -> float:
    """Return the log-likelihood ratio of b against a, if the noise's density follows its l2 norm.

    The density is proportional to ``exp(-||y||_2 / scale)``; see `laplace_ratio`.
    """
    return float(np.linalg.norm(out - a) - np.linalg.norm(out - b)) / scale


def log_ratio_of(noise: Calibrated) -> Ratio:
    """Return the function that computes the log-likelihood ratio of a release with this noise."""
    mechanism, multiplier = noise.mechanism, noise.multiplier
    if not isinstance(mechanism, Staircase):
        return laplace_ratio if mechanism.norm == 1 else normal_ratio

    def ratio(out: Array, a: Array, b: Array, scale: float) -> float:
        """Return the log-likelihood ratio of b against a with staircase noise."""
        width, first = scale / multiplier, mechanism.first(multiplier)
        levels = [np.floor(np.abs(out - exact) / width + 1 - first) for exact in (a, b)]
        return float(np.sum(levels[0] - levels[1]) / multiplier)

    return ratio


def _summed(observation: Observation, others: Sequence[Observation]) -> Observation:
    """Return the sum of several agents' simultaneous releases, with the noise scale of the sum."""
    assert observation.grid is not None
    grid = replace(observation.grid, scale=observation.grid.scale * math.sqrt(1 + len(others)))
    return Observation(
        observation.place,
        observation.entry,
        observation.inside + sum(o.inside for o in others),
        observation.outside + sum(o.outside for o in others),
        grid,
        observation.released,
    )


# Largest number of thresholds that are tried.
_THRESHOLDS = 200


def lower_bounds(
    scores: Array, neighbor_scores: Array, delta: float, risk: float
) -> tuple[float, float]:
    """Return lower bounds of epsilon and of the Gaussian mu, each wrong with probability `risk`.

    A threshold is chosen on one half of the runs and tested on the other half. There, one-sided
    Clopper-Pearson bounds of both error rates hold together with probability 1 - risk.

    Parameters
    ----------
    scores, neighbor_scores : ndarray, shape (runs,)
        Scores of runs on the data, and on the neighbor's data.
    delta : float
        Delta of the bounded epsilon.
    risk : float
        Probability that a bound does not hold.
    """
    epsilon, mu = (
        _tested(pick, scores, neighbor_scores, delta, risk) for pick in (_epsilon_of, _mu_of)
    )
    return epsilon, mu


def _tested(
    pick: Callable[[Array, Array, float], Array],
    scores: Array,
    neighbor_scores: Array,
    delta: float,
    risk: float,
) -> float:
    """Return the bound that `pick` computes from a test's error rates, at the best threshold.

    One half of the runs chooses the threshold, and the other half bounds the error rates.
    """
    half = scores.size // 2
    options = np.unique(np.concatenate([scores[:half], neighbor_scores[:half]]))
    thresholds = (options[1:] + options[:-1]) / 2 if options.size > 1 else options
    if thresholds.size > _THRESHOLDS:
        thresholds = np.quantile(thresholds, np.linspace(0, 1, _THRESHOLDS))

    def bounds(runs: slice, thresholds: Array, flip: bool) -> Array:
        return pick(*_rates(scores[runs], neighbor_scores[runs], thresholds, flip, risk), delta)

    first, second = slice(half), slice(half, None)
    _, t, flip = max(
        (bound, t, flip)
        for flip in (False, True)
        for bound, t in zip(bounds(first, thresholds, flip), thresholds, strict=True)
    )
    return max(0.0, float(bounds(second, np.array([t]), flip)[0]))


def _rates(
    scores: Array, neighbor_scores: Array, thresholds: Array, flip: bool, risk: float
) -> tuple[Array, Array]:
    """Return lower bounds of true positive rates and upper bounds of false positive rates."""
    if flip:  # the test that low scores indicate the neighbor's data
        scores, neighbor_scores, thresholds = -neighbor_scores, -scores, -thresholds
    # One call for all thresholds, since scipy's checks take most of the time of a call.
    hits, false = (
        np.array([(side > t).sum() for t in thresholds]) for side in (neighbor_scores, scores)
    )
    low, high = np.zeros(hits.size), np.ones(false.size)
    some, open_ = hits > 0, false < scores.size
    low[some] = stats.beta.ppf(risk / 2, hits[some], neighbor_scores.size - hits[some] + 1)
    high[open_] = stats.beta.ppf(1 - risk / 2, false[open_] + 1, scores.size - false[open_])
    return low, high


def _epsilon_of(low: Array, high: Array, delta: float) -> Array:
    pairs = zip(low, high, strict=True)
    return np.array([math.log((a - delta) / b) if a > delta else -math.inf for a, b in pairs])


def _mu_of(low: Array, high: Array, delta: float) -> Array:
    mu, inside = np.full(low.size, -math.inf), (low > 0) & (high < 1)
    mu[inside] = stats.norm.ppf(low[inside]) - stats.norm.ppf(high[inside])
    return mu


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """Return epsilon at `delta` of a Gaussian mechanism with parameter mu."""
    return Composition(mu2=mu**2).price(delta).epsilon if mu > 0 else 0.0
