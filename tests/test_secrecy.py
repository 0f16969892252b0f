"""Nothing private leaves by the way: prints, logs, pickles, errors, objects that are kept."""

import io
import json
import logging
import pickle
import subprocess
import sys
import traceback
import weakref

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._events import EVENTS, TEXTS, JsonLines, event, json_lines
from tests.helpers import contains
from tests.instances import power_line

releases = pytest.mark.parametrize("release", ["each_step", "once"])


@releases
def test_planning_reads_no_data(release):
    def explode():
        raise AssertionError("read")

    x = cp.Variable(2, name="x")
    secret = dp.Private(explode, shape=2, name="d", adjacency=dp.Within(1.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - secret)))])
    plan = problem.plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6, release=release)
    assert "The plan was made without private data." in str(plan)
    with pytest.raises(dp.DataError, match="raised AssertionError"):
        plan.run()


@releases
def test_a_verbose_run_prints_nothing_private(capsys, caplog, release):
    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=5, epsilon=1.0, delta=1e-6, release=release)
    with caplog.at_level(logging.DEBUG):
        plan.run(verbose=True)
    printed = capsys.readouterr()
    text = printed.out + printed.err + caplog.text
    assert "guarantee" in text
    for value in np.concatenate([*given.data.values()]):
        assert f"{value:.6f}" not in text
        assert repr(float(value)) not in text


def test_objects_behind_the_door_neither_print_nor_pickle_data():
    from dpcvx.run.executors.in_process import Serial

    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=1, epsilon=1.0, delta=1e-6)
    kept = []

    class Peek(Serial):
        def close(self):
            kept.extend(self._agents)
            super().close()

    plan.run(executor=Peek())
    for worker in kept:
        for inner in (worker, worker._oracle, worker._oracle._objective):
            shown = repr(inner) + str(inner)
            assert all(f"{v:.6f}" not in shown for s in given.data.values() for v in s)
            with pytest.raises(TypeError, match="private data"):
                pickle.dumps(inner)


def test_data_that_were_released_once_are_let_go(monkeypatch):
    from dpcvx.run import gate
    from dpcvx.run.executors.in_process import Serial

    given = power_line()
    plan = given.problem.plan(dp.ADMM(), rounds=1, epsilon=1.0, delta=1e-6, release="once")
    unseal, read, left = gate.unseal, [], []

    def watched(source, spec):
        values = unseal(source, spec).copy()
        read.append(weakref.ref(values))
        return values

    class Peek(Serial):
        def close(self):
            left.extend(ref() for ref in read)
            super().close()

    monkeypatch.setattr(gate, "unseal", watched)
    plan.run(executor=Peek())
    assert left == [None, None]


@pytest.mark.parametrize(
    "bad",
    [
        np.array([31415.92653, np.nan]),
        np.array([31415.92653, 1.0, 2.0]),
        np.array([-31415.92653, 1.0]),
        ["31415.92653", "secret words"],
        lambda: 1 / (31415.92653 - 31415.92653),
        lambda: [][31415],
    ],
    ids=["nan", "shape", "sign", "text", "raises", "index"],
)
@releases
def test_bad_data_spend_nothing_and_show_nothing(bad, release):
    x = cp.Variable(2, name="x")
    secret = dp.Private(shape=2, name="d", adjacency=dp.Within(1.0), nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - secret)), name="a")])
    plan = problem.plan(dp.LinearizedADMM(), rounds=3, epsilon=1.0, delta=1e-6, release=release)
    with pytest.raises(dp.DataError, match="'d'") as caught:
        plan.run(data={secret: bad})
    trace = "".join(traceback.format_exception(caught.value))
    chain = [caught.value.__cause__, caught.value.__context__]
    assert chain == [None, None]
    assert "31415.9" not in str(caught.value)
    assert "secret words" not in trace


def test_the_check_for_leaks_can_find_one():
    values = np.array([0.123456789])
    assert contains({"leak": 0.123456789}, values)
    assert contains(np.array([0.123456789]), values)
    assert not contains({"leak": 0.5}, values)


def run_with_logs(caplog, rounds):
    """All that a run with owners and one with workers log, and every number of theirs."""
    data = {"d0": [0.739182, 1.284611], "d1": [1.571943, 0.418266]}
    x, agents = cp.Variable(2, name="x"), []
    for k, name in enumerate(("north", "south")):
        d = dp.Private(shape=2, name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 3], name=name))
    plan = dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=rounds, epsilon=1.0, delta=1e-6)
    with caplog.at_level(logging.DEBUG, "dpcvx"):
        caplog.clear()
        owners = dp.LoopbackOwners(plan, data=data, record=True)
        result = plan.run(executor=owners)
        plan.run(data=data, executor=dp.Processes(2), seed=1)
    numbers = [*data.values(), *(result.last.vectors), *(result.average.vectors)]
    for session in owners.sessions.values():
        numbers += [release.value for release in session.result.releases]
        numbers += [*session.result.last.values()]
    return caplog.records[:], np.concatenate([np.ravel(value) for value in numbers])


def test_a_whole_runs_log_has_public_facts_and_no_number_of_data_or_releases(caplog):
    short, _ = run_with_logs(caplog, 2)
    records, numbers = run_with_logs(caplog, 5)
    assert {"offered", "joined", "finished", "began", "ended", "dealt"} <= {
        record.event for record in records
    }
    # Nothing is logged for each round.
    assert [record.event for record in records] == [record.event for record in short]
    for record in records:
        which, level, sentence = EVENTS[record.event]
        assert (record.name, record.levelno) == (f"dpcvx.{which}", level)
        assert record.msg == sentence.format_map(record.facts) and not record.args
        assert record.exc_info is None and record.stack_info is None
        for key, fact in record.facts.items():
            assert type(fact) is (str if key in TEXTS else int)
        line = JsonLines().format(record)
        for number in numbers[np.isfinite(numbers)]:
            for written in (repr(float(number)), f"{number:.6f}", f"{number:.4g}", f"{number:.3f}"):
                assert written not in line and written not in str(record.facts)


def test_lines_of_json_have_no_time_and_end_with_the_block():
    stream = io.StringIO()
    with json_lines(stream):
        event("left", {"agent": "zone\n1"})
        event("hosted", {"members": 3})  # below the level
    event("left", {"agent": "zone 2"})
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {
            "level": "WARNING",
            "logger": "dpcvx.coordinator",
            "event": "left",
            "message": "zone?1 left",
            "agent": "zone?1",
        }
    ]


def test_a_program_without_handlers_sees_nothing():
    code = "from dpcvx._events import event; event('broken off', dict(run='r', round=3, code='x'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == ended.stderr == ""
