"""Outages in the relaxation: optima of a second formulation, set points that hold, refusals."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.ac import OutageCheck, ac_check, outage_line
from problems.power_flow.case import read_case, without_branch
from problems.power_flow.errors import CaseError
from problems.power_flow.measured import measure, optimum, together
from problems.power_flow.prices import prices
from problems.power_flow.sources import tables
from problems.power_flow.study import power_flow
from problems.power_flow.writer import net_with_set_points

OUTAGES, EMERGENCY = [2, 6], 1.4


def network(scale=0.8):
    """Case 5 with smaller loads, so that outages can be survived."""
    file = tables(5)
    bus = np.array(file.bus)
    bus[:, 2:4] *= scale
    parts = {"gen": file.gen, "gencost": file.gencost, "branch": file.branch}
    return {"baseMVA": 100, "bus": bus} | parts


def by_hand(source, outages, emergency):
    """Least cost in $/h in voltage products, bus by bus and branch by branch, for case 5."""
    bus, gen, branch = (np.array(source[name]) for name in ("bus", "gen", "branch"))
    price, base = np.array(source["gencost"])[:, -2], source["baseMVA"]
    at = {int(number): k for k, number in enumerate(bus[:, 0])}
    places = [at[int(row[0])] for row in gen]
    slack = places[int(np.argmax(gen[:, 8]))]
    points, constraints = [], []
    for lost in (None, *outages):
        share = 1.0 if lost is None else emergency
        p, q, w = cp.Variable(len(gen)), cp.Variable(len(gen)), cp.Variable(len(bus))
        constraints += [gen[:, 9] / base <= p, p <= gen[:, 8] / base]
        constraints += [gen[:, 4] / base <= q, q <= gen[:, 3] / base]
        constraints += [bus[:, 12] ** 2 <= w, w <= bus[:, 11] ** 2]
        into = [[-row[2] / base, -row[3] / base] for row in bus]
        for k, place in enumerate(places):
            into[place] = [into[place][0] + p[k], into[place][1] + q[k]]
        for number, row in enumerate(branch, 1):
            if number == lost:
                continue
            i, j, y = at[int(row[0])], at[int(row[1])], 1 / complex(row[2], row[3])
            re, im = cp.Variable(), cp.Variable()
            constraints.append(cp.norm(cp.hstack([2 * re, 2 * im, w[i] - w[j]])) <= w[i] + w[j])
            most = np.tan(np.radians(row[12]))
            constraints += [im <= most * re, -im <= most * re]
            for here, sign in ((i, 1), (j, -1)):
                # conj(y) (w - V_i conj(V_j)) - j b/2 w, with y = g + j b of the series branch
                active = y.real * (w[here] - re) - sign * y.imag * im
                reactive = -y.imag * (w[here] - re) - sign * y.real * im - row[4] / 2 * w[here]
                into[here] = [into[here][0] - active, into[here][1] - reactive]
                if row[5]:
                    flow = cp.norm(cp.hstack([active, reactive]))
                    constraints.append(flow <= share * row[5] / base)
        constraints += [part == 0 for pair in into for part in pair]
        points.append((p, w))
    for p, w in points[1:]:
        follows = [k for k, place in enumerate(places) if place != slack]
        constraints += [p[follows] == points[0][0][follows]]
        constraints += [w[sorted(set(places))] == points[0][1][sorted(set(places))]]
    problem = cp.Problem(cp.Minimize(price @ points[0][0]), constraints)
    return base * problem.solve(cp.CLARABEL)


@pytest.mark.parametrize("zones", [1, 3])
def test_optimum_is_that_of_a_second_formulation(zones):
    options = dict(objective="cost", private=None, zones=zones)
    study = power_flow(network(), contingencies=OUTAGES, emergency=EMERGENCY, **options)
    expected = by_hand(network(), OUTAGES, EMERGENCY)
    joint = dp.not_private.joint_problem(study.problem)
    joint.solve("CLARABEL")
    assert optimum(study) == pytest.approx(expected, rel=1e-6)
    assert study.case.gen.c1 @ study.variables.pg.value == pytest.approx(expected, rel=1e-6)
    plain = optimum(power_flow(network(), **options))
    assert plain == pytest.approx(by_hand(network(), (), 1.0), rel=1e-6)
    assert expected > 1.005 * plain


def test_copies_share_set_points_and_serve_the_same_loads():
    _, study = together(
        power_flow(
            network(), objective="cost", private=None, contingencies=OUTAGES, emergency=EMERGENCY
        )
    )
    x, case = study.variables, study.case
    slack = case.gen.bus == 4  # bus 5 has the largest generator
    for copy in study.model.copies[0]:
        assert len(copy.case.branch.x) == 5
        follows = np.abs(copy.x.pg.value - x.pg.value) < 1e-6
        assert follows[~slack].all()
        held = np.unique(case.gen.bus)
        np.testing.assert_allclose(copy.x.w.value[held], x.w.value[held], atol=1e-6)


@pytest.mark.parametrize(("objective", "balance"), [("shed", None), ("cost", "exact")])
def test_outages_go_with_private_loads(objective, balance):
    study = power_flow(
        network(0.7), objective=objective, balance=balance, contingencies=[2], emergency=1.4,
        zones=2, radius=1e-3,
    )  # fmt: skip
    options = {"constraints": "released"} if balance == "exact" else {}
    plan = study.problem.plan(epsilon=10.0, delta=1e-6, **options)
    result = plan.run(seed=1)
    run = measure(study, result, own=False)
    assert sum(zone.active for zone in run.outcome.zones) < 20
    if balance == "exact":
        assert (prices(study, result).price > 0).all()


def test_a_network_without_a_branch_is_the_one_that_has_it_switched_off():
    file = tables(14)
    branch = np.array(file.branch)
    branch[3, 10] = 0
    off = read_case(
        {"baseMVA": 100, "bus": file.bus, "gen": file.gen, "gencost": file.gencost}
        | {"branch": branch}
    )
    less = without_branch(read_case(14), 3)
    for part in ("branch", "pairs"):
        for name, values in vars(getattr(off, part)).items():
            np.testing.assert_array_equal(getattr(getattr(less, part), name), values)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"contingencies": [14]}, CaseError, "row 14 of branches, whose outage splits"),
        ({"contingencies": "all", "model": "distflow"}, dp.ModelError, "Write model='soc' or"),
        (
            {"contingencies": [3], "private": "capacities", "objective": "cost"},
            dp.ModelError,
            "leave theirs after an outage",
        ),
    ],
)
def test_outages_that_no_model_has_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        power_flow(14, **options)


@pytest.mark.filterwarnings("ignore")  # of pandapower and pandas
def test_ac_checks_after_outages_are_pandapowers():
    networks = pytest.importorskip("pandapower.networks")
    import pandapower as pp

    net = networks.case9()
    net.ext_grid["max_p_mw"] = 400.0  # the slack bus of the check, too
    case = read_case(net)
    study = power_flow(
        case, model="dc", private=None, zones=1, contingencies="all", emergency=0.5, monitored=[1]
    )
    result = study.problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    check = ac_check(study, result)
    state, load = study.state(), study.net_load()
    assert len(check.outages) == 6 and not check.within
    for outage in check.outages:
        assert outage.converged
        written = net_with_set_points(net, case, state, load)
        written.line.loc[written.line.index[outage.branch - 1], "in_service"] = False
        pp.runpp(written, tolerance_mva=1e-10, numba=False)
        voltage = written.res_bus.vm_pu.to_numpy()
        away = np.maximum(case.bus.vmin - voltage, voltage - case.bus.vmax).max(initial=0.0)
        assert outage.voltage == pytest.approx(away, abs=1e-8)
        lines = written.res_line.fillna(0.0)
        power = np.maximum(
            np.hypot(lines.p_from_mw, lines.q_from_mvar), np.hypot(lines.p_to_mw, lines.q_to_mvar)
        ).to_numpy()
        shares = 100 * power / (0.5 * case.base_mva * case.branch.rate)
        assert outage.loading == pytest.approx(shares.max(), abs=1e-5)
        assert outage.overloads == np.sum(shares > 100.01)
        made = np.r_[written.res_ext_grid.q_mvar, written.res_gen.q_mvar]
        beyond = np.maximum(made - 100 * case.gen.qmax, 100 * case.gen.qmin - made)
        assert outage.reactive_power == pytest.approx(max(beyond.max(), 0.0), abs=1e-5)
    words = str(check)
    assert "  outages         after each of 6 outages, limits broken in " in words
    assert "after each of 6 outages" in check.short and "after each of 6 outages" in str(
        measure(study, result, own=False).outcome
    )
    assert len(check.as_dict()["outages"]) == 6


def test_ac_checks_after_outages_say_what_holds_and_what_does_not():
    intact = OutageCheck(
        branch=3,
        converged=True,
        slack_error=0.0,
        slack_outside=0.0,
        overloads=0,
        loading=80.0,
        voltages=0,
        voltage=0.0,
        reactive=0,
        reactive_power=0.0,
    )
    lost = replace(intact, branch=7, converged=False)
    over = replace(intact, branch=4, overloads=2, loading=120.0, reactive=1, reactive_power=3.0)
    assert outage_line([intact]) == "after the outage, all limits kept"
    assert outage_line([intact, over, lost]) == (
        "after each of 3 outages, limits broken in 2 (branch 4, 7), no AC power flow found in 1, "
        "overloads in 1 (up to 120.0 %), reactive limits in 1 (up to 3.00 MVAr)"
    )
