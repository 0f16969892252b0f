"""``python -m tests.benchmarks.utility [--short] [--seeds N] [--only MODEL ...] [--search]``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.nightly import keep as keep_rows

from .by_hand import Setting
from .measure import DELTA, EPSILONS, SHORT, measure
from .models import MODELS
from .report import HEAD, keep, line, missed, summary
from .search import search


def main() -> int:
    """Measure, print, judge; the exit code tells whether a requirement is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.utility")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), metavar="MODEL",
                        help=", ".join(MODELS))  # fmt: skip
    parser.add_argument("--short", action="store_true", help="small models, ten seeds each")
    parser.add_argument("--search", action="store_true",
                        help="find the settings by hand again, on the true data")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=30, help="runs that are judged")
    parser.add_argument("--rows", type=Path, help="file to which ratios are appended")
    given = parser.parse_args()
    names = given.only or (SHORT if given.short else tuple(MODELS))
    seeds, seconds = (10, 5.0) if given.short else (given.seeds, 60.0)
    rows = []
    if not given.search:
        print(HEAD, flush=True)
    for name in names:
        for epsilon in EPSILONS:
            started = time.perf_counter()
            if given.search:
                keep(name, epsilon, _best(name, epsilon))
            else:
                rows.append(measure(name, epsilon, seeds, seconds))
                print(line(rows[-1]), flush=True)
            print(f"  {name}, {epsilon:g}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if given.search:
        return 0
    print(summary(rows))
    lost = missed(rows)
    kept = [
        (f"{row.model}, epsilon {row.epsilon:g}, {kind}", row.ratio(getattr(row, kind)), "x", True)
        for row in rows
        for kind in ("default", "tuned")
    ]
    keep_rows(given.rows, "utility", [*kept, ("requirements missed", len(lost), "", not lost)])
    print("\n".join(["", *lost] if lost else ["", "all requirements hold"]))
    return 1 if lost else 0


def _best(name: str, epsilon: float) -> list[Setting]:
    """The three best, so that luck of the search is judged again, and the best without a clip."""
    found = [each.setting for each in search(name, epsilon, DELTA)]
    without = [setting for setting in found if setting.clip is None]
    return list(dict.fromkeys([*found[:3], *without[:1]]))


if __name__ == "__main__":
    sys.exit(main())
