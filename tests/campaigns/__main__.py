"""Run campaigns in full and print what they found."""

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import tests.campaigns as here
from tests.nightly import keep

NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(here.__path__)
    if module.name not in ("__main__", "colluders", "on_ranks", "runs", "tally", "wires")
    and not module.name.startswith("test_")
)


def main(arguments: list[str] | None = None) -> int:
    """Run the named campaigns; the exit code says whether every claim held."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="all if omitted")
    parser.add_argument("--size", type=int, help="number of trials; the full number if omitted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=Path, help="file to which counts are appended")
    asked = parser.parse_args(arguments)
    broken = 0
    for name in asked.names or NAMES:
        module = importlib.import_module(f"tests.campaigns.{name}")
        tally = module.campaign(asked.size or module.FULL, asked.seed)
        print(f"{name}: {tally}", flush=True)
        broken += bool(tally.faults)
        row = (name, float(tally.counts.total()), "trials", not tally.faults)
        keep(asked.rows, "campaigns", [row])
    return broken


if __name__ == "__main__":
    sys.exit(main())
