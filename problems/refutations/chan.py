"""Chan, Xie and Zhao (2024): refutations of statements, with their hypotheses."""

from __future__ import annotations

import numpy as np

from dpcvx.privacy.two_block import step_interval

from . import Refutation, close, less


def rule_fails(factor: float = 0.5, rounds: int = 2) -> Refutation:
    """Refute Theorem 5.2 as section 7 applies it, by ``x <- x / 2 + N(0, 1)``.

    Parameters
    ----------
    factor : float
        Factor that multiplies distances in a round.
    rounds : int
        Number of rounds T.
    """
    first = factor**2 / 2  # loss of one round, from two initial points with distance 1
    variance = float(np.sum(factor ** (2.0 * np.arange(rounds))))
    return Refutation(
        f"The factor L^(2T - 1) / T of Corollary 7.3 (x <- {factor:g} x + N(0, 1), T = {rounds})",
        (
            less("0", 0.0, "shrinking of distances", factor),
            less("shrinking of distances", factor, "", 1.0),
            less("1", 1.0, "T", rounds),
        ),
        "loss (zCDP) by this rule is at most",
        first * factor ** (2 * (rounds - 1)) / rounds,
        "loss, exact",
        factor ** (2 * rounds) / (2 * variance),
        note=(
            "This refutes the rule: squares shrink by L^2, and the proof of Theorem 7.2 has L for "
            "squares. No run is known here that exceeds the corollary with its constant C'."
        ),
    )


def stopping_fails(users: int = 10, user: int = 8) -> Refutation:
    """Refute section 8: the probability that user t takes no part under random stopping.

    Parameters
    ----------
    users : int
        Number of users N, even.
    user : int
        Position t of the user.
    """
    half = users // 2
    stops = np.arange(half + 1, users + 1)
    return Refutation(
        f"Section 8, random stopping (N = {users}, t = {user})",
        (
            close("N - 2 floor(N / 2)", users - 2 * half, 0.0),
            less("N / 2", half, "t", user),
            less("t", user, "", users + 1),
        ),
        "user t takes no part with probability",
        (user - half) / half,
        "share of stops from N / 2 + 1 to N that are before t",
        float(np.mean(stops < user)),
        above=False,
        note="The orders of magnitude do not change.",
    )


def table_1_fails(mu: float = 0.25, beta: float = 0.9) -> Refutation:
    """Refute eta in the first row of Table 1.

    Parameters
    ----------
    mu, beta : float
    """
    low, high = step_interval(2 * mu, 2 * mu, 0.2, beta, 1.0)
    eta = (low + high) / 2
    return Refutation(
        f"Table 1, first row (mu = {mu:g}, beta = {beta:g})",
        (less("(23): least eta", low, "1.95", 1.95), less("1.95", 1.95, "largest eta", high)),
        "eta, the middle of (23), is",
        1.95,
        "the middle of (23)",
        eta,
        above=False,
        note=f"eta / beta is {eta / beta:.3f}. 1.95 is inside (23), so it is an admissible step.",
    )


def all_of_them() -> tuple[Refutation, ...]:
    """Return the refutations of this paper."""
    return (rule_fails(), stopping_fails(), table_1_fails())
