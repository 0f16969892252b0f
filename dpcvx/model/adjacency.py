"""Neighboring data sets, the unit of every guarantee, and the persons that rows belong to.

Identifiers next to the data name the person of each row. They stay as private as the data.
"""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import (
    FLAG,
    POSITIVE,
    TEXT,
    Kind,
    check_fields,
    choice,
    countable,
    one_of,
    optional,
    show,
    store_python_numbers,
)
from .._words import plural
from ..errors import ModelError
from ..guard import frameless
from .matrices import BLOCK, Data, sparse_row_norms

Codes = NDArray[np.intp]


Norm = Literal["entry", 1, 2, "inf"] | float
_NORMS = ("entry", 1, 2, math.inf)
_RADIUS = POSITIVE.because(
    "how far the data of one neighbor may lie from the other's, in their own unit. Write for "
    "example dp.Within(0.01)"
)
_BOUND = POSITIVE.because(
    "the largest norm of a row, which limits what one row can do to a gradient. Write for example "
    "dp.Rows(1.0)"
)
_ROWS = optional(
    Kind(
        lambda value: countable(value, 1) or one_of(value, "all"),
        "an int of at least 1, or 'all'",
    ).because(
        "so many rows of one person are used, and may change at once. Write for example "
        "dp.Rows(1.0, max_rows_per_person=3)"
    )
)
_CHANGE, _LABEL = choice("replace_one", "add_or_remove_one"), optional(TEXT)


def _store_norm(declared: Within | Rows) -> None:
    """Replace the text "inf" in an adjacency's norm by infinity; 1, 2 and "entry" stay."""
    store_python_numbers(declared, "norm")
    if isinstance(declared.norm, str) and declared.norm == "inf":
        object.__setattr__(declared, "norm", math.inf)


@frameless
@dataclass(frozen=True)
class Within:
    """Privacy unit: neighboring data sets whose difference lies in a ball.

    Parameters
    ----------
    radius : float
        Radius of the ball, positive, in the unit of the data.
    norm : {"entry", 1, 2, "inf"}
        With ``"entry"`` (default), one entry changes by at most `radius`, and the others do not
        change. With 1, 2 or ``"inf"``, the whole difference has that norm of at most `radius`.
        ``numpy.inf`` is ``"inf"``.

    Raises
    ------
    ModelError
        If the radius is not a positive finite number or the norm is not one of the four.
    """

    radius: float
    norm: Norm = "entry"

    def __post_init__(self) -> None:
        check_fields(self, "dp.Within", radius=_RADIUS)
        _store_norm(self)
        if not isinstance(self.norm, (str, int, float)) or self.norm not in _NORMS:
            raise ModelError(
                f"dp.Within(norm={show(self.norm)}) is unknown. Write norm='entry' (one entry), "
                "1, 2 or 'inf'. The norm defines which data sets are neighbors."
            )

    def allows(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
        """Return whether two data sets are neighbors under this relation, up to rounding."""
        change = first - second
        if self.norm == "entry" and np.count_nonzero(change) > 1:
            return False
        norm = math.inf if self.norm == "entry" else self.norm
        size = float(np.linalg.norm(change.ravel(), norm))  # type: ignore[arg-type]
        return size <= self.radius * (1 + 1e-9) + 1e-12

    def __str__(self) -> str:
        return self._said(f"{self.radius:g}")

    @property
    def in_full(self) -> str:
        """Return the adjacency as text with all digits: equal text means equal adjacency."""
        return self._said(repr(self.radius))

    def _said(self, radius: str) -> str:
        if self.norm == "entry":
            return f"one entry changes by at most {radius}"
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"the difference has l{name} norm at most {radius}"


@frameless
@dataclass(frozen=True)
class MirroredWithin(Within):
    """Neighboring relation `Within` of symmetric matrices: mirror images count as one entry.

    An entry and its mirror image change together. The norms 1, 2 and "inf" are norms of the whole
    difference, with both triangles.
    """

    def allows(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
        """Return whether two symmetric matrices are neighbors, up to rounding."""
        if self.norm == "entry":
            first, second = np.triu(first), np.triu(second)
        return super().allows(first, second)

    @property
    def mirror(self) -> float:
        """Return the weight in the norm of an off-diagonal entry, relative to a diagonal one."""
        return {1: 2.0, 2: math.sqrt(2)}.get(self.norm, 1.0)  # type: ignore[call-overload]

    def _said(self, radius: str) -> str:
        if self.norm == "entry":
            return f"one entry and its mirror image change by at most {radius}"
        return f"{super()._said(radius)}, with both triangles counted"


@frameless
@dataclass(frozen=True)
class ComplexWithin(Within):
    """Neighboring relation `Within` of complex data: every norm is a norm of the moduli.

    In a Hermitian matrix, an entry and its conjugate count as one entry and change together. The
    norms 1, 2 and "inf" are norms of the whole difference, with both triangles.
    """

    hermitian: bool = False

    def allows(self, first: NDArray[Any], second: NDArray[Any]) -> bool:
        """Return whether two complex data sets are neighbors, up to rounding."""
        if self.hermitian and self.norm == "entry":
            first, second = np.triu(first), np.triu(second)
        return super().allows(first, second)

    @property
    def mirror(self) -> float:
        """Return the weight in the norm of an off-diagonal entry, relative to a diagonal one."""
        return {1: 2.0, 2: math.sqrt(2)}.get(self.norm, 1.0)  # type: ignore[call-overload]

    def reach(self, real: int, pairs: int, p: int) -> float:
        """Return the largest lp norm of the difference of two neighbors, as real numbers.

        The real and the imaginary part of a number are two entries.

        Parameters
        ----------
        real : int
            Number of entries without an imaginary part.
        pairs : int
            Number of entries with an imaginary part.
        p : {1, 2}
        """
        spread = math.sqrt(2) if p == 1 and pairs else 1.0  # lp norm of a number of modulus 1
        if self.norm in ("entry", 1):
            return self.radius * spread
        if self.norm == 2:  # the Euclidean norm of all real and imaginary parts
            return self.radius * (math.sqrt(real + 2 * pairs) if p == 1 else 1.0)
        if p == 1:
            return self.radius * (real + math.sqrt(2) * pairs)
        return self.radius * math.sqrt(real + pairs)

    def _said(self, radius: str) -> str:
        if self.norm == "entry":
            what = "entry and its conjugate change" if self.hermitian else "entry changes"
            return f"one complex {what} by at most {radius} in modulus"
        also = ", with both triangles counted" if self.hermitian else ""
        return f"{super()._said(radius)}, of complex numbers{also}"


@frameless
@dataclass(frozen=True)
class Rows:
    """Privacy unit: one row, or the rows of one person. Every row has a bounded norm.

    The rows are records. Private objects of one agent with the same `records` label hold parts of
    the same records, such as features and labels: their rows k change together. One change is a
    change of one agent's data. If several agents have the same label, they may hold data of the
    same people, so `Problem` requires that one of its ``groups`` contains them.

    Parameters
    ----------
    max_norm : float
        Largest norm of a row, enforced when the data are read. Each entry of a vector is a row.
    norm : {2, 1, "inf"}
        Norm of the rows; ``numpy.inf`` is ``"inf"``.
    relation : {"replace_one", "add_or_remove_one"}
        Neighboring data replace a row by any other admissible one, or they add or remove one; an
        absent row counts as zeros. The number of rows is public in both cases.
    clip_rows : bool
        Scale rows with a larger norm down to `max_norm`, instead of refusing the data.
    records : str, optional
        Label of what a row describes, such as "patient". If omitted, "record", which does not link
        the data of different agents.
    max_rows_per_person : int or "all", optional
        Largest number of rows of a person. The first ones in the order of the data are used, and
        all others are set to zero. Pass identifiers by `ByPerson`. Neighboring data replace the
        rows of one person by any admissible rows, or add or remove all of them. All other rows keep
        their places and identifiers. If omitted, each row is a different person. With "all", all
        rows of the agent belong to one person, such as a client in federated learning, and need no
        identifiers. All private objects of the agent are then parts of these rows.

    Raises
    ------
    ModelError
        If an argument has another type or value.
    """

    max_norm: float
    norm: Literal[1, 2, "inf"] | float = 2
    relation: Literal["replace_one", "add_or_remove_one"] = "replace_one"
    clip_rows: bool = False
    records: str | None = None
    max_rows_per_person: int | Literal["all"] | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        check_fields(
            self,
            "dp.Rows",
            max_norm=_BOUND,
            relation=_CHANGE,
            clip_rows=FLAG,
            records=_LABEL,
            max_rows_per_person=_ROWS,
        )
        _store_norm(self)
        number = isinstance(self.norm, (int, float)) and not isinstance(self.norm, bool)
        if not number or self.norm not in (1, 2, math.inf):
            raise ModelError(f"dp.Rows(norm={show(self.norm)}) is unknown; write 1, 2 or 'inf'.")

    @property
    def order(self) -> float:
        """Norm of the rows as a number: 1, 2 or infinity."""
        return float(self.norm)

    @property
    def label(self) -> str:
        """Return the label of the unit that a row describes, "record" if omitted."""
        return "record" if self.records is None else self.records

    @property
    def radius(self) -> float:
        """Largest norm of the change of one row."""
        return 2 * self.max_norm if self.relation == "replace_one" else self.max_norm

    def moved_rows(self, rows: int) -> int:
        """Return the largest number of rows that differ between neighbors, out of `rows` rows."""
        if self.max_rows_per_person == "all":
            return rows
        return min(rows, self.max_rows_per_person or 1)

    @property
    def row_limit(self) -> int | None:
        """Largest number of rows used per person; None if the data need no person identifiers."""
        return None if self.max_rows_per_person == "all" else self.max_rows_per_person

    def stretch(self, p: int, entries: NDArray[np.intp] | int) -> NDArray[np.float64]:
        """Return the largest lp norm of a row with `entries` numbers whose norm in `norm` is 1."""
        power = max(0.0, 1 / p - 1 / self.order)
        return np.asarray(np.maximum(entries, 1) ** power, dtype=np.float64)

    def too_long(self, rows: Data) -> NDArray[np.bool_]:
        """Return for each row whether its norm exceeds `max_norm` by more than rounding errors.

        Derived sensitivities cover the rounding.
        """
        if not isinstance(rows, np.ndarray):
            peak, norms = sparse_row_norms(rows, self.order)
            with np.errstate(all="ignore"):
                return (peak > 0) & (self.max_norm / peak / norms < 1 - 1e-12)
        long = np.empty(rows.shape[0], dtype=bool)
        count = max(1, BLOCK // max(1, rows.shape[1]))
        for start in range(0, rows.shape[0], count):
            block = rows[start : start + count]
            with np.errstate(all="ignore"):  # a warning would reveal something about the data
                peak, norms = self._norms(block)
                exceeds = (self.max_norm / peak / norms < 1 - 1e-12) & (block != 0).any(axis=1)
            long[start : start + count] = exceeds
        return long

    def enforced(self, rows: Data) -> Data | None:
        """Return the rows if all norms are at most `max_norm`; with `clip_rows`, clip longer rows.

        The result is None if a row is longer and `clip_rows` is False.
        """
        long = self.too_long(rows)
        if not long.any():
            return rows
        if not self.clip_rows:
            return None
        if not isinstance(rows, np.ndarray):
            peak, norms = (np.where(long, part, 1.0) for part in sparse_row_norms(rows, self.order))
            share = np.where(long, self.max_norm / norms, 1.0)
            peak, share = (np.repeat(part, np.diff(rows.indptr)) for part in (peak, share))
            return sp.csr_array((rows.data / peak * share, rows.indices, rows.indptr), rows.shape)
        with np.errstate(all="ignore"):
            peak, norms = self._norms(rows)
            clipped = rows / peak[:, None] * (self.max_norm / norms)[:, None]
        return np.where(long[:, None], clipped, rows)

    def _norms(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the norm of each row as two factors whose product might overflow.

        Both factors are 1 for rows of zeros.
        """
        peak = np.abs(rows).max(axis=1, initial=0.0)
        peak = np.where(peak > 0, peak, 1.0)
        norms = np.linalg.norm(rows / peak[:, None], self.order, axis=1)
        return peak, np.where(norms > 0, norms, 1.0)

    def limited(self, rows: Data, people: Codes) -> Data:
        """Return the rows, with each person's rows beyond the first `row_limit` set to zero.

        `people` are the persons of the rows, as in `codes_of`.

        The choice of a person's rows depends on their positions alone, so no change of another
        person's data affects it.
        """
        assert self.row_limit is not None
        counted = first_rows(people, self.row_limit)
        if counted.all():
            return rows
        if isinstance(rows, np.ndarray):
            return np.where(counted[:, np.newaxis], rows, 0.0)
        sparse = sp.csr_array(rows, copy=True)
        sparse.data[~np.repeat(counted, np.diff(sparse.indptr))] = 0.0
        sparse.eliminate_zeros()
        return sparse

    def allows(self, first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
        """Return whether two data sets of rows within the norm bound are neighbors.

        All rows that differ are assumed to belong to one person.
        """
        moved = np.flatnonzero((first != second).reshape(first.shape[0], -1).any(axis=1))
        if self.relation == "replace_one" or not moved.size:
            return moved.size <= self.moved_rows(first.shape[0])
        absent = [not data[moved].any() for data in (first, second)]
        return moved.size <= self.moved_rows(first.shape[0]) and any(absent)

    def __str__(self) -> str:
        return self._said(f"{self.max_norm:g}")

    @property
    def in_full(self) -> str:
        """Return the adjacency as text with all digits: equal text means equal adjacency."""
        return self._said(repr(self.max_norm))

    def _said(self, bound: str) -> str:
        verb = "replaced" if self.relation == "replace_one" else "added or removed"
        if self.max_rows_per_person is None:
            return f"one {self.label} ({self._row(bound)}) is {verb}"
        rows = "all rows"
        if self.max_rows_per_person != "all":
            rows = f"at most {plural(self.max_rows_per_person, 'row')}"
        return f"one person ({rows} of {self._norm_of(bound)}, one per {self.label}) is {verb}"

    @property
    def row(self) -> str:
        """Return text on the bound of a row's norm, for messages."""
        return self._row(f"{self.max_norm:g}")

    def _row(self, bound: str) -> str:
        return f"a row of {self._norm_of(bound)}"

    def _norm_of(self, bound: str) -> str:
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"l{name} norm at most {bound}"


Adjacency = Within | Rows


class ByPerson:
    """Data with the person of each row, for ``dp.Rows(..., max_rows_per_person=)``.

    Pass it wherever private data are passed: to `Private`, in ``plan.run(data={...})``, or from a
    function that fetches data. Only the first rows of each person are used, in the order of the
    data, as many as the adjacency allows; all others are set to zero. Private objects with parts of
    the same rows need the same identifiers.

    Parameters
    ----------
    values : array_like or sparse matrix, of n rows
    people : array_like, shape (n,)
        Identifier of the person of each row: integers, text, or other sortable values. Identifiers
        are as private as the data: no plan, message, ledger or fingerprint contains them.

    Notes
    -----
    Printing shows no values, and the object cannot be copied or pickled. Rows with equal
    identifiers belong to one person; blanks around a text, characters without a width, and
    encodings of accented letters make no difference. If one person has two identifiers, dpcvx
    counts two people, and the guarantee does not hold for this person.
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
    """Return the values of data that a user passed, and identifiers of persons, or None without.

    `held` is the passed object, perhaps a `ByPerson`.
    """
    return (held._values, held._people) if isinstance(held, ByPerson) else (held, None)


def codes_of(people: object) -> Codes | str:
    """Return, for each row, the index of its person's first row; or why identifiers are faulty.

    `people` holds the identifiers, one per row. Texts that look equal are one person.
    """
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
        codes[row] = first.setdefault(_spelled(person), row)
    return codes


_SHAPE = (
    "come with identifiers that are no list or array of one number or text per row. Pass "
    "dp.ByPerson(array, people) with people of shape (n,)."
)
_MISSING = (
    "come with rows without an identifier. Such rows may be anybody's: drop them, or give each "
    "person an identifier."
)


def _spelled(person: object) -> object:
    """Return an identifier without what nobody sees: blanks around a text, and its encoding.

    Characters without a width, such as U+200B, are left out. Two people who become one by this lose
    rows, and no guarantee: rows of one person are then among the rows of one identifier.
    """
    if isinstance(person, tuple):
        return tuple(map(_spelled, person))
    if isinstance(person, bytes) or (isinstance(person, str) and person.isascii()):
        return person.strip()
    if not isinstance(person, str):
        return person
    visible = "".join(c for c in person if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", visible).strip()


def _is_missing(person: object) -> bool:
    if isinstance(person, tuple):
        # One part may be empty. With nan in it, equal tuples may count as unequal ones.
        empty = (str, bytes, type(None))
        missing = [part for part in person if _is_missing(part)]
        return len(missing) == len(person) or not all(isinstance(p, empty) for p in missing)
    if person is None or (isinstance(person, (str, bytes)) and not _spelled(person)):
        return True
    try:
        return bool(person != person)
    except TypeError:  # pandas.NA: its comparison with itself has no truth value
        return True


def first_rows(codes: Codes, most: int) -> NDArray[np.bool_]:
    """Return, for each row, whether it is among the first `most` rows of the same person.

    `codes` are the persons of the rows, as in `codes_of`.
    """
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    starts = np.searchsorted(sorted_codes, sorted_codes)
    among = np.empty(codes.size, dtype=bool)
    among[order] = np.arange(codes.size) - starts < most
    return among
