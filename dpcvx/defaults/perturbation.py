r"""Objective perturbation by default: problems that use it, and the weight of the regularization.

Let the objective bend by h near the answer, R away from the start. A quadratic of weight
:math:`\Delta` and a random linear term b move the minimizer by :math:`\Delta R / (h + \Delta)` and
:math:`b / (h + \Delta)`. With the mean of N agents' minimizers, the objective rises by about

.. math::
    \frac{h}{2 (h + \Delta)^2} \Bigl(\Delta^2 R^2 + \frac{1}{N} \operatorname{E} \|b\|^2\Bigr) .

b is the louder, the more of epsilon the determinant takes, which falls with :math:`\Delta`. The
weight with the least sum is proposed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..algorithms.objective_perturbation import ObjectivePerturbation, has_objective
from ..algorithms.program import once_per_kind
from ..model.curvature import mean_curvature
from ..model.declaration import Declaration
from ..plan.agent_plan import Agents, agents_of
from ..sensitivity.queries.solutions import obstacle_to_perturbation, perturbation_bounds
from .responses import Selection, Study

# Weights that are tried, from as much as one record bends the objective.
_WEIGHTS = 2.0 ** np.arange(-10.0, 10.5, 0.5)
# Of the curvature that records have where they fill their bounds, what is typical.
_TYPICAL = 0.4
# How many times as far as one step by declared bounds the answer is.
_FARTHER = 2.5
# The mean of more agents' minimizers is farther from the optimum than noisy steps end.
_MOST = 10
_WHY = (
    "objective perturbation: at delta=0, noise in one minimization does less than noise in many "
    "steps"
)


def regularization(agents: Agents, epsilon: float, distance: float) -> float:
    """Return the weight with the least predicted error.

    Parameters
    ----------
    agents : tuple of AgentPlan
    epsilon : float
        Of a release.
    distance : float
        From the start to the answer, about.
    """
    private = [agent for agent in agents if agent.bound > 0]
    bounds = once_per_kind(private, perturbation_bounds)
    typical = [_TYPICAL * (mean_curvature(agent.form) or 0.0) for agent in private]
    bend = max((b.bend for b in bounds), default=0.0)
    weights = [0.0, *(bend * _WEIGHTS).tolist()] if bend > 0 else [0.0]

    def error(weight: float) -> float:
        total = 0.0
        for bound, h in zip(bounds, typical, strict=True):
            term = bound.term(epsilon, weight)
            if term is None or not bound.searchable(weight):
                return math.inf
            h += bound.convexity
            moved = (weight * _FARTHER * distance) ** 2 + term.variance / len(private)
            total += h / (h + weight) ** 2 * moved if moved else 0.0
        return total

    errors = [error(weight) for weight in weights]
    best = int(np.argmin(errors))
    # The largest where none leaves room: the plan then says what is missing. Three digits, as
    # processors round the last ones differently.
    return float(f"{weights[best if math.isfinite(errors[best]) else -1]:.3g}")


def with_perturbation(problem: Declaration, study: Study, request: Selection) -> Selection | None:
    """Return the request with objective perturbation; None if not possible or not the default.

    Parameters
    ----------
    problem : Declaration
    study : Study
    request : Selection
        With all choices of the user.
    """
    free = request.algorithm is None and request.release is None and request.chooses_noise
    plain = request.rounds is None and request.observer == "everyone" and request.scale is None
    if not (free and plain and request.delta == 0 and study.program.coupling is None):
        return None
    method = ObjectivePerturbation()
    agents = agents_of(problem, study.program, study.sensitivities, method.requirements)
    for agent in agents:
        if agent.bound > 0 and (obstacle_to_perturbation(agent) or agent.program.limits):
            return None
        if not agent.bound > 0 and has_objective(agent.program):
            return None
    if not 0 < sum(agent.bound > 0 for agent in agents) <= _MOST:
        return None
    return replace(request, algorithm=method, mechanism="laplace", rounds=1).chosen(
        "algorithm", _WHY
    )
