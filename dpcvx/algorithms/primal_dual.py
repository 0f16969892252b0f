r"""A primal-dual method over a network for objectives that need not be convex.

.. math::
    x_i \leftarrow x_i - \eta \bigl( \nabla f_i(x_i) + \gamma \textstyle\sum_j P_{ij} x_j
        + \omega v_i \bigr) + \Delta_i, \qquad
    v_i \leftarrow v_i + \eta \omega \textstyle\sum_j P_{ij} x_j

with :math:`P = I - W` and the points of the previous round on both right sides: PPDC of Xie, Yi,
Wang, Cao and Ren ("Differentially private and communication-efficient distributed nonconvex
optimization algorithms", Automatica 177, 112338, 2025), without its compression. The paper adds
noise to the messages and not to the agent's own point, so the effect of one change on that point
grows like :math:`(1 + \eta M)^k`. Here the noise is part of the point, and one change moves it by
the step size times the sensitivity of the gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, optional
from ..guard import frameless
from ..sensitivity.queries.gradients import Step
from .base import Local, Oracle, Output, Requirements
from .facts import PublicFacts
from .on_networks import AgentState, Graph, Inbox, Inboxes, NeighborMethod, mixed, numbers

Array = NDArray[np.float64]


@frameless
@dataclass(frozen=True)
class PrimalDual(NeighborMethod):
    """Primal-dual gradient method over a network.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network; see `dp.networks.build`.
    step : float, optional
        The paper's eta, the step size; if omitted, chosen from public facts, at most
        0.3 / smoothness, see `dpcvx.defaults.predicted`.
    penalty, dual_step : float, optional
        The paper's gamma and omega: weights of the differences between neighbors, and of the sum
        of these differences over the rounds; 0.5 and 0.3 divided by the step size if omitted.
    weights : str
        Rule for the mixing matrix W; see `dp.networks.build`.
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
    dual_step: float | None = None
    weights: str = "metropolis"
    returned: Output | None = None

    def __post_init__(self) -> None:
        self.check_fields(
            step=optional(POSITIVE), penalty=optional(POSITIVE), dual_step=optional(POSITIVE)
        )

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: one release per agent and round, any objective."""
        return Requirements(convex=False, exact=False, releases=1, queries=(Step,), proximal=True)

    @property
    def batched(self) -> bool:
        """Return whether agents are batched: not in subclasses, which may change `act`."""
        return type(self) is PrimalDual

    def propose(self, facts: PublicFacts) -> PrimalDual:
        """Return the method with its network built, and omitted steps and penalties chosen."""
        graph, step, output = self.network_of(facts.program, self.weights), self.step, self.returned
        if step is None:
            facts.require_scale()
            largest = 0.3 * (facts.longest() or min(1.0, facts.limit))
            step, output = facts.constant_step(largest, output)
        gamma = 0.5 / step if self.penalty is None else self.penalty
        omega = 0.3 / step if self.dual_step is None else self.dual_step
        return replace(
            self, graph=graph, step=step, penalty=gamma, dual_step=omega, returned=output
        )

    def act(
        self,
        local: Local,
        state: AgentState,
        t: int,
        k: int,
        message: Inbox | Inboxes,
        oracle: Oracle,
    ) -> tuple[AgentState, Array]:
        """Make a primal and a dual step; the state's `lam` holds v, the sum of differences."""
        assert self.step is not None and self.penalty is not None and self.dual_step is not None
        columns = local.program.shared
        Px = (state.x - mixed(local.program, state.x, message))[..., columns]
        center = np.array(np.broadcast_to(state.x, (*Px.shape[:-1], state.x.shape[-1])))
        center[..., columns] -= self.step * (self.penalty * Px + self.dual_step * state.lam)
        state = replace(state, lam=state.lam + self.step * self.dual_step * Px)
        return self.projected_step(local, state, Step(state.x, center, self.step), oracle)

    def __str__(self) -> str:
        return f"primal-dual gradient method over {self.graph}" + numbers(
            self, "step", "penalty", "dual_step"
        )
