"""Made-up images in MNIST's size and official files, for a machine without MNIST.

Images are scikit-learn's digits of 8 x 8 pixels, enlarged to 20 x 20, slightly turned, scaled and
moved, with thicker or thinner strokes, in the middle of 28 x 28. Training and test images are made
from different digits.

    python -m problems.logistic_regression.made_up FOLDER        # 60,000 and 10,000, half a minute
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from ..commands import count, folder
from .dataset import Records, held_out
from .idx import write_idx
from .sources import bundled_digits

_SIDE, _SMALL = 28, 8
# Standard deviations of the angle in radians, of the size's logarithm, of the place in pixels.
_TURN, _SCALE, _MOVE = 0.15, 0.08, 1.2
# Pixels of an original image per pixel of the image enlarged to 20 x 20.
_RATIO = _SMALL / 20


def made_up(images: Records, number: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Draw images of 28 x 28 pixels with their labels.

    Parameters
    ----------
    images : Records
        Images of 8 x 8 pixels to draw from.
    number, seed : int
        Number of images, and seed of the draw.

    Returns
    -------
    images : ndarray of uint8, shape (number, 28, 28)
        The images.
    labels : ndarray of uint8, shape (number,)
        Their labels.
    """
    rng = np.random.default_rng(seed)
    which = rng.integers(images.count, size=number)
    drawn = np.empty((number, _SIDE, _SIDE), dtype=np.uint8)
    turns, sizes = _TURN * rng.normal(size=number), np.exp(_SCALE * rng.normal(size=number))
    moves, powers = _MOVE * rng.normal(size=(number, 2)), rng.uniform(0.7, 1.5, size=number)
    for k, one in enumerate(which):
        c, s = np.cos(turns[k]), np.sin(turns[k])
        back = _RATIO / sizes[k] * np.array([[c, -s], [s, c]])
        middle = np.full(2, (_SMALL - 1) / 2) - back @ (np.full(2, (_SIDE - 1) / 2) + moves[k])
        small = images.features[one].reshape(_SMALL, _SMALL) ** powers[k]
        ink = affine_transform(small, back, middle, (_SIDE, _SIDE), order=1)
        drawn[k] = np.rint(255 * np.clip(ink, 0, 1))
    return drawn, images.labels[which].astype(np.uint8)


def write(where: Path, train: int, test: int, *, seed: int = 0) -> None:
    """Write made-up images and labels as MNIST's four files.

    Parameters
    ----------
    where : Path
        An existing folder.
    train, test : int
        Numbers of training and of test images.
    seed : int
        Seed of the draws.
    """
    known = held_out(bundled_digits(), 0.2, seed)
    for part, images, number in zip(("train", "t10k"), known, (train, test), strict=True):
        drawn, labels = made_up(images, number, seed)
        write_idx(where / f"{part}-images-idx3-ubyte", drawn)
        write_idx(where / f"{part}-labels-idx1-ubyte", labels)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files to the folder on the command line."""
    parser = argparse.ArgumentParser(prog="python -m problems.logistic_regression.made_up")
    parser.add_argument("folder", type=folder, help="for the four files")
    parser.add_argument("--train", type=count(), default=60_000)
    parser.add_argument("--test", type=count(), default=10_000)
    options = parser.parse_args(arguments)
    write(options.folder, options.train, options.test)
    print(f"wrote {options.train} and {options.test} images to {options.folder}")


if __name__ == "__main__":
    main()
