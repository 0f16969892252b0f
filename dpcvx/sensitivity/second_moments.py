r"""Release once of private quadratic statistics: noisy moments in place of records.

A term :math:`\|\alpha X Z(x) - \gamma Y\|^2` reads the records through the moments
:math:`[X, Y]'[X, Y]` only (X'X, X'Y and Y'Y of least squares). They are released once with noise
and brought back to the positive semidefinite matrices; a factor of the result stands for the
records from then on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.atoms import MATMUL, QUAD_OVER_LIN
from ..model.matrices import Matrix, csr, has_entries
from ..model.normal_form import Combination, NormalForm
from ..model.private import PrivateSpec, Rows
from .certificate import Sensitivity
from .records import Contributions

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments of records, and surrogate records recovered from noisy ones.

    Attributes
    ----------
    private : tuple of PrivateSpec
        The parts of the records, all with the same number of rows.
    radii : tuple of float
        Bounds of the l2 norms of their rows.
    sensitivity : float
        Of the statistic, in the mechanism's norm.
    """

    private: tuple[PrivateSpec, ...]
    radii: tuple[float, ...]
    sensitivity: float

    kind = "second moments"

    @property
    def order(self) -> int:
        """Number of columns of all parts together."""
        return sum(_width(spec) for spec in self.private)

    @property
    def size(self) -> int:
        """Number of components that are released."""
        return self.order * (self.order + 1) // 2

    def statistic(self, data: Sequence[Array]) -> Array:
        """The upper triangle of V'V with off-diagonal entries times sqrt(2): norms are kept.

        V stacks the parts side by side, each in units of its own bound, so that its rows have
        norm at most one.
        """
        V = np.hstack(
            [
                part.reshape((spec.shape[0], _width(spec)), order="F") / unit
                for part, spec, unit in zip(data, self.private, self._units, strict=True)
            ]
        )
        i, j = np.triu_indices(self.order)
        return (V.T @ V)[i, j] * np.where(i == j, 1.0, math.sqrt(2))

    def restore(self, released: Array) -> list[Array]:
        """Surrogate records whose moments are the closest admissible ones to those released."""
        i, j = np.triu_indices(self.order)
        S = np.zeros((self.order, self.order))
        S[i, j] = released / np.where(i == j, 1.0, math.sqrt(2))
        values, vectors = np.linalg.eigh(np.triu(S) + np.triu(S, 1).T)
        # Of at most as many records as there are: the largest eigenvalues, without negative ones.
        m = self.private[0].shape[0]
        kept = np.argsort(-values)[: min(m, self.order)]
        rows = np.sqrt(np.maximum(values[kept], 0.0))[:, None] * vectors[:, kept].T
        V = np.zeros((m, self.order))
        V[: kept.size] = rows
        ends = np.cumsum([_width(spec) for spec in self.private])[:-1]
        parts = np.split(V, ends, axis=1)
        return [
            (part * unit).ravel(order="F") for part, unit in zip(parts, self._units, strict=True)
        ]

    def noise(self, scale: float) -> str:
        """What noise of this scale on the statistic means, in words."""
        names = ", ".join(f"'{spec.name}'" for spec in self.private)
        return f"scale {scale:.6g} per entry of the second moments of {names}, rows in unit norm"

    @property
    def _units(self) -> list[float]:
        return [math.sqrt(len(self.radii)) * r for r in self.radii]


def moments(sensitivity: Sensitivity, p: int) -> Moments | None:
    """The moments through which an objective reads its records, or None if it reads more.

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
    if len(task.members) != len(sensitivity.private) or not _reads_moments_only(task):
        return None
    radii, change = [], "replace"
    for spec in sensitivity.private:
        assert isinstance(spec.adjacency, Rows)
        radii.append(spec.adjacency.bound * float(spec.adjacency.stretch(2, _width(spec))))
        change = spec.adjacency.change
    # ||vv' - ww'||_F^2 <= |v|^4 + |w|^4 for rows of norm at most one.
    l2 = (math.sqrt(2) if change == "replace" else 1.0) * (1 + 1e-9)
    found = Moments(sensitivity.private, tuple(radii), l2)
    if p == 2:
        return found
    return Moments(found.private, found.radii, math.sqrt(found.size) * l2)


def _width(spec: PrivateSpec) -> int:
    return spec.size // spec.shape[0]


def _reads_moments_only(task: Contributions) -> bool:
    if len(task.terms) != 1:
        return False
    atom, form = task.terms[0].atom, task.form
    if atom.rule is not QUAD_OVER_LIN or atom.data[0] is not None or not atom.args[1].constant:
        return False
    residual = atom.args[0]
    if residual.F is not None or has_entries(residual.h) or len(residual.terms) != 1:
        return False
    j, M = residual.terms[0]
    product = form.atoms[j]
    if product.rule is not MATMUL or not _multiple_of_identity(M):
        return False
    left, right = product.args
    own = [_whole(form, left), *(_multiple_of_identity(G) for _, G in residual.G)]
    parts = [k for k, _ in (*left.G, *residual.G)]
    affine = right.F is not None and not right.G and not right.terms
    return all(own) and affine and sorted(parts) == list(range(len(form.private)))


def _whole(form: NormalForm, left: Combination) -> bool:
    """Whether a factor is one private matrix, up to a number."""
    plain = left.F is None and not left.terms and not has_entries(left.h) and len(left.G) == 1
    return plain and _multiple_of_identity(left.G[0][1])


def _multiple_of_identity(M: Matrix) -> bool:
    sparse = csr(M)
    if sparse.shape[0] != sparse.shape[1]:
        return False
    difference = sparse - sparse[0, 0] * sp.eye_array(sparse.shape[0], format="csr")
    return float(abs(difference).sum()) == 0.0
