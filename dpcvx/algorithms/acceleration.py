r"""Anderson acceleration of a fixed-point iteration, apart from any method that iterates.

A method moves a point s to :math:`s + g(s)` in every round. From the last points and moves, with
differences as columns of :math:`\Delta S` and :math:`\Delta G`, the next point is

.. math::
    s + g - (\Delta S + \Delta G) \gamma, \qquad
    \gamma = \operatorname{argmin} \| g - \Delta G \gamma \|^2,

which is type II of Walker and Ni, "Anderson acceleration for fixed-point iterations" (SIAM Journal
on Numerical Analysis, 2011). The safeguard rejects a point from where the move is much longer than
the one before, and the iteration continues without it: the idea of Zhang, O'Donoghue and Boyd,
"Globally convergent type-I Anderson acceleration" (SIAM Journal on Optimization, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A move that is so many times as long as the one before tells that extrapolation failed.
_LONGER = 2.0
# Added to the normal equations, relative to their trace and to the square of the move: moves may be
# nearly parallel, and nearly equal, as those of linear programs between two vertices are.
_REGULARIZATION = 1e-8


@dataclass(frozen=True, eq=False)
class RecentMoves:
    """The last points and moves of an iteration, and what the safeguard needs."""

    points: tuple[Array, ...] = ()
    moves: tuple[Array, ...] = ()
    plain: Array | None = None  # the next point without acceleration; None if none was used
    extrapolated: int = 0  # points so far
    rejected: int = 0  # of these


def cleared(memory: RecentMoves) -> RecentMoves:
    """Return the memory of an iteration whose map has changed: its counts alone."""
    return RecentMoves(extrapolated=memory.extrapolated, rejected=memory.rejected)


def accelerated(
    memory: RecentMoves, point: Array, move: Array, length: int
) -> tuple[RecentMoves, Array]:
    """Return the next point, and the memory for the one after it.

    Parameters
    ----------
    memory : RecentMoves
    point, move : ndarray
        The current point, and the move from there to the next one.
    length : int
        Largest number of differences to combine.
    """
    with np.errstate(all="ignore"):  # of runs that diverge
        if memory.plain is not None and not _size(move) <= _LONGER * _size(memory.moves[-1]):
            emptied = cleared(memory)
            return replace(emptied, rejected=memory.rejected + 1), memory.plain
        points = (*memory.points, point)[-length - 1 :]
        moves = (*memory.moves, move)[-length - 1 :]
        plain = point + move
        extrapolated = _extrapolated(points, moves)
        recent = replace(memory, points=points, moves=moves, plain=None)
        if extrapolated is None:
            return recent, plain
        return replace(recent, plain=plain, extrapolated=memory.extrapolated + 1), extrapolated


def _extrapolated(points: tuple[Array, ...], moves: tuple[Array, ...]) -> Array | None:
    """Return the combination of the last points and moves; None if they tell nothing."""
    if len(points) < 2:
        return None
    dS, dG = np.diff(np.array(points), axis=0), np.diff(np.array(moves), axis=0)
    largest = float(np.abs(dG).max(initial=0.0))
    if not 0 < largest < np.inf:
        return None
    scaled = dG / largest  # squares of small moves would vanish
    normal = scaled @ scaled.T
    move = moves[-1] / largest
    normal += _REGULARIZATION * (float(np.trace(normal)) + float(move @ move)) * np.eye(len(normal))
    if not np.isfinite(normal).all():
        return None
    gamma = np.linalg.solve(normal, scaled @ move)
    point = points[-1] + moves[-1] - gamma @ (dS + dG)
    return point if np.isfinite(point).all() else None


def _size(move: Array) -> float:
    return float(np.linalg.norm(move))
