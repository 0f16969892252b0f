"""What exchanges cost wherever agents live: by themselves, with a ledger, on more workers.

Seconds of the wall: rows mean something on an idle machine only.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.algorithms.consensus import LocalCopy
from dpcvx.privacy.ledger_lines import Notes
from dpcvx.run.executors.host import Host, heard, own_arguments
from dpcvx.run.executors.in_process import Executor
from dpcvx.run.worker import Reply, total_of
from dpcvx.solvers.conic import Outcome

from .instances import BUDGET
from .measure import Effort, Row, shown

_MANY, _FEW, _ENTRIES = 512, 2, 10
# Microseconds of an exchange with agents that do nothing: of itself, and for each agent.
_REQUIRED = {"Processes": (None, 13.0), "Dask": (4000.0, 15.0), "MPI": (200.0, 12.0)}
_CLINICS = 64
ROOT = Path(__file__).parents[3]


class Idle:
    """An agent that answers with numbers that it has."""

    def __init__(self, seed: int, size: int, term: bool = False) -> None:
        self._value, self._term = np.random.default_rng(seed).normal(size=size), term

    def act(self, t: int, k: int, message: Any) -> Reply:
        """The same whatever it is asked."""
        return Reply(self._value, Outcome.SOLVED, term=self._term)


def _exchange(executor: Executor, agents: int, rounds: int, size: int, common: bool) -> float:
    """Seconds of the quickest exchange in which all answer, with the sum of a common message."""
    executor.start([partial(Idle, k, size, common) for k in range(agents)])
    try:
        seconds = []
        for t in range(1, rounds + 1):
            each = [np.full(size, float(t))] * agents
            each = each if common else [one + k for k, one in enumerate(each)]
            started = time.perf_counter()
            replies = executor.map("act", t, 0, each=each)
            if common:
                total_of(reply.message for reply in replies)
            seconds.append(time.perf_counter() - started)
        return min(seconds)
    finally:
        executor.close()


def _exchanges(make: Callable[[], Executor], rounds: int) -> tuple[float, float]:
    """Seconds of an exchange by itself, and for each agent."""
    few, many = (_exchange(make(), n, rounds, _ENTRIES, False) for n in (_FEW, _MANY))
    each = (many - few) / (_MANY - _FEW)
    return few - _FEW * each, each


def clinics(count: int, rounds: int) -> dp.Plan:
    """Logistic regression on the records of so many clinics."""
    records, features = 150, 10
    w, agents = cp.Variable(features, name="w"), []
    for k in range(count):
        made = np.random.default_rng(k)
        X = made.normal(size=(records, features))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = np.where(X.sum(axis=1) + 0.3 * made.normal(size=records) > 0, 1.0, -1.0)
        rows = {"adjacency": dp.Rows(1.0, records=f"patient of {k}", relation="replace_one")}
        A, b = dp.Private(X, name=f"A{k}", **rows), dp.Private(y, name=f"b{k}", **rows)
        loss = cp.sum(cp.logistic(-cp.multiply(b, A @ w))) / (count * records)
        cost = cp.Minimize(loss + 0.01 / count * cp.sum_squares(w))
        agents.append(dp.Agent(cost, [cp.abs(w) <= 5], name=f"clinic {k}"))
    return dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=rounds, **BUDGET)


class _Clocked:
    """An executor that notes when rounds begin."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.begun: list[float] = []

    def writer(self, journal: Any) -> Any:
        """That of the executor."""
        return self._executor.writer(journal)

    def start(self, factories: Any) -> None:
        """Pass on."""
        self._executor.start(factories)

    def map(self, method: str, *common: Any, each: Any = None) -> list[Any]:
        """Pass on."""
        if method == "act":
            self.begun.append(time.perf_counter())
        return self._executor.map(method, *common, each=each)

    def close(self) -> None:
        """Pass on."""
        self._executor.close()


def _round(plan: dp.Plan, executor: Executor, ledger: Path | None = None) -> float:
    """Seconds from one round to the next, at the lowest tenth."""
    clocked = _Clocked(executor)
    plan.run(seed=1, executor=clocked, ledger=ledger, verbose=False)
    return float(np.quantile(np.diff(clocked.begun), 0.1))


def _beside(plan: dp.Plan, make: Callable[[], Executor], repeats: int) -> tuple[float, ...]:
    """Rounds with a ledger file next to rounds without, taken in turns, in the middle of pairs.

    Their ratio; seconds of one without; what the file adds, and what of it is not the disk's.
    """
    memory = Path("/dev/shm")
    seconds = []
    for _ in range(repeats):
        free, kept = _round(plan, make()), [math.nan, math.nan]
        for k, where in enumerate((None, memory if memory.is_dir() else None)):
            if k == 0 or where is not None:
                with tempfile.TemporaryDirectory(dir=where) as folder:
                    kept[k] = _round(plan, make(), Path(folder) / "ledger")
        seconds.append((kept[0] / free, free, kept[0] - free, kept[1] - free))
    return tuple(map(float, np.median(seconds, axis=0)))


# -- engines ---------------------------------------------------------------------------------------


@contextmanager
def _dask(workers: int) -> Iterator[Callable[[], Executor]]:
    from distributed import Client, LocalCluster

    with (
        warnings.catch_warnings(action="ignore"),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        Client(cluster) as client,
    ):
        yield lambda: dp.Dask(client)


def _on_ranks(what: str, ranks: int, *arguments: int) -> Any:
    """What a job prints."""
    launcher = Path(sys.executable).with_name("mpiexec")
    found = str(launcher) if launcher.exists() else shutil.which("mpiexec")
    assert found is not None
    script = str(Path(__file__).with_name("on_ranks.py"))
    command = [found, "-n", str(ranks), sys.executable, "-m", "dpcvx.mpi", script, what]
    done = subprocess.run(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def on_rank_zero(what: str, *numbers: int) -> Any:
    """What `on_ranks` prints: seconds of exchanges, of rounds with a ledger, or of rounds."""
    if what == "exchanges":
        return _exchanges(dp.MPI, *numbers)
    count, rounds, repeats = numbers
    plan = clinics(count, rounds)
    if what == "ledger":
        return _beside(plan, dp.MPI, repeats)
    return min(_round(plan, dp.MPI()) for _ in range(repeats))


def _missing(name: str) -> str:
    """Why an engine cannot be measured here; empty if it can."""
    module = {"Dask": "distributed", "MPI": "mpi4py"}.get(name)
    return "" if module is None or importlib.util.find_spec(module) else f"needs {module}"


# -- rows ------------------------------------------------------------------------------------------


def exchanges(effort: Effort) -> list[Row]:
    """An exchange with agents that do nothing, on two workers; its share in large runs."""
    rounds, rows = 20 * effort.repeats, []
    for name, (alone, each) in _REQUIRED.items():
        size = f"2 workers, {_FEW} and {_MANY} agents, {_ENTRIES} entries each way"
        rest = _missing(name)
        if rest:
            rows.append(Row(f"exchange, {name}", "", size, None, note=rest))
            continue
        if name == "MPI":
            fixed, more = _on_ranks("exchanges", 2, rounds)
        else:
            with _dask(2) if name == "Dask" else nullcontext(partial(dp.Processes, 2)) as make:
                fixed, more = _exchanges(make, rounds)
        note = ", ".join(
            f"{count:.0e} agents {shown(fixed + count * more)}" for count in (1e3, 1e4, 1e5)
        )
        rows += [
            Row(f"exchange by itself, {name}", "", size, 1e6 * fixed, alone, "us"),
            Row(f"exchange for each agent, {name}", "", size, 1e6 * more, each, "us", note),
        ]
    return rows


def travelling(effort: Effort) -> list[Row]:
    """Bytes that a worker is sent and sends, for each agent, beyond the numbers themselves."""
    agents = range(_MANY // 2)
    host = Host({k: partial(Idle, k, _ENTRIES) for k in agents}, Notes())
    each = [np.full(_ENTRIES, float(k)) for k in agents]
    own = own_arguments(each, agents)
    down = len(pickle.dumps((1, "act", (1, 0), own))) / len(agents) - 8 * _ENTRIES
    up = len(host.call(1, "act", (1, 0), own)) / len(agents) - 8 * _ENTRIES
    size = f"{_ENTRIES} entries each way"
    return [
        Row("bytes to an agent beyond its message", "8 a number", size, down, 80, "B"),
        Row("bytes from an agent beyond its message", "8 a number", size, up, 120, "B"),
    ]


class Answering:
    """An agent that answers what another one did."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def act(self, t: int, k: int, message: Any) -> Reply:
        """Whatever it is asked."""
        return self._reply


def coordinator(effort: Effort) -> list[Row]:
    """Work of the run's process in a round of many agents: what ends growth by more workers.

    In seconds of the processor: messages made and packed, answers unpacked, the server's side.
    """
    rows, agents = [], _MANY // 2
    w = cp.Variable(_ENTRIES, name="w")
    parts = []
    for k in range(agents):
        d = dp.Private(np.full(_ENTRIES, 0.1), name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(w - d))
        parts.append(dp.Agent(cost, [cp.abs(w) <= 1], name=f"a{k}"))
    problem = dp.Problem(parts)
    for method in (dp.LinearizedADMM(penalty=1.0, step=0.1), dp.FederatedGradient(step=0.01)):
        plan = problem.plan(method, rounds=3, **BUDGET)
        each = 1e6 * min(_at_the_server(plan) for _ in range(3 * effort.repeats)) / agents
        note = ", ".join(f"{n:.0e} agents {shown(n * each / 1e6)}" for n in (1e3, 1e4, 1e5))
        size = f"{agents} agents, {_ENTRIES} entries"
        name = f"coordinator for each agent, {type(method).__name__}"
        rows.append(Row(name, "", size, each, None, "us", f"{note} a round"))
    return rows


def _at_the_server(plan: dp.Plan) -> float:
    """Seconds of a round, but for the agents' own and for an engine's."""
    algorithm, agents = plan.algorithm, range(len(plan.program.agents))
    server, seconds = algorithm.start_server(plan.program), 0.0
    for k in range(algorithm.exchanges):
        started = time.process_time()
        server, messages = algorithm.send(server, 1, k)
        pickle.dumps((1, "act", (1, k), own_arguments(messages, agents)))
        seconds += time.process_time() - started
        term, values = algorithm.adds(k), np.zeros(_ENTRIES)
        said = values if term else LocalCopy(values, values) if algorithm.exchanges == 1 else None
        replies = [Reply(copy.deepcopy(said), Outcome.SOLVED, term=term) for _ in agents]
        host = Host({a: partial(Answering, reply) for a, reply in enumerate(replies)}, Notes())
        answer = host.call(1, "act", (1, k), own_arguments(messages, agents))
        started = time.process_time()
        heard_of = [reply.message for reply in heard([(agents, answer)], None)]
        server = algorithm.receive(server, 1, k, [total_of(heard_of)] if term else heard_of)
        seconds += time.process_time() - started
    return seconds


def sums(effort: Effort) -> list[Row]:
    """A sum of many agents' long vectors, of which all hear one."""
    size, entries = f"{_MANY} agents, 1000 entries, 2 workers", 1000
    seconds = _exchange(dp.Processes(2), _MANY, 20 * effort.repeats, entries, True)
    agents = range(_MANY // 2)
    host = Host({k: partial(Idle, k, entries, True) for k in agents}, Notes())
    own = own_arguments([np.zeros(entries)] * len(agents), agents)
    sent = 2 * (len(pickle.dumps((1, "act", (1, 0), own))) + len(host.call(1, "act", (1, 0), own)))
    return [
        Row("sum of many agents, Processes", "", size, 1e6 * seconds, 8000, "us"),
        Row("bytes of a sum of many agents", "", size, sent, 100e3, "B"),
    ]


def ledgers(effort: Effort) -> list[Row]:
    """Rounds of many small agents, with what they release on disk before it leaves."""
    rounds, rows = 10 if effort.quick else 30, []
    plan = clinics(_CLINICS, rounds)
    repeats = min(effort.repeats, 5)
    makers = {"Serial": dp.Serial, "Processes": partial(dp.Processes, 2), "Dask": None, "MPI": None}
    for name, make in makers.items():
        size, rest = f"{_CLINICS} clinics, 150 x 10", _missing(name)
        if rest:
            rows.append(Row(f"ledger file, {name}", "no ledger", size, None, 1.3, note=rest))
            continue
        if name == "MPI":
            found = _on_ranks("ledger", 2, _CLINICS, rounds, repeats)
        else:
            with _dask(2) if name == "Dask" else nullcontext(make) as made:
                found = _beside(plan, made, repeats)
        ratio, free, added, work = found
        note = f"{shown(added)} more than {shown(free)} a round, {shown(work)} in memory"
        rows.append(Row(f"ledger file, {name}", "no ledger", size, ratio, 1.3, note=note))
    return rows


def weak_scaling(effort: Effort) -> list[Row]:
    """Twice the agents on twice the workers."""
    rounds, repeats, rows = 10 if effort.quick else 30, min(effort.repeats, 3), []
    plans = {workers: clinics(workers * _CLINICS, rounds) for workers in (1, 2)}
    for name in ("Processes", "Dask", "MPI"):
        size, rest = f"{_CLINICS} clinics a worker", _missing(name)
        against = "one worker"
        if rest:
            rows.append(Row(f"two workers, {name}", against, size, None, 1 / 0.85, note=rest))
            continue
        seconds = {}
        for workers, plan in plans.items():
            if name == "MPI":
                count = workers * _CLINICS
                seconds[workers] = _on_ranks("weak", workers, count, rounds, repeats)
                continue
            engine = nullcontext(partial(dp.Processes, workers))
            with _dask(workers) if name == "Dask" else engine as make:
                seconds[workers] = min(_round(plan, make()) for _ in range(repeats))
        note = f"{shown(seconds[2])} against {shown(seconds[1])} a round"
        ratio = seconds[2] / seconds[1]
        rows.append(Row(f"two workers, {name}", against, size, ratio, 1 / 0.85, note=note))
    return rows
