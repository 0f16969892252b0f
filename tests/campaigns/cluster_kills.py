"""Dask workers, MPI ranks and the processes of runs on them, killed at random moments.

By SIGKILL, wherever a run stands; then it is started again with the same ledger, until it is done.
In between and at the end, each value that a run took up is in the ledger bit for bit, none was
released twice, nothing was charged twice, and a seeded run ends as if nothing had happened. The
counts say of each loss whether it was told within a second, which a busy machine may miss; what is
not told within a minute is a fault.
"""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import dpcvx as dp
from tests.campaigns.crashes import _faults as faults
from tests.campaigns.crashes import _outcome as outcome
from tests.campaigns.runs import opened, problem, watching
from tests.campaigns.tally import Tally

# Kills of each sort.
FULL = 50
SORTS = ("Dask worker", "Dask driver", "MPI rank", "MPI rank 0")
_ROOT = Path(__file__).parents[2]
_ROUNDS, _PATIENCE, _LOST = 40, 60.0, 17

CLUSTER = """
import json, os, sys, warnings
from distributed import Client, LocalCluster

with warnings.catch_warnings(action="ignore"), LocalCluster(
    n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
) as cluster, Client(cluster) as client:
    for _ in sys.stdin:
        while True:
            client.wait_for_workers(2, timeout=30)  # or this ends, and another one begins
            try:
                pids = [*client.run(os.getpid).values()]
                break
            except Exception:  # one of them is going
                pass
        print(json.dumps([cluster.scheduler_address, *pids]), flush=True)
"""


def campaign(size: int, seed: int, sorts: tuple[str, ...] = SORTS) -> Tally:
    """So many kills of each sort."""
    tally, draw = Tally(), random.Random(seed)
    plan = planned()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        whole = Path(folder) / "whole"
        plan.run(ledger=whole, seed=3, executor=dp.Serial(), verbose=False)
        expected, length = outcome(plan, whole), whole.stat().st_size
        jobs = {"Dask": _Dask(stack) if any("Dask" in s for s in sorts) else None, "MPI": _MPI()}
        for sort in sorts:
            for trial in itertools.count():
                killed = (
                    n for name, n in tally.counts.items() if name.startswith(f"{sort} killed")
                )
                left = size - sum(killed)
                if left <= 0:
                    break
                own, path = draw.choice([None, 3]), Path(folder) / f"{sort} {trial}"
                job, kills = jobs[sort.split()[0]], min(draw.randint(1, 4), left)
                fault = _trial(job, sort, path, own, kills, length, draw, tally)
                if fault is None and own is not None and outcome(plan, path) != expected:
                    fault = "another result with the same seed"
                tally.add(f"runs, {sort}", fault and f"{sort}, seed {own}, trial {trial}: {fault}")
    return tally


def planned() -> dp.Plan:
    """Enough rounds for several kills."""
    method = dp.LinearizedADMM(penalty=1.0)
    return problem().plan(method, rounds=_ROUNDS, epsilon=1.0, delta=1e-6)


def run(path: Path, seed: int | None, executor: object) -> int:
    """One process of a run, which writes down what leaves; its exit status."""
    with watching(opened(path.with_suffix(".left"))), warnings.catch_warnings(action="ignore"):
        try:
            planned().run(ledger=path, seed=seed, executor=executor, verbose=False)
        except dp.WorkerLostError:
            return _LOST
    return 0


class _Dask:
    """A cluster of two workers, which are started again; drivers are forked."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        import distributed  # noqa: F401 - once, before the forks

        self._stack, self._cluster = stack, self._new(stack)

    def _new(self, stack: contextlib.ExitStack) -> subprocess.Popen:
        cluster = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", CLUSTER],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        stack.callback(cluster.stdin.close)
        return cluster

    def _ready(self) -> list:
        """Address and workers of a cluster that has two; engines do not always start them again."""
        while True:
            with contextlib.suppress(BrokenPipeError):
                self._cluster.stdin.write("\n")
                self._cluster.stdin.flush()
            told = self._cluster.stdout.readline()
            if told:
                return json.loads(told)
            self._cluster = self._new(self._stack)

    def start(self, path: Path, seed: int | None, sort: str) -> tuple[int, object]:
        """A driver, and whom to kill."""
        address, *workers = self._ready()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with open(path.with_suffix(".errors"), "w") as errors:
                    os.dup2(errors.fileno(), 2)
                    from distributed import Client

                    with Client(address) as client:
                        status = run(path, seed, dp.Dask(client, timeout=_PATIENCE))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return pid, lambda: pid if sort == "Dask driver" else workers[path.stat().st_size % 2]

    def ended(self, pid: int) -> int | None:
        """Exit status of a driver, if it has one."""
        done, status = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if done else None

    def end(self, pid: int) -> None:
        """End a driver."""
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class _MPI:
    """Jobs of two ranks."""

    def start(self, path: Path, seed: int | None, sort: str) -> tuple[object, object]:
        """A job, and whom to kill."""
        launcher = Path(sys.executable).with_name("mpiexec")
        script = Path(__file__).with_name("on_ranks.py")
        command = [launcher, "-n", "2", sys.executable, "-m", "dpcvx.mpi", script, "run"]
        with open(path.with_suffix(".errors"), "w") as errors:
            job = subprocess.Popen(
                [*map(str, [*command, path, seed])],
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        return job, lambda: _rank(job.pid, "0" if sort == "MPI rank 0" else "1")

    def ended(self, job: subprocess.Popen) -> int | None:
        """Exit status of a job, if it has one."""
        return job.poll()

    def end(self, job: subprocess.Popen) -> None:
        """End a job."""
        job.kill()
        job.wait()


def _rank(parent: int, rank: str) -> int | None:
    """The process of a rank, among those that a launcher has started."""
    for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"PMI_RANK={rank}".encode() in environment:
            return pid
        found = _rank(pid, rank)
        if found is not None:
            return found
    return None


def _trial(job, sort, path, seed, kills, length, draw, tally) -> str | None:
    """One run, started again after every kill; what is wrong with it."""
    while True:
        one, victim = job.start(path, seed, sort)
        size = path.stat().st_size if path.exists() else 0
        goal = size + draw.random() * (length - size)
        limit, struck = time.monotonic() + 3 * _PATIENCE, None
        while (status := job.ended(one)) is None:
            time.sleep(0.001)
            now = time.monotonic()
            if kills and struck is None and path.exists() and path.stat().st_size > goal:
                with contextlib.suppress(OSError, TypeError, IndexError):  # it ended, or begins
                    os.kill(victim(), signal.SIGKILL)
                    struck, limit = now, now + _PATIENCE
            elif now > limit:
                job.end(one)
                return f"hangs after a kill at byte {goal:.0f}"
        after = time.monotonic() - (struck or 0.0)
        fault = faults(path)
        over = path.exists() and b'{"end"' in path.read_bytes()
        if fault or status == 0 or over:
            return fault
        if struck is None and status == _LOST:
            tally.add(f"{sort}, a loss of before")  # the cluster had not noticed yet
            continue
        if struck is None:
            return f"does not go on: {path.with_suffix('.errors').read_text()[-400:]}"
        kills -= 1
        if sort == "Dask worker" and status != _LOST:
            return f"ended with {status}: {path.with_suffix('.errors').read_text()[-400:]}"
        told = "told within a second" if after < 1 else "told later"
        tally.add(f"{sort} killed" if sort == "Dask driver" else f"{sort} killed, {told}")
