"""Plans whose steps must lead to infinity say so, and only these."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

# The mean of the agents' second derivatives: 2 (1 + 9) / 2 and 2 (1 + 1) / 2.
LARGEST = 10.0


def problem(bounds=False, kink=False):
    x = cp.Variable(2, name="x")
    agents = []
    for k, scale in enumerate((1.0, 3.0)):
        d = dp.Private(np.array([1.0, -1.0]), name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(cp.multiply([scale, 1.0], x) - d)
        cost += 0.1 * cp.sum(cp.huber(x)) if kink else 0
        limits = [cp.abs(x) <= 5] if bounds else []
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=f"a{k}"))
    return dp.Problem(agents)


METHODS = [
    lambda step: dp.FederatedAveraging(step),
    lambda step: dp.DecentralizedGradient("complete", step, "mean"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise", [None, "gaussian"])
def test_what_a_plan_says_of_too_long_steps_is_what_happens(method, noise):
    budget = {} if noise is None else {"epsilon": 1.0, "delta": 1e-6}
    for step, grows in ((1.02 * 2 / LARGEST, True), (0.98 * 2 / LARGEST, False)):
        plan = problem().plan(method(step), mechanism=noise, rounds=60, **budget)
        text = " ".join(str(plan).split())
        assert ("Without constraints, steps above 0.2 move away" in text) is grows
        assert ("Write step=0.1, or leave step= out." in text) is grows
    # Far above the limit 60 rounds show it.
    result = problem().plan(method(1.0), mechanism=None, rounds=60).run()
    assert result.status is dp.Status.DIVERGED or np.abs(result.last.vectors[0]).max() > 1e6


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", [{"bounds": True}, {"kink": True}])
def test_what_is_not_proved_is_not_said(method, model):
    plan = problem(**model).plan(method(1.0), mechanism=None, rounds=3)
    assert plan.algorithm.diverges(plan.program) == ""
    assert "is too long" not in str(plan)


@pytest.mark.parametrize(
    "method",
    [
        dp.FederatedAveraging(),
        dp.FederatedAveraging(dp.steps.Sqrt()),
        dp.DecentralizedGradient("complete", 1.0, "mixing"),
        dp.DecentralizedGradient("complete", 1.0, "mean", coordinates=1),
        dp.LinearizedADMM(step=1.0, penalty=1.0),
    ],
    ids=str,
)
def test_other_steps_and_methods_are_not_judged(method):
    plan = problem().plan(method, mechanism=None, rounds=3)
    assert plan.algorithm.diverges(plan.program) == ""
