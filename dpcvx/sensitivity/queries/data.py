"""Queries for second moments, for second derivatives, for data, and for the scale of gradients.

Queries for the scale of records' gradients, and for gradients in learned units, sum terms of
records that are clipped to a limit and divided by it. So their sensitivity is known in advance, and
does not depend on the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..._words import at_least
from ...errors import PrivacyError
from ...model.quadratic import curved
from ..second_moments import Scaled, moments, more_than_moments
from .gradients import Gradient
from .query import Facts, Known, Objective, Query, finite, rounding_floor

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MomentsTerm(Query):
    """Query for one agent's term of the sum of second moments of records over all agents."""

    scaled: Scaled

    released = "second moments"
    by_entry = True
    once = (
        "release='once' cannot be combined with sharing=. Drop one of them. With release='once' "
        "every agent releases its data separately, and sharing= hides second moments in sums."
    )

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent whose objective depends on more than second moments of its records."""
        sensitivity = facts.sensitivity
        if sensitivity is not None and moments(sensitivity, 2) is None:
            raise more_than_moments(facts.name)

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return scale and text of the noise that each agent adds to its moments."""
        part = scale(0.0)
        return part, f"scale {at_least(part)} per entry of the second moments, in units of the sum"

    def size(self, n: int) -> int:
        """Return the number of released entries: the upper triangle of the moments, for any n."""
        return self.scaled.size

    def bound(self, public_state: Known) -> float:
        """Return the l2 sensitivity of the agent's moments, as distributed noise is Gaussian."""
        self.check(public_state.facts)
        return self.scaled.moved(public_state.facts.form.private)

    def evaluate(self, objective: Objective) -> Array:
        """Return the agent's second moments, scaled; zeros if it has no records."""
        return self.scaled.statistic(objective.data())


@dataclass(frozen=True, eq=False)
class DataCurvature(Query):
    """Query for the part of the objective's Hessian that depends on the data.

    The answer is the upper triangle of this matrix, row by row.

    The sensitivity of this matrix has no known bound. So the query is used only if the matrix does
    not depend on the data, if the data were released with noise before, or in runs without noise.
    """

    released = "second derivatives"
    by_entry = True

    @classmethod
    def check(cls, facts: Facts) -> None:
        """Refuse an agent whose second derivatives depend on its data."""
        if curved(facts.form):
            raise PrivacyError(
                f"The second derivatives of the objective of agent '{facts.name}' depend on its "
                "private data, and dpcvx has no noise for them in a step. Write release='once', "
                "or use a method that queries gradients only."
            )

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return the noise of the run's gradient queries; this query adds no noise."""
        return Gradient.noise(facts, norm, times, scale)

    def size(self, n: int) -> int:
        """Return the number of released entries: the upper triangle of an n x n matrix."""
        return n * (n + 1) // 2

    def bound(self, public_state: Known) -> float:
        """Return 0: second derivatives do not depend on the data."""
        self.check(public_state.facts)
        return 0.0

    def matters(self, public_state: Known) -> bool:
        """Return False: second derivatives do not depend on the data."""
        return False

    def evaluate(self, objective: Objective) -> Array:
        """Return the upper triangle of the part of the Hessian that the data add."""
        H = objective.curvature().toarray()
        return H[np.triu_indices(H.shape[0])]


@dataclass(frozen=True)
class ReleasedData(Query):
    """Query for the data of the agent, one object after the other, for constraints with data.

    It is used only if the data were released with noise before, or in runs without noise.
    """

    count: int  # number of the data's entries
    released = "data"
    by_entry = True

    @classmethod
    def noise(
        cls, facts: Facts, norm: int, times: str, scale: Callable[[float], float]
    ) -> tuple[float, str]:
        """Return the noise of the run's gradient queries: no noisy step releases data."""
        return Gradient.noise(facts, norm, times, scale)

    def size(self, n: int) -> int:
        """Return the number of released entries: all private objects of the agent together."""
        return self.count

    def bound(self, public_state: Known) -> float:
        """Refuse the query: in a noisy step, no noise is known for the data."""
        raise PrivacyError(
            f"A step with noise queried the data of agent '{public_state.facts.name}' themselves. "
            "Write release='once', which releases the data once."
        )

    def evaluate(self, objective: Objective) -> Array:
        """Return the data of the agent, one object after the other."""
        return objective.data()


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
    the limit and multiplied by `unit`; see `dpcvx.model.record_rows` for their sensitivity.
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
