"""Sums over agents, in an order that does not depend on where these live.

Agents are the leaves of a binary tree, from left to right. What stands at a node is the sum over
the agents below it: the left half's and then the right half's, where both have something. Whoever
has some of the agents adds up what he has both halves of. So few numbers travel, and the total has
the same bits however the agents are dealt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """A sum over the ``2 ** level`` agents of a node, on its way in the reply of the first one."""

    level: int
    value: Any


def partial(terms: Mapping[int, Any]) -> dict[int, Part]:
    """What some agents' terms add up to, by the first agent of a node.

    Parameters
    ----------
    terms : mapping of int to array
        By agent.
    """
    found: dict[int, Part] = {}
    level, here = 0, dict(terms)
    while here:
        above: dict[int, Any] = {}
        for place, value in here.items():
            other = here.get(place ^ 1)
            if other is None:
                found[place << level] = Part(level, value)
            elif place & 1 == 0:
                above[place >> 1] = value + other
        level, here = level + 1, above
    return found


def partial_rows(rows: Array) -> dict[int, Part]:
    """`partial` of the rows of an array, of which agent k has row k: the same bits, at once.

    Parameters
    ----------
    rows : ndarray, shape (agents, n)
    """
    found: dict[int, Part] = {}
    level = 0
    while len(rows):
        last = len(rows) - 1
        if last % 2 == 0:
            found[last << level] = Part(level, rows[last])
            rows = rows[:last]
        rows = rows[0::2] + rows[1::2]
        level += 1
    return found


def total(replies: Iterable[Any]) -> Any:
    """The sum over all agents.

    Parameters
    ----------
    replies : iterable
        By agent: its term, a `Part` that begins with it, or None where it has nothing, or what it
        has is in another's part.
    """
    levels: dict[int, dict[int, Any]] = {}
    for agent, reply in enumerate(replies):
        if reply is not None:
            part = reply if isinstance(reply, Part) else Part(0, reply)
            levels.setdefault(part.level, {})[agent >> part.level] = part.value
    level, here = 0, levels.pop(0, {})
    while levels or len(here) > 1:
        above: dict[int, Any] = {}
        for place in sorted(here):
            left, right = here.get(place & ~1), here.get(place | 1)
            above[place >> 1] = right if left is None else left if right is None else left + right
        level += 1
        here = {**above, **levels.pop(level, {})}
    return next(iter(here.values()))
