"""No refutation of a paper stands without the paper's hypotheses at its numbers."""

import ast
import inspect
import math
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

import dpcvx as dp
from problems import refutations as package
from problems.nonconvex_classification.theory import Parameters
from problems.refutations import PAPERS, Hypothesis, Refutation, close, less, ou, refutations

DOCS = Path(__file__).parent.parent.parent / "docs" / "papers"
ALL = [(paper, made) for paper in PAPERS for made in refutations(paper)]


@pytest.mark.parametrize(("paper", "made"), ALL, ids=lambda v: getattr(v, "claim", None))
def test_refutation_prints_every_hypothesis_beside_what_it_concludes(paper, made):
    text = " ".join(str(made).split())
    assert made.hypotheses and all(own.holds for own in made.hypotheses)
    assert text.count("holds:") == len(made.hypotheses)
    for own in made.hypotheses:
        assert own.text in text
    for value in (made.stated_value, made.computed_value):
        assert f"{value:.4g}" in text and math.isfinite(value)
    assert (made.computed_value > made.stated_value) == made.above
    assert made.computed_value != made.stated_value


@pytest.mark.parametrize("paper", PAPERS)
def test_every_refutation_of_a_module_is_listed_and_shown_on_the_page(paper):
    module = import_module(f"problems.refutations.{PAPERS[paper]}")
    functions = {
        name for name, thing in inspect.getmembers(module, inspect.isfunction)
        if name.endswith("_fails") and thing.__module__ == module.__name__
    }  # fmt: skip
    listed = inspect.getsource(module.all_of_them)
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    for name in functions:
        assert f"{name}()" in listed, name
        assert f"{PAPERS[paper]}.{name}(" in pages, name
    assert len(refutations(paper)) == len(functions)


def test_hypotheses_are_computed_and_not_asserted():
    """No constant stands where a hypothesis is checked."""
    for path in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Hypothesis":
                assert not isinstance(node.args[1], ast.Constant), ast.unparse(node)


def refutation(**changes):
    fields = {"claim": "Theorem 0", "hypotheses": (less("a", 1.0, "b", 2.0),), "stated": "at most",
              "stated_value": 1.0, "computed": "it is", "computed_value": 2.0}  # fmt: skip
    return Refutation(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hypotheses": (less("a", 2.0, "b", 1.0),)}, "says nothing about this case: a = 2 < b"),
        ({"hypotheses": ()}, "no hypothesis"),
        ({"computed_value": 0.5}, "stands in this case"),
        ({"above": False}, "stands in this case"),
        ({"computed_value": math.nan}, "stands in this case"),
        ({"hypotheses": (less("a", math.nan, "b", 1.0),)}, "says nothing"),
        ({"hypotheses": (close("a", 1.1, 1.0),)}, "says nothing"),
        ({"hypotheses": (Hypothesis("f is convex", False),)}, "f is convex does not hold"),
    ],
)
def test_refutation_outside_the_hypotheses_or_without_contradiction_is_refused(changes, message):
    assert "computed: it is 2" in str(refutation())
    with pytest.raises(dp.ModelError, match=message):
        refutation(**changes)


def test_theorem_1_with_the_parameters_once_printed_is_refused():
    """rho = 1, where (25) asks for more than 2.73 whatever c_theta and gamma are."""
    for values in ((0.34, 0.0392), (0.06, 1.2e-5), (2 - math.sqrt(3), 1e-9)):
        with pytest.raises(dp.ModelError, match=r"\(25\): rho = 1 > xi_"):
            ou.theorem_1_fails(Parameters(0.05, 0.02, 1.0, *values), 100)
    with pytest.raises(dp.ModelError, match="stands in this case"):
        ou.theorem_1_fails(rounds=100)  # too few for the bound to say anything


def test_rho_of_the_pair_must_exceed_one_plus_root_three():
    """max(xi_8, xi_9) = max(2 / (1 - c), sqrt(2 / c)) at M = 0 and small gamma."""
    least = min(max(2 / (1 - c), math.sqrt(2 / c)) for c in (k / 1000 for k in range(1, 1000)))
    assert 1 + math.sqrt(3) <= least < 2.74


def test_privacy_statements_outside_their_hypotheses_are_refused():
    with pytest.raises(dp.ModelError, match="stated for alpha M < 1"):
        ou.theorem_3_fails(replace(ou.FEW, alpha=0.2, smoothness=5.0))
    with pytest.raises(dp.ModelError, match=r"sqrt\(d\) M / epsilon = 3.162 < u_e = 3"):
        ou.corollary_1_fails(replace(ou.TARGET, u_e=3.0, sensitivity=0.2))
    with pytest.raises(dp.ModelError, match=r"r = 0.95 is one of"):
        ou.figure_3_fails(0.95, 51)


def test_command_prints_all_refutations():
    done = subprocess.run(
        [sys.executable, "-m", "problems.refutations"], cwd=DOCS.parent.parent,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for paper, made in ALL:
        assert paper in done.stdout and str(made) in done.stdout
