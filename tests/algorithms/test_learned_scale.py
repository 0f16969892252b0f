"""The scale of records, learned from noisy answers: what is asked, and the steps that follow."""

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpcvx as dp
from dpcvx.algorithms.learned_scale import ROUNDS, Scale, Units
from dpcvx.privacy.accounting import gaussian_multiplier

RULE = dp.LearnScale(noise=0.01, steps=150)


def scale(rule=RULE, records=1000, **known):
    return replace(Scale(rule, 4, records, (2.0, 0.5), Units(0.1), (0.0, 0.0)), **known)


def clinic(count=1, records=400, width=1.0, relation="replace_one", **arguments):
    """Counts by three findings, with labels declared up to `width` times what they are."""
    rng, w = np.random.default_rng(3), cp.Variable(3, name="w")
    agents = []
    for k in range(count):
        X = rng.uniform(-1, 1, (records, 3)) / math.sqrt(3)
        y = np.minimum(rng.poisson(np.exp(X @ [0.5, 1.2, -1.5])), 12).astype(float)
        rows = {"records": f"visit of {k}", "relation": relation}
        scores = dp.Private(X, name=f"X{k}", adjacency=dp.Rows(1.0, **rows)) @ w
        adjacency = dp.Rows(12.0 * width, **rows)
        visits = dp.Private(y, name=f"y{k}", adjacency=adjacency, nonneg=True)
        cost = cp.sum(cp.exp(scores) - cp.multiply(visits, scores)) / records
        agents.append(dp.Agent(cp.Minimize(cost), [cp.norm(w) <= 4], name=f"clinic {k}"))
    return dp.Problem(agents, **arguments)


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), low=st.floats(-9, -1), high=st.floats(0, 1))
@pytest.mark.parametrize("first", [1, 8], ids=["curvature", "contribution"])
def test_limits_are_quantiles_where_nothing_is_noisy(first, seed, low, high):
    """Within three quarters of an octave: six counts leave two half octaves of 62 at most.

    A limit of curvature may be one more half octave too high, which only shortens steps.
    """
    values = 2.0 ** np.random.default_rng(seed).uniform(low, high - 1, size=1000)
    now = scale(limit=0.1, mean=1.0, largest=1.0)
    for t in range(first, first + 6):
        what, limit = now.asked(t)
        assert what == ("bends" if first == 1 else "reaches")
        now = now.learned(t, np.array([(values > limit).sum()], dtype=float))
    part = 0.1 if first == 1 else RULE.cut
    found = now.limit if first == 1 else now.multiple
    expected = np.quantile(values, 1 - part)
    assert -0.75 <= math.log2(found / expected) <= (1.25 if first == 1 else 0.75)
    assert np.array_equal(now.odds, scale().odds)  # for the next one


@pytest.mark.parametrize(("first", "most"), [(1, 0.05), (8, 0.03)], ids=["curvature", "reach"])
def test_one_noisy_count_does_not_lose_the_scale(first, most):
    """A limit that is 4 octaves too low lengthens steps 16 times.

    With noise of 0.55 and 0.39 of all records in a count, 0.03 and 0.02 of 1,000 draws end there.
    A search that halves its range after each count loses 0.32 and 0.19. The seed is fixed.
    """
    rng = np.random.default_rng(0)
    rule = dp.LearnScale(noise=0.09, steps=150)
    spread = rule.noise / (2 * math.sqrt(4 * rule.parts[first - 1]))
    lost = 0
    for _ in range(300):
        values = 2.0 ** rng.normal(-3, 1, size=300)
        now = scale(rule, records=300, limit=0.1, mean=1.0, largest=1.0)
        for t in range(first, first + 6):
            above = (values > now.asked(t)[1]).sum() + 300 * spread * rng.normal()
            now = now.learned(t, np.array([above]))
        limit = now.limit if first == 1 else now.multiple
        lost += limit < np.median(values) / 16
    assert lost <= most * 300


def test_questions_come_in_their_order_with_units_of_each_agent():
    now = scale(limit=0.25, multiple=0.5)
    asked = [now.asked(t)[0] for t in range(1, ROUNDS + 3)]
    assert asked == ["bends"] * 6 + ["curvature"] + ["reaches"] * 6 + ["gradient"] * 2
    place = np.arange(4)
    one, two = (now.question(7, agent, np.zeros(4), place, 4) for agent in (0, 1))
    assert (one.limit, one.unit) == (0.5, 1.0) and (two.limit, two.unit) == (0.125, 0.25)
    assert [now.question(t, 1, np.zeros(4), place, 4).answers for t in (1, 7, 8, 14)] == [
        1,
        2,
        1,
        5,
    ]
    assert now.question(20, 1, np.zeros(4), place, 4).unit == now.units.beside


def test_curvatures_come_back_in_their_own_unit_and_stay_in_range():
    now = replace(scale(limit=0.25), public=(0.1, 0.2))
    after = now.learned(7, np.array([800.0, 300.0]))
    assert (after.mean, after.largest) == pytest.approx((800 * 0.5 / 4 + 0.1, 300 * 0.5 + 0.2))
    loud = replace(now, rule=replace(RULE, noise=0.09)).learned(7, np.array([-50.0, 0.0]))
    assert loud.mean > 4 * now.learned(7, np.array([-50.0, 0.0])).mean
    lost = now.learned(7, np.array([-50.0, 1e9]))
    assert 0 < lost.mean <= lost.largest <= 1000 * 0.5 + 0.2


@settings(max_examples=50)
@given(
    mean=st.floats(1e-3, 1e3),
    uneven=st.floats(1, 1e3),
    noise=st.floats(1e-4, 0.1),
    steps=st.integers(1, 300),
)
def test_steps_lead_as_far_as_free_ones_where_curvature_lets_them(mean, uneven, noise, steps):
    rule = dp.LearnScale(noise=noise, steps=steps)
    now = scale(rule, mean=mean, largest=mean * uneven)
    found = np.array([now.step(ROUNDS + t) for t in range(1, steps + 1)])
    falls = min(1.0, 200 * noise)
    free = 1 / (mean * np.sqrt(np.maximum(1.0, np.arange(1, rule.reach + 1) * falls)))
    assert (found <= 1.5 / now.largest * (1 + 1e-12)).all() and (np.diff(found) <= 1e-12).all()
    if found.min() < 1.5 / now.largest:
        assert free.sum() * (1 - 1e-6) <= found.sum() <= 1.3 * free.sum()


def test_clip_follows_what_exceeds_it():
    quiet = replace(RULE, noise=0.005)
    now = scale(quiet, first=0.5, multiple=0.5)
    total = np.array([1.0, 2.0, 3.0, 4.0, 0.1 * 900])
    gradient, after = now.stepped(total)
    assert (gradient == 0.5 * total[:4]).all()
    assert after.multiple == pytest.approx(0.5 * math.exp(0.3 * (0.9 - quiet.cut)))
    assert after.exceeded == pytest.approx(0.9)
    for rule, expected in ((replace(quiet, most=0.4), 0.4), (replace(quiet, least=0.7), 0.7)):
        assert replace(now, rule=rule).stepped(total)[1].multiple == expected
    for count, times in ((900, 8.0), (0, 1 / 30)):
        far = now
        for _ in range(200):
            far = far.stepped(np.array([1.0, 2.0, 3.0, 4.0, 0.1 * count]))[1]
        assert far.multiple == pytest.approx(0.5 * times)


@pytest.mark.parametrize(("noise", "lower"), [(0.01, 1.0), (0.04, 1.0), (0.09, 0.4 / 0.565)])
def test_first_clip_is_lower_where_counts_are_too_loud_to_follow(noise, lower):
    """All odds are in one cell, so that the last count tells nothing: its middle is the limit."""
    odds = np.full(63, 1e-300)
    odds[10] = 1.0
    now = scale(dp.LearnScale(noise=noise, steps=150), odds=odds, mean=1.0, largest=1.0)
    after = now.learned(ROUNDS, np.array([300.0]))
    assert after.first == after.multiple == pytest.approx(lower * 2 ** (-9.5 / 2))


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_clip_hardly_moves_by_noise_of_counts(noise):
    """Noise of a count as it is in a plan, no record beyond the wanted part; the seed is fixed."""
    rule, rng = dp.LearnScale(noise=noise, steps=150), np.random.default_rng(0)
    spread = noise / (2 * math.sqrt(4 * 2 / 93 * 0.95 / 150))
    now, start = scale(rule, first=0.5, multiple=0.5), np.ones(4)
    moves = []
    for _ in range(400):
        part = rule.cut + spread * rng.normal()
        after = now.stepped(np.append(start, 0.1 * 1000 * part))[1]
        moves.append(math.log(after.multiple / now.multiple))
    assert np.sqrt(np.mean(np.square(moves))) < 0.053
    quiet = scale(replace(rule, noise=1e-4), first=0.5, multiple=0.5)
    moved = quiet.stepped(np.append(start, 0.1 * 1000 * 0.9))[1].multiple
    assert moved == pytest.approx(0.5 * math.exp(0.3 * (0.9 - quiet.rule.cut)))


@pytest.mark.parametrize(
    ("noise", "sought", "cut"),
    [(0.01, 0.14, 0.14), (0.03, 0.4, 0.4), (0.06, 0.4, 0.46), (0.1, 0.4, 0.6), (0.5, 0.4, 0.6)],
)
def test_more_records_are_cut_where_noise_is_louder(noise, sought, cut):
    rule = dp.LearnScale(noise=noise)
    assert (rule.sought, rule.cut) == pytest.approx((sought, cut))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.5])
@pytest.mark.parametrize("rounds", [14, 20, 163])
def test_the_budget_is_the_same_for_any_rounds(share, rounds):
    """The sum of squared inverse multipliers is that of one release with the whole budget."""
    plan = clinic().plan(scale=dp.LearnScale(share=share), rounds=rounds, epsilon=1.0, delta=1e-6)
    noise = plan.agents[0].noise
    spent = [1 / noise.at(t).multiplier ** 2 for t in range(1, rounds + 1)]
    assert sum(spent) == pytest.approx(1 / gaussian_multiplier(1, 1.0, 1e-6) ** 2, rel=1e-6)
    assert sum(spent[:ROUNDS]) == pytest.approx(share * sum(spent), rel=1e-12)
    assert plan.guarantee.epsilon <= 1.0


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_noise_of_a_count_is_that_of_its_release(relation):
    plan = clinic(relation=relation).plan(scale=dp.LearnScale(), rounds=20, epsilon=1.0, delta=1e-6)
    rule = plan.algorithm.scale
    learning = Scale.of(rule, plan.program)
    multiplier = plan.agents[0].noise.at(1, 1).multiplier  # a record moves a count by one
    assert learning._noise(rule.parts[0]) == pytest.approx(multiplier / 400, rel=0.02)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_what_is_charged_is_reached_and_not_passed(relation):
    plan = clinic(2, records=40, relation=relation).plan(
        scale=dp.LearnScale(), rounds=20, epsilon=1.0, delta=1e-6
    )
    found = dp.check_sensitivity(plan, seed=1)
    assert found.passed and max(agent.ratio for agent in found.agents) > 0.9


def test_groups_are_charged_for_all_their_members():
    alone = clinic(2).plan(scale=dp.LearnScale(), rounds=20, epsilon=1.0, delta=1e-6)
    pooled = clinic(2, groups=[["clinic 0", "clinic 1"]]).plan(
        scale=dp.LearnScale(), rounds=20, epsilon=1.0, delta=1e-6
    )
    ratio = pooled.agents[0].noise.multiplier / alone.agents[0].noise.multiplier
    assert ratio == pytest.approx(math.sqrt(2), rel=1e-6)


def test_what_was_learned_is_said_once_with_the_result():
    plan = clinic(2, width=50.0).plan(epsilon=2.0, delta=1e-6)
    result = plan.run(seed=1, verbose=False)
    (said,) = [note for note in result.notes if note.startswith("learned scale")]
    assert "tighter bounds would do" in said and "losses have a curvature of" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": 0.1}, "scale= or step=, not both"),
        ({"scale": 0.05}, r"dp.LearnScale\(\)"),
    ],
)
def test_methods_refuse_what_does_not_go_with_a_learned_scale(arguments, words):
    with pytest.raises(dp.ModelError, match=words):
        dp.FederatedGradient(**{"scale": dp.LearnScale()} | arguments)


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan, "most"])
def test_shares_lie_between_0_and_1(share):
    with pytest.raises(dp.ModelError, match="between 0 and 1"):
        dp.LearnScale(share=share)


def test_plans_say_how_much_noise_the_first_rounds_have():
    plan = clinic().plan(scale=dp.LearnScale(), rounds=163, epsilon=1.0, delta=1e-6)
    first = plan.agents[0].noise.first
    assert len(first) == ROUNDS and max(first) > 1
    said = "0.562 to 1.94 times that in the first 13 rounds, which learn the scale"
    assert said in plan.guarantee.mechanism
