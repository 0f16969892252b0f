"""The values that a run returns suit everyone, wherever such values exist."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
import dpcvx.run.loop as module
from dpcvx._words import at_most
from dpcvx.algorithms.common_point import common_point


def feeder(limit=6.0):
    """Three cars with batteries of 3 that charge over a feeder, which each of them watches."""
    load = cp.Variable((3, 2), name="load")
    cars = []
    for k in range(3):
        want = dp.Private(np.array([3.0, 1.0 + k]), name=f"want {k}", adjacency=dp.Within(0.5))
        rules = [load >= 0, load[k] <= 3, cp.sum(load, axis=0) <= limit]
        cars.append(dp.Agent(cp.Minimize(cp.sum_squares(load[k] - want)), rules, name=f"car {k}"))
    return dp.Problem(cars), load


def shares():
    """Three agents of their own variables that have to add up to 3."""
    own = [cp.Variable(2, name=f"x{k}") for k in range(3)]
    agents = []
    for k, x in enumerate(own):
        d = dp.Private(np.array([k, -1.0]), name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [x <= 2, cp.norm(x) <= 3]))
    return dp.Problem(agents, coupling=[sum(own) == 3.0]), own


@pytest.mark.parametrize("seed", range(5))
def test_returned_loads_keep_every_limit(seed):
    problem, load = feeder()
    result = problem.solve(
        dp.LinearizedADMM(penalty=1.0), rounds=20, epsilon=1.0, delta=1e-6, seed=seed, record=True
    )
    assert all(c.violation().max() < 1e-7 for c in problem.constraints)
    assert result.feasible and result.max_violation < 1e-7
    assert np.array_equal(result.solution[load], load.value)
    assert result.solution.mismatch < 1e-15 < result.consensus_residual == result.raw.mismatch
    assert result.raw is getattr(result, result.reported)
    again = problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=20, epsilon=1.0, delta=1e-6).replay(
        result.transcript
    )
    for one, other in zip(again.solution.vectors, result.solution.vectors, strict=True):
        assert np.array_equal(one, other)
    assert again.max_violation == result.max_violation


def test_returned_values_keep_the_coupling():
    problem, own = shares()
    result = problem.solve(dp.ResourceADMM(penalty=1.0), rounds=5, epsilon=1.0, delta=1e-6, seed=0)
    assert result.coupling_residual > 0.1
    assert result.projection_distance > 0.01
    assert sum(x.value for x in own) == pytest.approx([3.0, 3.0], abs=1e-7)
    assert all(c.violation().max() < 1e-7 for c in problem.constraints)
    text = " ".join(str(result).split())
    assert f"violate an equality by at most {at_most(result.coupling_residual, 2)}" in text
    assert f"moved by at most {at_most(result.projection_distance, 2)} to the closest" in text


def test_replays_set_the_values_and_the_status_that_a_run_sets(tmp_path):
    problem, _ = feeder()
    plan = problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=3, epsilon=1.0, delta=1e-6)
    path = tmp_path / "spent.jsonl"
    result = plan.run(ledger=path)
    set_by_run = {v.id: v.value for v in problem.variables()}
    for variable in problem.variables():
        variable.save_value(None)
    again = plan.replay(path)
    assert again.status is result.status is problem.status
    for variable in problem.variables():
        assert np.array_equal(variable.value, set_by_run[variable.id])


def test_values_that_suit_everyone_are_left_alone():
    problem, load = feeder(limit=100.0)
    result = problem.solve(dp.ADMM(penalty=1.0), mechanism=None, rounds=300)
    assert result.projection_distance == 0
    assert load.value == pytest.approx(np.array([[3.0, 1.0], [3.0, 2.0], [3.0, 3.0]]), abs=1e-4)
    assert "closest" not in str(result)


def test_the_run_itself_is_not_touched():
    """What is returned is made afterwards: iterates, releases and spending stay as they are."""
    problem, _ = feeder()
    plan = problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=5, epsilon=1.0, delta=1e-6)
    one, other = (plan.run(seed=1, iterates=True) for _ in range(2))
    assert one.iterates[-1].last.vectors[0].tolist() == one.last.vectors[0].tolist()
    assert one.ledger.spent() == other.ledger.spent()
    assert np.array_equal(one.solution.vectors[0], other.solution.vectors[0])


def test_a_run_that_diverged_returns_nothing():
    x = cp.Variable(name="x")
    agents = [dp.Agent(cp.Minimize(cp.square(x - k)), name=f"a{k}") for k in range(2)]
    problem = dp.Problem(agents)
    result = problem.solve(dp.LinearizedADMM(penalty=1.0, step=10.0), mechanism=None, rounds=200)
    assert result.status is dp.Status.DIVERGED and not result.feasible
    assert x.value is None and np.isnan(result.max_violation)


def one(constraints, name="x"):
    x = cp.Variable(2, name=name)
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), constraints(x), name="a")]), x


def test_what_is_said_to_be_kept_is_checked_on_the_users_own_constraints(monkeypatch):
    """As if compiling had dropped a constraint: the point that is found breaks it."""
    problem, _ = one(lambda x: [cp.sum(x) <= 1])
    plan = problem.plan(mechanism=None)
    found = plan.run()
    assert found.feasible and found.max_violation < 1e-7

    def dropped(program, vectors, **arguments):
        point = common_point(program, vectors, **arguments)
        return replace(point, vectors=tuple(x + 1.0 for x in point.vectors))

    monkeypatch.setattr(module, "common_point", dropped)
    result = plan.run()
    assert not result.feasible and result.max_violation == pytest.approx(2.0, abs=1e-6)
    text = " ".join(str(result).split())
    assert "no point was found at which all agents agree and every constraint holds" in text
    assert "the values returned keep every constraint to within 2" in text


def test_the_check_leaves_values_of_variables_and_reads_no_private_constraint(monkeypatch):
    d = dp.Private(np.full(2, 3.0), name="d", adjacency=dp.Within(0.1))
    x = cp.Variable(2, name="x")
    limits = [x <= d, x >= 0]
    problem = dp.Problem([dp.Agent(cp.Minimize(-cp.sum(x)), limits, name="a")])
    plan = problem.plan(epsilon=100.0, delta=1e-6, violation_probability=0.1)
    checked = []
    monkeypatch.setattr(
        module, "_violation", lambda constraint: (checked.append(constraint.id), (0.0, 1.0))[1]
    )
    result = plan.run(seed=0, record=True)
    assert checked == [limits[1].id]
    assert "except with probability at most 0.1" in " ".join(str(result).split())
    x.save_value(np.array([7.0, 8.0]))
    plan.replay(result.transcript)
    assert x.value == pytest.approx(result.solution[x])
