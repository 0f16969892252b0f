"""Accuracy of solutions that use no private data, as baselines for private runs."""

from __future__ import annotations

import dpcvx as dp
from dpcvx.algorithms.common_point import common_point
from dpcvx.algorithms.program import compile_problem
from dpcvx.run.solution import Solution


def at_start(problem: dp.Problem) -> float:
    """The true objective at the public start, moved to where all agree and all constraints hold.

    Not private: it is computed on the data. The point itself depends on none.
    """
    program = compile_problem(problem)
    point = common_point(program, tuple(local.start for local in program.agents))
    return dp.not_private.objective(problem, Solution(program, point.vectors, {}))
