"""Second derivatives of objectives at a public point."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.program import compile_problem
from dpcvx.model.quadratic import hessian, hessian_at


def form_of(cost, *limits):
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), list(limits))])
    # With terms that steps minimize, such as public exponentials, in the form.
    return compile_problem(problem, proximal=False).agents[0].form


def at(form, x, scale=1.0):
    return hessian_at(form, np.asarray(x, dtype=float), np.full(form.n, scale)).toarray()


@pytest.mark.parametrize("seed", range(3))
def test_smooth_terms_bend_as_their_formula_says(seed):
    rng = np.random.default_rng(seed)
    A, B, point = rng.normal(size=(7, 3)), rng.normal(size=(4, 3)), rng.normal(size=3)
    x = cp.Variable(3, name="x")
    d = dp.Private(np.zeros(3), name="d", adjacency=dp.Within(1.0))
    form = form_of(cp.sum(cp.logistic(A @ x)) + cp.sum_squares(B @ x) - d @ x)
    p = 1 / (1 + np.exp(-A @ point))
    expected = A.T @ (A * (p * (1 - p))[:, None]) + 2 * B.T @ B
    np.testing.assert_allclose(at(form, point), expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(hessian(form)[0].toarray(), 2 * B.T @ B)


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e5])
def test_units_of_variables_do_not_matter(unit):
    x = cp.Variable(2, name="x")
    form = form_of(cp.sum(cp.exp(x / unit)))
    found = at(form, unit * np.array([0.3, -0.2]), unit) * unit**2
    np.testing.assert_allclose(found, np.diag(np.exp([0.3, -0.2])), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "bent",
    [lambda x: cp.norm1(x), lambda x: -cp.sum(cp.log(x)), lambda x: cp.huber(x[0], 1.0) + x[1]],
    ids=["kink", "edge", "jump"],
)
def test_where_slopes_or_bends_jump_the_quadratic_part_is_known(bent):
    x = cp.Variable(2, name="x")
    form = form_of(bent(x) + cp.sum_squares(x), x <= 9)
    point = [1.0, 0.0] if "huber" in str(bent(x)) else [0.0, 0.0]
    np.testing.assert_array_equal(at(form, point), 2 * np.eye(2))


def test_terms_with_private_data_are_left_out():
    x = cp.Variable(2, name="x")
    X = dp.Private(np.eye(2), name="X", adjacency=dp.Rows(1.0))
    form = form_of(cp.sum(cp.logistic(X @ x)) + cp.sum_squares(x), cp.abs(x) <= 1)
    np.testing.assert_array_equal(at(form, [0.5, 0.5]), 2 * np.eye(2))
