"""The text of a MATPOWER case file (version 2), turned into plain matrices.

The numbers are not interpreted here; `case.read_case` does that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from problems.power_flow.errors import CaseError

# Least number of columns of every matrix in version 2 of the format.
COLUMNS = {"bus": 13, "gen": 10, "branch": 11, "gencost": 4, "dcline": 3}
OPTIONAL = ("dcline",)
_FIELDS = "baseMVA|" + "|".join(COLUMNS)
_ASSIGNMENT = re.compile(rf"\b[A-Za-z]\w*\.({_FIELDS})\s*=(?!=)\s*")
_COMPUTED = re.compile(rf"\b[A-Za-z]\w*\.({_FIELDS})\s*\([^=;\n]*\)\s*=(?!=)")
_VERSION = re.compile(r"\.version\s*=\s*['\"]([^'\"]*)['\"]")
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[ed][+-]?\d+)?|inf|nan)", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, eq=False)
class Tables:
    """Matrices of a case in the units and the column order of the MATPOWER manual.

    Attributes
    ----------
    name : str
        File name or another name of the source, used in messages.
    base_mva : float
        Power base in MVA.
    bus, gen, branch, gencost, dcline : ndarray, shape (rows, columns)
        The matrices with every row and column of the source; `dcline` has no rows when absent.
    """

    name: str
    base_mva: float
    bus: NDArray[np.float64]
    gen: NDArray[np.float64]
    branch: NDArray[np.float64]
    gencost: NDArray[np.float64]
    dcline: NDArray[np.float64]


def parse(text: str, name: str) -> Tables:
    """Read the numeric matrices of a MATPOWER case.

    Parameters
    ----------
    text : str
        Content of the ``.m`` file. Comments, strings, ``...`` continuation, rows separated by
        semicolons or line ends, and columns separated by blanks, tabs or commas are understood.
    name : str
        File name for messages.

    Returns
    -------
    Tables
        The matrices, not yet checked for meaning.

    Raises
    ------
    CaseError
        Wrong version, a missing, unterminated, repeated or computed field, a row of the wrong
        length, or an entry that is not a number.
    """
    version = _VERSION.search(text)
    if version:
        check_version(version.group(1), name)
    code = _strip(text)
    computed = _COMPUTED.search(code)
    if computed:
        raise CaseError(
            f"{name}: a statement changes entries of {computed.group(1)} after the matrix; MATLAB "
            "code is not run, so the numbers would be wrong. Save the evaluated case (savecase in "
            "MATPOWER) and read that file."
        )
    starts: dict[str, int] = {}
    for match in _ASSIGNMENT.finditer(code):
        field = match.group(1)
        if field in starts:
            raise CaseError(
                f"{name}: {field} is assigned twice, so it is unclear which one holds. Keep one."
            )
        starts[field] = match.end()
    for field in _FIELDS.split("|"):
        if field not in starts and field not in OPTIONAL:
            raise CaseError(
                f"{name}: there is no 'mpc.{field} = ...'; the file is truncated or not a MATPOWER "
                f"version 2 case. Give a file with baseMVA, bus, gen, branch and gencost."
            )
    matrices = {
        field: _matrix(code, starts[field], field, name) if field in starts else np.zeros((0, 0))
        for field in COLUMNS
    }
    return Tables(name=name, base_mva=_base(code, starts["baseMVA"], name), **matrices)


def check_version(version: str, name: str) -> None:
    """Refuse another version of the case format than 2."""
    if version != "2":
        raise CaseError(
            f"{name}: the case format is version {version!r}, whose columns mean other things. "
            "Save it as version '2' (savecase in MATPOWER)."
        )


def _strip(text: str) -> str:
    """Drop comments, the content of strings and line continuations."""
    lines: list[str] = []
    pending = ""
    blocks = 0
    for line in text.splitlines():
        bare = line.strip()
        if bare == "%{":
            blocks += 1
        elif bare == "%}" and blocks:
            blocks -= 1
        elif not blocks:
            kept, continued = _strip_line(line)
            pending += kept
            if not continued:
                lines.append(pending)
                pending = ""
    return "\n".join([*lines, pending])


def _strip_line(line: str) -> tuple[str, bool]:
    """Code of one line without comment and string content; whether the next line continues it."""
    kept: list[str] = []
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "%":
            break
        elif line.startswith("...", at):
            return "".join(kept) + " ", True
        else:
            kept.append(char)
    return "".join(kept), False


def _base(code: str, start: int, name: str) -> float:
    token = re.split(r"[;,\n]", code[start:], maxsplit=1)[0].strip()
    value = _number(token)
    if value is None or not np.isfinite(value) or value <= 0:
        raise CaseError(
            f"{name}: baseMVA is not a positive number, so nothing can be brought to per unit. "
            "Write for example 'mpc.baseMVA = 100;'."
        )
    return value


def _matrix(code: str, start: int, field: str, name: str) -> NDArray[np.float64]:
    end = code.find("]", start)
    body = code[start + 1 : end]
    if code[start : start + 1] != "[" or end < 0 or "=" in body or "[" in body:
        raise CaseError(
            f"{name}: the matrix {field} is not closed by ']'; rows may be missing. Write "
            f"'mpc.{field} = [ rows ];' with numbers only, or fetch the file again."
        )
    rows: list[list[float]] = []
    for text in re.split(r"[;\n]", body):
        tokens = re.split(r"[\s,]+", text.strip(" \t\r\f\v,"))
        if tokens != [""]:
            rows.append(_row(tokens, field, len(rows) + 1, name))
    for number, row in enumerate(rows, start=1):
        if len(row) < COLUMNS[field]:
            raise CaseError(
                f"{name}: {field} row {number} has {len(row)} columns, version 2 needs at least "
                f"{COLUMNS[field]}; columns would be mistaken for each other. Complete the row."
            )
        if len(row) != len(rows[0]):
            raise CaseError(
                f"{name}: {field} row {number} has {len(row)} columns, row 1 has {len(rows[0])}; "
                "a number is missing or extra. Give every row the same columns."
            )
    return np.array(rows, dtype=np.float64) if rows else np.zeros((0, COLUMNS[field]))


def _row(tokens: list[str], field: str, number: int, name: str) -> list[float]:
    values: list[float] = []
    for column, token in enumerate(tokens, start=1):
        value = _number(token)
        if value is None:
            # The token is not shown: in the bus matrix it may be part of a load.
            raise CaseError(
                f"{name}: {field} row {number}, column {column} is not a number; MATLAB "
                "expressions are not evaluated. Write the number itself."
            )
        values.append(value)
    return values


def _number(token: str) -> float | None:
    if not _NUMBER.fullmatch(token):
        return None
    return float(re.sub("[dD]", "e", token))
