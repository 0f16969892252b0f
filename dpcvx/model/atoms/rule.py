"""Base classes of rules: values and derivatives of cvxpy's atoms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..matrices import Array
from ..trailing import View, flat

Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Arrays = Sequence[Array]
Static = tuple[Any, ...]  # public constants of an atom, such as p and the axis of a norm
Slopes = Sequence[tuple[Array, Array]]
Forward = Callable[[Arrays, Any], Array]
VJP = Callable[[Arrays, Array, Array, Any, int], Array]
Layout = Callable[[Array], Array]
# Lower and upper ends of intervals, and whether nothing is known of the value.
Ends = tuple[Array, Array, NDArray[np.bool_]]
# Largest magnitude of a number in static data: squares of larger ones could overflow.
_HUGE = 1e150


@dataclass(frozen=True)
class Fitted:
    """Rule of an atom for arguments of fixed shapes, on arrays with any number of leading axes."""

    # ``forward(values, data)``: flat value of the atom, at arguments in their layouts.
    forward: Forward
    # ``vjp(values, out, g, data, k)``: flat cotangent of argument k for the cotangent g of `out`.
    vjp: VJP
    data: Any  # static data in the form that `forward` and `vjp` take
    layouts: tuple[Layout, ...]  # one per argument: maps a flat array to what both functions take


# The fitted rule of the identity function.
ITSELF = Fitted(lambda v, _: v[0], lambda v, out, g, _, k: g, None, (flat,))


class Rule(ABC):
    """Rule of an atom: its value, derivatives and bounds. Each subclass has one instance.

    Methods take static data, constants such as the exponent of a power, as `data`. `shapes` and
    `shape` are the shapes of the arguments and of the value. `last` is the last of several
    arguments, flat, or None if it is not constant.
    """

    name: ClassVar[str]  # name in errors, and in messages between machines
    classes: ClassVar[tuple[str, ...]]  # names of cvxpy's classes
    arguments: ClassVar[int | None] = 1  # number of arguments; None for any number
    has_number: ClassVar[bool] = False  # static data begin with one, such as the p of a p-norm
    # Names of the rules that equal a reduction of one entry u ("" for u itself), of two entries,
    # and of u and a constant c: the value is then c plus the named atom of u - c.
    of_one: ClassVar[str | None] = None
    of_two: ClassVar[str | None] = None
    above_constant: ClassVar[str | None] = None
    has_axis: ClassVar[bool] = False  # static data end with axis and keepdims
    by_value: ClassVar[bool] = True  # `vjp` reads the value
    # How row r of the value may depend on row r of the arguments only: entry by entry, or by a
    # reduction of the row ("line"). None if it never does.
    rows: ClassVar[Literal["entry", "line"] | None] = None
    # Kind of product of its two arguments; None if it is no product.
    product: ClassVar[Literal["entry", "matrix"] | None] = None
    linear_in: ClassVar[tuple[int, ...]] = ()  # arguments it is linear in if others are constant
    quadratic_form: ClassVar[bool] = False  # whether it is ``u' P u`` of its arguments u and P
    # True if it is convex, False if concave, None if neither or if static data decide.
    convex: ClassVar[bool | None] = None
    convex_by_numbers: ClassVar[bool] = False  # convexity depends on numbers: see `convex_with`
    # Whether its second derivative changes little near a point: it has no kinks and no flat parts.
    smooth: ClassVar[bool] = False
    total: ClassVar[bool] = False  # no value is NaN if no argument is, also at infinity

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the static data (such as p of a norm) of a cvxpy atom, or None without a rule."""
        return (atom.axis, bool(atom.keepdims)) if self.has_axis else ()

    @abstractmethod
    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the value of the atom at the values v of its arguments."""

    @abstractmethod
    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value `out`."""

    @abstractmethod
    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for arguments of the given shapes."""

    def reads_value(self, constant: Sequence[bool]) -> bool:
        """Return whether `vjp` uses the atom's value, given which arguments are constant."""
        return self.by_value

    def written(self, data: Static, last: Array | None) -> str:
        """Return the user's code for the atom, such as ``cp.sum_squares``, which cvxpy replaces."""
        return f"cp.{self.name}"

    def misfit(self, data: Static, shapes: Shapes) -> str | None:
        """Return text on invalid static data or shapes, which `read` never returns; None if valid.

        Invalid data can only come from a message between owners, not from a cvxpy model.
        """
        if self.has_number:
            p: Any = data[0] if data else None
            if not (type(p) in (int, float) and math.isfinite(p) and abs(p) < _HUGE):
                return "a number"
            if not self.takes(p):
                return "a number"
            data = data[1:]
        if not self.has_axis:
            return "static data" if data else None
        whole = len(data) == 2 and type(data[1]) is bool
        return None if whole and _is_axis(data[0], len(shapes[0])) else "an axis"

    def takes(self, number: float) -> bool:
        """Return whether this number may be the first of the atom's static data."""
        return number > 0

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return the shape of the atom's value; raise ValueError if arguments do not fit."""
        return np.broadcast_shapes(*shapes)

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the matrix that maps argument k to the atom's value at a fixed other argument.

        The result is None if copies of a dense `other` would need more than `most` entries.
        """
        raise NotImplementedError

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return B and k if ``weight @ value`` is ``u' B v``, or None.

        Here u is argument 0 and v is argument k.
        """
        return None

    def is_bilinear(self, data: Static) -> bool:
        """Return whether `bilinear` may return a matrix for suitable arguments of the atom."""
        return self.product is not None or self.quadratic_form

    def is_identity(self, data: Static) -> bool:
        """Return whether the atom's value is its argument."""
        return False

    def of_squares(self, data: Static) -> bool:
        """Return whether the atom's values are weighted sums of squares of its first argument."""
        return False

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Return whether the atom violates DCP for all constants.

        `moving` tells, per argument, whether it depends on the decision x.
        """
        return self.product is not None and all(moving)

    @property
    def bends_both_ways(self) -> bool:
        """Return whether the atom's second derivatives may be negative and positive."""
        return False

    def convex_with(self, last: Array | None) -> bool:
        """Return whether the atom is convex if its last argument has these values."""
        return True

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``|phi'(c)|`` if it bounds the curvature of a penalty that flattens out, or None.

        Here phi is the atom.

        These penalties are ``phi(c + |v|^2)``, or ``phi(c - |v|^2)`` for a convex phi; see
        `dpcvx.model.curvature`.
        """
        return None

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound on the spectral norm of the weighted atom's second derivative, or None.

        `largest` is the largest magnitude of the weights, and `last` a constant last argument.
        """
        return None

    def cut(self, numbers: Sequence[bool]) -> Sequence[bool]:
        """Return which arguments have one row for each row of the value.

        `numbers` tells which arguments are constant numbers, which have no rows.
        """
        return [not number for number in numbers]

    def by_row(self, data: Static, shapes: Shapes, shape: Shape) -> bool:
        """Return whether row r of the value depends only on row r of the arguments with rows."""
        return self.rows == "entry" and all(other == shape for other in shapes)

    def sums_rows(self, data: Static) -> bool:
        """Return whether the atom's value is a sum over the rows of its first argument."""
        return False

    def summed(self, data: Static, last: Array | None) -> tuple[str, Static, float] | None:
        """Return an entrywise rule (name and data) and a number c: the atom is c times its sum.

        The result is None if the atom is no such sum.
        """
        return None

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the rule of the sum of this atom's values, or None: the inverse of `summed`.

        The rule is given by its name, its data, and numbers as further arguments.
        """
        return None

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of the atom's values, and which arguments may leave its domain.

        Each value depends on one entry of each argument, in ``[lo, hi]``. Rules of other atoms
        return None.
        """
        return None

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of derivatives by each argument, for entries in ``[lo, hi]``.

        Each derivative depends on one entry of each argument. A reduction returns intervals for the
        first argument only, and rules of other atoms return None.
        """
        return None

    def weights(self, entries: NDArray[np.intp], data: Static) -> tuple[float, Array] | None:
        """Return bounds on a reduction's derivatives by the entries that it reduces together.

        `entries` are numbers of entries that are reduced together. The first result is the smallest
        derivative; the largest one is 1. The array bounds the l1 norm of the derivatives, for each
        number of entries. The result is None if there is no bound, or `slopes` gives tighter ones.
        """
        return None

    def has_edge(self, data: Static) -> bool:
        """Return whether the atom's derivatives are unbounded near the boundary of its domain."""
        return False

    def __reduce__(self) -> str:
        return self.name.upper()

    def __repr__(self) -> str:
        return self.name


def _is_axis(axis: object, dimensions: int) -> bool:
    if axis is None:
        return True
    axes = axis if isinstance(axis, tuple) else (axis,)
    whole = [a for a in axes if type(a) is int and -dimensions <= a < dimensions]
    if not axes or len(whole) < len(axes):
        return False
    return len({a % dimensions for a in whole}) == len(axes)


class Broadcasting(Rule):
    """Rule of an atom that works entry by entry on arguments whose shapes broadcast.

    The rule's `vjp` returns cotangents of the value's shape. `fitted` sums them over the axes that
    repeat an argument.
    """

    rows = "entry"

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for these shapes, on flat arrays if no argument has to be broadcast."""
        vjp = self.vjp
        if all(given == shape or math.prod(given) == 1 for given in shapes):
            numbers = tuple(math.prod(given) < math.prod(shape) for given in shapes)

            def summed(v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
                part = vjp(v, out, g, data, k)
                return part.sum(axis=-1, keepdims=True) if numbers[k] else part

            return Fitted(self.forward, summed, data, (flat,) * len(shapes))
        wide = [(1,) * (len(shape) - len(given)) + given for given in shapes]
        whole, views = View(shape), tuple(map(View, wide))
        repeated = [
            tuple(i - len(shape) for i, n in enumerate(given) if n == 1 and shape[i] > 1)
            for given in wide
        ]

        def unrepeated(v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
            part = vjp(v, whole(out), whole(g), data, k)
            return views[k].flat(part.sum(axis=repeated[k], keepdims=True) if repeated[k] else part)

        return Fitted(lambda v, d: whole.flat(self.forward(v, d)), unrepeated, data, views)
