"""Everything public in a study is the same for all private data, and private limits hold."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpcvx as dp
from problems.power_flow.ac import ac_check
from problems.power_flow.case import Case, read_case
from problems.power_flow.hours import Flexible, Store
from problems.power_flow.measured import together
from problems.power_flow.model import cost_scale
from problems.power_flow.private import BID_UNIT, PrivateData, public_case
from problems.power_flow.provenance import network_digest
from problems.power_flow.recovery import ac_recover
from problems.power_flow.report import assess
from problems.power_flow.study import PowerFlow, power_flow
from problems.power_flow.tables import study_tables

HOURS = 3


def other_data(case: Case, private: str) -> Case:
    """The same network with other private data."""
    bus, gen = case.bus, case.gen
    return {
        "bids": replace(case, gen=replace(gen, c1=1.9 * gen.c1)),
        "capacities": replace(case, gen=replace(gen, pmax=1.4 * gen.pmax)),
        "loads": replace(case, bus=replace(bus, pd=0.9 * bus.pd, qd=0.8 * bus.qd)),
        "profiles": case,
    }[private]


def days(case: Case, private: Any, factor: float = 1.0, **more: Any) -> PowerFlow:
    """A study with all terms that read generators' data."""
    available = np.ones((len(case.gen.bus), HOURS))
    available[1] = 0.5, 0.0, 0.2
    settings = {"model": "dc", "objective": "cost", "balance": "exact", "radius": 1e-3}
    return power_flow(
        case,
        private=private,
        horizon=HOURS,
        profiles=factor * np.array([0.6, 0.8, 0.9]),
        ramps=0.3,
        availability=available,
        flexible=[Flexible(bus=2, power=10, price=80)],
        storage=[Store(bus=4, power=50, energy=100)],
        **{**settings, **more},
    )


def planned(study: PowerFlow) -> dp.Plan:
    if study.private == "bids":
        return study.problem.plan(epsilon=10.0, delta=1e-6)
    return study.problem.plan(epsilon=10.0, delta=1e-6, constraints="released")


@pytest.mark.parametrize(
    ("private", "more"),
    [
        ("bids", {}),
        ("capacities", {}),
        ("loads", {}),
        ("profiles", {}),
        ("bids", {"model": "soc"}),
        ("capacities", {"model": "soc"}),
        ("capacities", {"form": "ptdf"}),
    ],
)
def test_a_plan_is_the_same_for_all_private_data(private: str, more: Any):
    case = read_case(5)
    plans = [
        planned(days(data, private, factor, **more))
        for data, factor in (
            (case, 1.0),
            (other_data(case, private), 0.9 if private == "profiles" else 1.0),
        )
    ]
    assert plans[0].fingerprint == plans[1].fingerprint


@pytest.mark.parametrize("private", ["bids", "capacities", "loads"])
def test_the_digest_of_a_network_is_the_same_for_all_private_data(private: Any):
    case = read_case(5)
    digests = [
        network_digest(public_case(data, private)) for data in (case, other_data(case, private))
    ]
    assert digests[0] == digests[1]


def test_shares_of_private_capacities_are_limits():
    case = read_case(5)
    study = days(case, "capacities")
    result = planned(study).run(seed=1)
    power, most = np.asarray(study.model.power.value), case.gen.pmax[:, None]
    assert np.all(power[1] <= [0.5 * most[1, 0] + 1e-2, 1e-6, 0.2 * most[1, 0] + 1e-2])
    assert np.all(np.abs(np.diff(power)) <= 0.3 * most + 1e-2)
    best, optimal = together(study)
    assert assess(study, result).objective == pytest.approx(best, rel=0.01)
    # Both kinds of shares bind at the optimum.
    power = np.asarray(optimal.model.power.value)
    assert np.isclose(np.abs(np.diff(power)), 0.3 * most, atol=1e-4).any()
    assert np.isclose(power[1, [0, 2]], [0.5, 0.2] * most[1], atol=1e-4).any()


def test_costs_of_private_bids_have_a_public_unit():
    study = power_flow(5, model="dc", private="bids")
    assert cost_scale(study.public_case) == pytest.approx(1 / (BID_UNIT * 100))
    assert cost_scale(power_flow(5, model="dc").public_case) == pytest.approx(1 / (40 * 100))


def test_tables_mark_private_bids_and_capacities():
    marks: dict[PrivateData | None, str | None]
    marks = {"bids": "cost", "capacities": "Pmax", None: None}
    for private, marked in marks.items():
        study = power_flow(5, model="dc", private=private, objective="cost")
        state = together(study)[1].state()
        generators = study_tables(study, [state])[2]
        assert [c.name for c in generators.columns if not c.private] == [marked] * bool(marked)


def test_checks_and_recovery_show_nothing_of_bids_and_capacities():
    case = read_case(5)
    seen = []
    for data in (case, other_data(case, "capacities")):
        study = power_flow(data, model="soc", objective="cost", private="capacities", radius=1e-3)
        plan = study.problem.plan(epsilon=10.0, delta=1e-6, constraints="released")
        result = plan.run(seed=1)
        state = [getattr(study.variables, name) for name in "w wr wi pg qg pf qf pt qt".split()]
        # The same set points, as if capacities had been released that allow them.
        for variable, value in zip(state, seen[0][0], strict=True) if seen else ():
            variable.value = value
        check = ac_check(study, result)
        seen.append(([variable.value for variable in state], check.as_dict()))
    assert seen[0][1] == seen[1][1]
    study = power_flow(case, model="soc", objective="cost", private="bids", radius=1e-3)
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    recovery = ac_recover(study, result)
    assert np.isnan(recovery.cost) and "bids are private" in str(recovery)
    assert ac_recover(study, result, dp.not_private).cost > 0
