"""Semidefinite sets in closed form: negative eigenvalues are cut off."""

from functools import cache

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.solvers.conic import ConicProgram, Outcome
from dpcvx.solvers.splitting import orthogonal
from tests import sets, spies


def symmetric(n, **attributes):
    return cp.Variable((n, n), **(attributes or {"symmetric": True}))


def compiled(X, *constraints):
    return sets.compiled(dp.Agent(cp.Minimize(cp.sum(X)), list(constraints), name="bob"))


def clipped(M, low, high):
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    return (vectors * np.clip(values, low, high)) @ vectors.T


def both(X):
    return compiled(X, X >> 0.5 * np.eye(3))


# The set, its matrices' eigenvalues, and whether it leaves their other parts as they are.
SETS = {
    "PSD": (lambda: compiled(symmetric(3, PSD=True)), 0.0, np.inf, False),
    "NSD": (lambda: compiled(symmetric(3, NSD=True)), -np.inf, 0.0, False),
    "above": (lambda: both(symmetric(3)), 0.5, np.inf, False),
    "not symmetric": (lambda: both(cp.Variable((3, 3))), 0.5, np.inf, True),
    "in another unit": (
        lambda: compiled(X := symmetric(3), 100 * X << 200 * np.eye(3)), -np.inf, 2.0, False
    ),
}  # fmt: skip


@cache
def method(name):
    return orthogonal(SETS[name][0]())


@pytest.mark.parametrize("name", SETS)
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-6, 1.0, 1e3, 1e9]),
    weight=st.sampled_from([1e-4, 1.0, 30.0]),
)
def test_eigenvalues_are_clipped(name, seed, scale, weight):
    _, low, high, others = SETS[name]
    M = scale * np.random.default_rng(seed).normal(size=(3, 3))
    found = method(name)(np.full(9, weight), M.ravel(order="F"))
    expected = clipped(M, low, high) + (others * (M - M.T) / 2)
    error = np.sqrt(weight) * np.linalg.norm(found.x - expected.ravel(order="F"))
    assert error <= 1e-13 * np.sqrt(weight) * (1 + scale)
    assert error <= np.sqrt(2 * found.gap) <= 1e-6 * np.sqrt(weight) * (1 + scale)


@pytest.mark.parametrize(
    "further",
    [
        lambda X: [cp.trace(X) <= 1],
        lambda X: [X[0, 0] == 1],
        lambda X: [X[0, 1] == X[1, 2]],
        lambda X: [X << np.eye(3)],
        lambda X: [cp.bmat([[X, np.ones((3, 1))], [np.ones((1, 3)), np.eye(1)]]) >> 0],
    ],
)
def test_sets_with_more_than_a_cone_have_no_such_form(further):
    X = symmetric(3, PSD=True)
    assert orthogonal(compiled(X, *further(X))) is None


def test_other_cones_are_projected_onto_by_other_means():
    x = cp.Variable(3)
    for constraints in ([x >= 0], [cp.SOC(x[0], x[1:])], [cp.exp(x) <= 1]):
        assert orthogonal(compiled(x, *constraints)) is None


def test_two_matrices_are_projected_onto_side_by_side():
    X, Y = symmetric(2), symmetric(2)
    cost = cp.sum(X) + cp.sum(Y)
    data = sets.compiled(dp.Agent(cp.Minimize(cost), [X >> 0, Y << 0], name="bob"))
    M, N = np.random.default_rng(0).normal(size=(2, 2, 2))
    found = orthogonal(data)(np.ones(8), np.concatenate([M.ravel("F"), N.ravel("F")]))
    expected = clipped(M, 0, np.inf), clipped(N, -np.inf, 0)
    assert found.x == pytest.approx(np.concatenate([one.ravel("F") for one in expected]))


def refused(*_):
    raise AssertionError("an interior point was asked")


def test_the_interior_point_is_asked_only_where_weights_differ(monkeypatch):
    program = ConicProgram(compiled(symmetric(3, PSD=True)))
    v, D = np.random.default_rng(1).normal(size=(2, 9))
    unequal = program.solve(1.0 + np.abs(D), None, v)
    assert unequal.outcome is Outcome.SOLVED
    spies.change(monkeypatch, "a conic solver is updated", refused)
    for far in (1e-6, 1.0, 1e9):
        answer = program.solve(np.full(9, 3.0), None, far * v)
        assert answer.outcome is Outcome.SOLVED
        assert answer.error <= 1e-6 * (1 + far)


@pytest.mark.parametrize("size", [np.inf, np.nan, 1e200])
def test_numbers_whose_squares_overflow_have_no_answer(size):
    assert method("PSD")(np.ones(9), np.full(9, size)) is None
    assert method("PSD")(np.zeros(9), np.ones(9)) is None


@pytest.mark.parametrize("n", [5, 8])
def test_with_unequal_weights_points_on_the_edge_are_answered_without_a_word(n, capfd):
    """Clarabel panicked in some, which is a failed attempt, but leaves a text on the terminal."""
    program = ConicProgram(compiled(symmetric(n, PSD=True)))
    rng = np.random.default_rng(0)
    for size in (1e3, 1e5, 1e9):
        for _ in range(40):
            v = rng.normal(size=n)
            D = np.exp(rng.uniform(-0.4, 0.4, size=n * n))
            M = size * np.outer(v, v)
            answer = program.solve(D, None, M.ravel(order="F"))
            assert answer.outcome in (Outcome.SOLVED, Outcome.INACCURATE)
            assert answer.x == pytest.approx(M.ravel(order="F"), abs=1e-4 * size)
    assert capfd.readouterr().err == ""
