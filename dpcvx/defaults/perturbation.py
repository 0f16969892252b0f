r"""Weight of the quadratic that objective perturbation adds, chosen by predicted error.

Let the objective have curvature h near the solution, at distance R from the initial point. A
quadratic of weight :math:`\Delta` and a random linear term b move the minimizer by
:math:`\Delta R / (h + \Delta)` and :math:`b / (h + \Delta)`. With the mean of N agents'
minimizers, the objective rises by about

.. math::
    \frac{h}{2 (h + \Delta)^2} \Bigl(\Delta^2 R^2 + \frac{1}{N} \operatorname{E} \|b\|^2\Bigr) .

The noise grows with the part of epsilon that the determinant takes, and this part falls with
:math:`\Delta`. The weight with the smallest sum is proposed.
"""

from __future__ import annotations

import math

import numpy as np

from ..algorithms.program import once_per_kind
from ..model.curvature import mean_curvature
from ..plan.agent_plan import Agents
from ..sensitivity.queries.solutions import perturbation_bounds

# Weights to try, in units of the largest curvature of one record.
_WEIGHTS = 2.0 ** np.arange(-10.0, 10.5, 0.5)
# Typical curvature of records, relative to that of records at their bounds.
_TYPICAL = 0.4
# Typical distance to the solution, relative to the distance estimated from declared bounds.
_FARTHER = 2.5


def regularization(agents: Agents, epsilon: float, distance: float) -> float:
    """Return the weight of the added quadratic with the least predicted error.

    Parameters
    ----------
    agents : tuple of AgentPlan
    epsilon : float
        Privacy loss of one release.
    distance : float
        Typical distance from the initial point to the solution.
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
    # If no weight is possible, return the largest: the plan then reports the obstacle. Three
    # digits, because processors round the last ones differently.
    return float(f"{weights[best if math.isfinite(errors[best]) else -1]:.3g}")
