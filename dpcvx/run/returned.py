"""Returned solutions: the point nearest to the iterates where all agents agree, if found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from ..algorithms.common_point import agents_apart, common_point
from ..model.layout import whole_matrices
from ..model.matrices import from_real_entries, real_entries
from ..solvers.conic import Outcome
from .result import Result, Status
from .solution import Solution

Array = NDArray[np.float64]

# Relative tolerance of constraints: violation over the size of the compared values.
HOLDS = 1e-5


def returned(result: Result) -> Result:
    """Return the result with its solution moved to a common point; a function of released values.

    With remote owners, only shared variables move, by the same function. The solution is unchanged
    if the run has no values or no common point is found.
    """
    if not result.status.solved:
        return result
    raw = result.raw
    point = common_point(raw.program, raw.vectors, alone=result.owners)
    if point.outcome is Outcome.INFEASIBLE:
        return _infeasible(result)
    common = replace(raw, vectors=point.vectors)
    if result.owners:
        solution = common if point.found else raw
        return replace(result, solution=solution, feasible=point.found, max_violation=point.excess)
    missed, holds = _written(result, common) if result.problem is not None else (0.0, True)
    feasible = point.found and holds
    excess = max(point.excess, common.coupling_residual, missed)
    return replace(
        result, solution=common if feasible else raw, feasible=feasible, max_violation=excess
    )


def _written(result: Result, solution: Solution) -> tuple[float, bool]:
    """Return the largest violation of a public constraint, and whether all hold within tolerance.

    Runs satisfy compiled constraints, but reports are about the user's own constraints. So cvxpy
    evaluates these at released values, except constraints with private data.
    """
    problem = result.problem
    assert problem is not None
    variables = problem.variables()
    with whole_matrices(variables):
        before = [variable.value for variable in variables]
        try:
            for variable, value in zip(variables, _values(solution, variables), strict=True):
                variable.save_value(value)
            violations = [_violation(c) for a in problem.agents for c in a.public_constraints]
        finally:
            for variable, value in zip(variables, before, strict=True):
                variable.save_value(value)
    worst = max((violation for violation, _ in violations), default=0.0)
    return worst, all(violation <= HOLDS * size for violation, size in violations)


def _values(solution: Solution, variables: Sequence[cp.Variable]) -> list[Array]:
    """Return the values of variables at a solution common to all agents, in one pass."""
    flat = {v.id: real_entries(solution.start[v.id]).copy() for v in variables}
    for local, x in zip(solution.program.agents, solution.vectors, strict=True):
        for piece in local.layout.pieces:
            if piece.variable in flat:  # slack variables of coupling= are not among the user's
                flat[piece.variable][piece.entries] = x[piece.offset : piece.stop]
    return [from_real_entries(flat[v.id], v.shape, v.is_complex()) for v in variables]


def _violation(constraint: cp.Constraint) -> tuple[float, float]:
    """Return the violation of a constraint at present values, and the size of its sides.

    The violation is 0 if a public parameter has no value, as after a plan was unpickled.
    """
    with np.errstate(all="ignore"):
        sides = [side.value for side in constraint.args]
        if any(side is None for side in sides):
            return 0.0, 1.0
        far = float(np.max(constraint.violation(), initial=0.0))
        size = max(float(np.abs(side).max(initial=0.0)) for side in map(np.asarray, sides))
    return far, max(1.0, size)


def _infeasible(result: Result) -> Result:
    """Return the result with status INFEASIBLE; name agents whose sets have no common point."""
    names = agents_apart(result.raw.program) or ()
    listed = " and ".join(f"'{name}'" for name in names)
    transcript = result.transcript
    return replace(
        result,
        status=Status.INFEASIBLE,
        transcript=None if transcript is None else replace(transcript, status=Status.INFEASIBLE),
        notes=(*result.notes, f"the constraints of agents {listed} do not meet"),
    )
