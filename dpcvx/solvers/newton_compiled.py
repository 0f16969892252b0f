"""The method of `newton_plain` as loops that numba compiles, in place of array operations.

This module is imported only if numba is installed. All functions are in one file because numba
caches compiled functions on disk until their file changes.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

from .newton_layout import LARGEST, RULES, NewtonLayout, Point

Array = NDArray[np.float64]


class _Note(event.Listener):
    """Listener that prints a note when numba compiles, since that takes longer than many runs."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        """Print one note, for any number of compiled functions."""
        if not self.said:
            with suppress(OSError, ValueError, AttributeError):  # standard error closed or missing
                sys.stderr.write(
                    "dpcvx: compiling local steps, once on this machine: about 15 to 20 s of the "
                    "processor ...\n"
                )
                sys.stderr.flush()  # so that a file shows the note while numba compiles
        self.said = True

    def on_end(self, event: Any) -> None:
        """Ignore the end of a compilation."""


def _compiled(function: Any) -> Any:
    """Return the function, compiled at its first call and cached on disk if that is possible."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # there is no writable folder for the cache
        return numba.njit(nogil=True, error_model="numpy")(function)


class _Fixed(NamedTuple):
    """Arrays of a `NewtonLayout`; the names with `weighted` are its map from D to entries of H."""

    hp: Any
    hi: Any
    parent: Any
    lp: Any
    li: Any
    heads: Any
    pairs: Any
    columns: Any
    blocks: Any
    products: Any
    slots: Any
    weighted_begin: Any
    weighted_at: Any
    z_begin: Any
    z_at: Any
    free: Any
    weighted: Any
    z: Any
    x0: Any
    block: Any
    d: Any
    gram: Any
    norms: Any
    offsets: Any


class _Work(NamedTuple):
    """Work arrays for weights and points; arrays of one shape are rows of one matrix.

    Attributes
    ----------
    D, x : ndarray, shape (n,)
        Weights; point to project, overwritten by the answer.
    H, M : ndarray
        Entries of two matrices; `L` and `inverse`, of shape (2, .), hold their factors.
    own, q, start, u, g, way, old, y : ndarray, shape (p,)
        Vectors of free columns; see `PlainKernel` for their meaning.
    natural, length, phi, kind, share, allowed, multiplier : ndarray, shape (count,)
        One number per function.
    slack, pull, dual : ndarray
        One number per row.
    J, tilt : ndarray
        One number per pair; in the second stage, J holds the edges of cones.
    marks : ndarray of int, shape (4, p)
        Work arrays of the factorization.
    """

    D: Any
    x: Any
    H: Any
    M: Any
    L: Any
    inverse: Any
    own: Any
    q: Any
    start: Any
    u: Any
    g: Any
    way: Any
    old: Any
    y: Any
    natural: Any
    length: Any
    phi: Any
    kind: Any
    share: Any
    allowed: Any
    multiplier: Any
    slack: Any
    pull: Any
    dual: Any
    J: Any
    tilt: Any
    marks: Any


@_compiled
def _factor(hp, hi, H, parent, lp, li, L, inverse, marks, y):
    """Factor ``H = L diag(1 / inverse) L'`` row by row; return whether all pivots are positive.

    `hp` and `hi` are the offsets and rows of H's columns, `lp` and `li` of L's. `parent` has the
    first row below the diagonal of L's columns. `marks` and `y` are work arrays.
    """
    n = hp.size - 1
    after, flag, path, stack = marks[0], marks[1], marks[2], marks[3]
    for k in range(n):
        after[k] = lp[k]
        flag[k] = -1
        y[k] = 0.0
    for k in range(n):
        top = n
        flag[k] = k
        pivot = 0.0
        for t in range(hp[k], hp[k + 1]):
            i = hi[t]
            if i == k:
                pivot = H[t]
                continue
            y[i] = H[t]
            length = 0
            while flag[i] != k:
                stack[length] = i
                length += 1
                flag[i] = k
                i = parent[i]
            while length > 0:
                length -= 1
                top -= 1
                path[top] = stack[length]
        for position in range(top, n):
            i = path[position]
            value = y[i]
            y[i] = 0.0
            end = after[i]
            for t in range(lp[i], end):
                y[li[t]] -= L[t] * value
            entry = value * inverse[i]
            pivot -= entry * value
            L[end] = entry
            after[i] = end + 1
        if not pivot > 0.0:
            return False
        inverse[k] = 1.0 / pivot
    return True


@_compiled
def _solve(lp, li, L, inverse, x):
    """Solve a linear system by factors of its matrix; x, the right side, becomes the solution."""
    n = lp.size - 1
    for k in range(n):
        value = x[k]
        for t in range(lp[k], lp[k + 1]):
            x[li[t]] -= L[t] * value
    for k in range(n):
        x[k] *= inverse[k]
    for k in range(n - 1, -1, -1):
        value = x[k]
        for t in range(lp[k], lp[k + 1]):
            value -= L[t] * x[li[t]]
        x[k] = value


@_compiled
def _times(hp, hi, H, x, out):
    """Compute ``out = H x`` from the upper triangle of H."""
    n = hp.size - 1
    for j in range(n):
        out[j] = 0.0
    for k in range(n):
        for t in range(hp[k], hp[k + 1]):
            i = hi[t]
            out[k] += H[t] * x[i]
            if i != k:
                out[i] += H[t] * x[k]


@_compiled
def _opened(begin, ints, begins, floats):
    """Return all arrays of a layout and all work arrays, as views of two long arrays.

    Each argument of a compiled function costs a tenth of a microsecond, so only four are passed.
    """
    fixed = _Fixed(
        ints[begin[0] : begin[1]], ints[begin[1] : begin[2]], ints[begin[2] : begin[3]],
        ints[begin[3] : begin[4]], ints[begin[4] : begin[5]], ints[begin[5] : begin[6]],
        ints[begin[6] : begin[7]], ints[begin[7] : begin[8]], ints[begin[8] : begin[9]],
        ints[begin[9] : begin[10]], ints[begin[10] : begin[11]], ints[begin[11] : begin[12]],
        ints[begin[12] : begin[13]], ints[begin[13] : begin[14]], ints[begin[14] : begin[15]],
        ints[begin[15] : begin[16]], floats[begins[0] : begins[1]], floats[begins[1] : begins[2]],
        floats[begins[2] : begins[3]], floats[begins[3] : begins[4]], floats[begins[4] : begins[5]],
        floats[begins[5] : begins[6]], floats[begins[6] : begins[7]], floats[begins[7] : begins[8]],
    )  # fmt: skip
    n, p, count = fixed.x0.size, fixed.hp.size - 1, fixed.heads.size - 1
    points = floats[begins[8] : begins[9]].reshape((2, n))
    entries = floats[begins[9] : begins[10]].reshape((2, fixed.hi.size))
    L = floats[begins[10] : begins[11]].reshape((2, fixed.li.size))
    columns = floats[begins[11] : begins[12]].reshape((10, p))
    functions = floats[begins[12] : begins[13]].reshape((7, count))
    rows = floats[begins[13] : begins[14]].reshape((3, fixed.d.size))
    pairs = floats[begins[14] : begins[15]].reshape((2, fixed.columns.size))
    work = _Work(
        points[0], points[1], entries[0], entries[1], L, columns[:2], columns[2], columns[3],
        columns[4], columns[5], columns[6], columns[7], columns[8], columns[9], functions[0],
        functions[1], functions[2], functions[3], functions[4], functions[5], functions[6],
        rows[0], rows[1], rows[2], pairs[0], pairs[1], ints[begin[16] : begin[17]].reshape((4, p)),
    )  # fmt: skip
    return fixed, work


@_compiled
def _factored(fixed, work, H, L, inverse):
    """Factor the matrix H into L and inverse; return whether all pivots are positive."""
    hp, hi, parent, lp, li = fixed.hp, fixed.hi, fixed.parent, fixed.lp, fixed.li
    return _factor(hp, hi, H, parent, lp, li, L, inverse, work.marks, work.y)


@_compiled
def _weigh(begin, ints, begins, floats):
    """Compute and factor the objective's matrix H for weights D, and set natural penalties.

    Return whether H could be factored.
    """
    fixed, work = _opened(begin, ints, begins, floats)
    D, H = work.D, work.H
    for t in range(H.size):
        value = 0.0
        for e in range(fixed.weighted_begin[t], fixed.weighted_begin[t + 1]):
            value += fixed.weighted[e] * D[fixed.weighted_at[e]]
        H[t] = value
    for j in range(fixed.free.size):
        work.own[j] = D[fixed.free[j]]
    heads, pairs = fixed.heads, fixed.pairs
    for c in range(work.natural.size):
        width = pairs[c + 1] - pairs[c]
        steep = 0.0
        for j in range(width):
            square = 0.0
            for i in range(heads[c + 1] - heads[c]):
                entry = fixed.block[fixed.blocks[c] + i * width + j]
                square += entry * entry
            steep += square / H[fixed.hp[fixed.columns[pairs[c] + j] + 1] - 1]
        work.natural[c] = 1.0 / steep
    return _factored(fixed, work, H, work.L[0], work.inverse[0])


@_compiled
def _evaluate(fixed, work):
    """Compute constraint functions at u, and gradients if positive or with a multiplier."""
    heads, pairs, columns = fixed.heads, fixed.pairs, fixed.columns
    blocks, block, d = fixed.blocks, fixed.block, fixed.d
    u, slack, phi, J = work.u, work.slack, work.phi, work.J
    for c in range(phi.size):
        first, begin, start = heads[c], pairs[c], blocks[c]
        size, width = heads[c + 1] - first, pairs[c + 1] - begin
        squares = 0.0
        for i in range(size):
            value = d[first + i]
            for j in range(width):
                value -= block[start + i * width + j] * u[columns[begin + j]]
            slack[first + i] = value
            if i > 0:
                squares += value * value
        root = math.sqrt(squares)
        work.length[c] = root
        phi[c] = root - slack[first]
        if not (phi[c] > 0.0 or work.multiplier[c] != 0.0):
            continue
        inverse = 1.0 / root if root > 0.0 else 0.0
        for j in range(width):
            value = block[start + j]
            for i in range(1, size):
                value -= slack[first + i] * inverse * block[start + i * width + j]
            J[begin + j] = value


@_compiled
def _add_block(fixed, c, edge, tilt, weight, curve, M):
    """Add ``weight edge edge' + curve (gram - tilt tilt')`` of function c to the matrix M."""
    begin, e = fixed.pairs[c], fixed.products[c]
    slots, gram = fixed.slots, fixed.gram
    for i in range(fixed.pairs[c + 1] - begin):
        for j in range(i + 1):
            value = weight * edge[begin + i] * edge[begin + j]
            if curve > 0.0:
                value += curve * (gram[e] - tilt[begin + i] * tilt[begin + j])
            M[slots[e]] += value
            e += 1


@_compiled
def _merit(fixed, work, strength):
    """Return the augmented Lagrangian at u, for the second stage, and set g to H u - q.

    Set also the slacks, the functions' values, `pull` (projections of w), edges and tilts, and for
    every function the case of its second derivative (`kind`) and its `share`; see `_Tried`.
    """
    heads, pairs, columns = fixed.heads, fixed.pairs, fixed.columns
    blocks, block, d = fixed.blocks, fixed.block, fixed.d
    u, g, slack, phi, dual = work.u, work.g, work.slack, work.phi, work.dual
    pull, kind, share, edge, tilt = work.pull, work.kind, work.share, work.J, work.tilt
    _times(fixed.hp, fixed.hi, work.H, u, g)
    f = 0.0
    for j in range(u.size):
        f += u[j] * (0.5 * g[j] - work.q[j])
        g[j] -= work.q[j]
    for c in range(phi.size):
        first, begin, start = heads[c], pairs[c], blocks[c]
        size, width = heads[c + 1] - first, pairs[c + 1] - begin
        sigma = strength * work.natural[c]
        below, squares, head = 0.0, 0.0, 0.0
        for i in range(size):
            value = d[first + i]
            for j in range(width):
                value -= block[start + i * width + j] * u[columns[begin + j]]
            slack[first + i] = value
            w = dual[first + i] - sigma * value
            pull[first + i] = w
            if i > 0:
                below += value * value
                squares += w * w
            else:
                head = w
        phi[c] = math.sqrt(below) - slack[first]
        root = math.sqrt(squares)
        if root <= head:
            kind[c], share[c] = 2.0, 1.0
        elif root <= -head:
            kind[c], share[c] = 0.0, 0.0
        else:
            kind[c], share[c] = 1.0, 0.5 * (1.0 + head / root)
        for j in range(width):
            value = 0.0
            if kind[c] == 1.0:
                for i in range(1, size):
                    value += pull[first + i] / root * block[start + i * width + j]
            tilt[begin + j] = value
            edge[begin + j] = block[start + j] + value
        total = 0.0
        for i in range(size):
            if i > 0 or kind[c] != 1.0:
                pull[first + i] *= share[c]
            else:
                pull[first] = share[c] * root
            total += pull[first + i] * pull[first + i]
        f += 0.5 * total / sigma
    return f


@_compiled
def _add_rows(fixed, weights, out):
    """Add ``C' weights`` to out, for the matrix C of constraint rows."""
    heads, pairs, columns = fixed.heads, fixed.pairs, fixed.columns
    for c in range(heads.size - 1):
        width = pairs[c + 1] - pairs[c]
        for i in range(heads[c + 1] - heads[c]):
            weight = weights[heads[c] + i]
            if weight != 0.0:
                for j in range(width):
                    entry = fixed.block[fixed.blocks[c] + i * width + j]
                    out[columns[pairs[c] + j]] += weight * entry


@_compiled
def _penalize(fixed, work, rules, growing, wanted, refinements, budget):
    """Run `PlainKernel`'s second stage, penalties; return whether the answer u is certified.

    The other three numbers are gap, value and violation of the answer.
    """
    heads, natural, H, M = fixed.heads, work.natural, work.H, work.M
    u, g, way, old, phi = work.u, work.g, work.way, work.old, work.phi
    pull, kind, share, dual = work.pull, work.kind, work.share, work.dual
    strength, growth, last, settled, near, end = growing
    n, before = u.size, math.inf
    dual[:] = 0.0
    u[:] = work.start
    while True:
        f = _merit(fixed, work, strength)
        while True:
            _add_rows(fixed, pull, g)
            M[:] = H
            for c in range(phi.size):
                if kind[c] > 0.0:
                    sigma = strength * natural[c]
                    weight, curve = 0.5 * sigma * kind[c], sigma * share[c]
                    _add_block(fixed, c, work.J, work.tilt, weight, curve, M)
            budget -= 1
            if (
                budget < 0
                or not math.isfinite(f)
                or not _factored(fixed, work, M, work.L[1], work.inverse[1])
            ):
                return False, 0.0, 0.0, 0.0
            slope, part = 0.0, 1.0
            for j in range(n):
                way[j] = -g[j]
            _solve(fixed.lp, fixed.li, work.L[1], work.inverse[1], way)
            for j in range(n):
                slope += g[j] * way[j]
                old[j] = u[j]
            while True:
                for j in range(n):
                    u[j] = old[j] + part * way[j]
                new = _merit(fixed, work, strength)
                if new <= f + 1e-4 * part * slope or part < 1e-6:
                    break
                part *= 0.5
            f = new
            change = 0.0
            for c in range(phi.size):
                for i in range(heads[c], heads[c + 1]):
                    moved = pull[i] - dual[i]
                    change += moved * moved / (strength * natural[c])
            if -slope <= max(0.1 * wanted, 1e-3 * change):
                break
        gap, value, violation = 0.0, 0.0, -math.inf
        for j in range(n):
            value += 0.5 * (u[j] - work.start[j]) * g[j]
            way[j] = g[j]
        _add_rows(fixed, pull, way)
        for j in range(n):
            gap += 0.5 * way[j] * way[j] / work.own[j]
        for c in range(phi.size):
            product = 0.0
            for i in range(heads[c], heads[c + 1]):
                dual[i] = pull[i]
                product += dual[i] * work.slack[i]
            gap += abs(product)
            violation = max(violation, phi[c] / work.allowed[c])
        if violation <= 1.0 and gap <= max(wanted, rules[3] * value):
            return True, gap, value, violation
        if violation <= near:
            for c in range(phi.size):
                work.multiplier[c] = max(dual[heads[c]], 0.0)
            old[:] = u
            steps = int(min(end, budget))
            _evaluate(fixed, work)
            result = _newton(fixed, work, rules, wanted, refinements, steps, math.inf)
            if result[0]:
                return result
            budget -= int(end)
            u[:] = old
        if strength >= settled and violation > 1.0 and not violation <= 0.5 * before:
            return False, 0.0, 0.0, 0.0
        strength, before = min(growth * strength, last), violation


@_compiled
def _newton(fixed, work, rules, wanted, refinements, steps, leeway):
    """Take Newton's steps from the evaluated point u; return whether the answer is certified.

    The other three numbers are gap, value and violation of the answer. If the first step increases
    the violation by more than `leeway`, it is repeated with fewer functions. (`leeway` is a float
    because numba would compile a second version for a bool or an int.)
    """
    pairs, columns, blocks = fixed.pairs, fixed.columns, fixed.blocks
    u, g, way, start, q = work.u, work.g, work.way, work.start, work.q
    natural, phi, length, J, tilt = work.natural, work.phi, work.length, work.J, work.tilt
    multiplier, allowed, active, M = work.multiplier, work.allowed, work.kind, work.M
    relative, strength = rules[3], rules[4]
    count, n, before = phi.size, u.size, math.inf
    for step in range(steps + 1):
        if step > 0:
            _evaluate(fixed, work)
        _times(fixed.hp, fixed.hi, work.H, u, g)
        value = 0.0
        for j in range(n):
            g[j] -= q[j]
            value += 0.5 * (u[j] - start[j]) * g[j]
            way[j] = g[j]
        gap, violation, negative = 0.0, -math.inf, False
        for c in range(count):
            if multiplier[c] != 0.0:
                for t in range(pairs[c], pairs[c + 1]):
                    way[columns[t]] += multiplier[c] * J[t]
                gap += abs(multiplier[c] * phi[c])
                negative = negative or multiplier[c] < 0.0
            violation = max(violation, phi[c] / allowed[c])
        for j in range(n):
            gap += 0.5 * way[j] * way[j] / work.own[j]
        if not (math.isfinite(gap + value) and violation < math.inf):
            return False, 0.0, 0.0, 0.0
        if violation <= 1.0 and gap <= max(wanted, relative * value) and not negative:
            return True, gap, value, violation
        if step == steps or (0 < step and step >= steps - 2 and violation > 0.1 * before):
            return False, 0.0, 0.0, 0.0
        if step == 1 and violation > before + leeway:
            u[:] = start
            _evaluate(fixed, work)
            _times(fixed.hp, fixed.hi, work.H, u, g)
            for j in range(n):
                g[j] -= q[j]
            for c in range(count):
                phi[c] = 0.0 if multiplier[c] < 0.0 else phi[c]
                multiplier[c] = natural[c] * max(phi[c], 0.0)
            violation = before
        before = violation
        M[:] = work.H
        for c in range(count):
            if multiplier[c] + natural[c] * phi[c] > 0.0:
                curved = multiplier[c] > 0.0 and length[c] > 0.0
                curve = multiplier[c] / length[c] if curved else 0.0
                for j in range(pairs[c + 1] - pairs[c]):
                    tilt[pairs[c] + j] = fixed.block[blocks[c] + j] - J[pairs[c] + j]
                _add_block(fixed, c, J, tilt, strength * natural[c], curve, M)
                active[c] = 1.0
            else:
                multiplier[c] = 0.0
                active[c] = 0.0
        if not _factored(fixed, work, M, work.L[1], work.inverse[1]):
            return False, 0.0, 0.0, 0.0
        last = math.inf
        for _ in range(refinements):
            for j in range(n):
                way[j] = -g[j]
            for c in range(count):
                if active[c] > 0.0:
                    weight = multiplier[c] + strength * natural[c] * phi[c]
                    for t in range(pairs[c], pairs[c + 1]):
                        way[columns[t]] -= weight * J[t]
            _solve(fixed.lp, fixed.li, work.L[1], work.inverse[1], way)
            worst = 0.0
            for c in range(count):
                if active[c] > 0.0:
                    error = phi[c]
                    for t in range(pairs[c], pairs[c + 1]):
                        error += J[t] * way[columns[t]]
                    multiplier[c] += strength * natural[c] * error
                    worst = max(worst, abs(error / allowed[c]))
            if worst <= max(1e-4, 1e-6 * violation) or worst >= 0.5 * last:
                break
            last = worst
        for j in range(n):
            u[j] += way[j]
    return False, 0.0, 0.0, 0.0


@_compiled
def _project(begin, ints, begins, floats, rules, growing, counts, near, least):
    """Project the point in x by Newton's method, in place; return whether it is certified.

    The other three numbers are gap, value and violation of the answer.
    """
    fixed, work = _opened(begin, ints, begins, floats)
    violation, far, gap, _, _ = rules
    refinements, (steps, left), (longer, more) = counts
    room, reach, close = near
    x, start, allowed = work.x, work.start, work.allowed
    start[:] = 0.0
    for i in range(x.size):
        pull = work.D[i] * (x[i] - fixed.x0[i])
        for t in range(fixed.z_begin[i], fixed.z_begin[i + 1]):
            start[fixed.z_at[t]] += fixed.z[t] * pull
    work.q[:] = start
    _solve(fixed.lp, fixed.li, work.L[0], work.inverse[0], start)
    size = 0.0
    for j in range(start.size):
        size = max(size, abs(start[j]))
        if not abs(start[j]) <= LARGEST:
            return False, 0.0, 0.0, 0.0
    work.u[:] = start
    wanted = gap * least * min(1.0, size * size)
    work.multiplier[:] = 0.0
    _evaluate(fixed, work)
    broken, away = 0, False
    for c in range(allowed.size):
        terms = fixed.norms[c] * size + fixed.offsets[c]
        allowed[c] = violation * max(min(terms, 1.0), far * terms)
        if work.phi[c] > reach * terms:
            return False, 0.0, 0.0, 0.0
        away = away or work.phi[c] > close * terms
        broken += work.phi[c] > 0.0
        work.multiplier[c] = work.natural[c] * max(work.phi[c], 0.0)
    if broken > room:
        return False, 0.0, 0.0, 0.0
    if not away:
        steps, left = longer, more
    result = _newton(fixed, work, rules, wanted, refinements, steps, 0.0)
    if not result[0] and left > 0:
        result = _penalize(fixed, work, rules, growing, wanted, refinements, left)
    if result[0]:
        for i in range(x.size):
            value = fixed.x0[i]
            for t in range(fixed.z_begin[i], fixed.z_begin[i + 1]):
                value += fixed.z[t] * work.u[fixed.z_at[t]]
            x[i] = value
    return result


class CompiledKernel:
    """Compiled kernel for ``minimize 1/2 sum_i D_i (x_i - v_i)^2`` under a layout's constraints.

    Parameters
    ----------
    layout : NewtonLayout
    budget, near : int
        Largest numbers of steps: for all points, and for points near the set.
    """

    def __init__(self, layout: NewtonLayout, budget: int, near: int = 0) -> None:
        p, count, rows = layout.size, layout.heads.size - 1, layout.d.size
        steps = RULES.shared(budget), RULES.shared(max(budget, near))
        self._counts = RULES.refinements, *steps
        self._near = RULES.room(budget) * p, RULES.reach(budget), RULES.close
        weighted, Z = layout.weighted, layout.Z
        begin, ints = _joined(
            [
                layout.hp, layout.hi, layout.parent, layout.lp, layout.li, layout.heads,
                layout.pairs, layout.columns, layout.blocks, layout.products, layout.slots,
                weighted.indptr, weighted.indices, Z.indptr, Z.indices, layout.free,
                np.zeros(4 * p),
            ]
        )  # fmt: skip
        sizes = 2 * layout.x0.size, 2 * layout.hi.size, 2 * layout.li.size, 10 * p
        sizes = *sizes, 7 * count, 3 * rows, 2 * layout.columns.size
        begins, floats = _joined(
            [
                weighted.data, Z.data, layout.x0, layout.block, layout.d, layout.gram,
                layout.norms, layout.offsets, *(np.zeros(size) for size in sizes),
            ]
        )  # fmt: skip
        # Unsigned indices save numba's test for negative ones, a third of the time.
        self._state = begin, ints.astype(np.uint32), begins, floats
        self._D, self._x = floats[begins[8] : begins[9]].reshape(2, -1)
        self._least = 0.0

    def weigh(self, D: Array) -> bool:
        """Set positive weights D, shape (n,); return whether their matrix could be factored."""
        self._D[:], self._least = D, float(D.min())
        return _weigh(*self._state)

    def project(self, v: Array) -> Point | None:
        """Return the projection of v, shape (n,); None if no answer is certified.

        The answer depends on the weights and v alone.
        """
        self._x[:] = v
        certified, gap, value, violation = _project(
            *self._state, RULES.measures, RULES.growing, self._counts, self._near, self._least
        )
        return Point(self._x.copy(), gap, value, violation) if certified else None


def _joined(arrays: Any) -> tuple[Any, Any]:
    """Return the offsets of arrays in their concatenation, and this concatenation."""
    return np.cumsum([0, *(a.size for a in arrays)]), np.concatenate(arrays)


_NOTE = _Note()
event.register("numba:compile", _NOTE)


def compiled_now() -> bool:
    """Return whether this process has compiled a function, and not only loaded it from disk."""
    return _NOTE.said
