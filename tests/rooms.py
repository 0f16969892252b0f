"""The rooms of the package, from the files: who imports whom, and the picture of it.

``python -m tests.rooms`` prints the picture that stands in ``CONTRIBUTING.md``.
"""

import ast
import functools
import textwrap
from pathlib import Path

import networkx as nx

import dpcvx as dp

PACKAGE = Path(dp.__file__).parent
# Top to bottom: what stands here imports only what stands below it. First the files that users and
# authors of methods import, then the rooms.
TOP = ("__main__", "problem", "extend", "mpi")
ROOMS = (
    "verify", "owners", "run", "defaults", "plan",
    "algorithms", "sensitivity", "solvers", "privacy", "model",
)  # fmt: skip
# Below all rooms.
GROUND = ("_arguments", "_card", "_figure", "_words", "guard", "errors")


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


def graph(package=PACKAGE):
    """Files of the package and which of them imports which."""
    edges = nx.DiGraph()
    edges.add_nodes_from(modules(package))
    for name, line in imports(package):
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


def picture(package=PACKAGE):
    """Rooms top to bottom, what each is for, and which rooms below it imports."""
    edges = graph(package)
    lines = []
    for room in (*TOP, *ROOMS):
        tree = modules(package)[room][1]
        what = (ast.get_docstring(tree) or "").splitlines()[0].rstrip(".")
        used = {room_of(t) for n, t in edges.edges if room_of(n) == room} - {room, "ground"}
        below = ", ".join(r for r in ROOMS if r in used)
        text = f"{what}" + (f"  -> {below}" if below else "")
        indent = " " * 14
        lines.append(textwrap.fill(f"{room:<14}{text}", 100, subsequent_indent=indent))
    return "\n".join([*lines, f"{'(files)':<14}{', '.join(f'{name}.py' for name in GROUND)}"])


if __name__ == "__main__":
    print(picture())
