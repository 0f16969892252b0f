"""Losses of secret draws: one round by integrals, figures of the derivation, and how they move."""

import numpy as np
import pytest
from scipy.stats import norm

from dpcvx.privacy.secret_draws import Draws, LastRounds, profile_losses, round_profile
from tests.campaigns.secret_draws import EPSILONS, deltas, divergences

DELTA = 1e-6


def epsilon(users, rounds, noise, apart=1.0, **settings):
    return Draws(users, rounds, 1 / noise, apart, **settings).price(DELTA).epsilon


@pytest.mark.parametrize("q", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("turn", [0.3, 1.0, 3.0])
def test_one_round_attains_its_profile_if_the_others_are_at_the_changed_user(q, turn):
    # P = (1 - q) N(turn, 1) + q N(0, 1) against N(turn, 1).
    one, other, weights = np.array([turn, 0.0]), np.array([turn, turn]), np.array([1 - q, q])
    exact = np.maximum(*(divergences(*pair, weights) for pair in ((one, other), (other, one))))
    claimed = round_profile(EPSILONS, q, turn, turn)
    assert exact == pytest.approx(claimed, rel=1e-5, abs=1e-9)
    # Connected dots lie above the profile everywhere, and close to it.
    dots = deltas(profile_losses(q, turn, turn, 1e-3))
    assert (dots >= claimed * (1 - 1e-9)).all()
    assert dots == pytest.approx(claimed, rel=0.02, abs=1e-6)


def test_users_far_apart_lose_what_known_draws_lose():
    known = epsilon(20, 20, 1.0, None)
    assert known == pytest.approx(9.912, rel=1e-3)
    assert epsilon(20, 20, 1.0, 5.0) == pytest.approx(known, rel=1e-3)
    assert epsilon(20, 20, 1.0, 1.0) < 0.3 * known


def test_known_draws_are_a_turn_that_happens_with_the_probability_of_a_draw():
    delta = 0.05 * (norm.cdf(0.5 - 1.0) - np.exp(1.0) * norm.cdf(-0.5 - 1.0))
    found = deltas(profile_losses(0.05, 1.0, None, 1e-3))
    assert found[EPSILONS == 1.0] == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize(
    ("users", "rounds", "noise", "apart", "expected"),
    [
        (100, 100, 1.0, 1.0, 1.00),
        (100, 100, 1.0, 1.5, 3.56),
        (100, 100, 1.0, 2.0, 7.57),
        (20, 200, 2.0, 1.0, 1.98),
        (1000, 1000, 1.0, 1.0, 0.219),
    ],
)
def test_figures_of_the_derivation_are_met(users, rounds, noise, apart, expected):
    assert epsilon(users, rounds, noise, apart) == pytest.approx(expected, rel=0.006)


def test_losses_fall_with_noise_and_users_and_rise_with_rounds():
    norms = ((0.45, 12.0), (0.8, 6.0), (0.96, 5.0))

    def lost(users, rounds, noise):
        return epsilon(users, rounds, noise, step=1.5 / noise, contractions=norms)

    assert lost(20, 100, 1.0) > lost(20, 100, 1.1) > lost(20, 100, 1.5)
    assert lost(20, 100, 1.0) > lost(30, 100, 1.0) > lost(100, 100, 1.0)
    assert lost(20, 10, 1.0) < lost(20, 40, 1.0)
    # Of hidden iterates, so many rounds and ten times as many lose about the same.
    assert lost(20, 1000, 1.0) == pytest.approx(lost(20, 10_000, 1.0), rel=0.05)


def test_fewer_last_rounds_need_a_larger_rest():
    draws = Draws(20, 100, 1.0, 1.0, 1.5, ((0.8, 6.0),))
    rests = {last.count: last.rest for last in draws.options() if last.share == 0.9}
    counts = sorted(rests)
    assert counts[0] == 2 and counts[-1] == 90
    falling = [rests[count] for count in counts if count % 2 == 0]
    assert falling == sorted(falling, reverse=True) and falling[-1] < 1e-3 * falling[0]
    assert draws.rule(LastRounds(12, 0.9, 0.1)) == "secret draws of the last 12 rounds"


@pytest.mark.parametrize("turn", [1e-3, 8.0])
def test_little_and_much_noise_is_priced(turn):
    found = Draws(20, 10, turn).price(DELTA).epsilon
    assert 0 <= found < 10 * (turn**2 / 2 + 8 * turn) and np.isfinite(found)
