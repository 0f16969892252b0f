"""Checks of numbers from files, labels and features; messages never show values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import DatasetError

_MOST_CLASSES = 2**31


def whole_numbers(values: Any, named: str) -> NDArray[np.int64]:
    """Return one integer per record, as int64.

    Parameters
    ----------
    values : array or list
        Integers; floats count if none has a fraction.
    named : str
        Name of the numbers in messages.

    Raises
    ------
    DatasetError
        If values are not whole numbers, one per record.
    """
    array = real_numbers(values, named)
    if array.ndim != 1:
        raise DatasetError(
            f"{named} have {array.ndim} dimensions; give one number per record, such as 3 for "
            "class 3 (not a row of zeros with a one)."
        )
    with np.errstate(invalid="ignore"):
        whole = (array == np.floor(array)) & (np.abs(array) < _MOST_CLASSES)
    if not whole.all():
        raise DatasetError(
            f"Some of {named} are not whole numbers (values are not shown); a fraction that is cut "
            "off would make them other classes. Number classes 0, 1, 2, ..."
        )
    return array.astype(np.int64)


def real_numbers(values: Any, named: str) -> NDArray[np.float64]:
    """Return the values as an array of floats, of any shape.

    Raises
    ------
    DatasetError
        If some value is no real number, rows differ in length, or numbers overflow.
    """
    try:
        array = np.asarray(values)
        if array.size == 0:
            return np.zeros(array.shape)
        if array.dtype.kind not in "biuf":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, FloatingPointError):
        raise DatasetError(
            f"{named} are not all real numbers, or rows differ in length (values are not shown). "
            "Give numbers, and one row of the same length per record."
        ) from None


def flat(images: NDArray[Any]) -> NDArray[Any]:
    """Return one row per image; arrays without pixels stay unchanged, for `Records` to refuse."""
    return images.reshape(images.shape[0], -1) if images.ndim > 1 and images.size else images
