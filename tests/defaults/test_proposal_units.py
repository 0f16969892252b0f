"""Defaults that follow the function: not its spelling, not its units, not who holds which term."""

import math
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

RNG = np.random.default_rng(0)
N, D = 40, 3
FEATURES = RNG.normal(size=(N, D))
FEATURES /= np.maximum(1, np.linalg.norm(FEATURES, axis=1))[:, None]
TARGETS = np.clip(FEATURES @ [0.5, -0.3, 0.2] + 0.1 * RNG.normal(size=N), -1, 1)
LABELS = np.sign(TARGETS)
LOSSES = {
    "squares": lambda X, y, w, t: cp.sum_squares(X @ w - y),
    "Huber": lambda X, y, w, t: cp.sum(cp.huber(X @ w - y, t / 4)),
    "magnitudes": lambda X, y, w, t: cp.norm1(X @ w - y),
    "logistic": lambda X, y, w, t: cp.sum(cp.logistic(-cp.multiply(y, X @ w))),
    "hinge": lambda X, y, w, t: cp.sum(cp.pos(1 - cp.multiply(y, X @ w))),
}
# What the units of the features and of the targets are multiplied by, and the objective.
UNITS = [(2.0**-7, 1, 1), (2.0**7, 1, 1), (1, 2.0**10, 1), (1, 2.0**-10, 1)]
TARGET_UNITS = [(1, 1, 2.0**10), (1, 1, 2.0**-10), (2.0**5, 2.0**-3, 2.0**4)]
ODD_UNITS = [(0.01, 1, 1), (100, 1, 1), (1, 1000, 1), (1, 1, 0.001)]
CLASSIFIERS = ("logistic", "hinge")
PENALTIES = {
    "none": lambda w: 0,
    "magnitudes": cp.norm1,
    "norm": lambda w: cp.norm(w, 2),
}
# A power of the unit of the targets is that of a loss.
POWER = {"squares": 2, "Huber": 2, "magnitudes": 1, "logistic": 0, "hinge": 0}


def fitted(loss, penalty="none", units=(1, 1, 1), clip=None):
    """A problem, its variable, the unit of the variable, and that of gradients."""
    c, f, t = units
    labels = LABELS if loss in CLASSIFIERS else TARGETS
    X = dp.Private(FEATURES * f, name="X", adjacency=dp.Rows(f, records="person"))
    y = dp.Private(labels * t, name="y", adjacency=dp.Rows(t, records="person"))
    w, unit, size = cp.Variable(D, name="w"), t / f, c * t ** POWER[loss]
    cost = c * LOSSES[loss](X, y, w, t) + 3 * size / unit * PENALTIES[penalty](w)
    agent = dp.Agent(cp.Minimize(cost), [cp.norm(w) <= unit], clip_norm=clip)
    return dp.Problem([agent]), w, unit, size / unit


def choices(plan, slope=1.0):
    """What a plan chose, without units."""
    (agent,) = plan.agents
    clip = agent.program.clip
    numbers = [agent.sensitivity.bound(2).value / slope, agent.noise.multiplier]
    numbers.append(0.0 if clip in (None, math.inf) else clip / slope)
    return (type(plan.algorithm), plan.rounds, plan.release, plan.reported), numbers


def in_units(loss):
    return UNITS if loss in CLASSIFIERS else UNITS + TARGET_UNITS


@pytest.mark.parametrize(
    ("loss", "units"), [(loss, units) for loss in LOSSES for units in in_units(loss)]
)
def test_units_that_are_powers_of_two_change_no_bit(loss, units):
    assert solved(loss, (1, 1, 1)) == solved(loss, units)


@cache
def solved(loss, units):
    """What a plan chose, and the answer of a run without noise, without units."""
    problem, w, unit, slope = fitted(loss, units=units, clip=math.inf)
    chosen, numbers = choices(problem.plan(epsilon=1.0, delta=1e-6), slope)
    problem.plan(dp.FederatedGradient(), rounds=4, mechanism=None).run()
    return chosen, numbers, (w.value / unit).tolist()


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("units", UNITS + TARGET_UNITS + ODD_UNITS)
def test_clips_and_rounds_are_the_same_in_any_units(penalty, units):
    (chosen, numbers), (other, others) = (chosen_in(penalty, own) for own in ((1, 1, 1), units))
    assert other == chosen and numbers[-1] > 0
    # Clips are rounded to three decimal digits.
    np.testing.assert_allclose(others, numbers, rtol=6e-3)


@cache
def chosen_in(penalty, units):
    """What a plan for squares chose, without units."""
    problem, _, _, slope = fitted("squares", penalty, units)
    return choices(problem.plan(epsilon=1.0, delta=1e-6), slope)


LOOPS = {
    "squares": lambda X, y, w: sum((X[i] @ w - y[i]) ** 2 for i in range(N)),
    "Huber": lambda X, y, w: sum(cp.huber(X[i] @ w - y[i], 0.25) for i in range(N)),
    "magnitudes": lambda X, y, w: sum(cp.abs(X[i] @ w - y[i]) for i in range(N)),
    "logistic": lambda X, y, w: sum(cp.logistic(-y[i] * (X[i] @ w)) for i in range(N)),
    "hinge": lambda X, y, w: sum(cp.pos(1 - y[i] * (X[i] @ w)) for i in range(N)),
}


@pytest.mark.parametrize("loss", LOOPS)
def test_a_loop_over_records_has_the_plan_and_the_bits_of_its_vectorized_form(loss):
    found = []
    for looped in (False, True):
        problem, w, _, _ = fitted(loss)
        if looped:
            (agent,) = problem.agents
            private = {p.name(): p for p in agent.private}
            cost = LOOPS[loss](private["X"], private["y"], w)
            problem = dp.Problem([dp.Agent(cp.Minimize(cost), agent.constraints)])
        plan = problem.plan(epsilon=1.0, delta=1e-6)
        problem.plan(dp.FederatedGradient(), rounds=4, mechanism=None).run()
        step = str(getattr(plan.algorithm, "step", None))
        found.append((*choices(plan), step, w.value.tolist()))
    assert found[0] == found[1]


SPELLINGS = [
    lambda r: cp.sum_squares(r),
    lambda r: cp.norm(r) ** 2,
    lambda r: r @ r,
    lambda r: cp.quad_form(r, np.eye(N)),
    lambda r: cp.sum(cp.multiply(r, r)),
]


@pytest.mark.parametrize("records", [False, True], ids=["entries", "records"])
def test_spellings_of_squares_release_the_same_bits(records):
    found = []
    for spelling in SPELLINGS:
        w = cp.Variable(D, name="w")
        unit = dp.Rows(1.0, records="person") if records else dp.Within(0.1)
        X = dp.Private(FEATURES, name="X", adjacency=unit) if records else FEATURES
        y = dp.Private(TARGETS, name="y", adjacency=unit)
        agent = dp.Agent(cp.Minimize(spelling(X @ w - y)), [cp.norm(w) <= 1])
        plan = dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6)
        plan.run(seed=3)
        found.append((plan.fingerprint, plan.rounds, w.value.tolist()))
    assert all(one == found[0] for one in found)


def test_a_penalty_of_its_own_agent_changes_no_bound():
    problem, w, _, _ = fitted("squares", "magnitudes")
    chosen, numbers = choices(problem.plan(epsilon=1.0, delta=1e-6))
    (agent,) = problem.agents
    X, y = agent.private if agent.private[0].name() == "X" else agent.private[::-1]
    fit = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y)), agent.constraints)
    apart = dp.Problem([fit, dp.Agent(cp.Minimize(3 * cp.norm1(w)))])
    plan = apart.plan(epsilon=1.0, delta=1e-6)
    assert (type(plan.algorithm), plan.release) == (chosen[0], chosen[2])
    one = plan.agents[0]
    assert [one.sensitivity.bound(2).value, one.program.clip] == [numbers[0], numbers[2]]
