r"""The model: agents with private records fit one classifier with weights x.

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
# Largest norm, per agent, of the sum's gradient at an accepted stationary point.
_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Classification:
    """The classification as a problem of agents.

    Attributes
    ----------
    x : cp.Variable, shape (d,)
        Weights that all agents share; starts at 0.
    each : int
        Public number of records per agent, m.
    bound : float
        Public bound of the l2 norm of a row of features; longer rows are clipped to it.
    penalty : Penalty
        The nonconvex penalty.
    ridge : float
        Weight mu of the ridge.
    problem : dp.Problem
        Problem of the agents ``agent 0``, .... Agent k's private data are ``features k`` and
        ``labels k``, whose rows belong together as records; neighboring data sets differ by
        replacing one record. The data are given to ``plan.run``.
    """

    x: cp.Variable
    each: int
    bound: float
    penalty: Penalty
    ridge: float
    problem: dp.Problem

    @property
    def agents(self) -> int:
        """The number of agents, N."""
        return len(self.problem.agents)

    @property
    def smoothness(self) -> float:
        """The public smoothness constant of every f_i, for all admissible records."""
        return self.bound**2 / 4 + self.penalty.smoothness + self.ridge

    @property
    def sensitivity(self) -> float:
        """The public l2 bound, at every x, of a replaced record's effect on f_i's gradient."""
        return 2 * self.bound / self.each

    @property
    def strong_convexity(self) -> float:
        """A public modulus of strong convexity of every f_i; 0 if none is known."""
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
    """Build the problem; no data are needed for that.

    Parameters
    ----------
    agents, each, size : int
        Number of agents N, of records per agent m, and of features d.
    bound : float
        Public bound of the l2 norm of a row of features.
    penalty : Penalty, optional
        The nonconvex penalty; the paper's if omitted.
    ridge : float
        Weight mu of the ridge, at least 0.

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
    """Return the sum of all agents' f_i at points ``X[..., :]``. Not private."""
    total = len(parts) * (study.penalty.value(X) + study.ridge / 2 * (X**2).sum(axis=-1))
    return total + losses(parts, X)


def gradients(study: Classification, parts: Sequence[Records], X: Floats) -> Floats:
    """Return the gradient of every f_i at ``X[..., i, :]``, shape (..., N, d). Not private."""
    return study.penalty.gradient(X) + study.ridge * X + slopes(parts, X)


def hessian(study: Classification, parts: Sequence[Records], x: Floats) -> Floats:
    """Return the Hessian of the sum of all f_i at x, shape (d, d). Not private."""
    total = len(parts) * np.diag(study.penalty.curvature(x) + study.ridge)
    for part in parts:
        Z = part.signed
        p = expit(-Z @ x)
        total = total + (Z.T * (p * (1 - p))) @ Z / part.count
    return total


def stationary_point(
    study: Classification, parts: Sequence[Records], start: Floats | None = None
) -> Floats:
    """Return a local minimizer of the sum of all f_i, computed on all records. Not private.

    Parameters
    ----------
    study : Classification
        The problem.
    parts : sequence of Records
        Records of each agent.
    start : ndarray, shape (d,), optional
        Start of the search; 0 if omitted. With strongly convex f_i the result is the same.

    Returns
    -------
    ndarray, shape (d,)
        A point where the norm of the sum's gradient is at most 1e-12 per agent, and the Hessian is
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
