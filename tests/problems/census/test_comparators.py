"""Perturbations at one total: who is compared, and in which order they end."""

import numpy as np
import pytest

from problems.census.comparators import compared
from problems.census.experiment import Traces, run
from problems.census.measures import Measures
from problems.census.methods import METHODS, Budget
from problems.census.records import made_records, shared_out
from problems.census.study import census


def test_exact_steps_are_no_better_than_first_order_ones_and_growing_penalties_are():
    """Two runs of 50 rounds at (10, 1e-6), fixed seeds; D is 2.7 times as large in the end."""
    records = made_records(800)
    networks = [(Measures.of(shared_out(records, 5, 100, seed=seed)), 7) for seed in range(2)]
    study, budget = census(5, 100, 14), Budget.of(10.0, 50, "Gaussian")
    known = [
        Traces(
            method,
            tuple(run(study, method, own, 7, 50, budget, k) for k, (own, _) in enumerate(networks)),
        )
        for method in METHODS[2:6]
    ]
    rows = {row.name: row for row in compared(study, networks, 50, 10.0, known)}
    assert len(rows) == 7
    for row in rows.values():
        assert 9.9 < row.epsilon <= 10 * (1 + 1e-5)
        assert row.gaps.shape == (2, 51)
        np.testing.assert_allclose(row.gaps[:, 0], 1)
    ends = {name: row.gaps[:, -20:].mean() for name, row in rows.items()}
    dual, penalty = (f"{name} perturbation" for name in ("Dual", "Penalty"))
    for kind in ("exact", "first order"):
        assert ends[f"{penalty}, {kind}"] < 0.7 * ends[f"{dual}, {kind}"]
    assert ends[f"{dual}, first order"] < ends[f"{dual}, exact"]
    assert ends[f"{dual}, exact"] == pytest.approx(ends["Output perturbation, exact"], rel=0.3)
    assert ends[f"{dual}, exact, noise as in the paper"] > 5 * ends[f"{dual}, exact"]
    assert ends["DP-ADMM, with a server"] > ends[f"{penalty}, exact"]
