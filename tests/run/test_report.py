"""What is printed, and when."""

import functools
import io
import re
import subprocess
import sys
import threading
import time

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx import problem as verbs
from dpcvx.run import report as display
from tests.instances import power_line
from tests.privacy.test_ledger_file import ROOT


@pytest.fixture
def plan():
    return power_line().problem.plan(dp.LinearizedADMM(), rounds=40, epsilon=1.0, delta=1e-6)


def test_no_line_is_wider_than_the_rule(plan):
    for text in (str(plan), str(plan.run(seed=0))):
        assert max(len(line) for line in text.splitlines()) <= 80


def test_a_quiet_run_prints_nothing(plan, capsys):
    plan.run(seed=0)
    plan.run(seed=0, verbose=False)
    assert capsys.readouterr().out == ""


def test_on_a_terminal_a_run_shows_one_line_that_goes_away(plan, monkeypatch):

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    plan.run(seed=0)
    shown = sys.stdout.getvalue()
    assert "round 40/40" in shown and "guarantee" not in shown and "status" not in shown
    assert shown.count("\n") == 1 and shown.endswith("\n\x1b[?25h\r\x1b[1A\x1b[2K")


class Watched(io.StringIO):
    """A terminal that tells when something was written."""

    def __init__(self):
        super().__init__()
        self.used = threading.Event()

    def isatty(self):
        return True

    def write(self, text):
        written = super().write(text)
        if "planning 2 agents" in self.getvalue():
            self.used.set()
        return written


@pytest.mark.parametrize("verb", ["plan", "solve"])
def test_on_a_terminal_long_planning_shows_one_line_that_goes_away(verb, monkeypatch):
    terminal, model, planned = Watched(), power_line().problem, verbs.planned

    def slowly(*given):
        assert terminal.used.wait(60)
        return planned(*given)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(verbs, "planned", slowly)
    monkeypatch.setattr(verbs, "busy_line", functools.partial(display.busy_line, patience=0.0))
    getattr(model, verb)(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    shown, _, rest = terminal.getvalue().partition("\n\x1b[?25h\r\x1b[1A\x1b[2K")
    assert "planning 2 agents" in shown and "\n" not in shown
    assert "planning" not in rest and ("round 2/2" in rest) == (verb == "solve")


def test_quick_planning_shows_nothing(monkeypatch):
    terminal = Watched()
    monkeypatch.setattr(sys, "stdout", terminal)
    with display.busy_line("planning 2 agents", patience=60.0):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    "stream, verbose", [(io.StringIO, None), (io.StringIO, True), (Watched, False)]
)
def test_long_work_shows_nothing_without_a_terminal_or_where_nothing_is_wanted(
    stream, verbose, monkeypatch
):
    monkeypatch.setattr(sys, "stdout", stream())
    with display.busy_line("planning 2 agents", verbose, patience=0.0):
        time.sleep(0.05)
    assert sys.stdout.getvalue() == ""


def test_a_verbose_run_prints_banner_table_and_summary(plan, capsys):
    result = plan.run(seed=0, verbose=True)
    out = capsys.readouterr().out
    assert out.startswith(display.banner(plan, result.guarantee))
    for line in [*display.outcome_rows(result), *display.spent_rows(result)]:
        assert line in out and line in str(result)
    assert flat(out).count(result.guarantee.headline) == str(result).count("-DP") == 1
    assert len(out.splitlines()) <= 55
    assert "not for release" in out
    rows = re.findall(r"^ +(\d+) +\d\.\d+e", out, flags=re.M)
    assert rows[0] == "1"
    assert rows[-1] == "40"
    assert 7 <= len(rows) <= 10
    assert out.count("epsilon spent") == 1
    assert re.search(r"^ +40 .* 1$", out, flags=re.M)


def test_a_run_without_noise_has_no_column_for_epsilon(capsys):
    power_line().problem.plan(dp.ADMM(), mechanism=None, rounds=3).run(verbose=True)
    out = capsys.readouterr().out
    assert "epsilon spent" not in out
    assert "no guarantee: noise is off" in out


def test_many_agents_are_not_listed_one_by_one():
    x = cp.Variable(name="x")
    agents = [dp.Agent(cp.Minimize(cp.square(x - k)), name=f"a{k}") for k in range(30)]
    text = str(dp.Problem(agents).plan())
    assert "a0 to a29, each: 1 variable (1 shared)" in text
    assert len(text.splitlines()) < 20


def test_of_agents_that_differ_the_first_are_listed():
    x, own = cp.Variable(name="x"), [cp.Variable(k + 1, name=f"y{k}") for k in range(30)]
    agents = [
        dp.Agent(cp.Minimize(cp.square(x) + cp.sum_squares(y)), name=f"a{k}")
        for k, y in enumerate(own)
    ]
    text = str(dp.Problem(agents).plan())
    assert "a11: 13 variables" in text and "and 18 more agents" in text
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
    title = " ".join(axes.get_title().split())
    assert title == result.guarantee.headline
    assert max(map(len, axes.get_title().splitlines())) <= 80
    assert "(1, 1e-6)-DP" in title and "not for release" in title
    primal, dual = (line.get_ydata() for line in axes.lines)
    assert np.array_equal(primal, result.history.primal)
    assert np.isnan(dual[0])
    assert np.array_equal(dual[1:], result.history.dual[1:])


@pytest.mark.parametrize("method", [dp.OneShot(), dp.LinearizedADMM()])
def test_of_one_round_what_it_returned_is_drawn(method):
    line = power_line()
    result = line.problem.plan(method, mechanism=None, rounds=1).run()
    (axes,) = result.plot().axes
    drawn = np.concatenate([one.get_xydata() for one in axes.lines])
    values = [np.ravel(result.solution[one.get_label()], order="F") for one in axes.lines]
    assert np.array_equal(drawn[:, 1], np.concatenate(values))
    assert np.array_equal(drawn[:, 0], 1 + np.arange(len(drawn)))
    held = {p.name for agent in result.solution.program.agents for p in agent.layout.pieces}
    assert {one.get_label() for one in axes.lines} == held
    axes.figure.canvas.draw()


def test_agents_that_hear_of_one_point_have_no_line_of_disagreement():
    x = cp.Variable(2, name="x")
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(x - k)), name=f"a{k}") for k in range(2)]
    result = dp.Problem(agents).plan(dp.FederatedGradient(), mechanism=None, rounds=4).run()
    (axes,) = result.plot().axes
    (moved,) = axes.lines
    assert moved.get_label().startswith("movement")
    assert np.array_equal(moved.get_ydata(), result.history.dual, equal_nan=True)


def test_a_quiet_run_does_not_compose_a_banner(plan, monkeypatch):
    composed = []
    monkeypatch.setattr(display, "banner", lambda plan, guarantee: composed.append(plan) or "")
    plan.run(seed=0, verbose=False)
    assert composed == []


def problem(groups=(), **agent):
    x = cp.Variable(2, name="x")
    agents = []
    for name in "ab":
        d = dp.Private(np.ones(2), name=f"data of {name}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=name, **agent))
    return dp.Problem(agents, groups=groups)


def flat(text):
    return re.sub(r"\s+", " ", str(text))


def test_the_banner_says_that_no_data_have_been_read(plan):
    assert "The plan was made without private data." in str(plan)
    unprotected = power_line().problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
    assert "without private data" not in str(unprotected)
    assert "sensitivity" not in str(unprotected)


def test_the_banner_says_exact_or_bounded_and_where_it_comes_from():
    text = flat(problem().plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6))
    assert (
        "by at most 0.2 in l2 (attained)" in text
        and "a and b, each: 2 variables (2 shared); noise" in text
    )
    assert "worst case" in text
    claimed = problem(sensitivity=dp.Asserted(l2=0.3))
    plan = claimed.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6)
    text = flat(plan)
    assert "one change moves the gradient by at most 0.3 in l2 Valid" in text
    assert "asserted by the user, not derived" in flat(plan.derivation)
    assert "ASSERTED, not proved" in text


def test_the_banner_of_grouped_agents_names_the_group():
    text = flat(problem([["a", "b"]]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6))
    assert "in one agent's data, or in that of all agents of a group at once" in text
    assert "groups a and b" in text


def test_the_banner_shows_a_claim_as_one():
    mechanism = dp.Gaussian(release_epsilon=1.0, release_delta=1e-2, calibration="classical")
    plan = problem().plan(dp.LinearizedADMM(), mechanism=mechanism, rounds=100, delta=1e-2)
    assert "(12, 0.01)-DP for one change in one agent's data, worst case" in flat(plan)
    assert "claims (9.76619, 0.01); that is not a bound" in flat(plan)
    assert max(len(line) for line in str(plan).splitlines()) <= 80


def test_the_summary_of_a_seeded_run_says_not_for_release():
    plan = problem().plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=2)
    assert "not for release" in str(plan.run(seed=0))
    assert "not for release" not in str(plan.run())
    assert "not for release" not in str(plan)


def test_what_is_computed_on_private_data_says_so(capsys):
    plan = problem().plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=1)
    assert "Not private" in str(dp.check_sensitivity(plan))
    assert "Not private" in str(dp.audit(plan, runs=20))
    assert capsys.readouterr().out == ""


def test_the_ledger_is_shown_with_what_is_spent_and_allowed():
    plan = problem([["a", "b"]]).plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=3)
    assert str(plan.run(seed=0).ledger) == (
        "a and b, each: spent epsilon 1 of 1 at delta 1e-6 in 3 releases (exact Gaussian "
        "composition)"
    )


def test_notes_stand_under_the_banner_and_in_the_result(plan, tmp_path, capsys):
    path = tmp_path / "spent.jsonl"
    mechanism = dp.Gaussian(noise_multiplier=50.0)
    for rounds in (4, 6):
        plan = power_line().problem.plan(
            dp.LinearizedADMM(), mechanism=mechanism, delta=1e-6, rounds=rounds
        )
        result = plan.run(ledger=path, verbose=True)
    note = "Note         the ledger leaves budget for 2 of the 6 planned rounds"
    out = capsys.readouterr().out.splitlines()
    assert out.count(note) == 1
    assert str(result).splitlines().count(note) == 1


def test_the_figure_of_a_single_agent_has_nothing_to_show_and_no_warning():
    x = cp.Variable(name="x")
    agent = dp.Agent(cp.Minimize(cp.square(x - 1)), [cp.abs(x) <= 2])
    result = dp.Problem([agent]).plan(dp.LinearizedADMM(), mechanism=None, rounds=3).run()
    (axes,) = result.plot().axes
    axes.figure.canvas.draw()
    assert axes.get_yscale() == "linear"


# What cannot be written.


class Failing(io.StringIO):
    """A terminal whose calls fail."""

    def __init__(self, call, error, after=0):
        super().__init__()
        self._call, self._error, self._left = call, error, after

    def isatty(self):
        return True

    def _fails(self, call):
        self._left -= call == self._call
        if self._left < 0 and call == self._call:
            raise self._error

    def write(self, text):
        self._fails("write")
        return super().write(text)

    def flush(self):
        self._fails("flush")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


class Bare:
    """A stream that can write and nothing else."""

    def write(self, text):
        return len(text)


STREAMS = {
    "without flush": Bare,
    "full disk": lambda: Failing("write", OSError(28, "No space left on device")),
    "full after a while": lambda: Failing("write", OSError(28, "No space left"), after=5),
    "closed pipe": lambda: Failing("flush", BrokenPipeError(32, "Broken pipe")),
    "closed pipe after a while": lambda: Failing("flush", BrokenPipeError(), after=3),
    "closed file": closed,
    "odd": lambda: Failing("write", RuntimeError("odd")),
    "nothing": lambda: None,
}


@pytest.mark.parametrize("verbose", [True, None])
@pytest.mark.parametrize("name", STREAMS)
def test_output_that_cannot_be_written_does_not_cost_the_result(plan, monkeypatch, name, verbose):
    expected = plan.run(seed=0, verbose=False)
    monkeypatch.setattr(sys, "stdout", STREAMS[name]())
    result = plan.run(seed=0, verbose=verbose)
    assert result.status is expected.status
    assert result.ledger.spent() == expected.ledger.spent() > 0
    for one, other in zip(result.last.vectors, expected.last.vectors, strict=True):
        assert np.array_equal(one, other)


def test_letters_that_a_terminal_does_not_have_become_question_marks(monkeypatch):
    x = cp.Variable(name="x")
    agent = dp.Agent(cp.Minimize(cp.square(x)), [cp.abs(x) <= 1], name="Zürich")
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    result = (
        dp.Problem([agent]).plan(dp.LinearizedADMM(), mechanism=None, rounds=3).run(verbose=True)
    )
    assert result.status is dp.Status.COMPLETED
    shown = raw.getvalue().decode("ascii")
    assert "Z?rich: 1 variable " in shown
    assert "dpcvx result: completed, 3 rounds" in shown


def test_an_interrupt_while_printing_is_one(plan, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Failing("write", KeyboardInterrupt(), after=4))
    with pytest.raises(KeyboardInterrupt):
        plan.run(seed=0, verbose=True)


PIPED = """
import sys
import dpcvx as dp
from tests.instances import power_line

plan = power_line().problem.plan(rounds=40, epsilon=1.0, delta=1e-6)
result = plan.run(seed=0, verbose=True)
print(result.status.name, result.rounds, file=sys.stderr)
"""


def test_a_reader_that_goes_away_does_not_cost_the_result():
    """As in ``| head -1``: the pipe is closed before the first line is written to it."""
    with subprocess.Popen(
        [sys.executable, "-c", PIPED], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        said = child.stderr.read()
        child.wait(timeout=60)
    assert b"COMPLETED 40" in said
    assert b"Traceback" not in said


def test_no_time_is_kept_or_shown_where_it_could_tell_of_the_data(plan):
    noisy, open_ = (
        plan.run(seed=0),
        power_line().problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=3).run(),
    )
    assert noisy.seconds is None and open_.seconds > 0
    assert str(noisy).splitlines()[0] == "dpcvx result: completed, 40 rounds"
    assert re.match(r"dpcvx result: unsettled, 3 rounds, [0-9.]+ s\n", str(open_))
    times = [
        [
            type(column).__name__
            for column in display.Reporter(p, True, p.guarantee)._progress.columns
        ]
        for p in (plan, power_line().problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=3))
    ]
    assert ["TimeRemainingColumn" in names for names in times] == [False, True]
