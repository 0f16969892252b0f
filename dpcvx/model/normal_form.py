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
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from ..errors import package_fault
from .adjacency import Rows
from .atoms import Fitted, Rule
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
from .trailing import BehindTheDoor, SparseMatrices, View, flat, swapped, times

T = TypeVar("T")
# In the place of values that nobody reads.
UNREAD = np.full(1, np.nan)
# Constants beyond this have no square.
LARGEST = 1e150
# Of the numbers that have all their digits.
_LEAST = sys.float_info.min


@dataclass(frozen=True, eq=False)
class Combination:
    """``F x + sum_k G_k d_k + h + sum_j M_j a_j``, reshaped column-major to `shape`."""

    shape: tuple[int, ...]
    F: Matrix | None  # shape (m, n), or None if x does not occur outside atoms
    G: tuple[tuple[int, Matrix], ...]  # shape (m, size of d_k)
    h: Array  # shape (m,)
    terms: tuple[tuple[int, Matrix], ...] = ()  # shape (m, size of a_j))

    @property
    def affine(self) -> bool:
        """Return whether no atom occurs."""
        return not self.terms

    @property
    def constant(self) -> bool:
        """Return whether neither variables, private data nor atoms occur."""
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
        """Return whether its derivatives are made of its value."""
        return self.rule.reads_value([u.constant for u in self.args])

    @property
    def written(self) -> str:
        """Return the atom as users write it, for messages."""
        last = self.args[-1] if len(self.args) == 2 else None
        return self.rule.written(self.data, last.h if last is not None and last.constant else None)


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
        """Return bounds of the rows' contributions by both parts, from those by their product."""
        weighted = self.weight * product
        return np.hypot(weighted, self.size) if self.apart else weighted + self.size


@dataclass(frozen=True)
class Clip:
    """Rows of a product with records whose contributions to the gradient are limited.

    Row r of ``L @ Z(x)`` contributes ``L_r`` times its cotangent, pulled back through Z. If an
    affine part such as an intercept is added to the product, ``D L @ Z(x) + F x`` with a diagonal
    D, the row's contribution includes both.

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

    def scores(self, form: NormalForm) -> int:
        """Return the number of columns of the product, which are the scores of one record."""
        shape = form.atoms[self.atom].shape
        return 1 if len(shape) < 2 else shape[0 if self.turned else 1]

    def scaled(self, lengths: Array, rows: Array) -> Array:
        """Return the cotangents of single rows, scaled down as far as needed.

        Parameters
        ----------
        lengths : ndarray, shape (..., rows)
            l2 norms of the records.
        rows : ndarray, shape (..., rows, columns of the product)
        """
        # Factor by factor: a product of the three could leave floating point and bound nothing.
        steep = row_lengths(rows)
        with np.errstate(all="ignore"):
            share = self.share(lengths, steep)
            # Of what is infinite or undefined, nothing is left; 0 may be taken as it is.
            share = _with_all_digits(np.minimum(share, 1.0))
            out = share[..., None] * rows
        usable = np.isfinite(steep)
        return out if usable.all() else np.where(usable[..., None], out, 0.0)

    def share(self, lengths: Array, steep: Array) -> Array:
        """Return the bound over what each record contributes: above 1 where it stays as it is.

        Parameters
        ----------
        lengths : ndarray, shape (..., rows)
            l2 norms of the records.
        steep : ndarray, shape (..., rows)
            l2 norms of their cotangents.
        """
        share = _with_all_digits(self.bound / steep)
        if self.beside is None:
            return _with_all_digits(share / lengths) / self.factor
        return share / self.beside.joined(lengths * self.factor)


def _with_all_digits(share: Array) -> Array:
    """Numbers, with 0 in place of those undefined, and of those that have lost digits near 0.

    Numbers that lost digits may be rounded up by any factor up to 2, and would bound less.
    """
    return np.where(share >= _LEAST, share, 0.0)


def row_lengths(rows: Data | SparseMatrices) -> Array:
    """Return l2 norms of the rows of matrices, shape (..., rows), without overflow of squares.

    Parameters
    ----------
    rows : ndarray of shape (..., rows, columns), csr_array, or SparseMatrices
    """
    if isinstance(rows, SparseMatrices):
        return rows.rows_by(row_lengths)
    if is_blank(rows):
        return np.zeros(rows.shape[:-1])
    if rows.shape[-1] == 1 and isinstance(rows, np.ndarray):
        return np.abs(rows[..., 0])
    if sp.issparse(rows):
        peak, norms = sparse_row_norms(sp.csr_array(rows), 2)
        return peak * norms
    peak = np.abs(rows).max(axis=-1, initial=0.0)
    unit = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    return unit * np.sqrt(((rows / unit[..., None]) ** 2).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class NormalForm:
    """An agent's objective f(x; d), to be minimized."""

    n: int  # length of the agent's vector
    private: tuple[PrivateSpec, ...]  # the private parameters d_k in index order
    atoms: tuple[Atom, ...]  # in order of evaluation
    root: Combination  # the objective's value, of size one

    @property
    def data_size(self) -> int:
        """Entries of all private parameters together."""
        return sum(spec.size for spec in self.private)

    @functools.cached_property
    def factors(self) -> frozenset[int]:
        """Private parameters that only multiply variables, as a whole: they may be sparse."""
        factors, others = set[int](), {k for k, _ in self.root.G}
        for atom in self.atoms:
            for u in atom.args:
                beside = [v for v in atom.args if v is not u]
                moving = any(v.F is not None or v.terms for v in beside)
                if atom.rule.product == "matrix" and moving and self._is_matrix(u):
                    factors.add(u.G[0][0])
                else:
                    others |= {k for k, _ in u.G}
        return frozenset(factors - others)

    def _is_matrix(self, u: Combination) -> bool:
        """Return whether a combination is a private matrix as it is."""
        if len(u.G) != 1 or u.F is not None or u.terms or has_entries(u.h):
            return False
        ((k, G),) = u.G
        return isinstance(G, Identity) and len(u.shape) == 2 and u.shape == self.private[k].shape

    def bind(
        self,
        data: Sequence[Data | SparseMatrices],
        clips: Sequence[Clip] = (),
        *,
        limited: bool = False,
    ) -> Evaluator:
        """Insert private data of one agent or of several; see `Evaluator`."""
        return Evaluator(self, data, clips, limited=limited)

    def at_zero(self) -> Evaluator:
        """Return the public function f(.; 0)."""
        return derived_once(NormalForm._at_zero)(self)

    def _at_zero(self) -> Evaluator:
        return self.bind([zeros(spec.size) for spec in self.private])

    def at_labels(self, sign: float) -> Evaluator | None:
        """Return the public function of records that fill their bounds alike; None with other data.

        Data that are multiplied with matrices, as features are, are zero: they are large, and do
        not matter at an initial point of 0.

        Parameters
        ----------
        sign : float
            Sign of the entries without a declared one: 1 or -1.
        """
        data = self.filled(sign, features=0.0)
        return None if data is None else self.bind(data)

    def filled(self, labels: float, features: float) -> list[Array] | None:
        """Records that fill their bounds alike, times a number each; None with other data.

        Features are multiplied with matrices, and all else are labels.

        Parameters
        ----------
        labels, features : float
            Magnitudes of entries with a declared sign.
        """
        matrices = [u for a in self.atoms if a.rule.product == "matrix" for u in a.args]
        multiplied = {k for u in matrices for k, _ in u.G}
        data: list[Array] = []
        for k, spec in enumerate(self.private):
            if not isinstance(spec.adjacency, Rows):
                return None
            count = spec.size // spec.shape[0]
            length = spec.adjacency.max_norm * spec.adjacency.stretch(2, count).item()
            number = features if k in multiplied else labels
            side = {"nonneg": abs(number), "nonpos": -abs(number), None: number}[spec.sign]
            entry = side * length / math.sqrt(count) if number else 0.0
            data.append(np.broadcast_to(entry, spec.size))
        return data

    def renamed(self, private: Sequence[PrivateSpec]) -> NormalForm:
        """Return the form for data with other names; both share all derived numbers.

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
        """Return the store of `derived_once`: results by function."""
        # Public, and the same whoever asks: plans ask for the same numbers in many places, and
        # where thousands of agents differ in names alone they are derived once.
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field_.name: getattr(self, field_.name) for field_ in fields(self)}

    def digest(self) -> bytes:
        """Return a hash that tells objectives apart, whatever their data."""
        digest = hashlib.sha256(repr((self.n, [s.shape for s in self.private])).encode())
        for atom in self.atoms:
            digest.update(repr((atom.rule.name, atom.data, atom.shape)).encode())
            for argument in atom.args:
                digest.update(digest_of(argument))
        digest.update(digest_of(self.root))
        return digest.digest()

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Atoms whose values a gradient takes; those of the last ones often count for nothing."""
        by_value = {j for j, atom in enumerate(self.atoms) if atom.by_value}
        return frozenset(by_value | {j for a in self.atoms for u in a.args for j, _ in u.terms})

    def reach(self, atom: Atom) -> tuple[bool, frozenset[int]]:
        """Return whether an atom depends on x, and the private parameters that it depends on."""
        on_x, on_d = False, frozenset[int]()
        for arg in atom.args:
            on_x |= arg.F is not None
            on_d |= {k for k, _ in arg.G}
            for j, _ in arg.terms:
                inner_x, inner_d = self.reach(self.atoms[j])
                on_x, on_d = on_x or inner_x, on_d | inner_d
        return on_x, on_d


def derived_once(function: Callable[[NormalForm], T]) -> Callable[[NormalForm], T]:
    """Return a function of a form alone, evaluated once for all forms that differ in names only."""

    @functools.wraps(function)
    def found(form: NormalForm) -> T:
        results = form.derived
        if function not in results:
            results[function] = function(form)
        return results[function]

    return found


Limit = Callable[[Array], Array] | None


class Evaluator(BehindTheDoor):
    """Values and (sub)gradients of an objective with its data inserted, for one agent or several.

    Several agents have objectives of one form and data of their own. Each of their rows has the
    bits of the agent by itself. Data are of shape (size,) or (agents, size). Points are of shape
    (n,), or (agents, n) for a point of each agent, or (points, n) for several points of one agent.

    It holds private data (unless made by `NormalForm.at_zero` or `at_labels`): it lives within the
    trust boundary only, and neither prints nor pickles.

    Parameters
    ----------
    form : NormalForm
    data : sequence of (ndarray of shape (size,) or (agents, size), csr_array or SparseMatrices)
        One flat column-major array per private parameter and agent. Those of `NormalForm.factors`
        may be sparse. `trailing.of_all` joins the data of several agents.
    clips : sequence of Clip
    limited : bool
        Put the largest number in place of infinite intermediate values, and 0 in place of undefined
        ones: what one record does cannot spread to the others' contributions then.
    cut : callable, optional
        Return the order of evaluation of gradients, given that of the form; see
        `dpcvx.model.row_blocks`, which then also inserts the clips.
    """

    def __init__(
        self,
        form: NormalForm,
        data: Sequence[Data | SparseMatrices],
        clips: Sequence[Clip] = (),
        *,
        limited: bool = False,
        cut: Callable[[Order, Limit], Order] | None = None,
    ) -> None:
        self._form = form
        self._limit = limited_to_numbers if limited else None
        leads = [d.shape[:-1] if isinstance(d, np.ndarray) else d.shape[:-2] for d in data]
        self._lead = np.broadcast_shapes(*leads)
        self._root = Argument.of(form.root, data, self._limit)
        self._steps = [AtomStep.of(j, atom, data, self._limit) for j, atom in enumerate(form.atoms)]
        self._start, weights = self._weights()
        self._order = Order(self._steps, weights, form.read)
        with np.errstate(all="ignore"):
            if cut is not None:
                self._order = cut(self._order, self._limit)
                return
            for clip in clips:
                j, k = clip.place
                self._steps[j].clips[k] = Clipped.of(clip, self._steps, self._limit)

    def _weights(self) -> tuple[Array, list[Array | None]]:
        """Return the initial values of gradients: the root's own part, and cotangents of atoms."""
        out = np.zeros(self._form.n)
        cotangents: list[Array | None] = [None] * len(self._steps)
        self._root.backward(np.ones(1), out, cotangents)
        return out, [None if g is None else folded(g) for g in cotangents]

    def inserted(self) -> NormalForm:
        """Return the objective of one agent with the data as constants: as private as these."""
        if self._lead:
            raise package_fault(
                "Data of several agents cannot stand in one objective as constants."
            )
        atoms = [
            replace(atom, args=tuple(map(_inserted, atom.args, step.arguments)))
            for atom, step in zip(self._form.atoms, self._steps, strict=True)
        ]
        root = _inserted(self._form.root, self._root)
        return NormalForm(self._form.n, (), tuple(atoms), root)

    def value(self, x: Array) -> Any:
        """Return the values f(x; d).

        Parameters
        ----------
        x : ndarray, shape (n,), (agents, n) or (points, n)

        Returns
        -------
        float, or ndarray of shape (agents,) or (points,)
            A number for one agent at one point.
        """
        with np.errstate(all="ignore"):
            values, point = [UNREAD] * len(self._steps), x if x.any() else None
            forward(self._steps, point, values, range(len(values)), self._limit)
            value = self._root(point, values)[..., 0]
        lead = np.broadcast_shapes(self._lead, x.shape[:-1])
        return np.broadcast_to(value, lead) if lead else float(value)

    def gradient(self, x: Array) -> Array:
        """Return a (sub)gradient of f(.; d) at x, as stated in `dpcvx.model.atoms`.

        Parameters
        ----------
        x : ndarray, shape (n,), (agents, n) or (points, n)

        Returns
        -------
        ndarray, shape (n,), (agents, n) or (points, n)
        """
        # Outside an atom's domain the result is infinite or NaN, without a warning: a warning
        # would tell something about the data.
        with np.errstate(all="ignore"):
            return self._backward(x)

    def clipped(self, x: Array, times: float) -> tuple[Array, int]:
        """Return the gradient of a multiple of f, and how many records its clips scale down.

        Parameters
        ----------
        x : ndarray, shape (n,)
            Point of one agent.
        times : float
            Clips stay as long as they are.
        """
        exceeded: list[int] = []

        def look(clipped: Clipped, g: Array) -> None:
            exceeded.append(clipped.exceeded(g))

        with np.errstate(all="ignore"):
            return self._backward(x, times, look), sum(exceeded)

    def _backward(self, x: Array, times: float = 1.0, look: Look | None = None) -> Array:
        lead = np.broadcast_shapes(self._lead, x.shape[:-1])
        out = np.tile(self._start, (*lead, 1)) if lead else self._start.copy()
        # Plans ask for gradients at starts of zeros again and again.
        point, limit, order = x if x.any() else None, self._limit, self._order
        cotangents, whole = [*order.weights], times == 1
        if not whole:
            out *= times
            cotangents = [g if g is None else g * times for g in cotangents]
        values = [UNREAD] * len(cotangents)
        inputs = forward(order.steps, point, values, order.read, limit)
        for weights, steps in order.blocks:
            for j, g in weights:
                cotangents[j] = g if whole or g is None else g * times
            cut = forward(steps, point, values, order.read, limit)
            backward(steps, cut, values, out, cotangents, limit, look)
        backward(order.steps, inputs, values, out, cotangents, limit, look)
        return out

    def __repr__(self) -> str:
        return f"Evaluator(n={self._form.n})"


def _inserted(u: Combination, argument: Argument) -> Combination:
    return replace(u, G=(), h=as_array(argument.offset).reshape(-1, order="F"))


def limited_to_numbers(v: Array) -> Array:
    """Return numbers with the largest float for infinite ones, and 0 for undefined ones."""
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
    records : ndarray of shape (..., rows, columns), csr_array, or SparseMatrices
        The factor of the product that holds the records.
    """

    __slots__ = ("_clip", "_lengths")

    def __init__(self, clip: Clip, records: Any) -> None:
        self._clip = clip
        self._lengths = row_lengths(swapped(records) if clip.turned else records)

    @classmethod
    def of(cls, clip: Clip, steps: Sequence[AtomStep], limit: Limit) -> Clipped:
        """Return the clip with its product's factor and what atoms make of data in it.

        Parameters
        ----------
        clip : Clip
        steps : sequence of AtomStep
            All atoms of the objective.
        limit : callable or None
        """
        factor = steps[clip.atom].arguments[1 if clip.turned else 0]
        if not factor.moving:
            return cls(clip, factor.constant)
        values = [UNREAD] * len(steps)
        forward(steps[: clip.atom], None, values, range(len(steps)), limit)
        return cls(clip, factor(None, values))  # no variables are part of the records

    def exceeded(self, g: Array) -> int:
        """Return the number of records that contribute more than the clip, by its cotangent."""
        steep = row_lengths(self.rows(g))
        with np.errstate(all="ignore"):
            share = self._clip.share(self._lengths, steep)
        return int(np.count_nonzero(share < 1))

    def rows(self, g: Array) -> Array:
        """The flat cotangent at the clip's place as rows of the records, shape (rows, columns)."""
        count = self._lengths.shape[-1]
        return g.reshape(count, -1) if self._clip.turned else g.reshape(-1, count).T

    def __call__(self, g: Array) -> Array:
        """Return the flat cotangent at the product, with each row scaled down as needed."""
        count = self._lengths.shape[-1]
        columns = g.shape[-1] // count
        if self._clip.turned:  # records are columns, which lie one after the other
            scaled = self._clip.scaled(self._lengths, g.reshape(*g.shape[:-1], count, columns))
            return scaled.reshape(*scaled.shape[:-2], -1)
        if columns == 1:
            return self._clip.scaled(self._lengths, g[..., None])[..., 0]
        view = View((count, columns))
        return view.flat(self._clip.scaled(self._lengths, view(g)))


@dataclass(eq=False, repr=False, slots=True)
class AtomStep(BehindTheDoor):
    """An atom with its rule, arguments and clips.

    Attributes
    ----------
    j : int
        Index among all atoms.
    rule : Fitted
    arguments : sequence of Argument
    clips : dict of (int or None) to Clipped
        Clips by the argument whose cotangent they scale; None for the atom's own.
    """

    j: int
    rule: Fitted
    arguments: Sequence[Argument]
    clips: dict[int | None, Clipped] = field(default_factory=dict)
    moving: list[tuple[int, Argument]] = field(init=False)  # arguments that depend on x

    def __post_init__(self) -> None:
        self.moving = [(k, u) for k, u in enumerate(self.arguments) if u.moving]

    @classmethod
    def of(
        cls, j: int, atom: Atom, data: Sequence[Data | SparseMatrices], limit: Limit
    ) -> AtomStep:
        """Return the step of an atom with data."""
        rule = atom.rule.fitted(atom.data, [u.shape for u in atom.args], atom.shape)
        pairs = zip(atom.args, rule.layouts, strict=True)
        return cls(j, rule, [Argument.of(u, data, limit, layout) for u, layout in pairs])


@dataclass(frozen=True, eq=False, repr=False)
class Order(BehindTheDoor):
    """Order of the evaluation of atoms for a gradient.

    Attributes
    ----------
    steps : sequence of AtomStep
        First forward, and last backward.
    weights : sequence of (ndarray or None)
        Cotangents of all atoms to start from.
    read : container of int
        Atoms whose values are read.
    blocks : sequence of (sequence of (int, ndarray or None), sequence of AtomStep)
        Between the two, one after the other: the cotangents to start from, and the steps.
    """

    steps: Sequence[AtomStep]
    weights: Sequence[Array | None]
    read: Container[int]
    blocks: Sequence[tuple[Sequence[tuple[int, Array | None]], Sequence[AtomStep]]] = ()


def forward(
    steps: Sequence[AtomStep],
    x: Array | None,
    values: list[Array],
    read: Container[int],
    limit: Limit,
) -> list[list[Array]]:
    """Arguments of steps in the rules' layouts; the flat values that are read go to their places.

    Parameters
    ----------
    steps : sequence of AtomStep
    x : ndarray, shape (..., n), or None for zeros
    values : list of ndarray
        Values of all atoms; those of the arguments are known.
    read : container of int
    limit : callable or None
        Applied to every intermediate value.
    """
    inputs: list[list[Array]] = []
    for step in steps:
        arguments = [u(x, values) for u in step.arguments]
        inputs.append(arguments)
        if step.j in read:
            value = step.rule.forward(arguments, step.rule.data)
            values[step.j] = value if limit is None else limit(value)
    return inputs


def backward(
    steps: Sequence[AtomStep],
    inputs: Sequence[Sequence[Array]],
    values: Sequence[Array],
    out: Array,
    cotangents: list[Array | None],
    limit: Limit,
    look: Look | None = None,
) -> None:
    """Add what steps contribute to gradients, and to cotangents of other atoms.

    Parameters
    ----------
    steps : sequence of AtomStep
    inputs : sequence of sequence of ndarray
        Inputs that `forward` returned.
    values : sequence of ndarray
        Values of all atoms.
    out : ndarray, shape (..., n)
    cotangents : list of (ndarray or None)
        Cotangents of all atoms; those of the steps are known.
    limit : callable or None
    look : callable, optional
        Called with every clip and the flat cotangent that it scales down.
    """
    for step, arguments in zip(reversed(steps), reversed(inputs), strict=True):
        g = cotangents[step.j]
        if g is None:
            continue
        rule, clips = step.rule, step.clips
        if None in clips:
            if look is not None:
                look(clips[None], g)
            g = clips[None](g)
        for k, argument in step.moving:
            part = rule.vjp(arguments, values[step.j], g, rule.data, k)
            if limit is not None:
                part = limit(part)
            if k in clips:
                if look is not None:
                    look(clips[k], part)
                part = clips[k](part)
            argument.backward(part, out, cotangents)


# Of cotangents on their way back.
Look = Callable[[Clipped, Array], None]


class Argument(BehindTheDoor):
    """A combination with its constant part summed up, in the layout that a rule takes.

    Parameters
    ----------
    F : matrix of shape (m, n), or None
    terms : sequence of (atom index, matrix)
        Terms as in `Combination`, or made `quick`.
    offset : ndarray, csr_array or SparseMatrices
        Flat, or a matrix where data are sparse.
    limit : callable or None
        Applied to the values.
    layout : callable, optional
        Function from a flat array to the rule's argument; the identity if omitted.
    """

    __slots__ = (
        "F", "_layout", "_limit", "_shifts", "_size", "_terms", "_transposed", "constant",
        "moving", "offset",
    )  # fmt: skip

    def __init__(
        self,
        F: Matrix | Diagonal | None,
        terms: Sequence[tuple[int, Matrix | Diagonal]],
        offset: Data | SparseMatrices,
        limit: Limit,
        layout: Callable[[Array], Array] = flat,
    ) -> None:
        self.moving = F is not None or bool(terms)
        self.F = None if F is None else quick(F)
        self._transposed = None if self.F is None else self.F.T
        self._size = 0 if F is None else F.shape[0]
        quicker = [(j, quick(M)) for j, M in terms]
        self._terms = [(j, M, M.T) for j, M in quicker]
        self.offset, self._limit, self._layout = offset, limit, layout
        self._shifts = self.moving and isinstance(offset, np.ndarray) and has_entries(offset)
        self.constant = layout(offset) if isinstance(offset, np.ndarray) else offset

    @classmethod
    def of(
        cls,
        u: Combination,
        data: Sequence[Data | SparseMatrices],
        limit: Limit,
        layout: Callable[[Array], Array] = flat,
    ) -> Argument:
        """Return the argument for a combination with data."""
        sparse = [data[k] for k, _ in u.G if not isinstance(data[k], np.ndarray)]
        if sparse:  # one of `NormalForm.factors`: finite, and nothing stands next to it
            return cls(u.F, u.terms, sparse[0], limit, layout)
        offsets = [u.h] if has_entries(u.h) or not u.G else []
        offsets += [times(G, as_array(data[k])) for k, G in u.G]
        # A single part stays what it is: data of records are not copied.
        with np.errstate(all="ignore"):
            offset = functools.reduce(np.add, offsets)
            return cls(u.F, u.terms, offset if limit is None else limit(offset), limit, layout)

    @property
    def terms(self) -> list[tuple[int, Matrix | Diagonal]]:
        """Atoms that it is made of, and their matrices."""
        return [(j, M) for j, M, _ in self._terms]

    def __call__(self, x: Array | None, values: Sequence[Array]) -> Any:
        """Return the value at x (None for zeros), given the values of atoms."""
        if not self.moving:
            return self.constant
        total: Any = None
        if self.F is not None:
            total = np.zeros(self._size) if x is None else times(self.F, x)
        if self._shifts:
            total = self.offset if total is None else total + self.offset
        for j, M, _ in self._terms:
            part = times(M, values[j])
            total = part if total is None else total + part
        if self._limit is not None:
            total = self._limit(total)
        return total if self._layout is flat else self._layout(total)

    def backward(self, g: Array, out: Array, cotangents: list[Array | None]) -> None:
        """Add what its cotangent g is to the gradient, and to cotangents of its atoms."""
        if self._transposed is not None:
            out += times(self._transposed, g)
        for j, _, transposed in self._terms:
            part, others = times(transposed, g), cotangents[j]
            cotangents[j] = part if others is None else others + part


def digest_of(u: Combination) -> bytes:
    """Return a digest that equal combinations share."""
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
        digest.update(np.ascontiguousarray(sparse.data).tobytes())
        for places in (sparse.indices, sparse.indptr):  # of any integer type
            digest.update(np.ascontiguousarray(places, dtype="<i8").tobytes())
    digest.update(b"no x" if u.F is None else b"x")
    digest.update(u.h.tobytes() if has_entries(u.h) else repr(u.h.size).encode())
    return digest.digest()
