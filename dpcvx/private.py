"""Private data: declared in the model, sealed outside the cvxpy tree, opened in one place.

A `Private` is a `cvxpy.Parameter` for every purpose of modelling, and never has a cvxpy value:
cvxpy prints constants in problems and errors and keeps them in caches and pickles.
Only `dpcvx.oracle` calls `unseal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arguments import make_plain, positive_finite, show, whole
from .errors import DataError, ModelError, PrivacyError

Norm = Literal["entry", 1, 2] | float
_NORMS = ("entry", 1, 2, math.inf)
# Entries that are checked at once: large data are not copied as a whole.
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Within:
    """Neighbouring data: the difference lies in a ball of radius `radius`.

    Parameters
    ----------
    radius : float
        Positive, in the unit of the data.
    norm : {"entry", 1, 2, inf}
        ``"entry"`` (default): one entry changes by at most `radius`, the others not at all.
        1, 2 or ``numpy.inf``: the whole difference has that norm at most `radius`.

    Raises
    ------
    ModelError
        If the radius is not a positive finite number or the norm is not one of the four.
    """

    radius: float
    norm: Norm = "entry"

    def __post_init__(self) -> None:
        if not positive_finite(self.radius):
            raise ModelError(
                f"dp.Within(radius={show(self.radius)}) is not an adjacency: the radius says how "
                "far "
                "the data of one neighbour may lie from the other's and must be a positive finite "
                "number. Write for example dp.Within(0.01)."
            )
        make_plain(self, "radius", "norm")
        if not isinstance(self.norm, (str, int, float)) or self.norm not in _NORMS:
            raise ModelError(
                f"dp.Within(norm={show(self.norm)}) is unknown: the norm says what may change at "
                "once. Write norm='entry' (one entry), 1, 2 or numpy.inf."
            )

    def allows(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
        """Whether two data are neighbours; rounding is forgiven."""
        change = one - other
        if self.norm == "entry" and np.count_nonzero(change) > 1:
            return False
        norm = math.inf if self.norm == "entry" else self.norm
        size = float(np.linalg.norm(change.ravel(), norm))  # type: ignore[arg-type]
        return size <= self.radius * (1 + 1e-9) + 1e-12

    def __str__(self) -> str:
        if self.norm == "entry":
            return f"one entry changes by at most {self.radius:g}"
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"the difference has l{name} norm at most {self.radius:g}"


@dataclass(frozen=True)
class Rows:
    """Neighbouring data: one row differs, and every row has a bounded norm.

    The rows are records. Private objects of one agent with the same `records` label hold parts of
    the same records, such as features and labels: their rows of one number change together.

    Parameters
    ----------
    bound : float
        Largest norm of a row, enforced when the data are read. Of a vector, each entry is a row.
    norm : {2, 1, inf}
        Norm of the rows.
    change : {"replace", "add or remove"}
        A row is replaced by any other admissible one, or it is added or removed, an absent row
        counting as zeros; the number of rows is public either way.
    clip : bool
        Scale rows that are too long down to the bound instead of refusing the data.
    records : str
        Label of what one row stands for.

    Raises
    ------
    ModelError
        If an argument is none of these.
    """

    bound: float
    norm: Literal[1, 2] | float = 2
    change: Literal["replace", "add or remove"] = "replace"
    clip: bool = False
    records: str = "record"

    def __post_init__(self) -> None:
        if not positive_finite(self.bound):
            raise ModelError(
                f"dp.Rows(bound={show(self.bound)}) bounds nothing: what one row can do to a "
                "gradient "
                "grows with its norm. Write a positive finite number, for example dp.Rows(1.0)."
            )
        make_plain(self, "bound", "norm", "clip")
        number = isinstance(self.norm, (int, float)) and not isinstance(self.norm, bool)
        if not number or self.norm not in (1, 2, math.inf):
            raise ModelError(
                f"dp.Rows(norm={show(self.norm)}) is unknown; write 1, 2 or numpy.inf."
            )
        if self.change not in ("replace", "add or remove"):
            raise ModelError(
                f"dp.Rows(change={show(self.change)}) is unknown; write 'replace' or 'add or "
                "remove'."
            )
        if not isinstance(self.records, str) or not isinstance(self.clip, bool):
            raise ModelError("dp.Rows takes records= as text and clip= as True or False.")

    @property
    def radius(self) -> float:
        """Largest norm of a row's change."""
        return 2 * self.bound if self.change == "replace" else self.bound

    def stretch(self, p: int, entries: NDArray[np.intp] | int) -> NDArray[np.float64]:
        """Largest lp norm among rows of so many entries whose own norm is one."""
        power = max(0.0, 1 / p - 1 / self.norm)
        return np.asarray(np.maximum(entries, 1) ** power, dtype=np.float64)

    def too_long(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which rows exceed the bound; rounding is forgiven, the sensitivity covers it.

        Parameters
        ----------
        rows : ndarray, shape (m, p)
        """
        long = np.empty(rows.shape[0], dtype=bool)
        count = max(1, _BLOCK // max(1, rows.shape[1]))
        for start in range(0, rows.shape[0], count):
            block = rows[start : start + count]
            with np.errstate(all="ignore"):  # a warning would tell something about the data
                peak, norms = self._norms(block)
                found = (self.bound / peak / norms < 1 - 1e-12) & (block != 0).any(axis=1)
            long[start : start + count] = found
        return long

    def enforced(self, rows: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """The rows with norms within the bound; None if one is too long and is not to be clipped.

        Parameters
        ----------
        rows : ndarray, shape (m, p)
        """
        long = self.too_long(rows)
        if not long.any():
            return rows
        if not self.clip:
            return None
        with np.errstate(all="ignore"):
            peak, norms = self._norms(rows)
            clipped = rows / peak[:, None] * (self.bound / norms)[:, None]
        return np.where(long[:, None], clipped, rows)

    def _norms(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Norms of rows as a product of two factors, neither of which overflows; zeros as ones."""
        peak = np.abs(rows).max(axis=1, initial=0.0)
        peak = np.where(peak > 0, peak, 1.0)
        norms = np.linalg.norm(rows / peak[:, None], self.norm, axis=1)
        return peak, np.where(norms > 0, norms, 1.0)

    def allows(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
        """Whether two data of rows within the bound are neighbours."""
        moved = np.flatnonzero((one != other).reshape(one.shape[0], -1).any(axis=1))
        if self.change == "replace" or not moved.size:
            return moved.size <= 1
        absent = [not data[moved[0]].any() for data in (one, other)]
        return moved.size == 1 and any(absent)

    def __str__(self) -> str:
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        verb = "replaced" if self.change == "replace" else "added or removed"
        return f"one {self.records} (a row of l{name} norm at most {self.bound:g}) is {verb}"


Adjacency = Within | Rows


@dataclass(frozen=True)
class PrivateSpec:
    """What is public about a private object: everything but its values."""

    name: str
    shape: tuple[int, ...]
    adjacency: Adjacency
    sign: Literal["nonneg", "nonpos"] | None

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def shaped(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """A flat column-major array in the declared shape."""
        return flat.reshape(self.shape, order="F")

    def checked(self, values: object) -> NDArray[np.float64]:
        """Return `values` as a flat (column-major) float array after checking the declaration.

        Raises
        ------
        DataError
            If `values` is not a numeric array of the declared shape, not finite, or has entries
            of the wrong sign. No value is shown, and the cause is not chained.
        """
        array = _real_array(values)
        fault = self._fault(array)
        if fault is None and array is not None:
            adjacency = self.adjacency
            if not isinstance(adjacency, Rows):
                return array.ravel(order="F")
            rows = adjacency.enforced(array.reshape(array.shape[0], -1))
            if rows is not None:
                return rows.ravel(order="F")
            fault = (
                f"have rows whose l{adjacency.norm:g} norm exceeds the declared bound "
                f"{adjacency.bound:g}. The sensitivity rests on it: scale the data, declare a "
                "larger bound, or write dp.Rows(..., clip=True) to have such rows scaled down."
            )
        del values, array  # tools that print the variables of a traceback's frames find nothing
        raise DataError(f"The data of private '{self.name}' {fault}")

    def _fault(self, array: NDArray[np.float64] | None) -> str | None:
        if array is None:
            return (
                "are not an array of real numbers. Pass a numeric numpy array without masked "
                "entries (a sparse matrix: call .toarray() first)."
            )
        if array.shape != self.shape:
            return (
                f"have shape {array.shape}, but it was declared with shape {self.shape}. The "
                "model's expressions were built for the declared shape: bind an array of that "
                "shape or declare another."
            )
        flat = array.ravel(order="F")
        parts = [flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK)]
        if not all(np.isfinite(part).all() for part in parts):
            return (
                "contain NaN or infinite entries. The sensitivity bound covers finite data only: "
                "clean the data before binding them."
            )
        side = {"nonneg": -1.0, "nonpos": 1.0, None: 0.0}[self.sign]
        if side and any((side * part > 0).any() for part in parts):
            return (
                f"have entries that contradict {self.sign}=True. The convexity of the model rests "
                "on that sign: drop the attribute or fix the data."
            )
        return None


class _Sealed:
    """Data that were checked when they were declared, and are not copied again."""

    def __init__(self, flat: NDArray[np.float64], shape: tuple[int, ...]) -> None:
        flat.flags.writeable = False
        self.flat = flat
        self._shape = shape

    def __call__(self) -> NDArray[np.float64]:
        return self.flat.reshape(self._shape, order="F")


class Private(cp.Parameter):
    """Data that only their owner may see, usable wherever cvxpy takes a parameter.

    Parameters
    ----------
    data : array_like or callable, optional
        The values, or a function without arguments that returns them; the function is called once
        per run, where the agent lives. Leave it out to declare a shape only and hand the data to
        ``plan.run(data={...})``.
    adjacency : Within or Rows
        What "one change" of the data means: the unit of the privacy guarantee.
    name : str, optional
        Used in banners and errors.
    shape : int or tuple of int, optional
        Needed without `data` and with a callable.
    nonneg, nonpos : bool
        Sign of the data, for cvxpy's convexity rules; checked when the data are read.

    Notes
    -----
    The values never enter cvxpy: `value` is always None, and printing, pickling or deep-copying
    drops them. In one Python process this is discipline, not isolation.

    Raises
    ------
    ModelError
        If shape, data or adjacency are missing or ambiguous.
    DataError
        If array data do not fit the declaration.
    """

    def __init__(
        self,
        data: ArrayLike | Callable[[], ArrayLike] | None = None,
        *,
        adjacency: Adjacency,
        name: str | None = None,
        shape: int | tuple[int, ...] | None = None,
        nonneg: bool = False,
        nonpos: bool = False,
    ) -> None:
        label = name or "unnamed"
        if not isinstance(adjacency, (Within, Rows)):
            raise ModelError(
                f"Private '{label}' has adjacency {type(adjacency).__name__}, which is unknown. "
                "The adjacency is the unit of the guarantee: write adjacency=dp.Within(0.01) with "
                "the change of the data that must stay hidden, or dp.Rows(1.0) for records."
            )
        if nonneg and nonpos:
            raise ModelError(f"Private '{label}' cannot be nonneg and nonpos at once; keep one.")
        shape = _declared_shape(data, shape, label)
        if isinstance(adjacency, Rows) and len(shape) not in (1, 2):
            raise ModelError(
                f"Private '{label}' has shape {shape} and no rows: dp.Rows needs a matrix with one "
                "record per row, or a vector with one record per entry."
            )
        if math.prod(shape) == 0:
            raise ModelError(f"Private '{label}' has shape {shape}: there is nothing to protect.")
        self._seal: Callable[[], Any] | None = None
        super().__init__(shape, name=name, nonneg=nonneg, nonpos=nonpos)
        self._adjacency = adjacency
        if callable(data):
            self._seal = data
        elif data is not None:
            self._seal = _Sealed(self.spec.checked(data), self.shape)

    @property
    def spec(self) -> PrivateSpec:
        """The public part of the declaration."""
        sign: Literal["nonneg", "nonpos"] | None = None
        if self.attributes["nonneg"]:
            sign = "nonneg"
        elif self.attributes["nonpos"]:
            sign = "nonpos"
        return PrivateSpec(self.name(), self.shape, self.adjacency, sign)

    @property
    def adjacency(self) -> Adjacency:
        """What one change of the data means; fixed at declaration."""
        return self._adjacency

    @property
    def bound(self) -> bool:
        """Whether the object carries data (an array or a function that fetches them)."""
        return self._seal is not None

    @property
    def value(self) -> None:
        """Always None: private values are not cvxpy values."""
        return None

    @value.setter
    def value(self, val: object) -> None:
        if val is not None:
            raise PrivacyError(
                f"Private '{self.name()}' takes no value: cvxpy would print and cache it. Pass "
                "the data to dp.Private(data, ...) or to plan.run(data={...})."
            )

    def save_value(self, val: object, sparse_path: bool = False) -> None:
        """Refuse the back door of cvxpy's value property as well."""
        self.value = val

    def __repr__(self) -> str:
        return f"Private(shape={self.shape}, name={self.name()!r}, adjacency={self.adjacency!r})"

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_seal": None}


def source_of(private: Private, override: object = None) -> Callable[[], Any]:
    """A function that fetches the private values; nothing is read yet.

    Raises
    ------
    DataError
        If the object was declared by shape and no data are given.
    """
    if callable(override):
        return override
    if override is not None:
        return lambda: override
    if private._seal is None:
        raise DataError(
            f"Private '{private.name()}' has no data: it was declared by shape, or copied or "
            "unpickled, which drops values. Pass them with "
            f"plan.run(data={{'{private.name()}': array}})."
        )
    return private._seal


def unseal(source: Callable[[], Any], spec: PrivateSpec) -> NDArray[np.float64]:
    """Fetch private values through `source` and check them. Called by `dpcvx.oracle` only.

    Raises
    ------
    DataError
        If the source raises or its values do not fit `spec`. The message of a failing source is
        withheld, because it may quote the data.
    """
    if isinstance(source, _Sealed):
        return source.flat
    try:
        values = source()
    except Exception as error:
        kind = type(error).__name__
    else:
        del source
        return spec.checked(values)
    del source
    raise DataError(
        f"The function that fetches private '{spec.name}' raised {kind}; its message is withheld "
        "because it may quote the data. Call the function by itself to see it."
    )


def _declared_shape(
    data: object, shape: int | tuple[int, ...] | None, label: str
) -> tuple[int, ...]:
    if isinstance(data, tuple):
        raise ModelError(
            f"Private '{label}' was given a tuple, which could be data or a shape. Write "
            "shape=(...) for a shape, or pass a list or numpy array as data."
        )
    if shape is not None:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(whole(n, 0) for n in sizes):
            raise ModelError(
                f"Private '{label}' has shape={show(shape)}; write an int or a tuple of ints."
            )
        return tuple(int(n) for n in sizes)
    if data is None or callable(data):
        raise ModelError(
            f"Private '{label}' has no shape. cvxpy needs it to build expressions: write "
            "dp.Private(shape=(n,), ...) and bind the data later, or dp.Private(array, ...)."
        )
    array = _real_array(data)
    if array is None:
        del data
        raise DataError(
            f"The data of private '{label}' are not an array of real numbers. Pass a numeric numpy "
            "array without masked entries (a sparse matrix: call .toarray() first)."
        )
    return array.shape


def _real_array(values: object) -> NDArray[np.float64] | None:
    """A float copy of array-like values, or None if they are not real numbers."""
    try:
        raw = np.asanyarray(values)
        if np.ma.isMaskedArray(raw) or raw.dtype.kind not in "biufO":
            return None
        return np.array(raw, dtype=np.float64, order="F")
    except Exception:  # whatever an object's conversion raises may quote the data
        return None
