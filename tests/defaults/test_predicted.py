"""Predicted gaps against simulated descents, and what is chosen by them."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.facts import Conditions
from dpcvx.algorithms.program import compile_problem
from dpcvx.defaults.landscape import Landscape, VariableGroup, landscape
from dpcvx.defaults.predicted import _response, chosen_penalty, longest, predicted
from dpcvx.solvers.conic import ConicProgram
from tests import spies

T = 40
# Of the rounds, by what is reported.
WEIGHTS = {
    "last": [0.0] * (T - 1) + [1.0],
    "tail": [0.0] * (T // 2) + [1.0] * (T // 2),
    "average": [1.0] * T,
    "weighted": list(range(1, T + 1)),
}


@pytest.mark.parametrize("q", [1e-8, 1e-5, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("output", WEIGHTS)
def test_bias_and_noise_are_those_of_the_recursion(q, output):
    # Row t: how x_t depends on the noise of every round before it.
    c, weights = 1 - q, WEIGHTS[output]
    powers = [[c ** (t - k) if t >= k else 0.0 for k in range(1, T + 1)] for t in range(1, T + 1)]
    bias = np.average([c**t for t in range(1, T + 1)], weights=weights)
    noise = (np.average(powers, axis=0, weights=weights) ** 2).sum()
    found = _response(np.array([q]), T, output)
    # 1 - c is kept above 0 and below 1.
    np.testing.assert_allclose(found[0], bias, rtol=1e-5, atol=1e-9)
    # So short steps that their noise is taken for that of no curvature.
    flat = q < (1e-4 if output == "weighted" else 1e-6)
    np.testing.assert_allclose(found[1], noise, rtol=3e-3 if flat else 1e-5, atol=1e-9)


def scene(noise=1.0, distance=3.0, curvature=2.0, size=1, holders=1.0):
    return Landscape(
        (VariableGroup(size, holders, noise, distance),), curvature, curvature, curvature, 1.0
    )


@pytest.mark.parametrize("output", WEIGHTS)
@pytest.mark.parametrize("noise", [0.1, 1.0, 10.0])
def test_the_predicted_gap_is_that_of_noisy_descents(output, noise):
    found = predicted(scene(noise), T, 0.5, outputs=(output,))
    rng = np.random.default_rng(3)
    points = [np.full(20_000, 3.0)]
    for _ in range(T):
        x = points[-1]
        points.append(x - found.step * (2.0 * x + noise * rng.normal(size=x.size)))
    gaps = np.average(points[1:], axis=0, weights=WEIGHTS[output]) ** 2
    # 20,000 squares of normals: one in a million such means is off by more than 5 %.
    assert found.gap == pytest.approx(gaps.mean(), rel=0.05)
    assert found.start == pytest.approx(9.0)


def test_no_other_step_is_better_over_distances_around_the_expected_one():
    found = predicted(scene(), T, 0.5, outputs=("last",))

    def product(step):
        c = 1 - 2.0 * step
        noise = step**2 * (1 - c ** (2 * T)) / (1 - c**2)
        return math.prod(c ** (2 * T) * (3.0 * d) ** 2 + noise for d in (1 / 3, 1, 3))

    assert product(found.step) <= 1.01 * min(product(s) for s in np.geomspace(1e-4, 0.49, 500))


@pytest.mark.parametrize("output", WEIGHTS)
def test_noise_that_hides_everything_still_takes_the_step_that_gains_most(output):
    """To first order a step gains what it takes off the distance, whatever is reported."""
    found = predicted(scene(1e4), T, 0.5, outputs=(output,))
    weights = np.array(WEIGHTS[output]) / sum(WEIGHTS[output])
    rounds, late = weights @ np.arange(1, T + 1), np.cumsum(weights[::-1])[::-1]
    # Of h / 2 d^2 (1 - 2 eta h rounds) + h / 2 eta^2 noise^2, distances d weighted as they are.
    gains = 3 / sum(1 / (d * 3.0) ** 2 for d in (1 / 3, 1, 3)) * 2.0 * rounds
    assert found.step == pytest.approx(gains / (1e8 * (late**2).sum()), rel=0.1)


def test_more_noise_takes_shorter_steps_and_never_longer_ones_than_allowed():
    steps = [predicted(scene(noise), T, 0.5).step for noise in (1e-9, 1.0, 10.0, 100.0)]
    assert steps[0] == pytest.approx(0.5)
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.05


def test_noise_and_distance_that_grow_alike_leave_the_step_as_it_is():
    plain, grown = (predicted(s, T, 0.5) for s in (scene(), scene().scaled(10.0, 10.0)))
    assert grown.step == plain.step and grown.output == plain.output
    assert grown.gap == pytest.approx(100 * plain.gap)
    assert scene().scaled(2.0).distance == scene().distance
    assert scene().scaled(2.0).blocks[0].noise == 2 * scene().blocks[0].noise


def test_a_single_noisy_step_may_be_longer_than_several():
    """Of several, those along the largest curvature would swing ever farther."""
    bent = replace(scene(), curvature=0.2)  # L is 2
    assert longest(bent, 2) == pytest.approx(1 / 2.0)
    assert longest(bent, 1) == pytest.approx(1 / (2.2 * 0.2))
    assert longest(replace(bent, curvature=2.0), 1) == pytest.approx(1 / 2.0)
    assert longest(bent.scaled(0.0), 1) == pytest.approx(1 / 2.0)  # nothing to save steps for


def test_noise_of_many_agents_averages_out():
    few = landscape(*known(dp.Rows(1.0), agents=2))
    many = landscape(*known(dp.Rows(1.0), agents=8))
    assert many.blocks[0].noise == pytest.approx(few.blocks[0].noise / 2)
    assert many.blocks[0].holders == 8


def known(adjacency, agents=2, bound=None, noise=0.5, slope=1.0):
    """A program of logistic losses, and the conditions of a run on it."""
    x = cp.Variable(3, name="x")
    made = []
    for k in range(agents):
        d = dp.Private(np.zeros((5, 3)), name=f"d{k}", adjacency=adjacency)
        cost = cp.sum(cp.logistic(d @ x)) / 5
        limits = [] if bound is None else [cp.abs(x) <= bound]
        made.append(dp.Agent(cp.Minimize(cost), limits, name=f"a{k}"))
    plan = dp.Problem(made).plan(epsilon=1.0, delta=1e-6, rounds=1)
    return plan.program, Conditions(T, (noise,) * agents, (slope,) * agents)


def test_bounds_limit_the_distance_and_curvature_takes_their_place():
    free = landscape(*known(dp.Rows(1.0)))
    assert free.smoothness == pytest.approx(1 / 4)
    assert free.distance == pytest.approx(free.slope / free.smoothness)
    near = landscape(*known(dp.Rows(1.0), bound=0.1))
    # Entries spread evenly over [-0.1, 0.1], halved.
    assert near.distance == pytest.approx(math.sqrt(3) * 0.1 / math.sqrt(3) / 2)


def test_the_penalty_of_exact_steps_lies_between_the_curvatures():
    assert chosen_penalty(scene(curvature=2.0)) == pytest.approx(2.0)
    wide = Landscape((VariableGroup(2, 2.0, 0.0, 1.0),), 9.0, 5.0, 1.0, 1.0)
    assert chosen_penalty(wide) == pytest.approx(math.sqrt(5.0 * 9.0))
    flat = Landscape((VariableGroup(2, 2.0, 0.0, 4.0),), 0.0, 0.0, 0.0, 2.0)
    assert chosen_penalty(flat) == pytest.approx(0.5)


@pytest.mark.parametrize("noise, shorter", [(1e-6, 1.0), (1e6, 3.0)])
def test_steps_of_losses_of_labels_shorten_with_noise(noise, shorter):
    """Labels are typically a third of their declared bounds; quiet steps may be too long."""
    of_losses = Landscape((VariableGroup(2, 2.0, noise, 3.0),), None, 1.0, 0.0, 1.0)
    of_labels = replace(of_losses, source="labels")
    usual, short = (predicted(each, 30, 1.0) for each in (of_losses, of_labels))
    assert short.step == pytest.approx(usual.step / shorter, rel=1e-6)
    assert short.gap == usual.gap  # so noise and rounds stay


@pytest.mark.parametrize("agents, searched", [(2, True), (3, False)])
def test_many_sets_are_not_searched_for_their_extent(monkeypatch, agents, searched):
    """Each component takes two solves: zones of a large network would take minutes."""
    asked = []

    def extent(self):
        asked.append(self)
        return np.full((2, 6), np.inf)

    monkeypatch.setattr(ConicProgram, "extent", extent)
    spies.change(monkeypatch, "entries of a landscape that is searched", 2 * 6**2)
    x = cp.Variable(6, name="x")
    owners = []
    for k in range(agents):
        d = dp.Private(np.zeros(6), name=f"d{k}", adjacency=dp.Within(0.1))
        cost = cp.Minimize(cp.sum_squares(x - d))
        owners.append(dp.Agent(cost, [cp.norm1(x) <= k + 1, x[0] >= x[1]], name=f"a{k}"))
    program = compile_problem(dp.Problem(owners))
    landscape(program, Conditions(10, (1.0,) * agents, (1.0,) * agents))
    assert len(asked) == agents * searched


def offices(loss, most, unit=1.0):
    """Prices of flats that two offices hold, in units; they grow from 9 by 7 for one feature."""
    rng = np.random.default_rng(11)
    w, b = cp.Variable(2, name="w"), cp.Variable(name="b")
    agents = []
    for k in range(2):
        X = rng.uniform(0, 1, (300, 2))
        y = np.clip(9 + X @ [7.0, -2.0] + rng.normal(size=300), 0, most)
        y[:15] = most  # mistyped
        features = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.5, records=f"flat{k}"))
        prices = dp.Private(
            unit * y, name=f"y{k}", adjacency=dp.Rows(unit * most, records=f"flat{k}")
        )
        score = features @ w + b - prices
        cost = cp.Minimize(cp.sum(loss(score / unit)) / 600)
        agents.append(dp.Agent(cost, [cp.abs(w) <= 20 * unit, cp.abs(b) <= 20 * unit]))
    return dp.Problem(agents)


@pytest.mark.parametrize(
    "loss, most, far",
    [
        (lambda r: cp.huber(r, 2), 60.0, True),
        (lambda r: cp.huber(r, 2), 1.5, False),
        (cp.square, 60.0, False),
        (cp.logistic, 60.0, True),
        (cp.logistic, 1.0, False),
    ],
)
def test_losses_with_straight_tails_are_taken_to_be_as_steep_everywhere(loss, most, far):
    """Huber's, of data that reach beyond its bend: a distance to its bend tells nothing."""
    program = compile_problem(offices(loss, most))
    slopes = [agent.sensitivity().l2 * 300 / 2 for agent in program.agents]
    found = landscape(program, Conditions(T, (0.5, 0.5), tuple(slopes)))
    assert (found.smoothness is None) == far


def test_the_default_crosses_the_set_for_huber_losses_in_any_unit():
    """Steps of 1 / L end at 8.3 to 9.5; the worst of twelve seeds is 0.38."""
    optimum = None
    for unit in (1.0, 1e3):
        problem = offices(lambda r: cp.huber(r, 2), 60.0, unit)
        if optimum is None:  # the same in every unit
            central = dp.not_private.joint_problem(problem)
            optimum = central.solve(cp.CLARABEL)
        plan = problem.plan(epsilon=1.0, delta=1e-6)
        ends = [plan.run(seed=k, verbose=False).solution for k in range(3)]
        gaps = [dp.not_private.objective(problem, end) - optimum for end in ends]
        assert max(gaps) < 1.5


@pytest.mark.parametrize("loss", [lambda w, t: t @ w, lambda w, t: cp.sum_squares(w - t)])
@pytest.mark.parametrize("method", [dp.DecentralizedADMM(), dp.PrimalDual()])
def test_where_sets_are_one_point_steps_are_those_without_noise(method, loss):
    w, agents = cp.Variable(2, name="w"), []
    for name in "ab":
        t = dp.Private([0.2, 0.3], name=f"t{name}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Minimize(loss(w, t)), [w == 1], name=name))
    problem = dp.Problem(agents)
    noisy = problem.plan(method, rounds=3, epsilon=1.0, delta=1e-6)
    assert noisy.algorithm.step == problem.plan(method, mechanism=None, rounds=3).algorithm.step
    (end, _) = noisy.run(seed=0, verbose=False).solution.vectors
    assert np.array_equal(end, [1.0, 1.0])


def test_steps_of_linear_objectives_lead_across_the_set():
    """A linear cost has no curvature to limit a step: its length follows from the set."""
    w = cp.Variable(4, name="w")
    d = np.array([3.0, -2.0, 1.0, 5.0])
    cost = dp.Private(d, name="d", adjacency=dp.Within(0.1, norm=2)) @ w
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 1], name="a")])
    plan = problem.plan(dp.FederatedGradient(), rounds=30, epsilon=3.0, delta=1e-6)
    assert d @ plan.run(seed=1, verbose=False)["w"] < -0.9 * np.linalg.norm(d)
