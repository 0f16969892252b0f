"""Methods whose agents need only the sum of all summands that they send.

The sum is formed by the server side, or, with `SecretSharing`, by the agents: each sends one random
share to every other agent, keeps one, and then sends the sum of the shares it has. The server side
forwards them all. Here they lie in its hands as they are, and whoever reads all of them can take
the sum apart. Between owners (`dpcvx.owners.masks`) no share is sent: both ends compute it.

Terms of sums over all agents that are formed in secret, and the noise in them.

An agent shares its term in one exchange and adds up shares in the next; the server forwards them.
See `dpcvx.privacy.split_noise` for the noise.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, Kind, check_fields, optional, positive_finite
from ..errors import DataError, ModelError
from ..privacy.secret_sharing import Encoding, Partial, Residues, SecretSum, Share
from ..privacy.split_noise import require_three
from ..sensitivity.queries.gradients import Summand
from .agent_state import AgentState
from .base import Algorithm, Local, Oracle, Residuals, SecretSums
from .facts import PublicFacts
from .joint import AtPoint, size_of
from .program import LocalProgram, Program

Index = NDArray[np.intp]
Array = NDArray[np.float64]
_RESOLUTION = 2.0**-20


@dataclass(frozen=True)
class SecretSharing:
    """Sums of agents' values without their terms (Xiao, Ye and Devadas, Algorithm 3).

    Protects messages from up to N - 2 agents together, and from a server that cannot read the
    shares it forwards. Between owners (`dp.RemoteOwners`, `dp.LoopbackOwners`) the coordinator
    cannot: owners mask what they send by keys of their own. In one process the server side holds
    all shares, and can take every sum apart. Secret sharing does not protect what follows from the
    sums, which all agents learn in every round: that is what noise is for.

    Parameters
    ----------
    limit : float
        Largest magnitude of an entry of an agent's message. Larger values end the run. With
        distributed noise nobody checks single values, which would reveal private data. Then sums
        that are too large end the run, and far larger values may wrap around to a wrong sum without
        notice.
    resolution : float, optional
        Power of two; each entry is rounded to a multiple of it. If omitted, 2**-20, or a value far
        below distributed noise.
    """

    limit: float
    resolution: float | None = None

    def encoding(self, parties: int) -> Encoding | Residues:
        """Return the encoding of values that agents share as they are.

        Raises
        ------
        ModelError
            If sums of so many agents' could wrap around.
        """
        exact = _RESOLUTION if self.resolution is None else self.resolution
        return Encoding(self.limit, exact, parties)


@dataclass(frozen=True)
class SplitSharing(SecretSharing):
    """Secret sharing with distributed noise: with range and grid of the noisy sums."""

    def encoding(self, parties: int) -> Residues:
        """Return residues modulo a power of two."""
        assert self.resolution is not None
        return Residues(self.limit, self.resolution, parties)


@dataclass(frozen=True, eq=False)
class Heard:
    """Message to all agents at the beginning of a round."""

    residual: Array  # shape (m,); the sum of what they sent in the round before, less its target
    agents: int  # how many sent something


@dataclass(frozen=True, eq=False)
class ServerState:
    """State of the server side."""

    names: tuple[str, ...]
    residual: Array  # shape (m,); the last sum, less its target
    target: Array  # shape (m,)
    passed: tuple[tuple[Share, ...], ...] = ()  # on their way, by sender
    sums: SecretSum | None = None  # of this round; None if the server side adds up
    dual: float = math.nan  # change of the sum in the last round
    terms: tuple[Array, ...] | None = None  # of the last sum; None where nobody knows them


@dataclass(frozen=True, eq=False)
class Member(AgentState):
    """State of an agent: its point, and the share it keeps until the next exchange."""

    kept: Share | None = None


SHARING = optional(
    Kind(
        lambda value: isinstance(value, SecretSharing),
        "dp.SecretSharing(limit=...), or None for sums that the server forms",
    )
)


def divided(sums: SecretSum, name: str, values: Array) -> tuple[Share, tuple[Share, ...]]:
    """Return the share that an agent keeps of its values, and those for the others."""
    shares = sums.shares(name, values)
    mine = next(share for share in shares if share.receiver == name)
    return mine, tuple(share for share in shares if share is not mine)


def delivered(names: Sequence[str], passed: Sequence[tuple[Share, ...]]) -> list[list[Share]]:
    """Return the shares for each agent, of those that all have sent."""
    boxes: dict[str, list[Share]] = {name: [] for name in names}
    for share in itertools.chain.from_iterable(passed):
        boxes[share.receiver].append(share)
    return [*boxes.values()]


class SummedMethod(Algorithm[ServerState, Member]):
    """Abstract: a frozen dataclass with the fields `sharing` and `returned`."""

    sharing: SecretSharing | None

    @property
    def exchanges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Shares take an exchange of their own."""
        return 1 if self.sharing is None else 2

    @abc.abstractmethod
    def sent(self, local: LocalProgram, x: Array) -> Array:
        """Return the summand of an agent at x, shape (m,)."""

    @abc.abstractmethod
    def target(self, program: Program) -> Array:
        """Return the target of the sum, shape (m,)."""

    @abc.abstractmethod
    def advance(self, local: Local, state: Member, t: int, heard: Heard, oracle: Oracle) -> Member:
        """Make a local step, given the sum less its target."""

    def sums(self, program: Program) -> SecretSum | None:
        """Return the secret sum that agents form; None if the server side adds up.

        Raises
        ------
        ModelError
            If `sharing` does not fit the number of agents.
        """
        names, sharing = tuple(local.name for local in program.agents), self.sharing
        if sharing is None:
            return None
        require_three(len(names))
        return SecretSum(names, sharing.encoding(len(names)), self.target(program).shape)

    def adds(self, k: int) -> bool:
        """Return whether summands are not shared in secret."""
        return self.sharing is None

    def start_server(self, program: Program) -> ServerState:
        """Return the state with the sum at the public starting points."""
        c = self.target(program)
        total = np.sum([self.sent(local, local.start) for local in program.agents], axis=0)
        names = tuple(local.name for local in program.agents)
        return ServerState(names, total - c, c, sums=self.sums(program))

    def start_agent(self, local: Local) -> Member:
        """Return the state with x at the public start and zero multipliers."""
        start = local.program.start
        multipliers = np.zeros(self.sent(local.program, start).size)
        return Member(start, np.zeros_like(start), multipliers)

    def send(self, server: ServerState, t: int, k: int) -> tuple[ServerState, list[Any]]:
        """Send the last sum; then, to each agent, its shares."""
        if k == 0:
            sums = None if server.sums is None else replace(server.sums, round=t)
            heard = Heard(server.residual, len(server.names))
            return replace(server, sums=sums), [(sums, heard)] * heard.agents
        boxes = delivered(server.names, server.passed)
        return replace(server, passed=()), [(server.sums, box) for box in boxes]

    def act(
        self, local: Local, state: Member, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[Member, Any]:
        """Make the step and send its summand, whole or in shares; then the sum of shares."""
        sums, content = message
        name = local.program.name
        if k == 1:
            return replace(state, kept=None), sums.partial(name, [*content, state.kept])
        state = self.advance(local, state, t, content, oracle)
        term = self.sent(local.program, state.x)
        if sums is None:
            return state, term
        limit = sums.encoding.limit
        if not np.abs(term).max(initial=0.0) <= limit:  # neither does NaN pass
            raise DataError(
                f"In round {t} agent '{name}' would add a value beyond {limit:g} to the sum, the "
                "limit of dp.SecretSharing, where sums wrap around. Nothing of it was shared, and "
                "the run ends here; what it released before is spent. If its points grow from "
                "round to round, the run diverges: take shorter steps. If they are to be that "
                "large, declare dp.SecretSharing(limit=...) with a larger limit."
            )
        share, others = divided(sums, name, term)
        return replace(state, kept=share), others

    def receive(self, server: ServerState, t: int, k: int, replies: Sequence[Any]) -> ServerState:
        """Add up, or pass the shares on."""
        if server.sums is not None and k == 0:
            return replace(server, passed=tuple(replies))
        total = np.sum(replies, axis=0) if server.sums is None else server.sums.total(replies)
        residual = total - server.target
        dual = float(np.linalg.norm(residual - server.residual))
        terms = tuple(replies) if server.sums is None and not self.adds(k) else None
        return replace(server, residual=residual, dual=dual, terms=terms)

    def residuals(self, server: ServerState) -> Residuals:
        """Return the distance of the sum from its target, and its change since the round before."""
        gap = server.residual
        largest = float(np.abs(gap).max(initial=0.0))
        return Residuals(float(np.linalg.norm(gap)), server.dual, largest, 0.0)


_POWER_OF_TWO = Kind(
    lambda value: positive_finite(value) and math.frexp(float(value))[0] == 0.5,  # type: ignore[arg-type]
    "a power of two, for example 2.0**-20, or None for a fine one",
)


def check_sharing(sharing: SecretSharing | None, colluders: int) -> None:
    """Refuse ranges and grids that are none, and colluders where nothing is secret.

    Parameters
    ----------
    sharing : SecretSharing or None
    colluders : int

    Raises
    ------
    ModelError
    """
    if sharing is not None:
        kinds = {"limit": POSITIVE, "resolution": optional(_POWER_OF_TWO)}
        check_fields(sharing, "dp.SecretSharing", **kinds)
    elif colluders != 1:
        raise ModelError(
            f"max_colluders={colluders} says how many agents may pool what they see of secret "
            "sums, and without sharing= no sum is secret: the server sees every term. Write "
            "sharing=dp.SecretSharing(limit=...) as well, or leave out max_colluders=."
        )


def secrecy(sharing: SecretSharing | None, colluders: int) -> SecretSums | None:
    """Return parameters of the secret sums for a plan; None if nothing is secret."""
    if sharing is None:
        return None
    return SecretSums(colluders, sharing.limit, sharing.resolution)


def proposed_sharing(
    sharing: SecretSharing | None, facts: PublicFacts, learned: bool = False
) -> SecretSharing | None:
    """Return the sharing with the range and the grid of sums.

    Parameters
    ----------
    sharing : SecretSharing or None
    facts : PublicFacts
    learned : bool
        Whether values are in learned units, whose range nobody knows beforehand.

    Raises
    ------
    ModelError
        If sums could wrap around, or there are too few agents.
    """
    if sharing is None:
        return None
    agents = len(facts.program.agents)
    require_three(agents)
    split = facts.conditions.split
    if split is not None:
        return SplitSharing(split.room if learned else split.reach(sharing.limit), split.width)
    sharing.encoding(agents)  # refused before any data are read, if it is
    return sharing


@dataclass(frozen=True, eq=False)
class Question(AtPoint):
    """First query to an agent: its summand."""

    sums: SecretSum | None  # None if the server side adds up


@dataclass(frozen=True, eq=False)
class Shared:
    """First reply of an agent: shares of its summand for the others, and its public part."""

    others: tuple[Share, ...]
    public: Array


@dataclass(frozen=True, eq=False)
class Delivery:
    """The shares for an agent."""

    sums: SecretSum
    shares: Sequence[Share]


def shared(oracle: Oracle, question: Question, name: str) -> tuple[Share, Shared]:
    """Return the share that an agent keeps of its gradient, and what it sends.

    Parameters
    ----------
    oracle : Oracle
        Answers `Summand`.
    question : Question
        Question with sums.
    name : str
        Name of the agent.
    """
    assert question.sums is not None
    asked = Summand(question.at, place=question.place, whole=question.size)
    term, public = oracle.release(asked)
    share, others = divided(question.sums, name, term)
    return share, Shared(others, public)


def added(message: Delivery, retained: Share | None, name: str) -> Partial:
    """Return an agent's next message: the sum of the shares that it has."""
    shares = [share for share in (*message.shares, retained) if share is not None]
    return message.sums.partial(name, shares)


@dataclass(frozen=True, eq=False)
class Pool:
    """The server side of one sum."""

    sums: SecretSum
    passed: tuple[tuple[Share, ...], ...] = ()  # on their way, by sender
    public: Array | float = 0.0  # what is public of the sum

    @staticmethod
    def of(sharing: SecretSharing | None, program: Program, size: int | None = None) -> Pool | None:
        """Return the pool for vectors of this size or of all agents; None if the server adds up."""
        if sharing is None:
            return None
        names = tuple(local.name for local in program.agents)
        return Pool(
            SecretSum(
                names, sharing.encoding(len(names)), (size_of(program) if size is None else size,)
            )
        )

    def begun(self, t: int, size: int | None = None) -> Pool:
        """Return the pool for the sum of round t, of so many numbers if their number varies."""
        shape = self.sums.shape if size is None else (size,)
        return Pool(replace(self.sums, round=t, shape=shape))

    def taken(self, replies: Sequence[Shared]) -> Pool:
        """Return the pool with the agents' first messages."""
        public = np.sum([reply.public for reply in replies], axis=0)
        return Pool(self.sums, tuple(reply.others for reply in replies), public)

    @property
    def deliveries(self) -> list[Delivery]:
        """The shares for each agent."""
        return [Delivery(self.sums, box) for box in delivered(self.sums.agents, self.passed)]

    def total(self, replies: Sequence[Partial]) -> Array:
        """Return the sum, with what is public of it."""
        return self.public + self.sums.total(replies)


def require_all(names: Sequence[str], replies: Sequence[Any], t: int) -> None:
    """Refuse a round without the replies of all agents.

    Raises
    ------
    ModelError
    """
    absent = [name for name, reply in zip(names, replies, strict=True) if reply is None]
    if absent:
        raise ModelError(
            f"Agent '{absent[0]}' sent nothing in round {t}, and the run ends here. Every agent "
            "has its part in a sum, and in the noise that hides the others in it: start a new run "
            "without it. What was released until now is spent."
        )
