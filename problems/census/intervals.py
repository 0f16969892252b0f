r"""The interval of the noiseless points that random weights leave possible.

A coordinate of the point that agent i sends in round k is uniform on an interval, plus noise.
Everyone knows the ends of the interval, except for their shift by the private gradient:

=============  ====================================================  ============================
rule           middle                                                length
=============  ====================================================  ============================
``admm``       :math:`(x_i + \bar x_{N_i}) / 2 + \lambda_i / D`      randomness times
                                                                     :math:`|x_i - \bar x_{N_i}|`
``pair``       :math:`\bar x`                                        :math:`2 |x_a - x_b| / N`
``range``      between smallest and largest of the neighborhood     their distance
=============  ====================================================  ============================

each shifted by minus alpha times the gradient; exact steps take it at the new point. Not private.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx.algorithms.decentralized_gradient import drawn
from dpcvx.algorithms.steps import as_step

from ..labeled import Records
from .study import gradients

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def intervals(plan: dp.Plan, parts: Sequence[Records], X: Floats) -> tuple[Floats, Floats]:
    """Return lower ends and lengths, shape (K, N, d); lengths are zero for fixed weights.

    Parameters
    ----------
    plan : dp.Plan
        Plan of the run.
    parts : sequence of Records
        Records of each agent.
    X : ndarray, shape (K + 1, N, d)
        Points that all agents sent, from the public start on.
    """
    method = plan.algorithm
    lows, lengths = [], []
    lam = np.zeros_like(X[0])
    for t in range(1, len(X)):
        own, alpha = X[t - 1], step_of(plan, t)
        if isinstance(method, dp.DecentralizedADMM):
            assert method.penalty is not None
            net = _network(method)
            lam = lam - method.penalty * net.laplacian @ own
            means = own - net.laplacian @ own / np.array(net.degrees)[:, None]
            length = method.randomness * np.abs(own - means)
            low = (own + means) / 2 + alpha * lam - length / 2
            at = X[t] if method.exact else own
        else:
            low, length, at = _aggregates(method, own)
        moves = moving(plan, t)
        ends = own.copy()
        ends[:, moves] = (low - alpha * gradients(parts, at))[:, moves]
        lows.append(ends)
        lengths.append(length)
    return np.array(lows), np.array(lengths)


def step_of(plan: dp.Plan, t: int) -> float:
    """Return the step size alpha of round t, the factor of the gradient."""
    method = plan.algorithm
    if isinstance(method, dp.DecentralizedADMM):
        assert method.step is not None
        return method.step / method.growth ** (t - 1)
    assert isinstance(method, (dp.DecentralizedGradient, dp.FederatedAveraging))
    rule = as_step(method.step)
    assert rule is not None  # resolved
    return rule.eta(t)


def moving(plan: dp.Plan, t: int) -> Ints:
    """Return the indices of the entries that agents update in round t."""
    method, d = plan.algorithm, plan.program.size
    some = method.coordinates if isinstance(method, dp.DecentralizedGradient) else None
    return np.arange(d) if some is None else drawn(t, d, some)


def _network(method: dp.DecentralizedADMM | dp.DecentralizedGradient) -> dp.networks.Network:
    assert isinstance(method.graph, dp.networks.Network)  # resolved
    return method.graph


def _aggregates(method: object, own: Floats) -> tuple[Floats, Floats, Floats]:
    """Return lower ends and lengths before the gradient step, and the points of the gradients."""
    middle = np.repeat(own.mean(axis=0, keepdims=True), len(own), axis=0)
    length = np.zeros_like(own)
    if isinstance(method, dp.FederatedAveraging):
        return middle, length, middle
    assert isinstance(method, dp.DecentralizedGradient)
    network, rule = _network(method), method.aggregate
    if rule == "range":
        around = [own[[i, *network.neighbors[i]]] for i in range(len(own))]
        low = np.array([rows.min(axis=0) for rows in around])
        return low, np.array([rows.max(axis=0) for rows in around]) - low, own
    if rule == "mixing":
        return network.weights @ own, length, own
    if rule == "pair":
        distances = np.abs(own[:, None] - own[None]).sum(axis=2)
        a, b = np.unravel_index(int(distances.argmax()), distances.shape)
        length += 2 * np.abs(own[a] - own[b]) / len(own)
    return middle - length / 2, length, middle
