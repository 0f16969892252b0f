"""Reports agree with hand computations on points whose defects are known."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from problems.power_flow.case import Case, read_case
from problems.power_flow.physics import flow_maps
from problems.power_flow.relaxed import angle_mismatch, cone_slack, relaxation
from problems.power_flow.report import (
    after_recourse,
    assess,
    imbalance,
    thermal_loading,
    violations,
)
from problems.power_flow.solution import State, central
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import AWKWARD


@pytest.fixture
def case(tmp_path: Path) -> Case:
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    return read_case(path)


def voltage_state(case: Case, voltage: np.ndarray) -> State:
    """Build a point of true voltages with generation in the middle of finite bounds."""
    w = np.abs(voltage) ** 2
    product = voltage[case.pairs.first] * np.conj(voltage[case.pairs.second])
    flows = {
        end: part.w_map @ w + part.wr_map @ product.real + part.wi_map @ product.imag
        for end, part in flow_maps(case).items()
    }
    return State(
        w=w, wr=product.real, wi=product.imag, pg=np.array([0.5, 0.4]), qg=np.zeros(2), **flows
    )


def test_imbalance_without_flows(case: Case):
    zero = {end: np.zeros(6) for end in ("pf", "qf", "pt", "qt")}
    state = replace(voltage_state(case, np.array([1.1, 1, 1, 1], dtype=complex)), **zero)
    found = imbalance(case, state, 2 * case.load)
    assert list(found) == [10, 20, 30, 40]
    # MW: generation - 2 load - gs w; MVAr: generation - 2 load + bs w.
    np.testing.assert_allclose(found[10], [25 - 25 - 1.21, -10 + 2 * 1.21])
    np.testing.assert_allclose(found[20], [-62.5, 5])
    np.testing.assert_allclose(found[30], [20 + 12.5, -4])
    np.testing.assert_allclose(found[40], [-10, -2])


def test_imbalance_counts_outgoing_flows(case: Case):
    state = voltage_state(case, np.ones(4, dtype=complex))
    before = imbalance(case, state, case.load)
    more = replace(state, pf=state.pf + 0.1, qt=state.qt + 0.1)
    after = imbalance(case, more, case.load)
    change = np.array(list(after.values())) - np.array(list(before.values()))
    outgoing, incoming = [3, 1, 1, 1], [1, 1, 1, 3]
    np.testing.assert_allclose(change, -5.0 * np.column_stack((outgoing, incoming)), atol=1e-12)


def test_imbalance_is_the_shed_objective():
    case = read_case(14)
    result = central(case, "shed", 1.5)
    surplus = np.array(list(imbalance(case, result.state, 1.5 * case.load).values()))
    np.testing.assert_allclose(np.sum((surplus / 100) ** 2), result.value, rtol=1e-6)


def test_cone_slack(case: Case):
    state = voltage_state(case, 0.98 * np.exp(1j * np.array([0, 0.1, 0.2, 0.05])))
    slack = cone_slack(case, state)
    assert list(slack) == [(10, 20), (10, 40), (20, 30), (30, 40)]
    np.testing.assert_allclose(list(slack.values()), 0, atol=1e-12)
    raised = cone_slack(case, replace(state, w=state.w + np.array([0.1, 0, 0, 0])))
    np.testing.assert_allclose(raised[10, 20], 0.1 * 0.98**2)
    np.testing.assert_allclose(raised[20, 30], 0, atol=1e-12)


def test_thermal_loading_is_that_of_the_more_loaded_end(case: Case):
    state = voltage_state(case, np.ones(4, dtype=complex))
    flows = {"pf": 0.6, "qf": 0.0, "pt": 0.3, "qt": -0.9}
    state = replace(state, **{end: np.full(6, value) for end, value in flows.items()})
    found = thermal_loading(case, state)
    assert case.branch.row.tolist() == [1, 2, 3, 4, 5, 6]
    assert np.flatnonzero(np.isnan(found)).tolist() == [1, 2]  # without limits
    np.testing.assert_allclose(found[[0, 3]], 100 * np.hypot(0.3, 0.9) / [2, 1.2])


def test_no_violation_at_true_voltages(case: Case):
    state = voltage_state(case, np.exp(1j * np.array([0, -0.04, -0.08, 0.0])))
    found = violations(case, state)
    assert set(found) == {"voltage", "generation", "flow", "thermal", "angle", "cone"}
    assert max(found.values()) < 1e-12


@pytest.mark.parametrize(
    ("family", "change", "size"),
    [
        ("voltage", {"w": np.array([1, 0.9025 - 0.05, 1, 1])}, 0.05),
        ("voltage", {"w": np.array([1, 1.1025 + 0.07, 1, 9.0])}, 0.07),
        ("generation", {"pg": np.array([-0.2 - 0.03, 0.4])}, 0.03),
        ("generation", {"pg": np.array([0.5, 0.8 + 0.02])}, 0.02),
        ("generation", {"qg": np.array([-99.0, -0.2 - 0.01])}, 0.01),
        ("generation", {"qg": np.array([99.0, 0.4 + 0.04])}, 0.04),
        ("angle", {"wi": np.array([0, 0, np.tan(np.pi / 3) + 0.1, 0])}, 0.1),
        ("angle", {"wi": np.array([0, -np.tan(np.pi / 18) - 0.1, 0, 0])}, 0.1),
        ("cone", {"wr": np.array([1, 1, 1, 1.25])}, 0.5),
        ("thermal", {"qt": np.array([0, 99, 99, 0, -1.5, 0])}, 0.3),
    ],
)
def test_each_family_is_measured(case: Case, family: str, change: dict, size: float):
    state = voltage_state(case, np.ones(4, dtype=complex))
    zero = {end: np.zeros(6) for end in ("pf", "qf", "pt", "qt")}
    found = violations(case, replace(state, **{**zero, **change}))
    np.testing.assert_allclose(found[family], size, rtol=1e-9)


@pytest.mark.parametrize("end", ["pf", "qf", "pt", "qt"])
def test_flow_mismatch(case: Case, end: str):
    state = voltage_state(case, np.ones(4, dtype=complex))
    moved = getattr(state, end) + np.array([0, 0, -0.2, 0, 0, 0])
    np.testing.assert_allclose(violations(case, replace(state, **{end: moved}))["flow"], 0.2)


def test_the_objective_after_recourse_is_that_of_all_zones_own_solutions():
    study = power_flow(14, load_scale=1.5)
    result = study.problem.solve(mechanism="gaussian", epsilon=1.0, delta=1e-6, seed=0)
    after = after_recourse(study, result)
    own = sum(result.recourse(name).value for name in study.problem.names)
    assert after == pytest.approx(own, abs=1e-9)
    optimum = central(study.case, "shed", 1.5).value
    assert optimum - 1e-7 < after < assess(study, result).objective
    # What does not agree has no own solutions.
    assert after_recourse(study, replace(result, feasible=False)) is None


def test_relaxation_of_true_voltages_is_tight(case: Case):
    found = relaxation(case, voltage_state(case, np.exp(1j * np.array([0, -0.04, -0.08, 0.0]))))
    assert found.tight and found.loose == 0 and found.pairs == 4
    assert found.cone_slack < 1e-12 and found.angle_mismatch < 1e-10
    assert str(found).startswith("relaxation: tight; cone slack up to 0 %")


def test_relaxation_measures_loops_that_do_not_close(case: Case):
    # The four pairs 10-20, 10-40, 20-30 and 30-40 are one loop, and share what it is open by.
    state = voltage_state(case, np.ones(4, dtype=complex))
    turned = np.exp(1j * np.radians([8.0, 0, 0, 0]))
    opened = replace(state, wr=turned.real, wi=turned.imag)
    np.testing.assert_allclose(angle_mismatch(case, opened), [2, -2, 2, 2], atol=1e-9)
    found = relaxation(case, opened)
    assert found.angle_mismatch == pytest.approx(2) and found.loose == 0 and not found.tight
    assert "not an AC power flow" in str(found) and "by up to 2 degrees" in str(found)


def test_relaxation_measures_slack_of_cones(case: Case):
    state = voltage_state(case, np.ones(4, dtype=complex))
    found = relaxation(case, replace(state, w=state.w * 1.1))
    assert found.loose == 4 and found.cone_slack == pytest.approx(1 - 1 / 1.21)
    assert found.angle_mismatch == pytest.approx(0, abs=1e-10) and not found.tight


@pytest.mark.parametrize(
    ("number", "slack", "loose", "mismatch"),
    [(14, 0.0, 0, 0.97), (118, 0.067, 3, 7.5), (3, 0.0098, 1, 5.8)],
)
def test_optima_of_the_relaxation_are_no_ac_power_flows(number, slack, loose, mismatch):
    case = read_case(number)
    found = relaxation(case, central(case, "cost").state)
    assert found.cone_slack == pytest.approx(slack, rel=0.01, abs=1e-5) and found.loose == loose
    assert found.angle_mismatch == pytest.approx(mismatch, rel=0.01) and not found.tight


def test_reports_of_runs_say_what_the_relaxation_is():
    study = power_flow(14)
    outcome = assess(study, study.problem.solve(epsilon=1.0, delta=1e-6, seed=0))
    assert str(outcome).splitlines()[-2:] == [str(outcome.relaxation), outcome.ac[0].short]
    assert outcome.relaxation.short == "relaxation: not an AC power flow"


def test_zones_without_imbalance_have_no_worst_bus():
    study = power_flow(5, model="dc", private="bids")
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    text = str(assess(study, result))
    assert text.count(" none") == 3 and "(0 MW)" not in text


def test_large_numbers_have_no_exponents():
    study = power_flow(118, model="dc", horizon=24, profiles="day", private="bids", zones=1)
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    assert re.search(r"objective \d{7} \$\n", str(assess(study, result)))
