"""Whether what came from elsewhere is made of numbers that can be computed with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

# Squares of larger numbers are none.
HUGE = 1e150


def are_numbers(message: object) -> bool:
    """Whether all floats of a message are finite, with squares that are.

    Parameters
    ----------
    message : object
        A record, or what records are made of; floats at any depth count.
    """
    floats = (array for array in _arrays(message) if array.dtype.kind == "f")
    return all(bool((np.abs(array) < HUGE).all()) for array in floats)


def _arrays(value: object) -> Iterator[NDArray[Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, float):
        yield np.array([value])
    elif sp.issparse(value):
        yield cast(Any, value).data
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _arrays(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name))
