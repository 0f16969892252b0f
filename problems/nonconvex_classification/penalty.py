r"""The penalty :math:`\lambda \sum_t \omega x_t^2 / (1 + \omega x_t^2)`, which levels off.

Its second derivative per coordinate lies between :math:`-\lambda \omega / 2`, at
:math:`\omega x_t^2 = 1`, and :math:`2 \lambda \omega`, at 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from dpcvx._arguments import POSITIVE, check_fields

from ..papers import entry

Floats = NDArray[np.float64]
_SIZES = entry("ou_wang_liu_lu", "sizes")


@dataclass(frozen=True)
class Penalty:
    """The penalty with its two parameters.

    Parameters
    ----------
    weight : float
        Weight lambda of the penalty.
    omega : float
        Scale omega of the squared entries.

    Raises
    ------
    dp.ModelError
        If a parameter is not a positive finite number.
    """

    weight: float = _SIZES.number("lambda")
    omega: float = _SIZES.number("omega")

    def __post_init__(self) -> None:
        check_fields(self, "Penalty", weight=POSITIVE, omega=POSITIVE)

    @property
    def smoothness(self) -> float:
        """The largest absolute value of the second derivative in an entry."""
        return 2 * self.weight * self.omega

    @property
    def concavity(self) -> float:
        """The largest absolute value of a negative second derivative in an entry."""
        return self.weight * self.omega / 2

    def of(self, x: cp.Variable) -> cp.Expression:
        """Return the cvxpy expression, without a quotient of two functions of x."""
        left = cp.inv_pos(1 + self.omega * cp.square(x))
        return cp.Constant(self.weight * x.size) - self.weight * cp.sum(left)

    def value(self, X: Floats) -> Floats:
        """Return the values at points ``X[..., :]``."""
        s = self.omega * X**2
        return self.weight * (s / (1 + s)).sum(axis=-1)

    def gradient(self, X: Floats) -> Floats:
        """Return the gradients at points ``X[..., :]``, of the same shape."""
        return self.smoothness * X / (1 + self.omega * X**2) ** 2

    def curvature(self, x: Floats) -> Floats:
        """Return the diagonal of the Hessian, shape (d,)."""
        s = self.omega * x**2
        return self.smoothness * (1 - 3 * s) / (1 + s) ** 3
