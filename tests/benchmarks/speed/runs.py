"""Whole private runs against the solver and gradient calls inside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

import clarabel
import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.model.normal_form import Evaluator
from dpcvx.solvers import conic, libraries

from .instances import BUDGET, METHOD, network, serial_run
from .measure import Effort, Row, shortest, shown, timed

_SOLVER = clarabel.DefaultSolver


@dataclass
class Clock:
    """Seconds inside solvers and gradients.

    Attributes
    ----------
    solver : float
        Updates and solves.
    built : float
        Building solvers after the run's first gradient: each is built when it is first asked, and
        again where a solve had to be repeated.
    gradient : float
    solves, gradients : int
    """

    solver: float = 0.0
    built: float = 0.0
    gradient: float = 0.0
    solves: int = 0
    gradients: int = 0

    def solver_made(self, *arguments: Any) -> _Timed:
        """A solver that counts on this clock."""
        started = time.process_time()
        made = _SOLVER(*arguments)
        self.built += (time.process_time() - started) * (self.gradients > 0)
        return _Timed(self, made)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count everything inside."""
        exact = Evaluator.gradient

        @wraps(exact)
        def gradient(bound: Evaluator, x: Any) -> Any:
            started = time.process_time()
            try:
                return exact(bound, x)
            finally:
                self.gradient += time.process_time() - started
                self.gradients += 1

        with (
            mock.patch.object(libraries.clarabel, "DefaultSolver", self.solver_made),
            mock.patch.object(conic, "newton_for", lambda *_: None),
            mock.patch.object(Evaluator, "gradient", gradient),
        ):
            yield


@dataclass(frozen=True)
class _Timed:
    clock: Clock
    solver: Any

    def update(self, **new: Any) -> None:
        started = time.process_time()
        self.solver.update(**new)
        self.clock.solver += time.process_time() - started

    def solve(self) -> Any:
        started = time.process_time()
        solution = self.solver.solve()
        self.clock.solver += time.process_time() - started
        self.clock.solves += 1
        return solution


def private_run(effort: Effort) -> list[Row]:
    """A private run of the study on the 118-bus network in three zones."""
    rounds = 10 if effort.quick else 100
    plan = network(118, None).plan(METHOD, mechanism=dp.Gaussian(), rounds=rounds, **BUDGET)
    clock = Clock()
    with clock.counting():
        whole = timed(lambda: serial_run(plan, seed=1))
    inside = clock.solver + clock.gradient
    steps = 3 * rounds * METHOD.local_updates
    note = (
        f"{shown(whole)}; solver {shown(clock.solver)} in {clock.solves} solves for {steps} steps, "
        f"built {shown(clock.built)}, gradient {shown(clock.gradient)}"
    )
    return [
        Row(
            "private run, case 118, three zones",
            "solver and gradient inside",
            f"T = {rounds}, E = {METHOD.local_updates}",
            whole / inside,
            1.10,
            note=note,
        ),
        Row(
            "solves per step of this run",
            "one",
            f"T = {rounds}, E = {METHOD.local_updates}",
            clock.solves / steps,
        ),
    ]


def _areas(units: int, private: bool) -> cp.Problem | dp.Problem:
    """Dispatch of five areas over 24 hours: a linear program with ramps and unserved loads."""
    rng, hours, count = np.random.default_rng(0), 24, 5
    ties = [cp.Variable(hours, name=f"tie{k}") for k in range(count)]
    costs, limits, agents = [], [], []
    for k, tie in enumerate(ties):
        g = cp.Variable((units, hours), name=f"g{k}", nonneg=True)
        price, most = rng.uniform(10, 60, (units, 1)), rng.uniform(20, 100, (units, 1))
        day = 0.55 + 0.15 * np.sin(np.arange(hours) / hours * 2 * np.pi)
        load: Any = day * most.sum() * rng.uniform(0.8, 1.2)
        if private:
            load = dp.Private(load, name=f"load{k}", adjacency=dp.Within(5.0))
        unserved = cp.sum(cp.pos(load - cp.sum(g, axis=0) - tie))
        most = most @ np.ones((1, hours))
        costs.append(cp.sum(cp.multiply(price @ np.ones((1, hours)), g)) + 1000 * unserved)
        limits.append([g <= most, cp.abs(cp.diff(g, axis=1)) <= 0.3 * most[:, 1:]])
        limits[k].append(cp.abs(tie) <= 500)
        agents.append((cp.Minimize(costs[k]), limits[k], f"area{k}"))
    return _whole(agents, [cp.Constant(0) == sum(ties)], private)


def _resources(users: int, private: bool) -> cp.Problem | dp.Problem:
    """Users with private utilities share twenty resources: a quadratic program."""
    rng, kinds = np.random.default_rng(0), 20
    supply = users * rng.uniform(0.1, 0.2, kinds)
    shares, agents = [], []
    for k in range(users):
        x = cp.Variable(kinds, name=f"x{k}", nonneg=True)
        worth: Any = rng.uniform(0.5, 2, kinds)
        if private:
            worth = dp.Private(worth, name=f"worth{k}", adjacency=dp.Within(0.05))
        shares.append(x)
        cost = 0.1 * cp.sum_squares(x) - worth @ x
        agents.append((cp.Minimize(cost), [cp.sum(x) <= 4, x <= 1], f"user{k}"))
    return _whole(agents, [sum(shares) <= supply], private)


def _whole(
    agents: list[tuple[cp.Minimize, list[cp.Constraint], str]],
    coupling: list[cp.Constraint],
    private: bool,
) -> cp.Problem | dp.Problem:
    """The agents' problem, in the package with private data and in cvxpy with public ones."""
    if private:
        return dp.Problem([dp.Agent(*agent) for agent in agents], coupling=coupling)
    cost = sum(objective.args[0] for objective, _, _ in agents)
    limits = [limit for _, each, _ in agents for limit in each]
    return cp.Problem(cp.Minimize(cost), [*limits, *coupling])


def whole_problems(effort: Effort) -> list[Row]:
    """Model, default plan and run at epsilon 1 against model and solve in cvxpy with Clarabel."""
    sizes: list[tuple[str, Callable[[int, bool], Any], int, int, float]] = [
        ("dispatch, 5 areas, 24 hours", _areas, 20, 200, 1.5),
        ("resource allocation, 20 resources", _resources, 10, 50, 10.0),
    ]
    rows = []
    for name, make, few, many, aim in sizes:
        count = few if effort.quick else many

        def released(make: Any = make, count: int = count) -> None:
            make(count, True).solve(epsilon=1.0, delta=1e-6, seed=0, verbose=False)

        def solved(make: Any = make, count: int = count) -> None:
            make(count, False).solve(solver=cp.CLARABEL)

        dpcvx, central = shortest([released, solved], min(effort.repeats, 3), time.process_time)
        note = f"{shown(dpcvx)} against {shown(central)}"
        size = f"{count} {'units an area' if make is _areas else 'users'}"
        rows.append(
            Row(name, "cvxpy with Clarabel, public data", size, dpcvx / central, aim, note=note)
        )
    return rows
