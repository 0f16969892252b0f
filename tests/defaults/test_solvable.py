"""Refusals of problems without a solution."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults import solvable


@pytest.mark.parametrize("method", [dp.OneShot(), dp.ADMM()])
@pytest.mark.parametrize("top", [2.0, None])
def test_what_boxes_bound_is_not_asked_of_a_solver(method, top, monkeypatch):
    x, d = cp.Variable(2, name="x"), dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    bounds = [x >= -1, 3 * x[1] == 2, *([] if top is None else [x <= top])]
    asked = []
    monkeypatch.setattr(solvable, "bounded_for_slopes", lambda *_: asked.append(True) or True)
    agent = dp.Agent(cp.Minimize(cp.norm1(x) + d @ x), bounds, name="a")
    dp.Problem([agent]).plan(method, epsilon=1.0, delta=1e-6)
    assert bool(asked) == (top is None)
