"""Direct-current power flow: optima of PowerModels and by hand, prices as slopes of the optimum."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow import dc
from problems.power_flow.ac import ac_check
from problems.power_flow.case import read_case
from problems.power_flow.dc import dc_flows, dc_variables, transfer_factors
from problems.power_flow.errors import CaseError
from problems.power_flow.hours import Flexible, Store
from problems.power_flow.measured import together
from problems.power_flow.model import cost_scale
from problems.power_flow.physics import incidence, susceptances
from problems.power_flow.prices import prices
from problems.power_flow.profiles import read_profiles
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import blind
from tests.problems.power_flow.test_branch_flow import text_with


def network(*loads: float, branches=(), gens=((1, 10, 1), (1, 100, 10))):
    """Buses with these loads in MW, generators with (bus, largest power, price), and branches."""
    bus = [
        [k, 3 - 2 * (k > 1), p, 0, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9] for k, p in enumerate(loads, 1)
    ]
    gen = [[at, 0, 0, 100, -100, 1, 100, 1, most, 0] for at, most, _ in gens]
    branch = np.zeros((len(branches), 13))
    branch[:, 10] = 1
    for row, (start, end, x, rate, tap, shift) in zip(branch, branches, strict=True):
        row[[0, 1, 3, 5, 8, 9]] = start, end, x, rate, tap, shift
    gencost = [[2, 0, 0, 2, price, 0] for *_, price in gens]
    return {"baseMVA": 100, "bus": bus, "gen": gen, "branch": branch, "gencost": gencost}


def solved(case, **options):
    """The optimum, and the study with a minimizer."""
    study = power_flow(case, model="dc", zones=options.pop("zones", 1), **options)
    value, public = together(study)
    return value, public


def off(study):
    """What each bus gets beyond its true load, in MW."""
    served = [study.served_load(hour)[:, 0] for hour in range(study.hours)]
    return study.case.base_mva * (np.array(served).T - study.load[:, 0])


# DC optima of PowerModels in pglib-opf's BASELINE.md, in $/h. Its branches have the susceptance of
# the whole impedance, and no taps; those without taps and resistance are the same in both.
@pytest.mark.parametrize(("name", "published"), [("3", 5695.9), ("14", 2051.5), ("118", 93101.0)])
@pytest.mark.parametrize("zones", [1, 3])
def test_optima_are_those_of_powermodels(name, published, zones, monkeypatch):
    def without_taps(case):
        return case.branch.x / (case.branch.r**2 + case.branch.x**2)

    monkeypatch.setattr(dc, "susceptances", without_taps)
    assert solved(name, zones=zones)[0] == pytest.approx(published, rel=2e-5)


def test_flows_have_taps_and_shifts():
    case = read_case(network(0, 50, branches=[(1, 2, 0.1, 0, 0.95, 3), (2, 1, 0.2, 0, 0, 0)]))
    x = dc_variables(case)
    x.angle.value = np.radians([[0.0], [-10.0]])
    expected = [np.radians(10 - 3) / (0.1 * 0.95), np.radians(-10) / 0.2]
    np.testing.assert_allclose(dc_flows(case, x).value[:, 0], expected)
    np.testing.assert_allclose(dc_flows(case, x, np.array([1])).value[:, 0], expected[1:])


def test_congestion_costs_what_it_does_by_hand():
    # 8 MW fit through the line, and 12 MW come from the dear generator behind it.
    case = network(0, 20, branches=[(1, 2, 0.1, 8, 0, 0)], gens=((1, 100, 1), (2, 100, 10)))
    assert solved(case)[0] == pytest.approx(8 + 120, rel=1e-6)


@pytest.mark.parametrize("zones", [1, 3])
def test_hours_without_coupling_are_solved_as_if_alone(zones):
    factors = np.array([0.6, 1.1, 0.9])
    alone = [solved("14", load_scale=factor)[0] for factor in factors]
    together, study = solved("14", horizon=3, profiles=factors, zones=zones)
    assert together == pytest.approx(sum(alone), rel=1e-6)
    np.testing.assert_allclose(study.load[:, 0], np.outer(study.case.bus.pd, factors))


def test_storage_moves_energy_between_hours():
    # 5 MW of the cheap generator are stored, of which 0.9^2 come back.
    store = Store(bus=1, power=5, energy=20, efficiency=0.9)
    options = dict(horizon=2, profiles=np.array([5.0, 15.0]))
    cost, study = solved(network(1), storage=[store], **options)
    assert cost == pytest.approx(10 + 10 + 10 * (5 - 5 * 0.81), rel=1e-6)
    energy = 100 * study.storage.energy.value[0]
    np.testing.assert_allclose(energy, [10 + 4.5, 10], atol=1e-5)
    full = replace(store, start=1.0)
    assert solved(network(1), storage=[full], **options)[0] == pytest.approx(5 + 60, rel=1e-6)
    small = replace(store, energy=4, start=0.0)
    assert solved(network(1), storage=[small], **options)[0] == pytest.approx(
        5 + 4 / 0.9 + 10 + 10 * (5 - 4 * 0.9), rel=1e-6
    )


@pytest.mark.parametrize("ramps", [0.3, np.array([3.0, np.inf])])
def test_ramps_hold_between_hours(ramps):
    # The cheap generator of 10 MW moves by 3 MW: 7 MW in the first hour are needed for 10 MW.
    options = dict(horizon=2, profiles=np.array([5.0, 15.0]), ramps=ramps)
    cost, study = solved(network(1, gens=((1, 10, 1), (1, 100, 10))), **options)
    power = 100 * study.variables.power.value[0]
    assert abs(power[1] - power[0]) <= 3 + 1e-6
    assert cost == pytest.approx(5 + 8 + 10 * 7, rel=1e-6)


def test_dc_lines_lose_power(tmp_path):
    path = tmp_path / "network.m"
    path.write_text(text_with("a DC line"))
    _, study = solved(path, horizon=2)
    links, power = study.case.links, study.variables.power.value
    arrives = -(1 - links.loss1[:, None]) * power[links.start] - links.loss0[:, None]
    np.testing.assert_allclose(power[links.end], arrives, atol=1e-8)


def test_storage_rows_of_files_hold_for_one_period(tmp_path):
    path = tmp_path / "network.m"
    path.write_text(text_with("storage"))
    assert solved(path)[0] > 0
    with pytest.raises(CaseError, match="has storage rows, which hold for one period"):
        power_flow(path, model="dc", horizon=2)


def test_prices_are_the_slopes_of_the_optimum():
    options = dict(model="dc", zones=2, horizon=2, ramps=0.5)
    study = power_flow("5", profiles=np.array([0.9, 1.0]), **options)
    plan = study.problem.plan(constraints="released", mechanism=None)
    price = prices(study, plan.run()).price
    assert np.ptp(price[:, 1]) > 1  # lines are congested
    for bus, hour in ((1, 0), (1, 1), (3, 1)):
        values = []
        for sign in (1, -1):
            factors = np.tile([0.9, 1.0], (5, 1))
            factors[bus, hour] += sign * 1e-3
            values.append(together(power_flow("5", profiles=factors, **options))[0])
        more = 2e-3 * 100 * study.case.bus.pd[bus]
        assert price[bus, hour] == pytest.approx((values[0] - values[1]) / more, rel=1e-3)


@pytest.fixture(scope="module")
def private_run():
    store = Store(bus=4, power=20, energy=40)
    options = dict(horizon=3, profiles=np.array([0.8, 1.0, 0.9]), storage=[store], ramps=0.5)
    study = power_flow(14, model="dc", **options)
    plan = study.problem.plan(epsilon=10.0, delta=1e-6, constraints="released")
    return study, plan.run(seed=1)


def test_private_loads_are_balanced_as_released(private_run):
    study, result = private_run
    served, load = off(study) / 100 + study.load[:, 0], study.load[:, 0]
    released = np.zeros(load.shape)
    for buses, name in zip(study.zones.buses, study.zones.names, strict=True):
        zone = released[buses]
        zone[load[buses].any(axis=1)] = result.released[f"load of zone {name}"]
        released[buses] = zone
    # The mean over data that are consistent with the release decides, which are near it.
    assert 0 < np.abs(off(study)).max() < 5
    np.testing.assert_allclose(served, released, atol=0.02)
    price = prices(study, result).price
    assert price.shape == (14, 3) and (price > 0).all()


def test_an_ac_power_flow_is_checked_for_every_hour_without_true_loads(private_run):
    study, result = private_run
    checks = [ac_check(study, result, hour=hour) for hour in range(3)]
    assert all(check.loads == "served" for check in checks)
    assert all(check.flow.converged and check.slack_error > 0 for check in checks)  # losses
    again = [ac_check(blind(study), result, hour=hour) for hour in range(3)]
    assert [check.as_dict() for check in again] == [check.as_dict() for check in checks]
    assert ac_check(study, result, power_factor=1.0).as_dict() != checks[0].as_dict()
    true = ac_check(study, result, dp.not_private)
    assert "(not private)" in true.short and true.losses != checks[0].losses
    with pytest.raises(dp.ModelError, match="takes dp.not_private alone"):
        ac_check(study, result, np)
    with pytest.raises(dp.ModelError, match="power_factor= is not above 0"):
        ac_check(study, result, power_factor=0.0)
    with pytest.raises(dp.ModelError, match="hour=3 is not one of the 3 hours"):
        ac_check(study, result, hour=3)


@pytest.mark.parametrize(("private", "radius"), [("bids", 1e-4), ("capacities", 1e-3)])
def test_bids_and_capacities_can_be_private(private, radius):
    best, _ = solved("5", private=private, zones=3)
    study = power_flow("5", model="dc", private=private, radius=radius, zones=3)
    (name,) = {
        value.name().split(" of ")[0] for agent in study.problem.agents for value in agent.private
    }
    assert name == private
    options = {"constraints": "released"} if private == "capacities" else {}
    result = study.problem.plan(epsilon=10.0, delta=1e-6, **options).run(seed=1)
    power = study.variables.power.value
    np.testing.assert_allclose(off(study), 0, atol=1e-3)
    assert (100 * study.case.gen.c1 / 100) @ power[:, 0] == pytest.approx(best, rel=0.02)
    assert "at public loads" in ac_check(study, result).short


@pytest.mark.parametrize("objective", ["shed", "both"])
def test_loads_in_the_objective_need_no_exact_balance(objective):
    study = power_flow(14, model="dc", objective=objective, horizon=2)
    best, _ = together(study)
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    assert study.balance == () and best >= -1e-9
    assert np.abs(off(study)).max() < 5
    with pytest.raises(dp.ModelError, match="no exact power balance"):
        prices(study, result)


def test_loads_that_cannot_be_served_are_said():
    with pytest.raises(dp.SolverError, match="In the way are 4 upper limits of active power"):
        solved("14", load_scale=9.0)


def test_terms_make_a_model_of_ones_own():
    case = read_case(14)
    x = dc_variables(case)
    zones = power_flow(14, model="dc", zones=1).zones
    everything = np.arange(len(case.gen.bus))
    problem = cp.Problem(
        cp.Minimize(dc.dc_cost(case, x.power, everything)),
        [*dc.dc_limits(case, zones, x, 0), dc.dc_delivered(case, zones, x, 0)[:, 0] == case.bus.pd],
    )
    problem.solve(cp.CLARABEL)
    assert problem.value / cost_scale(case) == pytest.approx(solved("14")[0], rel=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"objective": "least"}, dp.ModelError, "objective='least' is not known"),
        ({"private": "prices"}, dp.ModelError, "private='prices' is not known"),
        ({"private": "bids", "objective": "shed"}, dp.ModelError, "nothing has a cost"),
        ({"horizon": 0}, dp.ModelError, "no number of hours"),
        ({"ramps": -0.1}, dp.ModelError, "not positive"),
        ({"ramps": np.ones(3)}, dp.ModelError, r"ramps= has shape \(3,\)"),
        ({"storage": [Store(99, 1, 1)]}, CaseError, r"storage\[0\] is at a bus"),
        ({"storage": [Store(1, 1, 1, 1.1)]}, CaseError, r"storage\[0\] is at a bus"),
        ({"profiles": np.ones(3), "horizon": 2}, CaseError, "one factor for each of 2 hours"),
        ({"model": "ac"}, dp.ModelError, "model='ac' is not known. Write one of 'soc', 'dc'"),
        ({"balance": "soft"}, dp.ModelError, "balance='soft' is not known"),
        ({"balance": "covered", "private": "bids"}, dp.ModelError, "is for private loads"),
        ({"flexible": [Flexible(99, 1)]}, CaseError, r"flexible\[0\] is at a bus"),
        ({"flexible": [Store(1, 1, 1)]}, CaseError, r"flexible\[0\] is at a bus"),
        ({"flexible": [Flexible(1, 1, -3)]}, CaseError, r"flexible\[0\] is at a bus"),
        ({"contingencies": [14]}, CaseError, "row 14 of branches, whose outage splits"),
        ({"contingencies": [99]}, CaseError, "has 99, and pglib_opf_case14_ieee has no"),
        ({"contingencies": "none"}, CaseError, "contingencies='none' is not known"),
        ({"contingencies": [1], "model": "distflow"}, dp.ModelError, "Write model=.soc. or"),
        ({"emergency": 0.0}, dp.ModelError, "emergency= is not a positive"),
        ({"proxy": np.ones((14, 3))}, dp.ModelError, r"proxy= has shape \(14, 3\)"),
        ({"proxy": np.ones((14, 2)), "private": None}, dp.ModelError, "proxy= has public values"),
        ({"model": "distflow"}, CaseError, "case14_ieee has 7 loops, but model='distflow'"),
    ],
)
def test_what_makes_no_model_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        power_flow(14, **{"model": "dc"} | options)


def test_profiles_are_read_from_csv(tmp_path):
    case, path = read_case(14), tmp_path / "profiles.csv"
    path.write_text("hour,all,4\n0,0.5,2\n1,1.5,3\n")
    factors = read_profiles(path, case, 2)
    assert read_profiles(np.ones(2), case, 2).shape == (1, 2)
    assert factors[3].tolist() == [2, 3] and factors[0].tolist() == [0.5, 1.5]
    path.write_text("4\n2\n")
    assert read_profiles(str(path), case, 1)[:5, 0].tolist() == [1, 1, 1, 2, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the header has no columns"),
        ("hour\n1\n", "the header has no columns"),
        ("all,99\n1,1\n", "not a bus in service"),
        ("all,all\n1,1\n", "repeats a column"),
        ("all\n1\n2\n", "2 rows of factors for 1 hours. Write horizon=2"),
        ("all,4\n12345\n", "no list of 2 finite numbers"),
        ("all\n12345x\n", "no list of 1 finite numbers"),
        ("all\ninf\n", "no list of 1 finite numbers"),
    ],
)
def test_profiles_that_cannot_be_used_are_refused(text, message, tmp_path):
    path = tmp_path / "profiles.csv"
    path.write_text(text)
    with pytest.raises(CaseError, match=message) as caught:
        read_profiles(path, read_case(14), 1)
    assert "12345" not in str(caught.value)


def test_transfer_factors_give_the_flows_of_injections_that_balance():
    for case in (read_case(14), read_case(118)):
        factors, count = transfer_factors(case), len(case.bus.id)
        injected = np.random.default_rng(0).normal(size=(count, 3))
        injected[0] -= injected.sum(axis=0)
        x = dc_variables(case, 3)
        ends = incidence(case.branch.from_bus, count) - incidence(case.branch.to_bus, count)
        laplacian = (ends @ np.diag(susceptances(case)) @ ends.T)[1:, 1:]
        x.angle.value = np.vstack([np.zeros((1, 3)), np.linalg.solve(laplacian, injected[1:])])
        unshifted = dc_flows(case, x).value + (susceptances(case) * case.branch.shift)[:, None]
        np.testing.assert_allclose(factors @ injected, unshifted, atol=1e-9)
        assert not factors[:, 0].any()
