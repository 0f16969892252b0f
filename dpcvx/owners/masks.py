r"""Secret sums between owners, by pairwise masks that cancel in the sum.

Owner i has an X25519 key, whose public part is signed by its certificate's key. With every other
owner j it shares a secret, of which both derive the same words for each direction and round,

.. math:: r_{ij} = \text{ChaCha20}(\text{HKDF}(\text{X25519}(i, j), \text{run}, i \to j), t),

and it sends :math:`y_i = z_i - \sum_j r_{ij} + \sum_j r_{ji} \bmod 2^{64}` for its encoded value
:math:`z_i`. All masks cancel in the sum; what the coordinator and all but two owners see of the two
is their sum. This is `dpcvx.privacy.secret_sharing` with shares that are never sent, since their
receivers can compute them.

A key lives as long as the run, beside the ledger, so that an owner that is started again sends the
same words. Words of a round are used for one value: another one is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..algorithms.central import LeftInShares
from ..algorithms.secret_terms import Shared
from ..privacy.secret_sharing import Partial, SecretSum, Share, combine
from .ciphers import PairSecret, agreed, fresh, public_of
from .refusal import refused

Words = NDArray[np.uint64]


class Masker:
    """One owner's masks in one run.

    Parameters
    ----------
    run : str
    name : str
    key : bytes
        Its secret; see `kept_key`.
    """

    def __init__(self, run: str, name: str, key: bytes) -> None:
        self.public = public_of(key)
        self._run, self._name, self._key = run, name, key
        self._secrets: dict[tuple[str, str], PairSecret] = {}
        self._used: dict[int, bytes] = {}

    def agree(self, publics: Mapping[str, bytes]) -> None:
        """Take the public keys of all others."""
        for other, public in publics.items():
            if other == self._name:
                continue
            for pair in ((self._name, other), (other, self._name)):
                said = f"dpcvx masks 1 {self._run} {len(pair[0])} {pair[0]} {pair[1]}"
                self._secrets[pair] = agreed(self._key, public, said.encode())

    def words(self, sender: str, receiver: str, t: int, size: int) -> Words:
        """What both know of each other's masks in a round."""
        secret = self._secrets.get((sender, receiver))
        if secret is None:
            raise refused("partners", f"no key of '{receiver if sender == self._name else sender}'")
        return secret.words(t, size)

    def use(self, t: int, encoded: Words) -> None:
        """Note the value of a round; another one in its place would show the difference."""
        found = hashlib.blake2b(encoded.tobytes(), digest_size=16).digest()
        if self._used.setdefault(t, found) != found:
            raise refused("order", f"the masks of round {t} are used")


def statement(run: str, agent: str, public: str) -> bytes:
    """What an owner signs of its key."""
    return f"dpcvx mask key 1 {run} {public} {agent}".encode()


def kept_key(path: Path) -> bytes:
    """The key in a file for its owner alone; made if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(32)
    except FileNotFoundError:
        key = fresh()
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        return key


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
