"""Arrays in one .npz file, read without trusting what the file says about itself."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import check_file, unpacks_too_far
from .errors import DatasetError

_REMEDY = (
    "Save it with numpy.savez(path, features=..., labels=..., classes=10, scale=255); classes and "
    "scale are public constants."
)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_arrays(
    path: Path, needed: Sequence[str], optional: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """Read named arrays of an .npz file; other arrays in it are not looked at.

    Parameters
    ----------
    path : Path
        The file.
    needed, optional : sequence of str
        Names of the arrays that must, and that may, be in the file.

    Returns
    -------
    dict of ndarray
        Arrays of booleans, integers or floats. No pickle is loaded, so the file executes nothing.

    Raises
    ------
    DatasetError
        If the file is no .npz file, is damaged, lacks an array, or has an array of another type or
        of more data than its header states.
    """
    check_file(path, f"'{path}'", DatasetError, _REMEDY)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in needed if name not in members]
            if missing:
                raise DatasetError(f"'{path}' lacks {', '.join(missing)}. {_REMEDY}")
            wanted = [name for name in (*needed, *optional) if name in members]
            _check_sizes(path, [members[name] for name in wanted])
            return {name: _array(archive, members[name], path, name) for name in wanted}
    except DatasetError:
        raise
    except MemoryError:
        raise DatasetError(f"'{path}' is larger than memory. Use a part of it.") from None
    except Exception as error:
        # Damage makes readers of archives and headers fail in many ways, and quote private data.
        raise DatasetError(
            f"'{path}' is a damaged .npz file, or none ({type(error).__name__}). {_REMEDY}"
        ) from None


def _check_sizes(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    total = sum(info.file_size for info in members)
    packed = sum(info.compress_size for info in members)
    if unpacks_too_far(packed, total):
        raise DatasetError(
            f"'{path}' would unpack to {total:.3g} bytes from {packed:.3g}, which no data set here "
            f"does: it would fill the memory. {_REMEDY}"
        )


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, name: str) -> Any:
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        header = _HEADERS[version]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that old versions of numpy wrote
            shape, fortran, kind = header(stream)
        if kind.kind not in "biuf":
            raise DatasetError(
                f"'{path}' has {name} of type {kind.kind!r}, not of numbers; other objects are not "
                f"read, since they could run code. {_REMEDY}"
            )
        # The stored size must equal the one the header states, before memory is taken for it.
        size = math.prod(shape) * kind.itemsize
        if any(n < 0 for n in shape) or not 0 <= info.file_size - size <= 2**16:
            raise ValueError("stated and actual size differ")
        data = stream.read()
    if len(data) != size:
        raise ValueError("stated and actual size differ")
    if not data:
        return np.zeros(shape, kind)
    return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")
