"""Two cores against one, for whatever executors the package has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import dpcvx as dp
from dpcvx.run import executors

from .instances import BUDGET, METHOD, network, recorded_steps
from .measure import Effort, Row, shortest, shown

_FASTER = 1 / 1.7


def available() -> Iterator[tuple[str, Callable[[], Any], bool]]:
    """Every executor but the serial one: name, maker, and whether it was told of two workers."""
    for module in pkgutil.iter_modules(executors.__path__):
        if module.name in ("base", "serial") or module.name.startswith("_"):
            continue
        loaded = importlib.import_module(f"{executors.__name__}.{module.name}")
        for name, found in inspect.getmembers(loaded, inspect.isclass):
            methods = all(callable(getattr(found, m, None)) for m in ("start", "map", "close"))
            if found.__module__ != loaded.__name__ or not methods or name.startswith("_"):
                continue
            known = inspect.signature(found).parameters
            count = next((p for p in ("workers", "processes", "threads") if p in known), None)
            told = {count: 2} if count else {}
            yield name, lambda found=found, told=told: found(**told), bool(told)


def two_cores(effort: Effort) -> list[Row]:
    """A private run with two zones of about the same size.

    What decides for itself is one core's until it has seen a part of these few rounds: its row is
    for orientation.
    """
    name, against = "two cores, conic steps", "one core"
    size = "case 118, two zones"
    makers = list(available())
    if not makers:
        return [Row(name, against, size, None, _FASTER, note="no concurrent executor yet")]
    plan = network(118, 2).plan(METHOD, mechanism=dp.Gaussian(), rounds=20, **BUDGET)
    rows = []
    for label, make, told in makers:
        calls = [
            lambda make=make: plan.run(seed=1, verbose=False, executor=make()),
            lambda: plan.run(seed=1, verbose=False, executor=dp.Serial()),
        ]
        ours, one = shortest(calls, 2 if effort.quick else 3, time.perf_counter)
        note = f"{shown(ours)} against {shown(one)}"
        limit = _FASTER if told else None
        rows.append(Row(f"{name}, {label}", against, size, ours / one, limit, note=note))
    return rows


def threads(effort: Effort) -> list[Row]:
    """Whether the solver releases the interpreter: two threads of bare solves against one."""
    found = recorded_steps(118, None, 3, 6)[0]
    solvers = [found.bare(), found.bare()]

    def solve(solver: Any) -> None:
        for update in found.updates:
            solver.update(**update)
            solver.solve()

    def together() -> None:
        workers = [threading.Thread(target=solve, args=(solver,)) for solver in solvers]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def apart() -> None:
        for solver in solvers:
            solve(solver)

    two, one = shortest([together, apart], effort.repeats, time.perf_counter)
    note = f"{shown(two)} against {shown(one)}"
    size = f"n = {found.constraints.n}"
    return [Row("two threads, bare Clarabel", "one thread", size, two / one, note=note)]
