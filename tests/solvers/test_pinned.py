"""Programs with components at given values: the same minimizers as with equalities."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcvx.model.canonical import cone_data
from dpcvx.model.layout import layout_of
from dpcvx.solvers.conic import Outcome
from dpcvx.solvers.pinned import solve_pinned

TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)


def compiled(objective, constraints, *variables):
    layout = layout_of([objective, *constraints])
    assert [piece.variable for piece in layout.pieces] == [v.id for v in variables]
    return cone_data(objective, constraints, variables, layout)


def every_cone(made):
    """An objective and constraints on x and y with boxes, equalities and cones of both."""
    x, y = cp.Variable(3), cp.Variable(4)
    A, center = made.normal(size=(5, 4)), made.normal(size=4)
    f = cp.sum_squares(A @ y - 1) + 0.1 * cp.sum_squares(y - center) + cp.sum(cp.exp(y[:2]))
    f = 0 * cp.sum(x) + f + cp.norm1(y[2:])
    rules = [
        cp.norm(cp.hstack([x, y[:2]])) <= 3,
        cp.abs(x) <= 2,
        y >= -1.5,
        cp.norm(x) <= 6,  # of pinned components alone
        cp.bmat([[y[2] + 3, x[0]], [x[0], 2.0]]) >> 0,
        cp.bmat([[x[1] + 3, x[0]], [x[0], 2.0]]) >> 0,
    ]
    return x, y, f, rules


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_minimizer_is_that_of_cvxpy_with_constants(seed):
    made = np.random.default_rng(seed)
    x, y, f, rules = every_cone(made)
    at = made.uniform(-0.6, 0.6, 3)
    answer = solve_pinned(compiled(f, rules, x, y), np.arange(3), np.r_[at, np.zeros(4)])
    assert np.array_equal(answer.x[:3], at)
    place = {id(x): cp.Constant(at)}
    moved = [rule.tree_copy(place) for rule in rules if y.id in {v.id for v in rule.variables()}]
    problem = cp.Problem(cp.Minimize(f.tree_copy(place)), moved)
    problem.solve(cp.CLARABEL, **TIGHT)
    np.testing.assert_allclose(answer.x[3:], y.value, atol=1e-4)
    found = y.value
    y.value = answer.x[3:]
    assert problem.objective.value <= problem.value + 1e-7, found


def chain(tail):
    """y[0] follows from x, y[1] from y[0], and so on, but for the last `tail` of six."""
    x, y = cp.Variable(), cp.Variable(6)
    rules = [y[0] == 2 * x, *(y[k + 1] == 3 * y[k] - 1 for k in range(5 - tail))]
    return x, y, cp.sum_squares(y[6 - tail :] - 1) if tail else cp.sum(0 * y), rules


@pytest.mark.parametrize("tail", [0, 2])
def test_what_follows_from_pinned_values_is_determined(tail):
    x, y, f, rules = chain(tail)
    f = f + 0 * x
    # Whatever the point says of what equalities determine.
    variables = (x, y) if f.variables()[0].id == x.id else (y, x)
    data = compiled(f, rules, *variables)
    first = 0 if variables[0] is x else 6
    point = np.full(7, 7.0)
    point[first] = 1.0
    answer = solve_pinned(data, np.array([first]), point)
    expected = [2.0]
    while len(expected) < 6 - tail:
        expected.append(3 * expected[-1] - 1)
    found = np.delete(answer.x, first)
    np.testing.assert_allclose(found, [*expected, *[1.0] * tail], rtol=1e-9)
    assert answer.outcome is Outcome.SOLVED and answer.x[first] == 1.0


@pytest.mark.parametrize(
    "rule",
    [
        lambda x, y: [y == x, y == x + 0.01],
        lambda x, y: [y == x, y <= x - 0.01],
        lambda x, y: [x <= 0.5, y >= 0],
        lambda x, y: [y == x, cp.norm(cp.hstack([x, y])) <= 1],
        lambda x, y: [y == x, cp.bmat([[y, 2.0], [2.0, x]]) >> 0],
        lambda x, y: [y >= x, y <= 0.9],
    ],
    ids=["equalities", "bound", "pinned alone", "cone", "semidefinite", "left to the solver"],
)
def test_values_that_contradict_the_constraints_are_told(rule):
    x, y = cp.Variable(), cp.Variable()
    data = compiled(cp.square(x) + cp.square(y), rule(x, y), x, y)
    assert solve_pinned(data, np.array([0]), np.ones(2)).outcome is Outcome.INFEASIBLE
    # Where they are near enough, rounding is forgiven.
    near = solve_pinned(
        compiled(cp.square(x) + cp.square(y), [y == x, y <= x - 1e-9], x, y),
        np.array([0]),
        np.ones(2),
    )
    np.testing.assert_allclose(near.x, 1.0)


def test_an_equality_with_a_tiny_coefficient_is_left_to_the_solver():
    x, y = cp.Variable(), cp.Variable(2)
    data = compiled(cp.square(x) + cp.sum_squares(y - 1), [1e-9 * y[0] + x == 1], x, y)
    answer = solve_pinned(data, np.array([0]), np.array([1 + 1e-10, 0.0, 0.0]))
    assert np.abs(answer.x[1:]).max() < 2
