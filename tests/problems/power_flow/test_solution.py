"""Central optima against published numbers and against networks that must not differ."""

import math
import re
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.errors import ModelError, SolverError
from problems.power_flow.case import read_case
from problems.power_flow.model import variables
from problems.power_flow.report import imbalance, violations
from problems.power_flow.solution import central, network_state
from problems.power_flow.zones import read_zones
from tests.problems.power_flow.networks import bundled_text


@pytest.mark.parametrize(
    ("number", "value", "nonconvex", "gap"),
    [
        (3, 5736.1737, 5812.64, 1.32),
        (5, 14999.7161, 17551.8914, 14.55),
        (14, 2175.7046, 2178.0805, 0.11),
        (118, 96335.8593, 97213.6074, 0.91),
    ],
)
def test_cost_and_published_gap(number, value, nonconvex, gap):
    result = central(read_case(number), "cost")
    assert result.status == cp.OPTIMAL
    np.testing.assert_allclose(result.value, value, rtol=1e-5)
    # The reference rounds the gap up to two decimals.
    assert math.ceil(1e4 * (nonconvex - result.value) / nonconvex) / 100 == gap


@pytest.mark.parametrize(
    ("number", "load_scale", "value"),
    [(14, 1.5, 3.03068e-2), (118, 1.5, 0.102231), (14, 2.0, 0.259890), (118, 2.0, 4.60129)],
)
def test_shed(number, load_scale, value):
    result = central(read_case(number), "shed", load_scale)
    assert result.status == cp.OPTIMAL
    np.testing.assert_allclose(result.value, value, rtol=1e-4)


@pytest.mark.parametrize("number", [14, 118])
def test_nominal_loads_can_be_served(number):
    assert central(read_case(number), "shed").value < 1e-10


LINE = "4 5 0.01335 0.04211 0.0 664 664 664 0.0 0.0 1 -30.0 30.0;"
RADIAL = "7 8 0.0 0.17615 0.0 167 167 167 0.0 0.0 1 -30.0 30.0;"
CHARGED = "1 2 0.01938 0.05917 0.0528 472 472 472 0.0 0.0 1 -30.0 30.0;"
HALVES = (
    "1 2 0.03876 0.11834 0.0264 236 0 0 0 0 1 -30 30;\n"
    "2 1 0.03876 0.11834 0.0264 236 0 0 0 0 1 -30 30;"
)
GENERATOR = "2 29.5 0.0 30.0 -30.0 1.0 100.0 1 59 0.0; % NG"
PRICE = "2 0.0 0.0 3 0.000000 23.269494 0.000000; % NG"
BUS = "14 1 14.9 5.0 0.0 0.0 1 1.00000 0.00000 1.0 1 1.06000 0.94000;"


@pytest.mark.parametrize(
    "changes",
    [
        {LINE: LINE.replace("4 5 ", "5 4 ", 1)},
        {CHARGED: HALVES},
        {RADIAL: "7 8 0 0.17615 0 167 0 0 0 12 1 -30 30;"},
        {RADIAL: "8 7 0 0.17615 0 167 0 0 0 -12 1 -30 30;"},
        {LINE: LINE + "\n1 14 0 0 0 1 0 0 0 0 0 0 0;"},
        {
            BUS: BUS + "\n99 4 50 50 0 0 1 1 0 1 1 1 1;",
            LINE: LINE + "\n1 99 0 1 0 1 0 0 0 0 1 0 0;",
        },
        {BUS: "", "mpc.bus = [": "mpc.bus = [\n" + BUS},
    ],
    ids=["reversed", "split", "shifted", "shifted back", "switched off", "isolated", "reordered"],
)
def test_equivalent_networks_cost_the_same(changes: dict[str, str], tmp_path: Path):
    text = bundled_text(14)
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = tmp_path / "changed.m"
    path.write_text(text)
    np.testing.assert_allclose(central(read_case(path), "cost").value, 2175.7046, rtol=1e-6)


def test_a_negative_load_is_a_fixed_generator(tmp_path: Path):
    text = bundled_text(14)
    path = tmp_path / "changed.m"
    path.write_text(text.replace(BUS, BUS.replace("14.9", "-40")))
    negative = central(read_case(path), "cost").value
    path.write_text(
        text.replace(BUS, BUS.replace("14.9", "0"))
        .replace(GENERATOR, GENERATOR + "\n14 0 0 0 0 1 100 1 40 40;")
        .replace(PRICE, PRICE + "\n2 0 0 1 0 0 0;")
    )
    np.testing.assert_allclose(central(read_case(path), "cost").value, negative, rtol=1e-6)
    assert negative < 2175.7046 - 40 * 7


def test_infeasible_loads_are_an_error():
    with pytest.raises(SolverError, match="load scale 5 ended as infeasible") as caught:
        central(read_case(14), "cost", 5.0)
    assert "In the way are" in str(caught.value)
    assert re.search(r"\d+ upper limits? of active power \(gen row ", str(caught.value))
    with pytest.raises(SolverError, match="do not fit limits of voltages, generators"):
        central(read_case(14), "cost", 5.0, explain=False)


def test_state_takes_each_end_from_the_zone_that_balances_it():
    case = read_case(14)
    zones = read_zones(None, case)
    declared = variables(case, zones)
    for variable in (declared.w, declared.wr, declared.wi, declared.pg, declared.qg):
        variable.value = np.zeros(variable.shape)
    owner = np.repeat([0, 1, 2], [10, 7, 8])
    for variable in (declared.pf, declared.qf, declared.pt, declared.qt):
        variable.value = 100.0 * owner + np.concatenate(zones.branches)
    state = network_state(case, zones, declared)
    branches = np.arange(20)
    np.testing.assert_array_equal(state.pf, 100 * zones.of_bus[case.branch.from_bus] + branches)
    np.testing.assert_array_equal(state.qf, state.pf)
    np.testing.assert_array_equal(state.pt, 100 * zones.of_bus[case.branch.to_bus] + branches)
    np.testing.assert_array_equal(state.qt, state.pt)


def test_state_without_values():
    case = read_case(14)
    zones = read_zones(None, case)
    with pytest.raises(ModelError, match="variable w has no value"):
        network_state(case, zones, variables(case, zones))


def test_minimizer_is_feasible():
    case = read_case(118)
    state = central(case, "cost").state
    assert max(violations(case, state).values()) < 1e-6
    assert np.max(np.abs(list(imbalance(case, state, case.load).values()))) < 1e-4
