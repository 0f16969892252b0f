"""Reader of the LEAF benchmark's JSON files (Caldas et al.), with records by user.

Each file has ``users``, ``num_samples`` and ``user_data``, which maps a user to ``x`` (a list of
flat images) and ``y`` (labels).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import text
from .dataset import Records
from .errors import DatasetError
from .numbers import real_numbers, whole_numbers

_EXPECTED = (
    "Expected is JSON with 'users' and 'user_data', whose users have as many images 'x' as labels "
    "'y': the files that preprocess.sh writes to data/train and data/test."
)


def read_leaf(paths: Sequence[Path], writers: dict[str, int]) -> Records:
    """Read the records of all users in some files.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    writers : dict of str to int
        Numbers of the users that are known already; new ones are added.

    Returns
    -------
    Records
        Records with the files' pixel values: in FEMNIST, the white paper is 1.

    Raises
    ------
    DatasetError
        If a file cannot be read or is not of this format; records are never shown.
    """
    features: list[Any] = []
    labels: list[Any] = []
    writer: list[int] = []
    for path in sorted(paths):
        for user, images, classes in _users(path):
            features += images
            labels += classes
            writer += [writers.setdefault(user, len(writers))] * len(classes)
    folder = paths[0].parent
    if not features:
        raise DatasetError(f"The files in '{folder}' have no records. {_EXPECTED}")
    # Lengths first: numpy makes no array of rows that differ.
    if not all(isinstance(each, list) and len(each) == len(features[0]) for each in features):
        table = np.zeros(0)
    else:
        table = real_numbers(features, f"The images of '{folder}'")
    if table.ndim != 2:
        raise DatasetError(
            f"The images of '{folder}' are not flat lists of one length, so they are not records "
            "of one model. FEMNIST has 784 pixels each."
        )
    numbers = whole_numbers(labels, f"the labels of '{folder}'")
    return Records(table, numbers, np.array(writer, dtype=np.int64))


def _users(path: Path) -> list[tuple[str, list[Any], list[Any]]]:
    """Return the users of a file with their images and labels."""
    source = text(path, f"'{path}'", DatasetError, _EXPECTED)
    try:
        document = json.loads(source)
        users, data, counts = document["users"], document["user_data"], document.get("num_samples")
        found = [(user, data[user]["x"], data[user]["y"]) for user in users]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(
            f"'{path}' is not a data file of LEAF ({type(error).__name__}). {_EXPECTED}"
        ) from None
    lists = [each for _, *both in found for each in both]
    if not isinstance(users, list) or not all(isinstance(each, list) for each in lists):
        raise DatasetError(f"'{path}' is not a data file of LEAF (no lists). {_EXPECTED}")
    if any(len(x) != len(y) for _, x, y in found):
        raise DatasetError(
            f"'{path}' is not a data file of LEAF: a user has more images than labels, or fewer. "
            f"{_EXPECTED}"
        )
    if len(set(users)) < len(users) or set(users) != set(data):
        raise DatasetError(
            f"'{path}' lists a user twice, or has data of a user that it does not list; records "
            "would count twice, or be left out. Write the file again with preprocess.sh."
        )
    if counts is not None and counts != [len(y) for _, _, y in found]:
        raise DatasetError(
            f"'{path}' states other numbers of records in 'num_samples' than it has: some were "
            "lost. Write the file again with preprocess.sh."
        )
    return found
