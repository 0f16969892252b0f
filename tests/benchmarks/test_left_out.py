"""The joint bound of several turns and its closed form, and that sampling saves no noise."""

import numpy as np
import pytest

from dpcvx.privacy.last_iterate import profile
from problems.elastic_net.certified import CASES, certified
from tests.benchmarks.left_out import hidden_sums, joint, sampled_noise, squares


@pytest.mark.parametrize(("users", "passes", "c"), [(4, 2, 0.9), (6, 10, 0.7), (10, 3, 0.99)])
def test_moves_of_the_last_but_one_turns_have_the_closed_form(users, passes, c):
    # The last user of an even number, whose last turn stays: pairs of rounds contract by c.
    turns, half = range(users - 1, users * passes, users), users // 2
    rest = c ** (half * (passes - 1))
    expected = c ** (2 * half - 2) * (1 - c * c) / (1 - c**half) ** 2 * (1 - rest) / (1 + rest)
    found = squares([*turns][:-1], turns[-1], c)
    assert found == pytest.approx(expected, rel=1e-9)


def test_turns_together_lose_about_what_the_package_claims():
    block = certified(CASES["modulus 0.3, g convex"], 24)
    now = profile(block, 1.0, block.eta, users=6, iterations=24).rho
    ratios = [joint(block, 6, 4, k) / now[k] for k in range(6)]
    assert 0.9 < min(ratios) < 2


def test_sampled_records_need_no_less_noise():
    assert sampled_noise(0.1, 30, 1.0) == pytest.approx(1.17, rel=0.01)
    assert 0.999 < sampled_noise(0.5, 300, 1.0) < 1.01


@pytest.mark.parametrize(("c", "rounds"), [(0.9, 30), (0.99, 100), (0.5, 3)])
def test_sums_with_hidden_iterates_lose_what_quadratic_losses_lose(c, rounds):
    kept = c ** np.arange(rounds)  # of a shift, and of a noise, in the last iterate
    exact = kept.sum() ** 2 / (kept**2).sum()
    assert hidden_sums(c, rounds) == pytest.approx(np.sqrt(exact / rounds), rel=1e-9)
