"""What runs on two neighboring data say of epsilon: bounds from the error rates of tests."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ..privacy.accounting import Composition

Array = NDArray[np.float64]
# The most thresholds that are tried.
_THRESHOLDS = 200


def lower_bounds(zero: Array, one: Array, delta: float, risk: float) -> tuple[float, float]:
    """Lower bounds of epsilon and of the Gaussian parameter mu, each wrong with probability `risk`.

    A threshold is chosen on one half of the runs and tested on the other, where one-sided
    Clopper-Pearson bounds of both error rates hold together with probability 1 - risk.

    Parameters
    ----------
    zero, one : ndarray, shape (runs,)
        Scores of runs on either data.
    delta : float
        Where epsilon is bounded.
    risk : float
    """
    epsilon, mu = (_tested(pick, zero, one, delta, risk) for pick in (_epsilon_of, _mu_of))
    return epsilon, mu


def _tested(
    pick: Callable[[Array, Array, float], Array], zero: Array, one: Array, delta: float, risk: float
) -> float:
    """The bound that `pick` computes from error rates, by the threshold that promises most."""
    half = zero.size // 2
    options = np.unique(np.concatenate([zero[:half], one[:half]]))
    thresholds = (options[1:] + options[:-1]) / 2 if options.size > 1 else options
    if thresholds.size > _THRESHOLDS:
        thresholds = np.quantile(thresholds, np.linspace(0, 1, _THRESHOLDS))

    def bounds(runs: slice, thresholds: Array, flip: bool) -> Array:
        return pick(*_rates(zero[runs], one[runs], thresholds, flip, risk), delta)

    first, second = slice(half), slice(half, None)
    _, t, flip = max(
        (bound, t, flip)
        for flip in (False, True)
        for bound, t in zip(bounds(first, thresholds, flip), thresholds, strict=True)
    )
    return max(0.0, float(bounds(second, np.array([t]), flip)[0]))


def _rates(
    zero: Array, one: Array, thresholds: Array, flip: bool, risk: float
) -> tuple[Array, Array]:
    """Lower bounds of the true positive rates, upper bounds of the false positive rates."""
    if flip:  # the test for the other data
        zero, one, thresholds = -one, -zero, -thresholds
    # One call for all thresholds: its own checks take longer than its answers.
    hits, false = (np.array([(side > t).sum() for t in thresholds]) for side in (one, zero))
    low, high = np.zeros(hits.size), np.ones(false.size)
    some, open_ = hits > 0, false < zero.size
    low[some] = stats.beta.ppf(risk / 2, hits[some], one.size - hits[some] + 1)
    high[open_] = stats.beta.ppf(1 - risk / 2, false[open_] + 1, zero.size - false[open_])
    return low, high


def _epsilon_of(low: Array, high: Array, delta: float) -> Array:
    pairs = zip(low, high, strict=True)
    return np.array([math.log((a - delta) / b) if a > delta else -math.inf for a, b in pairs])


def _mu_of(low: Array, high: Array, delta: float) -> Array:
    mu, inside = np.full(low.size, -math.inf), (low > 0) & (high < 1)
    mu[inside] = stats.norm.ppf(low[inside]) - stats.norm.ppf(high[inside])
    return mu


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """Epsilon at `delta` of a Gaussian mechanism with parameter mu."""
    return Composition(mu2=mu**2).price(delta).epsilon if mu > 0 else 0.0
