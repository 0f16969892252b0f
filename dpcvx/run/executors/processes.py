"""Agents in processes of their own: what runs under Python's global lock scales as well.

Workers are forked, so nothing has to be sent to them: each builds its agents from the factories it
inherits, and reads their data. Over its pipe travel a method's name, its arguments and its result,
and, where the run keeps a ledger file, the lines for it: one process writes that file, and a worker
goes on only after it was told that its line is on disk.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import errors
from ..._arguments import check_argument, count, optional
from ..._words import together
from ...errors import DpcvxError, ModelError, PrivacyError
from ...guard import frameless
from ...privacy.entries import Entry
from ...privacy.ledger_file import Journal
from .threads import available_cores

# Seconds for a worker to end by itself, before it is ended.
_PATIENCE = 1.0


class Processes:
    """Agents in worker processes: all of their work runs at the same time, not solves alone.

    Results are those of `Serial`, bit for bit. Data that a callable fetches are read in the worker
    and stay there; but all processes belong to one user, so this is no barrier against an attacker.
    Errors that are not the package's own arrive without their message, which could quote the data.
    There is no time limit: a worker that is stopped, or a solve that does not end, holds the run up
    until Control-C. With ``plan.run(ledger="file")`` the same call then goes on where it stood.

    Parameters
    ----------
    workers : int, optional
        Number of processes, among which the agents are dealt in turn; one per available core if
        omitted.

    Raises
    ------
    ModelError
        If `workers` is not a positive int, or this platform cannot fork.
    """

    @frameless
    def __init__(self, workers: int | None = None) -> None:
        check_argument("dp.Processes", "workers", workers, optional(count()))
        if "fork" not in multiprocessing.get_all_start_methods():
            raise ModelError(
                "dp.Processes needs to fork, which this platform cannot; compiled problems and "
                "data do not travel to new processes otherwise. Use dp.Threads()."
            )
        self._count = available_cores() if workers is None else int(workers)
        self._workers: list[_Worker] = []
        self._journal: Journal | None = None
        self._pen = _Pen()

    def writer(self, journal: Journal) -> Journal:
        """The file as workers reach it: this process writes what they ask for."""
        self._journal = journal
        return self._pen

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Fork the workers; all build their agents at the same time."""
        if multiprocessing.current_process().daemon:
            raise ModelError(
                "dp.Processes cannot start workers from a worker of multiprocessing.Pool, which "
                "may not have processes of its own. Use dp.Serial() or dp.Threads() there."
            )
        count = min(self._count, len(factories))
        for first in range(count):
            agents = range(first, len(factories), count)
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(
                target=_work,
                args=(
                    {agent: factories[agent] for agent in agents},
                    theirs,
                    [ours, *(worker.line for worker in self._workers)],
                    self._pen,
                ),
                daemon=True,
            )
            self._workers.append(_Worker(agents, process, ours))
            process.start()
            theirs.close()  # or the end of the worker would not show
        self._answers()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call all agents and wait for all; the first agent's error is raised."""
        for worker in self._workers:
            own = [() if each is None else (each[agent],) for agent in worker.agents]
            with suppress(OSError):  # a worker that is gone gives no answer either
                worker.line.send((method, common, own))
        return self._answers()

    def close(self) -> None:
        """End the workers, and with them the agents and their data."""
        workers, self._workers, self._journal = self._workers, [], None
        for worker in workers:
            worker.line.close()  # whoever waits for a call ends
        for worker in workers:
            worker.end()

    def _answers(self) -> list[Any]:
        """Every agent's answer to the last call; meanwhile the ledger file is written."""
        answers: dict[int, _Answer] = {}
        waiting = {worker.line: worker for worker in self._workers}
        while waiting:
            for line in wait(list(waiting)):
                assert isinstance(line, Connection)
                worker = waiting[line]
                said = worker.said()
                if isinstance(said, _Line):
                    with suppress(OSError):
                        line.send(self._written(worker, said))
                else:
                    answers.update(said)
                    del waiting[line]
        found = [answers[agent] for agent in sorted(answers)]
        # An error does not end the others' turns: what they were charged for is released.
        for answer in found:
            if answer.error is not None:
                raise answer.error
        return [answer.result for answer in found]

    def _written(self, worker: _Worker, line: _Line) -> bool:
        assert self._journal is not None
        try:
            getattr(self._journal, line.kind)(*line.content)
        except Exception as error:
            worker.unwritten = worker.unwritten or error
            return False
        return True


@dataclass(frozen=True, eq=False)
class _Answer:
    """What one agent's call gave."""

    result: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, eq=False)
class _Line:
    """A line of the ledger file: the method of the journal that writes it, and its arguments."""

    kind: str
    content: tuple[Any, ...]


class _Unwritten(DpcvxError):
    """A line could not be written; the process that failed to write it knows why."""


class _Pen(Journal):
    """The ledger file as a worker has it: every line is written elsewhere."""

    def __init__(self) -> None:
        self.line: Connection | None = None

    def charge(self, agent: str, entry: Entry) -> None:
        """A release is about to be computed."""
        self._ask(_Line("charge", (agent, entry)))

    def release(self, agent: str, place: tuple[int, int], value: NDArray[np.float64]) -> None:
        """A value is about to leave."""
        self._ask(_Line("release", (agent, place, value)))

    def _ask(self, line: _Line) -> None:
        assert self.line is not None
        self.line.send(line)
        if not self.line.recv():
            raise _Unwritten


@dataclass(eq=False)
class _Worker:
    """A worker process, seen from outside."""

    agents: range
    process: BaseProcess
    line: Connection
    unwritten: BaseException | None = None

    def said(self) -> _Line | dict[int, _Answer]:
        """What the worker sent: a request, or its agents' answers."""
        try:
            said = self.line.recv()
        except (EOFError, OSError):
            return dict.fromkeys(self.agents, _Answer(error=self._death()))
        if isinstance(said, _Line):
            return said
        answers = dict(zip(self.agents, map(pickle.loads, said), strict=True))
        for agent, answer in answers.items():
            if isinstance(answer.error, _Unwritten):
                answers[agent] = _Answer(error=self.unwritten)
        return answers

    def _death(self) -> PrivacyError:
        self.process.join(_PATIENCE)
        count = len(self.agents)
        agents = f"{'agent' if count == 1 else 'agents'} {together(list(map(str, self.agents)))}"
        return PrivacyError(
            f"The worker process of {agents} ended with exit code "
            f"{self.process.exitcode} before it answered, and its account of what was released is "
            "lost. Nothing was retried, for that would release twice. Count the data as spent; or "
            "give runs a ledger file, plan.run(ledger='spent.jsonl'), with which the next one goes "
            "on from there."
        )

    def end(self) -> None:
        """Wait for the process, and end it if it is still at work."""
        if self.process.pid is None:
            return  # it was not forked
        self.process.join(_PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


def _work(
    factories: dict[int, Callable[[], Any]],
    line: Connection,
    inherited: Sequence[Connection],
    pen: _Pen,
) -> None:
    """Serve the agents of one worker until the other end of the line is closed."""
    # Control-C reaches every process of a terminal: the first one decides. Whatever else that one
    # does on a signal is not for its workers to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()  # or the end of the first process would not show
    pen.line = line
    agents: dict[int, Any] = {}
    with suppress(EOFError, OSError):
        line.send([_tried(k, lambda k=k: agents.update({k: factories[k]()})) for k in factories])
        while True:
            method, common, own = line.recv()
            calls = [methodcaller(method, *common, *more) for more in own]
            line.send(
                [_tried(k, partial(call, agents[k])) for k, call in zip(agents, calls, strict=True)]
            )


def _tried(agent: int, call: Callable[[], Any]) -> bytes:
    """The pickled answer of one agent; of errors, what may be seen."""
    try:
        return pickle.dumps(_Answer(call()))
    except BaseException as error:
        ours = isinstance(error, _Unwritten) or type(error).__module__ == errors.__name__
        return pickle.dumps(_Answer(error=error if ours else _withheld(agent, error)))


def _withheld(agent: int, error: BaseException) -> PrivacyError:
    return PrivacyError(
        f"Agent {agent} failed in its worker process with {type(error).__name__}; the message is "
        "withheld, because it may quote the data. Where they may be seen, dp.Serial() shows it."
    )
