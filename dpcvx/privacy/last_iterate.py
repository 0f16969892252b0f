"""What a plan guarantees against an observer who learns its last iterate and nothing else.

`two_block` and `amplification` have the bounds; this module finds out whether, and with which
constants, they hold for a model. They hold for what leaves in real numbers: hidden iterates are
computed in floating point, on a grid of 2^-24 of the noise, and the last one leaves on that same
grid, which does not depend on anything private.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..errors import PrivacyError
from ..guard import frameless
from .accounting import Composition, Price
from .amplification import Mixture, Profile, Sampled, permuted, profile, sampled, stopped
from .two_block import RULES, TwoBlock, bounds, refusal, step_interval

Order = Literal["fixed", "permutation", "stopping", "sampling"]
ORDERS: tuple[Order, ...] = ("fixed", "permutation", "stopping", "sampling")
# Smaller losses are charged as this one: ledgers hold multipliers up to 1e100.
_LEAST = 1e-190
# Relative accuracy of a calibrated multiplier.
_CLOSE = 1e-6


@dataclass(frozen=True)
class Amplification:
    """How the guarantee for the last iterate came about.

    Attributes
    ----------
    order : str
        How users take turns.
    by_agent : dict of str to float
        Epsilon of each user, in the order of turns; all alike under a random order.
    visible : float or None
        Epsilon if every iterate were visible; None for sampling, where it is not computed.
    rule : str
        The bound that holds for users with many iterations after their last turn.
    refused : str or None
        Why the strongly convex bound does not apply.
    """

    order: Order
    by_agent: Mapping[str, float] = field(repr=False)
    visible: float | None
    rule: str
    refused: str | None

    def __str__(self) -> str:
        values = list(self.by_agent.values())
        text = "nothing, within so few rounds" if self.rule == "local" else f"{self.rule} bound"
        if self.visible is not None:
            text += f"; epsilon {self.visible:.6g} if every iterate were visible"
        if self.order == "fixed":
            first, *_, last = (*self.by_agent, *self.by_agent)
            text += f"; by user from {values[0]:.4g} ('{first}') to {values[-1]:.4g} ('{last}')"
        else:
            text += f"; the same for every user, by random {self.order}"
        return text + ("" if self.refused is None else f". {self.refused}")


@dataclass(frozen=True, eq=False)
class Statement:
    """What a run costs."""

    price: Price  # of the user who loses most
    losses: Mapping[str, Composition]  # per user, what a run adds to its ledger
    amplification: Amplification


@frameless
@dataclass(frozen=True, eq=False)
class LastIterate:
    """Everything that the loss of the users depends on besides the noise multiplier.

    Attributes
    ----------
    block : TwoBlock
        For users' objectives times the number of users, of which one stands for the sum.
    users : tuple of str
        In the order of turns.
    rounds : int
        Planned; with random stopping, at most.
    order : str
    sensitivity : float
        Of such a gradient, the largest of all users.
    level : float
        Sensitivity of the new x; the noise is scaled to it.
    asserted : bool
        Whether one of the constants was asserted.
    """

    block: TwoBlock
    users: tuple[str, ...]
    rounds: int
    order: Order
    sensitivity: float
    level: float
    asserted: bool

    def __post_init__(self) -> None:
        if self.order == "stopping" and self.rounds != len(self.users):
            raise PrivacyError(
                f"order='stopping' is one pass that stops at random in its second half, and the "
                f"plan has rounds={self.rounds} for {len(self.users)} users. Write "
                f"problem.plan(..., rounds={len(self.users)})."
            )
        if self.block.eta * self.block.nu > 2 * (1 + 1e-15):
            raise PrivacyError(
                f"step={self.block.eta:.6g} is above 2 / smoothness = {2 / self.block.nu:.6g} (of "
                "the users' objectives times the number of users): a step can then expand what "
                "came before, and hiding iterates promises nothing. Leave step= out, or write "
                "observer='everyone'."
            )

    def loss(self, multiplier: float) -> Profile | Mixture | Sampled:
        """The loss of the users with noise of a multiplier of `level`."""
        sigma, users = multiplier * self.level, len(self.users)
        block, change = self.block, self.sensitivity
        if self.order == "permutation":
            return permuted(block, change, sigma, users=users, iterations=self.rounds)
        if self.order == "stopping":
            return stopped(block, change, sigma, users=users)
        if self.order == "sampling":
            return sampled(block, change, sigma, users=users, iterations=self.rounds)
        return profile(block, change, sigma, users=users, iterations=self.rounds)

    def price(self, multiplier: float, delta: float) -> Price:
        """Epsilon of the user who loses most."""
        return self.loss(multiplier).price(delta)

    def multiplier(self, epsilon: float, delta: float) -> float:
        """The smallest multiplier that keeps every user within a budget."""
        high = 1.0
        while self.price(high, delta).epsilon > epsilon:
            high *= 4
        low = high / 4
        while self.price(low, delta).epsilon <= epsilon:
            low, high = low / 4, low
        while high / low > 1 + _CLOSE:
            middle = math.sqrt(low * high)
            low, high = (
                (low, middle) if self.price(middle, delta).epsilon <= epsilon else (middle, high)
            )
        return high

    def stated(self, multiplier: float, delta: float) -> Statement:
        """What a run costs, computed once.

        The bounds for a fixed order are bounds by Gaussian mechanisms and compose as such. Those
        for random orders are stated at one delta, and add up.
        """
        found, users = self.loss(multiplier), len(self.users)
        price, sigma = found.price(delta), multiplier * self.level
        in_turn = profile(self.block, self.sensitivity, sigma, users=users, iterations=self.rounds)
        if isinstance(found, Profile):
            values = [float(e) for e in found.epsilons(delta)]
            losses = [
                Composition(mu2=max(2 * float(rho), _LEAST) if rho > 0 else 0.0)
                for rho in found.rho
            ]
        else:
            values = [price.epsilon] * users
            losses = [Composition(stated=((price.epsilon, delta),))] * users
        visible = None
        if self.order != "sampling":
            visible = Composition(mu2=2 * float(in_turn.local.max())).price(delta).epsilon
        best = bounds(self.block, self.sensitivity, sigma, np.array([self.rounds - 1]))
        amplification = Amplification(
            order=self.order,
            by_agent=dict(zip(self.users, values, strict=True)),
            visible=visible,
            rule=RULES[int(best.argmin())],
            refused=self._why(),
        )
        return Statement(price, dict(zip(self.users, losses, strict=True)), amplification)

    def _why(self) -> str | None:
        """Why the bound for strongly convex objectives does not apply, in the user's words."""
        block = self.block
        if refusal(block) is None:
            return None
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
