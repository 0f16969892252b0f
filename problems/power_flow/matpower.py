"""Parser of MATPOWER case files (version 2) into plain matrices.

A case file is a MATLAB function. It is not run: `parse` evaluates assignments of literal values and
the arithmetic of `matlab_arithmetic`, which converts units. It refuses every other statement and
names its line, since an ignored statement could change the numbers. This module does not check the
meaning of the numbers; `case.read_case` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import CaseError
from .matlab_arithmetic import Workspace, evaluate, execute

# Least number of columns of every matrix in version 2 of the format. Storage, switches and limits
# on currents follow the format of PowerModels.
COLUMNS = {
    "bus": 13,
    "gen": 10,
    "branch": 11,
    "gencost": 4,
    "dcline": 3,
    "dclinecost": 4,
    "storage": 17,
    "switch": 7,
    "branch_currents": 1,
}
REQUIRED = ("bus", "gen", "branch")
_SHOWN = 8
# Fields for elements that the model does not have, with texts that name these elements.
FOREIGN = {
    **dict.fromkeys(
        ("busdc", "convdc", "branchdc", "dcbus", "dcconv", "dcbranch", "dcpol"),
        "a direct-current grid",
    ),
    **dict.fromkeys(("bus_dc", "branch_dc", "source_dc"), "a direct-current grid"),
    **dict.fromkeys(
        ("A", "l", "u", "z0", "zl", "zu", "user_constraints"), "constraints of its own"
    ),
    **dict.fromkeys(("N", "fparm", "H", "Cw"), "costs of its own"),
    "userfcn": "program code",
    "load": "loads beside those of the bus matrix",
    "shunt": "shunts beside those of the bus matrix",
    **dict.fromkeys(
        ("bus3p", "line3p", "xfmr3p", "shunt3p", "load3p", "gen3p", "buslink"),
        "a three-phase network",
    ),
    **dict.fromkeys(("tcsc", "svc", "ssc", "vsc"), "power electronics"),
    "branch_g": "shunt conductances of branches",
    **dict.fromkeys(
        ("branch_r_asym", "branch_x_asym", "branch_g_asym", "branch_b_asym"),
        "asymmetric branches",
    ),
}
# Fields with names or descriptions of other fields' elements, or with an earlier solution.
DESCRIPTIVE = frozenset(
    {"name", "version", "areas", "area_name", "zone_name", "bus_name", "gen_name", "branch_name"}
    | {"branch_names", "genfuel", "gentype", "comments", "bus_order", "branch_order"}
    | {"success", "et", "f", "x", "mu", "iterations", "order", "internal", "om", "raw", "output"}
    | {"var", "lin", "cost"}
)

# Ends of error messages for fields that must be positive numbers: reason and fix.
NUMBERS = {
    "baseMVA": ", so nothing can be brought to per unit. Write for example 100.",
    "time_elapsed": ", so it is unclear how much energy storage takes. Write hours, usually 1.",
}
_STRUCT = "mpc"
_NAME = r"[A-Za-z]\w*"
_FIELDS = ("baseMVA", "time_elapsed", *COLUMNS)
_ASSIGNMENT = re.compile(rf"({_NAME})\.({_NAME})(?:\.{_NAME})*\s*=(?!=)\s*", re.ASCII)
_FUNCTION = re.compile(
    rf"function\s+(?:({_NAME})|\[\s*({_NAME})\s*\])\s*=\s*{_NAME}\s*(?:\([\w\s,~]*\))?", re.ASCII
)
_CALL = re.compile(rf"({_NAME})\s*=\s*struct\s*(?:\(\s*|$)", re.ASCII)
_ENTRIES = re.compile(rf"{_NAME}\.({'|'.join(_FIELDS)})\s*[({{]", re.ASCII)
_VERSION_1 = re.compile(r"function\s*\[\s*baseMVA\b|(?:baseMVA|bus|gen|branch|gencost)\s*=(?!=)")
_END = re.compile(r"(?:end|endfunction|return)")
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[ed][+-]?\d+)?|inf|nan)", re.IGNORECASE | re.ASCII
)
_STRING = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")
_LITERALS = re.compile(rf"\"\w*\"|{_NUMBER.pattern}", re.IGNORECASE | re.ASCII)
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_SPECIAL = re.compile(r"[][(){};,]")
# A quote that directly follows one of these transposes; elsewhere it opens a string.
_BEFORE_TRANSPOSE = re.compile(r"[\w)\]}'\".]", re.ASCII)

# Pieces of a statement or of a value, each with its line number.
Pieces = list[tuple[int, str]]


@dataclass(frozen=True, eq=False)
class Tables:
    """Matrices of a case in the units and the column order of the MATPOWER manual.

    Attributes
    ----------
    name : str
        File name or another name of the source, used in messages.
    base_mva : float
        Power base in MVA.
    bus, gen, branch, gencost : ndarray, shape (rows, columns)
        Matrices with every row and column of the source; `gencost` has no rows if it is absent.
    dcline, dclinecost, storage, switch, branch_currents : ndarray, shape (rows, columns)
        Further matrices, without rows if they are absent.
    hours : float
        Length of the period in hours, for storage.
    notes : tuple of str
        Notes on fields that are changed or ignored.
    """

    name: str
    base_mva: float
    bus: NDArray[np.float64]
    gen: NDArray[np.float64]
    branch: NDArray[np.float64]
    gencost: NDArray[np.float64]
    dcline: NDArray[np.float64]
    dclinecost: NDArray[np.float64]
    storage: NDArray[np.float64]
    switch: NDArray[np.float64]
    branch_currents: NDArray[np.float64]
    hours: float = 1.0
    notes: tuple[str, ...] = ()


def parse(text: str, name: str) -> Tables:
    """Read the numeric matrices of a MATPOWER case.

    Parameters
    ----------
    text : str
        Content of the ``.m`` file: ``function mpc = name``, then assignments
        ``mpc.field = value`` of numbers, strings, matrices and cell arrays of these. A call
        ``mpc = struct("field", value, ...)`` may come first. Comments are ``%`` and ``%{ %}``, in
        Octave also ``#`` and ``#{ #}``. Lines that end with ``...`` are continued. Semicolons or
        line ends separate rows; blanks, tabs or commas separate columns. The parser supports the
        statements that `matlab_arithmetic` lists. Descriptive fields are skipped. Fields for
        elements that the model does not have are refused unless they are empty. A note names all
        other fields.
    name : str
        File name for messages.

    Returns
    -------
    Tables
        Matrices before any check of their meaning.

    Raises
    ------
    CaseError
        For a wrong version, an unsupported statement, a missing, unterminated, repeated or computed
        field, a row of the wrong length, or an entry that is not a number.
    """
    values: dict[str, Pieces] = {}
    workspace = Workspace({}, {})
    unread: dict[str, None] = {}
    struct = ""
    ended = False
    for count, statement in enumerate(_with_fields(_statements(_lines(text, name), name))):
        line, head = statement[0]
        function = _FUNCTION.fullmatch(head) if count == 0 else None
        if function:
            struct = function[1] or function[2]
            continue
        if _END.fullmatch(head) and len(statement) == 1:
            ended = True
            continue
        found = _ASSIGNMENT.match(head)
        code = found is None and len(statement) == 1 and not _VERSION_1.match(head)
        if code and not ended:
            workspace = _filled(workspace, values, name)
            after = execute(head, struct or _STRUCT, workspace)
            if after is not None:
                workspace = after
                continue
        if found is None or ended:
            raise _refused(head, name, line)
        struct = struct or found[1]
        if found[1] != struct:
            raise CaseError(
                f"{name}: line {line} assigns to '{found[1]}', but the case is '{struct}'; it is "
                "unclear which one holds. Use one name."
            )
        field, value = found[2], [(line, head[found.end() :]), *statement[1:]]
        if field not in (*_FIELDS, "version"):
            if _skip(field, value, name, whole=found[0].count(".") == 1):
                unread[field] = None
        elif found[0].count(".") > 1:
            raise _refused(head, name, line)
        elif field in values:
            raise CaseError(
                f"{name}: {field} is assigned twice, the second time in line {line}, so it is "
                "unclear which one holds. Keep one."
            )
        else:
            values[field] = value
    if "version" in values:
        check_version(_version(values["version"], name), name)
    for field in ("baseMVA", *REQUIRED):
        if field not in values:
            raise CaseError(
                f"{name}: there is no 'mpc.{field} = ...'; the file is truncated or not a MATPOWER "
                f"version 2 case. Give a file with baseMVA, bus, gen, branch and gencost."
            )
    matrices = _filled(workspace, values, name).matrices
    return Tables(
        name=name,
        base_mva=matrices["baseMVA"].item(),
        hours=matrices["time_elapsed"].item() if "time_elapsed" in matrices else 1.0,
        notes=not_read(unread, name),
        **{field: matrices.get(field, np.zeros((0, 0))) for field in COLUMNS},
    )


def _with_fields(statements: Iterator[Pieces]) -> Iterator[Pieces]:
    """Yield statements, with a call of ``struct`` as assignments if it comes first."""
    first = True
    for statement in statements:
        yield from _assignments(statement) if first else [statement]
        # Later, such a call would discard what has been assigned before, and is refused.
        first = first and _FUNCTION.fullmatch(statement[0][1]) is not None


def _assignments(statement: Pieces) -> list[Pieces]:
    """Return a statement, or the assignments of fields that a call of ``struct`` stands for."""
    call = _CALL.match(statement[0][1])
    if call is None:
        return [statement]
    opens = call[0].rstrip().endswith("(")
    line, first = statement[0][0], statement[0][1][call.end() :]
    pieces = [(line, first), *statement[1:]] if opens else []
    arguments: list[Pieces] = [[]]
    depth = 1
    for number, code in pieces:
        start = 0
        for mark in _SPECIAL.finditer(code):
            depth += (mark[0] in _BRACKETS) - (mark[0] in _BRACKETS.values())
            if depth == 0 or (depth == 1 and mark[0] == ","):
                arguments[-1].append((number, code[start : mark.start()].strip()))
                arguments, start = [*arguments, []], mark.end()
        arguments[-1].append((number, code[start:].strip()))
    *arguments, rest = arguments
    if any(code for _, code in rest):
        return [statement]
    if len(arguments) == 1 and not any(code for _, code in arguments[0]):
        return []
    fields = [
        re.fullmatch(rf'"({_NAME})"', "".join(code for _, code in pieces), re.ASCII)
        for pieces in arguments[::2]
    ]
    if len(arguments) % 2 or not all(fields):
        return [statement]
    return [
        [(value[0][0], f"{call[1]}.{field[1]} = {value[0][1]}"), *value[1:]]
        for field, value in zip(fields, arguments[1::2], strict=True)
        if field is not None
    ]


def _filled(workspace: Workspace, values: dict[str, Pieces], name: str) -> Workspace:
    """Return the workspace with all fields that have been assigned so far."""
    matrices = dict(workspace.matrices)
    for field, value in values.items():
        if field not in matrices and field in COLUMNS:
            matrices[field] = _matrix(value, field, name)
        elif field not in matrices and field in ("baseMVA", "time_elapsed"):
            matrices[field] = np.full((1, 1), _positive(value, field, name))
    return Workspace(matrices, workspace.names)


def check_version(version: str, name: str) -> None:
    """Refuse versions of the case format other than 2."""
    if version != "2":
        raise CaseError(
            f"{name}: the case format is version {version!r}, whose columns mean other things. "
            "Save it as version '2' (savecase in MATPOWER)."
        )


def check_foreign(
    field: str, matrix: NDArray[np.float64] | None, name: str, line: int | None = None
) -> None:
    """Refuse a nonempty field for elements that the model does not have.

    Parameters
    ----------
    field : str
        Name of the field.
    matrix : ndarray or None
        Numbers in the field; None if it does not hold numbers only.
    name : str
        Name of the source, for messages.
    line : int, optional
        Line of the statement.
    """
    if field in FOREIGN and (matrix is None or matrix.any()):
        where = "" if line is None else f" (line {line})"
        raise CaseError(
            f"{name}: the field '{field}'{where} gives the case {FOREIGN[field]}, which the model "
            "does not support; without it, the optimum changes. Remove it if you want the "
            "network without it."
        )


def not_read(fields: Iterable[str], name: str) -> tuple[str, ...]:
    """Return a note on fields that are not read; an empty tuple if there are none.

    Parameters
    ----------
    fields : iterable of str
        Names of the fields, without fields in `FOREIGN` and `DESCRIPTIVE`.
    name : str
        Name of the source.
    """
    names = list(fields)
    if not names:
        return ()
    shown = ", ".join(f"'{field}'" for field in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (
        f"{name}: read_case does not read {shown}{more}. If that stands for elements or limits, "
        "the network is solved without them.",
    )


def _refused(head: str, name: str, line: int) -> CaseError:
    """Return the error for an unsupported statement; it never shows the statement."""
    entries = _ENTRIES.match(head)
    if entries:
        return CaseError(
            f"{name}: line {line} changes entries of {entries[1]} by more than products, sums and "
            "powers of columns and numbers, so the numbers would be wrong. MATLAB code is not run. "
            "Save the evaluated case (savecase in MATPOWER) and read that file."
        )
    if _VERSION_1.match(head):
        return CaseError(
            f"{name}: line {line} looks like version '1' of the case format, whose matrices are "
            "variables of their own. Save it as version '2' (savecase in MATPOWER)."
        )
    return CaseError(
        f"{name}: line {line} is not an assignment such as 'mpc.baseMVA = 100;'. MATLAB code is "
        "not run, and this statement may change the numbers. Remove it, or save the evaluated case "
        "(savecase in MATPOWER) and read that file."
    )


def _lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Yield lines of code with their numbers.

    Comments are removed, continued lines joined, and strings changed as in `_code`.
    """
    pending = ""
    begun = opened = blocks = 0
    for number, line in enumerate(re.sub("\r\n?", "\n", text).split("\n"), start=1):
        bare = line.strip(" \t\f\v")
        if bare in ("%{", "#{"):
            if pending:
                raise CaseError(
                    f"{name}: line {number} begins a block comment within a statement that '...' "
                    "continues; it is unclear where that ends. Move the comment."
                )
            opened, blocks = (number if blocks == 0 else opened), blocks + 1
            continue
        if blocks:
            blocks -= bare in ("%}", "#}")
            continue
        code, continued = ("", False) if bare[:1] in ("", "%", "#") else _code(bare, name, number)
        begun = begun if pending else number
        pending += code
        if continued:
            pending += " "
            continue
        if pending and not pending.isspace():
            yield begun, pending
        pending = ""
    if blocks:
        raise CaseError(
            f"{name}: the block comment that begins in line {opened} does not end, so the rest of "
            "the file would be skipped. Close it by a line '%}'."
        )
    if pending and not pending.isspace():
        yield begun, pending


def _code(line: str, name: str, number: int) -> tuple[str, bool]:
    """Return a line without its comment, and whether the next line continues it.

    In strings, only letters, digits and underscores are kept; quotes become double quotes.
    """
    plain = line.partition("%")[0].partition("#")[0]
    if "'" not in plain and '"' not in plain:
        before, dots, _ = plain.partition("...")
        return before, bool(dots)
    code, at = "", 0
    while at < len(line):
        char = line[at]
        if char in "%#":
            break
        if line.startswith("...", at):
            return code, True
        if char == "'" and _BEFORE_TRANSPOSE.fullmatch(code[-1:]):
            code, at = code + char, at + 1
        elif char in "'\"":
            string = _STRING.match(line, at)
            if string is None:
                raise CaseError(
                    f"{name}: a string in line {number} is not closed by {char}; what follows "
                    "could be text or numbers. Close it."
                )
            code += '"' + re.sub(r"\W", "_", string[0][1:-1], flags=re.ASCII) + '"'
            at = string.end()
        else:
            code, at = code + char, at + 1
    return code, False


def _statements(lines: Iterator[tuple[int, str]], name: str) -> Iterator[Pieces]:
    """Yield statements: code divided at line ends, semicolons and commas outside of brackets."""
    current: Pieces = []
    open_brackets: list[str] = []
    for number, line in lines:
        start = 0
        for mark in _SPECIAL.finditer(line):
            char = mark[0]
            if char in _BRACKETS:
                open_brackets.append(_BRACKETS[char])
            elif char in ";,":
                if open_brackets:
                    continue
                current.append((number, line[start : mark.start()].strip()))
                yield from _nonempty(current)
                current, start = [], mark.end()
            elif not open_brackets or open_brackets.pop() != char:
                raise CaseError(
                    f"{name}: line {number} closes a bracket by '{char}' that was not opened; "
                    f"{_owner(current)}rows may be missing. Correct the brackets, or fetch the "
                    "file again."
                )
        current.append((number, line[start:].strip()))
        if not open_brackets:
            yield from _nonempty(current)
            current = []
    if open_brackets:
        number, head = current[0]
        found = _ASSIGNMENT.match(head)
        what = f"the matrix {found[2]}" if found else "a bracket"
        raise CaseError(
            f"{name}: {what} is not closed by '{open_brackets[0]}' (it begins in line {number}); "
            "rows may be missing. Write 'mpc.bus = [ rows ];' with numbers only, or fetch the file "
            "again."
        )


def _nonempty(statement: Pieces) -> Iterator[Pieces]:
    if any(code for _, code in statement):
        yield statement


def _owner(pieces: Pieces) -> str:
    found = _ASSIGNMENT.match(pieces[0][1]) if pieces else None
    return f"it stands in {found[2]}, and " if found else ""


def _skip(field: str, value: Pieces, name: str, *, whole: bool) -> bool:
    """Check a field that is not read, and return whether the note should name it.

    The field must be a literal, and must not add elements that the model does not have. `whole` is
    False for a part of a field.
    """
    line, first = value[0]
    if field in FOREIGN:
        check_foreign(field, _numbers(value, field, name) if whole else None, name, line)
        return False
    rest = _LITERALS.sub("", "".join(code for _, code in value))
    if rest and (first[:1] not in ("[", "{") or rest.strip("[]{};, \t")):
        raise CaseError(
            f"{name}: line {line} computes the field '{field}' instead of giving it as numbers or "
            "strings. MATLAB code is not run, so it is unclear what that changes. Remove the "
            "statement, or save the evaluated case (savecase in MATPOWER) and read that file."
        )
    return field not in DESCRIPTIVE


def _numbers(value: Pieces, field: str, name: str) -> NDArray[np.float64] | None:
    """Return the matrix in a field that is not read; None if the field holds no matrix."""
    try:
        rows = [row for _, row in _rows(value, field, name)]
        return np.array(rows, dtype=np.float64)
    except (CaseError, ValueError):
        return None


def _version(value: Pieces, name: str) -> str:
    line, text = value[0]
    if len(value) > 1 or not re.fullmatch(r"\"\w*\"|\d+", text, re.ASCII):
        raise CaseError(
            f"{name}: the version in line {line} is not a string, so the columns may mean other "
            "things. Write mpc.version = '2';"
        )
    return text.strip('"')


def _positive(value: Pieces, field: str, name: str) -> float:
    """Return the positive number in a field."""
    line, text = value[0]
    result = evaluate(text) if len(value) == 1 else None
    if result is None or result <= 0:
        raise CaseError(f"{name}: {field} is not a positive number (line {line}){NUMBERS[field]}")
    return result


def _matrix(value: Pieces, field: str, name: str) -> NDArray[np.float64]:
    rows = list(_rows(value, field, name))
    for number, (line, row) in enumerate(rows, start=1):
        if len(row) < COLUMNS[field]:
            raise CaseError(
                f"{name}: {field} row {number} has {len(row)} columns (line {line}), version 2 "
                f"needs at least {COLUMNS[field]}; columns would be mistaken for each other. "
                "Complete the row."
            )
        if len(row) != len(rows[0][1]):
            raise CaseError(
                f"{name}: {field} row {number} has {len(row)} columns, row 1 has "
                f"{len(rows[0][1])} (line {line}); a number is missing or extra. Give every row "
                "the same columns."
            )
    if not rows:
        return np.zeros((0, COLUMNS[field]))
    return np.array([row for _, row in rows], dtype=np.float64)


def _rows(value: Pieces, field: str, name: str) -> Iterator[tuple[int, list[float]]]:
    """Yield the rows of a matrix with their line numbers."""
    line, first = value[0]
    last = value[-1][1]
    if not first.startswith("[") or not last.endswith("]") or not any(code for _, code in value):
        raise CaseError(
            f"{name}: {field} in line {line} is not a matrix of numbers alone; MATLAB code is not "
            f"run, so the numbers would be wrong. Write 'mpc.{field} = [ rows ];', or save the "
            "evaluated case (savecase in MATPOWER) and read that file."
        )
    count = 0
    for at, (line, code) in enumerate(value):
        body = code[at == 0 : len(code) - (at == len(value) - 1)]
        if "[" in body or "]" in body or "=" in body:
            raise CaseError(
                f"{name}: the matrix {field} is not closed by ']' before line {line} goes on with "
                f"something else; rows may be missing. Write 'mpc.{field} = [ rows ];' with "
                "numbers only, or fetch the file again."
            )
        for text in body.split(";"):
            row = text.strip()
            if row:
                count += 1
                yield line, _row(_tokens(row), field, count, name, line)


def _tokens(row: str) -> Sequence[str]:
    if "," not in row:
        return row.split()
    return re.split(r"\s*,\s*|\s+", row.removesuffix(",").rstrip())


def _row(tokens: Sequence[str], field: str, number: int, name: str, line: int) -> list[float]:
    values: list[float] = []
    for column, token in enumerate(tokens, start=1):
        value = _number(token)
        if value is None:
            value = evaluate(token)
        if value is None:
            # The error does not show the token: in the bus matrix it may be part of a load.
            raise CaseError(
                f"{name}: {field} row {number}, column {column} is not a number (line {line}); "
                "only arithmetic of numbers without blanks is evaluated. Write the number itself."
            )
        values.append(value)
    return values


def _number(token: str) -> float | None:
    if not _NUMBER.fullmatch(token):
        return None
    value = float(re.sub("[dD]", "e", token))
    # Numbers too large for a float become infinite, in MATLAB too, which is never intended.
    return None if math.isinf(value) and token.lower().lstrip("+-") != "inf" else value
