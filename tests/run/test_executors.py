"""Where agents live makes no difference: results, ledgers, errors."""

import base64
import io
import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import cvxpy as cp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dpcvx as dp
from dpcvx.algorithms.base import Answer
from dpcvx.privacy.ledger_lines import Notes
from dpcvx.run import part
from dpcvx.run.executors import in_process, processes
from dpcvx.run.executors.in_process import Automatic, Durable
from dpcvx.run.gate import PrivacyGate
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.run.worker import Reply, Report, Worker
from problems.power_flow.study import power_flow
from tests.helpers import contains
from tests.instances import INSTANCES, clinics, overlapping_slices, power_line
from tests.privacy.test_ledger_file import ROOT, written
from tests.run.test_resume import same

METHODS = {
    "gradients": (dp.LinearizedADMM(penalty=2.0, local_updates=2), "each_step"),
    "outputs": (dp.LinearizedADMM(penalty=2.0, perturb="output"), "each_step"),
    "once": (dp.ADMM(penalty=2.0), "once"),
}
CONCURRENT = {"threads": dp.Threads, "processes": dp.Processes}
SECRET = 31415.92653
concurrent = pytest.mark.parametrize("make", CONCURRENT.values(), ids=CONCURRENT)


def moved():
    """The automatic executor, whose agents move into threads after two exchanges."""
    return Automatic(worth=0.0, cores=2)


@pytest.fixture(autouse=True)
def nobody_is_left():
    """Whatever a test does, its workers have ended, and were waited for."""
    yield
    assert not multiprocessing.process._children  # from which only waiting removes
    assert not [t for t in threading.enumerate() if t.name.startswith("agent")]


@pytest.fixture(scope="module")
def serial():
    """Plans and their serial runs, made once."""
    known = {}

    def of(name, method):
        if (name, method) not in known:
            algorithm, release = METHODS[method]
            given = INSTANCES[name]().problem
            plan = given.plan(algorithm, rounds=4, epsilon=1.0, delta=1e-6, release=release)
            known[name, method] = plan, plan.run(seed=3, record=True, executor=dp.Serial())
        return known[name, method]

    return of


@pytest.mark.parametrize(
    ("name", "method", "workers"),
    [
        *((name, method, 2) for name in INSTANCES for method in METHODS),
        *(("overlapping slices", "gradients", workers) for workers in (1, 3)),
    ],
)
@concurrent
def test_results_are_those_of_one_agent_after_the_other(serial, name, method, make, workers):
    plan, expected = serial(name, method)
    result = plan.run(seed=3, record=True, executor=make(workers))
    same(expected, result)
    same(expected, plan.replay(result.transcript))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", INSTANCES)
def test_results_are_the_same_with_agents_that_move_into_threads(serial, name, method):
    plan, expected = serial(name, method)
    same(expected, plan.run(seed=3, record=True, executor=moved()))


@concurrent
def test_results_are_the_same_for_records_and_on_a_network(make):
    for given in (clinics().problem, power_flow(14).problem):
        plan = given.plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6)
        expected = plan.run(seed=1, executor=dp.Serial())
        same(expected, plan.run(seed=1, executor=make()))


@concurrent
def test_iterates_are_the_same(make):
    plan = power_line().problem.plan(dp.ADMM(), rounds=3, epsilon=1.0, delta=1e-6)
    expected = plan.run(seed=1, iterates=True, executor=dp.Serial()).iterates
    result = plan.run(seed=1, iterates=True, executor=make(2)).iterates
    for mine, yours in zip(expected, result, strict=True):
        for x, y in zip(mine.last.vectors, yours.last.vectors, strict=True):
            assert x.tobytes() == y.tobytes()


@concurrent
def test_runs_go_on_with_the_ledger_of_an_earlier_one(make):
    given = power_line().problem
    first = given.plan(dp.LinearizedADMM(), rounds=4, epsilon=1.0, delta=1e-6)
    ledger = first.run(seed=1, executor=dp.Serial()).ledger
    ours = first.run(seed=1, executor=make(2)).ledger
    assert ledger.spent() == ours.spent() > 0.9
    more = given.plan(dp.LinearizedADMM(), rounds=4, epsilon=1.5, delta=1e-6)
    expected = more.run(seed=1, ledger=ledger, executor=dp.Serial())
    assert expected.ledger.spent() > ledger.spent()
    same(expected, more.run(seed=1, ledger=ours, executor=make(2)))
    with pytest.raises(dp.BudgetError):
        first.run(seed=1, ledger=ours, executor=make(2))


@concurrent
def test_a_ledger_file_is_written_and_replayed(tmp_path, make):
    for release in ("each_step", "once"):
        path = tmp_path / f"{release}.jsonl"
        given = overlapping_slices().problem
        plan = given.plan(dp.LinearizedADMM(), rounds=6, epsilon=1.0, delta=1e-6, release=release)
        result = plan.run(seed=2, ledger=path, executor=make(3), record=True)
        same(result, plan.run(seed=2, record=True, executor=dp.Serial()))
        same(result, plan.replay(path))


def test_agents_work_at_the_same_time(monkeypatch):
    # Every agent waits for the others within its gradient: one after the other would time out.
    gate = threading.Barrier(2, timeout=20)
    honest = PrivateOracle.release

    def meets(self, query):
        gate.wait()
        return honest(self, query)

    monkeypatch.setattr(PrivateOracle, "release", meets)
    plan = planned()
    assert plan.run(seed=0, executor=dp.Threads(2)).rounds == 2
    gate = multiprocessing.get_context("fork").Barrier(2, timeout=20)
    assert plan.run(seed=0, executor=dp.Processes(2)).rounds == 2


def problem(data=((1.0, 2.0), (3.0, 4.0)), before=lambda k: None):
    """Agents whose data are read by callables, which do something else before."""
    x = cp.Variable(2, name="x")
    agents = []
    for k, values in enumerate(data):

        def fetch(k=k, values=values):
            before(k)
            return np.array(values)

        d = dp.Private(fetch, shape=2, name=f"d{k}", adjacency=dp.Within(0.1))
        # No two are alike, or one worker would take the turns of both.
        cost = (1.0 + k / 8) * cp.sum_squares(x - d)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 5], name=f"a{k}"))
    return dp.Problem(agents)


def planned(given=None, rounds=2, **arguments):
    given = given or problem()
    return given.plan(dp.LinearizedADMM(), rounds=rounds, epsilon=1.0, delta=1e-6, **arguments)


def in_gradients(monkeypatch, does):
    """Have agents do something else before each gradient, wherever they live."""
    honest = PrivateOracle.release

    def release(self, query):
        does(self._gate.agents[0])
        return honest(self, query)

    monkeypatch.setattr(PrivateOracle, "release", release)


@concurrent
def test_the_first_agents_error_is_raised_and_everybody_had_a_turn(tmp_path, monkeypatch, make):
    def fails(agent):
        (tmp_path / str(agent)).touch()
        raise dp.PrivacyError(f"agent {agent}")

    in_gradients(monkeypatch, fails)
    for workers in (1, 2, 3):
        with pytest.raises(dp.PrivacyError, match="agent 0"):
            planned(problem([(1.0, 2.0)] * 4)).run(executor=make(workers))
        for agent in range(4):
            (tmp_path / str(agent)).unlink()


def test_an_error_lets_everybody_go(monkeypatch):
    in_gradients(monkeypatch, lambda agent: 1 / 0)
    threads, forked = dp.Threads(2), dp.Processes(2)
    for executor in (threads, forked):
        with pytest.raises(Exception, match="ZeroDivisionError|division by zero"):
            planned().run(executor=executor)
    assert threads._agents == [] and threads._pool is None
    assert forked._workers == [] and forked._journal is None


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
@concurrent
def test_a_number_of_workers_is_a_positive_int(workers, make):
    with pytest.raises(dp.ModelError, match=rf"dp\.{make.__name__}\(workers="):
        make(workers)


def test_data_are_read_where_the_agent_lives_and_once(tmp_path):
    def leaves_a_trace(k):
        with (tmp_path / f"{k}").open("a") as file:
            file.write(f"{os.getpid()}\n")

    data = np.arange(10.0).reshape(5, 2)
    planned(problem(data, leaves_a_trace)).run(executor=dp.Processes(2))
    places = [[int(p) for p in (tmp_path / f"{k}").read_text().split()] for k in range(5)]
    assert [len(p) for p in places] == [1] * 5
    assert places[0] == places[2] == places[4] != places[1] == places[3]
    assert os.getpid() not in (places[0][0], places[1][0])


def heard(monkeypatch):
    """Everything that the first process receives from its workers, as bytes."""
    received = []
    honest = multiprocessing.connection.Connection._recv_bytes

    def listens(self, *arguments):
        found = honest(self, *arguments)
        received.append(found.getvalue())
        return io.BytesIO(received[-1])

    monkeypatch.setattr(multiprocessing.connection.Connection, "_recv_bytes", listens)
    return received


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_messages_replies_and_reports_travel_and_no_data(tmp_path, monkeypatch, release):
    given = overlapping_slices()
    plan = given.problem.plan(
        dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6, release=release
    )
    received = heard(monkeypatch)
    result = plan.run(
        seed=1, record=True, iterates=True, ledger=tmp_path / "a", executor=dp.Processes(2)
    )
    secrets = np.concatenate([*given.data.values()])
    kinds = set()
    for raw in received:
        answers, noted = pickle.loads(raw)
        for line in noted.lines({}):
            kinds.add(next(kind for kind in ("charges", "values") if kind in line))
            assert not contains([np.frombuffer(base64.b64decode(line.get("data", "")))], secrets)
        for answer, error in answers:
            kinds |= {type(one) for one in answer or ()}
            assert error is None
            assert not contains([answer], secrets)
    assert kinds == {"charges", "values", Reply, Report, Answer}
    assert not contains(result.ledger, secrets)


def test_what_travels_does_not_grow_with_the_data(monkeypatch):
    received = heard(monkeypatch)
    many_records(20_000).plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6).run(
        executor=dp.Processes(2)
    )
    assert 0 < sum(map(len, received)) < 20_000  # of 3.4 MB of data


def many_records(rows, columns=10):
    """Losses whose gradients are products with matrices of many rows."""
    rng = np.random.default_rng(5)
    w = cp.Variable(columns, name="w")
    agents = []
    for k in range(2):
        X = rng.normal(size=(rows, columns))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = rng.choice([-1.0, 1.0], size=rows)
        features = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.logistic(-cp.multiply(y, features @ w))) / rows
        agents.append(
            dp.Agent(cp.Minimize(loss + cp.sum_squares(w)), [cp.abs(w) <= 5], name=f"a{k}")
        )
    return dp.Problem(agents)


ERRORS = [
    dp.ModelError("wrong"),
    dp.DataError("does not fit"),
    dp.PrivacyError("not proved"),
    dp.LedgerError("torn"),
    dp.SolverError("no point"),
    dp.BudgetError(
        "a1", spent=0.5, requested=1.5, allowed=1.0, delta=1e-6, affordable=2
    ),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("stage", ["start", "act"])
def test_errors_of_the_package_arrive_as_they_are(monkeypatch, capfd, error, stage):
    def fails(*_):
        raise error

    if stage == "act":
        monkeypatch.setattr(PrivacyGate, "release", fails)
    else:
        monkeypatch.setattr(part, "PrivateOracle", fails)
    with pytest.raises(type(error)) as caught:
        planned().run(executor=dp.Processes(2))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert caught.value is not error
    assert vars(caught.value) == vars(error)
    assert capfd.readouterr() == ("", "")


class Odd(Exception):
    """What no process could receive."""

    def __reduce__(self):
        raise TypeError(SECRET)


@pytest.mark.parametrize(
    "error",
    [ValueError(SECRET), Odd(SECRET), KeyError("x", [SECRET]), SystemExit(SECRET)],
    ids=lambda e: type(e).__name__,
)
def test_other_errors_arrive_without_their_message(monkeypatch, capfd, error):
    def fails(agent):
        local = SECRET  # noqa: F841
        raise error from ValueError(SECRET)

    in_gradients(monkeypatch, fails)
    # The line in the user's function is said as well: it is code, and no data.
    line = fails.__code__.co_firstlineno + 2
    where = rf"Agent 0 .*{type(error).__name__} in test_executors.py, line {line};"
    with pytest.raises(dp.PrivacyError, match=where) as caught:
        planned().run(executor=dp.Processes(2))
    trace = "".join(traceback.TracebackException.from_exception(caught.value).format())
    assert "31415" not in trace
    assert [caught.value.__cause__, caught.value.__context__] == [None, None]
    assert not contains(caught.value, [SECRET])
    assert capfd.readouterr() == ("", "")


def test_what_cannot_be_sent_is_an_error_without_a_message(monkeypatch):
    monkeypatch.setattr(Worker, "act", lambda *_: lambda: SECRET)
    with pytest.raises(
        dp.PrivacyError, match=r"Agent 0 failed in its worker process with \w+Error"
    ):
        planned().run(executor=dp.Processes(2))


def test_bad_data_show_nothing():
    bad = problem([(1.0, 2.0), (SECRET, math.nan)])
    with pytest.raises(dp.DataError, match="'d1'") as caught:
        planned(bad).run(executor=dp.Processes(2))
    assert "31415" not in str(caught.value)


def ends_at_once(agent):
    if agent == 1:
        os._exit(7)


def is_killed(agent):
    if agent == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("ends", "code"), [(ends_at_once, "7"), (is_killed, "-9")], ids=["exit", "killed"]
)
@pytest.mark.parametrize("stage", ["start", "act"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_is_reported(monkeypatch, ends, code, stage, workers):
    given = problem([(1.0, 2.0)] * 3, ends if stage == "start" else lambda k: None)
    if stage == "act":
        in_gradients(monkeypatch, ends)
    gone = "agent 1" if workers == 2 else "agents 0 to 2"
    message = rf"worker process of {gone} ended with exit code {code}"
    with pytest.raises(dp.PrivacyError, match=message):
        planned(given).run(executor=dp.Processes(workers))


def test_after_a_worker_died_the_ledger_file_knows_what_left(tmp_path, monkeypatch):
    path = tmp_path / "spent.jsonl"
    turns = []

    def dies(agent):
        turns.append(agent)
        if len(turns) == 3:
            is_killed(agent)

    plan = planned(rounds=5)
    expected = plan.run(seed=1, executor=dp.Serial())
    with monkeypatch.context() as patched:
        in_gradients(patched, dies)
        with pytest.raises(dp.PrivacyError, match=r"agent 1\b"):
            plan.run(seed=1, ledger=path, executor=dp.Processes(2))
    made = [(v["value"], v["round"]) for v in written(path.read_bytes(), "value")]
    assert sorted(made) == [("a0", 1), ("a0", 2), ("a0", 3), ("a1", 1), ("a1", 2)]
    same(expected, plan.run(seed=1, ledger=path, executor=dp.Processes(2)))
    made = [(v["value"], v["round"]) for v in written(path.read_bytes(), "value")]
    assert len(made) == len(set(made)) == 10


@concurrent
def test_what_workers_released_is_on_disk_before_the_run_takes_it_up(tmp_path, monkeypatch, make):
    """In one piece for all of them, which is forced to disk once."""
    path, forced = tmp_path / "spent.jsonl", []
    honest = os.fsync
    monkeypatch.setattr(os, "fsync", lambda number: (forced.append(1), honest(number)))

    call = Durable.map

    def mapping(self, method, *common, each=None):
        before = len(forced)
        replies = call(self, method, *common, each=each)
        if method == "act":
            for kind in ("charge", "value"):
                lines = written(path.read_bytes(), kind)
                places = {(line[kind], line["round"]) for line in lines}
                assert {("a0", common[0]), ("a1", common[0])} <= places
            assert len(forced) == before + 1
        return replies

    monkeypatch.setattr(Durable, "map", mapping)
    assert planned(rounds=3).run(ledger=path, executor=make(2)).rounds == 3


@pytest.mark.parametrize("kind", ["charges", "values"])
@concurrent
def test_what_cannot_be_written_does_not_leave(tmp_path, monkeypatch, make, kind):
    """Neither what fails, nor what would be written with it."""
    honest = Notes.lines

    def fails(self, order):
        lines = honest(self, order)
        if any("a1" in line.get(kind, ()) and line["round"] == 2 for line in lines):
            raise OSError("no space left on device")
        return lines

    path = tmp_path / "spent.jsonl"
    plan = planned(rounds=4)
    with monkeypatch.context() as patched:
        patched.setattr(Notes, "lines", fails)
        with pytest.raises(OSError, match="no space left"):
            plan.run(seed=1, ledger=path, executor=make(2))
    for one in ("charge", "value"):
        made = [(line[one], line["round"]) for line in written(path.read_bytes(), one)]
        assert sorted(made) == [("a0", 1), ("a1", 1)]
    expected = plan.run(seed=1, executor=dp.Serial())
    same(expected, plan.run(seed=1, ledger=path, executor=make(2)))


def test_the_ledger_file_stays_locked_while_workers_come_and_go(tmp_path):
    path = tmp_path / "spent.jsonl"

    class Watched(dp.Processes):
        def close(self):
            super().close()
            with pytest.raises(dp.LedgerError, match="in use"):
                plan.run(ledger=path)

    plan = planned()
    plan.run(ledger=path, executor=Watched(2))
    assert dp.Ledger.load(path).spent() > 0


def test_an_interrupt_ends_workers_that_are_busy(tmp_path, monkeypatch):
    first = os.getpid()

    def busy(agent):
        (tmp_path / f"{agent} is busy").touch()
        if agent == 0:
            while not (tmp_path / "1 is busy").exists():
                time.sleep(0.001)
            os.kill(first, signal.SIGINT)
        time.sleep(600)
        (tmp_path / "done").touch()

    monkeypatch.setattr(processes, "_PATIENCE", 0.1)
    in_gradients(monkeypatch, busy)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            planned().run(executor=dp.Processes(2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children() and not (tmp_path / "done").exists()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("make", [dp.Threads, moved], ids=["threads", "moved into threads"])
def test_an_interrupt_in_threads_leaves_out_turns_that_have_not_begun(tmp_path, monkeypatch, make):
    """One of 40 turns sends Control-C; those that are queued behind it never begin or cost."""
    agents, began, queued, path = 40, [], [], tmp_path / "spent.jsonl"
    submit = ThreadPoolExecutor.submit
    monkeypatch.setattr(
        ThreadPoolExecutor, "submit", lambda *given: (submit(*given), queued.append(1))[0]
    )
    rounds = 1 if make is dp.Threads else 3
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def turn(agent):
        began.append(agent)
        if len(began) == (rounds - 1) * agents + 1:
            while len(queued) < agents:
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if len(began) > (rounds - 1) * agents:
            # Long enough that nobody's turn comes while the main thread wakes up, within reason.
            time.sleep(0.1)

    in_gradients(monkeypatch, turn)
    plan = planned(problem([(1.0, 2.0)] * agents), rounds)
    try:
        with pytest.raises(KeyboardInterrupt):
            plan.run(seed=0, ledger=path, executor=make())
    finally:
        signal.signal(signal.SIGINT, before)
    last = began[(rounds - 1) * agents :]
    assert 1 <= len(last) <= agents // 2
    assert len(written(path.read_bytes(), "charge")) == len(began)


# A shell lets what it runs in the background ignore Control-C.
ORPHANS = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from dpcvx.run.private_oracle import PrivateOracle
from tests.run import test_executors
import dpcvx as dp

def waits(self, query):
    os.write(1, f"{os.getpid()} waits ".encode())
    time.sleep(600)

def reads(k):
    os.write(1, f"{os.getpid()} ".encode())

PrivateOracle.release = waits
test_executors.planned(test_executors.problem(before=reads)).run(executor=dp.Processes(2))
"""


def test_control_c_in_a_terminal_leaves_nobody_behind_and_workers_say_nothing():
    with subprocess.Popen(
        [sys.executable, "-c", ORPHANS],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as child:  # fmt: skip
        try:
            said = b""
            while said.count(b"waits") < 2:  # then the first process waits as well
                said += os.read(child.stdout.fileno(), 1000)
            os.killpg(child.pid, signal.SIGINT)
            _, errors = child.communicate(timeout=60)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    assert child.returncode != 0
    assert errors.count(b"Traceback") == 1 and errors.strip().endswith(b"KeyboardInterrupt")
    for worker in {int(word) for word in said.split() if word != b"waits"}:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


IDLE = """
import os, signal
from dpcvx.run.executors.processes import Processes

executor = Processes(2)
executor.start([lambda: 1, lambda: 2, lambda: 3])
print(*(worker.process.pid for worker in executor._workers), flush=True)
signal.pause()
"""


def test_workers_end_with_a_process_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", IDLE], cwd=ROOT, stdout=subprocess.PIPE) as child:
        workers = list(map(int, child.stdout.readline().split()))
        child.kill()
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(alive(worker) for worker in workers)


def alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_signals_of_the_first_process_are_not_handled_by_its_workers(tmp_path):
    def handled(*_):
        (tmp_path / "handled").touch()

    before = signal.signal(signal.SIGTERM, handled)
    try:
        given = problem(before=lambda k: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(dp.PrivacyError, match="exit code -15"):
            planned(given).run(executor=dp.Processes(2))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not (tmp_path / "handled").exists()


def test_platforms_without_fork_are_told_of_threads(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(dp.ModelError, match=r"fork.*dp\.Threads\(\)"):
        dp.Processes()


def test_workers_of_a_pool_are_told_of_threads(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(dp.ModelError, match=r"Pool.*dp\.Threads\(\)"):
        planned().run(executor=dp.Processes(2))


def test_an_executor_can_be_used_again():
    executor, plan = dp.Processes(2), planned()
    same(plan.run(seed=1, executor=executor), plan.run(seed=1, executor=executor))


@pytest.mark.parametrize(
    ("worth", "agents", "cores", "place"),
    [
        (0.0, 2, 2, dp.Threads),
        (math.inf, 2, 2, dp.Serial),
        (0.0, 1, 2, dp.Serial),
        (0.0, 2, 1, dp.Serial),
    ],
    ids=["long turns", "short turns", "one agent", "one core"],
)
def test_agents_move_into_threads_where_that_pays(worth, agents, cores, place):
    plan, executor = planned(problem([(1.0, 2.0)] * agents), rounds=4), Automatic(worth, cores)
    same(plan.run(seed=1, executor=dp.Serial()), plan.run(seed=1, executor=executor))
    assert type(executor.place) is place


@pytest.mark.parametrize(
    ("pauses", "place"),
    [({1, 2, 5, 6}, dp.Serial), ({3, 4, 5, 6}, dp.Threads)],
    ids=["apart", "in a row"],
)
def test_one_long_exchange_is_no_reason_to_move(monkeypatch, pauses, place):
    turns = []
    in_gradients(monkeypatch, turns.append)
    executor = Automatic(0.9, 2, lambda: float(len(pauses & {*range(1, len(turns) + 1)})))
    planned(rounds=4).run(executor=executor)
    assert len(turns) == 8 and type(executor.place) is place


def worked(seconds):
    """Keep the processor busy."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(
    ("spend", "moves"), [(worked, True), (time.sleep, False)], ids=["work", "waiting"]
)
def test_a_run_that_names_no_executor_moves_by_itself(monkeypatch, spend, moves):
    """Waiting, as for the processor of a busy machine, is no work that threads would share."""
    monkeypatch.setattr(in_process, "available_cores", lambda: 2)
    # Half of the work: on a busy machine a turn that waits takes more than the usual millisecond.
    monkeypatch.setattr(Automatic.__init__, "__defaults__", (0.01, None, time.thread_time))
    threads = []

    def turn(agent):
        spend(0.02)
        threads.append(threading.current_thread() is threading.main_thread())

    in_gradients(monkeypatch, turn)
    planned(rounds=4).run()
    assert threads == [True] * 4 + [not moves] * 4


def test_agents_are_built_once_and_stay_the_same_when_they_move():
    built = []
    given = problem(before=built.append)
    assert planned(given, rounds=4).run(executor=moved()).rounds == 4
    assert built == [0, 1]


@pytest.mark.parametrize("make", [dp.Serial, dp.Threads, dp.Processes, Automatic])
def test_blas_has_one_thread_where_agents_work(tmp_path, monkeypatch, make):
    def counts(agent):
        found = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        (tmp_path / f"{agent}").write_text(f"{max(found)}")

    in_gradients(monkeypatch, counts)
    with threadpool_limits(2, user_api="blas"):
        before = threadpool_info()
        planned().run(executor=make())
        assert [p["num_threads"] for p in threadpool_info()] == [p["num_threads"] for p in before]
    assert [(tmp_path / f"{k}").read_text() for k in range(2)] == ["1", "1"]


@pytest.mark.parametrize("make", [dp.Serial, dp.Threads, dp.Processes])
def test_results_do_not_depend_on_the_threads_of_blas(make):
    # Large enough that BLAS, left alone, divides sums among its threads.
    plan = many_records(50_000).plan(
        dp.LinearizedADMM(penalty=1.0, step=0.1), rounds=5, mechanism=None
    )
    with threadpool_limits(1, user_api="blas"):
        expected = plan.run(executor=dp.Serial())
    with threadpool_limits(2, user_api="blas"):
        same(expected, plan.run(executor=make()))
