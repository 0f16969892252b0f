"""Least-cost dispatch that covers private loads within limits of lines."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from ..power_flow.case import Case
from ..power_flow.physics import transfer

# Cost of a unit of reserve, up or down, relative to the most expensive generator.
_RESERVE = 5.0


def covered_dispatch(
    case: Case,
    *,
    radius: float = 0.01,
    rating: float = 1.0,
    like: NDArray[np.float64] | None = None,
) -> dp.Problem:
    """State generation and reserves that cover private active loads, in the DC approximation.

    One agent, an operator, holds the loads. Generation and reserve together are at least the total
    load, and every line satisfies its limit for the true loads. Generation beyond the load is
    spilled at the first bus. Reserve can be bought at every bus, up and down, so that a decision
    exists for all loads. Powers are in per unit, prices in units of the highest price.

    Parameters
    ----------
    case : Case
    radius : float
        Protected change of one load, in per unit.
    rating : float
        Factor on the limits of lines.
    like : ndarray, optional
        Public proxy loads in per unit, of the buses that have a load. They shape noise and margins.
    """
    case.check_plain()
    loads = np.flatnonzero(case.bus.pd)
    flows, gen = transfer(case), case.gen
    at = np.zeros((len(case.bus.id), len(gen.bus)))
    at[gen.bus, np.arange(len(gen.bus))] = 1.0
    power = cp.Variable(len(gen.bus), name="power")
    up = cp.Variable(len(case.bus.id), name="up", nonneg=True)
    down = cp.Variable(len(case.bus.id), name="down", nonneg=True)
    load = dp.Private(case.bus.pd[loads], name="load", adjacency=dp.Within(radius), proxy=like)
    injected = at @ power + up - down
    limited = np.isfinite(case.branch.rate)
    flow = flows[limited] @ injected - flows[np.ix_(limited, loads)] @ load
    limits = [
        gen.pmin <= power,
        power <= gen.pmax,
        cp.sum(injected) >= cp.sum(load),
        cp.abs(flow) <= rating * case.branch.rate[limited],
    ]
    dearest = float(np.max(gen.c1 + 2 * gen.c2 * gen.pmax))
    cost = gen.c1 @ power + cp.sum_squares(cp.multiply(np.sqrt(gen.c2), power))
    total = cost / dearest + _RESERVE * cp.sum(up + down)
    return dp.Problem([dp.Agent(cp.Minimize(total), limits, name="operator")])
