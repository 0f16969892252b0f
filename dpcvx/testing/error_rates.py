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
    pick: Callable[[float, float, float], float], zero: Array, one: Array, delta: float, risk: float
) -> float:
    """The bound that `pick` computes from error rates, by the threshold that promises most."""
    half = zero.size // 2
    options = np.unique(np.concatenate([zero[:half], one[:half]]))
    thresholds = (options[1:] + options[:-1]) / 2 if options.size > 1 else options
    if thresholds.size > _THRESHOLDS:
        thresholds = np.quantile(thresholds, np.linspace(0, 1, _THRESHOLDS))

    def found(runs: slice, threshold: float, flip: bool) -> float:
        return pick(*_rates(zero[runs], one[runs], threshold, flip, risk), delta)

    first, second = slice(half), slice(half, None)
    _, t, flip = max((found(first, t, flip), t, flip) for t in thresholds for flip in (False, True))
    return max(0.0, found(second, t, flip))


def _rates(
    zero: Array, one: Array, threshold: float, flip: bool, risk: float
) -> tuple[float, float]:
    """Lower bound of the true positive rate, upper bound of the false positive rate."""
    if flip:  # the test for the other data
        zero, one, threshold = -one, -zero, -threshold
    hits, false = int((one > threshold).sum()), int((zero > threshold).sum())
    low = float(stats.beta.ppf(risk / 2, hits, one.size - hits + 1)) if hits else 0.0
    high = 1.0
    if false < zero.size:
        high = float(stats.beta.ppf(1 - risk / 2, false + 1, zero.size - false))
    return low, high


def _epsilon_of(low: float, high: float, delta: float) -> float:
    return math.log((low - delta) / high) if low > delta else -math.inf


def _mu_of(low: float, high: float, delta: float) -> float:
    return float(stats.norm.ppf(low) - stats.norm.ppf(high)) if 0 < low and high < 1 else -math.inf


def epsilon_of_gaussian(mu: float, delta: float) -> float:
    """Epsilon at `delta` of a Gaussian mechanism with parameter mu."""
    return Composition(mu2=mu**2).price(delta).epsilon if mu > 0 else 0.0
