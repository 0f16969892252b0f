"""An owner's audit log: what an auditor can show, what is noticed, and which times are kept."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

import dpcvx as dp
from dpcvx.owners import audit_log, wire
from dpcvx.owners import session as sessions
from dpcvx.owners.audit_log import AuditLog, read_log, report, versions
from dpcvx.owners.cli import main
from dpcvx.owners.messages import Call, End, RunOver
from dpcvx.owners.session import Session
from tests.owners.settings import offered, planned
from tests.owners.test_session import call

ARRIVED = 1_800_000_000.0


class Clock:
    """A time that moves on by a second with each look."""

    def __init__(self):
        self.at = ARRIVED

    def __call__(self):
        self.at += 1.0
        return self.at


def taking_part(tmp_path, **changes):
    """An owner with an audit log, its offer, and its log's path."""
    offer, policy = offered(planned(), tmp_path)
    policy = replace(policy, **changes)
    path = policy.ledger.with_name(f"{policy.ledger.name}.audit")
    return offer, Session(policy, seed=1, audit=AuditLog(path, Clock())), path


def said(session, message):
    return wire.decode(session.reply(wire.encode(message)))


def run(tmp_path, rounds=4, **changes):
    offer, session, path = taking_part(tmp_path, **changes)
    session.met("wss://a.example:8443", "sha256:ab", "dpcvx/1 dpx4")
    said(session, offer)
    for t in range(1, rounds + 1):
        said(session, call(t))
    said(session, End(offer.run, "completed" if rounds == 4 else "stopped", rounds))
    said(session, RunOver(offer.run))
    session.close()
    return offer, path


def test_a_page_says_who_asked_for_what(tmp_path, capsys):
    offer, path = run(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert main(["audit-log", str(path)]) == 0
    page = capsys.readouterr().out
    for part in (
        "chain intact", f"run {offer.run[:12]}", offer.plan[:12], "LinearizedADMM, 4 rounds",
        "coordinator sha256:ab at wss://a.example:8443, which uses dpcvx/1 dpx4",
        f"dpcvx {versions()['dpcvx']}", "numpy ", "up to round 4; completed after round 4",
        "1 run, 4 charges; epsilon", "the log has every run",
    ):  # fmt: skip
        assert part in page
    assert wire.digest(offer)[:12] in page and len(page.splitlines()) < 20


def test_only_arrivals_and_scheduled_replies_have_times(tmp_path, monkeypatch):
    _, path = run(tmp_path)
    lines = read_log(path).lines
    assert {line["what"] for line in lines if "at" in line} == {"connected", "offer", "request"}
    assert not any(line["what"] == "reply" for line in lines)  # none is scheduled
    # A reply is scheduled a multiple of the step after the arrival, however long it took.
    place = tmp_path / "later"
    place.mkdir()
    passed = iter(range(1000))
    slow = SimpleNamespace(monotonic=lambda: next(passed) * 0.3, sleep=lambda seconds: None)
    monkeypatch.setattr(sessions, "time", slow)
    _, path = run(place, reply_after=0.25)
    lines = read_log(path).lines
    replies = [k for k, line in enumerate(lines) if line["what"] == "reply"]
    assert len(replies) == 6  # all but the last, which depends on no data
    for k in replies:
        asked = next(line for line in reversed(lines[:k]) if line["what"] in ("offer", "request"))
        seconds = float(lines[k]["at"][-7:-1]) - float(asked["at"][-7:-1])
        assert seconds % 60 in (0.25, 0.5, 0.75)


def test_refused_requests_are_kept(tmp_path):
    offer, session, path = taking_part(tmp_path, methods=("ADMM",))
    assert said(session, offer).code == "method"
    assert "refused: method at 2027-01-15T" in report(path)
    offer, session, path = taking_part(tmp_path / "", epsilon=1.0)
    assert wire.decode(session.reply(b"GET / HTTP/1.1")).code == "unreadable"
    assert said(session, offer).rounds == 4
    assert said(session, Call("another run", 1, 0, None)).code == "order"
    page = report(path)
    assert "unreadable at" in page and "order at" in page
    session.close()


def test_a_person_who_says_no_is_kept(tmp_path):
    offer, policy = offered(planned(), tmp_path)
    path = policy.ledger.with_name(f"{policy.ledger.name}.audit")
    session = Session(policy, lambda agreed: False, audit=AuditLog(path))
    assert said(session, offer).code == "declined"
    page = report(path)
    assert "a person answered no" in page and "nothing was released" in page


@pytest.mark.parametrize("fault", ["changed", "removed", "cut", "doubled", "head", "swapped"])
def test_lines_that_were_touched_are_noticed(tmp_path, fault):
    _, path = run(tmp_path)
    raw = path.read_bytes()
    head, *lines = raw.splitlines(keepends=True)
    if fault == "changed":
        lines[4] = lines[4].replace(b'"round": 1', b'"round": 3')
        assert lines != raw.splitlines(keepends=True)[1:]
    elif fault == "removed":
        del lines[2]
    elif fault == "cut":
        del lines[-2:]
    elif fault == "doubled":
        lines.insert(2, lines[2])
    elif fault == "head":
        head = head.replace(b'"lines": ', b'"lines": 1', 1)
    else:
        lines[2], lines[3] = lines[3], lines[2]
    path.write_bytes(head + b"".join(lines))
    with pytest.raises(dp.LedgerError, match="is not intact"):
        report(path)
    with pytest.raises(dp.LedgerError, match="is not intact"):
        AuditLog(path).add("request")


def test_what_a_process_that_dies_leaves_is_intact(tmp_path):
    _, path = run(tmp_path)
    raw = path.read_bytes()
    count = len(read_log(path).lines)
    log = AuditLog(path, Clock())
    log.add("request", 1.0, kind="Call", run="x")
    whole = path.read_bytes()
    path.write_bytes(raw[:160] + whole[160:])  # the head was not written any more
    assert len(read_log(path).lines) == count + 1
    path.write_bytes(raw + whole[len(raw) : len(raw) + 20])  # nor the end of the line
    assert len(read_log(path).lines) == count
    AuditLog(path, Clock()).add("request", 1.0, kind="Call", run="y")
    assert read_log(path).lines[-1]["run"] == "y"


def test_a_process_reads_the_end_of_a_log_that_nobody_touched(tmp_path, monkeypatch):
    offer, path = run(tmp_path)
    beside = path.with_name(f"{path.name}.totals")
    assert beside.stat().st_mode & 0o777 == 0o600
    reads = []

    def counted(place):
        reads.append(place)
        return read_log(place)

    monkeypatch.setattr(audit_log, "read_log", counted)
    log = AuditLog(path, Clock())
    assert log.begun_with(offer.run) == versions() and log.begun_with("another") is None
    log.add("request", 1.0, kind="Call", run="x")
    assert reads == [] and len(read_log(path).lines) > 1
    # This one did not write where the log ends: the next one reads all lines, and says so.
    again = AuditLog(path, Clock())
    part = next(line["part"] for line in read_log(path).lines if "part" in line)
    again.add("begun", run="x", part=part, versions={"numpy": "1"})
    assert reads == [path] and again.begun_with(offer.run) == versions()
    again.close()
    last = AuditLog(path)
    assert last.begun_with("x") == {"numpy": "1"} and reads == [path]
    for damaged in (b"", b"{}", beside.read_bytes()[:-1], beside.read_bytes().replace(b"1", b"2")):
        beside.write_bytes(damaged)
        assert AuditLog(path).begun_with("x") == {"numpy": "1"}
    assert len(reads) == 5
    assert report(path).startswith(f"audit log {path.name}: ") and len(reads) == 6


def test_a_change_is_noticed_whatever_lies_beside_the_log(tmp_path):
    _, path = run(tmp_path)
    status = path.stat()
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b'"round": 1', b'"round": 3'))
    audit_log.os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    with pytest.raises(dp.LedgerError, match="is not intact"):
        AuditLog(path).add("request")


def test_runs_that_the_log_lacks_are_named(tmp_path):
    _, path = run(tmp_path)
    kept = path.read_bytes()
    path.unlink()
    fresh = AuditLog(path, Clock())
    fresh.add("opened", agent="end0", certificate="")
    with pytest.raises(dp.LedgerError, match="has a run that the audit log"):
        report(path)
    path.write_bytes(kept)
    with pytest.raises(dp.LedgerError, match=r"is a ledger. Name .* '.*\.jsonl\.audit'"):
        report(path.with_suffix(""))
    path.with_suffix("").rename(tmp_path / "gone")
    with pytest.raises(dp.LedgerError, match="there is no ledger"):
        report(path)


def test_runs_from_before_the_log_are_said(tmp_path):
    _, path = run(tmp_path)
    path.unlink()
    offer, session, path = taking_part(tmp_path)
    said(session, replace(offer, run="another"))  # refused: the ledger has no room
    assert "but 1 from before it" in report(path)


def test_other_versions_do_not_resume_a_run(tmp_path, monkeypatch):
    offer, session, path = taking_part(tmp_path)
    said(session, offer)
    said(session, call(1))
    session.close()
    before, ledger = versions(), session.policy.ledger.read_bytes()
    monkeypatch.setattr(sessions, "versions", lambda: {**before, "numpy": "0.9"})
    again = Session(session.policy, seed=1, audit=AuditLog(path))
    assert said(again, offer).code == "version"
    assert "and this is numpy 0.9" in str(again.refusal)
    assert "an owner's has changed since the run began" in str(again.refusal)
    assert session.policy.ledger.read_bytes() == ledger
    monkeypatch.undo()
    same = Session(session.policy, seed=1, audit=AuditLog(path))
    assert said(same, offer).rounds == 4
    same.close()
    assert "CHANGED" not in report(path)


def test_a_log_that_cannot_be_written_ends_the_run_before_a_release(tmp_path, monkeypatch):
    offer, session, _ = taking_part(tmp_path)
    said(session, offer)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_log.os, "pwrite", full)
    assert said(session, call(1)).code == "storage"
    monkeypatch.undo()
    assert '"values"' not in session.policy.ledger.read_text()


def test_a_disk_that_takes_a_part_of_a_line_leaves_an_intact_log(tmp_path, monkeypatch):
    _, path = run(tmp_path)
    log, count, write = AuditLog(path, Clock()), len(read_log(path).lines), audit_log.os.pwrite
    room = [100]

    def filling(file, text, offset):
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = write(file, text[: room[0]], offset)
        room[0] -= done
        return done

    with monkeypatch.context() as patch:
        patch.setattr(audit_log.os, "pwrite", filling)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                log.add("request", 1.0, kind="Call", run="x" * 64)
    log.close()
    assert len(read_log(path).lines) == count
    log.add("request", 1.0, kind="Call", run="x")  # the same process goes on where it stood
    assert len(read_log(path).lines) == count + 1
    fresh, room[0] = AuditLog(tmp_path / "fresh.audit"), 100
    with monkeypatch.context() as patch:
        patch.setattr(audit_log.os, "pwrite", filling)
        with pytest.raises(OSError, match="No space.*fresh"):
            fresh.add("opened")
    fresh.add("opened")
    assert len(read_log(fresh.path).lines) == 1


def test_nothing_private_is_in_it(tmp_path):
    _, path = run(tmp_path)
    known = {"what", "at", "agent", "certificate", "address", "coordinator", "uses", "run", "plan",
             "digest", "method", "rounds", "part", "versions", "kind", "round", "exchange",
             "status", "link"}  # fmt: skip
    for text in path.read_text().splitlines()[1:]:
        assert set(json.loads(text)) <= known
