"""The direct-current approximation without angles, by power transfer distribution factors (PTDF).

Net injections of buses replace angles: the flow on a branch is a public matrix times the injections
of the whole network. A zone shares either its injections, or its total injection and its
contributions to the flows that other zones limit, if these are fewer numbers. With few limited
flows, these are also fewer numbers than the angles at the borders of zones. `models.PtdfModel`
combines the terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .case import WIDEST, Case
from .dc import (
    angles_for,
    delivered,
    limits_after_outages,
    moved_flows,
    ratings,
    references,
)
from .hours import hourly
from .physics import connected_parts, incidence, susceptances
from .zones import Zones

Form = Literal["angles", "ptdf"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Factors below this are rounding errors.
_NONE = 1e-12
_NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Exchange:
    """Factors of the limited flows, and the numbers that each zone shares for them.

    Pairs of buses stand for the branches that join them, whose flows follow from the angle across
    the pair. The flow of a pair is the flow of its strongest branch without a phase shift.

    Attributes
    ----------
    limited : tuple of ndarray of int
        Pairs with flows that a zone limits by `low` and `high`, for each zone.
    used : tuple of ndarray of int
        Pairs with flows in any limit of a zone, also after outages, for each zone.
    factors : dict of int to ndarray, shape (buses,)
        Flow of a pair per unit of injection at each bus.
    shifted, weight, low, high : ndarray, shape (pairs,)
        Flow from phase shifters, largest susceptance, and limits of flows, in per unit.
    sends : tuple of ndarray of int
        Pairs for which a zone sends its contribution to the flow; empty if it sends injections.
    totals : tuple of ndarray of int
        Connected parts for which a zone sends its total injection; empty if it sends injections.
    first : ndarray of int, shape (zones,)
        Position of each zone's first contribution; its totals follow its contributions.
    count : int
        Number of contributions and totals.
    direct : ndarray of bool, shape (zones,)
        Whether a zone sends its injections.
    part : ndarray of int, shape (buses,)
        Connected part of each bus.
    keeper : ndarray of int, shape (parts,)
        Zone that balances each part.
    """

    limited: tuple[Ints, ...]
    used: tuple[Ints, ...]
    factors: dict[int, Floats]
    shifted: Floats
    weight: Floats
    low: Floats
    high: Floats
    sends: tuple[Ints, ...]
    totals: tuple[Ints, ...]
    first: Ints
    count: int
    direct: NDArray[np.bool_]
    part: Ints
    keeper: Ints


@dataclass(frozen=True, eq=False)
class PtdfVariables:
    """The decision variables of the whole network, in per unit.

    Attributes
    ----------
    injection : cp.Variable, shape (buses, hours)
        Net power that buses feed into the network.
    sent : cp.Variable, shape (contributions and totals, hours)
        Contributions of zones to flows, and their totals; see `Exchange`.
    power : cp.Variable, shape (generators, hours)
        Generation.
    exchange : Exchange
    """

    injection: cp.Variable
    sent: cp.Variable
    power: cp.Variable
    exchange: Exchange


def ptdf_variables(
    case: Case, zones: Zones, hours: int = 1, outages: Ints = _NO_ROWS
) -> PtdfVariables:
    """Declare the variables of a network.

    Parameters
    ----------
    case : Case
        Network; zones share the flows that its branch limits need, see `dc.read_monitored`.
    zones : Zones
    hours : int
    outages : ndarray of int
        Positions of branches, as `dc.read_outages` returns them.
    """
    exchange = _exchange(case, zones, outages)
    return PtdfVariables(
        injection=cp.Variable((len(case.bus.id), hours), name="injection"),
        sent=cp.Variable((exchange.count, hours), name="sent"),
        power=cp.Variable((len(case.gen.bus), hours), name="power"),
        exchange=exchange,
    )


def ptdf_flows(
    case: Case, zones: Zones, x: PtdfVariables, zone: int, branches: Ints
) -> cp.Expression:
    """Return the active power that enters branches at their from end, in per unit.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index in ``zones.names`` of the zone that needs the flows. For flows that are not in its
        limits, the expression uses the injections of all zones.
    branches : ndarray of int
        Positions.

    Returns
    -------
    cp.Expression, shape (branches, hours)
    """
    pairs, hours, size = case.pairs.of_branch[branches], x.power.shape[1], susceptances(case)
    share = size[branches] * case.pairs.sign[branches] / x.exchange.weight[pairs]
    return sp.diags_array(share) @ _pair_flows(case, zones, x, zone, pairs) - hourly(
        size[branches] * case.branch.shift[branches], hours
    )


def ptdf_delivered(case: Case, zones: Zones, x: PtdfVariables, zone: int) -> cp.Expression:
    """Return the power that arrives at a zone's loads: generation less shunts and injections.

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
    buses = zones.buses[zone]
    shunts = cp.Constant(hourly(-case.bus.gs[buses], x.power.shape[1]))
    return delivered(case, zones, zone, shunts, x.power, None) - x.injection[buses]


def ptdf_limits(
    case: Case,
    zones: Zones,
    x: PtdfVariables,
    zone: int,
    outages: Ints = _NO_ROWS,
    rating: float = 1.0,
) -> list[cp.Constraint]:
    """Return constraints of a zone: limits, definitions of its sent numbers, and its balances.

    Limits on angles at the default of 60 degrees are omitted, since zones would have to share the
    flows of all branches for them.

    Parameters
    ----------
    case, zones, x
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    outages, rating
        See `dc.contingency_limits`.
    """
    exchange, hours, buses = x.exchange, x.power.shape[1], zones.buses[zone]
    constraints: list[cp.Constraint] = []
    for sign, bound in ((1, exchange.high), (-1, exchange.low)):
        pairs = exchange.limited[zone][np.isfinite(bound[exchange.limited[zone]])]
        if len(pairs):
            flow = _pair_flows(case, zones, x, zone, pairs)
            constraints.append(sign * flow <= sign * hourly(bound[pairs], hours))
    constraints += limits_after_outages(
        case, zones, zone, outages, rating, hours,
        lambda rows: ptdf_flows(case, zones, x, zone, rows),
    )  # fmt: skip
    sends, totals = exchange.sends[zone], exchange.totals[zone]
    if len(sends) + len(totals):
        rows = [exchange.factors[pair][buses] for pair in sends.tolist()]
        rows += [(exchange.part[buses] == part).astype(np.float64) for part in totals]
        entries = exchange.first[zone] + np.arange(len(rows))
        constraints.append(x.sent[entries] == np.array(rows) @ x.injection[buses])
    for part in np.flatnonzero(exchange.keeper == zone):
        whole = exchange.direct[zones.of_bus] | (zones.of_bus == zone)
        listed = np.flatnonzero((exchange.part == part) & whole)
        total = np.ones(len(listed)) @ x.injection[listed]
        entries = [
            exchange.first[other] + len(exchange.sends[other]) + np.flatnonzero(given == part)
            for other, given in enumerate(exchange.totals)
        ]
        if len(arriving := np.concatenate(entries)):
            total += np.ones(len(arriving)) @ x.sent[arriving]
        constraints.append(total == 0)
    return constraints


def ptdf_angles(case: Case, x: PtdfVariables) -> Floats:
    """Return the angles of voltages in radians, from the values of the variables.

    Parameters
    ----------
    case : Case
    x : PtdfVariables

    Returns
    -------
    ndarray, shape (buses, hours)
    """
    injected = np.asarray(x.injection.value, dtype=np.float64)
    return angles_for(case, injected + _shift_injections(case)[:, None])[0]


def shared_numbers(case: Case, zones: Zones, form: Form, outages: Ints = _NO_ROWS) -> int:
    """Return the count of numbers per hour that two or more zones share.

    Parameters
    ----------
    case : Case
    zones : Zones
    form : {"angles", "ptdf"}
    outages : ndarray of int
        See `ptdf_variables`.
    """
    ends = case.gen.bus[case.links.start], case.gen.bus[case.links.end]
    links = 2 * int(np.sum(zones.of_bus[ends[0]] != zones.of_bus[ends[1]]))
    users = np.zeros(len(case.bus.id), dtype=np.int64)
    if form == "angles":
        for zone, branches in enumerate(zones.branches):
            _, lost, *_ = moved_flows(case, zones, zone, outages)
            both = np.concatenate((branches, lost))
            users[np.union1d(case.branch.from_bus[both], case.branch.to_bus[both])] += 1
        return links + int(np.sum(users > 1))
    exchange = _exchange(case, zones, outages)
    for zone, pairs in enumerate(exchange.used):
        needed = np.zeros(len(users), dtype=np.bool_)
        for pair in pairs.tolist():
            needed |= exchange.factors[pair] != 0
        needed |= exchange.keeper[exchange.part] == zone
        users += needed & exchange.direct[zones.of_bus] & (zones.of_bus != zone)
    return links + int(np.sum(users > 0)) + exchange.count


def _pair_flows(
    case: Case, zones: Zones, x: PtdfVariables, zone: int, pairs: Ints
) -> cp.Expression:
    """Return the flows of pairs for a zone, shape (pairs, hours)."""
    exchange, hours = x.exchange, x.power.shape[1]
    flow: cp.Expression = cp.Constant(hourly(exchange.shifted[pairs], hours))
    if not np.isin(pairs, exchange.used[zone]).all():  # of all zones
        factors = _factors(case, exchange.weight, pairs)
        return flow + factors @ x.injection
    factors = np.array([exchange.factors[pair] for pair in pairs.tolist()])
    whole = exchange.direct[zones.of_bus] | (zones.of_bus == zone)
    buses = np.flatnonzero(whole & factors.any(axis=0))
    if len(buses):
        flow += factors[:, buses] @ x.injection[buses]
    for other, sends in enumerate(exchange.sends):
        if other != zone and len(sends):
            rows = np.flatnonzero(np.isin(pairs, sends))
            entries = exchange.first[other] + np.searchsorted(sends, pairs[rows])
            if len(rows):
                flow += incidence(rows, len(pairs)) @ x.sent[entries]
    return flow


def _factors(case: Case, weight: Floats, pairs: Ints) -> Floats:
    """Return the flows of pairs per unit of injection, shape (pairs, buses)."""
    count = len(case.bus.id)
    ends = incidence(case.pairs.first[pairs], count) - incidence(case.pairs.second[pairs], count)
    factors = weight[pairs, None] * angles_for(case, ends.toarray())[0].T
    factors[np.abs(factors) < _NONE] = 0.0
    return factors


def _shift_injections(case: Case) -> Floats:
    """Return the injections that would change angles as phase shifters do."""
    count, branch = len(case.bus.id), case.branch
    ends = incidence(branch.from_bus, count) - incidence(branch.to_bus, count)
    return ends @ (susceptances(case) * branch.shift)


def _exchange(case: Case, zones: Zones, outages: Ints) -> Exchange:
    """Return the factors, and the numbers that zones share, for the limits of a network."""
    pairs, many = case.pairs, len(zones.names)
    weight = np.zeros(len(pairs.first))
    np.maximum.at(weight, pairs.of_branch, np.abs(susceptances(case)))
    low, high = _angle_limits(case)
    limited, used = [], []
    for zone in range(many):
        bounded = np.isfinite(low) | np.isfinite(high)
        kept = np.flatnonzero(bounded & (zones.of_bus[pairs.first] == zone))
        rated, lost, (rows, _), _ = moved_flows(case, zones, zone, outages)
        moved = np.concatenate((rated[rows], lost))
        limited.append(kept)
        used.append(np.union1d(kept, pairs.of_branch[moved]))
    every = np.unique(np.concatenate(used))
    factors = dict(zip(every.tolist(), _factors(case, weight, every), strict=True))
    part = connected_parts(case)
    keeper = zones.of_bus[references(case)]
    sends, totals, direct = [], [], np.zeros(many, dtype=np.bool_)
    for zone, buses in enumerate(zones.buses):
        others = [each for other, each in enumerate(used) if other != zone]
        rows = np.unique(np.concatenate([_NO_ROWS, *others]))
        rows = rows[[bool(factors[pair][buses].any()) for pair in rows.tolist()]]
        parts = np.unique(part[buses])
        parts = parts[keeper[parts] != zone]
        direct[zone] = len(buses) <= len(rows) + len(parts)
        sends.append(_NO_ROWS if direct[zone] else rows)
        totals.append(_NO_ROWS if direct[zone] else parts)
    sizes = [len(rows) + len(parts) for rows, parts in zip(sends, totals, strict=True)]
    angles, _, _ = angles_for(case, _shift_injections(case)[:, None])
    return Exchange(
        limited=tuple(limited),
        used=tuple(used),
        factors=factors,
        shifted=weight * (angles[pairs.first] - angles[pairs.second])[:, 0],
        weight=weight,
        low=weight * low,
        high=weight * high,
        sends=tuple(sends),
        totals=tuple(totals),
        first=np.cumsum([0, *sizes])[:-1],
        count=sum(sizes),
        direct=direct,
        part=part,
        keeper=keeper,
    )


def _angle_limits(case: Case) -> tuple[Floats, Floats]:
    """Return limits on angles across pairs, from ratings and angle limits; infinite without any."""
    pairs, branch, widest = case.pairs, case.branch, np.radians(WIDEST)
    low = np.where(pairs.angmin > -widest, pairs.angmin, -np.inf)
    high = np.where(pairs.angmax < widest, pairs.angmax, np.inf)
    room = ratings(case) / np.abs(susceptances(case))
    across = pairs.sign * branch.shift
    np.maximum.at(low, pairs.of_branch, across - room)
    np.minimum.at(high, pairs.of_branch, across + room)
    return low, high
