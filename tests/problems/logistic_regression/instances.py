"""Small made-up data sets, and writers of the official file formats."""

import json

import numpy as np

from problems.logistic_regression.dataset import Dataset, Records
from problems.logistic_regression.idx import write_idx


def blobs(count=60, features=6, classes=3, seed=0, bound=1.5, writers=None):
    """Noisy prototypes of classes; a quarter as many test records."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 1, size=(classes, features))

    def drawn(size):
        labels = np.arange(size) % classes
        values = np.clip(centers[labels] + 0.15 * rng.normal(size=(size, features)), 0, 1)
        writer = None if writers is None else np.arange(size) * writers // size
        return Records(values, labels, writer)

    return Dataset("blobs", drawn(count), drawn(count // 4), classes, bound)


def write_mnist(folder, *, zipped=False, dots=False):
    """Twelve training and five test images of 4 x 3 pixels; returns the arrays by name."""
    rng = np.random.default_rng(1)
    arrays = {}
    for part, count in (("train", 12), ("t10k", 5)):
        arrays[part] = rng.integers(0, 256, (count, 4, 3)), np.arange(count) % 10
        for kind, array in zip(
            ("images-idx3-ubyte", "labels-idx1-ubyte"), arrays[part], strict=True
        ):
            name = f"{part}-{kind}".replace("-idx", ".idx" if dots else "-idx")
            write_idx(folder / (name + (".gz" if zipped else "")), array, zipped=zipped)
    return arrays


def write_leaf(folder, users):
    """LEAF's layout; `users` maps a part and a file name to {user: (images, labels)}."""
    for (part, name), content in users.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        document = {
            "users": list(content),
            "num_samples": [len(labels) for _, labels in content.values()],
            "user_data": {u: {"x": x, "y": y} for u, (x, y) in content.items()},
        }
        (folder / part / name).write_text(json.dumps(document))
