r"""The effect of one record on the gradient of (30): its bound, and as Ryu and Kim measure it.

The contribution of a record :math:`(x, y)` is :math:`x (s - y)' / I` with the softmax s of its
scores. It is an outer product, so that its norm is the product of the norms of x and s - y, and
:math:`\|s - y\|_1 \le 2`, :math:`\|s - y\|_2 \le \sqrt 2` for every s.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from .dataset import Dataset, Records

Floats = NDArray[np.float64]


def worst_case(dataset: Dataset, total: int, p: int) -> float:
    """Bound the lp change of an agent's gradient when a record is added or removed.

    Parameters
    ----------
    dataset : Dataset
        Source of the bound of a record's l2 norm and of the number of features; no record is used.
    total : int
        Public number of all records, I.
    p : {1, 2}
        Norm of the change.

    Returns
    -------
    float
        ``sqrt(2) bound / total`` in l2, ``2 sqrt(features) bound / total`` in l1.
    """
    if p == 2:
        return math.sqrt(2) * dataset.bound / total
    return 2 * math.sqrt(dataset.features) * dataset.bound / total


def over_the_data(records: Records, one_hot: Floats, W: Floats, total: int) -> float:
    """Return the maximum of (31) over an agent's records, as the code of Ryu and Kim does.

    It is not private and no sensitivity: it is at most `worst_case`, and differs between
    neighboring data, so that noise scaled to it tells whether a record is there.

    Parameters
    ----------
    records : Records
        Records of the agent.
    one_hot : ndarray, shape (records, classes)
        Labels of the records.
    W : ndarray, shape (features, classes)
        Point of the gradient.
    total : int
        Number of all records, I.

    Returns
    -------
    float
        The largest l2 norm of a present record's contribution.
    """
    residual = softmax(records.features @ W, axis=1) - one_hot
    norms = np.linalg.norm(records.features, axis=1) * np.linalg.norm(residual, axis=1)
    return float(norms.max()) / total
