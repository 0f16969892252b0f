"""Reference computations on raw data."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import INSTANCES, power_line


@pytest.mark.parametrize("name", INSTANCES)
def test_the_objective_at_the_central_optimum_is_its_value(name):
    given = INSTANCES[name]()
    optimum = given.optimum
    plan = given.problem.plan(dp.ADMM(), mechanism=None, rounds=1)
    vectors = []
    for agent in given.problem.agents:
        parts = [
            np.ravel(v.value, order="F")[p.entries]
            for v, p in zip(agent.variables, agent.layout.pieces, strict=True)
        ]
        vectors.append(np.concatenate(parts))
    start = {v.id: np.zeros(v.shape) for v in given.problem.variables()}
    solution = dp.Solution(plan.program, tuple(vectors), start)
    assert dp.not_private.objective(given.problem, solution) == pytest.approx(optimum, abs=1e-9)


def test_data_can_be_given_instead():
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(1.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    central = dp.not_private.central(problem, {d: np.array([1.0, 2.0])})
    central.solve()
    assert np.allclose(x.value, [1.0, 2.0], atol=1e-6)
    with pytest.raises(dp.DataError, match="'d' has no data"):
        dp.not_private.central(problem)


def test_a_maximised_objective_counts_with_its_sign():
    given = power_line()
    x = cp.Variable(name="x")
    problem = dp.Problem([dp.Agent(cp.Maximize(-cp.square(x - 3) + 1), [x <= 2])])
    assert dp.not_private.central(problem).solve() == pytest.approx(0.0, abs=1e-6)
    assert given.optimum > 0
