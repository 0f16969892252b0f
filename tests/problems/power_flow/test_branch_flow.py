"""What case files add to the model has the optimum of a second formulation, and of PowerModels."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from problems.dispatch.covered import covered_dispatch
from problems.dispatch.study import economic_dispatch
from problems.power_flow import assess, power_flow
from problems.power_flow.case import read_case
from problems.power_flow.errors import CaseError, CaseWarning
from problems.power_flow.report import generator_costs, violations
from problems.power_flow.solution import central
from problems.power_flow.tables import result_tables
from tests.problems.power_flow.branch_flow import optimum
from tests.problems.power_flow.networks import bundled_text

COSTS = "mpc.gencost = ["
FEEDER = """
function mpc = feeder
mpc.version = '2';
mpc.baseMVA = 10;
mpc.bus = [ %% Pd and Qd in kW and kVAr
    1 3   0  0 0 0 1 1 0 12.66 1 1   1;
    2 1 100 60 0 0 1 1 0 12.66 1 1.1 0.9;
    3 1  90 40 0 0 1 1 0 12.66 1 1.1 0.9;
    4 1 120 80 0 0 1 1 0 12.66 1 1.1 0.9;
];
mpc.gen = [ 1 0 0 10 -10 1 100 1 10 0 ];
mpc.branch = [ %% r and x in ohms
    1 2 0.0922 0.0470 0 0 0 0 0 0 1 -360 360;
    2 3 0.4930 0.2511 0 0 0 0 0 0 1 -360 360;
    2 4 0.3660 0.1864 0 0 0 0 0 0 1 -360 360;
    3 4 0.5    0.5    0 0 0 0 0 0 0 -360 360;
];
mpc.gencost = [ 2 0 0 3 0 20 0 ];
[PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, GS, BS, BUS_AREA, VM, ...
    VA, BASE_KV, ZONE, VMAX, VMIN, LAM_P, LAM_Q, MU_VMAX, MU_VMIN] = idx_bus;
[F_BUS, T_BUS, BR_R, BR_X] = idx_brch;
Vbase = mpc.bus(1, BASE_KV) * 1e3;      %% in Volts
Sbase = mpc.baseMVA * 1e6;              %% in VA
mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);
mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;
"""
PIECES = """1 0 0 3 0 100 20 300 60 1100;
2 0 0 2 15 1 0 0 0 0;
1 0 0 2 0 50 600 18050 0 0;
1 0 0 3 0 0 100 4000 200 9000;
2 0 0 3 0.01 10 0 0 0 0;
"""
REACTIVE = """2 0 0 3 0.05 0 0 0 0 0;
2 0 0 3 0.02 1 0 0 0 0;
1 0 0 3 -100 200 0 0 100 300;
2 0 0 1 0 0 0 0 0 0;
2 0 0 1 0 0 0 0 0 0;
"""
DC_LINE = "mpc.dcline = [ 3 5 1 15 8 99 -10 1 1 {} -100 100 -100 100 1 0.01 ];\n"
# Made-up fields around pglib's case of five buses, each a kind of its own.
MORE = {
    "a feeder in kilowatts and ohms": None,
    "piecewise linear cost": f"{COSTS}\n{PIECES}];",
    "reactive cost": f"{COSTS}\n{PIECES}{REACTIVE}];",
    "a DC line": DC_LINE.format("10 100") + "mpc.dclinecost = [ 2 0 0 4 0 0.01 4 7 ];",
    "a DC line backwards": DC_LINE.format("-100 -10"),
    "a DC line either way": DC_LINE.format("-100 100"),
    "storage": "mpc.time_elapsed = 1.0;\nmpc.storage = ["
    "3 0 0 20 100 50 70 0.8 0.9 100 -50 70 0.1 0 0.5 2 1;"
    "5 0 0 30 100 50 70 0.9 0.8 100 -50 70 0.1 0 0 0 1 ];",
    "limits on currents": "mpc.branch_currents = [ 150; 426; 200; 0; 426; 120 ];",
}


def text_with(kind: str) -> str:
    if MORE[kind] is None:
        return FEEDER
    text = bundled_text(5)
    if COSTS in MORE[kind]:
        return re.sub(r"mpc\.gencost = \[.*?\];", MORE[kind], text, flags=re.DOTALL)
    return f"{text}\n{MORE[kind]}\n"


def case_with(kind: str, folder: Path):
    path = folder / "network.m"
    path.write_text(text_with(kind))
    return read_case(path)


@pytest.mark.parametrize("kind", MORE)
def test_the_optimum_is_that_of_a_second_formulation(kind: str, tmp_path: Path):
    case = case_with(kind, tmp_path)
    solved = central(case, "cost")
    assert solved.value == pytest.approx(optimum(text_with(kind))[0], rel=1e-6)
    assert generator_costs(case, solved.state).sum() == pytest.approx(solved.value, rel=1e-6)
    assert max(violations(case, solved.state).values()) < 1e-6
    # Each of these fields matters.
    if MORE[kind] is not None:
        assert abs(solved.value / 14999.716 - 1) > 1e-4


def test_tables_name_the_matrix_of_each_row(tmp_path: Path):
    case = case_with("a DC line", tmp_path)
    state = central(case, "cost").state
    generators = result_tables(case, state, case.load)[2]
    assert generators["of"].tolist() == ["gen"] * 5 + ["dcline"] * 2
    assert generators["row"].tolist() == [1, 2, 3, 4, 5, 1, 1]
    leaves, arrives = generators["P"][5:]
    assert arrives == pytest.approx(-0.99 * leaves - 1, abs=1e-6)
    assert generators["cost"][5] == pytest.approx(0.01 * leaves**2 - 4 * leaves + 7, rel=1e-9)


def test_a_dc_line_between_zones_is_shared(tmp_path: Path):
    path = tmp_path / "network.m"
    path.write_text(text_with("a DC line"))
    study = power_flow(path, zones={1: "a", 2: "a", 3: "a", 4: "b", 5: "b"}, objective="both")
    result = study.problem.plan(epsilon=10.0, delta=1e-6).run(seed=1)
    power = study.variables.pg.value
    assert power is not None and result.consensus_residual < 1e-6
    assert power[6] == pytest.approx(-0.99 * power[5] - 0.01, abs=1e-6)
    assert assess(study, result).objective < 1.05 * central(study.case, "both").value


# Optima of the relaxation in $/h from test/opf.jl and test/opf-var.jl of PowerModels.
POWER_MODELS = """
function mpc = case5
mpc.version = '2';
mpc.baseMVA = 100.0;
mpc.bus = [
    1 2 0 0 0 0 1 1 0 230 1 1.1 0.9; 2 1 300 98.61 0 0 1 1 0 230 1 1.1 0.9;
    3 2 300 98.61 0 0 1 1 0 230 1 1.1 0.9; 4 3 400 131.47 0 0 1 1 0 230 1 1.1 0.9;
    10 2 0 0 0 0 1 1 0 230 1 1.1 0.9;
];
mpc.gen = [
    1 40 30 30 -30 1 100 1 40 0; 1 170 127.5 127.5 -127.5 1 100 1 170 0;
    3 324.498 390 390 -390 1 100 1 520 0; 4 0 -10.802 150 -150 1 100 1 200 0;
    10 470.694 -165.039 450 -450 1 100 1 600 0;
];
mpc.gencost = [
    2 0 0 3 0 14 0 2; 2 0 0 3 0 15 0 2; 2 0 0 3 0 30 0 2; 2 0 0 3 0 40 0 2; 2 0 0 3 0 10 0 2;
];
mpc.branch = [
    1 2 0.00281 0.0281 0.00712 400 400 400 0 0 1 -30 30;
    1 4 0.00304 0.0304 0.00658 426 426 426 0 0 1 -30 30;
    1 10 0.00064 0.0064 0.03126 426 426 426 0 0 1 -30 30;
    2 3 0.00108 0.0108 0.01852 426 426 426 0 0 1 -30 30;
    3 4 0.00297 0.0297 0.00674 426 426 426 1.05 1 1 -30 30;
    {last} 0.00297 0.0297 0.00674 426 426 426 1.05 -1 1 -30 30;
    4 10 0.00297 0.0297 0.00674 240 240 240 0 0 1 -30 30;
];
"""
STORAGE = """mpc.time_elapsed = 1.0
mpc.storage = [
    3 0 0 20 100 50 70 0.8 0.9 100 -50 70 0.1 0 0 0 1;
    10 0 0 30 100 50 70 0.9 0.8 100 -50 70 0.1 0 0 0 1;
];
"""


@pytest.mark.parametrize(
    ("last", "more", "published"), [("4 3", "", 15051.0), ("3 4", STORAGE, 13799.5)]
)
def test_optima_of_power_models(last: str, more: str, published: float, tmp_path: Path):
    path = tmp_path / "case5.m"
    path.write_text(POWER_MODELS.replace("{last}", last) + more)
    case = read_case(path)
    solved = central(case, "cost")
    assert solved.value == pytest.approx(published, abs=1.0)
    if more:
        np.testing.assert_allclose(solved.state.pg[5:], [0.177399, 0.235288], atol=1e-4)


def test_unread_costs_are_told_once(tmp_path: Path):
    path = tmp_path / "network.m"
    path.write_text(re.sub(r"mpc\.gencost = \[.*?\];", "", bundled_text(5), flags=re.DOTALL))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CaseWarning)
        assert central(read_case(path), "cost").value == 0
    assert len(caught) == 1


@pytest.mark.parametrize("kind", ["piecewise linear cost", "a DC line", "storage"])
def test_simpler_models_refuse_what_they_would_leave_out(kind: str, tmp_path: Path):
    case = case_with(kind, tmp_path)
    for model in (economic_dispatch, covered_dispatch):
        with pytest.raises(CaseError, match="which this model would leave out"):
            model(case)
