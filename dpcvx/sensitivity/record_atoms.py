"""What is known of atoms on intervals, and of shapes of their arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.matrices import csr
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.quadratic import Term

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Unbounded(Exception):
    """An atom through which one record's contribution cannot be followed."""

    def __init__(self, atom: str, why: str) -> None:
        super().__init__(atom, why)
        self.atom, self.why = atom, why


def shape_of(u: Combination, side: int) -> tuple[int, int]:
    """Shape of a factor of a matrix product."""
    if len(u.shape) == 2:
        return u.shape[0], u.shape[1]
    return (1, u.h.size) if side == 0 else (u.h.size, 1)


def transposition(shape: tuple[int, int]) -> Index:
    """Positions in a column-major matrix of the entries of its transpose."""
    return np.arange(shape[0] * shape[1]).reshape(shape, order="F").T.ravel(order="F")


def turned(u: Combination, shape: tuple[int, int]) -> Combination:
    """The transpose of a matrix of this shape."""
    order = transposition(shape)
    return Combination(
        shape[::-1],
        None if u.F is None else csr(u.F)[order],
        tuple((k, csr(G)[order]) for k, G in u.G),
        u.h[order],
        tuple((j, csr(M)[order]) for j, M in u.terms),
    )


def groups_of(atom: Atom, size: int) -> Index | None:
    """For each entry of the argument of a reduction, the entry of the value it goes into."""
    if atom.rule.rows != "line":
        return None
    axis, keepdims = atom.data[-2:]
    shape = atom.args[0].shape
    numbers = np.arange(max(1, math.prod(atom.shape))).reshape(atom.shape, order="F")
    if axis is None:
        return np.zeros(size, dtype=np.intp)
    wide = numbers if keepdims else np.expand_dims(numbers, axis)  # type: ignore[arg-type]
    return np.broadcast_to(wide, shape).ravel(order="F")


def read_by(form: NormalForm, terms: Sequence[Term]) -> set[int]:
    """Indices of the atoms of some terms and of all that they are evaluated from."""
    index = {id(atom): j for j, atom in enumerate(form.atoms)}
    found: set[int] = set()
    left = [index[id(term.atom)] for term in terms]
    while left:
        j = left.pop()
        if j not in found:
            found.add(j)
            left += [k for argument in form.atoms[j].args for k, _ in argument.terms]
    return found
