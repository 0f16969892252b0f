"""Local steps and gradients against what they are made of."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.privacy.noise import normal_rows
from dpcvx.privacy.randomness import source_for, together
from dpcvx.solvers.projector import Projector

from .instances import (
    BUDGET,
    METHOD,
    Missing,
    Steps,
    boxes,
    modeled,
    polyhedral,
    recorded_steps,
    serial_run,
    tolerances,
)
from .measure import Effort, Row, per_input, shown

_CASES = ((14, None), (118, None), (118, 1), (300, 1))


def _label(case: int, zones: int | None) -> str:
    return f"case {case}, {'one agent' if zones == 1 else 'three zones'}"


@functools.lru_cache(maxsize=4)
def _recorded(case: int, zones: int | None) -> list[Steps]:
    keep, rounds = {14: (40, 20), 118: (6, 10), 300: (4, 4)}[case]
    return recorded_steps(case, zones, rounds, keep)


def _cases(effort: Effort) -> list[tuple[int, int | None]]:
    return [case for case in _CASES if not (effort.quick and case[1] == 1)]


def conic_step(effort: Effort) -> list[Row]:
    """The step against its own solver, with the same numbers."""
    rows = []
    for case, zones in _cases(effort):
        name, against = f"conic step, {_label(case, zones)}", "bare Clarabel, the same numbers"
        try:
            agents = _recorded(case, zones)
        except Missing as missing:
            rows.append(Row(name, against, "", None, 1.10, note=str(missing)))
            continue
        total, attempts, count = np.zeros(3), 0, 0
        for steps in agents:
            bare, plain = steps.bare(), steps.plain(0)

            def ours(k: int, s: Steps = steps) -> object:
                return s.projector(s.points[k], s.weights[k])

            def solver(k: int, s: Steps = steps, solver=bare) -> object:
                solver.update(**s.updates[k])
                return solver.solve()

            def simple(k: int, s: Steps = steps, solver=plain) -> object:
                q = np.zeros(s.constraints.A.shape[1])
                q[: s.constraints.n] = -s.weights[k] * s.points[k]
                solver.update(q=q)
                return solver.solve()

            count += len(steps.points)
            attempts += steps.attempts
            total += len(steps.points) * per_input(
                [ours, solver, simple], len(steps.points), effort.repeats
            )
        ours_, bare_, plain_ = total / count
        size = f"n = {', '.join(str(s.constraints.n) for s in agents)}"
        repeated = f", {attempts} solves for {count} steps" if attempts > count else ""
        note = f"{shown(ours_)} against {shown(bare_)}{repeated}"
        rows.append(Row(name, against, size, ours_ / bare_, 1.10, note=note))
        note = f"{shown(ours_)} against {shown(plain_)}"
        against = "bare Clarabel, update(q) on all of W"
        rows.append(Row(f"{name}, whole W", against, size, ours_ / plain_, note=note))
    return rows


def conic_step_cvxpy(effort: Effort) -> list[Row]:
    """The step against cvxpy, with a parameter and rebuilt, at the same tolerances."""
    required = {14: (1 / 4, 1 / 15), 118: (1 / 2, 1 / 5)}
    rows = []
    for case in (14, 118):
        total, count = np.zeros(3), 0
        agents = _recorded(case, None)
        for steps in agents:
            # cvxpy keeps weights constant; the run's differ from step to step by rounding at most.
            model = modeled(steps.agent, steps.weights[-1])
            accuracy = tolerances(steps.built[5])
            inputs = min(len(steps.points), 3 if effort.quick else 6)

            def ours(k: int, s: Steps = steps) -> object:
                return s.projector(s.points[k], s.weights[-1])

            def resolved(k: int, s: Steps = steps, model=model, accuracy=accuracy) -> object:
                return model.resolve(s.points[k], **accuracy)

            def rebuilt(k: int, s: Steps = steps, model=model, accuracy=accuracy) -> object:
                return model.rebuild(s.points[k], **accuracy)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "solution may be inaccurate"
                count += inputs
                total += inputs * per_input(
                    [ours, resolved, rebuilt], inputs, min(effort.repeats, 3)
                )
        ours_, dpp, rebuild = total / count
        size = f"n = {', '.join(str(s.constraints.n) for s in agents)}"
        for (label, seconds), limit in zip(
            (("cvxpy with a parameter", dpp), ("cvxpy rebuilt", rebuild)),
            required[case],
            strict=True,
        ):
            note = f"{shown(ours_)} against {shown(seconds)}"
            name = f"conic step, {_label(case, None)}, {label}"
            rows.append(Row(name, label, size, ours_ / seconds, limit, note=note))
    return rows


def polyhedral_step(effort: Effort) -> list[Row]:
    """A step on a polyhedron against cvxpy with a parameter and its quickest solver for it."""
    rows = []
    for label, size, inequalities, equalities in (
        ("one row", "x >= 0, 1 inequality", 1, 0),
        ("15 rows", "box, 10 inequalities, 5 equalities", 10, 5),
    ):
        problem = polyhedral(inequalities, equalities)
        plan = problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
        local, agent = plan.program.agents[0], problem.agents[0]
        projector = Projector(local.constraints, local.name)
        D = np.ones(local.n)
        points = 0.5 + np.random.default_rng(1).normal(size=(10, local.n)).cumsum(axis=0) / 10
        # One problem per solver: cvxpy compiles again where a problem changes its solver.
        quadratic, conic = modeled(agent, D), modeled(agent, D)

        def ours(k: int, projector=projector, points=points, D=D) -> object:
            return projector(points[k], D)

        def osqp(k: int, model=quadratic, points=points) -> None:
            model.q.value = points[k]
            model.problem.solve(solver=cp.OSQP, warm_start=True)

        def clarabel(k: int, model=conic, points=points) -> None:
            model.resolve(points[k])

        own, first_order, interior = per_input([ours, osqp, clarabel], len(points), effort.repeats)
        note = f"{shown(own)} against {shown(first_order)} (OSQP), {shown(interior)} (Clarabel)"
        ratio = own / min(first_order, interior)
        name = f"polyhedral step, 100 variables, {label}"
        rows.append(Row(name, "cvxpy with a parameter", size, ratio, 1 / 15, note=note))
    return rows


def closed_form_step(effort: Effort) -> list[Row]:
    """Everything around the gradient and ``numpy.clip`` in a step on a box."""
    n, rounds = 1000, 100
    problem = boxes(2, n, 20, rows=1)
    v = np.random.default_rng(0).normal(size=n)
    clip = per_input([lambda k: np.clip(v, -1.0, 1.0)], 1, 200)[0]
    rows = []
    for label, mechanism, seed in (
        ("no noise", None, None),
        ("noise, seeded", dp.Gaussian(), 0),
        ("noise", dp.Gaussian(), None),
    ):
        budget = {} if mechanism is None else BUDGET
        plan = problem.plan(METHOD, mechanism=mechanism, rounds=rounds, **budget)
        bound = plan.program.agents[0].form.bind([np.zeros(1)])
        # Starting agents is no step: what more rounds add is.
        runs = [plan, replace(plan, rounds=1)]
        calls = [lambda k, p=p, seed=seed: serial_run(p, seed=seed).rounds for p in runs]
        long, short = per_input(calls, 1, effort.repeats)
        step = (long - short) / (2 * (rounds - 1) * METHOD.local_updates)
        gradient = per_input([lambda k, bound=bound: bound.gradient(v)], 1, 200)[0]
        overhead = step - gradient - clip
        note = f"{shown(step)} a step, of which gradient {shown(gradient)}, clip {shown(clip)}"
        rows.append(
            Row(
                f"closed-form step, {label}",
                "gradient and numpy.clip",
                f"box, {n} variables, 2 agents, E = {METHOD.local_updates}",
                1e6 * overhead,
                100.0,
                "us",
                note,
            )
        )
    streams = together([source_for(None, (0,))]).at(1, 1)
    sampling = per_input([lambda k: normal_rows(1e6, n, streams)], 1, 200)[0]
    name, size = "sampling of exact normal noise", f"{n} components"
    return [*rows, Row(name, "part of a step with noise", size, 1e6 * sampling, None, "us")]


def gradient(effort: Effort) -> list[Row]:
    """The normal form's gradient of least squares against numpy."""
    rows = []
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(1000, 1000))
    sparse = sp.random_array((5000, 5000), density=1e-3, random_state=rng, format="csr")
    for label, A, limit in (("dense", dense, 1.5), ("sparse", sparse, 3.0)):
        n = A.shape[1]
        b, x = rng.normal(size=A.shape[0]), rng.normal(size=n)
        z = cp.Variable(n, name="x")
        target = dp.Private(b, name="target", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(A @ z - target))
        problem = dp.Problem([dp.Agent(cost, [cp.abs(z) <= 1], name="all")])
        bound = (
            problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1)
            .program.agents[0]
            .form.bind([b])
        )
        turned = A.T if label == "dense" else sp.csr_array(A.T)

        def by_hand(k: int, A=A, turned=turned, x=x, b=b) -> object:
            return 2 * (turned @ (A @ x - b))

        np.testing.assert_allclose(bound.gradient(x), by_hand(0), rtol=1e-9, atol=1e-9)
        calls = [lambda k, bound=bound, x=x: bound.gradient(x), by_hand]
        ours, theirs = per_input(calls, 1, 20 * effort.repeats)
        size = f"n = {n}" if label == "dense" else f"n = {n}, {A.nnz} non-zeros"
        note = f"{shown(ours)} against {shown(theirs)}"
        rows.append(Row(f"gradient, {label}", "numpy", size, ours / theirs, limit, note=note))
    return rows
