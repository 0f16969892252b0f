r"""Gradient tracking over a network, with noise on points and directions.

.. math::
    x_i \leftarrow \textstyle\sum_j W_{ij} \tilde x_j - \alpha s_i, \qquad
    s_i \leftarrow \textstyle\sum_j W_{ij} \tilde s_j + \nabla f_i(x_i) - \nabla f_i(x_i^{old})

with :math:`s_i = \nabla f_i(x_i)` in round 1. The releases are :math:`\tilde x = x` + noise and
:math:`\tilde s = s` + noise. The method is that of Ding, Zhu, He, Chen and Guan, "Differentially
private distributed optimization via state and direction perturbation in multiagent systems"
(DiaDSP), for objectives that need not be convex. A direction contains two gradients, so one change
may move it twice as far as a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, optional
from ..guard import frameless
from ..sensitivity.queries.gradients import Stored
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .base import Iterates, Local, Oracle, Output
from .facts import PublicFacts
from .on_networks import Graph, Inbox, SecretPointMethod, mixed, numbers, require_open, shared
from .steps import one_over

Array = NDArray[np.float64]
# Names of the agent's stored vectors: its point, its previous point, and its direction.
_POINT, _OLD, _DIRECTION = "x", "old", "s"


@dataclass(frozen=True, eq=False)
class Tracker(Iterates):
    """State of an agent, all from released values; the oracle stores its exact vectors.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
        Noisy point, and the mean of the noisy points over the rounds.
    s : ndarray, shape (n,)
        Noisy direction.
    mean : ndarray, shape (n,)
        Mean of the noisy points of the agent and its neighbors, with the network's weights.
    """

    s: Array
    mean: Array


@frameless
@dataclass(frozen=True)
class GradientTracking(SecretPointMethod[Tracker]):
    """Gradient tracking over a network, for smooth objectives, convex or not.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network; see `dp.networks.build`.
    step : float, optional
        The paper's alpha, the step size; a tenth of 1 / smoothness if omitted.
    ratio : float
        Scale of the noise on points, divided by the scale of the noise on directions (tracked
        gradients).
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
    ratio: float = 1.0
    smoothness: float | None = None
    weights: str = "metropolis"
    returned: Output | None = None

    queries: ClassVar[tuple[type[Query], ...]] = (Stored,)

    def __post_init__(self) -> None:
        self.check_fields(step=optional(POSITIVE), ratio=POSITIVE, smoothness=optional(POSITIVE))

    def propose(self, facts: PublicFacts) -> GradientTracking:
        """Return the method with its network built, and an omitted step size chosen.

        Refuse constraints and local variables.
        """
        program = facts.program
        graph = self.network_of(program, self.weights)
        require_open(program, "dp.GradientTracking")
        step = self.step
        if step is None:
            remedy = "Write dp.GradientTracking(step=...), or smoothness=... if you know it."
            step = 0.1 * one_over(program, self.smoothness, remedy)
        return replace(self, graph=graph, step=step)

    def start_agent(self, local: Local) -> Tracker:
        """Return the agent's state at the public initial point."""
        x = local.program.start
        zeros = np.zeros_like(x)
        return Tracker(x, zeros, zeros, x)

    def act(
        self, local: Local, state: Tracker, t: int, k: int, message: Inbox, oracle: Oracle
    ) -> tuple[Tracker, Array]:
        """Release the noisy new point in exchange 0, and the noisy new direction in exchange 1."""
        assert self.step is not None
        program = local.program
        if k == 1:
            s = oracle.release(Stored(_DIRECTION))
            return replace(state, s=s, mean=mixed(program, state.x, message)), shared(s, program)
        if t == 1:
            oracle.store(_POINT, LinearCombination(state.x))
            oracle.store(_DIRECTION, LinearCombination(state.s, gradients={_POINT: 1.0}))
        else:
            oracle.store(_OLD, LinearCombination(np.zeros_like(state.x), {_POINT: 1.0}))
            oracle.store(_POINT, LinearCombination(state.mean, {_DIRECTION: -self.step}))
            heard = mixed(program, state.s, message)
            oracle.store(_DIRECTION, LinearCombination(heard, gradients={_POINT: 1.0, _OLD: -1.0}))
        state = state.after(oracle.release(Stored(_POINT)))
        return state, shared(state.x, program)

    def __str__(self) -> str:
        return f"gradient tracking over {self.graph}{numbers(self, 'step')}"
