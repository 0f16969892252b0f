"""Published methods beside the package: every row has its budget, and the table has every row."""

import pytest

from problems.papers.worth_today import DELTA, EPSILON, PAPERS, Row, main, table


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
    assert first == "| A: a task: gap; 3 | as published | x | 1 | (0.5, 0) | 2 (1 to 9) |"
    assert second == "|  | default | y |  | (1, 1e-06) | 1 |"
    main(["--short", "--runs", "1", "--papers", "xiao"])
    assert "median of 1 runs" in capsys.readouterr().out
