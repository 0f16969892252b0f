r"""The model: every agent's records are private, all agents fit one x.

.. math::
    \min_x \sum_i f_i(x), \qquad
    f_i(x) = \frac1m \sum_s \log(1 + e^{-y_{is} x' z_{is}})
        + \sum_t \frac{\lambda \omega x_t^2}{1 + \omega x_t^2} + \frac\mu2 \|x\|^2

with mu = 0 in the paper. At :math:`\mu > \lambda \omega / 2` all f_i are strongly convex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

import dpcvx as dp
from dpcvx._arguments import finite, is_int, positive_finite

from ..labeled import Records, losses, slopes
from .errors import ClassificationError
from .penalty import Penalty

Floats = NDArray[np.float64]
# Norm of the gradient of the sum at a stationary point, per agent.
_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Classification:
    """The model over agents.

    Attributes
    ----------
    x : cp.Variable, shape (d,)
        Shared by all; starts at 0.
    each : int
        m: public number of records of an agent.
    bound : float
        Longer rows of features are clipped to it.
    penalty : Penalty
    ridge : float
        mu.
    problem : dp.Problem
        Agents ``agent 0``, ...; of agent k, ``features k`` and ``labels k`` are private, row by row
        parts of one record, which is replaced. The data are given to ``plan.run``.
    """

    x: cp.Variable
    each: int
    bound: float
    penalty: Penalty
    ridge: float
    problem: dp.Problem

    @property
    def agents(self) -> int:
        """N."""
        return len(self.problem.agents)

    @property
    def smoothness(self) -> float:
        """Smoothness constant of every f_i, for all admissible records. Public."""
        return self.bound**2 / 4 + self.penalty.smoothness + self.ridge

    @property
    def sensitivity(self) -> float:
        """Bound in l2, at every x, on the effect of a replaced record on f_i's gradient. Public."""
        return 2 * self.bound / self.each

    @property
    def strong_convexity(self) -> float:
        """A modulus of strong convexity of every f_i, 0 if it may not be convex. Public."""
        return max(0.0, self.ridge - self.penalty.concavity)


def classification(
    agents: int = 50,
    each: int = 200,
    size: int = 10,
    *,
    bound: float,
    penalty: Penalty | None = None,
    ridge: float = 0.0,
) -> Classification:
    """State the model; no data are needed for that.

    Parameters
    ----------
    agents, each, size : int
        N, m and d.
    bound : float
        Public bound of the l2 norm of a row of features.
    penalty : Penalty, optional
        The paper's if omitted.
    ridge : float
        mu, at least 0.

    Raises
    ------
    ClassificationError
        If a number is outside its range.
    """
    for name, value in (("agents", agents), ("each", each), ("size", size)):
        if not is_int(value, 1):
            raise ClassificationError(f"{name}={value!r} must be a whole number of at least 1.")
    if not positive_finite(bound) or not finite(ridge) or ridge < 0:
        raise ClassificationError(
            f"bound={bound!r} and ridge={ridge!r} must be finite, the bound positive and the ridge "
            "at least 0. The bound of made records is their `Shares.bound`."
        )
    penalty = penalty or Penalty()
    x = cp.Variable(size, name="x")
    row = dp.Rows(bound, relation="replace_one", clip_rows=True)
    sign = dp.Rows(1.0, relation="replace_one", clip_rows=True)
    members = []
    for k in range(agents):
        Z = dp.Private(shape=(each, size), name=f"features {k}", adjacency=row)
        y = dp.Private(shape=(each,), name=f"labels {k}", adjacency=sign)
        cost = cp.sum(cp.logistic(-cp.multiply(y, Z @ x))) / each + penalty.of(x)
        if ridge > 0:
            cost += ridge / 2 * cp.sum_squares(x)
        members.append(dp.Agent(cp.Minimize(cost), name=f"agent {k}"))
    return Classification(x, each, bound, penalty, ridge, dp.Problem(members))


def objective(study: Classification, parts: Sequence[Records], X: Floats) -> Floats:
    """Sum of all agents' f_i at points ``X[..., :]``. Not private."""
    total = len(parts) * (study.penalty.value(X) + study.ridge / 2 * (X**2).sum(axis=-1))
    return total + losses(parts, X)


def gradients(study: Classification, parts: Sequence[Records], X: Floats) -> Floats:
    """Gradient of f_i at ``X[..., i, :]``, shape (..., N, d). Not private."""
    return study.penalty.gradient(X) + study.ridge * X + slopes(parts, X)


def hessian(study: Classification, parts: Sequence[Records], x: Floats) -> Floats:
    """Hessian of the sum of all f_i at x, shape (d, d). Not private."""
    total = len(parts) * np.diag(study.penalty.curvature(x) + study.ridge)
    for part in parts:
        Z = part.signed
        p = expit(-Z @ x)
        total = total + (Z.T * (p * (1 - p))) @ Z / part.count
    return total


def stationary_point(
    study: Classification, parts: Sequence[Records], start: Floats | None = None
) -> Floats:
    """A local minimizer of the sum, found in one place. Not private.

    Parameters
    ----------
    study : Classification
    parts : sequence of Records
    start : ndarray, shape (d,), optional
        0 if omitted. With strongly convex f_i the result does not depend on it.

    Returns
    -------
    ndarray, shape (d,)
        The norm of the gradient of the sum is at most 1e-12 per agent; the Hessian there is
        positive definite.

    Raises
    ------
    ClassificationError
        If there are no parts, or the search ends elsewhere.
    """
    if not parts:
        raise ClassificationError("There are no parts to fit: give every agent's records.")
    N = len(parts)

    def slope(x: Floats) -> Floats:
        return gradients(study, parts, np.tile(x, (N, 1))).sum(axis=0) / N

    def bend(x: Floats) -> Floats:
        return hessian(study, parts, x) / N

    x = minimize(
        lambda x: objective(study, parts, x) / N,
        np.zeros(study.x.size) if start is None else np.asarray(start, dtype=np.float64),
        jac=slope,
        hess=bend,
        method="trust-exact",
        options={"gtol": 1e-6},
    ).x
    for _ in range(20):  # Newton's method, to rounding errors
        if np.linalg.norm(slope(x)) <= _TOLERANCE:
            break
        x = x - np.linalg.solve(bend(x), slope(x))
    if not (np.linalg.norm(slope(x)) <= _TOLERANCE and np.linalg.eigvalsh(bend(x))[0] > 0):
        raise ClassificationError(
            "The search for a stationary point ended where the gradient does not vanish, or where "
            "the objective is not convex. If a plane separates the labels there is no minimizer "
            "nearby: add a ridge, draw other records, or start elsewhere."
        )
    return x
