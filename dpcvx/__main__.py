"""``python -m dpcvx``: the command ``dpcvx``."""

import sys

from .errors import SolverError
from .solvers.newton import compile_ahead


def main() -> int:
    """Run the command, or print the package that it needs; return the exit code."""
    try:
        from .owners.cli import main as run
    except ModuleNotFoundError as error:
        if sys.argv[1:] == ["warm"]:  # this command needs no package of dpcvx[owners]
            return _warm()
        sys.stderr.write(f"{error}\n")
        return 1
    return run()


def _warm() -> int:
    try:
        sys.stdout.write(f"{compile_ahead()}\n")
    except SolverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
