"""Random geometric networks: points in the unit square, neighbors if they are close."""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import dpcvx as dp
from dpcvx._arguments import is_int, positive_finite

from .errors import ClassificationError

# Number of graphs that are drawn before giving up.
_DRAWS = 2000


def geometric_network(
    agents: int = 50,
    radius: float = 0.3,
    *,
    edges: int | None = None,
    weights: str = "metropolis",
    seed: int = 0,
) -> dp.networks.Network:
    """Draw random networks and return the first connected one, determined by the seed.

    Parameters
    ----------
    agents : int
        Number of agents, at least 2; their names are ``agent 0``, ...
    radius : float
        Distance below which two points are neighbors.
    edges : int, optional
        Required number of edges, 255 in the paper; if omitted, any number.
    weights : str
        Rule of the weights; see `dp.networks.build`.
    seed : int
        Seed of the draw.

    Raises
    ------
    ClassificationError
        If a number is outside its range, or no such network is found.
    """
    if not is_int(agents, 2) or not positive_finite(radius) or not is_int(seed, 0):
        raise ClassificationError(
            f"agents={agents!r} must be a whole number of at least 2, radius={radius!r} a positive "
            f"one, and seed={seed!r} a whole one of at least 0."
        )
    names = [f"agent {k}" for k in range(agents)]
    for each in np.random.default_rng(seed).integers(2**31, size=_DRAWS):
        graph = nx.random_geometric_graph(agents, radius, seed=int(each))
        if edges in (None, graph.number_of_edges()) and nx.is_connected(graph):
            return dp.networks.build(graph, names, weights)
    asked = "connected" if edges is None else f"connected with {edges!r} edges"
    raise ClassificationError(
        f"None of {_DRAWS} random networks of {agents} agents with radius={radius:g} was {asked}. "
        "Use a larger radius" + (", or leave edges= out." if edges is not None else ".")
    )


def matrix_of(network: dp.networks.Network) -> NDArray[np.float64]:
    """Return P = I - W, the matrix of DPP2's differences between neighbors, shape (N, N)."""
    return np.eye(len(network.agents)) - network.weights
