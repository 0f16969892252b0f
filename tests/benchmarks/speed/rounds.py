"""Rounds of ADMM to a small gap, next to fixed penalties and to textbook ADMM that balances.

Rounds do not depend on the machine, so these rows are numbers and not seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import cvxpy as cp
import numpy as np
from cvxpy.constraints.zero import Zero

import dpcvx as dp
from dpcvx.run.data import sources_of
from dpcvx.run.gate import read_for_gradients
from dpcvx.run.loop import whole_start
from dpcvx.run.solution import Solution
from dpcvx.solvers.conic import ConicProgram
from problems.power_flow.study import power_flow

from .measure import Array, Effort, Row

# Gap to stay within, relative to the optimum.
GAP = 1e-4
ADJACENCY = dp.Within(0.1)
# Fixed penalties by hand, relative to what a plan starts from.
_FACTORS = (1e-3, 1e-2, 0.1, 1.0, 10.0)
# Where both balance: the plan's start, and a factor off.
_OFF = (0.1, 1.0, 10.0)


def lasso() -> dp.Problem:
    """Ten agents, 60 records each, 100 coefficients."""
    rng, x = np.random.default_rng(0), cp.Variable(100, name="x")
    true = np.where(rng.random(100) < 0.1, rng.normal(size=100), 0)
    agents = []
    for k in range(10):
        A = rng.normal(size=(60, 100))
        labels = A @ true + 0.1 * rng.normal(size=60)
        b = dp.Private(labels, name=f"b{k}", adjacency=ADJACENCY)
        cost = cp.sum_squares(A @ x - b) + cp.norm1(x)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 5], name=f"agent {k}"))
    return dp.Problem(agents)


def svm() -> dp.Problem:
    """Five agents, 40 public records each, and a private linear term."""
    rng, w = np.random.default_rng(0), cp.Variable(20, name="w")
    true, agents = rng.normal(size=20), []
    for k in range(5):
        X = rng.normal(size=(40, 20)) / np.sqrt(20)
        y = np.sign(X @ true + 0.1 * rng.normal(size=40))
        tilt = dp.Private(0.1 * rng.normal(size=20), name=f"tilt{k}", adjacency=ADJACENCY)
        hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
        cost = hinge + 0.1 * cp.sum_squares(w) + tilt @ w
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm(w, "inf") <= 10], name=f"agent {k}"))
    return dp.Problem(agents)


def dispatch() -> dp.Problem:
    """Three areas of ten units over 24 hours, with private loads, tied by exchanges."""
    rng, hours, agents = np.random.default_rng(0), 24, []
    ties = [cp.Variable(hours, name=f"tie{k}") for k in range(3)]
    for k in range(3):
        g = cp.Variable((10, hours), name=f"g{k}")
        most = rng.uniform(5, 15, size=(10, 1))
        price, bend = rng.uniform(10, 40, size=(10, 1)), rng.uniform(0.01, 0.1, size=(10, 1))
        daily = 0.5 + 0.2 * np.sin(np.arange(hours) / hours * 2 * np.pi + k)
        load = most.sum() * (daily + 0.03 * rng.normal(size=hours))
        need = dp.Private(load, name=f"load{k}", adjacency=ADJACENCY)
        out, into = ties[k], ties[(k + 1) % 3]
        missing = cp.sum(g, axis=0) + out - into - need
        cost = cp.sum(cp.multiply(price, g)) + cp.sum(cp.multiply(bend, cp.square(g)))
        ramps = cp.abs(cp.diff(g, axis=1)) <= 3
        limits = [
            g >= 0,
            g <= most @ np.ones((1, hours)),
            ramps,
            cp.abs(out) <= 20,
            cp.abs(into) <= 20,
        ]
        whole = cp.Minimize(cost + 1000 * cp.sum_squares(missing))
        agents.append(dp.Agent(whole, limits, name=f"area {k}"))
    return dp.Problem(agents)


def opf() -> dp.Problem:
    """The 118-bus network at one and a half times its loads; the optimum is 0.1022."""
    return power_flow(118, load_scale=1.5).problem


def resource() -> dp.Problem:
    """Twenty users with private wishes divide ten supplies."""
    rng = np.random.default_rng(0)
    shares = [cp.Variable(10, name=f"x{k}") for k in range(20)]
    agents = []
    for k, x in enumerate(shares):
        wish = dp.Private(rng.uniform(0, 2, size=10), name=f"wish{k}", adjacency=ADJACENCY)
        cost = cp.sum(cp.multiply(rng.uniform(0.5, 2, size=10), cp.square(x - wish)))
        agents.append(dp.Agent(cp.Minimize(cost), [x >= 0, x <= 3], name=f"user {k}"))
    return dp.Problem(agents, coupling=[Zero(cp.sum(cp.vstack(shares), axis=0) - 14 * np.ones(10))])


def exchange() -> dp.Problem:
    """Ten traders with private positions exchange ten goods."""
    rng = np.random.default_rng(1)
    trades = [cp.Variable(10, name=f"x{k}") for k in range(10)]
    agents = []
    for k, x in enumerate(trades):
        held = dp.Private(3 * rng.normal(size=10), name=f"held{k}", adjacency=ADJACENCY)
        M = rng.normal(size=(10, 10)) / np.sqrt(10)
        cost = cp.sum_squares(M @ x - held) + 0.05 * cp.sum_squares(x)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 5], name=f"trader {k}"))
    return dp.Problem(agents, coupling=[Zero(cp.sum(cp.vstack(trades), axis=0))])


def optimum(problem: dp.Problem) -> float:
    """The value of the problem with all data in one place."""
    joint = dp.not_private.joint_problem(problem)
    joint.solve(cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(joint.value)  # type: ignore[arg-type]


def arrived(gaps: Sequence[float]) -> int | None:
    """The first round from which on all gaps are small; None if there is none."""
    large = np.flatnonzero(~(np.abs(gaps) <= GAP))
    found = int(large[-1]) + 2 if large.size else 1
    return found if found <= len(gaps) else None


def taken(problem: dp.Problem, method: dp.ADMM | dp.ResourceADMM, rounds: int, best: float):
    """Rounds of a run without noise, and what the method noted."""
    plan = problem.plan(method, mechanism=None, rounds=rounds)
    result = plan.run(iterates=True, verbose=False, executor=dp.Serial())
    values = [dp.not_private.objective(problem, one.last) for one in result.iterates]
    return arrived([value / best - 1 for value in values]), result.notes


def textbook(problem: dp.Problem, rho: float, rounds: int, best: float) -> int | None:
    """Consensus ADMM in numpy that balances relative residuals as OSQP does; its rounds.

    OSQP (Stellato and others, 2020, section 5.2) multiplies rho by the square root of the ratio of
    relative residuals where that is above 5 or below 1/5. Local steps are solved exactly by the
    solver that plans use: rounds do not depend on what solves them.
    """
    plan = problem.plan(dp.ADMM(rho), mechanism=None, rounds=1)
    agents, holders = plan.program.agents, plan.program.holders
    slots = np.concatenate([a.slots for a in agents])
    steps = [ConicProgram(a.exact) for a in agents if a.exact is not None]
    data = zip(agents, sources_of(problem, {}), strict=True)
    forms = [(a, a.form.bind(read_for_gradients(a.form, theirs))) for a, theirs in data]
    linear = [bound.gradient(a.start) - a.form.at_zero().gradient(a.start) for a, bound in forms]
    places = np.cumsum([a.slots.size for a in agents])[:-1]

    def mean(values: Array) -> Array:
        total = np.zeros(plan.program.size)
        np.add.at(total, slots, values)
        return (total / holders)[slots]

    start, points = whole_start(problem), [a.start for a in agents]
    w = mean(np.concatenate([a.start[a.shared] for a in agents]))
    lam, gaps = np.zeros_like(w), []
    for _ in range(rounds):
        for k, (a, target) in enumerate(zip(agents, np.split(rho * w + lam, places), strict=True)):
            D, c = np.zeros(a.n), linear[k].copy()
            D[a.shared], c[a.shared] = rho, c[a.shared] - target
            found = steps[k].solve(D, c, points[k]).x
            points[k] = points[k] if found is None else found
        z = np.concatenate([x[a.shared] for x, a in zip(points, agents, strict=True)])
        now = Solution(plan.program, tuple(points), start)
        gaps.append(dp.not_private.objective(problem, now) / best - 1)
        lam = lam + rho * (w - z)
        new = mean(z - lam / rho)
        primal = np.linalg.norm(w - z) / max(np.linalg.norm(z), np.linalg.norm(new))
        dual = rho * np.linalg.norm(new - w) / np.linalg.norm(lam)
        factor = np.sqrt(primal / dual) if primal > 0 and dual > 0 else 1.0
        if not 1 / 5 <= factor <= 5:
            rho *= float(factor)
            new = mean(z - lam / rho)
        w = new
    return arrived(gaps)


def rounds(effort: Effort) -> list[Row]:
    """Rounds to a gap of 1e-4 without noise."""
    rows = []
    problems = {"lasso": lasso, "SVM": svm, "dispatch": dispatch}
    if not effort.quick:
        problems["118 buses"] = opf
    for name, made in problems.items():
        problem, most = made(), 60 if name == "lasso" else 150
        best = optimum(problem)
        chosen = problem.plan(dp.ADMM(), mechanism=None, rounds=1).algorithm
        assert isinstance(chosen, dp.ADMM)
        assert isinstance(chosen.penalty, dp.penalties.Spectral)
        start = chosen.penalty.penalty
        own, notes = taken(problem, dp.ADMM(), most, best)
        label, size = f"rounds of ADMM, {name}", f"{len(problem.agents)} agents"
        plain = [dp.ADMM(start * f, relaxation=1, acceleration=0) for f in _FACTORS]
        fixed = [taken(problem, method, most, best)[0] for method in plain]
        hand = min((one for one in fixed if one is not None), default=None)
        rows.append(
            _row(label, "the best of five fixed penalties", size, own, hand, 1.5, notes, most)
        )
        for factor in _OFF:
            rho = start * factor
            method = dp.ADMM(dp.penalties.Spectral(rho))
            own, notes = taken(problem, method, most, best)
            theirs = textbook(problem, rho, most, best)
            label = f"rounds of ADMM from {factor:g} times the plan's penalty, {name}"
            against = "ADMM in numpy, balanced as by OSQP"
            rows.append(_row(label, against, size, own, theirs, 1.0, notes, most))
    for name, made in {"resource": resource, "exchange": exchange}.items():
        problem = made()
        best = optimum(problem)
        own, notes = taken(problem, dp.ResourceADMM(exact=True), 100, best)
        first_order = taken(problem, dp.ResourceADMM(), 100, best)[0] or "over 100"
        found = problem.plan(dp.ResourceADMM(), mechanism=None, rounds=1).algorithm
        assert isinstance(found, dp.ResourceADMM) and found.step is not None
        hand = [
            taken(problem, _exactly(problem, factor / found.step), 100, best)[0]
            for factor in (0.03, 0.1, 0.3, 1.0, 3.0)
        ]
        least = min((one for one in hand if one is not None), default=None)
        label, size = f"rounds of ResourceADMM, {name}", f"{len(problem.agents)} agents"
        notes = (*notes, f"First-order steps: {first_order}.")
        rows.append(
            _row(label, "exact steps, the best of five weights", size, own, least, 1.5, notes, 100)
        )
    return rows


def _exactly(problem: dp.Problem, weight: float) -> dp.ResourceADMM:
    """ADMM of the exchange problem, Boyd et al. (2011), section 7.3.2."""
    penalty = weight / len(problem.agents)
    return dp.ResourceADMM(penalty, step=1 / weight, randomness=0.0, exact=True)


def _row(
    name: str,
    against: str,
    size: str,
    own: int | None,
    other: int | None,
    required: float,
    notes: Sequence[str],
    most: int,
) -> Row:
    """A ratio of rounds; one that took too many counts as `most`."""
    told = " against ".join(f"{one}" if one is not None else f"over {most}" for one in (own, other))
    note = " ".join([f"{told} rounds", *notes])
    ratio = (own or 2 * most) / (other or most)
    return Row(name, against, size, ratio, required, "", note)
