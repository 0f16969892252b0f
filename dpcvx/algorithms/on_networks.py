"""Methods without a server: agents hear their neighbors in a network, and nobody else.

The server side only forwards messages. They are made here, from the last values of an agent's
neighbors and nothing else, and no method can change that.

Methods over networks whose agents keep their points, and let them leave with noise only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ..sensitivity.queries.gradients import Step
from ..sensitivity.queries.query import Query
from ..sensitivity.queries.solutions import Minimizer
from ..sensitivity.queries.stored import Stored, StoredGradient
from .agent_state import AgentState, projected_step
from .base import Algorithm, Batch, Iterates, Local, Oracle, Requirements, Residuals
from .networks import Network, Rank, build
from .program import LocalProgram, Program

if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]


A = TypeVar("A")
P = TypeVar("P", bound=Iterates)


@dataclass(frozen=True, eq=False)
class Inbox:
    """Message to an agent in a round: its neighbors' values.

    Attributes
    ----------
    own : int
        Position of the agent that it is for.
    senders : tuple of int
        Positions of its neighbors.
    values : ndarray, shape (neighbors, m)
        Their last values of the shared variables.
    weights : ndarray, shape (neighbors + 1,)
        The agent's row of the mixing matrix: its neighbors', and its own.
    """

    own: int
    senders: tuple[int, ...]
    values: Array
    weights: Array

    @property
    def degree(self) -> int:
        """Number of neighbors."""
        return len(self.senders)

    @property
    def own_weight(self) -> float:
        """The agent's weight of its own value."""
        return float(self.weights[-1])

    def weighted(self) -> Array:
        """Return the neighbors' values, added up with their weights, shape (m,)."""
        return _total(self.weights[:-1, np.newaxis] * self.values)

    def summed(self, value: Array | float = 0.0) -> Array:
        """Return the differences of the neighbors' values from another, added up, shape (m,)."""
        return _total(self.values - value)

    def extremes(self, value: Array) -> tuple[Array, Array]:
        """Return the least and largest of own and neighbors' entries, each of shape (m,)."""
        least = self.values.min(axis=0, initial=math.inf)
        most = self.values.max(axis=0, initial=-math.inf)
        return np.minimum(least, value), np.maximum(most, value)

    def mean_of_all(self, value: Array) -> Array:
        """Return the mean over everyone, who are all its neighbors, in the order of agents."""
        position = int(np.searchsorted(self.senders, self.own))
        return np.insert(self.values, position, value, axis=0).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Inboxes:
    """Messages to all agents in a round: the `Inbox` of agents that are updated as a batch.

    Sums are taken in the order of neighbors, as a single agent does.

    Attributes
    ----------
    network : Network
        Network of two agents or more.
    sent : ndarray, shape (N, m)
        Everyone's last values of the shared variables.
    """

    network: Network
    sent: Array

    def one(self, i: int) -> Inbox:
        """Return the message to an agent."""
        around = self.network.neighbors[i]
        return Inbox(i, around, self.sent[list(around)], self.network.rows[i])

    @property
    def degree(self) -> Array:
        """Number of neighbors of each, shape (agents, 1)."""
        return np.array(self.network.degrees, dtype=float)[:, np.newaxis]

    @property
    def own_weight(self) -> Array:
        """Every agent's weight of its own value, shape (agents, 1)."""
        return self.network.own_weights

    def weighted(self) -> Array:
        """Return the result of every agent as one agent computes it, shape (agents, m)."""
        return self._folded(np.add, lambda rank, heard: rank.weights * heard)

    def summed(self, value: Array | float = 0.0) -> Array:
        """Return every agent's sum, shape (agents, m), for own of shape (m,) or (agents, m)."""
        mine = np.broadcast_to(value, self.sent.shape)
        return self._folded(np.add, lambda rank, heard: heard - mine[rank.agents])

    def extremes(self, value: Array) -> tuple[Array, Array]:
        """Return every agent's extremes as one agent computes them, each of shape (agents, m)."""
        least, most = (
            self._folded(which, lambda rank, heard: heard) for which in (np.minimum, np.maximum)
        )
        return np.minimum(least, value), np.maximum(most, value)

    def mean_of_all(self, value: Array) -> Array:
        """Return the mean as one agent computes it, the same for all, shape (m,)."""
        return np.array(np.broadcast_to(value, self.sent.shape)).mean(axis=0)

    def _folded(self, join: np.ufunc, term: Callable[[Rank, Array], Array]) -> Array:
        """Return the sum of all neighbors' contributions, added one after the other."""
        first, *others = self.network.ranks
        out = term(first, self.sent[first.neighbors])
        for rank in others:
            part = term(rank, self.sent[rank.neighbors])
            if len(part) == len(out):
                join(out, part, out=out)
            else:
                out[rank.agents] = join(out[rank.agents], part)
        return out


@dataclass(frozen=True, eq=False)
class NetworkState:
    """The last value that every agent sent, and how far they are apart.

    Attributes
    ----------
    network : Network
    sent, first : ndarray, shape (N, m)
        Values of the last message round, and of the first one of the last round.
    points : ndarray, shape (N, m)
        Points that agents agree on in the end.
    primal, dual, mismatch : float
    """

    network: Network
    sent: Array
    first: Array
    points: Array
    primal: float = math.nan
    dual: float = math.nan
    mismatch: float = math.nan


class NetworkMethod(Algorithm[NetworkState, A], Generic[A]):
    """Abstract: a method whose messages go along the edges of a network.

    A frozen dataclass with the fields `graph` and `returned`. `act` sees an `Inbox`, or `Inboxes`
    where agents are in step.
    """

    graph: Graph

    def network_of(self, program: Program, weights: str | Array = "metropolis") -> Network:
        """Return the network over the agents of a problem.

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
        """Return the state with the public starting points as all agents' last values."""
        network = self.graph
        assert isinstance(network, Network)  # resolved
        sent = np.array([shared(local.start, local) for local in program.agents])
        # The first points that leave may be the starting points themselves.
        points = sent if self.exchanges == 1 else np.full_like(sent, np.nan)
        return NetworkState(network, sent, sent, points)

    @final
    def send(self, server: NetworkState, t: int, k: int) -> tuple[NetworkState, Sequence[Inbox]]:
        """Send to every agent the last values of its neighbors."""
        heard = Inboxes(server.network, server.sent)
        return server, Batch(heard, len(server.sent), heard.one)

    @final
    def receive(
        self, server: NetworkState, t: int, k: int, replies: Sequence[Array]
    ) -> NetworkState:
        """Keep what every agent sent."""
        sent = np.array(
            np.broadcast_to(replies.whole, server.sent.shape)
            if isinstance(replies, Batch)
            else replies
        )
        if k > 0:  # in addition to the points of the round
            return replace(server, sent=sent)
        X, before = self.points(server, sent, t), server.points
        gaps = X - X.mean(axis=0)
        return replace(
            server,
            sent=sent,
            first=sent,
            points=X,
            primal=float(np.linalg.norm(gaps)),
            dual=float(np.linalg.norm(X - before)),
            mismatch=float(np.abs(gaps).max(initial=0.0)),
        )

    def points(self, server: NetworkState, sent: Array, t: int) -> Array:
        """Return the agents' points, from what they sent first in round t, shape (agents, m)."""
        return sent

    def residuals(self, server: NetworkState) -> Residuals:
        """Return the distance from the mean over agents, and the change since the round before."""
        return Residuals(server.primal, server.dual, server.mismatch, 0.0)


class NeighborMethod(NetworkMethod[AgentState]):
    """Abstract: one that lets its new point leave."""

    def start_agent(self, local: Local) -> AgentState:
        """Return the state with x at the public start and zero multipliers."""
        x = local.program.start
        return AgentState(x, np.zeros_like(x), np.zeros(local.program.shared.size))

    def projected_step(
        self, local: Local, state: AgentState, query: Step | Minimizer, oracle: Oracle
    ) -> tuple[AgentState, Array]:
        """Return the agent after `agent_state.projected_step`, and its message to neighbors."""
        after = projected_step(local, state, query, oracle)
        return after, shared(after.x, local.program)


def numbers(method: object, *names: str) -> str:
    """Return a text on the method's numeric parameters."""
    given = ((name, getattr(method, name)) for name in names)
    return "".join(f", {name} = {value:.3g}" for name, value in given if value is not None)


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
    """Return x with other values of the shared variables, which come in the order of the slots.

    In a batch of agents that share everything, only the others, or only x, may have rows.
    """
    n = x.shape[-1]
    out = np.empty((*others.shape[:-1], n)) if local.program.shared.size == n else x.copy()
    out[..., local.program.shared] = others[..., local.program.slots]
    return out


def mixed(local: LocalProgram, v: Array, message: Inbox | Inboxes) -> Array:
    """Return ``sum_j W_ij v_j`` of the neighbors' values and the agent's own v.

    Entries that are not shared stay as they are.
    """
    heard, columns = message.weighted()[..., local.slots], local.shared
    out = np.array(np.broadcast_to(v, (*heard.shape[:-1], v.shape[-1])))
    out[..., columns] = heard + message.own_weight * v[..., columns]
    return out


def shared(x: Array, local: LocalProgram) -> Array:
    """Return the shared variables of an agent, in the order of the slots."""
    out = np.empty((*x.shape[:-1], local.slots.size))
    out[..., local.slots] = x[..., local.shared]
    return out


def _total(terms: Array) -> Array:
    """Return the sum of rows, one after the other; zeros of none."""
    if not len(terms):
        return np.zeros(terms.shape[1])
    return np.add.accumulate(terms, axis=0)[-1]


class SecretPointMethod(NetworkMethod[P], Generic[P]):
    """Abstract: a point leaves, then a vector made of gradients at secret points.

    A frozen dataclass with the fields below. The first point is the public start.
    """

    step: float | None  # how far a point moves per unit of the vector; None until a plan chooses it
    ratio: float  # scale of the points' noise over that of the vectors'
    smoothness: float | None  # the user's claim, for agents for which none is derived

    exchanges = 2
    queries: ClassVar[tuple[type[Query], ...]] = (Stored, StoredGradient)

    @property
    def requirements(self) -> Requirements:
        """Smooth objectives; two releases per agent and round."""
        return Requirements(
            convex=False,
            exact=False,
            releases=2,
            queries=self.queries,
            smoothness=self.smoothness,
            # One change moves a new point by the step size times as far as the vector before.
            weights=(self.ratio / (self.step or 1.0), 1.0),
            free=1,
        )


def require_open(program: Program, owner: str) -> None:
    """Refuse variables that one agent holds alone, and constraints.

    Raises
    ------
    ModelError
        Naming the agent.
    """
    for local in program.agents:
        if local.n > local.shared.size:
            raise ModelError(
                f"Agent '{local.name}' has variables of its own, and {owner} takes vectors that "
                "all agents share. Use dp.DecentralizedGradient, or share them."
            )
        if local.projector().kinds.keys() - {"free"}:
            raise ModelError(
                f"Agent '{local.name}' has constraints, and {owner} takes none: it projects "
                "no iterate. Use dp.DecentralizedGradient, or put a smooth penalty in "
                "their place."
            )


if TYPE_CHECKING:
    Graph: TypeAlias = "nx.Graph[Any] | Network | str"
else:  # networkx takes no types of nodes when a program runs
    Graph = "nx.Graph | Network | str"
