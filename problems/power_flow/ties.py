"""Zones with copies of what they share, in units in which both sides' penalties agree.

Two zones agree on quantities of the branches between them. In the units of voltages, a small
difference is a large flow on a branch of large admittance, so methods that penalize differences
need thousands of rounds. With ``shared="tie"``, every zone has own copies of the quantities at the
far ends of its tie lines. Two zones agree on the differences and levels of both ends, multiplied by
the root of the admittance y between them. For angles a and b, these are::

    sqrt(2 y) (a - b),    sqrt(y / 2) (a + b)

A penalty on the first weighs the flow y (a - b) by 1/y, and a penalty on the second weighs the flow
that a zone sends at another level of its angles. Each is the impedance that the other needs: zones
behind impedances of about 1/y then disagree in all directions at about the same speed (optimized
Schwarz methods; Gander, 2006).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        Matrix that takes these entries to the quantities that they are; others become 0.
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
        Quantities that each zone has in its constraints, and those of which it has a copy.
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
    return [np.union1d(*at) for at in zip(zones.buses, zones.neighbors, strict=True)]


def copied_pairs(case: Case, zones: Zones) -> tuple[Ints, ...]:
    """Return, for each zone, the crossing pairs that start in another zone.

    Parameters
    ----------
    case, zones
        Network and its partition.
    """
    cross = crossing(case, zones)
    owner, other = (zones.of_bus[at[cross]] for at in (case.pairs.first, case.pairs.second))
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


def angle_coordinates(
    case: Case, pairs: Ints, angle: cp.Expression | Floats
) -> list[cp.Expression]:
    """Return the two quantities that zones share for each pair with "dc".

    Parameters
    ----------
    case : Case
    pairs : ndarray of int
        Positions of pairs.
    angle : cp.Expression or ndarray, shape (buses, hours)
        Angles that a zone sees.
    """
    between = np.zeros(len(case.pairs.first))
    np.add.at(between, case.pairs.of_branch, np.abs(susceptances(case)))
    root = sp.diags_array(np.sqrt(between[pairs]))
    first, second = angle[case.pairs.first[pairs]], angle[case.pairs.second[pairs]]
    return [np.sqrt(2) * root @ (first - second), np.sqrt(0.125) * root @ (first + second)]


def voltage_coordinates(
    case: Case,
    pairs: Ints,
    w: cp.Expression | Floats,
    wr: cp.Expression | Floats,
    wi: cp.Expression | Floats,
) -> list[cp.Expression]:
    """Return the four quantities that zones share for each pair with "soc".

    They are those of angles, for the angle ``wi`` and the voltages ``w / 2`` of the ends, and the
    difference ``w_first + w_second - 2 wr``, which losses are proportional to.

    Parameters
    ----------
    case : Case
    pairs : ndarray of int
        Positions of pairs.
    w, wr, wi : cp.Expression or ndarray
        Voltages of all buses and their products of all pairs, as a zone sees them.
    """
    between = np.zeros(len(case.pairs.first))
    np.add.at(between, case.pairs.of_branch, 1 / np.hypot(case.branch.r, case.branch.x))
    root = sp.diags_array(np.sqrt(between[pairs]))
    first, second = w[case.pairs.first[pairs]], w[case.pairs.second[pairs]]
    return [
        np.sqrt(2) * root @ wi[pairs],
        np.sqrt(0.5) * root @ (first - second),
        np.sqrt(2) * root @ (first + second - 2 * wr[pairs]),
        np.sqrt(0.03125) * root @ (first + second),
    ]
