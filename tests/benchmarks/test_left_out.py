"""Bounds that are left out: their numbers on the page, and attacks with exact Gaussian losses."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from dpcvx.privacy.last_iterate import profile
from problems.elastic_net.certified import CASES, certified
from tests.benchmarks.left_out import (
    SIZES,
    hidden_sums,
    joint,
    sampled_noise,
    settings,
    squares,
)

PAGE = Path(__file__).parents[2] / "docs" / "privacy" / "accounting.md"


@pytest.mark.parametrize(("users", "passes", "c"), [(4, 2, 0.9), (6, 10, 0.7), (10, 3, 0.99)])
def test_moves_of_the_last_but_one_turns_have_the_closed_form(users, passes, c):
    # The last user of an even number, whose last turn stays: pairs of rounds contract by c.
    turns, half = range(users - 1, users * passes, users), users // 2
    rest = c ** (half * (passes - 1))
    expected = c ** (2 * half - 2) * (1 - c * c) / (1 - c**half) ** 2 * (1 - rest) / (1 + rest)
    found = squares([*turns][:-1], turns[-1], c)
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_joint_bound_saves_no_noise_and_the_page_has_its_numbers():
    stated = PAGE.read_text().split("**Several turns of one user jointly.**")[1].split("**")[0]
    found = {}
    for name, *_, worst, smallest, exact in settings():
        assert smallest > 0.98 and worst > 0.998  # a saving of 0.1 % of the noise
        assert exact < 1 and exact < worst
        found.setdefault(name, []).append(f"{worst:.2f}; {exact:.2f}")
    for name, cells in found.items():
        assert f"| {name} | {' | '.join(cells)} |" in stated
    assert " | ".join(f"{users} users, {passes} passes" for users, passes in SIZES) in stated


def test_the_joint_bound_has_less_than_one_turn_alone_where_rounds_contract_in_a_pass():
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


def largest(turns):
    """Return the largest found half squared norm of a sum of matrices times unit vectors."""
    total = np.linalg.svd(np.hstack(list(turns)))[0][:, 0]
    for _ in range(30):
        sides = np.einsum("tij,i->tj", turns, total)
        sides /= np.linalg.norm(sides, axis=1, keepdims=True)
        total = np.einsum("tij,tj->i", turns, sides)
    return total @ total / 2


def test_no_sums_of_gradients_with_hidden_iterates_lose_more_than_the_page_says():
    """Gradient descent along sums: quadratic losses that change by round, worst shifts by round."""
    ratios = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, rounds = int(rng.integers(1, 5)), int(rng.integers(1, 31))
        step, modulus = rng.choice([0.3, 1.0, 1.7]), rng.choice([0.01, 0.1, 0.5])
        c = max(1 - step * modulus, step - 1)  # of users with smoothness 1
        left, shifts = np.eye(n), []
        fixed = rng.random() < 0.5
        for _ in range(rounds):
            shifts.append(left)
            basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
            curvatures = np.full(n, modulus) if fixed else rng.uniform(modulus, 1, n)
            left = left @ (np.eye(n) - step * basis * curvatures @ basis.T)
        shifts = np.array(shifts)
        noise = np.linalg.cholesky(np.einsum("tij,tkj->ik", shifts, shifts))
        claimed = hidden_sums(c, rounds) ** 2 * rounds / 2
        ratios.append(largest(np.linalg.solve(noise, shifts)) / claimed)
    assert max(ratios) <= 1 + 1e-9
    # The claim is attained, so that a smaller one would be false.
    assert sum(ratio > 1 - 1e-9 for ratio in ratios) >= 20


def test_neighbors_on_a_network_see_every_local_update_in_full():
    """Decentralized ADMM: what all messages lose is the sum of single releases, and no less."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        agents, rounds = int(rng.integers(2, 6)), int(rng.integers(1, 9))
        edges = [pair for pair in itertools.combinations(range(agents), 2) if rng.random() < 0.7]
        edges += [(k, k + 1) for k in range(agents - 1) if (k, k + 1) not in edges]
        laplacian = np.zeros((agents, agents))
        for i, j in edges:
            laplacian[[i, j], [i, j]] += 1
            laplacian[[i, j], [j, i]] -= 1
        degrees, penalty = np.diag(np.diag(laplacian)), rng.choice([0.1, 1.0, 5.0])
        curvatures = rng.uniform(0.1, 2, agents)
        solve = np.linalg.inv(np.diag(curvatures) + 2 * penalty * degrees)
        # Columns: a shift of the first agent's gradient, then the noise of every message.
        size = 1 + agents * rounds
        shift = np.zeros((agents, size))
        shift[0, 0] = 1.0
        seen, duals = np.zeros((agents, size)), np.zeros((agents, size))
        messages = []
        for t in range(rounds):
            around = 2 * degrees - laplacian  # of an agent and its neighbors
            x = solve @ (penalty * around @ seen - duals - shift)
            seen = x.copy()
            seen[:, 1 + agents * t : 1 + agents * (t + 1)] += np.eye(agents)
            duals = duals + penalty * laplacian @ seen
            messages.append(seen)
        every = np.vstack(messages)
        exact = np.linalg.norm(np.linalg.solve(every[:, 1:], every[:, 0])) ** 2
        assert exact == pytest.approx(rounds * solve[0, 0] ** 2, rel=1e-8)
        last = messages[-1]
        hidden = last[:, 0] @ np.linalg.solve(last[:, 1:] @ last[:, 1:].T, last[:, 0])
        assert hidden <= exact * (1 + 1e-9)
