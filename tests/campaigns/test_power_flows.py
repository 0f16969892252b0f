"""Networks of pandapower have its power flow, are refused in words, or are faults."""

from dataclasses import replace

import pytest

from tests.campaigns import power_flows

pytestmark = pytest.mark.filterwarnings("ignore")  # of pandapower and pandas


def test_networks_agree_are_refused_or_are_faults(monkeypatch):
    made = pytest.importorskip("pandapower.networks")
    names = ("create_empty_network", "simple_four_bus_system")
    chosen = [(name, getattr(made, name)) for name in names]
    assert set(chosen) <= set(power_flows.networks())
    monkeypatch.setattr(power_flows, "networks", lambda: chosen)
    tally = power_flows.campaign(2, seed=0)
    assert tally.counts == {"refused": 1, "agrees": 1} and not tally.faults
    (note,) = tally.notes
    assert "no external grid" in note
    right = power_flows.compare
    monkeypatch.setattr(power_flows, "compare", lambda net: replace(right(net), magnitude=1e-7))
    tally = power_flows.campaign(2, seed=0)
    assert tally.counts == {"refused": 1, "DIFFERS": 1} and len(tally.faults) == 1
