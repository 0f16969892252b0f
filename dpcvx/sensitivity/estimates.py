r"""Estimates of a statistic of private data from its noisy release and public priors.

A statistic :math:`\theta` is released as :math:`y = \theta + \xi`, with noise of variance
:math:`\sigma^2` in every component. If the gradient is affine in the data, the objective is linear
in :math:`\theta`, apart from public terms. No function of y then lowers the expected objective more
than the posterior mean :math:`E[\theta \mid y]` does. With a prior :math:`\theta \sim N(\mu, C)`
and normal noise it is

.. math:: y - A (y - \mu), \qquad A = \sigma^2 (C + \sigma^2 I)^{-1},

and for other noise this is the best of all linear estimates. If C is infinite, A is zero. For an
entry with Laplace noise of scale b and a prior standard deviation t, the posterior mean is, with
:math:`r = (y - \mu) / t`,

.. math:: \mu + \frac{t^2}{b} \tanh \tfrac12 \left[
    \log \operatorname{erfcx} \frac{t / b - r}{\sqrt 2}
    - \log \operatorname{erfcx} \frac{t / b + r}{\sqrt 2} \right].

Priors may be wrong. No estimate moves y by more than `LIMIT` standard deviations of the noise. So
at worst the mean square error is :math:`1 + \mathrm{LIMIT}^2` times the error of y if components
are estimated one by one, or noise is normal, and never more than :math:`(1 + \mathrm{LIMIT})^2`
times. Without a standard deviation in the prior, the James-Stein estimate is used. Its error is at
most the error of y for normal noise, and less than four times as large for any noise. Proxy data
may have another level than the data: y is then moved towards the multiple :math:`c \mu` that is
closest to it. The part of y along :math:`\mu` stays, and the James-Stein estimate is applied to the
rest, whose noise is independent of that part. The bounds hold here, too. Proofs:
docs/privacy/proofs.md.
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
# A prior standard deviation larger than the noise's by this factor counts as no information.
_VAGUE = 1e6
# Singular values below this share of the largest count as zero.
_RANK = 1e-9


class Estimate(Protocol):
    """Abstract estimate of some components of a released statistic."""

    @property
    def mean(self) -> Array:
        """Public prior mean, shape (r,): the estimate moves released values towards it."""
        ...

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each released component."""
        ...

    @property
    def left(self) -> Array:
        """Return the expected covariance of the estimate's noise, divided by the noise's variance.

        The shape is (r,) for a diagonal matrix, or (r, r).
        """
        ...

    def __call__(self, released: Array) -> Array:
        """Return the estimate of the statistic from released values, shape (r,)."""
        ...

    def remaining(self, released: Array) -> Array | float:
        """Return the expected share of the noise deviation that remains after the estimate."""
        ...


@dataclass(frozen=True, eq=False)
class EntrywiseMean:
    """Posterior mean of independent components of a statistic, computed one by one.

    Attributes
    ----------
    mean, spread : ndarray, shape (r,)
        Prior means and standard deviations, which may be infinite, or 0.
    deviation : float
        Standard deviation of the noise.
    laplace : bool
        Whether the noise is Laplace noise; otherwise it is normal.
    """

    mean: Array
    spread: Array
    deviation: float
    laplace: bool

    @property
    def left(self) -> Array:
        """Return the share of the noise's variance that remains, for normal noise.

        For Laplace noise, a smaller share of the variance remains.
        """
        return 1 / (1 + (self.deviation / np.maximum(self.spread, self._least)) ** 2)

    @property
    def _least(self) -> float:
        return self.deviation / _VAGUE

    def __call__(self, released: Array) -> Array:
        """Return the posterior mean for released values, by the formulas of the module."""
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
        """Return the share of the noise's deviation that remains, equal for all released values."""
        return np.sqrt(self.left)


def _laplace(away: Array, spread: Array, deviation: float) -> Array:
    """Return posterior means for Laplace noise and prior mean 0.

    `away` are released values minus their prior means, `spread` are prior standard deviations, and
    `deviation` is the noise's.
    """
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
    r"""Best linear estimate of a statistic's components with a joint normal prior."""

    mean: Array  # shape (r,)
    pull: Array  # shape (r, r); A, symmetric
    deviation: float  # standard deviation of the noise
    weights: Array  # shape (r, r); :math:`\Omega` with trace one: in its norm the move is limited

    @property
    def left(self) -> Array:
        """Return I - A, the share of noise that remains in each direction; see the module for A."""
        return np.eye(self.mean.size) - self.pull

    def __call__(self, released: Array) -> Array:
        """Return the estimate ``y - A (y - mu)`` for released values y, with a limited move."""
        move = self.pull @ (released - self.mean)
        size = math.sqrt(max(0.0, float(move @ self.weights @ move)))
        return released - move * min(1.0, LIMIT * self.deviation / size if size > 0 else 1.0)


@dataclass(frozen=True, eq=False)
class JamesStein:
    r"""Positive-part James-Stein estimate, which moves released values towards a public mean.

    Attributes
    ----------
    mean : ndarray, shape (r,)
    deviation : float
        Standard deviation of the noise.
    dimension : float
        Effective dimension :math:`\operatorname{tr} \Omega / \lambda_{\max}(\Omega)`, above 2: r if
        all directions count equally, else less.
    fitted : bool
        Whether the target is the multiple of `mean` that is closest to the released values; Omega
        then covers the directions orthogonal to `mean` only.
    """

    mean: Array
    deviation: float
    dimension: float
    fitted: bool = False

    @property
    def left(self) -> Array:
        """Return ones: the reduction of the noise is not known before the release."""
        return np.ones(self.mean.size)

    def __call__(self, released: Array) -> Array:
        """Return the James-Stein estimate for released values."""
        return released - self._part(released) * self._away(released)

    def remaining(self, released: Array) -> Array | float:
        """Return the share of the noise's deviation that remains if a normal prior fits."""
        return math.sqrt(1 - self._part(released))

    def _away(self, released: Array) -> Array:
        return released - self._level(released) * self.mean

    def _part(self, released: Array) -> float:
        """Return how far released values move, as a share of their distance to the target."""
        away = self._away(released) / self.deviation
        squares = float(away @ away)
        return min(1.0, (self.dimension - 2) / squares) if squares > 0 else 1.0

    def _level(self, released: Array) -> float:
        """Return the factor c of the prior mean in the target ``c mean``."""
        squares = float(self.mean @ self.mean)
        return float(released @ self.mean) / squares if self.fitted and squares > 0 else 1.0


def fits(estimate: Estimate, entries: slice, size: int) -> bool:
    """Return whether an estimate from a request is valid for these components of a statistic.

    Parameters
    ----------
    estimate : Estimate
    entries : slice
        Components of the statistic.
    size : int
        Number of all its components.
    """
    count = len(range(*entries.indices(size))) if entries.step in (None, 1) else 0
    mean = estimate.mean
    if not count or mean.shape != (count,) or not np.isfinite(mean).all():
        return False
    dimension = estimate.dimension if isinstance(estimate, JamesStein) else 3.0
    return 0 < estimate.deviation < math.inf and 2 < dimension < math.inf


def pull_of(K: Array, spread: Array, variance: float) -> Array:
    """Return the matrix A of the best linear estimate, for a statistic K d of independent data d.

    A has the shape (r, r).

    Parameters
    ----------
    K : ndarray, shape (r, N)
    spread : ndarray, shape (N,)
        Prior standard deviations of the data, infinite for entries without a prior.
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
    """Return B, the matrix `back`, restricted to statistics orthogonal to `mean`, shape (n, r)."""
    squares = float(mean @ mean)
    return back - np.outer(back @ mean, mean) / squares if squares > 0 else back


def dimension_of(back: Array, influence: Array | None) -> float:
    r"""Return the trace of :math:`\Omega = B' W B` over its largest eigenvalue; 0 if it is zero.

    Parameters
    ----------
    back : ndarray, shape (n, r)
        The matrix B, from the statistic to the linear coefficient.
    influence : ndarray, shape (n, n), or None
        The matrix W; if None, all components of the statistic count equally.
    """
    if influence is None:
        return float(back.shape[1])
    values = np.linalg.eigvalsh(_weighed(back, influence))
    return float(values.sum() / values[-1]) if values[-1] > 0 else 0.0


def weights_of(back: Array, influence: Array | None) -> Array:
    r"""Return the matrix :math:`\Omega = B' W B` scaled to trace 1.

    See `dimension_of` for the parameters.
    """
    r = back.shape[1]
    if influence is not None:
        matrix = back.T @ influence @ back
        if np.trace(matrix) > 0:
            return matrix / np.trace(matrix)
    return np.eye(r) / r


def _weighed(back: Array, influence: Array) -> Array:
    r"""Return :math:`\Omega = B' W B`, or a smaller matrix with equal nonzero eigenvalues.

    `back` is B and `influence` is W, as in `dimension_of`.
    """
    if back.shape[1] <= back.shape[0]:
        return back.T @ influence @ back
    values, vectors = np.linalg.eigh(influence)
    half = (vectors * np.sqrt(np.maximum(values, 0.0))).T @ back
    return half @ half.T
