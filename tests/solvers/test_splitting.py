"""Private local steps without a solver: how far they move, how near they come, who takes them."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from dpcvx.solvers.splitting import STRETCH, Splitting
from dpcvx.solvers.steps import ProximalStep
from tests import sets, spies
from tests.sets import CONIC
from tests.steps import Setting, solution

NAMES = [
    "polyhedron",
    "l1 ball",
    "SOC",
    "PSD attribute",
    "NSD attribute",
    "PSD constraint",
    "lambda_max",
    "geo_mean",
]
REFUSED = {
    "exp": "exponential cones",
    "log": "exponential cones",
    "entropy": "exponential cones",
    "power 3d": "power cones",
    "log_det": "exponential cones",
}


def drawn(name, seed, size=1.5):
    """A projector, a far point, weights, and a point of the set."""
    P = sets.projector(CONIC[name].agent())
    rng = np.random.default_rng(seed)
    D = np.exp(rng.normal(size=P.n))
    v = size * rng.normal(size=P.n)
    return P, v, D, P(0.3 * rng.normal(size=P.n), D).x


def norm(x, D):
    return float(np.linalg.norm(np.sqrt(D) * x))


@pytest.mark.parametrize("name", NAMES)
def test_the_steps_come_close_to_the_projection(name):
    for seed in (0, 2):
        P, v, D, anchor = drawn(name, seed, 3.0)
        x = P(v, D).x
        assert norm(anchor - x, D) > 0.1
        assert norm(P.steady(v, D, anchor) - x, D) <= 2e-3 * norm(v - anchor, D)


def moved(name, seed, distance):
    """How far two points move apart, over the distance of their arguments."""
    P, v, D, anchor = drawn(name, seed)
    u = v + distance * np.random.default_rng(seed + 1).normal(size=P.n)
    apart = norm(P.steady(u, D, anchor) - P.steady(v, D, anchor), D)
    slack = 2 * P.rounding(D, anchor, max(norm(v - anchor, D), norm(u - anchor, D)))
    return (apart - slack) / norm(u - v, D)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("distance", [1e-6, 1.0])
def test_they_move_no_farther_than_stated(name, distance):
    assert max(moved(name, seed, distance) for seed in range(2)) <= STRETCH


@pytest.mark.parametrize("steps", [1, 2, 5, 20])
@pytest.mark.parametrize("name", ["polyhedron", "l1 ball", "SOC", "PSD constraint"])
def test_the_mean_of_any_number_of_steps_moves_no_farther_than_its_argument(
    name, steps, monkeypatch
):
    spies.change(monkeypatch, "steps of splitting", steps)
    spies.change(monkeypatch, "steps of splitting without a look", 0)
    ratios = [moved(name, seed, 10.0 ** -(seed % 4)) for seed in range(8)]
    assert 0.05 < max(ratios) <= 1


def test_without_a_mean_the_last_step_moves_farther_than_its_argument(monkeypatch):
    spies.change(monkeypatch, "steps of splitting", 3)
    spies.change(monkeypatch, "steps of splitting without a look", 2)
    ratios = [moved("SOC", seed, 1e-3) for seed in range(60)]
    assert 1.02 < max(ratios) <= np.sqrt(3)


@pytest.mark.parametrize("name", NAMES)
def test_answers_depend_on_the_arguments_alone(name):
    P, v, D, anchor = drawn(name, 3)
    first = P.steady(v, D, anchor)
    P.steady(2 * v, 3 * D, anchor)
    assert np.array_equal(first, P.steady(v, D, anchor))


def test_dependent_equalities_do_no_harm():
    x = cp.Variable(4)
    rows = np.array([[1.0, 1, 0, 0], [0, 1, 1, 0], [1, 2, 1, 0]])
    P = sets.of(rows @ x == np.array([1.0, 2, 3]), cp.SOC(x[3], x[:3]))
    v, D = np.array([1.0, -2.0, 3.0, -1.0]), np.array([1.0, 2.0, 0.5, 1.0])
    anchor, x = P(np.zeros(4), D).x, P(v, D).x
    assert norm(P.steady(v, D, anchor) - x, D) <= 1e-4 * norm(v - x, D)


def test_second_order_and_semidefinite_cones_are_projected_on():
    program = sets.of(cp.SOC(cp.Variable(), cp.Variable(3)))
    onto = Splitting(program._conic._data)._onto
    rng = np.random.default_rng(0)
    for _ in range(20):
        s = rng.normal(size=4)
        out = onto(s)
        rest = out - s  # in the dual cone, and orthogonal
        assert np.linalg.norm(out[1:]) <= out[0] + 1e-15
        assert np.linalg.norm(rest[1:]) <= rest[0] + 1e-15
        assert abs(rest @ out) <= 1e-15 * (1 + s @ s)
    assert onto(np.array([1.0, 0, 0, 0])).tolist() == [1, 0, 0, 0]
    assert onto(np.array([-1.0, 0, 0, 0])).tolist() == [0, 0, 0, 0]


def cone(x):
    return [cp.quad_over_lin(x[:2], x[2]) <= x[3], cp.sum(x) <= 3]


@pytest.mark.parametrize(
    "answer",
    [
        ConicAnswer(None, Outcome.FAILED),
        ConicAnswer(np.full(4, 9.0), Outcome.INACCURATE, 1.0),
        ConicAnswer(np.full(4, 9.0), Outcome.FALLBACK),
    ],
    ids=lambda a: a.outcome.name,
)
def test_no_solver_decides_what_leaves(answer, monkeypatch):
    setting = Setting(4, cone, 0.01)
    start = setting.projector(np.ones(4), np.ones(4)).x
    step = ProximalStep(setting.projector, start, np.ones(4), start)
    usual = setting.oracle(np.arange(4.0)).release(solution(start, step))
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: answer)
    assert np.array_equal(setting.oracle(np.arange(4.0)).release(solution(start, step)), usual)


@pytest.mark.parametrize("far", [1.0, 1e8, 1e12])
def test_neighbors_far_away_move_as_charged(far):
    setting = Setting(4, cone, 0.01)
    start = setting.projector(np.ones(4), np.ones(4)).x
    step = ProximalStep(setting.projector, start, np.ones(4), start)
    for seed in range(3):
        d = far * np.random.default_rng(seed).normal(size=4)
        other = d.copy()
        other[0] += 0.01
        assert setting.ratio(solution(start, step), d, other) <= 1


@pytest.mark.parametrize("far", [1e6, 1e8, 1e10, 1e12])
@pytest.mark.parametrize("name", ["SOC", "l1 ball", "lambda_max"])
def test_projections_of_far_points_lie_in_the_set(name, far):
    P, v, D, _ = drawn(name, 0)
    x = P(far * v, D).x
    assert P.violation(x) <= 1e-6 * (1 + np.abs(x).max())


def planned(name, **method):
    agent = CONIC[name].agent()
    (x,) = agent.variables
    d = dp.Private(np.zeros(x.size), name="d", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(cp.vec(x, order="F") - d)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), agent.constraints, name="ann")])
    return problem.plan(dp.LinearizedADMM(penalty=1.0, **method), rounds=2, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("perturb", ["output", "projected_output"])
@pytest.mark.parametrize("name", REFUSED)
def test_sets_without_proof_are_refused_with_the_remedies(name, perturb):
    with pytest.raises(dp.PrivacyError, match=REFUSED[name]) as error:
        planned(name, perturb=perturb)
    assert "'ann'" in str(error.value)
    assert "perturb='objective'" in str(error.value)
    assert "output_sensitivity=" in str(error.value)


def test_every_kind_of_cone_has_steps_or_says_why_not():
    for name, case in CONIC.items():
        obstacle = sets.projector(case.agent()).obstacle
        assert (obstacle is None) == (name in NAMES)
        assert obstacle is None or "cones" in obstacle


def test_the_remedies_work():
    assert planned("exp").guarantee.kind == "worst-case"
    assert planned("exp", perturb="output", output_sensitivity=0.1).guarantee.kind == "asserted"


@pytest.mark.parametrize("perturb", ["output", "projected_output"])
@pytest.mark.parametrize("name", ["SOC", "l1 ball", "PSD constraint"])
def test_recorded_runs_on_neighbors_agree_with_what_was_charged(name, perturb):
    report = dp.check_sensitivity(planned(name, perturb=perturb))
    assert report.passed, str(report)
