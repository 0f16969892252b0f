"""What a run returns: its iterates at a point that suits everyone, where there is one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..algorithms.common_point import common_point
from .result import Result, Status


def returned(result: Result) -> Result:
    """The result with its solution at one point for all; a function of what was released.

    Without values, or where no point is found, the solution stays as it is.
    """
    if result.status is Status.DIVERGED:
        return result
    raw = result.raw
    point = common_point(raw.program, raw.vectors)
    common = replace(raw, vectors=point.vectors)
    return replace(
        result,
        solution=common if point.found else raw,
        feasible=point.found,
        excess=float(np.max([point.excess, common.coupling_residual])),
    )
