"""Planning: compilation, sensitivity, calibration and pricing, before any data are read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .instances import boxes, network
from .measure import Effort, Row, shown, timed

_COLD = """
import time
import dpcvx as dp
from tests.benchmarks.speed.instances import boxes
problem = boxes(2, 20, 4)
started = time.process_time()
problem.plan(mechanism=dp.{mechanism}(), rounds={rounds}, epsilon=1.0, delta=1e-6)
print(time.process_time() - started)
"""


_FIRST = """
import time
started = time.process_time()
import sys
import dpcvx as dp
from tests.benchmarks.speed.instances import network
problem = network(14, None)
imported = time.process_time()
plan = problem.plan(
    dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=100, epsilon=1.0, delta=1e-6
)
plan.run(seed=0, verbose=False)
print(time.process_time() - imported, "numba" in sys.modules)
"""


def unlike(count: int, n: int = 10) -> dp.Problem:
    """Least squares of agents that share all variables and differ in a public matrix."""
    rng = np.random.default_rng(0)
    x, agents = cp.Variable(n, name="x"), []
    for k in range(count):
        target = dp.Private(rng.normal(size=n), name=f"target {k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(rng.normal(size=(n, n)) @ x - target)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm(x) <= 2], name=f"agent {k}"))
    return dp.Problem(agents)


def unlike_agents(effort: Effort) -> list[Row]:
    """Planning of agents that differ in a public matrix, by default and with a method."""
    few, many = 5, 20 if effort.quick else 60
    rows = []
    for name, chosen in (("by default", {}), ("of exact ADMM", {"algorithm": dp.ADMM(1.0)})):
        given = {"rounds": 20, "mechanism": dp.Gaussian(), **chosen} if chosen else {}

        def seconds(count: int, given=given) -> float:
            problem = unlike(count)
            return timed(lambda: problem.plan(epsilon=1.0, delta=1e-6, **given))

        seconds(few)
        repeats = 1 if effort.quick else 2
        least, most = (min(seconds(count) for _ in range(repeats)) for count in (few, many))
        further = (most - least) / (many - few)
        row = f"planning {name}, per further agent that differs in a public matrix"
        rows.append(Row(row, "", f"{many} agents, 10 x 10", further, None, "s", shown(most)))
    return rows


def first_run(effort: Effort) -> list[Row]:
    """Plan and run a small network in a process that has compiled nothing before."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _FIRST], capture_output=True, text=True, check=False,
            env={**os.environ, "NUMBA_CACHE_DIR": folder},
        )  # fmt: skip
    name, size = "first plan and run on a machine", "case 14, three zones, 100 rounds"
    if done.returncode:
        return [Row(name, "", size, None, 5.0, "s", done.stderr.strip().splitlines()[-1])]
    seconds, loaded = done.stdout.split()
    return [Row(name, "", size, float(seconds), 5.0, "s", f"numba loaded: {loaded}")]


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
