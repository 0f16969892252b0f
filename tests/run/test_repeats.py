"""A second run on the same data that no ledger counts says what both cost together."""

import copy
import pickle
import warnings
import weakref
from contextlib import nullcontext

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx._words import at_most
from dpcvx.model import sealed
from dpcvx.privacy.accounting import Composition
from dpcvx.run import live, repeats

BUDGET = dict(epsilon=1.0, delta=1e-6, rounds=4)


def two(d=None, weight=1.0):
    """Agent a has private data, b has none."""
    x = cp.Variable(2, name="x")
    if d is None:
        d = dp.Private(np.array([1.0, 2.0]), name="d", adjacency=dp.Within(0.1))
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
    # A loop warns once, and each result has the total.
    assert at_most(total(plan, plan, plan)) in " ".join(plan.run().notes)


def test_other_problems_on_the_same_object_count():
    """As in a search for a good weight, with a new problem for each."""
    problem, d = two()
    planned(problem).run()
    other, _ = two(d, weight=2.0)
    with pytest.warns(dp.RepeatWarning):
        planned(other).run()


def test_a_common_ledger_is_silent_and_one_that_lacks_a_run_is_not(tmp_path):
    problem, _ = two()
    plan = planned(problem, mechanism=dp.Gaussian(noise_multiplier=20.0), epsilon=5.0)
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
    for person in range(1, 3):
        copy.deepcopy(plan).run(data={"d": np.full(2, person)})


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
    plan = given.plan(method, observer="last_iterate", **BUDGET)
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


# The same values in other objects


def private(values, name="d"):
    return dp.Private(values, name=name, adjacency=dp.Within(0.1))


ALIKE = "Earlier runs used data of agent 'a', .* if they are the same and all were planned"


@pytest.mark.parametrize("copied", [False, True])
def test_the_same_values_in_a_new_object_warn_with_the_total(copied):
    values = np.array([1.0, 2.0])
    first = planned(two(private(values))[0])
    first.run()
    again = planned(two(private(values.copy() if copied else values, name="renamed"))[0])
    with pytest.warns(dp.RepeatWarning, match=ALIKE) as caught:
        again.run()
    assert f"together they are ({at_most(total(first, again))}, 1e-6)-DP" in str(caught[0].message)


def test_other_values_in_a_new_object_are_silent():
    planned(two(private([1.0, 2.0]))[0]).run()
    planned(two(private([1.0, 2.5]))[0]).run()


def test_the_same_values_that_are_handed_to_another_object_warn():
    planned(two(private([1.0, 2.0]))[0]).run()
    other, d = two(dp.Private(shape=2, name="d", adjacency=dp.Within(0.1)))
    with pytest.warns(dp.RepeatWarning, match=ALIKE):
        planned(other).run(data={d: [1.0, 2.0]})


def test_the_same_values_of_a_function_warn_once_they_are_read():
    for values in ([1.0, 2.0], [1.0, 2.5]):
        d = dp.Private(lambda values=values: values, shape=2, adjacency=dp.Within(0.1), name="d")
        planned(two(d)[0]).run()
    d = dp.Private(lambda: np.array([1.0, 2.0]), shape=2, adjacency=dp.Within(0.1), name="d")
    with pytest.warns(dp.RepeatWarning, match=ALIKE):
        planned(two(d)[0]).run()


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 2.05]])
def test_a_result_does_not_tell_whether_values_are_equal(values, fetched):
    """An earlier run used public values; then equal data would show in a note of the result."""
    planned(two(private([1.0, 2.0]))[0]).run()
    held = (lambda: values) if fetched else values
    d = dp.Private(held, shape=2, adjacency=dp.Within(0.1), name="d")
    plan = planned(two(d)[0])
    equal = values == [1.0, 2.0]
    with pytest.warns(dp.RepeatWarning, match=ALIKE) if equal else nullcontext():
        result = plan.run()
    assert result.notes == () and "runs before" not in str(result)
    # A second run of the same object is public.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dp.RepeatWarning)
        (note,) = plan.run().notes
    assert f"({at_most(total(plan, plan))}, 1e-6)-DP" in note


def test_agents_with_equal_data_in_one_run_count_once():
    x = cp.Variable(2, name="x")

    def problem():
        pair = [
            dp.Agent(cp.Minimize(cp.sum_squares(x - private([0, 0], f"d{n}"))), name=n)
            for n in "ab"
        ]
        return dp.Problem(pair)

    first, again = planned(problem()), planned(problem())
    first.run()
    with pytest.warns(dp.RepeatWarning) as caught:
        again.run()
    assert f"({at_most(total(first, again))}, 1e-6)" in str(caught[0].message)


def test_a_ledger_that_holds_the_runs_of_equal_data_is_silent(tmp_path):
    for _ in range(2):
        plan = planned(two()[0], mechanism=dp.Gaussian(noise_multiplier=20.0), epsilon=5.0)
        plan.run(ledger=tmp_path / "spent.jsonl")


def test_digests_do_not_leave_the_process(capsys):
    problem, d = two()
    plan = planned(problem)
    result = plan.run()
    (values,) = repeats._BY_VALUES
    assert len(values) == 16 and len(repeats._KEY) == 64
    texts = [repr(d), str(plan), str(result), str(result.ledger), result.ledger.to_json()]
    pickles = [pickle.dumps(one) for one in (problem, plan, result, result.ledger)]
    for secret in (values, repeats._KEY):
        assert all(secret not in one for one in pickles)
        assert all(secret.hex() not in text for text in texts)


def test_values_are_hashed_once_and_not_copied(monkeypatch):
    hashed, honest = [], sealed._digest
    monkeypatch.setattr(sealed, "_digest", lambda *of: hashed.append(1) or honest(*of))
    plan = planned(two()[0])
    plan.run()
    with pytest.warns(dp.RepeatWarning):
        plan.run()
    assert hashed == [1]


# Runs that end in an error


class Interrupted(dp.LinearizedADMM):
    """Interrupted in round 3."""

    def receive(self, server, t, k, replies):
        if t == 3:
            raise KeyboardInterrupt
        return super().receive(server, t, k, replies)


def interrupted(problem, **settings):
    settings = {"mechanism": dp.Gaussian(noise_multiplier=20.0), "epsilon": 5.0} | settings
    return problem.plan(Interrupted(penalty=1.0), **(BUDGET | settings))


def identical():
    """Agents that are evaluated in one batch."""
    w = cp.Variable(2, name="w")
    agents = []
    for name in "abc":
        rows = dp.Private(np.eye(2) * ord(name) / 100, adjacency=dp.Rows(1.0), name=f"X{name}")
        loss = cp.sum(cp.pos(1 - rows @ w))
        agents.append(dp.Agent(cp.Minimize(loss), [cp.abs(w) <= 5], name=name))
    return dp.Problem(agents), agents[0].private[0]


HOMES = {
    "serial": (two, dp.Serial, 3),
    "threads": (two, lambda: dp.Threads(2), 3),
    "automatic": (two, lambda: None, 3),
    "batch": (identical, lambda: None, 3),
    # What agents released elsewhere is not known: all that was planned.
    "processes": (two, lambda: dp.Processes(2), 4),
}


@pytest.mark.parametrize("home", HOMES)
def test_an_interrupted_run_counts_from_its_first_release_on(home):
    build, executor, releases = HOMES[home]
    problem, d = build()
    plan = interrupted(problem)
    with pytest.raises(KeyboardInterrupt):
        plan.run(executor=executor())
    assert d.uses.releases == releases
    assert len(d.uses.losses) == 1
    with (
        pytest.warns(dp.RepeatWarning, match=at_most(total(plan, plan))),
        pytest.raises(KeyboardInterrupt),
    ):
        plan.run(executor=executor())


@pytest.mark.parametrize("home", HOMES)
def test_a_ledger_that_was_passed_knows_of_the_run_that_was_interrupted(home):
    build, executor, releases = HOMES[home]
    problem, _ = build()
    noise = {"mechanism": dp.Gaussian(noise_multiplier=20.0), "epsilon": 5.0}
    first = planned(problem, **noise).run()
    held = first.ledger
    before = held.spent()
    plan = interrupted(problem, **noise)
    with pytest.raises(KeyboardInterrupt):
        plan.run(ledger=held, executor=executor())
    assert len(held["a"].entries) == 4 + releases and held.spent() > before
    last = planned(problem, **noise).run(ledger=held)
    assert len(last.ledger["a"].entries) == 8 + releases
    rho = 2 * 4 * 0.5 / 20.0**2 + releases * 0.5 / 20.0**2
    assert last.ledger.rho == pytest.approx(rho)


@pytest.mark.parametrize("home", ["serial", "processes"])
def test_an_interrupted_run_with_a_ledger_file_resumes_in_silence(home, tmp_path):
    build, executor, _ = HOMES[home]
    problem, d = build()
    path, plan = tmp_path / "spent.jsonl", interrupted(problem)
    for _ in range(2):  # and is interrupted again
        with pytest.raises(KeyboardInterrupt):
            plan.run(ledger=path, executor=executor())
        assert d.uses.releases == 3
        assert len(d.uses.losses) == 1
    with pytest.warns(dp.RepeatWarning), pytest.raises(KeyboardInterrupt):
        plan.run(executor=executor())


@pytest.mark.parametrize("ended", [True, False])
def test_every_run_counts_if_its_ledger_file_was_removed(ended, tmp_path):
    problem, d = two()
    path, plan = tmp_path / "spent.jsonl", planned(problem) if ended else interrupted(problem)
    totals = [at_most(total(*[plan] * count)) for count in (2, 3)]
    for text in (None, *totals):
        told = nullcontext() if text is None else pytest.warns(dp.RepeatWarning, match=text)
        with told, nullcontext() if ended else pytest.raises(KeyboardInterrupt):
            plan.run(ledger=path)
        path.unlink()
    assert len(d.uses.losses) == 3


def test_an_error_other_than_an_interrupt_counts_as_well(monkeypatch):
    problem, d = two()
    monkeypatch.setattr(live, "returned", lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        planned(problem).run()
    assert d.uses.releases == 4


# Arrays that change


def test_an_array_that_changed_since_it_was_copied_is_said():
    table = np.array([[1.0, 5.0], [2.0, 6.0]], order="F")
    for given in (table[:, 0], np.array([1.0, 2.0]), [1.0, 2.0], np.array([1, 2])):
        problem, _ = two(private(given))
        plan = planned(problem)
        plan.run(seed=1)
        given[0] = 7
        with pytest.warns(UserWarning, match="private 'd' was made from have changed since"):
            plan.run(seed=1)
        plan.run(seed=1, data={"d": [1.0, 2.0]})


def test_an_array_that_is_gone_is_not_missed():
    values = np.array([1.0, 2.0])
    plan = planned(two(private(values))[0])
    left = weakref.ref(values)
    del values
    assert left() is None
    plan.run(seed=1)


def test_clipped_records_have_not_changed():
    rows = np.array([[3.0, 4.0], [0.1, 0.2]])
    x = cp.Variable(2)
    X = dp.Private(rows, adjacency=dp.Rows(1.0, clip_rows=True), name="X")
    plan = dp.Problem([dp.Agent(cp.Minimize(cp.sum(cp.abs(X @ x - 1))), [cp.abs(x) <= 1])]).plan(
        dp.LinearizedADMM(), **BUDGET
    )
    plan.run(seed=1)
    rows[1] = 0.3
    with pytest.warns(UserWarning, match="have changed since"):
        plan.run(seed=1)


def test_a_program_that_warned_once_does_not_warn_again_after_a_run():
    x, d = cp.Variable(2, name="x"), dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])
    shown = {}  # what a module keeps of its warnings, until filters change
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            warnings.warn_explicit("its own", UserWarning, "program.py", 1, registry=shown)
            problem.solve(epsilon=1.0, delta=1e-6, seed=1)
    assert [str(warning.message) for warning in caught] == ["its own"]
