"""Totals beside a long ledger: the same accounts as from all lines, for one state of one file."""

import json
import os
import shutil
from collections import Counter
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy import ledger_chain, ledger_file
from dpcvx.privacy.accounting import Composition
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.entries import Entry
from dpcvx.privacy.ledger_file import Journal, past_of, spent_of

GAUSSIAN = Entry(1, 1, "Gaussian", 10.0, 0.1 + 0.2, 2.0**-20, "derived", "gradient")
LAPLACE = replace(GAUSSIAN, mechanism="Laplace", multiplier=1 / 3, grid=0.1, certificate="asserted")
STAIRCASE = replace(LAPLACE, mechanism="Staircase", multiplier=0.2)
EXACT = replace(GAUSSIAN, mechanism="none", sensitivity=np.inf, certificate="none")
STATED = replace(GAUSSIAN, mechanism="none", stated=(0.1, 1e-7))
SPLIT = replace(GAUSSIAN, colluders=2, alone=7.5)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "spent.jsonl"


def account(name, budget=1.0):
    limit = Budget(budget, 1e-6, Composition(mu2=0.1))
    return Account(name, {f"of {name}": "a change"}, limit)


def run(path, kinds=(GAUSSIAN,), plan="plan", rounds=8, width=300, end=True):
    """A run of two agents, about 40 kB long."""
    with Journal(path) as journal:
        journal.begin(plan, seeded=False, accounts=[account("a"), account("b")])
        for t in range(1, rounds + 1):
            with journal.exchange():
                for kind in kinds:
                    journal.charge(["a", "b"], replace(kind, round=t))
                journal.release(["a", "b"], (t, 1), np.full((2, width), 1 / t))
        if end:
            journal.end("completed", rounds)


def totals(path):
    return path.with_name(f"{path.name}.totals")


def held(past):
    """All that a further run takes from a ledger."""
    assert past.interrupted is None
    return {
        name: (
            list(book.entries),
            Counter(dict.fromkeys(book.entries.kinds)),
            book.total,
            book.committed,
            book.budget,
            dict(book.adjacency),
            book.share,
            repr(book.spent(1e-5)),
        )
        for name, book in (past.ledger or {}).items()
    }


@pytest.mark.parametrize(
    "kinds",
    [
        (GAUSSIAN,),
        (LAPLACE,),
        (LAPLACE, GAUSSIAN),
        (EXACT,),
        (SPLIT, LAPLACE),
        (STAIRCASE, LAPLACE),
    ],
    ids=["gaussian", "laplace", "both", "exact", "split", "staircase"],
)
def test_totals_hold_what_all_lines_add_up_to_to_the_bit(path, kinds):
    run(path, (STATED,), plan="first")
    for k in range(5):
        run(path, kinds, plan=("plan", "other")[k == 3], rounds=8 + (k == 2))
    assert totals(path).exists()
    quick, whole = spent_of(path), past_of(path)
    assert quick.finished == {} and list(quick.ended) == [*whole.finished] == [*whole.ended]
    assert held(quick) == held(whole) and whole.begun == 6
    with Journal(path) as journal:
        assert held(journal._past) == held(whole) and journal.has_finished("first")
        with open(path, "rb") as file:
            lines = file.read()[ledger_chain.WIDTH :].count(b"\n")
        assert journal.lines == lines


def test_the_work_of_a_run_does_not_grow_with_the_runs_before(path, monkeypatch):
    done = Counter()

    def counted(module, name):
        function = getattr(module, name)

        def call(*given):
            done[name] += 1
            return function(*given)

        monkeypatch.setattr(module, name, call)

    counted(ledger_chain, "_followed")  # lines read
    counted(Account, "recall")  # charges priced
    counted(ledger_chain, "_entry")  # kinds of charges read
    work, size = [], []
    for _ in range(12):
        done.clear()
        run(path, (GAUSSIAN, LAPLACE))
        work.append(dict(done))
        size.append(totals(path).stat().st_size if totals(path).exists() else 0)
    assert work[2] == work[-1] == {"recall": 32, "_entry": 16}
    assert size[-1] < size[2] + 20
    # An owner that looks at its ledger before a run reads no line either.
    done.clear()
    spent_of(path)
    assert done["_followed"] == done["recall"] == 0


def test_a_run_of_a_plan_counts_the_same_work_after_many(tmp_path, monkeypatch):
    point = cp.Variable(400)
    data = dp.Private(np.ones(400), name="data", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(point - data)), [cp.abs(point) <= 5], name="a")
    noise = dp.Gaussian(noise_multiplier=500.0)
    problem, path = dp.Problem([agent]), tmp_path / "spent.jsonl"
    plan = problem.plan(dp.FederatedGradient(), mechanism=noise, rounds=9, epsilon=5.0, delta=1e-6)
    read, followed = [], ledger_chain._followed
    monkeypatch.setattr(
        ledger_chain, "_followed", lambda *given: read.append(1) or followed(*given)
    )
    costs = []
    for _ in range(6):
        read.clear()
        result = plan.run(ledger=path)
        costs.append(len(read))
    assert costs[0] <= 1 < costs[1] and costs[3:] == [0, 0, 0]
    book = result.ledger["a"]
    assert len(book.entries) == 54 and book.entries == dp.Ledger.load(path)["a"].entries
    assert repr(book.spent()) == repr(dp.Ledger.load(path)["a"].spent())


def changed(path, old, new):
    raw = path.read_bytes()
    place = raw.index(old)
    with open(path, "r+b") as file:  # the same file, and as long
        file.seek(place)
        file.write(new)


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_changed_line_is_refused_although_totals_are_there(path, keep_times):
    for _ in range(3):
        run(path)
    before = path.stat()
    changed(path, b'"multiplier": 10.0', b'"multiplier": 90.0')
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for reads in (lambda: run(path), lambda: spent_of(path), lambda: dp.Ledger.load(path)):
        with pytest.raises(dp.LedgerError, match="does not continue the lines before it"):
            reads()


def test_removed_lines_and_older_copies_are_seen(path):
    run(path)
    run(path)
    older = path.read_bytes()
    run(path)
    head, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b"".join(lines[:-3]))
    with pytest.raises(dp.LedgerError, match="lines were removed or added"):
        run(path)
    # An intact copy counts with what it holds itself, as without totals.
    path.write_bytes(older)
    assert len(spent_of(path).ledger["a"].entries) == 16


def test_a_copy_is_read_as_a_whole_and_has_totals_of_its_own(path, tmp_path):
    for _ in range(3):
        run(path)
    copy = tmp_path / "copy.jsonl"
    shutil.copy2(path, copy)
    shutil.copy2(totals(path), totals(copy))
    run(copy)
    assert held(spent_of(copy)) == held(past_of(copy)) != held(spent_of(path))


DAMAGES = {
    "missing": lambda raw: None,
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[:-20],
    "one digit": lambda raw: raw.replace(b'"share": 1', b'"share": 2'),
    "of another format": lambda raw: b"[]",
    "sealed, and no totals": lambda raw: sealed(b"[1, 2]"),
    "sealed, of another version": lambda raw: sealed(
        raw.split(b"\n", 1)[1].replace(b"totals 1", b"totals 9")
    ),
}


def sealed(body):
    return ledger_chain.hashlib.sha256(body).hexdigest().encode() + b"\n" + body


@pytest.mark.parametrize("damage", DAMAGES)
def test_without_totals_all_lines_are_read(path, damage):
    for _ in range(3):
        run(path)
    new = DAMAGES[damage](totals(path).read_bytes())
    if new is None:
        totals(path).unlink()
    else:
        totals(path).write_bytes(new)
    run(path)
    assert held(spent_of(path)) == held(past_of(path))
    assert len(past_of(path).ledger["a"].entries) == 32
    assert (
        json.loads(totals(path).read_bytes().split(b"\n", 1)[1])["lines"]
        == len(path.read_bytes().splitlines()) - 1
    )


def test_an_interrupted_run_is_read_from_its_lines(path):
    for _ in range(3):
        run(path)
    run(path, plan="cut", end=False)
    past = spent_of(path)
    assert past.interrupted is not None and past.interrupted.fingerprint == "cut"
    with Journal(path) as journal:  # it ends without a further charge
        assert len(journal.interrupted.values["a"]) == 8
        journal.end("completed", 8)
    assert held(spent_of(path)) == held(past_of(path))
    assert [*spent_of(path).ended] == ["plan", "cut"]


def test_totals_are_for_the_owner_alone_and_short_ledgers_have_none(path):
    run(path, width=1)
    run(path, width=1)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    for _ in range(3):
        run(path)
    assert totals(path).stat().st_mode & 0o777 == 0o600
    assert {p.name for p in path.parent.iterdir()} == {path.name, totals(path).name}


def test_a_run_ends_well_where_totals_cannot_be_written(path, monkeypatch):
    for _ in range(3):
        run(path)
    for name in ("replace", "utime"):
        with monkeypatch.context() as patch:

            def fails(*given, **named):
                raise OSError(28, "No space left on device")

            patch.setattr(os, name, fails)
            run(path)
    assert {p.name for p in path.parent.iterdir()} == {path.name, totals(path).name}
    assert len(spent_of(path).ledger["a"].entries) == 40
    # A file system that keeps seconds only cannot tell two states of a file apart.
    with monkeypatch.context() as patch:
        stamp = os.utime
        patch.setattr(os, "utime", lambda file, ns: stamp(file, ns=(0, ns[1] // 10**9 * 10**9)))
        before = totals(path).read_bytes()
        run(path)
    assert totals(path).read_bytes() == before
    assert held(spent_of(path)) == held(past_of(path))


def test_totals_count_while_another_run_has_the_ledger_and_never_for_its_lines(path):
    for _ in range(3):
        run(path)
    with Journal(path) as journal:
        journal.begin("next", seeded=False, accounts=[account("a"), account("b")])
        journal.charge(["a", "b"], replace(GAUSSIAN, round=1))
        assert len(spent_of(path).ledger["a"].entries) == 25
        with pytest.raises(dp.LedgerError, match="in use by another run"):
            run(path)
    assert ledger_file.load(path)["a"].entries[-1].round == 1
