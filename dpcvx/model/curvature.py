r"""Second derivatives of a normal form in x, for all admissible data: smoothness and convexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from .adjacency import Rows
from .matrices import (
    Array,
    Diagonal,
    Identity,
    Matrix,
    both_ends,
    csr,
    dense,
    eigenvalues,
    folded,
    has_entries,
    lowest,
    quick,
    scaled_rows,
    spectral_norm,
    stretch,
)
from .normal_form import Atom, Combination, NormalForm, derived_once
from .quadratic import Term, affine_view, bilinear, quadratic, straight


@dataclass(frozen=True, eq=False)
class Curvature:
    """Bounds of an objective's second derivatives in x, for all admissible data and all points."""

    center: sp.csr_array  # shape (n, n); symmetric
    spread: float  # largest distance of a second derivative from it, in the spectral norm

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest eigenvalue that a second derivative of the objective can have."""
        values = eigenvalues(self.center, both_ends)
        return float(values.min()) - self.spread, float(values.max()) + self.spread


@derived_once
def smoothness(form: NormalForm) -> float | None:
    """Return a Lipschitz constant of the objective's gradient in x for all data, or None.

    The constant holds for all admissible data. The objective need not be convex: weights may be
    negative, and penalties that flatten out, such as ``1 - cp.inv_pos(1 + cp.square(x))``, have a
    constant. For products with private records, the bound uses the largest norm of all admissible
    records together.
    """
    parts = _bends(_bent(form))
    return None if parts is None else sum((max(part) for part in parts), _formed_norm(form))


@derived_once
def _formed_norm(form: NormalForm) -> float:
    """Return the spectral norm of the constant Hessian of the objective's quadratic terms."""
    return spectral_norm(quadratic(form).formed)


@derived_once
def quadratic_curvature(form: NormalForm) -> float:
    """Return a bound of the largest second derivative of the objective's quadratic terms.

    Gradients of these terms grow without limit, so steps longer than 2 over the bound may diverge.
    """
    wide = sum(bent.size or 0.0 for bent in _wide(form) if bent.rises)
    return _formed_norm(form) + wide


@derived_once
def mean_curvature(form: NormalForm) -> float | None:
    """Return an estimate of the mean second derivative over entries of x; None if unknown.

    For losses of records, the estimate is the largest possible trace of their second derivatives,
    divided by the number of entries of x. The estimate is at most `smoothness`, the largest second
    derivative in one direction, which is attained only if all records point in one direction.
    """
    H = quadratic(form).formed
    total = float(np.abs(H.trace()))
    for bent in _bent(form):
        if bent.total is None:
            return None
        total += bent.total
    return total / form.n


@derived_once
def curvature(form: NormalForm) -> Curvature | None:
    """Return bounds of second derivatives for all admissible data; None without a `smoothness`."""
    H, parts = quadratic(form).formed, _bends(_bent(form))
    if parts is None:
        return None
    down, up = (sum(side) for side in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    middle = sp.eye_array(form.n, format="csr") * ((up - down) / 2)
    return Curvature(sp.csr_array((H + H.T) / 2 + middle), (up + down) / 2)


@derived_once
def record_smoothness(form: NormalForm) -> float | None:
    """Return a Lipschitz constant in x of how one record's change moves the gradient, or None.

    Second derivatives of convex losses lie between 0 and their bound before and after the change,
    so they differ by at most the bound. For other losses the bounds of both signs are added.
    """
    of_records = [term for term in quadratic(form).rest if form.reach(term.atom)[1]]
    parts = _bends([bent for term in of_records for bent in _bents(form, term, single=True)])
    return None if parts is None else sum(down + up for down, up in parts)


@dataclass(frozen=True, eq=False)
class _Bent:
    """Bounds of the second derivatives of a term in x (or of a square that bounds the term).

    Attributes
    ----------
    falls, rises : bool
        Whether second derivatives may be negative, and positive.
    size : float or None
        Bound of the largest second derivative, for all admissible data; None if none is known.
    total : float or None
        Bound of the trace of second derivatives; of the largest one if records are multiplied with
        variables.
    """

    falls: bool
    rises: bool
    size: float | None
    total: float | None


@derived_once
def _bent(form: NormalForm) -> list[_Bent]:
    """Return bounds of second derivatives for each term whose Hessian is not formed."""
    rest = [bent for term in quadratic(form).rest for bent in _bents(form, term)]
    return [*_wide(form), *rest]


@derived_once
def _wide(form: NormalForm) -> list[_Bent]:
    """Return bounds of second derivatives for each square whose Hessian is not formed."""
    return [_wide_square(form, term) for term in quadratic(form).wide]


def _wide_square(form: NormalForm, term: Term) -> _Bent:
    """Return bounds of second derivatives of ``u'B u`` for many entries and a diagonal B.

    The entries of B may have any signs.
    """
    parts = bilinear(form, term)
    assert parts is not None
    diagonal = parts.B.diagonal()
    falls, rises = float(diagonal.min()) < 0, float(diagonal.max()) > 0
    rows, weight = csr(parts.u.F), folded(np.abs(2 * diagonal))
    factor, values = float(weight[0]), rows.data
    if any(weight.strides):  # not one number for all rows
        factor, values = 1.0, scaled_rows(rows, np.sqrt(weight))
    most = stretch(sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape))
    return _Bent(falls, rises, factor * most**2, factor * float(np.vdot(values, values)))


def _bents(form: NormalForm, term: Term, single: bool = False) -> list[_Bent]:
    """Return bounds of a term's second derivatives.

    With `single`, the bounds are for the part of the term that depends on a single record.
    """
    if straight(form, term.atom):
        return []
    squares, bents = _squares_above(form, term), []
    for part in [term] if squares is None else squares:
        peak, argument = _peak(form, part), part.atom.args[0]
        # If nothing else is known, a convex atom of an affine argument: the weight's sign decides.
        both = squares is not None or part.atom.rule.bends_both_ways
        falls = both or float(np.min(part.weight)) < 0
        rises = both or float(np.max(part.weight)) > 0
        most = None if peak is None else _stretch(form, argument, single)
        if peak is None or most is None:
            bents.append(_Bent(falls, rises, None, None))
            continue
        view, size = affine_view(form, argument), peak * most**2
        total = size if view is None else peak * float((csr(view.F).data ** 2).sum())
        bents.append(_Bent(falls, rises, size, total))
    return bents


def _bends(parts: Sequence[_Bent]) -> list[tuple[float, float]] | None:
    """Return, per term, bounds of its negative and positive second derivatives.

    The result is None if a bound is unknown.
    """
    ends = []
    for bent in parts:
        if bent.size is None:
            return None
        ends.append((bent.size if bent.falls else 0.0, bent.size if bent.rises else 0.0))
    return ends


def _squares_above(form: NormalForm, term: Term) -> list[Term] | None:
    r"""Return weighted squares whose Hessians bound the term's Hessian in magnitude, or None.

    Such squares are known for penalties that flatten out: for :math:`\phi(t)`, :math:`t = c +
    |v|^2`, with phi a power below 1 or a logarithm and c > 0, and for :math:`e^t`, :math:`t = c -
    |v|^2`. With :math:`a = |v|^2`, the Hessian in v has the eigenvalues :math:`\pm 2 \phi'(t)` and
    :math:`\pm 2 \phi'(t) + 4 a \phi''(t)`. No magnitude exceeds :math:`2 |\phi'(c)|`, the value of
    both at v = 0:

    * power p: divided by that value, and with :math:`b = a / c`, they are
      :math:`(1 + b)^{p-1} \le 1` and :math:`(1 + b)^{p-2} (1 + (2 p - 1) b)`. The second is at most
      1 in magnitude, too. For p in [0, 1), :math:`|1 + (2 p - 1) b| \le 1 + b`. For p < 0 this
      magnitude is at most the larger of 1 and :math:`(1 - 2 p) b - 1`. Now :math:`(1 + b)^{2-p}` is
      at least :math:`1 + (2 - p) b + (2 - p) (1 - p) b^2 / 2`. That bound minus
      :math:`(1 - 2 p) b - 1` is a quadratic in b without zeros, as its discriminant
      :math:`-3 p^2 + 14 p - 7` is negative.
    * logarithm: the same with p = 0.
    * exponential: :math:`e^{-a}` and :math:`(1 - 2 a) e^{-a}`, between :math:`-2 e^{-3/2}` and 1.
    """
    argument = term.atom.args[0]
    if argument.F is not None or argument.G or not argument.terms:
        return None
    slopes = _slopes(term.atom, argument.h)
    if slopes is None:
        return None
    sign = -1 if term.atom.rule.convex else 1
    weight = np.abs(term.weight) * slopes
    squares = []
    for j, M in argument.terms:
        inner, spread = form.atoms[j], csr(M)
        if (sign * spread.data < 0).any() or not inner.rule.of_squares(inner.data):
            return None
        squares.append(Term(inner, np.abs(spread).T @ weight))
    return squares


def _slopes(atom: Atom, c: Array) -> Array | None:
    """Return ``|phi'(c)|`` of an atom phi that flattens out, as in `_squares_above`, else None."""
    with np.errstate(over="ignore"):
        slopes = atom.rule.slope_above(c, atom.data)
    return slopes if slopes is not None and np.isfinite(slopes).all() else None


def _peak(form: NormalForm, term: Term) -> float | None:
    """Return a bound of the norm of a term's second derivative in its argument, or None."""
    atom, largest, last = term.atom, float(np.max(np.abs(term.weight))), None
    if atom.rule.of_squares(atom.data) and len(atom.args) == 2:
        divisor = affine_view(form, atom.args[1])
        last = divisor.h.item() if divisor is not None and divisor.constant else None
    return atom.rule.curvature(largest, atom.data, last)


def _stretch(form: NormalForm, u: Combination, single: bool) -> float | None:
    """Return a bound of the spectral norm of the derivative of u in x, or None.

    The bound holds for all admissible data.

    With `single`, only the entries of u that read one record count.
    """
    view = affine_view(form, u)
    if view is not None:
        return None if view.F is None else stretch(view.F)
    total = 0.0 if u.F is None else _of_record(form, u) if single else _below(u.F)
    apart = single and u.F is not None and _apart(form, u)
    for j, M in u.terms:
        atom = form.atoms[j]
        if atom.rule.is_identity(atom.data):
            inner = _stretch(form, atom.args[0], single)
        else:
            inner = _product_stretch(form, atom, single)
        if inner is None:
            return None
        added = _below(M) * inner
        # If u's affine part has other variables than the product, such as an intercept, squares of
        # both norms add up.
        total = math.hypot(total, added) if apart else total + added
    return total


def _of_record(form: NormalForm, u: Combination) -> float:
    """Return a bound of the spectral norm of those rows of ``u.F`` that belong to one record."""
    assert u.F is not None
    squares = np.asarray(csr(u.F).power(2).sum(axis=1)).ravel()
    counts = {form.private[k].shape[0] for j, _ in u.terms for k in form.reach(form.atoms[j])[1]}
    if len(counts) != 1 or squares.size % (rows := counts.pop()):
        return _below(u.F)
    return math.sqrt(float(squares.reshape(-1, rows).sum(axis=0).max(initial=0.0)))


def _apart(form: NormalForm, u: Combination) -> bool:
    """Return whether u has one product, and its variables are not in the affine part of u."""
    if len(u.terms) != 1:
        return False
    views = [affine_view(form, a) for a in form.atoms[u.terms[0][0]].args]
    parts = [csr(v.F).indices for v in views if v is not None and v.F is not None]
    if u.F is None or None in views or not parts:
        return False
    return not np.isin(csr(u.F).indices, np.concatenate(parts)).any()


def _product_stretch(form: NormalForm, atom: Atom, single: bool) -> float | None:
    """Return a bound of the spectral norm of a product's derivative in x, or None.

    One factor is affine in x, the other holds records of the largest norm. With `single`, only one
    record counts.
    """
    if atom.rule.product == "entry":
        for factor, other in (atom.args, atom.args[::-1]):
            largest = _largest(form, factor)
            if largest is not None and factor.shape == other.shape:
                most = _stretch(form, other, single)
                return None if most is None else largest * most
    if atom.rule.product != "matrix":
        return None
    for records, other in (atom.args, atom.args[::-1]):
        length, affine = _length(form, records, single), affine_view(form, other)
        if length is not None and affine is not None and not affine.G and affine.F is not None:
            return length * stretch(csr(affine.F))
    return None


def _below(M: Matrix) -> float:
    """Return a bound of a matrix's spectral norm from row and column sums.

    The bound is exact for matrices that select entries.
    """
    if isinstance(M, Identity):
        return 1.0
    size = np.abs(csr(M))
    most = float(size.sum(axis=0).max(initial=0.0)) * float(size.sum(axis=1).max(initial=0.0))
    return math.sqrt(most)


def _largest(form: NormalForm, u: Combination) -> float | None:
    """Return a bound of the largest entry of an array that is affine in records, or None."""
    if u.terms or u.F is not None:
        return None
    total = float(np.abs(u.h).max(initial=0.0)) if has_entries(u.h) else 0.0
    for k, G in u.G:
        adjacency = form.private[k].adjacency
        if not isinstance(adjacency, Rows):
            return None
        simple, widest = quick(G), 1.0
        if isinstance(simple, Diagonal):
            widest = float(np.abs(simple.values).max(initial=0.0))
        elif not isinstance(simple, Identity):
            widest = float(np.abs(csr(simple)).sum(axis=1).max(initial=0.0))
        total += widest * adjacency.max_norm
    return total


def _length(form: NormalForm, u: Combination, single: bool) -> float | None:
    """Return a bound of the Frobenius norm of a matrix that is affine in records, or None.

    With `single`, only the part of the matrix that reads one record counts.
    """
    if u.terms or u.F is not None:
        return None
    total = float(np.linalg.norm(u.h)) if has_entries(u.h) else 0.0
    for k, G in u.G:
        spec = form.private[k]
        if not isinstance(spec.adjacency, Rows):
            return None
        rows = spec.shape[0]
        longest = spec.adjacency.max_norm * spec.adjacency.stretch(2, spec.size // rows).item()
        total += _below(G) * math.sqrt(1 if single else rows) * longest
    return total


@derived_once
def convex(form: NormalForm) -> bool:
    """Return whether an objective that follows DCP is convex for all admissible data.

    The constants are checked, because DCP accepts ``quad_over_lin(x, -1)``, outside its domain, and
    ``quad_form(x, P, assume_PSD=True)`` for any P.
    """
    parts = quadratic(form)
    H, rest = sp.csr_array((parts.formed + parts.formed.T) / 2), [*parts.wide, *parts.rest]
    proved = parts.least.min(initial=0.0) >= 0  # without the cost of eigenvalues
    if not proved and eigenvalues(H, dense).min(initial=0.0) < -1e-12 * spectral_norm(H):
        return False
    if any(_peak(form, term) is not None and float(np.min(term.weight)) < 0 for term in rest):
        return False
    inner = {j for atom in form.atoms for argument in atom.args for j, _ in argument.terms}
    named = [*(t.atom for t in rest), *(form.atoms[j] for j in inner)]
    return all(_as_named(form, atom) and not _refused(form, atom) for atom in named)


def _refused(form: NormalForm, atom: Atom) -> bool:
    """Return whether an atom violates DCP for all constants, so the objective counts as nonconvex.

    Such atoms are products and quotients of two functions of x, and penalties that flatten out.
    """
    moving = [form.reach(replace(atom, args=(argument,)))[0] for argument in atom.args]
    if atom.rule.beyond_dcp(moving):
        return True
    weight = np.ones(math.prod(atom.shape))
    return any(moving) and _squares_above(form, Term(atom, weight)) is not None


def _as_named(form: NormalForm, atom: Atom) -> bool:
    """Return whether an atom that cvxpy's rules call convex is convex for its constants."""
    if not atom.rule.convex_by_numbers:
        return True
    fixed = affine_view(form, atom.args[-1])
    return atom.rule.convex_with(fixed.h if fixed is not None and fixed.constant else None)


@derived_once
def strong_convexity(form: NormalForm) -> float:
    """Return the smallest eigenvalue of the Hessian of the quadratic terms, at least 0.

    The eigenvalue is a modulus of strong convexity of the objective f, provided that all other
    terms are convex. For models with thousands of connected variables it is a lower bound of the
    eigenvalue.
    """
    if any(square.falls for square in _wide(form)):
        return 0.0
    parts = quadratic(form)
    modulus = max(float(eigenvalues(parts.formed, lowest).min()), float(parts.least.min()))
    # Rounding leaves eigenvalues of a singular matrix at 1e-16 of its norm.
    return modulus if modulus > 1e-12 * max(1.0, _formed_norm(form)) else 0.0
