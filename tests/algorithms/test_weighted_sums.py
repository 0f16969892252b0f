"""Through which weighted sums a model reads its data."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.program import AsWritten, compile_problem
from dpcvx.algorithms.weighted_sums import reads_moments
from dpcvx.sensitivity.release_once import Publication

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def sums_of(cost, *data, constraints=()):
    agent = dp.Agent(cp.Minimize(cost), list(constraints), name="a")
    program = compile_problem(
        dp.Problem([agent]), as_written=AsWritten(margins=False, penalty=None)
    )
    sums = program.agents[0].sums
    return None if sums is None else sums.toarray()


def data(size, name="d", radius=0.5, norm="entry", **kind):
    return dp.Private(shape=size, name=name, adjacency=dp.Within(radius, norm), **kind)


def test_entries_of_one_sum_leave_together():
    S, d, p = np.kron(np.eye(3), np.ones((1, 4))), data(12), cp.Variable(3, name="p")
    sums = sums_of(cp.sum(cp.power(cp.pos(p), 3)) + cp.norm(S @ d - p))
    assert sums == pytest.approx(S / 0.5)  # in units of one change


def test_weights_are_those_of_the_model():
    w, d, x = np.array([1.0, -2.0, 0.5]), data(3), cp.Variable(name="x")
    sums = sums_of(cp.abs(w @ d - x) + cp.exp(-x))
    assert sums * np.sign(sums[0, 0]) == pytest.approx(w[np.newaxis] / 2 / 0.5)


def test_what_is_not_read_does_not_leave():
    d, x = data(5), cp.Variable(2, name="x")
    assert sums_of(cp.norm(x - d[1:3])) == pytest.approx(np.eye(5)[1:3] / 0.5)


def test_entries_that_are_read_one_by_one_leave_by_themselves():
    d, x = data(3), cp.Variable(3, name="x")
    assert sums_of(cp.norm(x - d)) is None
    # The total is read besides every entry: sums of more would be dearer than the data.
    assert sums_of(cp.norm(x - d) + cp.abs(cp.sum(x) - cp.sum(d))) is None


def test_models_that_are_not_affine_in_their_data_are_read_from_the_tree():
    a, b = data(6, "a", nonneg=True), data(1, "b", nonneg=True)
    x = cp.Variable(nonneg=True, name="x")
    sums = sums_of(cp.sum(a) * b[0] * x + cp.exp(-x))  # a product of two private objects
    assert sums == pytest.approx(np.array([[*np.ones(6), 0], [*np.zeros(6), 1]]) / 0.5)


def test_matrices_with_tied_entries_leave_as_they_are():
    S, x = data((2, 2), "S", PSD=True), cp.Variable(2, name="x")
    assert sums_of(cp.abs(cp.trace(S) - cp.sum(x))) is None


@pytest.mark.parametrize("entry", [True, False], ids=["entry", "l2"])
@pytest.mark.parametrize("seed", range(12))
def test_no_neighbor_moves_the_sums_by_more_than_their_sensitivity(seed, entry):
    """By brute force over changes of single entries, and random ones in the ball."""
    draws = np.random.default_rng(seed)
    n = int(draws.integers(3, 9))
    groups = draws.integers(0, 3, n).tolist()
    weights = draws.uniform(-2, 2, n)
    S = np.array([(np.array(groups) == k) * weights for k in sorted(set(groups))])
    d = data(n, radius=0.3, norm="entry" if entry else 2)
    p = cp.Variable(len(S), name="p")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(S @ d - p) + cp.norm(p - 1)), name="a")])
    plan = problem.plan(**BUDGET, mechanism="laplace" if entry else "gaussian")
    (agent,) = plan.agents
    found, norm = agent.publication, 1 if entry else 2
    assert isinstance(found, Publication)
    L = found.encode.toarray()
    if entry:
        changes = 0.3 * np.eye(n)
    else:
        changes = draws.normal(size=(50, n))
        changes *= 0.3 / np.linalg.norm(changes, axis=1, keepdims=True)
        changes = np.vstack([changes, 0.3 * np.linalg.svd(L)[2][:1]])
    moved = np.linalg.norm(changes @ L.T, norm, axis=1)
    assert moved.max() <= found.sensitivity
    assert moved.max() >= found.sensitivity * (1 - 1e-6)  # attained: no noise is wasted


def test_the_answer_depends_on_the_sums_alone():
    S, p = np.kron(np.eye(2), np.ones((1, 3))), cp.Variable(2, name="p")
    d = data(6, nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(S @ d - p) + cp.sum_squares(p)), name="a")])
    model = problem.plan(**BUDGET).program.model
    one, other = np.array([1.0, 2, 3, 4, 5, 6]), np.array([3.0, 2, 1, 5, 5, 5])
    found = [model.decide([values]).vectors[0] for values in (one, other)]
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_data_of_released_sums_have_their_limits_and_their_sums():
    S, p = np.kron(np.eye(2), np.ones((1, 3))), cp.Variable(2, name="p")
    d = data(6, bounds=(0.0, 2.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(S @ d - p)), name="a")])
    found = problem.plan(**BUDGET).agents[0].publication
    (restored,) = found.restore(np.array([3.3, 1.2]) / 0.5)
    assert S @ restored == pytest.approx([3.3, 1.2]) and restored.max() <= 2
    (clipped,) = found.restore(np.array([-4.0, 99.0]))  # beyond what such data can sum up to
    assert S @ clipped == pytest.approx([0.0, 6.0])


def records(name, shape, label="person", **kind):
    return dp.Private(shape=shape, name=name, adjacency=dp.Rows(2.0, records=label, **kind))


X, Z, y = records("X", (6, 2)), records("Z", (6, 2), "visit"), records("y", (6,))
d, w = dp.Private(shape=2, name="d", adjacency=dp.Within(0.5)), cp.Variable(2, name="w")
S, lam = cp.Variable((2, 2), name="S"), cp.Parameter(nonneg=True, name="lam", value=0.1)
PRODUCTS = {
    "gram": (True, cp.norm(S - X.T @ X)),
    "scaled": (True, cp.norm(S - 1 / 6 * X.T @ X) + lam * cp.norm1(S)),
    "divided inside": (True, cp.norm(S - (X.T / 6) @ (-X))),
    "targets": (True, cp.norm(X.T @ y - X.T @ X @ w)),
    "targets first": (True, cp.norm1(y @ X - w) + (y @ y) * cp.norm(w)),
    "squares": (True, cp.sum_squares(X @ w - y)),
    "root of squares": (True, cp.norm(X @ w - y) + cp.norm1(w)),
    "singular values": (True, cp.normNuc(X @ S) + cp.sigma_max(X)),
    "in a trace": (True, cp.trace(S @ (X.T @ X)) - cp.log_det(S)),
    "absolute values": (False, cp.norm1(X @ w)),
    "losses and gram": (False, cp.norm(S - X.T @ X) + cp.sum(cp.logistic(X @ w))),
    "squares near 0": (False, cp.sum(cp.huber((X @ w - y) / 1e3, 2))),
    "squares of short records": (False, cp.sum(cp.huber(X @ w - y, 1e3))),
    "an intercept": (False, cp.sum_squares(X @ w + 1 - y)),
    "pairs of records": (False, cp.norm1(X @ X.T) + cp.norm(w)),
    "column sums": (False, cp.norm(cp.sum(X, axis=0) - w)),
    "some rows": (False, cp.norm(S - X[:3].T @ X[:3])),
    "other weights": (False, cp.norm(S - X.T @ cp.multiply(np.arange(12.0).reshape(6, 2), X))),
    "two kinds of records": (False, cp.norm(S - X.T @ Z)),
    "other data too": (False, cp.norm(S - X.T @ X) + cp.norm(w - d)),
    "by a public matrix": (False, cp.norm(X.T @ np.ones((6, 2)) - S)),
}


LIMITS = {
    "gram": (True, X.T @ X << S),
    "residuals": (True, cp.norm(X @ w - y) <= 1),
    "each record": (False, X @ w <= 1),
}


@pytest.mark.parametrize("case", LIMITS)
def test_constraints_count_as_well(case):
    expected, limit = LIMITS[case]
    agent = dp.Agent(cp.Minimize(cp.trace(S) + cp.norm(w)), [limit], name="a")
    specs = [agent.specs("a")[private] for private in agent.private]
    assert reads_moments([agent.cost, limit], agent.private, specs) is expected


@pytest.mark.parametrize("case", PRODUCTS)
def test_records_that_enter_by_their_second_moments_alone_are_found(case):
    expected, cost = PRODUCTS[case]
    agent = dp.Agent(cp.Minimize(cost), name="a")
    specs = [agent.specs("a")[private] for private in agent.private]
    assert reads_moments([cost], agent.private, specs) is expected


def test_sums_in_the_imaginary_part_are_read_as_well():
    S, d = np.kron(np.eye(2), np.ones((1, 3))), data(6)
    z, scale = cp.Variable(2, complex=True, name="z"), cp.Variable(nonneg=True, name="scale")
    assert sums_of(cp.norm(1j * (S @ d) - z)) == pytest.approx(S / 0.5)
    # Read from the tree: the factor is private as well.
    factor = data(1, "factor", nonneg=True)
    sums = sums_of(cp.abs(1j * cp.sum(d)) * factor[0] * scale + cp.exp(-scale))
    assert sums is not None and sums.shape[0] == 2 and (sums[:, :6] != 0).any(axis=0).all()
