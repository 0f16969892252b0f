r"""Noise shaped to constraints: which linear statistic tells all data, where margins cost least.

Data in constraints have to leave as a whole. If K d leaves with noise, the data that left are off
by :math:`N Y` with :math:`N = K^+ \sigma`, and a row that the data move by b needs a margin of a
few :math:`|N' b|`. With prices :math:`\lambda_j` of margins and the influence W of the data on the
optimum, noise is expected to cost

.. math:: F(N) = \tfrac12 \operatorname{tr}(W N N') + c \sum_j \lambda_j |B_j N|_F + h |N|_F .

For Gaussian noise, lengths are bounded by squares that touch them at the last N, so
that the best shape for second-order costs is found again and again; each time F falls. For Laplace
noise, that leads nowhere: a sum of many entries is told best by a row of its own next to the
entries. How loud each row is next to them is searched for, with a few numbers.

Nothing private is looked at, and nothing rests on the search: the sensitivity of K is derived for
the K that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..sensitivity.release_once import left_inverse
from .shape import best_shape

Array = NDArray[np.float64]

# Margins are about so many standard deviations of what noise does to a row.
_DEVIATIONS = 4.0
# What constraints that hold with room at the stand-ins are taken to cost together, next to the
# others; and so for directions of the data that no constraint feels: true data are not the
# stand-ins.
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
    """A part of a constraint with private data, at the optimum for public stand-ins.

    Attributes
    ----------
    rows : ndarray, shape (q, D)
        What the agent's data move its rows by.
    price : float
        What a unit of margin costs, in units of the objective.
    bends : bool
        Whether `rows` depend on what is decided.
    """

    rows: Array
    price: float
    bends: bool = False

    def length(self, noise: Array) -> float:
        """What noise N Y does to the rows, as a standard deviation for Y of variance one."""
        return float(np.linalg.norm(self.rows @ noise))


def costs(stakes: Sequence[Stake], lengths: Array) -> Array:
    """What margins cost next to each other, those that cost nothing at the stand-ins hedged.

    Parameters
    ----------
    stakes : sequence of Stake
    lengths : ndarray
        Of each, for the noise.

    Returns
    -------
    ndarray
        They add up to one; zeros where no margin has a price.
    """
    found = np.array([stake.price for stake in stakes]) * lengths
    total = float(found.sum())
    if not 0 < total < np.inf:
        return np.zeros(len(stakes))
    return (found / total + _HEDGE / len(stakes)) / (1 + _HEDGE)


def data_shape(
    units: Array, stakes: Sequence[Stake], influence: Array, variance: float, p: int
) -> Array | None:
    """A statistic that tells all data, of changes of single entries; None if none is worth it.

    Parameters
    ----------
    units : ndarray, shape (D,)
        What one change of each entry is.
    stakes : sequence of Stake
        In constraints with these data.
    influence : ndarray, shape (D, D)
        W of the data: noise of covariance S in them costs tr(W S) / 2 in the objective.
    variance : float
        Of the noise in one component of a statistic of sensitivity one.
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
    alike = _DEVIATIONS * unit * (_HEDGE + shares[bends].sum()) / (deviation * np.sqrt(size))
    prices[bends] = 0.0

    def noise(K: Array) -> Array:
        sensitivity = np.linalg.norm(K * units, p, axis=0).max()
        return deviation * sensitivity * left_inverse(K)

    def cost(N: Array) -> float:
        margins = sum(w * s.length(N) for w, s in zip(prices, stakes, strict=True))
        every = alike * float(np.linalg.norm(N / units[:, None]))
        return float(np.sum((influence @ N) * N)) / 2 + margins + every

    found: list[Array] = []
    N = plain
    for _ in range(_TURNS if p == 2 else 1):
        W = influence + np.diag(alike / np.linalg.norm(N / units[:, None]) / units**2)
        for weight, stake in zip(prices, stakes, strict=True):
            if weight > 0:
                W += weight / stake.length(N) * stake.rows.T @ stake.rows
        K = best_shape(np.diag(units), W, p)
        if K is None or np.linalg.matrix_rank(K) < size:
            break
        found, N = [*found, K / units], noise(K / units)
    if p == 1:
        noted = [k for k in np.argsort(-shares, kind="stable") if shares[k] > _NOTED and prices[k]]
        found.append(_with_rows(units, [stakes[k].rows for k in noted], lambda K: cost(noise(K))))
    best = min(found, key=lambda K: cost(noise(K)), default=None)
    if best is None or not cost(noise(best)) < _WORTH * cost(plain):
        return None
    return best


def _with_rows(units: Array, rows: Sequence[Array], cost: Callable[[Array], float]) -> Array:
    """The data next to rows of their own, as loud as costs least."""
    own = np.diag(1 / units)
    every = np.concatenate([np.zeros((0, units.size)), *rows])
    heights = np.abs(every * units).max(axis=1)
    more = (every[heights > 0] / heights[heights > 0, None])[:_ROWS]

    def stacked(loud: Array) -> Array:
        return np.concatenate([own, np.exp(loud)[:, None] * more])

    if not len(more):
        return own
    start = np.zeros(len(more))
    return stacked(minimize(lambda v: cost(stacked(v)), start, method="Nelder-Mead").x)
