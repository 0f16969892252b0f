"""The contract of executors, and those in this process: one after the other, or several at a time.

Any executor, with what its agents charge and release on disk before any answer is taken up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from ..._arguments import check_argument, count, optional
from ...guard import frameless
from ...privacy.ledger_file import Journal
from ...privacy.ledger_lines import Writer


class Serial:
    """The reference executor: no concurrency, exact reproducibility."""

    def __init__(self) -> None:
        self._agents: list[Any] = []

    def writer(self, journal: Journal) -> Writer:
        """Return the journal itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents."""
        self._agents = [factory() for factory in factories]

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents in order."""
        if each is None:
            return [getattr(agent, method)(*common) for agent in self._agents]
        return [
            getattr(agent, method)(*common, argument)
            for agent, argument in zip(self._agents, each, strict=True)
        ]

    def close(self) -> None:
        """Drop the agents and their data."""
        self._agents = []


class Threads:
    """Agents in threads of this process: their conic solves run at the same time.

    The solver works outside Python's global lock. Results are those of `Serial`, bit for bit: every
    agent has noise of its own, and nothing is shared between agents within an exchange.

    Parameters
    ----------
    workers : int, optional
        Number of threads; one per available core if omitted.

    Raises
    ------
    ModelError
        If `workers` is not a positive int.
    """

    @frameless
    def __init__(self, workers: int | None = None) -> None:
        check_argument("dp.Threads", "workers", workers, optional(count()))
        self._workers = available_cores() if workers is None else int(workers)
        self._pool: ThreadPoolExecutor | None = None
        self._agents: list[Any] = []

    def writer(self, journal: Journal) -> Writer:
        """Return the journal itself, which takes lines from several threads."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents, one after the other: sources of data need not be safe in threads."""
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="agent")
        self._agents = [factory() for factory in factories]

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call all agents and wait for all; the first agent's error is raised.

        An interrupt is passed on at once: turns that have not begun never do, and cost nothing.
        """
        assert self._pool is not None
        arguments = [()] * len(self._agents) if each is None else [(message,) for message in each]
        calls: list[Future[Any]] = [
            self._pool.submit(getattr(agent, method), *common, *more)
            for agent, more in zip(self._agents, arguments, strict=True)
        ]
        # An error does not end the others' turns: what they were charged for is released.
        errors = [call.exception() for call in calls]
        for error in errors:
            if error is not None:
                raise error
        return [call.result() for call in calls]

    def close(self) -> None:
        """Drop the agents and their data."""
        self._agents = []
        if self._pool is not None:
            # After an interrupt turns may be queued: those that began are waited for, no others.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Seconds of an agent's turn from which threads pay: measured on two cores, they cost as much as
# they save at about a millisecond, and twice the time of short turns in pure Python.
_WORTH_A_THREAD = 1e-3
# So many exchanges in a row must be that long: the first builds solvers, and any may be disturbed.
_IN_A_ROW = 2


class Automatic:
    """Executor of one agent after the other, or of threads once local updates take long.

    Results do not depend on the choice. Threads take over the agents as they are, for these live in
    this process either way.

    Parameters
    ----------
    worth : float
        Seconds of a turn beyond which threads pay.
    cores : int, optional
        Cores of this process; counted if omitted.
    clock : callable
        Seconds since some moment: of the processor, for a turn that waits for others is not long.

    Attributes
    ----------
    place : Serial or Threads
        Executor that has the agents.
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
        """Return the journal itself."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents."""
        self._agents = [factory() for factory in factories]
        self.place, self._long = Serial(), 0
        self._open = len(self._agents) > 1 and self._cores > 1
        self._move()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents, and time their turns until threads or one loop are chosen."""
        if not self._open or method != "act":
            return self.place.map(method, *common, each=each)
        started = self._clock()
        replies = self.place.map(method, *common, each=each)
        seconds = self._clock() - started
        turns = sum(any(reply is not None for reply in of_agent) for of_agent in replies)
        if turns:  # an exchange in which all are idle says nothing
            self._long = self._long + 1 if seconds > turns * self._worth else 0
        if self._long == _IN_A_ROW:
            self.place, self._open = Threads(), False
            self._move()
        return replies

    def close(self) -> None:
        """Drop the agents and their data."""
        self._agents = []
        self.place.close()

    def _move(self) -> None:
        self.place.start([lambda agent=agent: agent for agent in self._agents])


class Executor(Protocol):
    """Builds agents where they run and calls them by method name.

    No executor retries or restarts anything: a repeated step would draw new noise and release
    twice.
    """

    def writer(self, journal: Journal) -> Writer:
        """Return the writer that agents use for a run's ledger file; called before `start`.

        Entries of agents arrive before `start` and `map` return or raise. The run has all of them
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


class Durable:
    """Executor that writes one exchange of a ledger file for every call of all agents.

    Nobody sees the agents' work in the meantime: the run gets it once all charges and values of
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
        """Return the executor's writer."""
        return self._executor.writer(journal)

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Build the agents; one-time releases happen here."""
        with self._journal.exchange():
            self._executor.start(factories)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call the agents."""
        with self._journal.exchange():
            return self._executor.map(method, *common, each=each)

    def close(self) -> None:
        """Release the agents."""
        self._executor.close()
