"""Test of a derived sensitivity with gradients on made-up neighbors, before a plan uses it.

The proof is in `dpcvx.sensitivity.derivation`. The test finds faults that a proof cannot exclude:
an implementation that differs from it, or a version of numpy, scipy or cvxpy with other results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import has_entries, zeros
from ..model.normal_form import Evaluator, NormalForm
from ..model.spec import PrivateSpec
from .certificate import Sensitivity

Array = NDArray[np.float64]

# Rounding of the gradients that are compared, relative to their size.
_ROUNDING = 1e-6
# Factor that makes contributions exceed their clips.
_STEEP = 2.0**30
# Largest number of entries of records that are tested: made-up ones need as much memory.
_LARGEST = 1 << 22


def rehearse(
    form: NormalForm,
    public: Evaluator,
    sensitivity: Sensitivity,
    p: int,
    level: float,
    start: Array,
    owner: str,
) -> None:
    """Refuse a derived sensitivity if gradients on synthetic data contradict it.

    Parameters
    ----------
    form : NormalForm
    public : Evaluator
        The objective at data of zeros, one of the two neighbors. Another one replaces it if records
        are clipped, since records of zeros may be clipped, too, or if zeros are not admissible.
    sensitivity : Sensitivity
        Sensitivity that was derived from the form.
    p : {1, 2}
        Order of the norm that the noise's scale refers to.
    level : float
        The bound of the gradient's change at `start`.
    start : ndarray, shape (n,)
        A point of the agent's set.
    owner : str
        Name of the agent, for messages.

    Raises
    ------
    PrivacyError
        If the gradient moves farther than the bound, or not as the Jacobian predicts.
    """
    if sensitivity.asserted is not None:
        return  # nothing was derived, and guarantees mark the asserted bound
    points = [start]
    generic = start + np.sin(1.0 + np.arange(start.size))
    if not sensitivity.varies or (
        level == sensitivity.bound(p).value and sensitivity.extent.contains(generic)
    ):
        points.insert(0, generic)  # the level holds there as well
    far = any(map(np.any, _origin(form, sensitivity)))
    if sensitivity.clips or far:
        public = form.bind(_origin(form, sensitivity), sensitivity.clips, limited=True)
    slopes: dict[tuple[NormalForm, int], Array] = {}  # by the form, and the number of the point
    for held, members, data, expected in _trials(form, sensitivity):
        if held is form:
            none = public
        else:
            none = held.bind(_origin(held, sensitivity)) if far else held.at_zero()
        other = held.bind(data, sensitivity.clips, limited=True)
        for k, x in enumerate(points):
            with np.errstate(all="ignore"):
                if (held, k) not in slopes:
                    slopes[held, k] = none.gradient(x)
                g = other.gradient(x)
                moved = g - slopes[held, k]
                length = float(np.linalg.norm(moved, p))
                rounding = _ROUNDING * float(np.linalg.norm(g, p))
            if math.isfinite(length) and math.isfinite(rounding):
                break
        else:
            continue  # outside the domain of a public term
        if expected is None:
            wrong = length > level * (1 + _ROUNDING) + rounding
            if not wrong and sensitivity.clips_alone:
                length, wrong = _escaped(sensitivity, (none, other), x, p)
        else:
            limit = _ROUNDING * float(np.linalg.norm(expected, p)) + rounding
            wrong = float(np.linalg.norm(moved - expected, p)) > limit
        if wrong:
            names = ", ".join(f"'{form.private[k].name}'" for k in members)
            raise PrivacyError(
                f"Internal error: the sensitivity derived for {names} of agent '{owner}' is "
                f"wrong. On made-up data its gradient moves by {length:.6g} (l{p}), which the "
                "derivation does not allow, so noise scaled to it would protect too little. No "
                "data were read. Please report this with the model and the versions of numpy, "
                "scipy and cvxpy. Until it is fixed, dp.Agent(..., "
                "sensitivity=dp.Asserted(l2=...)) takes a bound of your own."
            )


def _escaped(
    sensitivity: Sensitivity, neighbors: tuple[Evaluator, Evaluator], x: Array, p: int
) -> tuple[float, bool]:
    """Return the change of a large multiple of the clipped gradient, and if it is too large.

    `neighbors` are the objective's evaluators for two neighboring data sets.
    """
    level = sensitivity.change_by_clips * (1.0 if p == 2 else math.sqrt(x.size))
    with np.errstate(all="ignore"):
        near, far = (objective.clipped(x, _STEEP)[0] for objective in neighbors)
        distance = float(np.linalg.norm(far - near, p))
        rounding = _ROUNDING * float(np.linalg.norm(far, p))
    return distance, distance > level * (1 + _ROUNDING) + rounding


def _trials(
    form: NormalForm, sensitivity: Sensitivity
) -> Iterator[tuple[NormalForm, Sequence[int], list[Array], Array | None]]:
    """Yield tests: form, indices of private parameters, data, and expected change of the gradient.

    These parameters get synthetic data, and all others the data of `_origin`. For records, the
    records of one person differ from the origin. The expected change is then None, because only a
    bound is derived. For many records, the form has only the terms of one record, so that gradients
    are cheap.
    """
    zero = _origin(form, sensitivity)
    elsewhere = {k for task in sensitivity.records for k in task.members}
    if sensitivity.weights is not None:  # their Jacobian is computed from gradients anyway
        elsewhere |= sensitivity.weights.members
    affine = [k for k, J in enumerate(sensitivity.jacobians) if k not in elsewhere and J.nnz]
    if affine:
        # As large as the public numbers: smaller data would be lost to rounding next to these.
        arguments = [u for atom in form.atoms for u in atom.args if has_entries(u.h)]
        size = max([1.0, *(float(np.abs(u.h).max()) for u in arguments)])
        data, expected = list(zero), np.zeros(form.n)
        for k in affine:
            data[k] = size * np.sin(1.0 + np.arange(form.private[k].size))
            expected += sensitivity.jacobians[k] @ data[k]
        yield form, affine, data, expected
    for task in sensitivity.records:
        if sum(form.private[k].size for k in task.members) > _LARGEST:
            continue
        for record in sorted({0, task.count // 2, task.count - 1}):
            held, position = form, record
            if record > 0 and not sensitivity.clips:
                held, position = task.part_with(record)
            data = _origin(held, sensitivity)
            moved = sensitivity.adjacency_of(task).moved_rows(task.count) if record == 0 else 1
            for k in task.members:
                data[k] = _only(held.private[k], range(position, position + moved))
            yield held, task.members, data, None


def _only(spec: PrivateSpec, records: Sequence[int]) -> Array:
    """Return synthetic, equal records at some positions, and records near zeros elsewhere."""
    assert isinstance(spec.adjacency, Rows)
    entries = np.add.outer(np.arange(0, spec.size, spec.shape[0]), records)
    row = np.sin(1.0 + np.arange(len(entries)))
    row *= spec.adjacency.max_norm / float(np.linalg.norm(row, spec.adjacency.order))
    if spec.sign is not None:
        row = np.abs(row) if spec.sign == "nonneg" else -np.abs(row)
    data = np.array(_least(spec))
    if spec.bounds is not None:
        row = _within(spec, row, data[entries[:, 0]])
    data[entries] = row[:, np.newaxis]
    return data


def _origin(form: NormalForm, sensitivity: Sensitivity) -> list[Array]:
    """Return the first data set of a test: records closest to zeros, and zeros for other data."""
    members = {k for task in sensitivity.records for k in task.members}
    return [
        _least(spec) if k in members else zeros(spec.size) for k, spec in enumerate(form.private)
    ]


def _least(spec: PrivateSpec) -> Array:
    """Return the admissible data of one private object that are closest to zeros."""
    least = 0.0 if spec.bounds is None else float(np.clip(0.0, *spec.interval))
    return np.full(spec.size, least) if least else zeros(spec.size)


def _within(spec: PrivateSpec, row: Array, least: Array) -> Array:
    """Return a row within the declared bounds and norm, between `least` and the clipped `row`."""
    assert isinstance(spec.adjacency, Rows)
    order, most = spec.adjacency.order, spec.adjacency.max_norm
    row = np.clip(row, *spec.interval)
    room = most - float(np.linalg.norm(least, order))
    moved = float(np.linalg.norm(row - least, order))
    return least + (row - least) * min(1.0, max(room, 0.0) / (moved or 1.0))
