"""Figure 1: gamma by interval length and noise rate, exactly and by the paper's (11).

gamma is the expected ex-post loss over the worst-case loss; it is no privacy guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..papers import entry
from .ex_post import amplification, claimed_amplification

Floats = NDArray[np.float64]
# Parameters of the paper's Figure 1.
_FIGURE_1 = entry("xiao_ye_devadas", "figure_1")
SHIFT = _FIGURE_1.number("alpha_B")


@dataclass(frozen=True, eq=False)
class Surface:
    """The share gamma over a grid of interval lengths omega and noise rates beta.

    Attributes
    ----------
    omega : ndarray, shape (P,)
        Lengths of the interval.
    beta : ndarray, shape (Q,)
        Rates of the Laplace noise.
    exact, claimed : ndarray, shape (Q, P)
        gamma itself, and the bound (11) of it that the paper claims.
    """

    omega: Floats
    beta: Floats
    exact: Floats
    claimed: Floats

    @property
    def short(self) -> NDArray[np.bool_]:
        """Return a mask of the grid points where the claimed bound is below gamma."""
        return self.claimed < self.exact


def surface(points: int = 60, shift: float = SHIFT) -> Surface:
    """Evaluate gamma and (11) over the paper's ranges: omega from 0.1 to 1, beta from 2 to 10."""
    ends = (_FIGURE_1.numbers(symbol) for symbol in ("omega", "beta"))
    omega, beta = (np.linspace(least, most, points) for least, most in ends)
    at = dict(omega=omega[None, :], beta=beta[:, None], shift=shift)
    return Surface(omega, beta, amplification(**at), claimed_amplification(**at))
