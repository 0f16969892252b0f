"""Gaps: the true objective at one point for all, within everybody's sets, minus the optimum."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

import dpcvx as dp
from dpcvx.testing import not_private

from .models import Model


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _is_set(attribute: object) -> bool:
    return attribute is not None and attribute is not False and np.size(attribute) > 0


def held(model: Model) -> list[dict[dp.Private, np.ndarray]]:
    """What every agent holds. Not private."""
    values = not_private._values(model.problem, model.data)
    return [
        {p: value.reshape(p.shape, order="F") for p, value in zip(agent.private, own, strict=True)}
        for agent, own in zip(model.problem.agents, values, strict=True)
    ]


def solve_well(problem: cp.Problem) -> None:
    """Solve as it stands and in the unit of the objective, and take the better one.

    The solver stops at absolute tolerances, and objectives are as small as their units make them.
    Started where the variables have values.
    """
    before = _value(problem)
    assert _solve(problem), f"no optimum is certified: {problem.status}"
    first = [(v, v.value) for v in problem.variables()]
    found = _value(problem)
    unit = max(abs(before), abs(found))
    again = cp.Problem(cp.Minimize(problem.objective.args[0] / unit), problem.constraints)
    if not _solve(again) or _value(problem) > found:
        for variable, value in first:
            variable.save_value(value)


def _solve(problem: cp.Problem) -> bool:
    """To as many digits as the solver certifies; whether it does."""
    for digits in (10, 9, 8, 7):
        tolerance = 10.0**-digits
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
            try:
                problem.solve(
                    cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance
                )
            except cp.SolverError:
                continue
        if problem.status == cp.OPTIMAL:
            return True
    return False


def _value(problem: cp.Problem) -> float:
    return float(np.asarray(problem.objective.value))


class Judge:
    """Judges answers to a model, with its data in view. Not private.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    optimum : float
    best : mapping of cp.Variable to ndarray
        The minimizer.
    distance : float
        From the public start to the minimizer.
    nothing : float
        Gap of the public start.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        problem = model.problem
        self._central = not_private.joint_problem(problem, model.data)
        self._variables = problem.variables()
        constraints = [c for agent in problem.agents for c in agent.constraints]
        constraints += problem.coupling
        attributed = any(any(_is_set(a) for a in v.attributes.values()) for v in self._variables)
        self._targets = [cp.Parameter(v.shape) for v in self._variables]
        self._unit = cp.Parameter(nonneg=True)
        self._nearest = None
        if constraints or attributed:
            # In units of the answer, so that the solver's tolerances mean the same everywhere.
            away = [
                cp.sum_squares(self._unit * v - t)
                for v, t in zip(self._variables, self._targets, strict=True)
            ]
            self._nearest = cp.Problem(cp.Minimize(sum(away)), constraints)
        start = {v: np.broadcast_to(problem.start.get(v, 0.0), v.shape) for v in self._variables}
        if model.minimizer is not None:
            for variable, value in model.minimizer().items():
                variable.save_value(value)
        else:
            for variable in self._variables:
                variable.save_value(np.broadcast_to(start[variable], variable.shape))
            solve_well(self._central)
        self.optimum = _value(self._central)
        self.best = {v: np.asarray(v.value) for v in self._variables}
        self.distance = math.sqrt(sum(((self.best[v] - start[v]) ** 2).sum() for v in start))
        self._size = max(_largest(value) for value in self.best.values())
        self.nothing = self.at(start)

    def gap(self, solution: dp.Solution) -> float:
        """Of the mean over those who hold an entry; infinite without an answer."""
        if not solution.finite:
            return math.inf
        return self.at({v: solution[v] for v in self._variables})

    def at(self, values: Mapping[cp.Variable, ArrayLike]) -> float:
        """Of the point of everybody's sets that is nearest to the values of all variables."""
        points = [np.asarray(values[v], float) for v in self._variables]
        if self._nearest is not None:
            self._unit.value = 1 / max(self._size, *(_largest(v) for v in points))
            for target, value in zip(self._targets, points, strict=True):
                target.value = self._unit.value * np.broadcast_to(value, target.shape)
            assert _solve(self._nearest), self._nearest.status
            points = [np.asarray(v.value) for v in self._variables]
        for variable, value in zip(self._variables, points, strict=True):
            variable.save_value(np.broadcast_to(value, variable.shape))
        return _value(self._central) - self.optimum
