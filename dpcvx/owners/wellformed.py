"""Checks that a program received as bytes is one that the compiler could have made.

The derivation of sensitivities rests on these checks: matrices have the right shapes, a combination
names an atom at most once and after its definition, and arguments and static data fit the atom's
rule. `dpcvx.owners.wire` has checked the types of all fields before.

Received values are checked to be finite numbers whose squares are finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..algorithms.program import LocalProgram
from ..model.adjacency import MirroredWithin, Rows
from ..model.canonical import ConeData
from ..model.layout import Layout
from ..model.matrices import Identity, Matrix, is_blank
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.private_constraints import PrivateConstraint
from ..model.spec import PrivateSpec
from .messages import refused

# Largest number of entries of an array, including arrays of zeros that take no memory.
LARGEST = 50_000_000
# Squares of larger numbers overflow, and so do bounds that are computed from them.
_HUGE = 1e150
_LONGEST_NAME = 200


def require_well_formed(local: LocalProgram) -> None:
    """Refuse a program that the compiler cannot have made, or that is too large for owners.

    Raises
    ------
    RefusedError
        With code "malformed" or "large".
    """
    form = local.form
    require_small(form.n, "variables")
    _require(form.n > 0, "the number of variables")
    _text(local.name)
    _specs(form.private)
    _form(form)
    _require(local.clip is None or local.clip > 0, "clip")
    _layout(local.layout)
    _require(local.layout.size == form.n, "the layout")
    names = [piece.variable for piece in local.layout.pieces]
    _require(names == list(range(len(names))), "the layout")
    _index(local.shared, form.n, "shared")
    _index(local.slots, None, "slots")
    _require(local.shared.size == local.slots.size, "slots")
    _vector(local.start, form.n, "the start")
    plain = local.constraints
    _require(not plain.P.nnz and not plain.q.any(), "the set")
    for data in (plain, local.rest, local.exact):
        if data is not None:
            _cone_program(data, form.n)
    if local.coupling is not None:
        _matrix(local.coupling, (local.coupling.shape[0], form.n), "coupling")
    for limit in local.limits:
        if isinstance(limit, PrivateConstraint):
            _limit(limit, local)
        else:
            _require(False, "a constraint with private data")
    if local.sums is not None:
        _require(local.as_written and local.sums.shape[0] > 0, "sums of data")
        _matrix(local.sums, (local.sums.shape[0], form.data_size), "sums of data")


def require_small(count: int, what: str) -> None:
    """Refuse a number of entries that would fill an owner's memory, since few bytes can state it.

    Parameters
    ----------
    count : int
        Number of entries.
    what : str
        Name of the entries in the error.

    Raises
    ------
    RefusedError
        With code "large".
    """
    if count > LARGEST:
        raise refused("large", f"{count} {what}, at most {LARGEST}")


def _require(fact: bool | np.bool_, what: str) -> None:
    if not fact:
        raise refused("malformed", what)


def _text(name: str) -> None:
    _require(0 < len(name) <= _LONGEST_NAME and name.isprintable(), "a name")


def _size(shape: Sequence[int], what: str) -> int:
    _require(len(shape) <= 2 and all(n >= 0 for n in shape), what)
    for count in (*shape, math.prod(shape)):  # an empty array may have a long dimension
        require_small(count, f"entries of {what}")
    return math.prod(shape)


def _vector(v: NDArray[np.float64], n: int, what: str) -> None:
    _require(v.shape == (n,), what)
    # A check of zeros that take no memory would allocate memory for them.
    _require(is_blank(v) or (np.isfinite(v).all() and not (np.abs(v) > _HUGE).any()), what)


def _index(v: NDArray[np.intp], limit: int | None, what: str) -> None:
    _require(v.ndim == 1 and (v >= 0).all() and all_differ(v), what)
    _require(limit is None or (v < limit).all(), what)


def all_differ(v: NDArray[np.integer]) -> bool:
    """Return whether no number occurs twice in a vector.

    Sorting is faster here than `numpy.unique`, whose hash takes a time that depends on the numbers.
    """
    ordered = np.sort(v)
    return bool((ordered[1:] > ordered[:-1]).all())


def _matrix(
    M: Matrix | sp.csc_array, shape: tuple[int, int], what: str, largest: float = _HUGE
) -> None:
    if isinstance(M, Identity):
        _require(M.size >= 0 and M.shape == shape, what)
        return
    _require(tuple(M.shape) == shape, what)
    if isinstance(M, np.ndarray) and is_blank(M):
        return
    entries = M.data if isinstance(M, (sp.csr_array, sp.csc_array)) else np.ravel(M)
    _require(np.isfinite(entries).all() and not (np.abs(entries) > largest).any(), what)
    if isinstance(M, (sp.csr_array, sp.csc_array)):
        _require(_once(M), what)


def _once(M: sp.csr_array | sp.csc_array) -> bool:
    """Return whether a sparse matrix stores no entry twice."""
    minor = M.shape[1] if M.format == "csr" else M.shape[0]
    major = np.repeat(np.arange(M.indptr.size - 1, dtype=np.int64), np.diff(M.indptr))
    places = major * max(1, minor) + M.indices
    return bool((np.diff(places) > 0).all()) or all_differ(places)


def _specs(private: Sequence[PrivateSpec]) -> None:
    names = [spec.name for spec in private]
    _require(len(set(names)) == len(names), "names of private data")
    for spec in private:
        _text(spec.name)
        _require(_size(spec.shape, "a shape") > 0, "a shape")
        adjacency = spec.adjacency
        mirrored = isinstance(adjacency, MirroredWithin)
        square = len(spec.shape) == 2 and spec.shape[0] == spec.shape[1]
        _require(square or not (mirrored or spec.hermitian), "a symmetric matrix")
        _require(mirrored or spec.hermitian or not spec.psd, "a semidefinite matrix")
        _require(bool(spec.shape) or not isinstance(spec.adjacency, Rows), "records")
        _require(not spec.psd or spec.sign is None, "a sign")
        lower, upper = spec.bounds or (0.0, 1.0)
        _require(lower < upper, "bounds of data")
        plain = spec.bounds is None and spec.kind == "real"
        if isinstance(adjacency, MirroredWithin) and not spec.psd:
            plain = plain or (adjacency.mirror == 1 and spec.kind != "simplex")
        _require(plain or not (mirrored or spec.is_complex), "a symmetric matrix")
        _require(not spec.is_complex or spec.sign is None, "a sign")


def _form(form: NormalForm) -> None:
    sizes: list[int] = []
    for atom in form.atoms:
        _atom(atom, form, sizes)
        sizes.append(_size(atom.shape, "an atom's shape"))
    _require(_combination(form.root, form, sizes) == 1, "the root")


def _combination(u: Combination, form: NormalForm, sizes: Sequence[int]) -> int:
    """Check an affine combination of atoms; return its size. `sizes` are the atoms' sizes."""
    m = _size(u.shape, "a shape")
    if u.F is not None:
        _matrix(u.F, (m, form.n), "F")
    _vector(u.h, m, "h")
    _pairs(u.G, m, [spec.size for spec in form.private], "G")
    _pairs(u.terms, m, sizes, "terms")
    return m


def _pairs(pairs: Iterable[tuple[int, Matrix]], m: int, sizes: Sequence[int], what: str) -> None:
    keys: set[int] = set()
    for key, M in pairs:
        _require(0 <= key < len(sizes) and key not in keys, what)
        keys.add(key)
        _matrix(M, (m, sizes[key]), what)


def _atom(atom: Atom, form: NormalForm, sizes: Sequence[int]) -> None:
    rule, count = atom.rule, len(atom.args)
    _require(count == rule.arguments if rule.arguments is not None else count > 0, "arguments")
    for argument in atom.args:
        _combination(argument, form, sizes)
    _size(atom.shape, "an atom's shape")
    shapes = [argument.shape for argument in atom.args]
    if what := rule.misfit(atom.data, shapes):
        raise refused("malformed", what)
    _require(all(map(math.prod, shapes)), "an argument without entries")
    try:
        # Only the shape is computed: few bytes can state zeros that take hours to multiply.
        shape = rule.shape(shapes, atom.data)
    except ValueError:
        raise refused("malformed", "arguments that do not fit") from None
    _require(shape == atom.shape, "an atom's shape")


def _layout(layout: Layout) -> None:
    offset = 0
    for piece in layout.pieces:
        _size(piece.shape, "a variable")
        _index(piece.entries, piece.size, "entries of a variable")
        _require(piece.entries.size > 0 and (np.diff(piece.entries) > 0).all(), "entries")
        _require(piece.offset == offset, "the layout")
        offset = piece.stop


def _limit(limit: PrivateConstraint, local: LocalProgram) -> None:
    """Check a constraint with private data: its variables, rows, and dependence on the data."""
    _layout(limit.layout)
    held = {piece.variable: piece for piece in local.layout.pieces}
    for piece in limit.layout.pieces:
        _require(piece.variable in held, "a private constraint")
        inside = np.isin(piece.entries, held[piece.variable].entries)
        _require(piece.shape == held[piece.variable].shape and inside.all(), "its variables")
    _cone_program(limit.data, limit.layout.size)
    size = sum(spec.size for spec in local.form.private)
    m = limit.data.b.size
    _matrix(limit.offsets, (m, size), "a private constraint")
    _matrix(limit.slopes, (m * size, limit.data.A.shape[1]), "a private constraint")
    row = 0
    for part in limit.parts:
        _require(row <= part.first and part.size > 0, "parts of a private constraint")
        row = part.first + part.size
    _require(row <= m, "parts of a private constraint")


def _cone_program(data: ConeData, n: int) -> None:
    m, N = data.A.shape
    require_small(max(m, N), "rows or columns of a set")
    _require(data.n == n <= N, "columns of a set")
    _matrix(data.A, (m, N), "rows of a set")
    _matrix(data.P, (N, N), "a quadratic part")
    _vector(data.q, N, "a linear part")
    _vector(data.b, m, "right sides of a set")
    cones = data.cones
    counts = [cones.zero, cones.nonneg, cones.exp, *cones.soc, *cones.psd]
    _require(all(0 <= count <= LARGEST for count in counts), "cones")
    _require(all(count > 0 for count in (*cones.soc, *cones.psd)), "cones")
    exponents = [*cones.power, *(a for exponents_of in cones.power_nd for a in exponents_of)]
    _require(all(0 < a < 1 for a in exponents) and all(cones.power_nd), "exponents")
    rows = cones.zero + cones.nonneg + 3 * (cones.exp + len(cones.power)) + sum(cones.soc)
    rows += sum(k * (k + 1) // 2 for k in cones.psd) + sum(len(a) + 1 for a in cones.power_nd)
    _require(rows == m, "rows of cones")
    if data.P.nnz:
        _require(abs(data.P - data.P.T).max() == 0, "a quadratic part")


# Squares of larger numbers overflow.
HUGE = 1e150


def are_numbers(message: object) -> bool:
    """Return whether all floats of a message, at any depth, are finite and have finite squares.

    Parameters
    ----------
    message : object
        Record, or a value that a field of a record may have.
    """
    floats = (array for array in _arrays(message) if array.dtype.kind == "f")
    return all(bool((np.abs(array) < HUGE).all()) for array in floats)


def _arrays(value: object) -> Iterator[NDArray[Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, float):
        yield np.array([value])
    elif sp.issparse(value):
        yield cast(Any, value).data
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _arrays(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name))
