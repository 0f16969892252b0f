r"""Secret draws: rounds whose user nobody learns. It would change with what is proved about them.

`last_iterate` composes losses whose turns may become known. Here every round draws its user
uniformly from N, anew, and whoever observes never learns which. `two_block` has the iteration, and
`contraction` the norm that rounds contract.

**One round (T1).** Given all iterates so far, the state is known and the new x has the law
:math:`P = (1 - q) R + q A` against :math:`Q = (1 - q) R + q A'`, with q = 1/N. A and A' are
Gaussian laws of the user that changed, and R is the mixture over all others. Means of A and A' are
at most :math:`\mu` standard deviations apart, those of any two users at most :math:`w \ge \mu`.
Let :math:`\delta_m` be the profile of :math:`N(m, 1)` against :math:`N(0, 1)`. For e >= 0, with
:math:`\epsilon = \log(1 + (e^e - 1)/q)` and :math:`b = e^{e - \epsilon}`, the profile of the round
is at most

.. math::
    D(e) = \min\bigl(q [(1 - b)\, \delta_w(\epsilon) + b\, \delta_\mu(\epsilon)],
        \; q\, \delta_\mu(e)\bigr), \quad
    D(-e) = 1 - e^{-e} + e^{-e} D(e). \quad (1)

Proof. :math:`(1 - q)(e^e - 1) = q e^\epsilon (1 - b)` and :math:`e^e = e^\epsilon b`, so
:math:`P - e^e Q = q [A - e^\epsilon ((1 - b) R + b A')]`. The hockey-stick divergence is jointly
convex: it is at most :math:`q [(1 - b) \max_i H(A | R_i) + b H(A | A')]`, and that of two
Gaussian laws rises with their distance. The other bound keeps R on both sides. P and Q may be
exchanged, and :math:`H_\gamma(P | Q) = 1 - \gamma + \gamma H_{1/\gamma}(Q | P)` gives the second
formula. A profile is a convex function of :math:`e^e`, so it stays below the largest convex
function below (1), which is a profile itself. It bounds a round for any past, so T rounds lose no
more than its T-fold composition (Zhu, Dong and Wang 2022). Neither convexity nor smoothness nor an
exact y step is used. All iterates may be visible, without their users.

**Hidden iterates (T3).** Let a norm with :math:`(\rho, \kappa)` be proved by `contraction`, and let
(x, lambda) be released after T rounds alone. For K <= T, n = K // 2, o = 1 if K is odd and 0
otherwise, and a share :math:`\theta` of the variance, the loss is at most that of K rounds (1) with
:math:`\mu / \sqrt\theta` and :math:`w / \sqrt\theta`, and of one Gaussian mechanism with

.. math::
    \mu^2 = \frac{(\eta \Delta / \sigma)^2}{1 - \theta}
        \frac{\kappa\, d^2 \rho^{1 + o}}{\sum_{j < n} \rho^{-2j}}, \quad
    d = \sum_{j < T - K} \rho^{j/2}. \quad (2)

Proof. Let U and U' be the runs with f and f', with the same draws and noise. After T - K rounds
they are at most d turns apart, even if all draws were the user's. From there :math:`\tilde U`
begins at U', and follows U in function, draws and noise. Before the noise of the first round of a
pair, it moves towards U, by :math:`z_j` in pair j. Rounds contract what is left, and the least sum
of squares of moves that leave nothing is the last factor of (2), as in `contraction`.
:math:`\tilde U` ends at U, so it remains to compare it with U'. Take one pair, from a common
state u. Split each noise into parts of the shares :math:`\theta` and :math:`1 - \theta`.

1. :math:`o_1`: the mapped u of the secret user, plus the first part of the noise. That is (1).
2. Reveal U and the user, with the law that they have given u and :math:`o_1`. They do not depend
   on the second part of the noise, and on the side of U' on nothing that follows. So both
   sides reveal the same. They fix the move. The second part hides :math:`\omega` of the
   move, as in (4) of `contraction`.
3. :math:`o_2`: the point of U', mapped with f or f' by the next secret user, whose draw does not
   depend on what was revealed, plus the first part of its noise. That is (1) again.
4. Reveal that user. The second part of the noise hides the rest of the move. By (4) of
   `contraction` the squares of steps 2 and 4 add up to at most :math:`z_j^2` for every outcome.

Steps 1 and 3 are (1) and compose with Gaussian mechanisms, whose squares add up. A round that is
left over for odd K is (1).

A uniform draw is one of all users. If some tell the observer their turns, N is smaller (T1), and
nothing is proved about T3.

The profile (1) is evaluated on a grid of e. `dp_accounting` connects the dots, a bound on any grid.
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

# Rounding errors of a few operations, and of convolutions relative to their result.
_UP = 1 + 1e-9
# Masses beyond are counted as an infinite loss: in one round, and in all of them.
_TAIL, _TRUNCATED = 1e-20, 1e-15
# Width of the grid of losses: any is valid. More points than so many cost more than they gain.
_WIDTH, _LEAST_WIDTH, _POINTS = 1e-3, 2e-5, 100_000
# A profile beyond this loss counts as an infinite loss.
_FAR = 500.0
# Shares of the variance for the draws, and numbers of last rounds, that are tried.
_SHARES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
_LASTS = tuple(int(2.0 ** (k / 2)) for k in range(2, 40))
# So many of them are evaluated, the best by a central limit.
_EVALUATED = 2


@dataclass(frozen=True)
class LastRounds:
    """Rounds at the end that alone count, by T3; all rounds if nothing else is hidden."""

    count: int
    share: float = 1.0  # of the variance, for the draws
    rest: float = 0.0  # parameter of the Gaussian mechanism that hides all before


@dataclass(frozen=True, eq=False)
class Draws:
    """The loss of every user alike, when each round draws its user.

    Attributes
    ----------
    users, rounds : int
    turn : float
        Shift of one turn over the standard deviation of the noise.
    apart : float or None
        Largest shift between two users over that of a turn, at least 1, if nobody learns who was
        drawn. None if draws and all iterates become known.
    step : float
        ``eta Delta / sigma``.
    contractions : tuple of (float, float)
        Proved rates and costs of norms; empty where all iterates are visible.
    """

    users: int
    rounds: int
    turn: float
    apart: float | None = 1.0
    step: float = 0.0
    contractions: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def price(self, delta: float) -> Price:
        """Return the smallest epsilon at `delta`."""
        return self.by_rounds(delta)[0]

    def by_rounds(self, delta: float) -> tuple[Price, LastRounds]:
        """Return the smallest epsilon at `delta`, and the rounds that it counts."""
        check_delta(delta)
        options = [LastRounds(self.rounds), *self._best]
        prices = [(_epsilon_of(self.distribution(last), delta), last) for last in options]
        epsilon, best = min(prices, key=lambda pair: pair[0])
        return Price(epsilon, delta, f"privacy loss distribution ({self.rule(best)})"), best

    def multiplier(self, epsilon: float, delta: float) -> float:
        """Return about the least noise for a budget, in shifts of a turn, by a central limit."""
        limit = (gaussian_mu(epsilon, delta) * self.users) ** 2 / self.rounds
        return (self.apart or 1.0) / math.sqrt(math.log1p(limit))

    def rule(self, last: LastRounds) -> str:
        """Return the name of the bound that counts these rounds."""
        if self.apart is None:
            return "known draws"
        if last.share == 1.0:
            return "secret draws"
        return f"secret draws of the last {last.count} rounds"

    @cached_property
    def _best(self) -> tuple[LastRounds, ...]:
        """Return the most promising choices for hidden iterates."""
        scored = sorted(
            ((self._about(rounds), rounds) for rounds in self.options()), key=lambda p: p[0]
        )
        whole = self._about(LastRounds(self.rounds))
        return tuple(rounds for score, rounds in scored[:_EVALUATED] if score < whole)

    def options(self) -> Iterator[LastRounds]:
        """Yield valid choices for hidden iterates."""
        for count in (count for count in _LASTS if count <= self.rounds):
            least = min((self._rest(count, *norm) for norm in self.contractions), default=math.inf)
            for share in _SHARES:
                if least < math.inf:
                    yield LastRounds(count, share, math.sqrt(least / (1 - share)))

    def _rest(self, count: int, rho: float, kappa: float) -> float:
        """Return (2) without the share."""
        root, pairs = math.sqrt(rho), count // 2
        before = math.expm1((self.rounds - count) * math.log(root)) / (root - 1)
        sums = float(powers(rho**-2.0, np.array([pairs]))[0])
        return self.step**2 * kappa * before**2 * rho ** (1 + count % 2) / sums * _UP

    def _about(self, last: LastRounds) -> float:
        """Return about how much some rounds lose, to compare choices; nothing rests on it."""
        wide = min((self.turn * (self.apart or 1.0)) ** 2 / last.share, 300.0)
        return last.count * math.expm1(wide) / self.users**2 + last.rest**2

    def distribution(self, last: LastRounds) -> Any:
        """Return a distribution of losses that dominates those of a run."""
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
    """Return the bound (1) of one round at e >= 0.

    Parameters
    ----------
    e : ndarray
    q : float
        Probability that the user is drawn.
    turn, apart : float
        Shifts of a turn, and between any two users, in standard deviations of the noise.
    """
    # expm1(e) / q overflows long after the profile is 0.
    epsilon = np.where(e < 30, np.log1p(np.expm1(np.minimum(e, 30.0)) / q), e - math.log(q))
    b = np.exp(e - epsilon)
    secret = (1 - b) * _gaussian(epsilon, max(apart, turn)) + b * _gaussian(epsilon, turn)
    return q * np.minimum(secret, _gaussian(e, turn))


def profile_losses(q: float, turn: float, apart: float | None, width: float) -> Any:
    """Return a distribution of losses that dominates one round, in both directions.

    Parameters
    ----------
    q, turn : float
        See `round_profile`.
    apart : float or None
        None if the draw becomes known.
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
    every = math.ceil(top / width / _POINTS)  # points may be left out
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
    """Return the profile of N(mu, 1) against N(0, 1) at epsilon."""
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
    """Return the largest convex function of x below the points, at them."""
    # No corner of it lies above the line between two other points, so no corner is left out.
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
