"""Fingerprints: plans that differ in anything share neither noise nor transcripts nor ledgers."""

import itertools
from functools import cache

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

METHOD = dp.LinearizedADMM(penalty=1.0, step=0.1)


def hinge(margin, groups=(), rounds=3):
    w = cp.Variable(2, name="w")
    agents = []
    for seed, name in enumerate(("north", "south", "east")):
        values = np.random.default_rng(seed).uniform(-0.7, 0.7, size=(4, 2))
        X = dp.Private(values, adjacency=dp.Rows(1.0), name=f"X of {name}")
        cost = cp.sum(cp.pos(margin - X @ w)) + 0.1 * cp.sum_squares(w)
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 2], name=name))
    problem = dp.Problem(agents, groups=groups)
    return problem.plan(
        METHOD, mechanism=dp.Gaussian(noise_multiplier=8.0), rounds=rounds, delta=1e-6
    )


PLANS = {
    "as it is": lambda: hinge(1.0),
    "margin": lambda: hinge(1.1),
    "margin, hardly": lambda: hinge(np.nextafter(1.0, 2.0)),
    "two agents": lambda: hinge(1.0, [["north", "south"]]),
    "two others": lambda: hinge(1.0, [["south", "east"]]),
    "all agents": lambda: hinge(1.0, [["north", "south", "east"]]),
    "rounds": lambda: hinge(1.0, rounds=4),
}
planned = cache(lambda name: PLANS[name]())
pairs = pytest.mark.parametrize(("one", "two"), [*itertools.combinations(PLANS, 2)])


def recorded(plan):
    transcript = plan.run(seed=0, record=True).transcript
    assert transcript is not None
    return transcript


@pairs
def test_plans_that_differ_have_other_fingerprints(one, two):
    assert planned(one).fingerprint != planned(two).fingerprint


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_is_written_again_is_the_same(name):
    assert planned(name).fingerprint == PLANS[name]().fingerprint


@pytest.mark.parametrize("name", [name for name in PLANS if name != "as it is"])
def test_a_transcript_of_one_is_not_replayed_by_the_other(name):
    one, two = planned("as it is"), planned(name)
    for first, second in ((one, two), (two, one)):
        transcript = recorded(first)
        first.replay(transcript)
        with pytest.raises(dp.PrivacyError, match="another plan"):
            second.replay(transcript)


@pytest.mark.parametrize("name", ["margin", "margin, hardly"])
def test_the_noise_of_a_seed_is_not_shared_with_the_other(name):
    one, two = recorded(planned("as it is")), recorded(planned(name))
    noise = [a.value - b.value for a, b in zip(one.releases, two.releases, strict=True)]
    # The exact gradients differ by no more than 4 records of norm one, so all differences would be
    # as small with the same noise. Without it they have a deviation of 22 in each of 18 entries,
    # and all are as small by chance with a probability of 1e-15.
    assert any(np.abs(difference).max() > 4.0 for difference in noise)


@pytest.mark.parametrize("name", ["margin", "margin, hardly"])
def test_a_ledger_of_one_leaves_nothing_to_the_other(name, tmp_path):
    one, two = hinge(1.0), PLANS[name]()
    with pytest.raises(dp.BudgetError):
        two.run(seed=0, ledger=one.run(seed=0).ledger)
    one.run(ledger=tmp_path / "spent")
    with pytest.raises(dp.BudgetError):
        two.run(ledger=tmp_path / "spent")


@pytest.mark.parametrize("name", ["two others", "all agents"])
def test_a_ledger_of_one_group_is_refused_by_another(name):
    spent = PLANS["two agents"]().run(seed=0).ledger
    with pytest.raises(dp.PrivacyError, match="Keep the groups= of the first run"):
        PLANS[name]().run(seed=0, ledger=spent)
