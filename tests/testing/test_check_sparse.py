"""Runs on sparse data against replays on a neighbor's: the same neighbors as of arrays."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp

N, K = 40, 6


def records(sign=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, K)) * (rng.random((N, K)) < 0.3)
    X = X if sign is None else np.abs(X)
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, np.newaxis]


def plan_of(X, y=None, *, clip=None, sign=None, change="replace_one", method=None):
    w = cp.Variable(K, name="w")
    rows = dp.Rows(1.0, records="person", relation=change)
    data = dp.Private(X, name="X", adjacency=rows, nonneg=sign == "nonneg")
    labels = np.sin(1.0 + np.arange(N)) if y is None else dp.Private(y, name="y", adjacency=rows)
    scores = data @ w - labels
    cost = cp.Minimize(cp.sum(cp.huber(scores, 0.5)) / N + cp.sum_squares(w) / 10)
    agent = dp.Agent(cost, [cp.abs(w) <= 5], name="a", clip_norm=clip)
    problem = dp.Problem([agent])
    return problem.plan(method or dp.FederatedGradient(0.1), rounds=2, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("change", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("sign", [None, "nonneg"])
@pytest.mark.parametrize("clip", [None, 0.3 / N])
def test_sparse_records_are_checked_as_arrays_are(change, sign, clip):
    X, y = records(sign), np.cos(np.arange(N))
    found = [
        dp.check_sensitivity(plan_of(kind(X), y, clip=clip, sign=sign, change=change))
        for kind in (np.asarray, sp.csr_array, sp.csc_array)
    ]
    assert all(one.passed for one in found), found[1]
    (dense,), *others = (one.agents for one in found)
    assert dense.ratio > 0.1
    for (other,) in others:
        assert other.ratio == pytest.approx(dense.ratio, rel=1e-9)


def changed(X, rows):
    other = X.copy()
    other[rows] = np.roll(other[rows], 1, axis=1)
    return other


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
def test_a_sparse_neighbor_differs_in_one_record(kind):
    X = records()
    X[[3, 7]] = np.eye(2, K)
    plan = plan_of(sp.csr_array(X))
    assert dp.check_sensitivity(plan, {"X": kind(changed(X, [3]))}).passed
    with pytest.raises(dp.DataError, match="further from the data"):
        dp.check_sensitivity(plan, {"X": kind(changed(X, [3, 7]))})
    assert dp.check_sensitivity(plan, {"X": kind(X)}).status == "vacuous"


@pytest.mark.parametrize("kind", [sp.csr_array, np.asarray])
def test_a_claim_about_single_entries_is_tried_on_sparse_data_too(kind):
    w = cp.Variable(K, name="w")
    X = dp.Private(kind(records()), name="X", adjacency=dp.Within(0.5))
    cost = cp.Minimize(cp.sum(cp.logistic(X @ w)) / N)
    agent = dp.Agent(cost, [cp.abs(w) <= 5], name="a", sensitivity=dp.Asserted(l2=1e-4))
    plan = dp.Problem([agent]).plan(dp.FederatedGradient(0.1), rounds=2, epsilon=1.0, delta=1e-6)
    found = dp.check_sensitivity(plan)  # an entry moves it by 0.5 / 2 / N at the start
    assert found.status == "failed" and found.agents[0].ratio > 50


def test_sparse_records_are_audited():
    X = sp.csr_array(records())
    found = dp.audit(plan_of(X, clip=0.3 / N), runs=20)
    assert found.moved and found.claimed == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(dp.DataError, match="same data"):
        dp.audit(plan_of(X), {"X": X.copy()}, runs=20)
