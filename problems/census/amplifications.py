"""Figure 1: gamma by interval and noise, exactly and as the paper's (11) says. No guarantee."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..papers import entry
from .ex_post import amplification, claimed_amplification

Floats = NDArray[np.float64]
# Of Figure 1.
_FIGURE_1 = entry("xiao_ye_devadas", "figure_1")
SHIFT = _FIGURE_1.number("alpha_B")


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
        """Return a mask of the points with too small a claim."""
        return self.claimed < self.exact


def surface(points: int = 60, shift: float = SHIFT) -> Surface:
    """Over the paper's ranges: omega from 0.1 to 1, beta from 2 to 10."""
    ends = (_FIGURE_1.numbers(symbol) for symbol in ("omega", "beta"))
    omega, beta = (np.linspace(least, most, points) for least, most in ends)
    at = dict(omega=omega[None, :], beta=beta[:, None], shift=shift)
    return Surface(omega, beta, amplification(**at), claimed_amplification(**at))
