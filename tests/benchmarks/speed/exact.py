"""Projections solved to rounding, in extended precision: references for answers in floating point.

From an answer, Newton's method on the conditions of optimality of the constraints that bind there.
Residuals are computed in extended precision, directions in double. A reference leaves with its own
certificate: conditions met to 1e-15, no negative multiplier, and no other constraint broken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from dpcvx.model.canonical import ConeData

from .measure import Array

_Long = np.longdouble
# A constraint binds at an answer if it is this near to its bound.
_NEAR = 1e-7
_MET = 1e-15
_TRIES = 4
_STEPS = 12
# Of binding constraints that depend on each other.
_DAMPED = 1e-9


class _Functions(NamedTuple):
    """Values, gradients and second derivatives, as the Lagrangian has them."""

    values: Any
    gradients: sp.csr_array
    bent: sp.csr_array


def exact_projection(data: ConeData, D: Array, v: Array, x: Array) -> Array | None:
    """``argmin_{x in W} 1/2 sum_i D_i (x_i - v_i)^2`` next to an answer x; None if not certified.

    Parameters
    ----------
    data : ConeData
        Equalities, inequalities and second-order cones, without auxiliary columns.
    D, v, x : ndarray, shape (n,)
    """
    A, b, zero = sp.csr_array(data.A), data.b.astype(_Long), data.cones.zero
    heads, stop = _heads(data)
    every = np.zeros(heads.size)
    near = _evaluated(A, b, heads, stop, x.astype(_Long), every).values >= -_NEAR
    for _ in range(_TRIES):
        y, multiplier = x.astype(_Long), np.zeros(zero + heads.size, dtype=_Long)
        for _ in range(_STEPS):
            at = _evaluated(A, b, heads, stop, y, multiplier[zero:].astype(float))
            J = sp.csr_array(sp.vstack([A[:zero], at.gradients[near]]))
            own = np.concatenate([np.arange(zero), zero + np.flatnonzero(near)])
            broken = np.concatenate([_times(A[:zero], y) - b[:zero], at.values[near]])
            left = D * (y - v) + _times(sp.csr_array(J.T), multiplier[own])
            # Solved for the multipliers themselves in the first step, corrected in all others.
            K = sp.block_array(
                [[sp.diags_array(D) + at.bent, J.T], [J, -_DAMPED * sp.eye_array(own.size)]]
            )
            step = splu(sp.csc_array(K)).solve(-np.concatenate([left, broken]).astype(float))
            y, multiplier[own] = y + step[: y.size], multiplier[own] + step[y.size :]
            size = np.abs(step[: y.size]).max()
            if size <= _MET * max(1.0, float(np.abs(y).max())):
                break
        at = _evaluated(A, b, heads, stop, y, every)
        negative = near & (multiplier[zero:] < 0)
        if size > 10 * _MET * max(1.0, float(np.abs(y).max())):
            return None
        if not negative.any():
            return y.astype(float) if float(at.values.max(initial=0.0)) <= 10 * _MET else None
        near &= ~negative
    return None


def _heads(data: ConeData) -> tuple[Any, Any]:
    """First and last row of every inequality and cone."""
    sizes = np.array([*[1] * data.cones.nonneg, *data.cones.soc], dtype=int)
    stop = data.cones.zero + np.cumsum(sizes)
    return stop - sizes, stop


def _times(A: sp.csr_array, x: Any) -> Any:
    """``A x`` in the precision of x."""
    out = np.zeros(A.shape[0], dtype=x.dtype)
    filled = np.flatnonzero(np.diff(A.indptr))
    if filled.size:
        out[filled] = np.add.reduceat(A.data * x[A.indices], A.indptr[filled])
    return out


def _evaluated(
    A: sp.csr_array, b: Any, heads: Any, stop: Any, x: Any, weights: Array
) -> _Functions:
    s = b - _times(A, x)
    tails = [s[first + 1 : last] for first, last in zip(heads, stop, strict=True)]
    length = np.array([np.sqrt((t * t).sum()) for t in tails], dtype=_Long)
    values = length - s[heads]
    # Of a cone, d|tail| = -(tail / |tail|)' A dx.
    turned = [-(t / r).astype(float) if r > 0 else 0.0 * t.astype(float)
              for t, r in zip(tails, length, strict=True)]  # fmt: skip
    rows = np.repeat(np.arange(heads.size), stop - heads)
    entries = [np.concatenate([[1.0], t]) for t in turned]
    at = (rows, np.concatenate([np.arange(f, last) for f, last in zip(heads, stop, strict=True)]))
    shape = heads.size, A.shape[0]
    turn = sp.csr_array((np.concatenate(entries), at), shape=shape)
    # |tail|'' = (I - t t') / |tail|, of cones with a weight.
    chosen = np.flatnonzero((weights > 0) & (length > 0) & (stop - heads > 1))
    blocks = [
        weights[k] / float(length[k]) * (np.eye(turned[k].size) - np.outer(turned[k], turned[k]))
        for k in chosen
    ]
    rows = np.concatenate([np.arange(heads[k] + 1, stop[k]) for k in chosen] or [heads[:0]])
    C = A[rows]
    bent = C.T @ sp.block_diag(blocks) @ C if blocks else sp.csr_array((A.shape[1], A.shape[1]))
    return _Functions(values, sp.csr_array(turn @ A), sp.csr_array(bent))
