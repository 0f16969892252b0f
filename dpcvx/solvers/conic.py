"""Compiled conic programs: fixed cone data, and a new diagonal and linear term for each solve.

A solver is built with a zero linear term, so its scaling does not depend on the first call. Every
answer then depends on the call's arguments alone and not on earlier calls, so replay is exact.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import structural_rank

from ..model.canonical import ConeData
from ..model.matrices import without_zeros
from .closed_forms import LinearBound
from .cones import ConeTest, largest, unmet
from .exact_steps import QuadraticSum, SemidefiniteStep, quadratic_sum, semidefinite_step
from .libraries import (
    LARGER_REGULARIZATION,
    LARGEST,
    LIKELY,
    REGULARIZATION,
    ActiveSet,
    SolverAnswer,
    attempt,
    first_order,
    interior_point,
)
from .newton import PLAIN, Newton, newton_for
from .newton_layout import NewtonLayout, layout_of
from .splitting import Orthogonal, orthogonal

Array = NDArray[np.float64]

# Tolerances passed to the solver, for a problem scaled to unit curvature. Its default 1e-8 leaves
# errors of 1e-5 to 1e-4 in x.
_TIGHT = 1e-11
_LOOSE = 1e-7
# Clarabel expands second-order cones of more rows than this, which requires iterative refinement
# (four solves per step). Semidefinite cones need refinement too: at their boundary, unrefined
# solves end in nan. Other programs are solved to equal accuracy without it, in two thirds of the
# time.
_UNREFINED = 4
# Accuracy of a solved program: relative duality gap, and absolute residual of the constraints.
_SOLVED = (5e-11, 1e-8)
# Bounds of single components that are larger than this are omitted unless the answer violates them:
# next to such numbers, the solver's relative tolerances are too loose.
_DISTANT = 1e9
# Accuracy of a program that is solved inaccurately, in the units of `_SOLVED`.
_INACCURATE = (1e-7, 1e-7)
# The solver's residual is relative to the largest number of all rows. A residual relative to each
# row's terms may be larger by this factor, since numbers of ordinary rows differ by as much.
_ROWS = 100.0
# A certificate of infeasibility excludes only points up to some size. It is accepted if it excludes
# all points up to this size. At its default tolerance the solver may stop with a weaker
# certificate; the tightest tolerance is sometimes out of reach, so two are tried.
_EXCLUDED = 1e9
_CERTAIN = (1e-11, 1e-13)
# Shadow prices below this are set to 0, relative to the largest one and to the linear term.
_UNPAID = 1e-6
# Size of the data above which a program is scaled down, and lower limit of the scaling up.
_NEAR = 100.0
_TINY = 1e-10
# Number of variables above which a failed solve is tried with a larger regularization first.
_LARGE = 1_000
# Largest number of entries for which a dense matrix is multiplied faster than a sparse one.
_LITTLE = 20_000
# Largest number of variables for which the active-set method, on dense matrices, is faster than an
# interior point.
_LARGEST_DENSE = 200


class Outcome(enum.Enum):
    """Outcome of a solve; the values are texts for messages."""

    SOLVED = "solved"
    INACCURATE = "solved to reduced accuracy"
    FALLBACK = "solved by the fallback solver"
    FAILED = "no attempt reached the required accuracy"
    INFEASIBLE = "the constraints admit no point"
    UNBOUNDED = "the objective is unbounded below"


class ConicAnswer(NamedTuple):
    """Minimizer of a conic program, with the outcome of its solve.

    Attributes
    ----------
    x : ndarray, shape (n,), or None
        Minimizer; None if no attempt succeeded.
    outcome : Outcome
    error : float
        Bound of ``||x - x*||_D`` from the duality gap, for problems with P = 0.
    extra : ndarray, shape (N - n,)
        Values of the auxiliary columns; empty if the solver did not use them.
    """

    x: Array | None
    outcome: Outcome
    error: float = float("inf")
    extra: Array = np.zeros(0)


# Largest number of components for which `extent` computes bounds, by two solves for each component.
_LARGEST_EXTENT = 300
# Relative widening of computed bounds: far above the accuracy of a solve, and too small to change a
# sensitivity noticeably.
_WIDER = 1e-5
# Largest number of linear constraints that `linear_bounds` returns.
_MOST_BOUNDS = 100


class _Instance(NamedTuple):
    """Program scaled for one solve: variable (x - center) / far, objective over its curvature."""

    values: Array
    q: Array
    b: Array
    center: Array
    far: float
    curvature: float

    def steep(self) -> _Instance | None:
        """Return the program in units of its rows, if the minimizer without rows is far outside.

        The objective is then nearly linear on the set. In units of the objective's curvature, the
        set would be as small as a point.
        """
        size, slope = largest(np.abs(self.b)), largest(np.abs(self.q))
        if not 0 < _NEAR * size < slope:
            return None
        steeper, far = slope / size, size * self.far
        return _Instance(
            self.values / steeper,
            self.q / slope,
            self.b / size,
            self.center,
            far,
            self.curvature * steeper,
        )

    def answer(self, solution: SolverAnswer, outcome: Outcome = Outcome.SOLVED) -> ConicAnswer:
        """Return the answer in x from a solution y of the scaled program."""
        n, y = self.center.size, solution.y if self.far == 1.0 else self.far * solution.y
        error = math.sqrt(2 * solution.gap * self.curvature) * self.far
        return ConicAnswer(self.center + y[:n], outcome, error, y[n:])


_NOTHING = SolverAnswer(np.zeros(0), math.nan, math.inf, math.inf, "raised")


class ConicProgram:
    """Solver of ``minimize 1/2 x'(P + diag(D)) x + (q + c)'x`` over constraints of `data`.

    Parameters
    ----------
    data : ConeData
        P, q and the constraints; the program is minimized over auxiliary columns as well.
    kernel : str
        Implementation of Newton's method for projections; see `dpcvx.solvers.newton`.
    layout : callable, optional
        Function that returns the layout of `data` for Newton's method, if it is kept elsewhere.
    """

    def __init__(
        self,
        data: ConeData,
        kernel: str = PLAIN,
        layout: Callable[[], NewtonLayout | None] | None = None,
    ) -> None:
        self._data, self._layout_of = data, layout or partial(layout_of, data)
        n, N = data.n, data.A.shape[1]
        own_A = data.A if n == N else data.A[:, :n]
        self._own_A = own_A.toarray() if math.prod(own_A.shape) <= _LITTLE else own_A
        self._violated = ConeTest(data.cones)
        few = n == N <= _LARGEST_DENSE
        self._by_active_set = few and data.cones.polyhedral and 0 < data.A.shape[0]
        # Whether P = 0 and q = 0, as for projections.
        self._flat = not (data.q.any() or data.P.nnz)
        self._kernel = kernel
        self._zero = np.zeros(N)
        self._sent: tuple[Array | None, Array] = None, self._zero
        self._weights, self._kept = b"", (np.zeros(0), 1.0)

    @property
    def by_newton(self) -> bool:
        """Return whether Newton's method applies with the chosen kernel; it may still be too slow.

        The result is False for layouts with long rows, whose steps use numpy with every kernel.
        """
        return self._layout is not None and not self._layout.long.size

    # Solvers are built at first use: most programs need only one, and some only `violation`.
    @cached_property
    def _active_set(self) -> ActiveSet | None:
        return ActiveSet(self._data) if self._by_active_set else None

    @cached_property
    def _wider(self) -> tuple[ConicProgram, NDArray[np.intp]] | None:
        """The program without distant bounds, and the rows of these bounds; None without any.

        If the minimizer without these bounds satisfies them, it is the minimizer with them.
        """
        near = _without_distant(self._data)
        return None if near is None else (ConicProgram(near[0], self._kernel), near[1])

    @cached_property
    def _quadratic(self) -> _Quadratic:
        return _quadratic_of(self._data)

    @cached_property
    def _sizes(self) -> sp.csr_array:
        return abs(sp.csr_array(self._data.A))

    @cached_property
    def _own_P(self) -> sp.csc_array:
        return self._data.P[:, : self._data.n]

    @cached_property
    def _layout(self) -> NewtonLayout | None:
        projects = self._flat and not self._by_active_set and self._data.A.shape[0] > 0
        return self._layout_of() if projects else None

    @cached_property
    def _newton(self) -> Newton | None:
        return None if self._layout is None else newton_for(self._layout, self._kernel)

    @cached_property
    def _sum(self) -> QuadraticSum | None:
        alone = self._flat or self._by_active_set
        return None if alone else quadratic_sum(self._data)

    @cached_property
    def _semidefinite(self) -> SemidefiniteStep | None:
        return attempt(lambda: semidefinite_step(self._data)) if self._data.cones.psd else None

    @cached_property
    def _orthogonal(self) -> Orthogonal | None:
        return orthogonal(self._data) if self._flat else None

    @cached_property
    def _solver(self) -> Any:
        """Solver of the first attempt; solvers of later attempts always use refinement."""
        cones = self._data.cones
        refined = max(cones.soc, default=0) > _UNREFINED or bool(cones.psd)
        return self._build(_TIGHT, self._quadratic.start, refined=refined)

    def solve(self, D: Array, c: Array | None, center: Array) -> ConicAnswer:
        """Solve the program for one diagonal D >= 0 and one linear term c.

        Parameters
        ----------
        D : ndarray, shape (n,)
            Diagonal added to P.
        c : ndarray, shape (n,), or None
            Linear term added to q; None for ``-D * center``, which is the weighted projection of
            the center if P = 0 and q = 0.
        center : ndarray, shape (n,)
            Estimate of the minimizer. The program is solved for ``x - center``: if this is small,
            so is the objective, and the solver's relative tolerances are tight. Otherwise the
            answer does not depend on it.
        """
        answer = self._directly(D, c, center)
        return self._iterated(D, c, center) if answer is None else answer

    def _directly(self, D: Array, c: Array | None, center: Array) -> ConicAnswer | None:
        """Return an answer of the methods for sets of special structure; None if they have none."""
        direct = self._newton or self._orthogonal if c is None else None
        if direct is not None:  # an answer that it certifies is more accurate than `_SOLVED`
            solved = attempt(lambda: direct(D, center))
            if solved is not None:
                return ConicAnswer(solved.x, Outcome.SOLVED, math.sqrt(2 * solved.gap))
        size = largest(np.abs(center)) + largest(D)
        if not size + (0.0 if c is None else largest(np.abs(c))) <= LARGEST:
            return ConicAnswer(None, Outcome.FAILED)
        if self._active_set is not None:
            face = self._active_set(D, -D * center if c is None else c)
            if face is not None and _reached(face, _SOLVED, 1.0):
                return ConicAnswer(face.y, Outcome.SOLVED, math.sqrt(2 * face.gap * largest(D)))
        if c is not None and self._sum is not None:
            direct_sum = self._sum
            x = attempt(lambda: direct_sum(D, c, center))
            if x is not None:
                return ConicAnswer(x, Outcome.SOLVED)
        if self._semidefinite is not None:
            dual, linear = self._semidefinite, -D * center if c is None else c
            nearest = attempt(lambda: dual(D, linear))
            if nearest is not None:
                return ConicAnswer(nearest.x, Outcome.SOLVED, math.sqrt(2 * nearest.gap))
        if self._wider is not None:
            program, distant = self._wider
            wider = program.solve(D, c, center)
            if wider.x is not None and not self._beyond(wider.x, distant):
                return wider
        return None

    def _iterated(self, D: Array, c: Array | None, center: Array) -> ConicAnswer:
        """Return the answer of the interior-point solver, after further attempts if needed."""
        near = self._instance(D, c, center)
        if not max(near.far, near.curvature) <= LARGEST:
            return ConicAnswer(None, Outcome.FAILED)
        first = attempt(lambda: self._updated(near))
        if first is None:
            # The solver's state is unknown after an error: build a new one.
            first, self._sent = _NOTHING, (None, self._zero)
            vars(self).pop("_solver", None)
        if _reached(first, _SOLVED, near.far):
            return near.answer(first)
        usable = [(near, first)] if _usable(first, near) else []
        origin = self._instance(D, -D * center if c is None else c, np.zeros_like(center))
        retries = [(near, REGULARIZATION), (origin, REGULARIZATION)]
        if self._zero.size > _LARGE:
            retries.insert(0, (near, LARGER_REGULARIZATION))
        for instance, regularization in retries:
            # A new solver, scaled for these values.
            tight = self._attempt(instance, _TIGHT, True, regularization)
            # Around the origin the objective may be large, and a relative gap too loose.
            absolute = instance is near or tight.gap * instance.far * instance.far <= _SOLVED[0]
            if absolute and _reached(tight, _SOLVED, instance.far):
                return instance.answer(tight)
            usable += [(instance, tight)] if _usable(tight, instance) else []
        steep = near.steep()
        if steep is not None:
            tight = self._attempt(steep, _TIGHT, True)
            if _reached(tight, _SOLVED, 1.0):
                return steep.answer(tight)
        for equilibrate in () if usable else (True, False):
            loose = self._attempt(near, _LOOSE, equilibrate)
            usable += [(near, loose)] if _usable(loose, near) else []
        if usable:
            instance, best = min(usable, key=lambda pair: pair[1].gap * pair[0].far ** 2)
            return instance.answer(best, Outcome.INACCURATE)
        return self._without_solution(near, first, center if c is None else None)

    def _without_solution(
        self, near: _Instance, first: SolverAnswer, center: Array | None
    ) -> ConicAnswer:
        """Return the answer if the interior-point solver has none: proved empty, or by SCS.

        `first` is the answer of the first attempt. The projected point `center` is None if the
        program has a linear term.
        """
        general = bool(self._data.cones.power_nd)
        if general and center is not None and self._flat and self._inside(center):
            # The center is its projection. Clarabel stalls at the apexes of generalized power
            # cones, and SCS has no such cones.
            return ConicAnswer(center.copy(), Outcome.SOLVED, 0.0)
        verdict = _VERDICTS.get(str(first.status))
        if verdict is Outcome.INFEASIBLE and not self._proved_empty(near):
            verdict = Outcome.FAILED
        if verdict is not None:
            return ConicAnswer(None, verdict)
        y = first_order(self._with(near.values), near.q, near.b, self._data)
        if y is None:
            return ConicAnswer(None, Outcome.FAILED)
        return near.answer(
            SolverAnswer(y, 0.0, math.inf, math.inf, "first order"), Outcome.FALLBACK
        )

    def prices(self, center: Array) -> Array | None:
        """Return the shadow prices of the rows' right sides; None if the solver fails.

        A shadow price is the decrease of the optimal value per unit of the right side; it is zero
        for rows that do not bind.

        Parameters
        ----------
        center : ndarray, shape (n,)
            Estimate of the minimizer; it affects only the accuracy.
        """
        zero = np.zeros(center.size)
        near = self._instance(zero, zero, center)

        def solved() -> Array | None:
            solver = self._build(_TIGHT, near.values)
            solver.update(q=near.q, b=near.b)
            solution = solver.solve()
            if not _usable(self._read(solution, near), near):
                return None
            z = np.array(solution.z)
            least = _UNPAID * max(largest(np.abs(z)), largest(np.abs(near.q)))
            return near.curvature * near.far * np.where(np.abs(z) > least, z, 0.0)

        return attempt(solved)

    def _updated(self, near: _Instance) -> SolverAnswer:
        """Update the solver of the first attempt with the changed data, and return its answer."""
        changed = {"b": near.b}
        if near.q is not self._sent[1]:
            changed["q"] = near.q
        if near.values is not self._sent[0]:
            changed["P"] = near.values
        self._solver.update(**changed)
        self._sent = near.values, near.q
        return self._found(self._solver, near)

    def _beyond(self, x: Array, rows: NDArray[np.intp]) -> bool:
        """Return whether x violates one of the bounds in these rows."""
        return bool((self._data.b[rows] < self._own_A[rows] @ x).any())

    def _found(self, solver: Any, instance: _Instance) -> SolverAnswer:
        """Run a solver and return its answer; each vector is read once, because that copies it."""
        return self._read(solver.solve(), instance)

    def _read(self, solution: Any, instance: _Instance) -> SolverAnswer:
        x, value = np.array(solution.x), solution.obj_val
        if x.shape != self._zero.shape or not math.isfinite(x.sum()):
            residual = math.inf
        else:
            unmet_rows = unmet(self._data.A, self._sizes, x, np.array(solution.s), instance.b)
            residual = float(np.max([solution.r_prim, solution.r_dual, unmet_rows / _ROWS]))
        return SolverAnswer(x, value, abs(value - solution.obj_val_dual), residual, solution.status)

    def _proved_empty(self, instance: _Instance) -> bool:
        """Return whether a certificate z excludes feasible points of sizes up to `_EXCLUDED`.

        Every feasible y has ``b'z = (A y + s)'z >= y'A'z`` for z in the dual cones, so its largest
        component is at least ``-b'z / |A'z|_1``.
        """

        def excluded(certain: float) -> bool:
            solver = self._build(_TIGHT, instance.values, True, certain)
            solver.update(q=instance.q, b=instance.b)
            solution = solver.solve()
            z = np.array(solution.z)
            told = _VERDICTS.get(str(solution.status)) is Outcome.INFEASIBLE and z.shape
            reach = float(np.abs(self._data.A.T @ z).sum()) if told else math.nan
            return -float(instance.b @ z) > _EXCLUDED * reach

        return any(attempt(lambda c=c: excluded(c)) for c in _CERTAIN)

    def _instance(self, D: Array, c: Array | None, center: Array) -> _Instance:
        data, n = self._data, self._data.n
        values, curvature = self._with_weights(D)
        q, slope = self._zero, 0.0
        if c is not None or not self._flat:
            q = data.q + self._own_P @ center
            if c is not None:
                q[:n] += c + D * center
            q /= curvature
            slope = largest(np.abs(q))
        shift = self._own_A @ center
        b = data.b - shift
        # Cones are invariant under scaling, so a program with a distant answer is scaled down.
        size = largest(np.abs(b))
        violation = 0.0
        if not size * self._violated.factor <= _NEAR:
            within = self._violated(b)
            violation = largest(np.abs(shift)) if within is None else within
        far = max(1.0, max(slope, violation) / _NEAR)
        # If all data are small, the absolute tolerances would be larger than x: scale up.
        small = max(slope, size)
        if 0 < small < 1:
            far = max(small, _TINY)
        if far != 1.0:
            q = q / far if slope > 0 else q
            b /= far
        return _Instance(values, q, b, center, far, curvature)

    def _with_weights(self, D: Array) -> tuple[Array, float]:
        """Return the entries of P + diag(D), divided by its largest curvature, and the latter.

        The result is kept for the last D.
        """
        weights = D.tobytes()
        if weights != self._weights or not weights:
            form = self._quadratic
            curvature = max(form.curvature, largest(D)) or 1.0
            values = form.base.copy()
            values[form.slots] += D
            values /= curvature
            self._weights, self._kept = weights, (values, curvature)
        return self._kept

    def _attempt(
        self,
        instance: _Instance,
        tolerance: float,
        equilibrate: bool,
        regularization: float = REGULARIZATION,
    ) -> SolverAnswer:
        def solved() -> SolverAnswer:
            solver = self._build(
                tolerance, instance.values, equilibrate, regularization=regularization
            )
            solver.update(q=instance.q, b=instance.b)
            return self._found(solver, instance)

        return attempt(solved) or _NOTHING

    def extent(self) -> tuple[Array, Array]:
        """Return lower and upper bounds of every component of x, widened by the solver's accuracy.

        A bound is infinite if the set is unbounded in its direction, if no solve reaches full
        accuracy, or if the set has more than a few hundred components.
        """
        n = self._data.n
        lower, upper = np.full(n, -np.inf), np.full(n, np.inf)
        if n > _LARGEST_EXTENT:
            return lower, upper
        for j in range(n):
            unit = np.zeros(n)
            unit[j] = 1.0
            for sign, out in ((1.0, lower), (-1.0, upper)):
                answer = self.solve(np.zeros(n), sign * unit, np.zeros(n))
                if answer.outcome is Outcome.SOLVED and answer.x is not None:
                    out[j] = answer.x[j] - sign * _WIDER * (1.0 + abs(answer.x[j]))
        return lower, upper

    def linear_bounds(self) -> list[LinearBound]:
        """Return the linear constraints of the set as bounds, widened like the bounds of `extent`.

        Constraints with one component are omitted, and so are all if there are more than a hundred.
        """
        data = self._data
        simple = data.cones.zero + data.cones.nonneg
        A = without_zeros(data.A[:simple])
        own = np.diff(sp.csr_array(A[:, : data.n]).indptr)
        chosen = np.flatnonzero((own > 1) & (own == np.diff(A.indptr)))
        if chosen.size > _MOST_BOUNDS:
            return []
        bounds = []
        for r in chosen.tolist():
            span = slice(A.indptr[r], A.indptr[r + 1])
            b = float(data.b[r])
            below = b if r < data.cones.zero else -np.inf
            bounds.append(LinearBound.around(A.indices[span], A.data[span], below, b, _WIDER))
        return bounds

    def violation(self, x: Array) -> float | None:
        """Return the largest violation of a cone at x, or None if it is unknown.

        It is unknown for exponential and power cones, and if there are auxiliary columns that the
        equalities do not determine. (They determine the triangle of a symmetric matrix.)
        """
        data = self._data
        s = data.b - self._own_A @ x
        auxiliary = data.A[:, data.n :]
        if auxiliary.shape[1]:
            equalities = sp.csr_array(auxiliary[: data.cones.zero])
            # If the sparsity pattern alone rules out full rank, no dense matrix is made.
            if structural_rank(_with_short_indices(equalities)) < auxiliary.shape[1]:
                return None
            y, _, rank, _ = np.linalg.lstsq(equalities.toarray(), s[: data.cones.zero])
            if rank < auxiliary.shape[1]:
                return None
            s = s - auxiliary @ y
        return self._violated(s)

    def _inside(self, x: Array) -> bool:
        """Return whether x surely satisfies all constraints, by evaluating their rows."""
        data, cones = self._data, self._data.cones
        if data.A.shape[1] > data.n:
            return False
        s = data.b - self._own_A @ x
        simple = replace(cones, exp=0, power=(), power_nd=())
        start = (
            s.size - 3 * (cones.exp + len(cones.power)) - sum(len(a) + 1 for a in cones.power_nd)
        )
        outside = ConeTest(simple)(s[:start])
        if outside is None or outside > 0:
            return False
        rest = s[start + 3 * cones.exp :]
        if s[start : start + 3 * cones.exp].any():  # exponential cones are tested at 0 alone
            return False
        for a in (*((p, 1 - p) for p in cones.power), *cones.power_nd):
            sides, height, rest = rest[: len(a)], rest[len(a)], rest[len(a) + 1 :]
            if sides.min() < 0 or np.prod(sides ** np.array(a)) < abs(height):
                return False
        return True

    def _with(self, values: Array) -> sp.csc_array:
        pattern = self._quadratic.pattern
        return sp.csc_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)

    def _build(
        self,
        tolerance: float,
        values: Array,
        equilibrate: bool = True,
        certain: float = LIKELY,
        refined: bool = True,
        regularization: float = REGULARIZATION,
    ) -> Any:
        P = self._with(values)
        return interior_point(
            P, self._data, tolerance, equilibrate, certain, refined, regularization
        )


class _Quadratic(NamedTuple):
    """Sparsity pattern and entries of ``triu(P + diag(D))``, to be updated for any D."""

    pattern: sp.csc_array  # matrix with all entries that any D may need
    slots: NDArray[np.intp]  # positions of the entries that D is added to
    base: Array  # entries for D = 0
    curvature: float  # largest absolute entry of P
    start: Array  # entries for D = 1, with P scaled to a curvature of at most 1


def _quadratic_of(data: ConeData) -> _Quadratic:
    n, N = data.n, data.A.shape[1]
    ones = sp.csc_array((np.ones(n), (np.arange(n), np.arange(n))), shape=(N, N))
    pattern = sp.csc_array(sp.triu(data.P + 0 * data.P) + ones)  # keeps a slot per diagonal
    pattern.sort_indices()
    upper = sp.csc_array(sp.triu(data.P))
    column = np.repeat(np.arange(N), np.diff(pattern.indptr))
    slots = np.flatnonzero((pattern.indices == column) & (column < n))
    base = np.asarray(upper[pattern.indices, column]).ravel()
    curvature = float(np.max(np.abs(data.P.data), initial=0.0))
    start = base / max(curvature, 1.0)
    start[slots] += 1.0
    return _Quadratic(pattern, slots, base, curvature, start)


def _with_short_indices(M: sp.csr_array) -> sp.csr_array:
    """Return the matrix with 32-bit indices, since old versions of csgraph accept no others."""
    indices, indptr = M.indices.astype(np.int32), M.indptr.astype(np.int32)
    return sp.csr_array((M.data, indices, indptr), shape=M.shape)


def _without_distant(data: ConeData) -> tuple[ConeData, NDArray[np.intp]] | None:
    """Return the program without distant bounds of single components of x, and their rows.

    Return None if there are no such bounds, or no other rows.
    """
    rows = sp.csr_array(data.A)
    count = np.diff(rows.indptr)
    distant = np.zeros(count.size, dtype=bool)
    first = data.cones.zero + data.cones.nonneg
    single = data.cones.zero + np.flatnonzero(count[data.cones.zero : first] == 1)
    entries = rows.indptr[single]
    far = data.b[single] > _DISTANT * np.abs(rows.data[entries])
    distant[single] = far & (rows.indices[entries] < data.n)
    if not distant.any() or distant.all():
        return None
    cones = replace(data.cones, nonneg=data.cones.nonneg - int(distant.sum()))
    near = replace(data, A=sp.csc_array(rows[~distant]), b=data.b[~distant], cones=cones)
    return near, np.flatnonzero(distant)


def _reached(solution: SolverAnswer, required: tuple[float, float], far: float) -> bool:
    """Return whether gap and residual are as small as required, whatever the solver's status.

    The gap is relative to the objective before scaling by `far`, or to 1 if that is larger.
    """
    size = max(far, 1.0) * max(far, 1.0)  # a power would raise where it overflows
    gap = solution.gap * size / max(1.0, abs(solution.value) * size)
    return gap <= required[0] and solution.residual <= required[1]


_VERDICTS = {
    "PrimalInfeasible": Outcome.INFEASIBLE,
    "AlmostPrimalInfeasible": Outcome.INFEASIBLE,
    "DualInfeasible": Outcome.UNBOUNDED,
    "AlmostDualInfeasible": Outcome.UNBOUNDED,
}


def _usable(solution: SolverAnswer, instance: _Instance) -> bool:
    # The second test is relative to the size of a distant answer, which cannot be more accurate.
    return _reached(solution, _INACCURATE, 1.0) or _reached(solution, _INACCURATE, instance.far)
