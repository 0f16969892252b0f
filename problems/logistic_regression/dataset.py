"""Labeled images as arrays, with the public constants that sensitivities rest on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import is_int, positive_finite

from .errors import DatasetError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Records:
    """Labeled records.

    Attributes
    ----------
    features : ndarray, shape (records, features)
        Pixels divided by their public largest value: between 0 and 1.
    labels : ndarray of int, shape (records,)
        Classes from 0.
    writer : ndarray of int, shape (records,), or None
        Number of the record's writer, from 0; None if writers are not known.
    """

    features: Floats
    labels: Ints
    writer: Ints | None = None

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or 0 in self.features.shape:
            raise DatasetError(
                f"Features have shape {self.features.shape}, but a model needs one row per record "
                "and at least one of each. Flatten images: features.reshape(count, -1)."
            )
        count = self.features.shape[0]
        for name, values in (("labels", self.labels), ("writer", self.writer)):
            if values is not None and (values.shape != (count,) or values.dtype.kind not in "iu"):
                raise DatasetError(
                    f"There are {count} records, but {name} have shape {values.shape} and type "
                    f"{values.dtype}. Give one int per record."
                )
        if not (np.min(self.features) >= 0 and np.max(self.features) <= 1):
            raise DatasetError(
                "Some features lie outside [0, 1] or are no numbers. Divide pixels by their "
                "largest possible value (255 for bytes), not by the largest value found in the "
                "data: that would be private."
            )

    @property
    def count(self) -> int:
        """The number of records."""
        return self.features.shape[0]

    def take(self, which: Ints) -> Records:
        """Return the records of these indices, in the given order."""
        writer = None if self.writer is None else self.writer[which]
        return Records(self.features[which], self.labels[which], writer)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test records, with their public constants.

    Attributes
    ----------
    name : str
        Name of the data set in titles.
    train, test : Records
        Training and test records.
    classes : int
        Public number of classes, including classes without a record.
    bound : float
        Public bound of a record's l2 norm. The study clips longer records to it
        (``dp.Rows(bound, clip_rows=True)``); the norm of all-white pixels is ``sqrt(features)``.
    """

    name: str
    train: Records
    test: Records
    classes: int
    bound: float

    def __post_init__(self) -> None:
        if self.train.features.shape[1] != self.test.features.shape[1]:
            raise DatasetError(
                f"Training records of '{self.name}' have {self.train.features.shape[1]} features, "
                f"test records {self.test.features.shape[1]}: one model cannot take both."
            )
        if not is_int(self.classes, 2):
            raise DatasetError(f"classes={self.classes!r} must be an int of at least 2.")
        for part in (self.train, self.test):
            if part.labels.min() < 0 or part.labels.max() >= self.classes:
                raise DatasetError(
                    f"Some labels of '{self.name}' are not among the classes 0 to "
                    f"{self.classes - 1}, so they have no column in the model. Number classes from "
                    "0 and give their public number, classes=."
                )
        if not positive_finite(self.bound):
            raise DatasetError(
                f"bound={self.bound!r} bounds nothing: the sensitivity is proportional to the "
                "largest norm of a record. Write a positive finite number chosen without looking "
                "at the data."
            )

    @property
    def features(self) -> int:
        """The number of features of a record."""
        return self.train.features.shape[1]

    @property
    def rows(self) -> dp.Rows:
        """Adjacency of features: one record, of norm at most `bound`, appears or disappears."""
        return dp.Rows(self.bound, relation="add_or_remove_one", clip_rows=True)

    def clipped(self, records: Records) -> Records:
        """Return records as a model sees them, with norms above `bound` scaled down to it."""
        features = self.rows.enforced(records.features)
        assert features is not None  # only clip_rows=False refuses
        return replace(records, features=features)

    def one_hot(self, labels: Ints) -> Floats:
        """Return labels as rows of zeros with a single one, shape (records, classes)."""
        return np.eye(self.classes)[labels]


def usual_bound(features: int) -> float:
    """Return ``sqrt(features) / 2``, the norm of an image whose mean squared pixel is a quarter.

    It depends on the image size alone, not on the data: 4 for 8 x 8 pixels, 14 for 28 x 28.
    """
    return math.sqrt(features) / 2


def held_out(records: Records, share: float, seed: int) -> tuple[Records, Records]:
    """Divide records into training and test records by a public permutation.

    Parameters
    ----------
    records : Records
        Records to divide.
    share : float
        Share of the test records, between 0 and 1; each part keeps at least one record.
    seed : int
        Public seed of the permutation, which does not depend on the data.

    Returns
    -------
    train, test : Records
        The two parts.

    Raises
    ------
    DatasetError
        If the share is not between 0 and 1 or there is only one record.
    """
    if not 0 < share < 1 or records.count < 2:
        raise DatasetError(
            f"{records.count} records and a share of {share!r} for testing leave a part empty. "
            "Write a share between 0 and 1, for example 0.2."
        )
    tested = min(max(1, round(share * records.count)), records.count - 1)
    order = np.random.default_rng(seed).permutation(records.count)
    return records.take(np.sort(order[tested:])), records.take(np.sort(order[:tested]))
