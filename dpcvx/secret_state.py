r"""Vectors that an agent keeps, as combinations of what left it and of exact gradients.

A `Recipe` makes one from public numbers, from vectors that are kept already, and from gradients at
them. How far the result moves with the data, while everything that left stays the same, follows
term by term: with gradients that move by :math:`\Delta` at a fixed point, and M-smooth objectives,

.. math:: \|\delta v\|_2 \le \textstyle\sum_j |a_j| \|\delta u_j\|_2
    + \sum_j |b_j| (\Delta + M \|\delta u_j\|_2)

for :math:`v = c + \sum_j a_j u_j + \sum_j b_j \nabla f(u_j)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# For the rounding of smoothness constants.
_UP = 1 + 1e-10


@dataclass(frozen=True, eq=False)
class Recipe:
    """``center + sum of a_j u_j + sum of b_j gradient(u_j)`` for kept vectors u_j.

    Attributes
    ----------
    center : ndarray, shape (n,)
        Follows from what left the agents.
    vectors, slopes : dict of str to float
        a_j and b_j, by the name of u_j.
    """

    center: Array
    vectors: Mapping[str, float] = field(default_factory=dict)
    slopes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Smoothness:
    """M of one agent's objective, for all admissible data.

    Attributes
    ----------
    value : float
    asserted : bool
        Whether it is the user's claim.
    """

    value: float = 0.0
    asserted: bool = False


# Where nothing follows from it.
UNKNOWN = Smoothness()


class SecretState:
    """The vectors that one agent keeps, with how far one change of the data moves each.

    Parameters
    ----------
    gradient : callable
        Exact.
    public : callable or None
        At zero data; None where sizes do not matter, without noise.
    change : float
        Bound of how far one change of the data moves it, in l2, at every point.
    smoothness : float
        M.
    """

    def __init__(
        self,
        gradient: Callable[[Array], Array],
        public: Callable[[Array], Array] | None,
        change: float,
        smoothness: float,
    ) -> None:
        self._gradient, self._public, self._change = gradient, public, change
        self._smoothness = smoothness * _UP
        self._vectors: dict[str, Array] = {}
        self._reaches: dict[str, float] = {}
        self._sizes: dict[str, float] = {}
        self._centers: dict[str, Array] = {}
        self._secret: set[str] = set()

    def keep(self, name: str, recipe: Recipe) -> None:
        """Make a vector, or make it anew; the recipe may name what it replaces."""
        value = recipe.center.copy()
        for other, a in recipe.vectors.items():
            value += a * self._vectors[other]
        for other, b in recipe.slopes.items():
            value += b * self._gradient(self._vectors[other])
        reach = math.fsum(abs(a) * self._reaches[u] for u, a in recipe.vectors.items())
        reach += math.fsum(abs(b) * self.slope_reach(u) for u, b in recipe.slopes.items())
        # Of what is public in it, for the rounding of what is released.
        size = float(np.abs(recipe.center).max(initial=0.0))
        size += math.fsum(abs(a) * self._sizes[u] for u, a in recipe.vectors.items())
        size += math.fsum(abs(b) * self.slope_size(u) for u, b in recipe.slopes.items())
        if recipe.slopes or self._secret & recipe.vectors.keys():
            self._secret.add(name)
        else:
            self._secret.discard(name)
        self._vectors[name], self._reaches[name] = value, reach
        self._centers[name], self._sizes[name] = recipe.center, size

    def vector(self, name: str) -> Array:
        """A kept vector, shape (n,)."""
        return self._vectors[name]

    def secret(self, name: str) -> bool:
        """Whether gradients went into a kept vector."""
        return name in self._secret

    def size(self, name: str) -> float:
        """About the largest entry of a kept vector, from public numbers."""
        return self._sizes[name]

    def slope_size(self, name: str) -> float:
        """The same of the gradient there."""
        if self._public is None:
            return 0.0
        return float(np.abs(self._public(self._centers[name])).max(initial=0.0))

    def slope(self, name: str) -> Array:
        """The gradient at a kept vector, shape (n,)."""
        return self._gradient(self._vectors[name])

    def reach(self, name: str) -> float:
        """How far one change of the data moves a kept vector, in l2."""
        return self._reaches[name]

    def slope_reach(self, name: str) -> float:
        """How far it moves the gradient there."""
        return self._change + self._smoothness * self._reaches[name]
