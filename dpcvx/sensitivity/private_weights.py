r"""Private weights of public functions: a gradient whose Jacobian depends on the point only.

A term :math:`\sum_e u_e(d)\, \varphi_e(x)` with u affine has a gradient that is linear in the data:
:math:`J(x)\,d` plus a public part. J is computed at one point; dpcvx has no bound of it over a set.
A quadratic form :math:`y' P y` of y = F x + h with a private matrix P is such a term, too. Its
gradient is :math:`F' (P + P') y`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.matrices import Matrix, csr, zeros
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.quadratic import Term

Array = NDArray[np.float64]

# Largest number of private weights: each costs a gradient in every step.
LARGEST = 1000


@dataclass(frozen=True, eq=False)
class Weights:
    """Terms of an objective that are linear in private weights of functions of x.

    Attributes
    ----------
    form : NormalForm
        Form of the products only, without the public parts of the weights: linear in the data.
    quadratic : tuple of Term
        Quadratic forms with a private matrix.
    members : frozenset of int
        Indices of the private parameters that occur in the terms.
    names : tuple of str
        Atoms of the terms, as users write them.
    """

    form: NormalForm
    quadratic: tuple[Term, ...]
    members: frozenset[int]
    names: tuple[str, ...]

    def jacobians(self, x: Array) -> tuple[sp.csr_array, ...]:
        """Return the gradient's Jacobian in the data at x, (n, size) per private parameter."""
        form = self.form
        zero = [np.zeros(spec.size) for spec in form.private]
        jacobians = []
        weighing = {k for j, _ in form.root.terms for k in form.reach(form.atoms[j])[1]}
        for k, spec in enumerate(form.private):
            columns = np.zeros((form.n, spec.size))
            for i in range(spec.size) if k in weighing else ():
                unit = [d.copy() for d in zero]
                unit[k][i] = 1.0
                columns[:, i] = form.bind(unit).gradient(x)
            J = sp.csr_array(columns)
            for term in self.quadratic:
                for j, G in term.atom.args[1].G:
                    J = J + _of_quadratic(term, x, G) if j == k else J
            jacobians.append(sp.csr_array(J))
        return tuple(jacobians)


def _of_quadratic(term: Term, x: Array, G: Matrix) -> sp.csr_array:
    """Return the derivative of ``F' (P + P') y`` in the data d, shape (n, size).

    P is the private matrix of a quadratic form of y, with entries ``G d``.
    """
    argument = term.atom.args[0]
    F = csr(argument.F)
    y = sp.csr_array((F @ x + argument.h)[None, :])
    eye = sp.eye_array(y.shape[1])
    # Column by column: P y = (y' kron I) vec P, and P' y = (I kron y') vec P.
    both = sp.kron(y, eye) + sp.kron(eye, y)
    return sp.csr_array(float(term.weight.item()) * (F.T @ (both @ csr(G))))


def is_private_quadratic(term: Term) -> bool:
    """Return whether a term is a quadratic form of an affine argument with a private matrix."""
    atom = term.atom
    if not atom.rule.quadratic_form:
        return False
    argument, matrix = atom.args
    return (
        argument.F is not None
        and not argument.G
        and not argument.terms
        and matrix.F is None
        and not matrix.terms
    )


def weighs(form: NormalForm, term: Term) -> bool:
    """Return whether a term is a product of private data and a function of x without data."""
    atom = term.atom
    if is_private_quadratic(term):
        return True
    if atom.rule.product is None:
        return False
    sides = [_reach(form, argument) for argument in atom.args]
    apart = all(not (on_x and on_d) for on_x, on_d in sides)
    data = [a for a, (_, on_d) in zip(atom.args, sides, strict=True) if on_d]
    return apart and len(data) == 1 and not data[0].terms


def _reach(form: NormalForm, u: Combination) -> tuple[bool, bool]:
    on_x, on_d = u.F is not None, bool(u.G)
    for j, _ in u.terms:
        inner_x, inner_d = form.reach(form.atoms[j])
        on_x, on_d = on_x or inner_x, on_d or bool(inner_d)
    return on_x, on_d


def weights(form: NormalForm, weighted: Sequence[Term]) -> Weights:
    """Return the given terms, all with private weights, as one form that is linear in the data."""
    quadratic = tuple(term for term in weighted if is_private_quadratic(term))
    linear = {id(term.atom) for term in weighted if term not in quadratic}
    terms = tuple((j, M) for j, M in form.root.terms if id(form.atoms[j]) in linear)
    root = replace(form.root, F=None, G=(), h=np.zeros_like(form.root.h), terms=terms)
    atoms = tuple(_linear(form, atom) if id(atom) in linear else atom for atom in form.atoms)
    members = frozenset[int]().union(*(form.reach(term.atom)[1] for term in weighted))
    names = tuple(dict.fromkeys(term.atom.written for term in weighted))
    return Weights(replace(form, atoms=atoms, root=root), quadratic, members, names)


def _linear(form: NormalForm, atom: Atom) -> Atom:
    """Return a product of private weights and a function without the weights' public part."""
    args = (
        replace(argument, h=zeros(argument.h.size)) if _reach(form, argument)[1] else argument
        for argument in atom.args
    )
    return replace(atom, args=tuple(args))
