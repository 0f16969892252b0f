"""Bounds of single records' gradient contributions, by one interval pass forward and back.

The forward pass computes intervals of all values. The backward pass computes intervals of the
cotangents, with bounds of the l1 and l2 norms of each record's entries. It ends with bounds of the
contributions, sorted by the entries of x that they reach. A search computes no bounds: it lists the
products of records and variables, and the affine functions of the variables beside them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.atoms import interval_product
from ..model.matrices import csr, without_zeros
from ..model.normal_form import Atom, Beside, Clip, Combination, NormalForm, row_lengths
from ..model.quadratic import Term
from ..solvers.projector import Extent
from .intervals import (
    MIXED,
    PUBLIC,
    ROUNDING,
    Range,
    Unbounded,
    bounded_times,
    groups_of,
    joined,
    known_signs,
    operator_norm,
    owners,
    product,
    read_by,
    row_owner,
    row_sizes,
    selects,
    shape_of,
    transposition,
    turned,
    weighted,
)
from .record_ranges import Ranges

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class ContributionSizes:
    """Bounds of records' contributions to some entries of the gradient.

    `columns` marks these entries, and `size` bounds the norm of each record's contribution. `apart`
    bounds the norm of the difference if another admissible record replaces it at one x. `signed`
    tells, per record, whether each entry has a sign that is equal for all admissible data.
    """

    columns: NDArray[np.bool_]
    size: Array
    apart: Array
    signed: NDArray[np.bool_]

    def plus(self, other: ContributionSizes) -> ContributionSizes:
        """Return bounds of the sum of two contributions to the gradient.

        Signs of a record are unknown if both of its contributions are nonzero.
        """
        signed = np.where(self.size == 0, other.signed, self.signed)
        signed &= (self.size == 0) | (other.size == 0)
        columns = self.columns | other.columns
        return ContributionSizes(columns, self.size + other.size, self.apart + other.apart, signed)

    def removed(self, absent: Sequence[ContributionSizes]) -> Array:
        """Return a bound of the gradient's change if zeros replace a record.

        `absent` holds the bounds of a record of zeros.
        """
        met = [other.size for other in absent if (other.columns & self.columns).any()]
        return np.sum([self.size, *met], axis=0)

    def replaced(self, two: Array, p: int) -> Array:
        """Return a bound of the gradient's lp change if another record replaces a record.

        `two` bounds the l2 norm of a record's contribution.
        """
        reached = int(np.count_nonzero(self.columns))
        # Numbers of one sign differ by the larger one at most.
        angled = two * math.sqrt(min(2, reached) * (reached if p == 1 else 1))
        return np.where(self.signed, np.minimum(self.apart, angled), self.apart)


def beside_product(form: NormalForm, product: Clip, position: tuple[int, int]) -> Beside | None:
    """Return the affine part added to a product of records and variables.

    The result is None if the part is not added row by row.

    Parameters
    ----------
    form : NormalForm
    product : Clip
        The product of records and variables.
    position : tuple of int
        Indices of an atom and of its argument that contains the affine function.
    """
    takers = [u for atom in form.atoms for u in atom.args] + [form.root]
    j, k = position
    u = form.atoms[j].args[k]
    users = [other for other in takers if any(i == product.atom for i, _ in other.terms)]
    if product.turned or len(users) != 1 or users[0] is not u or len(u.terms) != 1:
        return None
    ((_, M),) = u.terms
    D, F = without_zeros(csr(M)), without_zeros(csr(u.F))
    right = form.atoms[product.atom].args[1].F
    assert right is not None
    rows = D.tocoo()
    # If D has a zero, the product does not tell which record the row of F x belongs to.
    if D.shape[0] != D.shape[1] or (rows.row != rows.col).any() or not D.diagonal().all():
        return None
    count = shape_of(form.atoms[product.atom].args[0], 0)[0]
    across = np.intersect1d(F.indices, without_zeros(csr(right)).indices)
    weight = np.abs(D.diagonal()).reshape((count, -1), order="F").max(axis=1)
    size = row_lengths(row_sizes(F, 2).reshape((count, -1), order="F"))
    return Beside(position, weight, size, apart=across.size == 0)


def total(a: Range, b: Range, atom: Atom, count: int) -> Range:
    """Return the range of the sum of two cotangents a and b of one atom, for `count` records."""
    owner = one_record(joined(a.owner, b.owner), atom)
    of_a, of_b = (norms_of(g, owner, count) for g in (a, b))
    opposite = ((a.lo >= 0).all() and (b.hi <= 0).all()) or (
        (a.hi <= 0).all() and (b.lo >= 0).all()
    )
    l2 = np.hypot(of_a[1], of_b[1]) if opposite else of_a[1] + of_b[1]
    return Range(a.lo + b.lo, a.hi + b.hi, owner, (of_a[0] + of_b[0], l2))


def norms_of(g: Range, owner: Index, count: int) -> tuple[Array, Array]:
    """Return, for each of `count` records, bounds of the l1 and l2 norms of its entries of g.

    `owner` holds the record of each entry of the range g.
    """
    owned = owner >= 0
    size = g.size[owned]
    l1 = np.bincount(owner[owned], size, count).astype(float)
    peak = float(np.max(size, initial=0.0, where=np.isfinite(size))) or 1.0
    l2 = peak * np.sqrt(np.bincount(owner[owned], (size / peak) ** 2, count))
    if g.norms is not None and np.array_equal(g.owner, owner):
        l1, l2 = np.minimum(l1, g.norms[0]), np.minimum(l2, g.norms[1])
    return l1, np.minimum(l2, l1)


def one_record(owner: Index, atom: Atom) -> Index:
    """Return the record that each entry depends on; raise `Unbounded` if one depends on several."""
    if (owner == MIXED).any():
        raise Unbounded(atom.written, "reads several records at once")
    return owner


def scaled(g: Range, factor: Range, atom: Atom, count: int, absent: bool) -> Range:
    """Return the range of a cotangent times derivatives, entry by entry.

    `g` is the range of the cotangent, and `factor` the range of the derivatives. There are `count`
    records, and with `absent` they are zeros.
    """
    # A factor that is a single number does not depend on the record. For a record of zeros all
    # factors are single numbers, and its contribution has to count.
    constant = (factor.lo == factor.hi) & np.isfinite(factor.lo) & (not absent)
    owner = joined(g.owner, np.where(constant, PUBLIC, factor.owner))
    owner = one_record(owner, atom)
    low, high = interval_product(g.lo, g.hi, factor.lo, factor.hi)
    norms = [
        [bounded_times(n, peaks_of(b, owner, count)) for n in a.norms]
        for a, b in ((g, factor), (factor, g))
        if a.norms is not None and np.array_equal(a.owner, owner)
    ]
    if not norms:
        return Range(low, high, owner)
    l1, l2 = (np.min(n, axis=0) for n in zip(*norms, strict=True))
    return Range(low, high, owner, (l1, l2))


def all_of(flags: NDArray[np.bool_], owner: Index, count: int) -> NDArray[np.bool_]:
    """Return, for each of `count` records, whether the flags of all its entries are set.

    `owner` holds the record of each entry.
    """
    return np.bincount(owner[~flags & (owner >= 0)], minlength=count) == 0


def peaks_of(g: Range, owner: Index, count: int) -> Array:
    """Return, for each of `count` records, the largest magnitude among its entries of g.

    `owner` holds the record of each entry of the range g.
    """
    peak, owned = np.zeros(count), owner >= 0
    np.maximum.at(peak, owner[owned], g.size[owned])
    return peak


def width(g: Range) -> Range:
    """Return intervals of the distance of two numbers in the intervals of `g`, with rounding."""
    width = g.hi - g.lo + ROUNDING * g.size
    return Range(np.zeros_like(width), np.where(np.isnan(width), np.inf, width), g.owner)


class Pass:
    """Bounds of every record's contribution, from intervals of values and of cotangents.

    Parameters
    ----------
    form : NormalForm
    terms : sequence of Term
        Terms of the objective in which data of the records and variables meet.
    members : sequence of int
        Indices of the private parameters whose rows form the records.
    p : {1, 2}
        Norm of the bounds.
    extent : Extent
        Set that contains x: bounds, balls and sums.
    scale : ndarray, shape (n,), or None
        Weights of the gradient's components.
    absent : bool
        Whether to bound the contribution of a record of zeros, instead of all admissible ones.
    searching : bool
        Whether the pass computes no bounds, and only fills `clips` and `places`.

    Attributes
    ----------
    parts : list of ContributionSizes
        After `run`, bounds of the contributions to disjoint sets of entries of the gradient.
    clips : list of Clip
        After a search, the products of records and variables, as clips without a limit.
    places : list of (int, int)
        After a search, indices of the atoms, and of their arguments, that contain an affine
        function of the variables beside records.
    """

    def __init__(
        self,
        form: NormalForm,
        terms: Sequence[Term],
        members: Sequence[int],
        p: int,
        extent: Extent,
        scale: Array | None,
        absent: bool,
        searching: bool = False,
    ) -> None:
        self.form, self.terms, self.members = form, terms, members
        self.count = form.private[members[0]].shape[0]
        self.p, self.absent = p, absent
        self.scale = scale
        self.needed = read_by(form, terms)
        self._given = Ranges(form, members, extent, absent)
        self.cotangents: dict[int, Range] = {}
        # Weights of order one keep squares inside floating point.
        largest = max(float(np.abs(t.weight).max(initial=0.0)) for t in terms)
        self.peak = largest or 1.0
        self.parts: list[ContributionSizes] = []
        self.undefined = False
        self.searching = searching
        self.clips: list[Clip] = []
        self.places: list[tuple[int, int]] = []

    def run(self) -> Array:
        """Return, for each record, a bound of the lp norm of its contribution to the gradient.

        Raises
        ------
        Unbounded
            If the contribution cannot be followed through an atom.
        """
        start = {id(t.atom): t.weight / self.peak for t in self.terms}
        with np.errstate(all="ignore"):
            for j in sorted(self.needed):
                atom = self.form.atoms[j]
                self._given.evaluate(j)
                if id(atom) in start:
                    w = start[id(atom)]
                    self._add(j, Range(w, w, np.full(w.size, PUBLIC)))
            for j in sorted(self.needed, reverse=True):
                if j in self.cotangents:
                    self._back(self.form.atoms[j], self.cotangents.pop(j))
        # Only the parts are needed from here on, and other passes need the memory.
        self.undefined = self._given.undefined
        self._given.clear()
        return self.norm([part.size for part in self.parts])

    def norm(self, sizes: Sequence[Array]) -> Array:
        """Return, for each record, a bound of the norm of its contribution to the gradient.

        `sizes` are bounds of the parts of the contribution in disjoint sets of entries.
        """
        with np.errstate(all="ignore"):
            table = np.array([*sizes, np.zeros(self.count)])
            total = self.peak * (table.sum(axis=0) if self.p == 1 else row_lengths(table.T))
        # If a record could leave an atom's domain, contributions have no bound.
        total = np.full(self.count, np.inf) if self.undefined else total
        return np.where(np.isnan(total), np.inf, total)

    def _take(self, F: sp.csr_array, size: Array, apart: Array, signed: NDArray[np.bool_]) -> None:
        """Store bounds of records' contributions to the gradient through an argument ``F x + h``.

        They are added to bounds in `parts` of contributions to the same entries of the gradient.

        Parameters
        ----------
        F : csr_array, shape (size of the argument, n)
            Matrix of the argument. Records contribute to the gradient in its nonzero columns.
        size, apart : ndarray, shape (count,)
            Bound per record of its contribution's norm, and of the change if another replaces it.
        signed : ndarray of bool, shape (count,)
            Whether each entry of a record's contribution has one sign for all admissible data.
        """
        columns = np.zeros(F.shape[1], dtype=bool)
        columns[F.indices[F.data != 0]] = True
        part, others = ContributionSizes(columns, size, apart, signed), []
        for other in self.parts:
            if (other.columns & part.columns).any():
                part = other.plus(part)
            else:
                others.append(other)
        self.parts = [*others, part]

    def _add(self, j: int, g: Range) -> None:
        earlier = self.cotangents.get(j)
        self.cotangents[j] = (
            g if earlier is None else total(earlier, g, self.form.atoms[j], self.count)
        )

    def _scaled(self, g: Range, factor: Range, atom: Atom) -> Range:
        return scaled(g, factor, atom, self.count, self.absent)

    def _back(self, atom: Atom, g: Range) -> None:
        if atom.rule.product == "matrix":
            self._matmul_back(atom, g)
            return
        args = self._given.arguments(atom)
        if not (self._reduced_back(atom, g, args) or self._back_by_entry(atom, g, args)):
            raise Unbounded(atom.written, "has no rule for records")

    def _back_by_entry(self, atom: Atom, g: Range, args: Sequence[Range]) -> bool:
        """Pass the cotangent g back through an entrywise atom; False if no rule is known."""
        rule = atom.rule
        if any(a.lo.size != g.lo.size for a in args):
            return False
        owner = functools.reduce(joined, [a.owner for a in args])
        slopes = None
        if rule.rows == "entry":
            slopes = rule.slopes([a.lo for a in args], [a.hi for a in args], atom.data)
        if rule.product is not None:
            factors = [*reversed(args)]
        elif slopes is not None:
            factors = [Range(lo, hi, owner) for lo, hi in slopes]
        elif self.searching:  # only the record that each entry reads counts
            anything = np.full(g.lo.size, np.inf)
            factors = [Range(-anything, anything, owner)] * len(args)
        else:
            return False
        for factor, c in zip(factors, atom.args, strict=True):
            if self._given.moves(c):
                self._into(c, self._scaled(g, factor, atom), atom)
        return True

    def _reduced_back(self, atom: Atom, g: Range, args: Sequence[Range]) -> bool:
        """Pass the cotangent g back through a reduction; False for other atoms."""
        rule, u = atom.rule, args[0]
        groups = groups_of(atom, u.lo.size)
        if groups is None:
            return False
        wide = Range(g.lo[groups], g.hi[groups], g.owner[groups])
        slopes = rule.slopes([a.lo for a in args], [a.hi for a in args], atom.data)
        if slopes is not None:
            if len(args) > 1 and not atom.args[1].constant:
                raise Unbounded(atom.written, "has no rule for records")
            if len(args) > 1 and not args[1].lo.item() > 0:
                raise Unbounded(atom.written, "divides by a number that is not positive")
            self._into(atom.args[0], self._scaled(wide, Range(*slopes[0], u.owner), atom), atom)
            return True
        weights = rule.weights(np.bincount(groups, minlength=g.lo.size), atom.data)
        if weights is None:
            return False
        least, spread = weights
        # Each derivative depends on all entries of its group.
        ones, outputs = np.ones(u.lo.size), g.lo.size
        pattern = (ones, (groups, np.arange(groups.size)))
        whole = owners(sp.csr_array(pattern, shape=(outputs, groups.size)), u.owner)
        owner = one_record(joined(g.owner, whole), atom)
        scaled_by_weights = self._scaled(wide, Range(least * ones, ones, owner[groups]), atom)
        owned = owner >= 0
        size = g.size
        l1 = np.bincount(owner[owned], (spread * size)[owned], self.count)
        l2 = np.sqrt(np.bincount(owner[owned], (size**2)[owned], self.count))
        self._into(
            atom.args[0],
            replace(scaled_by_weights, owner=owner[groups], norms=(l1, l2)),
            atom,
        )
        return True

    def _matmul_back(self, atom: Atom, g: Range) -> None:
        left, right = atom.args
        (m, k), (_, n) = shape_of(left, 0), shape_of(right, 1)
        if self._given.moves(left) and self._given.moves(right):
            raise Unbounded("@", "multiplies variables with variables")
        swapped = self._given.moves(left)
        if swapped:  # out' = right' left'
            order = transposition((m, n))
            g = Range(g.lo[order], g.hi[order], g.owner[order], g.norms)
            left, right = turned(right, (k, n)), turned(left, (m, k))
            m, n = n, m
        if right.terms or right.G or right.F is None:
            raise Unbounded("@", "multiplies records with something that is not affine in x")
        *norms, of_row = self._given.matrix_rows(left, (m, k))
        owner = np.repeat(of_row[:, None], n, axis=1).ravel(order="F")
        read = one_record(joined(g.owner, owner), atom)
        rows = row_owner(read.reshape((m, n), order="F"))
        if (rows == MIXED).any():
            raise Unbounded("@", "reads several records in one row")
        norm = norms[self.p - 1]
        F = weighted(right.F, self.scale)
        factor = operator_norm(F, self.p)
        owned = rows >= 0
        of_record = np.bincount(rows[owned], minlength=self.count)
        if self.searching:
            if of_record.max(initial=0) > 1:
                raise Unbounded("@", "holds several rows of one record")
            self.clips.append(Clip(_index(self.form, atom), swapped, math.inf, factor, 0.0))
            return
        if of_record.max(initial=0) <= 1:
            size = np.zeros(m)
            norms = norms_of(g, read, self.count)[self.p - 1]
            size[owned] = norms[rows[owned]]
        else:
            cells = g.size.reshape((m, n), order="F")
            size = cells.sum(axis=1) if self.p == 1 else row_lengths(cells)
        part = bounded_times(norm[owned], size[owned])
        # Ranges of whole records take much memory, so they are computed only if data have a sign.
        one_way = left.terms or all(self.form.private[k].sign is not None for k, _ in left.G)
        one_way = bool(one_way) and selects(F) and of_record.max(initial=0) <= 1
        signed = np.full(self.count, one_way)
        for signs in (known_signs(self._given.of(left)), known_signs(g)) if one_way else ():
            signed[rows[~signs.reshape((m, -1), order="F").all(axis=1) & owned]] = False
        size = np.asarray(factor * np.bincount(rows[owned], part, self.count), dtype=np.float64)
        self._take(F, size, 2 * size, signed)

    def _pulled(self, F: sp.csr_array, *cotangents: Range) -> list[Array]:
        """Return, for each cotangent g, a bound per record of the norm of ``F'g``.

        Only those entries of g count that depend on the record.
        """
        rows = row_sizes(F, self.p)
        pulled = []
        for g in cotangents:
            owned = g.owner >= 0
            owner, sizes = g.owner[owned], bounded_times(g.size[owned], rows[owned])
            single = np.bincount(owner, sizes, self.count)
            if np.bincount(owner, minlength=1).max() > 1 or selects(F):
                norm = norms_of(g, g.owner, self.count)[self.p - 1]
                single = np.minimum(single, bounded_times(norm, operator_norm(F, self.p)))
            elif g.norms is not None:  # records with one entry each
                norm = bounded_times(g.norms[self.p - 1][owner], rows[owned])
                single = np.minimum(single, np.bincount(owner, norm, self.count))
            pulled.append(single)
        return pulled

    def _into(self, u: Combination, g: Range, atom: Atom) -> None:
        owned = g.owner >= 0
        if u.F is not None and owned.any() and self.searching:
            position = next(k for k, other in enumerate(atom.args) if other is u)
            self.places.append((_index(self.form, atom), position))
        elif u.F is not None and owned.any():
            F = weighted(u.F, self.scale)
            # The cotangents of both records lie in one interval, and F is equal for both.
            size, apart = self._pulled(F, g, width(g))
            apart = np.minimum(2 * size, apart)
            if selects(F):
                signed = all_of(known_signs(g), g.owner, self.count)
            else:  # entries of one sign add up to that sign
                one_way = bool((F.data >= 0).all() or (F.data <= 0).all())
                signed = all_of(g.lo >= 0, g.owner, self.count) | all_of(
                    g.hi <= 0, g.owner, self.count
                )
                signed &= one_way
            self._take(F, size, apart, signed)
        for j, M in u.terms:
            if not self.form.reach(self.form.atoms[j])[0]:
                continue
            T = sp.csr_array(csr(M).T)
            lo, hi = product(T, g.lo, g.hi)
            owner = one_record(owners(T, g.owner), self.form.atoms[j])
            norms = None
            if g.norms is not None and selects(T):
                peak = float(abs(T).max()) if T.nnz else 0.0
                norms = g.norms[0] * peak, g.norms[1] * peak
            self._add(j, Range(lo, hi, owner, norms))


def _index(form: NormalForm, atom: Atom) -> int:
    return next(j for j, other in enumerate(form.atoms) if other is atom)
