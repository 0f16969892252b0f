"""What a decision pays for: told after a run, from released values."""

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp

LOADS = np.array([1.0, 2.0, 0.5])
PRICE = 7.0


def cramped():
    """A balance within narrower limits than margins leave, and a ball that has room."""
    p = cp.Variable(3, name="p", nonneg=True)
    load = dp.Private(LOADS, name="load", adjacency=dp.Within(0.02))
    limits = [
        p <= 3,
        # The epigraph of a square root is an auxiliary column of the cone form.
        cp.norm(p - load) <= 2 + cp.sqrt(p[0]),
        cp.sum(p) >= cp.sum(load),
        cp.sum(p) <= cp.sum(load) + 0.01,
    ]
    return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(p)), limits, name="grid")])


def planned(price=PRICE):
    return cramped().plan(violation_probability=0.1, slack_penalty=price, epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def ran():
    plan = planned()
    return plan, plan.run(seed=1, record=True)


def test_what_is_missed_is_what_the_tightened_problem_pays_for(ran):
    plan, result = ran
    (release,) = result.transcript.releases
    left = plan.agents[0].publication.unlimited(release.value)
    ball, above, below = (kept.margins for kept in plan.program.kept)
    (radius,), (low,), (high,) = ball.values(), above.values(), below.values()
    p, s = cp.Variable(3, nonneg=True), cp.Variable(3, nonneg=True)
    limits = [
        p <= 3,
        cp.norm(p - left) + radius <= 2 + cp.sqrt(p[0]) + s[0],
        cp.sum(p) + s[1] >= left.sum() + low,
        cp.sum(p) + high <= left.sum() + 0.01 + s[2],
    ]
    cp.Problem(cp.Minimize(cp.sum_squares(p) + PRICE * cp.sum(s)), limits).solve(cp.CLARABEL)
    names = [f"Constraint {k} of agent 'grid'" for k in (1, 2, 3)]
    assert list(result.constraint_slack) == names
    found = np.concatenate([result.constraint_slack[name] for name in names])
    assert found == pytest.approx(s.value, abs=1e-6)
    assert found[0] <= 1e-7 and found[1:].sum() > 0.1


def test_replays_tell_the_same(ran):
    plan, result = ran
    again = plan.replay(result.transcript)
    assert all(
        np.array_equal(again.constraint_slack[what], by)
        for what, by in result.constraint_slack.items()
    )


def test_it_is_printed_once_with_what_was_missed(ran, capsys):
    plan, result = ran
    plan.run(seed=1, verbose=True)
    for text in (str(result), capsys.readouterr().out):
        said = " ".join(text.split())
        missed = [what for what, by in result.constraint_slack.items() if by.max() > 1e-7]
        assert said.count("the decision pays the slack penalty") == len(missed) > 0
        assert f"slack {missed[0]} may be violated by up to" in said


def test_a_decision_that_misses_nothing_says_so():
    p = cp.Variable(name="p")
    load = dp.Private(1.0, name="load", adjacency=dp.Within(0.02))
    agent = dp.Agent(cp.Minimize(p), [p >= load], name="grid")
    result = dp.Problem([agent]).solve(
        violation_probability=0.1, slack_penalty=9.0, epsilon=1.0, delta=1e-6, seed=1
    )
    assert "no constraint to be missed" in str(result)


def test_where_nothing_may_be_missed_nothing_is_told():
    p = cp.Variable(name="p")
    load = dp.Private(1.0, name="load", adjacency=dp.Within(0.02))
    agent = dp.Agent(cp.Minimize(p), [p >= load], name="grid")
    result = dp.Problem([agent]).solve(violation_probability=0.1, epsilon=1.0, delta=1e-6, seed=1)
    assert result.constraint_slack == {} and "slack" not in str(result)
