"""When a run has left all bounds: judged by released values, so that stopping tells nothing new."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Residuals

Array = NDArray[np.float64]

# A run that converges goes no farther in t rounds than about t^2 times its first step, which would
# take a million rounds to come this far.
_GROWTH = 1e12
# Squares of larger numbers, and what solvers make of these, overflow soon.
_LARGEST = 1e100
# Rounds whose values say what is ordinary. Some methods stay at the start in the first one.
_FIRST = 2


@dataclass(frozen=True)
class Growth:
    """How large values were at first, and whether later ones are out of all proportion.

    Attributes
    ----------
    ordinary : float or ndarray
        Largest magnitude of the first rounds, and at least 1; of each row where values have rows.
    diverged : bool
        Whether values became infinite or undefined, or left all bounds.
    """

    ordinary: float | Array = 1.0
    diverged: bool = False

    def after(self, t: int, values: Array) -> Growth:
        """The same, knowing the values of round t (from 1), shape (n,) or (rows, n)."""
        size = np.abs(values).max(axis=-1, initial=0.0)
        first = t <= _FIRST
        limit = _LARGEST if first else np.minimum(_LARGEST, _GROWTH * self.ordinary)
        # Written so that nan, which is below nothing, has diverged.
        diverged = self.diverged or not bool(np.all(size <= limit))
        return Growth(np.fmax(self.ordinary, size) if first else self.ordinary, diverged)


def of_residuals(growth: Growth, t: int, residuals: Residuals) -> Growth:
    """The same for residuals; the dual one is unknown in round 1, and finite after it."""
    after = growth.after(t, np.array([residuals.primal, residuals.mismatch]))
    known = (residuals.penalty, residuals.dual)[: 1 if t == 1 else 2]
    return after if all(map(math.isfinite, known)) else Growth(after.ordinary, True)
