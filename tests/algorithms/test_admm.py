"""Consensus ADMM with exact local steps, round by round against its printed equations."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.consensus import HELD, study

ROUNDS = 6


def by_hand(given, linear, rho, alpha=1.0):
    """Boyd et al. (2011), section 7, in plain numpy; yields all agents' points after each round.

    ``linear(p, t)`` is the term that the data add to agent p's gradient, noise included; alpha is
    the over-relaxation of section 3.4.3, from round 2 on.
    """
    z = [np.zeros(len(held)) for held in HELD]
    lam = [np.zeros(len(held)) for held in HELD]
    for t in range(1, ROUNDS + 1):
        w = given.mean([zp - lp / rho(t) for zp, lp in zip(z, lam, strict=True)])
        points = []
        for p, (held, A) in enumerate(zip(HELD, given.A, strict=True)):
            S = np.eye(2 + len(held))[2:]
            relaxed = w[held] if t == 1 else alpha * w[held] + (1 - alpha) * z[p]
            # Where the gradient of f - <lam, S x> + rho/2 |w - S x|^2 is zero.
            slope = linear(p, t) - S.T @ (lam[p] + rho(t) * relaxed)
            x = np.linalg.solve(2 * A.T @ A + rho(t) * S.T @ S, -slope)
            z[p] = S @ x
            lam[p] = lam[p] + rho(t) * (relaxed - z[p])
            points.append(x)
        yield points


@pytest.mark.parametrize("relaxation", [1.0, 1.6, 0.7])
@pytest.mark.parametrize(
    ("penalty", "rho"),
    [(1.5, lambda t: 1.5), (dp.penalties.Growing(2.0, 0.0, 2), lambda t: 2 * 1.2 ** (t // 2))],
    ids=["constant", "growing"],
)
@pytest.mark.parametrize("noisy", [False, True])
def test_a_run_is_the_printed_iteration(noisy, penalty, rho, relaxation):
    given = study()
    budget = dict(epsilon=1.0, delta=1e-6) if noisy else dict(mechanism=None)
    method = dp.ADMM(penalty, relaxation=relaxation, acceleration=0)
    plan = given.problem.plan(method, rounds=ROUNDS, **budget)
    result = plan.run(seed=5, record=True, iterates=True)
    exact = [-2 * A.T @ b for A, b in zip(given.A, given.b, strict=True)]
    released = [given.released(result, p) for p in range(3)]
    hand = by_hand(given, lambda p, t: released[p][t - 1] if noisy else exact[p], rho, relaxation)
    for found, expected in zip(result.iterates, hand, strict=True):
        for one, other in zip(given.points(found.last), expected, strict=True):
            assert one == pytest.approx(other, rel=1e-6, abs=1e-6)


def resolved(**settings):
    method = study().problem.plan(dp.ADMM(2.0), rounds=ROUNDS, **settings).algorithm
    return method.relaxation, method.acceleration


def test_noisy_steps_are_neither_relaxed_nor_accelerated():
    budget = dict(epsilon=1.0, delta=1e-6)
    assert resolved(**budget) == (1.0, 0)
    assert resolved(mechanism=None) == resolved(**budget, release="once") == (1.6, 5)


def test_stated_numbers_are_kept_under_noise():
    method = dp.ADMM(2.0, relaxation=1.2, acceleration=3)
    plan = study().problem.plan(method, rounds=ROUNDS, epsilon=1.0, delta=1e-6)
    assert (plan.algorithm.relaxation, plan.algorithm.acceleration) == (1.2, 3)


@pytest.mark.parametrize(
    "setting", [{"relaxation": 0.0}, {"relaxation": 2.0}, {"acceleration": -1}]
)
def test_numbers_outside_their_range_are_refused(setting):
    (name,) = setting
    with pytest.raises(dp.ModelError, match=name):
        dp.ADMM(**setting)


def error(method, rounds):
    """Largest distance of a run without noise from the optimum, relative to the optimum."""
    given = study()
    best = given.problem.plan(dp.OneShot(), mechanism=None).run(verbose=False)
    found = given.problem.plan(method, mechanism=None, rounds=rounds).run(verbose=False)
    pairs = zip(given.points(found.last), given.points(best.last), strict=True)
    differences = [(one - other, other) for one, other in pairs]
    size = max(np.abs(other).max() for _, other in differences)
    return max(np.abs(difference).max() for difference, _ in differences) / size


@pytest.mark.parametrize("off", [1e-6, 1e-3, 1e3, 1e6])
def test_spectral_rule_corrects_a_penalty_that_is_far_off(off):
    rule = dp.penalties.Spectral(off)
    fixed = error(dp.ADMM(off, relaxation=1, acceleration=0), 40)
    assert error(dp.ADMM(rule), 40) < 1e-3 * fixed


def squares_that_vanish(rng):
    """Agents with different data and one minimizer, at which every multiplier is zero."""
    x, best = cp.Variable(10, name="x"), rng.normal(size=10)
    for k in range(4):
        A = rng.normal(size=(6, 10))
        b = dp.Private(A @ best, name=f"b{k}", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(A @ x - b))
        yield dp.Agent(cost, [cp.abs(x) <= 5], name=f"agent {k}")


def lines(rng):
    """Linear programs, whose copies stay at vertices while multipliers move."""
    x = cp.Variable(6, name="x")
    for k in range(3):
        c = dp.Private(np.round(rng.normal(size=6)), name=f"c{k}", adjacency=dp.Within(0.1))
        yield dp.Agent(cp.Minimize(c @ x), [x >= 0, cp.sum(x) <= 1], name=f"agent {k}")


@pytest.mark.parametrize("start", [None, 1e-6, 1.0, 3e6])
@pytest.mark.parametrize("agents", [squares_that_vanish, lines])
def test_degenerate_problems_have_the_same_solution_from_any_penalty(agents, start):
    problem = dp.Problem(list(agents(np.random.default_rng(0))))
    method = dp.ADMM() if start is None else dp.ADMM(dp.penalties.Spectral(start))
    run = problem.plan(method, mechanism=None, rounds=120).run(verbose=False)
    best = problem.plan(dp.OneShot(), mechanism=None).run(verbose=False)
    gap = dp.not_private.objective(problem, run.last) - dp.not_private.objective(problem, best.last)
    assert abs(gap) < 1e-7


def test_acceleration_takes_fewer_rounds():
    slow = error(dp.ADMM(50.0, relaxation=1, acceleration=0), 25)
    assert error(dp.ADMM(50.0, relaxation=1, acceleration=5), 25) < slow / 100
