"""The closed form, the bound that the package derives, and the papers' maximum over the data."""

import numpy as np
import pytest

import dpcvx as dp
from problems.logistic_regression.dataset import Dataset, Records
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.sensitivity import over_the_data, worst_case
from problems.logistic_regression.sources import read_dataset
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import blobs


@pytest.mark.parametrize(
    "dataset", [blobs(), blobs(bound=0.3, classes=5), read_dataset()], ids=["blobs", "5", "digits"]
)
def test_the_package_derives_the_closed_form(dataset):
    study = logistic_regression(dataset, Partition("iid", 2).of(dataset), regularizer=0.1)
    plan = study.problem.plan(dp.LinearizedADMM(penalty=1.0), rounds=1, epsilon=1.0, delta=1e-6)
    for sensitivity in [agent.sensitivity for agent in plan.agents]:
        assert sensitivity is not None and sensitivity.certificate == "derived"
        for p, value in ((1, sensitivity.l1), (2, sensitivity.l2)):
            expected = worst_case(dataset, study.total, p)
            # The excess covers rounding.
            assert expected <= value <= (1 + 1e-8) * expected


def test_the_closed_form_is_approached_in_l2_and_l1():
    # A record on the diagonal whose wrong class has all the weight.
    J, classes, bound, total = 9, 3, 2.0, 10
    x = np.full(J, bound / np.sqrt(J))
    one = Records(x[None, :], np.array([0]))
    dataset = Dataset("one", one, one, classes, bound)
    W = np.zeros((J, classes))
    W[:, 1] = 50.0
    assert over_the_data(one, dataset.one_hot(one.labels), W, total) == pytest.approx(
        worst_case(dataset, total, 2)
    )
    contribution = np.outer(x, [-1.0, 1.0, 0.0]) / total
    assert np.abs(contribution).sum() == pytest.approx(worst_case(dataset, total, 1))


def test_the_papers_maximum_is_smaller_and_tells_whether_a_record_is_there():
    dataset = read_dataset()
    study = logistic_regression(dataset, Partition("iid", 10).of(dataset))
    W = np.random.default_rng(0).uniform(-0.1, 0.1, size=study.W.shape)
    own = dataset.clipped(dataset.train.take(study.parts[0]))

    def maximum(records):
        return over_the_data(records, dataset.one_hot(records.labels), W, study.total)

    with_all = maximum(own)
    assert with_all < 0.9 * worst_case(dataset, study.total, 2)
    changes = np.array(
        [maximum(own.take(np.delete(np.arange(own.count), i))) for i in range(own.count)]
    )
    # One record has the maximum. Without it, noise of another scale is drawn: a distinguisher.
    assert np.count_nonzero(changes < with_all) == 1
    assert changes.min() < 0.999 * with_all
