"""The model as it is written, solved for released data."""

import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.algorithms import written_model
from dpcvx.algorithms.program import AsWritten, compile_problem
from dpcvx.run.result import Status

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
VALUES = np.array([0.4, 1.2, 0.9, 0.2])


def market(epsilon=1.0, radius=0.05, proxy=None, values=VALUES, **kind):
    """One buyer's utility of four goods; no gradient is bounded without a set around the data."""
    x = cp.Variable(4, nonneg=True, name="x")
    v = dp.Private(values, adjacency=dp.Within(radius), name="v", nonneg=True, proxy=proxy, **kind)
    supply = cp.sum(x) <= 1
    agent = dp.Agent(cp.Maximize(cp.sum(cp.multiply(v, cp.sqrt(x)))), [supply], name="buyer")
    return dp.Problem([agent]), x, supply


def table(**given):
    """Two private totals of a table, which noise sets apart."""
    X = cp.Variable((2, 2), nonneg=True, name="X")
    rows = dp.Private([3.0, 5.0], adjacency=dp.Within(1.0), name="rows", **given)
    columns = dp.Private([4.0, 4.0], adjacency=dp.Within(1.0), name="columns", **given)
    totals = [cp.sum(X, axis=1) == rows, cp.sum(X, axis=0) == columns]
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(X)), totals, name="table")]), X


def test_a_default_plan_solves_the_model_as_it_is_written():
    problem, x, _ = market()
    plan = problem.plan(**BUDGET)
    assert plan.algorithm.as_written and plan.release == "once" and plan.rounds == 1
    assert "the server solves the model as written" in str(plan)
    (agent,) = plan.guarantee.agents
    assert agent.releases == 1 and agent.independent == ()
    result = plan.run(seed=0)
    best = VALUES**2 / (VALUES @ VALUES)  # of square roots, by Cauchy and Schwarz
    assert result.status is Status.COMPLETED and result[x] == pytest.approx(best, abs=0.3)


def test_a_named_method_is_kept():
    problem, _, _ = market()
    assert problem.plan(dp.OneShot(), **BUDGET).algorithm.as_written is True
    with pytest.raises(dp.ModelError, match="no finite gradient"):  # at the root of zero
        problem.plan(dp.LinearizedADMM(), mechanism=None)


def test_cones_have_the_prices_of_their_parts():
    x, target = cp.Variable(2), dp.Private([3.0, 4.0], adjacency=dp.Within(0.1), name="target")
    ball = cp.SOC(cp.Constant(1.0), x)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(x - target)), [ball])])
    problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    assert x.value == pytest.approx([0.6, 0.8], abs=1e-5)
    size, side = (np.ravel(part) for part in ball.dual_value)
    assert size == pytest.approx(1.0, abs=1e-5) and side == pytest.approx([-0.6, -0.8], abs=1e-5)


def test_without_noise_it_is_the_optimum_with_its_prices():
    problem, x, supply = market()
    result = problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    central = dp.not_private.joint_problem(problem)
    central.solve(cp.CLARABEL)
    best, price = x.value, supply.dual_value
    assert result[x] == pytest.approx(best, abs=1e-6)
    assert result.solution.dual(supply) == pytest.approx(price, rel=1e-5)
    assert result.released == {}


def test_records_are_not_released_by_default():
    """Noise that hides a record hides everything that one tells."""
    w, rows = cp.Variable(2, name="w"), np.array([[0.6, 0.0], [0.0, -0.8], [0.5, 0.5]])
    X = dp.Private(rows, adjacency=dp.Rows(1.0), name="X")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.huber(X @ w - 1))), [cp.norm(w) <= 1])])
    assert not getattr(problem.plan(**BUDGET).algorithm, "as_written", False)
    plan = problem.plan(dp.OneShot(as_written=True), **BUDGET)
    assert plan.agents[0].publication.sensitivity == pytest.approx(1.0)


def test_released_data_are_public_and_of_the_declared_kind():
    shares = np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25]])
    kinds = {
        "mask": (np.array([1.0, 0, 1, 1]), {"boolean": True}),
        "shares": (shares, {"simplex": True}),
        "levels": (np.array([0.5, 0.1]), {"bounds": (0.1, 0.6)}),
        "cov": (np.diag([0.1, 0.2]), {"PSD": True}),
    }
    x, data = cp.Variable(4, name="x"), {}
    for name, (values, kind) in kinds.items():
        norm = 1 if name == "shares" else "entry"
        adjacency = dp.Within(1.0, norm=norm)
        data[name] = dp.Private(values, adjacency=adjacency, name=name, **kind)
    cost = cp.sum(cp.exp(cp.multiply(data["mask"], x))) + cp.norm(data["shares"] @ x[:3])
    cost += cp.quad_form(x[:2], data["cov"]) + data["levels"] @ cp.square(x[:2] - 1)
    result = dp.Problem([dp.Agent(cp.Minimize(cost), name="all")]).solve(**BUDGET, seed=3)
    released = result.released
    assert set(released["mask"]) <= {0.0, 1.0}
    assert released["shares"].sum(axis=1) == pytest.approx([1, 1]) and (shares >= 0).all()
    assert released["levels"].min() >= 0.1 and released["levels"].max() <= 0.6
    assert np.linalg.eigvalsh(released["cov"]).min() >= -1e-12
    for name, (values, _) in kinds.items():
        assert released[name].shape == values.shape
        assert name == "mask" or not np.array_equal(released[name], values)


def test_the_solution_follows_from_released_data_alone():
    """Whoever has them solves the same problem, and others, at no cost."""
    problem, x, supply = market()
    result = problem.plan(dp.OneShot(as_written=True, scenarios=0), **BUDGET).run(seed=2)
    price = result.solution.dual(supply)
    again = dp.not_private.joint_problem(problem, {"v": result.released["v"]})
    again.solve(cp.CLARABEL)
    assert result[x] == pytest.approx(x.value, abs=1e-6)
    assert price == pytest.approx(supply.dual_value, rel=1e-5)


def test_prices_and_how_often_they_stay():
    problem, _, supply = market()
    plan = problem.plan(epsilon=1e4, delta=1e-6)
    solution = plan.run(seed=0).solution
    assert supply.dual_value == pytest.approx(solution.dual(supply))
    assert solution.dual_stability(supply, draws=4) == pytest.approx(1.0)
    loud = problem.plan(epsilon=0.1, delta=1e-6).run(seed=0).solution
    assert loud.dual_stability(supply, draws=4) < 1


def test_prices_are_refused_elsewhere():
    y = cp.Variable(2, name="y")
    limit = cp.sum(y) == 1
    public = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(y)), [limit], name="a")])
    steps = public.plan(dp.LinearizedADMM(), mechanism=None, rounds=3).run()
    with pytest.raises(dp.PrivacyError, match=r"dp\.OneShot\(as_written=True\)"):
        steps.solution.dual(limit)
    problem, _, _ = market()
    solved = problem.plan(**BUDGET).run(seed=0)
    with pytest.raises(dp.ModelError, match="a constraint of an agent or of coupling="):
        solved.solution.dual(cp.Variable() == 1)


def test_an_equality_holds_for_released_data_if_the_call_says_so():
    problem, X = table(nonneg=True)
    with pytest.raises(dp.PrivacyError, match="constraints='released'"):
        problem.plan(**BUDGET)
    plan = problem.plan(constraints="released", epsilon=1e4, delta=1e-6)
    assert "hold for the released data only" in plan.guarantee.kept
    result = plan.run(seed=1)
    totals = np.array([*result[X].sum(axis=1), *result[X].sum(axis=0)])
    assert totals == pytest.approx([3, 5, 4, 4], abs=0.05)
    assert "every public constraint" in str(result)


def test_without_a_point_the_closest_data_are_solved_for():
    """Totals of rows and of columns have to agree, and noise moves them apart."""
    problem, X = table()
    result = problem.plan(constraints="released", epsilon=2.0, delta=1e-6).run(seed=1)
    assert result.status is Status.COMPLETED
    assert any("closest data" in note for note in result.notes)
    rows, columns = result.released["rows"], result.released["columns"]
    assert rows.sum() == pytest.approx(columns.sum(), rel=1e-5)
    assert result[X].sum(axis=1) == pytest.approx(rows, abs=1e-4)


def test_without_closest_data_the_proxy_is_solved_for():
    x = cp.Variable(2, nonneg=True, name="x")
    d = dp.Private(np.ones(2), adjacency=dp.Within(1.0), name="d", proxy=np.full(2, 2.0))
    limit = d @ x == -cp.sum(x) + 1  # no point if all of d is below -1; not convex in both
    agent = dp.Agent(cp.Minimize(cp.sum(cp.exp(x))), [limit, x <= 5], name="a")
    model = compile_problem(
        dp.Problem([agent]), as_written=AsWritten(margins=False, penalty=None)
    ).model
    decision = model.decide([np.array([-3.0, -2.0])])
    assert decision.vectors is not None and decision.repair == "the public proxy data"
    assert decision.data == ()  # nothing was released


def test_a_penalty_lets_released_constraints_be_missed():
    problem, X = table(nonneg=True)
    plan = problem.plan(constraints="released", slack_penalty=0.5, **BUDGET)
    result = plan.run(seed=0)
    missed = result.constraint_slack
    assert set(missed) == {f"Constraint {k} of agent 'table'" for k in (0, 1)}
    rows = result.released["rows"]
    assert result[X].sum(axis=1) - rows == pytest.approx(
        missed["Constraint 0 of agent 'table'"], abs=1e-5
    )
    assert max(np.abs(by).max() for by in missed.values()) > 0.1


def test_what_constraints_for_released_data_do_not_go_with():
    problem, _ = table()
    with pytest.raises(dp.PrivacyError, match="Leave one of them out"):
        problem.plan(constraints="released", violation_probability=0.1, **BUDGET)
    with pytest.raises(dp.ModelError, match="Leave out the method"):
        problem.plan(dp.ADMM(), constraints="released", **BUDGET)
    with pytest.raises(dp.PrivacyError, match="the problem has none"):
        market()[0].plan(constraints="released", **BUDGET)
    with pytest.raises(dp.ModelError, match="'true' or 'released'|\"true\" or \"released\""):
        problem.plan(constraints="both", **BUDGET)


def test_margins_keep_true_data_beside_any_objective():
    """The objective has no bounded gradient; the linear constraint has margins as everywhere."""
    x = cp.Variable(3, nonneg=True, name="x")
    need = dp.Private(np.array([1.0, 0.5, 0.8]), adjacency=dp.Within(0.05), name="need")
    worth = dp.Private(np.ones(3), adjacency=dp.Within(0.05), name="worth", nonneg=True)
    cost = cp.sum(x) - cp.sum(cp.log(1 + cp.multiply(worth, x)))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [x >= need], name="a")])
    method = dp.OneShot(as_written=True, scenarios=0)
    plan = problem.plan(method, violation_probability=0.1, **BUDGET)
    assert problem.plan(violation_probability=0.1, **BUDGET).algorithm.as_written
    assert len(plan.program.kept) == 1
    broken = [
        dp.not_private.violation(problem, plan.run(seed=seed).solution) > 1e-6 for seed in range(40)
    ]
    assert sum(broken) <= 10  # of 40 runs at 0.1 each, exceeded with probability 5e-4 at most


def test_couplings_may_be_cones():
    xs = [cp.Variable(2, nonneg=True, name=f"x{k}") for k in range(2)]
    agents = [
        dp.Agent(
            cp.Maximize(
                dp.Private(np.ones(2), adjacency=dp.Within(0.01), name=f"c{k}", nonneg=True)
                @ cp.sqrt(x)
            ),
            name=f"a{k}",
        )
        for k, x in enumerate(xs)
    ]
    problem = dp.Problem(agents, coupling=[cp.norm(cp.hstack(xs)) <= 1, xs[0] <= 0.6])
    result = problem.solve(epsilon=1e4, delta=1e-6, seed=0)
    whole = np.concatenate([result[x] for x in xs])
    assert np.linalg.norm(whole) == pytest.approx(1, abs=1e-4) and whole[:2].max() <= 0.6 + 1e-6


def test_variables_keep_the_values_that_users_see():
    problem, x, _ = market(proxy=np.full(4, 0.7))
    x.value = np.arange(4.0)
    plan = problem.plan(**BUDGET)
    assert "Gap" in str(plan.forecast(60))
    assert x.value == pytest.approx(np.arange(4.0))


def test_a_plan_travels():
    problem, _, _ = market()
    plan = problem.plan(**BUDGET)
    given = {"data": {"v": VALUES}, "seed": 5}
    here = plan.run(**given)
    there = pickle.loads(pickle.dumps(plan)).run(**given)
    assert np.array_equal(here.solution.vectors[0], there.solution.vectors[0])
    parallel = plan.run(**given, executor=dp.Processes())
    assert np.array_equal(here.solution.vectors[0], parallel.solution.vectors[0])


def test_replays_recompute_the_decision(tmp_path):
    problem, x, supply = market()
    plan = problem.plan(**BUDGET)
    result = plan.run(ledger=tmp_path / "spent.jsonl")
    again = plan.replay(tmp_path / "spent.jsonl")
    assert np.array_equal(result[x], again[x])
    assert np.array_equal(result.released["v"], again.released["v"])
    assert result.solution.dual(supply) == again.solution.dual(supply)


@pytest.mark.parametrize("scenarios", [0, 20])
def test_check_sensitivity_takes_the_same_road(scenarios):
    problem, _, _ = market()
    plan = problem.plan(dp.OneShot(as_written=True, scenarios=scenarios), **BUDGET)
    check = dp.check_sensitivity(plan, seed=1)
    assert check.passed
    assert check.agents[0].releases == 1


def test_a_run_in_steps_has_no_noise_for_data():
    problem, _, _ = market()
    with pytest.raises(dp.PrivacyError, match="release='once'"):
        problem.plan(dp.OneShot(as_written=True), release="each_step", **BUDGET).run(seed=0)


def test_scenarios_answer_for_what_the_data_may_be():
    """Too little costs twenty times as much as too much: one buys more than what was released."""
    d = dp.Private(np.full(8, 9.0), adjacency=dp.Within(1.0), name="d")
    q = cp.Variable(8, name="q")
    cost = cp.sum(cp.pos(q - d)) + 20 * cp.sum(cp.pos(d - q))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), name="a")])

    def mean_cost(scenarios):
        plan = problem.plan(dp.OneShot(as_written=True, scenarios=scenarios), **BUDGET)
        bought = [plan.run(seed=seed)[q] for seed in range(15)]
        costs = [np.maximum(b - 9, 0) + 20 * np.maximum(9 - b, 0) for b in bought]
        return np.mean(costs)

    assert mean_cost(20) < 0.7 * mean_cost(0)


def test_models_that_read_the_data_affinely_have_no_scenarios():
    x, d = cp.Variable(2, name="x"), dp.Private(np.ones(2), adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(d @ x + cp.norm(x - 1)), [cp.norm1(x) <= 3])])
    plan = problem.plan(dp.OneShot(as_written=True), **BUDGET)
    assert plan.program.model.scenarios([np.ones(2)], 20) == []


def test_a_run_without_a_decision_says_so_and_keeps_its_ledger(tmp_path):
    """What was released is public whether or not the model has a solution for it."""
    x = cp.Variable(2, nonneg=True, name="x")
    d = dp.Private(np.ones(2), adjacency=dp.Within(0.1), name="d", nonneg=True)
    unbounded = dp.Problem([dp.Agent(cp.Minimize(cp.norm(x - d) - 2 * cp.sum(x)), name="a")])
    path = tmp_path / "spent.jsonl"
    plan = unbounded.plan(**BUDGET)
    result = plan.run(ledger=path)
    assert result.status is Status.UNBOUNDED and result.released["d"].shape == (2,)
    assert plan.replay(path).status is Status.UNBOUNDED
    n = cp.Variable(2, integer=True, name="n")
    agent = dp.Agent(cp.Minimize(cp.sum(n)), [n >= d, cp.sum(n) <= 1], name="a")
    whole = dp.Problem([agent]).solve(constraints="released", **BUDGET, seed=0)
    assert whole.status is Status.INFEASIBLE and set(whole.released) == {"d"}


def test_results_without_noise_hold_no_data():
    problem, _, supply = market()
    result = problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    assert np.float64(VALUES[1]).tobytes() not in pickle.dumps(result)
    assert result.solution.dual_stability(supply) == pytest.approx(1.0)


def test_data_in_options_of_atoms_are_refused_before_a_run():
    x = cp.Variable(3, name="x")
    d = dp.Private(2.0, adjacency=dp.Within(0.1), name="d", nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.huber(x - 1, d))), name="a")])
    with pytest.raises(dp.ModelError, match="Private 'd' is an option of an atom"):
        problem.plan(dp.OneShot(as_written=True), **BUDGET)


def test_prices_that_are_none_stay():
    problem, x, supply = market()
    far = x <= 100
    agent = dp.Agent(problem.agents[0].objective, [supply, far], name="buyer")
    solution = dp.Problem([agent]).plan(**BUDGET).run(seed=0).solution
    assert solution.dual(far) == pytest.approx(0.0, abs=1e-6)
    assert solution.dual_stability(far, draws=4) == pytest.approx(1.0)


def test_integers_stand_beside_margins():
    n = cp.Variable(3, integer=True, name="n")
    need = dp.Private([1.2, 2.2, 0.3], adjacency=dp.Within(0.01), name="need")
    cost = cp.Minimize(cp.sum(n) + cp.sum(cp.pos(2 - n)))
    problem = dp.Problem([dp.Agent(cost, [n >= need, n <= 9], name="a")])
    result = problem.solve(violation_probability=0.05, epsilon=1.0, delta=1e-6, seed=0)
    assert result[n] == pytest.approx([2.0, 3.0, 1.0])


def test_sums_are_told_in_units_of_the_data_and_entries_are_made_up():
    S, g = np.kron(np.eye(2), np.ones((1, 5))), cp.Variable(2, name="g")
    d = dp.Private(np.full(10, 0.5), adjacency=dp.Within(0.05), name="load")
    plan = dp.Problem([dp.Agent(cp.Minimize(cp.norm(S @ d - g)), name="a")]).plan(**BUDGET)
    assert "scale 0.05" in plan.guarantee.agents[0].noise
    result = plan.run(seed=0)
    assert any("made up" in note for note in result.notes)


def test_prices_are_simulated_with_the_margins_of_the_run():
    """Without the limit by private data both variables are zero, and so is the price."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    need = dp.Private(1.0, adjacency=dp.Within(0.001), name="need")
    limit, tie = x >= need, x == y
    problem = dp.Problem([dp.Agent(cp.Minimize(x**2 + y**2), [limit, tie], name="a")])
    method = dp.OneShot(as_written=True)
    plan = problem.plan(method, violation_probability=0.1, epsilon=100.0, delta=1e-6)
    solution = plan.run(seed=0).solution
    assert abs(solution.dual(tie)) == pytest.approx(2.0, rel=0.01)
    assert solution.dual_stability(tie, draws=5) == pytest.approx(1.0)
    with pytest.raises(dp.ModelError, match="margins keep for the true data"):
        solution.dual(limit)


def test_a_result_says_that_released_data_are_free_to_use():
    noisy, exact = market()[0].plan(**BUDGET).run(seed=0), market()[0].plan(mechanism=None).run()
    assert any("result.released has the released data" in note for note in noisy.notes)
    assert not any("result.released" in note for note in exact.notes)


# Geometric and quasiconvex programs, and solvers.


def box(**walls):
    """The largest box of bounded wall and floor area, as in cvxpy's gallery."""
    h, w, d = (cp.Variable(pos=True, name=name) for name in "hwd")
    declared = {"adjacency": dp.Within(1.0), "bounds": (1, np.inf), **walls}
    wall = dp.Private(200.0, name="wall", **declared)
    floor = dp.Private(50.0, name="floor", **declared)
    limits = [2 * (h * w + h * d) <= wall, w * d <= floor, h / w >= 0.5, h / w <= 2, d / w <= 2]
    return dp.Problem([dp.Agent(cp.Maximize(h * w * d), limits, name="box")]), (h, w, d)


GEOMETRIC, FOR_RELEASED = dp.OneShot(gp=True), {"constraints": "released"}


def test_a_geometric_program_is_solved_for_released_data(tmp_path):
    problem, sides = box()
    exact = problem.plan(GEOMETRIC, mechanism=None, **FOR_RELEASED).run(seed=0)
    whole = dp.not_private.joint_problem(problem)
    whole.solve(gp=True, solver=cp.CLARABEL)
    assert [exact[v] for v in sides] == pytest.approx([v.value for v in sides], rel=1e-4)
    problem, sides = box()
    plan = problem.plan(GEOMETRIC, **FOR_RELEASED, **BUDGET)
    assert "a geometric program" in str(plan) and "not convex" not in str(plan)
    path = tmp_path / "spent.jsonl"
    result = plan.run(ledger=path)
    h, w, d = (result[v] for v in sides)
    released = result.released
    assert 2 * h * (w + d) == pytest.approx(released["wall"], rel=1e-4)
    assert w * d == pytest.approx(released["floor"], rel=1e-4)
    again = plan.replay(path)
    assert all(np.array_equal(result[v], again[v]) for v in sides)
    # Relative, as in cvxpy: the volume grows like the area of the walls.
    assert result.solution.dual(problem.constraints[0]) == pytest.approx(1.0, abs=1e-2)


def test_released_data_of_a_geometric_program_stay_positive():
    problem, sides = box(bounds=(30, np.inf))
    plan = problem.plan(GEOMETRIC, **FOR_RELEASED, epsilon=0.01, delta=1e-6)
    for seed in range(4):
        result = plan.run(seed=seed)
        assert min(result.released.values()) >= 30
        assert result.status.solved and min(result[v] for v in sides) > 0


@pytest.mark.parametrize(
    ("walls", "method", "message"),
    [
        ({}, None, r"geometric programs \(DGP\)\. Write problem\.plan\(dp\.OneShot\(gp=True\)"),
        ({"bounds": None, "nonneg": True}, None, r"for positive data\. Declare bounds"),
        ({"bounds": None, "nonneg": True}, GEOMETRIC, r"Constraint 0 .*bounds=\(0\.1, math\.inf\)"),
        ({}, dp.OneShot(qcp=True), r"quasiconvex programs \(DQCP\)"),
        ({}, dp.OneShot(gp=True, solver="NONE"), "NONE is not installed.*Nothing was released"),
        ({}, dp.OneShot(gp=True, solver_options={"nonsense": 1}), "setting 'nonsense'"),
    ],
)
def test_what_no_rule_or_solver_takes_is_refused_before_a_release(walls, method, message):
    with pytest.raises(dp.ModelError, match=message):
        box(**walls)[0].plan(method, **FOR_RELEASED, **BUDGET)


def test_geometric_programs_take_margins_and_no_penalties():
    problem, _ = box()
    plan = problem.plan(GEOMETRIC, violation_probability=0.1, **BUDGET)
    assert plan.program.corners and plan.run(seed=0).status.solved
    with pytest.raises(dp.ModelError, match="slack_penalty= cannot be used"):
        problem.plan(GEOMETRIC, slack_penalty=2.0, **FOR_RELEASED, **BUDGET)


def test_arguments_of_cvxpys_solve_name_the_method_that_takes_them():
    with pytest.raises(TypeError, match=r"Write problem\.solve\(dp\.OneShot\(gp=True\)"):
        box()[0].solve(gp=True)
    with pytest.raises(dp.ModelError, match="Keep one of the two"):
        dp.OneShot(gp=True, qcp=True)
    with pytest.raises(dp.ModelError, match="Leave out as_written=False"):
        dp.OneShot(solver="SCS", as_written=False)
    with pytest.raises(dp.ModelError, match="a dict of the solver's options"):
        dp.OneShot(solver_options={"max_iter": [1]})
    with pytest.raises(dp.ModelError, match="a dict of the solver's options"):
        dp.OneShot(solver_options=("max_iter", 1.0))


def test_options_reach_the_solver_and_the_fingerprint():
    problem, _, _ = market()
    plan = problem.plan(dp.OneShot(solver=cp.SCS, solver_options={"eps": 1e-8}), **BUDGET)
    assert plan.fingerprint != problem.plan(dp.OneShot(solver=cp.SCS), **BUDGET).fingerprint
    assert plan.run(seed=0).status is Status.COMPLETED
    cut_short = {"max_iter": 1}
    short = problem.plan(dp.OneShot(solver=cp.CLARABEL, solver_options=cut_short), **BUDGET)
    result = short.run(seed=0)
    assert result.status is Status.STALLED and result.released["v"].shape == (4,)


def test_agents_of_a_geometric_program_share_and_are_coupled():
    """Each maker's cost falls with its speed, and the speeds have one budget of power."""
    speeds = [cp.Variable(pos=True, name=f"s{k}") for k in range(2)]
    agents = [
        dp.Agent(
            cp.Minimize(
                dp.Private(4.0 - k, adjacency=dp.Within(0.1), bounds=(0.5, 9), name=f"work {k}") / s
            ),
            name=f"maker {k}",
        )
        for k, s in enumerate(speeds)
    ]
    problem = dp.Problem(agents, coupling=[sum(s**3 for s in speeds) <= 2, sum(speeds) <= 3])
    exact = problem.plan(GEOMETRIC, mechanism=None).run(seed=0)
    total = np.array([exact[s] for s in speeds])
    assert (total**3).sum() == pytest.approx(2, rel=1e-4)
    work = np.array([4.0, 3.0])  # at the optimum work / s**2 is the same multiple of s**2
    assert np.ptp(work / total**4) == pytest.approx(0, abs=1e-2)
    assert problem.plan(GEOMETRIC, **BUDGET).run(seed=0).status.solved


def test_means_over_data_sets_stay_within_the_rules():
    """A mean of posynomials is one, and a mean of monomials is no monomial."""
    s = cp.Variable(2, pos=True, name="s")
    d = dp.Private([4.0, 3.0], adjacency=dp.Within(0.1), bounds=(0.5, 9), name="d")
    goals = {cp.Minimize: cp.sum(d**2 / s), cp.Maximize: d[0] ** 2 * s[0] * s[1]}
    for goal, cost in goals.items():
        agent = dp.Agent(goal(cost), [s[0] ** 2 + s[1] ** 3 <= 1], name="a")
        plan = dp.Problem([agent]).plan(GEOMETRIC, **BUDGET)
        mean = any("mean of the objective" in choice.why for choice in plan.choices)
        assert mean is (goal is cp.Minimize)
        assert plan.run(seed=0).status is Status.COMPLETED


def test_without_a_point_a_geometric_program_takes_the_closest_data_in_ratio():
    x = cp.Variable(pos=True, name="x")
    d = dp.Private([2.0, 2.0], adjacency=dp.Within(0.1), bounds=(0.1, 10), name="d")
    agent = dp.Agent(cp.Minimize(x), [x == d[0], x == d[1]], name="a")
    model = compile_problem(
        dp.Problem([agent]), as_written=AsWritten(margins=False, penalty=None, rules="dgp")
    ).model
    decision = model.decide([np.array([2.0, 2.2])])
    assert decision.repair.startswith("the closest data")
    assert decision.vectors[0] == pytest.approx(2.1, abs=0.01)


def test_a_ratio_is_maximized_by_bisection():
    mu, factor = np.array([0.08, 0.1, 0.04]), np.diag([0.2, 0.3, 0.1])
    w = cp.Variable(3, nonneg=True, name="w")
    m = dp.Private(mu, adjacency=dp.Within(0.005), nonneg=True, name="mu", proxy=np.full(3, 0.07))
    ratio = cp.Maximize((m @ w) / cp.norm(factor @ w))
    limit = cp.sum(w) == 1
    problem = dp.Problem([dp.Agent(ratio, [limit], name="desk")])
    with pytest.raises(dp.ModelError, match=r"dp\.OneShot\(qcp=True\)"):
        problem.plan(**BUDGET)
    exact = problem.plan(dp.OneShot(qcp=True), mechanism=None).run(seed=0)
    best = mu / np.diag(factor) ** 2  # of independent assets
    assert exact[w] == pytest.approx(best / best.sum(), abs=2e-3)
    result = problem.plan(dp.OneShot(qcp=True), epsilon=100.0, delta=1e-6).run(seed=0)
    assert result[w] == pytest.approx(best / best.sum(), abs=0.02)
    with pytest.raises(dp.ModelError, match="no dual values"):
        result.solution.dual(limit)


def test_a_plan_of_a_geometric_program_is_forecast():
    work = dp.Private(
        [4.0, 3.0], adjacency=dp.Within(0.1), bounds=(0.5, 9), name="work", proxy=[3.5, 3.5]
    )
    s = cp.Variable(2, pos=True, name="s")
    agent = dp.Agent(cp.Minimize(work @ (1 / s)), [s[0] * s[1] <= 1, cp.sum(s) <= 3], name="a")
    plan = dp.Problem([agent]).plan(dp.OneShot(gp=True, scenarios=0), **BUDGET)
    told = plan.forecast(60)
    assert 0 <= told.gap < told.start


# Complex numbers.


def test_a_beam_is_formed_with_a_private_covariance(tmp_path):
    rng, n = np.random.default_rng(0), 4
    steering = np.exp(1j * np.pi * np.arange(n) * np.sin(0.3))
    heard = rng.normal(size=(n, 30)) + 1j * rng.normal(size=(n, 30))
    R = heard @ heard.conj().T / 60
    covariance = dp.Private(R, adjacency=dp.Within(0.01), complex=True, PSD=True, name="R")
    w = cp.Variable(n, complex=True, name="w")
    limit = cp.real(steering.conj() @ w) >= 1
    agent = dp.Agent(cp.Minimize(cp.quad_form(w, covariance)), [limit], name="array")
    problem = dp.Problem([agent])
    best = np.linalg.solve(R, steering)
    best /= (steering.conj() @ best).real
    exact = problem.plan(mechanism=None).run(seed=0)
    assert exact[w] == pytest.approx(best, abs=1e-4)
    plan = problem.plan(epsilon=100.0, delta=1e-6)
    result = plan.run(seed=0)
    released = result.released["R"]
    assert np.allclose(released, released.conj().T) and np.linalg.eigvalsh(released)[0] > -1e-9
    assert result[w] == pytest.approx(best, abs=0.05) and np.iscomplexobj(w.value)
    assert result.solution.to_dict()["w"].dtype == complex
    assert dp.not_private.objective(problem, result.solution) >= (best.conj() @ R @ best).real
    other = dp.Private(R, adjacency=dp.Within(0.01), complex=True, PSD=True, name="R")
    agent = dp.Agent(cp.Minimize(cp.quad_form(w, other)), [1j * limit.args[0] == 1j], name="array")
    assert dp.Problem([agent]).plan(**BUDGET).fingerprint != problem.plan(**BUDGET).fingerprint


def test_hermitian_and_imaginary_variables_are_of_their_kind():
    C = np.array([[1.0, 2 - 1j], [2 + 1j, -1.0]])
    d = dp.Private(C, adjacency=dp.Within(0.01), hermitian=True, name="C")
    X, z = cp.Variable((2, 2), hermitian=True, name="X"), cp.Variable(imag=True, name="z")
    cost = cp.norm(X - d, "fro") + cp.abs(z - (1 + 2j))
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [X >> 0], name="a")])
    exact = problem.plan(mechanism=None).run(seed=0)
    values, vectors = np.linalg.eigh(C)
    assert exact[X] == pytest.approx((vectors * np.maximum(values, 0)) @ vectors.conj().T, abs=1e-3)
    result = problem.plan(**BUDGET).run(seed=0)
    assert np.allclose(result[X], result[X].conj().T) and np.linalg.eigvalsh(result[X])[0] > -1e-6
    assert result[z] == pytest.approx(2j, abs=1e-3)


def phasors():
    """Two agents agree on complex voltages; one has real data, the other complex ones."""
    v = cp.Variable(2, complex=True, name="v")
    load = dp.Private([0.3, 0.5], adjacency=dp.Within(0.01), name="load")
    z = dp.Private([1 + 1j, 0.5j], adjacency=dp.Within(0.01, 2), complex=True, name="z")
    first = dp.Agent(cp.Minimize(cp.norm(cp.real(v) - load)), [cp.abs(v) <= 1], name="first")
    second = dp.Agent(cp.Minimize(cp.sum_squares(v - z)), [cp.norm(v) <= 2], name="second")
    return dp.Problem([first, second], start={v: [1j, 1.0]}), v


def test_agents_share_complex_variables_and_owners_take_part():
    problem, v = phasors()
    plan = problem.plan(epsilon=10.0, delta=1e-6)
    result = plan.run(seed=0)
    assert result.feasible and np.abs(result[v]).max() <= 1 + 1e-6
    assert result.solution.of("second", v) == pytest.approx(result[v])
    whole = dp.not_private.joint_problem(problem, result.released)
    whole.solve(cp.CLARABEL)
    again = problem.plan(dp.OneShot(as_written=True, scenarios=0), epsilon=10.0, delta=1e-6)
    assert dp.check_sensitivity(again, seed=0).passed
    owners = plan.run(executor=dp.LoopbackOwners(plan, seed=0))
    assert np.array_equal(owners[v], result[v])
    assert pickle.loads(pickle.dumps(plan)).fingerprint == plan.fingerprint


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"adjacency": dp.Within(0.1)}, dp.DataError, r"Write dp\.Private\(\.\.\., complex=True\)"),
        ({"adjacency": dp.Rows(3.0), "complex": True}, dp.ModelError, "keep adjacency=dp.Within"),
        (
            {"adjacency": dp.Within(0.1), "hermitian": True},
            dp.DataError,
            "not the Hermitian matrix",
        ),
        ({"adjacency": dp.Within(1), "complex": True, "PSD": True}, dp.DataError, "not the Hermit"),
        (
            {"adjacency": dp.Within(1), "complex": True, "nonneg": True},
            dp.ModelError,
            "Drop sign, bounds=",
        ),
    ],
)
def test_complex_data_that_are_not_what_was_declared_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        dp.Private(np.array([[1.0, 1j], [2.0, 0.0]]), name="d", **given)


def test_complex_numbers_are_refused_where_parts_would_be_lost():
    problem, v = phasors()
    with pytest.raises(dp.ModelError, match=r"Use dp\.OneShot\(\)"):
        problem.plan(dp.LinearizedADMM(), **BUDGET)
    z = dp.Private([1 + 1j, 0.5j], adjacency=dp.Within(0.01), complex=True, name="z")
    kept = dp.Problem([dp.Agent(cp.Minimize(cp.norm(v - z)), [cp.real(v) >= cp.real(z)])])
    with pytest.raises(dp.PrivacyError, match="Margins are proved for real data"):
        kept.plan(violation_probability=0.1, **BUDGET)
    assert kept.plan(constraints="released", **BUDGET).run(seed=0).status.solved
    agents = [dp.Agent(cp.Minimize(cp.norm(v - 1)), name=f"a{k}") for k in range(2)]
    with pytest.raises(dp.ModelError, match="Give one with complex variables to an agent"):
        dp.Problem(agents, coupling=[cp.real(v) <= 1])


# Models that no convex solver takes, and atoms that take no variables in place of data.


def test_variables_of_finite_sets_are_decided():
    d, v = np.array([0.3, 1.7, -0.4]), cp.Variable(3, name="v")
    data = dp.Private(d, adjacency=dp.Within(0.001), name="d", proxy=np.zeros(3))
    agent = dp.Agent(cp.Minimize(cp.norm1(v - data)), [cp.FiniteSet(v, [-1, 0, 2])], name="a")
    plan = dp.Problem([agent]).plan(**BUDGET)
    result = plan.run(seed=0)
    assert result[v] == pytest.approx([0, 2, 0], abs=1e-6)
    with pytest.raises(dp.ModelError, match="no dual values"):
        result.solution.dual(agent.constraints[0])
    assert plan.forecast(60).gap >= 0


def test_a_model_without_a_solver_is_refused_before_anything_is_released():
    """A run would spend the budget on data for which nothing can be decided."""
    v = cp.Variable(3, boolean=True, name="v")
    data = dp.Private(np.ones(3), adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.exp(cp.norm(v - data))), name="a")])
    takes = {"MOSEK", "XPRESS", "SCIP", "COPT", "GUROBI", "CPLEX"} & set(cp.installed_solvers())
    if not takes:  # which of them have exponential cones is theirs to say
        with pytest.raises(dp.ModelError, match="mixed-integer solver.*Nothing was released"):
            problem.plan(**BUDGET)


@pytest.mark.parametrize("least, called", [(1, [cp.SCIPY]), (10**9, [cp.CLARABEL])])
def test_large_linear_programs_go_to_highs_with_the_same_solution(least, called, monkeypatch):
    """Both solve the same program: costs agree, and so does the price of the demand."""
    solvers, solve = [], written_model.solve

    def spied(problem, rules, solver, options=()):
        solvers.append(solver)
        return solve(problem, rules, solver, options)

    monkeypatch.setattr(written_model, "solve", spied)
    monkeypatch.setattr(written_model, "_LARGE", least)
    g = cp.Variable(3, name="g", nonneg=True)
    d = dp.Private([4.0, 2.0], adjacency=dp.Within(0.1), name="d")
    served = cp.sum(g) >= 5
    cost = np.array([1.0, 2.0, 3.0]) @ g + 10 * cp.norm1(g[:2] - d)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost), [served, g <= 4.5], name="a")])
    result = problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    assert solvers == called
    assert result["g"] == pytest.approx([4, 2, 0], abs=1e-6)
    assert result.solution.dual(served) == pytest.approx(0, abs=1e-6)


def test_programs_of_other_cones_go_to_clarabel(monkeypatch):
    monkeypatch.setattr(written_model, "_LARGE", 1)
    x, d = cp.Variable(2), dp.Private([3.0, 4.0], adjacency=dp.Within(0.1), name="d")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.norm(x - d)), [x >= 0])])
    problem.plan(dp.OneShot(as_written=True), mechanism=None).run()
    assert x.value == pytest.approx([3, 4], abs=1e-5)


@pytest.mark.parametrize(
    "cost",
    [
        lambda v, d: cp.norm(cp.convolve(d, v) - 1),
        lambda v, d: cp.dotsort(cp.pos(v), cp.abs(d)) + cp.sum_squares(v - 1),
    ],
    ids=["convolve", "dotsort"],
)
def test_data_may_be_arguments_that_have_to_be_constant(cost):
    v, d = cp.Variable(3, name="v"), np.array([1.0, 2.0, 1.5])
    data = dp.Private(d, adjacency=dp.Within(0.01), name="d", nonneg=True)
    problem = dp.Problem([dp.Agent(cp.Minimize(cost(v, data)), [cp.abs(v) <= 5], name="a")])
    result = problem.plan(dp.OneShot(as_written=True), epsilon=1e6, delta=1e-6).run(seed=0)
    best = cp.Problem(cp.Minimize(cost(v, d)), [cp.abs(v) <= 5])
    best.solve(cp.CLARABEL)
    assert dp.not_private.objective(problem, result.solution) == pytest.approx(best.value, rel=1e-3)
