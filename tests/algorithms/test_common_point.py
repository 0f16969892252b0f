"""The closest point at which all agents agree and every public constraint holds."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms import common_point as common_points
from dpcvx.algorithms.common_point import agents_apart, common_point
from dpcvx.algorithms.joint import joint_set
from dpcvx.algorithms.program import compile_problem
from dpcvx.solvers.blocks import connected
from dpcvx.solvers.conic import ConicProgram, Outcome


def program(*sets, coupling=(), scale=(1.0, 1.0)):
    """Agents a, b, ... over x (shared) and y (their own), with constraints made of these."""
    u, v = scale
    x = cp.Variable(2, name="x")
    agents, own = [], []
    for name, constraints in zip("abcdef", sets, strict=False):
        y = cp.Variable(name=f"y {name}")
        own.append(y)
        cost = cp.sum_squares(x / u) + cp.square(y / v)
        agents.append(dp.Agent(cp.Minimize(cost), constraints(x / u, y / v), name=name))
    ties = [tie([y / v for y in own]) for tie in coupling]
    return compile_problem(dp.Problem(agents, coupling=ties))


def mixed(**arguments):
    """A simplex, a ball, an exponential cone; y of a and b add up to 3."""
    sets = (
        lambda x, y: [x >= 0, y >= -1, x[0] + y <= 1],
        lambda x, y: [cp.norm(x) <= 2, y >= x[1]],
        lambda x, y: [cp.exp(x[0]) <= 3 + y, y <= 2],
    )
    return program(*sets, coupling=[lambda own: own[0] + own[1] == 3], **arguments)


BOXES = [lambda x, y: [x <= 1.1, y <= 3]] * 3
VALUES = [np.array([3.0, 1.0, 2.0]), np.array([1.0, 2.0, 5.0]), np.array([0.5, 0.0, -4.0])]


def closest(values, units):
    """The same by cvxpy: x closest to all copies of it, then every y, in units of each variable."""
    x, own = cp.Variable(2), [cp.Variable() for _ in values]
    a, b, c = own
    rules = [x >= 0, a >= -1, x[0] + a <= 1, cp.norm(x) <= 2, b >= x[1], a + b == 3]
    rules += [cp.exp(x[0]) <= 3 + c, c <= 2]
    copies = sum(cp.sum_squares((x - value[:2]) / units["x"]) for value in values)
    cp.Problem(cp.Minimize(copies), rules).solve(cp.CLARABEL)
    far = [cp.square((y - v[2]) / u) for v, y, u in zip(values, own, units["y"], strict=True)]
    # The solver's x is within its accuracy of the edge, and other values have to fit it.
    rules += [cp.abs(x - x.value) <= 1e-7]
    cp.Problem(cp.Minimize(sum(far)), rules).solve(cp.CLARABEL)
    return [np.append(x.value, y.value) for y in own]


def test_public_components_move_together():
    # y is 100 times x and at most 50. Alone, x moves to the nearest 0.5, and both y to 50.
    stiff = program(*[lambda x, y: [y == 100 * x[0], x[1] == 0, y <= 50]] * 2)
    values = [np.array([0.6, 0.0, 10.0]), np.array([0.8, 0.0, 10.0])]
    alone, together = (common_point(stiff, values, public=public) for public in (False, True))
    assert alone.found and together.found
    np.testing.assert_allclose(alone.vectors[0], [0.5, 0, 50], atol=1e-6)
    # Units are 0.8 and 10: x minimizes ((x - 0.7) / 0.8)^2 + ((100 x - 10) / 10)^2.
    x = (0.7 / 0.64 + 10) / (1 / 0.64 + 100)
    np.testing.assert_allclose(together.vectors[0], [x, 0, 100 * x], atol=1e-6)


def broken(vectors):
    """By how much the constraints of `mixed` are violated, as they are written."""
    a, b, c = vectors
    return max(
        *(-a[0], -a[1], -1 - a[2], a[0] + a[2] - 1, np.linalg.norm(b[:2]) - 2, b[1] - b[2]),
        *(np.exp(c[0]) - 3 - c[2], c[2] - 2, abs(a[2] + b[2] - 3)),
    )


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_it_is_the_closest_point_that_cvxpy_finds(seed):
    moves = np.zeros((3, 3)) if seed is None else np.random.default_rng(seed).normal(size=(3, 3))
    values = [v + move for v, move in zip(VALUES, moves, strict=True)]
    found = common_point(mixed(), values)
    # From the start, which is 0 but for y of c, at -2: exp(0) <= 3 + y.
    starts = [local.start for local in mixed().agents]
    far = [np.abs(v - s) for v, s in zip(values, starts, strict=True)]
    units = {"x": max(f[:2].max() for f in far), "y": [f[2] for f in far]}
    for one, other in zip(found.vectors, closest(values, units), strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    assert found.found and broken(found.vectors) < 1e-12
    # Exponential cones hide behind columns of their own: the excess is told by another projection,
    # which stops at so much, with refinement and without.
    assert found.excess < 2e-6
    assert all(np.array_equal(v[:2], found.vectors[0][:2]) for v in found.vectors)


@pytest.mark.parametrize("given", [mixed, lambda: program(*BOXES)])
def test_shared_components_are_equal_where_own_components_are_unknown(given):
    elsewhere = [np.append(v[:2], start) for v, start in zip(VALUES, (0, 0, -2), strict=True)]
    found = common_point(given(), elsewhere, alone=True)
    known = common_point(given(), VALUES)
    assert found.found and np.isnan(found.excess)
    for vector, whole, given_vector in zip(found.vectors, known.vectors, elsewhere, strict=False):
        assert vector[:2].tobytes() == whole[:2].tobytes()
        assert vector[2] == given_vector[2]


@pytest.mark.parametrize("scale", [(1e-2, 1.0), (1.0, 1e4), (1e3, 1e-3)])
def test_units_of_variables_do_not_matter(scale):
    units = np.array([scale[0], scale[0], scale[1]])
    found = common_point(mixed(scale=scale), [v * units for v in VALUES])
    for one, other in zip(found.vectors, common_point(mixed(), VALUES).vectors, strict=True):
        assert one / units == pytest.approx(other, abs=2e-4)


def test_a_mean_that_suits_everyone_is_returned_as_it_is(monkeypatch):
    """Most runs end like this, so no second set is built for it."""
    built, honest = [], common_points.Projector
    monkeypatch.setattr(common_points, "Projector", lambda *a: built.append(a) or honest(*a))
    given = program(lambda x, y: [x >= 0], lambda x, y: [x <= 2])
    found = common_point(given, [np.array([0.1, 1.5, 7.0]), np.array([0.3, 1.5, -7.0])])
    assert [v.tolist() for v in found.vectors] == [[0.2, 1.5, 7.0], [0.2, 1.5, -7.0]]
    assert found.outcome is Outcome.SOLVED and found.excess == 0
    assert len(built) == 1


@pytest.mark.parametrize(
    ("far", "apart"),
    [
        (lambda x, y: [x[0] >= 1.5, x[1] >= 1.5], ("b", "d")),
        (lambda x, y: [x[0] <= -0.1], ("a", "d")),
        (lambda x, y: [cp.sum(x) >= 2.9], ("b", "d")),
        (lambda x, y: [x[0] >= 2.0001, x[0] <= 2.0002], ("b", "d")),
        (lambda x, y: [x[0] >= 1, x[1] >= 0.7], None),
    ],
)
def test_agents_whose_sets_do_not_meet_are_named(far, apart):
    given = program(
        lambda x, y: [x >= 0], lambda x, y: [cp.norm(x) <= 2], lambda x, y: [x <= 5], far
    )
    assert agents_apart(given) == apart
    found = common_point(given, [local.start for local in given.agents])
    assert found.found == (not apart)
    if apart:
        assert found.outcome is Outcome.INFEASIBLE and found.excess > 1e-6


def test_a_coupling_can_keep_sets_apart():
    sets = (lambda x, y: [y <= 1], lambda x, y: [y <= 1], lambda x, y: [y <= 1])
    needed = [lambda own: sum(own) == 3.5]
    assert agents_apart(program(*sets, coupling=needed)) == ("a", "b", "c")
    assert agents_apart(program(*sets, coupling=[lambda own: sum(own) == 2.5])) is None


@pytest.mark.parametrize("x, solves", [([0.1, 0.1], 1), ([2.0, 1.0], 2)])
def test_a_set_that_only_projections_test_takes_at_most_two_of_them(x, solves, monkeypatch):
    """A point that its projection leaves is in the set; others are projected once more, from near.

    Own components are free to follow shared ones, so no rows tell whether these fit.
    """
    whole, solved, solve = mixed(), [], ConicProgram.solve
    shared = connected(joint_set(whole).data, 2)
    scaled = common_points._Scaled.of(shared, np.ones(2))
    assert scaled.projector.tested(np.zeros(2)) is None

    def counted(self, *given):
        solved.append(self)
        return solve(self, *given)

    monkeypatch.setattr(ConicProgram, "solve", counted)
    y, outcome = scaled.projected(np.array(x), whole.holders)
    assert len(solved) == solves and outcome in common_points._FOUND
    assert np.array_equal(y, x) is (solves == 1)
