"""Local steps of methods on an agent's constraint set, as functions of the agent's gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from .projector import Projection, Projector

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Largest number of gradient steps of a local minimization.
_MOST = 100_000
# Number of accelerated steps of a certified search, before the steps that provably converge.
_FAST = 20_000
# Number of steps after which second derivatives are first measured, and the relative difference of
# points for it.
_LOOK, _APART = 256, 1e-5
# Smallest second derivative that is used, relative to the largest.
_FLATTEST = 1e-10
# Number of provably convergent steps, relative to the square root of the condition number; errors
# then shrink by more than any two floats differ.
_FACTOR = 1500


@dataclass(frozen=True, eq=False)
class Contraction:
    """Public linear map with an l2 operator norm of at most 1.

    Attributes
    ----------
    apply : callable
        Function that applies the map to a vector.
    norm1, norm2 : float
        Bounds of the map's operator norms in l1 and l2.
    """

    apply: Callable[[Array], Array]
    norm1: float
    norm2: float

    def __call__(self, v: Array) -> Array:
        """Return the image of the vector v."""
        return self.apply(v)


@dataclass(frozen=True)
class Minimization:
    r"""A fixed number of gradient steps towards ``argmin_{x in W} f(x) + D/2 ||x - v||^2``.

    Let f be m-strongly convex with an L-Lipschitz gradient. A step of length 1 / (L + D) with the
    projection after it shrinks the distance of two points by the factor
    :math:`q = (L - m) / (L + D)`. If the gradients of two such functions differ by at most
    :math:`\Delta` everywhere, the ends of both searches are at most

    .. math:: \frac{\Delta}{L + D} (1 + q + \dots + q^{K - 1}) = \Delta \frac{1 - q^K}{m + D}

    apart, however far both are from the minimizers. The bound relies on no solver's accuracy.

    In l1, projections onto products of intervals are nonexpansive too. With second derivatives G, a
    step has the derivative :math:`(L I - G) / (L + D)`. Its norm in l1 is at most
    :math:`q_1 = (\|L I - H\|_1 + \sqrt n\, \varrho) / (L + D)` for every G within :math:`\varrho`
    of H in the spectral norm. So with q_1 in place of q, the bound
    :math:`\tfrac{\Delta}{L + D} (1 + q_1 + \dots + q_1^{K - 1})` holds in l1.
    """

    D: float
    L: float
    m: float  # at most L
    steps: int  # K

    @classmethod
    def close(cls, D: float, L: float, m: float) -> Minimization:
        """Return the minimization with enough steps to shrink the initial distance by 1e-12.

        Raises
        ------
        ModelError
            If that takes more than 100,000 steps.
        """
        gain = (m + D) / (L + D)
        steps = math.inf if gain == 0 else math.log(1e-12) / math.log1p(-min(gain, 1 - 1e-12))
        if not steps <= _MOST:
            raise ModelError(
                f"A local minimizer takes {steps:.3g} gradient steps with D = {D:g} and the "
                f"smoothness constant {L:g}, about 28 (L + D) / (m + D): too many. Write a larger "
                "D, or leave exact= out."
            )
        return cls(D, L, m, math.ceil(steps))

    @property
    def stretch(self) -> float:
        """Lipschitz constant in l2 of the end point, as a function of the gradient."""
        q = (self.L - self.m) / (self.L + self.D)
        return (1 - q**self.steps) / (self.m + self.D)

    @property
    def repeats(self) -> float:
        """Bound of the end point's rounding error, in units of 64 rounding errors of one step.

        Every step adds a rounding error, and shrinks the earlier ones by the factor q.
        """
        return max(1.0, (self.L + self.D) / (self.m + self.D) / 64)

    def stretch_in_l1(self, center: sp.csr_array, spread: float) -> float:
        """Return `stretch` in l1, on products of intervals.

        Parameters
        ----------
        center : csr_array, shape (n, n)
            Matrix H.
        spread : float
            Largest distance of second derivatives from H, in the spectral norm.
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
        """Return the end of the gradient steps that start at v, shape (n,)."""
        x = project(v)
        for _ in range(self.steps):
            x = project(x - (gradient(x) + self.D * (x - v)) / (self.L + self.D))
        return x


@dataclass(frozen=True, eq=False)
class CertifiedSearch:
    r"""A search for ``argmin_{x in W} f(x) + r(x) + w/2 ||x - c||^2`` that ends with a certificate.

    It takes accelerated proximal steps (Beck and Teboulle, 2009), and restarts when the momentum
    points uphill. A step from y to x, of length 1/l in the norm with positive weights D, has the
    residual

    .. math:: l D (y - x) + \nabla F(x) - \nabla F(y) \in \nabla F(x) + \partial r(x) + N_W(x)

    with :math:`F = f + \tfrac w2 \|x - c\|^2`: an element of the subdifferential at x. If the whole
    objective is m-strongly convex, the distance of x from the minimizer is at most the residual's
    norm over m, however x was found. D starts with ones; later it approximates the diagonal of
    second derivatives. After 20,000 accelerated steps come steps that provably shrink the
    objective's excess over its minimum, each by the factor :math:`1 - \sqrt{m / L}` (Nesterov,
    2004).

    Attributes
    ----------
    projector : Projector
        Proximal operator of r on W, in closed form.
    smoothness, convexity : float
        Lipschitz constant of f's gradient, and strong convexity of f.
    weight : float
        Weight w.
    center : ndarray, shape (n,)
        Center c.
    """

    projector: Projector
    smoothness: float
    convexity: float
    weight: float
    center: Array

    def __call__(
        self, gradient: Callable[[Array], Array], b: Array, residual: float
    ) -> Array | None:
        """Return the first point whose residual has at most this norm; None if there is none.

        Parameters
        ----------
        gradient : callable
            Gradient of f as a function of x.
        b : ndarray, shape (n,)
            Vector added to the gradient.
        residual : float
            Largest norm of the residual.
        """

        def slope(x: Array) -> Array:
            return gradient(x) + self.weight * (x - self.center) + b

        x, ended = self._fast(slope, residual)
        return x if ended else self._surely(slope, x, residual)

    def _fast(self, slope: Callable[[Array], Array], residual: float) -> tuple[Array, bool]:
        """Take accelerated steps; return their end, and whether it has a small enough residual.

        `slope` is the gradient of all smooth terms.
        """
        whole = self.smoothness + self.weight
        # The smoothness constant is attained if all records are parallel; most curvatures are less.
        steep, most, look = whole / 64, 2 * whole, max(_LOOK, self.center.size)
        D, x, y = np.ones(self.center.size), self.center, self.center
        momentum, g = 1.0, slope(y)
        for k in range(_FAST):
            if k == look:  # each time that the number of steps has doubled
                look, D = 2 * k, _diagonal(slope, x)
                steep = float(D.max())
                D = D / steep
                y, momentum, most, g = x, 1.0, 2 * whole / float(D.min()), slope(x)
            step = self.projector(y - g / (steep * D), steep * D, 1.0).x
            if step is None:
                break
            then, moved = slope(step), step - y
            if steep < most and (then - g) @ moved > steep / 2 * (moved @ (D * moved)):
                steep = min(2 * steep, most)
                continue
            if np.linalg.norm(then - g - steep * D * moved) <= residual:
                return step, True
            back = (D * moved) @ (step - x) < 0
            faster = 1.0 if back else (1 + math.sqrt(1 + 4 * momentum**2)) / 2
            y = step if back else step + (momentum - 1) / faster * (step - x)
            x, momentum = step, faster
            g = then if back else slope(y)
        return x, False

    def _surely(self, slope: Callable[[Array], Array], x: Array, residual: float) -> Array | None:
        """Take provably convergent steps from x; return the first point with a small residual."""
        L, m = self.smoothness + self.weight, self.convexity + self.weight
        if not m > 0:
            return None
        root, y, D = math.sqrt(L / m), x, np.full(x.size, L)
        for _ in range(math.ceil(_FACTOR * root)):
            g = slope(y)
            step = self.projector(y - g / D, D, 1.0).x
            if step is None or np.linalg.norm(slope(step) - g - L * (step - y)) <= residual:
                return step
            x, y = step, step + (root - 1) / (root + 1) * (step - x)
        return None


def _diagonal(slope: Callable[[Array], Array], x: Array) -> Array:
    """Return an approximate diagonal of second derivatives at x, bounded below."""
    curvatures, g = np.ones(x.size), slope(x)
    for i, size in enumerate(_APART * np.maximum(1.0, np.abs(x))):
        near = x.copy()
        near[i] += size
        curvatures[i] = (slope(near)[i] - g[i]) / size
    largest = float(np.max(curvatures, initial=0.0, where=np.isfinite(curvatures)))
    if not largest > 0:
        return np.ones(x.size)
    return np.clip(
        np.where(np.isfinite(curvatures), curvatures, largest), _FLATTEST * largest, largest
    )


@dataclass(frozen=True, eq=False)
class ProximalStep:
    r"""The constrained local step of a linearized method as a function of the gradient.

    .. math:: x^+ = \operatorname{argmin}_{x \in W} \langle g, x \rangle + r(x)
              + \tfrac12 \| x - c \|_D^2

    which is :math:`\Pi_W^D(c - g / D)` for r = 0. The projector has the set W and the
    nonsmooth term r; c is the center.
    """

    projector: Projector
    center: Array  # shape (n,); c, public
    D: Array  # shape (n,); positive weights, public
    anchor: Array  # shape (n,); public point of W near the expected end of the step

    def __call__(self, g: Array) -> Projection:
        """Return the step for gradient g, shape (n,)."""
        return self.projector(self.center - g / self.D, self.D, 1.0)

    def within(self, g: Array, reach: float) -> Projection:
        """Return the step for gradient g, projecting a point within `reach` of the anchor."""
        return self.projector(self._near(g, reach), self.D)

    def steady(self, g: Array, reach: float) -> Array:
        """Return a point near `within(g)` of proved sensitivity in g; see `Projector.steady`."""
        return self.projector.steady(self._near(g, reach), self.D, self.anchor)

    def _near(self, g: Array, reach: float) -> Array:
        """Return the point to project, kept within `reach` of the anchor in the D-norm.

        This map is nonexpansive in the D-norm. So it preserves bounds of the step's sensitivity,
        and it bounds all numbers.
        """
        away = self.center - g / self.D - self.anchor
        length = float(np.linalg.norm(np.sqrt(self.D) * away))
        return self.anchor + min(1.0, reach / max(length, reach)) * away

    @property
    def reach(self) -> float:
        """Generous length of a step in the D-norm: the anchor's norm, or one unit if larger."""
        return max(
            math.sqrt(float(self.D.max())), float(np.linalg.norm(np.sqrt(self.D) * self.anchor))
        )

    def rounding(self, reach: float) -> float:
        """Return a bound of rounding errors in conic answers of `steady`, in the D-norm."""
        return self.projector.rounding(self.D, self.anchor, reach)
