"""Losses that read their scores ``X @ w + b`` more than once share one atom and one clip."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from tests.forms import assign, difference_quotients, form_of

ROWS, COLUMNS = 40, 3


def records(rng, bound=1.0):
    X = rng.normal(size=(ROWS, COLUMNS))
    return dp.Private(
        X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / bound),
        name="X",
        adjacency=dp.Rows(bound),
    )


def labels(values, bound=1.0, nonneg=False):
    return dp.Private(values, name="y", adjacency=dp.Rows(bound), nonneg=nonneg)


def poisson(rng):
    w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
    scores = records(rng) @ w + b
    y = labels(rng.integers(0, 5, ROWS).astype(float), 5.0, nonneg=True)
    return cp.sum(cp.exp(scores) - cp.multiply(y, scores)) / ROWS, [cp.norm(w) <= 2, b**2 <= 1]


def survival(rng):
    w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
    scores = records(rng) @ w + b
    y = labels(rng.uniform(0, 5, ROWS), 5.0, nonneg=True)
    return cp.sum(cp.multiply(y, cp.exp(scores)) - scores) / ROWS, [cp.norm(w) <= 2, b**2 <= 1]


def softmax(rng):
    W, b = cp.Variable((COLUMNS, 4), name="W"), cp.Variable((1, 4), name="b")
    scores = records(rng) @ W + np.ones((ROWS, 1)) @ b
    y = labels(np.eye(4)[rng.integers(0, 4, ROWS)])
    loss = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(y, scores))
    return loss / ROWS, [cp.norm(W, "fro") <= 2, cp.norm(b) <= 2]


def opposite(rng):
    w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
    scores = records(rng) @ w + b
    y = labels(rng.choice([0.0, 1.0], ROWS))
    loss = cp.logistic(-scores) + cp.logistic(scores) - cp.multiply(y, scores)
    return cp.sum(loss) / ROWS, [cp.norm(w) <= 2, b**2 <= 1]


def quantile(rng):
    """One atom reads the scores twice, with other factors than 1 and -1."""
    w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
    errors = labels(rng.normal(size=ROWS).clip(-1, 1)) - records(rng) @ w - b
    loss = cp.sum(cp.maximum(0.9 * errors, -0.1 * errors))
    return loss / ROWS, [cp.norm(w) <= 2, b**2 <= 1]


SMOOTH = [poisson, survival, softmax, opposite]
WRITTEN = [*SMOOTH, quantile]


def problem_of(written, **options):
    objective, constraints = written(np.random.default_rng(3))
    return dp.Problem([dp.Agent(cp.Minimize(objective), constraints, name="a", **options)])


@pytest.mark.parametrize("written", WRITTEN)
def test_scores_read_several_times_share_one_atom(written):
    form = compile_problem(problem_of(written)).agents[0].form
    (product,) = (j for j, atom in enumerate(form.atoms) if atom.rule.product == "matrix")
    combinations = (form.root, *(u for atom in form.atoms for u in atom.args))
    (scores,) = (u for u in combinations if product in {j for j, _ in u.terms})
    assert scores.F is not None


@pytest.mark.parametrize("written", WRITTEN)
def test_shared_scores_keep_value_and_gradient(written):
    rng = np.random.default_rng(3)
    expression, _ = written(rng)
    layout, form = form_of(expression)
    values = {spec.name: rng.normal(size=spec.shape) for spec in form.private}
    bound = form.bind([np.ravel(values[spec.name], order="F") for spec in form.private])
    inserted = expression.tree_copy(
        {id(p): cp.Constant(values[p.name()]) for p in expression.parameters()}
    )
    x = 0.3 * rng.normal(size=form.n)
    assign(inserted, layout, x)
    assert bound.value(x) == pytest.approx(float(inserted.value), rel=1e-10)
    quotients = difference_quotients(bound.value, x)
    np.testing.assert_allclose(bound.gradient(x), quotients, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("written", WRITTEN)
def test_clip_limits_all_that_a_record_contributes_through_shared_scores(written):
    plan = problem_of(written, clip_norm=0.004).plan(
        dp.FederatedGradient(step=0.1), epsilon=2.0, delta=1e-6, rounds=5
    )
    assert plan.agents[0].sensitivity.bound(2).value == pytest.approx(0.008, rel=1e-6)
    checked = dp.check_sensitivity(plan)
    assert checked.passed


@pytest.mark.parametrize("written", SMOOTH)
def test_plans_learn_the_scale_of_shared_scores(written):
    problem = problem_of(written)
    plan = problem.plan(epsilon=8.0, delta=1e-6, scale=dp.LearnScale())
    assert plan.algorithm.scale is not None


def test_a_quantile_loss_has_one_sensitivity_in_every_spelling():
    def bound(loss):
        rng = np.random.default_rng(3)
        w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
        errors = labels(np.zeros(ROWS)) - records(rng) @ w - b
        agent = dp.Agent(cp.Minimize(cp.sum(loss(errors))), [cp.norm(w) <= 2, b**2 <= 1])
        plan = dp.Problem([agent]).plan(epsilon=2.0, delta=1e-6)
        return plan.agents[0].sensitivity.bound(2).value

    at_most = bound(lambda r: cp.maximum(0.9 * r, -0.1 * r))
    assert at_most == pytest.approx(bound(lambda r: 0.9 * cp.pos(r) + 0.1 * cp.neg(r)), rel=1e-6)
    assert at_most == pytest.approx(bound(lambda r: 0.5 * cp.abs(r) + 0.4 * r), rel=1e-6)


def test_squares_with_a_linear_term_stay_quadratic():
    rng = np.random.default_rng(0)
    w, b = cp.Variable(COLUMNS, name="w"), cp.Variable(name="b")
    scores = records(rng) @ w + b
    y = labels(rng.normal(size=ROWS).clip(-1, 1))
    cost = cp.sum_squares(scores) - 2 * cp.sum(cp.multiply(y, scores))
    form = compile_problem(dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])).agents[0].form
    assert not any(atom.rule.is_identity(atom.data) for atom in form.atoms)
