"""MNIST's file format."""

import gzip

import numpy as np
import pytest

from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.idx import read_idx
from tests.problems.logistic_regression.instances import write_idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("array", [ARRAY, ARRAY.ravel(), np.zeros((0, 3), np.uint8)])
def test_arrays_come_back(tmp_path, array, zipped):
    write_idx(tmp_path / "file", array, zipped=zipped)
    found = read_idx(tmp_path / "file")
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)


def zipped(raw):
    """Without the time, which would be part of a test's name."""
    return gzip.compress(raw, mtime=0)


@pytest.mark.parametrize(
    "raw, message",
    [
        (b"", "magic number"),
        (b"\x89PNG and so on", "magic number"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "magic number"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "states the shape (5,), but holds 3 bytes"),
        (b"\0\0\x08\x03\0\0\0\x05", "cut short"),
        (b"\0\0\x08\x01\0\0\0\x02abc", "holds more than 2 bytes"),
        (b"\0\0\x08\x00a", "0-dimensional shape"),
        (b"\0\0\x08\xff" + b"\xff" * 1020, "255-dimensional shape"),
        (b"\0\0\x08\x04" + b"\xff" * 16, "no file of images or labels has"),
        (b"\x1f\x8bnot gzip at all", "damaged gzip file"),
        (zipped(b"\0\0\x08\x01\x40\0\0\0" + bytes(10)), "no file of images or labels"),
        (zipped(b"\0\0\x08\x01\0\0\0\x01" + bytes(10**7)), "holds more than 1 bytes"),
    ],
)
def test_other_files_are_refused(tmp_path, raw, message):
    (tmp_path / "file").write_bytes(raw)
    with pytest.raises(DatasetError) as error:
        read_idx(tmp_path / "file")
    assert message in str(error.value)


def test_a_cut_gzip_file_is_refused(tmp_path):
    write_idx(tmp_path / "file", ARRAY, zipped=True)
    (tmp_path / "file").write_bytes((tmp_path / "file").read_bytes()[:-12])
    with pytest.raises(DatasetError, match="damaged gzip file"):
        read_idx(tmp_path / "file")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="no such file"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DatasetError, match="a folder"):
        read_idx(tmp_path)
