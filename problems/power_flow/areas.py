"""Constraints that cover the private loads of an area by generation, reserve and line capacity.

The load of each bus is known with noise only, and power missing at one bus comes from another. So
generation and reserve of an area cover the sum of its loads. Power that is then moved within the
area, by the direct-current approximation and at fixed voltages, satisfies the limits of lines. Tie
lines between zones carry the agreed flows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .case import Case
from .physics import incidence, transfer
from .zones import Zones

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Cost of a unit of active and reactive reserve, relative to a unit of the most expensive generator
# at full power: active reserve is bought at short notice, reactive power comes from capacitors.
_RESERVE = np.array([5.0, 0.1])
# Distribution factors below this are rounding errors: the line carries no such flow.
_NONE = 1e-12
# Cost of the squared difference between delivered power and released load at a bus, in the same
# unit. Without it, buses next to generators would get all power, since this saves losses.
_ASTRAY = 1.0


@dataclass(frozen=True, eq=False)
class Area:
    """Buses of a zone that its internal branches connect.

    Attributes
    ----------
    buses : ndarray of int
        Positions of the area's buses among the zone's own buses.
    limited : ndarray of int
        Branches of the area that have a limit, as positions among the branches of the zone.
    moved : ndarray, shape (limited branches, buses)
        Flow on these branches per unit of power injected at a bus and taken out at the first bus.
    """

    buses: Ints
    limited: Ints
    moved: Floats


def areas(case: Case, zones: Zones, zone: int) -> Iterator[Area]:
    """Yield the areas of a zone.

    Parameters
    ----------
    case : Case
    zones : Zones
    zone : int
        Position of the zone.
    """
    own, branches = zones.buses[zone], zones.branches[zone]
    count = len(case.bus.id)
    ends = case.branch.from_bus[branches], case.branch.to_bus[branches]
    inside = np.isin(ends[0], own) & np.isin(ends[1], own)
    links = incidence(ends[0][inside], count) @ incidence(ends[1][inside], count).T
    _, label = connected_components(links[own][:, own], directed=False)
    of_branch = label[np.searchsorted(own, ends[0] * inside)]
    for area in np.unique(label):
        buses = np.flatnonzero(label == area)
        lines = np.flatnonzero(inside & (of_branch == area))
        limited = np.isfinite(case.branch.rate[branches[lines]])
        factors = transfer(case, own[buses], branches[lines])[limited]
        factors[np.abs(factors) < _NONE] = 0.0
        yield Area(buses, lines[limited], factors)


def covered(
    area: Area,
    delivered: cp.Expression,
    load: cp.Expression,
    served: Ints,
    reserve: cp.Variable | cp.Expression,
    flows: tuple[cp.Expression, ...],
    rate: Floats,
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return cost and constraints that cover an area's loads by generation and reserve.

    Constraints that the load does not affect do not contain it, and so are public. In an area
    without loads, buses balance exactly.

    Parameters
    ----------
    area : Area
    delivered : cp.Expression, shape (buses, 2) or (buses, 1)
        Active (and reactive) power in per unit that the area's buses get.
    load : cp.Expression, shape (served, 2) or (served, 1)
        Load of the buses that have one; ignored if no bus has one.
    served : ndarray of int
        Positions of these buses in ``area.buses``.
    reserve : cp.Expression, shape (2,) or (1,)
        Reserve for all of these buses together.
    flows : tuple of cp.Expression
        Flows ``pf, qf, pt, qt`` of the limited branches, or ``pf`` alone.
    rate : ndarray
        Limits of these branches, in per unit.

    Returns
    -------
    cost : cp.Expression
    constraints : list of cp.Constraint
    """
    if not served.size:
        return cp.Constant(0.0), [delivered == 0]
    surplus = delivered - incidence(served, area.buses.size) @ load
    cost = _RESERVE[: reserve.size] @ reserve + _ASTRAY * cp.sum_squares(surplus)
    everything = cp.sum(delivered, axis=0) + reserve >= cp.sum(load, axis=0)
    constraints: list[cp.Constraint] = [reserve >= 0, everything]
    count = len(area.limited)
    if count:
        room = cp.Variable(count, name="room", nonneg=True)
        private = area.moved[:, served].any(axis=1)
        for lines, power in ((private, surplus[:, 0]), (~private, delivered[:, 0])):
            moved = area.moved[lines] @ power
            if lines.any():
                row = cp.reshape(moved, (1, int(lines.sum())), order="C")
                constraints.append(cp.SOC(room[lines], row, axis=0))
        if len(flows) == 1:
            constraints.append(cp.abs(flows[0]) + room <= rate)
        for active, reactive in zip(flows[::2], flows[1::2], strict=False):
            most = cp.vstack([cp.abs(active) + room, cp.abs(reactive)])
            constraints.append(cp.norm(most, axis=0) <= rate)
    return cost, constraints
