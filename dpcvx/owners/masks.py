r"""Secret sums between owners, by pairwise masks that cancel in the sum.

Owner i has an X25519 key, whose public part is signed by its certificate's key. With every other
owner j it shares a secret, of which both derive the same words for each direction and round,

.. math:: r_{ij} = \text{ChaCha20}(\text{HKDF}(\text{X25519}(i, j), \text{run}, i \to j), t),

and it sends :math:`y_i = z_i - \sum_j r_{ij} + \sum_j r_{ji} \bmod 2^{64}` for its encoded value
:math:`z_i`. All masks cancel in the sum; what the coordinator and all but two owners see of the two
is their sum. This is `dpcvx.privacy.secret_sharing` with shares that are never sent, since their
receivers can compute them.

A key lives as long as the run, beside the ledger, so that an owner that is started again sends the
same words. Words of a round are used for one value, and another one is refused, also by an owner
that is started again: what a round is used for is on disk before its words leave.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..algorithms.central import LeftInShares
from ..algorithms.secret_terms import Shared
from ..errors import LedgerError
from ..privacy.secret_sharing import Partial, SecretSum, Share, combine
from .ciphers import PairSecret, agreed, fresh, public_of
from .refusal import refused

Words = NDArray[np.uint64]
_KEY, _DIGEST = 32, 16
_RECORD = struct.Struct(f"<Q{_DIGEST}s")


class KeyFile:
    """A secret key and what it was used for, in a file for its owner alone; made if there is none.

    The key, and then a record for each round in use: its number, and a digest of its value under
    the key. A part of a record at the end, of words that never left, is overwritten.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    key : bytes

    Raises
    ------
    LedgerError
        If the file is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            self._write(os.O_CREAT | os.O_EXCL, 0, fresh())
        raw = path.read_bytes()
        self.key, rest = raw[:_KEY], raw[_KEY:]
        if len(self.key) < _KEY:
            raise LedgerError(
                f"The file '{path.name}' holds no key of masks. Masks cannot be made again without "
                "it: remove the file, and have the coordinator begin a new run."
            )
        whole = len(rest) - len(rest) % _RECORD.size
        self._used = dict(_RECORD.iter_unpack(rest[:whole]))
        self._end = _KEY + whole

    def use(self, t: int, value: bytes) -> bool:
        """Whether a round is free for a value, or in use for the same; on disk when this returns.

        Parameters
        ----------
        t : int
        value : bytes
        """
        found = hashlib.blake2b(value, digest_size=_DIGEST, key=self.key).digest()
        if t not in self._used:
            record = _RECORD.pack(t, found)
            self._write(0, self._end, record)
            self._used[t], self._end = found, self._end + len(record)
        return self._used[t] == found

    def _write(self, flags: int, place: int, content: bytes) -> None:
        number = os.open(self._path, os.O_WRONLY | flags, 0o600)
        with os.fdopen(number, "wb") as file:
            file.seek(place)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


class Masker:
    """One owner's masks in one run.

    Parameters
    ----------
    run : str
    name : str
    kept : KeyFile
    """

    def __init__(self, run: str, name: str, kept: KeyFile) -> None:
        self.public = public_of(kept.key)
        self._run, self._name, self._kept = run, name, kept
        self._secrets: dict[tuple[str, str], PairSecret] = {}

    def agree(self, publics: Mapping[str, bytes]) -> None:
        """Take the public keys of all others."""
        for other, public in publics.items():
            if other == self._name:
                continue
            for pair in ((self._name, other), (other, self._name)):
                said = f"dpcvx masks 1 {self._run} {len(pair[0])} {pair[0]} {pair[1]}"
                self._secrets[pair] = agreed(self._kept.key, public, said.encode())

    def words(self, sender: str, receiver: str, t: int, size: int) -> Words:
        """What both know of each other's masks in a round."""
        secret = self._secrets.get((sender, receiver))
        if secret is None:
            raise refused("partners", f"no key of '{receiver if sender == self._name else sender}'")
        return secret.words(t, size)

    def use(self, t: int, encoded: Words) -> None:
        """Note the value of a round; another one in its place would show the difference."""
        if not self._kept.use(t, encoded.tobytes()):
            raise refused("order", f"the masks of round {t} are used")


def statement(run: str, agent: str, public: str) -> bytes:
    """What an owner signs of its key."""
    return f"dpcvx mask key 1 {run} {public} {agent}".encode()


@dataclass(frozen=True, eq=False)
class MaskedSum(SecretSum):
    """A secret sum whose shares for others are known to these already, and are not sent."""

    masker: Masker | None = field(default=None, repr=False)

    def shares(self, sender: str, values: ArrayLike, source: Any = None) -> tuple[Share, ...]:
        """The share that stays, and those that receivers compute; see `SecretSum.shares`."""
        assert self.masker is not None
        self._member(sender, "sender of shares")
        encoded = self.encoding.encode(values)
        if encoded.shape != self.shape:
            raise refused("nonsense", "the shape of a sum")
        self.masker.use(self.round, encoded)
        others = {
            name: self.masker.words(sender, name, self.round, encoded.size).reshape(self.shape)
            for name in self.agents
            if name != sender
        }
        own = encoded - combine(list(others.values()))
        return tuple(
            Share(sender, name, self.round, own if name == sender else others[name])
            for name in self.agents
        )

    def partial(self, receiver: str, shares: Sequence[Share]) -> Partial:
        """The masked value: the share that stayed, and those that others did not have to send."""
        assert self.masker is not None
        size = int(np.prod(self.shape, dtype=int))
        known = [
            Share(
                name,
                receiver,
                self.round,
                self.masker.words(name, receiver, self.round, size).reshape(self.shape),
            )
            for name in self.agents
            if name != receiver
        ]
        return super().partial(receiver, [*shares, *known])


def masked(message: Any, masker: Masker) -> Any:
    """A message with every secret sum in it by masks."""
    if type(message) is SecretSum:
        known = {f.name: getattr(message, f.name) for f in fields(SecretSum)}
        return MaskedSum(**known, masker=masker)
    if isinstance(message, (tuple, list)):
        return type(message)(masked(part, masker) for part in message)
    if is_dataclass(message) and not isinstance(message, type) and hasattr(message, "sums"):
        return replace(message, sums=masked(message.sums, masker))  # pyright: ignore
    return message


def unsent(message: Any) -> Any:
    """A reply without the shares that receivers compute by themselves."""
    if isinstance(message, LeftInShares):
        return replace(message, slope=unsent(message.slope))
    if isinstance(message, Shared):
        return replace(message, others=())
    if isinstance(message, tuple) and all(isinstance(part, Share) for part in message):
        return ()
    return message
