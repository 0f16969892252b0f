"""Costs of power from the tables of a case: convex polynomials and piecewise linear functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import CaseError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PIECEWISE, _POLYNOMIAL = 1, 2
_DEGREE = 2
_MOST_COST = 1e9
# Accepted decrease from one slope to the next, relative to the largest slope, since files print
# points with few digits.
_BENT = 1e-4


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs in $/h for power in megawatts or megavars, one per element."""

    coefficients: Floats  # c2, c1, c0 of each element; 0 for a piecewise linear cost
    element: Ints  # element that each linear piece belongs to
    slope: Floats  # slope of each piece
    intercept: Floats  # value of each piece at power 0


def free(count: int) -> Costs:
    """Return costs of 0 for this number of elements."""
    return Costs(np.zeros((count, _DEGREE + 1)), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def read_costs(file: str, matrix: str, table: Floats, rows: Ints) -> Costs:
    """Return the costs in the given rows of a table in the columns of ``gencost``.

    Parameters
    ----------
    file, matrix : str
        Names for messages.
    table : ndarray
        Columns beyond those that column 4 counts are not read, as in MATPOWER.
    rows : ndarray of int

    Raises
    ------
    CaseError
        If a cost is not convex, or its row has too few numbers.
    """
    coefficients = np.zeros((len(rows), _DEGREE + 1))
    pieces: list[tuple[int, float, float]] = []
    for at, row in enumerate(rows):
        where = f"{file}: {matrix} row {row + 1}"
        if table[row, 0] == _PIECEWISE:
            pieces += [(at, slope, start) for slope, start in _pieces(table[row], where)]
        else:
            coefficients[at] = _polynomial(table[row], where)
    element, slope, intercept = zip(*pieces, strict=True) if pieces else ((), (), ())
    return Costs(
        coefficients,
        np.array(element, dtype=np.int64),
        np.array(slope, dtype=np.float64),
        np.array(intercept, dtype=np.float64),
    )


def reversed_costs(costs: Costs) -> Costs:
    """Return the same costs for the negative of the power."""
    return Costs(
        costs.coefficients * [1, -1, 1], costs.element, -costs.slope, costs.intercept.copy()
    )


def _listed(row: Floats, where: str, each: int, least: int, what: str) -> Floats:
    """Return the cost numbers of a row, as many as its column 4 states."""
    count = row[3]
    if not (count >= least and count == np.floor(count) and 4 + each * count <= len(row)):
        raise CaseError(
            f"{where} has an impossible number of {what} in column 4 for {len(row)} columns; the "
            f"cost would be cut. Write as many {what} as column 4 says, at least {least}."
        )
    numbers = row[4 : 4 + each * int(count)]
    if not np.all(np.abs(numbers) <= _MOST_COST):
        raise CaseError(
            f"{where} has a number that is not finite and up to {_MOST_COST:g} in size, so the "
            "cost is undefined, or too large compared with all others. Write $/h for power in MW."
        )
    return numbers


def _polynomial(row: Floats, where: str) -> Floats:
    """Return the coefficients c2, c1, c0 of a row with a polynomial cost."""
    if row[0] != _POLYNOMIAL:
        raise CaseError(
            f"{where} is of an unknown model. Write model 2 with the coefficients c2, c1, c0, or "
            "model 1 with points."
        )
    coefficients = _listed(row, where, 1, 1, "coefficients")
    if np.any(coefficients[: -_DEGREE - 1] != 0):
        raise CaseError(
            f"{where} is a polynomial of degree {len(coefficients) - 1}; only degree {_DEGREE} or "
            "less is a conic quadratic. Fit c2, c1, c0 over the generator's range."
        )
    last = coefficients[-_DEGREE - 1 :]
    result = np.concatenate((np.zeros(_DEGREE + 1 - len(last)), last))
    if result[0] < 0:
        raise CaseError(
            f"{where} has a negative quadratic coefficient; the problem would not be convex. "
            "Write a coefficient of at least 0."
        )
    return result


def _pieces(row: Floats, where: str) -> list[tuple[float, float]]:
    """Return slope and intercept of every piece of a row; the cost is the largest piece."""
    points = _listed(row, where, 2, 1, "points").reshape(-1, 2)
    # Repeated points are dropped; the cost of a single point is constant.
    points = points[[0, *(1 + np.flatnonzero(np.any(np.diff(points, axis=0) != 0, axis=1)))]]
    run, rise = np.diff(points, axis=0).T
    if np.any(run <= 0):
        raise CaseError(
            f"{where} is piecewise linear, and the powers of its points do not increase, so it is "
            "no function of power. Write points p1, f1, p2, f2, ... with p1 < p2 < ..."
        )
    if not len(run):
        return [(0.0, float(points[0, 1]))]
    slope = rise / run
    if np.any(np.diff(slope) < -_BENT * np.abs(slope).max()):
        raise CaseError(
            f"{where} is piecewise linear, and a slope is lower than the one before it; the "
            "problem would not be convex. Write points whose slopes increase."
        )
    starts = points[:-1, 1] - slope * points[:-1, 0]
    return list(zip(slope.tolist(), starts.tolist(), strict=True))
