"""Privacy guarantee against an observer who sees only the last iterate of a run.

`two_block` bounds the loss of a single use of a user's gradient. This module composes these bounds
over a run, and collects the constants of a model. The bounds are proved for real arithmetic.
Unreleased iterates are computed in floating point, on a grid of 2^-24 of the noise. The last
iterate is released on this grid too, which depends on no private data.

Amplification by iteration: the iterations after a user's turn (an iteration with the user's
gradient) reduce the loss of this turn.

The losses of several uses of one user do not add up if each use is amplified up to the end. With A
= [1 0], f = 0 and p passes over n users, the second coordinate has p shifts under np noises. Their
loss is p / n in the unit of `two_block`, while the sum of 1 / (np - jn) grows like log(p) / n. Two
rules are proved:

* composition: the iterate before the user's next use counts as released, so every use is amplified
  by the iterations up to the next one;
* a chain of neighbors that differ in one use each: every use is amplified up to the end, and the
  square roots of the bounds add up. The first rule for the first uses may be combined with the
  second rule for the others.

In the paper, every user has one use. `secret_draws` has the loss if draws stay secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._arguments import finite, is_int, show
from .._words import at_most
from ..errors import ModelError, PrivacyError
from ..guard import frameless
from .accounting import Composition, Price, check_delta, smallest_multiplier
from .contraction import Certificate
from .gaussian import gaussian_delta
from .secret_draws import Draws
from .two_block import RULES, UP, TwoBlock, bounds, least, local_zcdp, refusal, step_interval

Array = NDArray[np.float64]


Order = Literal["fixed", "permutation", "stopping", "sampling"]
ORDERS: tuple[Order, ...] = ("fixed", "permutation", "stopping", "sampling")
Secrecy = Literal["known", "secret"]
# Least loss that is charged: ledgers hold noise multipliers up to 1e100.
_LEAST = 1e-190
# Relative accuracy of a calibrated multiplier, in general and with loss distributions.
_CLOSE, _CLOSE_BY_LOSSES = 1e-6, 1e-4
# The time to compute divergences of known draws is quadratic in the rounds. With more rounds, the
# bound for released iterates replaces them.
_MOST_KNOWN = 2000


@dataclass(frozen=True)
class Amplification:
    """Explanation of the guarantee for the last iterate, with alternatives for comparison.

    Attributes
    ----------
    order : str
        Order of the users' turns.
    by_agent : dict of str to float
        Epsilon of each user, in the order of turns; equal for all users under a random order.
    visible : float or None
        Epsilon if every iterate were released; None for sampling, which does not compute it.
    rule : str
        Name of the best bound for users with many iterations after their last own step.
    refused : str or None
        Reason why the strongly convex bound does not apply; None if it does.
    apart : float or None
        Bound of the distance between users' gradients, with secret draws; see `LastIterate`. Else
        None.
    known : float or None
        Epsilon if the drawn users become known; None if draws are not secret.
    in_order : float or None
        Largest epsilon of a user with equal noise in a fixed order; None unless draws are secret.
    """

    order: Order
    by_agent: Mapping[str, float] = field(repr=False)
    visible: float | None
    rule: str
    refused: str | None
    apart: float | None = None
    known: float | None = None
    in_order: float | None = None

    def __str__(self) -> str:
        values = list(self.by_agent.values())
        if self.known is not None and self.in_order is not None:
            return self._of_secret_draws(values[0], self.known, self.in_order)
        text = "nothing, within so few rounds" if self.rule == "local" else f"{self.rule} bound"
        if self.visible is not None:
            text += f"; epsilon {self.visible:.6g} if every iterate were visible"
        if self.order == "fixed":
            first, *_, last = (*self.by_agent, *self.by_agent)
            text += f"; by user from {values[0]:.4g} ('{first}') to {values[-1]:.4g} ('{last}')"
        else:
            text += f"; the same for every user, by random {self.order}"
        return text + ("" if self.refused is None else f". {self.refused}")

    def _of_secret_draws(self, epsilon: float, known_order: float, in_order: float) -> str:
        text = (
            f"{self.rule}; the same for every user; epsilon {at_most(known_order)} if turns become "
            f"known, and at most {at_most(in_order)} with the same noise in a fixed order"
        )
        assert self.apart is not None
        if math.isinf(self.apart):
            text += (
                ". Secret draws need a bound of the distance between users' gradients: users with "
                "the same public terms and records (dp.Rows) have one"
            )
        elif self.apart > 1:
            text += (
                f". Two users are up to {self.apart:g} changes apart, which secret draws do not "
                "hide: they suit users with one record"
            )
        if in_order <= epsilon:
            text += ". A fixed order is cheaper: write order='fixed', without draws="
        return text


@dataclass(frozen=True, eq=False)
class Statement:
    """Privacy loss of a run that releases its last iterate."""

    price: Price  # of the user with the largest loss
    losses: Mapping[str, Composition]  # by user: the loss that a run adds to the ledger
    amplification: Amplification


@frameless
@dataclass(frozen=True, eq=False)
class LastIterate:
    """Constants of the model and the schedule, which determine users' losses for given noise.

    Attributes
    ----------
    block : TwoBlock or None
        Constants for the users' objectives, multiplied by the number of users, so that one
        objective estimates the sum. None if all iterates may be released, so that no later round
        hides a turn.
    users : tuple of str
        Users in the order of their turns.
    rounds : int
        Planned number of rounds; with random stopping, the largest number.
    order : str
        Order of the users' turns.
    sensitivity : float
        Largest l2 sensitivity over all users of such a multiplied gradient.
    level : float
        Sensitivity of the new x to a user's data, to which the noise is scaled.
    asserted : bool
        Whether the user of dpcvx asserted one of the constants.
    apart : float or None
        With secret draws: bound of the distance between the gradients of any two admissible users,
        in units of the sensitivity; infinite if none is derived. None if draws may become known.
    """

    block: TwoBlock | None
    users: tuple[str, ...]
    rounds: int
    order: Order
    sensitivity: float
    level: float
    asserted: bool
    apart: float | None = None

    def __post_init__(self) -> None:
        if self.order == "stopping" and self.rounds != len(self.users):
            raise PrivacyError(
                f"order='stopping' is one pass that stops at random in its second half, and the "
                f"plan has rounds={self.rounds} for {len(self.users)} users. Write "
                f"problem.plan(..., rounds={len(self.users)})."
            )

    def certified(self, certificate: Certificate | None) -> LastIterate:
        """Return these constants with a certificate of smaller losses, verified, or without one.

        Raises
        ------
        PrivacyError
            If the certificate does not prove exactly the bounds that it states.
        """
        if self.block is None:
            return self
        return replace(self, block=replace(self.block, certificate=certificate))

    def require_amplified(self) -> None:
        """Refuse steps without a proof that later rounds hide an earlier use of a gradient."""
        block = self.block
        if block is None or block.eta * block.nu <= 2 * (1 + 1e-15):
            return
        if block.proved is None or not block.proved.hides(self.rounds - 1):
            raise PrivacyError(
                f"step={block.eta:.6g} is above 2 / smoothness = {2 / block.nu:.6g} (of the "
                "users' objectives times the number of users): a step can then expand "
                "differences, and hiding iterates has no proved guarantee. Leave step= out, or "
                "write observer='everyone'."
            )

    @property
    def secret(self) -> bool:
        """Return whether the guarantee requires that the drawn users stay secret."""
        return self.apart is not None

    def losses(self, multiplier: float) -> list[Profile | Mixture | Sampled | Draws]:
        """Return all proved bounds of users' privacy loss, for noise of multiplier times `level`.

        With secret draws, the last bound holds also if the draws become known.
        """
        stated = self._known(multiplier)
        if self.apart is None or math.isinf(self.apart):
            return [stated]
        draws = Draws(len(self.users), self.rounds, 1 / multiplier, self.apart)
        block = self.block
        if block is not None and block.proved is not None:
            step = block.eta * self.sensitivity / (multiplier * self.level)
            draws = replace(draws, step=step, contractions=block.proved.contractions)
        return [draws, stated]

    def _known(self, multiplier: float) -> Profile | Mixture | Sampled | Draws:
        """Return the bound of users' privacy loss that holds even if their turns become known."""
        sigma, users = multiplier * self.level, len(self.users)
        block, change, rounds = self.block, self.sensitivity, self.rounds
        if block is None or (self.secret and rounds > _MOST_KNOWN):
            return Draws(users, rounds, 1 / multiplier, None)
        if self.order == "permutation":
            return permuted(block, change, sigma, users=users, iterations=rounds)
        if self.order == "stopping":
            return stopped(block, change, sigma, users=users)
        if self.order == "sampling":
            return sampled(block, change, sigma, users=users, iterations=rounds)
        return profile(block, change, sigma, users=users, iterations=rounds)

    def price(self, multiplier: float, delta: float) -> Price:
        """Return the largest epsilon of any user at a noise multiplier, by the best bound."""
        prices = [loss.price(delta) for loss in self.losses(multiplier)]
        return min(prices, key=lambda price: price.epsilon)

    def multiplier(self, epsilon: float, delta: float) -> float:
        """Return the least noise multiplier that keeps every user within (epsilon, delta)."""
        least = math.inf
        for i, loss in enumerate(self.losses(1.0)):

            def spent(multiplier: float, i: int = i) -> float:
                return self.losses(multiplier)[i].price(delta).epsilon

            if isinstance(loss, Draws) and least == math.inf:
                guess = loss.multiplier(epsilon, delta)
                least = smallest_multiplier(spent, epsilon, guess, close=_CLOSE_BY_LOSSES)
            elif least == math.inf or spent(least) <= epsilon:
                least = min(least, _smallest(lambda m: spent(m) <= epsilon))
        return least

    def stated(self, multiplier: float, delta: float) -> Statement:
        """Return the privacy loss of a run with this noise multiplier, and its explanation.

        Bounds for a fixed order are bounds by Gaussian mechanisms and compose as such. Bounds for
        random orders are known at one delta only, and compose by adding epsilons and deltas.
        """
        (*secret, loss), users = self.losses(multiplier), len(self.users)
        price, in_turn = loss.price(delta), self._in_turn(multiplier)
        public, rule = price, ""
        for draws in secret:
            assert isinstance(draws, Draws)
            other, last = draws.by_rounds(delta)
            if other.epsilon < price.epsilon:
                price, rule = other, draws.rule(last)
                if last.share == 1.0:
                    rule += ", also if all iterates are visible"
        if isinstance(loss, Profile):
            values = [float(e) for e in loss.epsilons(delta)]
            losses = [
                Composition(mu2=max(2 * float(rho), _LEAST) if rho > 0 else 0.0) for rho in loss.rho
            ]
        else:
            values = [price.epsilon] * users
            losses = [Composition(stated=((price.epsilon, delta),))] * users
        amplification = Amplification(
            order=self.order,
            by_agent=dict(zip(self.users, values, strict=True)),
            visible=None,
            rule="local",
            refused=None,
        )
        if self.secret:
            amplification = replace(
                amplification,
                rule=rule or "known draws: none is derived for secret ones",
                apart=self.apart,
                known=public.epsilon,
                in_order=in_turn.price(delta).epsilon,
            )
        elif self.block is not None:
            after, sigma = np.array([self.rounds - 1]), multiplier * self.level
            best = bounds(self.block, self.sensitivity, sigma, after, x_alone=True)
            visible = None
            if self.order != "sampling":
                visible = Composition(mu2=2 * float(in_turn.local.max())).price(delta).epsilon
            amplification = replace(
                amplification,
                visible=visible,
                rule=RULES[int(best.argmin())],
                refused=self._why(),
            )
        return Statement(price, dict(zip(self.users, losses, strict=True)), amplification)

    def _in_turn(self, multiplier: float) -> Profile:
        """Return every user's privacy loss for this noise and turns in a fixed order instead."""
        users, rounds = len(self.users), self.rounds
        if self.block is not None:
            sigma = multiplier * self.level
            return profile(self.block, self.sensitivity, sigma, users=users, iterations=rounds)
        uses = np.maximum(0, (rounds - 1 - np.arange(users)) // users + 1)
        visible = uses / (2 * multiplier**2)
        return Profile(visible, visible)

    def _why(self) -> str | None:
        """Return the reason, as text, why the bound for strong convexity is unused; else None."""
        block = self.block
        if block is None or refusal(block) is None:
            return None
        if block.proved is not None:
            if block.mu > 0:
                return None
            return (
                "Strongly convex users would lose less: add a multiple of cp.sum_squares to the "
                "objective of each"
            )
        if block.mu == 0 or block.mu_g == 0:
            whose = "each user" if block.mu == 0 else "the public agent"
            return (
                f"A geometric bound needs strongly convex objectives: add a multiple of "
                f"cp.sum_squares to that of {whose}, and write step='contraction'"
            )
        assert block.AB_norm is not None
        low, high = step_interval(block.nu, block.mu, block.mu_g, block.beta, block.AB_norm)
        if low < high:
            return (
                f"A geometric bound needs step= between {low:.6g} and {high:.6g}: write "
                "step='contraction'"
            )
        return "A geometric bound needs a smaller beta: no step size contracts with this one"


# Orders alpha of the Renyi divergences from which epsilon is computed.
_ORDERS = tuple(1 + np.geomspace(0.02, 1e5, 200))
_STRIDE = 8


@dataclass(frozen=True, eq=False)
class Profile:
    """Privacy losses by user, for turns in a fixed order, if only the last iterate is released.

    Attributes
    ----------
    rho : ndarray, shape (users,)
        Parameter rho of zCDP, in the order of turns; 0 for users without a turn.
    local : ndarray, shape (users,)
        Parameter rho in this order if every iterate is released.
    """

    rho: Array = field(repr=False)
    local: Array = field(repr=False)

    @property
    def worst(self) -> int:
        """Position, in the order of turns, of the user with the largest privacy loss."""
        return int(np.argmax(self.rho))

    def price(self, delta: float, user: int | None = None) -> Price:
        """Return the smallest provable epsilon of a user, by default the largest over all users."""
        i = self.worst if user is None else user
        return _gaussian_price(float(self.rho[i]), delta, amplified=self.rho[i] < self.local[i])

    def epsilons(self, delta: float) -> Array:
        """Return every user's epsilon at `delta`, in the order of the users' turns."""
        values, where = np.unique(self.rho, return_inverse=True)
        return np.array([_gaussian_price(float(rho), delta).epsilon for rho in values])[where]


def profile(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int | None = None
) -> Profile:
    """Return the privacy losses of users who take turns in the order ``0, ..., users - 1, 0, ...``.

    Parameters
    ----------
    block : TwoBlock
        Constants of the problem and the steps.
    sensitivity : float
        Bound of the change of every user's gradient between neighboring data.
    sigma : float
        Standard deviation of the noise in each component of x.
    users : int
        Number of users.
    iterations : int, optional
        Number of iterations; by default, one pass. Several passes are multiples of `users`.

    Raises
    ------
    PrivacyError
        If the sensitivity is not finite, or sigma not positive.
    """
    total = _turns(users, iterations)
    position = np.arange(users)
    uses = np.maximum(0, (total - 1 - position) // users + 1)
    last = np.maximum(0, total - 1 - position - (uses - 1) * users)
    between = least(block, sensitivity, sigma, np.array([users - 1])).item()
    # A chain over the last m uses, each amplified up to the end, composed with the earlier uses.
    rho = np.where(uses > 0, np.inf, 0.0)
    roots = np.zeros(users)
    for m in range(1, int(uses.max()) + 1):
        turn = least(block, sensitivity, sigma, last + (m - 1) * users, x_alone=True)
        roots += np.sqrt(turn)
        here = uses >= m
        rho[here] = np.minimum(rho, (uses - m) * between + roots**2)[here]
    local = uses * local_zcdp(block, sensitivity, sigma)
    rho = np.minimum(rho * UP, local)
    for values in (rho, local):
        values.setflags(write=False)
    return Profile(rho, local)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Privacy loss of any user if the number of iterations after the user's turn is random.

    The randomness must not depend on the data. It may become known: the bounds hold if it is
    released along with the final iterate.
    """

    rho: Array = field(repr=False)  # parameter rho for each outcome
    weight: Array = field(repr=False)  # probabilities of the outcomes
    how: str  # kind of randomness, for the rule's name

    def delta(self, epsilon: float) -> float:
        """Return the delta at an epsilon: the mean of the outcomes' Gaussian profiles."""
        some = self.rho > 0
        deltas = gaussian_delta(epsilon, np.sqrt(2 * self.rho[some]))
        return min(1.0, float(self.weight[some] @ deltas) * UP)

    def price(self, delta: float) -> Price:
        """Return the smallest provable epsilon at `delta`."""
        check_delta(delta)
        name = f"mean of Gaussian profiles ({self.how})"
        worst = _gaussian_price(float(self.rho.max()), delta)
        low, high = 0.0, worst.epsilon
        if not 0 < high < math.inf:
            return Price(high, delta, name)
        if self.delta(0.0) <= delta:
            return Price(0.0, delta, name)
        if self.delta(high) > delta:
            return worst
        while high - low > 1e-10 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return Price(high * UP, delta, name)


def permuted(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int | None = None
) -> Mixture:
    """Return any user's privacy loss if one uniform permutation orders the turns of all passes.

    A new permutation in each pass is not covered. Arguments as in `profile`.
    """
    ordered = profile(block, sensitivity, sigma, users=users, iterations=iterations)
    return Mixture(ordered.rho, np.full(users, 1 / users), "random permutation")


def stopped(block: TwoBlock, sensitivity: float, sigma: float, *, users: int) -> Mixture:
    """Return any user's privacy loss in a pass that stops uniformly after N // 2 + 1 to N turns.

    N is the number of users. The bound is the loss of user N // 2 + 1. Earlier users have more
    later iterations for every outcome, and later users are more often without a turn. Arguments as
    in `profile`.
    """
    _turns(users, None)
    outcomes = users - users // 2
    every = least(block, sensitivity, sigma, np.arange(users), x_alone=True)
    # Cumulative maximum: bounds for releasing x alone need not decrease with every round.
    rho = np.maximum.accumulate(every[::-1])[::-1][:outcomes]
    return Mixture(rho, np.full(outcomes, 1 / outcomes), "random stopping")


@dataclass(frozen=True, eq=False)
class Sampled:
    """Privacy loss of any single user if each iteration draws its user uniformly at random.

    It is not in the paper. The uses compose as if the iterate before each next use were released,
    and the bound is the Renyi divergence of the mixture over the draws, which may become known.

    Attributes
    ----------
    rho : ndarray, shape (iterations,)
        Parameter rho of one use with 0, 1, ... iterations until the next use or the end.
    users : int
        Number of users.
    """

    rho: Array = field(repr=False)
    users: int

    def renyi(self, alphas: Sequence[float]) -> Array:
        """Return bounds of the Renyi divergence at orders `alphas`, in quadratic time."""
        for alpha in alphas:
            _check_order(alpha)
        order = np.asarray(alphas, float)
        N, q = len(self.rho), 1 / self.users
        unused = (1 - q) ** np.arange(N)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            # All moments minus 1: `use` for a single use by the number of iterations until the next
            # use or the end; `moment[m]` for everything after a use that m iterations follow.
            use = np.expm1((order - 1) * order * self.rho[:, None])
            drawn = q * unused[:, None]
            moment = np.empty((N, len(order)))
            for m in range(N):
                later = use[:m] + (1 + use[:m]) * moment[:m][::-1]
                moment[m] = unused[m] * use[m] + (drawn[:m] * later).sum(axis=0)
            bound = np.log1p((drawn * moment[::-1]).sum(axis=0)) / (order - 1)
        return np.where(np.isnan(bound), np.inf, bound) * (1 + 1e-9)

    def price(self, delta: float) -> Price:
        """Return the smallest epsilon at `delta` over a grid of Renyi orders."""
        check_delta(delta)
        name = "Renyi divergence (random sampling)"
        if self.rho.max() == 0:
            return Price(0.0, delta, name)
        orders = [alpha for alpha in _ORDERS if alpha * (alpha - 1) * self.rho[0] < 600]
        if not orders:
            return Price(math.inf, delta, name)
        # The bound holds for every order. The best of all orders is near the best of a few in
        # practice.
        few = orders[::_STRIDE]
        _, best = _converted(few, self.renyi(few), delta)
        index = orders.index(best)
        near = orders[max(0, index - _STRIDE) : index + _STRIDE + 1]
        return Price(_converted(near, self.renyi(near), delta)[0], delta, name)


def sampled(
    block: TwoBlock, sensitivity: float, sigma: float, *, users: int, iterations: int
) -> Sampled:
    """Return any user's privacy loss if iterations draw users uniformly, with replacement.

    Arguments as in `profile`.
    """
    total = _turns(users, iterations)
    return Sampled(least(block, sensitivity, sigma, np.arange(total)), users)


def _smallest(within: Callable[[float], bool]) -> float:
    """Return the smallest noise multiplier that `within` accepts, by bisection."""
    high = 1.0
    while not within(high):
        high *= 4
    low = high / 4
    while within(low):
        low, high = low / 4, low
    while high / low > 1 + _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if within(middle) else (middle, high)
    return high


def _converted(
    orders: Sequence[float], divergences: Sequence[float] | Array, delta: float
) -> tuple[float, float]:
    """Return the least epsilon that Renyi divergences give at `delta`, and the order it uses."""
    from dp_accounting.rdp import compute_epsilon

    if delta == 0:
        return math.inf, orders[0]
    epsilon, order = compute_epsilon(list(orders), list(divergences), delta)
    return float(epsilon) * UP, order if order in orders else orders[0]


def _gaussian_price(rho: float, delta: float, amplified: bool = True) -> Price:
    price = Composition(mu2=2 * rho).price(delta)
    if amplified and rho > 0:
        return Price(price.epsilon, delta, "Gaussian bound, amplified by iteration")
    return price


def _turns(users: int, iterations: int | None) -> int:
    if not is_int(users, 1):
        raise ModelError(f"users must be a whole number of at least 1, got {show(users)}.")
    if iterations is None:
        return users
    if not is_int(iterations, 1):
        raise ModelError(
            f"iterations must be a whole number of at least 1, got {show(iterations)}."
        )
    return int(iterations)


def _check_order(alpha: float) -> None:
    if not (finite(alpha) and alpha > 1):
        raise PrivacyError(
            f"The order alpha of a Renyi divergence must be above 1, got {show(alpha)}."
        )
