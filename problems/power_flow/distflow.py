"""Terms of the linearized DistFlow model of radial networks (Baran and Wu, 1989).

A branch from i to j with impedance ``r + jx`` carries the power ``p + jq`` without losses, and the
squared voltages obey ``w_i / tap^2 - w_j = 2 (r p + x q)``. Line charging and shunts draw on w.
Every term is a function that you can use in a model of your own; `models.DistFlowModel` combines
all terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .case import Case
from .dc import delivered, generation_limits, link_limits
from .errors import CaseError
from .hours import hourly
from .model import cost_of, generators_of
from .physics import connected_parts, incidence
from .zones import Zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class DistFlowVariables:
    """The decision variables of the whole network, in per unit.

    Attributes
    ----------
    w : cp.Variable, shape (buses, hours)
        Squared voltages.
    p, q : cp.Variable, shape (branches, hours)
        Power that flows from the from end to the to end.
    power, reactive : cp.Variable, shape (generators, hours)
        Generation.
    """

    w: cp.Variable
    p: cp.Variable
    q: cp.Variable
    power: cp.Variable
    reactive: cp.Variable


def distflow_variables(case: Case, hours: int = 1) -> DistFlowVariables:
    """Declare the variables of a radial network.

    Parameters
    ----------
    case : Case
    hours : int

    Raises
    ------
    CaseError
        If the network has loops.
    """
    count, lines = len(case.bus.id), len(case.branch.x)
    loops = lines - (count - len(np.unique(connected_parts(case))))
    if loops:
        raise CaseError(
            f"{case.name} has {loops} loop{'s' if loops > 1 else ''}, but model='distflow' is for "
            "radial networks, because it has no angles. Write model='soc' or model='dc', or open "
            "lines."
        )
    sizes = {"w": count, "p": lines, "q": lines}
    sizes |= {"power": len(case.gen.bus), "reactive": len(case.gen.bus)}
    return DistFlowVariables(
        **{name: cp.Variable((size, hours), name=name) for name, size in sizes.items()}
    )


def distflow_delivered(case: Case, zones: Zones, x: DistFlowVariables, zone: int) -> cp.Expression:
    """Return the power that arrives at a zone's buses: generation less shunts and flows out.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.

    Returns
    -------
    cp.Expression, shape (own buses, 2 hours)
        In per unit: the active power of all hours, then the reactive power.
    """
    buses, branches = zones.buses[zone], zones.branches[zone]
    w = x.w[buses]
    active = -(sp.diags_array(case.bus.gs[buses]) @ w)
    reactive = sp.diags_array((case.bus.bs + _charging(case))[buses]) @ w
    p, q = (x.p[branches], x.q[branches]) if len(branches) else (None, None)
    active = delivered(case, zones, zone, active, x.power, p)
    reactive = delivered(case, zones, zone, reactive, x.reactive, q)
    return cp.hstack([active, reactive])


def distflow_limits(
    case: Case, zones: Zones, x: DistFlowVariables, zone: int
) -> list[cp.Constraint]:
    """Return constraints of a zone: voltage drops, and bounds on voltages, flows and generation.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    branch, branches, hours = case.branch, zones.branches[zone], x.w.shape[1]
    generators = generators_of(case, zones, zone)
    gen = case.gen
    buses = np.union1d(zones.buses[zone], zones.neighbors[zone])
    constraints = [
        *generation_limits(x.w, buses, case.bus.vmin**2, case.bus.vmax**2),
        *generation_limits(x.power, generators, gen.pmin, gen.pmax),
        *generation_limits(x.reactive, generators, gen.qmin, gen.qmax),
        *link_limits(case, x.power, generators),
    ]
    rated = generators[np.isfinite(gen.rating[generators])]
    for t in range(hours if len(rated) else 0):
        power = cp.vstack([x.power[rated, t], x.reactive[rated, t]])
        constraints.append(cp.SOC(cp.Constant(gen.rating[rated]), power, axis=0))
    if not len(branches):
        return constraints
    start, end = branch.from_bus[branches], branch.to_bus[branches]
    p, q = x.p[branches], x.q[branches]
    ratio = sp.diags_array(1 / branch.tap[branches] ** 2)
    r, reactance = sp.diags_array(branch.r[branches]), sp.diags_array(branch.x[branches])
    constraints.append(ratio @ x.w[start] - x.w[end] == 2 * (r @ p + reactance @ q))
    across = reactance @ p - r @ q  # angle in radians, to first order
    for sign, bound in ((1, branch.angmax), (-1, branch.angmin)):
        most = sign * (bound - branch.shift)[branches]
        constraints.append(sign * across <= hourly(most, hours))
    limited = branches[np.isfinite(branch.rate[branches])]
    limits = cp.Constant(branch.rate[limited])
    for t in range(hours if len(limited) else 0):
        flow = cp.vstack([x.p[limited, t], x.q[limited, t]])
        constraints.append(cp.SOC(limits, flow, axis=0))
    limited = branches[np.isfinite(branch.current[branches])]
    most = branch.current[limited]
    for t in range(hours if len(limited) else 0):
        # |S|^2 <= I^2 w at the from end.
        w = cp.multiply(most, x.w[branch.from_bus[limited], t])
        flow = cp.vstack([2 * x.p[limited, t], 2 * x.q[limited, t], w - most])
        constraints.append(cp.SOC(w + most, flow, axis=0))
    return constraints


def distflow_cost(case: Case, x: DistFlowVariables, generators: Ints) -> cp.Expression:
    """Return the cost of generators over all hours in $, times `model.cost_scale`.

    Parameters
    ----------
    case : Case
    x : DistFlowVariables
    generators : ndarray of int
        Positions.
    """
    return sum(
        (
            cost_of(case, generators, x.power[:, t], x.reactive[:, t])
            for t in range(x.power.shape[1])
        ),
        cp.Constant(0.0),
    )


def _charging(case: Case) -> Floats:
    """Return each bus's reactive power from half of its branches' charging, per unit of w."""
    branch, count = case.branch, len(case.bus.id)
    half = branch.b / 2
    starts, ends = incidence(branch.from_bus, count), incidence(branch.to_bus, count)
    return starts @ (half / branch.tap**2) + ends @ half
