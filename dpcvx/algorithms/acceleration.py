r"""Anderson acceleration of a fixed-point iteration, for any method.

A method moves a point s to :math:`s + g(s)` in every round. Let the columns of :math:`\Delta S` and
:math:`\Delta G` be differences of consecutive points and moves. The next point is

.. math::
    s + g - (\Delta S + \Delta G) \gamma, \qquad
    \gamma = \operatorname{argmin} \| g - \Delta G \gamma \|^2,

which is type II of Walker and Ni, "Anderson acceleration for fixed-point iterations" (SIAM Journal
on Numerical Analysis, 2011). If the move from an extrapolated point is much longer than the move
before, a safeguard rejects the point, and the iteration continues from the point without
extrapolation. The idea is that of Zhang, O'Donoghue and Boyd,
"Globally convergent type-I Anderson acceleration" (SIAM Journal on Optimization, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Extrapolation failed if a move is longer than the previous move by this factor.
_LONGER = 2.0
# Regularization of the normal equations, relative to their trace plus the squared move. Moves may
# be nearly parallel or nearly equal, as in linear programs between two vertices.
_REGULARIZATION = 1e-8


@dataclass(frozen=True, eq=False)
class RecentMoves:
    """Last points and moves of a fixed-point iteration, and how many points were rejected."""

    points: tuple[Array, ...] = ()
    moves: tuple[Array, ...] = ()
    plain: Array | None = None  # next point without extrapolation; None if it was not extrapolated
    extrapolated: int = 0  # number of extrapolated points so far
    rejected: int = 0  # number of extrapolated points that the safeguard rejected


def cleared(memory: RecentMoves) -> RecentMoves:
    """Return the memory without its points and moves, for an iteration whose map has changed."""
    return RecentMoves(extrapolated=memory.extrapolated, rejected=memory.rejected)


def accelerated(
    memory: RecentMoves, point: Array, move: Array, length: int
) -> tuple[RecentMoves, Array]:
    """Return the memory after this round, and the next point of the accelerated iteration.

    Parameters
    ----------
    memory : RecentMoves
        Points and moves of the last rounds.
    point, move : ndarray
        Current point, and the method's move from it.
    length : int
        Largest number of differences to combine.
    """
    with np.errstate(all="ignore"):  # runs that diverge overflow
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
    """Return the point extrapolated from the last points and moves, if there are enough.

    The result is None if there are too few points, or the extrapolated point is not finite.
    """
    if len(points) < 2:
        return None
    dS, dG = np.diff(np.array(points), axis=0), np.diff(np.array(moves), axis=0)
    largest = float(np.abs(dG).max(initial=0.0))
    if not 0 < largest < np.inf:
        return None
    scaled = dG / largest  # else squares of small moves could underflow
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
