"""Noise shaped to a problem: how good the shape is, and that no guarantee rests on it."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.data_shape import best_shape
from dpcvx.defaults.study import predicted_gap, responses
from dpcvx.defaults.study import study as compiled
from dpcvx.privacy.randomness import Seeded

ONCE = dict(release="once", epsilon=1.0, delta=1e-6)


def regression(A, unit=1.0, adjacency=None):
    """Least squares with a small ridge and private targets."""
    n = A.shape[1]
    ridge = 1e-3 * np.trace(A.T @ A) / n
    x = cp.Variable(n, name="x")
    b = dp.Private(A.sum(axis=1), name="b", adjacency=adjacency or dp.Within(1.0))
    cost = cp.sum_squares((A / unit) @ x - b) / 2 + ridge / 2 * cp.sum_squares(x / unit)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), name="solo")])
    return A.T @ A + ridge * np.eye(n), problem


def drawn(columns, rows, seed, m=200, n=10):
    A = np.random.default_rng(seed).normal(size=(m, n))
    return A * np.logspace(0, columns, n) * np.logspace(0, rows, m)[:, None]


def planned(problem, mechanism="gaussian", **budget):
    plan = problem.plan(dp.OneShot(), mechanism=mechanism, **(ONCE | budget))
    agent, (response,) = plan.agents[0], responses(plan.program)
    return plan, agent, predicted_gap(agent.publication, agent.noise, response)


# By how much the cost of equal noise on the data and on the slope exceeds that of shaped noise: by
# another search, medians of three other draws (L-BFGS over factors of X).
TABLE = {
    "20 x 10": ((0, 0), 20, 1.68, 4.53),
    "200 x 10": ((0, 0), 200, 10.3, 1.47),
    "columns 1 to 1/30": ((-1.5, 0), 200, 10.7, 118),
    "rows 1 to 1/30": ((0, -1.5), 200, 3.59, 2.32),
    "both": ((-1.5, -1.5), 200, 3.48, 96),
}


@pytest.mark.parametrize("name", TABLE)
def test_shaped_noise_costs_what_the_best_shape_does(name):
    rng = np.random.default_rng(1)
    found = {}
    for label, ((columns, rows), m, *_) in TABLE.items():
        ratios = []
        for _ in range(3):
            A = rng.standard_normal((m, 10))
            A = A * np.logspace(0, columns, 10) * np.logspace(0, rows, m)[:, None]
            if label != name:
                continue
            H, problem = regression(A)
            _, agent, gap = planned(problem)
            W, noise = np.linalg.inv(H), agent.noise.variance(1.0) / 2
            data, slope = np.sum((A @ W) * A), np.max(np.sum(A**2, axis=1)) * np.trace(W)
            ratios.append((noise * data / gap, noise * slope / gap))
        found[label] = ratios
    expected = TABLE[name][2:]
    assert np.median(found[name], axis=0) == pytest.approx(expected, rel=0.05)


def test_nothing_is_shaped_where_it_brings_nothing():
    k = np.arange(40)
    _, problem = regression(np.exp(-np.abs(k[:, None] - k) / 4.0))
    assert planned(problem)[1].publication.kind == "data"


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_other_units_of_features_change_nothing(mechanism):
    A = drawn(-0.5, 0, 3, m=60, n=5)
    gaps, kinds = [], set()
    for unit in (1.0, 1e3, np.geomspace(1e-2, 1e2, 5)):
        budget = {} if mechanism == "gaussian" else {"delta": 0}
        _, agent, gap = planned(regression(A, unit)[1], mechanism, **budget)
        gaps.append(gap)
        kinds.add(agent.publication.kind)
    assert kinds == {"shaped slope"}
    # The search for Laplace noise ends before it is at rest.
    assert gaps == pytest.approx(3 * [gaps[0]], rel=1e-6 if mechanism == "gaussian" else 0.02)


def bounded(seed, informed=True, unit=1.0, wrong=0.0):
    """Least squares with the last ten of twelve variables held by bounds, and its optimum."""
    rng = np.random.default_rng(seed)
    A, truth = rng.normal(size=(100, 12)), rng.normal(size=12)
    truth[2:] = -1.2 - 0.2 * np.abs(truth[2:])
    expected = A @ truth
    data = expected + 1e-3 * rng.normal(size=100)
    x = cp.Variable(12, name="x")
    d = dp.Private(
        data, name="d", proxy=(1 + wrong) * expected if informed else None,
        adjacency=dp.Within(0.005),
    )  # fmt: skip
    cost, limits = cp.sum_squares((A / unit) @ x - d), [x[2:] >= -unit]
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), limits, name="solo")])
    best = np.linalg.lstsq(A[:, :2], data + A[:, 2:].sum(axis=1))[0]
    optimum = np.append(best, -np.ones(10))
    least = np.sum((A @ optimum - data) ** 2)
    assert (2 * A[:, 2:].T @ (A @ optimum - data) > 0).all()
    return problem, lambda run: np.sum((A @ run.solution["x"] / unit - data) ** 2) - least


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_goes_where_inequalities_hold_against_it(mechanism):
    gaps = {False: [], True: []}
    for seed in range(3):
        for informed, found in gaps.items():
            problem, gap = bounded(seed, informed)
            plan = problem.plan(dp.OneShot(), mechanism=mechanism, **ONCE)
            agent, (around,) = plan.agents[0], compiled(problem).responses
            found.append(np.mean([gap(plan.run(seed=k, verbose=False)) for k in range(40)]))
        # Measured: 0.6 to 0.95. The mean of 40 has a relative standard error of 0.15.
        predicted = predicted_gap(agent.publication, agent.noise, around)
        assert 0.4 * predicted < gaps[True][-1] < 1.5 * predicted
    # Measured 2.0 and 3.6; 1 without forces.
    assert np.mean(gaps[False]) > 1.4 * np.mean(gaps[True])


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_other_units_change_nothing_where_inequalities_hold(mechanism):
    found = []
    for unit in (1.0, 1e3):
        problem, gap = bounded(0, unit=unit)
        plan = problem.plan(dp.OneShot(), mechanism=mechanism, **ONCE)
        agent, (around,) = plan.agents[0], compiled(problem).responses
        assert agent.publication.kind == "shaped slope"
        predicted = predicted_gap(agent.publication, agent.noise, around)
        found.append(
            (predicted, np.mean([gap(plan.run(seed=k, verbose=False)) for k in range(40)]))
        )
    (one, measured), (other, again) = found
    assert other == pytest.approx(one, rel=1e-3 if mechanism == "gaussian" else 0.02)
    # Means of 40 with a relative standard error of 0.15 each.
    assert 0.3 < again / measured < 3.3


@pytest.mark.parametrize("wrong", [0.0, -2.0], ids=["good", "bad"])
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_stand_ins_move_noise_and_no_guarantee(mechanism, wrong):
    problem, _ = bounded(0, wrong=wrong)
    plan = problem.plan(dp.OneShot(), mechanism=mechanism, **ONCE)
    agent = plan.agents[0]
    found, norm = agent.publication, agent.noise.mechanism.norm
    assert found.kind == "shaped slope"
    # By brute force: each entry alone moves by the whole radius.
    moved = [
        np.linalg.norm(found.statistic([step]) - found.statistic([0 * step]), norm)
        for step in 0.005 * np.eye(100)
    ]
    assert max(moved) == pytest.approx(found.sensitivity, rel=1e-6)
    assert dp.check_sensitivity(plan).passed
    half = replace(agent, publication=replace(found, sensitivity=found.sensitivity / 2))
    assert not dp.check_sensitivity(replace(plan, agents=(half,))).passed


def losses(seed, informed, unit=1.0):
    """Public losses that are steep along some variables only, and a private slope."""
    rng = np.random.default_rng(seed)
    F, M = rng.normal(size=(200, 6)) * np.geomspace(1, 0.1, 6) / unit, rng.normal(size=(6, 60))
    expected = 0.04 * rng.normal(size=60)
    x = cp.Variable(6, name="x")
    data = expected + 1e-4 * rng.normal(size=60)
    d = dp.Private(
        data, name="d", proxy=expected if informed else None,
        adjacency=dp.Within(1e-3),
    )  # fmt: skip
    cost = cp.sum(cp.logistic(F @ x) + cp.logistic(-F @ x)) - (M @ d) @ x / unit
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 20 * unit], name="solo")])

    def value(point):
        z = F @ point
        return np.sum(np.logaddexp(0, z) + np.logaddexp(0, -z)) - M @ data @ point / unit

    optimum = np.zeros(6)
    for _ in range(30):  # Newton's method
        slope = np.tanh(F @ optimum / 2)
        H = F.T @ (F * (1 - slope**2)[:, None]) / 2
        optimum = optimum - np.linalg.solve(H, F.T @ slope - M @ data / unit)
    return problem, lambda run: value(run.solution["x"]) - value(optimum)


@pytest.mark.parametrize("informed", [False, True], ids=["start", "stand-ins"])
def test_objectives_that_are_not_quadratic_bend_as_at_a_public_point(informed):
    ratios = []
    for seed in range(2):
        problem, gap = losses(seed, informed)
        plan = problem.plan(dp.OneShot(), mechanism="gaussian", **ONCE)
        agent, (around,) = plan.agents[0], compiled(problem).responses
        assert agent.publication.kind == "shaped slope"
        gaps = [gap(plan.run(seed=k, verbose=False)) for k in range(40)]
        ratios.append(
            np.mean(gaps) / predicted_gap(agent.publication, agent.noise, around),
        )
    # Six squares each: means of 40 have a relative standard error of 0.12 at most.
    assert min(ratios) > 0.5 and max(ratios) < 1.7


def test_other_units_of_losses_change_nothing():
    gaps = []
    for unit in (1.0, 1e3, 1e-3):
        problem, _ = losses(0, informed=True, unit=unit)
        agent = problem.plan(dp.OneShot(), mechanism="gaussian", **ONCE).agents[0]
        (around,) = compiled(problem).responses
        gaps.append(predicted_gap(agent.publication, agent.noise, around))
    assert gaps == pytest.approx(3 * gaps[:1], rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_the_shape_is_the_best_of_many(seed):
    rng = np.random.default_rng(seed)
    changes, R = rng.normal(size=(3, 12)), rng.normal(size=(3, 3))
    W = R @ R.T + 0.5 * np.eye(3)

    def cost(K):
        back = changes @ np.linalg.pinv(K)
        return np.max(np.sum(K**2, axis=0)) * np.trace(W @ back @ back.T)

    best = best_shape(changes, W, 2)
    assert np.linalg.matrix_rank(np.vstack([best, changes])) == 3
    for _ in range(300):
        other = best + 0.3 * rng.normal(size=(3, 3)) @ best
        # The best of a problem with a little more influence everywhere, to a hundredth.
        assert cost(best) <= 1.02 * cost(other)
    equal = np.linalg.lstsq(changes, np.eye(3))[0].T @ changes.T @ changes
    assert cost(best) < 0.95 * cost(equal)


def test_without_influence_there_is_no_shape():
    assert best_shape(np.ones((2, 3)), np.zeros((2, 2)), 2) is None
    assert best_shape(np.zeros((2, 3)), np.eye(2), 2) is None


@pytest.mark.parametrize("seed", range(3))
def test_a_search_that_cannot_reach_what_is_of_use_ends_early_and_others_are_the_same(seed):
    rng = np.random.default_rng(seed)
    changes, R = rng.normal(size=(4, 8)), rng.normal(size=(4, 4))
    W = R @ R.T + 0.5 * np.eye(4)
    best = best_shape(changes, W, 1)
    back = changes @ np.linalg.pinv(best)
    cost = np.abs(best).sum(axis=0).max() ** 2 * np.trace(W @ back @ back.T)
    # Of as much use as it turns out to be, and a little less: the same shape, bit by bit.
    for below in (cost, 1.1 * cost):
        assert np.array_equal(best_shape(changes, W, 1, below), best)
    assert best_shape(changes, W, 1, 0.9 * cost) is None


def test_a_search_that_would_take_long_is_left_out():
    assert best_shape(np.zeros((1, 10**7)), np.eye(1), 2) is None


@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(noise_multiplier=2.0), dp.Laplace(noise_multiplier=2.0)]
)
@pytest.mark.parametrize("adjacency", [dp.Within(0.3), dp.Within(0.3, 1), dp.Rows(4.0)], ids=str)
def test_the_worst_entry_moves_a_shaped_release_by_what_is_charged(mechanism, adjacency):
    A = drawn(-1, -0.5, 4, m=25, n=3)
    A /= np.abs(A.sum(axis=1)).max()
    _, problem = regression(A, adjacency=adjacency)
    plan = problem.plan(
        dp.OneShot(), mechanism=mechanism, delta=None if mechanism.norm == 1 else 1e-6,
        release="once",
    )  # fmt: skip
    agent = plan.agents[0]
    assert agent.publication.kind == "shaped slope"
    lengths = np.linalg.norm(agent.publication.encode.toarray(), mechanism.norm, axis=0)
    worst, data = int(np.argmax(lengths)), A.sum(axis=1)
    radius = adjacency.radius
    if isinstance(adjacency, dp.Rows):
        data = data.copy()
        data[worst] = -adjacency.max_norm
    other = data.copy()
    other[worst] += radius
    found = dp.check_sensitivity(plan, {"b": other}, data={"b": data})
    assert found.passed
    # The grid's own part of the charge is 2^-16 of it.
    assert found.agents[0].ratio == pytest.approx(1.0, abs=1e-4)
    assert dp.check_sensitivity(plan).passed


@pytest.mark.parametrize(
    "mechanism", [dp.Gaussian(noise_multiplier=2.0), dp.Laplace(noise_multiplier=2.0)]
)
def test_the_noise_in_restored_slopes_has_the_stated_covariance(mechanism):
    A = drawn(-0.5, 0, 5, m=30, n=3)
    _, problem = regression(A)
    plan = problem.plan(
        dp.OneShot(), mechanism=mechanism, delta=None if mechanism.norm == 1 else 1e-6,
        release="once",
    )  # fmt: skip
    agent = plan.agents[0]
    found, J = agent.publication, agent.sensitivity.jacobians[0].toarray()
    assert found.kind == "shaped slope"
    data = [np.linspace(-1, 1, 30)]
    grid = agent.noise.grid(found.sensitivity, found.size)
    exact, source = found.statistic(data), Seeded(6, (0,))
    noise = np.array(
        [
            J @ (found.restore(agent.noise.release(exact, grid, source.at(t, 1)))[0] - data[0])
            for t in range(3000)
        ]
    )
    S = found.slope_covariance(agent.noise.variance(grid.sensitivity)).toarray()
    back = np.linalg.inv(np.linalg.cholesky(S))
    white = noise @ back.T
    # Squares of whitened noise have variance 2, at most 5 for Laplace noise: 3000 of them have a
    # standard error of 4 % at most. Beyond 5 of them with probability 4e-6 in all.
    error = 5 * np.sqrt(5 if mechanism.norm == 1 else 2) / np.sqrt(3000)
    measured = white.T @ white / 3000
    assert np.abs(measured - np.eye(3)).max() < error
    # Power: noise of equal size in all components of the slope would be told apart.
    equal = np.trace(S) / 3 * back @ back.T
    assert np.abs(equal - np.eye(3)).max() > 2 * error
