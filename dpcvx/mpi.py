"""Entry point for scripts under MPI: ``mpiexec -n 4 python -m dpcvx.mpi study.py [arguments]``.

Rank 0 runs the script; its ``plan.run(executor=dp.MPI())`` places agents on the other ranks, which
wait for requests. MPI's launchers start one program on all ranks, so this module is that program.
"""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

from .run.executors.cluster import serve


def main(arguments: list[str]) -> None:
    """Run a script on rank 0, and serve its requests on all other ranks.

    Parameters
    ----------
    arguments : list of str
        Path of the script, and its arguments.
    """
    if not arguments:
        raise SystemExit("usage: mpiexec -n 4 python -m dpcvx.mpi study.py [arguments]")
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).absolute().parent))  # as Python does for scripts
    serve(partial(runpy.run_path, arguments[0], run_name="__main__"))


if __name__ == "__main__":
    main(sys.argv[1:])
