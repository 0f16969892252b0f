"""Sources of data sets: scikit-learn's digits, MNIST's or LEAF's files, or arrays in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcvx._arguments import positive_finite

from .arrays import read_arrays
from .dataset import Dataset, Records, held_out, usual_bound
from .errors import DatasetError
from .idx import read_idx
from .leaf import read_leaf
from .numbers import flat, real_numbers, whole_numbers

_MOST_CLASSES = 10_000
_FEMNIST_CLASSES = 62  # digits, capital and small letters
_ARRAYS = ("features", "labels", "classes", "scale")
_TEST_ARRAYS = ("test_features", "test_labels")


def read_dataset(
    source: str | Path = "digits", *, bound: float | None = None, test: float = 0.2, seed: int = 0
) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    source : str or Path
        Name or path of the source, one of

        * ``"digits"``: 1797 images of 8 x 8 pixels that scikit-learn bundles;
        * a folder with the four idx files of MNIST, plain or gzipped;
        * a folder with LEAF's subfolders ``train`` and ``test`` of JSON files (FEMNIST);
        * an .npz file with ``features`` (one row per record, nonnegative), ``labels``, ``classes``
          and ``scale``, the public largest value of a feature; optionally ``writer``, and
          ``test_features``, ``test_labels``.
    bound : float, optional
        Public bound of a record's l2 norm; `usual_bound` if omitted.
    test, seed
        Share of test records and seed of the division, for sources without test records of their
        own.

    Returns
    -------
    Dataset
        Training and test records.

    Raises
    ------
    DatasetError
        If the source does not exist or is broken.
    """
    path = Path(source)
    if source == "digits":
        records, classes = bundled_digits(), 10
        train, tested = held_out(records, test, seed)
    elif path.suffix == ".npz" and os.path.lexists(path):
        train, tested, classes = _arrays(path, test, seed)
    elif os.path.isdir(path / "train"):
        train, tested = _femnist(path)
        classes = _FEMNIST_CLASSES
    elif os.path.isdir(path):  # False for names that the system does not take
        train, tested = (_mnist(path, part) for part in ("train", "t10k"))
        classes = 10
    else:
        raise DatasetError(
            f"There is no data set '{source}'. Write 'digits', or the path of a folder with the "
            "idx files of MNIST, of a folder with LEAF's train and test, or of an .npz file."
        )
    known = usual_bound(train.features.shape[1]) if bound is None else bound
    name = path.name if path.suffix != ".npz" else path.stem
    return Dataset(name, train, tested, classes, known)


def bundled_digits() -> Records:
    """Return scikit-learn's digits, images of 8 x 8 pixels.

    Raises
    ------
    DatasetError
        If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DatasetError(
            "The data set 'digits' comes with scikit-learn, which is not installed. Install it "
            "(pip install 'dpcvx[datasets]'), or give the path of another data set."
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    return Records(pixels / 16, labels.astype(np.int64))


def _mnist(folder: Path, part: str) -> Records:
    images, labels = (
        read_idx(_found(folder, f"{part}-{kind}"))
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    if images.ndim != 3 or labels.ndim != 1:
        raise DatasetError(
            f"The files {part}-* of '{folder}' hold arrays of shapes {images.shape} and "
            f"{labels.shape}; expected are images (count, rows, columns) and labels (count,). "
            "Perhaps a file was renamed."
        )
    return Records(flat(images) / 255, labels.astype(np.int64))


def _found(folder: Path, name: str) -> Path:
    # Some copies have a dot where the original names have a hyphen.
    names = [name, name.replace("-idx", ".idx")]
    for path in (folder / f"{n}{end}" for n in names for end in ("", ".gz")):
        if path.is_file():
            return path
    raise DatasetError(
        f"'{folder}' has no file {name} or {name}.gz, so it is not a copy of MNIST. Its four files "
        "are train-images-idx3-ubyte, train-labels-idx1-ubyte and the same with t10k."
    )


def _femnist(folder: Path) -> tuple[Records, Records]:
    writers: dict[str, int] = {}
    parts = []
    for part in ("train", "test"):
        paths = list((folder / part).glob("*.json"))
        if not paths:
            raise DatasetError(
                f"'{folder / part}' has no .json files, so there are no records. LEAF's "
                "preprocess.sh writes them to data/train and data/test."
            )
        found = read_leaf(paths, writers)
        # Ink as 1, as in MNIST and in the code of Ryu and Kim: a record of zeros is a blank page.
        parts.append(Records(1 - found.features, found.labels, found.writer))
    return parts[0], parts[1]


def _arrays(path: Path, test: float, seed: int) -> tuple[Records, Records, int]:
    arrays = read_arrays(path, _ARRAYS, ("writer", *_TEST_ARRAYS))
    scale, classes = (_constant(arrays, name, path) for name in ("scale", "classes"))
    if classes != math.floor(classes) or classes > _MOST_CLASSES:
        raise DatasetError(
            f"'{path}' has a number of classes that is no whole number up to {_MOST_CLASSES}. Save "
            "classes=10 or the like."
        )
    records = _labeled(path, arrays, "features", "labels", scale, arrays.get("writer"))
    given = [name for name in _TEST_ARRAYS if name in arrays]
    if not given:
        return *held_out(records, test, seed), int(classes)
    if len(given) < len(_TEST_ARRAYS):
        other = next(name for name in _TEST_ARRAYS if name not in given)
        raise DatasetError(f"'{path}' has {given[0]} without {other}. Save both, or none.")
    return records, _labeled(path, arrays, *_TEST_ARRAYS, scale), int(classes)


def _constant(arrays: Mapping[str, NDArray[Any]], name: str, path: Path) -> float:
    value = arrays[name]
    if value.size != 1 or not positive_finite(value.item()):
        raise DatasetError(
            f"'{path}' has no single positive number as {name}. Save a public constant, such as "
            f"{name}={255 if name == 'scale' else 10}."
        )
    return float(value.item())


def _labeled(
    path: Path,
    arrays: Mapping[str, NDArray[Any]],
    features: str,
    labels: str,
    scale: float,
    writer: NDArray[Any] | None = None,
) -> Records:
    pixels = real_numbers(arrays[features], f"{features} of '{path}'")
    with np.errstate(over="ignore", invalid="ignore"):
        # `Records` refuses what overflows here.
        rows = flat(pixels) / scale
    return Records(
        rows,
        whole_numbers(arrays[labels], f"{labels} of '{path}'"),
        None if writer is None else whole_numbers(writer, f"writer of '{path}'"),
    )
