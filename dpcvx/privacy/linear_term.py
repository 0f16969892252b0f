r"""Objective perturbation: a random linear term in an agent's objective, and its privacy loss.

An agent with data D minimizes a strongly convex function with a random linear term, once:

.. math::
    x(b) = \operatorname{argmin}_{x} h_D(x) + \langle b, x \rangle, \qquad
    h_D = f_D + r + \tfrac{\Delta}{2} \|x - c\|_2^2

f is smooth and convex, and r is any public convex function: the indicator of a set, or a nonsmooth
penalty. b has a density proportional to :math:`\exp(-\|b\| / s)`, in l2 or in l1. This is the
mechanism of Chaudhuri, Monteleoni and Sarwate (2011) for losses of records. Here it is extended to
constraint sets, nonsmooth penalties, and every neighboring relation that a model can declare.

**Theorem.** Let neighbors D and D' differ in some records, such that

* at every point, in the norm of b, :math:`\|\nabla f_D - \nabla f_{D'}\| \le L`;
* the losses :math:`\ell(J x + o)` of these records have at most q scores in all, and second
  derivatives of :math:`\ell` lie between 0 and :math:`\beta`;
* :math:`h_D` without the losses of these records is :math:`\Lambda`-strongly convex.

Then x(b) is :math:`(L / s + q \ln(1 + \beta / \Lambda), 0)`-differentially private.

**Proof.** x(b) is the unique point with :math:`-b \in \nabla f_D(x) + \partial r(x) + \Delta (x -
c)`. For a set S of outcomes let :math:`B_D` be the set of b with x(b) in S. Define :math:`T(b) = b
+ \delta(x(b))` with :math:`\delta = \nabla f_D - \nabla f_{D'}`. Under D', T(b) has the minimizer
that b has under D. So T maps :math:`B_D` to :math:`B_{D'}`, and it is one to one, because the map
with D and D' exchanged is its inverse. x(b) is Lipschitz, since :math:`h_D` is strongly convex, and
so is T. The area formula gives, for the density :math:`\nu` of b,

.. math:: P_{D'}(S) = \int_{B_D} \nu(T(b))\, |\det DT(b)|\, db .

By the triangle inequality, :math:`\nu(T(b)) \le e^{L/s} \nu(b)`. For the determinant let M be minus
the derivative of x(b), which exists almost everywhere. It is symmetric and positive semidefinite,
as :math:`x(b) = \nabla h_D^*(-b)`. Let A and A' be the second derivatives of the differing losses,
before and after the change, so that :math:`DT = I - (A - A') M`. If a loss of one score has kinks
in its derivative, the chain rule still holds almost everywhere, with some number between 0 and
:math:`\beta`. Take the optimality conditions of two nearby b. The part of :math:`h_D` without these
records is :math:`\Lambda`-strongly monotone, so :math:`M - M A M \succeq \Lambda M^2`. On the range
of M this means :math:`Q = M^{-1} - A \succeq \Lambda I`, with A restricted to the range. Hence

.. math::
    \det DT = \frac{\det(Q + A')}{\det(Q + A)} \le \det(I + Q^{-1/2} A' Q^{-1/2})
        \le (1 + \beta / \Lambda)^q ,

since A' has a rank of at most q, and its part from each record has no eigenvalue above
:math:`\beta`. The inequality :math:`\det(I + B + C) \le \det(I + B) \det(I + C)` separates the
records.

**The released point is not exact.** b is drawn with a bounded error, and the search for x ends when
its residual, an element of the subdifferential, has norm at most `residual`, up to `rounding`.
Strong convexity then bounds the distance of the computed point from x by `distance`. So the
computed points of neighbors, for b and T(b), are within twice `distance`. Laplace noise scaled to
this distance is added before release, at the privacy loss `covering`. The two losses add up: for
each b, the noise distributions of the two points differ by a factor of at most
:math:`e^{covering}`, and the theorem compares the distributions of b.

**Rounding errors** are relative to the rounded numbers. If data may have any size, as with
`dpcvx.Within`, they add a vector to the gradient. Its entries are clipped at `limit`, which does
not increase the distance of neighbors.

**The draw of b.** In l2, b/s is distributed as :math:`\|Z'\|\, Z` for independent standard normal Z
of d entries and Z' of d + 1 entries: a normal vector whose variance is chi-square with d + 1
degrees of freedom has this density. In l1, entries are independent Laplace variables. Both are
computed from integers that `dpcvx.privacy.noise` draws exactly, so that a bound of their error
always holds.
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

# Grid width of the variables that noise is computed from, and their largest magnitude.
_UNIT = 2.0**-40
_LARGEST = 2.0**11
# Share of epsilon for the noise that covers inexact minimizers.
_COVERING = 2.0**-6
# Residual at which searches end, over the scale of b: far smaller than the effect of b on x.
_RESIDUAL = 2.0**-26
# Bound of a gradient's rounding errors, relative to the numbers in it; actual ones are smaller.
_ROUNDING = 2.0**-48


@dataclass(frozen=True)
class Magnitudes:
    """Bounds of the numbers in a search for a minimizer, for all admissible data; public.

    Attributes
    ----------
    smoothness : float
        Smoothness of the objective, without the regularization that a plan adds.
    slope : float
        Bound of the l2 norm of the objective's gradient at the initial point.
    start : float
        The l2 norm of the initial point.
    across : float
        Largest distance of feasible points from the initial point; infinite if unbounded.
    limit : float
        Magnitude at which entries of the vector that the data add to the gradient are clipped;
        infinite if the data are bounded.
    """

    smoothness: float
    slope: float
    start: float
    across: float
    limit: float = math.inf


@dataclass(frozen=True)
class LinearTerm:
    """Random linear term <b, x> in an agent's objective, with the privacy loss of a release.

    Attributes
    ----------
    norm : {1, 2}
        Order of the norm in the density of b.
    scale : float
        Scale s in the density of b.
    sensitivity : float
        Bound L of the change of the gradient between neighbors, in this norm.
    convexity : float
        Strong convexity Lambda without the changed records, including `regularization`.
    regularization : float
        Weight Delta of the added quadratic regularization.
    size : int
        Number of entries of b.
    epsilon : float
        Total privacy loss of the release, at delta 0.
    reach : float
        Typical l2 norm of minimizers.
    rounding : float
        Bound of the l2 norm of the rounding errors of gradients at typical minimizers.
    limit : float
        Magnitude at which the data's part of the gradient is clipped; see `Magnitudes`.
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
        """Part of epsilon that Laplace noise on the minimizer spends."""
        return _COVERING * self.epsilon

    @property
    def residual(self) -> float:
        """Residual norm that ends the search for the minimizer, not below the rounding errors."""
        return max(_RESIDUAL * self.scale, self.rounding)

    @property
    def error(self) -> float:
        """Bound of the l2 distance of the drawn linear term from the ideal one."""
        if self.norm == 1:
            return self.scale * _UNIT * math.sqrt(self.size)
        return self.scale * _UNIT * (self.size + 1) * _LARGEST

    @property
    def distance(self) -> float:
        """Bound of the l2 distance of the computed point from the exact minimizer."""
        return (self.residual + self.rounding + self.error) / self.convexity

    @property
    def variance(self) -> float:
        """The expected square of the l2 norm of the linear term."""
        return self.scale**2 * self.size * (2 if self.norm == 1 else self.size + 1)

    def drawn(self, streams: Streams) -> Array:
        """Draw the linear terms of several agents, one row per random stream."""
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
    """Return the linear term with the least noise within a budget; None if there is none.

    Parameters
    ----------
    size : int
        Number of entries of b.
    epsilon : float
        Epsilon of the release, at delta 0.
    sensitivities : (float, float)
        Bounds L of the change of the gradient, in l1 and in l2.
    price : float
        Privacy loss q ln(1 + beta / Lambda) of the determinant in the module's theorem.
    convexity, regularization : float
        See `LinearTerm`.
    sizes : Magnitudes
        Bounds of the numbers in the search.
    """
    left = epsilon * (1 - _COVERING) - price
    if not left > 0:
        return None
    l1, l2 = (sensitivity / left for sensitivity in sensitivities)
    # Mean squares: 2 for a Laplace variable, d (d + 1) for the length of b in l2, of gamma shape d.
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
