r"""Quadratic part of a normal form: atoms whose second derivatives are constant matrices.

An atom that the objective reaches through linear operations only has a constant weight; if it is
quadratic in affine arguments, its second derivatives are constant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from .matrices import (
    Array,
    Diagonal,
    Matrix,
    Sparse,
    as_array,
    csr,
    is_wide,
    least_by_rows,
    quick,
    scaled_rows,
    without_zeros,
)
from .normal_form import Atom, Combination, Evaluator, NormalForm, derived_once

# Steps of two difference quotients, relative to the scale of x, and the tolerance between them.
_DIFFERENCES = (1e-4, 1e-5)
_SMOOTH = 1e-3
# Mixed derivatives with more entries are stored by column, without sorting.
_MANY = 1 << 18


@dataclass(frozen=True, eq=False)
class Term:
    """An atom in the objective's sum, with its weight: one number per entry of its value."""

    atom: Atom
    weight: Array


@dataclass(frozen=True, eq=False)
class Bilinear:
    """Bilinear form ``u'B v`` of combinations u and v that are affine in x and data.

    Second derivatives of the form are constant. Its second derivative by p and q is
    ``D_p u' B D_q v + D_p v' B' D_q u``, with the derivatives D_p u of u by p and so on. For a
    quadratic form u is v, and B is half of its Hessian in u.
    """

    u: Combination
    B: sp.csr_array
    v: Combination


def terms(form: NormalForm) -> list[Term]:
    """Return the atoms that the objective sums, with their weights."""
    return [Term(form.atoms[j], np.ravel(as_array(M))) for j, M in form.root.terms]


def bilinear(form: NormalForm, term: Term) -> Bilinear | None:
    """Return a term as a bilinear form of affine arguments with a public matrix, or None."""
    atom = term.atom
    if not atom.rule.is_bilinear(atom.data):  # before arguments are expanded
        return None
    views = [affine_view(form, argument) for argument in atom.args]
    args = [view for view in views if view is not None]
    if len(args) < len(views):
        return None
    last = args[1].h if len(args) == 2 and args[1].constant else None
    shapes = [argument.shape for argument in args]
    made = atom.rule.bilinear(term.weight, atom.data, shapes, last, atom.shape)
    if made is None:
        return None
    B, k = made
    return Bilinear(args[0], B, args[k])


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Terms of an objective that depend on x, sorted by what is known of their Hessians.

    Attributes
    ----------
    formed : csr_array, shape (n, n)
        Constant Hessian of all quadratic terms but those in `wide`.
    least : ndarray, shape (n,)
        Diagonal of a diagonal matrix D with `formed` - D positive semidefinite, found term by term.
    wide : list of Term
        Squares of so many entries of x that their second derivatives are not formed.
    rest : list of Term
        Terms that are not quadratic.
    """

    formed: sp.csr_array
    least: Array
    wide: list[Term]
    rest: list[Term]


@derived_once
def quadratic(form: NormalForm) -> Quadratic:
    """Return the objective's terms that depend on x, sorted as in `Quadratic`."""
    shape = (form.n, form.n)
    H, least = sp.csr_array(shape), np.zeros(form.n)
    wide: list[Term] = []
    rest: list[Term] = []
    for term in terms(form):
        if not form.reach(term.atom)[0]:
            continue
        parts = bilinear(form, term)
        if parts is None:
            rest.append(term)
        elif (
            parts.u is parts.v
            and term.atom.rule.of_squares(term.atom.data)
            and is_wide(csr(parts.u.F))
        ):
            wide.append(term)
        else:
            second = _second(parts, lambda c: c.F, lambda c: c.F, shape)
            rows = least_by_rows(second)
            rises = parts.u is parts.v and least_by_rows(parts.B).min() >= 0
            least += 0.0 if rises and rows.min() < 0 else rows
            H = H + second
    return Quadratic(sp.csr_array(H), least, wide, rest)


@derived_once
def hessian(form: NormalForm) -> tuple[sp.csr_array, list[Term]]:
    """Return the Hessian in x of all quadratic terms, and the list of all other terms with x."""
    split = quadratic(form)
    H = split.formed
    for term in split.wide:
        parts = bilinear(form, term)
        assert parts is not None
        H = H + _second(parts, lambda c: c.F, lambda c: c.F, H.shape)
    return sp.csr_array(H), split.rest


def hessian_at(form: NormalForm, x: Array, scale: Array) -> sp.csr_array:
    """Return the objective's Hessian at a public point, or that of its quadratic terms alone.

    The quadratic terms alone are used if another term contains private data, or if second
    derivatives may jump at the point.

    Parameters
    ----------
    form : NormalForm
    x : ndarray, shape (n,)
    scale : ndarray, shape (n,)
        Size of each component, for differences.

    Returns
    -------
    csr_array, shape (n, n)
        Hessian of the quadratic terms plus a positive semidefinite matrix.
    """
    H, rest = hessian(form)
    if not rest or any(form.reach(term.atom)[1] for term in rest):
        return H
    gradient = form.at_zero().gradient
    with np.errstate(all="ignore"):
        near, nearer = (
            _differences(gradient, x, part * scale) - H.toarray() for part in _DIFFERENCES
        )
    bend = np.abs(near.diagonal())
    unit = np.sqrt(np.where(bend > 0, bend, 1.0))
    near, nearer = near / np.outer(unit, unit), nearer / np.outer(unit, unit)
    # At kinks, and where the domain ends, one is many times the other.
    if not np.abs(near - nearer).max() <= _SMOOTH * np.abs(near).max():
        return H
    values, vectors = np.linalg.eigh(near)
    more = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return sp.csr_array(H + sp.csr_array(more * np.outer(unit, unit)))


def _differences(gradient: Callable[[Array], Array], x: Array, steps: Array) -> Array:
    columns = [
        (gradient(x + step) - gradient(x - step)) / (2 * size)
        for step, size in zip(np.diag(steps), steps, strict=True)
    ]
    matrix = np.array(columns)
    return (matrix + matrix.T) / 2


def curved(form: NormalForm) -> list[int]:
    """Return indices of the objective's terms whose Hessians may depend on private data."""
    return [
        k
        for k, term in enumerate(terms(form))
        if all(form.reach(term.atom)) and bilinear(form, term) is None
        if not straight(form, term.atom)
    ]


def straight(form: NormalForm, atom: Atom) -> bool:
    """Return whether an atom is affine in x for all data: at most one factor has variables."""
    if atom.rule.product is None and not atom.rule.is_identity(atom.data):
        return not form.reach(atom)[0]
    moving = [u for u in atom.args if form.reach(replace(atom, args=(u,)))[0]]
    return len(moving) <= 1 and all(
        straight(form, form.atoms[j]) for u in moving for j, _ in u.terms
    )


@derived_once
def is_quadratic_given_data(form: NormalForm) -> bool:
    """Return whether terms with data-dependent Hessians are quadratic in x for given data.

    See `curved` for these terms.
    """
    inserted = form.at_zero().inserted()
    found_terms = terms(inserted)
    return all(bilinear(inserted, found_terms[k]) is not None for k in curved(form))


def data_curvature(form: NormalForm, objective: Evaluator) -> sp.csr_array:
    """Return the objective's Hessian minus its Hessian for data of zeros, shape (n, n).

    Parameters
    ----------
    form : NormalForm
        Form that satisfies `is_quadratic_given_data`.
    objective : Evaluator
        The form with data inserted; the result is as private as the data.
    """
    shape = (form.n, form.n)
    total = sp.csr_array(shape)
    picked = curved(form)
    for bound, sign in ((objective, 1.0), (form.at_zero(), -1.0)):
        inserted = bound.inserted()
        found_terms = terms(inserted)
        for k in picked:
            parts = bilinear(inserted, found_terms[k])
            assert parts is not None
            total = total + sign * _second(parts, lambda c: c.F, lambda c: c.F, shape)
    return sp.csr_array((total + total.T) / 2)


def cross(form: NormalForm, parts: Bilinear, k: int) -> Sparse:
    """Return the derivative by data k of the gradient of a bilinear term, shape (n, size).

    A derivative with many entries is stored by column: its columns are the rows of the argument u.
    """
    wide = _by_columns(parts, k) if parts.u is parts.v else None
    if wide is not None:
        return wide
    shape = (form.n, form.private[k].size)
    return _second(parts, lambda c: c.F, lambda c: dict(c.G).get(k), shape)


def _by_columns(parts: Bilinear, k: int) -> sp.csc_array | None:
    """Return the derivative of `cross`, by column, for squares of ``F x + g * d``.

    The result is None for other terms, or for few entries.
    """
    F, G = parts.u.F, dict(parts.u.G).get(k)
    if G is None or F is None or isinstance(F, np.ndarray):
        return None
    rows = csr(F)
    if rows.nnz <= _MANY:
        return None
    weight = quick(sp.csr_array(parts.B @ csr(G)))
    if not isinstance(weight, Diagonal):
        return None
    values = scaled_rows(rows, 2 * (weight @ np.ones(rows.shape[0])))
    return sp.csc_array((values, rows.indices, rows.indptr), shape=rows.shape[::-1])


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


def affine_view(form: NormalForm, combination: Combination) -> Combination | None:
    """Return a combination with its linear products expanded, or None if it is not affine."""
    if combination.affine:
        return combination
    F, G, h = combination.F, dict(combination.G), combination.h.copy()
    for j, M in combination.terms:
        expanded = _expand(form, form.atoms[j])
        if expanded is None:
            return None
        inner = csr(M @ expanded.F) if expanded.F is not None else None
        F = inner if F is None else F if inner is None else csr(F) + inner
        for k, part in expanded.G:
            image = csr(M @ part)
            G[k] = csr(G[k]) + image if k in G else image
        h = h + M @ expanded.h
    return Combination(combination.shape, F, tuple(G.items()), h)


def _expand(form: NormalForm, atom: Atom) -> Combination | None:
    """Return a product atom with one constant side as an affine combination; None for others.

    An atom that equals its argument is expanded, too.
    """
    if atom.rule.is_identity(atom.data):
        return affine_view(form, atom.args[0])
    if atom.rule.product != "matrix" or not any(a.constant for a in atom.args):
        return None
    left, right = (affine_view(form, a) for a in atom.args)
    if left is None or right is None:
        return None
    k, u, fixed = (1, right, left) if left.constant else (0, left, right)
    C = fixed.h.reshape(fixed.shape, order="F")
    M = without_zeros(atom.rule.linear_map(k, C, [left.shape, right.shape]))
    F = None if u.F is None else csr(M @ u.F)
    return Combination(atom.shape, F, tuple((k, csr(M @ g)) for k, g in u.G), M @ u.h)
