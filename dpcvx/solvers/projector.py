r"""Projection onto an agent's constraint set in a weighted norm.

.. math:: \Pi_W^D(v) = \operatorname{argmin}_{x \in W} \tfrac12 \sum_i D_i (x_i - v_i)^2

The cone form of W falls apart into blocks of columns that share no row. Blocks that are boxes,
simplices (one linear constraint over a box), balls and ellipsoids along the axes, or affine sets
have closed forms; the rest is solved by one compiled conic program, or, where v is private, by a
fixed number of steps whose sensitivity is proved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import compress
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..errors import ModelError
from ..model.canonical import ConeData, Cones
from ..model.matrices import without_zeros
from .conic import ConeTest, ConicProgram, Outcome
from .splitting import STRETCH, Splitting, obstacle

Array = NDArray[np.float64]
Index = NDArray[np.intp]
ClosedForm = Callable[[Array, Array], Array]

# Rows closer than this to dependence, relative to the largest, go to the conic program.
_DEPENDENT = 1e-6
# Bounds that contradict each other by no more than this, relative to their size, are rounding.
_ROUNDING = 1e-9
# What rounding leaves of a difference of numbers of size one.
_LAST_DIGITS = 1e-15
# Affine blocks with more equations than this go to the conic program, which keeps them sparse.
_AFFINE_LIMIT = 300
# Points farther away than this, relative to their projection, are projected twice.
_FAR = 1e4
# Gradient steps of a search inside an agent.
_MOST = 100_000


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds of single components; infinite where there is none."""

    lower: Array
    upper: Array

    def __call__(self, v: Array, D: Array) -> Array:
        """Clip: the weights play no role."""
        return np.minimum(np.maximum(v, self.lower), self.upper)  # `numpy.clip` is slower


@dataclass(frozen=True, eq=False)
class Simplex:
    """``a'x = b`` or ``a'x <= b`` over a box; the probability simplex is a = 1, b = 1, x >= 0."""

    a: Array
    b: float
    lower: Array
    upper: Array
    equality: bool

    @property
    def reachable(self) -> bool:
        """Whether the box holds a point of the constraint."""
        least = np.where(self.a > 0, self.a * self.lower, self.a * self.upper)
        most = np.where(self.a > 0, self.a * self.upper, self.a * self.lower)
        unit = float(np.abs(self.a).max())
        under, over = (
            _slack(float(np.abs(ends).sum()) + abs(self.b), 1.0 + abs(self.b), unit)
            for ends in (least, most)
        )
        if least.sum() > self.b + under:
            return False
        return not self.equality or bool(self.b <= most.sum() + over)

    def bounds(self) -> tuple[Array, Array]:
        """The smallest box around the set: what the others leave to each component."""
        least = np.where(self.a > 0, self.a * self.lower, self.a * self.upper)
        most = np.where(self.a > 0, self.a * self.upper, self.a * self.lower)
        lower, upper = self.lower.copy(), self.upper.copy()
        for j in range(self.a.size):
            ends = [(self.b - np.delete(least, j).sum()) / self.a[j], None]
            if self.equality:
                ends[1] = (self.b - np.delete(most, j).sum()) / self.a[j]
            above, below = ends if self.a[j] > 0 else ends[::-1]
            if above is not None and above == above:
                upper[j] = min(upper[j], above)
            if below is not None and below == below:
                lower[j] = max(lower[j], below)
        return lower, upper

    def __call__(self, v: Array, D: Array) -> Array:
        """``x(tau) = clip(v - tau a / D)`` at the root of ``a'x(tau) = b``.

        a'x(tau) falls in tau, and is linear between the breakpoints at which a component reaches
        or leaves a bound. Errors of components between their bounds move the answer by no more
        than themselves. Those of components at their bounds do not: a large one would be made up
        for by components with small coefficients. Sums are therefore exact where it matters.
        """
        inside = np.minimum(np.maximum(v, self.lower), self.upper)
        if not self.equality and self._excess(inside) <= 0:
            return inside
        slope = self.a / D
        one, other = (v - self.lower) / slope, (v - self.upper) / slope
        ends = np.concatenate([one, other])
        first, last = np.minimum(one, other), np.maximum(one, other)  # free in between
        breaks = np.sort(ends[np.isfinite(ends)])

        def at(before: float, after: float, tau: float) -> Array:
            free = (first <= before) & (last >= after)
            early = (slope > 0) == (first >= after)
            bounds = np.where(early, self.upper, self.lower)
            x = np.where(free, v - tau * slope, bounds)
            return np.minimum(np.maximum(x, self.lower), self.upper)

        low, high = -1, breaks.size  # b lies between breakpoints low and high
        while high - low > 1:
            middle = (low + high) // 2
            if self._excess(at(*[float(breaks[middle])] * 3)) >= 0:
                low = middle
            else:
                high = middle
        left = float(breaks[low]) if low >= 0 else -math.inf
        right = float(breaks[high]) if high < breaks.size else math.inf
        free = (first <= left) & (last >= right)
        if not free.any():
            return at(left, left, left) if low >= 0 else at(right, right, right)
        origin = at(left, right, 0.0)
        origin[free] = v[free]
        tau = self._excess(origin, 0.1) / math.fsum((self.a * slope)[free].tolist())
        return at(left, right, min(max(tau, left), right))

    def _excess(self, x: Array, clear: float = 1e-9) -> float:
        """``a'x - b`` with its sign; with all digits too unless `clear` of its terms are left."""
        terms = self.a * x
        total = float(terms.sum()) - self.b
        if abs(total) > clear * (float(np.abs(terms).sum()) + abs(self.b)):
            return total
        rest = _lost(self.a, x)
        if not math.isfinite(total + float(rest.sum())):  # beyond 1e300
            return total
        return math.fsum([*terms.tolist(), *rest.tolist(), -self.b])


def _slack(size: float, most: float, unit: float) -> float:
    """By how much bounds may contradict each other and still do so by rounding.

    Relative to their `size`, since sets may be written in small units, and to `most` where larger
    terms cancel, of which the last digits are lost. Bounds of 0 may themselves be what is left of
    ordinary numbers, times `unit`.
    """
    return _ROUNDING * min(size, most) + _LAST_DIGITS * (size + unit)


def _lost(a: Array, x: Array) -> Array:
    """What rounding takes from the products ``a * x`` (Dekker, 1971)."""
    with np.errstate(over="ignore", invalid="ignore"):
        high_a, high_x = _upper_half(a), _upper_half(x)
        low_a, low_x = a - high_a, x - high_x
        missing = high_a * high_x - a * x + high_a * low_x + low_a * high_x
        return missing + low_a * low_x


def _upper_half(a: Array) -> Array:
    """The first 26 bits of every number."""
    c = 134217729.0 * a
    return c - (c - a)


@dataclass(frozen=True, eq=False)
class Ball:
    """``sum_i (a_i x_i + c_i)^2 <= r^2``: a ball if all a_i agree, else an ellipsoid."""

    a: Array
    c: Array
    r: float

    def __call__(self, v: Array, D: Array) -> Array:
        """``y_i = w_i u_i / (w_i + tau)`` with w = D / a^2, tau at the root of ``||y|| = r``."""
        u = self.a * v + self.c
        if np.linalg.norm(u) <= self.r:
            return v.copy()
        if self.r == 0:
            return -self.c / self.a
        w = D / self.a**2
        tau, y = 0.0, u
        for _ in range(100):  # Newton on 1/||y|| - 1/r: monotone and quadratically convergent
            size = float(np.linalg.norm(y))
            if abs(size - self.r) <= 1e-15 * self.r:
                break
            drop = float(np.sum(y * y / (w + tau))) / size
            following = tau + (size / self.r - 1.0) * size / drop
            if following == tau:
                break
            tau = following
            y = w * u / (w + tau)
        y = y * min(1.0, self.r / float(np.linalg.norm(y)))
        return (y - self.c) / self.a


class Affine:
    """``A x = b`` with independent rows.

    With ``(A D^(-1/2))' = Q R``, in the coordinates y = D^(1/2) x: the part of y in the range of Q
    becomes ``Q R'^-1 b``. The factors are kept for the last weights, which the answer does not
    depend on.
    """

    def __init__(self, A: Array, b: Array) -> None:
        self._A, self._b = A, b
        self._weights: Array | None = None
        self._factors: tuple[Array, Array] | None = None

    def __call__(self, v: Array, D: Array) -> Array:
        """Replace one part of the vector."""
        root = np.sqrt(D)
        if self._weights is None or not np.array_equal(self._weights, D):
            Q, R = la.qr((self._A / root).T, mode="economic")
            self._factors = Q, Q @ la.solve_triangular(R, self._b, trans="T")
            self._weights = D.copy()
        assert self._factors is not None
        Q, fixed = self._factors
        y = root * v
        return (y - Q @ (Q.T @ y) + fixed) / root


class Projection(NamedTuple):
    """A point of W, how it was found, and a bound of its error in the D-norm.

    `x` is None if every attempt failed; closed forms count as exact.
    """

    x: Array | None
    outcome: Outcome = Outcome.SOLVED
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class Extent:
    """Where a point may lie: a box, and balls around 0 of some of its components.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
    balls : tuple of (columns, radius)
    """

    lower: Array
    upper: Array
    balls: tuple[tuple[Index, float], ...] = ()

    def norm2(self, columns: Index) -> float:
        """Largest l2 norm of these components."""
        size = np.maximum(np.abs(self.lower[columns]), np.abs(self.upper[columns]))
        inside = [r for own, r in self.balls if np.isin(columns, own).all()]
        return min([float(np.linalg.norm(size)), *inside])

    def diameter(self, columns: Index) -> float:
        """Bound of the largest distance of two points in these components."""
        squares = (self.upper - self.lower) ** 2
        for own, r in self.balls:
            if np.isin(own, columns).all() and squares[own].sum() > (2 * r) ** 2:
                squares[own] = (2 * r) ** 2 / own.size
        return math.sqrt(float(squares[columns].sum()))

    def contains(self, x: Array) -> bool:
        """Whether a point lies within."""
        inside = bool((self.lower <= x).all() and (x <= self.upper).all())
        return inside and all(float(np.linalg.norm(x[own])) <= r for own, r in self.balls)

    @staticmethod
    def at(x: Array) -> Extent:
        """A single point."""
        return Extent(x, x)


class Projector:
    """Weighted projection onto the set described by cone data.

    Parameters
    ----------
    data : ConeData
        Constraints of the set; its objective is ignored.
    owner : str
        Name of the agent, for messages.

    Attributes
    ----------
    exact : bool
        Whether all blocks have closed forms.
    separable : bool
        Whether W is a product of intervals, so that the projection is nonexpansive entry by entry.
    kinds : Counter
        Number of components per kind of block.
    obstacle : str or None
        Why `steady` cannot be asked, in words.

    Raises
    ------
    ModelError
        If a closed-form block is empty. (Emptiness of conic blocks shows in the first projection.)
    """

    def __init__(self, data: ConeData, owner: str) -> None:
        data = _without_epigraphs(data)
        self.n = data.n
        self.kinds: Counter[str] = Counter()
        lower, upper = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        self._blocks: list[tuple[Index, ClosedForm]] = []
        conic_columns: list[Index] = []
        A = without_zeros(data.A)
        kinds, starts = _row_kinds(data.cones)
        if _contradicts(A, data):
            raise empty_set(owner)
        apart, low, high = _intervals(A, data, kinds, starts)
        own = np.flatnonzero(apart)
        lower[own], upper[own] = low[own], high[own]
        free = int(np.count_nonzero(apart & np.isinf(lower) & np.isinf(upper)))
        self.kinds += Counter(free=free, box=own.size - free)
        for columns, cones in _components(A, kinds, starts):
            if columns.size == 1 and columns[0] < self.n and apart[columns[0]]:
                continue
            rows = np.concatenate([np.arange(starts[c], starts[c + 1]) for c in cones] or [_EMPTY])
            block = _Block(A, data.b, [kinds[c] for c in cones], rows, columns, data.n)
            own = columns[columns < data.n]
            found = _simplex(block) or _ball(block) or _affine(block)
            if found is None:
                conic_columns.append(columns)
                self.kinds["conic"] += own.size
            else:
                if isinstance(found[1], Simplex) and not found[1].reachable:
                    raise empty_set(owner)
                self._blocks.append((own, found[1]))
                self.kinds[found[0]] += own.size
        crossed = lower > upper
        for low, high in zip(lower[crossed], upper[crossed], strict=True):
            size = max(abs(low), abs(high))
            if math.isinf(size) or low - high > _slack(size, 1.0 + size, 1.0):
                raise empty_set(owner)
        lower[crossed] = upper[crossed] = (lower[crossed] + upper[crossed]) / 2
        bounded = bool((lower > -np.inf).any() or (upper < np.inf).any())
        self._box = Box(lower, upper) if bounded else None
        self.separable = not (self.kinds.keys() - {"free", "box"})
        self.exact = not conic_columns
        self.obstacle: str | None = None
        self._conic: ConicProgram | None = None
        self._splitting: Splitting | None = None
        self._conic_own = _EMPTY
        if conic_columns:
            columns = np.sort(np.concatenate(conic_columns))
            self._conic_own = columns[columns < data.n]
            tied = _restricted(data, columns)
            self._conic = ConicProgram(tied)
            self.obstacle = obstacle(tied)
            self._splitting = None if self.obstacle else Splitting(tied)

    def __call__(self, v: Array, D: Array) -> Projection:
        """Project v with positive weights D, both of shape (n,)."""
        x = self._closed(v, D)
        if self._conic is None:
            return Projection(x)
        own = self._conic_own
        answer = self._conic.solve(D[own], None, v[own])
        if answer.x is None:
            return Projection(None, answer.outcome, answer.error)
        x[own] = answer.x
        error = answer.error
        if np.abs(v[own] - answer.x).max() > _FAR * (1.0 + np.abs(answer.x).max()):
            # A solve is accurate relative to the distance; the point itself is to lie in W.
            again = self._conic.solve(D[own], None, answer.x)
            if again.x is not None:
                x[own], error = again.x, error + again.error
        return Projection(x, answer.outcome, error)

    def steady(self, v: Array, D: Array, anchor: Array) -> Array:
        """A point near the projection of v that moves at most `stretch` times as far as v does.

        In the D-norm and for every v, whatever the accuracy of solvers, but for `rounding`. On
        closed forms it is the projection.

        Parameters
        ----------
        v, D : ndarray, shape (n,)
        anchor : ndarray, shape (n,)
            A public point of W that is close to the answer.
        """
        x = self._closed(v, D)
        if self._conic is not None:
            own = self._conic_own
            assert self._splitting is not None, self.obstacle
            x[own] = self._splitting(v[own], D[own], anchor[own])
        return x

    @property
    def stretch(self) -> float:
        """How far answers of `steady` move, in the D-norm, per unit that v moves."""
        return 1.0 if self._conic is None else STRETCH

    def rounding(self, D: Array, anchor: Array, reach: float) -> float:
        """Bound of what rounding adds to conic answers of `steady`, for ``||v - anchor||_D``.

        Closed forms round in the last digits of the numbers that enter them.
        """
        if self._splitting is None:
            return 0.0
        own = self._conic_own
        return self._splitting.rounding(D[own], anchor[own], reach)

    def _closed(self, v: Array, D: Array) -> Array:
        """Blocks with closed forms projected, others left as they are."""
        x = v.copy() if self._box is None else self._box(v, D)
        for own, closed_form in self._blocks:
            x[own] = closed_form(v[own], D[own])
        return x

    def nearest(self, v: Array) -> Array:
        """The point of W closest to v, shape (n,), where all blocks have closed forms."""
        x = self(v, np.ones_like(v)).x
        assert self.exact and x is not None
        return x

    def centers(self) -> Array:
        """Centers of balls, 0 elsewhere: rounding of the projection is relative to these too."""
        out = np.zeros(self.n)
        for own, form in self._blocks:
            if isinstance(form, Ball):
                out[own] = form.c / form.a
        return out

    def _closed_forms(self) -> list[tuple[Index, ClosedForm]]:
        whole = np.arange(self.n)
        return self._blocks + ([] if self._box is None else [(whole, self._box)])

    def extent(self) -> Extent:
        """A box, and balls, that contain W; infinite where none is known from closed forms."""
        lower, upper = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        balls: list[tuple[Index, float]] = []
        for own, form in self._closed_forms():
            low, high = -np.inf, np.inf
            if isinstance(form, Box):
                low, high = form.lower, form.upper
            elif isinstance(form, Simplex):
                low, high = form.bounds()
            elif isinstance(form, Ball):
                center = -form.c / form.a
                radius = form.r / np.abs(form.a)
                low, high = center - radius, center + radius
                balls.append((own, float(np.linalg.norm(center) + radius.max())))
            lower[own] = np.maximum(lower[own], low)
            upper[own] = np.minimum(upper[own], high)
        if self._conic is not None:
            low, high = self._conic.extent()
            lower[self._conic_own], upper[self._conic_own] = low, high
        return Extent(lower, upper, tuple(balls))

    def violation(self, x: Array) -> float:
        """How far x violates W: the largest violated row, or distance where rows do not tell."""
        ones = np.ones(self.n)
        worst = [
            np.max(np.abs(x[own] - closed_form(x[own], ones[own])), initial=0.0)
            for own, closed_form in self._closed_forms()
        ]
        if self._conic is not None:
            own = self._conic_own
            rows = self._conic.violation(x[own])
            if rows is None:
                answer = self._conic.solve(ones[own], None, x[own])
                rows = np.nan if answer.x is None else np.max(np.abs(x[own] - answer.x))
            worst.append(rows)
        return float(np.max(worst, initial=0.0))  # nan if one is: `max` passes over it

    def __str__(self) -> str:
        order = ("free", "box", "simplex", "ball", "affine", "conic")
        return ", ".join(f"{self.kinds[k]} {k}" for k in order if self.kinds[k])


def empty_set(owner: str) -> ModelError:
    """The error for a constraint set without points."""
    return ModelError(
        f"The constraints of agent '{owner}' admit no point, so it has no local decision to make. "
        "Solve cp.Problem(cp.Minimize(0), constraints) with them to find the conflict."
    )


_EMPTY = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class _Block:
    """Rows and columns of one connected part of W: ``s = b - A y`` in the cones."""

    matrix: sp.csr_array
    offset: Array
    kinds: list[str]
    rows: Index
    columns: Index
    n: int

    @property
    def auxiliary(self) -> Index:
        return self.columns[self.columns >= self.n]

    def row(self, i: int) -> tuple[Index, Array, float]:
        """Columns, coefficients of s and constant of s in row i."""
        span = slice(self.matrix.indptr[i], self.matrix.indptr[i + 1])
        return self.matrix.indices[span], -self.matrix.data[span], float(self.offset[i])


def _without_epigraphs(data: ConeData) -> ConeData:
    """Fix auxiliary columns whose increase loosens every row but their own upper bounds.

    ``cp.abs(x) <= r`` and ``cp.norm(x) <= r`` introduce such a column t with t <= r: the set of x
    is largest at t = r. Fixing it separates the components and uncovers boxes and balls.
    """
    A, b = sp.csc_array(data.A), data.b.copy()
    by_row = sp.csr_array(A)
    single = np.diff(by_row.indptr) == 1
    kinds, starts = _row_kinds(data.cones)
    loosened = np.zeros(b.size, dtype=bool)  # rows in which a larger s is always allowed
    inequality = np.zeros(b.size, dtype=bool)
    for kind, start in zip(kinds, starts, strict=False):
        loosened[start] = kind in ("nonneg", "soc")
        inequality[start] = kind == "nonneg"
    auxiliary = A[:, data.n :].tocoo()
    rows, columns, effect = auxiliary.row, auxiliary.col, -auxiliary.data
    bounds = single[rows] & inequality[rows] & (effect < 0)
    tops = np.full(A.shape[1] - data.n, np.inf)
    np.minimum.at(tops, columns[bounds], b[rows[bounds]] / -effect[bounds])
    fixed = np.isfinite(tops)
    fixed[columns[~bounds & ~(loosened[rows] & (effect > 0))]] = False
    if not fixed.any():
        return data
    held = fixed[columns]
    np.add.at(b, rows[held], effect[held] * tops[columns[held]])
    dropped = np.zeros(b.size, dtype=bool)
    dropped[rows[held & bounds]] = True
    keep = np.concatenate([np.arange(data.n), data.n + np.flatnonzero(~fixed)])
    return _restricted(replace(data, b=b), keep, ~dropped)


def _row_kinds(cones: Cones) -> tuple[list[str], Index]:
    blocks = cones.blocks()
    starts = np.concatenate([[0], np.cumsum([size for _, size in blocks])]).astype(np.intp)
    return [kind for kind, _ in blocks], starts


def _any_row(flags: NDArray[np.bool_], starts: Index) -> NDArray[np.bool_]:
    """Per cone, whether one of its rows is flagged."""
    if starts.size == 1:
        return np.zeros(0, dtype=bool)
    return np.logical_or.reduceat(flags, starts[:-1])


def _contradicts(A: sp.csr_array, data: ConeData) -> bool:
    """Whether a cone without columns, such as the row ``0 <= -1``, can never hold."""
    _, starts = _row_kinds(data.cones)
    constant = ~_any_row(np.diff(A.indptr) > 0, starts)
    if not constant.any():
        return False
    alone = _restricted(data, _EMPTY, np.repeat(constant, np.diff(starts)))
    # Exponential and power cones without columns do not occur: cvxpy folds their constants.
    violated = ConeTest(alone.cones)(alone.b) or 0.0
    return violated > _ROUNDING * (1.0 + float(np.abs(alone.b).max()))


def _components(A: sp.csr_array, kinds: list[str], starts: Index) -> list[tuple[Index, list[int]]]:
    """Columns and cones of every connected component of the column-cone graph."""
    cone_of_row = np.repeat(np.arange(len(kinds)), np.diff(starts))
    coo = A.tocoo()
    links = sp.coo_array(
        (np.ones(coo.nnz), (cone_of_row[coo.row], coo.col)), shape=(len(kinds), A.shape[1])
    )
    m, n = links.shape
    graph = sp.block_array([[None, links], [links.T, None]]) if m else sp.coo_array((n, n))
    _, label = connected_components(graph, directed=False)
    cones_by: dict[int, list[int]] = {}
    for c in range(m):
        cones_by.setdefault(int(label[c]), []).append(c)
    columns_by: dict[int, list[int]] = {}
    for j in range(n):
        columns_by.setdefault(int(label[m + j]), []).append(j)
    # Rows without columns belong to no block; cvxpy emits them for constant constraints.
    return [
        (np.array(columns, dtype=np.intp), cones_by.get(key, []))
        for key, columns in columns_by.items()
    ]


def _intervals(
    A: sp.csr_array, data: ConeData, kinds: list[str], starts: Index
) -> tuple[NDArray[np.bool_], Array, Array]:
    """Which own columns are bounded by rows of their own only, or not at all, and the bounds."""
    simple = np.isin(np.repeat(kinds, np.diff(starts)), ("zero", "nonneg"))
    equality = np.repeat(np.array(kinds) == "zero", np.diff(starts))
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


def _simplex(block: _Block) -> tuple[str, ClosedForm] | None:
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


def _ball(block: _Block) -> tuple[str, ClosedForm] | None:
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


def _auxiliary_limit(block: _Block, rows: list[int]) -> float | None:
    """Upper bound of the only auxiliary column from the one-row cones of the block."""
    if block.auxiliary.size != 1 or len(rows) != 1:
        return None
    columns, coefficients, constant = block.row(rows[0])
    if columns.tolist() != [int(block.auxiliary[0])] or coefficients[0] >= 0:
        return None
    return -constant / coefficients[0]


def _affine(block: _Block) -> tuple[str, ClosedForm] | None:
    if block.auxiliary.size or set(block.kinds) - {"zero"} or block.rows.size > _AFFINE_LIMIT:
        return None
    A = block.matrix[block.rows][:, block.columns].toarray()
    # Pivoted QR finds independent rows; dependent ones leave the set to the conic program.
    diagonal = np.abs(np.diag(la.qr(A.T, mode="r", pivoting=True)[0]))
    if diagonal.size < A.shape[0] or diagonal.min() <= _DEPENDENT * diagonal.max():
        return None
    return "affine", Affine(A, block.offset[block.rows])


def _restricted(data: ConeData, columns: Index, rows: NDArray[np.bool_] | None = None) -> ConeData:
    """The constraints on some columns, without an objective.

    Kept are the cones with a row among `rows` (those that touch the columns if omitted).
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


@dataclass(frozen=True, eq=False)
class Contraction:
    """A public linear map; in l2 it lengthens no vector.

    Attributes
    ----------
    apply : callable
    norm1, norm2 : float
        Bounds of its operator norm in l1 and l2.
    """

    apply: Callable[[Array], Array]
    norm1: float
    norm2: float

    def __call__(self, v: Array) -> Array:
        """The image of v."""
        return self.apply(v)


@dataclass(frozen=True, eq=False)
class Descent:
    """A step along a gradient, ``center - size through(g)``.

    Attributes
    ----------
    center : ndarray, shape (n,)
        Public, or else the point is to leave `whole`.
    size : float
    through : Contraction, optional
    whole : bool
        Whether the new point leaves, with noise of its own, in place of the gradient.
    only : ndarray of int, optional
        The components that move, and leave, of a whole point.
    """

    center: Array
    size: float
    through: Contraction | None = None
    whole: bool = False
    only: Index | None = None

    @property
    def moving(self) -> Array | None:
        """1 for components that move and 0 for others, shape (n,); None if all do."""
        if self.only is None:
            return None
        out = np.zeros(self.center.size)
        out[self.only] = 1.0
        return out

    def __call__(self, g: Array) -> Array:
        """The new point for gradient g, shape (n,)."""
        return self.center - self.size * (g if self.through is None else self.through(g))


@dataclass(frozen=True)
class Minimisation:
    r"""Gradient steps towards ``argmin_{x in W} f(x) + D/2 ||x - v||^2``, in a fixed number.

    For m-strongly convex f with an L-smooth gradient, a step of length 1 / (L + D), and the
    projection after it, shrink the distance of two points by :math:`q = (L - m) / (L + D)`. If the
    gradients of two such functions are nowhere farther apart than :math:`\Delta`, the ends of both
    searches are at most

    .. math:: \frac{\Delta}{L + D} (1 + q + \dots + q^{K - 1}) = \Delta \frac{1 - q^K}{m + D}

    apart, however far both are from the minimisers. No solver's accuracy is relied upon.

    In l1, projections onto products of intervals do not expand either. A step takes second
    derivatives G to :math:`(L I - G) / (L + D)`, whose norm in l1 is at most
    :math:`q_1 = (\|L I - H\|_1 + \sqrt n\, \varrho) / (L + D)` for G within :math:`\varrho` of H:
    the same holds with q_1, and :math:`\Delta` in l1.

    Attributes
    ----------
    D : float
    L : float
    m : float
        At most L.
    steps : int
        K.
    """

    D: float
    L: float
    m: float
    steps: int

    @classmethod
    def close(cls, D: float, L: float, m: float) -> Minimisation:
        """As many steps as leave 1e-12 of the distance at the beginning.

        Raises
        ------
        ModelError
            If that takes more than 100,000.
        """
        gain = (m + D) / (L + D)
        steps = math.inf if gain == 0 else math.log(1e-12) / math.log1p(-min(gain, 1 - 1e-12))
        if not steps <= _MOST:
            raise ModelError(
                f"A local minimiser takes {steps:.3g} gradient steps with D = {D:g} and the "
                f"smoothness constant {L:g}, about 28 (L + D) / (m + D): too many. Write a larger "
                "D, or leave exact= out."
            )
        return cls(D, L, m, math.ceil(steps))

    @property
    def stretch(self) -> float:
        """How far the end moves per unit that the gradient moves."""
        q = (self.L - self.m) / (self.L + self.D)
        return (1 - q**self.steps) / (self.m + self.D)

    @property
    def repeats(self) -> float:
        """Rounding errors of one step that the end has at most, in units of 64 of them.

        Every step adds its own, and shrinks those before it.
        """
        return max(1.0, (self.L + self.D) / (self.m + self.D) / 64)

    def stretch_in_l1(self, center: sp.csr_array, spread: float) -> float:
        """The same in l1, on products of intervals.

        Parameters
        ----------
        center : csr_array, shape (n, n)
            H.
        spread : float
            How far second derivatives are from it, in the spectral norm.
        """
        n = center.shape[0]
        rest = abs(self.L * sp.eye_array(n, format="csr") - center).sum(axis=0).max()
        q = (float(rest) + math.sqrt(n) * spread) / (self.L + self.D)
        if q >= 1:
            return math.inf
        return (1 - q**self.steps) / ((1 - q) * (self.L + self.D))

    def __call__(
        self, v: Array, gradient: Callable[[Array], Array], project: Callable[[Array], Array]
    ) -> Array:
        """The end of the search that begins at v, shape (n,)."""
        x = project(v)
        for _ in range(self.steps):
            x = project(x - (gradient(x) + self.D * (x - v)) / (self.L + self.D))
        return x


@dataclass(frozen=True, eq=False)
class ProximalStep:
    r"""The constrained local step of a linearised method as a function of the gradient.

    .. math:: x^+ = \operatorname{argmin}_{x \in W} \langle g, x \rangle
              + \tfrac12 \| x - c \|_D^2 = \Pi_W^D(c - g / D)

    Attributes
    ----------
    projector : Projector
    center : ndarray, shape (n,)
        c, public.
    D : ndarray, shape (n,)
        Positive weights, public.
    anchor : ndarray, shape (n,)
        A public point of W, near which the step is expected.
    asserted : float or None
        Sensitivity of the step that is claimed instead of derived.
    """

    projector: Projector
    center: Array
    D: Array
    anchor: Array
    asserted: float | None = None

    def __call__(self, g: Array) -> Projection:
        """The step for gradient g, shape (n,)."""
        return self.projector(self.center - g / self.D, self.D)

    def within(self, g: Array, reach: float) -> Projection:
        """The step for gradient g, with the projected point kept within `reach` of the anchor."""
        return self.projector(self._near(g, reach), self.D)

    def steady(self, g: Array, reach: float) -> Array:
        """A point near `within` that provably moves little with g; see `Projector.steady`."""
        return self.projector.steady(self._near(g, reach), self.D, self.anchor)

    def _near(self, g: Array, reach: float) -> Array:
        """Moving a point onto a ball around another is nonexpansive in the D-norm.

        So a bound of how far a step moves with g survives, and numbers cannot grow.
        """
        away = self.center - g / self.D - self.anchor
        length = float(np.linalg.norm(np.sqrt(self.D) * away))
        return self.anchor + min(1.0, reach / max(length, reach)) * away

    @property
    def reach(self) -> float:
        """A generous length of a step, in the D-norm: the anchor's, and at least one unit."""
        return max(
            math.sqrt(float(self.D.max())), float(np.linalg.norm(np.sqrt(self.D) * self.anchor))
        )

    def rounding(self, reach: float) -> float:
        """Bound of what rounding adds to conic answers of `steady`, in the D-norm."""
        return self.projector.rounding(self.D, self.anchor, reach)
