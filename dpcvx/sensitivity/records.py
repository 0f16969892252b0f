r"""Bounds of one record's contribution to a gradient: intervals through the objective and back.

For private matrices whose rows are records, the objective is a sum of terms that each read one
record, plus public terms. The gradient's change is then at most the contribution of the old record
plus the contribution of the new one. A contribution is bounded for every admissible record and
every point of the agent's set W (or at one point) by evaluating the normal form on intervals, and
differentiating it backwards with, per record, intervals of the cotangents and bounds of their l1
and l2 norms:

* an elementwise atom multiplies a cotangent by its derivative on the argument's interval;
* ``log_sum_exp`` and ``max`` over one record distribute it by weights that are nonnegative and sum
  to one, so that l1 and l2 norms do not grow (the softmax of a score minus its label has l2 norm at
  most sqrt(2), because the two parts have opposite signs);
* a product of records with variables, ``X @ Z(x)``, gives record i the contribution
  :math:`X_i \otimes c_i`, whose l1 and l2 norms are the products of the factors' norms.

Parts that reach different entries of x, such as weights and an intercept, are orthogonal, so the
squares of their l2 norms add up. If every entry of a contribution has a known sign (X and the
derivative of the loss have one each), the inner product of two contributions a and b is at least 0,
and :math:`\|a - b\|_2^2 \le \|a\|_2^2 + \|b\|_2^2`: a replaced record moves the gradient by at most
sqrt(2) times the largest contribution, not by twice it.

If a cotangent c reaches x by a public matrix F, as for an intercept, the contributions of two
records differ by :math:`F'(c_1 - c_2)`, where :math:`|c_1 - c_2|` is at most the width of c's
interval. The width is 1 for the pinball loss ``cp.maximum(q * r, (q - 1) * r)`` of r = b - y, whose
derivatives are q and q - 1.

A term that reads two records at once in a nonlinear atom is refused.

`Lines` finds records whose bounds cover the bounds of all other records, if every record has a
public row of its own. Let the variables enter a record's terms by :math:`r'x` alone, with one
public row r per record, and let all else be equal for all records. The bound then follows from the
interval of :math:`r'x`, from the norms of r, and from the signs of its entries. It does not fall if
the interval widens or the norms grow: interval arithmetic is monotone in its arguments, and wider
intervals have fewer known signs. So a record needs no bound of its own for the largest of all
bounds if its interval lies in another record's, its norms are no larger, and its signs are equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.matrices import has_entries
from ..model.normal_form import Clip, NormalForm
from ..model.quadratic import Term, straight
from ..model.record_rows import RecordRows, record_rows
from ..solvers.projector import Extent
from .intervals import Unbounded, product, read_by
from .record_pass import Pass, beside_product
from .record_ranges import Ranges

Array = NDArray[np.float64]
Index = NDArray[np.intp]


# Number of records that are kept without comparisons, and largest number of comparisons.
_FEW, _TURNS = 1024, 32
# Number of rows that are processed at once.
_COMPARED = 1 << 14


@dataclass(frozen=True, eq=False)
class Lines:
    """Public rows r, one per record, with the norms and signs that bounds depend on.

    Attributes
    ----------
    rows : csr_array, shape (count, n)
    norms : tuple of ndarray, shape (count,)
        l1 and l2 norms of the rows, in units of the largest entry.
    signs : ndarray of int, shape (count,)
        Sum of 1 for rows with positive entries, 2 with negative, and 4 with several entries.
    """

    rows: sp.csr_array
    norms: tuple[Array, Array]
    signs: NDArray[np.int8]

    @staticmethod
    def of(rows: sp.csr_array) -> Lines:
        """Return the public rows of a matrix with one row per record, with norms and signs."""
        count = rows.shape[0]
        up, down, l2 = np.zeros(count), np.zeros(count), np.zeros(count)
        unit = 1 / (
            max(rows.data.max(initial=0.0), -rows.data.min(initial=0.0)) or 1.0
        )  # squares remain numbers
        for first in range(0, count, _COMPARED):
            inside = slice(first, first + _COMPARED)
            ends = rows.indptr[first : first + _COMPARED + 1]
            values = rows.data[ends[0] : ends[-1]] * unit
            sums = _summing(ends)
            up[inside], down[inside] = sums(np.maximum(values, 0.0)), sums(-np.minimum(values, 0.0))
            l2[inside] = np.sqrt(sums(values * values))
        l1 = up + down
        signs = (up > 0).astype(np.int8)
        signs |= (down > 0).astype(np.int8) << 1
        signs |= (np.diff(rows.indptr) > 1).astype(np.int8) << 2
        return Lines(rows, (l1, l2), signs)

    def leading(self, extent: Extent) -> Index:
        """Return records, in ascending order, whose bounds cover the bounds of all others.

        Parameters
        ----------
        extent : Extent
            Set that contains x: bounds, balls and sums.
        """
        if _alike(-extent.lower, extent.upper):  # then |r'x| is at most the l1 norm times it
            return self._longest
        low, high = product(self.rows, extent.lower, extent.upper)
        return self._covering(*self.norms, -low, high)

    @cached_property
    def _longest(self) -> Index:
        """Records whose bounds cover all others if the extent of x is a cube around 0."""
        return self._covering(*self.norms)

    def _covering(self, *sizes: Array) -> Index:
        """Return records that cover all others.

        Every other record has the signs of one of them, and at most its sizes.
        """
        covering: list[Index] = []
        for sign in np.flatnonzero(np.bincount(self.signs)):
            left = np.flatnonzero(self.signs == sign)
            for _ in range(_TURNS):
                if left.size <= _FEW:
                    break
                left_sizes = (
                    sizes if left.size == self.signs.size else [size[left] for size in sizes]
                )
                first = np.argmax(functools.reduce(np.add, map(_graded, left_sizes)))
                covering.append(left[first : first + 1])
                left = left[~functools.reduce(np.logical_and, (s <= s[first] for s in left_sizes))]
            covering.append(left)
        return np.unique(np.concatenate(covering))

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _summing(ends: Index) -> Callable[[Array], Array]:
    """Return a function that sums stored values by row, given where each row ends."""
    starts, ones = ends - ends[0], np.ones(1)
    columns = np.zeros(starts[-1], dtype=ends.dtype)
    shape = (ends.size - 1, 1)
    return lambda values: sp.csr_array((values, columns, starts), shape=shape) @ ones


def _alike(below: Array, above: Array) -> bool:
    """Return whether the intervals [-below, above] all equal the same symmetric interval."""
    return bool((below == above[0]).all() and (above == above[0]).all())


def _graded(size: Array) -> Array:
    """Return numbers divided by their largest finite magnitude, clipped to [-1, 1]."""
    largest = max(float(size.max(initial=0.0)), -float(size.min(initial=0.0)))
    if not math.isfinite(largest):
        largest = float(np.max(np.abs(size), initial=0.0, where=np.isfinite(size)))
    grades = size / (largest or 1.0)
    return np.clip(grades, -1.0, 1.0, out=grades)


# Number of records from which records with equal public coefficients are bounded only once.
_MANY = 1024
# Number of records that are bounded at once: intermediate numbers stay in the cache.
_BLOCK = 1 << 15


@dataclass(frozen=True, eq=False)
class Contributions:
    """Terms of an objective that read records, with bounds of a record's contribution.

    The contribution is the part of the gradient that depends on one record.

    Attributes
    ----------
    form : NormalForm
    terms : tuple of Term
        Terms of the objective in which data of the records and variables meet.
    members : tuple of int
        Indices of the private parameters whose rows form the records.
    """

    form: NormalForm
    terms: tuple[Term, ...]
    members: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Code of the terms' atoms as users write them, such as ``cp.norm``."""
        return tuple(dict.fromkeys(term.atom.written for term in self.terms))

    @cached_property
    def scores(self) -> int | None:
        """Number of scores of one record that enter its losses nonlinearly; None if unknown.

        Scores are the arguments of nonlinear atoms that are affine in x for all data, such as
        ``X @ w``. Second derivatives of a record's losses have at most that rank.
        """
        if self.rows is None:
            return None
        form, seen, total = self.form, set[int](), 0
        places = {id(atom): j for j, atom in enumerate(form.atoms)}
        due = [places[id(term.atom)] for term in self.terms]
        while due:
            j = due.pop()
            atom = form.atoms[j]
            if j in seen or straight(form, atom):
                continue
            seen.add(j)
            for u in atom.args:
                if not form.reach(replace(atom, args=(u,)))[0]:
                    continue
                inner = [i for i, _ in u.terms if form.reach(form.atoms[i])[0]]
                bent = [i for i in inner if not straight(form, form.atoms[i])]
                due += bent
                if u.F is not None or len(bent) < len(inner):
                    size = math.prod(u.shape)
                    total += size if size % self.count else size // self.count
        return total

    @property
    def smooth(self) -> bool:
        """Return whether all atoms between the records' scores and the losses are smooth."""
        reached = [atom for atom in self.form.atoms if all(map(bool, self.form.reach(atom)))]
        return all(atom.rule.smooth for atom in reached)

    @property
    def has_edge(self) -> bool:
        """Return whether derivatives of an atom are unbounded near the end of its domain."""
        return any(self.form.atoms[j].rule.has_edge(self.form.atoms[j].data) for j in self._read)

    @property
    def _read(self) -> list[int]:
        return sorted(read_by(self.form, self.terms))

    def beyond_edge(self, extent: Extent) -> str | None:
        """Return the name of an atom with a domain that some admissible record may leave, or None.

        Parameters
        ----------
        extent : Extent
            Set that contains x: bounds, balls and sums.
        """
        given = Ranges(self.form, self.members, extent, absent=False)
        for j in self._read:
            atom = self.form.atoms[j]
            given.evaluate(j)
            if not (atom.rule.has_edge(atom.data) and all(self.form.reach(atom))):
                continue
            ranges = given.arguments(atom)
            ends = [r.lo for r in ranges], [r.hi for r in ranges]
            slopes = atom.rule.slopes(*ends, atom.data)
            if slopes is None or not np.isfinite(slopes).all():
                return atom.written
        return None

    @property
    def count(self) -> int:
        """Number of records that the terms read."""
        return self.form.private[self.members[0]].shape[0]

    def bound(
        self, p: int, extent: Extent, scale: Array | None = None, *, absent: bool = False
    ) -> Array:
        """Return, for each record, a bound of the lp norm of its contribution to the gradient.

        Parameters
        ----------
        p : {1, 2}
        extent : Extent
            Set that contains x: bounds, balls and sums.
        scale : ndarray, shape (n,), optional
            Weights of the gradient's components.
        absent : bool
            Whether to bound the contribution of a record of zeros instead.

        Raises
        ------
        Unbounded
            If no bound of the contribution is known for an atom.
        """
        if self.alike is not None:
            few, kind = self.alike
            return _spread(few.bound(p, extent, scale, absent=absent), kind)
        if self.blocks:
            return np.concatenate([b.bound(p, extent, scale, absent=absent) for b in self.blocks])
        return self._pass(p, extent, scale, absent).run()

    def changed(
        self, p: int, extent: Extent, scale: Array | None = None, *, removed: bool
    ) -> Array:
        """Return, for each record, a bound of the gradient's lp change if the record changes.

        Parameters
        ----------
        p, extent, scale
            See `bound`.
        removed : bool
            Whether zeros replace the record, instead of any other admissible record.
        """
        if self.alike is not None:
            few, kind = self.alike
            return _spread(few.changed(p, extent, scale, removed=removed), kind)
        if self.blocks:
            walked = [b.changed(p, extent, scale, removed=removed) for b in self.blocks]
            return np.concatenate(walked)
        walked = self._pass(p, extent, scale)
        walked.run()
        parts = twos = walked.parts
        if p == 1 and any(part.signed.any() for part in parts):
            again = self._pass(2, extent, scale)
            again.run()
            twos = again.parts
        sizes = [a.replaced(b.size, p) for a, b in zip(parts, twos, strict=True)]
        if removed:
            absent = self._pass(p, extent, scale, absent=True)
            absent.run()
            walked.undefined |= absent.undefined
            removed_parts = [part.removed(absent.parts) for part in parts]
            sizes = [np.minimum(a, b) for a, b in zip(sizes, removed_parts, strict=True)]
        return walked.norm(sizes)

    def largest(
        self, p: int, extent: Extent, scale: Array | None = None, *, absent: bool = False
    ) -> float:
        """Return the largest bound of a record's gradient contribution.

        See `bound` for the parameters.
        """
        return largest_of(self._leading(extent, scale).bound(p, extent, scale, absent=absent))

    def largest_change(
        self, p: int, extent: Extent, scale: Array | None = None, *, removed: bool
    ) -> float:
        """Return the largest bound of the gradient's change by one record.

        See `changed` for the parameters.
        """
        return largest_of(self._leading(extent, scale).changed(p, extent, scale, removed=removed))

    def _leading(self, extent: Extent, scale: Array | None) -> Contributions:
        """Return contributions of records whose bounds cover all others.

        If such records are unknown, the result covers all records.
        """
        if scale is not None or self.lines is None or self.rows is None or extent.sums:
            return self  # intervals are compared for boxes alone
        return self._of(self.rows, self.lines.leading(extent))

    @cached_property
    def lines(self) -> Lines | None:
        """Public rows of the records, if many records differ in nothing else; else None."""
        if self.count <= _BLOCK or self.alike is not None or self.rows is None:
            return None
        line = self.rows.line()
        return None if line is None else Lines.of(line)

    @cached_property
    def alike(self) -> tuple[Contributions, Index] | None:
        """Contributions of one record of each kind, and the kind of every record, or None.

        Records of one kind have equal public coefficients, and the result is None for too many
        kinds. Bounds hold for all admissible data, so they are equal for records of one kind.
        """
        if self.count < _MANY or self.rows is None:
            return None
        kinds = self.rows.kinds()
        if kinds is None or kinds[0].size == self.count:
            return None
        first, kind = kinds
        return self._of(self.rows, first), kind

    @cached_property
    def blocks(self) -> tuple[Contributions, ...]:
        """Contributions of blocks of consecutive records that fit the cache.

        The result is empty for few records.

        No record's contribution depends on other records.
        """
        if self.count <= _BLOCK or self.rows is None:
            return ()
        some = (np.arange(k, min(k + _BLOCK, self.count)) for k in range(0, self.count, _BLOCK))
        return tuple(self._of(self.rows, rows) for rows in some)

    @cached_property
    def rows(self) -> RecordRows | None:
        """Return the terms as functions of single records; None if a term mixes records."""
        return record_rows(self.form, self.terms, self.count)

    def _of(self, rows: RecordRows, some: Index) -> Contributions:
        form, terms, _ = rows.of(some)
        return Contributions(form, tuple(terms), self.members)

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def part_with(self, record: int) -> tuple[NormalForm, int]:
        """Return a form with the terms of one record, and the record's index in that form.

        For few records, the form itself is returned.
        """
        if self.count <= _BLOCK or self.rows is None:
            return self.form, record
        return self._of(self.rows, np.array([record])).form, 0

    def clipping(self, bound: float) -> Clip:
        """Return the clip that limits every record's contribution to an l2 norm of `bound`.

        Raises
        ------
        Unbounded
            If records reach the gradient by several products with variables, or by none.
        """
        free = np.full(self.form.n, np.inf)
        search = self._pass(2, Extent(-free, free), searching=True)
        search.run()
        products, sums = search.clips, search.places
        if not products:
            written = self.form.atoms[sums[0][0]].written
            raise Unbounded(written, "reads records outside a product X @ w")
        beside = beside_product(self.form, products[0], sums[0]) if sums else None
        if len(products) > 1 or len(sums) > 1 or (sums and beside is None):
            raise Unbounded("@", "is not the only atom through which records reach the gradient")
        (clip,) = products
        records = self.form.atoms[clip.atom].args[1 if clip.turned else 0]
        plain = not has_entries(records.h) and not records.terms and beside is None
        absent = 0.0 if plain else bound
        return replace(clip, bound=bound, absent=absent, beside=beside)

    def _pass(
        self,
        p: int,
        extent: Extent,
        scale: Array | None = None,
        absent: bool = False,
        searching: bool = False,
    ) -> Pass:
        return Pass(self.form, self.terms, self.members, p, extent, scale, absent, searching)


def largest_of(values: Array) -> float:
    """Return the maximum of an array; infinity if one of its values is NaN."""
    return math.inf if np.isnan(values).any() else float(np.max(values))


def _spread(bounds: Array, kind: Index) -> Array:
    """Return a bound for every record from the bounds of the kinds of records."""
    return np.broadcast_to(bounds, kind.shape) if bounds.size == 1 else bounds[kind]
