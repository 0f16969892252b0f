"""Texts of numbers, counts and lists of names in sentences, and breaks of lines."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple

# Parts of a list that are shown; so many more are counted.
SHOWN = 12
# Names that end in a number, with quotes around them or not.
_COUNTED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})('?)")
# Relative: ends of a range that differ less are one number.
_TIE = 1e-6
# Stands around the number of a name: no text holds it.
_NAME = "\0"


class Named(NamedTuple):
    """Name of something of one agent in a text, with the words around it.

    `several` comes before the name where the text is true of more than one.
    """

    before: str
    name: str
    after: str = ""
    several: str = ""


def number(value: float) -> str:
    """Return six digits without the zeros that Python puts in exponents: ``1e-6``, ``0.282843``."""
    return re.sub(r"e([+-])0*", lambda match: f"e{match[1].strip('+')}", f"{value:.6g}")


def at_most(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, rounded up: an upper bound stays one."""
    # Two billionths above these digits are these digits: sensitivities are rounded up by one.
    return _rounded(value * (1 - 2e-9), digits, ROUND_CEILING) if value > 0 else number(value)


def at_least(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, rounded down: a lower bound stays one."""
    return _rounded(value * (1 + 1e-9), digits, ROUND_FLOOR) if value > 0 else number(value)


def between(low: float, high: float) -> str:
    """Return a range of positive numbers, rounded down; one number if its ends are alike."""
    first, last = at_least(low), at_least(low if high - low <= _TIE * high else high)
    return first if first == last else f"{first} to {last}"


def _rounded(value: float, digits: int, rounding: str) -> str:
    if math.isinf(value) or math.isnan(value):
        return number(value)
    return number(float(Context(prec=digits, rounding=rounding).create_decimal_from_float(value)))


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 agent`` or ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def together(names: Sequence[str], word: str = "and") -> str:
    """Return names as ``a``, ``a and b``, ``a, b or c``, or ``a0 to a3``; of many, count the rest.

    Three names or more that count on from each other become a range; quotes around them are kept.
    """
    runs: list[list[str]] = []
    before: re.Match[str] | None = None
    for name in names:
        counted = _COUNTED.fullmatch(name)
        if runs and _follows(before, counted):
            runs[-1].append(name)
        else:
            runs.append([name])
        before = counted
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    if len(parts) > SHOWN:
        parts[SHOWN:] = [f"{len(parts) - SHOWN} more"]
    *others, last = parts
    return f"{', '.join(others)} {word} {last}" if others else last


def marked(text: str, names: Sequence[Named]) -> str:
    """Return the text with marks for names: equal for agents that differ in names alone."""
    for k, name in enumerate(names):
        here = f"{name.before}{name.name}{name.after}"
        text = text.replace(here, f"{_NAME}{k}{_NAME}")
    return text


def named(text: str, names: Sequence[Sequence[Named]]) -> str:
    """Return the text with agents' names in place of the marks; see `marked`.

    Parameters
    ----------
    text : str
    names : sequence of sequence of Named
        Names of each kind.
    """
    for k, others in enumerate(zip(*names, strict=True)):
        first, every = others[0], list(dict.fromkeys(other.name for other in others))
        before = first.before + (first.several if len(every) > 1 else "")
        text = text.replace(f"{_NAME}{k}{_NAME}", f"{before}{together(every)}{first.after}")
    return text


def paragraph(label: str, text: str, width: int) -> str:
    """Return a text of this width after its label, with later lines indented as much."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _follows(first: re.Match[str] | None, second: re.Match[str] | None) -> bool:
    """Return whether the names end in a number and the next one, and are alike otherwise."""
    if first is None or second is None or first[1] != second[1] or first[3] != second[3]:
        return False
    return int(second[2]) == int(first[2]) + 1
