"""Inequalities in coupling=: slacks that somebody without private data holds."""

import copy

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms.common_point import common_point

WANTED = np.array([[1.5, 0.2], [1.0, 1.8], [0.3, 0.9]])


def charging(public=0):
    """Cars under one feeder, of which two have to charge something; public ones besides."""
    xs = [cp.Variable(2, nonneg=True, name=f"x{k}") for k in range(3 + public)]
    agents = [
        dp.Agent(
            cp.Minimize(
                cp.sum_squares(x - dp.Private(d, adjacency=dp.Within(0.1), name=f"wanted {k}"))
            ),
            [x <= 2],
            name=f"car {k}",
        )
        for k, (x, d) in enumerate(zip(xs, WANTED, strict=False))
    ]
    agents += [
        dp.Agent(cp.Minimize(cp.sum_squares(x - 0.5)), name=f"lamp {k}")
        for k, x in enumerate(xs[3:])
    ]
    feeder = [sum(xs) <= 2.5, xs[0][1] + xs[1][1] >= 1.0]
    return dp.Problem(agents, coupling=feeder), xs


METHODS = {
    "OneShot": (dp.OneShot(), None),
    "ResourceADMM": (dp.ResourceADMM(step=0.1, randomness=0.0), 400),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("public", [0, 1, 2])
def test_inequalities_hold_at_the_common_optimum(method, public):
    problem, xs = charging(public)
    chosen, rounds = METHODS[method]
    found = problem.solve(chosen, mechanism=None, rounds=rounds, verbose=False)
    central = dp.not_private.joint_problem(problem)
    central.solve(solver=cp.CLARABEL)
    for x in xs:
        assert found.last[x] == pytest.approx(x.value, abs=1e-4)
    # One of the two is active, so that the test is about something.
    assert sum(xs).value.max() == pytest.approx(2.5, abs=1e-6)


def test_a_private_run_keeps_them_and_names_who_holds_the_slacks():
    problem, xs = charging()
    assert problem.names == ("car 0", "car 1", "car 2", "slack of coupling")
    method = dp.ResourceADMM(step=0.1)
    found = problem.solve(method, rounds=100, epsilon=1.0, delta=1e-6, seed=1, verbose=False)
    returned = found.solution
    total = sum(returned[x] for x in xs)
    assert (total <= 2.5 + 1e-7).all() and returned[xs[0]][1] + returned[xs[1]][1] >= 1 - 1e-7
    assert returned.coupling_residual <= 1e-7
    assert "slack of coupling: nothing private was released" in str(found.ledger)


def test_the_only_public_agent_holds_them():
    problem, _ = charging(1)
    assert problem.names == ("car 0", "car 1", "car 2", "lamp 0")
    held = {variable.name() for variable in problem.agents[3].variables}
    assert held == {"x3", "slack of coupling 0", "slack of coupling 1"}


COUPLINGS = {
    "x under y": lambda x, y: [x <= y],
    "sum of x": lambda x, y: [x == y, cp.sum(x) <= -1],
    "sum of y": lambda x, y: [x == y, cp.sum(y) <= -1],
    "both": lambda x, y: [cp.sum(x) + cp.sum(y) <= -1],
}


@pytest.mark.parametrize("case", COUPLINGS)
def test_two_blocks_take_them(case):
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    d = dp.Private(np.array([0.5, -0.2, 0.8]), adjacency=dp.Within(0.1), name="d")
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user")
    public = dp.Agent(cp.Minimize(cp.norm1(y)), [y <= 1], name="public")
    problem = dp.Problem([user, public], coupling=COUPLINGS[case](x, y))
    found = problem.solve(dp.GradientADMM(), mechanism=None, rounds=200, verbose=False)
    dp.not_private.joint_problem(problem).solve(solver=cp.CLARABEL)
    assert found.last[x] == pytest.approx(x.value, abs=1e-4)


def test_violations_are_those_of_what_was_written():
    """Slacks that are off violate nothing."""
    problem, xs = charging()
    plan = problem.plan(dp.OneShot(), mechanism=None)
    coupling = plan.program.coupling
    values = np.zeros(coupling.matrix.shape[1])
    for x, inside in zip(xs, ([0.0, 0.4], [0.0, 0.3], [0.0, 0.0]), strict=True):
        start = coupling.starts[x.id]
        values[start : start + 2] = inside
    values[coupling.slack.indices] = 17.0
    assert coupling.violation(values) == pytest.approx(0.3)  # 0.4 + 0.3 where 1 is due
    values[coupling.starts[xs[2].id]] = 3.0
    assert coupling.violation(values) == pytest.approx(0.5)
    equalities = dp.Problem(problem.agents[:3], coupling=[xs[0] + xs[1] == xs[2]])
    tied = equalities.plan(dp.OneShot(), mechanism=None).program.coupling
    ones = np.arange(6.0)
    assert not tied.slack.nnz
    assert tied.violation(ones) == np.abs(tied.matrix @ ones - tied.right).max()


def test_points_that_keep_inequalities_stay_where_they_are():
    problem, _ = charging()
    program = problem.plan(dp.OneShot(), mechanism=None).program
    vectors = [np.array([0.2, 0.6]), np.array([0.1, 0.9]), np.array([1.0, 0.1])]
    slacks = np.full(program.agents[3].n, 5.0)
    found = common_point(program, [*vectors, slacks])
    for before, after in zip(vectors, found.vectors, strict=False):
        assert after == pytest.approx(before, abs=1e-9)
    assert found.found and found.excess <= 1e-9


def test_agents_are_known_as_they_were_given():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private([1.0, 2.0], adjacency=dp.Within(0.1), name="d")
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user")
    public = dp.Agent(cp.Minimize(cp.sum_squares(y)), name="public")
    problem = dp.Problem([user, public], coupling=[x <= y], groups=[[user, public]])
    assert problem.group_names == (("user", "public"),)
    plan = problem.plan(dp.OneShot(), epsilon={user: 1.0}, delta=1e-6)
    assert plan.price.epsilon <= 1.0


def test_equalities_add_nobody():
    problem, xs = charging()
    plain = dp.Problem(problem.agents[:3], coupling=[sum(xs) == 2.5])
    assert plain.names == ("car 0", "car 1", "car 2") and not plain.slacks


def test_copies_keep_their_slacks():
    problem, _ = charging()
    twin = copy.deepcopy(problem)
    one, two = (p.plan(dp.OneShot(), mechanism=None).fingerprint for p in (problem, twin))
    assert one == two


def test_private_data_stay_out_of_inequalities():
    problem, xs = charging()
    limit = dp.Private(2.5, adjacency=dp.Within(0.1), name="limit")
    with pytest.raises(dp.PrivacyError, match="Element 0 of coupling=.*'limit'"):
        dp.Problem(problem.agents[:3], coupling=[sum(xs) <= limit])


def test_what_is_not_affine_gets_no_slack():
    problem, xs = charging()
    tied = dp.Problem(problem.agents[:3], coupling=[cp.norm(xs[0]) <= cp.sum(xs[1]), sum(xs) <= 1])
    assert [position for position, _ in tied.conic] == [0]
    assert len(tied.slacks) == len(tied.equalities) == 1


def test_an_agent_of_the_same_name_is_refused():
    problem, xs = charging()
    cars = list(problem.agents[:3])
    cars[0] = dp.Agent(cars[0].objective, cars[0].constraints, name="slack of coupling")
    with pytest.raises(dp.ModelError, match="called 'slack of coupling'.*another name="):
        dp.Problem(cars, coupling=[sum(xs) <= 2.5])


def test_methods_for_shared_variables_list_those_that_take_a_coupling():
    x, y, z = (cp.Variable(2, name=name) for name in "xyz")
    agents = [dp.Agent(cp.Minimize(cp.sum_squares(v)), name=v.name()) for v in (x, y)]
    cases = {
        r"dp\.OneShot\(\).*dp\.ResourceADMM\(\), which": dp.Problem(agents, coupling=[x <= y]),
        r"dp\.OneShot\(\).*dp\.ResourceADMM\(\) after": dp.Problem(
            [*agents, dp.Agent(cp.Minimize(cp.norm(x - z)), name="z")], coupling=[z <= y]
        ),
    }
    for listed, problem in cases.items():
        with pytest.raises(dp.ModelError, match=rf"takes no coupling=.*this coupling: {listed}"):
            problem.plan(dp.LinearizedADMM(), mechanism=None)
