"""Readers of owners' data files (.csv and .npy): errors name the place of a fault, no contents.

No other module reads such files. An error names file, line and column; only the owner sees it.
"""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._words import plural
from ..errors import FileError
from .faults import file_words, read_whole

Array = NDArray[np.float64]
_MARKS = {b"\xef\xbb\xbf": "UTF-8", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
# First bytes of files of other programs.
_KINDS = {
    b"PK\x03\x04": "an Excel workbook or another zip archive",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "compressed (gzip)",
    b"PAR1": "a Parquet file",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "an array of numpy (.npy)",
    b"SQLite": "an SQLite database",
    b"%PDF": "a PDF document",
}
# Spellings of missing values, in lower case.
_MISSING = {"na", "n/a", "null", "none", "nil", "missing", "-", "--", ".", "..", "?"}
# Separators other than commas, which other programs write between numbers.
_OTHERS = {";": "a semicolon", "\t": "a tab", "|": "a bar", " ": "a blank"}


def read_npy(path: Path, columns: Sequence[str] = ()) -> Any:
    """Return the array in a .npy file.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        Names that the fields of a structured array must have; its fields are put in this order.

    Raises
    ------
    FileError
        If the file cannot be read, or holds no array.
    """
    try:
        values = np.load(io.BytesIO(read_whole(path)), allow_pickle=False)
    except OSError as error:
        if error.errno is None:
            raise _no_array(path) from None
        raise FileError(file_words(error, path, "read")) from None
    except (ValueError, EOFError, MemoryError):
        raise _no_array(path) from None
    if not isinstance(values, np.ndarray):  # an archive of several arrays
        raise _no_array(path)
    fields = values.dtype.names
    if fields is None or not columns:
        return values
    if sorted(fields) != sorted(columns):
        raise FileError(
            f"'{path.name}' has other fields than columns = in the policy. Write the names of its "
            "fields there, or save the array with those."
        )
    return values[list(columns)]


def read_csv(path: Path, dimensions: int, columns: Sequence[str] = ()) -> Array:
    """Return the numbers in a .csv file: one row per line, separated by commas.

    Parameters
    ----------
    path : Path
    dimensions : int
        Number of dimensions of the expected array. A vector is a column or a row.
    columns : sequence of str
        Names that the header must have, in the order of the columns of the returned array. If
        empty, the file has no header.

    Raises
    ------
    FileError
        If the file is no such table; the text names line, column and kind of the fault.
    """
    raw = _bytes(path)
    header: list[int] = []
    if columns:
        first, _, raw = raw.partition(b"\n")
        header = _places(path, first, columns)
    if b"\r" in raw and b"\n" not in raw.strip():
        raise FileError(
            f"'{path.name}' ends its lines by carriage returns alone. Save it with line feeds."
        )
    if not any(line.partition(b"#")[0].strip() for line in raw.split(b"\n")):
        raise FileError(f"'{path.name}' holds no row of numbers. Write a line for each row.")
    try:
        values = np.loadtxt(io.StringIO(raw.decode()), delimiter=",", ndmin=2)
        if not np.isfinite(values).all() or (header and values.shape[1] != len(header)):
            raise ValueError
    except ValueError:
        raise _first_fault(path, raw, len(header), bool(columns)) from None
    if header:
        values = values[:, np.argsort(header)]
    if dimensions == 0 and values.size == 1:
        return values.reshape(())
    return values.ravel() if dimensions == 1 and 1 in values.shape else values


def read_people(path: Path) -> list[str]:
    """Return the identifiers of people in a file, one per line; an empty text is a missing one."""
    raw = _bytes(path)
    try:
        return raw.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise FileError(f"'{path.name}' is not text in UTF-8. Save it as UTF-8.") from None


def _bytes(path: Path) -> bytes:
    """Return a file's bytes; refuse an empty file and one that begins with a byte-order mark."""
    try:
        raw = read_whole(path)
    except FileNotFoundError:
        raise FileError(
            f"The data file '{path.name}' does not exist. Move it to the path that file = in the "
            "policy names, or correct file =."
        ) from None
    except OSError as error:
        raise FileError(file_words(error, path, "read")) from None
    for mark, kind in _MARKS.items():
        if raw.startswith(mark):
            raise FileError(
                f"'{path.name}' starts with a byte-order mark ({kind}). Save it as UTF-8 without "
                "one."
            )
    for start, kind in _KINDS.items():
        if raw.startswith(start):
            raise FileError(
                f"'{path.name}' is {kind}, and its name ends in .csv. Save it as text: a line for "
                "each row."
            )
    if not raw.strip():
        raise FileError(f"'{path.name}' is empty. Write a line for each row.")
    return raw


def _places(path: Path, first: bytes, columns: Sequence[str]) -> list[int]:
    """Return each file column's position in `columns`; refuse another header line `first`."""
    try:
        line = unicodedata.normalize("NFC", first.decode().strip())
        names = [name.strip() for name in next(csv.reader([line]), [])]
    except (UnicodeDecodeError, csv.Error):
        line, names = "", []
    columns = [unicodedata.normalize("NFC", name) for name in columns]
    missing = [name for name in columns if name not in names]
    where = f"'{path.name}', line 1"
    mark = next((mark for mark in ";\t|" if mark in line), "")
    if missing and mark and len(names) == 1:
        raise FileError(f"{where}: names separated by {_OTHERS[mark]}. Separate columns by commas.")
    if missing:
        near = missing[0].casefold() in [name.casefold() for name in names]
        raise FileError(
            f"{where}: no column is called '{missing[0]}'"
            f"{', but one differs from it in capital letters alone' if near else ''}. With columns "
            "= in the policy the first line is a header that has each of these names once."
        )
    if sorted(names) != sorted(columns):
        raise FileError(
            f"{where}: the header has {plural(len(names), 'name')}, but columns = in the policy "
            f"has {len(columns)}. Remove the other columns from the file, or name them in columns "
            "=."
        )
    return [columns.index(name) for name in names]


def _first_fault(path: Path, raw: bytes, width: int, headed: bool) -> FileError:
    """Return an error on the first cell without a number, or line without `width` cells."""
    first = 2 if headed else 1
    for number, line in enumerate(raw.split(b"\n"), first):
        where = f"'{path.name}', line {number}"
        try:
            text = line.decode().strip("\r")
        except UnicodeDecodeError:
            return FileError(f"{where}: not text in UTF-8. Save the file as that.")
        if "\0" in text:
            return FileError(f"{where}: a zero byte. The file is binary, or damaged.")
        text = text.partition("#")[0]  # a comment, as numpy writes them
        if not text.strip():
            continue
        cells = text.split(",")
        for column, cell in enumerate(cells, 1):
            fault = _fault(cell.strip(), text, number == 1)
            if fault:
                return FileError(f"{where}, column {column}: {fault}.")
        width = width or len(cells)
        if len(cells) != width:
            return FileError(
                f"{where}: the line has {plural(len(cells), 'number')}, but {width} are expected. "
                "Look for a missing or additional cell, or a number with a decimal comma: write "
                "1.5 for one and a half."
            )
    return FileError(f"'{path.name}' holds no row of numbers.")


def _fault(cell: str, line: str, first: bool) -> str:
    """Return the fault of a cell of a line as text, without contents; empty for a number."""
    if not cell:
        return "a missing cell. Fill in a number, or leave out the row"
    if cell.lower() in _MISSING:
        return "a missing value. Fill in a number, or leave out the row"
    if cell[0] in "\"'" or cell[-1] in "\"'":
        return "quotes. Write numbers without them"
    if _is_number(cell):
        if "_" in cell:
            return "a number with underscores. Write it without them"
        finite = math.isfinite(float(cell))
        return "" if finite else "no finite number. Fill in a number, or leave out the row"
    for mark, name in _OTHERS.items():
        parts = [part for part in cell.split(mark) if part]
        whole = all if mark == " " else any  # behind a blank, a number can have a unit
        if len(parts) > 1 and whole(map(_is_number, parts)):
            points = ", and write decimal points" if mark == ";" and "," in line else ""
            return f"numbers separated by {name}. Separate them by commas{points}"
    if "," not in line and any(mark in line.strip() for mark in ";\t|"):
        return "texts separated by something else than a comma. Separate columns by commas"
    if first and all(map(_is_name, line.split(","))):
        return (
            "no row of numbers: a header? Remove that line, or write columns = with its names in "
            "the policy"
        )
    return (
        "no number. Encode texts and categories as numbers, and write 1.5, 1e-3 or -2 without a "
        "unit or another mark"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()  # Python reads digits of other scripts, and numpy does not


def _is_name(text: str) -> bool:
    """Return whether a cell can be a column's name, and is no number in another spelling."""
    start = text.strip()[:1]
    return (start.isalpha() or start == "_") and not _is_number(text)


def _no_array(path: Path) -> FileError:
    return FileError(
        f"'{path.name}' holds no array of numbers. Write it by np.save(file, array), with an array "
        "of numbers and no objects."
    )
