"""Set points written back to a MATPOWER file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .ac import checked, served_loads
from .case import Case
from .extensions import joined
from .matpower import COLUMNS, Tables
from .solution import State
from .sources import Source, tables

Floats = NDArray[np.float64]

_PV, _REFERENCE, _ISOLATED = 2, 3, 4


def write_set_points(
    path: str | Path, source: Source, case: Case, state: State, load: Floats | None = None
) -> Path:
    """Write a MATPOWER file with the set points of a point.

    Active and reactive power and voltages of generators, ends of DC lines, and storage are those of
    the point; voltages of buses are those of the AC power flow from there, if there is one. Its
    slack buses are the reference buses of the file, so that MATPOWER's ``runpf`` finds it again.

    Parameters
    ----------
    path : str or Path
        File to write, replaced if it exists.
    source
        What `case` was read from: its other columns, and what is out of service, are kept.
    case : Case
    state : State
    load : ndarray, shape (buses, 2), optional
        Loads to write, in per unit. If omitted, those that the point serves: of released values
        these are released too. The true loads in a file are not private.

    Returns
    -------
    Path
    """
    point = set_points(joined(tables(source)), case, state, load)
    path = Path(path)
    path.write_text(matpower_text(point, path.stem), encoding="utf-8")
    return path


def set_points(source: Tables, case: Case, state: State, load: Floats | None = None) -> Tables:
    """Return the tables with the set points of a point; see `write_set_points`."""
    demand = served_loads(case, state) if load is None else load
    flow = checked(case, state, demand, "served").flow
    base, gen = case.base_mva, case.gen
    size = np.sqrt(np.maximum(state.w, 0.0))
    bus, machines = source.bus.copy(), source.gen.copy()
    dcline, storage = source.dcline.copy(), source.storage.copy()
    at = {int(number): row for row, number in enumerate(bus[:, 0])}
    rows = np.array([at[int(number)] for number in case.bus.id], dtype=np.int64)
    bus[rows, 2:4] = base * demand
    bus[rows, 7] = np.abs(flow.voltage) if flow.converged else size
    bus[rows, 8] = np.degrees(np.angle(flow.voltage)) if flow.converged else 0.0
    bus[rows, 1] = 1
    bus[rows[gen.bus], 1] = _PV
    bus[rows[flow.slack], 1] = _REFERENCE
    power = base * np.column_stack((state.pg, state.qg))
    own = gen.kind == "gen"
    machines[gen.row[own] - 1, 1:3] = power[own]
    machines[gen.row[own] - 1, 5] = size[gen.bus[own]]
    links, lines = case.links, gen.row[case.links.start] - 1
    if len(lines):
        ends = links.start, links.end
        dcline[lines, 3:5] = np.column_stack((-power[ends[0], 0], power[ends[1], 0]))
        dcline[lines, 5:7] = np.column_stack([power[end, 1] for end in ends])
        dcline[lines, 7:9] = np.column_stack([size[gen.bus[end]] for end in ends])
    stores = gen.kind == "storage"
    if stores.any():
        storage[gen.row[stores] - 1, 1:3] = -power[stores]
    return replace(source, bus=bus, gen=machines, dcline=dcline, storage=storage)


def matpower_text(case: Tables, name: str) -> str:
    """Return the text of a MATPOWER file with all numbers to the last digit.

    Parameters
    ----------
    case : Tables
    name : str
        Of the function; letters, digits and underscores of it are used.
    """
    word = "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in name)
    if not word[:1].isalpha():
        word = f"case_{word}"
    lines = [f"function mpc = {word}", "mpc.version = '2';", f"mpc.baseMVA = {case.base_mva!r};"]
    if len(case.storage):
        lines.append(f"mpc.time_elapsed = {case.hours!r};")
    for field in COLUMNS:
        table = getattr(case, field)
        if len(table) or field in ("bus", "gen", "branch"):
            rows = ["\t" + "\t".join(_written(value) for value in row) + ";" for row in table]
            lines += [f"mpc.{field} = [", *rows, "];"]
    return "\n".join(lines) + "\n"


def _written(value: float) -> str:
    number = float(value)
    if not np.isfinite(number):
        return "NaN" if np.isnan(number) else "Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(number)
