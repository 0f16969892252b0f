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
    model: Model, case: Case, generators: Ints, name: str, change: Adjacency
) -> cp.Expression:
    """Return the cost of generators, whose linear coefficients are private.

    Parameters
    ----------
    model : Model
    case : Case
    generators : ndarray of int
        Positions.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of coefficients, in shares of the highest marginal cost of all generators.
    """
    chosen = generators[case.gen.kind[generators] == "gen"]
    if not len(chosen):
        return model.cost(case, generators)
    c1 = case.gen.c1.copy()
    c1[chosen] = 0.0
    rest = replace(case, gen=replace(case.gen, c1=c1))
    factor = cost_scale(case)
    bids = dp.Private(factor * case.gen.c1[chosen], name=f"bids of {name}", adjacency=change)
    others = factor / cost_scale(rest) * model.cost(rest, generators)
    return bids @ cp.sum(model.power[chosen], axis=1) + others


def private_capacities(
    model: Model, case: Case, zone: int, generators: Ints, name: str, change: Adjacency
) -> list[cp.Constraint]:
    """Return the limits of a zone, with the capacities of its generators private.

    Parameters
    ----------
    model : Model
    case : Case
    zone : int
    generators : ndarray of int
        Positions of the zone's generators.
    name : str
        Name of the zone.
    change : dp.Within or dp.Rows
        Adjacency of capacities, in per unit.
    """
    limited = (case.gen.kind[generators] == "gen") & np.isfinite(case.gen.pmax[generators])
    chosen = generators[limited]
    if not len(chosen):
        return model.limits(case, zone)
    pmax = case.gen.pmax.copy()
    pmax[chosen] = np.inf
    public = model.limits(replace(case, gen=replace(case.gen, pmax=pmax)), zone)
    most = dp.Private(case.gen.pmax[chosen], name=f"capacities of {name}", adjacency=change)
    return [*public, *(model.power[chosen, t] <= most for t in range(model.hours))]
