"""Gradients of many dense records in blocks of rows, which stay in the cache for both products."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from .atoms import MATMUL, Rule
from .matrices import Array, Data, Diagonal, Matrix, csr, folded
from .normal_form import (
    UNREAD,
    Argument,
    Atom,
    BoundObjective,
    Clip,
    Clipped,
    Combination,
    Given,
    NormalForm,
    Part,
    Section,
)
from .quadratic import terms
from .record_rows import Index, Mode, RecordRows, cut_arguments, record_rows

# Entries of a block, on every machine: results must have the same bits anywhere.
_BLOCK = 1 << 19
# Fewer entries stay in the cache as they are.
_MANY = 8 * _BLOCK
# Columns of fewer rows, and gradients of more entries, cost more than the cache saves.
_FEWEST_ROWS, _LONGEST = 4096, _BLOCK // 16

_ITSELF = Rule("itself", lambda v, _: v[0], lambda v, _out, g, _, _k: g)


def bound_objective(
    form: NormalForm, data: Sequence[Data], clips: Sequence[Clip], *, limited: bool
) -> BoundObjective:
    """An objective with its data, whose gradients read many dense records block by block.

    Objectives that are no sums over records, sparse data and few records are read as a whole.

    Parameters
    ----------
    form : NormalForm
    data : sequence of (ndarray or csr_array)
    clips : sequence of Clip
    limited : bool
        See `NormalForm.bind`.
    """
    rows = None if any(sp.issparse(part) for part in data) else _many_rows(form)
    if rows is None or not all(_is_clipped_by_row(clip, rows) for clip in clips):
        return form.bind(data, clips, limited=limited)
    return _InBlocks(rows, data, clips, limited)


def _many_rows(form: NormalForm) -> RecordRows | None:
    """How an objective reads its records; None if that is not row by row, or these are few."""
    shapes = [spec.shape for spec in form.private if spec.shape]
    if not shapes or form.n > _LONGEST or _entries(form.atoms) < _MANY:
        return None
    count = max(shapes, key=math.prod)[0]
    rows = record_rows(form, [t for t in terms(form) if all(form.reach(t.atom))], count)
    if rows is None:
        return None
    own = _by_row(rows)
    entries = _entries([form.atoms[j] for j in own])
    if not _MANY <= entries <= _BLOCK // _FEWEST_ROWS * count:
        return None
    read = {j for k, a in enumerate(form.atoms) if k not in own for u in a.args for j, _ in u.terms}
    wide = any(_is_wide(u, count) for j in own for u in form.atoms[j].args)
    return None if wide or read & own.keys() else rows


def _entries(atoms: Sequence[Atom]) -> int:
    """Of the dense matrices that a gradient reads twice."""
    found = 0
    for atom in atoms:
        for u in atom.args:
            found += sum(M.size for M in _maps(u) if isinstance(M, np.ndarray))
            if atom.rule is MATMUL and u.F is None and not u.terms:
                found += u.h.size
    return found


def _maps(u: Combination) -> list[Matrix]:
    return [M for M in (u.F, *(M for _, M in u.terms)) if M is not None]


def _is_wide(u: Combination, count: int) -> bool:
    """Whether a dense matrix has several rows per record, which do not lie side by side."""
    return any(isinstance(M, np.ndarray) and M.shape[0] > count for M in _maps(u))


def _by_row(rows: RecordRows) -> dict[int, Mode]:
    """Atoms that are evaluated block by block."""
    return {j: mode for j, mode in sorted(rows.modes.items()) if mode != "whole"}


def _is_clipped_by_row(clip: Clip, rows: RecordRows) -> bool:
    records = rows.form.atoms[clip.atom].args[0]
    places = {clip.atom, clip.place[0]}
    plain = records.F is None and not records.terms
    return plain and not clip.turned and places <= _by_row(rows).keys()


@dataclass(frozen=True, eq=False)
class _Block:
    """Some records, one after the other: their part of what has a row per record."""

    rows: RecordRows
    own: slice

    @property
    def index(self) -> Index:
        return np.arange(self.own.start, self.own.stop)

    def numbers(self, v: Array) -> Array:
        """Of numbers that lie column by column."""
        return folded(v.reshape((-1, self.rows.count))[:, self.own].ravel())

    def lines(self, M: Matrix | Diagonal) -> Matrix:
        """Of a matrix that has rows per record, and other columns."""
        if isinstance(M, np.ndarray):
            return M[self.own]
        sparse = csr(M)
        if sparse.shape[0] > self.rows.count:
            return sparse[self.rows.entries(self.index, sparse.shape[0])]
        ends = sparse.indptr[self.own.start : self.own.stop + 1]
        filled = slice(ends[0], ends[-1])
        arrays = (sparse.data[filled], sparse.indices[filled], ends - ends[0])
        return sp.csr_array(arrays, shape=(ends.size - 1, sparse.shape[1]))

    def square(self, M: Matrix | Diagonal) -> Matrix | Diagonal:
        """Of a matrix that maps rows of arrays to the same rows."""
        if isinstance(M, Diagonal):
            return Diagonal(self.numbers(M.values))
        return self.rows.narrowed(M, self.index)

    def argument(self, u: Argument, limit: Callable[[Array], Array]) -> Argument:
        """Of what an atom takes."""
        modes, constant = self.rows.modes, u.constant[self.own]
        F = None if u.F is None else self.lines(u.F)
        terms = [(j, self.square(M) if modes[j] == "rows" else self.lines(M)) for j, M in u.terms]
        return Argument(constant.shape, F, terms, constant, limit)

    def clipped(self, clip: Clip, records: Data, shape: tuple[int, ...]) -> Clipped:
        """Of a clip, where the product of its records has this shape."""
        beside = clip.beside
        if beside is not None:
            weight, size = beside.weight[self.own], beside.size[self.own]
            clip = replace(clip, beside=replace(beside, weight=weight, size=size))
        return Clipped(clip, (self.own.stop - self.own.start, *shape[1:]), [records[self.own]])


class _InBlocks(BoundObjective):
    """What `BoundObjective` is, with gradients that are sums over blocks of rows.

    Blocks are the same on every machine, and added up in their order.
    """

    def __init__(
        self, rows: RecordRows, data: Sequence[Data], clips: Sequence[Clip], limited: bool
    ) -> None:
        form, own = rows.form, _by_row(rows)
        super().__init__(form, data, (), limited)
        rest: list[Part] = [part for part in self._parts if part[0] not in own]
        # What all rows meet, such as w in X @ w, is computed once, as the value of a further atom.
        met: dict[tuple[int, int], Given] = {}
        for j, mode in own.items():
            for k, (u, cut) in enumerate(cut_arguments(form.atoms[j], mode)):
                if not (cut or u.constant):
                    place = len(form.atoms) + len(met)
                    met[j, k] = Given(place)
                    rest.append((place, Atom(_ITSELF, (), (u,), u.shape), [self._parts[j][2][k]]))
        self._met, self._rest = len(met), Section(rest, self._limit)
        self._read = form.read.union(range(len(form.atoms), len(form.atoms) + len(met)))
        height = _BLOCK * rows.count // _entries([form.atoms[j] for j in own])
        ends = [*range(0, rows.count, height), rows.count]
        blocks = [_Block(rows, slice(*pair)) for pair in itertools.pairwise(ends)]
        self._blocks = [(self._starts(b), self._section_of(b, met, clips)) for b in blocks]

    def _starts(self, block: _Block) -> list[tuple[int, Array | None]]:
        """Cotangents of the block's atoms, before others are known."""
        found: list[tuple[int, Array | None]] = []
        for j, mode in _by_row(block.rows).items():
            g = self._start[1][j]
            found.append((j, block.numbers(g) if g is not None and mode == "rows" else g))
        return found

    def _section_of(
        self, block: _Block, met: Mapping[tuple[int, int], Given], clips: Sequence[Clip]
    ) -> Section:
        parts: list[Part] = []
        for j, mode in _by_row(block.rows).items():
            _, atom, args = self._parts[j]
            flags = [cut for _, cut in cut_arguments(atom, mode)]
            own = [
                met[j, k] if (j, k) in met else block.argument(u, self._limit) if cut else u
                for k, (u, cut) in enumerate(zip(args, flags, strict=True))
            ]
            rows = block.own.stop - block.own.start
            shape = (rows, *atom.shape[1:]) if mode == "rows" else atom.shape
            parts.append((j, replace(atom, shape=shape), own))
        clipped = [
            block.clipped(c, self._parts[c.atom][2][0].constant, self._parts[c.atom][1].shape)
            for c in clips
        ]
        return Section(parts, self._limit, clipped)

    def _backward(self, x: Array) -> Array:
        start, weights = self._start
        out, cotangents = start.copy(), [*weights, *[None] * self._met]
        values = [UNREAD] * len(cotangents)
        arguments = self._rest.forward(x, values, self._read)
        for starts, section in self._blocks:
            for j, g in starts:
                cotangents[j] = g
            inputs = section.forward(x, values, self._read)
            section.backward(values, inputs, out, cotangents)
        self._rest.backward(values, arguments, out, cotangents)
        return out
