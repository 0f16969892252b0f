"""Plans with public sparse features: no square of them, no array of their size, same bounds."""

import sys
import tracemalloc

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.sensitivity import records

COUNT, FEATURES, FILLED = 100_000, 10_000, 10
LOSSES = {
    "squares": lambda scores, y: cp.sum_squares(scores - y),
    "logistic": lambda scores, y: cp.sum(cp.logistic(cp.multiply(-y, scores))),
    "huber": lambda scores, y: cp.sum(cp.huber(scores - y)),
    "hinge": lambda scores, y: cp.sum(cp.pos(1 - cp.multiply(y, scores))),
}


def features(count, columns, filled=FILLED):
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, columns, size=(count, filled)), axis=1).ravel()
    ends = np.arange(0, count * filled + 1, filled)
    X = sp.csr_array((rng.normal(size=places.size), places, ends), shape=(count, columns))
    X.sum_duplicates()
    return X


def planned(X, loss, method=None, ball=False, adjacency=None):
    count, columns = X.shape
    w = cp.Variable(columns, name="w")
    y = dp.Private(shape=(count,), name="y", adjacency=adjacency or dp.Rows(1.0))
    within = [cp.norm(w) <= 5] if ball else [cp.abs(w) <= 5]
    agent = dp.Agent(cp.Minimize(LOSSES[loss](X @ w, y) / count), within, name="all")
    method = method or dp.FederatedGradient(0.1)
    return dp.Problem([agent]).plan(method, rounds=2, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    "loss, method",
    [
        ("squares", dp.FederatedGradient(0.1)),
        ("squares", dp.FederatedAveraging()),
        ("squares", dp.LinearizedADMM(penalty=1.0)),
        ("logistic", dp.FederatedAveraging()),
        ("huber", dp.LinearizedADMM(penalty=1.0)),
        ("hinge", dp.FederatedGradient(0.1)),
    ],
)
def test_planning_takes_little_more_memory_than_the_features(loss, method):
    """Their square has ten times as many entries as they, and as an array they take 8 GB."""
    X = features(COUNT, FEATURES)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    planned(features(100, 20), loss, method)
    tracemalloc.start()
    plan = planned(X, loss, method)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert plan.agents[0].sensitivity.l2 < np.inf
    assert peak < 6 * size


def calls(names, work):
    """How often functions of these names are called in the course of some work."""
    counts = dict.fromkeys(names, 0)

    def count(frame, event, argument):
        name = argument.__name__ if event == "c_call" else frame.f_code.co_name
        if event in ("call", "c_call") and name in counts:
            counts[name] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counts


@pytest.mark.parametrize(
    "loss, method",
    [
        ("hinge", dp.FederatedGradient(0.1)),
        ("logistic", dp.FederatedAveraging()),
        ("huber", dp.LinearizedADMM(penalty=1.0)),
    ],
)
def test_a_set_of_many_columns_is_taken_apart_once(loss, method):
    X = features(3000, 3000)  # of fewer columns a set is looked at with the others' as well
    assert calls(["blocks_of"], lambda: planned(X, loss, method)) == {"blocks_of": 1}


@pytest.mark.parametrize("ball", [False, True])
@pytest.mark.parametrize(
    "loss, adjacency",
    [*((loss, dp.Rows(1.0)) for loss in LOSSES), ("squares", dp.Within(0.5, norm="entry"))],
)
def test_bounds_are_those_of_the_same_numbers_in_an_array(loss, ball, adjacency, monkeypatch):
    X = features(300, 30, 4)
    dense = planned(X.toarray(), loss, ball=ball, adjacency=adjacency).agents[0].sensitivity
    monkeypatch.setattr(records, "_BLOCK", 100)
    monkeypatch.setattr("dpcvx.model.quadratic._MANY", 100)
    sparse = planned(X, loss, ball=ball, adjacency=adjacency).agents[0].sensitivity
    assert all(isinstance(J, sp.csc_array) for J in sparse.jacobians) == (loss == "squares")
    for p in (1, 2):
        assert sparse.bound(p).value == pytest.approx(dense.bound(p).value, rel=1e-12)
        scale = np.linspace(1, 2, X.shape[1])
        weighted = sparse.bound(p, scale).value
        assert weighted == pytest.approx(dense.bound(p, scale).value, rel=1e-12)
