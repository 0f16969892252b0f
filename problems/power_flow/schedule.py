"""Tables of the hours of a run: totals over the network, storage and flexible loads.

All numbers follow from the values of the run, not from the true loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ac import AcCheck
from .case import Case
from .prices import Prices
from .report import generator_costs, thermal_loading
from .solution import State
from .study import PowerFlow
from .tables import Column, Table

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Power of storage and of flexible loads.

    Attributes
    ----------
    gives : ndarray, shape (stores, hours)
        Power that storage gives to the network in MW; negative while it charges.
    energy : ndarray, shape (stores, hours)
        Energy at the end of each hour in MWh.
    cut : ndarray, shape (flexible loads, hours)
        Reduction of each flexible load in MW; negative in hours with more load.
    """

    gives: Floats
    energy: Floats
    cut: Floats


def schedule_of(study: PowerFlow) -> Schedule:
    """Return the schedule of a study, from the values of its variables.

    Parameters
    ----------
    study : PowerFlow
    """
    base, hours, setting = study.case.base_mva, study.hours, study.setting
    nothing = np.zeros((0, hours))
    storage, gives, energy = study.storage, nothing, nothing
    if setting.stores:
        gives = base * np.asarray((storage.gives - storage.takes).value, dtype=np.float64)
        energy = base * np.asarray(storage.energy.value, dtype=np.float64)
    cut = nothing
    if setting.flexible:
        cut = base * np.asarray(study.flexible.value, dtype=np.float64)
    return Schedule(gives, energy, cut)


def hourly_totals(
    case: Case, states: Sequence[State], schedule: Schedule, prices: Prices | None
) -> dict[str, Floats]:
    """Return sums over the network in every hour, each of shape (hours,).

    Parameters
    ----------
    case : Case
    states : sequence of State
        Network state of every hour.
    schedule : Schedule
    prices : Prices or None

    Returns
    -------
    dict
        "load" (served), "generation", "storage", "flexible", "losses" in MW, "cost" in $, "loading"
        in percent, and with prices "price low", "price mean" and "price high" in $/MWh. The mean is
        weighted by the loads.
    """
    base = case.base_mva
    losses = np.array([float(np.sum(state.pf + state.pt)) for state in states])
    shunts = np.array([float(case.bus.gs @ state.w) for state in states])
    made = np.array([float(state.pg.sum()) for state in states])
    storage, flexible = schedule.gives.sum(axis=0), schedule.cut.sum(axis=0)
    totals = {
        "load": base * (made - losses - shunts) + storage + flexible,
        "generation": base * made,
        "storage": storage,
        "flexible": flexible,
        "losses": base * losses,
        "cost": np.array([float(generator_costs(case, state).sum()) for state in states]),
        "loading": np.array([_largest(thermal_loading(case, state)) for state in states]),
    }
    if prices is not None:
        weight = prices.load.sum(axis=0)
        paid = (prices.price * prices.load).sum(axis=0)
        totals["price low"] = prices.price.min(axis=0)
        totals["price mean"] = np.divide(
            paid, weight, out=prices.price.mean(axis=0), where=weight > 0
        )
        totals["price high"] = prices.price.max(axis=0)
    return totals


def hourly_tables(
    study: PowerFlow,
    states: Sequence[State],
    schedule: Schedule | None = None,
    *,
    checks: Sequence[AcCheck] = (),
    prices: Prices | None = None,
    note: str = "",
    private: bool = True,
) -> tuple[Table, ...]:
    """Return tables of the hours, and of storage and flexible loads if there are any.

    Parameters
    ----------
    study : PowerFlow
    states : sequence of State
        Network state of every hour.
    schedule : Schedule, optional
        If omitted, from the values of the variables.
    checks : sequence of AcCheck
        AC check of every hour, for columns with its losses and largest loading.
    prices : Prices, optional
    note : str
        Text on the distance from an AC power flow.
    private : bool
        Whether `states` follow from released values.

    Returns
    -------
    tuple of Table
        "hours", then "storage" and "flexible".
    """
    case, setting = study.case, study.setting
    schedule = schedule_of(study) if schedule is None else schedule
    totals = hourly_totals(case, states, schedule, prices)
    units = {"cost": "$", "loading": "%"} | {
        name: "$/MWh" for name in totals if name.startswith("price")
    }
    absent = {
        "storage": not setting.stores,
        "flexible": not setting.flexible,
        "losses": study.model.quantities == 1 or setting.kind != "soc",
    }
    columns = [Column("hour", "", np.arange(len(states)))]
    columns += [
        Column(
            name,
            units.get(name, "MW"),
            values,
            private and (name != "cost" or study.private != "bids"),
            total=name == "cost",
        )
        for name, values in totals.items()
        if not absent.get(name, False)
    ]
    if checks:
        solved = np.array([check.converged for check in checks])
        columns += [
            Column(name, unit, np.where(solved, values, np.nan), private)
            for name, unit, values in (
                ("AC losses", "MW", [check.losses for check in checks]),
                ("AC loading", "%", [check.loading for check in checks]),
            )
        ]
    caption = (
        f"Hours of {case.name}: sums over the network, cost of generation, and largest loading."
    )
    tables = [Table("hours", tuple(columns), note=note, caption=caption)]
    for name, places, values, what in (
        (
            "storage", setting.stores,
            (("P", "MW", schedule.gives), ("energy", "MWh", schedule.energy)),
            "power to the network, and energy at the end of the hour",
        ),
        ("flexible", setting.flexible, (("cut", "MW", schedule.cut),), "reduction of the load"),
    ):  # fmt: skip
        if places:
            count = len(places)
            columns = [
                Column("hour", "", np.repeat(np.arange(len(states)), count)),
                Column("bus", "", np.tile([place.bus for place in places], len(states))),
                *(Column(head, unit, grid.T.reshape(-1), private) for head, unit, grid in values),
            ]
            title = "Storage" if name == "storage" else "Flexible loads"
            caption = f"{title} of {case.name}: {what}."
            tables.append(Table(name, tuple(columns), caption=caption))
    return tuple(tables)


def _largest(values: Floats) -> float:
    """Return the largest value; NaN without any."""
    return float(np.nanmax(values)) if np.isfinite(values).any() else np.nan
