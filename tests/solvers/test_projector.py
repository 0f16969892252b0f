"""Weighted projections against independent computations, and the laws that they obey."""

import functools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import dpcvx as dp
from dpcvx.solvers import conic
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from dpcvx.solvers.projector import Extent
from dpcvx.solvers.steps import Minimization, ProximalStep
from tests import sets, spies
from tests.sets import ALL, CLOSED, CONIC, MATRIX, WEIGHTS

every = pytest.mark.parametrize("name", ALL)
closed = pytest.mark.parametrize("name", CLOSED)
SAID = {
    "free": "unbounded",
    "box": "within bounds",
    "simplex": "in simplices",
    "ball": "in balls",
    "affine": "in affine sets",
    "conic": "in conic sets",
}


@functools.cache
def projector(name):
    return sets.projector(ALL[name].agent())


def draw(n, seed, size=1.5, spread=1.0):
    """A point and weights."""
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=n), np.exp(spread * rng.normal(size=n))


def norm(x, D):
    return float(np.sqrt(np.sum(D * x**2)))


def off(*found):
    """What stated errors and rounding may add to a distance."""
    return sum(f.error for f in found) + 1e-8


@every
def test_kinds_name_the_closed_forms(name):
    P = projector(name)
    assert dict(P.kinds) == ALL[name].kinds
    assert P.separable == (set(P.kinds) <= {"free", "box"})
    assert all(f"{count} {SAID[kind]}" in str(P) for kind, count in P.kinds.items())


@every
@pytest.mark.parametrize("seed", range(3))
def test_projection_agrees_with_cvxpy(name, seed):
    agent, P = ALL[name].agent(), projector(name)
    v, D = draw(P.n, seed)
    found = P(v, D)
    # The reference itself is good to about 1e-5; on generalized power cones, to 1e-4 (there a
    # sequential quadratic program agrees with the projection to 1e-8).
    slack = 2e-4 if name == "power nd" else 3e-5
    assert found.x == pytest.approx(sets.reference(agent, v, D), abs=slack)


@closed
def test_closed_forms_satisfy_the_variational_inequality(name):
    P = projector(name)
    for seed in range(5):
        v, D = draw(P.n, seed)
        x = P(v, D).x
        for other in range(20):
            y = P(draw(P.n, 100 + other)[0], np.ones(P.n)).x
            assert (D * (v - x)) @ (y - x) <= 1e-9 * (1 + norm(v - x, D) * norm(y - x, D))


@every
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.1, 1.0, 3.0]))
def test_the_result_lies_in_the_set(name, seed, size):
    P = projector(name)
    v, D = draw(P.n, seed, size)
    found = P(v, D)
    # Interior-point answers to generalized power cones, and distances to them, are good to 1e-3.
    exact, distance = "conic" not in P.kinds, 2e-3 if name == "power nd" else 1e-5
    allowed = 1e-9 if exact else distance + 10 * found.error / np.sqrt(D.min())
    assert P.violation(found.x) <= allowed


@every
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), distance=st.sampled_from([1e-3, 0.1, 2.0]))
def test_projection_is_nonexpansive_in_the_weighted_norm(name, seed, distance):
    P = projector(name)
    v, D = draw(P.n, seed)
    u = v + distance * np.random.default_rng(seed + 1).normal(size=P.n)
    here, there = P(v, D), P(u, D)
    assert norm(there.x - here.x, D) <= norm(u - v, D) * (1 + 1e-12) + off(here, there)


@pytest.mark.parametrize("name", [n for n in ALL if set(ALL[n].kinds) <= {"free", "box"}])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_separable_projections_are_nonexpansive_entry_by_entry(name, seed):
    P = projector(name)
    (v, D), (u, _) = draw(P.n, seed), draw(P.n, seed + 1)
    assert (np.abs(P(u, D).x - P(v, D).x) <= np.abs(u - v)).all()


def test_a_simplex_is_not_nonexpansive_entry_by_entry():
    P, D = projector("simplex"), np.ones(4)
    u, v = np.array([1.0, 0, 0, 0]), np.array([1.0, 1, 0, 0])
    assert not P.separable
    assert u[0] == v[0]
    assert P(u, D).x[0] != P(v, D).x[0]


@every
def test_answers_do_not_depend_on_earlier_calls(name):
    points = [draw(ALL[name].agent().layout.size, seed) for seed in range(5)]
    forward = sets.projector(ALL[name].agent())
    backward = sets.projector(ALL[name].agent())
    first = [forward(v, D).x for v, D in points]
    second = [backward(v, D).x for v, D in reversed(points)][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@every
def test_arguments_are_left_alone(name):
    P = projector(name)
    v, D = draw(P.n, 0)
    kept = v.copy(), D.copy()
    P(v, D)
    assert np.array_equal(v, kept[0]) and np.array_equal(D, kept[1])


def on_simplex(v, D, a, b, lower, upper):
    def excess(tau):
        return a @ np.clip(v - tau * a / D, lower, upper) - b

    tau = brentq(excess, -1e4, 1e4, xtol=1e-14)
    return np.clip(v - tau * a / D, lower, upper)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 1.0, 3.0]))
def test_simplex_matches_bisection_on_the_multiplier(seed, spread):
    v, D = draw(4, seed, spread=spread)
    for name, a, b, low, high in [
        ("simplex", np.ones(4), 1.0, 0.0, np.inf),
        ("capped simplex", np.ones(4), 1.0, 0.0, 0.4),
        ("hyperplane", WEIGHTS, -1.0, -np.inf, np.inf),
        ("weighted simplex", WEIGHTS, 0.3, [-0.5, -0.5, -0.5, -np.inf], [np.inf, 0.5, 0.5, 0.5]),
    ]:
        expected = on_simplex(v, D, a, b, np.array(low), np.array(high))
        assert projector(name)(v, D).x == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_inequalities_bind_only_outside(seed):
    v, D = draw(4, seed)
    boxed = np.clip(v, -0.5, 0.5)
    x = projector("knapsack")(v, D).x
    if WEIGHTS @ boxed <= -0.7:
        assert np.array_equal(x, boxed)
    else:
        expected = on_simplex(v, D, WEIGHTS, -0.7, np.full(4, -0.5), np.full(4, 0.5))
        assert x == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.0, 1.0, 4.0]))
def test_ellipsoid_matches_its_secular_equation(seed, spread):
    v, D = draw(4, seed, 3.0, spread)
    u, w = WEIGHTS * v - 0.5, D / WEIGHTS**2

    def excess(log_tau):
        return np.linalg.norm(w * u / (w + np.exp(log_tau))) - 0.7

    y = u
    if np.linalg.norm(u) > 0.7:
        y = w * u / (w + np.exp(brentq(excess, -60, 60, xtol=1e-14)))
    expected = (y + 0.5) / WEIGHTS
    assert projector("ellipsoid")(v, D).x == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_affine_set_matches_its_optimality_system():
    v, D = draw(4, 5)
    K = np.block([[np.diag(D), MATRIX.T], [MATRIX, np.zeros((2, 2))]])
    expected = np.linalg.solve(K, np.concatenate([D * v, [1.0, 0.5]]))[:4]
    assert projector("affine")(v, D).x == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("attribute", ["PSD", "symmetric"])
def test_matrix_variables_stay_symmetric_under_unequal_weights(attribute):
    X = cp.Variable((3, 3), **{attribute: True})
    P = sets.of(cp.trace(X) <= 1)
    v, D = draw(9, 3)
    x = P(v, D).x.reshape((3, 3), order="F")
    assert x == pytest.approx(x.T, abs=1e-7)


def held(*constraints, entries):
    agent = dp.Agent(cp.Minimize(sum(entries)), constraints, name="bob")
    return agent, sets.projector(agent)


def test_an_agent_projects_only_the_entries_it_holds():
    x = cp.Variable(6)
    agent, P = held(cp.norm(x[2:5]) <= 1, entries=[x[0]])
    assert (P.n, dict(P.kinds)) == (4, {"free": 1, "ball": 3})
    v = np.array([9.0, 3.0, 0.0, 4.0])
    assert P(v, np.ones(4)).x == pytest.approx([9.0, 0.6, 0.0, 0.8])
    assert agent.layout.labels()[1].endswith("[2]")


def test_bounds_of_entries_held_elsewhere_are_dropped():
    x = cp.Variable(5, bounds=[np.array([0.0, 1, 2, 3, 4]), np.array([1.0, 2, 3, 4, 5])])
    _, P = held(entries=[x[1], x[3]])
    assert dict(P.kinds) == {"box": 2}
    assert P(np.array([9.0, -9.0]), np.ones(2)).x.tolist() == [2.0, 3.0]


def test_blocks_between_bounded_entries_keep_their_places():
    x = cp.Variable(10)
    places = [cp.sum(x[[6, 1, 4]]) == 1, x[[1, 4, 6]] >= 0, cp.norm(x[[8, 2]]) <= 1]
    bounds = [x[0] >= 2, x[5] <= -1, cp.abs(x[9]) <= 3, x[[3, 7]] <= 0.5]
    agent, P = held(*places, *bounds, entries=[x[0]])
    assert dict(P.kinds) == {"box": 5, "simplex": 3, "ball": 2}
    for seed in range(3):
        v, D = draw(P.n, seed, 3.0)
        assert P(v, D).x == pytest.approx(sets.reference(agent, v, D), abs=3e-5)


x = cp.Variable(2, name="x")
EMPTY = {
    "box": [x >= 1, x <= 0],
    "fixed": [x == 1, x >= 2],
    "abs": [cp.abs(x) <= -1],
    "norm_inf": [cp.norm_inf(x) <= -1],
    "simplex": [x >= 0, cp.sum(x) == -1],
    "capped simplex": [x >= 0, x <= 1, cp.sum(x) == 3],
    "knapsack": [x >= 1, cp.sum(x) <= 1],
    "constant inequality": [x >= 0, cp.Constant(0) <= -1],
    "constant equality": [x >= 0, cp.Constant(0) == 1],
    "vanishing row": [0 * x <= -1],
}
EMPTY_CONIC = {
    "ball": [cp.norm(x) <= -1],
    "sum_squares": [cp.sum_squares(x) <= -1],
    "equations": [cp.sum(x) == 1, cp.sum(x) == 2],
    "bounds and equation": [x >= 0, x <= -1, cp.sum(x) == 1],
    "exponential": [cp.exp(x[0]) <= -1],
    "curved": [cp.norm(x) <= 1, cp.sum(x) >= 3],
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_closed_form_names_the_agent(name):
    with pytest.raises(dp.ModelError, match="'bob' admit no point"):
        sets.of(*EMPTY[name])


@pytest.mark.parametrize("name", EMPTY_CONIC)
def test_an_empty_conic_set_shows_in_the_first_projection(name):
    found = sets.of(*EMPTY_CONIC[name])(np.ones(2), np.ones(2))
    assert found.x is None
    assert found.outcome is Outcome.INFEASIBLE


@pytest.mark.parametrize("name", EMPTY_CONIC)
def test_a_plan_refuses_an_empty_conic_set(name):
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x)), EMPTY_CONIC[name], name="bob"),
        dp.Agent(cp.Minimize(cp.sum(x)), name="eve"),
    ]
    with pytest.raises(dp.ModelError, match="'bob' admit no point"):
        dp.Problem(agents).plan(dp.LinearizedADMM(step=0.1), mechanism=None)


@every
def test_points_of_the_set_violate_nothing_and_others_do(name):
    P = projector(name)
    signs = 5 * np.array([(-1.0) ** k for k in range(P.n)])
    for far in (signs, -signs):
        assert P.violation(P(far, np.ones(P.n)).x) <= (2e-3 if name == "power nd" else 1e-4)
    if name != "free":
        assert max(P.violation(signs), P.violation(-signs)) > 0.1


def test_a_violation_that_no_solve_tells_is_not_zero(monkeypatch):
    """Beside a bounded variable, whose violation is known."""
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    agent = dp.Agent(cp.Minimize(cp.sum(x) + y), [cp.exp(x[0]) <= x[1], cp.abs(y) <= 1], name="a")
    P = sets.projector(agent)
    assert P.violation(np.array([0.0, 2.0, 0.0])) == pytest.approx(0.0, abs=1e-6)
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: ConicAnswer(None, Outcome.FAILED))
    assert np.isnan(P.violation(np.array([0.0, 2.0, 0.0])))


def test_violation_is_the_distance_to_a_box_and_the_residual_of_rows():
    assert projector("abs").violation(np.array([0.4, 0.9, -0.4, -0.7])) == pytest.approx(0.5)
    assert projector("polyhedron").violation(np.ones(4)) == pytest.approx(3.8)
    diagonal = np.diag([1.0, -0.25, 2.0]).ravel(order="F")
    assert projector("PSD attribute").violation(diagonal) == pytest.approx(0.25, abs=1e-5)


@pytest.mark.parametrize("name", ["polyhedron", "SOC"])
def test_violations_of_rows_need_no_solver(monkeypatch, name):
    """Results are checked against sets that no step projects onto."""
    built = []
    spies.change(monkeypatch, "a conic solver is built", lambda *_: built.append("solver"))
    monkeypatch.setattr(conic, "layout_of", lambda *_: built.append("layout"))
    P = sets.projector(ALL[name].agent())
    assert not P.closed_form
    P.violation(np.ones(P.n))
    assert not built


@pytest.mark.parametrize("name", ["box, constraints", "simplex", "ellipsoid", "affine", "l1 ball"])
def test_proximal_step_solves_the_problem_it_states(name):
    agent, P = ALL[name].agent(), projector(name)
    (center, D), (g, _) = draw(P.n, 1), draw(P.n, 2)
    (y,) = agent.variables
    cost = g @ y + cp.sum(cp.multiply(D, cp.square(y - center))) / 2
    problem = cp.Problem(cp.Minimize(cost), list(agent.constraints))
    problem.solve(cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    anchor = P(center, D).x
    step = ProximalStep(P, center, D, anchor)
    assert step(g).x == pytest.approx(y.value, abs=3e-5)
    away = np.linalg.norm(np.sqrt(D) * (center - g / D - anchor))
    assert step.within(g, 2 * away).x == pytest.approx(step(g).x, abs=1e-7)
    short = anchor + (center - g / D - anchor) / 4
    assert step.within(g, away / 4).x == pytest.approx(P(short, D).x, abs=1e-7)


def soft_threshold(v, D, r):
    if np.abs(v).sum() <= r:
        return v
    shrink = lambda tau: np.maximum(np.abs(v) - tau / D, 0)  # noqa: E731
    tau = brentq(lambda t: shrink(t).sum() - r, 0, (D * np.abs(v)).max(), xtol=1e-14)
    return np.sign(v) * shrink(tau)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0.3, 3.0, 30.0]))
def test_the_stated_error_covers_the_true_one(seed, size):
    v, D = draw(4, seed, size)
    found = projector("l1 ball")(v, D)
    assert norm(found.x - soft_threshold(v, D, 0.6), D) <= found.error + 1e-8


@pytest.mark.parametrize("name", [n for n in CONIC if n != "power nd"])
def test_usual_points_are_solved_to_the_stated_accuracy(name):
    P = projector(name)
    for seed in range(5):
        v, D = draw(P.n, seed, size=0.5)
        found = P(v, D)
        assert found.outcome is Outcome.SOLVED
        assert found.error <= sets.accuracy(D, float(norm(v - found.x, D)))


def test_bounds_that_meet_up_to_rounding_are_not_empty():
    y = cp.Variable()
    assert sets.of(y >= 0.1 + 0.2, y <= 0.3)(np.zeros(1), np.ones(1)).x == pytest.approx(0.3)


def test_a_simplex_with_one_point_up_to_rounding_is_not_empty():
    P = sets.of(x >= np.array([0.1, 0.2]), cp.sum(x) <= 0.3)
    assert P(np.zeros(2), np.ones(2)).x == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("gap", [1e-2, 1e-5, 1e-7, 1e-9])
def test_nearly_dependent_equations_stay_nonexpansive(gap):
    y = cp.Variable(3)
    P = sets.of(np.array([[1.0, 1, 1], [1, 1, 1 + gap]]) @ y == np.ones(2))
    D = np.array([1.0, 2.0, 3.0])
    origin = P(np.zeros(3), D)
    for e in np.eye(3):
        found = P(e, D)
        assert norm(found.x - origin.x, D) <= norm(e, D) + off(found, origin)
        assert norm(P(found.x, D).x - found.x, D) <= off(found, found)


@pytest.mark.parametrize(
    "constraint",
    [cp.Constant(-np.eye(2)) >> 0, cp.SOC(cp.Constant(1.0), cp.Constant([3.0, 4.0]))],
    ids=["PSD", "SOC"],
)
def test_false_constant_cones_are_not_dropped(constraint):
    with pytest.raises(dp.ModelError, match="'bob' admit no point"):
        sets.of(x >= 0, constraint)


def test_infinite_bounds_next_to_a_cone_are_no_bounds():
    y = cp.Variable(3)
    P = sets.of(y <= np.inf, cp.norm1(y) <= 1)
    assert P(np.array([5.0, 0, 0]), np.ones(3)).x == pytest.approx([1, 0, 0], abs=1e-5)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6])
def test_far_points_are_projected_onto_conic_sets(size):
    v = size * np.array([1.0, -0.5, 0.2, 0.1])
    found = projector("l1 ball")(v, np.ones(4))
    assert found.outcome is not Outcome.UNBOUNDED
    assert found.x == pytest.approx([0.6, 0, 0, 0], abs=1e-3)


@every
def test_extents_contain_every_projected_point(name):
    P = projector(name)
    extent = P.extent()
    for seed in range(6):
        v, D = draw(P.n, seed, size=[0.3, 2.0, 50.0][seed % 3])
        found = P(v, D).x
        if "conic" not in P.kinds:
            slack = 1e-12 * (1 + np.abs(found).max())
            assert (found >= extent.lower - slack).all() and (found <= extent.upper + slack).all()
            for own, radius in extent.balls:
                assert np.linalg.norm(found[own]) <= radius * (1 + 1e-12)
        else:  # as far as the solver's points are good: see above
            slack = 2e-3 if name == "power nd" else 1e-4
            assert (found >= extent.lower - slack).all() and (found <= extent.upper + slack).all()


EXTENTS = {
    "free": ([-np.inf] * 4, [np.inf] * 4),
    "box, attribute nonneg": ([0] * 4, [np.inf] * 4),
    "box, attribute bounds": ([-1, 0, -np.inf, 0.2], [0.5] * 4),
    "box, constraints": ([-0.5] * 4, [0.3] * 4),
    "abs": ([-0.4] * 4, [0.4] * 4),
    "shifted abs": ([0.6] * 4, [1.4] * 4),
    "simplex": ([0] * 4, [1] * 4),
    "capped simplex": ([0] * 4, [0.4] * 4),
    "ball, norm": ([-0.7] * 4, [0.7] * 4),
    "shifted ball": (WEIGHTS - 0.7, WEIGHTS + 0.7),
    "ellipsoid": (
        np.sort([-0.2 / WEIGHTS, 1.2 / WEIGHTS], axis=0)[0],
        np.sort([-0.2 / WEIGHTS, 1.2 / WEIGHTS], axis=0)[1],
    ),
    "l1 ball": ([-0.6] * 4, [0.6] * 4),
}


@pytest.mark.parametrize("name", EXTENTS)
def test_extents_of_usual_sets_are_as_small_as_boxes_can_be(name):
    extent, (lower, upper) = projector(name).extent(), EXTENTS[name]
    assert extent.lower == pytest.approx(np.array(lower, dtype=float), abs=1e-4)
    assert extent.upper == pytest.approx(np.array(upper, dtype=float), abs=1e-4)


def test_affine_sets_have_no_extent():
    extent = projector("affine").extent()
    assert np.isneginf(extent.lower).all() and np.isposinf(extent.upper).all()
    mixed = projector("product").extent()
    assert np.isinf(mixed.upper[[4, 6, 7]]).all() and mixed.upper[5] == -1


@closed
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10**6), picked=st.sets(st.integers(0, 3), min_size=1))
def test_norms_over_an_extent_are_never_exceeded(name, seed, picked):
    P, columns = projector(name), np.array(sorted(picked))
    found = P(*draw(P.n, seed, size=20.0)).x
    assert np.linalg.norm(found[columns]) <= P.extent().norm2(columns) * (1 + 1e-12)


def test_norms_over_an_extent_are_those_of_its_balls_or_its_box():
    extent = projector("ball, norm").extent()
    assert extent.norm2(np.arange(4)) == extent.norm2(np.array([1, 2])) == pytest.approx(0.7)
    shifted = projector("shifted ball").extent()
    assert shifted.norm2(np.arange(4)) == pytest.approx(np.linalg.norm(WEIGHTS) + 0.7)
    assert shifted.norm2(np.array([2])) == pytest.approx(1.2)
    box = projector("abs").extent()
    assert box.norm2(np.array([0, 3])) == pytest.approx(0.4 * np.sqrt(2))
    assert projector("affine").extent().norm2(np.array([0])) == np.inf
    product = projector("product").extent()
    assert product.norm2(np.array([1, 2, 8])) == pytest.approx(0.5)
    assert product.norm2(np.array([1, 4])) == np.inf
    assert Extent.at(np.array([3.0, -4.0])).norm2(np.array([0, 1])) == 5.0


def test_extents_know_their_points():
    extent = projector("ball, norm").extent()
    assert extent.contains(np.array([0.7, 0, 0, 0])) and extent.contains(np.full(4, 0.35))
    assert not extent.contains(np.full(4, 0.36)) and not extent.contains(np.array([0.71, 0, 0, 0]))
    assert not extent.contains(np.array([np.nan, 0, 0, 0]))
    assert projector("free").extent().contains(np.full(4, 1e300))
    point = Extent.at(np.array([1.0, 2.0]))
    assert point.contains(np.array([1.0, 2.0])) and not point.contains(np.array([1.0, 2.1]))


# Searches inside an agent -------------------------------------------------------------------


def quadratic(seed, n=3):
    """A convex quadratic, with its constants L and m."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * rng.uniform(0.1, 2, size=n)
    values = np.linalg.eigvalsh(root.T @ root)
    return root.T @ root, rng.normal(size=n), float(values[-1]), float(values[0])


@given(seed=st.integers(0, 10**6), D=st.floats(0.05, 50), inside=st.booleans())
def test_a_search_ends_at_the_minimizer(seed, D, inside):
    H, b, L, m = quadratic(seed)
    v = np.random.default_rng(seed + 1).normal(size=3)
    project = (lambda x: np.clip(x, -0.3, 0.3)) if inside else lambda x: x
    search = Minimization.close(D, L * (1 + 1e-9), m * (1 - 1e-9))
    x = search(v, lambda x: H @ x - b, project)
    slope = H @ x - b + D * (x - v)
    # Where x is the minimizer, a step along the slope leads back to it.
    assert np.abs(x - project(x - slope / (L + D))).max() <= 1e-10 * (1 + np.abs(v).max())


@given(
    seed=st.integers(0, 10**6),
    D=st.floats(0.05, 50),
    steps=st.integers(1, 12),
    inside=st.booleans(),
)
def test_ends_are_no_farther_apart_than_stated(seed, D, steps, inside):
    """Gradients that differ by a vector of length one, wherever they are taken."""
    H, b, L, m = quadratic(seed)
    rng = np.random.default_rng(seed + 1)
    v, shift = rng.normal(size=3), rng.normal(size=3)
    shift /= np.linalg.norm(shift)
    project = (lambda x: np.clip(x, -0.3, 0.3)) if inside else lambda x: x
    search = Minimization(D, L, m, steps)
    ends = [search(v, lambda x, c=c: H @ x - b + c, project) for c in (0, shift)]
    assert np.linalg.norm(ends[1] - ends[0]) <= search.stretch * (1 + 1e-9)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_stated_distance_is_attained(steps):
    """By a change along the flattest direction of a quadratic."""
    H, shift = np.diag([0.5, 4.0]), np.array([1.0, 0.0])
    search = Minimization(D=2.0, L=4.0, m=0.5, steps=steps)
    ends = [search(np.zeros(2), lambda x, c=c: H @ x + c, lambda x: x) for c in (0, shift)]
    assert np.linalg.norm(ends[1] - ends[0]) == pytest.approx(search.stretch, rel=1e-12)
    assert search.stretch < 1 / 2.5


def test_the_number_of_steps_leaves_nothing_of_the_distance():
    search = Minimization.close(D=1.0, L=3.0, m=0.0)
    assert 0.75**search.steps <= 1e-12 < 0.75 ** (search.steps - 1)
    assert Minimization.close(D=1.0, L=2.0, m=2.0).steps == 1


def test_only_closed_forms_have_a_nearest_point():
    x = cp.Variable(2)
    box = sets.projector(dp.Agent(cp.Minimize(cp.sum_squares(x)), [cp.abs(x) <= 1]))
    assert box.nearest(np.array([3.0, 0.5])).tolist() == [1.0, 0.5]
    conic = sets.projector(dp.Agent(cp.Minimize(cp.sum_squares(x)), [cp.norm(x) <= 1 - x[0]]))
    with pytest.raises(dp.DataError, match="fault of the package"):
        conic.nearest(np.zeros(2))


# Small units

CONTRADICTIONS = {
    "row": lambda x, u: [u * 1e-2 * cp.sum(x) == u, x >= 0, x <= 1],
    "bounds": lambda x, u: [x <= u, x >= 9 * u],
    "bounds and row": lambda x, u: [cp.sum(x) == 9 * u, x >= 0, x <= 1e-2 * u],
    "inequality": lambda x, u: [cp.sum(x) <= u, x >= u],
}


@pytest.mark.parametrize("unit", [1e-12, 1e-10, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_sets_without_points_are_refused_in_every_unit(name, unit):
    x = cp.Variable(2, name="x")
    agent = dp.Agent(cp.Minimize(cp.sum(x)), CONTRADICTIONS[name](x, unit), name="bob")
    with pytest.raises(dp.ModelError, match="'bob' admit no point"):
        sets.projector(agent)


@pytest.mark.parametrize("unit", [1e-12, 1e-6, 1.0, 1e6])
def test_points_up_to_rounding_are_points_in_every_unit(unit):
    x = cp.Variable(2, name="x")
    for constraints in (
        [x >= 0.3 * unit, x <= (0.1 + 0.2) * unit * (1 - 1e-12)],
        [cp.sum(x) == 0.3 * unit, x >= 0, x <= 0.15 * unit * (1 - 1e-12)],
        [x >= 0.1 + 0.2 - 0.3, x <= 0],  # what rounding leaves of 0
    ):
        P = sets.projector(dp.Agent(cp.Minimize(cp.sum(x)), constraints, name="bob"))
        assert P(np.zeros(2), np.ones(2)).outcome is Outcome.SOLVED


def test_large_terms_that_cancel_hide_no_contradiction():
    x = cp.Variable(2, name="x")
    constraints = [x[0] >= 1e9, x[1] >= -1e9, cp.sum(x) <= -1]
    with pytest.raises(dp.ModelError, match="'bob' admit no point"):
        sets.projector(dp.Agent(cp.Minimize(cp.sum(x)), constraints, name="bob"))


@pytest.mark.parametrize("name", [name for name in CLOSED if projector(name).closed_form])
def test_rows_are_projected_as_each_by_itself(name):
    found = projector(name)
    D = draw(found.n, 1)[1]
    rows = np.stack([draw(found.n, seed, size=3.0)[0] for seed in range(7)])
    assert np.array_equal(found(rows, D).x, [found(row, D).x for row in rows])


def test_rows_lie_in_an_extent_as_each_by_itself():
    extent = Extent(np.full(3, -1.0), np.full(3, 2.0), ((np.array([0, 2]), 1.5),))
    points = 1.5 * np.random.default_rng(0).normal(size=(80, 3))
    found = extent.containing(points)
    assert found.any() and not found.all()
    assert found.tolist() == [extent.contains(x) for x in points]
    inside = (points >= -1).all(axis=1) & (points <= 2).all(axis=1)
    near = np.hypot(points[:, 0], points[:, 2]) <= 1.5
    assert np.array_equal(found, inside & near) and (inside != near).any()
