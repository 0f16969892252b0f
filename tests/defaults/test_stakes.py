"""What margins cost for public stand-ins, and what plans make of it."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.defaults.stakes import at_stand_ins
from dpcvx.defaults.study import study as compiled

BUDGET = dict(epsilon=1.0, delta=1e-6, violation_probability=0.1)
LIKE = np.array([1.0, 2.0, 0.5, *[0.1] * 5])


def grid(like=LIKE, unit=1.0, currency=1.0, data=LIKE + 0.05, bent=0.0, most=0.6):
    """Two generators, a balance, and a line that carries the third load."""
    p, tie = cp.Variable(2, name="p", nonneg=True), cp.Variable(name="tie")
    load = dp.Private(
        unit * data, name="load", proxy=None if like is None else unit * like,
        adjacency=dp.Within(0.01 * unit),
    )  # fmt: skip
    cost = currency * (np.array([1.0, 3.0]) @ p / unit)
    if bent:
        cost += currency * bent / 2 * cp.sum_squares((p - load[:2]) / unit)
    limits = [
        p <= 2.5 * unit,
        cp.sum(p) >= cp.sum(load),
        tie == p[0] - p[1],
        load[2] + tie / 2 <= most * unit,
    ]
    return dp.Problem([dp.Agent(cp.Minimize(cost), limits, name="grid")])


def stakes(problem):
    return compiled(problem).at_stand_ins.stakes


def test_prices_are_the_multipliers_at_the_stand_ins():
    p, tie = cp.Variable(2, nonneg=True), cp.Variable()
    balance, line = cp.sum(p) >= LIKE.sum(), LIKE[2] + tie / 2 <= 0.6
    public = [p <= 2.5, tie == p[0] - p[1], balance, line]
    cp.Problem(cp.Minimize(np.array([1.0, 3.0]) @ p), public).solve(cp.CLARABEL)
    (one,), (other,) = stakes(grid())
    assert one.price == pytest.approx(balance.dual_value, rel=0.01)
    assert other.price == pytest.approx(line.dual_value, rel=0.01)
    assert min(one.price, other.price) > 0.1
    np.testing.assert_allclose(one.rows, -np.ones((1, 8)))
    np.testing.assert_allclose(other.rows, -np.eye(8)[2:3])


def test_a_constraint_with_room_has_no_price():
    (_,), (line,) = stakes(grid(most=9.0))
    assert line.price == 0


def test_objectives_with_private_data_are_those_of_the_stand_ins():
    p = cp.Variable(2, nonneg=True)
    balance = cp.sum(p) >= LIKE.sum()
    cost = np.array([1.0, 3.0]) @ p + 2 * cp.sum_squares(p - LIKE[:2])
    cp.Problem(cp.Minimize(cost), [p <= 2.5, balance]).solve(cp.CLARABEL)
    (one,), _ = stakes(grid(bent=4.0, most=9.0))
    assert one.price == pytest.approx(balance.dual_value, rel=0.01)


def test_rows_of_coefficients_are_those_at_the_optimum():
    x = cp.Variable(3, name="x", nonneg=True)
    like = np.array([1.0, 2.0, 4.0])
    weight = dp.Private(like, name="weight", proxy=like + 0.0, adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Maximize(cp.sum(x)), [weight @ x <= 2.0, x <= 1], name="shop")
    ((one,),) = stakes(dp.Problem([agent]))
    np.testing.assert_allclose(np.abs(one.rows), [[1.0, 0.5, 0.0]], atol=1e-6)
    assert one.price == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize(
    "problem",
    [grid(like=None), grid(like=LIKE + 9), grid(most=-9.0)],
    ids=["nothing", "no decision", "empty"],
)
def test_nothing_is_known_without_an_optimum_for_stand_ins(problem):
    assert stakes(problem) == ()
    equal = problem.plan(**BUDGET)
    assert equal.agents[0].publication.kind == "data"
    assert "violation_probability" not in {choice.what for choice in equal.choices}


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_margins_that_cost_are_smaller_and_those_with_room_larger(kind):
    equal = grid(like=None, most=9.0).plan(mechanism=kind, **BUDGET)
    shaped = grid(most=9.0).plan(mechanism=kind, **BUDGET)
    (balance, line), (plain, room) = (
        [kept.margins[0] for kept in plan.program.kept] for plan in (shaped, equal)
    )
    assert balance < 0.8 * plain
    assert room < line < 8 * room
    assert "costs of margins for the proxy data" in " ".join(str(shaped).split())


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_units_do_not_matter(kind):
    found = []
    for unit, currency in ((1.0, 1.0), (1e3, 1.0), (1.0, 1e4)):
        plan = grid(unit=unit, currency=currency, bent=2.0).plan(mechanism=kind, **BUDGET)
        found.append([kept.margins[0] / unit for kept in plan.program.kept])
    np.testing.assert_allclose(found[1:], [found[0]] * 2, rtol=0.03)


def test_the_smaller_cost_decides_which_noise():
    for like in (None, LIKE):
        assert grid(like=like).plan(**BUDGET).agents[0].noise.mechanism.norm == 1


def test_other_stand_ins_are_another_plan():
    prints = [grid(like=like).plan(**BUDGET).fingerprint for like in (None, LIKE, LIKE + 0.1)]
    assert len(set(prints)) == 3
    assert grid().plan(**BUDGET).fingerprint == prints[1]


def test_runs_replay():
    plan = grid(most=9.0).plan(**BUDGET)
    assert plan.agents[0].publication.kind == "shaped data"
    run = plan.run(seed=1, verbose=False, record=True)
    again = plan.replay(run.transcript)
    for variable in plan.problem.variables():
        np.testing.assert_array_equal(run.solution[variable], again.solution[variable])


def test_noise_with_a_limit_keeps_one_level():
    plan = grid().plan(epsilon=2.0, delta=0.5, violation_probability=0)
    assert plan.agents[0].publication.kind == "data"


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_one_change_moves_a_shaped_release_by_what_is_charged(kind):
    plan = grid(most=9.0).plan(mechanism=kind, **BUDGET)
    found = plan.agents[0].publication
    assert found.kind == "shaped data"
    norm = plan.agents[0].noise.mechanism.norm
    moved = np.linalg.norm(0.01 * found.encode.toarray(), norm, axis=0)
    assert moved.max() == pytest.approx(found.sensitivity, rel=1e-6)
    assert dp.check_sensitivity(plan).passed
    half = replace(found, sensitivity=found.sensitivity / 2)
    agents = tuple(replace(agent, publication=half) for agent in plan.agents)
    assert not dp.check_sensitivity(replace(plan, agents=agents)).passed


def test_stakes_need_no_private_data():
    def unread():
        raise AssertionError("read")

    p = cp.Variable(name="p")
    load = dp.Private(unread, shape=(2,), proxy=[1.0, 2.0], name="load", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(p), [p >= cp.sum(load)], name="grid")])
    known = compiled(problem)
    ((one,),) = at_stand_ins(problem, known.program, known.sensitivities).stakes
    assert one.price == pytest.approx(1.0, rel=0.01)


def pressed(*limits, copies=1, like=True):
    """Forces on the minimizer of |x - d|^2 within limits on x, by each agent alike."""
    x = cp.Variable(3, name="x")
    values = np.array([3.0, -2.0, 0.5])
    agents = []
    for k in range(copies):
        d = dp.Private(
            values, name=f"d{k}", proxy=values + 0.0 if like else None, adjacency=dp.Within(0.1)
        )
        cost = cp.Minimize(cp.sum_squares(x - d) / copies)
        agents.append(dp.Agent(cost, [limit(x) for limit in limits], name=f"a{k}"))
    return compiled(dp.Problem(agents)).at_stand_ins.forces


@pytest.mark.parametrize("copies", [1, 2])
def test_forces_are_multipliers_times_normals(copies):
    found = pressed(lambda x: cp.abs(x) <= 1, copies=copies).toarray()
    # -grad of |x - d|^2 at (1, -1, 0.5); agents with the same bounds press once.
    assert sorted(found.tolist()) == [[0.0, -2.0, 0.0], [4.0, 0.0, 0.0]]


def test_a_cone_presses_along_its_normal():
    found = pressed(lambda x: cp.norm(x) <= 1).toarray()
    d = np.array([3.0, -2.0, 0.5])
    expected = 2 * (np.linalg.norm(d) - 1) * d / np.linalg.norm(d)
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found[0], expected, rtol=0.01)


def test_what_does_not_bind_does_not_press():
    assert pressed(lambda x: cp.abs(x) <= 4).shape == (0, 3)
    assert pressed(lambda x: cp.abs(x) <= 1, like=False) is None


def test_a_problem_without_rows_has_no_forces():
    x = cp.Variable(2)
    d = dp.Private([1.0, 2.0], adjacency=dp.Within(0.1), proxy=[1.1, 1.9])
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    assert problem.plan(epsilon=1.0, delta=1e-6).release == "once"
