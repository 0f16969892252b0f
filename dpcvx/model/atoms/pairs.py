"""Atoms of two or more arguments: entry by entry, the matrix product, and quadratic forms."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import kl_div, rel_entr

from ..matrices import Array, as_array, diagonal, is_blank
from ..trailing import View, flat, product, product_with_vectors, swapped
from .rule import Arrays, Broadcasting, Ends, Fitted, Rule, Shape, Shapes, Slopes, Static


def interval_product(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array]:
    """Return the ends of products of the intervals [a, b] and [c, d].

    An end is infinite if 0 meets infinity.
    """
    with np.errstate(all="ignore"):
        corners = np.stack([s * t for s in (a, b) for t in (c, d)])
    lost = np.isnan(corners).any(axis=0)
    low, high = corners.min(axis=0, initial=np.inf), corners.max(axis=0, initial=-np.inf)
    return np.where(lost, -np.inf, low), np.where(lost, np.inf, high)


class Multiply(Broadcasting):
    """Atom ``cp.multiply(u, v)``: the product, entry by entry."""

    name = "multiply"
    classes = ("multiply",)
    smooth = True
    arguments = 2
    product = "entry"
    linear_in = (0, 1)

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the products of both arguments, entry by entry."""
        return v[0] * v[1]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return g * v[1 - k]

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the factor `other` as a diagonal matrix, which maps factor k to the product."""
        return _diagonal(other, shapes)

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of the products of arguments in [lo, hi]."""
        low, high = interval_product(lo[0], hi[0], lo[1], hi[1])
        return low, high, np.zeros(low.shape, dtype=bool)

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the value's weights as a diagonal matrix, if both arguments have one shape."""
        return (diagonal(weight), 1) if shapes[0] == shapes[1] else None


class Division(Broadcasting):
    """Atom ``u / v``: the quotient, entry by entry."""

    name = "division"
    classes = ("DivExpression",)
    arguments = 2
    linear_in = (0,)

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "/"

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the quotients of both arguments, entry by entry."""
        return v[0] / v[1]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return g / v[1] if k == 0 else -g * out / v[1]

    def beyond_dcp(self, moving: Sequence[bool]) -> bool:
        """Return whether the denominator depends on variables, which violates DCP."""
        return moving[1]

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the diagonal matrix that divides the numerator by the denominator `other`.

        Only the numerator has such a matrix: k is 0.
        """
        return _diagonal(1.0 / as_array(other), shapes)


def _diagonal(values: Any, shapes: Shapes) -> sp.csr_array:
    size = math.prod(np.broadcast_shapes(*shapes))
    return diagonal(np.ravel(as_array(values), order="F"), size)


class ChoosingAtom(Broadcasting):
    """Rule of an atom that chooses one of its arguments, entry by entry, such as the maximum.

    Its subgradient is 1 for the first argument that attains the value, and 0 for all others.
    """

    arguments = None

    @abstractmethod
    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the entry that the atom chooses among arguments of one shape, entry by entry."""

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the entries that the atom chooses among its arguments."""
        return self.chosen(np.stack(np.broadcast_arrays(*v)))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return argument k's cotangent: g where it is the first to attain the value, else 0."""
        hit = np.stack(np.broadcast_arrays(*v)) == out
        return (hit[k] & ~hit[:k].any(axis=0) if k else hit[0]) * g

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of the atom's values: the chosen ends of the arguments' intervals."""
        return self.chosen(lo), self.chosen(hi), np.zeros(lo[0].shape, dtype=bool)

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return the interval from 0 to 1 for the derivative by every argument."""
        return [(np.zeros(low.size), np.ones(low.size)) for low in lo]


class Maximum(ChoosingAtom):
    """Atoms ``cp.maximum`` and ``cp.pos``: the largest argument, entry by entry."""

    name = "maximum"
    classes = ("maximum",)

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "cp.maximum" if last is None or last.any() else "cp.pos"

    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the largest of the arguments, entry by entry."""
        return np.max(values, axis=0)


class Minimum(ChoosingAtom):
    """Atom ``cp.minimum``: the smallest argument; ``cp.neg(u)`` is ``-cp.minimum(u, 0)``."""

    name = "minimum"
    classes = ("minimum",)

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "cp.minimum" if last is None or last.any() else "cp.neg"

    def chosen(self, values: Sequence[Array] | Array) -> Array:
        """Return the smallest of the arguments, entry by entry."""
        return np.min(values, axis=0)


class Divergence(Broadcasting):
    r"""Rule of an atom of positive x and y that contains :math:`x \log(x / y)`.

    The atom's derivative by x grows in x and falls in y. Its derivative by y falls in x and grows
    in y.
    """

    smooth = True
    arguments = 2

    @abstractmethod
    def derivatives(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the derivatives of the divergence by x and by y, entry by entry."""

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        return g * self.derivatives(*v)[k]

    @abstractmethod
    def least(self, lo: Arrays, hi: Arrays) -> Array:
        """Return the smallest values of the divergence for arguments in ``[lo, hi]``."""

    def has_edge(self, data: Static) -> bool:
        """Return True: the domain of the divergence ends at 0."""
        return True

    def values(self, lo: Arrays, hi: Arrays, data: Static) -> Ends | None:
        """Return intervals of the divergence, which is convex: its maximum is at a corner."""
        with np.errstate(all="ignore"):
            corners = [self.forward([x, y], data) for x in (lo[0], hi[0]) for y in (lo[1], hi[1])]
            low, high = self.least(lo, hi), np.max(corners, axis=0)
        lost = (lo[0] < 0) | (lo[1] <= 0)
        return np.where(np.isnan(low), -np.inf, low), high, lost | np.isnan(high)

    def slopes(self, lo: Arrays, hi: Arrays, data: Static) -> Slopes | None:
        """Return intervals of the derivatives by x and by y, infinite where y may be 0."""
        with np.errstate(all="ignore"):
            first = self.derivatives(lo[0], hi[1]), self.derivatives(hi[0], lo[1])
        lost = (lo[0] < 0) | (lo[1] <= 0)
        ends = (first[0][0], first[1][0]), (first[1][1], first[0][1])
        return [
            (
                np.where(lost | np.isnan(low), -np.inf, low),
                np.where(lost | np.isnan(high), np.inf, high),
            )
            for low, high in ends
        ]


class KlDiv(Divergence):
    """Atom ``cp.kl_div(x, y)``: ``x log(x / y) - x + y``, entry by entry."""

    name = "kl_div"
    classes = ("kl_div",)

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return ``x log(x / y) - x + y``, entry by entry."""
        return np.asarray(kl_div(v[0], v[1]))

    def derivatives(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ``log(x / y)`` and ``1 - x / y``, the derivatives by x and by y."""
        return np.log(x / y), 1 - x / y

    def least(self, lo: Arrays, hi: Arrays) -> Array:
        """Return 0, a lower bound of the divergence, attained where x = y."""
        return np.zeros_like(lo[0])


class RelEntr(Divergence):
    """Atom ``cp.rel_entr(x, y)``: ``x log(x / y)``, entry by entry."""

    name = "rel_entr"
    classes = ("rel_entr",)

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return ``x log(x / y)``, entry by entry."""
        return np.asarray(rel_entr(v[0], v[1]))

    def derivatives(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ``log(x / y) + 1`` and ``-x / y``, the derivatives by x and by y."""
        return np.log(x / y) + 1, -x / y

    def least(self, lo: Arrays, hi: Arrays) -> Array:
        """Return the smallest values in ``[lo, hi]``: at the largest y, with x nearest to y / e."""
        x = np.clip(hi[1] / math.e, lo[0], hi[0])
        return np.asarray(rel_entr(x, hi[1]))


MULTIPLY, DIVISION, MAXIMUM, MINIMUM = Multiply(), Division(), Maximum(), Minimum()
KL_DIV, REL_ENTR = KlDiv(), RelEntr()


class Matmul(Rule):
    """Matrix product ``A @ B``; `forward` and `vjp` take a `View` as static data."""

    name = "matmul"
    classes = ("MulExpression",)
    smooth = True
    arguments = 2
    product = "matrix"
    linear_in = (0, 1)

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return empty static data, or None (no rule) for stacks of matrices."""
        return () if max(x.ndim for x in atom.args) <= 2 else None

    def written(self, data: Static, last: Array | None) -> str:
        """Return the atom's cvxpy code as users write it, such as ``cp.norm``."""
        return "@"

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return the shape of the matrix product."""
        left, right = shapes
        if not left or not right or left[-1] != right[0]:
            raise ValueError
        return (*left[:-1], *right[1:])

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule for arguments of these shapes: two matrices, or a matrix and a vector."""
        left, right = shapes
        if len(left) == 2 and len(right) == 1:
            return Fitted(_matvec, _matvec_vjp, None, (View(left), flat))
        left = left if len(left) == 2 else (1, *left)
        right = right if len(right) == 2 else (*right, 1)
        return Fitted(self.forward, self.vjp, View((left[0], right[1])), (View(left), View(right)))

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the product of the two matrices in v."""
        left, right = v
        if is_blank(left) or is_blank(right):
            lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            return np.zeros((*lead, math.prod(data.shape)))
        return _columns(product(left, right))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of factor k, given the cotangent g of the matrix product."""
        left, right = v
        if is_blank(left if k else right):
            return np.zeros((*g.shape[:-1], math.prod(v[k].shape[-2:])))
        G = data(g)
        return _columns(product(G, swapped(right)) if k == 0 else product(swapped(left), G))

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the Kronecker product of the factor `other` and an identity matrix.

        It maps factor k to the matrix product. The result is None if copies of a dense `other`
        would need more than `most` entries.
        """
        C = other if other.ndim == 2 else other[None, :] if k else other[:, None]
        copies = math.prod(shapes[k]) // C.shape[k]
        if copies == 1:
            return C if k else C.T
        if not sp.issparse(C) and C.size * copies > most:
            return None
        eye = sp.eye_array(copies)
        return sp.kron(eye, C) if k else sp.kron(C.T, eye)

    def cut(self, numbers: Sequence[bool]) -> Sequence[bool]:
        """Return which factors have one row for each row of the matrix product: the left one alone.

        Every row of the product reads all of the right factor.
        """
        return [True, False]

    def by_row(self, data: Static, shapes: Shapes, shape: Shape) -> bool:
        """Return whether the left factor is a matrix, whose rows give the rows of the product."""
        return len(shapes[0]) == 2

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return B with ``sum(W * (L @ R)) = vec(L)' B vec(R)`` for the weights W."""
        first, second = map(math.prod, shapes)
        inner = shapes[0][-1]
        rows = first // inner
        W = weight.reshape((rows, second // inner), order="F")
        # Column-major: entry (i, k) of L is i + rows * k, entry (k, j) of R is k + inner * j.
        count = W.shape[1]
        places = np.arange(inner)[:, np.newaxis, np.newaxis] + inner * np.arange(count)
        columns = np.broadcast_to(places, (inner, rows, count)).flatten()
        ends = count * np.arange(first + 1)
        B = sp.csr_array((np.tile(W.ravel(), inner), columns, ends), shape=(first, second))
        B.eliminate_zeros()
        return B, 1


class QuadForm(Rule):
    """Atom ``cp.quad_form(x, P)``: the quadratic form ``x.T @ P @ x``."""

    name = "quad_form"
    classes = ("QuadForm",)
    smooth = True
    arguments = 2
    quadratic_form = True
    convex_by_numbers = True

    def misfit(self, data: Static, shapes: Shapes) -> str | None:
        """Return text on faulty static data or a matrix P that does not fit x; None if fine."""
        x, P = shapes
        square = len(P) == 2 and P[0] == P[1] == math.prod(x)
        return super().misfit(data, shapes) or (None if square else "a quadratic form")

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return (), the shape of a number, which a quadratic form is."""
        return ()

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule of the quadratic form for a flat vector and a matrix."""
        return Fitted(self.forward, self.vjp, None, (flat, View(shapes[1])))

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return ``x.T @ P @ x`` for the vector x and the matrix P in v."""
        x, P = v
        return ((x[..., None, :] @ P) @ x[..., :, None])[..., 0]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of argument k, given the cotangent g of the atom's value."""
        x, P = v
        if k == 1:
            return _columns(g[..., None] * (x[..., :, None] * x[..., None, :]))
        column = x[..., :, None]
        return g * ((P @ column)[..., 0] + (swapped(P) @ column)[..., 0])

    def convex_with(self, last: Array | None) -> bool:
        """Return whether the matrix P is constant and positive semidefinite."""
        if last is None:
            return False
        P = last.reshape((round(math.sqrt(last.size)),) * 2, order="F")
        values = np.linalg.eigvalsh((P + P.T) / 2)
        return bool(values[0] >= -1e-12 * np.abs(values).max())

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the weighted symmetric part of the matrix P, if P is constant."""
        if last is None:
            return None
        P = last.reshape(shapes[1], order="F")
        return sp.csr_array(weight.item() * (P + P.T) / 2), 0


def _matvec(v: Sequence[Any], _: Any) -> Array:
    left, right = v
    if is_blank(left) or is_blank(right):
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-1])
        return np.zeros((*lead, left.shape[-2]))
    return product_with_vectors(left, right)


def _matvec_vjp(v: Sequence[Any], out: Array, g: Array, _: Any, k: int) -> Array:
    left, right = v
    if is_blank(left if k else right):
        rows, columns = left.shape[-2:]
        return np.zeros((*g.shape[:-1], columns if k else rows * columns))
    if k == 1:
        return product_with_vectors(swapped(left), g)
    return _columns(g[..., None] @ right[..., None, :])


def _columns(M: Array) -> Array:
    """Return matrices' entries column by column; a single row or column is not copied."""
    if M.shape[-1] == 1:
        return M[..., 0]
    return M[..., 0, :] if M.shape[-2] == 1 else swapped(M).reshape(*M.shape[:-2], -1)


MATMUL, QUAD_FORM = Matmul(), QuadForm()
