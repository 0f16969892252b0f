"""Step-size rules against hand values, and the averages of the linearized method."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.base import Local
from dpcvx.algorithms.consensus import Broadcast
from dpcvx.algorithms.facts import Conditions
from dpcvx.algorithms.program import compile_problem
from dpcvx.defaults.conditions import RunFacts
from dpcvx.solvers.projector import Projector

NAN = float("nan")


def program(*costs, proximal=True):
    """One agent per cost, a function of a shared vector of length 2."""
    x = cp.Variable(2, name="x")
    agents = [dp.Agent(cp.Minimize(c(x)), name=f"a{k}") for k, c in enumerate(costs)]
    return compile_problem(dp.Problem(agents), proximal=proximal)


QUIET = Conditions(100, (0.0, 0.0), (0.0, 0.0))
STEEP = cp.Constant(np.diag([1.0, 3.0]))
QUADRATICS = (lambda x: cp.sum_squares(STEEP @ x), lambda x: 0.5 * cp.sum_squares(x))


def test_constant_step():
    rule = dp.steps.Constant(0.25)
    assert [rule.eta(t) for t in (1, 9)] == [0.25, 0.25]
    assert rule.weight(1) == rule.weight(9) and rule.averages_new


def test_constant_step_defaults_to_one_over_the_largest_smoothness():
    assert dp.steps.Constant().resolved(program(*QUADRATICS), 1.0).eta(1) == pytest.approx(1 / 18)


@pytest.mark.parametrize(("t", "expected"), [(1, 0.5), (2, 0.45), (3, 0.405), (11, 0.5 * 0.9**10)])
def test_geometric_step(t, expected):
    rule = dp.steps.Geometric(0.9, 0.5)
    assert rule.eta(t) == pytest.approx(expected, rel=1e-14)
    assert rule.weight(t) == rule.weight(1) and rule.averages_new
    assert str(rule) == "step = 0.5 * 0.9^(t - 1)"


def test_geometric_step_begins_at_one_over_the_largest_smoothness():
    rule = dp.steps.Geometric(0.5)
    assert str(rule) == "step = 1/L * 0.5^(t - 1)"
    assert rule.resolved(program(*QUADRATICS), 1.0).eta(3) == pytest.approx(1 / 72)
    given = dp.steps.Geometric(0.5, 2.0)
    assert given.resolved(program(lambda x: cp.norm1(x)), 1.0) is given


def test_geometric_steps_are_for_all_methods():
    method = dp.LinearizedADMM(penalty=1.0, step=dp.steps.Geometric(0.5))
    assert method.propose(RunFacts(program(*QUADRATICS), QUIET)).step.eta(1) == pytest.approx(
        1 / 18
    )


@pytest.mark.parametrize("ratio", [0.0, 1.0, 1.5, -0.5, NAN, math.inf, "1/2", True])
def test_a_geometric_ratio_lies_between_0_and_1(ratio):
    with pytest.raises(dp.ModelError, match=r"must be a number between 0 and 1.*dp.steps.Constant"):
        dp.steps.Geometric(ratio)


@pytest.mark.parametrize(("t", "expected"), [(1, 1 / 5), (4, 1 / 7), (100, 1 / 23)])
def test_smooth_step_is_equation_25a(t, expected):
    rule = dp.steps.Smooth(L=3.0, c=0.5)
    assert rule.eta(t) == pytest.approx(expected, rel=1e-14)
    assert rule.weight(t) == rule.weight(1) and rule.averages_new


def test_smooth_step_derives_its_constants():
    rule = dp.steps.Smooth().resolved(program(*QUADRATICS), 0.25)
    assert rule.L == pytest.approx(18.0)
    assert rule.c == 0.25
    assert dp.steps.Smooth(L=2.0, c=0.1).resolved(program(*QUADRATICS), 0.25) == dp.steps.Smooth(
        2.0, 0.1
    )


def test_smooth_step_without_noise_is_one_over_L():
    assert dp.steps.Smooth(L=4.0).resolved(program(*QUADRATICS), math.inf).eta(50) == 0.25


@pytest.mark.parametrize(("t", "expected"), [(1, 1.0), (4, 0.5), (100, 0.1)])
def test_sqrt_step_is_equation_26a(t, expected):
    rule = dp.steps.Sqrt()
    assert rule.eta(t) == pytest.approx(expected, rel=1e-14)
    assert rule.weight(t) == rule.weight(1) and not rule.averages_new


@pytest.mark.parametrize(("t", "expected"), [(1, 4 / 3), (2, 1.0), (18, 0.2)])
def test_strongly_convex_step_is_equation_27a(t, expected):
    rule = dp.steps.StronglyConvex(alpha=0.5)
    assert rule.eta(t) == pytest.approx(expected, rel=1e-14)
    assert not rule.averages_new


def test_strongly_convex_weights_are_2t_over_T_T_plus_1():
    rule, T = dp.steps.StronglyConvex(alpha=1.0), 7
    weights = np.array([rule.weight(t) for t in range(1, T + 1)])
    expected = [2 * t / (T * (T + 1)) for t in range(1, T + 1)]
    assert weights / weights.sum() == pytest.approx(expected)


def test_strongly_convex_step_takes_the_weakest_agent():
    rule = dp.steps.StronglyConvex().resolved(program(*QUADRATICS), 1.0)
    assert rule.alpha == pytest.approx(1.0)


def test_a_modulus_that_does_not_exist_is_refused_by_agent():
    with pytest.raises(dp.ModelError, match="'a1'"):
        dp.steps.StronglyConvex().resolved(program(QUADRATICS[0], lambda x: cp.sum(x)), 1.0)


@pytest.mark.parametrize("rule", [dp.steps.Constant(), dp.steps.Geometric(0.9), dp.steps.Smooth()])
def test_a_smoothness_that_does_not_exist_is_refused_by_agent(rule):
    with pytest.raises(dp.ModelError, match="'a1'"):
        rule.resolved(program(QUADRATICS[0], lambda x: cp.norm1(x), proximal=False), 1.0)


def test_the_default_step_without_noise_is_one_over_L_where_there_is_one():
    smooth = dp.LinearizedADMM().propose(RunFacts(program(*QUADRATICS), QUIET))
    costs = QUADRATICS[0], lambda x: cp.norm1(x)
    rough = dp.LinearizedADMM().propose(RunFacts(program(*costs, proximal=False), QUIET))
    exact = dp.LinearizedADMM().propose(RunFacts(program(*costs), QUIET))
    assert smooth.step.eta(1) == smooth.step.eta(9) == pytest.approx(1 / 18)
    assert smooth.penalty.penalty == pytest.approx(18)
    assert isinstance(rough.step, dp.steps.Sqrt)
    assert exact.step.eta(1) == pytest.approx(1 / 18)  # steps minimize the norm exactly


def test_square_root_steps_are_equation_26a_unless_they_begin_elsewhere():
    assert [dp.steps.Sqrt().eta(t) for t in (1, 4)] == [1.0, 0.5]
    assert [dp.steps.Sqrt(0.1).eta(t) for t in (1, 4)] == [0.1, 0.05]
    assert str(dp.steps.Sqrt()) == "step = 1 / sqrt(t)"
    assert str(dp.steps.Sqrt(0.1)) == "step = 0.1 / sqrt(t)"


@pytest.mark.parametrize("value", [0.0, -1.0, NAN, math.inf])
@pytest.mark.parametrize(
    "build",
    [
        dp.steps.Constant,
        lambda v: dp.steps.Geometric(0.9, v),
        lambda v: dp.steps.Smooth(L=v),
        lambda v: dp.steps.StronglyConvex(alpha=v),
    ],
)
def test_constants_outside_their_range_are_refused(build, value):
    with pytest.raises(dp.ModelError, match="positive finite"):
        build(value)


@pytest.mark.parametrize("value", [0.0, -1.0, NAN])
def test_smooth_step_refuses_an_epsilon_that_is_none(value):
    with pytest.raises(dp.ModelError, match="epsilon"):
        dp.steps.Smooth(c=value)


class Recorded:
    """Answers prescribed gradients."""

    def __init__(self, gradients):
        self._gradients = iter(gradients)

    def release(self, query):
        return next(self._gradients)


RULES = [
    dp.steps.Constant(0.5),
    dp.steps.Geometric(0.7, 0.5),
    dp.steps.Smooth(1.0, 1.0),
    dp.steps.Sqrt(),
    dp.steps.StronglyConvex(1.0),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("updates", [1, 3])
def test_the_reported_average_is_the_weighted_mean_of_the_iterates(rule, updates):
    local = program(*QUADRATICS).agents[0]
    rounds, rho = 4, 2.0
    method = dp.LinearizedADMM(penalty=rho, step=rule, local_updates=updates)
    rng = np.random.default_rng(4)
    gradients = rng.normal(size=(rounds * updates, 2))
    broadcasts = rng.normal(size=(rounds, 2))
    tools = Local(local, Projector(local.constraints, "a"), None, lambda x: x)
    state, oracle = method.start_agent(tools), Recorded(gradients)
    x, lam = np.zeros(2), np.zeros(2)
    old, new, weights = [], [], []
    supply = iter(gradients)
    for t in range(1, rounds + 1):
        w, eta = broadcasts[t - 1], rule.eta(t)
        state, copy = method.act(tools, state, t, 0, Broadcast(w, rho), oracle)
        mean = np.zeros(2)
        for _ in range(updates):
            old.append(x)
            # Stationarity of (10): g + (x+ - x)/eta - rho (w - x+ + lam/rho) = 0.
            x = (x / eta + rho * w + lam - next(supply)) / (1 / eta + rho)
            new.append(x)
            weights.append(t if isinstance(rule, dp.steps.StronglyConvex) else 1)
            mean = mean + x / updates
        lam = lam + rho * (w - mean)
        assert copy.z == pytest.approx(mean)
        assert state.lam is copy.lam
        assert copy.lam == pytest.approx(lam)
    iterates = old if isinstance(rule, (dp.steps.Sqrt, dp.steps.StronglyConvex)) else new
    assert method.answer(state).last == pytest.approx(x)
    assert method.answer(state).average == pytest.approx(
        np.average(iterates, axis=0, weights=weights)
    )
