"""Many small clients with records of their own: all at once against one by one."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import networkx as nx
import numpy as np

import dpcvx as dp

from .instances import BUDGET
from .measure import Effort, Row, shown, timed
from .memory import resident

_CLIENTS, _RECORDS, _FEATURES = 1000, 50, 20


class _Apart(dp.Serial):
    """An executor that keeps agents apart."""


def clients(count: int, records: int = _RECORDS, features: int = _FEATURES) -> dp.Problem:
    """Logistic regression on records of so many clients, in a box."""
    rng = np.random.default_rng(0)
    w, agents = cp.Variable(features, name="w"), []
    truth = rng.normal(size=features)
    for k in range(count):
        X = rng.normal(size=(records, features))
        X *= np.sign(X @ truth)[:, None] / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
        data = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0))
        cost = cp.sum(cp.logistic(-(data @ w))) / records
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 5], name=f"client {k}"))
    return dp.Problem(agents)


def labeled(count: int) -> dp.Problem:
    """The same of features and labels, both private, with the records of each client named."""
    rng = np.random.default_rng(0)
    w, agents = cp.Variable(_FEATURES, name="w"), []
    for k in range(count):
        X = rng.normal(size=(_RECORDS, _FEATURES))
        X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
        rows = dp.Rows(1.0, records=f"person {k}")
        features = dp.Private(X, name=f"X{k}", adjacency=rows)
        labels = dp.Private(np.sign(X[:, 0]), name=f"y{k}", adjacency=rows)
        cost = cp.sum(cp.logistic(-cp.multiply(labels, features @ w))) / _RECORDS
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 5], name=f"client {k}"))
    return dp.Problem(agents)


def fleets(effort: Effort) -> list[Row]:
    """Steps with a ledger on disk, and planning, per client; then what many clients take."""
    count, rounds = (200, 4) if effort.quick else (_CLIENTS, 11)
    size = f"{count} clients, {_RECORDS} x {_FEATURES} records"
    problem = clients(count)
    plan = problem.plan(dp.FederatedGradient(), rounds=rounds, **BUDGET)
    # So many rounds that what they take shows next to the start and the end of a run.
    longer = problem.plan(dp.FederatedGradient(), rounds=20 * rounds, **BUDGET)
    rows = []
    for seed, name in ((None, ""), (0, ", seeded")):
        together, apart = _step(longer, dp.Serial(), seed), _step(plan, _Apart(), seed)
        note = f"{shown(together)} against {shown(apart)}"
        rows.append(Row(f"step of a fleet, ledger on disk{name}", "agents apart", size,
                        together / apart, 1 / 15, note=note))  # fmt: skip
    linearized = dp.LinearizedADMM()
    plan, longer = (problem.plan(linearized, rounds=times * rounds, **BUDGET) for times in (1, 20))
    together, apart = _step(longer, dp.Serial(), 0), _step(plan, _Apart(), 0)
    note = f"{shown(together)} against {shown(apart)}"
    rows.append(Row("step of a fleet at points of their own, LinearizedADMM, seeded",
                    "agents apart", size, together / apart, 1 / 15, note=note))  # fmt: skip
    # Everyone hears four others, who are no neighbors by number.
    graph = nx.random_regular_graph(4, count, seed=1)
    for method in (dp.DecentralizedGradient(graph), dp.DecentralizedADMM(graph)):
        plan, longer = (problem.plan(method, rounds=k * rounds, **BUDGET) for k in (1, 10))
        together, apart = _step(longer, dp.Serial(), 0), _step(plan, _Apart(), 0)
        note = f"{shown(together)} against {shown(apart)}"
        rows.append(Row(f"step of a fleet over a network, {type(method).__name__}, seeded",
                        "agents apart", size, together / apart, 1 / 15, note=note))  # fmt: skip
    named = "planning, per further agent of a fleet, labels of records of its own"
    for name, make in (("planning, per further agent of a fleet", clients), (named, labeled)):
        few, many = make(10), make(count)
        least = min(timed(lambda p=few: _plan(p, rounds)) for _ in "12")
        further = (timed(lambda p=many: _plan(p, rounds)) - least) / (count - 10)
        rows.append(Row(name, "", size, further, 1e-3, "s"))
    return rows if effort.quick else [*rows, *_many(10_000)]


def _plan(problem: dp.Problem, rounds: int) -> dp.Plan:
    return problem.plan(dp.FederatedGradient(), rounds=rounds, **BUDGET)


def _step(plan: dp.Plan, executor: dp.Serial, seed: int | None) -> float:
    """Seconds of the processor that an agent's step takes, with a ledger on disk."""
    seconds = []
    for rounds in (plan.rounds, 1):
        shorter = replace(plan, rounds=rounds)
        best = float("inf")
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "spent.jsonl"
                best = min(best, timed(
                    lambda p=shorter, at=path: p.run(
                        seed=seed, ledger=at, executor=executor, verbose=False
                    )
                ))  # fmt: skip
        seconds.append(best)
    return (seconds[0] - seconds[1]) / (plan.rounds - 1) / len(plan.program.agents)


def _many(count: int) -> list[Row]:
    """Building, planning, memory and a round of many clients, each of ten records of five."""
    size = f"{count} clients, 10 x 5 records"
    most, least = 13, 3
    made: list[dp.Problem] = []
    building = timed(lambda: made.append(_small(count)))
    plans: list[dp.Plan] = []
    planning = timed(lambda: plans.append(_plan(made[0], most)))
    results: list[dp.Result] = []
    seconds = [
        timed(
            lambda r=rounds: results.append(replace(plans[0], rounds=r).run(seed=0, verbose=False))
        )
        for rounds in (most, least)
    ]
    each = (seconds[0] - seconds[1]) / (most - least)
    saying = timed(lambda: str(results[0]))
    for held in (made, plans, results):
        held.clear()
    kept = resident(_small_plan, count)
    note = f"{shown(each / count)} an agent; start and end {shown(seconds[1] - least * each)}"
    return [
        Row("building, many equal agents", "", size, building, None, "s",
            f"{shown(building / count)} an agent"),
        Row("planning, many equal agents", "", size, planning, None, "s",
            f"{shown(planning / count)} an agent"),
        Row("memory of model and plan, per equal agent", "", size,
            None if kept is None else kept / count, None, "B"),
        Row("a round, many equal agents", "", size, each, None, "s", note),
        Row("a result in words, many equal agents", "", size, saying, None, "s"),
    ]  # fmt: skip


def _small(count: int) -> dp.Problem:
    return clients(count, 10, 5)


def _small_plan(count: int) -> dp.Plan:
    return _plan(_small(count), 13)
