"""Whether objectives have minimizers over a set."""

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.defaults.solvable import bounded_for_slopes
from tests.sets import data_of

x = cp.Variable(2, name="x")
BOUNDED = {
    "box": ([cp.abs(x) <= 1], 0, True),
    "simplex": ([x >= 0, cp.sum(x) == 1], 0, True),
    "free": ([], cp.sum(x), False),
    "half-space": ([cp.sum(x) <= 1], 0, False),
    "quadrant": ([x >= 0], 0, False),
    "line": ([cp.sum(x) == 1], 0, False),
    "curved": ([], cp.sum_squares(x), True),
    "curved in one direction": ([], cp.square(x[0]) + 0 * x[1], False),
    "curved where unbounded": ([cp.abs(x[1]) <= 1], cp.square(x[0]), True),
    "curved along a line": ([x[0] - x[1] == 0], cp.square(x[0]), True),
    "flat along a line": ([x[0] - x[1] == 0], cp.square(x[0] - x[1]), False),
    "norm1": ([], cp.norm1(x), False),
    "norm1 on a box": ([cp.abs(x) <= 1], cp.norm1(x), True),
    "norm": ([], cp.norm(x), False),
    "huber": ([], cp.sum(cp.huber(x)), False),
    "quartic": ([], cp.sum(cp.power(x, 4)), True),
    "cosh": ([], cp.sum(cp.exp(x) + cp.exp(-x)), True),
    "exponential": ([], cp.sum(cp.exp(x)), False),
    "second-order cone": ([cp.SOC(x[0], x[1:])], 0, False),
    "ball": ([cp.norm(x) <= 1e3], 0, True),
    "entropy": ([cp.sum(cp.entr(x)) >= 0.1], 0, True),
}


NONE = np.zeros(0, dtype=int)


def generic(n):
    """No component is 0, and no two have a simple ratio: an element of the whole space."""
    return np.sin(1.0 + np.arange(n))


@pytest.mark.parametrize("name", BOUNDED)
def test_boundedness_for_every_slope(name):
    constraints, cost, expected = BOUNDED[name]
    data = data_of(cp.Constant(0) + cost, constraints)
    assert bounded_for_slopes(data, NONE, generic(data.n)) is expected


def test_a_positive_diagonal_bounds_the_components_it_covers():
    data = data_of(cp.norm1(x))
    assert bounded_for_slopes(data, np.array([0, 1]), generic(2))
    assert not bounded_for_slopes(data, np.array([0]), generic(2))


def test_semidefinite_sets_are_bounded_by_their_trace():
    X = cp.Variable((3, 3), PSD=True)
    assert bounded_for_slopes(data_of(cp.Constant(0), [cp.trace(X) <= 2]), NONE, generic(9))
    assert not bounded_for_slopes(data_of(cp.Constant(0), [X[0, 0] <= 2]), NONE, generic(9))


# Slopes of the directions given, and whether the program is bounded for all their multiples.
SLOPES = {
    "curved along the slope": (cp.square(x[0] + 2 * x[1]), [], [1, 2], True),
    "flat along the slope": (cp.square(x[0] + 2 * x[1]), [], [2, -1], False),
    "flat along a part of the slope": (cp.square(x[0] + 2 * x[1]), [], [1, 2.01], False),
    "unbounded off the slope": (cp.Constant(0), [cp.abs(x[0]) <= 1, x[1] >= 0], [1, 0], True),
    "unbounded along the slope": (cp.Constant(0), [cp.abs(x[0]) <= 1, x[1] >= 0], [0, 1], False),
    "a quadrant from below": (cp.Constant(0), [x >= 0], [1, 1], False),
    "a quadrant from above": (cp.Constant(0), [x >= 0], [-1, -1], False),
    "no slope": (cp.Constant(0), [x >= 0], [0, 0], True),
    "a tiny slope": (cp.Constant(0), [x >= 0], [1e-9, 0], False),
    "a huge slope": (cp.Constant(0), [x >= 0], [1e12, 0], False),
    "held on a line": (cp.Constant(0), [x[0] == x[1]], [1, -1], True),
    "free on a line": (cp.Constant(0), [x[0] == x[1]], [1, 1], False),
    "growing linearly": (cp.norm1(x[0]) + 0 * x[1], [], [1, 0], False),
    "a cone's axis": (cp.Constant(0), [cp.SOC(x[0], x[1:])], [1, 0], False),
}


@pytest.mark.parametrize("name", SLOPES)
@pytest.mark.parametrize("sign", [-1, 1])
def test_boundedness_for_the_multiples_of_one_slope(name, sign):
    cost, constraints, slope, expected = SLOPES[name]
    data = data_of(cost + 0 * cp.sum(x), constraints)
    assert bounded_for_slopes(data, NONE, sign * np.array(slope, dtype=float)) is expected


@pytest.mark.parametrize("seed", range(10))
def test_least_squares_are_bounded_for_the_slopes_of_their_data_and_no_others(seed):
    r = np.random.default_rng(seed)
    wide = r.normal(size=(2, 5))
    y = cp.Variable(5, name="y")
    data = data_of(cp.sum_squares(wide @ y - 1))
    own = wide.T @ r.normal(size=2)
    assert bounded_for_slopes(data, NONE, own)
    assert not bounded_for_slopes(data, NONE, r.normal(size=5))
    assert not bounded_for_slopes(data, NONE, own + 1e-3 * r.normal(size=5))
