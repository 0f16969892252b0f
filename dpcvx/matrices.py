"""Matrices that are arrays or sparse, whichever is smaller."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Array = NDArray[np.float64]
Matrix = Array | sp.csr_array

# Matrices denser than this are stored as arrays.
_DENSE = 0.3


def as_array(M: Any) -> Array:
    """Any matrix or number as a dense float array."""
    return M.toarray() if sp.issparse(M) else np.asarray(M, dtype=float)


def compact(M: Any) -> Matrix:
    """A matrix as array or CSR, whichever multiplies faster."""
    if not sp.issparse(M):
        return np.ascontiguousarray(M)
    entries = M.shape[0] * M.shape[1]
    return M.toarray() if entries and M.nnz > _DENSE * entries else sp.csr_array(M)


def diagonal(values: Array, size: int | None = None) -> sp.csr_array:
    """Diagonal matrix; a single value is repeated `size` times."""
    return sp.csr_array(sp.diags_array(np.broadcast_to(values, size or values.size)))
