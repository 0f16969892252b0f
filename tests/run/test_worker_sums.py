"""Sums over agents have the same bits wherever these live, and few numbers travel."""

import cvxpy as cp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import dpcvx as dp
from dpcvx.privacy.ledger_lines import Notes
from dpcvx.run.executors.host import Host, dealt, heard
from dpcvx.run.worker import PartialSum, Reply, partial_rows, partial_sums, total_of
from dpcvx.solvers.conic import Outcome
from tests.run.test_resume import same


def terms(count, seed=0):
    """Numbers whose sum depends on the order of additions."""
    return [
        *np.random.default_rng(seed).normal(size=(count, 3))
        * 10.0 ** (np.arange(count) % 7)[:, None]
    ]


def test_the_order_is_that_of_the_tree():
    a, b, c, d, e = terms(5)
    assert np.array_equal(total_of([a, b, c, d, e]), ((a + b) + (c + d)) + e)
    assert np.array_equal(total_of([a, None, c, d, e]), (a + (c + d)) + e)
    assert np.array_equal(total_of([None, None, c]), c)


@given(st.data(), st.integers(1, 70), st.integers(1, 6))
def test_a_sum_has_the_same_bits_however_agents_are_dealt(data, count, workers):
    values = terms(count)
    idle = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    there = data.draw(st.lists(st.integers(0, workers - 1), min_size=count, max_size=count))
    known = [None if k in idle else value for k, value in enumerate(values)]
    replies = [None] * count
    for worker in range(workers):
        own = {k: known[k] for k in range(count) if there[k] == worker and k not in idle}
        for first, part in partial_sums(own).items():
            replies[first] = part
    assert total_of(replies).tobytes() == total_of(known).tobytes()


@given(st.integers(0, 200), st.integers(1, 9))
def test_all_agents_of_a_worker_leave_as_few_sums(first, doublings):
    count = 2**doublings
    found = partial_sums({first * count + k: np.ones(1) for k in range(count)})
    assert [(agent, part.level) for agent, part in found.items()] == [(first * count, doublings)]
    assert total_of([*found.values()][:1]) == count


@given(st.integers(1, 200))
def test_sums_of_rows_are_those_of_their_agents(count):
    rows = np.array(terms(count))
    found, expected = partial_rows(rows), partial_sums(dict(enumerate(rows)))
    assert {k: (p.level, p.value.tobytes()) for k, p in found.items()} == {
        k: (p.level, p.value.tobytes()) for k, p in expected.items()
    }


class Term:
    """A worker of one agent, which replies with its own numbers."""

    def __init__(self, agent, value):
        self.agents, self._value = (agent,), value

    def act(self, t, k, messages):
        if messages == [None]:
            return [None]
        return [Reply(self._value, Outcome.SOLVED, term=True)]


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_workers_send_sums_instead_of_terms(workers):
    values, sent = terms(96), 0
    groups, answers = dealt(96, workers), []
    for agents in groups:
        host = Host({k: lambda k=k: Term(k, values[k]) for k in agents}, Notes())
        own = [([None if k == 5 else 0.0],) for k in agents]
        answers.append((agents, host.call(1, "act", (1, 0), own)))
    replies = [reply for (reply,) in heard(answers, None)]
    assert replies[5] is None and all(r.outcome is Outcome.SOLVED for r in replies if r)
    messages = [None if reply is None else reply.message for reply in replies]
    sent = sum(isinstance(message, PartialSum) for message in messages)
    assert sent == sum(message is not None for message in messages) <= 8 + 4 * workers
    known = [None if k == 5 else value for k, value in enumerate(values)]
    assert total_of(messages).tobytes() == total_of(known).tobytes()


def many(count=40):
    """Agents with private targets who agree on a vector."""
    x, agents = cp.Variable(3, name="x"), []
    for k, value in enumerate(terms(count)):
        d = dp.Private(value / 1e7, name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(x - d))
        agents.append(dp.Agent(cost, [cp.abs(x) <= 1], name=f"a{k}"))
    return dp.Problem(agents)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_runs_whose_terms_are_added_up_by_workers_are_those_of_one_process(workers, tmp_path):
    plan = many().plan(dp.FederatedGradient(step=0.01), rounds=3, epsilon=1.0, delta=1e-6)
    path = tmp_path / "spent.jsonl"
    found = plan.run(seed=1, executor=dp.Processes(workers), record=True, ledger=path)
    same(found, plan.run(seed=1, executor=dp.Serial(), record=True))
    same(found, plan.replay(found.transcript))
    same(found, plan.replay(path))


def test_a_call_holds_what_all_agents_hear_once():
    plan = many().plan(dp.FederatedGradient(step=0.01), rounds=3, epsilon=1.0, delta=1e-6)
    server = plan.algorithm.start_server(plan.program)
    for k in range(plan.algorithm.exchanges):
        server, messages = plan.algorithm.send(server, 1, k)
        assert len({id(message) for message in messages}) == 1
        if plan.algorithm.adds(k):
            server = plan.algorithm.receive(server, 1, k, [np.ones(3)])
