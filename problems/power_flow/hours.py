"""Storage, flexible loads and ramps: terms that couple the hours of any model.

Every term takes cvxpy expressions of generation, or its own variables, so you can use it in a model
of your own. Powers are in per unit, and columns are hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .case import Case
from .errors import CaseError
from .model import cost_scale
from .physics import incidence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Store:
    """Storage at a bus.

    Attributes
    ----------
    bus : int
        Id of the bus.
    power : float
        Largest charging and discharging power, in MW.
    energy : float
        Energy that it holds when full, in MWh.
    efficiency : float
        Share of the charging power that is stored, and of the released energy that is delivered.
    start : float
        Energy at the start, and least energy at the end, as a share of `energy`.
    """

    bus: int
    power: float
    energy: float
    efficiency: float = 0.95
    start: float = 0.5


@dataclass(frozen=True)
class Flexible:
    """A flexible load at a bus.

    Attributes
    ----------
    bus : int
        Id of the bus.
    power : float
        Largest change of the load in an hour, in MW.
    price : float, optional
        Price in $/MWh of curtailed load. Without a price the load is shifted: energy that is saved
        in some hours is used in others.
    """

    bus: int
    power: float
    price: float | None = None


@dataclass(frozen=True, eq=False)
class StorageVariables:
    """Decision variables of storage, in per unit.

    Attributes
    ----------
    takes, gives, energy : cp.Variable, shape (stores, hours)
        Power into and out of storage, and energy at the end of each hour.
    """

    takes: cp.Variable
    gives: cp.Variable
    energy: cp.Variable


def storage_variables(stores: Sequence[Store], hours: int = 1) -> StorageVariables:
    """Declare the variables of storage.

    Parameters
    ----------
    stores : sequence of Store
    hours : int
    """
    takes, gives, energy = (
        cp.Variable((len(stores), hours), name=name) for name in ("takes", "gives", "energy")
    )
    return StorageVariables(takes, gives, energy)


def storage_limits(
    case: Case, stores: Sequence[Store], x: StorageVariables, chosen: Ints
) -> list[cp.Constraint]:
    """Return the energy balance and the limits of storage over the hours.

    Parameters
    ----------
    case : Case
    stores : sequence of Store
    x : StorageVariables
    chosen : ndarray of int
        Positions of the constrained elements in `stores`.
    """
    if not len(chosen):
        return []
    base, hours = case.base_mva, x.energy.shape[1]
    power, size, share, start = (
        np.array([getattr(stores[k], name) for k in chosen], dtype=np.float64)
        for name in ("power", "energy", "efficiency", "start")
    )
    size = size / base
    takes, gives, energy = x.takes[chosen], x.gives[chosen], x.energy[chosen]
    gained = sp.diags_array(share) @ takes - sp.diags_array(1 / share) @ gives
    first = (start * size)[:, None]
    constraints = [
        takes >= 0,
        gives >= 0,
        energy >= 0,
        takes <= hourly(power / base, hours),
        gives <= hourly(power / base, hours),
        energy <= hourly(size, hours),
        energy[:, :1] == first + gained[:, :1],
        energy[:, -1:] >= first,
    ]
    if hours > 1:
        constraints.append(energy[:, 1:] == energy[:, :-1] + gained[:, 1:])
    return constraints


def flexible_limits(
    case: Case, loads: Sequence[Flexible], less: cp.Variable, chosen: Ints
) -> list[cp.Constraint]:
    """Return limits on the power that flexible loads save.

    Parameters
    ----------
    case : Case
    loads : sequence of Flexible
    less : cp.Variable, shape (loads, hours)
        Reduction of each load in per unit.
    chosen : ndarray of int
        Positions of the constrained elements in `loads`.
    """
    if not len(chosen):
        return []
    priced = np.array([loads[k].price is not None for k in chosen])
    most = np.array([loads[k].power for k in chosen]) / case.base_mva
    hours = less.shape[1]
    constraints: list[cp.Constraint] = [
        less[chosen] <= hourly(most, hours),
        less[chosen] >= hourly(np.where(priced, 0.0, -most), hours),
    ]
    moved = chosen[~priced]
    if len(moved):
        constraints.append(cp.sum(less[moved], axis=1) - np.zeros(len(moved)) == 0)
    return constraints


def flexible_cost(
    case: Case, loads: Sequence[Flexible], less: cp.Variable, chosen: Ints
) -> cp.Expression:
    """Return the cost of curtailed power, in $ times `model.cost_scale`.

    Parameters
    ----------
    case, loads, less, chosen
        See `flexible_limits`.
    """
    price = np.array([loads[k].price or 0.0 for k in chosen])
    if not price.any():
        return cp.Constant(0.0)
    each = hourly(cost_scale(case) * case.base_mva * price, less.shape[1])
    return cp.Constant(each.ravel(order="F")) @ cp.vec(less[chosen], order="F")


def ramp_limits(
    case: Case, power: cp.Expression, generators: Ints, ramps: float | Floats
) -> list[cp.Constraint]:
    """Return bounds on the change of power from each hour to the next.

    Parameters
    ----------
    case : Case
    power : cp.Expression, shape (all generators, hours)
    generators : ndarray of int
        Positions.
    ramps : float or ndarray, shape (all generators,)
        Largest change per hour: a number as a share of each largest power, an array in MW.
    """
    if power.shape[1] == 1:
        return []
    most = ramps * case.gen.pmax if isinstance(ramps, float | int) else ramps / case.base_mva
    at = generators[np.isfinite(most[generators])]
    if not len(at):
        return []
    change = power[at, 1:] - power[at, :-1]
    return [cp.abs(change) <= hourly(most[at], power.shape[1] - 1)]


def availability_limits(
    case: Case, power: cp.Expression, generators: Ints, availability: Floats
) -> list[cp.Constraint]:
    """Return bounds on generators that are not fully available in some hours.

    Parameters
    ----------
    case : Case
    power : cp.Expression, shape (all generators, hours)
    generators : ndarray of int
        Positions.
    availability : ndarray, shape (all generators, hours)
        Available share of each generator's largest power.
    """
    limited = np.isfinite(case.gen.pmax) & (availability < 1).any(axis=1)
    at = generators[limited[generators]]
    if not len(at):
        return []
    return [power[at] <= case.gen.pmax[at][:, None] * availability[at]]


def added(
    case: Case, places: Sequence[Store | Flexible], power: cp.Expression, buses: Ints, chosen: Ints
) -> cp.Expression:
    """Return the power that storage or flexible loads add at buses.

    Parameters
    ----------
    case : Case
    places : sequence of Store or Flexible
    power : cp.Expression, shape (places, hours)
        Power in per unit, such as ``x.gives - x.takes``.
    buses : ndarray of int
        Positions of the buses.
    chosen : ndarray of int
        Positions of the elements in `places` at these buses.

    Returns
    -------
    cp.Expression, shape (buses, hours)
    """
    return incidence(_buses(case, places)[chosen], len(case.bus.id))[buses] @ power[chosen]


def places_at(case: Case, places: Sequence[Store | Flexible], buses: Ints) -> Ints:
    """Return positions of the storage or the flexible loads at some buses.

    Parameters
    ----------
    case : Case
    places : sequence of Store or Flexible
    buses : ndarray of int
        Positions.
    """
    return np.flatnonzero(np.isin(_buses(case, places), buses))


def hourly(values: Floats, hours: int) -> Floats:
    """Return values repeated for every hour, shape (values, hours)."""
    return np.tile(values[:, None], hours)


def check_places(
    case: Case, places: Sequence[Store | Flexible], name: Literal["storage", "flexible"]
) -> None:
    """Refuse storage and flexible loads that cannot be modeled.

    Parameters
    ----------
    case : Case
    places : sequence of Store or Flexible
    name : {"storage", "flexible"}
        Name of the argument.

    Raises
    ------
    CaseError
        If an element is invalid.
    """
    kind = Store if name == "storage" else Flexible
    for k, place in enumerate(places):
        good = isinstance(place, kind) and place.bus in case.bus.id and 0 < place.power < np.inf
        if isinstance(place, Store):
            good = (
                good
                and 0 < place.energy < np.inf
                and 0 < place.efficiency <= 1
                and 0 <= place.start <= 1
            )
        elif isinstance(place, Flexible):
            good = good and (place.price is None or 0 <= place.price < np.inf)
        if not good and name == "storage":
            raise CaseError(
                f"storage[{k}] is at a bus that is not in service, or its power, energy, "
                "efficiency or start is invalid. Write Store(bus=..., power=..., energy=...) in "
                "MW and MWh, and shares up to 1."
            )
        if not good:
            raise CaseError(
                f"flexible[{k}] is at a bus that is not in service, or its power or price is "
                "invalid. Write Flexible(bus=..., power=..., price=...) in MW and $/MWh."
            )


def _buses(case: Case, places: Sequence[Store | Flexible]) -> Ints:
    """Return positions of the buses of storage or flexible loads."""
    at = {int(number): row for row, number in enumerate(case.bus.id)}
    return np.array([at[place.bus] for place in places], dtype=np.int64)
