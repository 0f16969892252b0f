"""Intervals of vectors' entries, each with the record that the entry depends on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.matrices import Identity, Matrix, csr, without_zeros
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.quadratic import Term

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Unbounded(Exception):
    """Error for an atom that permits no bound of a record's contribution."""

    def __init__(self, atom: str, why: str) -> None:
        super().__init__(atom, why)
        self.atom, self.why = atom, why


def shape_of(u: Combination, side: int) -> tuple[int, int]:
    """Return the shape, as a matrix, of the left (side 0) or right (side 1) factor of a product."""
    if len(u.shape) == 2:
        return u.shape[0], u.shape[1]
    return (1, u.h.size) if side == 0 else (u.h.size, 1)


def transposition(shape: tuple[int, int]) -> Index:
    """Return the positions, in a column-major matrix, of the entries of its transpose."""
    return np.arange(shape[0] * shape[1]).reshape(shape, order="F").T.ravel(order="F")


def turned(u: Combination, shape: tuple[int, int]) -> Combination:
    """Return the transpose of a linear combination, which has the given matrix shape."""
    order = transposition(shape)
    return Combination(
        shape[::-1],
        None if u.F is None else csr(u.F)[order],
        tuple((k, csr(G)[order]) for k, G in u.G),
        u.h[order],
        tuple((j, csr(M)[order]) for j, M in u.terms),
    )


def groups_of(atom: Atom, size: int) -> Index | None:
    """Return, per entry of a reduction's argument, the value's entry that depends on it.

    The result is None for other atoms.
    """
    if atom.rule.rows != "line":
        return None
    axis, keepdims = atom.data[-2:]
    shape = atom.args[0].shape
    numbers = np.arange(max(1, math.prod(atom.shape))).reshape(atom.shape, order="F")
    if axis is None:
        return np.zeros(size, dtype=np.intp)
    wide = numbers if keepdims else np.expand_dims(numbers, axis)  # type: ignore[arg-type]
    return np.broadcast_to(wide, shape).ravel(order="F")


def read_by(form: NormalForm, terms: Sequence[Term]) -> set[int]:
    """Return the indices of the atoms in some terms, and of all atoms that they depend on."""
    index = {id(atom): j for j, atom in enumerate(form.atoms)}
    readers: set[int] = set()
    left = [index[id(term.atom)] for term in terms]
    while left:
        j = left.pop()
        if j not in readers:
            readers.add(j)
            left += [k for argument in form.atoms[j].args for k, _ in argument.terms]
    return readers


# Owners of an entry that depends on no record, and of one that depends on several.
PUBLIC, MIXED = -1, -2
# Bound of the rounding errors of sums, relative to their largest summand.
ROUNDING = 1e-9
# Number of rows of a matrix that are summed at once.
_ROWS = 1 << 14


@dataclass(frozen=True, eq=False)
class Range:
    """Intervals of a vector's entries, and the record that each entry depends on.

    The record is `PUBLIC` for an entry that depends on none, and `MIXED` if it depends on several.

    `norms`, if known, bounds the l1 and l2 norms of the entries of each record.
    """

    lo: Array
    hi: Array
    owner: Index
    norms: tuple[Array, Array] | None = None

    @property
    def size(self) -> Array:
        """Largest magnitude of each entry over its interval."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))


def known_signs(g: Range) -> NDArray[np.bool_]:
    """Return, for each entry of a range, whether it has one sign for all admissible data."""
    return (g.lo >= 0) | (g.hi <= 0)


def product(M: Matrix, lo: Array, hi: Array) -> tuple[Array, Array]:
    """Return the ends of the interval of ``M v`` for a matrix M and vectors v in [lo, hi]."""
    if isinstance(M, Identity):
        return lo, hi
    if not (lo.any() or hi.any()):
        return np.zeros(M.shape[0]), np.zeros(M.shape[0])
    up, down = _by_sign(csr(M), bool(np.isfinite(lo).all() and np.isfinite(hi).all()))
    with np.errstate(invalid="ignore"):
        high = up @ hi + down @ lo
        low = -high if np.array_equal(lo, -hi) else up @ lo + down @ hi
    return widened(low, high)


def widened(lo: Array, hi: Array) -> tuple[Array, Array]:
    """Return the ends of intervals, with infinite ends in place of undefined (NaN) ones."""
    if np.isnan(lo).any() or np.isnan(hi).any():
        return np.where(np.isnan(lo), -np.inf, lo), np.where(np.isnan(hi), np.inf, hi)
    return lo, hi


def _by_sign(M: sp.csr_array, finite: bool) -> tuple[sp.csr_array, sp.csr_array]:
    """Return positive and negative part of the matrix M, without stored zeros unless `finite`.

    `finite` tells whether M is multiplied by finite numbers only.
    """
    if finite:
        values = np.maximum(M.data, 0.0), np.minimum(M.data, 0.0)
        up, down = (sp.csr_array((v, M.indices, M.indptr), shape=M.shape) for v in values)
        return up, down
    return without_zeros(M.maximum(0)), without_zeros(M.minimum(0))


def bounded_times(a: Array, b: Array | float) -> Array:
    """Return the product of two bounds, infinite if one is 0 and the other infinite."""
    with np.errstate(all="ignore"):
        out = np.asarray(a * b)
    return np.where(np.isnan(out), np.inf, out)


def joined(a: Index, b: Index) -> Index:
    """Return the record that entries a and b together depend on; `MIXED` for different ones."""
    out = np.where(a == PUBLIC, b, a)
    clash = (a != PUBLIC) & (b != PUBLIC) & (a != b)
    return np.where(clash, MIXED, out)


def owners(M: sp.csr_array, owner: Index) -> Index:
    """Return the record that each entry of ``M v`` depends on, given the records of v's entries."""
    if M.nnz == M.shape[0] and (np.diff(M.indptr) == 1).all() and M.data.all():
        return owner[M.indices]
    coo = without_zeros(M).tocoo()
    read = owner[coo.col]
    rows, read = coo.row[read != PUBLIC], read[read != PUBLIC]
    out = np.full(M.shape[0], PUBLIC)
    high = np.full(M.shape[0], -10)
    low = np.full(M.shape[0], np.iinfo(np.intp).max)
    np.maximum.at(high, rows, read)
    np.minimum.at(low, rows, read)
    touched = high > -10
    out[touched] = np.where(high == low, high, MIXED)[touched]
    return out


def row_owner(owner: NDArray[np.intp]) -> Index:
    """Return the record that each row of a matrix depends on, given the records of its entries."""
    nobody = np.iinfo(np.intp).max
    low = np.where(owner == PUBLIC, nobody, owner).min(axis=1, initial=nobody)
    high = owner.max(axis=1, initial=PUBLIC)
    return np.where(low == nobody, PUBLIC, np.where(low == high, low, MIXED))


def row_sizes(M: sp.csr_array, p: int) -> Array:
    """Return the lp norms (p = 1 or 2) of the rows of the matrix M."""
    peak = max(M.data.max(initial=0.0), -M.data.min(initial=0.0)) or 1.0
    total = np.zeros(M.shape[0])
    for first in range(0, total.size, _ROWS):  # intermediate arrays stay in the cache
        ends = M.indptr[first : first + _ROWS + 1]
        values, columns = (v[ends[0] : ends[-1]] for v in (M.data, M.indices))
        powered = np.abs(values) if p == 1 else np.square(values * (1 / peak))
        rows = sp.csr_array((powered, columns, ends - ends[0]), (ends.size - 1, M.shape[1]))
        total[first : first + _ROWS] = rows.sum(axis=1)
    return total if p == 1 else peak * np.sqrt(total)


def selects(M: sp.csr_array) -> bool:
    """Return whether every row and column of the matrix has at most one nonzero entry."""
    if np.diff(M.indptr).max(initial=0) > 1:
        return False
    return int(np.bincount(M.indices, minlength=1).max()) <= 1


def operator_norm(M: sp.csr_array, p: int) -> float:
    """Return a bound of ``||M'v||_p / ||v||_p`` over all vectors v."""
    M = without_zeros(M)
    if M.nnz == 0:
        return 0.0
    if selects(M):
        return float(np.abs(M.data).max())
    rows = float(row_sizes(M, 1).max())
    if p == 1:
        return rows
    columns = float(row_sizes(sp.csr_array(M.T), 1).max())
    bound = math.sqrt(rows) * math.sqrt(columns)
    if min(M.shape) <= 500 and max(M.shape) <= 5000:
        bound = min(bound, float(np.linalg.norm(M.toarray(), 2)) * (1 + 1e-12))
    return bound


def weighted(F: Matrix, scale: Array | None) -> sp.csr_array:
    """Return the matrix F with its columns multiplied by `scale`, or F itself without a scale."""
    rows = csr(F)
    if scale is None:
        return rows
    return sp.csr_array((rows.data * scale[rows.indices], rows.indices, rows.indptr), rows.shape)
