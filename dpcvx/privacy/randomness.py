"""Sources of random bits: the operating system, or streams that a seed repeats."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Words = NDArray[np.uint64]
Index = NDArray[np.intp]


class Randomness(Protocol):
    """A stream of random 64-bit words."""

    def words(self, size: int) -> Words:
        """Return the next independent uniform words."""
        ...


class Streams(Protocol):
    """A stream of random 64-bit words for each of several agents."""

    def __len__(self) -> int:
        """Return the number of streams."""
        ...

    def words(self, size: int) -> Words:
        """Return the next words of all, shape (streams, size)."""
        ...

    def one(self, i: int) -> Randomness:
        """Return stream i alone, which goes on after what all have drawn."""
        ...

    def among(self, rows: Index) -> Streams:
        """Return some of the streams, before any has drawn."""
        ...


class Source(Protocol):
    """Source of the noise of an agent."""

    def at(self, round: int, step: int) -> Randomness:
        """Return the stream of one release."""
        ...


class Sources(Protocol):
    """Sources of the noise of several agents."""

    def at(self, round: int, step: int) -> Streams:
        """Return the streams of one release of each."""
        ...


class Secure:
    """The operating system's cryptographic generator."""

    def at(self, round: int, step: int) -> Secure:
        """Return the source itself: its words are independent of all others."""
        return self

    def words(self, size: int) -> Words:
        """Return the next independent uniform words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


@dataclass(frozen=True)
class Seeded:
    """Reproducible streams, one per release. Anyone who knows the seed knows the noise.

    Parameters
    ----------
    seed : int
    key : tuple of int
        Tells agents, plans and earlier runs under the same seed apart.
    """

    seed: int
    key: tuple[int, ...]

    def at(self, round: int, step: int) -> Stream:
        """Return the stream of one release, whatever was drawn before."""
        key = (*self.key, round, step)
        return Stream(np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key)))


class Stream:
    """Words of a counter-based generator."""

    def __init__(self, bits: np.random.Philox) -> None:
        self._bits = bits

    def words(self, size: int) -> Words:
        """Return the next independent uniform words."""
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)


@dataclass(frozen=True)
class Alone:
    """A stream in the form of a sequence of streams."""

    stream: Randomness

    def __len__(self) -> int:
        """Return the number of streams, 1."""
        return 1

    def words(self, size: int) -> Words:
        """Return the next words, shape (1, size)."""
        return self.stream.words(size)[np.newaxis]

    def one(self, i: int) -> Randomness:
        """Return the stream."""
        return self.stream

    def among(self, rows: Index) -> Alone:
        """Return the same streams."""
        return self


@dataclass(frozen=True)
class SecureStreams:
    """The operating system's generator, for each of so many agents."""

    count: int

    def at(self, round: int, step: int) -> SecureStreams:
        """Return the same streams; see `Secure`."""
        return self

    def __len__(self) -> int:
        """Return the number of streams."""
        return self.count

    def words(self, size: int) -> Words:
        """Return the next words of all, in one call."""
        return Secure().words(self.count * size).reshape(self.count, size)

    def one(self, i: int) -> Secure:
        """Return one secure stream."""
        return Secure()

    def among(self, rows: Index) -> SecureStreams:
        """Return as many secure streams as rows."""
        return SecureStreams(rows.size)


class SeededTogether:
    """The streams of several `Seeded`, bit by bit, made in one call.

    Parameters
    ----------
    sources : sequence of Seeded
        Sources whose keys have equal numbers of words.
    """

    def __init__(self, sources: Sequence[Seeded]) -> None:
        self._entropy = np.array([_entropy(source) for source in sources], dtype=np.uint32)

    def at(self, round: int, step: int) -> SeededStreams:
        """Return the streams of one release of each."""
        digits = np.array([*_digits(round), *_digits(step)], dtype=np.uint32)
        rows = np.broadcast_to(digits, (len(self._entropy), digits.size))
        return SeededStreams(_philox_keys(np.hstack([self._entropy, rows])))


class SeededStreams:
    """A `Stream` for each of several keys.

    Parameters
    ----------
    keys : ndarray of uint64, shape (streams, 2)
    """

    def __init__(self, keys: Words) -> None:
        self._keys, self._drawn = keys, 0
        self._single: dict[int, Stream] = {}

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._keys)

    def words(self, size: int) -> Words:
        """Return the next words of all."""
        out = np.empty((len(self), size), dtype=np.uint64)
        # To give one generator another state takes a fifth of the time that it takes to make one.
        bits, skipped = np.random.Philox(key=0), self._drawn
        fresh: Any = bits.state
        for key, row in zip(self._keys, out, strict=True):
            fresh["state"]["key"] = key
            bits.state = fresh
            row[:] = bits.random_raw(skipped + size)[skipped:]
        self._drawn += size
        return out

    def one(self, i: int) -> Stream:
        """Return stream i alone, which goes on after what all have drawn."""
        if i not in self._single:
            self._single[i] = Stream(np.random.Philox(key=self._keys[i]))
            self._single[i].words(self._drawn)
        return self._single[i]

    def among(self, rows: Index) -> SeededStreams:
        """Return some of the streams, from their beginning."""
        return SeededStreams(self._keys[rows])


# Of numpy's SeedSequence, whose streams numpy promises to keep; for its `spawn_key`.
_POOL = 4
_FIRST_A, _TIMES_A = 0x43B0D7E5, 0x931E8875
_FIRST_B, _TIMES_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)


def _digits(number: int) -> list[int]:
    """Return a number in words of 32 bits, the least significant first."""
    digits = [number & 0xFFFFFFFF]
    while number := number >> 32:
        digits.append(number & 0xFFFFFFFF)
    return digits


def _entropy(source: Seeded) -> list[int]:
    """Return the words that numpy hashes for a seed with a key, but for round and step."""
    seed = _digits(source.seed)
    seed += [0] * (_POOL - len(seed))
    return [*seed, *(word for part in source.key for word in _digits(part))]


def _philox_keys(entropy: NDArray[np.uint32]) -> Words:
    """Return ``SeedSequence(...).generate_state(2, uint64)`` of every row; products wrap."""
    constants = _powers(_FIRST_A, _TIMES_A)

    def hashed(value: NDArray[np.uint32]) -> NDArray[np.uint32]:
        value = (value ^ next(constants)) * next(constants)
        return value ^ (value >> _HALF)

    def mixed(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint32]:
        combined = _MIX_LEFT * x - _MIX_RIGHT * y
        return combined ^ (combined >> _HALF)

    pool = [hashed(entropy[:, i]) for i in range(_POOL)]
    for i, j in itertools.permutations(range(_POOL), 2):
        pool[j] = mixed(pool[j], hashed(pool[i]))
    for i, j in itertools.product(range(_POOL, entropy.shape[1]), range(_POOL)):
        pool[j] = mixed(pool[j], hashed(entropy[:, i]))
    constants = _powers(_FIRST_B, _TIMES_B)
    state = np.stack([hashed(part) for part in pool], axis=1).astype(np.uint64)
    return state[:, ::2] | (state[:, 1::2] << np.uint64(32))


def _powers(first: int, times: int) -> Iterator[np.uint32]:
    """Yield constants, twice each: the last one of a value is the first of the next."""
    while True:
        yield np.uint32(first)
        first = first * times & 0xFFFFFFFF
        yield np.uint32(first)


class PublicCoins:
    """Public randomness: which agent is next, which round is the last.

    Parameters
    ----------
    source : Randomness
    """

    def __init__(self, source: Randomness) -> None:
        self._source = source

    def below(self, limit: int) -> int:
        """Return a uniform integer from 0 to ``limit - 1``."""
        # Words beyond the last whole multiple are drawn again.
        end = (2**64 // limit) * limit
        while True:
            word = int(self._source.words(1)[0])
            if word < end:
                return word % limit

    def shuffled(self, size: int) -> list[int]:
        """Return a uniform permutation of ``0, ..., size - 1``."""
        order = list(range(size))
        for i in range(size - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order


def uniform(size: int, source: Randomness | Streams) -> Array:
    """Return variables that are uniform between 0 and 1, as floats; a row for each stream."""
    return (source.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def source_for(seed: int | None, key: tuple[int, ...]) -> Source:
    """Return the default source without a seed, reproducible streams with one."""
    return Secure() if seed is None else Seeded(seed, key)


@dataclass(frozen=True)
class SourceOfOne:
    """Noise of one agent, as that of several."""

    source: Source

    def at(self, round: int, step: int) -> Alone:
        """Return the stream of one release."""
        return Alone(self.source.at(round, step))


def together(sources: Sequence[Source]) -> Sources:
    """Return several sources as one, with the same words.

    Parameters
    ----------
    sources : sequence of Source
        One of any kind; or several of `source_for`, all with a seed or all without.
    """
    if len(sources) == 1:
        return SourceOfOne(sources[0])
    seeded = [source for source in sources if isinstance(source, Seeded)]
    return SeededTogether(seeded) if seeded else SecureStreams(len(sources))
