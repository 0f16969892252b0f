"""Factors on loads over the hours, from arrays or CSV files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import text
from .case import Case
from .errors import CaseError

Floats = NDArray[np.float64]

_REMEDY = (
    "Write a header of bus ids, or 'all' for buses without a column, and a row of factors for "
    "every hour."
)
DAY: Floats = 0.75 + 0.2 * np.sin(np.pi / 12 * (np.arange(24) - 8))
"""Factors of a made-up day: lowest at 2, highest at 14 o'clock."""

_ALL, _HOUR = "all", "hour"


def read_profiles(source: Floats | str | Path | None, case: Case, hours: int) -> Floats:
    """Return factors on the loads of a case.

    Parameters
    ----------
    source : ndarray, str, Path or None
        "day" for `DAY`, repeated; an array of shape (hours,) or (buses, hours); or the path of a
        CSV file with a row for every hour. Its header has bus ids, and perhaps ``all`` for buses
        without a column of their own, whose factors are else 1; a column ``hour`` is not read.
        None: 1 everywhere.
    case : Case
    hours : int

    Returns
    -------
    ndarray, shape (buses, hours) or (1, hours)
        One row if all buses have the same factors.

    Raises
    ------
    CaseError
        The file cannot be read, or factors are missing or no numbers.
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
            f"{path.name}: the header has no columns, a column twice, or one that is no bus in "
            f"service. {_REMEDY}"
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
        # The factor is not shown: it may be that of a private load.
        raise CaseError(
            f"{path.name}: a row is no list of {len(header)} finite numbers, one for each column. "
            f"{_REMEDY}"
        )
    return value
