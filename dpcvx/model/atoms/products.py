"""The matrix product and quadratic forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..matrices import Array, is_blank
from ..trailing import View, flat, product, product_with_vectors, swapped
from .rule import Arrays, Fitted, Rule, Shape, Shapes, Static


class Matmul(Rule):
    """``A @ B``; `forward` and `vjp` take a `View` of the value, or None beside a vector."""

    name = "matmul"
    classes = ("MulExpression",)
    smooth = True
    arguments = 2
    product = "matrix"
    linear_in = (0, 1)

    def read(self, atom: Any) -> tuple[Any, ...] | None:
        """Return no static data, or None for stacks of matrices."""
        return () if max(x.ndim for x in atom.args) <= 2 else None

    def written(self, data: Static, last: Array | None) -> str:
        """Return how users write it."""
        return "@"

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return the value's shape."""
        left, right = shapes
        if not left or not right or left[-1] != right[0]:
            raise ValueError
        return (*left[:-1], *right[1:])

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule of matrices, or of a matrix and a vector."""
        left, right = shapes
        if len(left) == 2 and len(right) == 1:
            return Fitted(_matvec, _matvec_vjp, None, (View(left), flat))
        left = left if len(left) == 2 else (1, *left)
        right = right if len(right) == 2 else (*right, 1)
        return Fitted(self.forward, self.vjp, View((left[0], right[1])), (View(left), View(right)))

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the product of matrices."""
        left, right = v
        if is_blank(left) or is_blank(right):
            lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
            return np.zeros((*lead, math.prod(data.shape)))
        return _columns(product(left, right))

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent of a matrix."""
        left, right = v
        if is_blank(left if k else right):
            return np.zeros((*g.shape[:-1], math.prod(v[k].shape[-2:])))
        G = data(g)
        return _columns(product(G, swapped(right)) if k == 0 else product(swapped(left), G))

    def linear_map(self, k: int, other: Any, shapes: Shapes, most: float = math.inf) -> Any:
        """Return the other factor, once per column or row of this one."""
        C = other if other.ndim == 2 else other[None, :] if k else other[:, None]
        copies = math.prod(shapes[k]) // C.shape[k]
        if copies == 1:
            return C if k else C.T
        if not sp.issparse(C) and C.size * copies > most:
            return None
        eye = sp.eye_array(copies)
        return sp.kron(eye, C) if k else sp.kron(C.T, eye)

    def cut(self, numbers: Sequence[bool]) -> Sequence[bool]:
        """Return the left factor alone: every row of the product reads all of the right one."""
        return [True, False]

    def by_row(self, data: Static, shapes: Shapes, shape: Shape) -> bool:
        """Whether the left factor is a matrix."""
        return len(shapes[0]) == 2

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return B with ``sum(W * (L @ R)) = vec(L)' B vec(R)``."""
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
    """``cp.quad_form``: ``x.T @ P @ x``."""

    name = "quad_form"
    classes = ("QuadForm",)
    smooth = True
    arguments = 2
    quadratic_form = True
    convex_by_numbers = True

    def misfit(self, data: Static, shapes: Shapes) -> str | None:
        """Return what no compiler makes: a matrix that does not fit the vector."""
        x, P = shapes
        square = len(P) == 2 and P[0] == P[1] == math.prod(x)
        return super().misfit(data, shapes) or (None if square else "a quadratic form")

    def shape(self, shapes: Shapes, data: Static) -> Shape:
        """Return that of a number."""
        return ()

    def fitted(self, data: Static, shapes: Shapes, shape: Shape) -> Fitted:
        """Return the rule of a flat vector and a matrix."""
        return Fitted(self.forward, self.vjp, None, (flat, View(shapes[1])))

    def forward(self, v: Arrays, data: Any) -> Array:
        """Return the value."""
        x, P = v
        return ((x[..., None, :] @ P) @ x[..., :, None])[..., 0]

    def vjp(self, v: Arrays, out: Array, g: Array, data: Any, k: int) -> Array:
        """Return the cotangent."""
        x, P = v
        if k == 1:
            return _columns(g[..., None] * (x[..., :, None] * x[..., None, :]))
        column = x[..., :, None]
        return g * ((P @ column)[..., 0] + (swapped(P) @ column)[..., 0])

    def convex_with(self, last: Array | None) -> bool:
        """Whether the matrix is constant and positive semidefinite."""
        if last is None:
            return False
        P = last.reshape((round(math.sqrt(last.size)),) * 2, order="F")
        values = np.linalg.eigvalsh((P + P.T) / 2)
        return bool(values[0] >= -1e-12 * np.abs(values).max())

    def bilinear(
        self, weight: Array, data: Static, shapes: Shapes, last: Array | None, shape: Shape
    ) -> tuple[sp.csr_array, int] | None:
        """Return the symmetric part of a constant matrix."""
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
    """Entries of matrices, column by column; those of a single row or column as they lie."""
    if M.shape[-1] == 1:
        return M[..., 0]
    return M[..., 0, :] if M.shape[-2] == 1 else swapped(M).reshape(*M.shape[:-2], -1)


MATMUL, QUAD_FORM = Matmul(), QuadForm()
