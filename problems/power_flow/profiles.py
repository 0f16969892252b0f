"""Factors on loads over the hours, from arrays, CSV files or PyPSA networks."""

from __future__ import annotations

import csv
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import text
from .case import Case, case_of
from .errors import CaseError, CaseWarning
from .hours import Store
from .pypsa_nets import from_pypsa
from .sources import checked_tables

Floats = NDArray[np.float64]

_REMEDY = (
    "Write a header of bus ids, or 'all' for buses without a column, and a row of factors for "
    "every hour."
)
DAY: Floats = 0.75 + 0.2 * np.sin(np.pi / 12 * (np.arange(24) - 8))
"""Factors of a synthetic day: lowest at 2, highest at 14 o'clock."""

_ALL, _HOUR = "all", "hour"


def read_profiles(source: Floats | str | Path | None, case: Case, hours: int) -> Floats:
    """Return factors on the loads of a case.

    Parameters
    ----------
    source : ndarray, str, Path or None
        "day" for `DAY`, repeated; an array of shape (hours,) or (buses, hours); or the path of a
        CSV file with a row for every hour. Its header has bus ids. A column ``all`` is for all
        buses without a column, which otherwise get the factor 1. A column ``hour`` is ignored. None
        gives 1 everywhere.
    case : Case
    hours : int

    Returns
    -------
    ndarray, shape (buses, hours) or (1, hours)
        One row if all buses have the same factors.

    Raises
    ------
    CaseError
        If the file cannot be read, or factors are missing or not finite numbers.
    """
    count = len(case.bus.id)
    if source is None:
        return np.ones((1, hours))
    if isinstance(source, str) and source == "day":
        return DAY[np.arange(hours) % len(DAY)][None, :]
    if isinstance(source, str | Path):
        return _read(Path(source), case, hours)
    factors = np.asarray(source, dtype=np.float64)
    if factors.shape not in ((hours,), (count, hours)) or not np.isfinite(factors).all():
        raise CaseError(
            f"profiles= has shape {factors.shape} or numbers that are not finite. Give one factor "
            f"for each of {hours} hours, or a row of them for each of {count} buses."
        )
    return np.atleast_2d(factors).copy()


def _read(path: Path, case: Case, hours: int) -> Floats:
    rows = [
        row for row in csv.reader(text(path, path.name, CaseError, _REMEDY).splitlines()) if row
    ]
    header = [name.strip().lower() for name in rows[0]] if rows else []
    row_of = {str(number): row for row, number in enumerate(case.bus.id.tolist())}
    named = [name for name in header if name != _HOUR]
    unknown = [name for name in named if name != _ALL and name not in row_of]
    if not named or unknown or len(set(header)) < len(header):
        raise CaseError(
            f"{path.name}: the header has no columns, repeats a column, or has a column that is "
            f"not a bus in service. {_REMEDY}"
        )
    if len(rows) - 1 != hours:
        raise CaseError(
            f"{path.name} has {len(rows) - 1} rows of factors for {hours} hours. Write horizon="
            f"{max(len(rows) - 1, 1)}, or as many rows."
        )
    factors = np.ones((len(case.bus.id), hours))
    numbers = {
        name: [_number(path, row, at, header) for row in rows[1:]]
        for at, name in enumerate(header)
        if name != _HOUR
    }
    if _ALL in numbers:
        if named == [_ALL]:
            return np.array([numbers[_ALL]])
        factors[:] = numbers[_ALL]
    for name in named:
        if name != _ALL:
            factors[row_of[name]] = numbers[name]
    return factors


def _number(path: Path, row: list[str], at: int, header: list[str]) -> float:
    try:
        value = float(row[at])
    except (ValueError, IndexError):
        value = np.nan
    if len(row) != len(header) or not np.isfinite(value):
        # The error does not show the factor, which may belong to a private load.
        raise CaseError(
            f"{path.name}: a row is no list of {len(header)} finite numbers, one for each column. "
            f"{_REMEDY}"
        )
    return value


@dataclass(frozen=True, eq=False)
class PypsaNetwork:
    """A PyPSA network over some hours, for `power_flow`.

    Attributes
    ----------
    case : Case
        Network with the mean loads of the hours.
    profiles : ndarray, shape (buses, hours)
        Factors on these loads.
    availability : ndarray, shape (generators, hours)
        Share of its largest power that a generator may use.
    storage : tuple of Store
        Storage units and stores; one efficiency for both directions gives the network's efficiency
        of a full cycle.
    bus : dict of int
        Ids of the buses by name.
    """

    case: Case
    profiles: Floats
    availability: Floats
    storage: tuple[Store, ...]
    bus: dict[str, int]


def read_pypsa(source: Any, *, hours: int = 24, first: int = 0) -> PypsaNetwork:
    """Read a PyPSA network over some of its snapshots.

    Every snapshot counts as one hour, and energies of storage are divided by its length.

    Parameters
    ----------
    source : str, Path or pypsa.Network
        Folder that ``n.export_to_csv_folder`` wrote, netCDF file (with the package netCDF4), or
        the network itself.
    hours : int
        Number of snapshots.
    first : int
        Position of the first snapshot.

    Returns
    -------
    PypsaNetwork

    Raises
    ------
    CaseError
        If the network cannot be read, or has elements that a case cannot hold: buses of carriers
        other than electricity, lines of DC grids, links with more than two buses.

    Warns
    -----
    CaseWarning
        For all data that are changed or ignored.
    """
    made = from_pypsa(source, hours, first)
    case = case_of(replace(checked_tables(made.fields, made.name), notes=made.notes))
    for note in case.notes:
        warnings.warn(note, CaseWarning, stacklevel=2)
    stores = tuple(
        Store(number, power, energy, efficiency, start)
        for number, power, energy, efficiency, start in made.storage
    )
    # Ends of links are generators too, after all others.
    links = np.ones((len(case.gen.pmax) - len(made.availability), hours))
    available = np.concatenate((made.availability, links))
    return PypsaNetwork(case, made.profiles, available, stores, made.bus)
