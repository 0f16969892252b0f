"""The line of progress in notebooks."""

import sys
from functools import partial

import cvxpy as cp
import pytest

import dpcvx as dp
from dpcvx.run import report
from dpcvx.run.report import NotebookLine
from tests.instances import power_line


class Display:
    """What a notebook shows: the state of every line."""

    def __init__(self):
        self.states = []

    def __call__(self, html):
        self.states.append(html)
        return self

    def update(self, thing):
        self.states.append(thing._repr_html_())


def notebook(monkeypatch):
    """What a notebook shows in which every update takes a second."""
    display, now = Display(), [0.0]

    def clock():
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(report, "in_notebook", lambda: True)
    monkeypatch.setattr(report, "NotebookLine", partial(NotebookLine, show=display, clock=clock))
    return display


def test_short_work_shows_nothing():
    display = Display()
    line = NotebookLine("round", 3, show=display, clock=lambda: 0.0)
    for t in (1, 2, 3):
        line.update(t)
    line.stop()
    assert display.states == []


def test_long_work_shows_one_line_that_goes_away():
    display, now = Display(), [0.0]
    line = NotebookLine("round", 100, show=display, clock=lambda: now[0])
    for t in range(1, 101):
        now[0] += 0.125
        line.update(t)
    line.stop()
    first, *_, last = display.states
    assert first.startswith("round 8/100 <progress") and last == ""
    assert 20 < len(display.states) < 60  # not every round


def test_what_cannot_be_shown_costs_nothing():
    def broken(html):
        raise OSError

    now = [0.0]
    line = NotebookLine("round", 2, show=broken, clock=lambda: now[0])
    now[0] = 5.0
    line.update(1)
    now[0] = 9.0
    line.update(2)
    line.stop()


def test_outside_a_notebook_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not report.in_notebook()


def test_a_line_follows_what_ipython_can_show_and_no_name_of_a_shell(monkeypatch):
    displaypub = pytest.importorskip("IPython.core.displaypub")

    class FrontEnd(displaypub.DisplayPublisher):
        def publish(self, *given, **more):
            pass

    for name in ("ZMQInteractiveShell", "Shell", "SpyderShell", "DatabricksShell"):
        for publisher, answer in ((FrontEnd, True), (displaypub.DisplayPublisher, False)):
            shell = type(name, (), {"display_pub": publisher()})()
            monkeypatch.setattr("IPython.get_ipython", lambda shell=shell: shell)
            assert report.in_notebook() is answer


@pytest.mark.parametrize("verbose", [None, True, False])
def test_a_run_in_a_notebook_shows_its_rounds_unless_told_not_to(monkeypatch, capsys, verbose):
    display = notebook(monkeypatch)
    plan = power_line().problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=4)
    plan.run(verbose=verbose)
    assert bool(display.states) is (verbose is not False)
    if display.states:
        assert display.states[-1] == "" and "/4 <progress" in display.states[0]
    assert ("round" in capsys.readouterr().out) is (verbose is True)  # one line, not two


@pytest.mark.parametrize("verbose", [None, True, False])
@pytest.mark.parametrize("verb", ["tune", "compare", "tradeoff"])
def test_a_search_in_a_notebook_shows_one_line_that_goes_away(monkeypatch, capsys, verb, verbose):
    display = notebook(monkeypatch)
    x = cp.Variable(name="x")
    data = dp.Private(1.0, name="d", adjacency=dp.Within(0.1), proxy=1.5)
    owner = dp.Agent(cp.Minimize(cp.square(x - data)), [cp.abs(x) <= 5], name="owner")
    few = {"delta": 1e-6, "time_limit": 1e-3, "verbose": verbose}
    search = getattr(dp.Problem([owner]), verb)
    search([1.0], **few) if verb == "tradeoff" else search(epsilon=1.0, **few)
    assert bool(display.states) is (verbose is not False)
    if display.states:
        assert display.states[0].startswith(verb) and "/100 % <progress" in display.states[0]
        assert display.states[-1] == "" and display.states.count("") == 1
    assert capsys.readouterr().out == ""  # no second bar as text


def test_a_search_that_is_stopped_leaves_no_line(monkeypatch):
    display = notebook(monkeypatch)
    with pytest.raises(KeyboardInterrupt), report.share_line("tune", None) as tick:
        tick(0.25)
        raise KeyboardInterrupt
    assert display.states[0].startswith("tune 25/100 %") and display.states[-1] == ""
