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
