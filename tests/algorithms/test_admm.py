"""Consensus ADMM with exact local steps, round by round against its printed equations."""

import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.consensus import HELD, study

ROUNDS = 6


def by_hand(given, linear, rho):
    """Boyd et al. (2011), section 7, in plain numpy; yields all agents' points after each round.

    ``linear(p, t)`` is the term that the data add to agent p's gradient, noise included.
    """
    z = [np.zeros(len(held)) for held in HELD]
    lam = [np.zeros(len(held)) for held in HELD]
    for t in range(1, ROUNDS + 1):
        w = given.mean([zp - lp / rho(t) for zp, lp in zip(z, lam, strict=True)])
        points = []
        for p, (held, A) in enumerate(zip(HELD, given.A, strict=True)):
            S = np.eye(2 + len(held))[2:]
            # Where the gradient of f - <lam, S x> + rho/2 |w - S x|^2 is zero.
            slope = linear(p, t) - S.T @ (lam[p] + rho(t) * w[held])
            x = np.linalg.solve(2 * A.T @ A + rho(t) * S.T @ S, -slope)
            z[p] = S @ x
            lam[p] = lam[p] + rho(t) * (w[held] - z[p])
            points.append(x)
        yield points


@pytest.mark.parametrize(
    ("penalty", "rho"),
    [(1.5, lambda t: 1.5), (dp.penalties.Growing(2.0, 0.0, 2), lambda t: 2 * 1.2 ** (t // 2))],
    ids=["constant", "growing"],
)
@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_is_the_printed_iteration(noisy, penalty, rho):
    given = study()
    budget = dict(epsilon=1.0, delta=1e-6) if noisy else dict(mechanism=None)
    plan = given.problem.plan(dp.ADMM(penalty), rounds=ROUNDS, **budget)
    result = plan.run(seed=5, record=True, iterates=True)
    exact = [-2 * A.T @ b for A, b in zip(given.A, given.b, strict=True)]
    released = [given.released(result, p) for p in range(3)]
    hand = by_hand(given, lambda p, t: released[p][t - 1] if noisy else exact[p], rho)
    for found, expected in zip(result.iterates, hand, strict=True):
        for one, other in zip(given.points(found.last), expected, strict=True):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-6)
