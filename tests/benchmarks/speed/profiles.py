"""``python -m tests.benchmarks.speed.profiles [NAME ...]``: where the time goes, by function."""

from __future__ import annotations

import cProfile
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import dpcvx as dp

from .instances import BUDGET, METHOD, boxes, network, recorded_steps, serial_run

# Lines that are shown of a profile.
_LINES = 22


def conic_step() -> Callable[[], Any]:
    """Local steps of the three zones of case 14, ten times each."""
    agents = recorded_steps(14, None, 20, 12)

    def run() -> None:
        for _ in range(10):
            for steps in agents:
                for v, D in zip(steps.points, steps.weights, strict=True):
                    steps.projector(v, D)

    return run


def private_run() -> Callable[[], Any]:
    """20 rounds of the study on case 118."""
    plan = network(118, None).plan(METHOD, mechanism=dp.Gaussian(), rounds=20, **BUDGET)
    return lambda: serial_run(plan, seed=1)


def closed_form_step() -> Callable[[], Any]:
    """2000 private steps on boxes of 1000 variables."""
    plan = boxes(2, 1000, 20, rows=1).plan(METHOD, mechanism=dp.Gaussian(), rounds=200, **BUDGET)
    return lambda: serial_run(plan)


def many_agents() -> Callable[[], Any]:
    """20 rounds of 128 agents of 50 variables on a ring."""
    problem = boxes(128, 50, 10, sharing="ring")
    plan = problem.plan(dp.LinearizedADMM(), mechanism=dp.Gaussian(), rounds=20, **BUDGET)
    return lambda: serial_run(plan)


def planning() -> Callable[[], Any]:
    """The study's plan, once it has been made before."""
    problem = network(118, None)

    def plan() -> dp.Plan:
        return problem.plan(METHOD, mechanism=dp.Gaussian(), rounds=100, **BUDGET)

    plan()
    return plan


def laplace() -> Callable[[], Any]:
    """Calibration of 500 Laplace steps on a small problem."""
    problem = boxes(2, 20, 4)
    return lambda: problem.plan(dp.LinearizedADMM(), mechanism=dp.Laplace(), rounds=500, **BUDGET)


PROFILES = (conic_step, private_run, closed_form_step, many_agents, planning, laplace)


def importing() -> str:
    """The slowest imports, cumulative microseconds."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import dpcvx"], capture_output=True, text=True
    )
    lines = [line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2]
    slow = sorted((line for line in lines[1:]), key=lambda line: -int(line[1]))
    return "\n".join(f"{int(own[12:]):>9} {int(total):>9} {name}" for own, total, name in slow[:60])


def main() -> None:
    """Print the profiles that are asked for, or all."""
    asked = sys.argv[1:] or [*(make.__name__ for make in PROFILES), importing.__name__]
    for make in PROFILES:
        if make.__name__ not in asked:
            continue
        run = make()
        profile = cProfile.Profile(time.process_time)
        profile.runcall(run)
        print(f"== {make.__name__}: {make.__doc__}")
        pstats.Stats(profile).sort_stats("tottime").print_stats(_LINES)
    if importing.__name__ in asked:
        print(f"== {importing.__name__}: own and cumulative microseconds")
        print(importing())


if __name__ == "__main__":
    main()
