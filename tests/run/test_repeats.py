"""A second run on the same data that no ledger counts says what both cost together."""

import copy
import warnings

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.privacy.accounting import Composition

BUDGET = dict(epsilon=1.0, delta=1e-6, rounds=4)


def two(d=None, weight=1.0):
    """Agent a has private data, b has none."""
    x = cp.Variable(2, name="x")
    d = d or dp.Private(np.array([1.0, 2.0]), name="d", adjacency=dp.Within(0.1))
    a = dp.Agent(cp.Minimize(weight * cp.sum_squares(x - d)), name="a")
    return dp.Problem([a, dp.Agent(cp.Minimize(cp.sum_squares(x)), name="b")]), d


def planned(problem, **settings):
    return problem.plan(dp.LinearizedADMM(penalty=1.0), **(BUDGET | settings))


def total(*plans):
    losses = Composition()
    for plan in plans:
        losses = losses.joined(plan.agent("a").loss)
    return losses.price(1e-6).epsilon


def test_the_second_run_warns_with_what_both_cost():
    problem, _ = two()
    plan = planned(problem)
    plan.run()
    with pytest.warns(dp.RepeatWarning) as caught:
        plan.run()
    (told,) = caught
    assert told.filename == __file__
    assert f"together they are ({at_most(total(plan, plan))}, 1e-6)-DP" in str(told.message)
    assert "agent 'a'" in str(told.message) and "not (1, 1e-6)" in str(told.message)
    with pytest.warns(dp.RepeatWarning, match=at_most(total(plan, plan, plan))):
        plan.run()


def test_other_problems_on_the_same_object_count():
    """As in a search for a good weight, with a new problem for each."""
    problem, d = two()
    planned(problem).run()
    other, _ = two(d, weight=2.0)
    with pytest.warns(dp.RepeatWarning):
        planned(other).run()


def test_a_common_ledger_is_silent_and_one_that_lacks_a_run_is_not(tmp_path):
    problem, _ = two()
    plan = planned(problem, mechanism=dp.Gaussian(multiplier=20.0), epsilon=5.0)
    first = plan.run(ledger=tmp_path / "spent.jsonl")
    second = plan.run(ledger=tmp_path / "spent.jsonl")
    third = plan.run(ledger=second.ledger)
    assert third.ledger.spent() == pytest.approx(total(plan, plan, plan), rel=1e-9)
    with pytest.warns(dp.RepeatWarning):
        plan.run(ledger=first.ledger)
    with pytest.warns(dp.RepeatWarning):
        plan.run(ledger=tmp_path / "new.jsonl")


def test_studies_and_other_data_do_not_count():
    problem, d = two()
    plan = planned(problem)
    for seed in range(3):
        plan.run(seed=seed)
    planned(problem, epsilon=None, delta=None, mechanism=None).run()
    for values in ([0.0, 1.0], [5.0, 1.0]):
        plan.run(data={d: np.array(values)})
    plan.run()
    plan.run(data={"d": np.zeros(2)})
    plan.run(seed=1)


def test_copies_have_no_data_and_no_past():
    problem, _ = two()
    planned(problem).run()
    twin = copy.deepcopy(problem)
    planned(twin).run(data={"d": np.zeros(2)})


def test_a_run_that_reads_nothing_does_not_count():
    def broken():
        raise OSError

    d = dp.Private(broken, shape=2, name="d", adjacency=dp.Within(0.1))
    problem, _ = two(d)
    for _ in range(2):
        with pytest.raises(dp.DpcvxError):
            planned(problem).run()


def test_where_warnings_are_errors_nothing_is_spent():
    problem, d = two()
    plan = planned(problem)
    plan.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(dp.RepeatWarning):
            plan.run()
    assert len(d.uses.losses) == 1


def test_pairs_add_up_with_their_deltas():
    """Runs in a random order are known by (epsilon, delta) alone."""
    x, y = cp.Variable(2, name="x"), cp.Variable(2, name="y")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    user = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")
    given = dp.Problem([user, dp.Agent(cp.Minimize(cp.norm1(y)), name="b")], coupling=[x == y])
    method = dp.GradientADMM(penalty=1.0, order="permutation")
    plan = given.plan(method, observer="last iterate", **BUDGET)
    plan.run()
    with pytest.warns(dp.RepeatWarning, match=r"together they are \(2, 2e-6\)-DP, not \(1, 1e-6\)"):
        plan.run()


def test_a_run_without_noise_leaves_nothing_to_add_up():
    problem, _ = two()
    plan = planned(problem)
    plan.run()
    problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=1).run()
    with pytest.warns(dp.RepeatWarning, match="one of them without noise.*no guarantee"):
        plan.run()
