"""Terms of sums over all agents that are formed in secret, and the noise in them.

An agent shares its term in one exchange and adds up shares in the next; the server forwards them.
See `dpcvx.privacy.split_noise` for the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, Kind, check_fields, optional, positive_finite
from ..errors import ModelError
from ..privacy.secret_sharing import Partial, SecretSum, Share
from ..privacy.split_noise import require_three
from ..sensitivity.queries.gradients import Summand
from .base import Oracle, SecretSums
from .facts import PublicFacts
from .joint import AtPoint, size_of
from .program import Program
from .summed import SecretSharing, SplitSharing, delivered, divided

Array = NDArray[np.float64]
Index = NDArray[np.intp]

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
    """What a plan has to know; None where nothing is secret."""
    if sharing is None:
        return None
    return SecretSums(colluders, sharing.limit, sharing.resolution)


def proposed_sharing(sharing: SecretSharing | None, facts: PublicFacts) -> SecretSharing | None:
    """With the range and the grid of sums.

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
        return SplitSharing(split.reach(sharing.limit), split.width)
    sharing.encoding(agents)  # refused before any data are read, if it is
    return sharing


@dataclass(frozen=True, eq=False)
class Question(AtPoint):
    """What an agent is asked first: its term of the sum.

    Attributes
    ----------
    sums : SecretSum or None
        None if the server side adds up.
    """

    sums: SecretSum | None


@dataclass(frozen=True, eq=False)
class Shared:
    """What an agent sends first: shares of its term for the others, and what is public of it."""

    others: tuple[Share, ...]
    public: Array


@dataclass(frozen=True, eq=False)
class Delivery:
    """The shares for an agent."""

    sums: SecretSum
    shares: Sequence[Share]


def shared(oracle: Oracle, question: Question, name: str) -> tuple[Share, Shared]:
    """The share that an agent keeps of its gradient, and what it sends.

    Parameters
    ----------
    oracle : Oracle
        Answers `Summand`.
    question : Question
        With sums.
    name : str
        Of the agent.
    """
    assert question.sums is not None
    asked = Summand(question.at, place=question.place, whole=question.size)
    term, public = oracle.release(asked)
    kept, others = divided(question.sums, name, term)
    return kept, Shared(others, public)


def added(message: Delivery, kept: Share | None, name: str) -> Partial:
    """What an agent sends next: the sum of the shares that it has."""
    shares = [share for share in (*message.shares, kept) if share is not None]
    return message.sums.partial(name, shares)


@dataclass(frozen=True, eq=False)
class Pool:
    """The server side of one sum.

    Attributes
    ----------
    sums : SecretSum
    passed : tuple of tuple of Share
        On their way, by sender.
    public : ndarray
        What is public of the sum.
    """

    sums: SecretSum
    passed: tuple[tuple[Share, ...], ...] = ()
    public: Array | float = 0.0

    @staticmethod
    def of(sharing: SecretSharing | None, program: Program, size: int | None = None) -> Pool | None:
        """For vectors of this size, of all agents' if omitted; None where the server adds up."""
        if sharing is None:
            return None
        names = tuple(local.name for local in program.agents)
        return Pool(
            SecretSum(
                names, sharing.encoding(len(names)), (size_of(program) if size is None else size,)
            )
        )

    def begun(self, t: int) -> Pool:
        """For the sum of round t."""
        return Pool(replace(self.sums, round=t))

    def taken(self, replies: Sequence[Shared]) -> Pool:
        """With what agents sent first."""
        public = np.sum([reply.public for reply in replies], axis=0)
        return Pool(self.sums, tuple(reply.others for reply in replies), public)

    @property
    def deliveries(self) -> list[Delivery]:
        """The shares for each agent."""
        return [Delivery(self.sums, box) for box in delivered(self.sums.agents, self.passed)]

    def total(self, replies: Sequence[Partial]) -> Array:
        """The sum, with what is public of it."""
        return self.public + self.sums.total(replies)


def require_all(names: Sequence[str], replies: Sequence[Any], t: int) -> None:
    """Refuse a round in which an agent is missing.

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
