"""Minimization of many smooth functions as a batch by L-BFGS (Liu and Nocedal, 1989).

Every function has a row of its own. No computation mixes rows, so no bit of a row's result depends
on the other rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
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
