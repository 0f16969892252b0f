"""Marginal prices at every bus, bills, congestion rent, and how stable prices are under noise.

All results are functions of released values, hence post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .model import cost_scale
from .study import PowerFlow

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prices:
    """Marginal prices of active power, and the payments at these prices.

    Attributes
    ----------
    price : ndarray, shape (buses, hours)
        Cost of one more megawatt of load at a bus, in $/MWh.
    load : ndarray, shape (buses, hours)
        Loads that the point serves, in MW.
    paid : ndarray, shape (buses,)
        Bills of the loads over all hours, in $.
    earned : ndarray, shape (generators,)
        Payments to generators over all hours, in $.
    stored : float
        Payments to storage and flexible loads over all hours, in $.
    shunts : float
        Bills of shunts over all hours, in $.
    stable : ndarray, shape (buses, hours), or None
        Share of simulated releases with an unchanged price, see `prices`.
    tolerance : float or None
        Largest relative change of a price that counts as unchanged.
    """

    price: Floats
    load: Floats
    paid: Floats
    earned: Floats
    stored: float
    shunts: float
    stable: Floats | None = None
    tolerance: float | None = None

    @property
    def rent(self) -> float:
        """Congestion rent in $: bills less payments.

        In models with losses, it includes the marginal value of losses beyond their cost.
        """
        return float(self.paid.sum() + self.shunts - self.earned.sum() - self.stored)

    def as_dict(self) -> dict[str, object]:
        """Return the numbers as a dictionary, for a file."""
        return {
            "dollars_per_mwh": self.price.tolist(),
            "loads_pay": float(self.paid.sum()),
            "generators_get": float(self.earned.sum()),
            "storage_and_flexible_loads_get": self.stored,
            "congestion_rent": self.rent,
            "stable": None if self.stable is None else self.stable.tolist(),
            "tolerance": self.tolerance,
        }

    def __str__(self) -> str:
        # Rounded first, since prices of free power are 0 up to the solver's accuracy, of any sign.
        low, high = (round(float(end), 2) + 0.0 for end in (self.price.min(), self.price.max()))
        spread = float(np.ptp(self.price, axis=0).max())
        lines = [
            f"prices from {low:.2f} to {high:.2f} $/MWh, apart by up to {spread:.2f} in one hour",
            f"  loads pay {self.paid.sum():.2f} $, generators get {self.earned.sum():.2f} $, "
            f"congestion rent {self.rent:.2f} $",
        ]
        if self.stable is not None:
            least = 100 * float(self.stable.min())
            lines.append(
                f"  {100 * float(self.stable.mean()):.0f} % of simulated releases keep a price to "
                f"{100 * (self.tolerance or 0.0):g} %, on average; the least firm one {least:.0f} %"
            )
        return "\n".join(lines)


def prices(
    study: PowerFlow, result: dp.Result, *, draws: int = 0, tolerance: float = 0.01
) -> Prices:
    """Return the prices of the problem that the server solved for released data.

    Parameters
    ----------
    study : PowerFlow
        Study with the objective "cost" and exact balance. Its variables must hold the values of the
        run.
    result : dp.Result
    draws : int
        Number of simulated releases around the released data, which measure the stability of
        prices.
    tolerance : float
        Largest relative change of a price that counts as unchanged.

    Returns
    -------
    Prices

    Raises
    ------
    dp.ModelError
        If the study has no exact balance.
    dp.PrivacyError
        If the run has no prices; see `Solution.dual`.
    """
    if not study.balance:
        raise dp.ModelError(
            "This study has no exact power balance, so there are no prices. Write "
            "power_flow(..., objective='cost', balance='exact')."
        )
    case, base, hours = study.case, study.case.base_mva, study.hours
    shape = (len(case.bus.id), hours)
    price, load = np.zeros(shape), np.zeros(shape)
    stable = np.zeros(shape) if draws else None
    for buses, balance in zip(study.zones.buses, study.balance, strict=True):
        # Active power comes first.
        price[buses] = -np.asarray(result.solution.dual(balance))[:, :hours]
        if stable is not None:
            share = result.solution.dual_stability(balance, draws=draws, tolerance=tolerance)
            stable[buses] = share[:, :hours]
    price /= cost_scale(study.public_case) * base
    generation = base * np.asarray(study.model.power.value)
    added = np.zeros(shape)
    shunts = np.zeros(shape)
    for hour in range(hours):
        load[:, hour] = base * study.served_load(hour)[:, 0]
        added[:, hour] = base * study.added_power(hour)
        w = study.state(hour).w if study.model.quantities == 2 else 1.0
        shunts[:, hour] = base * case.bus.gs * w
    return Prices(
        price=price,
        load=load,
        paid=(price * load).sum(axis=1),
        earned=(price[case.gen.bus] * generation).sum(axis=1),
        stored=float((price * added).sum()),
        shunts=float((price * shunts).sum()),
        stable=stable,
        tolerance=tolerance if draws else None,
    )
