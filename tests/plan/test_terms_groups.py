"""Groups: agents whose private data may describe the same person."""

import math

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.privacy.accounting import gaussian_multiplier, laplace_multiplier
from dpcvx.privacy.accounts import Account, Budget
from dpcvx.privacy.randomness import source_for
from dpcvx.run.data import sources_of
from dpcvx.run.loop import drive_silently
from dpcvx.run.resume import one_by_one
from dpcvx.testing.check import observed_gates, oracles_behind

NAMES = ("north", "south", "east")
ROUNDS = 3


def agents(private=NAMES, names=NAMES):
    """Agents that pull x towards their data, or towards one."""
    x = cp.Variable(2, name="x")
    found = []
    for k, name in enumerate(names):
        label = name or f"agent {k + 1}"
        target = 1.0
        if label in private:
            target = dp.Private(
                np.full(2, float(k)), name=f"data of {label}", adjacency=dp.Within(0.1)
            )
        cost = cp.Minimize(cp.sum_squares(x - target))
        found.append(dp.Agent(cost, [cp.abs(x) <= 5], name=name))
    return found


def problem(groups=(), private=NAMES):
    return dp.Problem(agents(private), groups=groups)


def planned(model, algorithm=None, **arguments):
    settings = {"rounds": ROUNDS, "epsilon": 1.0, "delta": 1e-6} | arguments
    if isinstance(settings.get("mechanism", ""), dp.Gaussian | dp.Laplace):
        del settings["epsilon"]
    return model.plan(algorithm or dp.LinearizedADMM(penalty=1.0), **settings)


PAIR = [["north", "south"]]


# Declaration


def test_groups_are_named_by_agent_or_by_name():
    north, south, east = members = agents()
    for group in ([north, south], ["north", south], ("north", "south")):
        model = dp.Problem(members, groups=[group])
        assert model.group_names == (("north", "south"),)
        assert model.shares() == [2, 2, 1]
    assert dp.Problem(members, groups=([east, north], ["south"])).shares() == [2, 1, 2]
    assert dp.Problem(members).group_names == ()


def test_agents_without_a_name_are_named_by_position():
    members = agents(names=(None, None, None), private=("agent 1", "agent 3"))
    for group in (["agent 1", "agent 3"], [members[0], members[2]]):
        model = dp.Problem(members, groups=[group])
        assert model.group_names == (("agent 1", "agent 3"),)
        assert model.shares() == [2, 1, 2]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("north", "list of groups"),
        (["north"], "list of groups"),
        ([{"north", "south"}], "list of groups"),
        ([["north", "west"]], "'west', which is no agent"),
        ([["north", 2]], "names 2, which is no agent"),
        ([["north", None]], "names None, which is no agent"),
        ([["north", "north"]], "'north' is in two groups, or twice in one"),
        ([["north", "south"], ["south", "east"]], "'south' is in two groups"),
        pytest.param(None, "list of groups"),
        pytest.param(3, "list of groups"),
    ],
)
def test_groups_that_are_none_are_refused(groups, message):
    with pytest.raises(dp.ModelError, match=message):
        problem(groups)


def test_an_agent_of_another_problem_is_no_member():
    (stranger,) = agents(names=("west",), private=("west",))
    with pytest.raises(dp.ModelError, match="'west', which is no agent of the problem") as caught:
        problem([["north", stranger]])
    assert "north, south, east" in str(caught.value)


def test_an_agent_named_twice_by_object_and_name_is_noticed():
    members = agents()
    with pytest.raises(dp.ModelError, match="twice in one"):
        dp.Problem(members, groups=[[members[0], "north"]])


# Composition


@pytest.mark.parametrize("size", [1, 2, 3])
def test_gaussian_noise_grows_with_the_root_of_the_size(size):
    alone = planned(problem()).agents[0].noise.multiplier
    grouped = planned(problem([list(NAMES[:size])])).agents[0].noise.multiplier
    assert grouped == pytest.approx(math.sqrt(size) * alone, rel=1e-9)
    assert grouped == pytest.approx(gaussian_multiplier(size * ROUNDS, 1.0, 1e-6), rel=1e-12)


def test_laplace_noise_grows_with_the_size():
    alone, grouped = (
        planned(problem(g), mechanism="laplace", delta=0.0).agents[0].noise.multiplier
        for g in ((), PAIR)
    )
    assert grouped == pytest.approx(2 * alone, rel=1e-9)
    assert grouped == pytest.approx(laplace_multiplier(2 * ROUNDS, 1.0, 0.0), rel=1e-12)


@pytest.mark.parametrize(
    "noise", [dp.Gaussian(noise_multiplier=9.0), dp.Laplace(noise_multiplier=9.0)]
)
def test_with_the_noise_given_the_price_grows_instead(noise):
    alone, grouped = (planned(problem(g), mechanism=noise) for g in ((), PAIR))
    twice = planned(problem(), mechanism=noise, rounds=2 * ROUNDS)
    assert grouped.price == twice.price
    assert grouped.price.epsilon > alone.price.epsilon
    assert grouped.guarantee.rho == pytest.approx(2 * alone.guarantee.rho, rel=1e-12)
    assert [a.releases for a in grouped.guarantee.agents] == [ROUNDS] * 3


def test_agents_without_private_data_do_not_count():
    model = problem([list(NAMES)], private=("north", "east"))
    assert model.shares() == [2, 2, 2]
    two = planned(problem([["north", "east"]], private=("north", "east")))
    assert planned(model).agents[0].noise.multiplier == two.agents[0].noise.multiplier
    single = problem([["north", "south"]], private=("north", "east"))
    assert single.shares() == [1, 1, 1]
    assert (
        planned(single).agents[0].noise.multiplier == planned(problem()).agents[0].noise.multiplier
    )


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_every_group_sets_the_noise_of_its_own_agents(release):
    """Agents outside the group spend the same budget with the noise of a single agent."""
    plan, alone = (planned(problem(g), mechanism="gaussian", release=release) for g in (PAIR, ()))
    north, south, east = (agent.noise.multiplier for agent in plan.agents)
    assert north == south == pytest.approx(math.sqrt(2) * east, rel=1e-9)
    assert east == alone.agents[0].noise.multiplier
    ledger = plan.run(seed=0).ledger
    for account in ledger.values():
        assert account.spent().epsilon == pytest.approx(1.0, rel=1e-9)
        assert account.spent().epsilon <= plan.agent(account.agent).price.epsilon * (1 + 1e-12)
    assert [a.epsilon for a in plan.guarantee.agents] == pytest.approx([1.0] * 3, rel=1e-9)
    assert plan.guarantee.epsilon <= 1.0 and plan.guarantee.rho == pytest.approx(
        max(account.rho for account in ledger.values()), rel=1e-9
    )
    assert "noise of each agent's own" in " ".join(str(plan.guarantee).split())


def test_groups_of_different_sizes_are_calibrated_one_by_one():
    names = ("a", "b", "c", "d", "e", "f")
    model = dp.Problem(agents(names, names), groups=[["a", "b", "c"], ["d", "e"]])
    plan = planned(model)
    found = np.array([agent.noise.multiplier for agent in plan.agents])
    assert found / found[-1] == pytest.approx(np.sqrt([3, 3, 3, 2, 2, 1]), rel=1e-9)
    assert dp.check_sensitivity(plan).passed


def test_laplace_noise_with_decay_is_calibrated_group_by_group():
    model, noise = problem(PAIR), dp.Laplace(decay=0.9)
    plan = model.plan(
        dp.LinearizedADMM(penalty=1.0), rounds=ROUNDS, mechanism=noise, epsilon=1.0, delta=0
    )
    for agent, share in zip(plan.agents, (2, 2, 1), strict=True):
        total = share * sum(1 / (agent.noise.multiplier * 0.9**t) for t in range(ROUNDS))
        assert total == pytest.approx(1.0, rel=1e-9)


def planned_by_agent(epsilons, groups):
    return problem(groups).plan(
        dp.LinearizedADMM(penalty=1.0), rounds=ROUNDS, epsilon=epsilons, delta=1e-6
    )


def test_budgets_may_differ_between_groups_but_not_within_one():
    plan = planned_by_agent({"north": 1.0, "south": 1.0, "east": 0.3}, PAIR)
    spent = {n: a.spent().epsilon for n, a in plan.run(seed=0).ledger.items()}
    assert spent == pytest.approx({"north": 1.0, "south": 1.0, "east": 0.3}, rel=1e-9)
    with pytest.raises(
        dp.PrivacyError, match="'north' and 'south' form a group.*Give them the same"
    ):
        planned_by_agent({"north": 1.0, "south": 0.5, "east": 0.5}, PAIR)


def test_the_guarantee_names_the_groups_and_who_is_protected():
    stated = planned(problem(PAIR)).guarantee
    assert stated.groups == (("north", "south"),)
    text = " ".join(str(stated).split())
    assert text.startswith(
        "(1, 1e-6)-DP for one change in one agent's data, or in that of all agents of a group at "
        "once"
    )
    assert "groups north and south" in text
    assert "are held by the agents of one group" in text
    alone = planned(problem()).guarantee
    assert alone.groups == ()
    assert "group" not in str(alone)


# The ledger


def test_the_ledger_counts_every_release_once_per_member():
    plan = planned(problem(PAIR), mechanism=dp.Gaussian(noise_multiplier=6.0))
    ledger = plan.run(seed=0).ledger
    assert {name: account.share for name, account in ledger.items()} == dict(
        zip(NAMES, (2, 2, 1), strict=True)
    )
    assert all(len(account.entries) == ROUNDS for account in ledger.values())
    assert ledger["north"].rho == pytest.approx(2 * ROUNDS / 72, rel=1e-12)
    assert ledger["east"].rho == pytest.approx(ROUNDS / 72, rel=1e-12)


def test_a_shared_account_stops_at_its_budget_and_counts_what_it_affords():
    plan = planned(problem(PAIR), mechanism=dp.Laplace(noise_multiplier=10.0), delta=None)
    entries = plan.run(seed=0).ledger["north"].entries
    book = Account("north", {}, Budget(1.0, 0.0, plan.accounts()[0].budget.planned), share=2)
    assert book.affordable(plan.agents[0].noise, 99) == 5
    for _ in range(5):
        book.charge(entries[0], plan.agents[0].noise)
    assert book.spent().epsilon == pytest.approx(1.0)
    with pytest.raises(dp.BudgetError) as refused:
        book.charge(entries[0], plan.agents[0].noise)
    assert refused.value.requested == pytest.approx(1.2)
    assert len(book.entries) == 5


@pytest.mark.parametrize(("first", "then"), [((), PAIR), (PAIR, ()), (PAIR, [list(NAMES)])])
def test_a_ledger_is_not_continued_with_another_share(first, then):
    noise = dp.Gaussian(noise_multiplier=9.0)
    ledger = planned(problem(first), mechanism=noise).run(seed=0).ledger
    with pytest.raises(
        dp.PrivacyError, match=r"each release \d times?: .*Keep the groups= of the first run"
    ):
        planned(problem(then), mechanism=noise, rounds=99).run(seed=0, ledger=ledger)


def test_a_ledger_is_continued_with_the_same_share():
    noise = dp.Gaussian(noise_multiplier=9.0)
    first = planned(problem(PAIR), mechanism=noise).run(seed=0)
    plan = planned(problem(PAIR), mechanism=noise, rounds=2 * ROUNDS)
    second = plan.run(seed=0, ledger=first.ledger)
    assert second.rounds == ROUNDS
    assert second.status is dp.Status.BUDGET
    assert second.ledger["south"].spent().epsilon == pytest.approx(plan.price.epsilon, rel=1e-9)


def test_a_ledger_file_remembers_the_share(tmp_path):
    plan = planned(problem(PAIR))
    plan.run(seed=0, ledger=tmp_path / "ledger")
    loaded = dp.Ledger.load(tmp_path / "ledger")
    assert {n: a.share for n, a in loaded.items()} == dict(zip(NAMES, (2, 2, 1), strict=True))
    assert loaded.spent() == pytest.approx(plan.price.epsilon, rel=1e-9)


# One person in both


def observed(plan, data, frozen):
    dealt = one_by_one(plan.agents)
    gates = observed_gates(plan, dealt, plan.accounts(), lambda k: source_for(0, (k,)), frozen)
    oracles = oracles_behind(plan, gates, sources_of(plan.problem, data))
    return drive_silently(plan, dealt, oracles, plan.rounds), gates


METHODS = {
    "gradients": {},
    "exact steps": {"algorithm": dp.ADMM(penalty=1.0)},
    "output": {"algorithm": dp.LinearizedADMM(penalty=1.0, perturb="output")},
    "once": {"release": "once"},
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "noise", [dp.Gaussian(noise_multiplier=5.0), dp.Laplace(noise_multiplier=5.0)], ids=str
)
def test_the_joint_change_of_two_agents_is_within_what_the_plan_pays_for(name, noise):
    plan = planned(problem(PAIR), mechanism=noise, **METHODS[name])
    changed = {f"data of {n}": np.array([k + 0.1, k]) for k, n in enumerate(NAMES[:2])}
    first, live = observed(plan, {}, None)
    releases = [r for gate in live for r in gate.releases]
    second, frozen = observed(plan, changed, releases)
    # With the same releases everything else is the same, although both agents' data differ.
    for one, two in zip(first.last.vectors, second.last.vectors, strict=True):
        assert np.array_equal(one, two)
    power = 2 if noise.norm == 2 else 1
    total = 0.0
    for one, two in zip(live, frozen, strict=True):
        for a, b in zip(one.observed()[0].seen, two.observed()[0].seen, strict=True):
            moved = np.linalg.norm(a.inside - b.inside, noise.norm)
            total += (moved / a.grid.scale) ** power
    steps = 1 if name == "once" else ROUNDS
    # Parameter mu^2 of all Gaussian releases, or the sum of pure epsilons.
    paid, alone = 2 * steps / 5.0**power, steps / 5.0**power
    assert total <= paid
    if name != "output":
        assert total > 0.99 * paid > alone
    composition = plan.accounts()[0].budget.planned
    assert paid == pytest.approx(composition.mu2 if power == 2 else composition.pure, rel=1e-12)


def test_check_passes_for_grouped_agents():
    found = dp.check_sensitivity(planned(problem(PAIR)))
    assert found.passed
    assert [a.agent for a in found.agents] == list(NAMES)


def pulled(who):
    """Two agents with one person's data, and variables that meet those of one of them only."""
    x = cp.Variable(name="x")
    members = []
    for name in ("north", "south"):
        d = dp.Private(np.array([0.3]), name=f"data of {name}", adjacency=dp.Within(1.0))
        cost = cp.sum_squares(x - d) if name == who else cp.square(x) + cp.sum_squares(d)
        members.append(dp.Agent(cp.Minimize(cost), [cp.abs(x) <= 5], name=name))
    return dp.Problem(members, groups=PAIR)


GAUSSIAN = {"mechanism": "gaussian", "delta": 1e-5}
PURE = {"mechanism": "laplace", "delta": 0.0}


@pytest.mark.parametrize(("first", "second"), [(GAUSSIAN, PURE), (PURE, GAUSSIAN)])
def test_a_run_goes_not_past_what_a_silent_member_of_its_group_has_released(first, second):
    """One rule has to cover all accounts, or the exact delta exceeds the stated one."""
    before = pulled("north").plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, **first).run(seed=1)
    after = pulled("south").plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, **second)
    with pytest.raises(dp.BudgetError, match="Agent 'north' may hold data of the same") as caught:
        after.run(seed=2, ledger=before.ledger)
    assert caught.value.idle and caught.value.requested == caught.value.spent
    assert "next release" not in str(caught.value)
    assert not before.ledger["south"].entries


def test_members_of_a_group_release_in_turns_where_each_account_is_within_the_budget():
    first = pulled("north").plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-5).run(seed=1)
    result = (
        pulled("south")
        .plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-5)
        .run(seed=2, ledger=first.ledger)
    )
    assert [len(result.ledger[name].entries) for name in ("north", "south")] == [1, 1]
    assert result.ledger.spent() == pytest.approx(1.0)
    smaller = pulled("south").plan(dp.LinearizedADMM(), rounds=1, epsilon=0.5, delta=1e-5)
    with pytest.raises(dp.BudgetError, match="'north'"):
        smaller.run(seed=2, ledger=first.ledger)
