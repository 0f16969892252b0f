"""Conversion of PyPSA networks (folders, netCDF files, objects) to tables of a MATPOWER case.

Folders need no further package, and netCDF files need only netCDF4, not PyPSA. If a case cannot
hold an element of the network, an error or a note names it.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import text
from .errors import CaseError
from .extensions import LEAST_IMPEDANCE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BASE_MVA = 100.0
# Default voltage limits in per unit, since PyPSA's optimal power flow has no voltages.
VOLTAGES = (0.9, 1.1)
# Power in megawatts that stands for a missing limit.
_NO_LIMIT = 1e9
_SHOWN = 5
_FOLDER = "Give a folder that n.export_to_csv_folder wrote, with buses.csv."
# Defaults of missing values, by kind of element and column; their types are the columns' types.
_DEFAULTS: dict[str, dict[str, float | str | bool]] = {
    "buses": {"v_nom": 1.0, "carrier": "AC", "v_mag_pu_min": 0.0, "v_mag_pu_max": np.inf},
    "loads": {"bus": "", "p_set": 0.0, "q_set": 0.0, "sign": -1.0, "active": True},
    "shunt_impedances": {"bus": "", "g": 0.0, "b": 0.0, "sign": -1.0, "active": True},
    "generators": {
        "bus": "", "p_nom": 0.0, "p_nom_opt": 0.0, "p_nom_extendable": False, "p_min_pu": 0.0,
        "p_max_pu": 1.0, "marginal_cost": 0.0, "marginal_cost_quadratic": 0.0, "sign": 1.0,
        "committable": False, "active": True,
    },
    "lines": {
        "bus0": "", "bus1": "", "type": "", "x": 0.0, "r": 0.0, "g": 0.0, "b": 0.0, "s_nom": 0.0,
        "s_nom_opt": 0.0, "s_nom_extendable": False, "s_max_pu": 1.0, "v_ang_min": -np.inf,
        "v_ang_max": np.inf, "active": True,
    },
    "transformers": {
        "bus0": "", "bus1": "", "type": "", "model": "t", "x": 0.0, "r": 0.0, "g": 0.0, "b": 0.0,
        "s_nom": 0.0, "s_nom_opt": 0.0, "s_nom_extendable": False, "s_max_pu": 1.0,
        "tap_ratio": 1.0, "tap_side": 0.0, "phase_shift": 0.0, "v_ang_min": -np.inf,
        "v_ang_max": np.inf, "active": True,
    },
    "links": {
        "bus0": "", "bus1": "", "bus2": "", "efficiency": 1.0, "p_nom": 0.0, "p_nom_opt": 0.0,
        "p_nom_extendable": False, "p_min_pu": 0.0, "p_max_pu": 1.0, "marginal_cost": 0.0,
        "marginal_cost_quadratic": 0.0, "committable": False, "active": True,
    },
    "storage_units": {
        "bus": "", "p_nom": 0.0, "p_nom_opt": 0.0, "p_nom_extendable": False, "max_hours": 1.0,
        "efficiency_store": 1.0, "efficiency_dispatch": 1.0, "state_of_charge_initial": 0.0,
        "cyclic_state_of_charge": False, "standing_loss": 0.0, "inflow": 0.0,
        "marginal_cost": 0.0, "active": True,
    },
    "stores": {
        "bus": "", "e_nom": 0.0, "e_nom_opt": 0.0, "e_nom_extendable": False, "e_initial": 0.0,
        "e_cyclic": False, "standing_loss": 0.0, "active": True,
    },
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Component:
    """The active elements of one kind in a network."""

    names: tuple[str, ...] = ()
    static: Mapping[str, Any] = field(default_factory=dict)  # columns of numbers or texts
    series: Mapping[str, Floats] = field(default_factory=dict)  # shape (elements, hours)

    def at_hours(self, column: str, hours: int) -> Floats:
        """Return the values of a column in every hour, shape (elements, hours)."""
        if column in self.series:
            return self.series[column]
        return np.repeat(np.asarray(self.static[column], dtype=np.float64)[:, None], hours, axis=1)


@dataclass(frozen=True, eq=False)
class Converted:
    """A network over some hours.

    Attributes
    ----------
    fields : dict
        ``baseMVA`` and MATPOWER's matrices, with the mean load of the hours.
    name : str
        Name of the network.
    notes : tuple of str
        Notes on data that are changed or ignored.
    bus : dict of int
        Ids of the buses by name.
    profiles : ndarray, shape (buses, hours)
        Factors on the loads of `fields`.
    availability : ndarray, shape (generators, hours)
        Largest power in each hour, as a share of the largest power in `fields`.
    storage : tuple of tuple
        Bus id, power in MW, energy in MWh, efficiency, and initial share of energy, for each.
    """

    fields: dict[str, Any]
    name: str
    notes: tuple[str, ...]
    bus: dict[str, int]
    profiles: Floats
    availability: Floats
    storage: tuple[tuple[int, float, float, float, float], ...]


def is_pypsa(source: object) -> bool:
    """Return whether a source is a PyPSA network: object, folder with ``buses.csv``, or netCDF."""
    if isinstance(source, str | Path):
        path = Path(source)
        try:
            return path.suffix == ".nc" or (path / "buses.csv").is_file()
        except OSError:  # an invalid file name; the readers of files raise an error for it
            return False
    return hasattr(source, "export_to_csv_folder")


def from_pypsa(source: Any, hours: int = 1, first: int = 0) -> Converted:
    """Convert a network at some of its snapshots.

    Parameters
    ----------
    source : str, Path or pypsa.Network
    hours : int
        Number of snapshots.
    first : int
        Position of the first snapshot.

    Raises
    ------
    CaseError
        If the network cannot be read, or has elements that a case cannot hold.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        raw = _from_netcdf(path) if path.suffix == ".nc" else _from_folder(path)
        if not _has_types(raw[0]):
            name = path.stem if path.suffix == ".nc" else path.name
            return _converted(name, *raw, hours, first)
        try:
            source = importlib.import_module("pypsa").Network(str(path))
        except ImportError:
            raise CaseError(
                f"{path.name} has lines or transformers of standard types, whose impedances only "
                "PyPSA knows. Run pip install pypsa, or write them into the network with "
                "n.calculate_dependent_values() before the export."
            ) from None
    with TemporaryDirectory() as folder:
        source.export_to_csv_folder(folder)
        raw = _from_folder(Path(folder))
        if _has_types(raw[0]):
            # Of the export, since PyPSA does not copy a network that it has just solved.
            network = importlib.import_module("pypsa").Network(folder)
            network.calculate_dependent_values()  # impedances of standard types
            network.export_to_csv_folder(folder)
            raw = _from_folder(Path(folder))
    return _converted(str(getattr(source, "name", "") or "PyPSA network"), *raw, hours, first)


# -- reading ---------------------------------------------------------------------------------------

_Raw = tuple[dict[str, dict[str, list[str]]], dict[tuple[str, str], dict[str, list[str]]]]


def _from_folder(folder: Path) -> _Raw:
    """Return the columns of each component and of each series in a folder, as texts."""
    static, series = {}, {}
    for component in (*_DEFAULTS, "snapshots"):
        path = folder / f"{component}.csv"
        if path.is_file():
            static[component] = _columns(path)
        for path in sorted(folder.glob(f"{component}-*.csv")):
            series[component, path.stem.partition("-")[2]] = _columns(path)
    if "buses" not in static:
        raise CaseError(f"{folder.name}: there is no buses.csv. {_FOLDER}")
    return static, series


def _columns(path: Path) -> dict[str, list[str]]:
    rows = [
        row for row in csv.reader(text(path, path.name, CaseError, _FOLDER).splitlines()) if row
    ]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise CaseError(f"{path.name}: rows are missing or differ in length. {_FOLDER}")
    header = ["name", *rows[0][1:]]
    return {name: [row[at] for row in rows[1:]] for at, name in enumerate(header)}


def _from_netcdf(path: Path) -> _Raw:
    """Return the columns of each component and series in a file of ``n.export_to_netcdf``."""
    try:
        library = importlib.import_module("netCDF4")
    except ImportError:
        raise CaseError(
            f"{path.name}: reading netCDF needs the package netCDF4, which is not installed. Run "
            "pip install netCDF4, or write n.export_to_csv_folder('folder') and give that."
        ) from None
    try:
        data = library.Dataset(str(path))
    except OSError:
        raise CaseError(f"{path.name}: there is no such netCDF file. {_FOLDER}") from None
    static: dict[str, dict[str, list[str]]] = {}
    series: dict[tuple[str, str], dict[str, list[str]]] = {}
    with data:
        variables = data.variables

        def texts(name: str) -> list[str]:
            return [str(value) for value in np.ma.getdata(variables[name][:]).tolist()]

        for component in _DEFAULTS:
            if f"{component}_i" not in variables:
                continue
            static[component] = {"name": texts(f"{component}_i")}
            for name in variables:
                column = name.removeprefix(f"{component}_")
                if name == column or column == "i":
                    continue
                if not column.startswith("t_"):
                    static[component][column] = texts(name)
                elif not column.endswith("_i"):
                    names, table = texts(f"{name}_i"), np.ma.getdata(variables[name][:])
                    columns = {
                        who: [str(value) for value in table[:, at].tolist()]
                        for at, who in enumerate(names)
                    }
                    every = [str(at) for at in range(len(table))]
                    series[component, column.removeprefix("t_")] = {"name": every, **columns}
        if "snapshots" in data.dimensions:
            static["snapshots"] = {
                "name": [str(at) for at in range(len(data.dimensions["snapshots"]))]
            }
            if "snapshots_stores" in variables:
                static["snapshots"]["stores"] = texts("snapshots_stores")
    if "buses" not in static:
        raise CaseError(f"{path.name}: there are no buses, so it is no PyPSA network. {_FOLDER}")
    return static, series


def _has_types(static: dict[str, dict[str, list[str]]]) -> bool:
    """Return whether an impedance is given only by a standard type, without a number."""
    for kind in ("lines", "transformers"):
        table = static.get(kind, {})
        for word, x in zip(table.get("type", ()), table.get("x", ("",) * 10**6), strict=False):
            if word not in ("", "nan") and x in ("", "0.0", "0", "nan"):
                return True
    return False


def _component(kind: str, raw: _Raw, steps: slice, where: str) -> Component:
    """Return the active elements of a kind, with defaults for missing values."""
    static, series = raw
    table = static.get(kind, {"name": []})
    names = table["name"]
    columns = {
        column: _values(table.get(column), default, len(names), f"{where}: {kind} {column}")
        for column, default in _DEFAULTS[kind].items()
    }
    hours = steps.stop - steps.start
    moving = {}
    for column, default in _DEFAULTS[kind].items():
        if (kind, column) not in series or isinstance(default, str | bool):
            continue
        given, what = series[kind, column], f"{where}: {kind}-{column}"
        rows = np.repeat(np.asarray(columns[column], dtype=np.float64)[:, None], hours, axis=1)
        for at, element in enumerate(names):
            if element in given:
                rows[at] = _values(given[element][steps], default, hours, what)
        moving[column] = rows
    keep = np.flatnonzero(np.asarray(columns.get("active", np.ones(len(names))), dtype=bool))
    return Component(
        tuple(names[at] for at in keep),
        {column: values[keep] for column, values in columns.items()},
        {column: rows[keep] for column, rows in moving.items()},
    )


def _values(given: list[str] | None, default: float | str | bool, count: int, what: str) -> Any:
    """Return texts as an array of the default's type, with the default for missing values."""
    if given is None:
        given = [""] * count
    if isinstance(default, str):
        return np.array([value if value else default for value in given], dtype=object)
    if isinstance(default, bool):
        words = [value.strip().lower() for value in given]
        kept = [default if word in ("", "nan") else word in ("true", "1", "1.0") for word in words]
        return np.array(kept, dtype=np.bool_)
    try:
        numbers = np.array([float(value) if value else default for value in given], np.float64)
    except ValueError:
        # The error does not show the entry, which may be a private load.
        raise CaseError(f"{what} has an entry that is no number. Write one.") from None
    return np.where(np.isnan(numbers), default, numbers)


# -- conversion ------------------------------------------------------------------------------------


def _converted(
    name: str,
    static: dict[str, dict[str, list[str]]],
    series: dict[tuple[str, str], dict[str, list[str]]],
    hours: int,
    first: int,
) -> Converted:
    snapshots = max([len(static.get("snapshots", {}).get("name", [""])), 1])
    if first < 0 or first + hours > snapshots:
        raise CaseError(
            f"{name} has {snapshots} snapshots, not {first + hours}. Write fewer hours=, or an "
            "earlier first=."
        )
    steps, raw = slice(first, first + hours), (static, series)
    parts = {kind: _component(kind, raw, steps, name) for kind in _DEFAULTS}
    notes: list[str] = []
    ids = _ids(parts["buses"].names)
    _check(name, parts, ids)
    bus, profiles = _buses(name, parts, ids, hours, notes)
    gen, gencost, availability = _generators(name, parts["generators"], ids, hours, notes)
    fields: dict[str, Any] = {
        "baseMVA": BASE_MVA,
        "bus": bus,
        "gen": gen,
        "gencost": gencost,
        "branch": _branches(name, parts, ids, notes),
    }
    if parts["links"].names:
        fields["dcline"], fields["dclinecost"] = _links(name, parts["links"], ids, hours, notes)
    weights = static.get("snapshots", {}).get("stores")
    length = [float(value) for value in weights[steps]] if weights else [1.0] * hours
    storage = _storage(name, parts, ids, length, notes)
    return Converted(fields, name, tuple(notes), ids, profiles, availability, storage)


def _ids(names: tuple[str, ...]) -> dict[str, int]:
    """Return ids of buses by name: the names as numbers (plus 1 if one is 0), else their order."""
    if all(word.isascii() and word.isdigit() and str(int(word)) == word for word in names):
        numbers = [int(word) for word in names]
        return dict(zip(names, [n + (min(numbers) == 0) for n in numbers], strict=True))
    return {word: at + 1 for at, word in enumerate(names)}


def _check(name: str, parts: Mapping[str, Component], ids: Mapping[str, int]) -> None:
    buses = parts["buses"]
    if not buses.names:
        raise CaseError(f"{name} has no buses. {_FOLDER}")
    for word, carrier in zip(buses.names, buses.static["carrier"], strict=True):
        if carrier not in ("AC", "DC", "electricity"):
            raise CaseError(
                f"{name}: bus '{word}' carries {carrier!r}, and a power flow has only AC and DC "
                "buses. Remove such buses, and the links and stores at them."
            )
    for kind, part in parts.items():
        for end in ("bus", "bus0", "bus1"):
            for who, word in zip(part.names, part.static.get(end, ()), strict=False):
                if word not in ids:
                    raise CaseError(
                        f"{name}: {kind} '{who}' is at bus '{word}', which is not there. Add the "
                        "bus, or remove the element."
                    )
    for who, word in zip(parts["links"].names, parts["links"].static["bus2"], strict=True):
        if word:
            raise CaseError(
                f"{name}: link '{who}' has a third bus. Write two links with two buses each."
            )
    carrier = dict(zip(buses.names, buses.static["carrier"], strict=True))
    lines = parts["lines"]
    for who, word in zip(lines.names, lines.static["bus0"], strict=True):
        if carrier[word] == "DC":
            raise CaseError(
                f"{name}: line '{who}' is of a DC grid, for which this AC power flow has no "
                "equations. Write a link, whose flow can be set."
            )


def _positions(part: Component, end: str, ids: Mapping[str, int]) -> Ints:
    return np.array([ids[word] for word in part.static[end]], dtype=np.int64)


def _listed(names: tuple[str, ...], chosen: Any) -> str:
    picked = [f"'{names[at]}'" for at in np.flatnonzero(chosen)]
    more = f" and {len(picked) - _SHOWN} more" if len(picked) > _SHOWN else ""
    return ", ".join(picked[:_SHOWN]) + more


def _size(part: Component, column: str, name: str, notes: list[str]) -> Floats:
    """Return nominal sizes; extendable elements get their optimized sizes if they have these."""
    size = part.static[column].copy()
    extendable, optimal = part.static[f"{column}_extendable"], part.static[f"{column}_opt"]
    size[extendable & (optimal > 0)] = optimal[extendable & (optimal > 0)]
    if extendable.any():
        notes.append(
            f"{name}: {_listed(part.names, extendable)} can be extended; {column}_opt is taken "
            f"where there is one, else {column}, and nothing is built."
        )
    return size


def _buses(
    name: str, parts: Mapping[str, Component], ids: Mapping[str, int], hours: int, notes: list[str]
) -> tuple[Floats, Floats]:
    """Return the matrix ``bus``, and factors on its loads."""
    buses, loads, shunts = (parts[kind] for kind in ("buses", "loads", "shunt_impedances"))
    count = len(buses.names)
    row = {number: at for at, number in enumerate(ids[word] for word in buses.names)}
    table = np.zeros((count, 13))
    table[:, 0], table[:, 1] = list(row), 1
    table[:, [6, 7, 10]] = 1
    voltage = buses.static["v_nom"]
    table[:, 9] = voltage
    low, high = buses.static["v_mag_pu_min"], buses.static["v_mag_pu_max"]
    missing = (low <= 0) & ~np.isfinite(high)
    table[:, 12] = np.where(missing, VOLTAGES[0], low)
    table[:, 11] = np.where(missing, VOLTAGES[1], high)
    if missing.any():
        notes.append(
            f"{name}: {missing.sum()} buses without voltage limits; {VOLTAGES[0]:g} to "
            f"{VOLTAGES[1]:g} per unit are taken."
        )
    power = np.zeros((2, count, hours))
    at = [row[number] for number in _positions(loads, "bus", ids)]
    for quantity, column in enumerate(("p_set", "q_set")):
        drawn = -loads.static["sign"][:, None] * loads.at_hours(column, hours)
        np.add.at(power[quantity], at, drawn)
    mean = power.mean(axis=2)
    table[:, 2], table[:, 3] = mean
    at = [row[number] for number in _positions(shunts, "bus", ids)]
    squares, sign = voltage[at] ** 2, -shunts.static["sign"]
    np.add.at(table[:, 4], at, sign * shunts.static["g"] * squares)
    np.add.at(table[:, 5], at, sign * shunts.static["b"] * squares)
    factors = np.ones((count, hours))
    for quantity in (1, 0):
        used = mean[quantity] != 0
        factors[used] = power[quantity][used] / mean[quantity][used, None]
    rest = np.abs(power - mean[:, :, None] * factors).max(axis=(1, 2))
    if rest[0] > 1e-9:
        raise CaseError(
            f"{name} has a bus whose loads are 0 on average, and not in every hour, so no factors "
            "give them. Choose other snapshots, or write profiles= of your own."
        )
    if rest[1] > 1e-9:
        notes.append(f"{name}: reactive loads follow the active ones of their bus over the hours.")
    if len(row):
        table[_reference(parts, row, ids), 1] = 3
    return table, factors


def _reference(
    parts: Mapping[str, Component], row: Mapping[int, int], ids: Mapping[str, int]
) -> int:
    """Return the row of the bus with the largest generator."""
    units = parts["generators"]
    if not units.names:
        return 0
    return row[int(_positions(units, "bus", ids)[np.argmax(units.static["p_nom"])])]


def _generators(
    name: str, units: Component, ids: Mapping[str, int], hours: int, notes: list[str]
) -> tuple[Floats, Floats, Floats]:
    """Return ``gen``, ``gencost``, and the available share of the largest power in each hour."""
    size = np.minimum(_size(units, "p_nom", name, notes), _NO_LIMIT)
    share, least = units.at_hours("p_max_pu", hours), units.at_hours("p_min_pu", hours)
    most, lowest = share.max(axis=1, initial=-np.inf), least.min(axis=1, initial=np.inf)
    if (least > lowest[:, None] + 1e-12).any():
        moves = (least > lowest[:, None] + 1e-12).any(axis=1)
        notes.append(f"{name}: the smallest p_min_pu of {_listed(units.names, moves)} is taken.")
    if units.static["committable"].any():
        notes.append(
            f"{name}: {_listed(units.names, units.static['committable'])} can be committed, and "
            "is taken to be on."
        )
    if (units.static["sign"] != 1).any():
        raise CaseError(
            f"{name}: generators {_listed(units.names, units.static['sign'] != 1)} have a sign "
            "other than 1. Write 1, and a negative power."
        )
    table = np.zeros((len(units.names), 21))
    table[:, 0], table[:, 7] = _positions(units, "bus", ids), 1
    table[:, 3], table[:, 4] = np.inf, -np.inf
    table[:, 5], table[:, 6] = 1, BASE_MVA
    table[:, 8], table[:, 9] = size * most, size * lowest
    cost = np.zeros((len(units.names), 7))
    cost[:, 0], cost[:, 3] = 2, 3
    for at, column in ((4, "marginal_cost_quadratic"), (5, "marginal_cost")):
        prices = units.at_hours(column, hours)
        cost[:, at] = prices.mean(axis=1) if len(prices) else 0
        if (np.abs(prices - cost[:, at][:, None]) > 1e-12).any():
            notes.append(f"{name}: the mean {column} of the hours is taken.")
    with np.errstate(divide="ignore", invalid="ignore"):
        available = np.where(most[:, None] > 0, share / most[:, None], 1.0)
    return table, cost, available


def _branches(
    name: str, parts: Mapping[str, Component], ids: Mapping[str, int], notes: list[str]
) -> Floats:
    """Return the matrix ``branch``: lines, then transformers."""
    buses, lines, trafos = (parts[kind] for kind in ("buses", "lines", "transformers"))
    voltage = dict(zip(buses.names, buses.static["v_nom"].tolist(), strict=True))
    tables = []
    for part in (lines, trafos):
        untyped = (part.static["x"] == 0) & (part.static["r"] == 0)
        if untyped.any():
            raise CaseError(
                f"{name}: branches {_listed(part.names, untyped)} have no impedance, so flows "
                "have no equation. Write x and r."
            )
        size = _size(part, "s_nom", name, notes)
        leak = part.static["g"] != 0
        if leak.any():
            raise CaseError(
                f"{name}: branches {_listed(part.names, leak)} have a shunt conductance g, which a "
                "case has at buses only. Write 0, and shunt_impedances at their buses."
            )
        table = np.zeros((len(part.names), 13))
        table[:, 0], table[:, 1] = (_positions(part, end, ids) for end in ("bus0", "bus1"))
        # A rating of 0 means no limit in MATPOWER, and a line without capacity in PyPSA.
        rated = np.minimum(size * part.static["s_max_pu"], _NO_LIMIT)
        table[:, 5], table[:, 10] = np.where(np.isfinite(size), np.maximum(rated, 1e-6), 0), 1
        table[:, 11] = np.maximum(part.static["v_ang_min"], -360)
        table[:, 12] = np.minimum(part.static["v_ang_max"], 360)
        if part is lines:
            base = np.array([voltage[word] for word in part.static["bus0"]]) ** 2 / BASE_MVA
            scale = np.stack((1 / base, 1 / base, base), axis=1)
        else:
            with np.errstate(divide="ignore"):
                ratio = BASE_MVA / part.static["s_nom"]
            if not np.isfinite(ratio).all():
                raise CaseError(
                    f"{name}: transformers {_listed(part.names, ~np.isfinite(ratio))} have no "
                    "s_nom, to which their impedances refer. Write it."
                )
            scale = np.stack((ratio, ratio, 1 / ratio), axis=1)
            table[:, 8], table[:, 9] = part.static["tap_ratio"], part.static["phase_shift"]
            bent = (part.static["model"] == "t") & (part.static["b"] != 0)
            if bent.any():
                notes.append(
                    f"{name}: transformers {_listed(part.names, bent)} are taken as pi models, "
                    "not as T models."
                )
            turned = part.static["tap_side"] == 1
            table[turned, :2] = table[turned][:, [1, 0]]
            table[turned, 9] *= -1
            table[turned, 11:13] = -table[turned][:, [12, 11]]
        columns = np.stack([part.static[column] for column in ("r", "x", "b")], axis=1)
        table[:, 2:5] = columns * scale
        short = np.abs(table[:, 2:4]).max(axis=1, initial=0) < 2 * LEAST_IMPEDANCE
        if short.any():
            table[short, 3] = 2 * LEAST_IMPEDANCE
            notes.append(
                f"{name}: {_listed(part.names, short)} have next to no impedance; a reactance "
                f"of {2 * LEAST_IMPEDANCE:g} per unit is taken."
            )
        tables.append(table)
    return np.concatenate(tables)


def _links(
    name: str, links: Component, ids: Mapping[str, int], hours: int, notes: list[str]
) -> tuple[Floats, Floats]:
    """Return ``dcline`` and ``dclinecost``: power from bus0 arrives at bus1 by the efficiency."""
    size = np.minimum(_size(links, "p_nom", name, notes), _NO_LIMIT)
    low, high, share = (
        links.at_hours(column, hours) for column in ("p_min_pu", "p_max_pu", "efficiency")
    )
    moving = sum(np.ptp(rows, axis=1) > 1e-12 for rows in (low, high, share))
    if np.any(moving):
        notes.append(
            f"{name}: links {_listed(links.names, moving)} are taken as in the first hour."
        )
    table = np.zeros((len(links.names), 17))
    table[:, 0], table[:, 1], table[:, 2] = (
        _positions(links, "bus0", ids), _positions(links, "bus1", ids), 1
    )  # fmt: skip
    table[:, 7:9] = 1
    table[:, 9], table[:, 10] = size * low[:, 0], size * high[:, 0]
    table[:, 16] = 1 - share[:, 0]
    cost = np.zeros((len(links.names), 7))
    cost[:, 0], cost[:, 3] = 2, 3
    cost[:, 4] = links.at_hours("marginal_cost_quadratic", hours)[:, 0]
    cost[:, 5] = links.at_hours("marginal_cost", hours)[:, 0]
    return table, cost


def _storage(
    name: str,
    parts: Mapping[str, Component],
    ids: Mapping[str, int],
    length: list[float],
    notes: list[str],
) -> tuple[tuple[int, float, float, float, float], ...]:
    """Return storage units and stores, with energies divided by the length of a snapshot."""
    stored = []
    units, stores = parts["storage_units"], parts["stores"]
    if not units.names and not stores.names:
        return ()
    if len(set(length)) > 1:
        raise CaseError(
            f"{name} has storage, and snapshots of different length. Choose snapshots of one "
            "length."
        )
    sizes = _size(units, "p_nom", name, notes) if units.names else np.zeros(0)
    for at in range(len(units.names)):
        value = {column: units.static[column][at] for column in units.static}
        energy = sizes[at] * value["max_hours"]
        if sizes[at] <= 0 or energy <= 0:
            continue
        start = (
            0.5 if value["cyclic_state_of_charge"] else value["state_of_charge_initial"] / energy
        )
        efficiency = float(np.sqrt(value["efficiency_store"] * value["efficiency_dispatch"]))
        stored.append((ids[value["bus"]], float(sizes[at]), energy / length[0], efficiency, start))
    sizes = _size(stores, "e_nom", name, notes) if stores.names else np.zeros(0)
    for at in range(len(stores.names)):
        energy = float(sizes[at])
        if energy > 0:
            start = (
                0.5 if stores.static["e_cyclic"][at] else stores.static["e_initial"][at] / energy
            )
            number = ids[stores.static["bus"][at]]
            stored.append((number, energy / length[0], energy / length[0], 1.0, float(start)))
    lost = [part for part in (units, stores) if part.static["standing_loss"].any()]
    if lost or units.at_hours("inflow", 1).any():
        notes.append(f"{name}: inflow and standing losses of storage are not read.")
    free = [*units.static["cyclic_state_of_charge"], *stores.static["e_cyclic"]]
    if any(start > 0 for *_, start in stored) and not all(free):
        notes.append(
            f"{name}: storage that is not cyclic ends with at least its energy of the start; in "
            "PyPSA it may end empty."
        )
    return tuple(stored)
