"""Models of power flow behind one interface: limits of a zone, power for its loads, and its cost.

`study.power_flow` adds the terms that all models share: loads, storage, ramps, and private data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from .case import Case
from .dc import (
    DcVariables,
    branch_limits,
    contingency_limits,
    dc_cost,
    dc_delivered,
    dc_flows,
    dc_variables,
    generation_limits,
    link_limits,
)
from .distflow import (
    DistFlowVariables,
    distflow_cost,
    distflow_delivered,
    distflow_limits,
    distflow_variables,
)
from .hours import hourly
from .model import (
    Shared,
    Variables,
    cost_of,
    delivered,
    generators_of,
    variables,
    zone_constraints,
)
from .physics import ENDS, flow_maps, susceptances
from .ptdf import (
    Form,
    PtdfVariables,
    ptdf_angles,
    ptdf_delivered,
    ptdf_flows,
    ptdf_limits,
    ptdf_variables,
)
from .security import NetworkCopy, copy_constraints, network_copies
from .solution import State, network_state
from .ties import crossing, voltage_coordinates
from .zones import Zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = Literal["soc", "dc", "distflow"]


class Model(Protocol):
    """A model of the network over some hours.

    Attributes
    ----------
    quantities : int
        2 if buses balance active and reactive power, 1 if they balance active power only.
    hours : int
        Number of hours.
    """

    @property
    def quantities(self) -> int:
        """Number of quantities that buses balance."""
        ...

    @property
    def hours(self) -> int:
        """Number of hours."""
        ...

    @property
    def power(self) -> cp.Expression:
        """Active power of all generators, shape (generators, hours), in per unit."""
        ...

    def limits(self, case: Case, zone: int) -> list[cp.Constraint]:
        """Return all constraints of a zone except its balance; `case` bounds generation."""
        ...

    def delivered(self, zone: int) -> cp.Expression:
        """Return the power for the loads of a zone: columns are hours, active power first."""
        ...

    def cost(self, case: Case, generators: Ints) -> cp.Expression:
        """Return the cost of generators over all hours, times `model.cost_scale` of `case`."""
        ...

    def flows(self, zone: int, branches: Ints, hour: int) -> tuple[cp.Expression, ...]:
        """Return flows on some branches of a zone, by positions in ``zones.branches[zone]``."""
        ...

    def reserve(self, hour: int) -> cp.Variable:
        """Return the reserve that covers private loads at buses, shape (buses, quantities)."""
        ...

    def state(self, hour: int) -> State:
        """Return the network state of an hour, from the values of the variables."""
        ...

    def start(self) -> dict[cp.Variable, Floats]:
        """Return a public initial point."""
        ...


@dataclass(frozen=True, eq=False)
class SocModel:
    """Second-order-cone relaxation, with separate variables for every hour and outage."""

    case: Case
    zones: Zones
    x: tuple[Variables, ...]
    cuts: bool = False
    copies: tuple[tuple[NetworkCopy, ...], ...] = ()  # network after each outage, by hour
    quantities: int = 2

    @property
    def hours(self) -> int:
        """Number of hours."""
        return len(self.x)

    @property
    def power(self) -> cp.Expression:
        """Active power of all generators, shape (generators, hours), in per unit."""
        return cp.vstack([x.pg for x in self.x]).T

    def limits(self, case: Case, zone: int) -> list[cp.Constraint]:
        """Return all constraints of a zone but its balance, with the bounds of `case`."""
        limits = [
            limit
            for x in self.x
            for limit in zone_constraints(case, self.zones, x, zone, cuts=self.cuts)
        ]
        for x, copies in zip(self.x, self.copies, strict=False):
            for copy in copies:
                limits += copy_constraints(case, self.zones, x, copy, zone, cuts=self.cuts)
        return limits

    def delivered(self, zone: int) -> cp.Expression:
        """Return the power for the loads of a zone: columns are hours, active power first."""
        each = [delivered(self.case, self.zones, x, zone) for x in self.x]
        if len(each) == 1:
            return each[0]
        return cp.vstack([power[:, column] for column in range(2) for power in each]).T

    def cost(self, case: Case, generators: Ints) -> cp.Expression:
        """Return the cost of generators over all hours, times `model.cost_scale` of `case`."""
        costs = [cost_of(case, generators, x.pg, x.qg) for x in self.x]
        return costs[0] if len(costs) == 1 else sum(costs[1:], costs[0])

    def flows(self, zone: int, branches: Ints, hour: int) -> tuple[cp.Expression, ...]:
        """Return flows on some branches of a zone, by positions in ``zones.branches[zone]``."""
        entries = self.x[hour].flows[zone][branches]
        return tuple(getattr(self.x[hour], end)[entries] for end in ENDS)

    def reserve(self, hour: int) -> cp.Variable:
        """Return the reserve at buses, shape (buses, quantities)."""
        return self.x[hour].reserve

    def state(self, hour: int) -> State:
        """Return the point of an hour, from the values of the variables."""
        return network_state(self.case, self.zones, self.x[hour])

    def start(self) -> dict[cp.Variable, Floats]:
        """Return a public initial point."""
        start: dict[cp.Variable, Floats] = {}
        for x in self.x:
            start |= flat_start(self.case, self.zones, x)
        for copy in (copy for copies in self.copies for copy in copies):
            start |= flat_start(copy.case, copy.zones, copy.x)
        return start


@dataclass(frozen=True, eq=False)
class _DirectCurrent:
    """Base of both forms of the direct-current approximation, with limits after outages."""

    case: Case
    zones: Zones
    x: DcVariables | PtdfVariables
    reserves: tuple[cp.Variable, ...]
    outages: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    emergency: float = 1.0
    quantities: int = 1

    @property
    def hours(self) -> int:
        """Number of hours."""
        return self.x.power.shape[1]

    @property
    def power(self) -> cp.Expression:
        """Active power of all generators, shape (generators, hours), in per unit."""
        return self.x.power

    def network_limits(self, zone: int) -> list[cp.Constraint]:
        """Return limits of flows and angles of a zone, also after outages."""
        raise NotImplementedError

    def limits(self, case: Case, zone: int) -> list[cp.Constraint]:
        """Return all constraints of a zone but its balance, with the bounds of `case`."""
        power, generators = self.x.power, generators_of(case, self.zones, zone)
        return [
            *self.network_limits(zone),
            *link_limits(case, power, generators),
            *generation_limits(power, generators, case.gen.pmin, case.gen.pmax),
        ]

    def cost(self, case: Case, generators: Ints) -> cp.Expression:
        """Return the cost of generators over all hours, times `model.cost_scale` of `case`."""
        return dc_cost(case, self.x.power, generators)

    def reserve(self, hour: int) -> cp.Variable:
        """Return the reserve at buses, shape (buses, quantities)."""
        return self.reserves[hour]

    def _middle(self) -> Floats:
        """Return generation in the middle of its bounds, for a public initial point."""
        return hourly(middle(self.case.gen.pmin, self.case.gen.pmax), self.hours)


@dataclass(frozen=True, eq=False)
class DcModel(_DirectCurrent):
    """Direct-current approximation with angles as variables."""

    x: DcVariables

    def network_limits(self, zone: int) -> list[cp.Constraint]:
        """Return limits of flows and angles of a zone, also after outages."""
        case, zones, x = self.case, self.zones, self.x
        return [
            *branch_limits(case, zones, x, zone),
            *contingency_limits(case, zones, x, zone, self.outages, self.emergency),
        ]

    def delivered(self, zone: int) -> cp.Expression:
        """Return the power for the loads of a zone: columns are hours, active power first."""
        return dc_delivered(self.case, self.zones, self.x, zone)

    def flows(self, zone: int, branches: Ints, hour: int) -> tuple[cp.Expression, ...]:
        """Return flows on some branches of a zone, by positions in ``zones.branches[zone]``."""
        rows = self.zones.branches[zone][branches]
        return (dc_flows(self.case, self.x.seen(zone), rows)[:, hour],)

    def state(self, hour: int) -> State:
        """Return the point of an hour, from the values of the variables."""
        angle, power = (np.asarray(v.value)[:, hour] for v in (self.x.angle, self.x.power))
        return _dc_state(self.case, angle[: len(self.case.bus.id)], power)

    def start(self) -> dict[cp.Variable, Floats]:
        """Return a public initial point."""
        zeros = [v for v in (self.x.angle, self.x.tie) if v is not None]
        return {**{v: np.zeros(v.shape) for v in zeros}, self.x.power: self._middle()}


@dataclass(frozen=True, eq=False)
class PtdfModel(_DirectCurrent):
    """Direct-current approximation with injections in place of angles; see `ptdf`."""

    x: PtdfVariables

    def network_limits(self, zone: int) -> list[cp.Constraint]:
        """Return limits of flows and angles of a zone, also after outages."""
        return ptdf_limits(self.case, self.zones, self.x, zone, self.outages, self.emergency)

    def delivered(self, zone: int) -> cp.Expression:
        """Return the power for the loads of a zone: columns are hours, active power first."""
        return ptdf_delivered(self.case, self.zones, self.x, zone)

    def flows(self, zone: int, branches: Ints, hour: int) -> tuple[cp.Expression, ...]:
        """Return flows on some branches of a zone, by positions in ``zones.branches[zone]``."""
        rows = self.zones.branches[zone][branches]
        return (ptdf_flows(self.case, self.zones, self.x, zone, rows)[:, hour],)

    def state(self, hour: int) -> State:
        """Return the point of an hour, from the values of the variables."""
        power = np.asarray(self.x.power.value)[:, hour]
        return _dc_state(self.case, ptdf_angles(self.case, self.x)[:, hour], power)

    def start(self) -> dict[cp.Variable, Floats]:
        """Return a public initial point."""
        zeros = {v: np.zeros(v.shape) for v in (self.x.injection, self.x.sent)}
        return {**zeros, self.x.power: self._middle()}


@dataclass(frozen=True, eq=False)
class DistFlowModel:
    """The linearized DistFlow model of radial networks."""

    case: Case
    zones: Zones
    x: DistFlowVariables
    reserves: tuple[cp.Variable, ...]
    quantities: int = 2

    @property
    def hours(self) -> int:
        """Number of hours."""
        return self.x.w.shape[1]

    @property
    def power(self) -> cp.Expression:
        """Active power of all generators, shape (generators, hours), in per unit."""
        return self.x.power

    def limits(self, case: Case, zone: int) -> list[cp.Constraint]:
        """Return all constraints of a zone but its balance, with the bounds of `case`."""
        return distflow_limits(case, self.zones, self.x, zone)

    def delivered(self, zone: int) -> cp.Expression:
        """Return the power for the loads of a zone: columns are hours, active power first."""
        return distflow_delivered(self.case, self.zones, self.x, zone)

    def cost(self, case: Case, generators: Ints) -> cp.Expression:
        """Return the cost of generators over all hours, times `model.cost_scale` of `case`."""
        return distflow_cost(case, self.x, generators)

    def flows(self, zone: int, branches: Ints, hour: int) -> tuple[cp.Expression, ...]:
        """Return flows on some branches of a zone, by positions in ``zones.branches[zone]``."""
        at = self.zones.branches[zone][branches]
        p, q = self.x.p[at, hour], self.x.q[at, hour]
        return p, q, -p, -q

    def reserve(self, hour: int) -> cp.Variable:
        """Return the reserve at buses, shape (buses, quantities)."""
        return self.reserves[hour]

    def state(self, hour: int) -> State:
        """Return the point of an hour, from the values of the variables."""
        case, branch = self.case, self.case.branch
        x = self.x
        w, p, q, power, reactive = (
            np.asarray(v.value)[:, hour] for v in (x.w, x.p, x.q, x.power, x.reactive)
        )
        across = np.zeros(len(case.pairs.first))
        across[case.pairs.of_branch] = case.pairs.sign * (
            branch.shift + branch.x * p - branch.r * q
        )
        half = branch.b / 2
        charged = half * w[branch.from_bus] / branch.tap**2, half * w[branch.to_bus]
        return _state(case, w, across, (power, reactive), (p, q - charged[0], -q - charged[1]))

    def start(self) -> dict[cp.Variable, Floats]:
        """Return a public initial point."""
        gen, x = self.case.gen, self.x
        return {
            x.w: np.ones(x.w.shape),
            x.p: np.zeros(x.p.shape),
            x.q: np.zeros(x.q.shape),
            x.power: hourly(middle(gen.pmin, gen.pmax), self.hours),
            x.reactive: hourly(middle(gen.qmin, gen.qmax), self.hours),
        }


def make_model(
    kind: Kind,
    case: Case,
    zones: Zones,
    hours: int,
    shared: Shared = "voltage",
    outages: Ints | None = None,
    emergency: float = 1.0,
    cuts: bool = False,
    form: Form = "angles",
) -> SocModel | DcModel | PtdfModel | DistFlowModel:
    """Declare the variables of a model.

    Parameters
    ----------
    kind : {"soc", "dc", "distflow"}
    case, zones
        Network and its partition.
    hours : int
    shared : {"voltage", "flow", "tie"}
        Shared quantities of "soc", see `model.Variables`. With "tie", also of "dc" with angles.
    outages : ndarray of int, optional
        Positions of branches whose outage "soc" and "dc" have to survive; see `security` and
        `dc.contingency_limits`.
    emergency : float
        Share of its rating that a branch may carry after an outage.
    cuts : bool
        Option of "soc", see `model.lifted_cuts`.
    form : {"angles", "ptdf"}
        Option of "dc", see `ptdf`.
    """
    lost = np.zeros(0, dtype=np.int64) if outages is None else outages
    if kind == "soc":
        each = tuple(variables(case, zones, shared) for _ in range(hours))
        copies = tuple(network_copies(case, zones, lost, emergency, shared) for _ in range(hours))
        return SocModel(case, zones, each, cuts, copies)
    quantities = 1 if kind == "dc" else 2
    reserves = tuple(
        cp.Variable((len(case.bus.id), quantities), name="reserve") for _ in range(hours)
    )
    if kind == "distflow":
        return DistFlowModel(case, zones, distflow_variables(case, hours), reserves)
    if form == "ptdf":
        x = ptdf_variables(case, zones, hours, lost)
        return PtdfModel(case, zones, x, reserves, lost, emergency)
    x = dc_variables(case, hours, zones if shared == "tie" else None)
    return DcModel(case, zones, x, reserves, lost, emergency)


def flat_start(case: Case, zones: Zones, declared: Variables) -> dict[cp.Variable, Floats]:
    """Return unit voltages, their flows, and generation in the middle of its bounds.

    Parameters
    ----------
    case : Case
    zones : Zones
    declared : Variables

    Returns
    -------
    dict
        Initial values for ``dp.Problem(..., start=...)``.
    """
    pairs = case.pairs.first.size
    w, wr, wi = np.ones(case.bus.id.size), np.ones(pairs), np.zeros(pairs)
    start = {v: np.ones(v.size) for v in (declared.w, declared.wr)}
    start[declared.wi] = np.zeros(declared.wi.size)
    if declared.tie is not None:
        shared = voltage_coordinates(case, crossing(case, zones), w, wr, wi)
        start[declared.tie] = np.concatenate(shared)
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
    """Return the middle of bounds, or 0 if one of them is infinite."""
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (np.where(bounded, low, 0.0) + np.where(bounded, high, 0.0)) / 2, 0.0)


def _dc_state(case: Case, angle: Floats, power: Floats) -> State:
    """Return the network state of an hour with these angles and this generation."""
    size = np.clip(1.0, case.bus.vmin, case.bus.vmax)
    start, end = case.branch.from_bus, case.branch.to_bus
    flow = susceptances(case) * (angle[start] - angle[end] - case.branch.shift)
    return _state(
        case,
        size**2,
        angle[case.pairs.first] - angle[case.pairs.second],
        (power, np.zeros(len(power))),
        (flow, np.zeros(len(flow)), np.zeros(len(flow))),
    )


def _state(
    case: Case,
    w: Floats,
    across: Floats,
    generation: tuple[Floats, Floats],
    flow: tuple[Floats, Floats, Floats],
) -> State:
    """Return a state from squared voltages, angles across pairs, generation, and flows."""
    size = np.sqrt(np.maximum(w, 0.0))
    product = size[case.pairs.first] * size[case.pairs.second]
    return State(
        w=w,
        wr=product * np.cos(across),
        wi=product * np.sin(across),
        pg=generation[0],
        qg=generation[1],
        pf=flow[0],
        qf=flow[1],
        pt=-flow[0],
        qt=flow[2],
    )
