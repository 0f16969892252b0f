"""Accuracy of solutions that use no private data, as baselines for private runs."""

from __future__ import annotations

import dpcvx as dp
from dpcvx.algorithms.common_point import common_point
from dpcvx.algorithms.program import compile_problem
from dpcvx.run.solution import Solution


def at_start(problem: dp.Problem) -> float:
    """Return the true objective at the public initial point, made feasible and equal for agents.

    Not private: the objective is computed on the data. The point itself does not depend on them.
    """
    program = compile_problem(problem)
    point = common_point(program, tuple(local.start for local in program.agents))
    return dp.not_private.objective(problem, Solution(program, point.vectors, {}))
