"""Constraints with private data in a plan: what is asked for, said and refused."""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

BUDGET = dict(epsilon=1.0, delta=1e-6)
LOADS = np.array([1.0, 2.0, 0.5])
# Nothing pays for what the true data would miss here; see tests/model/test_defined.py.
HARD = [lambda p, load: p[0] <= 9 * load[0]]


def grid(loads=LOADS, cost=0.0, more=(), name="grid"):
    """Generation that covers private loads; `cost` weighs them in the objective as well."""
    p, reserve = cp.Variable(2, name="p", nonneg=True), cp.Variable(name="r", nonneg=True)
    load = dp.Private(loads, name="load", adjacency=dp.Within(0.02))
    f = np.array([1.0, 2.0]) @ p + 10 * reserve
    if cost:
        f += cost * cp.sum_squares(p - load[:2])
    limits = [p <= 3, cp.sum(p) + reserve >= cp.sum(load), *(one(p, load) for one in more)]
    return dp.Problem([dp.Agent(cp.Minimize(f), limits, name=name)])


def test_the_plan_says_what_it_keeps_before_data_are_read():
    def unread():
        raise AssertionError("data are read")

    p = cp.Variable(2, name="p", nonneg=True)
    load = dp.Private(unread, shape=3, name="load", adjacency=dp.Within(0.02))
    limits = [cp.sum(p) >= cp.sum(load), load[:2] @ p <= 30, p <= 9]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(p)), limits, name="grid")])
    plan = problem.plan(violation_probability=0.05, **BUDGET)
    text = " ".join(str(plan).split())
    for words in (
        "Constraint 0 of agent 'grid': margin 0.",
        "Constraint 1 of agent 'grid': a margin that grows with the decision",
        "with probability at most 0.05 over the noise",
        "among the runs that find a decision the share may be larger",
        "its constraints contain private data, which are released with noise",
    ):
        assert words in text
    assert plan.violation_probability == 0.05 and plan.release == "once"
    assert "does not depend on 'load'" not in str(plan.guarantee)
    (entry,) = plan.guarantee.agents
    assert entry.releases == 1 and entry.independent == ()


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_one_release_serves_objective_and_constraints(cost):
    problem = grid(cost=cost)
    plan = problem.plan(violation_probability=0.01, **BUDGET)
    result = plan.run(seed=2, record=True)
    (release,) = result.transcript.releases
    left = plan.agents[0].publication.unlimited(release.value)
    (kept,) = plan.program.kept
    margin = kept.margins[0]
    p, r = cp.Variable(2, nonneg=True), cp.Variable(nonneg=True)
    f = np.array([1.0, 2.0]) @ p + 10 * r
    if cost:
        f += cost * cp.sum_squares(p - left[:2])
    expected = cp.Problem(cp.Minimize(f), [p <= 3, cp.sum(p) + r >= left.sum() + margin])
    expected.solve(cp.CLARABEL)
    (p_found, r_found) = (result.solution["p"], result.solution["r"])
    assert p_found == pytest.approx(p.value, abs=1e-5)
    assert float(r_found) == pytest.approx(float(r.value), abs=1e-5)
    assert dp.not_private.violation(problem, result.solution) == pytest.approx(
        max(0.0, LOADS.sum() - p.value.sum() - float(r.value)), abs=1e-6
    )
    assert result.ledger["grid"].spent().epsilon == pytest.approx(plan.guarantee.epsilon)


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_the_second_run_on_neighboring_data_is_the_same_but_for_the_release(cost):
    checked = dp.check_sensitivity(grid(cost=cost).plan(violation_probability=0.01, **BUDGET))
    assert checked.passed
    assert checked.agents[0].ratio == pytest.approx(1.0, rel=1e-3)


def test_a_run_is_its_transcript():
    plan = grid(cost=1.0).plan(violation_probability=0.01, **BUDGET)
    result = plan.run(seed=2, record=True)
    again = plan.replay(result.transcript)
    assert np.array_equal(again.solution["p"], result.solution["p"])


def test_without_noise_constraints_hold_as_they_are():
    problem = grid()
    result = problem.plan(mechanism=None).run()
    assert result.solution["p"].sum() == pytest.approx(LOADS.sum(), abs=1e-6)
    assert dp.not_private.violation(problem, result.solution) <= 1e-6
    central = dp.not_private.joint_problem(problem)
    assert central.solve(cp.CLARABEL) == pytest.approx(4.0, abs=1e-6)


def test_where_noise_leaves_no_decision_the_run_says_so():
    def near(p, load):
        return cp.abs(cp.sum(p) - cp.sum(load)) <= 0.01

    problem = grid(more=[near])
    plan = problem.plan(violation_probability=0.01, **BUDGET)
    result = plan.run(seed=1)
    assert result.status is dp.Status.INFEASIBLE
    said = " ".join(str(result).split())
    assert "margins for noise in constraints with private data leave no room" in said
    assert (
        "slack_penalty=" in said and "violation_probability=" in said and "larger epsilon" in said
    )
    with pytest.raises(dp.ModelError, match="leave no room"):
        result.recourse("grid")
    priced = problem.plan(violation_probability=0.01, slack_penalty=100.0, **BUDGET)
    assert priced.run(seed=1).status is dp.Status.COMPLETED
    assert "loosened by what the decision pays for" in " ".join(str(priced.guarantee).split())


def test_signs_do_not_bend_the_noise_of_constraints():
    p = cp.Variable(3, name="p", nonneg=True)
    load = dp.Private(np.zeros(3), name="load", adjacency=dp.Within(1.0), nonneg=True)
    agent = dp.Agent(cp.Minimize(cp.sum_squares(p)), [p <= 4 + load, p >= load - 9], name="grid")
    plan = dp.Problem([agent]).plan(violation_probability=0.3, **BUDGET)
    runs = [plan.run(seed=seed, record=True) for seed in range(6)]
    # max(0, .) would make 4 + load larger than it left. None of 18 is negative: once in 260,000.
    assert any((run.transcript.releases[0].value < 0).any() for run in runs)


def test_methods_that_keep_public_constraints_only_refuse():
    with pytest.raises(dp.ModelError, match=r"dp\.ADMM, .* public constraints only.*OneShot"):
        grid().plan(dp.ADMM(), violation_probability=0.01, **BUDGET)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, r"Constraint 1 of agent 'grid' contains private data.*violation_probability=0\.01"),
        (dict(violation_probability=0.1, release="each_step"), "data are released once"),
        (dict(violation_probability=-0.1), "violation"),
        (dict(violation_probability=1.0), "violation"),
        (dict(violation_probability=True), "violation"),
        (dict(violation_probability=0.1, slack_penalty=-1.0), "slack_penalty"),
    ],
    ids=str,
)
def test_what_contradicts_itself_is_refused(asked, words):
    with pytest.raises(dp.DpcvxError, match=words):
        grid(more=HARD).plan(**asked, **BUDGET)


def test_violation_without_private_constraints_promises_nothing():
    x = cp.Variable(2, name="x")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    public = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])
    with pytest.raises(dp.PrivacyError, match="no constraint contains private data"):
        public.plan(violation_probability=0.1, **BUDGET)
    with pytest.raises(dp.PrivacyError, match="there is no noise"):
        grid().plan(mechanism=None, violation_probability=0.1)


def test_searches_need_a_violation_too():
    problem = grid(more=HARD)
    for search in (problem.tune, problem.compare):
        with pytest.raises(
            dp.PrivacyError, match=r"Write the largest probability of that.*violation_probability="
        ):
            search(proxy={"load": LOADS}, time_limit=1.0, **BUDGET)


def test_groups_and_noise_of_each_agents_own():
    x = cp.Variable(2, name="x", nonneg=True)
    agents = []
    for name in ("north", "south"):
        d = dp.Private(np.ones(2), name=f"cap {name}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Maximize(cp.sum(x)), [x <= d], name=name))

    def margins(groups=(), **asked):
        plan = dp.Problem(agents, groups=groups).plan(
            violation_probability=0.1, delta=1e-6, **asked
        )
        return [kept.margins[0] for kept in plan.program.kept]

    one = margins(epsilon=1.0, mechanism="laplace")
    # Both agents may hold one person's data: each spends half.
    grouped = margins(groups=[agents], epsilon=1.0, mechanism=dp.Laplace())
    assert grouped[0] > 1.5 * one[0]
    kinds = {"north": "gaussian", "south": "laplace"}
    own = margins(epsilon={"north": 1.0, "south": 0.5}, mechanism=kinds)
    assert own[0] > one[0] and own[1] == pytest.approx(2 * one[1], rel=1e-3)


def test_records_in_constraints():
    rows = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]])
    d = dp.Private(rows, name="rows", adjacency=dp.Rows(1.0))
    w = cp.Variable(2, name="w")
    limits = [cp.norm(d @ w) <= 60, cp.abs(w) <= 1]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(w - 1)), limits, name="a")])
    plan = problem.plan(violation_probability=0.1, **BUDGET)
    result = plan.run(seed=0)
    assert result.status is dp.Status.COMPLETED and dp.check_sensitivity(plan).passed
    assert dp.not_private.violation(problem, result.solution) == 0


def test_own_solutions_keep_the_constraints_exactly():
    tie, gen = cp.Variable(name="tie"), cp.Variable(2, name="gen", nonneg=True)
    d = dp.Private(np.array([1.0, 2.0]), name="d", adjacency=dp.Within(0.1))
    limits = [cp.sum(gen) + tie >= cp.sum(d), gen <= 3]
    north = dp.Agent(cp.Minimize(cp.sum(gen)), limits, name="north")
    south = dp.Agent(cp.Minimize(cp.square(tie)), [cp.abs(tie) <= 1], name="south")
    result = dp.Problem([north, south]).solve(violation_probability=0.1, seed=1, **BUDGET)
    said = " ".join(str(result).split())
    assert "the values returned keep every public constraint" in said
    agreed, own = result.solution["tie"], result.recourse("north")["gen"]
    assert own.sum() + agreed == pytest.approx(3.0, abs=1e-6)


def test_clipped_rows_are_other_data():
    x = cp.Variable(2, name="x", nonneg=True)
    rows = dp.Private(np.ones((3, 2)), name="rows", adjacency=dp.Rows(1.0, clip_rows=True))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum(x)), [rows @ x >= 1, x <= 9], name="a")])
    with pytest.raises(dp.PrivacyError, match=r"Drop clip_rows=True.*instead of your data"):
        problem.plan(violation_probability=0.1, **BUDGET)


def test_boundedness_may_come_from_private_limits():
    x = cp.Variable(name="x")
    d = dp.Private(1.0, name="d", adjacency=dp.Within(0.1))
    below = dp.Problem([dp.Agent(cp.Minimize(x), [x >= d], name="a")])
    assert below.plan(violation_probability=0.1, **BUDGET).run(seed=0).status is dp.Status.COMPLETED
    above = dp.Problem([dp.Agent(cp.Minimize(x), [x <= d], name="a")])
    with pytest.raises(dp.ModelError, match="no lower bound|no optimum"):
        above.plan(violation_probability=0.1, **BUDGET)


def test_coefficients_do_not_bound_for_certain():
    x = cp.Variable(2, name="x", nonneg=True)
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    open_set = dp.Problem([dp.Agent(cp.Maximize(cp.sum(x)), [d @ x <= 1], name="a")])
    with pytest.raises(dp.ModelError, match="Add bounds"):
        open_set.plan(violation_probability=0.1, **BUDGET)


def test_agents_agree_on_what_their_own_data_limit():
    power = cp.Variable(2, name="power", nonneg=True)
    agents = []
    for k, name in enumerate(("north", "south")):
        cap = dp.Private(np.array([1.0, 2.0 + k]), name=f"cap {name}", adjacency=dp.Within(0.01))
        agents.append(dp.Agent(cp.Maximize(cp.sum(power)), [power <= cap], name=name))
    problem = dp.Problem(agents)
    plan = problem.plan(violation_probability=0.1, **BUDGET)
    result = plan.run(seed=4)
    assert dp.not_private.violation(problem, result.solution) <= 1e-6
    assert result.solution["power"] == pytest.approx([1.0, 2.0], abs=0.2)
    margins = [m for kept in plan.program.kept for m in kept.margins.values()]
    assert margins == pytest.approx([margins[0]] * 4)


def test_fingerprints_tell_margins_apart():
    marks = {
        grid().plan(violation_probability=v, slack_penalty=price, **BUDGET).fingerprint
        for v, price in ((0.1, None), (0.01, None), (0.01, 5.0), (0, None))
    }
    assert len(marks) == 4
    one, two = (grid().plan(violation_probability=0.1, **BUDGET).fingerprint for _ in range(2))
    assert one == two


def test_copies_have_the_constraints_without_the_data():
    problem = copy.deepcopy(grid())
    plan = problem.plan(violation_probability=0.1, **BUDGET)
    with pytest.raises(dp.DataError):
        plan.run()
    assert plan.run(data={"load": LOADS}, seed=1).status is dp.Status.COMPLETED


def test_programs_can_be_sent():
    program = grid().plan(violation_probability=0.1, **BUDGET).program
    again = pickle.loads(pickle.dumps(program))
    assert again.kept[0].margins == program.kept[0].margins


def test_the_noise_with_the_smaller_margins_is_chosen():
    plan = grid().plan(violation_probability=0.1, **BUDGET)
    assert "margins" in " ".join(choice.why for choice in plan.choices)
    gaussian = grid().plan(violation_probability=0.1, mechanism="gaussian", **BUDGET)
    sizes = [one.program.kept[0].margins[0] for one in (plan, gaussian)]
    assert sizes[0] < sizes[1]


def certain(problem=None, **asked):
    return (grid() if problem is None else problem).plan(
        violation_probability=0, **{**BUDGET, **asked}
    )


@pytest.mark.parametrize("kind", ["auto", "laplace", "gaussian"])
def test_with_a_limit_the_total_is_what_was_asked_for(kind):
    plan = certain(mechanism=kind)
    assert plan.guarantee.delta == 1e-6
    assert plan.guarantee.epsilon == pytest.approx(1.0, rel=1e-5) and plan.guarantee.epsilon <= 1
    text = " ".join(str(plan).split())
    for words in (
        "(1, 1e-6)-DP",
        "drawn again while an entry exceeds",
        "for the tails that are cut off",
        "hold for the true data in every run that finds a decision",
    ):
        assert words in text
    result = plan.run(seed=2)
    (entry,) = result.ledger["grid"].entries
    assert entry.stated == (plan.guarantee.epsilon, 1e-6)
    assert result.ledger["grid"].spent().epsilon == plan.guarantee.epsilon
    assert result.ledger["grid"].spent(1e-7).epsilon == np.inf
    assert dp.check_sensitivity(plan).passed


def test_noise_with_a_level_of_its_own_costs_what_it_costs():
    plan = certain(mechanism=dp.Laplace(noise_multiplier=2.0), epsilon=None)
    assert plan.guarantee.epsilon == pytest.approx(0.5, rel=1e-3)
    assert plan.run(seed=1).ledger["grid"].spent().epsilon == plan.guarantee.epsilon


@pytest.mark.parametrize("delta", [None, 0, 0.0])
def test_a_limit_needs_a_delta(delta):
    with pytest.raises(dp.PrivacyError, match=r"violation_probability=0 needs .* at delta=0"):
        certain(delta=delta)
    with pytest.raises(dp.PrivacyError, match=r"violation_probability=0 needs .* at delta=0"):
        certain(delta=delta, mechanism=dp.Laplace())


def test_a_limit_is_not_proved_for_groups():
    x = cp.Variable(2, name="x", nonneg=True)
    agents = []
    for name in ("north", "south"):
        d = dp.Private(np.ones(2), name=f"cap {name}", adjacency=dp.Within(0.1))
        agents.append(dp.Agent(cp.Maximize(cp.sum(x)), [x <= d], name=name))
    with pytest.raises(dp.PrivacyError, match=r"Drop groups=.* a group's loss"):
        certain(dp.Problem(agents, groups=[agents]))
    plan = certain(dp.Problem(agents))
    assert {agent.price.epsilon for agent in plan.agents} == {plan.guarantee.epsilon}


def test_agents_without_private_constraints_keep_the_whole_delta():
    x = cp.Variable(2, name="x", nonneg=True)
    cap = dp.Private(np.ones(2), name="cap", adjacency=dp.Within(0.1))
    goal = dp.Private(np.ones(2), name="goal", adjacency=dp.Within(0.1))
    north = dp.Agent(cp.Minimize(cp.sum(x)), [x <= cap + 9], name="north")
    south = dp.Agent(cp.Minimize(cp.sum_squares(x - goal)), [x <= 20], name="south")
    plan = certain(dp.Problem([north, south]), mechanism="gaussian")
    held, free = (agent.noise for agent in plan.agents)
    assert held.truncation is not None and free.truncation is None
    assert held.multiplier > free.multiplier
    result = plan.run(seed=0)
    prices = result.ledger.prices()
    assert all(price.epsilon <= 1 + 1e-9 for price in prices.values())


def test_a_run_with_a_limit_comes_first_in_its_ledger():
    problem = grid()
    first = problem.plan(violation_probability=0, **BUDGET).run(seed=1)
    both = problem.plan(violation_probability=0, epsilon=2.0, delta=3e-6)
    with pytest.raises(dp.BudgetError):
        problem.plan(violation_probability=0, **BUDGET).run(seed=1, ledger=first.ledger)
    with pytest.raises(dp.BudgetError):  # deltas add up as well, and each takes all of its own
        both.run(seed=1, ledger=first.ledger)
    more = problem.plan(
        mechanism=dp.Laplace(noise_multiplier=1.01),
        violation_probability=0.1,
        epsilon=2.1,
        delta=3e-6,
    )
    then = more.run(seed=1, ledger=first.ledger)
    assert then.ledger["grid"].spent().epsilon <= 2.1
    with pytest.raises(
        dp.PrivacyError, match=r"first in its ledger.*larger violation_probability="
    ):
        both.run(seed=2, ledger=then.ledger)
    assert len(then.ledger["grid"].entries) == 2


def test_a_ledger_file_keeps_the_pair(tmp_path):
    plan = certain()
    result = plan.run(seed=1, ledger=tmp_path / "spent.jsonl")
    account = dp.Ledger.load(tmp_path / "spent.jsonl")["grid"]
    assert account.spent() == result.ledger["grid"].spent()
    again = plan.replay(tmp_path / "spent.jsonl")
    assert np.array_equal(again.solution["p"], result.solution["p"])


@pytest.mark.parametrize("unit", [1.0, 1e4, 1e9])
def test_margins_are_the_same_in_units_far_apart(unit):
    """What recovers the data drops none that are small, so their margins are not 0."""
    x = cp.Variable(4, name="x")
    small, large = np.full(3, 0.7) / unit, np.array([0.7 * unit])
    d = dp.Private(small, name="d", adjacency=dp.Within(0.1 / unit), proxy=1.01 * small)
    e = dp.Private(large, name="e", adjacency=dp.Within(0.1 * unit), proxy=1.01 * large)
    limits = [x[3] >= e[0] / unit, cp.sum(x[:3]) >= cp.sum(d) * unit, cp.abs(x) <= 100]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x)), limits, name="a")])
    plan = problem.plan(
        dp.OneShot(), mechanism="gaussian", epsilon=1.0, delta=1e-4, violation_probability=0.01
    )
    assert plan.agents[0].publication.kind == "shaped data"
    margins = [kept.margins[0] for kept in plan.program.kept]
    assert margins == pytest.approx([0.831, 0.993], abs=0.01)


def level(bounds):
    """The largest level t that an uncertain return covers, for weights within bounds or without."""
    w, t = cp.Variable(3, name="w", nonneg=True), cp.Variable(name="t")
    mu = dp.Private([0.05, 0.08, 0.11], name="mu", adjacency=dp.Within(0.005))
    limits = [t <= mu @ w - 0.1 * cp.norm(w), *([cp.sum(w) == 1] if bounds else [])]
    return dp.Problem([dp.Agent(cp.Maximize(t), limits, name="fund")])


def test_a_level_over_private_factors_of_bounded_variables_has_an_optimum():
    """Along every direction without end the weights stay, so no product with data moves."""
    problem = level(bounds=True)
    plan = problem.plan(violation_probability=0.1, **BUDGET)
    runs = [plan.run(seed=seed) for seed in range(10)]
    assert all(run.status.solved for run in runs)
    broken = [dp.not_private.violation(problem, run.solution) > 1e-7 for run in runs]
    assert sum(broken) <= 4  # of 10, at most 0.1 each: 5 or more have a probability of 0.2 %
    with pytest.raises(dp.DpcvxError, match="no optimum for some values of the noise"):
        level(bounds=False).plan(violation_probability=0.1, **BUDGET)
