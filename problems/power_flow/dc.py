"""Terms of the direct-current approximation of power flow, over any number of hours.

Voltages have size 1 and lines have no losses. The flow on a branch is its susceptance times the
angle across it. Every term is a function of the network, its zones, and the variables, so you can
use it in a model of your own; `models.DcModel` combines all terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from .case import WIDEST, Case
from .errors import CaseError
from .hours import hourly
from .model import cost_of, generators_of
from .physics import connected_parts, incidence, susceptances
from .ties import View, angle_coordinates, crossing, seen_buses, tie_rows, views
from .zones import Zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Thresholds of outage factors: a smaller denominator means that the outage splits the network, and
# a smaller factor means that an outage does not change a flow.
_PARTED, _UNMOVED = 1e-8, 1e-6
_SHOWN = 5


@dataclass(frozen=True, eq=False)
class DcVariables:
    """The decision variables of the whole network, in per unit.

    Attributes
    ----------
    angle : cp.Variable, shape (buses, hours)
        Angles of voltages in radians.
    power : cp.Variable, shape (generators, hours)
        Generation.
    tie : cp.Variable or None
        Quantities that zones share in place of angles, see `ties`. Copies of angles then follow
        the angles of all buses. None if zones share angles.
    views : tuple of View
        Each zone's view of the angles; empty if zones share angles.
    """

    angle: cp.Variable
    power: cp.Variable
    tie: cp.Variable | None = None
    views: tuple[View, ...] = ()

    def seen(self, zone: int) -> DcVariables:
        """Return the variables with the angles of all buses as a zone sees them.

        Parameters
        ----------
        zone : int
        """
        if not self.views:
            return self
        return replace(self, angle=cast(Any, self.views[zone](self.angle)), views=())


def dc_variables(case: Case, hours: int = 1, zones: Zones | None = None) -> DcVariables:
    """Declare the variables of a network.

    Parameters
    ----------
    case : Case
    hours : int
    zones : Zones, optional
        Partition into zones that share the quantities of `ties`. They share angles if omitted.
    """
    if zones is not None:
        count, seen = views(len(case.bus.id), seen_buses(zones), zones.neighbors)
        return DcVariables(
            angle=cp.Variable((count, hours), name="angle"),
            power=cp.Variable((len(case.gen.bus), hours), name="power"),
            tie=cp.Variable((2 * len(crossing(case, zones)), hours), name="tie"),
            views=seen,
        )
    return DcVariables(
        angle=cp.Variable((len(case.bus.id), hours), name="angle"),
        power=cp.Variable((len(case.gen.bus), hours), name="power"),
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
    buses = np.union1d(start, end)  # angles of other zones are omitted
    across = (incidence(start, count) - incidence(end, count)).T.tocsc()[:, buses]
    shifted = hourly(size * case.branch.shift[chosen], x.angle.shape[1])
    return sp.csr_array(sp.diags_array(size) @ across) @ x.angle[buses] - shifted


def dc_delivered(case: Case, zones: Zones, x: DcVariables, zone: int) -> cp.Expression:
    """Return the power that arrives at a zone's buses: generation less shunts and flows out.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.

    Returns
    -------
    cp.Expression, shape (own buses, hours)
        In per unit, rows as in ``zones.buses[zone]``.
    """
    shunts = cp.Constant(hourly(-case.bus.gs[zones.buses[zone]], x.angle.shape[1]))
    branches = zones.branches[zone]
    flows = dc_flows(case, x.seen(zone), branches) if len(branches) else None
    return delivered(case, zones, zone, shunts, x.power, flows)


def delivered(
    case: Case,
    zones: Zones,
    zone: int,
    shunts: cp.Expression,
    power: cp.Expression,
    flows: cp.Expression | None,
) -> cp.Expression:
    """Return the power that arrives at a zone's buses: generation less shunts and flows out.

    Parameters
    ----------
    case, zones
        Network and partition.
    zone : int
        Index of the zone in ``zones.names``.
    shunts : cp.Expression, shape (own buses, hours)
        Power from shunts.
    power : cp.Expression, shape (all generators, hours)
        Power of generators.
    flows : cp.Expression, shape (own branches, hours), or None
        Flows from the from end to the to end; None without branches.
    """
    buses, branches, count = zones.buses[zone], zones.branches[zone], len(case.bus.id)
    generators, total = generators_of(case, zones, zone), shunts
    if len(generators):
        total += incidence(case.gen.bus[generators], count)[buses] @ power[generators]
    if flows is not None:
        ends = case.branch.from_bus[branches], case.branch.to_bus[branches]
        total -= (incidence(ends[0], count) - incidence(ends[1], count))[buses] @ flows
    return total


def dc_limits(case: Case, zones: Zones, x: DcVariables, zone: int) -> list[cp.Constraint]:
    """Return constraints of a zone: generation, flows, angles, DC lines and reference buses.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    generators = generators_of(case, zones, zone)
    return [
        *generation_limits(x.power, generators, case.gen.pmin, case.gen.pmax),
        *branch_limits(case, zones, x, zone),
        *link_limits(case, x.power, generators),
    ]


def generation_limits(
    power: cp.Expression, generators: Ints, low: Floats, high: Floats
) -> list[cp.Constraint]:
    """Return bounds on the power of generators in every hour.

    Parameters
    ----------
    power : cp.Expression, shape (all generators, hours)
    generators : ndarray of int
        Positions.
    low, high : ndarray, shape (all generators,)
        Bounds in per unit, such as ``case.gen.pmin`` and ``case.gen.pmax``.
    """
    constraints: list[cp.Constraint] = []
    for sign, bound in ((-1, low), (1, high)):
        at = generators[np.isfinite(bound[generators])]
        if len(at):
            constraints.append(sign * power[at] <= sign * hourly(bound[at], power.shape[1]))
    return constraints


def branch_limits(case: Case, zones: Zones, x: DcVariables, zone: int) -> list[cp.Constraint]:
    """Return limits on flows and angles of a zone, and the angle 0 at its reference buses.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    branches, pairs, hours = zones.branches[zone], case.pairs, x.angle.shape[1]
    x = x.seen(zone)
    constraints: list[cp.Constraint] = []
    if x.tie is not None:
        crossed, rows = tie_rows(case, zones, zone)
        if len(crossed):
            shared = angle_coordinates(case, crossed, x.angle)
            half = x.tie.shape[0] // 2
            constraints += [x.tie[k * half + rows] == part for k, part in enumerate(shared)]
    limited = branches[np.isfinite(ratings(case)[branches])]
    if len(limited):
        flow, rate = dc_flows(case, x, limited), hourly(ratings(case)[limited], hours)
        constraints += [flow <= rate, -flow <= rate]
    seen = np.unique(pairs.of_branch[branches])
    if len(seen):
        across = x.angle[pairs.first[seen]] - x.angle[pairs.second[seen]]
        constraints += [
            across <= hourly(pairs.angmax[seen], hours),
            -across <= hourly(-pairs.angmin[seen], hours),
        ]
    fixed = np.intersect1d(references(case), zones.buses[zone])
    if len(fixed):
        constraints.append(x.angle[fixed] == 0)
    return constraints


def link_limits(case: Case, power: cp.Expression, generators: Ints) -> list[cp.Constraint]:
    """Return the power balance of DC lines with an end among these generators.

    Parameters
    ----------
    case : Case
    power : cp.Expression, shape (all generators, hours)
    generators : ndarray of int
        Positions.
    """
    links = case.links
    at = np.flatnonzero(np.isin(links.start, generators) | np.isin(links.end, generators))
    if not len(at):
        return []
    share = sp.diags_array(1 - links.loss1[at])
    arrives = power[links.end[at]] + share @ power[links.start[at]]
    return [arrives == -hourly(links.loss0[at], power.shape[1])]


def read_outages(source: Sequence[int] | Literal["all"], case: Case) -> Ints:
    """Return positions of the branches whose outage the network has to survive.

    Parameters
    ----------
    source : sequence of int or "all"
        Rows of the file's branch matrix, counted from 1; or "all" for every branch whose outage
        does not split the network.
    case : Case

    Raises
    ------
    CaseError
        If a row is not in service, or its outage splits the network.
    """
    if isinstance(source, str):
        if source != "all":
            raise CaseError(
                f"contingencies={source[:30]!r} is not known. Write 'all', or rows of branches."
            )
        outages = np.arange(len(case.branch.x))
        return outages[np.isfinite(outage_factors(case, outages)).all(axis=0)]
    outages = rows_of_branches(source, case, "contingencies")
    parted = ~np.isfinite(outage_factors(case, outages)).all(axis=0)
    if parted.any():
        rows = ", ".join(map(str, case.branch.row[outages[parted]][:_SHOWN]))
        raise CaseError(
            f"contingencies= has row {rows} of branches, whose outage splits {case.name}, so no "
            "other flow can replace its flow. Leave it out, or write 'all', which leaves out "
            "such branches."
        )
    return outages


def rows_of_branches(rows: Sequence[int], case: Case, name: str) -> Ints:
    """Return positions of branches in service.

    Parameters
    ----------
    rows : sequence of int
        Rows of the file's branch matrix, counted from 1.
    case : Case
    name : str
        Name of the argument with these rows, for messages.

    Raises
    ------
    CaseError
        If a row is not in service.
    """
    position = {int(row): k for k, row in enumerate(case.branch.row)}
    unknown = [row for row in rows if row not in position]
    if unknown:
        raise CaseError(
            f"{name}= has {', '.join(map(str, unknown[:_SHOWN]))}, and {case.name} has no "
            "such rows of branches in service. Write rows counted from 1, or 'all'."
        )
    return np.array([position[row] for row in rows], dtype=np.int64)


def read_monitored(source: Sequence[int] | Literal["all"], case: Case) -> Case:
    """Return the network with limits on monitored branches only.

    Parameters
    ----------
    source : sequence of int or "all"
        Rows of the file's branch matrix, counted from 1; or "all" branches.
    case : Case

    Raises
    ------
    CaseError
        If a row is not in service.
    """
    if isinstance(source, str):
        if source != "all":
            raise CaseError(
                f"monitored={source[:30]!r} is not known. Write 'all', or rows of branches."
            )
        return case
    chosen = np.zeros(len(case.branch.x), dtype=np.bool_)
    chosen[rows_of_branches(source, case, "monitored")] = True
    watched = np.zeros(len(case.pairs.first), dtype=np.bool_)
    watched[case.pairs.of_branch[chosen]] = True
    free = np.radians(WIDEST)
    return replace(
        case,
        branch=replace(
            case.branch,
            rate=np.where(chosen, case.branch.rate, np.inf),
            current=np.where(chosen, case.branch.current, np.inf),
        ),
        pairs=replace(
            case.pairs,
            angmin=np.where(watched, case.pairs.angmin, -free),
            angmax=np.where(watched, case.pairs.angmax, free),
        ),
    )


def transfer_factors(case: Case) -> Floats:
    """Return the flow on each branch per unit of power injected at each bus.

    The power is taken out at the reference, the first bus of each connected part of the network. A
    model with flows ``factors @ injections``, plus a constant from phase shifters, needs no angles:
    see `ptdf`.

    Parameters
    ----------
    case : Case

    Returns
    -------
    ndarray, shape (branches, buses)
        Power transfer distribution factors.
    """
    angles, size, ends = angles_for(case, np.eye(len(case.bus.id)))
    return size[:, None] * (ends.T @ angles)


def angles_for(case: Case, injections: Floats) -> tuple[Floats, Floats, sp.csr_array]:
    """Return voltage angles for given injections, susceptances, and the ends of branches.

    Parameters
    ----------
    case : Case
    injections : ndarray, shape (buses, columns)
        Injections in per unit; the `references`, with angle 0, take up their imbalance.

    Returns
    -------
    angles : ndarray, shape (buses, columns)
        Angles in radians, without the effect of phase shifters.
    susceptances : ndarray, shape (branches,)
        Susceptances in per unit.
    ends : csr_array, shape (buses, branches)
        1 at the from bus and -1 at the to bus of each branch.
    """
    count, size = len(case.bus.id), susceptances(case)
    ends = incidence(case.branch.from_bus, count) - incidence(case.branch.to_bus, count)
    free = np.setdiff1d(np.arange(count), references(case))
    laplacian = sp.csc_array((ends @ sp.diags_array(size) @ ends.T)[free][:, free])
    angles = np.zeros(injections.shape)
    if len(free) and injections.shape[1]:
        angles[free] = splu(laplacian).solve(injections[free])
    return angles, size, ends


def outage_factors(case: Case, outages: Ints) -> Floats:
    """Return the share of a lost branch's flow that each other branch takes over.

    Parameters
    ----------
    case : Case
    outages : ndarray of int
        Positions of branches.

    Returns
    -------
    ndarray, shape (branches, outages)
        Line outage distribution factors; NaN for an outage that splits the network.
    """
    count = len(case.bus.id)
    ends = incidence(case.branch.from_bus, count) - incidence(case.branch.to_bus, count)
    angles, size, _ = angles_for(case, ends[:, outages].toarray())
    moved = size[:, None] * (ends.T @ angles)
    kept = 1 - moved[outages, np.arange(len(outages))]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.abs(kept) > _PARTED, moved / kept, np.nan)


def contingency_limits(
    case: Case, zones: Zones, x: DcVariables, zone: int, outages: Ints, rating: float = 1.0
) -> list[cp.Constraint]:
    """Return limits of the flows on a zone's branches after the outage of any one branch.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``. Its limits are for branches that start in the zone.
    outages : ndarray of int
        Positions of branches, as `read_outages` returns them.
    rating : float
        Share of its rating that a branch may carry after an outage.
    """
    return limits_after_outages(
        case, zones, zone, outages, rating, x.angle.shape[1], lambda rows: dc_flows(case, x, rows)
    )


def limits_after_outages(
    case: Case,
    zones: Zones,
    zone: int,
    outages: Ints,
    rating: float,
    hours: int,
    flows: Callable[[Ints], cp.Expression],
) -> list[cp.Constraint]:
    """Return the limits of `contingency_limits` for flows that a function gives.

    Parameters
    ----------
    case, zones, zone, outages, rating
        See `contingency_limits`.
    hours : int
    flows : callable
        Function from positions of branches to their flows, of shape (branches, hours).
    """
    limited, lost, (rows, columns), factors = moved_flows(case, zones, zone, outages)
    if not len(rows):
        return []
    each, shape = np.arange(len(rows)), (len(rows), len(lost))
    keeps = sp.csr_array((np.ones(len(rows)), (each, rows)), shape=(len(rows), len(limited)))
    takes = sp.csr_array((factors, (each, columns)), shape=shape)
    flow = keeps @ flows(limited) + takes @ flows(lost)
    most = hourly(rating * ratings(case)[limited[rows]], hours)
    return [flow <= most, -flow <= most]


def moved_flows(
    case: Case, zones: Zones, zone: int, outages: Ints
) -> tuple[Ints, Ints, tuple[Ints, Ints], Floats]:
    """Return the pairs of a zone's limited branch and an outage that changes its flow.

    Returns
    -------
    limited, lost : ndarray of int
        Positions of the limited branches, and of the lost branches that change their flows.
    entries : pair of ndarray of int
        Positions in `limited` and in `lost`, one of each per pair.
    factors : ndarray
        For each pair, the share of the lost flow that the limited branch takes over.
    """
    own = zones.branches[zone]
    limited = own[
        np.isfinite(ratings(case)[own]) & np.isin(case.branch.from_bus[own], zones.buses[zone])
    ]
    factors = outage_factors(case, outages)[limited]
    rows, columns = np.nonzero((np.abs(factors) > _UNMOVED) & (limited[:, None] != outages))
    lost, entries = np.unique(columns, return_inverse=True)
    return limited, outages[lost], (rows, entries), factors[rows, columns]


def dc_cost(case: Case, power: cp.Expression, generators: Ints) -> cp.Expression:
    """Return the cost of generators over all hours in $, times `model.cost_scale`.

    Parameters
    ----------
    case : Case
    power : cp.Expression, shape (all generators, hours)
    generators : ndarray of int
        Positions.
    """
    none = cp.Constant(np.zeros(len(case.gen.bus)))
    hours = range(power.shape[1])
    return sum((cost_of(case, generators, power[:, t], none) for t in hours), cp.Constant(0.0))


def ratings(case: Case) -> Floats:
    """Return limits of flows in per unit; at voltages of 1, a current equals an apparent power.

    Parameters
    ----------
    case : Case
    """
    return np.minimum(case.branch.rate, case.branch.current)


def references(case: Case) -> Ints:
    """Return the first bus of every connected part, whose angle is 0.

    Parameters
    ----------
    case : Case
    """
    return np.unique(connected_parts(case), return_index=True)[1]
