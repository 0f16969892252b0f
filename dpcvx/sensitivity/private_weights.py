r"""Private weights of public functions: a Jacobian that depends on the point, not on the data.

A term :math:`\sum_e u_e(d)\, \varphi_e(x)` with u affine has a gradient that is linear in the data,
:math:`J(x)\,d` plus what is public. J is computed at a point; over a whole set it is not bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.atoms import MATMUL, MULTIPLY
from ..model.matrices import zeros
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.quadratic import Term

Array = NDArray[np.float64]

# Weights beyond this number would cost a gradient each in every step.
LARGEST = 1000


@dataclass(frozen=True, eq=False)
class Weights:
    """Terms that are linear in private weights.

    Attributes
    ----------
    form : NormalForm
        Of these terms only, without the public parts of the weights: linear in the data.
    members : frozenset of int
        Indices of the private parameters that occur in them.
    names : tuple of str
        Atoms, as users write them.
    """

    form: NormalForm
    members: frozenset[int]
    names: tuple[str, ...]

    def jacobians(self, x: Array) -> tuple[sp.csr_array, ...]:
        """J(x), one matrix of shape (n, size) per private parameter."""
        form = self.form
        zero = [np.zeros(spec.size) for spec in form.private]
        found = []
        for k, spec in enumerate(form.private):
            columns = np.zeros((form.n, spec.size))
            for i in range(spec.size) if k in self.members else ():
                unit = [d.copy() for d in zero]
                unit[k][i] = 1.0
                columns[:, i] = form.bind(unit).gradient(x)
            found.append(sp.csr_array(columns))
        return tuple(found)


def weighs(form: NormalForm, term: Term) -> bool:
    """Whether a term is a product of private data and a function of x without data."""
    atom = term.atom
    if atom.rule not in (MULTIPLY, MATMUL):
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


def weights(form: NormalForm, found: Sequence[Term]) -> Weights:
    """The given terms, all of which weigh, as a form of their own."""
    own = {id(term.atom) for term in found}
    kept = tuple((j, M) for j, M in form.root.terms if id(form.atoms[j]) in own)
    root = replace(form.root, F=None, G=(), h=np.zeros_like(form.root.h), terms=kept)
    atoms = tuple(_linear(form, atom) if id(atom) in own else atom for atom in form.atoms)
    members = frozenset[int]().union(*(form.reach(term.atom)[1] for term in found))
    names = tuple(dict.fromkeys(term.atom.written for term in found))
    return Weights(replace(form, atoms=atoms, root=root), members, names)


def _linear(form: NormalForm, atom: Atom) -> Atom:
    """The product without the public part of its weights."""
    args = (
        replace(argument, h=zeros(argument.h.size)) if _reach(form, argument)[1] else argument
        for argument in atom.args
    )
    return replace(atom, args=tuple(args))
