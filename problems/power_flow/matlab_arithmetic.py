"""Interpreter of the arithmetic for unit conversions at the end of MATPOWER case files.

`execute` understands four statements:

* ``define_constants``, and ``[PQ, PV, ...] = idx_bus`` and its like: names of columns;
* ``name = expression`` of numbers;
* ``mpc.field(rows, columns) = expression``, where the expression has the shape of these entries or
  is a number.

An expression holds numbers, names, ``mpc.baseMVA``, entries ``mpc.field(rows, columns)``, the
operators ``+ - * / ^`` and their dotted forms, and a few functions. This module evaluates it by the
rules of MATLAB, and passes no text to another interpreter. For every other statement `execute`
returns None, and the caller refuses the file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.(?![*/^])\d*)?|\.\d+)(?:[ed][+-]?\d+)?(?!\w))|(?P<name>[A-Za-z]\w*)"
    r"|(?P<sign>\.[*/^]|[-+*/^()\[\],:=~.]))",
    re.IGNORECASE | re.ASCII,
)
_BUS = "PQ PV REF NONE BUS_I BUS_TYPE PD QD GS BS BUS_AREA VM VA BASE_KV ZONE VMAX VMIN LAM_P LAM_Q"
_BRANCH = "F_BUS T_BUS BR_R BR_X BR_B RATE_A RATE_B RATE_C TAP SHIFT BR_STATUS PF QF PT QT MU_SF"
_GEN = "GEN_BUS PG QG QMAX QMIN VG MBASE GEN_STATUS PMAX PMIN MU_PMAX MU_PMIN MU_QMAX MU_QMIN PC1"
_CURVES = "PC2 QC1MIN QC1MAX QC2MIN QC2MAX RAMP_AGC RAMP_10 RAMP_30 RAMP_Q APF"
_COST = "PW_LINEAR POLYNOMIAL MODEL STARTUP SHUTDOWN NCOST COST"
# Results of MATPOWER's functions, in order: their names in `define_constants`, and columns.
_FUNCTIONS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "idx_bus": (
        (*_BUS.split(), "MU_VMAX", "MU_VMIN"),
        (1, 2, 3, 4, *range(1, 18)),
    ),
    "idx_brch": (
        (*_BRANCH.split(), "MU_ST", "ANGMIN", "ANGMAX", "MU_ANGMIN", "MU_ANGMAX"),
        (*range(1, 12), 14, 15, 16, 17, 18, 19, 12, 13, 20, 21),
    ),
    "idx_gen": (
        (*_GEN.split(), *_CURVES.split()),
        (*range(1, 11), 22, 23, 24, 25, *range(11, 22)),
    ),
    "idx_cost": (tuple(_COST.split()), (1, 2, 1, 2, 3, 4, 5)),
}
_CALLS: dict[str, Callable[[Floats], Floats]] = {
    "sqrt": np.sqrt, "abs": np.abs, "exp": np.exp,
    "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
}  # fmt: skip
_CONSTANTS = {"pi": np.pi, "Inf": np.inf, "inf": np.inf}
# Largest depth of nested brackets.
_DEEPEST = 30


class _Unknown(Exception):
    """The statement is not supported."""


@dataclass(frozen=True, eq=False)
class Workspace:
    """Values that statements have assigned so far."""

    matrices: Mapping[str, Floats]  # matrices by field; baseMVA has one row and column
    names: Mapping[str, Floats]  # numbers by name, as matrices of one row and column


def execute(statement: str, struct: str, before: Workspace) -> Workspace | None:
    """Return the workspace after a statement; None if the statement is not supported.

    Parameters
    ----------
    statement : str
        Statement without comments and continuation; strings are in double quotes.
    struct : str
        Name of the variable that holds the case, usually ``mpc``.
    before : Workspace
        Workspace before the statement; it is not changed.
    """
    try:
        with np.errstate(all="ignore"):
            return _Reader(_tokens(statement), struct, before).statement()
    except _Unknown:
        return None


def evaluate(expression: str) -> float | None:
    """Return the value of an expression of numbers only; None if it is not such an expression."""
    try:
        with np.errstate(all="ignore"):
            return _number(_Reader(_tokens(expression), "", Workspace({}, {})).expression())
    except _Unknown:
        return None


def _tokens(statement: str) -> list[tuple[str, str]]:
    """Return kind and text of each token of a statement."""
    tokens, start = [], 0
    statement = statement.rstrip()
    while start < len(statement):
        token = _TOKEN.match(statement, start)
        if token is None or token.lastgroup is None:
            raise _Unknown
        tokens.append((token.lastgroup, token[token.lastgroup]))
        start = token.end()
    return tokens


class _Reader:
    """Recursive-descent evaluator of the tokens of one statement."""

    def __init__(self, tokens: Sequence[tuple[str, str]], struct: str, before: Workspace) -> None:
        self._tokens, self._next = tokens, 0
        self._struct, self._before = struct, before
        self._depth = 0
        self._size: int | None = None  # value of `end` inside an index

    def statement(self) -> Workspace:
        """Return the workspace after the statement."""
        before = self._before
        if self._tokens == [("name", "define_constants")]:
            constants = {
                name: value for call in _FUNCTIONS for name, value in _constants(call).items()
            }
            return Workspace(before.matrices, {**before.names, **constants})
        if self._is("["):
            return Workspace(before.matrices, {**before.names, **self._columns()})
        name = self._name()
        if name != self._struct:
            self._take("=")
            value = self.expression()
            if value.size != 1 or name in _CALLS:
                raise _Unknown
            return Workspace(before.matrices, {**before.names, name: value})
        field, rows, columns = self._entries()
        self._take("=")
        value = self.expression()
        matrix = before.matrices[field].copy()
        if value.size != 1 and value.shape != (len(rows), len(columns)):
            raise _Unknown
        matrix[np.ix_(rows, columns)] = value
        return Workspace({**before.matrices, field: matrix}, before.names)

    def expression(self) -> Floats:
        """Return the value of all remaining tokens, which must be an expression of numbers."""
        value = self._sum()
        if self._next < len(self._tokens) or np.isnan(value).any():
            raise _Unknown
        return value

    def _columns(self) -> dict[str, Floats]:
        """Return the names and numbers of columns from ``[PQ, PV, ...] = idx_bus``."""
        self._take("[")
        names: list[str | None] = []
        while not self._is("]"):
            if names and self._is(","):
                self._take(",")
            if self._is("~"):
                self._take("~")
                names.append(None)
            else:
                names.append(self._name())
        self._take("]")
        self._take("=")
        function = self._name()
        if function not in _FUNCTIONS or self._next < len(self._tokens):
            raise _Unknown
        values = _FUNCTIONS[function][1]
        if len(names) > len(values) or self._struct in names:
            raise _Unknown
        return {
            name: np.full((1, 1), float(value))
            for name, value in zip(names, values, strict=False)
            if name is not None
        }

    def _entries(self) -> tuple[str, Ints, Ints]:
        """Return field, rows and columns (from 0) of ``.field(rows, columns)``."""
        self._take(".")
        field = self._name()
        matrix = self._before.matrices.get(field)
        if matrix is None or field == "baseMVA":
            raise _Unknown
        self._take("(")
        rows = self._index(matrix.shape[0])
        self._take(",")
        columns = self._index(matrix.shape[1])
        self._take(")")
        return field, rows, columns

    def _index(self, size: int) -> Ints:
        """Return positions (from 0) of an index: all, a number, a range, or a list in brackets."""
        outer, self._size = self._size, size
        if self._is(":"):
            self._take(":")
            positions = np.arange(1.0, size + 1)
        elif self._is("["):
            self._take("[")
            parts: list[Floats] = []
            while not self._is("]"):
                if parts and self._is(","):
                    self._take(",")
                parts.append(self._range(self._primary))
            self._take("]")
            positions = np.concatenate(parts) if parts else np.zeros(0)
        else:
            positions = self._range(self._sum)
        self._size = outer
        if np.any(positions != np.floor(positions)) or not np.all(
            (positions >= 1) & (positions <= size)
        ):
            raise _Unknown
        return positions.astype(np.int64) - 1

    def _range(self, part: Callable[[], Floats]) -> Floats:
        """Return the numbers of one number, ``first:last``, or ``first:step:last``."""
        numbers = [_number(part())]
        while self._is(":") and len(numbers) < 3:
            self._take(":")
            numbers.append(_number(part()))
        if len(numbers) == 1:
            return np.array(numbers)
        first, step, last = numbers if len(numbers) == 3 else (numbers[0], 1.0, numbers[1])
        size = self._size or 0
        # Every position lies between 1 and the size: refuse a longer range before it is made.
        if not (1 <= first <= size and abs(step) >= 1 and abs(last) <= size + abs(step)):
            raise _Unknown
        return np.arange(first, last + np.sign(step) / 2, step)

    def _sum(self) -> Floats:
        value = self._product()
        while self._is("+", "-"):
            sign = self._take()
            other = self._product()
            value = _together(np.add if sign == "+" else np.subtract, value, other)
        return value

    def _product(self) -> Floats:
        value = self._signed()
        while self._is("*", "/", ".*", "./"):
            sign = self._take()
            other = self._signed()
            numbers = (other.size,) if sign == "/" else (value.size, other.size)
            if sign in "*/" and 1 not in numbers:
                raise _Unknown  # a product of matrices
            value = _together(np.divide if "/" in sign else np.multiply, value, other)
        return value

    def _signed(self) -> Floats:
        negative = False
        while self._is("+", "-"):
            negative ^= self._take() == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Floats:
        value = self._primary()
        while self._is("^", ".^"):
            sign = self._take()
            negative = self._is("-") and self._take() == "-"
            other = self._primary()
            if sign == "^" and (value.size, other.size) != (1, 1):
                raise _Unknown
            value = _together(np.power, value, -other if negative else other)
        return value

    def _primary(self) -> Floats:
        self._depth += 1
        if self._next >= len(self._tokens) or self._depth > _DEEPEST:
            raise _Unknown
        value = self._part()
        self._depth -= 1
        return value

    def _part(self) -> Floats:
        kind, text = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return np.full((1, 1), float(re.sub("[dD]", "e", text)))
        if self._is("("):
            self._take("(")
            value = self._sum()
            self._take(")")
            return value
        name = self._name()
        if name == self._struct:
            base = [("sign", "."), ("name", "baseMVA")]
            if self._tokens[self._next : self._next + 2] == base:
                self._next += 2
                if "baseMVA" not in self._before.matrices:
                    raise _Unknown
                return self._before.matrices["baseMVA"]
            field, rows, columns = self._entries()
            return self._before.matrices[field][np.ix_(rows, columns)]
        if name == "end" and self._size is not None:
            return np.full((1, 1), float(self._size))
        if name in self._before.names:
            return self._before.names[name]
        if name in _CONSTANTS:
            return np.full((1, 1), _CONSTANTS[name])
        if name not in _CALLS or not self._is("("):
            raise _Unknown
        self._take("(")
        value = _CALLS[name](self._sum())
        self._take(")")
        return value

    def _is(self, *signs: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next] in [
            ("sign", sign) for sign in signs
        ]

    def _take(self, sign: str | None = None) -> str:
        if self._next >= len(self._tokens) or sign not in (None, self._tokens[self._next][1]):
            raise _Unknown
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _name(self) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next][0] != "name":
            raise _Unknown
        return self._take()


def _constants(call: str) -> dict[str, Floats]:
    names, values = _FUNCTIONS[call]
    return {name: np.full((1, 1), float(value)) for name, value in zip(names, values, strict=True)}


def _number(value: Floats) -> float:
    if value.size != 1 or not np.isfinite(value).all():
        raise _Unknown
    return value.item()


def _together(operation: np.ufunc, one: Floats, other: Floats) -> Floats:
    """Return an entrywise operation; raise `_Unknown` if the shapes do not fit."""
    try:
        return operation(one, other)
    except ValueError:
        raise _Unknown from None
