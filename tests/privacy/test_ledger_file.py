"""The ledger file: what its lines hold, what a cut or changed file is taken for, who has it."""

import base64
import errno
import gc
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy import ledger_chain as chain
from dpcvx.privacy import ledger_file as journal_module
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.ledger_file import Journal
from tests import spies

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


def put(path, raw):
    """A new file: some disks are slow to change an old one."""
    path.unlink(missing_ok=True)
    path.write_bytes(raw)


def parts(raw):
    """The first line, and the whole ones that follow."""
    head, *lines = raw.splitlines(keepends=True)
    return head, [line for line in lines if line.endswith(b"\n")]


def written(raw, kind):
    """The lines of one kind, as objects without the hash and how many were written together.

    A line of several agents stands for theirs.
    """
    found = [json.loads(line) for line in parts(raw)[1]]
    apart = ("link", chain.GROUP)
    told = [{k: v for k, v in line.items() if k not in apart} for line in found]
    return [one for line in told for one in alone(line) if kind in one]


def alone(line):
    """What a line says, of each agent by itself."""
    kind = next((kind for kind in ("charge", "value") if f"{kind}s" in line), None)
    if kind is None:
        return [line]
    agents = line.pop(f"{kind}s")
    if kind == "charge":
        return [{**line, kind: agent} for agent in agents]
    raw = base64.b64decode(line["data"])
    size = len(raw) // len(agents)
    pieces = (raw[k : k + size] for k in range(0, len(raw), size))
    coded = [base64.b64encode(piece).decode() for piece in pieces]
    return [{**line, kind: agent, "data": data} for agent, data in zip(agents, coded, strict=True)]


def with_head(raw, lines, tail=b"", lag=0):
    """A ledger of these lines, whose first line counts all but the last `lag`."""
    head, _ = parts(raw)
    stated = json.loads(head)
    counted = lines[: max(0, len(lines) - lag)]
    start = hashlib.sha256(stated["format"].encode()).hexdigest()
    stated["lines"] = len(counted)
    stated["link"] = json.loads(counted[-1])["link"] if counted else start
    return json.dumps(stated).ljust(len(head) - 1).encode() + b"\n" + b"".join(lines) + tail


def cut(raw, size, lag=0):
    """What a process leaves that dies after `size` bytes of its lines.

    Its head counts all lines, as after the next start, or none of the last `lag` groups.
    """
    head, _ = parts(raw)
    body = raw[len(head) : len(head) + size]
    end = body.rfind(b"\n") + 1
    lines = body[:end].splitlines(keepends=True)
    begun = [0] * lag + [k for k, line in enumerate(lines) if chain.GROUP in json.loads(line)]
    return with_head(raw, lines, body[end:], len(lines) - begun[-lag] if lag else 0)


def ends(raw):
    """For each number of whole lines, how many bytes they take."""
    return np.cumsum([0, *(len(line) for line in parts(raw)[1])]).tolist()


def entry(k, sensitivity=0.1 + 0.2):
    return Entry(k, 1, "Gaussian", 10.0, sensitivity, 2.0**-20, "derived", "gradient")


def account(name, epsilon=1.0):
    return Account(name, {f"of {name}": "a change"}, Budget(epsilon, 1e-6, Composition()))


VALUES = [
    ("a", 1, [1 / 3, -0.0]),
    ("b", 1, [np.pi, 1.0]),
    ("a", 2, [5e-324, 1e300]),
    ("b", 2, [2.5, 0.0]),
]


def write(journal, values=VALUES, end=True):
    journal.begin("plan", seeded=False, accounts=[account("a"), account("b")])
    for agent, k, value in values:
        journal.charge([agent], entry(k))
        journal.release([agent], (k, 1), np.array([value]))
    if end:
        journal.end("completed", 3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def raw(path):
    with Journal(path) as journal:
        write(journal)
    return path.read_bytes()


def entries(ledger):
    return {} if ledger is None else {name: book.entries for name, book in ledger.items()}


def test_a_new_file_holds_nothing(path):
    with Journal(path) as journal:
        assert (journal.ledger, journal.before, journal.interrupted) == (None, None, None)
    assert len(dp.Ledger.load(path)) == 0


def test_no_folder_is_created_for_a_path_that_may_be_mistyped(path):
    with pytest.raises(dp.LedgerError, match="folder of the ledger 'a.jsonl' does not exist"):
        Journal(path.parent / "nowhere" / "a.jsonl")
    assert not (path.parent / "nowhere").exists()
    assert not list(path.parent.iterdir())


def test_a_folder_is_no_ledger_and_its_own_folders_stay_untold(path):
    for folder, told in ((path.parent, path.parent.name), ("/", "/"), (".", ".")):
        with pytest.raises(dp.LedgerError, match=f"needs a file, and '{told}' is a folder"):
            Journal(folder)
    assert not list(path.parent.iterdir())


def test_an_emptied_file_is_refused_and_none_is_left_empty(path, monkeypatch):
    """A ledger that lost its lines must not count from nothing; no crash may leave one like it."""
    refused(path, b"")
    path.unlink()
    seen = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(path.exists() and path.read_bytes()))
    with Journal(path):
        pass
    assert seen[0] is False and set(seen[1:]) == {chain.head()}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_there_must_be_a_file_to_load(path):
    with pytest.raises(dp.LedgerError, match="no ledger 'ledger.jsonl'"):
        dp.Ledger.load(path)
    assert not path.exists()


def test_a_line_is_a_json_object_and_the_first_counts_the_others(raw):
    head, lines = parts(raw)
    assert raw == head + b"".join(lines)
    assert json.loads(head)["lines"] == len(lines) == 10
    kinds = ["run", *["charges", "values"] * 4, "end"]
    assert all(kind in json.loads(line) for kind, line in zip(kinds, lines, strict=True))


def test_the_first_line_keeps_its_width(path):
    widths = set()
    with Journal(path) as journal:
        for k in range(12):
            journal.end(str(k), k)
            widths.add(path.read_bytes().index(b"\n"))
    assert len(widths) == 1


def test_accounts_come_back_as_they_were(raw, path):
    book = account("a")
    for k in (1, 2):
        book.recall(entry(k))
    loaded = dp.Ledger.load(path)
    assert list(loaded) == ["a", "b"]
    assert loaded["a"].entries == book.entries
    assert loaded["a"].spent() == book.spent()
    assert (loaded["a"].adjacency, loaded["a"].share) == (book.adjacency, 1)
    assert (loaded["a"].budget.epsilon, loaded["a"].budget.delta) == (1.0, 1e-6)


def test_values_come_back_bit_for_bit(path):
    with Journal(path) as journal:
        write(journal, end=False)
    with Journal(path) as journal:
        found = journal.interrupted.values
    for agent, k, value in VALUES:
        assert found[agent][k, 1].tobytes() == np.array(value).tobytes()


def test_runs_of_one_file_add_up(raw, path):
    with Journal(path) as journal:
        assert journal.interrupted is None
        journal.begin("next", seeded=True, accounts=[account("a", 2.0), account("c")])
        journal.charge(["a"], entry(1))
    with Journal(path) as journal:
        assert (journal.interrupted.fingerprint, journal.interrupted.seeded) == ("next", True)
        assert journal.interrupted.charged == {"a": [entry(1)]}
        before, now = entries(journal.before), entries(journal.ledger)
    assert {name: len(of) for name, of in before.items()} == {"a": 2, "b": 2}
    assert {name: len(of) for name, of in now.items()} == {"a": 3, "b": 2, "c": 0}
    assert dp.Ledger.load(path)["a"].budget.epsilon == 2.0


def test_a_share_counts_every_entry_so_many_times(path):
    book = Account("a", {}, Budget(1.0, 1e-6, Composition()), share=3)
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[book])
        journal.charge(["a"], entry(1))
    assert dp.Ledger.load(path)["a"].rho == pytest.approx(3 / 200)


def test_what_was_released_without_noise_comes_back_so(path):
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[Account("a", {}, None)])
        journal.charge(["a"], Entry(1, 1, "none", 0.0, np.inf, 0.0, "none", "gradient"))
    assert dp.Ledger.load(path).spent(1e-6) == np.inf


def test_a_line_without_noise_is_json_for_everyone(path):
    def fails(name):
        raise AssertionError(name)

    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[Account("a", {}, None)])
        journal.charge(["a"], Entry(1, 1, "none", 0.0, np.inf, 0.0, "none", "gradient"))
    for line in parts(path.read_bytes())[1]:
        json.loads(line, parse_constant=fails)


def test_an_unknown_mechanism_counts_as_no_noise(path):
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a")])
        journal.charge(["a"], Entry(1, 1, "Cauchy", 9.0, 1.0, 0.0, "derived", "gradient"))
    assert dp.Ledger.load(path).spent(1e-6) == np.inf


@pytest.mark.parametrize("name", ["zone 1", "Düsseldorf", 'a "b"\n', "link", "run", "end"])
def test_agents_may_have_any_name(path, name):
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account(name)])
        journal.charge([name], entry(1))
        journal.release([name], (1, 1), np.ones((1, 2)))
    with Journal(path) as journal:
        assert journal.ledger[name].entries == [entry(1)]
        assert list(journal.interrupted.values) == [name]


def test_a_line_is_on_disk_when_the_call_returns(path, monkeypatch):
    synced = []
    with Journal(path) as journal:
        monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes()))
        calls = (
            lambda: journal.begin("plan", seeded=False, accounts=[account("a")]),
            lambda: journal.charge(["a"], entry(1)),
            lambda: journal.release(["a"], (1, 1), np.ones((1, 2))),
            lambda: journal.end("completed", 3),
        )
        for count, call in enumerate(calls, 1):
            call()
            head, lines = parts(synced[-1])
            assert len(synced) == len(lines) == count
            assert json.loads(head)["lines"] == count - 1


class Faulty:
    """A file of which one call fails, after it took a part of what it was to write."""

    def __init__(self, file, call, part=0.0):
        self.file, self.left, self.part = file, call, part

    def write(self, text):
        self.left -= 1
        if self.left == 0:
            self.file.write(bytes(text)[: int(len(text) * self.part)])
            raise OSError(errno.ENOSPC, "No space left on device", "/home/anna/ledger.jsonl")
        return self.file.write(text)

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("call", [1, 2])
def test_after_an_error_nothing_more_is_written(path, call, part):
    """Behind a part of a line no other line can stand: what is refused does not leave."""
    with Journal(path) as journal:
        write(journal, VALUES[:2], end=False)
        journal._file = Faulty(journal._file, call, part)
        with pytest.raises(dp.LedgerError, match="cannot be written: No space left") as caught:
            journal.charge(["a"], entry(2))
        assert "anna" not in str(caught.value) and caught.value.__suppress_context__
        left = path.read_bytes()
        for further in (
            lambda: journal.charge(["b"], entry(2)),
            lambda: journal.release(["a"], (2, 1), np.ones((1, 2))),
            lambda: journal.end("completed", 2),
        ):
            with pytest.raises(dp.LedgerError, match="cannot be written: No space left"):
                further()
        assert path.read_bytes() == left
    assert len(dp.Ledger.load(path)["a"].entries) == call
    with Journal(path) as journal:
        assert journal.interrupted.charged["a"] == [entry(1), entry(2)][:call]
        journal.end("completed", 2)
    assert len(parts(path.read_bytes())[1]) == 5 + call


@pytest.mark.parametrize("kind", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_what_was_perhaps_not_forced_to_disk_is_not_written_behind(path, monkeypatch, kind):
    def fails(file):
        raise kind

    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a")])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises((dp.LedgerError, KeyboardInterrupt)):
                journal.charge(["a"], entry(1))
        with pytest.raises(
            dp.LedgerError, match="nothing more is released|Nothing more is released"
        ):
            journal.release(["a"], (1, 1), np.ones((1, 2)))
    with Journal(path) as journal:
        assert journal.interrupted.charged == {"a": [entry(1)]}


@pytest.mark.parametrize("size", [1, 100, 200])
def test_a_disk_that_is_full_in_the_middle_of_a_line_is_no_secret(path, size):
    resource = pytest.importorskip("resource")
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a")])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + size, hard))
        try:
            with pytest.raises(dp.LedgerError, match="cannot be written: File too large"):
                journal.charge(["a"], entry(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with Journal(path) as journal:
        assert journal.interrupted.charged == {}


@pytest.mark.parametrize("size", range(0, chain.WIDTH + 1, 16))
def test_a_disk_that_is_full_at_the_first_line_leaves_no_file(path, monkeypatch, size):
    def fails(number):
        os.ftruncate(number, size)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(dp.LedgerError, match="cannot be opened: No space left"):
            Journal(path).__enter__()
    assert not list(path.parent.iterdir())
    with Journal(path) as journal:
        write(journal)


def test_a_file_system_without_hard_links_has_ledgers_too(path, monkeypatch):
    def fails(*arguments):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", fails)
    with Journal(path) as journal:
        write(journal)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert len(dp.Ledger.load(path)) == 2


def test_a_new_ledger_is_its_owners_alone_and_an_old_one_keeps_its_mode(path):
    before = os.umask(0)
    try:
        with Journal(path) as journal:
            write(journal)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o664)
    with Journal(path) as journal:
        journal.end("again", 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO, errno.ENOLCK])
def test_errors_of_the_operating_system_are_put_in_words(raw, path, monkeypatch, number):
    def fails(place, *arguments, **named):
        raise OSError(number, os.strerror(number), str(place))

    name = "flock" if number == errno.ENOLCK else "open"
    monkeypatch.setattr(journal_module.fcntl if name == "flock" else os, name, fails)
    calls = [lambda: Journal(path).__enter__()]
    calls += [lambda: dp.Ledger.load(path)] if name == "open" else []
    for call in calls:
        with pytest.raises(dp.LedgerError, match=f"'ledger.jsonl' .* {os.strerror(number)}") as e:
            call()
        assert str(path.parent) not in str(e.value) and e.value.__suppress_context__


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(path, monkeypatch, number):
    def fails(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(journal_module.fcntl, "flock", fails)
    with pytest.raises(dp.LedgerError, match="cannot be locked: .* file system that takes locks"):
        Journal(path).__enter__()


def test_the_lock_of_a_process_that_was_killed_is_waited_for(path, monkeypatch):
    """What it had just forked has the file open until it first runs."""
    spies.change(monkeypatch, "seconds until a killed process has left its locks", 60.0)
    with Journal(path), open(path) as file:
        held = os.dup(file.fileno())
    journal_module.fcntl.flock(held, journal_module.fcntl.LOCK_EX)
    timer = threading.Timer(0.2, os.close, [held])
    timer.start()
    with Journal(path) as journal:
        assert journal.ledger is None
    timer.join()


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a\0b"])
def test_names_that_no_file_can_have_are_refused_in_words(path, name):
    path.touch()
    for call in (lambda at: Journal(at).__enter__(), dp.Ledger.load):
        with pytest.raises(dp.LedgerError) as caught:
            call(path.with_name(name))
        assert str(path.parent) not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")])
def test_a_device_keeps_no_ledger(path, make):
    make(path)
    for call in (lambda: Journal(path).__enter__(), lambda: dp.Ledger.load(path)):
        with pytest.raises(dp.LedgerError, match="device or a pipe"):
            call()


@pytest.mark.parametrize("lag", [0, 1])
def test_a_file_cut_at_any_byte_holds_its_whole_lines(path, lag):
    with Journal(path) as journal:
        write(journal, VALUES[:2])
    raw = path.read_bytes()
    whole = ends(raw)
    for size in range(whole[-1] + 1):
        put(path, cut(raw, size, lag))
        with Journal(path) as journal:
            ledger, run = journal.ledger, journal.interrupted
        count = sum(size >= end for end in whole[1:])
        assert (ledger is None) is (count == 0)
        assert (run is None) is (count in (0, 6))
        found = {name: of for name, of in entries(ledger).items() if of}
        made = [("a", [entry(1)]), ("b", [entry(1)])]
        assert found == dict(made[: count // 2])
        if run is not None:
            left = [(agent, *place) for agent, of in run.values.items() for place in of]
            assert left == [("a", 1, 1), ("b", 1, 1)][: (count - 1) // 2]


def test_writing_goes_on_where_the_file_was_cut(raw, path):
    for size in range(0, ends(raw)[-1], 50):
        put(path, cut(raw, size))
        with Journal(path) as journal:
            journal.end("again", 1)
        assert written(path.read_bytes(), "end") == [{"end": "again", "rounds": 1}]
        assert len(dp.Ledger.load(path)) in (0, 2)


def edited(number, change):
    """Lines with a change at one place."""

    def edit(raw):
        head, lines = parts(raw)
        return head + b"".join([*lines[:number], *change(lines[number:]), b""])

    return edit


def head_edited(**changes):
    def edit(raw):
        head, lines = parts(raw)
        stated = json.dumps({**json.loads(head), **changes}).encode()
        return stated.ljust(len(head) - 1) + b"\n" + b"".join(lines)

    return edit


TAMPERED = {
    "a digit of an entry": lambda raw: raw.replace(b'"multiplier": 10.0', b'"multiplier": 90.0', 1),
    "a digit of a value": lambda raw: re.sub(rb'("data": "..).', rb"\1z", raw, count=1),
    "an agent": lambda raw: raw.replace(b'"charges": ["a"', b'"charges": ["c"', 1),
    "a wider format": lambda raw: raw.replace(b'"round": 2', b'"round":  2', 1),
    "two lines swapped": edited(3, lambda of: [of[1], of[0], *of[2:]]),
    "two equal charges swapped": edited(1, lambda of: [of[2], of[1], of[0], *of[3:]]),
    "the first line removed": edited(0, lambda of: of[1:]),
    "a middle line removed": edited(3, lambda of: of[1:]),
    "the last line removed": edited(-1, lambda of: []),
    "all lines removed": edited(0, lambda of: []),
    "a middle line twice": edited(3, lambda of: [of[0], *of]),
    "the last line twice": edited(-1, lambda of: [*of, *of]),
    "an empty line": edited(3, lambda of: [b"\n", *of]),
    "a line of no object": edited(3, lambda of: [b"[1, 2]\n", *of]),
    "a line without hash": edited(10, lambda of: [b'{"end": "completed"}\n']),
    "a line with a hash of its own": edited(10, lambda of: [b'{"end": "x", "link": "00"}\n']),
    "a line of brackets": edited(10, lambda of: [b"[" * 200_000 + b"\n"]),
    "brackets in the first line": lambda raw: b"[" * 200_000,
    "text at the end": edited(10, lambda of: [b"remember the milk\n"]),
    "no last newline": lambda raw: raw[:-1],
    "half of the last line": lambda raw: raw[:-40],
    "half of the file": lambda raw: raw[: len(raw) // 2],
    "half of the first line": lambda raw: raw[:80],
    "a line more counted": head_edited(lines=11),
    "a line less counted": head_edited(lines=9),
    "none counted": head_edited(lines=0),
    "another hash": head_edited(link="0" * 64),
    "another version": head_edited(format="dpcvx ledger 3"),
    "another program's file": lambda raw: b'{"nodes": [1, 2, 3]}\n' * 20,
    "a table": lambda raw: b"a,b,c\n1,2,3\n",
    "bytes": lambda raw: bytes(range(256)) * 3,
    "zeros": lambda raw: bytes(len(raw)),
}


def refused(path, changed):
    put(path, changed)
    with pytest.raises(dp.LedgerError):
        dp.Ledger.load(path)
    with pytest.raises(dp.LedgerError, match=path.name):
        Journal(path).__enter__()
    assert path.read_bytes() == changed


@pytest.mark.parametrize("how", TAMPERED)
def test_a_changed_file_is_refused_and_left_as_it_is(raw, path, how):
    changed = TAMPERED[how](raw)
    assert changed != raw
    refused(path, changed)


@pytest.mark.parametrize("mask", [1, 16])
def test_a_flipped_bit_anywhere_is_noticed(raw, path, mask):
    for k in range(0, len(raw), 7):
        refused(path, raw[:k] + bytes([raw[k] ^ mask]) + raw[k + 1 :])


@pytest.mark.parametrize(
    "count",
    [
        -1,
        -100,
        np.inf,
        np.nan,
        None,
        "ten",
        [10],
        1e300,
    ],
    ids=str,
)
def test_a_count_that_is_none_is_refused(raw, path, count):
    refused(path, head_edited(lines=count)(raw))


def test_the_last_line_of_a_killed_run_is_guarded_too(raw, path):
    left = cut(raw, ends(raw)[4], lag=1)
    head, lines = parts(left)
    for changed in (lines[-1].replace(b"10.0", b"90.0"), lines[0], lines[-2]):
        if changed != lines[-1]:
            refused(path, head + b"".join(lines[:-1]) + changed)
    put(path, left)
    assert len(dp.Ledger.load(path)["b"].entries) == 1


def test_the_first_line_may_lag_by_two_and_not_by_three(raw, path):
    """By one if it was not rewritten, by two if it did not reach the disk before the next line."""
    for lag in (1, 2):
        put(path, with_head(raw, parts(raw)[1], lag=lag))
        dp.Ledger.load(path)
    refused(path, with_head(raw, parts(raw)[1], lag=3))
    refused(path, with_head(raw, parts(raw)[1], b'{"data": "', lag=2))


def exchange(journal, t, value):
    """An exchange of two agents that share no line."""
    with journal.exchange():
        for size, name in enumerate("ab", start=2):
            journal.charge([name], entry(t, 0.1 * size))
            journal.release([name], (t, 1), np.full((1, size), value))


def grouped(path):
    """A ledger of two exchanges, each of which was written in one piece."""
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a"), account("b")])
        for t in (1, 2):
            exchange(journal, t, float(t))
    return path.read_bytes()


def test_exchanges_may_be_cut_anywhere_time_after_time(path):
    """What follows on a part of an exchange is one of its own, however its process died."""
    raw = grouped(path)
    for first in ends(raw)[2:5]:
        put(path, cut(raw, first, lag=1))
        with Journal(path) as journal:
            head, begun = path.read_bytes()[: chain.WIDTH], len(path.read_bytes())
            exchange(journal, 2, 3.0)
        again = path.read_bytes()
        for size in (begun, *(k for k in range(begun + 1, len(again), 50)), len(again)):
            put(path, head + again[chain.WIDTH : size])  # the head counts what was found
            with Journal(path):
                pass
            kept = path.read_bytes()[chain.WIDTH :]
            assert kept.startswith(again[chain.WIDTH : begun])
            assert len(dp.Ledger.load(path)["a"].entries) in (1, 2)


def test_lines_of_an_exchange_are_forced_to_disk_once(path, monkeypatch):
    forced, honest = [], os.fsync
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a"), account("b")])
        monkeypatch.setattr(os, "fsync", lambda number: (forced.append(1), honest(number)))
        before = path.read_bytes()
        with journal.exchange():
            for name, bound in (("a", 1.0), ("b", 2.0)):
                journal.charge([name], entry(1, bound))
                journal.release([name], (1, 1), np.ones((1, 2)))
            assert path.read_bytes() == before
        assert len(forced) == 1
    kinds = [next(k for k in ("charges", "values") if k in json.loads(line))
             for line in parts(path.read_bytes())[1][1:]]  # fmt: skip
    assert kinds == ["charges", "charges", "values"]


def test_a_file_with_a_line_for_each_agent_says_the_same(path, tmp_path):
    """As earlier versions wrote it."""
    noted = path.with_name("noted")
    with Journal(noted) as journal, Journal(path) as earlier:
        write(journal, end=False)
        earlier.begin("plan", seeded=False, accounts=[account("a"), account("b")])
        for agent, k, value in VALUES:
            coded = base64.b64encode(np.array(value).tobytes()).decode()
            earlier._append({"charge": agent, **vars(entry(k))})
            earlier._append({"value": agent, "round": k, "step": 1, "data": coded})
    with Journal(noted) as journal, Journal(path) as earlier:
        assert journal.interrupted.charged == earlier.interrupted.charged
        known, others = journal.interrupted.values, earlier.interrupted.values
        assert {a: {p: v.tobytes() for p, v in of.items()} for a, of in known.items()} == {
            a: {p: v.tobytes() for p, v in of.items()} for a, of in others.items()
        }
        assert [book.spent() for book in journal.ledger.values()] == [
            book.spent() for book in earlier.ledger.values()
        ]


def test_what_was_noted_before_an_error_is_on_disk(path):
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a")])
        with pytest.raises(ZeroDivisionError), journal.exchange():
            journal.charge(["a"], entry(1))
            raise ZeroDivisionError
        journal.charge(["a"], entry(2))
    assert len(written(path.read_bytes(), "charge")) == 2


def test_the_first_line_may_lag_by_two_exchanges_and_a_group_may_be_cut_anywhere(path):
    raw = grouped(path)
    lines = parts(raw)[1]
    for lag in (4, 8):
        put(path, with_head(raw, lines, lag=lag))
        assert len(dp.Ledger.load(path)["a"].entries) == 2
    for lag in (1, 2, 3, 5, 6, 7, 9):
        refused(path, with_head(raw, lines, lag=lag))
    whole = [len(with_head(raw, lines[:count])) for count in range(len(lines) + 1)]
    for size in range(whole[5], whole[9], 7):
        kept = sum(end <= size for end in whole) - 1
        # The head counts the first exchange, or only the run's beginning.
        for counted in (5, 1):
            start = with_head(raw, lines[:kept], lag=kept - counted)
            put(path, start[: chain.WIDTH] + raw[chain.WIDTH : size])
            with Journal(path) as journal:
                known = journal.interrupted
            places = {(a, *p) for a, values in known.values.items() for p in values}
            expected = {(v["value"], v["round"], v["step"]) for v in written(start, "value")}
            assert places == expected


def heads(raw):
    """For each number of lines, the first line that counts them."""
    lines = parts(raw)[1]
    return [with_head(raw, lines[:count])[: chain.WIDTH] for count in range(len(lines) + 1)]


def test_a_first_line_that_was_half_rewritten_is_written_anew(raw, path):
    """Every line is there: it can be computed again."""
    whole, known = ends(raw), heads(raw)
    for count in range(1, len(whole)):
        body = raw[chain.WIDTH :][: whole[count]]
        for size in range(0, chain.WIDTH, 9):
            put(path, known[count][:size] + known[count - 1][size:] + body)
            with Journal(path):
                pass
            assert path.read_bytes() == known[count] + body
    half = known[10][:40] + known[9][40:]
    refused(path, half + raw[chain.WIDTH :][: whole[9]])
    refused(path, half[:100])


def test_a_new_file_cut_in_the_first_line_is_refused(path):
    for size in range(chain.WIDTH):
        refused(path, chain.head()[:size])


@pytest.mark.parametrize("place", ["in the value", "over the newline", "between"])
def test_zeros_in_the_line_that_was_being_written_are_taken_for_a_torn_line(path, place):
    """A disk that loses power leaves zeros in sectors that it did not write."""
    with Journal(path) as journal:
        write(journal, VALUES[:2], end=False)
        journal.charge(["a"], entry(2))
        before = path.stat().st_size
        journal.release(["a"], (2, 1), np.ones((1, 150)))
    raw = path.read_bytes()
    lines = parts(raw)[1]
    sectors = [k for k in range(0, len(raw), 512) if k >= before]
    if place == "between":
        zeros = [(sectors[0], sectors[0] + 512)]
    elif place == "over the newline":
        zeros = [(sectors[-1], len(raw))]
    else:
        zeros = [(before, sectors[0]), (sectors[1], sectors[1] + 512)]
    known = with_head(raw, lines[:-1]) + lines[-1]
    torn = bytearray(known)
    for begin, end in zeros:
        torn[begin:end] = bytes(end - begin)
    put(path, bytes(torn))
    assert len(dp.Ledger.load(path)["a"].entries) == 2
    with Journal(path) as journal:
        assert journal.interrupted.lost["a"] == [entry(2)]
        assert journal.interrupted.charged["a"] == [entry(1)]
    for begin, end in ((before + 20, before + 21), (before + 20, before + 90)):
        torn = bytearray(known)  # but a disk does not leave these
        torn[begin:end] = bytes(end - begin)
        refused(path, bytes(torn))


def test_a_file_of_which_only_the_length_reached_the_disk_lost_nothing(path):
    with Journal(path) as journal:
        write(journal, VALUES[:1], end=False)
        journal.charge(["b"], entry(1))
    raw = path.read_bytes()
    put(path, raw + bytes(300))
    with Journal(path) as journal:
        assert journal.interrupted.charged["b"] == [entry(1)] and not journal.interrupted.lost
    assert path.read_bytes() == raw


def test_what_a_resumed_run_gives_out_again_is_on_disk(raw, path, monkeypatch):
    """The line of a killed process may have been written, and not forced to the disk."""
    put(path, with_head(raw, parts(raw)[1], lag=1))
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(path.read_bytes()))
    with Journal(path):
        assert synced[-1] == raw


@pytest.mark.parametrize("lag", [1, 2])
def test_a_flipped_bit_in_lines_that_are_not_counted_is_noticed(raw, path, lag):
    lines = parts(raw)[1]
    left = with_head(raw, lines[:9], lag=lag)
    for k in range(len(left) - sum(map(len, lines[9 - lag : 9])), len(left)):
        for bit in range(8):
            with pytest.raises(dp.LedgerError):
                chain.read(left[:k] + bytes([left[k] ^ 1 << bit]) + left[k + 1 :], "ledger")


def test_a_refusal_shows_no_line_of_the_file(raw, path):
    for how in TAMPERED:
        put(path, TAMPERED[how](raw))
        with pytest.raises(dp.LedgerError) as caught:
            dp.Ledger.load(path)
        shown = str(caught.value)
        assert "multiplier" not in shown and "milk" not in shown
        assert caught.value.__context__ is None or caught.value.__suppress_context__


def misfit(path, *lines):
    """A file with valid hashes and lines that mean nothing."""
    with Journal(path) as journal:
        for line in lines:
            journal._append(line)


UNKNOWN = {
    "of another kind": {"moon": "full"},
    "with a field too many": {"charge": "a", "color": "red"},
    "of an agent without account": {"charge": "zoe", **entry(1).__dict__},
}


@pytest.mark.parametrize("how", UNKNOWN)
def test_lines_of_another_version_are_refused(path, how):
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a")])
        journal._append(UNKNOWN[how])
    with pytest.raises(dp.LedgerError, match="does not understand"):
        dp.Ledger.load(path)


@pytest.mark.parametrize(
    "line",
    [{"charge": "a", **entry(1).__dict__}, {"value": "a", "round": 1, "step": 1, "data": ""}],
    ids=["charge", "value"],
)
def test_lines_outside_a_run_are_refused(path, line):
    misfit(path, line)
    with pytest.raises(dp.LedgerError):
        dp.Ledger.load(path)


def test_a_refused_file_is_closed(path):
    misfit(path, {"moon": "full"})
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(dp.LedgerError):
            Journal(path).__enter__()
        gc.collect()
    assert not seen


def test_a_file_is_open_once_at_a_time(path):
    with Journal(path), pytest.raises(dp.LedgerError, match=r"'ledger.jsonl' is in use"):
        Journal(path).__enter__()
    with Journal(path):
        pass


def test_a_refused_file_is_not_locked(path):
    put(path, b"mine")
    for _ in range(2):
        with pytest.raises(dp.LedgerError, match="not a dpcvx ledger"):
            Journal(path).__enter__()


def test_a_file_in_use_can_be_loaded(path):
    with Journal(path) as journal:
        write(journal)
        assert len(dp.Ledger.load(path)["a"].entries) == 2


@pytest.mark.parametrize("name", ["./ledger.jsonl", "sub/../ledger.jsonl"])
def test_a_file_is_the_same_under_another_spelling(path, name, monkeypatch):
    (path.parent / "sub").mkdir()
    monkeypatch.chdir(path.parent)
    with Journal(path), pytest.raises(dp.LedgerError, match="in use"):
        Journal(name).__enter__()


def test_a_file_is_the_same_behind_a_link(path):
    link = path.with_name("link")
    with Journal(path):
        link.symlink_to(path)
        with pytest.raises(dp.LedgerError, match="in use"), Journal(link):
            pass


def test_a_file_is_the_same_under_a_hard_link(path):
    other = path.with_name("other")
    with Journal(path):
        os.link(path, other)
        with pytest.raises(dp.LedgerError, match="'other' is in use"):
            Journal(other).__enter__()
        assert len(dp.Ledger.load(other)) == 0
    with Journal(other):
        pass


def test_nothing_beside_the_ledger_guards_it(path):
    with Journal(path) as journal:
        write(journal)
        assert [file.name for file in path.parent.iterdir()] == [path.name]


HOLDER = (
    "import sys; from dpcvx.privacy.ledger_file import Journal\n"
    "with Journal(sys.argv[1]): print('open', flush=True); sys.stdin.read()"
)


def test_a_file_is_open_in_one_process_at_a_time(path):
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"open\n"
        for name in ("ledger.jsonl", "hard", "soft"):
            if name == "hard":
                os.link(path, path.with_name(name))
            elif name == "soft":
                path.with_name(name).symlink_to(path)
            with pytest.raises(dp.LedgerError, match="in use"):
                Journal(path.with_name(name)).__enter__()
        other.kill()
    with Journal(path):
        pass


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_replaced_before_it_is_locked_is_not_the_ledger(raw, path, how, monkeypatch):
    lock, files = journal_module.fcntl.flock, []

    def late(number, mode):
        if not files:
            files.append(os.fstat(number).st_ino)
            path.rename(path.with_name("old"))  # its inode is not used again
            if how == "replaced":
                path.write_bytes(raw)
        lock(number, mode)

    monkeypatch.setattr(journal_module.fcntl, "flock", late)
    with Journal(path) as journal:
        assert path.stat().st_ino != files[0]
        assert (journal.ledger is None) is (how == "removed")
        with pytest.raises(dp.LedgerError, match="in use"):
            Journal(path).__enter__()


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_is_spent_from_a_file_that_is_no_longer_there(path, how):
    with Journal(path) as journal:
        write(journal, VALUES[:1], end=False)
        before = path.read_bytes()
        path.rename(path.with_name("old"))
        if how == "replaced":
            path.write_bytes(before)
        for _ in range(2):
            with pytest.raises(dp.LedgerError, match="removed or replaced"):
                journal.charge(["b"], entry(1))
    assert path.with_name("old").read_bytes() == before


def forked(do):
    """Exit status of a forked process that does something, 9 for an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of the test runner
        pid = os.fork()
    if pid == 0:
        status = 9
        try:
            status = do() or 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@needs_fork
@pytest.mark.parametrize("way", ["ends", "leaves the block", "drops it"])
def test_a_forked_process_does_not_unlock_the_file(path, way):
    with Journal(path) as journal:
        write(journal, VALUES[:1], end=False)

        def child():
            nonlocal journal
            if way == "leaves the block":
                journal.__exit__(None, None, None)
            elif way == "drops it":
                del journal
                gc.collect()

        assert forked(child) == 0
        with pytest.raises(dp.LedgerError, match="in use by another run"):
            Journal(path).__enter__()
        journal.charge(["b"], entry(1))
    with Journal(path) as journal:
        assert len(journal.ledger["b"].entries) == 1


@needs_fork
def test_a_forked_process_writes_nothing(path):
    with Journal(path) as journal:
        write(journal, VALUES[:1], end=False)
        before = path.read_bytes()

        def child():
            for call in (
                lambda: journal.charge(["b"], entry(1)),
                lambda: journal.release(["b"], (1, 1), np.ones((1, 2))),
                lambda: journal.end("completed", 1),
            ):
                with pytest.raises(dp.LedgerError, match="forked from the process whose run uses"):
                    call()
            with pytest.raises(dp.LedgerError, match="in use"):
                Journal(path).__enter__()

        with journal._turn:  # as if a thread were writing
            assert forked(child) == 0
        assert path.read_bytes() == before


# Six processes try at once, and whoever has the ledger keeps it until all have tried. In every
# other round the file is new; else it is reached by links as well, and what guarded it once is
# deleted.
RACE = """
import os, sys
from pathlib import Path
import dpcvx as dp
from dpcvx.privacy import ledger_file
from dpcvx.privacy.ledger_file import Journal
ledger_file._FREED = 0.0
for k in range(10):
    path = Path(sys.argv[1]) / str(k)
    names = [path] * 6
    if k % 2:
        with Journal(path):
            pass
        os.link(path, f"{path} hard")
        os.symlink(path, f"{path} soft")
        Path(f"{path}.lock").touch()
        names = [path, path, f"{path} hard", f"{path} hard", f"{path} soft", f"{path} soft"]
    (start, go), (told, tell), (end, done) = os.pipe(), os.pipe(), os.pipe()
    for name in names:
        if os.fork() == 0:
            os.close(go), os.close(done)
            os.read(start, 1)
            Path(f"{path}.lock").unlink(missing_ok=True)
            try:
                with Journal(name):
                    os.write(tell, b"1")
                    os.read(end, 1)
            except dp.LedgerError as error:
                os.write(tell, b"0" if "in use by another run" in str(error) else b"?")
            os._exit(0)
    os.close(go)
    said = b"".join(os.read(told, 1) for name in names)
    os.close(done)
    for name in names:
        assert os.wait()[1] == 0
    print(bytes(sorted(said)).decode())
"""


@needs_fork
def test_one_of_several_processes_gets_the_ledger(tmp_path):
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["000001"] * 10, done.stderr


SURVIVED = """
import multiprocessing, os, signal, sys, time
from dpcvx.privacy.ledger_file import Journal
with Journal(sys.argv[1]):
    child = os.fork()
    if child == 0:
        time.sleep(600)
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    worker.start()
    print(child, worker.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@needs_fork
def test_a_process_that_outlives_a_killed_run_does_not_keep_its_file(path):
    command = [sys.executable, "-c", SURVIVED, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as first:
        survivors = [int(pid) for pid in first.stdout.readline().split()]
    try:
        assert first.returncode == -signal.SIGKILL
        for survivor in survivors:
            os.kill(survivor, 0)
        until = time.monotonic() + 30  # they let go once they begin, which may be after the kill
        while True:
            try:
                with Journal(path):
                    break
            except dp.LedgerError:
                assert time.monotonic() < until
                time.sleep(0.02)
    finally:
        for survivor in survivors:
            os.kill(survivor, signal.SIGKILL)


def test_agents_in_threads_may_write_at_once(path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: time.sleep(0.01))
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[account("a"), account("b")])
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: journal.charge([name], entry(1)), "ab"))
    assert [len(book.entries) for book in dp.Ledger.load(path).values()] == [1, 1]


def test_numpy_scalars_are_numbers(path):
    book = Account("a", {}, Budget(np.float32(1.0), np.float32(1e-6), Composition()))
    with Journal(path) as journal:
        journal.begin("plan", seeded=False, accounts=[book])
    assert dp.Ledger.load(path)["a"].budget.delta == pytest.approx(1e-6)


def test_a_process_that_is_just_being_forked_does_not_keep_the_lock(path):
    with Journal(path) as journal:
        kept = os.dup(journal._file.fileno())  # what such a process has until it lets go
    try:
        with Journal(path):
            pass
    finally:
        os.close(kept)


@pytest.mark.parametrize("line", range(1, 8))
def test_an_interrupt_while_the_file_is_closed_leaves_it_free(path, line):
    left = line

    def tracer(frame, event, _):
        nonlocal left
        if frame.f_code is not Journal._close.__code__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return tracer

    journal, before = Journal(path).__enter__(), sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(KeyboardInterrupt):
            journal.__exit__(None, None, None)
    finally:
        sys.settrace(before)
    with Journal(path):
        pass


def test_a_ledger_of_the_earlier_format_is_refused_as_that(path):
    first = json.dumps({"format": "dpcvx ledger 1", "lines": 0, "link": "0" * 64})
    path.write_bytes(first.ljust(159).encode() + b"\n")
    with pytest.raises(dp.LedgerError, match="written by an earlier version"):
        dp.Ledger.load(path)
