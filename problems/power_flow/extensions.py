"""DC lines and storage of a case as generators, and closed switches as joined buses.

A DC line becomes a generator at either end, linked by the loss of the line, as in MATPOWER. Storage
follows PowerModels within one period: its energy limits its power.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .checks import finite, limits, ordered, within
from .costs import Costs, free, read_costs, reversed_costs
from .errors import CaseError
from .matpower import Tables

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DC_COLUMNS = 17
_MOST_HOURS = 1e6
# Smallest impedance of a line in per unit; a line with less, or none, joins its buses.
LEAST_IMPEDANCE = 1e-7
_ISOLATED = 4


@dataclass(frozen=True, eq=False)
class Injections:
    """DC lines or storage as generators, in megawatts."""

    low: Floats  # shape (rows, ends, 2); lower bounds on active and reactive power
    high: Floats  # upper bounds
    cost: Costs  # costs of active power at the first end
    rating: Floats  # bounds on apparent power
    loss: Floats  # internal resistance r in per unit, which loses r (p^2 + q^2) / w
    drop: Floats  # shape (rows, 2): p_to = -(1 - loss1) p_from - loss0


def dc_lines(tables: Tables, rows: Ints) -> Injections:
    """Return the ends of the DC lines in service."""
    file, table = tables.name, tables.dcline[rows]
    if len(rows) and table.shape[1] < _DC_COLUMNS:
        raise CaseError(
            f"{file}: dcline has {table.shape[1]} columns, lines in service need {_DC_COLUMNS}, to "
            "their losses. Complete the rows."
        )
    if not len(rows):
        table = np.zeros((0, _DC_COLUMNS))
    for column, label in ((15, "loss0"), (16, "loss1")):
        finite(file, "dcline", rows, label, table[:, column])
    within(file, "dcline", rows, "loss1", table[:, 16], 0.99, "per MW")
    table = limits(table[:, :_DC_COLUMNS])
    least, most = table[:, 9], table[:, 10]
    ordered(file, "dcline", rows, "Pmin", least, "Pmax", most)
    ordered(file, "dcline", rows, "QminF", table[:, 11], "QmaxF", table[:, 12])
    ordered(file, "dcline", rows, "QminT", table[:, 13], "QmaxT", table[:, 14])
    low = np.full((len(rows), 2, 2), -np.inf)
    high = np.full((len(rows), 2, 2), np.inf)
    # Limits of flow hold at the end where it enters, as in MATPOWER's toggle_dcline.
    high[:, 0, 0] = np.where(least >= 0, -least, np.inf)
    low[:, 0, 0] = np.where(most >= 0, -most, -np.inf)
    low[:, 1, 0] = np.where(least < 0, least, -np.inf)
    high[:, 1, 0] = np.where(most < 0, most, np.inf)
    low[:, :, 1], high[:, :, 1] = table[:, [11, 13]], table[:, [12, 14]]
    cost = free(len(rows))
    if len(tables.dclinecost):
        if len(tables.dclinecost) != len(tables.dcline):
            raise CaseError(
                f"{file}: dclinecost has {len(tables.dclinecost)} rows for {len(tables.dcline)} "
                "DC lines, so costs cannot be assigned. Give one row per row of dcline."
            )
        cost = reversed_costs(read_costs(file, "dclinecost", tables.dclinecost, rows))
    return Injections(
        low=low,
        high=high,
        cost=cost,
        rating=np.full(len(rows), np.inf),
        loss=np.zeros(len(rows)),
        drop=table[:, 15:17],
    )


def storage(tables: Tables, rows: Ints, voltage: Floats) -> Injections:
    """Return the storage in service over one period.

    Storage discharges at most its rating and its energy, and charges at most its rating and its
    free capacity. It loses a constant, and a loss from its current; in a relaxation it may lose
    more.

    Parameters
    ----------
    tables : Tables
    rows : ndarray of int
        Rows of the storage table.
    voltage : ndarray
        Lower voltage limit at the bus of each storage, in per unit.
    """
    file = tables.name
    table = tables.storage[rows] if len(rows) else np.zeros((0, 17))
    for column, label in enumerate("bus ps qs energy energy_rating".split()):
        finite(file, "storage", rows, label, table[:, column])
    for column, label, most in (
        (3, "energy", np.inf), (4, "energy_rating", np.inf), (5, "charge_rating", np.inf),
        (6, "discharge_rating", np.inf), (7, "charge_efficiency", 1.0),
        (8, "discharge_efficiency", 1.0), (9, "thermal_rating", np.inf), (12, "r", 1e6),
    ):  # fmt: skip
        within(file, "storage", rows, label, table[:, column], min(most, 1e9), "", least=0)
    for column, label in ((14, "p_loss"), (15, "q_loss")):
        finite(file, "storage", rows, label, table[:, column])
    ordered(file, "storage", rows, "energy", table[:, 3], "energy_rating", table[:, 4])
    ordered(file, "storage", rows, "qmin", table[:, 10], "qmax", table[:, 11])
    for row in rows[table[:, 13] != 0]:
        raise CaseError(
            f"{file}: storage row {row + 1} has a reactance x, for which the model has no "
            "equation. Write 0, and connect the storage to a new bus by a branch with this "
            "reactance."
        )
    for row in rows[(table[:, 7] == 0) | (table[:, 8] == 0)]:
        raise CaseError(
            f"{file}: storage row {row + 1} has an efficiency of 0, so that energy is lost "
            "altogether. Write a number up to 1, or switch the row off."
        )
    if not 1 / _MOST_HOURS <= tables.hours <= _MOST_HOURS:
        raise CaseError(
            f"{file}: time_elapsed is outside {1 / _MOST_HOURS:g} to {_MOST_HOURS:g} hours. Write "
            "hours, usually 1."
        )
    energy, room = table[:, 3], table[:, 4] - table[:, 3]
    gives = np.minimum(table[:, 6], table[:, 8] * energy / tables.hours)
    takes = np.minimum(table[:, 5], room / table[:, 7] / tables.hours)
    most, resistance = table[:, 9], table[:, 12] / tables.base_mva
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(resistance > 0, resistance * most**2 / voltage**2, 0.0)
    low = np.stack((-takes - table[:, 14] - lost, -table[:, 11] - np.minimum(table[:, 15], 0)), 1)
    high = np.stack((gives - table[:, 14], -table[:, 10] - np.maximum(table[:, 15], 0)), 1)
    return Injections(
        low=low[:, None],
        high=high[:, None],
        cost=free(len(rows)),
        rating=most,
        loss=table[:, 12],
        drop=np.zeros((len(rows), 2)),
    )


def joined(tables: Tables) -> Tables:
    """Return the tables with joined buses merged into one, under the lowest id.

    Closed switches join buses, and so do lines in service with no or almost no impedance. Further
    lines between joined buses carry no power, and their charging becomes a shunt.
    """
    closed, short = _closed(tables), _short(tables)
    pairs = [*tables.switch[closed, :2].tolist(), *tables.branch[short, :2].tolist()]
    kinds = dict(zip(tables.bus[:, 0].tolist(), tables.bus[:, 1].tolist(), strict=True))
    graph = nx.Graph()
    for ends in pairs:
        if _ISOLATED not in (kinds[ends[0]], kinds[ends[1]]):
            graph.add_edge(*ends)
    if not graph:
        return tables
    heads = {bus: min(part) for part in nx.connected_components(graph) for bus in part}
    bus, branch = tables.bus.copy(), tables.branch.copy()
    idle = _between_joined(tables, heads)
    position = {number: at for at, number in enumerate(bus[:, 0].tolist())}
    for number, head in heads.items():
        if number != head:
            at, into = position[number], position[head]
            bus[into, 2:6] += bus[at, 2:6]
            bus[into, 11] = min(bus[into, 11], bus[at, 11])
            bus[into, 12] = max(bus[into, 12], bus[at, 12])
    for row in idle:
        bus[position[heads[branch[row, 0]]], 5] += tables.base_mva * branch[row, 4]
    branch[idle, 10] = 0
    gone = [position[number] for number, head in heads.items() if number != head]
    what = [f"{len(closed)} closed switch{'es' * (len(closed) > 1)}"] if len(closed) else []
    if len(short):
        rows = ", ".join(str(row + 1) for row in short)
        what.append(f"lines with an impedance below {LEAST_IMPEDANCE:g} per unit (branch {rows})")
    note = (
        f"{tables.name}: {' and '.join(what)} join {len(heads)} buses into "
        f"{len(set(heads.values()))}; their ratings are not kept."
    )

    def renamed(matrix: Floats, columns: int) -> Floats:
        matrix = matrix.copy()
        for column in range(columns if len(matrix) else 0):
            matrix[:, column] = [heads.get(number, number) for number in matrix[:, column].tolist()]
        return matrix

    return replace(
        tables,
        bus=np.delete(bus, gone, axis=0),
        gen=renamed(tables.gen, 1),
        branch=renamed(branch, 2),
        dcline=renamed(tables.dcline, 2),
        storage=renamed(tables.storage, 1),
        notes=(*tables.notes, note),
    )


def _closed(tables: Tables) -> Ints:
    """Return the rows of closed switches in service between existing buses."""
    table = tables.switch
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    rows = np.arange(len(table))
    for column, label in ((0, "f_bus"), (1, "t_bus"), (4, "state"), (6, "status")):
        finite(tables.name, "switch", rows, label, table[:, column])
    closed = rows[(table[:, 4] != 0) & (table[:, 6] != 0)]
    for row in closed:
        for bus in table[row, :2]:
            if bus not in tables.bus[:, 0]:
                raise CaseError(
                    f"{tables.name}: switch row {row + 1} refers to bus {bus:g}, which is not in "
                    "the bus matrix. Add the bus or correct the row."
                )
    return closed


def _short(tables: Tables) -> Ints:
    """Return the rows of lines in service between two existing buses with almost no impedance."""
    table = tables.branch
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    small = (np.abs(table[:, 2:4]) < LEAST_IMPEDANCE).all(axis=1)
    ends = np.isin(table[:, :2], tables.bus[:, 0]).all(axis=1) & (table[:, 0] != table[:, 1])
    return np.flatnonzero(_plain(table) & small & ends & (table[:, 10] == 1))


def _plain(branch: Floats) -> NDArray[np.bool_]:
    """Return which branches are no transformers off their nominal ratio, and no phase shifters."""
    return np.isin(branch[:, 8], (0, 1)) & (branch[:, 9] == 0)


def _between_joined(tables: Tables, heads: Mapping[float, float]) -> Ints:
    """Return the rows of lines in service whose two ends are joined to one bus."""
    table = tables.branch
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    first, second = (
        np.array([heads.get(number, number) for number in table[:, end].tolist()]) for end in (0, 1)
    )
    inside = (first == second) & (table[:, 0] != table[:, 1]) & (table[:, 10] != 0)
    return np.flatnonzero(inside & _plain(table) & np.isfinite(table[:, 4]))
