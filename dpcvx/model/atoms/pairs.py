"""Atoms of two or more arguments that work entry by entry."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import kl_div, rel_entr

from ..matrices import Array, as_array, diagonal
from .rule import Arrays, Broadcasting, Ends, Shape, Shapes, Slopes, Static


def interval_product(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """Return intervals of products of [a, b] and [c, d]; of zero and infinity nothing is known."""
    with np.errstate(all="ignore"):
        corners = np.stack([s * t for s in (a, b) for t in (c, d)])
    lost = np.isnan(corners).any(axis=0)
    low, high = corners.min(axis=0, initial=np.inf), corners.max(axis=0, initial=-np.inf)
    return np.where(lost, -np.inf, low), np.where(lost, np.inf, high)


class Multiply(Broadcasting):
    """``cp.multiply``."""

    name = "multiply"
    classes = ("multiply",)
    smooth = True
    arguments = 2
    product = "entry"
    linear_in = (0, 1)

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return products."""
        return v[0] * v[1]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent."""
        return g * v[1 - k]

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the other factor."""
        return _diagonal(other, shapes)

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of products."""
        low, high = interval_product(lo[0], hi[0], lo[1], hi[1])
        return low, high, np.zeros(low.shape, dtype=bool)

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the weights, for arguments of one shape."""
        return (diagonal(weight), 1) if shapes[0] == shapes[1] else None


class Division(Broadcasting):
    """``u / v``."""

    name = "division"
    classes = ("DivExpression",)
    arguments = 2
    linear_in = (0,)

    def written(self, data: Static, last: Array | None) -> str:
        """Return how users write it."""
        return "/"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return quotients."""
        return v[0] / v[1]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent."""
        return g / v[1] if k == 0 else -g * out / v[1]

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Whether the denominator moves."""
        return moving[1]

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the reciprocals of the denominator."""
        return _diagonal(1.0 / as_array(other), shapes)


def _diagonal(values: Any, shapes: Shapes) -> sp.csr_array:
    size = math.prod(np.broadcast_shapes(*shapes))
    return diagonal(np.ravel(as_array(values), order="F"), size)


class Choice(Broadcasting):
    """An atom that chooses one of its arguments, entry by entry.

    Its subgradient is that of the first argument that attains the value.
    """

    arguments = None

    @abstractmethod
    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the values, of arrays of one shape."""

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return what is chosen."""
        return self.chosen(np.stack(np.broadcast_arrays(*v)))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent where argument k is the first that attains the value."""
        hit = np.stack(np.broadcast_arrays(*v)) == out
        return (hit[k] & ~hit[:k].any(axis=0) if k else hit[0]) * g

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return what is chosen of the ends."""
        return self.chosen(lo), self.chosen(hi), np.zeros(lo[0].shape, dtype=bool)

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return 0 to 1."""
        return [(np.zeros(low.size), np.ones(low.size)) for low in lo]


class Maximum(Choice):
    """``cp.maximum`` and ``cp.pos``."""

    name = "maximum"
    classes = ("maximum",)

    def written(self, data: Static, last: Array | None) -> str:
        """Return how users write it."""
        return "cp.maximum" if last is None or last.any() else "cp.pos"

    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the largest."""
        return np.max(values, axis=0)


class Minimum(Choice):
    """``cp.minimum``, and ``cp.neg(u)`` as ``-cp.minimum(u, 0)``."""

    name = "minimum"
    classes = ("minimum",)

    def written(self, data: Static, last: Array | None) -> str:
        """Return how users write it."""
        return "cp.minimum" if last is None or last.any() else "cp.neg"

    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the smallest."""
        return np.min(values, axis=0)


class KlDiv(Broadcasting):
    """``cp.kl_div``."""

    name = "kl_div"
    classes = ("kl_div",)
    arguments = 2
    rows = None

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return values."""
        return np.asarray(kl_div(v[0], v[1]))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent."""
        x, y = v
        return g * np.log(x / y) if k == 0 else g * (1 - x / y)


class RelEntr(Broadcasting):
    """``cp.rel_entr``."""

    name = "rel_entr"
    classes = ("rel_entr",)
    arguments = 2
    rows = None

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return values."""
        return np.asarray(rel_entr(v[0], v[1]))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent."""
        x, y = v
        return g * (np.log(x / y) + 1) if k == 0 else -g * x / y


MULTIPLY, DIVISION, MAXIMUM, MINIMUM = Multiply(), Division(), Maximum(), Minimum()
KL_DIV, REL_ENTR = KlDiv(), RelEntr()
