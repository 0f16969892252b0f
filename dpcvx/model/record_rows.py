"""Restriction of an objective to some of its records, if it reads the records row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .matrices import Array, Identity, Matrix, compact, csr, has_entries, zeros
from .normal_form import Atom, Combination, NormalForm
from .quadratic import Term
from .spec import PrivateSpec

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
