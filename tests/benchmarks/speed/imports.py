"""What importing the package takes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from .measure import Effort, Row, shown

# Seconds in which an owner that was killed is back, nearly all of which its imports take.
_BACK = 3.0
_TIMED = "import time; s = time.process_time(); import {0}; print(time.process_time() - s)"


def importing(effort: Effort) -> list[Row]:
    """The package and an owner's command against cvxpy, each in new processes."""
    seconds = {"dpcvx": np.inf, "cvxpy": np.inf, "dpcvx.owners.cli": np.inf}
    for _ in range(effort.repeats):
        for name in seconds:
            done = subprocess.run(
                [sys.executable, "-c", _TIMED.format(name)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            seconds[name] = min(seconds[name], float(done.stdout))
    ours, theirs, command = seconds.values()
    note = f"{shown(ours)} against {shown(theirs)}"
    return [
        Row("import dpcvx", "import cvxpy", "", ours / theirs, 1.5, note=note),
        Row("start of an owner's command", "", "", command, _BACK, "s", f"cvxpy {shown(theirs)}"),
    ]
