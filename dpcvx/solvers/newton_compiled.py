"""The method of `newton_plain`, compiled: loops in place of array operations.

Not imported where numba is not installed. The functions stand in one file because numba keeps what
it has compiled on disk until this file changes.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numba
import numpy as np
from numba.core import event
from numpy.typing import NDArray

from .newton_layout import Layout
from .newton_plain import LARGEST, RULES, Point

Array = NDArray[np.float64]


class _Note(event.Listener):
    """Says on a terminal what is being compiled: it takes seconds, once on every machine."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        """Once, however many functions are compiled."""
        if not self._said and sys.stderr.isatty():
            sys.stderr.write("dpcvx: compiling local steps, once on this machine ...\n")
        self._said = True

    def on_end(self, event: Any) -> None:
        """Nothing."""


def _compiled(function: Any) -> Any:
    """Compiled when first called, kept on disk where there is a place to write to."""
    try:
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no such place
        return numba.njit(nogil=True, error_model="numpy")(function)


@_compiled
def _factor(hp, hi, H, parent, lp, li, L, inverse, marks, y):
    """``H = L diag(1 / inverse) L'``, row by row; whether all pivots are positive."""
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
        for at in range(top, n):
            i = path[at]
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
    """In place."""
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
    """``out = H x``."""
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
def _weigh(D, rows, at, entries, pattern, factor, functions, natural, H, kept, marks, y):
    """Entries of H for weights D, its factor, and the functions' curvature by H."""
    for t in range(H.size):
        value = 0.0
        for e in range(rows[t], rows[t + 1]):
            value += entries[e] * D[at[e]]
        H[t] = value
    hp, hi = pattern
    parent, lp, li = factor
    heads, pairs, columns, blocks, block = functions[:5]
    for c in range(natural.size):
        width = pairs[c + 1] - pairs[c]
        steep = 0.0
        for j in range(width):
            square = 0.0
            for i in range(heads[c + 1] - heads[c]):
                entry = block[blocks[c] + i * width + j]
                square += entry * entry
            steep += square / H[hp[columns[pairs[c] + j] + 1] - 1]
        natural[c] = 1.0 / steep
    return _factor(hp, hi, H, parent, lp, li, kept[0], kept[1], marks, y)


@_compiled
def _evaluate(functions, u, slack, length, phi, J):
    """Values and gradients of all functions."""
    heads, pairs, columns, blocks, block, d = functions[:6]
    for c in range(phi.size):
        first, begin, at = heads[c], pairs[c], blocks[c]
        size, width = heads[c + 1] - first, pairs[c + 1] - begin
        squares = 0.0
        for i in range(size):
            value = d[first + i]
            for j in range(width):
                value -= block[at + i * width + j] * u[columns[begin + j]]
            slack[first + i] = value
            if i > 0:
                squares += value * value
        root = math.sqrt(squares)
        length[c] = root
        phi[c] = root - slack[first]
        inverse = 1.0 / root if root > 0.0 else 0.0
        for j in range(width):
            value = block[at + j]
            for i in range(1, size):
                value -= slack[first + i] * inverse * block[at + i * width + j]
            J[begin + j] = value


@_compiled
def _add_block(functions, c, edge, tilt, weight, curve, M):
    """Add ``weight edge edge' + curve (gram - tilt tilt')`` of one function."""
    pairs, products, slots, gram = functions[1], functions[6], functions[7], functions[8]
    begin, e = pairs[c], products[c]
    for i in range(pairs[c + 1] - begin):
        for j in range(i + 1):
            value = weight * edge[begin + i] * edge[begin + j]
            if curve > 0.0:
                value += curve * (gram[e] - tilt[begin + i] * tilt[begin + j])
            M[slots[e]] += value
            e += 1


@_compiled
def _pull(functions, J, weights, out):
    """``out += J' weights``."""
    pairs, columns = functions[1], functions[2]
    for c in range(weights.size):
        if weights[c] != 0.0:
            for t in range(pairs[c], pairs[c + 1]):
                out[columns[t]] += weights[c] * J[t]


@_compiled
def _merit(pattern, functions, H, q, natural, strength, dual, u, vectors, rows, tilts, g):
    """The augmented Lagrangian, for the second stage; g is left as H u - q.

    Leaves slacks and functions in `vectors`, in `rows` the projections of w and of every function
    the kind of its second derivative and how much of it is kept; edges and tilts in `tilts`.
    """
    heads, pairs, columns, blocks, block, d = functions[:6]
    slack, phi = vectors[0], vectors[2]
    pull, kind, share = rows
    edge, tilt = tilts
    _times(pattern[0], pattern[1], H, u, g)
    f = 0.0
    for j in range(u.size):
        f += u[j] * (0.5 * g[j] - q[j])
        g[j] -= q[j]
    for c in range(phi.size):
        first, begin, at = heads[c], pairs[c], blocks[c]
        size, width = heads[c + 1] - first, pairs[c + 1] - begin
        sigma = strength * natural[c]
        below, squares, head = 0.0, 0.0, 0.0
        for i in range(size):
            value = d[first + i]
            for j in range(width):
                value -= block[at + i * width + j] * u[columns[begin + j]]
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
                    value += pull[first + i] / root * block[at + i * width + j]
            tilt[begin + j] = value
            edge[begin + j] = block[at + j] + value
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
def _add_rows(functions, weights, out):
    """``out += C' weights``."""
    heads, pairs, columns, blocks, block = functions[:5]
    for c in range(heads.size - 1):
        width = pairs[c + 1] - pairs[c]
        for i in range(heads[c + 1] - heads[c]):
            weight = weights[heads[c] + i]
            if weight != 0.0:
                for j in range(width):
                    out[columns[pairs[c] + j]] += weight * block[blocks[c] + i * width + j]


@_compiled
def _penalise(
    pattern, factor, functions, H, own, natural, q, start, u, allowed, wanted, relative, penalty,
    growing, budget, refinements, vectors, rows, tilts, multiplier, dual, g, way, M, work, marks,
    y, old, out,
):  # fmt: skip
    """The second stage, see `PlainKernel`; whether the answer, in u, is certified."""
    hp, hi = pattern
    parent, lp, li = factor
    heads = functions[0]
    slack, phi = vectors[0], vectors[2]
    pull, kind, share = rows
    edge, tilt = tilts
    strength, growth, last, settled, near, end = growing
    n, before = u.size, math.inf
    for i in range(dual.size):
        dual[i] = 0.0
    for j in range(n):
        u[j] = start[j]
    while True:
        f = _merit(pattern, functions, H, q, natural, strength, dual, u, vectors, rows, tilts, g)
        while True:
            _add_rows(functions, pull, g)
            for t in range(H.size):
                M[t] = H[t]
            for c in range(phi.size):
                if kind[c] > 0.0:
                    sigma = strength * natural[c]
                    _add_block(functions, c, edge, tilt, 0.5 * sigma * kind[c], sigma * share[c], M)
            budget -= 1
            if budget < 0 or not math.isfinite(f):
                return False
            if not _factor(hp, hi, M, parent, lp, li, work[0], work[1], marks, y):
                return False
            slope, part = 0.0, 1.0
            for j in range(n):
                way[j] = -g[j]
            _solve(lp, li, work[0], work[1], way)
            for j in range(n):
                slope += g[j] * way[j]
                old[j] = u[j]
            while True:
                for j in range(n):
                    u[j] = old[j] + part * way[j]
                new = _merit(
                    pattern, functions, H, q, natural, strength, dual, u, vectors, rows, tilts, g
                )
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
            value += 0.5 * (u[j] - start[j]) * g[j]
            way[j] = g[j]
        _add_rows(functions, pull, way)
        for j in range(n):
            gap += 0.5 * way[j] * way[j] / own[j]
        for c in range(phi.size):
            product = 0.0
            for i in range(heads[c], heads[c + 1]):
                dual[i] = pull[i]
                product += dual[i] * slack[i]
            gap += abs(product)
            violation = max(violation, phi[c] / allowed[c])
        if violation <= 1.0 and gap <= max(wanted, relative * value):
            out[0], out[1], out[2] = gap, value, violation
            return True
        if violation <= near:
            for c in range(phi.size):
                multiplier[c] = max(dual[heads[c]], 0.0)
            for j in range(n):
                old[j] = u[j]
            if _newton(
                pattern, factor, functions, H, own, natural, q, start, u, allowed, wanted,
                relative, penalty, int(min(end, budget)), refinements, vectors, edge, tilt,
                multiplier, kind, g, way, M, work, marks, y, out,
            ):  # fmt: skip
                return True
            budget -= int(end)
            for j in range(n):
                u[j] = old[j]
        if strength >= settled and violation > 1.0 and not violation <= 0.5 * before:
            return False
        strength, before = min(growth * strength, last), violation


@_compiled
def _newton(
    pattern, factor, functions, H, own, natural, q, start, u, allowed, wanted, relative, strength,
    steps, refinements, vectors, J, tilt, multiplier, active, g, way, M, work, marks, y, out,
):  # fmt: skip
    """Newton's steps from u; whether the answer, in u, is certified."""
    hp, hi = pattern
    parent, lp, li = factor
    pairs, columns = functions[1], functions[2]
    slack, length, phi = vectors
    count, n = phi.size, u.size
    for step in range(steps + 1):
        _evaluate(functions, u, slack, length, phi, J)
        _times(hp, hi, H, u, g)
        value = 0.0
        for j in range(n):
            g[j] -= q[j]
            value += 0.5 * (u[j] - start[j]) * g[j]
            way[j] = g[j]
        _pull(functions, J, multiplier, way)
        gap, violation, negative = 0.0, -math.inf, False
        for j in range(n):
            gap += 0.5 * way[j] * way[j] / own[j]
        for c in range(count):
            gap += abs(multiplier[c] * phi[c])
            violation = max(violation, phi[c] / allowed[c])
            negative = negative or multiplier[c] < 0.0
        if not (math.isfinite(gap + value) and violation < math.inf):
            return False
        if violation <= 1.0 and gap <= max(wanted, relative * value) and not negative:
            out[0], out[1], out[2] = gap, value, violation
            return True
        if step == steps:
            return False
        for t in range(H.size):
            M[t] = H[t]
        for c in range(count):
            if multiplier[c] + natural[c] * phi[c] > 0.0:
                curved = multiplier[c] > 0.0 and length[c] > 0.0
                curve = multiplier[c] / length[c] if curved else 0.0
                width = pairs[c + 1] - pairs[c]
                for j in range(width):
                    tilt[pairs[c] + j] = functions[4][functions[3][c] + j] - J[pairs[c] + j]
                _add_block(functions, c, J, tilt, strength * natural[c], curve, M)
                active[c] = 1.0
            else:
                multiplier[c] = 0.0
                active[c] = 0.0
        if not _factor(hp, hi, M, parent, lp, li, work[0], work[1], marks, y):
            return False
        last = math.inf
        for _ in range(refinements):
            for j in range(n):
                way[j] = -g[j]
            for c in range(count):
                if active[c] > 0.0:
                    weight = multiplier[c] + strength * natural[c] * phi[c]
                    for t in range(pairs[c], pairs[c + 1]):
                        way[columns[t]] -= weight * J[t]
            _solve(lp, li, work[0], work[1], way)
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
    return False


@_compiled
def _project(
    pattern, factor, functions, H, kept, own, natural, norms, offsets, q, start, u, allowed,
    measures, growing, least, counts, vectors, rows, tilts, multiplier, dual, g, way, M, work,
    marks, y, old, out,
):  # fmt: skip
    """Both stages; whether the answer, in u, is certified."""
    violation, far, gap, relative, strength = measures
    steps, refinements, budget = counts
    size = 0.0
    for j in range(q.size):
        start[j] = q[j]
    _solve(factor[1], factor[2], kept[0], kept[1], start)
    for j in range(q.size):
        u[j] = start[j]
        size = max(size, abs(start[j]))
    if not size <= LARGEST:
        return False
    for c in range(allowed.size):
        terms = norms[c] * size + offsets[c]
        allowed[c] = violation * max(min(terms, 1.0), far * terms)
        multiplier[c] = 0.0
    wanted = gap * least * min(1.0, size * size)
    return _newton(
        pattern, factor, functions, H, own, natural, q, start, u, allowed, wanted, relative,
        strength, steps, refinements, vectors, tilts[0], tilts[1], multiplier, rows[1], g, way, M,
        work, marks, y, out,
    ) or (budget > 0 and _penalise(
        pattern, factor, functions, H, own, natural, q, start, u, allowed, wanted, relative,
        strength, growing, budget, refinements, vectors, rows, tilts, multiplier, dual, g, way, M,
        work, marks, y, old, out,
    ))  # fmt: skip


class CompiledKernel:
    """``minimize 1/2 u'Hu - q'u`` over the functions of a layout, ``H = Z' diag(D) Z``.

    Parameters
    ----------
    layout : Layout
    budget : int
        Steps after which no more are tried.
    """

    def __init__(self, layout: Layout, budget: int) -> None:
        p, count, entries = layout.size, layout.heads.size - 1, layout.hi.size
        self._layout = layout
        steps, most = min(RULES.steps, budget), min(RULES.most, budget)
        left = most - steps if most - steps >= RULES.least else 0
        self._counts = steps, RULES.refinements, left
        weighted = layout.weighted
        self._map = _index(weighted.indptr), _index(weighted.indices), weighted.data
        self._pattern = _index(layout.hp), _index(layout.hi)
        self._order = _index(layout.parent), _index(layout.lp), _index(layout.li)
        self._functions = (
            _index(layout.heads),
            _index(layout.pairs),
            _index(layout.columns),
            _index(layout.blocks),
            layout.block,
            layout.d,
            _index(layout.products),
            _index(layout.slots),
            layout.gram,
        )
        self._H, self._M = np.zeros(entries), np.zeros(entries)
        self._kept = np.zeros(layout.li.size), np.zeros(p)
        self._work = np.zeros(layout.li.size), np.zeros(p)
        self._natural = np.zeros(count)
        self._vectors = np.zeros(layout.d.size), np.zeros(count), np.zeros(count)
        self._rows = np.zeros(layout.d.size), np.zeros(count), np.zeros(count)
        self._tilts = np.zeros(layout.columns.size), np.zeros(layout.columns.size)
        self._allowed, self._multiplier = np.zeros((2, count))
        self._dual = np.zeros(layout.d.size)
        self._marks = np.zeros((4, p), dtype=np.int32)
        self._start, self._u, self._g, self._way, self._y, self._old = np.zeros((6, p))
        self._out = np.zeros(3)

    def weigh(self, D: Array) -> bool:
        """Take new positive weights, shape (n,); whether they have a factor."""
        self._own, self._least = D[self._layout.free], float(D.min())
        return _weigh(
            D, *self._map, self._pattern, self._order, self._functions, self._natural,
            self._H, self._kept, self._marks, self._y,
        )  # fmt: skip

    def solve(self, q: Array) -> Point | None:
        """The minimiser for a linear term, shape (p,); None if none is certified.

        It depends on the weights and q alone.
        """
        solved = _project(
            self._pattern, self._order, self._functions, self._H, self._kept, self._own,
            self._natural, self._layout.norms, self._layout.offsets, q, self._start, self._u,
            self._allowed, RULES.measures, RULES.growing, self._least, self._counts, self._vectors,
            self._rows, self._tilts, self._multiplier, self._dual, self._g, self._way, self._M,
            self._work, self._marks, self._y, self._old, self._out,
        )  # fmt: skip
        if not solved:
            return None
        gap, value, violation = self._out.tolist()
        return Point(self._u, gap, value, violation)


def _index(values: Any) -> NDArray[np.int32]:
    return np.ascontiguousarray(values, dtype=np.int32)


event.register("numba:compile", _Note())
