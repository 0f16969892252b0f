"""Published methods beside the package: every row has its budget, and the table has every row."""

import re

import pytest

from problems.papers.worth_today import DELTA, EPSILON, PAPERS, Row, main, table
from tests.problems.test_refutations import DOCS


@pytest.mark.parametrize("name", ["xiao", "ou", "chan"])
def test_rows_have_one_budget(name):
    """Small tasks, two runs. That of power flow is run by its page's command only."""
    rows = list(PAPERS[name](2, True))
    assert [own.kind for own in rows] == ["as published", "accounted", "default"]
    published, *ours = rows
    assert published.stated == pytest.approx(EPSILON)
    # By the paper's own statements, these three are never beyond the budget that they state.
    assert 0 < published.epsilon <= EPSILON
    for own in ours:
        assert own.stated is None and own.delta == DELTA
        assert 0.9 * EPSILON < own.epsilon <= EPSILON
    assert all(len(own.values) == 2 and own.start > 0 for own in rows)


def test_table_has_all_rows_and_the_initial_point(capsys):
    made = [
        Row("A", "a task: gap", "as published", "x", 1.0, 0.5, 0.0, 3.0, (1.0, 2.0, 9.0)),
        Row("A", "a task: gap", "default", "y", None, 1.0, 1e-6, 3.0, (1.0,)),
    ]
    *_, first, second = table(made).splitlines()
    assert first == "| A: a task: gap; 3 | as published | x | (0.5, 0) | 2 (1 to 9) |"
    assert second == "|  | default | y | (1, 1e-06) | 1 |"
    main(["--short", "--runs", "1", "--papers", "xiao"])
    assert "median of 1 runs" in capsys.readouterr().out


def test_page_has_the_papers_rows_with_the_default_ahead():
    """Of each paper on the page: three kinds in order; medians fall from the accounted one."""
    text = (DOCS / "worth_today.md").read_text()
    found = re.findall(r"^\| .*\| (as published|accounted|default) \|.*\| ([^|]*) \|$", text, re.M)
    assert [kind for kind, _ in found] == ["as published", "accounted", "default"] * len(PAPERS)
    medians = [float(cell.split(" (")[0]) for _, cell in found]
    for accounted, default in zip(medians[1::3], medians[2::3], strict=True):
        assert default < accounted
    totals = re.findall(r"\((\S+), (?:0|1e-06)\) \|", text)
    assert len(totals) == 3 * len(PAPERS) and all(float(total) <= 1.0 for total in totals[1:])
    assert float(totals[0]) > 1.5  # Ryu and Kim's statement is too small
