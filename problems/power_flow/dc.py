"""Terms of a multi-period optimal power flow in the direct-current approximation.

Voltages have size 1 and lines lose nothing. The flow on a branch is its susceptance times the angle
across it. Every term is a function of the network, its zones, and the variables, which a model of
your own can take; `dc_study.dc_power_flow` puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from .case import Case
from .model import cost_of, generators_of
from .physics import incidence, susceptances
from .zones import Zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Store:
    """Storage at a bus.

    Attributes
    ----------
    bus : int
        Id of the bus.
    power : float
        Most that it takes or gives, in MW.
    energy : float
        What it holds when full, in MWh.
    efficiency : float
        Share that is stored of what it takes, and given of what it releases.
    start : float
        Share of `energy` that it holds at the start, and at least at the end.
    """

    bus: int
    power: float
    energy: float
    efficiency: float = 0.95
    start: float = 0.5


@dataclass(frozen=True, eq=False)
class DcVariables:
    """The decision variables of the whole network, in per unit.

    Attributes
    ----------
    angle : cp.Variable, shape (buses, hours)
        Angles of voltages in radians.
    power : cp.Variable, shape (generators, hours)
        Generation.
    takes, gives, energy : cp.Variable, shape (stores, hours)
        Power into and out of storage, and energy at the end of each hour.
    """

    angle: cp.Variable
    power: cp.Variable
    takes: cp.Variable
    gives: cp.Variable
    energy: cp.Variable


def dc_variables(case: Case, hours: int = 1, stores: Sequence[Store] = ()) -> DcVariables:
    """Declare the variables of a network.

    Parameters
    ----------
    case : Case
    hours : int
    stores : sequence of Store
    """
    count = len(stores)
    return DcVariables(
        angle=cp.Variable((len(case.bus.id), hours), name="angle"),
        power=cp.Variable((len(case.gen.bus), hours), name="power"),
        takes=cp.Variable((count, hours), name="takes"),
        gives=cp.Variable((count, hours), name="gives"),
        energy=cp.Variable((count, hours), name="energy"),
    )


def dc_flows(case: Case, x: DcVariables, branches: Ints | None = None) -> cp.Expression:
    """Return the active power that enters branches at their from end, in per unit.

    Parameters
    ----------
    case : Case
    x : DcVariables
    branches : ndarray of int, optional
        Positions; all if omitted.

    Returns
    -------
    cp.Expression, shape (branches, hours)
    """
    chosen = np.arange(len(case.branch.x)) if branches is None else branches
    count, size = len(case.bus.id), susceptances(case)[chosen]
    start, end = case.branch.from_bus[chosen], case.branch.to_bus[chosen]
    buses = np.union1d(start, end)  # those of other zones are left out
    across = (incidence(start, count) - incidence(end, count)).T.tocsc()[:, buses]
    shifted = np.tile((size * case.branch.shift[chosen])[:, None], x.angle.shape[1])
    return sp.csr_array(sp.diags_array(size) @ across) @ x.angle[buses] - shifted


def dc_delivered(
    case: Case, zones: Zones, x: DcVariables, zone: int, stores: Sequence[Store] = ()
) -> cp.Expression:
    """Return what the buses of a zone get: generation and storage less shunts and flows that leave.

    Parameters
    ----------
    case, zones, x, stores
        Network, partition, variables and storage declared for them.
    zone : int
        Index of the zone in ``zones.names``.

    Returns
    -------
    cp.Expression, shape (own buses, hours)
        In per unit, rows as in ``zones.buses[zone]``.
    """
    buses, branches, count = zones.buses[zone], zones.branches[zone], len(case.bus.id)
    generators, held = generators_of(case, zones, zone), stores_of(case, zones, zone, stores)
    shunts = np.tile(-case.bus.gs[buses][:, None], x.angle.shape[1])
    delivered: cp.Expression = cp.Constant(shunts)
    if len(generators):
        at = incidence(case.gen.bus[generators], count)[buses]
        delivered += at @ x.power[generators]
    if len(held):
        at = incidence(_buses(case, stores)[held], count)[buses]
        delivered += at @ (x.gives[held] - x.takes[held])
    if len(branches):
        ends = case.branch.from_bus[branches], case.branch.to_bus[branches]
        leaving = (incidence(ends[0], count) - incidence(ends[1], count))[buses]
        delivered -= leaving @ dc_flows(case, x, branches)
    return delivered


def dc_limits(case: Case, zones: Zones, x: DcVariables, zone: int) -> list[cp.Constraint]:
    """Return bounds on generation and flows of a zone, angle limits, DC lines, and a reference.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    return [
        *generation_limits(case, x, generators_of(case, zones, zone)),
        *branch_limits(case, zones, x, zone),
    ]


def generation_limits(case: Case, x: DcVariables, generators: Ints) -> list[cp.Constraint]:
    """Return bounds on the power of generators in every hour.

    Parameters
    ----------
    case : Case
    x : DcVariables
    generators : ndarray of int
        Positions.
    """
    constraints: list[cp.Constraint] = []
    for sign, bound in ((-1, case.gen.pmin), (1, case.gen.pmax)):
        at = generators[np.isfinite(bound[generators])]
        if len(at):
            constraints.append(sign * x.power[at] <= sign * hourly(bound[at], x))
    return constraints


def branch_limits(case: Case, zones: Zones, x: DcVariables, zone: int) -> list[cp.Constraint]:
    """Return limits of flows and angles of a zone, what its DC lines carry, and a reference.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    branches, pairs = zones.branches[zone], case.pairs
    constraints: list[cp.Constraint] = []
    limited = branches[np.isfinite(case.branch.rate[branches])]
    if len(limited):
        flow, rate = dc_flows(case, x, limited), hourly(case.branch.rate[limited], x)
        constraints += [flow <= rate, -flow <= rate]
    seen = np.unique(pairs.of_branch[branches])
    if len(seen):
        across = x.angle[pairs.first[seen]] - x.angle[pairs.second[seen]]
        constraints += [
            across <= hourly(pairs.angmax[seen], x),
            -across <= hourly(-pairs.angmin[seen], x),
        ]
    references = np.intersect1d(_references(case), zones.buses[zone])
    if len(references):
        constraints.append(x.angle[references] == 0)
    return [*constraints, *_link_limits(case, zones, x, zone)]


def _link_limits(case: Case, zones: Zones, x: DcVariables, zone: int) -> list[cp.Constraint]:
    links, generators = case.links, generators_of(case, zones, zone)
    at = np.flatnonzero(np.isin(links.start, generators) | np.isin(links.end, generators))
    if not len(at):
        return []
    share = sp.diags_array(1 - links.loss1[at])
    arrives = x.power[links.end[at]] + share @ x.power[links.start[at]]
    return [arrives == -hourly(links.loss0[at], x)]


def ramp_limits(
    case: Case, x: DcVariables, generators: Ints, ramps: float | Floats
) -> list[cp.Constraint]:
    """Return bounds on the change of power from each hour to the next.

    Parameters
    ----------
    case : Case
    x : DcVariables
    generators : ndarray of int
        Positions.
    ramps : float or ndarray, shape (all generators,)
        A share of the largest power of each, or the change itself in MW per hour.
    """
    if x.power.shape[1] == 1:
        return []
    most = ramps * case.gen.pmax if isinstance(ramps, float | int) else ramps / case.base_mva
    at = generators[np.isfinite(most[generators])]
    if not len(at):
        return []
    change = x.power[at, 1:] - x.power[at, :-1]
    return [cp.abs(change) <= np.tile(most[at][:, None], x.power.shape[1] - 1)]


def storage_limits(
    case: Case, x: DcVariables, stores: Sequence[Store], held: Ints
) -> list[cp.Constraint]:
    """Return the energy balance of storage over the hours, and its limits.

    Parameters
    ----------
    case : Case
    x : DcVariables
    stores : sequence of Store
    held : ndarray of int
        Positions of those that the constraints are of.
    """
    if not len(held):
        return []
    base = case.base_mva
    power, size, share, start = (
        np.array([getattr(stores[k], name) for k in held], dtype=np.float64)
        for name in ("power", "energy", "efficiency", "start")
    )
    size = size / base
    takes, gives, energy = x.takes[held], x.gives[held], x.energy[held]
    gained = sp.diags_array(share) @ takes - sp.diags_array(1 / share) @ gives
    first = (start * size)[:, None]
    constraints = [
        takes >= 0,
        gives >= 0,
        energy >= 0,
        takes <= hourly(power / base, x),
        gives <= hourly(power / base, x),
        energy <= hourly(size, x),
        energy[:, :1] == first + gained[:, :1],
        energy[:, -1:] >= first,
    ]
    if x.angle.shape[1] > 1:
        constraints.append(energy[:, 1:] == energy[:, :-1] + gained[:, 1:])
    return constraints


def dc_cost(case: Case, x: DcVariables, generators: Ints) -> cp.Expression:
    """Return the cost of generators over all hours in $, times `model.cost_scale`.

    Parameters
    ----------
    case : Case
    x : DcVariables
    generators : ndarray of int
        Positions.
    """
    none = cp.Constant(np.zeros(len(case.gen.bus)))
    hours = range(x.power.shape[1])
    return sum((cost_of(case, generators, x.power[:, t], none) for t in hours), cp.Constant(0.0))


def hourly(values: Floats, x: DcVariables) -> Floats:
    """The same values in every hour."""
    return np.tile(values[:, None], x.angle.shape[1])


def _buses(case: Case, stores: Sequence[Store]) -> Ints:
    """Positions of the buses of storage."""
    at = {int(number): row for row, number in enumerate(case.bus.id)}
    return np.array([at[store.bus] for store in stores], dtype=np.int64)


def stores_of(case: Case, zones: Zones, zone: int, stores: Sequence[Store]) -> Ints:
    """Positions of the storage in a zone."""
    return np.flatnonzero(np.isin(_buses(case, stores), zones.buses[zone]))


def _references(case: Case) -> Ints:
    """The first bus of every connected part, whose angle is 0."""
    count = len(case.bus.id)
    links = incidence(case.branch.from_bus, count) @ incidence(case.branch.to_bus, count).T
    _, part = connected_components(links, directed=False)
    return np.unique(part, return_index=True)[1]
