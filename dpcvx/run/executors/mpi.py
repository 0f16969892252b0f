"""Executor on the ranks of an MPI job: rank 0 runs the script and some agents, others serve it.

Start it by ``mpiexec -n 4 python -m dpcvx.mpi study.py``. If a rank dies, MPI ends the job; the
same command with the same ledger resumes the run.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ..._events import event
from ...errors import ModelError
from ...guard import frameless
from ...privacy.ledger_file import Journal
from ...privacy.ledger_lines import Notes, Writer
from .host import RemoteHost, dealt, heard, own_arguments, packed, required

_START = (
    "mpiexec -n 4 python -m dpcvx.mpi study.py, where study.py has plan.run(executor=dp.MPI(), "
    "ledger='spent.jsonl')"
)


class MPI:
    """Agents on the ranks of an MPI job, which ``python -m dpcvx.mpi`` started.

    Results equal the results of `Serial` bit for bit, if all machines round equally. Data in arrays
    are sent to the ranks; each rank calls functions that fetch its data. If a rank dies, the job
    ends. The same command then resumes the run from its ledger, and repeats no release.

    Raises
    ------
    ModelError
        If mpi4py is not installed, or this is not rank 0 of a job that ``python -m dpcvx.mpi``
        started.
    """

    @frameless
    def __init__(self) -> None:
        self._mpi = _mpi()
        self._comm = self._mpi.COMM_WORLD
        if not _SERVED:
            raise ModelError(
                "dp.MPI() needs an MPI job whose other ranks run the agents, and this process "
                f"has no such ranks. Start the script by {_START}."
            )
        self._notes = Notes()
        self._journal: Journal | None = None
        self._groups: list[range] = []
        self._own: RemoteHost | None = None
        self._calls = 0

    def writer(self, journal: Journal) -> Writer:
        """Return an object that collects notes for the ledger file, which rank 0 writes."""
        self._journal = journal
        return self._notes

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Send every rank its agents; the ranks construct them in parallel."""
        self._calls = 0
        self._groups = dealt(len(factories), self._comm.size)
        facts = {"workers": len(self._groups), "members": len(factories)}
        event("dealt", {"executor": "MPI", **facts})
        blobs = [packed(factories, agents, self._notes, "mpi") for agents in self._groups]
        requests = [
            self._comm.isend(("start", blob), rank) for rank, blob in enumerate(blobs) if rank
        ]
        self._own = RemoteHost(blobs[0])
        self._answers(self._own.made(), requests)

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents and wait; then raise the first agent's error."""
        assert self._own is not None
        self._calls += 1
        calls = [
            (self._calls, method, common, own_arguments(each, agents)) for agents in self._groups
        ]
        requests = [
            self._comm.isend(("call", *call), rank) for rank, call in enumerate(calls) if rank
        ]
        return self._answers(self._own.call(*calls[0]), requests)

    def close(self) -> None:
        """Delete the agents with their data on all ranks."""
        for rank in range(1, len(self._groups)):
            self._comm.send(("drop",), rank)
        self._groups, self._own, self._journal = [], None, None

    def _answers(self, answer: bytes, requests: Sequence[Any]) -> list[Any]:
        answers = [answer, *(self._comm.recv(source=r) for r in range(1, len(self._groups)))]
        self._mpi.Request.waitall(list(requests))
        return heard(zip(self._groups, answers, strict=True), self._journal)


def serve(script: Callable[[], object]) -> None:
    """Run a script on rank 0, while all other ranks serve it until it ends.

    Parameters
    ----------
    script : callable
        Function that rank 0 runs; an error in it ends the job.

    Raises
    ------
    ModelError
        If mpi4py is not installed.
    """
    mpi = _mpi()
    comm = mpi.COMM_WORLD
    try:
        if comm.rank == 0:
            _SERVED.append(True)
            script()
            for rank in range(1, comm.size):
                comm.send(("end",), rank)
        else:
            _serve(comm)
    except SystemExit as end:
        if comm.rank == 0 and end.code in (None, 0):
            for rank in range(1, comm.size):
                comm.send(("end",), rank)
            raise
        _end(comm, end)
    except BaseException as error:
        _end(comm, error)


def _end(comm: Any, error: BaseException) -> None:
    """Print an error and abort the whole job, since other ranks would wait forever."""
    if isinstance(error, SystemExit):
        sys.stderr.write(f"{error.code}\n")
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    sys.stdout.flush()
    comm.Abort(1)


def _serve(comm: Any) -> None:
    host: RemoteHost | None = None
    while True:
        kind, *content = comm.recv(source=0)
        if kind == "end":
            return
        if kind == "start":
            host = RemoteHost(*content)
            comm.send(host.made(), 0)
        elif kind == "drop":
            host = None
        else:
            assert host is not None
            comm.send(host.call(*content), 0)


# Nonempty if the other ranks of this job serve this process; set before the script runs.
_SERVED: list[bool] = []


def _mpi() -> Any:
    try:
        return required("mpi4py.MPI", "mpi")
    except RuntimeError as error:
        raise ModelError(
            f"MPI does not start: {error}. If mpiexec belongs to another MPI than mpi4py was "
            "linked with, set MPI4PY_MPIABI=openmpi or mpich, or use the mpiexec that goes with it."
        ) from None
