"""Methods whose agents need only the sum of all agents' summands, and secure aggregation.

The server side forms the sum, or, with `SecretSharing`, the agents do: each sends one random share
of its summand to every other agent, keeps one, and then sends the sum of the shares it has. The
server side forwards all shares. In one process it can read them, and whoever reads all shares can
recover each summand. Between owners (`dpcvx.owners.masks`), no share is sent: both ends compute it.

An agent shares its summand in one exchange, and adds up shares in the next. See
`dpcvx.privacy.split_noise` for distributed noise in the sum.
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
from .base import Algorithm, Local, Oracle, Residuals, SecretSums
from .facts import PublicFacts
from .joint import AtPoint, size_of
from .on_networks import AgentState
from .program import LocalProgram, Program

Index = NDArray[np.intp]
Array = NDArray[np.float64]
_RESOLUTION = 2.0**-20


@dataclass(frozen=True)
class SecretSharing:
    """Secure aggregation by additive secret sharing (Xiao, Ye and Devadas, Algorithm 3).

    It reveals only the sum of the agents' values. It hides single values from up to N - 2 colluding
    agents, and from a server that cannot read the shares it forwards. Between owners
    (`dp.RemoteOwners`, `dp.LoopbackOwners`) the coordinator cannot read them: owners mask their
    messages with their own keys. In one process the server side holds all shares, and can recover
    every value. All agents learn the sum of every round; only noise protects the sum.

    Parameters
    ----------
    limit : float
        Largest magnitude of an entry of an agent's summand. Larger values end the run. With
        distributed noise, no single value is checked, because a check would reveal private data.
        Then a sum that is too large ends the run, but far larger values may wrap around to a wrong
        sum without notice.
    resolution : float, optional
        Power of two; each entry is rounded to a multiple of it. If omitted, 2**-20, or with
        distributed noise a value far below the noise.
    """

    limit: float
    resolution: float | None = None

    def encoding(self, parties: int) -> Encoding | Residues:
        """Return the rule that turns values into integers, if noise is not distributed.

        Raises
        ------
        ModelError
            If the sum of the values of `parties` agents could wrap around.
        """
        exact = _RESOLUTION if self.resolution is None else self.resolution
        return Encoding(self.limit, exact, parties)


@dataclass(frozen=True)
class SplitSharing(SecretSharing):
    """Secret sharing with distributed noise: `limit` and `resolution` hold for noisy values."""

    def encoding(self, parties: int) -> Residues:
        """Return the integer encoding for secret sharing: residues modulo a power of two."""
        assert self.resolution is not None
        return Residues(self.limit, self.resolution, parties)


@dataclass(frozen=True, eq=False)
class Heard:
    """Message to all agents at the beginning of a round: the last sum of all summands."""

    residual: Array  # shape (m,); sum of the summands of the previous round minus its target
    agents: int  # number of agents


@dataclass(frozen=True, eq=False)
class ServerState:
    """State of the server side of a `SummedMethod`: sum of summands and secure aggregation."""

    names: tuple[str, ...]
    residual: Array  # shape (m,); last sum minus its target
    target: Array  # shape (m,)
    passed: tuple[tuple[Share, ...], ...] = ()  # shares to forward, by sender
    sums: SecretSum | None = None  # secure aggregation of this round; None if the server adds up
    dual: float = math.nan  # l2 norm of the change of the sum in the last round
    terms: tuple[Array, ...] | None = None  # summands of the last sum; None if they are not known


@dataclass(frozen=True, eq=False)
class Member(AgentState):
    """State of an agent: its point, and the secret share of its summand that it keeps itself."""

    kept: Share | None = None


SHARING = optional(
    Kind(
        lambda value: isinstance(value, SecretSharing),
        "dp.SecretSharing(limit=...), or None for sums that the server forms",
    )
)


def divided(sums: SecretSum, name: str, values: Array) -> tuple[Share, tuple[Share, ...]]:
    """Return the secret share of an agent's values that it keeps, and those for other agents."""
    shares = sums.shares(name, values)
    mine = next(share for share in shares if share.receiver == name)
    return mine, tuple(share for share in shares if share is not mine)


def delivered(names: Sequence[str], passed: Sequence[tuple[Share, ...]]) -> list[list[Share]]:
    """Return the secret shares that each agent receives, from the shares that all agents sent."""
    boxes: dict[str, list[Share]] = {name: [] for name in names}
    for share in itertools.chain.from_iterable(passed):
        boxes[share.receiver].append(share)
    return [*boxes.values()]


class SummedMethod(Algorithm[ServerState, Member]):
    """Abstract base class of methods whose agents need only a sum over all agents.

    Each agent contributes one summand per round. Subclasses are frozen dataclasses with the fields
    `sharing` and `returned`.
    """

    sharing: SecretSharing | None

    @property
    def exchanges(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of message exchanges per round: 2 with secret shares, else 1."""
        return 1 if self.sharing is None else 2

    @abc.abstractmethod
    def sent(self, local: LocalProgram, x: Array) -> Array:
        """Return the summand of an agent at x, shape (m,)."""

    @abc.abstractmethod
    def target(self, program: Program) -> Array:
        """Return the value that the sum of all summands should reach, shape (m,)."""

    @abc.abstractmethod
    def advance(self, local: Local, state: Member, t: int, heard: Heard, oracle: Oracle) -> Member:
        """Return the agent's state after its step in round t.

        Parameters
        ----------
        local : Local
            Agent's public objective and constraints.
        state : Member
        t : int
            Round, from 1.
        heard : Heard
            Sum of all agents' summands in the previous round, minus its `target`.
        oracle : Oracle
            Access to the agent's private data.
        """

    def sums(self, program: Program) -> SecretSum | None:
        """Return the settings of secure aggregation; None if the server adds up the summands.

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
        """Return whether the server adds up the summands, which it does without `sharing`."""
        return self.sharing is None

    def start_server(self, program: Program) -> ServerState:
        """Return the server's state with the sum at the public initial points."""
        c = self.target(program)
        total = np.sum([self.sent(local, local.start) for local in program.agents], axis=0)
        names = tuple(local.name for local in program.agents)
        return ServerState(names, total - c, c, sums=self.sums(program))

    def start_agent(self, local: Local) -> Member:
        """Return the agent's state with x at the public initial point and zero multipliers."""
        start = local.program.start
        multipliers = np.zeros(self.sent(local.program, start).size)
        return Member(start, np.zeros_like(start), multipliers)

    def send(self, server: ServerState, t: int, k: int) -> tuple[ServerState, list[Any]]:
        """Send the last sum to all agents; in exchange 1, send each agent its secret shares."""
        if k == 0:
            sums = None if server.sums is None else replace(server.sums, round=t)
            heard = Heard(server.residual, len(server.names))
            return replace(server, sums=sums), [(sums, heard)] * heard.agents
        boxes = delivered(server.names, server.passed)
        return replace(server, passed=()), [(server.sums, box) for box in boxes]

    def act(
        self, local: Local, state: Member, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[Member, Any]:
        """Make a step and return the summand or its shares; in exchange 1, the sum of shares."""
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
                f"In round {t} agent '{name}' would add a value beyond {limit:g}, the limit of "
                "dp.SecretSharing, to the sum. If its points grow from round to round, the run "
                "diverges: take shorter steps. Otherwise declare dp.SecretSharing(limit=...) with "
                "a larger limit. Sums beyond the limit wrap around, so the run ended and did not "
                "share the value. Earlier releases of the run count as spent."
            )
        share, others = divided(sums, name, term)
        return replace(state, kept=share), others

    def receive(self, server: ServerState, t: int, k: int, replies: Sequence[Any]) -> ServerState:
        """Add up the summands, or collect the shares to forward."""
        if server.sums is not None and k == 0:
            return replace(server, passed=tuple(replies))
        total = np.sum(replies, axis=0) if server.sums is None else server.sums.total(replies)
        residual = total - server.target
        dual = float(np.linalg.norm(residual - server.residual))
        terms = tuple(replies) if server.sums is None and not self.adds(k) else None
        return replace(server, residual=residual, dual=dual, terms=terms)

    def residuals(self, server: ServerState) -> Residuals:
        """Return the sum's distance from its target, and its change since the previous round."""
        gap = server.residual
        largest = float(np.abs(gap).max(initial=0.0))
        return Residuals(float(np.linalg.norm(gap)), server.dual, largest, 0.0)


_POWER_OF_TWO = Kind(
    lambda value: positive_finite(value) and math.frexp(float(value))[0] == 0.5,  # type: ignore[arg-type]
    "a power of two, for example 2.0**-20, or None for a fine one",
)


def check_sharing(sharing: SecretSharing | None, colluders: int) -> None:
    """Refuse an invalid limit or resolution, and a collusion threshold without `sharing`.

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
            f"max_colluders={colluders} needs secure aggregation. Write "
            "sharing=dp.SecretSharing(limit=...) as well, or leave out max_colluders=. Without "
            "sharing=, the server sees every agent's summand."
        )


def secrecy(sharing: SecretSharing | None, colluders: int) -> SecretSums | None:
    """Return the parameters of secure aggregation for a plan; None without `sharing`."""
    if sharing is None:
        return None
    return SecretSums(colluders, sharing.limit, sharing.resolution)


def proposed_sharing(
    sharing: SecretSharing | None, facts: PublicFacts, learned: bool = False
) -> SecretSharing | None:
    """Return the secret sharing with limit and resolution chosen for the sums.

    Parameters
    ----------
    sharing : SecretSharing or None
    facts : PublicFacts
    learned : bool
        Whether values are in units that the run learns, so that their range is not known in
        advance.

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
    sharing.encoding(agents)  # raises here, before any data are read, if sums could wrap around
    return sharing


@dataclass(frozen=True, eq=False)
class Question(AtPoint):
    """First query to an agent in secure aggregation, for its summand."""

    sums: SecretSum | None  # None if the server side adds up


@dataclass(frozen=True, eq=False)
class Shared:
    """First reply of an agent: shares of its summand for other agents, and the public part."""

    others: tuple[Share, ...]
    public: Array


@dataclass(frozen=True, eq=False)
class Delivery:
    """Message to an agent with the shares that other agents sent to it."""

    sums: SecretSum
    shares: Sequence[Share]


def shared(oracle: Oracle, question: Question, name: str) -> tuple[Share, Shared]:
    """Return the secret share of an agent's gradient that it keeps, and its reply.

    Parameters
    ----------
    oracle : Oracle
        Answers `Summand`.
    question : Question
        Query whose `sums` is not None.
    name : str
        Name of the agent.
    """
    assert question.sums is not None
    asked = Summand(question.at, place=question.place, whole=question.size)
    term, public = oracle.release(asked)
    share, others = divided(question.sums, name, term)
    return share, Shared(others, public)


def added(message: Delivery, retained: Share | None, name: str) -> Partial:
    """Return the sum of the shares that an agent received and kept: its second reply."""
    shares = [share for share in (*message.shares, retained) if share is not None]
    return message.sums.partial(name, shares)


@dataclass(frozen=True, eq=False)
class Pool:
    """Server side of one secure aggregation: the shares to forward, and the sum's encoding."""

    sums: SecretSum
    passed: tuple[tuple[Share, ...], ...] = ()  # shares to forward, by sender
    public: Array | float = 0.0  # public part of the sum

    @staticmethod
    def of(sharing: SecretSharing | None, program: Program, size: int | None = None) -> Pool | None:
        """Return a secure aggregation of vectors of this size; None without `sharing`.

        If `size` is omitted, it is the length of the joint vector.
        """
        if sharing is None:
            return None
        names = tuple(local.name for local in program.agents)
        return Pool(
            SecretSum(
                names, sharing.encoding(len(names)), (size_of(program) if size is None else size,)
            )
        )

    def begun(self, t: int, size: int | None = None) -> Pool:
        """Return a new aggregation for round t, of vectors of another size if passed."""
        shape = self.sums.shape if size is None else (size,)
        return Pool(replace(self.sums, round=t, shape=shape))

    def taken(self, replies: Sequence[Shared]) -> Pool:
        """Return the aggregation with the shares and public parts of the agents' first replies."""
        public = np.sum([reply.public for reply in replies], axis=0)
        return Pool(self.sums, tuple(reply.others for reply in replies), public)

    @property
    def deliveries(self) -> list[Delivery]:
        """Message to each agent with the secret shares that other agents sent to it."""
        return [Delivery(self.sums, box) for box in delivered(self.sums.agents, self.passed)]

    def total(self, replies: Sequence[Partial]) -> Array:
        """Return the sum of all summands, including their public part."""
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
            f"Agent '{absent[0]}' sent nothing in round {t}, so the run ended. Start a new run "
            "without this agent. Every sum needs the agent's summand and its part of the noise. "
            "Earlier releases of the run count as spent."
        )
