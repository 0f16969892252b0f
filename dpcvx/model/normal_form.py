r"""The objective as a small tree of outer atoms over affine combinations, and its gradient.

Every expression of the objective becomes a combination

.. math:: u = F x + \sum_k G_k d_k + h + \sum_j M_j \, a_j,

where x is the agent's vector, d_k are its private parameters (column-major) and a_j the values of
outer atoms, whose arguments are combinations again. Affine structure is collapsed once, so a
gradient costs about two matrix products per combination. Convexity plays no role here.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from ..errors import package_fault
from .adjacency import Rows
from .atoms import DIVIDE, MATMUL, MAXIMUM, MINIMUM, PNORM, POWER, QUAD_OVER_LIN, Rule
from .behind_the_door import BehindTheDoor
from .matrices import (
    Array,
    Data,
    Diagonal,
    Identity,
    Matrix,
    as_array,
    csr,
    folded,
    has_entries,
    is_blank,
    quick,
    sparse_row_norms,
    zeros,
)
from .spec import PrivateSpec, unnamed

T = TypeVar("T")
# In the place of values that nobody reads.
UNREAD = np.full(1, np.nan)
# Constants beyond this have no square.
LARGEST = 1e150


@dataclass(frozen=True, eq=False)
class Combination:
    """``F x + sum_k G_k d_k + h + sum_j M_j a_j``, reshaped column-major to `shape`.

    Attributes
    ----------
    shape : tuple of int
    F : matrix of shape (m, n), or None if x does not occur outside atoms
    G : tuple of (private index, matrix of shape (m, size of d_k))
    h : ndarray, shape (m,)
    terms : tuple of (atom index, matrix of shape (m, size of a_j))
    """

    shape: tuple[int, ...]
    F: Matrix | None
    G: tuple[tuple[int, Matrix], ...]
    h: Array
    terms: tuple[tuple[int, Matrix], ...] = ()

    @property
    def affine(self) -> bool:
        """Whether no atom occurs."""
        return not self.terms

    @property
    def constant(self) -> bool:
        """Whether neither variables, private data nor atoms occur."""
        return self.F is None and not self.G and not self.terms


@dataclass(frozen=True, eq=False)
class Atom:
    """An outer atom: a rule with its static data, applied to combinations."""

    rule: Rule
    data: tuple[Any, ...]
    args: tuple[Combination, ...]
    shape: tuple[int, ...]

    @property
    def by_value(self) -> bool:
        """Whether its derivatives are made of its value."""
        constant = self.rule is QUAD_OVER_LIN and self.args[1].constant
        return self.rule.by_value and not constant

    @property
    def written(self) -> str:
        """How users write it, for messages: cvxpy turns ``cp.sum_squares`` into other atoms."""
        rule, number = self.rule, self.args[-1].h if self.args[-1].constant else None
        if rule in (MATMUL, DIVIDE):
            return "@" if rule is MATMUL else "/"
        if rule is POWER:
            return {2: "cp.square", 0.5: "cp.sqrt", -1: "cp.inv_pos"}.get(self.data[0], "cp.power")
        if rule is PNORM and self.data[0] == 2:
            return "cp.norm"
        if number is not None and rule is QUAD_OVER_LIN and (number == 1).all():
            return "cp.sum_squares"
        if number is not None and len(self.args) == 2 and not number.any():
            if rule in (MAXIMUM, MINIMUM):  # cp.neg(u) is -cp.minimum(u, 0)
                return "cp.pos" if rule is MAXIMUM else "cp.neg"
        return f"cp.{rule.name}"


@dataclass(frozen=True, eq=False)
class Beside:
    """An affine part ``F x`` next to the product of records and variables, ``D L @ Z(x) + F x``.

    Attributes
    ----------
    place : tuple of int
        The atom that takes the sum, and as which of its arguments.
    weight : ndarray, shape (rows,)
        Largest entries of D, by row of the product.
    size : ndarray, shape (rows,)
        Bounds of the spectral norm of F, by row of the product.
    apart : bool
        Whether F and Z read different entries of x.
    """

    place: tuple[int, int]
    weight: Array
    size: Array
    apart: bool

    def joined(self, product: Array) -> Array:
        """How far the rows reach by both parts, where they reach so far by their product."""
        own = self.weight * product
        return np.hypot(own, self.size) if self.apart else own + self.size


@dataclass(frozen=True)
class Clip:
    """Rows of a product with records whose contributions to the gradient are limited.

    Row r of ``L @ Z(x)`` contributes ``L_r`` times its cotangent, pulled back through Z. Where an
    affine part stands next to the product, ``D L @ Z(x) + F x`` with a diagonal D, such as an
    intercept, the row contributes what it adds by both.

    Attributes
    ----------
    atom : int
        Index of the product.
    turned : bool
        Whether it is ``Z(x) @ R`` with records in the columns of R.
    bound : float
        Largest l2 norm of a contribution.
    factor : float
        Bound of the norm of the derivative of Z.
    absent : float
        Largest l2 norm of the contribution of a record of zeros: 0 unless there are public parts.
    beside : Beside, optional
        The affine part next to the product.
    """

    atom: int
    turned: bool
    bound: float
    factor: float
    absent: float
    beside: Beside | None = None

    @property
    def place(self) -> tuple[int, int | None]:
        """The atom whose cotangent is scaled, or that of one argument of it."""
        return (self.atom, None) if self.beside is None else self.beside.place

    def lengths(self, arguments: Sequence[Data]) -> Array:
        """Lengths of the records among the arguments of the product."""
        records = arguments[1 if self.turned else 0]
        if records.ndim == 1:
            records = records[:, None] if self.turned else records[None, :]
        return row_lengths(records.T if self.turned else records)

    def __call__(self, long: Array, g: Array) -> Array:
        """Cotangents, each row scaled down as far as needed.

        Parameters
        ----------
        long : ndarray, shape (rows,)
            See `lengths`.
        g : ndarray
            At `place`.
        """
        rows = g.reshape(-1, long.size).T if self.turned else g.reshape(long.size, -1)
        scaled = self.scaled(long, rows)
        return (scaled.T if self.turned else scaled).reshape(g.shape)

    def scaled(self, long: Array, rows: Array) -> Array:
        """Cotangents of single rows, scaled down as far as needed.

        Parameters
        ----------
        long : ndarray, shape (rows,)
            Lengths of the records.
        rows : ndarray, shape (rows, columns of the product)
        """
        # Factor by factor: a product of the three could leave floating point and bound nothing.
        steep = row_lengths(rows)
        with np.errstate(all="ignore"):
            share = self.bound / steep
            if self.beside is None:
                share = share / long / self.factor
            else:
                share /= self.beside.joined(long * self.factor)
            # Of what is infinite or undefined, nothing is left; 0 may be taken as it is.
            share = np.where(np.isnan(share), 0.0, np.minimum(share, 1.0))
            out = share[:, None] * rows
        usable = np.isfinite(steep)
        return out if usable.all() else np.where(usable[:, None], out, 0.0)


def row_lengths(rows: Data) -> Array:
    """l2 norms of the rows, without under- or overflow of squares."""
    if is_blank(rows):
        return np.zeros(rows.shape[0])
    if rows.shape[1] == 1 and isinstance(rows, np.ndarray):
        return np.abs(rows[:, 0])
    if sp.issparse(rows):
        peak, norms = sparse_row_norms(sp.csr_array(rows), 2)
        return peak * norms
    peak = np.abs(rows).max(axis=1, initial=0.0)
    unit = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    return unit * np.sqrt(((rows / unit[:, None]) ** 2).sum(axis=1))


@dataclass(frozen=True, eq=False)
class NormalForm:
    """An agent's objective f(x; d), to be minimised.

    Attributes
    ----------
    n : int
        Length of the agent's vector.
    private : tuple of PrivateSpec
        The private parameters d_k in index order.
    atoms : tuple of Atom
        In order of evaluation.
    root : Combination
        The objective's value, of size one.
    """

    n: int
    private: tuple[PrivateSpec, ...]
    atoms: tuple[Atom, ...]
    root: Combination

    @property
    def data_size(self) -> int:
        """Entries of all private parameters together."""
        return sum(spec.size for spec in self.private)

    @functools.cached_property
    def factors(self) -> frozenset[int]:
        """Private parameters that only multiply variables, as a whole: they may be sparse."""
        found, others = set[int](), {k for k, _ in self.root.G}
        for atom in self.atoms:
            for u in atom.args:
                beside = [v for v in atom.args if v is not u]
                moving = any(v.F is not None or v.terms for v in beside)
                if atom.rule is MATMUL and moving and self._is_matrix(u):
                    found.add(u.G[0][0])
                else:
                    others |= {k for k, _ in u.G}
        return frozenset(found - others)

    def _is_matrix(self, u: Combination) -> bool:
        """Whether a combination is a private matrix as it is."""
        if len(u.G) != 1 or u.F is not None or u.terms or has_entries(u.h):
            return False
        ((k, G),) = u.G
        return isinstance(G, Identity) and len(u.shape) == 2 and u.shape == self.private[k].shape

    def bind(
        self, data: Sequence[Data], clips: Sequence[Clip] = (), *, limited: bool = False
    ) -> BoundObjective:
        """Insert private data (one flat column-major array per private parameter).

        Parameters
        ----------
        data : sequence of ndarray or csr_array
            Those of `factors` may be sparse.
        clips : sequence of Clip
        limited : bool
            Put the largest number in place of infinite intermediate values, and 0 in place of
            undefined ones: what one record does cannot spread to the others' contributions then.
        """
        return BoundObjective(self, data, clips, limited)

    def at_zero(self) -> BoundObjective:
        """The public function f(.; 0)."""
        return derived_once(NormalForm._at_zero)(self)

    def _at_zero(self) -> BoundObjective:
        return self.bind([zeros(spec.size) for spec in self.private])

    def at_labels(self, sign: float) -> BoundObjective | None:
        """The public function of records that fill their bounds alike; None with other data.

        What is multiplied with matrices, as features are, is zero: large, and at a start at 0 of no
        account.

        Parameters
        ----------
        sign : float
            Of the entries, where none is declared: 1 or -1.
        """
        matrices = [u for atom in self.atoms if atom.rule is MATMUL for u in atom.args]
        features = {k for u in matrices for k, _ in u.G}
        data: list[Array] = []
        for k, spec in enumerate(self.private):
            if not isinstance(spec.adjacency, Rows):
                return None
            count = spec.size // spec.shape[0]
            length = spec.adjacency.bound * spec.adjacency.stretch(2, count).item()
            side = {"nonneg": 1.0, "nonpos": -1.0, None: sign}[spec.sign]
            entry = 0.0 if k in features else side * length / math.sqrt(count)
            data.append(np.broadcast_to(entry, spec.size))
        return self.bind(data)

    def renamed(self, private: Sequence[PrivateSpec]) -> NormalForm:
        """The same of data with other names; what is derived of one form is known of both.

        Parameters
        ----------
        private : sequence of PrivateSpec
            Equal to the form's own, but for names, labels of records among them.
        """
        twin = replace(self, private=tuple(private))
        if unnamed(self.private) != unnamed(twin.private):
            raise package_fault(
                "Private data that differ in more than names cannot share one derivation."
            )
        vars(twin)["derived"] = self.derived
        return twin

    @functools.cached_property
    def derived(self) -> dict[Callable[..., Any], Any]:
        """What `derived_once` keeps."""
        # Public, and the same whoever asks: plans ask for the same numbers in many places, and
        # where thousands of agents differ in names alone they are derived once.
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def digest(self) -> bytes:
        """A hash that tells objectives apart, whatever their data."""
        found = hashlib.sha256(repr((self.n, [s.shape for s in self.private])).encode())
        for atom in self.atoms:
            found.update(repr((atom.rule.name, atom.data, atom.shape)).encode())
            for argument in atom.args:
                found.update(digest_of(argument))
        found.update(digest_of(self.root))
        return found.digest()

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Atoms whose values a gradient takes; those of the last ones often count for nothing."""
        by_value = {j for j, atom in enumerate(self.atoms) if atom.by_value}
        return frozenset(by_value | {j for a in self.atoms for u in a.args for j, _ in u.terms})

    def reach(self, atom: Atom) -> tuple[bool, frozenset[int]]:
        """Whether an atom depends on x, and on which private parameters."""
        on_x, on_d = False, frozenset[int]()
        for arg in atom.args:
            on_x |= arg.F is not None
            on_d |= {k for k, _ in arg.G}
            for j, _ in arg.terms:
                inner_x, inner_d = self.reach(self.atoms[j])
                on_x, on_d = on_x or inner_x, on_d | inner_d
        return on_x, on_d


def derived_once(function: Callable[[NormalForm], T]) -> Callable[[NormalForm], T]:
    """A function of a form alone, evaluated once for all forms that differ in names only."""

    @functools.wraps(function)
    def found(form: NormalForm) -> T:
        known = form.derived
        if function not in known:
            known[function] = function(form)
        return known[function]

    return found


class BoundObjective(BehindTheDoor):
    """Value and (sub)gradient of an objective with its data inserted.

    Holds private data (unless made by `NormalForm.at_zero` or `at_labels`): lives behind the door
    only, and neither prints nor pickles.
    """

    def __init__(
        self, form: NormalForm, data: Sequence[Data], clips: Sequence[Clip], limited: bool
    ) -> None:
        self._form = form
        self._limit = limited_to_numbers if limited else _as_is
        bound = functools.partial(Argument.of, data=data, limit=self._limit)
        self._parts = [
            (j, atom, [bound(u) for u in atom.args]) for j, atom in enumerate(form.atoms)
        ]
        self._root = bound(form.root)
        self._start = self._weights()
        self._section = Section(self._parts, self._limit)
        if clips:
            with np.errstate(all="ignore"):
                _, arguments = self._forward(np.zeros(form.n), range(len(form.atoms)))
                clipped = [Clipped(c, form.atoms[c.atom].shape, arguments[c.atom]) for c in clips]
            self._section = Section(self._parts, self._limit, clipped)

    def _weights(self) -> tuple[Array, list[Array | None]]:
        """Where gradients start from: the root's own part, and cotangents of its atoms."""
        out = np.zeros(self._form.n)
        cotangents: list[Array | None] = [None] * len(self._parts)
        self._root.backward(np.ones(1), out, cotangents)
        return out, [None if g is None else folded(g) for g in cotangents]

    def inserted(self) -> NormalForm:
        """The objective with the data as constants: as private as these."""
        atoms = [
            replace(
                atom, args=tuple(_inserted(*pair) for pair in zip(atom.args, args, strict=True))
            )
            for _, atom, args in self._parts
        ]
        root = _inserted(self._form.root, self._root)
        return NormalForm(self._form.n, (), tuple(atoms), root)

    def value(self, x: Array) -> float:
        """f(x; d)."""
        with np.errstate(all="ignore"):
            values, _ = self._forward(x, range(len(self._parts)))
            return float(self._root(x, values).item())

    def gradient(self, x: Array) -> Array:
        """One (sub)gradient of f(.; d) at x, as stated in `dpcvx.model.atoms`.

        Returns
        -------
        ndarray, shape (n,)
        """
        # Outside an atom's domain the result is infinite or NaN, without a warning: a warning
        # would tell something about the data.
        with np.errstate(all="ignore"):
            return self._backward(x)

    def _backward(self, x: Array) -> Array:
        values, arguments = self._forward(x, self._form.read)
        start, weights = self._start
        out, cotangents = start.copy(), [*weights]
        self._section.backward(values, arguments, out, cotangents)
        return out

    def _forward(self, x: Array, read: Container[int]) -> tuple[list[Array], list[list[Array]]]:
        """Values of the atoms that are read, and arguments of all."""
        values = [UNREAD] * len(self._parts)
        return values, self._section.forward(x, values, read)

    def __repr__(self) -> str:
        return f"BoundObjective(n={self._form.n})"


def _inserted(u: Combination, bound: Argument) -> Combination:
    return replace(u, G=(), h=as_array(bound.constant).reshape(-1, order="F"))


def _as_is(v: Array) -> Array:
    return v


def limited_to_numbers(v: Array) -> Array:
    """With the largest number in place of infinite ones, and 0 in place of those undefined."""
    if is_blank(v):
        return v
    # Twice as fast as a look at each number, which is left to those without squares; others than
    # these would be copied.
    if v.flags.forc and math.isfinite((flat := v.ravel(order="K")).dot(flat)):
        return v
    return v if np.isfinite(v).all() else np.nan_to_num(v)


class Clipped(BehindTheDoor):
    """A clip with what it needs of the data.

    Parameters
    ----------
    clip : Clip
    shape : tuple of int
        Of the product that is clipped.
    arguments : sequence of (ndarray or csr_array)
        Its arguments; no variables are part of the records.
    """

    __slots__ = ("_clip", "_lengths", "_shape", "place")

    def __init__(self, clip: Clip, shape: tuple[int, ...], arguments: Sequence[Data]) -> None:
        self.place = clip.place
        self._clip, self._shape, self._lengths = clip, shape, clip.lengths(arguments)

    def __call__(self, g: Array) -> Array:
        """The cotangent at `place` with each row scaled down as far as needed."""
        if self.place[1] is None:
            return self._clip(self._lengths, g)
        rows = g.reshape(self._shape, order="F")
        return np.ravel(self._clip(self._lengths, rows), order="F")


class Section(BehindTheDoor):
    """Some atoms of an objective, or some rows of theirs, with data inserted.

    Parameters
    ----------
    parts : sequence of Part
        Indices among all atoms, the atoms, and their arguments, in order of evaluation.
    limit : callable
        Applied to every intermediate value.
    clips : sequence of Clipped
    """

    __slots__ = ("_clips", "_limit", "_parts")

    def __init__(
        self, parts: Sequence[Part], limit: Callable[[Array], Array], clips: Sequence[Clipped] = ()
    ) -> None:
        self._parts, self._limit = parts, limit
        self._clips = {clip.place: clip for clip in clips}

    def forward(self, x: Array, values: list[Array], read: Container[int]) -> list[list[Array]]:
        """Arguments of its atoms; their values, if they are read, are put in their places.

        Parameters
        ----------
        x : ndarray, shape (n,)
        values : list of ndarray
            Of all atoms; those that arguments are made of are known.
        read : container of int
        """
        arguments: list[list[Array]] = []
        for j, atom, args in self._parts:
            inputs = [bound(x, values) for bound in args]
            arguments.append(inputs)
            if j in read:
                values[j] = self._limit(atom.rule.forward(inputs, atom.data))
        return arguments

    def backward(
        self,
        values: Sequence[Array],
        arguments: Sequence[Sequence[Array]],
        out: Array,
        cotangents: list[Array | None],
    ) -> None:
        """Add what its atoms contribute to the gradient, and to cotangents of other atoms.

        Parameters
        ----------
        values : sequence of ndarray
            Of all atoms.
        arguments : sequence of sequence of ndarray
            As `forward` returned them.
        out : ndarray, shape (n,)
        cotangents : list of (ndarray or None)
            Of all atoms; those of its own are known.
        """
        for (j, atom, args), inputs in zip(reversed(self._parts), reversed(arguments), strict=True):
            g = cotangents[j]
            if g is None:
                continue
            shaped = g.reshape(atom.shape, order="F")
            if (j, None) in self._clips:
                shaped = self._clips[j, None](shaped)
            for k, bound in enumerate(args):
                if bound.moving:
                    part = atom.rule.vjp(inputs, values[j], shaped, atom.data, k)
                    part = self._limit(part.ravel(order="F"))
                    if (j, k) in self._clips:
                        part = self._clips[j, k](part)
                    bound.backward(part, out, cotangents)


class Given(BehindTheDoor):
    """An argument that is the value of an atom as it is.

    Parameters
    ----------
    atom : int
    """

    __slots__ = ("_atom",)
    moving = True

    def __init__(self, atom: int) -> None:
        self._atom = atom

    def __call__(self, x: Array, values: Sequence[Array]) -> Array:
        """The atom's value."""
        return values[self._atom]

    def backward(self, g: Array, out: Array, cotangents: list[Array | None]) -> None:
        """Add g to the atom's cotangent."""
        known = cotangents[self._atom]
        cotangents[self._atom] = g if known is None else known + g


class Argument(BehindTheDoor):
    """A combination with its constant part summed up, as an atom takes it.

    Parameters
    ----------
    shape : tuple of int
    F : matrix of shape (m, n), or None
    terms : sequence of (atom index, matrix)
        As in `Combination`, or made `quick`.
    constant : ndarray or csr_array
        In this shape; sparse where it is a private matrix by itself.
    limit : callable
        Applied to the values.
    """

    __slots__ = (
        "F", "_limit", "_offset", "_shifts", "_transposed", "constant", "moving", "shape", "terms",
    )  # fmt: skip

    def __init__(
        self,
        shape: tuple[int, ...],
        F: Matrix | Diagonal | None,
        terms: Sequence[tuple[int, Matrix | Diagonal]],
        constant: Data,
        limit: Callable[[Array], Array],
    ) -> None:
        self.shape, self.constant, self._limit = shape, constant, limit
        self.F = None if F is None else quick(F)
        self._transposed = None if self.F is None else self.F.T
        self.terms = [(j, quick(M)) for j, M in terms]
        self.moving = F is not None or bool(terms)
        # Not `ravel`, which would give blank ones entries.
        self._offset = constant.reshape(-1, order="F") if self.moving else zeros(0)
        self._shifts = has_entries(self._offset)

    @classmethod
    def of(
        cls, combination: Combination, data: Sequence[Data], limit: Callable[[Array], Array]
    ) -> Argument:
        """That of a combination with data."""
        shape, F, terms = combination.shape, combination.F, combination.terms
        sparse = [data[k] for k, _ in combination.G if sp.issparse(data[k])]
        if sparse:  # one of `NormalForm.factors`: finite, and nothing stands next to it
            return cls(shape, F, terms, sparse[0], limit)
        offsets = [combination.h] if has_entries(combination.h) or not combination.G else []
        offsets += [G @ data[k] for k, G in combination.G]
        # A single part stays what it is: data of records are not copied.
        with np.errstate(all="ignore"):
            offset = limit(functools.reduce(np.add, offsets))
        return cls(shape, F, terms, offset.reshape(shape, order="F"), limit)

    def __call__(self, x: Array, values: Sequence[Array]) -> Array:
        """Its value at x, where its atoms have these."""
        if not self.moving:
            return self.constant
        total = None
        if self.F is not None:  # plans ask for gradients at starts of zeros again and again
            total = self.F @ x if x.any() else np.zeros(self._offset.size)
        if self._shifts:
            total = self._offset if total is None else total + self._offset
        for j, M in self.terms:
            part = M @ values[j].ravel(order="F")
            total = part if total is None else total + part
        assert total is not None
        return self._limit(total).reshape(self.shape, order="F")

    def backward(self, g: Array, out: Array, cotangents: list[Array | None]) -> None:
        """Add what its cotangent g is to the gradient, and to cotangents of its atoms."""
        if self._transposed is not None:
            out += self._transposed @ g
        for j, M in self.terms:
            part = M.T @ g
            known = cotangents[j]
            cotangents[j] = part if known is None else known + part


Part = tuple[int, Atom, Sequence[Argument | Given]]


def digest_of(u: Combination) -> bytes:
    """A digest that equal combinations share."""
    digest = hashlib.sha256(repr((u.shape, [k for k, _ in u.G], [j for j, _ in u.terms])).encode())
    matrices = [M for M in (u.F, *(G for _, G in u.G), *(M for _, M in u.terms)) if M is not None]
    for M in matrices:
        if isinstance(M, Identity):
            digest.update(repr(M).encode())
            continue
        sparse = csr(M)
        sparse.sort_indices()
        if not sparse.has_canonical_format:  # the arrays belong to M, maybe to the user
            sparse = sparse.copy()
            sparse.sum_duplicates()
        digest.update(repr(sparse.shape).encode())
        for array in (sparse.data, sparse.indices, sparse.indptr):
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(b"no x" if u.F is None else b"x")
    digest.update(u.h.tobytes() if has_entries(u.h) else repr(u.h.size).encode())
    return digest.digest()
