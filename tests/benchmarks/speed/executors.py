"""Two cores of one machine against one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import dpcvx as dp
from dpcvx.run.executors.in_process import Automatic, Executor

from .instances import BUDGET, METHOD, network, recorded_steps
from .measure import Effort, Row, shortest, shown
from .newton import interior_point

_FASTER = 1 / 1.7
_MAKERS: dict[str, tuple[Callable[[], Executor], float | None]] = {
    "Automatic": (Automatic, None),
    "Processes": (lambda: dp.Processes(2), _FASTER),
    "Threads": (lambda: dp.Threads(2), _FASTER),
}


def two_cores(effort: Effort) -> list[Row]:
    """A private run with two zones of about the same size, whose steps are Clarabel's.

    Newton's steps are too short for two cores to be worth anything here. What decides for itself is
    one core's until it has seen a part of these few rounds: its row is for orientation.
    """
    name, against = "two cores, conic steps", "one core"
    size, rows = "case 118, two zones, Clarabel", list[Row]()
    with interior_point(refined=False):
        plan = network(118, 2).plan(METHOD, mechanism=dp.Gaussian(), rounds=20, **BUDGET)
        for label, (make, limit) in _MAKERS.items():
            calls = [
                lambda make=make: plan.run(seed=1, verbose=False, executor=make()),
                lambda: plan.run(seed=1, verbose=False, executor=dp.Serial()),
            ]
            ours, one = shortest(calls, 2 if effort.quick else 3, time.perf_counter)
            note = f"{shown(ours)} against {shown(one)}"
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
