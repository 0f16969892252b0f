"""Record plans, or compare two checkouts on this machine bit by bit.

``python -m tests.golden`` writes ``plans.jsonl`` and ``texts.txt`` anew: what plans say and derive,
which no processor changes. ``--check`` lists which plans differ from them instead.
``--against COMMIT`` runs every case in this checkout and in one of the commit, with both kernels of
local steps, and lists what differs.
"""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.cases import cases
from tests.golden.record import digest, equal, planned, ran

ROOT = Path(__file__).parents[2]
PLANS = Path(__file__).with_name("plans.jsonl")
TEXTS = Path(__file__).with_name("texts.txt")
# Where a paragraph of a plan's text begins: a row, or a point of a list.
_PARAGRAPH = re.compile(r"\n(?=\S|  \S| +- )")
# Importing numba fails in these processes, so that numpy takes the local steps.
_WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None; "
_RUNS = "from tests.golden.__main__ import print_runs; print_runs()"


def write() -> None:
    """Record all plans anew: a line per case, whose paragraphs stand in a file of their own."""
    paragraphs: dict[str, str] = {}
    lines = []
    for case in cases():
        said = planned(case)
        texts = _PARAGRAPH.split(said.pop("text"))
        names = [digest(text.encode())[:8] for text in texts]
        paragraphs.update(zip(names, texts, strict=True))
        lines.append(json.dumps({"case": str(case), **said, "text": " ".join(names)}))
    _write(PLANS, "\n".join(lines))
    _write(TEXTS, "\n".join(f"== {name}\n{paragraphs[name]}" for name in paragraphs))


def _write(path: Path, content: str) -> None:
    path.write_text(content + "\n", encoding="utf-8", newline="\n")


def recorded() -> dict[str, dict[str, Any]]:
    """By case, what `planned` returned when it was recorded."""
    blocks = TEXTS.read_text(encoding="utf-8").removesuffix("\n").removeprefix("== ")
    paragraphs = dict(block.split("\n", 1) for block in blocks.split("\n== "))
    plans = {}
    for line in PLANS.read_text(encoding="utf-8").splitlines():
        plan = json.loads(line)
        plan["text"] = "\n".join(paragraphs[name] for name in plan["text"].split())
        plans[plan.pop("case")] = plan
    return plans


def check() -> int:
    """How many plans differ from the recorded ones; prints which, and in what."""
    known = recorded()
    differing = 0
    for case in cases():
        said, before = json.loads(json.dumps(planned(case))), known[str(case)]
        if changed := [what for what in before if not equal(said.get(what), before[what])]:
            differing += 1
            print(f"{case}: {', '.join(changed)}")
    print(f"{len(known) - differing} plans equal, {differing} differ")
    return differing


def print_runs() -> None:
    """Print a line per case: its name, and digests of its run."""
    for case in cases():
        print(json.dumps([str(case), ran(case)]), flush=True)


def start(checkout: Path, kernel: str) -> "subprocess.Popen[str]":
    """Run every case by the package of a checkout, and the cases of this one."""
    code = f"import sys; sys.path[:0] = [{str(checkout)!r}]; import dpcvx; {_RUNS}"
    if kernel == "numpy":
        code = _WITHOUT_NUMBA + code
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tempfile.gettempdir(),
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def digests(process: "subprocess.Popen[str]") -> dict[str, dict[str, str]]:
    """By case, digests of its run."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return dict(json.loads(line) for line in output.splitlines())


def compare(commit: str) -> int:
    """How many cases differ from those of a commit; prints what differs."""
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "checkout"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run(
            [*git, "add", "--detach", str(other), commit], check=True, capture_output=True
        )
        try:
            for kernel in ("numba", "numpy"):
                before, now = map(digests, [start(other, kernel), start(ROOT, kernel)])
                tally: collections.Counter[str] = collections.Counter()
                for name, said in now.items():
                    changed = [what for what in said if before[name].get(what) != said[what]]
                    tally["differ" if changed else "equal"] += 1
                    if changed:
                        print(f"{kernel}: {name}: {', '.join(changed)}")
                compared = sum(map(len, now.values()))
                print(f"{kernel}: {tally['equal']} cases equal, {tally['differ']} differ")
                print(f"{kernel}: {compared} digests compared")
                differing += tally["differ"]
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)
    return differing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit, bit by bit")
    parser.add_argument("--check", action="store_true", help="compare with what is recorded")
    options = parser.parse_args()
    if options.against:
        raise SystemExit(bool(compare(options.against)))
    raise SystemExit(bool(check()) if options.check else write())
