"""What agents of methods do that let their new point leave, with its noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..conic import Outcome
from ..projection import Descent
from .base import Answer, Local, Oracle

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Walker:
    """State of an agent.

    Attributes
    ----------
    x, average : ndarray, shape (n,)
    lam : ndarray, shape (m,)
        Multipliers; zero in methods that have none.
    turns : int
        Rounds so far.
    outcome : Outcome
        Of the last projection onto the agent's set.
    """

    x: Array
    average: Array
    lam: Array
    turns: int = 0
    outcome: Outcome = Outcome.SOLVED

    @property
    def answer(self) -> Answer:
        """Last and averaged iterate."""
        return Answer(self.x, self.average)


def standing(x: Array, multipliers: int) -> Walker:
    """At a public point, with zero multipliers."""
    return Walker(x, np.zeros_like(x), np.zeros(multipliers))


def moved(
    local: Local, state: Walker, center: Array, at: Array, size: float, oracle: Oracle
) -> Walker:
    """``x = P(center - size gradient(at) + noise)``; the point before if the projection fails."""
    noisy = oracle.step(at, Descent(center, size, whole=True))
    found = local.projector(noisy, np.ones(noisy.size))
    x = state.x if found.x is None else found.x
    n = state.turns + 1
    average = state.average + (x - state.average) / n
    return replace(state, x=x, average=average, turns=n, outcome=found.outcome)
