"""Second-order-cone relaxation of AC power flow over zones, after Ryu & Kim (2022), appendix D.

The network has one cvxpy variable per quantity, and every zone indexes into it; two zones share
exactly the entries that both use. Loads enter only through an expression that the caller passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dpcvx.errors import ModelError

from .case import Case
from .physics import flow_maps, incidence
from .ties import (
    View,
    copied_pairs,
    crossing,
    seen_buses,
    tie_rows,
    views,
    voltage_coordinates,
)
from .zones import Zones

Shared = Literal["voltage", "flow", "tie"]
Objective = Literal["shed", "cost", "both"]
# Cost of squared imbalance relative to generation: at an imbalance of 0.005 per unit, its marginal
# cost equals the marginal cost of the most expensive generator at full power.
IMBALANCE = 100.0
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Variables:
    """The decision variables of the whole network, in per unit, without attributes.

    Attributes
    ----------
    w : cp.Variable, shape (buses,)
        Squared voltage magnitudes.
    wr, wi : cp.Variable, shape (pairs,)
        Real and imaginary part of V_first conj(V_second).
    pg, qg : cp.Variable, shape (generators,)
        Generation.
    pf, qf, pt, qt : cp.Variable, shape (flows,)
        Power entering the branches at their from and to end.
    reserve : cp.Variable, shape (buses, 2)
        Active and reactive reserve beyond delivered power, if loads are private and have to be
        covered. The reserve of an area, see `areas`, is at its first bus.
    flows : tuple of ndarray of int
        For each zone, the entries of `pf`, `qf`, `pt`, `qt` that belong to ``zones.branches``.
        With ``shared="flow"`` these are the branches themselves, so that the two zones of a tie
        line use the same entry; with ``shared="voltage"`` every zone has entries of its own.
    shared : {"voltage", "flow", "tie"}
        Shared quantities of a tie line: w at both ends, wr and wi; with "flow", the flows too; with
        "tie", the quantities of `ties`. Copies of zones then follow the entries of w, wr and wi.
    tie : cp.Variable or None
        The quantities of `ties`, four for each pair of buses in different zones.
    views : tuple of pair of View
        Each zone's views of w, and of wr and wi; empty if zones have no copies.
    """

    w: cp.Variable
    wr: cp.Variable
    wi: cp.Variable
    pg: cp.Variable
    qg: cp.Variable
    pf: cp.Variable
    qf: cp.Variable
    pt: cp.Variable
    qt: cp.Variable
    reserve: cp.Variable
    flows: tuple[Ints, ...]
    shared: Shared
    tie: cp.Variable | None = None
    views: tuple[tuple[View, View], ...] = ()

    def seen(self, zone: int) -> Variables:
        """Return the variables with voltages of the whole network as a zone sees them.

        Parameters
        ----------
        zone : int
        """
        if not self.views:
            return self
        buses, pairs = self.views[zone]
        seen: Any = buses(self.w), pairs(self.wr), pairs(self.wi)
        return replace(self, w=seen[0], wr=seen[1], wi=seen[2], views=())


def variables(case: Case, zones: Zones, shared: Shared = "voltage") -> Variables:
    """Declare the variables of a network.

    Parameters
    ----------
    case, zones
        Network and its partition.
    shared : {"voltage", "flow", "tie"}
        Shared quantities, see `Variables`. All choices are exact; Ryu & Kim use "flow".

    Returns
    -------
    Variables

    Raises
    ------
    ModelError
        If `shared` is invalid.
    """
    _check_choice("shared", shared, Shared)
    if shared == "flow":
        flows = zones.branches
        count = len(case.branch.r)
    else:
        ends = np.cumsum([0, *(len(branches) for branches in zones.branches)])
        flows = tuple(np.arange(start, end) for start, end in pairwise(ends.tolist()))
        count = int(ends[-1])
    buses, pairs, generators = len(case.bus.id), len(case.pairs.first), len(case.gen.bus)
    tie, seen = None, ()
    if shared == "tie":
        used = [np.unique(case.pairs.of_branch[branches]) for branches in zones.branches]
        buses, at_buses = views(buses, seen_buses(zones), zones.neighbors)
        pairs, at_pairs = views(pairs, used, copied_pairs(case, zones))
        seen = tuple(zip(at_buses, at_pairs, strict=True))
        tie = cp.Variable(4 * len(crossing(case, zones)), name="tie")
    return Variables(
        w=cp.Variable(buses, name="w"),
        wr=cp.Variable(pairs, name="wr"),
        wi=cp.Variable(pairs, name="wi"),
        pg=cp.Variable(generators, name="pg"),
        qg=cp.Variable(generators, name="qg"),
        pf=cp.Variable(count, name="pf"),
        qf=cp.Variable(count, name="qf"),
        pt=cp.Variable(count, name="pt"),
        qt=cp.Variable(count, name="qt"),
        reserve=cp.Variable((len(case.bus.id), 2), name="reserve"),
        flows=flows,
        shared=shared,
        tie=tie,
        views=seen,
    )


def cost_scale(case: Case) -> float:
    """Return a factor that scales generation cost to about one per unit of power.

    Parameters
    ----------
    case : Case

    Returns
    -------
    float
        Reciprocal of the largest marginal cost in $/h per unit at a finite bound on power,
        or 1 if nothing has a cost. It depends on the generators only, so it is public.
    """
    gen = case.gen
    active = 2 * gen.c2 * _largest(gen.pmin, gen.pmax) + np.abs(gen.c1)
    reactive = 2 * gen.q2 * _largest(gen.qmin, gen.qmax) + np.abs(gen.q1)
    marginal = np.concatenate((active, reactive, np.abs(case.pieces.slope)))
    largest = float(np.max(marginal, initial=0.0))
    return 1 / largest if largest > 0 else 1.0


def _largest(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the larger absolute value of the finite bounds, or 0."""
    return np.maximum(
        np.where(np.isfinite(low), np.abs(low), 0.0), np.where(np.isfinite(high), np.abs(high), 0.0)
    )


def zone_model(
    case: Case,
    zones: Zones,
    variables: Variables,
    zone: int,
    load: cp.Expression,
    objective: Objective,
    *,
    cuts: bool = False,
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return objective and constraints of one zone.

    A zone imposes the constraints of every branch that touches it and the voltage bounds of both
    ends of these branches, and balances its own buses. The sum of the zones' models is the model
    of the network.

    Parameters
    ----------
    case, zones, variables
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    load : cp.Expression, shape (own buses, 2)
        Loads of ``zones.buses[zone]``, columns P and Q in per unit: a constant or a parameter.
    objective : {"shed", "cost", "both"}
        "shed" minimizes the sum of squared active and reactive balance residuals in per unit;
        `load` appears there only. "cost" minimizes generation cost in $/h times
        `cost_scale` under exact balance, hence `load` appears in constraints.
        "both" minimizes that cost plus 100 times the squared residuals of "shed", so that `load`
        appears in the objective only: at an imbalance of 0.005 per unit at a bus, its marginal cost
        equals the marginal cost of the most expensive power.
    cuts : bool
        See `zone_constraints`.

    Returns
    -------
    objective : cp.Expression
        Scalar to be minimized.
    constraints : list of cp.Constraint
        Affine and second-order-cone constraints.

    Raises
    ------
    ModelError
        If there is no such zone or objective, or `load` has another shape.
    """
    _check_choice("objective", objective, Objective)
    if not 0 <= zone < len(zones.names):
        raise ModelError(
            f"There is no zone with index {zone}; {len(zones.names)} zones are numbered from 0. "
            "Give the index of an entry of zones.names."
        )
    count = len(zones.buses[zone])
    if load.shape != (count, 2):
        raise ModelError(
            f"The load of zone {zones.names[zone]} has shape {load.shape}, its {count} buses "
            f"need {(count, 2)}: one row per bus, columns P and Q in per unit. Take rows "
            "zones.buses[zone] of case.load."
        )
    cost: cp.Expression = cp.Constant(0.0)
    if objective != "shed":
        cost = generation_cost(case, zones, variables, zone)
    cost, balance = balanced(objective, cost, delivered(case, zones, variables, zone), load)
    return cost, [*zone_constraints(case, zones, variables, zone, cuts=cuts), *balance]


def balanced(
    objective: Objective, cost: cp.Expression, arrives: cp.Expression, needed: cp.Expression
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return the objective of a zone, and the exact balance as a constraint for "cost".

    Parameters
    ----------
    objective : {"shed", "cost", "both"}
        See `zone_model`.
    cost : cp.Expression
        Scalar cost of generation; ignored with "shed".
    arrives, needed : cp.Expression, shape (buses, columns)
        Power that arrives at buses, and their loads.
    """
    if objective == "cost":
        return cost, [arrives == needed]
    missing = cp.sum_squares(arrives - needed)
    return (missing if objective == "shed" else cost + IMBALANCE * missing), []


def zone_constraints(
    case: Case, zones: Zones, variables: Variables, zone: int, *, cuts: bool = False
) -> list[cp.Constraint]:
    """Return the constraints of a zone except its balance; they contain no load.

    They are bounds on voltages and generation, angle and thermal limits, limits on currents, flows
    as functions of voltages, DC lines that end in the zone, and the cones of the relaxation.

    Parameters
    ----------
    case, zones, variables
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    cuts : bool
        Whether to add `lifted_cuts`, which tighten the relaxation.
    """
    pairs = _seen(case, zones, zone)[1]
    more = lifted_cuts(case, variables.seen(zone), pairs) if cuts else []
    return [*_limits(case, zones, variables, zone, relaxed=True), *more]


def lifted_cuts(case: Case, variables: Variables, pairs: Ints) -> list[cp.Constraint]:
    """Return the lifted nonlinear cuts of pairs of buses (Coffrin, Hijazi, Van Hentenryck, 2017).

    They hold for all voltages within their bounds and angle limits, and cut off points of the
    cones where both voltages are far from one end of their bounds. For one end (a, b) of the
    bounds (l or u) of both voltages, with the other end (c, d), sums s of both bounds, and half the
    width h and middle m of the angle limits, a cut is::

        s1 s2 (wr cos m + wi sin m) - b s2 cos h w1 - a s1 cos h w2 >= a b cos h (c d - a b)

    Parameters
    ----------
    case : Case
    variables : Variables
    pairs : ndarray of int
        Positions of pairs. Pairs with a voltage without upper bound, or with angles beyond 90
        degrees, get no cuts.
    """
    bus, at = case.bus, pairs[_has_cuts(case)[pairs]]
    if not len(at):
        return []
    first, second = case.pairs.first[at], case.pairs.second[at]
    middle = (case.pairs.angmax[at] + case.pairs.angmin[at]) / 2
    cosine = np.cos((case.pairs.angmax[at] - case.pairs.angmin[at]) / 2)
    low, high = (bus.vmin[first], bus.vmin[second]), (bus.vmax[first], bus.vmax[second])
    sums = low[0] + high[0], low[1] + high[1]
    w1, w2 = variables.w[first], variables.w[second]
    wr, wi = variables.wr[at], variables.wi[at]
    turned = cp.multiply(np.cos(middle), wr) + cp.multiply(np.sin(middle), wi)
    return [
        turned
        - cp.multiply(near[1] * cosine / sums[0], w1)
        - cp.multiply(near[0] * cosine / sums[1], w2)
        >= near[0] * near[1] * cosine * (far[0] * far[1] - near[0] * near[1]) / (sums[0] * sums[1])
        for near, far in ((high, low), (low, high))
    ]


def _has_cuts(case: Case) -> NDArray[np.bool_]:
    pairs, right = case.pairs, np.pi / 2
    bounded = np.isfinite(case.bus.vmax)
    narrow = (pairs.angmin >= -right) & (pairs.angmax <= right)
    return narrow & bounded[pairs.first] & bounded[pairs.second]


def zone_limits(case: Case, zones: Zones, variables: Variables, zone: int) -> list[cp.Constraint]:
    """Return all constraints in `zone_constraints` except the cones of the relaxation.

    Parameters
    ----------
    case, zones, variables
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    return _limits(case, zones, variables, zone, relaxed=False)


def _limits(
    case: Case, zones: Zones, variables: Variables, zone: int, *, relaxed: bool
) -> list[cp.Constraint]:
    generators, variables = generators_of(case, zones, zone), variables.seen(zone)
    return [
        *_tie_constraints(case, zones, variables, zone),
        *_voltage_constraints(case, zones, variables, zone, relaxed),
        *_branch_constraints(case, zones, variables, zone),
        *_bounded(variables.pg, generators, case.gen.pmin, case.gen.pmax),
        *_bounded(variables.qg, generators, case.gen.qmin, case.gen.qmax),
        *_storage_constraints(case, variables, generators),
        *_link_constraints(case, variables, generators),
    ]


def _tie_constraints(
    case: Case, zones: Zones, variables: Variables, zone: int
) -> list[cp.Constraint]:
    """Return the quantities of `ties` as functions of the voltages that a zone sees."""
    if variables.tie is None:
        return []
    pairs, rows = tie_rows(case, zones, zone)
    if not len(pairs):
        return []
    shared = voltage_coordinates(case, pairs, variables.w, variables.wr, variables.wi)
    count = variables.tie.size // len(shared)
    return [variables.tie[k * count + rows] == part for k, part in enumerate(shared)]


def _storage_constraints(case: Case, variables: Variables, generators: Ints) -> list[cp.Constraint]:
    """Return limits on storage: apparent power, and loss ``p + r (p^2 + q^2) / w <= pmax``."""
    gen = case.gen
    rated = generators[np.isfinite(gen.rating[generators])]
    lossy = generators[gen.loss[generators] > 0]
    constraints: list[cp.Constraint] = []
    if len(rated):
        power = cp.vstack([variables.pg[rated], variables.qg[rated]])
        constraints.append(cp.SOC(cp.Constant(gen.rating[rated]), power, axis=0))
    if len(lossy):
        pg, qg, w = variables.pg[lossy], variables.qg[lossy], variables.w[gen.bus[lossy]]
        left = gen.pmax[lossy] - pg
        root = 2 * np.sqrt(gen.loss[lossy])
        entries = [cp.multiply(root, pg), cp.multiply(root, qg), w - left]
        constraints.append(cp.SOC(w + left, cp.vstack(entries), axis=0))
    return constraints


def _link_constraints(case: Case, variables: Variables, generators: Ints) -> list[cp.Constraint]:
    """Return the power balance of DC lines with an end among the zone's generators."""
    links = case.links
    touching = np.isin(links.start, generators) | np.isin(links.end, generators)
    if not touching.any():
        return []
    leaves, arrives = variables.pg[links.start[touching]], variables.pg[links.end[touching]]
    share = 1 - links.loss1[touching]
    return [arrives + cp.multiply(share, leaves) == -links.loss0[touching]]


def _voltage_constraints(
    case: Case, zones: Zones, variables: Variables, zone: int, relaxed: bool
) -> list[cp.Constraint]:
    """Return bounds on w, angle limits and, if `relaxed`, cones of all pairs that the zone uses."""
    buses, pairs = _seen(case, zones, zone)
    constraints = _bounded(variables.w, buses, case.bus.vmin**2, case.bus.vmax**2)
    if len(pairs):
        w, wr, wi = variables.w[buses], variables.wr[pairs], variables.wi[pairs]
        first = _select(buses, case.pairs.first[pairs]) @ w
        second = _select(buses, case.pairs.second[pairs]) @ w
        constraints += [
            cp.multiply(np.tan(case.pairs.angmin[pairs]), wr) <= wi,
            wi <= cp.multiply(np.tan(case.pairs.angmax[pairs]), wr),
        ]
        if relaxed:
            root = np.sqrt(cone_scale(case)[pairs])
            constraints.append(_cone(first, second, wr, wi, root))
    return constraints


def cone_scale(case: Case) -> NDArray[np.float64]:
    """Return the factor k in each pair's cone ``(k e) f >= k (2 wi)^2 + k (w_first - w_second)^2``.

    Here ``e = w_first + w_second - 2 wr`` and ``f = w_first + w_second + 2 wr``; for every k this
    cone is ``wr^2 + wi^2 <= w_first w_second``. On a branch of admittance y, the flow is about y
    times the differences on the right, so these are of order 1/y and e is of order 1/y^2. With
    k = 1, interior-point solvers lose e next to f, and fail on networks with short lines.

    Parameters
    ----------
    case : Case

    Returns
    -------
    ndarray, shape (pairs,)
        Largest series admittance of the pair's branches in per unit, at least 1.
    """
    scale = np.ones(len(case.pairs.first))
    np.maximum.at(scale, case.pairs.of_branch, 1 / np.hypot(case.branch.r, case.branch.x))
    return scale


def _cone(
    first: cp.Expression,
    second: cp.Expression,
    wr: cp.Expression,
    wi: cp.Expression,
    root: NDArray[np.float64],
) -> cp.Constraint:
    """Return the cone of `cone_scale` with ``k = root**2``; k = 1 gives the usual cone."""
    small = cp.multiply(root**2 / 2, first + second - 2 * wr)
    large = (first + second) / 2 + wr
    across = cp.multiply(root, first - second)
    return cp.SOC(
        small + large, cp.vstack([large - small, cp.multiply(2 * root, wi), across]), axis=0
    )


def _branch_constraints(
    case: Case, zones: Zones, variables: Variables, zone: int
) -> list[cp.Constraint]:
    """Return the flows of a zone's branches as functions of voltages, and limits on the flows."""
    branches, entries = zones.branches[zone], variables.flows[zone]
    if not len(branches):
        return []
    buses, pairs = _seen(case, zones, zone)
    w, wr, wi = variables.w[buses], variables.wr[pairs], variables.wi[pairs]
    constraints: list[cp.Constraint] = []
    for end, maps in flow_maps(case).items():
        flow = (
            maps.w_map[branches][:, buses] @ w
            + maps.wr_map[branches][:, pairs] @ wr
            + maps.wi_map[branches][:, pairs] @ wi
        )
        constraints.append(getattr(variables, end)[entries] == flow)
    limited = np.isfinite(case.branch.rate[branches])
    if limited.any():
        rate = cp.Constant(case.branch.rate[branches[limited]])
        at = entries[limited]
        constraints += [
            cp.SOC(rate, cp.vstack([active[at], reactive[at]]), axis=0)
            for active, reactive in (
                (variables.pf, variables.qf),
                (variables.pt, variables.qt),
            )
        ]
    limited = np.isfinite(case.branch.current[branches])
    if limited.any():
        # |S|^2 <= I^2 w, as a cone whose entries are about as large as flows.
        most, at = case.branch.current[branches[limited]], entries[limited]
        for active, reactive, bus in (
            (variables.pf, variables.qf, case.branch.from_bus),
            (variables.pt, variables.qt, case.branch.to_bus),
        ):
            w = cp.multiply(most, _select(buses, bus[branches[limited]]) @ variables.w[buses])
            power = [2 * active[at], 2 * reactive[at], w - most]
            constraints.append(cp.SOC(w + most, cp.vstack(power), axis=0))
    return constraints


def delivered(case: Case, zones: Zones, variables: Variables, zone: int) -> cp.Expression:
    """Return the power that arrives at a zone's buses: generation less shunts and flows out.

    Parameters
    ----------
    case, zones, variables
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.

    Returns
    -------
    cp.Expression, shape (own buses, 2)
        Columns P and Q in per unit, rows as in ``zones.buses[zone]``.
    """
    generators = generators_of(case, zones, zone)
    own, branches, entries = zones.buses[zone], zones.branches[zone], variables.flows[zone]
    active = -cp.multiply(case.bus.gs[own], variables.w[own])
    reactive = cp.multiply(case.bus.bs[own], variables.w[own])
    if len(generators):
        at = incidence(case.gen.bus[generators], len(case.bus.id))[own]
        active += at @ variables.pg[generators]
        reactive += at @ variables.qg[generators]
    if len(branches):
        start = incidence(case.branch.from_bus[branches], len(case.bus.id))[own]
        end = incidence(case.branch.to_bus[branches], len(case.bus.id))[own]
        active -= start @ variables.pf[entries] + end @ variables.pt[entries]
        reactive -= start @ variables.qf[entries] + end @ variables.qt[entries]
    return cp.vstack([active, reactive]).T


def generation_cost(case: Case, zones: Zones, variables: Variables, zone: int) -> cp.Expression:
    """Return the cost of a zone's generators in $/h, times `cost_scale`.

    Parameters
    ----------
    case, zones, variables
        Network, partition and the variables declared for them.
    zone : int
        Index of the zone in ``zones.names``.
    """
    return cost_of(case, generators_of(case, zones, zone), variables.pg, variables.qg)


def cost_of(case: Case, generators: Ints, pg: cp.Expression, qg: cp.Expression) -> cp.Expression:
    """Return the cost of some generators in $/h, times `cost_scale`.

    Parameters
    ----------
    case : Case
    generators : ndarray of int
        Positions.
    pg, qg : cp.Expression, shape (all generators,)
        Power in per unit.
    """
    if not len(generators):
        return cp.Constant(0.0)
    gen = case.gen
    scale = cost_scale(case)
    cost = _polynomial(pg[generators], *(scale * c[generators] for c in (gen.c2, gen.c1, gen.c0)))
    if any(c[generators].any() for c in (gen.q2, gen.q1, gen.q0)):
        cost += _polynomial(
            qg[generators], *(scale * c[generators] for c in (gen.q2, gen.q1, gen.q0))
        )
    pieces = case.pieces
    own = np.isin(pieces.gen, generators)
    for power, reactive in ((pg, False), (qg, True)):
        chosen = np.flatnonzero(own & (pieces.reactive == reactive))
        if len(chosen):
            cost += scale * _largest_piece(case, power, chosen)
    return cost


def _polynomial(
    power: cp.Expression,
    second: NDArray[np.float64],
    first: NDArray[np.float64],
    constant: NDArray[np.float64],
) -> cp.Expression:
    """Return the sum of the generators' quadratic cost polynomials."""
    linear = first @ power + float(constant.sum())
    if not second.any():
        return linear
    return cp.sum_squares(cp.multiply(np.sqrt(second), power)) + linear


def _largest_piece(case: Case, power: cp.Expression, chosen: Ints) -> cp.Expression:
    """Return the sum over generators of the largest of their cost pieces."""
    pieces = case.pieces
    gen, first, counts = np.unique(pieces.gen[chosen], return_index=True, return_counts=True)
    # Generators with fewer pieces than others repeat their last piece.
    at = [chosen[first + np.minimum(k, counts - 1)] for k in range(max(counts.max(), 2))]
    lines = [cp.multiply(pieces.slope[k], power[gen]) + pieces.intercept[k] for k in at]
    return cp.Constant(np.ones(len(gen))) @ cp.maximum(*lines)


def generators_of(case: Case, zones: Zones, zone: int) -> Ints:
    """Return positions of the generators of a zone."""
    return np.flatnonzero(np.isin(case.gen.bus, zones.buses[zone]))


def _seen(case: Case, zones: Zones, zone: int) -> tuple[Ints, Ints]:
    """Return the buses and pairs in a zone's constraints."""
    buses = np.union1d(zones.buses[zone], zones.neighbors[zone])
    return buses, np.unique(case.pairs.of_branch[zones.branches[zone]])


def _bounded(
    variable: cp.Variable, at: Ints, low: NDArray[np.float64], high: NDArray[np.float64]
) -> list[cp.Constraint]:
    """Return the finite bounds on the entries `at` of a variable."""
    below, above = at[np.isfinite(low[at])], at[np.isfinite(high[at])]
    constraints: list[cp.Constraint] = []
    if len(below):
        constraints.append(low[below] <= variable[below])
    if len(above):
        constraints.append(variable[above] <= high[above])
    return constraints


def _select(among: Ints, chosen: Ints) -> sp.csr_array:
    """Return a matrix that selects the chosen positions from a sorted list of positions."""
    rows = np.arange(len(chosen))
    entries = (np.ones(len(chosen)), (rows, np.searchsorted(among, chosen)))
    return sp.csr_array(entries, shape=(len(chosen), len(among)))


def _check_choice(name: str, value: str, choices: object) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        raise ModelError(
            f"{name} = {value!r} is not known, so the model is not defined. Write "
            + " or ".join(repr(choice) for choice in allowed)
            + "."
        )
