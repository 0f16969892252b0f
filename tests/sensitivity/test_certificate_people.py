"""What one person with several rows moves, by brute force over neighbors."""

import math
from functools import cache, partial

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.adjacency import Rows
from dpcvx.sensitivity.norms import meeting, of_person
from tests.sensitivity.test_queries_scale import answer, asked, bound_of

M, N = 8, 3
RELATIONS = ("replace_one", "add_or_remove_one")
NOISES = {1: dp.Laplace(noise_multiplier=2.0), 2: dp.Gaussian(noise_multiplier=2.0)}
w = cp.Variable(N, name="w")
u = cp.Variable(M, name="u")
TWICE = np.repeat(np.eye(M // 2), 2, axis=0)


def logistic(X, y):
    return cp.sum(cp.logistic(-cp.multiply(y, X @ w)))


def squares(X, y):
    return cp.sum_squares(X @ w - y)


def hinge_with_intercept(X, y):
    return cp.sum(cp.pos(1 - cp.multiply(y, X @ w + 0.5)))


# Cost, and a clip or None.
LOSSES = {
    "logistic": (logistic, None),
    "squares": (squares, None),
    "intercept": (hinge_with_intercept, None),
    "means": (lambda X, y: cp.sum(X @ w) - y @ np.arange(M) * w[0], None),
    "apart": (lambda X, y: y @ u + cp.sum(X @ w), None),
    "by twos": (lambda X, y: y @ (TWICE @ u[: M // 2]), None),
    "mixed": (lambda X, y: logistic(X, y) + y @ u, None),
    "weighted": (lambda X, y: cp.sum(cp.multiply(np.arange(1.0, M + 1), cp.logistic(X @ w))), None),
    "clipped": (squares, 0.3),
    "clipped logistic": (logistic, 0.1),
}


@cache
def facts(loss, relation, k, p=2, release=None, sign=False, algorithm=None, mechanism=None):
    """The public facts of an agent."""
    cost, clip = LOSSES[loss]
    rows = partial(dp.Rows, relation=relation, records="visit", max_rows_per_person=k)
    X = dp.Private(shape=(M, N), name="X", adjacency=rows(2.0), nonneg=sign)
    y = dp.Private(shape=(M,), name="y", adjacency=rows(0.5))
    total = cost(X, y) + 0.1 * cp.sum_squares(w) + 0.1 * cp.sum_squares(u)
    agent = dp.Agent(cp.Minimize(total), [cp.abs(w) <= 2, cp.abs(u) <= 1], clip_norm=clip)
    plan = dp.Problem([agent]).plan(
        algorithm or dp.LinearizedADMM(penalty=1.0), mechanism=mechanism or NOISES[p], rounds=2,
        delta=1e-6, **({} if release is None else {"release": release}),
    )  # fmt: skip
    return plan.agents[0]


def data_of(private, rng, fill=None):
    """Admissible records, of the largest norm where `fill` is 1; all alike where it is 2."""
    found = []
    for spec in private:
        rows = rng.normal(size=(M, spec.size // M))
        rows = rows[[0] * M] if fill == 2 else rows
        rows = np.abs(rows) if spec.sign == "nonneg" else rows
        rows *= spec.adjacency.max_norm / np.linalg.norm(rows, axis=1, keepdims=True)
        found.append(rows * (rng.uniform(size=(M, 1)) if fill is None else 1.0))
    return found


def neighbors(private, k, relation, rng):
    """Data, and those in which up to k rows of one person are others, or absent."""
    rows = M if k == "all" else min(k, M)
    fill, moved = rng.choice([None, 1, 2]), rng.choice(M, size=rows, replace=False)
    data, other = data_of(private, rng, fill), data_of(private, rng, fill)
    fresh = [part.copy() for part in data]
    opposite = rng.integers(2) and not any(spec.sign for spec in private)
    for part, new, own in zip(fresh, other, data, strict=True):
        part[moved] = 0.0 if relation != "replace_one" else -own[moved] if opposite else new[moved]
    if relation == "replace_one" and rng.integers(2):
        fresh[-1][moved] = data[-1][moved]  # one part of the records stays
    if rng.integers(2):
        data, fresh = fresh, data
    return tuple([part.ravel(order="F") for part in parts] for parts in (data, fresh))


@pytest.mark.parametrize("k", [2, "all"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), sign=st.booleans())
def test_no_neighbor_moves_a_gradient_farther(loss, relation, k, seed, sign):
    agent = facts(loss, relation, k, sign=sign and loss != "means")
    known, form, rng = agent.sensitivity, agent.form, np.random.default_rng(seed)
    one, two = (form.bind(data, known.clips) for data in neighbors(form.private, k, relation, rng))
    x = rng.uniform(-1, 1, size=form.n)
    moved = one.gradient(x) - two.gradient(x)
    for p in (1, 2):
        size = np.linalg.norm(moved, p)
        for bound in (known.bound(p).value, known.bound(p, x=x).value, known.near(p, x)):
            assert size <= bound * (1 + 1e-9)
    scale = rng.uniform(size=form.n)
    assert np.linalg.norm(scale * moved) <= known.bound(2, scale).value * (1 + 1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_of_a_constant_jacobian_are_reached(relation, k):
    """Records in one direction add up; those with components of their own do as squares."""
    times = 2 if relation == "replace_one" else 1
    means, apart, twos = (
        facts(loss, relation, k).sensitivity for loss in ("means", "apart", "by twos")
    )
    heavy = sum(range(M - k, M)) * 0.5 + k * 2.0
    assert means.bound(2).value == pytest.approx(times * heavy)
    y = {2: times * (2.0 + 0.5) * k, 1: times * (2.0 * math.sqrt(N) + 0.5) * k}
    assert apart.bound(1).value == pytest.approx(y[1])
    assert apart.bound(2).value <= y[2] * (1 + 1e-6)
    assert twos.bound(1).value == pytest.approx(times * 0.5 * k)
    both = {1: 1.0, 2: 2.0, 3: math.sqrt(6)}[k]  # rows that meet in pairs
    assert twos.bound(2).value == pytest.approx(times * 0.5 * both)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_records_of_several_weights_add_up_to_those_of_the_heaviest(k):
    one = facts("weighted", "replace_one", 1).sensitivity.bound(2).value / M
    found = facts("weighted", "replace_one", k).sensitivity.bound(2)
    assert found.value == pytest.approx(one * sum(range(M - k + 1, M + 1))) and not found.tight


def test_what_several_rows_do_together_is_called_an_upper_bound():
    assert facts("by twos", "replace_one", 1).sensitivity.bound(2).tight
    assert not facts("by twos", "replace_one", 2).sensitivity.bound(2).tight


def test_clipped_contributions_add_up():
    for relation, times in zip(RELATIONS, (2, 1), strict=True):
        known = facts("clipped", relation, 3).sensitivity
        assert known.change_by_clips == pytest.approx(3 * times * 0.3)
        assert known.bound(2).value == pytest.approx(3 * times * 0.3)
        for k in (99, "all"):
            assert facts("clipped", relation, k).sensitivity.moved_records == M


def test_one_row_per_person_is_as_rows_without_a_limit():
    for loss in LOSSES:
        for p in (1, 2):
            counted, plain = (facts(loss, "replace_one", k).sensitivity for k in (1, None))
            assert counted.bound(p).value == plain.bound(p).value


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("k", [3, "all"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", ["squares", "means", "apart", "by twos"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbor_moves_what_is_released_once_farther(loss, relation, k, p, seed):
    found = facts(loss, relation, k, p, release="once").publication
    data = neighbors(found.private, k, relation, np.random.default_rng(seed))
    one, two = map(found.statistic, data)
    assert np.linalg.norm(one - two, p) <= found.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_bounds_of_second_moments_are_reached(k):
    """Equal records of one person, replaced by records at right angles."""
    for relation, times in zip(RELATIONS, (math.sqrt(2), 1.0), strict=True):
        found = facts("squares", relation, k, release="once").publication
        X, y = np.zeros((M, N)), np.zeros(M)
        other = X.copy()
        X[:k, 0], y[:k] = 2.0, 0.5
        if relation == "replace_one":
            other[:k, 1] = 2.0
        one = found.statistic([X.ravel(order="F"), y])
        two = found.statistic([other.ravel(order="F"), -y if relation == "replace_one" else 0 * y])
        assert found.sensitivity == pytest.approx(k * times)
        assert 0.8 * found.sensitivity <= np.linalg.norm(one - two) <= found.sensitivity


@pytest.mark.parametrize("k", [3, "all"])
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("loss", ["clipped", "clipped logistic"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_neighbor_moves_an_answer_about_the_scale_farther(loss, relation, k, seed):
    step = dp.FederatedGradient(step=0.1)
    agent, rng = facts(loss, relation, k, algorithm=step), np.random.default_rng(seed)
    one, two = neighbors(agent.form.private, k, relation, rng)
    for query in asked(rng.uniform(-1, 1, size=agent.form.n), rng):
        moved = answer(agent, query, one) - answer(agent, query, two)
        assert np.linalg.norm(moved) <= bound_of(agent, query) * (1 + 1e-9)


def test_answers_about_the_scale_are_bounded_as_far_as_people_move_them():
    """Of records that are all cut, one person's absence moves each count by all its rows."""
    agent = facts("clipped", "add_or_remove_one", 3, algorithm=dp.FederatedGradient(step=0.1))
    X, y = np.zeros((M, N)), np.full(M, 0.5)
    X[:, 0] = 2.0
    other, absent = X.copy(), y.copy()
    other[:3], absent[:3] = 0.0, 0.0
    one, two = [X.ravel(order="F"), y], [other.ravel(order="F"), absent]
    for query in asked(np.zeros(agent.form.n), np.random.default_rng(0)):
        query = type(query)(
            **{
                **vars(query),
                **({"limit": 1e-3} if hasattr(query, "limit") else {"multiple": 1e-3}),
            }
        )
        moved = np.linalg.norm(answer(agent, query, one) - answer(agent, query, two))
        assert 0.99 * bound_of(agent, query) <= moved


@settings(max_examples=40)
@given(
    values=st.lists(st.floats(0, 1e3), min_size=1, max_size=7),
    k=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
)
def test_changes_of_rows_that_meet_add_up_to_no_more(values, k, seed):
    """Vectors of given lengths, where each component is moved by so many of them at most."""
    rows, rng = len(values), np.random.default_rng(seed)
    used = rng.integers(0, 2, size=(4, rows)) > 0
    vectors = rng.normal(size=used.shape) * used
    lengths = np.linalg.norm(vectors, axis=0)
    vectors *= np.where(lengths > 0, values / np.where(lengths > 0, lengths, 1), 0)
    meet, adjacency = int(used.sum(axis=1).max()), Rows(1.0, max_rows_per_person=k)
    assert meeting([used.astype(float)], rows) == meet
    bound = of_person(np.linalg.norm(vectors, axis=0), adjacency, rows, meet)
    assert bound <= of_person(np.array(values), adjacency, rows) * (1 + 1e-12)
    for _ in range(5):
        some = rng.choice(rows, size=min(k, rows), replace=False)
        assert np.linalg.norm(vectors[:, some].sum(axis=1)) <= bound * (1 + 1e-9)


def test_what_is_no_number_bounds_nothing():
    two = Rows(1.0, max_rows_per_person=2)
    assert of_person(np.array([1.0, math.nan]), two, 2) == math.inf
    assert of_person(np.array([1.0, math.inf]), two, 2, 1) == math.inf
    assert of_person(np.array([1e308]), two, 2) == math.inf
    assert of_person(np.zeros(3), two, 3, 1) == 0


def test_parts_of_records_have_one_limit():
    X = dp.Private(shape=(M, N), name="X", adjacency=dp.Rows(1.0, max_rows_per_person=2))
    y = dp.Private(shape=M, name="y", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.abs(w) <= 1])
    with pytest.raises(dp.PrivacyError, match="in max_rows_per_person="):
        dp.Problem([agent]).plan(epsilon=1, delta=1e-6)


@pytest.mark.parametrize(
    "other", [dp.Within(0.1), dp.Rows(1.0), dp.Rows(1.0, records="test", max_rows_per_person="all")]
)
def test_beside_all_rows_of_a_client_there_are_no_other_data(other):
    X = dp.Private(shape=(M, N), name="X", adjacency=dp.Rows(1.0, max_rows_per_person="all"))
    b = dp.Private(shape=N, name="b", adjacency=other)
    agent = dp.Agent(cp.Minimize(cp.sum(X @ w) + b @ w), [cp.abs(w) <= 1], name="client")
    with pytest.raises(dp.PrivacyError, match="'X' of agent 'client'.*would not change with it"):
        dp.Problem([agent]).plan(epsilon=1, delta=1e-6)
