"""``python -m tests.benchmarks.speed [--only NAME ...] [--quick] [--update]``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.nightly import keep

from . import (
    clusters,
    exact_steps,
    executors,
    fleets,
    growth,
    imports,
    memory,
    newton,
    owners,
    planning,
    predicted,
    records,
    report,
    rounds,
    runs,
    scale,
    steps,
)
from .measure import Effort, Row

BENCHMARKS: tuple[Callable[[Effort], list[Row]], ...] = (
    steps.conic_step,
    steps.conic_step_cvxpy,
    newton.newton_step,
    newton.newton_long,
    newton.newton_constant,
    newton.newton_unseen,
    newton.newton_run,
    newton.newton_accuracy,
    newton.newton_elsewhere,
    steps.polyhedral_step,
    steps.closed_form_step,
    exact_steps.exact_step,
    exact_steps.semidefinite_step,
    steps.gradient,
    records.records,
    records.public_features,
    runs.private_run,
    runs.whole_problems,
    rounds.rounds,
    executors.two_cores,
    executors.threads,
    clusters.exchanges,
    clusters.travelling,
    clusters.coordinator,
    clusters.sums,
    clusters.ledgers,
    clusters.weak_scaling,
    planning.planning,
    planning.unlike_agents,
    planning.first_run,
    imports.importing,
    memory.private_matrix,
    memory.rounds_kept,
    growth.agents,
    growth.rounds,
    growth.networks,
    scale.scale,
    predicted.predicted,
    fleets.fleets,
    owners.owner_start,
    owners.owner_round,
    owners.coordinator_message,
)


def main() -> int:
    """Measure, print, compare; the exit code tells whether a ratio was lost."""
    names = [benchmark.__name__ for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.speed")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=", ".join(names))  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller sizes")
    parser.add_argument("--update", action="store_true", help="commit the ratios of this run")
    parser.add_argument("--rows", type=Path, help="file to which ratios are appended")
    given = parser.parse_args()
    effort = Effort(repeats=3, quick=True) if given.quick else Effort()
    known = report.committed()
    rows: list[Row] = []
    print(report.machine(), flush=True)
    try:
        for benchmark in BENCHMARKS:
            if benchmark.__name__ not in given.only:
                continue
            started = time.perf_counter()
            found = benchmark(effort)
            rows += found
            print(f"  {benchmark.__name__}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
            if given.update:  # at once: a long run may be interrupted
                report.commit(found)
    finally:  # what was measured until then
        print(report.table(rows, known), flush=True)
    missed = [row for row in rows if row.passed is False]
    losses = [row for row in rows if report.lost(row, known)]
    kept = [
        (row.name, row.measured, row.unit, row.passed is not False and row not in losses)
        for row in rows
    ]
    keep(given.rows, "bench", kept)
    judged = sum(row.passed is not None for row in rows)
    print(f"{judged - len(missed)} of {judged} requirements met")
    for row in losses:
        print(f"lost more than 20 %: {row.name}, {row.measured:.3g} after {known[row.name].ratio}")
    return 1 if losses and not given.update else 0


if __name__ == "__main__":
    sys.exit(main())
