"""Reference computations on raw data: for tests, studies and teaching, never for release.

Everything here reads private data in the open and returns values without any guarantee. The
functions live outside the package's first level so that a program that uses them says so.
"""

from __future__ import annotations

from collections.abc import Mapping

import cvxpy as cp
import numpy as np

from .curvature import smoothness
from .errors import ModelError
from .model import Problem
from .oracle import read
from .private import Private, Rows, source_of
from .program import compile_problem
from .projection import Projector
from .result import Solution
from .run import DataSource, sources_of


def central(problem: Problem, data: Mapping[Private | str, DataSource] | None = None) -> cp.Problem:
    """The problem of all agents together as an ordinary cvxpy problem, private data included.

    Not private. Shared variables are shared by identity, so solving it gives the optimum that the
    distributed methods approach without noise. Solving it also overwrites ``variable.value``.
    """
    costs: list[cp.Expression] = []
    constraints: list[cp.Constraint] = []
    for agent, values in zip(problem.agents, _values(problem, data), strict=True):
        constants = {
            id(p): cp.Constant(v.reshape(p.shape, order="F"))
            for p, v in zip(agent.private, values, strict=True)
        }
        costs.append(agent.cost.tree_copy(constants) if constants else agent.cost)
        constraints += agent.constraints
    return cp.Problem(cp.Minimize(sum(costs)), [*constraints, *problem.coupling])


def objective(
    problem: Problem, solution: Solution, data: Mapping[Private | str, DataSource] | None = None
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
    parts = zip(agents, _values(problem, data), solution.vectors, strict=True)
    return sum(local.form.bind(values).value(x) for local, values, x in parts)


def gradient_norms(
    problem: Problem, data: Mapping[Private | str, DataSource] | None = None
) -> dict[str, float]:
    """Per agent, a bound of its gradient's norm over its set: at the start, plus L times distance.

    Not private. For `Plan.convergence_bound` in studies.

    Raises
    ------
    ModelError
        If an agent's set is not bounded, or no smoothness constant can be derived for it.
    """
    found = {}
    for local, values in zip(
        compile_problem(problem, exact=False).agents, _values(problem, data), strict=True
    ):
        L = smoothness(local.form)
        reach = Projector(local.constraints, local.name).extent().diameter(np.arange(local.n))
        if L is None or np.isinf(reach):
            raise ModelError(
                f"No bound of the gradient of agent '{local.name}' is known: its set is not "
                "bounded, or no smoothness constant can be derived. State one yourself."
            )
        start = float(np.linalg.norm(local.form.bind(values).gradient(local.start)))
        found[local.name] = start + L * reach
    return found


def too_long(private: Private, data: DataSource | None = None) -> int:
    """Number of rows whose norm exceeds the bound of `dp.Rows`: those that are clipped or refused.

    Not private: the number depends on the data.
    """
    adjacency = private.adjacency
    if not isinstance(adjacency, Rows):
        return 0
    rows = np.asarray(source_of(private, data)(), dtype=float)
    return int(adjacency.too_long(rows.reshape(rows.shape[0], -1)).sum())


def _values(
    problem: Problem, data: Mapping[Private | str, DataSource] | None
) -> list[list[np.ndarray]]:
    sources = sources_of(problem, data or {})
    return [
        read([p.spec for p in agent.private], own)
        for agent, own in zip(problem.agents, sources, strict=True)
    ]
