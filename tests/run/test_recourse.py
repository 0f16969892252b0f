"""What agents decide for themselves once all have agreed: exact, feasible, and theirs alone."""

import copy
import json
import pickle
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.plan.stated import OWN, OWN_GROUPED
from tests.frames import CANARY, leaks, told
from tests.helpers import contains

BUDGET = {"mechanism": "gaussian", "epsilon": 1.0, "delta": 1e-6}
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10)


def solved(problem):
    problem.solve(cp.CLARABEL, **TIGHT)
    assert problem.status == cp.OPTIMAL
    return problem.value


class Region:
    """Two neighbors around a tie line: each has generators, loads, and a secret limit of one."""

    def __init__(self, seed=0, *, limit=True, records=False):
        made = np.random.default_rng(seed)
        self.tie = cp.Variable(2, name="tie")
        self.gen, self.load, self.limit, self.A, agents = [], [], [], [], []
        for k, name in enumerate(("north", "south")):
            gen = cp.Variable(3, name=f"gen {name}", nonneg=True)
            A, load = made.normal(size=(4, 3)), made.normal(size=4) + 1
            most = np.array([0.3 + made.uniform()])
            d = dp.Private(load, name=f"load {name}", adjacency=dp.Within(0.1))
            cap = dp.Private(most, name=f"limit {name}", adjacency=dp.Within(0.1))
            pull = (-1) ** k * np.ones((4, 2)) @ self.tie
            cost = cp.sum_squares(A @ gen + pull - d) + 0.1 * cp.sum_squares(gen)
            rules = [gen <= 1.5, cp.abs(self.tie) <= 0.4, cp.norm(gen) + self.tie[0] <= 2]
            own = [gen[0] <= cap[0]] if limit else []
            agents.append(dp.Agent(cp.Minimize(cost), rules, name=name, recourse=own))
            self.gen.append(gen)
            self.load.append(load)
            self.limit.append(most)
            self.A.append(A)
        self.problem = dp.Problem(agents)

    def by_hand(self, k, tie, load=None, limit=None):
        """What agent k decides, in plain cvxpy: its objective and its generators."""
        gen = cp.Variable(3, nonneg=True)
        load = self.load[k] if load is None else load
        limit = self.limit[k] if limit is None else limit
        pull = (-1) ** k * np.ones((4, 2)) @ tie
        cost = cp.sum_squares(self.A[k] @ gen + pull - load) + 0.1 * cp.sum_squares(gen)
        rules = [gen <= 1.5, cp.norm(gen) <= 2 - tie[0]]
        if self.problem.agents[k].recourse:
            rules.append(gen[0] <= limit[0])
        return solved(cp.Problem(cp.Minimize(cost), rules)), gen.value


def ran(problem, **arguments):
    return problem.plan(**BUDGET).run(seed=0, record=True, **arguments)


# What is decided --------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), limit=st.booleans())
def test_an_own_solution_is_the_exact_optimum_at_the_agreed_values(seed, limit):
    region = Region(seed, limit=limit)
    result = ran(region.problem)
    for k, name in enumerate(("north", "south")):
        mine = result.recourse(name)
        value, gen = region.by_hand(k, result.solution[region.tie])
        assert mine.value == pytest.approx(value, abs=1e-6)
        # The objective has curvature 0.2 at least, and both solvers end near its minimum.
        np.testing.assert_allclose(mine[region.gen[k]], gen, atol=1e-3)
        assert np.array_equal(mine["tie"], result.solution[region.tie])


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_own_solutions_together_keep_every_constraint_and_are_no_worse(seed):
    region = Region(seed, limit=False)
    result = ran(region.problem)
    before = dp.not_private.objective(region.problem, result.solution)
    mine = [result.recourse(name) for name in ("north", "south")]
    assert sum(own.value for own in mine) <= before + 1e-7
    for agent, own in zip(region.problem.agents, mine, strict=True):
        for variable in agent.variables:
            variable.value = (
                np.clip(own[variable], 0, None) if "gen" in variable.name() else own[variable]
            )
    assert max(c.violation().max() for c in region.problem.constraints) < 1e-6


def test_private_limits_are_kept_exactly_where_the_run_could_not_know_them():
    region = Region(3)
    result = ran(region.problem)
    tight = np.array([0.01])
    assert result.solution[region.gen[0]][0] > 0.1
    mine = result.recourse("north", data={"limit north": tight})
    assert mine["gen north"][0] <= 0.01 + 1e-8
    assert mine.value > result.recourse("north").value


def test_the_agents_share_of_a_coupling_stays():
    x, y = cp.Variable(3, name="x"), cp.Variable(3, name="y")
    d = dp.Private(np.array([1.0, -2.0, 2.0]), name="d", adjacency=dp.Within(0.1))
    e = dp.Private(np.array([3.0, 1.0, 0.5]), name="e", adjacency=dp.Within(0.1))
    a = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 5], name="a")
    b = dp.Agent(cp.Minimize(cp.sum_squares(y - e)), [cp.abs(y) <= 5], name="b")
    problem = dp.Problem([a, b], coupling=[cp.sum(x) + y[0] == 1, y[1] + x[0] <= 2])
    result = ran(problem)
    one, other = result.recourse("a"), result.recourse("b")
    agreed = result.solution
    np.testing.assert_allclose(one["x"].sum(), agreed[x].sum(), atol=1e-7)
    np.testing.assert_allclose(one["x"][0], agreed[x][0], atol=1e-7)
    np.testing.assert_allclose(one["x"][2] - one["x"][1], 4.0, atol=1e-6)  # as the data
    np.testing.assert_allclose(other["y"][:2], agreed[y][:2], atol=1e-7)
    assert other["y"][2] == pytest.approx(0.5, abs=1e-7)
    for variable, mine in ((x, one), (y, other)):
        variable.value = mine[variable]
    assert max(c.violation().max() for c in problem.coupling) < 1e-6


def test_limits_that_agents_agree_on_leave_them_free_below():
    x, y, u, v = (cp.Variable(name=name) for name in "xyuv")
    made = []
    for name, use, limit, value in (("a", x, u, 1.0), ("b", y, v, 3.5)):
        d = dp.Private([value], name=f"data of {name}", adjacency=dp.Within(0.5))
        made.append(dp.Agent(cp.Minimize(cp.sum_squares(use - d)), [use <= limit], name=name))
    both = dp.Agent(cp.Minimize(0), [u + v <= 4, u >= 0, v >= 0], name="both")
    problem = dp.Problem([*made, both])
    result = ran(problem)
    for name, use, limit, value in (("a", x, u, 1.0), ("b", y, v, 3.5)):
        agreed = result.solution[limit].item()
        assert result.recourse(name)[use] == pytest.approx(min(value, agreed), abs=1e-6)
    coupled = ran(dp.Problem([replace(one, constraints=[]) for one in made], coupling=[x + y <= 4]))
    with pytest.raises(dp.ModelError, match="nothing to decide"):
        coupled.recourse("a")


def test_an_agent_whose_share_fixes_everything_has_nothing_to_decide():
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    a = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")
    b = dp.Agent(cp.Minimize(cp.sum_squares(y)), name="b")
    result = ran(dp.Problem([a, b], coupling=[x + y == 1]))
    with pytest.raises(dp.ModelError, match="'a' has no local variables"):
        result.recourse("a")
    assert OWN not in result.guarantee.assumptions


def test_records_covariances_cones_and_maximization():
    made = np.random.default_rng(0)
    X, F = made.normal(size=(60, 2)), made.normal(size=(3, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    w, b, z = cp.Variable(2, name="w"), cp.Variable(name="b"), cp.Variable(3, name="z")
    rows = dp.Private(X, name="rows", adjacency=dp.Rows(1.0))
    P = dp.Private(F @ F.T, name="P", PSD=True, adjacency=dp.Within(0.1))
    loss = cp.sum(cp.logistic(rows @ w + b)) / 60 + 0.1 * cp.square(b - 1)
    site = dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 2, cp.abs(b) <= 3], name="site")
    risk = cp.quad_form(z, P) + cp.sum_squares(w)
    rules = [cp.sum(z) == 1, cp.norm(z) <= 2, cp.norm(w) <= 1]
    fund = dp.Agent(cp.Maximize(cp.log_det(cp.diag(z + 2)) - risk), rules, name="fund")
    problem = dp.Problem([site, fund])
    result = problem.plan(dp.LinearizedADMM(), rounds=5, **BUDGET).run(seed=0)
    at = result.solution[w]

    value = cp.Variable()
    cost = cp.sum(cp.logistic(X @ at + value)) / 60 + 0.1 * cp.square(value - 1)
    assert result.recourse("site").value == pytest.approx(
        solved(cp.Problem(cp.Minimize(cost), [cp.abs(value) <= 3])), abs=1e-6
    )
    u = cp.Variable(3)
    gain = cp.log_det(cp.diag(u + 2)) - cp.quad_form(u, cp.psd_wrap(F @ F.T)) - at @ at
    best = solved(cp.Problem(cp.Maximize(gain), [cp.sum(u) == 1, cp.norm(u) <= 2]))
    assert result.recourse("fund").value == pytest.approx(-best, abs=1e-5)


def test_private_constraints_are_kept_for_the_true_data_without_a_margin():
    flow, gen = cp.Variable(name="flow"), cp.Variable(2, name="gen", nonneg=True)
    need = dp.Private([2.0, 1.0], name="need", adjacency=dp.Within(0.01))
    cost = cp.sum(gen) + 0.1 * cp.sum_squares(gen)
    a = dp.Agent(cp.Minimize(cost), [gen + flow >= need, gen <= 9], name="a")
    b = dp.Agent(cp.Minimize(cp.square(flow)), [cp.abs(flow) <= 2], name="b")
    result = dp.Problem([a, b]).plan(violation_probability=0.01, **BUDGET).run(seed=0)
    mine, at = result.recourse("a"), float(result.solution[flow])
    np.testing.assert_allclose(mine["gen"], np.maximum([2.0 - at, 1.0 - at], 0), atol=1e-6)
    assert (result.solution[gen] > mine["gen"] + 1e-3).any()  # by the margin


@pytest.mark.parametrize("observer", ["everyone", "last_iterate"])
def test_whoever_observes_the_last_iterate_is_an_observer_as_well(observer):
    x, y = cp.Variable(3, name="x"), cp.Variable(2, name="y", nonneg=True)
    d = dp.Private([1.0, -2.0, 2.0], name="d", adjacency=dp.Within(0.1, norm=2))
    limit = dp.Private([1.5], name="limit", adjacency=dp.Within(0.1))
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="user", recourse=[x[2] <= limit[0]])
    hub = dp.Agent(cp.Minimize(cp.norm1(y) + cp.sum_squares(y)), [y <= 0.8], name="hub")
    A = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 2.0]])
    problem = dp.Problem([user, hub], coupling=[A @ x == y])
    plan = problem.plan(dp.GradientADMM(), rounds=4, observer=observer, **BUDGET)
    result = plan.run(seed=0)
    mine = result.recourse("user")
    np.testing.assert_allclose(A @ mine["x"], A @ result.solution[x], atol=1e-7)
    assert mine["x"][2] <= 1.5 + 1e-8
    assert OWN in plan.guarantee.assumptions


def test_a_single_agent_decides_everything():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.array([1.0, 3.0]), name="d", adjacency=dp.Within(1.0))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="only")])
    assert np.allclose(ran(problem).recourse("only")["x"], [1.0, 3.0], atol=1e-6)


# Nothing public changes -------------------------------------------------------------------------


def test_nothing_that_others_see_changes(tmp_path):
    region = Region(1)
    plan, path = region.problem.plan(**BUDGET), tmp_path / "ledger.jsonl"
    result = plan.run(seed=0, record=True, ledger=path)

    def seen():
        values = [variable.value.tobytes() for variable in region.problem.variables()]
        again = plan.replay(path)
        texts = [str(thing) + repr(thing) for thing in (result, plan, region.problem, again)]
        vectors = [x.tobytes() for x in (*again.solution.vectors, *again.last.vectors)]
        uses = [vars(p.uses).copy() for a in region.problem.agents for p in (*a.private, *a.kept)]
        return (
            pickle.dumps(result), path.read_bytes(), values, texts, vectors, uses,
            region.problem.status,
        )  # fmt: skip

    before, read = seen(), dir(result)
    mine = result.recourse("north")
    with pytest.raises(dp.SolverError):
        result.recourse("north", data={"limit north": [-1.0]})
    assert seen() == before and dir(result) == read
    numbers = np.concatenate([region.load[0], region.limit[0], mine["gen north"]])
    # Those that the run itself returned as well are public; here there are none.
    assert not contains(result, numbers)
    assert not contains(plan.guarantee, numbers)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_neighbors_with_one_transcript_differ_in_their_own_solutions_alone(seed):
    region = Region(seed)
    plan = region.problem.plan(**BUDGET)
    transcript = plan.run(seed=1, record=True).transcript
    one, other = plan.replay(transcript), plan.replay(transcript)
    changed = {
        "load north": region.load[0] + np.eye(4)[seed % 4] * 0.1,
        "limit north": region.limit[0] * 0.5,
    }
    mine, its = one.recourse("north"), other.recourse("north", data=changed)
    assert its.value != mine.value
    assert pickle.dumps(one) == pickle.dumps(other)
    theirs = [result.recourse("south") for result in (one, other)]
    assert np.array_equal(theirs[0]["gen south"], theirs[1]["gen south"])
    assert str(theirs[0]) == str(theirs[1])


def test_a_run_knows_nothing_of_private_limits():
    def explode():
        raise AssertionError("read")

    region, plain = Region(2), Region(2, limit=False)
    with_limits, without = region.problem.plan(**BUDGET), plain.problem.plan(**BUDGET)
    assert with_limits.fingerprint == without.fingerprint
    assert str(with_limits.guarantee) == str(without.guarantee)
    result = with_limits.run(seed=0, data={"limit north": explode, "limit south": explode})
    other = without.run(seed=0)
    for a, b in zip(result.solution.vectors, other.solution.vectors, strict=True):
        assert np.array_equal(a, b)
    assert str(result.ledger) == str(other.ledger)
    assert "limit north" not in str(with_limits) + str(result.ledger)


def test_data_of_others_are_not_read():
    def explode():
        raise AssertionError("read")

    region = Region(2)
    result = ran(region.problem)
    data = {"load south": explode, "limit south": explode}
    assert result.recourse("north", data=data).value == result.recourse("north").value


def test_a_transcript_that_is_replayed_has_own_solutions_and_copies_have_none():
    region = Region(4)
    plan = region.problem.plan(**BUDGET)
    result = plan.run(seed=0, record=True)
    again = plan.replay(result.transcript)
    assert again.recourse("north").value == result.recourse("north").value
    for twin in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        with pytest.raises(dp.ModelError, match=r"copied or unpickled.*plan\.replay"):
            twin.recourse("north")


def test_the_guarantee_says_what_it_assumes():
    assert OWN in Region().problem.plan(**BUDGET).guarantee.assumptions
    x = cp.Variable(2, name="x")
    agents = [
        dp.Agent(
            cp.Minimize(
                cp.sum_squares(x - dp.Private(np.ones(2), name=name, adjacency=dp.Within(1.0)))
            ),
            name=name,
        )
        for name in "ab"
    ]
    plan = dp.Problem(agents).plan(**BUDGET)
    assert "own solution" not in str(plan.guarantee)
    region = Region()
    grouped = dp.Problem(region.problem.agents, groups=[["north", "south"]])
    assert OWN_GROUPED in grouped.plan(**BUDGET).guarantee.assumptions


def test_private_data_in_own_alone_need_no_guarantee():
    tie, gen = cp.Variable(name="tie"), cp.Variable(name="gen")
    limit = dp.Private([CANARY], name="limit", adjacency=dp.Within(1.0))
    a = dp.Agent(
        cp.Minimize(cp.square(tie + gen - 9)), name="a", recourse=[gen <= limit[0] / CANARY]
    )
    b = dp.Agent(cp.Minimize(cp.square(tie)), name="b")
    result = dp.Problem([a, b]).plan(dp.ADMM(), rounds=300).run()
    assert str(result.guarantee).startswith(
        "no guarantee: none is needed: private data are in recourse="
    )
    mine = result.recourse("a")
    assert mine["gen"] == pytest.approx(1.0, abs=1e-8)
    assert not contains(result, [CANARY])


def test_keys_that_are_no_variables_are_not_quoted():
    mine = ran(Region(5).problem).recourse("north")
    with pytest.raises(dp.ModelError) as caught:
        mine[np.full(3, CANARY)]
    assert not leaks(caught.value)


# An own solution is its owner's -----------------------------------------------------------------


def test_it_prints_by_name_and_shows_nothing_at_a_prompt():
    region = Region(5)
    result = ran(region.problem)
    mine = result.recourse("north")
    text = str(mine)
    assert text.startswith("own solution, known to 'north' only; not covered if published\n")
    for name in ("gen north", "tie"):
        assert f"  {name} " in text and np.array2string(mine[name], precision=6) in text
    assert f"{mine.value:.6g}" in text
    shown = [repr(mine), *(repr(getattr(mine, name)) for name in ("_held",))]
    assert not any(f"{v:.3f}" in line for v in mine["gen north"] for line in shown)
    assert not hasattr(mine, "__dict__") and not hasattr(mine, "_repr_html_")


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_pickled_nor_copied(attempt):
    mine = ran(Region(5).problem).recourse("north")
    with pytest.raises(dp.PrivacyError, match="'north' is neither pickled nor copied"):
        attempt(mine)


def test_it_is_no_json_and_no_mapping():
    mine = ran(Region(5).problem).recourse("north")
    for attempt in (json.dumps, vars, dict):
        with pytest.raises((TypeError, dp.ModelError)) as caught:
            attempt(mine)
        assert not any(f"{v:.3f}" in str(caught.value) for v in mine["gen north"])


def test_variables_that_the_agent_does_not_hold_are_refused():
    mine = ran(Region(5).problem).recourse("north")
    with pytest.raises(dp.ModelError, match="No agent 'north' holds a variable 'gen south'"):
        mine["gen south"]
    for key in (0, [mine]):
        with pytest.raises(
            dp.ModelError, match=r"^result\.recourse\('north'\)\[x\] takes a cvxpy var"
        ):
            mine[key]


def test_agents_go_by_themselves_or_by_name():
    region = Region(5)
    result = ran(region.problem)
    for agent, name in zip(region.problem.agents, region.problem.names, strict=True):
        mine = result.recourse(agent)
        assert mine.agent == name and mine.value == result.recourse(name).value
    with pytest.raises(dp.ModelError, match="names no agent of the problem"):
        result.recourse(Region(5).problem.agents[0])


@pytest.mark.parametrize("limit", [True, False])
def test_plans_and_results_say_who_keeps_what_is_in_own(limit):
    plan = Region(5, limit=limit).problem.plan(**BUDGET)
    texts = [" ".join(str(one).split()) for one in (plan, plan.run(seed=0))]
    for text in texts:
        assert (
            text.count("only result.recourse(...) keeps the recourse= of north and south") == limit
        )
    assert ("every constraint outside recourse=" in texts[1]) == limit
    assert "the values returned keep every constraint" in texts[1]
    assert "own constraints" not in texts[1]


# Refusals ---------------------------------------------------------------------------------------


def test_contradicting_limits_are_told_to_the_owner_without_their_values():
    region = Region(6)
    result = ran(region.problem)
    with pytest.raises(dp.SolverError, match="For the owner of agent 'north' alone") as caught:
        result.recourse("north", data={"limit north": [-CANARY], "load north": np.full(4, CANARY)})
    assert "no values of its own variables satisfy all its constraints" in str(caught.value)
    assert not leaks(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_failures_on_the_way_show_nothing(monkeypatch):
    from dpcvx.run import recourse

    def fails(data, pinned, x):
        raise ValueError(f"{data.q} {CANARY}")

    monkeypatch.setattr(recourse, "solve_pinned", fails)
    result = ran(Region(6).problem)
    with pytest.raises(dp.SolverError, match="owner of agent 'north' alone.*ValueError") as caught:
        result.recourse("north", data={"load north": np.full(4, CANARY)})
    assert not leaks(caught.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interrupts_carry_no_frames_with_data(error, monkeypatch):
    from dpcvx.run import recourse

    def stops(data, pinned, x):
        raise error(str(CANARY))

    monkeypatch.setattr(recourse, "solve_pinned", stops)
    result = ran(Region(6).problem)
    expected = dp.SolverError if error is MemoryError else error
    with pytest.raises(expected) as caught:
        result.recourse("north", data={"load north": np.full(4, CANARY)})
    assert not leaks(caught.value)


@pytest.mark.parametrize("bad", [np.full(3, CANARY), ["31415.92653"] * 4, lambda: 1 / 0, None])
def test_data_that_do_not_fit_are_refused_without_showing_them(bad):
    region = Region(6)
    result = ran(region.problem)
    result = region.problem.plan(**BUDGET).replay(result.transcript)
    with pytest.raises(dp.DataError, match="'load north'") as caught:
        result.recourse("north", data={"load north": bad})
    assert not leaks(caught.value)


def test_data_declared_by_shape_have_to_be_given():
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = dp.Private(shape=1, name="d", adjacency=dp.Within(1.0))
    a = dp.Agent(cp.Minimize(cp.square(x + y - d[0])), [cp.abs(y) <= 1], name="a")
    b = dp.Agent(cp.Minimize(cp.square(x)), name="b")
    result = ran(dp.Problem([a, b]), data={d: [3.0]})
    with pytest.raises(
        dp.DataError, match=r"'d' has no data.*result\.recourse\('a', data=\{private: "
    ):
        result.recourse("a")
    with pytest.raises(dp.DataError, match=r"'d' has no data.*plan\.run\(data=\{private: "):
        ran(result.problem)
    best = np.clip(3.0 - result.solution[x], -1.0, 1.0)
    assert result.recourse("a", data={d: [3.0]})["y"] == pytest.approx(best, abs=1e-6)


def test_names_and_runs_without_agreed_values_are_refused():
    region = Region(6)
    result = ran(region.problem)
    with pytest.raises(dp.ModelError, match=r"result\.recourse\('west'\) names no agent.*'north'"):
        result.recourse("west")
    with pytest.raises(dp.ModelError, match="names no agent") as caught:
        result.recourse(np.full(3, CANARY))
    assert "31415" not in told(caught.value)
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = dp.Private([1.0], name="d", adjacency=dp.Within(1.0))
    a = dp.Agent(cp.Minimize(cp.square(x + y - d[0])), name="a")
    b = dp.Agent(cp.Minimize(cp.square(x)), name="b")
    plan = dp.Problem([a, b]).plan(dp.FederatedAveraging(step=1e4), rounds=400, mechanism=None)
    diverged = plan.run()
    assert diverged.status is dp.Status.DIVERGED
    with pytest.raises(dp.ModelError, match="no values to which all agents agree"):
        diverged.recourse("a")


def test_objectives_that_are_not_convex_are_refused():
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    d = dp.Private([1.0], name="d", adjacency=dp.Within(1.0))
    bent = cp.power(y, 2) / (1 + cp.power(y, 2))
    a = dp.Agent(cp.Minimize(bent + cp.square(x - d[0])), [cp.abs(y) <= 2, cp.abs(x) <= 2], "a")
    b = dp.Agent(cp.Minimize(cp.square(x)), [cp.abs(x) <= 2], name="b")
    plan = dp.Problem([a, b]).plan(dp.DecentralizedGradient(), rounds=3, mechanism=None)
    with pytest.raises(dp.ModelError, match="convexity rules"):
        plan.run().recourse("a")
