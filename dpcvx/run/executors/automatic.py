"""The executor of a run that names none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...privacy.ledger_file import Journal
from .serial import Serial
from .threads import Threads, available_cores

# Seconds of an agent's turn from which threads pay: measured on two cores, they cost as much as
# they save at about a millisecond, and twice the time of short turns in pure Python.
_WORTH_A_THREAD = 1e-3
# So many exchanges in a row must be that long: the first builds solvers, and any may be disturbed.
_IN_A_ROW = 2


class Automatic:
    """One agent after the other, and in threads once their turns turn out to be long.

    Results do not depend on the choice. Threads take over the agents as they are, for these live in
    this process either way.
    """

    def __init__(self) -> None:
        self._agents: list[Any] = []
        self._place: Serial | Threads = Serial()
        self._open = True
        self._long = 0

    def writer(self, journal: Journal) -> Journal:
        """The file itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents."""
        self._agents = [factory() for factory in factories]
        self._place, self._long = Serial(), 0
        self._open = len(self._agents) > 1 and available_cores() > 1
        self._move()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents, and see how long their turns are as long as that is open."""
        if not self._open or method != "act":
            return self._place.map(method, *common, each=each)
        started = time.perf_counter()
        replies = self._place.map(method, *common, each=each)
        seconds = time.perf_counter() - started
        turns = sum(reply is not None for reply in replies)
        if turns:  # an exchange in which all are idle says nothing
            self._long = self._long + 1 if seconds > turns * _WORTH_A_THREAD else 0
        if self._long == _IN_A_ROW:
            self._place, self._open = Threads(), False
            self._move()
        return replies

    def close(self) -> None:
        """Drop the agents and with them their data."""
        self._agents = []
        self._place.close()

    def _move(self) -> None:
        self._place.start([lambda agent=agent: agent for agent in self._agents])
