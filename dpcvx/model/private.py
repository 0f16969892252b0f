"""Private data as users declare them: a parameter of cvxpy that never has a cvxpy value.

cvxpy prints constants in problems and errors and keeps them in caches and pickles, so the data are
sealed outside its tree.
"""

from __future__ import annotations

import math
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from .._arguments import FLAG, TEXT, check_argument, is_int, is_text, listed, optional, show
from .._words import plural
from ..errors import DataError, ModelError, PrivacyError
from ..guard import fetched, frameless
from .adjacency import Adjacency, ComplexWithin, MirroredWithin, Rows, Within, parts_of
from .matrices import Data
from .sealed import (
    Sealed,
    complex_array,
    not_numbers,
    read_only,
    real_array,
    real_data,
    seal,
    types_of,
)
from .spec import UNREAL, PrivateSpec

# Name of objects that the user did not name.
_UNNAMED = "unnamed"
_NAME = optional(TEXT.because("such as name='load'"))


@dataclass(frozen=True, eq=False)
class Use:
    """Record of what one run released from a private object's data.

    Attributes
    ----------
    run : tuple
        Key of the run, equal for all objects of a run, and before and after an interruption.
    loss : Any
        Privacy loss of the planned run, in the form of its accounting; None without noise.
    releases : int
        Number of releases.
    handed : bool
        Whether the run read data from ``data=``, which may differ from the object's data.
    """

    run: tuple[object, ...]
    loss: Any
    releases: int
    handed: bool = False


@dataclass
class Uses:
    """Records of all runs that released from a private object's data, one per run."""

    runs: list[Use] = field(default_factory=list)

    @property
    def losses(self) -> list[Any]:
        """Privacy losses of the recorded runs with noise."""
        return [use.loss for use in self.runs if use.loss is not None]

    @property
    def releases(self) -> int:
        """Number of releases of all recorded runs together."""
        return sum(use.releases for use in self.runs)

    @property
    def open(self) -> bool:
        """Return whether some recorded run released values without noise."""
        return any(use.loss is None for use in self.runs)

    @property
    def handed(self) -> bool:
        """Return whether some recorded run read data from ``data=``."""
        return any(use.handed for use in self.runs)

    def add(self, use: Use) -> None:
        """Add the record of a run; for a resumed run it replaces the record of the first part."""
        self.runs = [*(other for other in self.runs if other.run != use.run), use]


class _OwnNames(ABCMeta):
    """Metaclass that hides names of cvxpy, so that ``help(dp.Private)`` is short."""

    def __dir__(cls) -> list[str]:
        bases = cls.__mro__[: cls.__mro__.index(cp.Parameter)]
        return sorted({name for base in bases for name in vars(base)})


class Private(cp.Parameter, metaclass=_OwnNames):
    """Private data of one agent, used in a model like a ``cvxpy.Parameter``.

    Parameters
    ----------
    data : array_like, sparse matrix, ByPerson or callable, optional
        Values, or a function without arguments that returns them; wrap values in `ByPerson` to
        count rows by person. A run calls the function once, in the agent's process. Omit `data` to
        declare the `shape` alone, and pass data to ``plan.run(data={...})``. Arrays are checked and
        copied at once. A run uses the copy, and warns if the array has changed.
    adjacency : Within or Rows
        Meaning of one change of the data: the privacy unit.
    name : str, optional
        Name in messages, errors and ledgers.
    shape : int or tuple of int, optional
        Shape of the data; required without `data` and with a function, unless `proxy` is given.
    nonneg, nonpos : bool
        Sign of the data, for cvxpy's convexity rules; checked when the data are read.
    symmetric, PSD : bool
        Declare a symmetric matrix, or a positive semidefinite one, such as the covariance P in
        ``cp.quad_form(x, P)``; checked when the data are read. An entry and its mirror image count
        as one entry. A sign, `bounds` and `boolean` go with `symmetric`.
    complex, hermitian : bool
        Declare complex numbers, or a Hermitian matrix (with ``PSD=True``, one without negative
        eigenvalues). `Within` then bounds moduli; see docs/guides/any_model.md.
    bounds : (float, float), optional
        Smallest and largest value of an entry, such as ``bounds=(0, 1)`` for shares, or ``(0.1,
        math.inf)`` for positive data. Checked when the data are read; released data are projected
        onto them. Bounds of records can keep the argument of ``cp.log(X @ w)`` above 0.
    boolean : bool
        Declare that all entries are 0 or 1; checked and projected like `bounds`.
    simplex : bool
        Declare that each row, or the whole vector, is nonnegative and sums to 1; checked and
        projected like `bounds`.
    columns : sequence of str, optional
        Public names of the columns, in their order. Owners on other machines compare them with
        ``owner.toml``, to refuse swapped columns.
    proxy : array_like or sparse matrix, optional
        Public data that resemble the private data, of the same shape: ``problem.tune`` and similar
        methods try settings on them. They must not be computed from the private data, because using
        them costs no privacy.

    Notes
    -----
    cvxpy never gets the values: `value` is always None. Prints, pickles and deep copies lack them.
    Other code in the same process can still read them.

    A sparse matrix of scipy stays sparse in products with variables, ``X @ w``, if the method uses
    gradients. The positions of zeros are as private as the values: no plan depends on them, but the
    agent's computing time does.

    Raises
    ------
    ModelError
        If shape, data or adjacency are missing or ambiguous.
    DataError
        If array data, or `proxy`, do not fit the declaration.
    """

    @frameless
    def __init__(
        self,
        data: ArrayLike | Callable[[], ArrayLike] | None = None,
        *,
        adjacency: Adjacency | None = None,
        name: str | None = None,
        shape: int | tuple[int, ...] | None = None,
        nonneg: bool = False,
        nonpos: bool = False,
        symmetric: bool = False,
        PSD: bool = False,
        complex: bool = False,
        hermitian: bool = False,
        bounds: Sequence[float] | None = None,
        boolean: bool = False,
        simplex: bool = False,
        columns: Sequence[str] | None = None,
        proxy: ArrayLike | None = None,
    ) -> None:
        tupled, fetches = issubclass(type(data), tuple), callable(data)
        source = None if data is None else seal(data)
        same = proxy is not None and _same(proxy, parts_of(data)[0])
        del data  # before anything can fail
        check_argument("dp.Private", "name", name, _NAME)
        self._named, self._called = bool(name), name or _UNNAMED
        self.uses: Uses = Uses()
        label = self._called
        adjacency = _given_adjacency(adjacency, label)
        flags = {
            "nonneg": nonneg,
            "nonpos": nonpos,
            "symmetric": symmetric,
            "PSD": PSD,
            "complex": complex,
            "hermitian": hermitian,
            "boolean": boolean,
            "simplex": simplex,
        }
        for flag, value in flags.items():
            check_argument("dp.Private", flag, value, FLAG)
        limits = _limits(bounds, label)
        nonneg, nonpos = _signs(adjacency, limits, columns, label, **flags)
        in_plane = bool(complex or hermitian)
        if tupled:
            raise ModelError(
                f"Private '{label}' was given a tuple, which could be data or a shape. Write "
                "shape=(...) for a shape, or pass a list or numpy array as data."
            )
        if same:
            raise PrivacyError(
                f"Private '{label}' was given its own data as proxy=. Pass public values that do "
                "not depend on the data, such as nominal loads or last year's published figures, "
                "or leave out proxy=. The ledger does not count settings that are chosen with "
                "proxy=, so it must be public."
            )
        read = complex_array if in_plane else real_data
        public = None if proxy is None else read(proxy)
        if shape is None and public is not None and (fetches or source is None):
            shape = public.shape
        sizes = _declared_shape(None if fetches else source, shape, label, read)
        if isinstance(adjacency, Rows) and len(sizes) not in (1, 2):
            raise ModelError(
                f"Private '{label}' has shape {sizes} and no rows: dp.Rows needs a matrix with one "
                "record per row, or a vector with one record per entry."
            )
        square = len(sizes) == 2 and sizes[0] == sizes[1]
        if (symmetric or PSD or hermitian) and not square:
            raise ModelError(
                f"Private '{label}' has shape {sizes}, and only square matrices are symmetric. "
                "Drop symmetric=True, hermitian=True and PSD=True, or declare shape=(n, n)."
            )
        if math.prod(sizes) == 0:
            raise ModelError(
                f"Private '{label}' has shape {sizes}, which has no entries. Pass data with at "
                "least one entry. There is nothing to protect."
            )
        self._columns = _columns(columns, sizes, label)
        self._seal: Sealed | None = None
        kind = {"PSD": True} if PSD else {"symmetric": True} if symmetric else {}
        # Geometric programs take positive data alone.
        above = {"pos": True} if limits is not None and limits[0] > 0 else {}
        sign = {"nonneg": bool(nonneg), "nonpos": bool(nonpos)}
        if in_plane:
            kind |= {"hermitian": True} if hermitian else {"complex": True}
        super().__init__(sizes, name=name, **sign, **kind, **above)
        if in_plane:
            both = bool(hermitian or PSD)
            adjacency = ComplexWithin(adjacency.radius, adjacency.norm, both)
        elif kind:
            adjacency = MirroredWithin(adjacency.radius, adjacency.norm)
        self._adjacency, self._bounds = adjacency, limits
        self._kind: Literal["real", "boolean", "simplex"] = (
            "boolean" if boolean else "simplex" if simplex else "real"
        )
        self._like: Data | None = None
        if proxy is not None:
            flat = self.spec.checked(public, "The values in proxy=")
            self._like = read_only(flat if sp.issparse(flat) else self.spec.shaped(flat))
        if source is not None:
            self._seal = source if fetches else Sealed(source, self.spec)

    @property
    def spec(self) -> PrivateSpec:
        """Public part of the declaration."""
        sign: Literal["nonneg", "nonpos"] | None = None
        if self.attributes["nonneg"]:
            sign = "nonneg"
        elif self.attributes["nonpos"]:
            sign = "nonpos"
        psd = bool(self.attributes["PSD"])
        terms = self._called, self.shape, self.adjacency, sign, psd
        return PrivateSpec(*terms, self._bounds, self._kind, self._columns)

    @property
    def adjacency(self) -> Adjacency:
        """Return the neighboring relation of the data, fixed at declaration."""
        return self._adjacency

    @property
    def proxy(self) -> Data | None:
        """Public proxy data, read-only; None if none were declared."""
        return self._like

    @property
    def bound(self) -> bool:
        """Return whether the object carries data (an array or a function that fetches them)."""
        return self._seal is not None

    @property
    def value(self) -> None:
        """Always None: cvxpy never gets private values."""
        return None

    @value.setter
    def value(self, val: object) -> None:
        given = val is not None
        del val
        self._refuse(given)

    def save_value(self, val: object, sparse_path: bool = False) -> None:
        """Raise an error, because private values must not be stored where cvxpy stores values."""
        given = val is not None
        del val
        self._refuse(given)

    def __array_function__(
        self, function: Callable[..., Any], types: object, args: object, kwargs: object
    ) -> Any:
        """Refuse numpy's functions, which need values, except ``shape``, ``ndim`` and ``size``."""
        name = function.__name__
        if name in ("shape", "ndim", "size"):
            return getattr(self, name)
        atom = f"cp.{name}(...)" if hasattr(cp, name) else "an atom of cvxpy, such as cp.sum(...)"
        raise ModelError(
            f"np.{name}(...) takes numbers, and private '{self._called}' has none outside of runs. "
            f"Write {atom} in its place: cvxpy builds an expression, and a plan bounds what it "
            "releases."
        )

    def _refuse(self, given: bool) -> None:
        if given:
            raise PrivacyError(
                f"Private '{self._called}' takes no value. Pass the data to dp.Private(data, ...) "
                "or to plan.run(data={...}). cvxpy would print and cache a value."
            )

    def __bool__(self) -> bool:
        raise PrivacyError(
            f"Private '{self._called}' has no truth value: 'if' would act on private data. To ask "
            f"whether there is such an object, write 'if {self._called} is not None'."
            if self._called.isidentifier() and self._called != _UNNAMED
            else "A dp.Private has no truth value: 'if' would act on private data. To ask whether "
            "there is such an object, write 'is not None'."
        )

    def __repr__(self) -> str:
        if not hasattr(self, "_adjacency"):  # its declaration was refused
            return "Private(not declared)"
        name = self._called if self._named else None
        return f"Private(shape={self.shape}, name={name!r}, adjacency={self.adjacency!r})"

    def __getstate__(self) -> dict[str, object]:
        # A copy has no data, so nothing was released from them.
        return {**self.__dict__, "_seal": None, "uses": Uses()}


def _given_adjacency(adjacency: object, label: str) -> Within | Rows:
    """Return the declared adjacency; refuse one that is missing or unknown."""
    if adjacency is None:
        raise ModelError(
            f"Private '{label}' has no adjacency=, which says what one change of the data is. "
            "Write adjacency=dp.Within(0.01) if an entry may change by at most 0.01. Write "
            "adjacency=dp.Rows(1.0) if each row is the record of one person, of norm 1 at "
            "most. Noise hides exactly such a change."
        )
    if not isinstance(adjacency, (Within, Rows)):
        raise ModelError(
            f"Private '{label}' has adjacency {type(adjacency).__name__}, which is unknown. "
            "Write adjacency=dp.Within(0.01) with the change of the data that must stay "
            "hidden, or dp.Rows(1.0) for records. The adjacency is the unit of the guarantee."
        )
    return adjacency


def _signs(
    adjacency: Within | Rows,
    limits: tuple[float, float] | None,
    columns: Sequence[str] | None,
    label: str,
    *,
    nonneg: bool,
    nonpos: bool,
    symmetric: bool,
    PSD: bool,
    complex: bool,
    hermitian: bool,
    boolean: bool,
    simplex: bool,
) -> tuple[bool, bool]:
    """Return whether entries are nonnegative and nonpositive; refuse arguments that do not fit.

    `label` names the private object in messages.
    """
    if sum((limits is not None, bool(boolean), bool(simplex), bool(PSD))) > 1:
        raise ModelError(
            f"Private '{label}' has more than one of bounds=, boolean=, simplex= and PSD=. "
            "Keep one. Each of them says what values the entries can have."
        )
    both = isinstance(adjacency, Within) and adjacency.norm in (1, 2)
    if symmetric and (simplex or (both and (limits is not None or boolean))):
        raise ModelError(
            f"Private '{label}' has symmetric=True next to arguments that do not fit it. Keep "
            "bounds= or boolean=True with an adjacency of single entries, such as "
            "dp.Within(0.1), and drop simplex=True."
        )
    if boolean and isinstance(adjacency, Within) and adjacency.radius < 1:
        raise ModelError(
            f"Private '{label}' has boolean=True and dp.Within({adjacency.radius:g}). Entries "
            "that are 0 or 1 change by 1, so this adjacency protects no change of an entry. "
            "Write dp.Within(1)."
        )
    if simplex and isinstance(adjacency, Within) and adjacency.norm == "entry":
        raise ModelError(
            f"Private '{label}' has simplex=True and an adjacency of single entries. A row "
            "that sums to 1 changes in two entries at least. Write norm=1 or norm=2, as in "
            f"dp.Within({2 * adjacency.radius:g}, norm=1)."
        )
    in_plane = bool(complex or hermitian)
    others = (nonneg, nonpos, symmetric, boolean, simplex, limits is not None, columns)
    if in_plane and (any(others) or isinstance(adjacency, Rows) or (hermitian and PSD)):
        raise ModelError(
            f"Private '{label}' is complex, and has arguments that only real data take. Drop "
            "sign, bounds=, columns= and records, and keep adjacency=dp.Within(...). Write "
            "complex=True, PSD=True for a Hermitian matrix without negative eigenvalues, and "
            "hermitian=True for any other."
        )
    if limits is not None:
        nonneg, nonpos = nonneg or limits[0] >= 0, nonpos or limits[1] <= 0
    nonneg = nonneg or boolean or simplex
    if nonneg and nonpos:
        raise ModelError(
            f"Private '{label}' cannot be nonneg and nonpos at once; keep one. Bounds, "
            "boolean=True and simplex=True have a sign as well."
        )
    limited = isinstance(adjacency, Rows) and adjacency.row_limit is not None
    if limited and (simplex or (limits is not None and not limits[0] <= 0 <= limits[1])):
        raise ModelError(
            f"Private '{label}' has max_rows_per_person= next to "
            f"{'simplex=True' if simplex else 'bounds= without 0'}. Drop one of the two. Rows "
            "beyond the limit are set to zero, and zeros contradict the other argument."
        )
    if (symmetric or PSD) and isinstance(adjacency, Rows):
        raise ModelError(
            f"Private '{label}' cannot be a symmetric matrix and have dp.Rows at once; keep "
            "one of the two. Symmetric matrices take adjacency=dp.Within(...)."
        )
    if PSD and (nonneg or nonpos):
        raise ModelError(
            f"Private '{label}' cannot have PSD=True and a sign of its entries at once; keep "
            "one of the two. A symmetric matrix with a sign takes symmetric=True."
        )
    return bool(nonneg), bool(nonpos)


def _limits(bounds: object, label: str) -> tuple[float, float] | None:
    """Return the declared bounds of entries as two numbers; infinite ones if omitted.

    `label` names the private object in messages.
    """
    if bounds is None:
        return None
    pair = real_array(bounds)
    if pair is None or pair.shape != (2,) or not pair[0] < pair[1]:
        raise ModelError(
            f"Private '{label}' has bounds={show(bounds)}; write two numbers, the smaller one "
            "first, as in bounds=(0, 1). They hold for every entry."
        )
    return float(pair[0]), float(pair[1])


def _columns(columns: object, sizes: tuple[int, ...], label: str) -> tuple[str, ...]:
    """Return the public names of the data's columns; an empty tuple if they are omitted.

    `sizes` is the shape of the data, and `label` names the private object in messages.
    """
    if columns is None:
        return ()
    names = listed(columns)
    width = sizes[1] if len(sizes) == 2 else 1
    texts = names is not None and all(is_text(name) and name for name in names)
    if names is None or not texts or len(names) != width or len(set(names)) != width:
        raise ModelError(
            f"Private '{label}' has columns={show(columns)}; list one text for each of its "
            f"{plural(width, 'column')}, each once, as in columns=['age', 'bp']."
        )
    return tuple(str(name) for name in names)


def _same(first: object, second: object) -> bool:
    """Return whether two objects are the same object, or arrays that share memory."""
    values = [getattr(v, "data", None) if sp.issparse(v) else v for v in (first, second)]
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    return first is second or (len(arrays) == 2 and np.may_share_memory(arrays[0], arrays[1]))


def without_data(private: Private) -> Private:
    """Return a copy of a private object with its cvxpy id, but without its data."""
    twin = Private.__new__(Private)
    vars(twin).update(private.__getstate__())
    return twin


def specs_of(private: Sequence[Private], owner: str) -> tuple[PrivateSpec, ...]:
    """Return public descriptions of an agent's private objects.

    Unnamed objects are named by position.

    cvxpy's own number of an unnamed object grows each time a program declares it anew, so a ledger
    with such numbers could not be resumed.
    """
    unnamed = [p.id for p in private if not p._named]
    names = {key: f"{_UNNAMED} data {k} of {owner}" for k, key in enumerate(unnamed, 1)}
    if len(unnamed) == 1:
        names = {unnamed[0]: f"{_UNNAMED} data of {owner}"}
    return tuple(replace(p.spec, name=names[p.id]) if p.id in names else p.spec for p in private)


def source_of(
    private: Private,
    override: object = None,
    *,
    name: str | None = None,
    asked: str = "plan.run(data={private: array})",
) -> Sealed:
    """Return sealed private data, which fetch the values when called; no value is read yet.

    Parameters
    ----------
    private : Private
    override : Sealed, array_like or callable, optional
        Source that replaces the object's own data.
    name : str, optional
        Name of the object in the problem, for messages; see `specs_of`.
    asked : str
        Code with which users pass data, for messages.

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


def seal_all(data: object, argument: str = "data") -> dict[Private | str, Sealed]:
    """Return a mapping from private objects or their names to data, with the data sealed.

    Callers do this first, so that no stack frame of the package holds unsealed data.

    Raises
    ------
    ModelError
        If `data` is no mapping from private objects or names.
    """
    if data is None:
        return {}
    sealed: dict[Private | str, Sealed] | None = None
    if isinstance(data, Mapping):
        try:
            sealed = {key: seal(value) for key, value in data.items()}
        except Exception:  # whatever a foreign mapping raises may quote the data
            sealed = None
    del data
    if sealed is None or not all(isinstance(key, (Private, str)) for key in sealed):
        del sealed
        raise ModelError(
            f"{argument}= is a mapping of private objects or their names to values, such as "
            "{'load': array}."
        )
    return sealed


def _declared_shape(
    data: Sealed | None, shape: Any, label: str, read: Callable[[object], Data | None]
) -> tuple[int, ...]:
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

    def found() -> tuple[tuple[int, ...] | None, str]:
        values, _ = parts_of(data())
        array = read(values)
        return (None, types_of(values)) if array is None else (array.shape, "")

    size, types = fetched(found, what)
    if size is None:
        raise DataError(f"The data of private '{label}' {not_numbers(types) if types else UNREAL}")
    return size
