r"""Communication networks: edges between agents, and weights for averages over neighbors.

A mixing matrix W of a connected undirected graph is symmetric, has rows that sum to one, and is
zero except on edges and the diagonal. I - W maps only multiples of the vector of ones to zero. Let
L be the Laplacian of the graph, :math:`d_i` the degrees, and :math:`l_1 \ge l_{n-1}` the largest
and the least positive eigenvalue of L. The rules for W are

===================  ==============================================================
``metropolis``       :math:`W_{ij} = 1 / (1 + \max(d_i, d_j))` for neighbors
``max degree``       :math:`I - L / (1 + \max_i d_i)`
``lazy metropolis``  :math:`(I + W) / 2` with the W of ``metropolis``
``laplacian``        :math:`I - 2 L / (l_1 + l_{n-1})`
===================  ==============================================================

``laplacian`` has the smallest second eigenvalue modulus among all :math:`I - a L` (Xiao and Boyd,
2004). Its diagonal can be negative; the other rules have no negative entries.

A network stores only the entries of W on edges and the diagonal, agent by agent.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import is_int, is_text, listed, show
from ..errors import ModelError
from ..guard import frameless
from ..privacy.randomness import PublicCoins, Seeded
from .mixing import (
    NAMES,
    WEIGHTS,
    Around,
    given_weights,
    laplacian,
    laplacian_norm,
    lowest_eigenvalue,
    matrix_on,
    quoted,
    ruled_weights,
    second_eigenvalue,
)

# Functions import networkx where they need it, because its import is slow.
if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]
Index = NDArray[np.intp]

__all__ = ["SHAPES", "WEIGHTS", "Network", "build", "random"]

SHAPES = ("complete", "ring", "star", "path", "grid")
# Name ("network") of the random stream, so that it differs from streams of noise with equal seeds.
_STREAM = (0x6E6574776F726B,)


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True, eq=False)
class Rank:
    """The k-th neighbor of each agent that has at least k neighbors."""

    agents: Index  # positions of these agents, increasing
    neighbors: Index  # position of the k-th neighbor of each of these agents
    weights: Array  # shape (number of these agents, 1); weight of that neighbor


@frameless
@dataclass(frozen=True, eq=False)
class Network:
    """Connected undirected graph of agents, with a mixing matrix; `build` constructs one.

    Attributes
    ----------
    agents : tuple of str
        Names of the agents. Their order defines the positions 0 to N - 1 used elsewhere.
    neighbors : tuple of tuple of int
        Positions of each agent's neighbors, increasing, without the agent itself.
    rows : tuple of ndarray
        Weights of each agent for its neighbors, in order, and last for itself; not writeable.
    rule : str
        Rule that chose the weights.

    Raises
    ------
    ModelError
        If the arguments do not describe a network. Only `build` checks the mixing matrix.
    """

    agents: tuple[str, ...]
    neighbors: Around
    rows: tuple[Array, ...] = field(repr=False)
    rule: str

    def __post_init__(self) -> None:
        if not (_are_names(self.agents) and is_text(self.rule) and self._fits()):
            raise ModelError(
                "dp.networks.Network(...) got agents, neighbors, rows and a rule that do not "
                "belong to one network. Write dp.networks.build('ring', ['north', 'east', "
                "'south']), which makes them from a graph."
            )

    def _fits(self) -> bool:
        """Return whether neighbors are mutual, and each row has a weight per neighbor plus one."""
        around, rows, n = self.neighbors, self.rows, len(self.agents)
        if not (type(around) is type(rows) is tuple and len(around) == len(rows) == n):
            return False
        if not all(type(others) is tuple for others in around) or not all(
            type(j) is int and 0 <= j < n for others in around for j in others
        ):
            return False
        to = np.array([j for others in around for j in others], dtype=np.intp)
        of = np.repeat(np.arange(n), [len(others) for others in around])
        increasing = bool((np.diff(of * n + to) > 0).all())
        mutual = np.array_equal(np.sort(to * n + of), of * n + to)
        weighted = all(
            isinstance(row, np.ndarray)
            and (row.dtype, row.shape) == (np.float64, (len(others) + 1,))
            and bool(np.isfinite(row).all())
            for others, row in zip(around, rows, strict=True)
        )
        return increasing and mutual and weighted and bool((of != to).all())

    @property
    def weights(self) -> Array:
        """The mixing matrix W, shape (N, N), a new array at each access; not writeable."""
        matrix = matrix_on(self.neighbors, self.rows).toarray()
        matrix.flags.writeable = False
        return matrix

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """Number of neighbors of each agent."""
        return tuple(len(around) for around in self.neighbors)

    @cached_property
    def own_weights(self) -> Array:
        """Diagonal of the mixing matrix, shape (N, 1): each agent's weight for its own value."""
        return np.array([row[-1] for row in self.rows])[:, np.newaxis]

    @cached_property
    def ranks(self) -> tuple[Rank, ...]:
        """Arrays of all agents' first neighbors, second neighbors and so on, with their weights."""
        degrees = np.array(self.degrees)
        ends = np.cumsum(degrees)
        around = np.concatenate([np.array(ranks, dtype=np.intp) for ranks in self.neighbors])
        weights = np.concatenate([row[:-1] for row in self.rows])
        ranks = []
        for k in range(int(degrees.max())):
            agents = np.flatnonzero(degrees > k)
            places = ends[agents] - degrees[agents] + k
            ranks.append(Rank(agents, around[places], weights[places, np.newaxis]))
        return tuple(ranks)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Edges as pairs of positions, the smaller position first, in increasing order."""
        return tuple((i, j) for i, around in enumerate(self.neighbors) for j in around if i < j)

    @property
    def complete(self) -> bool:
        """Return whether every agent is a neighbor of all other agents."""
        return all(degree == len(self.agents) - 1 for degree in self.degrees)

    @property
    def laplacian(self) -> Array:
        """Graph Laplacian, shape (N, N): degrees on the diagonal minus the adjacency matrix."""
        return laplacian(self.neighbors).toarray()

    @property
    def laplacian_norm(self) -> float:
        """The largest eigenvalue of the Laplacian; for large sparse networks, an upper bound.

        The bound is at most twice the eigenvalue. It is the number of agents, or the largest sum of
        an agent's degree and its neighbors' mean degree (Merris, 1998), whichever is smaller.
        """
        return laplacian_norm(self.neighbors)

    @property
    def lowest_eigenvalue(self) -> float:
        """Smallest eigenvalue of the mixing matrix W; at least -1."""
        return lowest_eigenvalue(self.neighbors, self.rows)

    @property
    def second_eigenvalue(self) -> float:
        """Second largest modulus of an eigenvalue of the mixing matrix W.

        A round of averaging multiplies the distance from consensus by at most this factor.
        """
        return second_eigenvalue(self.neighbors, self.rows)

    @property
    def spectral_gap(self) -> float:
        """One minus the second largest modulus of an eigenvalue of the mixing matrix."""
        return 1 - self.second_eigenvalue

    def graph(self) -> nx.Graph[Any]:
        """Return the network as a networkx graph with the agents' names as nodes."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.agents)
        graph.add_edges_from((self.agents[i], self.agents[j]) for i, j in self.edges)
        return graph

    def __str__(self) -> str:
        return (
            f"{len(self.agents)} agents, {len(self.edges)} edges, {self.rule} weights, "
            f"spectral gap {self.spectral_gap:.3g}"
        )


@frameless
def build(
    graph: nx.Graph[Any] | str, agents: Sequence[str], weights: str | Array = "metropolis"
) -> Network:
    """Build a network of agents: its edges, and the weights of the averages over neighbors.

    Pass the result to a network method as ``graph=``. If you pass a networkx graph or a shape such
    as "ring", the method builds the network of the problem's agents itself.

    Parameters
    ----------
    graph : networkx.Graph or {"complete", "ring", "star", "path", "grid"}
        Connected undirected graph without loops. Its nodes are all agents' names, or all positions
        0 to N - 1. Attributes of nodes and edges are ignored. The first agent is the center of a
        "star". A "grid" is as close to a square as possible, with at most as many rows as columns.
    agents : sequence of str
        Names of the agents, at least two, all different.
    weights : {"metropolis", "max degree", "lazy metropolis", "laplacian"} or ndarray (N, N)
        A rule (see the module), or a symmetric matrix with rows that sum to one and zeros between
        agents that are not neighbors.

    Returns
    -------
    Network

    Raises
    ------
    ModelError
        If the graph is not connected or does not name the agents, names repeat, or a matrix is no
        mixing matrix of the graph.

    Examples
    --------
    >>> graph = dp.networks.build("ring", ["north", "east", "south"])
    >>> problem.plan(dp.DecentralizedADMM(graph), epsilon=1.0, delta=1e-6)
    """
    names = _names(agents)
    if isinstance(graph, str):
        graph = _shaped(graph, len(names))
    neighbors = _neighbors(graph, names)
    if isinstance(weights, str):
        rows, rule = ruled_weights(weights, neighbors), weights
    else:
        matrix = given_weights(weights, neighbors, names)
        rows = tuple(matrix[i, [*around, i]] for i, around in enumerate(neighbors))
        rule = f"given ({hashlib.sha256(matrix.tobytes()).hexdigest()[:8]})"
    for row in rows:
        row.flags.writeable = False
    return Network(names, neighbors, rows, rule)


@frameless
def random(
    agents: Sequence[str], edges: int, seed: int, weights: str | Array = "metropolis"
) -> Network:
    """Return a random connected network with a given number of edges; the seed determines it.

    The network is a uniformly random tree (from its Pruefer code) plus a uniformly random choice of
    the remaining edges. It is not uniform among connected graphs: the probability of a graph is
    proportional to its number of spanning trees.

    Parameters
    ----------
    agents : sequence of str
        Names of the N agents, all different.
    edges : int
        Number of edges, from N - 1 (a tree) to N (N - 1) / 2 (a complete graph).
    seed : int
        Seed, at least 0.
    weights : str or ndarray (N, N)
        Weights, as in `build`.

    Returns
    -------
    Network

    Raises
    ------
    ModelError
        If a number is outside its range or names repeat.
    """
    names = _names(agents)
    n = len(names)
    most = n * (n - 1) // 2
    if not is_int(edges, n - 1) or edges > most:
        raise ModelError(
            f"edges={show(edges)} cannot connect {n} agents without loops or double edges: write a "
            f"whole number from {n - 1} (a tree) to {most} (everyone with everyone)."
        )
    if not is_int(seed, 0):
        raise ModelError(f"seed={show(seed)} must be a whole number of at least 0.")
    coins = PublicCoins(Seeded(int(seed), _STREAM).at(0, 0))
    tree = _random_tree(n, coins)
    chosen = {(min(pair), max(pair)) for pair in tree.edges}
    left = [(i, j) for i in range(n) for j in range(i + 1, n) if (i, j) not in chosen]
    for k in range(int(edges) - (n - 1)):  # the first steps of a Fisher-Yates shuffle
        other = k + coins.below(len(left) - k)
        left[k], left[other] = left[other], left[k]
        tree.add_edge(*left[k])
    return build(tree, names, weights)


def _random_tree(n: int, coins: PublicCoins) -> nx.Graph[Any]:
    import networkx as nx

    if n == 2:
        return nx.path_graph(2)
    return nx.from_prufer_sequence([coins.below(n) for _ in range(n - 2)])


def _are_names(agents: object) -> bool:
    """Return whether the argument is a non-empty tuple of different names."""
    if type(agents) is not tuple or not agents or not all(map(is_text, agents)):
        return False
    return len(set(agents)) == len(agents)


def _names(agents: Sequence[str]) -> tuple[str, ...]:
    given = listed(agents)
    names = tuple(name for name in given or () if isinstance(name, str))
    if given is None or len(names) < len(given):
        raise ModelError(
            f"agents={show(agents)} must be a sequence of names, such as ['a', 'b', 'c'] or "
            "[agent.name for agent in problem.agents]."
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ModelError(
            f"Two agents of a network have the same name: {quoted(twice)}. Edges would be "
            "ambiguous; give every agent a name of its own."
        )
    if len(names) < 2:
        raise ModelError(
            f"A network needs two agents or more and got {len(names)}: an agent alone has "
            "nobody to average with."
        )
    return names


def _shaped(shape: str, n: int) -> nx.Graph[Any]:
    import networkx as nx

    if shape == "complete":
        return nx.complete_graph(n)
    if shape == "ring":
        return nx.cycle_graph(n)
    if shape == "star":
        return nx.star_graph(n - 1)
    if shape == "path":
        return nx.path_graph(n)
    if shape == "grid":
        rows = max(r for r in range(1, math.isqrt(n) + 1) if n % r == 0)
        if rows == 1 and n > 3:
            raise ModelError(
                f"{n} agents cannot form a grid of two or more rows, because {n} is prime. Use "
                "'path', or pass a networkx graph."
            )
        return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, n // rows))
    raise ModelError(
        f"There is no network called {show(shape)}: write one of {quoted(SHAPES)}, or pass a "
        "networkx graph, for example networkx.random_regular_graph(4, 10, seed=1)."
    )


def _neighbors(graph: nx.Graph[Any], names: tuple[str, ...]) -> Around:
    import networkx as nx

    if not isinstance(graph, nx.Graph):
        raise ModelError(
            f"graph must be a networkx.Graph or one of {quoted(SHAPES)}, not a "
            f"{type(graph).__name__}. An adjacency matrix becomes one by "
            "networkx.from_numpy_array(matrix)."
        )
    if graph.is_directed():
        raise ModelError(
            "The graph is directed, but mixing matrices are symmetric: neighbors exchange values "
            "in both directions. Write graph.to_undirected() if every edge may be used in both "
            "directions."
        )
    if graph.is_multigraph():
        raise ModelError(
            "The graph is a multigraph, and several edges between two agents have no meaning here. "
            "Write networkx.Graph(graph) to keep one of each."
        )
    loops = [node for node in graph if graph.has_edge(node, node)]
    if loops:
        raise ModelError(
            f"The graph has loops at {quoted(loops)}: no agent is its own neighbor. Its weight "
            "for itself follows from its other weights. Write "
            "graph.remove_edges_from(list(networkx.selfloop_edges(graph)))."
        )
    n = len(names)
    by_position = all(is_int(node, 0) for node in graph)
    keys = tuple(range(n)) if by_position else names
    allowed = set(keys)
    unknown = [node for node in graph if node not in allowed]
    if unknown:
        nodes = f"positions 0 to {n - 1}" if by_position else f"agents {quoted(names)}"
        raise ModelError(
            f"The graph has nodes that are none of the {nodes}: {quoted(unknown)}. Nodes are "
            "the agents' names or their positions; "
            "networkx.convert_node_labels_to_integers(graph) numbers them."
        )
    absent = [names[i] for i, key in enumerate(keys) if key not in graph]
    if absent:
        raise ModelError(
            f"The graph has no nodes for agents {quoted(absent)}, so they have no neighbors. "
            "Add their edges, or leave them out of `agents`."
        )
    positions = {key: i for i, key in enumerate(keys)}
    parts = sorted(
        sorted(positions[node] for node in part) for part in nx.connected_components(graph)
    )
    if len(parts) > 1:
        shown = "; ".join(quoted([names[i] for i in part]) for part in parts[:NAMES])
        more = f"; and {len(parts) - NAMES} more" if len(parts) > NAMES else ""
        raise ModelError(
            f"The graph falls into {len(parts)} parts: {shown}{more}. No information passes "
            "between them, so that they could not agree: add edges, or solve them as separate "
            "problems."
        )
    return tuple(tuple(sorted(positions[other] for other in graph[key])) for key in keys)
