r"""One-time release of the second moments of records, in place of the records.

A term :math:`\|\alpha X Z(x) - \gamma Y\|^2` depends on the records only by the moments
:math:`[X, Y]'[X, Y]` (X'X, X'Y and Y'Y for least squares). They are released once with noise, and
projected onto the positive semidefinite matrices. A factor of the projection replaces the records
in every further computation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._words import at_least, at_most
from ..errors import PrivacyError
from ..model.adjacency import Rows
from ..model.matrices import Matrix, csr, has_entries
from ..model.normal_form import Atom, Combination, NormalForm
from ..model.quadratic import terms
from ..model.spec import PrivateSpec
from .certificate import Sensitivity
from .norms import of_person

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of an agent's records as a statistic that is released once with noise.

    Surrogate records are recovered from the noisy moments.
    """

    private: tuple[PrivateSpec, ...]  # the parts of the records, all with the same number of rows
    radii: tuple[float, ...]  # bounds of the l2 norms of their rows
    sensitivity: float  # sensitivity of the statistic, in the mechanism's norm

    kind = "second moments"
    whole = False  # the statistic does not determine the records

    @property
    def order(self) -> int:
        """Number of columns of all parts of the records together."""
        return sum(_width(spec) for spec in self.private)

    @property
    def size(self) -> int:
        """Number of released components of the moments."""
        return self.order * (self.order + 1) // 2

    def statistic(self, data: Sequence[Array]) -> Array:
        """Return the records' moments V'V: the upper triangle, off-diagonal entries times sqrt(2).

        The factors keep the norm of V'V. V has the parts of the records side by side, each in units
        of its own bound, so that the rows of V have a norm of at most one.
        """
        V = np.hstack(
            [
                part.reshape((spec.shape[0], _width(spec)), order="F") / unit
                for part, spec, unit in zip(data, self.private, self._units, strict=True)
            ]
        )
        return triangle(V)

    def restore(self, released: Array) -> list[Array]:
        """Return surrogate records with the admissible moments closest to the released ones."""
        m = self.private[0].shape[0]
        rows = closest_rows(released, self.order, m)
        V = np.zeros((m, self.order))
        V[: len(rows)] = rows
        ends = np.cumsum([_width(spec) for spec in self.private])[:-1]
        parts = np.split(V, ends, axis=1)
        return [
            (part * unit).ravel(order="F") for part, unit in zip(parts, self._units, strict=True)
        ]

    def around(self, released: Array, noise: Array) -> list[Array]:
        """Return surrogate records for the released moments with additional noise."""
        return self.restore(released + noise)

    def unlimited(self, released: Array) -> Array:
        """Return the released moments without a projection onto admissible moments."""
        return released

    def moved(self, p: int) -> str:
        """Return text on the released moments' lp change by one change of the data."""
        return (
            f"one change moves the released second moments by at most {at_most(self.sensitivity)} "
            f"in l{p}, rows in unit norm"
        )

    def noise(self, scale: float) -> str:
        """Return text on noise of the given scale on the released moments."""
        names = ", ".join(f"'{spec.name}'" for spec in self.private)
        return (
            f"scale {at_least(scale)} per entry of the second moments of {names}, rows in unit norm"
        )

    @property
    def _units(self) -> list[float]:
        return [math.sqrt(len(self.radii)) * r for r in self.radii]


def moments(sensitivity: Sensitivity, p: int) -> Moments | None:
    """Return an agent's second moments as a statistic.

    The result is None if the objective depends on more of the records.

    Parameters
    ----------
    sensitivity : Sensitivity
    p : {1, 2}
        Norm of the mechanism.
    """
    if len(sensitivity.records) != 1 or sensitivity.clips or sensitivity.asserted is not None:
        return None
    if sensitivity.weights is not None or any(J.nnz for J in sensitivity.jacobians):
        return None
    task = sensitivity.records[0]
    alone = len(task.members) == len(sensitivity.private) and len(task.terms) == 1
    if not alone or not _reads_moments_only(task.form, task.terms[0].atom):
        return None
    return moments_of(sensitivity.private, p)


def moments_of(private: tuple[PrivateSpec, ...], p: int) -> Moments | None:
    """Return the second moments of private data as a statistic, or None.

    All private objects have to be parts of the same records.

    Parameters
    ----------
    private : tuple of PrivateSpec
    p : {1, 2}
        Norm of the mechanism.
    """
    kinds = [(spec.shape, spec.adjacency) for spec in private]  # a scalar has no rows
    labels = {(shape[0], kind.label) for shape, kind in kinds if isinstance(kind, Rows)}
    if len(labels) != 1 or not all(isinstance(kind, Rows) for _, kind in kinds):
        return None
    moments_ = Moments(private, radii_of(private), _moved(private))
    l2 = moments_.sensitivity
    if p == 2:
        return moments_
    return Moments(moments_.private, moments_.radii, math.sqrt(moments_.size) * l2)


def _width(spec: PrivateSpec) -> int:
    return spec.size // spec.shape[0]


def _moved(private: Sequence[PrivateSpec]) -> float:
    """Return the l2 sensitivity of the moments of rows with a norm of at most 1."""
    adjacency = private[0].adjacency
    assert isinstance(adjacency, Rows)
    # ||vv' - ww'||_F^2 <= |v|^4 + |w|^4 for rows of norm at most one. Equal rows of one person move
    # the moments by as much as one does, times their number.
    alone = np.array([math.sqrt(2) if adjacency.relation == "replace_one" else 1.0])
    return of_person(alone, adjacency, private[0].shape[0]) * (1 + 1e-9)


def radii_of(private: Sequence[PrivateSpec]) -> tuple[float, ...]:
    """Return, for each part of the records, a bound of the l2 norms of its rows."""
    radii: list[float] = []
    for spec in private:
        assert isinstance(spec.adjacency, Rows)
        radii.append(spec.adjacency.max_norm * float(spec.adjacency.stretch(2, _width(spec))))
    return tuple(radii)


def triangle(V: Array) -> Array:
    """Return the upper triangle of V'V, with off-diagonal entries times sqrt(2)."""
    i, j = np.triu_indices(V.shape[1])
    return (V.T @ V)[i, j] * np.where(i == j, 1.0, math.sqrt(2))


def closest_rows(released: Array, order: int, most: int) -> Array:
    """Return rows whose second moments are the admissible ones closest to given moments.

    Parameters
    ----------
    released : ndarray
        Moments in the form of `triangle`, with noise.
    order : int
        Number of columns of the rows.
    most : int
        Largest number of rows.

    Returns
    -------
    ndarray, shape (min(most, order), order)
    """
    i, j = np.triu_indices(order)
    S = np.zeros((order, order))
    S[i, j] = released / np.where(i == j, 1.0, math.sqrt(2))
    values, vectors = np.linalg.eigh(np.triu(S) + np.triu(S, 1).T)
    # Moments of at most that many records: the largest eigenvalues, without negative ones.
    largest = np.argsort(-values)[: min(most, order)]
    return np.sqrt(np.maximum(values[largest], 0.0))[:, None] * vectors[:, largest].T


@dataclass(frozen=True, eq=False)
class Reading:
    """Form of an objective that reads records as ``weight |sum_k c_k V_k Z_k|^2``.

    V_k are the parts of the records. Z_k is an affine function of x for the first part, and the
    identity for all others.

    Attributes
    ----------
    weight : float
    parts : tuple of (int, float)
        Index k and coefficient c_k of each part V_k of the records. The part that multiplies an
        affine function of x comes first.
    affine : Combination
        The affine function of x that multiplies the first part.
    private : tuple of PrivateSpec
    """

    weight: float
    parts: tuple[tuple[int, float], ...]
    affine: Combination
    private: tuple[PrivateSpec, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of columns of each part of the records."""
        return tuple(_width(spec) for spec in self.private)

    def quadratic(self, V: Array, units: Sequence[float]) -> tuple[Array, sp.csr_array]:
        """Return gradient at 0 and Hessian of the objective with the rows of V as its records.

        Parameters
        ----------
        V : ndarray, shape (any number, total width of the parts)
        units : sequence of float
            Units of each part's rows in V.
        """
        order, starts = V.shape[1], np.cumsum([0, *self.widths])
        (left, factor), *rest = self.parts
        columns = self.affine.h.size // self.widths[left]
        # The residual is V Q with an affine Q(x); its entries by column.
        i, j = np.meshgrid(np.arange(self.widths[left]), np.arange(columns), indexing="ij")
        position = np.ravel(starts[left] + i + order * j, order="F")
        assert self.affine.F is not None
        F = sp.coo_array(csr(self.affine.F))
        shape = (order * columns, F.shape[1])
        E = sp.csr_array((factor * units[left] * F.data, (position[F.row], F.col)), shape=shape)
        e = np.zeros(order * columns)
        e[position] = factor * units[left] * self.affine.h
        for k, other in rest:
            diagonal = np.arange(columns)
            e[starts[k] + diagonal + order * diagonal] += other * units[k]
        twice = 2 * self.weight * sp.kron(sp.eye_array(columns), V.T @ V, format="csr")
        return np.asarray(E.T @ (twice @ e)), sp.csr_array(E.T @ twice @ E)


def reading(form: NormalForm) -> Reading | None:
    """Return how an objective reads records, if it needs only their second moments; else None."""
    matching_terms = [term for term in terms(form) if all(form.reach(term.atom))]
    if len(matching_terms) != 1 or not all(isinstance(s.adjacency, Rows) for s in form.private):
        return None
    atom = matching_terms[0].atom
    if not _reads_moments_only(form, atom):
        return None
    residual = atom.args[0]
    j, M = residual.terms[0]
    left, right = form.atoms[j].args
    if len(left.shape) != 2 or right.F is None:
        return None
    k, G = left.G[0]
    parts = [(k, _multiple(M) * _multiple(G)), *((k, _multiple(G)) for k, G in residual.G)]
    weight = float(matching_terms[0].weight.item()) / float(atom.args[1].h.item())
    return Reading(weight, tuple(parts), right, form.private)


@dataclass(frozen=True)
class Scaled:
    """Scaling of one agent's second moments, as a term of their sum over agents."""

    widths: tuple[int, ...]  # columns of each part
    units: tuple[float, ...]  # units of the rows of each part, equal for all agents
    factor: float  # weight of the agent's moments; 0 for an agent without records

    @property
    def order(self) -> int:
        """Number of columns of all parts of the records together."""
        return sum(self.widths)

    @property
    def size(self) -> int:
        """Number of components of the scaled moments."""
        return self.order * (self.order + 1) // 2

    def moved(self, private: Sequence[PrivateSpec]) -> float:
        """Return the l2 sensitivity of the agent's scaled moments to one change of its records."""
        if not private:
            return 0.0
        pairs = zip(radii_of(private), self.units, strict=True)
        return self.factor * sum((r / unit) ** 2 for r, unit in pairs) * _moved(private)

    def statistic(self, data: Array) -> Array:
        """Return the agent's scaled moments from its data.

        The data come part after part, each column by column.
        """
        m = data.size // self.order
        parts = np.split(data, np.cumsum([m * width for width in self.widths])[:-1])
        pairs = zip(parts, self.widths, self.units, strict=True)
        V = np.hstack([part.reshape((m, width), order="F") / unit for part, width, unit in pairs])
        return self.factor * triangle(V)


def more_than_moments(name: str) -> PrivacyError:
    """Return the error for an agent whose objective reads more than second moments."""
    return PrivacyError(
        "dp.OneShot(sums='moments') needs objectives that read their records through second "
        "moments alone: cp.sum_squares(X @ w - y), scaled or not, with whole private X and y and "
        f"without clip_norm=. That of agent '{name}' does not. Write it like that, or use "
        "dp.FederatedGradient(sharing=...)."
    )


def _multiple(M: Matrix) -> float:
    """Return the factor c of a matrix that is c times the identity."""
    return float(csr(M)[0, 0])


def has_intercept(sensitivity: Sensitivity) -> bool:
    """Return whether the objective depends on moments only, except for a term added to all rows."""
    records = sensitivity.records
    if len(records) != 1 or len(records[0].terms) != 1:
        return False
    return _reads_moments_only(records[0].form, records[0].terms[0].atom, True)


def _reads_moments_only(form: NormalForm, atom: Atom, intercept: bool = False) -> bool:
    """Return whether an atom of an objective depends on records by second moments only.

    With `intercept`, a term that is equal in all rows is allowed.
    """
    squares = atom.rule.sums_rows(atom.data) and atom.rule.of_squares(atom.data)
    if not squares or not atom.args[1].constant:
        return False
    residual = atom.args[0]
    if intercept and residual.F is not None and _rows_alike(residual.F):
        residual = replace(residual, F=None)
    if residual.F is not None or has_entries(residual.h) or len(residual.terms) != 1:
        return False
    j, M = residual.terms[0]
    product = form.atoms[j]
    if product.rule.product != "matrix" or not _multiple_of_identity(M):
        return False
    left, right = product.args
    checks = [_whole(form, left), *(_multiple_of_identity(G) for _, G in residual.G)]
    parts = [k for k, _ in (*left.G, *residual.G)]
    affine = right.F is not None and not right.G and not right.terms
    return all(checks) and affine and sorted(parts) == list(range(len(form.private)))


def _whole(form: NormalForm, left: Combination) -> bool:
    """Return whether a factor of a product is a whole private matrix, up to a scalar factor."""
    plain = left.F is None and not left.terms and not has_entries(left.h) and len(left.G) == 1
    return plain and _multiple_of_identity(left.G[0][1])


def _rows_alike(M: Matrix) -> bool:
    sparse = csr(M)
    return float(abs(sparse - sp.kron(np.ones((sparse.shape[0], 1)), sparse[[0]])).sum()) == 0.0


def _multiple_of_identity(M: Matrix) -> bool:
    sparse = csr(M)
    if sparse.shape[0] != sparse.shape[1]:
        return False
    difference = sparse - sparse[0, 0] * sp.eye_array(sparse.shape[0], format="csr")
    return float(abs(difference).sum()) == 0.0
