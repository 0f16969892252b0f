"""A plan runs with the public parameters that it was made with, or not at all."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.declaration import changed_parameter

BUDGET = dict(epsilon=1.0, delta=1e-6, rounds=2)


def problem(w, bound=None):
    """A public parameter in an objective, and another one in a constraint."""
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(0.1))
    limits = [] if bound is None else [x <= bound]
    a = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), limits, name="a")
    return dp.Problem([a, dp.Agent(cp.Minimize(cp.sum(cp.multiply(w, cp.square(x)))), name="b")])


def parameter(value, **options):
    return cp.Parameter(np.shape(value), name="w", value=value, **options)


def run(plan, **options):
    return plan.run(data={"d": [0.1, 0.2]}, seed=1, **options)


def test_a_changed_parameter_is_refused_and_both_values_are_named():
    w = parameter(1.0, nonneg=True)
    plan = problem(w).plan(dp.LinearizedADMM(), **BUDGET)
    run(plan)
    w.value = 3.0
    told = (
        r"Public parameter w was 1\.0 when the plan was made, and is 3\.0 now\. Make the plan "
        r"again with problem\.plan\(\.\.\.\), or set the value back to 1\.0\."
    )
    with pytest.raises(dp.ModelError, match=told):
        run(plan)
    w.value = 1.0
    run(plan)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.value.__setitem__(1, 5.0), r"w\[1\] was 2\.0 .* is 5\.0 now"),
        (lambda w: setattr(w, "value", None), r"w was an array of shape \(2,\) .* is None now"),
        (lambda w: w.value.__setitem__(0, np.nan), r"w\[0\] was 1\.0 .* is nan now"),
    ],
    ids=["in place", "None", "nan"],
)
def test_a_parameter_that_is_changed_in_any_way_is_refused(change, told):
    w = parameter(np.array([1.0, 2.0]), nonneg=True)
    plan = problem(w).plan(dp.LinearizedADMM(), **BUDGET)
    change(w)
    with pytest.raises(dp.ModelError, match=told):
        run(plan)


def test_parameters_of_constraints_count():
    bound = cp.Parameter(name="bound", value=1.0)
    plan = problem(parameter(1.0, nonneg=True), bound).plan(dp.LinearizedADMM(), **BUDGET)
    bound.value = 2.0
    with pytest.raises(dp.ModelError, match="parameter bound was 1.0"):
        run(plan)


def test_a_run_that_is_resumed_is_refused(tmp_path, monkeypatch):
    w = parameter(1.0, nonneg=True)
    plan = problem(w).plan(dp.LinearizedADMM(), **BUDGET)
    with monkeypatch.context() as patched:
        receive = dp.LinearizedADMM.receive

        def interrupted(self, server, t, k, replies):
            if t == 2:
                raise KeyboardInterrupt
            return receive(self, server, t, k, replies)

        patched.setattr(dp.LinearizedADMM, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(plan, ledger=tmp_path / "ledger")
    w.value = 2.0
    with pytest.raises(dp.ModelError, match="parameter w was"):
        run(plan, ledger=tmp_path / "ledger")


def test_replays_and_unpickled_plans_have_no_parameters_to_check(tmp_path):
    w = parameter(1.0, nonneg=True)
    plan = problem(w).plan(dp.LinearizedADMM(), **BUDGET)
    result = run(plan, ledger=tmp_path / "ledger")
    other = pickle.loads(pickle.dumps(plan))
    w.value = 2.0
    assert plan.replay(tmp_path / "ledger").status is result.status
    assert other.parameters == ()
    run(other)
    with pytest.raises(dp.ModelError, match="parameter w was"):
        run(copy.deepcopy(plan))


def test_sparse_parameters_are_compared():
    places = (np.array([0, 1]), np.array([0, 1]))
    w = cp.Parameter((2, 2), name="w", sparsity=places)
    w.value_sparse = sp.coo_array((np.array([1.0, 2.0]), places), shape=(2, 2))
    x = cp.Variable(2)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x)), [w @ x <= 1])
    values = dp.Problem([agent]).parameter_values()
    assert changed_parameter(values) is None
    w.value_sparse = sp.coo_array((np.array([1.0, 3.0]), places), shape=(2, 2))
    assert changed_parameter(values) == ("w[1, 1]", "2.0", "3.0")
