"""All agents in this process, several at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..._arguments import check_argument, count, optional
from ...guard import frameless
from ...privacy.ledger_file import Journal
from ...privacy.notes import Writer


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
        """The file itself, which takes lines from several threads."""
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
        own = [()] * len(self._agents) if each is None else [(message,) for message in each]
        calls: list[Future[Any]] = [
            self._pool.submit(getattr(agent, method), *common, *more)
            for agent, more in zip(self._agents, own, strict=True)
        ]
        # An error does not end the others' turns: what they were charged for is released.
        errors = [call.exception() for call in calls]
        for error in errors:
            if error is not None:
                raise error
        return [call.result() for call in calls]

    def close(self) -> None:
        """Drop the agents and with them their data."""
        self._agents = []
        if self._pool is not None:
            # After an interrupt turns may be queued: those that began are waited for, no others.
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
