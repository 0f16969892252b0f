r"""Records with labels of -1 and 1, divided over agents, and the agents' mean logistic losses.

.. math:: \frac1b \sum_j \log(1 + e^{-l_j z_j' x})
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import dpcvx as dp

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Records of an agent.

    Attributes
    ----------
    features : ndarray, shape (b, d)
        Features, one row per record.
    labels : ndarray, shape (b,)
        Labels, -1 or 1.
    """

    features: Floats
    labels: Floats

    def __post_init__(self) -> None:
        shape = self.features.shape
        if len(shape) != 2 or 0 in shape or not np.isfinite(self.features).all():
            raise dp.ModelError(
                f"Features of shape {shape} must be finite, with one row per record, at least one "
                "record and one feature."
            )
        if self.labels.shape != shape[:1] or not np.isin(self.labels, (-1, 1)).all():
            raise dp.ModelError(
                f"There are {shape[0]} records, and labels of shape {self.labels.shape} that must "
                "all be -1 or 1: with another coding the loss is not the logistic one. Write "
                "2 * labels - 1 if they are 0 and 1."
            )

    @property
    def count(self) -> int:
        """Number of records, b."""
        return self.features.shape[0]

    @property
    def size(self) -> int:
        """Number of features, d."""
        return self.features.shape[1]

    @property
    def signed(self) -> Floats:
        """Rows of features times labels; the loss depends on nothing else."""
        return self.labels[:, None] * self.features

    def take(self, which: Ints) -> Self:
        """Return some of the records, in the given order."""
        return type(self)(self.features[which], self.labels[which])


def data_of(parts: Sequence[Records]) -> dict[dp.Private | str, Floats]:
    """Return the data for ``plan.run(data=...)``: ``features k`` and ``labels k`` of agent k."""
    data: dict[dp.Private | str, Floats] = {}
    for k, part in enumerate(parts):
        data[f"features {k}"], data[f"labels {k}"] = part.features, part.labels
    return data


def losses(parts: Sequence[Records], X: Floats) -> Floats:
    """Return the sum of all agents' mean losses at points ``X[..., :]``. Not private."""
    return np.sum([np.logaddexp(0, -X @ part.signed.T).mean(axis=-1) for part in parts], axis=0)


def slopes(parts: Sequence[Records], X: Floats) -> Floats:
    """Return gradients of agents' mean losses, agent i at ``X[..., i, :]``. Not private."""
    found = np.empty_like(X)
    for i, part in enumerate(parts):
        Z = part.signed
        found[..., i, :] = -expit(-X[..., i, :] @ Z.T) @ Z / part.count
    return found
