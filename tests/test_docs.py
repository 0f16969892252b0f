"""Code in README and docs runs and prints what they say; `make examples` runs the scripts."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounting import Composition

from . import pages

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = pages.README.read_text()
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")


def scope_of(page, block=0):
    """Run one block of a page by itself, and return the names that it leaves."""
    scope = {}
    exec(compile(pages.blocks((DOCS / page).read_text())[block].code, page, "exec"), scope)
    return scope


def test_the_readmes_answer_is_near_the_optimum_that_it_states():
    scope = {}
    exec(compile(pages.blocks(README)[0].code, "README.md", "exec"), scope)
    assert scope["plan"].guarantee.epsilon == pytest.approx(1.0)
    # The median gap of 400 seeds is 0.0124. That of 40 is within these bounds but with
    # probability 0.05.
    runs = [scope["plan"].run(seed=seed).solution for seed in range(40)]
    gaps = [dp.not_private.objective(scope["problem"], solution) - 0.5 for solution in runs]
    assert 0.0075 < np.median(gaps) < 0.03
    assert "the optimum is flow 0.50 and gen 2.5 and 4" in " ".join(README.split())
    dp.not_private.joint_problem(scope["problem"]).solve()
    assert scope["flow"].value == pytest.approx(0.5, abs=1e-5)
    assert scope["gen"].value == pytest.approx([2.5, 4.0], abs=1e-5)


def test_the_readme_has_at_most_800_words():
    assert 600 <= len(README.split()) <= 800


@pytest.mark.parametrize("page", pages.pages(), ids=lambda path: path.stem)
def test_the_code_on_a_page_prints_what_stands_beneath_it(page):
    text = page.read_text()
    for block, printed in zip(pages.blocks(text), pages.run(page), strict=True):
        if block.printed is not None:
            assert printed == block.printed, "make printed writes the pages anew"


def test_pages_are_written_anew_where_they_show_what_is_printed():
    text = "a\n```python\nprint(1)\n```\n\n```text\n2\n```\n```python\nprint(3)\n```\nb\n"
    assert [block.printed for block in pages.blocks(text)] == ["2\n", None]
    assert pages.written_anew(text, ["1\n", "3\n"]) == text.replace("\n2\n", "\n1\n")


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference" / "index.md").read_text()
    listed = re.findall(r"^(?:   )?(\w+)$", text, re.M)
    public = set(dp.__all__)
    assert public <= set(listed), public - set(listed)
    assert len(set(listed) & public) == sum(name in public for name in listed)  # once each


def test_cross_validation_in_the_docs_keeps_within_its_budgets():
    scope = scope_of("privacy/composition.md")
    training, scores = (dp.Ledger.load(scope[name])["clinic"] for name in ("training", "scores"))
    assert len(training.entries) == 2 * 4 * 5 and len(scores.entries) == 2
    # 40 Gaussian releases of multiplier 15, and 2 Laplace ones of epsilon 1 / 4.
    gaussian = Composition().with_gaussian(15.0, 40).price(1e-6).epsilon
    assert training.spent().epsilon == pytest.approx(gaussian, rel=1e-9) and gaussian < 3.0
    assert scores.spent().epsilon == pytest.approx(0.5, rel=1e-9)
    assert scope["best"] in scope["errors"]


def test_split_noise_in_the_docs_has_the_pairs_that_are_stated():
    text = (DOCS / "guides" / "secure_aggregation.md").read_text()
    scope = scope_of("guides/secure_aggregation.md")
    assert f"{scope['plan'].guarantee.against_all_others:.2f} for ten" in text
    mu2 = Composition().with_gaussian(scope["plan"].agents[0].noise.multiplier, 10).mu2
    for parties, name in ((3, "three agents"), (5, "five"), (50, "fifty")):
        alone = Composition(mu2=mu2 * (parties - 1)).price(1e-6).epsilon
        assert f"{alone:.2f} for {name}" in " ".join(text.split())


def test_private_recourse_in_the_docs_keeps_the_private_limits(capsys):
    text = (DOCS / "guides" / "recourse.md").read_text()
    scope = scope_of("guides/recourse.md")
    assert (scope["mine"]["gen"] <= [2.5 + 1e-7, 4.5 + 1e-7]).all()
    assert str(scope["mine"]) in capsys.readouterr().out
    quoted = scope["result"].guarantee.assumptions[-1]
    assert f'"{quoted}"' in " ".join(text.split())


def test_prior_knowledge_in_the_docs_is_said_in_the_guarantee(capsys):
    text = (DOCS / "guides" / "forecasts.md").read_text()
    scope = scope_of("guides/forecasts.md")
    (quoted,) = re.findall(r'# "(.*)"', text)
    assert quoted in " ".join(capsys.readouterr().out.split())
    assert scope["plan"].published


def test_private_constraints_in_the_docs_have_the_margin_that_is_quoted(capsys):
    text = (DOCS / "guides" / "private_constraints.md").read_text()
    scope = scope_of("guides/private_constraints.md")
    (quoted,) = re.findall(r'# "(Constraint.*)"', text)
    assert quoted in capsys.readouterr().out
    assert scope["result"].status is dp.Status.COMPLETED


def test_the_method_in_the_docs_keeps_the_promises_of_methods(monkeypatch):
    text = (DOCS / "guides" / "extending.md").read_text()
    code, server, query, suite = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)  # where pickle looks for its classes
    suite = suite.replace("MyADMM()", 'MyADMM(), instances=["power line"]')
    for part in (code, server, query, suite):
        exec(compile(part, "extending.md", "exec"), vars(page))
    (checks,) = [mark.args[1] for mark in page.test_my_method.pytestmark]
    assert len(checks) == 13
    for check in checks:
        page.test_my_method(check)
    method = page.AveragedSteps()
    for check in dp.testing.check_method(method, rounds=None, instances=["power line"]):
        check()
    asked = page.GradientNorm(np.array([3.0, 4.0]))
    objective = types.SimpleNamespace(gradient=lambda x: x)
    assert asked.evaluate(objective) == 5.0 and asked.size(2) == 1


def test_the_gallery_has_every_example_with_pictures():
    text = (ROOT / "docs" / "gallery.md").read_text()
    for name in EXAMPLES:
        assert f"examples.{name}" in text or f"examples/{name}.py" in text
        if "add_plot(" in (ROOT / "examples" / f"{name}.py").read_text():
            assert f":img-top: gallery/{name}.png" in text
    for shown in re.findall(r":img-top: (\S+)", text):
        assert (ROOT / "docs" / shown).stat().st_size < 60_000


def test_commands_of_the_readme_are_targets():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", README):
        assert f"\n{target}:" in makefile


def test_options_of_the_power_flow_page_exist(capsys):
    from problems.power_flow.cli import main

    with pytest.raises(SystemExit):
        main(["--help"])
    known = capsys.readouterr().out
    page = (DOCS / "guides" / "power_flow.md").read_text()
    options = set(re.findall(r"(?<!-)--[a-z][a-z-]+", page))
    assert len(options) > 15
    for option in options:
        assert option in known
