"""Private power flow on odd networks runs, is refused in words, or is a fault."""

from problems.power_flow.case import read_case
from tests.campaigns import power_flows, private_power_flows


def test_odd_networks_run_or_are_refused_in_words(monkeypatch):
    monkeypatch.setattr(power_flows, "networks", list)
    tally = private_power_flows.campaign(6, seed=0)
    assert not tally.faults and tally.counts.total() == 6
    assert any(outcome.startswith("runs") for outcome in tally.counts)


def test_values_that_are_no_optimum_are_faults(monkeypatch):
    case = read_case(private_power_flows.odd()["one bus"])
    setting = {"model": "dc", "private": None, "objective": "cost", "zones": 1, "horizon": 1}
    setting["epsilon"] = 1.0
    assert private_power_flows.outcome_of(case, setting) == ("runs without noise", None)
    monkeypatch.setattr(private_power_flows, "optimum", lambda study: 1.0)
    outcome, fault = private_power_flows.outcome_of(case, setting)
    assert outcome == "DIFFERS" and "against 1" in fault
    setting["zones"] = 3
    outcome, fault = private_power_flows.outcome_of(case, setting)
    assert outcome == "refused: CaseError" and fault is None
