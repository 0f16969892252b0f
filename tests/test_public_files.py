"""What a public forge reads: every command in its files is a target of the Makefile."""

import re
import tomllib
from pathlib import Path

import pytest

from tests import changes, machines

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
COMMANDS = [*WORKFLOWS, ROOT / ".readthedocs.yaml", ROOT / ".pre-commit-config.yaml"]


def targets():
    """Names of the Makefile's targets."""
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_forge_commands_are_targets_of_the_makefile(path):
    text = path.read_text()
    named = listed("target", text) | set(re.findall(r"\bmake ([a-z]+)\b(?!-)", text))
    assert named and named <= targets()


def listed(key, text):
    """Names in the matrices of a workflow."""
    matrices = ",".join(re.findall(rf"{key}: \[(.*)\]", text))
    return {name.strip() for name in matrices.split(",") if name.strip()}


def test_every_other_machine_is_a_target_and_the_job_of_a_workflow():
    (line,) = re.findall(r"^MACHINES := (.*\\\n.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert line.replace("\\", "").split() == [*machines.SETTINGS]
    jobs = [listed("machine", path.read_text()) for path in WORKFLOWS]
    assert set().union(*jobs) == machines.SETTINGS.keys()
    assert sum(map(len, jobs)) == len(machines.SETTINGS)


def test_files_of_other_machines_exist():
    assert all((ROOT / name).is_file() for name in machines.READING)


def test_a_machine_that_is_not_here_is_said_and_fails_where_it_was_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(machines, "found", lambda uv, version: None)
    assert machines.main(["next"]) == 1
    assert "next  NOT RUN, no environment of Python 3.14" in capsys.readouterr().out
    monkeypatch.setattr(machines, "SETTINGS", {"next": machines.SETTINGS["next"]})
    assert machines.main(["--all"]) == 0


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


def test_each_change_names_its_kind_and_says_something():
    for path in changes.fragments():  # raises for a name without a kind
        text = path.read_text()
        assert 20 <= len(text) <= 600, path.name
        assert not text.startswith(("#", "-")), path.name


def test_notes_begin_with_privacy(tmp_path):
    (tmp_path / "b-change.added.md").write_text("Two\nlines.\n")
    (tmp_path / "a-change.privacy.md").write_text("More noise.\n")
    assert changes.notes(tmp_path) == "### Privacy\n\n- More noise.\n\n### Added\n\n- Two lines."


@pytest.mark.parametrize("name", ["words.md", "words.unknown.md", "Two Words.fixed.md"])
def test_a_change_without_a_kind_is_refused(name, tmp_path):
    (tmp_path / name).write_text("Something is different.\n")
    with pytest.raises(ValueError, match=r"NAME\.KIND\.md"):
        changes.fragments(tmp_path)


def test_release_notes_are_short_and_begin_with_privacy():
    text = (ROOT / "CHANGELOG.md").read_text()
    newest = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    assert re.findall(r"^### (.*)$", newest, re.MULTILINE)[0] == "Privacy"
    assert len(newest.splitlines()) <= 60
