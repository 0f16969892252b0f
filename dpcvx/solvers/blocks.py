"""Splitting of a constraint set in cone form into independent blocks of columns.

No row has columns of two blocks. Boxes, simplices (one linear constraint over a box), balls and
axis-aligned ellipsoids, and affine sets have closed forms; all other blocks form one smaller cone
program.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..errors import UnsolvableError
from ..model.canonical import ConeData, Cones
from ..model.matrices import without_zeros
from .closed_forms import (
    ROUNDING,
    Affine,
    Ball,
    Box,
    ClosedForm,
    Separable,
    Simplex,
    slack_of_rounding,
)
from .cones import ConeTest
from .newton_layout import NewtonLayout, layout_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_EMPTY = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A constraint set W as a product of independent blocks."""

    box: Box | None  # bounds of all components; None if no component has a bound
    closed_forms: tuple[tuple[Index, ClosedForm], ...]  # other blocks with closed forms
    conic: ConeData | None  # all blocks without a closed form, as one program; None without such
    conic_columns: Index  # components of x in the conic program
    kinds: Counter[str]  # number of components per kind of block

    @cached_property
    def layout(self) -> NewtonLayout | None:
        """Layout of the conic program for Newton steps, which all projectors share."""
        return None if self.conic is None else layout_of(self.conic)


def blocks_of(data: ConeData, owner: str) -> Blocks:
    """Split a constraint set into independent blocks.

    Parameters
    ----------
    data : ConeData
        Constraints of the set; its objective is ignored.
    owner : str
        Name of the agent, for messages.

    Raises
    ------
    ModelError
        If constant rows, bounds or simplices show that the set is empty.
    """
    data = _without_epigraphs(data)
    kinds: Counter[str] = Counter()
    lower, upper = np.full(data.n, -np.inf), np.full(data.n, np.inf)
    closed_forms: list[tuple[Index, ClosedForm]] = []
    conic_columns: list[Index] = []
    A = without_zeros(data.A)
    row_kinds, starts = _row_kinds(data.cones)
    if _contradicts(A, data):
        raise empty_set(owner)
    apart, low, high = _intervals(A, data, row_kinds, starts)
    alone = np.flatnonzero(apart)
    lower[alone], upper[alone] = low[alone], high[alone]
    free = int(np.count_nonzero(apart & np.isinf(lower) & np.isinf(upper)))
    kinds += Counter(free=free, box=alone.size - free)
    tied = np.concatenate([np.flatnonzero(~apart), np.arange(data.n, A.shape[1])])
    for columns, cones in _components(A, tied, starts):
        rows = _runs(starts, cones)
        block = Block(A, data.b, row_kinds[cones].tolist(), rows, columns, data.n)
        alone = columns[columns < data.n]
        form = closed_form_of(block)
        if form is None:
            conic_columns.append(columns)
            kinds["conic"] += alone.size
            continue
        kind, closed_form = form
        if isinstance(closed_form, Simplex) and not closed_form.reachable:
            raise empty_set(owner)
        closed_forms.append((alone, closed_form))
        kinds[kind] += alone.size
    crossed = lower > upper
    for low, high in zip(lower[crossed], upper[crossed], strict=True):
        size = max(abs(low), abs(high))
        if math.isinf(size) or low - high > slack_of_rounding(size, 1.0 + size, 1.0):
            raise empty_set(owner)
    lower[crossed] = upper[crossed] = (lower[crossed] + upper[crossed]) / 2
    bounded = bool((lower > -np.inf).any() or (upper < np.inf).any())
    box = Box(lower, upper) if bounded else None
    if not conic_columns:
        return Blocks(box, tuple(closed_forms), None, _EMPTY, kinds)
    columns = np.sort(np.concatenate(conic_columns))
    rest = _restricted(data, columns)
    return Blocks(box, tuple(closed_forms), rest, columns[columns < data.n], kinds)


def connected(data: ConeData, n: int) -> ConeData:
    """Return the projection of the constraints onto the first n columns.

    Blocks of columns and cones without any of the first n columns are dropped. All other columns
    become auxiliary.
    """
    A, (_, starts) = without_zeros(data.A), _row_kinds(data.cones)
    blocks = _components(A, np.arange(A.shape[1]), starts)
    columns = np.concatenate([_EMPTY, *(block for block, _ in blocks if (block < n).any())])
    return replace(_restricted(data, np.sort(columns)), n=n)


def empty_set(owner: str) -> UnsolvableError:
    """Return the error for an agent whose constraint set is empty."""
    return UnsolvableError(
        f"The constraints of agent '{owner}' admit no point, so it has no local decision to make. "
        "Loosen one of them. To find the conflict, solve cp.Problem(cp.Minimize(0), constraints) "
        "with fewer and fewer of them."
    )


def separable(data: ConeData) -> Separable | None:
    """Return a cone program as a sum of functions of single columns; None if it is no such sum.

    A column may have a quadratic term, bounds, and one auxiliary column that is at least two affine
    functions of it. ``cp.abs``, ``cp.norm1``, ``cp.pos`` and ``cp.sum_squares`` have this form.
    Columns may lie in balls around 0 in place of bounds.
    """
    data = _without_epigraphs(data, costs=True)
    balls = _balls_of(data)
    if balls is None:
        return None
    data, around = balls
    n, A, b = data.n, without_zeros(data.A), data.b
    P = sp.coo_array(data.P)
    diagonal = P.row == P.col
    if data.cones.zero or (P.data[~diagonal] != 0).any():
        return None
    p = data.P.diagonal()
    if (p[n:] != 0).any():
        return None
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    m = A.shape[0]
    row, auxiliary = np.repeat(np.arange(m), np.diff(A.indptr)), A.indices >= n
    inside, above = (np.bincount(row[part], minlength=m) for part in (~auxiliary, auxiliary))
    if (inside > 1).any() or (above > 1).any() or (inside + above == 0).any():
        return None
    weight, above_of = np.zeros(m), np.zeros(m, dtype=np.intp)
    weight[row[auxiliary]], above_of[row[auxiliary]] = A.data[auxiliary], A.indices[auxiliary]
    if (weight > 0).any():  # a bound from above on an auxiliary column
        return None
    bounds = above[row] == 0
    roots, ends = b[row[bounds]] / A.data[bounds], A.data[bounds] > 0
    columns = A.indices[bounds]
    np.minimum.at(upper, columns[ends], roots[ends])
    np.maximum.at(lower, columns[~ends], roots[~ends])
    slope, column = np.zeros(m), np.full(m, -1)
    tilted = ~auxiliary & ~bounds
    slope[row[tilted]] = A.data[tilted] / -weight[row[tilted]]
    column[row[tilted]] = A.indices[tilted]
    rows = np.flatnonzero(above)
    pieces: dict[int, list[tuple[int, float, float]]] = {}
    for t, *piece in zip(
        above_of[rows].tolist(),
        column[rows].tolist(),
        slope[rows].tolist(),
        (b[rows] / weight[rows]).tolist(),
        strict=True,
    ):
        pieces.setdefault(t, []).append((piece[0], piece[1], piece[2]))
    low, high, kink = np.zeros(n), np.zeros(n), np.zeros(n)
    taken: set[int] = set()
    for t in range(n, A.shape[1]):
        pair = sorted(pieces.get(t, []), key=lambda piece: piece[1])
        named = {j for j, _, _ in pair if j >= 0}
        if len(pair) != 2 or len(named) != 1 or taken & named or data.q[t] < 0:
            return None
        (_, first, at_first), (_, second, at_second) = pair
        if first == second:
            return None
        j = named.pop()
        taken.add(j)
        low[j], high[j] = data.q[t] * first, data.q[t] * second
        kink[j] = (at_first - at_second) / (second - first)
    for inside, _ in around:
        if (
            np.isfinite(lower[inside]).any()
            or np.isfinite(upper[inside]).any()
            or kink[inside].any()
        ):
            return None
    return Separable(p[:n], data.q[:n], low, high, kink, lower, upper, around)


def _balls_of(data: ConeData) -> tuple[ConeData, tuple[tuple[Index, Ball], ...]] | None:
    """Split a cone program into balls around 0 and the rest; None if the rest is no polyhedron."""
    if data.cones.polyhedral:
        return data, ()
    kinds, starts = _row_kinds(data.cones)
    if set(kinds.tolist()) - {"zero", "nonneg", "soc"}:
        return None
    A = without_zeros(data.A)
    soc = np.repeat(kinds == "soc", np.diff(starts))
    inside = np.zeros(A.shape[1], dtype=bool)
    inside[A[np.flatnonzero(soc)].indices] = True
    # Radii may be bounds of auxiliary columns.
    radii = np.flatnonzero(inside[data.n :]) + data.n
    rows = soc | (np.diff(sp.csr_array(A[:, radii]).indptr) > 0)
    apart = _restricted(data, np.arange(A.shape[1]), rows)
    matrix = without_zeros(apart.A)
    kinds, starts = _row_kinds(apart.cones)
    balls: list[tuple[Index, Ball]] = []
    tied = np.flatnonzero(np.diff(sp.csc_array(matrix).indptr) > 0)
    for columns, cones in _components(matrix, tied, starts):
        rows_of = _runs(starts, cones)
        ball = _ball(Block(matrix, apart.b, kinds[cones].tolist(), rows_of, columns, data.n))
        if ball is None or ball[1].c.any():
            return None
        balls.append((columns[columns < data.n], ball[1]))
    if any((data.q[radii] != 0) | (data.P.diagonal()[radii] != 0)):
        return None
    keep = np.setdiff1d(np.arange(A.shape[1]), radii)
    rest = _restricted(data, keep, ~rows)
    return replace(rest, P=data.P[keep][:, keep], q=data.q[keep]), tuple(balls)


def _without_epigraphs(data: ConeData, costs: bool = False) -> ConeData:
    """Fix auxiliary columns whose increase loosens every row except their upper bounds.

    With `costs`, the objective is kept, and only columns without a cost are fixed.

    ``cp.abs(x) <= r`` and ``cp.norm(x) <= r`` introduce such a column t with t <= r. The set of x
    is largest at t = r. With t fixed there, the components separate, and boxes and balls appear.
    """
    if data.A.shape[1] == data.n:
        return data
    A, b = sp.csc_array(data.A), data.b.copy()
    by_row = sp.csr_array(A)
    single = np.diff(by_row.indptr) == 1
    kinds, starts = _row_kinds(data.cones)
    loosened = np.zeros(b.size, dtype=bool)  # rows whose slack s may always increase
    inequality = np.zeros(b.size, dtype=bool)
    loosened[starts[:-1]] = (kinds == "nonneg") | (kinds == "soc")
    inequality[starts[:-1]] = kinds == "nonneg"
    auxiliary = A[:, data.n :].tocoo()
    rows, columns, effect = auxiliary.row, auxiliary.col, -auxiliary.data
    bounds = single[rows] & inequality[rows] & (effect < 0)
    tops = np.full(A.shape[1] - data.n, np.inf)
    np.minimum.at(tops, columns[bounds], b[rows[bounds]] / -effect[bounds])
    fixed = np.isfinite(tops)
    fixed[columns[~bounds & ~(loosened[rows] & (effect > 0))]] = False
    if costs:
        fixed &= (data.q[data.n :] == 0) & (abs(data.P).sum(axis=0)[data.n :] == 0)
    if not fixed.any():
        return data
    held = fixed[columns]
    np.add.at(b, rows[held], effect[held] * tops[columns[held]])
    dropped = np.zeros(b.size, dtype=bool)
    dropped[rows[held & bounds]] = True
    keep = np.concatenate([np.arange(data.n), data.n + np.flatnonzero(~fixed)])
    narrowed = _restricted(replace(data, b=b), keep, ~dropped)
    return replace(narrowed, P=data.P[keep][:, keep], q=data.q[keep]) if costs else narrowed


def _row_kinds(cones: Cones) -> tuple[NDArray[np.str_], Index]:
    """Return every cone's kind and first row, followed by the total number of rows."""
    # Zero and nonnegative rows may be hundreds of thousands: no Python list of them is made.
    others = replace(cones, zero=0, nonneg=0).blocks()
    single = np.repeat(["zero", "nonneg"], [cones.zero, cones.nonneg])
    kinds = np.concatenate([single, np.array([kind for kind, _ in others], dtype=np.str_)])
    sizes = [np.ones(single.size, dtype=np.intp), np.array([n for _, n in others], dtype=np.intp)]
    return kinds, np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.intp)


def _runs(starts: Index, cones: list[int]) -> Index:
    """Return the rows of these cones, one cone after the other; `starts` are first rows."""
    chosen = np.array(cones, dtype=np.intp)
    first, sizes = starts[chosen], starts[chosen + 1] - starts[chosen]
    before = np.cumsum(sizes) - sizes
    return np.repeat(first - before, sizes) + np.arange(sizes.sum())


def _any_row(flags: NDArray[np.bool_], starts: Index) -> NDArray[np.bool_]:
    """Return, for each cone, whether any of its rows is flagged; `starts` are first rows."""
    if starts.size == 1:
        return np.zeros(0, dtype=bool)
    return np.logical_or.reduceat(flags, starts[:-1])


def _contradicts(A: sp.csr_array, data: ConeData) -> bool:
    """Return whether constant rows, such as ``0 <= -1``, violate their cones."""
    _, starts = _row_kinds(data.cones)
    constant = ~_any_row(np.diff(A.indptr) > 0, starts)
    if not constant.any():
        return False
    alone = _restricted(data, _EMPTY, np.repeat(constant, np.diff(starts)))
    # Exponential and power cones without columns do not occur: cvxpy folds their constants.
    violated = ConeTest(alone.cones)(alone.b) or 0.0
    return violated > ROUNDING * (1.0 + float(np.abs(alone.b).max()))


def _components(A: sp.csr_array, tied: Index, starts: Index) -> list[tuple[Index, list[int]]]:
    """Return columns and cones of each connected component of the graph of cones and columns.

    Only the columns in `tied` are nodes; a cone is joined to the columns in its rows.
    """
    if not tied.size:
        return []
    m, n = starts.size - 1, tied.size
    cone_of_row = np.repeat(np.arange(m), np.diff(starts))
    coo = sp.csc_array(A)[:, tied].tocoo()
    links = sp.coo_array((np.ones(coo.nnz), (cone_of_row[coo.row], coo.col)), shape=(m, n))
    graph = sp.block_array([[None, links], [links.T, None]]) if m else sp.coo_array((n, n))
    _, label = connected_components(graph, directed=False)
    # Cones without these columns belong to no block; cvxpy emits some for constant constraints.
    labels, first, block = np.unique(label[m:], return_index=True, return_inverse=True)
    columns = np.split(np.argsort(block, kind="stable"), np.cumsum(np.bincount(block))[:-1])
    owner = np.searchsorted(labels, label[:m])
    owner[~np.isin(label[:m], labels)] = labels.size
    ends = np.cumsum(np.bincount(owner, minlength=labels.size + 1))[:-1]
    cones = np.split(np.argsort(owner, kind="stable"), ends)
    return [(tied[columns[k]], cones[k].tolist()) for k in np.argsort(first)]


def _intervals(
    A: sp.csr_array, data: ConeData, kinds: NDArray[np.str_], starts: Index
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Return which components of x have only bounds, and the lower and upper bounds of all."""
    simple = np.repeat((kinds == "zero") | (kinds == "nonneg"), np.diff(starts))
    equality = np.repeat(kinds == "zero", np.diff(starts))
    coo = A.tocoo()
    alone = simple[coo.row] & (np.diff(A.indptr)[coo.row] == 1)
    apart = np.ones(A.shape[1], dtype=bool)
    apart[coo.col[~alone]] = False
    rows, columns, slope = coo.row[alone], coo.col[alone], -coo.data[alone]
    roots = -data.b[rows] / slope
    lower, upper = np.full(A.shape[1], -np.inf), np.full(A.shape[1], np.inf)
    low, high = equality[rows] | (slope > 0), equality[rows] | (slope < 0)
    np.maximum.at(lower, columns[low], roots[low])
    np.minimum.at(upper, columns[high], roots[high])
    return apart[: data.n], lower[: data.n], upper[: data.n]


def _restricted(data: ConeData, columns: Index, rows: NDArray[np.bool_] | None = None) -> ConeData:
    """Return the constraints on some columns, without an objective.

    A cone is kept if one of its rows is flagged in `rows`; if `rows` is omitted, a cone is kept if
    one of its rows has an entry in the columns.
    """
    A = sp.csr_array(sp.csc_array(data.A)[:, columns])
    _, starts = _row_kinds(data.cones)
    used = np.diff(A.indptr) > 0 if rows is None else rows
    keep = _any_row(used, starts)
    held = np.repeat(keep, np.diff(starts))
    cones = data.cones
    sizes = np.cumsum([cones.zero, cones.nonneg, len(cones.soc), len(cones.psd), cones.exp])
    flags = np.split(keep, [*sizes, sizes[-1] + len(cones.power)])
    reduced = Cones(
        zero=int(flags[0].sum()),
        nonneg=int(flags[1].sum()),
        soc=tuple(compress(cones.soc, flags[2])),
        psd=tuple(compress(cones.psd, flags[3])),
        exp=int(flags[4].sum()),
        power=tuple(compress(cones.power, flags[5])),
        power_nd=tuple(compress(cones.power_nd, flags[6])),
    )
    N = columns.size
    return ConeData(
        P=sp.csc_array((N, N)),
        q=np.zeros(N),
        A=sp.csc_array(A[np.flatnonzero(held)]),
        b=data.b[held],
        cones=reduced,
        n=int(np.count_nonzero(columns < data.n)),
    )


# Affine blocks with a smaller pivot of QR, relative to the largest, go to the conic program: their
# rows are nearly dependent.
_DEPENDENT = 1e-6
# Affine blocks with more equations than this go to the conic program, which keeps them sparse.
_AFFINE_LIMIT = 300


@dataclass(frozen=True, eq=False)
class Block:
    """Rows and columns of an independent block of a constraint set: ``b - A y`` in cones."""

    matrix: sp.csr_array
    offset: Array
    kinds: list[str]
    rows: Index
    columns: Index
    n: int

    @property
    def auxiliary(self) -> Index:
        """Auxiliary columns of the block, which are no components of x."""
        return self.columns[self.columns >= self.n]

    def row(self, i: int) -> tuple[Index, Array, float]:
        """Return columns, coefficients and constant of the slack s in row i, affine in y."""
        span = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
        return self.matrix.indices[span], -self.matrix.data[span], float(self.offset[i])


def closed_form_of(block: Block) -> tuple[str, ClosedForm] | None:
    """Return a block's kind, and its projection in closed form; None without a closed form."""
    return _simplex(block) or _ball(block) or _affine(block)


def _simplex(block: Block) -> tuple[str, ClosedForm] | None:
    if block.auxiliary.size or set(block.kinds) - {"zero", "nonneg"}:
        return None
    # Vectorized, since a set may have thousands of blocks with thousands of rows.
    matrix, rows, n = block.matrix, block.rows, block.columns.size
    first = matrix.indptr[rows]
    linking = matrix.indptr[rows + 1] - first > 1
    if np.count_nonzero(linking) != 1:
        return None
    equal = np.array([kind == "zero" for kind in block.kinds])
    link = int(np.flatnonzero(linking)[0])
    columns, coefficients, constant = block.row(int(rows[link]))
    if columns.size != n:
        return None
    single = ~linking
    places = np.searchsorted(block.columns, matrix.indices[first[single]])
    slopes = -matrix.data[first[single]]
    roots = -block.offset[rows[single]] / slopes
    lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
    below, above = equal[single] | (slopes > 0), equal[single] | (slopes < 0)
    np.maximum.at(lower, places[below], roots[below])
    np.minimum.at(upper, places[above], roots[above])
    if (lower > upper).any():
        return None
    a = np.empty(n)
    a[np.searchsorted(block.columns, columns)] = -coefficients  # s = constant - a'x
    return "simplex", Simplex(a, constant, lower, upper, bool(equal[link]))


def _ball(block: Block) -> tuple[str, Ball] | None:
    """Return a block as a ball; None unless it is one second-order cone with a fixed radius.

    Each row of the cone has one component of x. Two forms occur: a constant radius, and the cone of
    ``cp.sum_squares(x) <= r``. In the latter, the first two rows hold a bounded auxiliary column t,
    and the difference of their squares is linear in t.
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
    variables = block.columns[block.columns < block.n]
    a, c = np.zeros(variables.size), np.zeros(variables.size)
    for r in tail:
        columns, coefficients, constant = block.row(r)
        if columns.size != 1 or columns[0] >= block.n:
            return None
        j = int(np.searchsorted(variables, columns[0]))
        if a[j] != 0:
            return None
        a[j], c[j] = coefficients[0], constant
    if (a == 0).any() or squared < 0:
        return None
    return "ball", Ball(a, c, float(np.sqrt(squared)))


def _auxiliary_limit(block: Block, rows: list[int]) -> float | None:
    """Return the upper bound of a block's only auxiliary column, given the block's linear rows."""
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
    # Pivoted QR detects dependent rows, for which the block goes to the conic program.
    diagonal = np.abs(np.diag(la.qr(A.T, mode="r", pivoting=True)[0]))
    if diagonal.size < A.shape[0] or diagonal.min() <= _DEPENDENT * diagonal.max():
        return None
    return "affine", Affine(A, block.offset[block.rows])
