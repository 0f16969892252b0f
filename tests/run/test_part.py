"""One agent's part of a plan is enough to take its turns, with a ledger of its own."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.ledger_file import Journal
from dpcvx.run.data import sources_of
from dpcvx.run.part import parts_of
from dpcvx.run.resume import begin
from tests.helpers import contains
from tests.instances import power_line
from tests.spies import worker_of_one

PLANS = {
    "each_step": (dp.LinearizedADMM(penalty=2.0, local_updates=2), "each_step"),
    "once": (dp.ADMM(penalty=2.0), "once"),
}


def planned(name):
    method, release = PLANS[name]
    return power_line().problem.plan(method, rounds=4, epsilon=1.0, delta=1e-6, release=release)


def apart(plan, folder, seed, stop=None):
    """The plan, with every agent's part on its own: own ledger file, own sources."""
    sources = sources_of(plan.problem, None)
    parts = [pickle.loads(pickle.dumps(part)) for part in parts_of(plan)]
    journals = [Journal(folder / f"{part.agent.name}.jsonl").__enter__() for part in parts]
    workers = []
    for part, own, journal in zip(parts, sources, journals, strict=True):
        start = begin([part], journal, seed is not None)
        make = worker_of_one(part, own, start.agents[0], journal=journal, seed=seed)
        workers.append(make())
    server = plan.algorithm.start_server(plan.program)
    for t in range(1, (stop or plan.rounds) + 1):
        for k in range(plan.algorithm.exchanges):
            server, messages = plan.algorithm.send(server, t, k)
            pairs = zip(workers, messages, strict=True)
            replies = [worker.act(t, k, [message])[0] for worker, message in pairs]
            server = plan.algorithm.receive(server, t, k, [reply.message for reply in replies])
    reports = [worker.report([None])[0] for worker in workers]
    for journal in journals:
        journal.__exit__(None, None, None)
    return reports


@pytest.mark.parametrize("name", PLANS)
def test_parts_give_what_the_plan_gives(name, tmp_path):
    plan = planned(name)
    whole = plan.run(seed=4, ledger=tmp_path / "whole.jsonl")
    reports = apart(plan, tmp_path, seed=4)
    for report, vector in zip(reports, whole.last.vectors, strict=True):
        assert report.answer.last.tobytes() == vector.tobytes()
        assert report.account.entries == whole.ledger[report.account.agent].entries


@pytest.mark.parametrize("name", PLANS)
def test_a_part_goes_on_from_its_own_ledger(name, tmp_path):
    plan = planned(name)
    apart(plan, tmp_path, seed=None, stop=2)
    before = {p.name: p.read_bytes().count(b'"values"') for p in tmp_path.iterdir()}
    reports = apart(plan, tmp_path, seed=None)
    for report in reports:
        planned_entries = 1 if name == "once" else 4 * 2
        held = plan.agent(report.account.agent).program.form.private
        assert len(report.account.entries) == (planned_entries if held else 0)
        assert report.account.spent().epsilon <= 1.0 + 1e-9
    assert all(count for name, count in before.items())


def test_parts_hold_no_data():
    secret = np.array([27182.81828, 31415.92653])
    x, d = cp.Variable(2), dp.Private(secret, name="d", adjacency=dp.Within(0.1))
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 1], name="north")]
    agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x)), name="south"))
    plan = dp.Problem(agents).plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    assert not contains(pickle.dumps(parts_of(plan)), secret)
