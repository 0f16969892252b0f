"""All agents in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer


class Serial:
    """The reference executor: no concurrency, exact reproducibility."""

    def __init__(self) -> None:
        self._agents: list[Any] = []

    def writer(self, journal: Journal) -> Writer:
        """The file itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents."""
        self._agents = [factory() for factory in factories]

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents in order."""
        if each is None:
            return [getattr(agent, method)(*common) for agent in self._agents]
        return [
            getattr(agent, method)(*common, own)
            for agent, own in zip(self._agents, each, strict=True)
        ]

    def close(self) -> None:
        """Drop the agents and with them their data."""
        self._agents = []
