"""Distance of iterates from the optimum. Not private: computed on the records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..labeled import Records
from .records import Shares
from .study import objective, optimum

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measures:
    """The optimum of given records, to measure iterates by. Not private.

    Attributes
    ----------
    shares : Shares
        Records of the agents, and the test records.
    best : ndarray, shape (d,)
        The minimizer x* of the objective on all agents' records.
    minimum : float
        The objective at `best`.
    """

    shares: Shares
    best: Floats
    minimum: float

    @classmethod
    def of(cls, shares: Shares) -> Measures:
        """Compute the optimum of the agents' records."""
        best = optimum(shares.parts)
        return cls(shares, best, float(objective(shares.parts, best)))

    def distance(self, X: Floats) -> Floats:
        """Return ``|x - x*| / d`` at ``X[..., :]``, whose logarithm is the paper's accuracy."""
        return np.linalg.norm(X - self.best, axis=-1) / self.best.size

    def gap(self, X: Floats) -> Floats:
        """Return the objective over its minimum, minus one, at points ``X[..., :]``."""
        return objective(self.shares.parts, X) / self.minimum - 1


def right(records: Records, X: Floats) -> Floats:
    """Return the share of records that points ``X[..., :]`` classify rightly by sign of x'z."""
    return ((X @ records.features.T > 0) == (records.labels > 0)).mean(axis=-1)
