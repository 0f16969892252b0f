"""Whether time per agent step and memory per agent stay flat as problems grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import dpcvx as dp

from .instances import BUDGET, METHOD, Missing, boxes, network, serial_run
from .measure import Effort, Row, shown, timed
from .memory import held
from .runs import Clock

_FLAT = 1.3


def agents(effort: Effort) -> list[Row]:
    """Agents of 50 variables, sharing with all others or with two neighbours."""
    counts = (2, 8, 32) if effort.quick else (2, 8, 32, 128, 512)
    rows = []
    for sharing in ("star", "ring"):
        found = [_measured(count, sharing, min(effort.repeats, 3)) for count in counts]
        steps, plans, memory = zip(*found, strict=True)
        size, against = f"{counts[0]} to {counts[-1]} agents", "fewer agents"
        rows += [
            _grown(f"time per agent step, {sharing}", against, size, steps, _FLAT),
            Row(
                f"memory per agent, {sharing}",
                against,
                size,
                _largest(memory),
                _FLAT,
                note=", ".join(f"{m / 1e3:.0f} kB" for m in memory),
            ),
            _grown(f"planning per agent, {sharing}", against, size, plans),
        ]
    return rows


def _measured(count: int, sharing: str, repeats: int) -> tuple[float, float, float]:
    """Seconds of an agent's step and of planning an agent, and the bytes of one while running."""
    problem = boxes(count, 50, 10, sharing=sharing)
    rounds = max(5, 400 // count)

    plans: list[dp.Plan] = []

    def planned() -> None:
        plans.append(problem.plan(mechanism=dp.Gaussian(), rounds=rounds, **BUDGET))

    planning = min(timed(planned) for _ in range(1 if count > 100 else 3))
    # Starting agents is no step: what more rounds add is.
    long, short = plans[0], replace(plans[0], rounds=1)
    seconds = [
        min(timed(lambda plan=plan: serial_run(plan, seed=0)) for _ in range(repeats))
        for plan in (long, short)
    ]
    step = (seconds[0] - seconds[1]) / (count * (rounds - 1))
    _, peak = held(lambda: serial_run(short, seed=0))
    return step, planning / count, peak / count


def rounds(effort: Effort) -> list[Row]:
    """Time of a round in short and in long runs."""
    lengths = (100, 300, 1000) if effort.quick else (100, 1000, 10_000)
    problem = boxes(2, 50, 10)
    steps = []
    for length in lengths:
        plan = problem.plan(mechanism=dp.Gaussian(), rounds=length, **BUDGET)
        seconds = [
            timed(lambda plan=plan: serial_run(plan, seed=0))
            for _ in range(1 if length > 5000 else 3)
        ]
        steps.append(min(seconds) / (2 * length))
    size = f"{lengths[0]} to {lengths[-1]} rounds"
    return [_grown("time per agent step in long runs", "fewer rounds", size, steps, _FLAT)]


def networks(effort: Effort) -> list[Row]:
    """Zones of about 40 buses from ever larger networks."""
    sizes = ((118, 3), (300, 8)) if effort.quick else ((118, 3), (300, 8), (1354, 34), (2869, 72))
    steps, whole, plans, missing = [], [], [], ""
    for case, zones in sizes:
        try:
            problem = network(case, zones)
        except Missing as found:
            missing = f"; case {case} {found}"
            break
        ready: list[dp.Plan] = []

        def plan(problem: dp.Problem = problem, ready: list[dp.Plan] = ready) -> None:
            ready.append(problem.plan(METHOD, mechanism=dp.Gaussian(), rounds=2, **BUDGET))

        plans.append(timed(plan) / zones)
        clock = Clock()
        with clock.counting():
            seconds = timed(lambda ready=ready: serial_run(ready[0], seed=1))
        steps.append(seconds / (2 * zones * METHOD.local_updates))
        whole.append(seconds / (clock.solver + clock.gradient + clock.built))
    size = f"{len(steps)} networks from case 118"
    name = "run over solver and gradient, zones of networks"
    note = ", ".join(f"{w:.2f}" for w in whole) + missing
    return [
        _grown("time per agent step, zones of networks", "smaller networks", size, steps, _FLAT),
        Row(name, "smaller networks", size, _largest(whole), _FLAT, note=note),
        _grown("planning per zone", "smaller networks", size, plans),
    ]


def _grown(
    name: str, against: str, size: str, seconds: Sequence[float], limit: float | None = None
) -> Row:
    note = ", ".join(shown(s) for s in seconds)
    return Row(name, against, size, _largest(seconds), limit, note=note)


def _largest(figures: Sequence[float]) -> float:
    """By how much a figure grows at most from one size to any larger one."""
    return max(
        later / earlier for k, earlier in enumerate(figures) for later in figures[k + 1 :] or [0.0]
    )
