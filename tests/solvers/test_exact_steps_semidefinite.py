"""Affine rows and one semidefinite cone: Newton's method on prices against an interior point."""

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.exact_steps import semidefinite_step
from tests import sets


def compiled(limits, order=4, **attributes):
    X = cp.Variable((order, order), **(attributes or {"PSD": True}), name="X")
    return sets.compiled(dp.Agent(cp.Minimize(cp.sum(X)), limits(X), name="bob"))


def _random_rows(X):
    rng, n = np.random.default_rng(7), X.shape[0]
    inside = rng.normal(size=(n, n))
    inside = inside @ inside.T + np.eye(n)
    forms = [(M + M.T) / 2 for M in rng.normal(size=(3, n, n))]
    return [cp.trace(M @ X) == np.sum(M * inside) for M in forms]


SETS = {
    "correlations": lambda X: [cp.diag(X) == 1],
    "trace": lambda X: [cp.trace(X) == 1],
    "trace, twice": lambda X: [cp.trace(X) == 1, 2 * cp.trace(X) == 2],
    "rows": _random_rows,
    "entries": lambda X: [X[0, 1] == 0, X[2, 2] == 0.5],
    "no row": lambda X: [],
    "above": lambda X: [cp.diag(X) == 1, X >> 0.1 * np.eye(X.shape[0])],
}


@cache
def of(name):
    """The set by name; matrices that are above another one have no cone of their own."""
    return compiled(SETS[name], symmetric=True) if name == "above" else compiled(SETS[name])


def both(data):
    """The program, and the same by an interior point."""
    ours, others = ConicProgram(data), ConicProgram(data)
    for way in ("_semidefinite", "_orthogonal"):
        vars(others)[way] = None
    return ours, others


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 30.0]),
    weight=st.sampled_from([1e-3, 1.0, 50.0]),
    centered=st.booleans(),
)
def test_steps_are_those_of_an_interior_point(name, seed, size, weight, centered):
    data = of(name)
    ours, others = both(data)
    step = semidefinite_step(data)
    assert step is not None
    rng = np.random.default_rng(seed)
    v = size * rng.normal(size=(4, 4))
    v, D = ((v + v.T) / 2).ravel(), np.full(16, weight)
    nearest = step(D, -weight * v)
    assert nearest is not None or size > 1
    arguments = (D, None, v) if centered else (D, -weight * v, np.zeros(16))
    x, other = ours.solve(*arguments), others.solve(*arguments)
    assert x.outcome is Outcome.SOLVED
    assert ours.violation(x.x) <= 1e-10
    far = 1 + np.linalg.norm(x.x - v)
    assert x.x == pytest.approx(other.x, abs=2e-5 * far)

    def value(x):
        return np.sum((x - v) ** 2) / 2

    # Points of an interior point may lie outside by what it takes for none.
    assert value(x.x) <= value(other.x) + 1e-6 * far
    # The stated gap covers what others reach from inside.
    assert nearest is None or nearest.gap <= 2e-12 * weight * (1 + far * far)


def test_answers_depend_on_no_earlier_call():
    step = semidefinite_step(of("correlations"))
    rng = np.random.default_rng(0)
    calls = [(np.full(16, w), rng.normal(size=16)) for w in (1.0, 2.0, 1.0)]
    alone = [semidefinite_step(of("correlations"))(*call).x for call in calls]
    for call, expected in zip([*calls, *calls[::-1]], [*alone, *alone[::-1]], strict=True):
        assert np.array_equal(step(*call).x, expected)


BAD = {
    "no interior": (lambda X: [cp.trace(X) == 0], Outcome.SOLVED),
    "no interior, zero on the diagonal": (lambda X: [X[0, 0] == 0, cp.trace(X) == 1], None),
    "one point": (lambda X: [X == np.ones((4, 4))], None),
    "empty": (lambda X: [cp.trace(X) == -1], Outcome.INFEASIBLE),
    "contradiction": (lambda X: [cp.trace(X) == 1, cp.trace(X) == 2], Outcome.INFEASIBLE),
}


@pytest.mark.parametrize("name", BAD)
def test_other_sets_end_as_without_the_method(name):
    limits, expected = BAD[name]
    ours, others = both(compiled(limits))
    v = np.random.default_rng(1).normal(size=16)
    answers = [program.solve(np.ones(16), None, v) for program in (ours, others)]
    assert answers[0].outcome is answers[1].outcome
    assert expected in (None, answers[0].outcome)
    if answers[1].x is not None:
        assert answers[0].x == pytest.approx(answers[1].x, abs=1e-5)


def test_unequal_weights_and_numbers_that_overflow_are_left_to_an_interior_point():
    step = semidefinite_step(of("correlations"))
    assert step(1.0 + np.arange(16.0), np.zeros(16)) is None
    assert step(np.zeros(16), np.zeros(16)) is None
    assert step(np.ones(16), np.full(16, 1e200)) is None
    assert step(np.ones(16), np.full(16, np.nan)) is None


@pytest.mark.parametrize(
    "limits",
    [
        lambda X: [cp.diag(X) == 1, X >= -0.5],
        lambda X: [cp.trace(X) == 1, cp.norm(X[0]) <= 0.3],
        lambda X: [cp.trace(X) == 1, np.eye(4) >> X],
    ],
)
def test_sets_with_other_cones_are_none(limits):
    assert semidefinite_step(compiled(limits)) is None
