"""Reader and writer of MNIST's idx format: a magic number, dimensions, bytes; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from gzip import GzipFile
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files import content, unpacks_too_far
from .errors import DatasetError

_GZIP, _UNSIGNED_BYTES, _MOST_DIMENSIONS = b"\x1f\x8b", 0x08, 4


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read a file of unsigned bytes.

    Parameters
    ----------
    path : Path
        The file, plain or gzipped, whatever its name.

    Returns
    -------
    ndarray of uint8
        Array of the shape that the file states.

    Raises
    ------
    DatasetError
        If the file is not of this format, does not have the stated length, or cannot be read.
    """
    raw = content(path, f"'{path}'", DatasetError, "Give the folder of MNIST's four files.")
    try:
        with gzip.open(BytesIO(raw)) if raw[:2] == _GZIP else BytesIO(raw) as stream:
            return _read(stream, path, len(raw))
    except (OSError, EOFError, zlib.error):
        raise DatasetError(f"'{path}' is a damaged gzip file. Download it again.") from None
    except MemoryError:
        raise DatasetError(f"'{path}' is larger than memory. Use a part of it.") from None


def _read(stream: GzipFile | BytesIO, path: Path, packed: int) -> NDArray[np.uint8]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES:
        raise DatasetError(
            f"'{path}' does not begin with the magic number of an idx file of unsigned bytes, so "
            "it is not one of the MNIST files. They are called train-images-idx3-ubyte and so on."
        )
    sizes = stream.read(4 * magic[3])
    shape = tuple(int(n) for n in np.frombuffer(sizes[: len(sizes) // 4 * 4], dtype=">u4"))
    stated = math.prod(shape)
    if not 1 <= magic[3] <= _MOST_DIMENSIONS or unpacks_too_far(packed, stated):
        raise DatasetError(
            f"'{path}' has {packed} bytes and states the {magic[3]}-dimensional shape "
            f"{shape[:_MOST_DIMENSIONS]}, which no file of images or labels has: it is damaged. "
            "Download it again."
        )
    # One byte more than stated, to notice excess data without unpacking all of a gzipped file.
    data = stream.read(stated + 1) if len(shape) == magic[3] else b""
    if len(shape) != magic[3] or len(data) != stated:
        held = f"more than {stated}" if len(data) > stated else f"{len(data)}"
        raise DatasetError(
            f"'{path}' states the shape {shape}, but holds {held} bytes of data: it was cut short "
            "or is damaged. Download it again."
        )
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def write_idx(path: Path, array: NDArray[np.integer], *, zipped: bool = False) -> None:
    """Write an array of unsigned bytes as an idx file.

    Parameters
    ----------
    path : Path
        File to write.
    array : ndarray of int
        Values between 0 and 255.
    zipped : bool
        Whether to gzip the file.
    """
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, _UNSIGNED_BYTES, array.ndim, *array.shape)
    raw = head + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(raw) if zipped else raw)
