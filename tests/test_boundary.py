"""The rooms and the boundary around private data. Widening a set below is a privacy review."""

import ast
import inspect

import pytest

from dpcvx.algorithms.base import Algorithm
from tests.rooms import PACKAGE, ROOMS, faults, imported, imports, modules, picture

# What is guarded -> rooms and files that may import it, each of which does.
IMPORTERS = {
    "dpcvx.run.oracle": {"run", "verify"},
    "dpcvx.run.oracle.PrivateOracle": {"run.loop"},
    "dpcvx.run.oracle.ReleaseGate": {
        "run.loop",
        "verify.check",
    },  # check: its own, for made-up data
    "dpcvx.run.oracle.publish": {"run.loop"},
    "dpcvx.run.oracle.published": {"run.loop"},
    "dpcvx.run.oracle.read": {"verify"},
    "dpcvx.model.private.unseal": {"run.oracle"},
    "dpcvx.model.private.source_of": {"run.loop", "verify.not_private"},
    "dpcvx.verify": {"", "problem", "verify"},
    "dpcvx.verify.exposure": {"verify.not_private"},  # replays along private gradients
    "dpcvx.verify.not_private": {"", "verify.compare"},  # compare: on stand-in data
    "dpcvx.verify.worst_neighbour": {"verify.check"},
    # algorithms.network: seeded random graphs, which are public.
    "dpcvx.privacy.noise": {"privacy", "run", "verify", "algorithms.network"},
    "dpcvx.privacy.noise.rounded_normal": {"privacy.mechanism"},
    "dpcvx.privacy.noise.rounded_laplace": {"privacy.mechanism"},
    "dpcvx.privacy.noise.source_for": {"run.loop", "verify"},
    "numpy.random": set(),
    "random": set(),
    "secrets": set(),
    "os.urandom": set(),  # reached as an attribute, see below
    "clarabel": {"solvers.conic"},
    "daqp": {"solvers.active_set"},
    "scs": {"solvers.conic"},
    "cvxpy.atoms": {"model.layout"},
    "cvxpy.reductions": set(),
    "logging": set(),
}
# Attribute -> rooms and files that may touch it, each of which does.
TOUCHERS = {
    "_seal": {"model.private"},
    "bind": {
        "run.oracle",
        "model.normal_form",
        "verify.not_private",
        "verify.worst_neighbour",  # for check and audit only
        "sensitivity.private_weights",  # unit data, which are public
        "sensitivity.rehearsal",  # made-up data, which it writes itself
    },
    "default_rng": set(),
    "random": {"privacy.noise"},
    "Philox": {"privacy.noise"},
    "SeedSequence": {"privacy.noise"},
    "Generator": set(),
    "urandom": {"privacy.noise"},
    "get_problem_data": {"model.canonical"},
}
# Room -> what no file in it may import.
FORBIDDEN = {
    "algorithms": (
        "dpcvx.model.private", "dpcvx.privacy.mechanism", "dpcvx.privacy.accounts",
        "dpcvx.privacy.ledger", "dpcvx.sensitivity.release_once", "os",
    ),
}  # fmt: skip


def test_rooms_import_only_what_stands_below_and_no_files_form_a_circle():
    assert faults() == []


def test_there_are_at_most_nine_rooms():
    assert len(ROOMS) <= 9
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"} < {*ROOMS}


@pytest.fixture
def house(tmp_path):
    """A package of two rooms in order."""
    files = {
        "__init__": "from .run import loop",
        "run/__init__": '"""Above."""',
        "run/loop": "from ..model import layout",
        "run/report": "",
        "model/__init__": '"""Below."""',
        "model/layout": "import numpy",
    }

    def build(changes):
        for name, text in {**files, **changes}.items():
            path = tmp_path / "dpcvx" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "dpcvx"

    return build


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("run/report", "", None),
        ("model/layout", "from ..run import loop", "model.layout imports run.loop, which"),
        ("model/layout", "from ..run.loop import f", "model.layout imports run.loop, which"),
        ("model/layout", "def f():\n    import dpcvx.run.loop", "model.layout imports run.loop"),
        (
            "model/layout",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..run.loop import f",
            "model.layout imports run.loop, which",
        ),
        ("model/layout", "from ..run import word", "model.layout imports run, which"),
        ("model/layout", "from .. import run", "model.layout imports run, which"),
        ("attic/box", "", "attic is no room"),
        ("model/layout", "from . import other", "model.layout, model.other import each other"),
    ],
)
def test_the_check_of_rooms_finds_what_breaks_their_order(house, file, text, fault):
    found = faults(house({file: text, "model/other": "from . import layout"}))
    assert found == [] if fault is None else any(line.startswith(fault) for line in found)


def test_contributing_draws_the_rooms_as_they_are():
    drawn = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    assert picture() in drawn, "python -m tests.rooms prints the picture that belongs there"


def covered(found, allowed):
    """Whether the modules are those of the rooms and files, and each of these has one."""
    by = {name: [a for a in allowed if name == a or name.startswith(f"{a}.")] for name in found}
    assert all(by.values()), {name for name, rules in by.items() if not rules}
    unused = allowed - {rule for rules in by.values() for rule in rules}
    assert not unused, f"no longer needed: {unused}"


@pytest.mark.parametrize("target", IMPORTERS)
def test_only_listed_rooms_import(target):
    found = {n for n, line in imports() if line == target or line.startswith(target + ".")}
    inside = target.removeprefix("dpcvx.")
    covered(found - {inside}, IMPORTERS[target])


@pytest.mark.parametrize("attribute", TOUCHERS)
def test_only_listed_rooms_touch(attribute):
    found = {
        name
        for name, (_, tree) in modules().items()
        if any(isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(tree))
    }
    covered(found, TOUCHERS[attribute])


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_that_know_neither_data_nor_noise(room):
    for name, line in imports():
        if name.startswith(f"{room}."):
            assert not any(line == f or line.startswith(f"{f}.") for f in FORBIDDEN[room]), (
                name,
                line,
            )


def test_an_agents_turn_takes_an_oracle_and_nothing_private():
    assert list(inspect.signature(Algorithm.act).parameters) == [
        "self", "local", "state", "t", "k", "message", "oracle",
    ]  # fmt: skip


def test_no_module_logs_or_prints_on_its_own():
    for name, (path, tree) in modules().items():
        calls = {
            n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and hasattr(n.func, "id")
        }
        assert "print" not in calls, name
        assert "logging" not in set(imported(name, path, tree)), name
