r"""Noise shaped to a problem: the best linear statistic K d of the data d to release.

**Private data in constraints.** All of these data must be recoverable from the release. If K d is
released with noise, the error of the recovered data is :math:`N Y` with :math:`N = K^+ \sigma` and
Y of variance one. A constraint row with the linear coefficient b in the data needs a margin of a
few :math:`|N' b|`. With prices :math:`\lambda_j` of margins and the influence W of the data on the
optimum, the expected cost of the noise is

.. math:: F(N) = \tfrac12 \operatorname{tr}(W N N') + c \sum_j \lambda_j |B_j N|_F + h |N|_F .

For Gaussian noise, the search bounds each norm by a quadratic that touches it at the last N, and
computes the best shape for this quadratic cost; every iteration lowers F. For Laplace noise this
iteration fails: releasing a row beside the entries is more accurate for a sum of many entries. A
search chooses the weight of each such row.

**Private data in the objective only.** The release of K d with noise scaled to the sensitivity of K
is private for every K that follows from public numbers, because the sensitivity is derived for that
K. No guarantee rests on the search. The noise in the recovered data has the covariance
:math:`\sigma^2 X^{-1}` with :math:`X = K'K`, and the expected cost
:math:`\tfrac12 \sigma^2 \operatorname{tr}(W X^{-1})`. The best K for Gaussian noise is a root of
the solution of the convex problem

.. math::
    \operatorname{minimize} \operatorname{tr}(W X^{-1}) \quad \text{subject to} \quad
    a_j' X a_j \le 1 \text{ for every change } a_j

(the matrix mechanism of Li et al., 0912.4742). Its dual has one weight per change:
:math:`X = W^{1/2} (W^{1/2} M W^{1/2})^{-1/2} W^{1/2}` with :math:`M = \sum_j \lambda_j a_j a_j'`,
where :math:`\lambda_j` is positive only if :math:`a_j' X a_j = 1`. Repeatedly multiplying each
weight by :math:`a_j' X a_j` converges to it, and the dual value bounds the remaining error.

For Laplace noise, the sensitivity is the largest l1 norm of a column of K, which does not depend on
X alone. A local search starts from the Gaussian shape; its result need not be optimal.

The searches are minimized as a batch by L-BFGS (Liu and Nocedal, 1989). Every function has a row of
its own. No computation mixes rows, so no bit of a row's result depends on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..sensitivity.release_once import left_inverse

Array = NDArray[np.float64]

# Typical margin, in standard deviations of the noise in a row.
_DEVIATIONS = 4.0
# Share of the cost that is assumed for inactive constraints, and for directions of the data without
# influence, because the true data differ from the proxy data. Such directions get more noise, but
# not so much that the problem responds differently than predicted.
_HEDGE = 0.1
# Least share of the cost of a row that is released beside the entries, and largest number of such
# rows.
_NOTED, _ROWS = 0.05, 8
# Largest number of entries of data whose noise is shaped.
_ENTRIES = 600
# Largest predicted share of the cost that shaped noise may leave, to be chosen.
_WORTH = 0.95
_TURNS = 4


@dataclass(frozen=True, eq=False)
class Stake:
    """Rows of a constraint with private data, linearized at the optimum for public proxy data."""

    rows: Array  # shape (q, D); linear coefficients of the rows in the agent's data
    price: float  # cost of a unit of margin, in units of the objective
    bends: bool = False  # whether `rows` depend on the variables

    def length(self, noise: Array) -> float:
        """Return the l2 norm of the rows' standard deviations under noise N Y in the data.

        The entries of Y have variance 1, and `noise` is N.
        """
        return float(np.linalg.norm(self.rows @ noise))


def costs(stakes: Sequence[Stake], lengths: Array) -> Array:
    """Return each constraint's share in the cost of margins; inactive ones get a small share.

    Parameters
    ----------
    stakes : sequence of Stake
    lengths : ndarray
        Standard deviation of each stake's rows; see `Stake.length`.

    Returns
    -------
    ndarray
        Shares with sum one; zeros if no margin has a price.
    """
    prices = np.array([stake.price for stake in stakes]) * lengths
    total = float(prices.sum())
    if not 0 < total < np.inf:
        return np.zeros(len(stakes))
    return (prices / total + _HEDGE / len(stakes)) / (1 + _HEDGE)


def data_shape(
    units: Array, stakes: Sequence[Stake], influence: Array, variance: float, p: int
) -> Array | None:
    """Return the matrix of a statistic that determines all data, if shaped noise is worth it.

    Parameters
    ----------
    units : ndarray, shape (D,)
        Largest change of each entry; one change of the data changes a single entry.
    stakes : sequence of Stake
        Linearized rows of the constraints with these data, and the prices of their margins.
    influence : ndarray, shape (D, D)
        Influence W of the data: noise of covariance S in them costs tr(W S) / 2 in the objective.
    variance : float
        Variance of the noise in one component of a statistic of sensitivity one.
    p : {1, 2}
        Norm of the mechanism.

    Returns
    -------
    ndarray, shape (r, D), or None
        Matrix K of the statistic, of rank D; None if shaped noise is not much better.
    """
    size, deviation = units.size, float(np.sqrt(variance))
    if size > _ENTRIES:
        return None
    plain = deviation * np.diag(units)
    lengths = np.array([stake.length(plain) for stake in stakes])
    shares, moved = costs(stakes, lengths), lengths > 0
    if not shares.any():
        return None
    # Prices of the stakes, adjusted by the hedge.
    unit = (1 + _HEDGE) * float(np.dot([stake.price for stake in stakes], lengths))
    prices = np.zeros(len(stakes))
    prices[moved] = _DEVIATIONS * unit * shares[moved] / lengths[moved]
    # If `rows` depend on the variables, all directions of the data count equally.
    bends = np.array([stake.bends for stake in stakes])
    level = _DEVIATIONS * unit * (_HEDGE + shares[bends].sum()) / (deviation * np.sqrt(size))
    prices[bends] = 0.0

    def noise(K: Array) -> Array:
        sensitivity = np.linalg.norm(K * units, p, axis=0).max()
        return deviation * sensitivity * left_inverse(K)

    def cost(N: Array) -> float:
        margins = sum(w * s.length(N) for w, s in zip(prices, stakes, strict=True))
        every = level * float(np.linalg.norm(N / units[:, None]))
        return float(np.sum((influence @ N) * N)) / 2 + margins + every

    shapes: list[Array] = []
    N = plain
    for _ in range(_TURNS if p == 2 else 1):
        W = influence + np.diag(level / np.linalg.norm(N / units[:, None]) / units**2)
        for weight, stake in zip(prices, stakes, strict=True):
            if weight > 0:
                W += weight / stake.length(N) * stake.rows.T @ stake.rows
        K = best_shape(np.diag(units), W, p)
        if K is None or np.linalg.matrix_rank(K) < size:
            break
        shapes, N = [*shapes, K / units], noise(K / units)
    if p == 1:
        noted = [k for k in np.argsort(-shares, kind="stable") if shares[k] > _NOTED and prices[k]]
        shapes.append(_with_rows(units, [stakes[k].rows for k in noted], lambda K: cost(noise(K))))
    best = min(shapes, key=lambda K: cost(noise(K)), default=None)
    if best is None or not cost(noise(best)) < _WORTH * cost(plain):
        return None
    return best


def _with_rows(units: Array, rows: Sequence[Array], cost: Callable[[Array], float]) -> Array:
    """Return the matrix of all data entries plus extra rows, with weights of least cost."""
    entries = np.diag(1 / units)
    every = np.concatenate([np.zeros((0, units.size)), *rows])
    heights = np.abs(every * units).max(axis=1)
    more = (every[heights > 0] / heights[heights > 0, None])[:_ROWS]

    def stacked(loud: Array) -> Array:
        return np.concatenate([entries, np.exp(loud)[:, None] * more])

    if not len(more):
        return entries
    start = np.zeros(len(more))
    return stacked(minimize(lambda v: cost(stacked(v)), start, method="Nelder-Mead").x)


# Largest relative excess over the cost of the best shape, by the dual value.
_EXCESS = 0.01
_ROUNDS = 300
# Largest number of multiplications of a search.
_WORK = 2e9
# Relative singular value below which the data do not move a direction.
_RANK = 1e-9
# Least eigenvalue in roots, relative to the largest eigenvalue.
_ROUNDED = 1e-14
# Smoothing of the largest l1 norm in consecutive searches: the width of the rounded corner of
# absolute values, relative to their mean, and the power of the mean that replaces the maximum.
_SMOOTH = (
    (0.1, 10), (0.05, 20), (0.02, 40), (0.01, 80), (0.005, 160), (0.002, 300), (0.001, 600),
)  # fmt: skip
_CHANGE, _STEPS = 1e-5, 100
# After this number of searches, tasks end whose cost is not within this factor of `below`: later
# searches take two thirds of the time, and lowered the cost to 0.80 at best in 180 random problems.
_FIRST, _LATER = 1, 0.8


@dataclass(frozen=True, eq=False)
class ShapeTask:
    r"""Search for a statistic of least expected cost, if one change changes a single entry.

    Attributes
    ----------
    changes : ndarray, shape (n, N)
        Effect of one change of each entry of the data on the linear coefficient.
    influence : ndarray, shape (n, n)
        Influence W of the linear coefficient, positive semidefinite: noise of covariance S in it
        costs :math:`\tfrac12 \operatorname{tr}(W S)`.
    p : {1, 2}
        Norm of the mechanism.
    below : float
        Upper limit on :math:`\operatorname{tr}(W S)` for noise of variance one; a shape with a
        larger value is of no use.
    """

    changes: Array
    influence: Array
    p: int
    below: float = np.inf


@dataclass(frozen=True, eq=False)
class _Gaussian:
    """Best statistic for Gaussian noise, in coordinates along the range of the data's changes."""

    R: Array  # shape (r, r); the shape, K = R V
    W: Array  # shape (r, r); the influence
    hedged: Array  # shape (r, r); the relative influence with a hedge
    V: Array  # shape (r, N); the changes
    below: float


def best_shapes(tasks: Sequence[ShapeTask]) -> list[Array | None]:
    """Return the statistic of least expected cost for each task; for p = 1, of low cost.

    All tasks with p = 1 are searched as a batch, with the result of single searches.

    Parameters
    ----------
    tasks : sequence of ShapeTask

    Returns
    -------
    list of (ndarray, shape (r, N), or None)
        Matrix K, for data in units of their changes. r is the rank of the changes, so K d
        determines the linear coefficient. None if there is no influence, if no shape is useful, or
        if the search would take too long.
    """
    starts = [_in_l2(task) for task in tasks]
    shapes = [None if start is None else start.R @ start.V for start in starts]
    together: dict[tuple[int, ...], list[int]] = {}
    for k, (task, start) in enumerate(zip(tasks, starts, strict=True)):
        if task.p == 1 and start is not None:
            together.setdefault(start.V.shape, []).append(k)
    for positions in together.values():
        begun = [start for k in positions if (start := starts[k]) is not None]
        for k, start, R in zip(positions, begun, _shorter(begun), strict=True):
            shapes[k] = None if R is None else R @ start.V
    return shapes


def best_shape(changes: Array, influence: Array, p: int, below: float = np.inf) -> Array | None:
    """Return the statistic of least expected cost for one task; see `best_shapes`."""
    return best_shapes([ShapeTask(changes, influence, p, below)])[0]


def _in_l2(task: ShapeTask) -> _Gaussian | None:
    """Return the best statistic for Gaussian noise (p = 2); None as `best_shapes` says."""
    changes, below = task.changes, task.below
    n, size = changes.shape
    least = min(n, size)
    if n * size * least + _ROUNDS * least * least * (size + 10 * least) > _WORK:
        return None
    lengths = np.linalg.norm(changes, axis=1)
    unit = np.where(lengths > 0, lengths, 1.0)
    U, s, V = np.linalg.svd(changes / unit[:, None], full_matrices=False)
    nonzero = s > _RANK * s.max(initial=0.0)
    # Coordinates along V do not depend on units of variables; data are in units of their changes.
    U, V = (U[:, nonzero] * s[nonzero]) * unit[:, None], V[nonzero]
    with np.errstate(all="ignore"):  # if squares overflow, there is no shape
        W = U.T @ task.influence @ U
        felt = float(np.trace(W))
    if not 0 < felt < np.inf:
        return None
    hedged = W / felt + _HEDGE / len(W) * np.eye(len(W))
    X = _optimal(hedged, V)
    # In l1, columns are at least as long as in l2, so this bound holds for p = 1 as well.
    if float(np.sum(np.linalg.inv(X) * W)) > (1 + _EXCESS) * below:
        return None
    # R along the eigenvectors of X does not depend on the axes of V.
    values, vectors = np.linalg.eigh(X)
    R = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    if len(V) == size:  # rotate so that K is close to a diagonal matrix
        R = V.T @ vectors @ R
    return _Gaussian(R, W, hedged, V, below)


def _spreads(R: Array, W: Array, changes: Array) -> Array:
    """Return ``tr(W (R'R)^-1)`` times the squared largest l1 norm of R a, for each matrix R.

    Up to a factor, it is the expected cost of Laplace noise on the statistic R; a is a column of
    `changes`.
    """
    inverse = _inverses(R)
    costs = np.sum((inverse @ inverse.mT) * W, axis=(-2, -1))
    return costs * np.abs(R @ changes).sum(axis=-2).max(axis=-1) ** 2


def _inverses(R: Array) -> Array:
    """Return the inverses of matrices, shape (b, r, r), not finite for singular matrices."""
    try:
        return np.asarray(np.linalg.inv(R), dtype=np.float64)
    except np.linalg.LinAlgError:
        pass
    inverses = np.full(R.shape, np.nan)
    for k, matrix in enumerate(R):
        with suppress(np.linalg.LinAlgError):
            inverses[k] = np.linalg.inv(matrix)
    return inverses


def _optimal(W: Array, changes: Array) -> Array:
    """Return the X of least ``tr(W X^-1)`` under the module's constraints, up to `_EXCESS`."""
    root = _root(W)
    weights = np.ones(changes.shape[1])
    for _ in range(_ROUNDS):
        values, vectors = np.linalg.eigh(root @ (changes * weights) @ changes.T @ root)
        values = np.maximum(values, _ROUNDED * values[-1])
        half = root @ vectors / values**0.25
        squares = np.sum((half.T @ changes) ** 2, axis=0)
        X = half @ half.T / squares.max()
        if squares.max() * weights.sum() <= (1 + _EXCESS) * np.sqrt(values).sum():
            return X
        weights = weights * squares
    return X


def _shorter(begun: Sequence[_Gaussian]) -> list[Array | None]:
    """Return a statistic R for Laplace noise per task, by local search from `begun`.

    It is None if its expected cost is above the limit of the task.
    """
    R, V = np.array([start.R for start in begun]), np.array([start.V for start in begun])
    W, hedged = np.array([start.W for start in begun]), np.array([start.hedged for start in begun])
    below, going = np.array([start.below for start in begun]), np.arange(len(begun))
    for k, (corner, power) in enumerate(_SMOOTH):
        if k == _FIRST:
            going = np.flatnonzero(_spreads(R, W, V) < below / _LATER)
        if not going.size:
            break
        R[going] = _descended(R[going], hedged[going], V[going], corner, power)
    useful = np.zeros(len(begun), dtype=bool)
    useful[going] = _spreads(R[going], W[going], V[going]) <= (1 + _EXCESS) * below[going]
    return [shape if use else None for shape, use in zip(R, useful.tolist(), strict=True)]


def _descended(R: Array, W: Array, changes: Array, corner: float, power: int) -> Array:
    """Return statistics R of lower expected cost, with absolute values and maxima smoothed."""
    moved = np.abs(R @ changes)
    largest = moved.sum(axis=-2).max(axis=-1)
    squares = (corner * moved.mean(axis=(-2, -1)) / largest)[:, None, None] ** 2
    shape, across = R.shape[1:], np.ascontiguousarray(changes.mT)

    def cost(entries: Array, rows: NDArray[np.intp]) -> tuple[Array, Array]:
        R = entries.reshape(-1, *shape)
        Y = R @ changes[rows]
        smooth = np.sqrt(Y * Y + squares[rows])
        lengths = smooth.sum(axis=-2)
        top = lengths.max(axis=-1, keepdims=True)
        parts = (lengths / top) ** power
        every = parts.sum(axis=-1, keepdims=True)
        inverse = _inverses(R)
        half = W[rows] @ inverse
        total = np.einsum("bij,bij->b", inverse, half)
        slope = (2 * Y / smooth * (parts / lengths / every)[:, None, :]) @ across[rows]
        slope -= (2 / total)[:, None, None] * (inverse.mT @ half @ inverse.mT)
        # The mean of a power replaces the maximum.
        most = 2 * np.log(top) + 2 / power * np.log(every / parts.shape[-1])
        return np.log(total) + most[:, 0], slope.reshape(len(R), -1)

    start = (R / largest[:, None, None]).reshape(len(R), -1)
    return descend(cost, start, _CHANGE, _STEPS).reshape(R.shape)


def _root(X: Array) -> Array:
    """Return the symmetric square root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((X + X.T) / 2)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


Index = NDArray[np.intp]

# Number of stored pairs of a step and the change of the gradient.
_PAIRS = 5
# Weak Wolfe conditions: share of the predicted decrease, and largest remaining share of the
# directional derivative. Then the largest number of trial points in a line search.
_DECREASE, _DERIVATIVE = 1e-3, 0.9
_TRIALS = 20
# A row has converged if no entry of its gradient is larger.
_SLOPE = 1e-5


def descend(
    cost: Callable[[Array, Index], tuple[Array, Array]], start: Array, change: float, most: int
) -> Array:
    """Return an approximate local minimizer for every row.

    Parameters
    ----------
    cost : callable
        Function of points, shape (b, d), and the positions of their rows, shape (b,). It returns
        values, shape (b,), and gradients, shape (b, d). Values that are not finite count as
        infinite.
    start : ndarray, shape (B, d)
        Initial point of each row.
    change : float
        A row has converged if a step lowers its value v by less than ``change * max(abs(v), 1)``.
    most : int
        Largest number of steps of a row.

    Returns
    -------
    ndarray, shape (B, d)
        Points; no value is above the value at its initial point.
    """
    points, rows = start.copy(), np.arange(len(start))
    x = points.copy()
    value, slope = cost(x, rows)
    pairs: list[tuple[Array, Array, Array]] = []
    scale = 1 / np.maximum(np.linalg.norm(slope, axis=-1), 1.0)
    for _ in range(most):
        moving = np.abs(slope).max(axis=-1) > _SLOPE
        direction = -_scaled(slope, pairs, scale)
        fall = _dot(slope, direction)
        moving &= fall < 0
        after, lower, other = _along(cost, rows, x, value, slope, direction, fall, moving)
        moving &= lower < value
        moving &= value - lower > change * np.maximum(np.maximum(abs(value), abs(lower)), 1.0)
        improved = lower <= value
        points[rows[improved]] = after[improved]
        if not moving.any():
            break
        step, turn = after - x, other - slope
        along, curved = _dot(step, turn), _dot(turn, turn)
        bends = along > 1e-16 * curved
        with np.errstate(divide="ignore", invalid="ignore"):
            pairs.append((step, turn, np.where(bends, 1 / along, 0.0)))
            scale = np.where(bends, along / curved, scale)
        pairs = [
            (step[moving], turn[moving], inverse[moving]) for step, turn, inverse in pairs[-_PAIRS:]
        ]
        x, value, slope = after[moving], lower[moving], other[moving]
        rows, scale = rows[moving], scale[moving]
    return points


def _dot(first: Array, second: Array) -> Array:
    return np.einsum("bd,bd->b", first, second)


def _scaled(slope: Array, pairs: list[tuple[Array, Array, Array]], scale: Array) -> Array:
    """Return the L-BFGS approximation of the inverse Hessian times the gradient, by row."""
    direction, weights = slope, []
    for step, turn, inverse in reversed(pairs):
        weight = inverse * _dot(step, direction)
        direction = direction - weight[:, None] * turn
        weights.append(weight)
    direction = scale[:, None] * direction
    for (step, turn, inverse), weight in zip(pairs, reversed(weights), strict=True):
        direction = direction + (weight - inverse * _dot(turn, direction))[:, None] * step
    return direction


def _along(
    cost: Callable[[Array, Index], tuple[Array, Array]],
    rows: Index,
    x: Array,
    value: Array,
    slope: Array,
    direction: Array,
    fall: Array,
    moving: NDArray[np.bool_],
) -> tuple[Array, Array, Array]:
    """Return points along the directions, with values and gradients, from line searches.

    `fall` has the derivative of each row's function along its direction. A step is doubled or
    bisected until the weak Wolfe conditions hold (Lewis and Overton, 2013). Rows with `moving`
    False, or without a better point, stay unchanged.
    """
    after, lower, other = x.copy(), value.copy(), slope.copy()
    length = np.ones(len(x))
    least, largest = np.zeros(len(x)), np.full(len(x), np.inf)
    left = np.flatnonzero(moving)
    for _ in range(_TRIALS):
        if not left.size:
            break
        trial = x[left] + length[left, None] * direction[left]
        reached, there = cost(trial, rows[left])
        reached = np.where(np.isfinite(reached), reached, np.inf)
        down = reached <= value[left] + _DECREASE * length[left] * fall[left]
        better = down & (reached <= lower[left])
        lucky = left[better]
        after[lucky], lower[lucky], other[lucky] = trial[better], reached[better], there[better]
        short = down & (_dot(there, direction[left]) < _DERIVATIVE * fall[left])
        largest[left[~down]] = length[left[~down]]
        least[left[short]] = length[left[short]]
        left = left[~down | short]
        bounded = np.isfinite(largest[left])
        length[left] = np.where(bounded, (least[left] + largest[left]) / 2, 2 * length[left])
    return after, lower, other
