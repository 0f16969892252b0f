"""Federated learning at the size of FEMNIST: 195 writers with 48,608 entries, in LEAF's files."""

import time

import numpy as np
import pytest

from problems.logistic_regression.experiment import Method, run
from problems.logistic_regression.partition import Partition
from problems.logistic_regression.sources import read_dataset
from problems.logistic_regression.study import logistic_regression
from tests.problems.logistic_regression.instances import write_leaf


@pytest.mark.timed
def test_writers_of_femnist_plan_and_run_in_a_minute(tmp_path):
    """It takes 10 seconds of a core; with a loop over bounded entries it took minutes."""
    rng = np.random.default_rng(0)

    def images(count):
        pixels = rng.integers(0, 256, (count, 784)) / 255
        return pixels.round(4).tolist(), rng.integers(0, 62, count).tolist()

    for first in range(0, 195, 100):
        names = [f"f{k:04d}" for k in range(first, min(first + 100, 195))]
        for part, count in (("train", 18), ("test", 2)):
            made = {name: images(count) for name in names}
            write_leaf(tmp_path, {(part, f"all_data_{first}.json"): made})
    began = time.perf_counter()
    dataset = read_dataset(tmp_path)
    study = logistic_regression(dataset, Partition("writer", None).of(dataset))
    (trace,) = run(study, Method(rounds=3, release_epsilon=0.5), [0])
    assert len(study.parts) == 195 and study.W.shape == (784, 62)
    assert len(trace.released) == 3 and trace.guarantee.kind == "worst-case"
    assert time.perf_counter() - began < 60
