"""The model: its objective, its optimum, its privacy."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression as Reference

import dpcvx as dp
from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.metrics import Metrics
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import blobs


def study(agents=3, **arguments):
    dataset = blobs()
    return logistic_regression(dataset, Partition("iid", agents).of(dataset), **arguments)


def test_the_objective_is_the_mean_loss_over_all_records():
    found = study(regularizer=0.2)
    W = np.random.default_rng(0).uniform(-1, 1, size=found.W.shape)
    used = found.dataset.clipped(found.dataset.train)
    odds = np.exp(used.features @ W)
    chance = odds[np.arange(used.count), used.labels] / odds.sum(axis=1)
    expected = -np.log(chance).mean() + 0.2 * np.sum(W**2)
    central = dp.not_private.joint_problem(found.problem)
    found.W.value = W
    assert float(np.asarray(central.objective.value)) == pytest.approx(expected)
    assert Metrics.of(found).cost(W) == pytest.approx(expected)


def test_with_a_wide_box_the_optimum_is_scikit_learns():
    found = study(2, regularizer=0.02, box=100.0)
    method = dp.LinearizedADMM(penalty=0.3, step=1.0, local_updates=2)
    result = found.problem.plan(method, mechanism=None, rounds=300).run(verbose=False)
    used = found.dataset.clipped(found.dataset.train)
    # Its objective is the sum of the losses times C, plus half the squared norm.
    reference = Reference(C=1 / (2 * 0.02 * used.count), fit_intercept=False, tol=1e-10)
    reference.fit(used.features, used.labels)
    np.testing.assert_allclose(result.solution[found.W], reference.coef_.T, atol=2e-4)


def test_record_and_replay_without_one_record():
    found = study()
    plan = found.problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=3, epsilon=1.0, delta=1e-6)
    own = found.dataset.clipped(found.dataset.train.take(found.parts[1]))
    X, Y = own.features.copy(), found.dataset.one_hot(own.labels)
    X[4], Y[4] = 0.0, 0.0
    checked = dp.check_sensitivity(plan, {"features 1": X, "labels 1": Y})
    assert checked.passed, str(checked)
    assert checked.agents[1].ratio > 0.2
    X[5] = 0.0
    with pytest.raises(dp.DataError, match="further from the data"):
        dp.check_sensitivity(plan, {"features 1": X})


def test_the_guarantee_names_the_record_and_its_bound():
    found = study()
    plan = found.problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=3, epsilon=1.0, delta=1e-6)
    assert plan.guarantee.kind == "worst-case"
    text = " ".join(str(plan.guarantee).split())
    own = [f"'features {k}' (with 'labels {k}', a row of l1 norm at most 1)" for k in range(3)]
    change = "one record (a row of l2 norm at most 1.5) is added or removed in one of"
    assert f"{change} {own[0]}, {own[1]} and {own[2]}" in text


@pytest.mark.parametrize(
    "arguments", [{"box": 0.0}, {"box": np.inf}, {"regularizer": -1.0}, {"regularizer": np.nan}]
)
def test_broken_arguments_are_refused(arguments):
    with pytest.raises(dp.ModelError, match="box positive"):
        study(**arguments)


@pytest.mark.parametrize(
    "parts, message",
    [
        ([], "needs a record"),
        ([np.array([0]), np.array([], dtype=int)], "needs a record"),
        ([np.array([0, 1]), np.array([1])], "disjoint"),
        ([np.array([60])], "disjoint"),
        ([np.array([-1])], "disjoint"),
    ],
)
def test_broken_parts_are_refused(parts, message):
    with pytest.raises(DatasetError, match=message):
        logistic_regression(blobs(), parts)
