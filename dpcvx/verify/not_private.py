"""Reference computations on raw data: for tests, studies and teaching, never for release.

Everything here reads private data in the open and returns values without any guarantee. The
functions live outside the package's first level so that a program that uses them says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import cvxpy as cp
import numpy as np

from ..errors import ModelError
from ..guard import discreet
from ..model.declaration import Agent, Declaration
from ..model.private import Private, Rows, specs_of
from ..model.public_terms import parts_of
from ..run.data import DataSource, source_for, sources_of
from ..run.gate import read, read_as_they_are
from ..run.solution import Solution

__all__ = ["central", "objective", "too_long"]


def __dir__() -> list[str]:
    return __all__


@discreet
def central(
    problem: Declaration, data: Mapping[Private | str, DataSource] | None = None
) -> cp.Problem:
    """The problem of all agents together as an ordinary cvxpy problem, private data included.

    Not private. Shared variables are shared by identity, so solving it gives the optimum that the
    distributed methods approach without noise. Solving it also overwrites ``variable.value``.
    """
    costs: list[cp.Expression] = []
    constraints: list[cp.Constraint] = []
    for agent, values in zip(problem.agents, _values(problem, data), strict=True):
        constants = {
            id(p): cp.Constant(p.spec.shaped(v)) for p, v in zip(agent.private, values, strict=True)
        }
        costs.append(agent.cost.tree_copy(constants) if constants else agent.cost)
        constraints += agent.constraints
    return cp.Problem(cp.Minimize(sum(costs)), [*constraints, *problem.coupling])


@discreet
def objective(
    problem: Declaration, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
) -> float:
    """Sum of the agents' true objectives (to be minimised) at their own vectors. Not private.

    Raises
    ------
    ModelError
        If the solution is one of other agents.
    """
    agents = solution.program.agents
    held = [[spec.shape for spec in local.form.private] for local in agents]
    if held != [[private.shape for private in agent.private] for agent in problem.agents]:
        raise ModelError(
            "The solution is of other agents than the problem's, so the problem's data do not fit "
            "it. Pass the problem whose plan was run."
        )
    parts = zip(problem.agents, agents, _values(problem, data), solution.vectors, strict=True)
    return sum(
        local.form.bind(values).value(x) + (_rest(agent, local.name, solution) if local.rest else 0)
        for agent, local, values, x in parts
    )


@discreet
def too_long(private: Private, data: DataSource | None = None) -> int:
    """Number of rows whose norm exceeds the bound of `dp.Rows`: those that are clipped or refused.

    Not private: the number depends on the data.
    """
    adjacency = private.adjacency
    if not isinstance(adjacency, Rows):
        return 0
    rows = read_as_they_are(private.spec, source_for(private, data))
    return int(adjacency.too_long(rows.reshape(rows.shape[0], -1)).sum())


def _rest(agent: Agent, name: str, solution: Solution) -> float:
    """The value of the public terms without a gradient."""
    rest = parts_of(agent.cost, agent.layout, agent.private, name).rest
    assert rest is not None
    constants = {id(v): cp.Constant(solution.of(name, v)) for v in rest.variables()}
    value = rest.tree_copy(constants).value
    return math.nan if value is None else float(np.asarray(value).item())


def _values(
    problem: Declaration, data: Mapping[Private | str, DataSource] | None
) -> list[list[np.ndarray]]:
    sources = sources_of(problem, data)
    return [
        read(specs_of(agent.private, name), own)
        for name, agent, own in zip(problem.names, problem.agents, sources, strict=True)
    ]
