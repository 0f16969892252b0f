"""What records contribute, by the entries of x that it reaches, and where they meet variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model.matrices import csr, without_zeros
from ..model.normal_form import Beside, NormalForm, row_lengths
from .intervals import row_sizes
from .record_atoms import shape_of

Array = NDArray[np.float64]


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


def beside_product(form: NormalForm, product: Site, taken: Site) -> Beside | None:
    """The affine part that is taken next to a product; None if it is not simply its neighbor.

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
    count = shape_of(form.atoms[product.atom].args[0], 0)[0]
    across = np.intersect1d(F.indices, without_zeros(csr(right)).indices)
    weight = np.abs(D.diagonal()).reshape((count, -1), order="F").max(axis=1)
    size = row_lengths(row_sizes(F, 2).reshape((count, -1), order="F"))
    return Beside((taken.atom, taken.argument), weight, size, apart=across.size == 0)
