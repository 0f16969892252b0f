r"""Gradient descent at the mean of all agents (Xiao, Ye and Devadas, Appendix J).

.. math::
    \bar x = \tfrac1N \textstyle\sum_j x_j, \qquad
    x_i \leftarrow P_i(\bar x - \eta_t \nabla f_i(\bar x) + \Delta_i)

Agents need only the sum of all points, so secure aggregation can form it. In
`DecentralizedGradient` with ``aggregate="mean"``, every agent receives all points instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..guard import frameless
from ..sensitivity.queries.gradients import Step
from .base import Local, Oracle, Output, Requirements, Residuals
from .facts import PublicFacts, StepRule
from .on_networks import projected_step, require_whole, shared, spread
from .program import LocalProgram, Program
from .steps import as_step, step_said, too_long
from .summed import SHARING, Heard, Member, SecretSharing, ServerState, SummedMethod

Array = NDArray[np.float64]


@frameless
@dataclass(frozen=True)
class FederatedAveraging(SummedMethod):
    """Gradient descent: each agent steps from the mean of all agents' points.

    Parameters
    ----------
    step : float or step rule
        The paper's step size eta_t; chosen from public facts if omitted, see
        `dpcvx.defaults.predicted`. The paper takes 1 / smoothness, which is
        ``dp.steps.Constant()``.
    sharing : SecretSharing, optional
        Form the sums by secure aggregation, which hides the summands.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    step: float | StepRule | None = None
    sharing: SecretSharing | None = None
    returned: Output | None = None

    # Shared variables move by the whole step, because it begins at the mean.
    pull: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        self.check_fields(sharing=SHARING)
        as_step(self.step)

    @property
    def batched(self) -> bool:
        """Return whether identical agents are updated as a batch; False with `sharing`."""
        return self.sharing is None and type(self) is FederatedAveraging

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: one release per agent and round, any objective."""
        return Requirements(convex=False, exact=False, releases=1, queries=(Step,), proximal=True)

    def propose(self, facts: PublicFacts) -> FederatedAveraging:
        """Return the method with step sizes, if omitted; refuse agents with local variables."""
        program = facts.program
        require_whole(program)
        self.sums(program)  # raises here, before any data are read, if the sums are impossible
        step, output = as_step(self.step), self.returned
        if step is None:
            step, proposed = facts.step(pull=self.pull, falls=True)
            output = output or proposed
        step = step.resolved(program, facts.conditions.release_epsilon)
        return replace(self, step=step, returned=output)

    def diverges(self, program: Program) -> str:
        """Return the reason why runs must diverge with these steps; "" if none is known."""
        return too_long(program, as_step(self.step))

    @property
    def tells_agreement(self) -> bool:
        """Return whether residuals measure the agents' disagreement; False with `sharing`."""
        return self.sharing is None

    def residuals(self, server: ServerState) -> Residuals:
        """Return the points' distance from their mean; with `sharing`, the change of the mean."""
        if server.terms is None:
            change = server.dual / len(server.names)
            return Residuals(change, server.dual, change, 0.0)
        gaps = np.array(server.terms) - server.residual / len(server.names)
        largest = float(np.abs(gaps).max(initial=0.0))
        return Residuals(float(np.linalg.norm(gaps)), server.dual, largest, 0.0)

    def adds(self, k: int) -> bool:
        """Return False, because the residuals need every point and not only the sum."""
        return False

    def target(self, program: Program) -> Array:
        """Return zero, because the sum of all points need not reach any value."""
        return np.zeros(program.size)

    def sent(self, local: LocalProgram, x: Array) -> Array:
        """Return the agent's shared variables as its summand."""
        return shared(x, local)

    def advance(self, local: Local, state: Member, t: int, heard: Heard, oracle: Oracle) -> Member:
        """Return the agent's state after one noisy gradient step from the mean of all points."""
        rule = as_step(self.step)
        assert rule is not None
        mean = spread(local, state.x, heard.residual / heard.agents)
        return projected_step(local, state, Step(mean, mean, rule.eta(t)), oracle)

    def __str__(self) -> str:
        how = "" if self.sharing is None else ", sums by secret sharing"
        return f"gradient descent at the mean of all, {step_said(self.step)}{how}"
