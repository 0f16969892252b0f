"""What is held: by a compiled model with a private matrix, and by a run's result."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .instances import BUDGET, boxes, serial_run
from .measure import Array, Effort, Row, shown, timed

# Of a process, on Linux: its pages in memory are the second number.
PAGES = Path("/proc/self/statm")


def held(make: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that a result keeps, and the highest mark on the way to it."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make()
    gc.collect()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return after - before, peak - before


def resident(make: Callable[[int], Any], size: int) -> int | None:
    """Bytes by which a fresh process grows with what it keeps; None where the system has no count.

    Next to `held` it takes the time of the work alone, and counts whole pages.

    Parameters
    ----------
    make : callable
        A function of a module; called with a few first, so that what is imported is not counted.
    size : int
        How many are measured.
    """
    if not PAGES.exists():
        return None
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(_grown, make, size).result()


def _grown(make: Callable[[int], Any], size: int) -> int:
    make(10)
    sizes: list[int] = []
    kept: list[Any] = []
    for more in (None, size):
        if more is not None:
            kept.append(make(more))
        gc.collect()
        sizes.append(int(PAGES.read_text().split()[1]) * resource.getpagesize())
    return sizes[1] - sizes[0]


def regression(A: Array, b: Array) -> dp.Problem:
    """Least squares with private records."""
    x = cp.Variable(A.shape[1], name="x")
    own = dict(records="person")
    features = dp.Private(A, name="features", adjacency=dp.Rows(1.0, **own))
    targets = dp.Private(b, name="targets", adjacency=dp.Rows(1.0, **own))
    cost = cp.Minimize(cp.sum_squares(features @ x - targets))
    return dp.Problem([dp.Agent(cost, [cp.abs(x) <= 1], name="all")])


def private_matrix(effort: Effort) -> list[Row]:
    """Compilation of a model with a private matrix, and one round of a run."""
    sides = (250, 500) if effort.quick else (250, 500, 1000)
    per_entry: list[float] = []
    rows: list[Row] = []
    for side in sides:
        rng = np.random.default_rng(0)
        A = rng.normal(size=(side, side))
        A /= np.linalg.norm(A, axis=1)[:, None]
        b = rng.uniform(-1, 1, size=side)

        def plan(A: Array = A, b: Array = b) -> dp.Plan:
            return regression(A, b).plan(
                dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=1, **BUDGET
            )

        plan()
        per_entry.append(min(timed(plan) for _ in range(effort.repeats)) / side**2)
        _, peak = held(plan)
        ready = plan()
        _, peak_run = held(lambda ready=ready: serial_run(ready, seed=0))
        size = f"{side} x {side}"
        note = f"{shown(per_entry[-1] * side**2)}"
        data = A.nbytes + b.nbytes
        rows.append(
            Row("peak memory of planning, private matrix", "the data", size, peak / data, note=note)
        )
        rows.append(Row("peak memory of a run, private matrix", "the data", size, peak_run / data))
    against = f"the same at {sides[0]} x {sides[0]}"
    ratio = per_entry[-1] / per_entry[0]
    size = f"{sides[-1]} x {sides[-1]}"
    growth = rows[-2].measured / rows[0].measured
    return [
        Row("planning time per private entry", against, size, ratio, 1.3, note=rows[-2].note),
        Row("planning memory per private entry", against, size, growth, 1.3),
        *rows[-2:],
    ]


def rounds_kept(effort: Effort) -> list[Row]:
    """What a result keeps of every round."""
    few, many = 100, 1000
    problem = boxes(2, 50, 10)
    sizes = {}
    for rounds in (few, many):
        plan = problem.plan(dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=rounds, **BUDGET)
        for record in (False, True):

            def run(plan: dp.Plan = plan, record: bool = record) -> dp.Result:
                return serial_run(plan, seed=0, record=record)

            run()
            sizes[rounds, record] = held(run)[0]
    rows = []
    for record, label in ((False, "by default"), (True, "with record=True")):
        growth = (sizes[many, record] - sizes[few, record]) / (many - few)
        rows.append(
            Row(
                f"memory a round adds to a result, {label}",
                "",
                "2 agents, 50 variables",
                growth,
                None,
                "B",
            )
        )
    ratio = sizes[many, False] / sizes[few, False]
    against, note = f"that of {few} rounds", f"{sizes[many, False] / 1e3:.0f} kB"
    return [Row("memory of a result", against, f"{many} rounds", ratio, 1.3, note=note), *rows]
