"""Agents in processes of their own: what runs under Python's global lock scales as well.

Workers are forked, so nothing has to be sent to them: each builds its agents from the factories it
inherits, and reads their data. Over its pipe travel a method's name, its arguments and its agents'
answers, with what these noted for the ledger file, which the run's process writes.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..._arguments import check_argument, count, optional
from ..._events import event
from ..._words import together
from ...errors import ModelError
from ...guard import frameless
from ...privacy.ledger_file import Journal
from ...privacy.ledger_lines import Notes, Writer
from .host import Host, dealt, heard, lost, named, own_arguments
from .in_process import available_cores

# Seconds for a worker to end by itself, before it is ended.
_PATIENCE = 1.0


class Processes:
    """Agents in worker processes: all of their work runs at the same time, not solves alone.

    Results are those of `Serial`, bit for bit. Data that a callable fetches are read in the worker
    and stay there; but all processes belong to one user, so this is no barrier against an attacker.
    Errors that are not the package's own arrive without their message, which could quote the data.
    They name their type and the line of your code.
    There is no time limit: a worker that is stopped, or a solve that does not end, holds the run up
    until Control-C. With ``plan.run(ledger="file")`` the same call then resumes the run.

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
        self._notes = Notes()
        self._calls = self._round = 0

    def writer(self, journal: Journal) -> Writer:
        """Return notes for the ledger file, which this process keeps."""
        self._journal = journal
        return self._notes

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Fork the workers; all build their agents at the same time."""
        if multiprocessing.current_process().daemon:
            raise ModelError(
                "dp.Processes cannot start workers from a worker of multiprocessing.Pool, which "
                "may not have processes of its own. Use dp.Serial() or dp.Threads() there."
            )
        self._calls = self._round = 0
        facts = {"workers": min(self._count, len(factories)), "members": len(factories)}
        event("dealt", {"executor": "Processes", **facts})
        for agents in dealt(len(factories), self._count):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.get_context("fork").Process(
                target=_work,
                args=(
                    {agent: factories[agent] for agent in agents},
                    theirs,
                    [ours, *(worker.line for worker in self._workers)],
                    self._notes,
                ),
                daemon=True,
            )
            self._workers.append(_Worker(agents, process, ours))
            process.start()
            theirs.close()  # or the end of the worker would not show
        self._answers()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call all agents and wait for all; the first agent's error is raised."""
        self._calls += 1
        if method == "act":
            self._round = common[0]
        for worker in self._workers:
            arguments = own_arguments(each, worker.agents)
            with suppress(OSError):  # a worker that is gone gives no answer either
                worker.line.send((self._calls, method, common, arguments))
        return self._answers()

    def close(self) -> None:
        """End the workers, and with them the agents and their data."""
        workers, self._workers, self._journal = self._workers, [], None
        for worker in workers:
            worker.line.close()  # whoever waits for a call ends
        for worker in workers:
            worker.end()

    def _answers(self) -> list[Any]:
        """Return every agent's answer to the last call."""
        answers: list[tuple[range, bytes]] = []
        gone: list[_Worker] = []
        waiting = {worker.line: worker for worker in self._workers}
        while waiting:
            for line in wait(list(waiting)):
                assert isinstance(line, Connection)
                worker = waiting.pop(line)
                try:
                    answers.append((worker.agents, line.recv_bytes()))
                except (EOFError, OSError):
                    gone.append(worker)
        # Neither an error nor a death ends the others' turns: what they released is noted.
        results = heard(answers, self._journal)
        if gone:
            raise self._lost(gone)
        return results

    def _lost(self, gone: Sequence[_Worker]) -> Exception:
        agents = [agent for worker in gone for agent in worker.agents]
        codes = {str(worker.code()): None for worker in gone}
        process = "process" if len(gone) == 1 else "processes"
        code = "exit code" if len(codes) == 1 else "exit codes"
        what = f"The worker {process} of {named(agents)} ended with {code} {together([*codes])}"
        names = [f"process {worker.process.pid}" for worker in gone]
        journaled = self._journal is not None
        what = f"{what} before answering"
        return lost("Processes", what, names, agents, journaled, self._round)


@dataclass(eq=False)
class _Worker:
    """A worker process, seen from outside."""

    agents: range
    process: BaseProcess
    line: Connection

    def code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        self.process.join(_PATIENCE)
        return self.process.exitcode

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
    notes: Notes,
) -> None:
    """Serve the agents of one worker until the other end of the line is closed."""
    # Control-C reaches every process of a terminal: the first one decides. Whatever else that one
    # does on a signal is not for its workers to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()  # or the end of the first process would not show
    with suppress(EOFError, OSError):
        host = Host(factories, notes)
        line.send_bytes(host.made)
        while True:
            line.send_bytes(host.call(*line.recv()))
