"""All agents in this process, in one object that takes every exchange for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer


class Together:
    """For a `Fleet`, whose methods take and return a list with one element per agent."""

    def __init__(self) -> None:
        self._fleet: Any = None

    def writer(self, journal: Journal) -> Writer:
        """The file itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the one object."""
        (factory,) = factories
        self._fleet = factory()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call it for all agents."""
        return getattr(self._fleet, method)(*common, *([] if each is None else [each]))

    def close(self) -> None:
        """Drop it and with it the data."""
        self._fleet = None
