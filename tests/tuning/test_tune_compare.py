"""Comparing mechanisms, each with its best settings, on stand-in data."""

from functools import cache

import pytest

import dpcvx as dp
from dpcvx._words import plural
from dpcvx.plan.request import Request
from dpcvx.problem import planned
from dpcvx.tuning.search import LATE
from dpcvx.tuning.tune import compare
from tests.tuning.trials import PROXY, filled, network, picked, request

NAMES = (
    "release once, central, Laplace",
    "release once, central, Gaussian",
    "noisy gradients, Gaussian",
    "noisy exact steps, Gaussian",
)


def compared(problem=None, names=NAMES, runs=3, **given):
    asked = request("problem.compare", **{"time_limit": 1500.0} | given)
    return compare(problem or network(), planned, asked, picked(*names), runs)


@cache
def usual():
    return compared()


def test_every_mechanism_that_fits_has_a_row_and_the_default_one():
    rows = {c.name for c in usual().candidates}
    # The default is the first of them, and equal plans have one row.
    assert rows | usual().refused.keys() == {"default", *NAMES[1:]} and len(rows) >= 2
    by_name = {c.name: c for c in usual().candidates}
    assert by_name["default"].settings == "OneShot, Laplace noise once, 1 round"


def test_laplace_noise_on_what_leaves_once_is_tried_and_better():
    gaps = {c.plan.agents[0].noise.mechanism: c.gap for c in usual().candidates if c.plan.published}
    assert gaps[dp.Laplace()] < gaps[dp.Gaussian()]


def test_the_recommendation_is_the_default_unless_one_is_clearly_better():
    assert usual().recommended.name == "default"
    assert usual().recommended.plan.run(data=PROXY, seed=0).reported == "last"


def test_no_mechanism_is_recommended_that_is_worse_than_doing_nothing():
    found = compared(names=NAMES[:1], epsilon=1e-4)
    with pytest.raises(dp.ModelError, match="No mechanism can be recommended. .*initial point"):
        _ = found.recommended


def test_pure_epsilon_leaves_laplace_noise_and_every_reason_is_given_whole():
    found = compared(names=NAMES[:2], delta=0.0)
    reason = found.refused[NAMES[1]]
    assert reason.startswith("Gaussian noise has no guarantee at delta=0") and reason.endswith(".")
    assert "Skipped 1 configuration: print the mapping .refused" in " ".join(str(found).split())


def test_what_ran_out_of_time_is_listed_with_the_reason():
    found = compared(names=NAMES, time_limit=12.0)
    late = [name for name in NAMES if found.refused.get(name) == LATE]
    assert late and found.refused.keys() | {c.name for c in found.candidates} >= {*NAMES[1:]}
    said = f"Skipped {plural(len(found.refused), 'configuration')} ({len(late)} hit the time limit)"
    assert said in " ".join(str(found).split())


def test_the_default_and_the_best_run_on_until_one_is_clearly_better():
    def louder(problem, asked, known):
        usual = Request(algorithm=dp.OneShot(), mechanism="gaussian", release="once")
        return planned(problem, filled(asked, usual), known)

    # Of three runs each, no rank test at this level tells anything.
    found = compare(network(), louder, request("problem.compare"), picked(NAMES[0]), 3)
    assert found.recommended.name == NAMES[0]
    assert {len(c.gaps) for c in found.candidates} <= {6, 12}
    assert "better than the default by more than the noise of runs" in found.verdict


@pytest.mark.parametrize("runs", [0, 1.5, None])
def test_the_number_of_runs_is_checked(runs):
    with pytest.raises(dp.ModelError, match="runs="):
        network().compare(epsilon=1.0, delta=1e-6, proxy=PROXY, runs=runs)


def test_comparisons_take_expectations():
    problem = network(likes=[PROXY["load 0"], PROXY["load 1"]])
    expected = {name: dp.Prior(load + 0.01, 0.02) for name, load in PROXY.items()}
    found = problem.compare(epsilon=0.1, delta=1e-6, time_limit=3.0, prior=expected, verbose=False)
    once = [c.plan for c in found.candidates if c.plan.published]
    assert once and all(agent.expects for plan in once for agent in plan.agents)
