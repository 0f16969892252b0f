"""Methods without a server: agents hear their neighbours in a network, and nobody else.

The server side only forwards messages. They are made here, from the last values of an agent's
neighbours and nothing else, and no method can change that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..sensitivity.queries.gradients import Step
from ..sensitivity.queries.solutions import Minimiser
from .agent_state import AgentState, projected_step
from .base import Algorithm, Local, Oracle, Residuals
from .networks import Network, build
from .program import LocalProgram, Program

if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]
Graph: TypeAlias = "nx.Graph | Network | str"
A = TypeVar("A")


@dataclass(frozen=True, eq=False)
class Inbox:
    """What an agent hears in a round.

    Attributes
    ----------
    own : int
        Position of the agent that it is for.
    senders : tuple of int
        Positions of its neighbours.
    values : ndarray, shape (neighbours, m)
        Their last values of the shared variables.
    weights : ndarray, shape (neighbours + 1,)
        The agent's row of the mixing matrix: its neighbours', and its own.
    """

    own: int
    senders: tuple[int, ...]
    values: Array
    weights: Array


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The last value that every agent sent, and how far they are apart.

    Attributes
    ----------
    network : Network
    sent, first : tuple of ndarray, each of shape (m,)
        In the last exchange, and in the first one of the last round.
    points : ndarray, shape (agents, m)
        What agents agree on in the end.
    primal, dual, mismatch : float
    """

    network: Network
    sent: tuple[Array, ...]
    first: tuple[Array, ...]
    points: Array
    primal: float = math.nan
    dual: float = math.nan
    mismatch: float = math.nan


class NetworkMethod(Algorithm[NetworkState, A], Generic[A]):
    """Abstract: a method whose messages go along the edges of a network.

    A frozen dataclass with the fields `graph` and `output`. `act` sees an `Inbox`.
    """

    graph: Graph

    def network_of(self, program: Program, weights: str | Array = "metropolis") -> Network:
        """The network over the agents of a problem.

        Raises
        ------
        ModelError
            If the graph does not fit, or agents do not share all the same variables.
        """
        require_whole(program)
        names = [local.name for local in program.agents]
        if isinstance(self.graph, Network):
            if self.graph.agents != tuple(names):
                raise ModelError(
                    f"graph= is a network of the agents {', '.join(self.graph.agents)}; the "
                    f"problem's are {', '.join(names)}, in this order."
                )
            return self.graph
        return build(self.graph, names, weights)

    def start_server(self, program: Program) -> NetworkState:
        """Everyone has heard the public starting points."""
        found = self.graph
        assert isinstance(found, Network)  # resolved
        sent = tuple(shared(local.start, local) for local in program.agents)
        points = np.array(sent)
        if self.exchanges > 1:  # the first points that leave are the starting points themselves
            points = np.full_like(points, np.nan)
        return NetworkState(found, sent, sent, points)

    @final
    def send(self, server: NetworkState, t: int, k: int) -> tuple[NetworkState, list[Inbox]]:
        """To every agent the last values of its neighbours."""
        X, net = np.array(server.sent), server.network
        return server, [
            Inbox(i, around, X[list(around)], net.rows[i])
            for i, around in enumerate(net.neighbours)
        ]

    @final
    def receive(
        self, server: NetworkState, t: int, k: int, replies: Sequence[Array]
    ) -> NetworkState:
        """Keep what every agent sent."""
        if k > 0:  # in addition to the points of the round
            return replace(server, sent=tuple(replies))
        X, before = self.points(server, np.array(replies), t), server.points
        gaps = X - X.mean(axis=0)
        return replace(
            server,
            sent=tuple(replies),
            first=tuple(replies),
            points=X,
            primal=float(np.linalg.norm(gaps)),
            dual=float(np.linalg.norm(X - before)),
            mismatch=float(np.abs(gaps).max(initial=0.0)),
        )

    def points(self, server: NetworkState, sent: Array, t: int) -> Array:
        """The agents' points, from what they sent first in round t, shape (agents, m)."""
        return sent

    def residuals(self, server: NetworkState) -> Residuals:
        """Distance from the mean over all agents, and the change since the round before."""
        return Residuals(server.primal, server.dual, server.mismatch, 0.0)


class NeighbourMethod(NetworkMethod[AgentState]):
    """Abstract: one that lets its new point leave."""

    def start_agent(self, local: Local) -> AgentState:
        """x at the public start, zero multipliers."""
        x = local.program.start
        return AgentState(x, np.zeros_like(x), np.zeros(local.program.shared.size))

    def projected_step(
        self,
        local: Local,
        state: AgentState,
        query: Step | Minimiser,
        oracle: Oracle,
    ) -> tuple[AgentState, Array]:
        """The agent after `agent_state.projected_step`, and what the neighbours hear of it."""
        after = projected_step(local, state, query, oracle)
        return after, shared(after.x, local.program)


def numbers(method: object, *names: str) -> str:
    """Those of a method's parameters that are numbers by now, in words."""
    given = ((name, getattr(method, name)) for name in names)
    return "".join(f", {name} = {value:.6g}" for name, value in given if value is not None)


def require_whole(program: Program) -> None:
    """Refuse agents that hold a part of the shared variables only."""
    for local in program.agents:
        if local.slots.size != program.size:
            raise ModelError(
                f"Agent '{local.name}' holds {local.slots.size} of the {program.size} shared "
                "entries. Methods that mix whole vectors of agents need every shared variable in "
                "every agent: write 0 @ x for what does not occur, or use dp.LinearizedADMM."
            )


def spread(local: Local, x: Array, others: Array) -> Array:
    """x with other values of the shared variables, which come in the order of the slots.

    Of many agents that share everything, who have a row of x each, one vector for all.
    """
    n = x.shape[-1]
    out = np.empty(n) if local.program.shared.size == n else x.copy()
    out[local.program.shared] = others[local.program.slots]
    return out


def mixed(local: LocalProgram, v: Array, message: Inbox) -> Array:
    """``sum_j W_ij v_j`` for what neighbours sent and the agent's own v.

    Entries that are not shared stay as they are.
    """
    out, at = v.copy(), local.shared
    out[at] = (message.weights[:-1] @ message.values)[local.slots] + message.weights[-1] * v[at]
    return out


def shared(x: Array, local: LocalProgram) -> Array:
    """The shared variables of an agent, in the order of the slots."""
    out = np.empty((*x.shape[:-1], local.slots.size))
    out[..., local.slots] = x[..., local.shared]
    return out
