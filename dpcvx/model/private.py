"""Private data: declared in the model, sealed outside the cvxpy tree, opened in one place.

A `Private` is a `cvxpy.Parameter` for every purpose of modelling, and never has a cvxpy value:
cvxpy prints constants in problems and errors and keeps them in caches and pickles.
Only `dpcvx.run.gate` calls `unseal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from .._arguments import (
    FLAG,
    POSITIVE,
    TEXT,
    check_argument,
    check_fields,
    choice,
    is_int,
    optional,
    show,
    store_python_numbers,
)
from ..errors import DataError, ModelError, PrivacyError
from ..guard import failed, fetched, frameless, guarded
from .matrices import Identity

Norm = Literal["entry", 1, 2, "inf"] | float
_NORMS = ("entry", 1, 2, math.inf)
# Entries that are checked at once: large data are not copied as a whole.
_BLOCK = 1 << 18
_UNREAL = (
    "are not an array of real numbers. Pass a numeric numpy array without masked entries (a sparse "
    "matrix: call .toarray() first)."
)
_RADIUS = POSITIVE.because(
    "how far the data of one neighbour may lie from the other's, in their own unit. Write for "
    "example dp.Within(0.01)"
)
_BOUND = POSITIVE.because(
    "the largest norm of a row, which limits what one row can do to a gradient. Write for example "
    "dp.Rows(1.0)"
)
# Symmetry and eigenvalues of data may be off by this, relative to their size.
_ROUNDED = 1e-9
_KEPT = "Sealed data are never copied or pickled."
# Name of objects that have none.
_UNNAMED = "unnamed"


def _store_norm(declared: Within | Rows) -> None:
    """The norm as a number, or "entry"; written as text it may be "inf", as in cvxpy."""
    store_python_numbers(declared, "norm")
    if isinstance(declared.norm, str) and declared.norm == "inf":
        object.__setattr__(declared, "norm", math.inf)


@frameless
@dataclass(frozen=True)
class Within:
    """Neighbouring data: the difference lies in a ball of radius `radius`.

    Parameters
    ----------
    radius : float
        Positive, in the unit of the data.
    norm : {"entry", 1, 2, "inf"}
        ``"entry"`` (default): one entry changes by at most `radius`, the others not at all.
        1, 2 or ``"inf"``, as in cvxpy: the whole difference has that norm at most `radius`.
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
                f"dp.Within(norm={show(self.norm)}) is unknown: the norm says what may change at "
                "once. Write norm='entry' (one entry), 1, 2 or 'inf'."
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
        return self._said(f"{self.radius:g}")

    @property
    def in_full(self) -> str:
        """The same with every digit: adjacencies are alike where these are."""
        return self._said(repr(self.radius))

    def _said(self, radius: str) -> str:
        if self.norm == "entry":
            return f"one entry changes by at most {radius}"
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"the difference has l{name} norm at most {radius}"


@frameless
@dataclass(frozen=True)
class MirroredWithin(Within):
    """`Within` for symmetric matrices: an entry and its mirror image are one, and change alike.

    The norms 1, 2 and "inf" are of the whole difference, both triangles counted.
    """

    def allows(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
        """Whether two symmetric matrices are neighbours; rounding is forgiven."""
        if self.norm == "entry":
            one, other = np.triu(one), np.triu(other)
        return super().allows(one, other)

    @property
    def mirror(self) -> float:
        """What an entry off the diagonal counts for in the norm, next to one on it."""
        return {1: 2.0, 2: math.sqrt(2)}.get(self.norm, 1.0)  # type: ignore[call-overload]

    def _said(self, radius: str) -> str:
        if self.norm == "entry":
            return f"one entry and its mirror image change by at most {radius}"
        return f"{super()._said(radius)}, with both triangles counted"


@frameless
@dataclass(frozen=True)
class Rows:
    """Neighbouring data: one row differs, and every row has a bounded norm.

    The rows are records. Private objects of one agent with the same `records` label hold parts of
    the same records, such as features and labels: their rows of one number change together. One
    change is a change of one agent's data. Where a label is given in several agents they may hold
    data of the same people, so `Problem` asks for a group of them.

    Parameters
    ----------
    bound : float
        Largest norm of a row, enforced when the data are read. Of a vector, each entry is a row.
    norm : {2, 1, "inf"}
        Norm of the rows; ``numpy.inf`` is ``"inf"``.
    change : {"replace", "add or remove"}
        A row is replaced by any other admissible one, or it is added or removed, an absent row
        counting as zeros; the number of rows is public either way.
    clip : bool
        Scale rows that are too long down to the bound instead of refusing the data.
    records : str, optional
        Label of what one row stands for; "record" if omitted, without saying anything about other
        agents.

    Raises
    ------
    ModelError
        If an argument is none of these.
    """

    bound: float
    norm: Literal[1, 2, "inf"] | float = 2
    change: Literal["replace", "add or remove"] = "replace"
    clip: bool = False
    records: str | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            "dp.Rows",
            bound=_BOUND,
            change=choice("replace", "add or remove"),
            clip=FLAG,
            records=optional(TEXT),
        )
        _store_norm(self)
        number = isinstance(self.norm, (int, float)) and not isinstance(self.norm, bool)
        if not number or self.norm not in (1, 2, math.inf):
            raise ModelError(f"dp.Rows(norm={show(self.norm)}) is unknown; write 1, 2 or 'inf'.")

    @property
    def order(self) -> float:
        """The norm as a number: 1, 2 or infinity."""
        return float(self.norm)

    @property
    def label(self) -> str:
        """What one row stands for."""
        return "record" if self.records is None else self.records

    @property
    def radius(self) -> float:
        """Largest norm of a row's change."""
        return 2 * self.bound if self.change == "replace" else self.bound

    def stretch(self, p: int, entries: NDArray[np.intp] | int) -> NDArray[np.float64]:
        """Largest lp norm among rows of so many entries whose own norm is one."""
        power = max(0.0, 1 / p - 1 / self.order)
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
        norms = np.linalg.norm(rows / peak[:, None], self.order, axis=1)
        return peak, np.where(norms > 0, norms, 1.0)

    def allows(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
        """Whether two data of rows within the bound are neighbours."""
        moved = np.flatnonzero((one != other).reshape(one.shape[0], -1).any(axis=1))
        if self.change == "replace" or not moved.size:
            return moved.size <= 1
        absent = [not data[moved[0]].any() for data in (one, other)]
        return moved.size == 1 and any(absent)

    def __str__(self) -> str:
        return f"one {self.label} ({self.row}) is {self._verb}"

    @property
    def in_full(self) -> str:
        """The same with every digit: adjacencies are alike where these are."""
        return f"one {self.label} ({self._row(repr(self.bound))}) is {self._verb}"

    @property
    def row(self) -> str:
        """What bounds a row, in words."""
        return self._row(f"{self.bound:g}")

    def _row(self, bound: str) -> str:
        name = "inf" if self.norm == math.inf else f"{self.norm:g}"
        return f"a row of l{name} norm at most {bound}"

    @property
    def _verb(self) -> str:
        return "replaced" if self.change == "replace" else "added or removed"


Adjacency = Within | Rows


@dataclass(frozen=True)
class PrivateSpec:
    """What is public about a private object: everything but its values."""

    name: str
    shape: tuple[int, ...]
    adjacency: Adjacency
    sign: Literal["nonneg", "nonpos"] | None
    psd: bool = False

    @property
    def symmetric(self) -> bool:
        """Whether the data are a symmetric matrix, of which one triangle is kept."""
        return isinstance(self.adjacency, MirroredWithin)

    @property
    def size(self) -> int:
        """Number of entries that are kept."""
        n = self.shape[0] if self.shape else 1
        return n * (n + 1) // 2 if self.symmetric else math.prod(self.shape)

    def unfolded(self) -> sp.csr_array | Identity:
        """The matrix that makes the data, column by column, of the entries that are kept.

        Of a symmetric matrix these are the upper triangle's, in units in which the adjacency's norm
        of the whole difference is that of its entries.
        """
        if not isinstance(self.adjacency, MirroredWithin):
            return Identity(self.size)
        n, (i, j) = self.shape[0], np.triu_indices(self.shape[0])
        own, apart = np.arange(i.size), i != j
        values = np.where(apart, 1 / self.adjacency.mirror, 1.0)
        rows = np.concatenate([i + n * j, (j + n * i)[apart]])
        columns = np.concatenate([own, own[apart]])
        entries = np.concatenate([values, values[apart]])
        return sp.csr_array((entries, (rows, columns)), shape=(n * n, i.size))

    @property
    def half(self) -> bool:
        """Whether rows of one sign are replaced by rows of the same sign."""
        adjacency = self.adjacency
        replaced = isinstance(adjacency, Rows) and adjacency.change == "replace"
        return replaced and self.sign is not None

    def row_reach(self, p: int) -> float:
        """Largest lp norm of a row's change.

        The positive and the negative part of a difference of two rows of one sign have no entry in
        common, and each is no longer than a row. It is largest if each has half of the entries.
        """
        adjacency, width = self.adjacency, self.size // self.shape[0]
        assert isinstance(adjacency, Rows)
        if not self.half:
            return adjacency.radius * float(adjacency.stretch(p, width))
        parts = [adjacency.stretch(p, n) for n in (width // 2, width - width // 2) if n]
        return adjacency.bound * float(np.linalg.norm(parts, p))

    def shaped(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """The entries that are kept, column by column, in the declared shape."""
        return np.asarray(self.unfolded() @ flat).reshape(self.shape, order="F")

    def kept(self, array: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of an array of the declared shape, the entries that are kept."""
        if not isinstance(self.adjacency, MirroredWithin):
            return array.ravel(order="F")
        i, j = np.triu_indices(self.shape[0])
        return array[i, j] * np.where(i != j, self.adjacency.mirror, 1.0)

    def admissible(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """The closest entries that have the declared sign, or are positive semidefinite."""
        if self.psd:
            values, vectors = np.linalg.eigh(self.shaped(flat))
            return self.kept((vectors * np.maximum(values, 0.0)) @ vectors.T)
        if self.sign is None:
            return flat
        return np.maximum(flat, 0.0) if self.sign == "nonneg" else np.minimum(flat, 0.0)

    def checked(
        self, array: NDArray[np.float64] | None, what: str = "The data"
    ) -> NDArray[np.float64]:
        """Return an array as a flat (column-major) one after checking the declaration.

        Parameters
        ----------
        array : ndarray or None
            None where the data are no array of real numbers.
        what : str
            What it is, for messages: the subject of a sentence, in the plural.

        Raises
        ------
        DataError
            If the array is not of the declared shape, not finite, or has entries of the wrong sign.
            No value is shown, and the cause is not chained.
        """
        fault = self._fault(array)
        if fault is None and array is not None:
            adjacency = self.adjacency
            if not isinstance(adjacency, Rows):
                return self.kept((array + array.T) / 2 if self.symmetric else array)
            rows = adjacency.enforced(array.reshape(array.shape[0], -1))
            if rows is not None:
                return rows.ravel(order="F")
            fault = (
                f"have rows whose l{adjacency.norm:g} norm exceeds the declared bound "
                f"{adjacency.bound:g}. The sensitivity rests on it: scale the data, declare a "
                "larger bound, or write dp.Rows(..., clip=True) to have such rows scaled down."
            )
        del array  # tools that print the variables of a traceback's frames find nothing
        raise DataError(f"{what} of private '{self.name}' {fault}")

    def _fault(self, array: NDArray[np.float64] | None) -> str | None:
        if array is None:
            return _UNREAL
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
        if self.symmetric and not self._mirrored(array):
            return (
                "are not the symmetric matrix that was declared, of which one triangle is used. "
                "Pass (A + A.T) / 2, or drop symmetric=True or PSD=True."
            )
        if self.psd and not self._semidefinite(array):
            return (
                "have negative eigenvalues, which contradicts PSD=True. The convexity of the model "
                "rests on it: declare symmetric=True instead, or fix the data."
            )
        side = {"nonneg": -1.0, "nonpos": 1.0, None: 0.0}[self.sign]
        if side and any((side * part > 0).any() for part in parts):
            return (
                f"have entries that contradict {self.sign}=True. The convexity of the model rests "
                "on that sign: drop the attribute or fix the data."
            )
        return None

    def _mirrored(self, array: NDArray[np.float64]) -> bool:
        largest = float(np.abs(array).max())
        return bool((np.abs(array - array.T) <= _ROUNDED * largest).all())

    def _semidefinite(self, array: NDArray[np.float64]) -> bool:
        values = np.linalg.eigvalsh((array + array.T) / 2)
        return bool(values[0] >= -_ROUNDED * np.abs(values).max())


class Sealed:
    """Private data, or a function that fetches them, of which nothing shows.

    Tools that list an object's names, its ``__dict__`` or its text find nothing, and it is neither
    copied nor pickled. In one Python process this is discipline, not isolation.

    Parameters
    ----------
    held : array_like or callable
    spec : PrivateSpec, optional
        Check the data now, and keep them as they are used. They are not copied again.

    Raises
    ------
    DataError
        If the data do not fit `spec`.
    """

    __slots__ = ("_checked", "_held")

    def __init__(self, held: object, spec: PrivateSpec | None = None) -> None:
        self._held = held
        self._checked: NDArray[np.float64] | None = None
        del held
        if spec is not None:
            self._checked = flat = _read(self._held, spec)
            flat.flags.writeable = False
            self._held = spec.shaped(flat)

    def __call__(self) -> Any:
        """Fetch the values."""
        return self._held() if callable(self._held) else self._held

    def __repr__(self) -> str:
        return "<sealed>"

    def __dir__(self) -> list[str]:
        return []

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        raise TypeError(_KEPT)

    def __getstate__(self) -> object:
        raise TypeError(_KEPT)  # Python's own gives out what is in the slots


def handed_over(source: Sealed) -> tuple[Callable[..., Sealed], tuple[Any, ...]]:
    """How sealed data, or what fetches them, are made anew in a process of the same owner.

    Called by executors only, which send agents to where they live. As pickle takes it: what makes
    the twin, and from what.
    """
    held, checked = source._held, source._checked
    if checked is None:
        return Sealed, (held,)
    held = np.asarray(held)
    return _resealed, (checked, held.shape, None if held.size == checked.size else held)


def _resealed(
    checked: NDArray[np.float64], shape: tuple[int, ...], held: NDArray[np.float64] | None
) -> Sealed:
    twin = Sealed(checked.reshape(shape, order="F") if held is None else held)
    checked.flags.writeable = False
    twin._checked = checked
    return twin


def seal(value: object) -> Sealed:
    """Data or a function that fetches them, sealed; what is sealed already stays what it is."""
    return value if isinstance(value, Sealed) else Sealed(value)


def seal_all(data: object, argument: str = "data") -> dict[Private | str, Sealed]:
    """A mapping of private objects or their names to data, with the data sealed.

    Called first thing, so that no frame of the package holds the data themselves.

    Raises
    ------
    ModelError
        If it is no such mapping.
    """
    if data is None:
        return {}
    found: dict[Private | str, Sealed] | None = None
    if isinstance(data, Mapping):
        try:
            found = {key: seal(value) for key, value in data.items()}
        except Exception:  # whatever a foreign mapping raises may quote the data
            found = None
    del data
    if found is None or not all(isinstance(key, (Private, str)) for key in found):
        del found
        raise ModelError(
            f"{argument}= is a mapping of private objects or their names to values, such as "
            "{'load': array}."
        )
    return found


@dataclass
class Uses:
    """What runs released from a private object's data: all that such an object remembers.

    Attributes
    ----------
    losses : list
        Of each run with noise, as accounting has them.
    releases : int
        Of all runs.
    open : bool
        Whether a run had no noise.
    handed : bool
        Whether a run had its data from ``data=``, which may have been others.
    """

    losses: list[Any] = field(default_factory=list)
    releases: int = 0
    open: bool = False
    handed: bool = False


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
        Used in banners, errors and ledgers.
    shape : int or tuple of int, optional
        Needed without `data` and with a callable, unless `like` is given.
    nonneg, nonpos : bool
        Sign of the data, for cvxpy's convexity rules; checked when the data are read.
    symmetric, PSD : bool
        The data are a symmetric matrix, or a positive semidefinite one, such as the covariance P in
        ``cp.quad_form(x, P)``; checked when they are read. An entry and its mirror image are then
        one entry of the adjacency.
    like : array_like, optional
        Public values of the same kind and shape, such as nominal loads or last year's published
        figures: what ``problem.tune`` and its like try settings on. They must not be computed from
        the private data, since whatever is chosen with them is not charged.

    Notes
    -----
    The values never enter cvxpy: `value` is always None, and printing, pickling or deep-copying
    drops them; `like` stays. In one Python process this is discipline, not isolation.

    Raises
    ------
    ModelError
        If shape, data or adjacency are missing or ambiguous.
    DataError
        If array data, or `like`, do not fit the declaration.
    """

    @frameless
    def __init__(
        self,
        data: ArrayLike | Callable[[], ArrayLike] | None = None,
        *,
        adjacency: Adjacency,
        name: str | None = None,
        shape: int | tuple[int, ...] | None = None,
        nonneg: bool = False,
        nonpos: bool = False,
        symmetric: bool = False,
        PSD: bool = False,
        like: ArrayLike | None = None,
    ) -> None:
        tupled, fetches = issubclass(type(data), tuple), callable(data)
        source = None if data is None else seal(data)
        same = like is not None and (
            like is data
            or (
                isinstance(like, np.ndarray)
                and isinstance(data, np.ndarray)
                and np.may_share_memory(like, data)
            )
        )
        del data  # before anything can fail
        check_argument("dp.Private", "name", name, optional(TEXT.because("such as name='load'")))
        self._named, self._called = bool(name), name or _UNNAMED
        self.uses = Uses()
        label = self._called
        if not isinstance(adjacency, (Within, Rows)):
            raise ModelError(
                f"Private '{label}' has adjacency {type(adjacency).__name__}, which is unknown. "
                "The adjacency is the unit of the guarantee: write adjacency=dp.Within(0.01) with "
                "the change of the data that must stay hidden, or dp.Rows(1.0) for records."
            )
        check_argument("dp.Private", "nonneg", nonneg, FLAG)
        check_argument("dp.Private", "nonpos", nonpos, FLAG)
        check_argument("dp.Private", "symmetric", symmetric, FLAG)
        check_argument("dp.Private", "PSD", PSD, FLAG)
        if nonneg and nonpos:
            raise ModelError(f"Private '{label}' cannot be nonneg and nonpos at once; keep one.")
        if (symmetric or PSD) and (nonneg or nonpos or isinstance(adjacency, Rows)):
            other = "dp.Rows" if isinstance(adjacency, Rows) else "a sign"
            raise ModelError(
                f"Private '{label}' cannot be a symmetric matrix and have {other} at once; keep "
                "one of the two. Symmetric matrices take adjacency=dp.Within(...)."
            )
        if tupled:
            raise ModelError(
                f"Private '{label}' was given a tuple, which could be data or a shape. Write "
                "shape=(...) for a shape, or pass a list or numpy array as data."
            )
        if same:
            raise PrivacyError(
                f"Private '{label}' was given its own data as like=. Settings that are chosen with "
                "like= are not charged, so it must be public: pass values that do not depend on "
                "the data, such as nominal loads or last year's published figures, or leave it out."
            )
        public = None if like is None else real_array(like)
        if shape is None and public is not None and (fetches or source is None):
            shape = public.shape
        sizes = _declared_shape(None if fetches else source, shape, label)
        if isinstance(adjacency, Rows) and len(sizes) not in (1, 2):
            raise ModelError(
                f"Private '{label}' has shape {sizes} and no rows: dp.Rows needs a matrix with one "
                "record per row, or a vector with one record per entry."
            )
        if (symmetric or PSD) and (len(sizes) != 2 or sizes[0] != sizes[1]):
            raise ModelError(
                f"Private '{label}' has shape {sizes}, and only square matrices are symmetric. "
                "Drop symmetric=True and PSD=True, or declare shape=(n, n)."
            )
        if math.prod(sizes) == 0:
            raise ModelError(f"Private '{label}' has shape {sizes}: there is nothing to protect.")
        self._seal: Sealed | None = None
        kind = {"PSD": True} if PSD else {"symmetric": True} if symmetric else {}
        super().__init__(sizes, name=name, nonneg=bool(nonneg), nonpos=bool(nonpos), **kind)
        if kind:
            adjacency = MirroredWithin(adjacency.radius, adjacency.norm)
        self._adjacency = adjacency
        self._like: NDArray[np.float64] | None = None
        if like is not None:
            spec = self.spec
            self._like = spec.shaped(spec.checked(public, "The values in like="))
            self._like.flags.writeable = False
        if source is not None:
            self._seal = source if fetches else Sealed(source, self.spec)

    @property
    def spec(self) -> PrivateSpec:
        """The public part of the declaration."""
        sign: Literal["nonneg", "nonpos"] | None = None
        if self.attributes["nonneg"]:
            sign = "nonneg"
        elif self.attributes["nonpos"]:
            sign = "nonpos"
        psd = bool(self.attributes["PSD"])
        return PrivateSpec(self._called, self.shape, self.adjacency, sign, psd)

    @property
    def adjacency(self) -> Adjacency:
        """What one change of the data means; fixed at declaration."""
        return self._adjacency

    @property
    def like(self) -> NDArray[np.float64] | None:
        """Public values of the same kind, read-only; None if none were declared."""
        return self._like

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
        given = val is not None
        del val
        self._refuse(given)

    def save_value(self, val: object, sparse_path: bool = False) -> None:
        """Refuse the back door of cvxpy's value property as well."""
        given = val is not None
        del val
        self._refuse(given)

    def _refuse(self, given: bool) -> None:
        if given:
            raise PrivacyError(
                f"Private '{self._called}' takes no value: cvxpy would print and cache it. Pass "
                "the data to dp.Private(data, ...) or to plan.run(data={...})."
            )

    def __repr__(self) -> str:
        if not hasattr(self, "_adjacency"):  # its declaration was refused
            return "Private(not declared)"
        name = self._called if self._named else None
        return f"Private(shape={self.shape}, name={name!r}, adjacency={self.adjacency!r})"

    def __getstate__(self) -> dict[str, object]:
        # A copy has no data, so nothing was released from them.
        return {**self.__dict__, "_seal": None, "uses": Uses()}

    def emptied(self) -> Private:
        """The same declaration, cvxpy id included, without the data: for copies of models."""
        twin = Private.__new__(Private)
        vars(twin).update(self.__getstate__())
        return twin


def specs_of(private: Sequence[Private], owner: str) -> tuple[PrivateSpec, ...]:
    """The public part of an agent's private objects; those without a name are called by position.

    cvxpy's own number of such an object counts on when the same lines are run again, so a ledger
    that was kept under it could not be gone on with.
    """
    unnamed = [p.id for p in private if not p._named]
    names = {key: f"{_UNNAMED} data {k} of {owner}" for k, key in enumerate(unnamed, 1)}
    if len(unnamed) == 1:
        names = {unnamed[0]: f"{_UNNAMED} data of {owner}"}
    return tuple(replace(p.spec, name=names.get(p.id, p.spec.name)) for p in private)


def source_of(
    private: Private,
    override: object = None,
    *,
    name: str | None = None,
    asked: str = "plan.run(data={private: array})",
) -> Sealed:
    """A function that fetches the private values; nothing is read yet.

    Parameters
    ----------
    private : Private
    override : Sealed, array_like or callable, optional
        In place of its own data.
    name : str, optional
        What the problem calls it, for messages; see `specs_of`.
    asked : str
        Where users pass data, for messages.

    Raises
    ------
    DataError
        If the object was declared by shape and no data are given.
    """
    if override is not None:
        return seal(override)
    if private._seal is None:
        raise DataError(
            f"Private '{name or private.spec.name}' has no data: it was declared by shape, or "
            f"copied or unpickled, which drops values. Pass them with {asked}, by the dp.Private "
            "object or its name."
        )
    return private._seal


def unseal(source: Callable[[], Any], spec: PrivateSpec) -> NDArray[np.float64]:
    """Fetch private values through `source` and check them. Called by `dpcvx.run.gate` only.

    Raises
    ------
    DataError
        If the source raises or its values do not fit `spec`. The message of a failing source is
        withheld, because it may quote the data.
    """
    if isinstance(source, Sealed) and source._checked is not None:
        return source._checked
    return _read(source, spec)


def _read(source: object, spec: PrivateSpec) -> NDArray[np.float64]:
    """The values of a source, or themselves, flat and as they were declared."""
    raw, what = seal(source), _what_fetches(spec.name)
    del source

    def read() -> NDArray[np.float64]:
        return spec.checked(raw_array(raw, spec.name))

    return guarded(read, lambda kind: failed(what, kind))


def raw_array(source: Sealed, name: str) -> NDArray[np.float64] | None:
    """What a source holds, before it is checked; None if these are no real numbers.

    Raises
    ------
    DataError
        If the source raises; its texts are withheld.
    """
    return fetched(lambda: real_array(source()), _what_fetches(name))


def _what_fetches(name: str) -> str:
    return f"The function that fetches private '{name}'"


def _declared_shape(data: Sealed | None, shape: Any, label: str) -> tuple[int, ...]:
    if shape is not None:
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(is_int(n, 0) for n in sizes):
            raise ModelError(
                f"Private '{label}' has shape={show(shape)}; write an int or a tuple of ints."
            )
        return tuple(int(n) for n in sizes)
    if data is None:
        raise ModelError(
            f"Private '{label}' has no shape. cvxpy needs it to build expressions: write "
            "dp.Private(shape=(n,), ...) and bind the data later, or dp.Private(array, ...)."
        )

    what = f"The conversion to numbers of the data of private '{label}'"

    def found() -> tuple[int, ...] | None:
        array = real_array(data())
        return None if array is None else array.shape

    size = fetched(found, what)
    if size is None:
        raise DataError(f"The data of private '{label}' {_UNREAL}")
    return size


def real_array(values: object) -> NDArray[np.float64] | None:
    """A float copy of array-like values, or None if they are not real numbers."""
    try:
        raw = np.asanyarray(values)
        if np.ma.isMaskedArray(raw) or raw.dtype.kind not in "biufO":
            return None
        return np.array(raw, dtype=np.float64, order="F")
    except Exception:  # whatever an object's conversion raises may quote the data
        return None


@frameless
@dataclass(frozen=True)
class Asserted:
    """A gradient sensitivity that the user vouches for; guarantee and ledger say so.

    Parameters
    ----------
    l2 : float
        Bound of ``||g - g'||_2`` between neighbours, over all data and points.
    l1 : float, optional
        The same in l1, for Laplace noise; ``sqrt(n)`` times `l2` if omitted.
    """

    l2: float
    l1: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.Asserted", PrivacyError, l2=POSITIVE, l1=optional(POSITIVE))

    def bound(self, p: int, scale: NDArray[np.float64]) -> float:
        """Bound of the weighted change in lp."""
        peak = float(scale.max())
        l1 = math.sqrt(scale.size) * self.l2 if self.l1 is None else self.l1
        return peak * (self.l2 if p == 2 else l1)
