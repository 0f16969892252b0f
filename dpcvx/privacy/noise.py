r"""Noise without floating-point holes: exact continuous noise, rounded to integers.

A release has the form :math:`\gamma (a + \operatorname{round}(s Y))` with a an integer vector (the
value on a grid of width gamma) and Y a continuous normal or Laplace variable. Because a is an
integer, this equals :math:`\gamma \operatorname{round}(a + s Y)`, a rounding of the ideal
continuous mechanism. The guarantee of the latter therefore holds without correction, and the attack
of Mironov (2012) on floating-point noise does not apply. Rounding errors of the exact value, before
it is on the grid, are not covered: every guarantee lists them among its assumptions.

The integer round(s Y) therefore has to be exact. It is computed in floating point from random words
together with a bound of the error. If the bound leaves two integers possible, the variable is
recomputed with more random bits and digits until only one is possible.

*Staircase noise* (Geng and Viswanath, 2016) hides one number, and is drawn on the integers
themselves. Let one change move the number on the grid by at most D steps. An integer z has the
magnitude :math:`\mu(z) = z` for z >= 0 and :math:`-1 - z` for z < 0, the level

.. math:: \ell(z) = \lfloor (\mu(z) + D - r) / D \rfloor, \qquad 1 \le r \le D,

and a probability in proportion to :math:`e^{-\epsilon \ell(z)}`. Since :math:`\mu(z) + 1/2 =
|z + 1/2|`, a shift by at most D adds at most D to the magnitude, and therefore at most one to the
level: no output is more than :math:`e^\epsilon` times as likely for one of two neighbors. This
holds for every r, which only decides how large the noise is. Its mean is half a step below zero.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from .randomness import Streams

if TYPE_CHECKING:  # loaded where a rounding needs more digits than floats have
    import mpmath

Array = NDArray[np.float64]
Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

# Bound of floating-point errors relative to a radius or a logarithm: 128 units of 2**-53. The
# functions below use half of it, with 16 units each for log, tan and sqrt; numpy's errors are at
# most 8.
_ERROR = 2.0**-46
# Largest magnitude for which floats represent integers exactly, with room for rounding.
_LARGEST = 2.0**51
# Width of the grid relative to the sensitivity. Rounding adds at most 2**-16 to the sensitivity,
# except for noise far wider than any ordinary budget needs.
_FINENESS = 2.0**-16
# Largest noise scale in units of the grid's width, so that no draw comes near `_LARGEST`. A clipped
# draw would no longer be a rounding of the ideal mechanism.
_WIDEST = 2.0**40
# Width of the grid of unreleased iterates relative to the noise. Accounting ignores their rounding.
_HIDDEN = 2.0**-24
# Values are clipped to this magnitude before noise is added, in units of the grid's width. Sums
# then stay below 2**63.
_RANGE = 2.0**62


@dataclass(frozen=True, eq=False)
class Unrounded:
    """Numbers with twice the digits of a float: each is the sum of a value and its error."""

    values: Array  # nearest floats
    errors: Array  # exact numbers minus the nearest floats


@dataclass(frozen=True)
class Grid:
    """Grid of the points that a released value can take, with the scale of its noise.

    Attributes
    ----------
    width : float
        Distance of neighboring grid points, a power of two.
    sensitivity : float
        Sensitivity of the rounded value. Each component moves by at most half a width, so the
        difference of two neighbors grows by at most ``width * sqrt(n)`` in l2, ``width * n`` in l1.
    scale : float
        Scale of the noise: multiplier times that sensitivity.
    """

    width: float
    sensitivity: float
    scale: float


def grid_for(
    sensitivity: float, size: int, norm: int, multiplier: float, floor: float = 0.0
) -> Grid:
    """Return the grid for rounding a vector of a given sensitivity, from public numbers only.

    Parameters
    ----------
    sensitivity : float
        Positive bound in the norm of order `norm`.
    size : int
        Number of components n.
    norm : {1, 2}
        Order of the norm: 1 for Laplace or staircase noise, 2 for Gaussian noise.
    multiplier : float
        Noise scale over sensitivity.
    floor : float
        Least width, far above the rounding errors of the released value. If the width equals it,
        these errors count as another half width.

    Raises
    ------
    PrivacyError
        If the noise is so wide that its grid would change the sensitivity markedly, or if
        numbers overflow or underflow.
    """
    spread = float(size) if norm == 1 else math.sqrt(size)
    # At most half of the widest noise scale comes from the grid's part of the sensitivity.
    wanted = max(_FINENESS / spread, 4 * multiplier / _WIDEST) * sensitivity
    if 4 * multiplier * spread > _WIDEST or not sys.float_info.min < wanted < _LARGEST**4:
        raise PrivacyError(
            f"Noise of {multiplier:.3g} times a sensitivity of {sensitivity:.3g} on {size} "
            "components cannot be drawn exactly on a grid of floating-point numbers. Rescale the "
            "objective, or choose a larger budget."
        )
    width = 2.0 ** math.floor(math.log2(wanted))
    rounded = sensitivity + width * spread
    if width < floor:
        width = 2.0 ** math.ceil(math.log2(floor))
        rounded = sensitivity + 2 * width * spread
    return Grid(width, rounded, multiplier * rounded)


def finest_grid(sensitivity: float, size: int, multiplier: float) -> Grid:
    """Return a grid for unreleased iterates, 2^24 times finer than their Gaussian noise.

    It is never coarser than the grid of a release of this sensitivity.
    """
    coarse = grid_for(sensitivity, size, 2, multiplier)
    width = 2.0 ** math.floor(math.log2(_HIDDEN * multiplier * sensitivity))
    rounded = sensitivity + width * math.sqrt(size)
    return min(coarse, Grid(width, rounded, multiplier * rounded), key=lambda grid: grid.width)


def on_grid(values: Array, grid: Grid, errors: Array | None = None) -> Integers:
    """Return values as integers, rounded, in units of the grid's width; clipped, 0 for NaN.

    Parameters
    ----------
    values : ndarray
    grid : Grid
    errors : ndarray, optional
        Exact values minus `values`, at most half a unit in the last place; see `Unrounded`.
    """
    with np.errstate(all="ignore"):  # a warning would reveal something about the values
        steps = values / grid.width  # exact: the width is a power of two
        nearest = np.rint(steps)
        if not np.abs(nearest).max(initial=0.0) <= _RANGE:
            nearest = np.clip(np.where(np.isnan(nearest), 0.0, nearest), -_RANGE, _RANGE)
        if errors is None or not errors.any():
            return nearest.astype(np.int64)
        rest = np.rint(steps - nearest + errors / grid.width)
        rest = np.where(np.abs(nearest) < _RANGE, rest, 0.0)
    limit = int(_RANGE)
    return np.clip(nearest.astype(np.int64) + rest.astype(np.int64), -limit, limit)


def normal_rows(scale: float, size: int, sources: Streams) -> Integers:
    """Return ``round(scale * Y)`` for independent standard normal Y, exactly distributed.

    Parameters
    ----------
    scale : float
        Standard deviation before rounding, positive, at most 2**40.
    size : int
        Number of values per stream.
    sources : Streams
        One random stream per row of the result.

    Returns
    -------
    ndarray of int64, shape (sources, size)
    """
    pairs = (size + 1) // 2
    words = sources.words(2 * pairs)
    u, v = words[:, :pairs].ravel(), words[:, pairs:].ravel()
    # Box and Muller: radius sqrt(-2 log u), angle 2 pi v. With the tangent t of half the angle,
    # less pi where v >= 1/2, the cosine is 2 / (1 + t^2) - 1 and the sine 2 t / (1 + t^2).
    t = np.tan(v.view(np.int64) * (np.pi * 2.0**-64))
    value = np.empty((2, u.size))
    # Errors in units of 2**-53. The error of u is 2, relative to u. Together with the unknown bits
    # of log u it changes the square of the radius by 4 and `unseen`, and the radius by this over
    # itself; log and sqrt add 24 times the radius. Half the angle has an error of 3 relative to
    # itself, at most 5; tan adds at most 8, so the angle has 26. Arithmetic adds 7 to the cosine or
    # 4 to the sine, and the product with the scale adds 1.
    with np.errstate(divide="ignore"):
        uniform, unseen = _uniform(u)
        radius = np.sqrt(0.0 - 2.0 * np.log(uniform))  # not -0.0: error bounds divide by it
        error = radius * _ERROR + (2.0**-51 + unseen) / radius
    double = 2.0 * radius / (1.0 + t * t)
    np.subtract(double, radius, out=value[0])
    np.multiply(double, t, out=value[1])
    decided = _decided(scale, value, error, _Tails(u, v, sources), (_cosine, _sine))
    rows = decided.reshape(2, len(sources), pairs).swapaxes(0, 1)
    return rows.reshape(len(sources), 2 * pairs)[:, :size]


def laplace_rows(scale: float, size: int, sources: Streams) -> Integers:
    """Return ``round(scale * Y)`` for independent Y of density ``exp(-|y|) / 2``.

    The distribution is exact; see `normal_rows` for the arguments.
    """
    words = sources.words(2 * size)
    u, v = words[:, :size].ravel(), words[:, size:].ravel()
    with np.errstate(divide="ignore"):
        uniform, unseen = _uniform(u)
    magnitude = -np.log(uniform)
    # Positive where the first bit of V is set, which is the sign bit of the signed integer.
    value = -np.copysign(magnitude, v.view(np.int64))[np.newaxis]
    error = (magnitude + 1.0) * _ERROR + unseen
    decided = _decided(scale, value, error, _Tails(u, v, sources), (_signed_log,))
    return decided.reshape(len(sources), size)


def staircase_rows(
    epsilon: float, steps: int, narrow: int, size: int, sources: Streams
) -> Integers:
    r"""Return integers z with probabilities in proportion to :math:`e^{-\epsilon \ell(z)}`.

    The module defines the level :math:`\ell`. The distribution is exact. With U and W uniform on
    [0, 1], the magnitude is k D + j: k = floor(-log(U) / epsilon) is at least i with probability
    :math:`e^{-\epsilon i}`. W selects j among r numbers of weight 1 and D - r numbers of weight
    :math:`e^{-\epsilon}`. The first bit of a uniform variable V is the sign, and its other bits are
    W.

    Parameters
    ----------
    epsilon : float
        Pure epsilon of the release, positive.
    steps : int
        Step width D in grid steps; at most 2**41, and at most 2**40 times epsilon.
    narrow : int
        Width r of the first step, from 1 to D.
    size : int
        Number of values per stream.
    sources : Streams
        One random stream per row of the result.

    Returns
    -------
    ndarray of int64, shape (sources, size)
    """
    words = sources.words(2 * size)
    u, v = words[:, :size].ravel(), words[:, size:].ravel()
    fall = np.exp(-np.float64(epsilon))
    total = narrow + (steps - narrow) * fall
    with np.errstate(all="ignore"):  # NaN and infinity count as not certain
        uniform, unseen = _uniform(u)
        magnitude = -np.log(uniform)
        blocks, sure = _floored(
            magnitude / epsilon, ((magnitude + 1.0) * _ERROR + unseen) / epsilon
        )
        # W is below 1 and has an error of 2**-53: its product with the total is off by a few such
        # units.
        weight = ((v << np.uint64(1)).astype(np.float64) * 2.0**-64) * total
        error = total * 2.0**-48
        near = weight < narrow
        high = (weight - narrow) / fall
        rest = np.where(near, weight, high)
        doubt = np.where(near, error, error / fall + 2.0**-48 * high)
        steps_on, certain = _floored(rest, doubt)
        certain &= sure & (np.abs(weight - narrow) > error)
    drawn = np.where(certain, blocks * steps + np.where(near, 0, narrow) + steps_on, 0.0)
    out = drawn.astype(np.int64)  # within 2**47
    tails = _Tails(u, v, sources)
    for i in np.flatnonzero(~certain).tolist():
        out[i] = _refined_staircase(epsilon, steps, narrow, i, tails)
    # Negative if the first bit of V is 0. In two's complement, -1 - m has the inverted bits of m.
    out ^= np.where(v >> np.uint64(63), 0, -1)
    return out.reshape(len(sources), size)


def _floored(value: Array, error: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return floors of nonnegative numbers, and flags: no error up to `error` changes them."""
    below = np.floor(value)
    beyond = value - below
    return below, (beyond > error) & (beyond < 1.0 - error)


def _refined_staircase(epsilon: float, steps: int, narrow: int, i: int, tails: _Tails) -> int:
    """Return the i-th staircase magnitude; draw random bits until its integer is certain."""
    import mpmath

    for words in itertools.count(2):
        with mpmath.workprec(64 * (words + 2)):
            u, v, width = tails.uniforms(i, words)
            if u < width:
                continue
            rate, fall = mpmath.mpf(epsilon), mpmath.exp(-mpmath.mpf(epsilon))
            total = narrow + (steps - narrow) * fall
            w, ends = 2 * v - (1 if v >= 0.5 else 0), set[int]()
            # Each variable is known to within half its width; for safety, to within its whole
            # width.
            for side in (-1, 1):
                k = int(mpmath.floor(-mpmath.log(min(u - side * width, mpmath.mpf(1))) / rate))
                t = max(w + side * 2 * width, mpmath.mpf(0)) * total
                j = t if t < narrow else narrow + (t - narrow) / fall
                ends.add(k * steps + min(int(mpmath.floor(j)), steps - 1))  # W is below 1
            if len(ends) == 1:
                return ends.pop()
    raise AssertionError("unreachable: the loop ends with probability one")


@dataclass(frozen=True)
class _Interval:
    """Value of a noise variable and a bound of its error, from random bits drawn so far."""

    value: mpmath.mpf
    error: mpmath.mpf


class _Tails:
    """Uniform variables U, V that each noise value is computed from; bits are added if needed.

    The two values of Box and Muller share U and V, and therefore their further bits. Each stream
    has an equal number of consecutive pairs U, V.
    """

    def __init__(self, u: Words, v: Words, sources: Streams) -> None:
        self._u, self._v, self._sources = u, v, sources
        self._drawn: dict[int, list[tuple[int, int]]] = {}

    def uniforms(self, i: int, words: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
        """Return the midpoints of the i-th U and V after `words` random words, and their width."""
        import mpmath

        drawn = self._drawn.setdefault(i, [(int(self._u[i]), int(self._v[i]))])
        source = self._sources.one(i * len(self._sources) // self._u.size)
        while len(drawn) < words:
            more = source.words(2)
            drawn.append((int(more[0]), int(more[1])))
        width = mpmath.ldexp(1, -64 * words)
        u = sum(int(pair[0]) << (64 * (words - 1 - k)) for k, pair in enumerate(drawn[:words]))
        v = sum(int(pair[1]) << (64 * (words - 1 - k)) for k, pair in enumerate(drawn[:words]))
        return (u + mpmath.mpf(0.5)) * width, (v + mpmath.mpf(0.5)) * width, width


Exact: TypeAlias = "Callable[[mpmath.mpf, mpmath.mpf, mpmath.mpf], _Interval]"


def _cosine(u: mpmath.mpf, v: mpmath.mpf, width: mpmath.mpf) -> _Interval:
    import mpmath

    return _box_muller(mpmath.cos(2 * mpmath.pi * v), u, width)


def _sine(u: mpmath.mpf, v: mpmath.mpf, width: mpmath.mpf) -> _Interval:
    import mpmath

    return _box_muller(mpmath.sin(2 * mpmath.pi * v), u, width)


def _box_muller(direction: mpmath.mpf, u: mpmath.mpf, width: mpmath.mpf) -> _Interval:
    import mpmath

    radius = mpmath.sqrt(-2 * mpmath.log(u))
    # |d radius / du| = 1 / (u radius) and |d angle / dv| = 2 pi; halved width, doubled for safety.
    return _Interval(radius * direction, width * (1 / (u * radius) + 2 * mpmath.pi * radius))


def _signed_log(u: mpmath.mpf, v: mpmath.mpf, width: mpmath.mpf) -> _Interval:
    import mpmath

    magnitude = -mpmath.log(u)
    return _Interval(magnitude if v >= 0.5 else -magnitude, width / u)


def _decided(
    scale: float, value: Array, error: Array, tails: _Tails, exact: Sequence[Exact]
) -> Integers:
    """Return the integers nearest to ``scale * Y``, refined until only one is possible.

    Parameters
    ----------
    scale : float
        Scale of the noise in units of the grid's width.
    value : ndarray, shape (k, m)
        Values of Y; column i is a function of the i-th U and V. They are overwritten.
    error : ndarray, shape (m,)
        Bound of the error of each column, including the error of multiplying by the scale.
    tails : _Tails
        The variables U and V.
    exact : sequence of k callables
        Exact functions of U and V, one per row.

    Returns
    -------
    ndarray of int64, shape (k * m,)
    """
    value *= scale
    nearest = np.rint(value)
    # The distance to the nearest integer is exact; the error bound must exclude a second integer.
    value -= nearest
    off = np.abs(value, out=value)
    out = nearest.astype(np.int64)  # within 2**47: |log| of 64 bits is at most 45
    # Usually even the largest error leaves every integer certain.
    if not off.max(initial=0.0) + scale * float(error.max(initial=0.0)) < 0.5:
        for row, i in np.argwhere(~(off + scale * error < 0.5)):
            out[row, i] = _refined(scale, int(i), tails, exact[row])
    return out.ravel()


def _refined(scale: float, i: int, tails: _Tails, exact: Exact) -> int:
    import mpmath

    for words in itertools.count(2):
        with mpmath.workprec(64 * (words + 2)):
            u, v, width = tails.uniforms(i, words)
            if u < width:  # no bit of U is set yet: its logarithm is unbounded
                continue
            interval = exact(u, v, width)
            low = mpmath.nint(scale * (interval.value - interval.error))
            high = mpmath.nint(scale * (interval.value + interval.error))
            if low == high:
                return int(min(max(low, -_LARGEST), _LARGEST))
    raise AssertionError("unreachable: the loop ends with probability one")


def _uniform(words: Words) -> tuple[Array, Array]:
    """Return uniform variables from their first 64 bits, with error bounds of their logarithms.

    Each variable is the midpoint of its interval, whose ends are at most 1 / (2 words) away in the
    logarithm. If all 64 bits are 0, the logarithm is unbounded.
    """
    whole = words.astype(np.float64)
    return (whole + 0.5) * 2.0**-64, 1.0 / whole
