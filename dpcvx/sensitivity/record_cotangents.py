"""Intervals of cotangents, with bounds of the norms of each record's entries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..model.atoms import interval_product
from ..model.normal_form import Atom
from .intervals import MIXED, PUBLIC, ROUNDING, Range, bounded_times, joined
from .record_atoms import Unbounded

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def total(a: Range, b: Range, atom: Atom, count: int) -> Range:
    """Sum of two cotangents."""
    owner = one_record(joined(a.owner, b.owner), atom)
    one, two = (norms_of(g, owner, count) for g in (a, b))
    opposite = ((a.lo >= 0).all() and (b.hi <= 0).all()) or (
        (a.hi <= 0).all() and (b.lo >= 0).all()
    )
    l2 = np.hypot(one[1], two[1]) if opposite else one[1] + two[1]
    return Range(a.lo + b.lo, a.hi + b.hi, owner, (one[0] + two[0], l2))


def norms_of(g: Range, owner: Index, count: int) -> tuple[Array, Array]:
    """Bounds of the l1 and l2 norms of g on the entries of each record."""
    own = owner >= 0
    size = g.size[own]
    one = np.bincount(owner[own], size, count).astype(float)
    peak = float(np.max(size, initial=0.0, where=np.isfinite(size))) or 1.0
    two = peak * np.sqrt(np.bincount(owner[own], (size / peak) ** 2, count))
    if g.norms is not None and np.array_equal(g.owner, owner):
        one, two = np.minimum(one, g.norms[0]), np.minimum(two, g.norms[1])
    return one, np.minimum(two, one)


def one_record(owner: Index, atom: Atom) -> Index:
    """The records, if no entry reads several."""
    if (owner == MIXED).any():
        raise Unbounded(atom.written, "reads several records at once")
    return owner


def scaled(g: Range, factor: Range, atom: Atom, count: int, absent: bool) -> Range:
    """Cotangents times factors, entry by entry."""
    # What an absent record contributes counts in full, also if it could be nothing else.
    constant = (factor.lo == factor.hi) & np.isfinite(factor.lo) & (not absent)
    owner = joined(g.owner, np.where(constant, PUBLIC, factor.owner))
    owner = one_record(owner, atom)
    low, high = interval_product(g.lo, g.hi, factor.lo, factor.hi)
    norms = [
        [bounded_times(n, peaks_of(b, owner, count)) for n in a.norms]
        for a, b in ((g, factor), (factor, g))
        if a.norms is not None and np.array_equal(a.owner, owner)
    ]
    if not norms:
        return Range(low, high, owner)
    one, two = (np.min(n, axis=0) for n in zip(*norms, strict=True))
    return Range(low, high, owner, (one, two))


def all_of(flags: NDArray[np.bool_], owner: Index, count: int) -> NDArray[np.bool_]:
    """Whether the flags of all entries of each record are set."""
    return np.bincount(owner[~flags & (owner >= 0)], minlength=count) == 0


def peaks_of(g: Range, owner: Index, count: int) -> Array:
    """Largest magnitude among the entries of each record."""
    peak, own = np.zeros(count), owner >= 0
    np.maximum.at(peak, owner[own], g.size[own])
    return peak


def width(g: Range) -> Range:
    """How far two numbers in the intervals may be apart, with room for the ends' rounding."""
    width = g.hi - g.lo + ROUNDING * g.size
    return Range(np.zeros_like(width), np.where(np.isnan(width), np.inf, width), g.owner)
