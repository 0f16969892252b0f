r"""DPP2 (Ou, Wang, Liu and Lu, Algorithm 1): nonconvex objectives over a network.

.. math::
    y_i &= x_i + (1 - \eta) d_i + w_i, & d_i &\leftarrow \eta d_i + y_i \\
    z_i &= \nabla f_i(x_i) + \eta q_i + \rho \textstyle\sum_j P_{ij} y_j + e_i,
        & q_i &\leftarrow \eta q_i + \rho \textstyle\sum_j P_{ij} y_j \\
    x_i &\leftarrow x_i + w_i - \alpha (z_i - e_i) + \beta \textstyle\sum_j P_{ij} z_j

Agents send y and z to their neighbors. An agent's x is unreleased and moves along an exact
gradient. The releases are x + w, and the gradient at x plus e. :math:`P = I - W` with mixing
weights W.

The paper calls y, which merges x and d, a first tier of privacy. It protects nothing:
:math:`\eta` is public, so x + w follows from the messages, and x does not depend on d and q. Only
the noise w and e protects.

In the printed method, only the curvature of the objectives damps disagreement. Let all objectives
have the curvature h. On each eigenvector of P, with eigenvalue :math:`\lambda`, a round is a matrix
of determinant :math:`1 - g h` with :math:`g = \alpha - \beta \lambda`. ``damping`` adds
:math:`\sigma \sum_j P_{ij} (x_j + w_j)` to z, which agents compute from y and q. The determinant is
then
:math:`1 - g (h + \sigma \lambda)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, number, optional
from ..errors import ModelError
from ..guard import frameless
from ..sensitivity.queries.gradients import Stored, StoredGradient
from ..sensitivity.stored_vectors import LinearCombination
from .base import Iterates, Local, Oracle, Output
from .facts import PublicFacts
from .on_networks import (
    Graph,
    Inbox,
    NetworkState,
    SecretPointMethod,
    mixed,
    numbers,
    require_open,
    shared,
)
from .steps import one_over

Array = NDArray[np.float64]
# Name of the agent's stored point.
_POINT = "x"


@dataclass(frozen=True, eq=False)
class Memory(Iterates):
    """State of an agent, all from released values; the oracle stores its exact point.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
        Noisy point x + w, and the mean of the noisy points over the rounds.
    y, d, q, z : ndarray, shape (n,)
        Vectors of the equations in the module.
    pull : ndarray, shape (n,)
        z minus the noisy gradient.
    """

    y: Array
    d: Array
    q: Array
    z: Array
    pull: Array


_DAMPING = number(lambda v: v >= 0, "of at least 0").because(
    "with a negative one disagreement grows"
)


@frameless
@dataclass(frozen=True)
class DPP2(SecretPointMethod[Memory]):
    """Primal-dual method over a network, for smooth objectives, convex or not.

    Agents never release their iterate x, but the noisy point x + w and the gradient at x with
    noise e. Each agent sends two messages per round, y and z; see Algorithm 1 of the paper, and
    docs/papers/ou_wang_liu_lu.md.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network; see `dp.networks.build`.
    step : float, optional
        The paper's alpha, the step size; three tenths of 1 / smoothness if omitted.
    neighbor_step : float, optional
        The paper's beta, the weight of the differences between neighbors' z, the message with the
        gradient. It must be below the step size divided by the largest eigenvalue of P = I - W,
        with the mixing matrix W. If omitted, half of this bound, or half of the step size if that
        is smaller.
    penalty : float, optional
        The paper's rho, the weight of the differences between neighbors' x + w, summed over rounds;
        a tenth of 1 / step if omitted.
    memory : float
        The paper's eta, between 0 and 1: the weight of earlier messages in y. It is public, and
        does not change the points.
    damping : float
        Weight sigma of the differences of x + w between neighbors; 0 for the printed method.
    ratio : float
        Scale of the noise w on points, divided by the scale of the noise e on gradients; 1 as in
        the paper. If it equals `step`, both releases have equal privacy loss. The error is then
        smaller for small budgets.
    smoothness : float, optional
        User-supplied smoothness of objectives without a derived one, for all admissible data. The
        guarantee then marks it as asserted.
    weights : str
        Rule for the mixing matrix W; see `dp.networks.build`.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate, of noisy points; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    graph: Graph = "complete"
    step: float | None = None
    neighbor_step: float | None = None
    penalty: float | None = None
    memory: float = 0.5
    damping: float = 0.0
    ratio: float = 1.0
    smoothness: float | None = None
    weights: str = "metropolis"
    returned: Output | None = None

    def __post_init__(self) -> None:
        self.check_fields(
            step=optional(POSITIVE),
            neighbor_step=optional(POSITIVE),
            penalty=optional(POSITIVE),
            ratio=POSITIVE,
            smoothness=optional(POSITIVE),
            memory=number(lambda v: 0 < v < 1, "between 0 and 1"),
            damping=_DAMPING,
        )

    def propose(self, facts: PublicFacts) -> DPP2:
        """Return the method with its network built, and omitted step sizes chosen.

        Refuse constraints and local variables.
        """
        program = facts.program
        graph = self.network_of(program, self.weights)
        require_open(program, "dp.DPP2")
        step, beta = self.step, self.neighbor_step
        if step is None:
            remedy = "Write dp.DPP2(step=...), or smoothness=... if you know it."
            step = 0.3 * one_over(program, self.smoothness, remedy)
        largest = 1 - graph.lowest_eigenvalue
        if beta is None:
            beta = step / (2 * max(1.0, largest))
        if not beta * largest < step:
            raise ModelError(
                f"dp.DPP2(neighbor_step={beta:g}) is too large: it must be below "
                f"{step / largest:.6g}, step over the largest eigenvalue of P = I - W. Write a "
                "smaller neighbor_step=. With a larger one, some steps increase the differences "
                "between agents."
            )
        penalty = 0.1 / step if self.penalty is None else self.penalty
        return replace(self, graph=graph, step=step, neighbor_step=beta, penalty=penalty)

    def points(self, server: NetworkState, sent: Array, t: int) -> Array:
        """Return all agents' noisy points x + w, computed from their messages y."""
        return sent if t == 1 else self.memory * server.points + sent - server.first

    def start_agent(self, local: Local) -> Memory:
        """Return the agent's state at the public initial point, with zero memory vectors."""
        x = local.program.start
        zeros = np.zeros_like(x)
        return Memory(x, zeros, y=zeros, d=zeros, q=zeros, z=zeros, pull=zeros)

    def act(
        self, local: Local, state: Memory, t: int, k: int, message: Inbox, oracle: Oracle
    ) -> tuple[Memory, Array]:
        """Send y, with the noisy point, in exchange 0; send z, with the noisy gradient, in 1."""
        assert self.step is not None and self.neighbor_step is not None and self.penalty is not None
        program = local.program
        if k == 0:
            point = LinearCombination(state.x)
            if t > 1:
                Pz = state.z - mixed(program, state.z, message)
                center = state.x - self.step * state.pull + self.neighbor_step * Pz
                point = LinearCombination(center, gradients={_POINT: -self.step})
            oracle.store(_POINT, point)
            state = state.after(oracle.release(Stored(_POINT)))
            y = state.x + (1 - self.memory) * state.d
            return replace(state, y=y, d=self.memory * state.d + y), shared(y, program)
        Py = state.y - mixed(program, state.y, message)
        q = self.memory * state.q + self.penalty * Py
        Px = Py - (1 - self.memory) * state.q / self.penalty
        pull = q + self.damping * Px
        z = oracle.release(StoredGradient(_POINT)) + pull
        return replace(state, q=q, z=z, pull=pull), shared(z, program)

    def __str__(self) -> str:
        how = f", damping = {self.damping:.3g}" if self.damping else ""
        steps = numbers(self, "step", "neighbor_step", "penalty", "memory")
        return f"DPP2 over {self.graph}{steps}{how}"
