"""What importing the package takes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from .measure import Effort, Row, shown

_TIMED = "import time; s = time.process_time(); import {0}; print(time.process_time() - s)"


def importing(effort: Effort) -> list[Row]:
    """The package against cvxpy, each in new processes."""
    seconds = {"dpcvx": np.inf, "cvxpy": np.inf}
    for _ in range(effort.repeats):
        for name in seconds:
            done = subprocess.run(
                [sys.executable, "-c", _TIMED.format(name)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            seconds[name] = min(seconds[name], float(done.stdout))
    ours, theirs = seconds.values()
    note = f"{shown(ours)} against {shown(theirs)}"
    return [Row("import dpcvx", "import cvxpy", "", ours / theirs, 1.5, note=note)]
