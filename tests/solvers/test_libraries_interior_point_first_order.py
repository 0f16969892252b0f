"""SCS: the same answers as the interior point's, on every cone that it has."""

import cvxpy as cp
import numpy as np
import pytest

from dpcvx.solvers.conic import ConicProgram
from dpcvx.solvers.libraries import first_order
from tests import sets
from tests.sets import CONIC, data_of


@pytest.mark.parametrize("name", [n for n in CONIC if n != "power nd"])
@pytest.mark.parametrize("seed", range(2))
def test_the_fallback_solver_agrees_on_every_cone(name, seed):
    data = sets.compiled(CONIC[name].agent())
    program = ConicProgram(data)
    r = np.random.default_rng(seed)
    v, D = r.normal(size=data.n), r.uniform(0.5, 2, data.n)
    values = program._quadratic.base.copy()
    values[program._quadratic.slots] += D
    q = np.concatenate([-D * v, np.zeros(data.A.shape[1] - data.n)])
    fallback = first_order(program._with(values), q, data.b, data)
    assert fallback[: data.n] == pytest.approx(program.solve(D, -D * v, v).x, abs=1e-4)


def test_the_fallback_solver_agrees_on_exact_steps_with_all_cones_at_once():
    X, y = cp.Variable((3, 3), symmetric=True), cp.Variable(3)
    cost = cp.sum_squares(X - np.diag([1.0, -1, 0.5])) + cp.sum_squares(y) + y[0]
    constraints = [
        X >> 0, X[0, 1] + y[0] == 0.2, cp.exp(y[1]) <= X[2, 2] + 1, cp.norm(y) <= 1,
        cp.PowCone3D(X[0, 0], X[1, 1] + 1, y[2], 0.3), y <= 0.9,
    ]  # fmt: skip
    data = data_of(cost, constraints)
    assert min(data.cones.zero, data.cones.nonneg, data.cones.exp) > 0
    assert data.cones.soc and data.cones.psd and data.cones.power
    program = ConicProgram(data)
    values = program._quadratic.base.copy()
    values[program._quadratic.slots] += 0.5
    fallback = first_order(program._with(values), data.q, data.b, data)
    answer = program.solve(np.full(data.n, 0.5), np.zeros(data.n), np.ones(data.n))
    assert fallback[: data.n] == pytest.approx(answer.x, abs=1e-4)


def test_the_fallback_solver_declines_generalized_power_cones():
    data = sets.compiled(CONIC["power nd"].agent())
    program = ConicProgram(data)
    assert first_order(program._with(program._quadratic.base), data.q, data.b, data) is None
