"""Interface of oracles, which answer agents' queries from private, public or recorded data."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..privacy.accounts import Account
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Release

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Public data in place of an agent's data: the objective is the same as for the release."""

    data: tuple[Array, ...]  # by private object, flat
    whole: bool  # whether the agent released its data, and not sums or coefficients of them


class AgentOracle(abc.ABC):
    """Oracle that answers the queries of one agent or batch, and numbers releases by round.

    Parameters
    ----------
    accounts : callable
        Function that returns the privacy account of each agent.
    releases : list of Release
        List that collects recorded releases.
    count : int
        Number of agents; answers for several agents have a row per agent.
    """

    def __init__(
        self, accounts: Callable[[], list[Account]], releases: list[Release], count: int = 1
    ) -> None:
        self.accounts = accounts
        self.releases = releases
        self.count = count
        self.surrogate: Surrogate | None = None  # if the agent's data were released once
        self._round = self._step = self._most = 0

    @property
    def most_asked(self) -> int:
        """Largest number of releases requested in any round, including refused ones."""
        return max(self._most, self._step)

    def begin(self, t: int) -> None:
        """Start round t, and number its releases from 1.

        Raises
        ------
        PrivacyError
            If the round has begun before, since a second draw of its noise would weaken privacy.
        """
        if t < self._round or (t == self._round and self._step > 0):
            raise PrivacyError(f"Round {t} has begun before, and its noise may not be drawn twice.")
        self._most = max(self._most, self._step)
        self._round, self._step = t, 0

    @abc.abstractmethod
    def release(self, query: Query) -> Array:
        """Return the released (public) answer to a query."""

    @abc.abstractmethod
    def store(self, name: str, combination: LinearCombination) -> None:
        """Store a vector that is never released, under a name."""

    def uniform(self, size: int) -> Array:
        """Return 0.5 for every entry; oracles of private data draw random numbers instead."""
        return np.full(size if self.count == 1 else (self.count, size), 0.5)

    def _next(self) -> tuple[int, int]:
        self._step += 1
        return self._round, self._step
