r"""Vectors that an agent stores, as combinations of what left it and of exact gradients.

A `LinearCombination` makes one from public numbers, from vectors that are stored already, and from
gradients at them: :math:`v = c + \sum_j a_j u_j + \sum_j b_j \nabla f(u_j)`. The vectors themselves
stay behind the door. How far one change of the data moves them, while everything that left stays
the same, is public and follows term by term: see `dpcvx.sensitivity.reach`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..model.curvature import Curvature
from .certificate import Sensitivity
from .reach import At, Effect, Shift, fixed_shift, varying_shift

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearCombination:
    """``center + sum of a_j u_j + sum of b_j gradient(u_j)`` for stored vectors u_j.

    Attributes
    ----------
    center : ndarray, shape (n,)
        Follows from what left the agents.
    vectors, gradients : dict of str to float
        a_j and b_j, by the name of u_j.
    """

    center: Array
    vectors: Mapping[str, float] = field(default_factory=dict)
    gradients: Mapping[str, float] = field(default_factory=dict)


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
        M of the difference of two neighbors' objectives; infinite if none is known.
    """

    value: float
    asserted: bool = False
    curvature: Curvature | None = None
    turn: float = math.inf


class StoredVectors:
    """The vectors that one agent stores. Private.

    Parameters
    ----------
    gradient : callable
        Exact.
    """

    def __init__(self, gradient: Callable[[Array], Array]) -> None:
        self._exact = gradient
        self._vectors: dict[str, Array] = {}
        # Gradients at stored vectors, which methods release in one round and step along in the
        # next.
        self._gradients: dict[str, Array] = {}

    def store(self, name: str, combination: LinearCombination) -> None:
        """Make a vector, or make it anew; the combination may name what it replaces."""
        value = combination.center.copy()
        for other, a in combination.vectors.items():
            value += a * self._vectors[other]
        for other, b in combination.gradients.items():
            value += b * self.gradient(other)
        self._vectors[name] = value
        self._gradients.pop(name, None)

    def vector(self, name: str) -> Array:
        """A stored vector, shape (n,)."""
        return self._vectors[name].copy()

    def gradient(self, name: str) -> Array:
        """The gradient at a stored vector, shape (n,)."""
        if name not in self._gradients:
            self._gradients[name] = self._exact(self._vectors[name])
        return self._gradients[name].copy()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("Stored vectors depend on private data and are never pickled.")


@dataclass(frozen=True, eq=False)
class _Stored:
    """What is public of a vector: what one change does to it; what it would be with zero data.

    `size` is that of the public numbers that it is made of; `secret`, whether gradients are.
    """

    effect: Effect
    public: Array
    size: float
    secret: bool


class StoredEffects:
    """How far one change of the data moves the vectors that one agent stores. Public.

    Parameters
    ----------
    public : callable
        The gradient at zero data.
    shift : Shift
        What one change of the data does to gradients.
    """

    def __init__(self, public: Callable[[Array], Array], shift: Shift) -> None:
        self._gradient, self._shift = public, shift
        self._stored: dict[str, _Stored] = {}
        self._gradients: dict[str, Array] = {}  # at zero data

    def store(self, name: str, combination: LinearCombination) -> None:
        """Follow `StoredVectors.store`."""
        public = combination.center.copy()
        size, secret = float(np.abs(public).max(initial=0.0)), bool(combination.gradients)
        vectors, gradients = [], []
        for other, a in combination.vectors.items():
            u = self._stored[other]
            vectors.append((a, u.effect))
            public += a * u.public
            size += abs(a) * u.size
            secret = secret or u.secret
        for other, b in combination.gradients.items():
            u, at_zero = self._stored[other], self._public_gradient(other)
            gradients.append(At(b, u.effect, u.public))
            public += b * at_zero
            size += abs(b) * float(np.abs(at_zero).max(initial=0.0))
        effect = self._shift.combined(vectors, gradients)
        self._stored[name] = _Stored(effect, public, size, secret)
        self._gradients.pop(name, None)

    def secret(self, name: str) -> bool:
        """Whether gradients went into a stored vector."""
        return self._stored[name].secret

    def reach(self, name: str, p: int) -> float:
        """How far one change of the data moves a stored vector, in lp."""
        return self._shift.size(self._stored[name].effect, p)

    def gradient_reach(self, name: str, p: int) -> float:
        """How far it moves the gradient there."""
        return self._shift.size(self._shift.slope(self._stored[name].effect), p)

    def size(self, name: str) -> float:
        """Of the public numbers that a stored vector is made of, for its rounding."""
        return self._stored[name].size

    def gradient_size(self, name: str) -> float:
        """The same of the gradient there."""
        return float(np.abs(self._public_gradient(name)).max(initial=0.0))

    def _public_gradient(self, name: str) -> Array:
        if name not in self._gradients:
            self._gradients[name] = self._gradient(self._stored[name].public)
        return self._gradients[name]


def shift_of(sensitivity: Sensitivity, smoothness: Smoothness) -> Shift:
    """What one change of the data does to gradients at vectors that it moves as well."""
    n, M = sensitivity.extent.lower.size, smoothness.value
    if sensitivity.constant:
        size = sum(spec.size for spec in sensitivity.private)
        return fixed_shift(n, size, sensitivity.mapped, M, smoothness.curvature)
    return varying_shift(n, sensitivity.mapped, M, smoothness.turn, sensitivity.changes)
