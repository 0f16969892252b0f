"""The case study as a `dp.Problem`: one agent per zone, its loads private."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .case import Case, read_case
from .hidden import Adjacency, Hidden, adjacency
from .model import Objective, Shared, Variables, variables, zone_model
from .physics import flow_maps
from .sources import Source
from .zones import Zones, read_zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PowerFlow:
    """A network split into zones.

    Attributes
    ----------
    case : Case
    zones : Zones
    variables : Variables
    objective : {"shed", "cost", "both"}
    load_scale : float
    problem : dp.Problem
        One agent per zone, named ``zone <label>``. With "shed" and "both" the loads of a zone (per
        unit, one row per bus, columns P and Q) are its private data; with "cost" if that was asked
        for, those of buses that have one.
    """

    case: Case
    zones: Zones
    variables: Variables
    objective: Objective
    load_scale: float
    problem: dp.Problem


def power_flow(
    case: Source,
    *,
    zones: Mapping[int, Hashable] | str | Path | int | None = None,
    objective: Objective = "shed",
    load_scale: float = 1.0,
    radius: float = 0.01,
    hidden: Hidden | Adjacency = "entry",
    shared: Shared = "voltage",
    equivalents: bool = False,
    private: bool | None = None,
    like: Floats | None = None,
) -> PowerFlow:
    """Read a network and state it as a private distributed problem.

    Parameters
    ----------
    case : int, str, Path, mapping or object with data frames
        Network in one of the forms of `sources.tables`, for example 14 or a path.
    zones : mapping, str, Path, int or None
        See `zones.read_zones`.
    objective : {"shed", "cost", "both"}
        Squared balance residuals (the study of Ryu and Kim), or generation cost: under exact
        balance with public loads, and with private ones under the constraint that loads are
        covered; or both added up, see `model.zone_model`.
    load_scale : float
        Positive factor on all loads.
    radius : float
        Size of the change that stays hidden, in per unit.
    hidden : {"entry", "customer", "load", "zone"}, dp.Within or dp.Rows
        What changes by at most that: one number of one bus, one customer, a whole load, or all
        loads of a zone; see `hidden.adjacency`.
    shared : {"voltage", "flow"}
        Consensus set, see `model.Variables`.
    equivalents : bool
        See `case.read_case`.
    private : bool, optional
        Whether loads are private; by default but with "cost". With "cost" a plan then needs
        ``violation_probability=``.
    like : ndarray, shape (buses, 2), optional
        Public loads of the same kind in per unit. Noise and margins are shaped by them, and what
        is tried or forecast is tried on them.

    Returns
    -------
    PowerFlow

    Raises
    ------
    CaseError
        The file or the zones cannot be used.
    dp.ModelError
        Another argument cannot be used.
    """
    change = adjacency(hidden, radius)
    network = read_case(case, equivalents=equivalents)
    partition = read_zones(zones, network)
    declared = variables(network, partition, shared)
    loads = network.scaled_load(load_scale)
    agents = []
    for zone, label in enumerate(partition.names):
        own = loads[partition.buses[zone]]
        name = f"zone {label}"
        load: cp.Expression = cp.Constant(own)
        served = np.arange(len(own))
        if objective != "cost" if private is None else private:
            near = None if like is None else like[partition.buses[zone]]
            if objective == "cost":
                # Which buses have a load is then public: all others need no reserve.
                served = np.flatnonzero(own.any(axis=1))
            load = _private_load(own[served], f"load of {name}", change, near, served)
        cost, constraints = zone_model(network, partition, declared, zone, load, objective, served)
        agents.append(dp.Agent(cp.Minimize(cost), constraints, name=name))
    problem = dp.Problem(agents, start=flat_start(network, partition, declared))
    return PowerFlow(network, partition, declared, objective, load_scale, problem)


def _private_load(
    own: Floats, name: str, change: Adjacency, like: Floats | None, served: Ints
) -> cp.Expression:
    """Private loads of the served buses; a constant where there are none."""
    if not len(served):
        return cp.Constant(own)
    near = None if like is None else like[served]
    return dp.Private(own, name=name, adjacency=change, proxy=near)


def flat_start(case: Case, zones: Zones, declared: Variables) -> dict[cp.Variable, Floats]:
    """Unit voltages, the flows that follow from them, generation in the middle of its bounds.

    Parameters
    ----------
    case : Case
    zones : Zones
    declared : Variables

    Returns
    -------
    dict
        For ``dp.Problem(..., start=...)``.
    """
    pairs = case.pairs.first.size
    w, wr, wi = np.ones(case.bus.id.size), np.ones(pairs), np.zeros(pairs)
    start = {declared.w: w, declared.wr: wr, declared.wi: wi}
    maps = flow_maps(case)
    for end in maps:
        flow = maps[end].w_map @ w + maps[end].wr_map @ wr + maps[end].wi_map @ wi
        entries = np.zeros(getattr(declared, end).size)
        for branches, places in zip(zones.branches, declared.flows, strict=True):
            entries[places] = flow[branches]
        start[getattr(declared, end)] = entries
    gen = case.gen
    links, power = case.links, middle(gen.pmin, gen.pmax)
    power[links.end] = -(1 - links.loss1) * power[links.start] - links.loss0
    start[declared.pg] = power
    start[declared.qg] = middle(gen.qmin, gen.qmax)
    return {variable: value for variable, value in start.items() if variable.size}


def middle(low: Floats, high: Floats) -> Floats:
    """Return the middle of bounds, 0 where one of them is infinite."""
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)) / 2, 0.0)
