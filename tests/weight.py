"""How much there is to read: ``make weight`` prints it beside the figures of the last commit.

``tests/weight.json`` keeps the last figures; ``python -m tests.weight --write`` writes them anew.
No test holds them: they show a reviewer what a change adds or removes.
"""

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from pathlib import Path

import cvxpy as cp
import numpy as np

import dpcvx as dp
from tests.rooms import PACKAGE, entering

ROOT = Path(__file__).parent.parent
LAST_FIGURES = ROOT / "tests" / "weight.json"
FOLDERS = ("dpcvx", "problems", "examples", "tests")
# Classes that hold an objective in one of its forms. A form that is renamed or new is added here.
FORMS = {
    "NormalForm", "Atom", "Combination", "Term", "Bilinear", "Quadratic", "Curvature",
    "Weights", "Contributions", "RecordRows", "Ranges", "Range",
    "ContributionSizes",
    "Sensitivity", "Evaluator", "BoundObjective", "Argument", "Section", "Given", "Clipped",
    "StackedObjective", "OneByOne", "ConeData", "PrivateConstraint", "Tightened",
    "Parts", "Model", "Lines", "Publication", "Moments",
}  # fmt: skip


def lines(path):
    """Lines of a file by kind: code, docstrings, comments, blank.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Counter
    """
    text = path.read_text()
    kinds = dict.fromkeys(range(1, len(text.splitlines()) + 1), "blank")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        first, last = token.start[0], token.end[0]
        if token.type == tokenize.COMMENT:
            if token.line.lstrip().startswith("#"):
                kinds[first] = "comments"
        elif token.string.strip():
            kinds.update(dict.fromkeys(range(first, last + 1), "code"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            if ast.get_docstring(node):
                doc = node.body[0]
                kinds.update(dict.fromkeys(range(doc.lineno, doc.end_lineno + 1), "docstrings"))
    return Counter(kinds.values())


def classes(folder):
    """Names of all classes in a folder, each as often as it is defined."""
    trees = [ast.parse(path.read_text()) for path in folder.rglob("*.py")]
    return Counter(n.name for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ClassDef))


def walk(work):
    """Return how many functions and files of the package a call enters, and changes of the file.

    Parameters
    ----------
    work : callable
        Takes nothing.

    Returns
    -------
    dict
        Keys: functions, files, changes of the file.
    """
    with entering() as entered:
        work()
    files = [file for file, _ in entered]
    changes = sum(file != last for last, file in zip([None, *files], files, strict=False))
    return {
        "functions": len({*entered}),
        "files": len({*files}),
        "changes of the file": changes,
    }


def walks():
    """The walks of a plan and of its run, for two agents of which one has private data."""
    flow, made = cp.Variable(name="flow"), cp.Variable(name="made", nonneg=True)
    load = dp.Private(np.linspace(0.2, 1.0, 12), name="load", adjacency=dp.Within(0.1))
    mismatch = cp.Minimize(cp.sum_squares(made + flow - cp.sum(load)))
    problem = dp.Problem(
        [
            dp.Agent(mismatch, [made <= 20, cp.abs(flow) <= 15], name="north"),
            dp.Agent(cp.Minimize(cp.square(flow)), [cp.abs(flow) <= 12], name="south"),
        ]
    )
    plans = []
    planned = walk(lambda: plans.append(problem.plan(epsilon=1.0, delta=1e-6)))
    return {"plan": planned, "run": walk(lambda: plans[0].run(verbose=False))}


def weigh():
    """All figures.

    Returns
    -------
    dict
        Of folder, "classes", "forms" and "walks", with numbers below.
    """
    figures = {}
    for name in FOLDERS:
        paths = sorted((ROOT / name).rglob("*.py"))
        total = sum(map(lines, paths), Counter())
        figures[name] = {"files": len(paths), **{k: total[k] for k in sorted(total)}}
    figures["dpcvx"]["docstring lines per line of code"] = round(
        figures["dpcvx"]["docstrings"] / figures["dpcvx"]["code"], 3
    )
    names = classes(PACKAGE)
    figures["classes"] = {
        "all": names.total(),
        "names that stand twice": sum(count > 1 for count in names.values()),
        "forms of an objective": sum(count for n, count in names.items() if n in FORMS),
    }
    return figures | {f"walk of a {k}": v for k, v in walks().items()}


def printed(now, before):
    """A table of two sets of figures."""
    rows = [f"{'':<44}{'last':>10}{'now':>10}"]
    for group, figures in now.items():
        rows.append(group)
        old = before.get(group, {})
        rows += [f"  {k:<42}{old.get(k, '-'):>10}{v:>10}" for k, v in figures.items()]
    return "\n".join(rows)


def main():
    """Print the figures, and write them if asked to."""
    parser = argparse.ArgumentParser(prog="tests.weight", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the figures in weight.json")
    write = parser.parse_args().write
    now = weigh()
    print(printed(now, json.loads(LAST_FIGURES.read_text()) if LAST_FIGURES.exists() else {}))
    if write:
        LAST_FIGURES.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    main()
