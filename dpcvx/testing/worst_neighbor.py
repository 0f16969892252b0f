"""Search for neighboring data that change a gradient by nearly the sensitivity. Not private."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.adjacency import Codes, ComplexWithin, Rows, Within, first_rows
from ..model.matrices import Data, alike
from ..model.normal_form import NormalForm
from ..model.spec import PrivateSpec
from ..sensitivity.certificate import Sensitivity
from ..sensitivity.norms import row_norms

Array = NDArray[np.float64]

# Largest number of columns for which a dense singular value decomposition gives directions.
_DENSE = 2000
# Number of single entries that are tried if no sensitivity was derived.
_TRIED = 1000
# Number of initial directions of the search, and of its steps from each direction.
_STARTS, _STEPS = 6, 50
# Number of initial phases, in half a turn, of the search for complex data.
_PHASES = 8
_LARGE = 1e100


def worst_neighbor(
    form: NormalForm,
    sensitivity: Sensitivity,
    data: Sequence[Data],
    p: int,
    people: Sequence[Codes | None] | None = None,
    statistic: Callable[[Sequence[Data]], Array] | None = None,
) -> list[Data]:
    """Return a neighbor's data, under the declared adjacency, that change the gradient strongly.

    Parameters
    ----------
    form : NormalForm
        Objective of the agent.
    sensitivity : Sensitivity
        Sensitivity of the agent's gradient.
    data : sequence of ndarray or csr_array
        One array per private object, flat in column-major order, or sparse. The neighbor's data
        have this form too.
    p : {1, 2}
        Norm of changes of the gradient.
    people : sequence of ndarray or None, optional
        Person of each row, by object, if the adjacency counts rows by person.
    statistic : callable, optional
        Function of the data that returns a one-time release, to compare in place of gradients.
    """
    points = _points(sensitivity.extent.lower.size)
    members = range(len(sensitivity.private))
    if sensitivity.asserted is None:
        jacobians = sensitivity.jacobians_at(points[1])
    else:  # a user-supplied sensitivity has no Jacobians
        jacobians = [
            max((_differences(form, sensitivity, data, k, x) for x in points), key=_size)
            for k in members
        ]
    candidates: list[list[Data]] = []
    for k, J in zip(members, jacobians, strict=True):
        adjacency = sensitivity.private[k].adjacency
        if isinstance(adjacency, Rows):
            whose = None if people is None else people[k]
            for rows in _telling(sensitivity, k, p, whose):
                candidates.append(_other_records(sensitivity, data, k, rows))
                if len(rows) > 1:
                    candidates.append(_other_records(sensitivity, data, k, rows, identical=True))
        elif J.nnz:
            change = _worst_change(_finite(J), sensitivity.private[k], p)
            candidates += [_moved(sensitivity, data, k, side * change) for side in (1.0, -1.0)]
    if not candidates:
        # The gradient does not depend on the data, for example if the data themselves are released.
        # Change the data as far as the adjacency allows.
        candidates = [
            _moved(sensitivity, data, k, side * _worst_change(_unit(spec.size), spec, p))
            for k, spec in enumerate(sensitivity.private)
            for side in (1.0, -1.0)
        ]
        candidates.sort(key=lambda other: all(map(alike, data, other)))
    if statistic is None or any(map(sp.issparse, data)):
        return max(candidates, key=lambda other: gradient_gap(form, sensitivity, data, other, p))
    first = statistic(data)
    return max(candidates, key=lambda other: float(np.linalg.norm(statistic(other) - first, p)))


def gradient_gap(
    form: NormalForm,
    sensitivity: Sensitivity,
    data: Sequence[Data],
    other: Sequence[Data],
    p: int,
) -> float:
    """Return the larger lp distance of two data sets' gradients, over two test points."""
    n = sensitivity.extent.lower.size
    first, second = (form.bind(list(d), sensitivity.clips) for d in (data, other))
    with np.errstate(invalid="ignore"):
        moved = [np.nan_to_num(first.gradient(x) - second.gradient(x)) for x in _points(n)]
    return max(float(np.linalg.norm(m, p)) for m in moved)


def _points(n: int) -> list[Array]:
    """Return the two points where gradients are compared."""
    return [np.zeros(n), np.sin(1.0 + np.arange(n))]


def _differences(
    form: NormalForm, sensitivity: Sensitivity, data: Sequence[Data], k: int, x: Array
) -> sp.csr_array:
    """Return the gradient's derivative by each entry of private object k, from differences at x.

    Each entry is changed by the adjacency's radius.
    """
    spec = sensitivity.private[k]
    columns = np.zeros((x.size, spec.size))
    if not isinstance(spec.adjacency, Within):
        return sp.csr_array(columns)
    fixed = form.bind(list(data), sensitivity.clips).gradient(x)
    for i in range(min(spec.size, _TRIED)):
        change = np.zeros(spec.size)
        change[i] = spec.adjacency.radius * (-1.0 if spec.sign == "nonpos" else 1.0)
        other = form.bind(_moved(sensitivity, data, k, change), sensitivity.clips)
        with np.errstate(invalid="ignore"):
            columns[:, i] = (other.gradient(x) - fixed) / change[i]
    return sp.csr_array(columns)


def _size(J: sp.csr_array) -> float:
    return float(np.nan_to_num(np.abs(J.data)).max(initial=0.0))


def _finite(J: sp.csr_array) -> sp.csr_array:
    """Return the matrix scaled to entries of at most 1, after making non-finite entries large."""
    J = J.copy()
    J.data = np.clip(np.nan_to_num(J.data, nan=_LARGE), -_LARGE, _LARGE)
    return sp.csr_array(J / (float(np.abs(J.data).max(initial=0.0)) or 1.0))


def _moved(sensitivity: Sensitivity, data: Sequence[Data], k: int, change: Array) -> list[Data]:
    """Return data with a change added to private object k, projected onto its declared sign."""
    other, spec, values = [*data], sensitivity.private[k], data[k]
    flat = values if isinstance(values, np.ndarray) else values.toarray().ravel(order="F")
    moved = flat + change
    if spec.sign is not None:
        moved = np.maximum(moved, 0.0) if spec.sign == "nonneg" else np.minimum(moved, 0.0)
    if spec.psd:
        moved = _semidefinite(flat, change, spec)
    # Rounding of large data must not make the change larger than the adjacency allows.
    far = np.abs(moved - flat) > np.abs(change)
    moved = np.where(far, np.nextafter(moved, flat), moved)
    other[k] = moved if isinstance(values, np.ndarray) else sp.csr_array(spec.shaped(moved))
    return other


def _semidefinite(data: Array, change: Array, spec: PrivateSpec) -> Array:
    """Return data plus the change, or plus a diagonal entry if that sum is not semidefinite."""
    if np.linalg.eigvalsh(spec.shaped(data + change))[0] >= 0:
        return data + change
    weight = np.abs(spec.shaped(change)).sum(axis=0)
    diagonal = np.diag(np.eye(weight.size)[int(np.argmax(weight))])
    return data + spec.adjacency.radius * spec.kept(diagonal)


def _telling(sensitivity: Sensitivity, k: int, p: int, people: Codes | None) -> list[list[int]]:
    """Return groups of rows that one change may replace: a record, or a person's counted rows.

    The groups are those of the first record or person, and of the one with the largest Jacobian.
    """
    J, spec = sensitivity.jacobians[k], sensitivity.private[k]
    weights = np.ones(spec.shape[0]) if J.nnz == 0 else row_norms(J, spec, p)
    assert isinstance(spec.adjacency, Rows)
    if spec.adjacency.max_rows_per_person == "all":
        return [list(range(spec.shape[0]))]
    if people is None or spec.adjacency.row_limit is None:
        return [[0]] if J.nnz == 0 else [[0], [int(np.argmax(weights))]]
    counted = first_rows(people, spec.adjacency.row_limit)
    totals = np.bincount(people, np.where(counted, weights, 0.0))
    chosen = dict.fromkeys((int(people[0]), int(np.argmax(totals))))
    return [np.flatnonzero(counted & (people == person)).tolist() for person in chosen]


def _other_records(
    sensitivity: Sensitivity, data: Sequence[Data], k: int, rows: list[int], identical: bool = False
) -> list[Data]:
    """Return data with the given rows of records replaced by opposite ones, added, or removed.

    If `identical`, all rows in private k become one row, opposite to their sum.
    """
    other, spec = [*data], sensitivity.private[k]
    adjacency = spec.adjacency
    assert isinstance(adjacency, Rows)
    parts = [
        j
        for j, part in enumerate(sensitivity.private)
        if isinstance(part.adjacency, Rows) and part.adjacency.label == adjacency.label
    ]
    # A record is absent only if its parts in all private objects are zero.
    held = any(_row(data[j], sensitivity.private[j], i).any() for j in parts for i in rows)
    total = np.sum([_row(data[k], spec, i) for i in rows], axis=0)
    for i in rows:
        if adjacency.relation != "replace_one" and held:
            for j in parts:
                part = sensitivity.private[j]
                other[j] = _with_row(other[j], part, i, np.zeros(part.size // part.shape[0]))
            continue
        row = total if identical else _row(data[k], spec, i)
        other[k] = _with_row(other[k], spec, i, _opposite(row, spec, adjacency))
    return other


def _opposite(row: Array, spec: PrivateSpec, adjacency: Rows) -> Array:
    """Return a row of the largest allowed norm in the opposite direction.

    With a declared sign, it is the row with its entries shifted, clipped to the allowed norm.
    """
    if not row.any():
        return (
            adjacency.max_norm * (-1.0 if spec.sign == "nonpos" else 1.0) * np.eye(1, row.size)[0]
        )
    if spec.sign is None:
        return -row * (adjacency.max_norm / np.linalg.norm(row, adjacency.order))
    rolled = np.roll(row, 1)
    rolled = rolled * float((rolled != row).any())
    length = float(np.linalg.norm(rolled, adjacency.order))
    return rolled * min(1.0, adjacency.max_norm / length) if length > adjacency.max_norm else rolled


def _row(data: Data, spec: PrivateSpec, i: int) -> Array:
    if isinstance(data, np.ndarray):
        return data[np.arange(i, spec.size, spec.shape[0])]
    return data[[i]].toarray().ravel()


def _with_row(data: Data, spec: PrivateSpec, i: int, row: Array) -> Data:
    """Return a copy of the data with row i replaced."""
    if isinstance(data, np.ndarray):
        changed = data.copy()
        changed[np.arange(i, spec.size, spec.shape[0])] = row
        return changed
    parts = data[:i], sp.csr_array(row[np.newaxis]), data[i + 1 :]
    return sp.csr_array(sp.vstack(parts))


def _unit(size: int) -> sp.csr_array:
    return sp.csr_array(sp.eye_array(size))


def _worst_change(J: sp.csr_array, spec: PrivateSpec, p: int) -> Array:
    """Return a change d within the adjacency with a large ``J d``: the best of several ascents."""
    adjacency = spec.adjacency
    assert isinstance(adjacency, Within)
    if isinstance(adjacency, ComplexWithin) and adjacency.norm != 2:
        return _worst_phases(J, spec, adjacency, p)
    columns = np.asarray((abs(J) if p == 1 else J.power(2)).sum(axis=0)).ravel()
    if adjacency.norm in ("entry", 1):
        change = np.zeros(columns.size)
        change[int(np.argmax(columns))] = adjacency.radius
        return change
    rows = np.asarray(abs(J).sum(axis=1)).ravel()
    starts = [J[[int(np.argmax(rows))]].toarray().ravel(), columns]
    if J.shape[1] <= _DENSE:
        starts += list(np.linalg.svd(J.toarray(), full_matrices=False)[2][:_STARTS])
    changes = [_ascent(J, direction, adjacency.norm == math.inf, p) for direction in starts]
    best = max(changes, key=lambda change: float(np.linalg.norm(J @ change, p)))
    return adjacency.radius * best


def _worst_phases(J: sp.csr_array, spec: PrivateSpec, adjacency: ComplexWithin, p: int) -> Array:
    """Return `_worst_change` for complex data, whose entries may change with any phase.

    The stored numbers are the real entries, then the real parts of all other entries, then their
    imaginary parts. The modulus of each entry's change is bounded.
    """
    real = spec.shape[0] if adjacency.hermitian else 0
    pairs = (spec.size - real) // 2
    first, second = np.arange(real, real + pairs), np.arange(real + pairs, spec.size)

    def moduli(direction: Array) -> Array:
        return np.concatenate(
            [np.abs(direction[:real]), np.hypot(direction[first], direction[second])]
        )

    def spread(by_entry: NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([by_entry, by_entry[real:]])

    def unit(direction: Array) -> Array:
        # Entries without a direction get equal real and imaginary parts.
        idle = spread(moduli(direction) == 0)
        direction = np.where(idle, 1.0, direction)
        return direction / spread(moduli(direction))

    alone = adjacency.norm in ("entry", 1)
    best, most = np.zeros(spec.size), -1.0
    for angle in np.pi * np.arange(_PHASES) / _PHASES:
        change = np.ones(spec.size)
        change[first], change[second] = np.cos(angle), np.sin(angle)
        if alone:  # only one entry changes: the one with the largest effect at this phase
            effects = abs(_entries(J, change, real, pairs))
            sizes = effects.sum(axis=0) if p == 1 else np.sqrt(effects.power(2).sum(axis=0))
            change = change * spread(np.eye(1, real + pairs, int(np.argmax(sizes))).ravel())
        for _ in range(_STEPS):
            moved = J @ change
            direction = J.T @ (np.where(moved < 0, -1.0, 1.0) if p == 1 else moved)
            ahead = unit(direction)
            if alone:
                ahead = ahead * spread(moduli(change) > 0)
            if float(np.linalg.norm(J @ ahead, p)) <= float(np.linalg.norm(moved, p)):
                break
            change = ahead
        size = float(np.linalg.norm(J @ change, p))
        if size > most:
            best, most = change, size
    return adjacency.radius * best


def _entries(J: sp.csr_array, change: Array, real: int, pairs: int) -> sp.csr_array:
    """Return the effects on ``J d`` of each complex entry's change, one column per entry."""
    parts = sp.csr_array(J @ sp.diags_array(change))
    planar = parts[:, real : real + pairs] + parts[:, real + pairs :]
    return sp.csr_array(sp.hstack([parts[:, :real], planar]))


def _ascent(J: sp.csr_array, direction: Array, box: bool, p: int) -> Array:
    """Return a unit change d with a large ``J d``, by alternating maximization from a direction.

    Each step takes the gradient of the norm at the best unit change as the next direction.
    """

    def unit() -> Array:
        if box:
            return np.where(direction < 0, -1.0, 1.0)
        return direction / (float(np.linalg.norm(direction)) or 1.0)

    for _ in range(_STEPS):
        moved = J @ unit()
        direction = J.T @ (np.where(moved < 0, -1.0, 1.0) if p == 1 else moved)
    return unit()
