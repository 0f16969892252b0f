r"""Linearized ADMM with multiple local updates (Ryu and Kim, Algorithm 1).

.. math::
    w_i &\leftarrow \operatorname{mean}_{p \in N_i} (z_{p,i} - \lambda_{p,i} / \rho_t) && (5) \\
    x_p &\leftarrow \operatorname{argmin}_{x \in W_p} \langle \tilde g, x \rangle
        + \tfrac{1}{2 \eta_t} \|x - x_p\|^2
        + \tfrac{\rho_t}{2} \|w - S_p x + \lambda_p / \rho_t\|^2 && (10) \\
    \lambda_p &\leftarrow \lambda_p + \rho_t (w - z_p) && (22)

with :math:`\tilde g` the noisy gradient at :math:`x_p`. A round has E local updates (10), and
:math:`z_p` is the mean of their E results on the shared components :math:`S_p`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, choice, count, optional
from .._words import plural
from ..errors import ModelError
from ..guard import frameless
from ..sensitivity.queries.gradients import Gradient
from ..sensitivity.queries.solutions import LocalSolution
from ..solvers.conic import Outcome
from ..solvers.steps import ProximalStep
from .base import Answer, Iterates, Local, Oracle, Output, Requirements
from .consensus import Broadcast, ConsensusMethod, LocalCopy
from .facts import PublicFacts, StepRule
from .penalties import PenaltyRule, penalty_said
from .program import Program
from .steps import as_step, step_said

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearizedADMMState(Iterates):
    """State of an agent: its points, its multipliers, and the total weight of its average."""

    lam: Array
    weight: float = 0.0


_LOCAL_UPDATES = count().because("the number of noisy gradients per agent and round")
_PERTURB = choice("objective", "output", "projected_output").because(
    "where the noise goes. For no noise, plan with mechanism=None"
)


@frameless
@dataclass(frozen=True)
class LinearizedADMM(ConsensusMethod[LinearizedADMMState]):
    """Linearized consensus ADMM, whose every iterate satisfies the agent's constraints.

    Parameters
    ----------
    penalty : float, penalty rule or None
        Penalty rho of the consensus residual: a number, `dp.penalties.Growing` or
        `dp.penalties.ResidualBalancing`. None takes 1 over the first step size.
    step : float, step rule or None
        Step size eta_t: a number or a rule of `dp.steps`. With None, the plan chooses it from
        public facts; see `dpcvx.defaults.predicted`.
    local_updates : int
        Number E of noisy gradients (and releases) per agent and round.
    perturb : {"objective", "output", "projected_output"}
        Value to which noise is added. "objective" adds noise to the gradient (the paper's method).
        "output" adds noise to the result of the local step (the paper's baseline, equation 12),
        which may then violate constraints. "projected_output" projects this noisy result onto the
        feasible set. Constraints with exponential or power cones need ``"objective"``.
    output_sensitivity : float, optional
        User-supplied sensitivity of the local step's result, for noise on the output, such as the
        beta of Ryu and Kim. All components then have noise of equal scale, and the guarantee is
        marked as asserted. If the agent has local variables, the guarantee need not hold.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`. The convergence theorems hold for the average.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    penalty: float | PenaltyRule | None = None
    step: float | StepRule | None = None
    local_updates: int = 1
    perturb: Literal["objective", "output", "projected_output"] = "objective"
    output_sensitivity: float | None = None
    returned: Output | None = None

    # With the default penalty, shared variables move by half of a gradient step.
    pull: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        self.check()
        as_step(self.step)
        self.check_fields(
            local_updates=_LOCAL_UPDATES, perturb=_PERTURB, output_sensitivity=optional(POSITIVE)
        )
        if self.perturb == "objective" and self.output_sensitivity is not None:
            raise ModelError(
                f"dp.LinearizedADMM(output_sensitivity={self.output_sensitivity:g}) goes with "
                "perturb='output' or 'projected_output'. Leave it out to have the sensitivity "
                "derived."
            )

    @property
    def batched(self) -> bool:
        """Return whether identical agents are updated together, as a batch.

        True if noise is added to gradients; always False in subclasses.
        """
        return self.perturb == "objective" and type(self) is LinearizedADMM

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: convex objectives, E releases per agent and round."""
        return Requirements(
            convex=True,
            exact=False,
            releases=self.local_updates,
            queries=(Gradient if self.perturb == "objective" else LocalSolution,),
            sensitivity=self.output_sensitivity,
            proximal=self.perturb == "objective",
        )

    def propose(self, facts: PublicFacts) -> LinearizedADMM:
        """Return the method with omitted penalty, step sizes and returned iterate chosen."""
        step, output = as_step(self.step), self.returned
        if step is None:
            step, proposed = facts.step(pull=self.pull, updates=self.local_updates)
            output = output or proposed
        step = step.resolved(facts.program, facts.conditions.release_epsilon)
        penalty = 1 / step.eta(1) if self.penalty is None else self.penalty
        completed = replace(self, step=step, penalty=penalty, returned=output)
        return super(LinearizedADMM, completed).propose(facts)

    def noise_floor(
        self, program: Program, noise: Sequence[float], t: int, penalty: float
    ) -> float | None:
        """Return the consensus residual that gradient noise sustains at this step size."""
        rule = as_step(self.step)
        if self.perturb != "objective" or rule is None:
            return None
        # The noise of E updates adds up in a round.
        spread = [math.sqrt(self.local_updates) * s for s in noise]
        return self.floor(program, spread, t, 1 / rule.eta(t) + penalty, penalty)

    def start_agent(self, local: Local) -> LinearizedADMMState:
        """Return the agent's state with x at the public initial point and zero multipliers."""
        x = local.program.start
        return LinearizedADMMState(x, np.zeros_like(x), np.zeros(local.program.shared.size))

    def act(
        self,
        local: Local,
        state: LinearizedADMMState,
        t: int,
        k: int,
        message: Broadcast,
        oracle: Oracle,
    ) -> tuple[LinearizedADMMState, LocalCopy]:
        """Make E local updates, average their results, and update the multipliers."""
        rule = as_step(self.step)
        assert rule is not None
        w, rho, eta = message.w, message.rho, rule.eta(t)
        S = local.program.shared
        x, lam = state.x, state.lam
        average, weight, outcome = state.average, state.weight, state.outcome
        D = np.full(x.shape[-1], 1 / eta)
        D[S] += rho
        pull, mean = np.zeros_like(x), np.zeros_like(x)
        pull[..., S] = rho * w + lam
        for _ in range(self.local_updates):
            anchor = self._anchor(local, x, D)
            center = (x / eta + pull) / D
            step = ProximalStep(local.projector, center, D, anchor)
            before = x
            x, outcome = self._update(x, step, oracle)
            mean = mean + x / self.local_updates
            share = rule.weight(t) / self.local_updates
            weight += share
            iterate = x if rule.averages_new else before
            average = average + (share / weight) * (iterate - average)
        z = mean[..., S]
        lam = lam + rho * (w - z)
        state = LinearizedADMMState(x, average, lam, weight, turns=t, outcome=outcome)
        return state, LocalCopy(z, lam)

    def answer(self, state: LinearizedADMMState) -> Answer:
        """Return the agent's last iterate, and its average with the step-size rule's weights."""
        return Answer(state.x, state.average, state.weight)

    def _anchor(self, local: Local, x: Array, D: Array) -> Array:
        """Return a public feasible point near x: x itself, unless output noise moved it away."""
        if self.perturb != "output":
            return x
        projection = local.projector(x, D)
        return local.program.start if projection.x is None else projection.x

    def _update(self, x: Array, step: ProximalStep, oracle: Oracle) -> tuple[Array, Outcome]:
        """Make a local update (10), or the paper's baseline (12) with noise on the solution."""
        if self.perturb == "objective":
            projection = step(oracle.release(Gradient(x)))
        else:
            x_plus = oracle.release(LocalSolution(x, step.center, step.D, step.anchor))
            if self.perturb == "output":
                return x_plus, Outcome.SOLVED
            projection = step.projector(x_plus, step.D)
        # The release of a failed solve has been charged: keep the previous point and continue.
        return (x if projection.x is None else projection.x), projection.outcome

    def __str__(self) -> str:
        return (
            f"linearized ADMM, {plural(self.local_updates, 'local update')}, {self.perturb} "
            f"perturbation, {penalty_said(self.penalty)}, "
            f"{step_said(self.step)}"
        )
