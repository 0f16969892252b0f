r"""Stacking of similar atoms: a Python loop over records gets the form of vectorized code.

A loop writes :math:`\sum_i \phi(x_i' w - y_i)` as one product and one atom per record. Bounds of
second derivatives are added over atoms, which is loose for one atom per record. Here atoms of one
rule that read different entries of the same data or atoms are stacked, level by level: :math:`x_i'
w` are the rows of :math:`X w`, and :math:`\phi` works row by row. Values stay equal for all
variables and data, and the decision depends on the structure of the form alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .adjacency import Rows
from .atoms import Rule, rule_named
from .matrices import (
    Array,
    Identity,
    Matrix,
    as_array,
    compact,
    csr,
    has_entries,
    without_zeros,
    zeros,
)
from .normal_form import Atom, Combination, NormalForm, digest_of
from .rewriting import is_data, is_identity, picked, tidy

Index = NDArray[np.intp]

# Coefficients are equal if they differ by at most this part of the largest.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class _Rows:
    """An atom's argument, in the form of a matrix that can be stacked below similar arguments."""

    u: Combination
    rows: int
    width: int


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of a stacked atom that replace one of several similar atoms.

    If the atom is a weighted sum of these rows, `weight` is the weight of each. Otherwise `weight`
    is None, and the rows are the atom's entries.
    """

    atom: int
    rule: Rule
    data: tuple[object, ...]
    stacked: tuple[_Rows, ...]
    common: tuple[Combination, ...] = ()
    weight: float | None = None
    columns: int = 1  # number of columns of the value

    def key(self) -> Hashable:
        """Return a key that is equal for atoms that may be stacked into one."""
        held = [(rows.width, _read(rows.u)) for rows in self.stacked]
        return (self.rule.name, self.data, *held, *map(digest_of, self.common))


def gathered(form: NormalForm) -> NormalForm:
    """Return an equal form with similar atoms stacked; the form itself if none are similar.

    Parameters
    ----------
    form : NormalForm
    """
    terms = tuple((j, tidy(M)) for j, M in form.root.terms)
    form = replace(form, root=replace(form.root, terms=terms))
    form = _used(_beside(_multiplied_out(form)))
    names = [(atom.rule.name, atom.data) for atom in form.atoms]
    if len(set(names)) < len(names) or len({name for name, _ in names}) < len(names):
        form = _Gathering(form).form()
    return _with_scores(form)


def _uses(form: NormalForm) -> dict[int, int]:
    """Return, by index, how many combinations of the form read each atom."""
    uses: dict[int, int] = {}
    for u in (form.root, *(u for atom in form.atoms for u in atom.args)):
        for j, _ in u.terms:
            uses[j] = uses.get(j, 0) + 1
    return uses


def _multiplied_out(form: NormalForm) -> NormalForm:
    """Return a form with ``X @ w`` in place of ``cp.sum(cp.multiply(X, w), axis=1)``."""
    uses, atoms = _uses(form), list(form.atoms)

    def moved(u: Combination) -> Combination:
        terms: list[tuple[int, Matrix]] = []
        for j, M in u.terms:
            entries = form.atoms[j].rule.product == "entry" and uses[j] == 1
            product = _summed_product(form, form.atoms[j], csr(M)) if entries else None
            if product is not None:
                atoms[j], M = product
            terms.append((j, M))
        return replace(u, terms=tuple(terms))

    root = moved(form.root)
    args = {j: tuple(map(moved, atom.args)) for j, atom in enumerate(form.atoms)}
    same = (atoms[j] is form.atoms[j] for j in args)
    pairs = zip(atoms, args.values(), same, strict=True)
    atoms_now = tuple(replace(atom, args=new) if still else atom for atom, new, still in pairs)
    return replace(form, atoms=atoms_now, root=root)


def _summed_product(form: NormalForm, atom: Atom, M: sp.csr_array) -> tuple[Atom, Matrix] | None:
    """Return ``M (a * F x)``, for a product `atom`, as a matrix product and a matrix, or None.

    The product is multiplied with the returned matrix.

    Each row of the value has to read every occurring entry of x exactly once.
    """
    data, other = atom.args
    if not is_data(data) or len(data.G) != 1 or has_entries(data.h) or other.F is None:
        return None
    ((k, G),) = data.G
    apart = data.h.size == other.h.size and not (other.G or other.terms or has_entries(other.h))
    if not apart or not isinstance(form.private[k].adjacency, Rows):
        return None
    F, (rows, size) = csr(other.F), M.shape
    if (np.diff(F.indptr) != 1).any() or (F.data != 1).any():
        return None
    columns, which = np.unique(F.indices, return_inverse=True)
    width = columns.size
    each = np.repeat(np.arange(rows), np.diff(M.indptr))
    cell = each + rows * which[M.indices]
    full = M.nnz == size == rows * width and np.unique(cell).size == size
    if width < 2 or not full or np.unique(M.indices).size < size or (M.data != M.data[0]).any():
        return None
    order = np.empty(size, dtype=np.intp)
    order[cell] = M.indices
    left = Combination((rows, width), None, ((k, tidy(sp.csr_array(csr(G)[order]))),), zeros(size))
    pick = sp.csr_array((np.ones(width), (np.arange(width), columns)), shape=(width, form.n))
    right = Combination((width,), pick, (), zeros(width))
    product = Atom(rule_named("matmul"), (), (left, right), (rows,))
    return product, tidy(sp.csr_array(float(M.data[0]) * sp.eye_array(rows, format="csr")))


def _beside(form: NormalForm) -> NormalForm:
    """Return a form with products of different columns of the same records joined into one.

    ``X1 @ u + X2 @ v`` becomes ``[X1, X2] @ [u, v]``.
    """
    candidates = ((j, _as_product(form, atom)) for j, atom in enumerate(form.atoms))
    products = {j: atom for j, atom in candidates if atom is not None}
    if len(products) < 2:
        return form
    uses, atoms = _uses(form), list(form.atoms)

    def joined(u: Combination) -> Combination:
        groups: dict[Hashable, list[int]] = {}
        for j, M in u.terms:
            if j in products and uses[j] == 1:
                left, right = products[j].args
                inner = right.shape[0]
                shape = left.h.size // inner, right.shape[1:], len(left.shape)
                part = csr(M)
                entries = part.indptr.tobytes(), part.indices.tobytes(), part.data.tobytes()
                groups.setdefault((left.G[0][0], *shape, *entries), []).append(j)
        gone = set[int]()
        for group in groups.values():
            joint = _side_by_side([products[j] for j in group]) if len(group) > 1 else None
            if joint is not None:
                atoms[group[0]] = joint
                gone |= set(group[1:])
        return replace(u, terms=tuple((j, M) for j, M in u.terms if j not in gone))

    root = joined(form.root)
    moved = {j: tuple(map(joined, atom.args)) for j, atom in enumerate(form.atoms)}
    # Products read no atoms, so that their arguments stay.
    rest = (a if j in products else replace(a, args=moved[j]) for j, a in enumerate(atoms))
    return replace(form, atoms=tuple(rest), root=root)


def _with_scores(form: NormalForm) -> NormalForm:
    """Return a form in which all readers of the scores ``X @ w + b`` share one atom for them.

    Losses such as ``cp.exp(s) - cp.multiply(y, s)`` read the scores s twice. Contributions of a
    record through the shared atom add up before a bound is derived, and one clip limits them all.
    Quadratic losses keep their form.
    """
    uses = _uses(form)
    sums: dict[bytes, Combination] = {}
    readers: dict[bytes, list[tuple[int, int, float]]] = {}
    for j, atom in enumerate(form.atoms):
        for k, u in enumerate(atom.args):
            several = u.F is not None and len(u.terms) == 1 and uses[u.terms[0][0]] > 1
            scores = _scores_of(form, u) if several else None
            if scores is not None:
                key = digest_of(scores[0])
                sums.setdefault(key, scores[0])
                readers.setdefault(key, []).append((j, k, scores[1]))
    shared: dict[tuple[int, int], tuple[bytes, float]] = {}
    for key, places in readers.items():
        rules = [(form.atoms[j].rule, form.atoms[j].data) for j, _, _ in places]
        bent = any(rule.product is None and not rule.of_squares(data) for rule, data in rules)
        added = _without_scores(form.root, sums[key]) is not None
        if bent and len(places) + added > 1:
            shared |= {(j, k): (key, factor) for j, k, factor in places}
    if not shared:
        return form
    atoms: list[Atom] = []
    number: dict[int, int] = {}  # new index of each atom
    position: dict[bytes, int] = {}  # index of each shared atom

    def moved(u: Combination) -> Combination:
        return replace(u, terms=tuple((number[j], M) for j, M in u.terms))

    for j, atom in enumerate(form.atoms):
        args = list(map(moved, atom.args))
        for k, u in enumerate(atom.args):
            if (j, k) not in shared:
                continue
            (key, factor), size = shared[j, k], u.h.size
            if key not in position:
                position[key] = len(atoms)
                atoms.append(Atom(rule_named("power"), (1,), (moved(sums[key]),), sums[key].shape))
            scale = Identity(size) if factor == 1 else factor * sp.eye_array(size, format="csr")
            args[k] = replace(u, F=None, terms=((position[key], scale),))
        number[j] = len(atoms)
        atoms.append(replace(atom, args=tuple(args)))
    root, terms = form.root, list[tuple[int, Matrix]]()
    for key, index in position.items():
        split = _without_scores(root, sums[key])
        if split is not None:
            root, M = split
            terms.append((index, M))
    root = moved(root)
    return replace(form, atoms=tuple(atoms), root=replace(root, terms=(*root.terms, *terms)))


def _without_scores(u: Combination, scores: Combination) -> tuple[Combination, Matrix] | None:
    """Return a combination without the summand ``M s`` of scores s, and the matrix M; or None.

    A rest of the affine part that is as small as rounding errors is dropped.
    """
    ((j, _),) = scores.terms
    M = next((M for i, M in u.terms if i == j), None)
    if M is None or u.F is None or scores.F is None:
        return None
    added = without_zeros(csr(M @ scores.F))
    rest = sp.csr_array(csr(u.F) - added)
    rest.data[np.abs(rest.data) <= _ROUNDING * np.abs(added.data).max(initial=0.0)] = 0.0
    rest = without_zeros(rest)
    if np.isin(added.indices, rest.indices).any():
        return None
    terms = tuple((i, N) for i, N in u.terms if i != j)
    return replace(u, F=rest if rest.nnz else None, terms=terms), M


def _scores_of(form: NormalForm, u: Combination) -> tuple[Combination, float] | None:
    """Return scores ``X @ w + F x`` that a combination reads, and their factor; or None.

    The combination may also hold data and constants. Quantile losses read scores times 0.9 and
    times -0.1, for example.
    """
    ((j, M),) = u.terms
    if form.atoms[j].rule.product != "matrix" or not form.reach(form.atoms[j])[1]:
        return None
    factor = 1.0 if isinstance(M, Identity) else float(csr(M).diagonal().max(initial=0.0))
    factor = factor or float(csr(M).diagonal().min(initial=0.0))
    if not factor or not (isinstance(M, Identity) or is_identity(csr(M) / factor)):
        return None
    size, F = u.h.size, csr(u.F)
    scores = Combination(u.shape, F / factor, (), zeros(size), ((j, Identity(size)),))
    return scores, factor


def _as_product(form: NormalForm, atom: Atom) -> Atom | None:
    """Return an atom as a product of one private matrix and an affine function of x, or None."""
    if atom.rule.product is None:
        return None
    left, right = atom.args
    moving = right.F is not None and not right.G and not right.terms
    if not (is_data(left) and len(left.G) == 1 and not has_entries(left.h) and moving):
        return None
    if atom.rule.product == "matrix":
        return atom
    records = isinstance(form.private[left.G[0][0]].adjacency, Rows)
    number = _one_variable(right)
    if not records or left.shape != atom.shape or len(atom.shape) > 1 or number is None:
        return None
    column = replace(left, shape=(left.h.size, 1) if atom.shape else (1,))
    return Atom(rule_named("matmul"), (), (column, number), atom.shape)


def _one_variable(u: Combination) -> Combination | None:
    """Return the one entry of x that equals all entries of a combination, or None.

    The entry is returned as a combination.
    """
    if u.F is None or has_entries(u.h):
        return None
    F = csr(u.F)
    if (np.diff(F.indptr) != 1).any() or (F.data != 1).any():
        return None
    same = bool((F.indices == F.indices[0]).all())
    return picked(u, np.zeros(1, dtype=np.intp), (1,)) if same else None


def _side_by_side(atoms: Sequence[Atom]) -> Atom | None:
    """Join products ``X1 @ u``, ``X2 @ v`` into one product ``[X1, X2] @ [u, v]``.

    The result is None if two of the atoms read the same entry of the data.
    """
    lefts, rights = ([atom.args[k] for atom in atoms] for k in (0, 1))
    read = [np.unique(csr(u.G[0][1]).indices) for u in lefts]
    if np.unique(np.concatenate(read)).size < sum(columns.size for columns in read):
        return None
    order = np.argsort([columns[0] if columns.size else 0 for columns in read], kind="stable")
    inner = [u.shape[0] for u in rights]
    rows, across = lefts[0].h.size // inner[0], rights[0].h.size // inner[0]
    G = sp.csr_array(sp.vstack([csr(lefts[k].G[0][1]) for k in order]))
    width = sum(inner)
    shape = (rows, width) if len(lefts[0].shape) == 2 else (width,)
    left = Combination(shape, None, ((lefts[0].G[0][0], tidy(G)),), zeros(rows * width))
    # Column-major: columns c of all parts are stacked.
    starts = np.cumsum([0, *(inner[k] for k in order)])
    positions = np.concatenate(
        [
            (start + np.arange(inner[k]) + width * np.arange(across)[:, np.newaxis]).ravel()
            for k, start in zip(order, starts, strict=False)
        ]
    )
    back = np.argsort(positions)
    F = sp.csr_array(sp.csr_array(sp.vstack([csr(rights[k].F) for k in order]))[back])
    h = np.concatenate([rights[k].h for k in order])[back]
    right = Combination((width, *rights[0].shape[1:]), None, (), h if h.any() else zeros(h.size))
    return replace(atoms[0], args=(left, replace(right, F=F)))


def _used(form: NormalForm) -> NormalForm:
    """Return a normal form without the atoms that neither its root nor another atom reads."""
    read, reached = {j for j, _ in form.root.terms}, set[int]()
    for j in range(len(form.atoms) - 1, -1, -1):
        if j in read:
            reached.add(j)
            read |= {i for u in form.atoms[j].args for i, _ in u.terms}
    if len(reached) == len(form.atoms):
        return form
    number = {j: k for k, j in enumerate(sorted(reached))}

    def moved(u: Combination) -> Combination:
        return replace(u, terms=tuple((number[j], M) for j, M in u.terms))

    atoms = [form.atoms[j] for j in number]
    used = tuple(replace(atom, args=tuple(map(moved, atom.args))) for atom in atoms)
    return replace(form, atoms=used, root=moved(form.root))


class _Gathering:
    """Builder of a normal form with similar atoms stacked, level by level."""

    def __init__(self, form: NormalForm) -> None:
        self._old = form
        self._atoms: list[Atom] = []
        # Per atom of the form: index of the new atom, positions of the entries in it, and weight.
        self._place: dict[int, tuple[int, Index, float | None]] = {}
        self._private: list[bool] = []  # per new atom, whether it depends on private data
        self._sums: set[int] = set()  # stacked atoms that only the root reads
        inner = {j for a in form.atoms for u in a.args for j, _ in u.terms}
        self._outer = {j for j, _ in form.root.terms} - inner

    def form(self) -> NormalForm:
        """Return the normal form with stacked atoms."""
        for level in self._levels():
            groups: dict[Hashable, list[_Part]] = {}
            atoms = {
                j: replace(a, args=tuple(map(self._moved, a.args)))
                for j, a in ((j, self._old.atoms[j]) for j in level)
            }
            for j, atom in atoms.items():
                part = self._part(j, atom)
                groups.setdefault(j if part is None else part.key(), []).append(
                    part or _Part(j, atom.rule, atom.data, ())
                )
            for parts in groups.values():
                if len(parts) == 1 or not _apart(parts):
                    for part in parts:
                        atom = atoms[part.atom]
                        self._place[part.atom] = len(self._atoms), np.arange(_size(atom)), None
                        self._add(atom)
                else:
                    self._stack(parts)
        if len(self._atoms) == len(self._old.atoms):
            return self._old
        root = self._moved(self._old.root)
        for j in sorted(self._sums):
            root = self._summed(root, j)
        return replace(self._old, atoms=tuple(self._atoms), root=root)

    def _levels(self) -> Iterator[list[int]]:
        depth: list[int] = []
        for atom in self._old.atoms:
            depth.append(1 + max((depth[j] for u in atom.args for j, _ in u.terms), default=-1))
        for level in range(max(depth, default=-1) + 1):
            yield [j for j, d in enumerate(depth) if d == level]

    def _add(self, atom: Atom) -> None:
        self._atoms.append(atom)
        self._private.append(any(map(self._holds_data, atom.args)))

    def _holds_data(self, u: Combination) -> bool:
        return bool(u.G) or any(self._private[j] for j, _ in u.terms)

    def _moved(self, u: Combination) -> Combination:
        """Return a combination that refers to the stacked atoms instead of the original ones."""
        if not u.terms:
            return u
        entries: dict[int, list[tuple[Index, Index, Array]]] = {}
        same: dict[int, Matrix] = {}
        for j, M in u.terms:
            new, where, weight = self._place[j]
            if weight is None and where.size == _size(self._atoms[new]) and _in_order(where):
                same[new] = M
            if weight is not None:  # a sum of entries of the new atom
                number = as_array(M)[:, 0] * weight
                rows = np.repeat(np.arange(number.size), where.size)
                columns, values = np.tile(where, number.size), np.repeat(number, where.size)
            else:
                part = csr(M).tocoo()
                rows, columns, values = part.row, where[part.col], part.data
            entries.setdefault(new, []).append((rows, columns, values))
        terms = tuple(
            (
                new,
                same[new]
                if new in same and len(parts) == 1
                else _matrix(parts, (u.h.size, _size(self._atoms[new]))),
            )
            for new, parts in entries.items()
        )
        return replace(u, terms=terms)

    def _part(self, j: int, atom: Atom) -> _Part | None:
        """Return atom j as rows that may be stacked below rows of similar atoms; None if not."""
        if not any(map(self._holds_data, atom.args)):
            return None
        rule = atom.rule
        if rule.product == "matrix":
            return self._product(j, atom)
        last = atom.args[1].h if len(atom.args) == 2 and atom.args[1].constant else None
        summed = rule.summed(atom.data, last) if j in self._outer else None
        if summed is not None:
            name, data, weight = summed
            return _Part(j, rule_named(name), data, (_rows_of(atom.args[0]),), weight=weight)
        size = _size(atom)
        if rule.rows == "entry":
            if any(u.shape != atom.shape and u.h.size != 1 for u in atom.args):
                return None
            return _Part(j, rule, atom.data, tuple(_rows_of(u, size) for u in atom.args))
        if rule.rows == "line" and rule.has_axis and len(atom.args) == 1:
            (u,) = atom.args
            if size == 1 or rule.by_row(atom.data, [u.shape], atom.shape):
                rows = _Rows(u, size, u.h.size // size)
                return _Part(j, rule, (*atom.data[:-2], 1, False), (rows,))
        return None

    def _product(self, j: int, atom: Atom) -> _Part | None:
        """Return atom j as rows that may be stacked; None if it is no product of records.

        The other factor is common to all records.
        """
        left, right = atom.args
        if is_data(left) and not is_data(right):
            inner = right.shape[0]
            rows = _Rows(left, left.h.size // inner, inner)
            return _Part(j, atom.rule, (), (rows,), (right,), columns=right.h.size // inner)
        if is_data(right) and not is_data(left) and len(right.shape) == 1:
            turned = _turned(left)
            rows = _Rows(right, 1, right.h.size)
            columns = left.h.size // right.h.size
            return _Part(j, atom.rule, (), (rows,), (turned,), columns=columns)
        return None

    def _stack(self, parts: Sequence[_Part]) -> None:
        first, counts = parts[0], [part.stacked[0].rows for part in parts]
        starts = np.cumsum([0, *counts])
        count, positions = int(starts[-1]), _order(parts)
        stacked = [
            _joined(
                [part.stacked[k] for part in parts], starts, positions, first.rule.rows == "entry"
            )
            for k in range(len(first.stacked))
        ]
        shape = (count,)
        if first.common:
            (other,) = first.common
            shape = (count, *other.shape[1:])
            stacked.append(other)
        index = len(self._atoms)
        self._add(Atom(first.rule, first.data, tuple(stacked), shape))
        for part, start, rows in zip(parts, starts, counts, strict=False):
            here = positions[start : start + rows]
            where = (here + count * np.arange(part.columns)[:, np.newaxis]).ravel()
            self._place[part.atom] = index, where, part.weight
        if all(part.atom in self._outer for part in parts):
            self._sums.add(index)

    def _summed(self, root: Combination, j: int) -> Combination:
        """Return the root with atom j replaced by its sum, if all entries of j have one weight."""
        atom, weight = self._atoms[j], as_array(dict(root.terms)[j]).ravel()
        total = atom.rule.sum_of(atom.data)
        if total is None or not (weight == weight[0]).all():
            return root
        name, data, last = total
        numbers = [Combination((), None, (), np.array([value])) for value in last]
        self._atoms[j] = Atom(rule_named(name), data, (*atom.args, *numbers), ())
        number = tidy(sp.csr_array([[weight[0]]]))
        return replace(root, terms=tuple((i, number if i == j else M) for i, M in root.terms))


def _size(atom: Atom) -> int:
    return int(np.prod(atom.shape))


def _in_order(where: Index) -> bool:
    return np.array_equal(where, np.arange(where.size))


def _rows_of(u: Combination, size: int | None = None) -> _Rows:
    """Return the entries of a combination as rows of width 1.

    A single number is repeated `size` times.
    """
    return _Rows(u, u.h.size if size is None else size, 1)


def _read(u: Combination) -> Hashable:
    """Return a key of all that a combination depends on: x (or not), data and atoms."""
    names = frozenset(k for k, _ in u.G), frozenset(j for j, _ in u.terms)
    return (u.F is not None, *names)


def _turned(u: Combination) -> Combination:
    """Return the transpose of a combination that is a matrix; a vector is returned unchanged."""
    if len(u.shape) < 2:
        return u
    order = np.arange(u.h.size).reshape(u.shape, order="F").ravel()

    def rows(M: Matrix) -> Matrix:
        return compact(csr(M)[order])

    return Combination(
        u.shape[::-1],
        None if u.F is None else rows(u.F),
        tuple((k, rows(G)) for k, G in u.G),
        u.h[order] if has_entries(u.h) else u.h,
        tuple((j, rows(M)) for j, M in u.terms),
    )


def _entries(rows: _Rows, M: Matrix) -> tuple[Index, Index, Index, Array]:
    """Return the position in `rows`, the column in M and the value of each nonzero of M.

    A position is a row and a column.
    """
    part = csr(M).tocoo()
    filled = part.data != 0
    position, columns, values = part.row[filled], part.col[filled], part.data[filled]
    if rows.u.h.size < rows.rows * rows.width:  # a number that is repeated
        copies = rows.rows
        copy = np.repeat(np.arange(copies), position.size)
        return copy, 0 * copy, np.tile(columns, copies), np.tile(values, copies)
    return position % rows.rows, position // rows.rows, columns, values


def _sources(u: Combination) -> list[tuple[Hashable, Matrix]]:
    """Return the atoms and private data that a combination reads, each with its matrix."""
    terms = sorted(u.terms, key=lambda pair: pair[0])
    return [
        *((("atom", j), M) for j, M in terms),
        *((("data", k), G) for k, G in sorted(u.G, key=lambda pair: pair[0])),
    ]


def _apart(parts: Sequence[_Part]) -> bool:
    """Return whether no two of the atoms read the same entry of data, or of another atom."""
    for k in range(len(parts[0].stacked)):
        seen: dict[Hashable, list[Index]] = {}
        for part in parts:
            for source, M in _sources(part.stacked[k].u):
                columns = _entries(part.stacked[k], M)[2]
                seen.setdefault(source, []).append(np.unique(columns))
        for each in seen.values():
            columns = np.concatenate(each)
            if np.unique(columns).size < columns.size:
                return False
    return True


def _order(parts: Sequence[_Part]) -> Index:
    """Return each row's position in the stack, in the order of the first entries they read."""
    keys: list[Index] = []
    for part in parts:
        read = next(rows for rows in part.stacked if _sources(rows.u))
        key = np.full(read.rows, np.iinfo(np.intp).max)
        position, _, columns, _ = _entries(read, _sources(read.u)[0][1])
        np.minimum.at(key, position, columns)
        keys.append(key)
    order = np.argsort(np.concatenate(keys), kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(order.size)
    return position


def _joined(each: Sequence[_Rows], starts: Index, positions: Index, flat: bool) -> Combination:
    """Stack the rows of combinations, each at its position in the stack.

    The rows of combination i have the positions from index ``starts[i]`` on. The result is a vector
    if `flat`, else a matrix.
    """
    count, width = positions.size, each[0].width
    parts: dict[Hashable, list[tuple[Index, Index, Array]]] = {}
    sizes: dict[Hashable, int] = {}
    h = np.zeros((count, width))
    for rows, start in zip(each, starts, strict=False):
        u, here = rows.u, positions[start : start + rows.rows]
        if has_entries(u.h):
            whole = u.h.size == rows.rows * width
            h[here] = u.h.reshape((rows.rows, width), order="F") if whole else u.h
        for source, M in [*([] if u.F is None else [("x", u.F)]), *_sources(u)]:
            row, column, columns, values = _entries(rows, M)
            parts.setdefault(source, []).append((here[row] + count * column, columns, values))
            sizes[source] = M.shape[1]
    matrices = {key: _matrix(part, (count * width, sizes[key])) for key, part in parts.items()}
    constant = h.ravel(order="F") if h.any() else zeros(count * width)
    shape = (count,) if flat else (count, width)
    if flat and not matrices and (constant == constant[0]).all():
        return Combination((), None, (), np.array([constant[0]]))
    pairs = [(key, M) for key, M in matrices.items() if isinstance(key, tuple)]
    return Combination(
        shape,
        csr(matrices["x"]) if "x" in matrices else None,
        tuple((key[1], M) for key, M in pairs if key[0] == "data"),
        constant,
        tuple((key[1], M) for key, M in pairs if key[0] == "atom"),
    )


def _matrix(parts: Sequence[tuple[Index, Index, Array]], shape: tuple[int, int]) -> Matrix:
    rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    kind = np.int32 if max(*shape, rows.size) < 2**31 else np.int64
    places = rows.astype(kind), columns.astype(kind)
    return tidy(sp.csr_array(sp.coo_array((values, places), shape=shape)))
