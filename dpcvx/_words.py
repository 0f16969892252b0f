"""Texts of numbers, counts and lists of names for sentences, and line breaks."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import NamedTuple

# Largest number of parts of a list that a text shows; the text counts all others.
SHOWN = 12
# Names that end in a number, with or without quotes around them.
_COUNTED = re.compile(r"(.*?)(0|[1-9][0-9]{0,8})('?)")
# Largest relative difference of a range's ends that are shown as one number.
_TIE = 1e-6
# Character around the number of a name in a marked text; no other text has it.
_NAME = "\0"


class Named(NamedTuple):
    """Name of an agent or its object in a text, with the words before and after the name.

    `several` is inserted before the names if the text applies to more than one.
    """

    before: str
    name: str
    after: str = ""
    several: str = ""


def number(value: float) -> str:
    """Return a number with six digits, and exponents without zeros: ``1e-6``, ``0.282843``."""
    return re.sub(r"e([+-])0*", lambda match: f"e{match[1].strip('+')}", f"{value:.6g}")


def at_most(value: float, digits: int = 3) -> str:
    """Return a number rounded up to `digits` digits, so that an upper bound remains one."""
    # An excess of two billionths is ignored, since sensitivities are rounded up by one billionth.
    return _rounded(value * (1 - 2e-9), digits, ROUND_CEILING) if value > 0 else number(value)


def at_least(value: float, digits: int = 3) -> str:
    """Return a number rounded down to `digits` digits, so that a lower bound remains one."""
    return _rounded(value * (1 + 1e-9), digits, ROUND_FLOOR) if value > 0 else number(value)


def between(low: float, high: float) -> str:
    """Return a range of positive numbers, rounded down; one number if its ends are nearly equal."""
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
    """Return names as ``a``, ``a and b``, ``a, b or c``, or ``a0 to a3``; long lists are cut.

    Three or more names with consecutive numbers become a range; quotes around them are kept. The
    text counts the names that it omits.
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
    """Return the text with marks in place of names: equal for agents that differ only in names."""
    for k, name in enumerate(names):
        here = f"{name.before}{name.name}{name.after}"
        text = text.replace(here, f"{_NAME}{k}{_NAME}")
    return text


def named(text: str, names: Sequence[Sequence[Named]]) -> str:
    """Return a marked text with the names of all agents in place of the marks; see `marked`.

    Parameters
    ----------
    text : str
        Text with marks.
    names : sequence of sequence of Named
        Names of every agent, in the order of the marks.
    """
    for k, others in enumerate(zip(*names, strict=True)):
        first, every = others[0], list(dict.fromkeys(other.name for other in others))
        before = first.before + (first.several if len(every) > 1 else "")
        text = text.replace(f"{_NAME}{k}{_NAME}", f"{before}{together(every)}{first.after}")
    return text


def paragraph(label: str, text: str, width: int) -> str:
    """Return a text wrapped to this width after its label, with later lines indented."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _follows(first: re.Match[str] | None, second: re.Match[str] | None) -> bool:
    """Return whether two names end in consecutive numbers, and are otherwise equal."""
    if first is None or second is None or first[1] != second[1] or first[3] != second[3]:
        return False
    return int(second[2]) == int(first[2]) + 1
