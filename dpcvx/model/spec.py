"""Public description of private data, checks that data fit it, and user-supplied bounds.

`Asserted`, a bound that the user supplies, replaces the derived sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._arguments import POSITIVE, check_fields, optional
from ..errors import DataError, PrivacyError
from ..guard import frameless
from .adjacency import Adjacency, Codes, ComplexWithin, MirroredWithin, Rows
from .matrices import BLOCK, Data, Identity, as_array, from_real_entries, real_entries

UNREAL = (
    "are not an array of real numbers. Pass a numeric numpy array without masked entries. Only "
    "data and proxy= may be a sparse matrix of scipy, of two dimensions (else call .toarray())."
)
# Relative tolerance of the checks for symmetry, semidefiniteness, and rows that sum to 1.
_ROUNDED = 1e-9


@dataclass(frozen=True)
class PrivateSpec:
    """Public description of a private object: everything but its values."""

    name: str
    shape: tuple[int, ...]
    adjacency: Adjacency
    sign: Literal["nonneg", "nonpos"] | None
    psd: bool = False
    bounds: tuple[float, float] | None = None  # smallest and largest value of an entry
    kind: Literal["real", "boolean", "simplex"] = "real"  # boolean: 0 or 1; simplex: rows sum to 1
    columns: tuple[str, ...] = ()  # names that data owners compare with theirs; () if omitted

    @property
    def symmetric(self) -> bool:
        """Return whether the data are a symmetric matrix, stored as one triangle."""
        return isinstance(self.adjacency, MirroredWithin)

    @property
    def is_complex(self) -> bool:
        """Return whether the data are complex numbers, stored as real ones."""
        return isinstance(self.adjacency, ComplexWithin)

    @property
    def hermitian(self) -> bool:
        """Return whether the data are a Hermitian matrix, stored as one triangle."""
        return isinstance(self.adjacency, ComplexWithin) and self.adjacency.hermitian

    @property
    def size(self) -> int:
        """Number of stored entries; a symmetric matrix is stored as one triangle."""
        n = self.shape[0] if self.shape else 1
        if self.is_complex:
            return n * n if self.hermitian else 2 * math.prod(self.shape)
        return n * (n + 1) // 2 if self.symmetric else math.prod(self.shape)

    def unfolded(self) -> sp.csr_array | Identity:
        """Return the matrix that maps the stored entries to the full data, column by column.

        A symmetric matrix is stored as its upper triangle. Off-diagonal entries are scaled so that
        the norm of the stored entries equals the norm of the full matrix that the adjacency uses.
        """
        if not isinstance(self.adjacency, MirroredWithin):
            return Identity(self.size)
        n, (i, j) = self.shape[0], np.triu_indices(self.shape[0])
        diagonal, apart = np.arange(i.size), i != j
        values = np.where(apart, 1 / self.adjacency.mirror, 1.0)
        rows = np.concatenate([i + n * j, (j + n * i)[apart]])
        columns = np.concatenate([diagonal, diagonal[apart]])
        entries = np.concatenate([values, values[apart]])
        return sp.csr_array((entries, (rows, columns)), shape=(n * n, i.size))

    @property
    def half(self) -> bool:
        """Return whether a change replaces a row by another row of the same declared sign."""
        adjacency = self.adjacency
        replaced = isinstance(adjacency, Rows) and adjacency.relation == "replace_one"
        return replaced and self.sign is not None

    def row_reach(self, p: int) -> float:
        """Return the largest lp norm of the change of one row of the data.

        For rows of one sign, the positive and the negative part of the difference have no entry in
        common, and each has at most the norm of a row. The norm of the difference is largest if
        each part has half of the entries.
        """
        adjacency, width = self.adjacency, self.size // self.shape[0]
        assert isinstance(adjacency, Rows)
        if not self.half:
            return adjacency.radius * float(adjacency.stretch(p, width))
        parts = [adjacency.stretch(p, n) for n in (width // 2, width - width // 2) if n]
        return adjacency.max_norm * float(np.linalg.norm(parts, p))

    def shaped(self, flat: NDArray[np.float64]) -> NDArray[Any]:
        """Return the array of the declared shape from its stored entries `flat`."""
        adjacency = self.adjacency
        if not isinstance(adjacency, ComplexWithin):
            return self._unfolded(flat)
        if not adjacency.hermitian:
            return from_real_entries(flat, self.shape, True)
        n, (i, j) = self.shape[0], np.triu_indices(self.shape[0], 1)
        matrix = np.diag(flat[:n]).astype(complex)
        real, imag = np.split(flat[n:] / adjacency.mirror, 2)
        matrix[i, j], matrix[j, i] = real + 1j * imag, real - 1j * imag
        return matrix

    def _unfolded(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(self.unfolded() @ flat).reshape(self.shape, order="F")

    def kept(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Return the stored entries of an array that has the declared shape."""
        adjacency = self.adjacency
        if isinstance(adjacency, ComplexWithin):
            array = np.asarray(array, dtype=complex)
            if not adjacency.hermitian:
                return real_entries(array)
            upper = array[np.triu_indices(self.shape[0], 1)] * adjacency.mirror
            return np.concatenate([np.real(np.diag(array)), real_entries(upper)])
        if not isinstance(self.adjacency, MirroredWithin):
            return array.ravel(order="F")
        i, j = np.triu_indices(self.shape[0])
        return array[i, j] * np.where(i != j, self.adjacency.mirror, 1.0)

    @property
    def free(self) -> bool:
        """Return whether the declaration allows every array of its shape."""
        return self.sign is None and not self.psd and self.bounds is None and self.kind == "real"

    @property
    def interval(self) -> tuple[float, float]:
        """Smallest and largest value of an entry that the declared sign and bounds allow."""
        lower, upper = self.bounds or (-math.inf, math.inf)
        return (
            max(lower, 0.0) if self.sign == "nonneg" else lower,
            min(upper, 0.0) if self.sign == "nonpos" else upper,
        )

    def admissible(self, flat: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the stored entries of the admissible data closest to the entries `flat`.

        A declaration may require a sign, bounds, entries 0 or 1, rows in the probability simplex,
        or a positive semidefinite matrix.
        """
        if self.kind == "boolean":
            return np.where(flat > 0.5, 1.0, 0.0)
        if self.kind == "simplex":
            return self.kept(_on_simplex(self.shaped(flat)))
        if self.bounds is not None:
            return np.clip(flat, *self.interval)
        if self.psd:
            values, vectors = np.linalg.eigh(self.shaped(flat))
            return self.kept((vectors * np.maximum(values, 0.0)) @ vectors.conj().T)
        if self.sign is None:
            return flat
        return np.maximum(flat, 0.0) if self.sign == "nonneg" else np.minimum(flat, 0.0)

    def checked(self, array: Data | None, what: str = "The data") -> Data:
        """Check data against the declaration; return their stored entries, with clipped rows.

        Parameters
        ----------
        array : ndarray, csr_array or None
            None if the data are no array of real numbers. A sparse matrix is returned as such.
        what : str
            Plural name of the values for messages, such as "The data".

        Raises
        ------
        DataError
            If the array contradicts the declaration or is not finite. The message shows no value,
            and the cause is not chained.
        """
        fault = self._fault(array)
        if fault is None and array is not None:
            adjacency = self.adjacency
            if sp.issparse(array):
                rows = adjacency.enforced(array) if isinstance(adjacency, Rows) else array
            elif not isinstance(adjacency, Rows):
                both = (array + array.conj().T) / 2 if self.symmetric or self.hermitian else array
                return self.kept(both)
            else:
                rows = adjacency.enforced(array.reshape(array.shape[0], -1))
            if rows is not None:
                return rows if sp.issparse(rows) else rows.ravel(order="F")
            assert isinstance(adjacency, Rows)
            fault = (
                f"have rows whose l{adjacency.norm:g} norm exceeds the declared bound "
                f"{adjacency.max_norm:g}. The sensitivity rests on it: scale the data, declare a "
                "larger bound, or write clip_rows=True for the rows, which scales such rows down."
            )
        del array  # tools that print the variables of a traceback's frames find nothing
        raise DataError(f"{what} of private '{self.name}' {fault}")

    def limited(self, data: Data, people: Codes | str | None) -> Data:
        """Return checked data with rows beyond the adjacency's limit per person set to zero.

        Parameters
        ----------
        data : ndarray or csr_array
            Data that `checked` returned.
        people : ndarray of int, shape (n,), str or None
            Person of each row as in `codes_of`, a text on faulty identifiers, or None without any.

        Raises
        ------
        DataError
            If identifiers are missing, faulty, not one per row, or not needed by the adjacency.
        """
        adjacency = self.adjacency
        limit = adjacency.row_limit if isinstance(adjacency, Rows) else None
        fault = people if isinstance(people, str) else self._fault_of_people(people, limit)
        if fault is None:
            if limit is None:
                return data
            assert isinstance(adjacency, Rows) and isinstance(people, np.ndarray)
            if sp.issparse(data):
                return adjacency.limited(data, people)
            rows = adjacency.limited(data.reshape((self.shape[0], -1), order="F"), people)
            return rows.ravel(order="F")
        del data
        raise DataError(f"The data of private '{self.name}' {fault}")

    def _fault_of_people(self, people: Codes | None, limit: int | None) -> str | None:
        if people is None and limit is None:
            return None
        if people is None:
            return (
                f"come without identifiers, and max_rows_per_person={limit} needs to know whose "
                "each row is. Pass dp.ByPerson(array, people) in place of the array, with one "
                "identifier per row. They stay as private as the data."
            )
        if limit is None:
            return (
                "come with identifiers, and their adjacency counts no rows by person. Write "
                "adjacency=dp.Rows(..., max_rows_per_person=3), or pass the array alone."
            )
        if people.size != self.shape[0]:
            return (
                f"have {self.shape[0]} rows and {people.size} identifiers. Pass "
                "dp.ByPerson(array, people) with one identifier per row."
            )
        return None

    def _fault(self, array: Data | None) -> str | None:
        if array is None:
            return UNREAL
        if array.shape != self.shape:
            return (
                f"have shape {array.shape}, but it was declared with shape {self.shape}. Give an "
                "array of the declared shape, or declare another one: sensitivities were derived "
                "for it."
            )
        if self.symmetric and sp.issparse(array):
            return (
                "are a sparse matrix, and of a symmetric one a triangle is kept as an array. Call "
                ".toarray() first."
            )
        flat = array.ravel(order="F") if isinstance(array, np.ndarray) else array.data
        parts = [flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK)]
        if not all(np.isfinite(part).all() for part in parts):
            return (
                "contain NaN or infinite entries. The sensitivity bound covers finite data only: "
                "clean the data before binding them."
            )
        if self.hermitian and not self._mirrored(array):
            return (
                "are not the Hermitian matrix that was declared. Pass (A + A.conj().T) / 2, or "
                "write complex=True in place of hermitian=True or PSD=True."
            )
        if self.symmetric and not self._mirrored(array):
            return (
                "are not the symmetric matrix that was declared, of which one triangle is used. "
                "Pass (A + A.T) / 2, or drop symmetric=True or PSD=True."
            )
        if self.psd and not self._semidefinite(array):
            return (
                "have negative eigenvalues, which contradicts PSD=True. Correct the data, or "
                "declare symmetric=True instead: convexity was derived from it."
            )
        lower, upper = self.bounds or (-math.inf, math.inf)
        if any((part < lower).any() or (part > upper).any() for part in parts):
            return (
                f"have entries outside bounds=({lower:g}, {upper:g}). Correct the data, or declare "
                "wider bounds: released data are brought into them."
            )
        if self.kind == "boolean" and any(((part != 0) & (part != 1)).any() for part in parts):
            return "have entries other than 0 and 1, which contradicts boolean=True. Drop it."
        if self.kind == "simplex" and not self._sums_to_one(array):
            return (
                "have negative entries, or rows that do not sum to 1, which contradicts "
                "simplex=True. Drop it, or divide each row by its sum."
            )
        side = {"nonneg": -1.0, "nonpos": 1.0, None: 0.0}[self.sign]
        if side and any((side * part > 0).any() for part in parts):
            return (
                f"have entries that contradict {self.sign}=True. Correct the data, or drop "
                f"{self.sign}: convexity and bounds were derived from that sign."
            )
        return None

    def _mirrored(self, array: NDArray[Any]) -> bool:
        largest = float(np.abs(array).max())
        return bool((np.abs(array - array.conj().T) <= _ROUNDED * largest).all())

    def _sums_to_one(self, array: Data) -> bool:
        rows = np.atleast_2d(as_array(array))
        sums = rows.sum(axis=1)
        return bool((rows >= 0).all() and (np.abs(sums - 1) <= _ROUNDED * rows.shape[1]).all())

    def _semidefinite(self, array: NDArray[np.float64]) -> bool:
        values = np.linalg.eigvalsh((array + array.conj().T) / 2)
        return bool(values[0] >= -_ROUNDED * np.abs(values).max())


def _on_simplex(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project each row of a matrix, or a whole vector, onto the probability simplex."""
    rows = np.atleast_2d(array)
    falling = -np.sort(-rows, axis=1)
    level = (np.cumsum(falling, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = np.count_nonzero(falling > level, axis=1) - 1
    moved = rows - level[np.arange(len(rows)), last][:, np.newaxis]
    return np.maximum(moved, 0.0).reshape(array.shape)


def unnamed(specs: Sequence[PrivateSpec]) -> tuple[Hashable, ...]:
    """Return a key of an agent's declarations, equal for declarations that differ in names only.

    Record labels are replaced by their numbers in order of appearance.

    Parameters
    ----------
    specs : sequence of PrivateSpec
        All of the agent's declarations: those with one label hold parts of the same records.
    """
    order: dict[str, int] = {}
    parts: list[Hashable] = []
    for spec in specs:
        kind = spec.adjacency
        change = dict(vars(kind))
        if isinstance(kind, Rows):
            change["records"] = order.setdefault(kind.label, len(order))
        held = {**vars(spec), "name": "", "columns": (), "adjacency": (type(kind), *change.items())}
        parts.append(tuple(held.items()))
    return tuple(parts)


@frameless
@dataclass(frozen=True)
class Asserted:
    """User-supplied bound of a gradient's sensitivity; guarantee and ledger mark it as asserted.

    Parameters
    ----------
    l2 : float
        Bound of ``||g - g'||_2`` for the gradients g and g' of any two neighboring data sets, at
        any point.
    l1 : float, optional
        Bound in the l1 norm, for Laplace noise; ``sqrt(n)`` times `l2` if omitted.
    """

    l2: float
    l1: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, "dp.Asserted", PrivacyError, l2=POSITIVE, l1=optional(POSITIVE))

    def bound(self, p: int, scale: NDArray[np.float64]) -> float:
        """Return a bound on the lp norm of a gradient's change times `scale`, entry by entry."""
        peak = float(scale.max())
        l1 = math.sqrt(scale.size) * self.l2 if self.l1 is None else self.l1
        return peak * (self.l2 if p == 2 else l1)
