"""Where plans learn the scale of records first, and where they go by declared bounds, as ever."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.algorithms.test_learned_scale import clinic

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
M = 400
READINGS = dp.Private(shape=3, name="readings", adjacency=dp.Within(0.1))
SIDES = np.where(np.arange(M) % 3, 1.0, -1.0)


def records(loss, adjacency=None, penalty=None, clip=None):
    """One agent with records of three findings, and one that adds a public term."""
    w = cp.Variable(3, name="w")
    X = dp.Private(shape=(M, 3), name="X", adjacency=adjacency or dp.Rows(1.0))
    cost = cp.sum(loss(cp.multiply(SIDES, X @ w))) / M
    if penalty is not None:
        cost += penalty(w)
    agents = [
        dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 5], name="clinic", clip_norm=clip),
        dp.Agent(cp.Minimize(0.01 * cp.sum_squares(w)), name="office"),
    ]
    return dp.Problem(agents)


ROWS, OTHERS = (
    dp.Private(shape=(M, 3), name=name, adjacency=dp.Rows(1.0, records=name)) for name in "XZ"
)
WEIGHTS = dp.Private(shape=2, name="weights", adjacency=dp.Within(0.1), nonneg=True)


def of_one(cost, **settings):
    """One agent within a ball."""
    w = cp.Variable(3, name="w")
    return dp.Problem(
        [dp.Agent(cp.Minimize(cost(w)), [cp.norm(w) <= 1], name="station", **settings)]
    )


def logistic(margins):
    return cp.logistic(-margins)


def learns(plan):
    return getattr(plan.algorithm, "scale", None) is not None


SMOOTH = {
    "logistic": records(logistic),
    "squares": records(lambda m: cp.square(1 - m)),
    "squared hinge": records(lambda m: cp.square(cp.pos(1 - m))),
    "exponential": records(lambda m: cp.exp(-m)),
    "beside a penalty": records(logistic, penalty=lambda w: 1e-3 * cp.norm1(w)),
    "several agents": clinic(3),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_the_scale_of_smooth_losses_is_learned(name):
    plan = SMOOTH[name].plan(**BUDGET)
    assert learns(plan) and isinstance(plan.algorithm, dp.FederatedGradient)
    assert plan.rounds == 13 + max(150, min(300, round(0.85 / plan.algorithm.scale.noise)))
    said = {choice.what: choice.why for choice in plan.choices}
    assert "5 % of the budget is for learning" in said["scale"] and "step" not in said


ELSE = {
    "slopes that jump": (records(lambda m: cp.pos(1 - m)), {}),
    "losses that do not bend": (records(lambda m: -m), {}),
    "losses that level off": (records(lambda m: cp.huber(1 - m)), {}),
    "pure privacy": (records(logistic), {"delta": 0.0}),
    "loud noise": (records(logistic), {"epsilon": 0.02}),
    "a clip": (records(logistic, clip=0.1), {}),
    "Laplace noise": (records(logistic), {"mechanism": "laplace"}),
    "one release": (clinic(width=2.0), {"release": "each_step", "rounds": 10}),
}


@pytest.mark.parametrize("name", ELSE)
def test_elsewhere_plans_are_those_of_declared_bounds(name):
    problem, arguments = ELSE[name]
    plan = problem.plan(**BUDGET | arguments)
    declared = problem.plan(**BUDGET | arguments, scale="declared")
    assert not learns(plan)
    assert plan.fingerprint == declared.fingerprint and plan.choices == declared.choices


@pytest.mark.parametrize("name", SMOOTH)
def test_declared_bounds_can_be_asked_for(name):
    assert not learns(SMOOTH[name].plan(**BUDGET, scale="declared"))


def test_methods_that_are_named_run_as_their_papers_have_them():
    assert not learns(SMOOTH["logistic"].plan(dp.FederatedGradient(), **BUDGET))
    assert learns(SMOOTH["logistic"].plan(dp.FederatedGradient(), **BUDGET, scale=dp.LearnScale()))
    assert learns(SMOOTH["logistic"].plan(dp.FederatedGradient(scale=dp.LearnScale()), **BUDGET))


def test_noise_may_be_loud_if_users_ask_for_it():
    plan = records(logistic).plan(**BUDGET | {"epsilon": 0.02}, scale=dp.LearnScale())
    assert learns(plan) and plan.algorithm.scale.noise > 0.1


REFUSED = {
    "rounds=13 leaves no step": (records(logistic), {"rounds": 13}),
    "delta= above 0": (records(logistic), {"delta": 0.0}),
    "mechanism='laplace' is not": (records(logistic), {"mechanism": "laplace"}),
    "problem leaves no choice": (records(logistic), {"release": "once"}),
    "Leave observer= and release= out": (
        records(logistic),
        {"release": "once", "algorithm": dp.FederatedGradient()},
    ),
    "agent 'station' has no loss of records. Pass adjacency=dp.Rows": (
        of_one(lambda w: cp.sum_squares(w - READINGS)),
        {"algorithm": dp.FederatedGradient()},
    ),
    "2 labels, and .* pass the same records= to each": (
        of_one(lambda w: cp.sum(cp.logistic(ROWS @ w)) + cp.sum(cp.logistic(OTHERS @ w))),
        {"algorithm": dp.FederatedGradient()},
    ),
    "outside of its loss of records, .* Write one sum over rows": (
        of_one(lambda w: cp.sum(cp.logistic(ROWS @ w)) + READINGS @ w),
        {"algorithm": dp.FederatedGradient()},
    ),
    "weigh functions of variables, .* Make these weights public": (
        of_one(lambda w: cp.sum(cp.logistic(ROWS @ w)) + WEIGHTS[0] * cp.sum_squares(w)),
        {"algorithm": dp.FederatedGradient()},
    ),
    "is asserted, .* without sensitivity=": (
        of_one(lambda w: cp.sum(cp.logistic(ROWS @ w)), sensitivity=dp.Asserted(1.0)),
        {"algorithm": dp.FederatedGradient()},
    ),
    "affine in its private data, .* Leave out the method": (
        of_one(lambda w: cp.sum(ROWS @ w) + cp.sum_squares(w)),
        {"algorithm": dp.FederatedGradient()},
    ),
    r"above 0 at the initial point. Pass another point to dp.Problem\(..., start=": (
        of_one(lambda w: cp.sum_squares(ROWS @ w)),
        {"algorithm": dp.FederatedGradient()},
    ),
}


def test_many_scores_are_refused_before_they_fill_the_memory():
    """60 scores by 300 variables for each of 3000 records, whose labels are wider than features."""
    person, W = dp.Rows(1.0, records="person"), cp.Variable((5, 60), name="W")
    scores = dp.Private(shape=(3000, 5), name="X", adjacency=person) @ W
    labels = dp.Private(shape=(3000, 60), name="Y", adjacency=person)
    cost = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(labels, scores))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost / 3000), name="clinic")])
    with pytest.raises(dp.PrivacyError, match="agent 'clinic' are too many for so many variables"):
        problem.plan(**BUDGET, scale=dp.LearnScale())


@pytest.mark.parametrize("words", REFUSED)
def test_what_stands_in_the_way_is_named(words):
    problem, arguments = REFUSED[words]
    with pytest.raises(dp.PrivacyError, match=words) as refusal:
        problem.plan(**BUDGET | arguments, scale=dp.LearnScale())
    assert "leave scale= out" in str(refusal.value)


def test_other_methods_take_no_scale():
    with pytest.raises(dp.ModelError, match="scale= applies to steps along sums of gradients"):
        records(logistic).plan(dp.LinearizedADMM(), **BUDGET, scale=dp.LearnScale())
    with pytest.raises(dp.ModelError, match=r"dp.LearnScale\(\) or 'declared'"):
        records(logistic).plan(**BUDGET, scale="learned")


def test_clips_leave_records_the_stronger_pull_beside_a_penalty():
    plan = records(logistic, penalty=lambda w: 0.02 * cp.norm(w)).plan(**BUDGET)
    scale, clip = plan.algorithm.scale, plan.agents[0].program.clip
    assert scale.least * M * clip * math.sqrt(2 / (3 * math.pi)) == pytest.approx(
        3 * 0.02, rel=1e-2
    )


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_the_unit_of_the_objective_changes_no_noise_and_no_rounds(factor):
    one, other = (
        records(lambda m, c=c: c * logistic(m), penalty=lambda w, c=c: 0.01 * c * cp.norm1(w))
        for c in (1.0, factor)
    )
    plans = [problem.plan(**BUDGET) for problem in (one, other)]
    noises = [plan.agents[0].noise for plan in plans]
    assert noises[0] == noises[1] and plans[0].rounds == plans[1].rounds
    first, second = (plan.algorithm.scale for plan in plans)
    assert (first.noise, first.least) == pytest.approx((second.noise, second.least), rel=1e-2)


def test_bounds_that_are_far_too_wide_cost_little():
    """Gaps with labels declared 30 times too wide, next to those by declared bounds.

    Seven runs each; by declared bounds the median is some 50 times that of a learned scale.
    """
    problem = clinic(2, width=30.0)
    optimum = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
    gaps = {}
    for scale in (None, "declared"):
        plan = problem.plan(**BUDGET, scale=scale)
        runs = [plan.run(seed=seed, verbose=False).solution for seed in range(7)]
        gaps[scale] = [dp.not_private.objective(problem, run) - optimum for run in runs]
    assert np.median(gaps[None]) < np.median(gaps["declared"]) / 5


def test_a_scale_is_learned_exactly_where_noise_is_off():
    """As rows of comparisons have it: the same rounds without noise end at the optimum."""
    problem = clinic(2, width=30.0)
    optimum = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
    for plan in (
        problem.plan(dp.FederatedGradient(scale=dp.LearnScale()), mechanism=None),
        problem.plan(problem.plan(**BUDGET).algorithm, mechanism=None, rounds=163),
    ):
        assert not plan.noisy and learns(plan)
        found = plan.run(verbose=False).solution
        assert dp.not_private.objective(problem, found) - optimum < 0.05
    ended = plan.run(tolerance=0.05, verbose=False)  # nothing moves in the first 13 rounds
    assert ended.status is dp.Status.CONVERGED and 13 < ended.rounds < plan.rounds
