"""AC power flows within all limits: optima are those of pglib-opf; the nearest need no loads."""

import json

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.ac import served_loads
from problems.power_flow.case import read_case
from problems.power_flow.recovery import _Model, _Point, ac_optimum, ac_recover, recovered
from problems.power_flow.relaxed import relaxation
from problems.power_flow.report import violations
from problems.power_flow.solution import central, network_state
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import AWKWARD, blind
from tests.problems.power_flow.test_branch_flow import FEEDER, text_with

# AC optima in $/h of pglib-opf's BASELINE.md, and the most steps that may be taken. Without second
# derivatives case 118 takes 60 steps and stops at 97237.
OPTIMA = [("3", 5812.6, 10), ("5", 17552, 10), ("14", 2178.1, 10), ("118", 97214, 20)]


@pytest.mark.parametrize(("name", "published", "steps"), OPTIMA)
def test_the_ac_optimum_is_the_published_one(name, published, steps):
    case = read_case(name)
    optimum = ac_optimum(case)
    assert optimum.feasible and optimum.steps <= steps
    assert optimum.cost == pytest.approx(published, rel=3e-5)
    assert optimum.cost > central(case, "cost").value
    assert relaxation(case, optimum.state).tight
    assert max(violations(case, optimum.state).values()) < 1e-4
    np.testing.assert_allclose(served_loads(case, optimum.state), case.load, atol=1e-5)
    assert str(optimum).startswith("AC power flow within all limits: ")
    assert optimum.check.loads == "true" and "(not private)" in str(optimum)


def test_the_nearest_flow_is_within_limits_and_closer_than_the_optimum():
    case = read_case(118)
    state = central(case, "cost").state
    nearest = recovered(case, state, case.load, "public")
    assert nearest.feasible and nearest.steps <= 40  # 87 without second-order corrections

    def distance(other):
        size, before = np.sqrt(other.w), np.sqrt(state.w)
        return np.sum((other.pg - state.pg) ** 2) + np.sum((size - before) ** 2)

    assert distance(nearest.state) < 0.5 * distance(ac_optimum(case).state)
    assert nearest.moved == pytest.approx(100 * np.abs(nearest.state.pg - state.pg).max())
    change = np.abs(np.sqrt(nearest.state.w) - np.sqrt(state.w)).max()
    assert nearest.voltage == pytest.approx(change)


def test_an_ac_power_flow_stays_where_it_is(tmp_path):
    path = tmp_path / "feeder.m"
    path.write_text(FEEDER)
    case = read_case(path)
    recovery = recovered(case, central(case, "cost").state, case.load, "public")
    assert recovery.feasible and recovery.moved < 1e-3 and recovery.voltage < 1e-4


@pytest.mark.parametrize("kind", ["a DC line", "storage"])
def test_dc_lines_and_storage_keep_their_limits(kind, tmp_path):
    path = tmp_path / "network.m"
    path.write_text(text_with(kind))
    case = read_case(path)
    optimum = ac_optimum(case)
    assert optimum.feasible
    assert max(violations(case, optimum.state).values()) < 1e-5
    assert optimum.cost >= central(case, "cost").value * (1 - 1e-6)


def test_networks_of_one_bus_have_a_recovery():
    bus = [[7, 3, 20, 5, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9]]
    gen = [[7, 0, 0, 10, -10, 1, 100, 1, 50, 0]]
    table = {"baseMVA": 100, "bus": bus, "gen": gen, "branch": np.zeros((0, 13))}
    case = read_case({**table, "gencost": [[2, 0, 0, 2, 3, 0]]})
    assert ac_optimum(case).feasible and ac_optimum(case).cost == pytest.approx(60)


def test_loads_that_no_flow_serves_are_said():
    case = read_case(14)
    recovery = recovered(case, central(case, "cost").state, 3 * case.load, "true")
    assert not recovery.feasible
    assert str(recovery).startswith("NO AC POWER FLOW WITHIN ALL LIMITS FOUND; the nearest: ")


def test_slopes_are_those_of_the_products(tmp_path):
    path, rng = tmp_path / "network.m", np.random.default_rng(0)
    path.write_text(AWKWARD)
    case = read_case(path)
    model = _Model(case, case.load, None)
    voltage, move = rng.uniform(0.5, 1.5, 8), rng.normal(size=8)
    power = np.zeros(len(case.gen.bus))

    def products(share):
        return model._products(_Point(*np.split(voltage + share * move, 2), power, power))

    slope = model._slope(_Point(*np.split(voltage, 2), power, power))
    central_difference = (products(1e-5) - products(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope @ move, central_difference, atol=1e-8)


@pytest.fixture(scope="module")
def private_run():
    study = power_flow(14, objective="both")
    return study, study.problem.plan(epsilon=1.0, delta=1e-6).run(seed=1)


def test_a_private_run_recovers_without_its_loads(private_run):
    study, result = private_run
    state = network_state(study.case, study.zones, study.variables)
    recovery = ac_recover(study, result)
    assert recovery.feasible and recovery.check.loads == "served"
    assert "(not private)" not in str(recovery)
    served = served_loads(study.case, state)
    np.testing.assert_allclose(served_loads(study.case, recovery.state), served, atol=1e-5)
    unknown = blind(study)
    np.testing.assert_array_equal(ac_recover(unknown, result).state.pg, recovery.state.pg)


def test_true_loads_need_the_word_for_it_and_are_marked(private_run):
    study, result = private_run
    recovery = ac_recover(study, result, dp.not_private)
    assert recovery.check.loads == "true" and "(not private)" in str(recovery)
    with pytest.raises(dp.ModelError, match="takes dp.not_private alone"):
        ac_recover(study, result, json)
