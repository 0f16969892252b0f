"""Plans under trial, and their runs on stand-in data so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from scipy.stats import mannwhitneyu

from ..plan.terms import Terms
from .settings import Setting

P = TypeVar("P", bound=Terms)


class OutOfTime(Exception):
    """Ends a run whose time is over; stays within a search."""


@dataclass(eq=False)
class PlanTrial(Generic[P]):
    """A plan under trial.

    Attributes
    ----------
    name : str
    plan : P
    setting : Setting or None
        None for plans that are not varied.
    values : dict of str to list of float
        Objectives, by the iterate that they are of, one per run.
    broken : list of bool
        Whether the stand-in breaks a constraint with private data in a run.
    """

    name: str
    plan: P
    setting: Setting | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    broken: list[bool] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many were made."""
        return len(self.judged)

    @property
    def judged(self) -> list[float]:
        """The values of the iterate that the plan reports, where no other was looked at."""
        return next(iter(self.values.values()), [])

    @property
    def best(self) -> str:
        """The iterate with the lowest median."""
        return min(self.values, key=lambda which: quantile(self.values[which], 0.5))

    @property
    def score(self) -> float:
        """Its median; infinite before the first run."""
        return quantile(self.values[self.best], 0.5) if self.values else math.inf


def quantile(values: Sequence[float], q: float) -> float:
    """The value that a part q of them does not exceed, linear in between; some may be infinite."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)


def surely_lower(values: Sequence[float], others: Sequence[float], error: float) -> bool:
    """Whether values are lower than others, by a rank test (Mann and Whitney, 1947).

    Parameters
    ----------
    values, others : sequence of float
    error : float
        Probability at most that it says so of values that are alike.
    """
    if not values or not others:
        return False
    with np.errstate(all="ignore"):  # where all values are alike, which tells nothing
        found = mannwhitneyu(
            values, others, use_continuity=False, alternative="less", method="asymptotic"
        )
    return bool(found.pvalue < error)
