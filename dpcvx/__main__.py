"""``python -m dpcvx``: the command ``dpcvx``."""

import sys


def main() -> int:
    """Run the command, or say what has to be installed for it."""
    try:
        from .owners.cli import main as run
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return run()


if __name__ == "__main__":
    raise SystemExit(main())
