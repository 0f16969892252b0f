"""What is one owner's is in no object, text or failure of the coordinator or of another owner."""

import errno
import logging
import os
import pickle
import traceback
import tracemalloc
from contextlib import closing
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.private import seal_all
from dpcvx.owners import files, wire
from dpcvx.owners.agreement import agree
from dpcvx.owners.coordinator import Remote
from dpcvx.owners.files import CoordinatorLog, StoredCalls
from dpcvx.owners.loopback import policies_of
from dpcvx.owners.messages import AgentReply, Answers, Exchange, RunBegun
from dpcvx.owners.offers import offers_of
from dpcvx.owners.session import Session
from dpcvx.solvers.conic import Outcome
from tests.helpers import contains
from tests.owners.settings import METHODS, Mortal, answer, planned

LOADS: dict[dp.Private | str, Any] = {
    "load0": np.array([0.7314159, 0.2718281, 0.5772156, 0.6180339])
}
LOADS["load1"] = LOADS["load0"] / 3 + 0.1234567
# Errors quote it.
MARK = "31415.92653"


def shows(thing, values):
    """Whether values show in what an object prints, or in its pickle if it has one."""
    try:
        return contains(thing, values)
    except (TypeError, AttributeError, pickle.PicklingError):
        return contains(repr(thing) + str(thing), values)


def own_values(session):
    """Local values of an owner that are not at public bounds."""
    local = np.concatenate([x.ravel() for name, x in session.result.last.items() if "gen" in name])
    return local[(local > 1e-6) & (local < 1.5 - 1e-6)]


@pytest.fixture
def ended():
    plan = planned()
    executor = dp.LoopbackOwners(plan, data=LOADS)
    result = plan.run(executor=executor, verbose=False)
    return plan, executor, result


def test_objects_of_the_coordinator_hold_nothing_of_owners(ended):
    plan, executor, result = ended
    things = [
        plan, plan.guarantee, plan.remarks, executor, result, result.ledger, result.guarantee,
        result.history, result.solution, result.last, result.average, *result.ledger.values(),
        *offers_of(plan, "a run"),
    ]  # fmt: skip
    for k, session in enumerate(executor.sessions.values()):
        secrets = np.concatenate([LOADS[f"load{k}"], own_values(session)])
        assert secrets.size >= 5
        for thing in things:
            assert not shows(thing, secrets), type(thing)
        # The search finds what is there.
        assert shows(session.result.last, own_values(session))


def test_objects_of_an_owner_hold_nothing_of_another(ended):
    _, executor, _ = ended
    one, other = executor.sessions.values()
    for mine, theirs, name in ((one, other, "load1"), (other, one, "load0")):
        secrets = np.concatenate([LOADS[name], own_values(theirs)])
        for thing in (mine, mine.policy, mine.result, mine.result.last, vars(mine.result)):
            assert not shows(thing, secrets), type(thing)


def test_what_an_owner_could_print_or_pickle_has_no_data(tmp_path):
    plan = planned()
    policy = policies_of(plan, tmp_path, seal_all(LOADS))[0]
    session = Session(policy, seed=1)
    offer = offers_of(plan, "a run")[0]
    agreed = agree(offer, policy)
    answer(session, offer)
    held = policy.data["load0"]
    things = [policy, held, held.spec, held.source, agreed, agreed.part, session, session._worker]
    for thing in things:
        assert not shows(thing, LOADS["load0"]), type(thing)
    with pytest.raises(TypeError, match="private data|never copied or pickled"):
        pickle.dumps(policy)
    with pytest.raises(TypeError):
        pickle.dumps(session)
    session.close()


def attempt(call):
    """The failure of a call, from a frame that holds nothing itself."""
    try:
        call()
    except BaseException as error:
        return error
    return None


def quoted():
    raise ValueError(f"cannot read {MARK}")


def misshapen():
    return [float(MARK), float(MARK)]


@pytest.mark.parametrize("source", [quoted, misshapen])
@pytest.mark.parametrize("method", ["gradients", "central"])
def test_failures_at_an_owner_show_nothing_at_the_coordinator(source, method, caplog, capsys):
    plan = planned(method=METHODS[method])
    executor = dp.LoopbackOwners(plan, data={"load1": source})
    with caplog.at_level(logging.DEBUG):
        error = attempt(lambda: plan.run(executor=executor, verbose=True))
    assert isinstance(error, dp.RefusedError) and error.code == "unfit"
    told = capsys.readouterr()
    text = told.out + told.err + caplog.text + str(error) + repr(error)
    text += "".join(
        traceback.TracebackException.from_exception(error, capture_locals=True).format()
    )
    assert "load1" not in str(error) and MARK[:7] not in text
    assert error.__cause__ is None and error.__context__ is None
    assert MARK[:7].encode() not in pickle.dumps(error)


def test_a_computation_that_fails_quotes_nothing_across(tmp_path, monkeypatch):
    plan = planned()
    policies, path = policies_of(plan, tmp_path), tmp_path / "run.dpx"
    hub = Mortal(policies)
    session = hub.sessions["end0"]
    original = session._begin

    def begun(agreed):
        original(agreed)
        monkeypatch.setattr(session._worker, "act", lambda *_: quoted())

    monkeypatch.setattr(session, "_begin", begun)
    executor = Remote(lambda names: hub, lambda: CoordinatorLog(path), lambda: "a run")
    error = attempt(lambda: plan.run(executor=executor, verbose=False))
    assert isinstance(error, dp.RefusedError) and error.code == "failed"
    public = b"".join(frame for _, frame in hub.traffic) + path.read_bytes()
    text = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert MARK not in text and MARK.encode() not in public
    # Its owner can read it, and nobody else.
    log = tmp_path / "agent-0.jsonl.log"
    assert MARK in log.read_text() and log.stat().st_mode & 0o077 == 0
    assert MARK not in repr(hub.sessions["end1"].refusal)


def test_two_coordinators_do_not_share_a_log(tmp_path):
    path = tmp_path / "run.dpx"
    with CoordinatorLog(path) as log:
        log.begin(RunBegun("a run", "a plan", ()))
        before = path.read_bytes()
        with pytest.raises(dp.LedgerError, match="'run.dpx' is in use by another coordinator"):
            CoordinatorLog(path)
        assert path.read_bytes() == before
    with CoordinatorLog(path) as log:
        assert log.begun.run == "a run"


@pytest.mark.parametrize("when", ["at the start", "in a round"])
def test_a_full_folder_of_temporary_files_is_named_on_both_sides(tmp_path, monkeypatch, when):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    plan, said = planned(), []
    hub = Mortal(policies_of(plan, tmp_path, seal_all(LOADS)))
    monkeypatch.setattr(
        hub, "close", lambda farewell, end=hub.close: (said.append(farewell), end())
    )
    monkeypatch.setattr(files.tempfile, "TemporaryFile", full)
    if when == "in a round":
        monkeypatch.setattr(files.tempfile, "TemporaryFile", lambda: mock.Mock(seek=full))
    log = tmp_path / "run.dpx"
    executor = Remote(lambda names: hub, lambda: CoordinatorLog(log), lambda: "a run")
    with pytest.raises(dp.RefusedError, match="a temporary file cannot be written: no space") as e:
        plan.run(executor=executor, verbose=False)
    assert e.value.code == "storage" and "TMPDIR" in str(e.value)
    if when == "in a round":
        assert wire.decode(said[-1]).code == "storage"
    with CoordinatorLog(log) as again:  # it is free, and the run can resume
        assert again.begun is not None and not again.exchanges


def _other_replies(said):
    if not isinstance(said, Exchange) or said.t != 2:
        return said
    return replace(said, replies=tuple((n, replace(r, message="")) for n, r in said.replies))


def _no_answers(said):
    return None if isinstance(said, Answers) else said


@pytest.mark.parametrize(
    "change, why",
    [(_other_replies, "replies of round 2"), (_no_answers, "the end of the run, and not all")],
    ids=["other replies", "no answers"],
)
def test_a_changed_log_is_refused(tmp_path, change, why):
    plan, path = planned(), tmp_path / "run.dpx"

    def ran():
        hub = Mortal(policies_of(plan, tmp_path, seal_all(LOADS)))
        executor = Remote(lambda names: hub, lambda: CoordinatorLog(path), lambda: "a run")
        plan.run(executor=executor, verbose=False)

    ran()
    with path.open("rb") as file:
        said = [change(wire.decode(frame)) for _, frame in wire.frames_in(file)]
    path.write_bytes(b"".join(wire.encode(record) for record in said if record is not None))
    with pytest.raises(dp.RefusedError, match=f"the log has {why}") as refusal:
        ran()
    assert refusal.value.code == "changed"


def test_a_log_and_its_calls_are_not_kept_in_memory(tmp_path):
    """What a round adds is a place in a file, and not its 800 kB of replies and calls."""
    rounds, size = 40, 50_000
    with CoordinatorLog(tmp_path / "run.dpx") as log, closing(StoredCalls()) as calls:
        log.begin(RunBegun("a run", "a plan", ()))
        tracemalloc.start()
        for t in range(1, rounds + 1):
            reply = AgentReply("a run", t, 0, np.full(size, float(t)), Outcome.SOLVED, False)
            log.add(Exchange(t, 0, (("end0", reply),)))
            calls.add({name: b"%d" % t * size for name in ("end0", "end1")})
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 4 * 8 * size  # the last reply, where the whole run has 40 of them
        assert [exchange.t for exchange in log.exchanges] == [*range(1, rounds + 1)]
        assert log.exchanges[-1].replies[0][1].message.tolist() == [40.0] * size
        assert [len(one["end1"]) for one in calls][:10] == [size] * 9 + [2 * size]
        assert next(iter(calls))["end0"] == b"1" * size
    with CoordinatorLog(tmp_path / "run.dpx") as again:
        assert len(again.exchanges) == rounds and again.exchanges[0].t == 1
