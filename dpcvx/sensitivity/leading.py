"""Records whose bounds cover those of all others, where records meet public rows of their own.

What a record contributes is bounded by interval arithmetic (`dpcvx.sensitivity.records`). Where
variables come to it by one public row :math:`r` alone, and all else is the same for all records,
the bound follows from the interval of :math:`r'x`, from the norms of r, and from which signs its
entries have. It does not fall where the interval widens and the norms grow: interval arithmetic
widens with its arguments, and signs are known of fewer numbers. So a record whose interval lies in
another's, whose norms are no larger, and whose signs are the same, needs no bound of its own for
the largest of all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..solvers.projector import Extent
from .intervals import product

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Records that need no comparison, and comparisons with all others, at most.
_FEW, _TURNS = 1024, 32
# Rows that are looked at together.
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Lines:
    """Public rows, one per record.

    Attributes
    ----------
    rows : csr_array, shape (count, n)
    norms : tuple of ndarray, shape (count,)
        l1 and l2 norms of the rows, in units of the largest entry.
    signs : ndarray of int, shape (count,)
        Tells apart rows with positive, with negative, and with several entries.
    """

    rows: sp.csr_array
    norms: tuple[Array, Array]
    signs: NDArray[np.int8]

    @staticmethod
    def of(rows: sp.csr_array) -> Lines:
        """Of a matrix."""
        count = rows.shape[0]
        up, down, two = np.zeros(count), np.zeros(count), np.zeros(count)
        unit = 1 / (
            max(rows.data.max(initial=0.0), -rows.data.min(initial=0.0)) or 1.0
        )  # squares remain numbers
        for first in range(0, count, _BLOCK):
            own = slice(first, first + _BLOCK)
            ends = rows.indptr[first : first + _BLOCK + 1]
            values = rows.data[ends[0] : ends[-1]] * unit
            sums = _summing(ends)
            up[own], down[own] = sums(np.maximum(values, 0.0)), sums(-np.minimum(values, 0.0))
            two[own] = np.sqrt(sums(values * values))
        one = up + down
        signs = (up > 0).astype(np.int8)
        signs |= (down > 0).astype(np.int8) << 1
        signs |= (np.diff(rows.indptr) > 1).astype(np.int8) << 2
        return Lines(rows, (one, two), signs)

    def leading(self, extent: Extent) -> Index:
        """Records, in ascending order, that cover all others.

        Parameters
        ----------
        extent : Extent
            Where x may lie.
        """
        if _alike(-extent.lower, extent.upper):  # then the l1 norm tells the interval
            return self._longest
        low, high = product(self.rows, extent.lower, extent.upper)
        return self._covering(*self.norms, -low, high)

    @cached_property
    def _longest(self) -> Index:
        """Where x may lie as far from 0 to all sides."""
        return self._covering(*self.norms)

    def _covering(self, *sizes: Array) -> Index:
        """Records such that all others have no larger sizes than one of them, and its signs."""
        kept: list[Index] = []
        for sign in np.flatnonzero(np.bincount(self.signs)):
            left = np.flatnonzero(self.signs == sign)
            for _ in range(_TURNS):
                if left.size <= _FEW:
                    break
                own = sizes if left.size == self.signs.size else [size[left] for size in sizes]
                first = np.argmax(functools.reduce(np.add, map(_graded, own)))
                kept.append(left[first : first + 1])
                left = left[~functools.reduce(np.logical_and, (s <= s[first] for s in own))]
            kept.append(left)
        return np.unique(np.concatenate(kept))

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _summing(ends: Index) -> Callable[[Array], Array]:
    """Sums of rows that end there, of values that lie row by row."""
    starts, one = ends - ends[0], np.ones(1)
    columns = np.zeros(starts[-1], dtype=ends.dtype)
    shape = (ends.size - 1, 1)
    return lambda values: sp.csr_array((values, columns, starts), shape=shape) @ one


def _alike(below: Array, above: Array) -> bool:
    """Whether all entries may be as far from 0 as the first, to both sides."""
    return bool((below == above[0]).all() and (above == above[0]).all())


def _graded(size: Array) -> Array:
    """Between -1 and 1, whatever the numbers."""
    largest = max(float(size.max(initial=0.0)), -float(size.min(initial=0.0)))
    if not math.isfinite(largest):
        largest = float(np.max(np.abs(size), initial=0.0, where=np.isfinite(size)))
    found = size / (largest or 1.0)
    return np.clip(found, -1.0, 1.0, out=found)
