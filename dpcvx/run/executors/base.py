"""The contract between the run loop and the place where agents live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer


class Executor(Protocol):
    """Builds agents where they run and calls them by method name.

    No executor retries or restarts anything: a repeated step would draw new noise and release
    twice.
    """

    def writer(self, journal: Journal) -> Writer:
        """The ledger file of a run as agents reach it from where they live; called before `start`.

        What agents tell it arrives before `start` and `map` return or raise. The run has all of it
        on disk before it takes up any answer: see `Durable`.
        """
        ...

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build one agent per factory, in the place where it stays."""
        ...

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every agent with common arguments and, last, one of its own.

        Results come in the order of the agents; the first error is raised.
        """
        ...

    def close(self) -> None:
        """Release the agents."""
        ...
