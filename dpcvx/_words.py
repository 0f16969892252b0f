"""How sentences write numbers, counts and lists of names, and how lines are broken."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

# Parts of a list that are shown; so many more are counted.
_SHOWN = 12


def number(value: float) -> str:
    """Six digits without the zeros that Python puts into exponents: ``1e-6``, ``0.282843``."""
    return re.sub(r"e([+-])0*", lambda found: f"e{found[1].strip('+')}", f"{value:.6g}")


def at_most(value: float) -> str:
    """Like `number`, rounded up, so that what is said to be a bound is one."""
    if not 0 < value < math.inf:
        return number(value)
    # What is less than a billionth above six digits is these six digits.
    digits = Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(value * (1 - 1e-9))
    return number(float(digits))


def plural(number: int, noun: str) -> str:
    """Such as ``1 agent`` or ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def together(names: Sequence[str], word: str = "and") -> str:
    """Such as ``a``, ``a and b``, ``a, b or c``, or ``a0 to a3``; of a long list, how many more.

    Three names or more that count on from each other become a range; quotes around them are kept.
    """
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else run
    if len(parts) > _SHOWN:
        parts[_SHOWN:] = [f"{len(parts) - _SHOWN} more"]
    *others, last = parts
    return f"{', '.join(others)} {word} {last}" if others else last


def paragraph(label: str, text: str, width: int) -> str:
    """A text of this width after its label, with lines below the first indented by as much."""
    return textwrap.fill(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
    )


def _follows(one: str, other: str) -> bool:
    """Whether the names end in a number and the next one, and are alike otherwise."""
    first, second = (re.fullmatch(r"(.*?)(0|[1-9][0-9]{0,8})('?)", name) for name in (one, other))
    if first is None or second is None or first[1] != second[1] or first[3] != second[3]:
        return False
    return int(second[2]) == int(first[2]) + 1
