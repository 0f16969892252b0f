"""Blocks of a constraint set that have a closed form, known by their rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .closed_forms import Affine, Ball, ClosedForm, Simplex

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Rows closer than this to dependence, relative to the largest, go to the conic program.
_DEPENDENT = 1e-6
# Affine blocks with more equations than this go to the conic program, which keeps them sparse.
_AFFINE_LIMIT = 300


@dataclass(frozen=True, eq=False)
class Block:
    """Rows and columns of one connected part of W: ``s = b - A y`` in the cones."""

    matrix: sp.csr_array
    offset: Array
    kinds: list[str]
    rows: Index
    columns: Index
    n: int

    @property
    def auxiliary(self) -> Index:
        """Its columns that are no components of x."""
        return self.columns[self.columns >= self.n]

    def row(self, i: int) -> tuple[Index, Array, float]:
        """Columns, coefficients of s and constant of s in row i."""
        span = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
        return self.matrix.indices[span], -self.matrix.data[span], float(self.offset[i])


def closed_form_of(block: Block) -> tuple[str, ClosedForm] | None:
    """The kind of a block, and its projection; None if it has no closed form."""
    return _simplex(block) or _ball(block) or _affine(block)


def _simplex(block: Block) -> tuple[str, ClosedForm] | None:
    if block.auxiliary.size or set(block.kinds) - {"zero", "nonneg"}:
        return None
    n = block.columns.size
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    linking: list[tuple[int, str]] = []
    for r, kind in zip(block.rows, block.kinds, strict=True):
        columns, coefficients, constant = block.row(int(r))
        if columns.size > 1:
            linking.append((int(r), kind))
            continue
        j, root = int(np.searchsorted(block.columns, columns[0])), -constant / coefficients[0]
        if kind == "zero" or coefficients[0] > 0:
            lower[j] = max(lower[j], root)
        if kind == "zero" or coefficients[0] < 0:
            upper[j] = min(upper[j], root)
    if len(linking) != 1:
        return None
    row, kind = linking[0]
    columns, coefficients, constant = block.row(row)
    if columns.size != n or (lower > upper).any():
        return None
    a = np.empty(n)
    a[np.searchsorted(block.columns, columns)] = -coefficients  # s = constant - a'x
    return "simplex", Simplex(a, constant, lower, upper, kind == "zero")


def _ball(block: Block) -> tuple[str, ClosedForm] | None:
    """One second-order cone whose entries are single components, with a fixed radius.

    Two forms occur: a constant radius, and the cone of ``cp.sum_squares(x) <= r``, where the first
    two rows hold a bounded auxiliary t and their squares differ by a linear function of t.
    """
    if block.kinds.count("soc") != 1 or set(block.kinds) - {"soc", "nonneg"}:
        return None
    bounds = len(block.kinds) - 1
    single = block.kinds.index("soc")
    soc = [int(r) for r in block.rows[single : block.rows.size - (bounds - single)]]
    others = [int(r) for r in block.rows if int(r) not in soc]
    head, *tail = soc
    columns, coefficients, constant = block.row(head)
    if not block.auxiliary.size:
        if columns.size or others:
            return None
        squared = constant * abs(constant)
    else:
        limit = _auxiliary_limit(block, others)
        twin = [r for r in tail if block.auxiliary[0] in block.row(r)[0]]
        if limit is None or columns.size != 1 or len(twin) != 1 or block.row(twin[0])[0].size != 1:
            return None
        _, second, offset = block.row(twin[0])
        slope = 2 * (constant * coefficients[0] - offset * second[0])
        if not np.isclose(abs(second[0]), abs(coefficients[0]), rtol=1e-14) or slope <= 0:
            return None
        squared = constant**2 - offset**2 + slope * limit
        tail = [r for r in tail if r != twin[0]]
    own = block.columns[block.columns < block.n]
    a, c = np.zeros(own.size), np.zeros(own.size)
    for r in tail:
        columns, coefficients, constant = block.row(r)
        if columns.size != 1 or columns[0] >= block.n:
            return None
        j = int(np.searchsorted(own, columns[0]))
        if a[j] != 0:
            return None
        a[j], c[j] = coefficients[0], constant
    if (a == 0).any() or squared < 0:
        return None
    return "ball", Ball(a, c, float(np.sqrt(squared)))


def _auxiliary_limit(block: Block, rows: list[int]) -> float | None:
    """Upper bound of the only auxiliary column from the one-row cones of the block."""
    if block.auxiliary.size != 1 or len(rows) != 1:
        return None
    columns, coefficients, constant = block.row(rows[0])
    if columns.tolist() != [int(block.auxiliary[0])] or coefficients[0] >= 0:
        return None
    return -constant / coefficients[0]


def _affine(block: Block) -> tuple[str, ClosedForm] | None:
    if block.auxiliary.size or set(block.kinds) - {"zero"} or block.rows.size > _AFFINE_LIMIT:
        return None
    A = block.matrix[block.rows][:, block.columns].toarray()
    # Pivoted QR finds independent rows; dependent ones leave the set to the conic program.
    diagonal = np.abs(np.diag(la.qr(A.T, mode="r", pivoting=True)[0]))
    if diagonal.size < A.shape[0] or diagonal.min() <= _DEPENDENT * diagonal.max():
        return None
    return "affine", Affine(A, block.offset[block.rows])
