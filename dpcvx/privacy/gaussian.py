r"""The privacy profile of Gaussian noise, rounded to the safe side.

A Gaussian mechanism of parameter mu (sensitivity over standard deviation) is (epsilon, delta)-DP
exactly for :math:`\delta = \Phi(t - x) - e^\epsilon \Phi(-t - x)` with t = mu / 2 and x = epsilon /
mu (Balle and Wang, 2018). The two terms nearly cancel where mu is small, and their logarithms are
huge where mu is large. With the Mills ratio :math:`R(s) = \Phi(-s) / \phi(s)` they are

.. math::
    \delta = \phi(x - t) \, [R(x - t) - R(x + t)],

which is evaluated here, by its Taylor series about x where t is small, and enlarged by a bound of
its rounding errors. Tests compare it with 100 digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, erfinv, log_ndtr, ndtri_exp

Array = NDArray[np.float64]

# For smaller t = mu / 2, the difference of two Mills ratios is evaluated as the first two terms of
# its Taylor series: the third is less than t^4 / 15 of the first.
_SMALL = 1e-3
# Relative rounding errors: of the terms, and per unit of the factor that magnifies them.
_PART, _UNIT = 1e-11, 8e-16
# Least relative step by which computed roots are moved to the safe side.
_STEP = 1e-14


def log_delta(epsilon: float, mu: ArrayLike) -> Array:
    """Return an upper bound of log(delta) for Gaussian noise at an epsilon.

    Parameters
    ----------
    epsilon : float
        Nonnegative number.
    mu : array_like
        Sensitivity over standard deviation, positive.

    Returns
    -------
    ndarray, shape of `mu`
    """
    mu = np.asarray(mu, dtype=np.float64)
    t, x = mu / 2, epsilon / mu
    with np.errstate(all="ignore"):  # warnings of branches that np.where discards
        series = 2 * t * _slope(x) + t**3 / 3 * np.maximum(_third(x), 0.0)
        apart = _mills(x - t) - _mills(x + t)
        log_density = -((x - t) ** 2) / 2 - math.log(2 * math.pi) / 2
        near = log_density + np.log(np.where(t < _SMALL, series, apart))
        # If x - t < -1, the first Mills ratio is large and the first term of delta is nearly one.
        far = np.log1p(-np.exp(log_ndtr(x - t)) - np.exp(log_density) * _mills(x + t))
        estimate = np.where((x - t < -1) & (t >= _SMALL), far, near)
    # The derivative of the exponent magnifies an error of x; adding 1 to it covers other errors.
    error = _PART + _UNIT * (1 + np.abs(x - t)) * (x + t)
    # The first term alone bounds delta, also if rounding leaves no digit of the difference.
    tail = log_ndtr(t - x)
    estimate = np.where(np.isnan(estimate), tail, np.minimum(estimate, tail))
    return np.minimum(estimate + error, 0.0)


def gaussian_delta(epsilon: float, mu: ArrayLike) -> Array:
    """Return an upper bound of delta for Gaussian noise at an epsilon; see `log_delta`."""
    return np.exp(log_delta(epsilon, mu)) * (1 + _UNIT)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise at a delta, rounded up by at most 1e-11.

    Parameters
    ----------
    mu : float
        Sensitivity over standard deviation, positive.
    delta : float
        Delta of the guarantee, positive.
    """
    wanted = math.log(delta)

    def excess(epsilon: float) -> float:
        return float(log_delta(epsilon, mu)) - wanted

    if excess(0.0) <= 0:
        return 0.0
    # At this epsilon, the first term of delta alone is below the wanted delta.
    high = mu * (mu / 2 + math.sqrt(2 * max(-wanted, 1.0))) * (1 + 1e-9)
    while excess(high) > 0:
        high *= 2
    upper = float(brentq(excess, 0.0, high, xtol=1e-290, rtol=1e-14))
    step = _STEP
    while excess(upper) > 0:
        upper, step = upper * (1 + step), 2 * step
    return upper


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu, sensitivity over deviation, of Gaussian noise for (epsilon, delta).

    It is rounded down by at most 1e-11.

    Parameters
    ----------
    epsilon, delta : float
        Both positive.
    """
    wanted = math.log(delta)

    def excess(log_mu: float) -> float:
        return float(log_delta(epsilon, math.exp(log_mu))) - wanted

    # Start from the root of epsilon = mu^2 / 2 + mu sqrt(2 ln(1 / delta)), the tail bound.
    tail = math.sqrt(2 * max(-wanted, 1.0))
    low = math.log(epsilon / (tail + math.sqrt(tail**2 / 2 + epsilon)))
    while excess(low) > 0:
        low -= 1
    high = low + 1
    while excess(high) <= 0:
        high += 1
    mu = math.exp(float(brentq(excess, low, high, xtol=1e-15, rtol=1e-14)))
    step = _STEP
    while excess(math.log(mu)) > 0:
        mu, step = mu * (1 - step), 2 * step
    return mu


def gaussian_sigma(epsilon: float, delta: float) -> float:
    """Return the standard deviation of Gaussian noise for (epsilon, delta) at sensitivity 1.

    It equals ``dp_accounting.get_sigma_gaussian`` bit by bit, without the slow import of that
    package. The result may be slightly too small.

    Parameters
    ----------
    epsilon, delta : float
        Both positive.
    """
    wanted = float(np.log(delta))

    def excess(sigma: float) -> float:
        t = epsilon * sigma + 1 / (2 * sigma)
        first, second = log_ndtr(1 / sigma - t), epsilon + log_ndtr(-t)
        log_difference = first + np.log1p(-np.exp(second - first)) if second <= first else -np.inf
        return log_difference - wanted

    low, high = 1e-1, 1e0
    while excess(low) < 0:
        low, high = low / 10, low
    while excess(high) > 0:
        low, high = high, high * 10
    return float(brentq(excess, low, high, xtol=1e-12))


def laplace_mu(epsilon: ArrayLike) -> Array:
    r"""Return the least mu of a Gaussian mechanism that is at most as private as Laplace noise.

    For a release of pure epsilon, :math:`\mu = 2 \Phi^{-1}(1 - e^{-\epsilon / 2} / 2)`. With F the
    distribution function of a Laplace variable of scale one, a test of level :math:`1 - F(s)` of
    the release has power :math:`1 - F(s - \epsilon)`, and of the Gaussian mechanism
    :math:`1 - \Phi(h(s) - \mu)` with :math:`h = \Phi^{-1} \circ F`. So mu has to be the largest
    :math:`h(s) - h(s - \epsilon)`. The derivative of h is even, and to the right of 0, where
    :math:`F' = 1 - F`, it is the Mills ratio at h and decreases. So the difference is largest over
    the window centered at 0, where it is :math:`2 h(\epsilon / 2)`.
    """
    half = np.asarray(epsilon, dtype=np.float64) / 2
    with np.errstate(all="ignore"):  # warnings of branches that np.where discards
        little = math.sqrt(2) * erfinv(-np.expm1(-half))
    mu = np.where(half < 1, little, -ndtri_exp(-half - math.log(2)))
    return 2 * mu * (1 + 1e-12)


def pure_mu(epsilon: ArrayLike) -> Array:
    r"""Return the least mu of a Gaussian mechanism that is at most as private as epsilon-DP.

    It is :math:`\mu = 2 \Phi^{-1}(e^\epsilon / (1 + e^\epsilon))`. The trade-off function of pure
    epsilon is linear between (0, 1), (a, a) and (1, 0) with :math:`a = 1 / (1 + e^\epsilon)`. The
    trade-off function of a Gaussian mechanism is convex, so it stays below if it does at these
    three points. At the first and the last point the two are equal; at the middle one, the
    condition is :math:`\Phi(\Phi^{-1}(1 - a) - \mu) \le a`.
    """
    with np.errstate(all="ignore"):
        log = -np.logaddexp(0.0, np.asarray(epsilon, dtype=np.float64))
    # For small epsilon, log(1 / (1 + e^epsilon)) is close to log(1/2) and loses epsilon's digits.
    small = np.sqrt(math.pi / 2) * np.asarray(epsilon, dtype=np.float64)
    return np.where(small < 1e-4, small, -2 * ndtri_exp(log)) * (1 + 1e-7)


def _mills(s: Array) -> Array:
    return math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2))


def _slope(s: Array) -> Array:
    """Return minus the derivative of the Mills ratio R, 1 - s R(s), for s >= 0."""
    # The second bound holds for all s, and is accurate where the first one loses its digits.
    return np.minimum(np.maximum(1 - s * _mills(s), 0.0) + 4e-16, 1 / (1 + s**2))


def _third(s: Array) -> Array:
    """Return minus the third derivative of the Mills ratio, for s >= 0."""
    return (2 + s**2) - (s**3 + 3 * s) * _mills(s)
