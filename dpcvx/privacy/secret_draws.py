r"""Secret draws: privacy loss of rounds that draw their user at random and hide the draw.

A user's *turn* is a round with the user's gradient. `last_iterate` composes the losses of turns
that may become known. Here every round draws its user uniformly from N, independently, and an
observer never learns the draws. `two_block` describes the iteration, and `contraction` the norm
that makes rounds contractions.

**One round (T1).** Given all earlier iterates, the state is fixed and the new x has the
distribution :math:`P = (1 - q) R + q A` under one data set and :math:`Q = (1 - q) R + q A'` under
the other, with q = 1/N. A and A' are the Gaussian distributions of the changed user's round, and R
is the mixture over all other users. The means of A and A' are at most :math:`\mu` standard
deviations apart, the means of any two users at most :math:`w \ge \mu`. Let :math:`\delta_m` be the
privacy profile of :math:`N(m, 1)` against :math:`N(0, 1)`. For e >= 0, with
:math:`\epsilon = \log(1 + (e^e - 1)/q)` and :math:`b = e^{e - \epsilon}`, the profile of the round
is at most

.. math::
    D(e) = \min\bigl(q [(1 - b)\, \delta_w(\epsilon) + b\, \delta_\mu(\epsilon)],
        \; q\, \delta_\mu(e)\bigr), \quad
    D(-e) = 1 - e^{-e} + e^{-e} D(e). \quad (1)

Proof. :math:`(1 - q)(e^e - 1) = q e^\epsilon (1 - b)` and :math:`e^e = e^\epsilon b`, so
:math:`P - e^e Q = q [A - e^\epsilon ((1 - b) R + b A')]`. The hockey-stick divergence is jointly
convex: it is at most :math:`q [(1 - b) \max_i H(A | R_i) + b H(A | A')]`, and the divergence of two
Gaussian distributions increases with their distance. The other bound keeps R on both sides. P and Q
may be exchanged, and :math:`H_\gamma(P | Q) = 1 - \gamma + \gamma H_{1/\gamma}(Q | P)` gives the
second formula. A profile is a convex function of :math:`e^e`, so it stays below the largest convex
function below (1), which is a profile itself. This bounds a round for any past, so the loss of T
rounds is at most its T-fold composition (Zhu, Dong and Wang 2022). The proof uses neither convexity
nor smoothness nor an exact y step. All iterates may be released, without their users.

**Hidden iterates (T3).** Let `contraction` prove a norm with :math:`(\rho, \kappa)`, and let only
(x, lambda) after T rounds be released. For K <= T, n = K // 2, o = 1 if K is odd and 0 otherwise,
and a share :math:`\theta` of the variance, the loss is at most the composed loss of K rounds (1)
with :math:`\mu / \sqrt\theta` and :math:`w / \sqrt\theta` and one Gaussian mechanism with

.. math::
    \mu^2 = \frac{(\eta \Delta / \sigma)^2}{1 - \theta}
        \frac{\kappa\, d^2 \rho^{1 + o}}{\sum_{j < n} \rho^{-2j}}, \quad
    d = \sum_{j < T - K} \rho^{j/2}. \quad (2)

Proof. Let U and U' be the runs with f and f', with equal draws and noise. After T - K rounds, their
distance is at most d times the shift of one turn, even if all draws were the user's. From there
:math:`\tilde U` starts at U', and uses the function, draws and noise of U. Before the noise of the
first round of a pair, it moves towards U, by :math:`z_j` in pair j. Rounds contract the remaining
distance, and the least sum of squared moves after which no distance remains is the last factor of
(2), as in `contraction`. :math:`\tilde U` ends at U, so it remains to compare it with U'. Take one
pair of rounds, from a common state u. Split each noise into two parts, with shares :math:`\theta`
and :math:`1 - \theta` of its variance.

1. :math:`o_1`: the state u, mapped by the secret user's round, plus the first part of the noise.
   This release has the profile (1).
2. Reveal U and the user, with their distribution given u and :math:`o_1`. They do not depend on
   the second part of the noise, and on the side of U' on no later draw or noise. So both sides
   reveal equal information, which determines the move. The second part hides the share
   :math:`\omega` of the move, as in (4) of `contraction`.
3. :math:`o_2`: the point of U', mapped with f or f' by the next secret user, plus the first part of
   its noise. The user's draw does not depend on what was revealed, so this is (1) again.
4. Reveal that user. The second part of the noise hides the rest of the move. By (4) of
   `contraction`, the squares of steps 2 and 4 add up to at most :math:`z_j^2` for every outcome.

Steps 1 and 3 have the profile (1) and compose with Gaussian mechanisms, whose squares add up. For
odd K, the remaining round has the profile (1).

A uniform draw is a draw among all users. If some users tell the observer their turns, T1 holds with
a smaller N, and nothing is proved for T3.

The profile (1) is evaluated on a grid of e. `dp_accounting` interpolates it pessimistically, which
gives a bound on any grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from .accounting import Price, check_delta
from .contraction import powers
from .gaussian import gaussian_mu

Array = NDArray[np.float64]

# Factor for the rounding errors of a few operations, and of convolutions relative to their result.
_UP = 1 + 1e-9
# Probability masses below these count as an infinite loss: in one round, and in all rounds.
_TAIL, _TRUNCATED = 1e-20, 1e-15
# Width of the grid of losses, least width, and largest number of points. Any width gives a bound.
_WIDTH, _LEAST_WIDTH, _POINTS = 1e-3, 2e-5, 100_000
# A privacy profile beyond this loss counts as an infinite loss.
_FAR = 500.0
# Candidates: shares of the noise variance for the draws, and numbers of last rounds.
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
_LASTS = tuple(int(2.0 ** (k / 2)) for k in range(2, 40))
# Number of candidates that are evaluated exactly: the best ones by a central-limit estimate.
_EVALUATED = 2


@dataclass(frozen=True)
class LastRounds:
    """Number of last rounds that a bound counts as secret draws (bound T3 of the module)."""

    count: int
    share: float = 1.0  # share theta of the noise variance for the draws
    rest: float = 0.0  # parameter mu of the Gaussian mechanism (2) for all earlier rounds


@dataclass(frozen=True, eq=False)
class Draws:
    """Privacy loss of any single user when each round draws its user uniformly.

    Attributes
    ----------
    users, rounds : int
        Number N of users and T of rounds.
    turn : float
        Sensitivity mu of the mean of a user's round to the user's data, in noise deviations.
    apart : float or None
        Largest distance between two users' means over `turn`, at least 1, if the draws stay secret.
        None if draws and all iterates become known.
    step : float
        Step size times gradient sensitivity over noise deviation, ``eta Delta / sigma``.
    contractions : tuple of (float, float)
        Pairs (rho, kappa) of proved norms; empty if all iterates are released.
    """

    users: int
    rounds: int
    turn: float
    apart: float | None = 1.0
    step: float = 0.0
    contractions: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def price(self, delta: float) -> Price:
        """Return the smallest proved epsilon at `delta`."""
        return self.by_rounds(delta)[0]

    def by_rounds(self, delta: float) -> tuple[Price, LastRounds]:
        """Return the smallest proved epsilon at `delta`, and the choice of rounds that gives it."""
        check_delta(delta)
        options = [LastRounds(self.rounds), *self._best]
        prices = [(_epsilon_of(self.distribution(last), delta), last) for last in options]
        epsilon, best = min(prices, key=lambda pair: pair[0])
        return Price(epsilon, delta, f"privacy loss distribution ({self.rule(best)})"), best

    def multiplier(self, epsilon: float, delta: float) -> float:
        """Return an estimate of the least noise for a budget, over the sensitivity of a round."""
        limit = (gaussian_mu(epsilon, delta) * self.users) ** 2 / self.rounds
        return (self.apart or 1.0) / math.sqrt(math.log1p(limit))

    def rule(self, last: LastRounds) -> str:
        """Return the name of the bound for this choice of rounds."""
        if self.apart is None:
            return "known draws"
        if last.share == 1.0:
            return "secret draws"
        return f"secret draws of the last {last.count} rounds"

    @cached_property
    def _best(self) -> tuple[LastRounds, ...]:
        """Choices of last rounds, in bound T3, with the smallest estimated privacy losses."""
        scored = sorted(
            ((self._about(rounds), rounds) for rounds in self.options()), key=lambda p: p[0]
        )
        whole = self._about(LastRounds(self.rounds))
        return tuple(rounds for score, rounds in scored[:_EVALUATED] if score < whole)

    def options(self) -> Iterator[LastRounds]:
        """Yield the valid choices of last rounds in bound T3, for hidden iterates."""
        for count in (count for count in _LASTS if count <= self.rounds):
            least = min((self._rest(count, *norm) for norm in self.contractions), default=math.inf)
            for share in _SHARES:
                if least < math.inf:
                    yield LastRounds(count, share, math.sqrt(least / (1 - share)))

    def _rest(self, count: int, rho: float, kappa: float) -> float:
        """Return mu^2 of the module's (2), for K = `count`, without the factor 1 / (1 - theta)."""
        root, pairs = math.sqrt(rho), count // 2
        before = math.expm1((self.rounds - count) * math.log(root)) / (root - 1)
        sums = float(powers(rho**-2.0, np.array([pairs]))[0])
        return self.step**2 * kappa * before**2 * rho ** (1 + count % 2) / sums * _UP

    def _about(self, last: LastRounds) -> float:
        """Return an estimate of the privacy loss; it only ranks choices, and is in no bound."""
        wide = min((self.turn * (self.apart or 1.0)) ** 2 / last.share, 300.0)
        return last.count * math.expm1(wide) / self.users**2 + last.rest**2

    def distribution(self, last: LastRounds) -> Any:
        """Return a loss distribution that dominates the privacy loss of the whole run."""
        turn = self.turn / math.sqrt(last.share)
        width = _width(turn, last.count)
        apart = None if self.apart is None else turn * self.apart
        losses = profile_losses(1 / self.users, turn, apart, width)
        total = losses.self_compose(last.count, _TRUNCATED)
        if last.rest > 0:
            hidden = _gaussian_losses(last.rest, width)
            total = total.to_dense_pmf().compose(hidden.to_dense_pmf(), _TRUNCATED)
        return total


def round_profile(e: Array, q: float, turn: float, apart: float) -> Array:
    """Return the module's bound (1) on the privacy profile of one round, at e >= 0.

    Parameters
    ----------
    e : ndarray
        Privacy losses at which the profile is evaluated.
    q : float
        Probability that the user is drawn.
    turn, apart : float
        Sensitivity of a turn (mu), and distance of any two users' means (w), in noise deviations.
    """
    # expm1(e) / q overflows long after the profile is 0.
    epsilon = np.where(e < 30, np.log1p(np.expm1(np.minimum(e, 30.0)) / q), e - math.log(q))
    b = np.exp(e - epsilon)
    secret = (1 - b) * _gaussian(epsilon, max(apart, turn)) + b * _gaussian(epsilon, turn)
    return q * np.minimum(secret, _gaussian(e, turn))


def profile_losses(q: float, turn: float, apart: float | None, width: float) -> Any:
    """Return a privacy loss distribution that dominates one round, in both directions.

    Parameters
    ----------
    q, turn : float
        See `round_profile`.
    apart : float or None
        Distance w as in `round_profile`; None if the draw becomes known.
    width : float
        Width of the grid of losses.
    """
    from dp_accounting.pld import pld_pmf

    def profile(e: Array) -> Array:
        if apart is None:
            return q * _gaussian(e, turn)
        return round_profile(e, q, turn, apart)

    top = width
    while top < _FAR and profile(np.array([top]))[0] > _TAIL:
        top *= 1.3
    every = math.ceil(top / width / _POINTS)  # stride of the grid points
    count = math.ceil(top / width / every)
    steps = np.arange(count + 1) * every
    e = np.asarray(steps * width, dtype=np.float64)
    above = profile(e)
    below = -np.expm1(-e) + np.exp(-e) * above
    places, deltas = np.r_[-steps[:0:-1], steps], np.r_[below[:0:-1], above]
    if apart is not None and apart > turn:
        deltas = _convex(np.exp(places * width), deltas)
    deltas = np.clip(np.minimum.accumulate(deltas), 0.0, 1.0)
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, places, deltas)


def _gaussian(epsilon: Array, mu: float) -> Array:
    """Return the privacy profile of N(mu, 1) against N(0, 1) at epsilon."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        first = log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        less = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    return np.where(second < first, less * _UP, 0.0)


def _gaussian_losses(mu: float, width: float) -> Any:
    from dp_accounting.pld import pld_pmf

    count = math.ceil((mu * mu / 2 + 10 * mu) / width)
    every = max(1, math.ceil(count / _POINTS))
    places = np.arange(-math.ceil(count / every), math.ceil(count / every) + 1) * every
    deltas = np.clip(_gaussian(np.asarray(places * width, dtype=np.float64), mu), 0.0, 1.0)
    deltas = np.minimum.accumulate(deltas)
    return pld_pmf.create_pmf_pessimistic_connect_dots(width, places, deltas)


def _convex(x: Array, y: Array) -> Array:
    """Return the values at x of the largest convex function below the points (x, y)."""
    # A point above the line between its neighbors is no corner of that function and is removed.
    corners = np.arange(len(x))
    while True:
        slopes = np.diff(y[corners]) / np.diff(x[corners])
        inside = np.r_[True, slopes[1:] > slopes[:-1], True]
        if inside.all():
            return np.interp(x, x[corners], y[corners])
        corners = corners[inside]


def _width(turn: float, rounds: int) -> float:
    return max(_LEAST_WIDTH, min(_WIDTH, 0.02 * turn / math.sqrt(rounds)))


def _epsilon_of(losses: Any, delta: float) -> float:
    return max(float(losses.get_epsilon_for_delta(delta)), 0.0) * _UP
