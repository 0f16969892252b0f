"""Noise of each agent's own: budgets and mechanisms by name, and what is refused."""

import math
from fractions import Fraction

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx._words import at_most
from tests.plan.test_terms_groups import NAMES, PAIR, ROUNDS, problem
from tests.privacy.test_ledger_file import cut, ends, put
from tests.run.test_resume import same

BUDGETS = {"north": 0.5, "south": 2.0, "east": 1.0}
KINDS = {
    "north": dp.Laplace(decay=0.8),
    "south": dp.Gaussian(decay=0.9),
    "east": dp.Gaussian(noise_multiplier=12.0),
}
LINEARISED = dp.LinearizedADMM(penalty=1.0)


def planned(mechanism="gaussian", epsilon=None, model=None, **arguments):
    arguments = {"rounds": ROUNDS, "delta": 1e-6} | arguments
    algorithm = arguments.pop("algorithm", LINEARISED)
    return (model or problem()).plan(algorithm, mechanism=mechanism, epsilon=epsilon, **arguments)


def mixed(**arguments):
    return planned(KINDS, {"north": 0.5, "south": 2.0}, **arguments)


# -- budgets ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=10)
@given(st.lists(st.floats(0.1, 3), min_size=3, max_size=3))
def test_each_agent_has_the_noise_of_a_plan_with_its_budget_for_all(budgets):
    wanted = dict(zip(NAMES, budgets, strict=True))
    plan = planned("laplace", wanted, delta=0.0)
    for name, agent in zip(NAMES, plan.guarantee.agents, strict=True):
        assert plan.agent(name).noise == planned("laplace", wanted[name], delta=0.0).agents[0].noise
        assert plan.agent(name).price.epsilon == agent.epsilon <= wanted[name]
        assert agent.epsilon == pytest.approx(wanted[name], rel=1e-4)
    assert plan.guarantee.epsilon == max(agent.epsilon for agent in plan.guarantee.agents)


def test_each_ledger_counts_its_own_budget():
    plan = planned(epsilon=BUDGETS)
    result = plan.run(seed=1, record=True)
    for name, account in result.ledger.items():
        assert account.budget.epsilon == pytest.approx(BUDGETS[name], rel=1e-6)
        # The sum of squares is rounded release by release here, and at once in the plan.
        assert account.spent().epsilon == pytest.approx(plan.agent(name).price.epsilon, rel=1e-13)
    assert plan.guarantee.epsilon == pytest.approx(2.0, rel=1e-6)
    assert plan.composed(ROUNDS) == {agent.name: agent.loss for agent in plan.agents}
    same(result, plan.replay(result.transcript))
    # Noise that is written into the ledger is noise that was drawn.
    scales = {n: result.ledger[n].entries[0].multiplier for n in NAMES}
    assert scales["north"] > scales["east"] > scales["south"]


def test_names_for_all_alike_are_the_plan_without_names():
    alike = planned(dict.fromkeys(NAMES, "gaussian"), dict.fromkeys(NAMES, 1.0))
    assert alike.fingerprint == planned(epsilon=1.0).fingerprint
    assert str(alike) == str(planned(epsilon=1.0))
    assert "by agent" not in str(alike)


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_mechanisms_may_differ(release):
    plan = mixed(release=release)
    result = plan.run(seed=1, record=True)
    kinds = {n: {e.mechanism for e in result.ledger[n].entries} for n in NAMES}
    assert kinds == {"north": {"Laplace"}, "south": {"Gaussian"}, "east": {"Gaussian"}}
    for name in NAMES:
        spent = result.ledger[name].spent()
        assert spent.epsilon == pytest.approx(plan.agent(name).price.epsilon, rel=1e-9)
    assert plan.agent("north").price.epsilon == pytest.approx(0.5, rel=1e-4)
    assert plan.agent("south").price.epsilon == pytest.approx(2.0, rel=1e-6)
    assert [agent.norm for agent in plan.guarantee.agents] == [1, 2, 2]
    same(result, plan.replay(result.transcript))


def test_noise_falls_by_each_agents_own_factor():
    entries = {n: account.entries for n, account in mixed().run(seed=1).ledger.items()}
    for name, decay in {"north": 0.8, "south": 0.9, "east": 1.0}.items():
        multipliers = [entry.multiplier for entry in entries[name]]
        expected = [multipliers[0] * decay**t for t in range(ROUNDS)]
        assert multipliers == pytest.approx(expected, rel=1e-12)


def test_record_and_replay_charges_each_agent_in_its_own_norm():
    found = dp.check_sensitivity(mixed())
    assert found.passed, str(found)
    assert all(agent.ratio > 0.5 for agent in found.agents)


def test_an_audit_claims_what_the_agent_was_promised():
    """The bounds fail to hold with probability 0.05 at most."""
    plan = planned(KINDS | {"east": dp.Laplace(noise_multiplier=3.0)}, {"north": 0.5, "south": 2.0})
    for name in ("north", "south"):
        found = dp.audit(plan, agent=name, runs=20)
        assert found.claimed == pytest.approx(plan.agent(name).price.epsilon, rel=1e-9)
        assert found.lower <= found.claimed


@pytest.mark.filterwarnings("ignore::dpcvx.RepeatWarning")
def test_a_killed_run_goes_on_under_its_own_budgets(tmp_path):
    plan, path = mixed(), tmp_path / "ledger.jsonl"
    whole = plan.run(ledger=path)
    raw = path.read_bytes()
    for size in ends(raw)[2:-1:3]:
        put(path, cut(raw, size))
        assert plan.run(ledger=path).ledger.to_json() == whole.ledger.to_json()


def test_agents_may_stand_for_their_names():
    model = problem()
    plan = planned("laplace", {agent: BUDGETS[agent.name] for agent in model.agents}, model)
    assert plan.fingerprint == planned("laplace", BUDGETS).fingerprint
    twice = {model.agents[0]: 0.5, **BUDGETS}
    with pytest.raises(dp.ModelError, match="two values for agent 'north'"):
        planned("laplace", twice, model)


def test_what_tells_nothing_has_no_noise_in_the_banner_either():
    x, data = (
        cp.Variable(2),
        [dp.Private(np.zeros(2), name=n, adjacency=dp.Within(0.1)) for n in "ab"],
    )
    costs = cp.sum_squares(x - data[0]), cp.sum_squares(x) + cp.sum(data[1])
    model = dp.Problem([dp.Agent(cp.Minimize(c), name=n) for c, n in zip(costs, "ab", strict=True)])
    plan = planned(dp.Laplace(decay=0.9), {"a": 1.0, "b": 2.0}, model)
    assert [agent.noise for agent in plan.guarantee.agents][1] == "none needed"
    once = planned(dp.Laplace(decay=0.9), {"a": 1.0, "b": 2.0}, model, release="once")
    assert "round before" not in str(once)


@pytest.mark.parametrize("release", ["each_step", "once"])
def test_public_agents_have_no_noise_and_need_no_name(release):
    model = problem(private=NAMES[:2])
    plan = planned("laplace", {"north": 0.5, "south": 2.0}, model, release=release)
    assert plan.agents[2].noise is None
    result = plan.run(seed=1, record=True)
    assert result.ledger["east"].spent().epsilon == 0 and not result.ledger["east"].entries
    same(result, plan.replay(result.transcript))
    alike = planned("laplace", 0.5, model, release=release).run(seed=1)
    assert result.ledger["north"].entries == alike.ledger["north"].entries


def test_noise_for_all_is_that_of_public_agents_too():
    """Turns of public users count as noisy where only the last iterate is seen."""
    model = problem(private=NAMES[:2])
    named = planned(epsilon={"north": 1.0, "south": 1.0}, model=model)
    assert named.fingerprint == planned(epsilon=1.0, model=model).fingerprint
    assert named.agents[2].noise == named.agents[0].noise


@pytest.mark.parametrize("other", [np.float16, np.float32, np.int8, np.longdouble, Fraction])
def test_equal_numbers_of_other_types_are_the_same_noise(other):
    first, second = dp.Gaussian(noise_multiplier=other(17)), dp.Gaussian(noise_multiplier=17.0)
    one = planned({"north": first, "south": second, "east": second}, rounds=500)
    assert one.fingerprint == planned(second, rounds=500).fingerprint
    spent = one.run(seed=1).ledger.spent()
    assert spent == pytest.approx(one.guarantee.epsilon, rel=1e-12)
    budget = planned("laplace", {"north": other(1), "south": 1.0, "east": 1.0})
    assert budget.fingerprint == planned("laplace", 1.0).fingerprint


def test_steps_that_follow_the_budget_follow_the_noisiest_agent():
    paper = dp.LinearizedADMM(penalty=1.0, step=dp.steps.Smooth())
    plan = planned(dp.Laplace(), {"north": 0.5, "south": 2.0, "east": 1.0}, algorithm=paper)
    alike = planned(dp.Laplace(), 0.5, algorithm=paper)
    assert plan.algorithm.step.c == alike.algorithm.step.c < math.inf


# -- what is shown ---------------------------------------------------------------------------------


def test_the_guarantee_lists_the_agents():
    text = " ".join(str(mixed().guarantee).split())
    assert "epsilon 2 for 'south', epsilon 0.588 for 'east' and epsilon 0.5 for 'north'" in text
    assert "Laplace or Gaussian noise of each agent's own; 3 releases per agent" in text
    assert "sum of pure epsilons or exact Gaussian composition" in text
    banner = " ".join(str(mixed()).split())
    assert (
        "one change moves the gradient by at most 0.2 in l1" in banner
        and "noise: Laplace, scale" in banner
    )
    assert "0.8 times that of the round before" in banner


def test_the_odometer_shows_the_agent_that_loses_most(capsys):
    plan = mixed()
    plan.run(seed=1, verbose=True)
    out = capsys.readouterr().out
    for t in range(1, ROUNDS + 1):
        most = max(loss.price(1e-6).epsilon for loss in plan.composed(t).values())
        assert at_most(most) in out


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "match"),
    [
        (
            "gaussian",
            {"north": 1.0, "south": 1.0},
            r"lacks agent 'east'.*epsilon=\{'north': \.\.\., 'south'",
        ),
        ("gaussian", BUDGETS | {"west": 1.0}, "names 'west', which is no agent with private data"),
        ({"north": "laplace"}, 1.0, "mechanism=.* lacks agent 'south'"),
        (KINDS, BUDGETS | {"south": -1.0}, "epsilon=-1.0 is not a privacy budget"),
        (KINDS, BUDGETS | {"east": 1e-3}, "noise of agent 'east' has a fixed level: with it,"),
        (KINDS, 1.0, r"without a level: epsilon=\{'north': \.\.\., 'south': \.\.\.\}"),
        (KINDS, None, "has no privacy budget for agent 'north'"),
        (KINDS, {1: 2.0}, "a key of type int"),
        (KINDS | {"east": None}, 1.0, "gives agent 'east' no noise, but gives noise to others"),
        (KINDS | {"east": "cauchy"}, 1.0, "mechanism='cauchy' is unknown"),
        (None, BUDGETS, "mechanism=None switches the noise off"),
        (dict.fromkeys(NAMES), BUDGETS, "mechanism=None switches the noise off"),
    ],
)
def test_refused(mechanism, epsilon, match):
    with pytest.raises((dp.ModelError, dp.PrivacyError), match=match):
        planned(mechanism, epsilon)


def public():
    x = cp.Variable(name="x")
    return dp.Problem([dp.Agent(cp.Minimize(cp.square(x - 1)), [cp.abs(x) <= 3], name="north")])


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"epsilon": 1, "delta": 1e-6}, "epsilon= and delta="),
        ({"epsilon": {"north": 1.0}, "delta": 0}, "epsilon= and delta="),
        ({"epsilon": 1.0}, "epsilon="),
        ({"delta": 1e-6}, "delta="),
        ({"mechanism": None, "epsilon": 1.0, "delta": 0}, "epsilon= and delta="),
        ({"mechanism": "laplace"}, "mechanism="),
        ({"mechanism": dp.Gaussian(noise_multiplier=3.0), "delta": 1e-6}, "mechanism= and delta="),
        ({"mechanism": {"north": dp.Laplace(release_epsilon=0.1)}}, "mechanism="),
    ],
)
@pytest.mark.parametrize("algorithm", [None, dp.ADMM()])
def test_budget_without_private_data_is_refused(given, names, algorithm):
    words = rf"^No agent has private data, so {names} would protect nothing.*mechanism=None\)"
    for verb in (public().plan, public().solve):
        with pytest.raises(dp.PrivacyError, match=words):
            verb(algorithm, **given)


@pytest.mark.parametrize("verb", ["tune", "compare", "tradeoff"])
def test_search_without_private_data_is_refused(verb):
    budget = {"epsilons": [1.0]} if verb == "tradeoff" else {"epsilon": 1.0}
    with pytest.raises(dp.PrivacyError, match="^No agent has private data"):
        getattr(public(), verb)(**budget, delta=1e-6, time_limit=1.0)


@pytest.mark.parametrize("given", [{}, {"mechanism": None}])
def test_public_model_without_budget_runs_exactly(given):
    result = public().solve(**given)
    assert result.solution["x"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "written"),
    [
        ("auto", 1, "epsilon=1"),
        ("laplace", 0.5, r"epsilon=0\.5"),
        ("gaussian", 1.0, r"epsilon=1\.0"),
        ("auto", BUDGETS, r"epsilon=\{\.\.\.\}"),
        (dp.Laplace(noise_multiplier=50.0), 2.0, r"epsilon=2\.0"),
        (KINDS, {"north": 1.0, "south": 1.0}, r"epsilon=\{\.\.\.\}"),
    ],
)
@pytest.mark.parametrize("algorithm", [None, LINEARISED])
def test_total_budget_without_delta_is_refused(mechanism, epsilon, written, algorithm):
    words = rf"has {written} without delta=.*{written}, delta=0\) .*{written}, delta=1e-6\)"
    with pytest.raises(dp.PrivacyError, match=words):
        planned(mechanism, epsilon, algorithm=algorithm, delta=None)


def test_noise_of_its_own_level_without_a_total_needs_no_delta():
    plan = planned(dp.Laplace(noise_multiplier=50.0), delta=None)
    assert plan.guarantee.delta == 0 and plan.guarantee.epsilon == pytest.approx(ROUNDS / 50.0)


def test_public_agents_have_no_budget():
    with pytest.raises(dp.ModelError, match="'east', which is no agent with private data"):
        planned(epsilon=BUDGETS, model=problem(private=NAMES[:2]))


def test_people_in_several_agents_need_one_noise():
    with pytest.raises(dp.PrivacyError, match="group's joint privacy loss"):
        planned(epsilon=BUDGETS, model=problem(groups=PAIR))
    assert planned(epsilon=BUDGETS, model=problem(groups=[["north"]])).noisy
    assert planned(epsilon=dict.fromkeys(NAMES, 1.0), model=problem(groups=PAIR)).noisy


def test_amplification_needs_one_noise():
    x, y = cp.Variable(2), cp.Variable(2)
    targets = [dp.Private(np.zeros(2), name=n, adjacency=dp.Within(0.1)) for n in "ab"]
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - target)), name=name)
        for name, target in zip("ab", targets, strict=True)
    ]
    model = dp.Problem(
        [*agents, dp.Agent(cp.Minimize(cp.sum_squares(y)), name="g")], coupling=[x == y]
    )
    with pytest.raises(dp.PrivacyError, match="needs the same noise in every round"):
        planned(
            epsilon={"a": 1.0, "b": 2.0},
            model=model,
            algorithm=dp.GradientADMM(),
            observer="last_iterate",
        )
