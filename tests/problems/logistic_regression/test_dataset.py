"""Records, their public constants, and held-out records."""

import numpy as np
import pytest

import dpcvx as dp
from problems.logistic_regression.dataset import Dataset, Records, held_out, usual_bound
from problems.logistic_regression.errors import DatasetError

FEATURES, LABELS = np.array([[0.0, 1.0], [0.5, 0.5], [1.0, 1.0]]), np.array([0, 1, 1])


def records(**changed):
    return Records(**{"features": FEATURES, "labels": LABELS, **changed})


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"features": np.ones(3)}, "one row per record"),
        ({"features": np.ones((3, 0))}, "at least one of each"),
        ({"labels": np.array([0, 1])}, "3 records, but labels"),
        ({"labels": np.array([0.0, 1.0, 1.0])}, "type float64"),
        ({"writer": np.array([0, 1])}, "3 records, but writer"),
        ({"features": 2 * FEATURES}, "outside [0, 1]"),
        ({"features": FEATURES - 1}, "outside [0, 1]"),
        ({"features": np.where(FEATURES == 0.5, np.nan, FEATURES)}, "no numbers"),
    ],
)
def test_broken_records_are_refused(changed, message):
    with pytest.raises(DatasetError) as error:
        records(**changed)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "classes, bound, message",
    [
        (1, 1.0, "classes=1"),
        (2.0, 1.0, "classes=2.0"),
        (2, 0.0, "bound=0.0"),
        (2, np.inf, "bound=inf"),
    ],
)
def test_broken_constants_are_refused(classes, bound, message):
    with pytest.raises(DatasetError) as error:
        Dataset("d", records(), records(), classes, bound)
    assert message in str(error.value)


def test_labels_need_a_column_of_the_model():
    with pytest.raises(DatasetError) as error:
        Dataset("d", records(), records(labels=np.array([0, 1, 2])), 2, 1.0)
    assert "not among the classes 0 to 1" in str(error.value)


def test_training_and_test_records_have_the_same_features():
    with pytest.raises(DatasetError) as error:
        Dataset("d", records(), records(features=np.ones((3, 4))), 2, 1.0)
    assert "2 features, test records 4" in str(error.value)


def test_long_records_are_scaled_down_and_short_ones_kept():
    dataset = Dataset("d", records(), records(), 2, 1.0)
    clipped = dataset.clipped(dataset.train).features
    np.testing.assert_allclose(np.linalg.norm(clipped, axis=1), [1, np.sqrt(0.5), 1])
    np.testing.assert_array_equal(clipped[:2], FEATURES[:2])
    np.testing.assert_allclose(clipped[2], np.sqrt(0.5))
    assert dataset.rows == dp.Rows(1.0, relation="add_or_remove_one", clip_rows=True)


def test_one_hot_rows_and_taking_keep_the_order():
    dataset = Dataset("d", records(writer=np.array([5, 6, 7])), records(), 2, 1.0)
    np.testing.assert_array_equal(dataset.one_hot(LABELS), [[1, 0], [0, 1], [0, 1]])
    taken = dataset.train.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.features, FEATURES[[2, 0]])
    assert taken.labels.tolist() == [1, 0]
    assert taken.writer is not None and taken.writer.tolist() == [7, 5]
    assert dataset.features == 2


def test_the_usual_bound_is_a_constant_of_the_format():
    assert usual_bound(64) == 4
    assert usual_bound(784) == 14


def test_held_out_records_are_a_seeded_division():
    many = Records(np.linspace(0, 1, 20)[:, None], np.arange(20))
    train, test = held_out(many, 0.25, 3)
    assert (train.count, test.count) == (15, 5)
    assert sorted([*train.labels, *test.labels]) == list(range(20))
    again, _ = held_out(many, 0.25, 3)
    other, _ = held_out(many, 0.25, 4)
    assert again.labels.tolist() == train.labels.tolist() != other.labels.tolist()
    for share in (1e-9, 1 - 1e-9):
        assert min(part.count for part in held_out(many, share, 0)) == 1


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_held_out_records_need_a_share(share):
    with pytest.raises(DatasetError, match="leave a part empty"):
        held_out(records(), share, 0)
