"""Answers to agents' queries: from private data, from public data, or from a record."""

from __future__ import annotations

import abc
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..privacy.accounts import Account
from ..sensitivity.queries.query import Query
from ..sensitivity.stored_vectors import LinearCombination
from .gate import Release

Array = NDArray[np.float64]


class AgentOracle(abc.ABC):
    """Answers the queries of one agent or of a batch, and numbers them round by round.

    Parameters
    ----------
    accounts : callable
        Returns what each agent has spent.
    releases : list of Release
        Answers that are kept.
    count : int
        Number of agents. Answers to several have a row per agent.
    """

    def __init__(
        self, accounts: Callable[[], list[Account]], releases: list[Release], count: int = 1
    ) -> None:
        self.accounts = accounts
        self.releases = releases
        self.count = count
        self._round = self._step = self._most = 0

    @property
    def most_asked(self) -> int:
        """Largest number of releases that a round asked for, with one that was refused."""
        return max(self._most, self._step)

    def begin(self, t: int) -> None:
        """Start round t: releases are numbered within it.

        Raises
        ------
        PrivacyError
            If something left in this round: its noise would be drawn again.
        """
        if t < self._round or (t == self._round and self._step > 0):
            raise PrivacyError(f"Round {t} has begun before, and its noise may not be drawn twice.")
        self._most = max(self._most, self._step)
        self._round, self._step = t, 0

    @abc.abstractmethod
    def release(self, query: Query) -> Array:
        """Return the answer to a question, as everybody may see it."""

    @abc.abstractmethod
    def store(self, name: str, combination: LinearCombination) -> None:
        """Make a vector that stays with the agent."""

    def uniform(self, size: int) -> Array:
        """Return 0.5, the middle, for every entry."""
        return np.full(size if self.count == 1 else (self.count, size), 0.5)

    def _next(self) -> tuple[int, int]:
        self._step += 1
        return self._round, self._step
