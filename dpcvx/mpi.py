"""Entry point for scripts under MPI: ``mpiexec -n 4 python -m dpcvx.mpi study.py [arguments]``.

Rank 0 runs the script, and its ``plan.run(executor=dp.MPI())`` places agents; the other ranks serve
it. It exists for MPI's launchers, which start the same program everywhere.
"""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

from .run.executors.mpi import serve


def main(arguments: list[str]) -> None:
    """Run a script on rank 0, and serve it on all others.

    Parameters
    ----------
    arguments : list of str
        The script's path, and what it is passed.
    """
    if not arguments:
        raise SystemExit("usage: mpiexec -n 4 python -m dpcvx.mpi study.py [arguments]")
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).absolute().parent))  # as python does for scripts
    serve(partial(runpy.run_path, arguments[0], run_name="__main__"))


if __name__ == "__main__":
    main(sys.argv[1:])
