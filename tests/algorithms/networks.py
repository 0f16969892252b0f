"""Agents in an uneven network, in plain numpy, and what tells noise from a wrong step.

Private runs have Laplace noise that is small next to a step and large next to rounding: whatever
leaves an agent, less what the printed equations say of what left before, is noise of the announced
scale, or the equations were not followed.
"""

import itertools
from dataclasses import dataclass, fields

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

import dpcvx as dp

# Of six agents.
GRAPHS = {
    "ring": nx.cycle_graph(6),
    "star": nx.star_graph(5),
    "random": dp.networks.random(list("abcdef"), 8, seed=1).graph(),
    "complete": nx.complete_graph(6),
}
graphs = pytest.mark.parametrize("graph", GRAPHS)

ROUNDS = 6
NAMES = ("a", "b", "c", "d")
# One neighbor, three, two and two.
GRAPH = nx.Graph([(0, 1), (1, 2), (1, 3), (2, 3)])
NEAR = ([1], [0, 2, 3], [1, 3], [1, 2])
LIMITS = np.array([0.3, 0.5, 0.2, 0.4])
NOISE = dp.Laplace(noise_multiplier=0.01, decay=0.9)


def names(n):
    return [f"agent {i}" for i in range(n)]


@st.composite
def connected_graphs(draw):
    """Connected graphs of 2 to 9 nodes: a tree and any further edges."""
    n = draw(st.integers(2, 9))
    graph = nx.Graph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from((i, draw(st.integers(0, i - 1))) for i in range(1, n))
    pairs = list(itertools.combinations(range(n), 2))
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=12)))
    return graph


def mixing(rule="metropolis", near=NEAR):
    """W of a network: a weight for every edge, and rows that sum to one."""
    degrees = np.array([len(around) for around in near])
    edges = np.array([[float(j in around) for j in range(len(near))] for around in near])
    levels = np.linalg.eigvalsh(np.diag(degrees) - edges)
    weights = {
        "metropolis": 1 / (1 + np.maximum.outer(degrees, degrees)),
        "lazy metropolis": 1 / (1 + np.maximum.outer(degrees, degrees)) / 2,
        "max degree": 1 / (1 + degrees.max()),
        "laplacian": 2 / (levels[1] + levels[-1]),
    }
    W = edges * weights[rule]
    return W + np.diag(1 - W.sum(axis=1))


@dataclass(frozen=True)
class Study:
    """Agents with the objectives ``|A [own; w] - b|^2 / 2 + bend * sum(log(1 + exp(own; w)))``.

    Attributes
    ----------
    problem : dp.Problem
    own : tuple of cp.Variable
        Of each agent; empty for none.
    w : tuple of cp.Variable
        Which all agents share; they use them in two orders.
    A, b : tuple of ndarray
    bend : float
    limits : ndarray, shape (agents, 1)
        Of every entry; infinite for none.
    """

    problem: dp.Problem
    own: tuple
    w: tuple
    A: tuple
    b: tuple
    bend: float
    limits: np.ndarray

    @property
    def start(self):
        """All agents' points before round 1: zero, shape (agents, n)."""
        return np.zeros((len(NAMES), self.A[0].shape[1]))

    @property
    def shared(self):
        """Columns of the shared entries."""
        return slice(2 if self.own else 0, None)

    def gradient(self, k, x):
        """Of agent k at ``x = [own; w]``."""
        return self.A[k].T @ (self.A[k] @ x - self.b[k]) + self.bend / (1 + np.exp(-x))

    def gradients(self, X):
        """Of all agents, each at its row."""
        return np.array([self.gradient(k, x) for k, x in enumerate(X)])

    def projected(self, X):
        """Onto the boxes."""
        return np.clip(X, -self.limits, self.limits)

    def minimizer(self, k, v, D):
        """``argmin f(x) + D/2 |x - v|^2`` over the box, by gradient steps to the last digit."""
        steep = np.linalg.norm(self.A[k], 2) ** 2 + self.bend / 4 + D
        x = v
        for _ in range(200):
            x = np.clip(
                x - (self.gradient(k, x) + D * (x - v)) / steep, -self.limits[k], self.limits[k]
            )
        return x

    def points(self, solution):
        """``[own; w]`` of every agent, shape (agents, n)."""
        return np.array(
            [
                np.concatenate([solution.of(name, v).ravel() for v in self._variables(k)])
                for k, name in enumerate(NAMES)
            ]
        )

    def ordered(self, k, value):
        """A vector of agent k, which the package writes in an order of its own."""
        places = [self.problem.agents[k].layout[v.id] for v in self._variables(k)]
        return np.concatenate([value[p.offset : p.stop] for p in places])

    def _variables(self, k):
        return [*self.own[k : k + 1], *self.w]


def study(limits=None, own=True, bend=0.0, seed=3):
    """Two own entries for each agent, or none, and three shared ones."""
    rng = np.random.default_rng(seed)
    u, s = cp.Variable(2, name="u"), cp.Variable(name="s")
    agents, mine, As, bs = [], [], [], []
    bounds = np.full(len(NAMES), np.inf) if limits is None else limits
    for k, name in enumerate(NAMES):
        v = cp.Variable(2, name=f"own {name}")
        parts = [v, u, s] if own else [u, s]
        A, b = rng.normal(size=(5, 5 if own else 3)) / 2, rng.normal(size=5)
        As.append(A), bs.append(b), mine.append(v)
        d = dp.Private(b, name=f"d{name}", adjacency=dp.Within(0.1))
        x = cp.hstack(parts)
        cost = cp.sum_squares(A @ x - d) / 2 + (bend * cp.sum(cp.logistic(x)) if bend else 0)
        if k % 2:  # the package keeps variables in the order in which they occur
            cost = 0 * s + cost
        box = [cp.abs(p) <= bounds[k] for p in parts] if np.isfinite(bounds[k]) else []
        agents.append(dp.Agent(cp.Minimize(cost), box, name=name))
    owned = tuple(mine) if own else ()
    return Study(
        dp.Problem(agents), owned, (u, s), tuple(As), tuple(bs), bend, bounds[:, np.newaxis]
    )


MODELS = {
    "squares": {},
    "boxes": {"limits": LIMITS},
    "bent boxes": {"limits": LIMITS, "bend": 0.5},
    "nonconvex boxes": {"limits": LIMITS, "bend": -0.5},
    "open": {"own": False},
    "open, nonconvex": {"own": False, "bend": -2.0},
}


class Replayed:
    """What left the agents of a run, next to what equations say.

    Parameters
    ----------
    given : Study
    result : dp.Result
        Recorded; without noise, what the equations say takes the place of releases.
    """

    def __init__(self, given, result):
        self._given, self._noisy = given, result.guarantee.kind != "none"
        self._left = {(r.agent, r.round, r.step): r.value for r in result.transcript.releases}
        self._scale = {
            (k, e.round, e.step): e.multiplier * e.sensitivity
            for k, name in enumerate(NAMES)
            for e in result.ledger[name].entries
        }
        self.noise = []

    def __call__(self, t, step, expected):
        """What left as the given release of round t (both from 1), shape (agents, n)."""
        if not self._noisy:
            return expected
        left = np.array([self._given.ordered(k, self._left[k, t, step]) for k in range(len(NAMES))])
        for k, rest in enumerate(left - expected):
            scale = self._scale.get((k, t, step), 0.0)
            if scale:
                self.noise.extend(rest / scale)
            else:  # nothing private in it
                assert rest == pytest.approx(0, abs=1e-12)
        return left

    def check(self):
        """Of a noisy run, after all rounds."""
        if self._noisy:
            assert laplace(self.noise)


def laplace(noise):
    """Whether sizes add up as those of Laplace noise of scale 1 do; at an error rate of 1e-6."""
    law = stats.chi2(2 * len(noise))
    return law.ppf(5e-7) < 2 * np.abs(noise).sum() < law.isf(5e-7)


def followed(given, plan, by_hand, tolerance=1e-11, seed=2):
    """Run a plan, and hold every round against points by hand.

    Parameters
    ----------
    given : Study
    plan : dp.Plan
    by_hand : callable
        Takes a `Replayed`; yields the agents' points after each round, shape (agents, n).

    Returns
    -------
    dp.Result
    """
    result = plan.run(seed=seed, record=True, iterates=True)
    left = Replayed(given, result)
    path = []
    for found, expected in zip(result.iterates, by_hand(left), strict=True):
        path.append(expected)
        assert given.points(found.last) == pytest.approx(expected, abs=tolerance)
        average = np.mean(path, axis=0)
        assert given.points(found.average) == pytest.approx(average, abs=tolerance)
    assert len(path) == plan.rounds >= 5
    assert np.abs(np.diff(path, axis=0)).max(axis=(1, 2)).min() > 1e-4  # every round moves
    if np.isfinite(given.limits).all():  # and bounds matter in some, for some entries
        assert 0 < np.mean(np.abs(path) == given.limits) < 1
    left.check()
    return result


def planned(given, method, noisy, rounds=ROUNDS):
    """With noise that is told apart from steps, or with none."""
    return given.problem.plan(method, mechanism=NOISE if noisy else None, rounds=rounds)


class _Listening:
    """An oracle, and what an agent draws from it."""

    def __init__(self, oracle, keep):
        self._oracle, self._keep = oracle, keep

    def __getattr__(self, name):
        return getattr(self._oracle, name)

    def uniform(self, size):
        """What the oracle answers."""
        drawn = self._oracle.uniform(size)
        self._keep(drawn)
        return drawn


def overheard(method):
    """A method that acts alike, and two dictionaries by agent's name, round and exchange (from 0).

    The first has what agents draw and keep to themselves, the second what they say.
    """
    drawn, said = {}, {}

    class Overheard(type(method)):
        """The method."""

        def act(self, local, state, t, k, message, oracle):
            """As the method does."""
            place = local.program.name, t, k
            listening = _Listening(oracle, lambda value: drawn.__setitem__(place, value))
            state, said[place] = super().act(local, state, t, k, message, listening)
            return state, said[place]

    return Overheard(*(getattr(method, f.name) for f in fields(method))), drawn, said
