"""Cone programs with some components of the variable pinned to given values.

Pinned components are removed from the program, as are all that equalities then determine one by
one. If equalities pinned them instead, the set would have no interior, and interior-point methods
would stall.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from ..model.matrices import without_zeros
from .cones import ConeTest
from .conic import ConicAnswer, ConicProgram, Outcome

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# Smallest coefficient, relative to the largest of its row, with which an equality determines its
# last free component.
_SMALL = 1e-6
# Allowed violation of rows without free components, relative to their terms, since the given values
# come from a solver.
_ROUNDING = 1e-6


def solve_pinned(data: ConeData, pinned: Index, x: Array) -> ConicAnswer:
    """Solve a cone program with the pinned components fixed to their values in x.

    Parameters
    ----------
    data : ConeData
        Program.
    pinned : ndarray of int
        Pinned components.
    x : ndarray, shape (n,)
        Values of the pinned components, and an estimate of all others, which may be infeasible.
    """
    N = data.q.size
    values, free = np.zeros(N), np.ones(N, dtype=bool)
    values[pinned], free[pinned] = x[pinned], False
    _determine(data, values, free)
    left, free_rows = data.b - data.A @ values, _kept(data, free)
    terms = (np.abs(data.b) + abs(data.A) @ np.abs(values))[~free_rows]
    if _violation(data.cones, left, free_rows) > _ROUNDING * max(1.0, terms.max(initial=0.0)):
        return ConicAnswer(None, Outcome.INFEASIBLE)
    columns = np.flatnonzero(free)
    if columns.size:
        whole = np.zeros(N)
        whole[: data.n] = x
        smaller = ConeData(
            P=sp.csc_array(data.P[columns][:, columns]),
            q=(data.q + data.P @ values)[columns],
            A=sp.csc_array(sp.csr_array(data.A)[np.flatnonzero(free_rows)][:, columns]),
            b=left[free_rows],
            cones=_cones(data.cones, free_rows),
            n=columns.size,
        )
        none = np.zeros(columns.size)
        answer = ConicProgram(smaller).solve(none, none, whole[columns])
        if answer.x is None:
            return answer
        values[columns] = answer.x
        return answer._replace(x=values[: data.n], extra=values[data.n :])
    return ConicAnswer(values[: data.n], Outcome.SOLVED, extra=values[data.n :])


def _determine(data: ConeData, values: Array, free: NDArray[np.bool_]) -> None:
    """Pin, in place, all components that equalities with a single free component determine."""
    rows = without_zeros(sp.csr_array(sp.csr_array(data.A)[: data.cones.zero]))
    pattern = sp.csr_array((np.ones(rows.nnz), rows.indices, rows.indptr), shape=rows.shape)
    largest = abs(rows).max(axis=1).toarray().ravel() if rows.nnz else np.zeros(rows.shape[0])
    numbers = np.arange(free.size, dtype=float)
    while True:
        coefficient = rows @ free.astype(float)
        single = (pattern @ free.astype(float) == 1) & (np.abs(coefficient) > _SMALL * largest)
        if not single.any():
            return
        column = np.rint(pattern[single] @ (free * numbers)).astype(np.intp)
        right = (data.b[: data.cones.zero] - rows @ values)[single]
        values[column] = right / coefficient[single]
        free[column] = False


def _kept(data: ConeData, free: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows to keep, as flags: rows with free components, and all others of their cones.

    All rows of exponential and power cones are kept.
    """
    pattern = abs(sp.csr_array(data.A)) @ free.astype(float) > 0
    cones, rows = data.cones, pattern.copy()
    first = cones.zero + cones.nonneg
    for size in (*cones.soc, *(n * (n + 1) // 2 for n in cones.psd)):
        rows[first : first + size] = pattern[first : first + size].any()
        first += size
    rows[first:] = True
    return rows


def _violation(cones: Cones, left: Array, included: NDArray[np.bool_]) -> float:
    """Return the largest violation of a cone by slacks `left` of rows that are not included."""
    tested = replace(_cones(cones, ~included), exp=0, power=(), power_nd=())
    worst = ConeTest(tested)(left[~included])
    assert worst is not None
    return worst


def _cones(cones: Cones, rows: NDArray[np.bool_]) -> Cones:
    """Return the cones of the flagged rows; second-order and semidefinite cones are kept whole."""
    first = cones.zero + cones.nonneg
    socs, psds = [], []
    for size in cones.soc:
        socs += [size] if rows[first] else []
        first += size
    for order in cones.psd:
        psds += [order] if rows[first] else []
        first += order * (order + 1) // 2
    nonneg = int(rows[cones.zero : cones.zero + cones.nonneg].sum())
    return replace(
        cones, zero=int(rows[: cones.zero].sum()), nonneg=nonneg, soc=tuple(socs), psd=tuple(psds)
    )
