"""Any executor, with what its agents charge and release on disk before any answer is taken up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer
from .base import Executor


class Durable:
    """One exchange of a ledger file for every call of all agents.

    What agents did meanwhile is nobody's to see: the run hears of it once all charges and values of
    the exchange are on disk, and ends if they cannot be written. That costs one wait for the disk,
    however many the agents.

    Parameters
    ----------
    executor : Executor
    journal : Journal
    """

    def __init__(self, executor: Executor, journal: Journal) -> None:
        self._executor, self._journal = executor, journal

    def writer(self, journal: Journal) -> Writer:
        """That of the executor."""
        return self._executor.writer(journal)

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents; data that leave once leave here."""
        with self._journal.exchange():
            self._executor.start(factories)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents."""
        with self._journal.exchange():
            return self._executor.map(method, *common, each=each)

    def close(self) -> None:
        """Release the agents."""
        self._executor.close()
