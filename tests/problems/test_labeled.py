"""Labeled records: what is refused, and losses and slopes against the formula."""

import numpy as np
import pytest

import dpcvx as dp
from problems.labeled import Records, data_of, losses, slopes

RNG = np.random.default_rng(0)
PARTS = [Records(RNG.normal(size=(m, 3)), RNG.choice([-1.0, 1.0], m)) for m in (4, 7)]


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.zeros((2, 3)), np.zeros(2), "-1 or 1"),
        (np.zeros((2, 3)), np.ones(3), "2 records"),
        (np.full((2, 3), np.nan), np.ones(2), "finite"),
        (np.full((2, 3), np.inf), np.ones(2), "finite"),
        (np.zeros((0, 3)), np.ones(0), "at least one record"),
        (np.zeros(3), np.ones(3), "one row per record"),
    ],
)
def test_broken_records_are_refused(features, labels, message):
    with pytest.raises(dp.ModelError, match=message):
        Records(features, labels)


def test_losses_and_slopes_are_those_of_the_formula():
    X = RNG.normal(size=(5, 2, 3))  # of two agents at five times

    def loss(part, x):
        rows = zip(part.labels, part.features, strict=True)
        return np.mean([np.log(1 + np.exp(-y * z @ x)) for y, z in rows])

    for at in X:
        assert losses(PARTS, at[0]) == pytest.approx(sum(loss(part, at[0]) for part in PARTS))
        for i, part in enumerate(PARTS):
            steps = 1e-6 * np.eye(3)
            around = [(loss(part, at[i] + h) - loss(part, at[i] - h)) / 2e-6 for h in steps]
            assert slopes(PARTS, at)[i] == pytest.approx(around, abs=1e-8)
    np.testing.assert_allclose(slopes(PARTS, X)[3], slopes(PARTS, X[3]), rtol=1e-12)
    assert losses(PARTS, X).shape == (5, 2) and slopes(PARTS, X).shape == X.shape


def test_data_have_the_names_of_the_studies():
    data = data_of(PARTS)
    assert list(data) == ["features 0", "labels 0", "features 1", "labels 1"]
    assert data["labels 1"] is PARTS[1].labels
