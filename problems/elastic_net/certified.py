"""Effect of certificates and secret draws on the privacy loss of a turn and the noise of a budget.

``python -m problems.elastic_net.certified`` prints the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcvx._words import at_most
from dpcvx.defaults.certificates import certificate
from dpcvx.privacy.last_iterate import LastIterate, Order
from dpcvx.privacy.two_block import TwoBlock, bounds

from .setting import Setting

Floats = NDArray[np.float64]

# Numbers of rounds after a turn that the tables show.
AFTER = (1, 3, 9, 19, 39)
EPSILON, DELTA = 1.0, 1e-6
# Numbers of users and passes in the noise table.
SIZES = ((20, 10), (100, 1), (100, 10))


def certified(block: TwoBlock, rounds: int) -> TwoBlock:
    """Return the constants with a certificate for this many rounds, as plans search it."""
    iteration = block.iteration
    assert iteration is not None
    return replace(block, certificate=certificate(iteration, rounds))


@dataclass(frozen=True, eq=False)
class Losses:
    """Privacy loss of one turn if only x is released, in the unit ``(eta Delta)^2 / (2 sigma^2)``.

    Attributes
    ----------
    after : ndarray of int, shape (K,)
        Rounds after the turn.
    paper : ndarray, shape (K,)
        Smallest of the convex bound, the strongly convex bound, and the loss if x is visible.
    certified : ndarray, shape (K,)
        Smallest bound, including the bound by a certificate.
    """

    after: NDArray[np.int64]
    paper: Floats
    certified: Floats


def losses(block: TwoBlock, after: Sequence[int] = AFTER) -> Losses:
    """Return the privacy losses of one turn with and without a certificate.

    Parameters
    ----------
    block : TwoBlock
    after : sequence of int
        Rounds after the turn.
    """
    at = np.array(after)
    block = certified(block, int(at.max()) + 1)
    by_rule = bounds(block, 1.0, block.eta, at, x_alone=True) * 2
    return Losses(at, by_rule[:3].min(axis=0), by_rule.min(axis=0))


def scalar(mu: float, mu_g: float = 0.0, beta: float = 0.5) -> TwoBlock:
    """Return the constants of the constraint ``x == y``, users of smoothness 1, and a step of 1."""
    return TwoBlock.of(np.eye(1), -np.eye(1), nu=1, mu=mu, mu_g=mu_g, beta=beta, eta=1)


CASES = {
    "convex": scalar(0.0),
    "modulus 0.03, g convex": scalar(0.03),
    "modulus 0.3, g convex": scalar(0.3),
    "Table 1, first row": Setting().claimed,
}


def noise(
    block: TwoBlock,
    users: int,
    passes: int,
    order: Order,
    apart: float | None = None,
    visible: bool = False,
) -> float:
    """Return the noise multiplier for a budget, relative to the shift of x by one turn.

    Parameters
    ----------
    block : TwoBlock
        Constants, with or without a certificate.
    users, passes : int
        Number of users, and of passes over them.
    order : str
        Order of the users.
    apart : float or None
        With secret draws: distance of any two users' updates, relative to the shift by one turn.
    visible : bool
        Whether iterates are visible, and only draws are secret.
    """
    shift = block.eta / (1 + block.eta * block.beta)
    names = tuple(f"user {k}" for k in range(users))
    return LastIterate(
        block=None if visible else block,
        users=names,
        rounds=users * passes,
        order=order,
        sensitivity=1.0,
        level=shift,
        asserted=False,
        apart=apart,
    ).multiplier(EPSILON, DELTA)


def noise_table() -> str:
    """Return a table of the noise for a total budget, without and with certificates."""
    lines = [
        f"noise over the shift of one turn, for epsilon = {EPSILON:g} and delta = {DELTA:g}",
        f"{'users':<24}{'N':>5}{'passes':>8}{'fixed':>9}{'certified':>11}"
        f"{'permuted':>11}{'certified':>11}",
    ]
    for name, block in CASES.items():
        proved = certified(block, max(users * passes for users, passes in SIZES))
        for users, passes in SIZES:
            cells = [
                noise(one, users, passes, order)
                for order in ("fixed", "permutation")
                for one in (block, proved)
            ]
            first, *others = (at_most(cell) for cell in cells)
            row = f"{name:<24}{users:>5}{passes:>8}{first:>9}"
            lines.append(row + "".join(f"{cell:>11}" for cell in others))
    return "\n".join(lines)


def draws_table() -> str:
    """Return a table of the noise for a total budget, with secret draws and with a fixed order."""
    lines = [
        f"noise over the shift of one turn, for epsilon = {EPSILON:g} and delta = {DELTA:g}",
        f"{'users':<24}{'N':>5}{'passes':>8}{'fixed':>9}{'secret':>9}{'visible':>9}{'4 apart':>9}",
    ]
    # If all iterates are visible, the noise does not depend on the constants.
    seen = [noise(scalar(0.0), *size, "sampling", 1.0, visible=True) for size in SIZES]
    for name, block in CASES.items():
        proved = certified(block, max(users * passes for users, passes in SIZES))
        for (users, passes), visible in zip(SIZES, seen, strict=True):
            cells = (
                noise(proved, users, passes, "fixed"),
                noise(proved, users, passes, "sampling", 1.0),
                visible,
                noise(proved, users, passes, "sampling", 4.0),
            )
            row = f"{name:<24}{users:>5}{passes:>8}"
            lines.append(row + "".join(f"{at_most(cell):>9}" for cell in cells))
    return "\n".join(lines)


def losses_table() -> str:
    """Return a table of a turn's privacy loss by rounds after it, without and with certificates."""
    lines = [
        "loss of a turn, in units of (eta Delta)^2 / (2 sigma^2), by rounds after it",
        f"{'users':<24}{'bound':<12}" + "".join(f"{k:>9}" for k in AFTER),
    ]
    for name, block in CASES.items():
        found = losses(block)
        for label, values in (("paper", found.paper), ("certified", found.certified)):
            lines.append(f"{name:<24}{label:<12}" + "".join(f"{at_most(v):>9}" for v in values))
    return "\n".join(lines)


if __name__ == "__main__":
    print(losses_table())
    print()
    print(noise_table())
    print()
    print(draws_table())
