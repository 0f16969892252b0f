"""What private data add to an objective that is quadratic in what they touch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData
from ..model.quadratic import curved
from ..sensitivity.queries.data import DataCurvature
from ..sensitivity.queries.gradients import Gradient
from .base import Local, Oracle

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DataTerms:
    """``f(x; d) - f(x; 0) = <slope, x> + 1/2 x'H x`` up to a number, as it was released.

    Attributes
    ----------
    slope : ndarray, shape (n,)
    curvature : csr_array, shape (n, n)
        H; without entries where the data move the gradient alike at all points.
    """

    slope: Array
    curvature: sp.csr_array


def data_terms(local: Local, x: Array, oracle: Oracle) -> DataTerms:
    """Ask what the data add: by one gradient at x, and by second derivatives where these matter.

    Parameters
    ----------
    local : Local
    x : ndarray, shape (n,)
        Public.
    oracle : Oracle
        Answers `Gradient` and `DataCurvature`.
    """
    slope = oracle.release(Gradient(x)) - local.public_gradient(x)
    H = curvature_of_data(local, oracle)
    return DataTerms(slope - H @ x, H)


def curvature_of_data(local: Local, oracle: Oracle) -> sp.csr_array:
    """Ask for second derivatives, where the data move them; a matrix without entries elsewhere."""
    n = local.program.n
    if not curved(local.program.form):
        return sp.csr_array((n, n))
    H = np.zeros((n, n))
    H[np.triu_indices(n)] = oracle.release(DataCurvature())
    H += np.triu(H, 1).T
    return sp.csr_array(H)


def with_curvature(data: ConeData, H: sp.csr_array) -> ConeData:
    """A program whose objective gets ``1/2 x'H x`` on top."""
    more = data.P.shape[0] - data.n
    return replace(data, P=sp.csc_array(data.P + sp.block_diag([H, sp.csr_array((more, more))])))
