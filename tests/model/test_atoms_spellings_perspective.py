"""cp.perspective in models: copies keep its function, and the data in it are known."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.model.atoms.spellings import copyable

x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
s = cp.Variable(name="s", nonneg=True)
D = np.array([1.0, 2.0])
BUDGET = {"epsilon": 1e6, "delta": 1e-6}


def parts(d):
    """Objective and constraints with data beside the atom, in it, and in a constraint."""
    limits = [s <= 0.5, cp.norm(x) <= 3]
    return {
        "beside": (cp.perspective(cp.sum_squares(x), s) - d @ x, limits),
        "inside": (cp.perspective(cp.sum_squares(x - d), s) + cp.sum_squares(x), limits),
        "constraint": (
            t + cp.sum_squares(x - 3),
            [*limits, cp.perspective(cp.sum_squares(x - d), s) <= t],
        ),
    }


@pytest.mark.parametrize("name", ["beside", "inside", "constraint"])
def test_the_solution_is_that_of_cvxpy(name):
    d = dp.Private(D, name="d", adjacency=dp.Within(0.1))
    cost, constraints = parts(d)[name]
    agent = dp.Agent(cp.Minimize(cost), constraints, name="a")
    assert agent.private == (d,)
    given = {"constraints": "released"} if name == "constraint" else {}
    plan = dp.Problem([agent]).plan(dp.OneShot(as_written=True), **BUDGET, **given)
    result = pickle.loads(pickle.dumps(plan)).run(data={"d": D}, seed=0)
    cost, constraints = parts(D)[name]
    public = cp.Problem(cp.Minimize(cost), constraints)
    public.solve(solver=cp.CLARABEL)
    assert result[x] == pytest.approx(x.value, abs=1e-3)
    price = plan.run(seed=0).solution.dual(agent.constraints[0])
    assert price == pytest.approx(constraints[0].dual_value, abs=1e-3)


def test_agents_that_differ_in_the_function_alone_are_different():
    agents, values = [], []
    for k, f in enumerate([cp.square, lambda z: 9 * cp.abs(z)]):
        y, e, r = cp.Variable(name=f"y{k}"), cp.Variable(name=f"e{k}"), cp.Variable(nonneg=True)
        limits = [cp.perspective(f(y), r) <= e, r <= 2]
        cost = e + cp.square(y - 1) + cp.square(t - k)
        agents.append(dp.Agent(cp.Minimize(cost), limits, name=f"agent {k}"))
        values.append(y)
    result = dp.Problem(agents).solve(dp.OneShot(), mechanism=None)
    assert [float(result[y]) for y in values] == pytest.approx([2 / 3, 0], abs=1e-4)


def test_at_a_number_it_is_a_multiple_of_the_function():
    (cost,) = copyable(cp.Minimize(cp.perspective(cp.sum_squares(x), s))).args
    at_half = cost.tree_copy({id(s): cp.Constant(0.5), id(x): cp.Constant(D)})
    assert at_half.value == pytest.approx(10.0)
    with pytest.raises(dp.ModelError, match="no value at s = 0"):
        cost.tree_copy({id(s): cp.Constant(0.0)})
    with pytest.raises(dp.ModelError, match="has an expression as s"):
        cost.tree_copy({id(s): t + 1})
