"""Outages in the second-order-cone relaxation: copies of the network that share set points.

After an outage, generators keep their active power and the voltages of their buses. At slack buses,
generators compensate for the change of losses instead. Reactive power and all other voltages
follow. Every bus gets as much power as without the outage, so copies contain no loads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .case import Case, without_branch
from .model import Shared, Variables, delivered, generators_of, variables, zone_constraints
from .physics import slack_buses
from .zones import Zones, divided

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NetworkCopy:
    """The network after the outage of a branch.

    Attributes
    ----------
    case : Case
        Network without the branch, with emergency ratings of all others.
    zones : Zones
        Zones with the buses that they have without the outage.
    x : Variables
        Variables of this network.
    """

    case: Case
    zones: Zones
    x: Variables


def network_copies(
    case: Case, zones: Zones, outages: Ints, emergency: float = 1.0, shared: Shared = "voltage"
) -> tuple[NetworkCopy, ...]:
    """Declare the variables of the network after each of some outages.

    Parameters
    ----------
    case, zones
        Network and its partition.
    outages : ndarray of int
        Positions of branches, as `dc.read_outages` returns them.
    emergency : float
        Share of its rating that a branch may carry after an outage.
    shared : {"voltage", "flow", "tie"}
        See `model.Variables`.
    """
    made = []
    for outage in outages.tolist():
        less = without_branch(case, outage)
        branch = replace(
            less.branch,
            rate=emergency * less.branch.rate,
            current=emergency * less.branch.current,
        )
        less = replace(less, branch=branch)
        within = divided(less, zones.of_bus, zones.names)
        made.append(NetworkCopy(less, within, variables(less, within, shared)))
    return tuple(made)


def copy_constraints(
    case: Case, zones: Zones, x: Variables, copy: NetworkCopy, zone: int, *, cuts: bool = False
) -> list[cp.Constraint]:
    """Return constraints of a zone after an outage: limits, fixed set points, and delivered power.

    Parameters
    ----------
    case, zones, x
        Network before the outage, partition and the variables declared for them.
    copy : NetworkCopy
    zone : int
        Index of the zone in ``zones.names``.
    cuts : bool
        See `model.zone_constraints`.
    """
    slack = np.isin(case.gen.bus, slack_buses(case))
    generators = generators_of(case, zones, zone)
    follows = generators[~slack[generators]]
    held = np.unique(case.gen.bus[generators])
    return [
        *zone_constraints(copy.case, copy.zones, copy.x, zone, cuts=cuts),
        delivered(copy.case, copy.zones, copy.x, zone) == delivered(case, zones, x, zone),
        *([copy.x.pg[follows] == x.pg[follows]] if len(follows) else []),
        *([copy.x.w[held] == x.w[held]] if len(held) else []),
    ]
