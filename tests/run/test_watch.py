"""Runs that come to rest end as completed, those that do not as unsettled."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Residuals
from dpcvx.run.watch import Largest, arrives


def clinics(pull=1.0, unit=1.0, scale=1.0):
    """Three agents that pull x to k, in these units of x and of objectives."""
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(3):
        d = dp.Private(unit * np.array([k, -k]), name=f"d{k}", adjacency=dp.Within(0.1 * unit))
        cost = scale * pull * cp.sum_squares((x - d) / unit)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 50 * unit], name=f"a{k}"))
    return dp.Problem(agents)


METHODS = {
    "short steps": (1.0, dict(penalty=1.0, step=0.1)),
    "long steps": (1.0, dict(penalty=10.0, step=0.4)),
    "falling steps": (1.0, dict(penalty=2.0, step=dp.steps.Sqrt(first=0.3))),
    "four at a time": (1.0, dict(penalty=1.0, step=0.1, local_updates=4)),
}


@pytest.mark.parametrize("release", ["none", "once"])
def test_without_noise_in_the_rounds_rest_is_rest(release):
    settings = dict(mechanism=None)
    if release == "once":
        settings = dict(epsilon=1.0, delta=1e-6, release="once")
    for rounds, status in ((4, dp.Status.UNSETTLED), (200, dp.Status.COMPLETED)):
        plan = clinics().plan(dp.ADMM(penalty=1.0), rounds=rounds, **settings)
        result = plan.run(seed=0, record=True)
        assert result.status is status
        assert plan.replay(result.transcript).status is status
        assert result.status.solved
    assert "Plan more rounds" in " ".join(dp.Status.UNSETTLED.value.split())


@pytest.mark.parametrize("name", METHODS)
def test_noise_alone_leaves_a_run_settled(name):
    """A false alarm has a probability below 1e-4 a run, so of 12 runs below 0.002."""
    pull, settings = METHODS[name]
    plan = clinics(pull).plan(
        dp.LinearizedADMM(**settings), rounds=60, epsilon=1.0, delta=1e-6, mechanism="gaussian"
    )
    for seed in range(12):
        assert plan.run(seed=seed).status is dp.Status.COMPLETED


def test_more_than_noise_is_not_settled():
    """The penalty is a thousandth of the curvature: copies come together in 1000 rounds."""
    weak = dp.LinearizedADMM(penalty=2e-3, step=0.3)
    plan = clinics().plan(weak, rounds=30, epsilon=300.0, delta=1e-6, mechanism="gaussian")
    for seed in range(10):
        assert plan.run(seed=seed).status is dp.Status.UNSETTLED


@pytest.mark.parametrize(("unit", "scale"), [(1.0, 1e3), (1e-2, 1.0), (1e4, 1e-3)])
def test_units_do_not_matter(unit, scale):
    curvature = scale / unit**2
    for penalty, status in ((1.0, dp.Status.COMPLETED), (2e-3, dp.Status.UNSETTLED)):
        method = dp.LinearizedADMM(penalty=penalty * curvature, step=0.3 / curvature)
        plan = clinics(unit=unit, scale=scale).plan(
            method, rounds=30, epsilon=300.0, delta=1e-6, mechanism="gaussian"
        )
        assert plan.run(seed=0).status is status


def test_values_that_drift_for_ever_are_not_settled():
    """Two agents pull with the same force; nothing bounds x, as far as the plan can prove."""
    x = cp.Variable(name="x")
    d = dp.Private(np.array(1.0), name="d", adjacency=dp.Within(0.1))
    agents = [dp.Agent(cp.Minimize(d * x), name="a"), dp.Agent(cp.Minimize(2.0 * x), name="b")]
    plan = dp.Problem(agents).plan(
        dp.LinearizedADMM(penalty=1.0, step=0.1), rounds=100, mechanism=None
    )
    assert plan.run().status is dp.Status.UNSETTLED


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("penalty", [0.2, 1.0, 5.0])
def test_the_floor_is_what_noise_does_to_copies_without_other_forces(penalty, spread):
    """The iteration in plain numpy, with objectives 0: over 10,000 rounds."""
    eta, agents, rounds = 0.3, 4, 10_000
    D, rng = 1 / eta + penalty, np.random.default_rng(0)
    z, lam, squares = np.zeros(agents), np.zeros(agents), 0.0
    for _ in range(rounds):
        w = np.mean(z - lam / penalty)
        z = (z / eta + penalty * w + lam - spread * rng.normal(size=agents)) / D
        lam = lam + penalty * (w - z)
        squares += float(np.sum((w - z) ** 2)) / rounds
    x = cp.Variable(name="x")
    names = "abcd"
    program = (
        dp.Problem([dp.Agent(cp.Minimize(cp.square(x)), name=n) for n in names])
        .plan(dp.ADMM(penalty=1.0), mechanism=None, rounds=1)
        .program
    )
    floor = dp.LinearizedADMM(penalty=penalty, step=eta).noise_floor(
        program, [spread] * agents, rounds, penalty
    )
    assert 1.0 < floor / math.sqrt(squares) < 1.6


def test_largest_residuals_are_kept_and_the_first_has_no_move():
    first = Residuals(primal=2.0, dual=math.nan, mismatch=1.0, penalty=4.0)
    second = Residuals(primal=1.0, dual=8.0, mismatch=1.0, penalty=4.0)
    largest = Largest().after(first).after(second)
    assert largest == Largest(2.0, 2.0)
    rest = Residuals(primal=0.019, dual=0.079, mismatch=0.0, penalty=4.0)
    assert largest.settled(rest, 0.0, 0.0)
    for field in ("primal", "dual"):
        moving = Residuals(**{**vars(rest), field: 0.081})
        assert not largest.settled(moving, 0.0, 0.0)
        assert largest.settled(moving, 0.03, 0.0) and largest.settled(moving, 0.0, 1e5)


# -- runs that are under way -----------------------------------------------------------------------


def test_points_that_go_on_have_not_arrived():
    start, rounds = np.zeros(3), np.arange(9.0)[:, np.newaxis]
    steady = [*(rounds * np.array([1.0, -2.0, 0.0]))]
    falling = [*(np.sqrt(rounds) * np.ones(3))]
    near = [start, *(np.ones(3) * (1 - 0.3 ** rounds[1:]))]
    assert not arrives(steady, 0.0, 16.0) and not arrives(falling, 0.0, 3.0)
    assert arrives(near, 0.0, 1.0) and arrives([start, start, start], 0.0, 0.0)
    assert not arrives(steady, None, 16.0) and not arrives(falling, None, 3.0)
    assert arrives(near, None, 1.0)
    assert arrives(steady[:2], 0.0, 16.0)  # one part tells nothing


def test_noise_that_walks_has_arrived():
    """Of an unknown size it is told apart wrongly in 1 of 16 runs at most; of 400, in 44 at most.

    That many have a probability below 1e-4, if each has 1/16.
    """
    rng = np.random.default_rng(0)
    paths = rng.normal(size=(400, 9, 1))
    assert sum(not arrives([*path], None, 1.0) for path in paths) <= 44
    walks = np.cumsum(rng.normal(size=(400, 9, 4)), axis=1)
    assert all(arrives([*walk], 2 * math.sqrt(4.0), 1.0) for walk in walks)


FREE = cp.Variable(2, name="z")
PULL = dp.Private(np.ones(2), name="pull", adjacency=dp.Within(0.1))


@pytest.mark.parametrize("noise", [{"mechanism": None}, {"epsilon": 1.0, "delta": 1e-6}])
@pytest.mark.parametrize("method", [dp.FederatedAveraging(step=0.1), dp.LinearizedADMM(step=0.1)])
def test_a_run_of_one_agent_that_falls_for_ever_is_not_completed(method, noise):
    agent = dp.Agent(cp.Minimize(-PULL @ FREE - 2 * cp.sum(FREE)), name="a")
    result = dp.Problem([agent]).plan(method, rounds=100, **noise).run(seed=0)
    assert result.status is dp.Status.UNSETTLED


def test_a_concave_objective_without_bounds_is_not_completed():
    agent = dp.Agent(cp.Maximize(cp.sum_squares(FREE - PULL)), name="a")
    for rounds, status in ((10, dp.Status.UNSETTLED), (200, dp.Status.DIVERGED)):
        plan = dp.Problem([agent]).plan(dp.FederatedAveraging(), rounds=rounds, mechanism=None)
        assert plan.run(seed=0).status is status


def sparse():
    """Sparse logistic regression in two agents, whose steps become short long before the optimum.

    After 500 rounds it is more than 5 % above the optimum.
    """
    rng, w = np.random.default_rng(0), cp.Variable(10, name="w")
    truth = np.r_[np.full(3, 2.0), np.zeros(7)]
    agents = []
    for k in range(2):
        X = rng.normal(size=(100, 10)) / 4
        y = np.sign(X @ truth + 0.3 * rng.normal(size=100))
        records = dp.Private(y[:, np.newaxis] * X, name=f"X{k}", adjacency=dp.Rows(3.0))
        cost = cp.sum(cp.logistic(-(records @ w))) / 100 + (0.01 * cp.norm1(w) if k == 0 else 0)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 20], name=f"a{k}"))
    return dp.Problem(agents)


def test_a_slow_run_is_not_completed():
    problem = sparse()
    plan = problem.plan(dp.FederatedGradient(), rounds=500, mechanism=None)
    result = plan.run(record=True)
    assert result.status is dp.Status.UNSETTLED
    best = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
    assert dp.not_private.objective(problem, result.solution) > 1.05 * best
    assert plan.replay(result.transcript).status is result.status


def test_a_slow_run_of_logarithms_is_not_completed():
    x = cp.Variable(4, name="x")
    weights = dp.Private(
        np.array([1.0, 2, 3, 4]), name="weights", adjacency=dp.Within(0.01), nonneg=True
    )
    for least, status in ((0.001, dp.Status.UNSETTLED), (0.1, dp.Status.COMPLETED)):
        agent = dp.Agent(cp.Minimize(-weights @ cp.log(x)), [x >= least, cp.sum(x) <= 1])
        assert dp.Problem([agent]).solve(mechanism=None).status is status
