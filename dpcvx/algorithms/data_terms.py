"""Terms that private data add to an objective, quadratic in the variables that the data multiply.

Also sums of second moments over agents whose objectives are equal functions of their records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from ..model.canonical import ConeData
from ..model.matrices import csr
from ..model.quadratic import curved
from ..sensitivity.queries.data import DataCurvature
from ..sensitivity.queries.gradients import Gradient
from ..sensitivity.second_moments import (
    Reading,
    Scaled,
    closest_rows,
    more_than_moments,
    radii_of,
    reading,
)
from .base import Local, Oracle
from .joint import picked, places_of, size_of
from .program import Program

Index = NDArray[np.intp]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DataTerms:
    """Released terms of the data: ``f(x; d) - f(x; 0) = <slope, x> + 1/2 x'H x`` + constant.

    Attributes
    ----------
    slope : ndarray, shape (n,)
        Linear coefficient.
    curvature : csr_array, shape (n, n)
        Matrix H; empty if the data's effect on the gradient does not depend on the point.
    """

    slope: Array
    curvature: sp.csr_array


def data_terms(local: Local, x: Array, oracle: Oracle) -> DataTerms:
    """Return the objective's terms that depend on data, from released values at x.

    Parameters
    ----------
    local : Local
    x : ndarray, shape (n,)
        Public point.
    oracle : Oracle
        Answers `Gradient` and `DataCurvature`.
    """
    slope = oracle.release(Gradient(x)) - local.public_gradient(x)
    H = curvature_of_data(local, oracle)
    return DataTerms(slope - H @ x, H)


def curvature_of_data(local: Local, oracle: Oracle) -> sp.csr_array:
    """Return the released part H of the Hessian that depends on data; empty if there is none."""
    n = local.program.n
    if not curved(local.program.form):
        return sp.csr_array((n, n))
    H = np.zeros((n, n))
    H[np.triu_indices(n)] = oracle.release(DataCurvature())
    H += np.triu(H, 1).T
    return sp.csr_array(H)


def with_curvature(data: ConeData, H: sp.csr_array) -> ConeData:
    """Return the cone program with ``1/2 x'H x`` added to its objective."""
    more = data.P.shape[0] - data.n
    return replace(data, P=sp.csc_array(data.P + sp.block_diag([H, sp.csr_array((more, more))])))


@dataclass(frozen=True, eq=False)
class MomentSum:
    """Summands of a sum of second moments over all agents, and the objective that reads the sum."""

    terms: tuple[Scaled, ...]  # summand of each agent
    reader: int  # position of the agent whose objective is evaluated for the sum
    reading: Reading  # that objective as a function of second moments
    records: int  # number of records of all agents

    @property
    def size(self) -> int:
        """Number of components of the sum of second moments."""
        return self.terms[0].size

    def read(self, total: Array) -> tuple[Array, sp.csr_array]:
        """Return the gradient at 0 and the Hessian of all agents' data terms, from their sum.

        Both are over the variables of the agent at position `reader`.

        Parameters
        ----------
        total : ndarray, shape (size,)
            Sum with noise. It is projected to the moments of some data set of `records` records.
        """
        term = self.terms[self.reader]
        V = closest_rows(total, term.order, self.records)
        return self.reading.quadratic(V, term.units)


def moment_sum(program: Program) -> MomentSum:
    """Return the second moments that each agent adds to a sum, and the objective that reads it.

    Raises
    ------
    PrivacyError
        If an objective depends on more than the second moments of its records.
    ModelError
        If no agent has records, or the agents' objectives are different functions of their records.
    """
    places, size = places_of(program), size_of(program)
    readings: dict[int, Reading] = {}
    for k, local in enumerate(program.agents):
        if not local.form.private:
            continue
        term = reading(local.form)
        if term is None or not term.weight > 0 or local.clip is not None:
            raise more_than_moments(local.name)
        readings[k] = term
    if not readings:
        raise ModelError(
            "dp.OneShot(sums='moments') sums second moments of private records, and no agent has "
            "any. Leave sums= and sharing= out."
        )
    reader, first = max(readings.items(), key=lambda pair: pair[1].weight)
    for k, term in readings.items():
        if not _alike(term, first, places[k], places[reader], size):
            name, other = program.agents[k].name, program.agents[reader].name
            raise ModelError(
                f"Agents '{name}' and '{other}' have different losses of records. Write the same "
                "cp.sum_squares(X @ w - y) of the same variables for all agents, up to a factor "
                "in front, with private objects in the same order. Or use "
                "dp.FederatedGradient(sharing=...). A sum of second moments gives the sum of the "
                "objectives only for losses of the same form."
            )
    radii = np.max([radii_of(term.private) for term in readings.values()], axis=0)
    units = tuple(math.sqrt(radii.size) * float(r) for r in radii)
    weights = [
        readings[k].weight / first.weight if k in readings else 0.0 for k in range(len(places))
    ]
    records = sum(term.private[0].shape[0] for term in readings.values())
    return MomentSum(tuple(Scaled(first.widths, units, w) for w in weights), reader, first, records)


def _alike(first: Reading, second: Reading, here: Index, there: Index, size: int) -> bool:
    """Return whether two agents' objectives are the same function of records and variables.

    `here` and `there` are the positions of the agents' variables in the joint vector of length
    `size`.
    """
    if (first.parts, first.widths) != (second.parts, second.widths):
        return False
    F, G = (
        csr(a.F) @ picked(columns, size)
        for a, columns in ((first.affine, here), (second.affine, there))
        if a.F is not None
    )
    same = F.shape == G.shape and abs(F - G).sum() == 0
    return bool(same and np.array_equal(first.affine.h, second.affine.h))
