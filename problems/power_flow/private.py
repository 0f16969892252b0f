"""Private data of a zone as expressions: its loads, load profiles, bids or capacities."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .case import Case
from .hidden import Adjacency
from .model import cost_scale
from .models import Model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PrivateData = Literal["loads", "profiles", "bids", "capacities"]

BID_UNIT = 100.0
"""Public stand-in for private bids, in $/MWh. Costs and the change of a bid are relative to it."""


def public_case(case: Case, private: PrivateData | None) -> Case:
    """Return the network with public numbers in place of private bids or capacities.

    Everything that is public takes its numbers from this network: scales, initial points, slack
    buses, and limits in AC checks. Bids become `BID_UNIT`, and capacities have no limit. Private
    loads and profiles remain.

    Parameters
    ----------
    case : Case
    private : {"loads", "profiles", "bids", "capacities"} or None
        Kind of private data.
    """
    listed = case.gen.kind == "gen"
    if private == "bids":
        c1 = np.where(listed, BID_UNIT * case.base_mva, case.gen.c1)
        return replace(case, gen=replace(case.gen, c1=c1))
    if private == "capacities":
        pmax = np.where(listed, np.inf, case.gen.pmax)
        return replace(case, gen=replace(case.gen, pmax=pmax))
    return case


def private_loads(
    load: Floats, name: str, change: Adjacency, proxy: Floats | None = None
) -> cp.Expression:
    """Return private loads as an expression; an empty constant for a zone without loads.

    Parameters
    ----------
    load : ndarray, shape (buses, columns)
        Load in per unit.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of the loads.
    proxy : ndarray, optional
        Public loads of this shape.
    """
    if not len(load):
        return cp.Constant(load)
    return dp.Private(load, name=f"load of {name}", adjacency=change, proxy=proxy)


def private_profiles(
    nominal: Floats, factors: Floats, name: str, change: Adjacency
) -> cp.Expression:
    """Return public loads times private factors.

    Parameters
    ----------
    nominal : ndarray, shape (buses, quantities)
        Nominal values in per unit.
    factors : ndarray, shape (buses, hours) or (1, hours)
        Factors: one row per bus, or one row for all buses.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of the factors.

    Returns
    -------
    cp.Expression, shape (buses, quantities * hours)
    """
    if not len(nominal):
        return cp.Constant(np.zeros((0, nominal.shape[1] * factors.shape[1])))
    declared = dp.Private(factors, name=f"profile of {name}", adjacency=change)
    parts = [
        (column[:, None] if len(factors) == 1 else np.diag(column)) @ declared
        for column in nominal.T
    ]
    return parts[0] if len(parts) == 1 else cp.hstack(parts)


def private_bids(
    model: Model, case: Case, bids: Floats, generators: Ints, name: str, change: Adjacency
) -> cp.Expression:
    """Return the cost of generators, whose linear coefficients are private.

    Parameters
    ----------
    model : Model
    case : Case
        Network of `public_case`.
    bids : ndarray, shape (all generators,)
        Linear coefficients in $/h per unit.
    generators : ndarray of int
        Positions.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of coefficients, in shares of the highest marginal cost of `case`.
    """
    chosen = generators[case.gen.kind[generators] == "gen"]
    if not len(chosen):
        return model.cost(case, generators)
    c1 = case.gen.c1.copy()
    c1[chosen] = 0.0
    rest = replace(case, gen=replace(case.gen, c1=c1))
    factor = cost_scale(case)
    declared = dp.Private(factor * bids[chosen], name=f"bids of {name}", adjacency=change)
    others = factor / cost_scale(rest) * model.cost(rest, generators)
    return declared @ cp.sum(model.power[chosen], axis=1) + others


def private_capacities(
    model: Model,
    case: Case,
    capacities: Floats,
    zone: int,
    generators: Ints,
    name: str,
    change: Adjacency,
    ramps: float | None = None,
    availability: Floats | None = None,
) -> list[cp.Constraint]:
    """Return the limits of a zone, with the capacities of its generators private.

    Ramps and availability are shares of private capacities, and hence private limits as well.

    Parameters
    ----------
    model : Model
    case : Case
        Network of `public_case`.
    capacities : ndarray, shape (all generators,)
        Largest powers in per unit; generators with an infinite one have no limit.
    zone : int
    generators : ndarray of int
        Positions of the zone's generators.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of capacities, in per unit.
    ramps : float, optional
        Largest change of power per hour, as a share of each capacity.
    availability : ndarray, shape (all generators, hours), optional
        Share of each capacity that a generator may use.
    """
    limited = (case.gen.kind[generators] == "gen") & np.isfinite(capacities[generators])
    chosen = generators[limited]
    constraints = model.limits(case, zone)
    if not len(chosen):
        return constraints
    most = dp.Private(capacities[chosen], name=f"capacities of {name}", adjacency=change)
    share = np.ones((len(chosen), model.hours))
    if availability is not None:
        share = np.minimum(availability[chosen], 1.0)
    for hour in range(model.hours):
        power, open_ = model.power[chosen, hour], np.flatnonzero(share[:, hour])
        if len(open_):
            constraints.append(power[open_] <= cp.multiply(share[open_, hour], most[open_]))
        if len(open_) < len(chosen):
            constraints.append(power[np.flatnonzero(share[:, hour] == 0)] <= 0)
        if ramps is not None and hour:
            more = power - model.power[chosen, hour - 1]
            constraints += [more <= ramps * most, -more <= ramps * most]
    return constraints
