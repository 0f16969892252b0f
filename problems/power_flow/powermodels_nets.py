"""Conversion of networks of PowerModels (JSON files, dictionaries) to tables of a MATPOWER case."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import CaseError

Floats = NDArray[np.float64]

# Columns of MATPOWER's matrices that a component of PowerModels fills: column, field, what the
# number is in per unit ("power" in MW, "angle" in radians, "" for none), and its default.
_Columns = tuple[tuple[int, str, str, float | None], ...]
_BUS: _Columns = (
    (0, "bus_i", "", None), (1, "bus_type", "", None), (6, "area", "", 1.0), (7, "vm", "", 1.0),
    (8, "va", "angle", 0.0), (9, "base_kv", "", 0.0), (10, "zone", "", 1.0),
    (11, "vmax", "", np.inf), (12, "vmin", "", 0.0),
)  # fmt: skip
_GEN: _Columns = (
    (0, "gen_bus", "", None), (1, "pg", "power", 0.0), (2, "qg", "power", 0.0),
    (3, "qmax", "power", np.inf), (4, "qmin", "power", -np.inf), (5, "vg", "", 1.0),
    (6, "mbase", "", 0.0), (7, "gen_status", "", 1.0), (8, "pmax", "power", np.inf),
    (9, "pmin", "power", -np.inf),
)  # fmt: skip
_BRANCH: _Columns = (
    (0, "f_bus", "", None), (1, "t_bus", "", None), (2, "br_r", "", None), (3, "br_x", "", None),
    (5, "rate_a", "power", 0.0), (6, "rate_b", "power", 0.0), (7, "rate_c", "power", 0.0),
    (8, "tap", "", 0.0), (9, "shift", "angle", 0.0), (10, "br_status", "", 1.0),
    (11, "angmin", "angle", -360.0), (12, "angmax", "angle", 360.0),
)  # fmt: skip
_STORAGE: _Columns = (
    (0, "storage_bus", "", None), (1, "ps", "power", 0.0), (2, "qs", "power", 0.0),
    (3, "energy", "power", None), (4, "energy_rating", "power", None),
    (5, "charge_rating", "power", None), (6, "discharge_rating", "power", None),
    (7, "charge_efficiency", "", 1.0), (8, "discharge_efficiency", "", 1.0),
    (9, "thermal_rating", "power", np.inf), (10, "qmin", "power", -np.inf),
    (11, "qmax", "power", np.inf), (12, "r", "", 0.0), (13, "x", "", 0.0),
    (14, "p_loss", "power", 0.0), (15, "q_loss", "power", 0.0), (16, "status", "", 1.0),
)  # fmt: skip
_SWITCH: _Columns = (
    (0, "f_bus", "", None), (1, "t_bus", "", None), (2, "psw", "power", 0.0),
    (3, "qsw", "power", 0.0), (4, "state", "", 1.0), (5, "thermal_rating", "power", 0.0),
    (6, "status", "", 1.0),
)  # fmt: skip
_DC_LINE: _Columns = (
    (0, "f_bus", "", None), (1, "t_bus", "", None), (2, "br_status", "", 1.0),
    (3, "pf", "power", 0.0), (7, "vf", "", 1.0), (8, "vt", "", 1.0),
    (15, "loss0", "power", 0.0), (16, "loss1", "", 0.0),
)  # fmt: skip
_POLYNOMIAL, _PIECEWISE = 2, 1
# Fields that do not add to the network, beside the tables that are read.
_DESCRIPTIVE = frozenset(
    {"name", "description", "per_unit", "baseMVA", "time_elapsed", "source_type", "source_version"}
    | {"multinetwork", "areas"}
)
_TABLES = ("bus", "load", "shunt", "gen", "branch", "storage", "switch", "dcline")


def is_powermodels(source: object) -> bool:
    """Return whether a source is a network dictionary of PowerModels."""
    return (
        isinstance(source, Mapping)
        and "per_unit" in source
        and (isinstance(source.get("bus"), Mapping) or bool(source.get("multinetwork")))
    )


def powermodels_json(raw: bytes) -> Mapping[str, Any] | None:
    """Return the network dictionary in a JSON file; None if the file has none.

    Parameters
    ----------
    raw : bytes
        Content of the file.
    """
    if not raw.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") or b'"per_unit"' not in raw:
        return None
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return content if is_powermodels(content) else None


def from_powermodels(
    source: Mapping[str, Any], name: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return matrices in MATPOWER's columns with all other fields, and notes on changed data.

    Parameters
    ----------
    source : mapping
        Network dictionary of PowerModels, as ``parse_file`` makes it and ``JSON.print`` writes it:
        in per unit and radians, or with ``"per_unit": false`` in megawatts and degrees. Components
        become rows in the order of their ``index``, and so do their numbers in messages.
    name : str
        Name of the source, for messages.

    Raises
    ------
    CaseError
        If the dictionary holds several networks, or a component lacks a field that it needs or has
        one that is not a number.
    """
    if source.get("multinetwork"):
        raise CaseError(
            f"{name} holds several networks ('multinetwork'), and a case is one. Pass "
            "network['nw']['1'] with its 'baseMVA' and 'per_unit', and further hours as profiles=."
        )
    base = _number(source, "baseMVA", None, name)
    read = _Reader(source, base if source["per_unit"] else 1.0, bool(source["per_unit"]), name)
    bus = read.table("bus", _BUS, 13)
    position = {int(number): row for row, number in enumerate(bus[:, 0])}
    for table, columns in (("load", ("pd", "qd")), ("shunt", ("gs", "bs"))):
        for row, component in read.rows(table):
            if _number(component, "status", 1.0, row) != 0:
                at_bus = read.bus_row(component, f"{table}_bus", position, row)
                for column, field in enumerate(columns, start=2 if table == "load" else 4):
                    bus[at_bus, column] += read.power * _number(component, field, 0.0, row)
    branch = read.table("branch", _BRANCH, 13)
    notes = _charging(read, bus, branch, position)
    fields = {
        "baseMVA": base,
        "time_elapsed": _number(source, "time_elapsed", 1.0, name),
        "bus": bus,
        "branch": branch,
        "gen": read.table("gen", _GEN, 10),
        "storage": read.table("storage", _STORAGE, 17),
        "switch": read.table("switch", _SWITCH, 7),
        "dcline": _dc_lines(read),
    }
    currents = [_number(each, "c_rating_a", 0.0, row) for row, each in read.rows("branch")]
    if any(currents):
        fields["branch_currents"] = read.power * np.array(currents)[:, None]
    for table, costs in (("gen", "gencost"), ("dcline", "dclinecost")):
        matrix, unpriced = _costs(read, table)
        if matrix is not None:
            fields[costs] = matrix
            notes += unpriced
    for field, value in source.items():
        if field not in (*_DESCRIPTIVE, *_TABLES) and value not in ({}, [], None):
            fields[str(field)] = value
    return fields, notes


class _Reader:
    """Components of a network dictionary, in the order of their index."""

    def __init__(self, source: Mapping[str, Any], power: float, radians: bool, name: str) -> None:
        self.source, self.name = source, name
        self.power = power  # MW per unit of power in the source
        self.degrees = 180 / np.pi if radians else 1.0

    def rows(self, table: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return each component of a table with its name for messages."""
        components = self.source.get(table) or {}
        if not isinstance(components, Mapping) or not all(
            isinstance(component, Mapping) for component in components.values()
        ):
            raise CaseError(
                f"{self.name}: '{table}' does not map indices to components, such as "
                '{"1": {...}}. Write the file again by JSON.print of the parsed network.'
            )
        listed = [
            (f"{self.name}: {table} {key}", component) for key, component in components.items()
        ]
        return sorted(listed, key=lambda row: _number(row[1], "index", 0.0, row[0]))

    def table(self, table: str, columns: _Columns, width: int) -> Floats:
        """Return a matrix with the columns of a table."""
        rows = self.rows(table)
        matrix = np.zeros((len(rows), width))
        factor = {"power": self.power, "angle": self.degrees, "": 1.0}
        for line, (row, component) in enumerate(rows):
            for column, field, kind, default in columns:
                if component.get(field) is None and default is not None:
                    matrix[line, column] = default
                else:
                    matrix[line, column] = factor[kind] * _number(component, field, default, row)
        return matrix

    def bus_row(
        self, component: Mapping[str, Any], field: str, position: Mapping[int, int], row: str
    ) -> int:
        """Return the row of the bus that a component names."""
        number = _number(component, field, None, row)
        if number not in position:
            raise CaseError(
                f"{row} refers to bus {number:g}, which is not in 'bus'. Add the bus or correct "
                f"'{field}'."
            )
        return position[int(number)]


def _number(component: Mapping[str, Any], field: str, default: float | None, row: str) -> float:
    """Return the number in a field, or its default; errors never show a value."""
    value = component.get(field)
    if value is None:
        value = default  # JSON has null for NaN, a missing number
    if not isinstance(value, int | float):
        raise CaseError(
            f"{row} has no number in '{field}', so the network is incomplete. Write one."
        )
    return float(value)


def _charging(
    read: _Reader, bus: Floats, branch: Floats, position: Mapping[int, int]
) -> tuple[str, ...]:
    """Fill the charging of branches; what differs between their ends becomes shunts at buses."""
    moved = []
    for line, (row, component) in enumerate(read.rows("branch")):
        value = {f: _number(component, f, 0.0, row) for f in ("g_fr", "b_fr", "g_to", "b_to")}
        shared = min(value["b_fr"], value["b_to"], key=abs)
        shared = shared if value["b_fr"] * value["b_to"] > 0 else 0.0
        branch[line, 4] = 2 * shared
        tap = branch[line, 8] or 1.0
        ends = ("f_bus", "fr", tap**2), ("t_bus", "to", 1.0)
        for field, end, ratio in ends if branch[line, 10] != 0 else ():
            where = read.bus_row(component, field, position, row)
            more = np.array([value[f"g_{end}"], value[f"b_{end}"] - shared]) / ratio
            if more.any():
                # Shunts of MATPOWER are in MW and MVAr at 1 per unit.
                bus[where, 4:6] += more * _number(read.source, "baseMVA", None, read.name)
                moved.append(line + 1)
    if not moved:
        return ()
    rows = _listed(dict.fromkeys(moved))
    return (
        f"{read.name}: shunts at the ends of branches are shunts at buses where they are "
        f"conductances or differ (branch {rows}); ratings hold for the power without them.",
    )


def _dc_lines(read: _Reader) -> Floats:
    """Return DC lines in MATPOWER's columns, with limits at the end where power enters.

    PowerModels limits the power that leaves the bus at either end, with p_to = loss0 - (1 - loss1)
    p_from, and counts reactive power from the bus.
    """
    rows = read.rows("dcline")
    matrix = read.table("dcline", _DC_LINE, 17)
    for line, (row, component) in enumerate(rows):
        limit = {
            field: read.power * _number(component, field, default, row)
            for side in "ft"
            for field, default in (
                (f"pmin{side}", -np.inf), (f"pmax{side}", np.inf),
                (f"qmin{side}", -np.inf), (f"qmax{side}", np.inf),
            )
        }  # fmt: skip
        loss0, share = matrix[line, 15], 1 - matrix[line, 16]
        low = max(limit["pminf"], (loss0 - limit["pmaxt"]) / share)
        high = min(limit["pmaxf"], (loss0 - limit["pmint"]) / share)
        matrix[line, 9] = low if low >= 0 else share * low - loss0
        matrix[line, 10] = high if high >= 0 else share * high - loss0
        matrix[line, 11:13] = -limit["qmaxf"], -limit["qminf"]
        matrix[line, 13:15] = -limit["qmaxt"], -limit["qmint"]
        matrix[line, 4] = share * matrix[line, 3] - loss0
    return matrix


def _costs(read: _Reader, table: str) -> tuple[Floats | None, tuple[str, ...]]:
    """Return costs in the columns of ``gencost``, None without any, and a note on missing ones."""
    rows = read.rows(table)
    costs: list[list[float]] = []
    free = []
    for line, (row, component) in enumerate(rows):
        listed = component.get("cost")
        if not listed or "model" not in component:
            costs.append([_POLYNOMIAL, 0, 0, 1, 0.0])
            free.append(line + 1)
            continue
        if not isinstance(listed, list):
            raise CaseError(f"{row} has a 'cost' that is not a list. Write a list of numbers.")
        numbers = [_number({"cost": value}, "cost", None, row) for value in listed]
        model = int(_number(component, "model", None, row))
        if model == _PIECEWISE:
            powers = [read.power * value for value in numbers[::2]]
            numbers = [
                value for point in zip(powers, numbers[1::2], strict=False) for value in point
            ]
            count = len(numbers) // 2
        else:
            degrees = range(len(numbers) - 1, -1, -1)
            numbers = [value / read.power**k for value, k in zip(numbers, degrees, strict=True)]
            count = len(numbers)
        costs.append([model, 0, 0, count, *numbers])
    if len(free) == len(rows):
        return None, ()
    width = max(len(cost) for cost in costs)
    matrix = np.array([[*cost, *[0.0] * (width - len(cost))] for cost in costs])
    shown = _listed(free)
    notes = (f"{read.name}: {table} {shown} has no cost, so it costs nothing.",) if free else ()
    return matrix, notes


def _listed(rows: Iterable[int]) -> str:
    return ", ".join(str(row) for row in rows)
