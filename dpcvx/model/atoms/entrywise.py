"""Atoms of one argument that work entry by entry: values, derivatives, and bounds of both."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import entr

from ..matrices import Array, diagonal
from ..trailing import flat
from .rule import Arrays, Ends, Fitted, Rule, Shape, Shapes, Slopes, Static


class Entrywise(Rule):
    """An atom of one argument that works entry by entry."""

    by_value = False
    rows = "entry"
    bounded: ClassVar[bool] = True  # whether `values` and `slopes` return intervals
    turn: ClassVar[float | None] = None  # argument of its extremum, if it is not monotone
    bends: ClassVar[tuple[float, ...]] = ()  # arguments of the extrema of its derivative
    domain: ClassVar[float] = -math.inf  # lower end of its domain; derivatives explode
    most_curved: ClassVar[float | None] = None  # largest magnitude of its second derivative

    @abstractmethod
    def value(self, u: Array, data: Static) -> Array:
        """Return values, entry by entry."""

    @abstractmethod
    def derivative(self, u: Array, data: Static) -> Array:
        """Return derivatives, entry by entry."""

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the value of the atom."""
        return self.value(v[0], data)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k."""
        return g * self.derivative(v[0], data)

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule on flat arrays."""
        return Fitted(self.forward, self.vjp, data, (flat,))

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of values, and where arguments may lie outside the domain."""
        if not self.bounded:
            return None
        with np.errstate(all="ignore"):
            ends = np.stack([self._at(lo[0], data), self._at(hi[0], data)])
            if self.turn is not None:
                inside = (lo[0] < self.turn) & (self.turn < hi[0])
                peak = self._at(np.full(1, self.turn), data)
                ends = np.vstack([ends, np.where(inside, peak, ends[0])])
        lost = np.asarray(np.isnan(ends).any(axis=0))
        return ends.min(axis=0, initial=np.inf), ends.max(axis=0, initial=-np.inf), lost

    def _at(self, u: Array, data: Static) -> Array:
        return np.asarray(self.value(u, data), dtype=float)

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of derivatives."""
        if not self.bounded:
            return None
        with np.errstate(all="ignore"):
            low, high = self._slopes(lo[0], hi[0], data)
        lost = lo[0] <= self.domain if self.domain > -math.inf else False
        low = np.where(lost | np.isnan(low), -np.inf, low)
        return [(low, np.where(lost | np.isnan(high), np.inf, high))]

    def _slopes(self, lo: Array, hi: Array, data: Static) -> tuple[Array, Array]:
        first, last = (np.asarray(self.derivative(u, data), dtype=float) for u in (lo, hi))
        if self.convex is not None:
            return (first, last) if self.convex else (last, first)
        ends = [first, last]
        for bend in self.bends:
            peak = np.asarray(self.derivative(np.full(1, bend), data), dtype=float)
            ends.append(np.where((lo < bend) & (bend < hi), peak, first))
        return np.min(ends, axis=0), np.max(ends, axis=0)

    def has_edge(self, data: Static) -> bool:
        """Return whether the atom's domain has a lower end."""
        return self.domain > -math.inf

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Return whether the atom is neither convex nor concave, and its argument depends on x."""
        return self.bends_both_ways and any(moving)

    @property
    def bends_both_ways(self) -> bool:
        """Return whether the atom's second derivatives have both signs."""
        return bool(self.bends)

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the second derivative times the largest weight, or None."""
        return None if self.most_curved is None else self.most_curved * largest


class Power(Entrywise):
    """``cp.power``, ``cp.square``, ``cp.sqrt`` and ``cp.inv_pos``; the constant is the exponent."""

    name = "power"
    classes = ("Power", "PowerApprox")
    smooth = True
    has_number = True
    turn = 0.0

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the power, as an integer where it is one; None if it is a parameter."""
        if atom.p.value is None:
            return None
        p = float(atom.p.value)
        return (int(p) if p.is_integer() else p,)

    def takes(self, number: float) -> bool:
        """Return True: every power has this rule."""
        return True

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom as users write it."""
        return {2: "cp.square", 0.5: "cp.sqrt", -1: "cp.inv_pos"}.get(data[0], "cp.power")

    def value(self, u: Array, data: Static) -> Array:
        """Return powers."""
        return u ** data[0]

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of powers."""
        p = data[0]
        return 2.0 * u if p == 2 else p * u ** (p - 1)

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of powers; negative ones have a pole at 0."""
        ends = super().values(lo, hi, data)
        if ends is None or data[0] >= 0:
            return ends
        low, high, lost = ends
        return low, high, lost | ((lo[0] <= 0) & (hi[0] >= 0))

    def has_edge(self, data: Static) -> bool:
        """Return whether the power is below 1, as for a root or a reciprocal."""
        return data[0] < 1

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of derivatives, infinite where powers meet the end of their domain."""
        p, (low, high) = data[0], (lo[0], hi[0])
        with np.errstate(all="ignore"):
            first, last = self._slopes(low, high, data)
        lost = np.isnan(first) | np.isnan(last)
        if p != 1 and not _is_whole(p):  # powers of negative numbers; a pole at 0
            lost |= low < 0 if p > 1 else low <= 0
        return [(np.where(lost, -np.inf, first), np.where(lost, np.inf, last))]

    def _slopes(self, lo: Array, hi: Array, data: Static) -> tuple[Array, Array]:
        p = data[0]
        if p == 1:
            return np.ones_like(lo), np.ones_like(lo)
        first, last = (np.asarray(self.derivative(u, data), dtype=float) for u in (lo, hi))
        if _is_whole(p) and int(p) % 2 == 1:  # an odd power: the derivative is even
            ends = np.stack([first, last])
            return np.where((lo < 0) & (hi > 0), 0.0, ends.min(axis=0)), ends.max(axis=0)
        return (first, last) if p > 1 or p < 0 else (last, first)

    def is_bilinear(self, data: Static) -> bool:
        """Return whether the power is 2."""
        return data[0] == 2

    def of_squares(self, data: Static) -> bool:
        """Return whether the power is 2."""
        return data[0] == 2

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the rule of sums of squares, if the power is 2."""
        return ("quad_over_lin", (None, False), (1.0,)) if data[0] == 2 else None

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the weights as a diagonal matrix, if the power is 2."""
        return (diagonal(weight), 0) if data[0] == 2 else None

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the weighted second derivative, if the power is 2."""
        return 2 * largest if data[0] == 2 else None

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``|phi'(c)|`` for powers below 1 at positive arguments, else None."""
        p = data[0]
        return abs(p) * c ** (p - 1.0) if p < 1 and (c > 0).all() else None


def _is_whole(p: float) -> bool:
    return float(p).is_integer() and p > 1


class Huber(Entrywise):
    """``cp.huber``: a square up to a given magnitude (the static data), and linear beyond it."""

    name = "huber"
    classes = ("huber",)
    has_number = True
    convex, turn, most_curved = True, 0.0, 2.0

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the number, or None if it is a parameter."""
        return None if atom.M.value is None else (float(atom.M.value),)

    def value(self, u: Array, data: Static) -> Array:
        """Return squares, continued linearly beyond the given magnitude."""
        size, M = np.abs(u), data[0]
        return np.where(size <= M, size * size, 2 * M * size - M * M)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return derivatives, constant beyond the given magnitude."""
        return 2.0 * np.clip(u, -data[0], data[0])


class Logistic(Entrywise):
    """``cp.logistic``: the logarithm of ``1 + exp(u)``."""

    name = "logistic"
    classes = ("logistic",)
    smooth = True
    convex, total, most_curved = True, True, 0.25

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom, without overflow."""
        return np.logaddexp(0.0, u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``1 / (1 + exp(-u))``."""
        # Half the time of scipy's expit; below 1e-308 the result is 0.
        out = np.negative(u, out=np.empty_like(u))  # one array for all: records have millions
        with np.errstate(over="ignore"):
            np.exp(out, out=out)
        out += 1
        return np.divide(1, out, out=out)


class Exp(Entrywise):
    """``cp.exp``."""

    name = "exp"
    classes = ("exp",)
    smooth = True
    convex, total = True, True

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return np.exp(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return np.exp(u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return the derivative ``exp(c)``."""
        return np.exp(c)


class Log(Entrywise):
    """``cp.log``."""

    name = "log"
    classes = ("log",)
    smooth = True
    convex, domain = False, 0.0

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return np.log(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return np.reciprocal(u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return the derivative ``1 / c`` at positive arguments, else None."""
        return 1 / c if (c > 0).all() else None


class Log1p(Entrywise):
    """``cp.log1p``: the logarithm of ``1 + u``."""

    name = "log1p"
    classes = ("log1p",)
    smooth = True
    convex, domain = False, -1.0

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return np.log1p(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return 1 / (1 + u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return the derivative ``1 / (1 + c)`` inside the domain, else None."""
        return 1 / (1 + c) if (1 + c > 0).all() else None


class Entr(Entrywise):
    """``cp.entr``: ``-u log(u)``."""

    name = "entr"
    classes = ("entr",)
    smooth = True
    convex, turn, domain = False, math.exp(-1), 0.0

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return np.asarray(entr(u))

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return -np.log(u) - 1


class Xexp(Entrywise):
    """``cp.xexp``: ``u exp(u)``."""

    name = "xexp"
    classes = ("xexp",)
    smooth = True
    bounded = False

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return u * np.exp(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return (1 + u) * np.exp(u)


class Abs(Entrywise):
    """``cp.abs``. Its subgradient at 0 is 0."""

    name = "abs"
    classes = ("abs",)
    convex, turn, total = True, 0.0, True

    def value(self, u: Array, data: Static) -> Array:
        """Return magnitudes."""
        return np.abs(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return signs."""
        return np.sign(u)

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the rule of the l1 norm."""
        return "norm1", (None, False), ()


class Tanh(Entrywise):
    r"""``cp.nlp.tanh``: a smooth step, such as of margin losses ``1 - cp.nlp.tanh(X @ w)``.

    The derivative :math:`1 - t^2` of :math:`t = \tanh u` is even, and falls from 1 at 0. The second
    derivative is :math:`-2 t (1 - t^2)`, with its largest magnitude at :math:`t^2 = 1/3`.
    """

    name = "tanh"
    classes = ("tanh",)
    smooth = True
    bends, total, most_curved = (0.0,), True, 4 / (3 * math.sqrt(3))

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom as users write it."""
        return "cp.nlp.tanh"

    def value(self, u: Array, data: Static) -> Array:
        """Return the values of the atom."""
        return np.tanh(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the atom."""
        return 1 - np.tanh(u) ** 2


POWER, HUBER, LOGISTIC, EXP, LOG = Power(), Huber(), Logistic(), Exp(), Log()
LOG1P, ENTR, XEXP, ABS, TANH = Log1p(), Entr(), Xexp(), Abs(), Tanh()
