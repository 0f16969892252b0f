"""Whether a run had come to rest when its rounds were over: judged by released residuals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..algorithms.base import Residuals

# A residual has settled at this share of the largest of its run, or at so many times what noise
# alone keeps up. Gaussian noise exceeds that with a probability below 1e-4, Laplace noise below
# 1/200: of one entry, and less of more.
_SHARE = 0.01
_NOISE = 4.0
# Next to the values, residuals of this size are rounding.
_ROUNDING = 1e-6


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


def _move(residuals: Residuals) -> float:
    """How far the common values moved; 0 in round 1, before which there is nothing."""
    if math.isnan(residuals.dual):
        return 0.0
    return residuals.dual / (residuals.penalty or 1.0)
