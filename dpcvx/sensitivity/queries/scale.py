"""Queries that learn the scale of records' gradients, and gradients in learned units.

Every answer is a sum over records of terms that are clipped to a limit, divided by that limit. So
its sensitivity is known in advance, and does not depend on the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import PrivacyError
from .query import Facts, Known, Objective, Query, finite, rounding_floor

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class OfRecords(Query):
    """Abstract query for a sum over records whose terms are clipped to a limit."""

    once = (
        "release='once' cannot be combined with scale=. Drop release=, or write "
        "dp.FederatedGradient() without scale=. The data would be released before any scale is "
        "learned."
    )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return an infinite scale, since scales differ by release, and text on the noise."""
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
        """Return whether the agent's objective has losses of records."""
        return bool(public_state.sensitivity.records)


@dataclass(frozen=True, eq=False)
class RecordsAbove(OfRecords):
    """Query for the number of records whose gradient or curvature exceeds a limit at x.

    Each record adds 0 or 1 to the number.

    Attributes
    ----------
    x : ndarray, shape (n,)
        Public point.
    limit : float
        Limit; records above it count.
    curvature : bool
        Whether the trace of a record's second derivative is compared with the limit, or else its
        contribution to the gradient as a multiple of the agent's clip.
    weight : float
        Factor of the number in the answer.
    """

    x: Array
    limit: float
    curvature: bool
    weight: float = 1.0

    released = "count of records"
    charged = "one record in a count"

    def size(self, n: int) -> int:
        """Return 1, the number of released entries: one count."""
        return 1

    def bound(self, public_state: Known) -> float:
        """Return the sensitivity of the count: records that one change moves, times the weight."""
        return self.weight * public_state.sensitivity.moved_records

    def evaluate(self, objective: Objective) -> Array:
        """Return the number of records above the query's limit, times its weight."""
        if self.curvature:
            return np.array([self.weight * objective.bends(self.x).exceeding(self.limit)])
        return np.array([self.weight * objective.clipped(self.x, 1 / self.limit)[1]])


@dataclass(frozen=True, eq=False)
class CurvatureSums(OfRecords):
    """Query for trace and largest eigenvalue of the sum of records' Hessians at x.

    Each second derivative is scaled down to a trace of at most `limit`. Both numbers are divided by
    the limit and multiplied by `unit`; see `dpcvx.model.record_curvature` for their sensitivity.
    """

    x: Array  # shape (n,); public point
    limit: float  # largest trace of a record's second derivative in the sum
    unit: float  # factor of the answers

    released = "mean and largest curvature"
    charged = "one record's curvature, cut to the limit that is asked for"

    def size(self, n: int) -> int:
        """Return 2, the number of released entries: a trace and an eigenvalue."""
        return 2

    def bound(self, public_state: Known) -> float:
        """Return the l2 sensitivity of trace and eigenvalue: one unit each per moved record."""
        return math.sqrt(2) * self.unit * public_state.sensitivity.moved_records

    def evaluate(self, objective: Objective) -> Array:
        """Return trace and largest eigenvalue of the sum of Hessians, over the limit.

        Both numbers are multiplied by the query's unit.
        """
        return self.unit * (np.array(objective.bends(self.x).cut(self.limit)) / self.limit)


@dataclass(frozen=True, eq=False)
class LearnedGradient(OfRecords):
    """Query for the gradient at x, with records clipped to a multiple of the agent's clip.

    The run learned this multiple from earlier releases, and the gradient is divided by it. One more
    entry is the number of clipped records.
    """

    x: Array  # shape (n,); public point
    multiple: float  # bound on contributions, as a multiple of the agent's clip
    weight: float  # factor of the number of records in the last entry

    released = "gradient and count"

    def size(self, n: int) -> int:
        """Return the number of released entries: the gradient, and one count."""
        return n + 1

    def bound(self, public_state: Known) -> float:
        """Return the joint l2 sensitivity of clipped gradient and count."""
        if not public_state.sensitivity.records:
            return 0.0
        count = self.weight * public_state.sensitivity.moved_records
        return math.hypot(public_state.sensitivity.change_by_clips, count)

    def floor(self, public_state: Known) -> float:
        """Return the noise's least grid width, for the rounding of the scaled public terms."""
        with np.errstate(all="ignore"):
            public = finite(public_state.public_gradient(self.x) / self.multiple)
        return rounding_floor(public)

    def evaluate(self, objective: Objective) -> Array:
        """Return the clipped gradient over its scale, and the number of clipped records."""
        g, exceeding = objective.clipped(self.x, 1 / self.multiple)
        return np.append(g, self.weight * exceeding)


@dataclass(frozen=True, eq=False)
class LearnedSummand(LearnedGradient):
    """Query `LearnedGradient` as one agent's summand of a sum with distributed noise.

    All entries of the whole vector get noise, also entries that the agent does not hold: the
    guarantees of other agents rely on it.

    Attributes
    ----------
    place : ndarray of int, shape (n,)
        Positions of the agent's components in the whole vector.
    whole : int
        Length of the whole vector, without the count.
    """

    place: Index = field(kw_only=True)
    whole: int = field(kw_only=True)

    def size(self, n: int) -> int:
        """Return the number of released entries: the whole vector, and one count."""
        return self.whole + 1

    def evaluate(self, objective: Objective) -> Array:
        """Return the scaled, clipped gradient padded with zeros, and the clipped records' count."""
        values, out = super().evaluate(objective), np.zeros(self.whole + 1)
        out[self.place], out[-1] = values[:-1], values[-1]
        return out
