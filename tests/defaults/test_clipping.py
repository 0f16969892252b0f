"""Contributions of records that are clipped by default, and where they are not."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.clipping import SCORES, SHARE, grows_with_labels, with_clips
from dpcvx.defaults.conditions import conditions
from dpcvx.defaults.landscape import landscape
from dpcvx.defaults.study import study as compiled

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "scale": "declared"}
RECORDS = 200


def clinic(loss, clip=None, bound=2.0, weight=0.01, **rows):
    """Records of three features and a label."""
    w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
    X = dp.Private(shape=(RECORDS, 3), name="X", adjacency=dp.Rows(bound, records="person", **rows))
    y = dp.Private(shape=RECORDS, name="y", adjacency=dp.Rows(1.0, records="person", **rows))
    cost = loss(X, y, w, b) / RECORDS + weight * cp.sum_squares(w)
    return dp.Problem([dp.Agent(cp.Minimize(cost), name="clinic", clip_norm=clip)])


def logistic(X, y, w, b):
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w)))


def hinge(X, y, w, b):
    return cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))


def absolute(X, y, w, b):
    return cp.sum(cp.abs(w[0] - y))


def clip_of(plan):
    return plan.agents[0].program.clip


def test_noise_is_lowered_by_clips_where_it_is_what_matters():
    whole = clinic(logistic, clip=math.inf).plan(**BUDGET)
    plan = clinic(logistic).plan(**BUDGET)
    assert clip_of(plan) < SHARE * 2 / RECORDS * (1 + 1e-3)
    assert plan.agents[0].bound == pytest.approx(2 * clip_of(plan))
    assert plan.agents[0].bound < 0.9 * whole.agents[0].bound
    said = " ".join(str(plan).split())
    assert "two thirds of the largest" in said and "clip_norm=math.inf" in said
    assert plan.price.epsilon == pytest.approx(whole.price.epsilon) == pytest.approx(1.0)


def test_infinite_clips_keep_contributions_whole():
    plan = clinic(logistic, clip=math.inf).plan(**BUDGET)
    assert "two thirds" not in str(plan)
    # Slopes of the loss are below 1, and rows no longer than 2; one replaces another.
    assert plan.agents[0].bound == pytest.approx(2 * 2 / RECORDS, rel=1e-6)


def test_clips_of_the_user_stay():
    assert clip_of(clinic(logistic, clip=1e-3).plan(**BUDGET)) == 1e-3


def test_what_is_named_runs_as_its_paper_has_it():
    assert clip_of(clinic(logistic).plan(dp.FederatedAveraging(), epsilon=1.0, delta=1e-6)) is None


def test_noise_that_hardly_matters_is_no_reason_for_a_bias():
    assert clip_of(clinic(logistic).plan(**BUDGET | {"epsilon": 100.0})) is None
    assert clip_of(clinic(logistic).plan(mechanism=None)) is None


def test_contributions_beside_an_intercept_are_clipped_as_well():
    assert clip_of(clinic(hinge).plan(**BUDGET)) == pytest.approx(
        SHARE * math.sqrt(5) / RECORDS, rel=1e-2
    )


def test_contributions_of_one_length_are_not_clipped():
    assert clip_of(clinic(absolute, weight=1.0).plan(**BUDGET)) is None


def test_asserted_bounds_are_not_replaced():
    problem = clinic(logistic)
    agent = replace(problem.agents[0], sensitivity=dp.Asserted(l2=0.01, l1=0.02))
    assert clip_of(dp.Problem([agent]).plan(**BUDGET)) is None


def test_clips_that_would_not_lower_the_noise_are_left_alone():
    # Contributions of one sign: the replaced one moves the gradient by sqrt(2) times the largest.
    w = cp.Variable(3, name="w", bounds=[-1, 1])
    X = dp.Private(shape=(RECORDS, 3), name="X", adjacency=dp.Rows(1.0), nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.exp(X @ w))))])
    found = with_clips(compiled(problem), 10.0)
    bound = compiled(problem).sensitivities["agent 1"].l2
    assert found is None or found.known.sensitivities["agent 1"].l2 < 0.9 * bound


def counted(X, y, w, b):
    return cp.sum(cp.exp(X @ w)) - cp.sum(cp.multiply(y, X @ w))


@pytest.mark.parametrize(
    "loss, labels",
    [
        (counted, True),
        (lambda X, y, w, b: cp.sum_squares(X @ w - y), True),
        (logistic, False),
        (hinge, False),
        (lambda X, y, w, b: cp.sum(cp.logistic(X @ w)) - cp.sum(cp.multiply(y, X @ w)), False),
        (lambda X, y, w, b: cp.sum(cp.exp(-cp.multiply(y, X @ w))), False),
        (lambda X, y, w, b: cp.sum(cp.multiply(y, cp.exp(-X @ w))) + cp.sum(X @ w), False),
    ],
)
def test_slopes_grow_with_labels_where_these_weigh_scores(loss, labels):
    w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
    X = dp.Private(shape=(9, 3), name="X", adjacency=dp.Rows(1.0, records="person"))
    y = dp.Private(shape=9, name="y", adjacency=dp.Rows(5.0, records="person"), nonneg=True)
    sets = [cp.norm(w) <= 3, cp.abs(b) <= 3]
    problem = dp.Problem([dp.Agent(cp.Minimize(loss(X, y, w, b)), sets)])
    known = compiled(problem)
    (local,) = known.program.agents
    assert grows_with_labels(local, known.sensitivities[local.name]) == labels


def squared_hinge(X, y, w, b):
    return cp.sum_squares(cp.pos(1 - cp.multiply(y, X @ w)))


@pytest.mark.parametrize("distance", [0.01, 0.3, 1.0])
def test_slopes_that_grow_with_scores_are_clipped_by_what_they_are_at_the_start(distance):
    clipped = with_clips(compiled(clinic(squared_hinge)), distance)
    (local,) = clipped.known.program.agents
    assert local.clip == pytest.approx(SCORES * 2 * 2 / RECORDS, rel=1e-2)
    assert "four fifths of the largest possible one at the initial point" in clipped.why


def test_squared_hinges_are_fitted_by_default():
    """The median gap of 0.8 was 0.22 with clips at two thirds of the largest near the start.

    Of 400 simulated runs one in 80 ended above 0.13, and the median is 0.07: other seeds than these
    fail in one of 2,000 cases.
    """
    rng = np.random.default_rng(12)
    w, truth, agents = cp.Variable(6, name="w"), 2 * rng.normal(size=6), []
    for k in range(20):
        X = rng.normal(size=(100, 6))
        X *= np.minimum(1, 3 / np.linalg.norm(X, axis=1))[:, None]
        y = np.sign(X @ truth + rng.normal(size=100) / 2)
        rows = {"records": f"person of {k}"}
        scored = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(3.0, **rows)) @ w
        labels = dp.Private(y, name=f"y{k}", adjacency=dp.Rows(1.0, **rows))
        loss = cp.sum_squares(cp.pos(1 - cp.multiply(labels, scored))) / 2000
        agents.append(dp.Agent(cp.Minimize(loss + 0.01 * cp.sum_squares(w)), [cp.norm(w) <= 5]))
    problem = dp.Problem(agents)
    optimum = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
    plan = problem.plan(**BUDGET)
    runs = [plan.run(seed=k, verbose=False).solution for k in range(3)]
    gaps = [dp.not_private.objective(problem, run) - optimum for run in runs]
    assert np.median(gaps) < 0.13 < (1 - optimum) / 4


def test_counts_are_fitted_by_default():
    """Poisson regression: the median gap was 3 of 3.1 with clips at two thirds of the largest."""
    rng = np.random.default_rng(1)
    w, truth, agents = cp.Variable(3, name="w"), np.array([0.5, 1.2, -1.5]), []
    for k in range(2):
        X = rng.uniform(-1, 1, (300, 3)) / math.sqrt(3)
        X[:, 0] = 1 / math.sqrt(3)
        y = np.minimum(rng.poisson(np.exp(X @ truth + 1)), 60).astype(float)
        rows = {"records": f"district {k}"}
        scored = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0, **rows)) @ w
        calls = dp.Private(y, name=f"y{k}", adjacency=dp.Rows(60.0, **rows), nonneg=True)
        loss = cp.sum(cp.exp(scored)) - cp.sum(cp.multiply(calls, scored))
        agents.append(dp.Agent(cp.Minimize(loss / 600), [cp.norm(w) <= 4]))
    problem = dp.Problem(agents)
    optimum = dp.not_private.joint_problem(problem).solve(cp.CLARABEL)
    nothing = 1.0 - optimum
    plan = problem.plan(**BUDGET)
    runs = [plan.run(seed=k, verbose=False).solution for k in range(3)]
    gaps = [dp.not_private.objective(problem, run) - optimum for run in runs]
    assert max(gaps) < nothing / 10
    assert "a twentieth of the largest" in " ".join(str(plan).split())


@pytest.mark.parametrize("distance", [0.01, 0.3, 1.0])
def test_clips_follow_what_is_possible_near_the_start(distance):
    known = compiled(clinic(logistic))
    (local,) = with_clips(known, distance).known.program.agents
    slope = 1 / (1 + math.exp(-2 * distance))
    assert local.clip == pytest.approx(SHARE * slope * 2 / RECORDS, rel=1e-2)


def test_clips_have_the_unit_of_the_objective():
    one, thousand = clinic(logistic), clinic(logistic)
    agent = thousand.agents[0]
    scaled = replace(agent, objective=cp.Minimize(1000 * agent.objective.args[0]))
    plans = one.plan(**BUDGET), dp.Problem([scaled]).plan(**BUDGET)
    assert clip_of(plans[1]) == pytest.approx(1000 * clip_of(plans[0]), rel=1e-3)
    assert plans[0].rounds == plans[1].rounds


def test_runs_clip():
    """Records that fit as badly as any can: their slopes are cut off."""
    plan = clinic(logistic).plan(**BUDGET)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RECORDS, 3))
    X *= 2 / np.linalg.norm(X, axis=1, keepdims=True)
    form, known = plan.program.agents[0].form, plan.agents[0].sensitivity
    x = 10 * X[0]
    data = [X.ravel(order="F"), -np.ones(RECORDS)]
    if form.private[0].name == "y":
        data.reverse()
    whole, clipped = form.bind(data), form.bind(data, known.clips)
    public = form.at_zero().gradient(x)
    assert np.linalg.norm(clipped.gradient(x) - public) < np.linalg.norm(whole.gradient(x) - public)


@pytest.mark.parametrize("clip", [-1.0, 0.0, math.nan, -math.inf, "small", True])
def test_what_is_no_length_is_refused(clip):
    with pytest.raises(dp.ModelError, match=r"clip_norm=.*must be a positive number, or math\.inf"):
        clinic(logistic, clip=clip)


def test_slopes_of_clipped_records_beside_an_intercept_are_clipped_at_zero_data_as_well():
    """At the edge of the set, a record of zeros has an unclipped gradient of 2 * 3 by its label."""
    w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
    X = dp.Private(shape=(RECORDS, 3), name="X", adjacency=dp.Rows(2.0, records="person"))
    y = dp.Private(shape=RECORDS, name="y", adjacency=dp.Rows(2.0, records="person"))
    limits = [cp.norm(cp.hstack([w, b])) <= 3]
    cost, clip = cp.sum_squares(X @ w + b - y) / RECORDS, 0.1 / RECORDS
    agent = dp.Agent(cp.Minimize(cost), limits, name="clinic", clip_norm=clip)
    plan = dp.Problem([agent]).plan(dp.FederatedGradient(1.0), rounds=2, **BUDGET)
    public = conditions(plan.program, plan.agents, 2, noisy_steps=True)
    assert landscape(plan.program, public).slope <= 0.1 * (1 + 1e-6)
