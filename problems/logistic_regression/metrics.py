"""Cost and test error of a model. Not private: computed on the records in the open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from .dataset import Records
from .study import LogisticRegression

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Metrics:
    """Functions that measure models on a study's records. Never publish them for private records.

    Attributes
    ----------
    train : Records
        Records of all agents, clipped as the model sees them.
    test : Records
        Test records.
    regularizer : float
        Factor of ``|W|^2`` in the objective.
    """

    train: Records
    test: Records
    regularizer: float

    @classmethod
    def of(cls, study: LogisticRegression) -> Metrics:
        """Return the metrics on the records of all agents of a study."""
        dataset = study.dataset
        used = dataset.train.take(np.concatenate(study.parts))
        return cls(dataset.clipped(used), dataset.test, study.regularizer)

    def cost(self, W: Floats) -> float:
        """Return the mean training loss plus the regularizer at W, shape (features, classes)."""
        scores = self.train.features @ W
        chosen = np.take_along_axis(scores, self.train.labels[:, None], axis=1)[:, 0]
        loss = np.mean(logsumexp(scores, axis=1) - chosen)
        return float(loss + self.regularizer * np.sum(W**2))

    def error(self, W: Floats) -> float:
        """Return the share of test records that W classifies wrongly."""
        return float(np.mean(np.argmax(self.test.features @ W, axis=1) != self.test.labels))
