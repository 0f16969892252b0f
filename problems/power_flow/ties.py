"""Zones that agree on tie lines in units of their admittance, by copies of voltages beyond them.

Two zones agree on quantities of the branches between them. In units of voltages, a small difference
is a large flow on a branch of large admittance. Methods that penalize differences then need
thousands of rounds. With ``shared="tie"``, every zone has its own copies of the quantities at the
far ends of its tie lines. Two zones agree on differences and means of both ends, multiplied by the
root of the admittance y between them. For angles a and b, these are::

    sqrt(2 y) (a - b),    sqrt(y / 2) (a + b) / 2

A penalty on the first weighs the squared flow y (a - b) by 2 / y. A penalty on the second weighs
the squared flow y (a + b) / 2 by 1 / (2 y). Such weights match zones behind impedances of about
1/y, as transmission conditions of optimized Schwarz methods do (Gander, 2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .case import Case
from .physics import susceptances
from .zones import Zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def crossing(case: Case, zones: Zones) -> Ints:
    """Return positions of the pairs of buses in different zones that branches join.

    Parameters
    ----------
    case, zones
        Network and its partition.
    """
    return np.unique(case.pairs.of_branch[zones.ties])


@dataclass(frozen=True, eq=False)
class View:
    """Entries of a variable that a zone sees, and their positions among all entries.

    Attributes
    ----------
    entries : ndarray of int
        Entries of the variable.
    placed : csr_array, shape (quantities of the network, entries)
        Matrix from these entries to the quantities of the network; others become 0.
    """

    entries: Ints
    placed: sp.csr_array

    def __call__(self, variable: cp.Expression) -> cp.Expression:
        """Return the quantities of the network as the zone sees them."""
        return self.placed @ variable[self.entries]


def views(count: int, held: Sequence[Ints], copied: Sequence[Ints]) -> tuple[int, tuple[View, ...]]:
    """Return the number of entries of a variable with copies, and each zone's view of them.

    The first `count` entries belong to one zone each, and the copies of the zones follow.

    Parameters
    ----------
    count : int
        Number of quantities of the network.
    held, copied : sequence of ndarray of int
        Quantities in each zone's constraints, and the copied ones among them.
    """
    end, seen = count, []
    for chosen, copies in zip(held, copied, strict=True):
        entries = np.arange(count)
        entries[copies] = np.arange(end, end + len(copies))
        end += len(copies)
        ones = np.ones(len(chosen)), (chosen, np.arange(len(chosen)))
        seen.append(View(entries[chosen], sp.csr_array(ones, shape=(count, len(chosen)))))
    return end, tuple(seen)


def seen_buses(zones: Zones) -> list[Ints]:
    """Return the buses in each zone's constraints: its own, and those at its tie lines.

    Parameters
    ----------
    zones : Zones
    """
    return [np.union1d(*pair) for pair in zip(zones.buses, zones.neighbors, strict=True)]


def copied_pairs(case: Case, zones: Zones) -> tuple[Ints, ...]:
    """Return, for each zone, the crossing pairs that start in another zone.

    Parameters
    ----------
    case, zones
        Network and its partition.
    """
    cross = crossing(case, zones)
    owner, other = (zones.of_bus[end[cross]] for end in (case.pairs.first, case.pairs.second))
    return tuple(cross[(other == k) & (owner != k)] for k in range(len(zones.names)))


def tie_rows(case: Case, zones: Zones, zone: int) -> tuple[Ints, Ints]:
    """Return the crossing pairs of a zone, and their positions among all crossing pairs.

    Parameters
    ----------
    case, zones
        Network and its partition.
    zone : int
        Index of the zone in ``zones.names``.
    """
    cross = crossing(case, zones)
    ends = zones.of_bus[case.pairs.first[cross]], zones.of_bus[case.pairs.second[cross]]
    rows = np.flatnonzero((ends[0] == zone) | (ends[1] == zone))
    return cross[rows], rows


def angle_coordinates(case: Case, pairs: Ints, angle: cp.Expression | Floats) -> list[Any]:
    """Return the two quantities that zones share for each pair with "dc".

    Parameters
    ----------
    case : Case
    pairs : ndarray of int
        Positions of pairs.
    angle : cp.Expression or ndarray, shape (buses, hours)
        Angles that a zone sees.
    """
    root = _roots(case, pairs, np.abs(susceptances(case)))
    first, second = angle[case.pairs.first[pairs]], angle[case.pairs.second[pairs]]
    return [np.sqrt(2) * root @ (first - second), np.sqrt(0.125) * root @ (first + second)]


def voltage_coordinates(
    case: Case,
    pairs: Ints,
    w: cp.Expression | Floats,
    wr: cp.Expression | Floats,
    wi: cp.Expression | Floats,
) -> list[Any]:
    """Return the four quantities that zones share for each pair with "soc".

    Three of them are as for angles, with the difference ``wi`` of angles, and with voltages
    ``w / 2``. The fourth, ``w_first + w_second - 2 wr``, measures losses.

    Parameters
    ----------
    case : Case
    pairs : ndarray of int
        Positions of pairs.
    w, wr, wi : cp.Expression or ndarray
        Voltages of all buses and their products of all pairs, as a zone sees them.
    """
    root = _roots(case, pairs, 1 / np.hypot(case.branch.r, case.branch.x))
    first, second = w[case.pairs.first[pairs]], w[case.pairs.second[pairs]]
    return [
        np.sqrt(2) * root @ wi[pairs],
        np.sqrt(0.5) * root @ (first - second),
        np.sqrt(2) * root @ (first + second - 2 * wr[pairs]),
        np.sqrt(0.03125) * root @ (first + second),
    ]


def _roots(case: Case, pairs: Ints, admittance: Floats) -> sp.dia_array:
    """Return the roots of the admittances between pairs of buses, from those of the branches."""
    between = np.zeros(len(case.pairs.first))
    np.add.at(between, case.pairs.of_branch, admittance)
    return sp.diags_array(np.sqrt(between[pairs]))
