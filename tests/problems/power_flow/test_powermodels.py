"""Networks of PowerModels are the MATPOWER cases that PowerModels makes them from."""

import copy
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from problems.power_flow.case import read_case
from problems.power_flow.errors import CaseError, CaseWarning
from problems.power_flow.powermodels_nets import from_powermodels
from problems.power_flow.solution import central

DEGREE = np.pi / 180
# Three buses in per unit, with what PowerModels has beside MATPOWER.
SMALL: dict[str, Any] = {
    "name": "small",
    "per_unit": True,
    "baseMVA": 50.0,
    "source_version": {"major": 2, "minor": 0, "patch": 0},
    "bus": {
        key: {"index": number, "bus_i": number, "bus_type": kind, "base_kv": 110.0, "vmin": 0.9,
              "vmax": 1.1, "va": 0.0, "vm": 1.0, "area": number // 10}
        for key, number, kind in (("1", 10, 3), ("20", 20, 1), ("3", 7, 2))
    },
    "load": {
        "1": {"index": 1, "load_bus": 20, "pd": 0.6, "qd": 0.2, "status": 1},
        "2": {"index": 2, "load_bus": 20, "pd": 0.2, "qd": -0.1, "status": 1},
        "3": {"index": 3, "load_bus": 7, "pd": 0.5, "qd": 0.1, "status": 0},
    },
    "shunt": {"1": {"index": 1, "shunt_bus": 7, "gs": 0.02, "bs": 0.1, "status": 1}},
    "gen": {
        "10": {"index": 10, "gen_bus": 7, "pmax": 1.0, "pmin": 0.0, "qmax": 1.0, "qmin": -1.0,
               "gen_status": 1, "model": 1, "ncost": 2, "cost": [0.0, 0.0, 1.0, 1500.0]},
        "2": {"index": 2, "gen_bus": 10, "pmax": 2.0, "pmin": 0.1, "qmax": 1.0, "qmin": -1.0,
              "gen_status": 1, "model": 2, "ncost": 3, "cost": [50.0, 1000.0, 7.0]},
    },
    "branch": {
        str(row): {"index": row, "f_bus": start, "t_bus": end, "br_r": 0.01, "br_x": 0.08,
                   "b_fr": 0.02, "b_to": 0.02, "g_fr": 0.0, "g_to": 0.0, "tap": 1.0,
                   "shift": 0.0, "br_status": 1, "transformer": False, "rate_a": 1.5,
                   "angmin": -30 * DEGREE, "angmax": 30 * DEGREE}
        for row, (start, end) in enumerate(((10, 20), (20, 7), (7, 10)), 1)
    },
    "dcline": {}, "storage": {}, "switch": {},
}  # fmt: skip
# The same network in the columns of MATPOWER.
BUSES = [
    [10, 3, 0, 0, 0, 0, 1, 1, 0, 110, 1, 1.1, 0.9],
    [20, 1, 40, 5, 0, 0, 2, 1, 0, 110, 1, 1.1, 0.9],
    [7, 2, 0, 0, 1, 5, 0, 1, 0, 110, 1, 1.1, 0.9],
]
SAME: dict[str, Any] = {
    "baseMVA": 50.0,
    "bus": [BUSES[2], BUSES[0], BUSES[1]],
    "gen": [
        [10, 0, 0, 50, -50, 1, 0, 1, 100, 5],
        [7, 0, 0, 50, -50, 1, 0, 1, 50, 0],
    ],
    "branch": [
        [start, end, 0.01, 0.08, 0.04, 75, 0, 0, 1, 0, 1, -30, 30]
        for start, end in ((10, 20), (20, 7), (7, 10))
    ],
    "gencost": [[2, 0, 0, 3, 0.02, 20, 7, 0], [1, 0, 0, 2, 0, 0, 50, 1500]],
}


def changed(**tables: Any) -> dict[str, Any]:
    """`SMALL` with these fields in its tables: rows by index, or fields of a row."""
    network = copy.deepcopy(SMALL)
    for table, rows in tables.items():
        for key, fields in rows.items():
            network[table].setdefault(key, {"index": int(key)}).update(fields)
    return network


def assert_same(one: Any, other: Any):
    for part in ("bus", "gen", "branch", "pieces", "links"):
        ours, theirs = vars(getattr(one, part)), vars(getattr(other, part))
        for name, values in ours.items():
            if values.dtype.kind == "U":
                assert values.tolist() == theirs[name].tolist()
            else:
                np.testing.assert_allclose(values, theirs[name], atol=1e-12, err_msg=name)


def test_a_file_is_the_matpower_case(tmp_path: Path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8-sig")
    case = read_case(path)
    assert case.name == "small" and case.notes == ()
    assert_same(case, read_case(SAME))
    assert_same(case, read_case(SMALL))
    assert central(case, "cost").value == pytest.approx(central(read_case(SAME), "cost").value)


def test_mixed_units_are_megawatts_and_degrees():
    network = changed(load={"2": {"qd": -5.0, "pd": 10.0}, "1": {"pd": 30.0, "qd": 10.0}})
    network |= {"per_unit": False}
    network["shunt"]["1"] |= {"gs": 1.0, "bs": 5.0}
    for row in network["gen"].values():
        row |= {limit: 50 * row[limit] for limit in ("pmin", "pmax", "qmin", "qmax")}
    network["gen"]["10"]["cost"] = [0.0, 0.0, 50.0, 1500.0]
    network["gen"]["2"]["cost"] = [0.02, 20.0, 7.0]
    for row in network["branch"].values():
        row |= {"rate_a": 75.0, "angmin": -30.0, "angmax": 30.0}
    assert_same(read_case(network), read_case(SAME))


def test_dc_lines_keep_limits_at_both_ends():
    """By MATPOWER's convention, power is limited where it enters the line."""
    line = {"f_bus": 10, "t_bus": 20, "br_status": 1, "pf": 0.2, "pt": -0.18, "vf": 1.0,
            "vt": 1.0, "loss0": 0.004, "loss1": 0.02, "model": 2, "cost": [100.0, 0.0],
            "qminf": -0.1, "qmaxf": 0.3, "qmint": -0.2, "qmaxt": 0.4}  # fmt: skip
    row = [10, 20, 1, 10, 9.6, 0, 0, 1, 1, 0, 0, -15, 5, -20, 10, 0.2, 0.02]
    for pminf, pmaxf, pmint, pmaxt, least, most in (
        (0.1, 0.5, -2.0, 2.0, 5.0, 25.0),
        (-2.0, 2.0, -0.5, 0.4, -20.0, 50 * 0.504 / 0.98),
        (-2.0, -0.1, 0.0, 0.3, -15.0, 0.98 * -5 - 0.2),
    ):
        limits = {"pminf": pminf, "pmaxf": pmaxf, "pmint": pmint, "pmaxt": pmaxt}
        case = read_case(changed(dcline={"1": line | limits}))
        row[9:11] = least, most
        expected = {**SAME, "dcline": [row], "dclinecost": [[2, 0, 0, 2, 2, 0]]}
        assert_same(case, read_case(expected))


def test_storage_switches_and_currents_are_read():
    storage = {"storage_bus": 20, "energy": 0.4, "energy_rating": 1.0, "charge_rating": 0.5,
               "discharge_rating": 0.6, "charge_efficiency": 0.9, "discharge_efficiency": 0.8,
               "thermal_rating": 1.2, "qmin": -0.5, "qmax": 0.7, "r": 0.1, "x": 0.0,
               "p_loss": 0.01, "q_loss": 0.02, "ps": 0.0, "qs": 0.0, "status": 1}  # fmt: skip
    network = changed(
        storage={"1": storage},
        switch={"1": {"f_bus": 7, "t_bus": 10, "state": 0, "status": 1, "thermal_rating": 1.0}},
        branch={"1": {"c_rating_a": 1.2}},
    )
    rated = [20, 0, 0, 20, 50, 25, 30, 0.9, 0.8, 60, -25, 35, 0.1, 0, 0.5, 1, 1]
    same = {**SAME, "time_elapsed": 2.0, "storage": [rated], "branch_currents": [[60], [0], [0]]}
    assert_same(read_case({**network, "time_elapsed": 2.0}), read_case(same))


def test_shunts_at_the_ends_of_branches_go_to_buses():
    network = changed(
        branch={"2": {"tap": 0.9, "g_fr": 0.01, "b_fr": 0.05, "b_to": 0.03, "g_to": 0.004}}
    )
    with pytest.warns(CaseWarning, match=r"shunts at buses where .*\(branch 2\)"):
        case = read_case(network)
    at = {number: row for row, number in enumerate(case.bus.id.tolist())}
    np.testing.assert_allclose(case.branch.b, [0.04, 0.06, 0.04])
    np.testing.assert_allclose(case.bus.gs[[at[20], at[7]]], [0.01 / 0.81, 0.02 + 0.004])
    np.testing.assert_allclose(case.bus.bs[[at[20], at[7]]], [0.02 / 0.81, 0.1])


def test_missing_costs_and_unread_fields_are_named():
    network = changed(gen={"2": {"cost": None}})
    with pytest.warns(CaseWarning) as caught:
        case = read_case({**network, "ne_branch": {"1": {"f_bus": 7}}, "empty": {}})
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 2 and "does not read 'ne_branch'." in texts[0]
    assert "gen 1 has no cost" in texts[1]
    np.testing.assert_allclose(case.gen.c1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load": {"1": {"load_bus": 30}}}, "load 1 refers to bus 30"),
        ({"load": {"1": {"pd": "0.777"}}}, "load 1 has no number in 'pd'"),
        ({"branch": {"3": {"br_x": None}}}, "branch 3 has no number in 'br_x'"),
        ({"gen": {"2": {"cost": [1.0, "x"]}}}, "gen 2 has no number in 'cost'"),
        ({"gen": {"2": {"cost": 3.0}}}, "gen 2 has a 'cost' that is not a list"),
        ({"gen": {"2": {"model": 3}}}, "gencost row 1 is of an unknown model"),
        ({"switch": {"1": {"f_bus": 7}}}, "switch 1 has no number in 't_bus'"),
    ],
)
def test_incomplete_components_are_refused_without_values(change: Any, message: str):
    with pytest.raises(CaseError, match=message) as error, warnings.catch_warnings():
        warnings.simplefilter("ignore", CaseWarning)
        read_case(changed(**change))
    assert "777" not in str(error.value)


def test_other_dictionaries_are_refused():
    with pytest.raises(CaseError, match="several networks"):
        read_case({"multinetwork": True, "per_unit": True, "nw": {}})
    with pytest.raises(CaseError, match="does not map indices"):
        from_powermodels({**SMALL, "load": [1, 2]}, "x")
    with pytest.raises(CaseError, match="'busdc' gives the case a direct-current grid"):
        read_case({**SMALL, "busdc": {"1": {"index": 1}}})
