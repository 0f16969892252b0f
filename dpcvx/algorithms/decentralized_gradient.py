r"""Decentralized gradient descent (Xiao, Ye and Devadas, Algorithms 2 and 2*, Appendix J).

.. math::
    x_i \leftarrow P_i(a_i - \eta_t \nabla f_i(y_i) + \Delta_i)

with an aggregate :math:`a_i` and a point :math:`y_i`, computed from the points that agent i has and
receives:

===========  ==========================================================  =================
aggregate    a                                                           y
===========  ==========================================================  =================
``mixing``   the mean with the network's weights                         own point
``mean``     the mean of all points (Appendix J)                         the mean of all
``pair``     the mean of all points, but the two that are farthest       the mean of all
             apart in l1 have random weights with sum 2/N (7)
``range``    per entry, uniform between the smallest and the largest     own point
             value in the closed neighborhood (28)
===========  ==========================================================  =================

In random coordinate descent (72), only some entries move in a round. A single agent, as in the
paper, steps from its own point.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._arguments import choice, integer, optional, show
from ..errors import ModelError
from ..guard import frameless
from ..sensitivity.queries.gradients import Step
from .base import Local, Oracle, Output, Requirements
from .facts import PublicFacts, StepRule
from .networks import Network
from .on_networks import (
    AgentState,
    Graph,
    Inbox,
    Inboxes,
    NeighborMethod,
    require_whole,
    shared,
    spread,
)
from .program import Program
from .steps import as_step, step_said, too_long

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Aggregate = Literal["mixing", "mean", "pair", "range"]
AGGREGATES: tuple[Aggregate, ...] = ("mixing", "mean", "pair", "range")


@frameless
@dataclass(frozen=True)
class DecentralizedGradient(NeighborMethod):
    """Gradient descent over a network.

    Parameters
    ----------
    graph : networkx.Graph, Network or {"complete", "ring", "star", "path", "grid"}
        Communication network. ``mean`` and ``pair`` need a complete network. A problem of a single
        agent needs ``"complete"``.
    step : float or step rule
        The paper's step size eta_t; chosen from public facts if omitted, see
        `dpcvx.defaults.predicted`. The paper's experiments use `dp.steps.Geometric`.
    aggregate : {"mixing", "mean", "pair", "range"}
        Rule that combines the neighbors' points; see the module.
    weights : str
        Rule for the weights of ``mixing``; see `dp.networks.build`.
    coordinates : int, optional
        Number of entries that change in a round (equation 72 of the paper); all if omitted. The
        entries are public and drawn anew for every round. Only these entries of the new point are
        released.
    returned : {"average", "last", "tail", "weighted", None}
        Returned iterate; see `Algorithm`.

    Raises
    ------
    ModelError
        If a parameter is outside its range.
    """

    graph: Graph = "complete"
    step: float | StepRule | None = None
    aggregate: Aggregate = "mixing"
    weights: str = "metropolis"
    coordinates: int | None = None
    returned: Output | None = None

    def __post_init__(self) -> None:
        as_step(self.step)
        entries = integer(1).because("the number of entries that move in a round")
        self.check_fields(aggregate=choice(*AGGREGATES), coordinates=optional(entries))

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: one release per agent and round, any objective."""
        whole = self.coordinates is None
        return Requirements(convex=False, exact=False, releases=1, queries=(Step,), proximal=whole)

    @property
    def batched(self) -> bool:
        """Return whether identical agents are updated as a batch; False in subclasses.

        False with `coordinates`, and with the aggregate "pair".
        """
        plain = self.aggregate != "pair" and self.coordinates is None
        return plain and type(self) is DecentralizedGradient

    def propose(self, facts: PublicFacts) -> DecentralizedGradient:
        """Return the method with its network, and values for step and `returned`, if omitted."""
        program = facts.program
        alone = len(program.agents) == 1 and self.graph == "complete"
        graph = _alone(program) if alone else self.network_of(program, self.weights)
        if self.aggregate in ("mean", "pair") and not graph.complete:
            raise ModelError(
                f"dp.DecentralizedGradient(aggregate={show(self.aggregate)}) needs the points of "
                "all agents, but some agents of this network are not neighbors. Use "
                "graph='complete', or aggregate='mixing' or 'range'."
            )
        step, output = as_step(self.step), self.returned
        if step is None:
            # If only neighbors' points are mixed, constant steps do not converge to the optimum.
            exact = self.aggregate in ("mean", "pair")
            step, proposed = facts.step(exact=exact)
            output = output or proposed
        step = step.resolved(program, facts.conditions.release_epsilon)
        return replace(self, graph=graph, step=step, returned=output)

    def diverges(self, program: Program) -> str:
        """Return the reason why runs must diverge with these steps; "" if none is known."""
        at_mean = self.aggregate == "mean" and self.coordinates is None
        return too_long(program, as_step(self.step)) if at_mean else ""

    def act(
        self,
        local: Local,
        state: AgentState,
        t: int,
        k: int,
        message: Inbox | Inboxes,
        oracle: Oracle,
    ) -> tuple[AgentState, Array]:
        """Take a gradient step from the aggregate, and release the new point to the neighbors."""
        rule = as_step(self.step)
        assert rule is not None
        mine = shared(state.x, local.program)
        center, point = self._aggregated(message, mine, oracle), state.x
        if self.aggregate in ("mean", "pair"):
            point = spread(local, state.x, message.mean_of_all(mine))
        center = spread(local, state.x, center)
        only = None
        if self.coordinates is not None and self.coordinates < center.size:
            only = drawn(t, center.size, self.coordinates)
            others = np.delete(np.arange(center.size), only)
            center[others] = state.x[others]
        query = Step(point, center, rule.eta(t), only)
        return self.projected_step(local, state, query, oracle)

    def _aggregated(self, message: Inbox | Inboxes, value: Array, oracle: Oracle) -> Array:
        """Return the aggregate of the received points and the agent's own point `value`."""
        if self.aggregate == "mixing":
            return message.weighted() + message.own_weight * value
        if self.aggregate == "mean":
            return message.mean_of_all(value)
        w = oracle.uniform(value.shape[-1])
        if self.aggregate == "range":
            least, most = message.extremes(value)
            return w * least + (1 - w) * most
        assert isinstance(message, Inbox)  # `batched` is False for "pair"
        X = np.vstack([message.values, value])
        a, b = _farthest(X)
        return message.mean_of_all(value) + ((2 * w - 1) * X[a] + (1 - 2 * w) * X[b]) / len(X)

    def __str__(self) -> str:
        part = "" if self.coordinates is None else f", {self.coordinates} random entries a round"
        step = step_said(self.step)
        alone = isinstance(self.graph, Network) and len(self.graph.agents) == 1
        where = "by one agent" if alone else f"({self.aggregate}) over {self.graph}"
        return f"decentralized gradient descent {where}, {step}{part}"


def _alone(program: Program) -> Network:
    """Return the communication network of a problem with a single agent."""
    require_whole(program)
    return Network((program.agents[0].name,), ((),), (np.ones(1),), "alone")


def drawn(t: int, n: int, count: int) -> Index:
    """Return the positions of the entries that change in round t; they are public."""
    left, chosen = list(range(n)), []
    for i in range(count):
        digest = hashlib.blake2b(f"{t} {i}".encode(), digest_size=8).digest()
        chosen.append(left.pop(int.from_bytes(digest) % len(left)))
    return np.sort(np.array(chosen, dtype=np.intp))


def _farthest(X: Array) -> tuple[int, int]:
    """Return the positions of the first pair of rows (points) with the largest l1 distance."""
    distances = np.abs(X[:, None] - X[None]).sum(axis=2)
    a, b = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(a), int(b)
