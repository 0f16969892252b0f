"""Defaults have units: a problem in other units is planned, and solved, the same."""

from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.penalties import as_penalty
from dpcvx.algorithms.steps import as_step

ROWS = np.array([[0.6, 0.8], [1.0, 0.0], [-0.28, 0.96], [0.0, -1.0]])
TARGETS = np.array([[0.5, -0.25], [0.1, 0.4], [-0.3, 0.2]])


# Each takes the unit of the objectives and of the variables, and is one problem in all of them.


def squares(value, length, bounded=True):
    """Three agents, private targets."""
    x = cp.Variable(2, name="x")
    agents = []
    for k, target in enumerate(TARGETS):
        d = dp.Private(target * length, name=f"d{k}", adjacency=dp.Within(0.02 * length))
        cost = cp.sum_squares((1 + 0.3 * k) * x - d) * (value / length**2)
        limits = [cp.abs(x) <= length] if bounded else []
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=f"a{k}"))
    return dp.Problem(agents)


def free_squares(value, length):
    return squares(value, length, bounded=False)


def losses(value, length):
    """Three agents with records, no bounds."""
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(3):
        rows = dp.Private(np.roll(ROWS, k, 0) / length, name=f"X{k}", adjacency=dp.Rows(1 / length))
        cost = cp.sum(cp.logistic(rows @ x)) / 4 + 0.1 * cp.sum_squares(x) / length**2
        agents.append(dp.Agent(cp.Minimize(value * cost), name=f"a{k}"))
    return dp.Problem(agents)


def hinges(value, length):
    """Slopes that jump, in a box."""
    x = cp.Variable(2, name="x")
    agents = []
    for k in range(3):
        rows = dp.Private(np.roll(ROWS, k, 0) / length, name=f"X{k}", adjacency=dp.Rows(1 / length))
        cost = value * cp.sum(cp.pos(1 - rows @ x)) / 4
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 3 * length], name=f"a{k}"))
    return dp.Problem(agents)


def balance(value, length):
    """Variables of each one's own, tied by a balance."""
    agents, own = [], []
    for k, target in enumerate(TARGETS):
        x = cp.Variable(2, name=f"x{k}")
        d = dp.Private(target * length, name=f"d{k}", adjacency=dp.Within(0.02 * length))
        cost = (1 + k) * cp.sum_squares(x - d) * (value / length**2)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 2 * length], name=f"a{k}"))
        own.append(x)
    return dp.Problem(agents, coupling=[sum(own) == np.array([0.3, -0.1]) * length])


def tied(value, length):
    """Two users and a public block."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    agents = []
    for k, target in enumerate(TARGETS[:2]):
        d = dp.Private(target * length, name=f"d{k}", adjacency=dp.Within(0.02 * length, norm=2))
        cost = cp.sum_squares((1 + k) * x - d) * (value / length**2)
        agents.append(dp.Agent(cp.Minimize(cost), name=f"a{k}"))
    public = cp.norm1(y) * (0.1 * value / length) + cp.sum_squares(y) * (value / length**2)
    agents.append(dp.Agent(cp.Minimize(public), name="public"))
    return dp.Problem(agents, coupling=[x == y])


CASES = {
    "linearized": (dp.LinearizedADMM(), squares),
    "linearized, records": (dp.LinearizedADMM(), losses),
    "linearized, hinges": (dp.LinearizedADMM(), hinges),
    "linearized, E = 3": (dp.LinearizedADMM(local_updates=3), squares),
    "ADMM": (dp.ADMM(), squares),
    "mean gradient": (dp.FederatedAveraging(), losses),
    "mean gradient, hinges": (dp.FederatedAveraging(), hinges),
    "decentralized gradient": (dp.DecentralizedGradient("ring"), squares),
    "decentralized ADMM": (dp.DecentralizedADMM("path", randomness=0.0), squares),
    "primal-dual": (dp.PrimalDual("ring"), losses),
    "gradient tracking": (dp.GradientTracking("ring"), free_squares),
    "DPP2": (dp.DPP2("ring"), free_squares),
    "resource ADMM": (dp.ResourceADMM(randomness=0.0), balance),
    "gradient ADMM": (dp.GradientADMM(), tied),
    "gradient ADMM, contracting": (dp.GradientADMM(step="contraction"), tied),
}
# No power of the one is a power of the other.
UNITS = (1e3, 0.013)


@cache
def planned(name, noise, units=(1.0, 1.0)):
    method, model = CASES[name]
    budget = {} if noise is None else {"epsilon": 1.0, "delta": 1e-6}
    return model(*units).plan(method, mechanism=noise, rounds=30, **budget)


def numbers(algorithm, value, length):
    """Steps and penalties of a resolved method, in units of their own; step times what it weighs.

    A step is a squared length over a value; every weight of a difference is its inverse.
    """
    rule = as_step(algorithm.step) if hasattr(algorithm, "step") else None
    unit = length**2 / value
    found = [] if rule is None else [rule.eta(1) / unit, rule.eta(7) / unit]
    for name in ("penalty", "dual_step"):
        given = getattr(algorithm, name, None)
        if given is not None:
            found.append(as_penalty(given).next(1, None, 0.0, 0.0) * unit)
    if getattr(algorithm, "neighbor_step", None) is not None:
        found.append(algorithm.neighbor_step / unit)
    return found


@pytest.mark.parametrize("noise", ["gaussian", "laplace", None], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_numbers_that_a_plan_chooses_have_the_units_of_the_problem(name, noise):
    plain, scaled = planned(name, noise), planned(name, noise, UNITS)
    expected = numbers(plain.algorithm, 1.0, 1.0)
    assert expected
    # Bounds of sets and sensitivities are found to about a millionth.
    np.testing.assert_allclose(numbers(scaled.algorithm, *UNITS), expected, rtol=1e-4)
    assert scaled.reported == plain.reported


@pytest.mark.parametrize("name", CASES)
def test_runs_without_noise_are_the_same_in_other_units(name):
    plain, scaled = (planned(name, None, unit).run() for unit in ((1.0, 1.0), UNITS))
    for one, other in zip(plain.last.vectors, scaled.last.vectors, strict=True):
        # Conic solvers stop at a tolerance with a unit.
        np.testing.assert_allclose(other / UNITS[1], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["linearized", "linearized, records", "ADMM", "resource ADMM"])
def test_runs_without_noise_end_closer_than_they_began(name):
    method, model = CASES[name]
    problem = model(1.0, 1.0)
    result = problem.plan(method, mechanism=None, rounds=100).run()
    central = dp.not_private.joint_problem(problem)
    central.solve()
    best = central.value
    start = {v: np.zeros(v.shape) for v in problem.variables()}
    for v, value in start.items():
        v.value = value
    nothing = central.objective.value
    for v in problem.variables():
        v.value = result.solution[v]
    assert central.objective.value - best < 1e-3 * (nothing - best)


def test_explicit_numbers_stay_as_they_are():
    plan = squares(1.0, 1.0).plan(
        dp.LinearizedADMM(penalty=3.0, step=0.1), epsilon=1.0, delta=1e-6, rounds=5
    )
    assert plan.algorithm.step == dp.steps.Constant(0.1)
    assert plan.algorithm.penalty == dp.penalties.Fixed(3.0)
    assert plan.reported == "average"
    unlike = replace(plan.algorithm, returned="last")
    assert squares(1.0, 1.0).plan(unlike, epsilon=1.0, delta=1e-6, rounds=5).reported == "last"
