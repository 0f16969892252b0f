"""The rooms of the package: their order, their number, and their picture."""

import ast
from collections import Counter

import cvxpy as cp
import pytest

import dpcvx as dp
from dpcvx.privacy.randomness import Secure
from tests.rooms import (
    PACKAGE,
    RELEASED,
    ROOMS,
    entering,
    exists,
    faults,
    guarantee,
    imported,
    modules,
    picture,
    rests_on,
    to_read,
    unseeded,
    walked,
)


def test_rooms_import_only_what_stands_below_and_no_files_form_a_circle():
    assert faults() == []


def test_there_are_at_most_twelve_rooms():
    assert len(ROOMS) <= 12
    assert {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"} == {*ROOMS}


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


def test_a_class_name_exists_once():
    names = Counter(
        node.name
        for _, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_the_files_that_a_guarantee_rests_on_follow_from_what_derives_it(house):
    files = {
        "plan/__init__": '"""Above."""',
        "plan/draft": "from ..model import layout\nfrom ..model.types import T\n\n"
        "def f(x: T):\n    layout.g(x)",
        "model/layout": "from ..errors import E\n\ndef g(x):\n    raise E",
        "model/types": "class T:\n    pass",
        "errors": "class E(Exception):\n    pass",
    }
    package = house(files)
    assert rests_on(package) == ["errors", "model.layout", "plan.draft"]
    assert "model.types" in rests_on(package, imported)
    lines = guarantee(package).splitlines()
    assert "     4   dpcvx/model/layout.py" in lines
    assert lines[-1] == f"    11 lines in 3 of {len(modules(package))} files"


def test_a_reviewer_reads_what_a_program_enters_in_these_files(house):
    files = {
        "plan/__init__": '"""Above."""',
        "plan/draft": "from ..model import layout\n\n@staticmethod\ndef f(x):\n    layout.g(x)",
        "model/layout": "class C:\n    def m(self):\n        return 1\n\ndef g(x):\n    raise x",
        "run/loop": "def h():\n    pass",
    }
    package = house(files)
    path = {name: str(package / f"{name}.py") for name in files}
    f, method, loop = (path["plan/draft"], 3), (path["model/layout"], 2), (path["run/loop"], 1)
    for runs, mark, after in [
        (([f, loop, method],), " ", 0),  # nothing was released
        (([f, RELEASED, loop, method],), "~", 2),
        (([f, RELEASED, method], [f, method, RELEASED]), " ", 0),
        (([f, RELEASED, method, RELEASED], [f, loop, RELEASED, method]), " ", 0),
    ]:
        assert to_read(*runs, package=package).splitlines() == [
            "     2   dpcvx/model/layout.py",
            f"       {mark}    2-3    C.m",
            "     3   dpcvx/plan/draft.py",
            "            3-5    f",
            "     5 lines of functions in 2 files",
            f"{after:6} lines of these, marked by ~, run after the last release alone",
        ]


def test_a_reviewer_reads_what_draws_noise_without_a_seed():
    x, d = cp.Variable(), dp.Private(1.0, name="d", adjacency=dp.Within(1.0))
    agent = dp.Agent(cp.Minimize(cp.square(x - d)), [cp.abs(x) <= 9], name="a")
    plan = dp.Problem([agent]).plan(mechanism="laplace", epsilon=10.0, delta=1e-6)
    seeded = [plan.run(seed=1, verbose=False).solution[x] for _ in range(2)]
    with unseeded(), entering() as entered:
        fresh = plan.run(seed=1, verbose=False).solution[x]
    assert seeded[0] == seeded[1] != fresh
    code = Secure.at.__code__
    assert (code.co_filename, code.co_firstlineno) in entered
    assert plan.run(seed=1, verbose=False).solution[x] == seeded[0]


def test_what_a_call_enters_is_seen():
    kind = dp.Within
    with entering() as entered:
        kind(1.0)
    code = kind.__post_init__.__code__
    assert (code.co_filename, code.co_firstlineno) in entered


def test_the_walks_of_contributing_name_files_and_functions_that_exist():
    steps = walked((PACKAGE.parent / "CONTRIBUTING.md").read_text())
    assert len(steps) > 30
    assert [step for step in steps if not exists(*step)] == []


@pytest.mark.parametrize(
    ("file", "name", "there"),
    [
        ("dpcvx/run/gate.py", "PrivacyGate.uniform", True),
        ("dpcvx/run/gate.py", "PrivacyGate.nothing", False),
        ("dpcvx/run/gate.py", "uniform", False),
        ("dpcvx/run/door.py", "PrivacyGate", False),
    ],
)
def test_a_step_of_a_walk_that_names_nothing_is_found(file, name, there):
    assert walked(f"* `{file}` `{name}`: what it does.") == [(file, name)]
    assert exists(file, name) is there


def strays(package, tests):
    """Tests of a room that begin with the name of no file in it."""
    found = []
    for room in ROOMS:
        names = [path.stem.lstrip("_") for path in (package / room).glob("*") if path.stem]
        found += [
            f"{room}/{path.name}"
            for path in (tests / room).glob("test_*.py")
            if not any(f"{path.stem}_".startswith(f"test_{name}_") for name in names)
        ]
    return found


def test_the_tests_of_a_file_stand_where_it_does():
    assert strays(PACKAGE, PACKAGE.parent / "tests") == []


def test_a_test_in_another_room_than_its_file_is_found(house, tmp_path):
    package, tests = house({}), tmp_path / "tests" / "run"
    tests.mkdir(parents=True)
    for name in ("test_loop.py", "test_loop_twice.py", "test_layout.py", "test_loops.py"):
        (tests / name).touch()
    assert sorted(strays(package, tests.parent)) == ["run/test_layout.py", "run/test_loops.py"]
