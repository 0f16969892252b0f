"""What is known of atoms on intervals, and of shapes of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.atoms import (
    ABS,
    ENTR,
    EXP,
    HUBER,
    LOG,
    LOG1P,
    LOG_SUM_EXP,
    LOGISTIC,
    MAX,
    MAXIMUM,
    MIN,
    MINIMUM,
    NORM1,
    PNORM,
    POWER,
    QUAD_OVER_LIN,
    Rule,
)
from ..model.matrices import csr
from ..model.normal_form import UNREAD, Atom, Combination, NormalForm
from ..model.quadratic import Term
from .intervals import Range

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Where the domains of concave atoms begin; their slopes grow without bound towards it.
_DOMAIN: dict[Rule, float] = {LOG: 0.0, LOG1P: -1.0, ENTR: 0.0}
# Elementwise atoms with a monotone derivative, and where their value turns (None: monotone).
CONVEX: dict[Rule, float | None] = {EXP: None, LOGISTIC: None, HUBER: 0.0, ABS: 0.0}
CONCAVE: dict[Rule, float | None] = {LOG: None, LOG1P: None, ENTR: math.exp(-1)}
# Their values are numbers wherever their arguments are, also at infinity.
TOTAL = (ABS, EXP, LOGISTIC)
# They choose one of their arguments, entry by entry.
CHOOSING = (MAXIMUM, MINIMUM)


class Unbounded(Exception):
    """An atom through which one record's contribution cannot be followed."""

    def __init__(self, atom: str, why: str) -> None:
        super().__init__(atom, why)
        self.atom, self.why = atom, why


def slope(atom: Atom, u: Range) -> tuple[Array, Array]:
    """Interval of the derivative of an elementwise atom."""

    def at(v: Array) -> Array:
        one = np.ones_like(v)
        with np.errstate(all="ignore"):
            read = atom.rule.by_value
            out = np.asarray(atom.rule.forward([v], atom.data), dtype=float) if read else UNREAD
            return np.asarray(atom.rule.vjp([v], out, one, atom.data, 0), dtype=float)

    rising = atom.rule in CONVEX
    lo, hi = u.lo, u.hi
    if atom.rule is POWER:
        p = atom.data[0]
        if p == 1:
            return np.ones_like(lo), np.ones_like(lo)
        whole = float(p).is_integer() and p > 1
        if not whole and (lo < 0).any():
            raise Unbounded(atom.written, "is evaluated where it may leave its domain")
        if whole and int(p) % 2 == 1:  # an odd power: the derivative is even
            ends = np.stack([at(lo), at(hi)])
            return np.where((lo < 0) & (hi > 0), 0.0, ends.min(axis=0)), ends.max(axis=0)
        rising = p > 1 or p < 0
    low, high = (at(lo), at(hi)) if rising else (at(hi), at(lo))
    if atom.rule in _DOMAIN:
        outside = lo <= _DOMAIN[atom.rule]
        low, high = np.where(outside, -np.inf, low), np.where(outside, np.inf, high)
    return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)


def shape_of(u: Combination, side: int) -> tuple[int, int]:
    """Shape of a factor of a matrix product."""
    if len(u.shape) == 2:
        return u.shape[0], u.shape[1]
    return (1, u.h.size) if side == 0 else (u.h.size, 1)


def transposition(shape: tuple[int, int]) -> Index:
    """Positions in a column-major matrix of the entries of its transpose."""
    return np.arange(shape[0] * shape[1]).reshape(shape, order="F").T.ravel(order="F")


def turned(u: Combination, shape: tuple[int, int]) -> Combination:
    """The transpose of a matrix of this shape."""
    order = transposition(shape)
    return Combination(
        shape[::-1],
        None if u.F is None else csr(u.F)[order],
        tuple((k, csr(G)[order]) for k, G in u.G),
        u.h[order],
        tuple((j, csr(M)[order]) for j, M in u.terms),
    )


def groups_of(atom: Atom, size: int) -> Index | None:
    """For each entry of the argument of a reduction, the entry of the value it goes into."""
    reducing: dict[Rule, Callable[[], tuple[object, bool]]] = {
        LOG_SUM_EXP: lambda: atom.data,
        MAX: lambda: atom.data,
        MIN: lambda: atom.data,
        NORM1: lambda: atom.data,
        QUAD_OVER_LIN: lambda: atom.data,
        PNORM: lambda: atom.data[1:],
    }
    found = reducing.get(atom.rule)
    if found is None:
        return None
    axis, keepdims = found()
    shape = atom.args[0].shape
    numbers = np.arange(max(1, math.prod(atom.shape))).reshape(atom.shape, order="F")
    if axis is None:
        return np.zeros(size, dtype=np.intp)
    wide = numbers if keepdims else np.expand_dims(numbers, axis)  # type: ignore[arg-type]
    return np.broadcast_to(wide, shape).ravel(order="F")


def read_by(form: NormalForm, terms: Sequence[Term]) -> set[int]:
    """Indices of the atoms of some terms and of all that they are evaluated from."""
    index = {id(atom): j for j, atom in enumerate(form.atoms)}
    found: set[int] = set()
    left = [index[id(term.atom)] for term in terms]
    while left:
        j = left.pop()
        if j not in found:
            found.add(j)
            left += [k for argument in form.atoms[j].args for k, _ in argument.terms]
    return found
