r"""Second-order facts of a normal form: Hessian of its quadratic part, cross-derivative, constants.

An atom that the objective reaches through linear operations only has a constant weight; if it is
quadratic in affine arguments, its second derivatives are constant matrices. `quadratic_terms`
lists these, everything in this package that needs curvature is a sum over them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .atoms import (
    DIVIDE,
    EXP,
    HUBER,
    LOG,
    LOG1P,
    LOG_SUM_EXP,
    LOGISTIC,
    MATMUL,
    MULTIPLY,
    POWER,
    QUAD_FORM,
    QUAD_OVER_LIN,
    Rule,
)
from .matrices import Array, Identity, Matrix, as_array, csr, diagonal
from .normal_form import Atom, Combination, NormalForm
from .private import Rows

# Largest second derivative of smooth convex atoms, as a multiple of the identity in the argument.
_CURVATURE: dict[Rule, float] = {LOGISTIC: 0.25, HUBER: 2.0, LOG_SUM_EXP: 0.5}
# Covers the rounding of largest eigenvalues and norms, wherever a proof rests on them.
SLACK = 1 + 1e-10
# Up to this order eigenvalues are computed densely.
_DENSE_ORDER = 1500
# Entries of blocks of one size whose eigenvalues are computed together.
_BATCH = 2_000_000


@dataclass(frozen=True, eq=False)
class Term:
    """An outer atom of the root with its constant weight, one number per entry of its value."""

    atom: Atom
    weight: Array


@dataclass(frozen=True, eq=False)
class Bilinear:
    """``1/2 z'B z`` or ``u'B v`` of affine arguments, whose second derivative is constant.

    ``d2(term)[p, q] = sum over (u, B, v) of D_p u' B D_q v + D_p v' B' D_q u`` with D the
    derivative; a square contributes u = v and half of its Hessian.
    """

    u: Combination
    B: sp.csr_array
    v: Combination


@dataclass(frozen=True, eq=False)
class Curvature:
    """Second derivatives in x, for all admissible data and all points.

    Attributes
    ----------
    center : csr_array, shape (n, n)
        Symmetric.
    spread : float
        They differ from it by at most that, in the spectral norm.
    """

    center: sp.csr_array
    spread: float

    @property
    def ends(self) -> tuple[float, float]:
        """Between them lie their eigenvalues."""
        values = _eigenvalues(self.center, _both_ends)
        return float(values.min()) - self.spread, float(values.max()) + self.spread


def terms(form: NormalForm) -> list[Term]:
    """Atoms of the root with their weights."""
    return [Term(form.atoms[j], np.ravel(as_array(M))) for j, M in form.root.terms]


def bilinear(form: NormalForm, term: Term) -> Bilinear | None:
    """The term as a bilinear form of affine arguments with a data-free matrix, or None."""
    atom, w = term.atom, term.weight
    args = [_affine_view(form, a) for a in atom.args]
    if any(a is None for a in args):
        return None
    u = args[0]
    v = args[1] if len(args) > 1 else None
    assert u is not None
    if _squares(atom):
        return Bilinear(u, diagonal(w), u)
    if atom.rule is QUAD_OVER_LIN and v is not None and v.constant:
        axis, keepdims = atom.data
        scale = (w / v.h.item()).reshape(atom.shape, order="F")
        wide = scale if axis is None or keepdims else np.expand_dims(scale, axis)
        spread = np.ravel(np.broadcast_to(wide, u.shape), order="F")
        return Bilinear(u, diagonal(spread), u)
    if atom.rule is QUAD_FORM and v is not None and v.constant:
        P = v.h.reshape(v.shape, order="F")
        return Bilinear(u, sp.csr_array(w.item() * (P + P.T) / 2), u)
    if atom.rule is MULTIPLY and v is not None and u.shape == v.shape:
        return Bilinear(u, diagonal(w), v)
    if atom.rule is MATMUL and v is not None:
        return Bilinear(u, _matmul_weights(w, u, v), v)
    return None


def hessian(form: NormalForm) -> tuple[sp.csr_array, list[Term]]:
    """Hessian in x of the quadratic part, and the terms in x that are not quadratic."""
    H = sp.csr_array((form.n, form.n))
    rest: list[Term] = []
    for term in terms(form):
        if not form.reach(term.atom)[0]:
            continue
        parts = bilinear(form, term)
        if parts is None:
            rest.append(term)
        else:
            H = H + _second(parts, lambda c: c.F, lambda c: c.F, (form.n, form.n))
    return sp.csr_array(H), rest


def cross(form: NormalForm, parts: Bilinear, k: int) -> sp.csr_array:
    """Derivative of the term's gradient in x with respect to private parameter k, (n, size)."""
    shape = (form.n, form.private[k].size)
    return _second(parts, lambda c: c.F, lambda c: dict(c.G).get(k), shape)


def smoothness(form: NormalForm) -> float | None:
    """A Lipschitz constant L of the gradient in x that holds for all admissible data, or None.

    The objective need not be convex: weights may be negative, and the penalties of
    `_squares_above`, such as ``1 - cp.inv_pos(1 + cp.square(x))``, have a constant. Products with
    private records count with the largest norm that these may have together.
    """
    H, rest = hessian(form)
    parts = _bends(form, rest)
    return None if parts is None else sum((max(part) for part in parts), _norm2(H))


def curvature(form: NormalForm) -> Curvature | None:
    """What is known of second derivatives in x for all admissible data, where `smoothness` is."""
    H, rest = hessian(form)
    parts = _bends(form, rest)
    if parts is None:
        return None
    down, up = (sum(side) for side in zip(*parts, strict=True)) if parts else (0.0, 0.0)
    middle = sp.eye_array(form.n, format="csr") * ((up - down) / 2)
    return Curvature(sp.csr_array((H + H.T) / 2 + middle), (up + down) / 2)


def record_smoothness(form: NormalForm) -> float | None:
    """A Lipschitz constant of the gradient's change by the change of one record, or None.

    Second derivatives of convex losses lie between 0 and their largest, before the change and
    after it, so that these differ by no more; others may have opposite signs.
    """
    _, rest = hessian(form)
    parts = _bends(form, [term for term in rest if form.reach(term.atom)[1]], single=True)
    return None if parts is None else sum(down + up for down, up in parts)


def _bends(
    form: NormalForm, rest: list[Term], single: bool = False
) -> list[tuple[float, float]] | None:
    """Per term, the largest of its negative and of its positive second derivatives in x.

    With `single`, of what reads one record.
    """
    found = []
    for term in rest:
        squares = _squares_above(form, term)
        for part in [term] if squares is None else squares:
            peak = _peak(form, part)
            stretch = _stretch(form, part.atom.args[0], single)
            if peak is None or stretch is None:
                return None
            size = peak * stretch**2
            # An affine argument of a convex function, if not known to be something else.
            convex = squares is None and float(np.min(part.weight)) >= 0
            concave = squares is None and float(np.max(part.weight)) <= 0
            found.append((0.0 if convex else size, 0.0 if concave else size))
    return found


def _squares_above(form: NormalForm, term: Term) -> list[Term] | None:
    r"""Weighted squares that bend at least as much as the term, either way; None if none are known.

    They are known for :math:`\phi(t)`, :math:`t = c + |v|^2`, with phi a power below 1 or a
    logarithm and c > 0, and for :math:`e^t`, :math:`t = c - |v|^2`: penalties that level off. With
    :math:`a = |v|^2`, the Hessian in v has the eigenvalues :math:`\pm 2 \phi'(t)` and
    :math:`\pm 2 \phi'(t) + 4 a \phi''(t)`. None exceeds :math:`2 |\phi'(c)|`, what both are at
    v = 0:

    * power p: divided by that, and with :math:`b = a / c`, they are :math:`(1 + b)^{p-1} \le 1` and
      :math:`(1 + b)^{p-2} (1 + (2 p - 1) b)`. The second is at most 1, too. For p in [0, 1),
      :math:`|1 + (2 p - 1) b| \le 1 + b`. For p < 0 it is at most 1, or
      :math:`(1 - 2 p) b - 1`, and from that to the lower bound
      :math:`1 + (2 - p) b + (2 - p) (1 - p) b^2 / 2` of :math:`(1 + b)^{2-p}` there is a quadratic
      in b without zeros: its discriminant is :math:`-3 p^2 + 14 p - 7`.
    * logarithm: the same with p = 0.
    * exponential: :math:`e^{-a}` and :math:`(1 - 2 a) e^{-a}`, between :math:`-2 e^{-3/2}` and 1.
    """
    argument = term.atom.args[0]
    if argument.F is not None or argument.G or not argument.terms:
        return None
    slopes = _slopes(term.atom, argument.h)
    if slopes is None:
        return None
    weight, sign = np.abs(term.weight) * slopes, -1 if term.atom.rule is EXP else 1
    found = []
    for j, M in argument.terms:
        inner, spread = form.atoms[j], csr(M)
        if (sign * spread.data < 0).any() or not (_squares(inner) or inner.rule is QUAD_OVER_LIN):
            return None
        found.append(Term(inner, np.abs(spread).T @ weight))
    return found


def _slopes(atom: Atom, c: Array) -> Array | None:
    """``|phi'(c)|`` for the functions of `_squares_above`, None for others."""
    with np.errstate(over="ignore"):
        if atom.rule is EXP:
            slopes = np.exp(c)
        elif atom.rule in (LOG, LOG1P) or (atom.rule is POWER and atom.data[0] < 1):
            c = 1 + c if atom.rule is LOG1P else c
            if not (c > 0).all():
                return None
            slopes = abs(atom.data[0]) * c ** (atom.data[0] - 1.0) if atom.data else 1 / c
        else:
            return None
    return slopes if np.isfinite(slopes).all() else None


def _squares(atom: Atom) -> bool:
    return atom.rule is POWER and atom.data[0] == 2


def _peak(form: NormalForm, term: Term) -> float | None:
    """Largest second derivative of a term in its argument, as a multiple of the identity."""
    atom, largest = term.atom, float(np.max(np.abs(term.weight)))
    if _squares(atom):
        return 2 * largest
    if atom.rule is QUAD_OVER_LIN:
        v = _affine_view(form, atom.args[1])
        return 2 * largest / v.h.item() if v is not None and v.constant and v.h.item() > 0 else None
    curvature = _CURVATURE.get(atom.rule)
    return None if curvature is None else curvature * largest


def _stretch(form: NormalForm, u: Combination, single: bool) -> float | None:
    """Bound of the spectral norm of u's derivative in x, for all admissible data.

    With `single`, of the entries that read one record.
    """
    view = _affine_view(form, u)
    if view is not None:
        return None if view.F is None else math.sqrt(_norm2(sp.csr_array(view.F.T @ view.F)))
    total = 0.0 if u.F is None else _below(u.F)
    for j, M in u.terms:
        product = _product_stretch(form, form.atoms[j], single)
        if product is None:
            return None
        total += _below(M) * product
    return total


def _product_stretch(form: NormalForm, atom: Atom, single: bool) -> float | None:
    """The same of a product of records, as long as they may be, with affine arguments."""
    if atom.rule is MULTIPLY:
        for factor, other in (atom.args, atom.args[::-1]):
            largest = _largest(form, factor)
            if largest is not None and factor.shape == other.shape:
                stretch = _stretch(form, other, single)
                return None if stretch is None else largest * stretch
    if atom.rule is not MATMUL:
        return None
    for records, other in (atom.args, atom.args[::-1]):
        length, stretch = _length(form, records, single), _affine_view(form, other)
        if length is not None and stretch is not None and not stretch.G and stretch.F is not None:
            F = csr(stretch.F)
            return length * math.sqrt(_norm2(sp.csr_array(F.T @ F)))
    return None


def _below(M: Matrix) -> float:
    """Bound of the spectral norm without a product: exact for selections."""
    if isinstance(M, Identity):
        return 1.0
    size = np.abs(csr(M))
    most = float(size.sum(axis=0).max(initial=0.0)) * float(size.sum(axis=1).max(initial=0.0))
    return math.sqrt(most)


def _largest(form: NormalForm, u: Combination) -> float | None:
    """Bound of the largest entry of an array that is affine in records; None if there is none."""
    if u.terms or u.F is not None:
        return None
    total = float(np.abs(u.h).max(initial=0.0))
    for k, G in u.G:
        adjacency = form.private[k].adjacency
        if not isinstance(adjacency, Rows):
            return None
        widest = 1.0
        if not isinstance(G, Identity):
            widest = float(np.abs(csr(G)).sum(axis=1).max(initial=0.0))
        total += widest * adjacency.bound
    return total


def _length(form: NormalForm, u: Combination, single: bool) -> float | None:
    """Bound of the Frobenius norm of a matrix that is affine in records; None if there is none.

    With `single`, of what reads one record.
    """
    if u.terms or u.F is not None:
        return None
    total = float(np.linalg.norm(u.h))
    for k, G in u.G:
        spec = form.private[k]
        if not isinstance(spec.adjacency, Rows):
            return None
        rows = spec.shape[0]
        longest = spec.adjacency.bound * spec.adjacency.stretch(2, spec.size // rows).item()
        total += _below(G) * math.sqrt(1 if single else rows) * longest
    return total


def convex(form: NormalForm) -> bool:
    """Whether the objective, which cvxpy takes for convex, is so for all admissible data.

    Checked on the numbers: cvxpy takes ``quad_over_lin(x, -1)`` for convex, outside its domain, and
    ``quad_form(x, P, assume_PSD=True)`` whatever P is.
    """
    H, rest = hessian(form)
    H = sp.csr_array((H + H.T) / 2)
    if _eigenvalues(H, _dense).min(initial=0.0) < -1e-12 * _norm2(H):
        return False
    if any(_peak(form, term) is not None and float(np.min(term.weight)) < 0 for term in rest):
        return False
    inner = {j for atom in form.atoms for argument in atom.args for j, _ in argument.terms}
    named = [*(t.atom for t in rest), *(form.atoms[j] for j in inner)]
    return all(_as_named(form, atom) and not _refused(form, atom) for atom in named)


def _refused(form: NormalForm, atom: Atom) -> bool:
    """Whether cvxpy knows the atom neither as convex nor as concave in x, whatever its constants.

    It is then not asked, so that functions of x which are smooth but not convex stay what they are:
    products and quotients of two functions of x, and penalties that level off.
    """
    moving = [form.reach(replace(atom, args=(argument,)))[0] for argument in atom.args]
    if atom.rule in (MULTIPLY, MATMUL):
        return all(moving)
    if atom.rule is DIVIDE:
        return moving[1]
    weight = np.ones(math.prod(atom.shape))
    return any(moving) and _squares_above(form, Term(atom, weight)) is not None


def _as_named(form: NormalForm, atom: Atom) -> bool:
    """Whether an atom that cvxpy takes for convex is convex with the numbers in it."""
    if atom.rule not in (QUAD_OVER_LIN, QUAD_FORM):
        return True
    fixed = _affine_view(form, atom.args[1])
    if fixed is None or not fixed.constant:
        return False
    if atom.rule is QUAD_OVER_LIN:
        return fixed.h.item() > 0
    P = fixed.h.reshape(fixed.shape, order="F")
    values = np.linalg.eigvalsh((P + P.T) / 2)
    return bool(values[0] >= -1e-12 * np.abs(values).max())


def strong_convexity(form: NormalForm) -> float:
    """The smallest eigenvalue of the quadratic part's Hessian, at least 0.

    A modulus of strong convexity of f provided that the other terms are convex.
    """
    H, _ = hessian(form)
    lowest = float(_eigenvalues(H, _smallest).min())
    # Rounding leaves eigenvalues of a singular matrix at 1e-16 of its norm.
    return lowest if lowest > 1e-12 * max(1.0, _norm2(H)) else 0.0


def round_down(lowest: float, highest: float) -> float:
    """What rounding, relative to the highest eigenvalue, cannot have made of a lower lowest one."""
    return min(lowest / SLACK, lowest - 1e-13 * highest)


def _norm2(H: sp.csr_array) -> float:
    return float(np.abs(_eigenvalues(H, _gershgorin)).max(initial=0.0))


def _eigenvalues(H: sp.csr_array, large: Callable[[sp.csr_array], Array]) -> Array:
    """Eigenvalues of a symmetric matrix, block by block; of large blocks what `large` gives."""
    _, label = connected_components(H, directed=False)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label)
    found = [H.diagonal()[sizes[label] == 1]]
    ordered = sp.coo_array(sp.csr_array(H[order][:, order]))
    row, column = ordered.coords
    starts = np.cumsum(sizes) - sizes
    block = label[order][row]
    for size in np.unique(sizes[sizes > 1]):
        alike = np.flatnonzero(sizes == size)
        dense = size <= _DENSE_ORDER
        parts = math.ceil(alike.size * int(size) ** 2 / _BATCH) if dense else alike.size
        for some in np.array_split(alike, min(parts, alike.size)):
            entries = np.flatnonzero(np.isin(block, some))
            own, first = block[entries], starts[block[entries]]
            place = np.searchsorted(some, own), row[entries] - first, column[entries] - first
            values = ordered.data[entries]
            if dense:
                stack = np.zeros((some.size, size, size))
                np.add.at(stack, place, values)
                found.append(np.linalg.eigvalsh(stack).ravel())
            else:
                part = sp.csr_array((values, place[1:]), shape=(size, size))
                found.append(large(part))
    return np.concatenate(found)


def _dense(H: sp.csr_array) -> Array:
    return np.asarray(np.linalg.eigvalsh(H.toarray()), dtype=np.float64)


def _smallest(H: sp.csr_array) -> Array:
    from scipy.sparse.linalg import eigsh

    start = np.sin(1.0 + np.arange(H.shape[0]))  # or a random one: equal models would differ
    return np.asarray(eigsh(H, k=1, which="SA", v0=start, return_eigenvectors=False))


def _gershgorin(H: sp.csr_array) -> Array:
    """An upper bound of the norm at any size."""
    return np.abs(H).sum(axis=1).max(keepdims=True)


def _both_ends(H: sp.csr_array) -> Array:
    largest = _gershgorin(H)
    return np.concatenate([-largest, largest])


def _second(
    parts: Bilinear,
    rows: Callable[[Combination], Matrix | None],
    columns: Callable[[Combination], Matrix | None],
    shape: tuple[int, int],
) -> sp.csr_array:
    total = sp.csr_array(shape)
    pairs = ((parts.u, parts.B, parts.v), (parts.v, parts.B.T, parts.u))
    for left, B, right in pairs:
        R, C = rows(left), columns(right)
        if R is not None and C is not None:
            total = total + sp.csr_array(R.T @ (B @ C))
    return sp.csr_array(total)


def _affine_view(form: NormalForm, combination: Combination) -> Combination | None:
    """The combination with structured linear products expanded, or None if it is not affine."""
    if combination.affine:
        return combination
    F, G, h = combination.F, dict(combination.G), combination.h.copy()
    for j, M in combination.terms:
        expanded = _expand(form, form.atoms[j])
        if expanded is None:
            return None
        own = csr(M @ expanded.F) if expanded.F is not None else None
        F = own if F is None else F if own is None else csr(F) + own
        for k, part in expanded.G:
            image = csr(M @ part)
            G[k] = csr(G[k]) + image if k in G else image
        h = h + M @ expanded.h
    return Combination(combination.shape, F, tuple(G.items()), h)


def _expand(form: NormalForm, atom: Atom) -> Combination | None:
    """A product with one constant side as an affine combination."""
    if atom.rule is not MATMUL or not any(a.constant for a in atom.args):
        return None
    left, right = (_affine_view(form, a) for a in atom.args)
    if left is None or right is None:
        return None
    L = left.h.reshape(left.shape, order="F")
    R = right.h.reshape(right.shape, order="F")
    if left.constant:
        copies = right.h.size // R.shape[0]
        M, u = sp.kron(sp.eye_array(copies), np.atleast_2d(L), format="csr"), right
    else:
        copies = left.h.size // L.shape[-1]
        R = R if R.ndim == 2 else R[:, None]
        M, u = sp.kron(R.T, sp.eye_array(copies), format="csr"), left
    F = None if u.F is None else csr(M @ u.F)
    return Combination(atom.shape, F, tuple((k, csr(M @ g)) for k, g in u.G), M @ u.h)


def _matmul_weights(w: Array, u: Combination, v: Combination) -> sp.csr_array:
    """B with ``sum(W * (L @ R)) = vec(L)' B vec(R)``."""
    inner = u.shape[-1]
    rows = u.h.size // inner
    W = w.reshape((rows, v.h.size // inner), order="F")
    # Column-major: entry (i, k) of L is i + rows * k, entry (k, j) of R is k + inner * j.
    k, j = np.meshgrid(np.arange(inner), np.arange(W.shape[1]), indexing="ij")
    blocks = [
        sp.coo_array(
            (
                np.broadcast_to(W[i], k.shape).ravel(),
                ((i + rows * k).ravel(), (k + inner * j).ravel()),
            ),
            shape=(u.h.size, v.h.size),
        )
        for i in range(rows)
    ]
    total: Any = blocks[0].tocsr()
    for block in blocks[1:]:
        total = total + block.tocsr()
    return sp.csr_array(total)
