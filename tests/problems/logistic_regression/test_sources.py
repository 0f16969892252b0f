"""Every kind of source, by tiny files in the official formats."""

import sys

import numpy as np
import pytest

from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.sources import read_dataset
from tests.problems.logistic_regression.instances import write_leaf, write_mnist


def test_the_bundled_digits():
    digits = read_dataset()
    assert (digits.name, digits.classes, digits.features, digits.bound) == ("digits", 10, 64, 4.0)
    assert (digits.train.count, digits.test.count) == (1438, 359)
    assert digits.train.features.max() == 1.0
    assert np.array_equal(np.unique(digits.train.labels), np.arange(10))
    again = read_dataset("digits")
    np.testing.assert_array_equal(again.train.features, digits.train.features)
    assert read_dataset(bound=3.0, test=0.5).test.count == 898


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DatasetError, match="scikit-learn, which is not installed"):
        read_dataset()


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dots", [False, True])
def test_mnist(tmp_path, zipped, dots):
    arrays = write_mnist(tmp_path, zipped=zipped, dots=dots)
    found = read_dataset(tmp_path)
    for part, records in (("train", found.train), ("t10k", found.test)):
        images, labels = arrays[part]
        np.testing.assert_allclose(records.features, images.reshape(len(images), 12) / 255)
        np.testing.assert_array_equal(records.labels, labels)
    assert (found.classes, found.features, found.bound) == (10, 12, np.sqrt(12) / 2)
    assert found.train.writer is None


def test_incomplete_copies_of_mnist_are_refused(tmp_path):
    write_mnist(tmp_path)
    labels, images = tmp_path / "t10k-labels-idx1-ubyte", tmp_path / "train-images-idx3-ubyte"
    images.write_bytes(labels.read_bytes())
    with pytest.raises(DatasetError, match="Perhaps a file was renamed"):
        read_dataset(tmp_path)
    write_mnist(tmp_path)
    labels.unlink()
    with pytest.raises(DatasetError, match="no file t10k-labels-idx1-ubyte"):
        read_dataset(str(tmp_path))


def test_femnist_has_writers_and_ink_as_one(tmp_path):
    users = {"ann": ([[1.0] * 4, [0.0] * 4], [0, 61]), "bob": ([[0.25] * 4], [10])}
    write_leaf(
        tmp_path,
        {("train", "all_data_0.json"): users, ("test", "x.json"): {"bob": ([[1.0] * 4], [3])}},
    )
    found = read_dataset(tmp_path)
    assert found.classes == 62
    np.testing.assert_allclose(found.train.features[:, 0], [0.0, 1.0, 0.75])
    assert found.train.writer is not None and found.train.writer.tolist() == [0, 0, 1]
    assert found.test.writer is not None and found.test.writer.tolist() == [1]


def test_femnist_needs_both_parts(tmp_path):
    write_leaf(tmp_path, {("train", "a.json"): {"ann": ([[1.0]], [0])}})
    with pytest.raises(DatasetError, match="has no .json files"):
        read_dataset(tmp_path)


def test_arrays_with_and_without_test_records(tmp_path):
    path = tmp_path / "mine.npz"
    images, labels = np.arange(40).reshape(10, 2, 2), np.arange(10) % 3
    np.savez(path, features=images, labels=labels, classes=3, scale=40, writer=np.arange(10))
    found = read_dataset(path, test=0.3)
    assert (found.name, found.features, found.classes) == ("mine", 4, 3)
    assert (found.train.count, found.test.count) == (7, 3)
    assert found.train.features.max() <= 39 / 40
    assert found.train.writer is not None
    np.testing.assert_array_equal(found.train.writer % 3, found.train.labels)
    arrays = dict(features=images, labels=labels, classes=3, scale=40)
    np.savez(path, **arrays, test_features=images[:2], test_labels=labels[:2])
    assert (read_dataset(path).train.count, read_dataset(path).test.count) == (10, 2)
    np.savez(path, **arrays, test_features=images[:2])
    with pytest.raises(DatasetError, match="test_features without test_labels"):
        read_dataset(path)


def test_arrays_without_their_public_constants_are_refused(tmp_path):
    np.savez(tmp_path / "mine.npz", features=np.ones((4, 2)), labels=np.zeros(4, int))
    with pytest.raises(DatasetError, match="lacks classes, scale"):
        read_dataset(tmp_path / "mine.npz")


def test_there_is_no_such_source(tmp_path):
    with pytest.raises(DatasetError, match="no data set 'nothing'"):
        read_dataset("nothing")
