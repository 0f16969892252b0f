"""Checks and audits of identical agents take the road that a run of them takes, in one batch."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.mechanism import Calibrated
from dpcvx.run import fleet_oracle, private_oracle
from dpcvx.run.fleet_oracle import FleetOracle
from dpcvx.run.gate import FleetGate, ReleaseGate
from dpcvx.run.private_oracle import PrivateOracle

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
        dp.SummedGradient(), mechanism=mechanism, rounds=rounds, **budget
    )


def halve_the_charge(monkeypatch, batch):
    module = fleet_oracle if batch else private_oracle
    honest = module.charge_for

    def half(*arguments):
        grid, entry = honest(*arguments)
        sizes = {"sensitivity": grid.sensitivity / 2}
        grid = dataclasses.replace(grid, **sizes, scale=grid.scale / 2)
        return grid, dataclasses.replace(entry, **sizes)

    monkeypatch.setattr(module, "charge_for", half)


def halve_the_noise(monkeypatch, batch):
    name = "release_rows" if batch else "release"
    honest = getattr(Calibrated, name)

    def half(self, values, grid, streams):
        return honest(self, values, dataclasses.replace(grid, scale=grid.scale / 2), streams)

    monkeypatch.setattr(Calibrated, name, half)


def triple_the_gradient(monkeypatch, batch):
    if batch:
        exact = FleetOracle._exact
        monkeypatch.setattr(FleetOracle, "_exact", lambda self, query: 3 * exact(self, query))
    else:
        answer = PrivateOracle._answer
        monkeypatch.setattr(
            PrivateOracle, "_answer", lambda self, *of: lambda: 3 * answer(self, *of)()
        )


FAULTS = {
    halve_the_charge: "the ledger was charged a sensitivity of",
    halve_the_noise: "times what the ledger was charged for",
    triple_the_gradient: "the ledger was charged a sensitivity of",
}


def test_check_of_identical_agents_calls_what_their_run_calls(monkeypatch):
    called = []
    for kind in (FleetGate, ReleaseGate):
        monkeypatch.setattr(
            kind,
            "__call__",
            lambda self, *of, honest=kind.__call__, name=kind.__name__: (
                called.append(name) or honest(self, *of)
            ),
        )
    plan = planned(True)
    plan.run(seed=1)
    assert called == ["FleetGate"] * ROUNDS
    called.clear()
    assert dp.check(plan).passed
    # Recorded runs, and those of other executors, take the other road.
    assert called[:ROUNDS] == ["FleetGate"] * ROUNDS
    assert called.count("ReleaseGate") == 4 * ROUNDS


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_of_an_honest_plan_passes(identical, mechanism):
    found = dp.check(planned(identical, mechanism=mechanism, rounds=12))
    assert found.passed and [a.releases for a in found.agents] == [12] * 4


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize(
    ("identical", "batch"),
    [(True, True), (True, False), (False, False)],
    ids=["batch", "identical one by one", "one by one"],
)
def test_check_finds_a_fault_in_either_road(fault, identical, batch, monkeypatch):
    plan = planned(identical)
    fault(monkeypatch, batch)
    found = dp.check(plan)
    assert found.status == "failed"
    assert any(FAULTS[fault] in one for one in found.faults)
    apart = [one.startswith("agents one by one: ") for one in found.faults]
    assert all(apart) if identical and not batch else not any(apart)


def test_check_finds_half_the_laplace_noise(monkeypatch):
    plan = planned(True, mechanism="laplace", rounds=12)
    halve_the_noise(monkeypatch, True)
    found = dp.check(plan)
    assert any("all agents together: the mean magnitude of the noise" in f for f in found.faults)


@pytest.mark.parametrize("identical", [True, False], ids=["batch", "one by one"])
def test_check_of_an_entry_without_noise_fails(identical, monkeypatch):
    """Two thirds of all numbers have their noise."""
    name = "release_rows" if identical else "release"
    honest = getattr(Calibrated, name)

    def exact_entry(self, values, grid, streams):
        left = honest(self, values, grid, streams)
        left[..., 1] = grid.rounded(values)[..., 1]
        return left

    monkeypatch.setattr(Calibrated, name, exact_entry)
    found = dp.check(planned(identical))
    assert found.status == "failed"
    assert any("in entry 1 of 3 is 0 times what the ledger" in fault for fault in found.faults)


@pytest.mark.parametrize("fault", [None, halve_the_charge, halve_the_noise, triple_the_gradient])
def test_audit_of_identical_agents_attacks_the_batch(fault, monkeypatch):
    """Fails on correct code with probability at most 0.05."""
    level = {"mechanism": dp.Gaussian(multiplier=1.0), "epsilon": None}
    plan = planned(True, count=2, rounds=1, **level)
    if fault is not None:
        fault(monkeypatch, True)
    assert dp.audit(plan, runs=150).passed == (fault is None)


def test_replay_of_a_ledger_file_takes_the_road_of_its_run(tmp_path, monkeypatch):
    plan = planned(True)
    result = plan.run(ledger=tmp_path / "ledger", seed=3)
    made, honest = [], dp.run.fleet.Fleet.__init__
    monkeypatch.setattr(dp.run.fleet.Fleet, "__init__", lambda *of: made.append(1) or honest(*of))
    again = plan.replay(tmp_path / "ledger")
    assert made == [1]
    for one, other in zip(result.last.vectors, again.last.vectors, strict=True):
        assert np.array_equal(one, other)
