"""Answers to problems with private constraints: what they cost, and what they break."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from scipy.stats import binom

from dpcvx.algorithms.program import compile_problem
from dpcvx.run.loop import whole_start
from dpcvx.run.solution import Solution
from dpcvx.tuning.copies import Judge
from tests.tuning.trials import grid

LOAD = {"load": np.array([1.0, 2.0, 0.5])}


def judge(problem, data=LOAD, recourse=False):
    return Judge(problem, {name: lambda v=v: v for name, v in data.items()}, "test", recourse)


def answer(problem, *values):
    """A solution at which the only agent holds these, in the order of its vector."""
    vectors = (np.array(values, dtype=float),)
    return Solution(compile_problem(problem), vectors, whole_start(problem))


def test_what_the_stand_in_breaks_is_seen_and_a_start_that_breaks_it_is_no_answer():
    problem = grid()
    found = judge(problem)
    assert found.optimum == pytest.approx(3.0 + 2 * 0.5, abs=1e-6)
    assert found.start == math.inf and not found.idle
    (local,) = compile_problem(problem).agents
    assert [piece.variable for piece in local.layout.pieces] == [
        v.id for v in problem.variables()
    ]  # p, then the reserve
    assert not found.breaks(answer(problem, 3.0, 0.5, 0.0), {})
    assert found.breaks(answer(problem, 3.0, 0.49, 0.0), {})
    assert found(answer(problem, 3.0, 0.5, 0.1)) == pytest.approx(5.0, abs=1e-6)


def round_the_load(p, load):
    """A cone with an auxiliary column: the root."""
    return cp.norm(p - load[:2]) <= cp.sqrt(p[0]) - 0.2


@pytest.mark.parametrize(("paid", "broken"), [(0.0, True), (0.19, True), (0.21, False)])
@pytest.mark.parametrize("row", [0, 1])
def test_what_was_paid_for_is_not_broken(row, paid, broken):
    problem = grid([round_the_load])
    # By 0.2 each: 3.3 where 3.5 is needed, and a distance of 1 where 0.8 is allowed.
    p = [1.0, 2.3] if row == 0 else [1.0, 3.0]
    found = judge(problem)
    names = [f"Constraint {k} of agent 'grid'" for k in (1, 2)]
    missed = {name: np.zeros(1) for name in names} | {names[row]: np.array([paid])}
    assert found.breaks(answer(problem, *p, 0.0), missed) is broken


def test_after_own_decisions_a_start_is_an_answer():
    # What breaks a constraint is decided again, with the data.
    found = judge(grid(), recourse=True)
    assert found.start == pytest.approx(found.optimum, abs=1e-6)


def bare(plan):
    kept = [replace(limit, margins={}) for limit in plan.program.kept]
    return replace(plan, program=replace(plan.program, kept=tuple(kept)))


def test_plans_without_margins_are_caught():
    problem, runs, violation = grid(), 60, 0.1
    found, plan = (
        judge(problem),
        problem.plan(epsilon=1.0, delta=1e-6, violation_probability=violation),
    )

    def count(plan):
        made = (plan.run(data=LOAD, seed=seed) for seed in range(runs))
        return sum(found.breaks(run.solution, run.constraint_slack) for run in made)

    # Above it with probability 1e-6 at most, if the promise is kept.
    allowed = binom.isf(1e-6, runs, violation)
    assert 0 < count(plan) <= allowed < count(bare(plan))
