"""Owners behind whatever carries requests: results, losses, and names that are not theirs."""

import concurrent.futures
import threading
from contextlib import ExitStack, closing

import pytest

import dpcvx as dp
from dpcvx.owners import loopback
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog
from dpcvx.owners.loopback import GREETING, RequestHub, policies_of
from dpcvx.owners.session import Session
from tests.owners.settings import planned


@pytest.fixture
def sessions(tmp_path):
    return {one.agent: Session(one, seed=1) for one in policies_of(planned(), tmp_path)}


def answering(sessions, lost=(), said=None):
    """What asks owners of this process; the frames of these numbers get no answer."""
    asked = []

    def ask(name, frame):
        asked.append(name)
        answer = sessions[name].hello() if frame == GREETING else sessions[name].reply(frame)
        return None if len(asked) in lost else answer

    return ask


def run(sessions, ask, timeout=20.0):
    plan = planned()
    executor = Remote(
        lambda names: RequestHub(names, ask, timeout), lambda: CoordinatorLog(None), lambda: "a run"
    )
    return plan, plan.run(executor=executor, verbose=False)


@pytest.mark.parametrize("lost", [(), (1,), (3, 6, 7), (9, 10, 11, 12, 13)])
def test_results_are_those_of_one_process_whatever_answers_are_lost(sessions, lost):
    plan, found = run(sessions, answering(sessions, lost))
    one = plan.run(seed=1, verbose=False)
    for x, y, local in zip(one.last.vectors, found.last.vectors, plan.program.agents, strict=True):
        assert x[local.shared].tobytes() == y[local.shared].tobytes()
    for name in sessions:
        assert found.ledger[name].spent() == one.ledger[name].spent()


def test_an_owner_of_this_process_that_does_not_answer_is_named(sessions):
    hub = loopback._Direct(sessions, ExitStack())
    with closing(hub), pytest.raises(dp.RefusedError, match="'one' answers in this process") as no:
        hub.again("one")
    assert no.value.code == "away"


def test_whoever_came_is_told_that_another_did_not(sessions):
    first, *_, last = sessions
    ask = answering(sessions)
    with pytest.raises(dp.RefusedError, match=f"'{last}' did not connect within 0.1 s"):
        run(sessions, lambda name, frame: None if name == last else ask(name, frame), 0.1)
    assert sessions[first].refusal.code == "ended" and "away" in str(sessions[first].refusal)
    assert sessions[last].refusal is None


def test_an_owner_that_answers_for_another_agent_is_a_stranger(sessions):
    first, *_, last = sessions
    ask = answering({**sessions, last: sessions[first]})
    with pytest.raises(dp.RefusedError, match="another owner answers") as refusal:
        run(sessions, ask)
    assert refusal.value.code == "stranger"


def test_no_thread_outlives_a_farewell_that_fails(sessions):
    """What carries frames may be over before the farewells are."""
    last = [*sessions][-1]
    ask, before = answering(sessions), threading.active_count()

    def ends(name, frame):
        if frame == GREETING:
            return None if name == last else ask(name, frame)
        raise RuntimeError("the job was aborted")

    with pytest.raises(RuntimeError, match="aborted"):
        run(sessions, ends, 0.1)
    assert threading.active_count() == before


def test_whoever_answers_after_the_look_is_not_told_as_done(monkeypatch):
    """Else nobody would be missing, of whom to say that one waits."""
    slow, told = threading.Event(), []

    def ask(name, frame):
        if name == "b":
            assert slow.wait(60)
        return b"said"

    def looked(calls, timeout):
        found = concurrent.futures.wait(calls, 0.05)
        slow.set()
        concurrent.futures.wait(calls)
        return found

    monkeypatch.setattr(loopback, "wait", looked)
    with closing(RequestHub(["a", "b"], ask, 1.0)) as owners:
        found = owners.exchange({"a": b"x", "b": b"x"}, lambda said: told.append({*said}))
    assert found == {"a": b"said", "b": b"said"}
    assert told and all("b" not in said for said in told)
