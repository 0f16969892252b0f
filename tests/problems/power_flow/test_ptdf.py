"""Flows by distribution factors: optima, prices and shared numbers beside the form with angles."""

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.ac import ac_check
from problems.power_flow.case import read_case
from problems.power_flow.cli import main
from problems.power_flow.dc import read_monitored
from problems.power_flow.errors import CaseError
from problems.power_flow.hours import Flexible, Store
from problems.power_flow.measured import together
from problems.power_flow.prices import prices
from problems.power_flow.ptdf import Form, ptdf_variables, shared_numbers
from problems.power_flow.report import assess
from problems.power_flow.sources import tables
from problems.power_flow.study import power_flow
from problems.power_flow.zones import read_zones
from tests.problems.power_flow import highs
from tests.problems.power_flow.networks import AWKWARD
from tests.problems.power_flow.test_branch_flow import text_with
from tests.problems.power_flow.test_models import ALL_TERMS, by_hand

FORMS: tuple[Form, ...] = ("angles", "ptdf")
DAY = dict(
    horizon=2,
    profiles=np.array([0.8, 1.0]),
    storage=[Store(4, 20, 40)],
    ramps=0.5,
    flexible=[Flexible(2, 10, 20.0)],
)


def run(case, form, **options):
    """A study without private data, and the run of the server that solves it."""
    study = power_flow(case, model="dc", private=None, form=form, **options)
    plan = study.problem.plan(dp.OneShot(as_written=True), mechanism=None)
    return study, plan, plan.run()


@pytest.mark.parametrize(
    ("case", "zones", "options"),
    [
        (118, 3, {"monitored": [1, 7, 30]}),
        (5, 3, DAY | {"contingencies": [6, 2], "emergency": 1.2}),
    ],
    ids=str,
)
def test_both_forms_have_one_optimum_one_flow_and_one_price(case, zones, options):
    studies = [run(case, form, zones=zones, **options) for form in FORMS]
    costs = [assess(study, result).objective for study, _, result in studies]
    assert costs[1] == pytest.approx(costs[0], rel=1e-7)
    price = [prices(study, result).price for study, _, result in studies]
    np.testing.assert_allclose(price[1], price[0], atol=1e-6, rtol=1e-6)
    for hour in range(studies[0][0].hours):
        flows = [study.state(hour).pf for study, *_ in studies]
        np.testing.assert_allclose(flows[1], flows[0], atol=2e-4)
    for (study, plan, _), form in zip(studies, FORMS, strict=True):
        assert f" {study.shared_numbers[form]} shared entries" in str(plan)


def test_factors_share_less_where_few_flows_are_limited():
    numbers = {
        rows: power_flow(118, model="dc", monitored=rows, zones=3).shared_numbers
        for rows in ((), (1, 7, 30), "all")
    }
    assert {each["angles"] for each in numbers.values()} == {15}
    # Totals of two zones; with three branches, two contributions to each of two flows more.
    assert [each["ptdf"] for each in numbers.values()] == [2, 6, 117]


@pytest.mark.parametrize(
    ("names", "zones"),
    [((), 3), (("contingencies", "emergency"), 1), (tuple(ALL_TERMS), 3)],
)
def test_optima_of_days_are_those_of_linear_programs_by_hand(names, zones):
    chosen = {name: ALL_TERMS[name] for name in ("horizon", "profiles", *names)}
    value, _ = together(power_flow(5, model="dc", form="ptdf", zones=zones, **chosen))
    assert value == pytest.approx(by_hand(5, names), rel=1e-6)


def test_monitored_branches_alone_keep_their_limits():
    file = tables(5)
    branch = np.array(file.branch)
    branch[[0, 1, 2, 3, 4], 5] = 0  # the last one congests the network
    free = {"baseMVA": 100, "bus": file.bus, "gen": file.gen, "gencost": file.gencost}
    expected = highs.dc_optimum(tables(free | {"branch": branch}), [1.0])
    for form in FORMS:
        study = power_flow(5, model="dc", form=form, monitored=[6])
        assert together(study)[0] == pytest.approx(expected, rel=1e-6)
    assert together(power_flow(5, model="dc", monitored=()))[0] < 0.9 * expected
    # Limits on currents and angles go with the ratings.
    case = read_monitored((), read_case(5))
    assert np.isinf(case.branch.rate).all() and (case.pairs.angmax == np.radians(60)).all()


@pytest.mark.parametrize("zones", [1, {10: 1, 20: 2, 30: 1, 40: 2}])
def test_awkward_networks_have_one_optimum_in_both_forms(tmp_path, zones):
    """Parallel, reversed and capacitive branches, a phase shifter, and angle limits."""
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    values = [together(power_flow(path, model="dc", zones=zones, form=form))[0] for form in FORMS]
    assert values[1] == pytest.approx(values[0], rel=1e-6)


def test_dc_lines_and_parts_apart_are_balanced_for_themselves(tmp_path):
    path = tmp_path / "network.m"
    path.write_text(text_with("a DC line"))
    values = [together(power_flow(path, model="dc", form=form, zones=2))[0] for form in FORMS]
    assert values[1] == pytest.approx(values[0], rel=1e-6)
    two = tables(5)
    bus, branch = np.array(two.bus), np.array(two.branch)
    bus[:, 2] *= 0.3
    apart = branch[~(((branch[:, :2] == 3).any(axis=1)) | ((branch[:, :2] == 4).any(axis=1)))]
    more = branch[[0]].copy()
    more[0, :2] = 3, 4
    network = {"baseMVA": 100, "bus": bus, "gen": two.gen, "gencost": two.gencost}
    network["branch"] = np.vstack([apart, more])
    zones = {1: 1, 2: 2, 3: 1, 4: 2, 5: 1}
    studies = [run(network, form, zones=zones) for form in FORMS]
    costs = [assess(study, result).objective for study, _, result in studies]
    assert costs[1] == pytest.approx(costs[0], rel=1e-6)
    for (study, plan, _), form in zip(studies, FORMS, strict=True):
        assert f" {study.shared_numbers[form]} shared entries" in str(plan)


def test_private_loads_are_balanced_as_released():
    results = []
    for form in FORMS:
        study = power_flow(
            5, model="dc", zones=2, form=form, horizon=2, profiles=np.array([0.8, 1.0])
        )
        plan = study.problem.plan(epsilon=10.0, delta=1e-6, constraints="released")
        result = plan.run(seed=1)
        assert ac_check(study, result, hour=1).loads == "served"
        results.append((study, result))
    served = [study.served_load(1) for study, _ in results]
    np.testing.assert_allclose(served[1], served[0], atol=1e-3)
    price = [prices(study, result).price for study, result in results]
    np.testing.assert_allclose(price[1], price[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"form": "flows"}, dp.ModelError, "form='flows' is not known"),
        ({"form": "ptdf", "model": "soc"}, dp.ModelError, "form= applies to model='dc'"),
        ({"monitored": [1], "model": "soc"}, dp.ModelError, "monitored= applies to model='dc'"),
        ({"form": "ptdf", "balance": "covered"}, dp.ModelError, "write form='angles'"),
        ({"monitored": [99]}, CaseError, "monitored= has 99, and pglib_opf_case14_ieee has no"),
        ({"monitored": "some"}, CaseError, "monitored='some' is not known"),
    ],
)
def test_what_makes_no_form_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        power_flow(14, **{"model": "dc"} | options)


def test_the_command_says_what_either_form_shares(capsys):
    options = "--case 5 --zones 2 --model dc --form ptdf --monitored none --private nothing"
    assert main(options.split()) == 0
    assert "zones share 1 number; with --form angles: 4\n" in capsys.readouterr().out


def test_terms_share_nothing_with_one_operator():
    case = read_case(14)
    zones = read_zones(1, case)
    assert ptdf_variables(case, zones).sent.size == 0
    assert all(shared_numbers(case, zones, form) == 0 for form in FORMS)
