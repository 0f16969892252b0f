"""What an owner sees of its part in a run: that all have agreed, and how far it is."""

import io
import sys

import pytest

from dpcvx.owners.agreement import Agreement
from dpcvx.owners.messages import AgentReply
from dpcvx.owners.owner import Shown
from dpcvx.owners.session import Session
from tests.owners.settings import answer, offered, planned
from tests.owners.test_session import call


class Terminal(io.StringIO):
    """Where a person looks."""

    def isatty(self):
        return True


def rounds(shown, place, count=4):
    """An owner's first rounds."""
    offer, policy = offered(planned(), place)
    session = Session(policy, seed=1, watch=shown.round)
    answer(session, offer)
    for t in range(1, count + 1):
        for _ in range(2):  # asked again, nothing is shown again
            assert isinstance(answer(session, call(t)), AgentReply)
    session.close()


@pytest.mark.parametrize("terminal", [False, True])
def test_that_all_have_agreed_is_said_once_and_progress_on_a_terminal(
    tmp_path, monkeypatch, capsys, terminal
):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with Shown(True) as shown:
        rounds(shown, tmp_path)
    said = capsys.readouterr().err
    assert said == (
        "all have agreed: 4 rounds, which cost at most epsilon 1 at delta 1e-6 in all\n"
    )
    assert ("4 rounds" in stream.getvalue()) == terminal


def test_nothing_is_shown_where_nothing_is_wanted(tmp_path, monkeypatch, capsys):
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    with Shown(False) as shown:
        rounds(shown, tmp_path)
    assert capsys.readouterr().err == "" == stream.getvalue()


def test_what_cannot_be_written_costs_no_run(tmp_path, monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    with Shown(True) as shown:
        rounds(shown, tmp_path)


def test_an_error_passes_and_the_line_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(KeyboardInterrupt), Shown(True) as shown:
        rounds(shown, tmp_path, 2)
        raise KeyboardInterrupt
    assert sys.stdout.getvalue().endswith("\x1b[?25h")  # the cursor is back


def test_only_rounds_that_are_taken_are_shown(tmp_path):
    seen = []
    offer, policy = offered(planned(), tmp_path)
    session = Session(policy, seed=1, watch=lambda *said: seen.append(said))
    answer(session, offer)
    assert not seen
    for t in (1, 1, 9, 2):  # the ninth is of no round that there is
        answer(session, call(t))
    session.close()
    assert [said[1:] for said in seen] == [(1, 4), (2, 4)]
    assert all(isinstance(said[0], Agreement) for said in seen)
