"""Neighbouring data that move a gradient far: what tests compare with. Not private."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .normal_form import NormalForm
from .private import PrivateSpec, Rows, Within
from .sensitivity import Sensitivity, row_norms

Array = NDArray[np.float64]

# Up to this many columns, the worst l2 change is found by a dense decomposition.
_DENSE = 2000
# So many single entries are tried where no certificate tells which matters.
_TRIED = 50


def worst_neighbour(
    form: NormalForm, sensitivity: Sensitivity, data: Sequence[Array], p: int
) -> list[Array]:
    """Data of a neighbour that moves the gradient far, under the declared adjacency.

    Parameters
    ----------
    form : NormalForm
    sensitivity : Sensitivity
    data : sequence of ndarray
        Flat column-major, one per private parameter.
    p : {1, 2}
    """
    n = sensitivity.extent.lower.size
    points = [np.zeros(n), np.sin(1.0 + np.arange(n))]
    jacobians = sensitivity.jacobians_at(points[1])
    candidates = [
        _moved(sensitivity, data, k, _worst_change(J, spec, p))
        for k, (J, spec) in enumerate(zip(jacobians, sensitivity.private, strict=True))
        if isinstance(spec.adjacency, Within) and J.nnz
    ]
    if sensitivity.asserted is not None:  # nothing was derived: entry by entry
        candidates += [
            _moved(sensitivity, data, k, change)
            for k, spec in enumerate(sensitivity.private)
            if isinstance(spec.adjacency, Within)
            for change in spec.adjacency.radius * np.eye(spec.size)[:_TRIED]
        ]
    rows = [k for k, spec in enumerate(sensitivity.private) if isinstance(spec.adjacency, Rows)]
    candidates += [
        _other_record(sensitivity, data, k, i) for k in rows for i in _telling(sensitivity, k, p)
    ]
    if not candidates:
        return [d.copy() for d in data]

    def gap(other: list[Array]) -> float:
        one, two = (form.bind(list(d), sensitivity.clips) for d in (data, other))
        moved = [np.nan_to_num(one.gradient(x) - two.gradient(x)) for x in points]
        return max(float(np.linalg.norm(m, p)) for m in moved)

    return max(candidates, key=gap)


def _moved(sensitivity: Sensitivity, data: Sequence[Array], k: int, change: Array) -> list[Array]:
    other, spec = [d.copy() for d in data], sensitivity.private[k]
    moved = data[k] + change
    if (spec.sign == "nonneg" and (moved < 0).any()) or (
        spec.sign == "nonpos" and (moved > 0).any()
    ):
        moved = data[k] - change
    other[k] = moved
    return other


def _telling(sensitivity: Sensitivity, k: int, p: int) -> list[int]:
    """Records to try: the first, and the one that the constant part weighs most."""
    J, spec = sensitivity.jacobians[k], sensitivity.private[k]
    return [0] if J.nnz == 0 else [0, int(np.argmax(row_norms(J, spec, p)))]


def _other_record(sensitivity: Sensitivity, data: Sequence[Array], k: int, i: int) -> list[Array]:
    """Record i with the part in private k replaced by an opposite one, or removed."""
    other, spec = [d.copy() for d in data], sensitivity.private[k]
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    own = np.arange(i, spec.size, spec.shape[0])
    if adjacency.change == "replace":
        row = other[k][own]
        if not row.any():
            row = np.zeros(own.size)
            row[0] = adjacency.bound * (-1.0 if spec.sign == "nonpos" else 1.0)
            other[k][own] = row
        elif spec.sign is None:
            # As long as it may be, in the opposite direction.
            other[k][own] = -row * (adjacency.bound / np.linalg.norm(row, adjacency.norm))
        else:
            other[k][own] = np.roll(row, 1) if own.size > 1 else 0.0
        return other
    for j, part in enumerate(sensitivity.private):
        if isinstance(part.adjacency, Rows) and part.adjacency.records == adjacency.records:
            other[j][np.arange(i, part.size, part.shape[0])] = 0.0
    return other


def _worst_change(J: sp.csr_array, spec: PrivateSpec, p: int) -> Array:
    """A change within the adjacency that moves ``J d`` far."""
    change = np.zeros(spec.size)
    if J.nnz == 0:
        return change
    columns = np.asarray((abs(J) if p == 1 else J.power(2)).sum(axis=0)).ravel()
    largest = int(np.argmax(columns))
    adjacency = spec.adjacency
    if isinstance(adjacency, Rows) or adjacency.norm in ("entry", 1):
        change[largest] = adjacency.radius
    elif adjacency.norm == math.inf:
        # Signs that agree with the largest row.
        rows = np.asarray(abs(J).sum(axis=1)).ravel()
        row = J[[int(np.argmax(rows))]].toarray().ravel()
        change[:] = adjacency.radius * np.where(row < 0, -1.0, 1.0)
    else:
        direction = columns.copy() if J.shape[1] > _DENSE else np.linalg.svd(J.toarray())[2][0]
        change[:] = adjacency.radius * direction / np.linalg.norm(direction)
    return change
