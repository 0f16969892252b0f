"""Whether time per agent step and memory per agent stay flat as problems grow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import dpcvx as dp

from .instances import BUDGET, METHOD, Missing, boxes, network, serial_run
from .measure import Effort, Row, shortest, shown, timed
from .memory import held
from .runs import Clock

_FLAT = 1.3


def agents(effort: Effort) -> list[Row]:
    """Agents of 50 variables, sharing with all others or with two neighbors."""
    counts = (2, 8, 32) if effort.quick else (2, 8, 32, 128, 512)
    rows = []
    for sharing in ("star", "ring"):
        plans, planning = zip(*(_planned(count, sharing) for count in counts), strict=True)
        steps = _steps(plans, min(effort.repeats, 3))
        memory = [
            held(lambda plan=plan: serial_run(replace(plan, rounds=1), seed=0))[1] / count
            for plan, count in zip(plans, counts, strict=True)
        ]
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
            _grown(f"planning per agent, {sharing}", against, size, planning),
        ]
    return rows


def _planned(count: int, sharing: str) -> tuple[dp.Plan, float]:
    """A plan, and seconds of planning an agent."""
    problem = boxes(count, 50, 10, sharing=sharing)
    plans: list[dp.Plan] = []

    def plan() -> None:
        rounds = max(25, 400 // count)
        plans.append(
            problem.plan(dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=rounds, **BUDGET)
        )

    planning = min(timed(plan) for _ in range(1 if count > 100 else 3))
    return plans[0], planning / count


def _steps(plans: Sequence[dp.Plan], repeats: int) -> list[float]:
    """Seconds of an agent's step in each plan, measured in turns."""
    # Starting agents is no step: what more rounds add is.
    pairs = [(plan, replace(plan, rounds=1)) for plan in plans]
    calls = [lambda plan=plan: serial_run(plan, seed=0) for pair in pairs for plan in pair]
    seconds = shortest(calls, repeats, time.process_time).reshape(-1, 2)
    return [
        float(long - short) / (len(plan.program.agents) * (plan.rounds - 1))
        for plan, (long, short) in zip(plans, seconds, strict=True)
    ]


def rounds(effort: Effort) -> list[Row]:
    """Time of a round in short and in long runs."""
    lengths = (100, 300, 1000) if effort.quick else (100, 1000, 10_000)
    problem = boxes(2, 50, 10)
    steps = []
    for length in lengths:
        plan = problem.plan(dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=length, **BUDGET)
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
    ready: list[tuple[dp.Plan, int]] = []
    plans, missing = [], ""
    for case, zones in sizes:
        try:
            problem = network(case, zones)
        except Missing as found:
            missing = f"; case {case} {found}"
            break

        def plan(problem: dp.Problem = problem, zones: int = zones) -> None:
            made = problem.plan(METHOD, mechanism=dp.Gaussian(), rounds=2, **BUDGET)
            ready.append((made, zones))

        plans.append(timed(plan) / zones)
    steps, whole = np.full((2, len(ready)), np.inf)
    for _ in range(2 if effort.quick else 3):
        for k, (made, zones) in enumerate(ready):
            clock = Clock()
            with clock.counting():
                seconds = timed(lambda made=made: serial_run(made, seed=1))
            inside = clock.solver + clock.gradient + clock.built
            steps[k] = min(steps[k], seconds / (2 * zones * METHOD.local_updates))
            whole[k] = min(whole[k], seconds / inside)
    size = f"{len(steps)} networks from case 118"
    name = "run over solver and gradient, zones of networks"
    note = ", ".join(f"{w:.2f}" for w in whole) + missing
    return [
        _grown(
            "time per agent step, zones of networks", "smaller networks", size, list(steps), _FLAT
        ),
        Row(name, "smaller networks", size, _largest(list(whole)), _FLAT, note=note),
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
