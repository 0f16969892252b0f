"""Cost and test error."""

import numpy as np
import pytest

import dpcvx as dp
from problems.logistic_regression.metrics import Metrics
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import blobs


def test_costs_are_those_of_the_problem():
    dataset = blobs(bound=0.5)  # most records are clipped
    study = logistic_regression(dataset, Partition("imbalanced", 3).of(dataset), regularizer=0.1)
    result = study.problem.plan(dp.LinearizedADMM(penalty=1e6), mechanism=None, rounds=2).run(
        verbose=False
    )
    expected = dp.not_private.objective(study.problem, result.last)
    assert Metrics.of(study).cost(result.last[study.W]) == pytest.approx(expected, rel=1e-4)


def test_errors_are_shares_of_the_test_records():
    dataset = blobs()
    study = logistic_regression(dataset, Partition("iid", 2).of(dataset))
    metrics = Metrics.of(study)
    constant = np.zeros(study.W.shape)
    constant[:, 2] = 1.0
    assert metrics.error(constant) == pytest.approx(np.mean(dataset.test.labels != 2))
    assert metrics.cost(0 * constant) == pytest.approx(np.log(3))
    # Sums of exponentials that overflow.
    assert np.isfinite(metrics.cost(1e4 * constant))
