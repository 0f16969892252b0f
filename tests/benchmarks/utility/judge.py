"""Gaps: the true objective at one point for all, within everybody's sets, minus the optimum."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

import dpcvx as dp

from .models import Model


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _is_set(attribute: object) -> bool:
    return attribute is not None and attribute is not False and np.size(attribute) > 0


def solve_well(problem: cp.Problem) -> None:
    """To ten digits where the solver can: objectives are as small as their units make them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate", UserWarning)
        problem.solve(cp.CLARABEL, tol_gap_abs=1e-14, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE), problem.status


class Judge:
    """Judges answers to a model, with its data in view. Not private.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    optimum : float
    best : mapping of cp.Variable to ndarray
        The minimiser.
    distance : float
        From the public start to the minimiser.
    nothing : float
        Gap of the public start.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        problem = model.problem
        self._central = dp.not_private.central(problem, model.data)
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
        if model.minimiser is not None:
            for variable, value in model.minimiser().items():
                variable.save_value(value)
        else:
            solve_well(self._central)
        self.optimum = float(np.asarray(self._central.objective.value))
        self.best = {v: np.asarray(v.value) for v in self._variables}
        start = {v: np.broadcast_to(problem.start.get(v, 0.0), v.shape) for v in self._variables}
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
            solve_well(self._nearest)
            points = [np.asarray(v.value) for v in self._variables]
        for variable, value in zip(self._variables, points, strict=True):
            variable.save_value(np.broadcast_to(value, variable.shape))
        return float(np.asarray(self._central.objective.value)) - self.optimum
