"""What one record moves in answers about the scale of records, by brute force over neighbors."""

import math
from dataclasses import replace
from functools import cache, partial

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.normal_form import Clip
from dpcvx.model.record_rows import RecordCurvature
from dpcvx.privacy.noise import on_grid
from dpcvx.sensitivity.queries.data import CurvatureSums, LearnedGradient, RecordsAbove
from dpcvx.sensitivity.queries.query import Known, Objective, finite_clipped

M, N, CLIP = 15, 3, 0.6
w = cp.Variable(N, name="w")
RELATIONS = ("replace_one", "add_or_remove_one")
LOSSES = {
    "logistic": lambda X, y: cp.sum(cp.logistic(-cp.multiply(y, X @ w))),
    "squares": lambda X, y: cp.sum_squares(X @ w - y),
    "survival": lambda X, y: cp.sum(cp.multiply(y, cp.exp(X @ w)) - X @ w),
    "made of data": lambda X, y: cp.sum_squares(cp.abs(X) @ w - y) + cp.sum(cp.abs(X) @ w),
    "products of data": lambda X, y: cp.sum(
        cp.logistic(w @ cp.multiply(X, cp.reshape(y, (M, 1), order="F") @ np.ones((1, N))).T)
    ),
}


@cache
def agent(loss, relation):
    """The public facts of one agent whose contributions are clipped."""
    rows = partial(dp.Rows, relation=relation, records="person")
    X = dp.Private(shape=(M, N), name="X", adjacency=rows(2.0))
    y = dp.Private(shape=(M,), name="y", adjacency=rows(5.0), nonneg=loss == "survival")
    cost = LOSSES[loss](X, y) + 0.1 * cp.sum_squares(w)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 2], clip_norm=CLIP)])
    plan = problem.plan(dp.FederatedGradient(step=0.1), rounds=1, epsilon=1.0, delta=1e-6)
    return plan.agents[0]


def data_of(facts, rng, scale=1.0):
    """Admissible records: rows of the largest norm, and shorter ones."""
    found = []
    for spec in facts.form.private:
        rows = rng.normal(size=(M, spec.size // M))
        rows *= spec.adjacency.max_norm / np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= rng.uniform(size=(M, 1)) ** scale
        found.append((np.abs(rows) if spec.sign == "nonneg" else rows).ravel(order="F"))
    return found


def neighbor(facts, data, rng, removed):
    """The same with another record in one row, or with none."""
    row, other = rng.integers(M), data_of(facts, rng, scale=0.0)
    found = [part.copy() for part in data]
    for part, fresh in zip(found, other, strict=True):
        part[row::M] = 0.0 if removed else fresh[row::M]
    return found


def answer(facts, query, data):
    form, clips = facts.form, facts.sensitivity.clips
    evaluator = form.bind(data, clips, limited=True)
    objective = Objective(
        evaluator.gradient, evaluator.gradient, facts.projector, None, None, None,
        partial(finite_clipped, evaluator),
        lambda x: RecordCurvature.at(form, data, clips[0], x),
    )  # fmt: skip
    return query.evaluate(objective)


def bound_of(facts, query):
    known = Known(facts, 2, 1.0, facts.form.at_zero().gradient, facts.projector)
    return query.bound(known)


def floor_of(facts, query):
    known = Known(facts, 2, 1.0, facts.form.at_zero().gradient, facts.projector)
    return query.floor(known)


def asked(x, rng):
    """Questions with limits far below what is there, near it, and far above."""
    limit = 10.0 ** rng.uniform(-4, 3)
    return [
        RecordsAbove(x, limit, True),
        RecordsAbove(x, limit, False),
        CurvatureSums(x, limit, 10.0 ** rng.uniform(-3, 3)),
        LearnedGradient(x, limit, 10.0 ** rng.uniform(-3, 3)),
    ]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbor_moves_an_answer_farther(loss, relation, seed):
    facts, rng = agent(loss, relation), np.random.default_rng(seed)
    data = data_of(facts, rng)
    other = neighbor(facts, data, rng, removed=relation != "replace_one")
    x = rng.uniform(-2, 2, size=N)
    for query in asked(x, rng):
        moved = answer(facts, query, data) - answer(facts, query, other)
        assert np.linalg.norm(moved) <= bound_of(facts, query) * (1 + 1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_are_reached(relation):
    """Records that are all cut: opposite ones move the gradient by both clips, and the count."""
    facts, removed = agent("squares", relation), relation != "replace_one"
    X, y = np.zeros((M, N)), np.full(M, 5.0)
    X[:, 0] = 2.0
    data, other = [[X, y], [X.copy(), y.copy()]]
    other[0][0], other[1][0] = (0.0, 0.0) if removed else (-X[0], 5.0)
    one, two = ([part.ravel(order="F") for part in d] for d in (data, other))
    x = np.zeros(N)
    queries = [LearnedGradient(x, 0.01, 1e-6), LearnedGradient(x, 0.01, 1e3)]
    if removed:  # of records that weigh nothing, none is counted
        queries += [RecordsAbove(x, 1e-3, True), RecordsAbove(x, 1e-3, False)]
        queries += [CurvatureSums(x, 1e-3, 7.0)]
    for query in queries:
        reached = np.linalg.norm(answer(facts, query, one) - answer(facts, query, two))
        far = isinstance(query, LearnedGradient) and query.weight > 1 and not removed
        assert reached >= 0.99 * (2 * CLIP if far else bound_of(facts, query))


def test_rounding_next_to_large_public_terms_is_charged():
    """Multiples of what is released are as small as its own grid."""
    facts, rng = agent("squares", "add_or_remove_one"), np.random.default_rng(1)
    data, noise = data_of(facts, rng, scale=0.1), facts.noise
    for size in 10.0 ** np.arange(8, 13, 0.5):
        query = LearnedGradient(np.array([size, 0.3, -0.2]), 1e-2, 1e-3)
        grid = noise.grid(bound_of(facts, query), N + 1, floor_of(facts, query))
        other = neighbor(facts, data, rng, removed=True)
        one, two = (on_grid(answer(facts, query, d), grid) * grid.width for d in (data, other))
        assert np.linalg.norm(one - two) <= grid.sensitivity
        assert grid.width >= 2.0**-44 * 0.2 * size / query.multiple


def test_clips_far_below_what_there_is_keep_their_digits():
    """A share of less than 1e-308 would be rounded up, by half of it and more."""
    for steep in np.geomspace(1e307, 1.7e308, 50):
        (cut,) = Clip(0, False, 1e-15, 1.0, 0.0).scaled(np.ones(1), np.array([[steep]]))
        assert abs(cut.item()) <= 1e-15 * (1 + 1e-9)


def test_one_change_is_what_its_relation_says():
    replaced, removed = (agent("squares", relation).sensitivity for relation in RELATIONS)
    assert replaced.change_by_clips == pytest.approx(2 * CLIP)
    assert removed.change_by_clips == pytest.approx(CLIP)
    assert replaced.clips_alone and removed.clips_alone


def test_gradients_are_those_of_clipped_records_over_the_multiple():
    facts, rng = agent("squares", "replace_one"), np.random.default_rng(0)
    data, x, multiple = data_of(facts, rng), rng.normal(size=N), 0.3
    X, y = data[0].reshape((M, N), order="F"), data[1]
    parts = 2 * (X @ x - y)[:, None] * X
    lengths = np.linalg.norm(parts, axis=1)
    cut = parts * np.minimum(1, multiple * CLIP / lengths)[:, None]
    found = answer(facts, LearnedGradient(x, multiple, 2.0), data)
    np.testing.assert_allclose(multiple * found[:-1], cut.sum(axis=0) + 0.2 * x, rtol=1e-12)
    assert found[-1] == 2.0 * (lengths > multiple * CLIP).sum()
    assert (
        answer(facts, RecordsAbove(x, multiple, False), data) == (lengths > multiple * CLIP).sum()
    )


def test_agents_without_clipped_records_are_refused():
    facts = agent("squares", "replace_one")
    whole = replace(facts, sensitivity=replace(facts.sensitivity, clips=()))
    with pytest.raises(dp.PrivacyError, match=r"'agent 1' cannot be learned.*without scale="):
        RecordsAbove.check(whole)
    assert math.isinf(RecordsAbove.noise(facts, 2, "twice", float)[0])
