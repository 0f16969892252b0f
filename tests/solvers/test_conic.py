"""Compiled conic programs: accuracy over scales, verdicts, fallbacks."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq

import dpcvx as dp
from dpcvx.model.canonical import cone_data
from dpcvx.solvers import conic, libraries
from dpcvx.solvers.conic import ConicProgram, Outcome
from tests import sets, spies
from tests.campaigns.solvers import KINDS, Faults, Panic, faulty
from tests.sets import CONIC, MATRIX, data_of

rng = np.random.default_rng(0)
ROOT = rng.normal(size=(3, 3))
Q = ROOT @ ROOT.T + 0.1 * np.eye(3)
SLOPE = rng.normal(size=3)


def set_of(x, constraints):
    agent = dp.Agent(cp.Minimize(cp.sum(x)), constraints, name="bob")
    return cone_data(None, list(agent.constraints), agent.variables, agent.layout)


def quadratic(x):
    return 0.5 * cp.quad_form(x, cp.psd_wrap(Q)) + SLOPE @ x


COSTS = {
    "quadratic, box": lambda x: (quadratic(x), [cp.abs(x) <= 0.2]),
    "least squares": lambda x: (cp.sum_squares(ROOT @ x - 1), [x >= 0]),
    "quadratic and norm": lambda x: (quadratic(x) + 0.3 * cp.norm1(x), []),
    "huber": lambda x: (cp.sum(cp.huber(x - 1, 0.5)), [cp.sum(x) == 0.5]),
    "logistic": lambda x: (cp.sum(cp.logistic(ROOT @ x)), [cp.norm(x) <= 1]),
}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_exact_step_agrees_with_cvxpy(name, weight):
    x = cp.Variable(3)
    cost, constraints = COSTS[name](x)
    D, c = weight * np.array([1.0, 0.5, 2.0]), np.array([0.1, -0.2, 0.3])
    answer = ConicProgram(data_of(cost, constraints)).solve(D, c, np.zeros(len(c)))
    step = cost + cp.sum(cp.multiply(D, cp.square(x))) / 2 + c @ x
    cp.Problem(cp.Minimize(step), constraints).solve(
        cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
    )
    assert answer.x == pytest.approx(x.value, abs=3e-5)


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-3, 10, 2))
@pytest.mark.parametrize("name", ["l1 ball", "polyhedron", "PSD attribute", "exp", "entropy"])
def test_a_common_factor_of_the_weights_changes_nothing(name, scale):
    P = sets.projector(CONIC[name].agent())
    v = np.random.default_rng(1).normal(size=P.n)
    D = np.random.default_rng(2).uniform(0.5, 2, P.n)
    found = P(v, scale * D)
    assert found.x == pytest.approx(P(v, D).x, abs=2e-5)
    reach = np.linalg.norm(np.sqrt(D) * (v - found.x))
    assert found.error <= sets.accuracy(scale * D, np.sqrt(scale) * reach)


@pytest.mark.parametrize("scale", 10.0 ** np.arange(-3, 10, 3))
def test_exact_steps_stay_accurate_over_scales(scale):
    D, c = scale * np.array([1.0, 2.0, 0.5]), scale * np.array([0.3, -1.0, 0.5])
    answer = ConicProgram(data_of(quadratic(cp.Variable(3)))).solve(D, c, np.zeros(len(c)))
    expected = np.linalg.solve(Q + np.diag(D), -SLOPE - c)
    assert answer.outcome in (Outcome.SOLVED, Outcome.INACCURATE)
    assert answer.x == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("scale", 10.0 ** np.arange(0, 11, 2))
@pytest.mark.parametrize("weight", [1e-2, 1e-4])
def test_steps_with_a_small_weight_end_at_the_optimum_of_the_objective(scale, weight):
    """A penalty that is 1e12 times too small moves a nearly linear objective's optimum by nothing.

    In units of the weight alone, the set is a point, and steps ended 0.4 above the optimum.
    """
    rng, x = np.random.default_rng(0), cp.Variable(6)
    A, b = rng.normal(size=(9, 6)), rng.normal(size=9)
    cost, box = cp.max(A @ x - b), [cp.abs(x) <= 3]
    step = scale * cost + weight / 2 * cp.sum_squares(x - 1)
    accuracy = dict(tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    cp.Problem(cp.Minimize(step / scale), box).solve(cp.CLARABEL, **accuracy)
    optimum, D = cost.value, np.full(6, weight)
    answer = ConicProgram(data_of(scale * cost, box)).solve(D, -D, np.ones(6))
    assert answer.outcome is Outcome.SOLVED
    assert np.max(A @ answer.x - b) == pytest.approx(optimum, abs=1e-6)


def test_unequal_weights_are_kept_apart():
    P = sets.projector(CONIC["l1 ball"].agent())
    D = np.array([1e-3, 1e3, 1.0, 1e6])
    v = np.array([0.4, 0.4, 0.4, 0.4])
    tau = brentq(lambda t: np.maximum(v - t / D, 0).sum() - 0.6, 0, 1e7, xtol=1e-14)
    assert P(v, D).x == pytest.approx(np.maximum(v - tau / D, 0), abs=1e-3)


def test_the_answer_to_one_call_does_not_depend_on_the_others():
    data = data_of(quadratic(cp.Variable(3)), [])
    calls = [(s * np.ones(3), s * SLOPE, s * SLOPE[::-1]) for s in (1.0, 1e-3, 1e6, 7.0)]
    one, two = ConicProgram(data), ConicProgram(data)
    first = [one.solve(*call).x for call in calls]
    second = [two.solve(*call).x for call in calls[::-1]][::-1]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("rows", "refined"), [(3, False), (4, False), (5, True)])
def test_only_larger_cones_and_later_attempts_refine(monkeypatch, rows, refined):
    told = []

    class Solver(Doctored):
        def __init__(self, *built):
            told.append(built[-1].iterative_refinement_enable)
            super().__init__(SOLVER(*built), gap=1e-3)

    monkeypatch.setattr(libraries.clarabel, "DefaultSolver", Solver)
    z = cp.Variable(rows - 1)
    program = ConicProgram(data_of(cp.sum_squares(z), [cp.norm2(z - 3) <= 1]))
    program.solve(np.zeros(rows - 1), np.zeros(rows - 1), np.zeros(rows - 1))
    assert told[0] is refined and all(told[1:]) and len(told) > 2


x = cp.Variable(2, name="x")


@pytest.mark.parametrize(
    ("cost", "constraints"), [(cp.sum(x), []), (cp.sum(x), [x <= 1]), (cp.exp(x[0]) + x[1], [])]
)
def test_an_objective_without_a_minimizer_is_unbounded(cost, constraints):
    data = data_of(cost, constraints)
    answer = ConicProgram(data).solve(np.zeros(data.n), np.zeros(data.n), np.zeros(data.n))
    assert answer.x is None
    assert answer.outcome is Outcome.UNBOUNDED


def test_contradicting_constraints_are_infeasible():
    data = data_of(cp.sum_squares(x), [cp.sum(x) >= 3, cp.norm(x) <= 1])
    answer = ConicProgram(data).solve(np.ones(2), np.zeros(2), np.zeros(2))
    assert answer.x is None
    assert answer.outcome is Outcome.INFEASIBLE


@pytest.mark.parametrize("least", [15.0, 18.0, 25.0])
def test_points_too_far_for_the_solver_are_not_called_impossible(least):
    """All of the set is beyond e^15, where the solver loses its accuracy, but it is not empty."""
    data = data_of(cp.sum_squares(x), [cp.exp(x[0]) <= x[1], x[0] >= least])
    answer = ConicProgram(data).solve(np.ones(2), np.zeros(2), np.zeros(2))
    assert answer.outcome is not Outcome.INFEASIBLE


@pytest.mark.parametrize(
    "constraints",
    [
        [cp.exp(x[0]) <= x[1], x[0] >= 3, x[1] <= 20],
        [cp.exp(x[0]) <= x[1], x[0] >= 1, x[1] <= 2.7],
        [cp.norm(x) <= 1, x[0] >= 1.001],
        [cp.norm(x) <= 2, x[0] >= 2.0001, x[0] <= 2.0002],
        [1e6 * x[0] >= 1e6, x[0] <= 0.9, cp.norm(x) <= 1],
        [cp.sum(x) == 1, x >= 0.6, cp.norm(x) <= 1e3],
    ],
)
def test_sets_without_a_point_are_proved_empty(constraints):
    data = data_of(cp.sum_squares(x), constraints)
    for center in (np.zeros(2), np.array([3.0, -50.0])):
        answer = ConicProgram(data).solve(np.ones(2), None, center)
        assert answer.outcome is Outcome.INFEASIBLE


class Doctored:
    """A solver whose answers are made to look worse."""

    def __init__(self, solver, gap=0.0, residual=0.0, broken=False):
        self._solver, self._gap, self._residual, self._broken = solver, gap, residual, broken

    def update(self, **changes):
        self._solver.update(**changes)

    def solve(self):
        true = self._solver.solve()
        size = max(1.0, abs(true.obj_val))
        return SimpleNamespace(
            x=np.full(len(true.x), np.nan) if self._broken else true.x,
            obj_val=true.obj_val,
            obj_val_dual=true.obj_val + self._gap * size,
            s=true.s,
            r_prim=true.r_prim + self._residual,
            r_dual=true.r_dual,
            status="NumericalError",
        )


@pytest.fixture
def program():
    data = sets.compiled(CONIC["l1 ball"].agent())
    return ConicProgram(data)


D, C = np.ones(4), -np.array([1.0, -0.5, 0.2, 0.1])
BUILD = ConicProgram._build
SOLVER = libraries.clarabel.DefaultSolver


def ladder(monkeypatch, program, first, later):
    """Doctor the standing solver and those built after it; count the latter."""
    built = []

    def build(self, tolerance, values, equilibrate=True, *, regularization):
        built.append((tolerance, equilibrate, regularization))
        solver = BUILD(self, tolerance, values, equilibrate, regularization=regularization)
        return Doctored(solver, **later)

    program._solver = Doctored(program._solver, **first)
    spies.change(monkeypatch, "a conic solver is built", build)
    return built


BAD = {"gap": 1e-3}


@pytest.mark.parametrize("flaw", [{"gap": 1e-9}, {"residual": 5e-8}])
def test_a_slightly_inaccurate_answer_is_kept_and_named(monkeypatch, program, flaw):
    exact = program.solve(D, C, np.zeros(4)).x
    built = ladder(monkeypatch, program, flaw, BAD)
    answer = program.solve(D, C, np.zeros(4))
    assert answer.outcome is Outcome.INACCURATE
    assert answer.x == pytest.approx(exact, abs=1e-6)
    assert len(built) == 2


@pytest.mark.parametrize("flaw", [BAD, {"residual": 1e-3}, {"broken": True}, {"gap": np.nan}])
def test_a_bad_answer_is_tried_again_with_a_fresh_solver(monkeypatch, program, flaw):
    exact = program.solve(D, C, np.zeros(4)).x
    built = ladder(monkeypatch, program, flaw, {})
    answer = program.solve(D, C, np.zeros(4))
    assert answer.outcome is Outcome.SOLVED
    assert answer.x == pytest.approx(exact, abs=1e-6)
    assert len(built) == 1


def test_large_sets_are_tried_again_with_a_larger_regularization_first(monkeypatch, program):
    monkeypatch.setattr(conic, "_LARGE", 3)
    exact = program.solve(D, C, np.zeros(4)).x
    built = ladder(monkeypatch, program, BAD, {})
    answer = program.solve(D, C, np.zeros(4))
    assert answer.outcome is Outcome.SOLVED
    assert answer.x == pytest.approx(exact, abs=1e-6)
    assert [regularization for *_, regularization in built] == [1e-8]
    built = ladder(monkeypatch, program, BAD, BAD)
    program.solve(D, C, np.zeros(4))
    assert [regularization for *_, regularization in built[:3]] == [1e-8, 1e-10, 1e-10]


def test_the_second_solver_takes_over_after_five_bad_answers(monkeypatch, program):
    exact = program.solve(D, C, np.zeros(4)).x
    built = ladder(monkeypatch, program, BAD, BAD)
    answer = program.solve(D, C, np.zeros(4))
    assert answer.outcome is Outcome.FALLBACK
    assert answer.x == pytest.approx(exact, abs=1e-4)
    assert [equilibrate for _, equilibrate, _ in built] == [True, True, True, False]
    assert built[0][0] == built[1][0] < built[2][0] == built[3][0]
    assert answer.error == np.inf


def test_when_every_attempt_fails_there_is_no_answer(monkeypatch, program):
    ladder(monkeypatch, program, BAD, BAD)
    monkeypatch.setattr(conic, "first_order", lambda *_: None)
    answer = program.solve(D, C, np.zeros(4))
    assert answer.x is None
    assert answer.outcome is Outcome.FAILED
    assert answer.error == np.inf


def test_a_failure_leaves_the_next_call_alone(monkeypatch, program):
    exact = program.solve(D, C, np.zeros(4)).x
    standing = program._solver
    ladder(monkeypatch, program, BAD, BAD)
    program.solve(D, 3 * C, np.zeros(4))
    program._solver = standing
    assert np.array_equal(program.solve(D, C, np.zeros(4)).x, exact)


def test_violation_of_rows_is_measured_without_a_solver():
    data = data_of(cp.Constant(0), [MATRIX[:, :2] @ x <= 0.5, x[0] == 1])
    assert ConicProgram(data).violation(np.array([0.5, 2.0])) == pytest.approx(4.0)


def test_violation_is_unknown_where_a_cone_has_no_simple_test():
    data = data_of(cp.Constant(0), [cp.exp(x[0]) <= x[1]])
    assert ConicProgram(data).violation(np.zeros(2)) is None


def test_extents_of_cones_are_those_of_the_set_and_a_little_wider():
    x = cp.Variable(3)
    lower, upper = ConicProgram(data_of(0 * x[0], [cp.norm1(x - SLOPE) <= 0.5])).extent()
    for found, exact, sign in ((lower, SLOPE - 0.5, 1), (upper, SLOPE + 0.5, -1)):
        assert (sign * (exact - found) >= 0).all()
        assert found == pytest.approx(exact, abs=1e-4)


def test_extents_of_cones_are_infinite_where_the_set_is():
    x = cp.Variable(3)
    cone = [cp.SOC(x[0], x[1:]), x[0] <= 2 + x[1]]
    lower, upper = ConicProgram(data_of(0 * x[0], cone)).extent()
    assert -1e-3 <= lower[0] <= 0 and upper[0] == np.inf
    assert (lower[2], upper[2]) == (-np.inf, np.inf)
    assert -1.001 <= lower[1] <= -1 and upper[1] == np.inf


def test_large_conic_sets_are_not_searched_for_their_extent():
    x = cp.Variable(301)
    lower, upper = ConicProgram(data_of(0 * x[0], [cp.norm1(x) <= 1])).extent()
    assert np.isneginf(lower).all() and np.isposinf(upper).all()


def test_an_extent_that_no_solve_reaches_is_infinite(monkeypatch):
    x = cp.Variable(2)
    program = ConicProgram(data_of(0 * x[0], [cp.norm1(x) <= 1]))
    failed = conic.ConicAnswer(np.zeros(2), Outcome.INACCURATE)
    monkeypatch.setattr(program, "solve", lambda *a: failed)
    lower, upper = program.extent()
    assert np.isneginf(lower).all() and np.isposinf(upper).all()


@pytest.mark.parametrize("name", ["SOC", "polyhedron"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_solver_that_fails_in_any_way_is_a_failed_solve(kind, name):
    faults = Faults(kind, 0, rate=0.0)
    with faulty(faults):
        P = sets.projector(CONIC[name].agent())
        v, D = np.array([3.0, -2.0, 1.0, 2.0]), np.ones(4)
        usual = P(v, D).x
        assert faults.made == 0
        faults._rate = 1.0
        broken = P(v, D)
        assert faults.made > 0
        assert broken.x is None or np.isfinite(broken.x).all()
        if kind not in ("inaccurate", "limit", "infeasible", "raises in update"):
            assert broken.x is None
        faults._rate = 0.0
        assert np.array_equal(P(v, D).x, usual)


def test_interrupts_are_not_the_solvers(monkeypatch, program):
    def interrupted(*_):
        raise KeyboardInterrupt

    spies.change(monkeypatch, "a conic solver is updated", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.solve(D, C, np.zeros(4))


def test_panics_are_no_exceptions():
    assert not issubclass(Panic, Exception)


@pytest.mark.parametrize("size", [1e120, 1e160, 1e250])
@pytest.mark.parametrize("name", ["SOC", "polyhedron", "l1 ball", "PSD constraint"])
def test_numbers_whose_squares_overflow_are_a_failed_solve(name, size):
    P = sets.projector(CONIC[name].agent())
    found = P(size * np.where(np.arange(P.n) % 2, 1.0, -1.0), np.ones(P.n))
    assert found.x is None and found.outcome is Outcome.FAILED


SHARES = [0.17026082, 0.13020481, 0.54524546]  # their sum and the last one's round


@pytest.mark.parametrize("point", [np.zeros(5), np.array([1.0, 2.0, 3.0, 2.0, -0.5])], ids=str)
def test_points_of_a_general_power_cone_are_their_own_projections(point):
    """Clarabel stalls at the tip, and asserts that exponents add up to 1 to the last digit."""
    x = cp.Variable(5)
    shares = np.array([*SHARES, 1 - sum(SHARES)])
    program = ConicProgram(set_of(x, [cp.PowConeND(x[:4], x[4], shares)]))
    answer = program.solve(np.ones(5), None, point)
    assert answer.outcome is Outcome.SOLVED
    assert answer.x == pytest.approx(point, abs=1e-7)


@pytest.mark.parametrize(
    ("constraints", "point", "inside"),
    [
        (lambda x: [cp.PowCone3D(x[0], x[1], x[2], 0.3)], [1.0, 1.0, -0.9], True),
        (lambda x: [cp.PowCone3D(x[0], x[1], x[2], 0.3)], [1.0, 1.0, -1.1], False),
        (lambda x: [cp.PowCone3D(x[0], x[1], x[2], 0.3)], [-1.0, 1.0, 0.0], False),
        (lambda x: [cp.PowCone3D(x[0], x[1], x[2], 0.3), x[0] <= 2], [3.0, 1.0, 0.0], False),
        (lambda x: [cp.ExpCone(x[0], x[1], x[2])], [0.0, 0.0, 0.0], True),
        (lambda x: [cp.ExpCone(x[0], x[1], x[2])], [9.0, 1.0, 1.0], False),
        (lambda x: [cp.SOC(x[0], x[1:])], [1.0, 0.6, 0.7], True),
        (lambda x: [cp.SOC(x[0], x[1:])], [1.0, 0.6, 0.9], False),
        (lambda x: [cp.norm1(x) <= 1], [0.0, 0.0, 0.0], False),  # columns of its own hide it
    ],
)
def test_what_rows_alone_show_of_a_point(constraints, point, inside):
    x = cp.Variable(3)
    program = ConicProgram(set_of(x, constraints(x)))
    assert program._inside(np.array(point)) is inside


def test_objectives_that_bend_down_are_not_handed_to_a_solver_that_prints_on_them(capfd):
    x = cp.Variable(2)
    bent = cp.quad_form(x, -np.eye(2), assume_PSD=True)
    program = ConicProgram(data_of(bent, [cp.exp(x[0]) <= 3, cp.exp(x[1]) <= 3]))
    answer = program.solve(np.full(2, 0.1), np.ones(2), np.zeros(2))
    assert answer.x is None
    assert capfd.readouterr() == ("", "")


# Bounds that are far away


def cone(x, bound):
    return [cp.norm(x) <= x[0] + 1, x[1] <= bound, x[0] + x[1] <= 1]


def exponential(x, bound):
    return [cp.exp(x[0]) <= x[1], x[1] <= bound]


@pytest.mark.parametrize("bound", [1e10, 1e12, 1e18, 1e20, 1e30])
@pytest.mark.parametrize("made", [cone, exponential])
def test_a_distant_bound_does_not_change_a_projection(made, bound):
    point, ones = np.array([5.0, -7.0]), np.ones(2)
    x, z = cp.Variable(2), cp.Variable(2)
    near = sets.projector(dp.Agent(cp.Minimize(cp.sum(x)), made(x, 1e3), name="near"))
    far = sets.projector(dp.Agent(cp.Minimize(cp.sum(z)), made(z, bound), name="far"))
    assert far(point, ones).outcome is Outcome.SOLVED
    assert far(point, ones).x == pytest.approx(near(point, ones).x, abs=1e-5)
    assert far.violation(point) > 0.5


def test_a_distant_bound_that_matters_is_kept():
    """An answer beyond it is none."""
    x = cp.Variable(2)
    P = sets.projector(dp.Agent(cp.Minimize(cp.sum(x)), cone(x, 1e10), name="a"))
    Q = sets.projector(
        dp.Agent(cp.Minimize(cp.sum(x)), [cp.norm(x) <= x[0] + 1, x[0] <= 1e10], name="a")
    )
    inside = P(np.array([-1e13, 1e11]), np.ones(2))
    found = Q(np.array([1e11, 0.0]), np.ones(2))
    assert inside.x is None or inside.x[1] <= 1e10 * (1 + 1e-6)
    assert found.x is None or found.x[0] <= 1e10 * (1 + 1e-6)
    assert Q.violation(np.array([1e11, 0.0])) == pytest.approx(9e10)


@pytest.mark.parametrize("large", [1e12, 1e16, 1e20])
def test_rows_are_not_neglected_beside_a_large_one(large):
    """They are held against their own terms, not against the largest number of all."""
    x = cp.Variable(2)
    constraints = [cp.norm(x) <= x[0] + 1, x[0] - x[1] <= 1, x[0] + x[1] <= large]
    program = ConicProgram(set_of(x, constraints))
    far = np.array([-5.0, -7.0])
    answer = program.solve(np.ones(2), None, far)
    if answer.x is not None:
        assert np.linalg.norm(answer.x) <= answer.x[0] + 1 + 1e-5
        assert answer.x[0] - answer.x[1] <= 1 + 1e-5


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_prices_of_rows_are_multipliers(unit):
    x = cp.Variable(3)
    rows = [cp.sum(x) >= 2 * unit, x[0] <= 9 * unit, cp.norm(x[1:]) <= unit, x[1] == 0.5 * unit]
    cost = cp.sum_squares(x / unit) + np.array([1.0, -2.0, -3.0]) @ x / unit
    cp.Problem(cp.Minimize(cost), rows).solve(cp.CLARABEL)
    data = data_of(cost, rows)
    for center in (np.zeros(3), unit * np.ones(3)):
        found = ConicProgram(data).prices(center)[3:7]  # after those of the squares
        # The equality, the inequalities, the bound of the cone.
        duals = [abs(rows[k].dual_value) for k in (3, 0, 1, 2)]
        assert duals[2] < 1e-6 * max(duals) and found[2] == 0
        np.testing.assert_allclose(np.abs(found)[[0, 1, 3]], np.array(duals)[[0, 1, 3]], rtol=1e-4)


def test_there_are_no_prices_where_there_is_no_point():
    x = cp.Variable(2)
    program = ConicProgram(data_of(cp.sum(x), [x >= 1, cp.sum(x) <= 0]))
    assert program.prices(np.zeros(2)) is None
