r"""Noise shaped to a problem and its constraints: the best linear statistic of the data to release.

Data in constraints have to leave as a whole. If K d leaves with noise, the data that left are off
by :math:`N Y` with :math:`N = K^+ \sigma`, and a row that the data move by b needs a margin of a
few :math:`|N' b|`. With prices :math:`\lambda_j` of margins and the influence W of the data on the
optimum, noise is expected to cost

.. math:: F(N) = \tfrac12 \operatorname{tr}(W N N') + c \sum_j \lambda_j |B_j N|_F + h |N|_F .

For Gaussian noise, lengths are bounded by squares that touch them at the last N, so that the best
shape for second-order costs is found again and again; each time F falls. For Laplace noise this
iteration fails: a row of its own next to the entries is more accurate for a sum of many entries.
The weight of each such row is searched for, with a few numbers.

Nothing private is looked at, and nothing rests on the search: the sensitivity of K is derived for
the K that was found.

Noise shaped to a problem: the linear statistic of the data to release, from public facts.

The release of K d with noise scaled to the sensitivity of K is private for every K that follows
from public numbers, as its sensitivity is derived for that K. It leaves noise of covariance
:math:`\sigma^2 X^{-1}` in the data, :math:`X = K'K`, which is expected to cost
:math:`\tfrac12 \sigma^2 \operatorname{tr}(W X^{-1})` where W is the influence of the data on the
optimum. The best K for Gaussian noise is a root of the solution of the convex problem

.. math::
    \operatorname{minimize} \operatorname{tr}(W X^{-1}) \quad \text{subject to} \quad
    a_j' X a_j \le 1 \text{ for every change } a_j

(the matrix mechanism of Li et al., 0912.4742). Its dual has one weight per change:
:math:`X = W^{1/2} (W^{1/2} M W^{1/2})^{-1/2} W^{1/2}` with :math:`M = \sum_j \lambda_j a_j a_j'`,
where :math:`\lambda_j` is positive only if :math:`a_j' X a_j = 1`. Multiplying each weight by
:math:`a_j' X a_j`, again and again, leads there; the dual value tells how far it is.

For Laplace noise the lengths of columns of K are taken in l1, where K counts and not its square
alone: from the Gaussian shape a search goes downhill, to a shape that is good and need not be best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..sensitivity.release_once import left_inverse
from .descent import descend

Array = NDArray[np.float64]

# Margins are about so many standard deviations of what noise does to a row.
_DEVIATIONS = 4.0
# What constraints that hold with room at the proxy data are taken to cost together, next to the
# others; and so for directions of the data that no constraint feels: true data are not the
# proxy data.
_HEDGE = 0.1
# Rows of smaller parts of the cost get no row of their own, nor do more than so many.
_NOTED, _ROWS = 0.05, 8
# Data with more entries leave as they are.
_ENTRIES = 600
# Noise is shaped where that is predicted to leave at most this part of the cost.
_WORTH = 0.95
_TURNS = 4


@dataclass(frozen=True, eq=False)
class Stake:
    """Part of a constraint with private data, at the optimum for public proxy data."""

    rows: Array  # shape (q, D); what the agent's data move its rows by
    price: float  # what a unit of margin costs, in units of the objective
    bends: bool = False  # whether `rows` depend on what is decided

    def length(self, noise: Array) -> float:
        """Return the standard deviation of noise N Y in the rows, for Y of variance one."""
        return float(np.linalg.norm(self.rows @ noise))


def costs(stakes: Sequence[Stake], lengths: Array) -> Array:
    """Return the relative costs of margins, with a hedge for those that cost nothing at the proxy.

    Parameters
    ----------
    stakes : sequence of Stake
    lengths : ndarray
        Lengths of each stake, for the noise.

    Returns
    -------
    ndarray
        They add up to one; zeros where no margin has a price.
    """
    prices = np.array([stake.price for stake in stakes]) * lengths
    total = float(prices.sum())
    if not 0 < total < np.inf:
        return np.zeros(len(stakes))
    return (prices / total + _HEDGE / len(stakes)) / (1 + _HEDGE)


def data_shape(
    units: Array, stakes: Sequence[Stake], influence: Array, variance: float, p: int
) -> Array | None:
    """Return a statistic that determines all data, for changes of single entries; or None.

    Parameters
    ----------
    units : ndarray, shape (D,)
        Change of each entry in one change of the data.
    stakes : sequence of Stake
        Stakes in constraints with these data.
    influence : ndarray, shape (D, D)
        W of the data: noise of covariance S in them costs tr(W S) / 2 in the objective.
    variance : float
        Variance of the noise in one component of a statistic of sensitivity one.
    p : {1, 2}
        Norm of the mechanism.

    Returns
    -------
    ndarray, shape (r, D), or None
        K, of rank D.
    """
    size, deviation = units.size, float(np.sqrt(variance))
    if size > _ENTRIES:
        return None
    plain = deviation * np.diag(units)
    lengths = np.array([stake.length(plain) for stake in stakes])
    shares, moved = costs(stakes, lengths), lengths > 0
    if not shares.any():
        return None
    # As they are, but for the hedge.
    unit = (1 + _HEDGE) * float(np.dot([stake.price for stake in stakes], lengths))
    prices = np.zeros(len(stakes))
    prices[moved] = _DEVIATIONS * unit * shares[moved] / lengths[moved]
    # Where other decisions would feel other directions, all count alike.
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
    """Return the data next to rows of their own, as loud as costs least."""
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


# The noise costs at most so much more than with the best shape, by the dual value.
_EXCESS = 0.01
_ROUNDS = 300
# Multiplications beyond which none is looked for.
_WORK = 2e9
# Directions of smaller singular values, in rows of one length, are not moved by the data.
_RANK = 1e-9
# Directions without influence are taken to have this part of the mean: they get more noise, not so
# much that the optimum leaves the region in which it responds as predicted.

# Eigenvalues, relative to the largest, below which roots are not taken.
_ROUNDED = 1e-14
# How the l1 norm, and the largest of them, are smoothed for the search: the corners of absolute
# values, relative to their mean, and the power of the mean that stands for a maximum.
_SMOOTH = (
    (0.1, 10), (0.05, 20), (0.02, 40), (0.01, 80), (0.005, 160), (0.002, 300), (0.001, 600),
)  # fmt: skip
_CHANGE, _STEPS = 1e-5, 100
# The later searches, which take two thirds of the time, lower the cost to at least this part of
# what the first left: 0.80 in 180 random problems of six kinds.
_FIRST, _LATER = 1, 0.8


@dataclass(frozen=True, eq=False)
class ShapeTask:
    r"""A statistic of least expected cost to look for, for changes of single entries.

    Attributes
    ----------
    changes : ndarray, shape (n, N)
        Effect of one change of each entry of the data on the linear coefficient.
    influence : ndarray, shape (n, n)
        W of the slope, positive semidefinite: noise of covariance S in it costs
        :math:`\tfrac12 \operatorname{tr}(W S)`.
    p : {1, 2}
        Norm of the mechanism.
    below : float
        The least :math:`\operatorname{tr}(W S)` for noise of variance one that is of use.
    """

    changes: Array
    influence: Array
    p: int
    below: float = np.inf


@dataclass(frozen=True, eq=False)
class _Gaussian:
    """The best shape in l2, in coordinates along the range of the changes."""

    R: Array  # shape (r, r)
    W: Array  # influence
    hedged: Array  # influence with a hedge
    V: Array  # changes, shape (r, N)
    below: float


def best_shapes(tasks: Sequence[ShapeTask]) -> list[Array | None]:
    """Return the statistic of least expected cost for each task; good ones for p = 1.

    Those for p = 1 are searched for together, each as it would be alone.

    Parameters
    ----------
    tasks : sequence of ShapeTask

    Returns
    -------
    list of (ndarray, shape (r, N), or None)
        K, for data in units of their changes. r is the rank of the changes: K d tells the slope.
        None if nothing has influence, none is of use, or the search would take long.
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
    """Return the statistic for one `ShapeTask`; see `best_shapes`."""
    return best_shapes([ShapeTask(changes, influence, p, below)])[0]


def _in_l2(task: ShapeTask) -> _Gaussian | None:
    """Return the best shape for p = 2; None as of `best_shapes`."""
    changes, below = task.changes, task.below
    n, size = changes.shape
    least = min(n, size)
    if n * size * least + _ROUNDS * least * least * (size + 10 * least) > _WORK:
        return None
    lengths = np.linalg.norm(changes, axis=1)
    unit = np.where(lengths > 0, lengths, 1.0)
    U, s, V = np.linalg.svd(changes / unit[:, None], full_matrices=False)
    nonzero = s > _RANK * s.max(initial=0.0)
    # Coordinates along V: units of variables do not matter, and those of data are their changes.
    U, V = (U[:, nonzero] * s[nonzero]) * unit[:, None], V[nonzero]
    with np.errstate(all="ignore"):  # squares may leave floating point; then there is no shape
        W = U.T @ task.influence @ U
        felt = float(np.trace(W))
    if not 0 < felt < np.inf:
        return None
    hedged = W / felt + _HEDGE / len(W) * np.eye(len(W))
    X = _optimal(hedged, V)
    # Of no norm that is taken are columns shorter than in l2.
    if float(np.sum(np.linalg.inv(X) * W)) > (1 + _EXCESS) * below:
        return None
    # Along its own axes, whatever those of V are.
    values, vectors = np.linalg.eigh(X)
    R = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    if len(V) == size:  # as close to the data themselves as the shape allows
        R = V.T @ vectors @ R
    return _Gaussian(R, W, hedged, V, below)


def _spreads(R: Array, W: Array, changes: Array) -> Array:
    """Return ``tr(W (R'R)^-1)`` times the squared largest l1 norm of R a, by shape."""
    inverse = _inverses(R)
    costs = np.sum((inverse @ inverse.mT) * W, axis=(-2, -1))
    return costs * np.abs(R @ changes).sum(axis=-2).max(axis=-1) ** 2


def _inverses(R: Array) -> Array:
    """Return inverses of matrices, shape (b, r, r); of singular ones, what is not finite."""
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
    """Return X in the coordinates of its arguments."""
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
    """Improve each R to lower `_spreads`; None if one search shows no promise, or all no use."""
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
    """Return shapes of lower cost, where absolute values and maxima are smoothed."""
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
        # The mean of a power stands for a maximum.
        most = 2 * np.log(top) + 2 / power * np.log(every / parts.shape[-1])
        return np.log(total) + most[:, 0], slope.reshape(len(R), -1)

    start = (R / largest[:, None, None]).reshape(len(R), -1)
    return descend(cost, start, _CHANGE, _STEPS).reshape(R.shape)


def _root(X: Array) -> Array:
    """Return the symmetric root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((X + X.T) / 2)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
