"""Run campaigns in full and print what they found."""

import argparse
import importlib
import pkgutil
import sys

import tests.campaigns as here

NAMES = sorted(
    module.name
    for module in pkgutil.iter_modules(here.__path__)
    if module.name not in ("__main__", "on_ranks", "runs", "tally")
    and not module.name.startswith("test_")
)


def main() -> int:
    """Run the named campaigns; the exit code says whether every claim held."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="all if omitted")
    parser.add_argument("--size", type=int, help="number of trials; the full number if omitted")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    broken = 0
    for name in asked.names or NAMES:
        module = importlib.import_module(f"tests.campaigns.{name}")
        tally = module.campaign(asked.size or module.FULL, asked.seed)
        print(f"{name}: {tally}", flush=True)
        broken += bool(tally.faults)
    return broken


if __name__ == "__main__":
    sys.exit(main())
