"""Checks of numeric arguments; numpy's scalars count as numbers."""

from __future__ import annotations

import math
from numbers import Integral, Real

from .errors import ModelError


def finite(value: object) -> bool:
    """Whether a value is a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond the floats
        return False


def positive_finite(value: object) -> bool:
    """Whether a value is a positive finite real number."""
    return finite(value) and value > 0  # pyright: ignore[reportOperatorIssue]


def whole(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_positive(owner: str, name: str, value: object, *, optional: bool = True) -> None:
    """Raise ModelError unless ``owner(name=value)`` is a positive finite number, or left out."""
    if not (optional and value is None) and not positive_finite(value):
        raise ModelError(f"{owner}({name}={value!r}) must be a positive finite number.")
