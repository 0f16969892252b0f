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
    """Stream of independent uniform 64-bit words."""

    def words(self, size: int) -> Words:
        """Return the next `size` random 64-bit words of the stream."""
        ...


class Streams(Protocol):
    """Streams of random 64-bit words, one for each of several agents."""

    def __len__(self) -> int:
        """Return the number of streams."""
        ...

    def words(self, size: int) -> Words:
        """Return the next `size` words of every stream, shape (streams, size)."""
        ...

    def one(self, i: int) -> Randomness:
        """Return stream i alone; it continues after the words that `words` returned."""
        ...

    def among(self, rows: Index) -> Streams:
        """Return the streams at the indices `rows`; call it before any words are drawn."""
        ...


class Source(Protocol):
    """Source of one agent's noise: a random stream for each release."""

    def at(self, round: int, step: int) -> Randomness:
        """Return the random stream for release number `step` of round `round`."""
        ...


class Sources(Protocol):
    """Source of several agents' noise: a random stream for each agent and release."""

    def at(self, round: int, step: int) -> Streams:
        """Return the agents' streams for the release `step` of round `round`."""
        ...


class Secure:
    """Cryptographic random generator of the operating system, as `Source` and `Randomness`."""

    def at(self, round: int, step: int) -> Secure:
        """Return this object for every release: all words that it draws are independent."""
        return self

    def words(self, size: int) -> Words:
        """Return `size` independent uniform 64-bit words."""
        return np.frombuffer(os.urandom(8 * size), dtype=np.uint64)


@dataclass(frozen=True)
class Seeded:
    """Reproducible streams, one per release; anyone who knows the seed knows the noise.

    Parameters
    ----------
    seed : int
        Seed that users pass.
    key : tuple of int
        Numbers that distinguish agents, plans and earlier runs that use one seed.
    """

    seed: int
    key: tuple[int, ...]

    def at(self, round: int, step: int) -> Stream:
        """Return the random stream of a release; it does not depend on earlier draws."""
        key = (*self.key, round, step)
        return Stream(np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key)))


class Stream:
    """Stream of 64-bit words from numpy's counter-based generator Philox."""

    def __init__(self, bits: np.random.Philox) -> None:
        self._bits = bits

    def words(self, size: int) -> Words:
        """Return the next `size` random 64-bit words of the stream."""
        return np.asarray(self._bits.random_raw(size), dtype=np.uint64)


@dataclass(frozen=True)
class Alone:
    """A single stream with the interface of several streams (`Streams`)."""

    stream: Randomness

    def __len__(self) -> int:
        """Return the number of streams, 1."""
        return 1

    def words(self, size: int) -> Words:
        """Return the next `size` words, shape (1, size)."""
        return self.stream.words(size)[np.newaxis]

    def one(self, i: int) -> Randomness:
        """Return the single stream."""
        return self.stream

    def among(self, rows: Index) -> Alone:
        """Return the single stream unchanged."""
        return self


@dataclass(frozen=True)
class SecureStreams:
    """Cryptographic generator of the operating system, for each of `count` agents."""

    count: int

    def at(self, round: int, step: int) -> SecureStreams:
        """Return this object: all words are independent, whatever the release."""
        return self

    def __len__(self) -> int:
        """Return the number of streams."""
        return self.count

    def words(self, size: int) -> Words:
        """Return `size` words for every agent, shape (count, size), in one system call."""
        return Secure().words(self.count * size).reshape(self.count, size)

    def one(self, i: int) -> Secure:
        """Return a cryptographic stream; all of them are independent."""
        return Secure()

    def among(self, rows: Index) -> SecureStreams:
        """Return a cryptographic stream for each row."""
        return SecureStreams(rows.size)


class SeededTogether:
    """Several `Seeded` sources whose words are computed together, with unchanged values.

    Parameters
    ----------
    sources : sequence of Seeded
        Sources whose keys become equally many 32-bit words.
    """

    def __init__(self, sources: Sequence[Seeded]) -> None:
        self._entropy = np.array([_entropy(source) for source in sources], dtype=np.uint32)

    def at(self, round: int, step: int) -> SeededStreams:
        """Return the agents' streams for the release `step` of round `round`."""
        digits = np.array([*_digits(round), *_digits(step)], dtype=np.uint32)
        rows = np.broadcast_to(digits, (len(self._entropy), digits.size))
        return SeededStreams(_philox_keys(np.hstack([self._entropy, rows])))


class SeededStreams:
    """Streams of Philox words, one for each of several keys.

    Parameters
    ----------
    keys : ndarray of uint64, shape (streams, 2)
        Philox keys.
    """

    def __init__(self, keys: Words) -> None:
        self._keys, self._drawn = keys, 0
        self._single: dict[int, Stream] = {}

    def __len__(self) -> int:
        """Return the number of streams."""
        return len(self._keys)

    def words(self, size: int) -> Words:
        """Return the next `size` words of every stream, shape (streams, size)."""
        out = np.empty((len(self), size), dtype=np.uint64)
        # Setting the state of a generator takes a fifth of the time of constructing one.
        bits, skipped = np.random.Philox(key=0), self._drawn
        fresh: Any = bits.state
        for key, row in zip(self._keys, out, strict=True):
            fresh["state"]["key"] = key
            bits.state = fresh
            row[:] = bits.random_raw(skipped + size)[skipped:]
        self._drawn += size
        return out

    def one(self, i: int) -> Stream:
        """Return stream i alone; it continues after the words that `words` returned."""
        if i not in self._single:
            self._single[i] = Stream(np.random.Philox(key=self._keys[i]))
            self._single[i].words(self._drawn)
        return self._single[i]

    def among(self, rows: Index) -> SeededStreams:
        """Return new streams with the keys at the indices `rows`, from the beginning."""
        return SeededStreams(self._keys[rows])


# Constants of numpy's SeedSequence with its `spawn_key`; numpy promises stable streams.
_POOL = 4
_FIRST_A, _TIMES_A = 0x43B0D7E5, 0x931E8875
_FIRST_B, _TIMES_B = 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)


def _digits(number: int) -> list[int]:
    """Return a number as 32-bit words, the least significant first."""
    digits = [number & 0xFFFFFFFF]
    while number := number >> 32:
        digits.append(number & 0xFFFFFFFF)
    return digits


def _entropy(source: Seeded) -> list[int]:
    """Return the words that numpy hashes for a seed and key, without round and step."""
    seed = _digits(source.seed)
    seed += [0] * (_POOL - len(seed))
    return [*seed, *(word for part in source.key for word in _digits(part))]


def _philox_keys(entropy: NDArray[np.uint32]) -> Words:
    """Return the key ``SeedSequence(...).generate_state(2, uint64)`` for every row.

    Products are meant to wrap around.
    """
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
    """Yield ``first * times**k``, each twice: to end one value's hash and start the next."""
    while True:
        yield np.uint32(first)
        first = first * times & 0xFFFFFFFF
        yield np.uint32(first)


class PublicCoins:
    """Public randomness, which chooses the next agent or the last round, for example.

    Parameters
    ----------
    source : Randomness
        Stream of public random words.
    """

    def __init__(self, source: Randomness) -> None:
        self._source = source

    def below(self, limit: int) -> int:
        """Return a uniform integer from 0 to ``limit - 1``."""
        # Words beyond the largest multiple of `limit` are rejected and redrawn.
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
    """Return floats uniform on [0, 1); for several streams, a row per stream."""
    return (source.words(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def source_for(seed: int | None, key: tuple[int, ...]) -> Source:
    """Return the cryptographic source, or reproducible streams for a seed and key."""
    return Secure() if seed is None else Seeded(seed, key)


@dataclass(frozen=True)
class SourceOfOne:
    """Source of one agent's noise, with the interface `Sources` for several agents."""

    source: Source

    def at(self, round: int, step: int) -> Alone:
        """Return the agent's stream for the release `step` of round `round`."""
        return Alone(self.source.at(round, step))


def together(sources: Sequence[Source]) -> Sources:
    """Return one source for several agents; each agent gets the words of its single source.

    Parameters
    ----------
    sources : sequence of Source
        Either one source of any kind, or several results of `source_for`, all with or all without a
        seed.
    """
    if len(sources) == 1:
        return SourceOfOne(sources[0])
    seeded = [source for source in sources if isinstance(source, Seeded)]
    return SeededTogether(seeded) if seeded else SecureStreams(len(sources))
