"""Weights with which neighbors are averaged: by a rule, or as a user wrote them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .._arguments import show
from ..errors import ModelError
from .spectrum import Around, best_step

Array = NDArray[np.float64]

WEIGHTS = ("metropolis", "max degree", "lazy metropolis", "laplacian")
# Rounding errors that a given mixing matrix may have.
_SLACK = 1e-10
# Things that messages list.
NAMES = 8


def ruled_weights(rule: str, neighbors: Around) -> tuple[Array, ...]:
    """For each agent the weights of its neighbors and of itself.

    Parameters
    ----------
    rule : {"metropolis", "max degree", "lazy metropolis", "laplacian"}
    neighbors : tuple of tuple of int

    Raises
    ------
    ModelError
        If there is no such rule.
    """
    degrees = [len(around) for around in neighbors]
    if rule == "max degree":
        largest = max(degrees)
        return _balanced(neighbors, lambda i, j: 1 / (1 + largest))
    if rule == "laplacian":
        step = best_step(neighbors)
        return _balanced(neighbors, lambda i, j: step)
    if rule in ("metropolis", "lazy metropolis"):
        rows = _balanced(neighbors, lambda i, j: 1 / (1 + max(degrees[i], degrees[j])))
        return rows if rule == "metropolis" else tuple(_lazy(row) for row in rows)
    raise ModelError(
        f"There are no weights called {show(rule)}: write one of {quoted(WEIGHTS)}, or pass a "
        "symmetric matrix with rows that sum to one."
    )


def _balanced(neighbors: Around, weight: Callable[[int, int], float]) -> tuple[Array, ...]:
    """Weights of the edges, and of agents' own values, with which rows sum to one.

    The sums are rounded once, so that they do not depend on the order of the agents.
    """
    shares = ([weight(i, j) for j in around] for i, around in enumerate(neighbors))
    return tuple(np.array([*row, 1 - math.fsum(row)]) for row in shares)


def _lazy(row: Array) -> Array:
    """Half of each weight, and the other half kept by the agent itself."""
    half = row / 2
    half[-1] = (1 + row[-1]) / 2
    return half


def given_weights(weights: object, neighbors: Around, names: tuple[str, ...]) -> Array:
    """A mixing matrix that a user wrote, symmetric to the last bit.

    Parameters
    ----------
    weights : array_like, shape (N, N)
    neighbors : tuple of tuple of int
    names : tuple of str
        Of the agents, for messages.

    Raises
    ------
    ModelError
        If it does not average over the graph.
    """
    n = len(names)
    try:
        matrix = np.array(weights, dtype=np.float64)
    except Exception:  # whatever a foreign object raises
        raise ModelError(
            f"weights must be one of {quoted(WEIGHTS)} or a matrix of numbers, not a "
            f"{type(weights).__name__}."
        ) from None
    if matrix.shape != (n, n) or not np.isfinite(matrix).all():
        raise ModelError(
            f"weights= must be one of {quoted(WEIGHTS)}, or a matrix of {n} by {n} with finite "
            f"entries, rows in the order of `agents`; it has shape {matrix.shape}."
        )

    def pair(where: Array) -> str:
        i, j = np.unravel_index(int(np.argmax(where)), where.shape)
        return f"'{names[i]}' and '{names[j]}'"

    skew = np.abs(matrix - matrix.T)
    if skew.max() > _SLACK:
        raise ModelError(
            f"The mixing matrix is not symmetric: the weights between {pair(skew)} differ by "
            f"{skew.max():.3g}. The average over the agents would drift; use (W + W.T) / 2 if its "
            "rows still sum to one."
        )
    off = np.abs(matrix)
    np.fill_diagonal(off, 0.0)
    for i, around in enumerate(neighbors):
        off[i, list(around)] = 0.0
    if off.max() > 0:
        raise ModelError(
            f"The mixing matrix has a weight between {pair(off)}, who are no neighbors: they "
            "cannot exchange values. Set it to zero, or add the edge to the graph."
        )
    sums = np.array([math.fsum(row) for row in matrix])
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SLACK:
        raise ModelError(
            f"The row of agent '{names[worst]}' in the mixing matrix sums to {sums[worst]:.12g}, "
            "not to 1: agents that agree would be moved. Put one minus the sum of the other "
            "entries on the diagonal."
        )
    _check_spectrum(matrix)
    return (matrix + matrix.T) / 2


def _check_spectrum(matrix: Array) -> None:
    """Refuse averaging that does not agree, or diverges."""
    values = np.linalg.eigvalsh(matrix)
    if np.sum(np.abs(values - 1) <= _SLACK) > 1:
        raise ModelError(
            "I - W maps more than multiples of the vector of ones to zero (1 is a multiple "
            "eigenvalue of the mixing matrix): agents could settle on different values. Give every "
            "edge a positive weight."
        )
    if np.abs(values).max() > 1 + _SLACK:
        raise ModelError(
            f"The mixing matrix has eigenvalues from {values[0]:.6g} to {values[-1]:.6g}; beyond "
            "-1 and 1 repeated averaging diverges. Make the weights of edges smaller, for example "
            "(I + W) / 2."
        )


def quoted(items: Sequence[object]) -> str:
    """The first of them for a message, texts in quotes."""
    shown = ", ".join(f"'{x}'" if isinstance(x, str) else repr(x) for x in items[:NAMES])
    return shown + (f" and {len(items) - NAMES} more" if len(items) > NAMES else "")
