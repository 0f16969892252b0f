"""Checks and audits of identical agents take the road that a run of them takes, in one batch."""

import dataclasses
import re

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.privacy.noise import on_grid
from dpcvx.run import private_oracle
from dpcvx.run.private_oracle import PrivateOracle
from dpcvx.run.worker import Worker
from tests.spies import change_charges, watch_releases

ROUNDS = 8


def planned(identical, count=4, mechanism="gaussian", rounds=ROUNDS, **budget):
    """A plan of agents that differ in data alone, or in their objectives as well."""
    w = cp.Variable(3, name="w")
    agents = []
    for k in range(count):
        rows = np.eye(3)[[0, 1, 2, k % 3]]
        X = dp.Private(rows, name=f"X{k}", adjacency=dp.Rows(1.0))
        loss = cp.sum(cp.pos(1 - X @ w)) * (1.0 if identical else 1.0 + 0.1 * k)
        agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 5], name=f"c{k}"))
    budget = {"epsilon": 1.0, "delta": 1e-6} | budget
    return dp.Problem(agents).plan(
        dp.FederatedGradient(), mechanism=mechanism, rounds=rounds, **budget
    )


def halve_the_charge(monkeypatch):
    honest = private_oracle.charge_for

    def half(*arguments):
        grid, entry = honest(*arguments)
        sizes = {"sensitivity": grid.sensitivity / 2}
        grid = dataclasses.replace(grid, **sizes, scale=grid.scale / 2)
        return grid, dataclasses.replace(entry, **sizes)

    monkeypatch.setattr(private_oracle, "charge_for", half)


def halve_the_noise(monkeypatch):
    honest = Calibrated.release_rows

    def half(self, values, grid, streams):
        return honest(self, values, dataclasses.replace(grid, scale=grid.scale / 2), streams)

    monkeypatch.setattr(Calibrated, "release_rows", half)


def triple_the_gradient(monkeypatch):
    honest = PrivateOracle._evaluated
    monkeypatch.setattr(PrivateOracle, "_evaluated", lambda *of: 3 * honest(*of))


def leave_out_a_charge(monkeypatch):
    change_charges(monkeypatch, lambda charge: None if charge.entry.round == 2 else charge)


def name_the_data_in_the_ledger(monkeypatch):
    honest = PrivateOracle.release

    def quoting(self, query):
        value = abs(float(self._objective.gradient(query.x).sum()))
        with pytest.MonkeyPatch.context() as patched:
            change_charges(patched, lambda charge: _with_sensitivity(charge, 1.0 + value))
            return honest(self, query)

    monkeypatch.setattr(PrivateOracle, "release", quoting)


def _with_sensitivity(charge, factor):
    entry = dataclasses.replace(charge.entry, sensitivity=charge.entry.sensitivity * factor)
    return dataclasses.replace(charge, entry=entry)


FAULTS = {
    halve_the_charge: "the ledger was charged a sensitivity of",
    halve_the_noise: "times what the ledger was charged for",
    triple_the_gradient: "the ledger was charged a sensitivity of",
    leave_out_a_charge: "has releases that are not in its ledger",
    name_the_data_in_the_ledger: "the ledgers differ",
}


@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_of_a_plan_calls_the_gate_as_its_run_does(identical, monkeypatch):
    calls = []
    watch_releases(monkeypatch, lambda gate, place, *_: calls.append((gate.agents, place)))
    plan = planned(identical)
    plan.run(seed=1)
    run = [*calls]
    assert len(run) == (ROUNDS if identical else 4 * ROUNDS)
    calls.clear()
    assert dp.check_sensitivity(plan).passed
    # The first of two runs; the other one has its releases handed out.
    assert calls[: len(run)] == run
    # Executors with several processes have a batch take its turns one by one.
    assert len(calls) == len(run) + (4 * ROUNDS if identical else 0)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_of_an_honest_plan_passes(identical, mechanism):
    found = dp.check_sensitivity(planned(identical, mechanism=mechanism, rounds=12))
    assert found.passed and [a.releases for a in found.agents] == [12] * 4


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_finds_a_fault_in_the_road_of_a_run(fault, identical, monkeypatch):
    plan = planned(identical)
    fault(monkeypatch)
    found = dp.check_sensitivity(plan)
    assert found.status == "failed"
    assert any(FAULTS[fault] in one for one in found.faults)
    batch = [one for one in found.faults if not one.startswith("agents one by one: ")]
    assert any(FAULTS[fault] in one for one in batch)


def test_check_finds_half_the_laplace_noise(monkeypatch):
    plan = planned(True, mechanism="laplace", rounds=12)
    halve_the_noise(monkeypatch)
    found = dp.check_sensitivity(plan)
    assert any("all agents together: the mean magnitude of the noise" in f for f in found.faults)


@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_of_an_entry_without_noise_fails(identical, monkeypatch):
    """Two thirds of all numbers have their noise."""
    honest = Calibrated.release_rows

    def exact_entry(self, values, grid, streams):
        left = honest(self, values, grid, streams)
        left[..., 1] = grid.width * on_grid(values, grid)[..., 1]
        return left

    monkeypatch.setattr(Calibrated, "release_rows", exact_entry)
    found = dp.check_sensitivity(planned(identical))
    assert found.status == "failed"
    said = r"in entry 1 of 3 is \d\S*e-0\d times what the ledger"
    assert any(re.search(said, fault) for fault in found.faults)


@pytest.mark.parametrize("delta", [0, 1e-6])
def test_noise_of_a_few_widths_of_its_grid_is_enough(delta):
    """With an epsilon of 10,000 single numbers have no noise at all, and the law says so."""
    noise = "gaussian" if delta else "laplace"
    plan = planned(True, mechanism=noise, rounds=1, epsilon=1e4, delta=delta)
    assert all(dp.check_sensitivity(plan, seed=seed).passed for seed in range(20))


@pytest.mark.parametrize("fault", [None, halve_the_noise])
def test_audit_of_identical_agents_attacks_the_batch(fault, monkeypatch):
    """Fails on correct code with probability at most 0.05."""
    level = {"mechanism": dp.Gaussian(noise_multiplier=1.0), "epsilon": None}
    plan = planned(True, count=2, rounds=1, **level)
    if fault is not None:
        fault(monkeypatch)
    assert dp.audit(plan, runs=100).passed == (fault is None)


def test_replay_of_a_ledger_file_takes_the_road_of_its_run(tmp_path, monkeypatch):
    plan = planned(True)
    result = plan.run(ledger=tmp_path / "ledger", seed=3)
    sizes, honest = [], Worker.__init__
    monkeypatch.setattr(Worker, "__init__", lambda *of: sizes.append(len(of[-1])) or honest(*of))
    again = plan.replay(tmp_path / "ledger")
    assert sizes == [4]
    for one, other in zip(result.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(one, other)
