"""Agents of one worker: what is asked again is answered again, and released once."""

import pickle
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.ledger_file import Journal
from dpcvx.privacy.ledger_lines import Notes
from dpcvx.run.data import sources_of
from dpcvx.run.executors.host import Host, dealt, heard, own_arguments
from dpcvx.run.part import parts_of
from dpcvx.run.resume import begin
from tests.instances import overlapping_slices
from tests.privacy.test_ledger_file import written
from tests.run.test_resume import book, same, same_ledger
from tests.spies import worker_of_one

PLAN = overlapping_slices().problem.plan(
    dp.LinearizedADMM(penalty=2.0), rounds=3, epsilon=1.0, delta=1e-6
)


def hosted(agents=None):
    """A host of agents of a plan without a seed, and the messages of its first round."""
    parts, notes = parts_of(PLAN), Notes()
    start, sources = begin(parts, None, False), sources_of(PLAN.problem, None)
    agents = range(len(parts)) if agents is None else agents
    factories = {
        k: worker_of_one(parts[k], sources[k], start.agents[k], journal=notes, record=True)
        for k in agents
    }
    _, messages = PLAN.algorithm.send(PLAN.algorithm.start_server(PLAN.program), 1, 0)
    return Host(factories, notes), own_arguments([[message] for message in messages], agents)


def test_the_same_call_again_gives_the_same_bytes_and_releases_once():
    host, own = hosted()
    first = host.call(1, "act", (1, 0), own)
    assert host.call(1, "act", (1, 0), own) == first
    agents = range(len(own))
    reports = heard([(agents, host.call(2, "report", (), [([None],)] * len(own)))], None)
    private = [bool(a.program.form.private) for a in PLAN.agents]
    assert [len(report.account.entries) for (report,) in reports] == [int(has) for has in private]


@pytest.mark.parametrize("number", [-1, 2, 7])
def test_any_other_call_is_refused_and_nothing_is_drawn(number):
    host, own = hosted()
    with pytest.raises(dp.PrivacyError, match=f"has done call 0, and call {number} is due"):
        host.call(number, "act", (1, 0), own)
    host.call(1, "act", (1, 0), own)
    for behind in (0, 3):
        with pytest.raises(dp.PrivacyError, match="has done call 1"):
            host.call(behind, "act", (1, 0), own)


def test_notes_travel_with_the_answers(tmp_path):
    count = len(PLAN.agents)
    hosts = [(agents, *hosted(agents)) for agents in dealt(count, 2)]
    answers = [(agents, host.call(1, "act", (1, 0), own)) for agents, host, own in hosts]
    path = tmp_path / "ledger"
    with Journal(path) as journal:
        journal.begin("f", seeded=False, accounts=PLAN.accounts())
        replies = heard(answers[::-1], journal)
    assert len(replies) == count
    with Journal(path) as journal:
        known = journal.interrupted
    private = {a.name for a in PLAN.agents if a.program.form.private}
    assert set(known.values) == set(known.charged) == private


def clinics(count, odd, updates=1):
    """Agents that charge the same, but for one."""
    x, agents = cp.Variable(2, name="x"), []
    for k in range(count):
        d = dp.Private(np.full(2, 0.1), name=f"d{k}", adjacency=dp.Within(0.2 if k == odd else 0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name=f"a{k}"))
    method = dp.LinearizedADMM(penalty=1.0, local_updates=updates)
    noise = {"epsilon": 1.0, "delta": 1e-6, "release": "each_step"}
    return dp.Problem(agents).plan(method, rounds=2, **noise)


@pytest.mark.parametrize(
    "plan, lines, updates",
    [
        (clinics(2, None), 2, 1),
        (clinics(7, 3), 3, 1),  # a line more for what the odd one is charged
        (clinics(40, 0), 3, 1),
        (clinics(2, None, updates=2), 4, 2),  # either agent's charges stay in their order
    ],
    ids=["alike", "one in the middle", "one at first", "two updates"],
)
@pytest.mark.parametrize("make", [dp.Serial, partial(dp.Threads, 2), partial(dp.Processes, 2)])
def test_agents_that_are_alike_share_a_line(plan, lines, updates, make, tmp_path):
    """Wherever they live: what a round writes grows by numbers and names alone."""
    path = tmp_path / "ledger"
    result = plan.run(ledger=path, executor=make(), seed=3, record=True, verbose=False)
    same(result, plan.run(seed=3, executor=dp.Serial(), record=True, verbose=False))
    raw = path.read_bytes()
    assert raw.count(b"\n") == 3 + 2 * lines  # a head, the run, two rounds, the end
    kept = dp.Ledger.load(path)
    same_ledger({agent: kept[agent] for agent in result.ledger}, result.ledger)
    for kind, found in zip(("charge", "value"), book(raw), strict=True):
        for agent in result.ledger:
            places = [(one["round"], one["step"]) for one in found if one[kind] == agent]
            assert places == [(t, k + 1) for t in (1, 2) for k in range(updates)]


def test_agents_are_dealt_in_turn_and_nobody_is_forgotten():
    for agents in range(1, 9):
        for workers in range(1, 5):
            groups = dealt(agents, workers)
            assert sorted(k for group in groups for k in group) == list(range(agents))
            sizes = [len(group) for group in groups]
            assert max(sizes) - min(sizes) <= 1 and len(groups) == min(agents, workers)


def test_many_agents_are_dealt_in_a_row():
    for agents, workers in ((32, 2), (500, 3), (512, 4)):
        groups = dealt(agents, workers)
        assert [k for group in groups for k in group] == list(range(agents))
        sizes = [len(group) for group in groups]
        assert max(sizes) - min(sizes) <= 1 and len(groups) == workers


def test_an_error_of_one_agent_does_not_lose_what_the_others_noted(tmp_path):
    host, own = hosted()
    own[1] = (["nonsense"],)
    answer = host.call(1, "act", (1, 0), own)
    _, noted = pickle.loads(answer)
    with pytest.raises(dp.PrivacyError, match="Agent 1 failed"), Journal(tmp_path / "l") as journal:
        journal.begin("f", seeded=False, accounts=PLAN.accounts())
        heard([(range(len(own)), answer)], journal)
    first = PLAN.agents[0].name
    assert [first in of.get("charges", of.get("values")) for of in noted.lines({})] == [True, True]
    found = written((tmp_path / "l").read_bytes(), "value")
    assert first in {one["value"] for one in found}
