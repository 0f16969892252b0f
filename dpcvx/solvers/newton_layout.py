r"""Inequalities and second-order cones as convex functions, prepared for Newton steps.

A row :math:`s = d - C u \ge 0`, or a cone :math:`s_0 \ge |\bar s|` of such rows, is one function
:math:`\varphi(u) = |\bar s| - s_0 \le 0`. With its derivatives

.. math:: J = C_0 - \bar C' \bar s / |\bar s|, \qquad
          \varphi'' = (\bar C' \bar C - (C_0 - J)(C_0 - J)') / |\bar s|

each step factors the matrix :math:`H + \sum_i \lambda_i \varphi_i'' + \sum_i \sigma_i J_i J_i'`.
Its sparsity pattern is fixed for a program. So the pattern is ordered once, and the position of
every product in the matrix is stored.

The module also has the tolerances and limits of Newton's method, and the type of its answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import qdldl
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from .cones import Substituted, substituted

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Largest number of products of two derivatives in one step: in all, or per entry if that is more.
# Rows with hundreds of entries have more; an interior point handles them better.
_PRODUCTS = 200_000
_PER_ENTRY = 8
# Largest size for which LAPACK factors a dense matrix faster than any solver a sparse one.
_DENSE = 200
# Clarabel expands larger second-order cones, with two more columns each.
_TAKEN_APART = 4
# Rows with more entries fill the matrix, and may be treated as its border instead. Limits of a
# border: number of rows, and number of entries as a dense matrix.
_LONG = 8
_MOST_LONG = (400, 4_000_000)
# Predicted microseconds of a step, from measurements. A factor with more entries than an interior
# point's: per multiplication. A border: per row; per row and entry of the factor; and per row and
# entry of the border.
_FILLED = 0.0003
_BORDER = (5.0, 0.004, 0.0002)


@dataclass(frozen=True, eq=False)
class NewtonLayout:
    """Affine map ``x = x0 + Z u``, and convex constraint functions of u, for Newton steps.

    The entries of u are in the order of the factorization.

    A "pair" is a function and a column that it depends on; an "entry" is a pair and a row of its
    function; a "product" is two pairs of one function. All are listed function by function.

    Attributes
    ----------
    x0 : ndarray, shape (n,)
    Z : csr_array, shape (n, p)
    free : ndarray of int, shape (p,)
        Components of x that equal the components of u.
    hp, hi : ndarray of int
        Upper triangle of H by columns: offsets of the columns, and rows of the entries.
    weighted : csr_array, shape (nnz, n)
        Linear map from D to the entries of H = Z' diag(D) Z.
    lp, li, parent : ndarray of int
        Columns of H's factor L; for every column, its first row below the diagonal, or -1.
    heads : ndarray of int
        First row of every function, and at the end the number of rows.
    d : ndarray
        Constants of the rows.
    norms : ndarray
        Norm of the longest row of every function.
    offsets : ndarray
        Largest absolute constant of the rows of every function.
    pairs, columns : ndarray of int
        First pair of every function, and at the end the number of pairs; column of every pair.
    block : ndarray
        Values of the entries: for every function, the dense matrix of its rows and pairs.
    blocks : ndarray of int
        First entry of every function, and at the end the number of entries.
    products, slots : ndarray of int
        First product of every function, and at the end the number of products; position of every
        product in H. A function's products are the lower triangle of its pairs, row by row.
    gram : ndarray
        Inner product, for every product, of the two pairs' columns without the head row.
    dense : bool
        Whether H is factored faster as a dense matrix.
    nodes : int
        Number of rows and columns of the matrix that an interior point factors.
    extra : float
        Predicted additional microseconds of a step for long rows, in a fuller factor or a border.
    long : ndarray of int, shape (k,)
        Functions of one row with many entries. They have no products: steps include them by the
        Schur complement of the other functions' matrix.
    border : ndarray, shape (k, p)
        Rows of the long functions as a dense matrix.
    equal : ndarray of bool
        Whether a function is an equality, for every function; only long functions are.
    """

    x0: Array
    Z: sp.csr_array
    free: Index
    hp: Index
    hi: Index
    weighted: sp.csr_array
    lp: Index
    li: Index
    parent: Index
    heads: Index
    d: Array
    norms: Array
    offsets: Array
    pairs: Index
    columns: Index
    block: Array
    blocks: Index
    products: Index
    slots: Index
    gram: Array
    dense: bool
    nodes: int
    extra: float
    long: Index
    border: Array
    equal: NDArray[np.bool_]

    @property
    def size(self) -> int:
        """Number p of free columns, the entries of u."""
        return self.hp.size - 1


def layout_of(data: ConeData) -> NewtonLayout | None:
    """Return the layout of a constraint set, or None if an interior point is predicted faster.

    The result is None too for cones of other kinds, for auxiliary columns, and if rows alone show
    that the set is empty or has only one point. Long rows, which fill the matrix, become its border
    if that is predicted to be faster.

    Parameters
    ----------
    data : ConeData
        Constraint set; its objective is ignored.
    """
    plain = _layout_of(data, bordered=False)
    if plain is not None and not plain.extra:
        return plain
    layouts = [plain, _layout_of(data, bordered=True)]
    possible = [layout for layout in layouts if layout is not None]
    return min(possible, key=lambda layout: layout.extra, default=None)


def _layout_of(data: ConeData, bordered: bool) -> NewtonLayout | None:
    cones = data.cones
    if data.A.shape[1] > data.n or cones.psd or cones.exp or cones.power or cones.power_nd:
        return None
    if not (np.isfinite(data.A.data).all() and (data.b > -np.inf).all()):
        return None
    if not np.isfinite(data.b[: cones.zero]).all():
        return None
    apart, equalities = _long_equalities(data) if bordered else (data, 0)
    reduced = substituted(apart)
    functions = None if reduced is None else _functions(reduced, apart.cones, equalities)
    if reduced is None or functions is None or not reduced.Z.shape[1]:
        return None
    C, d, sizes = functions
    p, count = C.shape[1], sizes.size
    function = np.repeat(np.arange(count), sizes)
    entries = sp.coo_array(C)
    key = np.unique(function[entries.row] * p + entries.col)
    widths = np.bincount(key // p, minlength=count)
    aside = bordered & (sizes == 1) & (widths > _LONG)
    aside[:equalities] = True
    long = np.flatnonzero(aside)
    if bordered and not 0 < long.size <= min(_MOST_LONG[0], _MOST_LONG[1] // p):
        return None
    spread, short = np.diff(reduced.Z.indptr), np.where(aside, 0, widths)
    met = int((short * short).sum()) + int((spread * spread).sum())
    if met > 2 * max(_PRODUCTS, _PER_ENTRY * (key.size + reduced.Z.nnz)):
        return None
    inner = key[~aside[key // p]]
    touches = sp.csr_array((np.ones(inner.size), (inner // p, inner % p)), shape=(count, p))
    pattern = sp.csc_array(abs(reduced.Z.T) @ abs(reduced.Z) + touches.T @ touches)
    order, lp, li = _factored(pattern)
    filled = np.diff(lp) + 1
    work = float((filled * filled).sum())
    dense = p <= _DENSE and work > p * p * p / 6
    # A lower bound of an interior point's multiplications comes first; it is cheaper to compute.
    nodes, extra = sum(data.A.shape), 0.0
    if not dense and work > (nodes + data.A.nnz) ** 2 / nodes and work > _interior_work(data):
        extra = _FILLED * work
    if bordered:
        each, entry, product = _BORDER
        extra += long.size * (each + entry * (p + li.size) + product * long.size * p)
    position = np.empty(p, dtype=np.intp)
    position[order] = np.arange(p)
    upper = sp.csc_array(sp.triu(pattern[order][:, order]))
    upper.sort_indices()
    hp, hi = upper.indptr.astype(np.intp), upper.indices.astype(np.intp)
    keys = np.repeat(np.arange(p), np.diff(hp)) * p + hi
    # Pairs in the new order of columns, and the functions' rows as dense matrices over pairs.
    pair = np.unique(key // p * p + position[key % p])
    columns, first = pair % p, _starts(widths)
    index = np.searchsorted(pair, function[entries.row] * p + position[entries.col])
    heads, blocks = _starts(sizes), _starts(sizes * widths)
    of = function[entries.row]
    block = np.zeros(blocks[-1])
    block[blocks[of] + (entries.row - heads[of]) * widths[of] + index - first[of]] = entries.data
    products = _starts(short * (short + 1) // 2)
    slots, gram = np.empty(products[-1], dtype=np.intp), np.empty(products[-1])
    for size, width in {(int(k), int(w)) for k, w in zip(sizes, short, strict=True) if w}:
        these = np.flatnonzero((sizes == size) & (short == width))
        pair_columns = columns[first[these][:, None] + np.arange(width)]
        rows = blocks[these][:, None] + np.arange(size * width)
        tails = block[rows].reshape(these.size, size, width)[:, 1:]
        i, j = np.tril_indices(width)
        index = products[these][:, None] + np.arange(i.size)
        slots[index] = np.searchsorted(keys, pair_columns[:, i] * p + pair_columns[:, j])
        gram[index] = np.einsum("crk,crl->ckl", tails, tails)[:, i, j]
    Z = sp.csr_array(sp.csc_array(reduced.Z)[:, order])
    Z.sort_indices()
    squares = np.asarray((C * C).sum(axis=1)).ravel()
    last = np.maximum.reduceat
    return NewtonLayout(
        x0=reduced.x0,
        Z=Z,
        free=reduced.free[order],
        hp=hp,
        hi=hi,
        weighted=_weighted(Z, keys),
        lp=lp,
        li=li,
        parent=_parents(lp, li),
        heads=heads,
        d=d,
        norms=np.sqrt(last(squares, heads[:-1])) if count else np.zeros(0),
        offsets=last(np.abs(d), heads[:-1]) if count else np.zeros(0),
        pairs=first,
        columns=columns,
        block=block,
        blocks=blocks,
        products=products,
        slots=slots,
        gram=gram,
        dense=dense,
        nodes=nodes,
        extra=extra,
        long=long,
        border=np.ascontiguousarray(C[_starts(sizes)[long]].toarray()[:, order]),
        equal=np.arange(count) < equalities,
    )


def _long_equalities(data: ConeData) -> tuple[ConeData, int]:
    """Return the set with its long equalities as the first inequalities, and their number.

    Long equalities are not substituted: the column that one determines would depend on many others.
    """
    zero = data.cones.zero
    length = np.diff(sp.csr_array(data.A).indptr)[:zero]
    long = np.flatnonzero(length > _LONG)
    order = np.concatenate([np.flatnonzero(length <= _LONG), long, np.arange(zero, data.b.size)])
    cones = replace(data.cones, zero=zero - long.size, nonneg=data.cones.nonneg + long.size)
    rows = sp.csc_array(sp.csr_array(data.A)[order])
    return replace(data, A=rows, b=data.b[order], cones=cones), long.size


def _functions(
    substituted: Substituted, cones: Cones, equalities: int
) -> tuple[sp.csr_array, Array, Index] | None:
    """Return rows, constants and numbers of rows of all constraint functions that depend on u.

    Return None if a constant function is violated, or if one of the first `equalities` functions is
    constant.
    """
    C, d = substituted.C, substituted.d
    sizes = np.array([*[1] * cones.nonneg, *cones.soc], dtype=np.intp)
    heads = _starts(sizes)[:-1]
    if not sizes.size:
        return C, d, sizes
    used = np.add.reduceat(np.diff(C.indptr), heads) > 0
    # Functions without entries are constant, and are tested; infinite bounds are always satisfied.
    squares = d * d
    squares[heads] = 0.0
    held = np.sqrt(np.add.reduceat(squares, heads)) <= d[heads]
    infinite = np.isinf(d[heads]) & (sizes == 1)
    if not held[~used].all() or not used[:equalities].all():
        return None
    used &= ~infinite
    rows = np.flatnonzero(np.repeat(used, sizes))
    if not np.isfinite(d[rows]).all():
        return None
    return sp.csr_array(C[rows]), d[rows], sizes[used]


def _starts(sizes: Index) -> Index:
    """Return the offsets of consecutive runs of these sizes, and at the end their total size."""
    return np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(sizes, dtype=np.intp)])


def _factored(pattern: sp.csc_array) -> tuple[Index, Index, Index]:
    """Return a fill-reducing order of a symmetric pattern, and the pattern of its factor."""
    p = pattern.shape[0]
    M = sp.csc_array(pattern, copy=True)
    M.data[:] = 1.0
    # Diagonally dominant and so positive definite: no pivot is near 0.
    M = sp.csc_matrix(M + (1.0 + p) * sp.eye_array(p))
    L, _, order = qdldl.Solver(M).factors()
    order, L = np.asarray(order, dtype=np.intp), sp.csc_array(L)
    return order, L.indptr.astype(np.intp), L.indices.astype(np.intp)


def _parents(lp: Index, li: Index) -> Index:
    """Return the first row below the diagonal of every column of a factor, or -1 without one."""
    filled = np.diff(lp) > 0
    parent = np.full(lp.size - 1, -1, dtype=np.intp)
    parent[filled] = li[lp[:-1][filled]]
    return parent


def _weighted(Z: sp.csr_array, keys: Index) -> sp.csr_array:
    """Return the linear map from weights D to entries of Z' diag(D) Z at positions `keys`.

    Positions are column times p plus row, in the upper triangle.
    """
    p, count = Z.shape[1], np.diff(Z.indptr)
    slots, rows, values = [], [], []
    for width in np.unique(count[count > 0]):
        these = np.flatnonzero(count == width)
        index = Z.indptr[these][:, None] + np.arange(width)
        pair_columns, entries = Z.indices[index].astype(np.intp), Z.data[index]
        i, j = np.tril_indices(width)
        slots.append(np.searchsorted(keys, pair_columns[:, i] * p + pair_columns[:, j]).ravel())
        values.append((entries[:, i] * entries[:, j]).ravel())
        rows.append(np.repeat(these, i.size))
    entries = np.concatenate(values), (np.concatenate(slots), np.concatenate(rows))
    return sp.csr_array(entries, shape=(keys.size, Z.shape[0]))


def _interior_work(data: ConeData) -> float:
    """Return the number of multiplications in one factorization of an interior-point method."""
    A = sp.coo_array(data.A)
    m, n = A.shape
    rows, columns, size = [A.row + n], [A.col], n + m
    start = n + data.cones.zero + data.cones.nonneg
    for count in data.cones.soc:
        rows_of = np.arange(start, start + count)
        if count <= _TAKEN_APART:
            i, j = np.tril_indices(count, -1)
            rows.append(rows_of[i])
            columns.append(rows_of[j])
        else:
            rows.append(np.repeat([size, size + 1], count))
            columns.append(np.tile(rows_of, 2))
            size += 2
        start += count
    start = np.concatenate(rows), np.concatenate(columns)
    lower = sp.csc_array((np.ones(start[0].size), start), shape=(size, size))
    _, lp, _ = _factored(sp.csc_array(lower + lower.T))
    filled = np.diff(lp) + 1
    return float((filled * filled).sum())


# Largest number whose square, times weights, does not overflow.
LARGEST = 1e60


class Rules(NamedTuple):
    """Tolerances of an answer and limits of the search, for every kernel.

    The terms of a function are the norm of its longest row times the size of the initial point,
    plus its largest constant.

    Attributes
    ----------
    violation, far : float
        A function with terms t may be as large as ``violation * max(min(t, 1), far * t)``.
    gap, relative : float
        Tolerances of the gap: relative to the least weight, and relative to the objective.
    penalty : float
        Weight of active functions in the factored matrix, relative to their natural penalty.
    crowded : float
        Allowed number of violated functions at the initial point, per column and per step of the
        budget, up to the number of columns. With more, the set is mostly too far away for these
        steps, and the method is not tried. With the whole budget `most`, it is always tried.
    away : float
        Allowed values of functions at the initial point, relative to their terms, for a budget of 0
        steps; each step of the budget doubles them. Points farther away need more steps.
    close : float
        Values of functions at the initial point, relative to their terms, up to which the method
        nearly always succeeds; the larger budget `near` then applies.
    steps : int
        Largest number of Newton steps of the first stage.
    refinements : int
        Largest number of refinements of the multipliers in a step, with one factor.
    first, growth, last : float
        Penalties of the second stage, relative to the natural ones: first value, factor, largest.
    settled : float
        Penalty from which on the violation has to halve with every increase, or the method stops.
    near : float
        Violation in the second stage, relative to the tolerance, up to which the first stage is
        tried again.
    end : int
        Largest number of steps of the repeated first stage.
    most, least : int
        Largest number of steps of both stages together; smallest number of the second stage.
    """

    violation: float = 1e-10
    far: float = 1e-3
    gap: float = 1e-12
    relative: float = 1e-13
    penalty: float = 1e4
    crowded: float = 0.125
    away: float = 0.008
    close: float = 0.04
    steps: int = 10
    refinements: int = 5
    first: float = 100.0
    growth: float = 100.0
    last: float = 1e6
    settled: float = 1e4
    near: float = 1e7
    end: int = 5
    most: int = 45
    least: int = 10

    @property
    def measures(self) -> tuple[float, float, float, float, float]:
        """The tolerances of an answer, and the penalty of the first stage."""
        return self.violation, self.far, self.gap, self.relative, self.penalty

    def room(self, budget: int) -> float:
        """Return how many functions per column may be violated at the initial point, by budget."""
        return math.inf if budget >= self.most else min(1.0, self.crowded * budget)

    def shared(self, budget: int) -> tuple[int, int]:
        """Return the numbers of steps of the first and second stage, from the total `budget`."""
        budget = min(budget, self.most)
        steps = min(self.steps, budget)
        return steps, budget - steps if budget - steps >= self.least else 0

    def reach(self, budget: int) -> float:
        """Return the allowed function values at the initial point, over their terms, by budget."""
        return self.away * 2.0 ** min(budget, self.most)

    @property
    def growing(self) -> tuple[float, float, float, float, float, float]:
        """Arrays for kernels: penalties of the second stage, limits of the repeated first stage."""
        return self.first, self.growth, self.last, self.settled, self.near, float(self.end)


RULES = Rules()


class Point(NamedTuple):
    """Answer of Newton's method, with its certificate."""

    x: Array  # shape (n,)
    gap: float  # bound of the objective's excess over its minimum, apart from violations
    value: float  # excess of the objective over its minimum without inequalities
    violation: float  # largest value of a function, relative to its tolerance
