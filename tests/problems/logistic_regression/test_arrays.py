"""Arrays in .npz files: what is damaged, disguised or too large is refused, and never shown."""

import zipfile

import numpy as np
import pytest

from problems.logistic_regression.arrays import read_arrays
from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.sources import read_dataset

GOOD = dict(
    features=np.array([[0.0, 4321.0], [3.0, 1.0], [2.0, 2.0], [1.0, 0.0]]),
    labels=np.array([0, 1, 2, 1]),
    classes=3,
    scale=5000,
)


class Harmful:
    """What a pickle would run."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('a pickle was loaded')",))


def saved(folder, **changes):
    path = folder / "mine.npz"
    arrays = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
    np.savez(path, **arrays)
    return path


def test_every_kind_of_number_is_read(tmp_path):
    for kind in ("?", "i1", "u1", ">i2", "<u8", "f2", ">f4", "f8"):
        array = np.arange(6).reshape(2, 3).astype(kind)
        for order in "CF":
            np.savez(tmp_path / "a.npz", a=np.array(array, order=order), b=3.0)
            found = read_arrays(tmp_path / "a.npz", ("a",), ("b", "c"))
            assert found.keys() == {"a", "b"} and found["b"].shape == ()
            np.testing.assert_array_equal(found["a"], array)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros((3, 0)))
    assert read_arrays(tmp_path / "a.npz", ("a",), ())["a"].shape == (3, 0)


def test_whole_floats_are_labels(tmp_path):
    found = read_dataset(saved(tmp_path, labels=np.array([0.0, 1.0, 2.0, 1.0])), test=0.25)
    assert found.train.labels.dtype == np.int64
    assert sorted([*found.train.labels, *found.test.labels]) == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 1.5, 2.7, 1])}, "not whole numbers"),
        ({"labels": np.array([0, 1, np.nan, 1])}, "not whole numbers"),
        ({"labels": np.array([0, 1, 1e300, 1])}, "not whole numbers"),
        ({"labels": np.array([0, 1, 2**63 + 5, 1], np.uint64)}, "not whole numbers"),
        ({"labels": np.array([0, 1, -1, 1])}, "not among the classes 0 to 2"),
        ({"labels": np.array([0, 1, 3, 1])}, "not among the classes 0 to 2"),
        ({"labels": np.eye(3)[[0, 1, 2, 1]]}, "2 dimensions"),
        ({"labels": np.array(["0", "1", "4321", "x"])}, "not of numbers"),
        ({"labels": np.array([0, 1, Harmful(), 1], object)}, "not of numbers"),
        ({"labels": np.array([1j, 1, 2, 1])}, "not of numbers"),
        ({"labels": np.arange(3)}, "There are 4 records"),
        ({"labels": None}, "lacks labels"),
        ({"features": np.array([[0.0, np.nan]] * 4)}, r"outside \[0, 1\] or are no numbers"),
        ({"features": np.array([[0.0, -4321.0]] * 4)}, r"outside \[0, 1\]"),
        ({"features": np.zeros((0, 2)), "labels": np.zeros(0, int)}, "Features have shape"),
        ({"features": np.zeros((4, 0))}, "Features have shape"),
        ({"features": np.zeros(4)}, "Features have shape"),
        ({"features": 1}, "Features have shape"),
        ({"features": np.zeros(4, [("a", "f8"), ("b", "i4")])}, "not of numbers"),
        ({"features": np.array([b"4321"] * 4)}, "not of numbers"),
        ({"scale": 0}, "no single positive number as scale"),
        ({"scale": np.inf}, "no single positive number as scale"),
        ({"scale": [5000, 5000]}, "no single positive number as scale"),
        ({"scale": 1e-320, "features": np.ones((4, 2))}, r"outside \[0, 1\]"),
        ({"classes": 3.5}, "no whole number up to"),
        ({"classes": 1e300}, "no whole number up to"),
        ({"classes": 1}, "must be an int of at least 2"),
        ({"writer": np.array([0, 0.5, 1, 1])}, "not whole numbers"),
        ({"writer": np.arange(3)}, "4 records, but writer"),
        ({"test_labels": np.arange(2)}, "test_labels without test_features"),
    ],
)
def test_what_is_no_data_set_is_refused(tmp_path, changes, message):
    with pytest.raises(DatasetError, match=message) as caught:
        read_dataset(saved(tmp_path, **changes))
    assert "4321" not in str(caught.value)


def member(shape, kind="<f8", data=b"", version=b"\x01\x00"):
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + len(head).to_bytes(2, "little") + head + data


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"4321 no archive at all",
        member((2**40, 2**40)),
        member((5,), data=bytes(8)),
        member((1,), data=bytes(100_000)),
        member((-1, -1), data=bytes(8)),
        member((1,), "|O", bytes(8)),
        member((1,), "<f8", bytes(8), version=b"\x09\x00"),
        member((1,), "nonsense", bytes(8)),
        b"\x93NUMPY\x01\x00\x04\x00{'a(",
        b"\x93NUMPY",
    ],
)
def test_damaged_members_are_refused(tmp_path, raw):
    path = saved(tmp_path, features=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("features.npy", raw)
    with pytest.raises(DatasetError, match=r"damaged \.npz file|not of numbers"):
        read_dataset(path)


def test_no_cut_or_changed_archive_ends_otherwise_than_in_words(tmp_path):
    path = saved(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for trial in range(120):
        raw = bytearray(whole)
        if trial % 2:
            raw = raw[: rng.integers(len(raw))]
        else:
            raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
        path.write_bytes(raw)
        try:
            found = read_dataset(path, test=0.25)
        except DatasetError as error:
            assert "4321" not in str(error)
        else:
            # A flipped bit in a date or in an attribute changes nothing.
            rows = np.concatenate([found.train.features, found.test.features])
            np.testing.assert_array_equal(np.sort(rows, 0), np.sort(GOOD["features"] / 5000, 0))


def test_an_archive_that_unpacks_to_far_too_much_is_refused_unread(tmp_path):
    path = saved(tmp_path, features=None)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("features.npy", "w") as stream:
            stream.write(member((2**18, 2**7), "|u1"))
            for _ in range(2**5):
                stream.write(bytes(2**22 + 4))
    assert path.stat().st_size < 2**20
    with pytest.raises(DatasetError, match="would fill the memory"):
        read_dataset(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    with open(path, "wb") as stream:
        np.save(stream, np.ones(3))
    with pytest.raises(DatasetError, match=r"damaged \.npz file"):
        read_dataset(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(DatasetError, match="a folder"):
        read_dataset(path)
    with pytest.raises(DatasetError, match="no data set"):
        read_dataset("a" * 5000)
    with pytest.raises(DatasetError, match="no data set"):
        read_dataset("a\0b")
