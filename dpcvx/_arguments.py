"""Checks of arguments, and their texts in messages; numpy's scalars count as numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .errors import DpcvxError, ModelError

T = TypeVar("T")


def as_python_number(value: T) -> T:
    """Return a number as a Python number, and a dataclass with the numbers in its fields converted.

    Numpy scalars of few bits round and overflow in computations, such as sensitivities and charges,
    although they compare as equal to the intended numbers.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)  # pyright: ignore[reportReturnType]
    if isinstance(value, Integral):
        return int(value)  # pyright: ignore[reportReturnType]
    if isinstance(value, Real):
        return float(value)  # pyright: ignore[reportReturnType]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    values = {f.name: getattr(value, f.name) for f in fields(value) if hasattr(value, f.name)}
    changed = {
        name: new for name, old in values.items() if (new := as_python_number(old)) is not old
    }
    if not changed:
        return value
    value = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(value, name, new)
    return value


def store_python_numbers(declared: object, *names: str) -> None:
    """Apply `as_python_number` to fields of a frozen dataclass, in its ``__post_init__``."""
    for name in names:
        object.__setattr__(declared, name, as_python_number(getattr(declared, name)))


def of_package(kind: type) -> bool:
    """Return whether a class is defined in the package, and not by a user."""
    return kind.__module__.startswith("dpcvx.")


# Smallest number that methods divide by: squares of its inverse are still finite.
LEAST_DIVISOR = 1e-100
# Largest number that is accepted for a number of rounds, runs and so on.
COUNTED = 10**9
# Largest number of characters of a text, and of digits of a number, that a message repeats.
_TEXT = 60


def show(value: object) -> str:
    """Return the text of an argument for a message: a number or short text, else only its type.

    The argument may be private data, if a user has confused two arguments.
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
    except Exception:  # numbers of other packages may raise errors that quote their values
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
    """Return the shape of an array or a cvxpy expression; None for other objects."""
    try:
        shape = value.shape  # pyright: ignore[reportAttributeAccessIssue]
        return tuple(int(n) for n in shape) if isinstance(shape, tuple) else None
    except Exception:  # an error of a foreign object may quote its contents
        return None


def finite(value: object) -> bool:
    """Return whether a value is a finite real number."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int too large for a float
        return False


def positive_finite(value: object) -> bool:
    """Return whether a value is a positive finite real number."""
    return finite(value) and float(value) > 0  # pyright: ignore[reportArgumentType]


def is_int(value: object, least: int) -> bool:
    """Return whether a value is an integer of at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def countable(value: object, least: int) -> bool:
    """Return whether a value is an integer from `least` to `COUNTED`, which is 10**9."""
    return is_int(value, least) and int(value) <= COUNTED  # pyright: ignore[reportArgumentType]


def listed(value: object) -> tuple[Any, ...] | None:
    """Return the elements of an iterable; None for texts, bytes and objects of other kinds."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        return None
    try:
        return tuple(value)
    except Exception:  # an error of a foreign object may quote its contents
        return None


def pairs(value: object) -> tuple[tuple[Any, Any], ...] | None:
    """Return the keys and values of a mapping; None for objects of other kinds."""
    if not isinstance(value, Mapping):
        return None
    try:
        return tuple((key, held) for key, held in value.items())
    except Exception:  # an error of a foreign mapping may quote its contents
        return None


def is_text(value: object) -> bool:
    """Return whether a value is text that UTF-8 can encode: without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_path(value: object) -> bool:
    """Return whether a value can be the path of a file or a folder."""
    text = str(value) if isinstance(value, (str, Path)) else ""
    return text != "" and is_text(text) and "\0" not in text


def one_of(value: object, *choices: str) -> bool:
    """Return whether a value is one of these texts; other types are not compared, unlike by ``in``.

    Comparisons with arrays and cvxpy objects are no truth values.
    """
    return isinstance(value, str) and value in choices


@dataclass(frozen=True)
class Kind:
    """Check of an argument's type and range, with the text after "must be" in its error."""

    fits: Callable[[object], bool]
    words: str

    def because(self, reason: str) -> Kind:
        """Return the check with a reason, which may include a fix, appended to its text."""
        return replace(self, words=f"{self.words}: {reason}")

    def otherwise(self, remedy: str) -> Kind:
        """Return the check with an alternative, such as other code, appended to its text."""
        return replace(self, words=f"{self.words}, {remedy}")


FLAG = Kind(lambda value: isinstance(value, (bool, np.bool_)), "True or False")
TEXT = Kind(is_text, "text that can be written down")
PATH = Kind(is_path, "the name of a file or folder, as text or pathlib.Path")
POSITIVE = Kind(positive_finite, "a positive finite number")
DIVISOR = Kind(
    lambda value: POSITIVE.fits(value) and float(value) >= LEAST_DIVISOR,  # type: ignore[arg-type]
    f"a positive finite number of at least {LEAST_DIVISOR:g}: the method divides by it",
)


def optional(kind: Kind) -> Kind:
    """Return the check of an argument that may also be None."""
    return replace(kind, fits=lambda value: value is None or kind.fits(value))


def integer(least: int) -> Kind:
    """Return the check that an argument is an integer of at least `least`."""
    return Kind(lambda value: is_int(value, least), f"an int of at least {least}")


def count(least: int = 1) -> Kind:
    """Return the check of a number of rounds or the like: an integer from `least` to 10**9."""
    words = f"an int of at least {least} and at most {COUNTED:.0e}"
    return Kind(lambda value: countable(value, least), words)


def number(fits: Callable[[Any], bool], where: str) -> Kind:
    """Return the check of a number's range: ``number(lambda v: 0 <= v <= 1, "from 0 to 1")``."""
    return Kind(lambda value: finite(value) and fits(value), f"a number {where}")


def choice(*texts: str) -> Kind:
    """Return the check that an argument is one of these texts."""
    *others, last = (repr(text) for text in texts)
    words = f"{', '.join(others)} or {last}" if others else last
    return Kind(lambda value: one_of(value, *texts), words)


def check_argument(
    owner: str, name: str, value: object, kind: Kind, error: type[DpcvxError] = ModelError
) -> None:
    """Raise an error unless an argument is of the required kind.

    Parameters
    ----------
    owner : str
        Function or class that takes the argument, as users write it; empty to name only the
        argument.
    name : str
        Name of the argument.
    value : object
        Value of the argument.
    kind : Kind
        Required kind.
    error : type
        Type of the error; ModelError if omitted.
    """
    if not kind.fits(value):
        given = f"{name}={show(value)}"
        raise error(f"{f'{owner}({given})' if owner else given} must be {kind.words}.")


def check_fields(
    declared: object, owner: str, error: type[DpcvxError] = ModelError, /, **kinds: Kind
) -> None:
    """Check fields of a frozen dataclass in its ``__post_init__``, and convert their numbers.

    Numbers become Python numbers; see `as_python_number`.
    """
    for name, kind in kinds.items():
        value = getattr(declared, name)
        check_argument(owner, name, value, kind, error)
        object.__setattr__(declared, name, as_python_number(value))
