"""Where random bits come from: the operating system, or streams that a seed repeats."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[np.uint64]


class Randomness(Protocol):
    """A stream of random 64-bit words."""

    def words(self, size: int) -> Words:
        """The next independent uniform words."""
        ...


class Source(Protocol):
    """Where the noise of an agent comes from."""

    def at(self, round: int, step: int) -> Randomness:
        """The stream of one release."""
        ...


class Secure:
    """The operating system's cryptographic generator."""

    def at(self, round: int, step: int) -> Secure:
        """Itself: its words are independent of all others."""
        return self

    def words(self, size: int) -> Words:
        """The next independent uniform words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


@dataclass(frozen=True)
class Seeded:
    """Reproducible streams, one per release. Whoever knows the seed knows the noise.

    Parameters
    ----------
    seed : int
    key : tuple of int
        Tells agents, plans and earlier runs under the same seed apart.
    """

    seed: int
    key: tuple[int, ...]

    def at(self, round: int, step: int) -> Stream:
        """The stream of one release, whatever was drawn before."""
        return Stream(np.random.SeedSequence(self.seed, spawn_key=(*self.key, round, step)))


class Stream:
    """Words of a counter-based generator."""

    def __init__(self, seed: np.random.SeedSequence) -> None:
        self._bits = np.random.Philox(seed)

    def words(self, size: int) -> Words:
        """The next independent uniform words."""
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)


class Coins:
    """Public randomness: which agent is next, which round is the last.

    Parameters
    ----------
    source : Randomness
    """

    def __init__(self, source: Randomness) -> None:
        self._source = source

    def below(self, limit: int) -> int:
        """A uniform integer from 0 to ``limit - 1``."""
        # Words beyond the last whole multiple are drawn again.
        end = (2**64 // limit) * limit
        while True:
            word = int(self._source.words(1)[0])
            if word < end:
                return word % limit

    def shuffled(self, size: int) -> list[int]:
        """A uniform permutation of ``0, ..., size - 1``."""
        order = list(range(size))
        for i in range(size - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order


def uniform(size: int, source: Randomness) -> Array:
    """Variables that are uniform between 0 and 1, in floating point."""
    return (source.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def words_of(sources: Sequence[Randomness], size: int) -> Words:
    """The next words of each of several streams, in one call where they come from one place.

    Parameters
    ----------
    sources : sequence of Randomness
    size : int

    Returns
    -------
    ndarray of uint64, shape (sources, size)
    """
    if all(type(source) is Secure for source in sources):
        return sources[0].words(len(sources) * size).reshape(len(sources), size)
    return np.stack([source.words(size) for source in sources])


def source_for(seed: int | None, key: tuple[int, ...]) -> Source:
    """The default source without a seed, reproducible streams with one."""
    return Secure() if seed is None else Seeded(seed, key)
