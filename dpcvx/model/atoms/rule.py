"""Rules of atoms: a class for each kind of atom, and the functions that they share."""

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
Static = tuple[Any, ...]  # data of an atom
Slopes = Sequence[tuple[Array, Array]]
Forward = Callable[[Arrays, Any], Array]
VJP = Callable[[Arrays, Array, Array, Any, int], Array]
Layout = Callable[[Array], Array]
# Lower and upper ends of intervals, and where they are lost.
Ends = tuple[Array, Array, NDArray[np.bool_]]
# Static numbers beyond this have no square.
_HUGE = 1e150


@dataclass(frozen=True)
class Fitted:
    """A rule for arguments of fixed shapes, on arrays with any number of leading axes."""

    # ``forward(values, data)``: flat value of the atom, at arguments in their layouts.
    forward: Forward
    # ``vjp(values, out, g, data, k)``: flat cotangent of argument k, for that of the value `out`.
    vjp: VJP
    data: Any  # static data as both take them
    layouts: tuple[Layout, ...]  # one per argument: of a flat array, what both take


# The rule that returns its argument.
ITSELF = Fitted(lambda v, _: v[0], lambda v, out, g, _, k: g, None, (flat,))


class Rule(ABC):
    """One kind of atom. Each has one instance, a constant named like it.

    Methods take static data as `data`, shapes of the arguments and of the value as `shapes` and
    `shape`, and as `last` the flat last argument of several, or None where that is not constant.
    """

    name: ClassVar[str]  # in messages, and on the wire
    classes: ClassVar[tuple[str, ...]]  # of cvxpy
    arguments: ClassVar[int | None] = 1  # how many; None for any number
    has_number: ClassVar[bool] = False  # static data begin with one, such as the p of a p-norm
    # Names of the rules of one entry (empty for the entry itself), of one and a constant, and of
    # one as the difference to a constant, by which the value is larger.
    of_one: ClassVar[str | None] = None
    of_two: ClassVar[str | None] = None
    above_constant: ClassVar[str | None] = None
    has_axis: ClassVar[bool] = False  # they end with an axis and whether reduced axes are kept
    by_value: ClassVar[bool] = True  # `vjp` looks at the value
    # How row r of the value may read row r of the arguments alone: entry by entry, or reducing the
    # rest of the row.
    rows: ClassVar[Literal["entry", "line"] | None] = None
    # Whether it multiplies its two arguments: entry by entry, or as matrices.
    product: ClassVar[Literal["entry", "matrix"] | None] = None
    linear_in: ClassVar[tuple[int, ...]] = ()  # arguments, where others are constant
    quadratic_form: ClassVar[bool] = False  # ``u' P u`` of its arguments u and P
    # Whether its derivative rises (True) or falls (False); None if neither, or if data decide.
    convex: ClassVar[bool | None] = None
    convex_by_numbers: ClassVar[bool] = False  # `convex_with` decides
    # Whether its second derivative at one point tells of those nearby: it has no kinks and does not
    # level off.
    smooth: ClassVar[bool] = False
    total: ClassVar[bool] = False  # values are numbers wherever arguments are, also at infinity

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the static data of a cvxpy atom, or None if there is no rule for it."""
        return (atom.axis, bool(atom.keepdims)) if self.has_axis else ()

    @abstractmethod
    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the value of the atom at the values of its arguments."""

    @abstractmethod
    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k for the cotangent g of the value `out`."""

    @abstractmethod
    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for arguments of these shapes."""

    def reads_value(self, constant: Sequence[bool]) -> bool:
        """Return whether derivatives are made of the value, where some arguments are constant."""
        return self.by_value

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom as users write it: cvxpy turns ``cp.sum_squares`` into other atoms."""
        return f"cp.{self.name}"

    def misfit(self, data: Static, shapes: Shapes) -> str | None:
        """Return the name of static data or shapes that no compiler makes, if there are any."""
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
        """Return whether its static data may begin with this number."""
        return number > 0

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return the value's shape; raise ValueError if arguments do not fit each other."""
        return np.broadcast_shapes(*shapes)

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the matrix that maps argument k of `linear_in` to the value, the other one fixed.

        None if a dense one would be repeated in more than `most` entries.
        """
        raise NotImplementedError

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return B and k, if the weighted value is ``u' B v`` for the arguments 0 and k."""
        return None

    def is_bilinear(self, data: Static) -> bool:
        """Return whether it may be, with suitable arguments."""
        return self.product is not None or self.quadratic_form

    def of_squares(self, data: Static) -> bool:
        """Return whether it is made of squares of the first argument, each with a weight."""
        return False

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Return whether cvxpy finds it neither convex nor concave in x, for all constants."""
        return self.product is not None and all(moving)

    @property
    def bends_both_ways(self) -> bool:
        """Return whether its second derivatives may have both signs; `curvature` bounds either."""
        return False

    def convex_with(self, last: Array | None) -> bool:
        """Return whether cvxpy takes it for convex with the numbers of its last argument."""
        return True

    def slope_above(self, c: Array, data: Static) -> Array | None:
        """Return ``|phi'(c)|`` if that bounds the curvature of penalties that level off, or None.

        These are ``phi(c + |v|^2)``, or ``phi(c - |v|^2)`` if phi is convex; see
        `dpcvx.model.curvature`.
        """
        return None

    def curvature(self, largest: float, data: Static, last: float | None) -> float | None:
        """Return a bound of the second derivative, as a multiple of the identity, or None.

        `largest` is the magnitude of the weight, and `last` a number.
        """
        return None

    def cut(self, numbers: Sequence[bool]) -> Sequence[bool]:
        """Return which arguments are cut with the value into rows; some are constant numbers."""
        return [not number for number in numbers]

    def by_row(self, data: Static, shapes: Shapes, shape: Shape) -> bool:
        """Return whether row r of the value depends on row r alone of arguments split into rows."""
        return self.rows == "entry" and all(other == shape for other in shapes)

    def sums_rows(self, data: Static) -> bool:
        """Return whether it is a sum over the rows of its first argument."""
        return False

    def summed(self, data: Static, last: Array | None) -> tuple[str, Static, float] | None:
        """Return a rule's name and data, and the multiple that it is of the sum of its values."""
        return None

    def sum_of(self, data: Static) -> tuple[str, Static, Sequence[float]] | None:
        """Return the name of the rule of their sum, its data, and numbers as further arguments."""
        return None

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of values that read one entry of each argument each; None of others.

        Also where arguments may lie outside the domain.
        """
        return None

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of derivatives by each argument that depend on such entries alone.

        A reduction returns them for the first argument only, and other rules return None.
        """
        return None

    def weights(self, entries: NDArray[np.intp], data: Static) -> tuple[float, Array] | None:
        """Return the least derivative by entries of a group whose largest derivative is 1.

        Also bounds of the l1 norms of derivatives of groups with so many entries. None where
        contributions of records are not followed through the atom, or `slopes` tell more.
        """
        return None

    def has_edge(self, data: Static) -> bool:
        """Return whether derivatives grow without bound towards the end of its domain."""
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
    """An atom that works entry by entry on arguments of shapes that broadcast.

    Its `vjp` has the shape of the value; what an argument was repeated for is summed up here.
    """

    rows = "entry"

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule on flat arrays if arguments are numbers or of the value's shape."""
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
