"""The blocks x and y of `dpcvx.GradientADMM`: their agents, their coupling, and the y step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ..errors import ModelError
from ..model.canonical import ConeData
from ..model.constraints import Eliminated, eliminate
from ..model.matrices import SLACK, round_down
from ..solvers.blocks import separable
from ..solvers.conic import ConicProgram, Outcome
from ..solvers.steps import Contraction
from .program import Program

Array = NDArray[np.float64]


class TwoBlocks:
    """Public parts of `GradientADMM`: the coupling ``A x + B y = c``, and its x and y steps.

    Attributes
    ----------
    users : tuple of int
        Positions of the agents that hold x.
    public : int
        Position of the agent that holds y.
    rows : Eliminated
        Coupling ``A x + B y = c``, reduced as in Remark 3.4 of Chan, Xie and Zhao.
    inverse : Contraction
        Map ``v -> (I + eta beta A'A)^-1 v`` with step size eta and penalty beta.
    exact : bool
        Whether the y step has a closed form.
    """

    users: tuple[int, ...]
    public: int

    def __init__(self, program: Program, beta: float, eta: float) -> None:
        self.users, self.public = blocks_of(program)
        holder, other = program.agents[self.users[0]], program.agents[self.public]
        assert program.coupling is not None and other.exact is not None
        self.rows: Eliminated = eliminated(program)
        A, B = self.rows.A, self.rows.B
        stretched = np.eye(holder.n) + eta * beta * A.T @ A
        factor = la.cho_factor(stretched)
        columns = np.abs(la.cho_solve(factor, np.eye(holder.n))).sum(axis=0)
        eigenvalues = la.eigvalsh(stretched)
        least = max(1.0, round_down(float(eigenvalues[0]), float(eigenvalues[-1])))
        self.inverse: Contraction = Contraction(
            partial(la.cho_solve, factor), float(columns.max()) * SLACK, 1.0 / least
        )
        squares = B.T @ B
        form = separable(other.exact)
        diagonal = np.diag(squares)
        apart = not (squares - np.diag(diagonal)).any() and not self.rows.c_alone.size
        self.exact: bool = (
            form is not None
            and apart
            # A user can declare a concave square as convex to cvxpy.
            and bool((form.p >= 0).all() and (form.p + beta * diagonal > 0).all())
        )
        self._beta = beta
        self._form, self._curvature = form, beta * diagonal
        self._conic = (
            None if self.exact else ConicProgram(_with_penalty(other.exact, self.rows, beta))
        )

    @property
    def convexity(self) -> float:
        """Strong convexity of the objective g(y); 0 if g is not a sum over single entries of y."""
        return 0.0 if self._form is None else max(0.0, float(self._form.p.min()))

    def feasible(self, x: Array) -> Array:
        """Return the y within its bounds that minimizes ``||A x + B y - c||``."""
        assert self._form is not None
        A, B, zero = self.rows.A, self.rows.B, np.zeros(self.rows.B.shape[1])
        nearest = replace(self._form, p=zero, q=zero, low=zero, high=zero)
        squares = np.sum(B * B, axis=0)
        return nearest.minimize(np.where(squares > 0, squares, 1.0), B.T @ (A @ x - self.rows.c))

    def y(self, x: Array, lam: Array, before: Array) -> tuple[Array, Outcome]:
        """Return the y that minimizes the augmented Lagrangian, and the outcome.

        Return `before`, the previous y, if the minimization fails. `lam` has the multipliers.
        """
        rows, beta = self.rows, self._beta
        slope = rows.B.T @ (beta * (rows.A @ x - rows.c) - lam)
        if self._conic is None:
            assert self._form is not None
            return self._form.minimize(self._curvature, slope), Outcome.SOLVED
        answer = self._conic.solve(np.zeros(before.size), slope, before)
        return (before if answer.x is None else answer.x), answer.outcome


def blocks_of(program: Program) -> tuple[tuple[int, ...], int]:
    """Return the positions of the agents that hold x (users), and of the public agent with y.

    Raises
    ------
    ModelError
        If the problem does not have these two blocks.
    """
    public = [k for k, local in enumerate(program.agents) if not local.form.private]
    users = tuple(k for k, local in enumerate(program.agents) if local.form.private)
    if len(public) != 1 or not users:
        raise ModelError(
            "dp.GradientADMM needs one agent without private data, and one or more users with "
            f"private data. This problem has {len(public)} agents without private data and "
            f"{len(users)} with. Write dp.Problem([*users, dp.Agent(g)], coupling=[A @ x + B @ y "
            "== c]). The method solves min f(x) + g(y): the users hold f, and the public agent "
            "holds g."
        )
    first = program.agents[users[0]]
    for k in users:
        local = program.agents[k]
        if [(p.variable, p.entries.tolist()) for p in local.layout.pieces] != [
            (p.variable, p.entries.tolist()) for p in first.layout.pieces
        ]:
            raise ModelError(
                f"Agents '{first.name}' and '{local.name}' do not use the same variables in the "
                "same order. Write the terms of all users in the same order, with 0 @ x for a "
                "variable that does not occur. In dp.GradientADMM every user's objective is a "
                "function of all of x."
            )
        if local.rest is not None:
            raise ModelError(
                f"The objective of agent '{local.name}' has a term without a gradient. Move the "
                "term to the public agent, on y, with coupling=[x == y]. dp.GradientADMM takes no "
                "such term on x."
            )
        if local.constraints.A.shape[0]:
            raise ModelError(
                f"Agent '{local.name}' has constraints. Move them to the public agent, on y, with "
                "coupling=[x == y]. dp.GradientADMM takes no constraints on x."
            )
    variables = {p.variable for p in first.layout.pieces}
    both = [p.name for p in program.agents[public[0]].layout.pieces if p.variable in variables]
    if both:
        raise ModelError(
            f"The public agent '{program.agents[public[0]].name}' uses '{both[0]}', which the "
            "users hold. Give it a variable of its own, and tie the two: coupling=[x == y]."
        )
    return users, public[0]


def eliminated(program: Program) -> Eliminated:
    """Return the coupling ``A x + B y = c``, reduced as in Remark 3.4 of Chan, Xie and Zhao."""
    users, public = blocks_of(program)
    coupling = program.coupling
    assert coupling is not None
    A = coupling.of(program.agents[users[0]].layout).toarray()
    B = coupling.of(program.agents[public].layout).toarray()
    remaining = eliminate(A, B, coupling.right)
    if not remaining.c.size:
        raise ModelError(
            "coupling= does not contain the users' variables. Tie them to the public agent's "
            "variables, for example by coupling=[x == y]. Without that, users and public agent "
            "solve separate problems."
        )
    return remaining


def _with_penalty(data: ConeData, rows: Eliminated, beta: float) -> ConeData:
    """Return the cone program of the y step: g(y) in `data`, plus ``beta/2 ||B y||^2``.

    B is the matrix of y in the coupling `rows`. Rows of the coupling that contain y alone become
    constraints.
    """
    n, N = data.n, data.A.shape[1]
    squares = sp.block_diag([beta * rows.B.T @ rows.B, sp.csc_array((N - n, N - n))])
    alone = sp.hstack([sp.csc_array(rows.B_alone), sp.csc_array((rows.c_alone.size, N - n))])
    return replace(
        data,
        P=sp.csc_array(data.P + squares),
        A=sp.csc_array(sp.vstack([alone, data.A])),
        b=np.concatenate([rows.c_alone, data.b]),
        cones=replace(data.cones, zero=data.cones.zero + rows.c_alone.size),
    )
