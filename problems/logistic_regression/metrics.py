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
    """Measurements of a study. Not private: never publish them for private records.

    Attributes
    ----------
    train : Records
        Records of all agents, clipped as the model sees them.
    test : Records
    regularizer : float
    """

    train: Records
    test: Records
    regularizer: float

    @classmethod
    def of(cls, study: LogisticRegression) -> Metrics:
        """Metrics of a study's agents together."""
        dataset = study.dataset
        used = dataset.train.take(np.concatenate(study.parts))
        return cls(dataset.clipped(used), dataset.test, study.regularizer)

    def cost(self, W: Floats) -> float:
        """Mean loss of the training records plus the regularizer; W: (features, classes)."""
        scores = self.train.features @ W
        chosen = np.take_along_axis(scores, self.train.labels[:, None], axis=1)[:, 0]
        loss = np.mean(logsumexp(scores, axis=1) - chosen)
        return float(loss + self.regularizer * np.sum(W**2))

    def error(self, W: Floats) -> float:
        """Share of the test records that are classified wrongly."""
        return float(np.mean(np.argmax(self.test.features @ W, axis=1) != self.test.labels))
