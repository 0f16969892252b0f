"""The zones' models: what each uses, where loads enter, and that together they are the network."""

from dataclasses import fields, replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.errors import ModelError
from problems.power_flow.case import Case, read_case
from problems.power_flow.model import (
    Variables,
    cone_scale,
    cost_scale,
    lifted_cuts,
    variables,
    zone_model,
)
from problems.power_flow.solution import central
from problems.power_flow.zones import Zones, read_zones
from tests.problems.power_flow.networks import AWKWARD, bundled_text

CASE14 = read_case(14)


def all_zones(case: Case, zones: Zones, declared: Variables, objective, load_scale=1.0):
    """Objectives and constraints of every zone; identity of the variables shares them."""
    return [
        zone_model(case, zones, declared, zone, cp.Constant(load_scale * case.load[own]), objective)
        for zone, own in enumerate(zones.buses)
    ]


def solve_together(case: Case, zones: Zones, declared: Variables, objective, load_scale=1.0):
    models = all_zones(case, zones, declared, objective, load_scale)
    problem = cp.Problem(
        cp.Minimize(sum(expression for expression, _ in models)),
        [constraint for _, constraints in models for constraint in constraints],
    )
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return problem.value / (cost_scale(case) if objective == "cost" else 1)


def used_entries(declared: Variables, model) -> set[tuple[str, int]]:
    """Scalar entries of the network's variables that reach the solver for one zone."""
    expression, constraints = model
    problem = cp.Problem(cp.Minimize(expression), constraints)
    data, _, _ = problem.get_problem_data(cp.CLARABEL)
    touched = np.diff(data["A"].tocsc().indptr) > 0
    touched |= (data["c"] != 0) | (np.diff(data["P"].tocsc().indptr) > 0)
    columns = data["param_prob"].var_id_to_col
    return {
        (variable.name(), entry)
        for variable in problem.variables()
        for entry in range(variable.size)
        if touched[columns[variable.id] + entry]
    }


def shared_count(case: Case, shared) -> tuple[list[int], int]:
    zones = read_zones(None, case)
    declared = variables(case, zones, shared)
    used = [used_entries(declared, model) for model in all_zones(case, zones, declared, "shed")]
    every = [entry for one in used for entry in one]
    return [len(one) for one in used], len({one for one in every if every.count(one) > 1})


def test_sizes_with_shared_voltages():
    assert shared_count(CASE14, "voltage") == ([74, 51, 58], 19)
    assert shared_count(read_case(118), "voltage")[1] == 30


def test_sizes_with_shared_flows():
    assert shared_count(CASE14, "flow") == ([74, 51, 58], 19 + 4 * 5)
    assert shared_count(read_case(118), "flow")[1] == 30 + 4 * 8


@pytest.mark.parametrize("number", [14, 118])
@pytest.mark.parametrize("shared", ["voltage", "flow"])
@pytest.mark.parametrize(("objective", "load_scale"), [("cost", 1.0), ("shed", 1.5)])
def test_zones_together_are_the_network(number, shared, objective, load_scale):
    case = read_case(number)
    zones = read_zones(None, case)
    declared = variables(case, zones, shared)
    together = solve_together(case, zones, declared, objective, load_scale)
    np.testing.assert_allclose(together, central(case, objective, load_scale).value, rtol=1e-6)


@pytest.mark.parametrize("shared", ["voltage", "flow"])
def test_one_bus_per_zone_and_zones_without_generator(shared):
    zones = read_zones(14, CASE14)
    declared = variables(CASE14, zones, shared)
    together = solve_together(CASE14, zones, declared, "cost")
    np.testing.assert_allclose(together, 2175.7046, rtol=1e-6)


def test_network_without_branches_or_generators(tmp_path: Path):
    head = AWKWARD[: AWKWARD.index("mpc.gen =")]
    path = tmp_path / "bare.m"
    path.write_text(head + "mpc.gen = []; mpc.branch = []; mpc.gencost = [];")
    case = read_case(path)
    served = central(case, "shed")
    # Only the shunts can meet load: at bus 10 with conductance 0.02 and susceptance 0.04, and at
    # bus 30, where -0.08 w meets no load, hence w is least.
    w = 0.9**2
    expected = (0.02 * w + 0.25) ** 2 + (0.04 * w - 0.1) ** 2
    expected += 0.625**2 + 0.05**2 + 0.125**2 + (0.08 * w) ** 2 + 0.1**2 + 0.02**2
    np.testing.assert_allclose(served.value, expected, rtol=1e-6)


def test_shed_keeps_loads_in_the_objective_with_unit_rows():
    zones = read_zones(None, CASE14)
    declared = variables(CASE14, zones)
    for zone, own in enumerate(zones.buses):
        load = cp.Parameter((len(own), 2))
        expression, constraints = zone_model(CASE14, zones, declared, zone, load, "shed")
        assert expression.is_dcp(dpp=True)
        assert load in expression.parameters()
        assert not any(constraint.parameters() for constraint in constraints)
        residual = expression.args[0]
        for variable in residual.variables():
            variable.value = np.ones(variable.shape)
        load.value = np.zeros(load.shape)
        for variable, gradient in residual.grad.items():
            entries = set(np.round(np.unique(gradient.toarray()), 12).tolist())
            assert entries <= ({0.0, 0.19} if variable is declared.w else {-1.0, 0.0, 1.0})


def test_every_zone_bounds_the_voltages_of_its_neighbors():
    zones = read_zones(None, CASE14)
    declared = variables(CASE14, zones)
    models = all_zones(CASE14, zones, declared, "shed")
    for (_, constraints), near in zip(models, zones.neighbors, strict=True):
        for sense, bound in ((1, 0.94**2), (-1, -(1.06**2))):
            problem = cp.Problem(cp.Minimize(sense * cp.sum(declared.w[near])), constraints)
            problem.solve(solver=cp.CLARABEL)
            np.testing.assert_allclose(problem.value, len(near) * bound, rtol=1e-6)


@pytest.mark.parametrize("row", ["7 8", "8 7"])
def test_angle_limits_bind_on_either_side(row: str, tmp_path: Path):
    line = "7 8 0.0 0.17615 0.0 167 167 167 0.0 0.0 1 -30.0 30.0;"
    low, high = (-3, 2) if row == "7 8" else (-2, 3)
    path = tmp_path / "changed.m"
    path.write_text(
        bundled_text(14).replace(line, f"{row} 0 0.17615 0 167 0 0 0 0 1 {low} {high};")
    )
    case = read_case(path)
    zones = read_zones(1, case)
    declared = variables(case, zones)
    ((_, constraints),) = all_zones(case, zones, declared, "shed")
    pair = int(np.flatnonzero((case.pairs.first == 6) & (case.pairs.second == 7))[0])
    for sense, degrees in ((1, -3), (-1, 2)):
        beyond = declared.wi[pair] - np.tan(np.radians(degrees)) * declared.wr[pair]
        problem = cp.Problem(cp.Minimize(sense * beyond), constraints)
        problem.solve(solver=cp.CLARABEL)
        np.testing.assert_allclose(problem.value, 0, atol=1e-7)


def test_the_scaled_cone_is_the_cone_of_voltage_products():
    zones = read_zones(1, CASE14)
    declared = variables(CASE14, zones)
    ((_, constraints),) = all_zones(CASE14, zones, declared, "shed")
    assert cone_scale(CASE14).min() >= 1
    assert cone_scale(CASE14).max() > 20
    cone = next(c for c in constraints if isinstance(c, cp.SOC) and declared.w in c.variables())
    rng = np.random.default_rng(0)
    declared.w.value = rng.uniform(0.8, 1.2, 14)
    first, second = (declared.w.value[at] for at in (CASE14.pairs.first, CASE14.pairs.second))
    angle = rng.uniform(-1, 1, 20)
    for factor, inside in ((1 - 1e-9, True), (1 + 1e-9, False)):
        size = factor * np.sqrt(first * second)
        declared.wr.value, declared.wi.value = size * np.cos(angle), size * np.sin(angle)
        head, tail = cone.args[0].value, np.linalg.norm(cone.args[1].value, axis=0)
        assert np.all((head >= tail) == inside)


def test_variables_have_no_attributes():
    declared = variables(CASE14, read_zones(None, CASE14))
    for item in fields(declared):
        variable = getattr(declared, item.name)
        if isinstance(variable, cp.Variable):
            assert not any(variable.attributes.values())


def test_models_are_convex():
    zones = read_zones(None, CASE14)
    declared = variables(CASE14, zones)
    for objective in ("shed", "cost"):
        for expression, constraints in all_zones(CASE14, zones, declared, objective):
            assert cp.Problem(cp.Minimize(expression), constraints).is_dcp()


def test_infinite_bounds_are_skipped(tmp_path: Path):
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    case = read_case(path)
    assert np.isinf(case.gen.qmax).any()
    assert np.isinf(case.bus.vmax).any()
    assert central(case, "cost").status == cp.OPTIMAL


def test_cost_scale(tmp_path: Path):
    # Marginal costs at the bounds: 2 * 50 * 2 + 200 and 150 $/h per unit.
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    np.testing.assert_allclose(cost_scale(read_case(path)), 1 / 400)
    free = AWKWARD.replace("0.02 4 1", "0 0 1").replace("2 0 0 2 3    5", "2 0 0 2 0    5")
    path.write_text(free)
    assert cost_scale(read_case(path)) == 1


def test_wrong_arguments():
    zones = read_zones(None, CASE14)
    with pytest.raises(ModelError, match="shared = 'angle' is not known"):
        variables(CASE14, zones, "angle")  # type: ignore[arg-type]
    declared = variables(CASE14, zones)
    load = cp.Constant(CASE14.load[zones.buses[0]])
    with pytest.raises(ModelError, match="objective = 'losses' is not known"):
        zone_model(CASE14, zones, declared, 0, load, "losses")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="no zone with index 3"):
        zone_model(CASE14, zones, declared, 3, load, "shed")
    with pytest.raises(ModelError, match=r"zone 2 has shape \(5, 2\), its 4 buses"):
        zone_model(CASE14, zones, declared, 1, load, "shed")


def narrow(case: Case, degrees: float) -> Case:
    """The case with angle limits about shifted middles."""
    middle = np.radians(np.linspace(-3, 3, len(case.pairs.first)))
    half = np.radians(degrees)
    return replace(case, pairs=replace(case.pairs, angmin=middle - half, angmax=middle + half))


def test_lifted_cuts_hold_for_all_voltages_within_bounds_and_touch_some():
    case = narrow(CASE14, 8.0)
    zones = read_zones(1, case)
    x, rng, pairs = variables(case, zones), np.random.default_rng(0), np.arange(20)
    cuts = lifted_cuts(case, x, pairs)
    first, second = case.pairs.first, case.pairs.second
    least = np.inf
    for draw in range(400):
        # Corners of the bounds, where the cuts are tight, and points within.
        share = rng.random(14) if draw % 2 else rng.integers(0, 2, 14)
        size = case.bus.vmin + share * (case.bus.vmax - case.bus.vmin)
        place = rng.random(20) if draw % 2 else rng.integers(0, 2, 20)
        across = case.pairs.angmin + place * (case.pairs.angmax - case.pairs.angmin)
        x.w.value, product = size**2, size[first] * size[second]
        x.wr.value, x.wi.value = product * np.cos(across), product * np.sin(across)
        for cut in cuts:
            slack = cut.args[1].value - cut.args[0].value  # written as right <= left
            least = min(least, slack.min())
    assert -1e-12 < least < 1e-12


def test_lifted_cuts_tighten_the_bound_and_leave_out_open_voltages():
    case = narrow(CASE14, 1.0)
    loose, tight = (central(case, "shed", 1.3, cuts=cuts).value for cuts in (False, True))
    assert tight > loose * 1.001
    ends = np.where(np.arange(14) == 3, np.inf, case.bus.vmax)
    opened = replace(case, bus=replace(case.bus, vmax=ends))
    x = variables(opened, read_zones(1, opened))
    count = np.sum((opened.pairs.first != 3) & (opened.pairs.second != 3))
    assert [cut.shape for cut in lifted_cuts(opened, x, np.arange(20))] == [(count,)] * 2
