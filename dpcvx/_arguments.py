"""Checks of arguments, and what messages show of them; numpy's scalars count as numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from .errors import ModelError

T = TypeVar("T")


def as_python_number(value: T) -> T:
    """A number as Python's own; a dataclass with such numbers in its fields, at any depth.

    Numpy's narrow scalars round and overflow in everything that is computed with them,
    sensitivities and charges among it, although they compare as equal to what was meant.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)  # pyright: ignore[reportReturnType]
    if isinstance(value, Integral):
        return int(value)  # pyright: ignore[reportReturnType]
    if isinstance(value, Real):
        return float(value)  # pyright: ignore[reportReturnType]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    known = {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    changed = {
        name: new for name, old in known.items() if (new := as_python_number(old)) is not old
    }
    if not changed:
        return value
    value = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(value, name, new)
    return value


def store_python_numbers(declared: object, *names: str) -> None:
    """`plain` for fields of a frozen dataclass that is being made."""
    for name in names:
        object.__setattr__(declared, name, as_python_number(getattr(declared, name)))


# Largest number of rounds, runs and the like that is taken for one.
COUNTED = 10**9
# Longest text that a message repeats.
_TEXT = 60


def show(value: object) -> str:
    """What a message shows of an argument: numbers and short text, of all else the type.

    Whoever takes one argument for another may have put private data there.
    """
    if value is None or isinstance(value, (bool, np.bool_)):
        return str(value)
    if isinstance(value, str) and len(value) <= _TEXT:
        return str.__repr__(value)
    try:
        if isinstance(value, Integral) and abs(int(value)) < 10**_TEXT:
            return str(int(value))
        if isinstance(value, Real) and not isinstance(value, Integral):
            return repr(float(value))
        if isinstance(value, complex):
            return repr(complex(value))
    except Exception:  # numbers of other packages convert as they like, and say so as they like
        return f"<{type(value).__name__}>"
    kind, shape = type(value).__name__, _shape(value)
    if isinstance(value, type):
        return f"<class {value.__name__}>"
    if shape is not None:
        return f"<{kind} of shape {shape}>"
    if type(value) in (str, bytes, list, tuple, dict, set):
        return f"<{kind} of length {len(value)}>"  # pyright: ignore[reportArgumentType]
    return f"<{kind}>"


def _shape(value: object) -> tuple[int, ...] | None:
    """The shape of an array or a cvxpy expression."""
    try:
        shape = value.shape  # pyright: ignore[reportAttributeAccessIssue]
        return tuple(int(n) for n in shape) if isinstance(shape, tuple) else None
    except Exception:  # whatever a foreign object raises may quote its contents
        return None


def finite(value: object) -> bool:
    """Whether a value is a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond the floats
        return False


def positive_finite(value: object) -> bool:
    """Whether a value is a positive finite real number."""
    return finite(value) and float(value) > 0  # pyright: ignore[reportArgumentType]


def is_int(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def countable(value: object, least: int) -> bool:
    """Whether a value is an integer of at least `least` that one could count up to."""
    return is_int(value, least) and int(value) <= COUNTED  # pyright: ignore[reportArgumentType]


def listed(value: object) -> tuple[Any, ...] | None:
    """The elements of a list or its like; None of anything else, texts among it."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return None
    try:
        return tuple(value)
    except Exception:  # whatever a foreign object raises may quote its contents
        return None


def pairs(value: object) -> tuple[tuple[Any, Any], ...] | None:
    """The keys and values of a mapping; None of anything else."""
    if not isinstance(value, Mapping):
        return None
    try:
        return tuple((key, held) for key, held in value.items())
    except Exception:  # whatever a foreign mapping raises may quote its contents
        return None


def is_text(value: object) -> bool:
    """Whether a value is text that can be written to a file, without halves of characters."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_of(value: object, *choices: str) -> bool:
    """Whether a value is one of these texts; arrays and cvxpy objects answer ``in`` otherwise."""
    return isinstance(value, str) and value in choices


def check_flag(name: str, value: object, *, optional: bool = False) -> None:
    """Raise ModelError unless an argument is True or False, or left out."""
    if not (optional and value is None) and not isinstance(value, (bool, np.bool_)):
        raise ModelError(f"{name}={show(value)} must be True or False.")


def check_positive(owner: str, name: str, value: object, *, optional: bool = True) -> None:
    """Raise ModelError unless ``owner(name=value)`` is a positive finite number, or left out."""
    if not (optional and value is None) and not positive_finite(value):
        raise ModelError(f"{owner}({name}={show(value)}) must be a positive finite number.")
