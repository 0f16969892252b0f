"""Public priors of loads: loads of another case, or, for studies, synthetic ones near the truth."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

from .case import Case, read_case
from .zones import Zones

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Expected:
    """Prior mean and standard deviation of a network's loads.

    Attributes
    ----------
    loads : ndarray, shape (buses, 2)
        Mean of the loads in per unit, columns P and Q.
    spread : float or None
        Standard deviation relative to the mean; None if it is unknown.
    """

    loads: Floats
    spread: float | None = None

    def by_zone(self, zones: Zones) -> dict[dp.Private | str, dp.Prior]:
        """Return ``prior=`` for a study with a private load at every bus.

        Parameters
        ----------
        zones : Zones
        """
        found: dict[dp.Private | str, dp.Prior] = {}
        for label, buses in zip(zones.names, zones.buses, strict=True):
            mean = self.loads[buses]
            spread = None if self.spread is None else self.spread * np.abs(mean)
            found[f"load of zone {label}"] = dp.Prior(mean, spread)
        return found


def expected_loads(given: str, case: Case, load_scale: float, seed: int = 0) -> Expected:
    """Return the expected loads from a number or the name of another case.

    Parameters
    ----------
    given : str
        Number between 0 and 1 for synthetic loads that differ from the true ones by about this
        share, for studies only. Otherwise a case as `read_case` takes it, with the buses of `case`.
    case : Case
    load_scale : float
        Factor on the loads of both cases.
    seed : int
        Seed of the synthetic values.

    Raises
    ------
    ModelError
        If the other case cannot be read, or has other buses.
    """
    if re.fullmatch(r"0?\.\d+", given):
        share = float(given)
        away = np.random.default_rng(seed).normal(1.0, share, case.load.shape)
        return Expected(load_scale * case.load * away, share)
    other = read_case(given)
    if not np.array_equal(other.bus.id, case.bus.id):
        raise dp.ModelError(
            f"--prior {given}: {other.name} has other buses than {case.name}, so it cannot be a "
            "prior for these loads. Give a case with the same buses, or a number such as 0.1."
        )
    return Expected(other.scaled_load(load_scale))
