r"""Vectors that an agent stores, as combinations of released values and exact gradients.

A `LinearCombination` computes a vector v from public numbers c, from vectors u_j that are stored
already, and from gradients at them: :math:`v = c + \sum_j a_j u_j + \sum_j b_j \nabla f(u_j)`. The
vectors themselves stay within the trust boundary. Neighboring data
that release equal values may still differ in them. The bound on this change is public, and is a
sum over their terms.

Vectors made of gradients at unreleased points move as follows if the data change.

M-smooth objectives f and f' for neighboring data differ in their gradients by e, :math:`\|e\| \le
\Delta` at every point. If all values that an agent released are equal, a vector u that it stores
moves by some :math:`\delta u`, and the gradient at it by

.. math:: \nabla f'(u + \delta u) - \nabla f(u) = e + G\, \delta u

with a symmetric G, the mean of second derivatives of f between the two points. An `Effect` says
:math:`\delta u = K e + w` with a known matrix K and :math:`\|w\|_2` at most a number.

*One e at all points*, where gradients are affine in the data with a constant Jacobian. With second
derivatives that lie within :math:`\varrho` of a fixed matrix H (of a quadratic: that matrix,
:math:`\varrho = 0`; of a convex rest with second derivatives up to B: B / 2 of the identity, with
:math:`\varrho = B / 2`),

.. math:: e + G (K e + w) = (I + H K) e + w', \qquad
    \|w'\| \le M \|w\| + \varrho \|K e\| ,

and for a linear combination of vectors, K and w are combined linearly, too. So K is a polynomial in
H, whose terms may cancel exactly. For quadratics the sensitivity is the largest norm of :math:`K J
(d - d')` over neighbors.

*An e that depends on the point*: a gradient moves by an e of its own plus :math:`M \|\delta u\|`,
and norms add up. For a difference of gradients at u and v there is another bound, used if it is
smaller: the difference moves by :math:`e(u) - e(v)`, and e itself is Lipschitz, with the constant L
of one record's losses. Then

.. math:: \|e(u) - e(v)\| \le L\,\|u - v\|, \qquad
    \|u - v\| \le \|u_0 - v_0\| + N (\|\delta u\| + \|\delta v\|),

where :math:`u_0, v_0` are what the vectors would be with zeros for data, and N changes lead from
any data there.

If terms cancel, rounding errors of private numbers remain. Bounds of sums therefore include a
millionth of all terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..model.curvature import Curvature
from ..model.matrices import SLACK
from .certificate import Sensitivity

Array = NDArray[np.float64]


# Covers the rounding of small matrices, their products and sums, relative to their norms.
_ROUNDING = 1e-12
# Share of the parts of a sum that its bound includes in any case, since parts may cancel.
_CANCELLED = 2.0**-20
# Largest number of entries of K and K J together for which K is a full matrix.
_ENTRIES = 20_000


@dataclass(frozen=True, eq=False)
class Effect:
    """The change ``K e + w`` of an agent's stored, unreleased vector between neighboring data.

    Both data sets have equal released values. K is a known matrix, and e is the change of the
    gradient at one fixed point. The vector w is unknown, but its norm has a known bound.
    """

    K: Array  # shape (n, n), or (1, 1) for a multiple of the identity
    rest: float  # bound of ``||w||_2``
    image: Callable[[Array, int], float]  # bound of ``||K e||_p`` for K and p

    @cached_property
    def known(self) -> float:
        """Bound of the known part ``||K e||_2`` of the change; see the class for K and e."""
        return self.image(self.K, 2)

    @property
    def two(self) -> float:
        """Bound of the l2 norm of the stored vector's change."""
        return self.known + self.rest


@dataclass(frozen=True, eq=False)
class At:
    """Gradient in a linear combination: factor, change of its point, and point for zero data."""

    factor: float
    effect: Effect
    public: Array


@dataclass(frozen=True, eq=False)
class Shift:
    """Change of the gradients of one agent between neighboring data."""

    n: int
    image: Callable[[Array, int], float]  # bound of ``||K e||_p`` for K and p
    center: Array  # shape (n, n) or (1, 1); H
    spread: float  # largest distance of second derivatives from H, in the spectral norm
    smoothness: float  # M
    fixed: bool  # whether e is equal at all points
    turn: float  # L, used if e depends on the point
    changes: float  # N; infinite if no number of changes leads to zeros

    def size(self, effect: Effect, p: int) -> float:
        """Return a bound of the lp norm of a stored vector's change `effect`."""
        if p == 2:
            return effect.two
        root = math.sqrt(self.n)
        return min(self.image(effect.K, 1) + root * effect.rest, root * effect.two)

    def slope(self, u: Effect) -> Effect:
        """Return the change of the gradient at a stored vector that itself changes by u."""
        K = np.eye(self.center.shape[0]) + self.center @ u.K
        rest = self.smoothness * (u.rest + self._rounded(u.K))
        if self.spread > 0:
            rest += self.spread * u.known
        return Effect(K, rest, self.image)

    def combined(self, vectors: Sequence[tuple[float, Effect]], slopes: Sequence[At]) -> Effect:
        """Return the change of a weighted sum of stored vectors and of gradients at such vectors.

        `vectors` are pairs of weight and change, and `slopes` are the gradients.
        """
        parts = [*vectors, *((step.factor, self.slope(step.effect)) for step in slopes)]
        K, rest = np.zeros_like(self.center), 0.0
        for a, part in parts:
            K = K + (a if self.fixed else abs(a)) * part.K
            rest += abs(a) * (part.rest + self._rounded(part.K))
        if not self.fixed and len(slopes) > 1:
            K, rest = self._paired(K, rest, slopes)
        if len(parts) > 1:
            rest += _CANCELLED * sum(abs(a) * part.two for a, part in parts)
        return Effect(K, rest, self.image)

    def _paired(self, K: Array, rest: float, slopes: Sequence[At]) -> tuple[Array, float]:
        """Return K and the rest of `combined`, bounded with one e for all gradients in the sum.

        Each e is replaced by the first gradient's e. If that gives no smaller bound, K and the rest
        stay as they are.
        """
        first, *others = slopes
        whole = sum(abs(step.factor) for step in slopes)
        joint = abs(sum(step.factor for step in slopes))
        turned = sum(abs(step.factor) * self.turn * self._apart(first, step) for step in others)
        if not turned < self.image(np.full((1, 1), whole - joint), 2):
            return K, rest
        return K - (whole - joint), rest + turned

    def _apart(self, a: At, b: At) -> float:
        """Return a bound of the distance between the points of two gradients, for all data."""
        reach = a.effect.two + b.effect.two
        public = float(np.linalg.norm(a.public - b.public))
        size = float(np.linalg.norm(a.public) + np.linalg.norm(b.public))
        return SLACK * (public + self.changes * reach) + _ROUNDING * size if reach else public

    def _rounded(self, K: Array) -> float:
        return _ROUNDING * float(np.linalg.norm(K)) * self.image(np.ones((1, 1)), 2)


def fixed_shift(
    n: int,
    size: int,
    image: Callable[[Array, int], float],
    smoothness: float,
    curvature: Curvature | None,
) -> Shift:
    """Return the change of gradients that move by one vector e, equal at all points.

    Parameters
    ----------
    n, size : int
        Sizes of the agent's vector and of its data.
    image : callable
        Function that returns a bound of ``||K e||_p`` for a matrix K and p.
    smoothness : float
        Lipschitz constant M of the gradients.
    curvature : Curvature or None
        Bounds of second derivatives; None if only the smoothness is known.
    """
    M = smoothness * SLACK
    center, spread = np.zeros((1, 1)), M
    if curvature is not None and n * (n + size) <= _ENTRIES:
        center, spread = curvature.center.toarray(), curvature.spread * SLACK
    elif curvature is not None:
        low, high = curvature.ends
        center, spread = np.full((1, 1), (low + high) / 2), (high - low) / 2 * SLACK
    return Shift(n, image, center, spread, M, True, 0.0, math.inf)


def varying_shift(
    n: int,
    image: Callable[[Array, int], float],
    smoothness: float,
    turn: float,
    changes: float,
) -> Shift:
    """Return the change of gradients that move by a vector e that depends on the point.

    `turn` is the Lipschitz constant of e in the point, `changes` the number of changes from any
    data to zeros, and `smoothness` the Lipschitz constant of the gradient.
    """
    M = smoothness * SLACK
    turn = min(turn * SLACK, 2 * M)
    return Shift(n, image, np.zeros((1, 1)), M, M, False, turn, changes)


@dataclass(frozen=True, eq=False)
class LinearCombination:
    """Recipe for an unreleased vector: a combination of stored vectors and their gradients.

    With stored vectors u_j, the vector is ``center + sum of a_j u_j + sum of b_j gradient(u_j)``.

    Attributes
    ----------
    center : ndarray, shape (n,)
        Public vector, computed from released values.
    vectors, gradients : dict of str to float
        a_j and b_j, by the name of u_j.
    """

    center: Array
    vectors: Mapping[str, float] = field(default_factory=dict)
    gradients: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Smoothness:
    """Lipschitz constant M of the gradient of an agent's objective, for all admissible data.

    Attributes
    ----------
    value : float
        The constant M.
    asserted : bool
        Whether the user supplied M without a proof.
    curvature : Curvature or None
        Bounds of second derivatives; None if they are unknown.
    turn : float
        Lipschitz constant L of the difference of two neighbors' gradients; infinite if unknown.
    """

    value: float
    asserted: bool = False
    curvature: Curvature | None = None
    turn: float = math.inf


class StoredVectors:
    """Private vectors that one agent stores, by name.

    Parameters
    ----------
    gradient : callable
        Exact gradient of the agent's objective.
    """

    def __init__(self, gradient: Callable[[Array], Array]) -> None:
        self._exact = gradient
        self._vectors: dict[str, Array] = {}
        # Gradients at stored vectors, which methods release in one round and step along in the
        # next.
        self._gradients: dict[str, Array] = {}

    def store(self, name: str, combination: LinearCombination) -> None:
        """Store a linear combination under a name; it may contain the vector that it replaces."""
        value = combination.center.copy()
        for other, a in combination.vectors.items():
            value += a * self._vectors[other]
        for other, b in combination.gradients.items():
            value += b * self.gradient(other)
        self._vectors[name] = value
        self._gradients.pop(name, None)

    def vector(self, name: str) -> Array:
        """Return the stored vector with this name, shape (n,)."""
        return self._vectors[name].copy()

    def gradient(self, name: str) -> Array:
        """Return the objective's gradient at the stored vector with this name, shape (n,)."""
        if name not in self._gradients:
            self._gradients[name] = self._exact(self._vectors[name])
        return self._gradients[name].copy()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("Stored vectors depend on private data and are never pickled.")


@dataclass(frozen=True, eq=False)
class _Stored:
    """Public facts about a stored vector: change between neighbors, and value for zero data.

    `size` bounds the magnitude of the public numbers in it; `secret` tells whether the vector
    contains exact gradients.
    """

    effect: Effect
    public: Array
    size: float
    secret: bool


class StoredEffects:
    """Public bounds on the change of an agent's stored vectors between neighboring data.

    Parameters
    ----------
    public : callable
        Gradient of the objective at zero data, a function of the point.
    shift : Shift
        Effect of one change of the data on gradients.
    """

    def __init__(self, public: Callable[[Array], Array], shift: Shift) -> None:
        self._gradient, self._shift = public, shift
        self._stored: dict[str, _Stored] = {}
        self._gradients: dict[str, Array] = {}  # at zero data

    def store(self, name: str, combination: LinearCombination) -> None:
        """Record how a vector changes that `StoredVectors.store` computes."""
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
        """Return whether a stored vector contains exact gradients."""
        return self._stored[name].secret

    def reach(self, name: str, p: int) -> float:
        """Return the lp sensitivity of a stored vector."""
        return self._shift.size(self._stored[name].effect, p)

    def gradient_reach(self, name: str, p: int) -> float:
        """Return the lp sensitivity of the gradient at a stored vector."""
        return self._shift.size(self._shift.slope(self._stored[name].effect), p)

    def size(self, name: str) -> float:
        """Return the largest magnitude of the public numbers in a stored vector, for rounding."""
        return self._stored[name].size

    def gradient_size(self, name: str) -> float:
        """Return the magnitude of the public gradient at a stored vector, for rounding."""
        return float(np.abs(self._public_gradient(name)).max(initial=0.0))

    def _public_gradient(self, name: str) -> Array:
        if name not in self._gradients:
            self._gradients[name] = self._gradient(self._stored[name].public)
        return self._gradients[name]


def shift_of(sensitivity: Sensitivity, smoothness: Smoothness) -> Shift:
    """Return the change of an agent's gradients at stored vectors between neighboring data."""
    n, M = sensitivity.extent.lower.size, smoothness.value
    if sensitivity.constant:
        size = sum(spec.size for spec in sensitivity.private)
        return fixed_shift(n, size, sensitivity.mapped, M, smoothness.curvature)
    return varying_shift(n, sensitivity.mapped, M, smoothness.turn, sensitivity.changes)
