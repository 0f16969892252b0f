"""Atoms that reduce an array over some or all axes, such as sums of squares and norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..matrices import Array, diagonal
from ..trailing import View, flat
from .rule import Arrays, Fitted, Rule, Shape, Shapes, Slopes, Static


class Over(NamedTuple):
    """Static data of a reduction: axes, the atom's number, and the form of its value."""

    axis: int | tuple[int, ...]  # axes to reduce, counted from the end
    every: int | tuple[int, ...]  # all axes of the argument, leading ones apart
    number: Any  # number of the atom, such as the p of a p-norm
    single: bool  # whether the value is one number, not an array with reduced axes


class Reduction(Rule):
    """Rule of an atom that reduces its first argument over some or all axes.

    `forward` and `vjp` take an `Over` in place of the static data. Values keep reduced axes with
    length 1.
    """

    has_axis = True

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return the value's shape: the first argument's without the reduced axes."""
        first = shapes[0]
        if not self.has_axis:
            return ()
        axis, keepdims = data[-2:]
        gone = range(len(first)) if axis is None else _axes(axis, len(first))
        if keepdims:
            reduced = tuple(1 if a in gone else n for a, n in enumerate(first))
        else:
            reduced = tuple(n for a, n in enumerate(first) if a not in gone)
        # A second argument is a divisor, and may have axes of its own.
        return np.broadcast_shapes(reduced, *shapes[1:])

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for arguments of these shapes, on flat arrays if all axes are reduced."""
        number = data[0] if self.has_number else None
        axis, keeps = data[-2:] if self.has_axis else (None, False)
        first = shapes[0]
        gone = range(len(first)) if axis is None else _axes(axis, len(first))
        if len(gone) == len(first):
            over = Over(-1, -1, number, not keeps)
            return Fitted(self.forward, self.vjp, over, (flat,) * len(shapes))
        view, scalar = View(first), View((1,) * len(first))
        reduced = View(tuple(1 if i in gone else n for i, n in enumerate(first)))
        places = tuple(i - len(first) for i in gone)
        every = tuple(range(-len(first), 0))
        over = Over(places[0] if len(places) == 1 else places, every, number, False)
        views = (view, *(scalar for _ in shapes[1:]))
        size, vjp = math.prod(reduced.shape), self.vjp

        def backward(v: Arrays, out: Array, g: Array, over: Any, k: int) -> Array:
            # A rule that does not read the value gets a placeholder.
            value = reduced(out) if out.shape[-1] == size else out
            return views[k].flat(vjp(v, value, reduced(g), over, k))

        return Fitted(lambda v, d: reduced.flat(self.forward(v, d)), backward, over, views)

    def by_row(self, data: Static, shapes: Shapes, shape: Shape) -> bool:
        """Return whether the atom reduces each row of a matrix to one value."""
        along = self.rows == "line" and len(shapes) == 1 and len(shapes[0]) == 2
        return along and data[-2] in (1, -1, (1,), (-1,))


def _axes(axis: Any, dimensions: int) -> list[int]:
    return sorted(a % max(dimensions, 1) for a in np.atleast_1d(axis).tolist())


def _first(hit: NDArray[np.bool_], axis: int | tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the flags `hit` with only the first True along the given axes.

    Entries are counted column by column.
    """
    if isinstance(axis, int):
        return hit & (np.cumsum(hit, axis=axis) == 1)
    ends = range(-1, -len(axis) - 1, -1)
    lines = np.moveaxis(hit, axis, ends)
    entries = lines.reshape(*lines.shape[: -len(axis)], -1)
    only = entries & (np.cumsum(entries, axis=-1) == 1)
    return np.moveaxis(only.reshape(lines.shape), ends, axis)


class QuadOverLin(Reduction):
    """Atom ``cp.quad_over_lin(u, c)``: sum of squares of u over c; ``cp.sum_squares`` for c = 1."""

    name = "quad_over_lin"
    classes = ("quad_over_lin",)
    smooth = True
    arguments = 2
    rows = "line"
    convex_by_numbers = True

    def reads_value(self, constant: Sequence[bool]) -> bool:
        """Return whether the divisor varies: only its cotangent reads the atom's value."""
        return not constant[1]

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return f"cp.{self.name}" if last is None or (last != 1).any() else "cp.sum_squares"

    def misfit(self, data: Static, shapes: Shapes) -> str | None:
        """Return text on faulty static data or a divisor of several numbers; None if fine."""
        return super().misfit(data, shapes) or (
            None if math.prod(shapes[1]) == 1 else "a denominator"
        )

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return sums of squares of the first argument, over the divisor."""
        return np.asarray(np.sum(v[0] ** 2, axis=data.axis, keepdims=True)) / v[1]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        if k == 1:
            return np.asarray(np.sum(-out * g / v[1], axis=data.every, keepdims=True))
        return 2.0 * v[0] * (g / v[1])

    def sums_rows(self, data: Static) -> bool:
        """Return whether the atom sums squares over all entries."""
        return data[0] is None

    def summed(self, data: Static, last: Array | None) -> tuple[str, Static, float] | None:
        """Return the rule of squares, if a positive constant divides the sum over all entries.

        Also return that rule's static data and the factor of the sum.
        """
        whole = data[0] is None and last is not None and last.item() > 0
        return ("power", (2,), 1 / last.item()) if whole and last is not None else None

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of the derivatives: twice the entries over a positive divisor."""
        return [(2 * lo[0] / lo[1].item(), 2 * hi[0] / lo[1].item())]

    def is_bilinear(self, data: Static) -> bool:
        """Return True: with a constant divisor, the atom is a quadratic form of its argument."""
        return True

    def of_squares(self, data: Static) -> bool:
        """Return True: the atom is a sum of squares over a divisor."""
        return True

    def convex_with(self, last: Array | None) -> bool:
        """Return whether the divisor is a positive constant."""
        return last is not None and last.item() > 0

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the weights of the squares as a diagonal matrix, if the divisor is constant."""
        if last is None:
            return None
        axis, keepdims = data
        scale = (weight / last.item()).reshape(shape, order="F")
        wide = scale if axis is None or keepdims else np.expand_dims(scale, axis)
        return diagonal(np.ravel(np.broadcast_to(wide, shapes[0]), order="F")), 0

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the weighted second derivative for a positive constant divisor.

        Return None for other divisors.
        """
        return 2 * largest / last if last is not None and last > 0 else None


class LogSumExp(Reduction):
    """Atom ``cp.log_sum_exp(u)``: the logarithm of the sum of ``exp(u)``."""

    name = "log_sum_exp"
    classes = ("log_sum_exp",)
    smooth = True
    rows = "line"
    of_one, above_constant = "", "logistic"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the logarithms of sums of ``exp(u)``, without overflow."""
        top = np.max(v[0], axis=data.axis, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        return np.log(np.sum(np.exp(v[0] - top), axis=data.axis, keepdims=True)) + top

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return np.exp(v[0] - out) * g

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the weighted second derivative: half the largest weight."""
        return 0.5 * largest

    def weights(self, entries: NDArray[np.intp], data: Static) -> tuple[float, Array] | None:
        """Return bounds of the derivatives, softmax weights: from 0 to 1, with sum 1."""
        return 0.0, np.ones(entries.size)


class Max(Reduction):
    """Atom ``cp.max``: the largest entry. Its subgradient is 1 at the first such entry, else 0."""

    name = "max"
    classes = ("max",)
    rows = "line"
    of_one, of_two = "", "maximum"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the largest entries along the reduced axes."""
        return np.max(v[0], axis=data.axis, keepdims=True)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent: g at the first entry that attains the value, else 0."""
        return _first(v[0] == out, data.axis) * g

    def weights(self, entries: NDArray[np.intp], data: Static) -> tuple[float, Array] | None:
        """Return bounds of the subgradient, a unit vector: entries 0 or 1, with sum 1."""
        return 0.0, np.ones(entries.size)


class Min(Max):
    """Atom ``cp.min``: the smallest entry. Its subgradient is 1 at the first such entry, else 0."""

    name = "min"
    classes = ("min",)
    of_two = "minimum"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the smallest entries along the reduced axes."""
        return np.min(v[0], axis=data.axis, keepdims=True)


class Norm1(Reduction):
    """Atom ``cp.norm1``: the sum of magnitudes. Its subgradient at 0 is 0."""

    name = "norm1"
    classes = ("norm1",)
    by_value = False
    of_one = "abs"
    rows = "line"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return sums of magnitudes along the reduced axes."""
        return np.sum(np.abs(v[0]), axis=data.axis, keepdims=True)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return np.sign(v[0]) * g

    def sums_rows(self, data: Static) -> bool:
        """Return whether the atom sums magnitudes over all entries."""
        return data[0] is None

    def summed(self, data: Static, last: Array | None) -> tuple[str, Static, float] | None:
        """Return the rule of magnitudes, if the atom sums over all entries; else None."""
        return ("abs", (), 1.0) if data[0] is None else None

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of the derivatives: the sign of each entry of the argument."""
        return [(np.where(lo[0] > 0, 1.0, -1.0), np.where(hi[0] < 0, -1.0, 1.0))]


class NormInf(Reduction):
    """Atom ``cp.norm_inf``: the largest magnitude. Its subgradient reads the first such entry."""

    name = "norm_inf"
    classes = ("norm_inf",)
    of_one = "abs"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the largest magnitudes along the reduced axes."""
        return np.max(np.abs(v[0]), axis=data.axis, keepdims=True)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent: nonzero only at the first entry with the largest magnitude."""
        return _first(np.abs(v[0]) == out, data.axis) * np.sign(v[0]) * g


class Pnorm(Reduction):
    """Atoms ``cp.norm`` and ``cp.pnorm``: the lp norm. Its subgradient at the origin is 0."""

    name = "pnorm"
    classes = ("Pnorm", "PnormApprox")
    has_number = True
    rows = "line"
    of_one = "abs"

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return p, axis and keepdims of a ``cp.norm``; None if there is no rule for it."""
        return (float(atom.p), atom.axis, bool(atom.keepdims))

    def takes(self, number: float) -> bool:
        """Return whether a number is the p of a norm: at least 1."""
        return number >= 1

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "cp.norm" if data[0] == 2 else "cp.pnorm"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return lp norms along the reduced axes."""
        total = np.sum(np.abs(v[0]) ** data.number, axis=data.axis, keepdims=True)
        if not data.single:
            return total ** (1 / data.number)
        # numpy takes powers of numbers from the C library, and powers of arrays from its own code.
        # They differ by an ulp, and a seeded run has to be reproducible.
        powers = [number ** (1 / data.number) for number in total.flat]
        return np.array(powers).reshape(total.shape)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        ratio = np.divide(np.abs(v[0]), out, out=np.zeros_like(v[0]), where=out > 0)
        return np.sign(v[0]) * ratio ** (data.number - 1) * g

    def weights(self, entries: NDArray[np.intp], data: Static) -> tuple[float, Array] | None:
        """Return bounds of the l2 norm's derivatives, a vector of length 1; None for other p."""
        return (-1.0, np.sqrt(entries)) if data[0] == 2 else None


class SumLargest(Reduction):
    """Atom ``cp.sum_largest(u, k)``: sum of the k largest entries; ties go to the first ones."""

    name = "sum_largest"
    classes = ("sum_largest",)
    has_number = True
    has_axis = False

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return k of ``cp.sum_largest``, or None if it compares entries along an axis."""
        return (float(atom.k),) if getattr(atom, "axis", None) is None else None

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return sums of the k largest entries."""
        return np.sum(_largest(v[0], data.number) * v[0], axis=-1, keepdims=True)

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return _largest(v[0], data.number) * g


def _largest(x: Array, k: float) -> Array:
    """Return the weights of entries in the sum of the k largest.

    They are 1 for the floor(k) largest entries, and the fraction of k for the next.
    """
    order = np.argsort(-x, kind="stable", axis=-1)
    weights = np.broadcast_to(np.clip(k - np.arange(x.shape[-1]), 0.0, 1.0), x.shape)
    out = np.empty(x.shape)
    np.put_along_axis(out, order, weights, axis=-1)
    return out


QUAD_OVER_LIN, LOG_SUM_EXP, MAX, MIN = QuadOverLin(), LogSumExp(), Max(), Min()
NORM1, NORM_INF, PNORM, SUM_LARGEST = Norm1(), NormInf(), Pnorm(), SumLargest()
