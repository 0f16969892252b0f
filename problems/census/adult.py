"""Records from a file of the UCI Adult data (``adult.data`` or ``adult.test``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..files import text
from .columns import COLUMNS, NAMES, Column, normalized
from .errors import CensusError
from .records import Records

_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
_LABELS = {"<=50K": -1.0, ">50K": 1.0}
# Missing values, as the UCI repository writes them and as other copies of the data do.
_MISSING = {"?", ""}


def read_adult(path: str | Path) -> Records:
    """Read a file of lines with 14 values and the income, separated by commas; ``?`` if missing.

    People with missing values are left out, as in the paper; other copies of the data leave these
    empty. Lines that are empty or start with ``|`` are skipped, and so is a first line
    with the names of the columns. Quotes, and a full stop after the income, are ignored.

    Raises
    ------
    CensusError
        If the file cannot be read or a line is broken; values are not shown.
    """
    content = text(
        Path(path),
        f"'{path}'",
        CensusError,
        "Give the path of adult.data or adult.test from the UCI repository.",
    )
    rows, labels = [], []
    for number, words in _lines(content):
        if len(words) != len(COLUMNS) + 1:
            raise CensusError(
                f"Line {number} of '{path}' has {len(words)} values, not the {len(COLUMNS) + 1} of "
                "the Adult data."
            )
        if number == 1 and not any(map(_NUMBER.fullmatch, words)):
            _check_header(words, path)
            continue
        if not _MISSING.isdisjoint(words):
            continue
        row = [_value(*each) for each in zip(words, COLUMNS, strict=False)]
        label = _LABELS.get(words[-1].rstrip("."))
        if None in row or label is None:
            where = "income" if label is None else COLUMNS[row.index(None)].name
            raise CensusError(
                f"Line {number} of '{path}' has a value of '{where}' that the Adult data do not "
                "have (it is not shown)."
            )
        rows.append(row)
        labels.append(label)
    if not rows:
        raise CensusError(f"'{path}' has no complete record.")
    return Records(normalized(np.array(rows, float)), np.array(labels))


def _lines(content: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip() and not line.startswith("|"):
            yield number, [word.strip().strip("\"'").strip() for word in line.split(",")]


def _check_header(words: list[str], path: str | Path) -> None:
    """Refuse a header with other column names or another order; the names are public."""
    for word, name in zip(words, NAMES, strict=False):
        if re.sub(r"[ ._]", "-", word.lower()) != name:
            raise CensusError(
                f"Line 1 of '{path}' is a header, and has '{word}' where the Adult data have the "
                f"column '{name}'. Write the columns in the order {', '.join(NAMES)}, income."
            )


def _value(word: str, column: Column) -> float | None:
    if column.codes:
        return float(column.codes.index(word)) if word in column.codes else None
    return float(word) if _NUMBER.fullmatch(word) else None
