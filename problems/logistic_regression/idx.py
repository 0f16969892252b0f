"""The idx format of the MNIST files: a magic number, dimensions, bytes; plain or gzipped."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from problems.logistic_regression.errors import DatasetError

_GZIP, _UNSIGNED_BYTES = b"\x1f\x8b", 0x08


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a file of unsigned bytes.

    Parameters
    ----------
    path : Path
        Plain or gzipped, whatever its name.

    Returns
    -------
    ndarray of uint8
        Of the shape that the file states.

    Raises
    ------
    DatasetError
        If the file is not of this format or is cut short.
    """
    raw = path.read_bytes()
    if raw[:2] == _GZIP:
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(
                f"'{path}' is a damaged gzip file ({error}). Download it again."
            ) from None
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != _UNSIGNED_BYTES:
        raise DatasetError(
            f"'{path}' does not begin with the magic number of an idx file of unsigned bytes, so "
            "it is not one of the MNIST files. They are called train-images-idx3-ubyte and so on."
        )
    start = 4 + 4 * raw[3]
    shape = tuple(int(n) for n in np.frombuffer(raw[4:start], dtype=">u4"))
    if len(shape) != raw[3] or len(raw) - start != int(np.prod(shape)):
        raise DatasetError(
            f"'{path}' states the shape {shape}, but holds {max(0, len(raw) - start)} bytes of "
            "data: it was cut short. Download it again."
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)
