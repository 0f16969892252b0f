"""Objective perturbation attacked with exact likelihoods of its minimizers on neighboring data."""

import itertools
import math
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.sensitivity.queries.solutions import perturbation_bounds

ROWS = 4


def private(name, values, most=1.0, label="person", relation="replace_one", **more):
    adjacency = dp.Rows(most, records=label, relation=relation, **more)
    return dp.Private(values, name=name, adjacency=adjacency)


def shift():
    return dp.Private(np.zeros(2), name="z", adjacency=dp.Within(1.0))


def logistic(w, X, y):
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w)))


def intercept(w, X, y):
    b = cp.Variable(name="b")
    return cp.sum(cp.logistic(X @ w + b)) - cp.sum(X @ w + b) / 3 + 0.05 * cp.square(b)


def squares(w, X, y):
    return cp.sum_squares(X @ w - y)


def huber(w, X, y):
    return cp.sum(cp.huber(X @ w - y, 0.3))


LOSSES = {f.__name__: f for f in (logistic, intercept, squares, huber)}


@cache
def planned(loss, size, epsilon, weight, curved, *, box, clip=None, relation="replace_one"):
    w = cp.Variable(size, name="w")
    X = private("X", np.zeros((ROWS, size)), relation=relation)
    y = private("y", np.zeros(ROWS), relation=relation)
    cost = loss(w, X, y) + curved / 2 * cp.sum_squares(w)
    agent = dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1.5] if box else [], name="a", clip_norm=clip)
    method = dp.ObjectivePerturbation(regularization=weight)
    return dp.Problem([agent]).plan(method, epsilon=epsilon, delta=0)


def rows(rng, size):
    """Records at their bounds, mostly: there losses bend and pull most."""
    X = rng.normal(size=(ROWS, size))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * rng.choice([1.0, 1.0, 3.0], size=(ROWS, 1))
    return X, rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], size=ROWS)


def neighbors(rng, size, relation):
    X, y = rows(rng, size)
    Z, z = X.copy(), y.copy()
    other, labels = rows(rng, size)
    Z[0], z[0] = (other[0], labels[0]) if relation == "replace_one" else (0.0, 0.0)
    return {"X": X.ravel("F"), "y": y}, {"X": Z.ravel("F"), "y": z}


def log_density(plan, data, x):
    """Of the minimizer at an inner point, up to a number that both neighbors have."""
    agent = plan.agents[0]
    term, form = agent.noise.linear, agent.form
    clips = agent.sensitivity.clips
    own = [data[spec.name] for spec in form.private]
    gradient = form.bind(own, clips, limited=True).gradient
    weight = term.regularization
    b = -(gradient(x) + weight * (x - agent.program.start))
    h = 1e-5
    columns = [
        (gradient(x + h * e) - gradient(x - h * e)) / (2 * h) + weight * e for e in np.eye(x.size)
    ]
    hessian = np.array(columns)
    _, size = np.linalg.slogdet((hessian + hessian.T) / 2)
    return size - np.linalg.norm(b, term.norm) / term.scale


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    epsilon=st.sampled_from([0.3, 1.0, 3.0]),
    weight=st.sampled_from([0.5, 2.0, 20.0]),
    size=st.integers(1, 3),
    relation=st.sampled_from(["replace_one", "add_or_remove_one"]),
)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_outcome_is_likelier_than_epsilon_allows(loss, seed, epsilon, weight, size, relation):
    rng = np.random.default_rng(seed)
    curved, box = [0.0, 0.3][seed % 2], loss == "squares"
    try:
        plan = planned(LOSSES[loss], size, epsilon, weight, curved, box=box, relation=relation)
    except dp.PrivacyError as error:
        assert "is too small for agent 'a'" in str(error)
        return
    one, two = neighbors(rng, size, relation)
    left = epsilon * (1 - 2**-6)
    for _ in range(6):
        x = rng.uniform(-1.4, 1.4, size=plan.agents[0].program.n) * rng.choice([0.1, 1.0])
        apart = abs(log_density(plan, one, x) - log_density(plan, two, x))
        assert apart <= left * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize(("loss", "least"), [(logistic, 0.4), (squares, 0.25)])
def test_some_outcome_tells_a_good_part_of_epsilon(loss, least):
    """With one entry, a record that turns around, and one that bends where nothing else does."""
    plan = planned(loss, 1, 1.0, 2.0, 0.0, box=loss is squares)
    X = np.zeros(ROWS)
    X[1:] = 1.0
    largest = 0.0
    for a, b in itertools.product([-1.0, 0.0, 1.0], repeat=2):
        for c, d in itertools.product([-1.0, 1.0], repeat=2):
            one, two = (
                {"X": np.array([u, *X[1:]]), "y": np.array([v, 1.0, 1.0, 1.0])}
                for u, v in ((a, c), (b, d))
            )
            for x in np.linspace(-6, 6, 25) if loss is logistic else np.linspace(-1.4, 1.4, 9):
                at = np.array([x])
                apart = log_density(plan, one, at) - log_density(plan, two, at)
                largest = max(largest, apart)
    assert least <= largest <= 1.0


@pytest.mark.parametrize("penalty", [0.0, 0.8])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_points_of_kinks_and_corners_keep_their_probabilities(penalty, epsilon):
    """In one dimension: of atoms at 0 and at the ends of an interval, by the law of b."""
    w = cp.Variable(1, name="w")
    cost = cp.sum(cp.logistic(-private("X", np.zeros((ROWS, 1))) @ w))
    agent = dp.Agent(cp.Minimize(cost + penalty * cp.norm1(w)), [w <= 1, w >= -0.5], name="a")
    plan = dp.Problem([agent]).plan(dp.ObjectivePerturbation(1.0), epsilon=epsilon, delta=0)
    scale = plan.agents[0].noise.linear.scale

    def below(b):
        return 0.5 * math.exp(b / scale) if b < 0 else 1 - 0.5 * math.exp(-b / scale)

    def chances(x, y):
        def slope(u):
            return -np.sum(y * x / (1 + np.exp(y * x * u))) + u

        at_zero = below(-slope(0) + penalty) - below(-slope(0) - penalty)
        return np.array([below(-slope(1) - penalty), at_zero, 1 - below(-slope(-0.5) + penalty)])

    for a, b in itertools.product([-1.0, 0.0, 0.7, 1.0], repeat=2):
        one, two = (chances(np.array([u, 1, 1, -1]), np.ones(ROWS)) for u in (a, b))
        reached = one > 0
        assert (np.abs(np.log(one[reached] / two[reached])) <= epsilon * (1 + 1e-9)).all()


def test_scores_and_curvature_of_records():
    plan = planned(logistic, 3, 1.0, 2.0, 0.5, box=False)
    bounds = perturbation_bounds(plan.agents[0])
    assert (bounds.scores, bounds.size) == (1, 3)
    assert bounds.bend == pytest.approx(0.25)
    assert bounds.convexity == pytest.approx(0.5)
    assert bounds.sensitivities[1] == pytest.approx(2.0)


def test_scores_count_those_of_all_rows_of_a_person():
    w = cp.Variable(2, name="w")
    rows = dp.ByPerson(np.zeros((ROWS, 2)), np.arange(ROWS))
    X = private("X", rows, max_rows_per_person=3)
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ w))), name="a")
    plan = dp.Problem([agent]).plan(dp.ObjectivePerturbation(4.0), epsilon=1.0, delta=0)
    assert perturbation_bounds(plan.agents[0]).scores == 3


def test_several_scores_of_a_record_count_where_losses_are_smooth():
    W = cp.Variable((2, 3), name="W")
    X, Y = private("X", np.zeros((ROWS, 2))), private("Y", np.zeros((ROWS, 3)))
    cost = cp.sum(cp.log_sum_exp(X @ W, axis=1)) - cp.sum(cp.multiply(Y, X @ W))
    agent = dp.Agent(cp.Minimize(cost), [cp.abs(W) <= 2], name="a")
    plan = dp.Problem([agent]).plan(dp.ObjectivePerturbation(4.0), epsilon=1.0, delta=0)
    assert perturbation_bounds(plan.agents[0]).scores == 3


@pytest.mark.parametrize(
    ("cost", "constraints", "words"),
    [
        (lambda w, X: cp.sum(cp.pos(1 - X @ w)), lambda w: [], "no bound"),
        (lambda w, X: cp.sum_squares(X @ w), lambda w: [], "nothing bounds"),
        (lambda w, X: cp.sum(cp.logistic(X @ w)), lambda w: [cp.norm1(w) <= 1], "closed form"),
        (
            lambda w, X: cp.sum(cp.logistic(X @ w)) + cp.sum_squares(w - shift()),
            lambda w: [],
            "nothing bounds how large data with dp.Within are",
        ),
        (
            lambda w, X: cp.sum(cp.logistic(X @ w)) + 1e12 * cp.square(w[0]),
            lambda w: [],
            "may not end",
        ),
    ],
)
def test_what_has_no_constants_is_refused(cost, constraints, words):
    w = cp.Variable(2, name="w")
    agent = dp.Agent(
        cp.Minimize(cost(w, private("X", np.zeros((ROWS, 2))))), constraints(w), name="a"
    )
    with pytest.raises(dp.PrivacyError, match=words):
        dp.Problem([agent]).plan(dp.ObjectivePerturbation(1.0), epsilon=1.0, delta=0)


@pytest.mark.parametrize("near", [0.0, 1e9])
def test_grids_reach_as_far_as_minimizers(near):
    """Points far from 0 leave as they are, though the noise on them is small."""
    w = cp.Variable(1, name="w")
    X = private("X", np.ones((ROWS, 1)))
    agent = dp.Agent(cp.Minimize(cp.sum(cp.logistic(X @ (w - near)))), [w >= near], name="a")
    method = dp.ObjectivePerturbation(1.0)
    problem = dp.Problem([agent], start={w: np.array([near])})
    plan = problem.plan(method, epsilon=1.0, delta=0)
    left = np.array([plan.run(seed=k, verbose=False)["w"][0] for k in range(20)]) - near
    assert (left > -0.1).all() and 0.5 < left.max() < 100


@pytest.mark.parametrize("size", [3e5, 1e9, 1e30])
def test_data_of_any_size_leave_searches_as_exact_as_stated(size):
    """What one change moves by 2 is cut off at about two million."""
    w = cp.Variable(2, name="w")
    z = dp.Private(np.array([size, 1.0]), name="z", adjacency=dp.Within(1.0, norm=2))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(w - z)), name="a")
    plan = dp.Problem([agent]).plan(dp.ObjectivePerturbation(0.0), epsilon=1.0, delta=0)
    limit = plan.agents[0].noise.linear.limit
    assert limit == pytest.approx(2.0**21)
    w = plan.run(seed=1, verbose=False)["w"]
    assert np.allclose(w, [min(size, limit / 2), 1.0], atol=20)
