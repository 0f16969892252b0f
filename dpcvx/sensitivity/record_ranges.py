"""Intervals of all intermediate values of an objective, for all admissible records."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.adjacency import Rows
from ..model.atoms import interval_product
from ..model.matrices import Identity, csr, has_entries, without_zeros
from ..model.normal_form import Atom, Combination, NormalForm, row_lengths
from ..model.spec import PrivateSpec
from ..solvers.closed_forms import MOST, bounds_of_products
from ..solvers.projector import Extent
from .intervals import (
    MIXED,
    PUBLIC,
    ROUNDING,
    Range,
    Unbounded,
    groups_of,
    joined,
    operator_norm,
    owners,
    product,
    row_owner,
    selects,
    shape_of,
    turned,
    widened,
)

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_DUAL = {1: math.inf, 2: 2, math.inf: 1}


class Ranges:
    """Intervals of an objective's intermediate values, for all admissible records and points.

    Parameters
    ----------
    form : NormalForm
    members : sequence of int
        Indices of the private parameters whose rows form the records.
    extent : Extent
        Set that contains x: bounds, balls and sums.
    absent : bool
        Whether records are zeros, instead of all admissible ones.

    Attributes
    ----------
    undefined : bool
        Whether some record could leave the domain of an atom that was evaluated.
    """

    def __init__(
        self, form: NormalForm, members: Sequence[int], extent: Extent, absent: bool
    ) -> None:
        self.form, self.members, self.extent, self.absent = form, members, extent, absent
        self.count = form.private[members[0]].shape[0]
        self.undefined = False
        # Without such atoms, only the magnitudes of intervals matter, which norms bound.
        self._narrow = any(atom.rule.has_edge(atom.data) for atom in form.atoms)
        self._values: dict[int, Range] = {}
        # By id, next to the combination itself, so that no new object reuses an id.
        self._known: dict[int, tuple[Combination, Range]] = {}

    def evaluate(self, j: int) -> None:
        """Compute the interval of atom j, after the intervals of its arguments."""
        atom = self.form.atoms[j]
        if j in self.form.read or not atom.rule.total:
            self._values[j] = self._value(atom)

    def clear(self) -> None:
        """Drop all stored intervals to free memory: they need half as much as the records."""
        self._values.clear()
        self._known.clear()

    def of(self, u: Combination) -> Range:
        """Return the interval of combination u, after the intervals of its atoms were computed."""
        if id(u) not in self._known:
            self._known[id(u)] = u, self._computed_range(u)
        return self._known[id(u)][1]

    def _computed_range(self, u: Combination) -> Range:
        lo, hi = u.h.copy(), u.h.copy()
        low, high = u.h.copy(), u.h.copy()  # the smallest and the largest summand
        base, top = u.h, u.h  # the interval without the parts that contain variables
        owner = np.full(u.h.size, PUBLIC)
        if u.F is not None:
            a, b = product(u.F, self.extent.lower, self.extent.upper)
            if self._narrow and self.extent.sums:
                rows = csr(u.F).toarray()
                a, b = self._narrowed(a, b, rows, rows)
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
            if spec.bounds is not None and not self.absent:
                ends = (np.full(spec.size, end) for end in _entries(spec))
                least, most = product(G, *ends)
                a, b = np.maximum(a, least), np.minimum(b, most)
            lo, hi = lo + a, hi + b
            base, top = base + a, top + b
            low, high = np.minimum(low, a), np.maximum(high, b)
        for j, M in u.terms:
            inner = self._values[j]
            a, b = product(M, inner.lo, inner.hi)
            lo, hi = lo + a, hi + b
            low, high = np.minimum(low, a), np.maximum(high, b)
            read = inner.owner if isinstance(M, Identity) else owners(csr(M), inner.owner)
            owner = joined(owner, read)
        joint = self._joint_size(u)
        if joint is not None:
            lo, hi = np.maximum(lo, base - joint), np.minimum(hi, top + joint)
        lo, hi = widened(lo, hi)
        if (u.F is not None or u.terms) and (owner != PUBLIC).any():
            # Widened by more than the sums' rounding, so that no kink is missed. Sums of summands
            # of one sign keep this sign.
            size = np.where(owner == PUBLIC, 0.0, ROUNDING * np.maximum(np.abs(lo), np.abs(hi)))
            lo, hi = np.where(low >= 0, lo, lo - size), np.where(high <= 0, hi, hi + size)
            lo, hi = widened(lo, hi)
        return Range(lo, hi, owner, self._data_norms(u))

    def _joint_size(self, u: Combination) -> Array | None:
        """Return a bound of ``|d L_i z + f x|`` by the joint norm of (z, x), or None.

        L_i is record i, and d, f are public numbers. A record and public numbers next to it, such
        as the 1 of an intercept, are one row ``(d L_i, f)`` of length
        ``sqrt(d**2 |L_i|**2 + |f|**2)`` if z and x share no entry.
        """
        if u.F is None or len(u.terms) != 1:
            return None
        ((j, M),) = u.terms
        atom = self.form.atoms[j]
        if atom.rule.product != "matrix":
            return None
        left, right = atom.args
        plain = right.F is not None and not right.G and not right.terms
        if not plain or has_entries(right.h) or self.moves(left):
            return None
        picks = csr(right.F)
        if not selects(picks) or np.abs(picks.data).max(initial=0.0) > 1:
            return None
        (m, k), (_, n) = shape_of(left, 0), shape_of(right, 1)
        weight, f = without_zeros(csr(M)), without_zeros(csr(u.F))
        if (np.diff(weight.indptr) != 1).any():
            return None
        length = self.matrix_rows(left, (m, k))[1][weight.indices % m]
        size = np.hypot(np.abs(weight.data) * length, row_lengths(f))
        output, sizes = weight.indices // m, np.full(u.h.size, np.inf)
        for c in range(n):
            rows = np.flatnonzero(output == c)
            entries = np.unique(picks[c * k : (c + 1) * k].indices)
            beside = np.unique(f[rows].indices)
            if rows.size and entries.size == k and not np.intersect1d(entries, beside).size:
                reach = self.extent.norm2(np.union1d(entries, beside))
                sizes[rows] = size[rows] * reach if math.isfinite(reach) else math.inf
        return sizes

    def _data_norms(self, u: Combination) -> tuple[Array, Array] | None:
        """Return l1 and l2 norms of each record's entries in u.

        The result is None if u is not a scaled private parameter.
        """
        if u.F is not None or u.terms or len(u.G) != 1 or has_entries(u.h):
            return None
        k, G = u.G[0]
        spec, G = self._spec(k), csr(G)
        if not selects(G):
            return None
        entries = np.bincount(_record_of(spec)[G.indices], minlength=self.count)
        peak = float(np.abs(G.data).max(initial=0.0)) * self._radius(spec)
        used = np.where(entries > 0, peak, 0.0)
        return used * _rows(spec).stretch(1, entries), used * _rows(spec).stretch(2, entries)

    def _narrowed(self, lo: Array, hi: Array, low: Array, high: Array) -> tuple[Array, Array]:
        """Return the intervals [lo, hi] of ``c'x``, narrowed by bounds and sums of the variables x.

        Parameters
        ----------
        lo, hi : ndarray, shape (m,)
        low, high : ndarray, shape (m, n)
            Ends of the intervals of the coefficients c.
        """
        extent = self.extent
        least, most = bounds_of_products(extent.sums, low, high, extent.lower, extent.upper)
        return np.maximum(lo, least), np.minimum(hi, most)

    def _spec(self, k: int) -> PrivateSpec:
        if k not in self.members:
            raise Unbounded(
                f"a term with '{self.form.private[k].name}'", "holds data of other records"
            )
        return self.form.private[k]

    def _radius(self, spec: PrivateSpec) -> float:
        return 0.0 if self.absent else _rows(spec).max_norm

    def _reach(self, spec: PrivateSpec, G: sp.csr_array) -> Array:
        """Return the largest entries of ``G d`` over data d, for a nonnegative matrix G."""
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
        if rule.product == "matrix":
            return self._matmul_value(atom)
        args = self.arguments(atom)
        u = args[0]
        ends = None
        if all(a.lo.size == size for a in args):
            ends = rule.values([a.lo for a in args], [a.hi for a in args], atom.data)
        if ends is not None:
            lo, hi, lost = ends
            # If an end lies outside the domain, nothing is known.
            self.undefined |= bool(lost.any())
            owner = functools.reduce(joined, [a.owner for a in args])
            return Range(np.where(lost, -np.inf, lo), np.where(lost, np.inf, hi), owner)
        groups = groups_of(atom, u.lo.size)
        owner = np.full(size, PUBLIC)
        if groups is not None:
            pattern = (np.ones(groups.size), (groups, np.arange(groups.size)))
            owner = owners(sp.csr_array(pattern, shape=(size, groups.size)), u.owner)
        if groups is None or len(args) > 1:
            touched = any((a.owner != PUBLIC).any() for a in args)
            owner = np.full(size, MIXED if touched else PUBLIC)
        return Range(np.full(size, -np.inf), np.full(size, np.inf), owner)

    def arguments(self, atom: Atom) -> list[Range]:
        """Return ranges of an atom's arguments; constant numbers are repeated to arrays."""
        size = max(1, math.prod(atom.shape))
        ranges = [self.of(a) for a in atom.args]
        if atom.rule.rows != "entry":
            return ranges
        return [
            Range(np.repeat(r.lo, size), np.repeat(r.hi, size), np.repeat(r.owner, size))
            if a.constant and r.lo.size == 1
            else r
            for a, r in zip(atom.args, ranges, strict=True)
        ]

    def _matmul_value(self, atom: Atom) -> Range:
        left, right = atom.args
        (m, k), (_, n) = shape_of(left, 0), shape_of(right, 1)
        l1, l2, l_peak, l_owner = self.matrix_rows(left, (m, k))
        r1, r2, r_peak, r_owner = self.matrix_rows(turned(right, (k, n)), (n, k))
        if not self.moves(left):
            r2 = np.minimum(r2, self._column_norms(right, (k, n)))
        elif not self.moves(right):
            l2 = np.minimum(l2, self._column_norms(turned(left, (m, k)), (k, m)))
        with np.errstate(invalid="ignore"):
            bounds = [np.outer(l2, r2), np.outer(l1, r_peak), np.outer(l_peak, r1)]
        size = np.min([np.where(np.isnan(b), np.inf, b) for b in bounds], axis=0)
        owner = joined(
            np.repeat(l_owner[:, None], n, axis=1).ravel(order="F"),
            np.repeat(r_owner[None, :], m, axis=0).ravel(order="F"),
        )
        flat = size.ravel(order="F")
        if self._narrow and not self.moves(left) and right.F is not None:
            return Range(*self._scores(-flat, flat, left, right), owner)
        return Range(-flat, flat, owner)

    def _scores(
        self, lo: Array, hi: Array, left: Combination, right: Combination
    ) -> tuple[Array, Array]:
        """Return the intervals [lo, hi] of a product of records and variables, narrowed.

        Signs and bounds of the data narrow them. Entry (i, c) of ``L (F x + h)`` is
        ``(L_i F_c) x + L_i h_c``, for intervals of record ``L_i``.
        """
        (m, k), (_, n) = shape_of(left, 0), shape_of(right, 1)
        assert right.F is not None
        if right.terms or right.G or n * m * max(k, right.F.shape[1]) > MOST:
            return lo, hi
        data = self.of(left)
        least, most = (end.reshape((m, k), order="F") for end in (data.lo, data.hi))
        F, h = csr(right.F), right.h
        for c in range(n):
            entries, some = slice(c * m, (c + 1) * m), slice(c * k, (c + 1) * k)
            low, high = _interval_rows(least, most, F[some])
            a, b = self._narrowed(np.full(m, -np.inf), np.full(m, np.inf), low, high)
            below, above = interval_product(least, most, h[some], h[some])
            lo[entries] = np.maximum(lo[entries], a + below.sum(axis=1))
            hi[entries] = np.minimum(hi[entries], b + above.sum(axis=1))
            if self._on_simplex(left):  # a product is a mean of entries of the other factor
                others = self.of(right)
                lo[entries] = np.maximum(lo[entries], others.lo[some].min())
                hi[entries] = np.minimum(hi[entries], others.hi[some].max())
        return lo, hi

    def _on_simplex(self, u: Combination) -> bool:
        """Return whether each row of a matrix is a private record in the probability simplex."""
        if self.absent or not self._is_data(u):
            return False
        spec = self._spec(u.G[0][0])
        return spec.kind == "simplex" and _whole(spec)

    def moves(self, u: Combination) -> bool:
        """Return whether a combination depends on the variables x."""
        return u.F is not None or any(self.form.reach(self.form.atoms[j])[0] for j, _ in u.terms)

    def matrix_rows(
        self, u: Combination, shape: tuple[int, int]
    ) -> tuple[Array, Array, Array, Index]:
        """Return bounds of a matrix's rows, and the record that each row depends on.

        The bounds are the rows' l1 norms, l2 norms, and largest magnitudes.
        """
        if self._is_data(u):
            spec = self._spec(u.G[0][0])
            bound, (m, k) = self._radius(spec), shape
            l1, l2, peak = (
                np.full(m, bound * s)
                for s in (_rows(spec).stretch(1, k), _rows(spec).stretch(2, k), 1.0)
            )
            return l1, l2, peak, np.arange(m)
        box = self.of(u).size.reshape(shape, order="F")
        l1, l2, peak = box.sum(axis=1), row_lengths(box), box.max(axis=1, initial=0.0)
        owner = row_owner(self.of(u).owner.reshape(shape, order="F"))
        if not self.moves(u) and not u.terms and not (owner == MIXED).any():
            l1, l2 = self._row_norms(u, shape, l1, l2)
        return l1, l2, peak, owner

    def _is_data(self, u: Combination) -> bool:
        """Return whether a combination is a whole private parameter, with a record in every row."""
        plain = u.F is None and not u.terms and not has_entries(u.h) and len(u.G) == 1
        if not plain or not isinstance(u.G[0][1], Identity):
            return False
        shape = self._spec(u.G[0][0]).shape
        return len(shape) == 2 and u.shape == shape

    def _row_norms(
        self, u: Combination, shape: tuple[int, int], l1: Array, l2: Array
    ) -> tuple[Array, Array]:
        """Return bounds of the l1 and l2 norms of the rows of a matrix without variables.

        `l1` and `l2` are the bounds that follow from the intervals of entries.
        """
        parts = [np.abs(u.h).reshape(shape, order="F")]
        norms = [(parts[0].sum(axis=1), row_lengths(parts[0]))]
        for k, G in u.G:
            spec, G = self._spec(k), csr(G)
            if np.diff(G.indptr).max(initial=0) > 1 or (abs(G) > 0).sum(axis=0).max() > 1:
                return l1, l2
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
        return np.minimum(l1, total_one), np.minimum(l2, total_two)

    def _column_norms(self, u: Combination, shape: tuple[int, int]) -> Array:
        """Return bounds of the l2 norms of the columns of a matrix that is affine in x."""
        if u.F is None or u.terms or u.G:
            return np.full(shape[1], np.inf)
        F, h = csr(u.F), u.h.reshape(shape, order="F")
        norms = np.empty(shape[1])
        for c in range(shape[1]):
            rows = F[c * shape[0] : (c + 1) * shape[0]]
            columns = np.flatnonzero(np.bincount(rows.indices, minlength=rows.shape[1]))
            reach = self.extent.norm2(columns)
            norms[c] = operator_norm(rows, 2) * reach if columns.size else 0.0
        return norms + row_lengths(h.T)


def _interval_rows(low: Array, high: Array, F: sp.csr_array) -> tuple[Array, Array]:
    """Return the ends of the intervals of ``L F`` for rows L in [low, high]."""
    up, down = F.maximum(0), F.minimum(0)
    with np.errstate(invalid="ignore"):
        return low @ up + high @ down, high @ up + low @ down


def _entries(spec: PrivateSpec) -> tuple[float, float]:
    """Return bounds of a record's entries, with 0 if the record may be scaled down or absent."""
    low, high = spec.interval
    return (low, high) if _whole(spec) else (min(low, 0.0), max(high, 0.0))


def _whole(spec: PrivateSpec) -> bool:
    """Return whether every record is used unchanged: none is scaled down or absent."""
    rows = _rows(spec)
    absent = rows.relation != "replace_one" or rows.row_limit is not None
    return not rows.clip_rows and not absent


def _rows(spec: PrivateSpec) -> Rows:
    assert isinstance(spec.adjacency, Rows)
    return spec.adjacency


def _record_of(spec: PrivateSpec) -> Index:
    return np.arange(spec.size) % spec.shape[0]
