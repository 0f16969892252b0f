"""Public linear equalities between agents, such as ``A @ x + B @ y == c``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from .canonical import affine_map, public_copy
from .layout import Layout

Array = NDArray[np.float64]

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
