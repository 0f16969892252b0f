r"""The model: agents with private records fit one logistic regression with weights x.

.. math::
    \min_x \sum_i f_i(x), \qquad
    f_i(x) = \frac1b \sum_j \log(1 + e^{-l_{ij} z_{ij}' x}) + \frac12 \|x\|^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import dpcvx as dp

from ..labeled import Records, losses, slopes
from .errors import CensusError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Census:
    """The logistic regression as a problem of agents.

    Attributes
    ----------
    x : cp.Variable, shape (d,)
        Weights that all agents share; starts at 0.
    each : int
        Public number of records per agent, b.
    problem : dp.Problem
        Problem of the agents ``agent 0``, .... Agent k's private data are ``features k`` and
        ``labels k``, whose rows belong together as records; neighboring data sets differ by
        replacing one record. The data are given to ``plan.run``.
    """

    x: cp.Variable
    each: int
    problem: dp.Problem

    @property
    def agents(self) -> int:
        """The number of agents, N."""
        return len(self.problem.agents)


def census(agents: int, each: int, size: int) -> Census:
    """Build the problem; no data are needed for that.

    Parameters
    ----------
    agents, each, size : int
        Number of agents N, of records per agent b, and of features d.
    """
    x = cp.Variable(size, name="x")
    person = dp.Rows(1.0, relation="replace_one", clip_rows=True)
    members = []
    for k in range(agents):
        Z = dp.Private(shape=(each, size), name=f"features {k}", adjacency=person)
        labels = dp.Private(shape=(each,), name=f"labels {k}", adjacency=person)
        loss = cp.sum(cp.logistic(-cp.multiply(labels, Z @ x))) / each
        members.append(dp.Agent(cp.Minimize(loss + cp.sum_squares(x) / 2), name=f"agent {k}"))
    return Census(x, each, dp.Problem(members))


def objective(parts: Sequence[Records], X: Floats) -> Floats:
    """Return the sum of all agents' f_i at points ``X[..., :]``. Not private."""
    return len(parts) / 2 * (X**2).sum(axis=-1) + losses(parts, X)


def gradients(parts: Sequence[Records], X: Floats) -> Floats:
    """Return the gradient of every f_i at ``X[i]``, shape (N, d). Not private."""
    return X + slopes(parts, X)


def optimum(parts: Sequence[Records], labels: Sequence[Floats] | None = None) -> Floats:
    """Minimize the sum of all agents' f_i by Newton's method. Not private.

    Parameters
    ----------
    parts : sequence of Records
        Records of each agent.
    labels : sequence of ndarray, optional
        Labels in another coding, used instead of the records' own.

    Raises
    ------
    CensusError
        If there are no parts.
    """
    if not parts:
        raise CensusError("There are no parts to fit: give every agent's share of the records.")
    coded = [part.labels for part in parts] if labels is None else labels
    rows = [
        (own[:, None] * part.features, part.count) for part, own in zip(parts, coded, strict=True)
    ]
    Z = np.concatenate([z for z, _ in rows])
    share = np.concatenate([np.full(count, 1 / count) for _, count in rows]) / len(parts)
    x = np.zeros(Z.shape[1])
    # The curvature is between 1 and 5/4, so that Newton's steps converge fast.
    for _ in range(100):
        p = expit(-Z @ x)
        gradient = x - (share * p) @ Z
        if np.linalg.norm(gradient) < 1e-14:
            break
        curvature = np.eye(x.size) + (Z.T * (share * p * (1 - p))) @ Z
        x = x - np.linalg.solve(curvature, gradient)
    return x
