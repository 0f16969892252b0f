"""Searching for settings on stand-in data: what is read, what is tried, what is chosen."""

import time
from contextlib import suppress
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan.request import Request
from dpcvx.problem import planned
from dpcvx.run.data import stand_ins
from dpcvx.tuning.copies import Copies, values_kept
from dpcvx.tuning.ranking import searching
from dpcvx.tuning.search import FRESH, LATE
from dpcvx.tuning.settings import COARSE, SearchRequest, Setting, lengthened, scaled, ways
from dpcvx.tuning.simulation import simulates
from dpcvx.tuning.tune import tune
from tests.algorithms.test_learned_scale import clinic
from tests.tuning.trials import PROXY, balance, counting, filled, network, picked, records, request

GRADIENTS, ONCE = "noisy gradients, Gaussian", "release once, central, Laplace"


def slow(problem, asked, known):
    """A planner whose defaults do not get off the ground."""
    algorithm = asked.algorithm or dp.LinearizedADMM(step=1e-6, penalty=1e6)
    return planned(problem, replace(asked, algorithm=algorithm, rounds=asked.rounds or 3), known)


@cache
def usual():
    return tune(network(), slow, request(time_limit=1000.0), picked(GRADIENTS, ONCE))


def replayed(candidate, proxy=PROXY, verb="problem.tune"):
    """The gaps of a candidate, from runs of its plan on the same copies of the proxy."""
    problem, plan = candidate.plan.problem, candidate.plan
    values = []
    with values_kept(problem):
        copies = Copies(problem, stand_ins(problem, request(proxy=proxy).proxy, verb), verb)
        for k in range(len(candidate.gaps)):
            copy = copies(k)
            result = plan.run(data=copy.proxy, seed=FRESH + k, verbose=False)
            values.append(copy.gap(getattr(result, plan.reported)))
            returned = dp.not_private.objective(problem, result.solution, copy.proxy)
            assert returned - copy.judge.optimum == pytest.approx(values[-1], rel=1e-6, abs=1e-9)
    return tuple(values)


# What is read, and what is left behind


def test_no_private_data_are_read_and_no_run_is_counted():
    found = usual()
    assert len(found.candidates) == 3 and all(c.gaps for c in found.candidates)
    assert found.plan().problem.status is None
    with pytest.raises(dp.DataError, match="'load 0' raised AssertionError"):
        found.plan().run(seed=0)


def test_stand_ins_may_be_declared_with_the_data():
    problem = network(likes=[PROXY["load 0"], PROXY["load 1"]])
    declared = tune(problem, slow, request(proxy=None), picked(ONCE))
    given = tune(network(), slow, request(), picked(ONCE))
    assert [c.gaps for c in declared.candidates] == [c.gaps for c in given.candidates]
    with pytest.raises(dp.ModelError, match="'load 0' has no proxy data, and problem.tune may"):
        network().tune(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("moment", [3, 40, 200])
def test_an_interrupt_leaves_everything_as_it_was(moment):
    problem = network()
    (x,) = problem.variables()
    x.value = np.array([0.1, 0.2])
    clock = counting(1.0)

    def interrupted():
        if clock() > moment:
            raise KeyboardInterrupt
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        tune(problem, slow, request(clock=interrupted), picked(GRADIENTS))
    assert np.array_equal(x.value, [0.1, 0.2]) and problem.status is None


# What is chosen


def test_a_bad_default_gives_way_to_what_is_better_by_far():
    found = usual()
    by_name = {c.name: c for c in found.candidates}
    assert found.chosen is by_name[ONCE] and found.worthwhile
    assert found.chosen.gap < 0.1 * by_name["default"].gap
    assert found.plan() is found.chosen.plan
    assert by_name[GRADIENTS].gap < by_name["default"].gap
    assert [c.gap for c in found.candidates] == sorted(c.gap for c in found.candidates)
    assert "better than the default by more than the noise of runs" in found.verdict


def test_gaps_are_those_of_the_plan_and_of_the_iterate_that_it_reports():
    for candidate in usual().candidates:
        assert candidate.gaps == pytest.approx(replayed(candidate), rel=1e-9, abs=1e-12)


def test_every_plan_spends_the_same_budget():
    for candidate in usual().candidates:
        stated = candidate.plan.guarantee
        assert (stated.kind, stated.delta) == ("worst-case", 1e-6)
        assert stated.epsilon == pytest.approx(1.0, rel=1e-4) and stated.epsilon <= 1.0


def test_budgets_may_be_each_agents_own():
    problem = network()
    budgets = {problem.agents[0]: 0.5, "a1": 20.0}
    found = tune(problem, slow, request(epsilon=budgets), picked(ONCE))
    assert found.chosen.name == ONCE and found.epsilon == {"a0": 0.5, "a1": 20.0}
    for candidate in found.candidates:
        assert [a.budget for a in candidate.plan.agents] == pytest.approx([0.5, 20.0], rel=1e-4)
    head = " ".join(str(found).split())
    assert "configurations at (0.5 to 20, 1e-6) in total, each agent its own" in head
    assert "at (0.5 to 20, 1e-6);" in repr(found)


@pytest.mark.parametrize("verb", ["tune", "compare"])
@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        ({"a0": 1.0}, "lacks agent 'a1'"),
        ({"a0": 1.0, "b": 1.0}, "names 'b', which is no agent"),
        ({"a0": 1.0, "a1": -1.0}, "epsilon=-1.0 is not a privacy budget"),
    ],
)
def test_budgets_that_fit_no_agents_are_refused_at_once(verb, epsilon, message):
    with pytest.raises(dp.DpcvxError, match=message):
        getattr(network(), verb)(epsilon=epsilon, delta=1e-6, proxy=PROXY)


def test_step_and_penalty_are_moved_as_far_as_it_helps():
    def far_off(problem, asked, known):
        if asked.algorithm == dp.LinearizedADMM():  # as chosen: a thirtieth of what is good
            asked = replace(asked, algorithm=dp.LinearizedADMM(step=0.01, penalty=100.0))
        return slow(problem, asked, known)

    found = tune(network(), far_off, request(time_limit=1200.0), picked(GRADIENTS))
    (tuned,) = (c for c in found.candidates if c.name == GRADIENTS)
    assert tuned.plan.algorithm.step.step >= 0.03 and tuned.plan.algorithm.penalty.penalty <= 34


def test_records_are_clipped_where_that_helps():
    stand_in = {"X": np.tile([[0.6, 0.8], [0.8, -0.6]], (20, 1)), "y": np.full(40, 0.5)}
    problem = records()
    asked = request(proxy=stand_in, epsilon={problem.agents[0]: 20.0}, time_limit=1000.0)
    found = tune(problem, slow, asked, picked(GRADIENTS))
    (agent,) = found.plan().problem.agents
    assert agent.clip_norm is not None and found.plan().agents[0].program.clip == agent.clip_norm
    # The budget is the agent's own, whose clipped copy has it too.
    assert found.plan().agents[0].budget == pytest.approx(20.0, rel=1e-4)
    assert "its plan.problem has agents with clip_norm=" in found.verdict


def test_clips_far_below_the_bound_are_found_in_few_runs():
    stand_in = {"X": np.tile([[0.6, 0.8], [0.8, -0.6]], (20, 1)), "y": np.full(40, 0.5)}
    bound = 2 * (np.hypot(2, 2) + 30)  # contributions near the start are 1
    asked = request(proxy=stand_in, time_limit=4000.0)
    found = tune(records(), slow, asked, picked("noisy sums of gradients, Gaussian"))
    (agent,) = found.plan().problem.agents
    assert agent.clip_norm is not None and agent.clip_norm < 0.03 * bound
    assert found.chosen.gap < 0.5 * found.start


@pytest.mark.parametrize("clip", COARSE)
def test_steps_are_as_many_times_as_long_as_a_clip_is_small(clip):
    whole = dp.LinearizedADMM(step=0.05, penalty=20.0)
    chosen = dp.LinearizedADMM(step=0.3, penalty=7.0)
    (way,) = picked(GRADIENTS)
    setting = lengthened(Setting(way, 30, clip=clip), chosen, whole)
    moved = scaled(chosen, setting)
    assert abs(np.log(moved.step * clip / whole.step)) <= np.log(3) / 2 + 1e-9
    assert abs(np.log(moved.penalty / clip / whole.penalty)) <= np.log(3) / 2 + 1e-9
    assert setting.clip == clip


def test_a_tie_goes_to_the_default():
    only = tune(network(), slow, request(), [])
    assert only.plan() is only.chosen.plan and only.chosen.name == "default"
    assert "The default stays: nothing tried is better" in only.verdict

    def exact(problem, asked, known):  # the same answers by other means
        usual = Request(algorithm=dp.ADMM(penalty=2.0), rounds=30, mechanism="laplace")
        return planned(problem, replace(filled(asked, usual), release="once"), known)

    alike = tune(network(), exact, request(), picked(ONCE))
    assert len(alike.candidates) == 2 and alike.chosen.name == "default"


def test_answers_that_are_worth_nothing_are_called_so():
    found = tune(network(), slow, request(epsilon=1e-4), picked(GRADIENTS))
    assert not found.worthwhile and repr(found).endswith("recommended: none>")
    assert "No plan is recommended: solutions are no better than the initial point" in found.verdict
    assert not any(line.startswith("*") for line in str(found).splitlines())


def test_a_stand_in_whose_optimum_is_the_start_is_warned_about():
    still = {"load 0": np.zeros(2), "load 1": np.zeros(2)}
    with pytest.warns(
        UserWarning, match="The initial point is already the optimum for the"
    ) as caught:
        found = tune(network(), slow, request(proxy=still), [])
    assert caught[0].filename == __file__
    assert "The initial point is already the optimum" in found.verdict


# Time


def test_no_run_in_time_leaves_the_default_and_says_so():
    found = tune(network(), slow, request(time_limit=1.0, clock=counting(2.0)), picked(ONCE))
    assert [c.name for c in found.candidates] == ["default"] and found.chosen.gaps == ()
    assert found.verdict.startswith("No run ended in time, so this is the default plan, untried.")
    assert not found.worthwhile
    for said in (str(found), found._repr_html_()):
        assert "no run ended in time" in said and "nan" not in said


def test_the_time_is_kept_and_ways_that_take_too_long_are_left_out():
    clock = counting(1.0)
    found = tune(network(), slow, request(time_limit=300.0, clock=clock), picked(GRADIENTS, ONCE))
    assert 150 <= clock() <= 320
    assert found.chosen.gaps and found.refused[GRADIENTS].startswith("One run takes more than 9 s")


def test_clips_are_tried_where_only_runs_of_few_rounds_are_short_enough():
    """The way's first setting has 30 rounds, which is too many; the default's 3 are not."""
    stand_in = {"X": np.tile([[0.6, 0.8], [0.8, -0.6]], (20, 1)), "y": np.full(40, 0.5)}
    clock = counting(1.0)
    asked = request(proxy=stand_in, time_limit=300.0, clock=clock)
    found = tune(records(), slow, asked, picked(GRADIENTS))
    assert [c.name for c in found.candidates if c.name != "default"] == [GRADIENTS]
    assert found.refused[GRADIENTS].startswith("One run takes more than")
    assert found.chosen.gaps and clock() <= 330


def test_ways_without_a_run_in_time_are_left_out_with_the_reason():
    found = tune(network(), slow, request(time_limit=12.0), picked(GRADIENTS, ONCE))
    assert LATE in found.refused.values()
    late = sum(why == LATE or why.startswith("One run takes") for why in found.refused.values())
    said = f"Skipped {len(found.refused)} configurations ({late} hit the time limit)"
    assert said in str(found) and 0 < late


# Which methods are tried


def test_every_method_of_the_package_is_tried():
    tried = {type(way.algorithm) for way in ways(dp.SecretSharing(1.0))}
    exported = {getattr(dp, name) for name in dp.__all__}
    methods = {m for m in exported if isinstance(m, type) and issubclass(m, dp.Algorithm)}
    assert methods - {dp.Algorithm} == tried
    assert len({way.name for way in ways(dp.SecretSharing(1.0))}) == len(ways()) + 4


def test_a_learned_scale_is_tried_under_sums_with_its_own_rounds_and_no_clip():
    """Its runs are cut to three steps. Labels are declared 30 times too wide."""
    (way,) = (way for way in ways(dp.SecretSharing(100.0), 2) if way.scale is not None)
    assert way.algorithm.max_colluders == 2 and not simulates(way)
    asked, proxy = [], {}
    for k in range(4):
        proxy |= {f"X{k}": np.full((50, 3), 0.5), f"y{k}": np.full(50, 2.0)}

    def shortened(problem, request, known):
        if request.algorithm is not None and request.mechanism is not None:
            asked.append((request.rounds, {agent.clip_norm for agent in problem.agents}))
            request = replace(request, rounds=16)
        return planned(problem, request, known)

    problem = clinic(4, records=50, width=30.0)
    with searching(problem, shortened, request(proxy=proxy, time_limit=4000.0)) as search:
        (tried, *_) = search.best_of([way], 1, 0.05)
    assert asked == [(163, {None})] and tried.runs and not search.refused
    assert tried.name == way.name and tried.plan.algorithm.scale is not None
    assert tried.plan.guarantee.max_colluders == 2


def test_tune_tries_the_method_that_a_refusal_of_nonconvex_objectives_names():
    x, agents = cp.Variable((2, 2), PSD=True, name="x"), []
    for k in range(2):
        d = dp.Private(np.eye(2), name=f"d{k}", adjacency=dp.Within(0.1, norm=2))
        bent = -0.05 * cp.sum_squares(x) - 2 * cp.sum(cp.multiply(d, x)) - cp.log_det(x + np.eye(2))
        agents.append(dp.Agent(cp.Minimize(bent), [cp.abs(x) <= 2], name=f"a{k}"))
    problem, fits = dp.Problem(agents), set()
    for way in ways():
        with suppress(dp.DpcvxError):
            problem.plan(way.algorithm, epsilon=1.0, delta=1e-6, release=way.release, rounds=2)
            fits.add(type(way.algorithm))
    with pytest.raises(dp.ModelError, match=r"name a method .* such as dp\.FederatedAveraging\(\)"):
        problem.plan(epsilon=1.0, delta=1e-6)
    assert fits == {
        dp.FederatedAveraging, dp.FederatedGradient, dp.DecentralizedGradient, dp.PrimalDual,
    }  # fmt: skip


def test_noise_is_split_under_sums_where_that_is_asked_for():
    trusted = [way for way in ways(dp.SecretSharing(1.0), 2) if way not in ways()]
    assert [way.algorithm.max_colluders for way in trusted] == [2, 2, 2, 2]
    x = cp.Variable(3, name="x")
    agents = []
    for k in range(24):
        d = dp.Private(np.full(3, k / 24), name=f"d{k}", adjacency=dp.Within(1.0, norm=2))
        agents.append(dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [cp.abs(x) <= 3], name=f"a{k}"))
    problem = dp.Problem(agents)
    proxy = {f"d{k}": np.full(3, k / 32) for k in range(24)}
    central = "noise split, one sum"
    own = [way for way in ways(dp.SecretSharing(100.0)) if way.name == central]
    found = tune(problem, planned, request(proxy=proxy), own)
    best = found.candidates[0]
    assert best.name == central and best.plan.guarantee.max_colluders == 1
    assert "any 1 other agent together with the server" in " ".join(str(found).split())
    with pytest.raises(dp.ModelError, match="sharing=3 must be"):
        problem.tune(epsilon=1.0, delta=1e-6, proxy=proxy, sharing=3)
    with pytest.raises(dp.ModelError, match="max_colluders=0 must be|colluders must be"):
        problem.compare(epsilon=1.0, delta=1e-6, proxy=proxy, max_colluders=0)


@pytest.mark.parametrize(
    ("problem", "proxy", "name"),
    [
        (balance, {"load 0": 0.3, "load 1": 0.4}, "noisy coupled steps, Gaussian"),
        (network, PROXY, "noisy gradients over a network, Gaussian"),
    ],
)
def test_methods_for_couplings_and_networks_are_taken_where_they_fit(problem, proxy, name):
    way = picked(name)[0]

    def fixed(problem, asked, known):
        usual = Request(algorithm=way.algorithm, rounds=2)
        asked = filled(replace(asked, rounds=1 if asked.algorithm else None), usual)
        return planned(problem, asked, known)

    found = tune(problem(), fixed, request(proxy=proxy), [way])
    assert name in {candidate.name for candidate in found.candidates} and found.refused == {}


def test_what_the_plan_chooses_by_itself_is_varied_too():
    def chosen(problem, asked, known):  # 3 rounds, a step that is a ninth of a good one
        if asked.algorithm in (None, dp.LinearizedADMM()):
            asked = replace(asked, algorithm=dp.LinearizedADMM(step=0.05, penalty=20.0))
        return planned(problem, filled(asked, Request(rounds=3, mechanism="gaussian")), known)

    found = tune(network(), chosen, request(epsilon=50.0, time_limit=500.0), picked(GRADIENTS))
    # Runs of 30 rounds, with which the way begins, take too long here.
    assert "One run takes more than 15 s" in found.refused[GRADIENTS]
    assert found.chosen.name == GRADIENTS and found.chosen.plan.rounds in (1, 3, 10)
    assert found.chosen.plan.algorithm.step.step > 0.1


# What is expected


FORECAST = {name: dp.Prior(load + 0.004, 0.005) for name, load in PROXY.items()}


def test_expectations_are_used_where_the_data_leave_once():
    found = tune(
        network(), slow, request(prior=FORECAST, time_limit=2000.0), picked(GRADIENTS, ONCE)
    )
    for candidate in found.candidates:
        assert candidate.plan.published == any(agent.expects for agent in candidate.plan.agents)
    assert {candidate.plan.published for candidate in found.candidates} == {True, False}


def test_stand_ins_that_are_what_is_expected_tell_nothing():
    expected = {"load 1": dp.Prior(PROXY["load 1"], 0.1)}
    with pytest.raises(dp.ModelError, match="'load 1' is exactly what prior= says"):
        tune(network(), planned, request(prior=expected), picked(ONCE))


def test_time_is_counted_by_the_processor():
    """Beside other work, a clock on the wall would leave searches without candidates."""
    plain = request(clock=SearchRequest.clock)
    before, wall = plain.clock(), time.perf_counter()
    time.sleep(0.2)
    assert plain.clock() - before < 0.1 < time.perf_counter() - wall
