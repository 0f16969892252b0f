"""Multiclass logistic regression (30) as a `dp.Problem`: one agent per part, records private."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import finite, positive_finite

from .dataset import Dataset
from .errors import DatasetError

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """Records divided among agents that fit one model.

    Attributes
    ----------
    dataset : Dataset
        All records.
    parts : tuple of ndarray of int
        Indices of every agent's training records.
    W : cp.Variable, shape (features, classes)
        Weights shared by all agents, with entries in ``[-box, box]``.
    total : int
        Public number of all agents' records; every method's objective is divided by it.
    regularizer : float
        Factor of ``|W|^2`` in the objective of all agents together.
    problem : dp.Problem
        Problem of the agents ``agent 0``, .... Agent k's private data are ``features k`` and
        ``labels k``, whose rows belong together as records; neighboring data sets differ by adding
        or removing one record. Features of l2 norm above ``dataset.bound`` are clipped.
    """

    dataset: Dataset
    parts: tuple[Ints, ...]
    W: cp.Variable
    total: int
    regularizer: float
    problem: dp.Problem


def logistic_regression(
    dataset: Dataset, parts: Sequence[Ints], *, box: float = 1.0, regularizer: float = 0.0
) -> LogisticRegression:
    """Build the problem of agents with given records.

    Parameters
    ----------
    dataset : Dataset
        All records.
    parts : sequence of ndarray of int
        Indices of every agent's training records, see `Partition`.
    box : float
        Bound u: every entry of W lies between -u and u. Ryu and Kim: 0.1 for MNIST, 1 for FEMNIST.
    regularizer : float
        Factor r >= 0; ``r |W|^2`` is added to the objective of all agents together.

    Returns
    -------
    LogisticRegression
        The problem with its records.

    Raises
    ------
    DatasetError
        If a part is empty or not a set of training records.
    dp.ModelError
        If another argument cannot be used.
    """
    if not positive_finite(box) or not finite(regularizer) or regularizer < 0:
        raise dp.ModelError(
            f"box={box!r} and regularizer={regularizer!r} must be finite, box positive and the "
            "regularizer at least 0. Write for example box=1.0."
        )
    _check_parts(parts, dataset.train.count)
    total = sum(part.size for part in parts)
    W = cp.Variable((dataset.features, dataset.classes), name="W")
    once = dp.Rows(1.0, norm=1, relation="add_or_remove_one")
    agents = []
    for k, part in enumerate(parts):
        own = dataset.train.take(part)
        X = dp.Private(own.features, name=f"features {k}", adjacency=dataset.rows)
        Y = dp.Private(dataset.one_hot(own.labels), name=f"labels {k}", adjacency=once, nonneg=True)
        scores = X @ W
        loss = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(Y, scores))
        cost = loss / total
        if regularizer > 0:
            cost += regularizer / len(parts) * cp.sum_squares(W)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(W) <= box], name=f"agent {k}"))
    problem = dp.Problem(agents)
    return LogisticRegression(dataset, tuple(parts), W, total, regularizer, problem)


def _check_parts(parts: Sequence[Ints], count: int) -> None:
    if not parts or any(part.size == 0 for part in parts):
        raise DatasetError(
            "Every agent needs a record: an agent without data has nothing to protect and no "
            "objective. Leave it out, or use a Partition, which avoids this."
        )
    known = np.concatenate(parts)
    if known.min() < 0 or known.max() >= count or np.unique(known).size < known.size:
        raise DatasetError(
            f"Parts are disjoint sets of the training records 0 to {count - 1}: a record that two "
            "agents hold would be protected less than the guarantee says. Divide the records anew, "
            "or declare groups= of a dp.Problem of your own."
        )
