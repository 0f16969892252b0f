"""Sparse data and stand-ins, next to the same numbers in arrays."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx import not_private

ROWS, N = 40, 6
W = cp.Variable(N, name="w")


def features(seed):
    rng = np.random.default_rng(seed)
    return 0.3 * sp.random_array((ROWS, N), density=0.3, random_state=rng, format="csr")


def problem(X, like=None):
    data = dp.Private(X, name="X", adjacency=dp.Rows(1.0), proxy=like)
    labels = np.sign(np.sin(np.arange(ROWS)))
    cost = cp.sum(cp.logistic(cp.multiply(-labels, data @ W))) / ROWS
    return dp.Problem([dp.Agent(cp.Minimize(cost), [cp.norm(W) <= 3], name="a")])


def test_objective_and_central_problem_are_those_of_the_array():
    X = features(0)
    sparse, dense = problem(X), problem(X.toarray())
    budget = dict(rounds=2, epsilon=1.0, delta=1e-6)
    solution = sparse.plan(dp.FederatedGradient(0.1), **budget).run(verbose=False).solution
    value = not_private.objective(dense, solution)
    assert not_private.objective(sparse, solution) == pytest.approx(value, rel=1e-12)
    assert not_private.objective(sparse, solution, data={"X": X.tocsc()}) == pytest.approx(value)
    optimum = not_private.joint_problem(dense).solve()
    assert not_private.joint_problem(sparse).solve() == pytest.approx(optimum, rel=1e-6)


def test_stand_ins_may_be_sparse():
    X, like = features(0), features(1)
    one, other = problem(X, like=like), problem(X, like=like.toarray())
    found = [p.agents[0].private[0].proxy for p in (one, other)]
    np.testing.assert_array_equal(found[0].toarray(), found[1])
    with pytest.raises(ValueError, match="read-only"):
        found[0].data[0] = 1.0
    settings = dict(epsilon=1.0, delta=1e-6, time_limit=1, verbose=False)
    for tuned in (one.tune(**settings), problem(X).tune(proxy={"X": like}, **settings)):
        assert isinstance(tuned.plan(), dp.Plan)


def test_stand_ins_of_another_shape_are_refused():
    with pytest.raises(dp.DataError, match="The values in proxy= of private 'X' have shape"):
        problem(features(0), like=features(1)[:, :3])
