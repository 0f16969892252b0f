"""Reference computations on raw data."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.instances import INSTANCES, power_line


def optimum_of(problem):
    """The optimal value with all data in one place; leaves the optimal point in the variables."""
    central = dp.not_private.joint_problem(problem)
    return central.solve(
        cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11, warm_start=False
    )


@pytest.mark.parametrize("name", INSTANCES)
def test_the_objective_at_the_central_optimum_is_its_value(name):
    given = INSTANCES[name]()
    optimum = optimum_of(given.problem)
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
    central = dp.not_private.joint_problem(problem, {d: np.array([1.0, 2.0])})
    central.solve()
    assert np.allclose(x.value, [1.0, 2.0], atol=1e-6)
    with pytest.raises(dp.DataError, match="'d' has no data"):
        dp.not_private.joint_problem(problem)


def test_a_maximized_objective_counts_with_its_sign():
    given = power_line()
    x = cp.Variable(name="x")
    problem = dp.Problem([dp.Agent(cp.Maximize(-cp.square(x - 3) + 1), [x <= 2])])
    assert dp.not_private.joint_problem(problem).solve() == pytest.approx(0.0, abs=1e-6)
    assert optimum_of(given.problem) > 0


def records(rows, norm=2, clip=True):
    return dp.Private(
        shape=np.shape(rows), name="X", adjacency=dp.Rows(1.0, norm=norm, clip_rows=clip)
    )


LONG = np.array([[0.6, 0.8], [0.6, -0.9], [3.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(("norm", "count"), [(1, 3), (2, 2), (np.inf, 1)])
def test_long_rows_are_counted_in_their_norm(norm, count):
    assert dp.not_private.too_long(records(LONG, norm), LONG) == count
    assert dp.not_private.too_long(records(LONG, norm), lambda: LONG.tolist()) == count


def test_entries_of_a_vector_are_rows_and_other_data_have_none():
    assert dp.not_private.too_long(records([0.5, -2.0, 1.5]), [0.5, -2.0, 1.5]) == 2
    load = dp.Private(np.full(3, 9.0), name="load", adjacency=dp.Within(1.0))
    assert dp.not_private.too_long(load) == 0
    with pytest.raises(dp.DataError, match="'X' has no data"):
        dp.not_private.too_long(records(LONG))


def test_rows_that_are_neither_clipped_nor_refused_are_not_counted():
    rows = np.random.default_rng(0).normal(size=(200, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    accepted = dp.Private(rows, name="X", adjacency=dp.Rows(1.0))
    assert dp.not_private.too_long(accepted) == 0


def test_long_rows_are_clipped_in_the_central_problem_and_its_objective():
    w = cp.Variable(2, name="w")
    X = records(LONG)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X @ w - 1)), [cp.abs(w) <= 9])])
    clipped = LONG / np.maximum(1, np.linalg.norm(LONG, axis=1, keepdims=True))
    central = dp.not_private.joint_problem(problem, {"X": LONG})
    best, residual = np.linalg.lstsq(clipped, np.ones(4), rcond=None)[:2]
    assert central.solve(cp.CLARABEL) == pytest.approx(residual[0], abs=1e-6)
    assert np.allclose(w.value, best, atol=1e-4)
    plan = problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    solution = dp.Solution(plan.program, (best,), {w.id: np.zeros(2)})
    value = dp.not_private.objective(problem, solution, {"X": LONG})
    assert value == pytest.approx(residual[0], rel=1e-9)


def test_clipped_contributions_do_not_change_what_the_objective_is():
    # clip_norm= is a matter of the noisy gradient; the true objective is the model's.
    w = cp.Variable(2, name="w")
    X = dp.Private(LONG / 3, name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - 1)), clip_norm=1e-3)
    problem = dp.Problem([agent])
    plan = problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    x = np.array([0.3, -2.0])
    value = dp.not_private.objective(problem, dp.Solution(plan.program, (x,), {w.id: x}))
    assert value == pytest.approx(np.sum((LONG / 3 @ x - 1) ** 2), rel=1e-9)


def test_a_solution_of_other_agents_is_refused():
    w = cp.Variable(2, name="w")
    one, other = (
        dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(records(rows) @ w)))])
        for rows in (LONG, LONG[:2])
    )
    solution = one.plan(dp.LinearizedADMM(), mechanism=None, rounds=1).run(data={"X": LONG}).last
    with pytest.raises(dp.ModelError, match="to other agents"):
        dp.not_private.objective(other, solution, {"X": LONG[:2]})


def region(most=1.0):
    """Two agents with a variable of their own each, and a limit in recourse= of one."""
    tie, agents = cp.Variable(name="tie"), []
    for k, name in enumerate(("north", "south")):
        gen = cp.Variable(2, name=f"gen {name}", nonneg=True)
        load = dp.Private([1.0 + k, 2.0], name=f"load {name}", adjacency=dp.Within(0.1))
        limit = dp.Private([most], name=f"limit {name}", adjacency=dp.Within(0.1))
        own = [gen[0] <= limit[0]] if k == 0 else []
        cost = cp.sum_squares(gen + (-1) ** k * tie - load) + 0.1 * cp.sum_squares(gen)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(tie) <= 3], name=name, recourse=own))
    return dp.Problem(agents)


def test_the_objective_after_recourse_is_that_of_all_own_solutions():
    problem = region()
    result = problem.solve(mechanism="gaussian", epsilon=1.0, delta=1e-6, seed=0)
    after = dp.not_private.recourse(problem, result.solution)
    own = [result.recourse(name).value for name in problem.names]
    assert after == pytest.approx(sum(own), abs=1e-9)
    best = dp.not_private.joint_problem(problem, recourse=True).solve(cp.CLARABEL)
    assert after >= best - 1e-7
    # A limit that binds costs something, which runs do not know of.
    tight = {"limit north": [0.1]}
    assert (
        dp.not_private.joint_problem(problem, tight, recourse=True).solve(cp.CLARABEL) > best + 1e-3
    )
    assert dp.not_private.joint_problem(problem, tight).solve(cp.CLARABEL) <= best + 1e-7
    assert dp.not_private.recourse(problem, result.solution, tight) > after + 1e-3
    assert dp.not_private.recourse(problem, result.solution, {"limit north": [-1.0]}) == np.inf


def test_recourse_of_agents_that_share_everything_is_no_recourse():
    x = cp.Variable(2, name="x")
    d = dp.Private([1.0, 2.0], name="d", adjacency=dp.Within(0.1))
    both = [dp.Agent(cp.Minimize(cp.sum_squares(x - d))), dp.Agent(cp.Minimize(cp.norm(x)))]
    common = dp.Problem(both)
    result = common.solve(mechanism="gaussian", epsilon=1.0, delta=1e-6, seed=0)
    before = dp.not_private.objective(common, result.solution)
    assert dp.not_private.recourse(common, result.solution) == before
