"""Executor with worker processes, so that Python code runs in parallel despite the global lock.

Workers are forked, so nothing must be sent to start them: each constructs its agents from inherited
factories, and reads their data. Its pipe transfers method names, arguments and answers, with notes
for the ledger file, which the run's process writes.
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

# Seconds that a worker has to end by itself before it is killed.
_PATIENCE = 1.0


class Processes:
    """Agents in worker processes: all of their computations run in parallel, not only solves.

    Results equal the results of `Serial` bit for bit. A worker calls the functions that fetch data,
    and keeps these data. This is no barrier against an attacker, because one user runs all
    processes. Errors that the package did not raise lose their message, which could quote the data.
    They keep their type and the line of your code. There is no time limit: a worker that is
    stopped, or a solve that does not end, blocks the run until Control-C. With
    ``plan.run(ledger="file")`` the same call then resumes the run.

    Parameters
    ----------
    workers : int, optional
        Number of processes, to which the agents are assigned in turn; one per available core if
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
                "dp.Processes needs to fork, which this platform cannot do. Use dp.Threads(). "
                "Without a fork, compiled problems and data do not reach new processes."
            )
        self._count = available_cores() if workers is None else int(workers)
        self._workers: list[_Worker] = []
        self._journal: Journal | None = None
        self._notes = Notes()
        self._calls = self._round = 0

    def writer(self, journal: Journal) -> Writer:
        """Return an object that collects notes for the ledger file in the workers."""
        self._journal = journal
        return self._notes

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Fork the workers, which construct their agents in parallel."""
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
            theirs.close()  # else the end of the worker would not be noticed
        self._answers()

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents and wait; then raise the first agent's error."""
        self._calls += 1
        if method == "act":
            self._round = common[0]
        for worker in self._workers:
            arguments = own_arguments(each, worker.agents)
            with suppress(OSError):  # a lost worker gives no answer either
                worker.line.send((self._calls, method, common, arguments))
        return self._answers()

    def close(self) -> None:
        """End the worker processes, and so delete the agents and their data."""
        workers, self._workers, self._journal = self._workers, [], None
        for worker in workers:
            worker.line.close()  # a worker that waits for a call ends
        for worker in workers:
            worker.end()

    def _answers(self) -> list[Any]:
        """Return the answers of all agents to the last call."""
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
        # After an error or a lost worker, the notes of all other agents are recorded.
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
    """Handle of a worker process."""

    agents: range
    process: BaseProcess
    line: Connection

    def code(self) -> int | None:
        """Return the exit code of the process after a short wait; None while it runs."""
        self.process.join(_PATIENCE)
        return self.process.exitcode

    def end(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        if self.process.pid is None:
            return  # the process was not started
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
    """Serve the agents of one worker until the other end of the pipe is closed."""
    # Control-C in a terminal reaches every process: only the first process handles it. Workers must
    # not run its other signal handlers either.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()  # else the end of the first process would not be noticed
    with suppress(EOFError, OSError):
        host = Host(factories, notes)
        line.send_bytes(host.made)
        while True:
            line.send_bytes(host.call(*line.recv()))
