"""What is printed, and when."""

import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx import display
from tests.instances import power_line


@pytest.fixture
def plan():
    return power_line().problem.plan(rounds=40, epsilon=1.0, delta=1e-6)


def test_no_line_is_wider_than_the_rule(plan):
    for text in (str(plan), str(plan.run(seed=0))):
        assert max(len(line) for line in text.splitlines()) <= 96


def test_a_quiet_run_prints_nothing(plan, capsys):
    plan.run(seed=0)
    plan.run(seed=0, verbose=False)
    assert capsys.readouterr().out == ""


def test_a_verbose_run_prints_banner_table_and_summary(plan, capsys):
    result = plan.run(seed=0, verbose=True)
    out = capsys.readouterr().out
    assert out.startswith(str(plan))
    assert str(result) in out
    rows = re.findall(r"^ +(\d+) +\d\.\d+e", out, flags=re.M)
    assert rows[0] == "1"
    assert rows[-1] == "40"
    assert 8 <= len(rows) <= 16
    assert out.count("eps spent") == 1
    assert re.search(r"^ +40 .* 1$", out, flags=re.M)


def test_a_run_without_noise_has_no_column_for_epsilon(capsys):
    power_line().problem.plan(dp.ADMM(), mechanism=None, rounds=3).run(verbose=True)
    out = capsys.readouterr().out
    assert "eps spent" not in out
    assert "none: noise is off" in out


def test_many_agents_are_not_listed_one_by_one():
    x = cp.Variable(name="x")
    agents = [dp.Agent(cp.Minimize(cp.square(x - k)), name=f"a{k}") for k in range(30)]
    text = str(dp.Problem(agents).plan())
    assert "and 18 more agents" in text
    assert "a29" not in text


def test_quiet_unless_on_a_terminal(monkeypatch):
    class Screen:
        def isatty(self):
            return True

    assert not display.wanted(None)
    monkeypatch.setattr("sys.stdout", Screen())
    assert display.wanted(None)
    assert not display.wanted(False)


def test_the_figure_shows_residuals_and_the_guarantee(plan):
    result = plan.run(seed=0)
    (axes,) = result.plot().axes
    assert axes.get_title() == "(1, 1e-06)-DP in total"
    primal, dual = (line.get_ydata() for line in axes.lines)
    assert np.array_equal(primal, result.history.primal)
    assert np.isnan(dual[0])
    assert np.array_equal(dual[1:], result.history.dual[1:])
