"""LEAF's file format."""

import json

import numpy as np
import pytest

from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.leaf import read_leaf
from tests.problems.logistic_regression.instances import write_leaf


def test_users_of_several_files_are_numbered_once(tmp_path):
    write_leaf(
        tmp_path,
        {
            ("train", "b.json"): {"ann": ([[0.5, 0.5]], [2])},
            ("train", "a.json"): {"bob": ([[1, 0], [0, 1]], [0, 61]), "ann": ([[0, 0]], [1])},
        },
    )
    writers = {"cat": 0}
    found = read_leaf(list((tmp_path / "train").iterdir()), writers)
    assert writers == {"cat": 0, "bob": 1, "ann": 2}
    np.testing.assert_array_equal(found.features, [[1, 0], [0, 1], [0, 0], [0.5, 0.5]])
    assert found.labels.tolist() == [0, 61, 1, 2]
    assert found.writer is not None and found.writer.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        json.dumps({"users": ["a"]}),
        json.dumps({"users": ["a"], "user_data": {}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": [[0.1]], "y": [1, 2]}}}),
        json.dumps({"users": "a", "user_data": {"a": {"x": [[0.1]], "y": [1]}}}),
        json.dumps({"users": ["a"], "user_data": {"a": {"x": "4321", "y": [4, 3, 2, 1]}}}),
        json.dumps({"users": [["a"]], "user_data": {"a": {"x": [[0.1]], "y": [1]}}}),
        "[" * 100_000,
    ],
)
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(DatasetError, match="is not a data file of LEAF"):
        read_leaf([tmp_path / "file.json"], {})


def test_images_of_different_lengths_are_refused(tmp_path):
    write_leaf(tmp_path, {("train", "a.json"): {"bob": ([[1, 0], [1]], [0, 1])}})
    with pytest.raises(DatasetError, match="not flat lists of one length"):
        read_leaf([tmp_path / "train" / "a.json"], {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["4321", 1]}, "not all real numbers"),
        ({"y": ["x4321", 1]}, "not all real numbers"),
        ({"y": [1.5, 1]}, "not whole numbers"),
        ({"y": [None, 1]}, "not all real numbers"),
        ({"y": [float("nan"), 1]}, "not whole numbers"),
        ({"y": [[1], [2]]}, "2 dimensions"),
        ({"y": [10**400, 1]}, "not all real numbers"),
        ({"x": [["4321", 0], [0, 0]]}, "not all real numbers"),
        ({"x": [["secret", 0], [0, 0]]}, "not all real numbers"),
        ({"x": [[None, 0], [0, 0]]}, "not all real numbers"),
        ({"x": [[float("nan"), 0], [0, 0]]}, "outside"),
        ({"x": [[4321, 0], [0, 0]]}, "outside"),
        ({"x": [4321, 0]}, "not flat lists"),
        ({"x": [[[4321]], [[0]]]}, "not flat lists"),
        ({"x": [], "y": []}, "no records"),
    ],
)
def test_records_that_are_no_numbers_are_refused_unshown(tmp_path, change, message):
    user = {"x": [[1, 0], [0, 1]], "y": [0, 1], **change}
    document = {"users": ["ann"], "user_data": {"ann": user}}
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=message) as caught:
        read_leaf([tmp_path / "a.json"], {})
    assert "4321" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": ["ann", "ann"]}, "lists a user twice"),
        ({"users": []}, "does not list"),
        ({"num_samples": [3]}, "num_samples"),
        ({"num_samples": 2}, "num_samples"),
    ],
)
def test_records_that_would_be_lost_or_doubled_are_refused(tmp_path, change, message):
    data = {"ann": {"x": [[1, 0], [0, 1]], "y": [0, 1]}}
    (tmp_path / "a.json").write_text(json.dumps({"users": ["ann"], "user_data": data, **change}))
    with pytest.raises(DatasetError, match=message):
        read_leaf([tmp_path / "a.json"], {})
