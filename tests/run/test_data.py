"""Stand-ins for private data: by the object, by its name, or declared with it."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.private import seal_all
from dpcvx.run.data import stand_ins


def forbidden():
    raise AssertionError("private data were read")


def made(**declared):
    x = cp.Variable(2, name="x")
    loads = [
        dp.Private(forbidden, shape=2, name=f"load {k}", adjacency=dp.Within(0.1), **declared)
        for k in range(2)
    ]
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - one))) for one in loads]), loads


def found(problem, proxy):
    values = stand_ins(problem, seal_all(proxy, "proxy"), "problem.tune")
    return [values[private]().tolist() for agent in problem.agents for private in agent.private]


def test_declared_values_stand_in_and_given_ones_take_their_place():
    problem, (first, _) = made(proxy=[1.0, 2.0])
    assert found(problem, {}) == [[1, 2], [1, 2]]
    assert found(problem, {"load 1": np.zeros(2)}) == [[1, 2], [0, 0]]
    assert found(problem, {first: np.ones(2)}) == [[1, 1], [1, 2]]


def test_functions_are_called_once():
    calls = []

    def fetched():
        calls.append(1)
        return np.zeros(2)

    problem, _ = made(proxy=[1.0, 2.0])
    values = stand_ins(problem, seal_all({"load 0": fetched}), "problem.tune")
    for value in values.values():
        value(), value()
    assert len(calls) == 1


@pytest.mark.parametrize("given", [{}, {"load 1": np.ones(2)}])
def test_a_missing_stand_in_is_named_with_both_remedies(given):
    problem, _ = made()
    with pytest.raises(dp.ModelError, match="'load 0' has no proxy data") as caught:
        found(problem, given)
    assert "dp.Private(..., proxy=values)" in str(caught.value)
    assert "problem.tune(..., proxy={'load 0': values})" in str(caught.value)


def test_values_that_do_not_fit_are_refused():
    problem, _ = made(proxy=[1.0, 2.0])
    with pytest.raises(dp.DataError, match="'load 0' have shape"):
        found(problem, {"load 0": np.ones(3)})
    with pytest.raises(dp.ModelError, match="'nobody', but no private object has that name"):
        found(problem, {"nobody": 1.0})
