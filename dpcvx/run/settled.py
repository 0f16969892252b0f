"""Whether a run had come to rest when its rounds were over: judged by released residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..algorithms.base import Residuals

Array = NDArray[np.float64]

# A residual has settled at this share of the largest of its run, or at so many times what noise
# alone keeps up. Gaussian noise exceeds that with a probability below 1e-4, Laplace noise below
# 1/200: of one entry, and less of more.
_SHARE = 0.01
_NOISE = 4.0
# Next to the values, residuals of this size are rounding.
_ROUNDING = 1e-6
# Whoever goes so much of the whole way in the second half of the rounds has not arrived.
_LATE = 0.05
# The same where it is not known what noise does, and the way has to be straight besides.
_LATE_IN_NOISE = 0.1


@dataclass(frozen=True)
class Largest:
    """The largest residuals of a run: how far agents disagreed, and how far they moved.

    Attributes
    ----------
    primal, move : float
    """

    primal: float = 0.0
    move: float = 0.0

    def after(self, residuals: Residuals) -> Largest:
        """The same, knowing another round."""
        return Largest(max(self.primal, residuals.primal), max(self.move, _move(residuals)))

    def settled(self, last: Residuals, floor: float, size: float) -> bool:
        """Whether the last residuals are small next to these, or explained.

        Parameters
        ----------
        last : Residuals
        floor : float
            What noise alone keeps up; see `Algorithm.noise_floor`.
        size : float
            Largest magnitude of the values.
        """
        explained = max(_NOISE * floor, _ROUNDING * size)
        pairs = (last.primal, self.primal), (_move(last), self.move)
        return all(now <= max(_SHARE * most, explained) for now, most in pairs)


def arrives(points: Sequence[Array], noise: float | None, size: float) -> bool:
    """Whether points of a run, at equal numbers of rounds, come to rest or do what noise does.

    Residuals of steps that become short are small long before a slow run arrives, and those of
    agents that share nothing are 0. Noise goes to all sides: with an unknown size of noise, all
    parts of a run lead the same way by chance with a probability of at most 1/16.

    Parameters
    ----------
    points : sequence of ndarray
        Of released values: the public start, and what the run came to after each of its parts.
    noise : float or None
        How far noise alone leads in half of the run, about; 0 without noise, None if unknown.
    size : float
        Largest magnitude of the values.
    """
    if len(points) < 3:
        return True
    way, late = points[-1] - points[0], points[-1] - points[len(points) // 2]
    far, after = float(np.linalg.norm(way)), float(np.linalg.norm(late))
    explained = _ROUNDING * size * math.sqrt(way.size)
    if noise is not None:
        return after <= max(_LATE * far, _NOISE * noise, explained)
    straight = all(float((b - a) @ way) > 0 for a, b in pairwise(points))
    return not straight or after <= max(_LATE_IN_NOISE * far, explained)


def _move(residuals: Residuals) -> float:
    """How far the common values moved; 0 in round 1, before which there is nothing."""
    if math.isnan(residuals.dual):
        return 0.0
    return residuals.dual / (residuals.penalty or 1.0)
