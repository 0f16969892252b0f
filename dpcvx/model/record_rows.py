r"""Single records: restriction of an objective to some of its records, and second derivatives.

If an objective reads its records row by row, it can be restricted to some of them.

If records multiply variables in one product, the loss of record i is a function of its few scores
:math:`s_i = J_i x + o_i`, and its second derivative in x is :math:`J_i' D_i J_i`. D is a central
difference of first derivatives in the scores. These are computed from the private data, within the
trust boundary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .matrices import Array, Data, Identity, Matrix, compact, csr, has_entries, zeros
from .normal_form import (
    UNREAD,
    Argument,
    Atom,
    AtomStep,
    Clip,
    Clipped,
    Combination,
    NormalForm,
    backward,
    forward,
    limited_to_numbers,
)
from .quadratic import Term
from .spec import PrivateSpec
from .trailing import BehindTheDoor

Index = NDArray[np.intp]

# Largest numbers of different values of one constant, and of kinds of records.
_VALUES, _KINDS = 64, 256
# Leading rows that are searched first for too many values of a constant.
_HEAD = 1024


Mode = Literal["rows", "sum", "whole"]


@dataclass(frozen=True, eq=False)
class RecordRows:
    """Terms of an objective that treat records separately: row r depends on record r only.

    Attributes
    ----------
    form : NormalForm
    terms : tuple of Term
    count : int
        Number of records.
    modes : mapping of int to {"rows", "sum", "whole"}
        Modes of the atoms that the terms need, by index: the atom's value has a row per record
        ("rows"), is a sum over rows ("sum"), or reads no records ("whole").
    """

    form: NormalForm
    terms: tuple[Term, ...]
    count: int
    modes: Mapping[int, Mode]

    def of(self, rows: Index) -> tuple[NormalForm, list[Term], dict[int, int]]:
        """Restrict the terms to some records; also return the new indices of the atoms.

        Parameters
        ----------
        rows : ndarray of int
            Row numbers in ascending order.
        """
        positions = {j: k for k, j in enumerate(sorted(self.modes))}
        atoms: list[Atom] = []
        for j in positions:
            atom, mode = self.form.atoms[j], self.modes[j]
            args = tuple(
                self._restricted(u, rows, positions)
                if cut
                else replace(u, terms=tuple((positions[i], M) for i, M in u.terms))
                for u, cut in cut_arguments(atom, mode)
            )
            shape = (rows.size, *atom.shape[1:]) if mode == "rows" else atom.shape
            atoms.append(replace(atom, args=args, shape=shape))
        index = {id(atom): j for j, atom in enumerate(self.form.atoms)}
        terms, total = [], []
        for term in self.terms:
            j, weight = index[id(term.atom)], term.weight
            if self.modes[j] == "rows":
                weight = weight[self.entries(rows, weight.size)]
            terms.append(Term(atoms[positions[j]], weight))
            total.append((positions[j], weight[np.newaxis]))
        private = tuple(
            replace(spec, shape=(rows.size, *spec.shape[1:]))
            if _has_rows(spec, self.count)
            else spec
            for spec in self.form.private
        )
        root = Combination((), None, (), np.zeros(1), tuple(total))
        return NormalForm(self.form.n, private, tuple(atoms), root), terms, positions

    def kinds(self) -> tuple[Index, Index] | None:
        """Return one record of each kind, and the kind of every record.

        The result is None for too many kinds.

        Records of one kind have equal public coefficients, so a bound over all admissible data of
        one record holds for all of them.
        """
        kind: Index | None = None
        for values in self._profiles():
            if values is None:
                return None
            if values[0] == values[-1] and (values == values[0]).all():
                continue
            if np.unique(values[:_HEAD]).size > _VALUES:
                return None
            distinct, which = np.unique(values, return_inverse=True)
            if distinct.size > _VALUES:
                return None
            joint = which if kind is None else kind * distinct.size + which
            different, kind = np.unique(joint, return_inverse=True)
            if different.size > _KINDS:
                return None
        if kind is None:
            return np.zeros(1, dtype=np.intp), np.zeros(self.count, dtype=np.intp)
        first = np.unique(kind, return_index=True)[1]
        order = np.argsort(first)
        return first[order], np.argsort(order)[kind]

    def line(self) -> sp.csr_array | None:
        """Return the only public matrix, with a row per record, that multiplies variables, or None.

        The result is also None if other public coefficients differ between records.
        """
        sides = [
            (u, by_record)
            for j, m in self.modes.items()
            for u, by_record in cut_arguments(self.form.atoms[j], m)
        ]
        moving = [(u.F, by_record) for u, by_record in sides if u.F is not None]
        if len(moving) != 1 or not moving[0][1] or moving[0][0].shape[0] != self.count:
            return None
        for values in self._profiles(lines=False):
            if values is None or not (values == values[0]).all():
                return None
        return csr(moving[0][0])

    def entries(self, rows: Index, size: int) -> Index:
        """Return the positions of some rows' entries in a flat column-major array.

        Parameters
        ----------
        rows : ndarray of int
        size : int
            Number of entries of the array, a multiple of the number of records.
        """
        return (rows + self.count * np.arange(size // self.count)[:, np.newaxis]).ravel()

    def _restricted(self, u: Combination, rows: Index, positions: Mapping[int, int]) -> Combination:
        entries = self.entries(rows, u.h.size)
        return Combination(
            (rows.size, *u.shape[1:]),
            None if u.F is None else compact(csr(u.F)[entries]),
            tuple((k, self.narrowed(G, rows)) for k, G in u.G),
            u.h[entries] if has_entries(u.h) else zeros(entries.size),
            tuple(
                (
                    positions[j],
                    self.narrowed(M, rows) if self.modes[j] == "rows" else csr(M)[entries],
                )
                for j, M in u.terms
            ),
        )

    def narrowed(self, M: Matrix, rows: Index) -> Matrix:
        """Restrict a matrix that maps row r of an array to row r of another to some rows.

        Parameters
        ----------
        M : matrix
        rows : ndarray of int
            Row numbers in ascending order.
        """
        if isinstance(M, Identity):
            return Identity(rows.size * (M.size // self.count))
        sparse = csr(M)
        picked_rows = sparse[self.entries(rows, sparse.shape[0])]
        records = np.tile(np.arange(rows.size), sparse.shape[0] // self.count)
        record = np.repeat(records, np.diff(picked_rows.indptr))
        columns = picked_rows.indices // self.count * rows.size + record
        shape = (picked_rows.shape[0], rows.size * (sparse.shape[1] // self.count))
        return sp.csr_array((picked_rows.data, columns, picked_rows.indptr), shape=shape)

    def _profiles(self, lines: bool = True) -> Iterator[Array | None]:
        """Yield public coefficients, one number per record.

        An item is None if the sparsity of the coefficients differs between records.

        Coefficients of variables are included if `lines`.
        """
        for term in self.terms:
            if term.weight.size % self.count == 0:
                yield from term.weight.reshape((-1, self.count))
        cut = [
            u
            for j, m in self.modes.items()
            for u, by_record in cut_arguments(self.form.atoms[j], m)
            if by_record
        ]
        for u in cut:
            if has_entries(u.h):
                yield from u.h.reshape((-1, self.count))
            for _, G in u.G:
                yield from self._lines(G, self.count)
            for j, M in u.terms:
                yield from self._lines(M, self.count if self.modes[j] == "rows" else 1)
            if u.F is not None and lines:
                yield from self._lines(u.F, 1)

    def _lines(self, M: Matrix, divisor: int) -> Iterator[Array | None]:
        if isinstance(M, Identity) and divisor > 1:
            return
        sparse = csr(M)
        for first in range(0, sparse.shape[0], self.count):
            ends = sparse.indptr[first : first + self.count + 1]
            width = np.diff(ends)
            if not (width == width[0]).all():
                yield None
                return
            for values in (sparse.indices, sparse.data):
                block = values[ends[0] : ends[-1]].reshape((self.count, width[0])).T
                yield from (block // divisor if values is sparse.indices else block)


def record_rows(form: NormalForm, terms: Sequence[Term], count: int) -> RecordRows | None:
    """Return an objective's terms as functions of single records.

    The result is None if a term does not read the records row by row.

    Parameters
    ----------
    form : NormalForm
    terms : sequence of Term
        Terms of the form.
    count : int
        Number of records.
    """
    index = {id(atom): j for j, atom in enumerate(form.atoms)}
    modes: dict[int, Mode] = {
        index[id(t.atom)]: "rows" if _rows(t.atom.shape, count) else "sum" for t in terms
    }
    for j in range(len(form.atoms) - 1, -1, -1):
        if j not in modes:
            continue
        reads = _asked(form, form.atoms[j], modes[j], count)
        if reads is None or any(modes.setdefault(k, mode) != mode for k, mode in reads):
            return None
    return RecordRows(form, tuple(terms), count, modes)


def _rows(shape: Sequence[int], count: int) -> bool:
    return len(shape) > 0 and shape[0] == count


def _has_rows(spec: PrivateSpec, count: int) -> bool:
    return _rows(spec.shape, count) and not spec.symmetric


def cut_arguments(atom: Atom, mode: Mode) -> list[tuple[Combination, bool]]:
    """Return the arguments of an atom, each with a flag: whether it has a row per record.

    Parameters
    ----------
    atom : Atom
    mode : {"rows", "sum", "whole"}
        See `RecordRows`.
    """
    if mode == "whole":
        return [(u, False) for u in atom.args]
    cut = atom.rule.cut([u.constant and u.h.size == 1 for u in atom.args])
    return list(zip(atom.args, cut, strict=True))


def _asked(form: NormalForm, atom: Atom, mode: Mode, count: int) -> list[tuple[int, Mode]] | None:
    """Return the atoms that an atom reads, with their modes.

    The result is None if the atom reads several of the `count` records in one row.
    """
    if (mode == "rows" and not _reads_rows(atom)) or (mode == "sum" and not _is_sum(atom)):
        return None
    reads: list[tuple[int, Mode]] = []
    for u, cut in cut_arguments(atom, mode):
        if not cut:
            if u.G:
                return None
            reads.extend((j, "whole") for j, _ in u.terms)
            continue
        if not _rows(u.shape, count):
            return None
        if not all(_has_rows(form.private[k], count) and _keeps_rows(G, count) for k, G in u.G):
            return None
        for j, M in u.terms:
            if not _rows(form.atoms[j].shape, count):
                reads.append((j, "whole"))
            elif _keeps_rows(M, count):
                reads.append((j, "rows"))
            else:
                return None
    return reads


def _is_sum(atom: Atom) -> bool:
    rest = all(u.constant and u.h.size == 1 for u in atom.args[1:])
    return atom.rule.sums_rows(atom.data) and rest


def _reads_rows(atom: Atom) -> bool:
    """Return whether row r of the atom's value reads only row r of its arguments with rows."""
    shapes = [u.shape for u, cut in cut_arguments(atom, "rows") if cut]
    return atom.rule.by_row(atom.data, shapes, atom.shape)


def _keeps_rows(M: Matrix, count: int) -> bool:
    """Return whether M maps row r of an array to row r of another, for `count` rows."""
    if M.shape[0] % count or M.shape[1] % count:
        return False
    if isinstance(M, Identity):
        return True
    sparse = csr(M)
    rows = np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr))
    same = np.array_equal(sparse.indices, rows)
    return same or bool(((sparse.indices - rows) % count == 0).all())


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
