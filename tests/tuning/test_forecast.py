"""Forecasts: simulated on copies of public proxy data, nearly right, kept, and never private."""

import pickle
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.tuning.copies import Judge, values_kept
from tests.tuning.proxied import MODELS
from tests.tuning.trials import forbidden

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@cache
def planned(name):
    return MODELS[name]().plan(**BUDGET)


def true_gaps(plan, seeds):
    """Gaps of runs on the true data."""
    problem = plan.problem
    data = {p: p._seal for agent in problem.agents for p in agent.private}
    with values_kept(problem):
        judge = Judge(problem, data, "a test")
        runs = (plan.run(seed=seed, verbose=False).solution for seed in range(seeds))
        return [judge(run) - judge.optimum for run in runs]


@pytest.mark.parametrize("name", ["assignment", "completion", "doptimal", "Kalman"])
def test_a_forecast_is_within_a_factor_of_three_of_the_true_median_gap(name):
    """The models whose bounds were 8 to 1,500 times too pessimistic; data are drawn six times."""
    found = planned(name).forecast(600)
    assert len(found.gaps) == 12 and found.quartiles[0] <= found.gap <= found.quartiles[1]
    gaps = [gap for data in range(6) for gap in true_gaps(MODELS[name](data).plan(**BUDGET), 4)]
    assert 1 / 3 < found.gap / np.median(gaps) < 3


def test_the_optimum_for_the_proxy_is_said_to_be_better_first():
    plan = planned("completion")
    found = plan.forecast(600)
    assert found.prefers_proxy and found.proxy < found.gap < found.start
    first = " ".join(str(plan).split("\n", 1)[1].split())
    assert first.startswith("Accuracy The optimum for the public proxy data is predicted to be")
    assert "Assumed error of the proxy: 20 % of each entry; the plan is better above" in first


def target(like, **declared):
    x = cp.Variable(4, name="x")
    d = dp.Private(forbidden, shape=4, name="d", adjacency=dp.Within(0.1), proxy=like, **declared)
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])


def test_a_forecast_reads_no_private_data_and_leaves_no_trace():
    problem = target([1.0, 2.0, 3.0, 4.0])
    (x,) = problem.variables()
    x.value = np.ones(4)
    problem.plan(**BUDGET).forecast(600)  # cvxpy keeps caches in the expressions that it compiles
    plan = problem.plan(**BUDGET)
    before, mark = pickle.dumps(plan), plan.fingerprint
    found = plan.forecast(600)
    assert found.gaps and plan.forecast() is found and plan.forecast(600) is found
    assert pickle.dumps(plan) == before and plan.fingerprint == mark
    assert np.array_equal(x.value, np.ones(4)) and problem.status is None
    assert all(p.uses.releases == 0 for agent in problem.agents for p in agent.private)
    assert pickle.loads(before).forecast(600) == found


def test_a_forecast_is_the_same_for_every_reader():
    one, other = (target([1.0, 2.0, 3.0, 4.0]).plan(**BUDGET).forecast(600) for _ in range(2))
    assert one == other and str(one) == str(other)


def test_without_time_nothing_is_claimed_and_more_time_is_taken():
    plan = target([1.0, 2.0, 3.0, 4.0]).plan(**BUDGET)
    found = plan.forecast(1e-9)
    assert not found.gaps and str(found) == "Not simulated; call plan.forecast(time_limit=60)."
    assert plan.forecast(600).gaps
    with pytest.raises(dp.ModelError, match=r"time_limit=0\) must be a positive"):
        plan.forecast(0)


def test_without_a_proxy_noise_is_told_and_no_percentage():
    plan = target(None).plan(**BUDGET)
    assert not plan.forecast().gaps and str(plan.forecast()) == plan.remarks
    assert "(one change: 0.1)" in plan.remarks and "%" not in plan.remarks
    found = plan.forecast(600, proxy={"d": [1.0, 2.0, 3.0, 4.0]})
    assert found.gaps and not plan.forecast().gaps


def test_a_plan_without_noise_has_no_forecast():
    plan = target([1.0, 2.0, 3.0, 4.0]).plan(mechanism=None)
    assert not plan.forecast().gaps and str(plan.forecast()) == ""


def test_compare_scores_the_default_as_its_plan_forecasts():
    """The same copies and the same judge: the figures of rivals are equal, of runs nearly."""
    problem = target([1.0, 2.0, 3.0, 4.0])
    found = problem.plan(**BUDGET).forecast(600)
    compared = problem.tradeoff([1.0], delta=1e-6, runs=12, verbose=False, time_limit=600)
    assert compared.start == pytest.approx(found.start, rel=1e-6)
    assert compared.proxy == pytest.approx(found.proxy, rel=1e-6)
    # Medians of 12 and 12 sums of four squares of Laplace noise differ by more in 1 of 1e3 suites.
    assert 1 / 3 < np.median(compared.gaps[0]) / found.gap < 3
