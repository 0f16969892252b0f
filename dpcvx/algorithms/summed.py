"""Methods in which agents need the sum of what they send, and nothing else of it.

The sum is formed by the server side, or, with `SecretSharing`, by the agents: each sends one random
share to every other agent, then the sum of the shares it got. The server side forwards both and
learns no more than the sum.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..conic import Outcome
from ..errors import ModelError
from ..network import network
from ..program import LocalProgram, Program
from ..secret_sharing import SecretSum
from .base import Algorithm, Answer, Local, Oracle, Residuals
from .walker import Walker, standing

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SecretSharing:
    """Sums of agents' values without their terms (Xiao, Ye and Devadas, Algorithm 3).

    Protects messages from the server and from up to N - 2 agents together. It does not protect what
    follows from the sums, which all agents learn in every round: that is what noise is for.

    Parameters
    ----------
    limit : float
        Largest magnitude of an entry of what an agent sends. Values beyond it end the run.
    resolution : float
        A power of two; each entry is rounded to a multiple of it.
    """

    limit: float
    resolution: float = 2.0**-20


@dataclass(frozen=True, eq=False)
class Total:
    """What all agents hear at the beginning of a round.

    Attributes
    ----------
    residual : ndarray, shape (m,)
        The sum of what they sent in the round before, less its target.
    """

    residual: Array


@dataclass(frozen=True, eq=False)
class Desk:
    """The server side.

    Attributes
    ----------
    names : tuple of str
    residual : ndarray, shape (m,)
        The last sum, less its target.
    target : ndarray, shape (m,)
    passed : tuple
        Shares on their way, by sender.
    sums : SecretSum or None
        Of this round.
    dual : float
        Change of the sum in the last round.
    """

    names: tuple[str, ...]
    residual: Array
    target: Array
    passed: tuple[Any, ...] = ()
    sums: SecretSum | None = None
    dual: float = math.nan


class SummedMethod(Algorithm[Desk, Walker]):
    """Abstract: a frozen dataclass with the fields `sharing` and `output`."""

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
    def advance(
        self, local: Local, state: Walker, t: int, residual: Array, oracle: Oracle
    ) -> Walker:
        """One local step, given the sum less its target."""

    def check(self, name: str) -> None:
        """Refuse a kind of output, or of sharing, that is none."""
        self.check_output(name)
        if not (self.sharing is None or isinstance(self.sharing, SecretSharing)):
            raise ModelError(
                f"{name}(sharing={self.sharing!r}) must be dp.SecretSharing(limit=...), or None "
                "for sums that the server forms."
            )

    def start_server(self, program: Program) -> Desk:
        """The sum at the public starting points."""
        c = self.target(program)
        total = np.sum([self.sent(local, local.start) for local in program.agents], axis=0)
        return Desk(tuple(local.name for local in program.agents), total - c, c)

    def start_agent(self, local: Local) -> Walker:
        """x at the public start, zero multipliers."""
        start = local.program.start
        return standing(start, self.sent(local.program, start).size)

    def send(self, server: Desk, t: int, k: int) -> tuple[Desk, list[Any]]:
        """The last sum; then, to each agent, the shares for it."""
        if k == 1:
            boxes = list(zip(*server.passed, strict=True))
            return replace(server, passed=()), [(server.sums, box) for box in boxes]
        if self.sharing is not None:
            server = replace(server, sums=self._sums(server.names, server.target.shape, t))
        return server, [(server.sums, Total(server.residual))] * len(server.names)

    def act(
        self, local: Local, state: Walker, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[Walker, Any]:
        """The step and its contribution, whole or in shares; then the sum of the shares."""
        sums, content = message
        if k == 1:
            return state, sums.partial(local.program.name, content)
        state = self.advance(local, state, t, content.residual, oracle)
        own = self.sent(local.program, state.x)
        return state, own if sums is None else sums.shares(local.program.name, own)

    def receive(self, server: Desk, t: int, k: int, replies: Sequence[Any]) -> Desk:
        """Add up, or pass the shares on."""
        if server.sums is not None and k == 0:
            return replace(server, passed=tuple(replies))
        total = np.sum(replies, axis=0) if server.sums is None else server.sums.total(replies)
        residual = total - server.target
        dual = float(np.linalg.norm(residual - server.residual))
        return replace(server, residual=residual, dual=dual)

    def residuals(self, server: Desk) -> Residuals:
        """How far the sum is from its target, and its change since the round before."""
        gap = server.residual
        largest = float(np.abs(gap).max(initial=0.0))
        return Residuals(float(np.linalg.norm(gap)), server.dual, largest, 0.0)

    def answer(self, state: Walker) -> Answer:
        """Last and averaged iterate."""
        return state.answer

    def outcome(self, state: Walker) -> Outcome:
        """Of the last projection."""
        return state.outcome

    def _sums(self, names: tuple[str, ...], shape: tuple[int, ...], t: int) -> SecretSum:
        assert self.sharing is not None
        return SecretSum.over(
            network("complete", names),
            limit=self.sharing.limit,
            resolution=self.sharing.resolution,
            shape=shape,
            round=t,
        )
