"""Queries for the scale of records, and for gradients in learned units.

Every answer is a sum over records of terms that are cut to a limit, divided by that limit. One
change moves it by a number that is known beforehand, for every limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import PrivacyError
from ..known import Facts, Known, Objective, finite
from .query import Query, rounding_floor

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class OfRecords(Query):
    """A question about sums over records whose contributions are clipped."""

    once = (
        "release='once' lets data leave before any scale is learned. Drop it, or write "
        "dp.FederatedGradient() without scale=."
    )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return one text on the noise for all these queries."""
        return math.inf, (
            f"{times} what one change can move each answer by, in units of its learned limit"
        )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse agents whose gradient is not one sum of clipped losses of records."""
        sensitivity = facts.sensitivity
        if sensitivity is None or (len(sensitivity.clips) == 1 and sensitivity.clips_alone):
            return
        raise PrivacyError(
            f"The scale of the data of agent '{facts.name}' cannot be learned: its gradient must "
            "be a sum of losses of records with a clip, and of public terms. Write "
            "dp.FederatedGradient() without scale=, or give dp.Agent(..., clip_norm=) and a loss "
            "of each record's scores X @ w."
        )

    def matters(self, public_state: Known) -> bool:
        """Return whether there are records."""
        return bool(public_state.sensitivity.records)


@dataclass(frozen=True, eq=False)
class RecordsAbove(OfRecords):
    """Number of records that exceed a limit at x.

    One record moves one term, of 0 or 1.

    Attributes
    ----------
    x : ndarray, shape (n,)
    limit : float
        Above which a record counts.
    curvature : bool
        Count by the trace of the second derivative, else by the contribution to the gradient as a
        multiple of the agent's clip.
    weight : float
        Weight of a record.
    """

    x: Array
    limit: float
    curvature: bool
    weight: float = 1.0

    released = "count of records"
    charged = "one record in a count"

    def size(self, n: int) -> int:
        """Return 1, for one count."""
        return 1

    def bound(self, public_state: Known) -> float:
        """Return the largest number of records that one change moves, times their weight."""
        return self.weight * public_state.sensitivity.moved_records

    def evaluate(self, objective: Objective) -> Array:
        """Return the count, times the weight of a record."""
        if self.curvature:
            return np.array([self.weight * objective.bends(self.x).exceeding(self.limit)])
        return np.array([self.weight * objective.clipped(self.x, 1 / self.limit)[1]])


@dataclass(frozen=True, eq=False)
class CurvatureSums(OfRecords):
    """Trace and largest eigenvalue of the records' second derivatives at x, each cut to a limit.

    Over the limit, times a unit: see `dpcvx.model.record_curvature` for what one change does.
    """

    x: Array  # shape (n,)
    limit: float  # to which the trace of a record's second derivative is cut
    unit: float

    released = "mean and largest curvature"
    charged = "one record's curvature, cut to the limit that is asked for"

    def size(self, n: int) -> int:
        """Return 2, for two sums."""
        return 2

    def bound(self, public_state: Known) -> float:
        """Return the bound: each sum moves by at most one unit per record that moves."""
        return math.sqrt(2) * self.unit * public_state.sensitivity.moved_records

    def evaluate(self, objective: Objective) -> Array:
        """Return both sums, divided by the limit."""
        return self.unit * (np.array(objective.bends(self.x).cut(self.limit)) / self.limit)


@dataclass(frozen=True, eq=False)
class LearnedGradient(OfRecords):
    """The gradient at x with contributions clipped to a learned multiple of the agent's clip.

    Divided by that multiple; and, as one more entry, how many records the clip shortens.
    """

    x: Array  # shape (n,)
    multiple: float  # of the agent's clip, at which contributions are cut
    weight: float  # what one record weighs in the last entry

    released = "gradient and count"

    def size(self, n: int) -> int:
        """Return the size of the gradient and the count together."""
        return n + 1

    def bound(self, public_state: Known) -> float:
        """Return the bound of both together, as sides of a rectangle."""
        if not public_state.sensitivity.records:
            return 0.0
        count = self.weight * public_state.sensitivity.moved_records
        return math.hypot(public_state.sensitivity.change_by_clips, count)

    def floor(self, public_state: Known) -> float:
        """Return the rounding floor of the public terms, which are divided by the multiple."""
        with np.errstate(all="ignore"):
            public = finite(public_state.public_gradient(self.x) / self.multiple)
        return rounding_floor(public)

    def evaluate(self, objective: Objective) -> Array:
        """Return the gradient of the objective over the multiple, clipped as ever."""
        g, exceeding = objective.clipped(self.x, 1 / self.multiple)
        return np.append(g, self.weight * exceeding)


@dataclass(frozen=True, eq=False)
class LearnedSummand(LearnedGradient):
    """Query for the learned scale as one summand, for sums with distributed noise.

    All entries of the whole vector get noise, whoever holds them: others rely on it.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        Positions of the agent's components in the whole vector.
    whole : int
        Length of that vector, without the count.
    """

    place: Index = field(kw_only=True)
    whole: int = field(kw_only=True)

    def size(self, n: int) -> int:
        """Return the number of released entries: the whole vector, and one count."""
        return self.whole + 1

    def evaluate(self, objective: Objective) -> Array:
        """Return the gradient over the multiple, padded with zeros, and the count."""
        values, out = super().evaluate(objective), np.zeros(self.whole + 1)
        out[self.place], out[-1] = values[:-1], values[-1]
        return out
