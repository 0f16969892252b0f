"""Exact local steps next to Clarabel's: least squares with terms, and semidefinite matrices."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
from threadpoolctl import ThreadpoolController

import dpcvx as dp
from dpcvx.model.canonical import ConeData
from dpcvx.solvers.conic import ConicProgram

from .measure import Effort, Row, per_input, shown

# What a step may take of the interior point's.
_REQUIRED = {"l1": 0.3, "l1 and box": 0.3, "box": 0.3, "nonnegative": 0.3, "ball": 0.1}


def least_squares(terms: str, records: int, n: int) -> ConeData:
    """The objective of an agent and its set, as plans of `dp.ADMM` have them."""
    rng, x = np.random.default_rng(0), cp.Variable(n, name="x")
    labels = dp.Private(rng.normal(size=records), name="labels", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(rng.normal(size=(records, n)) @ x - labels)
    cost = cost + 3 * cp.norm1(x) if "l1" in terms else cost
    sets = {"box": cp.abs(x) <= 0.3, "ball": cp.norm(x) <= 1, "nonnegative": x >= 0}
    limits = [limit for name, limit in sets.items() if name in terms]
    other = dp.Agent(cp.Minimize(cp.sum_squares(x)), [], name="other")
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), limits, name="records"), other])
    data = problem.plan(dp.ADMM(10.0), mechanism=None, rounds=1).program.agents[0].exact
    assert data is not None
    return data


def semidefinite_step(effort: Effort) -> list[Row]:
    """Steps on matrices with a fixed diagonal: of exact ADMM, and projections."""
    n, rng = 10 if effort.quick else 30, np.random.default_rng(0)
    X = cp.Variable((n, n), PSD=True, name="X")
    agents = []
    for k in range(2):
        noise = rng.normal(size=(n, n))
        target = dp.Private((noise + noise.T) / 2, name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(X - target)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.diag(X) == 1], name=f"a{k}"))
    local = dp.Problem(agents).plan(dp.ADMM(1.0), mechanism=None, rounds=1).program.agents[0]
    assert local.exact is not None
    points = [(M + M.T).ravel() for M in rng.normal(size=(3, n, n))]
    D, zero, rows = np.full(n * n, 2.0), np.zeros(n * n), []
    for name, data in (("exact step", local.exact), ("projection", local.constraints)):
        ours, theirs = ConicProgram(data), ConicProgram(data)
        vars(theirs)["_semidefinite"] = None
        calls = [
            (lambda k, p=program: p.solve(D, -D * points[k], zero))
            if name == "exact step"
            else (lambda k, p=program: p.solve(D, None, points[k]))
            for program in (ours, theirs)
        ]
        with ThreadpoolController().select(user_api="blas").limit(limits=1):  # as runs do
            direct, interior = per_input(calls, 3, min(effort.repeats, 3))
        note = f"{shown(direct)} against {shown(interior)}"
        row = f"{name} on semidefinite matrices with a fixed diagonal"
        required = None if effort.quick else 0.1
        rows.append(Row(row, "Clarabel", f"{n} x {n}", direct / interior, required, note=note))
    return rows


def exact_step(effort: Effort) -> list[Row]:
    """Steps with one weight, as rounds of ADMM ask for them."""
    rows, rng, n = [], np.random.default_rng(1), 100
    D = np.full(n, 10.0)
    for terms, required in _REQUIRED.items():
        data = least_squares(terms, 60, n)
        ours, theirs = ConicProgram(data), ConicProgram(data)
        vars(theirs)["_sum"] = None
        # Linear terms move a little from round to round, and steps begin at the last answer.
        linear = 20 * rng.normal(size=n) + 0.2 * rng.normal(size=(6, n))
        start = ours.solve(D, linear[-1], np.zeros(n)).x
        assert start is not None
        calls = [
            lambda k, p=program, c=linear, x=start: p.solve(D, c[k], x)
            for program in (ours, theirs)
        ]
        direct, interior = per_input(calls, 5, min(effort.repeats, 3))
        note = f"{shown(direct)} against {shown(interior)}"
        size = f"60 x {n} records"
        name = f"exact step of least squares, {terms}"
        rows.append(Row(name, "Clarabel", size, direct / interior, required, note=note))
    return rows
