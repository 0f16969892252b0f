r"""Distance of iterates from stationarity. Not private: computed on the records.

The paper's gap (31) is the consensus error, summed over agents, plus the squared gradient:

.. math::
    \hat W = \sum_i \|x_i - \bar x\|^2 + \frac1N \Bigl\| \sum_i \nabla f_i(x_i) \Bigr\|^2.

By its text, Figure 3 shows :math:`\|\tfrac1N \nabla \tilde f(x)\|^2`, of the agents' stacked
gradients. This is not zero at a stationary point unless all agents' gradients are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..labeled import Records
from .study import Classification, gradients, objective, stationary_point

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measures:
    """Functions that measure points on given records. Not private.

    Attributes
    ----------
    study : Classification
        The problem.
    parts : tuple of Records
        Records of each agent.
    best : ndarray, shape (d,)
        A local minimizer of the sum of all f_i.
    minimum : float
        The sum of all f_i at `best`.
    """

    study: Classification
    parts: tuple[Records, ...]
    best: Floats
    minimum: float

    @classmethod
    def of(cls, study: Classification, parts: Sequence[Records]) -> Measures:
        """Compute the local minimizer for these records."""
        best = stationary_point(study, parts)
        return cls(study, tuple(parts), best, float(objective(study, parts, best)))

    def disagreement(self, X: Floats) -> Floats:
        """Return the consensus error, the first term of the gap, at points ``X[..., i, :]``."""
        return ((X - X.mean(axis=-2, keepdims=True)) ** 2).sum(axis=(-2, -1))

    def stationarity(self, X: Floats) -> Floats:
        """Return the squared gradient, the second term of the gap, at points ``X[..., i, :]``."""
        total = gradients(self.study, self.parts, X).sum(axis=-2)
        return (total**2).sum(axis=-1) / len(self.parts)

    def gap(self, X: Floats) -> Floats:
        """Return the gap (31) at ``X[..., i, :]``, the points of all agents i."""
        return self.disagreement(X) + self.stationarity(X)

    def stacked(self, X: Floats) -> Floats:
        """Return the measure that Figure 3 claims to show; see the module."""
        return (gradients(self.study, self.parts, X) ** 2).sum(axis=(-2, -1)) / len(self.parts) ** 2

    def excess(self, X: Floats) -> Floats:
        """Return the sum of all f_i minus `minimum`, at the mean of the points ``X[..., i, :]``."""
        return objective(self.study, self.parts, X.mean(axis=-2)) - self.minimum
