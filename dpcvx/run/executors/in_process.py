"""Interface of executors, and executors within this process: serial, threads, or automatic.

`Durable` adds a ledger file to any executor: charges and values are on disk before answers are
used.
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
    """Reference executor: calls agents one after the other, without concurrency."""

    def __init__(self) -> None:
        self._agents: list[Any] = []

    def writer(self, journal: Journal) -> Writer:
        """Return the journal itself, for the agents to write to."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Construct the agents in this process."""
        self._agents = [factory() for factory in factories]

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents, one after the other; see `Executor.map`."""
        if each is None:
            return [getattr(agent, method)(*common) for agent in self._agents]
        return [
            getattr(agent, method)(*common, argument)
            for agent, argument in zip(self._agents, each, strict=True)
        ]

    def close(self) -> None:
        """Delete the agents with their data."""
        self._agents = []


class Threads:
    """Agents in threads of this process: their conic solves run at the same time.

    The solver works outside Python's global lock. Results equal the results of `Serial` bit for
    bit: every agent draws its own noise, and agents exchange nothing during a message round.

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
        """Return the journal itself, which accepts lines from several threads."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Construct the agents one after the other, since data sources may not be thread-safe."""
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="agent")
        self._agents = [factory() for factory in factories]

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents in threads and wait; then raise the first agent's error.

        A keyboard interrupt is raised at once; calls that have not begun are canceled and cost
        nothing.
        """
        assert self._pool is not None
        arguments = [()] * len(self._agents) if each is None else [(message,) for message in each]
        calls: list[Future[Any]] = [
            self._pool.submit(getattr(agent, method), *common, *more)
            for agent, more in zip(self._agents, arguments, strict=True)
        ]
        # After an error, the other calls continue: their charged values are released.
        errors = [call.exception() for call in calls]
        for error in errors:
            if error is not None:
                raise error
        return [call.result() for call in calls]

    def close(self) -> None:
        """Delete the agents with their data."""
        self._agents = []
        if self._pool is not None:
            # After an interrupt, calls may be queued: those are canceled, and running ones awaited.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# Duration of a local update in seconds from which on threads save time. Measured on two cores: they
# break even at about a millisecond, and double the time of short updates in pure Python.
_WORTH_A_THREAD = 1e-3
# Number of consecutive message rounds that must take this long: the first one constructs solvers,
# and any may be disturbed.
_IN_A_ROW = 2


class Automatic:
    """Executor that calls agents one after the other, and switches to threads for long updates.

    Results do not depend on the choice. Threads use the existing agents, which are in this process.

    Parameters
    ----------
    worth : float
        Smallest duration of a local update, in seconds, for which threads are used.
    cores : int, optional
        Number of cores for this process; counted if omitted.
    clock : callable
        Function that returns processor time in seconds, so that waiting does not count as long.

    Attributes
    ----------
    place : Serial or Threads
        Executor that currently has the agents.
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
        """Return the journal itself, for the agents to write to."""
        return journal

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Construct the agents in this process."""
        self._agents = [factory() for factory in factories]
        self.place, self._long = Serial(), 0
        self._open = len(self._agents) > 1 and self._cores > 1
        self._move()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents; measure durations until an executor is chosen."""
        if not self._open or method != "act":
            return self.place.map(method, *common, each=each)
        started = self._clock()
        replies = self.place.map(method, *common, each=each)
        seconds = self._clock() - started
        turns = sum(any(reply is not None for reply in of_agent) for of_agent in replies)
        if turns:  # a message round without active agents is not measured
            self._long = self._long + 1 if seconds > turns * self._worth else 0
        if self._long == _IN_A_ROW:
            self.place, self._open = Threads(), False
            self._move()
        return replies

    def close(self) -> None:
        """Delete the agents with their data."""
        self._agents = []
        self.place.close()

    def _move(self) -> None:
        self.place.start([lambda agent=agent: agent for agent in self._agents])


class Executor(Protocol):
    """Interface of executors, which construct agents in some process and call their methods.

    An executor must not retry or restart anything: a repeated step would draw new noise and release
    a second value.
    """

    def writer(self, journal: Journal) -> Writer:
        """Return the object that agents write charges and values to; called before `start`.

        The agents' entries must arrive in `journal` before `start` and `map` return or raise. The
        run writes all of them to disk before it uses any answer; see `Durable`.
        """
        ...

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Construct one agent per factory, in the process where it stays."""
        ...

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every agent, with common arguments and one individual argument (last).

        Results are in the order of the agents; the first error is raised.
        """
        ...

    def close(self) -> None:
        """Delete the agents with their data."""
        ...


class Durable:
    """Wrapper of an executor that writes the ledger once per message round, for all agents.

    All charges and values of a message round are on disk before anybody sees the agents' answers.
    If they cannot be written, the run ends. A round waits for the disk once, for any number of
    agents.

    Parameters
    ----------
    executor : Executor
        Executor that runs the agents.
    journal : Journal
        Ledger file of the run.
    """

    def __init__(self, executor: Executor, journal: Journal) -> None:
        self._executor, self._journal = executor, journal

    def writer(self, journal: Journal) -> Writer:
        """Return the writer of the wrapped executor."""
        return self._executor.writer(journal)

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Construct the agents; one-time releases happen here."""
        with self._journal.exchange():
            self._executor.start(factories)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents; see `Executor.map`."""
        with self._journal.exchange():
            return self._executor.map(method, *common, each=each)

    def close(self) -> None:
        """Delete the agents with their data."""
        self._executor.close()
