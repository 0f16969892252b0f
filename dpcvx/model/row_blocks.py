"""Gradients of many dense records in blocks of rows, which stay in the cache for both products."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from .atoms import ITSELF
from .matrices import Array, Data, Diagonal, Identity, Matrix, as_array, csr, folded, zeros
from .normal_form import (
    Argument,
    Atom,
    AtomStep,
    Clip,
    Clipped,
    Combination,
    Evaluator,
    Limit,
    NormalForm,
    Order,
)
from .quadratic import terms
from .record_rows import Index, Mode, RecordRows, cut_arguments, record_rows
from .trailing import SparseMatrices, View

# Number of entries of a block, equal on all machines so that results are bitwise equal.
_BLOCK = 1 << 19
# Number of entries below which the whole data stay in the cache.
_MANY = 8 * _BLOCK
# Blocks of fewer rows, and gradients of more entries, cost more time than the cache saves.
_FEWEST_ROWS, _LONGEST = 4096, _BLOCK // 16


def bound_objective(
    form: NormalForm, data: Sequence[Data | SparseMatrices], clips: Sequence[Clip], *, limited: bool
) -> Evaluator:
    """Return an objective with its data, whose gradients read many dense records block by block.

    Blocks are equal on all machines, and added up in their order. Objectives that are no sums over
    records, sparse data and few records are read as a whole.

    Parameters
    ----------
    form : NormalForm
    data : sequence of (ndarray, csr_array or SparseMatrices)
        See `Evaluator`, also for several agents.
    clips : sequence of Clip
    limited : bool
        See `Evaluator`.
    """
    dense = all(isinstance(part, np.ndarray) for part in data)
    rows = _many_rows(form) if dense else None
    if rows is None or not all(_is_clipped_by_row(clip, rows) for clip in clips):
        return form.bind(data, clips, limited=limited)
    return Evaluator(form, data, limited=limited, cut=functools.partial(_in_blocks, rows, clips))


def _many_rows(form: NormalForm) -> RecordRows | None:
    """Return the objective as functions of single records, if these are many; else None."""
    shapes = [spec.shape for spec in form.private if spec.shape]
    if not shapes or form.n > _LONGEST or _entries(form.atoms) < _MANY:
        return None
    count = max(shapes, key=math.prod)[0]
    rows = record_rows(form, [t for t in terms(form) if all(form.reach(t.atom))], count)
    if rows is None:
        return None
    by_row = _by_row(rows)
    entries = _entries([form.atoms[j] for j in by_row])
    if not _MANY <= entries <= _BLOCK // _FEWEST_ROWS * count:
        return None
    read = {
        j for k, a in enumerate(form.atoms) if k not in by_row for u in a.args for j, _ in u.terms
    }
    wide = any(_is_wide(u, count) for j in by_row for u in form.atoms[j].args)
    return None if wide or read & by_row.keys() else rows


def _entries(atoms: Sequence[Atom]) -> int:
    """Return the number of entries of the dense data matrices that a gradient reads twice."""
    count = 0
    for atom in atoms:
        for u in atom.args:
            count += sum(M.size for M in _maps(u) if isinstance(M, np.ndarray))
            if atom.rule.product == "matrix" and u.F is None and not u.terms:
                count += u.h.size
    return count


def _maps(u: Combination) -> list[Matrix]:
    return [M for M in (u.F, *(M for _, M in u.terms)) if M is not None]


def _is_wide(u: Combination, count: int) -> bool:
    """Return whether u has a dense matrix with several separate rows per record.

    There are `count` records.
    """
    return any(isinstance(M, np.ndarray) and M.shape[0] > count for M in _maps(u))


def _by_row(rows: RecordRows) -> dict[int, Mode]:
    """Return, by atom index, the mode (see `RecordRows`) of atoms evaluated block by block."""
    return {j: mode for j, mode in sorted(rows.modes.items()) if mode != "whole"}


def _is_clipped_by_row(clip: Clip, rows: RecordRows) -> bool:
    records = rows.form.atoms[clip.atom].args[0]
    places = {clip.atom, clip.place[0]}
    plain = records.F is None and not records.terms
    return plain and not clip.turned and places <= _by_row(rows).keys()


@dataclass(frozen=True, eq=False)
class _Block:
    """A range of consecutive records, which cuts its part out of arrays with a row per record."""

    rows: RecordRows
    own: slice

    @property
    def index(self) -> Index:
        return np.arange(self.own.start, self.own.stop)

    def numbers(self, v: Array) -> Array:
        """Return these records' part of a flat column-major array with a row per record."""
        return folded(v.reshape((-1, self.rows.count))[:, self.own].ravel())

    def lines(self, M: Matrix | Diagonal) -> Matrix:
        """Return these records' part of a matrix with rows for each record, and all its columns."""
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
        """Return these records' part of a matrix that maps row r to row r."""
        if isinstance(M, Diagonal):
            return Diagonal(self.numbers(M.values))
        return self.rows.narrowed(M, self.index)

    def clip(self, clip: Clip) -> Clip:
        """Return a clip restricted to these records."""
        beside = clip.beside
        if beside is None:
            return clip
        weight, size = beside.weight[self.own], beside.size[self.own]
        return replace(clip, beside=replace(beside, weight=weight, size=size))

    def of_array(self, a: Array, axes: int) -> Array:
        """Return these records' part of an array with `axes` axes after the leading ones."""
        return a[(..., self.own, *[slice(None)] * (axes - 1))]

    def argument(
        self, u: Argument, shape: tuple[int, ...], limit: Limit, layout: Callable[[Array], Array]
    ) -> Argument:
        """Return these records' part of an argument of an atom.

        `shape` is the argument's shape for all records.
        """
        view, offset = View(shape), self.of_array(View(shape)(as_array(u.offset)), len(shape))
        if not u.moving:
            # Records are not copied if the rule takes them in their own layout.
            return Argument(
                None, (), offset if isinstance(layout, View) else view.flat(offset), limit
            )
        modes = self.rows.modes
        F = None if u.F is None else self.lines(u.F)
        terms = [(j, self.square(M) if modes[j] == "rows" else self.lines(M)) for j, M in u.terms]
        return Argument(F, terms, view.flat(offset), limit, layout)


def _in_blocks(rows: RecordRows, clips: Sequence[Clip], whole: Order, limit: Limit) -> Order:
    """Return the order of evaluation that computes a gradient in blocks of rows.

    `whole` is the order of evaluation without blocks.
    """
    form, modes = rows.form, _by_row(rows)
    rest = [step for step in whole.steps if step.j not in modes]
    # A factor that all rows share, such as w in X @ w, is computed once, as an additional atom.
    met: dict[tuple[int, int], int] = {}
    for j, mode in modes.items():
        for k, (u, cut) in enumerate(cut_arguments(form.atoms[j], mode)):
            if not (cut or u.constant):
                met[j, k] = len(form.atoms) + len(met)
                given = whole.steps[j].arguments[k]
                argument = Argument(given.F, given.terms, given.offset, limit)
                rest.append(AtomStep(met[j, k], ITSELF, [argument]))
    height = _BLOCK * rows.count // _entries([form.atoms[j] for j in modes])
    ends = [*range(0, rows.count, height), rows.count]
    blocks = [_Block(rows, slice(*pair)) for pair in itertools.pairwise(ends)]
    return Order(
        rest,
        [*whole.weights, *[None] * len(met)],
        form.read.union(met.values()),
        [(_weights(b, whole), _steps(b, whole, met, clips, limit)) for b in blocks],
    )


def _weights(block: _Block, whole: Order) -> list[tuple[int, Array | None]]:
    """Return the initial cotangents of the atoms that this block of records evaluates.

    `whole` is the order of evaluation without blocks.
    """
    weights: list[tuple[int, Array | None]] = []
    for j, mode in _by_row(block.rows).items():
        g = whole.weights[j]
        weights.append((j, block.numbers(g) if g is not None and mode == "rows" else g))
    return weights


def _steps(
    block: _Block,
    whole: Order,
    met: Mapping[tuple[int, int], int],
    clips: Sequence[Clip],
    limit: Limit,
) -> list[AtomStep]:
    """Return the evaluation steps of one block of records, for atoms read block by block.

    `whole` is the order of evaluation without blocks.
    """
    count, steps = block.own.stop - block.own.start, dict[int, AtomStep]()
    for j, mode in _by_row(block.rows).items():
        atom = block.rows.form.atoms[j]
        cuts = cut_arguments(atom, mode)
        shapes = [(count, *u.shape[1:]) if cut else u.shape for u, cut in cuts]
        shape = (count, *atom.shape[1:]) if mode == "rows" else atom.shape
        rule = atom.rule.fitted(atom.data, shapes, shape)
        arguments: list[Argument] = []
        for k, ((u, cut), layout) in enumerate(zip(cuts, rule.layouts, strict=True)):
            given = whole.steps[j].arguments[k]
            if (j, k) in met:
                size = u.h.size
                given = Argument(None, [(met[j, k], Identity(size))], zeros(size), None, layout)
            elif cut:
                given = block.argument(given, u.shape, limit, layout)
            arguments.append(given)
        steps[j] = AtomStep(j, rule, arguments)
    for clip in clips:
        records = steps[clip.atom].arguments[0].constant
        j, k = clip.place
        steps[j].clips[k] = Clipped(block.clip(clip), records)
    return [*steps.values()]
