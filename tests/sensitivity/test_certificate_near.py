"""Bounds at the public point: noise is lower where losses of records are flatter."""

import itertools
import math
import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.plan.banner import argument
from dpcvx.sensitivity.certificate import _rungs
from dpcvx.solvers.projector import Extent

RADIUS, M = 2.0, 40


def clinics(clip=None, intercept=False, count=2):
    rng = np.random.default_rng(3)
    w, b = cp.Variable(3, name="w"), cp.Variable(name="b")
    agents = []
    for k in range(count):
        X = rng.normal(size=(M, 3))
        X *= RADIUS / np.linalg.norm(X, axis=1, keepdims=True)
        found = dp.Private(X, name=f"found {k}", adjacency=dp.Rows(RADIUS))
        ill = dp.Private(np.sign(rng.normal(size=M)), name=f"ill {k}", adjacency=dp.Rows(1.0))
        score = found @ w + b if intercept else found @ w
        loss = cp.sum(cp.logistic(-cp.multiply(ill, score))) / M
        agents.append(dp.Agent(cp.Minimize(loss), name=f"clinic {k}", clip_norm=clip))
    return dp.Problem(agents)


def certificate(problem):
    return compile_problem(problem).agents[0].sensitivity()


def test_at_the_start_a_logistic_loss_is_half_as_steep_as_anywhere():
    known = certificate(clinics())
    assert known.flattens
    assert known.near(2, np.zeros(3)) == pytest.approx(known.l2 / 2)
    assert known.within(2, 0.0) == known.near(2, np.zeros(3))
    assert known.within(2, math.inf) == known.l2


def test_bounds_rise_with_the_distance_and_stay_near_the_steepest_record():
    """One of the ladder's balls is at most 19 % wider than the point is far."""
    known = certificate(clinics())
    last = 0.0
    for size in np.geomspace(0.01, 30, 40):
        point = size * np.array([0.6, 0.0, -0.8])
        found = known.near(2, point)
        steepest = 2 * RADIUS / M / (1 + math.exp(-RADIUS * size))
        wider = 2 * RADIUS / M / (1 + math.exp(-RADIUS * size * 2**0.25 * 1.0001))
        assert steepest <= found <= wider * 1.0001
        assert last <= found <= known.l2
        last = found


def test_the_bound_of_residuals_follows_the_point_in_a_box():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.zeros((M, 2)), name="X", adjacency=dp.Rows(1.0))
    y = dp.Private(np.zeros(M), name="y", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - y) / M), [cp.abs(w) <= 10])
    known = certificate(dp.Problem([agent]))
    assert known.near(2, np.zeros(2)) == pytest.approx(4 / M, rel=1e-6)
    assert known.l2 > 9 * known.near(2, np.array([0.3, 0.4]))
    # Outside the box there is no bound for all points, and one around this point.
    assert known.near(2, np.array([0.0, 12.0])) < math.inf


@pytest.mark.parametrize("clip", [None, 0.01, 0.02])
@pytest.mark.parametrize("intercept", [False, True])
def test_no_pair_of_records_moves_a_gradient_further(clip, intercept):
    """Records and labels that are steepest at the point, and their opposites."""
    program = compile_problem(clinics(clip, intercept)).agents[0]
    known, form, n = program.sensitivity(), program.form, program.n
    rng, closest = np.random.default_rng(0), 0.0
    for size, sign, other in itertools.product([0.0, 0.1, 1.0, 10.0], [1, -1], [1, -1]):
        x = size * (lambda v: v / np.linalg.norm(v))(rng.normal(size=n))
        weights = x[:3] if np.linalg.norm(x[:3]) else np.eye(3)[0]
        aligned = RADIUS * weights / np.linalg.norm(weights)
        gradients = []
        for row, label in ((sign * aligned, 1.0), (other * aligned, -1.0)):
            patient = {"found 0": np.zeros((M, 3)), "ill 0": np.zeros((M, 1))}
            patient["found 0"][0], patient["ill 0"][0] = row, label
            data = [patient[spec.name].ravel(order="F") for spec in form.private]
            bound = form.bind(data, known.clips, limited=True)
            gradients.append(bound.gradient(x))
        moved = float(np.linalg.norm(gradients[0] - gradients[1]))
        limit = known.near(2, x)
        assert moved <= limit * (1 + 1e-9)
        closest = max(closest, moved / limit)
    assert closest > 0.5


def test_a_clip_is_no_more_than_what_it_scales_down():
    free, tight = certificate(clinics()), certificate(clinics(clip=0.04))
    assert tight.l2 == 0.08 * (1 + 1e-9)
    assert tight.near(2, np.zeros(3)) == pytest.approx(free.near(2, np.zeros(3)))
    assert tight.near(2, np.full(3, 50.0)) == pytest.approx(0.08)


@pytest.mark.parametrize("p", [1, 2])
def test_a_clip_that_cuts_nothing_off_adds_nothing(p):
    """Far from 0, records pull by their own length, wherever the point is."""
    free, loose = certificate(clinics()), certificate(clinics(clip=5.0))
    longest = free.records[0].bound(p, Extent(np.full(3, -np.inf), np.full(3, np.inf))).max()
    assert loose.bound(p).value == pytest.approx(2 * longest)
    assert free.bound(p).value <= loose.bound(p).value < 1.0
    words = argument([loose])
    assert "clip_norm=5 changes nothing" in words and "at most twice that" in words
    assert "changes nothing" not in argument([certificate(clinics(clip=0.01))])


@pytest.mark.parametrize(
    "method", [dp.FederatedGradient(2.0), dp.LinearizedADMM(step=2.0), dp.FederatedAveraging(2.0)]
)
def test_noise_follows_the_point_at_a_fixed_multiplier(method):
    problem = clinics()
    plan = problem.plan(method, mechanism="gaussian", rounds=6, epsilon=50.0, delta=1e-6)
    agent = plan.guarantee.agents[0]
    assert agent.scale == math.inf
    if not isinstance(method, dp.FederatedAveraging):
        assert "near the public point of each step, at most" in agent.noise
    result = plan.run(seed=0, record=True, verbose=False)
    entries = result.ledger["clinic 0"].entries
    assert {entry.multiplier for entry in entries} == {plan.agents[0].noise.multiplier}
    assert result.guarantee.epsilon == pytest.approx(plan.guarantee.epsilon)
    changes = [e.sensitivity for e in entries]
    scale = 2.0 if isinstance(method, dp.FederatedAveraging) else 1.0
    assert changes[0] == pytest.approx(scale * agent.sensitivity / 2, rel=1e-3)
    assert changes[0] < max(changes) <= scale * agent.sensitivity * 1.001
    assert dp.check_sensitivity(plan, seed=1).passed
    again = plan.replay(result.transcript)
    for variable in problem.variables():
        assert np.array_equal(again.last[variable], result.last[variable])


def test_split_noise_does_not_follow_the_point():
    method = dp.FederatedGradient(2.0, dp.SecretSharing(limit=10.0))
    plan = clinics(count=3).plan(method, mechanism="gaussian", rounds=3, epsilon=5.0, delta=1e-6)
    assert math.isfinite(plan.guarantee.agents[0].scale)


def test_bounds_travel_with_the_agents():
    known = certificate(clinics())
    before = known.near(2, np.ones(3))
    assert pickle.loads(pickle.dumps(known)).near(2, np.ones(3)) == before


def test_next_to_0_what_one_change_does_is_never_lost_in_the_rounding_of_public_terms():
    """What leaves is a rounded sum: a record moves it by an ulp of the public terms, if at all."""
    w = cp.Variable(1, name="w")
    X = dp.Private(shape=(2000, 1), name="X", adjacency=dp.Rows(1.0))
    public = 50 * cp.sum_squares(w + 1)
    cost = public + cp.sum_squares(X @ w) - 100 * cp.sum(w)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name="a")])
    known, form = certificate(problem), compile_problem(problem).agents[0].form
    x = np.array([1e-17])
    exact = [
        form.bind([(np.arange(2000) < k).astype(float)], (), limited=True).gradient(x)
        for k in range(2000)
    ]
    moved = max(float(np.abs(b - a).max()) for a, b in itertools.pairwise(exact))
    assert moved > 1e-15  # far more than 4e-17, which is what it does to the exact gradient
    assert known.near(2, x) > 100 * moved


@pytest.mark.parametrize("size", [1e-100, 1e-165, 1e-300, 5e-324])
def test_kinks_at_0_count_at_points_whose_squares_vanish(size):
    w = cp.Variable(2, name="w")
    X = dp.Private(np.zeros((4, 2)), name="X", adjacency=dp.Rows(1.0))
    cost = 100 * cp.sum(cp.abs(X @ w)) + cp.sum(cp.logistic(X @ w))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [cp.abs(w) <= 1], name="a")])
    known, form = certificate(problem), compile_problem(problem).agents[0].form
    x = np.array([size, 0.0])
    exact = [
        form.bind([np.array(row + [0.0] * 6)], (), limited=True).gradient(x)
        for row in ([1.0, 0.0], [0.0, 0.0])
    ]
    assert known.near(2, x) >= np.linalg.norm(exact[1] - exact[0])


def test_without_a_bounded_set_noise_covers_the_rounding_of_the_public_gradient():
    w = cp.Variable(1, name="w")
    X = dp.Private(np.zeros((20, 1)), name="X", adjacency=dp.Rows(1.0))
    cost = 50 * cp.sum_squares(w + 1) + cp.sum_squares(X @ w)
    agent = dp.Agent(cp.Minimize(cost), name="a")
    problem = dp.Problem([agent], start={w: np.array([1e-17])})
    method = dp.LinearizedADMM(step=0.001, penalty=1.0)
    result = problem.plan(method, mechanism="gaussian", rounds=1, epsilon=1.0, delta=1e-6).run(
        seed=0
    )
    entry = result.ledger["a"].entries[0]
    assert (
        certificate(problem).near(2, np.array([1e-17])) < 1e-15
    )  # what one record does to the exact gradient
    assert entry.sensitivity >= 2.0**-44 * 100


@pytest.mark.parametrize("x", [[1e308], [1.7e308], [1.7e308, 1.7e308], [np.inf], [np.nan]], ids=str)
def test_points_at_the_end_of_all_numbers_have_no_ball(x):
    assert _rungs(np.array([x]))[0] == np.inf


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("p", [1, 2])
def test_points_with_one_label_have_one_bound(clip, p):
    known, rng = certificate(clinics(clip)), np.random.default_rng(7)
    points = rng.normal(size=(60, 3)) * np.exp(rng.uniform(-8, 4, size=(60, 1)))
    points[3], points[4], points[5] = 0.0, points[6], 1e-170 * points[7]
    labels = known.alike(p, points)
    bounds = [known.near(p, x) for x in points]
    assert len(set(labels)) < 60 and labels[4] == labels[6]
    for label in set(labels):
        assert len({bounds[k] for k in np.flatnonzero(labels == label)}) == 1
    assert len(set(bounds)) > (1 if clip is None else 0)


def test_where_no_bound_holds_everywhere_every_point_has_a_label_of_its_own():
    w = cp.Variable(2, name="w")
    X = dp.Private(np.zeros((4, 2)), name="X", adjacency=dp.Rows(1.0))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(X @ w - 1)), name="a")
    known = certificate(dp.Problem([agent]))
    assert known.l2 == math.inf
    assert known.alike(2, np.ones((4, 2))).tolist() == [0, 1, 2, 3]
