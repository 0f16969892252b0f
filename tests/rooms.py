"""The rooms of the package, from the files: who imports whom, and the picture of it.

``python -m tests.rooms`` prints the picture that stands in ``CONTRIBUTING.md``, and
``python -m tests.rooms --guarantee`` the files that a guarantee rests on, with their lines. With
``--guarantee examples/first_model.py`` it lists what this program enters in these files. A
reviewer of its guarantee reads these functions, and the texts and constants of their modules. The
program runs twice, as it is and without its seeds: noise of the second run is drawn as in
production. A ~ marks functions that no run enters before its last release, so nothing in them
changes what is released or charged.
"""

import ast
import copy
import functools
import io
import re
import runpy
import sys
import textwrap
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import networkx as nx

import dpcvx as dp
from dpcvx.run.gate import PrivacyGate

PACKAGE = Path(dp.__file__).parent
# Top to bottom: what stands here imports only what stands below it. First the files that users and
# authors of methods import, then the rooms.
TOP = ("__main__", "problem", "extend", "typing", "mpi")
ROOMS = (
    "tuning", "testing", "owners", "run", "defaults", "plan",
    "algorithms", "sensitivity", "solvers", "privacy", "model",
)  # fmt: skip
# Advice, and all that computes on data of its own: no guarantee rests on these.
ADVICE = ("", "tuning", "testing", "defaults", "problem", "extend", "typing")
# What derives, prices, charges, perturbs and refuses; a guarantee rests on what these import.
DERIVES = (
    "plan.draft", "run.gate", "run.private_oracle", "run.public_oracle", "run.part",
    "sensitivity", "privacy",
)  # fmt: skip
# Below all rooms.
GROUND = ("_arguments", "_events", "_figure", "_words", "guard", "errors")


def room_of(name):
    """The room of a module, "" for the package itself, "ground" for the files below all rooms."""
    first = name.split(".")[0]
    return "ground" if first in GROUND else first


@functools.cache
def modules(package=PACKAGE):
    """Syntax trees by the module's name below the package; a package's own is its folder's."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = (path, ast.parse(path.read_text()))
    return found


def imported(name, path, tree):
    """Absolute dotted names that a module imports, anywhere in it, types and deferred ones too."""
    inside = name.split(".") if name else []
    package = ["dpcvx", *(inside if path.name == "__init__.py" else inside[:-1])]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


@functools.cache
def imports(package=PACKAGE):
    """Every pair of a module and a dotted name that it imports."""
    return tuple(
        (name, line)
        for name, (path, tree) in modules(package).items()
        for line in imported(name, path, tree)
    )


def graph(package=PACKAGE, lines=None):
    """Files of the package and which of them imports which: of all imports, or of these lines."""
    edges = nx.DiGraph()
    edges.add_nodes_from(modules(package))
    for name, line in imports(package) if lines is None else lines:
        if line.startswith("dpcvx"):
            target = line.removeprefix("dpcvx").removeprefix(".")
            while target not in edges:  # a name in a file
                target = target.rpartition(".")[0]
            if target != name:
                edges.add_edge(name, target)
    return edges


def faults(package=PACKAGE):
    """What breaks the order of the rooms, in words."""
    edges = graph(package)
    order = ["", *TOP, *ROOMS, "ground"]
    unknown = sorted({room_of(n) for n in edges} - set(order))
    found = [f"{name} is no room: add it to the order, or move it" for name in unknown]
    for name, target in sorted(edges.edges):
        here, there = room_of(name), room_of(target)
        if here in order and there in order and order.index(there) < order.index(here):
            found.append(f"{name} imports {target}, which stands above it")
    for cycle in nx.strongly_connected_components(edges):
        if len(cycle) > 1:
            found.append(f"{', '.join(sorted(cycle))} import each other in a circle")
    return found


class _Computed(ast.NodeVisitor):
    """Names that code computes with, which annotations alone do not."""

    def __init__(self):
        self.names = set()

    def visit_Name(self, node):
        self.names.add(node.id)

    def visit_arg(self, node):
        pass

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node):
        defaults = [value for value in node.args.kw_defaults if value is not None]
        for part in (*node.decorator_list, *node.args.defaults, *defaults, *node.body):
            self.visit(part)


def computed(name, path, tree):
    """As `imported`, without names that stand in annotations alone."""
    visitor = _Computed()
    visitor.visit(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            used = [a for a in node.names if (a.asname or a.name).split(".")[0] in visitor.names]
            if used:
                part = copy.copy(node)
                part.names = used
                yield from imported(name, path, ast.Module([part], []))


def rests_on(package=PACKAGE, imports_of=computed):
    """Modules that a guarantee rests on: what derives it, and all that this imports.

    `imports_of` lists what a module imports; by default without what it needs for types alone.
    """
    lines = tuple(
        (n, line) for n, (p, tree) in modules(package).items() for line in imports_of(n, p, tree)
    )
    edges = graph(package, lines)
    first = [n for n in edges if any(n == d or n.startswith(f"{d}.") for d in DERIVES)]
    reached = {*first, *(target for n in first for target in nx.descendants(edges, n))}
    return sorted(name for name in reached if _has_code(*modules(package)[name]))


def _has_code(path, tree):
    """Whether a file is more than a package that names its parts."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return path.name != "__init__.py" or any(isinstance(node, kinds) for node in tree.body)


def length(name, package=PACKAGE):
    """Lines of a module."""
    return len(modules(package)[name][0].read_text().splitlines())


def guarantee(package=PACKAGE):
    """The files that a guarantee rests on, with their lines, by room; and a total."""
    names, rows = rests_on(package), []
    for room in (*reversed(ROOMS), "ground"):
        files = {name: length(name, package) for name in names if room_of(name) == room}
        if files:
            rows.append(f"{sum(files.values()):6} {room}")
        for name, lines in files.items():
            path = modules(package)[name][0].relative_to(package.parent)
            rows.append(f"{lines:6}   {path.as_posix()}")
    total = sum(length(name, package) for name in names)
    return "\n".join([*rows, f"{total:6} lines in {len(names)} of {len(modules(package))} files"])


@contextmanager
def unseeded():
    """Runs that leave out their seeds: their noise comes from the operating system."""
    run = dp.Plan.run

    def without_seed(*arguments, seed=None, **named):
        return run(*arguments, **named)

    dp.Plan.run = without_seed
    try:
        yield
    finally:
        dp.Plan.run = run


# Stands in a list of what is entered where a release of private data ends.
RELEASED = ("released", 0)


@contextmanager
def entering(package=PACKAGE):
    """A list of file and first line of each function of the package that is entered, in order."""
    entered, release = [], PrivacyGate.release.__code__

    def look(frame, event, _):
        code = frame.f_code
        if event == "return" and code is release:
            entered.append(RELEASED)
        if event == "call" and code.co_filename.startswith(str(package)):
            if code.co_name != "<module>":  # an import
                entered.append((code.co_filename, code.co_firstlineno))

    sys.setprofile(look)
    try:
        yield entered
    finally:
        sys.setprofile(None)


def functions(tree, inside=""):
    """Names, first and last lines of functions and methods in a file; not those within others."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{inside}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield f"{inside}{node.name}", first, node.end_lineno


def before_releases(entered):
    """What is entered before the last release, in order; all of it without a release."""
    last = max((k for k, what in enumerate(entered) if what == RELEASED), default=len(entered))
    return entered[:last]


def to_read(*runs, package=PACKAGE):
    """What runs enter in the files that a guarantee rests on, with lines; and a total."""
    rows, total, files, after = [], 0, 0, 0
    entered = {what for run in runs for what in run}
    before = {what for run in runs for what in before_releases(run)}
    for name in sorted(
        rests_on(package), key=lambda n: [*reversed(ROOMS), "ground"].index(room_of(n))
    ):
        path, tree = modules(package)[name]
        lines = {line for file, line in entered if file == str(path)}
        early = {line for file, line in before if file == str(path)}
        parts = [
            (what, first, last, any(first <= line <= last for line in early))
            for what, first, last in functions(tree)
            if any(first <= line <= last for line in lines)
        ]
        if parts:
            count = sum(last - first + 1 for _, first, last, _ in parts)
            total, files = total + count, files + 1
            after += sum(last - first + 1 for _, first, last, needed in parts if not needed)
            rows.append(f"{count:6}   {path.relative_to(package.parent).as_posix()}")
            rows += [
                f"       {' ' if needed else '~'} {first:4}-{last:<4} {what}"
                for what, first, last, needed in parts
            ]
    return "\n".join(
        [
            *rows,
            f"{total:6} lines of functions in {files} files",
            f"{after:6} lines of these, marked by ~, run after the last release alone",
        ]
    )


def walked(text):
    """Pairs of a file and a name in it that the walks of ``CONTRIBUTING.md`` go through."""
    return re.findall(r"^\* `(dpcvx/[^`]*\.py)` `([^`]*)`: ", text, re.MULTILINE)


def exists(file, name, package=PACKAGE):
    """Whether a file has a class, a function or a method of this name, as ``Class.method``."""
    path = package.parent / file
    found = [ast.parse(path.read_text())] if path.exists() else []
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        inside = [node for tree in found for node in tree.body if isinstance(node, kinds)]
        found = [node for node in inside if node.name == part]
    return bool(found)


def picture(package=PACKAGE):
    """Rooms top to bottom, what each is for, and which rooms below it imports.

    Lines of rooms that a guarantee rests on begin with +, which ``diff`` shows in another color.
    """
    edges = graph(package)
    lines, rests = [], rests_on(package)
    for room in (*TOP, *ROOMS):
        tree = modules(package)[room][1]
        what = (ast.get_docstring(tree) or "").splitlines()[0].rstrip(".")
        used = {room_of(t) for n, t in edges.edges if room_of(n) == room} - {room, "ground"}
        below = ", ".join(r for r in ROOMS if r in used)
        text = f"{what}" + (f"  -> {below}" if below else "")
        some = sum(room_of(name) == room for name in rests)
        every = sum(room_of(n) == room for n in modules(package) if n != room)
        mark = "+ " if some else "  "
        if some:
            text += f". {some} of {every} files" if some < every else ". All files"
        lines.append(
            textwrap.fill(f"{mark}{room:<14}{text}", 100, subsequent_indent=mark + " " * 14)
        )
    files = ", ".join(f"{name}.py" for name in GROUND)
    return "\n".join([*lines, f"+ {'(files)':<14}{files}"])


def main(arguments):
    """Print what was asked for."""
    match arguments:
        case ["--guarantee", program]:
            with entering() as seeded:
                runpy.run_path(program, run_name="__main__")
            with unseeded(), redirect_stdout(io.StringIO()), entering() as fresh:
                runpy.run_path(program, run_name="__main__")
            print(to_read(seeded, fresh))
        case ["--guarantee"]:
            print(guarantee())
        case _:
            print(picture())


if __name__ == "__main__":
    main(sys.argv[1:])
