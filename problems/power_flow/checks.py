"""Checks of columns of a case: finite, ordered, and of a size that real networks have.

Every function takes the name of the source, the matrix, its rows in the source (from 0), and the
values in these rows. An error names the first row that breaks the rule. It never shows values,
since some are loads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import CaseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Largest power in MW, MVAr or MVA: thrice the consumption of the world. Larger limits are ignored.
MOST_POWER = 1e7


def finite(file: str, matrix: str, rows: Ints, name: str, values: Floats) -> None:
    """Refuse values that are infinite or nan."""
    for row in rows[~np.isfinite(values)]:
        raise CaseError(
            f"{file}: {matrix} row {row + 1} has a {name} that is not a finite number; the "
            "equations would be undefined. Write a finite number."
        )


def within(
    file: str,
    matrix: str,
    rows: Ints,
    name: str,
    values: Floats,
    most: float,
    unit: str,
    least: float | None = None,
) -> None:
    """Refuse values above `most`, or below `least` (``-most`` if omitted), or not finite."""
    finite(file, matrix, rows, name, values)
    low = -most if least is None else least
    for row in rows[(values < low) | (values > most)]:
        raise CaseError(
            f"{file}: {matrix} row {row + 1} has a {name} outside {low:g} to {most:g} {unit}, the "
            "range of real networks; beyond it rounding errors hide everything else. Correct the "
            "number or its unit."
        )


def integers(file: str, matrix: str, rows: Ints, name: str, values: Floats) -> Ints:
    """Return values as integers; refuse values with a fraction."""
    within(file, matrix, rows, name, values, 2.0**53, "")
    for row in rows[values != np.floor(values)]:
        raise CaseError(
            f"{file}: {matrix} row {row + 1} has a {name} that is not an integer; its fraction "
            "would be lost. Number them 1, 2, ..."
        )
    return values.astype(np.int64)


def limits(values: Floats) -> Floats:
    """Return limits on power, with limits larger than `MOST_POWER` made infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) > MOST_POWER, np.copysign(np.inf, values), values)


def ordered(
    file: str, matrix: str, rows: Ints, lower: str, low: Floats, upper: str, high: Floats
) -> None:
    """Refuse pairs of bounds that no value satisfies."""
    # Negated so that NaN fails too; infinite bounds are allowed on their own side only.
    wrong = ~((low <= high) & (low < np.inf) & (high > -np.inf))
    for row in rows[wrong]:
        raise CaseError(
            f"{file}: {matrix} row {row + 1} needs {lower} <= {upper}, both numbers; no point "
            f"satisfies the row. Correct {lower} or {upper}."
        )
