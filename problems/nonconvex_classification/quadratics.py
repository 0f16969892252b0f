r"""Quadratics with private centres: a known minimiser, and curvatures at will.

.. math:: f_i(x) = \tfrac12 (x - c_i)' A_i (x - c_i), \qquad x^* = (\sum A_i)^{-1} \sum A_i c_i

With positive definite :math:`A_i` they are strongly convex. The sum may be so where some
:math:`A_i` are not: it meets the condition of Polyak and Lojasiewicz all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import finite, is_int, positive_finite

from .errors import ClassificationError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratics:
    """The model over agents.

    Attributes
    ----------
    x : cp.Variable, shape (d,)
        Shared by all; starts at 0.
    A : ndarray, shape (N, d, d)
        Public.
    radius : float
        How far a neighbouring centre may be, in l2.
    problem : dp.Problem
        Agents ``agent 0``, ...; ``centre k`` is private. The data are given to ``plan.run``.
    """

    x: cp.Variable
    A: Floats
    radius: float
    problem: dp.Problem

    @property
    def smoothness(self) -> float:
        """Largest smoothness constant of an agent."""
        return float(np.abs(np.linalg.eigvalsh(self.A)).max())

    @property
    def sensitivity(self) -> float:
        """How far a neighbouring centre moves the gradient, in l2, at every x."""
        return self.smoothness * self.radius

    @property
    def strong_convexity(self) -> float:
        """Modulus of strong convexity of the sum, 0 if it is not convex."""
        return max(0.0, float(np.linalg.eigvalsh(self.A.sum(axis=0))[0]))

    def minimiser(self, centres: Floats) -> Floats:
        """Of the sum, for centres of shape (N, d). Not private."""
        return np.linalg.solve(self.A.sum(axis=0), np.einsum("nij,nj->i", self.A, centres))

    def gradients(self, centres: Floats, X: Floats) -> Floats:
        """Gradient of f_i at ``X[..., i, :]``, shape (..., N, d). Not private."""
        return np.einsum("nij,...nj->...ni", self.A, X - centres)

    def gap(self, centres: Floats, X: Floats) -> Floats:
        """(31) of the paper at ``X[..., i, :]``. Not private."""
        apart = ((X - X.mean(axis=-2, keepdims=True)) ** 2).sum(axis=(-2, -1))
        total = self.gradients(centres, X).sum(axis=-2)
        return apart + (total**2).sum(axis=-1) / len(self.A)


def made_quadratics(
    agents: int, size: int, *, least: float = 0.5, most: float = 2.0, seed: int = 0
) -> tuple[Floats, Floats]:
    """Draw matrices with eigenvalues between `least` and `most`, which occur, and centres.

    Returns
    -------
    A : ndarray, shape (N, d, d)
    centres : ndarray, shape (N, d)

    Raises
    ------
    ClassificationError
        If a number is outside its range.
    """
    if not is_int(agents, 1) or not is_int(size, 2):
        raise ClassificationError(
            f"agents={agents!r} must be a whole number of at least 1, and size={size!r} of at "
            "least 2: both ends of the range occur among the eigenvalues."
        )
    if not (finite(least) and finite(most) and least <= most):
        raise ClassificationError(
            f"least={least!r} and most={most!r} must be finite numbers in this order."
        )
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(agents, size, size)))[0]
    values = np.linspace(least, most, size)
    A = np.einsum("nij,j,nkj->nik", Q, values, Q)
    return (A + A.transpose(0, 2, 1)) / 2, rng.normal(size=(agents, size))


def quadratics(A: Floats, radius: float = 1.0) -> Quadratics:
    """State the model.

    Parameters
    ----------
    A : ndarray, shape (N, d, d)
        Symmetric; need not be definite.
    radius : float
        Of the adjacency: how far a neighbouring centre may be, in l2.

    Raises
    ------
    ClassificationError
        If the matrices are not symmetric or the radius is not positive.
    """
    A = np.array(A, dtype=np.float64)
    if A.ndim != 3 or A.shape[1] != A.shape[2] or not np.isfinite(A).all():
        raise ClassificationError(
            f"Matrices of shape {A.shape} must be finite, one of d by d for every agent: (N, d, d)."
        )
    if not np.array_equal(A, A.transpose(0, 2, 1)):
        raise ClassificationError(
            "A matrix is not symmetric, and only the symmetric part would count. Write "
            "(A + A.transpose(0, 2, 1)) / 2."
        )
    if not positive_finite(radius):
        raise ClassificationError(f"radius={radius!r} must be a positive finite number.")
    A.flags.writeable = False
    x = cp.Variable(A.shape[1], name="x")
    near = dp.Within(radius, norm=2)
    members = []
    for k, own in enumerate(A):
        c = dp.Private(shape=x.shape, name=f"centre {k}", adjacency=near)
        members.append(dp.Agent(cp.Minimize(cp.quad_form(x - c, own) / 2), name=f"agent {k}"))
    return Quadratics(x, A, radius, dp.Problem(members))
