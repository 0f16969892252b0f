"""What agents note of an exchange, for the ledger: charges and values, those alike in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .entries import Entry
from .ledger_lines import charges_line, values_line

Array = NDArray[np.float64]


class Writer(Protocol):
    """The ledger as agents see it: what they tell it is on disk before anything of it leaves."""

    def charge(self, agents: list[str], entry: Entry) -> None:
        """Releases of agents that release alike are about to be computed."""
        ...

    def release(self, agents: list[str], place: tuple[int, int], values: Array) -> None:
        """A value of each of these agents is about to leave.

        Parameters
        ----------
        agents : list of str
        place : (int, int)
            Round and step.
        values : ndarray, shape (agents, n)
        """
        ...


class Notes:
    """Charges and values as they come in; they pickle, and can be noted elsewhere again."""

    def __init__(self) -> None:
        # What was told at once stays together: names of the run's agents, in their order.
        self._charges: dict[Entry, list[list[str]]] = {}
        # By place and size, with the numbers as they are then, for agents compute in place.
        self._values: dict[tuple[int, int, int], list[tuple[list[str], bytes]]] = {}

    def charge(self, agents: list[str], entry: Entry) -> None:
        """See `Writer`."""
        self._charges.setdefault(entry, []).append(agents)

    def release(self, agents: list[str], place: tuple[int, int], values: Array) -> None:
        """See `Writer`."""
        numbers = np.asarray(values, dtype="<f8").tobytes()
        self._values.setdefault((*place, values.shape[1]), []).append((agents, numbers))

    def add(self, later: Notes) -> None:
        """What others noted, beside these."""
        for entry, told in later._charges.items():
            self._charges.setdefault(entry, []).extend(told)
        for key, told in later._values.items():
            self._values.setdefault(key, []).extend(told)

    def taken(self) -> Notes:
        """What was noted since it was last taken."""
        taken = Notes()
        taken._charges, taken._values = self._charges, self._values
        self._charges, self._values = {}, {}
        return taken

    def lines(self, order: Mapping[str, int]) -> list[dict[str, Any]]:
        """Lines for the file, the same whoever noted first: all charges, then all values.

        Parameters
        ----------
        order : mapping of str to int
            Where each agent comes in the run; others come first.
        """

        def rank(name: str) -> int:
            return order.get(name, -1)

        charges: list[tuple[tuple[int, ...], dict[str, Any]]] = []
        for entry, told in self._charges.items():
            names = told[0] if len(told) == 1 else sorted(chain(*told), key=rank)
            at = entry.round, entry.step, rank(names[0])
            charges.append((at, charges_line(names, entry)))
        values: list[tuple[tuple[int, ...], dict[str, Any]]] = []
        for (t, step, size), told in self._values.items():
            names, numbers = told[0] if len(told) == 1 else _sorted(told, size, rank)
            values.append(((t, step, rank(names[0])), values_line(names, (t, step), numbers)))
        return [line for kind in (charges, values) for _, line in sorted(kind, key=itemgetter(0))]


def _sorted(
    told: list[tuple[list[str], bytes]], size: int, rank: Callable[[str], int]
) -> tuple[list[str], bytes]:
    """Names in their order, and the numbers of each."""
    width = 8 * size
    each = [
        (name, numbers[k * width : (k + 1) * width])
        for names, numbers in told
        for k, name in enumerate(names)
    ]
    each.sort(key=lambda one: rank(one[0]))
    return [name for name, _ in each], b"".join(own for _, own in each)
