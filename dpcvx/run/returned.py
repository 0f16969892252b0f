"""What a run returns: its iterates at a point that suits everyone, where there is one."""

from __future__ import annotations

from dataclasses import replace

from ..algorithms.common_point import agents_apart, common_point
from ..solvers.conic import Outcome
from .result import Result, Status


def returned(result: Result) -> Result:
    """The result with its solution at one point for all; a function of what was released.

    Of owners, who keep their own variables, shared ones move, and by the same function. Without
    values, or where no point is found, the solution stays as it is.
    """
    if not result.status.solved:
        return result
    raw = result.raw
    point = common_point(raw.program, raw.vectors, alone=result.owners)
    if point.outcome is Outcome.INFEASIBLE:
        return _infeasible(result)
    common = replace(raw, vectors=point.vectors)
    excess = point.excess if result.owners else max(point.excess, common.coupling_residual)
    return replace(
        result, solution=common if point.found else raw, feasible=point.found, excess=excess
    )


def _infeasible(result: Result) -> Result:
    """The result of a run that could not have a solution, and whose sets do not meet."""
    names = agents_apart(result.raw.program) or ()
    listed = " and ".join(f"'{name}'" for name in names)
    kept = result.transcript
    return replace(
        result,
        status=Status.INFEASIBLE,
        transcript=None if kept is None else replace(kept, status=Status.INFEASIBLE),
        notes=(*result.notes, f"the constraints of agents {listed} do not meet"),
    )
