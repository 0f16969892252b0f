"""Figure 1: gamma by interval and noise, exactly and as the paper's (11) says. No guarantee."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .ex_post import amplification, claimed_amplification

Floats = NDArray[np.float64]
# alpha B of Figure 1.
SHIFT = 0.001


@dataclass(frozen=True, eq=False)
class Surface:
    """gamma over a grid.

    Attributes
    ----------
    omega : ndarray, shape (P,)
    beta : ndarray, shape (Q,)
    exact, claimed : ndarray, shape (Q, P)
    """

    omega: Floats
    beta: Floats
    exact: Floats
    claimed: Floats

    @property
    def short(self) -> NDArray[np.bool_]:
        """Where the claim is too small."""
        return self.claimed < self.exact


def surface(points: int = 60, shift: float = SHIFT) -> Surface:
    """Over the paper's ranges: omega from 0.1 to 1, beta from 2 to 10."""
    omega, beta = np.linspace(0.1, 1, points), np.linspace(2, 10, points)
    at = dict(omega=omega[None, :], beta=beta[:, None], shift=shift)
    return Surface(omega, beta, amplification(**at), claimed_amplification(**at))
