"""The README's examples run as printed, and it names every script; `make examples` runs them."""

import re
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")


def test_the_readmes_examples_run_one_after_the_other():
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.S):
        exec(compile(code, "README.md", "exec"), scope)
    assert scope["flow"].value is not None
    assert scope["gen"].value.shape == (2,)
    assert scope["result"].guarantee.epsilon == pytest.approx(1.0)
    assert f"```\n{scope['result'].guarantee}\n```" in README


def test_the_method_in_the_docs_keeps_the_promises_of_methods(monkeypatch):
    text = (ROOT / "docs" / "methods.md").read_text()
    code, suite = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)  # where pickle looks for its classes
    for part in (code, suite.replace("MyADMM()", 'MyADMM(), instances=["power line"]')):
        exec(compile(part, "methods.md", "exec"), vars(page))
    (checks,) = [mark.args[1] for mark in page.test_my_method.pytestmark]
    assert len(checks) == 13
    for check in checks:
        page.test_my_method(check)


def test_the_readme_names_every_example_and_command():
    for name in EXAMPLES:
        assert f"examples/{name}.py" in README
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile


def test_the_options_of_the_readmes_commands_exist(capsys):
    from problems.power_flow.cli import main

    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    for line in re.findall(r"python -m problems\.power_flow (.*)", README):
        for option in re.findall(r"--[a-z-]+", line):
            assert option in known
