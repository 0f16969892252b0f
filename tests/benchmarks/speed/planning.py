"""Planning: compilation, sensitivity, calibration and pricing, before any data are read."""

from __future__ import annotations

import subprocess
import sys

import dpcvx as dp

from .instances import boxes, network
from .measure import Effort, Row, timed

_COLD = """
import time
import dpcvx as dp
from tests.benchmarks.speed.instances import boxes
problem = boxes(2, 20, 4)
started = time.process_time()
problem.plan(mechanism=dp.{mechanism}(), rounds={rounds}, epsilon=1.0, delta=1e-6)
print(time.process_time() - started)
"""


def planning(effort: Effort) -> list[Row]:
    """Many releases under either mechanism, on a small problem; then a large model."""
    problem = boxes(2, 20, 4)
    rows = []
    for mechanism, rounds, limit in ((dp.Gaussian(), 5000, 0.1), (dp.Laplace(), 500, 2.0)):
        size = f"{rounds} {mechanism} steps, 2 agents of 20 variables"

        def plan(mechanism=mechanism, rounds=rounds) -> object:
            budget = dict(epsilon=1.0, delta=1e-6)
            return problem.plan(dp.LinearizedADMM(), mechanism=mechanism, rounds=rounds, **budget)

        plan()
        seconds = min(timed(plan) for _ in range(3))
        rows.append(Row(f"planning, {mechanism}", "", size, seconds, limit, "s"))
        done = subprocess.run(
            [sys.executable, "-c", _COLD.format(mechanism=mechanism, rounds=rounds)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        name = f"planning, {mechanism}, first of a process"
        rows.append(Row(name, "", size, float(done.stdout), None, "s", "imports dp_accounting"))
    if not effort.quick:
        case = network(118, None)
        seconds = min(
            timed(
                lambda: case.plan(
                    dp.LinearizedADMM(),
                    mechanism=dp.Gaussian(),
                    rounds=100,
                    epsilon=1.0,
                    delta=1e-6,
                )
            )
            for _ in range(3)
        )
        rows.append(Row("planning, case 118, three zones", "", "100 steps", seconds, None, "s"))
    return rows
