"""Faults that are planted in a module, and the tests that notice them.

``python -m tests.mutation sensitivity.norms`` changes one thing at a time in a copy of the tree: it
turns comparisons around, swaps operators, drops a minimum, changes a constant, returns an argument
early. Each fault meets the module's own tests, and those of its neighbors if these notice nothing.
Printed are faults that nobody notices, faults that neighbors alone notice, and cases that notice
the same faults as many others. A fault that changes no value, such as a faster path that is not
taken, goes unnoticed rightly. mutmut and cosmic-ray stop at the first case that fails, so they
cannot tell which cases notice the same, nor which file a fault is noticed in. ``--quick`` stops
there as well, in a fraction of the time. ``tests/mutation.json`` keeps the last counts and, with
the reason, faults that change no value; these are not planted again.
"""

import argparse
import ast
import json
import math
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.nightly import keep

ROOT = Path(__file__).parent.parent
LAST_COUNTS = ROOT / "tests" / "mutation.json"
COPIED = ("dpcvx", "tests", "problems", "examples", "docs")
# Each child imports the package anew, and finds these there already.
SHARED = ("cvxpy", "hypothesis", "pytest", "dp_accounting", "mpmath", "networkx", "scs", "rich")
# Assertions of plugins that are imported already stay as they are.
IMPORTED = "ignore::pytest.PytestAssertRewriteWarning"
OPPOSITE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Pow: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
# Calls that go: one of their arguments takes their place.
DROPPED = {"min", "max", "minimum", "maximum", "abs", "sqrt", "ceil", "floor", "nextafter", "clip"}


@dataclass(frozen=True)
class Fault:
    """One change of a module."""

    line: int
    before: str
    after: str
    text: str  # the whole module, changed

    @property
    def planted(self):
        """The line that has the fault."""
        return self.text.splitlines()[self.line - 1].strip()

    def __str__(self):
        """Line and change."""
        return f"line {self.line}: {self.before}  ->  {self.after}"


def changes(node):
    """Nodes that may take the place of a node by mistake."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITE:
            yield ast.Compare(node.left, [OPPOSITE[type(operator)]()], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in OPPOSITE:
            yield ast.BinOp(node.left, OPPOSITE[type(operator)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(OPPOSITE[type(node.op)](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(
                node.value + 1 if isinstance(node.value, int) else 2 * node.value or 1.0
            )
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in DROPPED:
            yield from [a for a in node.args if not isinstance(a, ast.Starred)][:2]
            if name in ("min", "max") and isinstance(node.func, ast.Attribute) and not node.args:
                other = ast.Attribute(node.func.value, {"min": "max", "max": "min"}[name])
                yield ast.Call(other, node.args, node.keywords)


def sites(node):
    """Nodes below a node that may be changed, without texts, types, imports and messages."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            skipped = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)
            if isinstance(child, ast.AST) and not isinstance(child, skipped):
                yield child
                yield from sites(child)


def faults_of(text):
    """Return all faults that can be planted in a module's text, in the order of its lines."""
    lines, faults = text.encode().splitlines(keepends=True), []
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def planted(node, first, last, after):
        changed = (text.encode()[:first] + after.encode() + text.encode()[last:]).decode()
        before = " ".join(text.encode()[first:last].decode().split())
        faults.append(Fault(node.lineno, before, after.strip(), changed))

    for node in sites(ast.parse(text)):
        if isinstance(node, ast.expr):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[node.end_lineno - 1] + node.end_col_offset
            for other in changes(node):
                planted(node, first, last, f"({ast.unparse(other)})")
        elif isinstance(node, ast.FunctionDef):
            names = [a.arg for a in node.args.args if a.arg not in ("self", "cls")]
            body = node.body[1:] if ast.get_docstring(node) else node.body
            returns = [n for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
            if names and returns and body and not isinstance(body[0], ast.Return):
                first = starts[body[0].lineno - 1] + body[0].col_offset
                indent = " " * body[0].col_offset
                planted(body[0], first, first, f"return {names[0]}\n{indent}")
    return sorted(faults, key=lambda fault: fault.line)


def own_tests(name, root=ROOT):
    """Test files of a module: in its room's folder, under its name or one that begins with it."""
    room, *inside = name.split(".")
    folder = root / "tests" / (room if inside else "")
    names = {p.stem for p in (root / "dpcvx" / (room if inside else "")).iterdir()}
    files = {}
    for path in sorted(folder.glob("test_*.py")):
        stem = path.stem.removeprefix("test_")
        owners = [n for n in names if stem == n or stem.startswith(f"{n.lstrip('_')}_")]
        files[path.relative_to(root).as_posix()] = max(owners, key=len, default=None)
    return [path for path, owner in files.items() if owner in {*inside, room}]


def neighbor_tests(name):
    """Test files that import a module, and those of modules that import it."""
    from tests.rooms import graph, imported

    users = [f for user in sorted(graph().predecessors(name)) for f in own_tests(user)]
    files = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree, whole = ast.parse(path.read_text()), f"dpcvx.{name}"
        if any(f"{line}.".startswith(f"{whole}.") for line in imported("", path, tree)):
            files.append(path.relative_to(ROOT).as_posix())
    beside = [f for f in dict.fromkeys([*files, *users]) if f not in own_tests(name)]
    return sorted(beside, key=lambda file: file.split("/")[1] != name.split(".")[0])


class Outcomes:
    """Cases as they end, written as they do."""

    def __init__(self, path):
        self.file = path.open("w")

    def pytest_runtest_logreport(self, report):
        """Keep a phase that failed, and each call."""
        if report.when == "call" or report.failed:
            row = [report.nodeid, not report.failed, report.duration]
            print(json.dumps(row), file=self.file, flush=True)


def tried(tree, tests, seconds, options=()):
    """Run tests in a copy of the tree, in a process of its own.

    Parameters
    ----------
    tree : Path
    tests : list of str
    seconds : float
        The process ends after that.
    options : tuple of str
        Of pytest.

    Returns
    -------
    dict
        Of cases that ended: whether they passed, and seconds. "the file" stands for what cannot be
        collected, "the end" for what did not come to one.
    """
    report, child = tree / "outcomes", os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir(tree)
            sink = os.open(tree / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1), os.dup2(sink, 2)
            for name in [n for n in sys.modules if n.split(".")[0] in ("dpcvx", "tests")]:
                del sys.modules[name]
            sys.path[:] = [str(tree), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
            os.environ["PYTHONPATH"] = str(tree)
            import pytest

            flags = [
                "-q",
                "--no-header",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-W",
                IMPORTED,
                *options,
            ]
            code = pytest.main([*flags, *tests], plugins=[Outcomes(report)])
        except BaseException:
            traceback.print_exc()
            code = 3
        os._exit(int(code))
    last, code = time.monotonic() + seconds, None
    while code is None and time.monotonic() < last:
        ended, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if ended else time.sleep(0.02)
    if code is None:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    cases = {name: (passed, duration) for name, passed, duration in rows}
    if code is None:
        cases["the end"] = (False, seconds)
    elif code not in (0, 1) or (code == 1 and all(passed for passed, _ in cases.values())):
        cases["the file"] = (False, 0.0)
    report.unlink(missing_ok=True)
    return cases


def written(path, text):
    """Write a module, so that nobody takes the bytecode of another text for its own."""
    path.write_text(text)
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def planted_in(name, tree, asked, last):
    """Plant faults in a module, print who notices them, and return the counts.

    `last` are the counts of an earlier run, with the faults that change no value.
    """
    path = (tree / "dpcvx").joinpath(*name.split(".")).with_suffix(".py")
    text, its_tests, others = path.read_text(), own_tests(name), neighbor_tests(name)
    every = faults_of(text)
    chosen = random.Random(asked.seed).sample(every, min(asked.faults, len(every)))
    clean = tried(tree, its_tests, math.inf) if its_tests else {}
    broken = [case for case, (passed, _) in clean.items() if not passed]
    if broken:
        print(f"{name}: without a fault fails {', '.join(broken)}")
        return last
    patience = 10 + 5 * sum(duration for _, duration in clean.values())
    seen, counts, equal = defaultdict(set), Counter(), last.get("equal", {})
    options = ("-x",) if asked.quick else ()
    for fault in sorted(chosen, key=lambda fault: fault.line):
        if fault.planted in equal:
            counts["equal"] += 1
            continue
        written(path, fault.text)
        outcomes = tried(tree, its_tests, patience, options)
        failed = [case for case, (passed, _) in outcomes.items() if not passed]
        for case in failed:
            seen[case].add(fault)
        who = "own"
        if not failed:
            beside = tried(tree, others, asked.seconds, ("-x",)) if others else {}
            failed = [c for c, (passed, _) in beside.items() if not passed and c != "the end"]
            who = f"neighbors alone notice ({failed[0]})" if failed else "nobody notices"
            print(f"  {who} {fault}", flush=True)
        counts[who.split()[0]] += 1
    written(path, text)
    groups = defaultdict(Counter)
    for case in clean:
        groups[frozenset(seen[case])][case.partition("[")[0].rpartition("::")[2]] += 1
    for faults, functions in () if asked.quick else groups.items():
        for function, count in functions.items():
            if count >= asked.cases:
                print(f"  {count} cases of {function} notice the same {len(faults)} faults")
    else_noticed = f"{counts['neighbors']} by neighbors alone, {counts['nobody']} by nobody"
    noticed = (
        f"{counts['own']} noticed by its {len(clean)} cases, {counts['equal']} change no value"
    )
    print(
        f"{name}: of {len(every)} faults {len(chosen)} planted; {noticed}, {else_noticed}",
        flush=True,
    )
    now = {who: counts[who] for who in ("own", "neighbors", "nobody", "equal")}
    now = {"faults": len(every), "planted": len(chosen)} | {"counts": now, "equal": equal}
    if last:
        print(f"{name}: at the last count {last['counts']} of {last['planted']}", flush=True)
    share = 1 - counts["nobody"] / max(len(chosen), 1)
    keep(asked.rows, "mutation", [(name, share, "of the faults noticed", True)])
    return now


def main(arguments=None):
    """Plant faults in the modules named, and print who notices what."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="+", help="names below dpcvx, as sensitivity.norms")
    parser.add_argument("--faults", type=int, default=60, help="in each module, at most")
    parser.add_argument("--seconds", type=float, default=40.0, help="for neighbors, per fault")
    parser.add_argument("--cases", type=int, default=8, help="that notice the same, to be listed")
    parser.add_argument("--seed", type=int, default=0, help="which faults are drawn")
    parser.add_argument("--rows", type=Path, help="file to which shares are appended")
    parser.add_argument("--quick", action="store_true", help="stop at the first case that notices")
    parser.add_argument("--write", action="store_true", help="keep the counts in mutation.json")
    asked = parser.parse_args(arguments)
    last = json.loads(LAST_COUNTS.read_text()) if LAST_COUNTS.exists() else {}
    for name in SHARED:
        __import__(name)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, symlinks=True)
        for path in ROOT.glob("*.*"):
            if path.is_file():
                shutil.copy2(path, tree)
        for name in asked.modules:
            name = name.removeprefix("dpcvx/").removesuffix(".py").replace("/", ".")
            last[name] = planted_in(name, tree, asked, last.get(name, {}))
    if asked.write:
        LAST_COUNTS.write_text(json.dumps(last, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
