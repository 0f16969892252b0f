r"""Projection onto an agent's constraint set in a weighted norm.

.. math:: \Pi_W^D(v) = \operatorname{argmin}_{x \in W} \tfrac12 \sum_i D_i (x_i - v_i)^2

The projection onto blocks of W with closed forms is computed in closed form. One compiled conic
program solves the rest; if v is private, a fixed number of steps with a proved sensitivity does.

If the objective has a public nonsmooth term r, a gradient step on all other terms is followed by
the proximal operator of r on W, which is the projection for r = 0:

.. math:: \operatorname{argmin}_{x \in W} w\, r(x) + \tfrac12 \sum_i D_i (x_i - v_i)^2
"""

from __future__ import annotations

import math
from collections import Counter
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import package_fault
from ..model.canonical import ConeData
from .blocks import Blocks, blocks_of, separable
from .closed_forms import ROUNDING, Ball, Box, ClosedForm, LinearBound, Separable, Simplex
from .conic import ConicProgram, Outcome
from .newton import PLAIN
from .splitting import STRETCH, Splitting, obstacle

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Accepted lengths of a proximal step that measures a subgradient, relative to the reach, and number
# of weights that are tried for one.
_SHORT, _TRIALS = (1e-4, 0.1), 8
# Points whose distance from W exceeds this, relative to their projection, are projected twice.
_FAR = 1e4


class Projection(NamedTuple):
    """Projection onto a set W, with its solve's outcome and a bound of its error.

    The D-norm, which bounds the error, weighs the square of entry i by D_i.

    `x` is None if every attempt failed. The error of closed forms is taken to be 0.
    """

    x: Array | None
    outcome: Outcome = Outcome.SOLVED
    error: float = 0.0


@dataclass(frozen=True, eq=False)
class Extent:
    """Set that encloses another: bounds, balls around 0 of some components, linear functions.

    Attributes
    ----------
    lower, upper : ndarray, shape (n,)
        Bounds of the components.
    balls : tuple of (columns, radius)
        Components in a ball around 0, and its radius.
    sums : tuple of LinearBound
        Bounds of linear functions, such as the sum of the entries on a simplex.
    """

    lower: Array
    upper: Array
    balls: tuple[tuple[Index, float], ...] = ()
    sums: tuple[LinearBound, ...] = ()

    def norm2(self, columns: Index) -> float:
        """Return a bound of the l2 norm of these components, over all points of the set."""
        size = np.maximum(np.abs(self.lower[columns]), np.abs(self.upper[columns]))
        inside = [r for members, r in self.balls if np.isin(columns, members).all()]
        return min([float(np.linalg.norm(size)), *inside])

    def contains(self, x: Array) -> bool:
        """Return whether a point lies in this set."""
        return bool(self.containing(x[np.newaxis])[0])

    def containing(self, points: Array) -> NDArray[np.bool_]:
        """Return whether each point, a row of `points`, lies in the set."""
        inside = np.all((self.lower <= points) & (points <= self.upper), axis=1)
        for members, radius in self.balls:
            part = np.take(points, members, axis=1)
            inside &= np.sqrt(np.vecdot(part, part)) <= radius
        for row in self.sums:
            inside &= row.containing(points)
        return inside

    def meeting(self, other: Extent) -> Extent:
        """Return the intersection of this set with another one."""
        return Extent(
            np.maximum(self.lower, other.lower),
            np.minimum(self.upper, other.upper),
            (*self.balls, *other.balls),
            (*self.sums, *other.sums),
        )

    @staticmethod
    def at(x: Array) -> Extent:
        """Return the set that holds a single point."""
        return Extent(x, x)


class Projector:
    """Weighted projection onto the set described by cone data.

    Parameters
    ----------
    data : ConeData
        Constraints of the set; its objective is ignored.
    owner : str
        Name of the agent, for messages.
    rest : ConeData, optional
        Set with the nonsmooth term r as its objective.
    kernel : str
        Implementation of Newton's method for projections; see `dpcvx.solvers.newton`.
    blocks : Blocks, optional
        Blocks of the set, if they were computed before.

    Attributes
    ----------
    closed_form : bool
        Whether all blocks have closed forms.
    batched : bool
        Whether calls need no solver, with r or without, so that v may hold several points as rows.
    separable : bool
        Whether W is a product of intervals, so that the projection is nonexpansive entry by entry.
    kinds : Counter
        Number of components per kind of block.
    obstacle : str or None
        Text on why `steady` cannot be called; None if it can.

    Raises
    ------
    ModelError
        If a closed-form block is empty. (Emptiness of conic blocks shows in the first projection.)
    """

    def __init__(
        self,
        data: ConeData,
        owner: str,
        rest: ConeData | None = None,
        kernel: str = PLAIN,
        blocks: Blocks | None = None,
    ) -> None:
        blocks = blocks or blocks_of(data, owner)
        self._rest = None if rest is None else separable(rest) or ConicProgram(rest)
        self.n: int = data.n
        self.kinds: Counter[str] = blocks.kinds
        self.separable: bool = not (self.kinds.keys() - {"free", "box"})
        self.closed_form: bool = blocks.conic is None
        self.batched: bool = self.closed_form and not isinstance(self._rest, ConicProgram)
        self.obstacle: str | None = None
        # Copies, since closed forms keep factors of the last weights, and agents may share blocks.
        self._blocks = tuple((columns, copy(form)) for columns, form in blocks.closed_forms)
        self._box = blocks.box
        self._conic: ConicProgram | None = None
        self._conic_own = blocks.conic_columns
        self._splitting: Splitting | None = None
        if blocks.conic is not None:
            self._conic = ConicProgram(blocks.conic, kernel, lambda: blocks.layout)
            self.obstacle = obstacle(blocks.conic)
            self._splitting = None if self.obstacle else Splitting(blocks.conic)

    def __call__(self, v: Array, D: Array, weight: float = 0.0) -> Projection:
        """Project v with positive weights D, both of shape (n,); `weight` > 0 adds the term r.

        If `batched`, v may have shape (count, n), with one point per row.
        """
        if v.ndim > 1 and not self.batched:
            raise package_fault("This set has no projection of several points in one call.")
        if self._rest is not None and weight > 0:
            D = D / weight
            if isinstance(self._rest, Separable):
                return Projection(self._rest.minimize(D, -D * v))
            answer = self._rest.solve(D, -D * v, v)
            return Projection(answer.x, answer.outcome, answer.error)
        x = self._closed(v, D)
        if self._conic is None:
            return Projection(x)
        conic = self._conic_own
        answer = self._conic.solve(D[conic], None, v[conic])
        if answer.x is None:
            return Projection(None, answer.outcome, answer.error)
        x[conic] = answer.x
        error = answer.error
        if np.abs(v[conic] - answer.x).max() > _FAR * (1.0 + np.abs(answer.x).max()):
            # A solve is accurate relative to the distance of v: project the answer again.
            again = self._conic.solve(D[conic], None, answer.x)
            if again.x is not None:
                x[conic], error = again.x, error + again.error
        return Projection(x, answer.outcome, error)

    def slope(self, start: Array, reach: float) -> float:
        r"""Return the approximate norm of subgradients of r at points of W near an initial point.

        r is the public nonsmooth term, and W the constraint set. If r is a sum over entries, the
        norm follows from the slopes at its kinks. Otherwise, it is measured at a few points, from
        the steps :math:`w g` of the proximal operator with a small weight w.

        Parameters
        ----------
        start : ndarray, shape (n,)
            Initial point.
        reach : float
            Distance of the points from it.
        """
        if self._rest is None:
            return 0.0
        if isinstance(self._rest, Separable):
            return self._rest.slope
        wave, turns = np.sin(1.0 + np.arange(self.n)), (-1.0) ** np.arange(self.n)
        slopes = [
            self._slope_at(start + sign * reach * u / np.linalg.norm(u), reach)
            for u in (wave, turns)
            for sign in (1.0, -1.0)
        ]
        return max(slopes)

    def _slope_at(self, v: Array, reach: float) -> float:
        """Return the norm of a subgradient of the term r at v's projection; 0 if none is found."""
        ones, weight = np.ones(self.n), 1.0
        inside = self(v, ones).x
        for _ in range(_TRIALS if inside is not None else 0):
            assert inside is not None
            x = self(inside, ones, weight).x
            moved = math.inf if x is None else float(np.linalg.norm(x - inside))
            if _SHORT[0] * reach <= moved <= _SHORT[1] * reach:
                return moved / weight
            weight *= float(np.clip(0.1 * _SHORT[1] * reach / max(moved, 1e-300), 1e-6, 1e6))
        return 0.0

    @property
    def by_newton(self) -> bool:
        """Return whether Newton's method applies to the conic part, so that its kernel matters."""
        return self._conic is not None and self._conic.by_newton

    def steady(self, v: Array, D: Array, anchor: Array) -> Array:
        """Return a point near the projection of v that moves at most `stretch` times as far as v.

        This bound is in the D-norm and holds for every v, without any accuracy of a solver, up to
        errors of at most `rounding`. For closed forms, the point is the projection.

        Parameters
        ----------
        v, D : ndarray, shape (n,)
            Point to project, and positive public weights.
        anchor : ndarray, shape (n,)
            Public point of W that is close to the answer.
        """
        x = self._closed(v, D)
        if self._conic is not None:
            conic = self._conic_own
            assert self._splitting is not None, self.obstacle
            x[conic] = self._splitting(v[conic], D[conic], anchor[conic])
        return x

    @property
    def stretch(self) -> float:
        """Lipschitz constant of `steady` as a function of v, in the D-norm."""
        return 1.0 if self._conic is None else STRETCH

    def rounding(self, D: Array, anchor: Array, reach: float) -> float:
        """Return a bound of rounding errors in conic answers of `steady`, in the D-norm.

        It holds for ``||v - anchor||_D`` of at most `reach`. Rounding errors of closed forms, in
        the last digits of their arguments, are not included.
        """
        if self._splitting is None:
            return 0.0
        conic = self._conic_own
        return self._splitting.rounding(D[conic], anchor[conic], reach)

    def _closed(self, v: Array, D: Array) -> Array:
        """Return v after all projections with a closed form; other components are unchanged."""
        x = v.copy() if self._box is None else self._box(v, D)
        for columns, closed_form in self._blocks:
            for row, point in zip(np.atleast_2d(x), np.atleast_2d(v), strict=True):
                row[columns] = closed_form(point[columns], D[columns])
        return x

    def nearest(self, v: Array) -> Array:
        """Return the point of the set closest to v, shape (n,), without a solver.

        The projection onto every block of components must have a closed form (`closed_form`).
        """
        x = self(v, np.ones_like(v)).x
        if not self.closed_form or x is None:
            raise package_fault("The nearest point has no closed form on this set.")
        return x

    def centers(self) -> Array:
        """Return the centers of balls, 0 elsewhere; rounding errors are relative to these too."""
        out = np.zeros(self.n)
        for columns, form in self._blocks:
            if isinstance(form, Ball):
                out[columns] = form.c / form.a
        return out

    def _closed_forms(self) -> list[tuple[Index, ClosedForm]]:
        everywhere = [] if self._box is None else [(np.arange(self.n), self._box)]
        return [*self._blocks, *everywhere]

    def extent(self) -> Extent:
        """Return bounds, balls and linear bounds that contain the constraint set.

        Bounds of the conic part take two solves for each component.
        """
        extent = self.known_extent()
        if self._conic is None:
            return extent
        extent.lower[self._conic_own], extent.upper[self._conic_own] = self._conic.extent()
        sums = [row.among(self._conic_own) for row in self._conic.linear_bounds()]
        return replace(extent, sums=(*extent.sums, *sums))

    def known_extent(self) -> Extent:
        """Return bounds on the set that need no solves; all other bounds are infinite."""
        lower, upper = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        balls: list[tuple[Index, float]] = []
        sums: list[LinearBound] = []
        for columns, form in self._closed_forms():
            low, high = -np.inf, np.inf
            if isinstance(form, Box):
                low, high = form.lower, form.upper
            elif isinstance(form, Simplex):
                low, high = form.bounds()
                below = form.b if form.equality else -math.inf
                sums.append(LinearBound.around(columns, form.a, below, form.b, ROUNDING))
            elif isinstance(form, Ball):
                center = -form.c / form.a
                radius = form.r / np.abs(form.a)
                low, high = center - radius, center + radius
                balls.append((columns, float(np.linalg.norm(center) + radius.max())))
            lower[columns] = np.maximum(lower[columns], low)
            upper[columns] = np.minimum(upper[columns], high)
        return Extent(lower, upper, tuple(balls), tuple(sums))

    def violation(self, x: Array) -> float:
        """Return the largest violation of the set's constraints by x; nan if it is unknown.

        Closed forms, and a conic part whose rows have no test, count by the largest component of
        the distance from the projection.
        """
        tested, columns = self.tested(x), self._conic_own
        if tested is not None or self._conic is None:
            return math.nan if tested is None else tested
        answer = self._conic.solve(np.ones(columns.size), None, x[columns])
        if answer.x is None:
            return math.nan
        far = np.max(np.abs(x[columns] - answer.x))
        return float(np.max([*self._distances(x), far]))  # nan if one is nan, unlike `max`

    def tested(self, x: Array) -> float | None:
        """Return the `violation` by x if rows of the conic part have a test; None if it is unknown.

        Without a test, a projection has to tell.
        """
        rows = 0.0 if self._conic is None else self._conic.violation(x[self._conic_own])
        return None if rows is None else float(np.max([*self._distances(x), rows]))

    def _distances(self, x: Array) -> list[float]:
        """Return the largest component of the distance of x from each block with a closed form."""
        ones = np.ones(self.n)
        return [
            np.max(np.abs(x[columns] - closed_form(x[columns], ones[columns])), initial=0.0)
            for columns, closed_form in self._closed_forms()
        ]

    def __str__(self) -> str:
        sets = {
            "free": "unbounded",
            "box": "within bounds",
            "simplex": "in simplices",
            "ball": "in balls",
            "affine": "in affine sets",
            "conic": "in conic sets",
        }
        return ", ".join(f"{self.kinds[k]} {text}" for k, text in sets.items() if self.kinds[k])
