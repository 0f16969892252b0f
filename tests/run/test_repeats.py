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


def test_studies_do_not_count():
    problem, _ = two()
    plan = planned(problem)
    for seed in range(3):
        plan.run(seed=seed)
    open_plan(problem).run(seed=1)
    plan.run()
    plan.run(seed=1)
    open_plan(problem).run(seed=1)


def open_plan(problem):
    """Without noise."""
    return planned(problem, epsilon=None, delta=None, mechanism=None)


def test_data_that_are_handed_over_may_be_the_same():
    problem, d = two(dp.Private(shape=2, name="d", adjacency=dp.Within(0.1)))
    plan = planned(problem)
    plan.run(data={d: np.zeros(2)})
    told = (
        "Earlier runs used data of agent 'a', and .* if they are the same and all were planned in "
        rf"advance, together they are \({at_most(total(plan, plan))}, .* for data of other people, "
        r"run copy\.deepcopy\(plan\)\.$"
    )
    with pytest.warns(dp.RepeatWarning, match=told):
        plan.run(data={"d": np.ones(2)})


@pytest.mark.parametrize("handed", [0, 1])
def test_data_of_its_own_and_data_that_are_handed_over_may_be_the_same(handed):
    problem, _ = two()
    given = [{"d": np.ones(2)} if k == handed else None for k in range(2)]
    plan = planned(problem)
    plan.run(data=given[0])
    with pytest.warns(dp.RepeatWarning, match="if they are the same and all were planned"):
        plan.run(data=given[1])


def test_copies_have_no_data_and_no_past():
    problem, _ = two()
    plan = planned(problem)
    plan.run()
    planned(copy.deepcopy(problem)).run(data={"d": np.zeros(2)})
    for _ in range(2):
        copy.deepcopy(plan).run(data={"d": np.zeros(2)})


def test_solving_again_warns_at_the_line_that_solves():
    problem, _ = two()
    budget = BUDGET | {"algorithm": dp.LinearizedADMM(penalty=1.0)}
    problem.solve(**budget)
    with pytest.warns(dp.RepeatWarning) as caught:
        problem.solve(**budget)
    (told,) = caught
    assert told.filename == __file__
    with open(__file__) as lines:
        assert "problem.solve(**budget)" in lines.readlines()[told.lineno - 1]


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


@pytest.mark.parametrize("noisy", [(True, False), (False, True)])
def test_a_run_without_noise_leaves_nothing_to_add_up(noisy):
    problem, _ = two()
    first, second = (planned(problem) if each else open_plan(problem) for each in noisy)
    first.run()
    told = "one of all these runs has no noise: together they have no guarantee"
    with pytest.warns(dp.RepeatWarning, match=told) as caught:
        second.run()
    assert caught[0].filename == __file__
    for plan in (first, second):
        with pytest.warns(dp.RepeatWarning, match=told):
            plan.run()


def test_runs_without_noise_promise_nothing_and_are_silent():
    problem, _ = two()
    for _ in range(3):
        open_plan(problem).run()


def test_a_ledger_of_both_is_silent_where_one_has_no_noise():
    problem, _ = two()
    first = planned(problem).run()
    open_plan(problem).run(ledger=first.ledger)


def test_handed_data_without_noise_may_be_the_same():
    problem, _ = two()
    open_plan(problem).run(data={"d": np.ones(2)})
    with pytest.warns(dp.RepeatWarning, match="noise: if they are the same, together they have no"):
        planned(problem).run()
