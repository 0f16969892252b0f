"""Times of calls taken in turns, and the rows that come out of them.

Seconds of the processor, not of the wall, except where several cores are compared: other jobs on
the machine then count for little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes
    ----------
    name : str
        Tells rows apart, also in the file of committed ratios.
    against : str
        What the figure is relative to.
    size : str
    measured : float or None
        None if the row cannot be measured here; `note` says why.
    required : float or None
        Largest value that passes; None for rows without a requirement.
    unit : {"x", "us", "s", "B", ""}
        "x" marks a ratio of times: only these are comparable between machines. No unit: a number.
    note : str
        Absolute times, for orientation.
    """

    name: str
    against: str
    size: str
    measured: float | None
    required: float | None = None
    unit: str = "x"
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the requirement is met; None where there is nothing to judge."""
        if self.measured is None or self.required is None:
            return None
        return bool(self.measured <= self.required)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes
    ----------
    repeats : int
        Turns of a comparison.
    quick : bool
        Also leave out the largest sizes.
    """

    repeats: int = 7
    quick: bool = False


def timed(call: Callable[[], Any], clock: Clock = time.process_time) -> float:
    """Seconds of one call."""
    started = clock()
    call()
    return clock() - started


def shortest(calls: Sequence[Callable[[], Any]], repeats: int, clock: Clock) -> Array:
    """Shortest time of each call, taken in turns so that other jobs' load falls on all."""
    return np.min([[timed(call, clock) for call in calls] for _ in range(repeats)], axis=0)


def per_input(
    calls: Sequence[Callable[[int], Any]], inputs: int, repeats: int, warm_up: int = 1
) -> Array:
    """Mean over the inputs of the shortest time of each call, in seconds.

    Calls take turns, each with all its inputs in a row, as steps follow each other in a run: after
    another's work, and a rebuilt model's most of all, the first call finds cold caches.
    """
    seconds = np.full((len(calls), inputs), np.inf)
    for _ in range(repeats):
        for c, call in enumerate(calls):
            for k in range(min(warm_up, inputs)):
                call(k)
            for k in range(inputs):
                seconds[c, k] = min(seconds[c, k], timed(lambda call=call, k=k: call(k)))
    return seconds.mean(axis=1)


def shown(seconds: float) -> str:
    """A time with a unit that fits."""
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit:
            return f"{factor * seconds:.3g} {unit}"
    return f"{seconds:.3g} s"
