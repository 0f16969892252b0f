"""Agents on a Dask cluster: results of one process, workers that are lost, and what travels.

All methods are tried by `tests.campaigns.everywhere`.
"""

import asyncio
import os
import signal
import time
import warnings
from contextlib import contextmanager
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from tests.campaigns.everywhere import METHODS, compared
from tests.run.test_resume import same

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # Dask's own, about ports and clocks


@contextmanager
def workers():
    """A client of two workers."""
    with (
        warnings.catch_warnings(action="ignore"),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client():
    with workers() as client:
        yield client


@pytest.fixture
def mortal():
    """A client whose workers a test may kill, so that no other test waits for new ones."""
    with workers() as client:
        yield client


def loaded(scale):
    return scale * np.arange(1.0, 4.0)


def summing(*, rounds=30, fetch=None):
    """Four agents whose data are fetched where they live."""
    x, agents = cp.Variable(3, name="x"), []
    for k in range(4):
        source = fetch(k) if fetch else partial(loaded, k / 10)
        d = dp.Private(source, shape=3, name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(x - d)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 1], name=f"a{k}"))
    return dp.Problem(agents).plan(
        dp.LinearizedADMM(penalty=1.0), rounds=rounds, epsilon=1.0, delta=1e-6
    )


class Striking(dp.Dask):
    """A cluster of which a worker is hit at the beginning of a round; it may take time to start."""

    def __init__(self, client, blow, t, timeout=600.0):
        super().__init__(client)
        self._blow, self._t, self._then = blow, t, timeout
        self._pids = client.run(os.getpid)
        self.victim = None

    def map(self, method, *common, each=None):
        if method == "act" and common[0] == self._t:
            worker, self.victim = sorted(self._pids.items())[0]
            os.kill(self.victim, self._blow)
            self.worker, self._timeout = worker, self._then
        return super().map(method, *common, each=each)


def test_methods_give_on_a_cluster_what_they_give_in_one_process(client):
    """A third of the methods; the campaign's short form tries the others on other engines."""
    trials = compared(lambda: dp.Dask(client), 1, 1, [*METHODS][1::3])
    assert [fault for _, fault in trials] == [None] * (len(METHODS) // 3)


@pytest.mark.parametrize("seed", [None, 5])
def test_a_worker_that_is_killed_is_reported_and_the_run_goes_on(mortal, tmp_path, seed):
    plan, path = summing(), tmp_path / "spent.jsonl"
    executor = Striking(mortal, signal.SIGKILL, 17)
    with pytest.raises(dp.WorkerLostError) as caught:
        plan.run(ledger=path, executor=executor, seed=seed, verbose=False)
    assert caught.value.workers == (executor.worker,)
    assert caught.value.agents == (0, 2)
    assert "agents 0 and 2 was lost" in str(caught.value)
    assert "it resumes in round 17" in str(caught.value)
    while executor.worker in mortal.nthreads():
        time.sleep(0.05)  # the scheduler may hear of it later than the run
    result = plan.run(ledger=path, executor=dp.Dask(mortal), seed=seed, verbose=False)
    assert result.rounds == 30
    for account in result.ledger.values():
        places = [(e.round, e.step) for e in account.entries]
        assert sorted(places) == [(t, 1) for t in range(1, 31)]
    if seed is not None:
        same(plan.run(seed=seed, executor=dp.Serial(), verbose=False), result)


def test_no_worker_counts_as_lost_because_the_client_stored_a_list_without_any(client, monkeypatch):
    # Every two seconds a client stores what its scheduler says of itself, without workers.
    monkeypatch.setattr(client, "scheduler_info", lambda n_workers=-1: {"workers": {}})
    plan = summing(rounds=2, fetch=lambda k: partial(slow, k))
    result = plan.run(executor=dp.Dask(client), verbose=False)
    assert result.status is dp.Status.COMPLETED


def slow(k):
    time.sleep(0.5)  # beyond the first glance at the workers
    return loaded(k / 10)


def test_a_worker_that_stops_is_reported_within_the_timeout(client, tmp_path):
    plan = summing()
    executor = Striking(client, signal.SIGSTOP, 3, timeout=2.0)
    try:
        with pytest.raises(dp.WorkerLostError, match="no answer within 2 seconds"):
            plan.run(ledger=tmp_path / "spent.jsonl", executor=executor, verbose=False)
    finally:
        os.kill(executor.victim, signal.SIGCONT)
    result = plan.run(ledger=tmp_path / "spent.jsonl", executor=dp.Dask(client), verbose=False)
    assert result.rounds == 30 and result.ledger.spent() <= 1 + 1e-9


def test_what_a_function_fetches_is_read_at_the_worker(client, tmp_path):
    def fetch(k):
        return partial(reading, k, tmp_path)

    plan = summing(rounds=2, fetch=fetch)
    plan.run(executor=dp.Dask(client), verbose=False)
    readers = {(tmp_path / f"{k}").read_text() for k in range(4)}
    assert readers == {str(pid) for pid in client.run(os.getpid).values()}
    assert str(os.getpid()) not in readers


def reading(k, folder):
    (folder / f"{k}").write_text(f"{os.getpid()}")
    return np.zeros(3)


def test_errors_at_workers_do_not_quote_the_data(client):
    plan = summing(rounds=2, fetch=lambda k: partial(failing, 27182.81828))
    with pytest.raises(dp.DataError) as caught:
        plan.run(executor=dp.Dask(client), verbose=False)
    assert "27182" not in str(caught.value)


def failing(secret):
    raise ValueError(secret)


def test_data_that_cannot_travel_are_refused_in_words(client):
    class Stuck:
        def __call__(self):
            return np.zeros(3)

        def __reduce__(self):
            raise TypeError(31415.92653)

    plan = summing(rounds=2, fetch=lambda k: Stuck())
    with pytest.raises(dp.ModelError, match="cannot be sent to workers: TypeError") as caught:
        plan.run(executor=dp.Dask(client), verbose=False)
    assert "31415" not in str(caught.value)


@pytest.mark.parametrize("wrong", [None, "tcp://here", 3])
def test_what_is_no_client_is_refused(wrong):
    with pytest.raises(dp.ModelError, match="needs a client of a Dask cluster"):
        dp.Dask(wrong)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "1"])
def test_a_timeout_is_a_positive_number(client, timeout):
    with pytest.raises(dp.ModelError, match="timeout"):
        dp.Dask(client, timeout)


def test_a_client_that_was_closed_is_refused_or_reported(client, tmp_path):
    from distributed import Client

    class Closing(dp.Dask):
        def map(self, method, *common, each=None):
            if method == "act" and common[0] == 2:
                self._client.close()
            return super().map(method, *common, each=each)

    plan, path = summing(rounds=3), tmp_path / "spent.jsonl"
    other = Client(client.scheduler.address)
    with pytest.raises(dp.WorkerLostError, match="again with the same ledger"):
        plan.run(executor=Closing(other), ledger=path, verbose=False)
    with pytest.raises(dp.ModelError, match=r"is closed.*dp\.Dask\(Client\(address\)\)"):
        plan.run(executor=dp.Dask(other), ledger=path, verbose=False)
    result = plan.run(executor=dp.Dask(client), ledger=path, verbose=False)
    assert result.status is dp.Status.COMPLETED
    assert any("resumed in round 1" in note for note in result.notes)


def test_a_client_of_an_event_loop_is_refused_in_it_and_serves_a_thread(client):
    from distributed import Client

    plan = summing(rounds=1)

    async def main():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            executor = dp.Dask(other)
            with pytest.raises(dp.ModelError, match="without asynchronous=True"):
                plan.run(executor=executor, verbose=False)
            return await asyncio.to_thread(plan.run, executor=executor, verbose=False)

    assert asyncio.run(main()).status is dp.Status.COMPLETED
