r"""Constraints that are compiled apart from an agent's set: between agents, and at unsafe corners.

*Between agents*: public linear equalities, such as ``A @ x + B @ y == c``.

*At the unsafe corner of a box that contains the private data*: any atom and cone. Margins of cone
programs need data that enter affinely. Corners need monotone atoms instead. So they also keep
constraints of geometric programs, and functions of the data, for the true data.

Let the data d lie in the box :math:`l \le d \le h`, and write a constraint as :math:`g(x, d, \dots,
d) \le 0`, with a separate argument for every place where the data stand. By cvxpy's rules for
the monotonicity of atoms, g is nondecreasing in some of these arguments and nonincreasing in the
others, for all data of the declared signs. Put h into the former and l into the latter. Then
:math:`g(x, d, \dots, d) \le g(x, h, \dots, l)` for every x. So whoever satisfies the constraint at
the corner satisfies it for the true data, however the decision x depends on the release.

The data were released as :math:`\tilde d = d + \xi`. The box :math:`\tilde d \pm t` contains the
data, except with the probability that some noise :math:`\xi_k` exceeds its margin t_k on the side
that is used. Declared bounds contain the data with certainty, so the box ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from cvxpy.constraints.nonpos import Inequality
from numpy.typing import NDArray

from ..errors import ModelError
from .agent import private_in
from .canonical import affine_map, public_copy
from .layout import Layout, indexed, is_quotient
from .matrices import csr
from .private import Private
from .spec import PrivateSpec
from .structure import constants_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]
# Returns what replaces a part of an expression, at its largest or smallest value; None if nothing.
Replace = Callable[[Any, bool], Any]
# Atoms that rise with nonnegative arguments, though they have values for all.
_POSITIVE = (cp.xexp, cp.cumprod, cp.pf_eigenvalue, cp.eye_minus_inv)


class _Unknown(Exception):
    """cvxpy knows no monotonicity of an atom in an argument with private data."""


@dataclass(frozen=True, eq=False)
class CornerConstraint:
    """A constraint with private data that holds at the unsafe corner of a box around the data."""

    what: str  # name in messages, such as "Constraint 0 of agent 'north'"
    position: int  # among the agent's constraints
    number: int  # cvxpy id of the user's constraint
    above: Index  # entries of the agent's data whose largest value the corner has
    below: Index  # entries whose smallest value it has


def corner_constraint(
    constraint: cp.Constraint, specs: Mapping[Private, PrivateSpec], position: int, owner: str
) -> CornerConstraint | None:
    """Return the entries of the data at a constraint's corner; None if cvxpy knows no corner.

    Parameters
    ----------
    constraint : cvxpy constraint
    specs : mapping of Private to PrivateSpec
        All private objects of the constraint's agent, in order.
    position : int
        Position of the constraint among the agent's constraints.
    owner : str
        Name of the agent.
    """
    used = private_in(constraint)
    if any(specs[p].psd or specs[p].is_complex for p in used):
        return None
    public = [p for p in constraint.parameters() if not isinstance(p, Private)]
    tree = public_copy(constraint, public)
    numbers: dict[int, Array] = {}
    first = 0
    for private, spec in specs.items():
        stored = csr(spec.unfolded()).indices  # of each entry of the data, column by column
        numbers[id(private)] = (first + stored.astype(float)).reshape(spec.shape, order="F")
        first += spec.size
    met: dict[bool, list[Array]] = {True: [], False: []}

    def noted(tree: Any, largest: bool) -> Any:
        leaf = indexed(tree)
        if id(leaf) not in numbers:
            return None
        chosen: Any = cp.Constant(numbers[id(leaf)])
        chosen = chosen if leaf is tree else tree.copy([chosen])
        met[largest].append(np.ravel(chosen.value))
        return tree

    try:
        _constraint_at(tree, set(numbers), noted)
    except _Unknown:
        return None
    above, below = (
        np.unique(np.concatenate([np.zeros(0), *met[side]])).astype(np.intp)
        for side in (True, False)
    )
    what = f"Constraint {position} of agent '{owner}'"
    return CornerConstraint(what, position, constraint.id, above, below)


def at_corner(
    constraint: cp.Constraint,
    data: Sequence[cp.Parameter],
    lower: Sequence[Array],
    upper: Sequence[Array],
) -> Inequality:
    """Return a constraint at the unsafe corner of a box.

    Parameters
    ----------
    constraint : cvxpy constraint
        A constraint for which `corner_constraint` found a corner.
    data : sequence of cvxpy.Parameter
        Parameters that stand for the data.
    lower, upper : sequence of ndarray
        Corners of the box, in the parameters' shapes.
    """
    ends = {
        id(p): (cp.Constant(low), cp.Constant(high))
        for p, low, high in zip(data, lower, upper, strict=True)
    }

    def end(tree: Any, largest: bool) -> Any:
        return ends[id(tree)][largest] if id(tree) in ends else None

    return _constraint_at(constraint, set(ends), end)


def _constraint_at(constraint: cp.Constraint, data: set[int], replace: Replace) -> Inequality:
    if not isinstance(constraint, Inequality):
        raise _Unknown
    left, right = constraint.args
    return Inequality(_moved(left, True, data, replace), _moved(right, False, data, replace))


def _moved(tree: Any, largest: bool, data: set[int], replace: Replace) -> Any:
    """Return an expression with data replaced so that it has its largest or smallest value.

    `data` are the Python ids of the parameters that stand for the data.
    """
    if not any(id(p) in data for p in tree.parameters()):
        return tree
    moved = replace(tree, largest)
    if moved is not None:
        return moved
    if any(id(p) in data for constant in constants_of(tree) for p in constant.parameters()):
        raise _Unknown
    arguments = []
    for k, argument in enumerate(tree.args):
        if not any(id(p) in data for p in argument.parameters()):
            arguments.append(argument)
            continue
        if not _within_domain(tree, k):
            raise _Unknown
        if tree.is_incr(k):
            arguments.append(_moved(argument, largest, data, replace))
        elif tree.is_decr(k):
            arguments.append(_moved(argument, not largest, data, replace))
        else:
            raise _Unknown
    return tree.copy(arguments)


def _within_domain(tree: Any, k: int) -> bool:
    """Return whether the monotonicity of an atom holds for all values of its argument k.

    A quotient jumps where the sign of its denominator changes. ``cp.power(d, 6)`` and similar atoms
    rise or fall on their domain only. cvxpy evaluates them outside of it, too.
    Concave atoms have no value there.
    """
    argument = tree.args[k]
    if is_quotient(tree):
        return k == 0 or argument.is_nonneg() or argument.is_nonpos()
    limited = isinstance(tree, _POSITIVE) or (tree.is_atom_convex() and tree._domain())
    return argument.is_nonneg() or not limited


# Pivots below this multiple of the largest number count as zero.
_DEPENDENT = 1e-10


@dataclass(frozen=True, eq=False)
class Coupling:
    """``sum_v A_v v = c`` over whole cvxpy variables v: the equalities that couple agents.

    Attributes
    ----------
    matrix : csr_array, shape (m, N)
    right : ndarray, shape (m,)
        Right-hand side c.
    starts : mapping
        First column of each variable, by cvxpy id.
    slack : csr_array, shape (m, N)
        Copy of `matrix` with zeros in all columns but those of slack variables of inequalities.
    """

    matrix: sp.csr_array
    right: Array
    starts: Mapping[int, int]
    slack: sp.csr_array

    def violation(self, values: Array) -> float:
        """Return the largest violation of the user's coupling constraints, without slack variables.

        Parameters
        ----------
        values : ndarray, shape (N,)
            Values of the variables, one after the other.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # values of a run that diverged
            gap = (self.matrix - self.slack) @ values - self.right
        relaxed = np.diff(sp.csr_array(self.slack).indptr) > 0
        return float(np.max(np.where(relaxed, gap, np.abs(gap)), initial=0.0))

    def of(self, layout: Layout) -> sp.csr_array:
        """Return the coupling matrix's columns for the components of an agent's vector, (m, n)."""
        return self._picked(self.matrix, layout)

    def slacks_of(self, layout: Layout) -> NDArray[np.intp]:
        """Return the positions of slack variables in an agent's vector."""
        return np.unique(self._picked(self.slack, layout).indices)

    def _picked(self, matrix: sp.csr_array, layout: Layout) -> sp.csr_array:
        n = layout.size
        rows, columns = [], []
        for piece in layout.pieces:
            if piece.variable in self.starts:
                rows.append(self.starts[piece.variable] + piece.entries)
                columns.append(piece.offset + np.arange(piece.entries.size))
        if not rows:
            return sp.csr_array((self.right.size, n))
        i, j = np.concatenate(rows), np.concatenate(columns)
        picked = sp.csr_array((np.ones(i.size), (i, j)), shape=(matrix.shape[1], n))
        return sp.csr_array(matrix @ picked)


def coupling_of(
    constraints: Sequence[cp.Constraint], slacks: Sequence[cp.Variable] = ()
) -> Coupling | None:
    """Return the matrices of cvxpy equalities; None if there is no equality.

    Parameters
    ----------
    constraints : sequence of cvxpy constraints
    slacks : sequence of cvxpy.Variable
        Slack variables of inequalities.

    Raises
    ------
    ModelError
        If a public parameter has no value.
    """
    if not constraints:
        return None
    variables = list({v.id: v for c in constraints for v in c.variables()}.values())
    # Signs and bounds of variables are their agents' constraints: they would add rows.
    plain = {id(v): cp.Variable(v.shape) for v in variables}
    copies = [public_copy(c, c.parameters()).expr.tree_copy(plain) for c in constraints]
    maps = [affine_map(expression, list(plain.values())) for expression in copies]
    starts = np.cumsum([0, *(v.size for v in variables)])
    matrix = sp.csr_array(sp.vstack([M for M, _ in maps]))
    added = {s.id for s in slacks}
    is_slack = np.concatenate([np.full(v.size, float(v.id in added)) for v in variables])
    slack = sp.csr_array(matrix @ sp.diags_array(is_slack))
    slack.eliminate_zeros()
    return Coupling(
        matrix,
        -np.concatenate([offset for _, offset in maps]),
        {v.id: int(start) for v, start in zip(variables, starts, strict=False)},
        slack,
    )


@dataclass(frozen=True, eq=False)
class Eliminated:
    """Equalities ``A x + B y = c`` after Gaussian elimination of A.

    See Chan, Xie and Zhao, Remark 3.4.

    Up to the order of its columns A is [I, D]. The rows without x, ``B_alone y = c_alone``,
    constrain y alone.
    """

    A: Array  # shape (r, n)
    B: Array  # shape (r, l)
    c: Array  # shape (r,)
    B_alone: Array  # shape (s, l)
    c_alone: Array  # shape (s,)


def eliminate(A: Array, B: Array, c: Array) -> Eliminated:
    """Apply Gaussian elimination to ``[A, B, c]``; see `Eliminated` for the result.

    Rows are kept if A already has the form [I, D] there. Otherwise the columns that become the
    identity are chosen by pivoting, which keeps D small.

    Raises
    ------
    ModelError
        If rows contradict each other.
    """
    n = A.shape[1]
    largest = float(np.abs(np.column_stack([A, B, c])).max())
    alone_in_row = _with_columns_of_their_own(A)
    if np.all(alone_in_row | ~A.any(axis=1)):
        alone = _independent(B[~alone_in_row], c[~alone_in_row], B, largest)
        return Eliminated(A[alone_in_row], B[alone_in_row], c[alone_in_row], *alone)
    Q, R, order = la.qr(A, pivoting=True)
    pivots = np.abs(np.diag(R))
    rank = int(np.sum(pivots > _DEPENDENT * pivots.max(initial=0.0)))
    Q, R = np.asarray(Q), np.asarray(R)
    turned_B, turned_c = Q.T @ B, Q.T @ c
    head = R[:rank, :rank]
    sides = np.column_stack([R[:rank], turned_B[:rank], turned_c[:rank]])
    # LAPACK, which scipy before 1.14 calls in any case, refuses systems without unknowns.
    solved = la.solve_triangular(head, sides) if rank else sides
    reduced = np.zeros((rank, n))
    reduced[:, order] = solved[:, :n]
    reduced[:, order[:rank]] = np.eye(rank)
    alone = _independent(turned_B[rank:], turned_c[rank:], B, largest)
    return Eliminated(reduced, solved[:, n:-1], solved[:, -1], *alone)


def _with_columns_of_their_own(A: Array) -> NDArray[np.bool_]:
    """Return, for each row of A, whether some column is 1 in it and 0 in all other rows."""
    single = (A != 0).sum(axis=0) == 1
    return ((A == 1) & single).any(axis=1)


def _independent(rows: Array, c: Array, B: Array, largest: float) -> tuple[Array, Array]:
    """Return the equalities ``rows y = c``, without equalities that others imply.

    Parameters
    ----------
    rows, c : ndarray
    B : ndarray
        Matrix that the rows were computed from.
    largest : float
        Largest magnitude of the numbers that c was computed from.
    """
    if not c.size:
        return rows, c
    Q, R, _ = la.qr(rows, pivoting=True)
    Q, pivots = np.asarray(Q), np.abs(np.diag(R))
    rank = int(np.sum(pivots > _DEPENDENT * float(np.abs(B).max())))
    turned_rows, turned_c = Q.T @ rows, Q.T @ c
    if np.abs(turned_c[rank:]).max(initial=0.0) > _DEPENDENT * largest:
        raise ModelError(
            "The equalities in coupling= contradict each other: no values of the variables "
            "satisfy all of them. Look for an equality that occurs twice, with different "
            "right-hand sides."
        )
    return turned_rows[:rank], turned_c[:rank]
