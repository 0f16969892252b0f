r"""Secret sums between owners, by pairwise masks that cancel in the sum.

Owner i has an X25519 key, whose public part is signed by its certificate's key, together with the
digest of the common document that the owner accepted; see `dpcvx.owners.offers.document_of`. With
every other owner j it shares a secret. Both derive from it the same words for each direction and
round,

.. math:: r_{ij} = \text{ChaCha20}(\text{HKDF}(\text{X25519}(i, j), \text{document}, i \to j), t),

and it sends :math:`y_i = z_i - \sum_j r_{ij} + \sum_j r_{ji} \bmod 2^{64}` for its encoded value
:math:`z_i`. All masks cancel in the sum; what the coordinator and all but two owners see of the two
is their sum. This is `dpcvx.privacy.secret_sharing` with shares that are never sent, since their
receivers can compute them.

Masks of owners with different documents do not cancel. The digest covers the name of the run, the
method with grid and range of its sums, the rounds, and every participant's program and noise, so
that everybody whose masks cancel adds the noise that the others count on.

A key lives as long as the run, beside the ledger, so that an owner that is started again sends the
same words. The file of a run also holds the digest, and another one is refused. Words of a round
are used for one value, and another one is refused, also by an owner that is started again: the use
of a round is on disk before its words are sent.

Keys and streams for masks, from ``cryptography``: the only module that knows their names.
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
from .messages import refused

Words = NDArray[np.uint64]
_KEY, _DOCUMENT, _DIGEST = 32, 32, 16
_HEAD = _KEY + _DOCUMENT
_RECORD = struct.Struct(f"<Q{_DIGEST}s")


class KeyFile:
    """The mask key of a run and its uses, in a file for its owner alone; made if there is none.

    The file holds the key, the digest of the common document that it belongs to, and a record for
    each round in use: its number, and a digest of its value under the key. A part of a record at
    the end, of words that were never sent, is overwritten.

    Parameters
    ----------
    path : Path
        One per name of a run.
    document : str
        See `dpcvx.owners.offers.document_of`.

    Attributes
    ----------
    key : bytes
    document : str

    Raises
    ------
    LedgerError
        If the file is none.
    RefusedError
        With code "changed", if the key belongs to another document.
    """

    def __init__(self, path: Path, document: str) -> None:
        self._path, self.document = path, document
        self._awaited: dict[int, bytes] = {}
        if not path.exists():
            self._write(os.O_CREAT | os.O_EXCL, 0, fresh() + bytes.fromhex(document))
        raw = path.read_bytes()
        self.key, held, rest = raw[:_KEY], raw[_KEY:_HEAD], raw[_HEAD:]
        if len(held) < _DOCUMENT:
            raise LedgerError(
                f"The file '{path.name}' holds no mask key and document. Remove the file, and have "
                "the coordinator begin a new run: nobody can compute the masks without it."
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
        """Return whether a round is free for a value, or in use for the same one.

        The value may be sent after the next call of `keep`.

        Parameters
        ----------
        t : int
        value : bytes
        """
        digest = hashlib.blake2b(value, digest_size=_DIGEST, key=self.key).digest()
        noted = self._used.get(t) or self._awaited.setdefault(t, digest)
        return noted == digest

    def keep(self) -> None:
        """Write the new uses; on disk when this returns."""
        for t in sorted(self._awaited.keys() - self._used.keys()):
            record = _RECORD.pack(t, self._awaited[t])
            self._write(0, self._end, record)
            self._used[t], self._end = self._awaited[t], self._end + len(record)
        self._awaited = {}

    def _write(self, flags: int, offset: int, content: bytes) -> None:
        number = os.open(self._path, os.O_WRONLY | flags, 0o600)
        with os.fdopen(number, "wb") as file:
            file.seek(offset)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


class Masker:
    """Masks of an owner in a run.

    Parameters
    ----------
    name : str
    kept : KeyFile
    """

    def __init__(self, name: str, key_file: KeyFile) -> None:
        self.public, self.document = public_of(key_file.key), key_file.document
        self._name, self._kept = name, key_file
        self._secrets: dict[tuple[str, str], PairSecret] = {}

    @property
    def agreed(self) -> bool:
        """Return whether the keys of all others have come."""
        return bool(self._secrets)

    def agree(self, publics: Mapping[str, bytes]) -> None:
        """Take the public keys of all others."""
        for other, public in publics.items():
            if other == self._name:
                continue
            for pair in ((self._name, other), (other, self._name)):
                said = f"dpcvx masks 2 {self.document} {len(pair[0])} {pair[0]} {pair[1]}"
                self._secrets[pair] = agreed(self._kept.key, public, said.encode())

    def words(self, sender: str, receiver: str, t: int, size: int) -> Words:
        """Return the words that two owners share for a mask in a round."""
        secret = self._secrets.get((sender, receiver))
        if secret is None:
            raise refused(
                "partners",
                f"the mask key of '{receiver if sender == self._name else sender}' is missing",
            )
        return secret.words(t, size)

    def use(self, t: int, encoded: Words) -> None:
        """Note the value of a round; another one in its place would show the difference."""
        if not self._kept.use(t, encoded.tobytes()):
            raise refused("order", f"the masks of round {t} were used before")

    def keep(self) -> None:
        """Write the rounds in use to disk, before any masked word is sent."""
        self._kept.keep()


def statement(document: str, agent: str, public: str) -> bytes:
    """Return the text that an owner signs: its key, for a run with this common document only."""
    return f"dpcvx mask key 2 {document} {public} {agent}".encode()


@dataclass(frozen=True, eq=False)
class MaskedSum(SecretSum):
    """A secret sum whose shares for others are known to these already, and are not sent."""

    masker: Masker | None = field(default=None, repr=False)

    def shares(self, sender: str, values: ArrayLike, source: Any = None) -> tuple[Share, ...]:
        """Return the share that stays, and those that receivers compute; see `SecretSum.shares`."""
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
        """Return the masked value: the share that stayed, and those that others did not send."""
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
    """Return a message with every secret sum in it by masks."""
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
    """A secret of two owners, for one direction."""

    key: bytes = field(repr=False)

    def words(self, t: int, size: int) -> NDArray[np.uint64]:
        """Return `size` pseudorandom words of 64 bits for round t."""
        nonce = (0).to_bytes(8, "little") + t.to_bytes(8, "little")
        stream = Cipher(algorithms.ChaCha20(self.key, nonce), None).encryptor()
        return np.frombuffer(stream.update(bytes(8 * size)), "<u8").astype(np.uint64)


def fresh() -> bytes:
    """Return a new secret key."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(key: bytes) -> bytes:
    """Return the public part of a key."""
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agreed(key: bytes, public: bytes, said: bytes) -> PairSecret:
    """Return the secret that two owners share, for a purpose.

    Parameters
    ----------
    key : bytes
        One's own.
    public : bytes
        The other's.
    said : bytes
        The run and the direction.

    Raises
    ------
    RefusedError
        If the other's key is none.
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError:
        raise refused("stranger", "the mask key is not a public key") from None
    return PairSecret(HKDF(hashes.SHA256(), 32, None, said).derive(shared))
