r"""Normal form of an agent's objective: atoms over affine combinations, and its gradient.

Every expression of the objective becomes a combination

.. math:: u = F x + \sum_k G_k d_k + h + \sum_j M_j \, a_j,

where x is the agent's vector, d_k are its private parameters (column-major) and a_j are the values
of outer atoms: those that are not linear, such as squares or products of data and variables. Their
arguments are combinations again. Affine structure is collapsed once, so a gradient costs about two
matrix products per combination. Convexity plays no role here.
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
# Placeholder for values of atoms that are not computed.
UNREAD = np.full(1, np.nan)
# Largest magnitude of a constant: squares of larger ones could overflow.
LARGEST = 1e150
# Smallest normal float; smaller numbers have lost digits.
_LEAST = sys.float_info.min


@dataclass(frozen=True, eq=False)
class Combination:
    """Affine combination ``u = F x + sum_k G_k d_k + h + sum_j M_j a_j`` in a normal form.

    Here x is the agent's vector, d_k are its private parameters and a_j are values of atoms. The
    vector u is reshaped column-major to `shape`.
    """

    shape: tuple[int, ...]
    F: Matrix | None  # shape (m, n), or None if x does not occur outside atoms
    G: tuple[tuple[int, Matrix], ...]  # pairs of k and G_k, shape (m, size of d_k)
    h: Array  # shape (m,)
    terms: tuple[tuple[int, Matrix], ...] = ()  # pairs of j and M_j, shape (m, size of a_j)

    @property
    def affine(self) -> bool:
        """Return whether the combination contains no value of an atom."""
        return not self.terms

    @property
    def constant(self) -> bool:
        """Return whether the combination contains no variables, private data or atoms."""
        return self.F is None and not self.G and not self.terms


@dataclass(frozen=True, eq=False)
class Atom:
    """Atom of a normal form: a rule with its static data, applied to combinations."""

    rule: Rule
    data: tuple[Any, ...]
    args: tuple[Combination, ...]
    shape: tuple[int, ...]

    @property
    def by_value(self) -> bool:
        """Return whether the atom's derivatives are computed from the atom's value."""
        return self.rule.reads_value([u.constant for u in self.args])

    @property
    def written(self) -> str:
        """Return the atom's cvxpy code as users write it, for messages."""
        last = self.args[-1] if len(self.args) == 2 else None
        return self.rule.written(self.data, last.h if last is not None and last.constant else None)


@dataclass(frozen=True, eq=False)
class Beside:
    """Affine part ``F x`` that is added to a product of records and variables.

    The sum is ``D L @ Z(x) + F x``, with the records in the rows of L and a diagonal matrix D.

    Attributes
    ----------
    place : tuple of int
        Index of the atom that has the sum as an argument, and the position of this argument.
    weight : ndarray, shape (rows,)
        Largest magnitude on the diagonal of D, for each row of the product.
    size : ndarray, shape (rows,)
        Bound of the spectral norm of the rows of F that are added to each row of the product.
    apart : bool
        Whether F and Z read different entries of x.
    """

    place: tuple[int, int]
    weight: Array
    size: Array
    apart: bool

    def joined(self, product: Array) -> Array:
        """Return bounds on each row's gradient contribution by product and affine part together.

        Parameters
        ----------
        product : ndarray, shape (..., rows)
            Bounds on the contributions by the product alone.
        """
        weighted = self.weight * product
        return np.hypot(weighted, self.size) if self.apart else weighted + self.size


@dataclass(frozen=True)
class Clip:
    """Limit on the gradient contributions of single records, which are rows of a product.

    The product is ``L @ Z(x)``, with the records in the rows of L and an affine function Z of the
    variables x.

    Row r of the product contributes ``L_r`` times its cotangent, pulled back through Z. If an
    affine part such as an intercept is added to the product, ``D L @ Z(x) + F x`` with a diagonal
    D, the row's contribution includes both.

    Attributes
    ----------
    atom : int
        Index of the product among the form's atoms.
    turned : bool
        Whether the product is ``Z(x) @ R`` with records in the columns of R.
    bound : float
        Largest l2 norm of a contribution.
    factor : float
        Bound of the spectral norm of the derivative of Z in x.
    absent : float
        Largest l2 norm of the contribution of a record of zeros: 0 unless there are public parts.
    beside : Beside, optional
        The affine part that is added to the product.
    """

    atom: int
    turned: bool
    bound: float
    factor: float
    absent: float
    beside: Beside | None = None

    @property
    def place(self) -> tuple[int, int | None]:
        """Indices of the atom and the argument whose cotangent is clipped.

        The second is None for the cotangent of the atom itself.
        """
        return (self.atom, None) if self.beside is None else self.beside.place

    def scores(self, form: NormalForm) -> int:
        """Return the number of scores of a record, which are its row of entries in the product."""
        shape = form.atoms[self.atom].shape
        return 1 if len(shape) < 2 else shape[0 if self.turned else 1]

    def scaled(self, lengths: Array, rows: Array) -> Array:
        """Return the cotangents of records, scaled down if a contribution exceeds `bound`.

        Infinite and undefined cotangents become 0.

        Parameters
        ----------
        lengths : ndarray, shape (..., records)
            l2 norms of the records.
        rows : ndarray, shape (..., records, scores of a record)
            Cotangents of the product ``L @ Z(x)``, one row per record.
        """
        # Factor by factor: the product of three factors could overflow or underflow.
        steep = row_lengths(rows)
        with np.errstate(all="ignore"):
            share = self.share(lengths, steep)
            # Rows that are infinite or undefined become 0 below.
            share = _with_all_digits(np.minimum(share, 1.0))
            out = share[..., None] * rows
        usable = np.isfinite(steep)
        return out if usable.all() else np.where(usable[..., None], out, 0.0)

    def share(self, lengths: Array, steep: Array) -> Array:
        """Return the ratio of the clipping bound `bound` to each record's contribution.

        Contributions with a ratio below 1 are clipped.

        Parameters
        ----------
        lengths : ndarray, shape (..., rows)
            l2 norms of the records.
        steep : ndarray, shape (..., rows)
            l2 norms of the records' cotangents.
        """
        share = _with_all_digits(self.bound / steep)
        if self.beside is None:
            return _with_all_digits(share / lengths) / self.factor
        return share / self.beside.joined(lengths * self.factor)


def _with_all_digits(share: Array) -> Array:
    """Return the ratios of `Clip.share`, with 0 in place of NaN and of subnormal numbers.

    Subnormal numbers may be rounded up by a factor of up to 2, so the clip would exceed its bound.
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
    """Normal form of an agent's objective f(x; d), to be minimized over x, for private data d."""

    n: int  # length of the agent's vector
    private: tuple[PrivateSpec, ...]  # the private parameters d_k in index order
    atoms: tuple[Atom, ...]  # in order of evaluation
    root: Combination  # the objective's value, of size one

    @property
    def data_size(self) -> int:
        """Number of entries of all private parameters of the objective together."""
        return sum(spec.size for spec in self.private)

    @functools.cached_property
    def factors(self) -> frozenset[int]:
        """Indices of private matrices that may be sparse, since they only multiply variables."""
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
        """Return whether a combination consists of one whole private matrix."""
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
        """Return the objective with the private data of one agent or several inserted.

        See `Evaluator` for the parameters.
        """
        return Evaluator(self, data, clips, limited=limited)

    def at_zero(self, clips: Sequence[Clip] = ()) -> Evaluator:
        """Return the public objective f(.; 0), with zeros in place of all private data.

        Records of zeros may have contributions as well, such as those by an intercept, which
        `clips` shorten.
        """
        return self._at_zero(clips) if clips else derived_once(NormalForm._at_zero)(self)

    def _at_zero(self, clips: Sequence[Clip] = ()) -> Evaluator:
        return self.bind([zeros(spec.size) for spec in self.private], clips)

    def at_labels(self, sign: float) -> Evaluator | None:
        """Return the public objective for synthetic records; None if some data are not records.

        All labels of a record are equal numbers, of the largest l2 norm. Features, which are data
        in matrix products, are zero: they can be large, and have no effect at the initial point 0.

        Parameters
        ----------
        sign : float
            Sign of the entries without a declared one: 1 or -1.
        """
        data = self.filled(sign, features=0.0)
        return None if data is None else self.bind(data)

    def filled(self, labels: float, features: float) -> list[Array] | None:
        """Return made-up data: records with equal entries, of the largest norm times a factor.

        Features are data in matrix products, and all other data are labels. The result is None if
        some private data are no records.

        Parameters
        ----------
        labels, features : float
            Factors for labels and features. A declared sign replaces the factor's sign.
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
        """Return the form for private data with other names; all derived numbers are shared.

        Parameters
        ----------
        private : sequence of PrivateSpec
            Declarations that differ from the form's own only in names and record labels.
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
        """Return the store of results that `derived_once` keeps, by function."""
        # Plans need these public numbers in many places, and thousands of agents that differ only
        # in names share them.
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {field_.name: getattr(self, field_.name) for field_ in fields(self)}

    def digest(self) -> bytes:
        """Return a hash of the objective as a function of x and d, without values of d."""
        digest = hashlib.sha256(repr((self.n, [s.shape for s in self.private])).encode())
        for atom in self.atoms:
            digest.update(repr((atom.rule.name, atom.data, atom.shape)).encode())
            for argument in atom.args:
                digest.update(digest_of(argument))
        digest.update(digest_of(self.root))
        return digest.digest()

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Indices of atoms whose values a gradient reads; outermost atoms are often not read."""
        by_value = {j for j, atom in enumerate(self.atoms) if atom.by_value}
        return frozenset(by_value | {j for a in self.atoms for u in a.args for j, _ in u.terms})

    def reach(self, atom: Atom) -> tuple[bool, frozenset[int]]:
        """Return whether an atom depends on x, and the indices of the data that it reads."""
        on_x, on_d = False, frozenset[int]()
        for arg in atom.args:
            on_x |= arg.F is not None
            on_d |= {k for k, _ in arg.G}
            for j, _ in arg.terms:
                inner_x, inner_d = self.reach(self.atoms[j])
                on_x, on_d = on_x or inner_x, on_d | inner_d
        return on_x, on_d


def derived_once(function: Callable[[NormalForm], T]) -> Callable[[NormalForm], T]:
    """Return a function of a form with results stored for all forms that differ in names only."""

    @functools.wraps(function)
    def derived(form: NormalForm) -> T:
        results = form.derived
        if function not in results:
            results[function] = function(form)
        return results[function]

    return derived


Limit = Callable[[Array], Array] | None


class Evaluator(BehindTheDoor):
    """Values and (sub)gradients of an objective with its data inserted, for one agent or several.

    Several agents share one form and have data of their own. Each agent's results are bitwise equal
    to an evaluation of this agent alone. Data are of shape (size,) or (agents, size). Points are of
    shape (n,), or (agents, n) for a point of each agent, or (points, n) for points of one agent.

    An evaluator holds private data (unless made by `NormalForm.at_zero` or `at_labels`): it stays
    within the trust boundary, and neither prints nor pickles.

    Parameters
    ----------
    form : NormalForm
    data : sequence of (ndarray of shape (size,) or (agents, size), csr_array or SparseMatrices)
        One flat column-major array per private parameter and agent. Data in `NormalForm.factors`
        may be sparse. `trailing.of_all` joins the data of several agents.
    clips : sequence of Clip
    limited : bool
        Whether infinite intermediate values become the largest number, and undefined ones 0. Then
        one record cannot affect the contributions of other records.
    cut : callable, optional
        Function from the form's order of evaluation to one by blocks of rows, with the clips
        inserted; see `dpcvx.model.row_blocks`.
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
        """Return initial values of the backward pass.

        These are the gradient of the root's affine part and the cotangents of all atoms.
        """
        out = np.zeros(self._form.n)
        cotangents: list[Array | None] = [None] * len(self._steps)
        self._root.backward(np.ones(1), out, cotangents)
        return out, [None if g is None else folded(g) for g in cotangents]

    def inserted(self) -> NormalForm:
        """Return one agent's objective with its data as constants, as private as the data."""
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
        """Return the objective's values f(x; d).

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
        """Return a (sub)gradient of the objective f(.; d) at x.

        `dpcvx.model.atoms` states the subgradients at kinks.

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
        """Return the gradient of a multiple of f with clipped records, and the number of these.

        Parameters
        ----------
        x : ndarray, shape (n,)
            Point of one agent.
        times : float
            Factor of f; the bounds of the clips are not multiplied.
        """
        exceeded: list[int] = []

        def look(clipped: Clipped, g: Array) -> None:
            exceeded.append(clipped.exceeded(g))

        with np.errstate(all="ignore"):
            return self._backward(x, times, look), sum(exceeded)

    def _backward(self, x: Array, times: float = 1.0, look: Look | None = None) -> Array:
        lead = np.broadcast_shapes(self._lead, x.shape[:-1])
        out = np.tile(self._start, (*lead, 1)) if lead else self._start.copy()
        # Points of zeros, such as most initial points, need no products with matrices.
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
    """Return an array with the largest float in place of infinite entries, and 0 for NaN."""
    if is_blank(v):
        return v
    # A finite sum of squares proves all numbers finite, twice as fast as a test of each. Finite
    # numbers are returned without a copy.
    if v.flags.forc and math.isfinite((flat := v.ravel(order="K")).dot(flat)):
        return v
    return v if np.isfinite(v).all() else np.nan_to_num(v)


class Clipped(BehindTheDoor):
    """A `Clip` together with the norms of the records whose contributions it limits.

    Parameters
    ----------
    clip : Clip
    records : ndarray of shape (..., rows, columns), csr_array, or SparseMatrices
        Factor of the product that contains the records.
    """

    __slots__ = ("_clip", "_lengths")

    def __init__(self, clip: Clip, records: Any) -> None:
        self._clip = clip
        self._lengths = row_lengths(swapped(records) if clip.turned else records)

    @classmethod
    def of(cls, clip: Clip, steps: Sequence[AtomStep], limit: Limit) -> Clipped:
        """Return the clip with the records in its product, which atoms may compute from data.

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
        """Return how many records have a contribution above the clip's bound.

        `g` is the cotangent of the product.
        """
        steep = row_lengths(self.rows(g))
        with np.errstate(all="ignore"):
            share = self._clip.share(self._lengths, steep)
        return int(np.count_nonzero(share < 1))

    def rows(self, g: Array) -> Array:
        """Return the flat cotangent g as rows, one per record, shape (records, columns)."""
        count = self._lengths.shape[-1]
        return g.reshape(count, -1) if self._clip.turned else g.reshape(-1, count).T

    def __call__(self, g: Array) -> Array:
        """Return the flat cotangent g, with its rows scaled down for too large contributions."""
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
    """An atom with data inserted: its rule, arguments and clips.

    Attributes
    ----------
    j : int
        Index of the atom among all atoms of the normal form.
    rule : Fitted
    arguments : sequence of Argument
    clips : dict of (int or None) to Clipped
        Clips by index of the argument whose cotangent they scale; None: the atom's own cotangent.
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
        """Return the evaluation step of atom j, with the private data inserted."""
        rule = atom.rule.fitted(atom.data, [u.shape for u in atom.args], atom.shape)
        pairs = zip(atom.args, rule.layouts, strict=True)
        return cls(j, rule, [Argument.of(u, data, limit, layout) for u, layout in pairs])


@dataclass(frozen=True, eq=False, repr=False)
class Order(BehindTheDoor):
    """Order that a gradient evaluates atoms in, with blocks of rows in between.

    Attributes
    ----------
    steps : sequence of AtomStep
        Steps evaluated forward before all blocks, and backward after them.
    weights : sequence of (ndarray or None)
        Initial cotangents of all atoms.
    read : container of int
        Indices of atoms whose values are read.
    blocks : sequence of (sequence of (int, ndarray or None), sequence of AtomStep)
        Blocks of rows, each evaluated forward and backward in turn: initial cotangents by atom
        index, and steps.
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
    """Evaluate atoms in order: return their arguments, and store their values in `values`.

    Parameters
    ----------
    steps : sequence of AtomStep
    x : ndarray, shape (..., n), or None for zeros
    values : list of ndarray
        Flat values of all atoms, changed in place; the values that the steps read are known.
    read : container of int
        Indices of the atoms whose values are stored.
    limit : callable or None
        Function applied to every intermediate value.
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
    """Add the atoms' contributions to gradients, and to cotangents of atoms that they read.

    Parameters
    ----------
    steps : sequence of AtomStep
    inputs : sequence of sequence of ndarray
        Inputs that `forward` returned.
    values : sequence of ndarray
        Values of all atoms.
    out : ndarray, shape (..., n)
        Gradients, changed in place.
    cotangents : list of (ndarray or None)
        Cotangents of all atoms, changed in place; the cotangents of the steps are complete.
    limit : callable or None
    look : callable, optional
        Function called with every clip and the flat cotangent before it is scaled.
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


# Function called with a clip and the cotangent that it is about to scale.
Look = Callable[[Clipped, Array], None]


class Argument(BehindTheDoor):
    """Argument of an atom: a combination with data inserted, in the layout of the atom's rule.

    Parameters
    ----------
    F : matrix of shape (m, n), or None
    terms : sequence of (atom index, matrix)
        Atoms in the combination, by index, and their matrices M_j, perhaps in the form of `quick`.
    offset : ndarray, csr_array or SparseMatrices
        Sum of the constant part and all data terms: flat, or a matrix if the data are sparse.
    limit : callable or None
        Function applied to the values.
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
        """Return the argument of an atom for a combination with data inserted."""
        sparse = [data[k] for k, _ in u.G if not isinstance(data[k], np.ndarray)]
        if sparse:  # one of `NormalForm.factors`: finite, and nothing is added to it
            return cls(u.F, u.terms, sparse[0], limit, layout)
        offsets = [u.h] if has_entries(u.h) or not u.G else []
        offsets += [times(G, as_array(data[k])) for k, G in u.G]
        # A single part stays what it is: data of records are not copied.
        with np.errstate(all="ignore"):
            offset = functools.reduce(np.add, offsets)
            return cls(u.F, u.terms, offset if limit is None else limit(offset), limit, layout)

    @property
    def terms(self) -> list[tuple[int, Matrix | Diagonal]]:
        """Indices of the atoms that the combination contains, with their matrices."""
        return [(j, M) for j, M, _ in self._terms]

    def __call__(self, x: Array | None, values: Sequence[Array]) -> Any:
        """Return the argument's value at x (None for zeros), given the values of all atoms."""
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
        """Add the pullback of the argument's cotangent g to gradient and atoms' cotangents."""
        if self._transposed is not None:
            out += times(self._transposed, g)
        for j, _, transposed in self._terms:
            part, others = times(transposed, g), cotangents[j]
            cotangents[j] = part if others is None else others + part


def digest_of(u: Combination) -> bytes:
    """Return a digest of a combination, equal for equal combinations."""
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
