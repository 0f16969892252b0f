"""The common problems, their optima, and what a user of dpcvx writes for them."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import dpcvx as dp

from .exchange import Array, Instance

# A change of an agent's targets that stays hidden, in l2; targets are of the order of 1.
RADIUS = 0.05


def box(agents: int = 5, variables: int = 10, rows: int = 20, seed: int = 0) -> Instance:
    """Least squares of differing agents whose optimum lies on a face of the box."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(agents, rows, variables)) / np.sqrt(rows)
    truth = rng.normal(size=variables) + 0.5 * rng.normal(size=(agents, variables))
    b = np.einsum("pmn,pn->pm", A, truth) + 0.1 * rng.normal(size=(agents, rows))
    none = np.zeros((agents, 0))
    return Instance(A, b, np.zeros((agents, 0, variables)), none, np.zeros(agents), 1.0)


def cones(agents: int = 5, variables: int = 10, rows: int = 20, seed: int = 0) -> Instance:
    """The same with a second-order cone per agent, some of which bind; zero is inside of all."""
    plain = box(agents, variables, rows, seed)
    rng = np.random.default_rng(seed + 1)
    B = rng.normal(size=(agents, 3, variables))
    c = 0.1 * rng.normal(size=(agents, 3))
    away = np.linalg.norm(B @ optimum(plain)[1] - c, axis=1)
    r = np.maximum(0.7 * away, 1.5 * np.linalg.norm(c, axis=1))
    return Instance(plain.A, plain.b, B, c, r, plain.bound)


def limits(inst: Instance, x: cp.Variable, p: int) -> list[cp.Constraint]:
    """An agent's constraints."""
    found = [cp.abs(x) <= inst.bound]
    if inst.conic:
        found.append(cp.norm(inst.B[p] @ x - inst.c[p]) <= inst.r[p])
    return found


def central(inst: Instance) -> tuple[cp.Problem, cp.Variable]:
    """All agents' parts as one cvxpy problem."""
    x = cp.Variable(inst.A.shape[2])
    parts = list(zip(inst.A, inst.b, strict=True))
    cost = sum(cp.sum_squares(A @ x - b) for A, b in parts)
    every = [limit for p in range(len(parts)) for limit in limits(inst, x, p)]
    return cp.Problem(cp.Minimize(cost), every), x


def optimum(inst: Instance) -> tuple[float, Array]:
    """Optimal value and point with all data in one place."""
    problem, x = central(inst)
    value = problem.solve(solver=cp.CLARABEL)
    return float(value), np.asarray(x.value)


def declared(inst: Instance, radius: float = RADIUS) -> tuple[dp.Problem, cp.Variable]:
    """The model in dpcvx, targets private."""
    x = cp.Variable(inst.A.shape[2], name="x")
    agents = []
    for p, (A, b) in enumerate(zip(inst.A, inst.b, strict=True)):
        target = dp.Private(b, name=f"target {p}", adjacency=dp.Within(radius, norm=2))
        objective = cp.Minimize(cp.sum_squares(A @ x - target))
        agents.append(dp.Agent(objective, limits(inst, x, p), name=f"agent {p}"))
    return dp.Problem(agents), x
