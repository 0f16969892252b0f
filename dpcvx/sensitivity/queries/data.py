"""Queries for second moments, for second derivatives that depend on data, and for data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..._words import at_least
from ...errors import PrivacyError
from ...model.quadratic import curved
from ..second_moments import Scaled, moments, more_than_moments
from .gradients import Gradient
from .query import Facts, Known, Objective, Query

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
