"""A sensitivity that users vouch for in place of the derived one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._arguments import POSITIVE, check_fields, optional
from ..errors import PrivacyError
from ..guard import frameless


@frameless
@dataclass(frozen=True)
class Asserted:
    """A gradient sensitivity that the user vouches for; guarantee and ledger say so.

    Parameters
    ----------
    l2 : float
        Bound of ``||g - g'||_2`` between neighbors, over all data and points.
    l1 : float, optional
        The same in l1, for Laplace noise; ``sqrt(n)`` times `l2` if omitted.
    """

    l2: float
    l1: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.Asserted", PrivacyError, l2=POSITIVE, l1=optional(POSITIVE))

    def bound(self, p: int, scale: NDArray[np.float64]) -> float:
        """Bound of the weighted change in lp."""
        peak = float(scale.max())
        l1 = math.sqrt(scale.size) * self.l2 if self.l1 is None else self.l1
        return peak * (self.l2 if p == 2 else l1)
