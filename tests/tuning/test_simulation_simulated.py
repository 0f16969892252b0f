"""Settings searched by simulations: what is looked at, and what is followed."""

import numpy as np
import pytest

import dpcvx as dp
from dpcvx.plan.request import Request
from dpcvx.problem import planned
from dpcvx.tuning.search import BEHIND
from dpcvx.tuning.settings import OutOfTime, PlanTrial, scaled, surely_lower, ways
from dpcvx.tuning.simulation import best_simulated, simulates
from dpcvx.tuning.tune import tune
from tests.tuning.trials import picked, records, request

SUMMED = "noisy sums of gradients, Gaussian"
STAND_IN = {"X": np.tile([[0.6, 0.8], [0.8, -0.6]], (20, 1)), "y": np.full(40, 0.5)}


class Bowl:
    """In place of simulations: values that are lowest for one length of steps, rounds and clip."""

    def __init__(self, step, rounds, clip):
        self.target = np.log([step, rounds, clip])
        self.made, self.seeds = 0, set()

    def __call__(self, plan, algorithms, runs, seed, pause):
        pause()
        self.made += len(algorithms)
        self.seeds.add((runs, seed))
        found = []
        for one in algorithms:
            length = one.step.step if isinstance(one.step, dp.steps.Constant) else 1e6
            clip = plan.agents[0].program.clip or BOUND
            away = ((np.log([length, plan.rounds, clip / BOUND]) - self.target) ** 2).sum()
            found.append({"last": np.full(runs, away), "average": np.full(runs, away + 1)})
        return found


def settled(problem, setting):
    """A plan with a setting's numbers."""
    if setting.clip < 1:
        problem = records(clip=setting.clip * BOUND)
    asked = Request(
        algorithm=setting.way.algorithm,
        mechanism=dp.Gaussian() if setting.way.mechanism == "gaussian" else dp.Laplace(),
        rounds=setting.rounds,
        epsilon=1.0,
        delta=1e-6,
        release="each_step",
    )
    return PlanTrial(setting.way.name, planned(problem, asked), setting)


BOUND = records(clip=None).plan(
    dp.FederatedGradient(0.1), mechanism=dp.Gaussian(noise_multiplier=1.0), rounds=1, delta=1e-6,
    release="each_step",
).agents[0].bound / 2  # fmt: skip


def searched(simulation, limit=10**9, name=SUMMED):
    problem, entries, calls = records(), {}, []

    def known(setting):
        if setting not in entries:
            entries[setting] = settled(problem, setting)
        return entries[setting]

    def ends(part):
        def pause():
            calls.append(part)
            if len(calls) > part * limit:
                raise OutOfTime

        return pause

    (way,) = picked(name)
    return best_simulated(way, known, lambda entry: True, lambda v: v, simulation, 5, ends)


def test_the_lowest_setting_is_found():
    bowl = Bowl(step=0.02, rounds=100, clip=0.03)
    found = searched(bowl)
    assert found.setting.rounds == 100 and found.setting.clip == 0.03
    assert abs(np.log(found.plan.algorithm.step.step / 0.02)) <= 0.25 * np.log(3) + 0.02
    assert found.best == "last" and found.name == SUMMED
    assert scaled(settled(records(), found.setting.plain).plan.algorithm, found.setting).step == (
        found.plan.algorithm.step
    )


def test_the_best_are_compared_under_other_noise():
    bowl = Bowl(step=0.02, rounds=30, clip=0.1)
    searched(bowl)
    assert {seed for runs, seed in bowl.seeds if runs < 256} == {5}
    assert {seed for runs, seed in bowl.seeds if runs == 256} == {6}


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_what_is_found_in_time_stays(limit):
    bowl = Bowl(step=0.02, rounds=10, clip=0.1)
    found = searched(bowl, limit)
    assert (found is None) == (bowl.made == 0)
    assert bowl.made < 200


def test_other_ways_are_not_simulated():
    named = {way.name for way in ways(dp.SecretSharing(limit=1.0)) if simulates(way)}
    assert named == {SUMMED, "noisy sums of gradients, Laplace"}


def test_tuning_simulates_first_and_compares_by_runs():
    asked = request(proxy=STAND_IN, time_limit=4000.0, seed=1)
    other = "noisy mean gradient, Laplace"
    tuned = tune(records(), planned, asked, picked(SUMMED, f"{SUMMED[:24]} Laplace", other))
    default, best = (
        next(one for one in tuned.candidates if (one.name == "default") == own)
        for own in (True, False)
    )
    # One way is left, whose gaps are those of at most ten runs, not of hundreds of simulations.
    assert len(tuned.candidates) == 2 and 3 <= len(best.gaps) <= 10
    assert tuned.chosen is best and best.gap < 0.6 * default.gap
    assert tuned.refused[other].startswith(BEHIND)


def test_few_lucky_runs_do_not_pass_many():
    many, few = list(np.linspace(1, 2, 256)), [1.1, 1.2]
    assert not surely_lower(few, many, 0.01) and surely_lower([1.01] * 8, many, 0.01)
