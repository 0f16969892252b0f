"""The direct-current power flow as a `dp.Problem`: one agent per zone, over several hours.

Its outcome has prices at every bus, and an AC power flow can be solved for every hour.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Literal, get_args

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.errors import SolverError

from .ac import AcCheck, Loads, at_true_loads, checked
from .case import Case, read_case
from .dc import (
    DcVariables,
    Store,
    branch_limits,
    dc_cost,
    dc_delivered,
    dc_flows,
    dc_variables,
    generation_limits,
    hourly,
    ramp_limits,
    storage_limits,
    stores_of,
)
from .errors import CaseError
from .hidden import Adjacency, Hidden, adjacency
from .model import IMBALANCE, Objective, cost_scale, generators_of
from .physics import incidence
from .profiles import read_profiles
from .solution import State
from .solver import solve
from .sources import Source
from .study import middle
from .zones import Zones, read_zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PrivateData = Literal["loads", "bids", "capacities"]
# A year.
_MOST_HOURS = 8760


@dataclass(frozen=True, eq=False)
class DcPowerFlow:
    """A network over several hours, split into zones.

    Attributes
    ----------
    case : Case
    zones : Zones
    variables : DcVariables
    stores : tuple of Store
    objective : {"shed", "cost", "both"}
    private : {"loads", "bids", "capacities"} or None
    load : ndarray, shape (buses, hours)
        Active loads in per unit.
    balance : tuple of cp.Constraint
        For ``"cost"``, the balance of each zone, of shape (own buses, hours), whose dual values are
        prices; else empty.
    problem : dp.Problem
        One agent per zone, named ``zone <label>``.
    """

    case: Case
    zones: Zones
    variables: DcVariables
    stores: tuple[Store, ...]
    objective: Objective
    private: PrivateData | None
    load: Floats
    balance: tuple[cp.Constraint, ...]
    problem: dp.Problem


def dc_power_flow(
    case: Source,
    *,
    zones: Mapping[int, Hashable] | str | Path | int | None = None,
    objective: Objective = "cost",
    private: PrivateData | None = "loads",
    horizon: int = 1,
    profiles: Floats | str | Path | None = None,
    storage: Sequence[Store] = (),
    ramps: float | Floats | None = None,
    load_scale: float = 1.0,
    radius: float = 0.01,
    hidden: Hidden | Adjacency = "entry",
) -> DcPowerFlow:
    """Read a network and state its direct-current power flow as a private distributed problem.

    Parameters
    ----------
    case : int, str, Path, mapping or object with data frames
        Network in one of the forms of `sources.tables`.
    zones : mapping, str, Path, int or None
        See `zones.read_zones`.
    objective : {"shed", "cost", "both"}
        Squared balance residuals; or generation cost under exact balance, which holds for released
        data (``plan(..., constraints="released")``); or both added up, see `model.zone_model`.
    private : {"loads", "bids", "capacities"} or None
        What each zone keeps private: its active loads (of buses that have one in any hour), the
        linear cost of its generators, or their largest power.
    horizon : int
        Hours.
    profiles : ndarray, str, Path, optional
        Factors on the loads, of shape (hours,) or (buses, hours), or a CSV file of them; see
        `profiles.read_profiles`. One everywhere if omitted.
    storage : sequence of Store
    ramps : float or ndarray, optional
        See `ramp_limits`.
    load_scale : float
        Positive factor on all loads.
    radius : float
        Size of the change that stays hidden: of loads and capacities in per unit, of bids as a
        share of the dearest marginal cost of all generators.
    hidden : {"entry", "customer", "load", "zone"}, dp.Within or dp.Rows
        What changes by at most that. For loads: one hour at one bus; one customer of a bus, whose
        changes over all hours have that length; the whole load of a bus in all hours; or all loads
        of a zone. For bids and capacities: those of one generator, or with "zone" of all.

    Returns
    -------
    DcPowerFlow

    Raises
    ------
    CaseError
        The file, zones, profiles or storage cannot be used.
    dp.ModelError
        Another argument cannot be used.
    """
    network = read_case(case)
    partition = read_zones(zones, network)
    _check(network, objective, private, horizon, storage, ramps)
    factors = read_profiles(profiles, network, horizon)
    load = network.scaled_load(load_scale)[:, :1] * factors
    x = dc_variables(network, horizon, storage)
    change = adjacency(hidden, radius)
    agents, balance = [], []
    for zone, label in enumerate(partition.names):
        name, generators = f"zone {label}", generators_of(network, partition, zone)
        needed: cp.Expression = cp.Constant(load[partition.buses[zone]])
        cost, bounds = dc_cost(network, x, generators), generation_limits(network, x, generators)
        if private == "loads":
            needed = _private_load(load[partition.buses[zone]], name, change)
        elif private == "bids":
            cost = _private_bids(network, x, generators, name, change)
        elif private == "capacities":
            bounds = _private_capacities(network, x, generators, name, change)
        held = stores_of(network, partition, zone, storage)
        limits = [
            *branch_limits(network, partition, x, zone),
            *storage_limits(network, x, storage, held),
            *(() if ramps is None else ramp_limits(network, x, generators, ramps)),
            *bounds,
        ]
        delivered = dc_delivered(network, partition, x, zone, storage)
        if objective == "cost":
            balanced = delivered == needed
            balance.append(balanced)
            limits.append(balanced)
        else:
            missing = cp.sum_squares(delivered - needed)
            cost = missing if objective == "shed" else cost + IMBALANCE * missing
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=name))
    problem = dp.Problem(agents, start=_start(network, x, storage))
    return DcPowerFlow(
        network, partition, x, tuple(storage), objective, private, load, tuple(balance), problem
    )


def _private_load(load: Floats, name: str, change: Adjacency) -> cp.Expression:
    """Loads of a zone, of which those of buses that have one are private."""
    served = np.flatnonzero(load.any(axis=1))
    if not len(served):
        return cp.Constant(load)
    declared = dp.Private(load[served], name=f"load of {name}", adjacency=change)
    return declared if len(served) == len(load) else incidence(served, len(load)) @ declared


def _private_bids(
    case: Case, x: DcVariables, generators: Ints, name: str, change: Adjacency
) -> cp.Expression:
    """The cost of generators, whose linear coefficients are private."""
    chosen = generators[case.gen.kind[generators] == "gen"]
    if not len(chosen):
        return dc_cost(case, x, generators)
    c1 = case.gen.c1.copy()
    c1[chosen] = 0.0
    rest = replace(case, gen=replace(case.gen, c1=c1))
    factor = cost_scale(case)
    bids = dp.Private(factor * case.gen.c1[chosen], name=f"bids of {name}", adjacency=change)
    others = factor / cost_scale(rest) * dc_cost(rest, x, generators)
    return bids @ cp.sum(x.power[chosen], axis=1) + others


def _private_capacities(
    case: Case, x: DcVariables, generators: Ints, name: str, change: Adjacency
) -> list[cp.Constraint]:
    """Bounds on generators, the largest power of which is private."""
    limited = (case.gen.kind[generators] == "gen") & np.isfinite(case.gen.pmax[generators])
    chosen = generators[limited]
    if not len(chosen):
        return generation_limits(case, x, generators)
    pmax = case.gen.pmax.copy()
    pmax[chosen] = np.inf
    public = generation_limits(replace(case, gen=replace(case.gen, pmax=pmax)), x, generators)
    most = dp.Private(case.gen.pmax[chosen], name=f"capacities of {name}", adjacency=change)
    hours = x.power.shape[1]
    return [*public, *(x.power[chosen, t] <= most for t in range(hours))]


def dc_optimum(study: DcPowerFlow) -> float:
    """Solve with all data in one place; not private. The variables hold a minimizer afterwards.

    Parameters
    ----------
    study : DcPowerFlow

    Returns
    -------
    float
        In squared per unit for "shed", in $ for the others.

    Raises
    ------
    dpcvx.errors.SolverError
        The solver finds no optimum, for example because the loads cannot be served.
    """
    problem = dp.not_private.joint_problem(study.problem)
    status = solve(problem)
    if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise SolverError(
            f"{study.case.name}: the problem with all data in one place ended as {status}. Lower "
            "load_scale=, or use the objective 'shed', which leaves power unbalanced instead."
        )
    return np.asarray(problem.value).item() / _unit(study)


def dc_imbalance(study: DcPowerFlow) -> Floats:
    """Return what each bus gets beyond its true load, in MW; not private.

    Parameters
    ----------
    study : DcPowerFlow
        Its variables must hold the values of a run.

    Returns
    -------
    ndarray, shape (buses, hours)
    """
    return study.case.base_mva * (_served(study) - study.load)


def dc_prices(study: DcPowerFlow, result: dp.Result) -> Floats:
    """Return the marginal price of power at every bus, from the problem for released data.

    Parameters
    ----------
    study : DcPowerFlow
        With the objective "cost".
    result : dp.Result

    Returns
    -------
    ndarray, shape (buses, hours)
        In $/MWh: what one more megawatt of load costs. It costs no privacy.

    Raises
    ------
    dp.ModelError
        The study has another objective.
    dp.PrivacyError
        The run has no prices; see `Solution.dual`.
    """
    if not study.balance:
        raise dp.ModelError(
            f"The objective {study.objective!r} has no balance that holds exactly, so there are no "
            "prices. Write objective='cost'."
        )
    prices = np.zeros(study.load.shape)
    for buses, balance in zip(study.zones.buses, study.balance, strict=True):
        prices[buses] = -np.asarray(result.solution.dual(balance))
    return prices / (cost_scale(study.case) * study.case.base_mva)


def dc_ac_check(
    study: DcPowerFlow,
    result: dp.Result,
    loads: ModuleType | None = None,
    *,
    power_factor: float = 0.95,
) -> tuple[AcCheck, ...]:
    """Solve the AC power flow of every hour from the generation of a run, as `ac.ac_check` does.

    Generators hold 1 per unit of voltage, or the nearest limit. Where loads are private, the active
    ones are those that the returned point serves, and the reactive ones follow from a public power
    factor, since the model has none.

    Parameters
    ----------
    study : DcPowerFlow
        Its variables must hold the values of the run.
    result : dp.Result
    loads : module, optional
        Pass ``dp.not_private`` for the true active and reactive loads instead.
    power_factor : float
        Of private loads, between 0 and 1, inductive.

    Raises
    ------
    dp.ModelError
        `loads` is something else, the power factor is none, or the run has no point.
    """
    true = at_true_loads(result, loads)
    if not 0 < power_factor <= 1:
        raise dp.ModelError("power_factor= is not above 0 and up to 1. Write for example 0.95.")
    case = study.case
    # Loads that the file has as 0 have no power factor.
    ratio = np.divide(
        case.bus.qd, case.bus.pd, out=np.zeros(len(case.bus.pd)), where=case.bus.pd != 0
    )
    whose: Loads = "true" if true else "served" if study.private == "loads" else "public"
    active = study.load
    if whose == "served":
        active = np.zeros(study.load.shape)
        for zone, buses in enumerate(study.zones.buses):
            active[buses] = dc_delivered(
                case, study.zones, study.variables, zone, study.stores
            ).value
        ratio = np.full(len(ratio), np.sqrt(1 / power_factor**2 - 1))
    return tuple(
        checked(case, _state(study, hour), np.column_stack((p, ratio * p)), whose)
        for hour, p in enumerate(active.T)
    )


def _served(study: DcPowerFlow) -> Floats:
    """Loads that the point serves."""
    served = np.zeros(study.load.shape)
    for zone, buses in enumerate(study.zones.buses):
        power = dc_delivered(study.case, study.zones, study.variables, zone, study.stores)
        served[buses] = np.asarray(power.value)
    return served


def _state(study: DcPowerFlow, hour: int) -> State:
    """The point of an hour, with voltages near 1 per unit."""
    case, x = study.case, study.variables
    angle, power = np.asarray(x.angle.value)[:, hour], np.asarray(x.power.value)[:, hour]
    size = np.clip(1.0, case.bus.vmin, case.bus.vmax)
    first, second = case.pairs.first, case.pairs.second
    product, across = size[first] * size[second], angle[first] - angle[second]
    flow = np.asarray(dc_flows(case, x).value)[:, hour]
    none = np.zeros(len(flow))
    return State(
        w=size**2,
        wr=product * np.cos(across),
        wi=product * np.sin(across),
        pg=power,
        qg=np.zeros(len(power)),
        pf=flow,
        qf=none,
        pt=-flow,
        qt=none,
    )


def _unit(study: DcPowerFlow) -> float:
    return 1.0 if study.objective == "shed" else cost_scale(study.case)


def _start(case: Case, x: DcVariables, stores: Sequence[Store]) -> dict[cp.Variable, Floats]:
    """Angles 0, generation in the middle of its bounds, storage as at the start."""
    energy = np.array([store.start * store.energy / case.base_mva for store in stores])
    start = {
        x.angle: np.zeros(x.angle.shape),
        x.power: hourly(middle(case.gen.pmin, case.gen.pmax), x),
        x.takes: np.zeros(x.takes.shape),
        x.gives: np.zeros(x.gives.shape),
        x.energy: hourly(energy, x),
    }
    return {variable: value for variable, value in start.items() if variable.size}


def _check(
    case: Case,
    objective: str,
    private: str | None,
    horizon: int,
    stores: Sequence[Store],
    ramps: float | Floats | None,
) -> None:
    """Refuse arguments of which no model can be made."""
    if objective not in get_args(Objective):
        raise dp.ModelError(
            f"objective={objective!r} is not known. Write 'cost', 'both' or 'shed'."
        )
    if private not in (None, *get_args(PrivateData)):
        raise dp.ModelError(
            f"private={private!r} is not known. Write 'loads', 'bids', 'capacities' or None."
        )
    if private in ("bids", "capacities") and objective == "shed":
        raise dp.ModelError(
            f"With the objective 'shed' nothing has a cost, so private={private!r} would protect "
            "what is not used. Write objective='cost' or 'both'."
        )
    if isinstance(horizon, bool) or not isinstance(horizon, int) or not 1 <= horizon <= _MOST_HOURS:
        raise dp.ModelError(f"horizon= is no number of hours from 1 to {_MOST_HOURS}. Write 24.")
    if horizon > 1 and np.any(case.gen.kind == "storage"):
        raise CaseError(
            f"{case.name} has storage rows, which hold for one period. Switch them off in the "
            "file, and write storage=[Store(...)]."
        )
    if ramps is not None and not np.all(np.asarray(ramps, dtype=np.float64) > 0):
        raise dp.ModelError("ramps= has numbers that are not positive. Write 0.3 for 30 % an hour.")
    if isinstance(ramps, np.ndarray) and ramps.shape != case.gen.pmax.shape:
        raise dp.ModelError(
            f"ramps= has shape {ramps.shape}, and {case.name} has {len(case.gen.pmax)} generators "
            "in service. Write a number of MW per hour for each."
        )
    for k, store in enumerate(stores):
        good = (
            store.bus in case.bus.id
            and 0 < store.power < np.inf
            and 0 < store.energy < np.inf
            and 0 < store.efficiency <= 1
            and 0 <= store.start <= 1
        )
        if not good:
            raise CaseError(
                f"storage[{k}] is at a bus that is not in service, or its power, energy, "
                "efficiency or start are none. Write Store(bus=..., power=..., energy=...) in MW "
                "and MWh, and shares up to 1."
            )
