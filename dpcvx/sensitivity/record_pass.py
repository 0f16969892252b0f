"""One pass of intervals through an objective and back, for what single records contribute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.adjacency import Rows
from ..model.atoms import (
    ABS,
    ENTR,
    EXP,
    HUBER,
    LOG,
    LOG1P,
    LOG_SUM_EXP,
    LOGISTIC,
    MATMUL,
    MAX,
    MAXIMUM,
    MIN,
    MINIMUM,
    MULTIPLY,
    NORM1,
    PNORM,
    POWER,
    QUAD_OVER_LIN,
    Rule,
)
from ..model.matrices import Identity, Matrix, csr, has_entries, without_zeros
from ..model.normal_form import UNREAD, Atom, Beside, Combination, NormalForm, row_lengths
from ..model.quadratic import Term
from ..model.spec import PrivateSpec
from ..solvers.projector import Extent
from .intervals import (
    MIXED,
    PUBLIC,
    Range,
    bounded_times,
    joined,
    known_signs,
    owners,
    product,
    row_owner,
    row_sizes,
    times,
    widened,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]


_ROUNDING = 1e-9
# Where the domains of concave atoms begin; their slopes grow without bound towards it.
_DOMAIN: dict[Rule, float] = {LOG: 0.0, LOG1P: -1.0, ENTR: 0.0}
# Elementwise atoms with a monotone derivative, and where their value turns (None: monotone).
_CONVEX: dict[Rule, float | None] = {EXP: None, LOGISTIC: None, HUBER: 0.0, ABS: 0.0}
_CONCAVE: dict[Rule, float | None] = {LOG: None, LOG1P: None, ENTR: math.exp(-1)}
# Their values are numbers wherever their arguments are, also at infinity.
_TOTAL = (ABS, EXP, LOGISTIC)
# They choose one of their arguments, entry by entry.
_CHOOSING = (MAXIMUM, MINIMUM)
_DUAL = {1: math.inf, 2: 2, math.inf: 1}


class Unbounded(Exception):
    """An atom through which one record's contribution cannot be followed."""

    def __init__(self, atom: str, why: str) -> None:
        super().__init__(atom, why)
        self.atom, self.why = atom, why


@dataclass(frozen=True, eq=False)
class _MatrixRows:
    """Bounds of the l1, l2 and largest-entry norms of a matrix's rows, and the record of each."""

    one: Array
    two: Array
    peak: Array
    owner: Index


@dataclass(frozen=True, eq=False)
class Part:
    """Of the records' contributions: which entries of x it reaches, and per record its norm.

    `apart` bounds the norm of the difference of two of them at one x. `signed` tells, per record,
    whether each entry has a sign that no admissible data can turn.
    """

    columns: NDArray[np.bool_]
    size: Array
    apart: Array
    signed: NDArray[np.bool_]

    def plus(self, other: Part) -> Part:
        """Their sum; nothing is known of the signs where both contribute."""
        signed = np.where(self.size == 0, other.signed, self.signed)
        signed &= (self.size == 0) | (other.size == 0)
        columns = self.columns | other.columns
        return Part(columns, self.size + other.size, self.apart + other.apart, signed)

    def removed(self, absent: Sequence[Part]) -> Array:
        """Bound of the difference to the parts of a record of zeros."""
        met = [other.size for other in absent if (other.columns & self.columns).any()]
        return np.sum([self.size, *met], axis=0)

    def replaced(self, two: Array, p: int) -> Array:
        """Bound of the difference of two such contributions, given their l2 norms as well."""
        reached = int(np.count_nonzero(self.columns))
        # Numbers of one sign differ by the larger one at most.
        angled = two * math.sqrt(min(2, reached) * (reached if p == 1 else 1))
        return np.where(self.signed, np.minimum(self.apart, angled), self.apart)


@dataclass(frozen=True)
class Site:
    """Where records meet variables.

    Attributes
    ----------
    atom : int
        A product of records and variables, or what takes an affine function of variables that
        stands next to records.
    argument : int or None
        As which argument it takes that; None for a product.
    turned : bool
        Whether the variables are on the left of the product.
    factor : float
        Bound of the norm of the derivative of the product's other factor.
    """

    atom: int
    argument: int | None
    turned: bool = False
    factor: float = 0.0


class Pass:
    """Bounds of every record's contribution, from intervals forward and cotangents back.

    Parameters
    ----------
    form : NormalForm
    terms : sequence of Term
        Terms of the objective in which data of the records and variables meet.
    members : sequence of int
        Indices of the private parameters whose rows form the records.
    p : {1, 2}
    extent : Extent
        Where x may lie.
    scale : ndarray, shape (n,), or None
        Weights of the gradient's components.
    absent : bool
        Of a record of zeros instead of all admissible ones.
    sites : list, optional
        To be filled with the places where records meet variables, instead of bounding them.

    Attributes
    ----------
    parts : list of Part
        After `run`: of the contributions, with no entry of x in common.
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
        sites: list[Site] | None = None,
    ) -> None:
        self.form, self.terms, self.members = form, terms, members
        self.count = form.private[members[0]].shape[0]
        self.p, self.extent, self.absent = p, extent, absent
        self.scale = scale
        self.needed = _below(form, terms)
        self.ranges: dict[int, Range] = {}
        # By identity, next to the combination itself, so that no identity is used again.
        self.known: dict[int, tuple[Combination, Range]] = {}
        self.cotangents: dict[int, Range] = {}
        # Weights of order one keep squares inside floating point.
        largest = max(float(np.abs(t.weight).max(initial=0.0)) for t in terms)
        self.peak = largest or 1.0
        self.parts: list[Part] = []
        self.undefined = False
        self.sites = sites

    def run(self) -> Array:
        """Per record, a bound of its contribution's lp norm.

        Raises
        ------
        Unbounded
            If the contribution cannot be followed through an atom.
        """
        start = {id(t.atom): t.weight / self.peak for t in self.terms}
        with np.errstate(all="ignore"):
            for j in sorted(self.needed):
                atom = self.form.atoms[j]
                if j in self.form.read or atom.rule not in _TOTAL:
                    self.ranges[j] = self._value(atom)
                if id(atom) in start:
                    w = start[id(atom)]
                    self._add(j, Range(w, w, np.full(w.size, PUBLIC)))
            for j in sorted(self.needed, reverse=True):
                if j in self.cotangents:
                    self._back(self.form.atoms[j], self.cotangents.pop(j))
        # Parts say it all. Ranges take half the memory of records, and passes come in pairs.
        self.ranges.clear()
        self.known.clear()
        return self.norm([part.size for part in self.parts])

    def norm(self, sizes: Sequence[Array]) -> Array:
        """Per record, of contributions whose parts have such norms."""
        with np.errstate(all="ignore"):
            table = np.array([*sizes, np.zeros(self.count)])
            total = self.peak * (table.sum(axis=0) if self.p == 1 else row_lengths(table.T))
        # Where a record could leave an atom's domain, its contribution is no number.
        total = np.full(self.count, np.inf) if self.undefined else total
        return np.where(np.isnan(total), np.inf, total)

    def _take(self, F: sp.csr_array, size: Array, apart: Array, signed: NDArray[np.bool_]) -> None:
        """A part that reaches x by ``F'``."""
        columns = np.zeros(F.shape[1], dtype=bool)
        columns[F.indices[F.data != 0]] = True
        part, others = Part(columns, size, apart, signed), []
        for other in self.parts:
            if (other.columns & part.columns).any():
                part = other.plus(part)
            else:
                others.append(other)
        self.parts = [*others, part]

    # forward

    def _range(self, u: Combination) -> Range:
        if id(u) not in self.known:
            self.known[id(u)] = u, self._computed_range(u)
        return self.known[id(u)][1]

    def _computed_range(self, u: Combination) -> Range:
        lo, hi = u.h.copy(), u.h.copy()
        low, high = u.h.copy(), u.h.copy()  # the smallest and the largest summand
        owner = np.full(u.h.size, PUBLIC)
        if u.F is not None:
            a, b = product(u.F, self.extent.lower, self.extent.upper)
            lo, hi = lo + a, hi + b
            low, high = np.minimum(low, a), np.maximum(high, b)
        for k, G in u.G:
            spec = self._spec(k)
            if isinstance(G, Identity):
                owner = joined(owner, _record_of(spec))
                up, down = np.full(G.size, self._radius(spec)), np.zeros(G.size)
            else:
                G = csr(G)
                owner = joined(owner, owners(G, _record_of(spec)))
                up, down = self._reach(spec, G.maximum(0)), self._reach(spec, -G.minimum(0))
            zero = np.zeros_like(up)
            a = -(zero if spec.sign == "nonneg" else up) - (zero if spec.sign == "nonpos" else down)
            b = (zero if spec.sign == "nonpos" else up) + (zero if spec.sign == "nonneg" else down)
            lo, hi = lo + a, hi + b
            low, high = np.minimum(low, a), np.maximum(high, b)
        for j, M in u.terms:
            inner = self.ranges[j]
            a, b = product(M, inner.lo, inner.hi)
            lo, hi = lo + a, hi + b
            low, high = np.minimum(low, a), np.maximum(high, b)
            read = inner.owner if isinstance(M, Identity) else owners(csr(M), inner.owner)
            owner = joined(owner, read)
        lo, hi = widened(lo, hi)
        if (u.F is not None or u.terms) and (owner != PUBLIC).any():
            # More than these sums round, so that no kink is missed; sums of one sign keep it.
            size = np.where(owner == PUBLIC, 0.0, _ROUNDING * np.maximum(np.abs(lo), np.abs(hi)))
            lo, hi = np.where(low >= 0, lo, lo - size), np.where(high <= 0, hi, hi + size)
            lo, hi = widened(lo, hi)
        return Range(lo, hi, owner, self._data_norms(u))

    def _data_norms(self, u: Combination) -> tuple[Array, Array] | None:
        """Norms of each record's entries, for scaled entries of one private parameter."""
        if u.F is not None or u.terms or len(u.G) != 1 or has_entries(u.h):
            return None
        k, G = u.G[0]
        spec, G = self._spec(k), csr(G)
        if not _selects(G):
            return None
        entries = np.bincount(_record_of(spec)[G.indices], minlength=self.count)
        peak = float(np.abs(G.data).max(initial=0.0)) * self._radius(spec)
        used = np.where(entries > 0, peak, 0.0)
        return used * _rows(spec).stretch(1, entries), used * _rows(spec).stretch(2, entries)

    def _spec(self, k: int) -> PrivateSpec:
        if k not in self.members:
            raise Unbounded(
                f"a term with '{self.form.private[k].name}'", "is not part of the same records"
            )
        return self.form.private[k]

    def _radius(self, spec: PrivateSpec) -> float:
        return 0.0 if self.absent else _rows(spec).bound

    def _reach(self, spec: PrivateSpec, G: sp.csr_array) -> Array:
        """Largest ``G_e d`` for a nonnegative G and rows of bounded norm."""
        dual = _DUAL[_rows(spec).norm]
        m = spec.shape[0]
        # Within one row of the data by the dual norm, across rows by the triangle inequality.
        record = _record_of(spec)
        coo = G.tocoo()
        key = coo.row.astype(np.intp) * m + record[coo.col]
        if np.diff(G.indptr).max(initial=0) <= 1:
            keys, where = key, np.arange(key.size)
        else:
            keys, where = np.unique(key, return_inverse=True)
        if dual == 1:
            part = np.bincount(where, coo.data, keys.size)
        elif dual == 2:
            peak = float(np.abs(coo.data).max(initial=0.0)) or 1.0
            part = peak * np.sqrt(np.bincount(where, (coo.data / peak) ** 2, keys.size))
        else:
            part = np.zeros(keys.size)
            np.maximum.at(part, where, coo.data)
        total = np.bincount(keys // m, part, G.shape[0])
        return np.asarray(self._radius(spec) * total, dtype=np.float64)

    def _value(self, atom: Atom) -> Range:
        rule, size = atom.rule, max(1, math.prod(atom.shape))
        if rule is MATMUL:
            return self._matmul_value(atom)
        args = self._arguments(atom)
        u = args[0]
        if rule in _CONVEX or rule in _CONCAVE or rule is POWER:
            return self._elementwise_value(atom, u)
        if rule is MULTIPLY and args[1].lo.size == u.lo.size:
            lo, hi = times(u.lo, u.hi, args[1].lo, args[1].hi)
            return Range(lo, hi, joined(u.owner, args[1].owner))
        if rule in _CHOOSING and all(a.lo.size == size for a in args):
            chosen = np.max if rule is MAXIMUM else np.min
            lo, hi = (chosen([a.lo for a in args], axis=0), chosen([a.hi for a in args], axis=0))
            owner = args[0].owner
            for a in args[1:]:
                owner = joined(owner, a.owner)
            return Range(lo, hi, owner)
        groups = _groups(atom, u.lo.size)
        owner = np.full(size, PUBLIC)
        if groups is not None:
            pattern = (np.ones(groups.size), (groups, np.arange(groups.size)))
            owner = owners(sp.csr_array(pattern, shape=(size, groups.size)), u.owner)
        if groups is None or len(args) > 1:
            touched = any((a.owner != PUBLIC).any() for a in args)
            owner = np.full(size, MIXED if touched else PUBLIC)
        return Range(np.full(size, -np.inf), np.full(size, np.inf), owner)

    def _arguments(self, atom: Atom) -> list[Range]:
        """Ranges of the arguments; a constant number next to an array counts as an array."""
        size = max(1, math.prod(atom.shape))
        found = [self._range(a) for a in atom.args]
        if atom.rule not in _CHOOSING:
            return found
        return [
            Range(np.repeat(r.lo, size), np.repeat(r.hi, size), np.repeat(r.owner, size))
            if a.constant and r.lo.size == 1
            else r
            for a, r in zip(atom.args, found, strict=True)
        ]

    def _elementwise_value(self, atom: Atom, u: Range) -> Range:
        def at(v: Array) -> Array:
            return np.asarray(atom.rule.forward([v], atom.data), dtype=float)

        with np.errstate(all="ignore"):
            ends = np.stack([at(u.lo), at(u.hi)])
            turn = _CONVEX.get(atom.rule, _CONCAVE.get(atom.rule))
            if atom.rule is POWER:
                turn = 0.0
            if turn is not None:
                inside = (u.lo < turn) & (turn < u.hi)
                ends = np.vstack([ends, np.where(inside, at(np.full(1, turn)), ends[0])])
        # Where an end lies outside the domain, nothing is known.
        lost = np.isnan(ends).any(axis=0)
        if atom.rule is POWER and atom.data[0] < 0:
            lost |= (u.lo <= 0) & (u.hi >= 0)
        self.undefined |= bool(lost.any())
        lo, hi = ends.min(axis=0, initial=np.inf), ends.max(axis=0, initial=-np.inf)
        return Range(np.where(lost, -np.inf, lo), np.where(lost, np.inf, hi), u.owner)

    def _matmul_value(self, atom: Atom) -> Range:
        left, right = atom.args
        (m, k), (_, n) = _shape(left, 0), _shape(right, 1)
        L, R = self._matrix_rows(left, (m, k)), self._matrix_rows(_turned(right, (k, n)), (n, k))
        l2, r2 = L.two, R.two
        if not self._moves(left):
            r2 = np.minimum(r2, self._column_norms(right, (k, n)))
        elif not self._moves(right):
            l2 = np.minimum(l2, self._column_norms(_turned(left, (m, k)), (k, m)))
        with np.errstate(invalid="ignore"):
            bounds = [np.outer(l2, r2), np.outer(L.one, R.peak), np.outer(L.peak, R.one)]
        size = np.min([np.where(np.isnan(b), np.inf, b) for b in bounds], axis=0)
        owner = joined(
            np.repeat(L.owner[:, None], n, axis=1).ravel(order="F"),
            np.repeat(R.owner[None, :], m, axis=0).ravel(order="F"),
        )
        flat = size.ravel(order="F")
        return Range(-flat, flat, owner)

    def _moves(self, u: Combination) -> bool:
        return u.F is not None or any(self.form.reach(self.form.atoms[j])[0] for j, _ in u.terms)

    def _matrix_rows(self, u: Combination, shape: tuple[int, int]) -> _MatrixRows:
        """Bounds of the norms of the rows of a matrix, and the record that each reads."""
        if self._is_data(u):
            spec = self._spec(u.G[0][0])
            bound, (m, k) = self._radius(spec), shape
            one, two, peak = (
                np.full(m, bound * s)
                for s in (_rows(spec).stretch(1, k), _rows(spec).stretch(2, k), 1.0)
            )
            return _MatrixRows(one, two, peak, np.arange(m))
        box = self._range(u).size.reshape(shape, order="F")
        one, two, peak = box.sum(axis=1), row_lengths(box), box.max(axis=1, initial=0.0)
        owner = row_owner(self._range(u).owner.reshape(shape, order="F"))
        if not self._moves(u) and not u.terms and not (owner == MIXED).any():
            one, two = self._row_norms(u, shape, one, two)
        return _MatrixRows(one, two, peak, owner)

    def _is_data(self, u: Combination) -> bool:
        """Whether a matrix is one private parameter as it is, with a record in every row."""
        plain = u.F is None and not u.terms and not has_entries(u.h) and len(u.G) == 1
        if not plain or not isinstance(u.G[0][1], Identity):
            return False
        shape = self._spec(u.G[0][0]).shape
        return len(shape) == 2 and u.shape == shape

    def _row_norms(
        self, u: Combination, shape: tuple[int, int], one: Array, two: Array
    ) -> tuple[Array, Array]:
        """Bounds of the l1 and l2 norms of the rows of a matrix without variables.

        `one` and `two` are those that follow from the entries alone.
        """
        parts = [np.abs(u.h).reshape(shape, order="F")]
        norms = [(parts[0].sum(axis=1), row_lengths(parts[0]))]
        for k, G in u.G:
            spec, G = self._spec(k), csr(G)
            if np.diff(G.indptr).max(initial=0) > 1 or (abs(G) > 0).sum(axis=0).max() > 1:
                return one, two
            size = np.asarray(abs(G).sum(axis=1)).ravel().reshape(shape, order="F")
            parts.append(size)
            entries = (size > 0).sum(axis=1)
            peak = size.max(axis=1, initial=0.0) * self._radius(spec)
            rows = _rows(spec)
            norms.append((peak * rows.stretch(1, entries), peak * rows.stretch(2, entries)))
        apart = (np.sum([part > 0 for part in parts], axis=0) <= 1).all()
        total_one = np.sum([a for a, _ in norms], axis=0)
        twos = np.array([b for _, b in norms])
        total_two = row_lengths(twos.T) if apart else twos.sum(axis=0)
        return np.minimum(one, total_one), np.minimum(two, total_two)

    def _column_norms(self, u: Combination, shape: tuple[int, int]) -> Array:
        """Bounds of the l2 norms of the columns of a matrix that is affine in x."""
        if u.F is None or u.terms or u.G:
            return np.full(shape[1], np.inf)
        F, h = csr(u.F), u.h.reshape(shape, order="F")
        norms = np.empty(shape[1])
        for c in range(shape[1]):
            rows = F[c * shape[0] : (c + 1) * shape[0]]
            columns = np.flatnonzero(np.bincount(rows.indices, minlength=rows.shape[1]))
            reach = self.extent.norm2(columns)
            norms[c] = _operator_norm(rows, 2) * reach if columns.size else 0.0
        return norms + row_lengths(h.T)

    # backward

    def _add(self, j: int, g: Range) -> None:
        known = self.cotangents.get(j)
        self.cotangents[j] = g if known is None else self._sum(known, g, self.form.atoms[j])

    def _sum(self, a: Range, b: Range, atom: Atom) -> Range:
        owner = self._one_record(joined(a.owner, b.owner), atom)
        one, two = (self._norms(g, owner) for g in (a, b))
        opposite = ((a.lo >= 0).all() and (b.hi <= 0).all()) or (
            (a.hi <= 0).all() and (b.lo >= 0).all()
        )
        l2 = np.hypot(one[1], two[1]) if opposite else one[1] + two[1]
        return Range(a.lo + b.lo, a.hi + b.hi, owner, (one[0] + two[0], l2))

    def _norms(self, g: Range, owner: Index) -> tuple[Array, Array]:
        """Bounds of the l1 and l2 norms of g on the entries of each record."""
        own = owner >= 0
        size = g.size[own]
        one = np.bincount(owner[own], size, self.count).astype(float)
        peak = float(np.max(size, initial=0.0, where=np.isfinite(size))) or 1.0
        two = peak * np.sqrt(np.bincount(owner[own], (size / peak) ** 2, self.count))
        if g.norms is not None and np.array_equal(g.owner, owner):
            one, two = np.minimum(one, g.norms[0]), np.minimum(two, g.norms[1])
        return one, np.minimum(two, one)

    def _one_record(self, owner: Index, atom: Atom) -> Index:
        if (owner == MIXED).any():
            raise Unbounded(atom.written, "reads several records at once")
        return owner

    def _back(self, atom: Atom, g: Range) -> None:
        rule = atom.rule
        if rule is MATMUL:
            self._matmul_back(atom, g)
            return
        args = self._arguments(atom)
        u = args[0]
        if rule in _CONVEX or rule in _CONCAVE or rule is POWER:
            slope = Range(*self._slope(atom, u), u.owner)
            self._into(atom.args[0], self._scaled(g, slope, atom), atom)
        elif rule is MULTIPLY and args[1].lo.size == u.lo.size:
            for other, a in ((args[1], atom.args[0]), (u, atom.args[1])):
                if self._moves(a):
                    self._into(a, self._scaled(g, other, atom), atom)
        elif rule in _CHOOSING and all(a.lo.size == g.lo.size for a in args):
            owner = args[0].owner
            for a in args[1:]:
                owner = joined(owner, a.owner)
            for a, c in zip(args, atom.args, strict=True):
                if self._moves(c):
                    share = Range(np.zeros(a.lo.size), np.ones(a.lo.size), owner)
                    self._into(c, self._scaled(g, share, atom), atom)
        elif rule in (LOG_SUM_EXP, MAX, MIN, NORM1, QUAD_OVER_LIN) or (
            rule is PNORM and atom.data[0] == 2
        ):
            self._reduced_back(atom, g, args)
        elif self.sites is not None and all(a.lo.size == g.lo.size for a in args):
            self._unknown_back(atom, g, args)
        else:
            raise Unbounded(atom.written, "has no rule for records")

    def _unknown_back(self, atom: Atom, g: Range, args: Sequence[Range]) -> None:
        """An elementwise atom of which only is known which record each entry reads."""
        owner = args[0].owner
        for a in args[1:]:
            owner = joined(owner, a.owner)
        anything = np.full(g.lo.size, np.inf)
        for c in atom.args:
            if self._moves(c):
                self._into(c, self._scaled(g, Range(-anything, anything, owner), atom), atom)

    def _slope(self, atom: Atom, u: Range) -> tuple[Array, Array]:
        """Interval of the derivative of an elementwise atom."""

        def at(v: Array) -> Array:
            one = np.ones_like(v)
            with np.errstate(all="ignore"):
                read = atom.rule.by_value
                out = np.asarray(atom.rule.forward([v], atom.data), dtype=float) if read else UNREAD
                return np.asarray(atom.rule.vjp([v], out, one, atom.data, 0), dtype=float)

        rising = atom.rule in _CONVEX
        lo, hi = u.lo, u.hi
        if atom.rule is POWER:
            p = atom.data[0]
            if p == 1:
                return np.ones_like(lo), np.ones_like(lo)
            whole = float(p).is_integer() and p > 1
            if not whole and (lo < 0).any():
                raise Unbounded(atom.written, "is evaluated where it may leave its domain")
            if whole and int(p) % 2 == 1:  # an odd power: the derivative is even
                ends = np.stack([at(lo), at(hi)])
                return np.where((lo < 0) & (hi > 0), 0.0, ends.min(axis=0)), ends.max(axis=0)
            rising = p > 1 or p < 0
        low, high = (at(lo), at(hi)) if rising else (at(hi), at(lo))
        if atom.rule in _DOMAIN:
            outside = lo <= _DOMAIN[atom.rule]
            low, high = np.where(outside, -np.inf, low), np.where(outside, np.inf, high)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)

    def _scaled(self, g: Range, factor: Range, atom: Atom) -> Range:
        """Cotangents times factors, entry by entry."""
        # What an absent record contributes counts in full, also if it could be nothing else.
        constant = (factor.lo == factor.hi) & np.isfinite(factor.lo) & (not self.absent)
        owner = joined(g.owner, np.where(constant, PUBLIC, factor.owner))
        owner = self._one_record(owner, atom)
        low, high = times(g.lo, g.hi, factor.lo, factor.hi)
        norms = [
            [bounded_times(n, self._peaks(b, owner)) for n in a.norms]
            for a, b in ((g, factor), (factor, g))
            if a.norms is not None and np.array_equal(a.owner, owner)
        ]
        if not norms:
            return Range(low, high, owner)
        one, two = (np.min(n, axis=0) for n in zip(*norms, strict=True))
        return Range(low, high, owner, (one, two))

    def _all(self, flags: NDArray[np.bool_], owner: Index) -> NDArray[np.bool_]:
        """Whether the flags of all entries of each record are set."""
        return np.bincount(owner[~flags & (owner >= 0)], minlength=self.count) == 0

    def _peaks(self, g: Range, owner: Index) -> Array:
        """Largest magnitude among the entries of each record."""
        peak, own = np.zeros(self.count), owner >= 0
        np.maximum.at(peak, owner[own], g.size[own])
        return peak

    def _reduced_back(self, atom: Atom, g: Range, args: Sequence[Range]) -> None:
        u = args[0]
        groups = _groups(atom, u.lo.size)
        curved = atom.rule is PNORM and atom.data[0] != 2
        if groups is None or curved or (len(args) > 1 and not atom.args[1].constant):
            raise Unbounded(atom.written, "has no rule for records")
        wide = Range(g.lo[groups], g.hi[groups], g.owner[groups])
        ones = np.ones(u.lo.size)
        if atom.rule is NORM1:
            low, high = np.where(u.lo > 0, 1.0, -1.0), np.where(u.hi < 0, -1.0, 1.0)
            self._into(atom.args[0], self._scaled(wide, Range(low, high, u.owner), atom), atom)
            return
        if atom.rule is QUAD_OVER_LIN:
            y = args[1].lo.item()
            if not y > 0:
                raise Unbounded(atom.written, "divides by a number that is not positive")
            low, high = 2 * u.lo / y, 2 * u.hi / y
            self._into(atom.args[0], self._scaled(wide, Range(low, high, u.owner), atom), atom)
            return
        # Weights of a whole group that depend on every entry of it.
        outputs = g.lo.size
        pattern = (ones, (groups, np.arange(groups.size)))
        whole = owners(sp.csr_array(pattern, shape=(outputs, groups.size)), u.owner)
        owner = self._one_record(joined(g.owner, whole), atom)
        entries = np.bincount(groups, minlength=outputs)
        low = -ones if atom.rule is PNORM else 0 * ones
        found = self._scaled(wide, Range(low, ones, owner[groups]), atom)
        own = owner >= 0
        size = g.size
        spread = np.sqrt(entries) if atom.rule is PNORM else np.ones(outputs)
        one = np.bincount(owner[own], (spread * size)[own], self.count)
        two = np.sqrt(np.bincount(owner[own], (size**2)[own], self.count))
        found = replace(found, owner=owner[groups], norms=(one, two))
        self._into(atom.args[0], found, atom)

    def _matmul_back(self, atom: Atom, g: Range) -> None:
        left, right = atom.args
        (m, k), (_, n) = _shape(left, 0), _shape(right, 1)
        if self._moves(left) and self._moves(right):
            raise Unbounded("@", "multiplies variables with variables")
        turned = self._moves(left)
        if turned:  # out' = right' left'
            order = _transposition((m, n))
            g = Range(g.lo[order], g.hi[order], g.owner[order], g.norms)
            left, right = _turned(right, (k, n)), _turned(left, (m, k))
            m, n = n, m
        if right.terms or right.G or right.F is None:
            raise Unbounded("@", "multiplies records with something that is not affine in x")
        L = self._matrix_rows(left, (m, k))
        owner = np.repeat(L.owner[:, None], n, axis=1).ravel(order="F")
        read = self._one_record(joined(g.owner, owner), atom)
        rows = row_owner(read.reshape((m, n), order="F"))
        if (rows == MIXED).any():
            raise Unbounded("@", "reads several records in one row")
        norm = L.one if self.p == 1 else L.two
        F = self._weighted(right.F)
        factor = _operator_norm(F, self.p)
        own = rows >= 0
        of_record = np.bincount(rows[own], minlength=self.count)
        if self.sites is not None:
            if of_record.max(initial=0) > 1:
                raise Unbounded("@", "holds several rows of one record")
            self.sites.append(Site(_index(self.form, atom), None, turned, factor))
            return
        if of_record.max(initial=0) <= 1:
            size = np.zeros(m)
            norms = self._norms(g, read)[self.p - 1]
            size[own] = norms[rows[own]]
        else:
            cells = g.size.reshape((m, n), order="F")
            size = cells.sum(axis=1) if self.p == 1 else row_lengths(cells)
        part = bounded_times(norm[own], size[own])
        # Ranges of whole records take many times their memory: only where data have a sign.
        one_way = left.terms or all(self.form.private[k].sign is not None for k, _ in left.G)
        one_way = bool(one_way) and _selects(F) and of_record.max(initial=0) <= 1
        signed = np.full(self.count, one_way)
        for known in (known_signs(self._range(left)), known_signs(g)) if one_way else ():
            signed[rows[~known.reshape((m, -1), order="F").all(axis=1) & own]] = False
        size = np.asarray(factor * np.bincount(rows[own], part, self.count), dtype=np.float64)
        self._take(F, size, 2 * size, signed)

    def _weighted(self, F: Matrix) -> sp.csr_array:
        """F with its columns multiplied by the scale."""
        rows = csr(F)
        if self.scale is None:
            return rows
        values = rows.data * self.scale[rows.indices]
        return sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)

    def _pulled(self, F: sp.csr_array, *cotangents: Range) -> list[Array]:
        """Per record, a bound of the norm of ``F'g`` on its entries, for each g."""
        rows = row_sizes(F, self.p)
        found = []
        for g in cotangents:
            own = g.owner >= 0
            owner, sizes = g.owner[own], bounded_times(g.size[own], rows[own])
            single = np.bincount(owner, sizes, self.count)
            if np.bincount(owner, minlength=1).max() > 1 or _selects(F):
                norm = self._norms(g, g.owner)[self.p - 1]
                single = np.minimum(single, bounded_times(norm, _operator_norm(F, self.p)))
            elif g.norms is not None:  # of records with one entry each, which F takes one by one
                norm = bounded_times(g.norms[self.p - 1][owner], rows[own])
                single = np.minimum(single, np.bincount(owner, norm, self.count))
            found.append(single)
        return found

    def _into(self, u: Combination, g: Range, atom: Atom) -> None:
        own = g.owner >= 0
        if u.F is not None and own.any() and self.sites is not None:
            place = next(k for k, other in enumerate(atom.args) if other is u)
            self.sites.append(Site(_index(self.form, atom), place))
        elif u.F is not None and own.any():
            F = self._weighted(u.F)
            # Two records' cotangents lie in one interval, and F is the same for both.
            size, apart = self._pulled(F, g, _width(g))
            apart = np.minimum(2 * size, apart)
            if _selects(F):
                signed = self._all(known_signs(g), g.owner)
            else:  # entries of one sign add up to that sign
                one_way = bool((F.data >= 0).all() or (F.data <= 0).all())
                signed = self._all(g.lo >= 0, g.owner) | self._all(g.hi <= 0, g.owner)
                signed &= one_way
            self._take(F, size, apart, signed)
        for j, M in u.terms:
            if not self.form.reach(self.form.atoms[j])[0]:
                continue
            T = sp.csr_array(csr(M).T)
            lo, hi = product(T, g.lo, g.hi)
            owner = self._one_record(owners(T, g.owner), self.form.atoms[j])
            norms = None
            if g.norms is not None and _selects(T):
                peak = float(abs(T).max()) if T.nnz else 0.0
                norms = g.norms[0] * peak, g.norms[1] * peak
            self._add(j, Range(lo, hi, owner, norms))


def beside_product(form: NormalForm, product: Site, taken: Site) -> Beside | None:
    """The affine part that is taken next to a product; None if it is not simply its neighbour.

    Parameters
    ----------
    form : NormalForm
    product, taken : Site
        The product of records and variables, and the place that takes an affine function.
    """
    assert taken.argument is not None
    takers = [u for atom in form.atoms for u in atom.args] + [form.root]
    u = form.atoms[taken.atom].args[taken.argument]
    users = [other for other in takers if any(j == product.atom for j, _ in other.terms)]
    if product.turned or len(users) != 1 or users[0] is not u or len(u.terms) != 1:
        return None
    ((_, M),) = u.terms
    D, F = without_zeros(csr(M)), without_zeros(csr(u.F))
    right = form.atoms[product.atom].args[1].F
    assert right is not None
    rows = D.tocoo()
    # Where D is zero, the product does not tell whose record the row is: it may be another's.
    if D.shape[0] != D.shape[1] or (rows.row != rows.col).any() or not D.diagonal().all():
        return None
    count = _shape(form.atoms[product.atom].args[0], 0)[0]
    across = np.intersect1d(F.indices, without_zeros(csr(right)).indices)
    weight = np.abs(D.diagonal()).reshape((count, -1), order="F").max(axis=1)
    size = row_lengths(row_sizes(F, 2).reshape((count, -1), order="F"))
    return Beside((taken.atom, taken.argument), weight, size, apart=across.size == 0)


def _width(g: Range) -> Range:
    """How far two numbers in the intervals may be apart, with room for the ends' rounding."""
    width = g.hi - g.lo + _ROUNDING * g.size
    return Range(np.zeros_like(width), np.where(np.isnan(width), np.inf, width), g.owner)


def _index(form: NormalForm, atom: Atom) -> int:
    return next(j for j, other in enumerate(form.atoms) if other is atom)


def _below(form: NormalForm, terms: Sequence[Term]) -> set[int]:
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


def _rows(spec: PrivateSpec) -> Rows:
    assert isinstance(spec.adjacency, Rows)
    return spec.adjacency


def _record_of(spec: PrivateSpec) -> Index:
    return np.arange(spec.size) % spec.shape[0]


def _selects(M: sp.csr_array) -> bool:
    """Whether every row and every column has at most one entry."""
    if np.diff(M.indptr).max(initial=0) > 1:
        return False
    return int(np.bincount(M.indices, minlength=1).max()) <= 1


def _operator_norm(M: sp.csr_array, p: int) -> float:
    """Bound of ``||M'v||_p / ||v||_p``."""
    M = without_zeros(M)
    if M.nnz == 0:
        return 0.0
    if _selects(M):
        return float(np.abs(M.data).max())
    rows = float(row_sizes(M, 1).max())
    if p == 1:
        return rows
    columns = float(row_sizes(sp.csr_array(M.T), 1).max())
    bound = math.sqrt(rows) * math.sqrt(columns)
    if min(M.shape) <= 500 and max(M.shape) <= 5000:
        bound = min(bound, float(np.linalg.norm(M.toarray(), 2)) * (1 + 1e-12))
    return bound


def _shape(u: Combination, side: int) -> tuple[int, int]:
    """Shape of a factor of a matrix product."""
    if len(u.shape) == 2:
        return u.shape[0], u.shape[1]
    return (1, u.h.size) if side == 0 else (u.h.size, 1)


def _transposition(shape: tuple[int, int]) -> Index:
    """Positions in a column-major matrix of the entries of its transpose."""
    return np.arange(shape[0] * shape[1]).reshape(shape, order="F").T.ravel(order="F")


def _turned(u: Combination, shape: tuple[int, int]) -> Combination:
    """The transpose of a matrix of this shape."""
    order = _transposition(shape)
    return Combination(
        shape[::-1],
        None if u.F is None else csr(u.F)[order],
        tuple((k, csr(G)[order]) for k, G in u.G),
        u.h[order],
        tuple((j, csr(M)[order]) for j, M in u.terms),
    )


def _groups(atom: Atom, size: int) -> Index | None:
    """For each entry of the argument of a reduction, the entry of the value it goes into."""
    reducing: dict[Rule, Callable[[], tuple[object, bool]]] = {
        LOG_SUM_EXP: lambda: atom.data,
        MAX: lambda: atom.data,
        MIN: lambda: atom.data,
        NORM1: lambda: atom.data,
        QUAD_OVER_LIN: lambda: atom.data,
        PNORM: lambda: atom.data[1:],
    }
    found = reducing.get(atom.rule)
    if found is None:
        return None
    axis, keepdims = found()
    shape = atom.args[0].shape
    numbers = np.arange(max(1, math.prod(atom.shape))).reshape(atom.shape, order="F")
    if axis is None:
        return np.zeros(size, dtype=np.intp)
    wide = numbers if keepdims else np.expand_dims(numbers, axis)  # type: ignore[arg-type]
    return np.broadcast_to(wide, shape).ravel(order="F")
