r"""Decentralized ADMM with random aggregators (Xiao, Ye and Devadas, Algorithm 1).

.. math::
    x_i &\leftarrow P_i\Bigl( \tfrac{\Gamma_i}{D} x_i + \bigl(1 - \tfrac{\Gamma_i}{D}\bigr)
        \operatorname{mean}_{j \in N_i} x_j - \tfrac1D \nabla f_i(x_i) + \tfrac1D \lambda_i
        + \Delta_i \Bigr) && (6) \\
    \lambda_i &\leftarrow \lambda_i + \zeta \sum_{j \in N_i} (x_j - x_i)

with a diagonal :math:`\Gamma_i` that every agent draws anew in every round, so that the aggregate
lies anywhere between the agent's point and its neighbors' mean. Agents keep :math:`\Gamma_i`
secret. The paper prints the step of the multipliers with the opposite sign; then the iterates
diverge.

Exact steps (3) set ``x`` to the minimizer of ``f_i(x) + D/2 ||x - v||^2``, where v is the argument
of the projection above without gradient and noise.

Without constraints and noise, distances to the optimum decrease at a linear rate under the
condition

.. math::
    \kappa = l w^2 / m < r, \qquad \zeta \le r, \qquad
    D > L + \tfrac{l}{2} \bigl( r + \max(\zeta, \kappa) \bigr)

with the least modulus m and the largest smoothness constant L of the objectives, the largest
eigenvalue l of the network's Laplacian, and r - w and r + w the least and the largest value that
:math:`(D - \Gamma_i) / |N_i|` can have. The paper proves no condition for this form; this one
follows from :math:`V = D \|x - x^*\|^2 + \|\lambda - \lambda^*\|^2_{\mathcal L^+} / \zeta` with
the Laplacian :math:`\mathcal L`. Let d be the step of x, and :math:`e_0` and e the differences from
the optimum before and after it. Then V changes by at most

.. math::
    -m \|e_0\|^2 - m \|e\|^2 + (L - D) \|d\|^2 + r \|d\|^2_{\mathcal L} - r \|e_0\|^2_{\mathcal L}
    - (r - \zeta) \|e\|^2_{\mathcal L} + 2 w \sqrt l \, \|e_0\|_{\mathcal L} \|e\|,

where the last term is at most :math:`\kappa \|e_0\|^2_{\mathcal L} + m \|e\|^2`. With this bound,
the two terms before it still subtract at least :math:`(r - \max(\zeta, \kappa)) / 2` times
:math:`\|d\|^2_{\mathcal L}`, and :math:`\|d\|^2_{\mathcal L} \le l \|d\|^2`. Exact steps have
:math:`-2 m \|e\|^2` in place of the first two terms and of :math:`L \|d\|^2`.

With fixed weights, the method has the form of earlier proposals. Noise in the multipliers (Zhang
and Zhu, "Dynamic differential privacy for ADMM-based distributed classification learning") is noise
in x to first order. If D grows (Zhang, Khalili and Liu, "Improving the privacy and accuracy of
ADMM-based distributed algorithms"), the noise counts less from round to round. Noise on exact
minimizers is output perturbation (Ding et al.). The minimizer of an objective with random terms is
private only if a proof covers the change of the Hessian, which needs records that enter by one
inner product each, and the inexactness of the minimizer. The exact form of the first two proposals
is a baseline, `problems.census.exact_steps`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import DIVISOR, POSITIVE, check_argument, number, optional
from ..errors import ModelError
from ..guard import frameless
from ..sensitivity.queries.gradients import Step
from ..sensitivity.queries.solutions import Minimizer
from ..solvers.steps import Minimization
from .base import Local, Oracle, Output, Requirements
from .facts import PublicFacts
from .on_networks import (
    EXACT,
    AgentState,
    Graph,
    Inbox,
    Inboxes,
    NeighborMethod,
    minimization,
    numbers,
    shared,
    spread,
)
from .program import Program
from .steps import curvatures, required_smoothness

Array = NDArray[np.float64]
# Largest power of ten by which D may grow in a run.
_LONGEST = 12


_RANDOMNESS = number(
    lambda v: 0 <= v <= 1,
    "from 0 (fixed weights) to 1 (anywhere between own point and neighbors')",
)
_GROWTH = number(lambda v: v >= 1, "of at least 1").because(
    "growing step sizes make the iterates diverge"
)


@frameless
@dataclass(frozen=True)
class DecentralizedADMM(NeighborMethod):
    """ADMM over a network, with random weights between an agent and its neighbors.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network; see `dp.networks.build`.
    step : float, optional
        Step size, the inverse of the paper's D. If omitted, D is at least four times the largest
        smoothness constant, and larger with noise.
    penalty : float, optional
        The paper's zeta, the step size of the multipliers; if omitted, a third of D divided by the
        largest eigenvalue of the network's Laplacian, or by a bound on it
        (`Network.laplacian_norm`).
    randomness : float
        Width of the interval around 1/2 from which agents draw the paper's Gamma (weight of an
        edge) divided by D. 1 is the paper's choice; 0 gives fixed weights.
    growth : float
        Factor by which D grows, and steps become shorter, in each round; at least 1.
    exact : bool
        Whether local steps minimize the objective, to 1e-12, instead of a linearization. Objectives
        then need a smoothness constant L, and a step evaluates about 28 (L + D) / D gradients.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    graph: Graph = "complete"
    step: float | None = None
    penalty: float | None = None
    randomness: float = 1.0
    growth: float = 1.0
    exact: bool | Minimization = False
    returned: Output | None = None

    def __post_init__(self) -> None:
        self.check_fields(
            step=optional(DIVISOR),
            penalty=optional(POSITIVE),
            randomness=_RANDOMNESS,
            exact=EXACT,
            growth=_GROWTH,
        )

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: convex objectives, one release per agent and round."""
        query = Minimizer if self.exact else Step
        return Requirements(
            convex=True, exact=False, releases=1, queries=(query,), proximal=not self.exact
        )

    @property
    def batched(self) -> bool:
        """Return whether identical agents are updated as a batch; False in subclasses."""
        return not self.exact and type(self) is DecentralizedADMM

    def releases(self, rounds: int, program: Program) -> int:
        """Return one release per round; refuse a `growth` that makes the last steps vanish."""
        if (rounds - 1) * math.log10(self.growth) > _LONGEST:
            raise ModelError(
                f"dp.DecentralizedADMM(growth={self.growth:g}) makes steps more than 1e{_LONGEST} "
                f"times shorter within {rounds} rounds. Write a growth= closer to 1. Otherwise "
                "the last steps have no effect."
            )
        return super().releases(rounds, program)

    def propose(self, facts: PublicFacts) -> DecentralizedADMM:
        """Return the method with its network built, and omitted step size and penalty chosen."""
        program = facts.program
        graph = self.network_of(program)
        step, output = self.step, self.returned
        if step is None:
            remedy = (
                "Write dp.DecentralizedADMM(step=1 / (4 * L)) with a smoothness bound L for all "
                "data. Losses such as cp.abs and cp.pos have no such bound: for these, use "
                "dp.DecentralizedGradient(), or dp.LinearizedADMM(), which has a server."
            )
            L = required_smoothness(program, remedy)
            facts.require_scale()
            largest = 1 / (4 * L) if L else facts.longest() or 1.0
            step, output = facts.constant_step(largest, output)
            check_argument("dp.DecentralizedADMM", "step", step, optional(DIVISOR))
        D = 1 / step
        penalty = self.penalty
        if penalty is None:
            penalty = D / (3 * graph.laplacian_norm)
        exact = minimization(program, D, "dp.DecentralizedADMM") if self.exact else False
        return replace(self, graph=graph, step=step, penalty=penalty, exact=exact, returned=output)

    def violated(self, program: Program) -> list[str]:
        """Return the conditions for a linear rate (see the module) that do not hold, as text.

        These conditions are sufficient without noise; runs converge under much weaker conditions.

        Parameters
        ----------
        program : Program
            Program of a plan whose algorithm has a number for every parameter.
        """
        assert self.step is not None and self.penalty is not None
        bounds, graph = curvatures(program), self.network_of(program)
        if isinstance(bounds, str):
            return [bounds]
        if self.growth > 1:
            return [f"growth = {self.growth:.6g} is above 1"]
        D, top, m = 1 / self.step, graph.laplacian_norm, min(bounds.moduli)
        L = 0.0 if self.exact else max(bounds.constants)
        least = D * (1 - self.randomness) / (2 * max(graph.degrees))
        most = D * (1 + self.randomness) / (2 * min(graph.degrees))
        r, w = (most + least) / 2, (most - least) / 2
        kappa = top * w**2 / (2 * m if self.exact else m)
        need = L + top / 2 * (r + max(self.penalty, kappa))
        problems = []
        if not kappa < r:
            problems.append(
                f"weights vary too much for objectives as flat as these (randomness = "
                f"{self.randomness:.6g}, {_span(graph.degrees)} neighbors)"
            )
        if not self.penalty <= r:
            problems.append(f"penalty = {self.penalty:.6g} is above {r:.6g}")
        if not D > need:
            problems.append(f"step = {self.step:.6g} is not below 1/D = {1 / need:.6g}")
        return problems

    def rate(self, program: Program) -> str:
        """Return a sentence on linear convergence, or on its conditions that do not hold."""
        broken = self.violated(program)
        if broken:
            return f"no linear rate is known: {'; '.join(broken)}"
        return "without noise, distances to the optimum fall at a linear rate"

    def act(
        self,
        local: Local,
        state: AgentState,
        t: int,
        k: int,
        message: Inbox | Inboxes,
        oracle: Oracle,
    ) -> tuple[AgentState, Array]:
        """Update the multipliers from the neighbors' last points, and release the next x."""
        assert self.step is not None and self.penalty is not None
        mine = shared(state.x, local.program)
        lam = state.lam
        if t > 1:
            lam = lam + self.penalty * message.summed(mine)
        weight: float | Array = 0.5
        if self.randomness > 0:
            weight = weight + self.randomness * (oracle.uniform(mine.shape[-1]) - 0.5)
        aggregate = weight * mine + (1 - weight) * (message.summed() / message.degree)
        D = 1 / self.step * self.growth ** (t - 1)
        center = spread(local, state.x, aggregate + lam / D)
        state = replace(state, lam=lam)
        query = Step(state.x, center, 1 / D)
        if isinstance(self.exact, Minimization):
            query = Minimizer(center, replace(self.exact, D=D))
        return self.projected_step(local, state, query, oracle)

    def __str__(self) -> str:
        how = ", exact steps" if self.exact else ""
        how += f", steps shorter by {self.growth:.4g} each round" if self.growth > 1 else ""
        return f"decentralized ADMM over {self.graph}{numbers(self, 'step', 'penalty')}{how}"


def _span(degrees: tuple[int, ...]) -> str:
    least, most = min(degrees), max(degrees)
    return f"{least}" if least == most else f"{least} to {most}"
