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
    """Rule of an atom of one argument u that works entry by entry."""

    by_value = False
    rows = "entry"
    bounded: ClassVar[bool] = True  # whether `values` and `slopes` return intervals
    turn: ClassVar[float | None] = None  # argument of its extremum, if it is not monotone
    bends: ClassVar[tuple[float, ...]] = ()  # arguments of the extrema of its derivative
    domain: ClassVar[float] = -math.inf  # lower end of its domain; derivatives explode
    most_curved: ClassVar[float | None] = None  # largest magnitude of its second derivative

    @abstractmethod
    def value(self, u: Array, data: Static) -> Array:
        """Return the atom's values at the entries of its argument u."""

    @abstractmethod
    def derivative(self, u: Array, data: Static) -> Array:
        """Return the atom's derivatives by u, entry by entry."""

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the value of the atom at the values v of its arguments."""
        return self.value(v[0], data)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return g * self.derivative(v[0], data)

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for arguments as flat arrays."""
        return Fitted(self.forward, self.vjp, data, (flat,))

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of the atom's values for arguments in [lo, hi].

        Also return which arguments may lie outside the atom's domain.
        """
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
        """Return intervals of the atom's derivatives for arguments in [lo, hi]."""
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
        """Return whether the atom's domain has a lower end, such as 0 for the logarithm."""
        return self.domain > -math.inf

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Return whether the atom is neither convex nor concave, and depends on the decision x."""
        return self.bends_both_ways and any(moving)

    @property
    def bends_both_ways(self) -> bool:
        """Return whether the atom's second derivatives have both signs."""
        return bool(self.bends)

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return the bound of the atom's second derivative times the largest weight, or None."""
        return None if self.most_curved is None else self.most_curved * largest


class Power(Entrywise):
    """Atom ``cp.power(u, p)``, also ``cp.square``, ``cp.sqrt`` and ``cp.inv_pos``."""

    name = "power"
    classes = ("Power", "PowerApprox")
    smooth = True
    has_number = True
    turn = 0.0

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the exponent, as an integer if it is one; None if it is a parameter."""
        if atom.p.value is None:
            return None
        p = float(atom.p.value)
        return (int(p) if p.is_integer() else p,)

    def takes(self, number: float) -> bool:
        """Return True: this rule holds for every exponent."""
        return True

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return {2: "cp.square", 0.5: "cp.sqrt", -1: "cp.inv_pos"}.get(data[0], "cp.power")

    def value(self, u: Array, data: Static) -> Array:
        """Return the entries of u raised to the exponent."""
        return u ** data[0]

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the derivatives of the power of u, entry by entry."""
        p = data[0]
        return 2.0 * u if p == 2 else p * u ** (p - 1)

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of powers; powers with a negative exponent have a pole at 0."""
        ends = super().values(lo, hi, data)
        if ends is None or data[0] >= 0:
            return ends
        low, high, lost = ends
        return low, high, lost | ((lo[0] <= 0) & (hi[0] >= 0))

    def has_edge(self, data: Static) -> bool:
        """Return whether the exponent is below 1, as for a root or a reciprocal."""
        return data[0] < 1

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of a power's derivatives, infinite at an open end of its domain."""
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
        """Return whether the exponent is 2, so the power is a quadratic form."""
        return data[0] == 2

    def is_identity(self, data: Static) -> bool:
        """Return whether the exponent is 1, so the value is the argument."""
        return data[0] == 1

    def of_squares(self, data: Static) -> bool:
        """Return whether the exponent is 2, so the values are squares."""
        return data[0] == 2

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the rule of a sum of squares, if the exponent is 2; else None."""
        return ("quad_over_lin", (None, False), (1.0,)) if data[0] == 2 else None

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the weights of the squares as a diagonal matrix, if the exponent is 2."""
        return (diagonal(weight), 0) if data[0] == 2 else None

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the weighted second derivative, if the exponent is 2; else None."""
        return 2 * largest if data[0] == 2 else None

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``|phi'(c)|`` of the power phi if its exponent is below 1 and c > 0, else None."""
        p = data[0]
        return abs(p) * c ** (p - 1.0) if p < 1 and (c > 0).all() else None


def _is_whole(p: float) -> bool:
    return float(p).is_integer() and p > 1


class Huber(Entrywise):
    """Atom ``cp.huber(u, M)``: a square up to the magnitude M (static data), linear beyond it."""

    name = "huber"
    classes = ("huber",)
    has_number = True
    convex, turn, most_curved = True, 0.0, 2.0

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the magnitude M of ``cp.huber``, or None if it is a parameter."""
        return None if atom.M.value is None else (float(atom.M.value),)

    def value(self, u: Array, data: Static) -> Array:
        """Return squares of u, continued linearly beyond the magnitude in the static data."""
        size, M = np.abs(u), data[0]
        return np.where(size <= M, size * size, 2 * M * size - M * M)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return derivatives of ``cp.huber``, constant beyond the magnitude in the static data."""
        return 2.0 * np.clip(u, -data[0], data[0])


class Logistic(Entrywise):
    """Atom ``cp.logistic(u)``: the logarithm of ``1 + exp(u)``, entry by entry."""

    name = "logistic"
    classes = ("logistic",)
    smooth = True
    convex, total, most_curved = True, True, 0.25

    def value(self, u: Array, data: Static) -> Array:
        """Return ``log(1 + exp(u))``, without overflow."""
        return np.logaddexp(0.0, u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``1 / (1 + exp(-u))``, the derivative of the logistic loss."""
        # Half the time of scipy's expit; below 1e-308 the result is 0.
        out = np.negative(u, out=np.empty_like(u))  # one array for all: records have millions
        with np.errstate(over="ignore"):
            np.exp(out, out=out)
        out += 1
        return np.divide(1, out, out=out)


class Exp(Entrywise):
    """Atom ``cp.exp(u)``: the exponential function, entry by entry."""

    name = "exp"
    classes = ("exp",)
    smooth = True
    convex, total = True, True

    def value(self, u: Array, data: Static) -> Array:
        """Return ``exp(u)``, entry by entry."""
        return np.exp(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``exp(u)``, the derivative of the exponential function."""
        return np.exp(u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``exp(c)``, the derivative of the exponential function at c."""
        return np.exp(c)


class Log(Entrywise):
    """Atom ``cp.log(u)``: the natural logarithm, entry by entry."""

    name = "log"
    classes = ("log",)
    smooth = True
    convex, domain = False, 0.0

    def value(self, u: Array, data: Static) -> Array:
        """Return the natural logarithm of u, entry by entry."""
        return np.log(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``1 / u``, the derivative of the logarithm."""
        return np.reciprocal(u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``1 / c``, the logarithm's derivative at c, if all c are positive; else None."""
        return 1 / c if (c > 0).all() else None


class Log1p(Entrywise):
    """Atom ``cp.log1p(u)``: the logarithm of ``1 + u``, entry by entry."""

    name = "log1p"
    classes = ("log1p",)
    smooth = True
    convex, domain = False, -1.0

    def value(self, u: Array, data: Static) -> Array:
        """Return ``log(1 + u)``, entry by entry."""
        return np.log1p(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``1 / (1 + u)``, the derivative of ``log(1 + u)``."""
        return 1 / (1 + u)

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``1 / (1 + c)``, the derivative at c, if all c exceed -1; else None."""
        return 1 / (1 + c) if (1 + c > 0).all() else None


class Entr(Entrywise):
    """Atom ``cp.entr(u)``: the entropy ``-u log(u)``, entry by entry."""

    name = "entr"
    classes = ("entr",)
    smooth = True
    convex, turn, domain = False, math.exp(-1), 0.0

    def value(self, u: Array, data: Static) -> Array:
        """Return the entropy ``-u log(u)``, entry by entry."""
        return np.asarray(entr(u))

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``-log(u) - 1``, the derivative of the entropy ``-u log(u)``."""
        return -np.log(u) - 1


class Xexp(Entrywise):
    """Atom ``cp.xexp(u)``: ``u exp(u)``, entry by entry."""

    name = "xexp"
    classes = ("xexp",)
    smooth = True
    bounded = False

    def value(self, u: Array, data: Static) -> Array:
        """Return ``u exp(u)``, entry by entry."""
        return u * np.exp(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``(1 + u) exp(u)``, the derivative of ``u exp(u)``."""
        return (1 + u) * np.exp(u)


class Abs(Entrywise):
    """Atom ``cp.abs(u)``: magnitudes, entry by entry. Its subgradient at 0 is 0."""

    name = "abs"
    classes = ("abs",)
    convex, turn, total = True, 0.0, True

    def value(self, u: Array, data: Static) -> Array:
        """Return the magnitudes of u, entry by entry."""
        return np.abs(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return the signs of u, a subgradient of the magnitude; 0 at 0."""
        return np.sign(u)

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the rule of the l1 norm, which sums the magnitudes."""
        return "norm1", (None, False), ()


class Tanh(Entrywise):
    r"""Atom ``cp.nlp.tanh(u)``: a smooth step, for margin losses ``1 - cp.nlp.tanh(X @ w)``.

    The derivative :math:`1 - t^2` of :math:`t = \tanh u` is even, and falls from 1 at 0. The second
    derivative is :math:`-2 t (1 - t^2)`, with its largest magnitude at :math:`t^2 = 1/3`.
    """

    name = "tanh"
    classes = ("tanh",)
    smooth = True
    bends, total, most_curved = (0.0,), True, 4 / (3 * math.sqrt(3))

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "cp.nlp.tanh"

    def value(self, u: Array, data: Static) -> Array:
        """Return the hyperbolic tangent of u, entry by entry."""
        return np.tanh(u)

    def derivative(self, u: Array, data: Static) -> Array:
        """Return ``1 - tanh(u)**2``, the derivative of the hyperbolic tangent."""
        return 1 - np.tanh(u) ** 2


POWER, HUBER, LOGISTIC, EXP, LOG = Power(), Huber(), Logistic(), Exp(), Log()
LOG1P, ENTR, XEXP, ABS, TANH = Log1p(), Entr(), Xexp(), Abs(), Tanh()
