"""Predictions of runs that are too large to be measured."""

import pytest

from tests.benchmarks.speed.predicted import Costs


def test_workers_share_local_steps_but_not_the_exchange():
    costs = Costs(planning=1e-3, local=2e-5, memory=1e4, alone=4e-3, each=1e-5)
    assert costs.round(1_000_000, 1) == pytest.approx(4e-3 + 10 + 20)
    assert costs.round(1_000_000, 20) == pytest.approx(4e-3 + 10 + 1)
    assert costs.round(0, 20) == pytest.approx(4e-3)
