"""Set points that are written are read again, and are the power flow that was checked."""

import copy
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from problems.power_flow.ac import checked, newton, served_loads
from problems.power_flow.case import read_case
from problems.power_flow.cli import main
from problems.power_flow.errors import CaseError
from problems.power_flow.matpower import COLUMNS, parse
from problems.power_flow.physics import incidence
from problems.power_flow.solution import central
from problems.power_flow.sources import BUNDLED, CASES
from problems.power_flow.writer import matpower_text, net_with_set_points, write_set_points
from tests.problems.power_flow.networks import AWKWARD
from tests.problems.power_flow.test_branch_flow import MORE, text_with


@pytest.mark.parametrize("text", [AWKWARD, *(text_with(kind) for kind in MORE)])
def test_tables_are_written_to_the_last_digit(text: str):
    once = parse(text, "network.m")
    again = parse(matpower_text(once, "a network"), "again.m")
    assert (again.base_mva, again.hours) == (once.base_mva, once.hours)
    for field in COLUMNS:
        written, expected = getattr(again, field), getattr(once, field)
        assert written.size == expected.size
        np.testing.assert_array_equal(written.ravel(), expected.ravel())


def test_set_points_are_those_of_the_check(tmp_path: Path):
    case = read_case(118)
    state = central(case, "cost").state
    source = CASES / BUNDLED[118]
    path = write_set_points(tmp_path / "points.m", source, case, state)
    check = checked(case, state, served_loads(case, state), "served")
    table = parse(path.read_text(), "points.m")
    before = parse(source.read_text(), "before.m")
    np.testing.assert_allclose(table.gen[:, 1], 100 * state.pg, atol=1e-9)
    np.testing.assert_allclose(table.gen[:, 5] ** 2, state.w[case.gen.bus], rtol=1e-12)
    np.testing.assert_array_equal(table.branch, before.branch)
    np.testing.assert_array_equal(table.gencost, before.gencost)
    np.testing.assert_allclose(table.bus[:, 2:4], before.bus[:, 2:4], atol=1e-4)
    # MATPOWER's power flow from the file: reference buses, voltages of generators, active power.
    again = read_case(path)
    slack = np.flatnonzero(table.bus[:, 1] == 3)
    np.testing.assert_array_equal(slack, check.flow.slack)
    made = incidence(again.gen.bus, 118) @ (table.gen[:, 1] + 1j * table.gen[:, 2]) / 100
    size = np.ones(118)
    size[again.gen.bus] = table.gen[:, 5]
    flow = newton(again, made - (again.load[:, 0] + 1j * again.load[:, 1]), size, slack=slack)
    np.testing.assert_allclose(flow.voltage, check.flow.voltage, atol=1e-9)
    angle = np.radians(table.bus[:, 8])
    np.testing.assert_allclose(table.bus[:, 7] * np.exp(1j * angle), flow.voltage, atol=1e-9)


@pytest.mark.parametrize("kind", ["a DC line", "storage"])
def test_dc_lines_and_storage_are_written(kind: str, tmp_path: Path):
    source = tmp_path / "network.m"
    source.write_text(text_with(kind))
    case = read_case(source)
    state = central(case, "cost").state
    path = write_set_points(tmp_path / "points.m", source, case, state, case.load)
    table = parse(path.read_text(), "points.m")
    np.testing.assert_allclose(table.bus[:, 2:4], 100 * case.load, atol=1e-9)
    if kind == "storage":
        np.testing.assert_allclose(table.storage[:, 1], -100 * state.pg[5:], atol=1e-9)
    else:
        np.testing.assert_allclose(
            table.dcline[0, 3:5], 100 * np.array([-state.pg[5], state.pg[6]]), atol=1e-9
        )
    assert len(read_case(path).gen.bus) == len(case.gen.bus)


def test_what_is_out_of_service_is_kept(tmp_path: Path):
    source = tmp_path / "network.m"
    source.write_text(AWKWARD)
    case = read_case(source)
    state = central(case, "shed").state
    path = write_set_points(tmp_path / "1st points.m", source, case, state)
    assert path.read_text().startswith("function mpc = case_1st_points\n")
    table, before = parse(path.read_text(), "after.m"), parse(AWKWARD, "before.m")
    for field, column in (("gen", 7), ("branch", 10)):
        np.testing.assert_array_equal(
            getattr(table, field)[:, column], getattr(before, field)[:, column]
        )
    np.testing.assert_array_equal(table.bus[3], before.bus[3])  # isolated
    np.testing.assert_array_equal(table.gen[2:], before.gen[2:])


def test_the_command_writes_loads_that_follow_from_released_values(tmp_path: Path, capsys):
    path = tmp_path / "points.m"
    assert main(["--case", "3", "--zones", "1", "--seed", "1", "--set-points", str(path)]) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    true = read_case(3).load
    written = read_case(path).load
    assert np.abs(written - true).max() > 1e-3  # those with noise
    assert main(["--case", "3", "--set-points", str(tmp_path)]) == 2
    assert re.search("--set-points .* is no file in an existing folder", capsys.readouterr().err)


@pytest.mark.filterwarnings("ignore")  # of pandapower and pandas
class TestNets:
    """Set points in pandapower nets."""

    @pytest.fixture
    def net(self):
        networks = pytest.importorskip("pandapower.networks")
        import pandapower as pp

        net = networks.case9()
        limits = dict(min_p_mw=0, max_p_mw=20, min_q_mvar=-5, max_q_mvar=5, controllable=True)
        pp.create_sgen(net, 5, p_mw=3, scaling=2.0, **limits)
        pp.create_load(net, 4, p_mw=10, q_mvar=1, **limits)
        pp.create_storage(net, 3, p_mw=2, max_e_mwh=5, **limits)
        pp.create_sgen(net, 7, p_mw=4, q_mvar=1)
        pp.create_ward(net, 7, ps_mw=3, qs_mvar=1, pz_mw=2, qz_mvar=-3)
        pp.create_motor(net, 6, pn_mech_mw=1, cos_phi=0.9)
        other = pp.create_bus(net, 345.0)
        pp.create_switch(net, 8, other, "b", closed=True)
        pp.create_load(net, other, p_mw=7, q_mvar=2)
        return net

    @pytest.mark.parametrize("true", [True, False])
    def test_pandapower_finds_the_power_flow_of_the_set_points(self, net, true):
        import pandapower as pp
        from pandapower.toolbox import nets_equal

        case = read_case(net)
        state = central(case, "cost").state
        load = 1.01 * case.load if true else served_loads(case, state)
        before = copy.deepcopy(net)
        written = net_with_set_points(net, case, state, load if true else None)
        assert nets_equal(net, before)
        assert not {90.0, 7.0} & {*written.load.p_mw}  # loads of the net itself
        pp.runpp(written, tolerance_mva=1e-10, numba=False)
        held = np.zeros(9, dtype=bool)
        held[[*net.gen.bus, *net.ext_grid.bus]] = True
        made = incidence(case.gen.bus, 9) @ (state.pg + 1j * state.qg)
        flow = newton(case, made - load @ [1, 1j], np.sqrt(state.w), held, np.array([0]))
        assert flow.converged
        voltage = written.res_bus.vm_pu[:9]
        np.testing.assert_allclose(np.abs(flow.voltage), voltage, atol=1e-8)
        assert written.res_bus.vm_pu[9] == voltage[8]
        power = case.base_mva * (flow.injected + load @ [1, 1j]).real[0]
        assert written.res_ext_grid.p_mw[0] == pytest.approx(power, abs=1e-6)
        assert written.res_sgen.p_mw[0] == pytest.approx(100 * state.pg[3], abs=1e-6)

    @pytest.mark.parametrize("power", [5.0, -5.0])
    def test_dc_lines_send_what_the_point_sends(self, net, power):
        import pandapower as pp

        pp.create_dcline(net, 4, 6, power, 2.0, 1.0, 1.0, 1.0, max_p_mw=15)
        case = read_case(net)
        state = central(case, "cost").state
        written = net_with_set_points(net, case, state)
        pp.runpp(written, tolerance_mva=1e-10, numba=False)
        start, end = case.links.start[0], case.links.end[0]
        ends = written.res_dcline[["p_from_mw", "p_to_mw"]].to_numpy(float)[0]
        sent, received = -case.base_mva * state.pg[[start, end]]
        expected = [sent, received] if power > 0 else [received, sent]
        np.testing.assert_allclose(ends, expected, atol=1e-5)  # to the solver's accuracy
        voltages = np.sqrt(state.w)[case.gen.bus[[start, end]]]
        line = written.dcline.loc[0, ["vm_from_pu", "vm_to_pu"]].to_numpy(float)
        np.testing.assert_allclose(line[:: 1 if power > 0 else -1], voltages)

    def test_a_case_of_another_net_is_refused(self, net):
        case = read_case(14)
        state = central(case, "cost").state
        with pytest.raises(CaseError, match="was read from another net"):
            net_with_set_points(
                net, replace(case, gen=replace(case.gen, row=case.gen.row + 9)), state
            )

    def test_loads_at_star_points_are_refused(self, net):
        import pandapower as pp

        low = pp.create_bus(net, 20.0), pp.create_bus(net, 10.0)
        pp.create_transformer3w_from_parameters(
            net, 8, *low, 345, 20, 10, 100, 100, 100, 10, 10, 10, 0.3, 0.3, 0.3, 0, 0
        )
        case = read_case(net)
        state = central(case, "cost").state
        assert len(net_with_set_points(net, case, state).load) > 2
        load = case.load.copy()
        load[~np.isin(case.bus.id - 1, net.bus.index)] = 0.1
        with pytest.raises(CaseError, match="serves power at the star point"):
            net_with_set_points(net, case, state, load)
