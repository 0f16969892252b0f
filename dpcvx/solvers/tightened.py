r"""A constraint tightened by public margins, for data as they left with noise.

The data are :math:`d = \tilde d - \xi` with the noise :math:`\xi`. The slack of row j is affine in
the data, so the true one is that of the released data less :math:`v_j(y)' \xi` with
:math:`v_j(y) = B_j - (A_{1,j} y, A_{2,j} y, \dots)`. Where no data multiply variables, v does not
depend on the decision, and a number is subtracted from the row. Else the row is kept for all noise
in :math:`\{N u : |u|_2 \le r\}` at once: by subtracting :math:`r |N' v_j(y)|_2`. In a second-order
cone, the first row covers what the others move by as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData
from ..model.private_constraints import ConstraintRows, PrivateConstraint

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoiseBall:
    """Noise that rows are kept for.

    Attributes
    ----------
    radius : float
    noise : csr_array, shape (D, s)
        N, from standard noise to noise in the data.
    """

    radius: float
    noise: sp.csr_array


@dataclass(frozen=True, eq=False)
class Tightened:
    """A constraint with its margins; without any, it is that of the data as they are.

    Attributes
    ----------
    constraint : PrivateConstraint
    margins : dict of int to float
        Subtracted from the slack, by number of part; for parts that do not bend.
    balls : dict of int to NoiseBall
        By number of part, for parts that bend.
    price : float or None
        What a unit costs by which a part may be missed; None if none may.
    """

    constraint: PrivateConstraint
    margins: Mapping[int, float] = field(default_factory=dict)
    balls: Mapping[int, NoiseBall] = field(default_factory=dict)
    price: float | None = None

    @property
    def firm(self) -> bool:
        """Whether there are margins, and none may be missed."""
        return self.price is None and bool(self.margins or self.balls)

    @property
    def missable(self) -> slice:
        """Of auxiliary columns, those that say by how much each part is missed."""
        first = self.constraint.data.q.size - self.constraint.data.n
        return slice(first, first + (0 if self.price is None else len(self.constraint.parts)))

    @property
    def auxiliary(self) -> int:
        """How many columns there are besides the constraint's variables."""
        return self.missable.stop + len(self._bending_cones())

    def at(self, d: Array) -> ConeData:
        """The program for data as they left."""
        A, b = self.constraint.at(d)
        for number, margin in self.margins.items():
            b[self.constraint.parts[number].first] -= margin
        return self._assembled(A, b)

    def directions(self) -> ConeData | None:
        """A program whose recession directions are those of every released data.

        None where private data multiply variables: what is unbounded depends on the data then.
        """
        if self.constraint.slopes.nnz:
            return None
        A, b = self.constraint.at(np.zeros(self.constraint.offsets.shape[1]))
        return self._assembled(A, b)

    def _assembled(self, A: sp.csr_array, b: Array) -> ConeData:
        """Rows sorted by cone, with more cones and columns where parts bend or may be missed."""
        parts, cones = self.constraint.parts, self.constraint.data.cones
        m, N = A.shape
        missed = self.missable.stop - self.missable.start
        bending = {k: N + missed + i for i, k in enumerate(self._bending_cones())}
        width = self.constraint.data.n + self.auxiliary
        A = sp.csr_array(sp.hstack([A, sp.csr_array((m, width - N))]))
        # What may be missed is added to the slack, what noise does to a cone is taken from it.
        for k in range(missed):
            A = _with_entry(A, parts[k].first, N + k, -1.0)
        for k, column in bending.items():
            A = _with_entry(A, parts[k].first, column, 1.0)
        lifted = {parts[k].first: k for k in self.balls if k not in bending}
        start = cones.zero + cones.nonneg
        soc = start + sum(cones.soc)
        kept = [j for j in range(cones.zero, start) if j not in lifted]
        blocks = [A[: cones.zero], A[kept], -_columns(N, missed, width), A[start:soc]]
        right = [b[: cones.zero], b[kept], np.zeros(missed), b[start:soc]]
        sizes = list(cones.soc)
        for k, ball in self.balls.items():
            rows, values = self._image(parts[k], ball, width)
            head, value = (
                (-_columns(bending[k], 1, width), 0.0)
                if k in bending
                else (A[[parts[k].first]], float(b[parts[k].first]))
            )
            blocks += [head, rows]
            right += [np.array([value]), values]
            sizes.append(1 + values.size)
        q = np.zeros(width)
        q[N : N + missed] = 0.0 if self.price is None else self.price
        return ConeData(
            P=sp.csc_array((width, width)),
            q=q,
            A=sp.csc_array(sp.vstack([*blocks, A[soc:]])),
            b=np.concatenate([*right, b[soc:]]),
            cones=replace(cones, nonneg=len(kept) + missed, soc=tuple(sizes)),
            n=self.constraint.data.n,
        )

    def _bending_cones(self) -> list[int]:
        return [k for k in self.balls if self.constraint.parts[k].size > 1]

    def _image(
        self, part: ConstraintRows, ball: NoiseBall, width: int
    ) -> tuple[sp.csr_array, Array]:
        """``r N' v_j(y)`` for all rows j of a part, as rows of ``b - A y``.

        The length of all of them together bounds what noise in the ball does to the rows of a cone
        but for the first; with it, Cauchy's inequality gives another factor.
        """
        slope, offset = self.constraint.moved(part.rows)
        turned = sp.kron(sp.eye_array(part.size), ball.radius * ball.noise.T)
        both = all(self.constraint.entries(rows).size for rows in (part.rows[:1], part.rows[1:]))
        turned = sp.csr_array(turned) * (math.sqrt(2) if both else 1.0)
        rows, values = sp.csr_array(turned @ slope), np.asarray(turned @ offset)
        used = np.flatnonzero((np.diff(rows.indptr) > 0) | (values != 0))
        more = sp.csr_array((used.size, width - rows.shape[1]))
        return sp.csr_array(sp.hstack([rows[used], more])), values[used]


def _columns(first: int, count: int, width: int) -> sp.csr_array:
    """The matrix that picks some columns."""
    entries = np.ones(count), (np.arange(count), first + np.arange(count))
    return sp.csr_array(entries, shape=(count, width))


def _with_entry(A: sp.csr_array, row: int, column: int, value: float) -> sp.csr_array:
    return sp.csr_array(A + sp.csr_array(([value], ([row], [column])), shape=A.shape))
