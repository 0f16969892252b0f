r"""Inequalities and second-order cones as convex functions, with all that a Newton step reuses.

A row :math:`s = d - C u \ge 0`, or a cone :math:`s_0 \ge |\bar s|` of such rows, is one function
:math:`\varphi(u) = |\bar s| - s_0 \le 0`. With its derivatives

.. math:: J = C_0 - \bar C' \bar s / |\bar s|, \qquad
          \varphi'' = (\bar C' \bar C - (C_0 - J)(C_0 - J)') / |\bar s|

the matrix :math:`H + \sum_i \lambda_i \varphi_i'' + \sum_i \sigma_i J_i J_i'` has a pattern of its
own for every program: it is ordered once, and the slot of every product is stored.

Rules of Newton's method: tolerances of an answer, limits of the search, and the result of every
kernel.
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
from .substitution import Substituted, substituted

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Products of two derivatives that one step forms at most, in all or for each entry; more come from
# rows with hundreds of entries, which an interior point takes apart.
_PRODUCTS = 200_000
_PER_ENTRY = 8
# Full matrices up to this size are factored faster by LAPACK than sparse ones by anything.
_DENSE = 200
# Clarabel takes larger cones apart, with two more columns each.
_TAKEN_APART = 4
# Rows of more entries fill the matrix, and may stand beside it as its border: up to so many rows,
# and so many entries if written in full.
_LONG = 8
_MOST_LONG = (400, 4_000_000)
# Predicted microseconds of a step, as measured: for every multiplication of a factor that is fuller
# than an interior point's; for a row of a border, alone, for every entry of the factor, and for
# every entry of the border.
_FILLED = 0.0003
_BORDER = (5.0, 0.004, 0.0002)


@dataclass(frozen=True, eq=False)
class NewtonLayout:
    """Affine map ``x = x0 + Z u`` with functions of u, in the order that H is factored in.

    "Pairs" are a function and a column that it depends on, function by function; "entries" are a
    row and a pair; "products" two pairs of one function.

    Attributes
    ----------
    x0 : ndarray, shape (n,)
    Z : csr_array, shape (n, p)
    free : ndarray of int, shape (p,)
        Components of x that are those of u.
    hp, hi : ndarray of int
        Upper triangle of H by columns.
    weighted : csr_array, shape (nnz, n)
        Takes D to the entries of H = Z' diag(D) Z.
    lp, li, parent : ndarray of int
        Columns of its factor L, and of every column the first row below the diagonal, or -1.
    heads : ndarray of int
        First row of every function, and the number of rows.
    d : ndarray
    norms : ndarray
        Norm of the longest row of every function; its largest number in d.
    offsets : ndarray
    pairs, columns : ndarray of int
        First pair of every function, and the number of pairs; column of every pair.
    block : ndarray
        Entries, row by row within a function: full matrices of its rows and pairs.
    blocks : ndarray of int
        First entry of every function, and the number of entries.
    products, slots : ndarray of int
        First product of every function, and the number; where it goes in H. They are the lower
        triangle of a function's pairs, row by row.
    gram : ndarray
        Product of the two columns of the rows below the head, for every product.
    dense : bool
        Whether H is better factored as a full matrix.
    nodes : int
        Rows and columns of the matrix that an interior point factors.
    extra : float
        Predicted microseconds of a step for long rows, by either road: a factor that is fuller than
        an interior point's, or a border.
    long : ndarray of int, shape (k,)
        Functions that are rows with many entries. They have no products: steps take them into
        account by the Schur complement of the others' matrix.
    border : ndarray, shape (k, p)
        Their rows in full.
    equal : ndarray of bool
        Whether a function is an equality, for every function; only long ones are.
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
        """Number of free columns, p."""
        return self.hp.size - 1


def layout_of(data: ConeData) -> NewtonLayout | None:
    """Return the layout of a constraint set, or None if an interior point is predicted faster.

    None too for other cones, for auxiliary columns, and where rows alone show that no point, or
    only one, keeps the constraints. Long rows that fill the matrix become its border if that is
    predicted to take less time.

    Parameters
    ----------
    data : ConeData
        Its objective is ignored.
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
    # An interior point multiplies at least so often: once for every entry that it begins with.
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
    # Pairs in the new order, and the functions' rows as full matrices over them.
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
    """Return the set with long equalities as the first inequalities, and their number.

    A column that they define would depend on all others.
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
    """Rows of functions that depend on u, and their numbers of rows; None if others are broken.

    None, too, if one of the first ones does not, which are equalities.
    """
    C, d = substituted.C, substituted.d
    sizes = np.array([*[1] * cones.nonneg, *cones.soc], dtype=np.intp)
    heads = _starts(sizes)[:-1]
    if not sizes.size:
        return C, d, sizes
    used = np.add.reduceat(np.diff(C.indptr), heads) > 0
    # Rows that were left without entries hold or do not, and bounds at infinity hold.
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
    """Return the offsets of runs of these lengths, and the end of the last one."""
    return np.concatenate([np.zeros(1, dtype=np.intp), np.cumsum(sizes, dtype=np.intp)])


def _factored(pattern: sp.csc_array) -> tuple[Index, Index, Index]:
    """Return an order of few new entries, and the columns of the factor of a symmetric pattern."""
    p = pattern.shape[0]
    M = sp.csc_array(pattern, copy=True)
    M.data[:] = 1.0
    # Positive definite, so that no pivot is near 0.
    M = sp.csc_matrix(M + (1.0 + p) * sp.eye_array(p))
    L, _, order = qdldl.Solver(M).factors()
    order, L = np.asarray(order, dtype=np.intp), sp.csc_array(L)
    return order, L.indptr.astype(np.intp), L.indices.astype(np.intp)


def _parents(lp: Index, li: Index) -> Index:
    """Return the first row below the diagonal of every column, or -1."""
    filled = np.diff(lp) > 0
    parent = np.full(lp.size - 1, -1, dtype=np.intp)
    parent[filled] = li[lp[:-1][filled]]
    return parent


def _weighted(Z: sp.csr_array, keys: Index) -> sp.csr_array:
    """The map from D to the entries of Z' diag(D) Z at these positions of its upper triangle."""
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
    """Multiplications of one factorization of the matrix that an interior point factors."""
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


# Numbers whose squares, times weights, are still numbers.
LARGEST = 1e60


class Rules(NamedTuple):
    """When a step is taken for exact, and when the method gives up; the same for every kernel.

    Attributes
    ----------
    violation : float
        Tolerance of a function, absolute if its terms are about 1, else relative to them.
    far : float
        Relative to terms above 1: what rounding allows.
    gap, relative : float
        Tolerances of the objective: relative to the least weight, and to the objective.
    penalty : float
        Weight of violated functions in the factored matrix, relative to their own curvature.
    crowded : float
        Functions that may be broken where the method starts, relative to columns, for every step
        that may be taken, but never more than columns. Where more are, the set is mostly far away,
        and nothing is tried: answers would take more steps, or be none. With all steps to take,
        everything is tried.
    away : float
        Values that functions may have where the method starts, relative to their terms, before the
        first step; every step that may be taken allows twice as much. Fewer steps than answers take
        from farther away would be lost.
    close : float
        Such values of points that nearly always have an answer: more steps may be taken for it.
    steps : int
        Newton steps of the first stage.
    refinements : int
        Number of refinements of the multipliers, with one factor.
    first, growth, last : float
        Penalties of the second stage, in the same units.
    settled : float
        The penalty from which on violations fall, or no point keeps the constraints.
    near : float
        Violations of the second stage, relative to what is allowed, from which on the first one
        is tried again.
    end : int
        Steps of that.
    most, least : int
        Steps of both stages together, and of the second one.
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
        """Return the tolerances of an answer, and the penalty of the first stage."""
        return self.violation, self.far, self.gap, self.relative, self.penalty

    def room(self, budget: int) -> float:
        """Return how many functions may be violated at the initial point, relative to columns."""
        return math.inf if budget >= self.most else min(1.0, self.crowded * budget)

    def shared(self, budget: int) -> tuple[int, int]:
        """Return the steps of the first stage out of so many, and of the second."""
        budget = min(budget, self.most)
        steps = min(self.steps, budget)
        return steps, budget - steps if budget - steps >= self.least else 0

    def reach(self, budget: int) -> float:
        """Return the values that functions may have at the initial point, relative to terms."""
        return self.away * 2.0 ** min(budget, self.most)

    @property
    def growing(self) -> tuple[float, float, float, float, float, float]:
        """Return the penalties of the second stage, and when the first stage is tried again."""
        return self.first, self.growth, self.last, self.settled, self.near, float(self.end)


RULES = Rules()


class Point(NamedTuple):
    """Point that ended the method, with its certificate."""

    x: Array  # shape (n,)
    gap: float  # bound of how far the objective is above the least one, but for violations
    value: float  # how far the objective is above its least value without inequalities
    violation: float  # largest value of a function, relative to what is allowed
