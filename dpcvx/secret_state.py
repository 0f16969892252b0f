r"""Vectors that an agent keeps, as combinations of what left it and of exact gradients.

A `Recipe` makes one from public numbers, from vectors that are kept already, and from gradients at
them. How far the result moves with the data, while everything that left stays the same, follows
term by term: with gradients that move by :math:`\Delta` at a fixed point, and M-smooth objectives,

.. math:: \|\delta v\|_2 \le \textstyle\sum_j |a_j| \|\delta u_j\|_2
    + \sum_j |b_j| (\Delta + M \|\delta u_j\|_2)

for :math:`v = c + \sum_j a_j u_j + \sum_j b_j \nabla f(u_j)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .curvature import SLACK

Array = NDArray[np.float64]


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


@dataclass(frozen=True, eq=False, repr=False)
class _Kept:
    """A vector; what it would be with zero data; sizes of its parts; its reach."""

    value: Array
    public: Array
    size: float
    reach: float
    secret: bool


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
        self._smoothness = smoothness * SLACK
        self._kept: dict[str, _Kept] = {}
        # Gradients at kept vectors, which methods show in one round and step along in the next.
        self._slopes: dict[str, Array] = {}
        self._public_slopes: dict[str, Array] = {}

    def keep(self, name: str, recipe: Recipe) -> None:
        """Make a vector, or make it anew; the recipe may name what it replaces."""
        value, public, reach = recipe.center.copy(), recipe.center.copy(), 0.0
        size, secret = float(np.abs(public).max(initial=0.0)), bool(recipe.slopes)
        for other, a in recipe.vectors.items():
            u = self._kept[other]
            value += a * u.value
            public += a * u.public
            reach += abs(a) * u.reach
            size += abs(a) * u.size
            secret = secret or u.secret
        for other, b in recipe.slopes.items():
            slope = self._public_slope(other)
            value += b * self.slope(other)
            public += b * slope
            reach += abs(b) * self.slope_reach(other)
            size += abs(b) * float(np.abs(slope).max(initial=0.0))
        self._kept[name] = _Kept(value, public, size, reach, secret)
        self._slopes.pop(name, None)
        self._public_slopes.pop(name, None)

    def vector(self, name: str) -> Array:
        """A kept vector, shape (n,)."""
        return self._kept[name].value

    def slope(self, name: str) -> Array:
        """The gradient at a kept vector, shape (n,)."""
        if name not in self._slopes:
            self._slopes[name] = self._gradient(self._kept[name].value)
        return self._slopes[name].copy()

    def secret(self, name: str) -> bool:
        """Whether gradients went into a kept vector."""
        return self._kept[name].secret

    def reach(self, name: str) -> float:
        """How far one change of the data moves a kept vector, in l2."""
        return self._kept[name].reach

    def slope_reach(self, name: str) -> float:
        """How far it moves the gradient there."""
        return self._change + self._smoothness * self._kept[name].reach

    def size(self, name: str) -> float:
        """Of the public numbers that a kept vector is made of, for its rounding."""
        return self._kept[name].size

    def slope_size(self, name: str) -> float:
        """The same of the gradient there."""
        return float(np.abs(self._public_slope(name)).max(initial=0.0))

    def _public_slope(self, name: str) -> Array:
        public = self._kept[name].public
        if self._public is None:
            return np.zeros_like(public)
        if name not in self._public_slopes:
            self._public_slopes[name] = self._public(public)
        return self._public_slopes[name]
