r"""Objective perturbation: a random linear term in what an agent minimizes, and its price.

An agent with data D minimizes a strongly convex function with a random linear term, once:

.. math::
    x(b) = \operatorname{argmin}_{x} h_D(x) + \langle b, x \rangle, \qquad
    h_D = f_D + r + \tfrac{\Delta}{2} \|x - c\|_2^2

f is smooth and convex, and r is any public convex function: its set, or penalties that have no
gradient. b has the density proportional to :math:`\exp(-\|b\| / s)`, in l2 or in l1. This is the
mechanism of Chaudhuri, Monteleoni and Sarwate (2011) for losses of records, here with sets, with
penalties without a gradient, and for each change that the model declares.

**Theorem.** Let neighbors D and D' differ in some records, and

* at every point, in the norm of b, :math:`\|\nabla f_D - \nabla f_{D'}\| \le L`;
* each of these records have a loss :math:`\ell(J x + o)` of at most q scores in all, whose
  derivative bends by at most :math:`\beta`: second derivatives lie between 0 and it;
* what is left of :math:`h_D` without these records be :math:`\Lambda`-strongly convex.

Then x(b) is :math:`(L / s + q \ln(1 + \beta / \Lambda), 0)`-differentially private.

**Proof.** x(b) is the one point with :math:`-b \in \nabla f_D(x) + \partial r(x) + \Delta (x - c)`.
For a set S of outcomes let :math:`B_D` be the b that lead into it. The map :math:`T(b) = b +
\delta(x(b))` with :math:`\delta = \nabla f_D - \nabla f_{D'}` leads D' to the same x, so that it
takes :math:`B_D` to :math:`B_{D'}`, one to one: the same map with D and D' exchanged takes it back.
x(b) is Lipschitz, since :math:`h_D` is strongly convex, and so is T. The area formula gives, for
the density :math:`\nu` of b,

.. math:: P_{D'}(S) = \int_{B_D} \nu(T(b))\, |\det DT(b)|\, db .

By the triangle inequality, :math:`\nu(T(b)) \le e^{L/s} \nu(b)`. For the determinant let M be minus
the derivative of x(b), which exists almost everywhere. It is symmetric and positive semidefinite,
as :math:`x(b) = \nabla h_D^*(-b)`. Let A and A' be the second derivatives of the losses that
differ, before and after the change, so that :math:`DT = I - (A - A') M`. If a loss of one score has
kinks in its derivative, the chain rule still holds almost everywhere, with some number between 0
and :math:`\beta`. Take the optimality conditions of two b that are a little apart: the part of
:math:`h_D` without these records is :math:`\Lambda`-strongly monotone, so :math:`M - M A M \succeq
\Lambda M^2`. On the range of M this says that :math:`Q = M^{-1} - A \succeq \Lambda I`, with A
taken between vectors of the range. Hence

.. math::
    \det DT = \frac{\det(Q + A')}{\det(Q + A)} \le \det(I + Q^{-1/2} A' Q^{-1/2})
        \le (1 + \beta / \Lambda)^q ,

since A' has a rank of at most q, and no eigenvalue above :math:`\beta` record by record:
determinants of sums, :math:`\det(I + B + C) \le \det(I + B) \det(I + C)`, take the records apart.

**The released point is not exact.** b is drawn with a known error, and the search for x ends where
its residual, an element of the subdifferential, has norm at most `residual`, up to `rounding`.
Strong convexity bounds how far all three are from x: the released point and x are never more than
`distance` apart. The points of neighbors, with b and T(b), lie within twice that. They leave with
Laplace noise scaled to it, at the price `covering`, and the two prices add: for each b, outcomes
after the noise differ by no more than :math:`e^{covering}` between the two points, and the theorem
compares the laws of b.

**Rounding errors** are relative to the numbers that are rounded. Data of any size, as
`dpcvx.Within` allows them, add a vector to the gradient. Its entries are cut off at `limit`, which
moves neighbors no farther apart.

**The draw of b.** In l2, b/s has the law of :math:`\|Z'\|\, Z` for independent standard normal Z of
d entries and Z' of d + 1: a normal vector whose variance is chi-square with d + 1 degrees is a
mixture with that density. In l1, entries are independent and have the law of Laplace. Both are made
from integers that `dpcvx.privacy.noise` draws exactly, so that their error has a bound that holds
surely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .noise import laplace_rows, normal_rows
from .randomness import Streams

Array = NDArray[np.float64]

# Units of the variables that noise is made of, and the largest magnitude that one of them has.
_UNIT = 2.0**-40
_LARGEST = 2.0**11
# Of the price of a release, the part for the noise that covers inexact minimizers.
_COVERING = 2.0**-6
# Residuals at which searches end, relative to the scale of b: far below what b itself does to x.
_RESIDUAL = 2.0**-26
# Rounding errors of a gradient are a small part of this, relative to the numbers it is made of.
_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class Magnitudes:
    """Sizes of the numbers in a search for a minimizer, for all admissible data; public.

    Attributes
    ----------
    smoothness : float
        Smoothness of the objective, without the term that a plan adds.
    slope : float
        The l2 norm of its gradient at the start, at most.
    start : float
        The l2 norm of the start.
    across : float
        Largest distance of the set's points from the start; infinite if unbounded.
    limit : float
        Data of any size add a vector to the gradient whose entries are cut off at this magnitude;
        infinite where data are bounded.
    """

    smoothness: float
    slope: float
    start: float
    across: float
    limit: float = math.inf


@dataclass(frozen=True)
class LinearTerm:
    """The random linear term of an agent, and what a release costs.

    Attributes
    ----------
    norm : {1, 2}
        Norm that the distribution of its length refers to.
    scale : float
        s.
    sensitivity : float
        L, in that norm.
    convexity : float
        Lambda, with what `regularization` adds.
    regularization : float
        Delta.
    size : int
        Entries of b.
    epsilon : float
        Total privacy loss of the release, at delta 0.
    reach : float
        Typical l2 norm of minimizers.
    rounding : float
        A bound of the l2 norm of rounding errors of gradients at typical minimizers.
    limit : float
        See `Magnitudes`.
    """

    norm: Literal[1, 2]
    scale: float
    sensitivity: float
    convexity: float
    regularization: float
    size: int
    epsilon: float
    reach: float
    rounding: float
    limit: float = math.inf

    @property
    def covering(self) -> float:
        """The part of epsilon that the noise on the minimizer costs."""
        return _COVERING * self.epsilon

    @property
    def residual(self) -> float:
        """Return the l2 norm of the residual that ends the search: no less than what rounds."""
        return max(_RESIDUAL * self.scale, self.rounding)

    @property
    def error(self) -> float:
        """A bound of the l2 distance of what is drawn from the ideal linear term."""
        if self.norm == 1:
            return self.scale * _UNIT * math.sqrt(self.size)
        return self.scale * _UNIT * (self.size + 1) * _LARGEST

    @property
    def distance(self) -> float:
        """A bound of the l2 distance of what the search finds from the exact minimizer."""
        return (self.residual + self.rounding + self.error) / self.convexity

    @property
    def variance(self) -> float:
        """The expected square of the l2 norm of the linear term."""
        return self.scale**2 * self.size * (2 if self.norm == 1 else self.size + 1)

    def drawn(self, streams: Streams) -> Array:
        """Return the linear terms of several agents, shape (streams, size)."""
        if self.norm == 1:
            drawn = _UNIT * laplace_rows(1 / _UNIT, self.size, streams)
            return np.asarray(self.scale * drawn, dtype=np.float64)
        parts = _UNIT * normal_rows(1 / _UNIT, 2 * self.size + 1, streams)
        of_length = parts[:, self.size :]
        lengths = np.sqrt(np.vecdot(of_length, of_length))[:, np.newaxis]
        return np.asarray(self.scale * (lengths * parts[:, : self.size]), dtype=np.float64)


def linear_term(
    size: int,
    epsilon: float,
    sensitivities: tuple[float, float],
    price: float,
    convexity: float,
    regularization: float,
    sizes: Magnitudes,
) -> LinearTerm | None:
    """Return the linear term with the least noise that a budget allows; None if it allows none.

    Parameters
    ----------
    size : int
    epsilon : float
        Epsilon of the release, at delta 0.
    sensitivities : (float, float)
        L in l1 and in l2.
    price : float
        Privacy loss of the determinant: q ln(1 + beta / Lambda).
    convexity, regularization : float
        See `LinearTerm`.
    sizes : Magnitudes
    """
    left = epsilon * (1 - _COVERING) - price
    if not left > 0:
        return None
    l1, l2 = (sensitivity / left for sensitivity in sensitivities)
    # Expected squares: of a magnitude with Laplace's law 2, of a gamma law of shape d, d (d + 1).
    norm: Literal[1, 2] = 1 if 2 * l1**2 < (size + 1) * l2**2 else 2
    scale = l1 if norm == 1 else l2
    sensitivity = sensitivities[norm - 1]
    term = LinearTerm(norm, scale, sensitivity, convexity, regularization, size, epsilon, 0.0, 0.0)
    bend = sizes.smoothness + regularization
    moved = math.sqrt(term.variance) / convexity
    reach = sizes.start + min(sizes.across, moved + sizes.slope / bend if bend > 0 else moved)
    shift = math.sqrt(size) * sizes.limit if sizes.limit < math.inf else 0.0
    numbers = bend * (reach + min(sizes.across, shift / convexity)) + sizes.slope + shift
    return replace(term, reach=reach, rounding=_ROUNDING * numbers, limit=sizes.limit)
