"""pandapower nets as the tables of a MATPOWER case: what they cannot hold is refused in words."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .errors import CaseError
from .matpower import COLUMNS

Floats = NDArray[np.float64]

# pandapower writes 99999 kA times the voltage for a missing limit of a line.
_UNLIMITED_RATE = 1e6
_CONSTANT_POWER = (
    "replace them by loads or static generators (net.load, net.sgen) of constant power"
)
_REFUSED = {
    "asymmetric_load": (
        "loads that differ between phases",
        "enter the sum of the three phases as net.load",
    ),
    "asymmetric_sgen": (
        "static generators that differ between phases",
        "enter the sum of the three phases as net.sgen",
    ),
    "xward": ("extended Ward equivalents", "replace them by net.ward, or by an external grid"),
    "dcline": (
        "DC lines",
        "replace each by two controllable generators, one at each end, or take it out of service",
    ),
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
# Tables of what takes or gives power at a bus.
_AT_BUSES = ("load", "gen", "sgen", "storage", "motor", "ward", "shunt")
_SOURCES = ("ext_grid", "gen")
_SHOWN = 5


def from_pandapower(net: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Matrices in MATPOWER's columns, and the name of the net.

    Parameters
    ----------
    net : pandapowerNet

    Returns
    -------
    fields : dict
        ``baseMVA`` and arrays by name.
    name : str

    Raises
    ------
    CaseError
        pandapower is not installed, or the net has what the model cannot represent.
    """
    name = str(net.get("name") or "pandapower net")
    try:
        convert = importlib.import_module("pandapower.converter.pypower.to_ppc").to_ppc
    except ImportError:
        raise CaseError(
            f"{name} looks like a pandapower net, and the package pandapower that converts it is "
            "not installed. Run pip install 'dpcvx[networks]', or give a ppc dict."
        ) from None
    check_elements(net, name)
    scratch: Any = copy.deepcopy(net)  # the conversion leaves its intermediate results in the net
    _drop_vector_groups(scratch)
    try:
        ppc = convert(scratch, init="flat", mode="opf", trafo_model="pi", check_connectivity=False)
    except (KeyError, ValueError, UserWarning) as error:
        raise CaseError(
            f"{name}: pandapower cannot convert this net for optimal power flow "
            f"({type(error).__name__}); its log says which columns are missing. Fill in the limits "
            "of generators and external grids, then try again."
        ) from None
    # Its branches are complex, with imaginary parts 0.
    fields = {f: np.array(np.real(ppc[f]), dtype=np.float64) for f in COLUMNS if f in ppc}
    bus, gen, branch = fields["bus"], fields["gen"], fields["branch"]
    _free_slack(bus, scratch)
    _iron_losses(bus, branch, ppc, name)
    branch[branch[:, 5] >= _UNLIMITED_RATE, 5] = 0
    ids = _bus_numbers(scratch, len(bus))
    bus[:, 0] = ids
    gen[:, 0] = ids[gen[:, 0].astype(int)]
    branch[:, :2] = ids[branch[:, :2].astype(int)]
    return {**fields, "baseMVA": ppc["baseMVA"]}, name


def check_elements(net: Mapping[str, Any], name: str) -> None:
    """Refuse what the conversion would leave out, or take for something else, without a word.

    Parameters
    ----------
    net : pandapowerNet
    name : str
        For messages.

    Raises
    ------
    CaseError
        The first such element, with what to do about it. Loads are never shown.
    """
    for table, (what, remedy) in _REFUSED.items():
        rows = _in_service(net, table)
        if rows:
            raise CaseError(
                f"{name}: net.{table} has {what} ({_listed(rows)}), for which this balanced AC "
                f"power flow has no equations. To go on, {remedy}."
            )
    _check_constant_power(net, name)
    _check_supplied(net, name)
    _check_limits(net, name)


def _check_constant_power(net: Mapping[str, Any], name: str) -> None:
    load = net["load"]
    for column in [c for c in load.columns if str(c).startswith(("const_z_", "const_i_"))]:
        share = load[column].to_numpy(dtype=np.float64)
        rows = load.index[(share != 0) & load["in_service"].to_numpy(dtype=bool)].tolist()
        if rows:
            raise CaseError(
                f"{name}: loads {_listed(rows)} draw power that depends on voltage ({column} is "
                "not 0), and would be taken for constant power. Write "
                f"net.load['{column}'] = 0, or model the constant impedance as net.shunt."
            )


def _check_limits(net: Mapping[str, Any], name: str) -> None:
    for table in ("line", "trafo", "trafo3w"):
        column = "max_loading_percent"
        if table in net and column in net[table]:
            missing = np.isnan(net[table][column].to_numpy(dtype=np.float64))
            rows = [
                at for at in net[table].index[missing].tolist() if at in _in_service(net, table)
            ]
            if rows:
                raise CaseError(
                    f"{name}: net.{table} {_listed(rows)} without {column}, while others have one: "
                    "it is not known what they may carry. Write 100 for the rated current, or a "
                    "large number for no limit."
                )


def _check_supplied(net: Mapping[str, Any], name: str) -> None:
    """Refuse islands that nothing supplies, and buses that no branch reaches."""
    slack = net["gen"]["slack"] & net["gen"]["in_service"] if "slack" in net["gen"] else ()
    if not _in_service(net, "ext_grid") and not np.any(slack):
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
                f"{name}: {have.format(_listed(left))} loads or other elements and no path to an "
                "external grid or a generator through lines, transformers and closed switches: "
                "the net is not connected. Close a switch, or put a line back into service; give "
                "the island an external grid of its own; or take its buses out of service "
                "(net.bus.in_service)."
            )


def _buses_of(net: Mapping[str, Any], tables: tuple[str, ...]) -> set[int]:
    """Buses in service with elements in service of these tables."""
    found: set[int] = set()
    for table in tables:
        rows = _in_service(net, table)
        if rows:
            found |= {int(bus) for bus in net[table].loc[rows, "bus"]}
    return found & set(_in_service(net, "bus"))


def _in_service(net: Mapping[str, Any], table: str) -> list[int]:
    """Indices of the elements in service; none where the net has no such table."""
    if table not in net or not len(net[table]):
        return []
    found = net[table]
    if "in_service" not in found:
        return found.index.tolist()
    return found.index[found["in_service"].to_numpy(dtype=bool)].tolist()


def _listed(rows: list[int]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return ", ".join(str(row) for row in rows[:_SHOWN]) + more


def _drop_vector_groups(net: Any) -> None:
    """Keep what a transformer shifts beyond a multiple of 30 degrees.

    The multiple cancels around every loop of a sound net, but exceeds the default angle limits.
    """
    for table, column in (
        ("trafo", "shift_degree"),
        ("trafo3w", "shift_mv_degree"),
        ("trafo3w", "shift_lv_degree"),
    ):
        if table in net and column in net[table]:
            shift = net[table][column].to_numpy(dtype=np.float64)
            net[table][column] = shift - 30 * np.round(shift / 30)


def _free_slack(bus: Floats, net: Any) -> None:
    """Bounds of the buses themselves, where pandapower fixes the voltage of external grids."""
    place = net["_pd2ppc_lookups"]["bus"]
    for at in net["ext_grid"]["bus"][net["ext_grid"]["in_service"]]:
        for name, column in (("max_vm_pu", 11), ("min_vm_pu", 12)):
            if name in net["bus"] and np.isfinite(net["bus"].at[at, name]):
                bus[place[at], column] = net["bus"].at[at, name]


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


def _bus_numbers(net: Any, count: int) -> NDArray[np.int64]:
    """Lowest pandapower index plus 1 of every converted bus; new numbers for auxiliary buses."""
    place = net["_pd2ppc_lookups"]["bus"]
    used = net["bus"].index[net["bus"]["in_service"]].to_numpy()
    numbers = int(net["bus"].index.max()) + 2 + np.arange(count)
    for index in np.sort(used)[::-1]:
        if 0 <= place[index] < count:
            numbers[place[index]] = index + 1
    return numbers
