"""States and local updates of agents in methods that release the new point itself, with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import Kind
from ..errors import ModelError
from ..model.curvature import convex, smoothness, strong_convexity
from ..model.matrices import SLACK, round_down
from ..sensitivity.queries.gradients import Step
from ..sensitivity.queries.solutions import Minimizer
from ..solvers.steps import Minimization
from .base import Iterates, Local, Oracle
from .program import Program

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AgentState(Iterates):
    """State of an agent with multipliers `lam`, shape (m,); they are 0 in methods without any."""

    lam: Array


State = TypeVar("State", bound=AgentState)


def projected_step(local: Local, state: State, query: Step | Minimizer, oracle: Oracle) -> State:
    """Return an agent's state after a noisy local step, projected onto its feasible set W.

    The projection also minimizes the objective's terms without a gradient, multiplied by the step
    size. If it fails, the state keeps the previous point.
    """
    noisy = oracle.release(query)
    weight = query.step if isinstance(query, Step) else 0.0
    projection = local.projector(noisy, np.ones(noisy.shape[-1]), weight)
    return state.after(projection.x, projection.outcome)


# Values of ``exact=``: True, False, or the `Minimization` that a plan puts in the place of True.
EXACT = Kind(
    lambda value: isinstance(value, bool | Minimization),
    "True for local minimizers, or False for linearized steps",
)


def minimization(program: Program, D: float, owner: str) -> Minimization:
    """Return the search that minimizes ``f(x) + D/2 ||x - v||^2`` for any agent's objective f.

    The minimum is over the agent's feasible set; `owner` is the method's name in errors.

    Raises
    ------
    ModelError
        If the search is not proved to contract for all admissible data.
    """
    constants: list[tuple[float, float]] = []
    for local in program.agents:
        L, name = smoothness(local.form), f"agent '{local.name}'"
        if L is None:
            raise ModelError(
                f"No smoothness constant can be derived for the objective of {name}: it is "
                "nonsmooth, or its curvature depends on private data. Leave out exact=, for "
                f"first-order steps. The local searches of {owner}(exact=True) need the constant."
            )
        if not convex(local.form):
            raise ModelError(
                f"The objective of {name} is not convex for all admissible data. Leave out "
                "exact=, or look for a quadratic with a negative denominator or eigenvalue. A "
                f"search by {owner}(exact=True) may end away from the minimizer."
            )
        if not local.projector().closed_form:
            raise ModelError(
                f"The constraint set of {name} has no closed-form projection. Leave out exact=, "
                "or use only bounds, a sum, a ball or equations as constraints. A search by "
                f"{owner}(exact=True) projects onto the set in every step."
            )
        constants.append((L * SLACK, max(0.0, round_down(min(L, strong_convexity(local.form)), L))))
    return Minimization.close(D, max(L for L, _ in constants), min(m for _, m in constants))
