"""Refusals of problems without a solution."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms import program as programs
from dpcvx.defaults import solvable


@pytest.mark.parametrize("method", [dp.OneShot(), dp.ADMM()])
@pytest.mark.parametrize("top", [2.0, None])
def test_what_boxes_bound_is_not_asked_of_a_solver(method, top, monkeypatch):
    x, d = cp.Variable(2, name="x"), dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    bounds = [x >= -1, 3 * x[1] == 2, *([] if top is None else [x <= top])]
    asked = []
    monkeypatch.setattr(solvable, "bounded_for_slopes", lambda *_: asked.append(True) or True)
    agent = dp.Agent(cp.Minimize(cp.norm1(x) + d @ x), bounds, name="a")
    dp.Problem([agent]).plan(method, epsilon=1.0, delta=1e-6)
    assert bool(asked) == (top is None)


@pytest.mark.parametrize("total, solves", [(0.0, 0), (1.0, 1)])
def test_initial_points_that_agree_show_that_the_sets_meet(total, solves, monkeypatch):
    """The joint program is solved only where the agents' initial points are not feasible."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = dp.Private(1.0, name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.pos(d - x)), [cp.abs(x) <= 2], name="a"),
        dp.Agent(cp.Minimize(cp.abs(y)), [cp.abs(y) <= 2], name="b"),
    ]
    solved, solve = [], solvable.ConicProgram.solve

    def counted(self, *given):
        solved.append(True)
        return solve(self, *given)

    monkeypatch.setattr(solvable.ConicProgram, "solve", counted)
    plan = dp.Problem(agents, coupling=[x + y == total]).plan(epsilon=1.0, delta=1e-6)
    solved.clear()
    solvable.check_joint_minimizer(plan.program, plan.agents, noisy=False, once=True)
    assert len(solved) == solves


@pytest.mark.parametrize("bounded", [True, False])
def test_exact_steps_over_a_bounded_set_are_not_tried(bounded, monkeypatch):
    """A convex objective has a minimizer there: only components without curvature need bounds."""
    x, y = cp.Variable(3, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    solved, solve = [], solvable.ConicProgram.solve

    def counted(self, *given):
        solved.append(True)
        return solve(self, *given)

    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x[:2] + y - d) + cp.sum(y)), [cp.norm(y) <= 2]),
        dp.Agent(cp.Minimize(cp.sum_squares(x)), []),
    ]
    if not bounded:
        agents[0] = dp.Agent(agents[0].objective, [y >= -2])
    plan = dp.Problem(agents).plan(dp.ADMM(1.0), rounds=2, epsilon=1.0, delta=1e-6)
    monkeypatch.setattr(solvable.ConicProgram, "solve", counted)
    solvable.check_minimizer(plan.agents[0], noisy=False, once=False)
    assert bool(solved) is not bounded


def test_the_first_agent_without_a_sensitivity_ends_the_compilation(monkeypatch):
    x = cp.Variable(2, name="x")
    compiled, compile_agent = [], programs.compile_agent

    def counted(model, *given):
        compiled.append(model.name)
        return compile_agent(model, *given)

    monkeypatch.setattr(programs, "compile_agent", counted)
    agents = []
    for name in "abc":
        d = dp.Private(np.ones(2), name=f"d{name}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.norm(x - d)), [cp.abs(x) <= ord(name)], name=name))
    dp.Problem(agents).plan(epsilon=1.0, delta=1e-6)
    assert compiled == ["a", "a", "b", "c"]
