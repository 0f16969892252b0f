"""Least squares over shared and local entries, and its equations in plain numpy."""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp

# Entries of the shared vector that each agent holds, in an order of its own: each has two holders.
HELD = ([0, 1, 2], [2, 3, 1], [3, 0])
NAMES = ("a", "b", "c")


@dataclass(frozen=True)
class Study:
    """Agents that minimize ``|A [u; w[held]] - b|^2`` over a box, u being their own.

    Attributes
    ----------
    problem : dp.Problem
    A, b : tuple of ndarray
    limit : float
        Of every entry; infinite for none.
    """

    problem: dp.Problem
    own: tuple
    w: cp.Variable
    A: tuple
    b: tuple
    limit: float

    def gradient(self, p, x):
        """Of agent p at ``x = [u; w[held]]``."""
        return 2 * self.A[p].T @ (self.A[p] @ x - self.b[p])

    def public_gradient(self, p, x):
        """Without the data."""
        return 2 * self.A[p].T @ (self.A[p] @ x)

    def mean(self, copies):
        """Mean over the agents that hold each shared entry."""
        total, holders = np.zeros(4), np.zeros(4)
        for held, copy in zip(HELD, copies, strict=True):
            total[held] += copy
            holders[held] += 1
        return total / holders

    def points(self, solution):
        """``[u; w[held]]`` of every agent."""
        return [
            np.append(solution.of(n, u), solution.of(n, self.w)[held])
            for n, u, held in zip(NAMES, self.own, HELD, strict=True)
        ]

    def released(self, result, p):
        """Agent p's releases in order: the noisy part of the gradient that depends on data."""
        return [r.value[self.order(p)] for r in result.transcript.releases if r.agent == p]

    def order(self, p):
        """Positions of ``[u; w[held]]`` in the package's vector of agent p."""
        layout = self.problem.agents[p].layout
        own, shared = layout[self.own[p].id], layout[self.w.id]
        entries = list(shared.entries)
        return [*range(own.offset, own.stop), *(shared.offset + entries.index(i) for i in HELD[p])]


def study(limit=np.inf, seed=3):
    """Two own entries for each agent."""
    rng = np.random.default_rng(seed)
    w = cp.Variable(4, name="w")
    agents, own, As, bs = [], [], [], []
    for name, held in zip(NAMES, HELD, strict=True):
        A, b = rng.normal(size=(6, 2 + len(held))) / 4, rng.normal(size=6)
        u = cp.Variable(2, name=f"u{name}")
        d = dp.Private(b, name=f"d{name}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(A[:, :2] @ u + A[:, 2:] @ w[held] - d)
        box = [cp.abs(u) <= limit, cp.abs(w[held]) <= limit] if np.isfinite(limit) else []
        agents.append(dp.Agent(cp.Minimize(cost), box, name=name))
        own.append(u), As.append(A), bs.append(b)
    return Study(dp.Problem(agents), tuple(own), w, tuple(As), tuple(bs), limit)
