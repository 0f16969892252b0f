"""The executor of a run that names none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer
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

    Parameters
    ----------
    worth : float
        Seconds of a turn beyond which threads pay.
    cores : int, optional
        What this process has; counted if omitted.
    clock : callable
        Seconds since some moment: of the processor, for a turn that waits for others is not long.

    Attributes
    ----------
    place : Serial or Threads
        Where the agents are.
    """

    def __init__(
        self,
        worth: float = _WORTH_A_THREAD,
        cores: int | None = None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.place: Serial | Threads = Serial()
        self._worth, self._clock = worth, clock
        self._cores = available_cores() if cores is None else cores
        self._agents: list[Any] = []
        self._open = True
        self._long = 0

    def writer(self, journal: Journal) -> Writer:
        """The file itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents."""
        self._agents = [factory() for factory in factories]
        self.place, self._long = Serial(), 0
        self._open = len(self._agents) > 1 and self._cores > 1
        self._move()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents, and see how long their turns are as long as that is open."""
        if not self._open or method != "act":
            return self.place.map(method, *common, each=each)
        started = self._clock()
        replies = self.place.map(method, *common, each=each)
        seconds = self._clock() - started
        turns = sum(any(reply is not None for reply in own) for own in replies)
        if turns:  # an exchange in which all are idle says nothing
            self._long = self._long + 1 if seconds > turns * self._worth else 0
        if self._long == _IN_A_ROW:
            self.place, self._open = Threads(), False
            self._move()
        return replies

    def close(self) -> None:
        """Drop the agents and with them their data."""
        self._agents = []
        self.place.close()

    def _move(self) -> None:
        self.place.start([lambda agent=agent: agent for agent in self._agents])
