"""Set points written back to a MATPOWER file or a pandapower net."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .ac import checked, served_loads
from .case import Case
from .errors import CaseError
from .extensions import joined
from .matpower import COLUMNS, Tables
from .pandapower_costs import in_service
from .pandapower_nets import places
from .solution import State
from .sources import Source, tables

Floats = NDArray[np.float64]

_PV, _REFERENCE, _ISOLATED = 2, 3, 4
# Tables of a pandapower net with power that counts as load unless it is controlled, and the columns
# of this power.
_FIXED = {
    "load": ("p_mw", "q_mvar"),
    "sgen": ("p_mw", "q_mvar"),
    "storage": ("p_mw", "q_mvar"),
    "ward": ("ps_mw", "qs_mvar"),
    "xward": ("ps_mw", "qs_mvar"),
}
_PHASES = ("motor", "asymmetric_load", "asymmetric_sgen")
_CONSUME = ("load", "storage")
# Loads below this, in per unit, are attributed to the solver's accuracy.
_SERVED = 1e-6


def write_set_points(
    path: str | Path, source: Source, case: Case, state: State, load: Floats | None = None
) -> Path:
    """Write a MATPOWER file with the set points of a network state.

    Active and reactive power and voltages of generators, ends of DC lines, and storage are taken
    from the state. Voltages of buses are taken from the AC power flow at these set points, if there
    is one. Its slack buses are the reference buses of the file, so that MATPOWER's ``runpf`` finds
    the power flow again. Costs and limits are those of the source: a file with private bids or
    capacities is not private.

    Parameters
    ----------
    path : str or Path
        File to write, replaced if it exists.
    source
        Source of `case`; the file keeps its other columns and its elements out of service.
    case : Case
    state : State
        Network state with the set points.
    load : ndarray, shape (buses, 2), optional
        Loads to write, in per unit. If omitted, the loads that the state serves, which are
        post-processing of a released state. A file with the true loads is not private.

    Returns
    -------
    Path
        The file.
    """
    point = set_points(joined(tables(source)), case, state, load)
    path = Path(path)
    path.write_text(matpower_text(point, path.stem), encoding="utf-8")
    return path


def set_points(source: Tables, case: Case, state: State, load: Floats | None = None) -> Tables:
    """Return the tables with the set points of a network state; see `write_set_points`."""
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
    listed = gen.kind == "gen"
    machines[gen.row[listed] - 1, 1:3] = power[listed]
    machines[gen.row[listed] - 1, 5] = size[gen.bus[listed]]
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


def net_with_set_points(
    net: Mapping[str, Any], case: Case, state: State, load: Floats | None = None
) -> Any:
    """Return a copy of a pandapower net with the set points of a network state.

    Generators, DC lines and external grids get the active power and the voltages of the state.
    Controllable static generators, loads and storage get its active and reactive power. In
    ``pandapower.runpp``, external grids supply the difference in losses.

    Parameters
    ----------
    net : pandapowerNet
        Network that `case` was read from; not changed.
    case : Case
    state : State
        Network state with the set points.
    load : ndarray, shape (buses, 2), optional
        Loads of the copy, in per unit. If omitted, the loads that the state serves, which are
        post-processing of a released state. A net with the true loads is not private.

    Returns
    -------
    pandapowerNet
        Copy in which all elements with fixed power at a bus are replaced by one load.

    Raises
    ------
    CaseError
        If `case` belongs to another net, or a load is at the star point of a transformer.
    """
    where, demand = places(net), served_loads(case, state) if load is None else load
    written, base, size = copy.deepcopy(net), case.base_mva, np.sqrt(np.maximum(state.w, 0.0))
    at = {
        int(row): position
        for position, row in enumerate(case.gen.row)
        if case.gen.kind[position] == "gen"
    }
    if not set(where.gen.values()) <= set(at) or not set(where.bus.values()) <= set(case.bus.id):
        raise CaseError(
            f"{case.name} was read from another net: it does not contain the elements of this "
            "net. Pass the net that you passed to read_case."
        )
    for (name, element), row in where.gen.items():
        table, position = written[name], at[row]
        power = base * np.array([state.pg[position], state.qg[position]])
        if name in ("gen", "ext_grid"):
            table.loc[element, "vm_pu"] = size[case.gen.bus[position]]
        if name == "gen":
            table.loc[element, ["p_mw", "scaling"]] = [power[0], 1.0]
        elif name != "ext_grid":
            signed = -power if name in _CONSUME else power
            table.loc[element, ["p_mw", "q_mvar", "scaling"]] = [*signed, 1.0]
    lines = in_service(net, "dcline")
    for start, end in zip(case.links.start, case.links.end, strict=True):
        element, line = lines[case.gen.row[start] - 1], written["dcline"]
        power = -base * float(state.pg[start])
        sends = float(line.at[element, "p_mw"]) > 0
        line.loc[element, "p_mw"] = power if sends else -power
        for side, position in zip(
            ("from", "to"), (start, end) if sends else (end, start), strict=True
        ):
            line.loc[element, f"vm_{side}_pu"] = size[case.gen.bus[position]]
    for name, columns in _FIXED.items():
        if name in written and len(written[name]):
            fixed = [row for row in written[name].index if (name, row) not in where.gen]
            written[name].loc[fixed, list(columns)] = 0.0
    for name in _PHASES:
        if name in written and len(written[name]):
            written[name]["in_service"] = False
    heads = {number: index for index, number in sorted(where.bus.items(), reverse=True)}
    create = importlib.import_module("pandapower").create_load
    for number, (active, reactive) in zip(case.bus.id.tolist(), demand.tolist(), strict=True):
        if max(abs(active), abs(reactive)) <= _SERVED:
            continue
        if number not in heads:
            raise CaseError(
                f"{case.name}: the point serves power at the star point of a transformer, where a "
                "net has no elements. Pass load= with the loads to write."
            )
        create(written, heads[number], base * active, base * reactive, controllable=False)
    return written


def matpower_text(case: Tables, name: str) -> str:
    """Return the text of a MATPOWER file, with all numbers in full precision.

    Parameters
    ----------
    case : Tables
    name : str
        Name of the function; characters other than letters and digits become underscores.
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
