r"""A constraint with private data, as a cone program whose coefficients are affine in the data.

.. math:: A(d) \, y + s = b(d), \quad s \in K, \qquad
    A(d) = A + \sum_k d_k A_k, \quad b(d) = b + B d,

with y = (variables of the constraint, auxiliary ones). The constraint holds if and only if some
auxiliary values satisfy cvxpy's cone form of it. So a y that satisfies the cone form for the true
data also satisfies the constraint.

`Tightened` is such a constraint with public margins, for data that were released with noise.

The true data are :math:`d = \tilde d - \xi` with released data :math:`\tilde d` and noise
:math:`\xi`. The slack of row j is affine in the data: the true slack is the slack at the released
data minus :math:`v_j(y)' \xi` with :math:`v_j(y) = B_j - (A_{1,j} y, A_{2,j} y, \dots)`. If no data
multiply variables, v does not depend on the decision, and a number is subtracted from the row.
Otherwise the row has to hold for all noise in the ball :math:`\{N u : |u|_2 \le r\}`, so :math:`r
|N' v_j(y)|_2` is subtracted. For an inequality, the set may be the box :math:`|u|_\infty \le r`
instead. Then :math:`r |N' v_j(y)|_1` is subtracted, as the sum of variables that bound the
magnitudes. In a second-order cone, the margin of the first row also covers the effect of noise on
the other rows.

Exponential and power cones are monotone in some of their rows. A point of :math:`\{(x, y, z) : y
e^{x / y} \le z, y > 0\}` stays in it if x falls or z grows, and a point of :math:`\{(x, y, z) :
x^a y^{1 - a} \ge |z|, x, y \ge 0\}` if x or y grows. Each such row has a margin of its own, which
moves the row in the unsafe direction. The true slack differs in the safe direction only, so it lies
in the cone.

The slack of a semidefinite cone is a matrix, and noise moves it by :math:`\sum_k \xi_k V_k`. A
margin of t subtracts t D, for a positive definite D that is as large as the V_k are in every
direction. The true slack is then semidefinite if no eigenvalue of :math:`\sum_k \xi_k D^{-1/2} V_k
D^{-1/2}` exceeds t. If data multiply variables, D is the identity, and the Euclidean norm of all
entries of the V_k(y) together bounds these eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.constraints.zero import Equality, Zero
from numpy.typing import NDArray

from ..errors import PrivacyError
from ..guard import understood
from .adjacency import Rows
from .canonical import ConeData, cone_data_at, public_copy
from .layout import Layout, layout_of
from .private import Private
from .spec import PrivateSpec

Array = NDArray[np.float64]
Index = NDArray[np.intp]


# Rows in which a cone is monotone. Less slack is safer in row 0 of "exp", more slack in the others.
_MONOTONE = {"exp": {0, 2}, "power": {0, 1}}
# Least eigenvalue of the matrix that a margin of one subtracts, relative to its largest.
_FLAT = 1e-6


@dataclass(frozen=True, eq=False)
class ConstraintRows:
    """Rows of a cone program that hold or fail together: one inequality, or one cone.

    Attributes
    ----------
    first, size : int
        Index of the first row, and number of rows.
    bends : bool
        Whether private data multiply variables in these rows.
    """

    first: int
    size: int
    bends: bool

    @property
    def rows(self) -> Index:
        """Indices of these rows in the cone program."""
        return self.first + np.arange(self.size)


@dataclass(frozen=True, eq=False)
class PrivateConstraint:
    """Cone program ``A(d) y + s = b(d)`` of a constraint, affine in the private data d.

    The vector y has the constraint's variables and auxiliary ones, and s lies in cones. D is the
    total size of the agent's data.
    """

    what: str  # name in messages, such as "Constraint 0 of agent 'north'"
    layout: Layout  # layout of its variables, which are the first columns
    data: ConeData  # the cone form at zero data: m rows, N columns
    offsets: sp.csr_array  # shape (m, D); B
    slopes: sp.csr_array  # shape (m D, N); row ``j D + k`` is row j of :math:`A_k`
    parts: tuple[ConstraintRows, ...]  # the rows in which private data occur

    def at(self, d: Array) -> tuple[sp.csr_array, Array]:
        """Return the matrix A(d) and the right-hand side b(d) of the cone program for data d."""
        A = sp.csr_array(self.data.A)
        if self.slopes.nnz:
            A = sp.csr_array(A + sp.kron(sp.eye_array(A.shape[0]), d[None, :]) @ self.slopes)
        return A, self.data.b + self.offsets @ d

    def _kind(self, number: int) -> tuple[str, int]:
        """Return the type of the cone that contains part `number`, and its first row in there."""
        first = 0
        for kind, size in self.data.cones.blocks():
            if first <= self.parts[number].first < first + size:
                return kind, self.parts[number].first - first
            first += size
        raise AssertionError("parts are rows of cones")

    def order(self, number: int) -> int:
        """Return the matrix order of part `number` if it is a semidefinite cone; 0 for others."""
        size = self.parts[number].size
        return 0 if self._kind(number)[0] != "psd" else (math.isqrt(8 * size + 1) - 1) // 2

    def missable(self, number: int) -> Array:
        """Return the slack that a permitted violation of 1 adds to each row of a constraint part.

        Part `number` is one inequality or one cone.
        """
        if order := self.order(number):
            return triangle(np.eye(order))
        rows = np.zeros(self.parts[number].size)
        rows[0] = -1.0 if self._kind(number) == ("exp", 0) else 1.0  # see _MONOTONE
        return rows

    def margin(self, number: int) -> Array:
        """Return the slack that a margin of 1 subtracts from each row of a constraint part.

        Part `number` is one inequality or one cone.
        """
        if not self.order(number) or self.parts[number].bends:
            return self.missable(number)
        return triangle(self._spread(number))

    def _spread(self, number: int) -> Array:
        """Return the matrix that a margin of 1 subtracts from a semidefinite cone's slack.

        The matrix is zero in rows without data. The semidefinite cone is part `number`.
        """
        moved = matrices(self.offsets[self.parts[number].rows].toarray().T)
        wide = np.concatenate(moved, axis=1)
        met = np.any(wide != 0, axis=1)
        values, vectors = np.linalg.eigh(wide @ wide.T)
        sizes = np.sqrt(np.maximum(values, 0.0) / values[-1])
        spread = (vectors * sizes) @ vectors.T + _FLAT * np.eye(met.size)
        return np.where(met[:, None] & met, (spread + spread.T) / 2, 0.0)

    def standardized(self, number: int, image: Array) -> Array:
        """Return how noise moves the rows of a part, in units of the part's safety margin.

        Parameters
        ----------
        number : int
            Index of the part.
        image : ndarray, shape (rows, s)
            Change of the part's rows by each component of the noise.

        Returns
        -------
        ndarray, shape (rows, s)
            The image itself, except for semidefinite cones: there, a column that is the triangle of
            V becomes the triangle of ``D^(-1/2) V D^(-1/2)``, where D is the matrix that a margin
            of 1 subtracts.
        """
        if not self.order(number):
            return image
        spread = self._spread(number)
        met = np.diag(spread) > 0
        values, vectors = np.linalg.eigh(spread[np.ix_(met, met)])
        root = (vectors / np.sqrt(values)) @ vectors.T
        return triangle(root @ matrices(image.T)[:, met][:, :, met] @ root).T

    def moved(self, rows: Index) -> tuple[sp.csr_array, Array]:
        """Return the derivatives by the data of the slacks of some rows.

        For row j the derivative is ``v_j(y) = offset - slope y``, where y has N variables and
        auxiliary ones. There are q rows and D entries of data.

        Returns
        -------
        slope : csr_array, shape (q D, N)
        offset : ndarray, shape (q D,)
        """
        D = self.offsets.shape[1]
        chosen = (rows[:, None] * D + np.arange(D)).ravel()
        return self.slopes[chosen], self.offsets[rows].toarray().ravel()

    def multiplied(self) -> Index:
        """Return the indices of columns of the cone program that private data multiply."""
        return np.flatnonzero(np.diff(sp.csc_array(self.slopes).indptr))

    def entries(self, rows: Index) -> Index:
        """Return the indices of the entries of the data that occur in some rows."""
        D = self.offsets.shape[1]
        met = abs(self.offsets[rows]).sum(axis=0) > 0
        slope, _ = self.moved(rows)
        met |= (np.diff(slope.indptr) > 0).reshape(rows.size, D).any(axis=0)
        return np.flatnonzero(met)


def matrices(triangles: Array) -> Array:
    """Return symmetric matrices, shape (..., n, n), from their scaled upper triangles.

    These triangles are the rows of semidefinite cones.

    Parameters
    ----------
    triangles : ndarray, shape (..., n (n + 1) / 2)
        Upper triangles column by column, with off-diagonal entries times the square root of 2.
    """
    n = (math.isqrt(8 * triangles.shape[-1] + 1) - 1) // 2
    j, i = np.tril_indices(n)
    entries = triangles * np.where(i == j, 1.0, math.sqrt(0.5))
    full = np.zeros((*triangles.shape[:-1], n, n))
    full[..., i, j] = full[..., j, i] = entries
    return full


def triangle(full: Array) -> Array:
    """Return scaled upper triangles of symmetric matrices `full`: the inverse of `matrices`."""
    j, i = np.tril_indices(full.shape[-1])
    return full[..., i, j] * np.where(i == j, 1.0, math.sqrt(2))


def private_constraint(
    constraint: cp.Constraint, private: Sequence[Private], what: str, owner: str
) -> PrivateConstraint:
    """Compile a constraint with private data to its cone program; no data are read.

    Parameters
    ----------
    constraint : cvxpy constraint
    private : sequence of Private
        All private objects of the constraint's agent, in order.
    what : str
        Name of the constraint in messages, such as "Constraint 0 of agent 'north'".
    owner : str
        The agent's name.

    Raises
    ------
    ModelError
        If cvxpy cannot compile the constraint.
    PrivacyError
        If data do not occur affinely, or occur in an equality or a cone without a known margin.
    """
    layout = layout_of([constraint])
    by_id = {v.id: v for v in constraint.variables()}
    variables = [by_id[piece.variable] for piece in layout.pieces]
    names = {p.id for p in constraint.parameters()}
    used = [p for p in private if p.id in names]
    stand_ins = [_stand_in(p) for p in used]
    public = [p for p in constraint.parameters() if not isinstance(p, Private)]
    places = {id(p): q for p, q in zip(used, stand_ins, strict=True)}

    def compiled() -> tuple[list[ConeData], list[float]]:
        copy = public_copy(constraint, public)
        copy = copy.tree_copy({**places, **_running_sums(copy, places)})
        if not copy.is_dcp(dpp=True):
            raise _bent(what, used[0].spec.name)
        points, steps = _points(used)
        return list(cone_data_at(copy, stand_ins, points, variables, layout)), steps

    (base, *others), steps = understood(compiled, owner)
    m, N = base.A.shape
    *begins, D = np.cumsum([0, *(p.spec.size for p in private)]).tolist()
    starts = dict(zip((p.id for p in private), begins, strict=True))
    places_of = [starts[p.id] + k for p in used for k in range(p.spec.size)]
    offsets = sp.lil_array((m, D))
    slopes: list[sp.coo_array] = []
    A = sp.csr_array(base.A)
    for k, step, other in zip(places_of, steps, others, strict=True):
        moved = (other.b - base.b) * step
        for j in np.flatnonzero(moved):
            offsets[j, k] = moved[j]
        change = sp.coo_array((sp.csr_array(other.A) - A) * step)
        change.eliminate_zeros()
        if change.nnz:
            rows = change.row.astype(np.intp) * D + k
            slopes.append(sp.coo_array((change.data, (rows, change.col)), shape=(m * D, N)))
    slope = sp.csr_array((m * D, N))
    for matrix in slopes:
        slope = sp.csr_array(slope + matrix)
    offset = sp.csr_array(offsets)
    by_user = isinstance(constraint, (Equality, Zero))
    parts = _parts(base, offset, slope, what, used[0].spec.name, by_user)
    if not parts:
        raise PrivacyError(
            f"{what} contains private '{used[0].spec.name}', which cancels out of it or is "
            "multiplied by 0. Leave the data out of the constraint, which is then public."
        )
    return PrivateConstraint(what, layout, base, offset, slope, parts)


def _running_sums(tree: Any, places: Mapping[int, Any]) -> dict[int, Any]:
    """Return matrix products that replace running sums (``cp.cumsum``), by id of the sum.

    In its cone form, cvxpy writes an equality for every entry of a running sum. Equalities with
    private data are refused, and matrix products have none.

    Parameters
    ----------
    tree : cvxpy expression or constraint
    places : mapping of int to cvxpy expression
        Expressions that replace others, such as private data, by id.
    """
    sums: dict[int, Any] = {}
    for argument in tree.args:
        sums.update(_running_sums(argument, places))
    if isinstance(tree, cp.cumsum) and tree.args[0].ndim in (1, 2):
        summand, axis = tree.args[0].tree_copy({**places, **sums}), tree.get_data()[0]
        if axis == 0:
            sums[id(tree)] = np.tril(np.ones((summand.shape[0],) * 2)) @ summand
        elif axis == 1 and summand.ndim == 2:
            sums[id(tree)] = summand @ np.triu(np.ones((summand.shape[1],) * 2))
    return sums


def _stand_in(private: Private) -> cp.Parameter:
    """Return a public parameter with the sign and shape attributes of a private object."""
    signs = {name: bool(private.attributes[name]) for name in ("nonneg", "nonpos")}
    symmetric = private.spec.symmetric
    return cp.Parameter(private.shape, name=private.name(), symmetric=symmetric, **signs)


def _points(used: Sequence[Private]) -> tuple[Iterator[list[Array]], list[float]]:
    """Return data points: zeros, and unit vectors times 1 or -1; and these factors.

    A cone form that is affine in the data is determined by its values at these points.
    """
    specs = [p.spec for p in used]
    steps = [_sign(spec) for spec in specs for _ in range(spec.size)]

    def points() -> Iterator[list[Array]]:
        zeros = [np.zeros(spec.shape) for spec in specs]
        yield zeros
        for i, spec in enumerate(specs):
            for k in range(spec.size):
                flat = np.zeros(spec.size)
                flat[k] = _sign(spec)
                yield [spec.shaped(flat) if i == j else zero for j, zero in enumerate(zeros)]

    return points(), steps


def _sign(spec: PrivateSpec) -> float:
    return -1.0 if spec.sign == "nonpos" else 1.0


def _parts(
    data: ConeData,
    offsets: sp.csr_array,
    slopes: sp.csr_array,
    what: str,
    name: str,
    by_user: bool,
) -> tuple[ConstraintRows, ...]:
    """Return the rows of a cone program that contain private data, by cone.

    `offsets` and `slopes` are as in `PrivateConstraint`. `by_user` tells whether the user wrote an
    equality.
    """
    m, D = offsets.shape
    bends = (np.diff(slopes.indptr) > 0).reshape(m, D).any(axis=1)
    met = bends | (np.diff(offsets.indptr) > 0)
    parts, first = [], 0
    for kind, size in data.cones.blocks():
        rows = slice(first, first + size)
        if met[rows].any():
            if kind == "zero" and not by_user:
                raise PrivacyError(
                    f"{what} puts private '{name}' into a function that cvxpy writes with an "
                    "equality of its own, such as cp.huber. Write the function by linear "
                    "inequalities and norms. Or write constraints='released', so that the "
                    "constraint holds for the released data. dpcvx knows no margin for such an "
                    "equality."
                )
            if kind == "zero":
                raise equality(what, name)
            inside = [k for k in range(size) if met[first + k]]
            if kind in ("nonneg", "soc", "psd"):
                parts.append(ConstraintRows(first, size, bool(bends[rows].any())))
            elif bends[rows].any() or not _MONOTONE.get(kind, set()) >= set(inside):
                raise PrivacyError(
                    f"{what} puts private '{name}' into a cone of kind {kind}. Keep the data in "
                    "linear inequalities and norms: bound the function by a variable, such as t "
                    f"<= cp.log(x), and write t >= {name} in its place. dpcvx knows no margin for "
                    "that cone."
                )
            else:
                parts += [ConstraintRows(first + k, 1, False) for k in inside]
        first += size
    return tuple(parts)


def equality(what: str, name: str) -> PrivacyError:
    """Return the error for an equality constraint with private data.

    `what` names the constraint, and `name` the private object.
    """
    return PrivacyError(
        f"{what} is an equality with private '{name}', which a decision from noisy data cannot "
        "meet exactly for the true data. Write the variable that it defines as an expression, such "
        f"as p = B @ theta + {name} in place of p = cp.Variable(...): bounds of p then have "
        "margins. Or write constraints='released' in problem.plan(...), so that it holds for the "
        "released data; result.recourse(...) meets it for the owner. Or write an inequality with a "
        f"reserve that covers the rest, such as cp.sum(p) + reserve >= cp.sum({name}), and price "
        "the reserve in the objective. Or, if no other agent uses the variables, leave it to "
        "dp.Agent(..., recourse=[constraint])."
    )


def _bent(what: str, name: str) -> PrivacyError:
    return PrivacyError(
        f"{what} does not depend on private '{name}' affinely under cvxpy's rules for parameters "
        f"(DPP). Write data alone or times a variable, such as A @ x + B @ {name} <= c or {name} "
        "@ x <= c, without products or functions of data. Otherwise no margin is known that keeps "
        "the constraint."
    )


def check_readable(spec: PrivateSpec, what: str) -> None:
    """Refuse data without a proved margin: complex data, or data that reading changes.

    `what` names the constraint in the message.
    """
    if spec.is_complex:
        raise PrivacyError(
            f"{what} contains private '{spec.name}', which is complex. Write "
            "constraints='released', or pass real and imaginary part as two objects. Margins are "
            "proved for real data only."
        )
    if isinstance(spec.adjacency, Rows) and spec.adjacency.clip_rows:
        raise PrivacyError(
            f"{what} contains private '{spec.name}', whose rows are scaled down when they are too "
            "long. Drop clip_rows=True in dp.Rows(...), and declare a bound that all rows keep. "
            "Otherwise the constraint would hold for the scaled rows instead of your data."
        )
    if isinstance(spec.adjacency, Rows) and spec.adjacency.row_limit is not None:
        raise PrivacyError(
            f"{what} contains private '{spec.name}', whose rows beyond max_rows_per_person= of "
            "one person are set to zero. Write the constraint with public bounds or with data of "
            "dp.Within. Otherwise the constraint would hold for the shortened data instead of "
            "yours."
        )


@dataclass(frozen=True, eq=False)
class NoiseBall:
    """Set of noise vectors ``N u`` that a margin must cover: u lies in a ball or in a box."""

    radius: float  # bound on the l2 norm of u, or on each entry of u in a box
    noise: sp.csr_array  # shape (D, s); N, which maps standard noise to noise in the data
    box: bool = False  # whether u lies in a box; for inequalities only

    @property
    def length(self) -> float:
        """Return the largest l2 norm of u for noise ``N u`` in the set."""
        used = np.count_nonzero(np.diff(sp.csc_array(self.noise).indptr))
        return self.radius * (math.sqrt(used) if self.box else 1.0)


@dataclass(frozen=True, eq=False)
class Tightened:
    """A constraint of a problem with private data and safety margins, for data with noise.

    Without margins, it is the constraint at the released data. A plan chooses the margins.
    """

    constraint: PrivateConstraint
    agent: int  # position of the agent that has the constraint and its data
    columns: Index  # positions of the constraint's variables in the agent's vector
    # Margins by index of the part, for parts without data that multiply variables.
    margins: Mapping[int, float] = field(default_factory=dict)
    # Sets of noise by index of the part, for parts with data that multiply variables.
    balls: Mapping[int, NoiseBall] = field(default_factory=dict)
    price: float | None = None  # price per unit of slack in a part; None if no slack is allowed

    @property
    def firm(self) -> bool:
        """Return whether the constraint has safety margins and allows no violation."""
        return self.price is None and bool(self.margins or self.balls)

    @property
    def missable(self) -> slice:
        """Range of auxiliary columns that hold the permitted violation of each part."""
        first = self.constraint.data.q.size - self.constraint.data.n
        return slice(first, first + (0 if self.price is None else len(self.constraint.parts)))

    @property
    def auxiliary(self) -> int:
        """Number of columns of the cone program besides the constraint's variables."""
        boxes = sum(values.size for _, values in self._boxes(0).values())
        return self.missable.stop + len(self._bending_cones()) + boxes

    def at(self, d: Array) -> ConeData:
        """Return the constraint with its margins as a cone program at the released data d."""
        A, b = self.constraint.at(d)
        for number, margin in self.margins.items():
            b[self.constraint.parts[number].rows] -= self.constraint.margin(number) * margin
        return self._assembled(A, b)

    def directions(self, fixed: bool = False) -> ConeData | None:
        """Return a cone program with the recession directions that all released data share.

        The result is None if private data multiply variables: the directions then depend on data.
        With `fixed`, these variables change along no direction, so their factors do not matter.
        """
        if self.constraint.slopes.nnz and not fixed:
            return None
        A, b = self.constraint.at(np.zeros(self.constraint.offsets.shape[1]))
        return self._assembled(A, b)

    def _assembled(self, A: sp.csr_array, b: Array) -> ConeData:
        """Return the cone program with A and b, and with columns and cones for the margins.

        The program's rows are sorted by cone.
        """
        parts, cones = self.constraint.parts, self.constraint.data.cones
        m, N = A.shape
        missed = self.missable.stop - self.missable.start
        bending = {k: N + missed + i for i, k in enumerate(self._bending_cones())}
        width = self.constraint.data.n + self.auxiliary
        A = sp.csr_array(sp.hstack([A, sp.csr_array((m, width - N))]))
        # Permitted violation is added to the slack, and bounds on noise are subtracted from it.
        for k in range(missed):
            A = _with_column(A, parts[k], N + k, -self.constraint.missable(k))
        for k, column in bending.items():
            A = _with_column(A, parts[k], column, self.constraint.margin(k))
        boxes, first = self._boxes(width), N + missed + len(bending)
        magnitudes, bounded = [sp.csr_array((0, width))], [np.zeros(0)]
        for k, (rows, values) in boxes.items():
            columns = _columns(first, values.size, width)
            for column in range(first, first + values.size):
                A = _with_column(A, parts[k], column, np.ones(1))
            magnitudes += [-rows - columns, rows - columns]
            bounded += [-values, values]
            first += values.size
        balls = {k: ball for k, ball in self.balls.items() if k not in boxes}
        lifted = {parts[k].first: k for k in balls if k not in bending}
        start = cones.zero + cones.nonneg
        soc = start + sum(cones.soc)
        linear = [j for j in range(cones.zero, start) if j not in lifted]
        blocks = [
            A[: cones.zero],
            A[linear],
            -_columns(N, missed, width),
            *magnitudes,
            A[start:soc],
        ]
        right = [b[: cones.zero], b[linear], np.zeros(missed), *bounded, b[start:soc]]
        inequalities = len(linear) + missed + sum(values.size for values in bounded)
        sizes = list(cones.soc)
        for k, ball in balls.items():
            rows, values = self._image(k, ball, width)
            head, value = (
                (-_columns(bending[k], 1, width), 0.0)
                if k in bending
                else (A[[parts[k].first]], float(b[parts[k].first]))
            )
            blocks += [head, rows]
            right += [np.array([value]), values]
            sizes.append(1 + values.size)
        q = np.zeros(width)
        q[N : N + missed] = 0.0 if self.price is None else self.price
        return ConeData(
            P=sp.csc_array((width, width)),
            q=q,
            A=sp.csc_array(sp.vstack([*blocks, A[soc:]])),
            b=np.concatenate([*right, b[soc:]]),
            cones=replace(cones, nonneg=inequalities, soc=tuple(sizes)),
            n=self.constraint.data.n,
        )

    def _boxes(self, width: int) -> dict[int, tuple[sp.csr_array, Array]]:
        """Return the effect of noise on each part whose noise set is a box, as in `_image`.

        `width` is the number of columns of the program.
        """
        return {k: self._image(k, ball, width) for k, ball in self.balls.items() if ball.box}

    def _bending_cones(self) -> list[int]:
        return [k for k in self.balls if self.constraint.parts[k].size > 1]

    def _image(self, number: int, ball: NoiseBall, width: int) -> tuple[sp.csr_array, Array]:
        """Return A and b such that ``b - A y`` is the effect of noise on the rows of a part.

        The effect on row j is ``r N' v_j(y)``, with the ball's radius r and matrix N, and the
        derivative v_j of the row's slack by the data. A part is one inequality or cone.

        The l2 norm of all these rows bounds the effect of noise in the ball on a cone. If data are
        in the first row of a second-order cone and in others, Cauchy's inequality adds a factor of
        sqrt(2). For semidefinite cones the norm bounds the Frobenius norm of the matrix, and so its
        eigenvalues.
        """
        part = self.constraint.parts[number]
        slope, offset = self.constraint.moved(part.rows)
        turned = sp.kron(sp.eye_array(part.size), ball.radius * ball.noise.T)
        both = all(self.constraint.entries(rows).size for rows in (part.rows[:1], part.rows[1:]))
        second_order = not self.constraint.order(number)
        turned = sp.csr_array(turned) * (math.sqrt(2) if both and second_order else 1.0)
        rows, values = sp.csr_array(turned @ slope), np.asarray(turned @ offset)
        used = np.flatnonzero((np.diff(rows.indptr) > 0) | (values != 0))
        more = sp.csr_array((used.size, max(width - rows.shape[1], 0)))
        return sp.csr_array(sp.hstack([rows[used], more])), values[used]


def _columns(first: int, count: int, width: int) -> sp.csr_array:
    """Return the matrix that picks `count` of `width` columns, from column `first` on."""
    entries = np.ones(count), (np.arange(count), first + np.arange(count))
    return sp.csr_array(entries, shape=(count, width))


def _with_column(A: sp.csr_array, part: ConstraintRows, column: int, values: Array) -> sp.csr_array:
    """Return the matrix A with values added to one column, in the rows of a part."""
    entries = values, (part.rows, np.full(part.size, column))
    return sp.csr_array(A + sp.csr_array(entries, shape=A.shape))
