r"""DPP2 (Ou, Wang, Liu and Lu, Algorithm 1): nonconvex objectives over a network.

.. math::
    y_i &= x_i + (1 - \eta) d_i + w_i, & d_i &\leftarrow \eta d_i + y_i \\
    z_i &= \nabla f_i(x_i) + \eta q_i + \rho \textstyle\sum_j P_{ij} y_j + e_i,
        & q_i &\leftarrow \eta q_i + \rho \textstyle\sum_j P_{ij} y_j \\
    x_i &\leftarrow x_i + w_i - \alpha (z_i - e_i) + \beta \textstyle\sum_j P_{ij} z_j

Neighbors hear y and z. The x of an agent is secret: it moves along an exact gradient, and what
leaves is x + w and the gradient at x, plus e. :math:`P = I - W` with mixing weights W.

The paper calls y, which merges x and d, a first tier of privacy. It is none: :math:`\eta` is
public, so that x + w follows from what neighbors hear, and d and q drop out of the way that x
takes. Only w and e protect.

As printed, only the curvature of the objectives damps disagreement: if all agents have curvature h,
a round is a matrix of determinant :math:`1 - g h` on each of its modes, with eigenvalues
:math:`\lambda` of P and :math:`g = \alpha - \beta \lambda`. ``damping`` adds
:math:`\sigma \sum_j P_{ij} (x_j + w_j)` to z, which agents can compute from y and q, and makes it
:math:`1 - g (h + \sigma \lambda)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, number, optional
from ..errors import ModelError
from ..guard import frameless
from ..sensitivity.queries.stored import Stored, StoredGradient
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
# Under which an agent keeps its point.
_POINT = "x"


@dataclass(frozen=True, eq=False)
class Memory(Iterates):
    """State of an agent besides its unreleased point; all of it follows from messages.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
        The point with its noise, x + w, and the mean of these over the rounds.
    y, d, q, z : ndarray, shape (n,)
    pull : ndarray, shape (n,)
        z less the gradient and its noise.
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
    """Primal-dual method with secret points, for smooth objectives, convex or not.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network; see `dp.networks.build`.
    step : float, optional
        The paper's alpha, the step size; three tenths of 1 / smoothness if omitted.
    neighbor_step : float, optional
        The paper's beta, the weight of the differences of z; below the step size over the largest
        eigenvalue of P. Half of the step size if omitted, or of that.
    penalty : float, optional
        The paper's rho, the weight of the sum of the differences of x; a tenth of 1 / step if
        omitted.
    memory : float
        The paper's eta, between 0 and 1; public, and without influence on the points.
    damping : float
        Weight of the differences of x; 0 for the printed method.
    ratio : float
        Scale of w over that of e; 1 as in the paper. step charges both releases alike, and leaves
        less of the gap under small totals.
    smoothness : float, optional
        User-supplied smoothness of objectives without a derived one, for all admissible data. The
        guarantee then marks it as asserted.
    weights : str
        W; see `dp.networks.build`.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`. Both are of points with their
        noise.

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
        """Fill in the network, and check the steps and the form of the problem."""
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
                f"dp.DPP2(neighbor_step={beta:g}) must be below step over the largest eigenvalue "
                f"of P = I - W, {step / largest:.6g}, or the steps of some differences between "
                "agents point the wrong way."
            )
        penalty = 0.1 / step if self.penalty is None else self.penalty
        return replace(self, graph=graph, step=step, neighbor_step=beta, penalty=penalty)

    def points(self, server: NetworkState, sent: Array, t: int) -> Array:
        """Return x + w, which follows from y for anyone who knows eta and the y before."""
        return sent if t == 1 else self.memory * server.points + sent - server.first

    def start_agent(self, local: Local) -> Memory:
        """Return the state at the public start, with d = q = 0."""
        x = local.program.start
        zeros = np.zeros_like(x)
        return Memory(x, zeros, y=zeros, d=zeros, q=zeros, z=zeros, pull=zeros)

    def act(
        self, local: Local, state: Memory, t: int, k: int, message: Inbox, oracle: Oracle
    ) -> tuple[Memory, Array]:
        """Return y of the new point in the first exchange, and z of its gradient in the second."""
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
