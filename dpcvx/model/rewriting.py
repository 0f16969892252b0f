r"""Rewriting of atoms such that bounds are tighter, by identities that hold for all values.

Labels that scale records are moved out of the product, :math:`(\mathrm{diag}(y) X) w = y \circ (X
w)`. Public columns next to records, such as an intercept, :math:`[X, 1] (w, b) = X w + b`, and
factors that are one number are moved out, too. Reductions of one or two entries become entrywise
atoms: :math:`\log(e^0 + e^z)` is the logistic function of z. The choice of what to rewrite depends
only on the positions of zeros and on public constants.

`total` and `image` return sums and linear images of combinations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .atoms import Rule, rule_named
from .matrices import (
    Array,
    Identity,
    Matrix,
    as_array,
    compact,
    csr,
    has_entries,
    is_blank,
    without_zeros,
    zeros,
)
from .normal_form import Atom, Combination

Index = NDArray[np.intp]
Make = Callable[[Rule, tuple[Any, ...], tuple[Combination, ...], tuple[int, ...]], Combination]


def rewritten(atom: Atom, atoms: Sequence[Atom], make: Make) -> Combination | None:
    """Return the value of an atom, rewritten for tighter bounds, or None without an identity.

    Parameters
    ----------
    atom : Atom
    atoms : sequence of Atom
        Atoms that its arguments refer to by index.
    make : callable
        Function that returns the value of an atom, perhaps rewritten, given its rule, data,
        arguments and shape.
    """
    rule = atom.rule
    if rule.product is not None and not any(u.constant for u in atom.args):
        return _unscaled(atom, make) or (
            _entries(atom, make) if rule.product == "entry" else _product(atom, atoms, make)
        )
    if rule.has_axis and len(atom.args) == 1:
        return _few(atom, make)
    return None


def is_data(u: Combination) -> bool:
    """Return whether a combination consists of private data and constants."""
    return bool(u.G) and u.F is None and not u.terms


def picked(u: Combination, rows: Index, shape: tuple[int, ...]) -> Combination:
    """Return some entries of a combination, as a combination of a given shape.

    Parameters
    ----------
    u : Combination
    rows : ndarray of int
        Positions of the entries, column-major.
    shape : tuple of int
        Shape of the returned expression.
    """

    def some(pairs: Sequence[tuple[int, Matrix]]) -> tuple[tuple[int, Matrix], ...]:
        cut = ((k, sp.csr_array(csr(M)[rows])) for k, M in pairs)
        return tuple((k, tidy(M)) for k, M in cut if M.count_nonzero())

    F = None if u.F is None else sp.csr_array(csr(u.F)[rows])
    moving = F is not None and F.count_nonzero() > 0
    h = u.h[rows] if has_entries(u.h) else zeros(rows.size)
    return Combination(shape, F if moving else None, some(u.G), h, some(u.terms))


def _unscaled(atom: Atom, make: Make) -> Combination | None:
    """Return a product with the numbers that scale its factors moved out of it, or None.

    `make` builds the value of an atom.
    """
    factor, args = 1.0, list(atom.args)
    for k, u in enumerate(args):
        number = _factor(u)
        if number != 1:
            scale = sp.eye_array(u.h.size, format="csr") / number
            args[k] = image(u.shape, zeros(u.h.size), [(sp.csr_array(scale), u)])
            args[k] = _tidied(args[k])
            factor *= number
    if all(a is b for a, b in zip(args, atom.args, strict=True)):
        return None
    inner = make(atom.rule, atom.data, tuple(args), atom.shape)
    size = inner.h.size
    scale = sp.csr_array(factor * sp.eye_array(size, format="csr"))
    return _tidied(image(atom.shape, zeros(size), [(scale, inner)]))


def _tidied(u: Combination) -> Combination:
    """Return a combination with `Identity` for identity matrices, and no zero matrices."""
    G, terms = (
        tuple((k, tidy(M)) for k, M in pairs if csr(M).count_nonzero()) for pairs in (u.G, u.terms)
    )
    return replace(u, G=G, terms=terms)


def _factor(u: Combination) -> float:
    """Return the common number that multiplies all parts of a combination; 1 if there is none."""
    sources = [M for _, M in (*u.G, *u.terms)]
    if u.F is not None or has_entries(u.h) or len(sources) != 1:
        return 1.0
    if isinstance(sources[0], Identity):  # not expanded: data of records have millions of entries
        return 1.0
    values = csr(sources[0]).data
    values = values[values != 0]
    same = values.size > 0 and bool((values == values[0]).all())
    # By other numbers than powers of two, entries would be rounded.
    exact = same and np.frexp(abs(values[0]))[0] == 0.5
    return float(values[0]) if exact else 1.0


def _entries(atom: Atom, make: Make) -> Combination | None:
    """Return an entrywise product with its factors exchanged, so that data come first.

    The result is None if data come first already. The function `make` builds the product.
    """
    first, other = atom.args
    if is_data(other) and not is_data(first):
        return make(atom.rule, atom.data, (other, first), atom.shape)
    return None


def _product(atom: Atom, atoms: Sequence[Atom], make: Make) -> Combination | None:
    """Return a matrix product with row scales and public columns moved out of it, or None.

    `make` builds the value of an atom.
    """
    left, right = atom.args
    inner = right.shape[0]
    rows = left.h.size // inner
    pair = _scaled_rows(left, atoms, rows, inner) or _diagonal(left, right, rows)
    if pair is None:
        return _split(atom, rows, inner, make) if is_data(left) else None
    rule, column, rest = pair
    value = right if rest is None else make(atom.rule, atom.data, (rest, right), atom.shape)
    if len(left.shape) == 2:
        flat = (rows,) if len(right.shape) == 1 else (rows, 1)
        column = picked(column, np.arange(rows), flat)
    return make(rule, (), (column, value), atom.shape)


def _scaled_rows(
    u: Combination, atoms: Sequence[Atom], rows: int, columns: int
) -> tuple[Rule, Combination, Combination | None] | None:
    """Return the product's rule, y and X if u is ``cp.multiply(y[:, None], X)``, else None."""
    if u.F is not None or u.G or has_entries(u.h) or len(u.terms) != 1:
        return None
    ((j, M),) = u.terms
    atom = atoms[j]
    if atom.rule.product != "entry" or atom.shape != u.shape or not _is_whole(M):
        return None
    for k, factor in enumerate(atom.args):
        rest = atom.args[1 - k]
        if is_data(factor) and rest.shape == u.shape and factor.shape in (u.shape, (rows, 1)):
            column = _column(factor, rows, columns)
            if column is not None:
                return atom.rule, column, rest
    return None


def _is_whole(M: Matrix) -> bool:
    part = csr(M)
    return part.shape[0] == part.shape[1] and (part - sp.eye_array(part.shape[0])).nnz == 0


def _column(u: Combination, rows: int, columns: int) -> Combination | None:
    """Return one column of a combination whose columns are equal, or None.

    For a single row the column is a number.
    """
    shape = (rows,) if rows > 1 else ()
    if u.h.size == rows:
        return picked(u, np.arange(rows), shape)
    if any(isinstance(G, Identity) for _, G in u.G):
        return None
    first = picked(u, np.arange(rows), shape)
    for M in (G for _, G in u.G):
        part = csr(M)
        top = part[:rows]
        if any((part[c * rows : (c + 1) * rows] - top).count_nonzero() for c in range(1, columns)):
            return None
    h = u.h.reshape((columns, rows))
    return first if (h == h[0]).all() else None


def _diagonal(
    left: Combination, right: Combination, rows: int
) -> tuple[Rule, Combination, None] | None:
    """Return a rule and the diagonal d for a product with a private diagonal matrix, or None.

    The rule multiplies d with the other factor, entry by entry.
    """
    if not is_data(left) or rows < 2 or left.shape != (rows, rows):
        return None
    if any(isinstance(G, Identity) for _, G in left.G):
        return None
    where = np.arange(rows) * (rows + 1)
    held = np.zeros(left.h.size, dtype=bool)
    for _, G in left.G:
        part = csr(G)
        held[np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))[part.data != 0]] = True
    held |= left.h != 0
    if held.sum() != held[where].sum():
        return None
    return rule_named("multiply"), picked(left, where, (rows,)), None


def _split(atom: Atom, rows: int, inner: int, make: Make) -> Combination | None:
    """Split a product into private columns times variables, and an affine remainder, or None."""
    left, right = atom.args
    if right.F is None or right.G or right.terms:
        return None
    private = np.zeros(inner, dtype=bool)
    for _, G in left.G:
        if isinstance(G, Identity):
            private[:] = True
            break
        part = csr(G)
        read = np.repeat(np.arange(part.shape[0]), np.diff(part.indptr))[part.data != 0]
        private[read // rows] = True
    F = csr(right.F)
    moving = np.zeros(inner, dtype=bool)
    moving[np.repeat(np.arange(F.shape[0]), np.diff(F.indptr))[F.data != 0] % inner] = True
    split = private & moving
    if split.all() or not split.any():
        return None
    columns = np.flatnonzero(split)
    across = right.h.size // inner
    A = picked(
        left,
        (np.arange(rows) + rows * columns[:, np.newaxis]).ravel(),
        (rows, columns.size) if len(left.shape) == 2 else (columns.size,),
    )
    B = picked(
        right,
        (columns + inner * np.arange(across)[:, np.newaxis]).ravel(),
        (columns.size, *right.shape[1:]),
    )
    pieces = [make(atom.rule, atom.data, (A, B), atom.shape)]
    shapes = [left.shape, right.shape]
    fixed = right.h.reshape(right.shape, order="F").copy()
    fixed[moving] = 0
    if fixed.any():
        M = without_zeros(atom.rule.linear_map(0, fixed, shapes))
        pieces.append(image(atom.shape, zeros(M.shape[0]), [(M, left)]))
    public = left.h.reshape((rows, inner), order="F").copy()
    public[:, split | ~moving] = 0
    if public.any():
        C = public if len(left.shape) == 2 else public[0]
        M = without_zeros(atom.rule.linear_map(1, C, shapes))
        h = right.h.reshape((inner, across), order="F").copy()
        h[~moving] = 0
        free = Combination(right.shape, right.F, (), h.ravel(order="F"))
        pieces.append(image(atom.shape, zeros(M.shape[0]), [(M, free)]))
    return _tidied(total(atom.shape, pieces))


def _few(atom: Atom, make: Make) -> Combination | None:
    """Return a reduction of one or two entries as an entrywise atom, or None.

    `make` builds the value of an atom from rule, data, arguments and shape.
    """
    (u,), size = atom.args, int(np.prod(atom.shape))
    count = u.h.size // size if size else 0
    axis = atom.data[-2]
    if count not in (1, 2) or isinstance(axis, tuple):
        return None
    places = np.arange(u.h.size).reshape(u.shape, order="F")
    lines = places.reshape((1, -1), order="F") if axis is None else np.moveaxis(places, axis, -1)
    parts = [
        picked(u, np.ravel(lines[..., k], order="F"), atom.shape) for k in range(lines.shape[-1])
    ]
    name = atom.rule.of_one
    if count == 1 and name is not None:
        return make(rule_named(name), (), (*parts,), atom.shape) if name else parts[0]
    if count == 1:
        return None
    if not any(u.constant for u in parts):
        return None
    if atom.rule.of_two is not None:
        return make(rule_named(atom.rule.of_two), (), tuple(parts), atom.shape)
    for fixed, other in (parts, parts[::-1]):
        if atom.rule.above_constant is not None and fixed.constant and not other.constant:
            lowered = Combination(atom.shape, other.F, other.G, other.h - fixed.h, other.terms)
            value = make(rule_named(atom.rule.above_constant), (), (lowered,), atom.shape)
            constant = Combination(atom.shape, None, (), fixed.h)
            return total(atom.shape, [value, constant])
    return None


def _plus(a: Matrix, b: Matrix) -> Matrix:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return as_array(a) + as_array(b)
    return compact(csr(a) + csr(b))


def _merged(each: Iterable[Sequence[tuple[int, Matrix]]]) -> tuple[tuple[int, Matrix], ...]:
    merged: dict[int, Matrix] = {}
    for key, M in (pair for pairs in each for pair in pairs):
        merged[key] = _plus(merged[key], M) if key in merged else M
    return tuple(merged.items())


def _added(a: Array, b: Array) -> Array:
    return b if is_blank(a) else a if is_blank(b) else a + b


def total(shape: tuple[int, ...], args: Sequence[Combination]) -> Combination:
    """Return the sum of combinations of equal size, as a combination of a given shape."""
    G = _merged(u.G for u in args)
    terms = _merged(u.terms for u in args)
    moving = [u.F for u in args if u.F is not None]
    F = functools.reduce(_plus, moving) if moving else None
    return Combination(shape, F, G, functools.reduce(_added, (u.h for u in args)), terms)


def image(
    shape: tuple[int, ...], offset: Array, pieces: Sequence[tuple[Matrix, Combination]]
) -> Combination:
    """Return ``offset + sum_i M_i u_i`` for pairs (M_i, u_i) in `pieces`, as one combination."""
    images = [
        Combination(
            shape,
            None if u.F is None else compact(M if is_identity(u.F) else M @ u.F),
            tuple((k, compact(M @ G)) for k, G in u.G),
            M @ u.h if has_entries(u.h) else zeros(M.shape[0]),
            tuple((j, compact(M @ T)) for j, T in u.terms),
        )
        for M, u in pieces
    ]
    return total(shape, [Combination(shape, None, (), offset), *images])


def tidy(M: Matrix) -> Matrix:
    """Return a matrix as `Identity` if it is an identity, else in the form of `compact`."""
    unit = isinstance(M, np.ndarray) and M.shape == (1, 1) and M[0, 0] == 1
    return Identity(M.shape[0]) if unit or is_identity(M) else compact(M)


def is_identity(F: Matrix) -> bool:
    """Return whether F is an identity matrix, so products with it change nothing."""
    if not sp.issparse(F) or F.shape[0] != F.shape[1]:
        return False
    rows, diagonal = csr(F), np.arange(F.shape[0])
    if rows.nnz != diagonal.size:
        return False
    placed = np.array_equal(rows.indptr[:-1], diagonal) and np.array_equal(rows.indices, diagonal)
    return placed and bool(np.all(rows.data == 1))
