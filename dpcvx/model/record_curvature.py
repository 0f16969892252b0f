r"""Second derivatives of single records' losses at one point, computed from the private data.

If records multiply variables in one product, the loss of record i is a function of its few scores
:math:`s_i = J_i x + o_i`, and its second derivative in x is :math:`J_i' D_i J_i`. D is a central
difference of first derivatives in the scores. This module computes within the trust boundary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .matrices import Array, Data
from .normal_form import (
    UNREAD,
    Argument,
    AtomStep,
    Clip,
    Clipped,
    NormalForm,
    backward,
    forward,
    limited_to_numbers,
)
from .trailing import BehindTheDoor

# Step of the central difference. Second derivatives of common losses vary on a scale of 1.
_APART = 2.0**-10


class RecordCurvature(BehindTheDoor):
    """Second derivatives W_i' W_i of the loss of each record i.

    Parameters
    ----------
    roots : ndarray, shape (records, scores, n)
        The matrices W_i.
    """

    def __init__(self, roots: Array) -> None:
        # Entries that overflowed become 0, so that sums over the other records stay finite.
        self._roots = roots = _numbers(roots)
        with np.errstate(all="ignore"):  # squares may overflow
            self._sizes = np.einsum("rkn,rkn->r", roots, roots)

    @staticmethod
    def none(n: int) -> RecordCurvature:
        """Return second derivatives in n variables of the losses of no records."""
        return RecordCurvature(np.zeros((0, 1, n)))

    @staticmethod
    def at(form: NormalForm, data: Sequence[Data], clip: Clip, x: Array) -> RecordCurvature:
        """Return the second derivatives at x of the losses of an objective's records.

        Parameters
        ----------
        form : NormalForm
        data : sequence of ndarray or csr_array
            Data of one agent.
        clip : Clip
            Product of records and variables that is clipped; it is affine in both.
        x : ndarray, shape (n,)
        """
        with np.errstate(all="ignore"):
            J, D = _parts(form, data, clip, x)
            values, vectors = np.linalg.eigh(D)  # for convex losses, negative only by rounding
            roots = np.sqrt(np.maximum(values, 0.0))[..., None] * vectors.swapaxes(1, 2)
            return RecordCurvature(roots @ J)

    @property
    def greatest(self) -> float:
        """Largest trace of a record's second derivative; 0 without records."""
        return float(self._sizes.max(initial=0.0))

    def exceeding(self, limit: float) -> int:
        """Return how many records have a second derivative with a trace above a limit."""
        return int(np.count_nonzero(self._sizes > limit))

    def cut(self, limit: float) -> tuple[float, float]:
        """Return trace and largest eigenvalue of a sum of limited second derivatives.

        Each record's second derivative is scaled down to a trace of at most the limit.

        If one record is added, removed or replaced, each result moves by at most the limit. Each
        summand has a trace between 0 and the limit. The summand raises the trace of the sum by its
        trace, and the largest eigenvalue by a number between 0 and its norm (Weyl), which is at
        most its trace.

        Parameters
        ----------
        limit : float
            Largest trace of a summand, positive.

        Returns
        -------
        trace, largest : float
            Trace of the sum, and its largest eigenvalue.
        """
        with np.errstate(all="ignore"):
            # Roots are divided, since the quotient itself could be subnormal.
            share = np.minimum(1.0, math.sqrt(limit) / np.sqrt(self._sizes))
            share = np.where(self._sizes > 0, share, 0.0)
            rows = (share[:, None, None] * self._roots).reshape(-1, self._roots.shape[2])
            trace = float(np.minimum(self._sizes, limit).sum())
        gram = rows.T @ rows if rows.shape[0] >= rows.shape[1] else rows @ rows.T
        return trace, float(np.linalg.eigvalsh(gram)[-1]) if gram.size else 0.0


def _parts(form: NormalForm, data: Sequence[Data], clip: Clip, x: Array) -> tuple[Array, Array]:
    """Return J and D of all records, with the second derivative ``J' D J`` of a record's loss.

    Their shapes are (records, scores, n) and (records, scores, scores). All entries are finite.
    """
    limit = limited_to_numbers
    steps = [AtomStep.of(j, atom, data, limit) for j, atom in enumerate(form.atoms)]
    clipped, (j, k) = Clipped.of(clip, steps, limit), clip.place
    cotangents: list[Array | None] = [None] * len(steps)
    Argument.of(form.root, data, limit).backward(np.ones(1), np.zeros(form.n), cotangents)

    def scores(point: Array) -> Array:
        values = [UNREAD] * len(steps)
        inputs = forward(steps[: j + 1], point, values, range(j + 1), limit)
        taken = values[j] if k is None else inputs[j][k]
        return taken if taken.ndim == 1 else np.asarray(taken).T.reshape(-1)

    def slopes(shift: Array) -> Array:
        values, seen = [UNREAD] * len(steps), list[Array]()
        before = forward(steps[: j + (k is None)], x, values, range(len(steps)), limit)
        if k is None:
            values[j] = values[j] + shift
            after = forward(steps[j + 1 :], x, values, range(len(steps)), limit)
        else:
            arguments = [u(x, values) for u in steps[j].arguments]
            arguments[k] = arguments[k] + steps[j].rule.layouts[k](shift)
            values[j] = steps[j].rule.forward(arguments, steps[j].rule.data)
            after = [arguments, *forward(steps[j + 1 :], x, values, range(len(steps)), limit)]
        watched, inputs = _watched(steps, j, k, clipped), [*before, *after]

        def look(_: Clipped, g: Array) -> None:
            seen.append(g)

        backward(watched, inputs, values, np.zeros(form.n), [*cotangents], limit, look)
        return clipped.rows(seen[0]) if seen else np.zeros((0, 0))

    origin = scores(np.zeros(form.n))
    columns = [clipped.rows(scores(unit) - origin) for unit in np.eye(form.n)]
    J = np.stack(columns, axis=-1)
    count, width = J.shape[:2]
    D = np.empty((count, width, width))
    for c in range(width):
        shift = np.zeros((count, width))
        shift[:, c] = _APART
        flat = shift.reshape(-1) if clip.turned else shift.T.reshape(-1)
        D[:, :, c] = (slopes(flat) - slopes(-flat)) / (2 * _APART)
    return _numbers(J), _numbers((D + D.swapaxes(1, 2)) / 2)


def _watched(steps: Sequence[AtomStep], j: int, k: int | None, clip: Clipped) -> list[AtomStep]:
    """Return evaluation steps with a single clip, which records the cotangent of atom j.

    If k is not None, it records the cotangent of argument k instead.
    """
    watched = [*steps]
    watched[j] = AtomStep(j, steps[j].rule, steps[j].arguments, {k: clip})
    return watched


def _numbers(v: Array) -> Array:
    return v if np.isfinite(v).all() else np.where(np.isfinite(v), v, 0.0)
