"""What the package knows of one kind of atom: a class each, and what these have in common."""

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
Forward = Callable[[Sequence[Array], Any], Array]
VJP = Callable[[Sequence[Array], Array, Array, Any, int], Array]
Layout = Callable[[Array], Array]
# Lower and upper ends of intervals, and where they are lost.
Ends = tuple[Array, Array, NDArray[np.bool_]]
# Static numbers beyond this have no square.
_HUGE = 1e150


@dataclass(frozen=True)
class Fitted:
    """A rule for arguments of fixed shapes, on arrays with any number of leading axes.

    Attributes
    ----------
    forward : callable
        ``forward(values, data)``: flat value of the atom, at arguments in their layouts.
    vjp : callable
        ``vjp(values, out, g, data, k)``: flat cotangent of argument k, for the flat cotangent ``g``
        of the flat value ``out``.
    data : Any
        Static data as both take them.
    layouts : tuple of callable
        One per argument: of a flat array, what `forward` and `vjp` take.
    """

    forward: Forward
    vjp: VJP
    data: Any
    layouts: tuple[Layout, ...]


ITSELF = Fitted(lambda v, _: v[0], lambda v, out, g, _, k: g, None, (flat,))


class Rule(ABC):
    """One kind of atom. Each has one instance, a constant named like it.

    Attributes
    ----------
    name : str
        In messages, and on the wire.
    classes : tuple of str
        Classes of cvxpy that are this atom.
    arguments : int or None
        How many it takes; None for any number.
    has_number : bool
        Whether its static data begin with a number, such as the p of a p-norm.
    has_axis : bool
        Whether they end with an axis and whether reduced axes are kept.
    by_value : bool
        Whether `vjp` looks at the value; if not, a gradient may do without it.
    rows : {"entry", "line"} or None
        How row r of the value may read row r of the arguments alone: entry by entry, or reducing
        the rest of the row.
    product : {"entry", "matrix"} or None
        Whether it multiplies its two arguments: entry by entry, or as matrices.
    linear_in : tuple of int
        Arguments that it is linear in if the other one is constant; see `linear_map`.
    quadratic_form : bool
        Whether it is ``u' P u`` of its arguments u and P.
    convex : bool or None
        Whether its derivative rises (True) or falls (False); None if it does neither, or data tell.
    convex_by_numbers : bool
        Whether numbers of the last argument decide whether it is convex; see `convex_with`.
    total : bool
        Whether its values are numbers wherever its arguments are, also at infinity.
    """

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]]
    arguments: ClassVar[int | None] = 1
    has_number: ClassVar[bool] = False
    has_axis: ClassVar[bool] = False
    by_value: ClassVar[bool] = True
    rows: ClassVar[Literal["entry", "line"] | None] = None
    product: ClassVar[Literal["entry", "matrix"] | None] = None
    linear_in: ClassVar[tuple[int, ...]] = ()
    quadratic_form: ClassVar[bool] = False
    convex: ClassVar[bool | None] = None
    convex_by_numbers: ClassVar[bool] = False
    total: ClassVar[bool] = False

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return the static data of a cvxpy atom, or None if there is no rule for it."""
        return (atom.axis, bool(atom.keepdims)) if self.has_axis else ()

    @abstractmethod
    def forward(self, v: Sequence[Array], data: Any) -> Array:
        """Return the value of the atom at the values of its arguments."""

    @abstractmethod
    def vjp(self, v: Sequence[Array], out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k for the cotangent g of the value `out`."""

    @abstractmethod
    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule for arguments of these shapes.

        Parameters
        ----------
        data : tuple
            Static data of the atom.
        shapes : sequence of tuple of int
            Shapes of the arguments.
        shape : tuple of int
            Shape of the value.
        """

    def reads_value(self, constant: Sequence[bool]) -> bool:
        """Whether derivatives are made of the value, where some arguments are constant."""
        return self.by_value

    def written(self, data: tuple[Any, ...], last: Array | None) -> str:
        """Return how users write it: cvxpy turns ``cp.sum_squares`` into other atoms.

        Parameters
        ----------
        data : tuple
        last : ndarray or None
            The last argument of several, where it is constant.
        """
        return f"cp.{self.name}"

    def misfit(self, data: tuple[Any, ...], shapes: Sequence[Shape]) -> str | None:
        """Return what no compiler makes of its static data and shapes of arguments, if anything."""
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
        """Whether its static data may begin with this number."""
        return number > 0

    def shape(self, shapes: Sequence[Shape], data: tuple[Any, ...]) -> Shape:
        """Return the value's shape, without the value.

        Raises
        ------
        ValueError
            If the arguments do not fit each other.
        """
        return np.broadcast_shapes(*shapes)

    def linear_map(
        self, k: int, other: Any, shapes: Sequence[Shape], most: float = math.inf
    ) -> Any:
        """Return the matrix that maps argument k, one of `linear_in`, to the value.

        Parameters
        ----------
        k : int
        other : ndarray or sparse matrix
            Value of the other argument, in its shape.
        shapes : sequence of tuple of int
            Of the arguments.
        most : float
            None is returned if it would repeat a dense constant in more entries.
        """
        raise NotImplementedError

    def bilinear(
        self,
        weight: Array,
        data: tuple[Any, ...],
        shapes: Sequence[Shape],
        last: Array | None,
        shape: Shape,
    ) -> tuple[sp.csr_array, int] | None:
        """Return B and k, if the weighted value is ``u' B v`` for the arguments 0 and k.

        Parameters
        ----------
        weight : ndarray
        data : tuple
        shapes : sequence of tuple of int
            Of the arguments.
        last : ndarray or None
            The last argument of several, where it is constant.
        shape : tuple of int
            Of the value.
        """
        return None

    def is_bilinear(self, data: tuple[Any, ...]) -> bool:
        """Whether it may be, with suitable arguments."""
        return self.product is not None or self.quadratic_form

    def of_squares(self, data: tuple[Any, ...]) -> bool:
        """Whether it is made of squares of the first argument, each with a weight."""
        return False

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Whether cvxpy takes it neither for convex nor for concave in x, whatever its constants.

        Parameters
        ----------
        moving : sequence of bool
            Which arguments depend on x.
        """
        return self.product is not None and all(moving)

    @property
    def bends_both_ways(self) -> bool:
        """Whether its second derivatives may have both signs; `curvature` bounds either."""
        return False

    def convex_with(self, last: Array | None) -> bool:
        """Whether it is convex, as cvxpy takes it to be, with the numbers of its last argument.

        Parameters
        ----------
        last : ndarray or None
            Where it is constant.
        """
        return True

    def slope_above(self, c: Array, data: tuple[Any, ...]) -> Array | None:
        """Return ``|phi'(c)|`` if that bounds the curvature of penalties that level off, or None.

        These are ``phi(c + |v|^2)``, or ``phi(c - |v|^2)`` if phi is convex; see
        `dpcvx.model.curvature`.
        """
        return None

    def curvature(self, largest: float, data: tuple[Any, ...], last: float | None) -> float | None:
        """Return a bound of its second derivative, as a multiple of the identity; None if none is.

        Parameters
        ----------
        largest : float
            Magnitude of the weight.
        data : tuple
        last : float or None
            The second argument, where it is a constant number.
        """
        return None

    def cut(self, numbers: Sequence[bool]) -> Sequence[bool]:
        """Return which arguments are cut where the value is cut into rows.

        Parameters
        ----------
        numbers : sequence of bool
            Which arguments are constant numbers.
        """
        return [not number for number in numbers]

    def by_row(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> bool:
        """Whether row r of the value reads row r alone of arguments that are cut.

        Parameters
        ----------
        data : tuple
        shapes : sequence of tuple of int
            Of the arguments that are cut.
        shape : tuple of int
            Of the value.
        """
        return self.rows == "entry" and all(own == shape for own in shapes)

    def sums_rows(self, data: tuple[Any, ...]) -> bool:
        """Whether it is a sum over the rows of its first argument."""
        return False

    def values(
        self, lo: Sequence[Array], hi: Sequence[Array], data: tuple[Any, ...]
    ) -> Ends | None:
        """Return intervals of values that read one entry of each argument each; None of others.

        Also where arguments may lie outside the domain.

        Parameters
        ----------
        lo, hi : sequence of ndarray
            Of the arguments' entries.
        data : tuple
        """
        return None

    def slopes(
        self, lo: Sequence[Array], hi: Sequence[Array], data: tuple[Any, ...]
    ) -> Sequence[tuple[Array, Array]] | None:
        """Return intervals of derivatives by each argument that depend on such entries alone.

        Of a reduction by the first argument only. None for others. Parameters as of `values`.
        """
        return None

    def weights(
        self, entries: NDArray[np.intp], data: tuple[Any, ...]
    ) -> tuple[float, Array] | None:
        """Return the least derivative by entries of a group, of which the largest is 1.

        Also bounds of the l1 norms of derivatives of groups with so many entries. None where
        contributions of records are not followed through the atom, or `slopes` tell more.
        """
        return None

    def may_leave(self, lo: Array, data: tuple[Any, ...]) -> bool:
        """Whether `slopes` are unknown because arguments from `lo` on may leave the domain."""
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

    def fitted(self, data: tuple[Any, ...], shapes: Sequence[Shape], shape: Shape) -> Fitted:
        """Return the rule on flat arrays if arguments are numbers or of the value's shape."""
        vjp = self.vjp
        if all(own == shape or math.prod(own) == 1 for own in shapes):
            numbers = tuple(math.prod(own) < math.prod(shape) for own in shapes)

            def summed(v: Sequence[Array], out: Array, g: Array, data: Any, k: int) -> Array:
                part = vjp(v, out, g, data, k)
                return part.sum(axis=-1, keepdims=True) if numbers[k] else part

            return Fitted(self.forward, summed, data, (flat,) * len(shapes))
        wide = [(1,) * (len(shape) - len(own)) + own for own in shapes]
        whole, views = View(shape), tuple(map(View, wide))
        repeated = [
            tuple(i - len(shape) for i, n in enumerate(own) if n == 1 and shape[i] > 1)
            for own in wide
        ]

        def unrepeated(v: Sequence[Array], out: Array, g: Array, data: Any, k: int) -> Array:
            part = vjp(v, whole(out), whole(g), data, k)
            return views[k].flat(part.sum(axis=repeated[k], keepdims=True) if repeated[k] else part)

        return Fitted(lambda v, d: whole.flat(self.forward(v, d)), unrepeated, data, views)
