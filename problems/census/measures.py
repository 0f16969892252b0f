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
    """Measurements of a study. Not private.

    Attributes
    ----------
    shares : Shares
    best : ndarray, shape (d,)
        The optimum of all agents' records together.
    minimum : float
        The objective there.
    """

    shares: Shares
    best: Floats
    minimum: float

    @classmethod
    def of(cls, shares: Shares) -> Measures:
        """Find the optimum of shares."""
        best = optimum(shares.parts)
        return cls(shares, best, float(objective(shares.parts, best)))

    def distance(self, X: Floats) -> Floats:
        """``|x - x*| / d`` at ``X[..., :]``: the paper's accuracy is its logarithm."""
        return np.linalg.norm(X - self.best, axis=-1) / self.best.size

    def gap(self, X: Floats) -> Floats:
        """Objective over its minimum, minus one, at ``X[..., :]``."""
        return objective(self.shares.parts, X) / self.minimum - 1


def right(records: Records, X: Floats) -> Floats:
    """Share of records on the right side of ``x' z = 0`` at ``X[..., :]``."""
    return ((X @ records.features.T > 0) == (records.labels > 0)).mean(axis=-1)
