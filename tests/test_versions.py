"""The environments that tests run in are those that ``pyproject.toml`` promises."""

import ast
import re
import sys
import tomllib

import pytest

from tests import versions
from tests.conftest import spread

PROJECT = tomllib.loads((versions.ROOT / "pyproject.toml").read_text())["project"]
# What users install for more than the core; what modules behind them import.
EXTRAS = [
    line
    for name in ("dask", "fast", "mpi", "nvflare", "owners")
    for line in PROJECT["optional-dependencies"][name]
]


def test_every_promised_python_is_tried():
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    newest = [e.python for e in versions.ENVIRONMENTS.values() if e.resolution == "highest"]
    assert newest == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert versions.ENVIRONMENTS["lowest"].python == promised[0]


def test_what_is_imported_is_declared():
    """A library that is there because another one needs it may be gone tomorrow."""
    declared, extras = (
        {re.split(r"[<>=\[]", line)[0].replace("-", "_") for line in lines}
        for lines in (PROJECT["dependencies"], EXTRAS)
    )
    found = set()
    for path in (versions.ROOT / "dpcvx").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.split(".")[0])
    # Whoever runs code in a notebook has IPython, which shows its progress there.
    own = {"__future__", "dpcvx", "tests", "problems", "IPython"}
    found = found - set(sys.stdlib_module_names) - own
    assert declared <= found <= declared | extras


def test_quick_tests_exist():
    assert all((versions.ROOT / name).exists() for name in versions.QUICK)


def test_a_missing_interpreter_is_said_and_fails(monkeypatch, capsys):
    monkeypatch.setattr(versions, "uv_program", lambda: "uv")
    monkeypatch.setattr(versions, "found", lambda uv, version: None)
    assert versions.main(["3.12", "--quick"]) == 1
    assert "3.12: NOT RUN, there is no Python 3.12 here" in capsys.readouterr().out


def test_types_are_shipped():
    assert (versions.ROOT / "dpcvx" / "py.typed").exists()


@pytest.mark.parametrize(("count", "most", "chosen"), [(1, 2, [0]), (4, 2, [1, 3])])
def test_cases_of_a_family_are_spread_evenly(count, most, chosen):
    assert spread(range(count), most) == chosen
