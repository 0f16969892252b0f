"""Methods in which agents need the sum of what they send, and nothing else of it.

The sum is formed by the server side, or, with `SecretSharing`, by the agents: each sends one random
share to every other agent, keeps one, and then sends the sum of the shares it has. The server side
forwards them all. Here they lie in its hands as they are, and whoever reads all of them can take
the sum apart. Between owners (`dpcvx.owners.masks`) no share is sent: both ends compute it.
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

from .._arguments import Kind, optional
from ..errors import DataError
from ..privacy.secret_sharing import Encoding, Residues, SecretSum, Share
from ..privacy.split_noise import require_three
from .agent_state import AgentState
from .base import Algorithm, Local, Oracle, Residuals
from .program import LocalProgram, Program

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
        Largest magnitude of an entry of what an agent sends. Values beyond it end the run. Where
        noise is split over the agents, nobody looks at single values, which would tell of private
        data: sums beyond what values up to the limit add up to end the run, and far larger values
        may wrap around to a wrong sum without notice.
    resolution : float, optional
        A power of two; each entry is rounded to a multiple of it. 2**-20 if omitted, or fine next
        to the noise, where that is split over the agents.
    """

    limit: float
    resolution: float | None = None

    def encoding(self, parties: int) -> Encoding | Residues:
        """Of values that agents share as they are.

        Raises
        ------
        ModelError
            If sums of so many agents' could wrap around.
        """
        exact = _RESOLUTION if self.resolution is None else self.resolution
        return Encoding(self.limit, exact, parties)


@dataclass(frozen=True)
class SplitSharing(SecretSharing):
    """The same where noise is split over the agents: with range and grid of the noisy sums."""

    def encoding(self, parties: int) -> Residues:
        """Modulo a power of two."""
        assert self.resolution is not None
        return Residues(self.limit, self.resolution, parties)


@dataclass(frozen=True, eq=False)
class Heard:
    """What all agents hear at the beginning of a round.

    Attributes
    ----------
    residual : ndarray, shape (m,)
        The sum of what they sent in the round before, less its target.
    agents : int
        How many sent something.
    """

    residual: Array
    agents: int


@dataclass(frozen=True, eq=False)
class ServerState:
    """The server side.

    Attributes
    ----------
    names : tuple of str
    residual : ndarray, shape (m,)
        The last sum, less its target.
    target : ndarray, shape (m,)
    passed : tuple of tuple of Share
        On their way, by sender.
    sums : SecretSum or None
        Of this round; None if the server side adds up.
    dual : float
        Change of the sum in the last round.
    terms : tuple of ndarray or None
        Of the last sum; None where nobody knows them.
    """

    names: tuple[str, ...]
    residual: Array
    target: Array
    passed: tuple[tuple[Share, ...], ...] = ()
    sums: SecretSum | None = None
    dual: float = math.nan
    terms: tuple[Array, ...] | None = None


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


def divided(sums: SecretSum, name: str, own: Array) -> tuple[Share, tuple[Share, ...]]:
    """The share that an agent keeps of its values, and those for the others."""
    shares = sums.shares(name, own)
    kept = next(share for share in shares if share.receiver == name)
    return kept, tuple(share for share in shares if share is not kept)


def delivered(names: Sequence[str], passed: Sequence[tuple[Share, ...]]) -> list[list[Share]]:
    """The shares for each agent, of those that all have sent."""
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
        """What an agent at x contributes to the sum, shape (m,)."""

    @abc.abstractmethod
    def target(self, program: Program) -> Array:
        """What the sum should be, shape (m,)."""

    @abc.abstractmethod
    def advance(self, local: Local, state: Member, t: int, heard: Heard, oracle: Oracle) -> Member:
        """One local step, given the sum less its target."""

    def sums(self, program: Program) -> SecretSum | None:
        """How agents form a sum; None if the server side does.

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
        """Terms that are not shared in secret."""
        return self.sharing is None

    def start_server(self, program: Program) -> ServerState:
        """The sum at the public starting points."""
        c = self.target(program)
        total = np.sum([self.sent(local, local.start) for local in program.agents], axis=0)
        names = tuple(local.name for local in program.agents)
        return ServerState(names, total - c, c, sums=self.sums(program))

    def start_agent(self, local: Local) -> Member:
        """x at the public start, zero multipliers."""
        start = local.program.start
        multipliers = np.zeros(self.sent(local.program, start).size)
        return Member(start, np.zeros_like(start), multipliers)

    def send(self, server: ServerState, t: int, k: int) -> tuple[ServerState, list[Any]]:
        """The last sum; then, to each agent, the shares for it."""
        if k == 0:
            sums = None if server.sums is None else replace(server.sums, round=t)
            heard = Heard(server.residual, len(server.names))
            return replace(server, sums=sums), [(sums, heard)] * heard.agents
        boxes = delivered(server.names, server.passed)
        return replace(server, passed=()), [(server.sums, box) for box in boxes]

    def act(
        self, local: Local, state: Member, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[Member, Any]:
        """The step and its contribution, whole or in shares; then the sum of the shares."""
        sums, content = message
        name = local.program.name
        if k == 1:
            return replace(state, kept=None), sums.partial(name, [*content, state.kept])
        state = self.advance(local, state, t, content, oracle)
        own = self.sent(local.program, state.x)
        if sums is None:
            return state, own
        limit = sums.encoding.limit
        if not np.abs(own).max(initial=0.0) <= limit:  # neither does NaN pass
            raise DataError(
                f"In round {t} agent '{name}' would add a value beyond {limit:g} to the sum, the "
                "limit of dp.SecretSharing, where sums wrap around. Nothing of it was shared, and "
                "the run ends here; what it released before is spent. If its points grow from "
                "round to round, the run diverges: take shorter steps. If they are to be that "
                "large, declare dp.SecretSharing(limit=...) with a larger limit."
            )
        kept, others = divided(sums, name, own)
        return replace(state, kept=kept), others

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
        """How far the sum is from its target, and its change since the round before."""
        gap = server.residual
        largest = float(np.abs(gap).max(initial=0.0))
        return Residuals(float(np.linalg.norm(gap)), server.dual, largest, 0.0)
