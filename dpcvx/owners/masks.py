r"""Secure aggregation between owners, by pairwise masks that cancel in the sum.

Owner i has an X25519 key. The key of its certificate signs the public part, together with the
digest of the common document that the owner accepted; see `dpcvx.owners.offers.document_of`. Owners
i and j derive a common secret from their keys, and from it equal 64-bit words for each direction
and round,

.. math:: r_{ij} = \text{ChaCha20}(\text{HKDF}(\text{X25519}(i, j), \text{document}, i \to j), t),

and it sends :math:`y_i = z_i - \sum_j r_{ij} + \sum_j r_{ji} \bmod 2^{64}` for its encoded value
:math:`z_i`. All masks cancel in the sum. If the coordinator colludes with all owners but two, it
learns only the sum of these two owners' values. This is `dpcvx.privacy.secret_sharing` with shares
that are never sent, since their receivers can compute them.

Masks of owners with different documents do not cancel. The digest covers the name of the run, the
method with grid and range of its sums, the rounds, and every participant's program and noise. So
all owners whose masks cancel add the noise that the others rely on.

A key is stored beside the ledger as long as the run, so that a restarted owner sends equal words.
The file also holds the digest, and a run with another digest is refused. The words of a round mask
one value only. A second value is refused, even after a restart, because the use of a round is on
disk before its words are sent.

No other module uses the keys and stream ciphers of ``cryptography`` for masks.
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
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import ArrayLike, NDArray

from ..algorithms.one_shot import LeftInShares
from ..algorithms.summed import Shared
from ..errors import LedgerError
from ..privacy.secret_sharing import Partial, SecretSum, Share, combine
from .files import named, write_whole
from .messages import refused

Words = NDArray[np.uint64]
_KEY, _DOCUMENT, _DIGEST = 32, 32, 16
_HEAD = _KEY + _DOCUMENT
_RECORD = struct.Struct(f"<Q{_DIGEST}s")


class KeyFile:
    """File with an owner's mask key for one run and the key's uses; created if it does not exist.

    The file holds the key, the digest of the run's terms that all owners accepted, and a record for
    each used round: its number, and a keyed hash of the value that was masked in it. A new record
    overwrites a partial one at the end, which belongs to a value that was never sent.

    Parameters
    ----------
    path : Path
        Path of the file; each run has its own file.
    document : str
        Digest of the run's terms for all owners; see `dpcvx.owners.offers.document_of`.

    Attributes
    ----------
    key : bytes
        Private mask key.
    document : str
        Digest of the run's terms.

    Raises
    ------
    LedgerError
        If the file does not hold a key and a digest.
    RefusedError
        With code "changed", if the key belongs to a run with other terms.
    """

    def __init__(self, path: Path, document: str) -> None:
        self._path, self.document = path, document
        self._awaited: dict[int, bytes] = {}
        if not path.exists():
            write_whole(path, fresh() + bytes.fromhex(document))
        raw = path.read_bytes()
        self.key, held, rest = raw[:_KEY], raw[_KEY:_HEAD], raw[_HEAD:]
        if len(held) < _DOCUMENT:
            raise LedgerError(
                f"The file '{path.name}' holds no mask key and document. Remove the file, and "
                "have the coordinator begin a new run. Nobody can compute the masks of this run "
                "without the file."
            )
        if held != bytes.fromhex(document):
            raise refused("changed", "a run of this name began with another document")
        whole = len(rest) - len(rest) % _RECORD.size
        self._used = dict(_RECORD.iter_unpack(rest[:whole]))
        self._end = _HEAD + whole

    @property
    def used(self) -> bool:
        """Return whether masked values of the run may have been sent."""
        return bool(self._used)

    def use(self, t: int, value: bytes) -> bool:
        """Reserve a round for a value; return False if the round is reserved for another value.

        The masked value may be sent after the next call of `keep`.

        Parameters
        ----------
        t : int
            Round.
        value : bytes
            Encoded value.
        """
        digest = hashlib.blake2b(value, digest_size=_DIGEST, key=self.key).digest()
        noted = self._used.get(t) or self._awaited.setdefault(t, digest)
        return noted == digest

    def keep(self) -> None:
        """Write the rounds with newly reserved masks; they are on disk when this returns."""
        for t in sorted(self._awaited.keys() - self._used.keys()):
            record = _RECORD.pack(t, self._awaited[t])
            self._write(self._end, record)
            self._used[t], self._end = self._awaited[t], self._end + len(record)
        self._awaited = {}

    def _write(self, offset: int, content: bytes) -> None:
        with named(self._path), os.fdopen(os.open(self._path, os.O_WRONLY), "wb") as file:
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


class Masker:
    """Masks of one owner's values in the secure aggregation of one run.

    Parameters
    ----------
    name : str
        Name of the owner's agent.
    key_file : KeyFile
        Mask key of the run.
    """

    def __init__(self, name: str, key_file: KeyFile) -> None:
        self.public, self.document = public_of(key_file.key), key_file.document
        self._name, self._kept = name, key_file
        self._secrets: dict[tuple[str, str], PairSecret] = {}

    @property
    def agreed(self) -> bool:
        """Return whether the owner has received the public keys of all others."""
        return bool(self._secrets)

    def agree(self, publics: Mapping[str, bytes]) -> None:
        """Derive the common secrets from the public keys of all others, by name."""
        for other, public in publics.items():
            if other == self._name:
                continue
            for pair in ((self._name, other), (other, self._name)):
                said = f"dpcvx masks 2 {self.document} {len(pair[0])} {pair[0]} {pair[1]}"
                self._secrets[pair] = agreed(self._kept.key, public, said.encode())

    def words(self, sender: str, receiver: str, t: int, size: int) -> Words:
        """Return the `size` secret words that both owners derive to mask values in round t."""
        secret = self._secrets.get((sender, receiver))
        if secret is None:
            raise refused(
                "partners",
                f"the mask key of '{receiver if sender == self._name else sender}' is missing",
            )
        return secret.words(t, size)

    def use(self, t: int, encoded: Words) -> None:
        """Reserve round t's masks for one value: masking two would reveal their difference."""
        if not self._kept.use(t, encoded.tobytes()):
            raise refused("order", f"the masks of round {t} were used before")

    def keep(self) -> None:
        """Write the reserved rounds to disk; call this before a masked value is sent."""
        self._kept.keep()


def statement(document: str, agent: str, public: str) -> bytes:
    """Return the text that an owner signs: its public mask key and the run terms' digest."""
    return f"dpcvx mask key 2 {document} {public} {agent}".encode()


@dataclass(frozen=True, eq=False)
class MaskedSum(SecretSum):
    """Secure aggregation by masks: receivers compute their shares, and no share is sent."""

    masker: Masker | None = field(default=None, repr=False)

    def shares(self, sender: str, values: ArrayLike, source: Any = None) -> tuple[Share, ...]:
        """Return the share that the sender keeps and all others' shares; see `SecretSum.shares`."""
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
        rest = encoded - combine(list(others.values()))
        return tuple(
            Share(sender, name, self.round, rest if name == sender else others[name])
            for name in self.agents
        )

    def partial(self, receiver: str, shares: Sequence[Share]) -> Partial:
        """Return the masked value: the receiver's own share plus the shares that it computes."""
        assert self.masker is not None
        size = int(np.prod(self.shape, dtype=int))
        computed = [
            Share(
                name,
                receiver,
                self.round,
                self.masker.words(name, receiver, self.round, size).reshape(self.shape),
            )
            for name in self.agents
            if name != receiver
        ]
        return super().partial(receiver, [*shares, *computed])


def masked(message: Any, masker: Masker) -> Any:
    """Return a message with every `SecretSum` in it replaced by a `MaskedSum`."""
    if type(message) is SecretSum:
        values = {f.name: getattr(message, f.name) for f in fields(SecretSum)}
        return MaskedSum(**values, masker=masker)
    if isinstance(message, (tuple, list)):
        return type(message)(masked(part, masker) for part in message)
    if is_dataclass(message) and not isinstance(message, type) and hasattr(message, "sums"):
        return replace(message, sums=masked(message.sums, masker))  # pyright: ignore
    return message


def unsent(message: Any) -> Any:
    """Return a reply without the shares that receivers compute by themselves."""
    if isinstance(message, LeftInShares):
        return replace(message, slope=unsent(message.slope))
    if isinstance(message, Shared):
        return replace(message, others=())
    if isinstance(message, tuple) and all(isinstance(part, Share) for part in message):
        return ()
    return message


@dataclass(frozen=True)
class PairSecret:
    """Common secret of two owners for the masks of one direction, from sender to receiver."""

    key: bytes = field(repr=False)

    def words(self, t: int, size: int) -> NDArray[np.uint64]:
        """Return `size` pseudorandom words of 64 bits for round t."""
        nonce = (0).to_bytes(8, "little") + t.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(self.key, nonce), None).encryptor()
        return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def fresh() -> bytes:
    """Return a new private mask key (X25519)."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(key: bytes) -> bytes:
    """Return the public part of a private mask key."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agreed(key: bytes, public: bytes, said: bytes) -> PairSecret:
    """Derive the common secret of two owners for one run and direction.

    Parameters
    ----------
    key : bytes
        Private mask key of this owner.
    public : bytes
        Public mask key of the other owner.
    said : bytes
        Text with the digest of the run's terms, and the direction.

    Raises
    ------
    RefusedError
        If `public` is no public key.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise refused("stranger", "the mask key is not a public key") from None
    return PairSecret(HKDF(hashes.SHA256(), 32, None, said).derive(shared))
