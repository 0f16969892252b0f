"""What agents note of an exchange, for the ledger: charges and values, those alike in one line."""

from __future__ import annotations

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
        self._charges: dict[Entry, list[str]] = {}
        # By place and size: names, and the numbers as they are then, for agents compute in place.
        self._values: dict[tuple[int, int, int], tuple[list[str], list[bytes]]] = {}

    def charge(self, agents: list[str], entry: Entry) -> None:
        """See `Writer`."""
        self._charges.setdefault(entry, []).extend(agents)

    def release(self, agents: list[str], place: tuple[int, int], values: Array) -> None:
        """See `Writer`."""
        names, numbers = self._values.setdefault((*place, values.shape[1]), ([], []))
        names.extend(agents)
        numbers.append(np.asarray(values, dtype="<f8").tobytes())

    def add(self, later: Notes) -> None:
        """What others noted, behind these."""
        for entry, agents in later._charges.items():
            self.charge(agents, entry)
        for key, (names, numbers) in later._values.items():
            known = self._values.setdefault(key, ([], []))
            known[0].extend(names)
            known[1].extend(numbers)

    def taken(self) -> Notes:
        """What was noted since it was last taken."""
        taken = Notes()
        taken._charges, taken._values = self._charges, self._values
        self._charges, self._values = {}, {}
        return taken

    def lines(self) -> list[dict[str, Any]]:
        """Lines for the file: first all charges, then all values, each agent's in their order."""
        charges = sorted(self._charges.items(), key=lambda one: (one[0].round, one[0].step))
        values = sorted(self._values.items(), key=lambda one: one[0][:2])
        return [
            *(charges_line(agents, entry) for entry, agents in charges),
            *(
                values_line(names, (t, step), b"".join(numbers))
                for (t, step, _), (names, numbers) in values
            ),
        ]
