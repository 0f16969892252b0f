"""What an algorithm is: public code on two sides of a network, with an oracle on the agents' side.

A round consists of `exchanges` exchanges. In each, the server side sends one message per agent
(None leaves the agent idle), the agents act, and the server side receives their replies. Methods
without a server use the server side as the mail: it forwards what neighbours wrote. An algorithm
holds neither data nor noise; whatever it learns about private data comes out of `Oracle`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..conic import ConicProgram, Outcome
from ..program import LocalProgram, Program
from ..projection import Contraction, Projector, ProximalStep

Array = NDArray[np.float64]
S = TypeVar("S")
A = TypeVar("A")


class Oracle(Protocol):
    """What an algorithm's agent side may ask for; answered by `dpcvx.oracle`."""

    def gradient(self, x: Array, through: Contraction | None = None) -> Array:
        """A (noisy) gradient of the agent's objective at x, both of shape (n,).

        With `through`, the gradient's image plus noise that is scaled by the map's norm as well.
        """
        ...

    def solution(self, x: Array, step: ProximalStep) -> Array:
        """The (noisy) result of a local step at the exact gradient at x, shape (n,)."""
        ...


@dataclass(frozen=True, eq=False)
class Local:
    """Public tools of one agent.

    Attributes
    ----------
    program : LocalProgram
    projector : Projector
        Onto W.
    exact : ConicProgram or None
        Objective at zero data and W, if the algorithm asked for it.
    public_gradient : callable
        Gradient of the objective at zero data.
    """

    program: LocalProgram
    projector: Projector
    exact: ConicProgram | None
    public_gradient: Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Answer:
    """An agent's final vectors, shape (n,): the last iterate and the theory's average."""

    last: Array
    average: Array


@dataclass(frozen=True)
class Residuals:
    """Distance from consensus after a round, from released values only.

    Attributes
    ----------
    primal : float
        ``||w - z||`` over all agents' shared components.
    dual : float
        ``rho ||w - w_previous||`` over the same components; nan in round 1.
    mismatch : float
        Largest ``|w - z|``.
    rho : float
        Penalty of the round.
    """

    primal: float
    dual: float
    mismatch: float
    rho: float


@dataclass(frozen=True)
class Requirements:
    """What an algorithm asks of the problem and of the guarantee.

    Attributes
    ----------
    convex : bool
        Objectives must follow cvxpy's convexity rules.
    exact : bool
        Objectives are compiled into the local cone programs; private data may then enter the
        gradient only through a term that does not depend on the point.
    releases : int
        Releases per agent and round.
    solves_privately : bool
        Local steps are solved at exact gradients, behind the door.
    asserted : float or None
        A sensitivity of their results that is claimed instead of derived.
    coupled : bool
        Takes problems with ``coupling=``, and no others; objectives without private data are then
        compiled.
    """

    convex: bool
    exact: bool
    releases: int
    solves_privately: bool = False
    asserted: float | None = None
    coupled: bool = False


class Algorithm(abc.ABC, Generic[S, A]):
    """Abstract; concrete algorithms are frozen dataclasses of their parameters."""

    exchanges: ClassVar[int] = 1
    output: Literal["average", "last"] | None

    @property
    @abc.abstractmethod
    def requirements(self) -> Requirements:
        """What the plan has to check and to count."""

    @abc.abstractmethod
    def resolved(self, program: Program, step_epsilon: float) -> Self:
        """The algorithm with every default replaced by a number.

        Parameters
        ----------
        program : Program
        step_epsilon : float
            Budget per release that the papers' rules refer to; infinite without noise.

        Raises
        ------
        ModelError
            If a constant is neither given nor derivable.
        """

    def releases(self, rounds: int, program: Program) -> int:
        """Number of releases of an agent in so many rounds, at most."""
        return rounds * self.requirements.releases

    @abc.abstractmethod
    def start_server(self, program: Program) -> S:
        """State of the server side before round 1."""

    @abc.abstractmethod
    def start_agent(self, local: Local) -> A:
        """State of an agent before round 1."""

    @abc.abstractmethod
    def send(self, server: S, t: int, k: int) -> tuple[S, list[Any]]:
        """Messages of exchange k (from 0) in round t (from 1), one per agent; None: idle."""

    @abc.abstractmethod
    def act(
        self, local: Local, state: A, t: int, k: int, message: Any, oracle: Oracle
    ) -> tuple[A, Any]:
        """An agent's turn: its new state and its reply."""

    @abc.abstractmethod
    def receive(self, server: S, t: int, k: int, replies: Sequence[Any]) -> S:
        """The server side takes the replies (None from idle agents)."""

    @abc.abstractmethod
    def residuals(self, server: S) -> Residuals:
        """Residuals after a round."""

    def conclude(self, server: S) -> list[Answer] | None:
        """The agents' results as the server side knows them; None if they know themselves."""
        return None

    @abc.abstractmethod
    def answer(self, state: A) -> Answer:
        """An agent's result so far."""

    @abc.abstractmethod
    def outcome(self, state: A) -> Outcome:
        """How the last public solve of an agent ended."""
