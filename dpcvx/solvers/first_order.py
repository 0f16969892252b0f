"""SCS, a first-order method: what is asked where no interior point has an answer."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..model.canonical import ConeData, Cones
from .active_set import attempt
from .cones import unmet

Array = NDArray[np.float64]
Index = NDArray[np.intp]

# What is left of the constraints, relative to the terms of each row.
_ACCURATE = 1e-6
# Larger matrices are not searched for negative eigenvalues.
_LARGEST_BENT = 300


def first_order(P: sp.csc_array, q: Array, b: Array, data: ConeData) -> Array | None:
    """The same problem by SCS, or None if it fails or has a cone that SCS lacks."""
    import scs

    cones = data.cones
    # SCS prints on numbers it cannot use.
    if cones.power_nd or not (np.isfinite(q).all() and np.isfinite(b).all()) or _bent(P):
        return None
    order = _lower_triangles(cones)
    cone = {
        "z": cones.zero,
        "l": cones.nonneg,
        "q": list(cones.soc),
        "s": list(cones.psd),
        "ep": cones.exp,
        "p": list(cones.power),
    }
    problem = {"P": P, "A": sp.csc_matrix(data.A.tocsr()[order]), "b": b[order], "c": q}
    problem["P"] = sp.csc_matrix(P)
    options = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 50_000, "verbose": False}
    result = attempt(lambda: scs.SCS(problem, cone, **options).solve())
    if result is None or result["info"]["status"] != "solved":
        return None
    y = np.asarray(result["x"])
    if y.shape != q.shape or not np.isfinite(y).all():
        return None
    # Its own tolerance is relative to the largest number of all rows, too.
    rows = data.A.tocsr()[order]
    left = unmet(rows, abs(rows), y, np.asarray(result["s"]), b[order])
    return y if left <= _ACCURATE else None


def _bent(upper: sp.csc_array) -> bool:
    """Whether a matrix, of which this is the upper triangle, has a negative eigenvalue."""
    if upper.shape[0] > _LARGEST_BENT:
        return False
    values = np.linalg.eigvalsh(upper.toarray(), UPLO="U")
    return bool(values[0] < -1e-9 * max(1.0, values[-1]))


def _lower_triangles(cones: Cones) -> Index:
    """Row order that turns stacked upper triangles (by column) into stacked lower ones."""
    start = cones.zero + cones.nonneg + sum(cones.soc)
    order = [np.arange(start)]
    for n in cones.psd:
        j, i = np.tril_indices(n)  # upper triangle by column: (i, j) with i <= j, j outer
        position = np.zeros((n, n), dtype=int)
        position[i, j] = position[j, i] = start + np.arange(i.size)
        column, row = np.triu_indices(n)  # lower triangle by column: column outer, row >= column
        order.append(position[row, column])
        start += i.size
    rest = 3 * (cones.exp + len(cones.power))
    order.append(start + np.arange(rest))
    return np.concatenate(order)
