"""The numpy kernel of Newton's method (`dpcvx.solvers.newton`), with factors by LAPACK or qdldl."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import qdldl
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from .newton_layout import LARGEST, RULES, NewtonLayout, Point

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Largest number of entries for which a dense matrix is multiplied faster than a sparse one.
_LITTLE = 20_000


_Evaluated = tuple[Array, Array, Array, Array]

# For short arrays, these are twice as fast as the methods of arrays.
_sum, _most = np.add.reduce, np.maximum.reduce


class PlainKernel:
    """Numpy kernel for ``minimize 1/2 sum_i D_i (x_i - v_i)^2`` under a layout's constraints.

    Parameters
    ----------
    layout : NewtonLayout
    budget, near : int
        Largest numbers of steps: for all points, and for points near the set.
    """

    def __init__(self, layout: NewtonLayout, budget: int, near: int = 0) -> None:
        self._layout = layout
        self._steps = RULES.shared(budget), RULES.shared(max(budget, near))
        self._room, self._reach = RULES.room(budget) * layout.size, RULES.reach(budget)
        Z = layout.Z
        small = Z.shape[0] * Z.shape[1] <= _LITTLE
        self._Z = Z.toarray() if small else Z
        self._turned_Z = np.ascontiguousarray(Z.toarray().T) if small else Z.T.tocsr()
        p, sizes = layout.size, np.diff(layout.heads)
        self._equal = layout.equal if layout.equal.any() else None
        self._long = layout.long
        widths, rows = np.diff(layout.pairs), np.arange(layout.d.size)
        self._heads, self._first = layout.heads[:-1], layout.pairs[:-1]
        self._of_row, self._of_pair = _numbers(sizes), _numbers(widths)
        # Entries in the order of rows, and a copy in the order of pairs.
        wide = widths[self._of_row]
        begin = _begin(wide)
        inside = np.arange(layout.block.size) - np.repeat(begin, wide)
        pair = self._first[np.repeat(self._of_row, wide)] + inside
        self._row_begin, self._entry_column = begin, layout.columns[pair]
        by_pair = np.lexsort((np.repeat(rows, wide), pair))
        self._by_pair = layout.block[by_pair]
        self._by_pair_row = np.repeat(rows, wide)[by_pair]
        self._pair_begin = _begin(sizes[self._of_pair])
        top = np.isin(self._by_pair_row, self._heads)
        self._top = self._by_pair[top]
        self._squares = np.add.reduceat(self._by_pair**2, self._pair_begin)
        self._a, self._b = _both(layout)
        self._gram = layout.gram
        self._of_product = _numbers(np.diff(layout.products))
        self._cones = sizes > 1
        column = np.repeat(np.arange(p), np.diff(layout.hp))
        below = layout.hi < column
        order = np.concatenate([np.arange(layout.hi.size), np.flatnonzero(below)])
        index = (
            np.concatenate([layout.hi, column[below]]),
            np.concatenate([column, layout.hi[below]]),
        )
        both = sp.csr_array((order + 1.0, index), shape=(p, p))
        self._entry = (both.data - 1).astype(np.intp)
        self._row, self._column = _numbers(np.diff(both.indptr)), both.indices.astype(np.intp)
        self._diagonal = np.flatnonzero(~below)
        self._matrix = _matrix(layout)

    def weigh(self, D: Array) -> bool:
        """Set positive weights D, shape (n,); return whether their matrix could be factored."""
        layout = self._layout
        self._D, self._values = D, layout.weighted @ D
        self._own, self._least = D[layout.free], float(D.min())
        self._H = self._values[self._entry]
        curvature = self._values[self._diagonal]
        steep = np.add.reduceat(self._squares / curvature[layout.columns], self._first)
        self._natural = 1.0 / steep
        self._factor = self._matrix.factor(self._values, retain=True)
        return self._factor is not None

    def project(self, v: Array) -> Point | None:
        """Return the projection of v, shape (n,); None if no answer is certified.

        The answer depends on the weights and v alone.
        """
        layout = self._layout
        q = self._turned_Z @ (self._D * (v - layout.x0))
        start = self._matrix.solve(self._factor, q)
        size = float(np.abs(start).max())
        if not size <= LARGEST:
            return None
        values = self._evaluated(start)
        phi = self._broken(values[3])
        terms = layout.norms * size + layout.offsets
        if np.count_nonzero(phi > 0) > self._room or (phi > self._reach * terms).any():
            return None
        allowed = RULES.violation * np.maximum(np.minimum(terms, 1.0), RULES.far * terms)
        call = _Call(q, start, allowed, RULES.gap * self._least * min(1.0, size * size))
        steps, left = self._steps[not (phi > RULES.close * terms).any()]
        multiplier = self._natural * self._pushed(values[3])
        point = self._newton(call, start, values, multiplier, steps)
        point = self._penalized(call, left) if point is None and left else point
        return None if point is None else point._replace(x=layout.x0 + self._Z @ point.x)

    def _newton(
        self, call: _Call, u: Array, evaluated: _Evaluated, multiplier: Array, most: int
    ) -> Point | None:
        """Take Newton's steps from u; return the answer with u in place of x, or None.

        The first stage begins with the multipliers that functions would have alone, so its first
        step includes the curvature of cones. If this step increases the violation, functions
        interact: the step is repeated without the functions whose multipliers became negative.
        """
        columns, p = self._layout.columns, self._layout.size
        of_pair, before = self._of_pair, math.inf
        natural, sigma = self._natural, RULES.penalty * self._natural
        first = u is call.start
        for step in range(most + 1):
            slack, length, divisor, phi = self._evaluated(u) if step else evaluated
            g = self._times(u) - call.q
            J = self._gradients(slack, divisor)
            left = g + np.bincount(columns, J * multiplier[of_pair], p)
            away = u - call.start
            value = 0.5 * float(away @ g)
            gap = float(_sum(np.abs(multiplier * phi)))
            gap += 0.5 * float(_sum(left * left / self._own))
            violation = float(_most(_relative(self._broken(phi), call.allowed)))
            if not math.isfinite(gap + violation + value):
                return None
            if (
                violation <= 1.0
                and gap <= max(call.gap, RULES.relative * value)
                and not self._negative(multiplier).any()
            ):
                return Point(u, gap, value, violation)
            # In the last two steps, only quadratic convergence is worth a further step.
            if step == most or (0 < step >= most - 2 and violation > 0.1 * before):
                return None
            if first and step == 1 and violation > before:
                u, violation = call.start, before
                slack, length, divisor, phi = self._evaluated(u)
                g, J = self._times(u) - call.q, self._gradients(slack, divisor)
                phi[self._negative(multiplier)] = 0.0
                multiplier = natural * self._pushed(phi)
            before = violation
            active = multiplier + natural * phi > 0
            if self._equal is not None:
                active |= self._equal
            idle = ~active
            multiplier[idle] = 0.0
            weights = np.where(active, sigma, 0.0)
            push = weights * phi
            curved = np.where(self._cones & (multiplier > 0) & (length > 0), multiplier, 0.0)
            M = self._matrix.factor(self._hessian(J, weights, curved, divisor), weights[self._long])
            if M is None:
                return None
            last = math.inf
            way = u
            for _ in range(RULES.refinements):
                pull = J * (multiplier + push)[of_pair]
                way = -self._matrix.solve(M, g + np.bincount(columns, pull, p))
                error = np.add.reduceat(J * way[columns], self._first) + phi
                error[idle] = 0.0
                multiplier += sigma * error
                worst = float(_most(_relative(np.abs(error), call.allowed)))
                if worst <= max(1e-4, 1e-6 * violation) or worst >= 0.5 * last:
                    break
                last = worst
            u = u + way
        return None

    def _penalized(self, call: _Call, budget: int) -> Point | None:
        r"""Return the minimizer by convex augmented Lagrangians with growing penalties, or None.

        Cones have one multiplier per row here. With multipliers y, w = y - sigma s and the
        projection :math:`\Pi` onto the cone, a cone adds :math:`|\Pi(w)|^2 / 2 \sigma`, which has a
        generalized second derivative at the apex as well. Newton's method with a line search
        minimizes each augmented Lagrangian.
        """
        y, u = np.zeros(self._layout.d.size), call.start
        strength, before = RULES.first, math.inf
        while True:
            sigma = strength * self._natural
            tried = self._merit(call, u, y, sigma)
            while True:
                g = tried.Hu - call.q + self._turned(tried.pull)
                M = self._matrix.factor(*self._bent(tried, sigma))
                budget -= 1
                if M is None or budget < 0 or not math.isfinite(tried.merit):
                    return None
                way = -self._matrix.solve(M, g)
                slope, t, old, now = float(g @ way), 1.0, u, tried
                while True:
                    u = old + t * way
                    tried = self._merit(call, u, y, sigma)
                    if tried.merit <= now.merit + 1e-4 * t * slope or t < 1e-6:
                        break
                    t *= 0.5
                moved = tried.pull - y
                change = float((moved * moved / sigma[self._of_row]).sum())
                if -slope <= max(0.1 * call.gap, 1e-3 * change):
                    break
            y = tried.pull
            g = tried.Hu - call.q
            left = g + self._turned(y)
            value = 0.5 * float((u - call.start) @ g)
            gap = float(np.abs(np.add.reduceat(y * tried.slack, self._heads)).sum())
            gap += 0.5 * float((left * left / self._own).sum())
            violation = float(_most(_relative(self._broken(tried.phi), call.allowed)))
            if violation <= 1.0 and gap <= max(call.gap, RULES.relative * value):
                return Point(u, gap, value, violation)
            # For an empty or nearly empty set, violations stay above this.
            if violation <= RULES.near:  # the first stage is more accurate than large penalties
                heads = self._pushed(y[self._heads])
                end = min(RULES.end, budget)
                point = self._newton(call, u, self._evaluated(u), heads, end)
                budget -= RULES.end
                if point is not None:
                    return point
            if strength >= RULES.settled and violation > 1.0 and not violation <= 0.5 * before:
                return None
            strength, before = min(RULES.growth * strength, RULES.last), violation

    def _merit(self, call: _Call, u: Array, y: Array, sigma: Array) -> _Tried:
        slack, _, _, phi = self._evaluated(u)
        w = y - sigma[self._of_row] * slack
        squares = w * w
        squares[self._heads] = 0.0
        length, head = np.sqrt(np.add.reduceat(squares, self._heads)), w[self._heads]
        # Cases of w: in the cone, projected to 0, or projected onto the boundary.
        half = 0.5 * (1.0 + head / np.where(length > 0, length, np.inf))
        share = np.where(length <= head, 1.0, np.where(length <= -head, 0.0, half))
        pull = w * share[self._of_row]
        pull[self._heads] = np.where(length <= head, head, share * length)
        if self._equal is not None:
            pull[self._heads[self._equal]] = head[self._equal]
        Hu = self._times(u)
        squares = np.add.reduceat(pull * pull, self._heads)
        merit = float(u @ (0.5 * Hu - call.q)) + 0.5 * float((squares / sigma).sum())
        return _Tried(merit, slack, phi, w, length, head, share, pull, Hu)

    def _times(self, u: Array) -> Array:
        """Return ``H u``, H the objective's matrix, faster than scipy for a few hundred entries."""
        products = self._H * u[self._column]
        return np.asarray(np.bincount(self._row, products, u.size), float)

    def _turned(self, weights: Array) -> Array:
        """Return ``C' weights`` for the matrix C of constraint rows, with a weight per row."""
        products = self._by_pair * weights[self._by_pair_row]
        by_pair = np.add.reduceat(products, self._pair_begin)
        return np.asarray(np.bincount(self._layout.columns, by_pair, self._layout.size), float)

    def _broken(self, phi: Array) -> Array:
        """Return the violations of constraint functions from values phi: |phi| for equalities."""
        return phi if self._equal is None else np.where(self._equal, np.abs(phi), phi)

    def _pushed(self, values: Array) -> Array:
        """Return values with negative ones replaced by 0, except for equalities."""
        pushed = np.maximum(values, 0.0)
        return pushed if self._equal is None else np.where(self._equal, values, pushed)

    def _negative(self, multiplier: Array) -> NDArray[np.bool_]:
        """Return which multipliers are negative and belong to inequalities."""
        negative = multiplier < 0
        return negative if self._equal is None else negative & ~self._equal

    def _bent(self, tried: _Tried, sigma: Array) -> tuple[Array, Array]:
        """Return an augmented Lagrangian's second derivative, with penalties sigma, at `tried`.

        The results are its matrix entries without long rows, and the weights of the long rows.
        """
        a, b, of_pair = self._a, self._b, self._of_pair
        inside = tried.length <= tried.head
        if self._equal is not None:
            inside = inside | self._equal
        middle = ~inside & (tried.length > -tried.head)
        turned = tried.w / np.where(tried.length > 0, tried.length, np.inf)[self._of_row]
        turned[self._heads] = 0.0
        tilt = np.add.reduceat(self._by_pair * turned[self._by_pair_row], self._pair_begin)
        both = self._top + np.where(middle[of_pair], tilt, 0.0)
        weight = sigma * np.where(inside, 1.0, np.where(middle, 0.5, 0.0))
        curve = sigma * np.where(inside | middle, tried.share, 0.0)
        values = (both * weight[of_pair])[a] * both[b]
        values += self._gram * curve[self._of_product]
        tilt = np.where(middle[of_pair], tilt, 0.0)
        values -= (tilt * curve[of_pair])[a] * tilt[b]
        bent = self._values + np.bincount(self._layout.slots, values, self._values.size)
        return bent, weight[self._long]

    def _evaluated(self, u: Array) -> _Evaluated:
        """Return slacks of rows, norms of tails (rows below the head), divisors, and values at u.

        A function's divisor is the norm of its tail, or infinite if that is 0; its value is the
        norm minus the head's slack.
        """
        products = self._layout.block * u[self._entry_column]
        slack = self._layout.d - np.add.reduceat(products, self._row_begin)
        squares = slack * slack
        squares[self._heads] = 0.0
        length = np.sqrt(np.add.reduceat(squares, self._heads))
        divisor = np.where(length > 0, length, np.inf)
        return slack, length, divisor, length - slack[self._heads]

    def _gradients(self, slack: Array, divisor: Array) -> Array:
        """Return gradients J by (function, column); for a zero tail, the head row's gradient."""
        turned = slack / -divisor[self._of_row]
        turned[self._heads] = 1.0
        return np.add.reduceat(self._by_pair * turned[self._by_pair_row], self._pair_begin)

    def _hessian(self, J: Array, weights: Array, curved: Array, divisor: Array) -> Array:
        """Return the entries of ``H + sum_i weights_i J_i J_i' + curved_i phi_i''``."""
        a, b, of_pair = self._a, self._b, self._of_pair
        values = (J * weights[of_pair])[a] * J[b]
        if curved.any():
            curve = curved / divisor
            tilt = self._top - J
            values += self._gram * curve[self._of_product]
            values -= (tilt * curve[of_pair])[a] * tilt[b]
        return self._values + np.bincount(self._layout.slots, values, self._values.size)


class _Tried(NamedTuple):
    """Augmented Lagrangian and its parts at a point u, in the second stage.

    Attributes
    ----------
    merit : float
        Value of the augmented Lagrangian.
    slack, phi : ndarray
        Slacks of rows; values of functions.
    w, length, head : ndarray
        ``w = y - sigma s`` by rows; norm of its tail and its head, for every function.
    share : ndarray
        Factor of w's tail in its projection onto the cone, for every function.
    pull : ndarray
        Projections of w onto the cones, by rows.
    Hu : ndarray
        Product of H and u.
    """

    merit: float
    slack: Array
    phi: Array
    w: Array
    length: Array
    head: Array
    share: Array
    pull: Array
    Hu: Array


class _Call(NamedTuple):
    """One projection: its linear term, initial point, and tolerances of violations and gap."""

    q: Array
    start: Array
    allowed: Array
    gap: float


def _relative(values: Array, allowed: Array) -> Array:
    """Return values divided by their tolerances; 0 / 0 counts as 0, as in the compiled kernel.

    A tolerance is 0 if all terms of a function vanish, such as the terms of a norm at 0.
    """
    if allowed.all():
        return values / allowed
    with np.errstate(divide="ignore"):
        return np.divide(values, allowed, out=np.zeros_like(values), where=values != 0)


def _numbers(sizes: Index) -> Index:
    """Return, for every element of consecutive runs of these sizes, the number of its run."""
    return np.repeat(np.arange(sizes.size), sizes)


def _begin(sizes: Index) -> Index:
    """Return the offsets of consecutive runs of these sizes."""
    return np.cumsum(sizes) - sizes


def _both(layout: NewtonLayout) -> tuple[Index, Index]:
    """Return the positions of the two factors of every product of pairs, as two arrays."""
    a, b = np.empty((2, layout.slots.size), dtype=np.intp)
    widths = np.where(np.diff(layout.products) > 0, np.diff(layout.pairs), 0)
    for width in np.unique(widths[widths > 0]):
        these = np.flatnonzero(widths == width)
        i, j = np.tril_indices(width)
        index = layout.products[these][:, None] + np.arange(i.size)
        a[index], b[index] = layout.pairs[these][:, None] + i, layout.pairs[these][:, None] + j
    return a, b


def _matrix(layout: NewtonLayout) -> Any:
    """Return the object that factors matrices with a layout's sparsity pattern."""
    if layout.long.size and not layout.li.size:
        inner: Any = _Diagonal()
    else:
        inner = (_Full if layout.dense else _Sparse)(layout)
    return _Bordered(layout.border, inner) if layout.long.size else inner


class _Bordered:
    """Factorization of ``M + sum_i w_i c_i c_i'`` with long rows c_i, by factors of M alone.

    It uses Woodbury's identity, with the Schur complement ``C M^-1 C' + diag(1/w)`` of the rows
    with positive weights.
    """

    def __init__(self, border: Array, inner: Any) -> None:
        self._border, self._inner = border, inner
        # Large dense products would start threads of BLAS; sparse products are faster here.
        self._rows = None if border.size <= _LITTLE else sp.csr_array(border)

    def factor(self, values: Array, weights: Array | None = None, retain: bool = False) -> Any:
        M = self._inner.factor(values, None, retain)
        used = None if weights is None else np.flatnonzero(weights > 0)
        if M is None or weights is None or used is None or not used.size:
            return None if M is None else (M, None, None, None)
        every = used.size == weights.size
        C = self._border if every else self._border[used]
        turned = self._inner.solve_rows(M, C)
        rows = C if self._rows is None else self._rows if every else self._rows[used]
        S = rows @ turned.T
        S.ravel()[:: used.size + 1] += 1.0 / weights[used]
        L, failed = dpotrf(S, lower=1)
        return None if failed else (M, C, turned, L)

    def solve(self, factor: Any, right: Array) -> Array:
        M, C, turned, L = factor
        x = self._inner.solve(M, right)
        return x if C is None else x - dpotrs(L, C @ x, lower=1)[0] @ turned


class _Diagonal:
    """Factorization of a diagonal matrix."""

    def factor(self, values: Array, _: Array | None = None, retain: bool = False) -> Any:
        return values if (values > 0).all() else None

    def solve(self, factor: Any, right: Array) -> Array:
        return right / factor

    def solve_rows(self, factor: Any, rows: Array) -> Array:
        return rows / factor


class _Full:
    """Factorization of a symmetric matrix with a layout's pattern, as a dense matrix."""

    def __init__(self, layout: NewtonLayout) -> None:
        p = layout.size
        self._shape = (p, p)
        # The upper triangle, stored by rows, is the lower one for LAPACK, which reads by columns.
        self._slots = layout.hi * p + np.repeat(np.arange(p), np.diff(layout.hp))

    def factor(self, values: Array, _: Array | None = None, retain: bool = False) -> Any:
        M = np.zeros(self._shape)
        M.ravel()[self._slots] = values
        L, failed = dpotrf(M.T, lower=1, overwrite_a=1)
        return None if failed else L

    def solve(self, factor: Any, right: Array) -> Array:
        return dpotrs(factor, right, lower=1)[0]

    def solve_rows(self, factor: Any, rows: Array) -> Array:
        return dpotrs(factor, rows.T, lower=1)[0].T


class _Sparse:
    """Factorization of a sparse matrix; a retained factor survives the factors of later steps."""

    def __init__(self, layout: NewtonLayout) -> None:
        p = layout.size
        entries = np.ones(layout.hi.size), layout.hi.astype(np.int32), layout.hp.astype(np.int32)
        self._matrix = sp.csc_matrix(entries, shape=(p, p))
        self._matrix.setdiag(1.0 + p)
        self._ready = [qdldl.Solver(self._matrix, upper=True) for _ in range(2)]

    def factor(self, values: Array, _: Array | None = None, retain: bool = False) -> Any:
        self._matrix.data[:] = values
        solver = self._ready[retain]
        solver.update(self._matrix, upper=True)
        return solver

    def solve(self, factor: Any, right: Array) -> Array:
        return factor.solve(right)

    def solve_rows(self, factor: Any, rows: Array) -> Array:
        return np.array([factor.solve(row) for row in rows])
