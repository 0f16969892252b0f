"""Reference computations on raw data: for tests, studies and teaching, never for release.

All functions here read private data, and return values without noise or guarantee. They are not in
the top level of the package, so that programs that use them name this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import cvxpy as cp
import numpy as np

from ..algorithms.program import Corner, LocalProgram, Program
from ..algorithms.written_model import all_maximized, constant, joined
from ..errors import ModelError
from ..guard import discreet
from ..model.adjacency import Rows
from ..model.agent import Agent
from ..model.canonical import ConeData, public_copy
from ..model.collapse import parts_of
from ..model.declaration import Declaration
from ..model.defined import with_defined
from ..model.private import Private
from ..model.sealed import Sealed
from ..run.data import DataSource, own_sources, source_for, sources_of
from ..run.gate import read, read_as_they_are, read_for_gradients, read_sparse_too
from ..run.recourse import constants_of, decisions, exact_program, require_convex_agent
from ..run.solution import Solution
from ..solvers.pinned import solve_pinned

__all__ = ["joint_problem", "objective", "recourse", "too_long", "violation"]

# Largest violation of a constraint that is taken for a solver's rounding error.
_BROKEN = 1e-6


def __dir__() -> list[str]:
    return __all__


@discreet
def joint_problem(
    problem: Declaration,
    data: Mapping[Private | str, DataSource] | None = None,
    *,
    recourse: bool = False,
) -> cp.Problem:
    """Return all agents' joint problem as a ``cvxpy.Problem`` with the exact private data.

    Not private. Its optimum is the optimum that distributed methods approach without noise. Solving
    it overwrites ``variable.value``.

    Parameters
    ----------
    problem : Problem
    data : mapping of Private or its name to array_like or callable, optional
        Data, as for `Plan.run`.
    recourse : bool
        Add the constraints in ``recourse=``, which runs do not read.
    """
    # In geometric and quasiconvex programs, maximizing differs from minimizing the negative.
    convex = problem.is_dcp()
    maximized = not convex and all_maximized(problem)
    costs: list[cp.Expression] = []
    constraints: list[cp.Constraint] = []
    names = zip(problem.names, problem.agents, _sources(problem, data, recourse), strict=True)
    for name, agent, theirs in names:
        values = read_sparse_too(list(agent.specs(name).values())[: len(theirs)], theirs)
        constants = constants_of(agent.specs(name), values)
        cost = agent.objective.args[0] if maximized else agent.cost
        if not convex and constant(cost):
            cost = cp.Constant(0.0)
        costs.append(cost.tree_copy(constants) if constants else cost)
        constraints += agent.public_constraints
        constraints += [constraint.tree_copy(constants) for _, constraint in agent.limits]
        if recourse:
            constraints += [constraint.tree_copy(constants) for constraint in agent.recourse]
    objective = cp.Maximize(joined(costs)) if maximized else cp.Minimize(joined(costs))
    return cp.Problem(objective, [*constraints, *problem.coupling])


@discreet
def objective(
    problem: Declaration, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
) -> float:
    """Return the sum of all agents' exact objectives (minimized) at a solution. Not private.

    Raises
    ------
    ModelError
        If the solution belongs to other agents.
    """
    problem, agents = _decided(problem, solution), solution.program.agents
    held = [[spec.shape for spec in local.form.private] for local in agents]
    if held != [[private.shape for private in agent.private] for agent in problem.agents]:
        raise ModelError(
            "The solution belongs to other agents than this problem, so the problem's data do "
            "not fit it. Pass the problem whose plan was run."
        )
    parts = zip(problem.agents, agents, _sources(problem, data), solution.vectors, strict=True)
    return sum(
        _as_written(agent, local, theirs, solution)
        if local.as_written
        else local.form.bind(read_for_gradients(local.form, theirs)).value(x)
        + (_rest(agent, local, solution) if local.rest else 0)
        for agent, local, theirs, x in parts
    )


@discreet
def recourse(
    problem: Declaration, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
) -> float:
    """Return the sum of all objectives after each agent's ``result.recourse``. Not private.

    Parameters
    ----------
    problem : Problem
    solution : Solution
        Solution that all agents agree on, such as ``result.solution``.
    data : mapping of Private or its name to array_like or callable, optional
        Data, as for ``result.recourse``.

    Returns
    -------
    float
        Infinite if an agent's own problem has no solution.

    Raises
    ------
    ModelError
        If the objective of an agent is not convex, or the solution belongs to other agents.
    """
    problem = _decided(problem, solution)
    exact = own_programs(problem, solution.program, data)
    decided = decisions(exact, replace(solution, vectors=solution.common))
    return math.inf if decided is None else objective(problem, decided, data)


def own_programs(
    problem: Declaration,
    program: Program,
    data: Mapping[Private | str, DataSource] | Mapping[Private | str, Sealed] | None = None,
) -> list[ConeData | None]:
    """Return every agent's recourse program on its exact data; None for an agent without recourse.

    Parameters
    ----------
    problem : Problem
    program : Program
        Compiled program of the problem's plan.
    data : mapping, optional
        Data, as for `Plan.run`.
    """
    programs: list[ConeData | None] = []
    values = _values(problem, data, recourse=True)
    for agent, local, parts in zip(problem.agents, program.agents, values, strict=True):
        if local.decides:
            require_convex_agent(agent, local.name)
        programs.append(exact_program(agent, local, parts) if local.decides else None)
    return programs


@discreet
def violation(
    problem: Declaration, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
) -> float:
    """Return the largest violation of a constraint with private data, on the true data; 0 if none.

    Not private. Violations are computed as in cvxpy's ``constraint.violation()``, at each agent's
    own copy of the variables. Slack that ``slack_penalty=`` permits counts as a violation.

    Parameters
    ----------
    problem : Problem
    solution : Solution
    data : mapping of Private or its name to array_like or callable, optional
        Data, as for `Plan.run`.
    """
    worst, problem = 0.0, _decided(problem, solution)
    parts = zip(problem.names, problem.agents, _values(problem, data), strict=True)
    for name, agent, values in parts:
        constants = constants_of(agent.specs(name), values)
        for _, constraint in agent.limits:
            point = {id(v): cp.Constant(solution.of(name, v)) for v in constraint.variables()}
            excess = constraint.tree_copy(constants | point).violation()
            worst = max(worst, float(np.max(excess)))
    return worst


def breaks(
    problem: Declaration,
    solution: Solution,
    missed: Mapping[str, np.ndarray],
    data: Mapping[Private | str, DataSource] | Mapping[Private | str, Sealed] | None = None,
) -> bool:
    """Return whether a constraint with private data is violated by more than its paid slack.

    Parameters
    ----------
    problem : Problem
    solution : Solution
    missed : mapping
        Paid slack by constraint; see `Result.constraint_slack`.
    data : mapping, optional
        Data, as for `Plan.run`.
    """
    problem = _decided(problem, solution)
    values = _values(problem, data)
    for limit in solution.program.kept:
        constraint, d = limit.constraint, np.concatenate(values[limit.agent])
        paid = missed.get(constraint.what, np.zeros(len(constraint.parts)))
        # Minimize the slack in excess of the paid slack.
        margins = {k: -by for k, by in enumerate(paid)}
        loosened = replace(limit, margins=margins, balls={}, price=1.0)
        exact, x = loosened.at(d), solution.vectors[limit.agent][limit.columns]
        answer = solve_pinned(exact, np.arange(x.size), x)
        if answer.x is None or answer.extra[loosened.missable].max() > _BROKEN:
            return True
    return any(
        _beyond(problem, solution, corner, missed, values[corner.agent])
        for corner in solution.program.corners
    )


def _beyond(
    problem: Declaration,
    solution: Solution,
    corner: Corner,
    missed: Mapping[str, np.ndarray],
    values: Sequence[np.ndarray],
) -> bool:
    """Return whether a constraint that holds at a corner is violated beyond its paid slack."""
    agent, name = problem.agents[corner.agent], problem.names[corner.agent]
    limit = corner.constraint
    constraint = agent.constraints[limit.position]
    point = {id(v): cp.Constant(solution.of(name, v)) for v in constraint.variables()}
    places = constants_of(agent.specs(name), values) | point
    excess = public_copy(constraint.tree_copy(places), constraint.parameters()).violation()
    return bool(np.max(np.ravel(excess) - missed.get(limit.what, 0.0)) > _BROKEN)


@discreet
def too_long(private: Private, data: DataSource | None = None) -> int:
    """Return the number of rows whose norm exceeds the bound of `dp.Rows`.

    Such rows are clipped or refused. Not private: the number depends on the data.
    """
    adjacency = private.adjacency
    if not isinstance(adjacency, Rows):
        return 0
    rows = read_as_they_are(private.spec, source_for(private, data))
    return int(adjacency.too_long(rows.reshape((rows.shape[0], -1))).sum())


def _decided(problem: Declaration, solution: Solution) -> Declaration:
    """Return the problem that the plan solved: if it eliminated defined variables, without them."""
    held = {p.variable for local in solution.program.agents for p in local.layout.pieces}
    whole = all(v.id in held for v in problem.variables())
    if whole:
        return problem
    smaller = with_defined(problem)[0]
    if all(v.id in held for v in smaller.variables()):
        return smaller
    return with_defined(problem, bounds=True)[0]


def _as_written(
    agent: Agent, local: LocalProgram, sources: Sequence[Sealed], solution: Solution
) -> float:
    """Return the value of an agent's objective that was not compiled to a normal form."""
    values = read(local.form.private, sources)
    constants = constants_of(agent.specs(local.name), values)
    constants |= {id(v): cp.Constant(solution.of(local.name, v)) for v in agent.cost.variables()}
    with np.errstate(all="ignore"):
        value = agent.cost.tree_copy(constants).value
    return math.nan if value is None else float(np.asarray(value).item())


def _rest(agent: Agent, local: LocalProgram, solution: Solution) -> float:
    """Return the value of the public terms that are not in an agent's normal form."""
    terms = agent.cost, agent.layout, agent.private, local.name
    form, rest = parts_of(*terms)
    if form.digest() != local.form.digest():
        # The agent may have been compiled for a method without proximal steps.
        other, its_rest = parts_of(*terms, proximal=False)
        rest = its_rest if other.digest() == local.form.digest() else rest
    assert rest is not None
    constants = {id(v): cp.Constant(solution.of(local.name, v)) for v in rest.variables()}
    value = rest.tree_copy(constants).value
    return math.nan if value is None else float(np.asarray(value).item())


def _values(
    problem: Declaration,
    data: Mapping[Private | str, DataSource] | Mapping[Private | str, Sealed] | None,
    recourse: bool = False,
) -> list[list[np.ndarray]]:
    """Return, by agent, the values of private objects, including ``recourse=`` on request."""
    sources = _sources(problem, data, recourse)
    return [
        read(list(agent.specs(name).values())[: len(theirs)], theirs)
        for name, agent, theirs in zip(problem.names, problem.agents, sources, strict=True)
    ]


def _sources(
    problem: Declaration,
    data: Mapping[Private | str, DataSource] | Mapping[Private | str, Sealed] | None,
    recourse: bool = False,
) -> list[list[Sealed]]:
    """Return, by agent, the functions that fetch its data."""
    if recourse:
        return [own_sources(problem, k, data) for k in range(len(problem.agents))]
    return sources_of(problem, data, "data={private: array}")
