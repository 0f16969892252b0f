r"""Problems of agents with quadratic objectives, private centers and any curvatures.

.. math:: f_i(x) = \tfrac12 (x - c_i)' A_i (x - c_i)

The sum may be strongly convex where some :math:`A_i` are not definite.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratics:
    """The quadratics as a problem of agents.

    Attributes
    ----------
    A : ndarray, shape (N, d, d)
        Public Hessians A_i.
    problem : dp.Problem
        Problem of the agents ``agent 0``, ...; ``center k`` is private. The data are given to
        ``plan.run``.
    """

    A: Floats
    problem: dp.Problem

    def gradients(self, centers: Floats, X: Floats) -> Floats:
        """Return the gradient of every f_i at ``X[..., i, :]``, shape (..., N, d). Not private."""
        return np.einsum("nij,...nj->...ni", self.A, X - centers)

    def gap(self, centers: Floats, X: Floats) -> Floats:
        """Return the gap (31) of the paper at points ``X[..., i, :]``. Not private."""
        apart = ((X - X.mean(axis=-2, keepdims=True)) ** 2).sum(axis=(-2, -1))
        total = self.gradients(centers, X).sum(axis=-2)
        return apart + (total**2).sum(axis=-1) / len(self.A)


def quadratics(A: Floats) -> Quadratics:
    """Build the problem for symmetric matrices A_i, shape (N, d, d)."""
    x = cp.Variable(A.shape[1], name="x")
    near = dp.Within(1.0, norm=2)
    members = []
    for k, own in enumerate(A):
        c = dp.Private(shape=x.shape, name=f"center {k}", adjacency=near)
        members.append(dp.Agent(cp.Minimize(cp.quad_form(x - c, own) / 2), name=f"agent {k}"))
    return Quadratics(A, dp.Problem(members))
