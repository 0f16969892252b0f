"""Methods, what they cost and what is measured."""

import math

import numpy as np
import pytest

import dpcvx as dp
from problems.logistic_regression.experiment import (
    DELTA,
    FEMNIST_PENALTY,
    MNIST_PENALTY,
    Method,
    noise_magnitude,
    run,
    total,
)
from problems.logistic_regression.metrics import Metrics
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.sensitivity import worst_case
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import blobs

NOISES = ("ObjG", "OutG", "OutG, paper")


@pytest.fixture(scope="module")
def study():
    dataset = blobs()
    return logistic_regression(dataset, Partition("iid", 3).of(dataset))


@pytest.mark.parametrize("noise", NOISES)
def test_budgets_per_update_are_the_papers_noise_and_totals_are_exact(study, noise):
    plan = Method(noise, rounds=20, local_updates=5, release_epsilon=0.5).plan(study)
    multiplier = math.sqrt(2 * math.log(1.25 / DELTA)) / 0.5
    assert plan.agents[0].noise is not None
    assert plan.agents[0].noise.multiplier == pytest.approx(multiplier)
    # 100 Gaussian releases are one with a tenth of the multiplier.
    same = study.problem.plan(
        dp.LinearizedADMM(penalty=1.0),
        mechanism=dp.Gaussian(noise_multiplier=multiplier / 10),
        rounds=1,
        delta=DELTA,
    )
    assert plan.guarantee.epsilon == pytest.approx(same.guarantee.epsilon)
    assert plan.guarantee.kind == ("asserted" if noise == "OutG, paper" else "worst-case")


def test_gradient_descent_is_measured_like_the_others(study):
    method = Method("DP-SGD", rounds=12, total_epsilon=20.0)
    (trace,) = run(study, method, [3], points=4)
    assert trace.rounds.tolist() == [1, 5, 8, 12] and len(trace.averaged) == 4
    assert trace.guarantee.epsilon == pytest.approx(20.0) and trace.guarantee.kind == "worst-case"
    assert trace.released[-1] == trace.last and trace.released[0] != trace.last
    # A third more right than by guessing among three classes, and silent runs better still.
    (silent,) = run(study, Method("DP-SGD", rounds=60), [0], points=2)
    assert silent.last.cost < trace.last.cost < math.log(3)
    assert str(method) == "DP-SGD, T = 12, 20 in total"


@pytest.mark.parametrize("noise", (*NOISES, "DP-SGD"))
def test_totals_are_kept(study, noise):
    plan = Method(noise, rounds=4, local_updates=3, total_epsilon=2.0).plan(study)
    assert plan.guarantee.epsilon == pytest.approx(2.0)
    assert plan.guarantee.delta == DELTA


def test_two_budgets_are_one_too_many(study):
    with pytest.raises(dp.PrivacyError):
        Method(release_epsilon=1.0, total_epsilon=1.0).plan(study)


def test_the_papers_output_noise_is_asserted_for_its_step(study):
    plan = Method("OutG, paper", release_epsilon=0.5, penalty=MNIST_PENALTY).plan(study)
    algorithm = plan.algorithm
    assert isinstance(algorithm, dp.LinearizedADMM)
    assert algorithm.step == dp.steps.Constant(1 / 18)
    expected = 2 * worst_case(study.dataset, study.total, 2) / (2 + 5 / 0.5 + 18)
    assert algorithm.output_sensitivity == pytest.approx(expected)


def test_the_schedules_are_those_of_the_paper(study):
    for rule, numbers in ((MNIST_PENALTY, (2, 5, 10_000)), (FEMNIST_PENALTY, (0.005, 0.05, 2000))):
        assert (rule.c1, rule.c2, rule.Tc) == numbers
    plan = Method(release_epsilon=0.1, rounds=2).plan(study)
    result = plan.run(seed=0, verbose=False)
    assert result.history.penalty == pytest.approx([0.505, 0.505])


def test_labels_state_the_total_guarantee(study):
    (trace,) = run(study, Method("ObjG", 4, 2, release_epsilon=1.0), [0])
    assert trace.label == (
        f"ObjG, T = 4, E = 2, 1 per update: ({trace.guarantee.epsilon:.3g}, 1e-06) in total"
    )
    (trace,) = run(study, Method("OutG, paper", 4, total_epsilon=2.0, note="why"), [0])
    assert trace.label.endswith("2 in total, why: (2, 1e-06) in total, asserted")
    (trace,) = run(study, Method("ObjG", 2), [0])
    assert trace.label == "ObjG, T = 2, E = 1, no noise: no guarantee"
    assert total(trace.guarantee) == "no guarantee"


def test_what_is_measured_is_what_the_agents_sent(study):
    method = Method("ObjG", 6, release_epsilon=1.0)
    one, two = run(study, method, [3, 4], points=3)
    assert one.rounds.tolist() == [1, 4, 6]
    assert len(one.released) == len(one.averaged) == one.noise.size == 3
    assert one.reported == "average"
    # With one local update, what is sent is the last iterate.
    assert one.released[-1] == pytest.approx(one.last) == one.last
    assert one.released[0] == one.averaged[0]
    result = method.plan(study).run(seed=3, verbose=False)
    assert one.average.cost == pytest.approx(Metrics.of(study).cost(result.average[study.W]))
    assert one.last.cost != two.last.cost
    (again,) = run(study, method, [3], points=3)
    assert (again.released, again.last, again.average) == (one.released, one.last, one.average)


def test_the_average_of_what_was_sent_is_the_runs_average_for_smooth_steps(study):
    method = Method("ObjG", 5, local_updates=3, release_epsilon=1.0, step=0.5)
    (trace,) = run(study, method, [0])
    assert trace.averaged[-1].cost == pytest.approx(trace.average.cost)


@pytest.mark.parametrize("noise", NOISES)
def test_noise_magnitudes_are_those_that_are_drawn(study, noise):
    method = Method(noise, 40, release_epsilon=0.5)
    plan = method.plan(study)
    rounds = np.array([1, 40])
    expected = noise_magnitude(plan, study, rounds)
    result = plan.run(seed=0, verbose=False)
    entries = result.ledger["agent 0"].entries
    scale = np.array([entry.multiplier * entry.sensitivity for entry in entries])
    per_entry = scale[[0, -1]]
    if noise == "OutG":  # its noise is drawn in the norm of the step, sqrt(rho + 1 / eta)
        root = np.sqrt(result.history.penalty[0] + np.sqrt(rounds))
        per_entry = per_entry / root
    np.testing.assert_allclose(expected, 3 * math.sqrt(2 / math.pi) * per_entry, rtol=1e-3)
    assert not noise_magnitude(Method(rounds=2).plan(study), study, rounds).any()


def test_a_single_agent_sends_nothing():
    dataset = blobs()
    alone = logistic_regression(dataset, Partition("iid", 1).of(dataset))
    with pytest.raises(dp.ModelError, match="single agent sends nothing"):
        run(alone, Method(rounds=2), [0])
