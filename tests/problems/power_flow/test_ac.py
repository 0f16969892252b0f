"""The AC power flow is pandapower's, and the check says which limits it breaks at which loads."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.ac import ac_check, checked, newton, served_loads
from problems.power_flow.case import read_case
from problems.power_flow.physics import incidence, slack_buses
from problems.power_flow.relaxed import relaxation
from problems.power_flow.report import assess
from problems.power_flow.solution import central, network_state
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import blind
from tests.problems.power_flow.pandapower_flow import compare

NETWORKS = (
    "case4gs case5 case6ww case9 case14 case24_ieee_rts case30 case_ieee30 case33bw case39 case57 "
    "case118 example_multivoltage simple_mv_open_ring_net"
).split()


@pytest.mark.filterwarnings("ignore")  # of pandapower and pandas
@pytest.mark.parametrize("name", NETWORKS)
def test_voltages_are_those_of_pandapower(name: str):
    networks = pytest.importorskip("pandapower.networks")
    compared = compare(getattr(networks, name)())
    assert compared is not None and compared.converged
    assert compared.magnitude < 1e-8
    assert compared.angle < 1e-6 and compared.slack < 1e-6


def test_a_solution_of_the_equations_is_found_again():
    case, rng = read_case(118), np.random.default_rng(0)
    count = len(case.bus.id)
    voltage = rng.uniform(0.95, 1.05, count) * np.exp(1j * rng.uniform(-0.05, 0.05, count))
    start, end = case.branch.from_bus, case.branch.to_bus
    series, turns = 1 / (case.branch.r + 1j * case.branch.x), case.branch.tap
    turns = turns * np.exp(1j * case.branch.shift)
    # Ohm's law branch by branch, behind an ideal transformer.
    behind = voltage[start] / turns
    through = series * (behind - voltage[end])
    into = (through + 0.5j * case.branch.b * behind) / np.conj(turns)
    out = -through + 0.5j * case.branch.b * voltage[end]
    injected = voltage * np.conj((case.bus.gs + 1j * case.bus.bs) * voltage)
    np.add.at(injected, start, voltage[start] * np.conj(into))
    np.add.at(injected, end, voltage[end] * np.conj(out))
    flow = newton(case, injected, np.abs(voltage))
    assert flow.converged and len(flow.slack) == 1
    turn = voltage[flow.slack[0]] / np.abs(voltage[flow.slack[0]])
    np.testing.assert_allclose(flow.voltage, voltage / turn, atol=1e-9)
    np.testing.assert_allclose(flow.start, voltage[start] * np.conj(into), atol=1e-8)
    np.testing.assert_allclose(flow.end, voltage[end] * np.conj(out), atol=1e-8)


def test_every_part_has_a_slack_bus_with_generation():
    case = read_case(14)
    assert case.bus.id[slack_buses(case)].tolist() == [1]
    cut = np.isin(case.bus.id[case.branch.from_bus], (1, 2)) & (case.bus.id[case.branch.to_bus] > 2)
    apart = {name: value[~cut] for name, value in vars(case.branch).items() if name != "of_branch"}
    parts = replace(case, branch=replace(case.branch, **apart))
    slack = case.bus.id[slack_buses(parts)].tolist()
    assert len(slack) == 2 and 1 in slack and set(slack) <= set(case.bus.id[case.gen.bus].tolist())


@pytest.mark.parametrize("shift", [60, -150])
def test_phase_shifters_do_not_lead_newton_astray(shift):
    buses = np.zeros((3, 13))
    buses[:, [0, 1, 7, 9, 11, 12]] = [
        [1, 3, 1, 110, 1.1, 0.9],
        *([k, 1, 1, 110, 1.1, 0.9] for k in (2, 3)),
    ]
    buses[1:, 2:4] = 50, 10
    branches = np.zeros((2, 13))
    branches[:, :4] = [[1, 2, 0.001, 0.05], [2, 3, 0.001, 0.05]]
    branches[:, 10], branches[0, 9] = 1, shift
    gen = [[1, 0, 0, 1e3, -1e3, 1, 100, 1, 1e3, 0]]
    shifted, straight = (
        read_case(
            {
                "baseMVA": 100,
                "bus": buses,
                "gen": gen,
                "branch": lines,
                "gencost": [[2, 0, 0, 1, 0]],
            }
        )
        for lines in (branches, branches * (np.arange(13) != 9))
    )
    made = -(straight.load @ [1, 1j])
    flows = [newton(case, made, np.ones(3)) for case in (shifted, straight)]
    assert all(flow.converged for flow in flows)
    turned = flows[0].voltage[1:] * np.exp(1j * np.radians(shift))
    np.testing.assert_allclose(turned, flows[1].voltage[1:], atol=1e-9)


def test_loads_beyond_all_power_have_no_flow():
    case = read_case(14)
    state = central(case, "cost").state
    check = checked(case, state, 20 * case.load, "true")
    assert not check.flow.converged and not check.within
    assert "no AC power flow found" in check.short
    assert "DID NOT CONVERGE" in str(check)


# Case, then what an AC power flow from the relaxation's optimum breaks.
FOUND = [
    ("3", 1, 0, 0),
    ("14", 0, 0, 1),
    ("118", 3, 2, 14),
]


@pytest.mark.parametrize(("case", "overloads", "voltages", "reactive"), FOUND)
def test_the_optimum_of_the_relaxation_breaks_limits(case, overloads, voltages, reactive):
    network = read_case(case)
    state = central(network, "cost").state
    check = checked(network, state, network.load, "public")
    assert (check.overloads, check.voltages, check.reactive) == (overloads, voltages, reactive)
    # What leaves the slack bus is what loads, shunts and branches take.
    made = network.base_mva * check.flow.injected.sum().real
    shunts = network.base_mva * (network.bus.gs @ np.abs(check.flow.voltage) ** 2)
    assert made == pytest.approx(check.losses + shunts, abs=1e-6)
    generated = incidence(network.gen.bus, len(network.bus.id)) @ state.pg
    assert check.slack_error == pytest.approx(
        made + network.base_mva * (network.load[:, 0].sum() - generated.sum()), abs=1e-6
    )


def test_a_feeder_whose_relaxation_is_tight_is_an_ac_power_flow(tmp_path):
    from tests.problems.power_flow.test_branch_flow import FEEDER

    path = tmp_path / "feeder.m"
    path.write_text(FEEDER)
    case = read_case(path)
    state = central(case, "cost").state
    assert relaxation(case, state).tight
    check = checked(case, state, case.load, "public")
    assert check.within and check.short.startswith("AC check at public loads: all limits kept")
    np.testing.assert_allclose(np.abs(check.flow.voltage) ** 2, state.w, atol=1e-6)


@pytest.fixture(scope="module")
def private_run():
    study = power_flow(14, load_scale=1.5)
    return study, study.problem.plan(epsilon=1.0, delta=1e-6).run(seed=1)


def test_a_private_run_is_checked_without_its_loads(private_run, monkeypatch):
    study, result = private_run
    check = ac_check(study, result)
    assert check.loads == "served" and "(not private)" not in str(check) + check.short
    state = network_state(study.case, study.zones, study.variables)
    assert check.relaxation == relaxation(study.case, state)
    last = [line.split()[:2] for line in str(check).splitlines()[-2:]]
    assert last == [["cone", "slack"], ["loop", "closure"]]
    # The same with a network whose loads are unknown.
    unknown = blind(study)
    assert ac_check(unknown, result).as_dict() == check.as_dict()
    np.testing.assert_allclose(served_loads(unknown.case, state), served_loads(study.case, state))


def test_true_loads_need_the_word_for_it_and_are_marked(private_run):
    study, result = private_run
    check = ac_check(study, result, dp.not_private)
    assert check.loads == "true"
    assert "(not private)" in check.short and "(not private)" in str(check)
    assert "(not private)" in check.as_dict()["loads"]
    with pytest.raises(dp.ModelError, match="takes dp.not_private alone"):
        ac_check(study, result, json)


def test_public_loads_are_called_so():
    study = power_flow(3, objective="cost", zones=1, private=None)
    result = study.problem.plan().run()
    check = ac_check(study, result)
    assert check.loads == "public" and "at public loads" in check.short


def test_reports_have_a_line_on_it(private_run):
    study, result = private_run
    outcome = assess(study, result)
    last = str(outcome).splitlines()[-1]
    assert last == outcome.ac[0].short
    assert last.startswith("AC check at the loads that the released point serves: ")


def test_no_warning_is_raised_at_voltages_of_zero():
    case = read_case(3)
    state = central(case, "cost").state
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checked(case, replace(state, w=np.zeros(3)), case.load, "public")
