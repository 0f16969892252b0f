"""A case is read in per unit, reduced to what is in service, and refused when it is broken."""

from pathlib import Path

import numpy as np
import pytest

from dpcvx.errors import ModelError
from problems.power_flow.case import Case, read_case
from problems.power_flow.errors import CaseError, CaseWarning
from tests.problems.power_flow.networks import AWKWARD


def read(text: str, folder: Path) -> Case:
    path = folder / "network.m"
    path.write_text(text)
    return read_case(path)


def test_units_and_service(tmp_path: Path):
    case = read(AWKWARD, tmp_path)
    assert case.name == "network"
    assert case.base_mva == 50
    assert case.isolated == (9,)
    bus = case.bus
    assert bus.id.tolist() == [10, 20, 30, 40]
    np.testing.assert_allclose(
        case.load, [[0.25, 0.1], [0.625, -0.05], [-0.125, 0], [0.1, 0.02]], rtol=1e-15
    )
    np.testing.assert_allclose(bus.gs, [0.02, 0, 0, 0])
    np.testing.assert_allclose(bus.bs, [0.04, 0, -0.08, 0])
    assert bus.vmin.tolist() == [0.9, 0.95, 0.9, 0]
    assert bus.vmax.tolist() == [1.1, 1.05, 1.1, np.inf]
    assert bus.area.tolist() == [1, 2, 2, 2]
    assert bus.zone.tolist() == [7, 7, 8, 8]
    assert bus.base_kv.tolist() == [110, 110, 20, 20]


def test_generators_and_costs(tmp_path: Path):
    gen = read(AWKWARD, tmp_path).gen
    assert gen.bus.tolist() == [0, 2]
    assert gen.row.tolist() == [1, 2]
    assert gen.pmin.tolist() == [-0.2, 0.1]
    assert gen.pmax.tolist() == [2, 0.8]
    assert gen.qmin.tolist() == [-np.inf, -0.2]
    assert gen.qmax.tolist() == [np.inf, 0.4]
    # 0.02 p^2 + 4 p + 1 on MW is 50 p^2 + 200 p + 1 on per unit of 50 MVA.
    np.testing.assert_allclose(gen.c2, [50, 0])
    np.testing.assert_allclose(gen.c1, [200, 150])
    np.testing.assert_allclose(gen.c0, [1, 5])


def test_branches(tmp_path: Path):
    branch = read(AWKWARD, tmp_path).branch
    assert branch.row.tolist() == [1, 2, 3, 4, 5, 6]
    assert branch.from_bus.tolist() == [0, 1, 0, 3, 0, 2]
    assert branch.to_bus.tolist() == [1, 2, 3, 0, 3, 3]
    assert branch.tap.tolist() == [1, 0.95, 1, 1, 1, 1.02]
    assert branch.rate.tolist() == [2, np.inf, np.inf, 1.2, 1.2, 1.2]
    np.testing.assert_allclose(np.degrees(branch.shift), [0, 0, 0, 0, 0, -5])
    np.testing.assert_allclose(np.degrees(branch.angmin), [-30, -60, -20, -25, -60, -30])
    np.testing.assert_allclose(np.degrees(branch.angmax), [30, 60, 40, 10, 60, 0], atol=1e-12)


def test_pairs_join_parallel_and_reversed_branches(tmp_path: Path):
    pairs = read(AWKWARD, tmp_path).pairs
    assert list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == [
        (0, 1),
        (0, 3),
        (1, 2),
        (2, 3),
    ]
    assert pairs.of_branch.tolist() == [0, 2, 1, 1, 1, 3]
    assert pairs.sign.tolist() == [1, 1, 1, -1, 1, 1]
    # Pair (0, 3): [-20, 40], reversed [-25, 10] is [-10, 25], and [-60, 60].
    np.testing.assert_allclose(np.degrees(pairs.angmin), [-30, -10, -60, -30])
    np.testing.assert_allclose(np.degrees(pairs.angmax), [30, 25, 60, 0], atol=1e-12)


def test_angle_columns_may_be_absent(tmp_path: Path):
    start, end = AWKWARD.index("mpc.branch"), AWKWARD.index("mpc.gencost")
    rows = AWKWARD[start:end].splitlines()
    cut = [row.rsplit(maxsplit=2)[0] + ";" if row.endswith("0;") else row for row in rows]
    text = AWKWARD[:start] + "\n".join(cut) + "\n" + AWKWARD[end:]
    branch = read(text, tmp_path).branch
    np.testing.assert_allclose(np.degrees(branch.angmin), -60)
    np.testing.assert_allclose(np.degrees(branch.angmax), 60)


@pytest.mark.parametrize(
    ("number", "buses", "generators", "branches", "pairs"),
    [(3, 3, 3, 3, 3), (5, 5, 5, 6, 6), ("14", 14, 5, 20, 20), (118, 118, 54, 186, 179)],
)
def test_bundled(number: int | str, buses: int, generators: int, branches: int, pairs: int):
    case = read_case(number)
    found = len(case.bus.id), len(case.gen.bus), len(case.branch.r), len(case.pairs.first)
    assert found == (buses, generators, branches, pairs)


def test_loads_are_not_in_the_representation_and_arrays_are_read_only(tmp_path: Path):
    case = read(AWKWARD, tmp_path)
    assert "0.625" not in repr(case)
    with pytest.raises(ValueError, match="read-only"):
        case.bus.pd[0] = 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t20\t1", "\t30\t1", "bus 30 occurs in more than one row"),
        ("\t20\t1", "\t20.5\t1", "bus row 2 has an id that is not a positive integer"),
        ("\t20\t1", "\t-20\t1", "bus row 2 has an id that is not a positive integer"),
        ("\t20\t1", "\tNaN\t1", "bus row 2 has a bus_i that is not a finite number"),
        ("\t31.25", "\tNaN", "bus row 2 has a Pd that is not a finite number"),
        ("-2.5", "Inf", "bus row 2 has a Qd that is not a finite number"),
        ("1.05\t0.95", "0.95\t1.05", "bus row 2 needs Vmin <= Vmax"),
        ("1.05\t0.95", "NaN\t0.95", "bus row 2 needs Vmin <= Vmax"),
        ("1.05\t0.95", "Inf\tInf", "bus row 2 needs Vmin <= Vmax"),
        ("1.05\t0.95", "0\t0", "bus row 2 has Vmax <= 0"),
        ("    30 0 0  20", "    31 0 0  20", "gen row 2 refers to bus 31"),
        ("1 40 5", "1 5 40", "gen row 2 needs Pmin <= Pmax"),
        ("20 -10 1 100 1", "-10 20 1 100 1", "gen row 2 needs Qmin <= Qmax"),
        ("20 -10 1 100 1", "20 -10 1 100 NaN", "gen row 2 has a status"),
        ("    2 0 0 2 3 ", "    1 0 0 2 3 ", "gencost row 2 has an impossible number of points"),
        ("2 0 0 2 3    5 0", "1 0 0 1 3 NaN 0", "gencost row 2 has a number that is not finite"),
        ("    2 0 0 2 3 ", "    7 0 0 2 3 ", "gencost row 2 is of an unknown model"),
        ("    2 0 0 2 3 ", "    2 0 0 4 3 ", "gencost row 2 has an impossible number"),
        ("    2 0 0 2 3 ", "    2 0 0 2 Inf ", "gencost row 2 has a number that is not finite"),
        ("3 0.02 4 1", "3 -0.02 4 1", "gencost row 1 has a negative quadratic"),
        ("    2 0 0 1 9    0 0;\n", "", "gencost has 3 rows for 4 generators"),
        ("10 20 0.01", "10 21 0.01", "branch row 1 refers to bus 21"),
        ("10 20 0.01", "10 10 0.01", "branch row 1 joins a bus to itself"),
        ("20 30 0    0.2", "20 30 0    0", "branch row 2 has zero impedance"),
        ("20 30 0    0.2", "20 30 NaN  0.2", "branch row 2 has a r that is not"),
        ("0.02 100", "0.02 -100", "branch row 1 has a RATE_A"),
        ("0.02 100", "0.02 NaN", "branch row 1 has a RATE_A"),
        ("0.95 0  1", "-0.95 0  1", "branch row 2 has a negative turns ratio"),
        ("1 -20 40", "1 40 -20", "branch row 3 needs angmin <= angmax"),
        ("1 -20 40", "1 70 360", "branch row 3 bounds the angle beyond 60"),
        ("mpc.baseMVA = 50", "mpc.baseMVA = 1e-300", "baseMVA is outside 0.0001 to 1e.06 MVA"),
        ("mpc.baseMVA = 50", "mpc.baseMVA = 1e300", "baseMVA is outside"),
        ("\t20\t1\t31", "\t20\t5\t31", "bus row 2 has a type that is none of 1"),
        ("\t20\t1\t31", "\t20\t1.5\t31", "bus row 2 has a type that is none of 1"),
        ("\t20\t1\t31", "\t20\tNaN\t31", "bus row 2 has a type that is none of 1"),
        ("\t20\t1\t31", "\t1e300\t1\t31", "bus row 2 has a bus_i outside"),
        ("\t31.25", "\t1e308", "bus row 2 has a Pd outside -1e.07 to 1e.07 MW"),
        ("-2.5\t0\t0", "-2.5\t0\t-1e9", "bus row 2 has a Bs outside"),
        ("0\t2\t1\t0\t110", "0\t2.7\t1\t0\t110", "bus row 2 has a area that is not an integer"),
        ("0\t110\t7\t1.05", "0\t110\t1e308\t1.05", "bus row 2 has a zone outside"),
        ("0\t110\t7\t1.05", "0\t-110\t7\t1.05", "bus row 2 has a baseKV outside 0 to"),
        ("1.05\t0.95", "115\t100", "bus row 2 has a voltage limit above 10 per unit"),
        ("1.05\t0.95", "Inf\t100", "bus row 2 has a voltage limit above 10 per unit"),
        ("1 40 5", "1 40 1e8", "gen row 2 needs Pmin <= Pmax"),
        ("20 30 0    0.2", "20 30 1e308 0.2", "branch row 2 has a r outside"),
        ("20 30 0    0.2", "20 30 0 1e-300", "branch row 2 has an impedance below 1e-07"),
        ("10 20 0.01 0.1", "10 20 -0.03 0.1", "branch row 1 has a negative resistance"),
        ("10 20 0.01 0.1", "10 20 -0.01 0", "branch row 1 has a negative resistance"),
        ("0.02 100", "1e99 100", "branch row 1 has a b outside"),
        ("0.95 0  1", "95 0  1", "branch row 2 has a ratio outside 0.1 to 10"),
        ("0.95 0  1", "1e-300 0  1", "branch row 2 has a ratio outside 0.1 to 10"),
        ("0.95 0  1", "0.95 1e308  1", "branch row 2 has a angle outside"),
        ("    2 0 0 2 3 ", "    2 0 0 0 0 ", "gencost row 2 has an impossible number"),
        ("    2 0 0 2 3 ", "    2 0 0 1.5 3 ", "gencost row 2 has an impossible number"),
        ("    2 0 0 2 3 ", "    2 0 0 NaN 3 ", "gencost row 2 has an impossible number"),
        ("    2 0 0 2 3 ", "    2 0 0 2 1e300 ", "gencost row 2 has a number that is not finite"),
    ],
)
def test_broken_data_are_named(old: str, new: str, message: str, tmp_path: Path):
    assert old in AWKWARD
    with pytest.raises(CaseError, match=message) as caught:
        read(AWKWARD.replace(old, new, 1), tmp_path)
    assert isinstance(caught.value, ModelError)
    text = str(caught.value)
    assert text.startswith("network.m: ")
    assert str(tmp_path) not in text
    assert "31.25" not in text


def test_equivalents_with_negative_resistance(tmp_path: Path):
    small = AWKWARD.replace("10 20 0.01 0.1", "10 20 -0.02 0.1")
    assert read(AWKWARD, tmp_path).equivalents == ()
    assert read(small, tmp_path).equivalents == (1,)
    large = tmp_path / "large.m"
    large.write_text(AWKWARD.replace("10 20 0.01 0.1", "10 20 -0.03 0.1"))
    assert read_case(large, equivalents=True).branch.r[0] == -0.03
    with pytest.raises(CaseError, match="--equivalents"):
        read_case(large)


def test_limits_beyond_all_power_are_none(tmp_path: Path):
    case = read(AWKWARD.replace("1 40 5", "1 1e10 5").replace("0.02 100", "0.02 1e10"), tmp_path)
    assert case.gen.pmax.tolist() == [2, np.inf]
    assert np.isinf(case.branch.rate[0])


@pytest.mark.parametrize("scale", [0, -1, np.nan, np.inf, "2", 1e300, 1e7])
def test_load_scales_that_are_none(tmp_path: Path, scale: object):
    with pytest.raises(CaseError, match="load_scale="):
        read(AWKWARD, tmp_path).scaled_load(scale)  # type: ignore[arg-type]


def test_cost_of_higher_degree(tmp_path: Path):
    before, after = AWKWARD.split("mpc.gencost = [")
    rows = "2 0 0 4 {} 0.02 4 1; 2 0 0 2 3 5 0 0; 2 0 0 1 0 0 0 0; 2 0 0 1 0 0 0 0];\n"
    assert after.rstrip().endswith("];")
    assert read(before + "mpc.gencost = [" + rows.format(0), tmp_path).gen.c2[0] == 50
    with pytest.raises(CaseError, match="polynomial of degree 3"):
        read(before + "mpc.gencost = [" + rows.format("1e-9"), tmp_path)


def with_costs(rows: str, folder: Path) -> Case:
    return read(AWKWARD.split("mpc.gencost = [")[0] + f"mpc.gencost = [\n{rows}\n];\n", folder)


def test_columns_beyond_those_that_are_counted_are_not_read(tmp_path: Path):
    rows = "2 0 0 2 3 5 8 2; 2 0 0 1 7 9 9 9; 2 0 0 1 0 0 0 0; 2 0 0 1 0 0 0 0"
    gen = with_costs(rows, tmp_path).gen
    assert (gen.c1.tolist(), gen.c0.tolist()) == ([150, 0], [5, 7])


def test_reactive_cost(tmp_path: Path):
    none, priced = "2 0 0 1 0 0 0;\n", "2 0 0 3 0.1 2 3;\n"
    gen = with_costs(none * 5 + priced + none * 2, tmp_path).gen
    assert (gen.q2.tolist(), gen.q1.tolist(), gen.q0.tolist()) == ([0, 250], [0, 100], [0, 3])
    concave = "2 0 0 3 -0.1 2 3;\n"
    assert with_costs(none * 6 + concave + none, tmp_path).gen.q2.tolist() == [0, 0]  # switched off
    with pytest.raises(CaseError, match="gencost row 6 has a negative quadratic"):
        with_costs(none * 5 + concave + none * 2, tmp_path)


def test_no_costs(tmp_path: Path):
    with pytest.warns(CaseWarning, match="no gencost, so all power costs nothing"):
        case = read(AWKWARD.split("mpc.gencost = [")[0], tmp_path)
    assert not np.any((case.gen.c2, case.gen.c1, case.gen.c0))


def test_piecewise_linear_cost(tmp_path: Path):
    free = "2 0 0 1 0 0 0 0 0 0 0 0;"
    rows = f"1 0 0 3 0 10 20 50 40 130 9 9;{free}{free}{free}"
    pieces = with_costs(rows, tmp_path).pieces
    # Slopes of 2 and 4 $/MWh, on per unit of 50 MVA.
    assert pieces.gen.tolist() == [0, 0]
    assert pieces.slope.tolist() == [100, 200]
    assert pieces.intercept.tolist() == [10, -30]
    assert not pieces.reactive.any()
    twice = f"1 0 0 4 0 10 0 10 20 50 40 130;{free}{free}{free}"
    np.testing.assert_array_equal(with_costs(twice, tmp_path).pieces.slope, pieces.slope)
    point = f"1 0 0 2 5 7 5 7 0 0 0 0;{free}{free}{free}"
    pieces = with_costs(point, tmp_path).pieces
    assert (pieces.slope.tolist(), pieces.intercept.tolist()) == ([0], [7])
    reactive = f"{free * 4}{free}1 0 0 2 0 0 10 30 0 0 0 0;{free}{free}"
    pieces = with_costs(reactive, tmp_path).pieces
    assert (pieces.gen.tolist(), pieces.reactive.tolist()) == ([1], [True])
    assert pieces.slope.tolist() == [150]
    for points, message in (("0 10 20 90 40 130", "slope is lower"), ("0 1 0 2 3 4", "increase")):
        with pytest.raises(CaseError, match=f"gencost row 1 is piecewise linear.*{message}"):
            with_costs(f"1 0 0 3 {points} 0 0;{free * 3}", tmp_path)


DC = "mpc.dcline = [ 10 20 {} 5 5 0 0 1 1 {} -3 4 -5 6 1 0.1 ];"


@pytest.mark.parametrize(
    ("limits", "start", "end"),
    [
        ("10 20", (-20, -10), (-np.inf, np.inf)),
        ("-10 20", (-20, np.inf), (-10, np.inf)),
        ("-10 -5", (-np.inf, np.inf), (-10, -5)),
    ],
)
def test_direct_current_lines_are_linked_generators(tmp_path: Path, limits, start, end):
    gen, links = (case := read(AWKWARD + DC.format(1, limits), tmp_path)).gen, case.links
    assert gen.bus.tolist() == [0, 2, 0, 1]
    assert gen.kind.tolist() == ["gen", "gen", "dcline", "dcline"]
    assert gen.row.tolist() == [1, 2, 1, 1]
    for at, (low, high) in ((2, start), (3, end)):
        assert (50 * gen.pmin[at], 50 * gen.pmax[at]) == (low, high)
    np.testing.assert_allclose(50 * gen.qmin[2:], [-3, -5])
    np.testing.assert_allclose(50 * gen.qmax[2:], [4, 6])
    assert (links.start.tolist(), links.end.tolist()) == ([2], [3])
    assert (links.loss0.tolist(), links.loss1.tolist()) == ([0.02], [0.1])


def test_costs_of_direct_current_lines_are_those_of_what_enters(tmp_path: Path):
    line = AWKWARD + DC.format(1, "0 20")
    gen = read(line + "\nmpc.dclinecost = [ 2 0 0 3 0.1 4 2 ];", tmp_path).gen
    np.testing.assert_allclose(gen.c2[2:], [250, 0])
    np.testing.assert_allclose(gen.c1[2:], [-200, 0])
    np.testing.assert_allclose(gen.c0[2:], [2, 0])
    pieces = read(line + "\nmpc.dclinecost = [ 1 0 0 2 0 0 10 20 ];", tmp_path).pieces
    assert (pieces.gen.tolist(), pieces.slope.tolist()) == ([2], [-100])
    with pytest.raises(CaseError, match="dclinecost has 2 rows for 1 DC lines"):
        read(line + "\nmpc.dclinecost = [ 2 0 0 1 0; 2 0 0 1 0 ];", tmp_path)


def test_direct_current_lines_out_of_service_or_broken(tmp_path: Path):
    short = "mpc.dcline = [ 10 20 {} 5 5 0 ];"
    assert len(read(AWKWARD + short.format(0), tmp_path).links.start) == 0
    with pytest.raises(CaseError, match="dcline has 6 columns"):
        read(AWKWARD + short.format(1), tmp_path)
    with pytest.raises(CaseError, match="dcline row 1 has a status"):
        read(AWKWARD + short.format("NaN"), tmp_path)
    isolated = DC.format(1, "0 20").replace("10 20 1", "10 9 1")
    assert len(read(AWKWARD + isolated, tmp_path).links.start) == 0
    with pytest.raises(CaseError, match="dcline row 1 refers to bus 7"):
        read(AWKWARD + isolated.replace("10 9 1", "10 7 1"), tmp_path)


def test_storage_gives_and_takes_what_its_energy_allows(tmp_path: Path):
    row = "mpc.storage = [ 10 0 0 {} 0.8 0.5 40 -6 9 {} {} 0.1 0.3 {} ];"

    def store(energy="20 100 50 70", r=0.0, x=0.0, status=1, more=""):
        return read(AWKWARD + row.format(energy, r, x, status) + more, tmp_path)

    gen = store().gen
    assert (gen.bus[-1], gen.kind[-1], gen.row[-1]) == (0, "storage", 1)
    # 20 MWh at 0.5 are 10 MW for an hour; what it consumes of itself comes off.
    np.testing.assert_allclose(50 * gen.pmax[-1], 10 - 0.1)
    np.testing.assert_allclose(50 * gen.pmin[-1], -50 - 0.1)
    np.testing.assert_allclose([50 * gen.qmin[-1], 50 * gen.qmax[-1]], [-9, 6 - 0.3])
    np.testing.assert_allclose(50 * gen.rating[-1], 40)
    assert np.isinf(gen.rating[:-1]).all() and not gen.loss.any()
    half = store(more="\nmpc.time_elapsed = 0.5;").gen
    np.testing.assert_allclose(50 * half.pmax[-1], 20 - 0.1)
    full = store("100 100 50 70").gen
    np.testing.assert_allclose(50 * np.array([full.pmin[-1], full.pmax[-1]]), [-0.1, 49.9])
    lossy = store(r=0.5).gen
    assert lossy.loss[-1] == 0.5
    np.testing.assert_allclose(50 * lossy.pmin[-1], -50.1 - 0.5 * 40**2 / 50 / 0.9**2)
    assert len(store(status=0).gen.bus) == 2
    for change, message in (
        ({"x": 0.1}, "storage row 1 has a reactance"),
        ({"energy": "20 10 50 70"}, "energy <= energy_rating"),
        ({"energy": "20 100 -50 70"}, "a charge_rating outside 0 to"),
        ({"more": "\nmpc.time_elapsed = 0;"}, "time_elapsed is not a positive number"),
    ):
        with pytest.raises(CaseError, match=message):
            store(**change)


def test_limits_on_currents(tmp_path: Path):
    rows = "mpc.branch_currents = [ 100; 0; 50; 60; 70; 80; 90; 1 ];"
    branch = read(AWKWARD + rows, tmp_path).branch
    np.testing.assert_allclose(branch.current, [2, np.inf, 1, 1.2, 1.4, 1.6])
    with pytest.raises(CaseError, match="branch_currents has 2 rows for 8 branches"):
        read(AWKWARD + "mpc.branch_currents = [ 100; 0 ];", tmp_path)
    with pytest.raises(CaseError, match="branch_currents row 1 is negative"):
        read(AWKWARD + rows.replace("100", "-100"), tmp_path)


def test_closed_switches_join_buses(tmp_path: Path):
    switch = "mpc.switch = [ 20 30 0 0 {} 1000 {}; 9 10 0 0 1 1000 1 ];"
    text = AWKWARD.replace("    20 30 0    0.2", "    20 40 0    0.2")
    with pytest.warns(CaseWarning, match="2 closed switches join 2 buses into 1; their ratings"):
        case = read(text + switch.format(1, 1), tmp_path)
    assert case.bus.id.tolist() == [10, 20, 40]
    assert case.isolated == (9,)
    np.testing.assert_allclose(50 * case.load[1], [31.25 - 6.25, -2.5])
    np.testing.assert_allclose([case.bus.vmin[1], case.bus.vmax[1]], [0.95, 1.05])
    np.testing.assert_allclose(50 * case.bus.bs[1], -4)
    assert case.bus.id[case.gen.bus].tolist() == [10, 20]
    for state, status in ((0, 1), (1, 0)):
        assert len(read(text + switch.format(state, status), tmp_path).bus.id) == 4
    with pytest.raises(CaseError, match="switch row 1 refers to bus 21"):
        read(text + switch.format(1, 1).replace("20 30", "21 30"), tmp_path)


@pytest.mark.parametrize("reactance", ["0", "1e-9"])
def test_lines_with_next_to_no_impedance_join_buses(reactance: str, tmp_path: Path):
    with pytest.warns(CaseWarning, match=r"below 1e-07 per unit \(branch 2\) join 2 buses into 1"):
        line = "20 30 0    0.2  0    0   0 0 0.95"
        case = read(AWKWARD.replace(line, f"20 30 0 {reactance} 0.01 0 0 0 1"), tmp_path)
    assert case.bus.id.tolist() == [10, 20, 40]
    assert 2 not in case.branch.row.tolist()
    assert case.bus.id[case.gen.bus].tolist() == [10, 20]
    np.testing.assert_allclose(case.bus.bs[1], -4 / 50 + 0.01)  # the shunt of bus 30, and charging


def test_lines_between_joined_buses_are_shunts(tmp_path: Path):
    rows = "    20 30 0 0 0 0 0 0 0 0 1 0 0;\n    30 20 0.02 0.2 0.06 9 0 0 0 0 1 0 0;"
    text = AWKWARD.replace("    20 30 0    0.2  0    0   0 0 0.95 0  1 0   0;", rows)
    with pytest.warns(CaseWarning, match=r"\(branch 2\) join 2 buses into 1"):
        case = read(text, tmp_path)
    assert not {2, 3} & set(case.branch.row.tolist())
    np.testing.assert_allclose(case.bus.bs[1], -4 / 50 + 0.06)
    # The currents through a transformer between joined buses would be without limit.
    with pytest.raises(CaseError, match="branch row 3 joins a bus to itself"):
        read(text.replace("0.06 9 0 0 0 0", "0.06 9 0 0 0.98 0"), tmp_path)


def test_other_statuses_and_types_are_taken_as_matpower_takes_them(tmp_path: Path):
    text = AWKWARD.replace("20 -10 1 100 1 40 5", "20 -10 1 100 2 40 5")
    text = text.replace("20 -10 1 100 0", "20 -10 1 100 -1").replace("0.95 0  1 0", "0.95 0  -1 0")
    with pytest.warns(CaseWarning) as caught:
        case = read(text.replace("\t20\t1\t31", "\t20\t0\t31"), tmp_path)
    assert case.gen.row.tolist() == [1, 2]
    assert case.branch.row.tolist() == [1, 2, 3, 4, 5, 6]
    assert [str(warning.message).partition(": ")[2].partition(":")[0] for warning in caught] == [
        "gen rows 2, 3, 4 with a status other than 0 and 1",
        "branch row 2 with a status other than 0 and 1",
        "bus row 2 with type 0",
    ]


def test_no_bus_in_service(tmp_path: Path):
    before, after = AWKWARD.split("mpc.bus = [\n")
    after = after[after.index("];") :]
    with pytest.raises(CaseError, match="no bus in service"):
        read(before + "mpc.bus = [ 1 4 0 0 0 0 1 1 0 1 1 1 1 " + after, tmp_path)


def test_sources(tmp_path: Path):
    with pytest.raises(CaseError, match=r"number 30; bundled are 3, 5, 14, 118"):
        read_case(30)
    with pytest.raises(CaseError, match=r"absent\.m: no such file") as caught:
        read_case(tmp_path / "absent.m")
    assert str(tmp_path) not in str(caught.value)
    with pytest.raises(CaseError, match="cannot be read"):
        read_case(tmp_path)
    with pytest.raises(CaseError, match="a device or a pipe"):
        read_case("/dev/zero")
    with pytest.raises(CaseError, match="zero byte"):
        read_case("a\0b")
    with pytest.raises(CaseError, match="too long"):
        read_case("1" * 5000)
    path = tmp_path / "other.m"
    path.write_text(AWKWARD, encoding="utf-16")
    with pytest.raises(CaseError, match="UTF-16"):
        read_case(path)
    path.write_bytes(b"\xef\xbb\xbf% caf\xe9\r\n" + AWKWARD.encode())
    assert read_case(path).bus.id.size == 4
    with pytest.raises(CaseError, match="not by a float"):
        read_case(14.0)  # type: ignore[arg-type]
    with pytest.raises(CaseError, match="not by a bool"):
        read_case(True)
