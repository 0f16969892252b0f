"""Constraint sets by kind, their projectors, and a reference projection through cvxpy."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import dpcvx as dp
from dpcvx.model.canonical import cone_data
from dpcvx.model.layout import gather
from dpcvx.solvers.projector import Projector


@dataclass(frozen=True)
class Case:
    """Constraints on some variables, and the blocks they should fall into."""

    variables: Callable[[], tuple[cp.Variable, ...]]
    constraints: Callable[..., list]
    kinds: dict[str, int]

    def agent(self):
        variables = self.variables()
        cost = sum(cp.sum(v) for v in variables)
        return dp.Agent(cp.Minimize(cost), self.constraints(*variables), name="bob")


def compiled(agent):
    return cone_data(None, list(agent.constraints), agent.variables, agent.layout)


def data_of(cost, constraints=()):
    """A program with its objective."""
    agent = dp.Agent(cp.Minimize(cost), constraints, name="bob")
    return cone_data(agent.cost, list(agent.constraints), agent.variables, agent.layout)


def projector(agent):
    return Projector(compiled(agent), agent.name)


def of(*constraints):
    """Projector onto constraints whose variables all occur in them."""
    return projector(dp.Agent(cp.Minimize(0), constraints, name="bob"))


def accuracy(D, reach):
    """Bound of the error in the D-norm of projections that are solved, within reach of the center.

    The objective is strongly convex with modulus one in the D-norm, so a gap g on the problem
    scaled to unit curvature leaves at most sqrt(2 g) there; the gap, 5e-11, is relative to the
    objective, which is at most half the squared distance from the center.
    """
    return math.sqrt(2 * 5e-11 * max(float(D.max()), reach**2 / 2))


def reference(agent, v, D):
    """The projection as cvxpy sees it: squares in the objective, no cone data of this package."""
    cost = 0
    for variable, piece in zip(agent.variables, agent.layout.pieces, strict=True):
        at = slice(piece.offset, piece.stop)
        entries = cp.vec(variable, order="F")[piece.entries]
        cost += cp.sum(cp.multiply(D[at], cp.square(entries - v[at])))
    problem = cp.Problem(cp.Minimize(cost / D.max()), list(agent.constraints))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        problem.solve(cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    values = {v.id: np.zeros(v.shape) if v.value is None else v.value for v in agent.variables}
    return gather(agent.layout, values)


def vector(n=4, **attributes):
    return lambda: (cp.Variable(n, name="x", **attributes),)


WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0])
MATRIX = np.array([[1.0, 2.0, -1.0, 0.5], [0.0, 1.0, 1.0, -2.0]])

CLOSED = {
    "free": Case(vector(), lambda x: [], {"free": 4}),
    "box, attribute nonneg": Case(vector(nonneg=True), lambda x: [], {"box": 4}),
    "box, attribute bounds": Case(
        vector(bounds=[np.array([-1.0, 0, -np.inf, 0.2]), 0.5]), lambda x: [], {"box": 4}
    ),
    "box, constraints": Case(vector(), lambda x: [x <= 0.3, -2 * x <= 1], {"box": 4}),
    "fixed entries": Case(vector(), lambda x: [x[:2] == 0.3, x[2] >= 1], {"box": 3, "free": 1}),
    "abs": Case(vector(), lambda x: [cp.abs(x) <= 0.4], {"box": 4}),
    "shifted abs": Case(vector(), lambda x: [cp.abs(x - 1) <= 0.4], {"box": 4}),
    "norm_inf": Case(vector(), lambda x: [cp.norm_inf(x) <= 0.4], {"box": 4}),
    "max": Case(vector(), lambda x: [cp.max(x) <= 0.4], {"box": 4}),
    "simplex": Case(vector(), lambda x: [x >= 0, cp.sum(x) == 1], {"simplex": 4}),
    "capped simplex": Case(
        vector(nonneg=True), lambda x: [x <= 0.4, cp.sum(x) == 1], {"simplex": 4}
    ),
    "halfspace": Case(vector(), lambda x: [WEIGHTS @ x <= -1], {"simplex": 4}),
    "hyperplane": Case(vector(), lambda x: [WEIGHTS @ x == -1], {"simplex": 4}),
    "knapsack": Case(
        vector(), lambda x: [x >= -0.5, x <= 0.5, WEIGHTS @ x <= -0.7], {"simplex": 4}
    ),
    "weighted simplex": Case(
        vector(), lambda x: [x[:3] >= -0.5, x[1:] <= 0.5, WEIGHTS @ x == 0.3], {"simplex": 4}
    ),
    "ball, norm": Case(vector(), lambda x: [cp.norm(x) <= 0.7], {"ball": 4}),
    "ball, sum_squares": Case(vector(), lambda x: [cp.sum_squares(x) <= 0.7], {"ball": 4}),
    "ball, SOC": Case(vector(), lambda x: [cp.SOC(cp.Constant(0.7), x)], {"ball": 4}),
    "shifted ball": Case(vector(), lambda x: [cp.norm(x - WEIGHTS) <= 0.7], {"ball": 4}),
    "point": Case(vector(), lambda x: [cp.norm(x - WEIGHTS) <= 0], {"ball": 4}),
    "ellipsoid": Case(
        vector(), lambda x: [cp.norm(cp.multiply(WEIGHTS, x) - 0.5) <= 0.7], {"ball": 4}
    ),
    "ellipsoid, quad_over_lin": Case(
        vector(), lambda x: [cp.quad_over_lin(cp.multiply(WEIGHTS, x), 2) <= 0.7], {"ball": 4}
    ),
    "affine": Case(vector(), lambda x: [MATRIX @ x == np.array([1.0, 0.5])], {"affine": 4}),
    "product": Case(
        vector(9),
        lambda x: [
            cp.sum(x[[0, 3]]) == 1, x[[0, 3]] >= 0, cp.norm(x[[1, 8, 2]]) <= 0.5,
            x[5] <= -1, MATRIX[:, :3] @ x[[4, 6, 7]] == 1,
        ],
        {"simplex": 2, "ball": 3, "box": 1, "affine": 3},
    ),
    "product with a cone": Case(
        vector(7),
        lambda x: [cp.norm1(x[[5, 0]]) <= 0.6, cp.norm(x[[1, 3]]) <= 0.5, x[2] >= 0.1],
        {"conic": 2, "ball": 2, "box": 1, "free": 2},
    ),
    "two variables": Case(
        lambda: (cp.Variable(name="y"), cp.Variable((2, 2), name="x")),
        lambda y, x: [cp.sum(x) + y == 1, x >= 0, y >= 0],
        {"simplex": 5},
    ),
}  # fmt: skip

CONIC = {
    "polyhedron": Case(vector(), lambda x: [MATRIX @ x <= 0.1, cp.sum(x) == 0.2], {"conic": 4}),
    "l1 ball": Case(vector(), lambda x: [cp.norm1(x) <= 0.6], {"conic": 4}),
    "SOC": Case(vector(), lambda x: [cp.SOC(x[0], x[1:])], {"conic": 4}),
    "PSD attribute": Case(lambda: (cp.Variable((3, 3), PSD=True),), lambda x: [], {"conic": 9}),
    "NSD attribute": Case(lambda: (cp.Variable((3, 3), NSD=True),), lambda x: [], {"conic": 9}),
    "PSD constraint": Case(
        lambda: (cp.Variable((3, 3), symmetric=True),),
        lambda x: [x >> 0, cp.trace(x) <= 1],
        {"conic": 9},
    ),
    "lambda_max": Case(
        lambda: (cp.Variable((3, 3), symmetric=True),),
        lambda x: [cp.lambda_max(x) <= 0.5],
        {"conic": 9},
    ),
    "exp": Case(vector(2), lambda x: [cp.exp(x[0]) <= x[1]], {"conic": 2}),
    "log": Case(vector(2), lambda x: [cp.log(x[0]) >= x[1]], {"conic": 2}),
    "entropy": Case(vector(3), lambda x: [cp.sum(cp.entr(x)) >= 0.5], {"conic": 3}),
    "power 3d": Case(
        vector(3), lambda x: [cp.PowCone3D(x[0], x[1], x[2], 0.3)], {"conic": 3}
    ),
    "power nd": Case(
        vector(4),
        lambda x: [cp.PowConeND(x[:3], x[3], np.array([0.2, 0.3, 0.5]))],
        {"conic": 4},
    ),
    "geo_mean": Case(vector(3), lambda x: [cp.geo_mean(x) >= 0.5], {"conic": 3}),
    "log_det": Case(
        lambda: (cp.Variable((2, 2), symmetric=True),),
        lambda x: [cp.log_det(x) >= 0.2],
        {"conic": 4},
    ),
}  # fmt: skip

ALL = CLOSED | CONIC
