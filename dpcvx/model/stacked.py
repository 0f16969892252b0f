"""The same objective of many agents with data of their own, evaluated for all at once.

Every number has a row per agent, or none where it is the same for all; arrays lie column by column,
as vectors do elsewhere. What cannot be stacked is refused before, by `stackable`: agents then
evaluate their objectives one by one, with the same results but for rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import numpy as np

from ..errors import package_fault
from .atoms import (
    ABS,
    ENTR,
    EXP,
    HUBER,
    LOG,
    LOG1P,
    LOGISTIC,
    MATMUL,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    NORM1,
    POWER,
    QUAD_OVER_LIN,
)
from .behind_the_door import BehindTheDoor
from .matrices import Array, Identity, Matrix
from .normal_form import (
    UNREAD,
    Atom,
    Clip,
    Combination,
    NormalForm,
    limited_to_numbers,
    row_lengths,
)

_ONE_ARGUMENT = (LOGISTIC, HUBER, EXP, LOG, LOG1P, ENTR, ABS, POWER)
_SEVERAL = (MAXIMUM, MINIMUM, MULTIPLY)


def stackable(form: NormalForm, clips: Sequence[Clip]) -> bool:
    """Whether objectives of this form, with contributions clipped like this, can be stacked.

    Parameters
    ----------
    form : NormalForm
    clips : sequence of Clip
    """
    return all(_is_stackable(atom) for atom in form.atoms) and not any(
        clip.turned or form.atoms[clip.atom].rule is not MATMUL for clip in clips
    )


def _is_stackable(atom: Atom) -> bool:
    first = atom.args[0]
    if atom.rule in _ONE_ARGUMENT:
        return True
    if atom.rule in _SEVERAL:
        return all(_like(atom, argument) for argument in atom.args)
    if atom.rule is NORM1:
        return atom.data[0] is None
    if atom.rule is QUAD_OVER_LIN:
        return atom.data[0] is None and atom.args[1].constant
    # Records on the left, of rows that are multiplied by variables.
    return atom.rule is MATMUL and len(first.shape) == 2 and first.F is None and not first.terms


def _like(atom: Atom, argument: Combination) -> bool:
    return argument.shape == atom.shape or (argument.constant and argument.h.size == 1)


class StackedObjective(BehindTheDoor):
    """Gradients of many objectives of one form, each with its own data inserted.

    Holds private data: lives behind the door only, and neither prints nor pickles.

    Parameters
    ----------
    form : NormalForm
    data : sequence of ndarray, each of shape (agents, size of the private parameter)
    clips : sequence of Clip
    """

    def __init__(self, form: NormalForm, data: Sequence[Array], clips: Sequence[Clip]) -> None:
        if not stackable(form, clips):
            raise package_fault(
                "An objective of this form cannot be computed for many agents at once."
            )
        self._n, self._count = form.n, data[0].shape[0]
        self._atoms, self._read = form.atoms, form.read
        bound = functools.partial(_Bound, data=data)
        self._args = [[bound(argument) for argument in atom.args] for atom in form.atoms]
        self._root = bound(form.root)
        self._clips: dict[tuple[int, int | None], Callable[[Array], Array]] = {}
        for clip in clips:
            records = self._args[clip.atom][0].offset
            apart = np.broadcast_to(records, (self._count, records.shape[-1]))
            self._clips[clip.place] = _Clipped(clip, apart, form.atoms[clip.atom], self._count)

    def gradients(self, x: Array) -> Array:
        """One (sub)gradient of every objective at x, as stated in `dpcvx.model.atoms`.

        Parameters
        ----------
        x : ndarray, shape (n,) or (agents, n), or (points, n)
            One point for all, or one of each; of one agent also several points.

        Returns
        -------
        ndarray, shape (agents or points, n)
        """
        # Outside an atom's domain the result is infinite or NaN, without a warning: a warning
        # would tell something about the data.
        with np.errstate(all="ignore"):
            return self._backward(x)

    def values(self, x: Array) -> Array:
        """Values of all objectives, shape (agents or points,); x as in `gradients`."""
        with np.errstate(all="ignore"):
            found = self._root(x, self._forward(x, range(len(self._atoms)))[0])
        return np.broadcast_to(found, (_rows(self._count, x), 1))[:, 0]

    def _forward(self, x: Array, read: Container[int]) -> tuple[list[Array], list[list[Array]]]:
        """Values of the atoms that are read, and arguments of all."""
        values: list[Array] = []
        inputs: list[list[Array]] = []
        for j, (atom, arguments) in enumerate(zip(self._atoms, self._args, strict=True)):
            found = [bound(x, values) for bound in arguments]
            if atom.rule in _SEVERAL:
                found = [*np.broadcast_arrays(*found)]
            inputs.append(found)
            values.append(limited_to_numbers(_value(atom, found)) if j in read else UNREAD)
        return values, inputs

    def _backward(self, x: Array) -> Array:
        values, inputs = self._forward(x, self._read)
        out = np.zeros((_rows(self._count, x), self._n))
        cotangents: list[Array | None] = [None] * len(values)
        self._root.backward(np.ones(1), out, cotangents)
        for j in range(len(values) - 1, -1, -1):
            g = cotangents[j]
            if g is None:
                continue
            atom = self._atoms[j]
            if (j, None) in self._clips:
                g = self._clips[j, None](g)
            for k, bound in enumerate(self._args[j]):
                if bound.moving:
                    part = limited_to_numbers(_cotangent(atom, inputs[j], values[j], g, k))
                    if (j, k) in self._clips:
                        part = self._clips[j, k](part)
                    bound.backward(part, out, cotangents)
        return out

    def __repr__(self) -> str:
        return f"StackedObjective(agents={self._count}, n={self._n})"


def _rows(count: int, x: Array) -> int:
    """Of results: one per agent, or per point of one agent."""
    return max(count, x.shape[0] if x.ndim == 2 else 1)


def _value(atom: Atom, inputs: Sequence[Array]) -> Array:
    if atom.rule is MATMUL:
        records, factor = _factors(atom, inputs)
        product = np.matmul(factor, records)
        return product.reshape(*product.shape[:-2], -1)
    if atom.rule is QUAD_OVER_LIN:
        return np.sum(inputs[0] ** 2, axis=-1, keepdims=True) / inputs[1]
    if atom.rule is NORM1:
        return np.sum(np.abs(inputs[0]), axis=-1, keepdims=True)
    return atom.rule.forward(inputs, atom.data)


def _cotangent(atom: Atom, inputs: Sequence[Array], out: Array, g: Array, k: int) -> Array:
    if atom.rule is MATMUL:
        records, factor = _factors(atom, inputs)
        rows = g.reshape(*g.shape[:-1], factor.shape[-2], records.shape[-1])
        product = np.matmul(rows, np.swapaxes(records, -1, -2))
        return product.reshape(*product.shape[:-2], -1)
    if atom.rule is QUAD_OVER_LIN:
        return 2.0 * inputs[0] * (g / inputs[1])
    if atom.rule is NORM1:
        return np.sign(inputs[0]) * g
    if atom.rule in _SEVERAL:  # none of them is to be summed over agents
        shape = np.broadcast_shapes(g.shape, out.shape)
        inputs, out = [np.broadcast_to(v, shape) for v in inputs], np.broadcast_to(out, shape)
    return atom.rule.vjp(inputs, out, g, atom.data, k)


def _factors(atom: Atom, inputs: Sequence[Array]) -> tuple[Array, Array]:
    """Records and variables of a product, transposed: their columns lie one after the other."""
    rows, columns = atom.args[0].shape
    records, factor = inputs
    return (
        records.reshape(*records.shape[:-1], columns, rows),
        factor.reshape(*factor.shape[:-1], -1, columns),
    )


class _Clipped(BehindTheDoor):
    """Cotangents of all agents with each row scaled down; see `Clip`."""

    def __init__(self, clip: Clip, records: Array, product: Atom, count: int) -> None:
        rows, columns = product.args[0].shape
        apart = np.swapaxes(records.reshape(count, columns, rows), 1, 2).reshape(-1, columns)
        self._one, self._rows, self._count = clip, rows, count
        self._lengths = row_lengths(apart)
        self._several = self._for(count)

    def _for(self, count: int) -> tuple[Clip, Array]:
        """The clip of so many agents, or points of one, and the lengths of their records."""
        clip, beside = self._one, self._one.beside
        if beside is not None:
            weight, size = (np.tile(part, count) for part in (beside.weight, beside.size))
            clip = replace(clip, beside=replace(beside, weight=weight, size=size))
        return clip, np.tile(self._lengths, count // self._count)

    def __call__(self, g: Array) -> Array:
        count = _rows(self._count, g)
        clip, lengths = self._several if count == self._count else self._for(count)
        whole = np.broadcast_to(g, (count, g.shape[-1])).reshape(count, -1, self._rows)
        apart = np.swapaxes(whole, 1, 2).reshape(count * self._rows, -1)
        scaled = clip.scaled(lengths, apart).reshape(count, self._rows, -1)
        return np.swapaxes(scaled, 1, 2).reshape(count, -1)


class _Bound(BehindTheDoor):
    """A combination with its constant part summed up, a row per agent where data are in it."""

    def __init__(self, combination: Combination, data: Sequence[Array]) -> None:
        offsets = [combination.h] if combination.h.any() or not combination.G else []
        offsets += [_times(G, data[k]) for k, G in combination.G]
        with np.errstate(all="ignore"):
            self.offset = limited_to_numbers(functools.reduce(np.add, offsets))
        self._shifts = bool(self.offset.any())
        self._F, self._terms = combination.F, combination.terms
        self.moving = combination.F is not None or bool(combination.terms)

    def __call__(self, x: Array, values: Sequence[Array]) -> Array:
        if not self.moving:
            return self.offset
        parts = [] if self._F is None else [_times(self._F, x)]
        if self._shifts:
            parts.append(self.offset)
        parts += [_times(M, values[j]) for j, M in self._terms]
        return limited_to_numbers(functools.reduce(np.add, parts))

    def backward(self, g: Array, out: Array, cotangents: list[Array | None]) -> None:
        if self._F is not None:
            out += _times(self._F.T, g)
        for j, M in self._terms:
            part, known = _times(M.T, g), cotangents[j]
            cotangents[j] = part if known is None else known + part


def _times(M: Matrix, rows: Array) -> Array:
    """``M @ row`` for every row, or for one vector."""
    if isinstance(M, Identity):
        return rows
    return np.asarray(M @ rows if rows.ndim == 1 else (M @ rows.T).T)
