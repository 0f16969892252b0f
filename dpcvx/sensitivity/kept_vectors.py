r"""Vectors that an agent keeps, as combinations of what left it and of exact gradients.

A `LinearCombination` makes one from public numbers, from vectors that are kept already, and from
gradients at them: :math:`v = c + \sum_j a_j u_j + \sum_j b_j \nabla f(u_j)`. How far the result
moves with the data, while everything that left stays the same, follows term by term: see
`dpcvx.sensitivity.reach`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..model.curvature import Curvature
from .reach import At, Effect, Shift

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearCombination:
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
    curvature : Curvature or None
        What is known of second derivatives beyond that.
    turn : float
        M of the difference of two neighbours' objectives; infinite if none is known.
    """

    value: float = 0.0
    asserted: bool = False
    curvature: Curvature | None = None
    turn: float = math.inf


# Where nothing follows from it.
UNKNOWN = Smoothness()


@dataclass(frozen=True, eq=False, repr=False)
class _Kept:
    """A vector; what it would be with zero data; sizes of its parts; what one change does to it."""

    value: Array
    public: Array
    size: float
    effect: Effect | None
    secret: bool


class SecretState:
    """The vectors that one agent keeps, with how far one change of the data moves each.

    Parameters
    ----------
    gradient : callable
        Exact.
    public : callable or None
        At zero data; None where sizes do not matter, without noise.
    shift : Shift or None
        What one change of the data does to it; None for nothing, or without noise.
    """

    def __init__(
        self,
        gradient: Callable[[Array], Array],
        public: Callable[[Array], Array] | None,
        shift: Shift | None,
    ) -> None:
        self._gradient, self._public, self._shift = gradient, public, shift
        self._kept: dict[str, _Kept] = {}
        # Gradients at kept vectors, which methods show in one round and step along in the next.
        self._slopes: dict[str, Array] = {}
        self._public_slopes: dict[str, Array] = {}

    def keep(self, name: str, recipe: LinearCombination) -> None:
        """Make a vector, or make it anew; the recipe may name what it replaces."""
        value, public = recipe.center.copy(), recipe.center.copy()
        size, secret = float(np.abs(public).max(initial=0.0)), bool(recipe.slopes)
        for other, a in recipe.vectors.items():
            u = self._kept[other]
            value += a * u.value
            public += a * u.public
            size += abs(a) * u.size
            secret = secret or u.secret
        for other, b in recipe.slopes.items():
            slope = self._public_slope(other)
            value += b * self.slope(other)
            public += b * slope
            size += abs(b) * float(np.abs(slope).max(initial=0.0))
        self._kept[name] = _Kept(value, public, size, self._combined(recipe), secret)
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

    def reach(self, name: str, p: int) -> float:
        """How far one change of the data moves a kept vector, in lp."""
        effect = self._kept[name].effect
        return 0.0 if self._shift is None or effect is None else self._shift.size(effect, p)

    def slope_reach(self, name: str, p: int) -> float:
        """How far it moves the gradient there."""
        effect = self._kept[name].effect
        if self._shift is None or effect is None:
            return 0.0
        return self._shift.size(self._shift.slope(effect), p)

    def _combined(self, recipe: LinearCombination) -> Effect | None:
        if self._shift is None:
            return None
        vectors, slopes = [], []
        for other, a in recipe.vectors.items():
            effect = self._kept[other].effect
            assert effect is not None  # as there is a shift
            vectors.append((a, effect))
        for other, b in recipe.slopes.items():
            u = self._kept[other]
            assert u.effect is not None
            slopes.append(At(b, u.effect, u.public))
        return self._shift.combined(vectors, slopes)

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
