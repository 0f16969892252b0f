r"""Compare dpcvx with its nearest peers on the same problems, in one run.

Nothing is downloaded without ``--install``.

    python -m tests.benchmarks.peers                              # dpcvx and the privacy table
    python -m tests.benchmarks.peers --envs DIR --install         # downloads the peers into DIR
    python -m tests.benchmarks.peers --envs DIR                   # with those found in DIR
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import convergence, environments, instances, privacy, report

PROBLEMS = {"box": instances.box, "cones": instances.cones}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers")
    parser.add_argument("--envs", type=Path, metavar="DIR", help="the peers' environments")
    parser.add_argument("--install", action="store_true", help="create missing ones; downloads")
    parser.add_argument("--parts", nargs="*", default=["features", *PROBLEMS, "privacy"])
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--variables", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0, 30.0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run")
    options = parser.parse_args(arguments)
    if options.install and options.envs is None:
        parser.error("--install needs --envs DIR")

    def progress(text: str) -> None:
        print(f"... {text}", file=sys.stderr, flush=True)

    if options.install:
        for peer in environments.PEERS:
            if not environments.installed(peer, options.envs):
                progress(f"installing {peer.name}")
                try:
                    environments.install(peer, options.envs)
                except environments.PeerFailed as error:
                    print(f"{peer.name} does not install: {error}")
    print(
        f"{datetime.date.today()}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; {options.agents} agents, {options.variables} variables"
    )
    if "features" in options.parts:
        print(f"\n{report.feature_table()}")
    for name, make in PROBLEMS.items():
        if name not in options.parts:
            continue
        rows = convergence.rows(
            make(options.agents, options.variables),
            environments.PEERS,
            options.envs,
            rounds=options.rounds,
            rhos=options.rho,
            repeats=options.repeats,
            timeout=options.timeout,
            progress=progress,
        )
        print(f"\n{report.convergence_table(name, rows, 'dpcvx, exact steps')}")
        print(report.versions(rows), flush=True)
    if "privacy" in options.parts:
        inst = instances.box(options.agents, options.variables)
        best, _ = instances.optimum(inst)
        nothing = (inst.objective(np.zeros(options.variables)) - best) / best
        schemes = list(privacy.schemes(inst))
        lines = list(privacy.lines(inst, options.seeds, schemes, progress))
        print(f"\n{report.privacy_table(lines, options.seeds, nothing)}")


if __name__ == "__main__":
    main()
