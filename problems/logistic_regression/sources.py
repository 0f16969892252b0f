"""Where data sets come from: bundled, MNIST's files, LEAF's files, or arrays in one file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problems.logistic_regression.dataset import (
    Dataset,
    Records,
    held_out,
    usual_bound,
)
from problems.logistic_regression.errors import DatasetError
from problems.logistic_regression.idx import read_idx
from problems.logistic_regression.leaf import read_leaf

_FEMNIST_CLASSES = 62  # digits, capital and small letters
_ARRAYS = ("features", "labels", "classes", "scale")


def read_dataset(
    source: str | Path = "digits", *, bound: float | None = None, test: float = 0.2, seed: int = 0
) -> Dataset:
    """Read a data set.

    Parameters
    ----------
    source : str or Path
        One of

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

    Raises
    ------
    DatasetError
        If there is no such source or it is broken.
    """
    path = Path(source)
    if source == "digits":
        records, classes = _digits()
        train, tested = held_out(records, test, seed)
    elif path.is_file() and path.suffix == ".npz":
        train, tested, classes = _arrays(path, test, seed)
    elif path.is_dir() and (path / "train").is_dir():
        train, tested = _femnist(path)
        classes = _FEMNIST_CLASSES
    elif path.is_dir():
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


def _digits() -> tuple[Records, int]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DatasetError(
            "The data set 'digits' comes with scikit-learn, which is not installed. Install it "
            "(pip install 'dpcvx[datasets]'), or give the path of another data set."
        ) from None
    pixels, labels = load_digits(return_X_y=True)
    return Records(pixels / 16, labels.astype(np.int64)), 10


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
    return Records(images.reshape(images.shape[0], -1) / 255, labels.astype(np.int64))


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
    with np.load(path, allow_pickle=False) as content:
        arrays = {name: content[name] for name in content.files}
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise DatasetError(
            f"'{path}' lacks {', '.join(missing)}. Save it with numpy.savez(path, features=..., "
            "labels=..., classes=10, scale=255); classes and scale are public constants."
        )
    scale, classes = float(arrays["scale"]), int(arrays["classes"])
    records = Records(
        _rows(arrays["features"]) / scale, arrays["labels"].astype(np.int64), arrays.get("writer")
    )
    if "test_features" not in arrays:
        return *held_out(records, test, seed), classes
    if "test_labels" not in arrays:
        raise DatasetError(f"'{path}' has test_features without test_labels. Save both, or none.")
    labels = arrays["test_labels"].astype(np.int64)
    return records, Records(_rows(arrays["test_features"]) / scale, labels), classes


def _rows(features: NDArray[np.generic]) -> NDArray[np.float64]:
    return features.reshape(features.shape[0], -1).astype(float) if features.ndim else np.zeros(0)
