"""``python -m problems.power_flow``."""

from problems.power_flow.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
