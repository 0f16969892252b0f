"""Methods whose agents release their new points, and methods without a server.

Agents that release the new point itself, with noise, have one kind of state and of local update.

Without a server, agents receive messages from their neighbors in a network only: the server side
only forwards messages. A message contains only the last values of an agent's neighbors;
`NetworkMethod` builds it, and subclasses cannot override that. `SecretPointMethod` is the base of
methods whose agents keep exact points and release noisy ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from .._arguments import Kind
from ..errors import ModelError
from ..model.curvature import convex, smoothness, strong_convexity
from ..model.matrices import SLACK, round_down
from ..sensitivity.queries.gradients import Step, Stored, StoredGradient
from ..sensitivity.queries.query import Query
from ..sensitivity.queries.solutions import Minimizer
from ..solvers.steps import Minimization
from .base import Algorithm, Batch, Iterates, Local, Oracle, Requirements, Residuals
from .networks import Network, Rank, build
from .program import LocalProgram, Program

if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]


A = TypeVar("A")
P = TypeVar("P", bound=Iterates)


@dataclass(frozen=True, eq=False)
class AgentState(Iterates):
    """State of an agent with multipliers `lam`, shape (m,); they are 0 in methods without any."""

    lam: Array


State = TypeVar("State", bound=AgentState)


def projected_step(local: Local, state: State, query: Step | Minimizer, oracle: Oracle) -> State:
    """Return an agent's state after a noisy local step, projected onto its feasible set W.

    The projection also minimizes the objective's terms without a gradient, multiplied by the step
    size. If it fails, the state keeps the previous point.
    """
    noisy = oracle.release(query)
    weight = query.step if isinstance(query, Step) else 0.0
    projection = local.projector(noisy, np.ones(noisy.shape[-1]), weight)
    return state.after(projection.x, projection.outcome)


# Values of ``exact=``: True, False, or the `Minimization` that a plan puts in the place of True.
EXACT = Kind(
    lambda value: isinstance(value, bool | Minimization),
    "True for local minimizers, or False for linearized steps",
)


def minimization(program: Program, D: float, owner: str) -> Minimization:
    """Return the search that minimizes ``f(x) + D/2 ||x - v||^2`` for any agent's objective f.

    The minimum is over the agent's feasible set; `owner` is the method's name in errors.

    Raises
    ------
    ModelError
        If the search is not proved to contract for all admissible data.
    """
    constants: list[tuple[float, float]] = []
    for local in program.agents:
        L, name = smoothness(local.form), f"agent '{local.name}'"
        if L is None:
            raise ModelError(
                f"No smoothness constant can be derived for the objective of {name}: it is "
                "nonsmooth, or its curvature depends on private data. Leave out exact=, for "
                f"first-order steps. The local searches of {owner}(exact=True) need the constant."
            )
        if not convex(local.form):
            raise ModelError(
                f"The objective of {name} is not convex for all admissible data. Leave out "
                "exact=, or look for a quadratic with a negative denominator or eigenvalue. A "
                f"search by {owner}(exact=True) may end away from the minimizer."
            )
        if not local.projector().closed_form:
            raise ModelError(
                f"The constraint set of {name} has no closed-form projection. Leave out exact=, "
                "or use only bounds, a sum, a ball or equations as constraints. A search by "
                f"{owner}(exact=True) projects onto the set in every step."
            )
        constants.append((L * SLACK, max(0.0, round_down(min(L, strong_convexity(local.form)), L))))
    return Minimization.close(D, max(L for L, _ in constants), min(m for _, m in constants))


@dataclass(frozen=True, eq=False)
class Inbox:
    """Message to an agent: the last values of its neighbors.

    Attributes
    ----------
    own : int
        Position of the receiving agent.
    senders : tuple of int
        Positions of the agent's neighbors.
    values : ndarray, shape (neighbors, m)
        Neighbors' last values of the shared variables.
    weights : ndarray, shape (neighbors + 1,)
        The agent's weights in the mixing matrix: for its neighbors, and last for itself.
    """

    own: int
    senders: tuple[int, ...]
    values: Array
    weights: Array

    @property
    def degree(self) -> int:
        """Number of the receiving agent's neighbors."""
        return len(self.senders)

    @property
    def own_weight(self) -> float:
        """The agent's weight for its own value."""
        return float(self.weights[-1])

    def weighted(self) -> Array:
        """Return the weighted sum of the neighbors' values, shape (m,)."""
        return _total(self.weights[:-1, np.newaxis] * self.values)

    def summed(self, value: Array | float = 0.0) -> Array:
        """Return the sum of ``x_j - value`` over the neighbors j, shape (m,)."""
        return _total(self.values - value)

    def extremes(self, value: Array) -> tuple[Array, Array]:
        """Return entrywise the least and the largest of `value` and the neighbors' values."""
        least = self.values.min(axis=0, initial=math.inf)
        most = self.values.max(axis=0, initial=-math.inf)
        return np.minimum(least, value), np.maximum(most, value)

    def mean_of_all(self, value: Array) -> Array:
        """Return the mean of `value` and the neighbors' values, in a complete network.

        The sum is taken in the order of the agents.
        """
        position = int(np.searchsorted(self.senders, self.own))
        return np.insert(self.values, position, value, axis=0).mean(axis=0)


@dataclass(frozen=True, eq=False)
class Inboxes:
    """Messages to all agents in one object, in place of `Inbox` if agents are updated as a batch.

    Sums follow the order of the neighbors. So each row equals, bit by bit, the result for one
    agent.

    Attributes
    ----------
    network : Network
        Network of two agents or more.
    sent : ndarray, shape (N, m)
        All agents' last values of the shared variables.
    """

    network: Network
    sent: Array

    def one(self, i: int) -> Inbox:
        """Return the message to the agent at position i, as an `Inbox`."""
        around = self.network.neighbors[i]
        return Inbox(i, around, self.sent[list(around)], self.network.rows[i])

    @property
    def degree(self) -> Array:
        """Number of neighbors of each agent, shape (N, 1)."""
        return np.array(self.network.degrees, dtype=float)[:, np.newaxis]

    @property
    def own_weight(self) -> Array:
        """Each agent's weight for its own value, shape (N, 1)."""
        return self.network.own_weights

    def weighted(self) -> Array:
        """Return each agent's weighted sum of its neighbors' values, shape (N, m)."""
        return self._folded(np.add, lambda rank, heard: rank.weights * heard)

    def summed(self, value: Array | float = 0.0) -> Array:
        """Return each agent's sum of ``x_j - value`` over its neighbors j, shape (N, m).

        `value` has the shape (m,) or (N, m).
        """
        mine = np.broadcast_to(value, self.sent.shape)
        return self._folded(np.add, lambda rank, heard: heard - mine[rank.agents])

    def extremes(self, value: Array) -> tuple[Array, Array]:
        """Return entrywise the least and the largest value of each agent and its neighbors."""
        least, most = (
            self._folded(which, lambda rank, heard: heard) for which in (np.minimum, np.maximum)
        )
        return np.minimum(least, value), np.maximum(most, value)

    def mean_of_all(self, value: Array) -> Array:
        """Return the mean over all agents, in a complete network, shape (m,)."""
        return np.array(np.broadcast_to(value, self.sent.shape)).mean(axis=0)

    def _folded(self, join: np.ufunc, term: Callable[[Rank, Array], Array]) -> Array:
        """Return, for each agent, the terms of its neighbors, combined by `join` in their order."""
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
    """State of the server side: the last messages, and the residuals.

    Attributes
    ----------
    network : Network
    sent, first : ndarray, shape (N, m)
        Values that agents sent in the last exchange, and in exchange 0 of the last round.
    points : ndarray, shape (N, m)
        Agents' noisy points, whose distances from their mean are the consensus residual.
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
    """Abstract base class of methods that send messages only along the edges of a network.

    Subclasses are frozen dataclasses with the fields `graph` and `returned`. `act` gets an `Inbox`,
    or `Inboxes` for a batch of agents.
    """

    graph: Graph

    def network_of(self, program: Program, weights: str | Array = "metropolis") -> Network:
        """Return the network that the method's parameter ``graph=`` describes, for a problem.

        Parameters
        ----------
        program : Program
            Compiled problem.
        weights : str or ndarray, shape (N, N)
            Weights of the averages over neighbors; see `dp.networks.build`. They are ignored if
            ``graph=`` is a `Network`, which has its own.

        Raises
        ------
        ModelError
            If the graph does not fit the agents, or an agent does not have all shared variables.
        """
        require_whole(program)
        names = [local.name for local in program.agents]
        if isinstance(self.graph, Network):
            if self.graph.agents != tuple(names):
                raise ModelError(
                    f"graph= is a network of the agents {', '.join(self.graph.agents)}, but the "
                    f"problem's agents are {', '.join(names)}, in this order. Write "
                    "dp.networks.build('ring', [agent.name for agent in problem.agents]), for "
                    "example."
                )
            return self.graph
        return build(self.graph, names, weights)

    def start_server(self, program: Program) -> NetworkState:
        """Return the state with the public initial points as all agents' last values."""
        network = self.graph
        assert isinstance(network, Network)  # `propose` has set it
        sent = np.array([shared(local.start, local) for local in program.agents])
        # With two exchanges, the first points that are released are the initial points themselves.
        points = sent if self.exchanges == 1 else np.full_like(sent, np.nan)
        return NetworkState(network, sent, sent, points)

    @final
    def send(self, server: NetworkState, t: int, k: int) -> tuple[NetworkState, Sequence[Inbox]]:
        """Send each agent the last values of its neighbors."""
        heard = Inboxes(server.network, server.sent)
        return server, Batch(heard, len(server.sent), heard.one)

    @final
    def receive(
        self, server: NetworkState, t: int, k: int, replies: Sequence[Array]
    ) -> NetworkState:
        """Store the agents' values; after exchange 0, compute the residuals."""
        sent = np.array(
            np.broadcast_to(replies.whole, server.sent.shape)
            if isinstance(replies, Batch)
            else replies
        )
        if k > 0:  # only values of exchange 0 are points
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
        """Return the N agents' noisy points, from the values sent in exchange 0 of round t."""
        return sent

    def residuals(self, server: NetworkState) -> Residuals:
        """Return the noisy points' distance from their mean, and their last change."""
        return Residuals(server.primal, server.dual, server.mismatch, 0.0)


class NeighborMethod(NetworkMethod[AgentState]):
    """Abstract base class of network methods whose agents release their new point."""

    def start_agent(self, local: Local) -> AgentState:
        """Return the agent's state with x at the public initial point and zero multipliers."""
        x = local.program.start
        return AgentState(x, np.zeros_like(x), np.zeros(local.program.shared.size))

    def projected_step(
        self, local: Local, state: AgentState, query: Step | Minimizer, oracle: Oracle
    ) -> tuple[AgentState, Array]:
        """Return the agent's state after a projected step, and the new point as its reply."""
        after = projected_step(local, state, query, oracle)
        return after, shared(after.x, local.program)


def numbers(method: object, *names: str) -> str:
    """Return the named parameters of a method as text, without parameters that are None."""
    given = ((name, getattr(method, name)) for name in names)
    return "".join(f", {name} = {value:.3g}" for name, value in given if value is not None)


def require_whole(program: Program) -> None:
    """Refuse agents that do not have all shared variables."""
    for local in program.agents:
        if local.slots.size != program.size:
            raise ModelError(
                f"Agent '{local.name}' holds {local.slots.size} of the {program.size} shared "
                "entries. Write 0 @ x for a shared variable that does not occur, or use "
                "dp.LinearizedADMM. Methods that mix whole vectors need every shared variable in "
                "every agent."
            )


def spread(local: Local, x: Array, others: Array) -> Array:
    """Return the agent's vector x with its shared variables replaced by the values in `others`.

    `others` is a vector of all shared variables. For a batch of agents without local variables, `x`
    or `others` may have a row per agent.
    """
    n = x.shape[-1]
    out = np.empty((*others.shape[:-1], n)) if local.program.shared.size == n else x.copy()
    out[..., local.program.shared] = others[..., local.program.slots]
    return out


def mixed(local: LocalProgram, v: Array, message: Inbox | Inboxes) -> Array:
    """Return the weighted sum of the agent's own v and its neighbors' values.

    The weights are the agent's row of the mixing matrix. Local variables are not changed.
    """
    heard, columns = message.weighted()[..., local.slots], local.shared
    out = np.array(np.broadcast_to(v, (*heard.shape[:-1], v.shape[-1])))
    out[..., columns] = heard + message.own_weight * v[..., columns]
    return out


def shared(x: Array, local: LocalProgram) -> Array:
    """Return the shared variables in an agent's x, in the order of the shared vector."""
    out = np.empty((*x.shape[:-1], local.slots.size))
    out[..., local.slots] = x[..., local.shared]
    return out


def _total(terms: Array) -> Array:
    """Return the sum of the rows, added one after another; zeros if there are no rows."""
    if not len(terms):
        return np.zeros(terms.shape[1])
    return np.add.accumulate(terms, axis=0)[-1]


class SecretPointMethod(NetworkMethod[P], Generic[P]):
    """Abstract base class of network methods with unreleased iterates.

    In each round, an agent releases its noisy point, then a combination of gradients at unreleased
    points. The first point is the public initial point. Subclasses are frozen dataclasses with the
    fields below.
    """

    step: float | None  # move of a point per unit of the vector; None until a plan chooses it
    ratio: float  # scale of the noise on points divided by the scale of the noise on vectors
    smoothness: float | None  # asserted by the user, for agents without a derived constant

    exchanges = 2
    queries: ClassVar[tuple[type[Query], ...]] = (Stored, StoredGradient)

    @property
    def requirements(self) -> Requirements:
        """Return the method's requirements: smooth objectives, two releases per agent and round."""
        return Requirements(
            convex=False,
            exact=False,
            releases=2,
            queries=self.queries,
            smoothness=self.smoothness,
            # One change moves a point by the step size times its effect on the previous vector.
            weights=(self.ratio / (self.step or 1.0), 1.0),
            free=1,
        )


def require_open(program: Program, owner: str) -> None:
    """Refuse agents with local variables or constraints.

    Raises
    ------
    ModelError
        If an agent has one of them; the error names the agent.
    """
    for local in program.agents:
        if local.n > local.shared.size:
            raise ModelError(
                f"Agent '{local.name}' has variables of its own. Use dp.DecentralizedGradient, or "
                f"use these variables in all agents. {owner} takes vectors that all agents share."
            )
        if local.projector().kinds.keys() - {"free"}:
            raise ModelError(
                f"Agent '{local.name}' has constraints. Use dp.DecentralizedGradient, or put a "
                f"smooth penalty in their place. {owner} projects no iterate onto constraints."
            )


if TYPE_CHECKING:
    Graph: TypeAlias = "nx.Graph[Any] | Network | str"
else:  # at run time, nx.Graph takes no type argument
    Graph = "nx.Graph | Network | str"
