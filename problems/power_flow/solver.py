"""Solution of the models by Clarabel, with settings for full accuracy."""

from __future__ import annotations

import warnings

import cvxpy as cp

# Solver settings, tried in order until one reaches full accuracy. Some large networks need a wider
# range of scalings, or shorter steps, which stay away from the boundary of the cones.
_ATTEMPTS: tuple[dict[str, float], ...] = (
    {},
    {
        "equilibrate_min_scaling": 1e-6,
        "equilibrate_max_scaling": 1e6,
        "equilibrate_max_iter": 30,
    },
    {"max_step_fraction": 0.95},
)


def solve(problem: cp.Problem) -> str:
    """Solve a problem and return its status, or "failed" if the solver fails."""
    status = "failed"
    for settings in _ATTEMPTS:
        try:
            with warnings.catch_warnings():
                # The caller gets the status instead.
                warnings.filterwarnings("ignore", message="Solution may be inaccurate")
                problem.solve(solver=cp.CLARABEL, **settings)
            status = str(problem.status)
        except cp.SolverError:
            continue
        if status != cp.OPTIMAL_INACCURATE:
            break
    return status
