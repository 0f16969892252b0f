"""Sealed private data: nothing displays them, and only `dpcvx.run.gate` calls `unseal`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import show
from ..errors import DataError
from ..guard import failed, fetched, guarded
from .adjacency import ByPerson, Codes, Rows, codes_of, parts_of
from .matrices import Data, alike
from .spec import PrivateSpec

# Largest number of columns that an error lists.
_COLUMNS = 8
_KEPT = "Sealed data are never copied or pickled."


class Sealed:
    """Private data, or a function that fetches them, hidden from display.

    Tools that list an object's names, its ``__dict__`` or its text find no data. It cannot be
    copied or pickled. Other code in the same Python process can still read the data.

    Parameters
    ----------
    held : array_like or callable
    spec : PrivateSpec, optional
        Declaration to check the data against now; the checked copy is then the only one.

    Raises
    ------
    DataError
        If the data do not fit `spec`.
    """

    __slots__ = ("_checked", "_held", "_key", "_mark", "_original", "_people")

    def __init__(self, held: object, spec: PrivateSpec | None = None) -> None:
        self._held = held
        self._checked: Data | None = None
        self._original: Callable[[], object] | None = None
        self._key, self._mark = b"", b""
        self._people: Codes | None = None  # persons of the rows at the last reading
        del held
        if spec is not None:
            self._original = _referred(self._held)
            values, self._people = _read(self._held, spec)
            self._checked = read_only(values)
            sparse = sp.issparse(self._checked)
            self._held = self._checked if sparse else spec.shaped(self._checked)

    def __call__(self) -> Any:
        """Return the sealed values."""
        return self._held() if callable(self._held) else self._held

    @property
    def fetches(self) -> bool:
        """Return whether the values come from a function, which is called when they are read."""
        held = self._held
        return held.fetches if isinstance(held, Sealed) else callable(held)

    def __repr__(self) -> str:
        return "<sealed>"

    def __dir__(self) -> list[str]:
        return []

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        raise TypeError(_KEPT)

    def __getstate__(self) -> object:
        raise TypeError(_KEPT)  # Python's default returns the contents of the slots


def handed_over(source: Sealed) -> tuple[Callable[..., Sealed], tuple[Any, ...]]:
    """Return function and arguments that rebuild sealed data in another process of the owner.

    Only executors call this function, when they send agents to the processes that run them.
    """
    held, checked, people = source._held, source._checked, source._people
    if checked is None:
        return Sealed, (held,)
    if sp.issparse(checked):
        return _resealed, (checked, checked.shape, checked, people)
    held = np.asarray(held)
    return _resealed, (checked, held.shape, None if held.size == checked.size else held, people)


def _resealed(
    checked: Data, shape: tuple[int, ...], held: Data | None, people: Codes | None
) -> Sealed:
    twin = Sealed(checked.reshape(shape, order="F") if held is None else held)
    twin._checked, twin._people = read_only(checked), people
    return twin


def read_only(data: Data) -> Data:
    """Return the data with their arrays made read-only."""
    for part in (data,) if isinstance(data, np.ndarray) else sparse_parts(data):
        part.flags.writeable = False
    return data


def sparse_parts(data: sp.csr_array) -> tuple[NDArray[Any], ...]:
    """Return the arrays that hold the entries of a sparse matrix."""
    return data.data, data.indices, data.indptr


def seal(value: object) -> Sealed:
    """Return data, or a function that fetches them, sealed; sealed data stay as they are."""
    return value if isinstance(value, Sealed) else Sealed(value)


def checked_now(source: Sealed, spec: PrivateSpec) -> Sealed:
    """Return sealed data after checks; a function that fetches data is not called."""
    ready = source._checked is not None or source.fetches
    return source if ready else Sealed(source, spec)


def unseal(source: Callable[[], Any], spec: PrivateSpec) -> Data:
    """Fetch private values through `source` and check them. Called by `dpcvx.run.gate` only.

    Raises
    ------
    DataError
        If the source raises or its values do not fit `spec`. The message of a failing source is
        withheld, because it may quote the data.
    """
    if not isinstance(source, Sealed):
        return _read(source, spec)[0]
    if source._checked is not None:
        return source._checked
    values, source._people = _read(source, spec)
    if source._key:
        source._mark = _digest(values, source._key)
    return values


def people_of(source: Sealed) -> Codes | None:
    """Return the person of each row at the last reading of the data, or None.

    Rows with equal numbers belong to one person.
    """
    return source._people


def with_people_of(data: Data, source: Sealed) -> object:
    """Return values with the persons of a source's rows; the values alone if there are none."""
    return data if source._people is None else ByPerson(data, source._people)


def stand_in(value: object, spec: PrivateSpec) -> Sealed:
    """Check public proxy values and seal them; each row is one person without identifiers.

    Parameters
    ----------
    value : Sealed, array_like, sparse matrix, ByPerson or callable
    spec : PrivateSpec

    Raises
    ------
    DataError
        If the values do not fit `spec`.
    """
    source = seal(value)
    if not isinstance(spec.adjacency, Rows) or spec.adjacency.row_limit is None:
        return Sealed(source, spec)

    def fetch() -> object:
        held = source()
        return held if isinstance(held, ByPerson) else ByPerson(held, np.arange(spec.shape[0]))

    return Sealed(fetch, spec)


def mark(source: Sealed, key: bytes) -> bytes:
    """Return a digest of sealed values, equal for equal values; empty before their first reading.

    The digest depends on a key that never leaves the process, so nobody else can test guesses of
    the values. If a function fetches the values, `marked` returns the digest of the values that
    this process reads after this call.

    Parameters
    ----------
    source : Sealed
    key : bytes
        Secret key of the process.
    """
    if source._checked is None:
        source._key, source._mark = key, b""
    elif not source._mark:  # computed once, since the values are read-only
        source._mark = _digest(source._checked, key)
    return source._mark


def marked(source: Sealed) -> bytes:
    """Return the digest of sealed values at their last reading, as in `mark`."""
    return source._mark


def _digest(values: Data, key: bytes) -> bytes:
    digest = blake2b(key=key, digest_size=16)
    parts = (values,) if isinstance(values, np.ndarray) else sparse_parts(values)
    for part in parts:
        digest.update(repr((part.dtype.str, part.size)).encode())
        digest.update(np.ravel(part, order="K").data)
    return digest.digest()


def has_changed(source: Sealed, spec: PrivateSpec) -> bool:
    """Return whether the object that data were copied from has changed; False if it is deleted.

    Only the user who runs the plan sees the result, and this user can read the object anyway.
    """
    original = None if source._original is None else source._original()
    if original is None or source._checked is None:
        return False
    held = source._held
    if isinstance(original, np.ndarray) and isinstance(held, np.ndarray):
        plain = original.dtype.kind in "biuf" and original.shape == held.shape
        if plain and np.array_equal(original, held):  # without a copy, as long as nothing changed
            return False
    try:
        return not alike(_read(original, spec)[0], source._checked)
    except DataError:
        return True


def _referred(held: object) -> Callable[[], object] | None:
    """Return a function that returns the original of the copied data `held`.

    Once the original is deleted, the function returns None.
    """
    if isinstance(held, Sealed):
        return _referred(held._held)
    if held is None or callable(held):
        return None
    if isinstance(held, ByPerson):
        parts = [_referred(part) for part in parts_of(held)]

        def found_both() -> object:
            referred = [None if part is None else part() for part in parts]
            return None if any(alive is None for alive in referred) else ByPerson(*referred)

        return found_both
    base = held.base if isinstance(held, np.ndarray) else None
    if isinstance(held, np.ndarray) and isinstance(base, np.ndarray):
        # A slice may be deleted at once, while the array that it is a slice of stays.
        whole = base if base.flags.c_contiguous else base.T
        if not whole.flags.c_contiguous:
            return None
        of, shape, dtype, strides = weakref.ref(base), held.shape, held.dtype, held.strides
        offset = held.__array_interface__["data"][0] - base.__array_interface__["data"][0]

        def found() -> object:
            referred = of()
            if referred is None or dtype.hasobject:
                return None
            referred = referred if referred.flags.c_contiguous else referred.T
            return np.ndarray(shape, dtype, referred, offset, strides)

        return found
    try:
        return weakref.ref(held)
    except TypeError:  # such as a list, which takes no weak references
        return lambda: held


def _read(source: object, spec: PrivateSpec) -> tuple[Data, Codes | None]:
    """Return the checked flat values of a source, and the persons of its rows.

    The persons are None if the declaration needs none.
    """
    raw, what = seal(source), _what_fetches(spec.name)
    del source

    def read() -> tuple[Data, Codes | None]:
        array, people = _raw(raw, spec.name, spec.is_complex)
        values = spec.limited(spec.checked(array), people)
        return values, None if isinstance(people, str) else people

    return guarded(read, lambda kind: failed(what, kind))


def raw_array(source: Sealed, name: str) -> Data | None:
    """Return the unchecked values of a source; None if they are no real numbers.

    Raises
    ------
    DataError
        If the source raises; its texts are withheld.
    """
    return _raw(source, name)[0]


def _raw(
    source: Sealed, name: str, in_plane: bool = False
) -> tuple[Data | None, Codes | str | None]:
    """Return the unchecked values of a source, and the persons of its rows.

    Instead of persons, the result has text on faulty identifiers, or None without any. `in_plane`
    tells whether the values are complex.
    """
    read = complex_array if in_plane else real_data
    array, people, types = fetched(lambda: _read_as_numbers(source(), read), _what_fetches(name))
    if array is None and types:
        raise DataError(f"The data of private '{name}' {not_numbers(types)}")
    return array, people


def _read_as_numbers(
    held: object, read: Callable[[object], Data | None]
) -> tuple[Data | None, Codes | str | None, str]:
    values, people = parts_of(held)
    array = read(values)
    codes = None if people is None else codes_of(people)
    return array, codes, types_of(values) if array is None else ""


def types_of(values: object) -> str:
    """Return text on types of values or columns that are not numbers, with column names.

    The text is empty if the types explain nothing.
    """
    try:
        if (what := _kind_of(values)) is not None:
            return what
        columns, types = getattr(values, "columns", None), getattr(values, "dtypes", None)
        if columns is None or types is None:
            kind = getattr(values, "dtype", None)
            return "" if kind is None or _numeric(kind) else f"are of type {kind}"
        pairs = [*zip(columns, types, strict=True)]
        other = [pair for pair in pairs if not _numeric(pair[1])]
        # Types that can hold a missing value convert if no value is missing.
        other = other or [pair for pair in pairs if not isinstance(pair[1], np.dtype)]
        listed = ", ".join(f"{show(name)} of type {kind}" for name, kind in other[:_COLUMNS])
        more = f" and {len(other) - _COLUMNS} more" if len(other) > _COLUMNS else ""
        return f"have columns that are not plain numbers: {listed}{more}" if other else ""
    except Exception:  # whatever an object's attributes raise may quote the data
        return ""


def _kind_of(values: object) -> str | None:
    """Return text on values that are not arrays, and what to pass instead; None for others."""
    if isinstance(values, (str, bytes)):
        return "are one text. Pass the numbers: np.loadtxt(file) reads them from a file"
    if isinstance(values, Mapping):
        return "are a mapping. Pass an array of its values: np.array(list(values.values()))"
    if isinstance(values, (set, frozenset)):
        return "are a set, whose entries have no order. Pass a list or an array"
    if isinstance(values, (Iterator, Generator)):
        return "are an iterator. Pass list(values)"
    if sp.issparse(values):
        return None
    if np.ma.is_masked(values):
        return "have masked entries. Fill in missing values: data.filled(value)"
    try:
        kind = np.asarray(values).dtype.kind
    except ValueError:
        return "have rows of different lengths. Pass rows of one length, or one dp.Private each"
    if kind == "c":
        return (
            "are complex. Write dp.Private(..., complex=True), or hermitian=True for a Hermitian "
            "matrix. Or pass real and imaginary parts: np.stack([data.real, data.imag])"
        )
    if kind in "SU" and isinstance(values, (list, tuple, np.ndarray)):
        return "are texts. Convert them: np.asarray(values, dtype=float)"
    return None


def _numeric(kind: object) -> bool:
    says = getattr(kind, "is_numeric", None)  # types of polars
    return bool(says()) if callable(says) else getattr(kind, "kind", "") in tuple("biuf")


def not_numbers(types: str) -> str:
    """Return the end of an error's first sentence on data of wrong types, and the fix."""
    if ". " in types:
        return f"{types}."
    return (
        f"{types}. Encode text and categories as numbers, such as with pd.get_dummies(frame), drop "
        "or fill in missing values, and pass numeric columns only. Gradients and sensitivities are "
        "those of real numbers."
    )


def _what_fetches(name: str) -> str:
    return f"The function that fetches private '{name}'"


def real_data(values: object) -> Data | None:
    """Return data as a float array, or as a CSR matrix if they are sparse.

    The matrix has no repeated entries and no stored zeros. The result is None if the data are not
    real numbers.
    """
    try:
        return _sparse_rows(values) if sp.issparse(values) else real_array(values)
    except Exception:  # whatever an object's conversion raises may quote the data
        return None


def real_array(values: object) -> NDArray[np.float64] | None:
    """Return a float copy of array-like values, or None if they are not real numbers."""
    try:
        raw = np.asanyarray(values)
        if np.ma.is_masked(raw):
            return None
        if raw.dtype.names is not None:  # a row per record, a column per field
            from numpy.lib.recfunctions import structured_to_unstructured  # slow to import

            raw = structured_to_unstructured(np.ma.getdata(raw))
        if raw.dtype.kind not in "biufO":
            return None
        return np.array(np.ma.getdata(raw), dtype=np.float64, order="F")
    except Exception:  # whatever an object's conversion raises may quote the data
        return None


def complex_array(values: object) -> Any:
    """Return a complex copy of array-like values, or None if they are no numbers."""
    try:
        raw = np.asanyarray(values)
        if np.ma.is_masked(raw) or raw.dtype.kind not in "biufc":
            return None
        return np.array(np.ma.getdata(raw), dtype=np.complex128, order="F")
    except Exception:  # whatever an object's conversion raises may quote the data
        return None


def _sparse_rows(values: Any) -> sp.csr_array | None:
    """Return a real sparse matrix as CSR, equal to ``values.toarray()``; None for others."""
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        return None
    # scipy's conversions do not check indices: indices beyond the shape would access other memory.
    if values.format == "coo":
        for places, size in zip((values.row, values.col), values.shape, strict=True):
            if places.size and not 0 <= places.min() <= places.max() < size:
                return None
    elif hasattr(values, "check_format"):
        values.check_format(full_check=True)
    copy = sp.csr_array(values, copy=True)
    copy.check_format(full_check=True)
    copy.sum_duplicates()  # in the matrix's own type, as ``toarray`` does
    copy = copy.astype(np.float64)
    copy.eliminate_zeros()
    return copy
