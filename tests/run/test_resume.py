"""Runs with a ledger file: killed anywhere, started again, nothing forgotten, nothing twice.

What a killed process leaves is a first part of the file of a run that was not; most tests cut such
a file. That real processes leave just that is tested with real signals.
"""

import base64
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan.guarantee import ALONE, COUNTED
from dpcvx.privacy.ledger_chain import GROUP, WIDTH
from dpcvx.privacy.ledger_file import Journal
from dpcvx.run.executors.in_process import Durable, Serial
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.sensitivity.release_once import Publication
from tests.instances import INSTANCES, overlapping_slices, power_line
from tests.privacy.test_ledger_file import ROOT, TAMPERED, cut, ends, parts, put, written
from tests.spies import watch_releases

# The same data serve run after run, each with a ledger of its own.
pytestmark = pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")

DATA = np.array([[0.3, 0.7], [-0.2, 0.123456789]])


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Spare the time of the disk, and of texts that are not shown; lines in the order of turns."""
    monkeypatch.setattr("dpcvx.run.executors.in_process.available_cores", lambda: 1)
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr("dpcvx.run.report.banner", lambda plan, guarantee: "")
    monkeypatch.setattr("dpcvx.run.report.Reporter._print", lambda self, text: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def problem(data=DATA, radius=0.1, names="ab", groups=()):
    x = cp.Variable(2, name="x")
    agents = []
    for name, values in zip(names, data, strict=True):
        d = dp.Private(values, name=f"of {name}", shape=2, adjacency=dp.Within(radius))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 1], name=name))
    return dp.Problem(agents, groups=groups)


def unlike():
    """Two agents that share no line of a ledger: other charges, and values of other sizes."""
    x, agents = cp.Variable(2, name="x"), []
    for k, name in enumerate("ab", start=1):
        own = cp.Variable(k, name=f"own {name}")
        d = dp.Private(DATA[k - 1], name=f"of {name}", adjacency=dp.Within(0.1 * k))
        cost = cp.sum_squares(x - d) + cp.sum_squares(own - 0.5)
        inside = [cp.abs(x) <= 1, cp.abs(own) <= 1]
        agents.append(dp.Agent(cp.Minimize(cost), inside, name=name))
    return dp.Problem(agents)


def planned(given=None, algorithm=None, **arguments):
    """Two agents, two rounds, a budget that is spent to the last release."""
    settings = {"rounds": 2, "epsilon": 1.0, "delta": 1e-6} | arguments
    return (given or problem()).plan(algorithm or dp.LinearizedADMM(penalty=1.0), **settings)


def unpriced(given=None, multiplier=30.0, **arguments):
    """With noise of a given size: a plan of more rounds has a larger budget."""
    mechanism = dp.Gaussian(noise_multiplier=multiplier)
    return planned(given, mechanism=mechanism, epsilon=None, **arguments)


def noiseless(given=None):
    return planned(given, mechanism=None, epsilon=None, delta=None)


PLANS = {
    "each_step": planned,
    "once": lambda: planned(release="once"),
    "Laplace": lambda: planned(mechanism=dp.Laplace(), delta=0.0),
    "exact steps": lambda: planned(algorithm=dp.ADMM(penalty=2.0)),
    "two steps a round": lambda: planned(algorithm=dp.LinearizedADMM(penalty=1.0, local_updates=2)),
    "output": lambda: planned(algorithm=dp.LinearizedADMM(penalty=1.0, perturb="output")),
    "groups": lambda: planned(problem(groups=[["a", "b"]])),
    "an agent without data": lambda: planned(overlapping_slices().problem),
    "agents that differ": lambda: planned(unlike()),
}
plans = pytest.mark.parametrize("name", PLANS)


def same(one, other):
    """Whether two results are equal bit for bit."""
    assert (one.status, one.rounds) == (other.status, other.rounds)
    for mine, yours in ((one.last, other.last), (one.average, other.average)):
        for x, y in zip(mine.vectors, yours.vectors, strict=True):
            assert x.tobytes() == y.tobytes()
    for name in ("rounds", "primal", "dual", "mismatch", "penalty", "inaccurate", "failed"):
        mine, yours = getattr(one.history, name), getattr(other.history, name)
        assert np.array_equal(mine, yours, equal_nan=True)
    assert one.violation == other.violation
    assert counted(one.guarantee) == counted(other.guarantee)
    same_ledger(one.ledger, other.ledger)
    if one.transcript is not None and other.transcript is not None:
        mine, yours = one.transcript.releases, other.transcript.releases
        for r, s in zip(mine, yours, strict=True):
            assert (r.agent, r.round, r.step) == (s.agent, s.round, s.step)
            assert r.value.tobytes() == s.value.tobytes()


def counted(guarantee):
    """As of a run with a ledger: one in memory may be compared with one in a file."""
    assumptions = tuple(COUNTED if text == ALONE else text for text in guarantee.assumptions)
    return replace(guarantee, assumptions=assumptions)


def same_ledger(one, other):
    assert list(one) == list(other)
    for name in one:
        assert one[name].entries == other[name].entries
        assert one[name].spent() == other[name].spent()
        assert one[name].rho == other[name].rho


def same_ledger_in_any_order(one, other):
    for name in one:
        mine, yours = one[name], other[name]
        assert sorted(map(repr, mine.entries)) == sorted(map(repr, yours.entries))
        assert mine.spent().epsilon == pytest.approx(yours.spent().epsilon, rel=1e-12)


def book(raw):
    """Charges and values of a file, in their order."""
    return written(raw, "charge"), written(raw, "value")


def lines_of(path):
    """What a file holds behind its head, in which the next start counts what a kill left."""
    return path.read_bytes()[WIDTH:]


def left(raw):
    """What a file says has left: agent, round, step, and the value."""
    return {(v["value"], v["round"], v["step"]): v["data"] for v in written(raw, "value")}


def charged(raw):
    return [(c["charge"], c["round"], c["step"]) for c in written(raw, "charge")]


def released(plan, result):
    names = [local.name for local in plan.program.agents]
    return {
        (names[r.agent], r.round, r.step): base64.b64encode(r.value.tobytes()).decode()
        for r in result.transcript.releases
    }


def full(plan, path, **arguments):
    """Result and file of a run that nobody kills."""
    result = plan.run(ledger=path, record=True, **arguments)
    return result, path.read_bytes()


def killed(plan, path, lines, **arguments):
    """Run until so many lines are written, of the last exchange perhaps a part."""
    honest, count = Journal._write, [lines]

    def write(self, text, at):
        if at == 0 or b'"torn"' in text:
            return honest(self, text, at)
        whole = text.splitlines(keepends=True)
        honest(self, b"".join(whole[: count[0]]), at)
        if len(whole) > count[0]:
            raise Killed
        count[0] -= len(whole)
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "_write", write)
        with pytest.raises(Killed):
            plan.run(ledger=path, **arguments)


# -- seeded runs -----------------------------------------------------------------------------------


@plans
def test_a_ledger_file_changes_no_run(path, name):
    plan = PLANS[name]()
    result, raw = full(plan, path, seed=3)
    same(result, plan.run(seed=3, record=True))
    same_ledger(dp.Ledger.load(path), result.ledger)
    noisy = {
        k: v for k, v in released(plan, result).items() if k[0] in {c[0] for c in charged(raw)}
    }
    assert left(raw) == noisy
    assert sorted(charged(raw)) == sorted(noisy)


@plans
def test_a_seeded_run_that_was_killed_gives_the_same_result(path, name):
    plan = PLANS[name]()
    result, raw = full(plan, path, seed=3)
    sizes = [size + more for size in ends(raw)[:-1] for more in (0, 25)]
    for k, size in enumerate([*sizes, ends(raw)[-1] - 1]):
        put(path, cut(raw, size, lag=k // 2 % 2))
        again = plan.run(ledger=path, seed=3, record=True)
        same(result, again)
        assert book(path.read_bytes()) == book(raw)
        same_ledger(dp.Ledger.load(path), result.ledger)


def test_a_seeded_run_cut_anywhere_gives_the_same_result(path):
    """Around the end of every line, and at every fourth byte of it."""
    x, d = cp.Variable(1), dp.Private([0.3], name="d", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")
    plan = planned(dp.Problem([agent]), rounds=1)
    result, raw = full(plan, path, seed=3)
    *inside, last = ends(raw)
    near = {end + k for end in inside for k in range(-3, 4)} & {*range(last)}
    for k, size in enumerate(sorted({*range(0, last, 4), *near, last - 1})):
        put(path, cut(raw, size, lag=k % 2))
        same(result, plan.run(ledger=path, seed=3))
        assert book(path.read_bytes()) == book(raw)


@pytest.mark.parametrize("seed", [None, 3])
def test_a_run_may_be_killed_after_every_line(path, seed):
    plan = planned()
    kept = {}
    for _ in range(5):
        killed(plan, path, 1, seed=seed)
        now = left(path.read_bytes())
        assert kept.items() <= now.items()
        kept = now
    result = plan.run(ledger=path, seed=seed, record=True)
    assert result.status is dp.Status.COMPLETED
    assert released(plan, result) == kept
    assert len(charged(path.read_bytes())) == len(set(charged(path.read_bytes()))) == 4
    same_ledger(dp.Ledger.load(path), result.ledger)
    if seed is not None:
        same(result, plan.run(seed=seed, record=True))


@pytest.mark.parametrize("release", ["each_step", "once"])
@pytest.mark.parametrize("place", [1, 2, 4])
def test_an_exception_interrupts_a_run_as_well(path, release, place):
    class Fragile(Serial):
        calls = 0

        def map(self, method, *common, each=None):
            self.calls += method != "answer"  # which asks nothing of private data
            if self.calls == place:
                raise KeyboardInterrupt
            return super().map(method, *common, each=each)

    plan = planned(rounds=3, release=release)
    with pytest.raises(KeyboardInterrupt):
        plan.run(ledger=path, seed=3, executor=Fragile())
    before = left(path.read_bytes())
    assert len(before) == (2 if release == "once" else 2 * (place - 1))
    same(plan.run(ledger=path, seed=3), plan.run(seed=3))
    assert before.items() <= left(path.read_bytes()).items()


def test_an_early_stop_is_the_same_after_a_kill(path):
    plan = planned(rounds=5)
    result, raw = full(plan, path, seed=3, tolerance=1e3)
    assert (result.status, result.rounds) == (dp.Status.CONVERGED, 2)
    for size in ends(raw)[:-1]:
        put(path, cut(raw, size))
        same(result, plan.run(ledger=path, seed=3, tolerance=1e3))
        assert book(path.read_bytes()) == book(raw)


@pytest.mark.parametrize("lines", [None, 2, 3])
def test_a_killed_run_goes_on_on_top_of_earlier_ones(path, lines):
    first, second = unpriced(rounds=1), unpriced(rounds=4)
    if lines is None:
        first.run(ledger=path, seed=3)
    else:
        killed(first, path, lines, seed=3)
    begun = len(parts(path.read_bytes())[1])
    result, raw = full(second, path, seed=3)
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 3)
    for size in ends(raw)[begun:-1]:
        put(path, cut(raw, size))
        same(result, second.run(ledger=path, seed=3))
        assert book(path.read_bytes()) == book(raw)


def test_a_continued_run_can_be_replayed(path):
    plan = planned()
    killed(plan, path, 4)
    result = plan.run(ledger=path, record=True)
    same(result, plan.replay(result.transcript))


def test_a_run_goes_on_in_another_object_of_the_same_plan(path):
    killed(planned(), path, 4, seed=3)
    same(planned().run(ledger=path, seed=3), planned().run(seed=3))


@pytest.mark.parametrize("seeds", [(None, 3), (3, None)])
def test_a_killed_run_goes_on_with_a_seed_only_if_it_had_one(path, seeds):
    plan = planned()
    killed(plan, path, 4, seed=seeds[0])
    before = lines_of(path)
    with pytest.raises(dp.LedgerError, match="interrupted and had"):
        plan.run(ledger=path, seed=seeds[1])
    assert lines_of(path) == before
    assert plan.run(ledger=path, seed=seeds[0]).status is dp.Status.COMPLETED


# -- signals ---------------------------------------------------------------------------------------

# Forks one process per place to die at: before every write, in the middle of an exchange and late
# in it, after every fsync. The last process of each sort finds no such place and ends its run.
KILLER = """
import os, signal, sys
from pathlib import Path
from dpcvx.privacy.ledger_file import Journal
from tests.run.test_resume import PLANS

folder, seeds = Path(sys.argv[1]), {"seeded": 3, "unseeded": None}
plans = {name: PLANS[name]() for name in ("each_step", "once")}
parts = {"before": 0.0, "middle": 0.5, "late": 0.9}
opened, forced = Journal._open, os.fsync


def die():
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly:
    def __init__(self, file, place, part):
        self.file, self.left, self.part = file, place, part

    def write(self, text):
        self.left -= not (self.part and bytes(text).startswith(b'{"format"'))
        if self.left == 0:
            self.file.write(text[: int(len(text) * self.part)])
            die()
        return self.file.write(text)

    def __getattr__(self, name):
        return getattr(self.file, name)


def child(name, seed, where, place):
    def open_deadly(journal):
        opened(journal)
        journal._file = Deadly(journal._file, place, parts[where])

    count = []

    def fsync(number):
        forced(number)
        count.append(number)
        if len(count) == place:
            die()

    def open_counted(journal):
        opened(journal)
        os.fsync = fsync

    os.fsync = lambda number: None
    Journal._open = open_counted if where == "fsync" else open_deadly
    plans[name].run(ledger=folder / f"{name} {seed} {where} {place}", seed=seeds[seed])


for name, seed, places in (
    ("each_step", "seeded", ("before", "middle", "late", "fsync")),
    ("each_step", "unseeded", ("middle", "late", "fsync")),
    ("once", "seeded", ("before", "middle", "late", "fsync")),
):
    for where in places:
        place, status = 0, signal.SIGKILL
        while status == signal.SIGKILL:
            place += 1
            pid = os.fork()
            if pid == 0:
                child(name, seed, where, place)
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            print(name, seed, where, place, int(status), sep=",", flush=True)
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """Per plan and seed, the files that killed processes left."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork and signals")
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", KILLER, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        name, seed, where, place, status = line.split(",")
        if int(status) != 0:
            assert int(status) == signal.SIGKILL
            file = folder / f"{name} {seed} {where} {place}"
            found.setdefault((name, seed), []).append(file)
    return found


@pytest.mark.parametrize("name", ["each_step", "once"])
def test_a_seeded_run_survives_kill_9_at_every_write(victims, path, name):
    plan = PLANS[name]()
    result, raw = full(plan, path, seed=3)
    files = victims[name, "seeded"]
    # A head and the lines, twice a part of these, and one call that forces them to disk.
    assert len(files) == (2 + 2 + 1) * sum(GROUP in json.loads(line) for line in parts(raw)[1])
    for file in files:
        if not written(file.read_bytes(), "end"):
            same(result, plan.run(ledger=file, seed=3, record=True))
        assert book(file.read_bytes()) == book(raw)
        same_ledger(dp.Ledger.load(file), result.ledger)


def test_an_unseeded_run_survives_kill_9_at_every_write(victims):
    plan, torn = planned(), 0
    for file in victims["each_step", "unseeded"]:
        raw = file.read_bytes()
        if not written(raw, "end"):
            result = plan.run(ledger=file, record=True)
            paid_again = raw.rpartition(b"\n")[2].startswith(b'{"data"')
            assert result.rounds == 2 - paid_again
            assert left(raw).items() <= left(file.read_bytes()).items()
            assert result.ledger.spent() <= plan.guarantee.epsilon * (1 + 1e-9)
            same_ledger_in_any_order(dp.Ledger.load(file), result.ledger)
            torn += paid_again
    assert torn == 2


RUNNING = """
import sys
from tests.run.test_resume import planned, problem
def wait():
    print("reading", flush=True)
    sys.stdin.read()
planned(problem(data=[wait, wait])).run(ledger=sys.argv[1])
"""


def test_a_ledger_is_refused_while_a_run_of_another_process_has_it(path):
    command = [sys.executable, "-c", RUNNING, str(path)]
    plan = planned(problem(data=[fetch_nothing] * 2))
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"reading\n"
        before = path.read_bytes()
        with pytest.raises(dp.LedgerError, match="in use by another run"):
            plan.run(ledger=path)
        assert path.read_bytes() == before
        other.kill()
    plan = planned()
    assert plan.run(ledger=path).rounds == plan.rounds
    assert len(written(path.read_bytes(), "run")) == 1


def test_a_ledger_is_refused_while_a_run_of_the_same_process_has_it(path):
    refused = []

    def fetch():
        with pytest.raises(dp.LedgerError, match="in use by another run"):
            planned().run(ledger=path)
        refused.append(True)
        return DATA[0]

    result = planned(problem(data=[fetch, fetch])).run(ledger=path)
    assert refused == [True, True]
    same_ledger(dp.Ledger.load(path), result.ledger)


# -- what is written before what -------------------------------------------------------------------


def watch(monkeypatch, touch):
    """Have ``touch(count)`` called whenever the data of so many agents are computed with."""
    honest, exact = PrivateOracle._evaluated, Publication.exact

    def watched_answer(self, *arguments):
        if self._facts.form.private:
            touch(self.count)
        return honest(self, *arguments)

    def watched_statistic(self, data):
        touch(1)
        return exact(self, data)

    monkeypatch.setattr(PrivateOracle, "_evaluated", watched_answer)
    monkeypatch.setattr(Publication, "exact", watched_statistic)


@plans
def test_charges_come_before_data_and_all_is_on_disk_before_the_run_takes_it_up(
    path, name, monkeypatch
):
    """One write to the disk for an exchange: nobody sees what agents do before its end."""
    forced, touched, charges, given = [], [], [], []
    plan = PLANS[name]()
    charge, start, call = Journal.charge, Durable.start, Durable.map

    def touch(count):
        touched.extend([True] * count)
        assert len(charges) == len(touched)

    def charging(self, agents, entry):
        charges.extend((agent, entry.round, entry.step) for agent in agents)
        charge(self, agents, entry)

    def leaving(gate, place, charges, values):
        rows = [row for charge in charges if charge.entry is not None for row in charge.rows]
        given.extend(base64.b64encode(values[row].tobytes()).decode() for row in rows)

    def settled(before):
        raw = forced[-1]
        assert sorted(charged(raw)) == sorted(charges)
        assert sorted(left(raw).values()) == sorted(given)
        assert len(forced) - before == (len(given) > len(left(forced[before - 1])))

    def starting(self, factories):
        before = len(forced)
        start(self, factories)
        settled(before)

    def mapping(self, method, *common, each=None):
        before = len(forced)
        replies = call(self, method, *common, each=each)
        settled(before)
        return replies

    monkeypatch.setattr(os, "fsync", lambda _: forced.append(path.exists() and path.read_bytes()))
    watch(monkeypatch, touch)
    monkeypatch.setattr(Journal, "charge", charging)
    watch_releases(monkeypatch, leaving)
    monkeypatch.setattr(Durable, "start", starting)
    monkeypatch.setattr(Durable, "map", mapping)
    plan.run(ledger=path)
    assert len(touched) == len(charges) > 1


@plans
def test_data_are_not_touched_again_for_what_has_left(path, name, monkeypatch):
    plan, touched = PLANS[name](), []
    _, raw = full(plan, path)
    watch(monkeypatch, lambda count: touched.extend([True] * count))
    for size in ends(raw)[1:-1]:
        touched.clear()
        put(path, cut(raw, size))
        plan.run(ledger=path)
        assert len(touched) == len(left(raw)) - len(left(cut(raw, size)))


@pytest.mark.parametrize("group", range(1, 4))
def test_no_value_leaves_when_the_disk_fails(path, group, monkeypatch):
    plan, taken, count = planned(), [], []
    honest = dp.LinearizedADMM.receive

    def receive(self, server, t, k, replies):
        taken.append(t)
        return honest(self, server, t, k, replies)

    def fails(file):
        count.append(file)
        if len(count) == group + 3:  # three calls make the file
            raise OSError(errno.EIO, "gone")

    with monkeypatch.context() as patch:
        patch.setattr(dp.LinearizedADMM, "receive", receive)
        patch.setattr(os, "fsync", fails)
        with pytest.raises(dp.LedgerError, match="cannot be written: gone"):
            plan.run(ledger=path, seed=3)
    assert len(taken) == max(0, group - 2)
    same(plan.run(ledger=path, seed=3), plan.run(seed=3))


# -- without a seed --------------------------------------------------------------------------------


@plans
def test_without_a_seed_what_left_is_given_out_again(path, name):
    plan = PLANS[name]()
    _, raw = full(plan, path)
    for size in ends(raw)[:-1]:
        put(path, cut(raw, size, lag=size % 2))
        before = left(path.read_bytes())
        result = plan.run(ledger=path, record=True)
        after = released(plan, result)
        assert result.status.solved and result.rounds == plan.rounds
        assert before.items() <= after.items()
        assert left(path.read_bytes()).items() <= after.items()
        fresh = left(path.read_bytes()).keys() - before.keys()
        assert all(after[at] != left(raw)[at] for at in fresh)
        assert sorted(charged(path.read_bytes())) == sorted(charged(raw))
        assert result.ledger.spent() == pytest.approx(plan.guarantee.epsilon)
        same_ledger(dp.Ledger.load(path), result.ledger)


def values_of(raw):
    """Where the lines of values begin, with their agents and length."""
    starts = ends(raw)
    lines = [json.loads(line) for line in parts(raw)[1]]
    return [
        (starts[k], line["values"], starts[k + 1] - starts[k])
        for k, line in enumerate(lines)
        if "values" in line
    ]


def test_without_a_seed_a_value_of_which_nothing_is_on_disk_is_not_paid_again(path):
    plan = planned()
    _, raw = full(plan, path)
    for start, _, _ in values_of(raw):
        for more in (0, 1, 6):
            put(path, cut(raw, start + more))
            result = plan.run(ledger=path)
            assert result.rounds == plan.rounds
            assert sorted(charged(path.read_bytes())) == sorted(charged(raw))


@pytest.mark.parametrize("lag", [0, 1])
def test_without_a_seed_a_torn_value_is_paid_again(path, lag):
    plan = planned(rounds=3)
    _, raw = full(plan, path)
    for start, agents, length in values_of(raw):
        for more in (11, length // 2, length - 1):
            put(path, cut(raw, start + more, lag))
            before = left(path.read_bytes())
            result = plan.run(ledger=path, record=True)
            assert (result.status, result.rounds) == (dp.Status.BUDGET, 2)
            assert [len(result.ledger[agent].entries) for agent in agents] == [3, 3]
            assert result.ledger.spent() <= plan.guarantee.epsilon * (1 + 1e-9)
            same_ledger_in_any_order(dp.Ledger.load(path), result.ledger)
            after = released(plan, result)
            assert {k: v for k, v in before.items() if k[1] < 3}.items() <= after.items()
            assert before.items() <= left(path.read_bytes()).items()
            with pytest.raises(dp.BudgetError):
                plan.run(ledger=path)


def test_with_a_group_a_torn_value_is_paid_again_too(path):
    plan = planned(problem(groups=[["a", "b"]]), rounds=3)
    _, raw = full(plan, path)
    start, agents, _ = values_of(raw)[1]
    put(path, cut(raw, start + 20))
    result = plan.run(ledger=path)
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 2)
    assert [len(result.ledger[agent].entries) for agent in agents] == [3, 3]
    assert result.ledger.spent() <= plan.guarantee.epsilon * (1 + 1e-9)


def test_a_run_that_stops_early_finds_the_budget_for_a_torn_value(path):
    plan = planned(rounds=5)
    _, raw = full(plan, path, tolerance=1e3)
    start, agents, _ = values_of(raw)[1]
    put(path, cut(raw, start + 20))
    result = plan.run(ledger=path, tolerance=1e3)
    assert (result.status, result.rounds) == (dp.Status.CONVERGED, 2)
    assert [len(result.ledger[agent].entries) for agent in agents] == [3, 3]


def torn(path, plan):
    """A file that ends in the middle of the first values."""
    _, raw = full(plan, path)
    start, _, _ = values_of(raw)[0]
    put(path, cut(raw, start + 20))


def test_a_single_release_cannot_be_paid_again(path):
    plan = planned(release="once")
    torn(path, plan)
    with pytest.raises(dp.BudgetError):
        plan.run(ledger=path)


def test_a_single_release_cannot_be_paid_again_however_often_it_is_tried(path):
    plan = planned(release="once")
    torn(path, plan)
    for _ in range(3):
        with pytest.raises(dp.BudgetError):
            plan.run(ledger=path)


def die_at_once(plan, path):
    killed(plan, path, 0)


def with_a_seed(plan, path):
    with pytest.raises(dp.LedgerError, match="interrupted"):
        plan.run(ledger=path, seed=3)


def without_data(plan, path):
    def fails():
        raise OSError

    with pytest.raises(dp.DataError):
        plan.run(ledger=path, data={"of a": fails})


def opened_only(plan, path):
    with Journal(path):
        pass


@pytest.mark.parametrize("attempt", [die_at_once, with_a_seed, without_data, opened_only])
def test_a_torn_value_is_remembered_over_an_attempt_that_wrote_nothing(path, attempt):
    plan = planned(rounds=3)
    torn(path, plan)
    attempt(plan, path)
    result = plan.run(ledger=path)
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 2)
    assert len(result.ledger["a"].entries) == 3


@pytest.mark.parametrize("lines", range(1, 5))
def test_a_run_with_a_torn_value_may_be_killed_again(path, lines):
    plan = planned(rounds=3)
    torn(path, plan)
    killed(plan, path, lines)
    result = plan.run(ledger=path)
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 2)
    assert result.ledger.spent() <= plan.guarantee.epsilon * (1 + 1e-9)
    assert len(result.ledger["a"].entries) == 3


def test_a_value_that_is_torn_twice_is_paid_three_times(path):
    plan = planned(rounds=4)
    torn(path, plan)
    killed(plan, path, 2)
    raw = path.read_bytes()
    put(path, cut(raw, ends(raw)[-2] + 20))
    result = plan.run(ledger=path)
    assert (result.status, result.rounds) == (dp.Status.BUDGET, 2)
    assert [len(a.entries) for a in result.ledger.values()] == [4, 4]
    assert result.ledger.spent() <= plan.guarantee.epsilon * (1 + 1e-9)


def test_a_torn_value_of_a_seeded_run_is_made_again(path):
    plan = planned()
    result, raw = full(plan, path, seed=3)
    for start, _, length in values_of(raw):
        for more in (11, length - 1):
            put(path, cut(raw, start + more))
            same(result, plan.run(ledger=path, seed=3, record=True))


def test_a_torn_value_of_another_plan_counts_once(path):
    torn(path, unpriced())
    result = unpriced(rounds=5).run(ledger=path)
    assert [len(a.entries) for a in result.ledger.values()] == [5, 5]
    assert result.rounds == 4


# -- one file, several runs ------------------------------------------------------------------------


def fetch_nothing():
    raise AssertionError("read")


def refused(path, plan, error, **arguments):
    """Nothing is read, released or written."""
    before = lines_of(path)
    values = {p: fetch_nothing for agent in plan.problem.agents for p in agent.private}
    with pytest.raises(dp.PrivacyError if error is None else error) as caught:
        plan.run(ledger=path, data=values, **arguments)
    assert not isinstance(caught.value, dp.DataError)
    assert lines_of(path) == before
    return str(caught.value)


def test_after_a_finished_run_nothing_is_left(path):
    plan = planned()
    result = plan.run(ledger=path)
    refused(path, plan, dp.BudgetError)
    refused(path, plan, dp.BudgetError, seed=3)
    same_ledger(dp.Ledger.load(path), result.ledger)


def test_a_run_killed_after_its_last_line_is_finished(path):
    plan = planned()
    _, raw = full(plan, path)
    put(path, cut(raw, ends(raw)[-1], lag=1))
    with pytest.raises(dp.BudgetError):
        plan.run(ledger=path)


def test_an_ampler_plan_goes_on_top_as_with_a_ledger_in_memory(path):
    first = planned().run(ledger=path, seed=3)
    ample = planned(epsilon=3.0, rounds=6)
    result = ample.run(ledger=path, seed=3, record=True)
    assert result.rounds > 0
    assert result.ledger.spent() <= 3.0
    assert result.ledger["a"].entries[:2] == first.ledger["a"].entries
    same(result, ample.run(ledger=first.ledger, seed=3, record=True))
    same_ledger(dp.Ledger.load(path), result.ledger)


def test_the_same_plan_and_seed_go_on_with_noise_of_their_own(path):
    plan = planned(rounds=6)
    values = []
    for _ in range(3):
        result = plan.run(ledger=path, seed=3, tolerance=1e3, record=True)
        assert result.rounds == 2
        values += released(plan, result).values()
    assert len(set(values)) == len(values) == 12
    assert [len(a.entries) for a in result.ledger.values()] == [6, 6]
    refused(path, plan, dp.BudgetError, seed=3)


def test_a_loaded_ledger_counts_like_the_file(path):
    plan = planned()
    plan.run(ledger=path)
    loaded = dp.Ledger.load(path)
    with pytest.raises(dp.BudgetError) as caught:
        plan.run(ledger=loaded)
    assert str(caught.value) == refused(path, plan, dp.BudgetError)


def test_agents_may_be_fewer_later(path):
    plan = planned()
    plan.run(ledger=path)
    alone = unpriced(problem(DATA[:1], names="a"), rounds=200)
    result = alone.run(ledger=path)
    assert list(result.ledger) == ["a"] and len(result.ledger["a"].entries) > 2
    loaded = dp.Ledger.load(path)
    assert loaded["a"].entries == result.ledger["a"].entries
    assert len(loaded["b"].entries) == 2


@pytest.mark.parametrize("lines", range(1, 6))
def test_an_interrupted_run_of_another_plan_counts_as_spent(path, lines):
    killed(unpriced(rounds=2), path, lines)
    before = charged(path.read_bytes())
    other = unpriced(rounds=5)
    result = other.run(ledger=path)
    spent = [len([c for c in before if c[0] == name]) for name in "ab"]
    assert result.rounds == 5 - max(spent)
    assert [len(result.ledger[name].entries) - result.rounds for name in "ab"] == spent
    same_ledger(dp.Ledger.load(path), result.ledger)


def test_a_run_that_others_came_after_is_not_gone_on_with(path):
    short, long = unpriced(rounds=4), unpriced(rounds=6)
    killed(short, path, 3)
    killed(long, path, 3)
    result = short.run(ledger=path)
    assert len(written(path.read_bytes(), "run")) == 3
    assert result.rounds == 2
    assert [len(a.entries) for a in result.ledger.values()] == [4, 4]


def cell(radius=0.1, privates=1, names="ab"):
    """A cell of a notebook, whose private objects have no name: cvxpy counts on with every run."""
    x = cp.Variable(2, name="x")
    agents = []
    for name, values in zip(names, DATA, strict=True):
        given = [dp.Private(values, adjacency=dp.Within(radius)) for _ in range(privates)]
        cost = cp.Minimize(sum(cp.sum_squares(x - d) for d in given))
        agents.append(dp.Agent(cost, [cp.abs(x) <= 1], name=name))
    return dp.Problem(agents)


@pytest.mark.parametrize("privates", [1, 2])
def test_data_without_a_name_go_on_with_their_ledger(path, privates):
    killed(unpriced(cell(privates=privates)), path, 4, seed=3)
    again = unpriced(cell(privates=privates)).run(ledger=path, seed=3)
    same(again, unpriced(cell(privates=privates)).run(seed=3))
    more = unpriced(cell(privates=privates), rounds=5).run(ledger=path)
    assert (more.status, more.rounds) == (dp.Status.BUDGET, 3)
    for other in (cell(radius=0.2, privates=privates), cell(privates=3 - privates)):
        shown = refused(path, unpriced(other, rounds=50), dp.PrivacyError)
        assert "of a'" in shown and "param" not in shown


def test_data_without_a_name_are_called_by_their_place():
    plan = unpriced(cell(privates=2))
    said = " ".join(str(plan.guarantee).split())
    assert "'unnamed data 1 of a'" in said and "param" not in said
    assert list(plan.accounts()[1].adjacency) == ["unnamed data 1 of b", "unnamed data 2 of b"]
    for data, error in (
        ({"unnamed data 2 of a": [np.nan, 0.0]}, dp.DataError),
        ({"param1": DATA[0]}, dp.ModelError),
    ):
        with pytest.raises(error, match="'?unnamed data 2 of a") as caught:
            plan.run(data=data)
        assert "param" not in str(caught.value).replace("'param1'", "")


def named(*names):
    """One agent with a private vector per name."""
    x = cp.Variable(2, name="x")
    held = [dp.Private(shape=2, name=name, adjacency=dp.Within(0.1)) for name in names]
    cost = sum(cp.sum_squares(x - d) for d in held)
    return dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])


def test_data_that_are_called_unnamed_have_that_name():
    plan = unpriced(named("unnamed", None))
    assert set(plan.accounts()[0].adjacency) == {"unnamed", "unnamed data of a"}
    with pytest.raises(dp.DataError, match="'unnamed data of a' has no data"):
        plan.run(data={"unnamed": DATA[0]})
    plan.run(data={"unnamed": DATA[0], "unnamed data of a": DATA[0]})


def test_a_name_that_stands_for_another_object_is_refused():
    with pytest.raises(dp.ModelError, match="Two private objects are called 'unnamed data of a'"):
        named("unnamed data of a", None)


@pytest.mark.parametrize("interrupted", [False, True])
def test_another_adjacency_is_refused(path, interrupted):
    if interrupted:
        killed(planned(), path, 4)
    else:
        planned().run(ledger=path)
    shown = refused(path, unpriced(problem(radius=0.2), rounds=50), dp.PrivacyError)
    assert "at most 0.1 in 'of a'" in shown and "at most 0.2 in 'of a'" in shown


def test_another_share_is_refused(path):
    unpriced().run(ledger=path)
    grouped = unpriced(problem(groups=[["a", "b"]]), rounds=50)
    assert "groups=" in refused(path, grouped, dp.PrivacyError)


@pytest.mark.parametrize("grouped_first", [False, True])
def test_another_share_is_refused_in_the_middle_of_the_first_run(path, grouped_first):
    plans = [unpriced(), unpriced(problem(groups=[["a", "b"]]))]
    first, second = reversed(plans) if grouped_first else plans
    killed(first, path, 4)
    with pytest.raises(dp.PrivacyError, match="groups="):
        second.run(ledger=path)


@pytest.mark.parametrize("interrupted", [False, True])
def test_other_agents_are_refused(path, interrupted):
    if interrupted:
        killed(planned(), path, 4)
    else:
        planned().run(ledger=path)
    shown = refused(path, planned(problem(names="ac")), dp.ModelError)
    assert "no account of agent 'c'" in shown


def test_a_changed_file_starts_no_run(path):
    plan = unpriced(multiplier=10.0, rounds=50)
    unpriced(multiplier=10.0).run(ledger=path)
    _, raw = full(unpriced(multiplier=10.0, rounds=5), path)
    for change in TAMPERED.values():
        put(path, change(raw))
        assert path.read_bytes() != raw
        refused(path, plan, dp.LedgerError)


def test_a_flipped_bit_starts_no_run(path):
    plan = planned()
    killed(plan, path, 5)
    raw = path.read_bytes()
    for k in range(0, len(raw), 35):
        put(path, raw[:k] + bytes([raw[k] ^ 1]) + raw[k + 1 :])
        refused(path, plan, dp.LedgerError)


@pytest.mark.parametrize("thing", [3, b"ledger.jsonl", {"a": 1}, ["ledger.jsonl"]])
def test_a_ledger_is_a_ledger_or_a_path(thing):
    with pytest.raises(dp.ModelError, match="ledger= is of type"):
        planned().run(ledger=thing)


def test_a_ledger_may_be_named_by_text(path):
    result = planned().run(ledger=str(path))
    same_ledger(dp.Ledger.load(str(path)), result.ledger)


def test_a_problem_without_data_may_have_a_ledger(path):
    x = cp.Variable(2)
    plan = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - 1)), name="a")]).plan(
        dp.LinearizedADMM(), rounds=2
    )
    for _ in range(2):
        plan.run(ledger=path)
    assert not charged(path.read_bytes()) and not left(path.read_bytes())
    assert dp.Ledger.load(path).spent(1e-6) == 0.0


def test_a_loaded_ledger_prints(path):
    planned().run(ledger=path)
    noiseless().run(ledger=path)
    assert (
        "a and b, each: spent epsilon inf (no guarantee is left) at delta 0 in 4 releases"
        in str(dp.Ledger.load(path))
    )


# -- without noise ---------------------------------------------------------------------------------


def test_a_run_without_noise_ends_every_later_guarantee(path):
    result = noiseless().run(ledger=path)
    raw = path.read_bytes()
    assert {c["mechanism"] for c in written(raw, "charge")} == {"none"}
    assert not written(raw, "value")
    assert len(charged(raw)) == 4
    same_ledger(dp.Ledger.load(path), result.ledger)
    assert dp.Ledger.load(path).spent(1e-6) == np.inf
    refused(path, planned(epsilon=100.0), dp.BudgetError)
    assert noiseless().run(ledger=path).ledger.spent(1e-6) == np.inf


@pytest.mark.parametrize("lines", [2, 3])
def test_a_killed_run_without_noise_ends_every_later_guarantee_too(path, lines):
    killed(noiseless(), path, lines)
    assert dp.Ledger.load(path).spent(1e-6) == np.inf
    refused(path, planned(epsilon=100.0), dp.BudgetError)


def test_a_run_without_noise_starts_over_after_a_kill(path):
    killed(noiseless(), path, 2)
    same_vectors = noiseless().run().last.vectors
    result = noiseless().run(ledger=path)
    assert [x.tobytes() for x in result.last.vectors] == [x.tobytes() for x in same_vectors]
    assert [len(a.entries) for a in result.ledger.values()] == [3, 3]


def test_noise_before_and_none_after_is_recorded(path):
    killed(planned(), path, 3)
    result = noiseless().run(ledger=path)
    assert result.ledger.spent(1e-6) == np.inf
    assert [e.mechanism for e in result.ledger["a"].entries] == ["Gaussian", "none", "none"]


def test_charges_without_noise_are_on_disk_before_the_run_takes_up_an_answer(path, monkeypatch):
    taken, honest = [], dp.LinearizedADMM.receive

    def receive(self, server, t, k, replies):
        taken.append(t)
        assert len(charged(path.read_bytes())) == 2 * len(taken)
        return honest(self, server, t, k, replies)

    monkeypatch.setattr(dp.LinearizedADMM, "receive", receive)
    noiseless().run(ledger=path)
    assert taken == [1, 2]


# -- secrets ---------------------------------------------------------------------------------------


def shows(raw, numbers):
    """Whether a file holds a number as text, bytes or base64."""
    texts = [raw, *(base64.b64decode(m) for m in re.findall(rb'"data": "([^"]*)"', raw))]
    for number in np.ravel(numbers):
        packed = np.float64(number).tobytes()
        marks = [repr(float(number)).encode(), f"{number:.6f}".encode(), packed]
        marks += [packed[::-1], packed.hex().encode(), float(number).hex().encode()]
        for k in range(3):
            coded = base64.b64encode(bytes(k) + packed + bytes(3))
            marks.append(coded[(8 * k + 5) // 6 : (8 * k + 64) // 6])
        if any(mark in text for mark in marks for text in texts):
            return True
    return False


@pytest.mark.parametrize("release", ["each_step", "once", None])
@pytest.mark.parametrize("instance", INSTANCES)
def test_data_and_seeds_are_not_in_the_file(path, instance, release):
    given, seed = INSTANCES[instance](), 9876543210123
    if release is None:
        plan = noiseless(given.problem)
    else:
        plan = planned(given.problem, release=release)
    for lines in (2, 1):
        killed(plan, path, lines, seed=seed)
    plan.run(ledger=path, seed=seed)
    raw = path.read_bytes()
    assert len(charged(raw)) > 1
    for secret in given.data.values():
        assert not shows(raw, secret)
        assert not shows(raw, 2 * secret)
    for mark in (str(seed), f"{seed:x}"):
        assert mark.encode() not in raw.lower()
    assert np.int64(seed).tobytes() not in b"".join(map(base64.b64decode, left(raw).values()))


def test_the_search_for_secrets_can_find_one(path):
    value = 0.123456789
    with Journal(path) as journal:
        for k in range(3):
            journal.release(["a"], (1, k), np.array([[1.0] * k + [value]]))
    raw = path.read_bytes()
    assert shows(raw, value) and not shows(raw, 0.5)
    for k in range(3):
        assert shows(base64.b64encode(b"x" * k + np.float64(value).tobytes() + b"yz"), value)
    assert shows(b'{"multiplier": 0.123456789}', value)


def test_data_of_a_torn_file_are_not_in_it(path):
    given = power_line()
    plan = planned(given.problem)
    _, raw = full(plan, path)
    start, _, _ = values_of(raw)[0]
    put(path, cut(raw, start + 40))
    plan.run(ledger=path)
    assert not any(shows(path.read_bytes(), secret) for secret in given.data.values())


# -- what a user is told ---------------------------------------------------------------------------


@plans
@pytest.mark.parametrize("seed", [None, 3])
def test_a_finished_run_is_given_out_again_from_its_file(path, name, seed):
    plan = PLANS[name]()
    result = plan.run(ledger=path, seed=seed, record=True)
    raw = path.read_bytes()
    again = plan.replay(path)
    same(again, result)
    assert path.read_bytes() == raw
    assert any("not for release" in text for text in again.guarantee.assumptions) == (seed == 3)


def test_the_last_finished_run_of_the_plan_is_meant(path):
    plan, other = unpriced(), unpriced(rounds=3)
    results = [p.run(ledger=path) for p in (plan, other)]
    same(plan.replay(path), results[0])
    same(other.replay(str(path)), results[1])


def test_a_run_that_stopped_early_is_given_out_as_it_stopped(path):
    plan = unpriced(multiplier=1e6, rounds=50)
    result = plan.run(ledger=path, tolerance=0.5, seed=1)
    assert result.status is dp.Status.CONVERGED
    assert result.rounds < 50
    same(plan.replay(path), result)


def test_what_the_file_does_not_hold_is_not_given_out(path):
    plan, other = planned(), unpriced(rounds=3)
    killed(plan, path, 4)
    with pytest.raises(dp.LedgerError, match=r"interrupted.*plan.run\(ledger='ledger.jsonl'\)"):
        plan.replay(path)
    with pytest.raises(dp.LedgerError, match="no run of this plan"):
        other.replay(path)
    with pytest.raises(dp.LedgerError, match="no ledger"):
        plan.replay(path.with_name("another.jsonl"))
    with pytest.raises(dp.PrivacyError, match="runs with noise only"):
        noiseless().replay(path)


def test_a_spent_budget_points_to_the_result_that_it_bought(path):
    plan = planned()
    plan.run(ledger=path)
    with pytest.raises(dp.BudgetError, match="covers no further release") as caught:
        plan.run(ledger=path)
    (note,) = caught.value.__notes__
    assert "plan.replay('ledger.jsonl')" in note
    with pytest.raises(dp.BudgetError) as caught:
        planned(rounds=3).run(ledger=path)
    assert not hasattr(caught.value, "__notes__")


def test_after_a_run_without_noise_no_advice_is_given(path):
    noiseless().run(ledger=path)
    with pytest.raises(dp.BudgetError, match="no budget gives these data a guarantee again") as e:
        planned().run(ledger=path)
    assert "lower" not in str(e.value) and "larger" not in str(e.value)


def test_a_resumed_run_says_where_it_goes_on(path):
    plan = planned(rounds=6)
    killed(plan, path, 1 + 2 * 3)
    result = plan.run(ledger=path)
    (note,) = result.notes
    assert note.startswith("resumed in round 3: ")
    assert all(note.startswith("with the runs before") for note in planned().run().notes)


def test_a_run_killed_before_its_first_value_says_so(path):
    plan = planned()
    killed(plan, path, 1)
    (note,) = plan.run(ledger=path).notes
    assert note.startswith("resumed: ")


def test_another_plans_interrupted_run_is_named(path):
    killed(unpriced(), path, 3)
    note = unpriced(rounds=4).run(ledger=path).notes[0]
    assert "interrupted run of another plan" in note


def test_a_ledger_that_covers_fewer_rounds_says_how_many(path):
    unpriced(rounds=4).run(ledger=path)
    result = unpriced(rounds=6).run(ledger=path)
    assert result.rounds == 2
    assert result.notes == ("the ledger leaves budget for 2 of the 6 planned rounds",)


def test_a_ledger_says_what_rests_on_claims(path):
    def claimed():
        x = cp.Variable(2, name="x")
        agents = []
        for name, values in zip("ab", DATA, strict=True):
            d = dp.Private(values, name=f"of {name}", adjacency=dp.Within(0.1))
            cost = cp.Minimize(cp.sum_squares(x - d))
            claim = dp.Asserted(l2=1e-6)
            agents.append(dp.Agent(cost, [cp.abs(x) <= 1], name=name, sensitivity=claim))
        return dp.Problem(agents)

    first = unpriced(claimed()).run(ledger=path)
    assert "2 with asserted sensitivity, NOT proved" in str(first.ledger)
    second = unpriced(rounds=50).run(ledger=path)
    assert second.guarantee.kind == "worst-case"
    assert "asserted sensitivities" in second.notes[0]
    assert "2 with asserted sensitivity, NOT proved" in str(second.ledger)
    assert "asserted" not in str(unpriced().run().ledger)


# -- when the file does not take the last line -----------------------------------------------------


def last_iterate():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")
    other = dp.Agent(cp.Minimize(cp.norm1(y)), name="b")
    problem = dp.Problem([user, other], coupling=[x == y])
    method = dp.GradientADMM(penalty=1.0, step=0.1)
    return problem.plan(method, rounds=3, epsilon=1.0, delta=1e-6, observer="last_iterate")


def full_disk(monkeypatch, where):
    """Writes of a last line fail: at once, in the middle, on its way to the disk, after it."""
    honest, sync, ended = Journal._write, os.fsync, []

    def write(self, text, at):
        if b'"end"' in text:
            ended.append(text)
            if where in ("at once", "in the middle"):
                honest(self, text[: len(text) // 2 if where == "in the middle" else 0], at)
                raise OSError(errno.ENOSPC, "full")
        elif ended and where == "after it":
            raise OSError(errno.ENOSPC, "full")
        honest(self, text, at)

    def synced(file):
        if ended and where == "on its way":
            raise OSError(errno.EIO, "gone")
        sync(file)

    monkeypatch.setattr(Journal, "_write", write)
    monkeypatch.setattr(os, "fsync", synced)


@pytest.mark.parametrize("where", ["at once", "in the middle", "on its way", "after it"])
@pytest.mark.parametrize("kind", ["each_step", "last_iterate", "no noise"])
def test_a_result_is_not_lost_for_want_of_its_last_line(path, kind, where):
    plan = {"each_step": planned, "last_iterate": last_iterate, "no noise": noiseless}[kind]()
    with pytest.MonkeyPatch.context() as patch:
        full_disk(patch, where)
        result = plan.run(ledger=path, seed=3)
    (note,) = (n for n in result.notes if "could not be written any more" in n)
    assert "ledger.jsonl" in note and "The result is complete" in note
    same(result, plan.run(seed=3))
    same_ledger(dp.Ledger.load(path), result.ledger)
    if kind == "each_step" and where in ("at once", "in the middle"):
        again = plan.run(ledger=path, seed=3)  # only the last line is missing
        same(again, result)
        same_ledger(again.ledger, result.ledger)


def test_a_ledger_that_is_gone_at_the_end_is_an_error(path, monkeypatch):
    """What the run spent is counted nowhere: nobody should read over that."""
    honest = Journal.end

    def end(self, *given):
        path.unlink()
        return honest(self, *given)

    monkeypatch.setattr(Journal, "end", end)
    with pytest.raises(dp.LedgerError, match="was removed or replaced"):
        planned().run(ledger=path, seed=3)


@pytest.mark.parametrize(
    ("noise", "rounds"), [(dp.Gaussian(), 4), (dp.Laplace(), 3), (dp.Laplace(), 1)], ids=str
)
def test_the_advice_of_a_spent_budget_works(path, noise, rounds):
    problem = planned().problem
    method = dp.LinearizedADMM()
    first = problem.plan(method, mechanism=noise, rounds=rounds, epsilon=1.0, delta=1e-6)
    first.run(ledger=path)
    with pytest.raises(dp.BudgetError, match="total budget of all runs: plan") as caught:
        first.run(ledger=path)
    advised = eval(f"dict({caught.value.instead})", {"dp": dp})
    again = problem.plan(method, rounds=rounds, **advised)
    assert again.run(ledger=path).ledger.spent() <= advised["epsilon"] < 2.02


@pytest.mark.parametrize(
    ("noise", "total"),  # what pure epsilons and mu add up to, and some of 20 further rounds
    [(dp.Gaussian(), 1.1), (dp.Laplace(), 1.3)],
    ids=["gaussian", "laplace"],
)
def test_run_on_a_budget_for_few_rounds_is_refused_and_both_remedies_work(path, noise, total):
    problem, method = planned().problem, dp.LinearizedADMM()
    first = problem.plan(method, mechanism=noise, rounds=20, epsilon=1.0, delta=1e-6)
    first.run(ledger=path)
    multiplier = next(a.noise.multiplier for a in first.agents if a.noise is not None)
    level = type(noise)(noise_multiplier=multiplier)
    tight = problem.plan(method, mechanism=level, rounds=20, epsilon=total, delta=1e-6)
    before = path.read_bytes()
    with pytest.raises(dp.BudgetError, match="of the 20 planned rounds") as caught:
        tight.run(ledger=path)
    assert path.read_bytes() == before
    error = caught.value
    covered, rounds = error.rounds
    assert 1 <= covered < 5 and rounds == 20 and error.whole > total
    assert "The whole run needs epsilon" in str(error)
    copy = shutil.copy(path, path.with_name("copy.jsonl"))
    few = problem.plan(method, **eval(f"dict({error.left})", {"dp": dp}))
    assert few.run(ledger=path).rounds == covered
    whole = problem.plan(method, rounds=20, **eval(f"dict({error.instead})", {"dp": dp}))
    assert whole.run(ledger=copy).rounds == 20


def test_what_is_too_much_does_not_look_like_enough():
    error = dp.BudgetError("a", spent=1, requested=2.0000001, allowed=2.0, delta=0.0, affordable=0)
    assert "to (2.0000001, 0)-DP; its budget is (2, 0)" in str(error)
