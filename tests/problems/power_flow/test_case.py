"""A case is read in per unit, reduced to what is in service, and refused when it is broken."""

from pathlib import Path

import numpy as np
import pytest

from dpcvx.errors import ModelError
from problems.power_flow.case import Case, read_case
from problems.power_flow.errors import CaseError
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
        ("    2 0 0 2 3 ", "    1 0 0 2 3 ", "gencost row 2 is piecewise linear"),
        ("    2 0 0 2 3 ", "    7 0 0 2 3 ", "gencost row 2 is of an unknown model"),
        ("    2 0 0 2 3 ", "    2 0 0 4 3 ", "gencost row 2 has an impossible number"),
        ("    2 0 0 2 3 ", "    2 0 0 2 Inf ", "gencost row 2 has a coefficient"),
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
        ("\t20\t1\t31", "\t20\t0\t31", "bus row 2 has a type that is none of 1"),
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
        ("20 -10 1 100 1", "20 -10 1 100 0.5", "gen row 2 has a status that is neither 1"),
        ("0.95 0  1 0", "0.95 0  -1 0", "branch row 2 has a status that is neither 1"),
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
        ("    2 0 0 2 3 ", "    2 0 0 1 3 ", "gencost row 2 has more coefficients than"),
        ("    2 0 0 2 3 ", "    2 0 0 2 1e300 ", "gencost row 2 has a coefficient"),
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


def test_reactive_cost(tmp_path: Path):
    free, priced = "2 0 0 1 0 0 0;\n" * 4 + "];", "2 0 0 1 1 0 0;\n" * 4 + "];"
    body = AWKWARD.rstrip().removesuffix("];")
    assert len(read(body + free, tmp_path).gen.bus) == 2
    with pytest.raises(CaseError, match="prices reactive power"):
        read(body + priced, tmp_path)


def test_direct_current_lines(tmp_path: Path):
    read(AWKWARD + "mpc.dcline = [ 10 20 0 5 5 0 ];", tmp_path)
    with pytest.raises(CaseError, match="dcline has lines in service"):
        read(AWKWARD + "mpc.dcline = [ 10 20 1 5 5 0 ];", tmp_path)
    with pytest.raises(CaseError, match="dcline row 1 has a status"):
        read(AWKWARD + "mpc.dcline = [ 10 20 NaN 5 5 0 ];", tmp_path)


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
