"""The largest problems that two cores and 24 GiB take, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .fleets import clients
from .instances import BUDGET, Missing, network
from .measure import Effort, Row, shown
from .planning import unlike

_ROUNDS = 5


def _many_records(count: int) -> dp.Plan:
    rng, w = np.random.default_rng(0), cp.Variable(20, name="w")
    X = rng.normal(size=(count, 20))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    data = dp.Private(X, name="X", adjacency=dp.Rows(1.0))
    cost = cp.sum(cp.logistic(-(data @ w))) / count
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 5], name="all")])
    return problem.plan(dp.FederatedGradient(), rounds=_ROUNDS, **BUDGET)


def equal_agents(count: int) -> dp.Plan:
    """The plan of so many agents with 10 records of 5 features each."""
    return clients(count, 10, 5).plan(dp.FederatedGradient(), rounds=_ROUNDS, **BUDGET)


def _unlike_agents(count: int) -> dp.Plan:
    return unlike(count).plan(dp.LinearizedADMM(), rounds=_ROUNDS, **BUDGET)


def _buses(count: int) -> dp.Plan:
    zones = {118: 3, 10_000: 250}[count]
    return network(count, zones).plan(dp.LinearizedADMM(penalty=100.0), rounds=_ROUNDS, **BUDGET)


# What is made, in which sizes: quick, and the largest.
_SIZES: dict[str, tuple[Callable[[int], dp.Plan], int, int]] = {
    "records of 20 features": (_many_records, 10**5, 10**7),
    "equal agents": (equal_agents, 1_000, 100_000),
    "agents that differ in a public matrix": (_unlike_agents, 50, 10_000),
    "buses": (_buses, 118, 10_000),
}


def scale(effort: Effort) -> list[Row]:
    """Seconds of model and plan, of a round, and the highest mark of memory."""
    rows = []
    for what, (make, few, many) in _SIZES.items():
        count = few if effort.quick else many
        size = f"{count} {what}"
        # A process of its own, so that its highest mark is that of this problem.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            try:
                planning, each, ends, peak = fresh.submit(measured, make, count).result()
            except Missing as missing:
                rows.append(Row(f"scale, {what}", "", size, None, None, "s", str(missing)))
                continue
        note = f"start and end of a run {shown(ends)}"
        rows += [
            Row(f"scale, model and plan, {what}", "", size, planning, None, "s"),
            Row(f"scale, a round, {what}", "", size, each, None, "s", note),
            Row(f"scale, memory, {what}", "", size, peak, 24 * 2.0**30, "B"),
        ]
    return rows


def measured(make: Callable[[int], dp.Plan], count: int) -> tuple[float, float, float, float]:
    """Seconds of the plan, of a round, and of start and end of a run; bytes at the highest mark."""
    started = time.process_time()
    plan = make(count)
    planning, seconds = time.process_time() - started, []
    replace(plan, rounds=1).run(seed=0, verbose=False)  # the first run imports
    for rounds in (1, _ROUNDS):
        started = time.process_time()
        replace(plan, rounds=rounds).run(seed=0, verbose=False)
        seconds.append(time.process_time() - started)
    each = (seconds[1] - seconds[0]) / (_ROUNDS - 1)
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return planning, each, seconds[0] - each, peak
