"""Where agents live makes no difference: results, ledgers, errors."""

import threading

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.oracle import PrivateOracle
from problems.power_flow.study import power_flow
from tests.instances import INSTANCES, power_line
from tests.test_resume import same

METHODS = {
    "gradients": dp.LinearizedADMM(rho=2.0, local_updates=2),
    "outputs": dp.LinearizedADMM(rho=2.0, perturb="output"),
}


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", INSTANCES)
def test_threads_give_the_same_result_bit_for_bit(name, method, workers):
    problem = INSTANCES[name]().problem
    plan = problem.plan(METHODS[method], rounds=4, epsilon=1.0, delta=1e-6)
    serial = plan.run(seed=3, record=True)
    same(serial, plan.run(seed=3, record=True, executor=dp.Threads(workers)))


def test_threads_give_the_same_result_on_a_network():
    plan = power_flow(14).problem.plan(rounds=3, epsilon=1.0, delta=1e-6)
    same(plan.run(seed=1), plan.run(seed=1, executor=dp.Threads()))


def test_a_ledger_file_written_by_threads_resumes(tmp_path):
    path = tmp_path / "spent.jsonl"
    plan = power_line().problem.plan(rounds=6, epsilon=1.0, delta=1e-6)
    result = plan.run(seed=2, ledger=path, executor=dp.Threads(3), record=True)
    same(result, plan.run(seed=2, record=True))
    same(result, plan.replay(path))


def test_agents_work_at_the_same_time(monkeypatch):
    # Every agent waits for the others within its gradient: one after the other would time out.
    gate = threading.Barrier(2, timeout=20)
    honest = PrivateOracle.gradient

    def meets(self, x):
        gate.wait()
        return honest(self, x)

    monkeypatch.setattr(PrivateOracle, "gradient", meets)
    plan = problem().plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    assert plan.run(executor=dp.Threads(2)).rounds == 2


def problem(data=((1.0, 2.0), (3.0, 4.0))):
    x = cp.Variable(2, name="x")
    agents = []
    for k, values in enumerate(data):
        d = dp.Private(np.array(values), name=f"d{k}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 5], name=f"a{k}"))
    return dp.Problem(agents)


def test_the_first_agents_error_is_raised_and_everybody_is_let_go(monkeypatch):
    def fails(self, x):
        raise dp.PrivacyError(f"agent {self._exit.agent}")

    monkeypatch.setattr(PrivateOracle, "gradient", fails)
    executor = dp.Threads(2)
    plan = problem().plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.PrivacyError, match="agent 0"):
        plan.run(executor=executor)
    assert executor._agents == [] and executor._pool is None
    assert not [t for t in threading.enumerate() if t.name.startswith("agent")]


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_a_number_of_threads_is_a_positive_int(workers):
    with pytest.raises(dp.ModelError, match=r"dp\.Threads\(workers="):
        dp.Threads(workers)
