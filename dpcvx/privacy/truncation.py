r"""Truncated noise, which is redrawn until no entry exceeds a limit: privacy loss and quantiles.

Let M be a release with unlimited noise, (epsilon, delta_0)-DP, and M' the release with its noise
conditioned on being within the limit. Unlimited noise exceeds the limit with probability tau.
Conditioning moves the probability of any event by at most tau: :math:`P(A \mid B) - P(A) = P(B^c)
(P(A \mid B) - P(A \mid B^c))`. So, for neighbors d and d',

.. math:: P(M'(d) \in S) \le P(M(d) \in S) + \tau
    \le e^\epsilon P(M(d') \in S) + \delta_0 + \tau
    \le e^\epsilon P(M'(d') \in S) + \delta_0 + (1 + e^\epsilon) \tau.

Composition rules of unlimited noise do not cover this, so such a release enters a ledger as the
pair of epsilon and :math:`\delta_0 + (1 + e^\epsilon) \tau`.

*Laplace noise* of scale b has a direct bound, without a factor for the number of entries. Let
neighbors differ by v with :math:`|v|_1 \le b \epsilon`, and let every entry of the noise be within
:math:`\pm T`, with :math:`T \ge b \epsilon`. If both densities are positive, the normalizing
constants cancel, and their ratio is at most :math:`e^\epsilon`. An output that is possible
for only one of the two needs an entry j of the noise within :math:`|v_j|` of an end of its range:

.. math:: \sum_j \frac{e^{-(T - |v_j|) / b} - e^{-T / b}}{2 (1 - e^{-T / b})}
    = \frac{\sum_j (e^{|v_j| / b} - 1)}{2 (e^{T / b} - 1)} \le
    \frac{e^\epsilon - 1}{2 (e^{T / b} - 1)},

since :math:`e^a - 1 + e^c - 1 \le e^{a + c} - 1`. So :math:`T = b \log(1 + (e^\epsilon - 1) / (2
\delta))` takes a release to (epsilon, delta), for delta up to 1/2. An integer :math:`|z| \le L` is
the rounding of noise within L + 1/2 steps, so that limits on the grid are covered.

The module also bounds quantiles: values that sums and lengths of noise exceed with at most a given
probability. The bounds hold for standard noise Y with independent components, of density
:math:`e^{-y^2/2} / \sqrt{2 \pi}` or :math:`e^{-|y|} / 2`. All bounds are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import chi2

from ..errors import PrivacyError
from .noise import Grid

Array = NDArray[np.float64]

# Factor by which floating-point results are rounded up.
_UP = 1 + 1e-9
# Largest number of terms of an inverted characteristic function. Beyond it, and for probabilities
# below _LEAST_INVERTED, Chernoff's bound is used.
_TERMS = 2**18
_LEAST_INVERTED = 1e-10
# Share of the probability that discretization and truncation of a series may add.
_SHARE = 1e-3
# Number of points of the grid for the distribution of sums of squares.
_POINTS = 2**15


def sum_quantile(norm: int, weights: Array, alpha: float) -> float:
    """Return a bound t of ``P(weights'Y > t) <= alpha``, at least 0, for standard noise Y.

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    weights : ndarray, shape (n,)
        Weights of the components of Y.
    alpha : float
        Probability, between 0 and 1.
    """
    peak = float(np.abs(weights).max(initial=0.0))
    if peak == 0 or alpha >= 0.5:
        return 0.0
    unit = np.abs(weights[weights != 0]) / peak
    if norm == 2:
        quantile = -float(ndtri(alpha)) * float(np.linalg.norm(unit))
    elif unit.size == 1:
        quantile = -math.log(2 * alpha)
    else:
        quantile = _laplace_sum(unit, alpha)
    return quantile * peak * _UP


def length_quantile(norm: int, size: int, alpha: float) -> float:
    """Return a bound r of ``P(|Y|_2 > r) <= alpha`` for standard noise Y.

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    size : int
        Number of components of Y.
    alpha : float
        Probability, positive.
    """
    if size == 0 or alpha >= 1:
        return 0.0
    if norm == 2:
        return math.sqrt(float(chi2.isf(alpha, size))) * _UP
    if size == 1:
        return -math.log(alpha) * _UP
    return _laplace_length(size, alpha) * _UP


def image_quantile(norm: int, matrix: Array, alpha: float) -> float:
    r"""Return a bound r of ``P(|M Y|_2 > r) <= alpha`` for a matrix M and standard noise Y.

    The bound is the smallest of these: the largest singular value times `length_quantile`; the
    root of the sum of squared quantiles of the rows' absolute values, at alpha over the number of
    rows each; and for normal noise :math:`|M|_F + |M|_2 \sqrt{2 \log(1 / \alpha)}`: the length of
    M Y changes by at most :math:`|M|_2` times the change of Y, and its mean is at most
    :math:`|M|_F` (Borell, Tsirelson, Ibragimov and Sudakov).

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    matrix : ndarray, shape (m, n)
        The matrix M.
    alpha : float
        Probability, positive.
    """
    used = matrix[np.any(matrix != 0, axis=1)][:, np.any(matrix != 0, axis=0)]
    if not used.size:
        return 0.0
    share = alpha / (2 * used.shape[0])
    by_row = math.hypot(*(sum_quantile(norm, row, share) for row in used)) * _UP
    if used.shape[0] == 1:
        return by_row
    steep = float(np.linalg.norm(used, 2))
    quantile = min(by_row, steep * length_quantile(norm, used.shape[1], alpha))
    if norm == 2:
        other = float(np.linalg.norm(used)) + steep * math.sqrt(-2 * math.log(alpha))
        quantile = min(quantile, other * _UP)
    return quantile


def eigenvalue_quantile(norm: int, matrices: Array, alpha: float) -> float:
    r"""Return a bound t of :math:`P(\lambda_{\max}(\sum_k Y_k W_k) > t) \le \alpha`.

    Y is standard noise. The bound is the smallest of these: `image_quantile`, as no eigenvalue
    exceeds the Frobenius norm; quantiles of the eigenvalues, for a single matrix or for diagonal
    ones; and the bound by Laplace transforms of matrices (Tropp, 2012, theorem 3.6), for every
    :math:`\theta` on a grid:

    .. math:: \frac1\theta \Bigl(\log \mathrm{tr} \exp \sum_k \log E e^{\theta Y_k W_k}
        - \log \alpha\Bigr).

    Here, :math:`\log E e^{\theta Y W}` is :math:`\theta^2 W^2 / 2` for normal noise, and
    :math:`-\log(I - \theta^2 W^2)` for Laplace noise if no eigenvalue of W exceeds :math:`1 /
    \theta`.

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    matrices : ndarray, shape (s, n, n)
        Symmetric matrices W.
    alpha : float
        Probability, positive.
    """
    if not matrices.any() or alpha >= 1:
        return 0.0
    n = matrices.shape[1]
    j, i = np.tril_indices(n)
    rows = (matrices[:, i, j] * np.where(i == j, 1.0, math.sqrt(2))).T
    quantile = image_quantile(norm, rows, alpha)
    if not matrices[:, ~np.eye(n, dtype=bool)].any():
        scalars = np.diagonal(matrices, axis1=1, axis2=2).T
        return min(quantile, max(sum_quantile(norm, each, alpha / n) for each in scalars))
    values, vectors = np.linalg.eigh(matrices)
    if len(matrices) == 1:
        low, high = float(values[0, 0]), float(values[0, -1])
        one_sided = alpha if low >= 0 or high <= 0 else alpha / 2
        sizes = np.array([max(abs(low), abs(high))])
        return min(quantile, sum_quantile(norm, sizes, one_sided))
    largest = float(np.abs(values).max())
    k, column = np.nonzero(np.abs(values) > 1e-12 * largest)
    parts, ends = vectors[k, :, column].T, values[k, column] / largest
    for share in np.linspace(0.02, 0.98, 49):
        theta = share if norm == 1 else 6 * share
        logs = -np.log1p(-((theta * ends) ** 2)) if norm == 1 else (theta * ends) ** 2 / 2
        exponents = np.linalg.eigvalsh((parts * logs) @ parts.T)
        log = float(exponents[-1] + np.log(np.exp(exponents - exponents[-1]).sum()))
        quantile = min(quantile, (log - math.log(alpha)) / theta * largest * _UP)
    return quantile


def _laplace_sum(weights: Array, alpha: float) -> float:
    r"""Return a bound that S = sum_i w_i Y_i, Y_i Laplace, exceeds with probability <= alpha.

    The characteristic function of S is :math:`\varphi(u) = \prod_i 1 / (1 + w_i^2 u^2)`. With a
    step h and K terms (Davies, 1973),

    .. math::
        P(S > t) = \tfrac12 - \sum_{k < K} \frac{\varphi(u_k) \sin(u_k t)}{\pi (k + 1/2)}
        + e, \quad u_k = (k + \tfrac12) h,

    where e is at most :math:`P(S > 2 \pi / h - t)`, which Chernoff's bound bounds, plus the omitted
    terms: :math:`\varphi` decreases at least as fast as the factor of the largest weight.
    """
    most = _chernoff(weights, alpha)
    if alpha < _LEAST_INVERTED:
        return most
    h = 2 * math.pi / (most + _chernoff(weights, _SHARE * alpha))
    wanted, largest = math.pi * _SHARE * alpha, float(weights.max())

    def left_out(terms: int) -> float:
        u = (terms + 0.5) * h
        log = -float(np.log1p((weights * u) ** 2).sum())
        return math.exp(log) * (1 + 1 / (largest * u) ** 2) * (0.5 + 1 / (terms + 0.5))

    terms = 64
    while left_out(terms) > wanted:
        terms *= 2
        if terms > _TERMS:
            return most
    u = (np.arange(terms) + 0.5) * h
    log = np.zeros(terms)
    for weight in weights:
        log -= np.log1p((weight * u) ** 2)
    parts = np.exp(log) / (math.pi * (np.arange(terms) + 0.5))
    doubt = 2 * _SHARE * alpha + 1e-13

    def excess(t: float) -> float:
        return 0.5 - float(parts @ np.sin(u * t)) + doubt - alpha

    return _zero(excess, most)


def _zero(excess: Callable[[float], float], most: float) -> float:
    """Return the root of the decreasing `excess` in [0, most], rounded up; at most `most`."""
    if excess(most) >= 0:
        return most
    root = float(brentq(excess, 0.0, most, xtol=1e-9 * most))
    return min(most, root * (1 + 1e-8))


def _chernoff(weights: Array, alpha: float) -> float:
    r"""Return Chernoff's bound :math:`\min_s (\log(1 / \alpha) - \sum_i \log(1 - s^2 w_i^2)) / s`.

    The minimum is taken over a grid of s.
    """
    s = np.linspace(1e-3, 1 - 1e-6, 2000) / weights.max()
    log = np.zeros(s.size)
    for weight in weights:
        log -= np.log1p(-((s * weight) ** 2))
    return float(((log - math.log(alpha)) / s).min())


def _laplace_length(size: int, alpha: float) -> float:
    """Return a bound that |Y|_2 exceeds with probability <= alpha, for Laplace noise Y."""
    # Initial end of the grid: each component exceeds its bound with probability alpha / size.
    square = size * math.log(size / alpha) ** 2
    if alpha < _LEAST_INVERTED:
        return math.sqrt(square)
    while True:
        bound = _summed_squares(size, alpha, square)
        if bound > 0.9 * square:
            return math.sqrt(min(bound, square))
        square = bound


def _summed_squares(size: int, alpha: float, end: float) -> float:
    """Return a point that `size` squares add up to at most, except with probability alpha."""
    edges = np.sqrt(np.linspace(0.0, end, _POINTS + 1))
    # Probability that a square lies in (edge k - 1, edge k]; it is rounded up to edge k.
    single = np.concatenate([[0.0], np.exp(-edges[:-1]) - np.exp(-edges[1:])])
    total = np.zeros(_POINTS + 1)
    total[0] = 1.0
    power, left = single, size
    while left:
        if left % 2:
            total = _added(total, power)
        left //= 2
        if left:
            power = _added(power, power)
    exceeding = 1.0 - np.cumsum(total) + size * 1e-15
    enough = np.flatnonzero(exceeding <= alpha)
    return end if not enough.size else end * float(enough[0]) / _POINTS


def _added(first: Array, second: Array) -> Array:
    """Return the distribution of a sum of two independent grid variables, up to the grid's end."""
    length = 2 * first.size
    return np.maximum(irfft(rfft(first, length) * rfft(second, length), length)[: first.size], 0.0)


# No limit is computed for tail probabilities below this value.
_LEAST = 1e-280


@dataclass(frozen=True)
class Truncation:
    """Limit of truncated noise, and the privacy loss of a release with it.

    Attributes
    ----------
    reach : float
        Largest absolute value of a noise entry, in units of the noise scale, before rounding.
    size : int
        Largest number of components of a release.
    epsilon, delta : float
        Privacy loss of one release with truncated noise.
    """

    reach: float
    size: int
    epsilon: float
    delta: float

    def steps(self, grid: Grid) -> int:
        """Return the largest absolute value of a noise entry, in units of the grid's width."""
        return math.ceil(self.reach * (grid.scale / grid.width))


def truncation(norm: int, size: int, epsilon: float, spent: float, delta: float) -> Truncation:
    """Return the smallest limit of the noise that keeps the delta of a release within `delta`.

    Parameters
    ----------
    norm : {1, 2}
        2 for normal, 1 for Laplace noise.
    size : int
        Number of components of the release.
    epsilon, spent : float
        Epsilon and delta of the release with unlimited noise. If `spent` is 0, Laplace noise uses
        the module's direct bound.
    delta : float
        Delta that a release with truncated noise may have at `epsilon`; above `spent`.

    Raises
    ------
    PrivacyError
        If epsilon is so large, or delta so small, that no limit can be computed.
    """
    if norm == 1 and spent == 0:
        most = min(delta, 0.5) * (1 - 1e-9)
        # log(1 + (e^epsilon - 1) / (2 delta)), without an overflow
        tails = epsilon + math.log(-math.expm1(-epsilon)) - math.log(2 * most)
        return Truncation(float(np.logaddexp(0.0, tails)) * _UP, size, epsilon, delta)
    # tau <= size * P(|Y| > reach). Limits end at half steps, which round to the last allowed step.
    less = math.exp(-epsilon)
    alpha = (delta - spent) * (1 - 1e-9) * less / (1 + less) / size
    if not alpha >= _LEAST:
        raise PrivacyError(
            f"Noise at epsilon={epsilon:.6g} cannot be truncated within delta={delta:.6g}. Choose "
            "a smaller epsilon or a larger delta, or a violation_probability= above 0, which "
            "needs no truncation."
        )
    return Truncation(length_quantile(norm, 1, alpha), size, epsilon, delta)
