"""Ledger entries in compressed form, for little memory.

Consecutive entries that differ only in round and step are stored once, and so are consecutive runs
with equal entries. A ledger of many runs therefore stays small.
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
    """Record of one release: one application of a noise mechanism.

    Attributes
    ----------
    round, step : int
        Round (from 1; 0 is before the first) and release within the round (from 1).
    mechanism : str
        Name of the mechanism.
    multiplier : float
        Noise scale over sensitivity.
    sensitivity : float
        Sensitivity bound of the released vector in the mechanism's norm. It includes rounding to
        the grid, and refers to the vector scaled so that its noise has one scale for all
        components.
    grid : float
        Width of the grid on which the scaled vector was released; 0 without noise.
    certificate : {"derived", "asserted", "none"}
        Origin of the sensitivity: derived by dpcvx, asserted by the user, or none without noise.
    released : str
        Kind of the released value: a gradient, the solution of a local step, or, once, the data or
        the linear coefficient of the objective.
    stated : (float, float) or None
        Epsilon and delta of a release whose loss is bounded by this pair only (else None).
    colluders : int or None
        Largest number of agents that may collude with the server; None if there is no limit.
    alone : float or None
        Noise multiplier against all other agents, colluding; None if it equals `multiplier`.
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
    """Run of `count` consecutive ledger entries that differ in round and step only.

    Every round has `steps` of these entries. If `steps` is 0, one round has all of them.
    """

    first: Entry
    count: int = 1
    steps: int = 0

    def place(self, i: int) -> tuple[int, int]:
        """Return the round and step of the i-th ledger entry; i counts from 0."""
        if self.steps == 0:
            return self.first.round, self.first.step + i
        rounds, step = divmod(self.first.step - 1 + i, self.steps)
        return self.first.round + rounds, step + 1

    def entry(self, i: int) -> Entry:
        """Return the i-th ledger entry; i counts from 0."""
        t, step = self.place(i)
        return replace(self.first, round=t, step=step) if i else self.first

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Pair of the first ledger entry and the number of entries; see `Entries.kinds`."""
        yield self.first, self.count

    def extended(self, entry: Entry) -> Span | None:
        """Return the span with one more entry if it is the next one of this kind, else None."""
        if _kind(entry) != _kind(self.first):
            return None
        steps = self.steps
        if steps == 0 and entry.round > self.first.round:
            steps = self.place(self.count - 1)[1]
        longer = Span(self.first, self.count + 1, steps)
        return longer if longer.place(self.count) == (entry.round, entry.step) else None


@dataclass(frozen=True, eq=False)
class _Picked:
    """Ledger entries of one agent, stored as indices into a list that many agents share."""

    entries: Sequence[Entry]
    places: NDArray[np.int32]

    @property
    def count(self) -> int:
        """Number of ledger entries."""
        return self.places.size

    def entry(self, i: int) -> Entry:
        """Return the i-th ledger entry; i counts from 0."""
        return self.entries[self.places[i]]

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Pairs of each ledger entry and 1: none are counted together; see `Entries.kinds`."""
        return ((self.entries[index], 1) for index in self.places.tolist())

    def extended(self, entry: Entry) -> None:
        """Return None, because a list of picked entries cannot be extended."""


class Entries(Sequence[Entry]):
    """Append-only sequence of ledger entries, which stores equal entries and equal runs once."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        # Entries of earlier runs, with the number of consecutive equal runs; then the last run's
        # entries.
        self._runs: list[tuple[tuple[Span | _Picked, ...], int]] = []
        self._spans: list[Span | _Picked] = []
        self._size = 0
        for entry in entries:
            self.append(entry)

    @staticmethod
    def of_runs(runs: Iterable[tuple[tuple[Span, ...], int]]) -> Entries:
        """Return the entries of several runs, in the form that `runs` returns."""
        new = Entries()
        for spans, times in runs:
            new._runs.append((spans, times))
            new._size += times * sum(span.count for span in spans)
        return new

    @property
    def runs(self) -> list[tuple[tuple[Span | _Picked, ...], int]]:
        """Spans of each run, and the number of consecutive runs with equal spans."""
        last = tuple(self._spans)
        if not last:
            return list(self._runs)
        if self._runs and self._runs[-1][0] == last:
            return [*self._runs[:-1], (last, self._runs[-1][1] + 1)]
        return [*self._runs, (last, 1)]

    def append(self, entry: Entry) -> None:
        """Append a ledger entry."""
        longer = self._spans[-1].extended(entry) if self._spans else None
        if longer is None:
            self._spans.append(Span(entry))
        else:
            self._spans[-1] = longer
        self._size += 1

    def pick(self, entries: Sequence[Entry], places: NDArray[np.integer]) -> None:
        """Append one agent's ledger entries, which stand in a list that many agents share.

        Parameters
        ----------
        entries : sequence of Entry
            Shared list, which is stored without a copy.
        places : ndarray of int
            Indices of the agent's entries in this list, in the order of their rounds.
        """
        if places.size:
            self._spans.append(_Picked(entries, places.astype(np.int32)))
            self._size += places.size

    def copy(self) -> Entries:
        """Return a copy; entries appended to it do not change this sequence."""
        new = Entries()
        new._runs, new._spans, new._size = list(self._runs), list(self._spans), self._size
        return new

    def continued(self) -> Entries:
        """Return a copy whose appended entries belong to a further run."""
        new = Entries()
        new._runs, new._size = self.runs, self._size
        return new

    @property
    def kinds(self) -> Iterator[tuple[Entry, int]]:
        """Pairs (entry, count): entries that differ in round and step only, counted together."""
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
