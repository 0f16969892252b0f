"""Optimal power flow as a `dp.Problem` with one agent per zone, each with private data."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .areas import areas, covered
from .arguments import Balance, check_form, check_network, check_shared, check_words, read_proxy
from .case import Case, read_case
from .dc import read_monitored, read_outages
from .errors import CaseError
from .hidden import Adjacency, Hidden, adjacency
from .hours import (
    Flexible,
    StorageVariables,
    Store,
    added,
    availability_limits,
    check_places,
    flexible_cost,
    flexible_limits,
    hourly,
    places_at,
    ramp_limits,
    storage_limits,
    storage_variables,
)
from .model import Objective, Shared, balanced, generators_of
from .models import DcModel, DistFlowModel, Kind, PtdfModel, SocModel, make_model
from .physics import incidence
from .private import (
    PrivateData,
    private_bids,
    private_capacities,
    private_loads,
    private_profiles,
    public_case,
)
from .profiles import read_profiles
from .ptdf import Form, shared_numbers
from .solution import State
from .sources import Source
from .zones import Zones, read_zones

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Setting:
    """Arguments of `power_flow` after reading and checking."""

    case: Case
    zones: Zones
    kind: Kind
    objective: Objective
    private: PrivateData | None
    balance: Balance
    factors: Floats  # factors on the loads, shape (buses, hours), or (1, hours) for all buses
    load_scale: float
    stores: tuple[Store, ...]
    flexible: tuple[Flexible, ...]
    ramps: float | Floats | None
    availability: Floats | None  # shape (generators, hours)
    outages: Ints  # positions of branches
    emergency: float
    change: Adjacency
    shared: Shared
    cuts: bool
    form: Form
    limits: Case  # the public network, see `public_case`, with limits of monitored branches only
    proxy: Floats | None  # public proxy loads, in the shape of `PowerFlow.load`

    @property
    def is_plain_soc(self) -> bool:
        """Return whether the model equals `solution.central`: "soc" for the file's loads alone."""
        more = self.stores or self.flexible or len(self.outages) or self.availability is not None
        plain = self.factors.shape[1] == 1 and bool(np.all(self.factors == 1.0))
        return self.kind == "soc" and plain and not more


@dataclass(frozen=True, eq=False)
class PowerFlow:
    """A network over some hours, split into zones.

    Attributes
    ----------
    setting : Setting
        Arguments of `power_flow`, including `case`, `zones`, `objective`, `private`, `load_scale`.
    model : SocModel, DcModel, PtdfModel or DistFlowModel
        Model of the network.
    storage : StorageVariables
        Variables of storage.
    flexible : cp.Variable, shape (flexible loads, hours)
        Reductions of flexible loads, in per unit.
    load : ndarray, shape (buses, quantities, hours)
        True loads in per unit: active ones, and reactive ones if the model has them.
    balance : tuple of cp.Constraint
        Balance of each zone, of shape (own buses, quantities * hours), whose dual values are
        prices, for the objective "cost" with exact balance; else empty.
    problem : dp.Problem
        One agent per zone, named ``zone <label>``.
    """

    setting: Setting
    model: SocModel | DcModel | PtdfModel | DistFlowModel
    storage: StorageVariables
    flexible: cp.Variable
    load: Floats
    balance: tuple[cp.Constraint, ...]
    problem: dp.Problem

    @property
    def case(self) -> Case:
        """The network."""
        return self.setting.case

    @property
    def public_case(self) -> Case:
        """The network with public numbers in place of private bids or capacities."""
        return public_case(self.case, self.private)

    @property
    def zones(self) -> Zones:
        """The partition of the network into zones."""
        return self.setting.zones

    @property
    def objective(self) -> Objective:
        """The objective, "shed", "cost" or "both"."""
        return self.setting.objective

    @property
    def private(self) -> PrivateData | None:
        """Kind of private data; None if no data are private."""
        return self.setting.private

    @property
    def load_scale(self) -> float:
        """Factor on all loads."""
        return self.setting.load_scale

    @property
    def hours(self) -> int:
        """Number of hours."""
        return self.load.shape[2]

    @property
    def variables(self) -> Any:
        """Variables of the model; with "soc" and several hours, a tuple with those of each hour."""
        x = self.model.x
        return x[0] if isinstance(x, tuple) and len(x) == 1 else x

    @property
    def shared_numbers(self) -> dict[Form, int]:
        """Count of numbers that two or more zones share, over all hours, by form of "dc"."""
        setting = self.setting
        return {
            form: self.hours * shared_numbers(setting.limits, self.zones, form, setting.outages)
            for form in get_args(Form)
        }

    def state(self, hour: int = 0) -> State:
        """Return the network state of an hour, from the values of the variables.

        Parameters
        ----------
        hour : int
        """
        return self.model.state(hour)

    def full_load(self, hour: int = 0) -> Floats:
        """Return the true active and reactive loads of an hour in per unit, for any model.

        Parameters
        ----------
        hour : int

        Returns
        -------
        ndarray, shape (buses, 2)
        """
        factors = np.broadcast_to(self.setting.factors, (len(self.case.bus.id), self.hours))
        return self.load_scale * self.case.load * factors[:, [hour]]

    def net_load(self, hour: int = 0) -> Floats:
        """Return `full_load` less the power that storage and flexible loads add.

        Parameters
        ----------
        hour : int
        """
        return self.full_load(hour) - self.added_power(hour)[:, None] * [1.0, 0.0]

    def served_load(self, hour: int = 0) -> Floats:
        """Return the loads that are served in an hour, from the values of the variables.

        Parameters
        ----------
        hour : int

        Returns
        -------
        ndarray, shape (buses, quantities)
            Served loads in per unit. They are post-processing, and differ from `load` by the
            imbalance.
        """
        served = np.zeros(self.load.shape[:2])
        for zone, buses in enumerate(self.zones.buses):
            power = _arriving(self.setting, self.model, self.storage, self.flexible, zone)
            value = np.asarray(power.value, dtype=np.float64)
            served[buses] = value.reshape(len(buses), -1, self.hours)[:, :, hour]
        return served

    def added_power(self, hour: int = 0) -> Floats:
        """Return the active power that storage and flexible loads add at each bus, in per unit.

        Parameters
        ----------
        hour : int

        Returns
        -------
        ndarray, shape (buses,)
        """
        everywhere = np.arange(len(self.case.bus.id))
        total = np.zeros(len(everywhere))
        stored = self.storage.gives - self.storage.takes
        for places, power in (
            (self.setting.stores, stored),
            (self.setting.flexible, self.flexible),
        ):
            if places:
                chosen = np.arange(len(places))
                more = added(self.case, places, power, everywhere, chosen).value
                total += np.asarray(more, dtype=np.float64)[:, hour]
        return total

    def public(self, case: Case | None = None) -> PowerFlow:
        """Return the study as one zone without private data; solving it is not private.

        Parameters
        ----------
        case : Case, optional
            Network with other limits. The result then ignores outages, ramps and availability, and
            has the objective "cost".
        """
        limits = replace(self.setting.limits, gen=self.case.gen)
        zone = read_zones(1, self.case)
        setting = replace(self.setting, private=None, balance="exact", zones=zone, limits=limits)
        if case is not None:
            nothing = np.zeros(0, dtype=np.int64)
            setting = replace(setting, case=case, limits=case, outages=nothing, ramps=None)
            setting = replace(setting, objective="cost", availability=None)
        return _assembled(setting)


def power_flow(
    case: Source | Case,
    *,
    model: Kind = "soc",
    zones: Mapping[int, Hashable] | str | Path | int | None = None,
    objective: Objective | None = None,
    private: PrivateData | None = "loads",
    balance: Balance | None = None,
    horizon: int = 1,
    profiles: Floats | str | Path | None = None,
    storage: Sequence[Store] = (),
    ramps: float | Floats | None = None,
    availability: Floats | None = None,
    flexible: Sequence[Flexible] = (),
    contingencies: Sequence[int] | Literal["all"] = (),
    emergency: float = 1.0,
    form: Form = "angles",
    monitored: Sequence[int] | Literal["all"] = "all",
    load_scale: float = 1.0,
    radius: float = 0.01,
    hidden: Hidden | Adjacency = "entry",
    shared: Shared = "voltage",
    cuts: bool = False,
    equivalents: bool = False,
    proxy: Floats | None = None,
) -> PowerFlow:
    """Read a network and state it as a private distributed problem.

    Parameters
    ----------
    case : int, str, Path, mapping or object with data frames
        Network in one of the forms of `sources.tables`, for example 14 or a path.
    model : {"soc", "dc", "distflow"}
        Second-order-cone relaxation of AC power flow; direct-current approximation; or the
        linearized DistFlow model of radial networks.
    zones : mapping, str, Path, int or None
        Zones, see `zones.read_zones`. With as many zones as buses, every bus is an agent.
    objective : {"shed", "cost", "both"}, optional
        Squared balance residuals (the study of Ryu and Kim; default of "soc"), generation cost
        (default of "dc" and "distflow"), or their weighted sum; see `model.balanced`.
    private : {"loads", "profiles", "bids", "capacities"} or None
        Private data of each zone: its loads in every hour; the factors of its loads relative to the
        public loads of the file; the linear costs of its generators; or their capacities.
    balance : {"covered", "exact"}, optional
        Balance for the objective "cost" with private loads or profiles. "covered": generation and
        reserve of an area cover its loads (default of "soc", with
        ``plan(violation_probability=)``). "exact": every bus balances its released load (default of
        "dc" and "distflow", with ``plan(constraints="released")``), which gives prices.
    horizon : int
        Number of hours.
    profiles : ndarray, str, Path, optional
        Factors on the loads, of shape (hours,) or (buses, hours), or a CSV file with them; see
        `profiles.read_profiles`. One everywhere if omitted.
    storage : sequence of Store
        Storage in the network.
    ramps : float or ndarray, optional
        Largest change of generation per hour, see `hours.ramp_limits`.
    availability : ndarray, shape (generators, hours), optional
        Share of its largest power that a generator may use in each hour, such as for wind power.
    flexible : sequence of Flexible
        Loads that can be shifted or curtailed.
    contingencies : sequence of int or "all"
        Branches whose outage "soc" and "dc" have to survive with unchanged set points; see
        `dc.read_outages`. In "soc", each outage adds a copy of the network, see `security`.
    emergency : float
        Share of its rating that a branch may carry after an outage.
    form : {"angles", "ptdf"}
        Quantities that zones share with "dc": voltage angles at their borders, or contributions to
        limited flows by power transfer distribution factors, see `ptdf`.
        `PowerFlow.shared_numbers` counts both.
    monitored : sequence of int or "all"
        Rows of branches, counted from 1, that have limits with "dc".
    load_scale : float
        Positive factor on all loads.
    radius : float
        Size of the protected change: in per unit for loads and capacities, as a factor for
        profiles, and for bids as a share of 100 $/MWh or of the highest public marginal cost,
        whichever is higher.
    hidden : {"entry", "customer", "load", "zone"}, dp.Within or dp.Rows
        Privacy unit that changes by at most `radius`: one number, such as one hour at one bus; one
        customer, whose changes in all numbers of a bus have this l2 norm; a whole row, such as the
        load of a bus in all hours; or all numbers of a zone. See `hidden.adjacency`.
    shared : {"voltage", "flow", "tie"}
        Shared quantities of "soc", see `model.Variables`. "tie", also for "dc" with angles, is for
        runs of ADMM on large networks, see `ties`.
    cuts : bool
        Whether to tighten "soc" by lifted nonlinear cuts, see `model.lifted_cuts`.
    equivalents : bool
        Whether to accept negative resistances, see `case.read_case`.
    proxy : ndarray, shape (buses, 2) or as `PowerFlow.load`, optional
        Public proxy loads in per unit. They shape noise and margins, and searches and forecasts use
        them.

    Returns
    -------
    PowerFlow

    Raises
    ------
    CaseError
        If the file, zones, profiles, storage or contingencies are invalid.
    dp.ModelError
        If another argument is invalid.
    """
    check_words(model, objective, private, balance, horizon, contingencies, emergency, cuts)
    check_form(model, form, monitored, balance)
    check_shared(shared, model, form, contingencies)
    change = adjacency(hidden, radius)
    network = read_case(case, equivalents=equivalents)
    partition = read_zones(zones, network)
    network.scaled_load(load_scale)  # refuses an invalid factor
    check_network(network, horizon, ramps, availability)
    check_places(network, storage, "storage")
    check_places(network, flexible, "flexible")
    factors = read_profiles(profiles, network, horizon)
    if objective is None:
        objective = "shed" if model == "soc" else "cost"
    if private in ("bids", "capacities") and objective == "shed":
        raise dp.ModelError(
            f"With the objective 'shed' nothing has a cost, so private={private!r} would protect "
            "data that the model does not use. Write objective='cost' or 'both'."
        )
    loads_private = private in ("loads", "profiles") and objective == "cost"
    if balance is None:
        balance = "covered" if model == "soc" and loads_private else "exact"
    elif balance == "covered" and not loads_private:
        raise dp.ModelError(
            "balance='covered' is for private loads or profiles and the objective 'cost'. Leave it "
            "out, or write private='loads', objective='cost'."
        )
    return _assembled(
        Setting(
            network,
            partition,
            model,
            objective,
            private,
            balance,
            factors,
            load_scale,
            tuple(storage),
            tuple(flexible),
            ramps,
            availability,
            read_outages(contingencies, network),
            emergency,
            change,
            shared,
            cuts,
            form,
            read_monitored(monitored, public_case(network, private)),
            read_proxy(proxy, network, horizon, 1 if model == "dc" else 2, private),
        )
    )


def _assembled(setting: Setting) -> PowerFlow:
    """Return the study with the problem that a setting describes."""
    case, zones, hours = setting.case, setting.zones, setting.factors.shape[1]
    model = make_model(
        setting.kind,
        setting.limits,
        zones,
        hours,
        setting.shared,
        setting.outages,
        setting.emergency,
        setting.cuts,
        setting.form,
    )
    nominal = setting.load_scale * case.load[:, : model.quantities]
    factors = np.broadcast_to(setting.factors, (len(nominal), hours))
    load = nominal[:, :, None] * factors[:, None, :]
    stored = storage_variables(setting.stores, hours)
    less = cp.Variable((len(setting.flexible), hours), name="less")
    _check_islands(setting)
    agents, balances = [], []
    for zone, label in enumerate(zones.names):
        name, own = f"zone {label}", zones.buses[zone]
        needed, served = _needed(setting, nominal[own], load[own], zone, name)
        cost, limits = _own_terms(setting, model, stored, less, zone, name)
        arrives = _arriving(setting, model, stored, less, zone)
        if setting.balance == "covered" and needed.parameters():
            more, kept = _covered(setting, model, zone, arrives, needed, served)
            cost, limits = cost + more, [*limits, *kept]
        else:
            placed = incidence(served, len(own)) @ needed if len(served) < len(own) else needed
            cost, kept = balanced(setting.objective, cost, arrives, placed)
            limits, balances = [*limits, *kept], [*balances, *kept]
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=name))
    start = {**model.start(), **_start(setting, stored, less)}
    problem = dp.Problem(agents, start={v: value for v, value in start.items() if v.size})
    exact = () if setting.balance == "covered" else tuple(balances)
    return PowerFlow(setting, model, stored, less, load, exact, problem)


def _check_islands(setting: Setting) -> None:
    """Refuse zones without a branch to another zone, since they have nothing to agree on."""
    case, zones = setting.case, setting.zones
    ends = np.concatenate((case.branch.from_bus[zones.ties], case.branch.to_bus[zones.ties]))
    links = case.gen.bus[np.concatenate((case.links.start, case.links.end))]
    joined = np.unique(zones.of_bus[np.concatenate((ends, links)).astype(np.int64)])
    alone = [name for at, name in enumerate(zones.names) if at not in joined]
    if alone and len(zones.names) > 1:
        raise CaseError(
            f"{case.name}: no branch joins zone {alone[0]} to another zone, so it has nothing to "
            "agree on. Write zones=1, or zones that branches join."
        )


def _needed(
    setting: Setting, nominal: Floats, load: Floats, zone: int, name: str
) -> tuple[cp.Expression, Ints]:
    """Return the loads of a zone's buses as an expression, and the positions of these buses.

    Columns are hours, active before reactive power. With covered balance, only buses with a load
    are included.
    """
    count, (_, quantities, hours) = len(load), load.shape
    flat, everyone = load.reshape(count, quantities * hours), np.arange(count)
    if setting.private not in ("loads", "profiles"):
        return cp.Constant(flat), everyone
    # With the objective "cost", the set of buses with a load is public: others balance exactly.
    data = nominal if setting.private == "profiles" else flat
    served = np.flatnonzero(data.any(axis=1)) if setting.objective == "cost" else everyone
    if setting.private == "profiles":
        factors = setting.factors
        if len(factors) > 1:
            factors = factors[setting.zones.buses[zone]][served]
        return private_profiles(nominal[served], factors, name, setting.change), served
    proxy = setting.proxy
    if proxy is not None:
        proxy = proxy[setting.zones.buses[zone]].reshape(flat.shape)[served]
    return private_loads(flat[served], name, setting.change, proxy), served


def _own_terms(
    setting: Setting,
    model: SocModel | DcModel | PtdfModel | DistFlowModel,
    stored: StorageVariables,
    less: cp.Variable,
    zone: int,
    name: str,
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return cost and limits of a zone, without its balance."""
    case, buses = public_case(setting.case, setting.private), setting.zones.buses[zone]
    generators = generators_of(case, setting.zones, zone)
    held = places_at(case, setting.stores, buses)
    moved = places_at(case, setting.flexible, buses)
    if setting.private == "capacities":
        shares = None if isinstance(setting.ramps, np.ndarray) else setting.ramps
        limits = private_capacities(
            model,
            case,
            setting.case.gen.pmax,
            zone,
            generators,
            name,
            setting.change,
            shares,
            setting.availability,
        )
    else:
        limits = model.limits(case, zone)
    limits = [
        *limits,
        *storage_limits(case, setting.stores, stored, held),
        *flexible_limits(case, setting.flexible, less, moved),
    ]
    if setting.ramps is not None:
        limits += ramp_limits(case, model.power, generators, setting.ramps)
    if setting.availability is not None:
        limits += availability_limits(case, model.power, generators, setting.availability)
    if setting.objective == "shed":
        return cp.Constant(0.0), limits
    if setting.private == "bids":
        cost = private_bids(model, case, setting.case.gen.c1, generators, name, setting.change)
    else:
        cost = model.cost(case, generators)
    if len(moved):
        cost += flexible_cost(case, setting.flexible, less, moved)
    return cost, limits


def _arriving(
    setting: Setting,
    model: SocModel | DcModel | PtdfModel | DistFlowModel,
    stored: StorageVariables,
    less: cp.Variable,
    zone: int,
) -> cp.Expression:
    """Return the power for a zone's loads, including storage and reductions of flexible loads."""
    case, own = setting.case, setting.zones.buses[zone]
    arrives = model.delivered(zone)
    for places, power in ((setting.stores, stored.gives - stored.takes), (setting.flexible, less)):
        chosen = places_at(case, places, own)
        if len(chosen):
            more = added(case, places, power, own, chosen)
            if model.quantities > 1:
                more = cp.hstack([more, np.zeros(more.shape)])
            arrives = arrives + more
    return arrives


def _covered(
    setting: Setting,
    model: SocModel | DcModel | PtdfModel | DistFlowModel,
    zone: int,
    arrives: cp.Expression,
    load: cp.Expression,
    served: Ints,
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return cost and constraints that cover the private loads of a zone's areas; see `areas`."""
    case, zones, hours = setting.limits, setting.zones, model.hours
    own = zones.buses[zone]
    cost: cp.Expression = cp.Constant(0.0)
    limits: list[cp.Constraint] = []
    for hour in range(hours):
        columns = [quantity * hours + hour for quantity in range(model.quantities)]
        at_hour, needed = (power if hours == 1 else power[:, columns] for power in (arrives, load))
        for area in areas(case, zones, zone):
            rows = np.flatnonzero(np.isin(served, area.buses))
            more, kept = covered(
                area,
                at_hour[area.buses],
                needed[rows] if len(rows) else needed,
                np.searchsorted(area.buses, served[rows]),
                model.reserve(hour)[own[area.buses[0]]],
                model.flows(zone, area.limited, hour),
                case.branch.rate[zones.branches[zone][area.limited]],
            )
            cost, limits = cost + more, [*limits, *kept]
    return cost, limits


def _start(
    setting: Setting, stored: StorageVariables, less: cp.Variable
) -> dict[cp.Variable, Floats]:
    """Return initial values: storage idle at its initial energy, and flexible loads unchanged."""
    base = setting.case.base_mva
    energy = np.array([store.start * store.energy / base for store in setting.stores])
    return {
        stored.takes: np.zeros(stored.takes.shape),
        stored.gives: np.zeros(stored.gives.shape),
        stored.energy: hourly(energy, less.shape[1]),
        less: np.zeros(less.shape),
    }
