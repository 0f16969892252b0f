"""Partitions of the buses into zones, given by the user or computed."""

from __future__ import annotations

import csv
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import text
from .case import Case
from .errors import CaseError
from .partition import partition
from .sources import CASES

BUNDLED_MAPS = {
    "pglib_opf_case14_ieee": "case14_3zones.csv",
    "pglib_opf_case118_ieee": "case118_3zones.csv",
}
_DEFAULT_COUNT = 3
_BUS = re.compile("[0-9]{1,15}")

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Zones:
    """A partition of the buses of a case. All positions refer to the arrays of the case.

    Attributes
    ----------
    names : tuple of str
        Labels of the zones, in the order of their index.
    of_bus : ndarray of int, shape (buses,)
        Zone index of every bus.
    ties : ndarray of int
        Branches whose ends lie in different zones.
    buses : tuple of ndarray of int
        Own buses of each zone.
    branches : tuple of ndarray of int
        Branches with at least one end in each zone.
    neighbors : tuple of ndarray of int
        Buses of other zones at the far end of each zone's tie lines.
    """

    names: tuple[str, ...]
    of_bus: Ints
    ties: Ints
    buses: tuple[Ints, ...]
    branches: tuple[Ints, ...]
    neighbors: tuple[Ints, ...]


def read_zones(source: Mapping[int, Hashable] | str | Path | int | None, case: Case) -> Zones:
    """Divide the buses of a case into zones.

    Parameters
    ----------
    source : mapping, str, Path, int or None
        Mapping from bus id to zone label; ``"area"`` or ``"zone"`` for these columns of the case;
        path of a CSV file with the columns bus and zone (a header is optional); number of zones,
        for a balanced partition into connected zones that depends on the network only; or None for
        the bundled map of cases 14 and 118, and for other cases 3 zones (fewer if the network has
        less than 5 buses). A zone that you give need not be connected.
    case : Case
        The network.

    Returns
    -------
    Zones
        Partition; zones that you give are sorted by label, numbers before words.

    Raises
    ------
    CaseError
        If a bus of the case has no zone, a bus is unknown, a zone has no bus in service, the number
        of zones is impossible, or a file cannot be read.
    """
    if source is None:
        source = _default(case)
    if isinstance(source, int | np.integer) and not isinstance(source, bool):
        return _counted(case, int(source))
    if isinstance(source, str) and source in ("area", "zone"):
        column = case.bus.area if source == "area" else case.bus.zone
        return _labeled(case, dict(zip(_ids(case), column.tolist(), strict=True)), source)
    if isinstance(source, str | Path):
        path = Path(source)
        return _labeled(case, _read_csv(path), path.name)
    if isinstance(source, Mapping):
        return _labeled(case, source, "zones")
    raise CaseError(
        f"Zones are given by a mapping, a path, 'area', 'zone', a number or None, not by a "
        f"{type(source).__name__}. Write for example read_zones(3, case)."
    )


def _default(case: Case) -> Path | int:
    if case.name in BUNDLED_MAPS:
        return CASES / BUNDLED_MAPS[case.name]
    return min(_DEFAULT_COUNT, (len(case.bus.id) + 1) // 2)


def _counted(case: Case, count: int) -> Zones:
    total = len(case.bus.id)
    if not 1 <= count <= total:
        raise CaseError(
            f"{case.name} with {total} buses cannot be divided into {count} zones, each with a "
            f"bus of its own. Give a number between 1 and {total}."
        )
    pairs = zip(case.pairs.first.tolist(), case.pairs.second.tolist(), strict=True)
    of_bus = partition(total, list(pairs), count)
    return divided(case, of_bus, tuple(str(number) for number in range(1, count + 1)))


def _ids(case: Case) -> list[int]:
    return case.bus.id.tolist()


def _read_csv(path: Path) -> dict[int, str]:
    lines = text(
        path,
        path.name,
        CaseError,
        "Give the path of a CSV file with the columns bus and zone, 'area', 'zone', or a number "
        "of zones.",
    ).split("\n")
    zones: dict[int, str] = {}
    header_allowed = True
    for number, line in enumerate(lines, start=1):
        cells = _cells(line)
        if not line.strip(" \t,;") or line.lstrip().startswith("#"):
            continue
        # A header begins with a letter; any other first line is an entry, and must be valid.
        header = header_allowed and cells[0][:1].isalpha()
        header_allowed = False
        if len(cells) != 2 or not all(cells) or not (header or _BUS.fullmatch(cells[0])):
            raise CaseError(
                f"{path.name}: line {number} is not a bus id and a zone; buses would be left "
                "without zone. Write two columns such as '7,2'."
            )
        if header:
            continue
        bus = int(cells[0])
        if bus in zones:
            raise CaseError(
                f"{path.name}: line {number} gives bus {bus} a zone again; a bus belongs to one "
                "zone. Remove one of the lines."
            )
        zones[bus] = cells[1]
    return zones


def _cells(line: str) -> list[str]:
    """Return the cells of a line; a single empty cell if it is no valid line of a CSV file."""
    try:
        rows = list(csv.reader([line], strict=True))
    except csv.Error:
        return [""]
    return [cell.strip() for cell in rows[0]] if rows else []


def _labeled(case: Case, label: Mapping[int, Hashable], where: str) -> Zones:
    ids = _ids(case)
    known = {*ids, *case.isolated}
    unknown = [bus for bus in label if bus not in known]
    if unknown:
        raise CaseError(
            f"{where}: {_listed(unknown)} not in {case.name}; the map belongs to another network. "
            "Remove these entries or correct the ids."
        )
    missing = [bus for bus in ids if bus not in label]
    if missing:
        raise CaseError(
            f"{where}: {_listed(missing)} without a zone; every bus needs one agent that has its "
            "load. Add an entry for each."
        )
    names = sorted({str(zone) for zone in label.values()}, key=_label_order)
    index = {zone: at for at, zone in enumerate(names)}
    of_bus = np.array([index[str(label[bus])] for bus in ids], dtype=np.int64)
    for at, zone in enumerate(names):
        if not np.any(of_bus == at):
            raise CaseError(
                f"{where}: zone {zone} has no bus in service in {case.name}; its agent would have "
                "nothing to solve. Remove the zone or give it a bus."
            )
    return divided(case, of_bus, tuple(names))


def _label_order(zone: str) -> tuple[bool, int, str]:
    number = _BUS.fullmatch(zone)
    return (number is None, int(zone) if number else 0, zone)


def _listed(buses: list[int]) -> str:
    shown = ", ".join(str(bus) for bus in buses[:5])
    more = f" and {len(buses) - 5} more" if len(buses) > 5 else ""
    return f"bus{'es' if len(buses) > 1 else ''} {shown}{more} {'are' if len(buses) > 1 else 'is'}"


def divided(case: Case, of_bus: Ints, names: tuple[str, ...]) -> Zones:
    """Return the partition of a network from the zone of each bus.

    Parameters
    ----------
    case : Case
    of_bus : ndarray of int, shape (buses,)
        Index of the zone of each bus.
    names : tuple of str
        Labels of the zones.
    """
    start, end = of_bus[case.branch.from_bus], of_bus[case.branch.to_bus]
    buses, branches, neighbors = [], [], []
    for zone in range(len(names)):
        own = np.flatnonzero(of_bus == zone)
        touching = np.flatnonzero((start == zone) | (end == zone))
        ends = np.concatenate((case.branch.from_bus[touching], case.branch.to_bus[touching]))
        buses.append(own)
        branches.append(touching)
        neighbors.append(np.setdiff1d(ends, own))
    return Zones(
        names=names,
        of_bus=of_bus,
        ties=np.flatnonzero(start != end),
        buses=tuple(buses),
        branches=tuple(branches),
        neighbors=tuple(neighbors),
    )
