"""What Newton's method asks of an answer, when it gives up, and what comes back of every kernel."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Numbers whose squares, times weights, are still numbers.
LARGEST = 1e60


class Rules(NamedTuple):
    """When a step is taken for exact, and when the method gives up; the same for every kernel.

    Attributes
    ----------
    violation : float
        Of a function, absolute where its terms are about 1, else relative to them.
    far : float
        Relative to terms above 1: what rounding allows.
    gap, relative : float
        Of the objective: relative to the least weight, and to the objective.
    penalty : float
        Of violated functions in the matrix that is factored, relative to their own curvature.
    crowded : float
        Functions that may be broken where the method starts, relative to columns, for every step
        that may be taken, but never more than columns. Where more are, the set is mostly far away,
        and nothing is tried: answers would take more steps, or be none. With all steps to take,
        everything is tried.
    away : float
        Values that functions may have where the method starts, relative to their terms, before the
        first step; every step that may be taken allows twice as much. Fewer steps than answers take
        from farther away would be lost.
    close : float
        Such values of points that nearly always have an answer: more steps may be taken for it.
    steps : int
        Newton steps of the first stage.
    refinements : int
        Of the multipliers, with one factor.
    first, growth, last : float
        Penalties of the second stage, in the same units.
    settled : float
        The penalty from which on violations fall, or no point keeps the constraints.
    near : float
        Violations of the second stage, relative to what is allowed, from which on the first one
        is tried again.
    end : int
        Steps of that.
    most, least : int
        Steps of both stages together, and of the second one.
    """

    violation: float = 1e-10
    far: float = 1e-3
    gap: float = 1e-12
    relative: float = 1e-13
    penalty: float = 1e4
    crowded: float = 0.125
    away: float = 0.008
    close: float = 0.04
    steps: int = 10
    refinements: int = 5
    first: float = 100.0
    growth: float = 100.0
    last: float = 1e6
    settled: float = 1e4
    near: float = 1e7
    end: int = 5
    most: int = 45
    least: int = 10

    @property
    def measures(self) -> tuple[float, float, float, float, float]:
        """What an answer must reach, and the penalty of the first stage."""
        return self.violation, self.far, self.gap, self.relative, self.penalty

    def room(self, budget: int) -> float:
        """Functions that may be broken where the method starts, relative to columns."""
        return math.inf if budget >= self.most else min(1.0, self.crowded * budget)

    def shared(self, budget: int) -> tuple[int, int]:
        """Steps of the first stage out of so many, and of the second."""
        budget = min(budget, self.most)
        steps = min(self.steps, budget)
        return steps, budget - steps if budget - steps >= self.least else 0

    def reach(self, budget: int) -> float:
        """Values that functions may have where the method starts, relative to their terms."""
        return self.away * 2.0 ** min(budget, self.most)

    @property
    def growing(self) -> tuple[float, float, float, float, float, float]:
        """The penalties of the second stage, and when the first one is tried again."""
        return self.first, self.growth, self.last, self.settled, self.near, float(self.end)


RULES = Rules()


class Point(NamedTuple):
    """Where the method ended.

    Attributes
    ----------
    x : ndarray, shape (n,)
    gap : float
        Bound of how far the objective is above the least one, but for violations.
    value : float
        How far the objective is above its least value without inequalities.
    violation : float
        Largest value of a function, relative to what is allowed.
    """

    x: Array
    gap: float
    value: float
    violation: float
