"""Running a plan: data, budgets, ledgers, early stops, failures of the solver."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import dpcvx as dp
from dpcvx.run.executors.in_process import Serial
from dpcvx.solvers.conic import ConicAnswer, ConicProgram, Outcome
from tests.instances import covariance, overlapping_slices, power_line


def plan_of(given, **arguments):
    settings = {"rounds": 10, "epsilon": 1.0, "delta": 1e-6} | arguments
    settings.setdefault("algorithm", dp.LinearizedADMM())
    return given.problem.plan(**settings)


def test_variables_get_the_reported_values():
    given = overlapping_slices()
    result = plan_of(given, algorithm=dp.LinearizedADMM(returned="average")).run(seed=1)
    (x,) = given.problem.variables()
    assert result.reported == "average"
    assert np.array_equal(x.value, result.solution[x])
    assert result.raw is result.average
    holders = [result.average.of("a", x)[3], result.average.of("c", x)[3]]
    assert result.average[x][3] == pytest.approx(np.mean(holders))


def test_the_last_iterate_is_reported_where_asked_or_without_noise():
    given = power_line()
    asked = plan_of(given, algorithm=dp.ADMM(returned="last"))
    assert asked.run(seed=1).reported == "last"
    assert given.problem.plan(dp.ADMM(), mechanism=None, rounds=3).run().reported == "last"


@pytest.mark.parametrize("rounds", [1, 2, 7, 10])
@pytest.mark.parametrize(
    "algorithm",
    [dp.LinearizedADMM(penalty=2.0, returned="tail"), dp.ADMM(penalty=2.0, returned="tail")],
    ids=["linearized", "exact"],
)
def test_the_tail_is_the_average_over_the_last_half_of_the_rounds(algorithm, rounds):
    result = plan_of(power_line(), algorithm=algorithm, rounds=rounds).run(seed=1, iterates=True)
    assert result.reported == "tail" and result.raw is result.tail
    for k, tail in enumerate(result.tail.vectors):
        points = [one.last.vectors[k] for one in result.iterates[rounds // 2 :]]
        np.testing.assert_allclose(tail, np.mean(points, axis=0), rtol=1e-9, atol=1e-12)
    said = " ".join(str(result).split())
    assert rounds == 1 or "average of the last half of the rounds" in said


def test_the_tail_has_the_weights_of_the_average():
    rule = dp.steps.StronglyConvex(alpha=1.0)
    algorithm = dp.LinearizedADMM(penalty=2.0, step=rule, returned="tail")
    result = plan_of(power_line(), algorithm=algorithm).run(seed=1, iterates=True)
    # The points before each round's step, by equation (27a).
    weights = [rule.weight(t) for t in range(6, 11)]
    for k, tail in enumerate(result.tail.vectors):
        points = [one.last.vectors[k] for one in result.iterates[4:9]]
        mean = np.average(points, axis=0, weights=weights)
        np.testing.assert_allclose(tail, mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 7, 8, 10, 21])
def test_later_rounds_count_more_in_the_weighted_average_by_eighths_of_the_run(rounds):
    algorithm = dp.ADMM(penalty=2.0, returned="weighted")
    result = plan_of(power_line(), algorithm=algorithm, rounds=rounds).run(seed=1, iterates=True)
    assert result.reported == "weighted" and result.raw is result.weighted
    parts = np.array_split(np.arange(1, rounds + 1), [rounds * k // 8 for k in range(1, 8)])
    weights = np.concatenate([np.full(part.size, part.mean()) for part in parts if part.size])
    assert weights.size == rounds and (np.diff(weights) >= 0).all()
    if rounds <= 8:
        np.testing.assert_array_equal(weights, np.arange(1, rounds + 1))
    for k, weighted in enumerate(result.weighted.vectors):
        points = [one.last.vectors[k] for one in result.iterates]
        mean = np.average(points, axis=0, weights=weights)
        np.testing.assert_allclose(weighted, mean, rtol=1e-9, atol=1e-12)
    assert rounds == 1 or "later rounds count more" in " ".join(str(result).split())


def test_a_run_that_stops_early_weights_the_rounds_that_it_made():
    plan = power_line().problem.plan(dp.ADMM(returned="weighted"), mechanism=None, rounds=50)
    result = plan.run(tolerance=1e-5, iterates=True)
    assert 12 < result.rounds < 50
    ends = [*(end for k in range(1, 8) if (end := 50 * k // 8) < result.rounds), result.rounds]
    parts = zip([0, *ends], ends, strict=False)
    weights = [(a + 1 + b) / 2 for a, b in parts for _ in range(b - a)]
    for k, weighted in enumerate(result.weighted.vectors):
        points = [one.last.vectors[k] for one in result.iterates]
        mean = np.average(points, axis=0, weights=weights)
        np.testing.assert_allclose(weighted, mean, rtol=1e-9, atol=1e-12)


def test_a_run_that_ends_in_its_first_half_has_its_average_for_a_tail():
    plan = power_line().problem.plan(dp.ADMM(returned="tail"), mechanism=None, rounds=500)
    result = plan.run(tolerance=1e-3)
    assert result.rounds < 250
    for tail, average in zip(result.tail.vectors, result.average.vectors, strict=True):
        assert np.array_equal(tail, average)


def test_entries_that_nobody_holds_keep_the_start():
    x = cp.Variable(4, name="x")
    d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(0.1))
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x[:2] - d)), name="a"),
        dp.Agent(cp.Minimize(cp.sum_squares(x[1:3])), name="b"),
    ]
    problem = dp.Problem(agents, start={x: np.array([0.0, 0.0, 0.0, 7.0])})
    problem.plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6).run(seed=0)
    assert x.value[3] == 7.0


def test_solve_is_plan_and_run():
    given = power_line()
    one = given.problem.solve(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=5, seed=2)
    two = given.problem.plan(dp.LinearizedADMM(), epsilon=1.0, delta=1e-6, rounds=5).run(seed=2)
    assert all(
        np.array_equal(a, b) for a, b in zip(one.last.vectors, two.last.vectors, strict=True)
    )


def test_data_may_come_from_a_function_called_once_per_run():
    calls = []
    x = cp.Variable(2, name="x")

    def fetch():
        calls.append(1)
        return np.ones(2)

    d = dp.Private(fetch, shape=2, name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    plan = problem.plan(dp.LinearizedADMM(), rounds=4, epsilon=1.0, delta=1e-6)
    assert calls == []
    plan.run()
    assert calls == [1]


@pytest.mark.parametrize("key", ["nobody", "load"])
def test_data_for_an_unknown_private_object_are_refused(key):
    with pytest.raises(dp.ModelError, match=f"'{key}'.*load0, load1"):
        plan_of(power_line()).run(data={key: np.zeros(4)})


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_a_seed_is_a_non_negative_int(seed):
    with pytest.raises(dp.ModelError, match="seed="):
        plan_of(power_line()).run(seed=seed)


def test_a_seeded_run_says_so():
    plan = plan_of(power_line())
    assert "not for release" in str(plan.run(seed=0).guarantee)
    assert "not for release" not in str(plan.run().guarantee)


def test_a_second_run_on_the_same_ledger_is_refused_and_spends_nothing():
    plan = plan_of(power_line())
    first = plan.run(seed=0)
    with pytest.raises(dp.BudgetError) as caught:
        plan.run(seed=1, ledger=first.ledger)
    assert caught.value.agent == "end0"
    assert caught.value.spent == pytest.approx(1.0)
    assert caught.value.requested > 1.0
    assert caught.value.affordable == 0
    assert len(first.ledger["end0"].entries) == 10


def test_a_ledger_with_room_stops_the_run_when_it_is_used_up():
    given = power_line()
    short = given.problem.plan(
        dp.LinearizedADMM(), mechanism=dp.Gaussian(noise_multiplier=30.0), rounds=6, delta=1e-6
    ).run()
    long = given.problem.plan(
        dp.LinearizedADMM(), mechanism=dp.Gaussian(noise_multiplier=30.0), rounds=10, delta=1e-6
    )
    result = long.run(ledger=short.ledger)
    assert result.status is dp.Status.BUDGET
    assert result.rounds == 4
    assert len(result.ledger["end1"].entries) == 10
    assert result.ledger.spent() == pytest.approx(long.guarantee.epsilon)
    assert len(short.ledger["end1"].entries) == 6


def test_a_foreign_ledger_is_refused():
    other = plan_of(covariance()).run()
    with pytest.raises(dp.ModelError, match="no account of agent 'end0'"):
        plan_of(power_line()).run(ledger=other.ledger)


def test_stopping_early_spends_less():
    plan = plan_of(power_line(), rounds=50)
    result = plan.run(seed=0, tolerance=1e3)
    assert result.status is dp.Status.CONVERGED
    assert result.rounds == 2
    assert result.ledger.spent() < 0.5 * plan.guarantee.epsilon
    assert result.guarantee.epsilon == plan.guarantee.epsilon


def test_a_failing_solver_keeps_the_previous_point_and_ends_no_run(monkeypatch):
    plan = plan_of(covariance(), algorithm=dp.LinearizedADMM(step=0.1))
    honest = ConicProgram.solve
    calls = []

    def fails_sometimes(self, D, c, center):
        calls.append(1)
        failed = len(calls) % 3 == 0
        return ConicAnswer(None, Outcome.FAILED) if failed else honest(self, D, c, center)

    monkeypatch.setattr(ConicProgram, "solve", fails_sometimes)
    result = plan.run(seed=0)
    assert result.status is dp.Status.COMPLETED
    assert result.history.failed > 0
    assert "failed, and the agent kept its previous point" in " ".join(str(result).split())
    assert len(result.ledger["site0"].entries) == 10


def test_a_failing_solver_behind_the_door_does_not_show(monkeypatch):
    plan = plan_of(covariance(), algorithm=dp.LinearizedADMM(step=0.1, perturb="output"))
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: ConicAnswer(None, Outcome.FAILED))
    result = plan.run(seed=0, record=True)
    assert result.history.failed == 0
    assert all(np.isfinite(r.value).all() for r in result.transcript.releases)


def test_the_agents_are_released_even_if_one_fails():
    class Counting(Serial):
        closed = 0

        def close(self):
            self.closed += 1
            super().close()

    executor = Counting()
    x = cp.Variable(2, name="x")
    d = dp.Private(shape=2, name="d", adjacency=dp.Within(0.1))
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)))])
    plan = problem.plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.DataError):
        plan.run(data={d: lambda: np.zeros(5)}, executor=executor)
    assert executor.closed == 1


@pytest.mark.parametrize(
    "other",
    [
        {"rounds": 9},
        {"epsilon": 0.5},
        {"algorithm": dp.ADMM(penalty=3.0)},
        {"mechanism": None, "epsilon": None, "delta": None},
    ],
    ids=lambda o: next(iter(o)),
)
def test_a_transcript_of_another_plan_is_refused(other):
    transcript = plan_of(power_line(), **other).run(record=True).transcript
    with pytest.raises(dp.PrivacyError, match="recorded under another plan"):
        plan_of(power_line()).replay(transcript)


def test_a_truncated_transcript_is_refused():
    plan = plan_of(power_line())
    transcript = plan.run(record=True).transcript
    short = replace(transcript, releases=transcript.releases[:5])
    with pytest.raises(dp.PrivacyError, match=r"no release .* for round"):
        plan.replay(short)


def test_a_replay_states_what_the_run_stated():
    plan = plan_of(power_line(), rounds=30)
    result = plan.run(seed=1, tolerance=1e3, record=True)
    again = plan.replay(result.transcript)
    assert again.status is result.status is dp.Status.CONVERGED
    assert again.guarantee == result.guarantee
    assert "not for release" in str(again)
    assert again.ledger.spent() == result.ledger.spent()


def test_a_run_without_noise_ends_every_later_guarantee():
    given = power_line()
    open_run = given.problem.plan(dp.LinearizedADMM(), mechanism=None, rounds=3).run()
    assert open_run.ledger.spent(1e-6) == np.inf
    with pytest.raises(dp.BudgetError):
        plan_of(given).run(ledger=open_run.ledger)


def test_a_ledger_goes_on_under_its_own_adjacency_only():
    def problem(radius):
        x = cp.Variable(2, name="x")
        d = dp.Private(np.ones(2), name="d", adjacency=dp.Within(radius))
        return dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - d)), name="a")])

    first = problem(0.1).plan(dp.LinearizedADMM(), rounds=5, epsilon=0.5, delta=1e-6).run()
    wider = problem(10.0).plan(dp.LinearizedADMM(), rounds=5, epsilon=1.0, delta=1e-6)
    with pytest.raises(dp.PrivacyError, match=r"at most 0\.1 in 'd'.*at most 10\.0 in 'd'"):
        wider.run(ledger=first.ledger)


def test_one_seed_gives_other_noise_under_another_plan():
    def release(sign):
        x = cp.Variable(2, name="x")
        d = dp.Private(np.array([3.0, 5.0]), name="d", adjacency=dp.Within(0.1))
        problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x + sign * d)))])
        plan = problem.plan(dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6)
        return plan.run(seed=3, record=True).transcript.releases[0].value

    assert np.abs((release(1) - release(-1)) / 4 - [3.0, 5.0]).max() > 1e-3


def test_data_that_cannot_matter_are_not_even_rounded_into_a_release():
    x = cp.Variable(1, name="x")
    d = dp.Private(np.array([1e6 / 3]), name="d", adjacency=dp.Within(0.1))
    cost = cp.sum_squares(x) + cp.sum_squares(d)
    plan = dp.Problem([dp.Agent(cp.Minimize(cost))]).plan(
        dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6
    )
    (only,) = plan.run(record=True).transcript.releases
    assert plan.agents[0].sensitivity.l2 == 0.0
    assert only.value[0] == 0.0


def test_data_that_cancel_up_to_rounding_are_refused():
    x = cp.Variable(1, name="x")
    d = dp.Private(np.array([1e6 / 3]), name="d", adjacency=dp.Within(0.1))
    a, b = 0.1, 0.7
    products = [cp.multiply(d, a * x), cp.multiply(d, b * x), -cp.multiply(d, (a + b) * x)]
    cost = cp.sum_squares(x) + sum(cp.sum(p) for p in products)
    with pytest.raises(dp.PrivacyError, match="meet in cp.multiply, yet the derived sensitivity"):
        dp.Problem([dp.Agent(cp.Minimize(cost))]).plan(
            dp.LinearizedADMM(), rounds=1, epsilon=1.0, delta=1e-6
        )


def test_a_tolerance_needs_something_to_agree_on():
    x = cp.Variable(2, name="x")
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - 1)))])
    with pytest.raises(dp.ModelError, match="only agent shares nothing"):
        problem.plan().run(tolerance=1e-3)
    with pytest.raises(dp.ModelError, match="tolerance="):
        plan_of(power_line()).run(tolerance=-1.0)


def test_a_run_in_which_everything_fails_says_so(monkeypatch):
    plan = plan_of(covariance(), algorithm=dp.LinearizedADMM(step=0.1))
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: ConicAnswer(None, Outcome.FAILED))
    assert plan.run(seed=0).status is dp.Status.STALLED


def test_numpy_scalars_are_numbers():
    algorithm = dp.LinearizedADMM(
        penalty=np.float32(2), step=np.float64(0.1), local_updates=np.int64(2)
    )
    plan = plan_of(
        power_line(), algorithm=algorithm, rounds=np.int64(4), epsilon=np.float32(1.0), delta=1e-6
    )
    assert plan.run(seed=np.int64(3)).rounds == 4


def test_nothing_is_recorded_unless_asked():
    assert plan_of(power_line()).run().transcript is None


def test_plans_that_differ_in_the_pattern_of_a_constraint_are_different():
    def plan(i, j):
        x = cp.Variable(3, name="x")
        d = dp.Private(np.ones(3), name="d", adjacency=dp.Within(0.1))
        agent = dp.Agent(cp.Minimize(cp.sum_squares(x - d)), [x[i] + x[j] <= 1])
        return dp.Problem([agent]).plan(dp.LinearizedADMM(), rounds=2, epsilon=1.0, delta=1e-6)

    one, other = plan(0, 1), plan(1, 2)
    assert one.fingerprint == plan(0, 1).fingerprint
    assert one.fingerprint != other.fingerprint
    with pytest.raises(dp.PrivacyError, match="another plan"):
        other.replay(one.run(record=True).transcript)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize(
    "algorithm",
    [dp.ADMM(penalty=2.0), dp.LinearizedADMM(penalty=2.0, step=0.3)],
    ids=["exact", "linear"],
)
def test_the_unit_of_the_variables_does_not_matter(scale, algorithm):
    x = cp.Variable(3, name="x")
    point = scale * np.array([1.0, -2.0, 3.0])
    agents = [
        dp.Agent(cp.Minimize(cp.sum_squares(x - point)), [cp.norm1(x) <= 2 * scale]),
        dp.Agent(cp.Minimize(cp.sum_squares(x))),
    ]
    result = dp.Problem(agents).plan(algorithm, mechanism=None, rounds=200).run()
    assert result.solution[x] / scale == pytest.approx([1 / 6, -2 / 3, 7 / 6], abs=1e-4)


def test_sets_far_from_the_origin_are_not_empty():
    x = cp.Variable(2, name="x")
    far = [cp.norm(x - 1e6) <= 1, x[0] + x[1] >= 2e6]
    problem = dp.Problem([dp.Agent(cp.Minimize(cp.sum_squares(x - 1e6)), far)])
    result = problem.plan(dp.LinearizedADMM(step=0.5), mechanism=None, rounds=30).run()
    assert result.solution[x] - 1e6 == pytest.approx([0, 0], abs=1e-2)


@pytest.mark.parametrize("perturb", ["objective", "output", "projected_output"])
def test_iterates_are_kept_on_request_and_end_in_the_result(perturb):
    method = dp.LinearizedADMM(penalty=1.0, perturb=perturb)
    plan = power_line().problem.plan(method, rounds=4, epsilon=1.0, delta=1e-6)
    result = plan.run(seed=0, iterates=True)
    assert len(result.iterates) == 4
    assert plan.run(seed=0).iterates == ()
    for kept, final in (
        (result.iterates[-1].last, result.last),
        (result.iterates[-1].average, result.average),
    ):
        for x, y in zip(kept.vectors, final.vectors, strict=True):
            assert np.array_equal(x, y)
    # Uniform weights: the average of a round follows from the iterates up to it.
    lasts = np.array([iterate.last.vectors[0] for iterate in result.iterates])
    assert result.iterates[2].average.vectors[0] == pytest.approx(lasts[:3].mean(axis=0))


def test_a_failed_solve_with_private_constraints_leaves_no_solution(monkeypatch):
    """The promise covers solutions; the initial point keeps no constraint with private data."""
    x = cp.Variable(2, name="x")
    load = dp.Private([3.0, 2.0], name="load", adjacency=dp.Within(0.1))
    agent = dp.Agent(cp.Minimize(cp.sum_squares(x)), [x >= load], name="grid")
    plan = dp.Problem([agent]).plan(epsilon=1.0, delta=1e-6, violation_probability=0.1)
    monkeypatch.setattr(ConicProgram, "solve", lambda *_: ConicAnswer(None, Outcome.FAILED))
    result = plan.run(seed=0)
    assert result.status is dp.Status.UNSOLVED and not result.status.solved
    assert x.value is None and "Solution     none" in str(result)
