"""Tightened constraints: what they admit holds for all noise that they are kept for."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import dpcvx as dp
from dpcvx.model.private_constraints import NoiseBall, Tightened, private_constraint
from dpcvx.solvers.conic import ConicProgram

D = 4
d = dp.Private(shape=D, adjacency=dp.Within(0.1), name="d")
x = cp.Variable(D, name="x")
B = np.random.default_rng(2).normal(size=(3, D))
LEFT = np.random.default_rng(1).normal(0, 0.3, D) + 1
BENT = {
    "coefficients": d @ x <= 2,
    "several rows": cp.multiply(d, x) <= 1 + d[0],
    "cone with a private bound": cp.norm(x) <= 7 - d @ x,
    "cone around coefficients": cp.norm(cp.multiply(d, x) - 1) <= 2,
    "matrix": cp.bmat(
        [[2 - d[0] * x[0], d[1] * x[1]], [d[1] * x[1], 2 - d[2] * x[2] + d[3] * x[3]]]
    )
    >> 0,
    "cone with both": cp.SOC(4 + d[0] * x[0], cp.multiply(d, x) - B[0]),
}


def limit_of(constraint):
    compiled = private_constraint(constraint, [d], "Constraint 0 of agent 'a'", "a")
    return Tightened(compiled, 0, np.arange(compiled.layout.size))


def ball(radius):
    scale = np.array([0.1, 0.2, 0.05, 0.1])
    return NoiseBall(radius, sp.csr_array(np.diag(scale)))


def bent(constraint, radius):
    limit = limit_of(constraint)
    balls = {k: ball(radius) for k, part in enumerate(limit.constraint.parts) if part.bends}
    return replace(limit, balls=balls)


def decided(tightened, direction):
    """The decision furthest in a direction, in a box."""
    data = tightened.at(LEFT)
    N = data.q.size
    box = sp.csc_array(sp.vstack([sp.eye_array(D, N), -sp.eye_array(D, N)]))
    first = data.cones.zero + data.cones.nonneg
    A = sp.csc_array(sp.vstack([data.A[:first], box, data.A[first:]]))
    b = np.concatenate([data.b[:first], np.full(2 * D, 3.0), data.b[first:]])
    q = data.q.copy()
    q[:D] -= direction
    cones = replace(data.cones, nonneg=data.cones.nonneg + 2 * D)
    whole = replace(data, A=A, b=b, q=q, cones=cones)
    return ConicProgram(whole).solve(np.zeros(D), None, np.zeros(D)).x


def excess(constraint, point, data):
    constants = {id(d): cp.Constant(data), id(x): cp.Constant(point)}
    return float(np.max(constraint.tree_copy(constants).violation()))


@pytest.mark.parametrize("price", [None, 100.0])
@pytest.mark.parametrize("name", ["coefficients", "several rows"])
def test_decisions_hold_for_all_noise_of_the_box_and_for_no_more(name, price):
    constraint, rng = BENT[name], np.random.default_rng(5)
    limit = limit_of(constraint)
    box = replace(ball(2.0), box=True)
    tightened = replace(
        limit, balls={k: box for k in range(len(limit.constraint.parts))}, price=price
    )
    corners = 2.0 * np.array(np.meshgrid(*[[-1, 1]] * D)).reshape(D, -1).T @ box.noise.toarray()
    for direction in rng.normal(1.0, 0.3, size=(3, D)):
        point = decided(tightened, direction)
        worst = max(excess(constraint, point, LEFT - xi) for xi in corners)
        assert -1e-5 <= worst <= 1e-5  # it binds at some corner, and holds at all


@pytest.mark.parametrize("name", BENT)
def test_decisions_hold_for_all_noise_of_the_ball(name):
    constraint, rng = BENT[name], np.random.default_rng(4)
    tightened, loose = bent(constraint, 2.0), bent(constraint, 0.0)
    broken = 0
    for direction in rng.normal(1.0, 0.3, size=(4, D)):
        points = decided(tightened, direction), decided(loose, direction)
        u = rng.normal(size=(100, D))
        noise = 2.0 * u / np.linalg.norm(u, axis=1)[:, None] @ ball(1.0).noise.toarray()
        kept, without = ([excess(constraint, point, LEFT - xi) for xi in noise] for point in points)
        assert max(kept) <= 1e-6
        broken += max(without) > 0.01
    assert broken  # without margins some noise breaks them


def test_the_margin_of_coefficients_is_attained():
    tightened = bent(BENT["coefficients"], 2.0)
    point = decided(tightened, np.ones(D))
    worst = -ball(2.0).noise @ (ball(1.0).noise @ point)
    worst *= 2.0 / np.linalg.norm(worst / np.diag(ball(1.0).noise.toarray()))
    assert (LEFT - worst) @ point == pytest.approx(2.0, abs=1e-6)


def test_margins_are_subtracted_from_what_does_not_bend():
    limit = limit_of(np.ones(D) @ x <= d[0] - d[1])
    tightened = replace(limit, margins={0: 0.25})
    point = decided(tightened, np.ones(D))
    assert point.sum() == pytest.approx(LEFT[0] - LEFT[1] - 0.25, abs=1e-7)


def test_what_is_missed_is_paid_for():
    limit = limit_of(cp.sum(x) >= 100 + cp.sum(d))
    cheap = replace(limit, margins={0: 0.5}, price=0.1)
    dear = replace(limit, margins={0: 0.5}, price=10.0)
    down = -np.ones(D)
    assert decided(cheap, down) == pytest.approx(-3 * np.ones(D), abs=1e-6)
    assert decided(dear, down) == pytest.approx(3 * np.ones(D), abs=1e-6)
    assert decided(replace(limit, margins={0: 0.5}), down) is None


def test_directions_are_known_where_no_data_multiply_variables():
    limit = limit_of(cp.sum(x) >= cp.sum(d))
    found = replace(limit, margins={0: 0.5}).directions()
    assert found is not None and (found.A != limit.constraint.data.A).nnz == 0
    assert bent(BENT["coefficients"], 1.0).directions() is None
