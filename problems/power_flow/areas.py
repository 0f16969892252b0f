"""Reserve that covers the private loads of an area, and room on its lines.

Which bus needs how much is known with noise only, and what is missing at one bus comes from
another. So generation and reserve of an area cover the sum of its loads, and what is then moved
within it, by the direct-current approximation and with voltages as they are, keeps the limits of
lines. Tie lines between zones carry what was agreed.
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

# What a unit of reserve costs next to one of the dearest generator at full power: active power is
# bought in haste, reactive power comes from capacitors.
_RESERVE = np.array([5.0, 0.1])
# Below this a distribution factor is a rounding error: nothing flows over that line.
_NONE = 1e-12
# What a unit squared costs by which a bus gets more or less than its load as it left, next to the
# same: else buses next to generators would get all, for what is lost on lines.
_ASTRAY = 1.0


@dataclass(frozen=True, eq=False)
class Area:
    """Buses of a zone that its own branches connect.

    Attributes
    ----------
    buses : ndarray of int
        Positions among the zone's own buses.
    limited : ndarray of int
        Its branches that have a limit, as positions among those of the zone.
    moved : ndarray, shape (limited branches, buses)
        Flow on them for power injected at a bus and taken out at the first one.
    """

    buses: Ints
    limited: Ints
    moved: Floats


def areas(case: Case, zones: Zones, zone: int) -> Iterator[Area]:
    """The areas of a zone.

    Parameters
    ----------
    case : Case
    zones : Zones
    zone : int
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
    """Return the cost of covering an area's loads, and the constraints that do it.

    A constraint without influence of the load does not contain it: such a constraint is public. An
    area without loads has nothing to cover, so that its buses balance exactly.

    Parameters
    ----------
    area : Area
    delivered : cp.Expression, shape (buses, 2) or (buses, 1)
        Active and perhaps reactive power in per unit that the area's buses get.
    load : cp.Expression, shape (served, 2) or (served, 1)
        Demand of the buses with a load; ignored if there is none.
    served : ndarray of int
        Positions of these buses in ``area.buses``.
    reserve : cp.Expression, shape (2,) or (1,)
        Reserve for all of these buses together, beyond their load.
    flows : tuple of cp.Expression
        ``pf, qf, pt, qt`` of the limited branches, or ``pf`` alone.
    rate : ndarray
        Their limits.

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
