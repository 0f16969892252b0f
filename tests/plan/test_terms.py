"""What a plan refuses, resolves and states."""

import math
import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import overlapping_slices, power_line


def problem_with(cost, *constraints):
    return dp.Problem([dp.Agent(cp.Minimize(cost), list(constraints), name="solo")])


@pytest.fixture
def x():
    return cp.Variable(3, name="x")


@pytest.fixture
def d():
    return dp.Private(np.arange(3.0), name="d", adjacency=dp.Within(0.1))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_a_total_budget_is_used_up_and_not_exceeded(mechanism):
    plan = power_line().problem.plan(
        dp.LinearizedADMM(), mechanism=mechanism, rounds=30, epsilon=0.7, delta=1e-5
    )
    assert 0.7 * (1 - 1e-5) <= plan.guarantee.epsilon <= 0.7
    assert plan.guarantee.delta == 1e-5


def test_pure_laplace_has_delta_zero():
    plan = power_line().problem.plan(
        dp.LinearizedADMM(), mechanism=dp.Laplace(), rounds=10, epsilon=2.0, delta=0
    )
    assert plan.guarantee.delta == 0.0
    assert plan.guarantee.epsilon == pytest.approx(2.0)
    assert plan.agents[0].noise.multiplier == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mechanism": dp.Gaussian(noise_multiplier=3.0)},
            r"delta=None.*plan\(\.\.\., delta=1e-6\)",
        ),
        ({"epsilon": 1.0, "delta": 0.0}, r"delta=0\.0.*dp\.Laplace"),
        ({"epsilon": 1.0, "delta": 1.5}, r"got 1\.5"),
        ({"epsilon": -1.0, "delta": 1e-6}, r"epsilon=-1\.0"),
        ({"epsilon": math.nan, "delta": 1e-6}, "epsilon=nan"),
        ({"delta": 1e-6}, "no privacy budget"),
        ({"mechanism": "uniform", "epsilon": 1.0, "delta": 0}, "mechanism='uniform' is unknown"),
        (
            {"mechanism": dp.Gaussian(noise_multiplier=3.0), "epsilon": 1.0, "delta": 1e-6},
            r"has a fixed level: with it, the plan costs epsilon \S+, more than epsilon=1\.",
        ),
        ({"mechanism": dp.Laplace(), "delta": 1e-6}, "no privacy budget"),
    ],
)
def test_incomplete_or_contradictory_budgets_are_refused(arguments, message):
    with pytest.raises(dp.PrivacyError, match=f"(?s){message}"):
        power_line().problem.plan(dp.LinearizedADMM(), **arguments)


@pytest.mark.parametrize("rounds", [0, -3, 2.5, True])
def test_rounds_must_be_a_positive_int(rounds):
    with pytest.raises(dp.ModelError, match="rounds="):
        power_line().problem.plan(dp.LinearizedADMM(), rounds=rounds, epsilon=1.0, delta=1e-6)


def test_an_algorithm_is_an_object_not_a_class_or_a_name():
    for wrong, words in (
        (dp.ADMM, r"ADMM is a class\. Call it: ADMM\(\)"),
        ("ADMM", r"problem\.plan\(dp\.LinearizedADMM"),
    ):
        with pytest.raises(dp.ModelError, match=words):
            power_line().problem.plan(wrong, epsilon=1.0, delta=1e-6)


def test_a_nonconvex_objective_is_refused_by_name(x, d):
    problem = problem_with(cp.sum_squares(x - d) + cp.sum(cp.sqrt(x)))
    with pytest.raises(dp.ModelError, match=r"objective of agent 'solo'.*DCP"):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)


def test_a_nonconvex_constraint_is_refused_by_position(x, d):
    problem = problem_with(cp.sum_squares(x - d), x <= 1, cp.norm(x) >= 1)
    with pytest.raises(dp.ModelError, match="Constraint 1 of agent 'solo'"):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "constraints",
    [
        lambda x: [x >= 1, x <= 0],
        lambda x: [cp.sum(x) == 4, x >= 0, x <= 1],
        lambda x: [cp.norm(x) <= 1, cp.sum(x) >= 5],
        lambda x: [cp.norm(x) <= -1],
        lambda x: [0 * x[0] >= 1],
    ],
    ids=["box", "simplex", "cone", "negative radius", "constant"],
)
def test_an_empty_set_is_refused_by_name(x, d, constraints):
    with pytest.raises(dp.ModelError, match="constraints of agent 'solo' admit no point"):
        problem_with(cp.sum_squares(x - d), *constraints(x)).plan(
            dp.LinearizedADMM(), epsilon=1.0, delta=1e-6
        )


def test_the_exact_method_refuses_a_step_without_minimizer(x):
    problem = problem_with(cp.sum(x), x <= 1)
    with pytest.raises(dp.ModelError, match=r"'solo' has no minimizer.*LinearizedADMM"):
        problem.plan(dp.ADMM(), mechanism=None)


def test_the_exact_method_refuses_a_set_on_which_noise_has_no_minimizer(x, d):
    problem = problem_with(cp.square(x[0] - cp.sum(d)), x >= 0)
    with pytest.raises(dp.ModelError, match="for some values of the noise.*Add bounds"):
        problem.plan(dp.ADMM(), epsilon=1.0, delta=1e-6)
    bounded = problem_with(cp.square(x[0] - cp.sum(d)), x >= 0, x <= 5)
    assert bounded.plan(dp.ADMM(), epsilon=1.0, delta=1e-6).guarantee.kind == "worst-case"


def test_the_exact_method_refuses_data_in_the_curvature_even_without_noise(x):
    weight = dp.Private(shape=3, name="weight", adjacency=dp.Within(0.1), nonneg=True)
    problem = problem_with(cp.sum(cp.multiply(weight, cp.square(x))))
    with pytest.raises(dp.PrivacyError, match="'weight'.*cp.multiply"):
        problem.plan(dp.ADMM(), mechanism=None)


def test_an_unknown_sensitivity_is_refused_but_runs_without_noise(x, d):
    problem = problem_with(cp.sum(cp.logistic(x - d)), cp.abs(x) <= 2)
    with pytest.raises(dp.PrivacyError, match="agent 'solo'.*'d'.*cp.logistic"):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    result = problem.plan(dp.LinearizedADMM(step=4.0), mechanism=None, rounds=200).run()
    assert np.allclose(result.last[x], -2.0, atol=1e-6)


def test_a_public_parameter_needs_a_value_and_is_frozen_by_the_plan(x, d):
    weight = cp.Parameter(nonneg=True, name="weight")
    problem = problem_with(weight * cp.sum_squares(x - d))
    with pytest.raises(dp.ModelError, match=r"weight\.value = "):
        problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    weight.value = 2.0
    plan = problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    assert plan.agents[0].sensitivity.l2 == pytest.approx(0.4)
    weight.value = 3.0
    assert plan.agents[0].sensitivity.l2 == pytest.approx(0.4)


def test_step_sizes_that_the_model_cannot_supply_are_refused(x, d):
    X = dp.Private(np.eye(x.size), adjacency=dp.Rows(1.0), name="X")
    nonsmooth = problem_with(cp.sum(cp.abs(X @ x - 1)))
    with pytest.raises(dp.ModelError, match=r"'solo'.*dp\.steps\.Smooth\(L=\.\.\.\)"):
        nonsmooth.plan(dp.LinearizedADMM(step=dp.steps.Smooth()), epsilon=1.0, delta=1e-6)
    flat = problem_with(cp.square(cp.sum(x - d)))
    with pytest.raises(dp.ModelError, match=r"'solo' is not strongly convex"):
        flat.plan(dp.LinearizedADMM(step=dp.steps.StronglyConvex()), epsilon=1.0, delta=1e-6)


def test_defaults_are_resolved_into_numbers(x, d):
    plan = problem_with(cp.sum_squares(x - d)).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    step = plan.algorithm.step
    assert 0 < step.step <= 1 / 2
    assert plan.algorithm.penalty == dp.penalties.Fixed(1 / step.step)
    paper = problem_with(cp.sum_squares(x - d)).plan(
        dp.LinearizedADMM(step=dp.steps.Smooth()), epsilon=1.0, delta=1e-6
    )
    assert paper.algorithm.step.L == pytest.approx(2.0)
    assert paper.algorithm.step.c == pytest.approx(1 / plan.agents[0].noise.multiplier)


def test_a_plan_states_adjacency_observer_mechanism_accountant_and_assumptions():
    plan = overlapping_slices().problem.plan(dp.LinearizedADMM(), rounds=7, epsilon=1.0, delta=1e-6)
    text = " ".join(str(plan).split())
    for part in (
        "(1, 1e-6)-DP for one change in one agent's data, worst case",
        "the difference has l2 norm at most 0.05 in 'left'",
        "the difference has linf norm at most 0.05 in 'right'",
        "even if they collude and see every value that the agent releases",
        "Gaussian noise, scale",
        "7 releases per agent",
        "exact Gaussian composition",
        "derived from the model",
        "assumptions hold: print(plan.guarantee)",
        "c: 3 variables (2 shared); no private data",
    ):
        assert part in text
    assert "a: 4 in simplices" in " ".join(str(plan.derivation).split())
    assert "are not counted. The noise is exact" in " ".join(str(plan.guarantee).split())


def test_a_model_without_private_data_has_no_guarantee_to_state(x):
    plan = problem_with(cp.sum_squares(x - 1)).plan()
    assert plan.guarantee.kind == "none"
    assert "declares nothing private" in str(plan)
    assert np.allclose(plan.run().last[x], 1.0, atol=1e-3)


def test_a_plan_pickles_and_runs_with_data_given_anew():
    given = power_line()
    plan = given.problem.plan(dp.LinearizedADMM(), rounds=5, epsilon=1.0, delta=1e-6)
    copy = pickle.loads(pickle.dumps(plan))
    with pytest.raises(dp.DataError, match="'load0' has no data"):
        copy.run(seed=1)
    data = given.data
    one, two = plan.run(seed=1), copy.run(seed=1, data=data)
    pairs = zip(one.last.vectors, two.last.vectors, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
