"""Bounds of one row's change: of many rows together, and of each by itself, the same."""

import sys

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.model.spec import PrivateSpec
from dpcvx.sensitivity import norms


@settings(max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 4),
    st.sampled_from([1, 2, np.inf]),
    st.sampled_from(["replace", "add or remove"]),
    st.sampled_from([None, "nonneg", "nonpos"]),
    st.sampled_from([1, 2]),
    st.sampled_from([1e-170, 1.0, 1e170]),
)
def test_many_rows_are_bounded_as_one_by_one(seed, width, norm, change, sign, p, unit):
    rng, count, height = np.random.default_rng(seed), 5, 3
    spec = PrivateSpec("X", (count, width), dp.Rows(0.7, norm=norm, change=change), sign)
    dense = np.zeros((height * width, width * count))
    for j in range(width):  # the numbers of one column of the data move entries of their own
        place = np.ix_(range(height * j, height * (j + 1)), range(count * j, count * (j + 1)))
        dense[place] = rng.normal(size=(height, count)) * rng.integers(0, 2, (height, count))
    J = sp.csr_array(unit * dense[rng.permutation(height * width)])
    with pytest.MonkeyPatch.context() as patch:
        alone = norms.row_norms(J, spec, p)
        patch.setattr(norms, "_MANY", 1)
        patch.setattr(norms, "_row_norm", None)
        np.testing.assert_allclose(norms.row_norms(J, spec, p), alone, rtol=1e-9)


def test_rows_whose_numbers_meet_are_bounded_one_by_one(monkeypatch):
    spec = PrivateSpec("X", (2, 2), dp.Rows(1.0), None)
    J = sp.csr_array(np.array([[1.0, 2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
    alone = norms.row_norms(J, spec, 2)
    monkeypatch.setattr(norms, "_MANY", 1)
    np.testing.assert_array_equal(norms.row_norms(J, spec, 2), alone)
    np.testing.assert_allclose(alone, 2 * np.array([np.sqrt(2), 2.0]))


def calls_of_planning(count, clip):
    W = cp.Variable((3, 2), name="W")
    labels = np.stack([np.arange(count) % 2, np.sin(np.arange(count))], axis=1)
    X = dp.Private(shape=(count, 3), name="X", adjacency=dp.Rows(1.0))
    scores = X @ W
    cost = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(labels, scores))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(W) <= 5], clip=clip)])
    called = 0

    def count_calls(frame, event, argument):
        nonlocal called
        called += event == "call"

    sys.setprofile(count_calls)
    try:
        plan = problem.plan(dp.SummedGradient(0.1), rounds=2, epsilon=1.0, delta=1e-6)
    finally:
        sys.setprofile(None)
    assert plan.agents[0].sensitivity.l2 < np.inf
    return called


@pytest.mark.parametrize("clip", [None, 0.1])
def test_planning_many_records_beside_public_labels_takes_no_loop(clip):
    """Rows were added to one matrix, and bounded, one after the other: minutes at 140,000."""
    calls_of_planning(300, clip)  # what is computed once in a process is computed
    assert calls_of_planning(12_000, clip) < 1.5 * calls_of_planning(3000, clip)
