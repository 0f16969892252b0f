"""Reference computations on raw data: for tests, studies and teaching, never for release.

Everything here reads private data in the open and returns values without any guarantee. The
functions live outside the package's first level so that a program that uses them says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import cvxpy as cp
import numpy as np

from .model import Problem
from .oracle import read
from .private import Private, source_of
from .program import compile_problem
from .result import Solution
from .run import DataSource


def central(problem: Problem, data: Mapping[Private, DataSource] | None = None) -> cp.Problem:
    """The problem of all agents together as an ordinary cvxpy problem, private data included.

    Not private. Shared variables are shared by identity, so solving it gives the optimum that the
    distributed methods approach without noise. Solving it also overwrites ``variable.value``.
    """
    costs: list[cp.Expression] = []
    constraints: list[cp.Constraint] = []
    for agent in problem.agents:
        values = _values(agent.private, data)
        constants = {
            id(p): cp.Constant(v.reshape(p.shape, order="F"))
            for p, v in zip(agent.private, values, strict=True)
        }
        costs.append(agent.cost.tree_copy(constants) if constants else agent.cost)
        constraints += agent.constraints
    return cp.Problem(cp.Minimize(sum(costs)), constraints)


def objective(
    problem: Problem, solution: Solution, data: Mapping[Private, DataSource] | None = None
) -> float:
    """Sum of the agents' true objectives (to be minimised) at their own vectors. Not private."""
    program = compile_problem(problem, exact=False)
    total = 0.0
    for agent, local, x in zip(problem.agents, program.agents, solution.vectors, strict=True):
        total += local.form.bind(_values(agent.private, data)).value(x)
    return total


def _values(
    private: tuple[Private, ...], data: Mapping[Private, DataSource] | None
) -> list[np.ndarray]:
    given = data or {}
    sources = [source_of(p, given.get(p)) for p in private]
    return read([p.spec for p in private], sources)
