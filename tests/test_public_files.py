"""What a public forge reads: every command in its files is a target of the Makefile."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMANDS = [*WORKFLOWS, ROOT / ".readthedocs.yaml", ROOT / ".pre-commit-config.yaml"]


def targets():
    """Names of the Makefile's targets."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_forge_commands_are_targets_of_the_makefile(path):
    text = path.read_text()
    matrices = ",".join(re.findall(r"target: \[(.*)\]", text))
    named = {name.strip() for name in matrices.split(",") if name.strip()}
    named |= set(re.findall(r"\bmake ([a-z]+)", text))
    assert named and named <= targets()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_nothing_but_targets(path):
    for command in re.findall(r"- run: (.*)", path.read_text()):
        assert command.startswith("make "), command


def test_all_targets_are_phony():
    text = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert set(phony.split()) == targets()


def test_license_metadata_names_files_that_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0 AND CC-BY-4.0"
    assert all((ROOT / name).is_file() for name in project["license-files"])


def test_matrix_has_the_lowest_python_that_is_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pythons,) = re.findall(r"python: \[(.*)\]", (ROOT / ".github/workflows/ci.yml").read_text())
    lowest = project["requires-python"].removeprefix(">=")
    assert pythons.split(", ")[0] == f'"{lowest}"'
