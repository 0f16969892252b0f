"""Whose rows are whose: identifiers next to data, which stay as private as the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.intp]


class ByPerson:
    """Data with the person of each row, for ``dp.Rows(..., max_rows_per_person=)``.

    Pass it wherever private data are passed: to `Private`, in ``plan.run(data={...})``, or from a
    function that fetches data. Of each person only the first rows are used, in the order of the
    data, as many as the adjacency says; all others are set to zero. Private objects with parts of
    the same rows need the same identifiers.

    Parameters
    ----------
    values : array_like or sparse matrix, of n rows
    people : array_like, shape (n,)
        An identifier per row: integers, text, or other values that compare. They are as private as
        the data: no plan, message, ledger or fingerprint has them.

    Notes
    -----
    Nothing shows the values, and they are neither copied nor pickled. Equal identifiers are one
    person, whatever they are called elsewhere. Two spellings of one person are two people, for whom
    the guarantee does not hold.
    """

    __slots__ = ("__weakref__", "_people", "_values")

    def __init__(self, values: Any, people: Any) -> None:
        self._values, self._people = values, people
        del values, people

    def __repr__(self) -> str:
        return "ByPerson(<sealed>)"

    def __dir__(self) -> list[str]:
        return []

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        raise TypeError("Data with identifiers are never copied or pickled.")


def parts_of(held: object) -> tuple[object, object]:
    """Values, and identifiers or None."""
    return (held._values, held._people) if isinstance(held, ByPerson) else (held, None)


def codes_of(people: object) -> Codes | str:
    """The number of each row's first row of the same person; what is wrong if there is none."""
    if np.ma.is_masked(people):
        return _MISSING
    held = people if isinstance(people, (list, tuple)) else np.asarray(people)
    if isinstance(held, np.ndarray):
        if held.ndim != 1 or held.dtype.kind not in "biufSUO":
            return _SHAPE
        held = held.tolist()
    first: dict[object, int] = {}
    codes = np.empty(len(held), dtype=np.intp)
    for row, person in enumerate(held):
        if _is_missing(person):
            return _MISSING
        codes[row] = first.setdefault(person, row)
    return codes


_SHAPE = (
    "come with identifiers that are no list or array of one number or text per row. Pass "
    "dp.ByPerson(array, people) with people of shape (n,)."
)
_MISSING = (
    "come with rows without an identifier. Such rows may be anybody's: drop them, or give each "
    "person an identifier."
)


def _is_missing(person: object) -> bool:
    if person is None or (isinstance(person, (str, bytes)) and not person.strip()):
        return True
    try:
        return bool(person != person)
    except TypeError:  # whether a missing value of pandas equals itself is missing, too
        return True


def first_rows(codes: Codes, most: int) -> NDArray[np.bool_]:
    """Which rows are among the first so many of their person."""
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.searchsorted(sorted_codes, sorted_codes)
    among = np.empty(codes.size, dtype=bool)
    among[order] = np.arange(codes.size) - starts < most
    return among
