"""``python -m dpcvx``: the command ``dpcvx``."""

from .owners.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
