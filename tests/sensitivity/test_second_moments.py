"""Second moments released once: their sensitivity, surrogate records, and what is refused."""

import math
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import dpcvx as dp
from dpcvx.sensitivity.second_moments import Moments

RECORDS, COLUMNS = 6, 3


def regression(rows, *, x=None, y=None, m=RECORDS, k=COLUMNS, cost=None, **agent):
    """``||X w - y||^2`` with private records of bounded norms."""
    w = cp.Variable(k, name="w")
    X = dp.Private(x, shape=(m, k), name="X", adjacency=rows(2.0))
    Y = dp.Private(y, shape=m, name="y", adjacency=rows(0.5))
    loss = cp.sum_squares(X @ w - Y) if cost is None else cost(X, w, Y)
    agent = dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 1], name="site", **agent)
    return dp.Problem([agent])


def rows(norm=2, change="replace_one"):
    return lambda bound: dp.Rows(bound, norm=norm, relation=change, records="person")


def planned(problem, mechanism=None, rounds=2):
    return problem.plan(
        dp.LinearizedADMM(penalty=1.0),
        mechanism=mechanism or dp.Gaussian(noise_multiplier=2.0),
        rounds=rounds,
        delta=1e-6,
        release="once",
    )


@cache
def statistics(norm, change, p, m=RECORDS, k=COLUMNS):
    noise = dp.Gaussian(noise_multiplier=2.0) if p == 2 else dp.Laplace(noise_multiplier=2.0)
    found = planned(regression(rows(norm, change), m=m, k=k), noise).agents[0].publication
    assert isinstance(found, Moments)
    return found


@cache
def of_one_part(norm, p, k=2):
    """``||X w||^2``: the records have no other part."""
    w = cp.Variable(k, name="w")
    X = dp.Private(shape=(RECORDS, k), name="X", adjacency=dp.Rows(2.0, norm=norm))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w)), [cp.abs(w) <= 1])
    noise = dp.Gaussian(noise_multiplier=2.0) if p == 2 else dp.Laplace(noise_multiplier=2.0)
    found = planned(dp.Problem([agent]), noise).agents[0].publication
    return found


def data_for(found, seed, length=1.0):
    """Records with rows of random length up to their bound, or of a share of it."""
    rng = np.random.default_rng(seed)
    parts = []
    for spec in found.private:
        part = rng.normal(size=(spec.shape[0], spec.size // spec.shape[0]))
        part /= np.linalg.norm(part, spec.adjacency.norm, axis=1, keepdims=True)
        part *= length * spec.adjacency.max_norm * rng.uniform(size=(spec.shape[0], 1)) ** 0.2
        parts.append(part)
    return parts


def flat(parts):
    return [part.ravel(order="F") for part in parts]


def moved(found, data, other):
    return found.statistic(flat(data)) - found.statistic(flat(other))


# Sensitivity


KINDS = ("random", "opposite", "rolled", "zero", "axis", "corner")


def record(found, kind, length, vector, own):
    """A record: one row per part, each of at most its bound."""
    parts = []
    start = 0
    for spec, old in zip(found.private, own, strict=True):
        part = np.asarray(vector[start : start + old.size], dtype=float)
        start += old.size
        if kind == "opposite":
            part = -old
        elif kind == "rolled":  # orthogonal for alternating signs, else just another
            part = np.roll(old, 1) * (-1.0) ** np.arange(old.size)
        elif kind == "zero":
            part = np.zeros(old.size)
        elif kind == "axis":
            part = np.eye(old.size)[0] * np.sign(part[0] + 0.5)
        elif kind == "corner":
            part = np.where(part < 0, -1.0, 1.0)
        size = np.linalg.norm(part, spec.adjacency.norm)
        parts.append(part * (length * spec.adjacency.max_norm / size if size > 0 else 0.0))
    return parts


entries = st.lists(
    st.floats(-1, 1).map(lambda v: round(v, 6)), min_size=COLUMNS + 1, max_size=COLUMNS + 1
)
lengths = st.one_of(st.just(1.0), st.floats(0, 1).map(lambda v: round(v, 6)))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
@settings(max_examples=25)
@given(
    st.integers(0, 10**6),
    st.integers(0, RECORDS - 1),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.tuples(lengths, lengths),
    st.tuples(entries, entries),
)
def test_neighbors_differ_by_at_most_the_sensitivity(
    norm, change, p, seed, i, first, second, length, vectors
):
    found = statistics(norm, change, p)
    data = data_for(found, seed)
    old = record(found, first, length[0], vectors[0], [part[i] for part in data])
    new = record(found, second, length[1], vectors[1], old)
    if change == "add_or_remove_one":
        new = [np.zeros_like(part) for part in new]
    other = [part.copy() for part in data]
    for part, changed, a, b in zip(data, other, old, new, strict=True):
        part[i], changed[i] = a, b
    # The declaration accepts both.
    for spec, part in zip(found.private, data, strict=True):
        spec.checked(part.reshape(spec.shape))
    assert np.linalg.norm(moved(found, data, other), p) <= found.sensitivity


def extreme(found, signs):
    """A record of the largest admissible norm in l2, in every part."""
    parts = []
    for spec, sign in zip(found.private, signs, strict=True):
        width, bound = spec.size // spec.shape[0], spec.adjacency.max_norm
        if spec.adjacency.norm == math.inf:
            row = np.full(width, bound)
        else:
            row = bound * np.eye(width)[0]
        parts.append(sign * row)
    return parts


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_the_l2_sensitivity_of_a_replaced_record_is_attained(norm):
    found = statistics(norm, "replace_one", 2)
    data, other = data_for(found, 0), data_for(found, 0)
    # (x, y) and (-x, y), of equal weight: orthogonal.
    for changed, signs in ((data, (1, 1)), (other, (-1, 1))):
        for part, row in zip(changed, extreme(found, signs), strict=True):
            part[0] = row
    assert np.linalg.norm(moved(found, data, other)) == pytest.approx(found.sensitivity, rel=1e-8)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_the_l2_sensitivity_of_an_added_record_is_attained(norm):
    found = statistics(norm, "add_or_remove_one", 2)
    data, other = data_for(found, 0), data_for(found, 0)
    for part, absent, row in zip(data, other, extreme(found, (1, 1)), strict=True):
        part[0], absent[0] = row, 0.0
    assert np.linalg.norm(moved(found, data, other)) == pytest.approx(found.sensitivity, rel=1e-8)


def test_the_l1_sensitivity_is_attained_for_two_columns():
    # The difference of projections onto orthogonal lines, turned until all three entries are equal.
    found = of_one_part(2, 1)
    M = np.array([[1.0, math.sqrt(0.5)], [math.sqrt(0.5), -1.0]])
    v, w = np.linalg.eigh(M)[1].T
    (data,) = data_for(found, 1)
    other = data.copy()
    data[0], other[0] = 2.0 * w, 2.0 * v
    distance = np.linalg.norm(moved(found, [data], [other]), 1)
    assert distance == pytest.approx(found.sensitivity, rel=1e-8)


def test_the_l1_sensitivity_is_nearly_attained_for_more():
    found = statistics(2, "replace_one", 1)
    data, rng = data_for(found, 2), np.random.default_rng(3)
    best = 0.0
    for _ in range(2000):
        old, new = (
            record(found, "random", 1.0, rng.normal(size=COLUMNS + 1), [p[0] for p in data])
            for _ in range(2)
        )
        other = [part.copy() for part in data]
        for part, changed, a, b in zip(data, other, old, new, strict=True):
            part[0], changed[0] = a, b
        best = max(best, np.linalg.norm(moved(found, data, other), 1))
    assert 0.7 * found.sensitivity < best <= found.sensitivity


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_the_statistic_keeps_norms_of_rows_within_one(norm):
    found = statistics(norm, "replace_one", 2)
    data = data_for(found, 4)
    for part, row in zip(data, extreme(found, (1, 1)), strict=True):
        part[:] = 0.0
        part[0] = row
    # |vv'|_F = |v|^2.
    assert np.linalg.norm(found.statistic(flat(data))) == pytest.approx(1.0, rel=1e-12)
    assert found.size == found.order * (found.order + 1) // 2 == 10


# Surrogate records


COSTS = {
    "plain": lambda X, w, y: cp.sum_squares(X @ w - y),
    "scaled": lambda X, w, y: 0.3 * cp.sum_squares(2 * (X @ w) - 4 * y),
    "turned": lambda X, w, y: cp.sum_squares(y - X @ w),
    "mean and ridge": lambda X, w, y: cp.sum_squares(X @ w - y) / y.size + 0.1 * cp.sum_squares(w),
    "affine in w": lambda X, w, y: cp.sum_squares(X @ (2 * w + 1) - y),
}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 12])
def test_exact_moments_give_the_exact_gradient_with_few_and_many_records(cost, m):
    # The order of the moments is 4: X has three columns, y one.
    problem = regression(rows(), m=m, cost=COSTS[cost])
    plan = planned(problem)
    found, form = plan.agents[0].publication, plan.program.agents[0].form
    data = flat(data_for(found, m))
    restored = found.restore(found.statistic(data))
    assert [part.size for part in restored] == [spec.size for spec in found.private]
    rng = np.random.default_rng(5)
    one, two = form.bind(data), form.bind(restored)
    for _ in range(5):
        x = rng.normal(size=COLUMNS)
        assert np.allclose(one.gradient(x), two.gradient(x), rtol=0, atol=1e-8)
        assert one.value(x) == pytest.approx(two.value(x), abs=1e-7)


def test_exact_moments_of_matrix_targets_give_the_exact_gradient():
    W = cp.Variable((2, 3), name="W")
    X = dp.Private(shape=(5, 2), name="X", adjacency=dp.Rows(1.0))
    Y = dp.Private(shape=(5, 3), name="Y", adjacency=dp.Rows(2.0, norm=1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ W - Y)), [cp.abs(W) <= 1])
    plan = planned(dp.Problem([agent]))
    found, form = plan.agents[0].publication, plan.program.agents[0].form
    data = flat(data_for(found, 6))
    restored = found.restore(found.statistic(data))
    x = np.random.default_rng(7).normal(size=6)
    assert np.allclose(form.bind(data).gradient(x), form.bind(restored).gradient(x), atol=1e-8)
    assert found.order == 5


def unpacked(found, released):
    i, j = np.triu_indices(found.order)
    S = np.zeros((found.order, found.order))
    S[i, j] = S[j, i] = released / np.where(i == j, 1.0, math.sqrt(2))
    return S


@pytest.mark.parametrize("m", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("seed", range(3))
def test_repaired_moments_are_the_nearest_of_admissible_rank(m, seed):
    found = statistics(2, "replace_one", 2, m)
    rng = np.random.default_rng(seed)
    noisy = rng.normal(size=found.size)
    repaired = found.statistic(found.restore(noisy))
    S, R = unpacked(found, noisy), unpacked(found, repaired)
    values = np.linalg.eigvalsh(R)
    assert values.min() > -1e-12
    assert (values > 1e-10).sum() <= m
    distance = np.linalg.norm(S - R)
    # The statistic keeps distances, so that nearest means nearest for the noise.
    assert distance == pytest.approx(np.linalg.norm(noisy - repaired), rel=1e-12)

    def gap(v):
        V = v.reshape(min(m, 4), found.order)
        E = V.T @ V - S
        return float((E**2).sum()), (4 * V @ E).ravel()

    # No factor of that rank that a search finds from several starts is nearer.
    searched = [
        minimize(gap, rng.normal(size=min(m, 4) * found.order), jac=True, tol=1e-12).fun
        for _ in range(4)
    ]
    assert distance**2 == pytest.approx(min(searched), rel=1e-6)


def test_admissible_moments_are_left_alone():
    found = statistics(2, "replace_one", 2)
    released = found.statistic(flat(data_for(found, 8)))
    assert np.allclose(found.statistic(found.restore(released)), released, atol=1e-12)


def test_moments_without_a_positive_part_become_zero():
    found = statistics(2, "replace_one", 2)
    restored = found.restore(-found.statistic(flat(data_for(found, 9))))
    assert max(np.abs(part).max() for part in restored) < 1e-6


# Plans and runs


def records(m=40, seed=10):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, COLUMNS))
    X *= 2.0 * rng.uniform(0.5, 1, size=(m, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
    y = np.clip(X @ np.array([0.3, -0.2, 0.1]) + 0.02 * rng.normal(size=m), -0.5, 0.5)
    return X, y


@pytest.mark.parametrize(
    "noise", [dp.Gaussian(noise_multiplier=3.0), dp.Laplace(noise_multiplier=3.0)], ids=str
)
@pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("m", [3, 40])
def test_record_and_replay_finds_no_fault(noise, change, m):
    X, y = records(m)
    found = dp.check_sensitivity(planned(regression(rows(change=change), x=X, y=y, m=m), noise))
    assert found.passed
    (agent,) = found.agents
    assert agent.releases == 1
    assert 0.1 < agent.ratio <= 1


def test_the_ledger_and_the_guarantee_name_the_moments():
    X, y = records()
    plan = planned(regression(rows(), x=X, y=y, m=40))
    (entry,) = plan.run(seed=0).ledger["site"].entries
    assert (entry.round, entry.step, entry.released) == (0, 1, "second moments")
    assert entry.sensitivity == pytest.approx(math.sqrt(2), rel=1e-4)
    assert entry.certificate == "derived"
    (agent,) = plan.guarantee.agents
    assert agent.scale == pytest.approx(2 * math.sqrt(2), rel=1e-4)
    text = " ".join(str(plan).split())
    assert "per entry of the second moments of 'X', 'y', rows in unit norm" in text


def test_releases_alone_reproduce_the_run():
    X, y = records()
    plan = planned(regression(rows(), x=X, y=y, m=40))
    result = plan.run(seed=1, record=True)
    again = plan.replay(result.transcript)
    assert np.array_equal(result.last.vectors[0], again.last.vectors[0])
    (release,) = result.transcript.releases
    assert release.value.shape == (10,)


def mean_loss(X, w, y):
    return cp.sum_squares(X @ w - y) / y.size


def test_a_run_with_little_noise_finds_the_least_squares_solution():
    X, y = records()
    plan = planned(
        regression(rows(), x=X, y=y, m=40, cost=mean_loss),
        dp.Gaussian(noise_multiplier=1e-6),
        rounds=400,
    )
    result = plan.run(seed=0)
    assert np.allclose(result.last.vectors[0], np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-4)


def test_it_beats_noise_in_each_step_at_the_same_budget():
    # 400 records, 100 rounds, total (1, 1e-6): mean error of the reported iterate, five seeds.
    X, y = records(400)
    problem = regression(rows(), x=X, y=y, m=400, cost=mean_loss)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    error = {}
    for release in ("once", "each_step"):
        plan = problem.plan(
            dp.LinearizedADMM(), rounds=100, epsilon=1.0, delta=1e-6, release=release
        )
        found = [plan.run(seed=s).solution.vectors[0] for s in range(5)]
        error[release] = np.mean([np.linalg.norm(x - best) for x in found])
    assert error["once"] < 0.5 * error["each_step"], error


def test_long_rows_are_clipped_before_their_moments_are_taken():
    X, y = records(5)
    long = X.copy()
    long[0] *= 100
    clipped = long.copy()
    clipped[0] *= 2.0 / np.linalg.norm(clipped[0])
    plan = planned(regression(lambda bound: dp.Rows(bound, clip_rows=True), m=5, cost=mean_loss))
    runs = [plan.run(data={"X": x, "y": y}, seed=3).last.vectors[0] for x in (long, clipped)]
    assert np.allclose(*runs, atol=1e-9)


# Refused: whatever reads more than the moments


def weights(X, w, y):
    return cp.sum_squares(cp.multiply(np.arange(1.0, 1 + RECORDS), X @ w - y))


MORE = {
    "huber": lambda X, w, y: cp.sum(cp.huber(X @ w - y)),
    "weights": weights,
    "an offset": lambda X, w, y: cp.sum_squares(X @ w - y - 1),
    "an intercept": lambda X, w, y: cp.sum_squares(X @ w - y + w[0]),
    "a fixed column": lambda X, w, y: cp.sum_squares(
        cp.hstack([X, np.ones((RECORDS, 1))]) @ cp.hstack([w, 1.0]) - y
    ),
    "some columns": lambda X, w, y: cp.sum_squares(X[:, :2] @ w[:2] - y) + cp.sum_squares(w),
    "some records": lambda X, w, y: cp.sum_squares(X[:4] @ w - y[:4]),
    "two terms": lambda X, w, y: cp.sum_squares(X @ w - y) + cp.sum_squares(X @ w),
    "a constant slope": lambda X, w, y: cp.sum_squares(X @ w - y) + cp.sum(X @ w),
    "labels elsewhere": lambda X, w, y: cp.sum_squares(X @ w) + y[0] * w[0],
    "logistic": lambda X, w, y: cp.sum(cp.logistic(-cp.multiply(y, X @ w))),
    "an unused part": lambda X, w, y: cp.sum_squares(X @ w) + 0 * cp.sum(y),
}


@pytest.mark.parametrize("name", MORE)
def test_objectives_that_read_more_than_the_moments_are_refused(name):
    problem = regression(rows(), cost=MORE[name])
    with pytest.raises(dp.PrivacyError, match="release='once'.*second moments"):
        planned(problem)
    # Each of them has a certificate for noise in each step.
    problem.plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "agent", [{"clip_norm": 1.0}, {"sensitivity": dp.Asserted(l2=1.0)}], ids=["clipped", "asserted"]
)
def test_clipped_and_asserted_agents_are_refused(agent):
    with pytest.raises(dp.PrivacyError, match="release='once'"):
        planned(regression(rows(), **agent))


def test_public_targets_are_refused():
    w = cp.Variable(COLUMNS, name="w")
    X = dp.Private(shape=(RECORDS, COLUMNS), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - np.ones(RECORDS))), [cp.abs(w) <= 1])
    with pytest.raises(dp.PrivacyError, match="second moments"):
        planned(dp.Problem([agent]))


@pytest.mark.parametrize("which", ["X", "y", "both"])
def test_data_that_are_no_records_have_no_moments(which):
    w = cp.Variable(COLUMNS, name="w")
    near = dp.Within(0.1)
    X = dp.Private(
        shape=(RECORDS, COLUMNS), name="X", adjacency=near if which != "y" else dp.Rows(1.0)
    )
    y = dp.Private(shape=RECORDS, name="y", adjacency=near if which != "X" else dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.abs(w) <= 1])
    with pytest.raises(dp.PrivacyError):
        planned(dp.Problem([agent]))


def test_records_of_two_kinds_are_refused():
    w = cp.Variable(COLUMNS, name="w")
    X = dp.Private(shape=(RECORDS, COLUMNS), name="X", adjacency=dp.Rows(1.0, records="person"))
    y = dp.Private(shape=RECORDS, name="y", adjacency=dp.Rows(1.0, records="visit"))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), [cp.abs(w) <= 1])
    with pytest.raises(dp.PrivacyError):
        planned(dp.Problem([agent]))


def test_other_agents_may_release_what_is_theirs():
    X, y = records()
    w = cp.Variable(COLUMNS, name="w")
    parts = [
        dp.Private(v, name=n, adjacency=dp.Rows(b)) for v, n, b in ((X, "X", 2.0), (y, "y", 0.5))
    ]
    d = dp.Private(np.ones(COLUMNS), name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(parts[0] @ w - parts[1])), [cp.abs(w) <= 1], name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(w - d)), [cp.abs(w) <= 1], name="b"),
    ]
    plan = planned(dp.Problem(agents))
    assert [agent.publication.kind for agent in plan.agents] == ["second moments", "data"]
    assert dp.check_sensitivity(plan).passed


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("m", [3, 40])
def test_exact_steps_solve_the_problem_with_surrogate_records(m, seed):
    X, y = records(m)
    problem = regression(rows(), x=X, y=y, m=m)
    plan = problem.plan(
        dp.ADMM(), mechanism=dp.Gaussian(noise_multiplier=0.5), rounds=3, delta=1e-6, release="once"
    )
    result = plan.run(seed=seed, record=True)
    (released,) = result.transcript.releases
    found = plan.agents[0].publication
    Z, t = found.restore(released.value)
    Z = Z.reshape((m, COLUMNS), order="F")
    w = cp.Variable(COLUMNS)
    cp.Problem(cp.Minimize(cp.sum_squares(Z @ w - t)), [cp.abs(w) <= 1]).solve(cp.CLARABEL)
    # A single agent is done after one step, and later steps stay there. Noise may take away a
    # direction of three records: fits are then unique, and weights are not.
    assert Z @ result.last["w"] == pytest.approx(Z @ w.value, abs=1e-5)
    assert np.abs(result.last["w"]).max() <= 1 + 1e-8
    singular = np.linalg.svd(Z, compute_uv=False)
    if singular[-1] > 0.1:
        assert result.last["w"] == pytest.approx(w.value, abs=1e-5)
    assert dp.check_sensitivity(plan).passed
    again = plan.replay(result.transcript)
    assert np.array_equal(result.last["w"], again.last["w"])


def test_second_derivatives_of_private_records_never_leave_in_a_step():
    class Curious(dp.ADMM):
        """Not an exact method, for the plan."""

        @property
        def requirements(self):
            return replace(super().requirements, exact=False)

    with pytest.raises(
        dp.PrivacyError, match="second derivatives of the objective of agent 'site'"
    ):
        regression(rows()).plan(Curious(), epsilon=1.0, delta=1e-6)


def test_an_intercept_is_named_and_a_column_of_ones_takes_its_place():
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    X = dp.Private(np.ones((4, 2)), name="X", adjacency=dp.Rows(2.0, records="r"))
    V = dp.Private(np.ones((4, 3)), name="V", adjacency=dp.Rows(3.0, records="r"))
    y = dp.Private(np.ones(4), name="y", adjacency=dp.Rows(1.0, records="r"))

    def planned(cost):
        agent = dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1, cp.abs(b) <= 1], name="a")
        return dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6, release="once")

    for added in (X @ w + b - y, X @ w - y - 2 * b):
        with pytest.raises(dp.PrivacyError, match=r"an intercept is added.*cp\.hstack\(\[w, b\]\)"):
            planned(cp.sum_squares(added))
    for cost in (cp.sum(cp.logistic(X @ w + b)), cp.sum_squares(X @ w - y + np.arange(4) * b)):
        with pytest.raises(dp.PrivacyError, match="release='once' needs") as caught:
            planned(cost)
        assert "intercept" not in str(caught.value)
    assert planned(cp.sum_squares(V @ cp.hstack([w, b]) - y)).release == "once"
