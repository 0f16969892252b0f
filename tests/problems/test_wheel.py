"""A wheel has the case studies under a name of their own, and their command runs from there."""

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import problems
from problems.power_flow.cli import main

FOLDER = Path(problems.__file__).parent


def test_case_studies_do_not_know_their_own_name():
    """In a wheel it is another one."""
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            level = getattr(node, "level", 0)
            assert level or not any(name.split(".")[0] == "problems" for name in named), path


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """A folder with what a wheel of this checkout would install."""
    pytest.importorskip("hatchling", reason="builds a wheel: pip install '.[test]'")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=FOLDER.parent, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_a_wheel_has_two_packages_and_no_tests(unpacked):
    names = {path.name for path in unpacked.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"dpcvx", "dpcvx_problems"}
    assert (unpacked / "dpcvx" / "figures.mplstyle").exists()
    assert (unpacked / "dpcvx_problems" / "power_flow" / "cases" / "LICENSE").exists()
    assert not list(unpacked.rglob("__pycache__"))


def test_the_readmes_command_runs_from_a_wheel(unpacked, tmp_path, capsys):
    command = [sys.executable, "-m", "dpcvx_problems.power_flow", "--case", "3", "--central"]
    env = {**os.environ, "PYTHONPATH": str(unpacked)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    main(["--case", "3", "--central"])
    assert done.stdout == capsys.readouterr().out
    (usage,) = subprocess.run(
        [*command[:3], "--help"], cwd=tmp_path, env=env, capture_output=True, text=True
    ).stdout.splitlines()[:1]
    assert usage.startswith("usage: python -m dpcvx_problems.power_flow ")
