"""The JSON files of the LEAF benchmark (Caldas et al.): records by user, in many files.

Each file has ``users``, ``num_samples`` and ``user_data``, which maps a user to ``x`` (a list of
flat images) and ``y`` (labels).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from problems.logistic_regression.dataset import Records
from problems.logistic_regression.errors import DatasetError


def read_leaf(paths: Sequence[Path], writers: dict[str, int]) -> Records:
    """Read the users of some files.

    Parameters
    ----------
    paths : sequence of Path
    writers : dict of str to int
        Numbers of the users that are known already; new ones are added.

    Returns
    -------
    Records
        Pixels as in the files: FEMNIST is written on white, which is 1.

    Raises
    ------
    DatasetError
        If a file is not of this format.
    """
    features: list[Any] = []
    labels: list[Any] = []
    writer: list[int] = []
    for path in sorted(paths):
        try:
            content = json.loads(path.read_text())
            for user in content["users"]:
                own = content["user_data"][user]
                if len(own["x"]) != len(own["y"]):
                    raise ValueError("a user has more images than labels, or fewer")
                features += own["x"]
                labels += own["y"]
                writer += [writers.setdefault(user, len(writers))] * len(own["y"])
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(
                f"'{path}' is not a data file of LEAF ({type(error).__name__}). Expected is JSON "
                "with 'users' and 'user_data', whose users have as many images 'x' as labels 'y': "
                "the files that preprocess.sh writes to data/train and data/test."
            ) from None
    try:
        table = np.array(features, dtype=float)
    except ValueError:
        table = np.zeros(0)
    if table.ndim != 2:
        raise DatasetError(
            f"The images of '{paths[0].parent}' are not flat lists of one length, so they are not "
            "records of one model. FEMNIST has 784 pixels each."
        )
    return Records(table, np.array(labels, dtype=np.int64), np.array(writer, dtype=np.int64))
