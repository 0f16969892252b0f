"""Whole private runs against the solver and gradient calls inside them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

import clarabel

import dpcvx as dp
from dpcvx.model.normal_form import Evaluator
from dpcvx.solvers import conic, interior_point

from .instances import BUDGET, METHOD, network, serial_run
from .measure import Effort, Row, shown, timed

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
            mock.patch.object(interior_point.clarabel, "DefaultSolver", self.solver_made),
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
