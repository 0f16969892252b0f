"""The utility benchmark: its models, and how answers are judged."""

import functools
from dataclasses import replace
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.run.recourse import decisions
from dpcvx.testing.not_private import own_programs
from tests.benchmarks.utility import search
from tests.benchmarks.utility.by_hand import Setting, clipped
from tests.benchmarks.utility.judge import Judge
from tests.benchmarks.utility.measure import (
    DELTA,
    EPSILONS,
    FIRST,
    SHORT,
    by_hand,
    informed_gaps,
    measure,
    told_of,
)
from tests.benchmarks.utility.models import MODELS, Model
from tests.benchmarks.utility.report import Answer, Row, missed, settings, table
from tests.benchmarks.utility.simulation import Batch, simulate


@pytest.mark.parametrize("name", MODELS)
def test_stand_ins_are_of_the_kind_that_is_declared(name):
    model = MODELS[name]()
    private = {p.name(): p for agent in model.problem.agents for p in agent.private}
    assert set(model.stand_in) == set(private)
    dp.not_private.joint_problem(model.problem, model.stand_in)  # shapes and bounds are checked


@pytest.mark.parametrize("name", ["power flow 14", "portfolio", "EV charging", "covariance"])
def test_no_answer_is_below_the_optimum(name):
    judge = Judge(MODELS[name]())
    assert judge.nothing > 0
    assert (
        abs(judge.at(judge.best)) < 1e-5 * judge.nothing
    )  # the solver's digits, and their root after a projection


def test_a_model_in_another_unit_has_the_same_optimum():
    one, other = (Judge(MODELS[f"median ({unit})"]()) for unit in ("thousand", "euros"))
    assert other.optimum == pytest.approx(1000 * one.optimum, rel=1e-6)
    assert other.nothing == pytest.approx(1000 * one.nothing, rel=1e-5)


def test_an_answer_is_judged_within_all_sets_at_its_mean():
    x = cp.Variable(2, name="x")
    target = dp.Private([3.0, 0.0], name="target", adjacency=dp.Within(1.0))
    one = dp.Agent(cp.Minimize(cp.sum_squares(x - target)), [x[0] <= 2])
    other = dp.Agent(cp.Minimize(cp.sum_squares(x)), [x[1] >= 1])
    judge = Judge(Model(dp.Problem([one, other]), {}))
    # The optimum is (1.5, 1), the start is moved to (0, 1).
    assert judge.optimum == pytest.approx(1.5**2 + 1 + 1.5**2 + 1)
    assert judge.nothing == pytest.approx(9 + 1 + 1 - judge.optimum)
    assert judge.distance == pytest.approx(np.hypot(1.5, 1))
    # Without projection (4, -2) would have another gap than (2, 1).
    assert judge.at({x: [4.0, -2.0]}) == pytest.approx(1 + 1 + 4 + 1 - judge.optimum, rel=1e-6)


# The simulation and the search --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "step", "clip", "falling", "rounds"),
    [
        ("linearized", 3.0, 0.003, False, 6),
        ("mean", 3.0, None, False, 6),
        ("summed", 0.3, 0.003, False, 11),
        ("summed", 0.3, None, True, 11),
    ],
)
def test_simulated_runs_are_those_of_the_package(method, step, clip, falling, rounds):
    model = MODELS["clinics logistic"]()
    records = search.records_of("clinics logistic", model)
    setting = Setting("gaussian", method, step, 0.5, rounds, clip, "average", falling=falling)
    problem = model.problem if clip is None else clipped(model.problem, clip)
    # So little noise that it shows in no digit that is compared.
    plan = problem.plan(
        setting.algorithm, mechanism=dp.Gaussian(noise_multiplier=1e-9), rounds=rounds, delta=1e-6
    )
    result = plan.run(seed=0, verbose=False)
    steps, penalties = np.array([[step]]), np.array([[0.5]])
    limit = np.inf if clip is None else clip
    batch = Batch(method, rounds, steps, penalties, 0.0, False, limit, falling=falling)
    found = simulate(records, batch, 0)
    w = model.problem.variables()[0]
    np.testing.assert_allclose(found["average"][0], result.average[w], rtol=1e-6)
    np.testing.assert_allclose(found["last"][0], result.last[w], rtol=1e-6)
    np.testing.assert_allclose(found["tail"][0], result.tail[w], rtol=1e-6)
    np.testing.assert_allclose(found["weighted"][0], result.weighted[w], rtol=1e-6)
    judge = Judge(model)
    gap = records.objective(found["last"])[0] - judge.optimum
    assert gap == pytest.approx(judge.gap(result.last), rel=1e-6)


@pytest.mark.parametrize("name", ["nonconvex", "ridge", "facility", "SVM", "median (thousand)"])
def test_arrays_of_records_have_the_objective_of_their_model(name):
    model = MODELS[name]()
    records, judge = search.records_of(name, model), Judge(model)
    x = model.problem.variables()
    rng = np.random.default_rng(0)
    flat = records.projected(judge.distance * rng.normal(size=records.size))
    ends = np.cumsum([v.size for v in x])[:-1]
    point = {v: part.reshape(v.shape) for v, part in zip(x, np.split(flat, ends), strict=True)}
    assert records.objective(flat[None])[0] - judge.optimum == pytest.approx(
        judge.at(point), rel=1e-5
    )


class Hand:
    """Runs whose gaps are the seeds they had, or which the model does not allow."""

    def __init__(self, allowed=True):
        self.allowed = allowed

    def gaps(self, model, judge, epsilon, delta, seeds):
        return [float(seed) for seed in seeds] if self.allowed else None


def test_hands_are_what_did_best_in_the_search_judged_on_the_seeds_of_defaults():
    best = Hand()
    assert by_hand([best, Hand()], None, None, 1.0, 3).gaps[1] == FIRST + 1
    assert by_hand([Hand(allowed=False), best], None, None, 1.0, 3).median == FIRST + 1
    assert by_hand([], None, None, 1.0, 3).gaps is None


# What is required ---------------------------------------------------------------------------------


def row(default, tuned=1.0, hand=1.0, nothing=10.0, warned=False, model="some", epsilon=1.0):
    gaps = None if default is None else (0.9 * default, default, 1.1 * default)
    return Row(
        model, epsilon, nothing, Answer(gaps, "", warned), Answer((tuned,) * 3, ""),
        Answer((hand,) * 3, ""),
    )  # fmt: skip


def test_eight_of_ten_models_have_to_hold():
    good, bad = row(1.9), row(2.1)
    assert missed([good] * 8 + [bad] * 2) == []
    (words,) = missed([good] * 7 + [bad] * 3)
    assert words.startswith("default, epsilon 1: 3 of 10 models are beyond 2 times")
    (words,) = missed([row(1.0, tuned=1.4)] * 3 + [good] * 7)
    assert words.startswith("tuned, epsilon 1: 3 of 10 models are beyond 1.3 times")


def test_hands_that_clip_and_hands_that_may_not_are_both_shown():
    clips = replace(row(1.5, hand=0.1), whole=Answer((1.0,) * 3, ""))
    text = table([clips, row(1.5)])
    assert "of 2 models, defaults of 1 are within 2 times the best by hand, of 2 where" in text
    assert missed([clips] * 3 + [row(1.0)] * 7)  # judged by the best of all hands


def test_a_refusal_is_an_infinite_gap_and_budgets_are_judged_apart():
    (words,) = missed([row(1.0)] * 5 + [row(1.0, epsilon=0.1), row(None, epsilon=0.1)])
    assert words.startswith("default, epsilon 0.1: 1 of 2")


def test_hands_can_leave_the_start_as_it_is():
    assert row(12.0, hand=50.0).ratio(Answer((5.0,) * 3, "")) == 0.5


def test_defaults_that_are_worse_than_nothing_have_to_say_so():
    bad = row(12.0, hand=9.0, model="bad")
    assert missed([bad]) == ["bad, epsilon 1: the default is worse than nothing, unannounced"]
    assert missed([row(12.0, hand=9.0, warned=True)]) == []
    assert missed([row(11.0, hand=9.0)]) == []  # within its own noise


def test_noise_that_may_leave_more_than_the_start_is_a_warning():
    weak = "noise alone may leave a gap of up to about 0.2, in units of the objective. Steps that"
    assert told_of(weak, 0.1) and not told_of(weak, 0.3) and not told_of("none", 0.1)


def test_the_networks_have_limits_of_their_own():
    (words,) = missed([row(0.01, tuned=0.01, hand=0.01, model="power flow 14")])
    assert words == "power flow 14: the default's gap is above 0.006"


def test_own_solutions_have_limits_of_their_own():
    good, bad = (Answer((gap,) * 3, "") for gap in (0.0019, 0.0021))
    near = row(0.005, tuned=0.005, hand=0.005, model="power flow 14")
    assert missed([replace(near, own=good)]) == []
    (words,) = missed([replace(near, own=bad)])
    assert words == "power flow 14: the gap with result.recourse is above 0.002"
    assert "2.6 times lower" in table([replace(near, own=good)])


@cache
def network(name):
    model = MODELS[name]()
    return model, Judge(model), model.problem.plan(epsilon=1.0, delta=DELTA)


@cache
def ended(name, seed):
    model, _, plan = network(name)
    return plan.run(seed=seed, data=model.data, verbose=False).solution


LARGE = functools.partial(pytest.param, marks=pytest.mark.study)


@pytest.mark.parametrize(
    ("name", "most"), [("power flow 14", 0.006), LARGE("power flow 118", 0.05)]
)
def test_defaults_on_networks_are_near_the_optimum(name, most):
    """Of 300 and 60 seeds the medians are 0.0048 and 0.0461.

    Those of 40 drawn from these are above what is required in none of 2,000 draws.
    """
    model, judge, _ = network(name)
    runs = [ended(name, seed) for seed in range(40)]
    values = [dp.not_private.objective(model.problem, run, model.data) for run in runs]
    assert 0 < np.median(values) - judge.optimum <= most


@pytest.mark.parametrize(
    ("name", "seeds", "times", "most"),
    [("power flow 14", 80, 2, 0.002), LARGE("power flow 118", 7, 10, 0.005)],
)
def test_own_solutions_gain_on_networks_at_the_same_guarantee(name, seeds, times, most):
    """Both values come from the same runs. Over 500 and 40 seeds the ratios are 3.1 and 35.

    Draws of 80 from the 500 runs miss a requirement with probability 0.008, and resampling these
    500 puts it below 0.04 at 95 % confidence.
    """
    model, judge, plan = network(name)
    runs = [ended(name, seed) for seed in range(seeds)]
    # As `recourse` does, which compiles the agents' own problems for every solution anew.
    exact = own_programs(model.problem, plan.program, model.data)
    again = [decisions(exact, replace(run, vectors=run.common)) for run in runs]
    before, after = (
        [dp.not_private.objective(model.problem, run, model.data) for run in some]
        for some in (runs, again)
    )
    assert dp.not_private.recourse(model.problem, runs[0], model.data) == after[0]
    before, after = (np.median(values) - judge.optimum for values in (before, after))
    assert after <= most
    assert before >= times * after > 0


@pytest.mark.study
def test_expectations_gain_on_a_network_at_the_same_guarantee():
    """The median of 12 runs of the 30 that were looked at is above 0.001 in none of 1000 draws."""
    model, judge, _ = network("power flow 14")
    assert np.median(informed_gaps(model, judge, 1.0, 12)) <= 0.001


def test_expectations_have_limits_of_their_own():
    near = row(0.005, tuned=0.005, hand=0.005, model="power flow 14")
    assert missed([replace(near, informed=Answer((0.0009,) * 3, ""))]) == []
    (words,) = missed([replace(near, informed=Answer((0.0011,) * 3, ""))])
    assert words == "power flow 14: the gap with dp.Prior and result.recourse is above 0.001"


def test_the_table_has_a_line_per_row_and_the_settings_below():
    text = table([row(2.5, model="first"), row(None, model="second")])
    assert ">2" in text and text.count("first") == 2
    assert "inf" in text


@pytest.mark.parametrize("name", ["nonconvex", "EV charging"])
def test_settings_by_hand_are_allowed(name):
    model = MODELS[name]()
    for setting in settings(name, 1.0):
        assert setting.plan(model, 1.0, DELTA).guarantee.epsilon <= 1.0


@pytest.mark.timed
def test_the_requirements_hold():
    """Ten seeds each: a median is then off by a third at times, and eight of ten have room."""
    rows = [measure(name, epsilon, 10, 5.0) for name in SHORT for epsilon in EPSILONS]
    assert missed(rows) == [], table(rows)
