"""Executors on clusters: the workers of Dask, and the ranks of an MPI job.

*Dask*: one pinned actor per worker, never restarted. It uses actors, not tasks: Dask would repeat a
lost worker's task elsewhere, which would draw a second noisy value. A lost actor is an error; the
run ends, and can be resumed from its ledger.

*MPI*: rank 0 runs the script and some agents, others serve it. Start it by ``mpiexec -n 4 python -m
dpcvx.mpi study.py``. If a rank dies, MPI ends the job; the same command with the same ledger
resumes the run.
"""

from __future__ import annotations

import pickle
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..._arguments import POSITIVE, check_argument, show
from ..._events import event
from ...errors import DpcvxError, ModelError, PrivacyError
from ...guard import frameless
from ...privacy.ledger_file import Journal
from ...privacy.ledger_lines import Notes, Writer
from .host import RemoteHost, dealt, heard, lost, named, own_arguments, packed, required

# Seconds between checks whether a worker was lost, while waiting.
_GLANCE = 0.25


class Dask:
    """Agents on the workers of a Dask cluster that the user started.

    Every worker has one actor with its share of the agents, called once per message round.
    Results equal the results of `Serial` bit for bit, if all machines round equally. No release is
    repeated. If a worker is lost, the run ends with `WorkerLostError`, and the same call with the
    same ``ledger=`` resumes it.

    Data in arrays travel to the workers over the cluster's connections, and so do the agents'
    steps: use TLS between machines. A worker calls functions that fetch data, so the data must
    exist there.

    Parameters
    ----------
    client : distributed.Client
        Connected client of the cluster.
    timeout : float
        Seconds after which a worker that does not answer counts as lost.

    Raises
    ------
    ModelError
        If `client` is not a Dask client, or the timeout is not positive.
    """

    @frameless
    def __init__(self, client: Any, timeout: float = 600.0) -> None:
        check_argument("dp.Dask", "timeout", timeout, POSITIVE)
        if not callable(getattr(client, "submit", None)) or not hasattr(client, "nthreads"):
            raise ModelError(
                f"dp.Dask({show(client)}) needs a client of a Dask cluster: from distributed "
                "import Client, then dp.Dask(Client())."
            )
        self._client, self._timeout = client, float(timeout)
        self._notes = Notes()
        self._journal: Journal | None = None
        self._hosts: list[_Actor] = []
        self._calls = self._round = 0

    def writer(self, journal: Journal) -> Writer:
        """Return an object that collects notes for the ledger file, which this process writes."""
        self._journal = journal
        return self._notes

    def start(self, factories: Sequence[Callable[[], Any]]) -> None:
        """Send every worker its agents; the workers construct them in parallel."""
        self._require_open()
        workers = sorted(self._addresses())
        if not workers:
            raise ModelError(
                "The Dask cluster has no workers. Start some, and wait for them with "
                "client.wait_for_workers(2). Nobody could compute for the agents."
            )
        self._calls = self._round = 0
        facts = {"workers": min(len(workers), len(factories)), "members": len(factories)}
        event("dealt", {"executor": "Dask", **facts})
        until = time.monotonic() + self._timeout
        for worker, agents in zip(workers, dealt(len(factories), len(workers)), strict=False):
            # Not pure: no two runs share a host. Pinned and without retries: it is never restarted.
            future = self._client.submit(
                RemoteHost,
                packed(factories, agents, self._notes, "dask"),
                actor=True,
                pure=False,
                retries=0,
                workers=[worker],
                allow_other_workers=False,
            )
            self._hosts.append(_Actor(worker, agents, future))
        for host in self._hosts:
            host.call = self._waited(host, host.future, until)
        self._answers({host.worker: host.call.made() for host in self._hosts}, until)

    def _addresses(self) -> Collection[str]:
        """Return the addresses of the scheduler's present workers; empty if the client is closed.

        `scheduler_info` is not used: it returns the client's stored list, which a periodic call of
        the client may store without workers.
        """
        if self._is_closed():
            return ()
        try:
            return self._client.nthreads()
        except OSError:
            return ()

    def _is_closed(self) -> bool:
        return getattr(self._client, "status", "running") in ("closing", "closed")

    def _require_open(self) -> None:
        """Refuse a client that cannot make blocking calls."""
        if self._is_closed():
            raise ModelError(
                f"The client of dp.Dask is {self._client.status}, so no worker can be called. "
                "Pass one that is connected: dp.Dask(Client(address)), and close it after the run."
            )
        if getattr(self._client, "asynchronous", False):
            raise ModelError(
                "The client of dp.Dask runs in the event loop that plan.run would block. Write "
                "dp.Dask(Client(address)) without asynchronous=True, or call the run in a thread: "
                "await asyncio.to_thread(plan.run, executor=dp.Dask(client))."
            )

    def map(self, method: str, *common: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of all agents and wait; then raise the first agent's error."""
        self._calls += 1
        if method == "act":
            self._round = common[0]
        until = time.monotonic() + self._timeout
        calls: dict[str, Any] = {}
        for host in self._hosts:
            arguments = own_arguments(each, host.agents)
            try:
                # Pickled as one object: Dask would process each array in the list, at 30 us each.
                told = pickle.dumps(
                    (self._calls, method, common, arguments), pickle.HIGHEST_PROTOCOL
                )
                calls[host.worker] = host.call.called(told)
            except _LOST as error:
                raise self._lost([host], error) from None
        return self._answers(calls, until)

    def close(self) -> None:
        """Delete the agents with their data on the workers."""
        hosts, self._hosts, self._journal = self._hosts, [], None
        for host in hosts:
            host.call = None
        if hosts and not self._is_closed():
            self._client.cancel([host.future for host in hosts], force=True)

    def _answers(self, calls: Mapping[str, Any], until: float) -> list[Any]:
        answers: list[tuple[range, bytes]] = []
        waiting = list(self._hosts)
        while waiting:
            host, *others = waiting
            call = calls[host.worker]
            # First process workers that have answered or were lost.
            for other in others if not call.done() else []:
                if calls[other.worker].done():
                    host, call = other, calls[other.worker]
                    break
            try:
                answers.append((host.agents, call.result(timeout=_GLANCE)))
            except TimeoutError:
                if self._is_closed() or time.monotonic() > until:
                    with suppress(DpcvxError):
                        heard(answers, self._journal)
                    raise self._lost(waiting, None) from None
                continue
            except PrivacyError:
                raise
            except _LOST as error:
                with suppress(DpcvxError):  # the notes of the other agents are recorded anyway
                    heard(answers, self._journal)
                raise self._lost([host], error) from None
            waiting.remove(host)
        return heard(answers, self._journal)

    def _waited(self, host: _Actor, future: Any, until: float) -> Any:
        while True:
            try:
                return future.result(timeout=_GLANCE)
            except TimeoutError:
                gone = host.worker not in self._addresses()
                if gone or time.monotonic() > until:
                    raise self._lost([host], ConnectionError() if gone else None) from None
            except _LOST as error:
                raise self._lost([host], error) from None

    def _lost(self, hosts: Sequence[_Actor], error: BaseException | None) -> Exception:
        agents = [agent for host in hosts for agent in host.agents]
        names = [host.worker for host in hosts]
        noun = "worker" if len(names) == 1 else "workers"
        why = f"gave no answer within {self._timeout:g} seconds" if error is None else "was lost"
        if len(names) > 1 and error is not None:
            why = "were lost"
        if self._is_closed():
            why = "cannot be called: the client was closed in the run"
        what = f"Dask {noun} {', '.join(names)} with {named(agents)} {why}"
        return lost("Dask", what, names, agents, self._journal is not None, self._round)


class _Actor:
    """Handle of a host on a Dask worker."""

    def __init__(self, worker: str, agents: range, future: Any) -> None:
        self.worker, self.agents, self.future = worker, agents, future
        self.call: Any = None


# Errors of Dask for an actor whose worker is lost, or that was never constructed.
_LOST = (OSError, RuntimeError, ValueError, KeyError)


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
