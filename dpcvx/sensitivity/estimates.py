r"""Estimates of values that were released with noise, from public priors of them.

A statistic :math:`\theta` is released as :math:`y = \theta + \xi`, with noise of variance
:math:`\sigma^2` in every component. If the gradient is affine in the data, the objective is linear
in :math:`\theta` but for public terms. No use of y then lowers the expected objective more than the
posterior mean :math:`E[\theta \mid y]` does. With a prior :math:`\theta \sim N(\mu, C)` and normal
noise it is

.. math:: y - A (y - \mu), \qquad A = \sigma^2 (C + \sigma^2 I)^{-1},

and for other noise that is the best of all linear estimates. If C is infinite, A is zero. For
entries with Laplace noise of scale b and spread t the posterior mean is, with :math:`r = (y - \mu)
/ t`,

.. math:: \mu + \frac{t^2}{b} \tanh \tfrac12 \left[
    \log \operatorname{erfcx} \frac{t / b - r}{\sqrt 2}
    - \log \operatorname{erfcx} \frac{t / b + r}{\sqrt 2} \right].

Expectations may be wrong. No estimate moves y by more than `LIMIT` standard deviations of the
noise, so that at worst the mean square error is :math:`1 + \mathrm{LIMIT}^2` times that of y where
components are estimated one by one, or noise is normal, and never more than
:math:`(1 + \mathrm{LIMIT})^2` times. Without a spread, James and Stein's estimate is never worse
than y for normal noise, and less than four times as bad for any noise. Proxy data may have another
level than the data: y is then moved towards the multiple :math:`c \mu` that is closest to it. The
part of y along :math:`\mu` stays, and the estimate of James and Stein is applied to the rest, whose
noise is independent of that part. The same bounds hold. Proofs: docs/privacy/proofs.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.special import erfc, erfcx

Array = NDArray[np.float64]

LIMIT = 2.0
# A spread of more scales of the noise says nothing about it.
_VAGUE = 1e6
# Directions of smaller singular values, relative to the largest, are none.
_RANK = 1e-9


class Estimate(Protocol):
    """Estimate of some components of a statistic."""

    @property
    def left(self) -> Array:
        """Return the expected remaining covariance of the noise, over its variance.

        The shape is (r,) for a diagonal matrix, or (r, r).
        """
        ...

    def __call__(self, released: Array) -> Array:
        """Return the estimate from the released values, shape (r,)."""
        ...

    def remaining(self, released: Array) -> Array | float:
        """Return the standard deviation that is expected to be left of the noise, over its own."""
        ...


@dataclass(frozen=True, eq=False)
class EntrywiseMean:
    """The posterior mean of components that are independent, one by one.

    Attributes
    ----------
    mean, spread : ndarray, shape (r,)
        Spreads may be infinite, or 0.
    deviation : float
        Standard deviation of the noise.
    laplace : bool
        Whether the noise is that, or else normal.
    """

    mean: Array
    spread: Array
    deviation: float
    laplace: bool

    @property
    def left(self) -> Array:
        """Return the remaining share of the variance of normal noise; less of Laplace noise."""
        return 1 / (1 + (self.deviation / np.maximum(self.spread, self._least)) ** 2)

    @property
    def _least(self) -> float:
        return self.deviation / _VAGUE

    def __call__(self, released: Array) -> Array:
        """Return the estimate for released values; see the module."""
        away = released - self.mean
        spread = np.maximum(self.spread, self._least)
        if self.laplace:
            finite = spread < _VAGUE * self.deviation
            move = np.where(finite, away - _laplace(away, spread, self.deviation), 0.0)
        else:
            move = away / (1 + (spread / self.deviation) ** 2)
        most = LIMIT * self.deviation
        return released - np.clip(move, -most, most)

    def remaining(self, released: Array) -> Array | float:
        """Return the remaining standard deviation, equal for all released values."""
        return np.sqrt(self.left)


def _laplace(away: Array, spread: Array, deviation: float) -> Array:
    """Return the posterior mean for a mean of zero."""
    scale = deviation / math.sqrt(2)
    spread = np.minimum(spread, _VAGUE * deviation)
    ratio, position = spread / scale, away / spread
    turn = (_log_erfcx(ratio - position) - _log_erfcx(ratio + position)) / 2
    return spread * ratio * np.tanh(turn)


def _log_erfcx(x: Array) -> Array:
    """Return the logarithm of ``erfcx(x / sqrt(2))``, without overflow."""
    z = x / math.sqrt(2)
    return np.where(
        z > 0, np.log(erfcx(np.maximum(z, 0.0))), np.log(erfc(np.minimum(z, 0.0))) + z * z
    )


@dataclass(frozen=True, eq=False)
class Linear:
    r"""The best linear estimate of components with a common expectation."""

    mean: Array  # shape (r,)
    pull: Array  # shape (r, r); A, symmetric
    deviation: float  # standard deviation of the noise
    weights: Array  # shape (r, r); :math:`\Omega` with trace one: in its norm the move is limited

    @property
    def left(self) -> Array:
        """Return I - A, the share of the noise that remains in each direction."""
        return np.eye(self.mean.size) - self.pull

    def __call__(self, released: Array) -> Array:
        """Return the estimate for released values; see the module."""
        move = self.pull @ (released - self.mean)
        size = math.sqrt(max(0.0, float(move @ self.weights @ move)))
        return released - move * min(1.0, LIMIT * self.deviation / size if size > 0 else 1.0)


@dataclass(frozen=True, eq=False)
class JamesStein:
    r"""The estimate of James and Stein with a positive part.

    Attributes
    ----------
    mean : ndarray, shape (r,)
    deviation : float
        Standard deviation of the noise.
    dimension : float
        :math:`\operatorname{tr} \Omega / \lambda_{\max}(\Omega)`, above 2: r, less where some
        directions count more than others.
    fitted : bool
        Whether the target is the multiple of `mean` that is closest to what was released; Omega is
        then that of the directions at right angles to `mean`.
    """

    mean: Array
    deviation: float
    dimension: float
    fitted: bool = False

    @property
    def left(self) -> Array:
        """Return ones: no share of the noise is known to go."""
        return np.ones(self.mean.size)

    def __call__(self, released: Array) -> Array:
        """Return the estimate for released values; see the module."""
        return released - self._part(released) * self._away(released)

    def remaining(self, released: Array) -> Array | float:
        """Return the remaining standard deviation for a normal prior that fits the release."""
        return math.sqrt(1 - self._part(released))

    def _away(self, released: Array) -> Array:
        return released - self._level(released) * self.mean

    def _part(self, released: Array) -> float:
        """Return the share of the way to the target."""
        away = self._away(released) / self.deviation
        squares = float(away @ away)
        return min(1.0, (self.dimension - 2) / squares) if squares > 0 else 1.0

    def _level(self, released: Array) -> float:
        """Return the factor of the mean."""
        squares = float(self.mean @ self.mean)
        return float(released @ self.mean) / squares if self.fitted and squares > 0 else 1.0


def pull_of(K: Array, spread: Array, variance: float) -> Array:
    """Return A for a statistic K d of independent data, shape (r, r).

    Parameters
    ----------
    K : ndarray, shape (r, N)
    spread : ndarray, shape (N,)
        Infinite where nothing is expected.
    variance : float
        Variance of the noise in each component.
    """
    open_ = np.isinf(spread)
    scaled = K[:, ~open_] * spread[~open_]
    M = scaled @ scaled.T + variance * np.eye(len(K))
    N = np.eye(len(K))
    if open_.any():
        _, R = la.qr(K[:, open_].T, mode="economic")
        U, s, _ = np.linalg.svd(R.T)
        N = U[:, int(np.sum(s > _RANK * s[0])) :]
    return variance * N @ np.linalg.solve(N.T @ M @ N, N.T)


def across(back: Array, mean: Array) -> Array:
    """B on the directions of the statistic at right angles to a mean, shape (n, r)."""
    squares = float(mean @ mean)
    return back - np.outer(back @ mean, mean) / squares if squares > 0 else back


def dimension_of(back: Array, influence: Array | None) -> float:
    r"""Return the trace over largest eigenvalue of :math:`\Omega = B' W B`; 0 if it is zero.

    Parameters
    ----------
    back : ndarray, shape (n, r)
        B: from the statistic to the slope.
    influence : ndarray, shape (n, n), or None
        W; None where it is not known: all components of the statistic count alike then.
    """
    if influence is None:
        return float(back.shape[1])
    values = np.linalg.eigvalsh(_weighed(back, influence))
    return float(values.sum() / values[-1]) if values[-1] > 0 else 0.0


def weights_of(back: Array, influence: Array | None) -> Array:
    r""":math:`\Omega` with trace one; parameters as of `dimension_of`."""
    r = back.shape[1]
    if influence is not None:
        matrix = back.T @ influence @ back
        if np.trace(matrix) > 0:
            return matrix / np.trace(matrix)
    return np.eye(r) / r


def _weighed(back: Array, influence: Array) -> Array:
    """Return the smaller of the two matrices that have the eigenvalues of Omega, but for zeros."""
    if back.shape[1] <= back.shape[0]:
        return back.T @ influence @ back
    values, vectors = np.linalg.eigh(influence)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))).T @ back
    return half @ half.T
