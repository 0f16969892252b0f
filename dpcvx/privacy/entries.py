"""Ledger entries in little memory: releases that differ in their place only are kept once.

Runs in a row that released the same are kept once as well, so a ledger of many runs stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from .._words import plural


@dataclass(frozen=True)
class Entry:
    """One application of a noise mechanism.

    Attributes
    ----------
    round, step : int
        Round (from 1; 0 is before the first) and release within the round (from 1).
    mechanism : str
    multiplier : float
        Noise scale over sensitivity.
    sensitivity : float
        Bound of what is released, in the mechanism's norm, after the released vector was scaled to
        unit noise shape; rounding to the grid included.
    grid : float
        Width of the grid on which the scaled vector was released; 0 without noise.
    certificate : {"derived", "asserted", "none"}
        Origin of the sensitivity; asserted by the user, or none for a release without noise.
    released : str
        Kind of the released value: a gradient, the solution of a local step, or, once, the data or
        the linear coefficient of the objective.
    stated : (float, float) or None
        Epsilon and delta of what is known by such a pair only, in place of the multiplier.
    colluders : int or None
        Collusion threshold: other agents that may collude with the server; None for any number.
    alone : float or None
        The multiplier against all of them; None where it is the same.
    """

    round: int
    step: int
    mechanism: str
    multiplier: float
    sensitivity: float
    grid: float
    certificate: Literal["derived", "asserted", "none"]
    released: str
    stated: tuple[float, float] | None = None
    colluders: int | None = None
    alone: float | None = None


_kind = attrgetter(
    "mechanism",
    "multiplier",
    "sensitivity",
    "grid",
    "certificate",
    "released",
    "stated",
    "colluders",
    "alone",
)


@dataclass(frozen=True)
class Span:
    """Entries of one kind from `first` on, `steps` to a round; 0 within the first round."""

    first: Entry
    count: int = 1
    steps: int = 0

    def place(self, i: int) -> tuple[int, int]:
        """Return the round and step of entry i."""
        if self.steps == 0:
            return self.first.round, self.first.step + i
        rounds, step = divmod(self.first.step - 1 + i, self.steps)
        return self.first.round + rounds, step + 1

    def entry(self, i: int) -> Entry:
        """Return entry i."""
        t, step = self.place(i)
        return replace(self.first, round=t, step=step) if i else self.first

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Return each kind of entry with its count; see `Entries`."""
        yield self.first, self.count

    def extended(self, entry: Entry) -> Span | None:
        """Return the span with one more entry, if that is of the same kind and comes next."""
        if _kind(entry) != _kind(self.first):
            return None
        steps = self.steps
        if steps == 0 and entry.round > self.first.round:
            steps = self.place(self.count - 1)[1]
        longer = Span(self.first, self.count + 1, steps)
        return longer if longer.place(self.count) == (entry.round, entry.step) else None


@dataclass(frozen=True, eq=False)
class _Picked:
    """Entries of one agent, picked from the shared entries of many agents."""

    entries: Sequence[Entry]
    places: NDArray[np.int32]

    @property
    def count(self) -> int:
        """Return the number of picked entries."""
        return self.places.size

    def entry(self, i: int) -> Entry:
        """Return entry i."""
        return self.entries[self.places[i]]

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Return each kind of entry with its count; see `Entries`."""
        return ((self.entries[index], 1) for index in self.places.tolist())

    def extended(self, entry: Entry) -> None:
        """Return None: other entries never extend picked ones."""


class Entries(Sequence[Entry]):
    """Append-only sequence of entries."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        # Of earlier runs, and how many runs in a row have the same; then those of the last run.
        self._runs: list[tuple[tuple[Span | _Picked, ...], int]] = []
        self._spans: list[Span | _Picked] = []
        self._size = 0
        for entry in entries:
            self.append(entry)

    @staticmethod
    def of_runs(runs: Iterable[tuple[tuple[Span, ...], int]]) -> Entries:
        """Return the entries of runs; see `runs`."""
        new = Entries()
        for spans, times in runs:
            new._runs.append((spans, times))
            new._size += times * sum(span.count for span in spans)
        return new

    @property
    def runs(self) -> list[tuple[tuple[Span | _Picked, ...], int]]:
        """Spans of each run, and how many runs in a row have the same."""
        last = tuple(self._spans)
        if not last:
            return list(self._runs)
        if self._runs and self._runs[-1][0] == last:
            return [*self._runs[:-1], (last, self._runs[-1][1] + 1)]
        return [*self._runs, (last, 1)]

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        longer = self._spans[-1].extended(entry) if self._spans else None
        if longer is None:
            self._spans.append(Span(entry))
        else:
            self._spans[-1] = longer
        self._size += 1

    def pick(self, entries: Sequence[Entry], places: NDArray[np.integer]) -> None:
        """Add entries of a collection that many agents share.

        Parameters
        ----------
        entries : sequence of Entry
            Kept as it is.
        places : ndarray of int
            Indices of the entries, in the order of their rounds.
        """
        if places.size:
            self._spans.append(_Picked(entries, places.astype(np.int32)))
            self._size += places.size

    def copy(self) -> Entries:
        """Return a copy of the entries that can be extended independently."""
        new = Entries()
        new._runs, new._spans, new._size = list(self._runs), list(self._spans), self._size
        return new

    def continued(self) -> Entries:
        """Return a copy for the entries of a further run."""
        new = Entries()
        new._runs, new._size = self.runs, self._size
        return new

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Entries that differ in their place at most: the first, and how many they are."""
        for spans, times in self.runs:
            for span in spans:
                yield from ((entry, times * count) for entry, count in span.kinds)

    def __iter__(self) -> Iterator[Entry]:
        for spans, times in self.runs:
            for _ in range(times):
                for span in spans:
                    yield from (span.entry(i) for i in range(span.count))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...

    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            return list(self)[index]
        i = range(self._size)[index]
        for spans, times in self.runs:
            size = sum(span.count for span in spans)
            if i >= times * size:
                i -= times * size
                continue
            i %= size
            for span in spans:
                if i < span.count:
                    return span.entry(i)
                i -= span.count
        raise IndexError(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Entries, list, tuple)):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, Entries) and self.runs == other.runs:
            return True
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return f"<Entries: {plural(len(self), 'release')}>"
