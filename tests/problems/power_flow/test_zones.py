"""Zones come from maps, files, columns or a number, and describe who sees what."""

from pathlib import Path

import numpy as np
import pytest

from problems.power_flow.case import read_case
from problems.power_flow.errors import CaseError
from problems.power_flow.zones import read_zones
from tests.problems.power_flow.networks import AWKWARD

CASE5 = read_case(5)
CASE14 = read_case(14)


def ids(case, positions) -> list[int]:
    return case.bus.id[positions].tolist()


def test_bundled_map_of_case_14():
    zones = read_zones(None, CASE14)
    assert zones.names == ("1", "2", "3")
    assert [ids(CASE14, own) for own in zones.buses] == [
        [1, 2, 3, 4, 5],
        [6, 11, 12, 13],
        [7, 8, 9, 10, 14],
    ]
    assert [ids(CASE14, near) for near in zones.neighbors] == [
        [6, 7, 9],
        [5, 10, 14],
        [4, 11, 13],
    ]
    ends = np.column_stack((CASE14.branch.from_bus, CASE14.branch.to_bus))[zones.ties]
    assert [tuple(ids(CASE14, pair)) for pair in ends] == [
        (4, 7),
        (4, 9),
        (5, 6),
        (10, 11),
        (13, 14),
    ]
    assert [len(branches) for branches in zones.branches] == [10, 7, 8]


def test_bundled_map_of_case_118():
    zones = read_zones(None, read_case(118))
    assert [len(own) for own in zones.buses] == [35, 38, 45]
    assert len(zones.ties) == 8


def test_default_number_of_zones_of_other_cases():
    assert len(read_zones(None, CASE5).names) == 3
    assert len(read_zones(None, read_case(3)).names) == 2


def test_mapping_is_sorted_by_label_and_need_not_be_connected():
    zones = read_zones({1: 10, 2: 9, 3: "b", 4: 10, 5: 9}, CASE5)
    assert zones.names == ("9", "10", "b")
    assert [ids(CASE5, own) for own in zones.buses] == [[2, 5], [1, 4], [3]]


def test_csv_with_and_without_header(tmp_path: Path):
    path = tmp_path / "map.csv"
    for text in ("bus,zone\n1,a\n2,a\n\n# west\n3, b\n4,b\n5,b\n", "1,a\n2,a\n3,b\n4,b\n5,b"):
        path.write_text(text)
        zones = read_zones(path, CASE5)
        assert zones.names == ("a", "b")
        assert zones.of_bus.tolist() == [0, 0, 1, 1, 1]


def test_columns_and_isolated_buses(tmp_path: Path):
    path = tmp_path / "awkward.m"
    path.write_text(AWKWARD)
    case = read_case(path)
    assert read_zones("area", case).of_bus.tolist() == [0, 1, 1, 1]
    assert read_zones("zone", case).names == ("7", "8")
    mapping = {10: 1, 20: 1, 30: 2, 40: 2}
    assert read_zones({**mapping, 9: 2}, case).names == ("1", "2")
    with pytest.raises(CaseError, match="zone 3 has no bus in service"):
        read_zones({**mapping, 9: 3}, case)


def test_number_of_zones():
    one = read_zones(1, CASE14)
    assert one.ties.size == 0
    assert one.neighbors[0].size == 0
    assert len(one.branches[0]) == 20
    three = read_zones(3, CASE14)
    assert three.names == ("1", "2", "3")
    assert sorted(len(own) for own in three.buses) == [4, 5, 5]
    each = read_zones(14, CASE14)
    assert len(each.ties) == 20


@pytest.mark.parametrize("count", [0, -1, 6])
def test_impossible_number(count: int):
    with pytest.raises(CaseError, match="between 1 and 5"):
        read_zones(count, CASE5)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({1: 1, 2: 1, 3: 1, 4: 1}, "bus 5 is without a zone"),
        ({1: 1}, "buses 2, 3, 4, 5 are without a zone"),
        ({k: 1 for k in range(1, 9)}, "buses 6, 7, 8 are not in pglib_opf_case5_pjm"),
        ({k: 1 for k in range(1, 12)}, "buses 6, 7, 8, 9, 10 and 1 more are not in"),
        (2.0, "not by a float"),
        (True, "not by a bool"),
    ],
)
def test_bad_sources(source: object, message: str):
    with pytest.raises(CaseError, match=message):
        read_zones(source, CASE5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,a\n2\n", r"map\.csv: line 2 is not a bus id and a zone"),
        ("-1,a\n2,a\n", r"map\.csv: line 1 is not a bus id and a zone"),
        ("\u0661,a\n2,a\n", r"map\.csv: line 1 is not a bus id and a zone"),
        ("9" * 5000 + ",a\n", r"map\.csv: line 1 is not a bus id and a zone"),
        ('1,"a\n2,b\n', r"map\.csv: line 1 is not a bus id and a zone"),
        ("1," + "a" * 200_000, r"map\.csv: line 1 is not a bus id and a zone"),
        ("1," + "9" * 5000, "without a zone"),
        ("1,a\n2,\n", "line 2 is not a bus id and a zone"),
        ("1,a\nb,2\n", "line 2 is not a bus id and a zone"),
        ("1,a\n2,a,3\n", "line 2 is not a bus id and a zone"),
        ("1,a\n1,b\n", "line 2 gives bus 1 a zone again"),
        ("bus,zone\n", "buses 1, 2, 3, 4, 5 are without a zone"),
        ("7,a\n", "bus 7 is not in"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path):
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(CaseError, match=message) as caught:
        read_zones(path, CASE5)
    assert str(tmp_path) not in str(caught.value)


def test_unreadable_files(tmp_path: Path):
    with pytest.raises(CaseError, match=r"absent\.csv: no such file"):
        read_zones(tmp_path / "absent.csv", CASE5)
    with pytest.raises(CaseError, match="cannot be read"):
        read_zones(tmp_path, CASE5)
