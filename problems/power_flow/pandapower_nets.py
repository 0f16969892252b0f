"""Conversion of pandapower nets to the tables of a MATPOWER case; it refuses other elements."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .errors import CaseError
from .matpower import COLUMNS
from .pandapower_costs import (
    KINDS,
    check_costs,
    controlled,
    cost_table,
    in_service,
    line_costs,
    listed,
)

Floats = NDArray[np.float64]

# For a missing limit, pandapower writes 99999 kA times the voltage (lines), or 99999 MVA
# (transformers and impedances), or 99.999 MVA in nets that once counted in kVA.
_UNLIMITED_RATE = 1e6
_UNLIMITED_MVA = (99999.0, 99.999)
_CONSTANT_POWER = (
    "replace them by loads or static generators (net.load, net.sgen) of constant power"
)
_REFUSED = {
    "svc": (
        "static var compensators",
        "replace them by net.shunt or by generators with limits of Q",
    ),
    "tcsc": ("thyristor-controlled series capacitors", "replace them by net.impedance"),
    "ssc": ("static synchronous compensators", "replace them by generators with limits of Q"),
    "vsc": ("voltage source converters", _CONSTANT_POWER),
    "b2b_vsc": ("back-to-back converters", _CONSTANT_POWER),
    "vsc_stacked": ("stacked converters", _CONSTANT_POWER),
    "vsc_bipolar": ("bipolar converters", _CONSTANT_POWER),
    "line_dc": ("lines of a DC grid", _CONSTANT_POWER),
    "load_dc": ("loads of a DC grid", _CONSTANT_POWER),
    "source_dc": ("sources of a DC grid", _CONSTANT_POWER),
}
# Tables of elements that consume or generate power at a bus.
_AT_BUSES = ("load", "gen", "sgen", "storage", "motor", "ward", "shunt")
_SOURCES = ("ext_grid", "gen")
# Power in megawatts that stands for a missing limit.
_NO_LIMIT = 1e9


def from_pandapower(net: Mapping[str, Any]) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Return matrices in MATPOWER's columns, the name of the net, and notes on missing data.

    Parameters
    ----------
    net : pandapowerNet

    Returns
    -------
    fields : dict
        ``baseMVA``, and arrays by name.
    name : str
        Name of the net.
    notes : tuple of str
        Notes, for example on elements without a cost.

    Raises
    ------
    CaseError
        If pandapower is not installed, or the model cannot represent an element of the net.
    """
    scratch, ppc, name, notes = _converted(net)
    # pandapower's matrices are complex, with imaginary parts of 0.
    fields = {f: np.array(np.real(ppc[f]), dtype=np.float64) for f in COLUMNS if f in ppc}
    bus, gen, branch = fields["bus"], fields["gen"], fields["branch"]
    _free_slack(bus, scratch)
    _iron_losses(bus, branch, ppc, name)
    branch[branch[:, 5] >= _UNLIMITED_RATE, 5] = 0
    branch[_without_limit(scratch, len(branch)), 5] = 0
    if any(len(net.get(table, ())) for table in ("poly_cost", "pwl_cost")):
        fields["gencost"], unpriced = cost_table(net, scratch, len(gen), name)
        notes += unpriced
    ids = _bus_numbers(scratch, len(bus))
    bus[:, 0] = ids
    gen[:, 0] = ids[gen[:, 0].astype(int)]
    branch[:, :2] = ids[branch[:, :2].astype(int)]
    fields |= _dc_lines(net, scratch, ids, name)
    return {**fields, "baseMVA": ppc["baseMVA"]}, name, tuple(notes)


def _converted(net: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any], str, list[str]]:
    """Return a copy of the net with pandapower's lookups, its matrices, its name, and notes."""
    name = str(net.get("name") or "pandapower net")
    try:
        importlib.import_module("pandapower")  # its submodules may be there without it
        convert = importlib.import_module("pandapower.converter.pypower.to_ppc").to_ppc
    except ImportError:
        raise CaseError(
            f"{name} looks like a pandapower net, and the package pandapower that converts it is "
            "not installed. Run pip install 'dpcvx[networks]', or give a ppc dict."
        ) from None
    check_elements(net, name)
    scratch: Any = copy.deepcopy(net)  # the conversion leaves its intermediate results in the net
    for table in ("pwl_cost", "poly_cost"):  # which `cost_table` reads itself
        if table in scratch:
            scratch[table] = scratch[table].iloc[:0]
    if "dcline" in scratch:  # which `_dc_lines` reads
        scratch["dcline"] = scratch["dcline"].iloc[:0]
    _drop_vector_groups(scratch)
    notes = [*_balanced(scratch, name), *_fill_limits(scratch, name)]
    _replace_extended_wards(scratch)
    try:
        ppc = convert(scratch, init="flat", mode="opf", trafo_model="pi", check_connectivity=False)
    except (KeyError, ValueError, UserWarning) as error:
        raise CaseError(
            f"{name}: pandapower cannot convert this net for optimal power flow "
            f"({type(error).__name__}); its log says which columns are missing. Fill them in, then "
            "try again."
        ) from None
    return scratch, ppc, name, notes


@dataclass(frozen=True, eq=False)
class Places:
    """Map from a net's elements to the buses and generators of the case that was read from it.

    Attributes
    ----------
    bus : dict of int
        Id of the case's bus, by index of every bus in service; buses that closed switches join have
        one id.
    gen : dict of int
        Row of the case's generator (from 1), by table and index of every element that can be
        controlled or fixes a voltage.
    """

    bus: dict[int, int]
    gen: dict[tuple[str, int], int]


def places(net: Mapping[str, Any]) -> Places:
    """Return the positions of a pandapower net's elements in ``read_case(net)``.

    Parameters
    ----------
    net : pandapowerNet
    """
    scratch, ppc, _, _ = _converted(net)
    ids, lookups = _bus_numbers(scratch, len(ppc["bus"])), scratch["_pd2ppc_lookups"]
    buses = {
        int(index): int(ids[lookups["bus"][index]])
        for index in in_service(net, "bus")
        if 0 <= lookups["bus"][index] < len(ids)
    }
    rows = {
        (table, element): int(lookups[kind][element]) + 1
        for table, kind in KINDS.items()
        for element in controlled(scratch, table)
        if element in net[table].index
    }
    return Places(buses, rows)


def check_elements(net: Mapping[str, Any], name: str) -> None:
    """Refuse elements that pandapower's conversion would silently omit or change.

    Parameters
    ----------
    net : pandapowerNet
    name : str
        Name for messages.

    Raises
    ------
    CaseError
        If there is such an element; the text names the first one and a fix, and shows no loads.
    """
    for table, (what, remedy) in _REFUSED.items():
        rows = in_service(net, table)
        if rows:
            raise CaseError(
                f"{name}: net.{table} has {what} ({listed(rows)}), for which this balanced AC "
                f"power flow has no equations. To go on, {remedy}."
            )
    _check_constant_power(net, name)
    _check_supplied(net, name)
    _check_limits(net, name)
    check_costs(net, name)


def _check_constant_power(net: Mapping[str, Any], name: str) -> None:
    load = net["load"]
    for column in [c for c in load.columns if str(c).startswith(("const_z_", "const_i_"))]:
        share = load[column].to_numpy(dtype=np.float64)
        rows = load.index[(share != 0) & load["in_service"].to_numpy(dtype=bool)].tolist()
        if rows:
            raise CaseError(
                f"{name}: loads {listed(rows)} draw power that depends on voltage ({column} is "
                f"not 0), but the model would treat it as constant. Write net.load['{column}'] = "
                "0, or model the constant impedance as net.shunt."
            )


def _check_limits(net: Mapping[str, Any], name: str) -> None:
    for table in ("line", "trafo", "trafo3w"):
        column = "max_loading_percent"
        if table in net and column in net[table]:
            missing = np.isnan(net[table][column].to_numpy(dtype=np.float64))
            rows = [at for at in net[table].index[missing].tolist() if at in in_service(net, table)]
            if rows:
                raise CaseError(
                    f"{name}: net.{table} {listed(rows)} without {column}, while others have one: "
                    "it is not known what they may carry. Write 100 for the rated current, or a "
                    "large number for no limit."
                )


def _check_supplied(net: Mapping[str, Any], name: str) -> None:
    """Refuse islands without supply, and buses without branches."""
    slack = net["gen"]["slack"] & net["gen"]["in_service"] if "slack" in net["gen"] else ()
    if not in_service(net, "ext_grid") and not np.any(slack):
        raise CaseError(
            f"{name}: the net has no external grid in service, and no generator with slack=True: "
            "nothing fixes its frequency and angles. Add one with pandapower.create_ext_grid."
        )
    graph = importlib.import_module("pandapower.topology").create_nxgraph(net)
    used, sources = _buses_of(net, _AT_BUSES), _buses_of(net, _SOURCES)
    for island in nx.connected_components(graph):
        left = sorted(island & used)
        if left and (len(island) == 1 or not island & sources):
            have = "bus {} has" if len(left) == 1 else "buses {} have"
            raise CaseError(
                f"{name}: {have.format(listed(left))} loads or other elements and no path to an "
                "external grid or a generator through lines, transformers and closed switches: "
                "the net is not connected. Close a switch, or put a line back into service; give "
                "the island an external grid of its own; or take its buses out of service "
                "(net.bus.in_service)."
            )


def _buses_of(net: Mapping[str, Any], tables: tuple[str, ...]) -> set[int]:
    """Return the buses in service with elements in service of these tables."""
    chosen: set[int] = set()
    for table in tables:
        rows = in_service(net, table)
        if rows:
            chosen |= {int(bus) for bus in net[table].loc[rows, "bus"]}
    return chosen & set(in_service(net, "bus"))


def _drop_vector_groups(net: Any) -> None:
    """Subtract from each transformer's phase shift its nearest multiple of 30 degrees.

    The multiples cancel around every loop of a valid net, but exceed the default angle limits.
    """
    for table, column in (
        ("trafo", "shift_degree"),
        ("trafo3w", "shift_mv_degree"),
        ("trafo3w", "shift_lv_degree"),
    ):
        if table in net and column in net[table]:
            shift = net[table][column].to_numpy(dtype=np.float64)
            net[table][column] = shift - 30 * np.round(shift / 30)


def _balanced(net: Any, name: str) -> list[str]:
    """Replace asymmetric loads and static generators by sums over their phases; return notes."""
    power = importlib.import_module("pandapower")
    notes = []
    for table, create in (
        ("asymmetric_load", power.create_load),
        ("asymmetric_sgen", power.create_sgen),
    ):
        rows = in_service(net, table)
        for row in rows:
            values = net[table].loc[row]
            active, reactive = (
                sum(float(values[f"{kind}_{phase}_{unit}"]) for phase in "abc")
                for kind, unit in (("p", "mw"), ("q", "mvar"))
            )
            create(net, int(values["bus"]), active, reactive, scaling=float(values["scaling"]))
        if rows:
            net[table]["in_service"] = False
            notes.append(
                f"{name}: net.{table} {listed(rows)}: the sum of the three phases is taken, as if "
                "it were balanced."
            )
    return notes


def _replace_extended_wards(net: Any) -> None:
    """Replace extended Wards by Wards, plus an impedance to a bus that holds its voltage."""
    power = importlib.import_module("pandapower")
    for row in in_service(net, "xward"):
        values = net["xward"].loc[row]
        bus, size = int(values["bus"]), float(values["vm_pu"])
        voltage = float(net["bus"].at[bus, "vn_kv"])
        base = voltage**2 / float(net["sn_mva"])
        parts = [float(values[part]) for part in ("ps_mw", "qs_mvar", "pz_mw", "qz_mvar")]
        power.create_ward(net, bus, *parts)
        inner = power.create_bus(net, voltage, min_vm_pu=size, max_vm_pu=size)
        resistance, reactance = float(values["r_ohm"]) / base, float(values["x_ohm"]) / base
        power.create_impedance(net, bus, inner, resistance, reactance, net["sn_mva"])
        power.create_gen(
            net, inner, 0.0, size, controllable=True, min_p_mw=0.0, max_p_mw=0.0,
            min_q_mvar=-_NO_LIMIT, max_q_mvar=_NO_LIMIT,
        )  # fmt: skip
        net["xward"].loc[row, "in_service"] = False


def _fill_limits(net: Any, name: str) -> list[str]:
    """Fill in missing limits on power, which pandapower's conversion requires; return notes."""
    notes = []
    for table in ("gen", "sgen", "load", "storage"):
        rows = in_service(net, table)
        if table != "gen":
            control = net[table]["controllable"] if "controllable" in net[table] else None
            rows = [row for row in rows if control is not None and control.at[row] in (True, 1)]
        for unit, quantity in (("p_mw", "active"), ("q_mvar", "reactive")):
            sides = [f"{side}_{unit}" for side in ("min", "max")]
            for side in sides if rows else ():
                if side not in net[table]:
                    net[table][side] = np.nan
            open_rows = [row for row in rows if net[table].loc[row, sides].isna().any()]
            for row in open_rows:
                if unit in net[table]:
                    size = net[table].at[row, unit] * net[table].at[row, "scaling"]
                    bounds = (size, size)
                else:
                    bounds = (-_NO_LIMIT, _NO_LIMIT)
                for side, bound in zip(sides, bounds, strict=True):
                    if np.isnan(net[table].at[row, side]):
                        net[table].loc[row, side] = bound
            if open_rows:
                held = "kept as it is" if unit in net[table] else "unlimited"
                notes.append(
                    f"{name}: net.{table} {listed(open_rows)} without limits of {quantity} power: "
                    f"it is {held}."
                )
    return notes


def _without_limit(net: Any, count: int) -> NDArray[np.int64]:
    """Return the converted transformers and impedances whose limit stands for a missing one."""
    chosen = np.zeros(count, dtype=np.bool_)
    lookup = net["_pd2ppc_lookups"]["branch"]
    for table, sides in (
        ("trafo", ("sn_mva",)),
        ("trafo3w", ("sn_hv_mva", "sn_mv_mva", "sn_lv_mva")),
        ("impedance", ("sn_mva",)),
    ):
        if table in lookup:
            sizes = np.concatenate([net[table][side].to_numpy(np.float64) for side in sides])
            start, end = lookup[table]
            chosen[start:end] = np.isclose(sizes[:, None], _UNLIMITED_MVA, rtol=1e-9).any(axis=1)
    return np.flatnonzero(chosen)


def _free_slack(bus: Floats, net: Any) -> None:
    """Restore the voltage bounds of buses with external grids, where pandapower fixes voltages."""
    lookup = net["_pd2ppc_lookups"]["bus"]
    for at in net["ext_grid"]["bus"][net["ext_grid"]["in_service"]]:
        for name, column in (("max_vm_pu", 11), ("min_vm_pu", 12)):
            if name in net["bus"] and np.isfinite(net["bus"].at[at, name]):
                bus[lookup[at], column] = net["bus"].at[at, name]


def _iron_losses(bus: Floats, branch: Floats, ppc: Mapping[str, Any], name: str) -> None:
    """Move shunt conductances of branches, which MATPOWER's columns lack, to their buses."""
    uneven = [
        f for f in ("branch_g_asym", "branch_b_asym", "branch_r_asym", "branch_x_asym") if f in ppc
    ]
    losses = np.real(ppc.get("branch_g", np.zeros(len(branch))))
    if uneven or len(losses) != len(branch):
        raise CaseError(
            f"{name}: the net has asymmetric branches, or transformers with iron losses beside "
            "branches out of service, which MATPOWER's columns cannot hold. Remove the elements "
            "out of service, and replace asymmetric impedances."
        )
    tap = np.where(branch[:, 8] == 0, 1.0, branch[:, 8])
    for end, share in ((0, losses / 2 / tap**2), (1, losses / 2)):
        np.add.at(bus[:, 4], branch[:, end].astype(int), ppc["baseMVA"] * share)


def _dc_lines(
    net: Mapping[str, Any], converted_net: Any, ids: NDArray[np.int64], name: str
) -> dict[str, Floats]:
    """Return ``dcline`` and ``dclinecost``; each line sends in the direction of its power."""
    rows = in_service(net, "dcline")
    if not rows:
        return {}
    table, lookup = net["dcline"].loc[rows], converted_net["_pd2ppc_lookups"]["bus"]
    sends = table["p_mw"].to_numpy(np.float64) > 0
    lines = np.zeros((len(rows), 17))
    for end, side in enumerate(("from", "to")):
        # Columns of the sending end and of the receiving end.
        at = np.where(sends == (end == 0), 0, 1)
        every = np.arange(len(rows))
        lines[every, at] = ids[lookup[table[f"{side}_bus"].to_numpy(int)]]
        lines[every, 7 + at] = table[f"vm_{side}_pu"].to_numpy(np.float64)
        for bound, column in (("min", 11), ("max", 12)):
            values = table[f"{bound}_q_{side}_mvar"].to_numpy(np.float64)
            missing = -_NO_LIMIT if bound == "min" else _NO_LIMIT
            lines[every, column + 2 * at] = np.where(np.isnan(values), missing, values)
    loss, share = table["loss_mw"].to_numpy(np.float64), table["loss_percent"] / 100
    most = table["max_p_mw"].to_numpy(np.float64)
    sent = np.abs(table["p_mw"].to_numpy(np.float64))
    lines[:, 2], lines[:, 3], lines[:, 4] = 1, sent, (1 - share) * sent - loss
    # The receiving end sends no power back, so the sending end sends at least the line's loss.
    lines[:, 9], lines[:, 10] = loss / (1 - share), np.where(np.isnan(most), _NO_LIMIT, most)
    lines[:, 15], lines[:, 16] = loss, share
    costs = line_costs(net, rows, name)
    return {"dcline": lines} if costs is None else {"dcline": lines, "dclinecost": costs}


def _bus_numbers(net: Any, count: int) -> NDArray[np.int64]:
    """Return numbers of converted buses: lowest pandapower index plus 1; new ones for auxiliary."""
    lookup = net["_pd2ppc_lookups"]["bus"]
    used = net["bus"].index[net["bus"]["in_service"]].to_numpy()
    numbers = int(net["bus"].index.max()) + 2 + np.arange(count)
    for index in np.sort(used)[::-1]:
        if 0 <= lookup[index] < count:
            numbers[lookup[index]] = index + 1
    return numbers
