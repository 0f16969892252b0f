"""Sums and linear images of combinations, as combinations again."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp

from .matrices import Array, Identity, Matrix, as_array, compact, csr, has_entries, is_blank, zeros
from .normal_form import Combination


def _plus(a: Matrix, b: Matrix) -> Matrix:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return as_array(a) + as_array(b)
    return compact(csr(a) + csr(b))


def _merged(each: Iterable[Sequence[tuple[int, Matrix]]]) -> tuple[tuple[int, Matrix], ...]:
    merged: dict[int, Matrix] = {}
    for key, M in (pair for pairs in each for pair in pairs):
        merged[key] = _plus(merged[key], M) if key in merged else M
    return tuple(merged.items())


def _added(a: Array, b: Array) -> Array:
    return b if is_blank(a) else a if is_blank(b) else a + b


def total(shape: tuple[int, ...], args: Sequence[Combination]) -> Combination:
    """Return the sum of combinations of one size, in a shape."""
    G = _merged(u.G for u in args)
    terms = _merged(u.terms for u in args)
    moving = [u.F for u in args if u.F is not None]
    F = functools.reduce(_plus, moving) if moving else None
    return Combination(shape, F, G, functools.reduce(_added, (u.h for u in args)), terms)


def image(
    shape: tuple[int, ...], offset: Array, pieces: Sequence[tuple[Matrix, Combination]]
) -> Combination:
    """``offset + sum_i M_i u_i`` as a combination."""
    images = [
        Combination(
            shape,
            None if u.F is None else compact(M if _is_identity(u.F) else M @ u.F),
            tuple((k, compact(M @ G)) for k, G in u.G),
            M @ u.h if has_entries(u.h) else zeros(M.shape[0]),
            tuple((j, compact(M @ T)) for j, T in u.terms),
        )
        for M, u in pieces
    ]
    return total(shape, [Combination(shape, None, (), offset), *images])


def tidy(M: Matrix) -> Matrix:
    """Return a matrix as the identity, if it is one, or as `compact` does."""
    unit = isinstance(M, np.ndarray) and M.shape == (1, 1) and M[0, 0] == 1
    return Identity(M.shape[0]) if unit or _is_identity(M) else compact(M)


def _is_identity(F: Matrix) -> bool:
    """Return whether products with a matrix change nothing."""
    if not sp.issparse(F) or F.shape[0] != F.shape[1]:
        return False
    rows, diagonal = csr(F), np.arange(F.shape[0])
    if rows.nnz != diagonal.size:
        return False
    placed = np.array_equal(rows.indptr[:-1], diagonal) and np.array_equal(rows.indices, diagonal)
    return placed and bool(np.all(rows.data == 1))
